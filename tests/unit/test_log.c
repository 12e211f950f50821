/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <string.h>

#include "driver/log.h"
#include "serialize/mem.h"

struct heard {
    int count;
    cqlring_log_level level;
    char line[4096];
};

static void hear(cqlring_log_level level, const char *line, void *context)
{
    struct heard *heard = context;
    heard->count++;
    heard->level = level;
    ck_assert_uint_lt(strlen(line), sizeof heard->line);
    strcpy(heard->line, line);
}

START_TEST(line_reaches_the_callback_with_its_level)
{
    struct heard heard = {0};
    struct log log = {.call = hear, .context = &heard, .level = CQLRING_LOG_INFO};
    cqr_log(&log, CQLRING_LOG_WARN, "%s is %s", "10.0.0.3:9042", "down");
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(heard.level, CQLRING_LOG_WARN);
    ck_assert_str_eq(heard.line, "10.0.0.3:9042 is down");
}
END_TEST

START_TEST(lines_above_the_level_are_not_made)
{
    struct heard heard = {0};
    struct log log = {.call = hear, .context = &heard, .level = CQLRING_LOG_WARN};
    cqr_log(&log, CQLRING_LOG_INFO, "x");
    cqr_log(&log, CQLRING_LOG_DEBUG, "x");
    ck_assert_int_eq(heard.count, 0);
    cqr_log(&log, CQLRING_LOG_ERROR, "x");
    ck_assert_int_eq(heard.count, 1);
}
END_TEST

START_TEST(nobody_listening_is_fine)
{
    struct log log = {.level = CQLRING_LOG_DEBUG};
    cqr_log(&log, CQLRING_LOG_ERROR, "x");
    ck_assert(!cqr_log_on(&log, CQLRING_LOG_ERROR));
}
END_TEST

START_TEST(line_is_one_line_whatever_a_server_says)
{
    struct heard heard = {0};
    struct log log = {.call = hear, .context = &heard, .level = CQLRING_LOG_WARN};
    cqr_log(&log, CQLRING_LOG_WARN, "%s", "a\nb\r\tc\x1B[1m\x7F caf\xC3\xA9");
    ck_assert_str_eq(heard.line, "a b  c [1m  caf\xC3\xA9");
}
END_TEST

START_TEST(long_line_is_cut_at_a_character)
{
    struct heard heard = {0};
    struct log log = {.call = hear, .context = &heard, .level = CQLRING_LOG_WARN};
    char text[4000] = "";
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xE2\x82\xAC", 3);
    cqr_log(&log, CQLRING_LOG_WARN, "%s", text);
    ck_assert_uint_gt(strlen(heard.line), 900);
    ck_assert_uint_eq(strlen(heard.line) % 3, 0);
}
END_TEST

START_TEST(logging_needs_no_memory)
{
    struct heard heard = {0};
    struct log log = {.call = hear, .context = &heard, .level = CQLRING_LOG_WARN};
    cqr_mem_fail_at(1, 1);
    cqr_log(&log, CQLRING_LOG_WARN, "out of memory");
    cqr_mem_fail_at(0, 0);
    ck_assert_int_eq(heard.count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, line_reaches_the_callback_with_its_level);
    tcase_add_test(tests, lines_above_the_level_are_not_made);
    tcase_add_test(tests, nobody_listening_is_fine);
    tcase_add_test(tests, line_is_one_line_whatever_a_server_says);
    tcase_add_test(tests, long_line_is_cut_at_a_character);
    tcase_add_test(tests, logging_needs_no_memory);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
