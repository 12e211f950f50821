/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <string.h>

#include "driver/failure.h"
#include "driver/future.h"
#include "driver/park.h"
#include "serialize/mem.h"

/* One future a round: waiters of all kinds, two that set on_ready and a completer meet at a barrier and race. Whatever
   order they find, each waiter sees the outcome, exactly one of the two callbacks is accepted and runs exactly once, and
   the future is disposed of exactly once, by whoever is last. The future lives on the heap and is freed there, so the
   sanitizers see whoever comes too late. */

enum { ROUNDS = 2000, WAITERS = 3, SETTERS = 2, THREADS = WAITERS + SETTERS + 1 };

struct owner {
    cqlring_future future;
    uint64_t payload; /* plain: what the completer wrote must be seen */
};

struct round {
    struct owner *owner;
    atomic_uint disposed, called, accepted;
};

static struct round rounds[ROUNDS];
static pthread_barrier_t barrier;

static void dispose(cqlring_future *future)
{
    struct owner *owner = (struct owner *)future;
    atomic_fetch_add(&rounds[owner->payload].disposed, 1);
    cqr_failure_free(future->error);
    cqr_mem_free(owner);
}

static void on_ready(cqlring_future *future, void *context)
{
    struct round *round = context;
    atomic_fetch_add(&round->called, 1);
    ck_assert(cqlring_future_ready(future));
    ck_assert_ptr_eq(&rounds[((struct owner *)future)->payload], round);
    ck_assert_int_eq(cqlring_future_wait(future, 0, NULL), CQLRING_SERVER);
}

/* Spread the threads over the moment a little, differently each round. */
static void dawdle(unsigned thread, unsigned round)
{
    for (volatile unsigned i = 0; i < (round * (thread * 7 + 3)) % 300; ++i) {
    }
}

static void wait_for(struct round *round, unsigned thread)
{
    cqlring_future *future = &round->owner->future;
    if (thread == 0) {
        while (cqlring_future_wait(future, 20, NULL) == CQLRING_TIMEOUT) {
        }
    }
    cqlring_error error;
    ck_assert_int_eq(cqlring_future_wait(future, thread == 1 ? INT64_MAX : -1, &error),
                     CQLRING_SERVER);
    ck_assert_str_eq(error.message, "as it should be");
    ck_assert_ptr_eq(&rounds[round->owner->payload], round);
}

static void complete(struct round *round, unsigned index)
{
    round->owner->payload = index;
    struct failure *failure = cqr_failure_make(CQLRING_SERVER, "as it should be");
    round->owner->future.status = CQLRING_SERVER;
    round->owner->future.error = &failure->error;
    cqr_future_complete(&round->owner->future);
}

static void *thread_main(void *context)
{
    unsigned thread = (unsigned)(uintptr_t)context;
    for (unsigned i = 0; i < ROUNDS; ++i) {
        struct round *round = &rounds[i];
        pthread_barrier_wait(&barrier);
        dawdle(thread, i);
        if (thread < WAITERS) {
            wait_for(round, thread);
        } else if (thread < WAITERS + SETTERS) {
            if (cqlring_future_on_ready(&round->owner->future, on_ready, round) == CQLRING_OK)
                atomic_fetch_add(&round->accepted, 1);
        } else {
            complete(round, i);
            continue; /* its reference went with the completion */
        }
        cqlring_future_release(&round->owner->future);
    }
    return NULL;
}

START_TEST(racing_waiters_setters_and_completer_agree)
{
    int64_t live = cqr_mem_live_count();
    for (unsigned i = 0; i < ROUNDS; ++i) {
        struct owner *owner = cqr_mem_zalloc(sizeof *owner);
        ck_assert_ptr_nonnull(owner);
        cqr_future_init(&owner->future, FUTURE_JOB, NULL, dispose);
        for (unsigned more = 1; more < WAITERS + SETTERS; ++more)
            cqlring_future_retain(&owner->future);
        rounds[i].owner = owner;
    }
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; ++i)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_main, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (unsigned i = 0; i < ROUNDS; ++i) {
        ck_assert_uint_eq(atomic_load(&rounds[i].accepted), 1);
        ck_assert_uint_eq(atomic_load(&rounds[i].called), 1);
        ck_assert_uint_eq(atomic_load(&rounds[i].disposed), 1);
    }
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

/* --- the shortest way: one waiter, one completer, many futures in flight ------------------------------------------------ */

enum { PAIRS = 50000, AHEAD = 64 };
static cqlring_future chain[PAIRS];
static atomic_uint given; /* futures that the completer may complete; it sleeps on it */

static void dispose_nothing(cqlring_future *future)
{
    (void)future;
}

static void *completer_main(void *context)
{
    (void)context;
    for (unsigned i = 0; i < PAIRS; ++i) {
        unsigned seen;
        while ((seen = atomic_load_explicit(&given, memory_order_acquire)) <= i)
            (void)cqr_futex_wait(&given, seen, -1);
        cqr_future_complete(&chain[i]);
    }
    return NULL;
}

START_TEST(no_wake_up_is_lost_between_one_waiter_and_one_completer)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, completer_main, NULL), 0);
    for (unsigned i = 0; i < PAIRS + AHEAD; ++i) {
        if (i < PAIRS) {
            cqr_future_init(&chain[i], FUTURE_JOB, NULL, dispose_nothing);
            atomic_store_explicit(&given, i + 1, memory_order_release);
            cqr_futex_wake(&given, 1);
        }
        unsigned ahead = i % 1000 < 500
                             ? 0
                             : AHEAD; /* in turns: wait for each at once, and stay behind */
        if (i >= ahead && i - ahead < PAIRS)
            ck_assert_int_eq(cqlring_future_wait(&chain[i - ahead], -1, NULL), CQLRING_OK);
    }
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < PAIRS; ++i)
        cqlring_future_release(&chain[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("future_threads");
    TCase *tests = tcase_create("future_threads");
    tcase_add_test(tests, racing_waiters_setters_and_completer_agree);
    tcase_add_test(tests, no_wake_up_is_lost_between_one_waiter_and_one_completer);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
