/* SPDX-License-Identifier: Apache-2.0 */

/* Batches of every kind, with children of every kind; and conditional statements, whose answer says whether they were applied. */

#include <stdio.h>
#include <stdlib.h>
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

static cqlring_status run(struct flow *flow, cqlring_batch_kind kind, const cqlring_batch_child *children, uint32_t count, const cqlring_execution *how,
                          cqlring_result **result, cqlring_error *error)
{
    cqlring_batch batch = {.kind = kind, .children = children, .count = count};
    cqlring_request request = {.session = flow->session, .batch = &batch, .execution = how};
    return cqlring_execute_sync(&request, result, error);
}

START_TEST(bt_02_children_of_every_kind_with_and_without_values)
{
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *fixed = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (5, 0x05)");
    cqlring_bytes with[2] = {flow_bigint(2), cqlring_text("two")}, bound[2] = {flow_bigint(3), cqlring_text("three")}, unset[2] = {flow_bigint(4), {NULL, CQLRING_UNSET}};
    const cqlring_batch_child children[] = {
        {.cql = cqlring_text("INSERT INTO ks.t (k, v) VALUES (1, 0x01)")},
        {.cql = cqlring_text(FLOW_INSERT), .values = with, .value_count = 2},
        {.prepared = insert, .values = bound, .value_count = 2},
        {.prepared = fixed},
        {.prepared = insert, .values = unset, .value_count = 2},
        {.cql = cqlring_text("DELETE FROM ks.t WHERE k = 1")},
    };
    const cqlring_batch_kind kinds[] = {CQLRING_BATCH_LOGGED, CQLRING_BATCH_UNLOGGED};
    for (int kind = 0; kind < 2; kind++) {
        cqlring_result *result = NULL;
        cqlring_error error = {0};
        cqlring_status status = run(&flow, kinds[kind], children, 6, NULL, &result, &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
        ck_assert_ptr_null(result);
        struct node_seen seen = ask_seen(OPCODE_BATCH);
        ck_assert_uint_eq(seen.batch_kind, (unsigned)kind);
        ck_assert_uint_eq(seen.batch_count, 6);
        ck_assert_int_eq(seen.page_size, 0);
        ck_assert_uint_eq(seen.consistency, CQLRING_LOCAL_ONE);
        ck_assert(seen.has_timestamp);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 4);
        flow_cql(&flow, "TRUNCATE ks.t");
    }
    flow_ok(run(&flow, CQLRING_BATCH_LOGGED, children, 6, NULL, NULL, NULL));
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "SELECT v FROM ks.t WHERE k = 3", &result, NULL));
    ck_assert(ask_is(ask_cell(result, 0, 0), "three"));
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(fixed);
    flow_close(&flow);
}
END_TEST

START_TEST(a_counter_batch_counts_and_does_not_mix)
{
    struct flow flow;
    up(&flow, 5, 1);
    flow_cql(&flow, "CREATE TABLE ks.counters (k int PRIMARY KEY, n counter)");
    cqlring_prepared *add = flow_prepare(&flow, "UPDATE ks.counters SET n = n + ? WHERE k = ?");
    cqlring_bytes values[3][2] = {{flow_bigint(5), flow_int(1)}, {flow_bigint(-2), flow_int(1)}, {flow_bigint(7), flow_int(2)}};
    cqlring_batch_child children[4];
    for (int i = 0; i < 3; i++)
        children[i] = (cqlring_batch_child){.prepared = add, .values = values[i], .value_count = 2};
    flow_ok(run(&flow, CQLRING_BATCH_COUNTER, children, 3, NULL, NULL, NULL));
    ck_assert_uint_eq(ask_seen(OPCODE_BATCH).batch_kind, 2);
    ck_assert_int_eq(ask_number(&flow, "SELECT n FROM ks.counters WHERE k = 1"), 3);
    ck_assert_int_eq(ask_number(&flow, "SELECT n FROM ks.counters WHERE k = 2"), 7);
    children[3] = (cqlring_batch_child){.cql = cqlring_text("INSERT INTO ks.t (k) VALUES (1)")};
    cqlring_error error;
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_COUNTER, children, 4, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, children, 3, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(ask_number(&flow, "SELECT n FROM ks.counters WHERE k = 1"), 3);
    cqlring_prepared_release(add);
    flow_close(&flow);
}
END_TEST

START_TEST(bt_03_a_child_that_cannot_be_is_refused_by_its_number)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes good[2] = {flow_bigint(1), cqlring_text("v")}, many[3] = {good[0], good[1], good[1]}, short_key[2] = {flow_int(1), cqlring_text("v")},
                  bad_size[2] = {flow_bigint(1), {"v", -7}}, no_data[2] = {flow_bigint(1), {NULL, 7}};
    const cqlring_batch_child fine = {.prepared = insert, .values = good, .value_count = 2};
    cqlring_bytes text = cqlring_text(FLOW_INSERT);
    const struct {
        cqlring_batch_child child;
        const char *word;
        cqlring_status status;
    } cases[] = {
        {{.prepared = insert, .values = good, .value_count = 1}, "1 values given, the statement has 2", CQLRING_INVALID},
        {{.prepared = insert, .values = many, .value_count = 3}, "3 values given, the statement has 2", CQLRING_INVALID},
        {{.prepared = insert}, "0 values given, the statement has 2", CQLRING_INVALID},
        {{.prepared = insert, .value_count = 2}, "missing", CQLRING_INVALID},
        {{.prepared = insert, .values = short_key, .value_count = 2}, "\"k\"", CQLRING_TYPE},
        {{.prepared = insert, .values = bad_size, .value_count = 2}, "\"v\"", CQLRING_INVALID},
        {{.prepared = insert, .values = no_data, .value_count = 2}, "\"v\"", CQLRING_INVALID},
        {{.prepared = NULL}, "either prepared or cql", CQLRING_INVALID},
        {{.prepared = insert, .cql = text, .values = good, .value_count = 2}, "either prepared or cql", CQLRING_INVALID},
        {{.cql = text, .value_count = 2}, "missing", CQLRING_INVALID},
        {{.cql = text, .values = good, .value_count = 65536}, "65536", CQLRING_INVALID},
        {{.cql = text, .values = bad_size, .value_count = 2}, "value 1", CQLRING_INVALID},
        {{.cql = text, .values = no_data, .value_count = 2}, "value 1", CQLRING_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cqlring_batch_child children[3] = {fine, fine, cases[i].child};
        cqlring_error error = {0};
        ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, children, 3, NULL, NULL, &error), cases[i].status);
        ck_assert_msg(strstr(error.message, cases[i].word) != NULL, "\"%s\" is not in: %s", cases[i].word, error.message);
        ck_assert_msg(strstr(error.message, "batch statement 2: ") != NULL, "%s", error.message);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 0);
    /* what only the server can count */
    const cqlring_batch_child children[2] = {fine, {.cql = text, .values = good, .value_count = 1}};
    cqlring_error error;
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, children, 2, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(bt_06_an_empty_batch_is_refused_and_so_is_one_of_too_many)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_batch_child child = {.cql = cqlring_text("INSERT INTO ks.t (k) VALUES (1)")};
    cqlring_error error;
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, &child, 0, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "1 to 65535"));
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, NULL, 1, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, &child, 65536, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(run(&flow, (cqlring_batch_kind)3, &child, 1, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_batch_of_65535_statements_is_one_request)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE TABLE ks.wide (p int, c bigint, PRIMARY KEY (p, c))");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.wide (p, c) VALUES (1, ?)");
    enum { COUNT = 65535 };
    cqlring_batch_child *children = calloc(COUNT, sizeof *children);
    cqlring_bytes *values = calloc(COUNT, sizeof *values);
    uint8_t(*keys)[8] = calloc(COUNT, sizeof *keys);
    ck_assert(children != NULL && values != NULL && keys != NULL);
    for (int i = 0; i < COUNT; i++) {
        keys[i][6] = (uint8_t)(i >> 8);
        keys[i][7] = (uint8_t)i;
        values[i] = (cqlring_bytes){keys[i], 8};
        children[i] = (cqlring_batch_child){.prepared = insert, .values = &values[i], .value_count = 1};
    }
    cqlring_error error = {0};
    cqlring_status status = run(&flow, CQLRING_BATCH_UNLOGGED, children, COUNT, NULL, NULL, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_uint_eq(ask_seen(OPCODE_BATCH).batch_count, COUNT);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.wide"), COUNT);
    free(children);
    free(values);
    free(keys);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(bt_06_a_batch_too_large_for_the_server_is_its_error_whole_and_the_connection_lives)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.frame_size_max = 200000;
    flow_start(&flow);
    flow_open(&flow);
    static uint8_t blob[60000];
    cqlring_bytes values[5][2];
    cqlring_batch_child children[5];
    for (int i = 0; i < 5; i++) {
        values[i][0] = flow_bigint(1); /* one partition: only its size is wrong */
        values[i][1] = (cqlring_bytes){blob, sizeof blob};
        children[i] = (cqlring_batch_child){.cql = cqlring_text(FLOW_INSERT), .values = values[i], .value_count = 2};
    }
    cqlring_error error;
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_UNLOGGED, children, 5, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_ptr_nonnull(strstr(error.message, "BATCH to "));
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    flow_ok(run(&flow, CQLRING_BATCH_UNLOGGED, children, 3, NULL, NULL, &error));
    values[1][0] = flow_bigint(2); /* several partitions: the fail threshold is lower */
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_UNLOGGED, children, 3, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_ptr_nonnull(strstr(error.message, "Batch too large"));
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(bt_07_a_batch_goes_to_a_replica_of_its_first_known_key)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 3;
    flow_start(&flow);
    char message[128];
    ck_assert_int_eq(node_cql(flow.node, "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", NULL, message, sizeof message), 0);
    ck_assert_int_eq(node_cql(flow.node, "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)", NULL, message, sizeof message), 0);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO one.t (k, v) VALUES (?, ?)"), *keyless = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"),
                     *select = flow_prepare(&flow, "SELECT v FROM one.t WHERE k = ?");
    for (int i = 0; i < 60; i++) {
        cqlring_bytes first[2] = {flow_bigint(i), cqlring_text("v")}, second[2] = {flow_bigint(i + 1000), cqlring_text("v")};
        /* a text's key is not known to the driver; the first that is decides, not the later ones */
        const cqlring_batch_child children[] = {{.cql = cqlring_text("INSERT INTO one.t (k) VALUES (77)")},
                                                {.prepared = keyless},
                                                {.prepared = insert, .values = first, .value_count = 2},
                                                {.prepared = insert, .values = second, .value_count = 2}};
        flow_ok(run(&flow, CQLRING_BATCH_UNLOGGED, children, 4, NULL, NULL, NULL));
        uint32_t went_to = ask_seen(OPCODE_BATCH).node;
        flow_ok(ask_prepared(&flow, select, first, 1, NULL, NULL, NULL)); /* where its only replica is */
        ck_assert(ask_seen(OPCODE_EXECUTE).is_replica);
        ck_assert_uint_eq(went_to, ask_seen(OPCODE_EXECUTE).node);
    }
    cqlring_prepared_release(insert);
    cqlring_prepared_release(keyless);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(bt_07_a_batch_is_tried_again_only_when_it_was_called_idempotent)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_batch_child child = {.cql = cqlring_text("INSERT INTO ks.t (k) VALUES (1)")};
    cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    cqlring_error error;
    flow_fault(&flow, "error:code=0x1100,write_type=BATCH_LOG,times=1,opcode=BATCH");
    ck_assert_int_eq(run(&flow, CQLRING_BATCH_LOGGED, &child, 1, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_uint_eq(error.attempts, 1);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    flow_fault(&flow, "error:code=0x1100,write_type=BATCH_LOG,times=1,opcode=BATCH");
    flow_ok(run(&flow, CQLRING_BATCH_LOGGED, &child, 1, &idempotent, NULL, &error));
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 3);
    flow_close(&flow);
}
END_TEST

START_TEST(a_batchs_memory_is_the_callers_again_when_the_call_returns)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 10000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    uint8_t keys[3][8] = {{0, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 2}, {0, 0, 0, 0, 0, 0, 0, 3}};
    char text[] = FLOW_INSERT, value[] = "kept";
    cqlring_bytes values[3][2];
    cqlring_batch_child children[3];
    for (int i = 0; i < 3; i++) {
        values[i][0] = (cqlring_bytes){keys[i], 8};
        values[i][1] = cqlring_text(value);
        children[i] = i == 0 ? (cqlring_batch_child){.cql = cqlring_text(text), .values = values[i], .value_count = 2}
                             : (cqlring_batch_child){.prepared = insert, .values = values[i], .value_count = 2};
    }
    cqlring_batch batch = {.children = children, .count = 3};
    cqlring_request request = {.session = flow.session, .batch = &batch};
    cqlring_future *future = NULL;
    flow_ok(cqlring_execute(&request, &future, NULL));
    memset(keys, 0xFF, sizeof keys);
    memset(text, 'X', sizeof text);
    memset(value, 'X', sizeof value);
    memset(values, 0xFF, sizeof values);
    memset(children, 0xFF, sizeof children);
    memset(&batch, 0xFF, sizeof batch);
    cqlring_prepared_release(insert);
    flow_ok(ask_end(future, NULL));
    for (int i = 1; i <= 3; i++) {
        cqlring_bytes key = flow_bigint(i);
        cqlring_result *result = NULL;
        flow_ok(ask_text(&flow, FLOW_SELECT, &key, 1, NULL, &result, NULL));
        ck_assert(ask_is(ask_cell(result, 0, 0), "kept"));
        cqlring_result_release(result);
    }
    flow_close(&flow);
}
END_TEST

/* ---- conditional ---- */

START_TEST(lw_01_a_conditional_batch_answers_with_rows)
{
    struct flow flow;
    up(&flow, _i, 1);
    flow_cql(&flow, "CREATE TABLE ks.cas (p int, c int, v int, scol int static, PRIMARY KEY (p, c))");
    flow_cql(&flow, "INSERT INTO ks.cas (p, scol) VALUES (1, 5)");
    const cqlring_batch_child refused[] = {{.cql = cqlring_text("INSERT INTO ks.cas (p, c, v) VALUES (1, 1, 1)")},
                                           {.cql = cqlring_text("UPDATE ks.cas SET scol = 1 WHERE p = 1 IF scol = 0")}};
    cqlring_result *result = NULL;
    cqlring_error error = {0};
    cqlring_status status = run(&flow, CQLRING_BATCH_LOGGED, refused, 2, NULL, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(cqlring_result_applied(result), 0);
    ck_assert_uint_ge(cqlring_result_row_count(result), 1);
    ck_assert_uint_gt(cqlring_result_column_count(result), 1);
    cqlring_result_release(result);
    const cqlring_batch_child applied[] = {refused[0], {.cql = cqlring_text("UPDATE ks.cas SET scol = 1 WHERE p = 1 IF scol = 5")}};
    flow_ok(run(&flow, CQLRING_BATCH_LOGGED, applied, 2, NULL, &result, &error));
    ck_assert_int_eq(cqlring_result_applied(result), 1);
    cqlring_result_release(result);
    ck_assert_int_eq(ask_number(&flow, "SELECT scol FROM ks.cas WHERE p = 1"), 1);
    ck_assert_int_eq(ask_number(&flow, "SELECT v FROM ks.cas WHERE p = 1 AND c = 1"), 1);
    flow_close(&flow);
}
END_TEST

START_TEST(conditional_statements_say_whether_they_were_applied_and_what_was_there)
{
    struct flow flow;
    up(&flow, _i, 1);
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (?, ?) IF NOT EXISTS");
    cqlring_bytes first[2] = {flow_bigint(1), cqlring_text("first")}, second[2] = {flow_bigint(1), cqlring_text("second")};
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, insert, first, 2, NULL, &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), 1);
    cqlring_result_release(result);
    flow_ok(ask_prepared(&flow, insert, second, 2, NULL, &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), 0);
    bool found = false;
    for (uint32_t i = 0; i < cqlring_result_column_count(result); i++) {
        cqlring_column column;
        ck_assert(cqlring_result_column(result, i, &column));
        if (strcmp(column.name, "v") == 0) {
            found = true;
            ck_assert(ask_is(ask_cell(result, 0, i), "first"));
        }
    }
    ck_assert(found);
    cqlring_result_release(result);
    flow_ok(flow_try(&flow, "DELETE FROM ks.t WHERE k = 2 IF EXISTS", &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), 0);
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(lw_03_where_nothing_was_conditional_applied_is_minus_one)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "INSERT INTO ks.t (k) VALUES (1)", &result, NULL));
    ck_assert_ptr_null(result);
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    flow_ok(flow_try(&flow, "SELECT k FROM ks.t WHERE k = 99", &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    cqlring_result_release(result);
    flow_ok(flow_try(&flow, "SELECT k FROM ks.t", &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    cqlring_result_release(result);
    const cqlring_batch_child child = {.cql = cqlring_text("INSERT INTO ks.t (k) VALUES (2)")};
    flow_ok(run(&flow, CQLRING_BATCH_LOGGED, &child, 1, NULL, &result, NULL));
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    cqlring_execution traced = {.struct_size = sizeof traced, .tracing = CQLRING_YES};
    flow_ok(run(&flow, CQLRING_BATCH_LOGGED, &child, 1, &traced, &result, NULL)); /* a VOID that is a result all the same */
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    ck_assert_uint_eq(cqlring_result_column_count(result), 0);
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

START_TEST(lw_08_the_serial_level_is_sent_as_asked_on_statement_and_batch)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    const cqlring_execution defaults = {.struct_size = sizeof defaults, .serial_consistency = CQLRING_LOCAL_SERIAL};
    if (_i == 1)
        flow.session_options.execution = &defaults;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (?, ?) IF NOT EXISTS");
    const struct {
        cqlring_consistency asked;
        uint16_t alone, inherited; /* on the wire, without and with the session's default */
    } cases[] = {{CQLRING_SERIAL, 8, 8}, {CQLRING_LOCAL_SERIAL, 9, 9}, {CQLRING_ANY, 0, 0}, {CQLRING_CONSISTENCY_DEFAULT, 0, 9}};
    for (size_t i = 0; i < 4; i++) {
        cqlring_execution how = {.struct_size = sizeof how, .serial_consistency = cases[i].asked};
        uint16_t wanted = _i == 1 ? cases[i].inherited : cases[i].alone;
        cqlring_bytes values[2] = {flow_bigint((int64_t)i), cqlring_text("v")};
        flow_ok(ask_prepared(&flow, insert, values, 2, &how, NULL, NULL));
        ck_assert_uint_eq(ask_seen(OPCODE_EXECUTE).serial_consistency, wanted);
        flow_ok(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &how, NULL, NULL));
        ck_assert_uint_eq(ask_seen(OPCODE_QUERY).serial_consistency, wanted);
        const cqlring_batch_child child = {.prepared = insert, .values = values, .value_count = 2};
        flow_ok(run(&flow, CQLRING_BATCH_LOGGED, &child, 1, &how, NULL, NULL));
        ck_assert_uint_eq(ask_seen(OPCODE_BATCH).serial_consistency, wanted);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tcase = tcase_create("batch");
    tcase_add_loop_test(tcase, bt_02_children_of_every_kind_with_and_without_values, 4, 6);
    tcase_add_test(tcase, a_counter_batch_counts_and_does_not_mix);
    tcase_add_test(tcase, bt_03_a_child_that_cannot_be_is_refused_by_its_number);
    tcase_add_test(tcase, bt_06_an_empty_batch_is_refused_and_so_is_one_of_too_many);
    tcase_add_loop_test(tcase, a_batch_of_65535_statements_is_one_request, 4, 6);
    tcase_add_test(tcase, bt_06_a_batch_too_large_for_the_server_is_its_error_whole_and_the_connection_lives);
    tcase_add_test(tcase, bt_07_a_batch_goes_to_a_replica_of_its_first_known_key);
    tcase_add_test(tcase, bt_07_a_batch_is_tried_again_only_when_it_was_called_idempotent);
    tcase_add_test(tcase, a_batchs_memory_is_the_callers_again_when_the_call_returns);
    tcase_add_loop_test(tcase, lw_01_a_conditional_batch_answers_with_rows, 4, 6);
    tcase_add_loop_test(tcase, conditional_statements_say_whether_they_were_applied_and_what_was_there, 4, 6);
    tcase_add_test(tcase, lw_03_where_nothing_was_conditional_applied_is_minus_one);
    tcase_add_loop_test(tcase, lw_08_the_serial_level_is_sent_as_asked_on_statement_and_batch, 0, 2);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
