/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/response.h"
#include "cql/rows.h"
#include "serialize/buf.h"

static const struct dialect v3 = {.version = PROTO_V3}, v4 = {.version = PROTO_V4},
                            v5 = {.version = PROTO_V5};
static const struct dialect v4_metadata = {.version = PROTO_V4, .extensions = EXT_METADATA_ID};

static struct arena arena;
static struct writer out;
static uint8_t room[1 << 20];
static uint8_t *body_copy;

static void setup(void)
{
    cqr_arena_init(&arena, 1 << 24);
    cqr_writer_init(&out, room, sizeof room);
}

static void teardown(void)
{
    cqr_arena_fini(&arena);
    free(body_copy);
    body_copy = NULL;
    ck_assert_int_eq(cqr_mem_live_count(), 0);
}

static cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

static void put_text(const char *string)
{
    cqr_put_string(&out, text(string));
}

/* The first size bytes of what was written, in memory of exactly that size; valid until the next
   call. */
static cqlring_bytes written(uint32_t size)
{
    ck_assert(!out.failed);
    free(body_copy);
    body_copy = malloc(size + (size == 0));
    ck_assert_ptr_nonnull(body_copy);
    memcpy(body_copy, room, size);
    return (cqlring_bytes){.data = body_copy, .size = (int32_t)size};
}

static void check_text(cqlring_bytes got, const char *wanted)
{
    ck_assert_int_eq(got.size, (int32_t)strlen(wanted));
    ck_assert_mem_eq(got.data, wanted, strlen(wanted));
}

/* --- rows ------------------------------------------------------------------------------------- */

static void begin_rows(uint32_t flags, uint32_t column_count)
{
    out.size = 0;
    cqr_put_u32(&out, flags);
    cqr_put_u32(&out, column_count);
}

START_TEST(ps_04_changed_and_absent_metadata_together_are_refused)
{
    const struct dialect *dialects[] = {&v3, &v4, &v5, &v4_metadata};
    for (int i = 0; i < 4; ++i) {
        begin_rows(ROWS_METADATA_CHANGED | ROWS_NO_METADATA, 1);
        put_text("new id");
        cqr_put_u32(&out, 0);
        struct rows_body rows;
        ck_assert_int_eq(cqr_decode_rows(dialects[i], written(out.size), &arena, &rows),
                         CQLRING_PROTOCOL);
    }
    /* Where the mechanism is not in force nobody can tell what the flag means. */
    begin_rows(ROWS_METADATA_CHANGED, 0);
    put_text("new id");
    cqr_put_u32(&out, 0);
    struct rows_body rows;
    ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_decode_rows(&v4_metadata, written(out.size), &arena, &rows), CQLRING_OK);
}
END_TEST

/* PD-04: column count 0 with rows: they are counted, nothing is read, and a count that could keep
   one busy for ever is refused. */
START_TEST(pd_04_rows_of_no_columns_are_as_many_as_said_within_bounds)
{
    static const struct {
        uint32_t flags, rows;
        cqlring_status status;
    } cases[] = {
        {0, 45, CQLRING_OK},
        {0, 0, CQLRING_OK},
        {ROWS_NO_METADATA, 45, CQLRING_OK},
        {0, 1 << 20, CQLRING_OK},
        {0, (1 << 20) + 1, CQLRING_PROTOCOL},
        {0, 0x7FFFFFFF, CQLRING_PROTOCOL},
        {0, 0x80000000, CQLRING_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        begin_rows(cases[i].flags, 0);
        cqr_put_u32(&out, cases[i].rows);
        struct rows_body rows;
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), cases[i].status);
        if (cases[i].status != CQLRING_OK)
            continue;
        struct rows_cursor cursor;
        cqr_rows_init(&cursor, rows.rows, rows.columns.count, rows.row_count);
        uint32_t seen = 0, count;
        do {
            ck_assert_int_eq(cqr_rows_next(&cursor, NULL, 1000, &count), CQLRING_OK);
            seen += count;
        } while (count > 0);
        ck_assert_uint_eq(seen, cases[i].rows);
    }
}
END_TEST

START_TEST(counts_beyond_the_bytes_are_refused_before_memory_is_taken)
{
    static const uint32_t counts[] = {3, 1000, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        struct rows_body rows;
        begin_rows(ROWS_GLOBAL_SPEC, counts[i]);
        put_text("ks");
        put_text("t");
        put_text("a");
        cqr_put_u16(&out, 9);
        cqr_put_u32(&out, 0);
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_PROTOCOL);
        begin_rows(0, counts[i]);
        cqr_put_u32(&out, 0);
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_PROTOCOL);
        begin_rows(ROWS_NO_METADATA, 2); /* rows instead of columns */
        cqr_put_u32(&out, counts[i]);
        cqr_put_u64(&out, 0);
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_PROTOCOL);
    }
    ck_assert_uint_lt(arena.total, 1000);
}
END_TEST

/* TY-28: an unknown type id spoils this one result, with a status that says so. */
START_TEST(ty_28_unknown_type_id_is_a_type_error_and_a_custom_class_is_kept)
{
    struct rows_body rows;
    begin_rows(ROWS_GLOBAL_SPEC, 1);
    put_text("ks");
    put_text("t");
    put_text("a");
    cqr_put_u16(&out, 0x00FF);
    cqr_put_u32(&out, 0);
    ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_TYPE);

    static const struct {
        const char *name;
        cqlring_kind kind;
    } classes[] = {
        {"org.apache.cassandra.db.marshal.LexicalUUIDType", CQLRING_KIND_CUSTOM},
        {"org.apache.cassandra.db.marshal.IntegerType", CQLRING_KIND_VARINT},
        {"org.apache.cassandra.db.marshal.DurationType", CQLRING_KIND_DURATION}, /* TY-08 */
        {"com.example.MadeUp", CQLRING_KIND_CUSTOM},
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; ++i) {
        begin_rows(ROWS_GLOBAL_SPEC, 1);
        put_text("ks");
        put_text("t");
        put_text("a");
        cqr_put_u16(&out, 0);
        put_text(classes[i].name);
        cqr_put_u32(&out, 0);
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_OK);
        ck_assert_int_eq(cqlring_type_kind(rows.columns.array[0].type), classes[i].kind);
    }
}
END_TEST

START_TEST(types_nest_as_deep_as_allowed_and_no_deeper)
{
    for (uint32_t depth = CQLRING_DEPTH_MAX - 2; depth <= CQLRING_DEPTH_MAX + 2; ++depth) {
        begin_rows(ROWS_GLOBAL_SPEC, 1);
        put_text("ks");
        put_text("t");
        put_text("a");
        for (uint32_t i = 1; i < depth; ++i)
            cqr_put_u16(&out, 0x20);
        cqr_put_u16(&out, 9);
        cqr_put_u32(&out, 0);
        struct rows_body rows;
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows),
                         depth <= CQLRING_DEPTH_MAX ? CQLRING_OK : CQLRING_TYPE);
    }
}
END_TEST

static void put_column(bool is_global, const char *keyspace, const char *table, const char *name,
                       uint16_t type)
{
    if (!is_global) {
        put_text(keyspace);
        put_text(table);
    }
    put_text(name);
    cqr_put_u16(&out, type);
}

START_TEST(names_of_columns_outlive_the_body)
{
    for (int is_global = 0; is_global < 2; ++is_global) {
        begin_rows(is_global ? ROWS_GLOBAL_SPEC : 0, 3);
        if (is_global) {
            put_text("ks");
            put_text("t");
        }
        put_column(is_global != 0, "ks", "t", "a", 9);
        put_column(is_global != 0, "ks", "t2", "", 13);
        put_column(is_global != 0, "ks2", "t2", "c", 2);
        cqr_put_u32(&out, 0);
        struct rows_body rows;
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_OK);
        memset(body_copy, 0xEE, out.size);
        const struct column *array = rows.columns.array;
        ck_assert_uint_eq(rows.columns.count, 3);
        check_text(array[0].keyspace, "ks");
        check_text(array[1].keyspace, "ks");
        check_text(array[2].keyspace, is_global ? "ks" : "ks2");
        check_text(array[0].table, "t");
        check_text(array[1].table, is_global ? "t" : "t2");
        check_text(array[0].name, "a");
        check_text(array[1].name, "");
        check_text(array[2].name, "c");
        ck_assert_ptr_eq(array[0].keyspace.data, array[1].keyspace.data); /* one copy serves both */
        ck_assert_int_eq(cqlring_type_kind(array[2].type), CQLRING_KIND_BIGINT);
    }
}
END_TEST

/* A page of two columns, described; how: bits that make it another description. */
static void put_page(int how)
{
    bool is_global = (how & 1) == 0;
    begin_rows((is_global ? ROWS_GLOBAL_SPEC : 0) | ((how & 2) != 0 ? ROWS_MORE_PAGES : 0), 2);
    if ((how & 2) != 0)
        cqr_put_bytes(&out, text("next"));
    if (is_global) {
        put_text("ks");
        put_text("t");
    }
    put_column(is_global, "ks", "t", "a", 9);
    put_column(is_global, "ks", "t", (how & 4) != 0 ? "c" : "b", 9);
    cqr_put_u32(&out, 1);
    cqr_put_u32(&out, 4);
    cqr_put_u32(&out, 17);
    cqr_put_u32(&out, 0xFFFFFFFF);
}

START_TEST(page_described_as_the_one_before_takes_no_memory)
{
    struct rows_body first, rows;
    put_page(0);
    ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &first), CQLRING_OK);
    uint8_t raw[256];
    ck_assert_int_lt(first.columns.raw.size, (int32_t)sizeof raw);
    memcpy(raw, first.columns.raw.data, (size_t)first.columns.raw.size);
    first.columns.raw.data = raw;
    size_t total = arena.total;
    for (int how = 0; how < 8; ++how) {
        put_page(how);
        ck_assert_int_eq(
            cqr_decode_rows_known(&v4, written(out.size), &first.columns, &arena, &rows),
            CQLRING_OK);
        bool is_known = (how & ~2) == 0; /* the paging state does not count */
        ck_assert((rows.columns.array == first.columns.array) == is_known);
        ck_assert((arena.total == total) == is_known);
        total = arena.total;
        check_text(rows.columns.array[1].name, (how & 4) != 0 ? "c" : "b");
        ck_assert_uint_eq(rows.row_count, 1);
        ck_assert_int_eq(rows.rows.size, 12);
        /* Cut anywhere, known or not: refused. */
        for (uint32_t size = 0; size < out.size - 4; ++size) {
            cqlring_status status = cqr_decode_rows_known(&v4, written(size), &first.columns,
                                                          &arena, &rows);
            ck_assert_int_eq(status, CQLRING_PROTOCOL);
        }
        total = arena.total;
    }
    begin_rows(ROWS_NO_METADATA, 2);
    cqr_put_u32(&out, 0);
    ck_assert_int_eq(cqr_decode_rows_known(&v4, written(out.size), &first.columns, &arena, &rows),
                     CQLRING_OK);
    ck_assert_ptr_null(rows.columns.array);
}
END_TEST

START_TEST(paging_state_of_null_means_no_further_page)
{
    for (int how = 0; how < 3; ++how) {
        begin_rows(ROWS_MORE_PAGES | ROWS_NO_METADATA | ROWS_GLOBAL_SPEC, 1);
        cqr_put_bytes(&out, how == 0   ? (cqlring_bytes){NULL, CQLRING_NULL}
                            : how == 1 ? text("")
                                       : text("next"));
        cqr_put_u32(&out, 0);
        struct rows_body rows;
        ck_assert_int_eq(cqr_decode_rows(&v4, written(out.size), &arena, &rows), CQLRING_OK);
        ck_assert((rows.columns.paging_state.data == NULL) == (how == 0));
        ck_assert_int_eq(rows.columns.paging_state.size, how == 2 ? 4 : 0);
        ck_assert_ptr_null(rows.columns.array);
        ck_assert_uint_eq(rows.columns.count, 1);
    }
}
END_TEST

/* --- prepared --------------------------------------------------------------------------------- */

static void put_prepared(const struct dialect *dialect, uint32_t bind_flags, uint32_t pk_count,
                         uint16_t pk_index)
{
    out.size = 0;
    put_text("0123456789abcdef");
    if (cqr_dialect_has_metadata_id(dialect))
        put_text("metadata");
    cqr_put_u32(&out, bind_flags | ROWS_GLOBAL_SPEC);
    cqr_put_u32(&out, 2);
    if (dialect->version >= PROTO_V4) {
        cqr_put_u32(&out, pk_count);
        for (uint32_t i = 0; i < pk_count && i < 100; ++i)
            cqr_put_u16(&out, pk_index);
    }
    put_text("ks");
    put_text("t");
    put_column(true, "", "", "a", 9);
    put_column(true, "", "", "b", 13);
    cqr_put_u32(&out, ROWS_NO_METADATA);
    cqr_put_u32(&out, 0);
}

START_TEST(prepared_is_read_as_the_dialect_lays_it_out)
{
    const struct dialect *dialects[] = {&v3, &v4, &v5, &v4_metadata};
    for (int i = 0; i < 4; ++i) {
        put_prepared(dialects[i], 0, 1, 1);
        struct prepared_body prepared;
        ck_assert_int_eq(cqr_decode_prepared(dialects[i], written(out.size), &arena, &prepared),
                         CQLRING_OK);
        check_text(prepared.id, "0123456789abcdef");
        if (i >= 2)
            check_text(prepared.result_metadata_id, "metadata");
        else
            ck_assert_ptr_null(prepared.result_metadata_id.data);
        ck_assert_uint_eq(prepared.pk_count, i == 0 ? 0 : 1);
        if (i > 0)
            ck_assert_uint_eq(prepared.pk_indexes[0], 1);
        ck_assert_uint_eq(prepared.bind.count, 2);
        ck_assert_uint_eq(prepared.result.count, 0);
        ck_assert(!prepared.is_lwt);
        for (uint32_t size = 0; size < out.size; ++size)
            ck_assert_int_eq(cqr_decode_prepared(dialects[i], written(size), &arena, &prepared),
                             CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(partition_key_index_beyond_the_bind_markers_is_refused)
{
    struct prepared_body prepared;
    put_prepared(&v4, 0, 1, 2);
    ck_assert_int_eq(cqr_decode_prepared(&v4, written(out.size), &arena, &prepared),
                     CQLRING_PROTOCOL);
    static const uint32_t counts[] = {1000, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        put_prepared(&v4, 0, counts[i], 0);
        ck_assert_int_eq(cqr_decode_prepared(&v4, written(out.size), &arena, &prepared),
                         CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(lwt_mark_counts_only_where_it_was_negotiated)
{
    const struct dialect marked = {
        .version = PROTO_V4, .extensions = EXT_LWT_MARK, .lwt_mask = 0x80000000};
    struct prepared_body prepared;
    for (int is_marked = 0; is_marked < 2; ++is_marked) {
        put_prepared(&v4, is_marked ? 0x80000000 : 0, 1, 0);
        ck_assert_int_eq(cqr_decode_prepared(&marked, written(out.size), &arena, &prepared),
                         CQLRING_OK);
        ck_assert(prepared.is_lwt == (is_marked != 0));
        ck_assert_int_eq(cqr_decode_prepared(&v4, written(out.size), &arena, &prepared),
                         CQLRING_OK);
        ck_assert(!prepared.is_lwt);
    }
}
END_TEST

START_TEST(every_failing_allocation_is_told_and_leaves_nothing_behind)
{
    put_prepared(&v4, 0, 1, 0);
    out.size -= 8; /* result metadata: a tuple of a list and a UDT */
    cqr_put_u32(&out, ROWS_GLOBAL_SPEC);
    cqr_put_u32(&out, 1);
    put_text("ks");
    put_text("t");
    put_column(true, "", "", "c", 0x31);
    cqr_put_u16(&out, 2);
    cqr_put_u16(&out, 0x20);
    cqr_put_u16(&out, 9);
    cqr_put_u16(&out, 0x30);
    put_text("ks");
    put_text("udt");
    cqr_put_u16(&out, 1);
    put_text("field");
    cqr_put_u16(&out, 13);
    cqlring_bytes body = written(out.size);
    cqr_arena_fini(&arena);
    struct prepared_body prepared;
    /* The arena takes memory in chunks: its ceiling makes each of the small allocations fail in
       turn. */
    bool is_done = false;
    for (size_t size_max = 0; !is_done; size_max += 8) {
        cqr_arena_init(&arena, size_max);
        cqlring_status status = cqr_decode_prepared(&v4, body, &arena, &prepared);
        is_done = status == CQLRING_OK;
        ck_assert(is_done || status == CQLRING_NO_MEMORY);
        cqr_arena_fini(&arena);
    }
    for (uint64_t n = 1, failed = 1; failed > 0; ++n) {
        cqr_arena_init(&arena, 1 << 20);
        cqr_mem_fail_at(n, 0);
        cqlring_status status = cqr_decode_prepared(&v4, body, &arena, &prepared);
        failed = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        ck_assert_int_eq(status, failed > 0 ? CQLRING_NO_MEMORY : CQLRING_OK);
        cqr_arena_fini(&arena);
        ck_assert_int_eq(cqr_mem_live_count(), 0);
    }
    setup();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("response_rows");
    TCase *tcase = tcase_create("response_rows");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ps_04_changed_and_absent_metadata_together_are_refused);
    tcase_add_test(tcase, pd_04_rows_of_no_columns_are_as_many_as_said_within_bounds);
    tcase_add_test(tcase, counts_beyond_the_bytes_are_refused_before_memory_is_taken);
    tcase_add_test(tcase, ty_28_unknown_type_id_is_a_type_error_and_a_custom_class_is_kept);
    tcase_add_test(tcase, types_nest_as_deep_as_allowed_and_no_deeper);
    tcase_add_test(tcase, names_of_columns_outlive_the_body);
    tcase_add_test(tcase, page_described_as_the_one_before_takes_no_memory);
    tcase_add_test(tcase, paging_state_of_null_means_no_further_page);
    tcase_add_test(tcase, prepared_is_read_as_the_dialect_lays_it_out);
    tcase_add_test(tcase, partition_key_index_beyond_the_bind_markers_is_refused);
    tcase_add_test(tcase, lwt_mark_counts_only_where_it_was_negotiated);
    tcase_add_test(tcase, every_failing_allocation_is_told_and_leaves_nothing_behind);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
