/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TRACE_H
#define CQR_TRACE_H

/* What a server wrote down of a request that was traced, read on request. It writes late: the session's row is looked at again
   until it says how long the request took, or TRIES_US are over. Over the control connection; lane 0's submitter. */

#include "driver/lane.h"

struct cqlring_cluster;

void cqr_trace_timer(struct lane *lane, struct timer *timer);
void cqr_traces_stop(struct cqlring_cluster *cluster); /* those that are being read end as CLOSED */

#endif
