/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes of other datacenters than the local one get no connections from a cluster handle: each datacenter gets a handle of its
   own, which tells all there is to say about its nodes. The first one's also says which datacenters there are. */

static void log_line(cqlring_log_level level, const char *line, void *context)
{
    (void)context;
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    fprintf(stderr, "%s: %s\n", names[level], line);
}

static int exit_status(cqlring_status status)
{
    switch (status) {
    case CQLRING_OK:
        return EXIT_GOOD;
    case CQLRING_INVALID:
        return EXIT_USAGE;
    case CQLRING_UNREACHABLE:
    case CQLRING_LOST:
        return EXIT_UNREACHABLE;
    case CQLRING_TIMEOUT:
        return EXIT_SILENT;
    case CQLRING_AUTH:
        return EXIT_AUTH;
    case CQLRING_TLS:
        return EXIT_TLS;
    case CQLRING_PROTOCOL:
        return EXIT_PROTOCOL;
    default:
        return EXIT_OTHER;
    }
}

static int by_size(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Asks one node, and times its answers. The first is not counted: it may have waited for the connection. */
static void node_time(cqlring_session *session, const cqlring_node *node, const struct options *options, struct node_report *report)
{
    static uint32_t times[SAMPLES_MAX];
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = options->timeout_us, .retry = CQLRING_RETRY_NONE, .target = node};
    cqlring_request request = {.session = session, .cql = cqlring_text("SELECT release_version FROM system.local WHERE key='local'"), .execution = &how};
    uint32_t count = 0;
    for (uint32_t i = 0; i <= options->samples; i++) {
        cqlring_future *future = NULL;
        cqlring_error error = {0};
        cqlring_status status = cqlring_execute(&request, &future, &error);
        if (status == CQLRING_OK)
            status = cqlring_future_wait(future, -1, &error);
        if (status == CQLRING_OK && i > 0)
            times[count++] = cqlring_future_completion(future)->in_flight_us;
        cqlring_future_release(future);
        if (status != CQLRING_OK) {
            report->status = status;
            snprintf(report->reason, sizeof report->reason, "%s", error.message);
            break;
        }
    }
    if (count == 0)
        return;
    qsort(times, count, sizeof times[0], by_size);
    report->latency_count = count;
    report->latency_min_us = times[0];
    report->latency_median_us = times[count / 2];
    report->latency_max_us = times[count - 1];
}

static void node_take(const cqlring_node_info *info, struct node_report *report)
{
    snprintf(report->address, sizeof report->address, "%s", info->address);
    snprintf(report->datacenter, sizeof report->datacenter, "%s", info->datacenter);
    snprintf(report->rack, sizeof report->rack, "%s", info->rack);
    snprintf(report->release, sizeof report->release, "%s", info->release_version);
    memcpy(report->host_id, info->host_id, sizeof report->host_id);
}

/* The connection to a node; the control connection's when there is no other. */
static void connection_take(const cqlring_cluster *cluster, const cqlring_node *node, struct node_report *report)
{
    enum { MAX = 256 };
    static cqlring_connection_info connections[MAX];
    uint32_t count = cqlring_cluster_connections(cluster, connections, MAX);
    for (uint32_t i = 0; i < count && i < MAX; i++)
        if (connections[i].node == node && (!report->connected || report->connection.is_control)) {
            report->connected = true;
            report->connection = connections[i];
        }
}

/* All nodes of the cluster handle's local datacenter. */
static void datacenter_probe(cqlring_cluster *cluster, const struct options *options, struct report *report)
{
    static const cqlring_node *nodes[NODES_MAX];
    cqlring_session *session = NULL;
    cqlring_error error = {0};
    cqlring_status status = cqlring_session_open_sync(cluster, NULL, &session, &error);
    uint32_t count = cqlring_cluster_nodes(cluster, nodes, NODES_MAX);
    for (uint32_t i = 0; i < count && i < NODES_MAX && report->node_count < NODES_MAX; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (!info.is_local)
            continue;
        struct node_report *node = &report->nodes[report->node_count++];
        node_take(&info, node);
        node->status = status;
        snprintf(node->reason, sizeof node->reason, "%s", error.message);
        if (session != NULL)
            node_time(session, nodes[i], options, node);
        connection_take(cluster, nodes[i], node);
    }
    cqlring_session_release(session);
}

/* The next datacenter that no node has been reported of. */
static bool datacenter_next(const cqlring_cluster *cluster, const struct report *report, char out[128])
{
    static const cqlring_node *nodes[NODES_MAX];
    uint32_t count = cqlring_cluster_nodes(cluster, nodes, NODES_MAX);
    for (uint32_t i = 0; i < count && i < NODES_MAX; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        bool known = false;
        for (uint32_t j = 0; j < report->node_count && !known; j++)
            known = strcmp(report->nodes[j].datacenter, info.datacenter) == 0;
        if (!known) {
            snprintf(out, 128, "%s", info.datacenter);
            return true;
        }
    }
    return false;
}

static void others_probe(cqlring_runtime *runtime, cqlring_cluster *first, const struct options *options, struct report *report)
{
    char datacenter[128];
    while (report->node_count < NODES_MAX && datacenter_next(first, report, datacenter)) {
        cqlring_cluster_options cluster_options = options->cluster;
        cqlring_cluster *cluster = NULL;
        cqlring_error error = {0};
        uint32_t before = report->node_count;
        cluster_options.local_datacenter = datacenter;
        cqlring_status status = cqlring_cluster_open_sync(runtime, &cluster_options, &cluster, &error);
        if (status == CQLRING_OK)
            datacenter_probe(cluster, options, report);
        cqlring_cluster_release(cluster);
        if (report->node_count > before)
            continue;
        struct node_report *node = &report->nodes[report->node_count++]; /* it changed between the two looks */
        snprintf(node->datacenter, sizeof node->datacenter, "%s", datacenter);
        node->status = status != CQLRING_OK ? status : CQLRING_UNREACHABLE;
        snprintf(node->reason, sizeof node->reason, "%s", status != CQLRING_OK ? error.message : "no node of this datacenter is left");
    }
}

static void control_take(const cqlring_cluster *cluster, struct report *report)
{
    cqlring_connection_info connection;
    if (cqlring_cluster_connections(cluster, &connection, 1) > 0)
        snprintf(report->control, sizeof report->control, "%s", connection.address);
}

int main(int argc, char **argv)
{
    static struct options options;
    int result = options_read(argc, argv, &options);
    if (result != EXIT_GOOD)
        return result < 0 ? EXIT_GOOD : result;
    cqlring_runtime_options runtime_options = {.struct_size = sizeof runtime_options,
                                               .log_level = CQLRING_LOG_DEBUG,
                                               .log = options.verbose ? log_line : NULL};
    cqlring_runtime *runtime = NULL;
    cqlring_cluster *cluster = NULL;
    cqlring_error error = {0};
    struct report report = {.contact_points = options.contact_points, .nodes = calloc(NODES_MAX, sizeof *report.nodes)};
    if (report.nodes == NULL) {
        fputs("cqlring-probe: out of memory\n", stderr);
        return EXIT_OTHER;
    }
    report.status = cqlring_runtime_create(&runtime_options, &runtime, &error);
    if (report.status == CQLRING_OK)
        report.status = cqlring_cluster_open_sync(runtime, &options.cluster, &cluster, &error);
    if (report.status == CQLRING_OK) {
        control_take(cluster, &report);
        datacenter_probe(cluster, &options, &report);
        if (options.datacenter == NULL)
            others_probe(runtime, cluster, &options, &report);
        if (report.node_count == 0) {
            report.status = CQLRING_UNREACHABLE;
            snprintf(error.message, sizeof error.message, "no node of the datacenter \"%s\" is known", options.datacenter != NULL ? options.datacenter : "");
        }
    }
    options_wipe(&options);
    snprintf(report.reason, sizeof report.reason, "%s", report.status != CQLRING_OK ? error.message : "");
    result = exit_status(report.status);
    bool any = false, all = true;
    for (uint32_t i = 0; i < report.node_count; i++) {
        any = any || report.nodes[i].status == CQLRING_OK;
        all = all && report.nodes[i].status == CQLRING_OK;
    }
    if (report.node_count > 0 && !all)
        result = any ? EXIT_PARTLY : exit_status(report.nodes[0].status);
    if (options.json)
        report_json(&report);
    else
        report_text(&report);
    cqlring_cluster_release(cluster);
    cqlring_runtime_destroy(runtime);
    free(report.nodes);
    return fflush(stdout) != 0 ? EXIT_OTHER : result;
}
