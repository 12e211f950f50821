/* SPDX-License-Identifier: Apache-2.0 */
/* One owner takes blocks from a pool, fills them and hands references to threads that read and release them, in any order;
   at the end the owner closes the pool while references are still out, and the last release frees it. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "driver/inbox.h"
#include "serialize/block.h"
#include "serialize/mem.h"
#include "tests/rings/rings.h"

enum { READERS = 3, BLOCK_SIZE = 4096, OUT_MAX = 64 };

struct reference {
    struct inbox_item link; /* first */
    struct block *block;
    uint8_t value;
    uint32_t count;
};

static struct inbox inboxes[READERS];
static atomic_bool stop;
static atomic_bool wrong;
static atomic_uint out; /* references under way */

static void *read_main(void *context)
{
    struct inbox *inbox = context;
    for (;;) {
        bool stopping = atomic_load_explicit(&stop, memory_order_acquire);
        struct inbox_item *link = cqr_inbox_take(inbox);
        if (link == NULL) {
            if (stopping)
                return NULL;
            (void)sched_yield();
            continue;
        }
        while (link != NULL) {
            struct reference *reference = (struct reference *)link;
            link = link->next;
            struct block *block = reference->block;
            if (block->data[0] != reference->value ||
                block->data[block->size - 1] != reference->value)
                atomic_store_explicit(&wrong, true, memory_order_relaxed);
            if (reference->count > 1)
                cqr_block_release_many(block, reference->count);
            else
                cqr_block_release(block);
            cqr_mem_free(reference);
            atomic_fetch_sub_explicit(&out, 1, memory_order_relaxed);
        }
    }
}

static void hand_out(struct block *block, uint8_t value, uint64_t *seed)
{
    struct reference *reference = cqr_mem_zalloc(sizeof *reference);
    ck_assert_ptr_nonnull(reference);
    *reference = (struct reference){
        .block = block, .value = value, .count = 1 + (uint32_t)(rings_random(seed) % 3)};
    cqr_block_retain_many(block, reference->count);
    atomic_fetch_add_explicit(&out, 1, memory_order_relaxed);
    cqr_inbox_push(&inboxes[rings_random(seed) % READERS], &reference->link);
}

START_TEST(blocks_come_back_from_any_thread_and_outlive_their_pool)
{
    int64_t live = cqr_mem_live_count();
    int64_t end_us = rings_end_us();
    uint64_t seed = 11, rounds = 0;
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; ++i)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_main, &inboxes[i]), 0);
    while (rings_now_us() < end_us) {
        struct block_pool *pool = cqr_pool_create(BLOCK_SIZE, 8);
        ck_assert_ptr_nonnull(pool);
        for (int i = 0; i < 200 && rings_now_us() < end_us; ++i, ++rounds) {
            uint32_t size = rings_random(&seed) % 16 == 0 ? 3 * BLOCK_SIZE : BLOCK_SIZE;
            struct block *block = cqr_block_take(pool, size);
            ck_assert_ptr_nonnull(block);
            uint8_t value = (uint8_t)rings_random(&seed);
            memset(block->data, value, block->size);
            for (uint64_t n = rings_random(&seed) % 4; n > 0; --n)
                hand_out(block, value, &seed);
            cqr_block_release(block);
            while (atomic_load_explicit(&out, memory_order_relaxed) > OUT_MAX)
                (void)sched_yield();
        }
        cqr_pool_close(pool);
    }
    atomic_store_explicit(&stop, true, memory_order_release);
    for (int i = 0; i < READERS; ++i)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert(!atomic_load(&wrong));
    ck_assert_uint_eq(atomic_load(&out), 0);
    ck_assert_uint_gt(rounds, 0);
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool threads");
    TCase *tcase = tcase_create("pool");
    tcase_add_test(tcase, blocks_come_back_from_any_thread_and_outlive_their_pool);
    suite_add_tcase(suite, tcase);
    return rings_run(suite);
}
