/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"

START_TEST(numbers_are_big_endian_both_ways)
{
    uint8_t data[15];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    cqr_put_u8(&writer, 0x01);
    cqr_put_u16(&writer, 0x0203);
    cqr_put_u32(&writer, 0x04050607);
    cqr_put_u64(&writer, UINT64_C(0x08090A0B0C0D0E0F));
    ck_assert(!writer.failed);
    ck_assert_uint_eq(writer.size, 15);
    for (uint8_t i = 0; i < 15; i++)
        ck_assert_uint_eq(data[i], i + 1);
    struct reader reader;
    cqr_reader_init(&reader, data, writer.size);
    ck_assert_uint_eq(cqr_get_u8(&reader), 0x01);
    ck_assert_uint_eq(cqr_get_u16(&reader), 0x0203);
    ck_assert_int_eq(cqr_get_i32(&reader), 0x04050607);
    ck_assert_uint_eq(cqr_get_u64(&reader), UINT64_C(0x08090A0B0C0D0E0F));
    ck_assert_uint_eq(cqr_reader_left(&reader), 0);
    ck_assert(!reader.failed);
}
END_TEST

START_TEST(what_does_not_fit_fails_for_good_and_writes_nothing)
{
    uint8_t data[8];
    memset(data, 0xEE, sizeof data);
    struct writer writer;
    cqr_writer_init(&writer, data, 5);
    cqr_put_u32(&writer, 1);
    cqr_put_u16(&writer, 2);
    ck_assert(writer.failed);
    cqr_put_u8(&writer, 3); /* would fit, but the writer has failed */
    ck_assert_uint_eq(writer.size, 4);
    for (int i = 4; i < 8; i++)
        ck_assert_uint_eq(data[i], 0xEE);
    ck_assert_ptr_null(cqr_put_room(&writer, 0));
}
END_TEST

START_TEST(what_is_not_there_fails_for_good_and_reads_as_zero)
{
    const uint8_t data[] = {0, 1, 2};
    struct reader reader;
    cqr_reader_init(&reader, data, sizeof data);
    ck_assert_uint_eq(cqr_get_u32(&reader), 0);
    ck_assert(reader.failed);
    ck_assert_uint_eq(cqr_get_u8(&reader), 0);
    ck_assert_uint_eq(cqr_reader_left(&reader), 0);
    ck_assert_ptr_null(cqr_get_raw(&reader, 0));
}
END_TEST

START_TEST(a_cut_is_noticed_at_every_byte)
{
    uint8_t data[64];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    cqr_put_string(&writer, cqlring_text("keyspace"));
    cqr_put_bytes(&writer, cqlring_text("value"));
    cqr_put_u8(&writer, 7);
    for (uint32_t cut = 0; cut <= writer.size; cut++) {
        uint8_t *exact = malloc(cut > 0 ? cut : 1); /* so that a sanitizer sees a step beyond */
        memcpy(exact, data, cut);
        struct reader reader;
        cqr_reader_init(&reader, exact, cut);
        cqlring_bytes text = cqr_get_string(&reader);
        cqlring_bytes value = cqr_get_bytes(&reader);
        cqr_get_u8(&reader);
        ck_assert_int_eq(reader.failed, cut < writer.size);
        ck_assert(text.size == 0 || (text.size == 8 && memcmp(text.data, "keyspace", 8) == 0));
        ck_assert(value.size == CQLRING_NULL ||
                  (value.size == 5 && memcmp(value.data, "value", 5) == 0));
        free(exact);
    }
}
END_TEST

START_TEST(a_length_of_two_gigabytes_does_not_wrap)
{
    const uint8_t data[] = {0x7F, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4};
    struct reader reader;
    cqr_reader_init(&reader, data, sizeof data);
    cqlring_bytes value = cqr_get_bytes(&reader);
    ck_assert(reader.failed);
    ck_assert_int_eq(value.size, CQLRING_NULL);
    struct writer writer;
    uint8_t room[4];
    cqr_writer_init(&writer, room, sizeof room);
    cqr_put_raw(&writer, data, UINT32_MAX);
    ck_assert(writer.failed);
}
END_TEST

START_TEST(any_negative_length_reads_as_null)
{
    const uint8_t data[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE,
                            0x80, 0,    0,    0,    0,    0,    0,    0};
    struct reader reader;
    cqr_reader_init(&reader, data, sizeof data);
    for (int i = 0; i < 3; i++) {
        cqlring_bytes value = cqr_get_bytes(&reader);
        ck_assert_int_eq(value.size, CQLRING_NULL);
        ck_assert_ptr_null(value.data);
    }
    cqlring_bytes empty = cqr_get_bytes(&reader);
    ck_assert_int_eq(empty.size, 0);
    ck_assert_ptr_nonnull(empty.data);
    ck_assert(!reader.failed);
}
END_TEST

START_TEST(a_string_over_65535_bytes_is_refused)
{
    static uint8_t data[70000];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    cqr_put_string(&writer, (cqlring_bytes){.data = data, .size = 65536});
    ck_assert(writer.failed);
    cqr_writer_init(&writer, data, sizeof data);
    cqr_put_string(&writer, (cqlring_bytes){.data = data, .size = CQLRING_NULL});
    ck_assert(writer.failed);
}
END_TEST

/* Bind (int 1, empty, int 3): the empty value must not vanish and shift the others. */
START_TEST(nv_05_an_empty_value_between_others_keeps_its_place)
{
    static const uint8_t wanted[] = {0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3};
    static const uint8_t one[] = {0, 0, 0, 1};
    static const uint8_t three[] = {0, 0, 0, 3};
    const cqlring_bytes cells[] = {{one, 4}, {"", 0}, {three, 4}};
    uint8_t data[64];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    for (int i = 0; i < 3; i++)
        cqr_put_bytes(&writer, cells[i]);
    ck_assert_uint_eq(writer.size, sizeof wanted);
    ck_assert_mem_eq(data, wanted, sizeof wanted);
}
END_TEST

START_TEST(null_and_unset_are_lengths_alone)
{
    static const uint8_t wanted[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE};
    uint8_t data[8];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    cqr_put_bytes(&writer, (cqlring_bytes){.size = CQLRING_NULL});
    cqr_put_bytes(&writer, (cqlring_bytes){.size = CQLRING_UNSET});
    ck_assert(!writer.failed);
    ck_assert_mem_eq(data, wanted, sizeof wanted);
}
END_TEST

int main(void)
{
    TCase *test = tcase_create("buf");
    tcase_add_test(test, numbers_are_big_endian_both_ways);
    tcase_add_test(test, what_does_not_fit_fails_for_good_and_writes_nothing);
    tcase_add_test(test, what_is_not_there_fails_for_good_and_reads_as_zero);
    tcase_add_test(test, a_cut_is_noticed_at_every_byte);
    tcase_add_test(test, a_length_of_two_gigabytes_does_not_wrap);
    tcase_add_test(test, any_negative_length_reads_as_null);
    tcase_add_test(test, a_string_over_65535_bytes_is_refused);
    tcase_add_test(test, nv_05_an_empty_value_between_others_keeps_its_place);
    tcase_add_test(test, null_and_unset_are_lengths_alone);
    Suite *suite = suite_create("buf");
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
