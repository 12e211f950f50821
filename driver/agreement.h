/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_AGREEMENT_H
#define CQR_AGREEMENT_H

/* Schema agreement: after a statement that changed the schema, its op waits until all nodes that are up name the same
   schema_version, or until the wait is over; then it is settled with the server's answer, which was OK all the while. The
   versions are read over the control connection, by a desk of the cluster on lane 0's submitter, once for all who wait; the
   asker's own lane has the time-out, so that nothing that happens to the control connection can make a future hang.

   Whose version counts: the node of the control connection, and of the others those that are connected or, in the local
   datacenter, are not known to be down. Rows without a version do not count (SC-03). */

#include "driver/future.h"
#include "driver/lane.h"

struct cqlring_cluster;
struct agreement_desk;

/* Submitter: the op was answered with a change of the schema; it now waits (OP_WAIT_AGREEMENT). False: there is nothing to wait
   for (switched off, or no memory), settle it. */
bool cqr_agreement_begin(struct lane *lane, struct op *op);
/* Its time is over, or nobody wants to wait any longer: it is settled as not agreed. */
void cqr_agreement_give_up(struct lane *lane, struct op *op);

/* Lane 0's submitter but for create and free. */
struct agreement_desk *cqr_agreement_create(struct cqlring_cluster *cluster); /* NULL: out of memory */
void cqr_agreement_timer(struct lane *lane, struct timer *timer);
void cqr_agreement_stop(struct agreement_desk *desk); /* everybody who waits is told that it was not reached */
void cqr_agreement_free(struct agreement_desk *desk); /* stopped, or never used */

#endif
