/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <string.h>

#include "driver/failure.h"
#include "serialize/mem.h"

static int64_t live_before;

static void remember_memory(void)
{
    live_before = cqr_mem_live_count();
}

static void expect_no_leak(void)
{
    ck_assert_int_eq(cqr_mem_live_count(), live_before);
}

START_TEST(failure_carries_status_and_text)
{
    struct failure *failure = cqr_failure_make(CQLRING_TIMEOUT, "EXECUTE to %s: no answer in %d ms", "10.0.0.3:9042", 2000);
    ck_assert_int_eq(failure->error.status, CQLRING_TIMEOUT);
    ck_assert_str_eq(failure->error.message, "EXECUTE to 10.0.0.3:9042: no answer in 2000 ms");
    ck_assert_int_eq(failure->error.attempts, 0);
    ck_assert(!failure->has_body);
    ck_assert(!cqr_failure_is_static(failure));
    cqr_failure_free(&failure->error);
}
END_TEST

START_TEST(failure_without_memory_is_a_static_one_of_its_kind_and_may_be_freed)
{
    for (int status = 1; status < 16; status++)
        for (uint8_t phase = 0; phase < 3; phase++)
            for (uint8_t maybe = 0; maybe < 2; maybe++) {
                cqlring_error error = {.status = (cqlring_status)status, .phase = phase, .may_have_been_applied = maybe};
                cqr_mem_fail_at(1, 0);
                struct failure *failure = cqr_failure_copy(&error);
                cqr_mem_fail_at(0, 0);
                ck_assert(cqr_failure_is_static(failure));
                ck_assert_int_eq(failure->error.status, status);
                ck_assert_uint_eq(failure->error.phase, phase);
                ck_assert_uint_eq(failure->error.may_have_been_applied, maybe);
                ck_assert_ptr_nonnull(strstr(failure->error.message, cqlring_status_text((cqlring_status)status)));
                ck_assert_ptr_nonnull(strstr(failure->error.message, "out of memory"));
                ck_assert_ptr_eq(failure, cqr_failure_spare((cqlring_status)status, phase, maybe != 0));
                cqr_failure_free(&failure->error);
            }
    cqr_mem_fail_at(1, 0);
    struct failure *failure = cqr_failure_make(CQLRING_TIMEOUT, "no answer");
    cqr_mem_fail_at(0, 0);
    ck_assert(cqr_failure_is_static(failure));
    ck_assert_int_eq(failure->error.status, CQLRING_TIMEOUT);
    cqr_failure_free(NULL);
    /* an application's error may say anything */
    const cqlring_error odd[] = {{.status = CQLRING_OK}, {.status = (cqlring_status)16}, {.status = (cqlring_status)-1}, {.status = CQLRING_TYPE, .phase = 3}};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        cqr_mem_fail_at(1, 0);
        failure = cqr_failure_copy(&odd[i]);
        cqr_mem_fail_at(0, 0);
        ck_assert(cqr_failure_is_static(failure));
        ck_assert_int_eq(failure->error.status, i == 3 ? CQLRING_TYPE : CQLRING_NO_MEMORY);
        ck_assert_uint_eq(failure->error.phase, CQLRING_NOT_SENT);
    }
}
END_TEST

START_TEST(failure_gives_its_block_back)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    struct block *block = cqr_block_take(pool, 100);
    struct failure *failure = cqr_failure_make(CQLRING_SERVER, "x");
    failure->block = cqr_block_retain(block);
    ck_assert(!cqr_block_is_unshared(block));
    cqr_failure_free(&failure->error);
    ck_assert(cqr_block_is_unshared(block));
    cqr_block_release(block);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(copy_is_of_any_error_and_ends_its_texts)
{
    cqlring_error error = {.status = CQLRING_INVALID, .server_code = 7, .attempts = 3, .phase = CQLRING_SENT};
    memset(error.message, 'm', sizeof error.message);
    memset(error.node, 'n', sizeof error.node);
    struct failure *copy = cqr_failure_copy(&error);
    ck_assert_int_eq(copy->error.status, CQLRING_INVALID);
    ck_assert_int_eq(copy->error.server_code, 7);
    ck_assert_int_eq(copy->error.attempts, 3);
    ck_assert_uint_eq(strlen(copy->error.message), sizeof error.message - 1);
    ck_assert_uint_eq(strlen(copy->error.node), sizeof error.node - 1);
    cqr_failure_free(&copy->error);
}
END_TEST

START_TEST(error_may_be_null_and_the_status_comes_back)
{
    ck_assert_int_eq(cqr_error(NULL, CQLRING_FULL, "%d", 1), CQLRING_FULL);
    cqlring_error error;
    memset(&error, 0xFF, sizeof error);
    ck_assert_int_eq(cqr_error(&error, CQLRING_FULL, "%d of %d", 1, 2), CQLRING_FULL);
    ck_assert_int_eq(error.status, CQLRING_FULL);
    ck_assert_str_eq(error.message, "1 of 2");
    ck_assert_str_eq(error.node, "");
    ck_assert_int_eq(error.server_code, 0);
    ck_assert_int_eq(error.may_have_been_applied, 0);
}
END_TEST

START_TEST(long_text_is_cut_at_a_character)
{
    static const char *characters[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    enum { ROOM = sizeof((cqlring_error *)0)->message };
    for (size_t kind = 0; kind < 4; ++kind) {
        size_t width = strlen(characters[kind]);
        for (size_t shift = 0; shift < 8; ++shift) {
            char text[2 * ROOM] = "";
            memset(text, '.', shift);
            for (size_t at = shift; at + width < sizeof text; at += width)
                memcpy(text + at, characters[kind], width);
            cqlring_error error;
            (void)cqr_error(&error, CQLRING_SERVER, "%s", text);
            size_t size = strlen(error.message);
            ck_assert_uint_lt(size, ROOM);
            ck_assert_uint_ge(size, ROOM - width);
            ck_assert_uint_eq((size - shift) % width, 0);
            ck_assert_int_eq(memcmp(error.message, text, size), 0);
        }
    }
}
END_TEST

START_TEST(text_that_is_no_utf8_is_kept)
{
    char text[1000];
    memset(text, 0x80, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cqlring_error error;
    (void)cqr_error(&error, CQLRING_SERVER, "%s", text);
    ck_assert_uint_eq(strlen(error.message), sizeof error.message - 1);
    (void)cqr_error(&error, CQLRING_SERVER, "%s", "\xE2\x82");
    ck_assert_str_eq(error.message, "\xE2\x82");
}
END_TEST

START_TEST(durations_come_in_the_unit_that_fits_them)
{
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {{0, "0 s"},           {1, "1 µs"},           {999, "999 µs"},    {1000, "1 ms"},       {1001, "1.001 ms"},
                 {1500, "1.5 ms"},     {1999999, "1.999 s"},  {10050, "10.05 ms"}, {999999, "999.999 ms"}, {1000000, "1 s"},
                 {1050000, "1.05 s"},  {12000000, "12 s"},    {86400000000, "86400 s"}, {-1, "-1 µs"},   {-2500, "-2.5 ms"},
                 {INT64_MAX, "9223372036854.775 s"}, {INT64_MIN, "-9223372036854.775 s"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        ck_assert_str_eq(cqr_duration(cases[i].us).text, cases[i].text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("failure");
    TCase *tests = tcase_create("failure");
    tcase_add_checked_fixture(tests, remember_memory, expect_no_leak);
    tcase_add_test(tests, failure_carries_status_and_text);
    tcase_add_test(tests, failure_without_memory_is_a_static_one_of_its_kind_and_may_be_freed);
    tcase_add_test(tests, failure_gives_its_block_back);
    tcase_add_test(tests, copy_is_of_any_error_and_ends_its_texts);
    tcase_add_test(tests, error_may_be_null_and_the_status_comes_back);
    tcase_add_test(tests, long_text_is_cut_at_a_character);
    tcase_add_test(tests, text_that_is_no_utf8_is_kept);
    tcase_add_test(tests, durations_come_in_the_unit_that_fits_them);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
