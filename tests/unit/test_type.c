/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/mem.h"
#include "serialize/type.h"
#include "tests/unit/type_texts.h"

static cqlring_status option_status(const void *bytes, uint32_t size, const cqlring_type **type)
{
    struct reader reader;
    uint8_t *exact = malloc(size > 0 ? size : 1); /* so that a sanitizer sees a step beyond */
    memcpy(exact, bytes, size);
    cqr_reader_init(&reader, exact, size);
    cqlring_status status = cqr_type_from_option(&reader, &arena, type);
    if (status == CQLRING_OK)
        ck_assert_uint_eq(cqr_reader_left(&reader), 0);
    free(exact);
    return status;
}

static const cqlring_type *of_option(const void *bytes, uint32_t size)
{
    const cqlring_type *type = NULL;
    ck_assert_int_eq(option_status(bytes, size, &type), CQLRING_OK);
    return type;
}

/* A custom option of that class, at the end of what is in front of it. */
static uint32_t put_custom(uint8_t *room, const char *class_name)
{
    struct writer writer;
    cqr_writer_init(&writer, room, 500);
    cqr_put_u16(&writer, CQLRING_KIND_CUSTOM);
    cqr_put_string(&writer, cqlring_text(class_name));
    return writer.size;
}

/* --- options
   ------------------------------------------------------------------------------------ */

START_TEST(every_scalar_option_has_its_kind_and_name)
{
    static const char *const names[] = {
        [0x01] = "ascii",   [0x02] = "bigint",  [0x03] = "blob",      [0x04] = "boolean",
        [0x05] = "counter", [0x06] = "decimal", [0x07] = "double",    [0x08] = "float",
        [0x09] = "int",     [0x0A] = "text",    [0x0B] = "timestamp", [0x0C] = "uuid",
        [0x0D] = "text",    [0x0E] = "varint",  [0x0F] = "timeuuid",  [0x10] = "inet",
        [0x11] = "date",    [0x12] = "time",    [0x13] = "smallint",  [0x14] = "tinyint",
        [0x15] = "duration"};
    for (uint8_t id = 1; id < sizeof names / sizeof names[0]; id++) {
        const uint8_t option[] = {0, id};
        const cqlring_type *type = of_option(option, 2);
        ck_assert_str_eq(to_cql(type), names[id]);
        ck_assert_uint_eq(cqlring_type_kind(type),
                          id == 0x0A ? CQLRING_KIND_TEXT : (cqlring_kind)id);
        ck_assert_uint_eq(cqlring_type_child_count(type), 0);
        ck_assert_ptr_null(cqlring_type_child(type, 0));
    }
}
END_TEST

START_TEST(nested_options_become_a_tree)
{
    static const uint8_t option[] = "\x00\x31\x00\x02"                    /* tuple of 2 */
                                    "\x00\x21\x00\x0D\x00\x20\x00\x09"    /* map<text, list<int>> */
                                    "\x00\x30\x00\x02ks\x00\x01u\x00\x02" /* udt ks.u of 2 */
                                    "\x00\x01"
                                    "a\x00\x22\x00\x0C" /* a set<uuid> */
                                    "\x00\x01"
                                    "b\x00\x31\x00\x00"; /* b tuple of 0 */
    const cqlring_type *type = of_option(option, sizeof option - 1);
    ck_assert_str_eq(to_cql(type), "tuple<map<text, list<int>>, u>");
    const cqlring_type *udt = cqlring_type_child(type, 1);
    ck_assert_int_eq(cqlring_type_kind(udt), CQLRING_KIND_UDT);
    ck_assert_str_eq(name_of(udt), "u");
    ck_assert_int_eq(cqlring_type_field_name(udt, 1).size, 1);
    ck_assert_int_eq(*(const char *)cqlring_type_field_name(udt, 1).data, 'b');
    ck_assert_int_eq(cqlring_type_field_name(udt, 2).size, 0);
    ck_assert_str_eq(to_cql(cqlring_type_child(udt, 0)), "set<uuid>");
    ck_assert_uint_eq(cqlring_type_child_count(cqlring_type_child(udt, 1)), 0);
    const cqlring_type *none;
    for (uint32_t cut = 0; cut < sizeof option - 1; cut++)
        ck_assert_int_eq(option_status(option, cut, &none), CQLRING_PROTOCOL);
}
END_TEST

START_TEST(a_count_that_cannot_be_true_is_refused_at_once)
{
    static const uint8_t option[] = {0, 0x31, 0xFF, 0xFF, 0, 9};
    const cqlring_type *none;
    ck_assert_int_eq(option_status(option, sizeof option, &none), CQLRING_PROTOCOL);
}
END_TEST

START_TEST(options_nested_too_deeply_are_refused)
{
    uint8_t option[2 * 200];
    for (int i = 0; i < 200; i++)
        memcpy(option + 2 * i, "\x00\x20", 2);
    const cqlring_type *type;
    memcpy(option + 2 * 63, "\x00\x09", 2);
    ck_assert_int_eq(option_status(option, 2 * 64, &type), CQLRING_OK); /* 63 lists and an int */
    memcpy(option + 2 * 63, "\x00\x20\x00\x09", 4);
    ck_assert_int_eq(option_status(option, 2 * 65, &type), CQLRING_TYPE);
    memcpy(option + 2 * 64, "\x00\x20", 2);
    ck_assert_int_eq(option_status(option, sizeof option, &type), CQLRING_TYPE);
}
END_TEST

/* On v3 and v4 a server may describe a duration by its class. */
START_TEST(ty_08_a_duration_described_by_its_class_is_a_duration)
{
    uint8_t option[600] = {0, CQLRING_KIND_LIST};
    uint32_t size = put_custom(option, PACKAGE "DurationType");
    ck_assert_int_eq(cqlring_type_kind(of_option(option, size)), CQLRING_KIND_DURATION);
    memcpy(option, "\x00\x20", 2);
    size = 2 + put_custom(option + 2, PACKAGE "DurationType");
    ck_assert_str_eq(to_cql(of_option(option, size)), "list<duration>");
    memcpy(option, "\x00\x21\x00\x09", 4);
    size = 4 + put_custom(option + 4, PACKAGE "DurationType");
    ck_assert_str_eq(to_cql(of_option(option, size)), "map<int, duration>");
}
END_TEST

START_TEST(ty_28_unknown_classes_are_opaque_and_keep_their_name)
{
    static const char *const opaque[] = {PACKAGE "LexicalUUIDType", "com.example.Made-Up_Class",
                                         PACKAGE "DynamicCompositeType(a=>" PACKAGE
                                                 "AsciiType,b=>" PACKAGE "Int32Type)",
                                         "com.example.WithArguments(precision=5,nested(x))"};
    uint8_t option[600];
    for (size_t i = 0; i < sizeof opaque / sizeof opaque[0]; i++) {
        const cqlring_type *type = of_option(option, put_custom(option, opaque[i]));
        ck_assert_int_eq(cqlring_type_kind(type), CQLRING_KIND_CUSTOM);
        ck_assert_str_eq(name_of(type), opaque[i]);
        ck_assert_str_eq(to_class(type), opaque[i]);
    }
    const cqlring_type *varint = of_option(option, put_custom(option, PACKAGE "IntegerType"));
    ck_assert_int_eq(cqlring_type_kind(varint), CQLRING_KIND_VARINT);
    const cqlring_type *quoted = of_cql("'com.example.T'");
    ck_assert_str_eq(name_of(quoted), "com.example.T");
    ck_assert_str_eq(to_cql(quoted), "'com.example.T'");
    ck_assert_str_eq(to_cql(of_cql("list<'" PACKAGE "Int32Type'>")), "list<int>");
}
END_TEST

START_TEST(ty_28_an_unknown_type_id_is_a_type_error)
{
    const cqlring_type *none;
    ck_assert_int_eq(option_status("\x00\xFF", 2, &none), CQLRING_TYPE);
    ck_assert_int_eq(option_status("\x00\x16", 2, &none), CQLRING_TYPE);
    ck_assert_int_eq(option_status("\x00\x20\x00\xFF", 4, &none), CQLRING_TYPE);
    /* our own numbers are not the protocol's */
    ck_assert_int_eq(option_status("\x00\x80\x00\x09", 4, &none), CQLRING_TYPE);
    ck_assert_int_eq(option_status("\x00\x82", 2, &none), CQLRING_TYPE);
}
END_TEST

/* --- classes
   ------------------------------------------------------------------------------------ */

/* --- CQL
   ---------------------------------------------------------------------------------------- */

/* --- looking
   ------------------------------------------------------------------------------------- */

START_TEST(types_are_equal_when_their_encoding_and_names_are)
{
    ck_assert(cqr_type_equal(of_cql("list<frozen<map<text, int>>>"),
                             of_class("ListType(MapType(UTF8Type,Int32Type))")));
    ck_assert(
        cqr_type_equal(of_class("ReversedType(Int32Type)"), cqr_type_scalar(CQLRING_KIND_INT)));
    ck_assert(cqr_type_equal(address(), address()));
    static const char *const different[] = {
        "list<int>",       "set<int>",        "list<text>",     "map<int, int>",  "map<int, text>",
        "tuple<int>",      "tuple<int, int>", "vector<int, 2>", "vector<int, 3>", "address",
        "'com.example.A'", "'com.example.B'", "list<list<int>>"};
    const size_t count = sizeof different / sizeof different[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++)
            ck_assert_int_eq(cqr_type_equal(of_cql(different[i]), of_cql(different[k])), i == k);
    }
    ck_assert(!cqr_type_equal(
        address(), of_class("UserType(ks,61646472657373,737472656574:UTF8Type,7a6971:Int32Type)")));
    ck_assert(!cqr_type_equal(
        address(), of_class("UserType(kx,61646472657373,737472656574:UTF8Type,7a6970:Int32Type)")));
    ck_assert(
        !cqr_type_equal(address(), of_class("UserType(ks,61646472657373,737472656574:UTF8Type)")));
}
END_TEST

/* The server's table (AbstractType.valueLengthIfFixed), not what one would think. */
START_TEST(sizes_follow_the_servers_table)
{
    static const struct {
        const char *type;
        uint32_t cell, packed;
    } cases[] = {{"boolean", 1, 1},
                 {"tinyint", 1, 0},
                 {"smallint", 2, 0},
                 {"int", 4, 4},
                 {"float", 4, 4},
                 {"date", 4, 0},
                 {"bigint", 8, 8},
                 {"double", 8, 8},
                 {"timestamp", 8, 8},
                 {"counter", 8, 0},
                 {"time", 8, 0},
                 {"uuid", 16, 16},
                 {"timeuuid", 16, 16},
                 {"inet", 0, 0},
                 {"varint", 0, 0},
                 {"decimal", 0, 0},
                 {"duration", 0, 0},
                 {"text", 0, 0},
                 {"blob", 0, 0},
                 {"ascii", 0, 0},
                 {"list<int>", 0, 0},
                 {"tuple<int>", 0, 0},
                 {"address", 0, 0},
                 {"vector<float, 3>", 12, 12},
                 {"vector<smallint, 3>", 0, 0},
                 {"vector<vector<uuid, 2>, 3>", 96, 96},
                 {"vector<text, 3>", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cqlring_type *type = of_cql(cases[i].type);
        ck_assert_uint_eq(cqr_type_fixed_size(type), cases[i].cell);
        ck_assert_uint_eq(cqr_vector_element_size(type), cases[i].packed);
    }
}
END_TEST

START_TEST(a_description_fills_no_more_than_it_was_given_room_for)
{
    union {
        cqlring_type_description about;
        uint8_t bytes[sizeof(cqlring_type_description)];
    } room;
    memset(&room, 0xEE, sizeof room);
    const size_t size = offsetof(cqlring_type_description, element_size);
    room.about.struct_size = size;
    cqlring_type_describe(of_cql("vector<float, 3>"), &room.about);
    ck_assert_uint_eq(room.about.struct_size, size);
    ck_assert_uint_eq(room.about.dimension, 3);
    ck_assert_uint_eq(room.about.cell_size, 12);
    for (size_t i = size; i < sizeof room; i++)
        ck_assert_uint_eq(room.bytes[i], 0xEE);
}
END_TEST

/* --- the public parser ------------------------------------------------------------------------ */

START_TEST(parse_takes_cql_and_classes)
{
    static const struct {
        const char *text, *cql;
    } cases[] = {{"int", "int"},
                 {"list<frozen<map<text,int>>>", "list<frozen<map<text, int>>>"},
                 {"Int32Type", "int"},
                 {PACKAGE "ListType(" PACKAGE "UTF8Type)", "list<text>"},
                 {"UserType(ks,4142,61:Int32Type)", "\"AB\""},
                 {"com.example.T", "'com.example.T'"},
                 {"'com.example.T'", "'com.example.T'"},
                 {"VectorType(FloatType, 3)", "vector<float, 3>"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_type *type = NULL;
        ck_assert_int_eq(cqlring_type_parse(cqlring_text(cases[i].text), &type, NULL), CQLRING_OK);
        ck_assert_str_eq(to_cql(type), cases[i].cql);
        cqlring_type_release(type);
    }
    cqlring_type_release(NULL);
}
END_TEST

START_TEST(parse_says_what_it_did_not_understand)
{
    cqlring_type *type = NULL;
    cqlring_error error = {0};
    ck_assert_int_eq(cqlring_type_parse(cqlring_text("list<frozen<address>>"), &type, &error),
                     CQLRING_TYPE);
    ck_assert_int_eq(error.status, CQLRING_TYPE);
    ck_assert_ptr_nonnull(strstr(error.message, "list<frozen<address>>"));
    ck_assert_int_eq(cqlring_type_parse((cqlring_bytes){.size = CQLRING_NULL}, &type, &error),
                     CQLRING_TYPE);
    ck_assert_int_eq(cqlring_type_parse(cqlring_text(NULL), &type, &error), CQLRING_TYPE);
    /* a long one is cut, and not in the middle of a character */
    char text[402];
    for (int i = 0; i < 400; i += 2)
        memcpy(text + i, "\xC3\xA9", 2);
    text[400] = '\0';
    memmove(text + 1, text, 400);
    text[0] = 'x';
    ck_assert_int_eq(cqlring_type_parse((cqlring_bytes){.data = text, .size = 401}, &type, &error),
                     CQLRING_TYPE);
    ck_assert_ptr_nonnull(strstr(error.message, "\xC3\xA9\""));
    ck_assert_ptr_null(type);
}
END_TEST

START_TEST(every_failed_allocation_is_out_of_memory_and_leaks_nothing)
{
    static const char *const texts[] = {
        "tuple<list<frozen<map<text, vector<smallint, 3>>>>, 'com.example.T', 'ListType(Int32Type)'>",
        "TupleType(UserType(ks,6162,61:ListType(Int32Type),62:FrozenType(SetType(com.example.T))),ReversedType(UTF8Type))"};
    int64_t live = cqr_mem_live_count();
    for (size_t i = 0; i < 2; i++) {
        cqlring_status status = CQLRING_NO_MEMORY;
        uint64_t n = 1;
        for (; status != CQLRING_OK; n++) {
            cqlring_type *type = NULL;
            cqlring_error error = {0};
            cqr_mem_fail_at(n, 0);
            status = cqlring_type_parse(cqlring_text(texts[i]), &type, &error);
            cqr_mem_fail_at(0, 0);
            ck_assert(status == CQLRING_OK ||
                      (status == CQLRING_NO_MEMORY && error.status == status));
            cqlring_type_release(type);
            ck_assert_int_eq(cqr_mem_live_count(), live);
        }
        ck_assert_uint_ge(n, 3);
    }
    /* the same inside an arena that is full sooner or later */
    for (size_t i = 0; i < 2; i++) {
        cqlring_status status = CQLRING_NO_MEMORY;
        for (size_t size = 0; status != CQLRING_OK; size += 16) {
            struct arena small;
            cqr_arena_init(&small, size);
            const cqlring_type *type;
            status = i == 0 ? cqr_type_from_cql(&small, cqlring_text(texts[0]), NULL, NULL, &type)
                            : cqr_type_from_class(&small, cqlring_text(texts[1]), &type);
            ck_assert(status == CQLRING_OK || status == CQLRING_NO_MEMORY);
            cqr_arena_fini(&small);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("type");
    TCase *test = tcase_create("type");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_set_timeout(test, 60);
    tcase_add_test(test, every_scalar_option_has_its_kind_and_name);
    tcase_add_test(test, nested_options_become_a_tree);
    tcase_add_test(test, a_count_that_cannot_be_true_is_refused_at_once);
    tcase_add_test(test, options_nested_too_deeply_are_refused);
    tcase_add_test(test, ty_08_a_duration_described_by_its_class_is_a_duration);
    tcase_add_test(test, ty_28_unknown_classes_are_opaque_and_keep_their_name);
    tcase_add_test(test, ty_28_an_unknown_type_id_is_a_type_error);
    tcase_add_test(test, types_are_equal_when_their_encoding_and_names_are);
    tcase_add_test(test, sizes_follow_the_servers_table);
    tcase_add_test(test, a_description_fills_no_more_than_it_was_given_room_for);
    tcase_add_test(test, parse_takes_cql_and_classes);
    tcase_add_test(test, parse_says_what_it_did_not_understand);
    tcase_add_test(test, every_failed_allocation_is_out_of_memory_and_leaks_nothing);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
