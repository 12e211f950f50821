/* SPDX-License-Identifier: Apache-2.0 */
/* The node's connections as machines: handshake, framing, prepared statements, what is counted,
   delays, limits. */
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

/* v4, v4 with LZ4, v5, v5 with LZ4 */
static const struct {
    uint8_t version;
    bool lz4;
} dialects[] = {{PROTO_V4, false}, {PROTO_V4, true}, {PROTO_V5, false}, {PROTO_V5, true}};
enum { DIALECTS = sizeof dialects / sizeof dialects[0] };

START_TEST(every_dialect_writes_and_reads)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, dialects[_i].version, dialects[_i].lz4);
    ck_assert_str_eq(talk_prepare(&talk, "INSERT INTO ks.t (k, v) VALUES (?, :name)"),
                     "prepared k int,name text");
    ck_assert_uint_eq(talk.pk_count, 1);
    ck_assert_uint_eq(talk.pk_indexes[0], 0);
    uint8_t key[4];
    static char large[300000];
    memset(large, 'z', sizeof large);
    cqlring_bytes values[] = {talk_int(7, key), {large, sizeof large}};
    ck_assert_str_eq(talk_execute(&talk, NULL, values, 2), "void");
    values[0] = talk_int(8, key);
    values[1] = cqlring_text("short");
    ck_assert_str_eq(talk_execute(&talk, NULL, values, 2), "void");
    ck_assert_str_eq(talk_prepare(&talk, "SELECT v, k FROM ks.t WHERE k = ?"), "prepared k int");
    struct query_params params = {.consistency = 1, .skip_metadata = true};
    ck_assert_str_eq(talk_execute(&talk, &params, values, 1), "short|8");
    ck_assert((talk.flags_of_rows & ROWS_NO_METADATA) != 0);
    values[0] = talk_int(7, key);
    (void)talk_execute(&talk, NULL, values, 1);
    ck_assert_uint_eq(talk.row_count, 1);
    ck_assert_uint_gt(talk.body_size, sizeof large);
    struct node_counters counters = counters_now();
    ck_assert_uint_eq(counters.opcodes[OPCODE_EXECUTE], 4);
    ck_assert_uint_eq(counters.opcodes[OPCODE_PREPARE], 2);
    ck_assert_uint_eq(counters.replica_hits, 4);
    ck_assert_uint_eq(counters.errors, 0);
    if (dialects[_i].lz4)
        ck_assert_uint_gt(counters.compressed_in, 0);
    end(&talk);
}
END_TEST

START_TEST(input_split_at_every_byte_is_whole_again)
{
    make(NULL);
    struct talk talk;
    for (uint32_t step = 1; step < 60; step += 7) {
        talk_open(&talk, cluster, 0, PROTO_V5, (step & 1) != 0);
        static uint8_t bytes[4096];
        struct query_params params = {.consistency = 1};
        struct writer *writer = talk_writer(&talk);
        for (int16_t i = 0; i < 5; ++i) {
            uint32_t start = cqr_query_begin(writer, &talk.dialect, i,
                                             cqlring_text("SELECT key FROM system.local"), &params);
            cqr_query_end(writer, &talk.dialect, &params, start);
        }
        uint32_t size;
        if (talk.lz4) {
            memcpy(bytes + 8, writer->data, writer->size);
            size = cqr_segment_seal_lz4(bytes, writer->size, 0, true);
        } else {
            memcpy(bytes + 6, writer->data, writer->size);
            size = cqr_segment_seal(bytes, writer->size, true);
        }
        for (uint32_t at = 0; at < size; at += step)
            talk_bytes(&talk, bytes + at, size - at < step ? size - at : step);
        for (int16_t i = 0; i < 5; ++i) {
            ck_assert_str_eq(talk_answer(&talk), "local");
            ck_assert_int_eq(talk.stream, i);
        }
        ck_assert_ptr_null(talk_answer(&talk));
        talk_close(&talk);
    }
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(a_version_is_refused_as_each_server_does)
{
    static const struct {
        enum node_refusal refusal;
        uint8_t version, answer;
        const char *text;
    } cases[] = {
        {NODE_REFUSE_CASSANDRA_5, 4, 0x84,
         "Invalid or unsupported protocol version (5); supported versions are (3/v3, 4/v4)"},
        {NODE_REFUSE_CASSANDRA_3, 4, 0x85, "supported versions are (3/v3, 4/v4, 5/v5-beta)"},
        {NODE_REFUSE_CASSANDRA_2, 4, 0x84,
         "the lowest supported version is 3 and the greatest is 4"},
        {NODE_REFUSE_SCYLLA, 4, 0x84, "Invalid or unsupported protocol version: 5"},
        {NODE_REFUSE_BETA, 4, 0x84,
         "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct node_options options = {.refusal = cases[i].refusal,
                                       .version_max = cases[i].version};
        make(&options);
        struct talk talk;
        talk_raw(&talk, cluster, 0, PROTO_V5);
        cqr_encode_options(talk_writer(&talk), &talk.dialect, 3);
        talk_send(&talk);
        (void)talk_answer(&talk);
        ck_assert_int_eq(talk.code, ERROR_PROTOCOL);
        ck_assert_int_eq(talk.stream, 0);
        ck_assert_uint_eq(talk.version | 0x80u, cases[i].answer);
        ck_assert_msg(strstr(talk.text, cases[i].text) != NULL, "%s", talk.text);
        ck_assert(node_conn_wants_close(talk.conn));
        end(&talk);
    }
    /* v2 has a header of eight bytes, also in the answer. */
    make(NULL);
    struct talk talk;
    talk_raw(&talk, cluster, 0, PROTO_V4);
    talk_bytes(&talk, "\x02\x00\x00\x05\x00\x00\x00\x00", 8);
    cqlring_bytes out = node_conn_output(talk.conn);
    ck_assert_int_gt(out.size, 8);
    ck_assert_uint_eq(((const uint8_t *)out.data)[0], 0x82);
    ck_assert_uint_eq(((const uint8_t *)out.data)[3], OPCODE_ERROR);
    end(&talk);
}
END_TEST

START_TEST(passwords_are_asked_and_judged)
{
    struct node_options options = {.user = "ann", .password = "secret", .auth_rounds = 2};
    make(&options);
    for (int good = 0; good < 2; ++good) {
        struct talk talk;
        talk_raw(&talk, cluster, 0, PROTO_V5);
        ck_assert(talk_startup(&talk));
        ck_assert_int_eq(talk.opcode, OPCODE_AUTHENTICATE);
        cqlring_bytes token = good ? (cqlring_bytes){"\0ann\0secret", 11}
                                   : (cqlring_bytes){"\0ann\0wrong", 10};
        for (int i = 0; i < 2; ++i) {
            cqr_encode_auth_response(talk_writer(&talk), &talk.dialect, 0, token);
            talk_send(&talk);
            ck_assert(talk_take(&talk));
            ck_assert_int_eq(talk.opcode, OPCODE_AUTH_CHALLENGE);
        }
        cqr_encode_auth_response(talk_writer(&talk), &talk.dialect, 0, token);
        talk_send(&talk);
        (void)talk_answer(&talk);
        ck_assert_int_eq(talk.opcode, good ? OPCODE_AUTH_SUCCESS : OPCODE_ERROR);
        ck_assert_int_eq(talk.code, good ? -1 : ERROR_CREDENTIALS);
        ck_assert_int_eq(node_conn_wants_close(talk.conn), !good);
        if (good)
            ck_assert_str_eq(talk_query(&talk, "SELECT key FROM system.local"), "local");
        struct node_conn_info info;
        ck_assert_uint_eq(node_conns(cluster, 0, &info, 1), 1);
        ck_assert_str_eq(info.user, "ann");
        talk_close(&talk);
    }
    ck_assert_uint_eq(counters_now().ready, 1);
    ck_assert_uint_eq(counters_now().refused, 1);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(what_comes_too_early_is_refused)
{
    make(NULL);
    struct talk talk;
    talk_raw(&talk, cluster, 0, PROTO_V4);
    (void)talk_query(&talk, "SELECT key FROM system.local");
    ck_assert_int_eq(talk.code, ERROR_PROTOCOL);
    talk_close(&talk);
    talk_raw(&talk, cluster, 0, PROTO_V4);
    struct string_pair options[] = {{cqlring_text("COMPRESSION"), cqlring_text("snappy")},
                                    {cqlring_text("CQL_VERSION"), cqlring_text("3.0.0")}};
    cqr_encode_startup(talk_writer(&talk), &talk.dialect, 0, options, 2);
    talk_send(&talk);
    ck_assert_ptr_nonnull(strstr(talk_answer(&talk), "Unknown compression algorithm: snappy"));
    talk_close(&talk);
    talk_raw(&talk, cluster, 0, PROTO_V4);
    cqr_encode_startup(talk_writer(&talk), &talk.dialect, 0, options, 0);
    talk_send(&talk);
    ck_assert_ptr_nonnull(strstr(talk_answer(&talk), "Missing value CQL_VERSION"));
    end(&talk);
}
END_TEST

START_TEST(requests_are_seen_as_they_came)
{
    struct node_options options = {.nodes = 3};
    make(&options);
    struct talk talk;
    talk_open(&talk, cluster, 1, PROTO_V5, false);
    char value[64];
    ck_assert(node_startup_option(cluster, 0, "DRIVER_NAME", value, sizeof value));
    ck_assert_str_eq(value, "talk");
    ck_assert(!node_startup_option(cluster, 0, "THROW_ON_OVERLOAD", value, sizeof value));
    uint8_t key[4];
    cqlring_bytes values[] = {talk_int(3, key), cqlring_text("x")};
    struct query_params params = {.consistency = 6,
                                  .serial_consistency = 9,
                                  .has_timestamp = true,
                                  .timestamp_us = 1234,
                                  .page_size = 77,
                                  .has_now = true,
                                  .now_in_seconds = 99,
                                  .keyspace = cqlring_text("ks")};
    ck_assert_str_eq(
        talk_query_with(&talk, "INSERT INTO t (k, v) VALUES (?, ?)", &params, values, 2), "void");
    struct node_seen seen;
    ck_assert(node_last(cluster, 1, OPCODE_QUERY, &seen));
    ck_assert(!node_last(cluster, 0, OPCODE_QUERY, &seen));
    ck_assert(node_last(cluster, NODE_ALL, 0xFF, &seen));
    ck_assert_uint_eq(seen.node, 1);
    ck_assert_uint_eq(seen.consistency, 6);
    ck_assert_uint_eq(seen.serial_consistency, 9);
    ck_assert(seen.has_timestamp && seen.has_now && !seen.has_paging_state);
    ck_assert_int_eq(seen.timestamp_us, 1234);
    ck_assert_int_eq(seen.page_size, 77);
    ck_assert_int_eq(seen.now_in_seconds, 99);
    ck_assert_uint_eq(seen.value_count, 2);
    ck_assert_int_eq(seen.stream, 7);
    ck_assert_str_eq(seen.keyspace, "ks");
    ck_assert_str_eq(seen.text, "INSERT INTO t (k, v) VALUES (?, ?)");
    ck_assert(seen.has_token);
    uint32_t replicas[3];
    ck_assert_uint_eq(node_replicas(cluster, "ks", seen.token, replicas, 3), 2);
    ck_assert_int_eq(seen.is_replica, replicas[0] == 1 || replicas[1] == 1);
    struct node_counters one;
    node_counters(cluster, 1, &one);
    ck_assert_uint_eq(one.replica_hits + one.replica_misses, 1);
    ck_assert_str_eq(talk_query(&talk, "SELECT writetime(v) FROM ks.t"), "1234");
    node_counters_reset(cluster);
    ck_assert_uint_eq(counters_now().requests, 0);
    ck_assert_uint_eq(counters_now().connections_open, 1);
    end(&talk);
}
END_TEST

START_TEST(prepared_statements_are_forgotten_by_node_and_by_change)
{
    struct node_options options = {.nodes = 2};
    make(&options);
    struct talk a, b;
    talk_open(&a, cluster, 0, PROTO_V5, false);
    talk_open(&b, cluster, 1, PROTO_V5, false);
    ck_assert_str_eq(talk_prepare(&a, "SELECT * FROM ks.t"), "prepared ");
    memcpy(b.id, a.id, 16);
    memcpy(b.metadata_id, a.metadata_id, 16);
    (void)talk_execute(&b, NULL, NULL, 0);
    ck_assert_int_eq(b.code, ERROR_UNPREPARED); /* node 1 has not heard of it */
    ck_assert_str_eq(talk_prepare(&b, "SELECT * FROM ks.t"), "prepared ");
    ck_assert_mem_eq(a.id, b.id, 16);
    ck_assert_str_eq(talk_execute(&b, NULL, NULL, 0), "");
    node_forget_prepared(cluster, 0);
    (void)talk_execute(&a, NULL, NULL, 0);
    ck_assert_int_eq(a.code, ERROR_UNPREPARED);
    ck_assert_str_eq(talk_execute(&b, NULL, NULL, 0), "");
    ck_assert_str_eq(talk_prepare(&a, "SELECT * FROM ks.t"), "prepared ");
    /* A changed table: unprepared everywhere; afterwards the id is the same, the metadata's is not. */
    uint8_t before[16];
    memcpy(before, a.metadata_id, 16);
    ck_assert_str_eq(talk_query(&b, "ALTER TABLE ks.t ADD w int"), "schema UPDATED TABLE ks t");
    (void)talk_execute(&a, NULL, NULL, 0);
    ck_assert_int_eq(a.code, ERROR_UNPREPARED);
    ck_assert_str_eq(talk_prepare(&a, "SELECT * FROM ks.t"), "prepared ");
    ck_assert_mem_eq(a.id, b.id, 16);
    ck_assert_mem_ne(a.metadata_id, before, 16);
    ck_assert_str_eq(a.columns, "k int,v text,w int");
    /* Whoever still holds the old one is told with the rows. */
    ck_assert_str_eq(talk_prepare(&b, "SELECT * FROM ks.t"), "prepared ");
    memcpy(b.metadata_id, before, 16);
    struct query_params params = {.consistency = 1, .skip_metadata = true};
    (void)talk_query(&b, "INSERT INTO ks.t (k, w) VALUES (1, 2)");
    ck_assert_str_eq(talk_execute(&b, &params, NULL, 0), "1|null|2");
    ck_assert((b.flags_of_rows & ROWS_METADATA_CHANGED) != 0);
    ck_assert((b.flags_of_rows & ROWS_NO_METADATA) == 0);
    talk_close(&b);
    end(&a);
}
END_TEST

START_TEST(values_by_name_fill_every_marker_of_that_name)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V4, false);
    uint8_t key[4];
    cqlring_bytes names[] = {cqlring_text("v"), cqlring_text("key")},
                  values[] = {cqlring_text("x"), talk_int(5, key)};
    struct query_params params = {.consistency = 1, .has_values = true, .has_names = true};
    struct writer *writer = talk_writer(&talk);
    uint32_t start = cqr_query_begin(
        writer, &talk.dialect, 1, cqlring_text("UPDATE ks.t SET v = :v WHERE k = :key"), &params);
    cqr_put_named_values(writer, names, values, 2);
    cqr_query_end(writer, &talk.dialect, &params, start);
    talk_send(&talk);
    ck_assert_str_eq(talk_answer(&talk), "void");
    ck_assert_str_eq(talk_query(&talk, "SELECT k, v FROM ks.t"), "5|x");
    end(&talk);
}
END_TEST

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

START_TEST(batches_mix_texts_and_prepared)
{
    make(NULL);
    struct talk talk;
    talk_open(&talk, cluster, 0, dialects[_i].version, dialects[_i].lz4);
    ck_assert_str_eq(talk_prepare(&talk, "INSERT INTO ks.t (k, v) VALUES (?, ?)"),
                     "prepared k int,v text");
    ck_assert_str_eq(batch(&talk, BATCH_LOGGED, true), "void");
    ck_assert_str_eq(batch(&talk, BATCH_UNLOGGED, false), "void");
    (void)batch(&talk, BATCH_COUNTER, false);
    ck_assert_int_eq(talk.code, ERROR_INVALID);
    ck_assert_str_eq(talk_query(&talk, "SELECT v, writetime(v) FROM ks.t WHERE k IN (1, 2)"),
                     "one|55;two|55");
    struct node_seen seen;
    ck_assert(node_last(cluster, 0, OPCODE_BATCH, &seen));
    ck_assert_uint_eq(seen.batch_count, 2);
    ck_assert_uint_eq(seen.batch_kind, BATCH_COUNTER);
    ck_assert_uint_eq(counters_now().batch_statements, 6);
    node_forget_prepared(cluster, NODE_ALL);
    (void)batch(&talk, BATCH_LOGGED, true);
    ck_assert_int_eq(talk.code, ERROR_UNPREPARED);
    end(&talk);
}
END_TEST

START_TEST(void_mode_answers_and_stores_nothing)
{
    struct node_options options = {.mode = NODE_VOID, .void_rows = 3, .void_cell_size = 2};
    make(&options);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    uint8_t key[4];
    cqlring_bytes values[] = {talk_int(1, key), cqlring_text("one")};
    ck_assert_str_eq(talk_query(&talk, "INSERT INTO ks.t (k, v) VALUES (9, 'x')"), "void");
    (void)talk_prepare(&talk, "INSERT INTO ks.t (k, v) VALUES (?, ?)");
    ck_assert_str_eq(talk_execute(&talk, NULL, values, 2), "void");
    (void)talk_execute(&talk, NULL, values, 1);
    ck_assert_int_eq(talk.code, ERROR_INVALID);
    ck_assert_str_eq(batch(&talk, BATCH_LOGGED, true), "void");
    ck_assert_str_eq(talk_query(&talk, "SELECT k, v FROM ks.t"), "0|xx;0|xx;0|xx");
    ck_assert_str_eq(talk_query(&talk, "SELECT key FROM system.local"), "local");
    ck_assert_str_eq(talk_query(&talk, "INSERT INTO ks.t (k) VALUES (1) IF NOT EXISTS"), "true");
    ck_assert_int_eq(node_table_rows(cluster, "ks.t"), 0);
    ck_assert_uint_eq(counters_now().replica_hits, 4);
    end(&talk);
}
END_TEST

START_TEST(trickle_gives_each_group_of_replies_a_write_of_its_own)
{
    struct node_options options = {.trickle = 4};
    make(&options);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V4, false);
    struct query_params params = {.consistency = 1};
    struct writer *writer = talk_writer(&talk);
    for (int16_t i = 0; i < 10; ++i) {
        uint32_t start = cqr_query_begin(writer, &talk.dialect, i,
                                         cqlring_text("INSERT INTO ks.t (k) VALUES (1)"), &params);
        cqr_query_end(writer, &talk.dialect, &params, start);
    }
    talk_send(&talk);
    int32_t sizes[] = {4 * 13, 4 * 13, 2 * 13};
    for (int i = 0; i < 3; ++i) {
        cqlring_bytes out = node_conn_output(talk.conn);
        ck_assert_int_eq(out.size, sizes[i]);
        node_conn_consumed(talk.conn, (uint32_t)out.size);
    }
    ck_assert_int_eq(node_conn_output(talk.conn).size, 0);
    end(&talk);
}
END_TEST

START_TEST(delayed_replies_overtake_one_another_the_same_way_for_a_seed)
{
    int16_t orders[2][50];
    for (int run = 0; run < 2; ++run) {
        struct node_options options = {.seed = 42, .delay_us = 1000, .jitter_us = 900};
        make(&options);
        struct talk talk;
        talk_raw(&talk, cluster, 0, PROTO_V5);
        node_set_delay(cluster, NODE_ALL, 0, 0);
        ck_assert(talk_startup(&talk));
        node_set_delay(cluster, NODE_ALL, 1000, 900);
        struct query_params params = {.consistency = 1};
        for (int16_t i = 0; i < 50; ++i) {
            struct writer *writer = talk_writer(&talk);
            uint32_t start = cqr_query_begin(writer, &talk.dialect, i,
                                             cqlring_text("SELECT key FROM system.local"), &params);
            cqr_query_end(writer, &talk.dialect, &params, start);
            talk_send(&talk);
        }
        int got = 0, swaps = 0;
        while (node_conn_next_time(talk.conn) != INT64_MAX) {
            int64_t due = node_conn_next_time(talk.conn);
            ck_assert_int_gt(due, talk.now_us);
            talk.now_us = due;
            node_conn_turn(talk.conn, due);
            while (talk_answer(&talk) != NULL) {
                ck_assert_int_lt(got, 50);
                orders[run][got++] = talk.stream;
                swaps += got > 1 && orders[run][got - 2] > talk.stream;
            }
        }
        ck_assert_int_eq(got, 50);
        ck_assert_int_gt(swaps, 5);
        ck_assert_int_le(talk.now_us, 1000000 + 1900);
        end(&talk);
    }
    ck_assert_mem_eq(orders[0], orders[1], sizeof orders[0]);
}
END_TEST

START_TEST(registered_connections_hear_of_changes)
{
    struct node_options options = {.nodes = 3, .port = 9042};
    make(&options);
    struct talk listener, other;
    talk_open(&listener, cluster, 0, PROTO_V5, false);
    talk_open(&other, cluster, 1, PROTO_V4, false);
    cqlring_bytes types[] = {cqlring_text("TOPOLOGY_CHANGE"), cqlring_text("STATUS_CHANGE"),
                             cqlring_text("SCHEMA_CHANGE")};
    cqr_encode_register(talk_writer(&listener), &listener.dialect, 1, types, 3);
    talk_send(&listener);
    ck_assert(talk_take(&listener));
    ck_assert_int_eq(listener.opcode, OPCODE_READY);
    (void)talk_query(&other, "CREATE TABLE ks.u (k int PRIMARY KEY)");
    ck_assert_str_eq(talk_answer(&listener), "event SCHEMA_CHANGE CREATED TABLE ks u");
    ck_assert_int_eq(listener.stream, -1);
    node_down(cluster, 2, true);
    ck_assert_str_eq(talk_answer(&listener), "event STATUS_CHANGE DOWN :9042");
    node_up(cluster, 2, true);
    ck_assert_str_eq(talk_answer(&listener), "event STATUS_CHANGE UP :9042");
    node_leave(cluster, 2, true);
    ck_assert_str_eq(talk_answer(&listener), "event TOPOLOGY_CHANGE REMOVED_NODE :9042");
    (void)talk_query(&listener, "SELECT peer FROM system.peers_v2");
    ck_assert_uint_eq(listener.row_count, 1);
    node_join(cluster, 2, true);
    ck_assert_str_eq(talk_answer(&listener), "event TOPOLOGY_CHANGE NEW_NODE :9042");
    ck_assert_str_eq(talk_answer(&listener), "event STATUS_CHANGE UP :9042");
    node_hide(cluster, 1, true);
    (void)talk_query(&listener, "SELECT peer FROM system.peers");
    ck_assert_uint_eq(listener.row_count, 1);
    ck_assert_ptr_null(talk_answer(&other));
    cqr_encode_register(talk_writer(&other), &other.dialect, 1,
                        (cqlring_bytes[]){cqlring_text("NO_CHANGE")}, 1);
    talk_send(&other);
    (void)talk_answer(&other);
    ck_assert_int_eq(other.code, ERROR_PROTOCOL);
    talk_close(&other);
    end(&listener);
}
END_TEST

START_TEST(too_few_living_replicas_are_unavailable)
{
    struct node_options options = {.nodes = 3};
    make(&options);
    ck_assert_int_eq(
        node_cql(
            cluster,
            "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
            NULL, NULL, 0),
        0);
    struct talk talk;
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    struct query_params quorum = {.consistency = 4}, all = {.consistency = 5};
    ck_assert_str_eq(talk_query_with(&talk, "INSERT INTO ks.t (k) VALUES (1)", &all, NULL, 0),
                     "void");
    node_down(cluster, 1, false);
    ck_assert_str_eq(talk_query_with(&talk, "INSERT INTO ks.t (k) VALUES (1)", &quorum, NULL, 0),
                     "void");
    (void)talk_query_with(&talk, "INSERT INTO ks.t (k) VALUES (1)", &all, NULL, 0);
    ck_assert_int_eq(talk.code, ERROR_UNAVAILABLE);
    node_down(cluster, 2, false);
    (void)talk_query_with(&talk, "SELECT * FROM ks.t WHERE k = 1", &quorum, NULL, 0);
    ck_assert_int_eq(talk.code, ERROR_UNAVAILABLE);
    struct error_body error;
    ck_assert_int_eq(cqr_decode_error(&talk.dialect,
                                      (cqlring_bytes){talk.body, (int32_t)talk.body_size}, &error),
                     CQLRING_OK);
    ck_assert_uint_eq(error.consistency, 4);
    ck_assert_int_eq(error.required, 2);
    ck_assert_int_eq(error.alive, 1);
    ck_assert_ptr_null(node_conn_open(cluster, 1, 0, 0));
    end(&talk);
}
END_TEST

START_TEST(limits_hold)
{
    struct node_options options = {.frame_size_max = 1000,
                                   .statement_size_max = 300,
                                   .prepared_max = 3,
                                   .connections_max = 2,
                                   .storage_max = 1};
    make(&options);
    struct talk talk, second;
    talk_open(&talk, cluster, 0, PROTO_V4, false);
    static char text[2000];
    memset(text, ' ', sizeof text - 1);
    memcpy(text, "SELECT * FROM ks.t", 18);
    (void)talk_query(&talk, text);
    ck_assert_int_eq(talk.code, ERROR_INVALID);
    ck_assert_ptr_nonnull(strstr(talk.text, "too big"));
    ck_assert_str_eq(talk_query(&talk, "SELECT * FROM ks.t"), ""); /* the large one was skipped */
    text[500] = 0;
    (void)talk_query(&talk, text);
    ck_assert_ptr_nonnull(strstr(talk.text, "too large"));
    for (int i = 0; i < 6; ++i) {
        char cql[100];
        (void)snprintf(cql, sizeof cql, "SELECT * FROM ks.t LIMIT %d", i + 1);
        (void)talk_prepare(&talk, cql);
        ck_assert_str_eq(talk_execute(&talk, NULL, NULL, 0), "");
    }
    ck_assert_uint_eq(counters_now().prepared, 3);
    (void)talk_query(&talk, "INSERT INTO ks.t (k, v) VALUES (1, 'x')");
    ck_assert_int_eq(talk.code, ERROR_OVERLOADED);
    talk_open(&second, cluster, 0, PROTO_V4, false);
    ck_assert_ptr_null(node_conn_open(cluster, 0, 0, 0));
    talk_close(&second);
    end(&talk);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_conn");
    TCase *test = tcase_create("conn");
    tcase_add_loop_test(test, every_dialect_writes_and_reads, 0, DIALECTS);
    tcase_add_test(test, input_split_at_every_byte_is_whole_again);
    tcase_add_test(test, a_version_is_refused_as_each_server_does);
    tcase_add_test(test, passwords_are_asked_and_judged);
    tcase_add_test(test, what_comes_too_early_is_refused);
    tcase_add_test(test, requests_are_seen_as_they_came);
    tcase_add_test(test, prepared_statements_are_forgotten_by_node_and_by_change);
    tcase_add_test(test, values_by_name_fill_every_marker_of_that_name);
    tcase_add_loop_test(test, batches_mix_texts_and_prepared, 0, DIALECTS);
    tcase_add_test(test, void_mode_answers_and_stores_nothing);
    tcase_add_test(test, trickle_gives_each_group_of_replies_a_write_of_its_own);
    tcase_add_test(test, delayed_replies_overtake_one_another_the_same_way_for_a_seed);
    tcase_add_test(test, registered_connections_hear_of_changes);
    tcase_add_test(test, too_few_living_replicas_are_unavailable);
    tcase_add_test(test, limits_hold);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
