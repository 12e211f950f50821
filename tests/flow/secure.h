/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SECURE_H
#define SECURE_H

/* Certificates for flow tests, made by tests/live/certs in a directory of their own. */

#include "flow.h"

/* In main, before the tests: makes them. False: openssl is not there, and says so. */
bool secure_make(void);
void secure_remove(void);
/* "/tmp/…/ca.pem"; good for the next 16 calls. */
const char *secure_file(const char *name);

/* Between flow_init and flow_start: the node speaks TLS with this certificate ("node-good"), the driver trusts ca.pem.
   tls is kept by the caller until flow_close and may be changed before flow_open. */
void secure_flow(struct flow *flow, const char *certificate, cqlring_tls_options *tls);

#endif
