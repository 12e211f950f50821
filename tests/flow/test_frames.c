/* SPDX-License-Identifier: Apache-2.0 */

/* Frames that are not as they should be: torn, damaged, on the wrong stream, of the wrong kind, too large. Whatever comes, each
   row has one outcome, rows that may be sent again are, others say that they may have been applied, and the error tells why. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "relay.h"
#include "watch.h"

enum { ROWS = 600, WINDOW = 50 };

struct fault_case {
    const char *fault;
    bool loses;          /* the connection */
    const char *words;   /* in the log, and in errors of what was in flight */
    cqlring_status fails; /* how the struck row itself ends, idempotent or not; OK: as those in flight with it */
};

static void start(struct flow *flow, int32_t version)
{
    flow_init(flow);
    watch_log(flow);
    flow->options.protocol_version = version;
    flow->options.reconnect_min_us = 5000;
    flow->options.reconnect_max_us = 20000;
    flow_start(flow);
}

static void run_case(const struct fault_case *fault, int32_t version, bool retried)
{
    struct flow flow;
    start(&flow, version);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    char text[200];
    snprintf(text, sizeof text, "%s%copcode=EXECUTE,after=100,times=1", fault->fault, strchr(fault->fault, ':') != NULL ? ',' : ':');
    flow_fault(&flow, text);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 20);
    flow_sink_init(&sink, ROWS);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = retried ? CQLRING_YES : CQLRING_NO, .attempt_timeout_us = -1};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = WINDOW};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
    const char *error = sink.first_error;
#define CHECK(condition) \
    ck_assert_msg(condition, "%s v%d %s: %s (%lu failed, %lu maybe, \"%s\")\n%s", fault->fault, version, retried ? "idempotent" : "once", #condition, \
                  (unsigned long)sink.failed, (unsigned long)sink.maybe, error, watch_log_text())
    CHECK(summary.rows == ROWS);
    CHECK(sink.last == ROWS);
    CHECK(sink.twice == 0);
    CHECK(flow_sink_missing(&sink, ROWS) == 0);
    uint64_t of_itself = fault->fails != CQLRING_OK && !retried ? 1 : 0; /* an idempotent row asks again */
    CHECK(of_itself == 0 || sink.by_status[fault->fails] == 1);
    if (retried) {
        CHECK(sink.failed == of_itself);
        CHECK(node_table_rows(flow.node, "ks.t") == ROWS);
    } else {
        CHECK(sink.failed >= (fault->loses && strstr(fault->fault, "answer-close") == NULL ? 1 : of_itself));
        CHECK(sink.failed <= (fault->loses ? WINDOW : of_itself));
        CHECK(sink.by_status[CQLRING_LOST] + of_itself == sink.failed);
        CHECK(sink.maybe == sink.failed);
        CHECK(node_table_rows(flow.node, "ks.t") >= (int64_t)(ROWS - sink.failed));
        CHECK(sink.failed == 0 || strstr(error, fault->words) != NULL);
    }
    cqlring_stats stats = flow_stats(&flow);
    CHECK(stats.connections_lost == (fault->loses ? 1 : 0));
    CHECK(!fault->loses || watch_log_count(fault->words) > 0);
#undef CHECK
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}

static const struct fault_case cases[] = {
    {"close", true, "closed the connection", CQLRING_OK},
    {"answer-close", true, "closed the connection", CQLRING_OK},
    {"half", true, "closed the connection", CQLRING_OK},
    {"wrong-stream", true, "stream 32766, which was never used", CQLRING_OK},
    {"event-stream", true, "stream -1", CQLRING_OK},
    {"twice", true, "on which nothing was asked", CQLRING_OK},
    {"request", true, "response (version byte 0x0", CQLRING_OK},
    {"opcode:code=0x1f", true, "opcode 0x1f", CQLRING_PROTOCOL},
    {"opcode:code=0x07", true, "opcode 0x07", CQLRING_PROTOCOL},
    {"opcode:code=0x0c", true, "opcode 0x0c", CQLRING_PROTOCOL}, /* an EVENT where an answer was awaited */
    {"truncated", true, "RESULT without a kind", CQLRING_PROTOCOL},
    {"event", false, "", CQLRING_OK},
    {"trailing", false, "", CQLRING_OK},
};

START_TEST(fr_10_frames_of_the_wrong_kind_are_ignored_or_end_the_connection_with_a_reason)
{
    const struct fault_case *fault = &cases[_i];
    for (int32_t version = 4; version <= 5; version++)
        for (int retried = 0; retried < 2; retried++)
            run_case(fault, version, retried != 0);
}
END_TEST

/* One bit of a segment; the error says which of the two checks has found it. */
START_TEST(v5_03_a_flipped_bit_ends_the_connection_naming_the_crc)
{
    static const struct fault_case flips[] = {
        {"flip-header", true, "header CRC24", CQLRING_OK},
        {"flip-header-crc", true, "header CRC24", CQLRING_OK},
        {"flip-payload", true, "payload CRC32", CQLRING_OK},
        {"flip-payload-crc", true, "payload CRC32", CQLRING_OK},
    };
    for (int retried = 0; retried < 2; retried++)
        run_case(&flips[_i], 5, retried != 0);
}
END_TEST

/* All answers of one segment share its fate: of none is anything believed, though all but one of them are whole. */
START_TEST(v5_03_nothing_of_a_bad_segment_is_believed)
{
    enum { COUNT = 20 };
    struct flow flow;
    start(&flow, 5);
    struct relay *relay = relay_start(NULL, node_address(flow.node, 0), node_port(flow.node, 0));
    flow.options.contact_points = relay_contact(relay);
    flow_open(&flow);
    relay_hold(relay, RELAY_UP, true);
    cqlring_future *futures[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char cql[100];
        snprintf(cql, sizeof cql, "INSERT INTO ks.t (k, v) VALUES (%d, 0x00)", i);
        futures[i] = ask_start(&flow, cql, NULL);
    }
    watch_pass(&flow, 20); /* all of them wait at the relay, and reach the node in one piece */
    relay_flip(relay, RELAY_DOWN, 6 + 13 * (COUNT / 2) + 3); /* header, ten answers of 13 bytes, in the eleventh */
    relay_hold(relay, RELAY_UP, false);
    for (int i = 0; i < COUNT; i++) {
        cqlring_error error = {0};
        ck_assert_int_eq(ask_end(futures[i], &error), CQLRING_LOST);
        ck_assert_ptr_nonnull(strstr(error.message, "CRC32"));
        ck_assert(error.may_have_been_applied);
    }
    ck_assert(relay_flipped(relay));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), COUNT);
    flow_close(&flow);
    relay_stop(relay);
}
END_TEST

/* 64 bytes of noise where an answer should be: known for what it is at once, not waited for. */
START_TEST(noise_is_recognised_in_either_version)
{
    for (int32_t version = 4; version <= 5; version++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct flow flow;
            flow_init(&flow);
            flow.options.protocol_version = version;
            flow.options.reconnect_min_us = 5000;
            flow.options.suspect_after_us = flow.options.heartbeat_us = -1; /* nothing else would notice */
            flow.node_options.seed = seed;
            flow_start(&flow);
            flow_open(&flow);
            flow_fault(&flow, "garbage:table=ks.t,times=1");
            cqlring_error error = {0};
            ck_assert_int_eq(flow_try(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, &error), CQLRING_LOST);
            flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)");
            flow_close(&flow);
        }
}
END_TEST

/* v4 has no checksums: a flipped bit may go unseen. But nothing hangs, crashes or is told twice. */
START_TEST(flipped_bits_in_version_4_leave_every_row_with_one_outcome)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = 4;
        flow.options.reconnect_min_us = 5000;
        flow.options.reconnect_max_us = 20000;
        flow.options.suspect_after_us = 100000;
        flow.options.connect_timeout_us = 700000 * WATCH_SLOW;
        flow.node_options.seed = seed;
        flow_start(&flow);
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        flow_fault(&flow, seed % 2 == 0 ? "flip-header:opcode=EXECUTE,every=150,times=3" : "flip-payload:opcode=EXECUTE,every=150,times=3");
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, ROWS, 20);
        flow_sink_init(&sink, ROWS);
        cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .attempt_timeout_us = 1000000 * WATCH_SLOW};
        cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = WINDOW};
        flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
        ck_assert_uint_eq(sink.last, ROWS);
        ck_assert_uint_eq(sink.twice, 0);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(an_answer_that_never_comes_times_its_row_out_and_no_other)
{
    static const char *const faults[] = {"drop:opcode=EXECUTE,after=100,times=1", "ignore:opcode=EXECUTE,after=100,times=1"};
    for (int i = 0; i < 2; i++)
        for (int retried = 0; retried < 2; retried++) {
            struct flow flow;
            start(&flow, 0);
            flow_open(&flow);
            cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
            flow_fault(&flow, faults[i]);
            struct flow_rows rows;
            struct flow_sink sink;
            flow_rows_init(&rows, ROWS, 20);
            flow_sink_init(&sink, ROWS);
            cqlring_execution how = {.struct_size = sizeof how, .idempotent = retried ? CQLRING_YES : CQLRING_NO};
            if (retried)
                how.attempt_timeout_us = 300000 * WATCH_SLOW;
            else
                how.timeout_us = 400000 * WATCH_SLOW;
            cqlring_job_options options = {.struct_size = sizeof options, .execution = &how, .window = WINDOW};
            flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
            ck_assert_uint_eq(sink.last, ROWS);
            ck_assert_uint_eq(sink.failed, retried ? 0 : 1);
            ck_assert_uint_eq(sink.by_status[CQLRING_TIMEOUT], retried ? 0 : 1);
            ck_assert_uint_eq(sink.maybe, retried ? 0 : 1);
            ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), ROWS - (!retried && i == 1));
            ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
            flow_rows_fini(&rows);
            flow_sink_fini(&sink);
            cqlring_prepared_release(insert);
            flow_close(&flow);
        }
}
END_TEST

/* ---- sizes ---- */

static void put(struct flow *flow, int64_t key, uint32_t size)
{
    uint8_t *bytes = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    flow_blob((uint64_t)key, bytes, size);
    cqlring_bytes values[2] = {flow_bigint(key), {bytes, (int32_t)size}};
    cqlring_error error = {0};
    cqlring_status status = ask_text(flow, FLOW_INSERT, values, 2, NULL, NULL, &error);
    ck_assert_msg(status == CQLRING_OK, "writing %u bytes: %s", size, error.message);
    free(bytes);
}

static void ck_assert_blob(cqlring_bytes cell, int64_t key, uint32_t size)
{
    ck_assert_int_eq(cell.size, (int32_t)size);
    uint8_t *bytes = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    flow_blob((uint64_t)key, bytes, size);
    ck_assert(size == 0 || memcmp(cell.data, bytes, size) == 0);
    free(bytes);
}

START_TEST(an_answer_larger_than_frame_size_max_fails_and_says_so)
{
    for (int32_t version = 4; version <= 5; version++)
        for (int lz4 = 0; lz4 < 2; lz4++)
            for (uint32_t size = 100000; size <= 400000; size += 300000) { /* within a v5 segment, and over several */
                struct flow flow;
                flow_init(&flow);
                flow.options.protocol_version = version;
                flow.options.compression = lz4 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE;
                flow.options.frame_size_max = 65536;
                flow.options.reconnect_min_us = 5000;
                flow_start(&flow);
                flow_open(&flow);
                uint8_t *zeros = calloc(1, size); /* small on the wire when it is compressed */
                ck_assert_ptr_nonnull(zeros);
                cqlring_bytes values[2] = {flow_bigint(1), {zeros, (int32_t)size}};
                flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, NULL));
                free(zeros);
                put(&flow, 2, 60000);
                cqlring_bytes key = flow_bigint(1);
                cqlring_error error = {0};
                cqlring_status status = ask_text(&flow, FLOW_SELECT, &key, 1, NULL, NULL, &error);
                ck_assert_msg(status == CQLRING_TOO_LARGE, "v%d, lz4 %d, %u bytes: %s: %s", version, lz4, size, cqlring_status_name(status), error.message);
                ck_assert(!error.may_have_been_applied);
                ck_assert_ptr_nonnull(strstr(error.message, "frame_size_max"));
                key = flow_bigint(2);
                cqlring_result *result = NULL;
                flow_ok(ask_text(&flow, FLOW_SELECT, &key, 1, NULL, &result, &error));
                ck_assert_blob(ask_cell(result, 0, 0), 2, 60000);
                cqlring_result_release(result);
                ck_assert_uint_eq(flow_stats(&flow).connections_lost, version == 4 && lz4 ? 0 : 1);
                flow_close(&flow);
            }
}
END_TEST

/* The one row that is too large is to blame, and fails; those that were lost with its connection are read again. */
START_TEST(an_answer_that_is_too_large_fails_its_row_of_a_job_and_no_other)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow.options.frame_size_max = 65536;
        flow.options.reconnect_min_us = 5000;
        flow_start(&flow);
        flow_open(&flow);
        for (int64_t key = 0; key < 200; key++)
            put(&flow, key, key == 77 ? 300000 : 500);
        cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 200, 0);
        rows.keys_only = true;
        flow_sink_init(&sink, 200);
        flow_ok(flow_run(&flow, select, &rows, &sink, NULL, NULL, NULL));
        ck_assert_uint_eq(sink.last, 200);
        ck_assert_uint_eq(sink.twice, 0);
        ck_assert_uint_eq(sink.failed, 1);
        ck_assert_uint_eq(sink.by_status[CQLRING_TOO_LARGE], 1);
        ck_assert_ptr_nonnull(strstr(sink.first_error, "frame_size_max"));
        ck_assert_uint_eq(flow_stats(&flow).connections_lost, 1);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(select);
        flow_close(&flow);
    }
}
END_TEST

/* Sizes around a segment's, and far above, in both directions; several at once, among small ones. */
START_TEST(requests_and_results_of_any_size_arrive_whole)
{
    static const uint32_t sizes[] = {0, 1, 4096, 65536, 130900, 131000, 131071, 131072, 131200, 262144, 300000, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        for (int i = 0; i < COUNT; i++)
            put(&flow, i, sizes[i]);
        cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
        cqlring_future *futures[3 * COUNT];
        for (int i = 0; i < 3 * COUNT; i++) {
            cqlring_bytes key = flow_bigint(i % COUNT);
            futures[i] = ask_start_prepared(&flow, select, &key, 1, NULL);
        }
        for (int i = 0; i < 3 * COUNT; i++) {
            flow_ok(ask_wait(futures[i], NULL));
            ck_assert_blob(ask_cell(cqlring_future_completion(futures[i])->result, 0, 0), i % COUNT, sizes[i % COUNT]);
            cqlring_future_release(futures[i]);
        }
        cqlring_prepared_release(select);
        ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(split_segments_carry_many_rows_and_one_large_one)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        enum { COUNT = 3000 };
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        flow_rows_init(&rows, COUNT, 1000);
        flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
        flow_rows_fini(&rows);
        cqlring_prepared_release(insert);
        cqlring_execution unpaged = {.struct_size = sizeof unpaged, .page_size = -1};
        cqlring_result *result = NULL;
        flow_ok(ask_text(&flow, "SELECT k, v FROM ks.t", NULL, 0, &unpaged, &result, NULL)); /* 3 MB in one frame */
        ck_assert_uint_eq(cqlring_result_row_count(result), COUNT);
        uint8_t *seen = calloc(1, COUNT);
        for (uint32_t from = 0; from < COUNT;) {
            cqlring_bytes cells[200];
            uint32_t count = 0;
            flow_ok(cqlring_result_rows(result, from, cells, 100, &count, NULL));
            ck_assert_uint_gt(count, 0);
            for (uint32_t i = 0; i < count; i++) {
                int64_t key = 0;
                flow_ok(cqlring_get_int(cells[2 * i], 8, &key));
                ck_assert(key >= 0 && key < COUNT && seen[key]++ == 0);
                ck_assert_blob(cells[2 * i + 1], key, 1000);
            }
            from += count;
        }
        free(seen);
        cqlring_result_release(result);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_request_larger_than_the_servers_limit_fails_alone)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow.node_options.frame_size_max = 1 << 20;
        flow_start(&flow);
        flow_open(&flow);
        uint8_t *bytes = calloc(1, 2 << 20);
        ck_assert_ptr_nonnull(bytes);
        cqlring_bytes values[2] = {flow_bigint(1), {bytes, 2 << 20}};
        cqlring_error error = {0};
        cqlring_status status = ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, &error);
        ck_assert_msg(status == CQLRING_SERVER || status == CQLRING_LOST, "%s: %s", cqlring_status_name(status), error.message);
        free(bytes);
        ask_until_served(&flow);
        flow_close(&flow);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frames");
    TCase *tcase = tcase_create("frames");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fr_10_frames_of_the_wrong_kind_are_ignored_or_end_the_connection_with_a_reason, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_loop_test(tcase, v5_03_a_flipped_bit_ends_the_connection_naming_the_crc, 0, 4);
    tcase_add_test(tcase, v5_03_nothing_of_a_bad_segment_is_believed);
    tcase_add_test(tcase, noise_is_recognised_in_either_version);
    tcase_add_test(tcase, flipped_bits_in_version_4_leave_every_row_with_one_outcome);
    tcase_add_test(tcase, an_answer_that_never_comes_times_its_row_out_and_no_other);
    tcase_add_test(tcase, an_answer_larger_than_frame_size_max_fails_and_says_so);
    tcase_add_test(tcase, an_answer_that_is_too_large_fails_its_row_of_a_job_and_no_other);
    tcase_add_test(tcase, requests_and_results_of_any_size_arrive_whole);
    tcase_add_test(tcase, split_segments_carry_many_rows_and_one_large_one);
    tcase_add_test(tcase, a_request_larger_than_the_servers_limit_fails_alone);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
