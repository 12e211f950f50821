/* SPDX-License-Identifier: Apache-2.0 */

/* The histogram's buckets, and the names of what servers refuse with. */

#include <check.h>
#include <stdlib.h>

#include "cql/proto.h"
#include "driver/node_stats.h"

START_TEST(buckets_follow_one_another_without_gap_or_overlap)
{
    ck_assert_uint_eq(cqr_latency_bucket(0), 0);
    for (uint32_t bucket = 0; bucket + 1 < NODE_LATENCY_BUCKETS; bucket++) {
        uint64_t end = cqr_latency_bucket_end(bucket);
        ck_assert_uint_eq(cqr_latency_bucket((uint32_t)(end - 1)), bucket);
        ck_assert_uint_eq(cqr_latency_bucket((uint32_t)end), bucket + 1);
    }
    ck_assert_uint_eq(cqr_latency_bucket(UINT32_MAX), NODE_LATENCY_BUCKETS - 1);
    ck_assert_uint_eq(cqr_latency_bucket_end(NODE_LATENCY_BUCKETS - 1), UINT64_C(1) << 32);
}
END_TEST

START_TEST(a_value_is_known_within_an_eighth)
{
    for (uint64_t us = 1; us < UINT32_MAX; us += us / 7 + 1) {
        uint64_t end = cqr_latency_bucket_end(cqr_latency_bucket((uint32_t)us));
        ck_assert_uint_gt(end, us);
        ck_assert_msg(end - 1 <= us + us / 8, "%llu in a bucket up to %llu", (unsigned long long)us, (unsigned long long)end);
    }
}
END_TEST

START_TEST(octaves_end_where_the_text_cuts_them)
{
    for (uint32_t octave = 6; octave <= 24; octave++) {
        uint64_t edge = UINT64_C(1) << octave;
        ck_assert_uint_eq(cqr_latency_bucket_end(cqr_latency_bucket((uint32_t)edge - 1)), edge);
    }
}
END_TEST

START_TEST(every_server_error_has_a_name_and_unknown_ones_are_other)
{
    ck_assert_str_eq(cqr_server_error_name(cqr_server_error_kind(ERROR_OVERLOADED)), "overloaded");
    ck_assert_str_eq(cqr_server_error_name(cqr_server_error_kind(ERROR_UNPREPARED)), "unprepared");
    ck_assert_str_eq(cqr_server_error_name(cqr_server_error_kind(0x7777)), "other");
    ck_assert_str_eq(cqr_server_error_name(cqr_server_error_kind(-1)), "other");
    for (uint32_t kind = 0; kind < SERVER_ERRORS; kind++) {
        ck_assert_ptr_nonnull(cqr_server_error_name(kind));
        for (uint32_t other = 0; other < kind; other++)
            ck_assert_str_ne(cqr_server_error_name(kind), cqr_server_error_name(other));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("latency");
    TCase *tcase = tcase_create("pure");
    tcase_add_test(tcase, buckets_follow_one_another_without_gap_or_overlap);
    tcase_add_test(tcase, a_value_is_known_within_an_eighth);
    tcase_add_test(tcase, octaves_end_where_the_text_cuts_them);
    tcase_add_test(tcase, every_server_error_has_a_name_and_unknown_ones_are_other);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
