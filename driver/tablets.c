/* SPDX-License-Identifier: Apache-2.0 */

/* A pool's tablets: learned from replies, forgotten when nodes or the schema change. See tablets.h. */

#include "driver/tablets.h"

#include <stdio.h>
#include <string.h>

#include "driver/control_rows.h"
#include "driver/lane.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"

/* Some 50 bytes and 28 for each replica; a table of more tablets than that is learned as far as there is room. */
enum { TABLETS_PER_TABLE_MAX = 1 << 16, TABLES_MAX = 1024, PAYLOAD_ARENA_MAX = 64 << 10, LOOK_US = 1000000 };

static bool is_name(cqlring_bytes slice, const char *name)
{
    return slice.size >= 0 && strlen(name) == (size_t)slice.size && memcmp(slice.data, name, (size_t)slice.size) == 0;
}

struct tablet_table *cqr_tablets_find(const struct tablet_cache *cache, const struct statement_version *version)
{
    struct tablet_table *table = version->table[0] != '\0' ? cache->tables : NULL;
    while (table != NULL && (strcmp(table->name, version->table) != 0 || strcmp(table->keyspace, version->keyspace) != 0))
        table = table->next;
    return table;
}

struct tablet_table *cqr_tablets_table(struct tablet_cache *cache, const struct statement_version *version)
{
    struct tablet_table *table = cqr_tablets_find(cache, version);
    if (table != NULL || version->table[0] == '\0')
        return table;
    table = cache->table_count < TABLES_MAX ? cqr_mem_zalloc(sizeof *table) : NULL;
    if (table == NULL)
        return NULL;
    snprintf(table->keyspace, sizeof table->keyspace, "%s", version->keyspace);
    snprintf(table->name, sizeof table->name, "%s", version->table);
    cqr_tablet_map_init(&table->map, TABLETS_PER_TABLE_MAX);
    table->next = cache->tables;
    cache->tables = table;
    cache->table_count++;
    return table;
}

static uint32_t node_index(const struct topology *topology, const uint8_t host_id[16])
{
    for (uint32_t i = 0; topology != NULL && i < topology->node_count; i++)
        if (memcmp(topology->nodes[i]->host_id, host_id, 16) == 0)
            return topology->nodes[i]->index;
    return TABLET_NODE_UNKNOWN;
}

/* Many requests in flight are told the same. */
static bool is_known(const struct tablet_map *map, const struct tablet *tablet)
{
    const struct tablet *known = cqr_tablet_map_find(map, tablet->last);
    if (known == NULL || known->first != tablet->first || known->last != tablet->last || known->replica_count != tablet->replica_count)
        return false;
    for (uint32_t i = 0; i < tablet->replica_count; i++)
        if (known->replicas[i].shard != tablet->replicas[i].shard || memcmp(known->replicas[i].host_id, tablet->replicas[i].host_id, 16) != 0)
            return false;
    return true;
}

/* For those who ask from outside; when memory is out they know less. */
static void share(struct cqlring_cluster *cluster, const struct statement_version *version, const struct tablet *tablet)
{
    pthread_mutex_lock(&cluster->lock);
    struct tablet_table *table = cqr_tablets_table(&cluster->tablets, version);
    if (table != NULL && !is_known(&table->map, tablet))
        (void)cqr_tablet_map_add(&table->map, tablet);
    pthread_mutex_unlock(&cluster->lock);
}

void cqr_tablets_learn(struct lane *lane, struct pool *pool, const struct statement_version *version, cqlring_bytes payload)
{
    struct tablet_table *table = cqr_tablets_table(&pool->tablets, version);
    if (table == NULL)
        return;
    struct arena arena;
    struct tablet tablet;
    cqr_arena_init(&arena, PAYLOAD_ARENA_MAX);
    cqlring_status status = cqr_tablet_decode(payload, false, &arena, &tablet);
    if (status == CQLRING_OK && !is_known(&table->map, &tablet)) {
        bool strangers = false;
        for (uint32_t i = 0; i < tablet.replica_count; i++) {
            tablet.replicas[i].node = node_index(pool->topology, tablet.replicas[i].host_id);
            strangers = strangers || tablet.replicas[i].node == TABLET_NODE_UNKNOWN;
        }
        if (cqr_tablet_map_add(&table->map, &tablet) == CQLRING_OK)
            cqr_count(&lane->stats.tablets_learned, 1);
        share(pool->cluster, version, &tablet);
        if (strangers && lane->now_us - pool->tablets.looked_us >= LOOK_US) {
            pool->tablets.looked_us = lane->now_us;
            cqr_control_look(lane, pool->cluster);
        }
    } else if (status != CQLRING_OK) {
        cqr_log(&lane->runtime->log, CQLRING_LOG_DEBUG, "a tablet of %s.%s cannot be read (%s): ignored", table->keyspace, table->name, cqlring_status_text(status));
    }
    cqr_arena_fini(&arena);
}

/* A host that a reading of the topology does not have is gone. */
static void resolve(const struct topology *topology, struct tablet_map *map)
{
    for (uint32_t i = 0; i < map->count;) {
        const struct tablet *tablet = &map->tablets[i];
        const uint8_t *stranger = NULL;
        for (uint32_t j = 0; j < tablet->replica_count && stranger == NULL; j++) {
            tablet->replicas[j].node = node_index(topology, tablet->replicas[j].host_id);
            if (tablet->replicas[j].node == TABLET_NODE_UNKNOWN)
                stranger = tablet->replicas[j].host_id;
        }
        if (stranger != NULL) {
            uint8_t host_id[16];
            memcpy(host_id, stranger, sizeof host_id);
            cqr_tablet_map_forget_host(map, host_id); /* this one is among them; those before it stay where they are */
        } else {
            i++;
        }
    }
}

static void cache_topology(struct tablet_cache *cache, const struct topology *topology)
{
    for (struct tablet_table **at = &cache->tables; *at != NULL;) {
        struct tablet_table *table = *at;
        const struct keyspace *keyspace = cqr_topology_keyspace(topology, cqlring_text(table->keyspace));
        if (keyspace != NULL && keyspace->tablets) {
            resolve(topology, &table->map);
            at = &table->next;
            continue;
        }
        *at = table->next;
        cache->table_count--;
        cqr_tablet_map_fini(&table->map);
        cqr_mem_free(table);
    }
}

void cqr_tablets_topology(struct pool *pool)
{
    cache_topology(&pool->tablets, pool->topology);
    pthread_mutex_lock(&pool->cluster->lock);
    cache_topology(&pool->cluster->tablets, pool->topology);
    pthread_mutex_unlock(&pool->cluster->lock);
}

static void cache_forget(struct tablet_cache *cache, cqlring_bytes keyspace, cqlring_bytes table_name)
{
    for (struct tablet_table *table = cache->tables; table != NULL; table = table->next)
        if (is_name(keyspace, table->keyspace) && (table_name.size <= 0 || is_name(table_name, table->name)))
            cqr_tablet_map_fini(&table->map); /* emptied: routes point at the table */
}

void cqr_tablets_forget(struct pool *pool, cqlring_bytes keyspace, cqlring_bytes table)
{
    cache_forget(&pool->tablets, keyspace, table);
}

void cqr_tablets_forget_shared(struct cqlring_cluster *cluster, cqlring_bytes keyspace, cqlring_bytes table)
{
    pthread_mutex_lock(&cluster->lock);
    cache_forget(&cluster->tablets, keyspace, table);
    pthread_mutex_unlock(&cluster->lock);
}

void cqr_tablets_fini(struct tablet_cache *cache)
{
    while (cache->tables != NULL) {
        struct tablet_table *table = cache->tables;
        cache->tables = table->next;
        cqr_tablet_map_fini(&table->map);
        cqr_mem_free(table);
    }
    cache->table_count = 0;
}
