/* SPDX-License-Identifier: Apache-2.0 */

/* What a server's ERROR says reaches the application: code, full text, the fields of its kind, and whether a write may have
   happened. And what is refused before it is sent. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

struct wanted {
    struct node_fault fault;
    cqlring_status status;
    bool maybe;
    bool has_consistency, has_counts, has_write_type, has_failures, has_data, has_names;
};

/* Everything that is retried nowhere, or that ends because there is no other node. */
static const struct wanted kinds[] = {
    {.fault = {.code = 0x0000}, .status = CQLRING_SERVER, .maybe = true},
    {.fault = {.code = 0x000A}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x0100}, .status = CQLRING_AUTH},
    {.fault = {.code = 0x1000, .required = 3, .alive = 2}, .status = CQLRING_SERVER, .has_consistency = true},
    {.fault = {.code = 0x1001}, .status = CQLRING_SERVER, .maybe = true},
    {.fault = {.code = 0x1002}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x1003}, .status = CQLRING_SERVER, .maybe = true},
    {.fault = {.code = 0x1100, .received = 1, .required = 2, .write_type = "SIMPLE"}, .status = CQLRING_SERVER, .maybe = true, .has_consistency = true, .has_counts = true, .has_write_type = true},
    {.fault = {.code = 0x1100, .received = 1, .required = 2, .write_type = "CAS", .count = 7}, .status = CQLRING_SERVER, .maybe = true, .has_consistency = true, .has_counts = true, .has_write_type = true},
    {.fault = {.code = 0x1200, .received = 1, .required = 2, .data_present = 1}, .status = CQLRING_SERVER, .has_consistency = true, .has_counts = true, .has_data = true},
    {.fault = {.code = 0x1300, .received = 1, .required = 2, .failures = 2, .data_present = 1}, .status = CQLRING_SERVER, .has_consistency = true, .has_counts = true, .has_failures = true, .has_data = true},
    {.fault = {.code = 0x1400}, .status = CQLRING_SERVER, .has_names = true},
    {.fault = {.code = 0x1500, .received = 1, .required = 2, .failures = 2, .write_type = "BATCH"}, .status = CQLRING_SERVER, .maybe = true, .has_consistency = true, .has_counts = true, .has_failures = true, .has_write_type = true},
    {.fault = {.code = 0x1600}, .status = CQLRING_SERVER, .maybe = true},
    {.fault = {.code = 0x1700, .received = 1, .required = 2}, .status = CQLRING_SERVER, .maybe = true, .has_consistency = true, .has_counts = true},
    {.fault = {.code = 0x2000}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x2100}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x2200}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x2300}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x2400}, .status = CQLRING_SERVER, .has_names = true},
    {.fault = {.code = 0x2500}, .status = CQLRING_SERVER},
    {.fault = {.code = 0x4321}, .status = CQLRING_SERVER, .maybe = true}, /* RT-07: not known to anybody */
    {.fault = {.code = -1}, .status = CQLRING_SERVER, .maybe = true},
};

static void has_fields(const struct wanted *wanted, const cqlring_error_detail *detail, bool v5)
{
    const struct node_fault *fault = &wanted->fault;
    ck_assert_int_eq(detail->server_code, fault->code);
    ck_assert(ask_is(detail->message, "the planned words"));
    if (wanted->has_consistency)
        ck_assert_int_eq(detail->consistency, CQLRING_LOCAL_QUORUM);
    else
        ck_assert_int_eq(detail->consistency, CQLRING_CONSISTENCY_DEFAULT);
    if (fault->code == 0x1000) {
        ck_assert_int_eq(detail->required, 3);
        ck_assert_int_eq(detail->alive, 2);
    }
    if (wanted->has_counts) {
        ck_assert_int_eq(detail->received, 1);
        ck_assert_int_eq(detail->required, 2);
    }
    ck_assert(ask_is(detail->write_type, wanted->has_write_type ? fault->write_type : ""));
    ck_assert_uint_eq(detail->data_present, wanted->has_data);
    if (wanted->has_failures) {
        ck_assert_int_eq(detail->failures, 2);
        ck_assert_int_eq(detail->reasons.size, v5 ? 2 * (1 + 4 + 2) : 0);
    }
    ck_assert(ask_is(detail->keyspace, wanted->has_names ? "ks" : ""));
    ck_assert(ask_is(detail->table, fault->code == 0x2400 ? "ks.t" : ""));
    ck_assert(ask_is(detail->function, fault->code == 0x1400 ? "f" : ""));
}

START_TEST(rt_07_ms_06_an_error_of_every_kind_carries_its_code_and_fields)
{
    bool v5 = _i == 5;
    struct flow flow;
    flow_init(&flow);
    flow.options.protocol_version = _i;
    flow_start(&flow);
    flow_open(&flow);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct node_fault fault = kinds[i].fault;
        fault.kind = NODE_FAULT_ERROR;
        fault.opcode = OPCODE_QUERY;
        fault.table = "ks.t";
        fault.message = "the planned words";
        ck_assert_uint_ne(node_fault_add(flow.node, &fault), 0);
        cqlring_execution how = {.struct_size = sizeof how, .consistency = CQLRING_LOCAL_QUORUM};
        cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", &how);
        cqlring_error error;
        cqlring_status status = ask_wait(future, &error);
        node_fault_remove(flow.node, 0);
        ck_assert_msg(status == kinds[i].status, "0x%04x: %s: %s", (unsigned)fault.code, cqlring_status_name(status), error.message);
        ck_assert_int_eq(error.server_code, fault.code);
        ck_assert_uint_eq(error.phase, CQLRING_ANSWERED);
        ck_assert_msg(error.may_have_been_applied == kinds[i].maybe, "0x%04x: may have been applied: %u", (unsigned)fault.code, error.may_have_been_applied);
        ck_assert_ptr_nonnull(strstr(error.message, "the planned words"));
        char code[16];
        snprintf(code, sizeof code, "0x%04x", (unsigned)fault.code);
        ck_assert_ptr_nonnull(strstr(error.message, code));
        ck_assert_str_eq(error.node, ask_address(&flow, 0));
        cqlring_error_detail detail;
        const cqlring_completion *completion = cqlring_future_completion(future);
        ck_assert_ptr_null(completion->result);
        ck_assert_uint_eq((completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0, kinds[i].maybe);
        ck_assert(cqlring_completion_detail(completion, &detail));
        has_fields(&kinds[i], &detail, v5);
        cqlring_future_release(future);
    }
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(rt_07_the_negotiated_rate_limit_code_is_no_unknown_code)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.shards = 2;
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "error:code=0xF000,table=ks.t,data_present=1");
    cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    cqlring_error error;
    ck_assert_int_eq(ask_wait(future, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0xF000);
    ck_assert_uint_eq(error.may_have_been_applied, 0); /* the coordinator itself did not let it in */
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(cqlring_future_completion(future), &detail));
    ck_assert_int_eq(detail.server_code, 0xF000);
    ck_assert_uint_eq(detail.rate_limited, 1);
    ck_assert_uint_eq(detail.rejected_by_coordinator, 1);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(ms_06_a_body_cut_short_still_gives_code_and_message)
{
    struct flow flow;
    flow_up(&flow);
    for (int cut = 0; cut <= 7; cut++) { /* "ks" and "t" with their lengths are 7 bytes */
        char fault[64];
        snprintf(fault, sizeof fault, "truncated:count=%d,times=1,table=ks.t", cut);
        if (cut > 0)
            flow_fault(&flow, fault);
        cqlring_future *future = ask_start(&flow, "CREATE TABLE ks.t (k int PRIMARY KEY)", NULL);
        cqlring_error error;
        ck_assert_int_eq(ask_wait(future, &error), CQLRING_SERVER);
        ck_assert_int_eq(error.server_code, 0x2400);
        cqlring_error_detail detail;
        ck_assert(cqlring_completion_detail(cqlring_future_completion(future), &detail));
        ck_assert_int_eq(detail.server_code, 0x2400);
        ck_assert_int_gt(detail.message.size, 0);
        ck_assert(ask_is(detail.keyspace, cut <= 3 ? "ks" : ""));
        ck_assert(ask_is(detail.table, cut == 0 ? "t" : ""));
        cqlring_future_release(future);
    }
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_body_without_a_whole_message_ends_the_connection_in_words)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "truncated:count=20,times=1,table=ks.t");
    cqlring_error error;
    ck_assert_int_eq(flow_try(&flow, "CREATE TABLE ks.t (k int PRIMARY KEY)", NULL, &error), CQLRING_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(error.message, "ERROR that cannot be read"));
    flow_close(&flow);
}
END_TEST

START_TEST(a_long_message_is_cut_at_a_character_and_whole_in_the_detail)
{
    struct flow flow;
    flow_up(&flow);
    char message[3001];
    for (size_t i = 0; i + 3 < sizeof message; i += 3)
        memcpy(message + i, "\xE2\x82\xAC", 4);
    struct node_fault fault = {.kind = NODE_FAULT_ERROR, .code = 0x2200, .table = "ks.t", .message = message, .times = 1};
    node_fault_add(flow.node, &fault);
    cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    cqlring_error error;
    ck_assert_int_eq(ask_wait(future, &error), CQLRING_SERVER);
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(cqlring_future_completion(future), &detail));
    ck_assert(ask_is(detail.message, message));
    size_t size = strlen(error.message);
    ck_assert_uint_gt(size, 250);
    ck_assert_uint_eq((uint8_t)error.message[size - 1], 0xAC); /* no half character */
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(an_error_that_is_not_the_servers_has_no_detail)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "drop:table=ks.t");
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 20000};
    cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", &how);
    ck_assert_int_eq(ask_wait(future, NULL), CQLRING_TIMEOUT);
    cqlring_error_detail detail;
    ck_assert(!cqlring_completion_detail(cqlring_future_completion(future), &detail));
    ck_assert(!cqlring_completion_detail(NULL, &detail));
    cqlring_future_release(future);
    node_fault_remove(flow.node, 0);
    future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert(!cqlring_completion_detail(cqlring_future_completion(future), &detail));
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(ps_10_a_text_with_values_that_is_answered_unprepared_is_asked_again)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "error:code=0x2500,times=1,opcode=QUERY,table=ks.t");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("x")};
    flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 2);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    flow_close(&flow);
}
END_TEST

START_TEST(rt_03_a_read_time_out_is_retried_once_when_only_the_data_was_late)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "error:code=0x1200,received=2,required=2,data_present=0,times=1,table=ks.t");
    flow_cql(&flow, "SELECT k FROM ks.t");
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 2);
    flow_fault(&flow, "error:code=0x1200,received=2,required=2,data_present=1,times=1,table=ks.t");
    cqlring_error error;
    ck_assert_int_eq(flow_try(&flow, "SELECT k FROM ks.t", NULL, &error), CQLRING_SERVER);
    ck_assert_uint_eq(error.attempts, 1);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 3);
    flow_close(&flow);
}
END_TEST

START_TEST(retry_none_takes_the_first_answer)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 3;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES}, none = {.struct_size = sizeof none, .idempotent = CQLRING_YES, .retry = CQLRING_RETRY_NONE};
    flow_fault(&flow, "error:code=0x1001,times=1,table=ks.t");
    flow_ok(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &how, NULL, NULL));
    flow_fault(&flow, "error:code=0x1001,times=1,table=ks.t");
    cqlring_error error;
    ck_assert_int_eq(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &none, NULL, &error), CQLRING_SERVER);
    ck_assert_uint_eq(error.attempts, 1);
    flow_close(&flow);
}
END_TEST

/* ---- what is refused at the call ---- */

static cqlring_status refused(const cqlring_request *request, const char *word)
{
    cqlring_error error = {0};
    cqlring_future *future = NULL;
    cqlring_status status = cqlring_execute(request, &future, &error);
    ck_assert_int_ne(status, CQLRING_OK);
    ck_assert_int_eq(error.status, status);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_ptr_null(future);
    ck_assert_msg(strstr(error.message, word) != NULL, "\"%s\" is not in: %s", word, error.message);
    return status;
}

START_TEST(requests_that_cannot_be_are_refused_with_the_reason)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes two[2] = {flow_bigint(1), cqlring_text("x")}, short_key[2] = {flow_int(1), cqlring_text("x")}, bad_size[2] = {flow_bigint(1), {"x", -3}},
                  no_data[2] = {flow_bigint(1), {NULL, 4}};
    cqlring_bytes text = cqlring_text(FLOW_INSERT);
    cqlring_batch_child child = {.cql = text};
    cqlring_batch batch = {.children = &child, .count = 1};
    const struct {
        cqlring_request request;
        const char *word;
        cqlring_status status;
    } cases[] = {
        {{.session = flow.session}, "exactly one", CQLRING_INVALID},
        {{.session = NULL, .cql = text}, "session", CQLRING_INVALID},
        {{.session = flow.session, .cql = {"", 0}}, "cql is empty", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .prepared = insert}, "exactly one", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .batch = &batch}, "exactly one", CQLRING_INVALID},
        {{.session = flow.session, .prepared = insert, .values = two, .value_count = 1}, "1 values given, the statement has 2", CQLRING_INVALID},
        {{.session = flow.session, .prepared = insert}, "0 values given, the statement has 2", CQLRING_INVALID},
        {{.session = flow.session, .prepared = insert, .value_count = 2}, "missing", CQLRING_INVALID},
        {{.session = flow.session, .prepared = insert, .values = short_key, .value_count = 2}, "\"k\"", CQLRING_TYPE},
        {{.session = flow.session, .prepared = insert, .values = bad_size, .value_count = 2}, "\"v\"", CQLRING_INVALID},
        {{.session = flow.session, .prepared = insert, .values = no_data, .value_count = 2}, "\"v\"", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .value_count = 2}, "value", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .values = two, .value_count = 65536}, "65536", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .values = bad_size, .value_count = 2}, "value 1", CQLRING_INVALID},
        {{.session = flow.session, .cql = text, .values = no_data, .value_count = 2}, "value 1", CQLRING_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_int_eq(refused(&cases[i].request, cases[i].word), cases[i].status);
    ck_assert_int_eq(cqlring_execute(NULL, NULL, NULL), CQLRING_INVALID);
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE) + ask_seen_count(OPCODE_QUERY) + ask_seen_count(OPCODE_BATCH), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_use_statement_is_refused_with_advice_and_the_session_goes_on)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_error error;
    ck_assert_int_eq(flow_try(&flow, "USE ks", NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "open another session"));
    for (int i = 0; i < 20; i++) {
        flow_cql(&flow, "INSERT INTO ks.t (k) VALUES (1)");
        ck_assert_int_eq(flow_try(&flow, "SELECT k FROM t", NULL, &error), CQLRING_SERVER); /* no keyspace has stuck to it */
    }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("execute_error");
    TCase *tcase = tcase_create("execute_error");
    tcase_add_loop_test(tcase, rt_07_ms_06_an_error_of_every_kind_carries_its_code_and_fields, 4, 6);
    tcase_add_test(tcase, rt_07_the_negotiated_rate_limit_code_is_no_unknown_code);
    tcase_add_test(tcase, ms_06_a_body_cut_short_still_gives_code_and_message);
    tcase_add_test(tcase, a_body_without_a_whole_message_ends_the_connection_in_words);
    tcase_add_test(tcase, a_long_message_is_cut_at_a_character_and_whole_in_the_detail);
    tcase_add_test(tcase, an_error_that_is_not_the_servers_has_no_detail);
    tcase_add_test(tcase, ps_10_a_text_with_values_that_is_answered_unprepared_is_asked_again);
    tcase_add_test(tcase, rt_03_a_read_time_out_is_retried_once_when_only_the_data_was_late);
    tcase_add_test(tcase, retry_none_takes_the_first_answer);
    tcase_add_test(tcase, requests_that_cannot_be_are_refused_with_the_reason);
    tcase_add_test(tcase, a_use_statement_is_refused_with_advice_and_the_session_goes_on);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
