/* SPDX-License-Identifier: Apache-2.0 */
/* The node's fault plan: each kind does what it says, and only that. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/segment.h"
#include "node_talk.h"

static struct node_cluster *cluster;

static struct node_cluster *make(const struct node_options *options)
{
    char message[200] = "";
    cluster = node_cluster_create(options, message, sizeof message);
    ck_assert_msg(cluster != NULL, "%s", message);
    char cql[200];
    (void)snprintf(
        cql, sizeof cql,
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %d}",
        options != NULL && options->nodes > 1 ? 2 : 1);
    ck_assert_int_eq(node_cql(cluster, cql, NULL, message, sizeof message), 0);
    ck_assert_int_eq(node_cql(cluster, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)", NULL,
                              message, sizeof message),
                     0);
    return cluster;
}

static void end(struct talk *talk)
{
    talk_close(talk);
    node_cluster_stop(cluster);
}

static struct node_counters counters_now(void)
{
    struct node_counters counters;
    node_counters(cluster, NODE_ALL, &counters);
    return counters;
}

static void fault(const char *text)
{
    char message[200] = "";
    ck_assert_msg(node_fault_parse(cluster, text, message, sizeof message) != 0, "%s: %s", text,
                  message);
}

static const char *batch(struct talk *talk, uint8_t kind, bool prepared)
{
    struct query_params params = {.consistency = 1, .has_timestamp = true, .timestamp_us = 55};
    struct writer *writer = talk_writer(talk);
    uint32_t start = cqr_batch_begin(writer, &talk->dialect, 4, kind, 2, &params);
    uint8_t key[4];
    cqlring_bytes values[] = {talk_int(1, key), cqlring_text("one")};
    if (prepared)
        cqr_batch_prepared(writer, (cqlring_bytes){talk->id, 16});
    else
        cqr_batch_text(writer, cqlring_text("INSERT INTO ks.t (k, v) VALUES (?, ?)"));
    cqr_put_values(writer, values, 2);
    cqr_batch_text(writer, cqlring_text("INSERT INTO ks.t (k, v) VALUES (2, 'two')"));
    cqr_put_values(writer, NULL, 0);
    cqr_batch_end(writer, &talk->dialect, &params, start);
    talk_send(talk);
    return talk_answer(talk);
}

static const char insert[] = "INSERT INTO ks.t (k, v) VALUES (1, 'x')";

START_TEST(silence_comes_in_three_kinds)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    fault("drop:every=2");
    ck_assert_ptr_nonnull(talk_query(&talk, insert));
    ck_assert_ptr_null(talk_query(&talk, insert));
    ck_assert_ptr_nonnull(talk_query(&talk, insert));
    node_fault_remove(cluster, 0);
    (void)talk_query(&talk, "TRUNCATE ks.t");
    fault("ignore:times=1");
    ck_assert_ptr_null(talk_query(&talk, insert));
    ck_assert_int_eq(node_table_rows(cluster, "ks.t"), 0);
    ck_assert_ptr_nonnull(talk_query(&talk, insert));
    node_silence(cluster, 0, true);
    ck_assert_ptr_null(talk_query(&talk, insert));
    node_silence(cluster, 0, false);
    ck_assert_ptr_nonnull(talk_query(&talk, insert));
    ck_assert_uint_eq(counters_now().faults, 2);
    node_freeze(cluster, 0, 10);
    ck_assert(node_conn_is_paused(talk.conn, talk.now_us));
    ck_assert(!node_conn_is_paused(talk.conn, talk.now_us + 10000));
    end(&talk);
}
END_TEST

START_TEST(closing_comes_in_four_kinds)
{
    static const struct {
        const char *fault;
        bool answered, executed;
    } cases[] = {{"close", false, false},
                 {"close:executed=1", false, true},
                 {"answer-close", true, true},
                 {"half", false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        make(NULL);
        struct talk talk;
        talk_open(&talk, cluster, 0, PROTO_V5, false);
        fault(cases[i].fault);
        ck_assert_int_eq(talk_query(&talk, insert) != NULL, cases[i].answered);
        ck_assert(node_conn_wants_close(talk.conn));
        ck_assert_int_eq(node_table_rows(cluster, "ks.t"), cases[i].executed);
        ck_assert_int_eq(talk.size > 0, strcmp(cases[i].fault, "half") == 0);
        ck_assert_ptr_null(talk_query(&talk, insert));
        end(&talk);
    }
}
END_TEST

START_TEST(flipped_bits_are_where_they_are_said_to_be)
{
    static const struct {
        const char *fault;
        enum segment_cut cut;
    } cases[] = {{"flip-header", SEGMENT_BAD_HEADER},
                 {"flip-header-crc", SEGMENT_BAD_HEADER},
                 {"flip-payload", SEGMENT_BAD_PAYLOAD},
                 {"flip-payload-crc", SEGMENT_BAD_PAYLOAD}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        make(NULL);
        struct talk talk;
        talk_open(&talk, cluster, 0, PROTO_V5, (_i & 1) != 0);
        fault(cases[i].fault);
        ck_assert_ptr_null(talk_query(&talk, insert));
        struct segment_header header;
        ck_assert_int_eq(cqr_segment_cut(talk.bytes, (uint32_t)talk.size, talk.lz4, &header),
                         cases[i].cut);
        end(&talk);
    }
}
END_TEST

START_TEST(envelopes_go_astray)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    fault("wrong-stream:times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "void");
    ck_assert_int_eq(talk.stream, 0x7FFE);
    fault("twice:times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "void");
    ck_assert_str_eq(talk_answer(&talk), "void");
    ck_assert_int_eq(talk.stream, 7);
    fault("opcode:code=0x1F,times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "opcode 31");
    fault("event-stream:times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "an error on stream -1");
    ck_assert_int_eq(talk.stream, -1);
    fault("event:times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "event PLANET_ALIGNED  :0");
    ck_assert_str_eq(talk_answer(&talk), "void");
    fault("late:delay_us=500,times=1");
    ck_assert_ptr_null(talk_query(&talk, insert));
    ck_assert_str_eq(talk_query(&talk, insert), "void");
    node_conn_turn(talk.conn, talk.now_us + 500);
    ck_assert_str_eq(talk_answer(&talk), "void");
    fault("garbage:times=1");
    ck_assert_ptr_null(talk_query(&talk, insert));
    ck_assert_uint_eq(talk.size, 64);
    end(&talk);
}
END_TEST

START_TEST(errors_of_every_code_carry_their_fields)
{
    static const int32_t codes[] = {0x0000, 0x000A, 0x0100, 0x1000, 0x1001, 0x1002, 0x1003,
                                    0x1100, 0x1200, 0x1300, 0x1400, 0x1500, 0x1600, 0x1700,
                                    0x2000, 0x2100, 0x2200, 0x2300, 0x2400, 0x2500, 0x4321};
    for (uint8_t version = PROTO_V4; version <= PROTO_V5; ++version) {
        make(NULL);
        struct talk talk;
        talk_open(&talk, cluster, 0, version, false);
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
            char text[200];
            (void)snprintf(
                text, sizeof text,
                "error:code=%d,received=1,required=2,alive=1,failures=3,data_present=1,write_type=BATCH_LOG,message=planned",
                codes[i]);
            fault(text);
            (void)talk_query(&talk, insert);
            ck_assert_int_eq(talk.code, codes[i]);
            ck_assert_str_eq(talk.text, "planned");
            struct error_body error;
            ck_assert_int_eq(cqr_decode_error(&talk.dialect,
                                              (cqlring_bytes){talk.body, (int32_t)talk.body_size},
                                              &error),
                             CQLRING_OK);
            ck_assert_msg(error.complete || codes[i] == 0x4321, "%x is cut short",
                          (unsigned)codes[i]);
            if (codes[i] == 0x1500) {
                ck_assert_int_eq(error.failure_count, 3);
                ck_assert_int_eq(error.write_type.size, 9);
            }
            node_fault_remove(cluster, 0);
        }
        ck_assert_int_eq(node_table_rows(cluster, "ks.t"), 0);
        fault("error:code=0x1100,executed=1,write_type=CAS,count=7");
        (void)talk_query(&talk, insert);
        ck_assert_int_eq(node_table_rows(cluster, "ks.t"), 1);
        end(&talk);
    }
}
END_TEST

START_TEST(rows_are_spoiled_as_planned)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    for (int i = 0; i < 6; ++i) {
        char cql[100];
        (void)snprintf(cql, sizeof cql, "INSERT INTO ks.t (k, v) VALUES (%d, 'v')", i);
        (void)talk_query(&talk, cql);
    }
    struct query_params three = {.consistency = 1, .page_size = 3};
    fault("large-page:times=1");
    (void)talk_query_with(&talk, "SELECT k FROM ks.t", &three, NULL, 0);
    ck_assert_uint_eq(talk.row_count, 4);
    fault("empty-page:times=1");
    (void)talk_query_with(&talk, "SELECT k FROM ks.t", &three, NULL, 0);
    ck_assert_uint_eq(talk.row_count, 0);
    ck_assert_int_ge(talk.paging_size, 0);
    three.paging_state = (cqlring_bytes){talk.paging, talk.paging_size};
    (void)talk_query_with(&talk, "SELECT k FROM ks.t", &three, NULL, 0);
    ck_assert_uint_eq(talk.row_count, 3);
    fault("empty-page:times=1");
    three.paging_state = (cqlring_bytes){talk.paging, talk.paging_size};
    (void)talk_query_with(&talk, "SELECT k FROM ks.t", &three, NULL, 0);
    ck_assert_uint_eq(talk.row_count, 0);
    three.paging_state = (cqlring_bytes){talk.paging, talk.paging_size};
    (void)talk_query_with(&talk, "SELECT k FROM ks.t", &three, NULL, 0);
    ck_assert_uint_eq(talk.row_count, 3);
    ck_assert_int_eq(talk.paging_size, -1);
    fault("no-rows:table=system.local,times=1");
    ck_assert_uint_eq((talk_query(&talk, "SELECT k FROM ks.t LIMIT 1"), talk.row_count), 1);
    ck_assert_str_eq(talk_query(&talk, "SELECT * FROM system.local"), "");
    ck_assert_str_eq(talk_query(&talk, "SELECT key FROM system.local"), "local");
    fault("bad-cell:times=1");
    (void)talk_query(&talk, "SELECT v, k FROM ks.t WHERE k = 3");
    ck_assert_str_eq(talk.text, "bad|3");
    fault("extra-column:times=1");
    ck_assert_str_eq(talk_query(&talk, "SELECT k FROM ks.t WHERE k = 3"), "3|extra");
    ck_assert_str_eq(talk.columns, "k int,extra_column text");
    fault("changed:times=1");
    (void)talk_query(&talk, "SELECT k FROM ks.t WHERE k = 3");
    ck_assert((talk.flags_of_rows & ROWS_METADATA_CHANGED) != 0);
    fault("no-columns:count=45,times=1");
    (void)talk_query(&talk, "SELECT k FROM ks.t WHERE k = 3");
    ck_assert_uint_eq(talk.row_count, 45);
    fault("trailing:times=1");
    ck_assert_str_eq(talk_query(&talk, insert), "void");
    ck_assert_uint_gt(talk.body_size, 4);
    fault("truncated:count=2,times=1");
    cqr_encode_prepare(talk_writer(&talk), &talk.dialect, 8, cqlring_text("SELECT * FROM ks.t"),
                       cqlring_text(""), false, NULL, 0);
    talk_send(&talk);
    ck_assert(talk_take(&talk));
    struct prepared_body prepared;
    uint32_t kind;
    cqlring_bytes body = {talk.body, (int32_t)talk.body_size};
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_OK);
    ck_assert_int_ne(cqr_decode_prepared(&talk.dialect, body, &talk.arena, &prepared), CQLRING_OK);
    end(&talk);
}
END_TEST

START_TEST(prefixes_are_put_on_answers)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    fault("warnings:count=3");
    fault("tracing");
    fault("payload");
    ck_assert_str_eq(talk_query(&talk, insert), "void");
    ck_assert_int_eq(talk.flags, FLAG_WARNING | FLAG_TRACING | FLAG_PAYLOAD);
    ck_assert_uint_eq(talk.prefix.warning_count, 3);
    ck_assert_uint_eq(talk.prefix.payload_count, 1);
    (void)talk_query(&talk, "SELECT nothing");
    ck_assert_int_eq(talk.code, ERROR_SYNTAX);
    ck_assert_uint_eq(talk.prefix.warning_count, 3);
    node_fault_remove(cluster, 0);
    struct query_params params = {.consistency = 1, .tracing = true};
    ck_assert_str_eq(talk_query_with(&talk, insert, &params, NULL, 0), "void");
    ck_assert(talk.prefix.has_trace_id);
    ck_assert_str_eq(talk_query(&talk, "SELECT count(*) FROM system_traces.events"), "2");
    end(&talk);
}
END_TEST

START_TEST(the_handshake_can_be_left_unanswered)
{
    static const struct {
        const char *fault;
        uint8_t opcode;
    } cases[] = {{"drop:opcode=OPTIONS", OPCODE_OPTIONS},
                 {"drop:opcode=STARTUP", OPCODE_STARTUP},
                 {"drop:opcode=AUTH_RESPONSE", OPCODE_AUTH_RESPONSE},
                 {"accept-silent", OPCODE_OPTIONS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct node_options options = {.user = "u", .password = "p"};
        make(&options);
        fault(cases[i].fault);
        struct talk talk;
        talk_raw(&talk, cluster, 0, PROTO_V4);
        cqr_encode_options(talk_writer(&talk), &talk.dialect, 0);
        talk_send(&talk);
        ck_assert_int_eq(talk_take(&talk), cases[i].opcode != OPCODE_OPTIONS);
        if (cases[i].opcode != OPCODE_OPTIONS)
            ck_assert_int_eq(talk_startup(&talk), cases[i].opcode != OPCODE_STARTUP);
        if (cases[i].opcode == OPCODE_AUTH_RESPONSE) {
            cqr_encode_auth_response(talk_writer(&talk), &talk.dialect, 0,
                                     (cqlring_bytes){"\0u\0p", 4});
            talk_send(&talk);
            ck_assert(!talk_take(&talk));
        }
        end(&talk);
    }
    make(NULL);
    fault("accept-close:every=2");
    struct node_conn *first = node_conn_open(cluster, 0, 0, 0),
                     *second = node_conn_open(cluster, 0, 0, 0);
    ck_assert(!node_conn_wants_close(first));
    ck_assert(node_conn_wants_close(second));
    fault("refuse:node=0");
    ck_assert_ptr_null(node_conn_open(cluster, 0, 0, 0));
    node_cluster_stop(cluster);
    /* PD-03 */
    make(NULL);
    fault("beta");
    struct talk talk;
    talk_raw(&talk, cluster, 0, PROTO_V5);
    cqr_encode_options(talk_writer(&talk), &talk.dialect, 0);
    talk_send(&talk);
    ck_assert_ptr_nonnull(strstr(talk_answer(&talk), "USE_BETA flag is unset"));
    end(&talk);
}
END_TEST

START_TEST(unprepared_strikes_once_and_the_statement_can_be_prepared_again)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    (void)talk_prepare(&talk, "INSERT INTO ks.t (k, v) VALUES (?, ?)");
    fault("unprepared:times=1");
    uint8_t key[4];
    cqlring_bytes values[] = {talk_int(1, key), cqlring_text("one")};
    (void)talk_execute(&talk, NULL, values, 2);
    ck_assert_int_eq(talk.code, ERROR_UNPREPARED);
    (void)talk_execute(&talk, NULL, values, 2);
    ck_assert_int_eq(talk.code, ERROR_UNPREPARED); /* it is really gone */
    (void)talk_prepare(&talk, "INSERT INTO ks.t (k, v) VALUES (?, ?)");
    ck_assert_str_eq(talk_execute(&talk, NULL, values, 2), "void");
    node_fault_remove(cluster, 0);
    fault("unprepared:times=1,opcode=BATCH");
    (void)batch(&talk, BATCH_LOGGED, true);
    ck_assert_int_eq(talk.code, ERROR_UNPREPARED);
    ck_assert_uint_eq(counters_now().unprepared, 3);
    end(&talk);
}
END_TEST

START_TEST(plans_that_make_no_sense_are_refused)
{
    make(NULL);
    static const char *const texts[] = {
        "", "nope", "drop:every", "drop:every=x", "drop:nope=1", "error:opcode=WHAT"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        char message[200] = "";
        ck_assert_uint_eq(node_fault_parse(cluster, texts[i], message, sizeof message), 0);
        ck_assert_str_ne(message, "");
    }
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(bytes_that_are_not_the_protocol_end_the_connection)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    talk_bytes(&talk, "GET / HTTP/1.1\r\n\r\n", 18);
    ck_assert(node_conn_wants_close(talk.conn));
    talk_close(&talk);
    talk_raw(&talk, cluster, 0, PROTO_V4);
    talk_bytes(&talk, "GET / HTTP/1.1\r\n\r\n", 18);
    ck_assert(node_conn_wants_close(talk.conn));
    talk_close(&talk);
    talk_open(&talk, cluster, 0, PROTO_V4, false);
    talk_bytes(&talk, "\x04\x00\x00\x01\x0A\x00\x00\x00\x01\xFF", 10);
    (void)talk_answer(&talk);
    ck_assert_int_eq(talk.code, ERROR_PROTOCOL);
    ck_assert_str_eq(talk_query(&talk, "SELECT key FROM system.local"), "local");
    end(&talk);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_faults");
    TCase *faults = tcase_create("faults");
    tcase_add_test(faults, silence_comes_in_three_kinds);
    tcase_add_test(faults, closing_comes_in_four_kinds);
    tcase_add_loop_test(faults, flipped_bits_are_where_they_are_said_to_be, 0, 2);
    tcase_add_test(faults, envelopes_go_astray);
    tcase_add_test(faults, errors_of_every_code_carry_their_fields);
    tcase_add_test(faults, rows_are_spoiled_as_planned);
    tcase_add_test(faults, prefixes_are_put_on_answers);
    tcase_add_test(faults, the_handshake_can_be_left_unanswered);
    tcase_add_test(faults, unprepared_strikes_once_and_the_statement_can_be_prepared_again);
    tcase_add_test(faults, plans_that_make_no_sense_are_refused);
    tcase_add_test(faults, bytes_that_are_not_the_protocol_end_the_connection);
    suite_add_tcase(suite, faults);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
