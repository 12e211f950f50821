/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_BLOCK_H
#define CQR_BLOCK_H

/* A block owns wire memory, in both directions, and is counted. Its bytes are frozen once somebody else holds a
   reference to them (the owner may go on filling the part behind them).

   A pool hands blocks out and takes them back. `take` is for the pool's owner thread alone; the last release may come
   from any thread: the block then goes onto a lock-free return stack which the owner takes whole. A pool is itself
   counted by its outstanding blocks: after `cqr_pool_close` the last release of its last block frees it, so results may
   outlive the lane that received them (decision 22). */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct block_pool;

struct block {
    atomic_uint references;
    uint32_t size;            /* bytes of data */
    uint32_t fill;            /* owner's: how far it has been filled */
    uint32_t class_size;      /* 0: made for one large frame, freed instead of pooled */
    struct block_pool *pool;
    struct block *next;       /* free list, return stack, or the owner's chain */
    _Alignas(64) uint8_t data[];
};

/* A pool of blocks of block_size bytes. At most keep_max idle ones are kept; further ones are freed on return.
   NULL when out of memory. */
struct block_pool *cqr_pool_create(uint32_t block_size, uint32_t keep_max);

/* A block with one reference and fill 0. size <= block_size: one of the pool's, else one made for the purpose.
   NULL when out of memory. Owner thread. */
struct block *cqr_block_take(struct block_pool *pool, uint32_t size);

/* Any thread. `many` adds n references with one atomic operation (the reactor counts a whole read at once). */
static inline struct block *cqr_block_retain(struct block *block)
{
    atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
    return block;
}
static inline void cqr_block_retain_many(struct block *block, uint32_t n)
{
    atomic_fetch_add_explicit(&block->references, n, memory_order_relaxed);
}
void cqr_block_release(struct block *block);                /* NULL is fine */
void cqr_block_release_many(struct block *block, uint32_t n);

/* True when the caller holds the only reference, so the block may be filled from its start again. Acquire: pairs with
   the release in cqr_block_release. */
static inline bool cqr_block_is_unshared(const struct block *block)
{
    return atomic_load_explicit(&block->references, memory_order_acquire) == 1;
}

uint64_t cqr_pool_live_bytes(const struct block_pool *pool); /* bytes of blocks that are out; any thread, relaxed */
void cqr_pool_close(struct block_pool *pool);                /* owner's last word; NULL is fine */

#endif
