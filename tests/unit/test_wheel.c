/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>

#include "driver/wheel.h"

/* A small generator of our own, so that a failing seed is the same everywhere. */
static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint32_t length(const struct timer *timer)
{
    uint32_t count = 0;
    for (; timer != NULL; timer = timer->next)
        count++;
    return count;
}

static struct wheel wheel;

START_TEST(empty_wheel_never_wakes)
{
    cqr_wheel_init(&wheel, 123456789);
    ck_assert_int_eq(cqr_wheel_next(&wheel), INT64_MAX);
    ck_assert_ptr_null(cqr_wheel_expire(&wheel, INT64_MAX - 1));
    struct timer timer = {0};
    cqr_wheel_disarm(&wheel, &timer);
    cqr_wheel_arm(&wheel, &timer, 200000000);
    cqr_wheel_disarm(&wheel, &timer);
    ck_assert_int_eq(cqr_wheel_next(&wheel), INT64_MAX);
    ck_assert_uint_eq(wheel.count, 0);
}
END_TEST

START_TEST(timer_fires_within_a_tick_and_never_early)
{
    for (int64_t deadline = 1000000; deadline < 1000000 + 3 * WHEEL_TICK_US; deadline += 37) {
        cqr_wheel_init(&wheel, 999000);
        struct timer timer = {0};
        cqr_wheel_arm(&wheel, &timer, deadline);
        int64_t next = cqr_wheel_next(&wheel);
        ck_assert_int_gt(next, deadline);
        ck_assert_int_le(next, deadline + WHEEL_TICK_US);
        ck_assert_ptr_null(cqr_wheel_expire(&wheel, next - 1));
        ck_assert_ptr_eq(cqr_wheel_expire(&wheel, next), &timer);
        ck_assert_ptr_null(timer.link);
        ck_assert_ptr_null(timer.next);
    }
}
END_TEST

START_TEST(deadline_in_the_past_fires_at_the_next_expire)
{
    cqr_wheel_init(&wheel, 50000000);
    struct timer past = {0}, zero = {0}, negative = {0};
    cqr_wheel_arm(&wheel, &past, 40000000);
    cqr_wheel_arm(&wheel, &zero, 0);
    cqr_wheel_arm(&wheel, &negative, -7);
    ck_assert_int_le(cqr_wheel_next(&wheel), 50000000);
    ck_assert_uint_eq(length(cqr_wheel_expire(&wheel, 50000000)), 3);
}
END_TEST

START_TEST(timer_many_turns_away_does_not_wake_once_per_turn)
{
    cqr_wheel_init(&wheel, 1000000);
    struct timer heartbeats[3] = {0};
    for (int i = 0; i < 3; ++i)
        cqr_wheel_arm(&wheel, &heartbeats[i], 31000000 + i * 50000);
    int wakes = 0;
    uint32_t fired = 0;
    while (wheel.count > 0) {
        fired += length(cqr_wheel_expire(&wheel, cqr_wheel_next(&wheel)));
        wakes++;
    }
    ck_assert_int_eq(wakes, 3);
    ck_assert_uint_eq(fired, 3);
}
END_TEST

/* A session at rest: the requests are over, the heartbeat remains, and nothing wakes before it. */
START_TEST(disarmed_first_timer_is_no_reason_to_wake)
{
    cqr_wheel_init(&wheel, 0);
    struct timer heartbeat = {0}, ops[100] = {0};
    cqr_wheel_arm(&wheel, &heartbeat, 30000000);
    int64_t idle = cqr_wheel_next(&wheel);
    for (int i = 0; i < 100; ++i)
        cqr_wheel_arm(&wheel, &ops[i], 12000000 + i * 1000);
    ck_assert_int_lt(cqr_wheel_next(&wheel), idle);
    for (int i = 0; i < 100; ++i)
        cqr_wheel_disarm(&wheel, &ops[i]);
    ck_assert_int_eq(cqr_wheel_next(&wheel), idle);
}
END_TEST

/* What a handler may do between two pops: arm and disarm anybody, those due and not yet popped included. */
START_TEST(popped_timers_may_change_the_others)
{
    cqr_wheel_init(&wheel, 0);
    struct timer one[6] = {0};
    for (int i = 0; i < 6; ++i)
        cqr_wheel_arm(&wheel, &one[i], 10000 + i * WHEEL_TICK_US);
    int64_t now = 100000;
    ck_assert_ptr_eq(cqr_wheel_pop(&wheel, now), &one[0]);
    ck_assert_int_le(cqr_wheel_next(&wheel), now);
    cqr_wheel_disarm(&wheel, &one[1]);
    cqr_wheel_arm(&wheel, &one[2], now + 50000);
    cqr_wheel_arm(&wheel, &one[0], now + 60000);
    ck_assert_ptr_eq(cqr_wheel_pop(&wheel, now), &one[3]);
    cqr_wheel_disarm(&wheel, &one[5]);
    ck_assert_ptr_eq(cqr_wheel_pop(&wheel, now), &one[4]);
    ck_assert_ptr_null(cqr_wheel_pop(&wheel, now));
    ck_assert_uint_eq(wheel.count, 2);
    ck_assert_ptr_eq(cqr_wheel_pop(&wheel, cqr_wheel_next(&wheel)), &one[2]);
    ck_assert_ptr_eq(cqr_wheel_pop(&wheel, cqr_wheel_next(&wheel)), &one[0]);
    ck_assert_int_eq(cqr_wheel_next(&wheel), INT64_MAX);
}
END_TEST

START_TEST(rearmed_timer_fires_once_at_its_last_deadline)
{
    cqr_wheel_init(&wheel, 0);
    struct timer timer = {0}, other = {0};
    cqr_wheel_arm(&wheel, &timer, 10000);
    cqr_wheel_arm(&wheel, &other, 10001);
    cqr_wheel_arm(&wheel, &timer, 90000);
    ck_assert_uint_eq(wheel.count, 2);
    ck_assert_ptr_eq(cqr_wheel_expire(&wheel, 30000), &other);
    ck_assert_ptr_eq(cqr_wheel_expire(&wheel, 100000), &timer);
    ck_assert_uint_eq(wheel.count, 0);
}
END_TEST

START_TEST(timer_at_the_end_of_time_does_not_overflow)
{
    cqr_wheel_init(&wheel, 0);
    struct timer timer = {0};
    cqr_wheel_arm(&wheel, &timer, INT64_MAX);
    ck_assert_int_gt(cqr_wheel_next(&wheel), INT64_MAX - 2 * WHEEL_TICK_US);
    ck_assert_ptr_null(cqr_wheel_expire(&wheel, INT64_C(1) << 60));
    ck_assert_uint_eq(wheel.count, 1);
}
END_TEST

/* A process stopped for hours: everything due comes at once, in the order of ticks as long as one turn spans it, and the
   work is one look at each bucket. */
START_TEST(clock_jump_of_hours_expires_everything_due)
{
    enum { COUNT = 5000 };
    static struct timer timers[COUNT];
    cqr_wheel_init(&wheel, 0);
    for (int i = 0; i < COUNT; ++i) {
        timers[i] = (struct timer){0};
        cqr_wheel_arm(&wheel, &timers[i], i * INT64_C(800));
    }
    struct timer later = {0};
    int64_t now = INT64_C(5) * 3600 * 1000000;
    cqr_wheel_arm(&wheel, &later, now + 1000);
    struct timer *due = cqr_wheel_expire(&wheel, now);
    ck_assert_uint_eq(length(due), COUNT);
    for (int64_t tick = 0; due != NULL; due = due->next) {
        ck_assert_int_ge(due->deadline_us / WHEEL_TICK_US, tick);
        tick = due->deadline_us / WHEEL_TICK_US;
    }
    ck_assert_uint_eq(wheel.count, 1);
    ck_assert_ptr_eq(cqr_wheel_expire(&wheel, cqr_wheel_next(&wheel)), &later);
}
END_TEST

/* What any of them can be due, told the slow way: a timer is due when the tick of its deadline is over. */
enum { MODEL_COUNT = 300 };
static struct timer timers[MODEL_COUNT];
static bool armed[MODEL_COUNT];

static int64_t model_next(void)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < MODEL_COUNT; ++i) {
        int64_t end = (timers[i].deadline_us / WHEEL_TICK_US + 1) * WHEEL_TICK_US;
        if (armed[i] && end < next)
            next = end;
    }
    return next;
}

static void model_check_expired(struct timer *due, int64_t now)
{
    bool good = true;
    for (; due != NULL; due = due->next) {
        ptrdiff_t i = due - timers;
        good = good && armed[i] && (due->deadline_us / WHEEL_TICK_US + 1) * WHEEL_TICK_US <= now &&
               due->link == NULL;
        armed[i] = false;
    }
    ck_assert(good);
    ck_assert_int_gt(model_next(), now); /* nothing due was left */
}

START_TEST(random_arms_disarms_and_advances_agree_with_a_list)
{
    uint64_t seed = 0x9e3779b97f4a7c15u + (uint64_t)_i * 7919;
    int64_t now = (int64_t)(random_next(&seed) % 100000000);
    cqr_wheel_init(&wheel, now);
    for (int i = 0; i < MODEL_COUNT; ++i) {
        timers[i] = (struct timer){0};
        armed[i] = false;
    }
    for (int step = 0; step < 100000; ++step) {
        uint64_t what = random_next(&seed) % 16;
        int i = (int)(random_next(&seed) % MODEL_COUNT);
        if (what < 7) {
            static const int64_t reaches[] = {1, 5000, 300000, 5000000, 40000000};
            int64_t reach = reaches[random_next(&seed) % 5];
            cqr_wheel_arm(&wheel, &timers[i],
                          now + (int64_t)(random_next(&seed) % (uint64_t)reach) - reach / 16);
            armed[i] = true;
        } else if (what < 10) {
            cqr_wheel_disarm(&wheel, &timers[i]);
            armed[i] = false;
        } else if (what < 15) {
            now += (int64_t)(random_next(&seed) % 20000);
            model_check_expired(cqr_wheel_expire(&wheel, now), now);
        } else {
            now = random_next(&seed) % 64 == 0          ? now + 3600000000
                  : cqr_wheel_next(&wheel) == INT64_MAX ? now
                  : cqr_wheel_next(&wheel) > now        ? cqr_wheel_next(&wheel)
                                                        : now;
            model_check_expired(cqr_wheel_expire(&wheel, now), now);
        }
        if (step % 16 == 0) {
            int64_t next = model_next();
            ck_assert_int_le(cqr_wheel_next(&wheel), next);
            ck_assert((cqr_wheel_next(&wheel) == INT64_MAX) == (next == INT64_MAX));
        }
    }
    uint32_t count = 0;
    for (int i = 0; i < MODEL_COUNT; ++i)
        count += armed[i];
    ck_assert_uint_eq(wheel.count, count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wheel");
    TCase *tcase = tcase_create("wheel");
    tcase_add_test(tcase, empty_wheel_never_wakes);
    tcase_add_test(tcase, timer_fires_within_a_tick_and_never_early);
    tcase_add_test(tcase, deadline_in_the_past_fires_at_the_next_expire);
    tcase_add_test(tcase, timer_many_turns_away_does_not_wake_once_per_turn);
    tcase_add_test(tcase, disarmed_first_timer_is_no_reason_to_wake);
    tcase_add_test(tcase, popped_timers_may_change_the_others);
    tcase_add_test(tcase, rearmed_timer_fires_once_at_its_last_deadline);
    tcase_add_test(tcase, timer_at_the_end_of_time_does_not_overflow);
    tcase_add_test(tcase, clock_jump_of_hours_expires_everything_due);
    tcase_add_loop_test(tcase, random_arms_disarms_and_advances_agree_with_a_list, 0, 4);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
