/* SPDX-License-Identifier: Apache-2.0 */
/* Shards and tablets as ScyllaDB has them: who serves a token, and the routing payload for those who came wrong.

   A table of a tablet keyspace has 2^tablet_bits tablets of equal width. Tablet i of a table is served by nodes that follow
   one another from i on, each with a shard of its own choice: unlike the ring's order on purpose, so that a driver that
   routes by the ring is found out. tablet_move turns both to others, as migrations do. */
#include "tests/node/tablets.h"

#include "cql/token.h"

static uint32_t factor_of(const struct node_keyspace *keyspace, uint16_t dc)
{
    const struct replication *replication = &keyspace->replication;
    if (replication->strategy == STRATEGY_SIMPLE)
        return replication->factor;
    for (uint16_t i = 0; i < replication->dc_count; ++i) {
        if (replication->dcs[i].dc == dc)
            return replication->dcs[i].all;
    }
    return 0;
}

void node_tablet_of(const struct node_engine *engine, const struct node_table *table, int64_t token,
                    struct node_tablet *out)
{
    uint64_t offset = (uint64_t)token ^ (UINT64_C(1) << 63); /* from 0 at the ring's start */
    uint32_t bits = engine->tablet_bits, tablet_count = UINT32_C(1) << bits;
    /* (first, last]: a boundary belongs to the left */
    uint32_t index = (uint32_t)((offset - (offset > 0)) >> (64 - bits));
    uint64_t width = UINT64_C(1) << (64 - bits);
    out->first = (int64_t)((index * width) ^ (UINT64_C(1) << 63));
    out->last = index + 1 == tablet_count ? INT64_MAX
                                          : (int64_t)(((index + 1) * width) ^ (UINT64_C(1) << 63));
    out->count = 0;
    for (uint16_t dc = 0; dc < engine->dc_count; ++dc) {
        uint32_t left = factor_of(table->keyspace, dc);
        for (uint32_t i = 0; i < engine->member_count && left > 0; ++i) {
            uint32_t node = (i + index + engine->tablet_move) % engine->member_count;
            const struct node_member *member = &engine->members[node];
            if (!member->member || member->place.dc != dc)
                continue;
            uint64_t random = node_random_seed(cqr_load_u64(table->id) + engine->tablet_move, index * 64 + node);
            out->nodes[out->count] = node;
            out->shards[out->count++] = (uint32_t)(node_random(&random) % member->shards);
            --left;
        }
    }
}

bool node_tablet_serves(const struct node_tablet *tablet, uint32_t node, uint32_t shard)
{
    for (uint32_t i = 0; i < tablet->count; ++i) {
        if (tablet->nodes[i] == node && tablet->shards[i] == shard)
            return true;
    }
    return false;
}

static void put_int64(struct out *out, int64_t value)
{
    out_u32(out, 8);
    out_u64(out, (uint64_t)value);
}

/* tuple<bigint, bigint, list<tuple<uuid, int>>> */
void node_tablet_put(const struct node_engine *engine, const struct node_tablet *tablet,
                     struct out *out)
{
    out_text(out, "tablets-routing-v1");
    uint32_t list_size = 4 + tablet->count * (4 + 4 + 16 + 4 + 4);
    out_u32(out, 12 + 12 + 4 + list_size);
    put_int64(out, tablet->first);
    put_int64(out, tablet->last);
    out_u32(out, list_size);
    out_u32(out, tablet->count);
    for (uint32_t i = 0; i < tablet->count; ++i) {
        out_u32(out, 4 + 16 + 4 + 4);
        out_bytes(out, slice_of(engine->members[tablet->nodes[i]].host_id, 16));
        out_u32(out, 4);
        out_u32(out, tablet->shards[i]);
    }
}

uint32_t node_shard_of(const struct node_engine *engine, uint32_t node, int64_t token)
{
    return cqr_shard_of(token, (uint16_t)engine->members[node].shards, NODE_IGNORE_MSB);
}
