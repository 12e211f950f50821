/* SPDX-License-Identifier: Apache-2.0 */

/* Several nodes: rows go to their replicas, and nothing is lost when a node is cut off, killed, frozen or comes back. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

static void cluster_up(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    flow->node_options.nodes = nodes;
    flow_start(flow);
}

static bool all_connected(const struct node_counters *all, void *context)
{
    return all->ready >= *(uint64_t *)context;
}

/* The control connection and one to each node. */
static void await_connections(struct flow *flow, uint64_t count)
{
    for (int round = 0; round < 200; round++) {
        const cqlring_node *nodes[64];
        uint32_t known = cqlring_cluster_nodes(flow->cluster, nodes, 64), up = 0;
        for (uint32_t i = 0; i < known; i++) {
            cqlring_node_info info;
            cqlring_node_describe(nodes[i], &info);
            up += info.is_up;
        }
        if (up >= count)
            return;
        flow_cql(flow, "SELECT key FROM system.local"); /* gives the turns time in caller mode */
        uint64_t ready = count + 1;
        node_wait(flow->node, all_connected, 20, &ready);
    }
    ck_abort_msg("not every node was connected");
}

START_TEST(every_row_goes_to_a_replica)
{
    for (int rf = 1; rf <= 3; rf += 2) {
        struct flow flow;
        cluster_up(&flow, 3);
        flow_open(&flow);
        await_connections(&flow, 3);
        char cql[200];
        snprintf(cql, sizeof cql, "CREATE KEYSPACE r WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': %d}", rf);
        flow_cql(&flow, cql);
        flow_cql(&flow, "CREATE TABLE r.t (k bigint PRIMARY KEY, v blob)");
        cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO r.t (k, v) VALUES (?, ?)");
        /* the keyspace is new: the driver learns of its replication by the event, after a short wait */
        struct node_counters counters;
        uint64_t misses = UINT64_MAX;
        for (int round = 0; round < 40 && misses > 0; round++) {
            struct flow_rows rows;
            flow_rows_init(&rows, 2000, 8);
            node_counters_reset(flow.node);
            flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
            flow_rows_fini(&rows);
            node_counters(flow.node, NODE_ALL, &counters);
            misses = counters.replica_misses;
            uint64_t never = UINT64_MAX;
            if (misses > 0)
                node_wait(flow.node, all_connected, 100, &never);
        }
        ck_assert_uint_eq(misses, 0);
        ck_assert_uint_eq(counters.replica_hits, 2000);
        for (uint32_t node = 0; node < 3; node++) {
            node_counters(flow.node, node, &counters);
            ck_assert_uint_gt(counters.opcodes[OPCODE_EXECUTE], 100);
        }
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

struct disturb {
    struct flow *flow;
    uint64_t at;
    int what;
    bool done;
};

static void disturb(const cqlring_completion *completion, void *context)
{
    struct disturb *disturb = context;
    (void)completion;
    if (disturb->done || disturb->at-- > 0)
        return;
    disturb->done = true;
    switch (disturb->what) {
    case 0:
        node_down(disturb->flow->node, 1, true);
        break;
    case 1:
        node_freeze(disturb->flow->node, 1, 3500);
        break;
    case 2:
        node_cut(disturb->flow->node, NODE_ALL, 0);
        break;
    case 3:
        node_silence(disturb->flow->node, 1, true);
        break;
    default:
        break;
    }
}

static void disturbed(int what)
{
    struct flow flow;
    cluster_up(&flow, 3);
    flow.options.suspect_after_us = 400000;
    flow.options.connect_timeout_us = 1500000;
    flow_open(&flow);
    await_connections(&flow, 3);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 30000, 16);
    flow_sink_init(&sink, 30000);
    struct disturb plan = {.flow = &flow, .at = 8000, .what = what};
    sink.each = disturb;
    sink.context = &plan;
    cqlring_execution how = idempotent;
    how.attempt_timeout_us = 500000;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = 200};
    cqlring_summary summary;
    cqlring_error error = {0};
    cqlring_status status = flow_run(&flow, insert, &rows, &sink, &options, &summary, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_msg(sink.failed == 0, "%lu failed, the first: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(sink.last, 30000);
    ck_assert_uint_eq(sink.twice, 0);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 30000);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}

START_TEST(a_node_that_dies_in_the_middle_costs_no_row)
{
    disturbed(0);
}
END_TEST

START_TEST(a_node_that_freezes_in_the_middle_costs_no_row)
{
    disturbed(1);
}
END_TEST

START_TEST(all_connections_cut_at_once_cost_no_row)
{
    disturbed(2);
}
END_TEST

START_TEST(a_node_that_falls_silent_costs_no_row)
{
    disturbed(3);
}
END_TEST

START_TEST(rows_not_idempotent_are_not_sent_twice_and_say_maybe_applied)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 20000, 16);
    flow_sink_init(&sink, 20000);
    struct disturb plan = {.flow = &flow, .at = 5000, .what = 2};
    sink.each = disturb;
    sink.context = &plan;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 300};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
    ck_assert_uint_eq(sink.last, 20000);
    ck_assert_uint_le(sink.failed, 300);
    ck_assert_uint_eq(sink.failed, sink.maybe); /* those not sent were sent again */
    ck_assert_int_ge(node_table_rows(flow.node, "ks.t"), (int64_t)(20000 - sink.failed));
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_cluster_that_is_down_and_comes_back_is_used_again)
{
    struct flow flow;
    cluster_up(&flow, 1);
    flow.options.reconnect_max_us = 200000;
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    node_down(flow.node, 0, false);
    cqlring_error error;
    cqlring_result *result = NULL;
    cqlring_status status = CQLRING_OK;
    for (int i = 0; i < 100 && status != CQLRING_UNREACHABLE; i++)
        status = flow_try(&flow, "SELECT key FROM system.local", &result, &error);
    ck_assert_int_eq(status, CQLRING_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(error.message, node_address(flow.node, 0)));
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 1000, 16);
    flow_sink_init(&sink, 1000);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    ck_assert_int_eq(cqlring_future_wait(job, 100000, &error), CQLRING_TIMEOUT);
    node_up(flow.node, 0, false);
    flow_ok(cqlring_future_wait(job, 20000000, &error));
    ck_assert_uint_eq(sink.ok, 1000);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(lanes_share_a_job_of_several_sources)
{
    if (getenv("CQLRING_FLOW_THREADS") != NULL && strcmp(getenv("CQLRING_FLOW_THREADS"), "caller") == 0)
        return; /* one lane there */
    struct flow flow;
    flow_init(&flow);
    flow.runtime_options.lanes = 3;
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows[3];
    struct flow_sink sinks[3];
    cqlring_source sources[3];
    cqlring_sink outs[3];
    for (int i = 0; i < 3; i++) {
        flow_rows_init(&rows[i], 9000, 16);
        flow_sink_init(&sinks[i], 9000);
        rows[i].next = (uint64_t)i * 3000;
        rows[i].end = rows[i].next + 3000;
        sources[i] = flow_source(&rows[i]);
        outs[i] = flow_sink_of(&sinks[i]);
    }
    cqlring_future *job;
    cqlring_error error;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, sources, outs, 3, NULL, &job, &error));
    flow_ok(cqlring_future_wait(job, 20000000, &error));
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(summary.rows, 9000);
    ck_assert_uint_eq(summary.bytes_sent, 9000 * (4 + 8 + 4 + 16)); /* counted by each lane for itself: none is lost */
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 9000);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(sinks[i].last, 3000);
        flow_rows_fini(&rows[i]);
        flow_sink_fini(&sinks[i]);
    }
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster");
    TCase *tcase = tcase_create("cluster");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_row_goes_to_a_replica);
    tcase_add_test(tcase, a_node_that_dies_in_the_middle_costs_no_row);
    tcase_add_test(tcase, a_node_that_freezes_in_the_middle_costs_no_row);
    tcase_add_test(tcase, all_connections_cut_at_once_cost_no_row);
    tcase_add_test(tcase, a_node_that_falls_silent_costs_no_row);
    tcase_add_test(tcase, rows_not_idempotent_are_not_sent_twice_and_say_maybe_applied);
    tcase_add_test(tcase, a_cluster_that_is_down_and_comes_back_is_used_again);
    tcase_add_test(tcase, lanes_share_a_job_of_several_sources);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
