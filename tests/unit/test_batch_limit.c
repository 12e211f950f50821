/* SPDX-License-Identifier: Apache-2.0 */

/* What is learned of batches that are too large, against a server whose limit is known, in virtual time. */

#include <check.h>
#include <stdlib.h>

#include "driver/batch_limit.h"

enum { WANTED = 32768 };
static const int64_t minute_us = 60000000;

static struct batch_limit limit;
static int64_t now_us;

/* As long as this, a full batch each second; how many of them the server refused. */
static uint32_t play(int64_t minutes, uint32_t server_takes, uint32_t *last)
{
    uint32_t refused = 0;
    for (int64_t end = now_us + minutes * minute_us; now_us < end; now_us += 1000000) {
        uint32_t bytes, is;
        cqr_batch_limit_ask(&limit, WANTED, now_us, &bytes);
        ck_assert_uint_le(bytes, WANTED);
        if (bytes > server_takes) {
            refused++;
            cqr_batch_limit_refused(&limit, bytes, now_us, &is);
        }
        *last = bytes;
    }
    return refused;
}

static void begin(void)
{
    limit = (struct batch_limit){0};
    now_us = 1000;
}

START_TEST(what_nobody_refused_is_what_was_wanted)
{
    uint32_t last;
    begin();
    ck_assert_uint_eq(play(10, UINT32_MAX, &last), 0);
    ck_assert_uint_eq(last, WANTED);
}
END_TEST

START_TEST(it_is_never_below_the_least_that_can_be_asked_for)
{
    uint32_t bytes;
    begin();
    for (uint32_t size = WANTED; size > 0; size /= 2)
        cqr_batch_limit_refused(&limit, size, now_us, &bytes);
    ck_assert_uint_eq(bytes, BATCH_LIMIT_FLOOR);
    ck_assert(!cqr_batch_limit_refused(&limit, 1, now_us, &bytes)); /* not lower than it was: nothing to say */
    ck_assert(!cqr_batch_limit_ask(&limit, WANTED, now_us, &bytes));
    ck_assert_uint_eq(bytes, BATCH_LIMIT_FLOOR);
}
END_TEST

START_TEST(a_stray_refusal_is_made_good_within_minutes)
{
    uint32_t bytes, last;
    begin();
    for (uint32_t size = WANTED; size > 500; size /= 2)
        cqr_batch_limit_refused(&limit, size, now_us, &bytes);
    ck_assert_uint_eq(play(1, UINT32_MAX, &last), 0);
    ck_assert_uint_eq(last, 256);
    ck_assert_uint_eq(play(7, UINT32_MAX, &last), 0); /* 256 × 2⁷ */
    ck_assert_uint_eq(last, WANTED);
}
END_TEST

START_TEST(a_limit_that_is_meant_is_tried_ever_more_seldom)
{
    uint32_t last;
    begin();
    ck_assert_uint_eq(play(1, 20000, &last), 1);
    ck_assert_uint_eq(last, WANTED / 2);
    uint32_t hour = play(60, 20000, &last), day = play(24 * 60, 20000, &last), next = play(24 * 60, 20000, &last);
    ck_assert_uint_ge(hour, 4);
    ck_assert_uint_le(hour, 6);   /* after 1, 2, 4, 8, 16, … minutes */
    ck_assert_uint_le(day, 26);
    ck_assert_uint_ge(next, 23);  /* an hour at most: it is tried for ever */
    ck_assert_uint_le(next, 25);
    ck_assert_uint_eq(last, WANTED / 2);
    /* the server was given a larger one: so are batches, within the hour */
    ck_assert_uint_eq(play(61, UINT32_MAX, &last), 0);
    ck_assert_uint_eq(last, WANTED);
}
END_TEST

START_TEST(several_refused_at_once_are_one_lesson)
{
    uint32_t bytes, last;
    begin();
    for (int lesson = 0; lesson < 2; lesson++) {
        for (int i = 0; i < 50; i++)
            ck_assert_int_eq(cqr_batch_limit_refused(&limit, WANTED, now_us, &bytes), i == 0);
        ck_assert_uint_eq(bytes, WANTED / 2);
        ck_assert_uint_eq(play(lesson == 0 ? 1 : 2, WANTED / 2, &last), 0); /* the pause is doubled once */
        ck_assert(cqr_batch_limit_ask(&limit, WANTED, now_us, &bytes));
        ck_assert_uint_eq(bytes, WANTED);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_limit");
    TCase *tcase = tcase_create("batch_limit");
    tcase_add_test(tcase, what_nobody_refused_is_what_was_wanted);
    tcase_add_test(tcase, it_is_never_below_the_least_that_can_be_asked_for);
    tcase_add_test(tcase, a_stray_refusal_is_made_good_within_minutes);
    tcase_add_test(tcase, a_limit_that_is_meant_is_tried_ever_more_seldom);
    tcase_add_test(tcase, several_refused_at_once_are_one_lesson);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
