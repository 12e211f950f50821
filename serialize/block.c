/* SPDX-License-Identifier: Apache-2.0 */
#include "serialize/block.h"

#include <assert.h>
#include <stddef.h>

#include "serialize/mem.h"

/* One word holds what decides about the pool's life: the bytes of blocks that are out, always a
   multiple of 64, plus OPEN while the owner has not closed it. Whoever brings it to 0 frees the
   pool.

   Idle blocks are in two places: the owner's own list, and the return stack that any thread pushes
   onto. The owner only ever takes the stack whole, so the stack has no ABA problem. `idle_count`
   counts both, so the bound is exact. */
enum { OPEN = 1, GRAIN = 64 };

struct block_pool {
    /* owner's */
    uint32_t block_size;
    uint32_t keep_max;
    struct block *idle;
    /* everybody's */
    _Alignas(64) _Atomic(struct block *) returned;
    atomic_uint idle_count;
    atomic_uint_fast64_t held;
};

static uint64_t grains(uint32_t size)
{
    uint64_t rounded = ((uint64_t)size + GRAIN - 1) / GRAIN * GRAIN;
    return rounded > 0 ? rounded : GRAIN;
}

static void free_chain(struct block *block)
{
    while (block != NULL) {
        struct block *next = block->next;
        cqr_mem_free(block);
        block = next;
    }
}

/* Give up `bytes` of the pool's held word; the last one frees it. The release half makes everything
   this thread did to the pool visible to whoever frees it; the acquire half is for being that
   one. */
static void pool_unhold(struct block_pool *pool, uint64_t bytes)
{
    if (atomic_fetch_sub_explicit(&pool->held, bytes, memory_order_acq_rel) != bytes)
        return;
    /* What was returned by threads that still saw the pool open. Relaxed: the subtraction above
       acquired it. */
    free_chain(atomic_load_explicit(&pool->returned, memory_order_relaxed));
    cqr_mem_free(pool);
}

/* The last reference is gone: back to the owner, or to the system when the pool is closed or has
   enough. Any thread. */
static void block_return(struct block *block)
{
    struct block_pool *pool = block->pool;
    uint64_t bytes = grains(block->size);
    /* Relaxed: a stale OPEN only delays the freeing to the pool's end. */
    bool open = (atomic_load_explicit(&pool->held, memory_order_relaxed) & OPEN) != 0;
    if (block->class_size == 0 || !open) {
        cqr_mem_free(block);
    } else if (atomic_fetch_add_explicit(&pool->idle_count, 1, memory_order_relaxed) >=
               pool->keep_max) {
        atomic_fetch_sub_explicit(&pool->idle_count, 1, memory_order_relaxed);
        cqr_mem_free(block);
    } else {
        struct block *top = atomic_load_explicit(&pool->returned, memory_order_relaxed);
        do {
            block->next = top;
            /* Release: pairs with the acquire exchange in block_reuse. */
        } while (!atomic_compare_exchange_weak_explicit(
            &pool->returned, &top, block, memory_order_release, memory_order_relaxed));
    }
    pool_unhold(pool, bytes);
}

/* An idle block, NULL if there is none. Owner thread. */
static struct block *block_reuse(struct block_pool *pool)
{
    if (pool->idle == NULL && atomic_load_explicit(&pool->returned, memory_order_relaxed) != NULL)
        /* Acquire: pairs with the release push in block_return, for `next` and for the last
           holder's use of the bytes. */
        pool->idle = atomic_exchange_explicit(&pool->returned, NULL, memory_order_acquire);
    struct block *block = pool->idle;
    if (block != NULL) {
        pool->idle = block->next;
        atomic_fetch_sub_explicit(&pool->idle_count, 1, memory_order_relaxed);
    }
    return block;
}

struct block *cqr_block_take(struct block_pool *pool, uint32_t size)
{
    bool pooled = size <= pool->block_size;
    struct block *block = pooled ? block_reuse(pool) : NULL;
    if (block == NULL) {
        uint32_t data_size = pooled ? pool->block_size : size;
        /* Not zeroed: a block is only read where it was filled, and clearing a large frame would
           cost as much as receiving it. */
        block = cqr_mem_aligned_raw(_Alignof(struct block), sizeof *block + data_size);
        if (block == NULL)
            return NULL;
        block->size = data_size;
        block->class_size = pooled ? pool->block_size : 0;
        block->pool = pool;
    }
    block->fill = 0;
    block->next = NULL;
    atomic_store_explicit(&block->references, 1,
                          memory_order_relaxed); /* nobody else knows the block yet */
    atomic_fetch_add_explicit(&pool->held, grains(block->size), memory_order_relaxed);
    return block;
}

void cqr_block_release_many(struct block *block, uint32_t n)
{
    assert(n > 0);
    /* The only holder needs no locked instruction: nobody can add a reference to a block they hold
       none of. Acquire: pairs with the releasing subtraction of earlier holders. */
    if (atomic_load_explicit(&block->references, memory_order_acquire) != n) {
        /* Release: this holder's reading is over before the block is filled again. Acquire: so is
           everybody else's. */
        uint32_t before = atomic_fetch_sub_explicit(&block->references, n, memory_order_acq_rel);
        assert(before >= n);
        if (before != n)
            return;
    }
    block_return(block);
}

void cqr_block_release(struct block *block)
{
    if (block != NULL)
        cqr_block_release_many(block, 1);
}

struct block_pool *cqr_pool_create(uint32_t block_size, uint32_t keep_max)
{
    struct block_pool *pool = cqr_mem_aligned(_Alignof(struct block_pool), sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->block_size = block_size;
    pool->keep_max = keep_max;
    atomic_init(&pool->returned, NULL);
    atomic_init(&pool->idle_count, 0);
    atomic_init(&pool->held, OPEN);
    return pool;
}

uint64_t cqr_pool_live_bytes(const struct block_pool *pool)
{
    return atomic_load_explicit(&pool->held, memory_order_relaxed) & ~(uint64_t)OPEN;
}

void cqr_pool_close(struct block_pool *pool)
{
    if (pool == NULL)
        return;
    free_chain(pool->idle);
    pool->idle = NULL;
    /* Acquire: pairs with the release push in block_return. */
    free_chain(atomic_exchange_explicit(&pool->returned, NULL, memory_order_acquire));
    pool_unhold(pool, OPEN);
}
