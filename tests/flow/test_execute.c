/* SPDX-License-Identifier: Apache-2.0 */

/* Single requests, as they go out: what is asked for is what the node sees, no more and no less; and what comes beside the rows. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask.h"

static void up(struct flow *flow)
{
    flow_init(flow);
    ask_record(flow);
    flow_start(flow);
    flow_open(flow);
}

static int64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- three ways to say it ---- */

START_TEST(a_text_goes_as_query_with_and_without_values)
{
    struct flow flow;
    up(&flow);
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0xcafe)", NULL, 0, NULL, &result, NULL));
    ck_assert_ptr_null(result);
    ck_assert(!ask_seen(OPCODE_QUERY).has_values);
    cqlring_bytes values[2] = {flow_bigint(2), cqlring_text("two")};
    flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, &result, NULL));
    ck_assert_ptr_null(result);
    ck_assert(ask_seen(OPCODE_QUERY).has_values);
    ck_assert_uint_eq(ask_seen(OPCODE_QUERY).value_count, 2);
    flow_ok(ask_text(&flow, FLOW_SELECT, values, 1, NULL, &result, NULL));
    ck_assert_uint_eq(cqlring_result_row_count(result), 1);
    ck_assert_uint_eq(cqlring_result_column_count(result), 1);
    ck_assert(ask_is(ask_cell(result, 0, 0), "two"));
    cqlring_column column;
    ck_assert(cqlring_result_column(result, 0, &column));
    ck_assert_str_eq(column.name, "v");
    ck_assert_str_eq(column.table, "t");
    ck_assert_str_eq(column.keyspace, "ks");
    ck_assert_int_eq(cqlring_type_kind(column.type), CQLRING_KIND_BLOB);
    cqlring_result_release(result);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE) + ask_seen_count(OPCODE_EXECUTE), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_prepared_statement_goes_as_execute)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_bytes values[2] = {flow_bigint(7), cqlring_text("seven")};
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, &result, NULL));
    ck_assert_ptr_null(result);
    struct node_seen seen = ask_seen(OPCODE_EXECUTE);
    ck_assert_str_eq(seen.text, FLOW_INSERT);
    ck_assert_uint_eq(seen.value_count, 2);
    ck_assert_int_eq(seen.page_size, 0);
    flow_ok(ask_prepared(&flow, select, values, 1, NULL, &result, NULL));
    ck_assert(ask_is(ask_cell(result, 0, 0), "seven"));
    ck_assert_int_eq(ask_seen(OPCODE_EXECUTE).page_size, 5000);
    cqlring_result_release(result);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 0);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(the_completion_tells_row_tag_times_attempts_and_node)
{
    struct flow flow;
    up(&flow);
    cqlring_request request = {.session = flow.session, .cql = cqlring_text("SELECT k FROM ks.t"), .tag = UINT64_C(0xFEDCBA9876543210)};
    cqlring_future *future = NULL;
    flow_ok(cqlring_execute(&request, &future, NULL));
    flow_ok(ask_wait(future, NULL));
    const cqlring_completion *completion = cqlring_future_completion(future);
    ck_assert_ptr_nonnull(completion);
    ck_assert(completion->tag == UINT64_C(0xFEDCBA9876543210));
    ck_assert_uint_eq(completion->status, CQLRING_OK);
    ck_assert_uint_eq(completion->phase, CQLRING_ANSWERED);
    ck_assert_uint_eq(completion->flags, CQLRING_COMPLETION_LAST);
    ck_assert_uint_eq(completion->attempts, 1);
    ck_assert_int_gt(completion->received_us, 0);
    ck_assert_ptr_null(completion->error);
    ck_assert_ptr_nonnull(completion->result);
    cqlring_node_info info;
    cqlring_node_describe(completion->node, &info);
    ck_assert_str_eq(info.address, ask_address(&flow, 0));
    ck_assert_ptr_null(cqlring_future_prepared(future));
    ck_assert_ptr_null(cqlring_future_session(future));
    ck_assert_ptr_null(cqlring_future_cluster(future));
    cqlring_future_release(future);
    future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    flow_ok(ask_wait(future, NULL));
    ck_assert_uint_eq(cqlring_future_completion(future)->flags, CQLRING_COMPLETION_LAST | CQLRING_COMPLETION_VOID);
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

/* ---- how ---- */

START_TEST(without_options_a_request_is_local_one_paged_and_stamped_by_the_client)
{
    struct flow flow;
    up(&flow);
    flow_cql(&flow, "SELECT k FROM ks.t");
    struct node_seen seen = ask_seen(OPCODE_QUERY);
    ck_assert_uint_eq(seen.version, 5);
    ck_assert_uint_eq(seen.flags, 0);
    ck_assert_uint_eq(seen.consistency, CQLRING_LOCAL_ONE);
    ck_assert_uint_eq(seen.serial_consistency, 0);
    ck_assert_int_eq(seen.page_size, 5000);
    ck_assert(seen.has_timestamp);
    int64_t off = seen.timestamp_us - wall_us();
    ck_assert_int_lt(off < 0 ? -off : off, INT64_C(60000000));
    ck_assert(!seen.has_now && !seen.has_names && !seen.has_paging_state && !seen.skip_metadata);
    ck_assert_uint_eq(seen.payload_count, 0);
    ck_assert_str_eq(seen.keyspace, "");
    flow_close(&flow);
}
END_TEST

static void is_as_asked(struct node_seen seen)
{
    ck_assert_uint_eq(seen.consistency, CQLRING_EACH_QUORUM);
    ck_assert_uint_eq(seen.serial_consistency, CQLRING_LOCAL_SERIAL);
    ck_assert(seen.has_timestamp);
    ck_assert_int_eq(seen.timestamp_us, -12345678901);
    ck_assert(seen.has_now);
    ck_assert_int_eq(seen.now_in_seconds, 1700000000);
    ck_assert_str_eq(seen.keyspace, "ks");
}

START_TEST(consistency_serial_timestamp_page_size_now_and_keyspace_go_out_as_asked)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_execution how = {.struct_size = sizeof how,
                             .consistency = CQLRING_EACH_QUORUM,
                             .serial_consistency = CQLRING_LOCAL_SERIAL,
                             .timestamp_us = -12345678901,
                             .page_size = 17,
                             .now_in_seconds = 1700000000,
                             .keyspace = cqlring_text("ks")};
    flow_ok(ask_text(&flow, "SELECT v FROM t WHERE k = 1", NULL, 0, &how, NULL, NULL));
    is_as_asked(ask_seen(OPCODE_QUERY));
    ck_assert_int_eq(ask_seen(OPCODE_QUERY).page_size, 17);
    cqlring_bytes value = flow_bigint(1);
    flow_ok(ask_prepared(&flow, select, &value, 1, &how, NULL, NULL));
    is_as_asked(ask_seen(OPCODE_EXECUTE));
    ck_assert_int_eq(ask_seen(OPCODE_EXECUTE).page_size, 17);
    cqlring_batch_child child = {.cql = cqlring_text("INSERT INTO t (k) VALUES (3)")};
    cqlring_batch batch = {.children = &child, .count = 1};
    cqlring_request request = {.session = flow.session, .batch = &batch, .execution = &how};
    flow_ok(cqlring_execute_sync(&request, NULL, NULL));
    is_as_asked(ask_seen(OPCODE_BATCH));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(every_consistency_level_is_the_wires_number)
{
    struct flow flow;
    up(&flow);
    for (int level = CQLRING_ONE; level <= CQLRING_ANY; level = level == CQLRING_LOCAL_ONE ? CQLRING_ANY : level + 1) {
        cqlring_execution how = {.struct_size = sizeof how, .consistency = (cqlring_consistency)level};
        (void)ask_text(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &how, NULL, NULL); /* SERIAL is not for writes: the server's business */
        ck_assert_uint_eq(ask_seen(OPCODE_QUERY).consistency, level == CQLRING_ANY ? 0 : (unsigned)level);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_sessions_defaults_hold_until_a_request_says_otherwise)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    const cqlring_execution defaults = {.struct_size = sizeof defaults,
                                        .consistency = CQLRING_QUORUM,
                                        .serial_consistency = CQLRING_LOCAL_SERIAL,
                                        .page_size = 3,
                                        .tracing = CQLRING_YES,
                                        .timestamp_us = INT64_MIN};
    flow.session_options.execution = &defaults;
    flow.session_options.keyspace = "ks";
    flow_start(&flow);
    flow_open(&flow);
    flow_ok(ask_text(&flow, "SELECT k FROM t", NULL, 0, NULL, NULL, NULL));
    struct node_seen seen = ask_seen(OPCODE_QUERY);
    ck_assert_uint_eq(seen.consistency, CQLRING_QUORUM);
    ck_assert_uint_eq(seen.serial_consistency, CQLRING_LOCAL_SERIAL);
    ck_assert_int_eq(seen.page_size, 3);
    ck_assert_uint_eq(seen.flags & FLAG_TRACING, FLAG_TRACING);
    ck_assert(!seen.has_timestamp);
    cqlring_execution how = {.struct_size = sizeof how,
                             .consistency = CQLRING_ONE,
                             .serial_consistency = CQLRING_ANY,
                             .page_size = -1,
                             .tracing = CQLRING_NO,
                             .timestamp_us = 5};
    flow_ok(ask_text(&flow, "SELECT k FROM t", NULL, 0, &how, NULL, NULL));
    seen = ask_seen(OPCODE_QUERY);
    ck_assert_uint_eq(seen.consistency, CQLRING_ONE);
    ck_assert_uint_eq(seen.serial_consistency, 0);
    ck_assert_int_eq(seen.page_size, 0);
    ck_assert_uint_eq(seen.flags & FLAG_TRACING, 0);
    ck_assert(seen.has_timestamp);
    ck_assert_int_eq(seen.timestamp_us, 5);
    flow_close(&flow);
}
END_TEST

START_TEST(options_that_make_no_sense_are_refused_before_anything_is_sent)
{
    struct flow flow;
    up(&flow);
    const cqlring_node *foreign = NULL; /* of the same address, but another cluster's */
    cqlring_cluster *other = NULL;
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &flow.options, &other, NULL));
    ck_assert_uint_eq(cqlring_cluster_nodes(other, &foreign, 1), 1);
    const cqlring_execution bad[] = {
        {.struct_size = 0},
        {.struct_size = sizeof *bad, .timeout_us = -2},
        {.struct_size = sizeof *bad, .timeout_us = INT64_MIN},
        {.struct_size = sizeof *bad, .attempt_timeout_us = -5},
        {.struct_size = sizeof *bad, .consistency = (cqlring_consistency)11},
        {.struct_size = sizeof *bad, .consistency = (cqlring_consistency)-1},
        {.struct_size = sizeof *bad, .serial_consistency = CQLRING_QUORUM},
        {.struct_size = sizeof *bad, .page_size = -2},
        {.struct_size = sizeof *bad, .payload_count = 1},
        {.struct_size = sizeof *bad, .payload_count = 65536},
        {.struct_size = sizeof *bad, .keyspace = {NULL, 5}},
        {.struct_size = sizeof *bad, .keyspace = {"ks", -5}},
        {.struct_size = sizeof *bad, .paging_state = {NULL, 5}},
        {.struct_size = sizeof *bad, .paging_state = {"x", -2}},
        {.struct_size = sizeof *bad, .target = foreign},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cqlring_error error = {0};
        ck_assert_int_eq(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &bad[i], NULL, &error), CQLRING_INVALID);
        ck_assert_int_eq(error.status, CQLRING_INVALID);
        ck_assert_int_eq(strncmp(error.message, "execution options: ", 19), 0);
    }
    ck_assert_uint_eq(ask_seen_count(0), 0);
    flow_ok(cqlring_cluster_close(other, 0, NULL, NULL));
    cqlring_cluster_release(other);
    /* and these are fine: for ever, and longer than a clock can count */
    const int64_t long_ones[] = {-1, INT64_MAX, INT64_MAX - 1};
    for (int i = 0; i < 3; i++) {
        cqlring_execution how = {.struct_size = sizeof how, .timeout_us = long_ones[i], .attempt_timeout_us = long_ones[i]};
        flow_ok(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &how, NULL, NULL));
    }
    flow_close(&flow);
}
END_TEST

START_TEST(on_v4_what_needs_v5_is_refused_in_words)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow.options.protocol_version = 4;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_error error;
    cqlring_execution now = {.struct_size = sizeof now, .now_in_seconds = 1}, keyspace = {.struct_size = sizeof keyspace, .keyspace = cqlring_text("ks")};
    ck_assert_int_eq(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &now, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "v5"));
    ck_assert_int_eq(ask_text(&flow, "SELECT k FROM t", NULL, 0, &keyspace, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "v5"));
    ck_assert_uint_eq(ask_seen_count(0), 0);
    flow_cql(&flow, "SELECT k FROM ks.t");
    ck_assert_uint_eq(ask_seen(OPCODE_QUERY).version, 4);
    flow_close(&flow);
}
END_TEST

/* ---- timestamps ---- */

struct writer_thread {
    pthread_t thread;
    struct flow *flow;
    uint32_t number;
    int failed;
};

enum { STAMP_THREADS = 8, STAMPS_EACH = 500 };

static void *write_many(void *context)
{
    struct writer_thread *writer = context;
    char cql[80];
    snprintf(cql, sizeof cql, "INSERT INTO ks.t (k) VALUES (%u)", writer->number);
    for (int i = 0; i < STAMPS_EACH; i++)
        writer->failed += ask_text(writer->flow, cql, NULL, 0, NULL, NULL, NULL) != CQLRING_OK;
    return NULL;
}

static int by_number(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

START_TEST(timestamps_of_one_thread_rise_strictly)
{
    struct flow flow;
    up(&flow);
    enum { COUNT = 500 };
    cqlring_future *futures[COUNT];
    for (int i = 0; i < COUNT; i++)
        futures[i] = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    for (int i = 0; i < COUNT; i++)
        flow_ok(ask_end(futures[i], NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), COUNT);
    for (uint32_t i = 1; i < COUNT; i++)
        ck_assert_int_gt(ask_seen_at(OPCODE_QUERY, i).timestamp_us, ask_seen_at(OPCODE_QUERY, i - 1).timestamp_us);
    flow_close(&flow);
}
END_TEST

/* TS-03 is about version-1 uuids, which are not made here; these are what is made from a clock by many threads. */
START_TEST(ts_03_timestamps_of_many_threads_are_all_different_and_rise_in_each)
{
    struct flow flow;
    up(&flow);
    enum { THREADS = STAMP_THREADS, COUNT = THREADS * STAMPS_EACH };
    _Static_assert((int)COUNT <= (int)ASK_SEEN_MAX, "all are recorded");
    struct writer_thread writers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        writers[i] = (struct writer_thread){.flow = &flow, .number = i};
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_many, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(writers[i].thread, NULL);
        ck_assert_int_eq(writers[i].failed, 0);
    }
    static int64_t stamps[COUNT];
    int64_t last[THREADS] = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        struct node_seen seen = ask_seen_at(OPCODE_QUERY, i);
        unsigned number = THREADS;
        ck_assert_int_eq(sscanf(seen.text, "INSERT INTO ks.t (k) VALUES (%u", &number), 1);
        ck_assert_uint_lt(number, THREADS);
        stamps[i] = seen.timestamp_us;
        ck_assert_int_gt(stamps[i], last[number]);
        last[number] = stamps[i];
    }
    qsort(stamps, COUNT, sizeof stamps[0], by_number);
    for (int i = 1; i < COUNT; i++)
        ck_assert_int_ne(stamps[i], stamps[i - 1]);
    flow_close(&flow);
}
END_TEST

START_TEST(timestamp_int64_min_sends_none_and_a_given_one_is_the_rows)
{
    struct flow flow;
    up(&flow);
    cqlring_execution none = {.struct_size = sizeof none, .timestamp_us = INT64_MIN}, given = {.struct_size = sizeof given, .timestamp_us = 1234567};
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("x")};
    flow_ok(ask_prepared(&flow, insert, values, 2, &given, NULL, NULL));
    ck_assert_int_eq(ask_number(&flow, "SELECT writetime(v) FROM ks.t WHERE k = 1"), 1234567);
    flow_ok(ask_prepared(&flow, insert, values, 2, &none, NULL, NULL));
    ck_assert(!ask_seen(OPCODE_EXECUTE).has_timestamp);
    ck_assert_int_gt(ask_number(&flow, "SELECT writetime(v) FROM ks.t WHERE k = 1"), wall_us() - 60000000);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- beside the rows ---- */

START_TEST(tracing_gives_the_id_of_a_trace_that_is_there)
{
    struct flow flow;
    up(&flow);
    cqlring_execution how = {.struct_size = sizeof how, .tracing = CQLRING_YES};
    const char *texts[] = {"INSERT INTO ks.t (k) VALUES (1)", "SELECT k FROM ks.t"};
    for (int i = 0; i < 2; i++) {
        cqlring_result *result = NULL;
        flow_ok(ask_text(&flow, texts[i], NULL, 0, &how, &result, NULL));
        ck_assert_uint_eq(ask_seen(OPCODE_QUERY).flags & FLAG_TRACING, FLAG_TRACING);
        uint8_t id[16];
        ck_assert_ptr_nonnull(result);
        ck_assert(cqlring_result_trace_id(result, id));
        ck_assert_uint_eq(cqlring_result_row_count(result), (unsigned)i);
        cqlring_bytes value = {id, 16};
        cqlring_result *trace = NULL;
        flow_ok(ask_text(&flow, "SELECT request FROM system_traces.sessions WHERE session_id = ?", &value, 1, NULL, &trace, NULL));
        ck_assert_uint_eq(cqlring_result_row_count(trace), 1);
        ck_assert(!cqlring_result_trace_id(trace, id));
        cqlring_result_release(trace);
        cqlring_result_release(result);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(warnings_come_with_rows_and_with_void)
{
    struct flow flow;
    up(&flow);
    flow_fault(&flow, "warnings:count=3");
    const char *texts[] = {"INSERT INTO ks.t (k) VALUES (1)", "SELECT k FROM ks.t"};
    for (int i = 0; i < 2; i++) {
        cqlring_future *future = ask_start(&flow, texts[i], NULL);
        flow_ok(ask_wait(future, NULL));
        const cqlring_completion *completion = cqlring_future_completion(future);
        ck_assert_uint_eq(completion->flags, CQLRING_COMPLETION_LAST | CQLRING_COMPLETION_WARNINGS);
        cqlring_bytes warnings[2];
        ck_assert_uint_eq(cqlring_result_warnings(completion->result, NULL, 0), 3);
        ck_assert_uint_eq(cqlring_result_warnings(completion->result, warnings, 2), 3);
        ck_assert(ask_is(warnings[0], "warning 1 of the node"));
        ck_assert(ask_is(warnings[1], "warning 2 of the node"));
        cqlring_future_release(future);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(ms_04_a_payload_goes_out_and_comes_back_whatever_its_values)
{
    struct flow flow;
    up(&flow);
    flow_fault(&flow, "payload");
    char key[] = "key", text[] = "value";
    cqlring_payload_entry entries[] = {
        {cqlring_text(key), cqlring_text(text)},
        {cqlring_text(""), {"", 0}},
        {cqlring_text("null"), {NULL, CQLRING_NULL}},
        {cqlring_text(key), cqlring_text("the same key again")},
    };
    enum { COUNT = sizeof entries / sizeof entries[0] };
    cqlring_execution how = {.struct_size = sizeof how, .payload = entries, .payload_count = COUNT};
    cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", &how);
    memset(key, 'X', sizeof key - 1); /* the call has copied it */
    memset(text, 'X', sizeof text - 1);
    flow_ok(ask_wait(future, NULL));
    ck_assert_uint_eq(ask_seen(OPCODE_QUERY).payload_count, COUNT);
    cqlring_payload_entry back[COUNT];
    cqlring_result *result = cqlring_future_completion(future)->result;
    ck_assert_uint_eq(cqlring_result_payload(result, back, COUNT), COUNT);
    ck_assert(ask_is(back[0].key, "key") && ask_is(back[0].value, "value"));
    ck_assert(ask_is(back[1].key, "") && ask_is(back[1].value, ""));
    ck_assert(ask_is(back[2].key, "null"));
    ck_assert_int_eq(back[2].value.size, CQLRING_NULL);
    ck_assert(ask_is(back[3].key, "key") && ask_is(back[3].value, "the same key again"));
    cqlring_future_release(future);
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_bytes value = flow_bigint(1);
    flow_ok(ask_prepared(&flow, select, &value, 1, &how, &result, NULL));
    ck_assert_uint_eq(ask_seen(OPCODE_EXECUTE).payload_count, COUNT);
    ck_assert_uint_eq(cqlring_result_payload(result, back, 1), COUNT);
    cqlring_result_release(result);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(ms_04_a_payload_of_65535_entries_and_one_on_an_error)
{
    struct flow flow;
    up(&flow);
    flow_fault(&flow, "payload");
    enum { COUNT = 65535 };
    cqlring_payload_entry *entries = calloc(COUNT, sizeof *entries);
    ck_assert_ptr_nonnull(entries);
    for (int i = 0; i < COUNT; i++)
        entries[i] = (cqlring_payload_entry){cqlring_text("k"), cqlring_text("v")};
    cqlring_execution how = {.struct_size = sizeof how, .payload = entries, .payload_count = COUNT};
    cqlring_result *result = NULL;
    cqlring_error error = {0};
    cqlring_status status = ask_text(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL, 0, &how, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    ck_assert_uint_eq(ask_seen(OPCODE_QUERY).payload_count, COUNT);
    ck_assert_uint_eq(cqlring_result_payload(result, entries, COUNT), COUNT);
    ck_assert(ask_is(entries[COUNT - 1].key, "k") && ask_is(entries[COUNT - 1].value, "v"));
    cqlring_result_release(result);
    free(entries);
    /* documented: an error's payload is read over */
    ck_assert_int_eq(ask_text(&flow, "SELECT nothing FROM nowhere.at_all", NULL, 0, NULL, NULL, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    flow_close(&flow);
}
END_TEST

START_TEST(everything_handed_over_may_be_overwritten_when_the_call_returns)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow.node_options.delay_us = 10000;
    flow_start(&flow);
    flow_open(&flow);
    char cql[] = "INSERT INTO t (k, v) VALUES (?, ?)", text[] = "what was bound", keyspace[] = "ks";
    uint8_t key[8] = {0, 0, 0, 0, 0, 0, 0, 9};
    cqlring_bytes values[2] = {{key, 8}, cqlring_text(text)};
    cqlring_execution how = {.struct_size = sizeof how, .keyspace = cqlring_text(keyspace)};
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(cql), .values = values, .value_count = 2, .execution = &how};
    cqlring_future *future = NULL;
    flow_ok(cqlring_execute(&request, &future, NULL));
    memset(cql, 'X', sizeof cql);
    memset(text, 'X', sizeof text);
    memset(keyspace, 'X', sizeof keyspace);
    memset(key, 0xFF, sizeof key);
    memset(values, 0, sizeof values);
    memset(&how, 0xFF, sizeof how);
    memset(&request, 0xFF, sizeof request);
    flow_ok(ask_end(future, NULL));
    cqlring_result *result = NULL;
    cqlring_bytes k = flow_bigint(9);
    flow_ok(ask_text(&flow, FLOW_SELECT, &k, 1, NULL, &result, NULL));
    ck_assert(ask_is(ask_cell(result, 0, 0), "what was bound"));
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

START_TEST(schema_changes_tell_what_changed)
{
    struct flow flow;
    up(&flow);
    cqlring_result *result = NULL;
    cqlring_bytes change, target, keyspace, name;
    flow_ok(flow_try(&flow, "CREATE TABLE ks.made (k int PRIMARY KEY)", &result, NULL));
    ck_assert(cqlring_result_schema_change(result, &change, &target, &keyspace, &name));
    ck_assert(ask_is(change, "CREATED") && ask_is(target, "TABLE") && ask_is(keyspace, "ks") && ask_is(name, "made"));
    cqlring_result_release(result);
    flow_ok(flow_try(&flow, "DROP TABLE ks.made", &result, NULL));
    ck_assert(cqlring_result_schema_change(result, &change, NULL, NULL, &name));
    ck_assert(ask_is(change, "DROPPED") && ask_is(name, "made"));
    cqlring_result_release(result);
    flow_ok(flow_try(&flow, "SELECT k FROM ks.t", &result, NULL));
    ck_assert(!cqlring_result_schema_change(result, &change, &target, &keyspace, &name));
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("execute");
    TCase *tcase = tcase_create("execute");
    tcase_add_test(tcase, a_text_goes_as_query_with_and_without_values);
    tcase_add_test(tcase, a_prepared_statement_goes_as_execute);
    tcase_add_test(tcase, the_completion_tells_row_tag_times_attempts_and_node);
    tcase_add_test(tcase, without_options_a_request_is_local_one_paged_and_stamped_by_the_client);
    tcase_add_test(tcase, consistency_serial_timestamp_page_size_now_and_keyspace_go_out_as_asked);
    tcase_add_test(tcase, every_consistency_level_is_the_wires_number);
    tcase_add_test(tcase, a_sessions_defaults_hold_until_a_request_says_otherwise);
    tcase_add_test(tcase, options_that_make_no_sense_are_refused_before_anything_is_sent);
    tcase_add_test(tcase, on_v4_what_needs_v5_is_refused_in_words);
    tcase_add_test(tcase, timestamps_of_one_thread_rise_strictly);
    tcase_add_test(tcase, ts_03_timestamps_of_many_threads_are_all_different_and_rise_in_each);
    tcase_add_test(tcase, timestamp_int64_min_sends_none_and_a_given_one_is_the_rows);
    tcase_add_test(tcase, tracing_gives_the_id_of_a_trace_that_is_there);
    tcase_add_test(tcase, warnings_come_with_rows_and_with_void);
    tcase_add_test(tcase, ms_04_a_payload_goes_out_and_comes_back_whatever_its_values);
    tcase_add_test(tcase, ms_04_a_payload_of_65535_entries_and_one_on_an_error);
    tcase_add_test(tcase, everything_handed_over_may_be_overwritten_when_the_call_returns);
    tcase_add_test(tcase, schema_changes_tell_what_changed);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
