/* SPDX-License-Identifier: Apache-2.0 */

/* Preparing: what a statement tells of itself, who shares it, and how a prepare fails. What happens when a node forgets it is in
   test_prepared_again.c. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"

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
    cqlring_error error;
    cqlring_status status = cqlring_session_open_sync(flow->cluster, &options, &session, &error);
    ck_assert_msg(status == CQLRING_OK, "session in %s: %s", keyspace, error.message);
    return session;
}

static cqlring_status prepare(cqlring_session *session, const char *cql, const cqlring_execution *how, cqlring_prepared **prepared, cqlring_error *error)
{
    cqlring_future *future = NULL;
    cqlring_status status = cqlring_prepare(session, cqlring_text(cql), how, &future, error);
    if (status != CQLRING_OK)
        return status;
    status = ask_wait(future, error);
    *prepared = cqlring_future_prepared(future);
    ck_assert_int_eq(*prepared != NULL, status == CQLRING_OK);
    ck_assert_ptr_null(cqlring_future_completion(future));
    cqlring_future_release(future);
    return status;
}

/* ---- what it tells ---- */

START_TEST(a_statement_describes_its_markers_and_its_result)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE TABLE ks.wide (a int, b text, c frozen<map<text, list<int>>>, s set<uuid> static, PRIMARY KEY (a, b))");
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c, s, b FROM ks.wide WHERE a = ? AND b > ? LIMIT ?");
    ck_assert_uint_eq(cqlring_prepared_bind_count(select), 3);
    cqlring_column column;
    const char *binds[] = {"a", "b"}, *types[] = {"int", "text"}, *results[] = {"c", "s", "b"},
               *result_types[] = {"map<text, list<int>>", "set<uuid>", "text"};
    char text[128];
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert(cqlring_prepared_bind_column(select, i, &column));
        ck_assert_str_eq(column.name, binds[i]);
        ck_assert_str_eq(column.keyspace, "ks");
        ck_assert_str_eq(column.table, "wide");
        cqlring_type_format(column.type, text, sizeof text);
        ck_assert_str_eq(text, types[i]);
    }
    ck_assert(cqlring_prepared_bind_column(select, 2, &column));
    ck_assert_int_eq(cqlring_type_kind(column.type), CQLRING_KIND_INT);
    ck_assert(!cqlring_prepared_bind_column(select, 3, &column));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(cqlring_prepared_result_column(select, i, &column));
        ck_assert_str_eq(column.name, results[i]);
        cqlring_type_format(column.type, text, sizeof text);
        ck_assert_str_eq(text, result_types[i]);
    }
    ck_assert(!cqlring_prepared_result_column(select, 3, &column));
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    ck_assert(!cqlring_prepared_result_column(insert, 0, &column));
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_14_markers_are_found_by_cqls_rules_for_names)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_cql(&flow, "CREATE TABLE ks.names (k int PRIMARY KEY, \"Abc\" int, abc int, \"q\"\"x\" int)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.names (k, \"Abc\", abc, \"q\"\"x\") VALUES (?, ?, ?, ?)");
    ck_assert_int_eq(cqlring_prepared_find(insert, "abc", 0), 2);
    ck_assert_int_eq(cqlring_prepared_find(insert, "ABC", 0), 2);
    ck_assert_int_eq(cqlring_prepared_find(insert, "Abc", 0), 2);
    ck_assert_int_eq(cqlring_prepared_find(insert, "\"Abc\"", 0), 1);
    ck_assert_int_eq(cqlring_prepared_find(insert, "\"abc\"", 0), 2);
    ck_assert_int_eq(cqlring_prepared_find(insert, "\"ABC\"", 0), -1);
    ck_assert_int_eq(cqlring_prepared_find(insert, "\"q\"\"x\"", 0), 3);
    ck_assert_int_eq(cqlring_prepared_find(insert, "ab", 0), -1);
    ck_assert_int_eq(cqlring_prepared_find(insert, "", 0), -1);
    ck_assert_int_eq(cqlring_prepared_find(insert, "abc", 3), -1);
    ck_assert_int_eq(cqlring_prepared_find(insert, "abc", 1000), -1);
    cqlring_prepared_release(insert);
    /* the same named marker twice: both are to be filled */
    cqlring_prepared *twice = flow_prepare(&flow, "UPDATE ks.names SET \"Abc\" = :x, abc = :x WHERE k = :k");
    int32_t first = cqlring_prepared_find(twice, "X", 0), second = cqlring_prepared_find(twice, "x", (uint32_t)first + 1);
    ck_assert_int_eq(first, 0);
    ck_assert_int_eq(second, 1);
    ck_assert_int_eq(cqlring_prepared_find(twice, "x", (uint32_t)second + 1), -1);
    cqlring_bytes values[3];
    values[first] = values[second] = flow_int(77);
    values[cqlring_prepared_find(twice, "k", 0)] = flow_int(1);
    flow_ok(ask_prepared(&flow, twice, values, 3, NULL, NULL, NULL));
    ck_assert_int_eq(ask_number(&flow, "SELECT \"Abc\" FROM ks.names WHERE k = 1"), 77);
    ck_assert_int_eq(ask_number(&flow, "SELECT abc FROM ks.names WHERE k = 1"), 77);
    cqlring_prepared_release(twice);
    flow_close(&flow);
}
END_TEST

START_TEST(metadata_is_skipped_for_rows_on_v5_and_never_on_v4)
{
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *select = flow_prepare(&flow, FLOW_SELECT),
                     *lwt = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (?, ?) IF NOT EXISTS");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    ck_assert(!ask_seen(OPCODE_EXECUTE).skip_metadata);
    cqlring_result *result = NULL;
    for (int i = 0; i < 3; i++) {
        flow_ok(ask_prepared(&flow, select, values, 1, NULL, &result, NULL));
        ck_assert_int_eq(ask_seen(OPCODE_EXECUTE).skip_metadata, _i == 5);
        cqlring_column column;
        ck_assert(cqlring_result_column(result, 0, &column));
        ck_assert_str_eq(column.name, "v");
        ck_assert(ask_is(ask_cell(result, 0, 0), "v"));
        cqlring_result_release(result);
    }
    flow_ok(ask_prepared(&flow, lwt, values, 2, NULL, &result, NULL)); /* its rows are described by no PREPARED */
    ck_assert(!ask_seen(OPCODE_EXECUTE).skip_metadata);
    ck_assert_int_eq(cqlring_result_applied(result), 0);
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    cqlring_prepared_release(lwt);
    flow_close(&flow);
}
END_TEST

/* ---- who shares it ---- */

START_TEST(the_same_text_is_the_same_statement_until_it_is_released)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_prepared *first = flow_prepare(&flow, FLOW_SELECT), *second = flow_prepare(&flow, FLOW_SELECT), *other = flow_prepare(&flow, FLOW_SELECT " ");
    ck_assert_ptr_eq(first, second);
    ck_assert_ptr_ne(first, other);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    cqlring_session *session = session_in(&flow, NULL);
    cqlring_prepared *third = NULL;
    flow_ok(prepare(session, FLOW_SELECT, NULL, &third, NULL));
    ck_assert_ptr_eq(first, third);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    cqlring_prepared_release(first);
    cqlring_prepared_release(second);
    cqlring_prepared_release(third);
    cqlring_prepared_release(NULL);
    first = flow_prepare(&flow, FLOW_SELECT);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 3);
    cqlring_prepared_release(first);
    cqlring_prepared_release(other);
    cqlring_session_release(session);
    flow_close(&flow);
}
END_TEST

struct preparer {
    pthread_t thread;
    struct flow *flow;
    cqlring_prepared *prepared;
    cqlring_status status;
};

static void *prepare_it(void *context)
{
    struct preparer *preparer = context;
    preparer->status = cqlring_prepare_sync(preparer->flow->session, FLOW_INSERT, &preparer->prepared, NULL);
    return NULL;
}

START_TEST(many_threads_that_prepare_the_same_text_ask_the_node_once)
{
    struct flow flow;
    up(&flow, 5, 1);
    enum { THREADS = 8 };
    for (int round = 0; round < 3; round++) {
        flow_fault(&flow, "late:delay_us=60000,times=1,opcode=PREPARE");
        ask_record_clear();
        struct preparer preparers[THREADS];
        for (int i = 0; i < THREADS; i++) {
            preparers[i] = (struct preparer){.flow = &flow};
            ck_assert_int_eq(pthread_create(&preparers[i].thread, NULL, prepare_it, &preparers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(preparers[i].thread, NULL);
            flow_ok(preparers[i].status);
            ck_assert_ptr_eq(preparers[i].prepared, preparers[0].prepared);
        }
        /* the asking's own reference may have kept the last round's statement a moment longer: then nothing is asked */
        ck_assert_uint_le(ask_seen_count(OPCODE_PREPARE), 1);
        ck_assert(round > 0 || ask_seen_count(OPCODE_PREPARE) == 1);
        for (int i = 0; i < THREADS; i++)
            cqlring_prepared_release(preparers[i].prepared);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(many_threads_share_the_error_of_one_prepare_and_the_next_asks_again)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_fault(&flow, "error:code=0x2200,times=1,opcode=PREPARE");
    flow_fault(&flow, "late:delay_us=60000,times=1,opcode=PREPARE");
    cqlring_future *futures[10];
    for (int i = 0; i < 10; i++)
        flow_ok(cqlring_prepare(flow.session, cqlring_text(FLOW_INSERT), NULL, &futures[i], NULL));
    for (int i = 0; i < 10; i++) {
        cqlring_error error;
        ck_assert_int_eq(ask_wait(futures[i], &error), CQLRING_SERVER);
        ck_assert_int_eq(error.server_code, 0x2200);
        ck_assert_ptr_nonnull(strstr(error.message, "PREPARE to "));
        ck_assert_ptr_null(cqlring_future_prepared(futures[i]));
        cqlring_future_release(futures[i]);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(v5_07_one_text_in_two_keyspaces_is_two_statements)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    flow_cql(&flow, "CREATE TABLE k2.t (k bigint PRIMARY KEY, v blob)");
    static const char text[] = "INSERT INTO t (k, v) VALUES (?, ?)";
    cqlring_session *one = session_in(&flow, "ks"), *two = session_in(&flow, "k2");
    cqlring_prepared *in_one = NULL, *in_two = NULL, *by_request = NULL, *again = NULL;
    flow_ok(prepare(one, text, NULL, &in_one, NULL));
    ck_assert_str_eq(ask_seen(OPCODE_PREPARE).keyspace, "");
    flow_ok(prepare(two, text, NULL, &in_two, NULL));
    ck_assert_ptr_ne(in_one, in_two);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    /* v5: the keyspace of the request; v4 cannot say it */
    cqlring_execution how = {.struct_size = sizeof how, .keyspace = cqlring_text("k2")};
    cqlring_error error;
    if (_i == 5) {
        flow_ok(prepare(flow.session, text, &how, &by_request, NULL));
        ck_assert_str_eq(ask_seen(OPCODE_PREPARE).keyspace, "k2");
        ck_assert_ptr_ne(by_request, in_one);
        flow_ok(prepare(flow.session, text, &how, &again, NULL));
        ck_assert_ptr_eq(by_request, again);
        ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 3);
    } else {
        ck_assert_int_eq(prepare(flow.session, text, &how, &by_request, &error), CQLRING_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, "v5"));
    }
    /* each goes to its own table, whichever session carries it */
    cqlring_prepared *statements[] = {in_one, in_two, in_two};
    cqlring_session *sessions[] = {two, one, flow.session};
    for (int i = 0; i < 3; i++) {
        cqlring_bytes values[2] = {flow_bigint(i), cqlring_text("v")};
        cqlring_request request = {.session = sessions[i], .prepared = statements[i], .values = values, .value_count = 2};
        flow_ok(cqlring_execute_sync(&request, NULL, &error));
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    ck_assert_int_eq(node_table_rows(flow.node, "k2.t"), 2);
    cqlring_prepared_release(in_one);
    cqlring_prepared_release(in_two);
    cqlring_prepared_release(by_request);
    cqlring_prepared_release(again);
    cqlring_session_release(one);
    cqlring_session_release(two);
    flow_close(&flow);
}
END_TEST

START_TEST(a_statement_outlives_the_session_that_prepared_it)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_session *session = session_in(&flow, "ks");
    cqlring_prepared *insert = NULL;
    flow_ok(prepare(session, "INSERT INTO t (k, v) VALUES (?, ?)", NULL, &insert, NULL));
    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    cqlring_session_release(session);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    node_forget_prepared(flow.node, NODE_ALL);
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_statement_of_another_cluster_is_refused)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_cluster *other = NULL;
    cqlring_session *session = NULL;
    cqlring_prepared *foreign = NULL;
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &flow.options, &other, NULL));
    flow_ok(cqlring_session_open_sync(other, NULL, &session, NULL));
    flow_ok(prepare(session, FLOW_INSERT, NULL, &foreign, NULL));
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    cqlring_error error;
    ck_assert_int_eq(ask_prepared(&flow, foreign, values, 2, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "another cluster"));
    cqlring_batch_child child = {.prepared = foreign, .values = values, .value_count = 2};
    cqlring_batch batch = {.children = &child, .count = 1};
    cqlring_request request = {.session = flow.session, .batch = &batch};
    ck_assert_int_eq(cqlring_execute_sync(&request, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "another cluster"));
    ck_assert_ptr_nonnull(strstr(error.message, "batch statement 0"));
    cqlring_prepared_release(foreign);
    cqlring_session_release(session);
    cqlring_cluster_release(other);
    flow_close(&flow);
}
END_TEST

START_TEST(a_payload_goes_with_the_prepare)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_payload_entry entries[] = {{cqlring_text("a"), cqlring_text("1")}, {cqlring_text("b"), {NULL, CQLRING_NULL}}};
    cqlring_execution how = {.struct_size = sizeof how, .payload = entries, .payload_count = 2};
    cqlring_prepared *insert = NULL;
    flow_ok(prepare(flow.session, FLOW_INSERT, &how, &insert, NULL));
    ck_assert_uint_eq(ask_seen(OPCODE_PREPARE).payload_count, 2);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- how it fails ---- */

START_TEST(a_prepare_that_failed_may_succeed_the_next_time)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_prepared *prepared = NULL;
    cqlring_error error;
    ck_assert_int_eq(prepare(flow.session, "SELECT FROM WHERE", NULL, &prepared, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2000);
    ck_assert_int_eq(prepare(flow.session, "SELECT v FROM ks.later WHERE k = ?", NULL, &prepared, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_str_eq(error.node, ask_address(&flow, 0));
    flow_cql(&flow, "CREATE TABLE ks.later (k int PRIMARY KEY, v int)");
    flow_ok(prepare(flow.session, "SELECT v FROM ks.later WHERE k = ?", NULL, &prepared, &error));
    ck_assert_int_eq(prepare(flow.session, "", NULL, &prepared, &error), CQLRING_INVALID);
    cqlring_prepared_release(prepared);
    flow_close(&flow);
}
END_TEST

START_TEST(a_prepared_that_cannot_be_read_is_an_error_and_nothing_is_kept)
{
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *prepared = NULL;
    cqlring_error error;
    for (int cut = 1; cut < 60; cut += 7) {
        char fault[64];
        snprintf(fault, sizeof fault, "truncated:count=%d,times=1,opcode=PREPARE", cut);
        flow_fault(&flow, fault);
        ck_assert_int_eq(prepare(flow.session, FLOW_SELECT, NULL, &prepared, &error), CQLRING_PROTOCOL);
    }
    flow_ok(prepare(flow.session, FLOW_SELECT, NULL, &prepared, &error));
    ck_assert_uint_eq(cqlring_prepared_bind_count(prepared), 1);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    cqlring_prepared_release(prepared);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_11_a_connection_that_closes_on_prepare_lets_the_next_node_answer)
{
    struct flow flow;
    up(&flow, 5, 2);
    flow_fault(&flow, "close:times=1,opcode=PREPARE");
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    ck_assert_uint_ne(ask_seen_at(OPCODE_PREPARE, 0).node, ask_seen_at(OPCODE_PREPARE, 1).node);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

struct once {
    atomic_int calls;
};

static void call_once(cqlring_future *future, void *context)
{
    (void)future;
    atomic_fetch_add(&((struct once *)context)->calls, 1);
}

START_TEST(ps_11_cb_11_when_no_node_answers_the_prepare_fails_once_and_the_next_one_works)
{
    struct flow flow;
    up(&flow, 5, 3);
    flow_fault(&flow, "close:opcode=PREPARE");
    struct once once = {0};
    cqlring_future *future = NULL;
    cqlring_error error;
    flow_ok(cqlring_prepare(flow.session, cqlring_text(FLOW_INSERT), NULL, &future, &error));
    flow_ok(cqlring_future_on_ready(future, call_once, &once));
    cqlring_status status = ask_end(future, &error);
    ck_assert_msg(status == CQLRING_LOST || status == CQLRING_UNREACHABLE, "%s: %s", cqlring_status_name(status), error.message);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    node_fault_remove(flow.node, 0);
    ask_until_served(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    ck_assert_int_eq(atomic_load(&once.calls), 1);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_prepare_without_an_answer_times_out)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_fault(&flow, "drop:times=1,opcode=PREPARE");
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 40000};
    cqlring_prepared *insert = NULL;
    cqlring_error error;
    ck_assert_int_eq(prepare(flow.session, FLOW_INSERT, &how, &insert, &error), CQLRING_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(error.message, "PREPARE to "));
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    flow_ok(prepare(flow.session, FLOW_INSERT, &how, &insert, &error));
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_prepare_may_be_cancelled_and_those_who_wait_with_it_go_on)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_fault(&flow, "late:delay_us=500000,times=1,opcode=PREPARE");
    cqlring_future *futures[3];
    for (int i = 0; i < 3; i++)
        flow_ok(cqlring_prepare(flow.session, cqlring_text(FLOW_INSERT), NULL, &futures[i], NULL));
    cqlring_future_cancel(futures[0]); /* the one that asked */
    cqlring_future_cancel(futures[2]);
    cqlring_error error;
    ck_assert_int_eq(ask_end(futures[0], &error), CQLRING_CANCELLED);
    ck_assert_int_eq(ask_end(futures[2], &error), CQLRING_CANCELLED);
    ck_assert(!cqlring_future_ready(futures[1]));
    flow_ok(ask_wait(futures[1], &error));
    cqlring_future_cancel(futures[1]);
    cqlring_prepared *insert = cqlring_future_prepared(futures[1]);
    ck_assert_ptr_nonnull(insert);
    cqlring_future_release(futures[1]);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 1);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(closing_one_session_ends_its_prepares_and_no_other_sessions)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_session *other = session_in(&flow, NULL);
    flow_fault(&flow, "late:delay_us=80000,opcode=PREPARE");
    cqlring_future *first = NULL, *second = NULL, *closed = NULL;
    struct once once = {0};
    flow_ok(cqlring_prepare(other, cqlring_text(FLOW_INSERT), NULL, &first, NULL));
    flow_ok(cqlring_prepare(flow.session, cqlring_text(FLOW_INSERT), NULL, &second, NULL));
    flow_ok(cqlring_future_on_ready(first, call_once, &once));
    flow_ok(cqlring_session_close(other, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ck_assert(cqlring_future_ready(first));
    ck_assert_int_eq(atomic_load(&once.calls), 1);
    ck_assert_int_eq(ask_end(first, NULL), CQLRING_CLOSED);
    flow_ok(ask_wait(second, NULL));
    cqlring_prepared *insert = cqlring_future_prepared(second);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    cqlring_prepared_release(insert);
    cqlring_future_release(second);
    cqlring_session_release(other);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepared");
    TCase *tcase = tcase_create("prepared");
    tcase_add_loop_test(tcase, a_statement_describes_its_markers_and_its_result, 4, 6);
    tcase_add_test(tcase, ps_14_markers_are_found_by_cqls_rules_for_names);
    tcase_add_loop_test(tcase, metadata_is_skipped_for_rows_on_v5_and_never_on_v4, 4, 6);
    tcase_add_test(tcase, the_same_text_is_the_same_statement_until_it_is_released);
    tcase_add_test(tcase, many_threads_that_prepare_the_same_text_ask_the_node_once);
    tcase_add_test(tcase, many_threads_share_the_error_of_one_prepare_and_the_next_asks_again);
    tcase_add_loop_test(tcase, v5_07_one_text_in_two_keyspaces_is_two_statements, 4, 6);
    tcase_add_test(tcase, a_statement_outlives_the_session_that_prepared_it);
    tcase_add_test(tcase, a_statement_of_another_cluster_is_refused);
    tcase_add_test(tcase, a_payload_goes_with_the_prepare);
    tcase_add_test(tcase, a_prepare_that_failed_may_succeed_the_next_time);
    tcase_add_loop_test(tcase, a_prepared_that_cannot_be_read_is_an_error_and_nothing_is_kept, 4, 6);
    tcase_add_test(tcase, ps_11_a_connection_that_closes_on_prepare_lets_the_next_node_answer);
    tcase_add_test(tcase, ps_11_cb_11_when_no_node_answers_the_prepare_fails_once_and_the_next_one_works);
    tcase_add_test(tcase, a_prepare_without_an_answer_times_out);
    tcase_add_test(tcase, a_prepare_may_be_cancelled_and_those_who_wait_with_it_go_on);
    tcase_add_test(tcase, closing_one_session_ends_its_prepares_and_no_other_sessions);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
