/* SPDX-License-Identifier: Apache-2.0 */

/* Results: rows by cursor, what they pin, answers that are malformed, and cells that are null, unset or empty. */

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "driver/net.h"
#include "driver/runtime.h"

static void up(struct flow *flow, int version)
{
    flow_init(flow);
    ask_record(flow);
    flow->options.protocol_version = version;
    flow_start(flow);
    flow_open(flow);
}

/* ks.wide (p int, c int, v text): one partition of so many rows, v the text of c. */
static void fill_wide(struct flow *flow, int rows)
{
    flow_cql(flow, "CREATE TABLE ks.wide (p int, c int, v text, PRIMARY KEY (p, c))");
    for (int c = 0; c < rows; c++) {
        char cql[96], message[128];
        snprintf(cql, sizeof cql, "INSERT INTO ks.wide (p, c, v) VALUES (1, %d, 'row %d')", c, c);
        ck_assert_int_eq(node_cql(flow->node, cql, NULL, message, sizeof message), 0);
    }
}

static cqlring_result *get(struct flow *flow, const char *cql)
{
    cqlring_result *result = NULL;
    cqlring_error error = {0};
    cqlring_status status = flow_try(flow, cql, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", cql, error.message);
    ck_assert_ptr_nonnull(result);
    return result;
}

/* ---- rows ---- */

START_TEST(rows_come_in_bulk_from_anywhere_and_in_any_order)
{
    struct flow flow;
    up(&flow, _i);
    fill_wide(&flow, 100);
    cqlring_result *result = get(&flow, "SELECT c, v FROM ks.wide WHERE p = 1");
    ck_assert_uint_eq(cqlring_result_row_count(result), 100);
    ck_assert_uint_eq(cqlring_result_column_count(result), 2);
    cqlring_bytes cells[100 * 2];
    uint32_t count = 0, from = 0;
    cqlring_error error;
    for (uint32_t capacity = 1; capacity <= 100; capacity += 33) {
        for (from = 0; from < 100; from += count) {
            flow_ok(cqlring_result_rows(result, from, cells, capacity, &count, &error));
            ck_assert_uint_eq(count, capacity < 100 - from ? capacity : 100 - from);
            for (uint32_t i = 0; i < count; i++) {
                char text[32];
                int64_t number = 0;
                flow_ok(cqlring_get_int(cells[i * 2], 4, &number));
                ck_assert_int_eq(number, from + i);
                snprintf(text, sizeof text, "row %u", from + i);
                ck_assert(ask_is(cells[i * 2 + 1], text));
            }
        }
        flow_ok(cqlring_result_rows(result, 100, cells, capacity, &count, &error));
        ck_assert_uint_eq(count, 0);
    }
    const uint32_t jumps[] = {99, 0, 50, 49, 51, 51, 98, 3};
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++)
        ck_assert_int_eq(ask_int(result, jumps[i], 0), jumps[i]);
    flow_ok(cqlring_result_rows(result, UINT32_MAX, cells, 1, &count, &error));
    ck_assert_uint_eq(count, 0);
    flow_ok(cqlring_result_rows(result, 5, NULL, 0, &count, &error));
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(cqlring_result_rows(result, 5, NULL, 1, &count, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_result_rows(result, 5, cells, 1, NULL, &error), CQLRING_INVALID);
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

START_TEST(ty_31_questions_beyond_the_end_and_about_nothing_have_an_answer)
{
    struct flow flow;
    up(&flow, 5);
    cqlring_result *empty = get(&flow, "SELECT k, v FROM ks.t");
    cqlring_column column;
    cqlring_bytes cells[2], slice;
    cqlring_payload_entry entry;
    uint32_t count = 9;
    uint8_t id[16];
    ck_assert_uint_eq(cqlring_result_row_count(empty), 0);
    ck_assert_uint_eq(cqlring_result_column_count(empty), 2);
    ck_assert(cqlring_result_column(empty, 1, &column));
    ck_assert(!cqlring_result_column(empty, 2, &column));
    ck_assert(!cqlring_result_column(empty, UINT32_MAX, &column));
    flow_ok(cqlring_result_rows(empty, 0, cells, 1, &count, NULL));
    ck_assert_uint_eq(count, 0);
    cqlring_result_release(empty);
    ck_assert_uint_eq(cqlring_result_row_count(NULL), 0);
    ck_assert_uint_eq(cqlring_result_column_count(NULL), 0);
    ck_assert(!cqlring_result_column(NULL, 0, &column));
    ck_assert_int_eq(cqlring_result_rows(NULL, 0, cells, 1, &count, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_result_applied(NULL), -1);
    ck_assert(!cqlring_result_trace_id(NULL, id));
    ck_assert_uint_eq(cqlring_result_warnings(NULL, cells, 2), 0);
    ck_assert_uint_eq(cqlring_result_payload(NULL, &entry, 1), 0);
    ck_assert(!cqlring_result_schema_change(NULL, &slice, &slice, &slice, &slice));
    ck_assert_ptr_null(cqlring_result_paging_state(NULL).data);
    ck_assert_uint_eq(cqlring_result_pinned_size(NULL), 0);
    ck_assert_ptr_null(cqlring_result_detach(NULL));
    ck_assert_ptr_null(cqlring_result_retain(NULL));
    cqlring_result_release(NULL);
    flow_close(&flow);
}
END_TEST

START_TEST(an_ordered_crowd_of_results_keeps_what_each_was_given)
{
    struct flow flow;
    up(&flow, _i);
    fill_wide(&flow, 200);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c, v FROM ks.wide WHERE p = 1 AND c = ?");
    enum { COUNT = 600 };
    static cqlring_result *results[COUNT];
    static cqlring_future *futures[COUNT];
    for (int i = 0; i < COUNT; i++) {
        cqlring_bytes value = flow_int(i % 200);
        futures[i] = ask_start_prepared(&flow, select, &value, 1, NULL);
    }
    for (int i = 0; i < COUNT; i++) {
        flow_ok(ask_wait(futures[i], NULL));
        results[i] = cqlring_result_retain(cqlring_future_completion(futures[i])->result);
        cqlring_future_release(futures[i]);
    }
    for (int i = 0; i < 500; i++) /* the blocks are used again, but not theirs */
        flow_cql(&flow, "SELECT c, v FROM ks.wide WHERE p = 1 AND c = 0");
    for (int i = COUNT - 1; i >= 0; i--) {
        char text[32];
        snprintf(text, sizeof text, "row %d", i % 200);
        ck_assert_int_eq(ask_int(results[i], 0, 0), i % 200);
        ck_assert(ask_is(ask_cell(results[i], 0, 1), text));
        cqlring_result_release(results[i]);
    }
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

/* ---- memory ---- */

START_TEST(a_detached_result_pins_only_itself_and_keeps_everything)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x0102)");
    flow_fault(&flow, "warnings:count=2,opcode=QUERY,table=ks.t");
    flow_fault(&flow, "payload:opcode=QUERY,table=ks.t");
    flow_fault(&flow, "tracing:opcode=QUERY,table=ks.t");
    cqlring_result *result = get(&flow, "SELECT k, v FROM ks.t"), *copy = cqlring_result_detach(result), *again = cqlring_result_detach(copy);
    ck_assert(copy != NULL && again != NULL && copy != result);
    ck_assert_uint_ge(cqlring_result_pinned_size(result), 1024); /* a whole receive block */
    ck_assert_uint_lt(cqlring_result_pinned_size(copy), 1024);
    uint8_t id[16], copied[16];
    ck_assert(cqlring_result_trace_id(result, id));
    cqlring_result_release(result);
    cqlring_result_release(copy);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    node_cluster_stop(flow.node);
    ck_assert(cqlring_result_trace_id(again, copied));
    ck_assert_int_eq(memcmp(id, copied, sizeof id), 0);
    cqlring_bytes warnings[2];
    cqlring_payload_entry entry;
    cqlring_column column;
    ck_assert_uint_eq(cqlring_result_warnings(again, warnings, 2), 2);
    ck_assert(ask_is(warnings[1], "warning 2 of the node"));
    ck_assert_uint_eq(cqlring_result_payload(again, &entry, 1), 1);
    ck_assert(ask_is(entry.key, "node"));
    ck_assert(cqlring_result_column(again, 1, &column));
    ck_assert_str_eq(column.name, "v");
    ck_assert_int_eq(ask_int(again, 0, 0), 1);
    ck_assert_int_eq(ask_cell(again, 0, 1).size, 2);
    cqlring_result_release(again);
    ask_nothing_left();
}
END_TEST

/* Bytes of wire blocks that are out: with results, or with connections in the middle of a frame. */
static uint64_t wire_memory(const struct flow *flow)
{
    const struct lane *lane = &cqr_runtime_core(flow->runtime)->lanes[0];
    return cqr_pool_live_bytes(lane->receive_pool) + cqr_pool_live_bytes(lane->unpack_pool);
}

static size_t used_memory(void)
{
    struct mallinfo2 info = mallinfo2(); /* 0 under the sanitizers, which bring their own malloc */
    return info.uordblks + info.hblkhd;
}

START_TEST(ml_07_a_large_answer_is_one_result_and_its_memory_comes_back)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.mode = NODE_VOID;
    flow.node_options.void_rows = 2000;
    flow.node_options.void_cell_size = 10000;
    const cqlring_execution no_hurry = {.struct_size = sizeof no_hurry, .timeout_us = -1};
    flow.session_options.execution = &no_hurry; /* it is not about time, and sanitizers take theirs */
    flow.options.suspect_after_us = flow.options.heartbeat_us = -1;
    flow.options.compression = _i == 1 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE;
    flow.options.protocol_version = _i == 2 ? 4 : 5;
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TABLE ks.one (k int PRIMARY KEY, v text)");
    flow_cql(&flow, "INSERT INTO ks.t (k) VALUES (1)");
    size_t before = 0;
    for (int round = 0; round < 4; round++) {
        if (round == 1) /* the node's own buffer, in this process too, has grown by then */
            before = used_memory();
        cqlring_result *result = get(&flow, "SELECT k, v FROM ks.t");
        ck_assert_uint_eq(cqlring_result_row_count(result), 2000);
        ck_assert_uint_ge(cqlring_result_pinned_size(result), 20000000);
        for (uint32_t row = 0; row < 2000; row += 499) {
            cqlring_bytes cell = ask_cell(result, row, 1);
            ck_assert_int_eq(cell.size, 10000);
            ck_assert_int_eq(((const char *)cell.data)[9999], 'x');
        }
        ck_assert_uint_ge(wire_memory(&flow), 20000000);
        cqlring_result_release(result);
    }
    for (int i = 0; i < 50; i++)
        flow_cql(&flow, "INSERT INTO ks.t (k) VALUES (1)");
    ck_assert_uint_le(wire_memory(&flow), 1000000);
    size_t after = used_memory();
    ck_assert_msg(after == 0 || after < before + 4000000, "%zu bytes before, %zu after", before, after);
    flow_close(&flow);
}
END_TEST

/* A network on which each recv brings at most a KiB and, once it is `slow`, takes a while of the runtime's clock. */
static struct {
    struct net net;
    struct net_vtable call;
    atomic_bool slow;
    _Atomic(int64_t) late_us;
} slow_net;

static ssize_t slow_recv(struct net *net, int fd, void *data, size_t size)
{
    (void)net;
    struct net *real = cqr_net_system();
    bool slow = atomic_load(&slow_net.slow);
    ssize_t got = real->call->recv(real, fd, data, slow && size > 1024 ? 1024 : size);
    if (slow && got > 0)
        atomic_fetch_add(&slow_net.late_us, 1500);
    return got;
}

static int64_t slow_now(struct net *net)
{
    (void)net;
    return cqr_net_system()->call->now_us(cqr_net_system()) + atomic_load(&slow_net.late_us);
}

START_TEST(a_large_answer_that_comes_slowly_is_no_silence)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.mode = NODE_VOID;
    flow.node_options.void_rows = 400;
    flow.node_options.void_cell_size = 10000;
    flow.options.suspect_after_us = 1500000;
    flow.options.connect_timeout_us = 1500000;
    flow_start(&flow);
    slow_net.call = *cqr_net_system()->call;
    slow_net.call.recv = slow_recv;
    slow_net.call.now_us = slow_now;
    slow_net.net.call = &slow_net.call;
    atomic_store(&slow_net.slow, false);
    flow_ok(cqr_runtime_create_on(&flow.runtime_options, &slow_net.net, NULL, &flow.runtime, NULL));
    flow_open(&flow);
    int64_t before = slow_now(NULL);
    atomic_store(&slow_net.slow, true);
    cqlring_result *result = get(&flow, "SELECT k, v FROM ks.t"); /* 4 MB: some six seconds by its clock */
    atomic_store(&slow_net.slow, false);
    ck_assert_int_ge(slow_now(NULL) - before, 4000000);
    ck_assert_uint_eq(cqlring_result_row_count(result), 400);
    cqlring_result_release(result);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(an_answer_above_frame_size_max_ends_the_connection_with_both_sizes)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.mode = NODE_VOID;
    flow.node_options.void_rows = 200;
    flow.node_options.void_cell_size = 10000;
    flow.options.frame_size_max = 1000000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_error error;
    ck_assert_int_eq(flow_try(&flow, "SELECT v FROM ks.t", NULL, &error), CQLRING_TOO_LARGE);
    ck_assert_msg(strstr(error.message, "1000000") != NULL, "%s", error.message);
    ask_until_served(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k) VALUES (1)");
    flow_close(&flow);
}
END_TEST

/* ---- malformed ---- */

START_TEST(ty_32_a_cell_of_the_wrong_size_is_an_error_for_that_cell_only)
{
    struct flow flow;
    up(&flow, _i);
    fill_wide(&flow, 1000);
    flow_fault(&flow, "bad-cell:times=1,table=ks.wide");
    cqlring_result *result = get(&flow, "SELECT c, v FROM ks.wide WHERE p = 1");
    cqlring_column column;
    ck_assert(cqlring_result_column(result, 0, &column));
    for (uint32_t row = 0; row < 1000; row++) {
        cqlring_bytes cell = ask_cell(result, row, 0);
        int64_t number = -1;
        ck_assert_int_eq(cqlring_get_int(cell, 4, &number), row == 999 ? CQLRING_TYPE : CQLRING_OK);
        ck_assert_int_eq(cqlring_value_check(column.type, cell), row == 999 ? CQLRING_TYPE : CQLRING_OK);
        ck_assert_int_eq(number, row == 999 ? -1 : (int64_t)row);
    }
    ck_assert(ask_is(ask_cell(result, 999, 1), "row 999")); /* its neighbour is whole */
    cqlring_result_release(result);
    flow_cql(&flow, "SELECT c FROM ks.wide WHERE p = 1");
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(ty_32_a_row_cut_short_names_row_and_column_and_the_connection_lives)
{
    struct flow flow;
    up(&flow, _i);
    fill_wide(&flow, 500);
    const struct {
        int cut;
        const char *column;
    } cuts[] = {{1, "column v (text)"}, {7, "column v (text)"}, {8, "column v (text)"}, {12, "column c (int)"}, {16, "column c (int)"}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "truncated:count=%d,times=1,table=ks.wide", cuts[i].cut);
        flow_fault(&flow, fault);
        cqlring_result *result = get(&flow, "SELECT c, v FROM ks.wide WHERE p = 1");
        cqlring_bytes cells[2];
        uint32_t count = 0;
        cqlring_error error = {0};
        ck_assert_int_eq(ask_int(result, 498, 0), 498);
        ck_assert_int_eq(cqlring_result_rows(result, 499, cells, 1, &count, &error), CQLRING_PROTOCOL);
        ck_assert_msg(strstr(error.message, "row 499") != NULL && strstr(error.message, cuts[i].column) != NULL, "cut %d: %s", cuts[i].cut, error.message);
        ck_assert_int_eq(ask_int(result, 3, 0), 3); /* the others can still be had */
        cqlring_result_release(result);
    }
    flow_cql(&flow, "SELECT c FROM ks.wide WHERE p = 1");
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_result_that_cannot_be_read_is_an_error_of_that_request)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    cqlring_error error;
    for (int cut = 18; cut < 46; cut += 9) { /* into the rows' number, and the columns */
        char fault[64];
        snprintf(fault, sizeof fault, "truncated:count=%d,times=1,table=ks.t", cut);
        flow_fault(&flow, fault);
        ck_assert_int_eq(flow_try(&flow, "SELECT k, v FROM ks.t", NULL, &error), CQLRING_PROTOCOL);
        ck_assert_uint_eq(error.phase, CQLRING_ANSWERED);
    }
    flow_fault(&flow, "trailing:times=1,table=ks.t");
    cqlring_result *result = get(&flow, "SELECT k, v FROM ks.t");
    ck_assert_int_eq(ask_int(result, 0, 0), 1);
    cqlring_result_release(result);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(pd_04_rows_without_columns_are_counted_and_nothing_is_read_beyond)
{
    struct flow flow;
    up(&flow, _i);
    const unsigned counts[] = {45, 0};
    for (int i = 0; i < 2; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "no-columns:count=%u,times=1,table=ks.t", counts[i]);
        flow_fault(&flow, fault);
        cqlring_result *result = get(&flow, "SELECT k, v FROM ks.t");
        ck_assert_uint_eq(cqlring_result_row_count(result), counts[i]);
        ck_assert_uint_eq(cqlring_result_column_count(result), 0);
        cqlring_bytes cells[1];
        uint32_t count = 99, all = 0;
        for (uint32_t from = 0; count > 0; from += count, all += count)
            flow_ok(cqlring_result_rows(result, from, cells, 10, &count, NULL));
        ck_assert_uint_eq(all, counts[i]);
        ck_assert_int_eq(cqlring_result_applied(result), -1);
        cqlring_result_release(result);
    }
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

/* ---- null, unset, empty ---- */

START_TEST(nv_05_an_empty_value_in_the_middle_keeps_its_place)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "CREATE TABLE ks.three (k int PRIMARY KEY, a int, b text, c int, d int)");
    cqlring_bytes values[5] = {flow_int(1), flow_int(1), {"", 0}, flow_int(3), {NULL, 0}};
    static const char insert[] = "INSERT INTO ks.three (k, a, b, c, d) VALUES (?, ?, ?, ?, ?)";
    cqlring_prepared *prepared = flow_prepare(&flow, insert);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            flow_ok(ask_text(&flow, insert, values, 5, NULL, NULL, NULL));
        else
            flow_ok(ask_prepared(&flow, prepared, values, 5, NULL, NULL, NULL));
        ck_assert_uint_eq(ask_seen(i == 0 ? OPCODE_QUERY : OPCODE_EXECUTE).value_count, 5);
        cqlring_result *result = get(&flow, "SELECT a, b, c, d FROM ks.three WHERE k = 1");
        ck_assert_int_eq(ask_int(result, 0, 0), 1);
        ck_assert_int_eq(ask_cell(result, 0, 1).size, 0);
        ck_assert_int_eq(ask_int(result, 0, 2), 3);
        ck_assert_int_eq(ask_cell(result, 0, 3).size, 0); /* an empty int is neither null nor 0 */
        int64_t number = 77;
        ck_assert_int_eq(cqlring_get_int(ask_cell(result, 0, 3), 4, &number), CQLRING_INVALID);
        ck_assert_int_eq(number, 77);
        cqlring_result_release(result);
        flow_cql(&flow, "TRUNCATE ks.three");
    }
    cqlring_prepared_release(prepared);
    flow_close(&flow);
}
END_TEST

START_TEST(null_deletes_and_unset_leaves_as_it_is)
{
    struct flow flow;
    up(&flow, _i);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    values[1] = (cqlring_bytes){NULL, CQLRING_UNSET};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    cqlring_result *result = get(&flow, "SELECT v FROM ks.t WHERE k = 1");
    ck_assert(ask_is(ask_cell(result, 0, 0), "v"));
    cqlring_result_release(result);
    values[1] = (cqlring_bytes){"ignored", CQLRING_NULL};
    flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, NULL));
    result = get(&flow, "SELECT v FROM ks.t WHERE k = 1");
    ck_assert_int_eq(ask_cell(result, 0, 0).size, CQLRING_NULL);
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(nv_09_unset_is_refused_inside_and_the_servers_business_at_the_top)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "CREATE TYPE ks.pair (a int, b int)");
    flow_cql(&flow, "CREATE TABLE ks.nested (k int PRIMARY KEY, l list<int>, t tuple<int, int>, u frozen<pair>)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.nested (k, l, t, u) VALUES (?, ?, ?, ?)");
    for (uint32_t i = 1; i < 4; i++) {
        cqlring_column column;
        uint8_t room[64];
        cqlring_writer writer;
        cqlring_bytes cell;
        ck_assert(cqlring_prepared_bind_column(insert, i, &column));
        cqlring_writer_init(&writer, room, sizeof room);
        cqlring_put_begin(&writer, column.type);
        cqlring_put_int(&writer, 1, 4);
        cqlring_put_bytes(&writer, (cqlring_bytes){NULL, CQLRING_UNSET});
        cqlring_put_end(&writer);
        ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_TYPE);
    }
    cqlring_bytes unset = {NULL, CQLRING_UNSET}, values[4] = {flow_int(1), unset, unset, unset};
    flow_ok(ask_prepared(&flow, insert, values, 4, NULL, NULL, NULL));
    values[0] = unset;
    cqlring_error error;
    ck_assert_int_eq(ask_prepared(&flow, insert, values, 4, NULL, NULL, &error), CQLRING_SERVER); /* as a key */
    ck_assert_int_eq(error.server_code, 0x2200);
    cqlring_prepared_release(insert);
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, "SELECT k FROM ks.nested LIMIT ?", &unset, 1, NULL, &result, NULL)); /* as a limit: none */
    ck_assert_uint_eq(cqlring_result_row_count(result), 1);
    cqlring_result_release(result);
    flow_ok(ask_text(&flow, "INSERT INTO ks.t (k) VALUES (1) USING TTL ?", &unset, 1, NULL, NULL, NULL)); /* as a TTL: none */
    flow_close(&flow);
}
END_TEST

START_TEST(tk_10_a_null_or_unset_key_is_the_servers_error)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.protocol_version = _i;
    flow.node_options.nodes = 3;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    flow_cql(&flow, "CREATE TABLE ks.parts (a int, b text, v int, PRIMARY KEY ((a, b)))");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.parts (a, b, v) VALUES (?, ?, ?)");
    const cqlring_bytes bad[] = {{NULL, CQLRING_NULL}, {NULL, CQLRING_UNSET}};
    for (int i = 0; i < 4; i++) {
        cqlring_bytes values[3] = {flow_int(1), cqlring_text("b"), flow_int(2)};
        values[i / 2] = bad[i % 2];
        cqlring_error error;
        ck_assert_int_eq(ask_prepared(&flow, insert, values, 3, NULL, NULL, &error), CQLRING_SERVER);
        ck_assert_int_eq(error.server_code, 0x2200);
        cqlring_batch_child child = {.prepared = insert, .values = values, .value_count = 3};
        cqlring_batch batch = {.children = &child, .count = 1};
        cqlring_request request = {.session = flow.session, .batch = &batch};
        ck_assert_int_eq(cqlring_execute_sync(&request, NULL, &error), CQLRING_SERVER);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("result");
    TCase *tcase = tcase_create("result");
    tcase_add_loop_test(tcase, rows_come_in_bulk_from_anywhere_and_in_any_order, 4, 6);
    tcase_add_test(tcase, ty_31_questions_beyond_the_end_and_about_nothing_have_an_answer);
    tcase_add_loop_test(tcase, an_ordered_crowd_of_results_keeps_what_each_was_given, 4, 6);
    tcase_add_loop_test(tcase, a_detached_result_pins_only_itself_and_keeps_everything, 4, 6);
    tcase_add_loop_test(tcase, ml_07_a_large_answer_is_one_result_and_its_memory_comes_back, 0, 3);
    tcase_add_test(tcase, a_large_answer_that_comes_slowly_is_no_silence);
    tcase_add_test(tcase, an_answer_above_frame_size_max_ends_the_connection_with_both_sizes);
    tcase_add_loop_test(tcase, ty_32_a_cell_of_the_wrong_size_is_an_error_for_that_cell_only, 4, 6);
    tcase_add_loop_test(tcase, ty_32_a_row_cut_short_names_row_and_column_and_the_connection_lives, 4, 6);
    tcase_add_loop_test(tcase, a_result_that_cannot_be_read_is_an_error_of_that_request, 4, 6);
    tcase_add_loop_test(tcase, pd_04_rows_without_columns_are_counted_and_nothing_is_read_beyond, 4, 6);
    tcase_add_loop_test(tcase, nv_05_an_empty_value_in_the_middle_keeps_its_place, 4, 6);
    tcase_add_loop_test(tcase, null_deletes_and_unset_leaves_as_it_is, 4, 6);
    tcase_add_loop_test(tcase, nv_09_unset_is_refused_inside_and_the_servers_business_at_the_top, 4, 6);
    tcase_add_loop_test(tcase, tk_10_a_null_or_unset_key_is_the_servers_error, 4, 6);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
