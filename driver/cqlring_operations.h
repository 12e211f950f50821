/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_OPERATIONS_H
#define CQLRING_OPERATIONS_H

/* What an operator asks of a running program: which connections there are, what was agreed on them, and what was counted.
   cqlring.h includes it; the same conventions hold. All of it may be called from any thread, callbacks included, at any time of a handle's life: before
   the first connection and after the close there is nothing to tell, which is no error. Nothing here touches the data path. */

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

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* What was counted of one node (or shard of it) by one lane. Counters go on over reconnections, also to another address.
   One writer each, read relaxed: each is exact, together they are a snapshot; a turn's answers are added at its
   end. The whole runtime's are in cqlring_stats: speculative, speculative_won, shard_fallbacks, orphans
   (orphaned here) and late_replies are the sums of these over all nodes there ever were; of wakes_submitter the control connections
   have some, and connections that are just being made. */
typedef struct cqlring_node_stats {
    const cqlring_node *node;
    uint32_t lane;
    int32_t shard;                 /* −1: the node has none */
    uint32_t connections;          /* open now */
    uint32_t in_flight;            /* sent and not answered */
    uint32_t orphans;              /* timed out, the answer may still come: the stream is taken until then */
    uint64_t queued_bytes;         /* waiting for room in the socket */
    uint64_t requests;             /* sent, every attempt, heartbeats among them */
    uint64_t replies;
    uint64_t sends, send_bytes;    /* requests / sends is how well batches form */
    uint64_t recvs, recv_bytes;
    uint64_t retries;              /* attempts on it after which another one was made, there or elsewhere */
    uint64_t errors[16];           /* attempts that failed, by cqlring_status */
    uint64_t latency_sum_us;       /* of all replies: from the attempt's send to its answer, as the submitter saw both */
    uint32_t latency_max_us;
    uint32_t latency_p50_us, latency_p95_us, latency_p99_us; /* since the beginning; each at most an eighth too large */
    uint32_t window;               /* now: what jobs without a window of their own may have under way, the sum over the connections */
    uint64_t speculative, speculative_won; /* further attempts sent to it; of them, those that decided their request well */
    uint64_t shard_fallbacks;      /* requests of this shard that took another shard's connection */
    uint64_t orphaned, late_replies; /* requests that timed out while their answer could still come; those answers that came */
    uint64_t wakes;                /* of wakes_submitter: answers of this node that found the submitter asleep */
} cqlring_node_stats;

/* Of the nodes that are in the topology now; at most capacity, returns how many there are. Nodes to which nothing was ever
   connected have none. */
CQLRING_API uint32_t cqlring_cluster_stats(const cqlring_cluster *cluster, cqlring_node_stats *stats, uint32_t capacity);

/* All of it, of every lane and node of every cluster of a runtime, as OpenMetrics text, which Prometheus reads
   (application/openmetrics-text; version=1.0.0). Written like snprintf: at most size bytes with the NUL; returns the length that
   the whole text has, so a larger or equal size asks for another call. Labels: cluster counts the runtime's clusters from 1, as
   they were opened; contact is the first contact point. runtime NULL: the process default. */
CQLRING_API size_t cqlring_metrics_text(const cqlring_runtime *runtime, char *buffer, size_t size);

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* The options in force of a cluster, its runtime and its open sessions, defaults filled in: lines "cluster.heartbeat_us = 30000000".
   Secrets are "(set)". For people: lines may come and go. Written and returned as in cqlring_metrics_text. */
CQLRING_API size_t cqlring_cluster_options_text(const cqlring_cluster *cluster, char *buffer, size_t size);

/* ---- changes while it runs --------------------------------------------------------------------------------------- */

/* Certificates, key and CAs are read again: tls NULL: from the files given before; else these options, all of them, in place of
   the old ones. Connections from now on use them, those that are open stay as they are. When something cannot be used nothing
   is changed. INVALID when the cluster was opened without TLS, and from a callback: files are read here. */
CQLRING_API cqlring_status cqlring_cluster_reload_tls(cqlring_cluster *cluster, const cqlring_tls_options *tls, cqlring_error *error);

#ifdef __cplusplus
}
#endif

#endif
