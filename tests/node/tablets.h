/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_TABLETS_H
#define NODE_TABLETS_H

#include "tests/node/engine.h"

enum { NODE_IGNORE_MSB = 12 };

struct node_tablet {
    int64_t first; /* exclusive */
    int64_t last;
    uint32_t count;
    uint32_t nodes[NODE_COUNT_MAX], shards[NODE_COUNT_MAX];
};

/* The tablet of a table that holds the token. */
void node_tablet_of(const struct node_engine *engine, const struct node_table *table, int64_t token,
                    struct node_tablet *out);
bool node_tablet_serves(const struct node_tablet *tablet, uint32_t node, uint32_t shard);
/* One entry of a custom payload: its key and value. */
void node_tablet_put(const struct node_engine *engine, const struct node_tablet *tablet,
                     struct out *out);
uint32_t node_shard_of(const struct node_engine *engine, uint32_t node,
                       int64_t token); /* of tables without tablets */

#endif
