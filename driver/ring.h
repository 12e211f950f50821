/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RING_H
#define CQR_RING_H

/* The two rings of a lane: completions go up (reactor → submitter), commands go down (submitter → reactor). Each has one
   producer and one consumer. Neither can be full: their capacity is fixed at open to more than what can be under way
   (decision 8), which is asserted here and enforced where ops are issued.

   Producer and consumer keep their own index and a cached copy of the other's on cache lines of their own, so a hop
   touches a shared line once per batch. The producer stages entries and publishes a whole batch with one release store. */

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "serialize/block.h"
#include "serialize/cqlring_types.h"
#include "serialize/mem.h"

enum completion_kind {
    COMPLETION_DONE,        /* subject: op; the reply's frame header and body */
    COMPLETION_VOID,        /* subject: op; a plain VOID, no block */
    COMPLETION_LARGE,       /* subject: op; a reply of `size`, more than frame_size_max: not read, the connection ends */
    COMPLETION_STREAM_FREE, /* subject: conn; the late reply of an orphan came */
    COMPLETION_WRITABLE,    /* subject: conn */
    COMPLETION_UP,          /* subject: conn; the write side now belongs to the submitter */
    COMPLETION_DOWN,        /* subject: conn; no further entry of it will come */
    COMPLETION_AUTH,        /* subject: conn; a token is wanted */
    COMPLETION_EVENT        /* subject: conn; an EVENT frame */
};

struct completion {
    void *subject;
    struct block *block; /* one reference goes with the entry; NULL when there is no body */
    uint32_t offset;     /* of the body in the block */
    uint32_t size;       /* of the body */
    uint16_t stream;
    uint8_t kind;
    uint8_t opcode;
    uint8_t flags;       /* of the frame header */
    uint8_t version;     /* of the frame header */
    uint16_t reserved;
};
_Static_assert(sizeof(struct completion) == 32, "two completions a cache line");

struct ring {
    /* producer's line */
    _Alignas(128) uint32_t staged;   /* written but not yet published */
    uint32_t tail_published;
    uint32_t head_cached;
    atomic_uint tail;                /* published; consumer loads it (acquire) */
    /* consumer's line */
    _Alignas(128) atomic_uint head;  /* consumed; producer loads it (acquire) */
    uint32_t tail_cached;
    /* both, constant */
    _Alignas(128) uint32_t mask;
    struct completion *entries;
};

/* capacity is rounded up to a power of two. Indexes count entries for ever and turn over at 2^32, which a power of two
   divides: only differences of them mean anything. */
static inline cqlring_status cqr_ring_init(struct ring *ring, uint32_t capacity)
{
    uint32_t size = 64;
    while (size < capacity && size < UINT32_C(1) << 31)
        size *= 2;
    *ring = (struct ring){.mask = size - 1};
    if (size < capacity)
        return CQLRING_NO_MEMORY;
    ring->entries = cqr_mem_aligned_raw(64, (size_t)size * sizeof *ring->entries);
    return ring->entries == NULL ? CQLRING_NO_MEMORY : CQLRING_OK;
}
static inline void cqr_ring_fini(struct ring *ring)
{
    cqr_mem_free(ring->entries);
    ring->entries = NULL;
}

/* Producer: the next entry to fill; it is not seen before cqr_ring_publish. */
static inline struct completion *cqr_ring_stage(struct ring *ring)
{
    if (ring->staged - ring->head_cached > ring->mask) {
        /* acquire: pairs with the release in cqr_ring_consume, so the slot's old content has been read */
        ring->head_cached = atomic_load_explicit(&ring->head, memory_order_acquire);
        assert(ring->staged - ring->head_cached <= ring->mask);
    }
    return &ring->entries[ring->staged++ & ring->mask];
}
/* Producer: publish everything staged. Returns whether there was anything. */
static inline bool cqr_ring_publish(struct ring *ring)
{
    if (ring->staged == ring->tail_published)
        return false;
    ring->tail_published = ring->staged;
    /* release: pairs with the acquire in cqr_ring_peek */
    atomic_store_explicit(&ring->tail, ring->staged, memory_order_release);
    return true;
}

/* Consumer: how many entries can be read, the first at *first (contiguous up to the ring's end). */
static inline uint32_t cqr_ring_peek(struct ring *ring, const struct completion **first)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (ring->tail_cached == head) {
        ring->tail_cached = atomic_load_explicit(&ring->tail, memory_order_acquire); /* pairs with publish */
        if (ring->tail_cached == head)
            return 0;
    }
    uint32_t count = ring->tail_cached - head;
    uint32_t to_end = ring->mask + 1 - (head & ring->mask);
    *first = &ring->entries[head & ring->mask];
    return count < to_end ? count : to_end;
}
/* Consumer: n entries have been read and may be overwritten. */
static inline void cqr_ring_consume(struct ring *ring, uint32_t n)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + n, memory_order_release); /* pairs with the acquire in stage */
}
static inline bool cqr_ring_is_empty(struct ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_acquire) == atomic_load_explicit(&ring->head, memory_order_relaxed);
}

#endif
