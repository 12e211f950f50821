/* SPDX-License-Identifier: Apache-2.0 */
/* One producer and one consumer on the completion ring, each at its own pace: every entry arrives once, in order, with
   what was written beside it. Bounded by time; CQLRING_LONG=1 makes it longer. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "driver/ring.h"
#include "tests/rings/rings.h"

enum { CAPACITY = 64 };

struct lane {
    struct ring ring;
    atomic_uint_fast64_t consumed; /* credits: the ring is never offered more than it holds */
    atomic_bool stop;
    uint64_t produced;
    /* What an entry points to is published with it. */
    uint64_t subjects[2 * CAPACITY];
};

static struct lane lane;

static void *produce(void *context)
{
    (void)context;
    uint64_t seed = 1, next = 0;
    while (!atomic_load_explicit(&lane.stop, memory_order_relaxed)) {
        uint64_t free_count = CAPACITY -
                              (next - atomic_load_explicit(&lane.consumed, memory_order_relaxed));
        if (free_count == 0) {
            (void)sched_yield();
            continue;
        }
        uint64_t batch = 1 + rings_random(&seed) % free_count;
        for (uint64_t i = 0; i < batch; ++i, ++next) {
            uint64_t *subject = &lane.subjects[next % (2 * CAPACITY)];
            *subject = next * 3;
            struct completion *entry = cqr_ring_stage(&lane.ring);
            *entry = (struct completion){
                .subject = subject, .offset = (uint32_t)next, .stream = (uint16_t)(next * 7)};
        }
        if (!cqr_ring_publish(&lane.ring))
            break;
    }
    lane.produced = next;
    return NULL;
}

START_TEST(every_entry_arrives_once_in_order_and_whole)
{
    ck_assert_int_eq(cqr_ring_init(&lane.ring, CAPACITY), CQLRING_OK);
    /* Close to where 32 bits turn over. */
    lane.ring.staged = lane.ring.tail_published = lane.ring.head_cached = lane.ring.tail_cached =
        UINT32_MAX - 1000;
    atomic_store(&lane.ring.tail, UINT32_MAX - 1000);
    atomic_store(&lane.ring.head, UINT32_MAX - 1000);
    pthread_t producer;
    ck_assert_int_eq(pthread_create(&producer, NULL, produce, NULL), 0);
    int64_t end_us = rings_end_us();
    uint64_t next = 0, seed = 2;
    bool good = true, stopping = false;
    for (;;) {
        const struct completion *first;
        uint32_t count = cqr_ring_peek(&lane.ring, &first);
        if (count == 0) {
            if (stopping)
                break;
            if (rings_now_us() >= end_us) {
                atomic_store(&lane.stop, true);
                ck_assert_int_eq(pthread_join(producer, NULL), 0);
                stopping = true;
            }
            (void)sched_yield();
            continue;
        }
        if (rings_random(&seed) % 4 == 0)
            count = 1 + (uint32_t)(rings_random(&seed) % count);
        for (uint32_t i = 0; i < count; ++i, ++next)
            good = good && first[i].offset == (uint32_t)next &&
                   first[i].stream == (uint16_t)(next * 7) &&
                   *(uint64_t *)first[i].subject == next * 3;
        cqr_ring_consume(&lane.ring, count);
        atomic_fetch_add_explicit(&lane.consumed, count, memory_order_relaxed);
    }
    ck_assert(good);
    ck_assert_uint_eq(next, lane.produced);
    ck_assert_uint_gt(next, 2000); /* the index has turned over */
    cqr_ring_fini(&lane.ring);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring threads");
    TCase *tcase = tcase_create("ring");
    tcase_add_test(tcase, every_entry_arrives_once_in_order_and_whole);
    suite_add_tcase(suite, tcase);
    return rings_run(suite);
}
