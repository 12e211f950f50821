/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/topology.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "serialize/mem.h"

/* A thousand nodes of 256 tokens and as many keyspaces take some 10 MiB. */
enum { TOPOLOGY_SIZE_MAX = 256 << 20 };

struct topology *cqr_topology_create(void)
{
    struct topology *topology = cqr_mem_zalloc(sizeof *topology);
    if (topology == NULL)
        return NULL;
    atomic_store_explicit(&topology->references, 1, memory_order_relaxed);
    cqr_arena_init(&topology->arena, TOPOLOGY_SIZE_MAX);
    return topology;
}

struct topology *cqr_topology_retain(struct topology *topology)
{
    atomic_fetch_add_explicit(&topology->references, 1, memory_order_relaxed);
    return topology;
}

void cqr_topology_release(struct topology *topology)
{
    /* Release: this holder is through. Acquire: so is everybody else, for the one that frees. */
    if (topology == NULL || atomic_fetch_sub_explicit(&topology->references, 1, memory_order_acq_rel) != 1)
        return;
    cqr_arena_fini(&topology->arena);
    cqr_mem_free(topology);
}

/* The order of strcmp. */
static int compare_name(cqlring_bytes name, const char *other)
{
    size_t size = (size_t)name.size, other_size = strlen(other);
    int order = memcmp(name.data, other, size < other_size ? size : other_size);
    return order != 0 ? order : (size > other_size) - (size < other_size);
}

const struct keyspace *cqr_topology_keyspace(const struct topology *topology, cqlring_bytes name)
{
    if (name.size <= 0 || (size_t)name.size >= sizeof topology->keyspaces[0].name)
        return NULL;
    uint32_t low = 0, high = topology->keyspace_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_name(name, topology->keyspaces[middle].name);
        if (order == 0)
            return &topology->keyspaces[middle];
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void cqr_topology_datacenters(const struct topology *topology, char *text, size_t size)
{
    static const char more[] = ", …";
    size_t length = (size_t)snprintf(text, size, "%s", topology->node_count == 0 ? "none" : "");
    for (uint32_t i = 0; i < topology->node_count; ++i) {
        const char *name = topology->nodes[i]->datacenter;
        uint32_t count = 0;
        bool told = false;
        for (uint32_t j = 0; j < topology->node_count; ++j) {
            bool same = strcmp(topology->nodes[j]->datacenter, name) == 0;
            told = told || (same && j < i);
            count += same;
        }
        if (told)
            continue;
        char part[200];
        int wanted = snprintf(part, sizeof part, "%s\"%s\" (%u node%s)", length > 0 ? ", " : "", name, count, count == 1 ? "" : "s");
        if (length + (size_t)wanted + sizeof more > size) {
            snprintf(text + length, size - length, "%s", length > 0 ? more : "…");
            return;
        }
        memcpy(text + length, part, (size_t)wanted + 1);
        length += (size_t)wanted;
    }
}

/* --- replicas ----------------------------------------------------------------------------------------------------- */

/* Most replicas that an entry can have; 0 when the strategy names none. */
static uint8_t width_of(const struct topology *topology, const struct replication *replication)
{
    uint64_t width = 0;
    switch (replication->strategy) {
    case STRATEGY_SIMPLE: width = replication->factor; break;
    case STRATEGY_NETWORK:
        for (uint32_t i = 0; i < replication->dc_count; ++i)
            width += replication->dcs[i].all;
        break;
    case STRATEGY_EVERYWHERE: width = topology->place_count; break;
    case STRATEGY_LOCAL: /* each node has its own: any will do */
    case STRATEGY_UNKNOWN: break;
    }
    if (width > topology->place_count)
        width = topology->place_count;
    return (uint8_t)(width < REPLICAS_MAX ? width : REPLICAS_MAX);
}

cqlring_status cqr_replica_table_init(struct replica_table *table, struct topology *topology, const struct keyspace *keyspace)
{
    *table = (struct replica_table){.keyspace = keyspace, .width = width_of(topology, &keyspace->replication)};
    if (table->width > 0 && topology->ring_count > 0) {
        table->known = cqr_mem_array(topology->ring_count, sizeof *table->known);
        table->replicas = cqr_mem_array((size_t)topology->ring_count * table->width, sizeof *table->replicas);
        if (table->known == NULL || table->replicas == NULL) {
            cqr_replica_table_fini(table);
            return CQLRING_NO_MEMORY;
        }
    }
    table->topology = cqr_topology_retain(topology);
    return CQLRING_OK;
}

void cqr_replica_table_fini(struct replica_table *table)
{
    cqr_mem_free(table->known);
    cqr_mem_free(table->replicas);
    cqr_topology_release(table->topology);
    *table = (struct replica_table){.topology = NULL};
}

/* The walk around the ring, once per entry. Returns how many were found. */
static __attribute__((noinline)) void find_replicas(const struct replica_table *table, uint32_t at)
{
    const struct topology *topology = table->topology;
    uint32_t found[REPLICAS_MAX];
    uint32_t count = cqr_replicas_at(topology->ring, topology->ring_count, at, topology->places, topology->place_count,
                                     &table->keyspace->replication, found, table->width);
    uint8_t kept = 0;
    uint16_t *replicas = table->replicas + (size_t)at * table->width;
    for (uint32_t i = 0; i < count; ++i) {
        if (found[i] <= UINT16_MAX)
            replicas[kept++] = (uint16_t)found[i];
    }
    table->known[at] = (uint8_t)(kept + 1);
}

const uint16_t *cqr_replicas_of(struct replica_table *table, int64_t token, uint32_t *count)
{
    *count = 0;
    if (table->known == NULL)
        return NULL;
    uint32_t at = cqr_ring_find(table->topology->ring, table->topology->ring_count, token);
    if (table->known[at] == 0)
        find_replicas(table, at);
    *count = table->known[at] - 1u;
    return table->replicas + (size_t)at * table->width;
}
