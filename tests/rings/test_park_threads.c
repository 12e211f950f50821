/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads send each other entries and sleep whenever they have nothing, as reactor and submitter do; the sleeper has
   a deadline far away, and reaching it with work in sight means that a wake-up was lost. Run with both backends on either
   side: the word (futex) and the pollers. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "driver/park.h"
#include "driver/ring.h"
#include "tests/rings/rings.h"

enum { CAPACITY = 64, LOST_US = 5000000 };

struct side {
    struct park park;
    struct ring ring; /* into this side; the other one produces */
    uint64_t sent, received, sleeps, wakes;
    bool lost, wrong;
};

static struct side sides[2];
static atomic_bool stop;

/* As much as is in the ring; sleep when it is empty. False when it is time to stop. */
static bool turn(struct side *me, struct side *other, uint64_t *seed)
{
    const struct completion *first;
    uint32_t count, total = 0;
    while ((count = cqr_ring_peek(&me->ring, &first)) > 0) {
        for (uint32_t i = 0; i < count; ++i)
            me->wrong = me->wrong || first[i].offset != (uint32_t)me->received++;
        cqr_ring_consume(&me->ring, count);
        total += count;
    }
    /* Answer each, and keep the conversation alive by asking when it threatens to fall silent. */
    for (uint32_t i = 0; i < total; ++i)
        cqr_ring_stage(&other->ring)->offset = (uint32_t)me->sent++;
    if (cqr_ring_publish(&other->ring))
        me->wakes += cqr_park_wake(&other->park);
    if (rings_random(seed) % 8 == 0)
        (void)sched_yield();

    cqr_park_prepare(&me->park);
    if (!cqr_ring_is_empty(&me->ring) || atomic_load_explicit(&stop, memory_order_acquire)) {
        cqr_park_cancel(&me->park);
        return !atomic_load_explicit(&stop, memory_order_acquire);
    }
    int64_t deadline = rings_now_us() + LOST_US;
    me->sleeps++;
    if (me->park.poller == NULL) {
        cqr_park_sleep(&me->park, deadline);
    } else {
        struct poll_event events[4];
        (void)me->park.poller->call->wait(me->park.poller, events, 4, deadline);
        cqr_park_cancel(&me->park);
    }
    if (rings_now_us() >= deadline)
        me->lost = true;
    return true;
}

static void *echo_main(void *context)
{
    (void)context;
    uint64_t seed = 5;
    while (turn(&sides[1], &sides[0], &seed)) {
    }
    return NULL;
}

static struct poller *backend(int which)
{
    return which == 0 ? NULL : which == 1 ? cqr_poller_ev_create() : cqr_poller_epoll_create();
}

START_TEST(no_wake_up_is_lost)
{
    atomic_store(&stop, false);
    for (int i = 0; i < 2; ++i) {
        sides[i] = (struct side){0};
        cqr_park_init(&sides[i].park, backend(i == 0 ? _i / 3 : _i % 3));
        ck_assert_int_eq(cqr_ring_init(&sides[i].ring, CAPACITY), CQLRING_OK);
    }
    pthread_t thread;
    ck_assert_int_eq(cqr_thread_start(&thread, "echo", -1, echo_main, NULL), 0);
    uint64_t seed = 3;
    int64_t end_us = rings_now_us() + (rings_end_us() - rings_now_us()) / 16;
    /* Three entries are under way from here on. */
    for (int i = 0; i < 3; ++i)
        cqr_ring_stage(&sides[1].ring)->offset = (uint32_t)sides[0].sent++;
    (void)cqr_ring_publish(&sides[1].ring);
    (void)cqr_park_wake(&sides[1].park);
    while ((rings_now_us() < end_us || sides[0].received == 0) && !sides[0].lost)
        (void)turn(&sides[0], &sides[1], &seed);
    atomic_store_explicit(&stop, true, memory_order_release);
    (void)cqr_park_wake(&sides[1].park);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; ++i) {
        ck_assert(!sides[i].lost && !sides[i].wrong);
        ck_assert_uint_gt(sides[i].received, 0);
        ck_assert_uint_le(sides[i].wakes,
                          sides[1 - i].sleeps + sides[i].sent); /* none without a reason */
        if (sides[i].park.poller != NULL)
            sides[i].park.poller->call->destroy(sides[i].park.poller);
        cqr_ring_fini(&sides[i].ring);
    }
}
END_TEST

/* A future: many waiters on one word, completed once; each waiter sees what was written before. */
enum { WAITERS = 4, FUTURES = 64 };

static struct {
    atomic_uint words[FUTURES];
    uint64_t results[FUTURES];
    atomic_uint round;
    atomic_uint done;
    atomic_bool wrong;
} futures;

static void *wait_main(void *context)
{
    (void)context;
    for (unsigned round = 1;; ++round) {
        if (!cqr_futex_wait(&futures.round, round - 1, rings_now_us() + LOST_US))
            atomic_store(&futures.wrong, true);
        if (atomic_load_explicit(&stop, memory_order_acquire))
            return NULL;
        for (unsigned i = 0; i < FUTURES; ++i) {
            if (!cqr_futex_wait(&futures.words[i], 0, rings_now_us() + LOST_US) ||
                futures.results[i] != round + i)
                atomic_store(&futures.wrong, true);
        }
        if (atomic_fetch_add_explicit(&futures.done, 1, memory_order_acq_rel) + 1 == WAITERS)
            cqr_futex_wake(&futures.done, 1);
    }
}

START_TEST(every_waiter_of_a_word_is_woken)
{
    atomic_store(&stop, false);
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; ++i)
        ck_assert_int_eq(cqr_thread_start(&threads[i], "waiter", -1, wait_main, NULL), 0);
    int64_t end_us = rings_now_us() + (rings_end_us() - rings_now_us()) / 2;
    unsigned round = 0;
    while (rings_now_us() < end_us && !atomic_load(&futures.wrong)) {
        round++;
        atomic_store(&futures.done, 0);
        for (unsigned i = 0; i < FUTURES; ++i)
            atomic_store_explicit(&futures.words[i], 0, memory_order_relaxed);
        atomic_store_explicit(&futures.round, round, memory_order_release);
        cqr_futex_wake(&futures.round, INT32_MAX);
        for (unsigned i = 0; i < FUTURES; ++i) {
            futures.results[i] = round + i;
            atomic_store_explicit(&futures.words[i], 1, memory_order_release);
            cqr_futex_wake(&futures.words[i], INT32_MAX);
        }
        unsigned done;
        while ((done = atomic_load_explicit(&futures.done, memory_order_acquire)) < WAITERS)
            if (!cqr_futex_wait(&futures.done, done, rings_now_us() + LOST_US))
                atomic_store(&futures.wrong, true);
    }
    atomic_store_explicit(&stop, true, memory_order_release);
    atomic_store_explicit(&futures.round, round + 1, memory_order_release);
    cqr_futex_wake(&futures.round, INT32_MAX);
    for (int i = 0; i < WAITERS; ++i)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert(!atomic_load(&futures.wrong));
    ck_assert_uint_gt(round, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("park threads");
    TCase *tcase = tcase_create("park");
    tcase_add_loop_test(tcase, no_wake_up_is_lost, 0, 9);
    tcase_add_test(tcase, every_waiter_of_a_word_is_woken);
    suite_add_tcase(suite, tcase);
    return rings_run(suite);
}
