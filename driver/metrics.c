/* SPDX-License-Identifier: Apache-2.0 */

/* Every counter as OpenMetrics text. A family is one table row: its name, type, help, and where its values are found; so a
   family's samples stand together, as the format wants them. Locks of the control plane only. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver/fork.h"
#include "driver/node_stats.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/text.h"

/* A label's value: backslash, quote and line end are escaped. */
static void put_label(struct text *text, const char *name, const char *value, bool first)
{
    cqr_text_put(text, "%s%s=\"", first ? "{" : ",", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            cqr_text_put(text, "\\%c", *value);
        else if (*value == '\n')
            cqr_text_put(text, "\\n");
        else
            cqr_text_put(text, "%c", *value);
    }
    cqr_text_put(text, "\"");
}

static uint64_t value(const counter *which)
{
    return atomic_load_explicit((counter *)(uintptr_t)which, memory_order_relaxed);
}

static void put_family(struct text *text, const char *name, const char *type, const char *unit, const char *help)
{
    cqr_text_put(text, "# TYPE cqlring_%s %s\n", name, type);
    if (unit != NULL)
        cqr_text_put(text, "# UNIT cqlring_%s %s\n", name, unit);
    cqr_text_put(text, "# HELP cqlring_%s %s\n", name, help);
}

static void put_us(struct text *text, uint64_t us)
{
    cqr_text_put(text, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

/* ---- of the lanes ---- */

#define OF_SUBMITTER(field) offsetof(struct lane, stats.field)
#define OF_REACTOR(field) offsetof(struct lane, reactor_stats.field)

static const struct {
    const char *name, *help;
    size_t offset;
} lane_counters[] = {
    {"requests_issued", "Requests written to a connection, every attempt.", OF_SUBMITTER(issued)},
    {"requests_settled", "Requests whose outcome is known.", OF_SUBMITTER(settled)},
    {"retries", "Attempts after the first one.", OF_SUBMITTER(retries)},
    {"speculative", "Further attempts sent while one was under way.", OF_SUBMITTER(speculative)},
    {"speculative_won", "Requests that one of these decided well.", OF_SUBMITTER(speculative_won)},
    {"plans_ignored", "Orders of the application's plan that could not be.", OF_SUBMITTER(plans_ignored)},
    {"shard_fallbacks", "Requests that took another shard's connection than theirs.", OF_SUBMITTER(shard_fallbacks)},
    {"tablets_learned", "Places of tablets that replies told of.", OF_SUBMITTER(tablets_learned)},
    {"batches", "Batches made of rows of one partition.", OF_SUBMITTER(batches)},
    {"batched_rows", "Rows that went in them.", OF_SUBMITTER(batched_rows)},
    {"batches_split", "Batches that the server refused and that were halved.", OF_SUBMITTER(batches_split)},
    {"partition_waits", "Rows and batches that waited because others of their partition had met its rate limit.", OF_SUBMITTER(partition_waits)},
    {"reprepares", "Statements prepared again on a node that did not know them.", OF_SUBMITTER(reprepares)},
    {"prepared_ahead", "Statements prepared on a node that came up, before a request needed them there.", OF_SUBMITTER(prepared_ahead)},
    {"timeouts", "Requests and attempts that were not answered in time.", OF_SUBMITTER(timeouts)},
    {"orphans", "Requests that timed out while their answer could still come.", OF_SUBMITTER(orphans)},
    {"late_replies", "Answers to requests that had timed out.", OF_SUBMITTER(late_replies)},
    {"sends", "Send calls.", OF_SUBMITTER(sends)},
    {"sends_blocked", "Send calls that found the socket full.", OF_SUBMITTER(send_blocked)},
    {"sent_bytes", "Bytes taken by sockets.", OF_SUBMITTER(send_bytes)},
    {"recvs", "Receive calls.", OF_REACTOR(recvs)},
    {"received_bytes", "Bytes received.", OF_REACTOR(recv_bytes)},
    {"replies", "Frames received.", OF_REACTOR(replies)},
    {"copied_up_bytes", "Bytes of replies moved after they were received.", OF_REACTOR(copied_up_bytes)},
    {"copied_down_bytes", "Bytes of values written into send blocks.", OF_SUBMITTER(copied_down_bytes)},
    {"log_dropped", "Log lines that there was no room for.", OF_REACTOR(log_dropped)},
    {"connections_opened", "Connections that came up.", OF_SUBMITTER(connections_opened)},
    {"connections_lost", "Connections that were up and went down.", OF_SUBMITTER(connections_lost)},
    {"tls_handshakes", "TLS handshakes that succeeded.", OF_REACTOR(tls_handshakes)},
    {"tls_resumptions", "Of these, those shortened by a ticket.", OF_REACTOR(tls_resumed)},
    {"submitter_turns", "Turns of the submitter.", OF_SUBMITTER(turns)},
    {"submitter_sleeps", "Times the submitter found nothing to do.", OF_SUBMITTER(sleeps)},
    {"reactor_turns", "Turns of the reactor.", OF_REACTOR(turns)},
};

static void lanes_put(struct text *text, const struct runtime_core *core)
{
    for (size_t i = 0; i < sizeof lane_counters / sizeof lane_counters[0]; i++) {
        put_family(text, lane_counters[i].name, "counter", NULL, lane_counters[i].help);
        for (uint32_t j = 0; j < core->lane_count; j++)
            cqr_text_put(text, "cqlring_%s_total{lane=\"%u\"} %" PRIu64 "\n", lane_counters[i].name, j,
                value((const counter *)(const void *)((const char *)&core->lanes[j] + lane_counters[i].offset)));
    }
    put_family(text, "requests_failed", "counter", NULL, "Requests that failed in the end, by status.");
    for (uint32_t j = 0; j < core->lane_count; j++)
        for (unsigned status = 1; status < 16; status++)
            cqr_text_put(text, "cqlring_requests_failed_total{lane=\"%u\",status=\"%s\"} %" PRIu64 "\n", j, cqlring_status_name((cqlring_status)status),
                value(&core->lanes[j].stats.failed_by[status]));
    put_family(text, "wakes", "counter", NULL, "Wake-ups that cost a system call, by who was woken.");
    for (uint32_t j = 0; j < core->lane_count; j++) {
        const struct lane *lane = &core->lanes[j];
        cqr_text_put(text, "cqlring_wakes_total{lane=\"%u\",who=\"submitter\"} %" PRIu64 "\n", j, value(&lane->reactor_stats.wakes_submitter));
        cqr_text_put(text, "cqlring_wakes_total{lane=\"%u\",who=\"reactor\"} %" PRIu64 "\n", j, value(&lane->stats.wakes_reactor));
        cqr_text_put(text, "cqlring_wakes_total{lane=\"%u\",who=\"waiter\"} %" PRIu64 "\n", j, value(&lane->stats.wakes_waiter));
    }
    put_family(text, "pages_ahead", "counter", NULL, "Pages asked for before the application did.");
    cqr_text_put(text, "cqlring_pages_ahead_total %" PRIu64 "\n", value(&core->pages_ahead));
    put_family(text, "pages_dropped", "counter", NULL, "Of these, those that it never asked for.");
    cqr_text_put(text, "cqlring_pages_dropped_total %" PRIu64 "\n", value(&core->pages_dropped));
    put_family(text, "allocations", "counter", NULL, "Allocations through the library, of the whole process.");
    cqr_text_put(text, "cqlring_allocations_total %" PRIu64 "\n", cqr_mem_allocation_count());
    if (core->threads == CQLRING_THREADS_CALLER)
        return; /* the application's threads: no CPU time of ours */
    put_family(text, "cpu_seconds", "counter", "seconds", "CPU time of the library's threads.");
    for (uint32_t j = 0; j < core->lane_count; j++) {
        cqr_text_put(text, "cqlring_cpu_seconds_total{lane=\"%u\",thread=\"submitter\"} ", j);
        put_us(text, cqr_thread_cpu_us(&core->lanes[j].submitter_cpu));
        if (core->threads == CQLRING_THREADS_SPLIT) {
            cqr_text_put(text, "\ncqlring_cpu_seconds_total{lane=\"%u\",thread=\"reactor\"} ", j);
            put_us(text, cqr_thread_cpu_us(&core->lanes[j].reactor_cpu));
        }
        cqr_text_put(text, "\n");
    }
}

/* ---- of the nodes ---- */

/* Whose a sample is: everything but the family's own label. */
static void put_node(struct text *text, const struct cqlring_cluster *cluster, const struct cqlring_node *node, const struct node_stats *stats)
{
    char number[16];
    snprintf(number, sizeof number, "%u", cluster->number);
    put_label(text, "cluster", number, true);
    put_label(text, "contact", cluster->points[0].host, false);
    put_label(text, "node", cqr_node_place(node)->text, false);
    put_label(text, "dc", node->datacenter, false);
    put_label(text, "rack", node->rack, false);
    if (stats == NULL)
        return;
    snprintf(number, sizeof number, "%u", stats->lane);
    put_label(text, "lane", number, false);
    if (stats->shard < 0)
        return;
    snprintf(number, sizeof number, "%d", stats->shard);
    put_label(text, "shard", number, false);
}

static void node_up(struct text *text, const char *name, const struct cqlring_cluster *cluster, const struct cqlring_node *node)
{
    cqr_text_put(text, "cqlring_%s", name);
    put_node(text, cluster, node, NULL);
    cqr_text_put(text, "} %d\n", atomic_load_explicit(&node->connections, memory_order_relaxed) > 0);
}

static void node_errors(struct text *text, const char *name, const struct cqlring_cluster *cluster, const struct cqlring_node *node, const struct node_stats *stats)
{
    for (uint32_t i = 0; i < 16 + SERVER_ERRORS; i++) {
        uint64_t count = value(i < 16 ? &stats->errors[i] : &stats->server_errors[i - 16]);
        if (count == 0 || i == CQLRING_SERVER)
            continue; /* dozens of kinds that mostly never happen; those of the server are told apart */
        cqr_text_put(text, "cqlring_%s_total", name);
        put_node(text, cluster, node, stats);
        put_label(text, "kind", i < 16 ? cqlring_status_name((cqlring_status)i) : cqr_server_error_name(i - 16), false);
        cqr_text_put(text, "} %" PRIu64 "\n", count);
    }
}

/* Buckets at the octaves from 64 µs to 16.8 s; the count is their sum, so that they agree whatever is added meanwhile. */
static void node_latency(struct text *text, const char *name, const struct cqlring_cluster *cluster, const struct cqlring_node *node, const struct node_stats *stats)
{
    uint64_t seen = 0;
    uint32_t at = 0;
    for (uint32_t octave = 6; octave <= 24; octave++) {
        for (; at < NODE_LATENCY_BUCKETS && cqr_latency_bucket_end(at) <= UINT64_C(1) << octave; at++)
            seen += value(&stats->latency[at]);
        cqr_text_put(text, "cqlring_%s_bucket", name);
        put_node(text, cluster, node, stats);
        cqr_text_put(text, ",le=\"");
        put_us(text, UINT64_C(1) << octave);
        cqr_text_put(text, "\"} %" PRIu64 "\n", seen);
    }
    for (; at < NODE_LATENCY_BUCKETS; at++)
        seen += value(&stats->latency[at]);
    cqr_text_put(text, "cqlring_%s_bucket", name);
    put_node(text, cluster, node, stats);
    cqr_text_put(text, ",le=\"+Inf\"} %" PRIu64 "\ncqlring_%s_count", seen, name);
    put_node(text, cluster, node, stats);
    cqr_text_put(text, "} %" PRIu64 "\ncqlring_%s_sum", seen, name);
    put_node(text, cluster, node, stats);
    cqr_text_put(text, "} ");
    put_us(text, value(&stats->latency_sum_us));
    cqr_text_put(text, "\n");
}

typedef void (*node_put)(struct text *text, const char *name, const struct cqlring_cluster *cluster, const struct cqlring_node *node, const struct node_stats *stats);

#define OF_NODE(field) offsetof(struct node_stats, field)

static const struct {
    const char *name, *type, *unit, *help;
    size_t offset;   /* of the one counter, or: */
    node_put each;
} node_families[] = {
    {"node_connections", "gauge", NULL, "Open connections.", OF_NODE(connections), NULL},
    {"node_in_flight", "gauge", NULL, "Requests sent and not answered.", OF_NODE(in_flight), NULL},
    {"node_window", "gauge", NULL, "Requests that jobs without a window of their own may have under way.", OF_NODE(window), NULL},
    {"node_orphans", "gauge", NULL, "Timed-out requests whose answer may still come.", OF_NODE(orphans), NULL},
    {"node_queued_bytes", "gauge", "bytes", "Bytes that the socket has no room for.", OF_NODE(queued_bytes), NULL},
    {"node_requests", "counter", NULL, "Requests sent.", OF_NODE(requests), NULL},
    {"node_sends", "counter", NULL, "Send calls.", OF_NODE(sends), NULL},
    {"node_sent_bytes", "counter", "bytes", "Bytes taken by sockets.", OF_NODE(send_bytes), NULL},
    {"node_recvs", "counter", NULL, "Receive calls that brought bytes.", OF_NODE(recvs), NULL},
    {"node_received_bytes", "counter", "bytes", "Bytes received.", OF_NODE(recv_bytes), NULL},
    {"node_speculative", "counter", NULL, "Further attempts sent to it while one was under way.", OF_NODE(speculative), NULL},
    {"node_speculative_won", "counter", NULL, "Requests that one of these decided well.", OF_NODE(speculative_won), NULL},
    {"node_shard_fallbacks", "counter", NULL, "Requests of the shard that took another shard's connection.", OF_NODE(shard_fallbacks), NULL},
    {"node_orphaned", "counter", NULL, "Requests that timed out while their answer could still come.", OF_NODE(orphaned), NULL},
    {"node_late_replies", "counter", NULL, "Answers to such requests.", OF_NODE(late_replies), NULL},
    {"node_wakes", "counter", NULL, "Answers that found the submitter asleep.", OF_NODE(wakes), NULL},
    {"node_retries", "counter", NULL, "Attempts on it after which another one was made.", OF_NODE(retries), NULL},
    {"node_errors", "counter", NULL, "Attempts that failed, by kind: a status, or the server's error.", 0, node_errors},
    {"node_latency_seconds", "histogram", "seconds", "From the send of an attempt to its answer, as the driver saw it.", 0, node_latency},
};

static void nodes_put_family(struct text *text, struct runtime_core *core, size_t family)
{
    bool is_gauge = family < sizeof node_families / sizeof node_families[0] && strcmp(node_families[family].type, "gauge") == 0;
    for (struct cqlring_cluster *cluster = core->clusters; cluster != NULL; cluster = cluster->next) {
        pthread_mutex_lock(&cluster->lock);
        const struct topology *topology = cluster->topology;
        for (uint32_t i = 0; topology != NULL && i < topology->node_count; i++) {
            const struct cqlring_node *node = topology->nodes[i];
            if (family == SIZE_MAX) {
                node_up(text, "node_up", cluster, node);
                continue;
            }
            for (const struct node_stats *stats = atomic_load_explicit(&node->stats, memory_order_acquire); stats != NULL; stats = stats->next) {
                if (node_families[family].each != NULL) {
                    node_families[family].each(text, node_families[family].name, cluster, node, stats);
                    continue;
                }
                cqr_text_put(text, "cqlring_%s%s", node_families[family].name, is_gauge ? "" : "_total");
                put_node(text, cluster, node, stats);
                cqr_text_put(text, "} %" PRIu64 "\n", value((const counter *)(const void *)((const char *)stats + node_families[family].offset)));
            }
        }
        pthread_mutex_unlock(&cluster->lock);
    }
}

size_t cqlring_metrics_text(const cqlring_runtime *runtime, char *buffer, size_t size)
{
    struct text text = cqr_text_make(buffer, size);
    struct runtime_core *core = cqr_runtime_observe(runtime);
    put_family(&text, "build", "info", NULL, "The library.");
    cqr_text_put(&text, "cqlring_build_info{version=\"%s\"} 1\n", cqlring_version());
    if (core != NULL) {
        lanes_put(&text, core);
        pthread_mutex_lock(&core->lock); /* a cluster in the list is not freed meanwhile */
        put_family(&text, "node_up", "gauge", NULL, "1: at least one connection is open.");
        nodes_put_family(&text, core, SIZE_MAX);
        for (size_t i = 0; i < sizeof node_families / sizeof node_families[0]; i++) {
            put_family(&text, node_families[i].name, node_families[i].type, node_families[i].unit, node_families[i].help);
            nodes_put_family(&text, core, i);
        }
        pthread_mutex_unlock(&core->lock);
        cqr_runtime_release(core);
    }
    cqr_text_put(&text, "# EOF\n");
    return text.needed;
}
