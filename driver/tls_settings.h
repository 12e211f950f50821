/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TLS_SETTINGS_H
#define CQR_TLS_SETTINGS_H

/* The TLS options of a cluster, kept with copies of their strings, so that the files can be read again. The cluster's, under its
   lock; the context made from them is counted and each connection holds the one it was made with. */

#include "driver/cqlring.h"
#include "driver/transport.h"

struct cqlring_cluster;

struct tls_settings {
    struct tls_options options; /* strings are this struct's own */
};

/* cqlring_cluster_open: checks and keeps them, makes the first context. */
cqlring_status cqr_tls_settings_take(struct cqlring_cluster *cluster, const cqlring_tls_options *given, cqlring_error *error);
void cqr_tls_settings_free(struct cqlring_cluster *cluster);
/* Any thread: a reference to the context for a new connection; NULL: no TLS. */
struct tls_context *cqr_cluster_tls(struct cqlring_cluster *cluster);

#endif
