/* SPDX-License-Identifier: Apache-2.0 */

/* Numbers per node and lane, and all of them as text: right while it runs, and harmless before and after. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "metrics_text.h"
#include "watch.h"

enum { ROWS = 20000 };

static uint32_t stats_read(struct flow *flow, cqlring_node_stats *stats, uint32_t capacity)
{
    uint32_t count = cqlring_cluster_stats(flow->cluster, stats, capacity);
    ck_assert_uint_le(count, capacity);
    return count;
}

static cqlring_node_stats stats_sum(struct flow *flow)
{
    cqlring_node_stats stats[16], sum = {0};
    uint32_t count = stats_read(flow, stats, 16);
    for (uint32_t i = 0; i < count; i++) {
        sum.requests += stats[i].requests;
        sum.replies += stats[i].replies;
        sum.in_flight += stats[i].in_flight;
        sum.orphans += stats[i].orphans;
        sum.retries += stats[i].retries;
        sum.speculative += stats[i].speculative;
        sum.speculative_won += stats[i].speculative_won;
        sum.shard_fallbacks += stats[i].shard_fallbacks;
        sum.orphaned += stats[i].orphaned;
        sum.late_replies += stats[i].late_replies;
        sum.wakes += stats[i].wakes;
        for (int j = 0; j < 16; j++)
            sum.errors[j] += stats[i].errors[j];
    }
    return sum;
}

static bool is_idle(struct flow *flow, void *unused)
{
    (void)unused;
    return stats_sum(flow).in_flight == 0;
}

/* A turn's answers are counted at its end, which may be after the request's. */
static bool is_counted(struct flow *flow, void *replies)
{
    return stats_sum(flow).replies >= *(uint64_t *)replies;
}

static void job_run(struct flow *flow, uint64_t count, const cqlring_job_options *options, cqlring_summary *summary)
{
    struct flow_rows rows;
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT);
    flow_rows_init(&rows, count, 16);
    cqlring_error error;
    cqlring_status status = flow_run(flow, insert, &rows, NULL, options, summary, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
}

START_TEST(a_job_is_counted_at_its_nodes)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &flow.node_options.nodes);
    cqlring_summary summary;
    job_run(&flow, ROWS, NULL, &summary);
    ck_assert_uint_eq(summary.failed, 0);
    watch_for(&flow, is_idle, NULL);

    cqlring_node_stats stats[8];
    uint32_t count = stats_read(&flow, stats, 8);
    ck_assert_uint_eq(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        struct node_counters seen;
        cqlring_node_info info;
        cqlring_node_describe(stats[i].node, &info);
        uint32_t node = strncmp(info.address, node_address(flow.node, 0), strlen(node_address(flow.node, 0))) == 0 ? 0 : 1;
        node_counters(flow.node, node, &seen);
        ck_assert_uint_eq(stats[i].requests, stats[i].replies);
        ck_assert_uint_ge(stats[i].requests, seen.opcodes[OPCODE_EXECUTE]); /* PREPARE and perhaps heartbeats besides */
        ck_assert_uint_le(stats[i].requests, seen.requests);
        ck_assert_uint_gt(stats[i].sends, 0);
        ck_assert_uint_lt(stats[i].sends, stats[i].requests);
        ck_assert_uint_gt(stats[i].send_bytes, stats[i].requests * 30);
        ck_assert_uint_gt(stats[i].recvs, 0);
        ck_assert_uint_gt(stats[i].recv_bytes, stats[i].replies * 9);
        ck_assert_uint_eq(stats[i].connections, 1);
        ck_assert_int_eq(stats[i].shard, -1);
        ck_assert_uint_eq(stats[i].queued_bytes, 0);
        ck_assert_uint_gt(stats[i].latency_max_us, 0);
        ck_assert_uint_le(stats[i].latency_p50_us, stats[i].latency_p95_us);
        ck_assert_uint_le(stats[i].latency_p95_us, stats[i].latency_p99_us);
        ck_assert_uint_le(stats[i].latency_p99_us, stats[i].latency_max_us);
        ck_assert_uint_ge(stats[i].latency_sum_us, stats[i].latency_max_us);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(latencies_are_those_of_the_server)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 30000;
    flow_start(&flow);
    flow_open(&flow);
    for (int i = 0; i < 5; i++)
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    watch_for(&flow, is_counted, &(uint64_t){5});
    cqlring_node_stats stats;
    ck_assert_uint_eq(stats_read(&flow, &stats, 1), 1);
    ck_assert_uint_ge(stats.latency_p50_us, 29000); /* a turn's time is read once */
    ck_assert_uint_ge(stats.latency_sum_us, 5 * 29000);
    flow_close(&flow);
}
END_TEST

START_TEST(errors_retries_and_orphans_are_told_apart)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "error:code=0x1001,opcode=EXECUTE,times=3");
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how};
    cqlring_summary summary;
    job_run(&flow, 100, &options, &summary);
    ck_assert_uint_eq(summary.failed, 0);
    cqlring_node_stats sum = stats_sum(&flow);
    ck_assert_uint_eq(sum.errors[CQLRING_SERVER], 3);
    ck_assert_uint_eq(sum.retries, 3);

    ck_assert_int_eq(flow_try(&flow, "SELECT nonsense FROM nowhere", NULL, NULL), CQLRING_SERVER);
    node_fault_remove(flow.node, 0);
    flow_fault(&flow, "drop:opcode=QUERY,times=1");
    how = (cqlring_execution){.struct_size = sizeof how, .timeout_us = 200000, .retry = CQLRING_RETRY_NONE};
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, NULL), CQLRING_TIMEOUT);
    sum = stats_sum(&flow);
    ck_assert_uint_eq(sum.errors[CQLRING_TIMEOUT], 1);
    ck_assert_uint_eq(sum.errors[CQLRING_SERVER], 4);
    ck_assert_uint_eq(sum.orphans, 1);
    ck_assert_uint_eq(sum.in_flight, 0);

    struct metrics_text text;
    metrics_read(flow.runtime, &text);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_errors_total", "kind=\"overloaded\""), 3);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_errors_total", "kind=\"TIMEOUT\""), 1);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_requests_failed_total", "status=\"TIMEOUT\""), 1);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_orphans", ""), 1);
    metrics_free(&text);
    flow_close(&flow);
}
END_TEST

static bool has_late_reply(struct flow *flow, void *unused)
{
    (void)unused;
    return flow_stats(flow).late_replies > 0;
}

static bool all_shards(struct flow *flow, void *unused)
{
    (void)unused;
    for (uint32_t node = 0; node < 2; node++) {
        cqlring_node_info info;
        if (!watch_node(flow, node, &info) || info.connections != 2)
            return false;
    }
    return true;
}

/* Each of them happens here, and nothing is counted twice or at nobody. */
START_TEST(the_nodes_figures_add_up_to_the_whole)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow.node_options.shards = 2;
    flow.options.inflight_per_connection = 20;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, all_shards, NULL);
    node_set_delay(flow.node, NODE_ALL, 2000, 0);
    job_run(&flow, 1000, &(cqlring_job_options){.struct_size = sizeof(cqlring_job_options), .window = 78}, &(cqlring_summary){0});
    node_set_delay(flow.node, NODE_ALL, 0, 0);

    const cqlring_speculation copies = {.struct_size = sizeof copies, .max = 1, .delay_us = 20000};
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .speculation = &copies};
    flow_fault(&flow, "late:opcode=QUERY,delay_us=300000,times=1");
    flow_ok(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, NULL));

    node_fault_remove(flow.node, 0);
    flow_fault(&flow, "late:opcode=QUERY,delay_us=300000,times=1");
    how = (cqlring_execution){.struct_size = sizeof how, .timeout_us = 100000, .retry = CQLRING_RETRY_NONE};
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, NULL), CQLRING_TIMEOUT);
    watch_for(&flow, has_late_reply, NULL);
    watch_for(&flow, watch_no_orphans, NULL);

    cqlring_stats all = flow_stats(&flow);
    cqlring_node_stats sum = stats_sum(&flow);
    ck_assert_uint_gt(all.shard_fallbacks, 0);
    ck_assert_uint_ge(all.speculative, 1);
    ck_assert_uint_ge(all.speculative_won, 1);
    ck_assert_uint_ge(all.orphans, 2); /* the attempt that lost, and the request */
    ck_assert_uint_eq(sum.shard_fallbacks, all.shard_fallbacks);
    ck_assert_uint_eq(sum.speculative, all.speculative);
    ck_assert_uint_eq(sum.speculative_won, all.speculative_won);
    ck_assert_uint_eq(sum.orphaned, all.orphans);
    ck_assert_uint_eq(sum.late_replies, all.late_replies);
    ck_assert_uint_le(sum.wakes, all.wakes_submitter);
    ck_assert_uint_eq(sum.wakes > 0, flow.threads == CQLRING_THREADS_SPLIT);
    struct metrics_text text;
    metrics_read(flow.runtime, &text);
    static const char *const names[] = {"speculative", "speculative_won", "shard_fallbacks", "late_replies"};
    for (int i = 0; i < 4; i++) {
        char total[64], of_nodes[64];
        snprintf(total, sizeof total, "cqlring_%s_total", names[i]);
        snprintf(of_nodes, sizeof of_nodes, "cqlring_node_%s_total", names[i]);
        ck_assert_double_eq(metrics_sum(&text, of_nodes, ""), metrics_sum(&text, total, ""));
    }
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_orphaned_total", ""), metrics_sum(&text, "cqlring_orphans_total", ""));
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_orphans", ""), 0);
    metrics_free(&text);
    flow_close(&flow);
}
END_TEST

static bool is_in_flight(struct flow *flow, void *unused)
{
    (void)unused;
    return stats_sum(flow).in_flight == 1;
}

static bool is_without_connections(struct flow *flow, void *unused)
{
    (void)unused;
    return cqlring_cluster_connections(flow->cluster, NULL, 0) == 0;
}

static bool is_down(struct flow *flow, void *unused)
{
    (void)unused;
    return watch_up_count(flow) == 0;
}

static bool has_rows(struct flow *flow, void *count)
{
    return node_table_rows(flow->node, "ks.t") == *(int64_t *)count;
}

START_TEST(a_node_that_goes_leaves_nothing_in_flight_and_counts_on_when_it_is_back)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.reconnect_min_us = 10000;
    flow.options.reconnect_max_us = 50000;
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    node_silence(flow.node, 0, true);
    cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)", NULL);
    watch_for(&flow, is_in_flight, NULL);
    watch_for(&flow, has_rows, &(int64_t){2}); /* that one, and sent */
    node_down(flow.node, 0, false);
    ck_assert_int_ne(ask_end(future, NULL), CQLRING_OK);
    watch_for(&flow, is_down, NULL);
    cqlring_node_stats stats;
    ck_assert_uint_eq(stats_read(&flow, &stats, 1), 1);
    ck_assert_uint_eq(stats.in_flight, 0);
    ck_assert_uint_eq(stats.connections, 0);
    ck_assert_uint_eq(stats.errors[CQLRING_LOST], 1);
    node_silence(flow.node, 0, false);
    node_up(flow.node, 0, false);
    ask_until_served(&flow);
    cqlring_node_stats again;
    ck_assert_uint_eq(stats_read(&flow, &again, 1), 1);
    ck_assert_uint_eq(again.connections, 1);
    ck_assert_uint_gt(again.requests, stats.requests);
    flow_close(&flow);
}
END_TEST

static bool is_queued(struct flow *flow, void *unused)
{
    (void)unused;
    cqlring_node_stats stats;
    return stats_read(flow, &stats, 1) == 1 && stats.queued_bytes > 100000;
}

static bool is_through(struct flow *flow, void *unused)
{
    (void)unused;
    cqlring_node_stats stats;
    return stats_read(flow, &stats, 1) == 1 && stats.queued_bytes == 0 && stats.in_flight == 0;
}

START_TEST(what_a_node_does_not_take_is_told_as_queued)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.suspect_after_us = -1;
    flow.options.heartbeat_us = -1;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 200, 200000); /* 40 MB: more than sockets buffer */
    flow_sink_init(&sink, 200);
    node_freeze(flow.node, 0, -1);
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = -1};
    cqlring_job_options options = {.struct_size = sizeof options, .bytes_max = 64 << 20, .execution = &how};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    watch_for(&flow, is_queued, NULL);
    node_freeze(flow.node, 0, 0);
    flow_ok(ask_end(job, NULL));
    watch_for(&flow, is_through, NULL);
    ck_assert_uint_eq(sink.ok, 200);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(the_text_is_openmetrics_and_says_what_the_structs_say)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 3;
    static const char *const dcs[] = {"here \"and\\there\"", "here \"and\\there\"", "far"};
    flow.node_options.dcs = dcs;
    flow.options.local_datacenter = dcs[0];
    flow_start(&flow);
    flow_open(&flow);
    uint32_t here = 2;
    for (uint32_t i = 0; watch_up_count(&flow) < here; i++) {
        ck_assert_uint_lt(i, 2000);
        watch_pass(&flow, 10);
    }
    job_run(&flow, ROWS, NULL, &(cqlring_summary){0});
    watch_for(&flow, is_idle, NULL);
    cqlring_stats all = flow_stats(&flow);
    cqlring_node_stats sum = stats_sum(&flow);
    struct metrics_text text;
    metrics_read(flow.runtime, &text);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_build_info", cqlring_version()), 1);
    ck_assert_double_ge(metrics_sum(&text, "cqlring_requests_settled_total", ""), (double)all.requests_settled);
    ck_assert_double_ge(metrics_sum(&text, "cqlring_node_requests_total", ""), (double)sum.requests);
    ck_assert_uint_eq(metrics_count(&text, "cqlring_node_requests_total", "dc=\"here \\\"and\\\\there\\\"\""), 2);
    ck_assert_uint_eq(metrics_count(&text, "cqlring_node_up", ""), 3);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_up", ""), 2);
    ck_assert_double_ge(metrics_sum(&text, "cqlring_node_latency_seconds_count", ""), ROWS);
    ck_assert_double_gt(metrics_sum(&text, "cqlring_node_latency_seconds_sum", ""), 0);
    ck_assert_double_eq(metrics_sum(&text, "cqlring_node_in_flight", ""), 0);
    if (flow.threads == CQLRING_THREADS_CALLER)
        ck_assert_uint_eq(metrics_count(&text, "cqlring_cpu_seconds_total", ""), 0);
    else
        ck_assert_double_gt(metrics_sum(&text, "cqlring_cpu_seconds_total", "thread=\"submitter\""), 0);
    metrics_free(&text);
    flow_close(&flow);
}
END_TEST

START_TEST(a_buffer_that_is_too_small_gets_the_beginning_and_the_length)
{
    struct flow flow;
    flow_up(&flow);
    size_t length = cqlring_metrics_text(flow.runtime, NULL, 0);
    ck_assert_uint_gt(length, 1000);
    char small[101];
    memset(small, 'x', sizeof small);
    ck_assert_uint_gt(cqlring_metrics_text(flow.runtime, small, 100), 1000);
    ck_assert_uint_eq(strlen(small), 99);
    ck_assert_int_eq(small[100], 'x');
    flow_close(&flow);
}
END_TEST

/* ---- MT-02: at every stage, from another thread too ---- */

static void all_read(struct flow *flow)
{
    cqlring_node_stats stats[4];
    cqlring_connection_info connections[4];
    cqlring_stats runtime = {.struct_size = sizeof runtime};
    struct metrics_text text;
    cqlring_cluster_stats(flow->cluster, stats, 4);
    cqlring_cluster_connections(flow->cluster, connections, 4);
    cqlring_runtime_stats(flow->runtime, &runtime);
    metrics_read(flow->runtime, &text);
    metrics_free(&text);
}

struct reader {
    struct flow *flow;
    atomic_bool stop;
    uint64_t rounds;
};

static void *reader_run(void *context)
{
    struct reader *reader = context;
    while (!atomic_load(&reader->stop)) {
        cqlring_node_stats stats[4];
        cqlring_connection_info connections[4];
        static char text[1 << 20];
        cqlring_cluster_stats(reader->flow->cluster, stats, 4);
        cqlring_cluster_connections(reader->flow->cluster, connections, 4);
        cqlring_metrics_text(reader->flow->runtime, text, sizeof text);
        reader->rounds++;
    }
    return NULL;
}

START_TEST(mt_02_numbers_can_be_read_at_every_stage)
{
    struct flow flow;
    flow_init(&flow);
    struct metrics_text text;
    metrics_read(NULL, &text); /* no runtime at all */
    metrics_free(&text);
    ck_assert_uint_eq(cqlring_cluster_stats(NULL, NULL, 0), 0);
    ck_assert_uint_eq(cqlring_cluster_connections(NULL, NULL, 0), 0);
    flow_start(&flow);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    metrics_read(flow.runtime, &text); /* no cluster */
    ck_assert_uint_eq(metrics_count(&text, "cqlring_node_up", ""), 0);
    metrics_free(&text);
    flow_open(&flow);
    all_read(&flow);

    struct reader reader = {.flow = &flow};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, reader_run, &reader), 0);
    job_run(&flow, ROWS, NULL, &(cqlring_summary){0});
    cqlring_future *closed = NULL;
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
    flow_ok(cqlring_future_wait(closed, -1, NULL));
    cqlring_future_release(closed);
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    all_read(&flow); /* closed */
    watch_for(&flow, is_without_connections, NULL); /* their sockets end after the requests */
    flow_close(&flow);
}
END_TEST

struct onlooker {
    pthread_t thread;
    struct flow *flow;
    atomic_bool *stop;
    uint64_t looks, strange;
};

/* Whenever one looks, what is there is a number, and none that cannot be. */
static void *read_numbers(void *context)
{
    struct onlooker *onlooker = context;
    while (!atomic_load(onlooker->stop) || onlooker->looks == 0) {
        cqlring_node_stats stats[4];
        uint32_t count = cqlring_cluster_stats(onlooker->flow->cluster, stats, 4);
        for (uint32_t i = 0; i < count && i < 4; i++)
            onlooker->strange += stats[i].latency_p50_us > 120000000 || stats[i].latency_p99_us > 120000000; /* each by itself: others move meanwhile */
        char text[16384];
        (void)cqlring_metrics_text(onlooker->flow->runtime, text, sizeof text);
        onlooker->strange += strstr(text, "nan") != NULL;
        onlooker->looks++;
    }
    return NULL;
}

START_TEST(mt_03_numbers_are_read_by_eight_threads_while_they_change)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &flow.node_options.nodes);
    atomic_bool stop = false;
    struct onlooker onlookers[8];
    for (int i = 0; i < 8; i++) {
        onlookers[i] = (struct onlooker){.flow = &flow, .stop = &stop};
        ck_assert_int_eq(pthread_create(&onlookers[i].thread, NULL, read_numbers, &onlookers[i]), 0);
    }
    cqlring_summary summary;
    job_run(&flow, 5000, NULL, &summary);
    ck_assert_uint_eq(summary.failed, 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(pthread_join(onlookers[i].thread, NULL), 0);
        ck_assert_uint_gt(onlookers[i].looks, 0);
        ck_assert_uint_eq(onlookers[i].strange, 0);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(mt_03_answers_within_one_tick_divide_by_nothing)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_node_stats stats;
    ck_assert_uint_eq(stats_read(&flow, &stats, 1), 1); /* connected, and nothing was asked yet */
    ck_assert_uint_le(stats.latency_p99_us, stats.latency_max_us);
    for (int i = 0; i < 100; i++)
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    watch_for(&flow, is_counted, &(uint64_t){100});
    ck_assert_uint_eq(stats_read(&flow, &stats, 1), 1);
    ck_assert_uint_le(stats.latency_p50_us, stats.latency_max_us);
    struct metrics_text text;
    metrics_read(flow.runtime, &text);
    ck_assert_ptr_null(strstr(text.text, "nan"));
    metrics_free(&text);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("metrics");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_job_is_counted_at_its_nodes);
    tcase_add_test(tcase, latencies_are_those_of_the_server);
    tcase_add_test(tcase, the_nodes_figures_add_up_to_the_whole);
    tcase_add_test(tcase, errors_retries_and_orphans_are_told_apart);
    tcase_add_test(tcase, a_node_that_goes_leaves_nothing_in_flight_and_counts_on_when_it_is_back);
    tcase_add_test(tcase, what_a_node_does_not_take_is_told_as_queued);
    tcase_add_test(tcase, the_text_is_openmetrics_and_says_what_the_structs_say);
    tcase_add_test(tcase, a_buffer_that_is_too_small_gets_the_beginning_and_the_length);
    tcase_add_test(tcase, mt_02_numbers_can_be_read_at_every_stage);
    tcase_add_test(tcase, mt_03_numbers_are_read_by_eight_threads_while_they_change);
    tcase_add_test(tcase, mt_03_answers_within_one_tick_divide_by_nothing);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
