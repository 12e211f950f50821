/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_REPORT_H
#define CQR_REPORT_H

/* What a server is told of us beside our name: an id that all connections of a cluster handle share, so that an operator finds them
   together in the table of clients, and the options in force, as JSON in the form that ScyllaDB's drivers agreed on (version 1 of it:
   groups connection, control-plane and query; a key is left out where nothing is set). No secret, no address, no path is in it. */

#include "driver/net.h"
#include "serialize/cqlring_types.h"

struct cqlring_cluster;

/* A random uuid, as text. Any thread. */
void cqr_client_id(char text[37]);
/* Of a cluster whose options are taken; NULL: out of memory. cqr_mem_free. The opening thread. */
char *cqr_report(const struct cqlring_cluster *cluster);

#endif
