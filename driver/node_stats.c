/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/node_stats.h"

#include "cql/response.h"
#include "driver/fork.h"
#include "driver/session.h"

/* ---- the node's list ---- */

struct node_stats *cqr_node_stats_get(struct cqlring_node *node, uint32_t lane, int32_t shard)
{
    /* acquire: pairs with the release of whoever added it */
    for (struct node_stats *stats = atomic_load_explicit(&node->stats, memory_order_acquire); stats != NULL; stats = stats->next)
        if (stats->lane == lane && stats->shard == shard)
            return stats;
    struct node_stats *stats = cqr_mem_aligned(64, sizeof *stats);
    if (stats == NULL)
        return NULL;
    stats->lane = lane;
    stats->shard = shard;
    stats->next = atomic_load_explicit(&node->stats, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(&node->stats, &stats->next, stats, memory_order_release, memory_order_acquire)) {
    }
    return stats;
}

void cqr_node_stats_free(struct cqlring_node *node)
{
    struct node_stats *stats = atomic_load_explicit(&node->stats, memory_order_acquire);
    while (stats != NULL) {
        struct node_stats *next = stats->next;
        cqr_mem_free(stats);
        stats = next;
    }
}

/* ---- histogram ---- */

uint32_t cqr_latency_bucket(uint32_t us)
{
    if (us < 8)
        return us;
    uint32_t octave = 31u - (uint32_t)__builtin_clz(us);
    return (octave - 2) * 8 + ((us >> (octave - 3)) & 7);
}

uint64_t cqr_latency_bucket_end(uint32_t bucket)
{
    if (bucket < 8)
        return bucket + 1;
    return (uint64_t)(9 + bucket % 8) << (bucket / 8 - 1);
}

void cqr_latency_write(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    uint32_t count = writer->run_count, us = writer->run_us;
    writer->run_count = 0;
    writer->run_us = UINT32_MAX;
    struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
    if (count == 0 || stats == NULL)
        return;
    cqr_count(&stats->latency[cqr_latency_bucket(us)], count);
    cqr_count(&stats->latency_sum_us, (uint64_t)us * count);
    if (us > atomic_load_explicit(&stats->latency_max_us, memory_order_relaxed))
        atomic_store_explicit(&stats->latency_max_us, us, memory_order_relaxed);
}

void cqr_latency_run(struct conn *conn, uint32_t us)
{
    cqr_latency_write(conn);
    conn->writer.run_us = us;
    conn->writer.run_count = 1;
    cqr_writer_touch(conn);
}

/* ---- gauges ---- */

static void move(counter *gauge, uint64_t *published, uint64_t now)
{
    cqr_count(gauge, now - *published); /* modulo 2^64: the sum over a node's connections of this lane */
    *published = now;
}

static void publish(struct conn *conn, uint32_t in_flight, uint64_t orphans, uint64_t queued, uint64_t window)
{
    struct conn_writer *writer = &conn->writer;
    struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
    struct cqlring_node *node = (struct cqlring_node *)(uintptr_t)conn->node;
    if (node == NULL || (in_flight == writer->inflight_published && orphans == writer->orphans_published && queued == writer->queued_published &&
                         window == writer->window_published))
        return;
    if (stats != NULL) {
        cqr_count(&stats->in_flight, (uint64_t)in_flight - writer->inflight_published);
        if (orphans != writer->orphans_published || queued != writer->queued_published || window != writer->window_published) {
            move(&stats->orphans, &writer->orphans_published, orphans);
            move(&stats->queued_bytes, &writer->queued_published, queued);
            move(&stats->window, &writer->window_published, window);
        }
    }
    if (in_flight != writer->inflight_published)
        atomic_fetch_add_explicit(&node->in_flight, in_flight - writer->inflight_published, memory_order_relaxed);
    writer->inflight_published = in_flight;
}

void cqr_conn_publish(struct conn *conn)
{
    const struct conn_writer *writer = &conn->writer;
    uint64_t queued = 0;
    if (writer->blocked) { /* else everything has gone to the socket at the end of the turn */
        for (uint32_t i = 0; i < writer->span_count; i++) {
            const struct span *span = &writer->spans[(writer->span_head + i) % SPANS_MAX];
            queued += span->to - span->from;
        }
        if (writer->open != NULL && writer->open_ops > 0)
            queued += writer->open->fill - writer->open_from;
    }
    publish(conn, writer->in_flight, writer->orphans, queued, writer->adapt.limit);
}

void cqr_conn_unpublish(struct conn *conn)
{
    publish(conn, 0, 0, 0, 0);
}

/* ---- errors ---- */

enum { KIND_RATE_LIMIT = SERVER_ERRORS - 2 }; /* its code is negotiated */

static const struct {
    int32_t code;
    const char *name;
} server_errors[KIND_RATE_LIMIT] = {{ERROR_SERVER, "server"},
                                    {ERROR_PROTOCOL, "protocol"},
                                    {ERROR_CREDENTIALS, "credentials"},
                                    {ERROR_UNAVAILABLE, "unavailable"},
                                    {ERROR_OVERLOADED, "overloaded"},
                                    {ERROR_BOOTSTRAPPING, "bootstrapping"},
                                    {ERROR_TRUNCATE, "truncate"},
                                    {ERROR_WRITE_TIMEOUT, "write_timeout"},
                                    {ERROR_READ_TIMEOUT, "read_timeout"},
                                    {ERROR_READ_FAILURE, "read_failure"},
                                    {ERROR_FUNCTION_FAILURE, "function_failure"},
                                    {ERROR_WRITE_FAILURE, "write_failure"},
                                    {ERROR_CDC_WRITE_FAILURE, "cdc_write_failure"},
                                    {ERROR_CAS_WRITE_UNKNOWN, "cas_write_unknown"},
                                    {ERROR_SYNTAX, "syntax"},
                                    {ERROR_UNAUTHORIZED, "unauthorized"},
                                    {ERROR_INVALID, "invalid"},
                                    {ERROR_CONFIG, "config"},
                                    {ERROR_ALREADY_EXISTS, "already_exists"},
                                    {ERROR_UNPREPARED, "unprepared"}};

uint32_t cqr_server_error_kind(int32_t code)
{
    for (uint32_t kind = 0; kind < KIND_RATE_LIMIT; kind++)
        if (server_errors[kind].code == code)
            return kind;
    return SERVER_ERRORS - 1;
}

const char *cqr_server_error_name(uint32_t kind)
{
    return kind < KIND_RATE_LIMIT ? server_errors[kind].name : kind == KIND_RATE_LIMIT ? "rate_limit" : "other";
}

void cqr_node_stats_error(struct conn *conn, cqlring_status status, int32_t server_code)
{
    struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
    if (stats == NULL || (unsigned)status >= 16)
        return;
    cqr_count(&stats->errors[status], 1);
    if (status != CQLRING_SERVER)
        return;
    bool is_rate_limit = (conn->dialect.extensions & EXT_RATE_LIMIT) != 0 && conn->dialect.rate_limit_code == server_code;
    cqr_count(&stats->server_errors[is_rate_limit ? KIND_RATE_LIMIT : cqr_server_error_kind(server_code)], 1);
}

/* ---- for the application ---- */

static uint64_t value(const counter *which)
{
    return atomic_load_explicit((counter *)(uintptr_t)which, memory_order_relaxed);
}

/* The latency below which so many of a thousand answers came. */
static uint32_t quantile(const struct node_stats *stats, uint64_t count, uint32_t per_mille)
{
    uint64_t wanted = (count * per_mille + 999) / 1000, seen = 0, max = value(&stats->latency_max_us);
    for (uint32_t i = 0; i < NODE_LATENCY_BUCKETS; i++) {
        seen += value(&stats->latency[i]);
        if (seen >= wanted && seen > 0) {
            uint64_t end = cqr_latency_bucket_end(i) - 1;
            return (uint32_t)(end < max ? end : max);
        }
    }
    return (uint32_t)max;
}

static uint64_t latency_count(const struct node_stats *stats)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < NODE_LATENCY_BUCKETS; i++)
        count += value(&stats->latency[i]);
    return count;
}

static void stats_read(const struct cqlring_node *node, const struct node_stats *stats, cqlring_node_stats *out)
{
    *out = (cqlring_node_stats){.node = node,
                                .lane = stats->lane,
                                .shard = stats->shard,
                                .connections = (uint32_t)value(&stats->connections),
                                .in_flight = (uint32_t)value(&stats->in_flight),
                                .orphans = (uint32_t)value(&stats->orphans),
                                .queued_bytes = value(&stats->queued_bytes),
                                .requests = value(&stats->requests),
                                .retries = value(&stats->retries),
                                .sends = value(&stats->sends),
                                .send_bytes = value(&stats->send_bytes),
                                .recvs = value(&stats->recvs),
                                .recv_bytes = value(&stats->recv_bytes),
                                .replies = latency_count(stats),
                                .latency_sum_us = value(&stats->latency_sum_us),
                                .latency_max_us = (uint32_t)value(&stats->latency_max_us),
                                .window = (uint32_t)value(&stats->window),
                                .speculative = value(&stats->speculative),
                                .speculative_won = value(&stats->speculative_won),
                                .shard_fallbacks = value(&stats->shard_fallbacks),
                                .orphaned = value(&stats->orphaned),
                                .late_replies = value(&stats->late_replies),
                                .wakes = value(&stats->wakes)};
    for (uint32_t i = 0; i < 16; i++)
        out->errors[i] = value(&stats->errors[i]);
    out->latency_p50_us = quantile(stats, out->replies, 500);
    out->latency_p95_us = quantile(stats, out->replies, 950);
    out->latency_p99_us = quantile(stats, out->replies, 990);
}

uint32_t cqlring_cluster_stats(const cqlring_cluster *handle, cqlring_node_stats *out, uint32_t capacity)
{
    struct cqlring_cluster *cluster = (struct cqlring_cluster *)(uintptr_t)handle;
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return 0;
    uint32_t count = 0;
    pthread_mutex_lock(&cluster->lock);
    const struct topology *topology = cluster->topology;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        struct cqlring_node *node = topology->nodes[i];
        for (const struct node_stats *stats = atomic_load_explicit(&node->stats, memory_order_acquire); stats != NULL; stats = stats->next, count++)
            if (count < capacity)
                stats_read(node, stats, &out[count]);
    }
    pthread_mutex_unlock(&cluster->lock);
    return count;
}
