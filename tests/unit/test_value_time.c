/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in scalars: days, uuids, characters. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serialize/value.h"

static cqlring_bytes cell_of(const void *data, int32_t size)
{
    return (cqlring_bytes){.data = data, .size = size};
}

static const char *civil(int64_t raw)
{
    static char text[40];
    int32_t year;
    uint32_t month;
    uint32_t day;
    cqlring_date_civil((int32_t)((uint32_t)raw ^ 0x80000000), &year, &month, &day);
    snprintf(text, sizeof text, "%d-%02u-%02u", year, month, day);
    return text;
}

START_TEST(ty_04_every_date_has_a_day)
{
    ck_assert_str_eq(civil(0), "-5877641-06-23");
    ck_assert_str_eq(civil(UINT32_MAX), "5881580-07-11");
    ck_assert_str_eq(civil(0x80000000), "1970-01-01");
    ck_assert_str_eq(civil(0x7FFFFFFF), "1969-12-31");
    ck_assert_str_eq(civil(INT64_C(0x80000000) - 135140), "1600-01-01");
    ck_assert_str_eq(civil(INT64_C(0x80000000) + 120530), "2300-01-01");
    ck_assert_str_eq(civil(INT64_C(0x80000000) + 11016), "2000-02-29");
    ck_assert_str_eq(civil(INT64_C(0x80000000) - 719468), "0-03-01");
    ck_assert_str_eq(civil(INT64_C(0x80000000) - 719469), "0-02-29");
    ck_assert_str_eq(civil(INT64_C(0x80000000) - 719529), "-1-12-31");
}
END_TEST

/* A date and a time of day to seconds since 1970, with what the header says of both. */
START_TEST(ty_05_dates_before_1970_do_not_wrap)
{
    static const struct {
        const char *date, *time;
        int64_t seconds;
    } cases[] = {{"\x7F\xFF\xFF\xFF", "\0\0\x4E\x94\x91\x4E\xFF\xFF", -1},
                 {"\0\0\0\0", "\0\0\0\0\0\0\0\0", INT64_C(-185542587187200)},
                 {"\xFF\xFF\xFF\xFF", "\0\0\x4E\x94\x91\x4E\xFF\xFF", INT64_C(185542587187199)}};
    for (size_t i = 0; i < 3; i++) {
        int64_t date = 0;
        int64_t time = 0;
        ck_assert_int_eq(cqlring_get_int(cell_of(cases[i].date, 4), 4, &date), CQLRING_OK);
        ck_assert_int_eq(cqlring_get_int(cell_of(cases[i].time, 8), 8, &time), CQLRING_OK);
        int32_t days = (int32_t)((uint32_t)date ^ 0x80000000);
        ck_assert_int_eq(days * INT64_C(86400) + time / 1000000000, cases[i].seconds);
    }
}
END_TEST

START_TEST(uuids_are_parsed_and_formatted)
{
    uint8_t uuid[16];
    char text[37];
    ck_assert_int_eq(cqlring_uuid_parse(cqlring_text("550E8400-e29b-41d4-A716-446655440000"), uuid),
                     CQLRING_OK);
    cqlring_uuid_format(uuid, text);
    ck_assert_str_eq(text, "550e8400-e29b-41d4-a716-446655440000");
    static const char *const broken[] = {"",
                                         "550e8400-e29b-41d4-a716-44665544000",
                                         "550e8400-e29b-41d4-a716-4466554400000",
                                         "550e8400e29b-41d4-a716-4466-55440000",
                                         "550e8400-e29b-41d4-a716-44665544000g",
                                         "550e8400+e29b-41d4-a716-446655440000",
                                         "{50e8400-e29b-41d4-a716-446655440000"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        ck_assert_int_eq(cqlring_uuid_parse(cqlring_text(broken[i]), uuid), CQLRING_TYPE);
    cqlring_uuid_format(uuid, text);
    ck_assert_str_eq(text, "550e8400-e29b-41d4-a716-446655440000");
}
END_TEST

START_TEST(ty_27_uuid_times_at_the_extremes_are_defined)
{
    const int64_t epoch = INT64_C(0x01B21DD213814000);
    const int64_t good[] = {
        0, -1, 1, -epoch, (INT64_C(1) << 60) - 1 - epoch, INT64_C(17000000000000000)};
    const int64_t bad[] = {INT64_MAX, INT64_MIN, -epoch - 1, (INT64_C(1) << 60) - epoch};
    uint8_t least[16];
    uint8_t greatest[16];
    int64_t time = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_int_eq(cqlring_uuid_bound(good[i], false, least), CQLRING_OK);
        ck_assert_int_eq(cqlring_uuid_bound(good[i], true, greatest), CQLRING_OK);
        ck_assert_int_eq(cqlring_uuid_time(least, &time), CQLRING_OK);
        ck_assert_int_eq(time, good[i]);
        ck_assert_int_eq(cqlring_uuid_time(greatest, &time), CQLRING_OK);
        ck_assert_int_eq(time, good[i]);
        ck_assert_mem_eq(least + 8, "\x80\x80\x80\x80\x80\x80\x80\x80", 8);
        ck_assert_mem_eq(greatest + 8, "\x7F\x7F\x7F\x7F\x7F\x7F\x7F\x7F", 8);
        ck_assert_int_eq(
            cqlring_value_check(cqr_type_scalar(CQLRING_KIND_TIMEUUID), cell_of(least, 16)),
            CQLRING_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(cqlring_uuid_bound(bad[i], true, least), CQLRING_TYPE);
    ck_assert_int_eq(
        cqlring_uuid_parse(cqlring_text("550e8400-e29b-41d4-a716-446655440000"), least),
        CQLRING_OK);
    ck_assert_int_eq(cqlring_uuid_time(least, &time), CQLRING_TYPE);
    ck_assert_int_eq(
        cqlring_uuid_parse(cqlring_text("ffffffff-ffff-1fff-bfff-ffffffffffff"), least),
        CQLRING_OK);
    ck_assert_int_eq(cqlring_uuid_time(least, &time), CQLRING_OK);
    ck_assert_int_eq(time, (INT64_C(1) << 60) - 1 - epoch);
}
END_TEST

START_TEST(utf8_is_checked_strictly)
{
    static const char *const good[] = {"",
                                       "abc",
                                       "\xC2\x80",
                                       "\xDF\xBF",
                                       "\xE0\xA0\x80",
                                       "\xED\x9F\xBF",
                                       "\xEE\x80\x80",
                                       "\xF0\x90\x80\x80",
                                       "\xF4\x8F\xBF\xBF",
                                       "0123456789abcdef\xC3\xA9"
                                       "0123456789"};
    static const char *const bad[] = {"\x80",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xC2",
                                      "\xC2\x20",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xE2\x82",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xFF",
                                      "01234567\xE2\x28\xA1",
                                      "\xF0\x90\x80"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert(cqr_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert(!cqr_is_utf8(bad[i], strlen(bad[i])));
    char text[40];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'x', sizeof text);
        ck_assert(cqr_is_ascii(text, sizeof text));
        text[at] = (char)0x80;
        ck_assert(!cqr_is_ascii(text, sizeof text));
        ck_assert(cqr_is_ascii(text, at));
    }
}
END_TEST

/* TY-22: nobody scales what is given for a timestamp. */
START_TEST(ty_22_a_plain_integer_for_a_timestamp_is_its_milliseconds)
{
    static const struct {
        int64_t given;
        const char *bytes;
    } cases[] = {{1, "\0\0\0\0\0\0\0\1"},
                 {-1, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"},
                 {INT64_C(1700000000123), "\0\0\x01\x8B\xCF\xE5\x68\x7B"},
                 {INT64_MIN, "\x80\0\0\0\0\0\0\0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t room[8];
        cqlring_writer writer;
        cqlring_bytes cell;
        int64_t back = 0;
        cqlring_writer_init(&writer, room, sizeof room);
        cqlring_put_int(&writer, cases[i].given, 8);
        ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
        ck_assert_int_eq(cell.size, 8);
        ck_assert_mem_eq(cell.data, cases[i].bytes, 8);
        ck_assert_int_eq(cqlring_get_int(cell, 8, &back), CQLRING_OK);
        ck_assert_int_eq(back, cases[i].given);
    }
}
END_TEST

/* TY-23: whatever the zone of the process, and on both sides of its clock changes, a time is the same bytes and the same day. */
START_TEST(ty_23_no_time_depends_on_the_zone_of_the_process)
{
    static const char *const zones[] = {"UTC0", "IST-5:30", "CET-1CEST,M3.5.0,M10.5.0/3", "EST5EDT,M3.2.0,M11.1.0", "XXX+14"};
    /* 2023-10-29 00:30 and 01:30 UTC are both 02:30 in Berlin */
    static const int64_t times_ms[] = {0, -1, INT64_C(1698539400000), INT64_C(1698543000000), INT64_C(253402300799999)};
    enum { ZONES = sizeof zones / sizeof zones[0], TIMES = sizeof times_ms / sizeof times_ms[0] };
    static char seen[ZONES][TIMES][200];
    for (size_t zone = 0; zone < ZONES; zone++) {
        ck_assert_int_eq(setenv("TZ", zones[zone], 1), 0);
        tzset();
        for (size_t i = 0; i < TIMES; i++) {
            uint8_t room[8], uuid[16];
            cqlring_writer writer;
            cqlring_bytes cell;
            int64_t back = 0, ticks = 0;
            cqlring_writer_init(&writer, room, sizeof room);
            cqlring_put_int(&writer, times_ms[i], 8);
            ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
            ck_assert_int_eq(cqlring_get_int(cell, 8, &back), CQLRING_OK);
            ck_assert_int_eq(cqlring_uuid_bound(times_ms[i] % INT64_C(100000000000000) * 10000, false, uuid), CQLRING_OK);
            ck_assert_int_eq(cqlring_uuid_time(uuid, &ticks), CQLRING_OK);
            ck_assert_int_eq(ticks, times_ms[i] % INT64_C(100000000000000) * 10000);
            char text[37];
            cqlring_uuid_format(uuid, text);
            int64_t days = times_ms[i] / 86400000 - (times_ms[i] % 86400000 < 0);
            snprintf(seen[zone][i], sizeof seen[zone][i], "%lld %s %s", (long long)back, text, civil((int64_t)((uint32_t)days ^ 0x80000000)));
            ck_assert_str_eq(seen[zone][i], seen[0][i]);
        }
    }
    ck_assert_ptr_nonnull(strstr(seen[0][1], "1969-12-31"));
    ck_assert_ptr_nonnull(strstr(seen[0][2], "2023-10-29"));
    ck_assert_ptr_nonnull(strstr(seen[0][4], "9999-12-31"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value_time");
    TCase *test = tcase_create("value_time");
    tcase_add_test(test, ty_04_every_date_has_a_day);
    tcase_add_test(test, ty_05_dates_before_1970_do_not_wrap);
    tcase_add_test(test, ty_22_a_plain_integer_for_a_timestamp_is_its_milliseconds);
    tcase_add_test(test, ty_23_no_time_depends_on_the_zone_of_the_process);
    tcase_add_test(test, uuids_are_parsed_and_formatted);
    tcase_add_test(test, ty_27_uuid_times_at_the_extremes_are_defined);
    tcase_add_test(test, utf8_is_checked_strictly);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
