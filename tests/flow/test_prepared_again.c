/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes forget statements and schemas change: the driver prepares again by itself, and what it then knows replaces what it knew as
   one unit. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"
#include "serialize/mem.h"

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

static cqlring_session *session_in(struct flow *flow, const char *keyspace)
{
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = keyspace};
    cqlring_session *session = NULL;
    flow_ok(cqlring_session_open_sync(flow->cluster, &options, &session, NULL));
    return session;
}

/* Columns and cells belong together: as many cells a row as columns, and each is well formed for its type. */
static void is_sound(cqlring_result *result)
{
    cqlring_bytes cells[16];
    uint32_t columns = cqlring_result_column_count(result), count = 0;
    ck_assert_uint_le(columns, 16);
    for (uint32_t row = 0; row < cqlring_result_row_count(result); row++) {
        flow_ok(cqlring_result_rows(result, row, cells, 1, &count, NULL));
        ck_assert_uint_eq(count, 1);
        for (uint32_t i = 0; i < columns; i++) {
            cqlring_column column;
            ck_assert(cqlring_result_column(result, i, &column));
            flow_ok(cqlring_value_check(column.type, cells[i]));
        }
    }
}

/* ---- forgotten ---- */

START_TEST(a_forgotten_statement_is_prepared_again_unseen)
{
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    for (int i = 0; i < 3; i++) {
        node_forget_prepared(flow.node, NODE_ALL);
        cqlring_future *future = ask_start_prepared(&flow, insert, values, 2, NULL);
        flow_ok(ask_wait(future, NULL));
        ck_assert_uint_eq(cqlring_future_completion(future)->attempts, 2);
        cqlring_future_release(future);
        cqlring_result *result = NULL;
        flow_ok(ask_prepared(&flow, select, values, 1, NULL, &result, NULL));
        ck_assert(ask_is(ask_cell(result, 0, 0), "v"));
        cqlring_result_release(result);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2 + 6);
    ck_assert_uint_eq(flow_stats(&flow).reprepares, 6);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(a_storm_after_a_restart_is_one_prepare_per_node)
{
    struct flow flow;
    up(&flow, 5, 3);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    for (int round = 0; round < 2; round++) {
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 6000, 16);
        flow_sink_init(&sink, 6000);
        rows.later_at = 3000; /* a pause in the middle, in which all nodes forget it */
        cqlring_job_options options = {.struct_size = sizeof options, .window = 512};
        cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
        cqlring_summary summary = {0};
        while (cqlring_job_summary(job, &summary), summary.low_water < 3000)
            ck_assert_int_eq(cqlring_future_wait(job, 2000, NULL), CQLRING_TIMEOUT);
        node_forget_prepared(flow.node, NODE_ALL);
        ask_record_clear();
        cqlring_job_poke(job);
        flow_ok(ask_end(job, NULL));
        ck_assert_uint_eq(sink.last, 6000);
        ck_assert_uint_eq(sink.failed, 0);
        ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 3);
        bool seen[3] = {false};
        for (uint32_t i = 0; i < 3; i++)
            seen[ask_seen_at(OPCODE_PREPARE, i).node] = true;
        ck_assert(seen[0] && seen[1] && seen[2]);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 6000);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static bool prepares_seen(struct flow *flow, void *count)
{
    (void)flow;
    return ask_seen_count(OPCODE_PREPARE) >= *(uint32_t *)count;
}

/* So many are prepared again at once and no more, and other requests go on meanwhile. */
START_TEST(ps_15_a_node_that_has_forgotten_everything_is_not_asked_for_it_all_at_once)
{
    enum { STATEMENTS = 200 };
    uint32_t at_once = 32;
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *select[STATEMENTS];
    cqlring_future *futures[STATEMENTS];
    for (int i = 0; i < STATEMENTS; i++) {
        char text[80];
        snprintf(text, sizeof text, "SELECT v FROM ks.t WHERE k = ? LIMIT %d", i + 1);
        select[i] = flow_prepare(&flow, text);
    }
    node_forget_prepared(flow.node, NODE_ALL);
    ask_record_clear();
    flow_fault(&flow, "late:opcode=PREPARE,delay_us=400000");
    cqlring_bytes key = flow_bigint(1);
    for (int i = 0; i < STATEMENTS; i++)
        futures[i] = ask_start_prepared(&flow, select[i], &key, 1, NULL);
    watch_for(&flow, prepares_seen, &at_once);
    ck_assert_int_eq(ask_number(&flow, "SELECT count(*) FROM ks.t"), 0);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), at_once);
    node_fault_remove(flow.node, 0);
    for (int i = 0; i < STATEMENTS; i++)
        flow_ok(ask_end(futures[i], NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), STATEMENTS);
    for (int i = 0; i < STATEMENTS; i++)
        cqlring_prepared_release(select[i]);
    flow_close(&flow);
}
END_TEST

static bool prepares_seen_at_0(struct flow *flow, void *count)
{
    (void)flow;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < ask_seen_count(OPCODE_PREPARE); i++)
        seen += ask_seen_at(OPCODE_PREPARE, i).node == 0;
    return seen >= *(uint32_t *)count;
}

static bool has_issued(struct flow *flow, void *until)
{
    return flow_stats(flow).requests_issued >= *(uint64_t *)until;
}

/* Those of a connection that is lost, asked for or not yet, are asked for elsewhere. */
START_TEST(ps_15_a_connection_lost_meanwhile_costs_no_request)
{
    enum { STATEMENTS = 200 };
    uint32_t at_once = 32;
    struct flow flow;
    up(&flow, _i, 2);
    cqlring_prepared *select[STATEMENTS];
    cqlring_future *futures[STATEMENTS];
    for (int i = 0; i < STATEMENTS; i++) {
        char text[80];
        snprintf(text, sizeof text, "SELECT v FROM ks.t WHERE k = ? LIMIT %d", i + 1);
        select[i] = flow_prepare(&flow, text);
    }
    node_forget_prepared(flow.node, NODE_ALL);
    ask_record_clear();
    flow_fault(&flow, "late:opcode=PREPARE,node=0,delay_us=20000000");
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .timeout_us = 60000000};
    cqlring_bytes key = flow_bigint(1);
    uint64_t issued = flow_stats(&flow).requests_issued + STATEMENTS;
    node_freeze(flow.node, NODE_ALL, -1); /* all are under way before the first answer: later ones would go to the node that is not late */
    for (int i = 0; i < STATEMENTS; i++)
        futures[i] = ask_start_prepared(&flow, select[i], &key, 1, &how);
    watch_for(&flow, has_issued, &issued);
    node_freeze(flow.node, NODE_ALL, 0);
    watch_for(&flow, prepares_seen_at_0, &at_once);
    node_fault_remove(flow.node, 0);
    node_cut(flow.node, 0, 0);
    for (int i = 0; i < STATEMENTS; i++) {
        cqlring_error error = {0};
        cqlring_status status = ask_end(futures[i], &error);
        ck_assert_msg(status == CQLRING_OK, "%d: %s", i, error.message);
        cqlring_prepared_release(select[i]);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_never_knows_it_gives_an_error_and_not_an_endless_loop)
{
    struct flow flow;
    up(&flow, 5, 2);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "unprepared:opcode=EXECUTE");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    cqlring_error error;
    ck_assert_int_eq(ask_prepared(&flow, insert, values, 2, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2500);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_le(error.attempts, 12);
    node_fault_remove(flow.node, 0);
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, &error));
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(when_it_cannot_be_prepared_again_all_who_wait_get_the_servers_reason)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_cql(&flow, "CREATE TABLE ks.gone (k int PRIMARY KEY)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.gone (k) VALUES (?)");
    flow_cql(&flow, "DROP TABLE ks.gone");
    cqlring_future *futures[20];
    cqlring_bytes value = flow_int(1);
    for (int i = 0; i < 20; i++)
        futures[i] = ask_start_prepared(&flow, insert, &value, 1, NULL);
    for (int i = 0; i < 20; i++) {
        cqlring_error error;
        ck_assert_int_eq(ask_end(futures[i], &error), CQLRING_SERVER);
        ck_assert_int_eq(error.server_code, 0x2200);
        ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
        ck_assert_uint_eq(error.may_have_been_applied, 0);
        ck_assert_ptr_nonnull(strstr(error.message, "PREPARE to "));
    }
    flow_cql(&flow, "CREATE TABLE ks.gone (k int PRIMARY KEY)");
    flow_ok(ask_prepared(&flow, insert, &value, 1, NULL, NULL, NULL)); /* the handle comes to life again with its table */
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_time_out_and_a_cancel_while_it_is_prepared_again_were_not_sent)
{
    struct flow flow;
    up(&flow, 5, 2);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    const cqlring_node *nodes[2];
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 2), 2);
    node_forget_prepared(flow.node, NODE_ALL);
    flow_fault(&flow, "ignore:opcode=PREPARE,times=1");
    ask_record_clear();
    cqlring_execution soon = {.struct_size = sizeof soon, .timeout_us = 1000000, .target = nodes[0]}, there = {.struct_size = sizeof there, .target = nodes[0]};
    cqlring_future *timed = ask_start_prepared(&flow, insert, values, 2, &soon), *cancelled = ask_start_prepared(&flow, insert, values, 2, &there);
    cqlring_error error;
    ck_assert_int_eq(ask_end(timed, &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_eq(error.attempts, 1);
    ck_assert_msg(strstr(error.message, "prepared again") != NULL, "%s", error.message);
    cqlring_future_cancel(cancelled);
    ck_assert_int_eq(ask_end(cancelled, &error), CQLRING_CANCELLED);
    ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    /* one that still waits for that answer when the connection goes is taken by the other node */
    cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    cqlring_future *good = ask_start_prepared(&flow, insert, values, 2, &idempotent);
    node_cut(flow.node, ask_seen(OPCODE_PREPARE).node, 0);
    flow_ok(ask_end(good, &error));
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_connection_lost_on_the_second_prepare_lets_another_node_take_the_row)
{
    struct flow flow;
    up(&flow, 5, 2);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    node_forget_prepared(flow.node, NODE_ALL);
    flow_fault(&flow, "close:opcode=PREPARE,times=1");
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_09_a_batch_of_forgotten_statements_is_applied_once)
{
    enum { MANY = 7 };
    struct flow flow;
    up(&flow, _i, 2);
    cqlring_prepared *inserts[MANY];
    cqlring_batch_child children[MANY * 2];
    cqlring_bytes values[MANY * 2];
    for (int i = 0; i < MANY; i++) {
        char cql[128];
        snprintf(cql, sizeof cql, "CREATE TABLE ks.b%d (k int PRIMARY KEY, n int)", i);
        flow_cql(&flow, cql);
        snprintf(cql, sizeof cql, "INSERT INTO ks.b%d (k) VALUES (?)", i);
        inserts[i] = flow_prepare(&flow, cql);
    }
    for (int i = 0; i < MANY * 2; i++) {
        values[i] = flow_int(i);
        children[i] = (cqlring_batch_child){.prepared = inserts[i % MANY], .values = &values[i], .value_count = 1};
    }
    cqlring_batch batch = {.children = children, .count = 6};
    cqlring_request request = {.session = flow.session, .batch = &batch};
    for (int round = 0; round < 2; round++) { /* three distinct ones, each twice; then all seven */
        if (round == 0)
            for (int i = 0; i < 6; i++)
                children[i].prepared = inserts[i % 3];
        else
            for (int i = 0; i < MANY * 2; i++)
                children[i].prepared = inserts[i % MANY];
        batch.count = round == 0 ? 6 : MANY * 2;
        node_forget_prepared(flow.node, NODE_ALL);
        ask_record_clear();
        cqlring_error error = {0};
        cqlring_status status = cqlring_execute_sync(&request, NULL, &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
        ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), round == 0 ? 3 : MANY);
    }
    for (int i = 0; i < MANY; i++) {
        char table[32];
        snprintf(table, sizeof table, "ks.b%d", i);
        ck_assert_int_eq(node_table_rows(flow.node, table), i < 3 ? 3 : 2); /* the two rounds overlap in one key */
        cqlring_prepared_release(inserts[i]);
    }
    /* rows do not tell once from twice: counters do */
    flow_cql(&flow, "CREATE TABLE ks.sums (k int PRIMARY KEY, n counter)");
    cqlring_prepared *adds[2] = {flow_prepare(&flow, "UPDATE ks.sums SET n = n + 1 WHERE k = ?"), flow_prepare(&flow, "UPDATE ks.sums SET n = n + 10 WHERE k = ?")};
    for (int i = 0; i < 2; i++)
        children[i] = (cqlring_batch_child){.prepared = adds[i], .values = &values[1], .value_count = 1};
    batch = (cqlring_batch){.kind = CQLRING_BATCH_COUNTER, .children = children, .count = 2};
    node_forget_prepared(flow.node, NODE_ALL);
    flow_ok(cqlring_execute_sync(&request, NULL, NULL));
    ck_assert_int_eq(ask_number(&flow, "SELECT n FROM ks.sums WHERE k = 1"), 11);
    for (int i = 0; i < 2; i++)
        cqlring_prepared_release(adds[i]);
    flow_close(&flow);
}
END_TEST

/* ---- in whose keyspace ---- */

START_TEST(ps_07_prepared_again_on_a_connection_of_another_keyspace_it_is_still_the_same_statement)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    flow_cql(&flow, "CREATE TABLE k2.t (k bigint PRIMARY KEY, v blob)");
    cqlring_session *one = session_in(&flow, "ks"), *two = session_in(&flow, "k2");
    const char *texts[] = {"INSERT INTO t (k, v) VALUES (?, ?)", "INSERT INTO ks.t (k, v) VALUES (?, ?)"};
    for (int i = 0; i < 2; i++) {
        cqlring_future *future = NULL;
        flow_ok(cqlring_prepare(one, cqlring_text(texts[i]), NULL, &future, NULL));
        flow_ok(ask_wait(future, NULL));
        cqlring_prepared *insert = cqlring_future_prepared(future);
        cqlring_future_release(future);
        cqlring_session *const sessions[] = {two, flow.session, one, two};
        for (int s = 0; s < 4; s++) {
            node_forget_prepared(flow.node, NODE_ALL);
            cqlring_bytes values[2] = {flow_bigint(i * 10 + s), cqlring_text("v")};
            cqlring_request request = {.session = sessions[s], .prepared = insert, .values = values, .value_count = 2};
            cqlring_error error = {0};
            cqlring_status status = cqlring_execute_sync(&request, NULL, &error);
            ck_assert_msg(status == CQLRING_OK, "%s: %s", texts[i], error.message);
        }
        cqlring_prepared_release(insert);
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 8);
    ck_assert_int_eq(node_table_rows(flow.node, "k2.t"), 0);
    cqlring_session_release(one);
    cqlring_session_release(two);
    flow_close(&flow);
}
END_TEST

/* On v4 the PREPARE goes out on a connection of the statement's keyspace; the one that asked for it may be gone when it is answered. */
START_TEST(ps_07_the_connection_that_asked_may_be_lost_before_the_other_is_answered)
{
    struct flow flow;
    up(&flow, 4, 1);
    flow_cql(&flow, "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    cqlring_session *one = session_in(&flow, "ks"), *two = session_in(&flow, "k2");
    cqlring_future *future = NULL;
    flow_ok(cqlring_prepare(one, cqlring_text("INSERT INTO t (k, v) VALUES (?, ?)"), NULL, &future, NULL));
    flow_ok(ask_wait(future, NULL));
    cqlring_prepared *insert = cqlring_future_prepared(future);
    cqlring_future_release(future);
    node_forget_prepared(flow.node, NODE_ALL);
    ask_record_clear();
    flow_fault(&flow, "late:opcode=PREPARE,delay_us=300000");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    cqlring_request request = {.session = two, .prepared = insert, .values = values, .value_count = 2};
    flow_ok(cqlring_execute(&request, &future, NULL));
    uint32_t one_seen = 1;
    watch_for(&flow, prepares_seen, &one_seen);
    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(two, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_CLOSED);
    cqlring_session_release(two);
    two = session_in(&flow, "k2"); /* a new connection, perhaps where the old one was */
    request.session = two;
    flow_ok(cqlring_execute_sync(&request, NULL, NULL));
    ask_pass(&flow, 400);
    request.session = one;
    flow_ok(cqlring_execute_sync(&request, NULL, NULL));
    cqlring_prepared_release(insert);
    cqlring_session_release(one);
    cqlring_session_release(two);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_07_on_v4_without_a_connection_in_its_keyspace_it_is_refused_rather_than_another_statement)
{
    struct flow flow;
    up(&flow, 4, 1);
    flow_cql(&flow, "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    flow_cql(&flow, "CREATE TABLE k2.t (k bigint PRIMARY KEY, v blob)");
    cqlring_session *one = session_in(&flow, "ks"), *two = session_in(&flow, "k2");
    const char *texts[] = {"INSERT INTO t (k, v) VALUES (?, ?)", "INSERT INTO ks.t (k, v) VALUES (?, ?)", "INSERT INTO t (k) VALUES (5)"};
    cqlring_prepared *inserts[3];
    for (int i = 0; i < 3; i++) {
        cqlring_future *future = NULL;
        flow_ok(cqlring_prepare(one, cqlring_text(texts[i]), NULL, &future, NULL));
        flow_ok(ask_wait(future, NULL));
        inserts[i] = cqlring_future_prepared(future);
        cqlring_future_release(future);
    }
    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(one, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    cqlring_session_release(one);
    node_forget_prepared(flow.node, NODE_ALL);
    for (int i = 0; i < 3; i++) {
        cqlring_bytes values[2] = {flow_bigint(i), cqlring_text("v")};
        cqlring_request request = {.session = two, .prepared = inserts[i], .values = values, .value_count = i == 2 ? 0 : 2};
        cqlring_error error = {0};
        cqlring_status status = cqlring_execute_sync(&request, NULL, &error);
        ck_assert_int_eq(status, i == 1 ? CQLRING_OK : CQLRING_INVALID); /* the one that names its keyspace is what it was */
        if (i != 1)
            ck_assert_ptr_nonnull(strstr(error.message, "name the keyspace"));
        cqlring_prepared_release(inserts[i]);
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    ck_assert_int_eq(node_table_rows(flow.node, "k2.t"), 0);
    cqlring_session_release(two);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_07_schema_changes_work_after_the_cache_was_flushed)
{
    struct flow flow;
    up(&flow, _i, 3);
    cqlring_session *two = session_in(&flow, "ks");
    for (int i = 0; i < 3; i++) {
        char cql[96];
        node_forget_prepared(flow.node, NODE_ALL);
        snprintf(cql, sizeof cql, "CREATE TABLE made%d (k int PRIMARY KEY)", i);
        cqlring_request request = {.session = two, .cql = cqlring_text(cql)};
        flow_ok(cqlring_execute_sync(&request, NULL, NULL));
        snprintf(cql, sizeof cql, "INSERT INTO ks.made%d (k) VALUES (1)", i);
        flow_cql(&flow, cql);
    }
    cqlring_session_release(two);
    flow_close(&flow);
}
END_TEST

/* ---- changed ---- */

START_TEST(ps_05_rows_are_read_with_what_the_second_prepare_said)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    cqlring_prepared *select = flow_prepare(&flow, "SELECT k, v FROM ks.t WHERE k = ?");
    cqlring_bytes value = flow_bigint(1);
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, NULL, &result, NULL));
    ck_assert_uint_eq(cqlring_result_column_count(result), 2);
    cqlring_result_release(result);
    flow_fault(&flow, "unprepared:times=1,opcode=EXECUTE");
    flow_fault(&flow, "extra-column:times=1,opcode=PREPARE");
    flow_fault(&flow, "extra-column:opcode=EXECUTE");
    for (int i = 0; i < 3; i++) {
        flow_ok(ask_prepared(&flow, select, &value, 1, NULL, &result, NULL));
        ck_assert_uint_eq(cqlring_result_column_count(result), 3);
        cqlring_column column;
        ck_assert(cqlring_result_column(result, 2, &column));
        ck_assert_str_eq(column.name, "extra_column");
        is_sound(result);
        cqlring_result_release(result);
    }
    cqlring_column column;
    ck_assert(cqlring_prepared_result_column(select, 2, &column));
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_04_changed_metadata_that_is_not_there_fails_that_request_and_is_not_kept)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_bytes value = flow_bigint(1);
    flow_fault(&flow, "changed-bare:times=1,opcode=EXECUTE");
    cqlring_error error;
    cqlring_result *result = NULL;
    ck_assert_int_eq(ask_prepared(&flow, select, &value, 1, NULL, &result, &error), CQLRING_PROTOCOL);
    ck_assert_ptr_null(result);
    flow_ok(ask_prepared(&flow, select, &value, 1, NULL, &result, &error));
    ck_assert(ask_seen(OPCODE_EXECUTE).skip_metadata);
    is_sound(result);
    ck_assert_int_eq(ask_cell(result, 0, 0).size, 1);
    cqlring_result_release(result);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(metadata_changed_swaps_columns_and_id_as_one_unit_under_load)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_cql(&flow, "CREATE TABLE ks.grow (k int PRIMARY KEY, a int)");
    flow_cql(&flow, "INSERT INTO ks.grow (k, a) VALUES (1, 2)");
    /* a second cluster, as another process would be: it prepares the changed statement, so that this one's node knows the id */
    cqlring_cluster *other = NULL;
    cqlring_session *session = NULL;
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &flow.options, &other, NULL));
    flow_ok(cqlring_session_open_sync(other, NULL, &session, NULL));
    static const char text[] = "SELECT * FROM ks.grow WHERE k = ?";
    cqlring_prepared *select = flow_prepare(&flow, text);
    cqlring_bytes value = flow_int(1);
    for (uint32_t columns = 3; columns < 8; columns++) {
        char cql[96];
        snprintf(cql, sizeof cql, "ALTER TABLE ks.grow ADD b%u text", columns);
        flow_cql(&flow, cql);
        cqlring_prepared *theirs = NULL;
        cqlring_error error;
        flow_ok(cqlring_prepare_sync(session, text, &theirs, &error));
        uint64_t reprepares = flow_stats(&flow).reprepares;
        enum { COUNT = 100 };
        cqlring_future *futures[COUNT];
        for (int i = 0; i < COUNT; i++)
            futures[i] = ask_start_prepared(&flow, select, &value, 1, NULL);
        for (int i = 0; i < COUNT; i++) {
            flow_ok(ask_wait(futures[i], NULL));
            cqlring_result *result = cqlring_future_completion(futures[i])->result;
            ck_assert_uint_eq(cqlring_result_column_count(result), columns);
            is_sound(result);
            cqlring_future_release(futures[i]);
        }
        ck_assert_uint_eq(flow_stats(&flow).reprepares, reprepares); /* it came by METADATA_CHANGED alone */
        cqlring_column column;
        ck_assert(cqlring_prepared_result_column(select, columns - 1, &column));
        cqlring_prepared_release(theirs);
    }
    cqlring_prepared_release(select);
    cqlring_session_release(session);
    cqlring_cluster_release(other);
    flow_close(&flow);
}
END_TEST

START_TEST(nodes_that_disagree_about_the_metadata_do_not_grow_the_statement)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_bytes value = flow_bigint(1);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_fault(&flow, "changed:every=2,opcode=EXECUTE");
    int64_t before = 0;
    for (int i = 0; i < 400; i++) {
        cqlring_result *result = NULL;
        flow_ok(ask_prepared(&flow, select, &value, 1, NULL, &result, NULL));
        is_sound(result);
        cqlring_result_release(result);
        if (i == 100)
            before = cqr_mem_live_count();
    }
    ck_assert_int_le(cqr_mem_live_count(), before + 20);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(alter_table_between_executes_is_seen_by_the_next_one)
{
    struct flow flow;
    up(&flow, _i, 2);
    flow_cql(&flow, "CREATE TABLE ks.alter_me (k int PRIMARY KEY, a int)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.alter_me (k, a) VALUES (?, ?)"), *select = flow_prepare(&flow, "SELECT * FROM ks.alter_me WHERE k = ?");
    const char *alters[] = {"ALTER TABLE ks.alter_me ADD c text", "ALTER TABLE ks.alter_me ADD d list<int>", "ALTER TABLE ks.alter_me DROP c",
                            "ALTER TABLE ks.alter_me ADD e uuid", "ALTER TABLE ks.alter_me DROP d"};
    const uint32_t columns[] = {3, 4, 3, 4, 3};
    for (int i = 0; i < 5; i++) {
        cqlring_bytes values[2] = {flow_int(i), flow_int(i)};
        flow_cql(&flow, alters[i]);
        flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
        cqlring_result *result = NULL;
        for (int twice = 0; twice < 2; twice++) {
            flow_ok(ask_prepared(&flow, select, values, 1, NULL, &result, NULL));
            ck_assert_uint_eq(cqlring_result_column_count(result), columns[i]);
            ck_assert_uint_eq(cqlring_result_row_count(result), 1);
            is_sound(result);
            cqlring_result_release(result);
        }
    }
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_12_bytes_of_an_old_type_are_not_sent_and_the_handle_takes_the_new_one)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE TABLE ks.change (k int PRIMARY KEY, x int)");
    cqlring_prepared *update = flow_prepare(&flow, "UPDATE ks.change SET x = ? WHERE k = ?"), *other = flow_prepare(&flow, FLOW_INSERT);
    flow_cql(&flow, "ALTER TABLE ks.change ALTER x TYPE blob");
    ask_record_clear();
    cqlring_bytes old[2] = {flow_int(7), flow_int(1)}, fresh[2] = {cqlring_text("not four bytes"), flow_int(1)}, row[2] = {flow_bigint(1), cqlring_text("v")};
    /* in a batch, and alone */
    cqlring_batch_child children[2] = {{.prepared = other, .values = row, .value_count = 2}, {.prepared = update, .values = old, .value_count = 2}};
    cqlring_batch batch = {.children = children, .count = 2};
    cqlring_request request = {.session = flow.session, .batch = &batch};
    cqlring_error error;
    cqlring_column column;
    if (_i % 2 == 0) {
        ck_assert_int_eq(cqlring_execute_sync(&request, NULL, &error), CQLRING_TYPE);
        ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 1);
    } else {
        ck_assert_int_eq(ask_prepared(&flow, update, old, 2, NULL, NULL, &error), CQLRING_TYPE);
        ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 1);
    }
    ck_assert_msg(strstr(error.message, "\"x\"") != NULL, "%s", error.message);
    ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.change"), 0);
    ck_assert(cqlring_prepared_bind_column(update, 0, &column));
    ck_assert_int_eq(cqlring_type_kind(column.type), CQLRING_KIND_BLOB);
    flow_ok(ask_prepared(&flow, update, fresh, 2, NULL, NULL, &error));
    children[1].values = fresh;
    flow_ok(cqlring_execute_sync(&request, NULL, &error));
    /* and back, when the old bytes would be refused at the call */
    flow_cql(&flow, "ALTER TABLE ks.change ALTER x TYPE int");
    ck_assert_int_eq(ask_prepared(&flow, update, fresh, 2, NULL, NULL, &error), CQLRING_TYPE);
    ck_assert_int_eq(ask_prepared(&flow, update, fresh, 2, NULL, NULL, &error), CQLRING_TYPE);
    flow_ok(ask_prepared(&flow, update, old, 2, NULL, NULL, &error));
    cqlring_prepared_release(update);
    cqlring_prepared_release(other);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepared_again");
    TCase *tcase = tcase_create("prepared_again");
    tcase_add_loop_test(tcase, a_forgotten_statement_is_prepared_again_unseen, 4, 6);
    tcase_add_test(tcase, a_storm_after_a_restart_is_one_prepare_per_node);
    tcase_add_loop_test(tcase, ps_15_a_node_that_has_forgotten_everything_is_not_asked_for_it_all_at_once, 4, 6);
    tcase_add_loop_test(tcase, ps_15_a_connection_lost_meanwhile_costs_no_request, 4, 6);
    tcase_add_test(tcase, a_node_that_never_knows_it_gives_an_error_and_not_an_endless_loop);
    tcase_add_test(tcase, when_it_cannot_be_prepared_again_all_who_wait_get_the_servers_reason);
    tcase_add_test(tcase, a_time_out_and_a_cancel_while_it_is_prepared_again_were_not_sent);
    tcase_add_test(tcase, a_connection_lost_on_the_second_prepare_lets_another_node_take_the_row);
    tcase_add_loop_test(tcase, ps_09_a_batch_of_forgotten_statements_is_applied_once, 4, 6);
    tcase_add_loop_test(tcase, ps_07_prepared_again_on_a_connection_of_another_keyspace_it_is_still_the_same_statement, 4, 6);
    tcase_add_test(tcase, ps_07_the_connection_that_asked_may_be_lost_before_the_other_is_answered);
    tcase_add_test(tcase, ps_07_on_v4_without_a_connection_in_its_keyspace_it_is_refused_rather_than_another_statement);
    tcase_add_loop_test(tcase, ps_07_schema_changes_work_after_the_cache_was_flushed, 4, 6);
    tcase_add_loop_test(tcase, ps_05_rows_are_read_with_what_the_second_prepare_said, 4, 6);
    tcase_add_test(tcase, ps_04_changed_metadata_that_is_not_there_fails_that_request_and_is_not_kept);
    tcase_add_test(tcase, metadata_changed_swaps_columns_and_id_as_one_unit_under_load);
    tcase_add_test(tcase, nodes_that_disagree_about_the_metadata_do_not_grow_the_statement);
    tcase_add_loop_test(tcase, alter_table_between_executes_is_seen_by_the_next_one, 4, 6);
    tcase_add_loop_test(tcase, ps_12_bytes_of_an_old_type_are_not_sent_and_the_handle_takes_the_new_one, 4, 6);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
