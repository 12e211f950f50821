/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RECORD_H
#define CQR_RECORD_H

/* What was agreed on each open connection, kept for whoever asks from another thread: connections themselves are their
   submitter's, and end when they end. The submitter adds a record when a connection is up and takes it away when it is down;
   the list is under the cluster's lock. Without memory there is no record, and nothing else is missing. */

#include "driver/conn.h"

struct conn_record {
    struct conn_record *next, **link;
    struct address address;
    cqlring_connection_info info;
};

void cqr_record_open(struct conn *conn);   /* submitter, when it is up */
void cqr_record_close(struct conn *conn);  /* submitter, when it is down; before its cluster is let go */

#endif
