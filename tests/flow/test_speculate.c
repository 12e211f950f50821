/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=240 */

/* Speculative execution: a slow request is sent to another node too, the first good answer counts, and whatever happens to the
   others, there is one outcome. Three nodes have every row; what happens on the first replica of row 1 is in the fault plan. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "cql/token.h"
#include "serialize/mem.h"
#include "watch.h"

static const cqlring_speculation soon = {.struct_size = sizeof soon, .max = 1, .delay_us = 10000};

struct stage {
    struct flow flow;
    cqlring_prepared *insert;
    cqlring_execution how;       /* idempotent, speculating soon */
    uint32_t first;              /* node that row 1 goes to */
};

static cqlring_bytes row_1(void)
{
    return flow_bigint(1);
}

static void stage_open(struct stage *stage, uint32_t nodes)
{
    memset(stage, 0, sizeof *stage);
    struct flow *flow = &stage->flow;
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.suspect_after_us = -1; /* a slow node stays in the choice */
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
    stage->insert = flow_prepare(flow, FLOW_INSERT);
    stage->how = (cqlring_execution){.struct_size = sizeof stage->how, .idempotent = CQLRING_YES, .attempt_timeout_us = -1, .speculation = &soon};
    cqlring_bytes key = row_1();
    uint32_t replicas[3];
    ck_assert_uint_gt(node_replicas(flow->node, "ks", cqr_murmur3(key.data, 8), replicas, 3), 0);
    stage->first = replicas[0];
    /* every node knows the statement, so that attempts can be counted */
    const cqlring_node *all[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, all, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_execution aimed = {.struct_size = sizeof aimed, .target = all[i]};
        cqlring_bytes values[] = {row_1(), {"x", 1}};
        flow_ok(ask_prepared(flow, stage->insert, values, 2, &aimed, NULL, NULL));
    }
}

static void stage_close(struct stage *stage)
{
    cqlring_prepared_release(stage->insert);
    flow_close(&stage->flow);
}

/* A fault on the first replica (on: "first"), on all the others ("others") or on all ("all"). "~300" at its end: 300 ms, and more
   where everything is slower. Where a copy has to be sent before an answer comes, it is far later than the 10 ms that this takes. */
static void fault(struct stage *stage, const char *on, const char *text)
{
    const char *by = strchr(text, '~');
    for (uint32_t node = 0; node < node_count(stage->flow.node); node++) {
        if ((strcmp(on, "first") == 0 && node != stage->first) || (strcmp(on, "others") == 0 && node == stage->first))
            continue;
        char line[200];
        if (by != NULL)
            snprintf(line, sizeof line, "%.*s%u,node=%u", (int)(by - text), text, (unsigned)atoi(by + 1) * 1000 * WATCH_SLOW, node);
        else
            snprintf(line, sizeof line, "%s,node=%u", text, node);
        flow_fault(&stage->flow, line);
    }
}

static cqlring_future *insert(struct stage *stage)
{
    cqlring_bytes values[] = {row_1(), {"x", 1}};
    return ask_start_prepared(&stage->flow, stage->insert, values, 2, &stage->how);
}

static bool is_first(struct stage *stage, const cqlring_node *node)
{
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    return strcmp(info.address, ask_address(&stage->flow, stage->first)) == 0;
}

static bool many_sent(struct flow *flow, void *count)
{
    return flow_stats(flow).speculative >= *(uint64_t *)count;
}

START_TEST(a_slow_replica_is_overtaken_and_its_late_answer_belongs_to_nobody)
{
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "first", "late:opcode=EXECUTE,delay_us=~800");
    cqlring_future *future = insert(&stage);
    flow_ok(ask_wait(future, NULL));
    const cqlring_completion *completion = cqlring_future_completion(future);
    ck_assert_uint_eq(completion->attempts, 2);
    ck_assert(!is_first(&stage, completion->node));
    cqlring_future_release(future);
    cqlring_stats stats = flow_stats(&stage.flow);
    ck_assert_uint_eq(stats.speculative, 1);
    ck_assert_uint_eq(stats.speculative_won, 1);
    ck_assert_uint_eq(stats.orphans, 1);
    ck_assert_uint_eq(stats.retries, 0);
    watch_for(&stage.flow, watch_no_orphans, NULL);
    ck_assert_uint_eq(flow_stats(&stage.flow).connections_lost, 0);
    stage_close(&stage);
}
END_TEST

START_TEST(an_answer_in_time_is_asked_for_once)
{
    struct stage stage;
    stage_open(&stage, 3);
    static const cqlring_speculation late = {.struct_size = sizeof late, .max = 2, .delay_us = 8000000};
    stage.how.speculation = &late;
    for (int i = 0; i < 50; i++)
        flow_ok(ask_end(insert(&stage), NULL));
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, 0);
    ck_assert_uint_eq(flow_stats(&stage.flow).orphans, 0);
    stage_close(&stage);
}
END_TEST

/* Replies of both copies come at about the same time, in every order, also while the race is being ended. */
START_TEST(both_answer_and_every_row_has_one_outcome)
{
    enum { ROWS = 4000 };
    struct stage stage;
    stage_open(&stage, 3);
    node_set_delay(stage.flow.node, NODE_ALL, 6000, 6000);
    static const cqlring_speculation all = {.struct_size = sizeof all, .max = 2, .delay_us = 1000};
    stage.how.speculation = &all;
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 40);
    flow_sink_init(&sink, ROWS);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 500, .execution = &stage.how, .ordered = _i == 1};
    cqlring_summary summary;
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, &sink, &options, &summary, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(sink.last, ROWS);
    ck_assert_uint_eq(sink.twice, 0);
    ck_assert_uint_eq(summary.rows, ROWS);
    ck_assert_uint_eq(summary.low_water, ROWS);
    ck_assert_int_eq(node_table_rows(stage.flow.node, "ks.t"), ROWS);
    cqlring_stats stats = flow_stats(&stage.flow);
    ck_assert_uint_gt(stats.speculative, 0);
    ck_assert_uint_gt(stats.speculative_won, 0);
    ck_assert_uint_eq(stats.connections_lost, 0);
    ck_assert_uint_eq(stats.requests_failed, 0);
    node_set_delay(stage.flow.node, NODE_ALL, 0, 0);
    watch_for(&stage.flow, watch_no_orphans, NULL);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

START_TEST(sp_04_an_error_that_another_node_would_repeat_ends_the_race)
{
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "first", "error:opcode=EXECUTE,code=0x2200");
    fault(&stage, "first", "late:opcode=EXECUTE,delay_us=~500");
    fault(&stage, "others", "drop:opcode=EXECUTE");
    cqlring_future *future = insert(&stage);
    cqlring_error error;
    ck_assert_int_eq(ask_wait(future, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_uint_eq(error.attempts, 2);
    ck_assert_uint_eq(error.may_have_been_applied, 1); /* the copy was sent, and nobody knows */
    ck_assert_str_eq(error.node, ask_address(&stage.flow, stage.first));
    cqlring_future_release(future);
    ck_assert_uint_eq(flow_stats(&stage.flow).requests_failed, 1);
    stage_close(&stage);
}
END_TEST

/* … and one that may pass waits for the other copy: the node is overloaded, and the connection breaks. */
START_TEST(sp_04_an_attempt_that_fails_by_itself_leaves_it_to_the_others)
{
    static const char *const faults[] = {"error:opcode=EXECUTE,code=0x1001,times=1", "error:opcode=EXECUTE,code=0x1100,write_type=BATCH_LOG,times=1",
                                         "close:opcode=EXECUTE,times=1", "error:opcode=EXECUTE,code=0x1002,times=1"};
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "first", faults[_i]);
    fault(&stage, "first", "late:opcode=EXECUTE,delay_us=~500");
    fault(&stage, "others", "late:opcode=EXECUTE,delay_us=~1200");
    cqlring_future *future = insert(&stage);
    cqlring_error error;
    cqlring_status status = ask_wait(future, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", faults[_i], error.message);
    const cqlring_completion *completion = cqlring_future_completion(future);
    ck_assert_uint_ge(completion->attempts, 2);
    cqlring_future_release(future);
    ck_assert_uint_ge(flow_stats(&stage.flow).speculative, 1);
    stage_close(&stage);
}
END_TEST

START_TEST(sp_04_when_the_last_attempt_fails_too_its_outcome_stands)
{
    struct stage stage;
    stage_open(&stage, 2);
    fault(&stage, "first", "error:opcode=EXECUTE,code=0x1001");
    fault(&stage, "others", "error:opcode=EXECUTE,code=0x1001");
    fault(&stage, "all", "late:opcode=EXECUTE,delay_us=~500");
    cqlring_error error;
    ck_assert_int_eq(ask_end(insert(&stage), &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x1001);
    ck_assert_uint_ge(error.attempts, 2); /* more where the race was late: a retry of the first */
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    stage.how.retry = CQLRING_RETRY_NONE;
    ck_assert_int_eq(ask_end(insert(&stage), &error), CQLRING_SERVER);
    ck_assert_uint_eq(error.attempts, 2);
    node_fault_remove(stage.flow.node, 0);
    flow_ok(ask_end(insert(&stage), NULL));
    stage_close(&stage);
}
END_TEST

START_TEST(sp_05_the_time_out_is_that_of_the_whole_race)
{
    struct stage stage;
    stage_open(&stage, 3);
    static const cqlring_speculation all = {.struct_size = sizeof all, .max = 2, .delay_us = 0};
    stage.how.speculation = &all;
    stage.how.timeout_us = 1000000 * WATCH_SLOW;
    fault(&stage, "all", "drop:opcode=EXECUTE");
    cqlring_error error;
    ck_assert_int_eq(ask_end(insert(&stage), &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.attempts, 3);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    ck_assert_uint_eq(error.phase, CQLRING_SENT);
    cqlring_stats stats = flow_stats(&stage.flow);
    ck_assert_uint_eq(stats.speculative, 2);
    ck_assert_uint_eq(stats.orphans, 3);
    ck_assert_uint_eq(stats.requests_failed, 1);
    /* a delay beyond the time-out: as if there were none */
    static const cqlring_speculation never = {.struct_size = sizeof never, .max = 2, .delay_us = 3600000000LL};
    stage.how.speculation = &never;
    ck_assert_int_eq(ask_end(insert(&stage), &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.attempts, 1);
    /* and none at all */
    static const cqlring_speculation none = {.struct_size = sizeof none, .max = 0, .delay_us = 0};
    stage.how.speculation = &none;
    ck_assert_int_eq(ask_end(insert(&stage), &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.attempts, 1);
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, 2);
    stage_close(&stage);
}
END_TEST

/* Each attempt has its own time-out; one that is over makes room for a node that nobody asked yet. */
START_TEST(time_outs_of_attempts_go_on_elsewhere_during_a_race)
{
    struct stage stage;
    stage_open(&stage, 3);
    stage.how.attempt_timeout_us = 150000 * WATCH_SLOW;
    stage.how.timeout_us = 20000000;
    fault(&stage, "first", "drop:opcode=EXECUTE");
    fault(&stage, "others", "drop:opcode=EXECUTE,times=1"); /* the first that comes to each of them */
    enum { ROWS = 20 };
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 16);
    flow_sink_init(&sink, ROWS);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &stage.how};
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(sink.last, ROWS);
    ck_assert_uint_eq(sink.twice, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

START_TEST(a_close_during_a_race_ends_every_request_once)
{
    enum { COUNT = 50 };
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "all", "drop:opcode=EXECUTE");
    cqlring_future *futures[COUNT];
    for (int i = 0; i < COUNT; i++)
        futures[i] = insert(&stage);
    uint64_t wanted = COUNT;
    watch_for(&stage.flow, many_sent, &wanted);
    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(stage.flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    for (int i = 0; i < COUNT; i++) {
        ck_assert(cqlring_future_ready(futures[i]));
        cqlring_error error;
        ck_assert_int_eq(ask_end(futures[i], &error), CQLRING_CLOSED);
        ck_assert_uint_eq(error.attempts, 2);
        ck_assert_uint_eq(error.may_have_been_applied, 1);
    }
    ck_assert_uint_eq(flow_stats(&stage.flow).requests_failed, COUNT);
    stage_close(&stage);
}
END_TEST

START_TEST(a_cancel_during_a_race_ends_all_of_it)
{
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "all", "late:opcode=EXECUTE,delay_us=~1200");
    cqlring_future *future = insert(&stage);
    uint64_t wanted = 1;
    watch_for(&stage.flow, many_sent, &wanted);
    cqlring_future_cancel(future);
    cqlring_error error;
    ck_assert_int_eq(ask_end(future, &error), CQLRING_CANCELLED);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    watch_for(&stage.flow, watch_no_orphans, NULL);
    stage_close(&stage);
}
END_TEST

START_TEST(a_job_that_is_stopped_during_a_race_ends)
{
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "all", "drop:opcode=EXECUTE");
    stage.how.timeout_us = 1500000 * WATCH_SLOW;
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 100, 16);
    flow_sink_init(&sink, 100);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &stage.how};
    cqlring_future *job = flow_job(&stage.flow, stage.insert, &rows, &sink, &options);
    uint64_t wanted = 100;
    watch_for(&stage.flow, many_sent, &wanted);
    cqlring_future_cancel(job);
    ck_assert_int_eq(ask_end(job, NULL), CQLRING_CANCELLED);
    ck_assert_uint_eq(sink.last, 100);
    ck_assert_uint_eq(sink.twice, 0);
    ck_assert_uint_eq(sink.maybe, 100);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

START_TEST(a_node_that_is_lost_during_a_race_costs_nothing)
{
    enum { COUNT = 40 };
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "first", "drop:opcode=EXECUTE");
    fault(&stage, "others", "late:opcode=EXECUTE,delay_us=700000");
    cqlring_future *futures[COUNT];
    for (int i = 0; i < COUNT; i++)
        futures[i] = insert(&stage);
    uint64_t wanted = COUNT;
    watch_for(&stage.flow, many_sent, &wanted);
    node_cut(stage.flow.node, stage.first, 0);
    for (int i = 0; i < COUNT; i++) {
        cqlring_error error;
        cqlring_status status = ask_end(futures[i], &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    }
    stage_close(&stage);
}
END_TEST

START_TEST(a_copy_prepares_the_statement_where_it_is_unknown)
{
    struct stage stage;
    stage_open(&stage, 3);
    for (uint32_t node = 0; node < 3; node++)
        if (node != stage.first)
            node_forget_prepared(stage.flow.node, node);
    fault(&stage, "first", "late:opcode=EXECUTE,delay_us=~2500");
    cqlring_future *future = insert(&stage);
    flow_ok(ask_wait(future, NULL));
    ck_assert(!is_first(&stage, cqlring_future_completion(future)->node));
    cqlring_future_release(future);
    ck_assert_uint_ge(flow_stats(&stage.flow).reprepares, 1);
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative_won, 1);
    stage_close(&stage);
}
END_TEST

START_TEST(what_is_not_idempotent_or_has_one_place_only_is_never_sent_twice)
{
    struct stage stage;
    stage_open(&stage, 3);
    struct flow *flow = &stage.flow;
    node_set_delay(flow->node, NODE_ALL, 400000 * WATCH_SLOW, 0);
    static const cqlring_speculation eager = {.struct_size = sizeof eager, .max = 8, .delay_us = 0};
    stage.how.speculation = &eager;
    cqlring_execution how = stage.how;
    how.idempotent = CQLRING_NO;
    flow_ok(ask_text(flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &how, NULL, NULL));
    cqlring_execution aimed = stage.how; /* to one node */
    const cqlring_node *nodes[4];
    cqlring_cluster_nodes(flow->cluster, nodes, 4);
    aimed.target = nodes[0];
    flow_ok(ask_text(flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &aimed, NULL, NULL));
    cqlring_batch_child child = {.prepared = stage.insert, .values = (cqlring_bytes[]){row_1(), {"x", 1}}, .value_count = 2};
    cqlring_batch batch = {.kind = CQLRING_BATCH_COUNTER, .children = &child, .count = 1};
    cqlring_request request = {.session = flow->session, .batch = &batch, .execution = &stage.how};
    cqlring_error error;
    (void)cqlring_execute_sync(&request, NULL, &error);
    ck_assert_uint_eq(flow_stats(flow).speculative, 0);
    /* reads are idempotent by themselves, and so is a batch that says so */
    flow_ok(ask_text(flow, "SELECT k FROM ks.t", NULL, 0, &how, NULL, NULL));
    ck_assert_uint_eq(flow_stats(flow).speculative, 2); /* there are no more nodes than three */
    batch.kind = CQLRING_BATCH_UNLOGGED;
    flow_ok(cqlring_execute_sync(&request, NULL, &error));
    ck_assert_uint_eq(flow_stats(flow).speculative, 4);
    stage_close(&stage);
}
END_TEST

START_TEST(with_one_node_there_is_nobody_else_to_ask)
{
    struct stage stage;
    stage_open(&stage, 1);
    node_set_delay(stage.flow.node, 0, 100000, 0);
    for (int i = 0; i < 3; i++)
        flow_ok(ask_end(insert(&stage), NULL));
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, 0);
    stage_close(&stage);
}
END_TEST

START_TEST(a_percentile_follows_what_was_measured)
{
    struct stage stage;
    stage_open(&stage, 3);
    static const cqlring_speculation tail = {.struct_size = sizeof tail, .max = 1, .percentile = 99};
    stage.how.speculation = &tail;
    /* before there is something to go by, a slow answer is waited for */
    fault(&stage, "first", "late:opcode=EXECUTE,delay_us=200000,times=1");
    flow_ok(ask_end(insert(&stage), NULL));
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, 0);
    for (int i = 0; i < 200; i++)
        flow_ok(ask_end(insert(&stage), NULL));
    uint64_t before = flow_stats(&stage.flow).speculative;
    fault(&stage, "first", "drop:opcode=EXECUTE,times=1");
    flow_ok(ask_end(insert(&stage), NULL));
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, before + 1);
    /* for the rows of jobs too */
    enum { ROWS = 500 };
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 16);
    flow_sink_init(&sink, ROWS);
    fault(&stage, "first", "drop:opcode=EXECUTE,every=50");
    cqlring_job_options options = {.struct_size = sizeof options, .window = 16, .execution = &stage.how};
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.ok, ROWS);
    ck_assert_uint_gt(flow_stats(&stage.flow).speculative, before + 1);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

/* SELECT rows of a job have pages, each a request that may be slow. */
START_TEST(reads_with_pages_race_page_by_page)
{
    enum { ROWS = 300 };
    struct stage stage;
    stage_open(&stage, 3);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 16);
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, NULL, NULL, NULL, NULL));
    flow_rows_fini(&rows);
    cqlring_prepared *select = flow_prepare(&stage.flow, "SELECT k FROM ks.t WHERE k > ? ALLOW FILTERING");
    node_set_delay(stage.flow.node, NODE_ALL, 8000, 8000);
    static const cqlring_speculation all = {.struct_size = sizeof all, .max = 2, .delay_us = 0};
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 50, .speculation = &all};
    flow_rows_init(&rows, 3, 16);
    rows.keys_only = true;
    flow_sink_init(&sink, 3);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how};
    flow_ok(flow_run(&stage.flow, select, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%s", sink.first_error);
    ck_assert_uint_eq(sink.last, 3);
    ck_assert_uint_ge(sink.delivered, 3 * 5);
    ck_assert_uint_gt(flow_stats(&stage.flow).speculative, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(select);
    stage_close(&stage);
}
END_TEST

START_TEST(sp_05_what_cannot_be_is_refused_with_the_reason)
{
    struct stage stage;
    stage_open(&stage, 1);
    static const cqlring_speculation bad[] = {
        {.struct_size = sizeof bad[0], .max = 9},
        {.struct_size = sizeof bad[0], .max = 1, .delay_us = -1},
        {.struct_size = sizeof bad[0], .max = 1, .percentile = 100},
        {.struct_size = sizeof bad[0], .max = 1, .percentile = -1},
        {.struct_size = 8, .max = 1},
    };
    static const char *const words[] = {"max is 9", "delay_us is -1", "percentile is 100", "percentile is -1", "struct_size is 8"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cqlring_execution how = {.struct_size = sizeof how, .speculation = &bad[i]};
        cqlring_error error;
        ck_assert_int_eq(ask_text(&stage.flow, "SELECT k FROM ks.t", NULL, 0, &how, NULL, &error), CQLRING_INVALID);
        ck_assert_msg(strstr(error.message, words[i]) != NULL, "%s", error.message);
    }
    stage_close(&stage);
}
END_TEST

START_TEST(a_sessions_default_may_be_taken_back_by_a_request)
{
    struct stage stage;
    memset(&stage, 0, sizeof stage);
    struct flow *flow = &stage.flow;
    flow_init(flow);
    flow->node_options.nodes = 3;
    cqlring_execution defaults = {.struct_size = sizeof defaults, .idempotent = CQLRING_YES, .speculation = &soon};
    flow->session_options.execution = &defaults;
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
    node_set_delay(flow->node, NODE_ALL, 500000 * WATCH_SLOW, 0);
    flow_cql(flow, "INSERT INTO ks.t (k) VALUES (1)");
    ck_assert_uint_eq(flow_stats(flow).speculative, 1);
    static const cqlring_speculation none = {.struct_size = sizeof none};
    cqlring_execution how = {.struct_size = sizeof how, .speculation = &none};
    flow_ok(ask_text(flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &how, NULL, NULL));
    ck_assert_uint_eq(flow_stats(flow).speculative, 1);
    flow_close(flow);
}
END_TEST

/* The first race of a lane takes an allocation, and so does the first percentile: without it there is none, and the request waits. */
START_TEST(without_memory_a_request_just_waits)
{
    static const cqlring_speculation tail = {.struct_size = sizeof tail, .max = 1, .percentile = 90, .delay_us = 1000};
    uint32_t succeeded = 0;
    for (uint64_t n = 1; n <= 8; n++) {
        struct stage stage;
        stage_open(&stage, 3);
        if (n % 2 == 0)
            stage.how.speculation = &tail;
        fault(&stage, "first", "late:opcode=EXECUTE,delay_us=60000,times=1");
        cqlring_bytes values[] = {row_1(), {"x", 1}};
        cqlring_error error;
        cqr_mem_fail_at(n, 0);
        cqlring_status status = ask_prepared(&stage.flow, stage.insert, values, 2, &stage.how, NULL, &error);
        cqr_mem_fail_at(0, 0);
        ck_assert_msg(status == CQLRING_OK || status == CQLRING_NO_MEMORY, "allocation %lu: %s", (unsigned long)n, cqlring_status_name(status));
        succeeded += status == CQLRING_OK;
        stage_close(&stage);
    }
    ck_assert_uint_gt(succeeded, 3);
}
END_TEST

/* All attempts find their statement unknown, and it cannot be prepared again: by a time-out, or because the connections are lost. */
START_TEST(a_race_in_which_nobody_can_prepare_ends)
{
    for (int lost = 0; lost < 2; lost++) {
        struct stage stage;
        stage_open(&stage, 3);
        node_forget_prepared(stage.flow.node, NODE_ALL);
        fault(&stage, "all", "ignore:opcode=PREPARE");
        fault(&stage, "all", "late:opcode=EXECUTE,delay_us=~50");
        stage.how.timeout_us = 8000000;
        cqlring_future *future = insert(&stage);
        if (lost) {
            watch_for(&stage.flow, many_sent, &(uint64_t){1});
            watch_pass(&stage.flow, 200 * WATCH_SLOW);
            node_cut(stage.flow.node, NODE_ALL, 0);
        }
        cqlring_error error = {0};
        cqlring_status status = ask_end(future, &error);
        ck_assert_msg(status == CQLRING_UNREACHABLE || status == CQLRING_TIMEOUT || status == CQLRING_LOST, "%s: %s", cqlring_status_name(status), error.message);
        stage_close(&stage);
    }
}
END_TEST

/* Rows of several pages: what one page's race has ended says nothing of the next page. */
START_TEST(a_page_after_a_race_is_retried_as_any_other)
{
    struct stage stage;
    stage_open(&stage, 3);
    flow_cql(&stage.flow, "CREATE TABLE ks.wide (k bigint, c int, PRIMARY KEY (k, c))");
    cqlring_prepared *insert_wide = flow_prepare(&stage.flow, "INSERT INTO ks.wide (k, c) VALUES (?, ?)");
    for (int32_t c = 0; c < 20; c++)
        for (int64_t k = 0; k < 20; k++) {
            cqlring_bytes values[2] = {flow_bigint(k), flow_int(c)};
            flow_ok(ask_prepared(&stage.flow, insert_wide, values, 2, NULL, NULL, NULL));
        }
    cqlring_prepared *select = flow_prepare(&stage.flow, "SELECT c FROM ks.wide WHERE k = ?");
    node_set_delay(stage.flow.node, NODE_ALL, 3000, 2000);
    flow_fault(&stage.flow, "error:code=0x1001,table=ks.wide,opcode=EXECUTE,every=7");
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 20, 0);
    rows.keys_only = true;
    flow_sink_init(&sink, 20);
    cqlring_speculation at_once = {.struct_size = sizeof at_once, .max = 2, .delay_us = 1000};
    cqlring_execution how = stage.how;
    how.page_size = 2;
    how.speculation = &at_once;
    how.timeout_us = 60000000;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = 20};
    flow_ok(flow_run(&stage.flow, select, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.last, 20);
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    cqlring_stats stats = flow_stats(&stage.flow);
    uint64_t by_status = 0;
    for (int i = 0; i < 16; i++)
        by_status += stats.failed_by[i];
    ck_assert_uint_eq(by_status, stats.requests_failed);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert_wide);
    cqlring_prepared_release(select);
    stage_close(&stage);
}
END_TEST

/* Two nodes that change the schema at once are what agreement is there to prevent, and two that propose each cost the other a
   round: neither is sent twice, though it may be marked idempotent. */
START_TEST(a_change_of_the_schema_and_a_conditional_text_never_race)
{
    struct stage stage;
    stage_open(&stage, 3);
    fault(&stage, "all", "late:opcode=QUERY,delay_us=~100");
    cqlring_future *futures[8];
    for (int i = 0; i < 8; i++) {
        char text[80];
        snprintf(text, sizeof text, i % 2 == 0 ? "ALTER TABLE ks.t WITH comment = 'number %d'" : "INSERT INTO ks.t (k, v) VALUES (%d, 0x01) IF NOT EXISTS", i);
        futures[i] = ask_start(&stage.flow, text, &stage.how);
    }
    for (int i = 0; i < 8; i++) {
        cqlring_error error = {0};
        cqlring_status status = ask_wait(futures[i], &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
        if (i % 2 == 0) /* so the wait for agreement was done */
            ck_assert_int_eq(cqlring_result_schema_agreed(cqlring_future_completion(futures[i])->result), 1);
        cqlring_future_release(futures[i]);
    }
    ck_assert_uint_eq(flow_stats(&stage.flow).speculative, 0);
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("speculate");
    TCase *tcase = tcase_create("speculate");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_slow_replica_is_overtaken_and_its_late_answer_belongs_to_nobody);
    tcase_add_test(tcase, a_change_of_the_schema_and_a_conditional_text_never_race);
    tcase_add_test(tcase, a_race_in_which_nobody_can_prepare_ends);
    tcase_add_test(tcase, a_page_after_a_race_is_retried_as_any_other);
    tcase_add_test(tcase, an_answer_in_time_is_asked_for_once);
    tcase_add_loop_test(tcase, both_answer_and_every_row_has_one_outcome, 0, 2);
    tcase_add_test(tcase, sp_04_an_error_that_another_node_would_repeat_ends_the_race);
    tcase_add_loop_test(tcase, sp_04_an_attempt_that_fails_by_itself_leaves_it_to_the_others, 0, 4);
    tcase_add_test(tcase, sp_04_when_the_last_attempt_fails_too_its_outcome_stands);
    tcase_add_test(tcase, sp_05_the_time_out_is_that_of_the_whole_race);
    tcase_add_test(tcase, time_outs_of_attempts_go_on_elsewhere_during_a_race);
    tcase_add_test(tcase, a_close_during_a_race_ends_every_request_once);
    tcase_add_test(tcase, a_cancel_during_a_race_ends_all_of_it);
    tcase_add_test(tcase, a_job_that_is_stopped_during_a_race_ends);
    tcase_add_test(tcase, a_node_that_is_lost_during_a_race_costs_nothing);
    tcase_add_test(tcase, a_copy_prepares_the_statement_where_it_is_unknown);
    tcase_add_test(tcase, what_is_not_idempotent_or_has_one_place_only_is_never_sent_twice);
    tcase_add_test(tcase, with_one_node_there_is_nobody_else_to_ask);
    tcase_add_test(tcase, a_percentile_follows_what_was_measured);
    tcase_add_test(tcase, reads_with_pages_race_page_by_page);
    tcase_add_test(tcase, without_memory_a_request_just_waits);
    tcase_add_test(tcase, sp_05_what_cannot_be_is_refused_with_the_reason);
    tcase_add_test(tcase, a_sessions_default_may_be_taken_back_by_a_request);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
