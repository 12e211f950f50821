/* SPDX-License-Identifier: Apache-2.0 */
/* Types as classes and as CQL. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/type.h"
#include "tests/unit/type_texts.h"

START_TEST(ty_29_frozen_reversed_and_hex_names_are_parsed)
{
    const cqlring_type *type = of_class("FrozenType(ListType(Int32Type))");
    ck_assert_str_eq(to_cql(type), "frozen<list<int>>");
    type = of_class("ReversedType(TimestampType)");
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(type, &about);
    ck_assert_uint_eq(about.flags, CQLRING_TYPE_REVERSED);
    ck_assert_uint_eq(about.cell_size, 8);
    ck_assert_int_eq(cqlring_type_kind(type), CQLRING_KIND_TIMESTAMP);
    ck_assert_str_eq(to_class(type), PACKAGE "ReversedType(" PACKAGE "TimestampType)");
    type = of_class("UserType(ks,6e616d65,6162:UTF8Type)");
    ck_assert_str_eq(name_of(type), "name");
    ck_assert_mem_eq(cqlring_type_field_name(type, 0).data, "ab", 2);
    /* a name of digits only, a keyspace that looks like hex, one that looks like a number */
    type = of_class("UserType(6162,61646472657373,3132:UTF8Type)");
    ck_assert_str_eq(name_of(type), "address");
    ck_assert_str_eq(to_class(type),
                     PACKAGE "UserType(6162,61646472657373,3132:" PACKAGE "UTF8Type)");
    ck_assert_str_eq(to_cql(of_class("ReversedType(FrozenType(MapType(UTF8Type,LongType)))")),
                     "frozen<map<text, bigint>>");
}
END_TEST

START_TEST(ty_29_broken_classes_are_refused)
{
    static const char *const broken[] = {"",
                                         "(",
                                         ")",
                                         "ListType",
                                         "ListType(",
                                         "ListType()",
                                         "ListType(Int32Type",
                                         "ListType(Int32Type))",
                                         "ListType(Int32Type,Int32Type)",
                                         "MapType(Int32Type)",
                                         "MapType(Int32Type,)",
                                         "MapType(,Int32Type)",
                                         "UserType(ks)",
                                         "UserType(ks,)",
                                         "UserType(,6162,61:Int32Type)",
                                         "UserType(ks,616,61:Int32Type)",
                                         "UserType(ks,zz,61:Int32Type)",
                                         "UserType(ks,6162,6g:Int32Type)",
                                         "UserType(ks,6162,61Int32Type)",
                                         "UserType(ks,6162,:Int32Type)",
                                         "UserType(ks,6162,61:)",
                                         "UserType(ks,6162,Int32Type)",
                                         "UserType(ks,6162,)",
                                         "VectorType(FloatType)",
                                         "VectorType(FloatType,)",
                                         "VectorType(FloatType,0)",
                                         "VectorType(FloatType,-1)",
                                         "VectorType(FloatType,x)",
                                         "VectorType(FloatType,3x)",
                                         "VectorType(FloatType,3,4)",
                                         "VectorType(FloatType,2147483648)",
                                         "VectorType(FloatType,99999999999999999999)",
                                         "VectorType(FloatType,1000000000)",
                                         "VectorType(3,FloatType)",
                                         "Int32Type Int32Type",
                                         "Int32Type,Int32Type",
                                         "Int32Type(",
                                         "Int32Type()",
                                         "FrozenType(Int32Type,Int32Type)",
                                         "FrozenType",
                                         "com.example.T(",
                                         "com.example.T(a",
                                         "xyz:Int32Type",
                                         "TupleType()",
                                         "CompositeType()",
                                         "ListType(Int32Type)x",
                                         "\xFF\xFE"};
    const cqlring_type *none;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        cqlring_status status = cqr_type_from_class(&arena, cqlring_text(broken[i]), &none);
        ck_assert_msg(status == CQLRING_TYPE, "%s: %s", broken[i], cqlring_status_name(status));
    }
    ck_assert_int_eq(
        cqr_type_from_class(&arena, (cqlring_bytes){.data = "Int32Type\0", .size = 10}, &none),
        CQLRING_TYPE);
    ck_assert_int_eq(cqr_type_from_class(&arena, (cqlring_bytes){.size = CQLRING_NULL}, &none),
                     CQLRING_TYPE);
}
END_TEST

START_TEST(blanks_and_column_names_in_classes_do_not_matter)
{
    ck_assert_str_eq(to_cql(of_class(" MapType( Int32Type , UTF8Type ) ")), "map<int, text>");
    ck_assert_str_eq(to_cql(of_class("VectorType(FloatType , 3)")), "vector<float, 3>");
    ck_assert_str_eq(to_cql(of_class("VectorType(FloatType,3)")), "vector<float, 3>");
    ck_assert_str_eq(to_cql(of_class("636f6c:ListType(Int32Type)")), "list<int>");
    ck_assert_str_eq(to_cql(of_class("TupleType(61:Int32Type,62:UTF8Type)")), "tuple<int, text>");
    ck_assert_str_eq(to_cql(of_class("DateType")), "timestamp");
    ck_assert_str_eq(to_cql(of_class("EmptyType")), "empty");
}
END_TEST

START_TEST(classes_nested_too_deeply_are_refused)
{
    char text[64 * 9 + 9 + 64 + 1];
    const cqlring_type *none;
    for (int lists = 63; lists <= 64; lists++) {
        int size = 0;
        for (int i = 0; i < lists; i++)
            size += sprintf(text + size, "ListType(");
        size += sprintf(text + size, "Int32Type");
        for (int i = 0; i < lists; i++)
            size += sprintf(text + size, ")");
        ck_assert_int_eq(cqr_type_from_class(&arena, cqlring_text(text), &none),
                         lists == 63 ? CQLRING_OK : CQLRING_TYPE);
    }
    /* thousands of brackets take no deeper stack */
    char *long_text = malloc(70000);
    for (int i = 0; i < 70000 / 9; i++)
        memcpy(long_text + 9 * i, "ListType(", 9);
    ck_assert_int_eq(
        cqr_type_from_class(&arena, (cqlring_bytes){.data = long_text, .size = 65535}, &none),
        CQLRING_TYPE);
    ck_assert_int_eq(
        cqr_type_from_class(&arena, (cqlring_bytes){.data = long_text, .size = 65536}, &none),
        CQLRING_TYPE);
    free(long_text);
}
END_TEST

START_TEST(cql_types_are_parsed_and_formatted_alike)
{
    static const char *const same[] = {"int",
                                       "list<frozen<map<text, int>>>",
                                       "vector<float, 3>",
                                       "frozen<tuple<int, text>>",
                                       "map<uuid, vector<frozen<list<text>>, 2>>",
                                       "set<frozen<address>>",
                                       "tuple<int>",
                                       "list<frozen<'com.example.T'>>",
                                       "vector<vector<smallint, 2>, 4>",
                                       "frozen<address>"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        ck_assert_str_eq(to_cql(of_cql(same[i])), same[i]);
    ck_assert_str_eq(to_cql(of_cql("LIST<FROZEN<Map<VarChar,INT>>>")),
                     "list<frozen<map<text, int>>>");
    ck_assert_str_eq(to_cql(of_cql(" map < int ,text > ")), "map<int, text>");
    ck_assert_str_eq(to_cql(of_cql("ks.address")), "address");
    ck_assert_str_eq(to_cql(of_cql("\"ks\".\"address\"")), "address");
    ck_assert_str_eq(to_cql(of_cql("AdDress")), "address");
    ck_assert_str_eq(to_cql(of_cql("list<frozen<\"Mixed\"\"x\">>")), "list<frozen<address>>");
}
END_TEST

START_TEST(names_that_need_quotes_get_them)
{
    static const struct {
        const char *class_name, *cql;
    } cases[] = {{"UserType(ks,4d69786564,61:Int32Type)", "\"Mixed\""},
                 {"UserType(ks,612262,61:Int32Type)", "\"a\"\"b\""},
                 {"UserType(ks,696e74,61:Int32Type)", "\"int\""},
                 {"UserType(ks,66726f7a656e,61:Int32Type)", "\"frozen\""},
                 {"UserType(ks,3161,61:Int32Type)", "\"1a\""},
                 {"UserType(ks,615f31,61:Int32Type)", "a_1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_str_eq(to_cql(of_class(cases[i].class_name)), cases[i].cql);
}
END_TEST

START_TEST(broken_cql_is_refused)
{
    static const char *const broken[] = {"",
                                         "<",
                                         "list",
                                         "list<",
                                         "list<>",
                                         "list<int",
                                         "list<int>>",
                                         "list<int,int>",
                                         "map<int>",
                                         "frozen<>",
                                         "frozen",
                                         "frozen<int,int>",
                                         "vector<float>",
                                         "vector<float,0>",
                                         "vector<float,>",
                                         "vector<float,3",
                                         "vector<float,a>",
                                         "unknown",
                                         "list<unknown>",
                                         "other.address",
                                         "ks.",
                                         "\"\"",
                                         "\"address",
                                         "'",
                                         "'com.example.T",
                                         "''",
                                         "'ListType('",
                                         "address<int>",
                                         "int<int>",
                                         "\"list\"<int>",
                                         "\"int\"",
                                         "int int",
                                         "int,int",
                                         "tuple<>",
                                         "empty<int>",
                                         "\xC3\xA9"};
    const cqlring_type *none;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        cqlring_status status = cqr_type_from_cql(&arena, cqlring_text(broken[i]), resolve_address,
                                                  (void *)(uintptr_t)address(), &none);
        ck_assert_msg(status == CQLRING_TYPE, "%s: %s", broken[i], cqlring_status_name(status));
    }
}
END_TEST

START_TEST(frozen_flows_down_but_is_written_once)
{
    const cqlring_type *type = of_cql("list<frozen<map<text, set<int>>>>");
    static const uint32_t wanted[] = {0, CQLRING_TYPE_FROZEN, CQLRING_TYPE_FROZEN};
    for (uint32_t i = 0; i < 3; i++) {
        cqlring_type_description about = {.struct_size = sizeof about};
        cqlring_type_describe(type, &about);
        ck_assert_uint_eq(about.flags, wanted[i]);
        type = cqlring_type_child(type, cqlring_type_child_count(type) - 1);
    }
}
END_TEST

START_TEST(a_formatted_type_is_cut_to_its_room_and_tells_its_size)
{
    const cqlring_type *type = of_cql("list<frozen<map<text, int>>>");
    const char *whole = "list<frozen<map<text, int>>>";
    char text[40];
    for (size_t capacity = 0; capacity < sizeof text; capacity++) {
        memset(text, '#', sizeof text);
        ck_assert_uint_eq(cqlring_type_format(type, capacity == 0 ? NULL : text, capacity),
                          strlen(whole));
        if (capacity > 0) {
            size_t kept = capacity - 1 < strlen(whole) ? capacity - 1 : strlen(whole);
            ck_assert_mem_eq(text, whole, kept);
            ck_assert_int_eq(text[kept], '\0');
        }
        for (size_t i = capacity; i < sizeof text; i++)
            ck_assert_int_eq(text[i], '#');
    }
}
END_TEST

START_TEST(a_composite_is_formatted_as_a_quoted_class)
{
    const cqlring_type *type = of_class("CompositeType(Int32Type,ReversedType(UTF8Type))");
    ck_assert_str_eq(to_cql(type), "'" PACKAGE "CompositeType(" PACKAGE "Int32Type," PACKAGE
                                   "ReversedType(" PACKAGE "UTF8Type))'");
    ck_assert(cqr_type_equal(type, of_cql(to_cql(type))));
    ck_assert_str_eq(to_cql(of_class("TupleType(CompositeType(Int32Type),Int32Type)")),
                     "tuple<'" PACKAGE "CompositeType(" PACKAGE "Int32Type)', int>");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("type_text");
    TCase *test = tcase_create("type_text");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, ty_29_frozen_reversed_and_hex_names_are_parsed);
    tcase_add_test(test, ty_29_broken_classes_are_refused);
    tcase_add_test(test, blanks_and_column_names_in_classes_do_not_matter);
    tcase_add_test(test, classes_nested_too_deeply_are_refused);
    tcase_add_test(test, cql_types_are_parsed_and_formatted_alike);
    tcase_add_test(test, names_that_need_quotes_get_them);
    tcase_add_test(test, broken_cql_is_refused);
    tcase_add_test(test, frozen_flows_down_but_is_written_once);
    tcase_add_test(test, a_formatted_type_is_cut_to_its_room_and_tells_its_size);
    tcase_add_test(test, a_composite_is_formatted_as_a_quoted_class);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
