/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_LOOKUP_H
#define CQR_LOOKUP_H

/* What a cluster has looked up on the resolver's thread (resolve.h), and the way of the answer back to lane 0's submitter. It lies in
   what belongs to the cluster, and keeps the cluster while it is under way: nobody waits for it, not even the close. One at a time;
   zeroed, none is under way. Lane 0's submitter. */

#include "driver/lane.h"
#include "driver/resolve.h"

struct cqlring_cluster;

/* It is over; perhaps the close as well. What was found is borrowed until this returns. */
typedef void (*lookup_done)(struct lane *lane, struct cqlring_cluster *cluster, const struct resolution *found);

struct lookup {
    struct lane_message message;
    struct cqlring_cluster *cluster;
    lookup_done done;
    struct resolution found;      /* the message's */
    bool is_under_way;            /* the rest is the thread's until it comes back */
};

/* points are copied. Not OK: no memory or thread for it, and done is not called. When the lane has ended it is not called either. */
cqlring_status cqr_lookup_start(struct lookup *lookup, struct cqlring_cluster *cluster, const struct contact_point *points, uint32_t count, lookup_done done);
/* As if it had been looked up. The addresses are taken. */
void cqr_lookup_answer(struct lookup *lookup, struct cqlring_cluster *cluster, const struct resolution *found, lookup_done done);

#endif
