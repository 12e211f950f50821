/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/record.h"

#include <stdio.h>
#include <string.h>

#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/session.h"

static void features_put(char *text, size_t size, uint8_t extensions)
{
    static const struct {
        uint8_t bit;
        const char *name;
    } names[] = {{EXT_METADATA_ID, "METADATA_ID"}, {EXT_TABLETS_V1, "TABLETS_V1"}, {EXT_TABLETS_V2, "TABLETS_V2"},
                 {EXT_LWT_MARK, "LWT_MARK"},       {EXT_RATE_LIMIT, "RATE_LIMIT"}, {EXT_FAILURE_MAP, "FAILURE_MAP"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = strlen(text);
        if ((extensions & names[i].bit) != 0)
            snprintf(text + length, size - length, "%s%s", length > 0 ? ", " : "", names[i].name);
    }
}

void cqr_record_open(struct conn *conn)
{
    struct conn_record *record = cqr_mem_zalloc(sizeof *record);
    if (record == NULL)
        return;
    record->address = conn->address;
    cqlring_connection_info *info = &record->info;
    info->node = conn->node;
    snprintf(info->address, sizeof info->address, "%s", conn->text);
    snprintf(info->keyspace, sizeof info->keyspace, "%s", conn->keyspace);
    info->lane = conn->lane->index;
    info->shard = conn->shard.shard_count > 0 ? conn->shard.shard : -1;
    info->shard_count = conn->shard.shard_count;
    info->shard_aware_port = conn->tls != NULL ? conn->shard.shard_aware_port_tls : conn->shard.shard_aware_port;
    info->is_control = conn->home != NULL && conn->home->pool == NULL;
    info->protocol_version = conn->dialect.version;
    info->compression = (uint8_t)conn->compression;
    snprintf(info->authenticator, sizeof info->authenticator, "%s", conn->authenticator);
    features_put(info->features, sizeof info->features, conn->dialect.extensions);
    info->up_since_us = conn->lane->now_us;
    const struct tls_facts *tls = cqr_transport_tls_facts(&conn->transport);
    if (tls != NULL) {
        snprintf(info->tls_version, sizeof info->tls_version, "%s", tls->version);
        snprintf(info->tls_cipher, sizeof info->tls_cipher, "%s", tls->cipher);
        snprintf(info->certificate_names, sizeof info->certificate_names, "%s", tls->names);
        snprintf(info->certificate_subject, sizeof info->certificate_subject, "%s", tls->subject);
        snprintf(info->certificate_issuer, sizeof info->certificate_issuer, "%s", tls->issuer);
        info->certificate_from_s = tls->from_s;
        info->certificate_until_s = tls->until_s;
        info->tls_resumed = tls->resumed;
    }
    struct cqlring_cluster *cluster = conn->cluster;
    pthread_mutex_lock(&cluster->lock);
    struct conn_record **last = &cluster->records;
    while (*last != NULL)
        last = &(*last)->next;
    record->link = last;
    *last = record;
    pthread_mutex_unlock(&cluster->lock);
    conn->record = record;
}

void cqr_record_close(struct conn *conn)
{
    struct conn_record *record = conn->record;
    if (record == NULL)
        return;
    conn->record = NULL;
    pthread_mutex_lock(&conn->cluster->lock);
    *record->link = record->next;
    if (record->next != NULL)
        record->next->link = record->link;
    pthread_mutex_unlock(&conn->cluster->lock);
    cqr_mem_free(record);
}

uint32_t cqlring_cluster_connections(const cqlring_cluster *handle, cqlring_connection_info *connections, uint32_t capacity)
{
    struct cqlring_cluster *cluster = (struct cqlring_cluster *)(uintptr_t)handle;
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return 0;
    uint32_t count = 0;
    pthread_mutex_lock(&cluster->lock);
    const struct topology *topology = cluster->topology;
    for (const struct conn_record *record = cluster->records; record != NULL; record = record->next, count++) {
        if (count >= capacity)
            continue;
        connections[count] = record->info;
        for (uint32_t i = 0; connections[count].node == NULL && i < topology->node_count; i++)
            if (cqr_address_equal(&cqr_node_place(topology->nodes[i])->address, &record->address))
                connections[count].node = topology->nodes[i];
    }
    pthread_mutex_unlock(&cluster->lock);
    return count;
}
