/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/lookup.h"

#include "driver/runtime.h"
#include "driver/session.h"
#include "serialize/mem.h"

static void come_back(struct lane *lane, struct lane_message *message)
{
    struct lookup *lookup = (struct lookup *)(void *)message;
    struct cqlring_cluster *cluster = lookup->cluster;
    struct resolution found = lookup->found; /* who is told may start the next one */
    lookup->is_under_way = false;
    lookup->done(lane, cluster, &found);
    cqr_mem_free(found.addresses);
    cqr_cluster_release(cluster);
}

/* On the resolver's thread, or the one that started it. */
static void post(struct lookup *lookup, const struct resolution *found)
{
    /* the lane is touched until the post has returned; by then the message may have run, and everything be closed */
    struct runtime_core *runtime = cqr_runtime_retain(lookup->cluster->runtime);
    lookup->found = *found;
    lookup->message.run = come_back;
    if (!cqr_lane_post(&runtime->lanes[0], &lookup->message)) {
        cqr_mem_free(lookup->found.addresses);
        cqr_cluster_release(lookup->cluster);
    }
    cqr_runtime_release(runtime);
}

static void resolved(struct resolution *found, void *context)
{
    post(context, found);
}

static void begin(struct lookup *lookup, struct cqlring_cluster *cluster, lookup_done done)
{
    lookup->is_under_way = true;
    lookup->cluster = cqr_cluster_retain(cluster);
    lookup->done = done;
}

cqlring_status cqr_lookup_start(struct lookup *lookup, struct cqlring_cluster *cluster, const struct contact_point *points, uint32_t count, lookup_done done)
{
    begin(lookup, cluster, done);
    cqlring_status status = cqr_resolve_start(points, count, resolved, lookup);
    if (status != CQLRING_OK) {
        lookup->is_under_way = false;
        cqr_cluster_release(cluster);
    }
    return status;
}

void cqr_lookup_answer(struct lookup *lookup, struct cqlring_cluster *cluster, const struct resolution *found, lookup_done done)
{
    begin(lookup, cluster, done);
    post(lookup, found);
}
