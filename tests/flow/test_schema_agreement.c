/* SPDX-License-Identifier: Apache-2.0 */

/* A request that changed the schema is answered when all nodes that are up know of it, or when the wait for that is over; nothing
   makes it wait longer. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

#define CREATE "CREATE TABLE ks.more (k int PRIMARY KEY)"

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
    flow_start(flow);
}

static void up(struct flow *flow, uint32_t nodes)
{
    flow_open(flow);
    watch_for(flow, watch_all_up, &nodes);
}

static struct node_conn_info control(struct flow *flow)
{
    struct node_conn_info conns[16], none = {.node = UINT32_MAX};
    uint32_t count = node_conns(flow->node, NODE_ALL, conns, 16);
    for (uint32_t i = 0; i < count && i < 16; i++)
        if (conns[i].registered)
            return conns[i];
    return none;
}

/* A node that the control connection is not on. */
static uint32_t other_node(struct flow *flow)
{
    return control(flow).node == 0 ? 1 : 0;
}

static bool has_polled(struct flow *flow, void *text)
{
    struct node_seen seen;
    (void)text;
    return node_last(flow->node, NODE_ALL, OPCODE_QUERY, &seen) && strstr(seen.text, "schema_version FROM system.peers") != NULL;
}

static int agreed(cqlring_future *future)
{
    return cqlring_result_schema_agreed(cqlring_future_completion(future)->result);
}

START_TEST(a_change_of_the_schema_is_answered_when_all_nodes_agree)
{
    struct flow flow;
    start(&flow, 3);
    up(&flow, 3);
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, CREATE, NULL, 0, NULL, &result, NULL));
    ck_assert_int_eq(cqlring_result_schema_agreed(result), 1);
    cqlring_bytes change;
    ck_assert(cqlring_result_schema_change(result, &change, NULL, NULL, NULL));
    cqlring_result *copy = cqlring_result_detach(result);
    ck_assert_int_eq(cqlring_result_schema_agreed(copy), 1);
    cqlring_result_release(copy);
    cqlring_result_release(result);
    /* what changes nothing waits for nothing */
    flow_ok(ask_text(&flow, "SELECT k FROM ks.more", NULL, 0, NULL, &result, NULL));
    ck_assert_int_eq(cqlring_result_schema_agreed(result), -1);
    cqlring_result_release(result);
    ck_assert_int_eq(cqlring_result_schema_agreed(NULL), -1);
    flow_close(&flow);
}
END_TEST

START_TEST(it_waits_for_a_node_that_is_behind)
{
    struct flow flow;
    start(&flow, 3);
    flow.options.schema_agreement_us = 60000000;
    up(&flow, 3);
    uint32_t behind = other_node(&flow);
    node_schema_lag(flow.node, behind, NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    watch_for(&flow, has_polled, NULL);
    watch_pass(&flow, 300);
    ck_assert(!cqlring_future_ready(future));
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"); /* nobody else waits */
    node_schema_lag(flow.node, behind, NODE_LAG_NONE);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(the_wait_ends_and_the_result_says_that_they_did_not_agree)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = 300000;
    up(&flow, 2);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 0);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(the_wait_can_be_switched_off)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = -1;
    up(&flow, 2);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), -1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(a_cancel_ends_the_wait_and_the_answer_stands)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = 60000000;
    up(&flow, 2);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    watch_for(&flow, has_polled, NULL);
    cqlring_future_cancel(future);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 0);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(a_close_ends_the_wait)
{
    for (int64_t drain = 0; drain < 200001; drain += 200000) {
        struct flow flow;
        start(&flow, 2);
        flow.options.schema_agreement_us = 60000000;
        up(&flow, 2);
        node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
        cqlring_future *future = ask_start(&flow, CREATE, NULL), *wait = NULL, *close = NULL;
        watch_for(&flow, has_polled, NULL);
        flow_ok(cqlring_schema_agree(flow.cluster, 60000000, &wait, NULL));
        flow_ok(cqlring_cluster_close(flow.cluster, drain, &close, NULL));
        flow_ok(ask_end(close, NULL));
        flow_ok(ask_wait(future, NULL));
        ck_assert_int_eq(agreed(future), 0);
        ck_assert_int_eq(ask_end(wait, NULL), CQLRING_CLOSED);
        cqlring_future_release(future);
        flow_close(&flow);
    }
}
END_TEST

/* The wait goes on over the next control connection. */
START_TEST(sc_02_the_control_connection_is_cut_during_the_wait)
{
    struct flow flow;
    start(&flow, 3);
    flow.options.schema_agreement_us = 60000000;
    up(&flow, 3);
    node_schema_lag(flow.node, 2, NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    watch_for(&flow, has_polled, NULL);
    struct node_conn_info on = control(&flow);
    node_cut(flow.node, on.node, on.conn);
    watch_for(&flow, watch_logged, "the control connection is lost");
    ck_assert(!cqlring_future_ready(future));
    node_schema_lag(flow.node, 2, NODE_LAG_NONE);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

/* No control connection can be had at all: the time-out of the wait is the asking lane's own. */
START_TEST(sc_02_the_control_connection_never_comes_back)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = 1000000;
    up(&flow, 2);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL), *wait = NULL;
    watch_for(&flow, has_polled, NULL); /* so it was made, and they differ */
    flow_ok(cqlring_schema_agree(flow.cluster, 500000, &wait, NULL));
    flow_fault(&flow, "ignore:opcode=OPTIONS");
    struct node_conn_info on = control(&flow);
    node_cut(flow.node, on.node, on.conn);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 0);
    ck_assert_int_eq(ask_end(wait, NULL), CQLRING_TIMEOUT);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_of_the_control_connection_that_freezes_does_not_hold_the_answer)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = 1000000;
    up(&flow, 2);
    uint32_t other = other_node(&flow), on = 1 - other;
    node_schema_lag(flow.node, other, NODE_LAG_BEHIND);
    const cqlring_node *nodes[2], *target = NULL;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 2), 2);
    for (int i = 0; i < 2; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (strcmp(info.address, ask_address(&flow, other)) == 0)
            target = nodes[i];
    }
    cqlring_execution how = {.struct_size = sizeof how, .target = target};
    cqlring_future *future = ask_start(&flow, CREATE, &how);
    watch_for(&flow, has_polled, NULL);
    node_freeze(flow.node, on, -1);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 0);
    cqlring_future_release(future);
    node_freeze(flow.node, on, 0);
    flow_close(&flow);
}
END_TEST

/* Who is down, in another datacenter that nobody talks to, or names no version at all: none of them counts. */
START_TEST(sc_03_a_node_that_is_down_does_not_count)
{
    struct flow flow;
    start(&flow, 3);
    flow.options.schema_agreement_us = 60000000;
    up(&flow, 3);
    uint32_t down = control(&flow).node == 2 ? 1 : 2;
    node_schema_lag(flow.node, down, NODE_LAG_BEHIND);
    node_down(flow.node, down, false);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(sc_03_a_node_without_a_version_does_not_count)
{
    struct flow flow;
    start(&flow, 3);
    flow.options.schema_agreement_us = 60000000;
    up(&flow, 3);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_SILENT);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(sc_03_an_ignored_node_of_another_datacenter_does_not_count)
{
    struct flow flow;
    flow_init(&flow);
    static const char *const dcs[] = {"dc1", "dc1", "dc2"};
    flow.node_options.nodes = 3;
    flow.node_options.dcs = dcs;
    flow.options.local_datacenter = "dc1";
    flow.options.schema_agreement_us = 60000000;
    flow_start(&flow);
    flow_open(&flow);
    node_schema_lag(flow.node, 2, NODE_LAG_BEHIND);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

/* It is where its peers reach it, so it is connected to, and counts as any other: with peers_v2 and without. */
START_TEST(sc_03_nodes_that_tell_clients_0_0_0_0_agree_too)
{
    for (int i = 0; i < 2; i++) {
        struct flow flow;
        flow_init(&flow);
        flow.node_options.nodes = 3;
        flow.node_options.shards = (uint32_t)i; /* a ScyllaDB has no peers_v2 */
        flow.node_options.rpc_unspecified = true;
        flow.options.schema_agreement_us = 1000000;
        flow_start(&flow);
        up(&flow, 3);
        for (int round = 0; round < 2; round++) {
            if (round == 1)
                node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
            cqlring_future *future = ask_start(&flow, round == 0 ? CREATE : "CREATE TABLE ks.another (k int PRIMARY KEY)", NULL);
            flow_ok(ask_wait(future, NULL));
            ck_assert_int_eq(agreed(future), round == 0);
            cqlring_future_release(future);
        }
        flow_close(&flow);
    }
}
END_TEST

/* The desk is on the first lane, whoever asks on any. */
START_TEST(every_lane_can_wait)
{
    enum { COUNT = 8 };
    struct flow flow;
    start(&flow, 2);
    flow.runtime_options.lanes = flow.threads == CQLRING_THREADS_CALLER ? 1 : 2;
    flow.options.schema_agreement_us = 600000;
    up(&flow, 2);
    cqlring_future *futures[COUNT];
    char cql[100];
    for (int round = 0; round < 3; round++) {
        if (round == 1) /* these give up */
            node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
        if (round == 2) {
            node_schema_lag(flow.node, 0, NODE_LAG_NONE);
            node_schema_lag(flow.node, 1, NODE_LAG_NONE);
        }
        for (int i = 0; i < COUNT; i++) {
            snprintf(cql, sizeof cql, "CREATE TABLE ks.made_%d_%d (k int PRIMARY KEY)", round, i);
            futures[i] = ask_start(&flow, cql, NULL);
        }
        for (int i = 0; i < COUNT; i++) {
            flow_ok(ask_wait(futures[i], NULL));
            if (round == 1)
                ck_assert_int_eq(agreed(futures[i]), 0);
            else
                ck_assert_int_ge(agreed(futures[i]), 0); /* 1, but for a machine that is slow */
            cqlring_future_release(futures[i]);
        }
    }
    flow_close(&flow);
}
END_TEST

START_TEST(agreement_can_be_asked_for)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = -1; /* says nothing about this */
    up(&flow, 2);
    uint32_t behind = other_node(&flow);
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_agree(flow.cluster, 0, &future, NULL));
    flow_ok(ask_end(future, NULL));
    node_schema_lag(flow.node, behind, NODE_LAG_BEHIND);
    flow_cql(&flow, CREATE);
    cqlring_error error;
    flow_ok(cqlring_schema_agree(flow.cluster, 200000, &future, NULL));
    ck_assert_int_eq(ask_end(future, &error), CQLRING_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(error.message, "schema_version"));
    flow_ok(cqlring_schema_agree(flow.cluster, 60000000, &future, NULL));
    node_schema_lag(flow.node, behind, NODE_LAG_NONE);
    flow_ok(ask_end(future, NULL));
    ck_assert_int_eq(cqlring_schema_agree(flow.cluster, -1, &future, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_schema_agree(NULL, 0, &future, &error), CQLRING_INVALID);
    flow_close(&flow);
}
END_TEST

/* Before Cassandra 4.0 there is one table of peers only. */
START_TEST(agreement_without_peers_v2)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow.node_options.shards = 1;
    flow_start(&flow);
    up(&flow, 2);
    cqlring_future *future = ask_start(&flow, CREATE, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_int_eq(agreed(future), 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(ml_03_many_changes_that_nobody_agrees_on_keep_no_memory)
{
    struct flow flow;
    start(&flow, 2);
    flow.options.schema_agreement_us = 1000;
    up(&flow, 2);
    node_schema_lag(flow.node, other_node(&flow), NODE_LAG_BEHIND);
    cqlring_future *futures[100], *waits[100];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 100; i++)
            flow_ok(cqlring_schema_agree(flow.cluster, 1000, &waits[i], NULL));
        for (int i = 0; i < 100; i++)
            futures[i] = ask_start(&flow, i % 2 == 0 ? "CREATE TABLE IF NOT EXISTS ks.more (k int PRIMARY KEY)" : "DROP TABLE IF EXISTS ks.more", NULL);
        for (int i = 0; i < 100; i++) {
            flow_ok(ask_end(futures[i], NULL));
            (void)ask_end(waits[i], NULL);
        }
    }
    flow_close(&flow); /* which counts */
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
    struct flow flow;
    cqlring_error error;
    start(&flow, 1);
    flow.options.schema_agreement_us = -2;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "schema_agreement_us"));
    flow.options.schema_agreement_us = 0;
    flow.options.schema_metadata = (cqlring_tristate)3;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "schema_metadata"));
    flow.options.schema_metadata = CQLRING_DEFAULT;
    flow_open(&flow);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema_agreement");
    TCase *tcase = tcase_create("schema_agreement");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_change_of_the_schema_is_answered_when_all_nodes_agree);
    tcase_add_test(tcase, it_waits_for_a_node_that_is_behind);
    tcase_add_test(tcase, the_wait_ends_and_the_result_says_that_they_did_not_agree);
    tcase_add_test(tcase, the_wait_can_be_switched_off);
    tcase_add_test(tcase, a_cancel_ends_the_wait_and_the_answer_stands);
    tcase_add_test(tcase, a_close_ends_the_wait);
    tcase_add_test(tcase, sc_02_the_control_connection_is_cut_during_the_wait);
    tcase_add_test(tcase, sc_02_the_control_connection_never_comes_back);
    tcase_add_test(tcase, a_node_of_the_control_connection_that_freezes_does_not_hold_the_answer);
    tcase_add_test(tcase, sc_03_a_node_that_is_down_does_not_count);
    tcase_add_test(tcase, sc_03_a_node_without_a_version_does_not_count);
    tcase_add_test(tcase, sc_03_an_ignored_node_of_another_datacenter_does_not_count);
    tcase_add_test(tcase, sc_03_nodes_that_tell_clients_0_0_0_0_agree_too);
    tcase_add_test(tcase, every_lane_can_wait);
    tcase_add_test(tcase, agreement_can_be_asked_for);
    tcase_add_test(tcase, agreement_without_peers_v2);
    tcase_add_test(tcase, ml_03_many_changes_that_nobody_agrees_on_keep_no_memory);
    tcase_add_test(tcase, options_out_of_range_are_refused);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
