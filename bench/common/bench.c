/* SPDX-License-Identifier: Apache-2.0 */
#include "common/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

_Noreturn void bench_die(const char *what, const cqlring_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, cqlring_status_name(error->status), error->message);
    exit(1);
}

void bench_open(struct bench_session *bench, const struct bench_server *server)
{
    cqlring_error error;
    cqlring_runtime_options runtime_options = {.struct_size = sizeof runtime_options,
                                               .threads = server->threads,
                                               .lanes = server->lanes};
    if (cqlring_runtime_create(&runtime_options, &bench->runtime, &error) != CQLRING_OK)
        bench_die("runtime", &error);
    cqlring_tls_options tls = {.struct_size = sizeof tls, .ca_file = server->tls_ca};
    cqlring_cluster_options options = {
        .struct_size = sizeof options,
        .contact_points = server->host,
        .port = server->port,
        .protocol_version = server->protocol,
        .compression = server->lz4 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE,
        .tls = server->tls_ca != NULL ? &tls : NULL,
        .application_name = "cqlring bench"};
    if (cqlring_cluster_open_sync(bench->runtime, &options, &bench->cluster, &error) != CQLRING_OK)
        bench_die("cluster", &error);
    if (cqlring_session_open_sync(bench->cluster, NULL, &bench->session, &error) != CQLRING_OK)
        bench_die("session", &error);
}

void bench_answered(const cqlring_cluster *cluster, int *protocol, const char **release_version)
{
    const cqlring_node *nodes[64];
    uint32_t count = cqlring_cluster_nodes(cluster, nodes, 64);
    *protocol = 0;
    *release_version = "";
    for (uint32_t i = 0; i < count && i < 64 && *protocol == 0; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        *protocol = info.protocol_version;
        *release_version = info.release_version;
    }
}

void bench_close(struct bench_session *bench)
{
    cqlring_error error;
    cqlring_future *future;
    if (cqlring_cluster_close(bench->cluster, -1, &future, &error) != CQLRING_OK ||
        cqlring_future_wait(future, -1, &error) != CQLRING_OK)
        bench_die("close", &error);
    cqlring_future_release(future);
    cqlring_session_release(bench->session);
    cqlring_cluster_release(bench->cluster);
    cqlring_runtime_destroy(bench->runtime);
}

void bench_text(cqlring_session *session, const char *cql)
{
    cqlring_error error;
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 60000000};
    cqlring_request request = {.session = session, .cql = cqlring_text(cql), .execution = &how};
    if (cqlring_execute_sync(&request, NULL, &error) != CQLRING_OK)
        bench_die(cql, &error);
}

cqlring_prepared *bench_prepare(cqlring_session *session, const char *cql)
{
    cqlring_error error;
    cqlring_prepared *prepared;
    if (cqlring_prepare_sync(session, cql, &prepared, &error) != CQLRING_OK)
        bench_die(cql, &error);
    return prepared;
}

void bench_schema(cqlring_session *session)
{
    bench_text(session, "CREATE KEYSPACE IF NOT EXISTS bench WITH replication = "
                        "{'class': 'SimpleStrategy', 'replication_factor': 1}");
    bench_text(session, "CREATE TABLE IF NOT EXISTS bench.small (k bigint PRIMARY KEY, v blob)");
}

void bench_blob(uint8_t blob[BENCH_BLOB_SIZE])
{
    for (int i = 0; i < BENCH_BLOB_SIZE; i++)
        blob[i] = (uint8_t)(i + 1);
}

const char *const bench_threads_names[] = {"split", "inline", "caller", NULL};

static double of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

struct bench_usage bench_usage_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct bench_usage){.seconds = (double)bench_now_ns() / 1e9,
                                .user_s = of(usage.ru_utime),
                                .system_s = of(usage.ru_stime),
                                .context_switches = usage.ru_nvcsw + usage.ru_nivcsw};
}

struct bench_usage bench_usage_since(const struct bench_usage *start)
{
    struct bench_usage now = bench_usage_now();
    now.seconds -= start->seconds;
    now.user_s -= start->user_s;
    now.system_s -= start->system_s;
    now.context_switches -= start->context_switches;
    return now;
}

long bench_memory_kb(const char *field)
{
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return 0;
    char line[256];
    size_t size = strlen(field);
    long kb = 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, size) == 0 && line[size] == ':')
            kb = strtol(line + size + 1, NULL, 10);
    fclose(file);
    return kb;
}
