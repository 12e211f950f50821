/* SPDX-License-Identifier: Apache-2.0 */

/* Single requests that end otherwise than with an answer: time-outs, cancels, limits, the close; and that the error tells how far
   they had got. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

/* One connection that takes one request at a time, so that a second one waits for it. */
static void up_narrow(struct flow *flow)
{
    flow_init(flow);
    ask_record(flow);
    flow->options.inflight_per_connection = 1;
    flow_start(flow);
    flow_open(flow);
}

static const cqlring_execution at_once = {.struct_size = sizeof at_once, .timeout_us = 40000};

/* ---- time-outs ---- */

START_TEST(a_time_out_names_the_node_the_attempts_and_both_times)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "drop:opcode=QUERY,table=ks.t");
    const char *texts[] = {"INSERT INTO ks.t (k) VALUES (1)", "SELECT k FROM ks.t"};
    for (int i = 0; i < 2; i++) {
        cqlring_error error = {0};
        cqlring_future *future = ask_start(&flow, texts[i], &at_once);
        ck_assert_int_eq(ask_wait(future, &error), CQLRING_TIMEOUT);
        const cqlring_completion *completion = cqlring_future_completion(future);
        ck_assert_uint_eq(completion->status, CQLRING_TIMEOUT);
        ck_assert_int_eq(memcmp(completion->error, &error, sizeof error), 0);
        ck_assert_int_eq(error.status, CQLRING_TIMEOUT);
        ck_assert_int_eq(error.server_code, 0);
        ck_assert_str_eq(error.node, ask_address(&flow, 0));
        ck_assert_uint_eq(error.attempts, 1);
        ck_assert_uint_eq(error.phase, CQLRING_SENT);
        ck_assert_uint_ge(error.queued_us + error.in_flight_us, 40000);
        ck_assert_uint_gt(error.in_flight_us, 0);
        ck_assert_uint_eq(completion->queued_us, error.queued_us);
        ck_assert_uint_eq(completion->in_flight_us, error.in_flight_us);
        ck_assert_uint_eq(error.may_have_been_applied, i == 0); /* a read changes nothing */
        ck_assert_uint_eq((completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0, i == 0);
        ck_assert_ptr_nonnull(strstr(error.message, "QUERY to "));
        ck_assert_ptr_nonnull(strstr(error.message, "no answer in 40 ms"));
        cqlring_future_release(future);
    }
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.timeouts, 2);
    ck_assert_uint_eq(stats.connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_request_that_timed_out_in_the_queue_was_not_sent)
{
    struct flow flow;
    up_narrow(&flow);
    flow_fault(&flow, "drop:times=1,table=ks.t");
    cqlring_future *first = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    cqlring_error error = {0};
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k) VALUES (2)", NULL, 0, &at_once, NULL, &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_eq(error.attempts, 0);
    ck_assert_uint_ge(error.queued_us, 40000);
    ck_assert_uint_eq(error.in_flight_us, 0);
    cqlring_future_cancel(first);
    ck_assert_int_eq(ask_end(first, NULL), CQLRING_CANCELLED);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 1);
    flow_close(&flow);
}
END_TEST

START_TEST(a_late_answer_frees_its_stream_and_harms_nobody)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "late:delay_us=120000,times=1,table=ks.t");
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &at_once, NULL, NULL), CQLRING_TIMEOUT);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.orphans, 1);
    /* the next answers come after the late one: one that is as late, on the same connection */
    flow_fault(&flow, "late:delay_us=150000,times=1,table=ks.t");
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "SELECT k FROM ks.t", &result, NULL));
    ck_assert_int_eq(ask_int(result, 0, 0), 1);
    cqlring_result_release(result);
    stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.late_replies, 1);
    ck_assert_uint_eq(stats.connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(to_07_a_few_time_outs_leave_the_connection_and_the_good_requests_alone)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "drop:every=90,times=11,opcode=EXECUTE");
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    enum { COUNT = 1000 };
    static cqlring_future *futures[COUNT];
    int timed_out = 0;
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 3000000};
    for (int i = 0; i < COUNT; i++) {
        cqlring_bytes values[2] = {flow_bigint(i), cqlring_text("v")};
        futures[i] = ask_start_prepared(&flow, insert, values, 2, &how);
    }
    for (int i = 0; i < COUNT; i++) {
        cqlring_status status = ask_end(futures[i], NULL);
        timed_out += status == CQLRING_TIMEOUT;
        ck_assert(status == CQLRING_OK || status == CQLRING_TIMEOUT);
    }
    ck_assert_int_eq(timed_out, 11);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(an_idempotent_write_that_times_out_once_is_tried_again)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    flow_fault(&flow, "drop:times=1,table=ks.t");
    cqlring_execution how = {.struct_size = sizeof how, .attempt_timeout_us = 40000, .idempotent = CQLRING_YES};
    cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", &how);
    flow_ok(ask_wait(future, NULL));
    ck_assert_uint_eq(cqlring_future_completion(future)->attempts, 2);
    cqlring_future_release(future);
    /* the same, not marked: the attempt's time-out is the end, for nobody knows what it did */
    flow_fault(&flow, "drop:times=1,table=ks.t");
    how.idempotent = CQLRING_NO;
    cqlring_error error;
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &how, NULL, &error), CQLRING_TIMEOUT);
    ck_assert_uint_eq(error.attempts, 1);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    flow_close(&flow);
}
END_TEST

/* ---- limits ---- */

START_TEST(full_by_requests_max_takes_nothing_and_ends_with_the_first_answer)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow.session_options.requests_max = 4;
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "drop:times=4,table=ks.t");
    cqlring_future *futures[4], *more = NULL;
    for (int i = 0; i < 4; i++)
        futures[i] = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    while (ask_seen_count(OPCODE_QUERY) < 4)
        ck_assert_int_eq(cqlring_future_wait(futures[0], 2000, NULL), CQLRING_TIMEOUT);
    cqlring_request request = {.session = flow.session, .cql = cqlring_text("INSERT INTO ks.t (k) VALUES (2)")};
    cqlring_error error;
    ck_assert_int_eq(cqlring_execute(&request, &more, &error), CQLRING_FULL);
    ck_assert_ptr_null(more);
    ck_assert_ptr_nonnull(strstr(error.message, "requests_max 4"));
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    cqlring_future_cancel(futures[0]);
    ck_assert_int_eq(ask_end(futures[0], NULL), CQLRING_CANCELLED);
    flow_ok(cqlring_execute(&request, &more, &error));
    flow_ok(ask_end(more, NULL));
    for (int i = 1; i < 4; i++) {
        cqlring_future_cancel(futures[i]);
        ck_assert_int_eq(ask_end(futures[i], NULL), CQLRING_CANCELLED);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 5);
    flow_close(&flow);
}
END_TEST

START_TEST(full_by_bytes_max_but_one_large_request_goes_alone)
{
    struct flow flow;
    flow_init(&flow);
    flow.session_options.bytes_max = 1000;
    flow_start(&flow);
    flow_open(&flow);
    static uint8_t blob[4000];
    flow_fault(&flow, "drop:times=1,table=ks.t");
    cqlring_bytes values[2] = {flow_bigint(1), {blob, 600}};
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(FLOW_INSERT), .values = values, .value_count = 2};
    cqlring_future *first = NULL, *second = NULL;
    cqlring_error error;
    flow_ok(cqlring_execute(&request, &first, &error));
    ck_assert_int_eq(cqlring_execute(&request, &second, &error), CQLRING_FULL);
    ck_assert_ptr_nonnull(strstr(error.message, "bytes_max 1000"));
    values[1].size = 100; /* a small one still has room */
    flow_ok(cqlring_execute_sync(&request, NULL, &error));
    cqlring_future_cancel(first);
    ck_assert_int_eq(ask_end(first, NULL), CQLRING_CANCELLED);
    values[1].size = sizeof blob; /* larger than all the room: nothing else is under way */
    flow_ok(cqlring_execute_sync(&request, NULL, &error));
    flow_close(&flow);
}
END_TEST

START_TEST(above_request_size_max_a_request_is_refused_with_both_sizes)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.request_size_max = 2000;
    flow_start(&flow);
    flow_open(&flow);
    static uint8_t blob[4000];
    cqlring_bytes values[2] = {flow_bigint(1), {blob, sizeof blob}};
    cqlring_error error;
    ck_assert_int_eq(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, &error), CQLRING_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(error.message, "2000"));
    char size[16];
    snprintf(size, sizeof size, "%zu", strlen(FLOW_INSERT) + 2 + 4 + 8 + 4 + sizeof blob);
    ck_assert_msg(strstr(error.message, size) != NULL, "%s is not in: %s", size, error.message);
    values[1].size = 1000;
    flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, &error));
    flow_close(&flow);
}
END_TEST

/* ---- cancel ---- */

START_TEST(cancel_of_what_was_sent_may_have_been_applied)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "drop:table=ks.t");
    for (int kind = 0; kind < 3; kind++) {
        cqlring_bytes values[2] = {flow_bigint(kind), cqlring_text("v")};
        cqlring_future *future = kind == 0   ? ask_start(&flow, "INSERT INTO ks.t (k) VALUES (9)", NULL)
                                 : kind == 1 ? ask_start_prepared(&flow, insert, values, 2, NULL)
                                             : ask_start(&flow, "SELECT k FROM ks.t", NULL);
        uint32_t before = (uint32_t)kind; /* wait until the node has it: in caller mode that runs the turns */
        cqlring_error error;
        while (ask_seen_count(OPCODE_QUERY) + ask_seen_count(OPCODE_EXECUTE) <= before)
            ck_assert_int_eq(cqlring_future_wait(future, 2000, &error), CQLRING_TIMEOUT);
        cqlring_future_cancel(future);
        cqlring_future_cancel(future);
        ck_assert_int_eq(ask_wait(future, &error), CQLRING_CANCELLED);
        ck_assert_uint_eq(error.phase, CQLRING_SENT);
        ck_assert_uint_eq(error.may_have_been_applied, kind != 2);
        ck_assert_uint_eq(error.attempts, 1);
        ck_assert_str_eq(error.node, ask_address(&flow, 0));
        cqlring_future_cancel(future); /* after the end: nothing */
        ck_assert_int_eq(cqlring_future_wait(future, 0, &error), CQLRING_CANCELLED);
        cqlring_future_release(future);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(cancel_of_what_waits_was_not_sent)
{
    struct flow flow;
    up_narrow(&flow);
    flow_fault(&flow, "drop:times=1,table=ks.t");
    cqlring_future *first = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    cqlring_future *second = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (2)", NULL), *third = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (3)", NULL);
    cqlring_error error;
    while (ask_seen_count(OPCODE_QUERY) == 0)
        ck_assert_int_eq(cqlring_future_wait(second, 2000, &error), CQLRING_TIMEOUT);
    cqlring_future_cancel(second);
    ck_assert_int_eq(ask_end(second, &error), CQLRING_CANCELLED);
    ck_assert_uint_eq(error.phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    ck_assert_uint_eq(error.attempts, 0);
    cqlring_future_cancel(first); /* its stream stays taken, but the connection's window is free again */
    ck_assert_int_eq(ask_end(first, NULL), CQLRING_CANCELLED);
    flow_ok(ask_end(third, NULL));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 2); /* the first was executed, the third too */
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 2);
    flow_close(&flow);
}
END_TEST

START_TEST(cancel_at_once_is_one_outcome_whoever_was_first)
{
    struct flow flow;
    flow_up(&flow);
    int cancelled = 0;
    for (int i = 0; i < 300; i++) {
        cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
        if (i % 3 == 0)
            (void)cqlring_future_wait(future, i, NULL);
        cqlring_future_cancel(future);
        cqlring_error error;
        cqlring_status status = ask_end(future, &error);
        ck_assert(status == CQLRING_OK || status == CQLRING_CANCELLED);
        if (status == CQLRING_CANCELLED)
            ck_assert_uint_eq(error.may_have_been_applied, error.phase == CQLRING_SENT);
        cancelled += status == CQLRING_CANCELLED;
    }
    flow_cql(&flow, "SELECT k FROM ks.t");
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    (void)cancelled;
    flow_close(&flow);
}
END_TEST

/* ---- the close, the loss ---- */

START_TEST(a_close_without_drain_settles_what_is_under_way_as_closed)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "drop:table=ks.t");
    cqlring_future *write = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL), *read = ask_start(&flow, "SELECT k FROM ks.t", NULL), *closed = NULL;
    while (ask_seen_count(OPCODE_QUERY) < 2)
        ck_assert_int_eq(cqlring_future_wait(write, 2000, NULL), CQLRING_TIMEOUT);
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    cqlring_error error;
    ck_assert(cqlring_future_ready(write) && cqlring_future_ready(read));
    ck_assert_int_eq(ask_end(write, &error), CQLRING_CLOSED);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    ck_assert_int_eq(ask_end(read, &error), CQLRING_CLOSED);
    ck_assert_uint_eq(error.may_have_been_applied, 0);
    cqlring_request request = {.session = flow.session, .cql = cqlring_text("SELECT k FROM ks.t")};
    ck_assert_int_eq(cqlring_execute(&request, &write, &error), CQLRING_CLOSED);
    ck_assert_int_eq(cqlring_prepare(flow.session, cqlring_text(FLOW_SELECT), NULL, &write, &error), CQLRING_CLOSED);
    flow_ok(cqlring_session_close(flow.session, -1, &closed, NULL)); /* idempotent */
    flow_ok(ask_end(closed, NULL));
    flow_close(&flow);
}
END_TEST

START_TEST(a_draining_close_lets_them_finish)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 50000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_future *futures[20], *closed = NULL;
    for (int i = 0; i < 20; i++)
        futures[i] = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    flow_ok(cqlring_session_close(flow.session, -1, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    for (int i = 0; i < 20; i++)
        flow_ok(ask_end(futures[i], NULL));
    flow_close(&flow);
}
END_TEST

START_TEST(a_lost_connection_tells_what_was_sent_and_idempotent_ones_go_elsewhere)
{
    const char *kinds[] = {"close:times=1,table=ks.t", "half:times=1,table=ks.t", "garbage:times=1,table=ks.t"};
    for (int i = 0; i < 6; i++) {
        struct flow flow;
        flow_init(&flow);
        flow.node_options.nodes = 2;
        flow_start(&flow);
        flow_open(&flow);
        ask_until_connected(&flow);
        flow_fault(&flow, kinds[i / 2]);
        cqlring_execution how = {.struct_size = sizeof how, .idempotent = i % 2 == 0 ? CQLRING_NO : CQLRING_YES};
        cqlring_error error = {0};
        cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", &how);
        cqlring_status status = ask_wait(future, &error);
        ck_assert_msg(status == (i % 2 == 0 ? CQLRING_LOST : CQLRING_OK), "%s: %s: %s", kinds[i / 2], cqlring_status_name(status), error.message);
        ck_assert_uint_eq(cqlring_future_completion(future)->attempts, i % 2 == 0 ? 1 : 2);
        if (i % 2 == 0) {
            ck_assert_uint_eq(error.phase, CQLRING_SENT);
            ck_assert_uint_eq(error.may_have_been_applied, 1);
            ck_assert_uint_eq(error.attempts, 1);
        }
        cqlring_future_release(future);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_target_is_where_it_goes)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.nodes = 3;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    const cqlring_node *nodes[3];
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 3), 3);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 3; i++) {
            cqlring_execution how = {.struct_size = sizeof how, .target = nodes[i]};
            cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", &how);
            cqlring_error error = {0};
            cqlring_status status = ask_wait(future, &error);
            ck_assert_msg(status == CQLRING_OK, "%s", error.message);
            ck_assert_ptr_eq(cqlring_future_completion(future)->node, nodes[i]);
            cqlring_node_info info;
            cqlring_node_describe(nodes[i], &info);
            ck_assert_str_eq(info.address, ask_address(&flow, ask_seen(OPCODE_QUERY).node));
            cqlring_future_release(future);
        }
    flow_close(&flow);
}
END_TEST

/* The clock of a turn may have been read before the request came that it serves. */
START_TEST(how_long_it_waited_is_never_less_than_nothing)
{
    enum { ROUNDS = 30, TOGETHER = 100 };
    struct flow flow;
    int64_t began_us = watch_now_us(); /* before the first turn, whose clock the first request may find */
    flow_up(&flow);
    for (int round = 0; round < ROUNDS; round++) {
        cqlring_future *futures[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            futures[i] = ask_start(&flow, "SELECT v FROM ks.t WHERE k = 1", NULL);
        for (int i = 0; i < TOGETHER; i++) {
            flow_ok(ask_wait(futures[i], NULL));
            const cqlring_completion *completion = cqlring_future_completion(futures[i]);
            ck_assert_int_le((int64_t)completion->queued_us + completion->in_flight_us, watch_now_us() - began_us);
            cqlring_future_release(futures[i]);
        }
    }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("execute_outcome");
    TCase *tcase = tcase_create("execute_outcome");
    tcase_add_test(tcase, a_time_out_names_the_node_the_attempts_and_both_times);
    tcase_add_test(tcase, a_request_that_timed_out_in_the_queue_was_not_sent);
    tcase_add_test(tcase, a_late_answer_frees_its_stream_and_harms_nobody);
    tcase_add_test(tcase, to_07_a_few_time_outs_leave_the_connection_and_the_good_requests_alone);
    tcase_add_test(tcase, an_idempotent_write_that_times_out_once_is_tried_again);
    tcase_add_test(tcase, full_by_requests_max_takes_nothing_and_ends_with_the_first_answer);
    tcase_add_test(tcase, full_by_bytes_max_but_one_large_request_goes_alone);
    tcase_add_test(tcase, above_request_size_max_a_request_is_refused_with_both_sizes);
    tcase_add_test(tcase, cancel_of_what_was_sent_may_have_been_applied);
    tcase_add_test(tcase, cancel_of_what_waits_was_not_sent);
    tcase_add_test(tcase, cancel_at_once_is_one_outcome_whoever_was_first);
    tcase_add_test(tcase, a_close_without_drain_settles_what_is_under_way_as_closed);
    tcase_add_test(tcase, a_draining_close_lets_them_finish);
    tcase_add_test(tcase, a_lost_connection_tells_what_was_sent_and_idempotent_ones_go_elsewhere);
    tcase_add_test(tcase, a_target_is_where_it_goes);
    tcase_add_test(tcase, how_long_it_waited_is_never_less_than_nothing);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
