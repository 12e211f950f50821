/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/policy_nodes.h"

#include <string.h>

#include "driver/lane.h"
#include "driver/prepared.h"
#include "driver/resolve.h"
#include "driver/session.h"
#include "serialize/mem.h"

enum { SLOW_AFTER_US = 200000, REMOTE_MAX = 64 };

/* ---- lists ---- */

static cqlring_status list_parse(const char *name, const char *text, struct contact_point **list, uint32_t *count, cqlring_error *error)
{
    if (text == NULL)
        return CQLRING_OK;
    if (text[strspn(text, " \t\r\n")] == '\0')
        return cqr_error(error, CQLRING_INVALID, "cluster options: %s is empty: leave it NULL when it is not wanted", name);
    cqlring_error why;
    why.message[0] = '\0';
    cqlring_status status = cqr_contact_points_parse(text, 0, list, count, &why);
    if (status != CQLRING_OK)
        return cqr_error(error, status, "cluster options: %s: %s", name, why.message);
    for (uint32_t i = 0; i < *count; i++) {
        struct address address;
        if (!cqr_address_from_literal(&address, (*list)[i].host, 1))
            return cqr_error(error, CQLRING_INVALID, "cluster options: %s: \"%s\" is no address; names are not looked up here", name, (*list)[i].host);
    }
    return CQLRING_OK;
}

static uint16_t port_of(const struct address *address)
{
    const char *colon;
    char text[64];
    cqr_address_format(address, text);
    unsigned port = 0;
    if (text[0] != '/' && (colon = strrchr(text, ':')) != NULL)
        for (colon++; *colon >= '0' && *colon <= '9'; colon++)
            port = port * 10 + (unsigned)(*colon - '0');
    return (uint16_t)port;
}

static bool is_listed(const struct contact_point *list, uint32_t count, const struct address *address)
{
    for (uint32_t i = 0; i < count; i++) {
        struct address listed;
        uint16_t port = list[i].port != 0 ? list[i].port : port_of(address);
        if (cqr_address_from_literal(&listed, list[i].host, port) && cqr_address_equal(&listed, address))
            return true;
    }
    return false;
}

cqlring_status cqr_node_policy_init(struct node_policy *policy, const cqlring_cluster_options *options, cqlring_error *error)
{
    if (options->remote_nodes_max > REMOTE_MAX)
        return cqr_error(error, CQLRING_INVALID, "cluster options: remote_nodes_max is %u (0 to %d nodes of each other datacenter)", options->remote_nodes_max, REMOTE_MAX);
    if (options->slow_after_us < -1)
        return cqr_error(error, CQLRING_INVALID, "cluster options: slow_after_us is -1 (never), 0 (the default) or positive");
    if (options->local_rack != NULL && options->local_datacenter == NULL)
        return cqr_error(error, CQLRING_INVALID, "cluster options: local_rack \"%s\" needs local_datacenter: racks of the same name may be in others", options->local_rack);
    policy->remote_max = options->remote_nodes_max;
    policy->remote_local = options->remote_local_consistency == CQLRING_YES;
    policy->slow_after_us = options->slow_after_us == 0 ? SLOW_AFTER_US : options->slow_after_us < 0 ? INT64_MAX : options->slow_after_us;
    policy->filter = options->node_filter;
    policy->filter_context = options->node_filter_context;
    policy->plan = options->plan;
    policy->plan_context = options->plan_context;
    policy->retry = options->retry_policy;
    policy->retry_context = options->retry_context;
    if (options->local_rack != NULL && (policy->local_rack = cqr_mem_text(options->local_rack, strlen(options->local_rack))) == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_cluster_open: out of memory");
    policy->routes = policy->remote_max > 0 || policy->plan != NULL || policy->local_rack != NULL;
    cqlring_status status = list_parse("allow_nodes", options->allow_nodes, &policy->allowed, &policy->allowed_count, error);
    return status != CQLRING_OK ? status : list_parse("deny_nodes", options->deny_nodes, &policy->denied, &policy->denied_count, error);
}

void cqr_node_policy_fini(struct node_policy *policy)
{
    cqr_mem_free(policy->local_rack);
    cqr_mem_free(policy->allowed);
    cqr_mem_free(policy->denied);
}

bool cqr_node_policy_allows(const struct node_policy *policy, const struct cqlring_node *node)
{
    const struct address *address = &cqr_node_place(node)->address;
    if (policy->allowed_count > 0 && !is_listed(policy->allowed, policy->allowed_count, address))
        return false;
    if (is_listed(policy->denied, policy->denied_count, address))
        return false;
    if (policy->filter == NULL)
        return true;
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    return policy->filter(&info, policy->filter_context);
}

bool cqr_node_is_used(const struct node_policy *policy, const struct topology *topology, const struct cqlring_node *node)
{
    if (cqr_node_place(node)->is_denied)
        return false;
    if (node->is_local || policy->remote_max == 0)
        return node->is_local;
    uint32_t before = 0; /* of the same datacenter; the oldest ones, so that the choice stays when nodes come */
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct cqlring_node *other = topology->nodes[i];
        before += !cqr_node_place(other)->is_denied && other->index < node->index && strcmp(other->datacenter, node->datacenter) == 0;
    }
    return before < policy->remote_max;
}

/* ---- choosing ---- */

static bool lives(const struct op *op, const struct pool_link *link)
{
    return link != NULL && link->up && !link->conn->writer.suspect && !cqr_op_was_tried(op, link);
}

/* A replica in our rack with the fewest requests under way. One that is full, silent or resting is not waited for: the next rack is
   not far. But one whose window is reached is (true, *conn NULL): in a job that is so all the time. */
static bool rack_route(const struct lane *lane, const struct op *op, const struct pool *pool, const struct route_limit *limit, const uint16_t *replicas, uint32_t count,
                       struct conn **conn)
{
    struct conn *best = NULL;
    bool waits = false;
    for (uint32_t i = 0; i < count; i++) {
        struct pool_link *link = replicas[i] < pool->link_count ? pool->links[replicas[i]] : NULL;
        if (!lives(op, link) || !link->node->in_rack || !cqr_limit_on_node(limit, link))
            continue;
        struct conn *own = link->shards != NULL ? cqr_route_shard(lane, op, link) : link->conn;
        if (own == NULL || !cqr_writer_has_room(own) || cqr_route_is_slow(lane, own))
            continue;
        if (!cqr_limit_window(limit, own))
            waits = true;
        else if (best == NULL || own->writer.in_flight < best->writer.in_flight)
            best = own;
    }
    *conn = best;
    return best != NULL || waits;
}

static bool is_local_level(uint16_t consistency)
{
    return consistency == CQLRING_LOCAL_ONE || consistency == CQLRING_LOCAL_QUORUM || consistency == CQLRING_LOCAL_SERIAL;
}

/* No local node is left: the other datacenters' turn, replicas first. */
static bool remote_route(const struct lane *lane, struct pool *pool, const struct op *op, const uint16_t *replicas, uint32_t count, bool *any_up, struct conn **conn)
{
    const struct node_policy *policy = &pool->cluster->policy;
    bool local_up = false;
    struct conn *best = NULL;
    (void)lane;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        const struct pool_link *link = pool->links[i];
        if (link == NULL || link->remote || !link->up)
            continue;
        local_up = true;
        if (lives(op, link))
            return false;
    }
    if (!policy->remote_local && (is_local_level(op->plan->params.consistency) || is_local_level(op->plan->params.serial_consistency))) {
        *any_up = local_up;
        *conn = NULL;
        return !local_up; /* else suspects and those already tried, as ever */
    }
    bool remote_lives = false;
    for (uint32_t i = 0; i < count && best == NULL; i++) {
        struct pool_link *link = replicas[i] < pool->link_count ? pool->links[replicas[i]] : NULL;
        if (lives(op, link) && link->remote && cqr_writer_has_room(link->conn))
            best = link->conn;
    }
    uint32_t start = pool->turn++;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[(start + i) % pool->link_count];
        if (!lives(op, link) || !link->remote)
            continue;
        remote_lives = true;
        if (best == NULL && cqr_writer_has_room(link->conn))
            best = link->conn;
    }
    *conn = best;
    if (best != NULL || remote_lives)
        return true;
    *any_up = local_up || *any_up;
    return false;
}

/* The application's order. A bad one is not followed at all. */
static bool plan_route(struct lane *lane, struct pool *pool, struct op *op, const uint16_t *replicas, uint32_t count, bool *any_up, struct conn **conn)
{
    enum { NODES_MAX = 256 };
    const struct node_policy *policy = &pool->cluster->policy;
    cqlring_plan_node nodes[NODES_MAX];
    struct pool_link *links[NODES_MAX];
    uint32_t order[NODES_MAX], node_count = 0;
    for (uint32_t i = 0; i < pool->link_count && node_count < NODES_MAX; i++) {
        struct pool_link *link = pool->links[i];
        if (link == NULL || !link->up || (op->other_only && cqr_op_was_tried(op, link)))
            continue;
        uint8_t rank = 0;
        for (uint32_t j = 0; j < count && rank == 0; j++)
            rank = replicas[j] == i ? (uint8_t)(j + 1) : 0;
        links[node_count] = link;
        nodes[node_count++] = (cqlring_plan_node){.node = link->node,
                                                  .replica = rank,
                                                  .is_local = link->node->is_local,
                                                  .is_suspect = link->conn->writer.suspect,
                                                  .was_tried = cqr_op_was_tried(op, link),
                                                  .in_flight = link->conn->writer.in_flight};
    }
    if (node_count == 0)
        return false;
    cqlring_plan_query query = {.token = op->token,
                                .has_token = op->has_token,
                                .is_read = op->plan->is_read,
                                .is_conditional = cqr_route_is_conditional(op),
                                .attempts = op->attempts,
                                .tag = op->tag,
                                .keyspace = op->version != NULL ? op->version->keyspace : pool->keyspace};
    uint32_t given = policy->plan(&query, nodes, node_count, order, policy->plan_context);
    if (given == 0)
        return false;
    bool good = given <= node_count;
    uint64_t seen[NODES_MAX / 64] = {0};
    for (uint32_t i = 0; i < given && good; i++) {
        good = order[i] < node_count && (seen[order[i] / 64] >> (order[i] % 64) & 1) == 0;
        if (good)
            seen[order[i] / 64] |= UINT64_C(1) << (order[i] % 64);
    }
    if (!good) {
        cqr_count(&lane->stats.plans_ignored, 1);
        return false;
    }
    *conn = NULL;
    for (uint32_t i = 0; i < given && *conn == NULL; i++)
        if (cqr_writer_has_room(links[order[i]]->conn))
            *conn = links[order[i]]->conn;
    *any_up = true;
    return true;
}

bool cqr_policy_route(struct lane *lane, struct pool *pool, struct op *op, const struct route_limit *limit, const uint16_t *replicas, uint32_t count, bool *any_up,
                      struct conn **conn)
{
    const struct node_policy *policy = &pool->cluster->policy;
    if (policy->plan != NULL && plan_route(lane, pool, op, replicas, count, any_up, conn))
        return true;
    if (policy->local_rack != NULL && !cqr_route_is_conditional(op) && rack_route(lane, op, pool, limit, replicas, count, conn))
        return true;
    return policy->remote_max > 0 && remote_route(lane, pool, op, replicas, count, any_up, conn);
}
