/* SPDX-License-Identifier: Apache-2.0 */

/* Which connection takes a request: a replica of its token with the fewest requests under way, else any node. Submitter, on the
   lane's own copies; per row this is a hash, a binary search and a look at a few counters. */

#include <string.h>

#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/node_stats.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "driver/shards.h"

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

static struct replica_table *table_of(struct pool *pool, const struct keyspace *keyspace)
{
    for (uint32_t i = 0; i < pool->table_count; i++)
        if (pool->tables[i]->keyspace == keyspace)
            return pool->tables[i];
    if (pool->table_count == sizeof pool->tables / sizeof pool->tables[0])
        return NULL;
    struct replica_table *table = cqr_mem_zalloc(sizeof *table);
    if (table == NULL || cqr_replica_table_init(table, pool->topology, keyspace) != CQLRING_OK) {
        cqr_mem_free(table);
        return NULL;
    }
    return pool->tables[pool->table_count++] = table;
}

static __attribute__((noinline)) const struct route_slot *slot_make(struct pool *pool, struct route_slot *slot, const struct statement_version *version)
{
    *slot = (struct route_slot){.version = version->number};
    if (pool->topology == NULL || pool->topology->partitioner != PARTITIONER_MURMUR3)
        return slot;
    const struct keyspace *keyspace = cqr_topology_keyspace(pool->topology, cqlring_text(version->keyspace));
    if (keyspace == NULL)
        return slot;
    if (keyspace->tablets)
        slot->tablets = cqr_tablets_table(&pool->tablets, version);
    else
        slot->table = table_of(pool, keyspace);
    return slot;
}

/* By what the statement's rows are routed. */
static inline const struct route_slot *slot_of(struct pool *pool, const struct statement_version *version)
{
    struct route_slot *slot = &pool->routes[version->number % 16];
    return slot->version == version->number ? slot : slot_make(pool, slot, version);
}

/* May the job have another row on this connection? */
static bool within(const struct route_limit *limit, const struct pool_link *link, struct conn *conn)
{
    return cqr_limit_on_node(limit, link) && cqr_limit_window(limit, conn);
}

/* Where a row belongs: the replicas of its token, by the ring or by its tablet. */
struct places {
    const uint16_t *nodes;       /* the ring's; NULL: not by the ring */
    const struct tablet *tablet; /* or these; NULL also when it is not known yet */
    uint32_t count;
};

static struct places places_of(struct pool *pool, const struct op *op)
{
    struct places places = {NULL, NULL, 0};
    if (!op->has_token || op->version == NULL)
        return places;
    const struct route_slot *slot = slot_of(pool, op->version);
    if (slot->table != NULL) {
        places.nodes = cqr_replicas_of(slot->table, op->token, &places.count);
    } else if (slot->tablets != NULL && (places.tablet = cqr_tablet_map_find(&slot->tablets->map, op->token)) != NULL) {
        places.count = places.tablet->replica_count;
    }
    return places;
}

/* The op's own shard of that node; −1 when it has none, or it is not known. */
static int32_t shard_of(const struct places *places, const struct op *op, const struct pool_link *link)
{
    const struct shard_set *set = link->shards;
    if (places->nodes != NULL)
        return (int32_t)cqr_shard_of(op->token, set->count, set->ignore_msb);
    for (uint32_t i = 0; places->tablet != NULL && i < places->count; i++)
        if (places->tablet->replicas[i].node == link->node->index)
            return places->tablet->replicas[i].shard % set->count; /* out of range: told before the node's shards changed */
    return -1;
}

/* Among a sharded node's connections. */
static __attribute__((noinline)) struct conn *pick(const struct lane *lane, const struct places *places, const struct op *op, const struct pool_link *link)
{
    return cqr_shards_pick(lane, link->shards, shard_of(places, op, link));
}

/* The choice is made. */
static __attribute__((noinline)) struct conn *take(struct lane *lane, const struct places *places, const struct op *op, struct conn *conn)
{
    int32_t shard = conn->home->shards != NULL ? shard_of(places, op, conn->home) : -1;
    if (shard >= 0 && conn->shard.shard != (uint32_t)shard) {
        struct node_stats *stats = cqr_node_stats_get(conn->home->node, lane->index, shard); /* the shard that it was for */
        if (stats != NULL)
            cqr_count(&stats->shard_fallbacks, 1);
        cqr_count(&lane->stats.shard_fallbacks, 1);
    }
    return conn;
}

/* The link's connection that may take this op now; NULL: none. sharded false: no node is. */
static inline __attribute__((always_inline)) struct conn *may_take(const struct lane *lane, const struct places *places, const struct op *op,
                                                                  const struct pool_link *link, bool sharded)
{
    if (link == NULL || !link->up || link->remote || cqr_op_was_tried(op, link))
        return NULL;
    if (sharded && link->shards != NULL)
        return pick(lane, places, op, link);
    return !link->conn->writer.suspect && cqr_writer_has_room(link->conn) ? link->conn : NULL;
}

static inline bool is_lwt(const struct op *op)
{
    return (op->version != NULL && op->version->is_lwt) || (op->body != NULL && op->body->is_lwt);
}

bool cqr_route_is_conditional(const struct op *op)
{
    return is_lwt(op);
}

/* The best of the op's replicas; *live: how many could take it, but for the limit. Made twice: for the ring alone, which is what most
   clusters have, and for shards and tablets. */
static inline __attribute__((always_inline)) struct conn *best_replica(const struct lane *lane, const struct pool *pool, const struct op *op,
                                                                      const struct route_limit *limit, const struct places *places, bool sharded,
                                                                      uint32_t *live)
{
    struct conn *best = NULL, *only = NULL;
    const bool conditional = is_lwt(op);
    uint32_t able = 0;
    for (uint32_t i = 0; i < places->count; i++) {
        uint32_t index = !sharded || places->nodes != NULL ? places->nodes[i] : places->tablet->replicas[i].node;
        struct pool_link *link = index < pool->link_count ? pool->links[index] : NULL;
        struct conn *conn = may_take(lane, places, op, link, sharded);
        if (conn == NULL)
            continue;
        able++;
        if (limit != NULL && !cqr_limit_window(limit, conn)) { /* it is waited for, or another replica takes it */
            if (conditional)
                break;
            continue;
        }
        only = conn;
        if (conditional) { /* the first of the replicas in their order: contention stays in one place */
            best = conn;
            break;
        }
        if (cqr_limit_on_node(limit, link) && (best == NULL || conn->writer.in_flight < best->writer.in_flight))
            best = conn;
    }
    *live = able;
    /* the limit by node is for when other replicas live (decision 30): an only one takes all that is its own */
    return best == NULL && able == 1 ? only : best;
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

bool cqr_route_is_slow(const struct lane *lane, const struct conn *conn)
{
    return is_slow(lane, conn);
}

/* Another live replica that answers, else the slow one after all. */
static __attribute__((noinline)) struct conn *quicker(struct lane *lane, const struct op *op, const struct route_limit *limit, const struct places *places,
                                                      struct conn *slow)
{
    const struct pool *pool = slow->home->pool;
    struct conn *best = NULL;
    for (uint32_t i = 0; i < places->count; i++) {
        uint32_t index = places->nodes != NULL ? places->nodes[i] : places->tablet->replicas[i].node;
        struct pool_link *link = index < pool->link_count ? pool->links[index] : NULL;
        struct conn *conn = link != NULL ? may_take(lane, places, op, link, true) : NULL;
        if (conn != NULL && within(limit, link, conn) && !is_slow(lane, conn) && (best == NULL || conn->writer.in_flight < best->writer.in_flight))
            best = conn;
    }
    return best != NULL ? best : slow;
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

/* No replica can: any node, starting elsewhere each time, so that equals take turns. */
static __attribute__((noinline)) struct conn *any_node(const struct lane *lane, struct pool *pool, const struct op *op, const struct route_limit *limit,
                                                       const struct places *places)
{
    struct conn *best = NULL;
    static const struct places nowhere = {NULL, NULL, 0}; /* its shards mean nothing there */
    uint32_t start = pool->turn++;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[(start + i) % pool->link_count];
        struct conn *conn = link != NULL ? may_take(lane, &nowhere, op, link, true) : NULL;
        if (conn != NULL && within(limit, link, conn) && (best == NULL || conn->writer.in_flight < best->writer.in_flight))
            best = conn;
    }
    if (best != NULL || op->other_only)
        return best;
    /* suspects and nodes already tried, rather than nobody, unless another may have room soon */
    bool others = false;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[i];
        others = others || (link != NULL && link->up && !link->remote && !link->conn->writer.suspect && !cqr_op_was_tried(op, link));
    }
    if (others)
        return NULL;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        struct pool_link *link = pool->links[(start + i) % pool->link_count];
        if (link == NULL || !link->up || link->remote)
            continue;
        struct conn *conn = link->shards != NULL ? pick(lane, places, op, link) : NULL;
        conn = conn != NULL ? conn : link->conn;
        if (cqr_writer_has_room(conn) && within(limit, link, conn) && (best == NULL || conn->writer.in_flight < best->writer.in_flight))
            best = conn;
    }
    return best;
}

struct conn *cqr_route_shard(const struct lane *lane, const struct op *op, const struct pool_link *link)
{
    const struct places places = places_of(link->pool, op);
    return pick(lane, &places, op, link);
}

static __attribute__((noinline)) struct conn *target(const struct lane *lane, struct pool *pool, const struct op *op, bool *any_up, bool *hope)
{
    uint32_t index = op->plan->target->index;
    struct pool_link *link = index < pool->link_count ? pool->links[index] : NULL;
    *any_up = link != NULL && link->up;
    *hope = link != NULL && link->conn != NULL && !link->up;
    struct conn *conn = *any_up ? link->conn : NULL;
    if (conn != NULL && link->shards != NULL)
        conn = cqr_route_shard(lane, op, link);
    return conn != NULL && cqr_writer_has_room(conn) ? conn : NULL;
}

/* Shards, tablets, or no replica that could. */
static __attribute__((noinline)) struct conn *elsewhere(struct lane *lane, struct pool *pool, const struct op *op, const struct route_limit *limit)
{
    const struct places places = places_of(pool, op);
    if (places.count > 0) {
        uint32_t live;
        struct conn *best = best_replica(lane, pool, op, limit, &places, true, &live);
        if (best != NULL)
            return take(lane, &places, op, is_slow(lane, best) && !is_lwt(op) ? quicker(lane, op, limit, &places, best) : best);
        if (live > 0)
            return NULL;
    }
    return any_node(lane, pool, op, limit, &places);
}

enum { REPLICAS_TOLD_MAX = 16 };

/* What the application, or its batch, wants before the usual. True: that is the choice, which may be nobody. */
static __attribute__((noinline)) bool wanted(struct lane *lane, struct pool *pool, struct op *op, const struct route_limit *limit, bool *any_up,
                                             struct conn **conn)
{
    const struct places places = places_of(pool, op);
    uint32_t common = op->body != NULL ? op->body->common : 0;
    if (common != 0 && common <= pool->link_count && pool->cluster->policy.plan == NULL) {
        struct pool_link *link = pool->links[common - 1];
        *conn = link != NULL ? may_take(lane, &places, op, link, true) : NULL;
        if (*conn != NULL && within(limit, link, *conn))
            return true;
    }
    if (!pool->routes_by_policy)
        return false;
    uint16_t nodes[REPLICAS_TOLD_MAX];
    const uint16_t *replicas = places.nodes;
    uint32_t count = places.count;
    if (replicas == NULL) {
        count = count < REPLICAS_TOLD_MAX ? count : REPLICAS_TOLD_MAX;
        for (uint32_t i = 0; i < count; i++)
            nodes[i] = (uint16_t)places.tablet->replicas[i].node;
        replicas = nodes;
    }
    if (!cqr_policy_route(lane, pool, op, limit, count > 0 ? replicas : NULL, count, any_up, conn))
        return false;
    if (*conn != NULL && (*conn)->home->shards != NULL) { /* it chose the node */
        struct conn *own = pick(lane, &places, op, (*conn)->home);
        *conn = own != NULL ? take(lane, &places, op, own) : *conn;
    }
    return true;
}

struct conn *cqr_route(struct lane *lane, struct op *op, const struct route_limit *limit, bool *any_up, bool *hope)
{
    struct pool *pool = op->plan->session->lanes[lane->index].pool;
    *any_up = pool->up_count > 0;
    *hope = pool->connecting_count > 0 || (!*any_up && connect_is_near(lane, pool));
    if (op->plan->target != NULL)
        return target(lane, pool, op, any_up, hope);
    if (!*any_up)
        return NULL;
    if (pool->routes_by_policy || (op->body != NULL && op->body->common != 0)) {
        struct conn *conn;
        if (wanted(lane, pool, op, limit, any_up, &conn))
            return conn;
    }
    if (!pool->sharded && op->has_token && op->version != NULL) {
        const struct route_slot *slot = slot_of(pool, op->version);
        if (slot->table != NULL) {
            struct places ring = {NULL, NULL, 0};
            uint32_t live;
            ring.nodes = cqr_replicas_of(slot->table, op->token, &ring.count);
            struct conn *best = best_replica(lane, pool, op, limit, &ring, false, &live);
            if (best != NULL)
                return is_slow(lane, best) && !is_lwt(op) ? quicker(lane, op, limit, &ring, best) : best;
            if (live > 0)
                return NULL;
        }
    }
    return elsewhere(lane, pool, op, limit);
}
