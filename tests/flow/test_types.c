/* SPDX-License-Identifier: Apache-2.0 */

/* Values of every CQL type, written with cqlring_put_*, through the driver into the node and back: byte for byte, prepared and as
   values of a text, on v4 and v5. What each shape's bytes have to be is in tests/unit and tests/vectors; here it is that nothing
   happens to them on the way, and that the types are described so that they can be read. */

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

enum { ROOM = 1 << 20 };
static uint8_t room[ROOM];

struct value {
    const char *type;
    void (*put)(cqlring_writer *writer, const cqlring_type *type);
};

/* ---- scalars ---- */

#define PUT(name, call)                                                                                                                  \
    static void name(cqlring_writer *writer, const cqlring_type *type)                                                                   \
    {                                                                                                                                    \
        (void)type;                                                                                                                      \
        call;                                                                                                                            \
    }

static const uint8_t every_byte[] = {0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, 0, 0x0A, 0x0D, 0x27, 0x22, 0x5C};
static const uint8_t uuid_4[16] = {0x55, 0x0e, 0x84, 0x00, 0xe2, 0x9b, 0x41, 0xd4, 0xa7, 0x16, 0x44, 0x66, 0x55, 0x44, 0x00, 0x00};
static const uint8_t uuid_1[16] = {0x8a, 0x5c, 0x1c, 0x30, 0x6a, 0x3e, 0x11, 0xee, 0x8c, 0x99, 0x02, 0x42, 0xac, 0x12, 0x00, 0x02};
static const uint8_t ip_6[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
static const uint8_t ip_4[4] = {10, 0, 0, 255};
static const uint8_t long_number[170] = {0x01, 0x23, 0x45, 0x67, 0x89, [100] = 0xAB, [169] = 0x01};

PUT(ascii, cqlring_put_bytes(writer, cqlring_text("ascii ~!'\"")))
PUT(text, cqlring_put_bytes(writer, cqlring_text("z\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80 \x01 end")))
PUT(nothing, cqlring_put_bytes(writer, cqlring_text("")))
PUT(blob, cqlring_put_bytes(writer, (cqlring_bytes){every_byte, sizeof every_byte}))
PUT(yes, cqlring_put_int(writer, 1, 1))
PUT(no, cqlring_put_int(writer, 0, 1))
PUT(tiny_min, cqlring_put_int(writer, INT8_MIN, 1))
PUT(tiny_max, cqlring_put_int(writer, INT8_MAX, 1))
PUT(small_min, cqlring_put_int(writer, INT16_MIN, 2))
PUT(small_max, cqlring_put_int(writer, INT16_MAX, 2))
PUT(int_min, cqlring_put_int(writer, INT32_MIN, 4))
PUT(int_max, cqlring_put_int(writer, INT32_MAX, 4))
PUT(big_min, cqlring_put_int(writer, INT64_MIN, 8))
PUT(big_max, cqlring_put_int(writer, INT64_MAX, 8))
PUT(zero, cqlring_put_int(writer, 0, 8))
PUT(past_2038, cqlring_put_int(writer, INT64_C(2147483648001), 8))
PUT(varint_zero, cqlring_put_int(writer, 0, 0))
PUT(varint_minus, cqlring_put_int(writer, -129, 0))
PUT(varint_long, cqlring_put_varint(writer, (cqlring_bytes){long_number, sizeof long_number}))
PUT(decimal_tenth, cqlring_put_decimal(writer, 1, (cqlring_bytes){"\x01", 1}))
PUT(decimal_up, cqlring_put_decimal(writer, -3, (cqlring_bytes){"\xFF", 1}))
PUT(decimal_long, cqlring_put_decimal(writer, 400, (cqlring_bytes){long_number, sizeof long_number})) /* TY-30 */
PUT(float_nan, cqlring_put_float(writer, NAN))
PUT(float_minus_zero, cqlring_put_float(writer, -0.0f))
PUT(float_least, cqlring_put_float(writer, 1e-45f))
PUT(float_tenth, cqlring_put_float(writer, 0.1f))
PUT(float_endless, cqlring_put_float(writer, -INFINITY))
PUT(double_nan, cqlring_put_double(writer, (double)NAN))
PUT(double_minus_zero, cqlring_put_double(writer, -0.0))
PUT(double_least, cqlring_put_double(writer, DBL_TRUE_MIN))
PUT(double_tenth, cqlring_put_double(writer, 0.1))
PUT(double_endless, cqlring_put_double(writer, (double)INFINITY))
PUT(uuid, cqlring_put_bytes(writer, (cqlring_bytes){uuid_4, 16}))
PUT(timeuuid, cqlring_put_bytes(writer, (cqlring_bytes){uuid_1, 16}))
PUT(inet_4, cqlring_put_bytes(writer, (cqlring_bytes){ip_4, 4}))
PUT(inet_6, cqlring_put_bytes(writer, (cqlring_bytes){ip_6, 16}))
PUT(date_first, cqlring_put_int(writer, 0, 4))
PUT(date_last, cqlring_put_int(writer, -1, 4))
PUT(date_epoch, cqlring_put_int(writer, INT32_MIN, 4))
PUT(time_first, cqlring_put_int(writer, 0, 8))
PUT(time_last, cqlring_put_int(writer, INT64_C(86399999999999), 8))
PUT(duration, cqlring_put_duration(writer, 1, 2, INT64_C(1) << 33))
PUT(duration_minus, cqlring_put_duration(writer, -1, -2, -3))
PUT(duration_min, cqlring_put_duration(writer, INT32_MIN, INT32_MIN, INT64_MIN))
PUT(duration_max, cqlring_put_duration(writer, INT32_MAX, INT32_MAX, INT64_MAX))
PUT(null, cqlring_put_bytes(writer, (cqlring_bytes){NULL, CQLRING_NULL}))

static const struct value scalars[] = {
    {"ascii", ascii}, {"ascii", nothing}, {"text", text}, {"text", nothing}, {"varchar", text}, {"blob", blob}, {"blob", nothing},
    {"boolean", yes}, {"boolean", no}, {"tinyint", tiny_min}, {"tinyint", tiny_max}, {"smallint", small_min}, {"smallint", small_max},
    {"int", int_min}, {"int", int_max}, {"bigint", big_min}, {"bigint", big_max}, {"bigint", zero},
    {"timestamp", big_min}, {"timestamp", zero}, {"timestamp", past_2038},
    {"varint", varint_zero}, {"varint", varint_minus}, {"varint", varint_long}, {"decimal", decimal_tenth}, {"decimal", decimal_up}, {"decimal", decimal_long},
    {"float", float_nan}, {"float", float_minus_zero}, {"float", float_least}, {"float", float_tenth}, {"float", float_endless},
    {"double", double_nan}, {"double", double_minus_zero}, {"double", double_least}, {"double", double_tenth}, {"double", double_endless},
    {"uuid", uuid}, {"timeuuid", timeuuid}, {"inet", inet_4}, {"inet", inet_6},
    {"date", date_first}, {"date", date_last}, {"date", date_epoch}, {"time", time_first}, {"time", time_last},
    {"duration", duration}, {"duration", duration_minus}, {"duration", duration_min}, {"duration", duration_max},
    {"int", null}, {"text", null}, {"uuid", null},
};

/* ---- nested ---- */

static void ints(cqlring_writer *writer, const cqlring_type *type)
{
    const int32_t values[] = {1, -1, 0, INT32_MAX, 1}; /* the order of a list is kept, what is twice too */
    cqlring_put_begin(writer, type);
    cqlring_put_array(writer, values, 4, 5);
    cqlring_put_end(writer);
}

static void many_ints(cqlring_writer *writer, const cqlring_type *type) /* TY-30 */
{
    cqlring_put_begin(writer, type);
    for (int32_t i = 0; i < 70000; i++)
        cqlring_put_int(writer, i * 7 - 1000, 4);
    cqlring_put_end(writer);
}

static void texts_sorted(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text(""));
    cqlring_put_bytes(writer, cqlring_text("a"));
    cqlring_put_bytes(writer, cqlring_text("ab"));
    cqlring_put_bytes(writer, cqlring_text("b"));
    cqlring_put_end(writer);
}

static void lists_by_text(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text("empty"));
    cqlring_put_begin(writer, cqlring_type_child(type, 1));
    cqlring_put_end(writer);
    cqlring_put_bytes(writer, cqlring_text("full"));
    ints(writer, cqlring_type_child(type, 1));
    cqlring_put_end(writer);
}

static void texts_by_int(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    for (int i = -3; i < 4; i++) {
        cqlring_put_int(writer, i, 4);
        cqlring_put_bytes(writer, cqlring_text(i % 2 == 0 ? "even" : "odd"));
    }
    cqlring_put_end(writer);
}

static void set_of_maps(cqlring_writer *writer, const cqlring_type *type) /* TY-24 */
{
    cqlring_put_begin(writer, type);
    for (int i = 1; i < 3; i++) {
        cqlring_put_begin(writer, cqlring_type_child(type, 0));
        cqlring_put_bytes(writer, cqlring_text("key"));
        cqlring_put_int(writer, i, 4);
        cqlring_put_end(writer);
    }
    cqlring_put_end(writer);
}

static void empty_collection(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_end(writer);
}

static void tuple(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_int(writer, 42, 4);
    cqlring_put_bytes(writer, (cqlring_bytes){NULL, CQLRING_NULL});
    ints(writer, cqlring_type_child(type, 2));
    cqlring_put_end(writer);
}

static void address(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text("M\xC3\xBChlenweg 1"));
    cqlring_put_int(writer, 12345, 4);
    texts_sorted(writer, cqlring_type_child(type, 2));
    cqlring_put_end(writer);
}

static void person(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text("name"));
    address(writer, cqlring_type_child(type, 1));
    cqlring_put_begin(writer, cqlring_type_child(type, 2));
    cqlring_put_int(writer, 1, 4);
    address(writer, cqlring_type_child(cqlring_type_child(type, 2), 1));
    cqlring_put_end(writer);
    cqlring_put_end(writer);
}

static void long_address(cqlring_writer *writer, const cqlring_type *type) /* TY-19: longer than a byte, and than a short, can count */
{
    static char street[70001];
    memset(street, 's', sizeof street - 1);
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text(street));
    cqlring_put_bytes(writer, (cqlring_bytes){NULL, CQLRING_NULL});
    cqlring_put_bytes(writer, (cqlring_bytes){NULL, CQLRING_NULL});
    cqlring_put_end(writer);
}

static void floats_3(cqlring_writer *writer, const cqlring_type *type)
{
    const float values[] = {0.1f, -0.0f, NAN};
    (void)type;
    cqlring_put_array(writer, values, 4, 3);
}

static void floats_16000(cqlring_writer *writer, const cqlring_type *type)
{
    static float values[16000];
    for (int i = 0; i < 16000; i++)
        values[i] = (float)i / 7;
    (void)type;
    cqlring_put_array(writer, values, 4, 16000);
}

static void two_by_two(cqlring_writer *writer, const cqlring_type *type)
{
    const float values[2][2] = {{1, 2}, {3, 4}};
    cqlring_put_begin(writer, type);
    for (int i = 0; i < 2; i++) {
        cqlring_put_begin(writer, cqlring_type_child(type, 0));
        cqlring_put_array(writer, values[i], 4, 2);
        cqlring_put_end(writer);
    }
    cqlring_put_end(writer);
}

static void vector_of_texts(cqlring_writer *writer, const cqlring_type *type)
{
    static char text_200[201];
    memset(text_200, 't', sizeof text_200 - 1);
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text("short"));
    cqlring_put_bytes(writer, cqlring_text(text_200)); /* a length of two bytes */
    cqlring_put_end(writer);
}

static void vector_of_lists(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    for (int i = 0; i < 2; i++)
        texts_sorted(writer, cqlring_type_child(type, 0));
    cqlring_put_end(writer);
}

static void durations(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_duration(writer, 1, 2, 3);
    cqlring_put_duration(writer, -1, 0, -3);
    cqlring_put_end(writer);
}

static void durations_by_text(cqlring_writer *writer, const cqlring_type *type)
{
    cqlring_put_begin(writer, type);
    cqlring_put_bytes(writer, cqlring_text("a"));
    cqlring_put_duration(writer, 1, 2, 3);
    cqlring_put_end(writer);
}

static const struct value nested[] = {
    {"list<int>", ints}, {"frozen<list<int>>", ints}, {"list<int>", many_ints}, {"frozen<list<int>>", many_ints},
    {"set<text>", texts_sorted}, {"frozen<set<text>>", texts_sorted}, {"map<int, text>", texts_by_int}, {"frozen<map<int, text>>", texts_by_int},
    {"map<text, frozen<list<int>>>", lists_by_text}, {"frozen<map<text, list<int>>>", lists_by_text},
    {"set<frozen<map<text, int>>>", set_of_maps},
    {"frozen<list<int>>", empty_collection}, {"frozen<map<int, text>>", empty_collection}, /* NV-06: frozen ones keep their emptiness */
    {"tuple<int, text, frozen<list<int>>>", tuple}, {"frozen<address>", address}, {"address", address}, {"frozen<person>", person},
    {"frozen<address>", long_address},
    {"vector<float, 3>", floats_3}, {"vector<float, 16000>", floats_16000}, {"vector<vector<float, 2>, 2>", two_by_two},
    {"vector<text, 2>", vector_of_texts}, {"vector<frozen<list<text>>, 2>", vector_of_lists},
    {"list<duration>", durations}, {"map<text, duration>", durations_by_text}, /* TY-08 */
};

/* ---- there and back ---- */

static void up(struct flow *flow, int version)
{
    flow_init(flow);
    flow->options.protocol_version = version;
    flow_start(flow);
    flow_open(flow);
    flow_cql(flow, "CREATE TYPE ks.address (street text, zip int, names frozen<set<text>>)");
    flow_cql(flow, "CREATE TYPE ks.person (name text, home frozen<address>, others frozen<map<int, frozen<address>>>)");
}

static void is_same(cqlring_bytes sent, cqlring_bytes got, const char *type)
{
    ck_assert_msg(sent.size == got.size, "%s: %d bytes were sent, %d came back", type, sent.size, got.size);
    if (sent.size > 0)
        ck_assert_msg(memcmp(sent.data, got.data, (size_t)sent.size) == 0, "%s: other bytes came back", type);
}

static void there_and_back(struct flow *flow, const struct value *value)
{
    char cql[200];
    flow_cql(flow, "DROP TABLE IF EXISTS ks.one");
    snprintf(cql, sizeof cql, "CREATE TABLE ks.one (k int PRIMARY KEY, v %s)", value->type);
    flow_cql(flow, cql);
    static const char insert_text[] = "INSERT INTO ks.one (k, v) VALUES (?, ?)";
    cqlring_prepared *insert = flow_prepare(flow, insert_text), *select = flow_prepare(flow, "SELECT v FROM ks.one WHERE k = ?");
    cqlring_column column;
    ck_assert(cqlring_prepared_bind_column(insert, 1, &column));
    cqlring_writer writer;
    cqlring_bytes cell;
    cqlring_writer_init(&writer, room, ROOM);
    value->put(&writer, column.type);
    cqlring_status status = cqlring_writer_take(&writer, &cell, NULL);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", value->type, cqlring_status_name(status));
    status = cqlring_value_check(column.type, cell);
    ck_assert_msg(status == CQLRING_OK, "%s: not well formed", value->type);
    for (int way = 0; way < 2; way++) {
        cqlring_bytes values[2] = {flow_int(way), cell};
        cqlring_error error = {0};
        status = way == 0 ? ask_prepared(flow, insert, values, 2, NULL, NULL, &error) : ask_text(flow, insert_text, values, 2, NULL, NULL, &error);
        ck_assert_msg(status == CQLRING_OK, "%s: %s", value->type, error.message);
        cqlring_result *result = NULL;
        flow_ok(ask_prepared(flow, select, values, 1, NULL, &result, NULL));
        is_same(cell, ask_cell(result, 0, 0), value->type);
        cqlring_column back;
        ck_assert(cqlring_result_column(result, 0, &back));
        ck_assert_int_eq(cqlring_type_kind(back.type), cqlring_type_kind(column.type));
        flow_ok(cqlring_value_check(back.type, ask_cell(result, 0, 0)));
        cqlring_result_release(result);
    }
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
}

START_TEST(scalars_of_every_type_come_back_byte_for_byte)
{
    struct flow flow;
    up(&flow, _i);
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        there_and_back(&flow, &scalars[i]);
    flow_close(&flow);
}
END_TEST

START_TEST(collections_tuples_udts_and_vectors_come_back_byte_for_byte)
{
    struct flow flow;
    up(&flow, _i);
    for (size_t i = 0; i < sizeof nested / sizeof nested[0]; i++)
        there_and_back(&flow, &nested[i]);
    flow_close(&flow);
}
END_TEST

START_TEST(all_types_side_by_side_in_one_row)
{
    struct flow flow;
    up(&flow, _i);
    const struct value columns[] = {{"ascii", ascii}, {"bigint", big_min}, {"blob", blob}, {"boolean", yes}, {"decimal", decimal_tenth}, {"double", double_tenth},
                                    {"float", float_tenth}, {"int", int_min}, {"timestamp", past_2038}, {"uuid", uuid}, {"text", text}, {"varint", varint_long},
                                    {"timeuuid", timeuuid}, {"inet", inet_6}, {"date", date_last}, {"time", time_last}, {"smallint", small_min}, {"tinyint", tiny_min},
                                    {"duration", duration}, {"list<int>", ints}, {"map<int, text>", texts_by_int}, {"set<text>", texts_sorted}, {"frozen<person>", person},
                                    {"tuple<int, text, frozen<list<int>>>", tuple}, {"vector<float, 3>", floats_3}, {"vector<text, 2>", vector_of_texts}};
    enum { COUNT = sizeof columns / sizeof columns[0] };
    char create[2000] = "CREATE TABLE ks.all_of_them (k int PRIMARY KEY", insert[1000] = "INSERT INTO ks.all_of_them (k", marks[200] = "?", select[1000] = "SELECT ";
    for (int i = 0; i < COUNT; i++) {
        size_t size = strlen(create);
        snprintf(create + size, sizeof create - size, ", c%d %s", i, columns[i].type);
        size = strlen(insert);
        snprintf(insert + size, sizeof insert - size, ", c%d", i);
        size = strlen(select);
        snprintf(select + size, sizeof select - size, "%sc%d", i == 0 ? "" : ", ", i);
        strcat(marks, ", ?");
    }
    strcat(create, ")");
    strcat(insert, ") VALUES (");
    strcat(insert, marks);
    strcat(insert, ")");
    strcat(select, " FROM ks.all_of_them WHERE k = 1");
    flow_cql(&flow, create);
    cqlring_prepared *statement = flow_prepare(&flow, insert), *query = flow_prepare(&flow, select);
    cqlring_writer writer;
    cqlring_bytes values[COUNT + 1] = {flow_int(1)};
    cqlring_writer_init(&writer, room, ROOM);
    for (uint32_t i = 0; i < COUNT; i++) {
        cqlring_column column;
        ck_assert(cqlring_prepared_bind_column(statement, i + 1, &column));
        columns[i].put(&writer, column.type);
        flow_ok(cqlring_writer_take(&writer, &values[i + 1], NULL));
    }
    flow_ok(ask_prepared(&flow, statement, values, COUNT + 1, NULL, NULL, NULL));
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, query, NULL, 0, NULL, &result, NULL));
    ck_assert_uint_eq(cqlring_result_column_count(result), COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        is_same(values[i + 1], ask_cell(result, 0, i), columns[i].type);
    cqlring_result_release(result);
    cqlring_prepared_release(statement);
    cqlring_prepared_release(query);
    flow_close(&flow);
}
END_TEST

/* ---- read ---- */

START_TEST(what_was_nested_is_found_again_by_a_cursor)
{
    struct flow flow;
    up(&flow, _i);
    there_and_back(&flow, &(struct value){"frozen<person>", person});
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "SELECT v FROM ks.one WHERE k = 0", &result, NULL));
    cqlring_column column;
    ck_assert(cqlring_result_column(result, 0, &column));
    ck_assert_int_eq(cqlring_type_kind(column.type), CQLRING_KIND_UDT);
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(column.type, &about);
    ck_assert(ask_is(about.keyspace, "ks") && ask_is(about.name, "person"));
    ck_assert(ask_is(cqlring_type_field_name(column.type, 1), "home"));
    cqlring_cursor fields, parts;
    cqlring_bytes element;
    const cqlring_type *type;
    flow_ok(cqlring_cursor_init(&fields, column.type, ask_cell(result, 0, 0)));
    flow_ok(cqlring_cursor_next(&fields, &element, &type));
    ck_assert(ask_is(element, "name"));
    flow_ok(cqlring_cursor_next(&fields, &element, &type));
    flow_ok(cqlring_cursor_init(&parts, type, element));
    flow_ok(cqlring_cursor_next(&parts, &element, &type));
    ck_assert(ask_is(element, "M\xC3\xBChlenweg 1"));
    flow_ok(cqlring_cursor_next(&parts, &element, &type));
    int64_t zip = 0;
    flow_ok(cqlring_get_int(element, 4, &zip));
    ck_assert_int_eq(zip, 12345);
    flow_ok(cqlring_cursor_next(&fields, &element, &type));
    ck_assert_int_eq(cqlring_type_kind(type), CQLRING_KIND_MAP);
    ck_assert_int_eq(cqlring_cursor_next(&fields, &element, &type), CQLRING_CLOSED);
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

START_TEST(ty_17_a_udt_that_grew_is_read_and_written_by_old_and_new)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "CREATE TYPE ks.grows (a int, b int)");
    flow_cql(&flow, "CREATE TABLE ks.holds (k int PRIMARY KEY, u frozen<grows>)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.holds (k, u) VALUES (?, ?)"), *select = flow_prepare(&flow, "SELECT u FROM ks.holds WHERE k = ?");
    cqlring_column column;
    uint8_t old_room[64];
    cqlring_writer writer;
    cqlring_bytes values[2] = {flow_int(1)};
    ck_assert(cqlring_prepared_bind_column(insert, 1, &column));
    cqlring_writer_init(&writer, old_room, sizeof old_room);
    cqlring_put_begin(&writer, column.type);
    cqlring_put_int(&writer, 10, 4);
    cqlring_put_int(&writer, 20, 4);
    cqlring_put_end(&writer);
    flow_ok(cqlring_writer_take(&writer, &values[1], NULL));
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    flow_cql(&flow, "ALTER TYPE ks.grows ADD c text");
    /* the old value by the new type: the field it lacks is null */
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, select, values, 1, NULL, &result, NULL));
    ck_assert(cqlring_result_column(result, 0, &column));
    ck_assert_uint_eq(cqlring_type_child_count(column.type), 3);
    cqlring_cursor cursor;
    cqlring_bytes element;
    flow_ok(cqlring_cursor_init(&cursor, column.type, ask_cell(result, 0, 0)));
    for (int i = 0; i < 3; i++) {
        flow_ok(cqlring_cursor_next(&cursor, &element, NULL));
        ck_assert_int_eq(element.size, i < 2 ? 4 : CQLRING_NULL);
    }
    cqlring_result_release(result);
    /* a value made for the old type, with the handle made before: taken with a null, or refused in words */
    cqlring_error error = {0};
    cqlring_status status = ask_prepared(&flow, insert, values, 2, NULL, NULL, &error);
    ck_assert_msg(status == CQLRING_OK || (status == CQLRING_TYPE && strstr(error.message, "\"u\"") != NULL), "%s: %s", cqlring_status_name(status), error.message);
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, &error)); /* by now it is known: shorter values are fine */
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(nv_06_a_plain_collection_that_is_empty_is_null)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "CREATE TABLE ks.lists (k int PRIMARY KEY, l list<int>)");
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.lists (k, l) VALUES (?, ?)");
    cqlring_bytes values[2] = {flow_int(1), flow_int(0)}; /* a count of 0 is the whole payload */
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "SELECT l FROM ks.lists WHERE k = 1", &result, NULL));
    ck_assert_int_eq(ask_cell(result, 0, 0).size, CQLRING_NULL);
    cqlring_result_release(result);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(ty_26_odd_and_equal_column_names_are_columns_by_index)
{
    struct flow flow;
    up(&flow, _i);
    flow_cql(&flow, "CREATE TABLE ks.odd (k int PRIMARY KEY, \"a b\" int, \"class\" int, \"_x\" int, \"\xC3\xA4\" int)");
    flow_cql(&flow, "INSERT INTO ks.odd (k, \"a b\", \"class\", \"_x\", \"\xC3\xA4\") VALUES (1, 2, 3, 4, 5)");
    cqlring_result *result = NULL;
    flow_ok(flow_try(&flow, "SELECT k, k AS k, \"a b\", \"class\", \"_x\", \"\xC3\xA4\" FROM ks.odd", &result, NULL));
    const char *names[] = {"k", "k", "a b", "class", "_x", "\xC3\xA4"};
    ck_assert_uint_eq(cqlring_result_column_count(result), 6);
    for (uint32_t i = 0; i < 6; i++) {
        cqlring_column column;
        ck_assert(cqlring_result_column(result, i, &column));
        ck_assert_str_eq(column.name, names[i]);
        ck_assert_int_eq(ask_int(result, 0, i), i == 0 ? 1 : (int)i);
    }
    cqlring_result_release(result);
    flow_ok(flow_try(&flow, "SELECT count(*) FROM ks.odd", &result, NULL));
    ck_assert_int_eq(ask_int(result, 0, 0), 1);
    cqlring_result_release(result);
    flow_close(&flow);
}
END_TEST

START_TEST(ty_12_cells_of_fixed_size_types_are_checked_before_they_are_sent)
{
    struct flow flow;
    up(&flow, 5);
    const struct {
        const char *type;
        int32_t right;
    } types[] = {{"tinyint", 1}, {"smallint", 2}, {"int", 4}, {"bigint", 8}, {"boolean", 1}, {"float", 4}, {"double", 8}, {"uuid", 16}, {"timeuuid", 16}, {"timestamp", 8}, {"date", 4}, {"time", 8}, {"vector<float, 3>", 12}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char cql[100];
        snprintf(cql, sizeof cql, "CREATE TABLE ks.fixed%zu (k int PRIMARY KEY, v %s)", i, types[i].type);
        flow_cql(&flow, cql);
        snprintf(cql, sizeof cql, "INSERT INTO ks.fixed%zu (k, v) VALUES (?, ?)", i);
        cqlring_prepared *insert = flow_prepare(&flow, cql);
        for (int32_t size = 1; size < 20; size++) {
            static const uint8_t any[16] = {[6] = 0x10}; /* a timeuuid, and small as a number */
            cqlring_bytes values[2] = {flow_int(1), {any, size > 16 ? 16 : size}};
            cqlring_error error = {0};
            cqlring_status status = ask_prepared(&flow, insert, values, 2, NULL, NULL, &error);
            ck_assert_msg(status == (values[1].size == types[i].right ? CQLRING_OK : CQLRING_TYPE), "%s of %d bytes: %s: %s", types[i].type, values[1].size,
                          cqlring_status_name(status), error.message);
            if (status == CQLRING_TYPE)
                ck_assert_ptr_nonnull(strstr(error.message, "\"v\""));
        }
        cqlring_prepared_release(insert);
    }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("types");
    tcase_add_loop_test(tcase, scalars_of_every_type_come_back_byte_for_byte, 4, 6);
    tcase_add_loop_test(tcase, collections_tuples_udts_and_vectors_come_back_byte_for_byte, 4, 6);
    tcase_add_loop_test(tcase, all_types_side_by_side_in_one_row, 4, 6);
    tcase_add_loop_test(tcase, what_was_nested_is_found_again_by_a_cursor, 4, 6);
    tcase_add_loop_test(tcase, ty_17_a_udt_that_grew_is_read_and_written_by_old_and_new, 4, 6);
    tcase_add_loop_test(tcase, nv_06_a_plain_collection_that_is_empty_is_null, 4, 6);
    tcase_add_loop_test(tcase, ty_26_odd_and_equal_column_names_are_columns_by_index, 4, 6);
    tcase_add_test(tcase, ty_12_cells_of_fixed_size_types_are_checked_before_they_are_sent);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
