/* SPDX-License-Identifier: Apache-2.0 */

/* A node comes back, or is new: the statements that the application holds are prepared there before rows need them. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"
#include "serialize/mem.h"

enum { MANY = 200 };

static void up(struct flow *flow, int version, uint32_t nodes)
{
    flow_init(flow);
    ask_record(flow);
    flow->options.protocol_version = version;
    flow->node_options.nodes = nodes;
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
}

static void prepare_many(struct flow *flow, cqlring_prepared **select, int count)
{
    for (int i = 0; i < count; i++) {
        char text[80];
        snprintf(text, sizeof text, "SELECT v FROM ks.t WHERE k = ? LIMIT %d", i + 1);
        select[i] = flow_prepare(flow, text);
    }
}

static void release_many(cqlring_prepared **select, int count)
{
    for (int i = 0; i < count; i++)
        cqlring_prepared_release(select[i]);
}

static bool is_away(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && !info.is_up;
}

static bool is_back(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && info.is_up;
}

static bool ahead_counted(struct flow *flow, void *count)
{
    return flow_stats(flow).prepared_ahead >= *(uint64_t *)count;
}

static uint32_t prepares_at(uint32_t node)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < ask_seen_count(OPCODE_PREPARE); i++)
        seen += ask_seen_at(OPCODE_PREPARE, i).node == node;
    return seen;
}

static bool prepares_seen_at_1(struct flow *flow, void *count)
{
    (void)flow;
    return prepares_at(1) >= *(uint32_t *)count;
}

/* Away and back, without the statements that it knew. */
static void restart(struct flow *flow, uint32_t node)
{
    node_down(flow->node, node, true);
    watch_for(flow, is_away, &node);
    ask_record_clear();
    node_up(flow->node, node, true);
}

static const cqlring_node *node_of(struct flow *flow, uint32_t node)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        char address[64];
        cqlring_node_describe(nodes[i], &info);
        snprintf(address, sizeof address, "%s:%u", node_address(flow->node, node), node_port(flow->node, node));
        if (strcmp(info.address, address) == 0)
            return nodes[i];
    }
    ck_abort_msg("node %u is not known", node);
}

/* Each statement on that node: none may be unknown there. */
static void none_is_unknown(struct flow *flow, cqlring_prepared **select, int count, uint32_t node)
{
    struct node_counters before, after;
    node_counters(flow->node, node, &before);
    cqlring_execution how = {.struct_size = sizeof how, .target = node_of(flow, node)};
    cqlring_bytes key = flow_bigint(1);
    for (int i = 0; i < count; i++)
        flow_ok(ask_prepared(flow, select[i], &key, 1, &how, NULL, NULL));
    node_counters(flow->node, node, &after);
    ck_assert_uint_eq(after.unprepared, before.unprepared);
}

START_TEST(a_node_that_comes_back_knows_every_statement_before_a_row_needs_it)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    up(&flow, _i, 2);
    prepare_many(&flow, select, MANY);
    ck_assert_uint_eq(flow_stats(&flow).prepared_ahead, 0); /* while all are there, nothing is done ahead */
    restart(&flow, 1);
    uint64_t all = MANY;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, MANY, 1);
    ck_assert_uint_eq(prepares_at(1), MANY);
    ck_assert_uint_eq(prepares_at(0), 0);
    ck_assert_uint_eq(flow_stats(&flow).prepared_ahead, MANY);
    ck_assert_uint_eq(flow_stats(&flow).reprepares, 0);
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

static bool all_ready(struct flow *flow, void *count)
{
    cqlring_connection_info connections[16];
    return cqlring_cluster_connections(flow->cluster, connections, 16) == *(uint64_t *)count;
}

static void up_for_all(struct flow *flow, int version)
{
    flow_init(flow);
    ask_record(flow);
    flow->options.protocol_version = version;
    flow->options.prepare_on_all = CQLRING_YES;
    flow->node_options.nodes = 3;
    if (flow->threads != CQLRING_THREADS_CALLER)
        flow->runtime_options.lanes = 2; /* the one that asks does it for both */
    flow_start(flow);
    flow_open(flow);
    uint64_t ready = 1 + 3 * (flow->threads != CQLRING_THREADS_CALLER ? 2 : 1);
    watch_for(flow, all_ready, &ready);
}

/* Whichever node was asked first, each is asked once, and no row finds it unknown anywhere. */
START_TEST(a_new_statement_goes_to_all_nodes_once_each)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    up_for_all(&flow, _i);
    prepare_many(&flow, select, MANY);
    uint64_t all = 2 * MANY;
    watch_for(&flow, ahead_counted, &all);
    for (uint32_t node = 0; node < 3; node++) {
        ck_assert_uint_eq(prepares_at(node), MANY);
        none_is_unknown(&flow, select, MANY, node);
    }
    ck_assert_uint_eq(flow_stats(&flow).reprepares, 0);
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

/* A node that does not answer, and a close in the middle, keep nobody: the statement is there with the first answer. */
START_TEST(a_new_statement_does_not_wait_for_all_nodes)
{
    struct flow flow;
    cqlring_prepared *select[20];
    up_for_all(&flow, 5);
    node_silence(flow.node, 2, true);
    flow.session_options.keyspace = NULL;
    for (int i = 0; i < 20; i++) {
        char text[80];
        snprintf(text, sizeof text, "SELECT v FROM ks.t WHERE k = ? LIMIT %d", i + 1);
        cqlring_error error;
        cqlring_status status;
        do { /* the silent one may have been asked first: its time-out is not what is looked at here */
            cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 500000};
            cqlring_future *future = NULL;
            flow_ok(cqlring_prepare(flow.session, cqlring_text(text), &how, &future, &error));
            status = ask_wait(future, &error);
            select[i] = status == CQLRING_OK ? cqlring_future_prepared(future) : NULL;
            cqlring_future_release(future);
        } while (status == CQLRING_TIMEOUT);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    }
    release_many(select, 20);
    flow_close(&flow); /* with those to the silent node under way */
}
END_TEST

START_TEST(a_new_node_is_told_of_the_statements_too)
{
    struct flow flow;
    cqlring_prepared *select[20];
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 3;
    flow_start(&flow);
    node_leave(flow.node, 2, false);
    flow_open(&flow);
    uint32_t two = 2;
    watch_for(&flow, watch_all_up, &two);
    prepare_many(&flow, select, 20);
    ask_record_clear();
    node_join(flow.node, 2, true);
    uint64_t all = 20;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, 20, 2);
    ck_assert_uint_eq(prepares_at(2), 20);
    release_many(select, 20);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_15_so_many_at_once_and_no_more_and_requests_go_on)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    uint32_t at_once = 16;
    up(&flow, _i, 2);
    prepare_many(&flow, select, MANY);
    flow_fault(&flow, "late:opcode=PREPARE,node=1,delay_us=400000");
    restart(&flow, 1);
    watch_for(&flow, prepares_seen_at_1, &at_once);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_of(&flow, 1)};
    for (int i = 0; i < 5; i++)
        flow_ok(ask_text(&flow, "SELECT count(*) FROM ks.t", NULL, 0, &there, NULL, NULL));
    ck_assert_uint_eq(prepares_at(1), at_once);
    node_fault_remove(flow.node, 0);
    uint64_t all = MANY;
    watch_for(&flow, ahead_counted, &all);
    ck_assert_uint_eq(prepares_at(1), MANY);
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

/* Single flight: the row waits for the PREPARE that is under way, one whose turn has not come goes first. */
START_TEST(rows_that_are_faster_join_in_and_each_statement_is_still_prepared_once)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    cqlring_future *futures[MANY];
    uint32_t at_once = 16;
    up(&flow, _i, 2);
    prepare_many(&flow, select, MANY);
    flow_fault(&flow, "late:opcode=PREPARE,node=1,delay_us=100000");
    restart(&flow, 1);
    watch_for(&flow, prepares_seen_at_1, &at_once);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_of(&flow, 1), .timeout_us = 60000000};
    cqlring_bytes key = flow_bigint(1);
    for (int i = 0; i < MANY; i++)
        futures[i] = ask_start_prepared(&flow, select[i], &key, 1, &there);
    for (int i = 0; i < MANY; i++)
        flow_ok(ask_end(futures[i], NULL));
    ck_assert_uint_eq(prepares_at(1), MANY);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.prepared_ahead + stats.reprepares, MANY);
    ck_assert_uint_ge(stats.prepared_ahead, at_once);
    ck_assert_uint_ge(stats.reprepares, 1);
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_do_not_wait_for_it_elsewhere)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    uint32_t at_once = 16;
    up(&flow, 5, 2);
    prepare_many(&flow, select, MANY);
    flow_fault(&flow, "ignore:opcode=PREPARE,node=1");
    restart(&flow, 1);
    watch_for(&flow, prepares_seen_at_1, &at_once);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_of(&flow, 0), .timeout_us = 2000000 * WATCH_SLOW};
    cqlring_bytes key = flow_bigint(1);
    for (int i = 0; i < MANY; i++)
        flow_ok(ask_prepared(&flow, select[i], &key, 1, &there, NULL, NULL));
    ck_assert_uint_le(prepares_at(1), at_once); /* none was answered: no further ones */
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

START_TEST(switched_off_a_statement_is_prepared_when_a_row_needs_it)
{
    struct flow flow;
    cqlring_prepared *select[20];
    flow_init(&flow);
    ask_record(&flow);
    flow.options.prepare_on_up = CQLRING_NO;
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    prepare_many(&flow, select, 20);
    restart(&flow, 1);
    uint32_t node = 1;
    watch_for(&flow, is_back, &node);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_of(&flow, 1)};
    cqlring_bytes key = flow_bigint(1);
    flow_ok(ask_prepared(&flow, select[7], &key, 1, &there, NULL, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    ck_assert_uint_eq(flow_stats(&flow).prepared_ahead, 0);
    ck_assert_uint_eq(flow_stats(&flow).reprepares, 1);
    release_many(select, 20);
    cqlring_cluster *cluster = NULL;
    cqlring_error error;
    flow.options.prepare_on_up = (cqlring_tristate)7;
    ck_assert_int_eq(cqlring_cluster_open_sync(flow.runtime, &flow.options, &cluster, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "prepare_on_up 7"));
    flow_close(&flow);
}
END_TEST

START_TEST(what_was_let_go_is_not_prepared_and_what_cannot_be_keeps_nothing_up)
{
    struct flow flow;
    cqlring_prepared *select[40];
    up(&flow, _i, 2);
    prepare_many(&flow, select, 40);
    flow_cql(&flow, "CREATE TABLE ks.gone (k int PRIMARY KEY)");
    cqlring_prepared *gone = flow_prepare(&flow, "INSERT INTO ks.gone (k) VALUES (?)");
    flow_cql(&flow, "DROP TABLE ks.gone");
    release_many(select + 10, 30);
    restart(&flow, 1);
    uint64_t all = 10;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, 10, 1);
    uint32_t eleven = 11;
    watch_for(&flow, prepares_seen_at_1, &eleven);
    ask_pass(&flow, 50);
    ck_assert_uint_eq(prepares_at(1), eleven);
    ck_assert_uint_eq(flow_stats(&flow).prepared_ahead, 10);
    cqlring_prepared_release(gone);
    release_many(select, 10);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_07_each_is_prepared_in_its_own_keyspace)
{
    struct flow flow;
    up(&flow, _i, 2);
    flow_cql(&flow, "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    flow_cql(&flow, "CREATE TABLE k2.t (k bigint PRIMARY KEY, n int)");
    cqlring_session *sessions[2];
    cqlring_prepared *inserts[2];
    for (int i = 0; i < 2; i++) {
        cqlring_session_options options = {.struct_size = sizeof options, .keyspace = i == 0 ? "ks" : "k2"};
        flow_ok(cqlring_session_open_sync(flow.cluster, &options, &sessions[i], NULL));
        flow_ok(cqlring_prepare_sync(sessions[i], i == 0 ? "INSERT INTO t (k, v) VALUES (?, ?)" : "INSERT INTO t (k, n) VALUES (?, ?)", &inserts[i], NULL));
    }
    restart(&flow, 1);
    uint64_t both = 2;
    watch_for(&flow, ahead_counted, &both);
    struct node_counters before, after;
    node_counters(flow.node, 1, &before);
    cqlring_execution there = {.struct_size = sizeof there, .target = node_of(&flow, 1)};
    for (int i = 0; i < 2; i++) {
        cqlring_bytes values[2] = {flow_bigint(1), i == 0 ? cqlring_text("v") : flow_int(1)};
        cqlring_request request = {.session = sessions[i], .prepared = inserts[i], .values = values, .value_count = 2, .execution = &there};
        flow_ok(cqlring_execute_sync(&request, NULL, NULL));
    }
    node_counters(flow.node, 1, &after);
    ck_assert_uint_eq(after.unprepared, before.unprepared);
    ck_assert_uint_eq(prepares_at(1), 2);
    for (int i = 0; i < 2; i++) {
        cqlring_session_release(sessions[i]);
        cqlring_prepared_release(inserts[i]);
    }
    flow_close(&flow);
}
END_TEST

/* On v5 the PREPARE names the keyspace of a statement whose session is closed; on v4 it has to wait for a row. */
START_TEST(one_whose_session_is_closed_is_prepared_where_its_keyspace_can_be_named)
{
    struct flow flow;
    up(&flow, _i, 2);
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
    cqlring_session *session = NULL;
    cqlring_prepared *insert = NULL, *other = flow_prepare(&flow, FLOW_SELECT);
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &session, NULL));
    flow_ok(cqlring_prepare_sync(session, "INSERT INTO t (k, v) VALUES (?, ?)", &insert, NULL));
    flow_ok(cqlring_session_close(session, 0, NULL, NULL));
    cqlring_session_release(session);
    restart(&flow, 1);
    uint64_t expected = _i == 5 ? 2 : 1;
    watch_for(&flow, ahead_counted, &expected);
    ask_pass(&flow, 50);
    ck_assert_uint_eq(prepares_at(1), expected);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(other);
    flow_close(&flow);
}
END_TEST

START_TEST(a_connection_lost_in_the_middle_begins_anew)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    uint32_t at_once = 16;
    up(&flow, _i, 2);
    prepare_many(&flow, select, MANY);
    flow_fault(&flow, "late:opcode=PREPARE,node=1,delay_us=20000000");
    restart(&flow, 1);
    watch_for(&flow, prepares_seen_at_1, &at_once);
    node_fault_remove(flow.node, 0);
    node_cut(flow.node, 1, 0);
    uint64_t all = MANY;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, MANY, 1);
    ck_assert_uint_eq(flow_stats(&flow).prepared_ahead, MANY);
    release_many(select, MANY);
    flow_close(&flow);
}
END_TEST

START_TEST(a_close_in_the_middle_leaves_nothing)
{
    struct flow flow;
    cqlring_prepared *select[MANY];
    uint32_t at_once = 16;
    up(&flow, 5, 2);
    prepare_many(&flow, select, MANY);
    flow_fault(&flow, "late:opcode=PREPARE,node=1,delay_us=20000000");
    restart(&flow, 1);
    watch_for(&flow, prepares_seen_at_1, &at_once);
    release_many(select, MANY);
    flow_close(&flow); /* which looks for what is left */
}
END_TEST

/* One connection that has no room for it: the rows' window fills it, and the statements come through all the same. */
START_TEST(on_a_connection_full_of_requests_they_take_their_turn)
{
    struct flow flow;
    cqlring_prepared *select[40];
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 1;
    flow.options.inflight_per_connection = 2;
    flow_start(&flow);
    flow_open(&flow);
    prepare_many(&flow, select, 40);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 20000, 16);
    flow_sink_init(&sink, 20000);
    rows.later_at = 1000;
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .timeout_us = 60000000};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 512, .execution = &how};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    flow_until(job, &rows.later_said);
    restart(&flow, 0);
    cqlring_job_poke(job);
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(sink.failed, 0);
    uint64_t all = 40;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, 40, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    release_many(select, 40);
    flow_close(&flow);
}
END_TEST

/* What one connection prepares, all shards of the node know. */
START_TEST(st_25_a_node_with_shards_is_asked_once_for_each_statement)
{
    struct flow flow;
    cqlring_prepared *select[20];
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 1;
    flow.node_options.shards = 4;
    flow_start(&flow);
    flow_open(&flow);
    prepare_many(&flow, select, 20);
    restart(&flow, 0);
    uint64_t all = 20;
    watch_for(&flow, ahead_counted, &all);
    ck_assert_uint_eq(prepares_at(0), 20);
    /* and when rows find it out, on whatever connection they are */
    struct flow_rows rows;
    struct flow_sink sink;
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_connection_info connections[8];
    for (int i = 0; i < 1000 && cqlring_cluster_connections(flow.cluster, connections, 8) < 5; i++)
        ask_pass(&flow, 20);
    flow_fault(&flow, "late:opcode=PREPARE,delay_us=50000"); /* until rows have found it out on all of them */
    node_forget_prepared(flow.node, NODE_ALL);
    ask_record_clear();
    flow_rows_init(&rows, 200, 16);
    flow_sink_init(&sink, 200);
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    ck_assert_uint_eq(sink.failed, 0);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    release_many(select, 20);
    flow_close(&flow);
}
END_TEST

/* Several lanes, several connections: still once. */
START_TEST(lanes_do_not_ask_for_the_same)
{
    struct flow flow;
    cqlring_prepared *select[20];
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 2;
    if (flow.threads != CQLRING_THREADS_CALLER)
        flow.runtime_options.lanes = 3;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    prepare_many(&flow, select, 20);
    restart(&flow, 1);
    uint64_t all = 20;
    watch_for(&flow, ahead_counted, &all);
    none_is_unknown(&flow, select, 20, 1);
    ck_assert_uint_eq(prepares_at(1), 20);
    release_many(select, 20);
    flow_close(&flow);
}
END_TEST

/* While a node comes back the first, second, third … allocation fails: its statements work, or say NO_MEMORY, and nothing is left. */
START_TEST(each_allocation_fails_in_turn_while_a_node_comes_back)
{
    struct flow flow;
    cqlring_prepared *select[5];
    flow_init(&flow);
    ask_record(&flow);
    flow.options.reconnect_min_us = 1000;
    flow.options.reconnect_max_us = 20000;
    flow_start(&flow);
    flow_open(&flow);
    prepare_many(&flow, select, 5);
    uint64_t failed = 1;
    cqlring_bytes key = flow_bigint(1);
    for (uint64_t n = 1; failed > 0; n++) {
        uint32_t node = 0;
        ck_assert_uint_lt(n, 1000);
        node_down(flow.node, 0, true);
        watch_for(&flow, is_away, &node);
        cqr_mem_fail_at(n, 0);
        node_up(flow.node, 0, true);
        watch_for(&flow, is_back, &node);
        for (int i = 0; i < 5; i++) {
            cqlring_error error;
            cqlring_status status = ask_prepared(&flow, select[i], &key, 1, NULL, NULL, &error);
            ck_assert_msg(status == CQLRING_OK || status == CQLRING_NO_MEMORY, "%s: %s", cqlring_status_name(status), error.message);
        }
        failed = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
    }
    uint64_t some = 5;
    ck_assert(ahead_counted(&flow, &some));
    release_many(select, 5);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepare_ahead");
    TCase *test = tcase_create("prepare_ahead");
    tcase_set_timeout(test, 120);
    tcase_add_loop_test(test, a_node_that_comes_back_knows_every_statement_before_a_row_needs_it, 4, 6);
    tcase_add_loop_test(test, a_new_statement_goes_to_all_nodes_once_each, 4, 6);
    tcase_add_test(test, a_new_statement_does_not_wait_for_all_nodes);
    tcase_add_test(test, a_new_node_is_told_of_the_statements_too);
    tcase_add_loop_test(test, ps_15_so_many_at_once_and_no_more_and_requests_go_on, 4, 6);
    tcase_add_loop_test(test, rows_that_are_faster_join_in_and_each_statement_is_still_prepared_once, 4, 6);
    tcase_add_test(test, rows_do_not_wait_for_it_elsewhere);
    tcase_add_test(test, switched_off_a_statement_is_prepared_when_a_row_needs_it);
    tcase_add_loop_test(test, what_was_let_go_is_not_prepared_and_what_cannot_be_keeps_nothing_up, 4, 6);
    tcase_add_loop_test(test, ps_07_each_is_prepared_in_its_own_keyspace, 4, 6);
    tcase_add_loop_test(test, one_whose_session_is_closed_is_prepared_where_its_keyspace_can_be_named, 4, 6);
    tcase_add_loop_test(test, a_connection_lost_in_the_middle_begins_anew, 4, 6);
    tcase_add_test(test, a_close_in_the_middle_leaves_nothing);
    tcase_add_test(test, on_a_connection_full_of_requests_they_take_their_turn);
    tcase_add_test(test, st_25_a_node_with_shards_is_asked_once_for_each_statement);
    tcase_add_test(test, lanes_do_not_ask_for_the_same);
    tcase_add_test(test, each_allocation_fails_in_turn_while_a_node_comes_back);
    suite_add_tcase(suite, test);
    return flow_main(suite);
}
