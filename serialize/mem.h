/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_MEM_H
#define CQR_MEM_H

/* All memory of the library comes through here, so that tests can make any one allocation fail and count them, and so
   that the gates "0 allocations per request" are a subtraction. Any thread. */

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

void *cqr_mem_alloc(size_t size);                   /* NULL when out of memory; size 0 is allowed and gives a unique pointer */
void *cqr_mem_zalloc(size_t size);                  /* the same, zeroed */
void *cqr_mem_array(size_t count, size_t size);     /* zeroed count × size, checked for overflow */
void *cqr_mem_realloc(void *memory, size_t size);   /* the old memory stays valid when NULL is returned */
void *cqr_mem_aligned(size_t alignment, size_t size); /* zeroed; alignment a power of two; freed with cqr_mem_free */
void *cqr_mem_aligned_raw(size_t alignment, size_t size); /* the same, not zeroed: for wire blocks, filled before they are read */
void cqr_mem_free(void *memory);                    /* NULL is fine */
char *cqr_mem_text(const void *text, size_t size);  /* a NUL-terminated copy of size bytes, NULL when out of memory */

/* Where all of it comes from; until one is given, malloc. */
struct mem_source {
    void *(*allocate)(size_t size, size_t alignment, void *context); /* size > 0; alignment a power of two */
    void *(*reallocate)(void *memory, size_t size, void *context);   /* of memory with the alignment of malloc's */
    void (*release)(void *memory, void *context);                    /* not NULL */
    void *context;
};
/* From now on. Refused while anything lives that came from another one: it would be given back to the wrong one. */
int cqr_mem_use(const struct mem_source *source);

uint64_t cqr_mem_allocation_count(void); /* allocations made so far by the process, all threads; relaxed */
int64_t cqr_mem_live_count(void);        /* allocations not yet freed */

/* Tests: the n-th allocation from now on (1 = the next one) and, if sticky, all later ones, return NULL. 0 switches it
   off. Process-wide. */
void cqr_mem_fail_at(uint64_t n, int sticky);
/* Tests: how many allocations were made to fail since the last cqr_mem_fail_at. */
uint64_t cqr_mem_failed_count(void);

/* An arena: many small things that die together (a type tree, a result's metadata). One owner; not shared while it
   grows. Memory is aligned for any scalar. */
struct arena_chunk;
struct arena {
    struct arena_chunk *chunks;
    uint8_t *at;
    size_t left;
    size_t total;     /* bytes handed out so far */
    size_t size_max;  /* ceiling of total; allocations beyond it return NULL */
};
void cqr_arena_init(struct arena *arena, size_t size_max);
void *cqr_arena_alloc(struct arena *arena, size_t size);                /* zeroed; NULL when out of memory or over size_max */
void *cqr_arena_array(struct arena *arena, size_t count, size_t size);  /* zeroed, overflow checked */
char *cqr_arena_text(struct arena *arena, const void *text, size_t size); /* NUL-terminated copy */
void cqr_arena_fini(struct arena *arena);

#endif
