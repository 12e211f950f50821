/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_ORDER_H
#define NODE_ORDER_H

/* A sorted list of pointers in two levels: chunks of up to ORDER_CHUNK_MAX pointers, and an array
   of chunks. Finding is two binary searches, inserting moves at most one chunk, appending in order
   fills chunks to the brim. Holds the rows of a partition and the partitions of a table. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORDER_CHUNK_MAX = 512 };

struct order_chunk {
    uint16_t count;
    uint16_t capacity;
    void *items[];
};

struct order {
    struct order_chunk **chunks;
    uint32_t chunk_count, chunk_capacity;
    uint64_t count;
};

/* Where an item is, or would be: items before it are smaller. chunk == chunk_count: behind the
   last. */
struct order_at {
    uint32_t chunk;
    uint32_t item;
};

/* < 0: the item is smaller than what is looked for. */
typedef int (*order_compare)(const void *item, const void *wanted, const void *context);

/* The first item that is not smaller. *found: it is equal. */
struct order_at node_order_find(const struct order *order, order_compare compare,
                                const void *wanted, const void *context, bool *found);
void node_order_insert(struct order *order, struct order_at at, void *item);
void node_order_remove(struct order *order, struct order_at at);
void node_order_fini(struct order *order);

static inline void *node_order_get(const struct order *order, struct order_at at)
{
    return at.chunk < order->chunk_count ? order->chunks[at.chunk]->items[at.item] : NULL;
}
static inline struct order_at node_order_first(void)
{
    return (struct order_at){0, 0};
}
struct order_at node_order_next(const struct order *order, struct order_at at);
/* false: at was the first. Behind the last steps to the last. */
bool node_order_previous(const struct order *order, struct order_at *at);

#endif
