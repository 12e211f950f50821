/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/failure.h"
#include "driver/fork.h"
#include "driver/future.h"
#include "driver/result.h"
#include "serialize/mem.h"

/* A future without a runtime, embedded in something that notes its end. */
struct owner {
    cqlring_future future;
    int disposed, cancelled;
};

static struct owner *owner_of(cqlring_future *future)
{
    return (struct owner *)future;
}

static void dispose(cqlring_future *future)
{
    cqr_failure_free(future->error);
    cqlring_result_release(future->completion.result);
    owner_of(future)->disposed++;
}

static void cancel(cqlring_future *future)
{
    owner_of(future)->cancelled++;
}

static void owner_init(struct owner *owner, enum future_kind kind)
{
    *owner = (struct owner){.disposed = 0};
    cqr_future_init(&owner->future, kind, NULL, dispose);
    owner->future.cancel = cancel;
}

static int64_t live_before;

static void remember_memory(void)
{
    live_before = cqr_mem_live_count();
}

static void expect_no_leak(void)
{
    ck_assert_int_eq(cqr_mem_live_count(), live_before);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

START_TEST(future_under_way_is_not_ready_and_times_out)
{
    struct owner owner;
    owner_init(&owner, FUTURE_EXECUTE);
    ck_assert(!cqlring_future_ready(&owner.future));
    ck_assert_ptr_null(cqlring_future_completion(&owner.future));
    static const int64_t timeouts[] = {0, 1, 2000};
    for (unsigned i = 0; i < 3; ++i) {
        cqlring_error error = {.status = CQLRING_OK};
        ck_assert_int_eq(cqlring_future_wait(&owner.future, timeouts[i], &error), CQLRING_TIMEOUT);
        ck_assert_int_eq(error.status, CQLRING_TIMEOUT);
        ck_assert_str_ne(error.message, "");
        ck_assert_int_eq(cqlring_future_wait(&owner.future, timeouts[i], NULL), CQLRING_TIMEOUT);
    }
    cqr_future_complete(&owner.future);
    ck_assert_int_eq(owner.disposed, 0);
    cqlring_future_release(&owner.future);
    ck_assert_int_eq(owner.disposed, 1);
}
END_TEST

START_TEST(poll_leaves_no_trace_in_the_word)
{
    struct owner owner;
    owner_init(&owner, FUTURE_EXECUTE);
    ck_assert_int_eq(cqlring_future_wait(&owner.future, 0, NULL), CQLRING_TIMEOUT);
    ck_assert_uint_eq(atomic_load(&owner.future.word), 0); /* so the completer will make no system call */
    cqr_future_complete(&owner.future);
    ck_assert_uint_eq(atomic_load(&owner.future.word), FUTURE_DONE);
    cqlring_future_release(&owner.future);
}
END_TEST

START_TEST(done_future_answers_any_wait_at_once)
{
    struct owner owner;
    owner_init(&owner, FUTURE_EXECUTE);
    owner.future.completion.tag = 42;
    cqr_future_complete(&owner.future);
    static const int64_t timeouts[] = {0, -1, 1, INT64_MAX};
    for (unsigned i = 0; i < 4; ++i) {
        cqlring_error error = {.message = "untouched"};
        ck_assert_int_eq(cqlring_future_wait(&owner.future, timeouts[i], &error), CQLRING_OK);
        ck_assert_str_eq(error.message, "untouched");
    }
    /* no time at all, and refused whether the future is ready or not: who computed it wrong learns it the first time */
    ck_assert_int_eq(cqlring_future_wait(&owner.future, -2, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_future_wait(&owner.future, INT64_MIN, NULL), CQLRING_INVALID);
    ck_assert(cqlring_future_ready(&owner.future));
    ck_assert_uint_eq(cqlring_future_completion(&owner.future)->tag, 42);
    cqlring_future_release(&owner.future);
}
END_TEST

START_TEST(failed_future_tells_why)
{
    struct owner owner;
    owner_init(&owner, FUTURE_PREPARED);
    struct failure *failure = cqr_failure_make(CQLRING_SERVER, "no such table");
    failure->error.server_code = 0x2200;
    owner.future.status = CQLRING_SERVER;
    owner.future.error = &failure->error;
    cqr_future_complete(&owner.future);
    cqlring_error error;
    ck_assert_int_eq(cqlring_future_wait(&owner.future, -1, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_str_eq(error.message, "no such table");
    ck_assert_int_eq(cqlring_future_wait(&owner.future, -1, NULL), CQLRING_SERVER);
    ck_assert_ptr_null(cqlring_future_prepared(&owner.future));
    cqlring_future_release(&owner.future);

    owner_init(&owner, FUTURE_CLOSE);
    owner.future.status = CQLRING_CLOSED;
    cqr_future_complete(&owner.future);
    ck_assert_int_eq(cqlring_future_wait(&owner.future, 0, &error), CQLRING_CLOSED);
    ck_assert_int_eq(error.status, CQLRING_CLOSED);
    ck_assert_str_ne(error.message, "");
    cqlring_future_release(&owner.future);
}
END_TEST

struct wait {
    pthread_t thread;
    cqlring_future *future;
    int64_t timeout_us;
    cqlring_status status;
};

static void *wait_main(void *context)
{
    struct wait *wait = context;
    wait->status = cqlring_future_wait(wait->future, wait->timeout_us, NULL);
    return NULL;
}

START_TEST(sleeping_waiters_are_all_woken_and_huge_timeouts_do_not_overflow)
{
    static const int64_t timeouts[] = {-1, INT64_MAX, INT64_MAX - 1, INT64_MAX / 2, 3600000000};
    struct owner owner;
    owner_init(&owner, FUTURE_JOB);
    struct wait waits[5];
    for (unsigned i = 0; i < 5; ++i) {
        waits[i] = (struct wait){.future = &owner.future, .timeout_us = timeouts[i], .status = CQLRING_FULL};
        ck_assert_int_eq(pthread_create(&waits[i].thread, NULL, wait_main, &waits[i]), 0);
    }
    while ((atomic_load(&owner.future.word) & FUTURE_WAITERS) == 0)
        sched_yield();
    cqr_future_complete(&owner.future);
    for (unsigned i = 0; i < 5; ++i) {
        pthread_join(waits[i].thread, NULL);
        ck_assert_int_eq(waits[i].status, CQLRING_OK);
    }
    cqlring_future_release(&owner.future);
    ck_assert_int_eq(owner.disposed, 1);
}
END_TEST

START_TEST(waiter_that_timed_out_can_wait_again)
{
    struct owner owner;
    owner_init(&owner, FUTURE_JOB);
    ck_assert_int_eq(cqlring_future_wait(&owner.future, 100, NULL), CQLRING_TIMEOUT);
    struct wait wait = {.future = &owner.future, .timeout_us = -1};
    ck_assert_int_eq(pthread_create(&wait.thread, NULL, wait_main, &wait), 0);
    cqr_future_complete(&owner.future);
    pthread_join(wait.thread, NULL);
    ck_assert_int_eq(wait.status, CQLRING_OK);
    cqlring_future_release(&owner.future);
}
END_TEST

/* --- on_ready ----------------------------------------------------------------------------------------------------- */

struct calls {
    int first, second;
    cqlring_status inner;
};

static void first(cqlring_future *future, void *context)
{
    ((struct calls *)context)->first++;
    ck_assert(cqlring_future_ready(future));
    ck_assert_int_eq(owner_of(future)->disposed, 0);
}

static void second(cqlring_future *future, void *context)
{
    (void)future;
    ((struct calls *)context)->second++;
}

static void first_sets_second(cqlring_future *future, void *context)
{
    struct calls *calls = context;
    calls->first++;
    calls->inner = cqlring_future_on_ready(future, second, calls);
}

START_TEST(second_callback_is_refused_and_the_first_runs_once_CB_02)
{
    /* Which of the three happen before the completion: neither set, the first, both; and the second inside the first. */
    for (int order = 0; order < 4; ++order) {
        struct owner owner;
        struct calls calls = {.inner = CQLRING_OK};
        owner_init(&owner, FUTURE_EXECUTE);
        if (order == 0)
            cqr_future_complete(&owner.future);
        ck_assert_int_eq(cqlring_future_on_ready(&owner.future, order == 3 ? first_sets_second : first, &calls), CQLRING_OK);
        if (order == 1 || order == 3)
            cqr_future_complete(&owner.future);
        ck_assert_int_eq(cqlring_future_on_ready(&owner.future, second, &calls), CQLRING_INVALID);
        if (order == 2) {
            ck_assert_int_eq(calls.first, 0);
            cqr_future_complete(&owner.future);
        }
        ck_assert_int_eq(cqlring_future_on_ready(&owner.future, second, &calls), CQLRING_INVALID);
        ck_assert_int_eq(calls.first, 1);
        ck_assert_int_eq(calls.second, 0);
        ck_assert_int_eq(calls.inner, order == 3 ? CQLRING_INVALID : CQLRING_OK);
        ck_assert_int_eq(owner.disposed, 0);
        cqlring_future_release(&owner.future);
        ck_assert_int_eq(owner.disposed, 1);
    }
}
END_TEST

static void release_inside(cqlring_future *future, void *context)
{
    ((struct calls *)context)->first++;
    cqlring_future_release(future); /* the application's */
    ck_assert_int_eq(owner_of(future)->disposed, 0);
    ck_assert_int_eq(cqlring_future_wait(future, 0, NULL), CQLRING_OK); /* the status can be had inside */
}

START_TEST(callback_holds_a_reference_until_it_has_returned)
{
    for (int done_first = 0; done_first < 2; ++done_first) {
        struct owner owner;
        struct calls calls = {.first = 0};
        owner_init(&owner, FUTURE_EXECUTE);
        if (done_first)
            cqr_future_complete(&owner.future);
        ck_assert_int_eq(cqlring_future_on_ready(&owner.future, release_inside, &calls), CQLRING_OK);
        if (!done_first)
            cqr_future_complete(&owner.future);
        ck_assert_int_eq(calls.first, 1);
        ck_assert_int_eq(owner.disposed, 1);
    }
}
END_TEST

START_TEST(callback_may_be_the_only_one_who_waits)
{
    struct owner owner;
    struct calls calls = {.first = 0};
    owner_init(&owner, FUTURE_EXECUTE);
    ck_assert_int_eq(cqlring_future_on_ready(&owner.future, first, &calls), CQLRING_OK);
    cqlring_future_release(&owner.future); /* set and forget */
    ck_assert_int_eq(owner.disposed, 0);
    cqr_future_complete(&owner.future);
    ck_assert_int_eq(calls.first, 1);
    ck_assert_int_eq(owner.disposed, 1);
}
END_TEST

/* --- the rest ----------------------------------------------------------------------------------------------------- */

START_TEST(cancel_reaches_the_owner_only_before_the_end)
{
    struct owner owner;
    owner_init(&owner, FUTURE_EXECUTE);
    cqlring_future_cancel(&owner.future);
    cqlring_future_cancel(&owner.future);
    ck_assert_int_eq(owner.cancelled, 2);
    cqr_future_complete(&owner.future);
    cqlring_future_cancel(&owner.future);
    ck_assert_int_eq(owner.cancelled, 2);
    cqlring_future_release(&owner.future);

    owner_init(&owner, FUTURE_CLOSE);
    owner.future.cancel = NULL;
    cqlring_future_cancel(&owner.future);
    cqr_future_complete(&owner.future);
    cqlring_future_release(&owner.future);
}
END_TEST

START_TEST(result_of_a_completion_lives_as_long_as_its_future)
{
    struct owner owner;
    struct dialect dialect = {.version = PROTO_V4};
    owner_init(&owner, FUTURE_EXECUTE);
    struct failure *failure = NULL;
    cqlring_result *result = NULL;
    ck_assert_int_eq(cqr_result_make(&dialect, NULL, (cqlring_bytes){NULL, 0}, RESULT_VOID, NULL, NULL, &result, NULL, NULL,
                                     &failure), CQLRING_OK);
    owner.future.completion.result = result;
    (void)cqlring_result_retain(result);
    cqr_future_complete(&owner.future);
    cqlring_future_retain(&owner.future);
    cqlring_future_release(&owner.future);
    ck_assert_int_eq(owner.disposed, 0);
    cqlring_future_release(&owner.future);
    ck_assert_int_eq(owner.disposed, 1);
    ck_assert_uint_eq(cqlring_result_row_count(result), 0); /* still ours */
    cqlring_result_release(result);
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
    struct calls calls = {.first = 0};
    struct owner owner;
    owner_init(&owner, FUTURE_JOB);
    ck_assert_int_eq(cqlring_future_wait(NULL, 0, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_future_on_ready(NULL, first, &calls), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_future_on_ready(&owner.future, NULL, &calls), CQLRING_INVALID);
    ck_assert(!cqlring_future_ready(NULL));
    cqlring_future_cancel(NULL);
    cqlring_future_retain(NULL);
    cqlring_future_release(NULL);
    ck_assert_ptr_null(cqlring_future_completion(NULL));
    cqr_future_complete(&owner.future);
    ck_assert_ptr_null(cqlring_future_completion(&owner.future)); /* a job has none */
    ck_assert_ptr_null(cqlring_future_cluster(&owner.future));
    ck_assert_ptr_null(cqlring_future_session(&owner.future));
    ck_assert_ptr_null(cqlring_future_prepared(&owner.future));
    ck_assert_int_eq(cqlring_future_on_ready(&owner.future, first, &calls), CQLRING_OK); /* the bad one did not count */
    ck_assert_int_eq(calls.first, 1);
    cqlring_future_release(&owner.future);
}
END_TEST

START_TEST(future_needs_no_memory)
{
    struct owner owner;
    struct calls calls = {.first = 0};
    cqr_mem_fail_at(1, 1);
    owner_init(&owner, FUTURE_EXECUTE);
    ck_assert_int_eq(cqlring_future_wait(&owner.future, 10, NULL), CQLRING_TIMEOUT);
    ck_assert_int_eq(cqlring_future_on_ready(&owner.future, first, &calls), CQLRING_OK);
    cqr_future_complete(&owner.future);
    cqlring_future_release(&owner.future);
    ck_assert_uint_eq(cqr_mem_failed_count(), 0);
    cqr_mem_fail_at(0, 0);
    ck_assert_int_eq(owner.disposed, 1);
}
END_TEST

#if !defined(__SANITIZE_THREAD__)
/* What the child finds, as bits of its exit code. */
static int look_in_child(struct owner *owner)
{
    struct calls calls = {.first = 0};
    cqlring_error error = {.status = CQLRING_OK};
    int wrong = 0;
    wrong |= cqlring_future_wait(&owner->future, -1, &error) != CQLRING_FORKED || error.status != CQLRING_FORKED;
    wrong |= (cqlring_future_on_ready(&owner->future, first, &calls) != CQLRING_FORKED || calls.first != 0) << 1;
    cqlring_future_cancel(&owner->future);
    wrong |= (owner->cancelled != 0) << 2;
    wrong |= (cqlring_future_cluster(&owner->future) != NULL) << 3;
    cqlring_future_release(&owner->future);
    cqlring_future_release(&owner->future);
    wrong |= (owner->disposed != 0) << 4;
    return wrong;
}

START_TEST(forked_child_is_told_so_and_disposes_of_nothing)
{
    ck_assert_int_eq(cqr_fork_watch(), CQLRING_OK);
    for (int done = 0; done < 2; ++done) {
        struct owner owner;
        owner_init(&owner, FUTURE_CLUSTER);
        if (done) {
            cqlring_future_retain(&owner.future);
            cqr_future_complete(&owner.future);
        }
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            _exit(look_in_child(&owner));
        int code = -1;
        ck_assert_int_eq(waitpid(child, &code, 0), child);
        ck_assert_int_eq(code, 0);
        if (!done) {
            ck_assert_int_eq(cqlring_future_wait(&owner.future, 0, NULL), CQLRING_TIMEOUT);
            cqr_future_complete(&owner.future);
        } else {
            cqlring_future_release(&owner.future);
        }
        cqlring_future_release(&owner.future);
        ck_assert_int_eq(owner.disposed, 1);
    }
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("future");
    TCase *tests = tcase_create("future");
    tcase_add_checked_fixture(tests, remember_memory, expect_no_leak);
    tcase_add_test(tests, future_under_way_is_not_ready_and_times_out);
    tcase_add_test(tests, poll_leaves_no_trace_in_the_word);
    tcase_add_test(tests, done_future_answers_any_wait_at_once);
    tcase_add_test(tests, failed_future_tells_why);
    tcase_add_test(tests, sleeping_waiters_are_all_woken_and_huge_timeouts_do_not_overflow);
    tcase_add_test(tests, waiter_that_timed_out_can_wait_again);
    tcase_add_test(tests, second_callback_is_refused_and_the_first_runs_once_CB_02);
    tcase_add_test(tests, callback_holds_a_reference_until_it_has_returned);
    tcase_add_test(tests, callback_may_be_the_only_one_who_waits);
    tcase_add_test(tests, cancel_reaches_the_owner_only_before_the_end);
    tcase_add_test(tests, result_of_a_completion_lives_as_long_as_its_future);
    tcase_add_test(tests, wrong_calls_are_refused);
    tcase_add_test(tests, future_needs_no_memory);
#if !defined(__SANITIZE_THREAD__)
    tcase_add_test(tests, forked_child_is_told_so_and_disposes_of_nothing);
#endif
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
