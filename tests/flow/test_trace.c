/* SPDX-License-Identifier: Apache-2.0 */

/* What servers say beside their answers: traces, read on request; warnings, in the log. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

#define SELECT "SELECT v FROM ks.t WHERE k = 1"

static const cqlring_execution traced = {.struct_size = sizeof traced, .tracing = CQLRING_YES};

static void up(struct flow *flow)
{
    flow_init(flow);
    watch_log(flow);
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
    flow_start(flow);
    flow_open(flow);
}

static void trace_id(struct flow *flow, uint8_t id[16])
{
    cqlring_result *result = NULL;
    flow_ok(ask_text(flow, SELECT, NULL, 0, &traced, &result, NULL));
    ck_assert(cqlring_result_trace_id(result, id));
    cqlring_result_release(result);
}

static void ck_assert_trace(struct flow *flow, const uint8_t id[16], cqlring_future *future)
{
    cqlring_error error;
    cqlring_status status = ask_wait(future, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    const cqlring_trace *trace = cqlring_future_trace(future);
    ck_assert_ptr_nonnull(trace);
    ck_assert_mem_eq(trace->id, id, 16);
    ck_assert_str_eq(trace->request, "Execute CQL3 query");
    ck_assert_str_eq(trace->command, "QUERY");
    ck_assert_str_eq(trace->coordinator, node_address(flow->node, 0));
    ck_assert_int_eq(trace->duration_us, 42);
    ck_assert_int_gt(trace->started_ms, INT64_C(1500000000000));
    ck_assert_uint_eq(trace->parameter_count, 1);
    ck_assert_str_eq(trace->parameters[0].name, "consistency_level");
    ck_assert_str_eq(trace->parameters[0].value, "ONE");
    ck_assert_uint_eq(trace->event_count, 2);
    ck_assert_str_eq(trace->events[0].activity, "Parsing");
    ck_assert_int_eq(trace->events[1].elapsed_us, 40);
    ck_assert_str_eq(trace->events[1].source, node_address(flow->node, 0));
    ck_assert_str_eq(trace->events[1].thread, "node-0");
}

START_TEST(a_traced_request_can_be_looked_at)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16];
    cqlring_future *future = NULL;
    trace_id(&flow, id);
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    ck_assert_trace(&flow, id, future);
    ck_assert_ptr_null(cqlring_future_cluster(future));
    cqlring_future_release(future);
    future = ask_start(&flow, SELECT, NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_ptr_null(cqlring_future_trace(future)); /* it is none */
    cqlring_future_release(future);
    ck_assert_ptr_null(cqlring_future_trace(NULL));
    ck_assert_int_eq(cqlring_trace_fetch(flow.cluster, NULL, &future, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_trace_fetch(NULL, id, &future, NULL), CQLRING_INVALID);
    flow_close(&flow);
}
END_TEST

START_TEST(ms_05_it_is_looked_for_until_the_server_has_written_it_down)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16];
    cqlring_future *future = NULL;
    trace_id(&flow, id);
    flow_fault(&flow, "no-rows:table=system_traces.sessions,times=4");
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    ck_assert_trace(&flow, id, future);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(it_is_looked_for_over_the_next_control_connection)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16];
    cqlring_future *future = NULL;
    trace_id(&flow, id);
    flow_fault(&flow, "close:table=system_traces.events,times=1");
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    ck_assert_trace(&flow, id, future);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(ms_05_what_was_never_traced_is_given_up)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16] = {1, 2, 3};
    cqlring_future *future = NULL;
    cqlring_error error;
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    ck_assert_int_eq(ask_end(future, &error), CQLRING_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(error.message, "traced"));
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_lt(counters.opcodes[OPCODE_QUERY], 60); /* it asks less and less often */
    flow_close(&flow);
}
END_TEST

/* A session that never ends, and an event without its time: after the limit, what there is. */
START_TEST(ms_05_what_is_half_written_is_told_as_far_as_it_goes)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16];
    cqlring_future *future = NULL;
    cqlring_error error;
    trace_id(&flow, id);
    char text[37], cql[300];
    cqlring_uuid_format(id, text);
    snprintf(cql, sizeof cql, "UPDATE system_traces.sessions SET duration = null, parameters = null WHERE session_id = %s", text);
    ck_assert_int_eq(node_cql(flow.node, cql, NULL, NULL, 0), 0);
    snprintf(cql, sizeof cql, "INSERT INTO system_traces.events (session_id, event_id, activity) VALUES (%s, now(), 'Half')", text);
    ck_assert_int_eq(node_cql(flow.node, cql, NULL, NULL, 0), 0);
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    cqlring_status status = ask_wait(future, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    const cqlring_trace *trace = cqlring_future_trace(future);
    ck_assert_int_eq(trace->duration_us, -1);
    ck_assert_uint_eq(trace->parameter_count, 0);
    ck_assert_uint_eq(trace->event_count, 3);
    ck_assert_str_eq(trace->events[2].activity, "Half");
    ck_assert_int_eq(trace->events[2].elapsed_us, -1);
    ck_assert_str_eq(trace->events[2].source, "");
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(a_server_that_refuses_is_believed)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16] = {1};
    cqlring_future *future = NULL;
    cqlring_error error;
    flow_fault(&flow, "error:code=0x2100,table=system_traces.sessions");
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    ck_assert_int_eq(ask_end(future, &error), CQLRING_SERVER);
    flow_close(&flow);
}
END_TEST

START_TEST(a_close_ends_the_looking)
{
    struct flow flow;
    up(&flow);
    uint8_t id[16] = {1};
    cqlring_future *future = NULL, *second = NULL, *close = NULL;
    flow_fault(&flow, "ignore:table=system_traces.sessions,times=1");
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &future, NULL));
    watch_for(&flow, watch_faults, &(uint64_t){1});
    flow_ok(cqlring_trace_fetch(flow.cluster, id, &second, NULL));
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &close, NULL));
    flow_ok(ask_end(close, NULL));
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(ask_end(second, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(cqlring_trace_fetch(flow.cluster, id, &future, NULL), CQLRING_CLOSED);
    flow_close(&flow);
}
END_TEST

/* More than the control connection takes at once. */
START_TEST(many_traces_at_once_find_room_one_after_the_other)
{
    enum { COUNT = 300 };
    struct flow flow;
    up(&flow);
    uint8_t id[16];
    static cqlring_future *futures[COUNT];
    trace_id(&flow, id);
    for (int i = 0; i < COUNT; i++)
        flow_ok(cqlring_trace_fetch(flow.cluster, id, &futures[i], NULL));
    int found = 0;
    for (int i = 0; i < COUNT; i++) {
        cqlring_status status = ask_end(futures[i], NULL);
        found += status == CQLRING_OK;
        ck_assert(status == CQLRING_OK || status == CQLRING_TIMEOUT); /* of a machine that is slow */
    }
    ck_assert_int_gt(found, 64);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(warnings_are_logged_and_a_flood_of_them_is_not)
{
    struct flow flow;
    up(&flow);
    flow_fault(&flow, "warnings:count=2,opcode=QUERY,table=ks.t");
    for (int i = 0; i < 300; i++)
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_ge(watch_log_count("warns of QUERY"), 1);
    ck_assert_uint_le(watch_log_count("warns of QUERY"), 60); /* one a second */
    watch_pass(&flow, 1100);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_ge(watch_log_count("more since the last"), 1);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("trace");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_traced_request_can_be_looked_at);
    tcase_add_test(tcase, ms_05_it_is_looked_for_until_the_server_has_written_it_down);
    tcase_add_test(tcase, it_is_looked_for_over_the_next_control_connection);
    tcase_add_test(tcase, ms_05_what_was_never_traced_is_given_up);
    tcase_add_test(tcase, ms_05_what_is_half_written_is_told_as_far_as_it_goes);
    tcase_add_test(tcase, a_server_that_refuses_is_believed);
    tcase_add_test(tcase, a_close_ends_the_looking);
    tcase_add_test(tcase, many_traces_at_once_find_room_one_after_the_other);
    tcase_add_test(tcase, warnings_are_logged_and_a_flood_of_them_is_not);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
