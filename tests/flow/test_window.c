/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs without a window of their own on real sockets: that each connection has one, moves it, and shows it. How well it chooses is
   for virtual time (tests/sim/test_window.c); here what has to happen is awaited, however fast this machine is. */

#include <stdio.h>
#include <string.h>

#include "driver/adapt.h"
#include "metrics_text.h"
#include "watch.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

/* The sum over the nodes' connections, and the largest of one. */
static uint32_t windows(struct flow *flow, uint32_t *largest)
{
    cqlring_node_stats stats[32];
    uint32_t count = cqlring_cluster_stats(flow->cluster, stats, 32), sum = 0, most = 0;
    ck_assert_uint_le(count, 32);
    for (uint32_t i = 0; i < count; i++) {
        sum += stats[i].window;
        most = stats[i].window > most ? stats[i].window : most;
    }
    if (largest != NULL)
        *largest = most;
    return sum;
}

static cqlring_summary run(struct flow *flow, const char *text, uint64_t count, uint32_t window, bool keys_only)
{
    cqlring_prepared *statement = flow_prepare(flow, text);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, count, 16);
    rows.keys_only = keys_only;
    flow_sink_init(&sink, count);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent, .window = window};
    cqlring_summary summary;
    cqlring_error error;
    cqlring_status status = flow_run(flow, statement, &rows, &sink, &options, &summary, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_msg(summary.failed == 0, "%llu failed: %s", (unsigned long long)summary.failed, sink.first_error);
    ck_assert_uint_eq(flow_sink_missing(&sink, count), 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(statement);
    return summary;
}

/* A job without a window runs until the windows' sum is above this: in the end it is, however noisy the machine. */
static uint32_t run_until_above(struct flow *flow, const char *text, uint32_t sum, bool keys_only)
{
    cqlring_prepared *statement = flow_prepare(flow, text);
    struct flow_rows rows;
    flow_rows_init(&rows, FLOW_ROWS_MAX, 16);
    rows.keys_only = keys_only;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    cqlring_future *job = flow_job(flow, statement, &rows, NULL, &options);
    uint32_t now;
    do
        ck_assert_int_eq(cqlring_future_wait(job, 10000, NULL), CQLRING_TIMEOUT);
    while ((now = windows(flow, NULL)) <= sum);
    cqlring_future_cancel(job);
    ck_assert_int_eq(cqlring_future_wait(job, -1, NULL), CQLRING_CANCELLED);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    cqlring_prepared_release(statement);
    return now;
}

/* Far away and quick: more is better, on any machine. */
static void far_away(struct flow *flow)
{
    flow_init(flow);
    flow->node_options.delay_us = 20000;
    flow_start(flow);
    flow_open(flow);
}

START_TEST(without_a_window_it_grows_and_an_explicit_one_stays_fixed)
{
    struct flow flow;
    far_away(&flow);
    ck_assert_uint_eq(windows(&flow, NULL), ADAPT_START);
    run(&flow, FLOW_INSERT, 3000, 100, false);
    ck_assert_uint_eq(windows(&flow, NULL), ADAPT_START);
    ck_assert_uint_le(run_until_above(&flow, FLOW_INSERT, ADAPT_START, false), ADAPT_CAP);

    struct metrics_text metrics; /* and that is what the metrics say */
    metrics_read(flow.runtime, &metrics);
    ck_assert_double_eq(metrics_sum(&metrics, "cqlring_node_window", ""), windows(&flow, NULL));
    metrics_free(&metrics);
    flow_close(&flow);
}
END_TEST

START_TEST(reads_grow_it_too)
{
    struct flow flow;
    far_away(&flow);
    run(&flow, FLOW_INSERT, 5000, 1000, false);
    ck_assert_uint_eq(windows(&flow, NULL), ADAPT_START);
    run_until_above(&flow, FLOW_SELECT, ADAPT_START, true);
    flow_close(&flow);
}
END_TEST

START_TEST(inflight_per_connection_is_its_cap)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 5000;
    flow.options.inflight_per_connection = 40;
    flow_start(&flow);
    flow_open(&flow);
    run(&flow, FLOW_INSERT, 20000, 0, false);
    ck_assert_uint_le(windows(&flow, NULL), 40);
    flow_close(&flow);
}
END_TEST

START_TEST(it_shrinks_when_the_node_says_overloaded_and_every_row_succeeds)
{
    struct flow flow;
    far_away(&flow);
    flow_fault(&flow, "error:code=0x1001,every=40,opcode=EXECUTE");
    cqlring_summary summary = run(&flow, FLOW_INSERT, 4000, 0, false);
    ck_assert_uint_gt(summary.retries, 0);
    ck_assert_uint_lt(windows(&flow, NULL), ADAPT_START);
    ck_assert_uint_ge(windows(&flow, NULL), ADAPT_FLOOR);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 4000);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_takes_a_few_at_a_time_is_given_a_few)
{
    struct flow flow;
    flow_up(&flow);
    node_set_service(flow.node, 0, &(struct node_service){.servers = 8, .service_us = 5000, .waiting_max = 14});
    cqlring_summary summary = run(&flow, FLOW_INSERT, 3000, 0, false);
    ck_assert_uint_lt(windows(&flow, NULL), ADAPT_START); /* of 22 that it takes */
    ck_assert_uint_lt(summary.retries, 300);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 3000);
    flow_close(&flow);
}
END_TEST

START_TEST(an_attempt_that_times_out_shrinks_it)
{
    struct flow flow;
    flow_up(&flow);
    node_set_delay(flow.node, 0, 20000, 0);
    flow_fault(&flow, "drop:after=100,times=1,opcode=EXECUTE");
    cqlring_execution impatient = {.struct_size = sizeof impatient, .idempotent = CQLRING_YES, .attempt_timeout_us = 300000};
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    flow_rows_init(&rows, 120, 16); /* too few to learn anything else from */
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &impatient};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, NULL, &options, &summary, NULL));
    ck_assert_uint_eq(summary.failed, 0);
    ck_assert_uint_ge(summary.retries, 1);
    ck_assert_uint_lt(windows(&flow, NULL), ADAPT_START);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static bool has_connections(struct flow *flow, void *count)
{
    return cqlring_cluster_connections(flow->cluster, NULL, 0) >= *(uint32_t *)count;
}

START_TEST(each_shard_has_its_own)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.shards = 4;
    flow.node_options.delay_us = 20000;
    flow_start(&flow);
    flow_open(&flow);
    uint32_t connections = 4 + 1; /* and the control connection */
    watch_for(&flow, has_connections, &connections);
    ck_assert_uint_eq(windows(&flow, NULL), 4 * ADAPT_START);
    run_until_above(&flow, FLOW_INSERT, 4 * ADAPT_START, false);
    uint32_t largest, sum = windows(&flow, &largest);
    ck_assert_uint_lt(largest, sum);
    flow_close(&flow);
}
END_TEST

/* So many rows, each with one cell too few. */
struct bad_source {
    uint64_t given, count;
};

static int32_t bad_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    static const cqlring_bytes cell = {(const uint8_t *)"\0\0\0\0\0\0\0\1", 8};
    struct bad_source *source = context;
    (void)now_us, (void)wake_at_us, (void)error;
    uint32_t count = 0;
    for (; count < capacity && source->given < source->count; count++, source->given++)
        rows[count] = (cqlring_row){.cells = &cell, .cell_count = 1};
    return count > 0 ? (int32_t)count : CQLRING_SOURCE_END;
}

START_TEST(rows_that_are_refused_take_no_room)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct bad_source bad = {.count = 5000};
    cqlring_source source = {.next = bad_next, .context = &bad};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    cqlring_future *job;
    cqlring_error error;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &options, &job, &error));
    flow_ok(cqlring_future_wait(job, 60000000, &error));
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(summary.failed, 5000);
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(several_jobs_lanes_and_nodes_lose_nothing)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 3;
    flow.runtime_options.lanes = flow.threads == CQLRING_THREADS_CALLER ? 1 : 2;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    enum { JOBS = 3, COUNT = 8000 };
    struct flow_rows rows[JOBS];
    cqlring_future *jobs[JOBS];
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    for (int i = 0; i < JOBS; i++) {
        flow_rows_init(&rows[i], (uint64_t)(i + 1) * COUNT, 16);
        rows[i].next = (uint64_t)i * COUNT;
        options.window = i == 1 ? 300 : 0; /* one of them with a window of its own */
        jobs[i] = flow_job(&flow, insert, &rows[i], NULL, &options);
    }
    node_cut(flow.node, 1, 0); /* and connections that go */
    for (int i = 0; i < JOBS; i++) {
        flow_ok(cqlring_future_wait(jobs[i], -1, NULL));
        cqlring_summary summary;
        cqlring_job_summary(jobs[i], &summary);
        ck_assert_uint_eq(summary.rows, COUNT);
        ck_assert_uint_eq(summary.failed, 0);
        cqlring_future_release(jobs[i]);
        flow_rows_fini(&rows[i]);
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), JOBS * COUNT);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window");
    TCase *tcase = tcase_create("window");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, without_a_window_it_grows_and_an_explicit_one_stays_fixed);
    tcase_add_test(tcase, reads_grow_it_too);
    tcase_add_test(tcase, inflight_per_connection_is_its_cap);
    tcase_add_test(tcase, it_shrinks_when_the_node_says_overloaded_and_every_row_succeeds);
    tcase_add_test(tcase, a_node_that_takes_a_few_at_a_time_is_given_a_few);
    tcase_add_test(tcase, an_attempt_that_times_out_shrinks_it);
    tcase_add_test(tcase, each_shard_has_its_own);
    tcase_add_test(tcase, rows_that_are_refused_take_no_room);
    tcase_add_test(tcase, several_jobs_lanes_and_nodes_lose_nothing);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
