/* SPDX-License-Identifier: Apache-2.0 */
#include "serialize/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Statistics only: nobody draws a conclusion about other memory from them, so relaxed is enough but where it is said. Threads count in
   lines of their own as far as there are any: one for all would go from processor to processor with every allocation. */
enum { COUNTS = 32 };
struct counts {
    _Alignas(64) atomic_uint_fast64_t made;
    atomic_uint_fast64_t grown; /* of those made, moved to new memory */
    atomic_uint_fast64_t freed;
};
static struct counts counts[COUNTS];
static atomic_uint counting_threads;
static _Thread_local struct counts *own_counts;

static struct counts *counts_here(void)
{
    if (__builtin_expect(own_counts == NULL, 0))
        own_counts = &counts[atomic_fetch_add_explicit(&counting_threads, 1, memory_order_relaxed) % COUNTS];
    return own_counts;
}

/* The fault counter in one word, so that count and stickiness cannot part: (allocations to go << 1)
   | sticky; 0 is off. */
static atomic_uint_fast64_t fault;
static atomic_uint_fast64_t failed_count;

/* Whether this allocation is the one a test has chosen. Off, it is one relaxed load. */
static bool must_fail(void)
{
    uint_fast64_t seen = atomic_load_explicit(&fault, memory_order_relaxed);
    while (seen != 0) {
        uint_fast64_t left = seen >> 1;
        bool sticky = (seen & 1) != 0;
        uint_fast64_t next = left > 1 ? seen - 2 : sticky ? seen : 0;
        if (atomic_compare_exchange_weak_explicit(&fault, &seen, next, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            if (left > 1)
                return false;
            atomic_fetch_add_explicit(&failed_count, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static void *counted(void *memory)
{
    if (memory != NULL)
        atomic_fetch_add_explicit(&counts_here()->made, 1, memory_order_relaxed);
    return memory;
}

/* Given at most while nothing lives, and read by whoever allocates afterwards: the caller sees to that order. */
static struct mem_source source;

static void *plain(size_t size)
{
    size = size > 0 ? size : 1;
    return source.allocate != NULL ? source.allocate(size, alignof(max_align_t), source.context) : malloc(size);
}

int cqr_mem_use(const struct mem_source *given)
{
    bool same = given->allocate == source.allocate && given->reallocate == source.reallocate && given->release == source.release &&
                given->context == source.context;
    if (!same && cqr_mem_live_count() != 0)
        return 0;
    if (!same)
        source = *given;
    return 1;
}

void *cqr_mem_alloc(size_t size)
{
    return must_fail() ? NULL : counted(plain(size));
}

/* calloc goes past glibc's cache of small blocks of a thread (before 2.41), which malloc takes from: 300 instructions for a
   block that is given back and wanted again, as a single request's are. Large ones it may get zeroed from the kernel. */
enum { CACHED_MAX = 1032 };

void *cqr_mem_zalloc(size_t size)
{
    if (must_fail())
        return NULL;
    if (size > CACHED_MAX && source.allocate == NULL)
        return counted(calloc(1, size));
    void *memory = counted(plain(size));
    if (memory != NULL)
        memset(memory, 0, size);
    return memory;
}

void *cqr_mem_array(size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return cqr_mem_zalloc(total);
}

void *cqr_mem_realloc(void *memory, size_t size)
{
    if (memory == NULL)
        return cqr_mem_alloc(size);
    if (must_fail())
        return NULL;
    size = size > 0 ? size : 1;
    void *moved = source.reallocate != NULL ? source.reallocate(memory, size, source.context) : realloc(memory, size);
    if (moved != NULL)
        atomic_fetch_add_explicit(&counts_here()->grown, 1, memory_order_relaxed);
    return moved;
}

void *cqr_mem_aligned_raw(size_t alignment, size_t size)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    size_t rounded = (size + alignment - 1) &
                     ~(alignment - 1); /* C17: a multiple of the alignment */
    if (rounded < size)
        return NULL;
    if (must_fail())
        return NULL;
    rounded = rounded > 0 ? rounded : alignment;
    return counted(source.allocate != NULL ? source.allocate(rounded, alignment, source.context)
                                           : aligned_alloc(alignment, rounded));
}

void *cqr_mem_aligned(size_t alignment, size_t size)
{
    void *memory = cqr_mem_aligned_raw(alignment, size);
    if (memory != NULL)
        memset(memory, 0, size);
    return memory;
}

void cqr_mem_free(void *memory)
{
    if (memory == NULL)
        return;
    atomic_fetch_add_explicit(&counts_here()->freed, 1, memory_order_release); /* see cqr_mem_live_count */
    if (source.release != NULL)
        source.release(memory, source.context);
    else
        free(memory);
}

char *cqr_mem_text(const void *text, size_t size)
{
    if (size == SIZE_MAX)
        return NULL;
    char *copy = cqr_mem_alloc(size + 1);
    if (copy == NULL)
        return NULL;
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

uint64_t cqr_mem_allocation_count(void)
{
    uint64_t count = 0;
    for (int i = 0; i < COUNTS; i++)
        count += atomic_load_explicit(&counts[i].made, memory_order_relaxed) + atomic_load_explicit(&counts[i].grown, memory_order_relaxed);
    return count;
}

int64_t cqr_mem_live_count(void)
{
    int64_t count = 0;
    for (int i = 0; i < COUNTS; i++) /* first, acquiring: whatever is seen freed is seen made below, so it is never too few */
        count -= (int64_t)atomic_load_explicit(&counts[i].freed, memory_order_acquire);
    for (int i = 0; i < COUNTS; i++)
        count += (int64_t)atomic_load_explicit(&counts[i].made, memory_order_relaxed);
    return count;
}

void cqr_mem_fail_at(uint64_t n, int sticky)
{
    atomic_store_explicit(&failed_count, 0, memory_order_relaxed);
    atomic_store_explicit(&fault, n == 0 ? 0 : (n << 1) | (sticky != 0), memory_order_relaxed);
}

uint64_t cqr_mem_failed_count(void)
{
    return atomic_load_explicit(&failed_count, memory_order_relaxed);
}

/* --- arena ------------------------------------------------------------------------------------ */

/* Chunks grow with what was handed out: a lone column description takes one small allocation, a
   large schema few. */
enum { CHUNK_SIZE_MIN = 512, CHUNK_SIZE_MAX = 32 * 1024 };

struct arena_chunk {
    struct arena_chunk *next;
    alignas(max_align_t) uint8_t data[];
};

void cqr_arena_init(struct arena *arena, size_t size_max)
{
    *arena = (struct arena){.size_max = size_max};
}

void *cqr_arena_alloc(struct arena *arena, size_t size)
{
    size_t align = alignof(max_align_t);
    if (size > arena->size_max || arena->size_max - size < arena->total)
        return NULL;
    size_t rounded = (size + align - 1) & ~(align - 1);
    if (rounded < size)
        return NULL;
    if (rounded == 0)
        rounded = align; /* two things never share an address */
    if (rounded > arena->left) {
        size_t chunk_size = arena->total < CHUNK_SIZE_MIN   ? CHUNK_SIZE_MIN
                            : arena->total > CHUNK_SIZE_MAX ? CHUNK_SIZE_MAX
                                                            : arena->total;
        if (rounded > chunk_size)
            chunk_size = rounded;
        chunk_size = (chunk_size + align - 1) & ~(align - 1);
        if (chunk_size > SIZE_MAX - sizeof(struct arena_chunk))
            return NULL;
        struct arena_chunk *chunk = cqr_mem_zalloc(sizeof *chunk + chunk_size);
        if (chunk == NULL)
            return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->at = chunk->data;
        arena->left = chunk_size;
    }
    void *memory = arena->at;
    arena->at += rounded;
    arena->left -= rounded;
    arena->total += rounded;
    return memory;
}

void *cqr_arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return cqr_arena_alloc(arena, total);
}

char *cqr_arena_text(struct arena *arena, const void *text, size_t size)
{
    if (size == SIZE_MAX)
        return NULL;
    char *copy = cqr_arena_alloc(arena, size + 1);
    if (copy != NULL && size > 0)
        memcpy(copy, text, size);
    return copy;
}

void cqr_arena_fini(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct arena_chunk *next = chunk->next;
        cqr_mem_free(chunk);
        chunk = next;
    }
    *arena = (struct arena){.size_max = arena->size_max};
}
