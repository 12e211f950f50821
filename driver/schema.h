/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SCHEMA_H
#define CQR_SCHEMA_H

/* The reading of the schema: page by page over the control connection, a page's rows worked in as they come, so that no turn of
   the submitter takes long; the finished snapshot then stands in the cluster, under its lock. Events mark tables and keyspaces
   that changed; they alone are read again, DEBOUNCE_US after the first of a burst. Lane 0's submitter. */

#include "driver/lane.h"

struct cqlring_cluster;
struct schema_desk;

struct schema_desk *cqr_schema_create(struct cqlring_cluster *cluster); /* NULL: out of memory */
void cqr_schema_connected(struct cqlring_cluster *cluster);            /* a new control connection: whatever was missed is read again */
/* Something in the keyspace: this table or view, or (table size 0) anything. keyspace size 0: who knows where. */
void cqr_schema_changed(struct cqlring_cluster *cluster, cqlring_bytes keyspace, cqlring_bytes table);
void cqr_schema_timer(struct lane *lane, struct timer *timer);
void cqr_schema_stop(struct schema_desk *desk);
void cqr_schema_free(struct schema_desk *desk);                        /* NULL is fine */

#endif
