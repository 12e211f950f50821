/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void host_id_format(const uint8_t id[16], char text[37])
{
    snprintf(text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9],
             id[10], id[11], id[12], id[13], id[14], id[15]);
}

static void day_format(int64_t seconds, char text[64])
{
    struct tm tm;
    time_t at = (time_t)seconds;
    text[0] = '\0';
    if (gmtime_r(&at, &tm) != NULL)
        strftime(text, 64, "%Y-%m-%d %H:%M UTC", &tm);
}

/* ---- text ---- */

static void certificate_text(const cqlring_connection_info *connection)
{
    char until[64];
    day_format(connection->certificate_until_s, until);
    int64_t days = (connection->certificate_until_s - (int64_t)time(NULL)) / 86400;
    printf("    %s, %s%s\n", connection->tls_version, connection->tls_cipher, connection->tls_resumed ? ", resumed" : "");
    printf("    certificate for %s, until %s (%" PRId64 " days), subject %s, issuer %s\n", connection->certificate_names, until, days,
           connection->certificate_subject, connection->certificate_issuer);
}

static void node_text(const struct node_report *node)
{
    char id[37];
    host_id_format(node->host_id, id);
    printf("%s  %s/%s  %s  release %s\n", node->address, node->datacenter, node->rack, id, node->release[0] != '\0' ? node->release : "unknown");
    if (node->connected) {
        const cqlring_connection_info *connection = &node->connection;
        printf("    protocol v%u, compression %s, authenticator %s\n", connection->protocol_version,
               connection->compression == CQLRING_COMPRESSION_LZ4 ? "lz4" : connection->compression == CQLRING_COMPRESSION_SNAPPY ? "snappy" : "none", connection->authenticator[0] != '\0' ? connection->authenticator : "none");
        if (connection->shard_count > 0)
            printf("    %" PRId32 " shards, shard-aware port %" PRId32 "\n", connection->shard_count, connection->shard_aware_port);
        if (connection->features[0] != '\0')
            printf("    features %s\n", connection->features);
        if (connection->tls_version[0] != '\0')
            certificate_text(connection);
    }
    if (node->latency_count > 0)
        printf("    answers in %.2f ms (median of %u; %.2f to %.2f)\n", node->latency_median_us / 1000.0, node->latency_count, node->latency_min_us / 1000.0,
               node->latency_max_us / 1000.0);
    if (node->status != CQLRING_OK)
        printf("    NO ANSWER (%s): %s\n", cqlring_status_text(node->status), node->reason);
}

void report_text(const struct report *report)
{
    if (report->node_count == 0) {
        fprintf(stderr, "cqlring-probe: %s: %s\n", cqlring_status_text(report->status), report->reason);
        return;
    }
    uint32_t good = 0;
    for (uint32_t i = 0; i < report->node_count; i++)
        good += report->nodes[i].status == CQLRING_OK;
    printf("%u of %u nodes answer (told by %s)\n", good, report->node_count, report->control[0] != '\0' ? report->control : report->contact_points);
    for (uint32_t i = 0; i < report->node_count; i++)
        node_text(&report->nodes[i]);
}

/* ---- JSON ---- */

static void text_json(const char *name, const char *text, const char *after)
{
    printf("\"%s\":\"", name);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    printf("\"%s", after);
}

static void connection_json(const cqlring_connection_info *connection)
{
    printf("\"protocol_version\":%u,", connection->protocol_version);
    text_json("compression", connection->compression == CQLRING_COMPRESSION_LZ4 ? "lz4" : connection->compression == CQLRING_COMPRESSION_SNAPPY ? "snappy" : "none", ",");
    text_json("authenticator", connection->authenticator, ",");
    text_json("features", connection->features, ",");
    printf("\"shards\":%" PRId32 ",\"shard_aware_port\":%" PRId32 ",", connection->shard_count, connection->shard_aware_port);
    if (connection->tls_version[0] == '\0') {
        fputs("\"tls\":null,", stdout);
        return;
    }
    fputs("\"tls\":{", stdout);
    text_json("version", connection->tls_version, ",");
    text_json("cipher", connection->tls_cipher, ",");
    printf("\"resumed\":%s,", connection->tls_resumed ? "true" : "false");
    text_json("names", connection->certificate_names, ",");
    text_json("subject", connection->certificate_subject, ",");
    text_json("issuer", connection->certificate_issuer, ",");
    printf("\"valid_from\":%" PRId64 ",\"valid_until\":%" PRId64 "},", connection->certificate_from_s, connection->certificate_until_s);
}

void report_json(const struct report *report)
{
    putchar('{');
    text_json("status", cqlring_status_name(report->status), ",");
    text_json("reason", report->reason, ",");
    text_json("contact_points", report->contact_points, ",");
    text_json("control", report->control, ",");
    fputs("\"nodes\":[", stdout);
    for (uint32_t i = 0; i < report->node_count; i++) {
        const struct node_report *node = &report->nodes[i];
        char id[37];
        host_id_format(node->host_id, id);
        fputs(i > 0 ? ",\n{" : "\n{", stdout);
        text_json("address", node->address, ",");
        text_json("datacenter", node->datacenter, ",");
        text_json("rack", node->rack, ",");
        text_json("host_id", id, ",");
        text_json("release", node->release, ",");
        if (node->connected)
            connection_json(&node->connection);
        if (node->latency_count > 0)
            printf("\"latency_us\":{\"samples\":%u,\"min\":%u,\"median\":%u,\"max\":%u},", node->latency_count, node->latency_min_us, node->latency_median_us,
                   node->latency_max_us);
        text_json("status", cqlring_status_name(node->status), ",");
        text_json("reason", node->reason, "}");
    }
    fputs("]}\n", stdout);
}
