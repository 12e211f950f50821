/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/cqlring_types.h"

START_TEST(every_status_has_a_name_and_a_text)
{
    ck_assert_str_eq(cqlring_status_name(CQLRING_OK), "OK");
    ck_assert_str_eq(cqlring_status_name(CQLRING_TIMEOUT), "TIMEOUT");
    ck_assert_str_eq(cqlring_status_text(CQLRING_TIMEOUT), "timed out");
#define SEEN(name, number, text)                                  \
    ck_assert_str_eq(cqlring_status_name(CQLRING_##name), #name); \
    ck_assert_str_eq(cqlring_status_text((cqlring_status)number), text);
    CQLRING_STATUS_LIST(SEEN)
#undef SEEN
}
END_TEST

START_TEST(a_number_that_is_no_status_has_a_name_too)
{
    ck_assert_str_eq(cqlring_status_name((cqlring_status)16), "UNKNOWN");
    ck_assert_str_eq(cqlring_status_text((cqlring_status)255), "unknown status");
}
END_TEST

START_TEST(text_is_a_slice_without_the_nul)
{
    const char *string = "abc";
    cqlring_bytes text = cqlring_text(string);
    ck_assert_ptr_eq(text.data, string);
    ck_assert_int_eq(text.size, 3);
}
END_TEST

START_TEST(text_of_null_is_empty_not_null)
{
    cqlring_bytes text = cqlring_text(NULL);
    ck_assert_ptr_nonnull(text.data);
    ck_assert_int_eq(text.size, 0);
}
END_TEST

START_TEST(an_error_is_512_bytes_and_zero_is_success)
{
    cqlring_error error = {0};
    ck_assert_uint_eq(sizeof error, 512);
    ck_assert_int_eq(error.status, CQLRING_OK);
    ck_assert_int_eq(error.phase, CQLRING_NOT_SENT);
}
END_TEST

int main(void)
{
    TCase *test = tcase_create("types");
    tcase_add_test(test, every_status_has_a_name_and_a_text);
    tcase_add_test(test, a_number_that_is_no_status_has_a_name_too);
    tcase_add_test(test, text_is_a_slice_without_the_nul);
    tcase_add_test(test, text_of_null_is_empty_not_null);
    tcase_add_test(test, an_error_is_512_bytes_and_zero_is_success);
    Suite *suite = suite_create("types");
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
