/* SPDX-License-Identifier: Apache-2.0 */

/* Filling a node's set of connections, one to each shard, and choosing among them. See shards.h. */

#include "driver/shards.h"

#include <stdio.h>

#include "driver/lane.h"
#include "driver/policy.h"
#include "driver/runtime.h"
#include "driver/session.h"

enum {
    NAT_PAUSE_S = 600,         /* the shard-aware port leads to other shards: not used so long */
    UNREACHABLE_PAUSE_S = 60,  /* … or to nobody */
    TRIAL_PAUSE_S = 60,        /* shards that trials did not find: looked for again then */
    LOCAL_PORTS_PAUSE_S = 10,
    POOL_BUSY_US = 20000,
    FREER_PERCENT = 20         /* by so much of the limit another shard's connection is less busy */
};
#define S_US 1000000LL

uint16_t cqr_local_port(const struct local_ports *ports, uint32_t i)
{
    if (ports->shards == 0 || ports->shard >= ports->shards)
        return 0;
    uint32_t shards = ports->shards;
    uint32_t first = ports->min + (ports->shard + shards - ports->min % shards) % shards;
    if (first > ports->max)
        return 0;
    uint32_t count = (ports->max - first) / shards + 1;
    if (i >= count)
        return 0;
    return (uint16_t)(first + (ports->start % count + i) % count * shards);
}

static struct cqlring_cluster *cluster_of(const struct pool_link *link)
{
    return link->pool->cluster;
}

static struct cqlring_node *node_of(const struct pool_link *link)
{
    return link->node;
}

static bool array_remove(struct conn **array, uint32_t *count, const struct conn *conn)
{
    for (uint32_t i = 0; i < *count; i++)
        if (array[i] == conn) {
            array[i] = array[--*count];
            return true;
        }
    return false;
}

/* It is nobody's any more; its end is between it and the reactor. */
static void give_up(struct conn *conn, cqlring_status status, const char *why)
{
    conn->home = NULL;
    cqr_writer_shut(conn, status, why);
}

static void spares_close(struct shard_set *set)
{
    while (set->spare_count > 0)
        give_up(set->spares[--set->spare_count], CQLRING_CLOSED, "its shard has another connection");
}

static bool port_is_usable(const struct lane *lane, const struct shard_set *set)
{
    /* relaxed: whoever reads an older value tries the port once more */
    return set->port != 0 && lane->now_us >= set->no_local_port_until_us &&
           lane->now_us >= atomic_load_explicit(&node_of(set->link)->shard_port_after_us, memory_order_relaxed);
}

/* The shard-aware port of this node is not used for a while, by any lane. Said once, by whoever finds it out first. */
static void port_pause(struct lane *lane, struct shard_set *set, int64_t pause_s, const char *why)
{
    int64_t until = lane->now_us + pause_s * S_US;
    int64_t before = atomic_exchange_explicit(&node_of(set->link)->shard_port_after_us, until, memory_order_relaxed);
    if (before > lane->now_us)
        return;
    cqr_pool_log(lane, set->link->pool, &(struct log_news){.level = CQLRING_LOG_WARN, .node = node_of(set->link)},
                 "%s: its shard-aware port %u is not used for %lld s, shards are reached by trial on the ordinary port: %s", set->link->place->text, set->port,
                 (long long)pause_s, why);
}

static void fill_in(struct lane *lane, struct shard_set *set, int64_t delay_us)
{
    int64_t at = lane->now_us + delay_us;
    if (set->timer.link == NULL || set->timer.deadline_us > at)
        cqr_wheel_arm(&lane->wheel, &set->timer, at);
}

/* Clients that lost the same node do not come back in one moment. */
static int64_t jitter_us(struct lane *lane, const struct pool_link *link)
{
    int64_t span = cluster_of(link)->reconnect_min_us;
    return span > 0 ? (int64_t)(cqr_random(&lane->random) % (uint64_t)span) : 0;
}

/* ---- filling ---- */

/* A shard without a connection that nobody asks for at present; −1 when there is none. */
static int32_t shard_missing(const struct shard_set *set)
{
    for (int32_t shard = 0; shard < set->count; shard++) {
        bool asked = set->conns[shard] != NULL;
        for (uint32_t i = 0; i < set->connecting_count && !asked; i++)
            asked = set->connecting[i]->ports.shards != 0 && set->connecting[i]->ports.shard == shard;
        if (!asked)
            return shard;
    }
    return -1;
}

/* First connections of nodes come before a second one: an eighth of the lane's places is theirs. */
static bool lane_has_room(const struct lane *lane)
{
    return lane->conn_count + lane->conn_max / 8 + 1 < lane->conn_max;
}

static bool connect_one(struct lane *lane, struct shard_set *set)
{
    struct pool_link *link = set->link;
    struct conn_request request;
    char text[64];
    cqr_link_request(link, &request);
    if (port_is_usable(lane, set)) {
        int32_t shard = shard_missing(set);
        if (shard < 0)
            return false;
        const struct cqlring_cluster *cluster = cluster_of(link);
        request.ports = (struct local_ports){.min = cluster->local_port_min,
                                             .max = cluster->local_port_max,
                                             .shard = (uint16_t)shard,
                                             .shards = set->count,
                                             .start = (uint32_t)cqr_random(&lane->random)};
        if (cqr_local_port(&request.ports, 0) != 0 && cqr_address_set_port(&request.address, set->port)) {
            cqr_address_format(&request.address, text);
            request.text = text;
        } else {
            request.ports = (struct local_ports){.min = 0}; /* no port of the range chooses this shard: by trial */
        }
    }
    struct conn *conn = cqr_conn_create(lane, link, &request);
    if (conn == NULL)
        return false;
    conn->writer.suspect_after_us = cluster_of(link)->suspect_after_us;
    conn->writer.slow_after_us = cluster_of(link)->policy.slow_after_us;
    set->connecting[set->connecting_count++] = conn;
    link->pool->shards_connecting++;
    return true;
}

static void fill(struct lane *lane, struct shard_set *set)
{
    struct pool_link *link = set->link;
    struct pool *pool = link->pool;
    cqr_wheel_disarm(&lane->wheel, &set->timer);
    if (set->up_count == set->count) {
        spares_close(set);
        set->misses = set->attempts = 0;
        return;
    }
    if (pool->closing || lane->stopping || !link->wanted)
        return;
    while (set->connecting_count < SHARD_CONNECTING_MAX && set->up_count + set->connecting_count < set->count) {
        if (!port_is_usable(lane, set) && set->misses + set->connecting_count >= 4u * set->count + SHARD_CONNECTING_MAX) {
            if (set->connecting_count > 0)
                return; /* these are the last trials */
            cqr_pool_log(lane, pool, &(struct log_news){.level = CQLRING_LOG_INFO, .node = node_of(link)},
                         "%s: %u of its %u shards were not found by %u trials, again in %d s", link->place->text, set->count - set->up_count, set->count,
                         set->misses, TRIAL_PAUSE_S);
            spares_close(set);
            set->misses = 0;
            fill_in(lane, set, TRIAL_PAUSE_S * S_US + jitter_us(lane, link));
            return;
        }
        if (!lane_has_room(lane)) {
            cqr_pool_log(lane, pool, &(struct log_news){.level = set->said_full ? CQLRING_LOG_DEBUG : CQLRING_LOG_WARN, .node = node_of(link)},
                         "%s: %u of its %u shards have a connection, for more the runtime's connections_max (%u a lane) is too small", link->place->text,
                         set->up_count, set->count, lane->conn_max);
            set->said_full = true;
            spares_close(set);
            fill_in(lane, set, cluster_of(link)->reconnect_max_us);
            return;
        }
        if (pool->shards_connecting >= SHARD_CONNECTING_POOL_MAX) {
            fill_in(lane, set, POOL_BUSY_US + jitter_us(lane, link));
            return;
        }
        if (!connect_one(lane, set)) {
            if (set->connecting_count == 0)
                fill_in(lane, set, cluster_of(link)->reconnect_max_us);
            return;
        }
    }
}

void cqr_shards_timer(struct lane *lane, struct timer *timer)
{
    fill(lane, (struct shard_set *)(void *)((char *)timer - offsetof(struct shard_set, timer)));
}

static uint16_t port_of(const struct conn *conn)
{
    if (!conn->cluster->shard_aware_port || conn->address.storage.ss_family == AF_UNIX)
        return 0;
    return conn->tls != NULL ? conn->shard.shard_aware_port_tls : conn->shard.shard_aware_port;
}

void cqr_shards_begin(struct lane *lane, struct pool_link *link)
{
    struct conn *conn = link->conn;
    atomic_store_explicit(&node_of(link)->sharding, conn->shard.shard_count | (unsigned)conn->shard.ignore_msb << 16, memory_order_relaxed);
    if (link->shards != NULL || !cluster_of(link)->shard_connections || conn->shard.shard_count < 2)
        return;
    struct shard_set *set = cqr_mem_zalloc(sizeof *set);
    struct conn **conns = cqr_mem_array(conn->shard.shard_count, sizeof(struct conn *));
    if (set == NULL || conns == NULL) { /* one connection does, too */
        cqr_mem_free(set);
        cqr_mem_free(conns);
        return;
    }
    set->link = link;
    set->count = conn->shard.shard_count;
    set->ignore_msb = conn->shard.ignore_msb;
    set->port = port_of(conn);
    set->conns = conns;
    set->conns[conn->shard.shard] = conn;
    set->up_count = 1;
    set->timer.kind = TIMER_SHARDS;
    link->shards = set;
    link->pool->sharded = true;
    cqr_pool_only_set(link->pool);
    fill_in(lane, set, jitter_us(lane, link));
}

void cqr_shards_end(struct lane *lane, struct pool_link *link, bool drain, const char *why)
{
    struct shard_set *set = link->shards;
    if (set == NULL)
        return;
    link->shards = NULL;
    cqr_pool_only_set(link->pool);
    cqr_wheel_disarm(&lane->wheel, &set->timer);
    link->pool->shards_connecting -= set->connecting_count;
    while (set->connecting_count > 0)
        give_up(set->connecting[--set->connecting_count], CQLRING_CLOSED, why);
    spares_close(set);
    for (uint32_t shard = 0; shard < set->count; shard++)
        if (set->conns[shard] == NULL || set->conns[shard] == link->conn)
            continue;
        else if (drain)
            cqr_conn_drain(lane, set->conns[shard], why);
        else
            give_up(set->conns[shard], CQLRING_CLOSED, why);
    cqr_mem_free(set->conns);
    cqr_mem_free(set);
}

/* ---- what becomes of connections ---- */

/* The node was restarted with another number of shards: this connection is the first of the new set. */
static void reshape(struct lane *lane, struct pool_link *link, struct conn *conn)
{
    cqr_pool_log(lane, link->pool, &(struct log_news){.level = CQLRING_LOG_WARN, .node = node_of(link)}, "%s has %u shards now, it had %u", link->place->text,
                 conn->shard.shard_count, link->shards->count);
    struct conn *old = link->conn;
    link->conn = conn;
    old->writer.replaced = true;
    cqr_shards_end(lane, link, false, "the node has another number of shards now");
    if (old->home != NULL)
        give_up(old, CQLRING_LOST, "the node has another number of shards now");
    cqr_shards_begin(lane, link);
}

void cqr_shards_up(struct lane *lane, struct pool_link *link, struct conn *conn)
{
    struct shard_set *set = link->shards;
    const struct shard_info *info = &conn->shard;
    if (array_remove(set->connecting, &set->connecting_count, conn))
        link->pool->shards_connecting--;
    set->attempts = 0;
    if (info->shard_count != set->count || info->ignore_msb != set->ignore_msb) {
        reshape(lane, link, conn);
        return;
    }
    if (conn->ports.shards != 0 && info->shard != conn->ports.shard) {
        char why[160];
        snprintf(why, sizeof why, "shard %u was asked for by the local port and shard %u answered: an address translation (NAT) on the way changes ports",
                 conn->ports.shard, info->shard);
        port_pause(lane, set, NAT_PAUSE_S, why);
    }
    if (set->conns[info->shard] == NULL) {
        set->conns[info->shard] = conn;
        set->up_count++;
        set->misses = 0;
        lane->waiting_retry = true;
    } else {
        set->misses++;
        if (set->spare_count < SHARD_SPARE_MAX && lane_has_room(lane))
            set->spares[set->spare_count++] = conn;
        else
            give_up(conn, CQLRING_CLOSED, "its shard has another connection");
    }
    fill(lane, set);
}

/* It was up, and is not in the set's table any more. */
static bool table_remove(struct shard_set *set, const struct conn *conn)
{
    uint16_t shard = conn->shard.shard;
    if (shard >= set->count || set->conns[shard] != conn)
        return false;
    set->conns[shard] = NULL;
    set->up_count--;
    for (uint32_t i = 0; i < set->spare_count; i++)
        if (set->spares[i]->shard.shard == shard) {
            set->conns[shard] = set->spares[i];
            set->up_count++;
            set->spares[i] = set->spares[--set->spare_count];
            break;
        }
    return true;
}

static void refill_later(struct lane *lane, struct shard_set *set, bool failed)
{
    const struct cqlring_cluster *cluster = cluster_of(set->link);
    if (failed)
        set->attempts++;
    fill_in(lane, set, failed ? cqr_reconnect_delay_us(set->attempts, cluster->reconnect_min_us, cluster->reconnect_max_us, cqr_random(&lane->random))
                              : jitter_us(lane, set->link));
}

static void said_lost(struct lane *lane, const struct pool_link *link, const struct conn *conn, const char *why)
{
    cqr_pool_log(lane, link->pool, &(struct log_news){.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_CONNECTION_LOST, .node = node_of(link), .status = CQLRING_LOST},
                 "lost the connection to shard %u of %s: %s", conn->shard.shard, link->place->text, why);
}

void cqr_shards_down(struct lane *lane, struct pool_link *link, struct conn *conn)
{
    struct shard_set *set = link->shards;
    const char *why = cqr_conn_writer_knows(conn) ? conn->writer.shut_text : conn->down_text;
    if (array_remove(set->connecting, &set->connecting_count, conn)) {
        link->pool->shards_connecting--;
        if (conn->no_local_port)
            set->no_local_port_until_us = lane->now_us + LOCAL_PORTS_PAUSE_S * S_US;
        else if (conn->ports.shards != 0 && conn->version_next == 0)
            port_pause(lane, set, UNREACHABLE_PAUSE_S, why);
        cqr_pool_log(lane, link->pool, &(struct log_news){.level = CQLRING_LOG_INFO, .event = CQLRING_EVENT_CONNECT_FAILED, .node = node_of(link)},
                     "connect for a shard failed: %s", why);
        refill_later(lane, set, !conn->no_local_port && conn->version_next == 0);
        return;
    }
    if (table_remove(set, conn)) {
        said_lost(lane, link, conn, why);
        refill_later(lane, set, cqr_conn_was_useless(lane, conn));
    } else {
        array_remove(set->spares, &set->spare_count, conn);
    }
    lane->waiting_retry = true;
}

bool cqr_shards_replace(struct lane *lane, struct pool_link *link, struct conn *conn)
{
    struct shard_set *set = link->shards;
    struct conn *next = NULL;
    table_remove(set, conn);
    for (uint32_t shard = 0; shard < set->count && next == NULL; shard++)
        if (set->conns[shard] != NULL && !set->conns[shard]->writer.shut && !set->conns[shard]->writer.gone)
            next = set->conns[shard];
    link->conn = next;
    if (next == NULL) {
        cqr_shards_end(lane, link, false, "no connection to the node is left");
        return false;
    }
    const char *why = cqr_conn_writer_knows(conn) ? conn->writer.shut_text : conn->down_text;
    said_lost(lane, link, conn, why);
    link->up_since_us = next->writer.up_since_us;
    refill_later(lane, set, cqr_conn_was_useless(lane, conn));
    lane->waiting_retry = true;
    return true;
}

/* ---- choosing ---- */

static bool takes(const struct conn *conn)
{
    return conn != NULL && !conn->writer.suspect && cqr_writer_has_room(conn);
}

struct conn *cqr_shards_pick(const struct lane *lane, struct shard_set *set, int32_t shard)
{
    (void)lane;
    struct conn *own = shard >= 0 ? set->conns[(uint32_t)shard % set->count] : NULL, *best = NULL;
    bool own_takes = takes(own);
    if (own_takes && own->writer.in_flight * 100u <= own->writer.in_flight_max * cluster_of(set->link)->shard_busy_percent)
        return own;
    uint32_t start = shard >= 0 ? (uint32_t)shard : set->turn++; /* equals take turns */
    for (uint32_t i = 0; i < set->count; i++) {
        struct conn *conn = set->conns[(start + i) % set->count];
        if (takes(conn) && (best == NULL || conn->writer.in_flight < best->writer.in_flight))
            best = conn;
    }
    if (own_takes && (best->writer.in_flight + own->writer.in_flight_max * FREER_PERCENT / 100u > own->writer.in_flight))
        return own; /* busy, but the others are hardly less so */
    return best;
}
