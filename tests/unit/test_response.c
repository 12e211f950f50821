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

/* --- errors ----------------------------------------------------------------------------------- */

static void begin_error(uint32_t code, const char *message)
{
    out.size = 0;
    cqr_put_u32(&out, code);
    put_text(message);
}

static void put_inetaddr(uint8_t size)
{
    cqr_put_u8(&out, size);
    for (uint8_t i = 0; i < size; ++i)
        cqr_put_u8(&out, i);
}

/* Decode what was written, then every shorter form of it: code and message stay, complete tells
   (MS-06). */
static struct error_body whole_and_cut(const struct dialect *dialect, uint32_t fields_at)
{
    struct error_body error;
    for (uint32_t size = 0; size < out.size; ++size) {
        cqlring_status status = cqr_decode_error(dialect, written(size), &error);
        if (size < fields_at) {
            ck_assert_int_eq(status, CQLRING_PROTOCOL);
            continue;
        }
        ck_assert_int_eq(status, CQLRING_OK);
        check_text(error.message, "why");
        ck_assert(!error.complete);
    }
    ck_assert_int_eq(cqr_decode_error(dialect, written(out.size), &error), CQLRING_OK);
    ck_assert_uint_eq((uint32_t)error.code, cqr_load_u32(room));
    check_text(error.message, "why");
    ck_assert(error.complete);
    return error;
}

enum { WHY_SIZE = 4 + 2 + 3 };

START_TEST(ms_06_fields_of_each_error_are_read_and_cut_ones_keep_code_and_message)
{
    begin_error(ERROR_UNAVAILABLE, "why");
    cqr_put_u16(&out, 6);
    cqr_put_u32(&out, 3);
    cqr_put_u32(&out, 1);
    struct error_body error = whole_and_cut(&v4, WHY_SIZE);
    ck_assert_uint_eq(error.consistency, 6);
    ck_assert_int_eq(error.required, 3);
    ck_assert_int_eq(error.alive, 1);

    begin_error(ERROR_ALREADY_EXISTS, "why");
    put_text("ks");
    put_text("t");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.keyspace, "ks");
    check_text(error.table, "t");

    begin_error(ERROR_FUNCTION_FAILURE, "why");
    put_text("ks");
    put_text("f");
    cqr_put_u16(&out, 2);
    put_text("int");
    put_text("text");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.function, "f");
    ck_assert_uint_eq(error.argument_count, 2);
    cqlring_bytes argument;
    ck_assert_int_eq(cqr_next_string(&error.arguments, &argument), CQLRING_OK);
    check_text(argument, "int");

    begin_error(ERROR_UNPREPARED, "why");
    put_text("0123456789abcdef");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.unprepared_id, "0123456789abcdef");

    begin_error(ERROR_READ_TIMEOUT, "why");
    cqr_put_u16(&out, 1);
    cqr_put_u32(&out, 2);
    cqr_put_u32(&out, 2);
    cqr_put_u8(&out, 7);
    error = whole_and_cut(&v4, WHY_SIZE);
    ck_assert_int_eq(error.received, 2);
    ck_assert_int_eq(error.required, 2);
    ck_assert_uint_eq(error.data_present, 7);
    ck_assert_int_eq(error.contentions, -1);

    begin_error(ERROR_CAS_WRITE_UNKNOWN, "why");
    cqr_put_u16(&out, 8);
    cqr_put_u32(&out, 1);
    cqr_put_u32(&out, 2);
    error = whole_and_cut(&v5, WHY_SIZE);
    ck_assert_uint_eq(error.consistency, 8);
    ck_assert_int_eq(error.received, 1);
}
END_TEST

START_TEST(errors_without_fields_are_complete_with_their_message)
{
    static const uint32_t codes[] = {ERROR_SERVER,
                                     ERROR_PROTOCOL,
                                     ERROR_CREDENTIALS,
                                     ERROR_OVERLOADED,
                                     ERROR_BOOTSTRAPPING,
                                     ERROR_TRUNCATE,
                                     ERROR_CDC_WRITE_FAILURE,
                                     ERROR_SYNTAX,
                                     ERROR_UNAUTHORIZED,
                                     ERROR_INVALID,
                                     ERROR_CONFIG};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
        begin_error(codes[i], "why");
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(&v5, written(out.size), &error), CQLRING_OK);
        ck_assert_uint_eq((uint32_t)error.code, codes[i]);
        check_text(error.message, "why");
        ck_assert(error.complete);
    }
}
END_TEST

/* RT-07: a code nobody knows, with bytes behind the message. */
START_TEST(rt_07_unknown_code_keeps_code_and_message)
{
    begin_error(0x4321, "what is this");
    cqr_put_u64(&out, 0x1122334455667788);
    struct error_body error;
    ck_assert_int_eq(cqr_decode_error(&v4, written(out.size), &error), CQLRING_OK);
    ck_assert_int_eq(error.code, 0x4321);
    check_text(error.message, "what is this");
    ck_assert(!error.complete);
}
END_TEST

/* RT-07: the rate limit's code is the negotiated one, and means nothing where none was. */
START_TEST(rt_07_rate_limit_error_has_the_negotiated_code)
{
    const struct dialect dialect = {
        .version = PROTO_V4, .extensions = EXT_RATE_LIMIT, .rate_limit_code = 0x4321};
    begin_error(0x4321, "why");
    cqr_put_u8(&out, 1);
    cqr_put_u8(&out, 1);
    struct error_body error = whole_and_cut(&dialect, WHY_SIZE);
    ck_assert_uint_eq(error.rate_limit_op, 1);
    ck_assert_uint_eq(error.rate_limit_by_coordinator, 1);
    ck_assert_int_eq(cqr_decode_error(&v4, written(out.size), &error), CQLRING_OK);
    ck_assert(!error.complete);
    ck_assert_uint_eq(error.rate_limit_op, 0);
}
END_TEST

/* RT-07: a count on v4, a map from address to reason on v5 and with the extension. */
START_TEST(rt_07_read_and_write_failures_have_a_count_or_a_map_as_the_dialect_says)
{
    static const struct dialect with_map = {.version = PROTO_V4, .extensions = EXT_FAILURE_MAP};
    const struct dialect *dialects[] = {&v4, &v5, &with_map};
    for (int i = 0; i < 3; ++i) {
        for (int is_write = 0; is_write < 2; ++is_write) {
            begin_error(is_write ? ERROR_WRITE_FAILURE : ERROR_READ_FAILURE, "why");
            cqr_put_u16(&out, 4);
            cqr_put_u32(&out, 1);
            cqr_put_u32(&out, 3);
            cqr_put_u32(&out, 2);
            if (i > 0) {
                put_inetaddr(4);
                cqr_put_u16(&out, 1);
                put_inetaddr(16);
                cqr_put_u16(&out, 0xF001);
            }
            if (is_write)
                put_text("SIMPLE");
            else
                cqr_put_u8(&out, 1);
            struct error_body error = whole_and_cut(dialects[i], WHY_SIZE);
            ck_assert_int_eq(error.failure_count, 2);
            ck_assert((error.reasons.data != NULL) == (i > 0));
            if (is_write)
                check_text(error.write_type, "SIMPLE");
            else
                ck_assert_uint_eq(error.data_present, 1);
            if (i == 0)
                continue;
            cqlring_bytes address;
            uint16_t reason;
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_OK);
            ck_assert_int_eq(address.size, 4);
            ck_assert_uint_eq(reason, 1);
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_OK);
            ck_assert_int_eq(address.size, 16);
            ck_assert_uint_eq(reason, 0xF001);
            ck_assert_int_eq(error.reasons.size, 0);
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_PROTOCOL);
        }
    }
}
END_TEST

START_TEST(failure_map_without_sense_costs_the_fields_alone)
{
    static const uint32_t counts[] = {0x7FFFFFFF, 0xFFFFFFFF, 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        begin_error(ERROR_READ_FAILURE, "why");
        cqr_put_u16(&out, 4);
        cqr_put_u32(&out, 1);
        cqr_put_u32(&out, 3);
        cqr_put_u32(&out, counts[i]);
        put_inetaddr(5); /* no address has five bytes */
        cqr_put_u32(&out, 0);
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(&v5, written(out.size), &error), CQLRING_OK);
        check_text(error.message, "why");
        ck_assert(!error.complete);
        ck_assert_ptr_null(error.reasons.data);
    }
}
END_TEST

/* Only from nodes that send them: the body may end behind the write type. */
START_TEST(contentions_are_read_only_where_they_are)
{
    for (int how = 0; how < 8; ++how) {
        bool is_v5 = (how & 1) != 0, is_cas = (how & 2) != 0, is_there = (how & 4) != 0;
        begin_error(ERROR_WRITE_TIMEOUT, "why");
        cqr_put_u16(&out, 8);
        cqr_put_u32(&out, 1);
        cqr_put_u32(&out, 2);
        put_text(is_cas ? "CAS" : "SIMPLE");
        if (is_there)
            cqr_put_u16(&out, 9);
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(is_v5 ? &v5 : &v4, written(out.size), &error),
                         CQLRING_OK);
        ck_assert(error.complete);
        check_text(error.write_type, is_cas ? "CAS" : "SIMPLE");
        ck_assert_int_eq(error.contentions, is_v5 && is_cas && is_there ? 9 : -1);
    }
}
END_TEST

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

/* --- prefixes, events, the rest --------------------------------------------------------------- */

/* MS-04: what stands before a message, on any opcode: null values, an empty key, a key twice, 65535
   entries. */
START_TEST(ms_04_prefixes_are_taken_off_before_any_message)
{
    for (uint8_t flags = 0; flags < 16; ++flags) {
        out.size = 0;
        if ((flags & FLAG_TRACING) != 0) {
            cqr_put_u64(&out, 0x0102030405060708);
            cqr_put_u64(&out, 0x090A0B0C0D0E0F10);
        }
        if ((flags & FLAG_WARNING) != 0) {
            cqr_put_u16(&out, 2);
            put_text("careful");
            put_text("");
        }
        if ((flags & FLAG_PAYLOAD) != 0) {
            cqr_put_u16(&out, 3);
            put_text("");
            cqr_put_bytes(&out, (cqlring_bytes){NULL, CQLRING_NULL});
            put_text("twice");
            cqr_put_bytes(&out, text("1"));
            put_text("twice");
            cqr_put_bytes(&out, text(""));
        }
        uint32_t prefix_size = out.size;
        cqr_put_u32(&out, RESULT_VOID);
        for (uint32_t size = 0; size <= out.size; ++size) {
            cqlring_bytes body = written(size);
            struct response_prefix prefix;
            cqlring_status status = cqr_decode_prefix(flags, &body, &prefix);
            ck_assert_int_eq(status, size < prefix_size ? CQLRING_PROTOCOL : CQLRING_OK);
            if (status != CQLRING_OK)
                continue;
            ck_assert_int_eq(body.size, (int32_t)(size - prefix_size));
            ck_assert(prefix.has_trace_id == ((flags & FLAG_TRACING) != 0));
            ck_assert_uint_eq(prefix.trace_id[15], prefix.has_trace_id ? 0x10 : 0);
            ck_assert_uint_eq(prefix.warning_count, (flags & FLAG_WARNING) != 0 ? 2 : 0);
            ck_assert_uint_eq(prefix.payload_count, (flags & FLAG_PAYLOAD) != 0 ? 3 : 0);
            cqlring_bytes key, value;
            static const int32_t value_sizes[] = {CQLRING_NULL, 1, 0};
            for (int i = 0; i < prefix.payload_count; ++i) {
                ck_assert_int_eq(cqr_next_pair(&prefix.payload, &key, &value), CQLRING_OK);
                check_text(key, i == 0 ? "" : "twice");
                ck_assert_int_eq(value.size, value_sizes[i]);
            }
            ck_assert_int_eq(cqr_next_pair(&prefix.payload, &key, &value), CQLRING_PROTOCOL);
        }
    }
    out.size = 0;
    cqr_put_u16(&out, UINT16_MAX);
    for (uint32_t i = 0; i < UINT16_MAX; ++i) {
        cqr_put_u16(&out, 0);
        cqr_put_u32(&out, 0xFFFFFFFF);
    }
    cqlring_bytes body = written(out.size);
    struct response_prefix prefix;
    ck_assert_int_eq(cqr_decode_prefix(FLAG_PAYLOAD, &body, &prefix), CQLRING_OK);
    ck_assert_uint_eq(prefix.payload_count, UINT16_MAX);
    ck_assert_int_eq(body.size, 0);
}
END_TEST

/* FR-10, SC-06: what we do not know is told and ignored, not an error. */
START_TEST(fr_10_event_of_an_unknown_type_is_its_type_alone)
{
    out.size = 0;
    put_text("WEATHER_CHANGE");
    cqr_put_u8(&out, 1);
    struct event_body event;
    ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event), CQLRING_OK);
    check_text(event.type, "WEATHER_CHANGE");
    ck_assert_uint_eq(event.address_size, 0);
    ck_assert_ptr_null(event.change.data);
}
END_TEST

START_TEST(sc_06_schema_change_of_an_unknown_target_is_no_error)
{
    out.size = 0;
    put_text("SCHEMA_CHANGE");
    put_text("DROPPED");
    put_text("TRIGGER");
    put_text("what follows is not ours to read");
    struct event_body event;
    ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event), CQLRING_OK);
    check_text(event.schema.target, "TRIGGER");
    ck_assert_ptr_null(event.schema.keyspace.data);

    out.size = 0;
    put_text("CREATED");
    put_text("FUNCTION");
    put_text("ks");
    put_text("f");
    cqr_put_u16(&out, 1);
    put_text("frozen<list<int>>");
    struct schema_change change;
    ck_assert_int_eq(cqr_decode_schema_change(written(out.size), &change), CQLRING_OK);
    ck_assert_uint_eq(change.argument_count, 1);
}
END_TEST

START_TEST(address_of_an_event_has_4_or_16_bytes)
{
    for (uint8_t size = 0; size < 20; ++size) {
        out.size = 0;
        put_text("STATUS_CHANGE");
        put_text("UP");
        put_inetaddr(size);
        cqr_put_u32(&out, 9042);
        struct event_body event;
        bool is_address = size == 4 || size == 16;
        ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event),
                         is_address ? CQLRING_OK : CQLRING_PROTOCOL);
        if (!is_address)
            continue;
        ck_assert_uint_eq(event.address_size, size);
        ck_assert_uint_eq(event.address[size - 1], size - 1u);
        ck_assert_int_eq(event.port, 9042);
        for (uint32_t cut = 0; cut < out.size; ++cut)
            ck_assert_int_eq(cqr_decode_event(&v4, written(cut), &event), CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(supported_is_a_map_of_lists_some_of_them_empty)
{
    cqr_put_u16(&out, 2);
    put_text("COMPRESSION");
    cqr_put_u16(&out, 2);
    put_text("lz4");
    put_text("snappy");
    put_text("EMPTY");
    cqr_put_u16(&out, 0);
    uint16_t keys, values;
    cqlring_bytes map, key, list, value;
    for (uint32_t size = 0; size < out.size; ++size)
        ck_assert_int_eq(cqr_decode_supported(written(size), &keys, &map), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_decode_supported(written(out.size), &keys, &map), CQLRING_OK);
    ck_assert_uint_eq(keys, 2);
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_OK);
    check_text(key, "COMPRESSION");
    ck_assert_uint_eq(values, 2);
    ck_assert_int_eq(cqr_next_string(&list, &value), CQLRING_OK);
    check_text(value, "lz4");
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_OK);
    check_text(key, "EMPTY");
    ck_assert_uint_eq(values, 0);
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_PROTOCOL);
}
END_TEST

START_TEST(small_messages_are_read_and_cut_ones_refused)
{
    cqlring_bytes got;
    put_text("a.b.PasswordAuthenticator");
    ck_assert_int_eq(cqr_decode_authenticate(written(out.size), &got), CQLRING_OK);
    check_text(got, "a.b.PasswordAuthenticator");
    ck_assert_int_eq(cqr_decode_authenticate(written(out.size - 1), &got), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_decode_keyspace(written(out.size), &got), CQLRING_OK);
    ck_assert_int_eq(cqr_decode_keyspace(written(1), &got), CQLRING_PROTOCOL);

    out.size = 0;
    cqr_put_bytes(&out, text("token"));
    ck_assert_int_eq(cqr_decode_auth_token(written(out.size), &got), CQLRING_OK);
    check_text(got, "token");
    ck_assert_int_eq(cqr_decode_auth_token(written(out.size - 1), &got), CQLRING_PROTOCOL);
    out.size = 0;
    cqr_put_u32(&out, 0xFFFFFFFF);
    ck_assert_int_eq(cqr_decode_auth_token(written(4), &got), CQLRING_OK);
    ck_assert_int_eq(got.size, CQLRING_NULL);

    out.size = 0;
    cqr_put_u32(&out, RESULT_SCHEMA);
    cqr_put_u8(&out, 9);
    uint32_t kind;
    cqlring_bytes body = written(out.size);
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_OK);
    ck_assert_uint_eq(kind, RESULT_SCHEMA);
    ck_assert_int_eq(body.size, 1);
    body = written(3);
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("response");
    TCase *tcase = tcase_create("response");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ms_06_fields_of_each_error_are_read_and_cut_ones_keep_code_and_message);
    tcase_add_test(tcase, errors_without_fields_are_complete_with_their_message);
    tcase_add_test(tcase, rt_07_unknown_code_keeps_code_and_message);
    tcase_add_test(tcase, rt_07_rate_limit_error_has_the_negotiated_code);
    tcase_add_test(tcase, rt_07_read_and_write_failures_have_a_count_or_a_map_as_the_dialect_says);
    tcase_add_test(tcase, failure_map_without_sense_costs_the_fields_alone);
    tcase_add_test(tcase, contentions_are_read_only_where_they_are);
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
    tcase_add_test(tcase, ms_04_prefixes_are_taken_off_before_any_message);
    tcase_add_test(tcase, fr_10_event_of_an_unknown_type_is_its_type_alone);
    tcase_add_test(tcase, sc_06_schema_change_of_an_unknown_target_is_no_error);
    tcase_add_test(tcase, address_of_an_event_has_4_or_16_bytes);
    tcase_add_test(tcase, supported_is_a_map_of_lists_some_of_them_empty);
    tcase_add_test(tcase, small_messages_are_read_and_cut_ones_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
