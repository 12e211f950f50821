/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes that go and come back, and what is told about them, true or not. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "driver/policy.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
}

static void open_all(struct flow *flow, uint32_t nodes)
{
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, watch_all_up, &nodes);
}

static uint64_t opened_at(struct flow *flow, uint32_t node)
{
    struct node_counters counters;
    node_counters(flow->node, node, &counters);
    return counters.ready;
}

static bool is_down(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && !info.is_up;
}

static bool is_up(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && info.is_up;
}

/* A connection that is counted as up, on the node's side: everybody sees the same ones. */
static bool settled(struct flow *flow, void *count)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.connections_open == *(uint64_t *)count;
}

START_TEST(rc_02_all_nodes_down_together_and_up_again_is_survived)
{
    struct flow flow;
    start(&flow, 3);
    open_all(&flow, 3);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    for (uint32_t i = 0; i < 3; i++)
        node_down(flow.node, i, false);
    watch_for(&flow, watch_logged, "no node takes the control connection");
    cqlring_error error = {0};
    cqlring_status status = CQLRING_OK;
    for (int i = 0; i < 200 && status != CQLRING_UNREACHABLE; i++)
        status = flow_try(&flow, INSERT_1, NULL, &error);
    ck_assert_int_eq(status, CQLRING_UNREACHABLE);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 2000, 16);
    flow_sink_init(&sink, 2000);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    watch_pass(&flow, 200);
    ck_assert(!cqlring_future_ready(job));
    for (uint32_t i = 0; i < 3; i++)
        node_up(flow.node, i, false);
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(sink.ok, 2000);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

struct restart {
    struct flow *flow;
    uint64_t at;
    int step;
};

/* Down in the middle of the load, up again a little later, with UP told again and again while it connects. */
static void restart(const cqlring_completion *completion, void *context)
{
    struct restart *plan = context;
    (void)completion;
    plan->at++;
    if (plan->step == 0 && plan->at > 3000) {
        node_down(plan->flow->node, 1, true);
        plan->step = 1;
    } else if (plan->step == 1 && plan->at > 6000) {
        node_up(plan->flow->node, 1, true);
        plan->step = 2;
    }
    if (plan->step == 2 && plan->at < 12000 && plan->at % 100 == 0)
        node_event_status(plan->flow->node, 0, "UP", 1);
}

START_TEST(rc_05_a_restart_under_load_costs_one_new_connection_and_no_row)
{
    struct flow flow;
    start(&flow, 2);
    open_all(&flow, 2);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    uint64_t wanted = 3; /* control, and one to each node */
    watch_for(&flow, settled, &wanted);
    struct node_conn_info conns[4];
    bool control_moves = false;
    for (uint32_t i = node_conns(flow.node, 1, conns, 4); i-- > 0;)
        control_moves = control_moves || conns[i].registered;
    uint64_t before = opened_at(&flow, 1);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 20000, 16);
    flow_sink_init(&sink, 20000);
    struct restart plan = {.flow = &flow};
    sink.each = restart;
    sink.context = &plan;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent, .window = 100};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_int_eq(plan.step, 2);
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    watch_for(&flow, is_up, &(uint32_t){1});
    watch_for(&flow, settled, &wanted);
    watch_pass(&flow, 150);
    watch_for(&flow, settled, &wanted);
    ck_assert_uint_le(opened_at(&flow, 1) - before, 1 + control_moves);
    /* and from now on nothing is lost any more */
    uint64_t lost = flow_stats(&flow).connections_lost;
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    flow_rows_init(&rows, 2000, 16);
    flow_sink_init(&sink, 2000);
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    ck_assert_uint_eq(sink.ok, 2000);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, lost);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* 200 times UP: of a node that is up, nothing happens; of one that is down, a few attempts; of one that comes up, one
   connection. */
START_TEST(rc_06_two_hundred_up_events_are_as_good_as_one)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.reconnect_min_us = flow.options.reconnect_max_us = 30000000;
    open_all(&flow, 2);
    uint64_t before = opened_at(&flow, 1);
    for (int i = 0; i < 200; i++)
        node_event_status(flow.node, 0, "UP", 1);
    ask_until_served(&flow);
    watch_pass(&flow, 30);
    ck_assert_uint_eq(opened_at(&flow, 1), before);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);

    uint32_t one = 1;
    node_down(flow.node, 1, false);
    watch_for(&flow, is_down, &one);
    uint64_t turns = flow_stats(&flow).submitter_turns;
    for (int i = 0; i < 200; i++)
        node_event_status(flow.node, NODE_ALL, "UP", 1);
    watch_pass(&flow, 100);
    ck_assert_msg(watch_log_count("connect failed") <= 20, "%u attempts for 200 events", watch_log_count("connect failed"));
    ck_assert_uint_le(flow_stats(&flow).submitter_turns - turns, 2000);

    before = opened_at(&flow, 1);
    node_up(flow.node, 1, false);
    for (int i = 0; i < 200; i++)
        node_event_status(flow.node, NODE_ALL, "UP", 1);
    watch_for(&flow, is_up, &one);
    watch_pass(&flow, 100);
    ck_assert_uint_eq(opened_at(&flow, 1) - before, 1);
    flow_close(&flow);
}
END_TEST

START_TEST(rc_08_attempts_end_when_a_node_has_left)
{
    struct flow flow;
    start(&flow, 3);
    open_all(&flow, 3);
    node_down(flow.node, 2, true);
    watch_for(&flow, watch_logged, "connect failed (3)");
    node_leave(flow.node, 2, true);
    watch_for(&flow, watch_known, &(uint32_t){2});
    watch_pass(&flow, 100); /* an attempt may have been under way */
    watch_log_clear();
    watch_pass(&flow, 300);
    ck_assert_uint_eq(watch_log_count("connect failed"), 0);
    ck_assert_uint_eq(watch_log_count("lost the connection"), 0);
    flow_cql(&flow, INSERT_1);
    flow_close(&flow);
}
END_TEST

START_TEST(rc_09_the_delay_never_overflows)
{
    static const int64_t limits[][2] = {{1000000, 600000000}, {1, 1}, {INT64_MAX / 2, INT64_MAX}, {50000, 10000000}};
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (uint32_t attempt = 1; attempt <= 5000; attempt++) {
            int64_t delay = cqr_reconnect_delay_us(attempt, limits[i][0], limits[i][1], cqr_random(&random));
            ck_assert_int_ge(delay, 0);
            ck_assert(delay / 115 * 100 <= limits[i][1]);
        }
}
END_TEST

/* DOWN about a node that is well changes nothing; UP in the middle of a long wait ends the wait. */
START_TEST(rc_22_events_are_hints_the_connection_is_the_truth)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.reconnect_min_us = flow.options.reconnect_max_us = 60000000;
    open_all(&flow, 2);
    uint32_t one = 1;
    for (int i = 0; i < 5; i++)
        node_event_status(flow.node, NODE_ALL, "DOWN", 1);
    ask_until_served(&flow);
    watch_pass(&flow, 50);
    ck_assert(is_up(&flow, &one));
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);

    /* not the node that the control connection is on, or nobody could tell us */
    struct node_conn_info conns[8];
    uint32_t other = 1;
    for (uint32_t i = node_conns(flow.node, NODE_ALL, conns, 8); i-- > 0;)
        if (conns[i].registered)
            other = 1 - conns[i].node;
    node_down(flow.node, other, false);
    watch_for(&flow, is_down, &other); /* it lived shortly, so the next attempt is a minute away */
    node_up(flow.node, other, false);
    watch_pass(&flow, 100);
    ck_assert(is_down(&flow, &other));
    node_event_status(flow.node, NODE_ALL, "UP", other);
    watch_for(&flow, is_up, &other);
    flow_close(&flow);
}
END_TEST

/* Cut behind READY, before the first request: such a connection never counts as one that serves. */
START_TEST(rc_25_a_connection_that_dies_as_it_gets_ready_is_not_used)
{
    struct flow flow;
    start(&flow, 2);
    flow_start(&flow);
    flow_fault(&flow, "answer-close:opcode=STARTUP,node=1,times=3");
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 3000, 16);
    flow_sink_init(&sink, 3000);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.ok, 3000);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* The other datacenter is not connected to, but known; it bounces, takes the control connection when ours is away, and ours is
   used again afterwards. */
START_TEST(rc_25_a_node_of_another_datacenter_may_bounce)
{
    static const char *const dcs[] = {"here", "there"};
    struct flow flow;
    start(&flow, 2);
    flow.node_options.dcs = dcs;
    flow.options.local_datacenter = "here";
    flow_start(&flow);
    flow_open(&flow);
    uint32_t here = 0, there = 1;
    watch_for(&flow, watch_known, &(uint32_t){2});
    cqlring_node_info info;
    ck_assert(watch_node(&flow, there, &info));
    ck_assert(!info.is_local && !info.is_up);
    ck_assert_str_eq(info.datacenter, "there");
    node_down(flow.node, there, true);
    node_up(flow.node, there, true);
    flow_cql(&flow, INSERT_1);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    node_down(flow.node, here, true);
    watch_for(&flow, is_down, &here);
    for (int i = 0; i < 1000 && opened_at(&flow, there) == 0; i++)
        watch_pass(&flow, 10);
    ck_assert_uint_eq(opened_at(&flow, there), 1); /* control's */
    node_up(flow.node, here, true);
    watch_for(&flow, is_up, &here);
    flow_cql(&flow, INSERT_1);
    flow_close(&flow);
}
END_TEST

/* ---- rc_18: the same keyspace over and over ---- */

struct opener {
    struct flow *flow;
    cqlring_session *sessions[4];
};

static void *open_sessions(void *context)
{
    struct opener *opener = context;
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
    for (int i = 0; i < 4; i++)
        if (cqlring_session_open_sync(opener->flow->cluster, &options, &opener->sessions[i], NULL) != CQLRING_OK)
            opener->sessions[i] = NULL;
    return NULL;
}

START_TEST(rc_18_sessions_of_one_keyspace_opened_at_once_share_its_connection)
{
    struct flow flow;
    start(&flow, 1);
    open_all(&flow, 1);
    uint64_t before = opened_at(&flow, 0);
    pthread_t threads[4];
    struct opener openers[4];
    for (int i = 0; i < 4; i++) {
        openers[i] = (struct opener){.flow = &flow};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, open_sessions, &openers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(opened_at(&flow, 0) - before, 1);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            ck_assert_ptr_nonnull(openers[i].sessions[j]);
            cqlring_request request = {.session = openers[i].sessions[j], .cql = cqlring_text("INSERT INTO t (k, v) VALUES (1, 0x01)")};
            flow_ok(cqlring_execute_sync(&request, NULL, NULL));
            cqlring_session_release(openers[i].sessions[j]);
        }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reconnect");
    TCase *tcase = tcase_create("reconnect");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, rc_02_all_nodes_down_together_and_up_again_is_survived);
    tcase_add_test(tcase, rc_05_a_restart_under_load_costs_one_new_connection_and_no_row);
    tcase_add_test(tcase, rc_06_two_hundred_up_events_are_as_good_as_one);
    tcase_add_test(tcase, rc_08_attempts_end_when_a_node_has_left);
    tcase_add_test(tcase, rc_09_the_delay_never_overflows);
    tcase_add_test(tcase, rc_22_events_are_hints_the_connection_is_the_truth);
    tcase_add_test(tcase, rc_25_a_connection_that_dies_as_it_gets_ready_is_not_used);
    tcase_add_test(tcase, rc_25_a_node_of_another_datacenter_may_bounce);
    tcase_add_test(tcase, rc_18_sessions_of_one_keyspace_opened_at_once_share_its_connection);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
