/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/order.h"

#include "tests/node/memory.h"

struct order_at node_order_find(const struct order *order, order_compare compare,
                                const void *wanted, const void *context, bool *found)
{
    *found = false;
    /* The first chunk whose last item is not smaller. */
    uint32_t low = 0, high = order->chunk_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct order_chunk *chunk = order->chunks[middle];
        if (compare(chunk->items[chunk->count - 1], wanted, context) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    struct order_at at = {low, 0};
    if (low == order->chunk_count)
        return at;
    const struct order_chunk *chunk = order->chunks[low];
    uint32_t from = 0, to = chunk->count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int result = compare(chunk->items[middle], wanted, context);
        if (result == 0)
            *found = true;
        if (result < 0)
            from = middle + 1;
        else
            to = middle;
    }
    at.item = from;
    if (*found)
        *found = compare(chunk->items[from], wanted, context) == 0;
    return at;
}

static struct order_chunk *chunk_add(struct order *order, uint32_t at, uint16_t capacity)
{
    if (order->chunk_count == order->chunk_capacity) {
        order->chunk_capacity = order->chunk_capacity == 0 ? 1 : order->chunk_capacity * 2;
        order->chunks = node_realloc(order->chunks, order->chunk_capacity * sizeof *order->chunks);
    }
    memmove(order->chunks + at + 1, order->chunks + at,
            (order->chunk_count - at) * sizeof *order->chunks);
    struct order_chunk *chunk = node_alloc(sizeof *chunk + capacity * sizeof chunk->items[0]);
    chunk->count = 0;
    chunk->capacity = capacity;
    order->chunks[at] = chunk;
    ++order->chunk_count;
    return chunk;
}

void node_order_insert(struct order *order, struct order_at at, void *item)
{
    if (order->chunk_count == 0) {
        (void)chunk_add(order, 0, 1);
        at = (struct order_at){0, 0};
    } else if (at.chunk == order->chunk_count) {
        at.chunk = order->chunk_count - 1;
        at.item = order->chunks[at.chunk]->count;
        if (at.item == ORDER_CHUNK_MAX) { /* appended in order: leave the full one alone */
            (void)chunk_add(order, order->chunk_count, 64);
            at = (struct order_at){order->chunk_count - 1, 0};
        }
    }
    struct order_chunk *chunk = order->chunks[at.chunk];
    if (chunk->count == ORDER_CHUNK_MAX) {
        uint32_t half = ORDER_CHUNK_MAX / 2;
        struct order_chunk *right = chunk_add(order, at.chunk + 1, ORDER_CHUNK_MAX);
        chunk = order->chunks[at.chunk];
        right->count = (uint16_t)(ORDER_CHUNK_MAX - half);
        memcpy(right->items, chunk->items + half, right->count * sizeof chunk->items[0]);
        chunk->count = (uint16_t)half;
        if (at.item > half) {
            ++at.chunk;
            at.item -= half;
            chunk = right;
        }
    } else if (chunk->count == chunk->capacity) {
        uint32_t capacity = chunk->capacity * 4u > ORDER_CHUNK_MAX ? ORDER_CHUNK_MAX
                                                                   : chunk->capacity * 4u;
        chunk = node_realloc(chunk, sizeof *chunk + capacity * sizeof chunk->items[0]);
        chunk->capacity = (uint16_t)capacity;
        order->chunks[at.chunk] = chunk;
    }
    memmove(chunk->items + at.item + 1, chunk->items + at.item,
            (chunk->count - at.item) * sizeof chunk->items[0]);
    chunk->items[at.item] = item;
    ++chunk->count;
    ++order->count;
}

void node_order_remove(struct order *order, struct order_at at)
{
    struct order_chunk *chunk = order->chunks[at.chunk];
    --chunk->count;
    --order->count;
    memmove(chunk->items + at.item, chunk->items + at.item + 1,
            (chunk->count - at.item) * sizeof chunk->items[0]);
    if (chunk->count > 0)
        return;
    node_free(chunk);
    --order->chunk_count;
    memmove(order->chunks + at.chunk, order->chunks + at.chunk + 1,
            (order->chunk_count - at.chunk) * sizeof *order->chunks);
}

void node_order_fini(struct order *order)
{
    for (uint32_t i = 0; i < order->chunk_count; ++i)
        node_free(order->chunks[i]);
    node_free(order->chunks);
    *order = (struct order){0};
}

struct order_at node_order_next(const struct order *order, struct order_at at)
{
    if (at.chunk >= order->chunk_count)
        return at;
    if (++at.item == order->chunks[at.chunk]->count) {
        ++at.chunk;
        at.item = 0;
    }
    return at;
}

bool node_order_previous(const struct order *order, struct order_at *at)
{
    if (at->item > 0) {
        --at->item;
        return true;
    }
    if (at->chunk == 0)
        return false;
    --at->chunk;
    at->item = order->chunks[at->chunk]->count - 1u;
    return true;
}
