/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_AGGREGATE_H
#define NODE_AGGREGATE_H

/* Values of selectors, and count, min, max, sum, avg over rows, with GROUP BY or without. */

#include "tests/node/engine_private.h"

struct aggregate_cell {
    uint64_t count;
    bool is_real;
    double real;
    int64_t whole;
    struct out value; /* min, max, or the first row's value; null while count is 0 */
    bool has_value;
};

struct aggregate {
    const struct select_plan *plan;
    struct aggregate_cell *cells;
    uint64_t rows;
    struct out group; /* key of the current group */
    bool grouped;
    struct out finished; /* rows of groups that have ended */
    uint32_t finished_count;
};

void node_aggregate_init(struct aggregate *aggregate, const struct select_plan *plan);
void node_aggregate_partition(struct aggregate *aggregate);
bool node_aggregate_row(struct aggregate *aggregate, struct query *query,
                        const struct row_view *view);
/* Writes the rows to query->body. Returns how many. */
uint32_t node_aggregate_finish(struct aggregate *aggregate, struct query *query, uint64_t limit);
void node_aggregate_fini(struct aggregate *aggregate);

/* The value of a selector that is neither an aggregate nor writetime or ttl. */
bool node_selector_value(struct query *query, const struct row_view *view,
                         const struct selector *selector, cqlring_bytes *value);

#endif
