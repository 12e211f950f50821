/* SPDX-License-Identifier: Apache-2.0 */
/* A node that works: so many requests at a time, the others wait in line. When each is answered is known when it
   arrives, so all there is to keep is when each of the servers is free again, and when those in line begin. And a table of which
   each partition takes only so many. */
#include "tests/node/cluster.h"

#include <math.h>
#include <stdio.h>

void node_set_service(struct node_cluster *cluster, uint32_t node,
                      const struct node_service *service)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->engine.member_count; ++i) {
        if (node != NODE_ALL && node != i)
            continue;
        struct node_line *line = &cluster->nodes[i].line;
        node_line_fini(line);
        if (service == NULL || service->servers == 0 || service->service_us == 0)
            continue;
        line->service = *service;
        line->free_us = node_zalloc(service->servers * sizeof *line->free_us);
    }
    cluster_unlock(cluster);
}

void node_line_fini(struct node_line *line)
{
    node_free(line->free_us);
    node_free(line->begins_us);
    *line = (struct node_line){0};
}

static uint32_t first_free(const struct node_line *line)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < line->service.servers; ++i)
        if (line->free_us[i] < line->free_us[first])
            first = i;
    return first;
}

/* First come, first served: those in line begin in the order they came. */
static void wait_in_line(struct node_line *line, int64_t begins_us)
{
    if (line->waiting == line->capacity) {
        uint32_t capacity = line->capacity == 0 ? 64 : line->capacity * 2;
        int64_t *begins = node_alloc(capacity * sizeof *begins);
        for (uint32_t i = 0; i < line->waiting; ++i)
            begins[i] = line->begins_us[(line->head + i) % line->capacity];
        node_free(line->begins_us);
        line->begins_us = begins;
        line->capacity = capacity;
        line->head = 0;
    }
    line->begins_us[(line->head + line->waiting++) % line->capacity] = begins_us;
}

bool node_line_take(struct node_cluster *cluster, uint32_t node, int64_t *took_us)
{
    struct node_line *line = &cluster->nodes[node].line;
    const struct node_service *service = &line->service;
    *took_us = 0;
    if (line->free_us == NULL)
        return true;
    int64_t now = cluster->now_us;
    while (line->waiting > 0 && line->begins_us[line->head] <= now) {
        line->head = (line->head + 1) % line->capacity;
        --line->waiting;
    }
    uint32_t server = first_free(line);
    int64_t begins = line->free_us[server] > now ? line->free_us[server] : now;
    if (begins > now && service->waiting_max > 0 && line->waiting >= service->waiting_max)
        return false;
    double work = service->service_us;
    if (service->exponential)
        work *= -log(((double)(node_random(&cluster->random) >> 11) + 0.5) * 0x1.0p-53);
    if (begins > now)
        wait_in_line(line, begins);
    line->free_us[server] = begins + (int64_t)(work + 0.5);
    *took_us = line->free_us[server] - now;
    return true;
}

/* --- by partition ----------------------------------------------------------------------------- */

void node_set_partition_limit(struct node_cluster *cluster, const char *table, uint32_t statements,
                              uint32_t window_us)
{
    cluster_lock(cluster);
    struct node_partition_limit *limit = &cluster->limit;
    node_free(limit->taken);
    *limit = (struct node_partition_limit){.statements = statements, .window_us = window_us};
    (void)snprintf(limit->table, sizeof limit->table, "%s", table);
    if (statements > 0) {
        limit->capacity = 1024;
        limit->taken = node_zalloc(limit->capacity * sizeof *limit->taken);
    }
    cluster_unlock(cluster);
}

/* The token's place, or a free one; there always is one. */
static struct taken *taken_find(struct taken *taken, uint32_t capacity, int64_t token)
{
    uint32_t at = (uint32_t)((uint64_t)token * UINT64_C(0x9E3779B97F4A7C15) >> 32) % capacity;
    while (taken[at].count > 0 && taken[at].token != token)
        at = (at + 1) % capacity;
    return &taken[at];
}

static void taken_grow(struct node_partition_limit *limit)
{
    uint32_t capacity = limit->capacity * 2;
    struct taken *taken = node_zalloc(capacity * sizeof *taken);
    for (uint32_t i = 0; i < limit->capacity; ++i)
        if (limit->taken[i].count > 0)
            *taken_find(taken, capacity, limit->taken[i].token) = limit->taken[i];
    node_free(limit->taken);
    limit->taken = taken;
    limit->capacity = capacity;
}

bool node_limit_take(struct node_cluster *cluster, const struct node_table *table, int64_t token)
{
    struct node_partition_limit *limit = &cluster->limit;
    char name[sizeof limit->table];
    (void)snprintf(name, sizeof name, "%.*s.%.*s", SLICE_ARG(table->keyspace->name),
                   SLICE_ARG(table->name));
    if (limit->taken == NULL || strcmp(name, limit->table) != 0)
        return true;
    if (limit->taken_count >= limit->capacity / 2)
        taken_grow(limit);
    struct taken *taken = taken_find(limit->taken, limit->capacity, token);
    if (taken->count == 0)
        ++limit->taken_count;
    if (taken->count == 0 || cluster->now_us - taken->since_us >= limit->window_us)
        *taken = (struct taken){.token = token, .since_us = cluster->now_us};
    if (taken->count >= limit->statements)
        return false;
    ++taken->count;
    return true;
}
