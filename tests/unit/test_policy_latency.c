/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>

#include "driver/policy_latency.h"

START_TEST(too_few_samples_say_nothing)
{
    struct latency latency = {0};
    for (int i = 0; i < LATENCY_ENOUGH; i++) {
        ck_assert_int_eq(cqr_latency_percentile(&latency, 50), -1);
        cqr_latency_note(&latency, 100);
    }
    ck_assert_int_ge(cqr_latency_percentile(&latency, 50), 100);
}
END_TEST

START_TEST(a_percentile_is_met_within_an_eighth)
{
    struct latency latency = {0};
    for (int64_t i = 1; i <= 8000; i++)
        cqr_latency_note(&latency, i * 10);
    static const float percentiles[] = {1, 10, 50, 90, 99};
    for (int i = 0; i < 5; i++) {
        int64_t exact = (int64_t)(percentiles[i] * 800), got = cqr_latency_percentile(&latency, percentiles[i]);
        ck_assert_msg(got >= exact - 10 && got <= exact + exact / 8 + 10, "%g: %lld for %lld", (double)percentiles[i], (long long)got, (long long)exact);
    }
}
END_TEST

START_TEST(small_and_huge_latencies_have_their_bucket)
{
    static const int64_t values[] = {-5, 0, 1, 7, 8, 9, 15, 16, 1000, INT64_C(1) << 26, INT64_MAX};
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct latency latency = {0};
        for (int j = 0; j < 100; j++)
            cqr_latency_note(&latency, values[i]);
        int64_t got = cqr_latency_percentile(&latency, 99), least = values[i] < 0 ? 0 : values[i] < (INT64_C(1) << 29) - 1 ? values[i] : (INT64_C(1) << 29) - 1;
        ck_assert_int_ge(got, least);
        ck_assert_int_le(got, least + least / 8);
    }
}
END_TEST

START_TEST(old_samples_are_forgotten)
{
    struct latency latency = {0};
    for (int i = 0; i < 100000; i++)
        cqr_latency_note(&latency, 1000000);
    ck_assert_int_ge(cqr_latency_percentile(&latency, 50), 1000000);
    for (int i = 0; i < 2 * LATENCY_KEPT; i++)
        cqr_latency_note(&latency, 100);
    ck_assert_int_le(cqr_latency_percentile(&latency, 50), 113);
    ck_assert_uint_lt(latency.total, LATENCY_KEPT);
}
END_TEST

START_TEST(an_answer_is_kept_for_a_while_and_for_its_percentile_only)
{
    struct latency latency = {0};
    for (int i = 0; i < 200; i++)
        cqr_latency_note(&latency, i < 150 ? 100 : 10000);
    int64_t half = cqr_latency_percentile(&latency, 50);
    ck_assert_int_lt(half, 200);
    ck_assert_int_gt(cqr_latency_percentile(&latency, 90), 9999);
    for (int i = 0; i < 63; i++)
        cqr_latency_note(&latency, 1);
    ck_assert_int_gt(cqr_latency_percentile(&latency, 90), 9999);
    for (int i = 0; i < 1000; i++)
        cqr_latency_note(&latency, 1);
    ck_assert_int_lt(cqr_latency_percentile(&latency, 90), 200);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy_latency");
    TCase *tests = tcase_create("latency");
    tcase_add_test(tests, too_few_samples_say_nothing);
    tcase_add_test(tests, a_percentile_is_met_within_an_eighth);
    tcase_add_test(tests, small_and_huge_latencies_have_their_bucket);
    tcase_add_test(tests, old_samples_are_forgotten);
    tcase_add_test(tests, an_answer_is_kept_for_a_while_and_for_its_percentile_only);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
