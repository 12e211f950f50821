/* SPDX-License-Identifier: Apache-2.0 */

#include "watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "serialize/mem.h"

enum { LOG_SIZE = 1 << 18, MOMENT_MS = 2 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t size;
    char text[LOG_SIZE];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void on_line(cqlring_log_level level, const char *line, void *context)
{
    (void)level;
    (void)context;
    pthread_mutex_lock(&kept.lock);
    size_t size = strlen(line);
    if (kept.size + size + 2 < LOG_SIZE) {
        memcpy(kept.text + kept.size, line, size);
        kept.size += size;
        kept.text[kept.size++] = '\n';
        kept.text[kept.size] = '\0';
    }
    pthread_cond_broadcast(&kept.moved);
    pthread_mutex_unlock(&kept.lock);
}

void watch_log(struct flow *flow)
{
    watch_log_clear();
    flow->runtime_options.log = on_line;
    flow->runtime_options.log_level = CQLRING_LOG_DEBUG;
}

void watch_log_clear(void)
{
    pthread_mutex_lock(&kept.lock);
    kept.size = 0;
    kept.text[0] = '\0';
    pthread_mutex_unlock(&kept.lock);
}

uint32_t watch_log_count(const char *text)
{
    uint32_t count = 0;
    pthread_mutex_lock(&kept.lock);
    for (const char *line = kept.text; *line != '\0';) {
        const char *end = strchr(line, '\n'), *at = strstr(line, text);
        count += at != NULL && at < end;
        line = end + 1;
    }
    pthread_mutex_unlock(&kept.lock);
    return count;
}

const char *watch_log_text(void)
{
    return kept.text + (kept.size > 3000 ? kept.size - 3000 : 0);
}

int64_t watch_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void moment(struct flow *flow)
{
    if (flow->threads == CQLRING_THREADS_CALLER && flow->runtime != NULL) {
        cqlring_runtime_turn(flow->runtime, MOMENT_MS * 1000);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += MOMENT_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&kept.lock);
    pthread_cond_timedwait(&kept.moved, &kept.lock, &until);
    pthread_mutex_unlock(&kept.lock);
}

bool watch_until(struct flow *flow, bool (*done)(struct flow *flow, void *context), void *context, uint32_t timeout_ms)
{
    int64_t end = watch_now_us() + (int64_t)timeout_ms * 1000;
    while (!done(flow, context)) {
        if (watch_now_us() >= end)
            return false;
        moment(flow);
    }
    return true;
}

static bool never(struct flow *flow, void *context)
{
    (void)flow;
    (void)context;
    return false;
}

uint32_t watch_pass(struct flow *flow, uint32_t ms)
{
    int64_t from = watch_now_us();
    watch_until(flow, never, NULL, ms);
    return (uint32_t)((watch_now_us() - from) / 1000);
}

/* ---- conditions ---- */

bool watch_logged(struct flow *flow, void *text)
{
    (void)flow;
    return watch_log_count(text) > 0;
}

uint32_t watch_up_count(struct flow *flow)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX), up = 0;
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        up += info.is_up;
    }
    return up;
}

bool watch_all_up(struct flow *flow, void *count)
{
    uint32_t wanted = *(uint32_t *)count;
    return cqlring_cluster_nodes(flow->cluster, NULL, 0) == wanted && watch_up_count(flow) == wanted;
}

bool watch_known(struct flow *flow, void *count)
{
    return cqlring_cluster_nodes(flow->cluster, NULL, 0) == *(uint32_t *)count;
}

bool watch_ready(struct flow *flow, void *future)
{
    (void)flow;
    return cqlring_future_ready(future);
}

bool watch_faults(struct flow *flow, void *count)
{
    struct node_counters all;
    node_counters(flow->node, NODE_ALL, &all);
    return all.faults >= *(uint64_t *)count;
}

bool watch_nothing_left(struct flow *flow, void *unused)
{
    (void)flow;
    (void)unused;
    return cqr_mem_live_count() == 0;
}

bool watch_no_orphans(struct flow *flow, void *unused)
{
    (void)unused;
    cqlring_stats stats = flow_stats(flow);
    return stats.late_replies == stats.orphans;
}

bool watch_node(struct flow *flow, uint32_t node, cqlring_node_info *info)
{
    char text[64];
    snprintf(text, sizeof text, "%s:%u", node_address(flow->node, node), node_port(flow->node, node));
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_describe(nodes[i], info);
        if (strcmp(info->address, text) == 0)
            return true;
    }
    return false;
}
