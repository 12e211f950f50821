/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *node_alloc(size_t size)
{
    void *memory = malloc(size == 0 ? 1 : size);
    if (memory == NULL)
        abort();
    return memory;
}

void *node_zalloc(size_t size)
{
    void *memory = calloc(1, size == 0 ? 1 : size);
    if (memory == NULL)
        abort();
    return memory;
}

void *node_realloc(void *memory, size_t size)
{
    memory = realloc(memory, size == 0 ? 1 : size);
    if (memory == NULL)
        abort();
    return memory;
}

void node_free(void *memory)
{
    free(memory);
}

struct node_chunk {
    struct node_chunk *next;
    size_t size;
    _Alignas(16) uint8_t data[];
};

enum { CHUNK_SIZE = 4096 - 64 };

static void arena_chunk_add(struct node_arena *arena, size_t size)
{
    size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
    struct node_chunk *chunk = node_alloc(sizeof *chunk + room);
    chunk->next = arena->chunks;
    chunk->size = room;
    arena->chunks = chunk;
    arena->at = chunk->data;
    arena->left = room;
}

uint8_t *node_arena_bytes(struct node_arena *arena, size_t size)
{
    if (arena->left < size || arena->chunks == NULL)
        arena_chunk_add(arena, size);
    uint8_t *at = arena->at;
    arena->at += size;
    arena->left -= size;
    return at;
}

void *node_arena_alloc(struct node_arena *arena, size_t size)
{
    size_t skip = (16 - ((uintptr_t)arena->at & 15)) & 15;
    if (arena->chunks == NULL || arena->left < skip + size)
        arena_chunk_add(arena, size);
    else if (skip > 0)
        (void)node_arena_bytes(arena, skip);
    uint8_t *at = node_arena_bytes(arena, size);
    memset(at, 0, size);
    return at;
}

cqlring_bytes node_arena_copy(struct node_arena *arena, cqlring_bytes bytes)
{
    if (bytes.size < 0 || bytes.data == NULL)
        return bytes;
    uint8_t *at = node_arena_bytes(arena, (size_t)bytes.size + 1);
    if (bytes.size > 0)
        memcpy(at, bytes.data, (size_t)bytes.size);
    at[bytes.size] = 0;
    return slice_of(at, (size_t)bytes.size);
}

void node_arena_reset(struct node_arena *arena)
{
    struct node_chunk *keep = NULL;
    for (struct node_chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (keep == NULL && chunk->size == CHUNK_SIZE)
            keep = chunk;
        else
            node_free(chunk);
    }
    *arena = (struct node_arena){.chunks = keep};
    if (keep != NULL) {
        keep->next = NULL;
        arena->at = keep->data;
        arena->left = keep->size;
    }
}

void node_arena_fini(struct node_arena *arena)
{
    node_arena_reset(arena);
    node_free(arena->chunks);
    *arena = (struct node_arena){0};
}

void node_out_grow(struct out *out, size_t more)
{
    size_t capacity = out->capacity < 256 ? 256 : out->capacity;
    while (capacity - out->size < more)
        capacity *= 2;
    out->data = node_realloc(out->data, capacity);
    out->capacity = capacity;
}

void node_out_fini(struct out *out)
{
    node_free(out->data);
    *out = (struct out){0};
}

void node_out_printf(struct out *out, const char *format, ...)
{
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t room = out->capacity - out->size;
        int size = vsnprintf(room > 0 ? (char *)out->data + out->size : NULL, room, format,
                             arguments);
        va_end(arguments);
        if (size < 0)
            abort();
        if ((size_t)size < room) {
            out->size += (size_t)size;
            return;
        }
        node_out_grow(out, (size_t)size + 1);
    }
}

bool node_slice_is_nocase(cqlring_bytes a, const char *text)
{
    size_t size = strlen(text);
    if (a.size < 0 || (size_t)a.size != size)
        return false;
    for (size_t i = 0; i < size; ++i) {
        uint8_t x = slice_data(a)[i], y = (uint8_t)text[i];
        x = (uint8_t)(x >= 'A' && x <= 'Z' ? x + 32 : x);
        y = (uint8_t)(y >= 'A' && y <= 'Z' ? y + 32 : y);
        if (x != y)
            return false;
    }
    return true;
}

uint64_t node_random_seed(uint64_t seed, uint64_t stream)
{
    /* splitmix64 of both, so that neighbouring seeds have nothing in common. */
    uint64_t z = seed + 0x9E3779B97F4A7C15ULL * (stream + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    return z == 0 ? 1 : z;
}
