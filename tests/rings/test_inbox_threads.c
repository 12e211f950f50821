/* SPDX-License-Identifier: Apache-2.0 */
/* Many producers, one consumer, items that go round: pushed, taken, given back to their producer, pushed again, so that
   the same addresses come again and again (ABA). Half of the producers push several together. Every item arrives once,
   in its producer's order. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "driver/inbox.h"
#include "tests/rings/rings.h"

enum { PRODUCERS = 4, ITEMS = 8 };

struct item {
    struct inbox_item link; /* first */
    uint32_t producer;
    uint64_t number;
    atomic_bool mine; /* the producer's to use */
};

static struct inbox inbox;
static struct item items[PRODUCERS][ITEMS];
static uint64_t pushed[PRODUCERS];
static atomic_bool stop;

static void *produce(void *context)
{
    uint32_t me = *(uint32_t *)context, together = me % 2 == 0 ? 1 : 3;
    uint64_t next = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (!atomic_load_explicit(&items[me][(next + together - 1) % ITEMS].mine, memory_order_acquire)) {
            (void)sched_yield(); /* they come back in order: the last one is there, so all are */
            continue;
        }
        struct item *item = NULL, *oldest = &items[me][next % ITEMS];
        for (uint32_t i = 0; i < together; ++i) {
            struct item *before = item;
            item = &items[me][next % ITEMS];
            ck_assert(atomic_load_explicit(&item->mine, memory_order_acquire));
            atomic_store_explicit(&item->mine, false, memory_order_relaxed);
            item->producer = me;
            item->number = next++;
            item->link.next = before != NULL ? &before->link : NULL;
        }
        cqr_inbox_push_all(&inbox, &item->link, &oldest->link);
    }
    pushed[me] = next;
    return NULL;
}

START_TEST(every_item_arrives_once_in_its_producers_order)
{
    pthread_t threads[PRODUCERS];
    uint32_t ids[PRODUCERS];
    uint64_t expected[PRODUCERS] = {0};
    for (uint32_t p = 0; p < PRODUCERS; ++p)
        for (uint32_t i = 0; i < ITEMS; ++i)
            atomic_store(&items[p][i].mine, true);
    for (uint32_t p = 0; p < PRODUCERS; ++p) {
        ids[p] = p;
        ck_assert_int_eq(pthread_create(&threads[p], NULL, produce, &ids[p]), 0);
    }
    int64_t end_us = rings_end_us();
    bool good = true, stopping = false;
    for (;;) {
        struct inbox_item *link = cqr_inbox_take(&inbox);
        if (link == NULL) {
            if (stopping)
                break;
            if (rings_now_us() >= end_us) {
                atomic_store(&stop, true);
                for (uint32_t p = 0; p < PRODUCERS; ++p)
                    ck_assert_int_eq(pthread_join(threads[p], NULL), 0);
                stopping = true;
            }
            (void)sched_yield();
            continue;
        }
        while (link != NULL) {
            struct item *item = (struct item *)link;
            link = link->next; /* before it is given back */
            good = good && item->producer < PRODUCERS && item->number == expected[item->producer]++;
            atomic_store_explicit(&item->mine, true, memory_order_release);
        }
    }
    ck_assert(good);
    ck_assert(cqr_inbox_is_empty(&inbox));
    for (uint32_t p = 0; p < PRODUCERS; ++p) {
        ck_assert_uint_eq(expected[p], pushed[p]);
        ck_assert_uint_gt(expected[p], 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inbox threads");
    TCase *tcase = tcase_create("inbox");
    tcase_add_test(tcase, every_item_arrives_once_in_its_producers_order);
    suite_add_tcase(suite, tcase);
    return rings_run(suite);
}
