/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/result_bodies.h"

/* --- rows --------------------------------------------------------------------------------------------------------- */

START_TEST(columns_are_described_by_name_table_and_type)
{
    struct make how = {0};
    cqlring_result *result = example_rows(&how, 2);
    ck_assert_uint_eq(cqlring_result_row_count(result), 2);
    ck_assert_uint_eq(cqlring_result_column_count(result), 3);
    static const char *names[] = {"id", "name", "v"};
    cqlring_column column;
    for (uint32_t i = 0; i < 3; ++i) {
        ck_assert(cqlring_result_column(result, i, &column));
        ck_assert_str_eq(column.keyspace, "ks");
        ck_assert_str_eq(column.table, "t");
        ck_assert_str_eq(column.name, names[i]);
        ck_assert_int_eq(cqlring_type_kind(column.type), i == 1 ? CQLRING_KIND_TEXT : CQLRING_KIND_INT);
    }
    ck_assert(!cqlring_result_column(result, 3, &column));
    ck_assert_ptr_null(cqlring_result_paging_state(result).data);
    cqlring_result_release(result);
}
END_TEST

START_TEST(rows_are_read_in_any_batches_and_from_any_row)
{
    enum { ROWS = 100 };
    struct make how = {0};
    cqlring_result *result = example_rows(&how, ROWS);
    cqlring_bytes cells[ROWS * 3];
    uint32_t count;
    for (uint32_t capacity = 1; capacity <= ROWS; ++capacity) {
        for (uint32_t from = 0;; from += count) { /* starts again at 0: an earlier row than the cursor's */
            ck_assert_int_eq(cqlring_result_rows(result, from, cells, capacity, &count, NULL), CQLRING_OK);
            if (count == 0)
                break;
            ck_assert_uint_eq(count, from + capacity <= ROWS ? capacity : ROWS - from);
            for (uint32_t i = 0; i < count; ++i)
                expect_row(&cells[i * 3], from + i);
        }
    }
    static const uint32_t jumps[] = {99, 0, 50, 51, 53, 20, 98, 99, 99, 1};
    for (unsigned i = 0; i < sizeof jumps / sizeof jumps[0]; ++i) {
        ck_assert_int_eq(cqlring_result_rows(result, jumps[i], cells, 1, &count, NULL), CQLRING_OK);
        ck_assert_uint_eq(count, 1);
        expect_row(cells, jumps[i]);
    }
    static const uint32_t beyond[] = {ROWS, ROWS + 1, UINT32_MAX};
    for (unsigned i = 0; i < 3; ++i) {
        count = 7;
        ck_assert_int_eq(cqlring_result_rows(result, beyond[i], cells, 10, &count, NULL), CQLRING_OK);
        ck_assert_uint_eq(count, 0);
    }
    count = 7;
    ck_assert_int_eq(cqlring_result_rows(result, 0, NULL, 0, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 0);
    cqlring_result_release(result);
}
END_TEST

START_TEST(cells_are_slices_of_the_block_which_lives_as_long_as_the_result)
{
    struct make how = {0};
    cqlring_result *result = example_rows(&how, 10);
    const uint8_t *from = block->data, *end = block->data + out.size;
    ck_assert_uint_eq(cqlring_result_pinned_size(result), block->size);
    next_body(); /* another block, or this would be a bug */
    cqlring_bytes cells[30];
    uint32_t count;
    ck_assert_int_eq(cqlring_result_rows(result, 0, cells, 10, &count, NULL), CQLRING_OK);
    for (unsigned i = 0; i < 30; ++i) {
        if (cells[i].data != NULL)
            ck_assert((const uint8_t *)cells[i].data >= from && (const uint8_t *)cells[i].data < end);
    }
    cqlring_result_release(result);
}
END_TEST

START_TEST(torn_cell_is_named_by_row_and_column_TY_32)
{
    enum { ROWS = 1000 };
    struct make how = {0};
    put_metadata(0, NULL, NULL, "name");
    put_rows(ROWS);
    /* Cell v of row 500 claims more than there is left. */
    struct make good = {0};
    cqlring_result *whole = must_make(&good, RESULT_ROWS);
    cqlring_bytes cells[64 * 3];
    uint32_t count;
    ck_assert_int_eq(cqlring_result_rows(whole, 500, cells, 1, &count, NULL), CQLRING_OK);
    uint8_t *at = block->data + ((const uint8_t *)cells[2].data - block->data) - 4;
    cqlring_result_release(whole);
    cqr_store_u32(at, 0x7FFFFFFF);

    cqlring_result *result = must_make(&how, RESULT_ROWS);
    uint32_t from = 0;
    cqlring_status status;
    cqlring_error error;
    while ((status = cqlring_result_rows(result, from, cells, 64, &count, &error)) == CQLRING_OK) {
        ck_assert_uint_gt(count, 0);
        for (uint32_t i = 0; i < count; ++i)
            expect_row(&cells[i * 3], from + i);
        from += count;
    }
    ck_assert_uint_eq(from, 500); /* everything before it was handed out */
    for (int again = 0; again < 2; ++again) {
        ck_assert_int_eq(status, CQLRING_PROTOCOL);
        ck_assert_int_eq(error.status, CQLRING_PROTOCOL);
        ck_assert_msg(strstr(error.message, "row 500, column v (int)") != NULL, "%s", error.message);
        ck_assert_ptr_nonnull(strstr(error.message, "2147483647"));
        status = cqlring_result_rows(result, 700, cells, 64, &count, &error); /* behind it: not to be had either */
    }
    ck_assert_int_eq(cqlring_result_rows(result, 499, cells, 64, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 1);
    expect_row(cells, 499);
    ck_assert_int_eq(cqlring_result_rows(result, 500, cells, 64, &count, NULL), CQLRING_PROTOCOL);
    cqlring_result_release(result);
}
END_TEST

START_TEST(body_cut_anywhere_is_refused_or_torn_but_never_over_read)
{
    put_metadata(ROWS_MORE_PAGES, "state", NULL, "name");
    put_rows(3);
    uint32_t size = out.size;
    for (uint32_t cut = 0; cut < size; ++cut) {
        uint8_t *copy = malloc(cut > 0 ? cut : 1); /* of exactly that size, so the sanitizer sees the end */
        memcpy(copy, block->data, cut);
        struct response_prefix prefix = {0};
        cqlring_result *result = NULL;
        struct failure *failure = NULL;
        cqlring_status status = cqr_result_make(&v4, NULL, (cqlring_bytes){copy, (int32_t)cut}, RESULT_ROWS, &prefix, NULL,
                                                &result, NULL, NULL, &failure);
        if (status == CQLRING_OK) {
            cqlring_bytes cells[9];
            uint32_t count, from = 0;
            cqlring_error error;
            (void)cqlring_result_applied(result);
            while ((status = cqlring_result_rows(result, from, cells, 3, &count, &error)) == CQLRING_OK && count > 0)
                from += count;
            ck_assert_int_eq(status, CQLRING_PROTOCOL);
            cqlring_result_release(result);
        } else {
            ck_assert_int_eq(status, CQLRING_PROTOCOL);
            cqr_failure_free(&failure->error);
        }
        free(copy);
    }
}
END_TEST

START_TEST(rows_without_columns_are_counted_and_empty_PD_04)
{
    struct make how = {0};
    cqr_put_u32(&out, 0);
    cqr_put_u32(&out, 0);
    cqr_put_u32(&out, 45);
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    cqlring_bytes cells[1];
    uint32_t count, from = 0;
    while (cqlring_result_rows(result, from, cells, 10, &count, NULL) == CQLRING_OK && count > 0)
        from += count;
    ck_assert_uint_eq(from, 45);
    ck_assert_uint_eq(cqlring_result_column_count(result), 0);
    cqlring_column column;
    ck_assert(!cqlring_result_column(result, 0, &column));
    ck_assert_int_eq(cqlring_result_applied(result), -1);
    cqlring_result_release(result);
}
END_TEST

START_TEST(paging_state_is_null_on_the_last_page_only)
{
    struct make how = {0};
    put_metadata(ROWS_MORE_PAGES, "state", NULL, "name");
    put_rows(1);
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    cqlring_bytes state = cqlring_result_paging_state(result);
    ck_assert_int_eq(state.size, 5);
    ck_assert_int_eq(memcmp(state.data, "state", 5), 0);
    cqlring_result_release(result);

    next_body();
    struct make last = {0};
    result = example_rows(&last, 1);
    ck_assert_ptr_null(cqlring_result_paging_state(result).data);
    cqlring_result_release(result);
}
END_TEST

/* --- whose columns ------------------------------------------------------------------------------------------------ */

START_TEST(same_description_again_is_not_decoded_again)
{
    struct column_set *known = example_columns();
    struct make how = {.known = known};
    put_metadata(ROWS_MORE_PAGES, "state", NULL, "name");
    put_rows(5);
    uint64_t allocations = cqr_mem_allocation_count();
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    ck_assert_uint_eq(cqr_mem_allocation_count() - allocations, 1); /* the result itself */
    ck_assert_ptr_eq(result->columns, known);
    cqlring_bytes cells[15];
    uint32_t count;
    ck_assert_int_eq(cqlring_result_rows(result, 0, cells, 5, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 5);
    expect_row(&cells[12], 4);
    cqr_column_set_release(known); /* the result has its own */
    cqlring_column column;
    ck_assert(cqlring_result_column(result, 2, &column));
    ck_assert_str_eq(column.name, "v");
    cqlring_result_release(result);
}
END_TEST

START_TEST(other_description_is_the_results_own)
{
    struct column_set *known = example_columns();
    struct make how = {.known = known};
    put_metadata(0, NULL, NULL, "eman"); /* same size, other name */
    put_rows(1);
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    ck_assert_ptr_ne(result->columns, known);
    ck_assert_ptr_null(how.changed);
    cqlring_column column;
    ck_assert(cqlring_result_column(result, 1, &column));
    ck_assert_str_eq(column.name, "eman");
    cqlring_result_release(result);
    cqr_column_set_release(known);
}
END_TEST

START_TEST(description_is_reused_only_when_the_set_kept_its_bytes)
{
    struct column_set *known = example_columns();
    known->sealed = false; /* as if nobody had called cqr_column_set_seal */
    struct make how = {.known = known};
    cqlring_result *result = example_rows(&how, 1);
    ck_assert_ptr_ne(result->columns, known);
    cqlring_result_release(result);
    cqr_column_set_release(known);
}
END_TEST

START_TEST(description_left_out_is_the_known_one)
{
    struct column_set *known = example_columns();
    struct make how = {.known = known};
    put_metadata(ROWS_NO_METADATA, NULL, NULL, "name");
    put_rows(4);
    uint64_t allocations = cqr_mem_allocation_count();
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    ck_assert_uint_eq(cqr_mem_allocation_count() - allocations, 1);
    ck_assert_ptr_eq(result->columns, known);
    cqlring_bytes cells[12];
    uint32_t count;
    ck_assert_int_eq(cqlring_result_rows(result, 0, cells, 4, &count, NULL), CQLRING_OK);
    expect_row(&cells[9], 3);
    cqlring_result_release(result);
    cqr_column_set_release(known);
}
END_TEST

START_TEST(description_left_out_and_not_known_is_refused)
{
    struct make how = {0};
    put_metadata(ROWS_NO_METADATA, NULL, NULL, "name");
    put_rows(4);
    must_refuse(&how, RESULT_ROWS, CQLRING_PROTOCOL, "3 columns without a description");

    struct column_set *known = example_columns();
    how = (struct make){.known = known};
    cqr_put_u32(&out, ROWS_NO_METADATA);
    cqr_put_u32(&out, 2); /* the statement has three */
    cqr_put_u32(&out, 0);
    must_refuse(&how, RESULT_ROWS, CQLRING_PROTOCOL, "2 columns without a description, the statement 3");
    cqr_column_set_release(known);

    struct column_set *none = cqr_column_set_create();
    how = (struct make){.known = none};
    must_refuse(&how, RESULT_ROWS, CQLRING_PROTOCOL, "without a description");
    cqr_column_set_release(none);
}
END_TEST

START_TEST(changed_description_is_handed_out_with_its_id)
{
    struct column_set *known = example_columns();
    struct make how = {.dialect = &v5, .known = known};
    put_metadata(ROWS_METADATA_CHANGED, NULL, "new id", "other");
    put_rows(2);
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    ck_assert_ptr_nonnull(how.changed);
    ck_assert_ptr_ne(how.changed, known);
    ck_assert_int_eq(how.changed_id.size, 6);
    ck_assert_int_eq(memcmp(how.changed_id.data, "new id", 6), 0);
    cqlring_result_release(result);
    cqlring_column column;
    ck_assert(cqr_column_set_public(how.changed, 1, &column));
    ck_assert_str_eq(column.name, "other");
    ck_assert(!cqr_column_set_public(how.changed, 3, &column));

    /* The next answer with it is read by the new set. */
    next_body();
    struct make next = {.dialect = &v5, .known = how.changed};
    put_metadata(0, NULL, NULL, "other");
    put_rows(2);
    result = must_make(&next, RESULT_ROWS);
    ck_assert_ptr_eq(result->columns, how.changed);
    cqlring_result_release(result);
    cqr_column_set_release(how.changed);
    cqr_column_set_release(known);
}
END_TEST

START_TEST(column_of_an_unknown_type_is_a_type_error)
{
    struct make how = {0};
    cqr_put_u32(&out, ROWS_GLOBAL_SPEC);
    cqr_put_u32(&out, 1);
    put_string("ks");
    put_string("t");
    put_string("c");
    cqr_put_u16(&out, 0x7777);
    cqr_put_u32(&out, 0);
    must_refuse(&how, RESULT_ROWS, CQLRING_TYPE, "type");
}
END_TEST

/* --- other kinds -------------------------------------------------------------------------------------------------- */

START_TEST(void_result_is_empty_in_every_respect)
{
    struct make how = {0};
    cqlring_result *result = must_make(&how, RESULT_VOID);
    cqlring_bytes bytes;
    cqlring_payload_entry entry;
    uint8_t trace_id[16];
    uint32_t count = 7;
    ck_assert_uint_eq(cqlring_result_row_count(result), 0);
    ck_assert_int_eq(cqlring_result_rows(result, 0, &bytes, 1, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_eq(cqlring_result_warnings(result, &bytes, 1), 0);
    ck_assert_uint_eq(cqlring_result_payload(result, &entry, 1), 0);
    ck_assert(!cqlring_result_trace_id(result, trace_id));
    ck_assert(!cqlring_result_schema_change(result, &bytes, &bytes, &bytes, &bytes));
    ck_assert_int_eq(cqlring_result_applied(result), -1); /* LW-03: a plain INSERT */
    cqlring_result_release(result);
}
END_TEST

START_TEST(schema_change_and_use_tell_what_changed)
{
    struct make how = {0};
    cqlring_bytes change, target, keyspace, name;
    put_string("CREATED");
    put_string("FUNCTION");
    put_string("ks");
    put_string("f");
    cqr_put_u16(&out, 1);
    put_string("int");
    cqlring_result *result = must_make(&how, RESULT_SCHEMA);
    ck_assert(cqlring_result_schema_change(result, &change, &target, &keyspace, &name));
    ck_assert(is_text(change, "CREATED") && is_text(target, "FUNCTION") && is_text(keyspace, "ks") && is_text(name, "f"));
    ck_assert(cqlring_result_schema_change(result, NULL, NULL, NULL, NULL));
    cqlring_result_release(result);

    next_body();
    how = (struct make){0};
    put_string("Mixed Case");
    result = must_make(&how, RESULT_KEYSPACE);
    ck_assert(cqlring_result_schema_change(result, &change, &target, &keyspace, &name));
    ck_assert(is_text(change, "USED") && is_text(target, "KEYSPACE") && is_text(keyspace, "Mixed Case") && is_text(name, ""));
    cqlring_result_release(result);
}
END_TEST

START_TEST(unknown_kind_and_torn_bodies_are_protocol_errors)
{
    struct make how = {0};
    must_refuse(&how, 77, CQLRING_PROTOCOL, "kind 77");
    how = (struct make){0};
    must_refuse(&how, RESULT_KEYSPACE, CQLRING_PROTOCOL, "malformed");
    how = (struct make){0};
    must_refuse(&how, RESULT_SCHEMA, CQLRING_PROTOCOL, "malformed");
    how = (struct make){0};
    must_refuse(&how, RESULT_ROWS, CQLRING_PROTOCOL, "malformed");
}
END_TEST

/* --- conditional statements --------------------------------------------------------------------------------------- */

/* columns: names, each of type boolean; cells: one row of sizes and a value. */
static int applied_of(uint32_t columns, const char *const *names, uint32_t rows, const int *cells)
{
    struct make how = {0};
    cqr_put_u32(&out, ROWS_GLOBAL_SPEC);
    cqr_put_u32(&out, columns);
    put_string("ks");
    put_string("t");
    for (uint32_t i = 0; i < columns; ++i) {
        put_string(names[i]);
        cqr_put_u16(&out, CQLRING_KIND_BOOLEAN);
    }
    cqr_put_u32(&out, rows);
    for (uint32_t i = 0; i < rows * columns; ++i) {
        if (cells[i] < 0) {
            cqr_put_u32(&out, UINT32_MAX);
        } else {
            cqr_put_u32(&out, 1);
            cqr_put_u8(&out, (uint8_t)cells[i]);
        }
    }
    cqlring_result *result = must_make(&how, RESULT_ROWS);
    int applied = cqlring_result_applied(result);
    cqlring_result_release(result);
    next_body();
    return applied;
}

START_TEST(applied_is_told_and_its_absence_too_LW_03)
{
    ck_assert_int_eq(applied_of(1, (const char *const[]){"[applied]"}, 1, (const int[]){1}), 1);
    ck_assert_int_eq(applied_of(1, (const char *const[]){"[applied]"}, 1, (const int[]){0}), 0);
    ck_assert_int_eq(applied_of(3, (const char *const[]){"[applied]", "a", "b"}, 2, (const int[]){0, 1, 1, 1, 1, 1}), 0);
    ck_assert_int_eq(applied_of(3, (const char *const[]){"a", "b", "[applied]"}, 1, (const int[]){0, -1, 1}), 1);
    ck_assert_int_eq(applied_of(1, (const char *const[]){"[applied]"}, 1, (const int[]){-1}), -1);
    ck_assert_int_eq(applied_of(1, (const char *const[]){"[applied]"}, 0, NULL), -1);
    ck_assert_int_eq(applied_of(2, (const char *const[]){"applied", "[Applied]"}, 1, (const int[]){1, 1}), -1);
    ck_assert_int_eq(cqlring_result_applied(NULL), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("result");
    TCase *tests = tcase_create("result");
    tcase_add_checked_fixture(tests, open_pool, close_pool);
    tcase_add_test(tests, columns_are_described_by_name_table_and_type);
    tcase_add_test(tests, rows_are_read_in_any_batches_and_from_any_row);
    tcase_add_test(tests, cells_are_slices_of_the_block_which_lives_as_long_as_the_result);
    tcase_add_test(tests, torn_cell_is_named_by_row_and_column_TY_32);
    tcase_add_test(tests, body_cut_anywhere_is_refused_or_torn_but_never_over_read);
    tcase_add_test(tests, rows_without_columns_are_counted_and_empty_PD_04);
    tcase_add_test(tests, paging_state_is_null_on_the_last_page_only);
    tcase_add_test(tests, same_description_again_is_not_decoded_again);
    tcase_add_test(tests, other_description_is_the_results_own);
    tcase_add_test(tests, description_is_reused_only_when_the_set_kept_its_bytes);
    tcase_add_test(tests, description_left_out_is_the_known_one);
    tcase_add_test(tests, description_left_out_and_not_known_is_refused);
    tcase_add_test(tests, changed_description_is_handed_out_with_its_id);
    tcase_add_test(tests, column_of_an_unknown_type_is_a_type_error);
    tcase_add_test(tests, void_result_is_empty_in_every_respect);
    tcase_add_test(tests, schema_change_and_use_tell_what_changed);
    tcase_add_test(tests, unknown_kind_and_torn_bodies_are_protocol_errors);
    tcase_add_test(tests, applied_is_told_and_its_absence_too_LW_03);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
