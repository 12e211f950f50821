/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, sets, maps, tuples, UDTs, vectors and composites both ways, and cqlring_value_check. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/mem.h"
#include "serialize/value.h"

enum { ROOM = 2 << 20 };

static struct arena arena;
static uint8_t *room;
static cqlring_writer writer;

static void set_up(void)
{
    cqr_arena_init(&arena, 1 << 20);
    room = malloc(ROOM);
    cqlring_writer_init(&writer, room, ROOM);
}

static void tear_down(void)
{
    cqr_arena_fini(&arena);
    free(room);
}

static const cqlring_type *resolve(cqlring_bytes keyspace, cqlring_bytes name, void *context)
{
    (void)keyspace;
    (void)context;
    const cqlring_type *type = NULL;
    const char
        *udt = ((const char *)name.data)[0] == 'o'
                   ? "UserType(ks,6f,61:UserType(ks,75,61:Int32Type,62:UTF8Type),62:UTF8Type)"
                   : "UserType(ks,75,61:Int32Type,62:UTF8Type)";
    ck_assert_int_eq(cqr_type_from_class(&arena, cqlring_text(udt), &type), CQLRING_OK);
    return type;
}

/* CQL; u is a UDT {a int, b text}, o a UDT {a u, b text}. A leading '!' makes it a class. */
static const cqlring_type *type_of(const char *text)
{
    const cqlring_type *type = NULL;
    cqlring_status status = text[0] == '!'
                                ? cqr_type_from_class(&arena, cqlring_text(text + 1), &type)
                                : cqr_type_from_cql(&arena, cqlring_text(text), resolve, NULL,
                                                    &type);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", text, cqlring_status_name(status));
    return type;
}

static cqlring_bytes cell_of(const void *data, int32_t size)
{
    return (cqlring_bytes){.data = data, .size = size};
}

/* From a string literal, NUL bytes inside included. */
#define CELL(literal) cell_of(literal, (int32_t)sizeof literal - 1)

static const char *hex(cqlring_bytes cell)
{
    static char text[4000];
    ck_assert_int_lt(cell.size, 1900);
    text[0] = '\0';
    for (int32_t i = 0; i < cell.size; i++)
        sprintf(text + 2 * i, "%02x", ((const uint8_t *)cell.data)[i]);
    return cell.size < 0 ? "null" : text;
}

static cqlring_bytes take(void)
{
    cqlring_bytes cell;
    cqlring_status status = cqlring_writer_take(&writer, &cell, NULL);
    ck_assert_msg(status == CQLRING_OK, "%s", cqlring_status_name(status));
    return cell;
}

static const char *taken(void)
{
    cqlring_bytes cell;
    cqlring_status status = cqlring_writer_take(&writer, &cell, NULL);
    return status == CQLRING_OK ? hex(cell) : cqlring_status_name(status);
}

static void put_text(const char *text)
{
    cqlring_put_bytes(&writer, cqlring_text(text));
}

static void put_null(void)
{
    cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_NULL));
}

/* The walk over a cell as text: hex of each element, and how it ended. */
static const char *walk(const cqlring_type *type, cqlring_bytes cell)
{
    static char text[4000];
    size_t size = 0;
    uint8_t *exact = malloc(cell.size > 0 ? (size_t)cell.size
                                          : 1); /* so that a sanitizer sees a step beyond */
    if (cell.size > 0)
        memcpy(exact, cell.data, (size_t)cell.size);
    cell.data = exact;
    cqlring_cursor cursor;
    cqlring_status status = cqlring_cursor_init(&cursor, type, cell);
    while (status == CQLRING_OK) {
        cqlring_bytes element;
        status = cqlring_cursor_next(&cursor, &element, NULL);
        if (status == CQLRING_OK)
            size += (size_t)sprintf(text + size, "%s ", hex(element));
    }
    strcpy(text + size, cqlring_status_name(status));
    ck_assert_int_eq(cqlring_value_check(type, cell) == CQLRING_OK,
                     status == CQLRING_CLOSED || cell.size <= 0);
    free(exact);
    return text;
}

/* --- writing ---------------------------------------------------------------------------------- */

START_TEST(nested_values_are_counted_and_measured_by_the_writer)
{
    const cqlring_type *type = type_of("map<text, list<int>>");
    cqlring_put_begin(&writer, type);
    put_text("a");
    cqlring_put_begin(&writer, cqlring_type_child(type, 1));
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_int(&writer, 2, 4);
    cqlring_put_end(&writer);
    put_text("");
    cqlring_put_begin(&writer, cqlring_type_child(type, 1));
    cqlring_put_end(&writer);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00000002"
                              "0000000161"
                              "00000014"
                              "00000002"
                              "0000000400000001"
                              "0000000400000002"
                              "00000000"
                              "00000004"
                              "00000000");
}
END_TEST

START_TEST(nv_06_an_empty_collection_is_not_null)
{
    cqlring_put_begin(&writer, type_of("list<int>"));
    cqlring_put_end(&writer);
    cqlring_bytes empty = take();
    ck_assert_str_eq(hex(empty), "00000000");
    ck_assert_str_eq(walk(type_of("list<int>"), empty), "CLOSED");
    ck_assert_str_eq(walk(type_of("list<int>"), cell_of(NULL, CQLRING_NULL)), "INVALID");
    ck_assert_str_eq(walk(type_of("list<int>"), CELL("")), "INVALID");
    cqlring_put_begin(&writer, type_of("map<int, int>"));
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00000000");
    /* inside of another value it is kept apart from null as well */
    cqlring_put_begin(&writer, type_of("tuple<list<int>, list<int>>"));
    cqlring_put_begin(&writer, type_of("list<int>"));
    cqlring_put_end(&writer);
    put_null();
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "0000000400000000ffffffff");
}
END_TEST

START_TEST(nv_09_unset_inside_a_value_is_refused)
{
    static const char *const types[] = {
        "list<int>", "set<int>",       "map<int, int>",   "tuple<int, int>",
        "u",         "vector<int, 2>", "vector<text, 2>", "!CompositeType(Int32Type)"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        cqlring_put_begin(&writer, type_of(types[i]));
        cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_UNSET));
        cqlring_put_end(&writer);
        ck_assert_str_eq(taken(), "TYPE");
    }
    ck_assert_int_eq(cqlring_value_check(type_of("int"), cell_of(NULL, CQLRING_UNSET)),
                     CQLRING_TYPE);
    ck_assert_int_eq(cqlring_value_check(type_of("int"), cell_of(NULL, CQLRING_NULL)), CQLRING_OK);
}
END_TEST

START_TEST(null_elements_are_written_except_in_vectors)
{
    static const struct {
        const char *type, *hex;
    } cases[] = {{"list<int>", "00000001ffffffff"},
                 {"tuple<int, int>", "ffffffff"},
                 {"u", "ffffffff"},
                 {"vector<int, 1>", "TYPE"},
                 {"vector<text, 1>", "TYPE"},
                 {"!CompositeType(Int32Type)", "TYPE"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_put_begin(&writer, type_of(cases[i].type));
        put_null();
        cqlring_put_end(&writer);
        ck_assert_str_eq(taken(), cases[i].hex);
    }
}
END_TEST

START_TEST(elements_of_another_size_than_their_type_are_refused)
{
    static const char *const types[] = {"list<int>", "tuple<int>", "vector<int, 1>",
                                        "vector<vector<int, 1>, 1>"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        cqlring_put_begin(&writer, type_of(types[i]));
        cqlring_put_int(&writer, 1, 8);
        cqlring_put_end(&writer);
        ck_assert_str_eq(taken(), "TYPE");
    }
    /* the legacy empty value has no place in a vector of numbers, but a text may be empty there */
    cqlring_put_begin(&writer, type_of("list<int>"));
    put_text("");
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "0000000100000000");
    cqlring_put_begin(&writer, type_of("vector<int, 1>"));
    put_text("");
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_begin(&writer, type_of("vector<varint, 1>"));
    put_text("");
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_begin(&writer, type_of("vector<text, 1>"));
    put_text("");
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00");
}
END_TEST

START_TEST(wrong_nesting_is_refused)
{
    cqlring_put_begin(&writer, type_of("int"));
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_begin(&writer, type_of("list<int>"));
    ck_assert_str_eq(taken(), "INVALID"); /* left open */
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "INVALID");
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_begin(&writer, type_of("list<int>"));
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "INVALID"); /* behind another value */
    cqlring_put_begin(&writer, type_of("list<list<int>>"));
    cqlring_put_begin(&writer, type_of("set<int>"));
    cqlring_put_end(&writer);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_begin(&writer, type_of("vector<vector<int, 2>, 1>"));
    cqlring_put_begin(&writer, type_of("vector<int, 1>"));
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_end(&writer);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_begin(&writer, type_of("map<int, int>"));
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE"); /* a key without value */
    cqlring_put_begin(&writer, type_of("tuple<int>"));
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_int(&writer, 2, 4);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
}
END_TEST

START_TEST(nesting_deeper_than_the_limit_is_refused)
{
    /* No type is as deep, but a writer is not to be led beyond its frames by anything. */
    const cqlring_type *types[CQLRING_DEPTH_MAX];
    char text[CQLRING_DEPTH_MAX * 9 + 9 + CQLRING_DEPTH_MAX + 1] = "";
    for (int i = 0; i < CQLRING_DEPTH_MAX - 1; i++)
        strcat(text, "ListType(");
    strcat(text, "Int32Type");
    for (int i = 0; i < CQLRING_DEPTH_MAX - 1; i++)
        strcat(text, ")");
    ck_assert_int_eq(cqr_type_from_class(&arena, cqlring_text(text), &types[0]), CQLRING_OK);
    for (int i = 0; i < CQLRING_DEPTH_MAX - 1; i++) {
        cqlring_put_begin(&writer, types[i]);
        types[i + 1] = cqlring_type_child(types[i], 0);
    }
    cqlring_put_int(&writer, 7, 4);
    for (int i = 0; i < CQLRING_DEPTH_MAX - 1; i++)
        cqlring_put_end(&writer);
    cqlring_bytes cell = take();
    ck_assert_int_eq(cell.size, 4 + 8 * (CQLRING_DEPTH_MAX - 1));
    ck_assert_int_eq(cqlring_value_check(types[0], cell), CQLRING_OK);
    ((uint8_t *)(uintptr_t)cell.data)[cell.size - 5] = 3; /* the innermost length */
    ck_assert_int_eq(cqlring_value_check(types[0], cell), CQLRING_TYPE);
    const cqlring_type loop = {
        .kind = CQLRING_KIND_LIST, .depth = 1, .child_count = 1, .children = types};
    types[0] = &loop;
    for (int i = 0; i < 100; i++)
        cqlring_put_begin(&writer, &loop);
    for (int i = 0; i < 100; i++)
        cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
}
END_TEST

START_TEST(without_room_nested_values_tell_their_size_too)
{
    const cqlring_type *type = type_of("list<frozen<vector<text, 2>>>");
    char long_text[201];
    memset(long_text, 'x', 200);
    long_text[200] = '\0';
    uint64_t needed = 0;
    cqlring_status status = CQLRING_FULL;
    cqlring_bytes cell;
    for (uint32_t capacity = 0; status == CQLRING_FULL; capacity++) {
        cqlring_writer_init(&writer, room, capacity);
        cqlring_put_begin(&writer, type);
        cqlring_put_begin(&writer, cqlring_type_child(type, 0));
        put_text(long_text); /* a vint of two bytes */
        put_text("b");
        cqlring_put_end(&writer);
        cqlring_put_end(&writer);
        status = cqlring_writer_take(&writer, &cell, &needed);
        ck_assert_uint_eq(needed, 4 + 4 + 2 + 200 + 2);
        ck_assert_int_eq(status, capacity < needed ? CQLRING_FULL : CQLRING_OK);
    }
    ck_assert_int_eq(cqlring_value_check(type, cell), CQLRING_OK);
}
END_TEST

START_TEST(arrays_fill_lists_and_vectors_alike)
{
    static const int32_t numbers[] = {1, -2, 3};
    cqlring_put_begin(&writer, type_of("list<int>"));
    cqlring_put_array(&writer, numbers, 4, 3);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00000003"
                              "0000000400000001"
                              "00000004fffffffe"
                              "0000000400000003");
    cqlring_put_begin(&writer, type_of("vector<int, 3>"));
    cqlring_put_array(&writer, numbers, 4, 2);
    cqlring_put_array(&writer, numbers + 2, 4, 1);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00000001fffffffe00000003");
    cqlring_put_array(&writer, numbers, 4, 3);
    ck_assert_str_eq(taken(), "00000001fffffffe00000003");
    cqlring_put_begin(&writer, type_of("tuple<int, int, int>"));
    cqlring_put_array(&writer, numbers, 4, 2);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "0000000400000001"
                              "00000004fffffffe");
    cqlring_put_begin(&writer, type_of("map<int, int>"));
    cqlring_put_array(&writer, numbers, 4, 2);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "00000001"
                              "0000000400000001"
                              "00000004fffffffe");
    cqlring_put_begin(&writer, type_of("vector<date, 2>")); /* four bytes, but with lengths */
    cqlring_put_array(&writer, numbers, 4, 2);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "0400000001"
                              "04fffffffe");
    cqlring_put_begin(&writer, type_of("list<bigint>"));
    cqlring_put_array(&writer, numbers, 4, 2);
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_array(&writer, numbers, 2, 2);
    ck_assert_str_eq(taken(), "INVALID");
}
END_TEST

START_TEST(composites_have_short_lengths_and_a_byte_behind)
{
    const cqlring_type *type = type_of("!CompositeType(Int32Type,UTF8Type,ListType(Int32Type))");
    cqlring_put_begin(&writer, type);
    cqlring_put_int(&writer, 5, 4);
    put_text("ab");
    cqlring_put_begin(&writer, cqlring_type_child(type, 2));
    cqlring_put_end(&writer);
    cqlring_put_end(&writer);
    cqlring_bytes cell = take();
    ck_assert_str_eq(hex(cell), "00040000000500"
                                "0002616200"
                                "00040000000000");
    ck_assert_str_eq(walk(type, cell), "00000005 6162 00000000 CLOSED");
    ck_assert_str_eq(walk(type, cell_of(cell.data, 7)), "00000005 null null CLOSED");
    ck_assert_str_eq(walk(type, cell_of(cell.data, 6)), "TYPE");
    cqlring_put_begin(&writer, type_of("!CompositeType(UTF8Type)"));
    cqlring_put_bytes(&writer, cell_of(room + 1000, 65536));
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "TYPE");
}
END_TEST

/* --- field reports ---------------------------------------------------------------------------- */

START_TEST(ty_17_extra_fields_are_skipped_and_missing_ones_are_null)
{
    ck_assert_str_eq(walk(type_of("u"), CELL("\0\0\0\4\0\0\0\7\0\0\0\1a\0\0\0\1\xFF")),
                     "00000007 61 CLOSED");
    ck_assert_str_eq(walk(type_of("u"), CELL("\0\0\0\4\0\0\0\7")), "00000007 null CLOSED");
    ck_assert_str_eq(walk(type_of("u"), CELL("")), "null null CLOSED");
    ck_assert_str_eq(walk(type_of("u"), CELL("\0\0\0\4\0\0\0")), "TYPE");
    /* the older definition bound to the newer type: what it does not know is left out and reads as
       null */
    cqlring_put_begin(&writer, type_of("u"));
    cqlring_put_int(&writer, 7, 4);
    cqlring_put_end(&writer);
    ck_assert_str_eq(walk(type_of("u"), take()), "00000007 null CLOSED");
}
END_TEST

START_TEST(ty_19_long_udts_have_the_right_length)
{
    static char text[70001];
    memset(text, 'y', 70000);
    static const int32_t sizes[] = {300, 70000};
    for (size_t i = 0; i < 2; i++) {
        cqlring_bytes content = cell_of(text, sizes[i]);
        const cqlring_type *outer = type_of("o");
        cqlring_put_begin(&writer, outer);
        cqlring_put_begin(&writer, cqlring_type_child(outer, 0));
        cqlring_put_int(&writer, 7, 4);
        cqlring_put_bytes(&writer, content);
        cqlring_put_end(&writer);
        cqlring_put_bytes(&writer, content);
        cqlring_put_end(&writer);
        cqlring_bytes cell = take();
        ck_assert_int_eq(cell.size, 4 + (8 + 4 + sizes[i]) + 4 + sizes[i]);
        cqlring_cursor cursor;
        cqlring_bytes inner;
        cqlring_bytes element;
        ck_assert_int_eq(cqlring_value_check(outer, cell), CQLRING_OK);
        ck_assert_int_eq(cqlring_cursor_init(&cursor, outer, cell), CQLRING_OK);
        ck_assert_int_eq(cqlring_cursor_next(&cursor, &inner, NULL), CQLRING_OK);
        ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_OK);
        ck_assert_int_eq(element.size, sizes[i]);
        const cqlring_type *type = cqlring_type_child(outer, 0);
        ck_assert_int_eq(cqlring_cursor_init(&cursor, type, inner), CQLRING_OK);
        ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_OK);
        ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, &type), CQLRING_OK);
        ck_assert_int_eq(element.size, sizes[i]);
        ck_assert_int_eq(cqlring_type_kind(type), CQLRING_KIND_TEXT);
        /* in a vector the length is a vint of 2 or 3 bytes, found out last */
        const cqlring_type *vector = type_of("vector<u, 1>");
        cqlring_put_begin(&writer, vector);
        cqlring_put_begin(&writer, cqlring_type_child(vector, 0));
        cqlring_put_int(&writer, 7, 4);
        cqlring_put_bytes(&writer, content);
        cqlring_put_end(&writer);
        cqlring_put_end(&writer);
        cell = take();
        ck_assert_int_eq(cell.size, (i == 0 ? 2 : 3) + 8 + 4 + sizes[i]);
        ck_assert_int_eq(cqlring_value_check(vector, cell), CQLRING_OK);
    }
}
END_TEST

START_TEST(ty_21_vectors_have_exactly_their_dimension)
{
    static const float floats[] = {1, 2, 3, 4};
    const cqlring_type *type = type_of("vector<float, 3>");
    for (uint32_t count = 2; count <= 4; count++) {
        cqlring_put_begin(&writer, type);
        cqlring_put_array(&writer, floats, 4, count);
        cqlring_put_end(&writer);
        ck_assert_str_eq(taken(), count == 3 ? "3f8000004000000040400000" : "TYPE");
        cqlring_put_begin(&writer, type);
        for (uint32_t i = 0; i < count; i++)
            cqlring_put_float(&writer, floats[i]);
        cqlring_put_end(&writer);
        ck_assert_str_eq(taken(), count == 3 ? "3f8000004000000040400000" : "TYPE");
    }
    ck_assert_str_eq(walk(type, CELL("\x3F\x80\0\0\x40\0\0\0\x40\x40\0\0")),
                     "3f800000 40000000 40400000 CLOSED");
    ck_assert_str_eq(walk(type, CELL("\x3F\x80\0\0\x40\0\0\0\x40\x40\0\0\0")), "TYPE");
    ck_assert_str_eq(walk(type, CELL("\x3F\x80\0\0\x40\0\0\0")), "TYPE");
    ck_assert_str_eq(walk(type, CELL("")), "INVALID");
}
END_TEST

START_TEST(ty_21_nested_vectors_follow_their_elements)
{
    const cqlring_type *type = type_of("vector<vector<float, 2>, 2>");
    cqlring_put_begin(&writer, type);
    for (int i = 0; i < 2; i++) {
        cqlring_put_begin(&writer, cqlring_type_child(type, 0));
        cqlring_put_float(&writer, 1);
        cqlring_put_float(&writer, 2);
        cqlring_put_end(&writer);
    }
    cqlring_put_end(&writer);
    cqlring_bytes cell = take();
    ck_assert_str_eq(hex(cell), "3f800000400000003f80000040000000");
    ck_assert_str_eq(walk(type, cell), "3f80000040000000 3f80000040000000 CLOSED");
    type = type_of("vector<frozen<list<text>>, 2>");
    cqlring_put_begin(&writer, type);
    for (int i = 0; i < 2; i++) {
        cqlring_put_begin(&writer, cqlring_type_child(type, 0));
        put_text("a");
        cqlring_put_end(&writer);
    }
    cqlring_put_end(&writer);
    cell = take();
    ck_assert_str_eq(hex(cell), "09000000010000000161"
                                "09000000010000000161");
    ck_assert_str_eq(walk(type, cell), "000000010000000161 000000010000000161 CLOSED");
    for (int32_t cut = 1; cut < cell.size; cut++)
        ck_assert_ptr_nonnull(strstr(walk(type, cell_of(cell.data, cut)), "TYPE"));
}
END_TEST

START_TEST(ty_21_a_vector_of_16000_floats_comes_back)
{
    enum { COUNT = 16000 };
    float *floats = malloc(COUNT * sizeof *floats);
    for (int i = 0; i < COUNT; i++)
        floats[i] = (float)i / 7;
    const cqlring_type *type = type_of("vector<float, 16000>");
    cqlring_put_begin(&writer, type);
    cqlring_put_array(&writer, floats, 4, COUNT);
    cqlring_put_end(&writer);
    cqlring_bytes cell = take();
    ck_assert_int_eq(cell.size, 4 * COUNT);
    ck_assert_int_eq(cqlring_value_check(type, cell), CQLRING_OK);
    float *back = calloc(COUNT, sizeof *back);
    ck_assert_int_eq(cqlring_get_array(cell, 4, back, COUNT), CQLRING_OK);
    ck_assert_mem_eq(back, floats, COUNT * sizeof *back);
    free(floats);
    free(back);
}
END_TEST

START_TEST(ty_30_collections_of_70000_come_back)
{
    enum { COUNT = 70000 };
    const cqlring_type *types[] = {type_of("list<int>"), type_of("map<int, int>")};
    for (int m = 0; m < 2; m++) {
        cqlring_writer_init(&writer, room, ROOM);
        cqlring_put_begin(&writer, types[m]);
        for (int i = 0; i < COUNT * (m + 1); i++)
            cqlring_put_int(&writer, i, 4);
        cqlring_put_end(&writer);
        cqlring_bytes cell = take();
        ck_assert_int_eq(cqlring_value_check(types[m], cell), CQLRING_OK);
        cqlring_cursor cursor;
        ck_assert_int_eq(cqlring_cursor_init(&cursor, types[m], cell), CQLRING_OK);
        ck_assert_int_eq(cursor.left, COUNT * (m + 1));
        cqlring_bytes element;
        int wrong = 0; /* counted, not asserted one by one: Check's assertions are slow */
        for (int i = 0; i < COUNT * (m + 1); i++) {
            int64_t value = -1;
            wrong += cqlring_cursor_next(&cursor, &element, NULL) != CQLRING_OK ||
                     cqlring_get_int(element, 4, &value) != CQLRING_OK || value != i;
        }
        ck_assert_int_eq(wrong, 0);
        ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_CLOSED);
    }
}
END_TEST

/* --- reading ---------------------------------------------------------------------------------- */

START_TEST(counts_that_cannot_be_true_are_refused_before_anything_else)
{
    static const char *const types[] = {"list<int>", "set<text>", "map<int, int>"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\x7F\xFF\xFF\xFF")), "TYPE");
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\xFF\xFF\xFF\xFF")), "TYPE");
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\x80\0\0\0\0\0\0\0")), "TYPE");
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\0\0\0")), "TYPE");
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\0\0\0\0")), "CLOSED");
        ck_assert_str_eq(walk(type_of(types[i]), CELL("\0\0\0\0\0")),
                         "TYPE"); /* something left behind */
    }
    ck_assert_str_eq(walk(type_of("map<int, int>"), CELL("\0\0\0\1\0\0\0\4")), "TYPE");
}
END_TEST

START_TEST(null_elements_from_a_server_are_read)
{
    ck_assert_str_eq(walk(type_of("list<int>"), CELL("\0\0\0\2\xFF\xFF\xFF\xFF\0\0\0\4\0\0\0\1")),
                     "null 00000001 CLOSED");
    ck_assert_str_eq(
        walk(type_of("map<int, text>"), CELL("\0\0\0\1\0\0\0\4\0\0\0\1\xFF\xFF\xFF\xFE")),
        "00000001 null CLOSED");
}
END_TEST

START_TEST(a_walk_is_over_after_its_first_error)
{
    cqlring_cursor cursor;
    cqlring_bytes element;
    cqlring_bytes cell = CELL("\0\0\0\2\0\0\0\4\0\0\0\1\0\0\0\5\0\0\0\1");
    ck_assert_int_eq(cqlring_cursor_init(&cursor, type_of("list<int>"), cell), CQLRING_OK);
    ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_OK);
    ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_TYPE);
    ck_assert_int_eq(cqlring_cursor_next(&cursor, &element, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(cqlring_cursor_init(&cursor, type_of("int"), CELL("\0\0\0\1")), CQLRING_TYPE);
}
END_TEST

START_TEST(values_are_checked_all_the_way_down)
{
    static const struct {
        const char *type;
        const char *bytes;
        int32_t size;
        bool good;
    } cases[] = {{"list<ascii>", "\0\0\0\1\0\0\0\1\x80", 9, false},
                 {"list<text>", "\0\0\0\1\0\0\0\1\xFF", 9, false},
                 {"list<text>", "\0\0\0\1\0\0\0\2\xC3\xA9", 10, true},
                 {"map<text, frozen<list<int>>>",
                  "\0\0\0\1\0\0\0\1k\0\0\0\x0C\0\0\0\1\0\0\0\4\0\0\0\1", 25, true},
                 {"map<text, frozen<list<int>>>",
                  "\0\0\0\1\0\0\0\1k\0\0\0\x0C\0\0\0\1\0\0\0\3\0\0\0\1", 25, false},
                 {"tuple<time>", "\0\0\0\x08\0\0\x4E\x94\x91\x4F\0\0", 12, false},
                 {"time", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, false},
                 {"tuple<inet>", "\0\0\0\5\1\2\3\4\5", 9, false},
                 {"inet", "\1\2\3\4", 4, true},
                 {"list<frozen<tuple<int>>>", "\0\0\0\1\0\0\0\x08\0\0\0\4\0\0\0\1", 16, true},
                 {"vector<timeuuid, 1>", "\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0", 16, false},
                 {"vector<timeuuid, 1>", "\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0", 16, true},
                 {"list<frozen<vector<float, 2>>>", "\0\0\0\1\0\0\0\4\0\0\0\0", 12, false},
                 {"vector<decimal, 1>", "\4\0\0\0\0", 5, false},
                 {"duration", "\2\4", 2, false},
                 {"empty", "x", 1, false},
                 {"empty", "", 0, true},
                 {"'com.example.T'", "\xFF", 1, true},
                 {"boolean", "\2", 1, true},
                 {"counter", "\0\0\0\0", 4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_status status = cqlring_value_check(type_of(cases[i].type),
                                                    cell_of(cases[i].bytes, cases[i].size));
        ck_assert_msg((status == CQLRING_OK) == cases[i].good, "%s, case %zu", cases[i].type, i);
        ck_assert(status == CQLRING_OK || status == CQLRING_TYPE);
    }
}
END_TEST

START_TEST(cell_sizes_are_checked_by_type)
{
    ck_assert(cqr_cell_size_ok(type_of("int"), 4));
    ck_assert(!cqr_cell_size_ok(type_of("int"), 8));
    ck_assert(!cqr_cell_size_ok(type_of("bigint"), 4));
    ck_assert(cqr_cell_size_ok(type_of("int"), 0));
    ck_assert(cqr_cell_size_ok(type_of("int"), CQLRING_NULL));
    ck_assert(cqr_cell_size_ok(type_of("int"), CQLRING_UNSET));
    ck_assert(cqr_cell_size_ok(type_of("text"), 5));
    ck_assert(!cqr_cell_size_ok(type_of("vector<float, 3>"), 16));
    ck_assert(cqr_cell_size_ok(type_of("vector<float, 3>"), 12));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value_nested");
    TCase *test = tcase_create("value_nested");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_set_timeout(test, 60);
    tcase_add_test(test, nested_values_are_counted_and_measured_by_the_writer);
    tcase_add_test(test, nv_06_an_empty_collection_is_not_null);
    tcase_add_test(test, nv_09_unset_inside_a_value_is_refused);
    tcase_add_test(test, null_elements_are_written_except_in_vectors);
    tcase_add_test(test, elements_of_another_size_than_their_type_are_refused);
    tcase_add_test(test, wrong_nesting_is_refused);
    tcase_add_test(test, nesting_deeper_than_the_limit_is_refused);
    tcase_add_test(test, without_room_nested_values_tell_their_size_too);
    tcase_add_test(test, arrays_fill_lists_and_vectors_alike);
    tcase_add_test(test, composites_have_short_lengths_and_a_byte_behind);
    tcase_add_test(test, ty_17_extra_fields_are_skipped_and_missing_ones_are_null);
    tcase_add_test(test, ty_19_long_udts_have_the_right_length);
    tcase_add_test(test, ty_21_vectors_have_exactly_their_dimension);
    tcase_add_test(test, ty_21_nested_vectors_follow_their_elements);
    tcase_add_test(test, ty_21_a_vector_of_16000_floats_comes_back);
    tcase_add_test(test, ty_30_collections_of_70000_come_back);
    tcase_add_test(test, counts_that_cannot_be_true_are_refused_before_anything_else);
    tcase_add_test(test, null_elements_from_a_server_are_read);
    tcase_add_test(test, a_walk_is_over_after_its_first_error);
    tcase_add_test(test, values_are_checked_all_the_way_down);
    tcase_add_test(test, cell_sizes_are_checked_by_type);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
