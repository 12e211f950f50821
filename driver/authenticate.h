/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_AUTHENTICATE_H
#define CQR_AUTHENTICATE_H

/* The submitter's part of authentication; the protocol's is cql/handshake. */

#include "driver/conn.h"

void cqr_link_auth(struct lane *lane, struct conn *conn); /* COMPLETION_AUTH: the node asks, or challenges */
bool cqr_auth_finished(struct conn *conn);                /* it is up: does the application believe the server's last word? */
void cqr_auth_end(struct conn *conn);                     /* up or down: what the application kept is wiped */

#endif
