/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/ring_map.h"

#include <assert.h>
#include <string.h>

/* --- the ring --------------------------------------------------------------------------------- */

static inline bool is_before(const struct ring_entry *a, const struct ring_entry *b)
{
    return a->token != b->token ? a->token < b->token : a->node < b->node;
}

static void sift_down(struct ring_entry *entries, uint32_t root, uint32_t count)
{
    struct ring_entry moving = entries[root];
    for (;;) {
        uint64_t child = 2 * (uint64_t)root + 1;
        if (child >= count)
            break;
        if (child + 1 < count && is_before(&entries[child], &entries[child + 1]))
            ++child;
        if (!is_before(&moving, &entries[child]))
            break;
        entries[root] = entries[child];
        root = (uint32_t)child;
    }
    entries[root] = moving;
}

/* Heap sort: in place, without recursion and without memory (qsort of the C library takes some). Of
   a duplicate token the node with the lowest index stays, so that the outcome does not depend on
   the order given. */
uint32_t cqr_ring_sort(struct ring_entry *entries, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; --i)
        sift_down(entries, i - 1, count);
    for (uint32_t i = count; i > 1; --i) {
        struct ring_entry largest = entries[0];
        entries[0] = entries[i - 1];
        entries[i - 1] = largest;
        sift_down(entries, 0, i - 1);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (kept == 0 || entries[i].token != entries[kept - 1].token)
            entries[kept++] = entries[i];
    }
    return kept;
}

uint32_t cqr_ring_find(const struct ring_entry *entries, uint32_t count, int64_t token)
{
    assert(count > 0);
    uint32_t low = 0,
             high = count; /* the first entry with token >= the one sought is in low … high */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].token < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low == count ? 0 : low;
}

/* --- replication ------------------------------------------------------------------------------ */

enum strategy cqr_strategy_of(cqlring_bytes class_name)
{
    static const struct {
        const char *name;
        enum strategy strategy;
    } known[] = {
        {"SimpleStrategy", STRATEGY_SIMPLE},
        {"NetworkTopologyStrategy", STRATEGY_NETWORK},
        {"LocalStrategy", STRATEGY_LOCAL},
        {"EverywhereStrategy", STRATEGY_EVERYWHERE},
    };
    if (class_name.size <= 0)
        return STRATEGY_UNKNOWN;
    const char *name = (const char *)class_name.data;
    size_t size = (size_t)class_name.size;
    size_t from = size;
    while (from > 0 && name[from - 1] != '.')
        --from;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        if (size - from == strlen(known[i].name) &&
            memcmp(name + from, known[i].name, size - from) == 0)
            return known[i].strategy;
    }
    return STRATEGY_UNKNOWN;
}

/* Digits from *at on; false when there are none or they are more than a factor can be. */
static bool parse_digits(const char **at, const char *end, uint16_t *out)
{
    uint32_t value = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        value = value * 10 + (uint32_t)(**at - '0');
        if (value > UINT16_MAX)
            return false;
    }
    *out = (uint16_t)value;
    return *at > from;
}

bool cqr_factor_parse(cqlring_bytes text, uint16_t *all, uint16_t *transient_count)
{
    *transient_count = 0;
    if (text.size <= 0)
        return false;
    const char *at = (const char *)text.data;
    const char *end = at + text.size;
    if (!parse_digits(&at, end, all))
        return false;
    if (at < end && *at == '/') {
        ++at;
        if (!parse_digits(&at, end, transient_count) || *transient_count > *all)
            return false;
    }
    return at == end;
}

/* A set of small numbers. */
static bool set_add(uint64_t *set, uint32_t number)
{
    uint64_t bit = 1ull << (number % 64);
    bool is_new = (set[number / 64] & bit) == 0;
    set[number / 64] |= bit;
    return is_new;
}

static bool is_walkable(const struct ring_entry *entry, uint32_t node_count)
{
    return entry->node < node_count && entry->node < RING_NODES_MAX;
}

/* Nodes of the ring; those of one DC, and their racks, unless dc is UINT32_MAX. */
static void count_ring(const struct ring_entry *entries, uint32_t count,
                       const struct ring_node *nodes, uint32_t node_count, uint32_t dc,
                       uint32_t *ring_nodes, uint32_t *ring_racks)
{
    uint64_t seen[RING_NODES_MAX / 64] = {0};
    uint64_t racks[(UINT16_MAX + 1) / 64] = {0};
    *ring_nodes = *ring_racks = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (!is_walkable(&entries[i], node_count) || !set_add(seen, entries[i].node))
            continue;
        const struct ring_node *node = &nodes[entries[i].node];
        if (dc != UINT32_MAX && node->dc != dc)
            continue;
        ++*ring_nodes;
        if (set_add(racks, node->rack))
            ++*ring_racks;
    }
}

static void count_dc(const struct ring_entry *entries, uint32_t count,
                     const struct ring_node *nodes, uint32_t node_count, struct dc_factor *dc)
{
    uint32_t racks;
    count_ring(entries, count, nodes, node_count, dc->dc, &dc->node_count, &racks);
    dc->rack_count = (uint16_t)(racks < UINT16_MAX ? racks : UINT16_MAX);
}

void cqr_replication_count(const struct ring_entry *entries, uint32_t count,
                           const struct ring_node *nodes, uint32_t node_count,
                           struct replication *replication)
{
    uint32_t racks;
    count_ring(entries, count, nodes, node_count, UINT32_MAX, &replication->node_count, &racks);
    for (uint32_t i = 0; i < replication->dc_count; ++i)
        count_dc(entries, count, nodes, node_count, &replication->dcs[i]);
}

/* Distinct nodes in ring order until wanted are found. */
static uint32_t walk_simple(const struct ring_entry *entries, uint32_t count, uint32_t at,
                            uint32_t node_count, uint32_t wanted, uint32_t *out)
{
    uint64_t seen[RING_NODES_MAX / 64] = {0};
    uint32_t found = 0;
    for (uint32_t i = 0; i < count && found < wanted; ++i) {
        const struct ring_entry *entry = &entries[at];
        at = at + 1 == count ? 0 : at + 1;
        if (is_walkable(entry, node_count) && set_add(seen, entry->node))
            out[found++] = entry->node;
    }
    return found;
}

struct dc_walk {
    uint32_t left;    /* full replicas still to be taken */
    uint32_t repeats; /* nodes of a rack already used that may be taken */
};

/* What a DC has to give. With fewer nodes than the factor all of them are replicas, and transient
   ones go first. */
static struct dc_walk begin_dc(const struct dc_factor *dc)
{
    uint32_t taken = dc->all < dc->node_count ? dc->all : dc->node_count;
    uint32_t missing = dc->all - taken;
    uint32_t transient_count = dc->transient_count > missing ? dc->transient_count - missing : 0;
    return (struct dc_walk){
        /* Transient replicas are the last ones taken: leaving them out changes nothing before
           them. */
        .left = taken > transient_count ? taken - transient_count : 0,
        .repeats = dc->all > dc->rack_count ? (uint32_t)dc->all - dc->rack_count : 0,
    };
}

/* The server's walk (NetworkTopologyStrategy.calculateNaturalReplicas): each DC for itself, one
   node of each rack first as they come, further ones of a rack as long as the factor exceeds the
   number of racks. */
static uint32_t walk_network(const struct ring_entry *entries, uint32_t count, uint32_t at,
                             const struct ring_node *nodes, uint32_t node_count,
                             const struct replication *replication, uint32_t *out,
                             uint32_t capacity)
{
    struct dc_walk walks[RING_DCS_MAX];
    uint32_t dc_count = replication->dc_count < RING_DCS_MAX ? replication->dc_count : RING_DCS_MAX;
    uint32_t left = 0;
    for (uint32_t i = 0; i < dc_count; ++i) {
        struct dc_factor dc = replication->dcs[i];
        if (replication->node_count == 0 && dc.all > 0)
            count_dc(entries, count, nodes, node_count, &dc);
        walks[i] = begin_dc(&dc);
        left += walks[i].left;
    }
    uint32_t found = 0;
    if (left > capacity)
        left = capacity;
    for (uint32_t i = 0; i < count && found < left; ++i) {
        const struct ring_entry *entry = &entries[at];
        at = at + 1 == count ? 0 : at + 1;
        if (!is_walkable(entry, node_count))
            continue;
        const struct ring_node *node = &nodes[entry->node];
        uint32_t dc = 0;
        while (dc < dc_count && replication->dcs[dc].dc != node->dc)
            ++dc;
        if (dc == dc_count || walks[dc].left == 0)
            continue;
        bool is_taken = false, is_rack_used = false;
        for (uint32_t j = 0; j < found; ++j) {
            is_taken |= out[j] == entry->node;
            is_rack_used |= nodes[out[j]].dc == node->dc && nodes[out[j]].rack == node->rack;
        }
        if (is_taken || (is_rack_used && walks[dc].repeats == 0))
            continue;
        walks[dc].repeats -= is_rack_used;
        --walks[dc].left;
        out[found++] = entry->node;
    }
    return found;
}

uint32_t cqr_replicas_at(const struct ring_entry *entries, uint32_t count, uint32_t at,
                         const struct ring_node *nodes, uint32_t node_count,
                         const struct replication *replication, uint32_t *out, uint32_t capacity)
{
    if (count == 0)
        return 0;
    assert(at < count);
    uint32_t wanted = capacity;
    if (replication->node_count != 0 && wanted > replication->node_count)
        wanted = replication->node_count; /* TK-07: nothing more to be found */
    switch (replication->strategy) {
    case STRATEGY_SIMPLE: {
        uint32_t full = replication->factor > replication->transient_count
                            ? (uint32_t)replication->factor - replication->transient_count
                            : 0;
        return walk_simple(entries, count, at, node_count, full < wanted ? full : wanted, out);
    }
    case STRATEGY_EVERYWHERE: return walk_simple(entries, count, at, node_count, wanted, out);
    case STRATEGY_NETWORK:
        return walk_network(entries, count, at, nodes, node_count, replication, out, capacity);
    case STRATEGY_LOCAL: /* each node has its own: any will do */
    case STRATEGY_UNKNOWN: break;
    }
    return 0;
}
