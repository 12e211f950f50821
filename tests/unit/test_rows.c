/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/rows.h"
#include "serialize/buf.h"

enum { COLUMNS = 3, ROWS = 7 };

static uint8_t data[4096];

/* Row r: an int, a text of r bytes, null in every second row. */
static uint32_t make_rows(uint32_t rows, uint32_t *row_ends)
{
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    for (uint32_t i = 0; i < rows; ++i) {
        cqr_put_u32(&writer, 4);
        cqr_put_u32(&writer, i);
        cqr_put_u32(&writer, i);
        for (uint32_t j = 0; j < i; ++j)
            cqr_put_u8(&writer, (uint8_t)('a' + i));
        cqr_put_u32(&writer, i % 2 == 0 ? 0xFFFFFFFFu : 0);
        if (row_ends != NULL)
            row_ends[i] = writer.size;
    }
    ck_assert(!writer.failed);
    return writer.size;
}

static void check_row(const cqlring_bytes *cells, uint32_t row)
{
    ck_assert_int_eq(cells[0].size, 4);
    ck_assert_uint_eq(cqr_load_u32(cells[0].data), row);
    ck_assert_int_eq(cells[1].size, (int32_t)row);
    ck_assert_ptr_nonnull(cells[1].data);
    for (uint32_t i = 0; i < row; ++i)
        ck_assert_uint_eq(((const uint8_t *)cells[1].data)[i], 'a' + row);
    ck_assert_int_eq(cells[2].size, row % 2 == 0 ? CQLRING_NULL : 0);
    ck_assert((cells[2].data == NULL) == (row % 2 == 0));
}

START_TEST(rows_come_in_order_whatever_the_capacity)
{
    uint32_t size = make_rows(ROWS, NULL);
    for (uint32_t capacity = 1; capacity <= ROWS + 1; ++capacity) {
        struct rows_cursor cursor;
        cqr_rows_init(&cursor, (cqlring_bytes){data, (int32_t)size}, COLUMNS, ROWS);
        cqlring_bytes cells[(ROWS + 1) * COLUMNS];
        uint32_t row = 0, count;
        do {
            ck_assert_int_eq(cqr_rows_next(&cursor, cells, capacity, &count), CQLRING_OK);
            ck_assert_uint_le(count, capacity);
            for (uint32_t i = 0; i < count; ++i)
                check_row(cells + i * COLUMNS, row++);
        } while (count > 0);
        ck_assert_uint_eq(row, ROWS);
        ck_assert_int_eq(cqr_rows_next(&cursor, cells, capacity, &count), CQLRING_OK);
        ck_assert_uint_eq(count, 0);
    }
}
END_TEST

/* Cut at every byte: the whole rows before the cut come, then CQLRING_PROTOCOL, again and again. */
START_TEST(torn_body_gives_its_whole_rows_and_then_an_error_that_stays)
{
    uint32_t ends[ROWS];
    uint32_t size = make_rows(ROWS, ends);
    for (uint32_t cut = 0; cut < size; ++cut) {
        uint8_t *torn = malloc(cut + 1);
        ck_assert_ptr_nonnull(torn);
        memcpy(torn, data, cut);
        torn = realloc(torn, cut + (cut == 0)); /* exactly what is there */
        ck_assert_ptr_nonnull(torn);
        uint32_t whole = 0;
        while (ends[whole] <= cut)
            ++whole;
        struct rows_cursor cursor;
        cqr_rows_init(&cursor, (cqlring_bytes){torn, (int32_t)cut}, COLUMNS, ROWS);
        cqlring_bytes cells[4 * COLUMNS];
        uint32_t row = 0, count;
        while (cqr_rows_next(&cursor, cells, 4, &count) == CQLRING_OK) {
            ck_assert_uint_gt(count, 0);
            for (uint32_t i = 0; i < count; ++i)
                check_row(cells + i * COLUMNS, row++);
        }
        ck_assert_uint_eq(row, whole);
        ck_assert_uint_eq(count, 0);
        ck_assert_int_eq(cqr_rows_next(&cursor, cells, 4, &count), CQLRING_PROTOCOL);
        free(torn);
    }
}
END_TEST

START_TEST(cell_larger_than_the_body_is_torn_not_read)
{
    static const uint32_t sizes[] = {5, 0x7FFFFFFF, 0x10000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        uint8_t body[8] = {0};
        cqr_store_u32(body, sizes[i]);
        struct rows_cursor cursor;
        cqr_rows_init(&cursor, (cqlring_bytes){body, sizeof body}, 1, 1);
        cqlring_bytes cell;
        uint32_t count;
        ck_assert_int_eq(cqr_rows_next(&cursor, &cell, 1, &count), CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(any_negative_size_is_null)
{
    static const uint32_t sizes[] = {0xFFFFFFFF, 0xFFFFFFFE, 0x80000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        uint8_t body[4];
        cqr_store_u32(body, sizes[i]);
        struct rows_cursor cursor;
        cqr_rows_init(&cursor, (cqlring_bytes){body, sizeof body}, 1, 1);
        cqlring_bytes cell;
        uint32_t count;
        ck_assert_int_eq(cqr_rows_next(&cursor, &cell, 1, &count), CQLRING_OK);
        ck_assert_uint_eq(count, 1);
        ck_assert_int_eq(cell.size, CQLRING_NULL);
        ck_assert_ptr_null(cell.data);
    }
}
END_TEST

START_TEST(pd_04_rows_without_columns_are_counted_and_nothing_is_read)
{
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, (cqlring_bytes){NULL, 0}, 0, 45);
    uint32_t rows = 0, count;
    do {
        ck_assert_int_eq(cqr_rows_next(&cursor, NULL, 10, &count), CQLRING_OK);
        rows += count;
    } while (count > 0);
    ck_assert_uint_eq(rows, 45);
    cqr_rows_init(&cursor, (cqlring_bytes){NULL, 0}, 0, 0);
    ck_assert_int_eq(cqr_rows_next(&cursor, NULL, 10, &count), CQLRING_OK);
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(no_rows_are_the_end_at_once)
{
    struct rows_cursor cursor;
    cqlring_bytes cells[2];
    uint32_t count = 9;
    cqr_rows_init(&cursor, (cqlring_bytes){data, 0}, 2, 0);
    ck_assert_int_eq(cqr_rows_next(&cursor, cells, 1, &count), CQLRING_OK);
    ck_assert_uint_eq(count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("rows");
    tcase_add_test(tcase, rows_come_in_order_whatever_the_capacity);
    tcase_add_test(tcase, torn_body_gives_its_whole_rows_and_then_an_error_that_stays);
    tcase_add_test(tcase, cell_larger_than_the_body_is_torn_not_read);
    tcase_add_test(tcase, any_negative_size_is_null);
    tcase_add_test(tcase, pd_04_rows_without_columns_are_counted_and_nothing_is_read);
    tcase_add_test(tcase, no_rows_are_the_end_at_once);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
