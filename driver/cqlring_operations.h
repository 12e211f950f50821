/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_OPERATIONS_H
#define CQLRING_OPERATIONS_H

/* What an operator asks of a running program: which connections there are and what was agreed on them. cqlring.h includes it;
   the same conventions hold. All of it may be called from any thread, callbacks included, at any time of a handle's life: before
   the first connection and after the close the answer is empty, not an error. Nothing here touches the data path. */

#include "cqlring.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* One open connection: where it goes and what was agreed on it. Texts are cut at their arrays' ends, at a character. */
typedef struct cqlring_connection_info {
    const cqlring_node *node;      /* NULL: a control connection to a node that the topology does not have (yet) */
    char address[64];              /* "10.0.0.3:9042": what was dialled */
    char keyspace[64];
    uint32_t lane;
    int32_t shard, shard_count;    /* of the node (ScyllaDB); −1 and 0: it has none */
    int32_t shard_aware_port;      /* 0: none, or none for this kind of connection (TLS or not) */
    uint8_t is_control;
    uint8_t protocol_version;
    uint8_t compression;           /* cqlring_compression in use: NONE also when the server lacks what was asked for */
    char authenticator[128];       /* class that the server named; "" when it asked for nothing */
    char features[128];            /* protocol extensions in use, comma separated: "LWT_MARK, TABLETS_V1"; "" none */
    char tls_version[16];          /* "TLS 1.3"; "" without TLS, and so all that follows */
    char tls_cipher[48];
    uint8_t tls_resumed;           /* 1: the handshake was shortened by an earlier connection's ticket */
    char certificate_names[256];   /* what the node's certificate is for: "a.example, 10.0.0.3" */
    char certificate_subject[128], certificate_issuer[128];
    int64_t certificate_from_s, certificate_until_s; /* its validity, seconds since 1970 */
    int64_t up_since_us;           /* CLOCK_MONOTONIC */
} cqlring_connection_info;

/* The open connections of a cluster on all lanes, at most capacity, oldest first; returns how many there are. */
CQLRING_API uint32_t cqlring_cluster_connections(const cqlring_cluster *cluster, cqlring_connection_info *connections, uint32_t capacity);

#ifdef __cplusplus
}
#endif

#endif
