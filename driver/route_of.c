/* SPDX-License-Identifier: Apache-2.0 */

/* Where a row goes, for those who ask before there is a request: the application, and a batch of several partitions. On the calling
   thread, with the cluster's current topology; nothing here is on the way of a row. */

#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "driver/tablets.h"

static struct topology *topology_now(struct cqlring_cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    struct topology *topology = cqr_topology_retain(cluster->topology);
    pthread_mutex_unlock(&cluster->lock);
    return topology;
}

/* What the pools have been told so far. */
static uint32_t tablet_of(struct cqlring_cluster *cluster, const struct statement_version *version, int64_t token, uint32_t out[REPLICAS_MAX],
                          int32_t shards[REPLICAS_MAX])
{
    pthread_mutex_lock(&cluster->lock);
    const struct tablet_table *table = cqr_tablets_find(&cluster->tablets, version);
    const struct tablet *tablet = table != NULL ? cqr_tablet_map_find(&table->map, token) : NULL;
    uint32_t count = 0;
    for (; tablet != NULL && count < tablet->replica_count && count < REPLICAS_MAX; count++) {
        out[count] = tablet->replicas[count].node;
        shards[count] = tablet->replicas[count].shard;
    }
    pthread_mutex_unlock(&cluster->lock);
    return count;
}

/* −1: the node has none, or has not told of them. */
static int32_t shard_at(const struct cqlring_node *node, int64_t token, int32_t tablets)
{
    unsigned sharding = atomic_load_explicit(&node->sharding, memory_order_relaxed);
    uint32_t count = cqr_node_shards(sharding);
    if (count == 0)
        return -1;
    if (tablets >= 0)
        return tablets % (int32_t)count; /* out of range: told before the node's shards changed */
    return (int32_t)cqr_shard_of(token, (uint16_t)count, (uint8_t)(sharding >> 16));
}

/* Node indexes, primary first, and their shards as tablets have them, else −1; 0 when they are not known. */
static uint32_t replicas_of(struct cqlring_cluster *cluster, const struct topology *topology, const struct statement_version *version, int64_t token,
                            uint32_t out[REPLICAS_MAX], int32_t shards[REPLICAS_MAX])
{
    if (topology->partitioner != PARTITIONER_MURMUR3 || topology->ring_count == 0)
        return 0;
    const struct keyspace *keyspace = cqr_topology_keyspace(topology, cqlring_text(version->keyspace));
    if (keyspace == NULL)
        return 0;
    if (keyspace->tablets) /* the ring means nothing there (TB-03) */
        return tablet_of(cluster, version, token, out, shards);
    for (uint32_t i = 0; i < REPLICAS_MAX; i++)
        shards[i] = -1;
    return cqr_replicas_at(topology->ring, topology->ring_count, cqr_ring_find(topology->ring, topology->ring_count, token), topology->places, topology->place_count,
                           &keyspace->replication, out, REPLICAS_MAX);
}

static bool token_of(const struct statement_version *version, const cqlring_bytes *values, int64_t *token)
{
    uint8_t scratch[4096];
    cqlring_bytes key;
    if (version->key_count == 0 || !cqr_routing_key(values, version->key_parts, version->key_count, scratch, sizeof scratch, &key))
        return false;
    *token = cqr_murmur3(key.data, (uint32_t)key.size);
    return true;
}

/* As cql/request.c writes them: EXECUTE's head, the values, page size and timestamp; and a child of BATCH. */
static void sizes_of(struct cqlring_prepared *prepared, const struct statement_version *version, const cqlring_bytes *values, uint32_t value_count,
                     cqlring_route *route)
{
    bool is_v5 = atomic_load_explicit(&prepared->cluster->version, memory_order_relaxed) >= PROTO_V5;
    uint64_t size = 2;
    for (uint32_t i = 0; i < value_count; i++)
        size += 4 + (values[i].size > 0 ? (uint32_t)values[i].size : 0);
    route->batch_size = 1 + 2 + version->id_size + size;
    route->request_size = PROTO_HEADER_SIZE + 2 + version->id_size + (is_v5 ? 2u + version->metadata_id_size + 4u : 1u) + 2 + size + (version->is_read ? 4u : 0u) + 8;
}

cqlring_status cqlring_route_of(const cqlring_prepared *handle, const cqlring_bytes *values, uint32_t value_count, cqlring_route *route, cqlring_error *error)
{
    struct cqlring_prepared *prepared = (struct cqlring_prepared *)(uintptr_t)handle;
    if (prepared == NULL || route == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_route_of: the statement and route must be given");
    struct cqlring_cluster *cluster = prepared->cluster;
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_route_of: the statement belongs to the parent process; prepare it in the child");
    const struct statement_version *version = cqr_prepared_version(prepared);
    cqlring_status status = cqr_cells_check(version, values, value_count, "cqlring_route_of", error);
    if (status != CQLRING_OK)
        return status;
    cqlring_route found = {.replica_count = 0};
    sizes_of(prepared, version, values, value_count, &found);
    *route = found;
    if (version->key_count == 0)
        return cqr_error(error, CQLRING_INVALID, "cqlring_route_of: the statement has no marker for every column of the partition key");
    if (!token_of(version, values, &found.token))
        return cqr_error(error, CQLRING_INVALID, "cqlring_route_of: the partition key is null, unset or too large (65535 bytes a column, 4096 in all)");
    struct topology *topology = topology_now(cluster);
    int32_t shards[REPLICAS_MAX];
    uint32_t replicas[REPLICAS_MAX], count = replicas_of(cluster, topology, version, found.token, replicas, shards);
    _Static_assert((int)REPLICAS_MAX == (int)CQLRING_REPLICAS_MAX, "all of them fit");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < topology->node_count; j++)
            if (topology->nodes[j]->index == replicas[i])
                found.replicas[found.replica_count++] = (cqlring_replica){.node = topology->nodes[j], .shard = shard_at(topology->nodes[j], found.token, shards[i])};
    cqr_topology_release(topology);
    *route = found;
    return CQLRING_OK;
}

/* How many partitions a node has of those looked at; there are never many nodes. */
struct tally {
    uint32_t nodes[64], counts[64];
    uint32_t size;
};

static void tally_add(struct tally *tally, uint32_t node)
{
    uint32_t i = 0;
    while (i < tally->size && tally->nodes[i] != node)
        i++;
    if (i == sizeof tally->nodes / sizeof tally->nodes[0])
        return;
    if (i == tally->size) {
        tally->nodes[i] = node;
        tally->counts[i] = 0;
        tally->size++;
    }
    tally->counts[i]++;
}

static uint32_t tally_of(const struct tally *tally, uint32_t node)
{
    for (uint32_t i = 0; i < tally->size; i++)
        if (tally->nodes[i] == node)
            return tally->counts[i];
    return 0;
}

/* As long as all are of one partition, the usual way is the best. */
static bool is_of_one_partition(const struct request_body *body, const cqlring_batch *batch)
{
    uint32_t prepared = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        int64_t token = 0;
        if (batch->children[i].prepared != NULL && token_of(body->versions[prepared++], batch->children[i].values, &token) && token != body->token)
            return false;
    }
    return true;
}

uint16_t cqr_batch_common(const struct request_body *body, const cqlring_batch *batch)
{
    if (is_of_one_partition(body, batch))
        return 0;
    struct cqlring_cluster *cluster = body->prepared[0]->cluster;
    struct topology *topology = topology_now(cluster);
    struct tally tally = {.size = 0};
    uint32_t first[REPLICAS_MAX], first_count = 0, prepared = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        int64_t token = 0;
        if (batch->children[i].prepared == NULL)
            continue;
        const struct statement_version *version = body->versions[prepared++];
        if (!token_of(version, batch->children[i].values, &token))
            continue;
        int32_t shards[REPLICAS_MAX];
        uint32_t replicas[REPLICAS_MAX], count = replicas_of(cluster, topology, version, token, replicas, shards);
        bool is_first = first_count == 0;
        for (uint32_t j = 0; j < count; j++)
            for (uint32_t k = 0; k < topology->node_count; k++) {
                const struct cqlring_node *node = topology->nodes[k];
                if (node->index != replicas[j] || !node->is_local || cqr_node_place(node)->is_denied)
                    continue;
                tally_add(&tally, replicas[j]);
                if (is_first)
                    first[first_count++] = replicas[j];
            }
    }
    cqr_topology_release(topology);
    /* a replica that most have; when those of the first partition have as many each, load decides among them as usual */
    uint32_t best = 0, best_count = 0, of_first = first_count > 0 ? tally_of(&tally, first[0]) : 0;
    bool differ = false;
    for (uint32_t i = 0; i < first_count; i++)
        differ = differ || tally_of(&tally, first[i]) != of_first;
    for (uint32_t i = 0; i < tally.size; i++) {
        differ = differ || tally.counts[i] > of_first;
        if (tally.counts[i] > best_count) {
            best = tally.nodes[i];
            best_count = tally.counts[i];
        }
    }
    return differ && best < UINT16_MAX ? (uint16_t)(best + 1) : 0;
}
