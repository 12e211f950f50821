/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_MEMORY_H
#define NODE_MEMORY_H

/* The node's own memory: plain malloc that aborts when there is none, an arena, and a byte buffer
   that grows. Kept apart from serialize/mem.h on purpose: tests that count or fail the library's
   allocations must not meet the node's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/cqlring_types.h"

void *node_alloc(size_t size);
void *node_zalloc(size_t size);
void *node_realloc(void *memory, size_t size);
void node_free(void *memory);

/* Many small things that die together. Memory is zeroed. */
struct node_chunk;
struct node_arena {
    struct node_chunk *chunks;
    uint8_t *at;
    size_t left;
};
void *node_arena_alloc(struct node_arena *arena, size_t size);
uint8_t *node_arena_bytes(struct node_arena *arena, size_t size); /* unaligned, not zeroed */
cqlring_bytes node_arena_copy(struct node_arena *arena, cqlring_bytes bytes);
void node_arena_reset(struct node_arena *arena); /* keeps one chunk for the next use */
void node_arena_fini(struct node_arena *arena);

/* Bytes that grow. */
struct out {
    uint8_t *data;
    size_t size;
    size_t capacity;
};
void node_out_grow(struct out *out, size_t more);
void node_out_fini(struct out *out);
void node_out_printf(struct out *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline uint8_t *out_room(struct out *out, size_t n)
{
    if (out->capacity - out->size < n)
        node_out_grow(out, n);
    uint8_t *at = out->data + out->size;
    out->size += n;
    return at;
}
static inline void out_u8(struct out *out, uint8_t value)
{
    *out_room(out, 1) = value;
}
static inline void out_u16(struct out *out, uint16_t value)
{
    cqr_store_u16(out_room(out, 2), value);
}
static inline void out_u32(struct out *out, uint32_t value)
{
    cqr_store_u32(out_room(out, 4), value);
}
static inline void out_u64(struct out *out, uint64_t value)
{
    cqr_store_u64(out_room(out, 8), value);
}
static inline void out_raw(struct out *out, const void *data, size_t size)
{
    if (size > 0)
        memcpy(out_room(out, size), data, size);
}
static inline void out_slice(struct out *out, cqlring_bytes bytes)
{
    if (bytes.size > 0)
        out_raw(out, bytes.data, (size_t)bytes.size);
}
/* [string]; longer ones are cut. */
static inline void out_string(struct out *out, cqlring_bytes text)
{
    uint16_t size = (uint16_t)(text.size < 0 ? 0 : text.size > 0xFFFF ? 0xFFFF : text.size);
    out_u16(out, size);
    out_raw(out, text.data, size);
}
static inline void out_bytes(struct out *out, cqlring_bytes value) /* [bytes] */
{
    out_u32(out, (uint32_t)value.size);
    out_slice(out, value);
}
static inline void out_text(struct out *out, const char *text) /* [string] */
{
    out_string(out, (cqlring_bytes){.data = text, .size = (int32_t)strlen(text)});
}
static inline cqlring_bytes out_view(const struct out *out, size_t from)
{
    if (out->data == NULL)
        return (cqlring_bytes){.data = "", .size = 0};
    return (cqlring_bytes){.data = out->data + from, .size = (int32_t)(out->size - from)};
}

static inline cqlring_bytes slice_of(const void *data, size_t size)
{
    return (cqlring_bytes){.data = data, .size = (int32_t)size};
}
static inline cqlring_bytes slice_text(const char *text)
{
    return (cqlring_bytes){.data = text, .size = (int32_t)strlen(text)};
}
static inline bool slice_equal(cqlring_bytes a, cqlring_bytes b)
{
    return a.size == b.size && (a.size <= 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}
static inline bool slice_is(cqlring_bytes a, const char *text)
{
    return slice_equal(a, slice_text(text));
}
static inline const uint8_t *slice_data(cqlring_bytes a)
{
    return (const uint8_t *)a.data;
}
/* A reader over bytes that may be none at all. */
static inline void node_reader_init(struct reader *reader, const void *data, uint32_t size)
{
    cqr_reader_init(reader, data == NULL ? "" : data, data == NULL ? 0 : size);
}
/* Text without regard to the case of ASCII letters. */
bool node_slice_is_nocase(cqlring_bytes a, const char *text);
#define SLICE_NULL       ((cqlring_bytes){.data = NULL, .size = CQLRING_NULL})
/* For printf's "%.*s". */
#define SLICE_ARG(slice) ((slice).size < 0 ? 0 : (int)(slice).size), (const char *)(slice).data

/* xorshift64*: small, seeded, good enough for tests. The state is never 0. */
static inline uint64_t node_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1DULL;
}
uint64_t node_random_seed(uint64_t seed, uint64_t stream);

#endif
