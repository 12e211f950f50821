/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/block.h"
#include "serialize/mem.h"

START_TEST(a_taken_block_is_empty_aligned_and_the_takers_alone)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    struct block *block = cqr_block_take(pool, 100);
    ck_assert_uint_eq(block->fill, 0);
    ck_assert_uint_eq(block->size, 4096);
    ck_assert_uint_eq((uintptr_t)block->data % 64, 0);
    ck_assert(cqr_block_is_unshared(block));
    cqr_block_retain(block);
    ck_assert(!cqr_block_is_unshared(block));
    cqr_block_release(block);
    ck_assert(cqr_block_is_unshared(block));
    cqr_block_release(block);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(a_returned_block_is_taken_again_without_an_allocation)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    struct block *first = cqr_block_take(pool, 1);
    first->fill = 77;
    cqr_block_release(first);
    uint64_t count = cqr_mem_allocation_count();
    for (int i = 0; i < 100; i++) {
        struct block *block = cqr_block_take(pool, 4096);
        ck_assert_ptr_eq(block, first);
        ck_assert_uint_eq(block->fill, 0);
        cqr_block_release(block);
    }
    ck_assert_uint_eq(cqr_mem_allocation_count(), count);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(a_block_larger_than_the_pools_is_made_for_the_purpose_and_freed)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    int64_t live = cqr_mem_live_count();
    struct block *block = cqr_block_take(pool, 100000);
    ck_assert_uint_ge(block->size, 100000);
    ck_assert_uint_eq(block->class_size, 0);
    memset(block->data, 1, block->size);
    cqr_block_release(block);
    ck_assert_int_eq(cqr_mem_live_count(), live);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(no_more_than_keep_max_blocks_stay_idle)
{
    enum { KEEP = 3, TAKEN = 10 };
    struct block_pool *pool = cqr_pool_create(1024, KEEP);
    int64_t live = cqr_mem_live_count();
    struct block *blocks[TAKEN];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TAKEN; i++)
            blocks[i] = cqr_block_take(pool, 1024);
        ck_assert_int_eq(cqr_mem_live_count() - live, TAKEN);
        for (int i = 0; i < TAKEN; i++)
            cqr_block_release(blocks[i]);
        ck_assert_int_eq(cqr_mem_live_count() - live, KEEP);
        /* some idle in the owner's list, others on the return stack: still no more */
        blocks[0] = cqr_block_take(pool, 1);
        blocks[1] = cqr_block_take(pool, 1);
        cqr_block_release(blocks[0]);
        cqr_block_release(blocks[1]);
        ck_assert_int_eq(cqr_mem_live_count() - live, KEEP);
    }
    cqr_pool_close(pool);
}
END_TEST

START_TEST(a_pool_that_keeps_nothing_frees_every_block)
{
    struct block_pool *pool = cqr_pool_create(1024, 0);
    int64_t live = cqr_mem_live_count();
    cqr_block_release(cqr_block_take(pool, 10));
    ck_assert_int_eq(cqr_mem_live_count(), live);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(live_bytes_are_those_of_blocks_that_are_out)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    ck_assert_uint_eq(cqr_pool_live_bytes(pool), 0);
    struct block *small = cqr_block_take(pool, 1);
    struct block *large = cqr_block_take(pool, 64000);
    ck_assert_uint_eq(cqr_pool_live_bytes(pool), 4096 + 64000);
    cqr_block_retain_many(small, 5);
    cqr_block_release_many(small, 5);
    ck_assert_uint_eq(cqr_pool_live_bytes(pool), 4096 + 64000);
    cqr_block_release(large);
    ck_assert_uint_eq(cqr_pool_live_bytes(pool), 4096);
    cqr_block_release_many(small, 1);
    ck_assert_uint_eq(cqr_pool_live_bytes(pool), 0);
    cqr_pool_close(pool);
}
END_TEST

START_TEST(references_counted_at_once_are_given_back_one_by_one)
{
    struct block_pool *pool = cqr_pool_create(4096, 4);
    int64_t live = cqr_mem_live_count();
    struct block *block = cqr_block_take(pool, 9000);
    cqr_block_retain_many(block, 1000);
    for (int i = 0; i < 1000; i++)
        cqr_block_release(block);
    ck_assert(cqr_block_is_unshared(block));
    ck_assert_int_eq(cqr_mem_live_count() - live, 1);
    cqr_block_release(block);
    cqr_block_release(NULL);
    ck_assert_int_eq(cqr_mem_live_count(), live);
    cqr_pool_close(pool);
    cqr_pool_close(NULL);
}
END_TEST

START_TEST(a_closed_pool_lives_until_its_last_block_is_back)
{
    int64_t live = cqr_mem_live_count();
    struct block_pool *pool = cqr_pool_create(4096, 8);
    struct block *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = cqr_block_take(pool, i == 3 ? 50000 : 10);
    cqr_block_release(cqr_block_take(pool, 10)); /* one that is idle */
    cqr_pool_close(pool);
    ck_assert_int_eq(cqr_mem_live_count() - live, 4 + 1); /* the idle one is gone */
    for (int i = 0; i < 4; i++) {
        memset(blocks[i]->data, i, blocks[i]->size);
        cqr_block_release(blocks[i]);
        ck_assert_int_eq(cqr_mem_live_count() - live, i < 3 ? 4 - i : 0);
    }
}
END_TEST

START_TEST(creating_and_taking_survive_every_failed_allocation)
{
    int64_t live = cqr_mem_live_count();
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        cqr_mem_fail_at(n, 0);
        struct block_pool *pool = cqr_pool_create(4096, 2);
        struct block *small = pool == NULL ? NULL : cqr_block_take(pool, 1);
        struct block *large = pool == NULL ? NULL : cqr_block_take(pool, 5000);
        done = small != NULL && large != NULL;
        ck_assert_int_eq(done, cqr_mem_failed_count() == 0);
        cqr_mem_fail_at(0, 0);
        if (pool != NULL)
            ck_assert_uint_eq(cqr_pool_live_bytes(pool),
                              (small != NULL ? 4096u : 0) + (large != NULL ? 5056u : 0));
        cqr_block_release(small);
        cqr_block_release(large);
        cqr_pool_close(pool);
        ck_assert_int_eq(cqr_mem_live_count(), live);
    }
}
END_TEST

/* An owner fills blocks and hands each to several threads, which read and release them, in any
   order; at the end it closes the pool under them. Wrong orders show as torn contents here and as
   reports of the thread sanitizer. */
enum { THREADS = 3, ROUNDS = 4000, WINDOW = 64, WORDS = 16 };

struct holder {
    pthread_t thread;
    _Alignas(64) _Atomic(struct block *) slots[WINDOW];
    uint64_t bad;
};

static void *hold_and_release(void *context)
{
    struct holder *holder = context;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct block *block;
        /* Acquire: pairs with the owner's release store; this test has no other way to hand blocks
           on. */
        while ((block = atomic_exchange_explicit(&holder->slots[i % WINDOW], NULL,
                                                 memory_order_acquire)) == NULL)
            sched_yield();
        const uint32_t *words = (const uint32_t *)(const void *)block->data;
        for (uint32_t k = 1; k < WORDS; k++)
            holder->bad += words[k] != words[0];
        if (i % 3 == 0) {
            cqr_block_retain(block);
            cqr_block_release_many(block, 2);
        } else {
            cqr_block_release(block);
        }
    }
    return NULL;
}

START_TEST(blocks_are_released_from_several_threads)
{
    static struct holder holders[THREADS];
    int64_t live = cqr_mem_live_count();
    struct block_pool *pool = cqr_pool_create(1024, 16);
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&holders[t].thread, NULL, hold_and_release, &holders[t]),
                         0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct block *block = cqr_block_take(pool, i % 50 == 0 ? 3000 : 1024);
        uint32_t *words = (uint32_t *)(void *)block->data;
        for (uint32_t k = 0; k < WORDS; k++)
            words[k] = i;
        cqr_block_retain_many(block, THREADS);
        for (int t = 0; t < THREADS; t++) {
            while (atomic_load_explicit(&holders[t].slots[i % WINDOW], memory_order_relaxed) !=
                   NULL)
                sched_yield();
            atomic_store_explicit(&holders[t].slots[i % WINDOW], block, memory_order_release);
        }
        cqr_block_release(block);
    }
    cqr_pool_close(pool); /* while the threads still hold some */
    for (int t = 0; t < THREADS; t++) {
        ck_assert_int_eq(pthread_join(holders[t].thread, NULL), 0);
        ck_assert_uint_eq(holders[t].bad, 0);
    }
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

int main(void)
{
    TCase *test = tcase_create("block");
    tcase_set_timeout(test, 60);
    tcase_add_test(test, a_taken_block_is_empty_aligned_and_the_takers_alone);
    tcase_add_test(test, a_returned_block_is_taken_again_without_an_allocation);
    tcase_add_test(test, a_block_larger_than_the_pools_is_made_for_the_purpose_and_freed);
    tcase_add_test(test, no_more_than_keep_max_blocks_stay_idle);
    tcase_add_test(test, a_pool_that_keeps_nothing_frees_every_block);
    tcase_add_test(test, live_bytes_are_those_of_blocks_that_are_out);
    tcase_add_test(test, references_counted_at_once_are_given_back_one_by_one);
    tcase_add_test(test, a_closed_pool_lives_until_its_last_block_is_back);
    tcase_add_test(test, creating_and_taking_survive_every_failed_allocation);
    tcase_add_test(test, blocks_are_released_from_several_threads);
    Suite *suite = suite_create("block");
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
