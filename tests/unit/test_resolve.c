/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "driver/park.h"
#include "driver/resolve.h"
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

/* --- parsing ------------------------------------------------------------------------------------------------------ */

static void expect_points(const char *text, const char *wanted)
{
    struct contact_point *points = NULL;
    uint32_t count = 0;
    cqlring_error error = {.message = ""};
    ck_assert_msg(cqr_contact_points_parse(text, 9042, &points, &count, &error) == CQLRING_OK, "%s: %s", text, error.message);
    char got[4096] = "";
    for (uint32_t i = 0; i < count; ++i)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s|%u", i > 0 ? " " : "", points[i].host, points[i].port);
    ck_assert_str_eq(got, wanted);
    cqr_mem_free(points);
}

START_TEST(contact_points_are_taken_apart)
{
    expect_points(NULL, "127.0.0.1|9042");
    expect_points("10.0.0.3", "10.0.0.3|9042");
    expect_points("10.0.0.3:1", "10.0.0.3|1");
    expect_points("db.example:65535", "db.example|65535");
    expect_points("a, b:1 ,\tc:2\n", "a|9042 b|1 c|2");
    expect_points("[::1]", "::1|9042");
    expect_points("[::1]:9043", "::1|9043");
    expect_points("::1", "::1|9042");
    expect_points("2001:db8::9042", "2001:db8::9042|9042");
    expect_points("/var/run/cql.sock", "/var/run/cql.sock|9042");
    expect_points("/tmp/a:b,host", "/tmp/a:b|9042 host|9042");
    expect_points("under_score-and.dots.", "under_score-and.dots.|9042");
}
END_TEST

static void expect_refused(const char *text, const char *part, const char *why)
{
    struct contact_point *points = NULL;
    uint32_t count = 77;
    cqlring_error error = {.message = ""};
    ck_assert_msg(cqr_contact_points_parse(text, 9042, &points, &count, &error) == CQLRING_INVALID, "%s", text);
    ck_assert_msg(strstr(error.message, part) != NULL && strstr(error.message, why) != NULL, "%s: %s", text, error.message);
    ck_assert_ptr_null(points);
    ck_assert_uint_eq(count, 77);
    ck_assert_int_eq(cqr_contact_points_parse(text, 9042, &points, &count, NULL), CQLRING_INVALID);
}

START_TEST(what_cannot_be_read_is_named_with_the_reason)
{
    expect_refused("", "contact_points is empty", "NULL for 127.0.0.1"); /* a variable that was not set */
    expect_refused(" \t", "contact_points is empty", "NULL for 127.0.0.1");
    expect_refused("a,,b", "contact point 2", "empty");
    expect_refused("a,", "contact point 2", "empty");
    expect_refused("a:", "\"a:\"", "port");
    expect_refused("a:0", "\"a:0\"", "port");
    expect_refused("a:65536", "\"a:65536\"", "port");
    expect_refused("a:9999999999999999999", "contact point 1", "port");
    expect_refused("a:12x", "\"a:12x\"", "port");
    expect_refused("a:-1", "\"a:-1\"", "port");
    expect_refused("ok, :9042", "\":9042\"", "host");
    expect_refused("[::1", "\"[::1\"", "bracket");
    expect_refused("[]:1", "contact point 1", "host");
    expect_refused("[::1]9042", "contact point 1", ":port");
    expect_refused("[::1]:", "contact point 1", "port");
    expect_refused("[db.example]:9042", "contact point 1", "IPv6");
    expect_refused("1:2:3", "\"1:2:3\"", "IPv6");
    expect_refused("::1::2", "contact point 1", "IPv6");
    expect_refused("two words", "\"two words\"", "characters");
    expect_refused("a]", "contact point 1", "characters");

    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    expect_refused(text, "contact point 1", "too long");
    text[0] = '/';
    expect_refused(text, "contact point 1", "too long");
    text[200] = '\0';
    expect_refused(text, "contact point 1", "too long for a socket");
}
END_TEST

START_TEST(number_of_contact_points_has_a_ceiling)
{
    char text[2 * CONTACT_POINTS_MAX + 3] = "";
    for (size_t i = 0; i < CONTACT_POINTS_MAX; ++i)
        memcpy(text + 2 * i, "a,", 2);
    text[2 * CONTACT_POINTS_MAX - 1] = '\0';
    struct contact_point *points;
    uint32_t count;
    ck_assert_int_eq(cqr_contact_points_parse(text, 1, &points, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, CONTACT_POINTS_MAX);
    cqr_mem_free(points);
    strcat(text, ",a");
    ck_assert_int_eq(cqr_contact_points_parse(text, 1, &points, &count, NULL), CQLRING_INVALID);
}
END_TEST

/* --- resolving ---------------------------------------------------------------------------------------------------- */

/* "127.1" in these tests is no literal to us, so it is looked up on the thread, and the resolver makes 127.0.0.1 of it by
   itself: it needs no /etc/hosts, no server, and no luck with what localhost is here. */
struct answer {
    atomic_uint done;
    pthread_t thread;
    struct resolution resolution;
};

static void take_answer(struct resolution *resolution, void *context)
{
    struct answer *answer = context;
    answer->resolution = *resolution;
    answer->thread = pthread_self();
    atomic_store_explicit(&answer->done, 1, memory_order_release);
    cqr_futex_wake(&answer->done, INT_MAX);
}

/* The thread frees what it holds after it has called us: wait for that too, by looking at the memory. */
static void wait_for_thread_memory(int64_t live)
{
    while (cqr_mem_live_count() != live)
        sched_yield();
}

START_TEST(literals_are_answered_at_once_on_the_calling_thread)
{
    struct contact_point *points;
    uint32_t count;
    ck_assert_int_eq(cqr_contact_points_parse("10.0.0.3:7,[::1]:8,/tmp/x", 9042, &points, &count, NULL), CQLRING_OK);
    struct answer answer = {.done = 0};
    ck_assert_int_eq(cqr_resolve_start(points, count, take_answer, &answer), CQLRING_OK);
    ck_assert_uint_eq(atomic_load(&answer.done), 1);
    ck_assert(pthread_equal(answer.thread, pthread_self()));
    ck_assert_uint_eq(answer.resolution.count, 3);
    ck_assert_str_eq(answer.resolution.failures, "");
    static const char *wanted[] = {"10.0.0.3:7", "[::1]:8", "/tmp/x"};
    for (uint32_t i = 0; i < 3; ++i) {
        char text[64];
        cqr_address_format(&answer.resolution.addresses[i].address, text);
        ck_assert_str_eq(text, wanted[i]);
        ck_assert_uint_eq(answer.resolution.addresses[i].point, i);
    }
    cqr_mem_free(answer.resolution.addresses);
    cqr_mem_free(points);
}
END_TEST

START_TEST(bad_name_does_not_take_the_good_ones_with_it_RC_21)
{
    struct contact_point *points;
    uint32_t count;
    ck_assert_int_eq(cqr_contact_points_parse("bad.invalid,127.1:7,10.0.0.3", 9042, &points, &count, NULL), CQLRING_OK);
    int64_t live = cqr_mem_live_count();
    struct answer answer = {.done = 0};
    ck_assert_int_eq(cqr_resolve_start(points, count, take_answer, &answer), CQLRING_OK);
    ck_assert(cqr_futex_wait(&answer.done, 0, -1));
    ck_assert(!pthread_equal(answer.thread, pthread_self()));
    ck_assert_ptr_nonnull(strstr(answer.resolution.failures, "contact point 1, \"bad.invalid\": "));
    ck_assert_ptr_null(strstr(answer.resolution.failures, "contact point 2"));
    ck_assert_uint_eq(answer.resolution.count, 2);
    const struct resolved_address *last = &answer.resolution.addresses[answer.resolution.count - 1];
    ck_assert_uint_eq(last->point, 2);
    for (uint32_t i = 0; i + 1 < answer.resolution.count; ++i) {
        const struct address *address = &answer.resolution.addresses[i].address;
        char text[64];
        cqr_address_format(address, text);
        ck_assert_uint_eq(answer.resolution.addresses[i].point, 1);
        ck_assert_msg(strcmp(text, "127.0.0.1:7") == 0, "%s", text);
        for (uint32_t j = 0; j < i; ++j)
            ck_assert(!cqr_address_equal(address, &answer.resolution.addresses[j].address));
    }
    cqr_mem_free(answer.resolution.addresses);
    wait_for_thread_memory(live);
    cqr_mem_free(points);
}
END_TEST

START_TEST(nothing_that_resolves_is_an_empty_answer_with_the_reasons)
{
    /* A label of more than 63 characters is refused without asking anybody. */
    struct contact_point points[4] = {{.port = 1}};
    for (int i = 0; i < 4; ++i)
        snprintf(points[i].host, sizeof points[i].host, "bad%d.%0200d.invalid", i, 0);
    struct resolution resolution;
    ck_assert_int_eq(cqr_resolve(points, 4, &resolution), CQLRING_OK);
    ck_assert_uint_eq(resolution.count, 0);
    ck_assert_ptr_nonnull(strstr(resolution.failures, "bad0."));
    ck_assert_uint_eq(strlen(resolution.failures), sizeof resolution.failures - 1);
    cqr_mem_free(resolution.addresses);
}
END_TEST

START_TEST(each_allocation_may_fail_and_done_is_called_or_an_error_returned)
{
    static const char *texts[] = {"10.0.0.3,[::1]", "127.1"};
    for (unsigned kind = 0; kind < 2; ++kind) {
        bool finished = false;
        for (uint64_t n = 1; !finished; ++n) {
            ck_assert_uint_lt(n, 100);
            int64_t live = cqr_mem_live_count();
            struct answer answer = {.done = 0};
            struct contact_point *points = NULL;
            uint32_t count;
            cqr_mem_fail_at(n, 0);
            cqlring_status status = cqr_contact_points_parse(texts[kind], 9042, &points, &count, NULL);
            if (status == CQLRING_OK)
                status = cqr_resolve_start(points, count, take_answer, &answer);
            if (status == CQLRING_OK)
                ck_assert(cqr_futex_wait(&answer.done, 0, -1));
            finished = cqr_mem_failed_count() == 0;
            cqr_mem_fail_at(0, 0);
            ck_assert(status == CQLRING_OK || status == CQLRING_NO_MEMORY);
            if (status == CQLRING_OK && answer.resolution.count == 0)
                ck_assert_ptr_nonnull(strstr(answer.resolution.failures, "memory"));
            cqr_mem_free(answer.resolution.addresses);
            cqr_mem_free(points);
            wait_for_thread_memory(live);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resolve");
    TCase *tests = tcase_create("resolve");
    tcase_add_checked_fixture(tests, remember_memory, expect_no_leak);
    tcase_add_test(tests, contact_points_are_taken_apart);
    tcase_add_test(tests, what_cannot_be_read_is_named_with_the_reason);
    tcase_add_test(tests, number_of_contact_points_has_a_ceiling);
    tcase_add_test(tests, literals_are_answered_at_once_on_the_calling_thread);
    tcase_add_test(tests, bad_name_does_not_take_the_good_ones_with_it_RC_21);
    tcase_add_test(tests, nothing_that_resolves_is_an_empty_answer_with_the_reasons);
    tcase_add_test(tests, each_allocation_may_fail_and_done_is_called_or_an_error_returned);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
