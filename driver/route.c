/* SPDX-License-Identifier: Apache-2.0 */

/* Which connection takes a request: a replica of its token with the fewest requests under way, else any node. Submitter, on the
   lane's own copies; per row this is a hash, a binary search and a look at a few counters. */

#include <string.h>

#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/prepared.h"
#include "driver/session.h"

bool cqr_version_token(struct lane *lane, const struct statement_version *version, const cqlring_bytes *cells, int64_t *token)
{
    if (version->key_count == 1) { /* what most tables have; as cqr_routing_key */
        const cqlring_bytes *cell = &cells[version->key_parts[0]];
        if (cell->size < 0 || cell->size > UINT16_MAX)
            return false;
        *token = cqr_murmur3(cell->data, (uint32_t)cell->size);
        return true;
    }
    cqlring_bytes key;
    if (version->key_count == 0 || !cqr_routing_key(cells, version->key_parts, version->key_count, lane->scratch, SCRATCH_SIZE, &key))
        return false;
    *token = cqr_murmur3(key.data, (uint32_t)key.size);
    return true;
}

static struct replica_table *table_of(struct pool *pool, const struct statement_version *version)
{
    struct route_slot *slot = &pool->routes[((uintptr_t)version >> 6) % 16];
    if (slot->version == version)
        return slot->table;
    *slot = (struct route_slot){.version = version};
    if (pool->topology == NULL || pool->topology->partitioner != PARTITIONER_MURMUR3)
        return NULL;
    const struct keyspace *keyspace = cqr_topology_keyspace(pool->topology, cqlring_text(version->keyspace));
    if (keyspace == NULL)
        return NULL;
    for (uint32_t i = 0; i < pool->table_count; i++)
        if (pool->tables[i]->keyspace == keyspace)
            return slot->table = pool->tables[i];
    if (pool->table_count == sizeof pool->tables / sizeof pool->tables[0])
        return NULL;
    struct replica_table *table = cqr_mem_zalloc(sizeof *table);
    if (table == NULL || cqr_replica_table_init(table, pool->topology, keyspace) != CQLRING_OK) {
        cqr_mem_free(table);
        return NULL;
    }
    pool->tables[pool->table_count++] = table;
    return slot->table = table;
}

static bool within(const struct route_limit *limit, const struct pool_link *link)
{
    return limit == NULL || link->node->index >= limit->node_count || limit->on_node[link->node->index] < limit->max;
}

static bool was_tried(const struct op *op, const struct pool_link *link)
{
    return op->tried != 0 && (op->tried >> (link->node->index & 63) & 1) != 0;
}

static bool may_take(const struct op *op, const struct route_limit *limit, const struct pool_link *link)
{
    return link != NULL && link->up && !link->remote && !link->conn->writer.suspect && !was_tried(op, link) && within(limit, link) && cqr_writer_has_room(link->conn);
}

enum { NEAR_US = 200000 };

/* No connection now, but one will be tried in a moment: after a short-lived or replaced one, not in a long back-off. */
static bool connect_is_near(const struct lane *lane, const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->link_count; i++) {
        const struct pool_link *link = pool->links[i];
        if (link != NULL && link->ever_up && link->attempts <= 1 && link->timer.link != NULL && link->timer.deadline_us < lane->now_us + NEAR_US)
            return true;
    }
    return false;
}

static struct conn *only_live(const struct op *op, const struct pool *pool, const uint16_t *replicas, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct pool_link *link = replicas[i] < pool->link_count ? pool->links[replicas[i]] : NULL;
        if (may_take(op, NULL, link))
            return link->conn;
    }
    return NULL;
}

enum { SLOW_WAITING = 10 };

/* Many wait on it and it says nothing: it collects, swaps, or its network does not deliver. Not yet suspect, but the others come
   first. */
static bool is_slow(const struct lane *lane, const struct conn *conn)
{
    const struct conn_writer *writer = &conn->writer;
    if (lane->now_us < writer->rest_until_us)
        return true; /* it said that it is overloaded */
    return lane->now_us - writer->received_us >= writer->slow_after_us && writer->in_flight >= SLOW_WAITING &&
           lane->now_us - writer->waiting_since_us >= writer->slow_after_us;
}

/* Another live replica that answers, else the slow one after all. */
static struct conn *quicker(struct lane *lane, const struct op *op, const struct route_limit *limit, const uint16_t *replicas, uint32_t count, struct conn *slow)
{
    struct pool *pool = slow->home->pool;
    struct conn *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct pool_link *link = replicas[i] < pool->link_count ? pool->links[replicas[i]] : NULL;
        if (may_take(op, limit, link) && !is_slow(lane, link->conn) && (best == NULL || link->conn->writer.in_flight < best->writer.in_flight))
            best = link->conn;
    }
    return best != NULL ? best : slow;
}

struct conn *cqr_route(struct lane *lane, struct op *op, const struct route_limit *limit, bool *any_up, bool *hope)
{
    const struct op_plan *plan = op->plan;
    struct pool *pool = plan->session->lanes[lane->index].pool;
    *any_up = pool->up_count > 0;
    *hope = pool->connecting_count > 0 || (!*any_up && connect_is_near(lane, pool));
    if (plan->target != NULL) {
        struct pool_link *link = plan->target->index < pool->link_count ? pool->links[plan->target->index] : NULL;
        *any_up = link != NULL && link->up;
        *hope = link != NULL && link->conn != NULL && !link->up;
        return *any_up && cqr_writer_has_room(link->conn) ? link->conn : NULL;
    }
    if (!*any_up)
        return NULL;
    uint32_t count = 0;
    const uint16_t *replicas = NULL;
    if (op->has_token && op->version != NULL) {
        struct replica_table *table = table_of(pool, op->version);
        if (table != NULL)
            replicas = cqr_replicas_of(table, op->token, &count);
    }
    struct conn *best = NULL;
    if (op->body != NULL && op->body->common != 0 && op->body->common <= pool->link_count && pool->cluster->policy.plan == NULL && may_take(op, limit, pool->links[op->body->common - 1]))
        return pool->links[op->body->common - 1]->conn;
    if (pool->routes_by_policy && cqr_policy_route(lane, pool, op, limit, replicas, count, any_up, &best))
        return best;
    uint32_t live = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct pool_link *link = replicas[i] < pool->link_count ? pool->links[replicas[i]] : NULL;
        if (!may_take(op, NULL, link))
            continue;
        live++;
        if (op->version->is_lwt)
            return link->conn; /* the first of the replicas in ring order: contention stays in one place */
        if (!within(limit, link))
            continue;
        if (best == NULL || link->conn->writer.in_flight < best->writer.in_flight)
            best = link->conn;
    }
    if (best == NULL && live > 0)
        /* the limit is for when other replicas live (decision 30): an only one takes all that is its own */
        return live == 1 ? only_live(op, pool, replicas, count) : NULL;
    if (best != NULL)
        return is_slow(lane, best) ? quicker(lane, op, limit, replicas, count, best) : best;
    /* no replica can: any node, starting elsewhere each time, so that equals take turns */
    uint32_t start = pool->turn++;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[(start + i) % pool->link_count];
        if (may_take(op, limit, link) && (best == NULL || link->conn->writer.in_flight < best->writer.in_flight))
            best = link->conn;
    }
    if (best != NULL || op->other_only)
        return best;
    /* suspects and nodes already tried, rather than nobody, unless another may have room soon */
    bool others = false;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[i];
        others = others || (link != NULL && link->up && !link->remote && !link->conn->writer.suspect && !was_tried(op, link));
    }
    if (others)
        return NULL;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[(start + i) % pool->link_count];
        if (link != NULL && link->up && !link->remote && within(limit, link) && cqr_writer_has_room(link->conn) &&
            (best == NULL || link->conn->writer.in_flight < best->writer.in_flight))
            best = link->conn;
    }
    return best;
}
