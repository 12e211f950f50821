/* SPDX-License-Identifier: Apache-2.0 */

/* LZ4 on the way to the node and back, in frames (v4) and in segments (v5). */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

enum { MIB = 1 << 20 };

static void start(struct flow *flow, int32_t version)
{
    flow_init(flow);
    flow->options.protocol_version = version;
    flow->options.compression = CQLRING_COMPRESSION_LZ4;
    flow_start(flow);
}

static uint8_t *made(uint32_t size, bool random)
{
    uint8_t *bytes = calloc(1, (size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    if (random)
        flow_blob(size, bytes, size);
    return bytes;
}

/* Written and read back, as it was. */
static void round_trip(struct flow *flow, int64_t key, const uint8_t *bytes, uint32_t size)
{
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT), *select = flow_prepare(flow, FLOW_SELECT);
    cqlring_bytes values[2] = {flow_bigint(key), {bytes, (int32_t)size}};
    cqlring_error error = {0};
    cqlring_result *result = NULL;
    cqlring_status status = ask_prepared(flow, insert, values, 2, NULL, NULL, &error);
    ck_assert_msg(status == CQLRING_OK, "writing %u bytes: %s", size, error.message);
    status = ask_prepared(flow, select, values, 1, NULL, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "reading %u bytes: %s", size, error.message);
    cqlring_bytes cell = ask_cell(result, 0, 0);
    ck_assert_int_eq(cell.size, (int32_t)size);
    ck_assert(size == 0 || memcmp(cell.data, bytes, size) == 0);
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
}

static uint64_t bytes_moved(struct flow *flow)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.bytes_in + counters.bytes_out;
}

START_TEST(cp_01_texts_of_50_bytes_and_of_100_kb_are_understood)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        for (uint32_t size = 0; size <= 50000; size += 50000) {
            char *cql = malloc(2 * size + 100);
            ck_assert_ptr_nonnull(cql);
            int used = sprintf(cql, "INSERT INTO ks.t (k, v) VALUES (%u, 0x", size);
            for (uint32_t i = 0; i < 2 * size; i++)
                cql[used + (int)i] = "0123456789abcdef"[i * 7 % 16];
            strcpy(cql + used + 2 * size, ")");
            flow_cql(&flow, cql);
            free(cql);
            cqlring_result *result = NULL;
            cqlring_bytes key = flow_bigint(size);
            flow_ok(ask_text(&flow, FLOW_SELECT, &key, 1, NULL, &result, NULL));
            ck_assert_int_eq(ask_cell(result, 0, 0).size, (int32_t)size);
            cqlring_result_release(result);
        }
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_uint_gt(counters.compressed_in, 0);
        ck_assert_uint_lt(counters.bytes_in + counters.bytes_out, 60000); /* 100 000 digits and their 50 000 bytes, squeezed */
        flow_close(&flow);
    }
}
END_TEST

START_TEST(cp_03_ten_megabytes_of_zeros_come_back)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        uint8_t *zeros = made(10 * MIB, false);
        round_trip(&flow, 1, zeros, 10 * MIB);
        ck_assert_uint_lt(bytes_moved(&flow), MIB);
        free(zeros);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(v5_06_what_does_not_shrink_goes_as_it_is)
{
    static const uint32_t sizes[] = {0, 1, 63, 64, 200, 5000, 130000, 131062, 140000, 300000, 3 * MIB};
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int random = 0; random < 2; random++) {
                uint8_t *bytes = made(sizes[i], random != 0);
                uint64_t before = bytes_moved(&flow);
                round_trip(&flow, (int64_t)i, bytes, sizes[i]);
                uint64_t moved = bytes_moved(&flow) - before;
                if (random != 0)
                    ck_assert_msg(moved < 2 * (uint64_t)sizes[i] + sizes[i] / 200 + 1000, "%lu bytes for twice %u", (unsigned long)moved, sizes[i]);
                else
                    ck_assert_msg(moved < 1000 + sizes[i] / 50, "%lu bytes for twice %u zeros", (unsigned long)moved, sizes[i]);
                free(bytes);
            }
        flow_close(&flow);
    }
}
END_TEST

/* Many small rows in one segment, and frames that are compressed one by one. */
START_TEST(a_bulk_job_goes_through_compressed)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, version);
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 10000, 300);
        flow_sink_init(&sink, 10000);
        flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
        ck_assert_uint_eq(sink.ok, 10000);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 10000);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        cqlring_stats stats = flow_stats(&flow);
        ck_assert_uint_eq(stats.connections_lost, 0);
        flow_close(&flow);
    }
}
END_TEST

/* What was seen of OPTIONS and STARTUP. */
static struct {
    uint32_t options, startups, compressed;
} openers;

static void on_opener(const struct node_seen *seen, void *context)
{
    (void)context;
    bool is_opener = seen->opcode == OPCODE_OPTIONS || seen->opcode == OPCODE_STARTUP;
    openers.options += seen->opcode == OPCODE_OPTIONS;
    openers.startups += seen->opcode == OPCODE_STARTUP;
    openers.compressed += is_opener && seen->version < 5 && (seen->compressed || (seen->flags & 1) != 0);
}

static bool heartbeats_came(struct flow *flow, void *context)
{
    (void)context;
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.opcodes[OPCODE_OPTIONS] >= 6;
}

START_TEST(cp_05_options_and_startup_are_never_compressed)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        memset(&openers, 0, sizeof openers);
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow.options.compression = CQLRING_COMPRESSION_LZ4;
        flow.options.heartbeat_us = 30000;
        flow.options.application_name = "a name that repeats, a name that repeats, a name that repeats, a name that repeats";
        flow.node_options.on_request = on_opener;
        flow_start(&flow);
        flow_open(&flow);
        watch_for(&flow, heartbeats_came, NULL);
        cqlring_stats stats = flow_stats(&flow);
        ck_assert_uint_eq(stats.connections_lost, 0);
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_uint_eq(counters.errors, 0);
        ck_assert_uint_eq(counters.opcodes[OPCODE_STARTUP], 2);
        flow_close(&flow);
        ck_assert_uint_eq(openers.startups, 2);
        ck_assert_uint_ge(openers.options, 6);
        ck_assert_uint_eq(openers.compressed, 0);
    }
}
END_TEST

/* Snappy is version 4's: there it goes both ways, and where 5 is spoken there is none. */
START_TEST(cp_06_snappy_is_spoken_on_4_and_nothing_on_5)
{
    for (int32_t version = 0; version <= 4; version += 4) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow.options.compression = CQLRING_COMPRESSION_SNAPPY;
        flow.node_options.snappy_listed = true;
        flow_start(&flow);
        flow_open(&flow);
        char value[32] = "";
        bool sent = node_startup_option(flow.node, 0, "COMPRESSION", value, sizeof value);
        cqlring_connection_info info;
        ck_assert_uint_ge(cqlring_cluster_connections(flow.cluster, &info, 1), 1);
        ck_assert_int_eq(info.compression, version == 4 ? CQLRING_COMPRESSION_SNAPPY : CQLRING_COMPRESSION_NONE);
        ck_assert(sent == (version == 4));
        ck_assert_str_eq(value, version == 4 ? "snappy" : "");
        for (int random = 0; random < 2; random++) {
            uint8_t *bytes = made(300000, random);
            uint64_t moved = bytes_moved(&flow);
            round_trip(&flow, random, bytes, 300000);
            moved = bytes_moved(&flow) - moved;
            ck_assert_msg((version == 4 && !random) == (moved < 60000), "%lu bytes", (unsigned long)moved);
            free(bytes);
        }
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        flow_rows_init(&rows, 3000, 500);
        flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
        flow_rows_fini(&rows);
        cqlring_prepared_release(insert);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 3000);
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert((counters.compressed_in > 0) == (version == 4));
        flow_close(&flow);
    }
    struct flow flow;
    flow_init(&flow);
    flow.options.protocol_version = 5;
    flow.options.compression = CQLRING_COMPRESSION_SNAPPY;
    flow_start(&flow);
    cqlring_error error;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "SNAPPY does not exist in protocol_version 5") != NULL, "%s", error.message);
    flow_close(&flow);
}
END_TEST

START_TEST(cp_06_what_the_server_does_not_offer_is_done_without)
{
    for (int snappy = 0; snappy < 2; snappy++)
        for (int32_t version = 4; version <= 5; version++) {
            struct flow flow;
            flow_init(&flow);
            flow.options.protocol_version = version;
            flow.options.compression = CQLRING_COMPRESSION_LZ4;
            flow.node_options.no_lz4 = true;
            flow.node_options.snappy_listed = snappy != 0;
            flow_start(&flow);
            flow_open(&flow);
            char value[32];
            ck_assert(!node_startup_option(flow.node, 0, "COMPRESSION", value, sizeof value));
            uint8_t *zeros = made(100000, false);
            round_trip(&flow, 1, zeros, 100000);
            free(zeros);
            struct node_counters counters;
            node_counters(flow.node, NODE_ALL, &counters);
            ck_assert_uint_eq(counters.compressed_in, 0);
            flow_close(&flow);
        }
}
END_TEST

START_TEST(cp_06_none_means_none)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow_start(&flow);
        flow_open(&flow);
        char value[32];
        ck_assert(!node_startup_option(flow.node, 0, "COMPRESSION", value, sizeof value));
        uint8_t *zeros = made(100000, false);
        round_trip(&flow, 1, zeros, 100000);
        free(zeros);
        ck_assert_uint_gt(bytes_moved(&flow), 200000);
        flow_close(&flow);

        flow_init(&flow);
        flow.options.compression = (cqlring_compression)3;
        flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
        cqlring_future *future;
        cqlring_error error;
        ck_assert_int_eq(cqlring_cluster_open(flow.runtime, &flow.options, &future, &error), CQLRING_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, "compression"));
        flow_close(&flow);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compress");
    TCase *tcase = tcase_create("compress");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, cp_01_texts_of_50_bytes_and_of_100_kb_are_understood);
    tcase_add_test(tcase, cp_03_ten_megabytes_of_zeros_come_back);
    tcase_add_test(tcase, v5_06_what_does_not_shrink_goes_as_it_is);
    tcase_add_test(tcase, a_bulk_job_goes_through_compressed);
    tcase_add_test(tcase, cp_05_options_and_startup_are_never_compressed);
    tcase_add_test(tcase, cp_06_snappy_is_spoken_on_4_and_nothing_on_5);
    tcase_add_test(tcase, cp_06_what_the_server_does_not_offer_is_done_without);
    tcase_add_test(tcase, cp_06_none_means_none);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
