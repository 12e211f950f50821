/* SPDX-License-Identifier: Apache-2.0 */

/* The cluster changes its shape: nodes join and leave, the control connection moves, and what it reads is not always what is. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
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
    flow_start(flow);
}

static uint32_t control_node(struct flow *flow)
{
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow->node, NODE_ALL, conns, 16);
    for (uint32_t i = 0; i < count && i < 16; i++)
        if (conns[i].registered)
            return conns[i].node;
    return UINT32_MAX;
}

/* A frozen node does not notice that its connection has been given up. */
static bool control_is_not_on(struct flow *flow, void *node)
{
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow->node, NODE_ALL, conns, 16);
    for (uint32_t i = 0; i < count && i < 16; i++)
        if (conns[i].registered && conns[i].node != *(uint32_t *)node)
            return true;
    return false;
}

static bool is_known(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info);
}

/* Every node of the map is a whole one, whatever happens around it. */
static void ck_assert_map(struct flow *flow)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    ck_assert_uint_gt(count, 0);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        ck_assert_ptr_nonnull(nodes[i]);
        cqlring_node_describe(nodes[i], &info);
        ck_assert_str_ne(info.address, "");
        ck_assert_str_eq(info.datacenter, "datacenter1");
    }
}

static void run_rows(struct flow *flow, uint64_t count)
{
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, count, 16);
    flow_sink_init(&sink, count);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
}

START_TEST(a_node_that_joins_gets_a_connection_and_its_rows)
{
    struct flow flow;
    start(&flow, 3);
    node_leave(flow.node, 2, false);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    run_rows(&flow, 200);
    node_join(flow.node, 2, true);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    node_counters_reset(flow.node);
    run_rows(&flow, 2000);
    struct node_counters counters;
    node_counters(flow.node, 2, &counters);
    ck_assert_uint_gt(counters.opcodes[OPCODE_EXECUTE], 100);
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.replica_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_leaves_is_forgotten_and_its_handle_stays_good)
{
    struct flow flow;
    start(&flow, 3);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    const cqlring_node *nodes[3], *leaver = NULL;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 3), 3);
    cqlring_node_info info;
    for (int i = 0; i < 3; i++) {
        cqlring_node_describe(nodes[i], &info);
        if (strcmp(info.address, ask_address(&flow, 1)) == 0)
            leaver = nodes[i];
    }
    node_leave(flow.node, 1, true);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    cqlring_node_describe(leaver, &info);
    ck_assert_str_eq(info.address, ask_address(&flow, 1));
    ck_assert_uint_eq(info.connections, 0);
    run_rows(&flow, 1000);
    cqlring_execution how = {.struct_size = sizeof how, .target = leaver};
    ck_assert_int_eq(ask_text(&flow, INSERT_1, NULL, 0, &how, NULL, NULL), CQLRING_UNREACHABLE);
    flow_close(&flow);
}
END_TEST

struct leaving {
    struct flow *flow;
    uint32_t node;
    bool done;
};

static void leave_once(const cqlring_completion *completion, void *context)
{
    struct leaving *plan = context;
    if (plan->done || completion->row < 2000)
        return;
    plan->done = true;
    node_leave(plan->flow->node, plan->node, true);
}

START_TEST(rc_11_the_node_of_the_control_connection_leaves_under_load)
{
    struct flow flow;
    start(&flow, 3);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    struct leaving plan = {.flow = &flow, .node = control_node(&flow)};
    ck_assert_uint_lt(plan.node, 3);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 10000, 16);
    flow_sink_init(&sink, 10000);
    sink.each = leave_once;
    sink.context = &plan;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    watch_for(&flow, control_is_not_on, &plan.node);
    ck_assert_map(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    ck_assert_map(&flow);
    run_rows(&flow, 500);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(the_control_connection_moves_when_its_node_dies)
{
    struct flow flow;
    start(&flow, 3);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    for (int round = 0; round < 3; round++) {
        uint32_t on = control_node(&flow);
        ck_assert_uint_lt(on, 3);
        node_down(flow.node, on, true);
        watch_for(&flow, control_is_not_on, &on);
        ck_assert_map(&flow);
        node_up(flow.node, on, true);
        watch_for(&flow, watch_all_up, &(uint32_t){3});
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_frozen_control_connection_is_given_up_for_another)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options.nodes = 2;
    flow.options.heartbeat_us = 50000;
    flow.options.connect_timeout_us = 300000 * WATCH_SLOW;
    flow.options.reconnect_min_us = 10000;
    flow.options.reconnect_max_us = 60000;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    uint32_t on = control_node(&flow);
    node_freeze(flow.node, on, -1);
    watch_for(&flow, watch_logged, "the control connection is lost");
    watch_for(&flow, control_is_not_on, &on);
    node_freeze(flow.node, on, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    flow_close(&flow);
}
END_TEST

/* Told of a node that the system tables do not show yet: it is looked for again, and found when they do. */
START_TEST(rc_14_a_node_that_shows_up_late_in_peers_is_found)
{
    struct flow flow;
    start(&flow, 2);
    node_hide(flow.node, 1, true);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    node_event_topology(flow.node, 0, "NEW_NODE", 1);
    node_event_status(flow.node, 0, "UP", 1);
    watch_for(&flow, watch_logged, "topology 2 from"); /* read again, and not there */
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, NULL, 0), 1);
    node_hide(flow.node, 1, false);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    flow_close(&flow);
}
END_TEST

/* What happened while nobody listened is not missed. */
START_TEST(rc_15_changes_during_a_reconnect_of_the_control_connection_are_seen)
{
    struct flow flow;
    start(&flow, 4);
    node_leave(flow.node, 3, false);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    uint32_t on = control_node(&flow), gone = on == 1 ? 2 : 1, come = 3;
    uint32_t fault = node_fault_parse(flow.node, "ignore:opcode=OPTIONS", NULL, 0); /* nobody gets in */
    ck_assert_uint_ne(fault, 0);
    struct node_conn_info conns[16];
    for (uint32_t i = node_conns(flow.node, NODE_ALL, conns, 16); i-- > 0;)
        if (conns[i].registered)
            node_cut(flow.node, conns[i].node, conns[i].conn);
    watch_for(&flow, watch_logged, "the control connection is lost");
    node_leave(flow.node, gone, false);
    node_join(flow.node, come, false);
    node_fault_remove(flow.node, fault);
    node_cut(flow.node, NODE_ALL, 0); /* what has been ignored so far may go on at once */
    watch_for(&flow, is_known, &come);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    ck_assert(!is_known(&flow, &gone));
    flow_close(&flow);
}
END_TEST

/* One answer without any peers is not believed; the second one is, and the third brings them all back. */
START_TEST(rc_23_one_empty_peers_answer_drops_nobody)
{
    struct flow flow;
    start(&flow, 3);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    uint64_t lost = flow_stats(&flow).connections_lost;
    flow_fault(&flow, "no-rows:table=system.peers_v2,times=1");
    node_event_topology(flow.node, NODE_ALL, "NEW_NODE", 1);
    watch_for(&flow, watch_faults, &(uint64_t){1});
    run_rows(&flow, 500);
    watch_for(&flow, watch_logged, "topology 2 from");
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, NULL, 0), 3);
    ck_assert_uint_eq(watch_up_count(&flow), 3);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, lost);
    flow_close(&flow);
}
END_TEST

START_TEST(rc_23_peers_that_stay_empty_are_believed_and_come_back_with_the_next_reading)
{
    struct flow flow;
    start(&flow, 3);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    flow_fault(&flow, "no-rows:table=system.peers_v2,times=2");
    node_event_topology(flow.node, NODE_ALL, "NEW_NODE", 1);
    watch_for(&flow, watch_known, &(uint32_t){1});
    run_rows(&flow, 500);
    node_event_topology(flow.node, NODE_ALL, "NEW_NODE", 1);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    run_rows(&flow, 500);
    flow_close(&flow);
}
END_TEST

/* Events of no known kind, torn ones, and many at once: nothing happens, and those behind them still count. */
START_TEST(fr_10_events_that_nobody_understands_are_ignored)
{
    struct flow flow;
    start(&flow, 2);
    node_leave(flow.node, 1, false);
    flow_open(&flow);
    static const struct {
        const char *body;
        uint32_t size;
    } bodies[] = {
        {"", 0},
        {"\0", 1},
        {"\0\7PLANETS\0\3NOW", 14},
        {"\0\15STATUS_CHANGE", 15},
        {"\0\15STATUS_CHANGE\0\2UP", 19},
        {"\0\15STATUS_CHANGE\0\2UP\5\1\2\3\4\5\0\0\0\1", 29},
        {"\0\15STATUS_CHANGE\0\4SIDE\4\1\2\3\4\0\0\0\1", 30},
        {"\0\17TOPOLOGY_CHANGE\0\5MOVED\4\1\2\3\4\377\377\377\377", 33},
        {"\0\15SCHEMA_CHANGE\0\7CREATED\0\6GALAXY\0\1x", 35},
        {"\377\377STATUS", 8},
    };
    for (int round = 0; round < 300; round++)
        for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
            node_event_raw(flow.node, NODE_ALL, bodies[i].body, bodies[i].size);
    flow_cql(&flow, INSERT_1);
    node_join(flow.node, 1, true);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *tcase = tcase_create("topology");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_node_that_joins_gets_a_connection_and_its_rows);
    tcase_add_test(tcase, a_node_that_leaves_is_forgotten_and_its_handle_stays_good);
    tcase_add_test(tcase, rc_11_the_node_of_the_control_connection_leaves_under_load);
    tcase_add_test(tcase, the_control_connection_moves_when_its_node_dies);
    tcase_add_test(tcase, a_frozen_control_connection_is_given_up_for_another);
    tcase_add_test(tcase, rc_14_a_node_that_shows_up_late_in_peers_is_found);
    tcase_add_test(tcase, rc_15_changes_during_a_reconnect_of_the_control_connection_are_seen);
    tcase_add_test(tcase, rc_23_one_empty_peers_answer_drops_nobody);
    tcase_add_test(tcase, rc_23_peers_that_stay_empty_are_believed_and_come_back_with_the_next_reading);
    tcase_add_test(tcase, fr_10_events_that_nobody_understands_are_ignored);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
