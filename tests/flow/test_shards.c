/* SPDX-License-Identifier: Apache-2.0 */

/* ScyllaDB's shards, against the simulation: one connection to each, rows on the connection of their token's shard, and what
   becomes of that when connections die, ports are unreachable or rewritten, and nodes come back with other shards. What counts is
   what the node counted. */

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ask.h"
#include "secure.h"
#include "watch.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

static void begin(struct flow *flow, uint32_t nodes, uint32_t shards)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->node_options.shards = shards;
    flow->options.reconnect_min_us = 5000;
    flow->options.reconnect_max_us = 60000;
}

/* ---- what is awaited ---- */

/* Shards of the node that have a connection of a pool (not the control connection). */
static uint32_t covered(struct flow *flow, uint32_t node, uint32_t *connections)
{
    struct node_conn_info conns[512];
    bool has[256] = {false};
    uint32_t count = node_conns(flow->node, node, conns, 512), shards = 0;
    *connections = 0;
    for (uint32_t i = 0; i < count && i < 512; i++) {
        if (!conns[i].ready || conns[i].registered)
            continue;
        ++*connections;
        shards += !has[conns[i].shard];
        has[conns[i].shard] = true;
    }
    return shards;
}

struct want {
    uint32_t nodes, shards;
};

/* Exactly one connection to each shard of every node, in the driver's eyes too. */
static bool all_covered(struct flow *flow, void *context)
{
    const struct want *want = context;
    for (uint32_t node = 0; node < want->nodes; node++) {
        uint32_t connections = 0;
        cqlring_node_info info;
        if (covered(flow, node, &connections) != want->shards || connections != want->shards || !watch_node(flow, node, &info) || info.connections != want->shards)
            return false;
    }
    return true;
}

static void open_covered(struct flow *flow, uint32_t nodes, uint32_t shards)
{
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, all_covered, (&(struct want){nodes, shards}));
}

/* ---- routing ---- */

START_TEST(every_row_goes_to_its_tokens_shard_whatever_their_number)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 8, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct flow flow;
        begin(&flow, 1, counts[i]);
        open_covered(&flow, 1, counts[i]);
        struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
        ck_assert_uint_eq(counters.shard_hits, 1000);
        ck_assert_uint_eq(flow_stats(&flow).shard_fallbacks, 0);
        cqlring_node_info info;
        ck_assert(watch_node(&flow, 0, &info));
        ck_assert_uint_eq(info.shards, counts[i]);
        flow_close(&flow);
    }
}
END_TEST

static bool is_embedded(struct flow *flow, const cqlring_node *node, uint32_t index)
{
    cqlring_node_info theirs, mine;
    cqlring_node_describe(node, &theirs);
    return watch_node(flow, index, &mine) && strcmp(theirs.address, mine.address) == 0;
}

/* What it says is where the row then comes; nodes need not have the same number of shards. */
START_TEST(the_route_of_a_row_names_the_shard_that_it_comes_to)
{
    struct flow flow;
    begin(&flow, 3, 4);
    ask_record(&flow);
    flow_start(&flow);
    node_set_shards(flow.node, 1, 7);
    flow_open(&flow);
    cqlring_node_info info;
    while (!(watch_node(&flow, 0, &info) && info.connections == 4 && watch_node(&flow, 1, &info) && info.connections == 7 && watch_node(&flow, 2, &info) &&
             info.connections == 4))
        watch_pass(&flow, 5);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    bool seen_above[2] = {false, false};
    for (int64_t k = 0; k < 300; k++) {
        cqlring_bytes values[] = {flow_bigint(k), {"x", 1}};
        cqlring_route route;
        flow_ok(cqlring_route_of(insert, values, 2, &route, NULL));
        ck_assert_uint_eq(route.replica_count, 3);
        flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
        struct node_seen seen = ask_seen(OPCODE_EXECUTE);
        uint32_t i = 0;
        while (i < 3 && !is_embedded(&flow, route.replicas[i].node, seen.node))
            i++;
        ck_assert_uint_lt(i, 3);
        ck_assert_int_eq(route.replicas[i].shard, (int32_t)seen.shard);
        for (i = 0; i < 3; i++) {
            int32_t shards = is_embedded(&flow, route.replicas[i].node, 1) ? 7 : 4;
            ck_assert_int_ge(route.replicas[i].shard, 0);
            ck_assert_int_lt(route.replicas[i].shard, shards);
            seen_above[shards == 7] = seen_above[shards == 7] || route.replicas[i].shard >= (shards == 7 ? 4 : 3);
        }
    }
    ck_assert(seen_above[0] && seen_above[1]);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static void on_node(struct flow *flow, const char *cql)
{
    char message[256];
    ck_assert_msg(node_cql(flow->node, cql, NULL, message, sizeof message) == 0, "%s: %s", cql, message);
}

/* The same node and the same shard for every row of a key, by each of the three ways; counted at the node. */
START_TEST(with_rf_1_there_is_one_node_and_shard_for_a_row)
{
    enum { KEYS = 300 };
    struct flow flow;
    begin(&flow, 3, 4);
    ask_record(&flow);
    flow_start(&flow);
    node_set_shards(flow.node, 1, 7); /* nodes need not have the same number */
    on_node(&flow, "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    on_node(&flow, "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)");
    flow_open(&flow);
    cqlring_node_info info;
    while (!(watch_node(&flow, 0, &info) && info.connections == 4 && watch_node(&flow, 1, &info) && info.connections == 7 && watch_node(&flow, 2, &info) &&
             info.connections == 4))
        watch_pass(&flow, 5);
    struct node_counters counters = flow_counted_rows(&flow, "INSERT INTO one.t (k, v) VALUES (?, ?)", KEYS, 0);
    ck_assert_uint_eq(counters.shard_hits, KEYS);
    ask_record_clear();
    flow_counted_rows(&flow, "INSERT INTO one.t (k, v) VALUES (?, ?)", KEYS, 0);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT v FROM one.t WHERE k = ?");
    for (int64_t k = 0; k < KEYS; k++) {
        cqlring_result *result = NULL;
        flow_ok(ask_prepared(&flow, select, (cqlring_bytes[]){flow_bigint(k)}, 1, NULL, &result, NULL));
        ck_assert_uint_eq(cqlring_result_row_count(result), 1);
        cqlring_result_release(result);
    }
    cqlring_prepared_release(select);
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.shard_hits, 2 * KEYS);
    uint32_t count = ask_seen_count(OPCODE_EXECUTE);
    struct node_seen *seen = calloc(count, sizeof *seen);
    uint32_t executed = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen[executed] = ask_seen_at(OPCODE_EXECUTE, i);
        executed += seen[executed].has_token; /* else the node did not know the statement yet */
    }
    count = executed;
    ck_assert_uint_eq(count, 2 * KEYS);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i + 1; j < count; j++)
            if (seen[i].token == seen[j].token)
                ck_assert(seen[i].node == seen[j].node && seen[i].shard == seen[j].shard);
    free(seen);
    flow_close(&flow);
}
END_TEST

START_TEST(with_rf_3_each_row_goes_to_a_replica_and_its_shard_there)
{
    struct flow flow;
    begin(&flow, 5, 4);
    open_covered(&flow, 5, 4);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 3000, 0);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.shard_hits, 3000);
    flow_close(&flow);
}
END_TEST

START_TEST(a_busy_shards_rows_take_other_connections_and_are_counted)
{
    struct flow flow;
    begin(&flow, 1, 2);
    flow.options.inflight_per_connection = 20;
    flow.node_options.delay_us = 2000;
    open_covered(&flow, 1, 2);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows; /* the same few keys again and again would do, but half of all keys are of each shard anyway */
    struct flow_sink sink;
    flow_rows_init(&rows, 400, 16);
    flow_sink_init(&sink, 400);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 36};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.failed, 0);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(flow_stats(&flow).shard_fallbacks, counters.shard_misses);
    ck_assert_uint_gt(counters.shard_misses, 0);
    ck_assert_uint_lt(counters.shard_misses, counters.shard_hits);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- connections that die ---- */

struct killing {
    struct flow *flow;
    uint64_t at;
    uint32_t killed;
};

static void kill_one(const cqlring_completion *completion, void *context)
{
    struct killing *killing = context;
    if (completion->row < killing->at)
        return;
    killing->at += 400;
    struct node_conn_info conns[64];
    uint32_t count = node_conns(killing->flow->node, 0, conns, 64);
    uint32_t first = killing->killed * 7;
    for (uint32_t i = 0; i < count; i++) {
        const struct node_conn_info *conn = &conns[(first + i) % count];
        if (conn->ready && !conn->registered) {
            node_cut(killing->flow->node, 0, conn->conn);
            killing->killed++;
            return;
        }
    }
}

START_TEST(a_shards_connection_dies_in_the_middle_of_a_job)
{
    struct flow flow;
    begin(&flow, 1, 5);
    open_covered(&flow, 1, 5);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    struct killing killing = {.flow = &flow, .at = 200};
    flow_rows_init(&rows, 4000, 16);
    flow_sink_init(&sink, 4000);
    sink.each = kill_one;
    sink.context = &killing;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(flow_sink_missing(&sink, 4000), 0);
    ck_assert_uint_ge(killing.killed, 5);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 4000);
    watch_for(&flow, all_covered, (&(struct want){1, 5}));
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* The node never seems down while one of its connections is up. */
START_TEST(the_first_connection_is_no_more_than_any_other)
{
    struct flow flow;
    begin(&flow, 1, 3);
    open_covered(&flow, 1, 3);
    for (int round = 0; round < 6; round++) {
        struct node_conn_info conns[16];
        uint32_t count = node_conns(flow.node, 0, conns, 16);
        for (uint32_t i = 0; i < count; i++)
            if (conns[i].ready && !conns[i].registered) { /* the oldest */
                node_cut(flow.node, 0, conns[i].conn);
                break;
            }
        flow_cql(&flow, "SELECT key FROM system.local");
        watch_for(&flow, all_covered, (&(struct want){1, 3}));
    }
    flow_close(&flow);
}
END_TEST

struct storm {
    struct flow *flow;
    cqlring_prepared *insert;
    atomic_bool stop;
    atomic_ulong good;
};

static void *storm_thread(void *context)
{
    struct storm *storm = context;
    for (int64_t k = 0; !atomic_load(&storm->stop); k++) {
        uint8_t key[8];
        for (int i = 0; i < 8; i++)
            key[i] = (uint8_t)((uint64_t)k >> (56 - 8 * i));
        cqlring_bytes values[2] = {{key, 8}, {key, 8}};
        if (ask_prepared(storm->flow, storm->insert, values, 2, &idempotent, NULL, NULL) == CQLRING_OK)
            atomic_fetch_add(&storm->good, 1);
    }
    return NULL;
}

START_TEST(sh_09_connections_close_at_random_under_many_threads)
{
    struct flow flow;
    begin(&flow, 2, 4);
    open_covered(&flow, 2, 4);
    struct storm storm = {.flow = &flow, .insert = flow_prepare(&flow, FLOW_INSERT)};
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, storm_thread, &storm), 0);
    uint64_t random = 88172645463325252u;
    for (int round = 0, rounds = getenv("CQLRING_LONG") != NULL ? 12000 : 200; round < rounds; round++) {
        struct node_conn_info conns[64];
        uint32_t count = node_conns(flow.node, NODE_ALL, conns, 64);
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        if (count > 0 && count <= 64 && !conns[random % count].registered)
            node_cut(flow.node, conns[random % count].node, conns[random % count].conn);
        watch_pass(&flow, 5);
    }
    atomic_store(&storm.stop, true);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_gt(atomic_load(&storm.good), 0);
    cqlring_prepared_release(storm.insert);
    watch_for(&flow, all_covered, (&(struct want){2, 4}));
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_comes_back_with_another_number_of_shards)
{
    static const uint32_t counts[] = {8, 2, 1, 5};
    struct flow flow;
    begin(&flow, 1, 4);
    open_covered(&flow, 1, 4);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        node_down(flow.node, 0, false);
        node_set_shards(flow.node, 0, counts[i]);
        node_up(flow.node, 0, false);
        watch_for(&flow, all_covered, (&(struct want){1, counts[i]}));
        struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 400, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
    }
    flow_close(&flow);
}
END_TEST

/* Its old connections live on: only new ones tell. */
START_TEST(other_shards_are_noticed_by_the_next_connection)
{
    struct flow flow;
    begin(&flow, 1, 4);
    open_covered(&flow, 1, 4);
    node_set_shards(flow.node, 0, 6);
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow.node, 0, conns, 16);
    for (uint32_t i = 0; i < count; i++)
        if (conns[i].shard == 2 && !conns[i].registered)
            node_cut(flow.node, 0, conns[i].conn);
    watch_for(&flow, all_covered, (&(struct want){1, 6}));
    ck_assert_uint_ge(watch_log_count("has 6 shards now, it had 4"), 1);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 400, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

/* ---- ports ---- */

static const char *const paused = "shard-aware port";

START_TEST(an_address_translation_is_noticed_said_once_and_gone_around)
{
    struct flow flow;
    begin(&flow, 1, 8);
    flow_start(&flow);
    node_set_shard_port(flow.node, NODE_ALL, NODE_SHARD_PORT_NAT);
    flow_open(&flow);
    watch_for(&flow, all_covered, (&(struct want){1, 8}));
    ck_assert_uint_eq(watch_log_count("NAT"), 1);
    struct node_counters counters, before;
    node_counters(flow.node, 0, &before);
    ck_assert_uint_le(before.connections, 1 + 8 + 32 + 4 + 4);
    counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(without_a_shard_aware_port_shards_are_found_by_trial)
{
    for (int how = 0; how < 2; how++) {
        struct flow flow;
        begin(&flow, 2, 6);
        if (how == 1)
            flow.options.shard_aware_port = CQLRING_NO;
        flow_start(&flow);
        if (how == 0)
            node_set_shard_port(flow.node, NODE_ALL, NODE_SHARD_PORT_UNLISTED);
        flow_open(&flow);
        watch_for(&flow, all_covered, (&(struct want){2, 6}));
        ck_assert_uint_eq(watch_log_count(paused), 0);
        struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
        flow_close(&flow);
    }
}
END_TEST

/* Session open is never held up by it, and the shards are reached by the ordinary port. */
START_TEST(sh_08_a_shard_aware_port_that_is_closed_or_a_black_hole)
{
    static const enum node_shard_port ports[] = {NODE_SHARD_PORT_CLOSED, NODE_SHARD_PORT_SILENT};
    for (size_t i = 0; i < 2; i++) {
        struct flow flow;
        begin(&flow, 1, 4);
        flow.options.connect_timeout_us = 300000 * WATCH_SLOW;
        flow_start(&flow);
        node_set_shard_port(flow.node, NODE_ALL, ports[i]);
        flow_open(&flow);
        flow_cql(&flow, "SELECT key FROM system.local"); /* served meanwhile */
        watch_for(&flow, watch_logged, "is not used for 60 s");
        uint32_t connections;
        while (covered(&flow, 0, &connections) < 4)
            watch_pass(&flow, 5);
        struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 300, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
        flow_close(&flow);
    }
}
END_TEST

/* The port for TLS is used where TLS is, and no other. */
START_TEST(over_tls_its_own_shard_aware_port_is_used)
{
    struct flow flow;
    cqlring_tls_options tls;
    begin(&flow, 1, 4);
    secure_flow(&flow, "node-good", &tls);
    open_covered(&flow, 1, 4);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 300, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.connections_open, 4 + 1);
    ck_assert_uint_eq(watch_log_count("is not used for"), 0);
    flow_close(&flow);
}
END_TEST

/* A range of three ports cannot choose each of eight shards: the others are found by trial. */
START_TEST(sh_04_a_small_range_of_local_ports)
{
    struct flow flow;
    begin(&flow, 1, 8);
    flow.options.local_port_min = 51003;
    flow.options.local_port_max = 51005;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, all_covered, (&(struct want){1, 8}));
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 300, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(sh_04_ranges_without_sense_are_refused)
{
    static const int32_t ranges[][2] = {{0, 60000}, {50000, 0}, {60000, 50000}, {80, 60000}, {50000, 65536}, {-1, -1}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        cqlring_cluster_options options = {.struct_size = sizeof options, .local_port_min = ranges[i][0], .local_port_max = ranges[i][1]};
        cqlring_cluster *cluster = NULL;
        cqlring_error error;
        ck_assert_int_eq(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), CQLRING_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, "local ports"));
    }
    cqlring_cluster_options options = {.struct_size = sizeof options, .shard_busy_percent = 101};
    cqlring_cluster *cluster = NULL;
    ck_assert_int_eq(cqlring_cluster_open_sync(NULL, &options, &cluster, NULL), CQLRING_INVALID);
}
END_TEST

static int occupy(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1) != 0) {
        (void)close(fd);
        return -1; /* somebody else has it: as good */
    }
    return fd;
}

/* All ports of the range but the last of each shard, and then all of them, are in use. */
START_TEST(sh_05_local_ports_that_are_in_use_are_passed_over)
{
    enum { FIRST = 52000, COUNT = 64, SHARDS = 4 };
    for (int all = 0; all < 2; all++) {
        int taken[COUNT];
        for (int i = 0; i < COUNT; i++)
            taken[i] = all == 1 || i < COUNT - 2 * SHARDS ? occupy((uint16_t)(FIRST + i)) : -1;
        struct flow flow;
        begin(&flow, 1, SHARDS);
        flow.options.local_port_min = FIRST;
        flow.options.local_port_max = FIRST + COUNT - 1;
        flow_start(&flow);
        flow_open(&flow);
        watch_for(&flow, all_covered, (&(struct want){1, SHARDS}));
        ck_assert_uint_eq(watch_log_count("is not used for"), 0);
        struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 200, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
        flow_close(&flow);
        for (int i = 0; i < COUNT; i++)
            if (taken[i] >= 0)
                (void)close(taken[i]);
    }
}
END_TEST

/* ---- how many ---- */

START_TEST(st_18_there_are_as_many_connections_as_documented)
{
    struct flow flow;
    begin(&flow, 3, 8);
    open_covered(&flow, 3, 8);
    watch_pass(&flow, 50);
    ck_assert(all_covered(&flow, &(struct want){3, 8}));
    struct node_conn_info conns[64];
    ck_assert_uint_eq(node_conns(flow.node, NODE_ALL, conns, 64), 3 * 8 + 1); /* and the control connection */
    flow_close(&flow);

    begin(&flow, 3, 8);
    flow.options.shard_connections = CQLRING_NO;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    flow_counted_rows(&flow, FLOW_INSERT, 300, 0);
    ck_assert_uint_eq(node_conns(flow.node, NODE_ALL, conns, 64), 3 + 1);
    ck_assert_uint_eq(flow_stats(&flow).shard_fallbacks, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(connections_max_bounds_the_shards_connections)
{
    struct flow flow;
    begin(&flow, 2, 16);
    flow.runtime_options.connections_max = 16;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_logged, "connections_max");
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    struct node_conn_info conns[64];
    uint32_t count = node_conns(flow.node, NODE_ALL, conns, 64);
    ck_assert_uint_le(count, 14);
    ck_assert_uint_ge(count, 12);
    flow_close(&flow);
}
END_TEST

START_TEST(each_lane_has_its_own_connection_to_each_shard)
{
    struct flow flow;
    begin(&flow, 1, 3);
    if (flow.threads == CQLRING_THREADS_CALLER)
        return; /* has one lane */
    flow.runtime_options.lanes = 2;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_node_info info;
    while (!watch_node(&flow, 0, &info) || info.connections < 6)
        watch_pass(&flow, 5);
    watch_pass(&flow, 30);
    ck_assert(watch_node(&flow, 0, &info));
    ck_assert_uint_eq(info.connections, 6);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shards");
    TCase *tcase = tcase_create("shards");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_row_goes_to_its_tokens_shard_whatever_their_number);
    tcase_add_test(tcase, with_rf_1_there_is_one_node_and_shard_for_a_row);
    tcase_add_test(tcase, the_route_of_a_row_names_the_shard_that_it_comes_to);
    tcase_add_test(tcase, with_rf_3_each_row_goes_to_a_replica_and_its_shard_there);
    tcase_add_test(tcase, a_busy_shards_rows_take_other_connections_and_are_counted);
    tcase_add_test(tcase, a_shards_connection_dies_in_the_middle_of_a_job);
    tcase_add_test(tcase, the_first_connection_is_no_more_than_any_other);
    tcase_add_test(tcase, sh_09_connections_close_at_random_under_many_threads);
    tcase_add_test(tcase, a_node_comes_back_with_another_number_of_shards);
    tcase_add_test(tcase, other_shards_are_noticed_by_the_next_connection);
    tcase_add_test(tcase, an_address_translation_is_noticed_said_once_and_gone_around);
    tcase_add_test(tcase, without_a_shard_aware_port_shards_are_found_by_trial);
    tcase_add_test(tcase, sh_08_a_shard_aware_port_that_is_closed_or_a_black_hole);
    if (secure_make())
        tcase_add_test(tcase, over_tls_its_own_shard_aware_port_is_used);
    tcase_add_test(tcase, sh_04_a_small_range_of_local_ports);
    tcase_add_test(tcase, sh_04_ranges_without_sense_are_refused);
    tcase_add_test(tcase, sh_05_local_ports_that_are_in_use_are_passed_over);
    tcase_add_test(tcase, st_18_there_are_as_many_connections_as_documented);
    tcase_add_test(tcase, connections_max_bounds_the_shards_connections);
    tcase_add_test(tcase, each_lane_has_its_own_connection_to_each_shard);
    suite_add_tcase(suite, tcase);
    int result = flow_main(suite);
    secure_remove();
    return result;
}
