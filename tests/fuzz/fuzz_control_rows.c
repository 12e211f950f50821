/* SPDX-License-Identifier: Apache-2.0 */

/* What a server says in system.local, system.peers and system_schema.keyspaces, made into a topology. The input is three ROWS
   bodies, each behind its size as a big-endian u16. */

#include <assert.h>
#include <string.h>

#include "driver/control_rows.h"
#include "driver/failure.h"
#include "driver/node.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cqlring_result *rows_of(const uint8_t **data, size_t *size)
{
    if (*size < 2)
        return NULL;
    uint32_t length = (uint32_t)((*data)[0] << 8 | (*data)[1]);
    *data += 2;
    *size -= 2;
    if (length > *size)
        length = (uint32_t)*size;
    static const struct dialect dialect = {.version = PROTO_V5};
    cqlring_result *result = NULL;
    struct failure *failure = NULL;
    if (cqr_result_make(&dialect, NULL, (cqlring_bytes){*data, (int32_t)length}, RESULT_ROWS, NULL, NULL, &result, NULL, NULL, &failure) != CQLRING_OK)
        cqr_failure_free(&failure->error);
    *data += length;
    *size -= length;
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cqlring_result *local = rows_of(&data, &size), *peers = rows_of(&data, &size), *keyspaces = rows_of(&data, &size);
    if (local != NULL && peers != NULL && keyspaces != NULL) {
        static struct runtime_core runtime;
        struct cqlring_cluster cluster;
        memset(&cluster, 0, sizeof cluster);
        cluster.runtime = &runtime;
        cluster.port = 9042;
        pthread_mutex_init(&cluster.lock, NULL);
        struct address dialled;
        cqr_address_from_literal(&dialled, "127.0.0.1", 9042);
        struct topology *topology = NULL;
        char why[200];
        if (cqr_topology_read(&cluster, local, peers, keyspaces, peers, &dialled, "", &topology, why, sizeof why) == CQLRING_OK) {
            assert(topology->node_count >= 1 && topology->nodes[0]->index < topology->place_count);
            for (uint32_t i = 0; i < topology->keyspace_count && topology->ring_count > 0; i++) {
                struct replica_table table = {0};
                if (cqr_replica_table_init(&table, topology, &topology->keyspaces[i]) != CQLRING_OK)
                    continue;
                uint32_t count = 0;
                const uint16_t *replicas = cqr_replicas_of(&table, (int64_t)i << 60, &count);
                for (uint32_t j = 0; j < count; j++)
                    assert(replicas[j] < topology->place_count);
                cqr_replica_table_fini(&table);
            }
            cqr_topology_release(topology);
        }
        cqr_nodes_free(&cluster);
        pthread_mutex_destroy(&cluster.lock);
    }
    cqlring_result_release(local);
    cqlring_result_release(peers);
    cqlring_result_release(keyspaces);
    return 0;
}
