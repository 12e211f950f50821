/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/node.h"

#include <string.h>

#include "driver/fork.h"
#include "driver/node_stats.h"
#include "driver/runtime.h"
#include "driver/session.h"

/* The last one of that host id. In another datacenter or rack it would be another node: replicas are chosen by these, and a server
   refuses to start with others. */
static struct cqlring_node *find(const struct cqlring_cluster *cluster, const struct cqlring_node *like)
{
    for (uint32_t i = cluster->node_count; i-- > 0;) {
        struct cqlring_node *known = cluster->nodes[i];
        if (memcmp(known->host_id, like->host_id, 16) == 0 && strcmp(known->datacenter, like->datacenter) == 0 && strcmp(known->rack, like->rack) == 0)
            return known;
    }
    return NULL;
}

static bool is_same(const struct node_place *known, const struct node_place *place)
{
    return cqr_address_equal(&known->address, &place->address) && cqr_address_equal(&known->announced, &place->announced) &&
           strcmp(known->contact_name, place->contact_name) == 0 && strcmp(known->release_version, place->release_version) == 0;
}

/* A node that goes to and fro comes back to a place that it has: they do not grow without end. */
static const struct node_place *place_of(struct cqlring_cluster *cluster, const struct cqlring_node *like, struct node_place **places)
{
    const struct node_place *wanted = cqr_node_place(like);
    for (const struct node_place *known = *places; known != NULL; known = known->older)
        if (is_same(known, wanted))
            return known;
    struct node_place *place = cqr_mem_alloc(sizeof *place);
    if (place == NULL)
        return NULL;
    *place = *wanted;
    place->is_denied = !cqr_node_policy_allows(&cluster->policy, like);
    if (place->is_denied)
        cqr_log(&cluster->runtime->log, CQLRING_LOG_INFO, "%s is not used: allow_nodes, deny_nodes or node_filter say so", place->text);
    place->older = *places;
    *places = place;
    return place;
}

static bool table_has_room(struct cqlring_cluster *cluster)
{
    if (cluster->node_count >= UINT16_MAX - 1)
        return false;
    if (cluster->node_count < cluster->node_capacity)
        return true;
    uint32_t capacity = cluster->node_capacity == 0 ? 8 : cluster->node_capacity * 2;
    struct cqlring_node **nodes = cqr_mem_realloc(cluster->nodes, capacity * sizeof *nodes);
    if (nodes == NULL)
        return false;
    cluster->nodes = nodes;
    cluster->node_capacity = capacity;
    return true;
}

struct cqlring_node *cqr_cluster_intern(struct cqlring_cluster *cluster, const struct cqlring_node *like, const struct node_place **place)
{
    struct cqlring_node *node = find(cluster, like); /* without the lock: only this thread adds nodes */
    if (node != NULL) {
        *place = place_of(cluster, like, &node->places);
        return *place != NULL ? node : NULL;
    }
    /* new. The application is asked outside the lock */
    node = cqr_mem_alloc(sizeof *node);
    if (node == NULL)
        return NULL;
    memcpy(node, like, sizeof *node);
    node->places = NULL;
    *place = place_of(cluster, like, &node->places);
    atomic_init(&node->place, *place);
    pthread_mutex_lock(&cluster->lock);
    bool has_room = *place != NULL && table_has_room(cluster);
    if (has_room) {
        node->index = cluster->node_count;
        cluster->nodes[cluster->node_count++] = node;
    }
    pthread_mutex_unlock(&cluster->lock);
    if (has_room)
        return node;
    cqr_mem_free(node->places);
    cqr_mem_free(node);
    return NULL;
}

void cqr_node_settle(struct cqlring_cluster *cluster, struct cqlring_node *node, const struct node_place *place)
{
    const struct node_place *before = cqr_node_place(node);
    if (before == place)
        return;
    if (!cqr_address_equal(&before->address, &place->address)) {
        cqr_log(&cluster->runtime->log, CQLRING_LOG_INFO, "%s has moved to %s", before->text, place->text);
        /* relaxed: that the shard-aware port was of no use was said of the old address; who reads the older value waits as told */
        atomic_store_explicit(&node->shard_port_after_us, 0, memory_order_relaxed);
    }
    /* release: pairs with the acquire in cqr_node_place */
    atomic_store_explicit(&node->place, place, memory_order_release);
}

void cqr_nodes_free(struct cqlring_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        struct cqlring_node *node = cluster->nodes[i];
        cqr_node_stats_free(node);
        for (struct node_place *place = node->places, *older; place != NULL; place = older) {
            older = place->older;
            cqr_mem_free(place);
        }
        cqr_mem_free(node);
    }
    cqr_mem_free(cluster->nodes);
}

uint32_t cqlring_cluster_nodes(const cqlring_cluster *handle, const cqlring_node **nodes, uint32_t capacity)
{
    struct cqlring_cluster *cluster = (struct cqlring_cluster *)(uintptr_t)handle;
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return 0;
    pthread_mutex_lock(&cluster->lock);
    uint32_t count = cluster->topology->node_count;
    for (uint32_t i = 0; i < count && i < capacity; i++)
        nodes[i] = cluster->topology->nodes[i];
    pthread_mutex_unlock(&cluster->lock);
    return count;
}

bool cqr_cluster_has(const struct cqlring_cluster *cluster, const struct cqlring_node *node)
{
    pthread_mutex_t *lock = &((struct cqlring_cluster *)(uintptr_t)cluster)->lock;
    pthread_mutex_lock(lock);
    bool has = node->index < cluster->node_count && cluster->nodes[node->index] == node;
    pthread_mutex_unlock(lock);
    return has;
}

void cqlring_node_describe(const cqlring_node *node, cqlring_node_info *info)
{
    if (node == NULL || info == NULL) {
        if (info != NULL)
            *info = (cqlring_node_info){.address = "", .datacenter = "", .rack = "", .release_version = ""};
        return;
    }
    const struct node_place *place = cqr_node_place(node);
    *info = (cqlring_node_info){.address = place->text,
                                .datacenter = node->datacenter,
                                .rack = node->rack,
                                .release_version = place->release_version,
                                .is_local = node->is_local};
    memcpy(info->host_id, node->host_id, 16);
    info->connections = atomic_load_explicit(&node->connections, memory_order_relaxed);
    info->in_flight = atomic_load_explicit(&node->in_flight, memory_order_relaxed);
    info->shards = cqr_node_shards(atomic_load_explicit(&node->sharding, memory_order_relaxed));
    info->is_up = info->connections > 0;
    info->protocol_version = (uint8_t)atomic_load_explicit(&node->version, memory_order_relaxed);
    info->is_suspect = atomic_load_explicit(&node->suspects, memory_order_relaxed) > 0;
}
