/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster's life, what can be read from it, and the face that the simulator drives. */
#include "tests/node/cluster.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cql/token.h"

/* --- options ---------------------------------------------------------------------------------- */

static const char *keep(struct node_arena *arena, const char *text, const char *otherwise)
{
    if (text == NULL)
        text = otherwise;
    return text == NULL ? NULL : (const char *)node_arena_copy(arena, slice_text(text)).data;
}

static const char *const *keep_list(struct node_arena *arena, const char *const *list,
                                    uint32_t count)
{
    if (list == NULL)
        return NULL;
    const char **own = node_arena_alloc(arena, count * sizeof *own);
    for (uint32_t i = 0; i < count; ++i)
        own[i] = keep(arena, list[i], "");
    return own;
}

static void options_take(struct node_cluster *cluster, const struct node_options *given)
{
    static const struct node_options none = {0};
    struct node_options *own = &cluster->options;
    struct node_arena *arena = &cluster->arena;
    *own = given == NULL ? none : *given;
    if (own->nodes == 0)
        own->nodes = 1;
    if (own->vnodes == 0)
        own->vnodes = 16;
    own->address = keep(arena, own->address, "127.0.0.1");
    own->dcs = keep_list(arena, own->dcs, own->nodes);
    own->racks = keep_list(arena, own->racks, own->nodes);
    own->cluster_name = keep(arena, own->cluster_name, "cqlring node");
    own->release_version = keep(arena, own->release_version,
                                own->refusal == NODE_REFUSE_CASSANDRA_3   ? "3.11.19"
                                : own->refusal == NODE_REFUSE_CASSANDRA_4 ? "4.1.10"
                                : own->shards > 0                         ? "3.0.8"
                                                                          : "5.0.6");
    own->user = keep(arena, own->user, NULL);
    own->password = keep(arena, own->password, "");
    own->authenticator = keep(arena, own->authenticator,
                              "org.apache.cassandra.auth.PasswordAuthenticator");
    own->tls_cert = keep(arena, own->tls_cert, NULL);
    own->tls_key = keep(arena, own->tls_key, NULL);
    own->tls_client_ca = keep(arena, own->tls_client_ca, NULL);
    if (own->version_max == 0)
        own->version_max = own->shards > 0 || (own->refusal != NODE_REFUSE_CASSANDRA_5 &&
                                               own->refusal != NODE_REFUSE_CASSANDRA_4)
                               ? 4
                               : 5;
    if (own->shards > 0)
        own->refusal = NODE_REFUSE_SCYLLA;
    if (own->version_min == 0)
        own->version_min = 3;
    if (own->void_cell_size == 0)
        own->void_cell_size = 16;
    if (own->connections_max == 0)
        own->connections_max = 4096;
    if (own->frame_size_max == 0)
        own->frame_size_max = 16 << 20;
    if (own->statement_size_max == 0)
        own->statement_size_max = 1 << 20;
    if (own->prepared_max == 0)
        own->prepared_max = 16384;
    if (own->output_max == 0)
        own->output_max = 64 << 20;
    if (own->batch_size_fail == 0)
        own->batch_size_fail = 50 * 1024;
    if (own->storage_max == 0)
        own->storage_max = UINT64_C(4) << 30;
}

/* 127.0.0.1 + index. */
static bool give_address(struct node_cluster *cluster, uint32_t node)
{
    struct node_member *member = &cluster->engine.members[node];
    uint32_t offset = cluster->options.ports_differ ? 0 : node;
    if (inet_pton(AF_INET, cluster->options.address, member->inet) == 1) {
        cqr_store_u32(member->inet, cqr_load_u32(member->inet) + offset);
        member->inet_size = 4;
        (void)inet_ntop(AF_INET, member->inet, member->address, sizeof member->address);
    } else if (inet_pton(AF_INET6, cluster->options.address, member->inet) == 1) {
        cqr_store_u32(member->inet + 12, cqr_load_u32(member->inet + 12) + offset);
        member->inet_size = 16;
        (void)inet_ntop(AF_INET6, member->inet, member->address, sizeof member->address);
    } else {
        return false;
    }
    uint32_t port = cluster->options.port + (cluster->options.ports_differ ? node : 0);
    member->port = (uint16_t)port;
    return true;
}

/* --- life ------------------------------------------------------------------------------------- */

struct node_cluster *node_cluster_create(const struct node_options *options, char *message,
                                         size_t message_size)
{
    if (options != NULL &&
        (options->nodes > NODE_COUNT_MAX || options->vnodes > 4096 || options->shards > 256)) {
        (void)snprintf(message, message_size, "at most %d nodes, 4096 tokens each, 256 shards",
                       NODE_COUNT_MAX);
        return NULL;
    }
    struct node_cluster *cluster = node_zalloc(sizeof *cluster);
    options_take(cluster, options);
    (void)pthread_mutex_init(&cluster->lock, NULL);
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&cluster->moved, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    cluster->random = node_random_seed(cluster->options.seed, 2);
    cluster->values = node_alloc(VALUES_MAX * sizeof *cluster->values);
    cluster->compressor = cqr_compress_state_create();
    if (cluster->compressor == NULL)
        cluster->options.no_lz4 = true; /* a test that fails allocations: do without */
    cluster->nodes = node_zalloc(cluster->options.nodes * sizeof *cluster->nodes);
    for (uint32_t i = 0; i < cluster->options.nodes; ++i) {
        struct node_state *node = &cluster->nodes[i];
        node->seen = node_zalloc(SEEN_COUNT * sizeof *node->seen);
        node->seen_any = node_zalloc(SEEN_COUNT);
        node->frozen_until = INT64_MIN;
        node->delay_us = cluster->options.delay_us;
        node->jitter_us = cluster->options.jitter_us;
    }
    node_events_init(cluster);
    node_engine_init(&cluster->engine, &cluster->options, cluster->options.epoch_us);
    bool fine = true;
    for (uint32_t i = 0; i < cluster->options.nodes; ++i)
        fine = fine && give_address(cluster, i);
    if (!fine) {
        (void)snprintf(message, message_size, "%s is not an address", cluster->options.address);
        node_cluster_stop(cluster);
        return NULL;
    }
    node_engine_ring_changed(&cluster->engine, cluster->options.epoch_us);
    return cluster;
}

struct node_cluster *node_cluster_start(const struct node_options *options, char *message,
                                        size_t message_size)
{
    struct node_options own = {0};
    if (options != NULL)
        own = *options;
    struct timespec wall, steady;
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    (void)clock_gettime(CLOCK_MONOTONIC, &steady);
    if (own.epoch_us == 0)
        own.epoch_us = (int64_t)(wall.tv_sec - steady.tv_sec) * 1000000 +
                       (wall.tv_nsec - steady.tv_nsec) / 1000;
    struct node_cluster *cluster = node_cluster_create(&own, message, message_size);
    if (cluster == NULL)
        return NULL;
    cluster->now_us = (int64_t)steady.tv_sec * 1000000 + steady.tv_nsec / 1000;
    cluster->server = node_server_start(cluster, message, message_size);
    if (cluster->server == NULL) {
        node_cluster_stop(cluster);
        return NULL;
    }
    return cluster;
}

void node_cluster_stop(struct node_cluster *cluster)
{
    if (cluster == NULL)
        return;
    if (cluster->server != NULL)
        node_server_stop(cluster->server);
    cluster->server = NULL;
    while (cluster->conns != NULL)
        node_conn_close_locked(cluster->conns);
    for (struct pending_event *event = cluster->events, *next; event != NULL; event = next) {
        next = event->next;
        node_free(event);
    }
    node_faults_free(cluster);
    node_engine_fini(&cluster->engine);
    for (uint32_t i = 0; i < cluster->options.nodes; ++i) {
        node_free(cluster->nodes[i].seen);
        node_free(cluster->nodes[i].seen_any);
        node_line_fini(&cluster->nodes[i].line);
    }
    node_free(cluster->nodes);
    node_free(cluster->limit.taken);
    node_free(cluster->values);
    node_free(cluster->scratch);
    cqr_compress_state_destroy(cluster->compressor);
    (void)pthread_mutex_destroy(&cluster->lock);
    (void)pthread_cond_destroy(&cluster->moved);
    node_arena_fini(&cluster->arena);
    node_free(cluster);
}

uint32_t node_count(const struct node_cluster *cluster)
{
    return cluster->options.nodes;
}
uint16_t node_port(const struct node_cluster *cluster, uint32_t node)
{
    return cluster->engine.members[node].port;
}
const char *node_address(const struct node_cluster *cluster, uint32_t node)
{
    return cluster->engine.members[node].address;
}

bool node_set_tls(struct node_cluster *cluster, const char *cert, const char *key,
                  const char *client_ca, char *message, size_t message_size)
{
    cluster_lock(cluster);
    bool fine = cluster->server != NULL &&
                node_server_tls(cluster->server, cert, key, client_ca, message, message_size);
    cluster_unlock(cluster);
    return fine;
}

/* --- asking ----------------------------------------------------------------------------------- */

int32_t node_cql(struct node_cluster *cluster, const char *cql, uint32_t *rows, char *message,
                 size_t message_size)
{
    cluster_lock(cluster);
    struct node_arena arena = {0};
    struct out body = {0};
    struct query query = {.engine = &cluster->engine,
                          .now_us = cluster_wall(cluster),
                          .version = PROTO_V5,
                          .type_version = PROTO_V5,
                          .arena = &arena,
                          .body = &body,
                          .code = -1};
    bool fine = node_run_text(&query, slice_text(cql));
    if (rows != NULL)
        *rows = query.rows;
    if (!fine && message != NULL && message_size > 0)
        (void)snprintf(message, message_size, "%s", query.message);
    node_events_send(cluster);
    cluster->poked = true;
    if (cluster->server != NULL)
        node_server_wake(cluster->server);
    cluster_unlock(cluster);
    node_out_fini(&body);
    node_arena_fini(&arena);
    return fine ? 0 : query.code == 0 ? -1 : query.code;
}

int64_t node_table_rows(struct node_cluster *cluster, const char *name)
{
    const char *dot = strchr(name, '.');
    int64_t count = -1;
    cluster_lock(cluster);
    struct node_keyspace *keyspace = dot == NULL
                                         ? NULL
                                         : node_keyspace_find(&cluster->engine,
                                                              slice_of(name, (size_t)(dot - name)));
    struct node_table *table = keyspace == NULL ? NULL
                                                : node_table_find(keyspace, slice_text(dot + 1));
    if (table != NULL) {
        struct node_storage *storage = table->local != NULL ? &table->local[0] : &table->storage;
        uint32_t now = (uint32_t)(cluster_wall(cluster) / 1000000);
        node_storage_settle(storage);
        count = 0;
        for (struct order_at at = node_order_first();
             node_order_get(&storage->by_token, at) != NULL;
             at = node_order_next(&storage->by_token, at)) {
            const struct node_partition *partition = node_order_get(&storage->by_token, at);
            for (struct order_at row = node_order_first();
                 node_order_get(&partition->rows, row) != NULL;
                 row = node_order_next(&partition->rows, row))
                count += node_row_is_live(storage, partition, node_order_get(&partition->rows, row),
                                          false, now);
        }
    }
    cluster_unlock(cluster);
    return count;
}

uint32_t node_replicas(struct node_cluster *cluster, const char *name, int64_t token,
                       uint32_t *nodes, uint32_t capacity)
{
    uint32_t count = 0;
    cluster_lock(cluster);
    struct node_keyspace *keyspace = node_keyspace_find(&cluster->engine, slice_text(name));
    if (keyspace != NULL) {
        const uint32_t *own = NULL;
        count = node_engine_replicas(&cluster->engine, keyspace, token, &own);
        count = count < capacity ? count : capacity;
        if (count > 0)
            memcpy(nodes, own, count * sizeof *nodes);
    }
    cluster_unlock(cluster);
    return count;
}

/* --- what was seen ---------------------------------------------------------------------------- */

static void counters_sum(struct node_cluster *cluster, uint32_t node, struct node_counters *out)
{
    *out = (struct node_counters){0};
    for (uint32_t i = 0; i < cluster->options.nodes; ++i) {
        if (node != NODE_ALL && node != i)
            continue;
        /* All counters are uint64_t: summed as an array. */
        const uint64_t *from = (const uint64_t *)(const void *)&cluster->nodes[i].counters;
        uint64_t *to = (uint64_t *)(void *)out;
        for (size_t j = 0; j < sizeof *out / sizeof *to; ++j)
            to[j] += from[j];
    }
    out->rows_written = cluster->engine.rows_written;
    out->rows_read = cluster->engine.rows_read;
    out->prepared = cluster->engine.prepared_count;
}
_Static_assert(sizeof(struct node_counters) % sizeof(uint64_t) == 0,
               "counters are an array of uint64_t");

void node_counters(struct node_cluster *cluster, uint32_t node, struct node_counters *out)
{
    cluster_lock(cluster);
    counters_sum(cluster, node, out);
    cluster_unlock(cluster);
}

void node_counters_reset(struct node_cluster *cluster)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->options.nodes; ++i) {
        uint64_t open = cluster->nodes[i].counters.connections_open;
        cluster->nodes[i].counters = (struct node_counters){.connections_open = open};
    }
    cluster->engine.rows_written = cluster->engine.rows_read = 0;
    cluster_unlock(cluster);
}

bool node_last(struct node_cluster *cluster, uint32_t node, uint8_t opcode, struct node_seen *out)
{
    bool found = false;
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->options.nodes * SEEN_COUNT; ++i) {
        const struct node_state *state = &cluster->nodes[i / SEEN_COUNT];
        uint32_t slot = i % SEEN_COUNT;
        bool wanted = opcode == 0xFF ? slot != OPCODE_OPTIONS
                                     : slot == (opcode < OPCODE_OTHER ? opcode : OPCODE_OTHER);
        if (!wanted || (node != NODE_ALL && node != i / SEEN_COUNT) || !state->seen_any[slot] ||
            (found && state->seen[slot].number < out->number))
            continue;
        *out = state->seen[slot];
        found = true;
    }
    cluster_unlock(cluster);
    return found;
}

uint32_t node_conns(struct node_cluster *cluster, uint32_t node, struct node_conn_info *out,
                    uint32_t capacity)
{
    uint32_t count = 0;
    cluster_lock(cluster);
    for (const struct node_conn *conn = cluster->conns; conn != NULL; conn = conn->next) {
        if (node != NODE_ALL && conn->node != node)
            continue;
        if (count < capacity) {
            struct node_conn_info *info = &out[count];
            *info = (struct node_conn_info){
                .conn = conn->number,
                .node = conn->node,
                .version = conn->dialect.version,
                .ready = conn->state == CONN_READY,
                .lz4 = conn->lz4,
                .registered = conn->registered != 0,
                .shard = conn->shard,
                .requests = conn->requests,
                .replies = conn->replies,
                .bytes_in = conn->bytes_in,
                .bytes_out = conn->bytes_out,
            };
            memcpy(info->keyspace, conn->keyspace, sizeof info->keyspace);
            memcpy(info->user, conn->user, sizeof info->user);
            memcpy(info->server_name, conn->server_name, sizeof info->server_name);
        }
        ++count;
    }
    cluster_unlock(cluster);
    return count;
}

bool node_startup_option(struct node_cluster *cluster, uint32_t number, const char *key,
                         char *value, size_t size)
{
    bool found = false;
    cluster_lock(cluster);
    const struct startup_option *options = cluster->last_startup;
    uint32_t count = number == 0 ? cluster->last_startup_count : 0;
    for (const struct node_conn *conn = cluster->conns; conn != NULL && number != 0;
         conn = conn->next) {
        if (conn->number == number) {
            options = conn->options;
            count = conn->option_count;
        }
    }
    for (uint32_t i = 0; i < count && !found; ++i) {
        found = strcmp(options[i].key, key) == 0;
        if (found)
            (void)snprintf(value, size, "%s", options[i].value);
    }
    cluster_unlock(cluster);
    return found;
}

bool node_wait(struct node_cluster *cluster,
               bool (*done)(const struct node_counters *all, void *context), uint32_t timeout_ms,
               void *context)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        ++until.tv_sec;
        until.tv_nsec -= 1000000000;
    }
    cluster_lock(cluster);
    bool fine = false;
    for (;;) {
        struct node_counters counters;
        counters_sum(cluster, NODE_ALL, &counters);
        fine = done(&counters, context);
        if (fine || pthread_cond_timedwait(&cluster->moved, &cluster->lock, &until) != 0)
            break;
    }
    cluster_unlock(cluster);
    return fine;
}

/* --- connections without sockets -------------------------------------------------------------- */

uint32_t node_choose_shard(struct node_cluster *cluster, uint32_t node, uint16_t source_port)
{
    const struct node_member *member = &cluster->engine.members[node];
    uint32_t shards = member->shards;
    if (shards == 0)
        return 0;
    if (source_port == 0)
        return cluster->nodes[node].next_shard++ % shards;
    return (source_port + (member->shard_port_is == NODE_SHARD_PORT_NAT ? 1u : 0u)) % shards;
}

uint16_t node_shard_port(struct node_cluster *cluster, uint32_t node, enum node_shard_port *how)
{
    const struct node_member *member = &cluster->engine.members[node];
    if (how != NULL)
        *how = (enum node_shard_port)member->shard_port_is;
    return member->shard_port;
}

struct node_conn *node_conn_open(struct node_cluster *cluster, uint32_t node, uint32_t shard,
                                 int64_t now_us)
{
    cluster_lock(cluster);
    cluster->now_us = now_us;
    struct node_conn *conn = node_conn_open_locked(cluster, node, shard);
    cluster_unlock(cluster);
    return conn;
}

void node_conn_input(struct node_conn *conn, const void *data, size_t size, int64_t now_us)
{
    struct node_cluster *cluster = conn->cluster;
    cluster_lock(cluster);
    cluster->now_us = now_us;
    node_conn_input_locked(conn, data, size);
    cluster_unlock(cluster);
}

void node_conn_turn(struct node_conn *conn, int64_t now_us)
{
    struct node_cluster *cluster = conn->cluster;
    cluster_lock(cluster);
    cluster->now_us = now_us;
    node_conn_turn_locked(conn);
    cluster_unlock(cluster);
}

int64_t node_conn_next_time(const struct node_conn *conn)
{
    int64_t frozen = conn->cluster->nodes[conn->node].frozen_until;
    int64_t due = conn->held_count > 0 ? conn->held[0].due : INT64_MAX;
    return frozen > conn->cluster->now_us && frozen < due ? frozen : due;
}

cqlring_bytes node_conn_output(struct node_conn *conn)
{
    cluster_lock(conn->cluster);
    bool frozen = conn->cluster->nodes[conn->node].frozen_until > conn->cluster->now_us;
    cqlring_bytes bytes = frozen ? slice_of("", 0) : node_conn_output_locked(conn);
    cluster_unlock(conn->cluster);
    return bytes;
}

void node_conn_consumed(struct node_conn *conn, uint32_t size)
{
    cluster_lock(conn->cluster);
    node_conn_consumed_locked(conn, size);
    cluster_unlock(conn->cluster);
}

bool node_conn_wants_close(const struct node_conn *conn)
{
    return conn->closing;
}

bool node_conn_is_paused(const struct node_conn *conn, int64_t now_us)
{
    conn->cluster->now_us = now_us;
    return node_conn_is_paused_locked(conn);
}

void node_conn_close(struct node_conn *conn)
{
    struct node_cluster *cluster = conn->cluster;
    cluster_lock(cluster);
    node_conn_close_locked(conn);
    cluster_unlock(cluster);
}
