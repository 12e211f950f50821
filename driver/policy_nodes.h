/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_POLICY_NODES_H
#define CQR_POLICY_NODES_H

/* Which nodes are used at all, and which of them first, beyond what every request does (route.c): lists and filter, racks, other
   datacenters, and an application's own plan. A cluster's, constant from its open on. */

#include <stdbool.h>
#include <stdint.h>

#include "driver/cqlring.h"

struct contact_point;
struct conn;
struct cqlring_cluster;
struct lane;
struct op;
struct pool;
struct route_limit;
struct topology;

struct node_policy {
    bool routes;                  /* cqr_policy_route has something to say */
    bool remote_local;            /* other datacenters also at LOCAL_… levels */
    uint32_t remote_max;          /* nodes of each other datacenter */
    int64_t slow_after_us;        /* INT64_MAX never */
    char *local_rack;             /* NULL: racks do not matter */
    struct contact_point *allowed, *denied; /* port 0: any */
    uint32_t allowed_count, denied_count;
    bool (*filter)(const cqlring_node_info *node, void *context);
    void *filter_context;
    uint32_t (*plan)(const cqlring_plan_query *query, const cqlring_plan_node *nodes, uint32_t node_count, uint32_t *order, void *context);
    void *plan_context;
    cqlring_retry_decision (*retry)(const cqlring_retry_query *query, cqlring_consistency *consistency, int64_t *delay_us, void *context);
    void *retry_context;
};

cqlring_status cqr_node_policy_init(struct node_policy *policy, const cqlring_cluster_options *options, cqlring_error *error);
void cqr_node_policy_fini(struct node_policy *policy);
/* By lists and filter; asked once for each node that is new. Lane 0's submitter. */
bool cqr_node_policy_allows(const struct node_policy *policy, const struct cqlring_node *node);
/* Is it one to be connected to: allowed, and local or among the first of its datacenter? */
bool cqr_node_is_used(const struct node_policy *policy, const struct topology *topology, const struct cqlring_node *node);

/* Submitter, when policy.routes. True: *conn is the choice, NULL for none now (any_up as cqr_route says it). False: the usual
   choice among the local nodes. */
bool cqr_policy_route(struct lane *lane, struct pool *pool, struct op *op, const struct route_limit *limit, const uint16_t *replicas, uint32_t count, bool *any_up,
                      struct conn **conn);

#endif
