/* SPDX-License-Identifier: Apache-2.0 */

/* Answers that come late or never: time-outs, the stream ids that they keep, suspicion and heartbeats. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "serialize/mem.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

/* Resident memory says nothing where freed memory is kept for its redzones or shadows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CAN_WEIGH = 0 };
#else
enum { CAN_WEIGH = 1 };
#endif

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.suspect_after_us = flow->options.heartbeat_us = -1; /* unless the test is about them */
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 50000;
    flow_start(flow);
}

static cqlring_execution limit(int64_t timeout_us)
{
    return (cqlring_execution){.struct_size = sizeof(cqlring_execution), .timeout_us = timeout_us};
}

static uint64_t options_seen(struct flow *flow)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.opcodes[OPCODE_OPTIONS];
}

static bool options_came(struct flow *flow, void *count)
{
    return options_seen(flow) >= *(uint64_t *)count;
}

/* ---- streams of requests that timed out ---- */

static void time_out(struct flow *flow, uint32_t count)
{
    cqlring_future *futures[8];
    cqlring_execution soon = limit(50000);
    for (uint32_t i = 0; i < count; i++)
        futures[i] = ask_start(flow, INSERT_1, &soon);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_error error = {0};
        ck_assert_int_eq(ask_end(futures[i], &error), CQLRING_TIMEOUT);
        ck_assert(error.may_have_been_applied);
        ck_assert_ptr_nonnull(strstr(error.message, "no answer in 50 ms"));
    }
}

/* Eight at a time, and eight streams may wait for late answers; with the ninth the connection is replaced, so there is never a
   moment without any. What comes meanwhile waits. */
START_TEST(to_03_when_too_many_streams_wait_for_late_answers_one_request_more_waits_too)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.inflight_per_connection = 8;
    flow.options.orphans_max = 8;
    flow_open(&flow);
    node_freeze(flow.node, 0, -1);
    time_out(&flow, 8);
    cqlring_future *patient = ask_start(&flow, INSERT_1, NULL);
    watch_pass(&flow, 20);
    node_freeze(flow.node, 0, 0);
    flow_ok(ask_end(patient, NULL));
    watch_for(&flow, watch_no_orphans, NULL);
    ck_assert_uint_eq(flow_stats(&flow).late_replies, 8);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);

    node_freeze(flow.node, 0, -1);
    time_out(&flow, 8);
    time_out(&flow, 1);
    watch_for(&flow, watch_logged, "(at most 8 may be): the connection is replaced");
    patient = ask_start(&flow, INSERT_1, NULL);
    watch_pass(&flow, 20);
    ck_assert(!cqlring_future_ready(patient));
    node_freeze(flow.node, 0, 0);
    flow_ok(ask_end(patient, NULL));
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 1);
    for (int i = 0; i < 40; i++)
        flow_cql(&flow, INSERT_1);
    flow_close(&flow);
}
END_TEST

START_TEST(late_answers_give_their_stream_back_and_nobody_gets_them)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.inflight_per_connection = 4;
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x0101)");
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x0202)");
    uint32_t late = node_fault_parse(flow.node, "late:table=ks.t,delay_us=60000,every=2", NULL, 0);
    ck_assert_uint_ne(late, 0);
    cqlring_execution soon = limit(30000);
    uint64_t timeouts = 0;
    for (int i = 0; i < 12; i++) { /* every second one is late, with the value of the other key */
        cqlring_bytes key = flow_bigint(1 + i % 2);
        cqlring_result *result = NULL;
        cqlring_status status = ask_text(&flow, FLOW_SELECT, &key, 1, i % 2 == 0 ? NULL : &soon, &result, NULL);
        if (status == CQLRING_OK)
            ck_assert(ask_is(ask_cell(result, 0, 0), i % 2 == 0 ? "\1\1" : "\2\2"));
        else
            ck_assert_int_eq(status, CQLRING_TIMEOUT);
        timeouts += status == CQLRING_TIMEOUT;
        cqlring_result_release(result);
    }
    ck_assert_uint_ge(timeouts, 4);
    watch_for(&flow, watch_no_orphans, NULL);
    ck_assert_uint_eq(flow_stats(&flow).late_replies, timeouts);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(more_orphans_than_orphans_max_replace_the_connection)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.orphans_max = 3;
    flow_open(&flow);
    flow_fault(&flow, "drop:table=ks.t,times=5");
    cqlring_execution soon = limit(40000);
    cqlring_future *futures[5];
    for (int i = 0; i < 5; i++)
        futures[i] = ask_start(&flow, INSERT_1, &soon);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(ask_end(futures[i], NULL), CQLRING_TIMEOUT);
    watch_for(&flow, watch_logged, "(at most 3 may be): the connection is replaced");
    for (int i = 0; i < 20; i++)
        flow_cql(&flow, INSERT_1);
    watch_for(&flow, watch_logged, "lost the connection");
    ck_assert_uint_eq(watch_log_count("lost the connection"), 1);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 1);
    flow_close(&flow);
}
END_TEST

START_TEST(to_07_a_few_time_outs_do_not_end_a_good_connection)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.orphans_max = 11;
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "drop:opcode=EXECUTE,every=900,times=11");
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 10000, 20);
    flow_sink_init(&sink, 10000);
    cqlring_execution how = limit(1500000 * WATCH_SLOW);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.last, 10000);
    ck_assert_msg(sink.failed == 11, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(sink.by_status[CQLRING_TIMEOUT], 11);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    ck_assert_uint_eq(flow_stats(&flow).connections_opened, 2);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- time-outs of one attempt ---- */

START_TEST(an_attempt_time_out_tries_idempotent_requests_elsewhere)
{
    struct flow flow;
    start(&flow, 2);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    node_silence(flow.node, 1, true);
    cqlring_execution how = limit(20000000);
    how.idempotent = CQLRING_YES;
    how.attempt_timeout_us = 250000 * WATCH_SLOW;
    uint32_t twice = 0;
    for (int i = 0; i < 4; i++) {
        cqlring_future *future = ask_start(&flow, INSERT_1, &how);
        cqlring_error error = {0};
        cqlring_status status = ask_wait(future, &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
        const cqlring_completion *completion = cqlring_future_completion(future);
        cqlring_node_info info;
        cqlring_node_describe(completion->node, &info);
        ck_assert_str_eq(info.address, ask_address(&flow, 0));
        twice += completion->attempts == 2;
        cqlring_future_release(future);
    }
    ck_assert_uint_gt(twice, 0);
    ck_assert_uint_eq(flow_stats(&flow).retries, twice);
    flow_close(&flow);
}
END_TEST

START_TEST(an_attempt_time_out_is_not_for_requests_that_must_not_be_repeated)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_fault(&flow, "late:table=ks.t,delay_us=200000");
    cqlring_execution how = limit(5000000);
    how.attempt_timeout_us = 50000;
    cqlring_error error = {0};
    cqlring_status status = ask_text(&flow, INSERT_1, NULL, 0, &how, NULL, &error);
    ck_assert_msg(status == CQLRING_TIMEOUT && error.may_have_been_applied, "%s: %s", cqlring_status_name(status), error.message);
    ck_assert_ptr_nonnull(strstr(error.message, "no answer in 50 ms"));
    ck_assert_uint_eq(flow_stats(&flow).retries, 0);
    flow_close(&flow);
}
END_TEST

/* ---- many requests ---- */


static int32_t alternating(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake, cqlring_error *error, void *context)
{
    struct flow_rows *rows = context;
    cqlring_source source = flow_source(rows);
    int32_t count = source.next(out, capacity, now_us, wake, error, source.context);
    for (int32_t i = 0; i < count; i++)
        out[i].statement = (uint32_t)(out[i].tag % 2);
    return count;
}

START_TEST(ec_09_a_hundred_thousand_inserts_into_two_tables_over_one_connection)
{
    enum { COUNT = 100000 };
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TABLE ks.u (k bigint PRIMARY KEY, v blob)");
    cqlring_prepared *statements[2] = {flow_prepare(&flow, FLOW_INSERT), flow_prepare(&flow, "INSERT INTO ks.u (k, v) VALUES (?, ?)")};
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, COUNT, 16);
    flow_sink_init(&sink, COUNT);
    cqlring_source source = {.next = alternating, .context = &rows};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 500};
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, statements, 2, &source, &out, 1, &options, &job, NULL));
    cqlring_error error = {0};
    cqlring_status status = cqlring_future_wait(job, 60000000, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_uint_eq(sink.ok, COUNT);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), COUNT / 2);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.u"), COUNT / 2);
    ck_assert_uint_eq(flow_stats(&flow).connections_opened, 2);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(statements[0]);
    cqlring_prepared_release(statements[1]);
    flow_close(&flow);
}
END_TEST

static long resident_kb(void)
{
    long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A timer that lived until it fires would be with us for ten minutes. */
START_TEST(ml_04_requests_with_a_long_time_out_leave_no_timer_behind)
{
    struct flow flow;
    start(&flow, 1);
    node_set_mode(flow.node, NODE_VOID);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_execution how = limit(600000000);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = 512};
    int64_t live = 0;
    long resident = 0;
    (void)resident; /* the sanitizers keep memory of their own */
    for (int round = 0; round < 4; round++) {
        if (round == 1) {
            live = cqr_mem_live_count();
            resident = resident_kb();
        }
        struct flow_rows rows;
        flow_rows_init(&rows, 40000, 16);
        flow_ok(flow_run(&flow, insert, &rows, NULL, &options, NULL, NULL));
        flow_rows_fini(&rows);
    }
    ck_assert_int_le(cqr_mem_live_count(), live + 32);
    if (CAN_WEIGH)
        ck_assert_int_le(resident_kb(), resident + 2000);
    for (int i = 0; i < 2000; i++)
        flow_ok(ask_text(&flow, INSERT_1, NULL, 0, &how, NULL, NULL));
    ck_assert_int_le(cqr_mem_live_count(), live + 32);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- suspicion ---- */

static bool is_suspect(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && info.is_suspect;
}

static bool is_trusted(struct flow *flow, void *node)
{
    return !is_suspect(flow, node);
}

static const cqlring_node *node_handle_of(struct flow *flow, uint32_t index)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (strcmp(info.address, ask_address(flow, index)) == 0)
            return nodes[i];
    }
    ck_abort_msg("node %u is not known", index);
    return NULL;
}

START_TEST(a_silent_node_is_suspect_gets_no_new_rows_and_is_trusted_when_it_answers)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.suspect_after_us = 100000 * WATCH_SLOW;
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    node_freeze(flow.node, 1, -1);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_handle_of(&flow, 1)};
    cqlring_future *waits = ask_start(&flow, "SELECT key FROM system.local", &there);
    uint32_t node = 1;
    watch_for(&flow, is_suspect, &node);
    ck_assert_uint_ge(watch_log_count("is silent with 1 requests waiting"), 1);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 500, 16);
    flow_sink_init(&sink, 500);
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    ck_assert_uint_eq(sink.ok, 500);
    ck_assert(!cqlring_future_ready(waits));
    node_freeze(flow.node, 1, 0);
    flow_ok(ask_end(waits, NULL));
    watch_for(&flow, is_trusted, &node);
    struct node_counters counters;
    node_counters(flow.node, 1, &counters);
    ck_assert_uint_eq(counters.opcodes[OPCODE_EXECUTE], 0);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    flow_rows_init(&rows, 500, 16);
    flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
    node_counters(flow.node, 1, &counters);
    ck_assert_uint_gt(counters.opcodes[OPCODE_EXECUTE], 0);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_does_not_even_answer_the_probe_is_given_up)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.suspect_after_us = 60000 * WATCH_SLOW;
    flow.options.connect_timeout_us = 250000 * WATCH_SLOW;
    flow_open(&flow);
    node_freeze(flow.node, 0, -1);
    cqlring_error error = {0};
    ck_assert_int_eq(flow_try(&flow, INSERT_1, NULL, &error), CQLRING_LOST);
    ck_assert_ptr_nonnull(strstr(error.message, "no answer to a heartbeat in"));
    ck_assert(error.may_have_been_applied);
    node_freeze(flow.node, 0, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    flow_cql(&flow, INSERT_1);
    flow_close(&flow);
}
END_TEST

/* ---- heartbeats ---- */

START_TEST(to_06_heartbeats_keep_an_idle_connection_whatever_the_request_time_out)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.heartbeat_us = 60000;
    cqlring_execution how = limit(20000);
    flow.session_options.execution = &how;
    flow_open(&flow);
    uint64_t wanted = 2 + 2 * 6; /* one each in startup, six heartbeats on control's connection and on the pool's */
    watch_for(&flow, options_came, &wanted);
    struct node_conn_info conns[4];
    ck_assert_uint_eq(node_conns(flow.node, NODE_ALL, conns, 4), 2);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_ge(conns[i].requests, 2 + 4);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.connections_opened, 2);
    ck_assert_uint_eq(stats.connections_lost, 0);
    ck_assert_uint_eq(stats.timeouts, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_heartbeat_finds_a_dead_connection)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.heartbeat_us = 50000;
    flow.options.connect_timeout_us = 250000 * WATCH_SLOW;
    flow_open(&flow);
    node_freeze(flow.node, 0, -1);
    watch_for(&flow, watch_logged, "no answer to a heartbeat in");
    node_freeze(flow.node, 0, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    ask_until_served(&flow);
    flow_close(&flow);
}
END_TEST

/* The one stream there is is taken when the heartbeat is due. */
START_TEST(to_10_a_heartbeat_that_finds_no_room_is_skipped)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.inflight_per_connection = 1;
    flow.options.heartbeat_us = 20000;
    flow.options.connect_timeout_us = 10000000;
    flow_open(&flow);
    flow_fault(&flow, "late:table=ks.t,delay_us=200000,times=1");
    flow_cql(&flow, INSERT_1);
    for (int i = 0; i < 10; i++)
        flow_cql(&flow, INSERT_1);
    uint64_t wanted = options_seen(&flow) + 4;
    watch_for(&flow, options_came, &wanted);
    flow_cql(&flow, INSERT_1);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    ck_assert_uint_eq(flow_stats(&flow).connections_opened, 2);
    flow_close(&flow);
}
END_TEST

static bool is_idle(struct flow *flow, void *context)
{
    (void)context;
    cqlring_node_info info;
    return watch_node(flow, 0, &info) && info.in_flight == 0;
}

START_TEST(to_10_a_silent_connection_without_room_for_a_probe_is_given_up_once)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.inflight_per_connection = 1;
    flow.options.heartbeat_us = 30000;
    flow.options.suspect_after_us = 60000 * WATCH_SLOW;
    flow.options.connect_timeout_us = 250000 * WATCH_SLOW;
    flow_open(&flow);
    node_silence(flow.node, 0, true);
    cqlring_error error = {0};
    ck_assert_int_eq(flow_try(&flow, INSERT_1, NULL, &error), CQLRING_LOST);
    ck_assert_ptr_nonnull(strstr(error.message, "no room to ask it anything"));
    node_silence(flow.node, 0, false);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    watch_for(&flow, is_idle, NULL);
    uint32_t node = 0;
    ck_assert(is_trusted(&flow, &node));
    ask_until_served(&flow);
    flow_close(&flow);
}
END_TEST

/* ---- what is there has come in time ---- */

static bool never(const struct node_counters *all, void *context)
{
    (void)all;
    (void)context;
    return false;
}

struct slow {
    struct flow *flow;
    bool done;
};

/* The application is slow, once, for longer than its own time-out. The answers lie in the socket or in the ring. */
static void slow_once(const cqlring_completion *completion, void *context)
{
    struct slow *slow = context;
    (void)completion;
    if (!slow->done)
        node_wait(slow->flow->node, never, 400, NULL);
    slow->done = true;
}

START_TEST(an_answer_that_is_there_has_come_in_time_however_slow_the_application_is)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 64, 16);
    flow_sink_init(&sink, 64);
    struct slow slow = {.flow = &flow};
    sink.each = slow_once;
    sink.context = &slow;
    cqlring_execution how = limit(200000);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = 64};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert(slow.done);
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static void slow_call(cqlring_future *future, void *context)
{
    (void)future;
    node_wait(((struct flow *)context)->node, never, 400, NULL);
}

START_TEST(an_answer_that_is_there_has_come_in_time_behind_a_slow_callback)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    /* ten whose answers come after 100 ms, may take 200, and are found after 400 */
    flow_fault(&flow, "late:table=ks.t,delay_us=100000,times=10");
    cqlring_execution how = limit(200000);
    cqlring_future *others[10];
    for (int i = 0; i < 10; i++)
        others[i] = ask_start(&flow, INSERT_1, &how);
    cqlring_future *first = ask_start(&flow, INSERT_1, NULL);
    flow_ok(cqlring_future_on_ready(first, slow_call, &flow));
    flow_ok(ask_end(first, NULL));
    for (int i = 0; i < 10; i++) {
        cqlring_error error = {0};
        cqlring_status status = ask_end(others[i], &error);
        ck_assert_msg(status == CQLRING_OK, "%d: %s", i, error.message);
    }
    flow_close(&flow);
}
END_TEST

/* The submitter stood still; answers may lie unread, so nothing expires before the reactor has looked. It looks although nothing
   comes that would wake it. */
START_TEST(a_time_out_comes_though_nothing_else_does_after_a_standstill)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_fault(&flow, "drop:table=ks.t,times=1");
    flow_fault(&flow, "late:table=ks.t,delay_us=50000");
    cqlring_execution how = limit(200000);
    cqlring_future *dropped = ask_start(&flow, INSERT_1, &how), *first = ask_start(&flow, INSERT_1, NULL);
    flow_ok(cqlring_future_on_ready(first, slow_call, &flow));
    flow_ok(ask_end(first, NULL));
    ck_assert_int_eq(ask_end(dropped, NULL), CQLRING_TIMEOUT);
    flow_close(&flow);
}
END_TEST

START_TEST(to_12_a_time_out_that_cannot_be_is_refused_and_one_that_is_huge_is_none)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    int64_t *const times[] = {&flow.options.connect_timeout_us, &flow.options.heartbeat_us, &flow.options.suspect_after_us, &flow.options.reconnect_min_us,
                              &flow.options.reconnect_max_us};
    static const char *const names[] = {"connect_timeout_us", "heartbeat_us", "suspect_after_us", "reconnect_min_us", "reconnect_max_us"};
    static const int64_t odd[] = {-2, INT64_MIN, INT64_MAX, INT64_C(86400000001)};
    for (int i = 0; i < 5; i++) {
        int64_t was = *times[i];
        for (int j = 0; j < 4; j++) {
            *times[i] = odd[j];
            cqlring_error error = {0};
            cqlring_cluster *cluster = NULL;
            ck_assert_int_eq(cqlring_cluster_open_sync(flow.runtime, &flow.options, &cluster, &error), CQLRING_INVALID);
            ck_assert_ptr_nonnull(strstr(error.message, names[i]));
        }
        *times[i] = was;
    }
    for (int i = 0; i < 2; i++) { /* of a request */
        cqlring_execution how = {.struct_size = sizeof how, .timeout_us = odd[i]};
        ck_assert_int_eq(flow_try(&flow, INSERT_1, NULL, NULL), CQLRING_OK);
        cqlring_request request = {.session = flow.session, .cql = cqlring_text(INSERT_1), .execution = &how};
        ck_assert_int_eq(cqlring_execute_sync(&request, NULL, NULL), CQLRING_INVALID);
        how = (cqlring_execution){.struct_size = sizeof how, .attempt_timeout_us = odd[i]};
        ck_assert_int_eq(cqlring_execute_sync(&request, NULL, NULL), CQLRING_INVALID);
        ck_assert_int_eq(cqlring_session_close(flow.session, odd[i], NULL, NULL), CQLRING_INVALID);
    }
    cqlring_execution huge = {.struct_size = sizeof huge, .timeout_us = INT64_MAX, .attempt_timeout_us = INT64_MAX - 1, .idempotent = CQLRING_YES};
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(INSERT_1), .execution = &huge};
    cqlring_future *future = NULL;
    flow_ok(cqlring_execute(&request, &future, NULL));
    flow_ok(cqlring_future_wait(future, INT64_MAX, NULL));
    cqlring_future_release(future);
    /* rates of a job: what is no number is refused, and a rate of next to nothing only waits */
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 100, 16);
    flow_sink_init(&sink, 100);
    static const double rates[] = {-1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++)
        for (int bytes = 0; bytes < 2; bytes++) {
            cqlring_job_options options = {.struct_size = sizeof options, .rows_per_s = bytes ? 0 : rates[i], .bytes_per_s = bytes ? rates[i] : 0};
            cqlring_error error = {0};
            cqlring_source source = flow_source(&rows);
            cqlring_future *job = NULL;
            ck_assert_int_eq(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &options, &job, &error), CQLRING_INVALID);
            ck_assert_ptr_nonnull(strstr(error.message, bytes ? "bytes_per_s" : "rows_per_s"));
        }
    cqlring_job_options options = {.struct_size = sizeof options, .rows_per_s = 1e-300, .bytes_per_s = 1e-300};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    ck_assert_int_eq(cqlring_future_wait(job, 20000, NULL), CQLRING_TIMEOUT);
    cqlring_job_rate(job, INFINITY, NAN); /* no limit */
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(sink.last, 100);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeouts");
    TCase *tcase = tcase_create("timeouts");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, to_03_when_too_many_streams_wait_for_late_answers_one_request_more_waits_too);
    tcase_add_test(tcase, late_answers_give_their_stream_back_and_nobody_gets_them);
    tcase_add_test(tcase, more_orphans_than_orphans_max_replace_the_connection);
    tcase_add_test(tcase, to_07_a_few_time_outs_do_not_end_a_good_connection);
    tcase_add_test(tcase, an_attempt_time_out_tries_idempotent_requests_elsewhere);
    tcase_add_test(tcase, an_attempt_time_out_is_not_for_requests_that_must_not_be_repeated);
    tcase_add_test(tcase, ec_09_a_hundred_thousand_inserts_into_two_tables_over_one_connection);
    tcase_add_test(tcase, ml_04_requests_with_a_long_time_out_leave_no_timer_behind);
    tcase_add_test(tcase, a_silent_node_is_suspect_gets_no_new_rows_and_is_trusted_when_it_answers);
    tcase_add_test(tcase, a_node_that_does_not_even_answer_the_probe_is_given_up);
    tcase_add_test(tcase, to_06_heartbeats_keep_an_idle_connection_whatever_the_request_time_out);
    tcase_add_test(tcase, a_heartbeat_finds_a_dead_connection);
    tcase_add_test(tcase, to_10_a_heartbeat_that_finds_no_room_is_skipped);
    tcase_add_test(tcase, to_10_a_silent_connection_without_room_for_a_probe_is_given_up_once);
    tcase_add_test(tcase, an_answer_that_is_there_has_come_in_time_however_slow_the_application_is);
    tcase_add_test(tcase, an_answer_that_is_there_has_come_in_time_behind_a_slow_callback);
    tcase_add_test(tcase, a_time_out_comes_though_nothing_else_does_after_a_standstill);
    tcase_add_test(tcase, to_12_a_time_out_that_cannot_be_is_refused_and_one_that_is_huge_is_none);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
