/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RING_MAP_H
#define CQR_RING_MAP_H

/* The token ring and the replicas of a token, as pure functions over plain arrays (routing reference, section 4). Nodes
   are named by their index in the caller's array. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/token.h"
#include "serialize/cqlring_types.h"
#include "serialize/mem.h"

struct ring_node {
    uint16_t dc;   /* interned numbers, equal iff the names are equal */
    uint16_t rack;
};

struct ring_entry {
    int64_t token;
    uint32_t node;
};

/* Sorts entries by token; of a duplicate token one stays. Returns the new count. */
uint32_t cqr_ring_sort(struct ring_entry *entries, uint32_t count);
/* Index of the entry that owns the token: first with entry.token >= token, wrapping. count > 0. */
uint32_t cqr_ring_find(const struct ring_entry *entries, uint32_t count, int64_t token);

enum strategy { STRATEGY_UNKNOWN, STRATEGY_SIMPLE, STRATEGY_NETWORK, STRATEGY_LOCAL, STRATEGY_EVERYWHERE };

struct dc_factor {
    uint16_t dc;       /* UINT16_MAX: a name that no node has (ignored) */
    uint16_t all;      /* natural replicas, "3" or "3/1" */
    uint16_t transient_count;
    uint16_t rack_count; /* of this DC's nodes on the ring; by cqr_replication_count */
    uint32_t node_count; /* the same */
};

struct replication {
    enum strategy strategy;
    uint16_t factor;            /* STRATEGY_SIMPLE: all */
    uint16_t transient_count;
    struct dc_factor *dcs;      /* STRATEGY_NETWORK */
    uint16_t dc_count;
    uint32_t node_count;        /* nodes on the ring; by cqr_replication_count, 0: not counted */
};

enum {
    RING_NODES_MAX = 16384, /* nodes with a larger index are no replicas */
    RING_DCS_MAX = 64       /* nor are those of further DCs named by one keyspace */
};

enum strategy cqr_strategy_of(cqlring_bytes class_name);
bool cqr_factor_parse(cqlring_bytes text, uint16_t *all, uint16_t *transient_count);

/* Count what the walks below need to know of the whole ring, once per ring and keyspace. Without it each walk that needs
   it counts for itself. */
void cqr_replication_count(const struct ring_entry *entries, uint32_t count, const struct ring_node *nodes, uint32_t node_count,
                           struct replication *replication);

/* Full replicas of the range that entry `at` owns, in the server's order (primary first), each node once. Writes at most
   capacity node indexes, returns how many. UNKNOWN: 0. Cost is bounded by the ring walked once (TK-07: callers cache
   per ring entry). */
uint32_t cqr_replicas_at(const struct ring_entry *entries, uint32_t count, uint32_t at, const struct ring_node *nodes, uint32_t node_count,
                         const struct replication *replication, uint32_t *out, uint32_t capacity);

#endif
