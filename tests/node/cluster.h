/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_CLUSTER_H
#define NODE_CLUSTER_H

/* What lies behind node.h's handles: the cluster with its lock, connections, counters and faults.
   Whoever touches any of it holds cluster->lock; functions here and in the files below expect it
   held, functions of node.h take it. */

#include <pthread.h>

#include "serialize/compress.h"
#include "tests/node/engine.h"
#include "tests/node/memory.h"
#include "tests/node/node.h"

struct node_server;

struct fault {
    struct fault *next;
    uint32_t number;
    struct node_fault plan;
    char *table, *message, *write_type; /* owned */
    uint64_t matched, hits;
};

struct node_line {
    struct node_service service;
    int64_t *free_us; /* when each server is free again; NULL: nothing takes time */
    int64_t *begins_us; /* of those in line, a ring */
    uint32_t head, waiting, capacity;
};

/* What was taken of the partitions of one table. */
struct node_partition_limit {
    char table[100]; /* "keyspace.table" */
    uint32_t statements, window_us;
    struct taken {
        int64_t token, since_us;
        uint32_t count;
    } *taken; /* by token, a table of a power of two; NULL: no limit */
    uint32_t taken_count, capacity;
};

struct node_state {
    struct node_counters counters;
    struct node_seen *seen; /* the last request by opcode; [31]: of unknown ones */
    bool *seen_any;
    int64_t frozen_until; /* INT64_MIN: not frozen; INT64_MAX: until thawed */
    bool silent;
    uint32_t delay_us, jitter_us;
    uint32_t next_shard;
    struct node_line line;
};

struct pending_event {
    struct pending_event *next;
    uint32_t size;
    uint8_t body[];
};

struct node_cluster {
    pthread_mutex_t lock;
    pthread_cond_t moved;        /* after each turn that moved bytes */
    struct node_options options; /* strings in arena */
    struct node_arena arena;
    struct node_engine engine;
    struct node_state *nodes;
    struct node_conn *conns, *conns_last;
    uint32_t conn_count, conn_number;
    uint64_t seen_number;
    struct fault *faults;
    uint32_t fault_number;
    uint32_t
        refusing; /* faults of kind REFUSE: the server looks at its listeners when it changes */
    struct pending_event *events, **events_tail;
    struct startup_option {
        char key[48];
        char value[1280];
    } last_startup[16];
    uint32_t last_startup_count;
    uint64_t random;
    struct node_partition_limit limit;
    int64_t now_us;        /* the latest time anybody told */
    bool poked;            /* output or states changed outside the server's own turn */
    cqlring_bytes *values; /* scratch: bound values of one request */
    uint8_t *scratch;      /* scratch: one decompressed body or segment */
    size_t scratch_size;
    struct compress_state *compressor;
    struct node_server *server;
};

enum { VALUES_MAX = 65536, SEEN_COUNT = 32, OPCODE_OTHER = 31 };

enum conn_state { CONN_AWAIT_STARTUP, CONN_AWAIT_AUTH, CONN_READY };

enum { EVENT_TOPOLOGY = 1, EVENT_STATUS = 2, EVENT_SCHEMA = 4, EVENT_ROUTES = 8 };

/* A reply held back. */
struct held {
    int64_t due;
    uint64_t number; /* order among equals */
    uint32_t size;
    uint8_t *envelope;
};

/* What the fault plan does to the request in hand. */
struct strike {
    const struct fault *fault; /* NULL: nothing */
    const struct fault *payload, *warnings, *tracing, *event, *late;
    int64_t service_us; /* of the node's line */
};

struct node_conn {
    struct node_conn *next, *previous;
    struct node_cluster *cluster;
    uint32_t node, number, shard;
    enum conn_state state;
    struct dialect dialect; /* version 0 until the first envelope */
    bool lz4;
    enum compression packs; /* of v4 bodies */
    bool framed_in, framed_out;
    bool closing; /* no more input is looked at; close when the output is gone */
    bool closed;  /* close at once */
    bool silent;  /* accepted, never answered */
    bool input_paused;
    uint32_t registered;
    uint32_t auth_round;
    char keyspace[49];
    char user[64];
    char server_name[64]; /* TLS: the name the client asked for */
    struct out in;        /* the torn end of what came */
    size_t skip;          /* bytes of a refused envelope still to come */
    struct out assembly;  /* v5: slices of a large envelope */
    struct out reply;     /* the envelope being made */
    struct out pack;      /* envelopes not yet framed */
    uint32_t pack_count;
    struct out wire; /* framed bytes, from wire_at on unsent */
    size_t wire_at;
    size_t *marks; /* ends of writes of their own, as positions in wire */
    uint32_t mark_first, mark_count, mark_capacity;
    struct held *held; /* heap by due time */
    uint32_t held_count, held_capacity;
    size_t held_bytes;
    uint64_t held_number;
    enum node_fault_kind flip; /* of the next segment */
    bool flip_pending;
    struct node_arena arena; /* of one request */
    uint64_t requests, replies, bytes_in, bytes_out;
    struct startup_option options[16];
    uint32_t option_count;
    void *owner; /* the server's socket */
};

static inline void cluster_lock(struct node_cluster *cluster)
{
    (void)pthread_mutex_lock(&cluster->lock);
}
static inline void cluster_unlock(struct node_cluster *cluster)
{
    (void)pthread_mutex_unlock(&cluster->lock);
}
static inline int64_t cluster_wall(const struct node_cluster *cluster)
{
    return cluster->options.epoch_us + cluster->now_us;
}
/* Counters of the connection's node. */
static inline struct node_counters *conn_counters(const struct node_conn *conn)
{
    return &conn->cluster->nodes[conn->node].counters;
}

/* conn.c: bytes to envelopes and back. */
void node_conn_deliver(struct node_conn *conn,
                       const struct strike *strike); /* conn->reply, a whole envelope */
void node_conn_flush(struct node_conn *conn, bool own_write);
void node_conn_push(struct node_conn *conn, const void *envelope,
                    size_t size); /* past faults and delays */
struct node_conn *node_conn_open_locked(struct node_cluster *cluster, uint32_t node,
                                        uint32_t shard);
void node_conn_input_locked(struct node_conn *conn, const uint8_t *data, size_t size);
void node_conn_turn_locked(struct node_conn *conn);
void node_conn_close_locked(struct node_conn *conn);
cqlring_bytes node_conn_output_locked(struct node_conn *conn);
void node_conn_consumed_locked(struct node_conn *conn, uint32_t size);
bool node_conn_is_paused_locked(const struct node_conn *conn);

/* handle.c: one request to one reply. body is decompressed. */
void node_handle(struct node_conn *conn, uint8_t flags, int16_t stream, uint8_t opcode,
                 cqlring_bytes body, bool compressed);
void node_refuse_version(struct node_conn *conn, uint8_t version);
size_t node_reply_begin(struct node_conn *conn, uint8_t opcode, uint8_t flags,
                        int16_t stream); /* into conn->reply */
void node_reply_end(struct node_conn *conn);
void node_reply_error(struct node_conn *conn, int16_t stream, int32_t code, const char *message);

/* events.c */
void node_events_init(struct node_cluster *cluster);
void node_events_send(struct node_cluster *cluster); /* the pending ones of schema changes */
void node_event_to(struct node_cluster *cluster, uint32_t node, uint32_t kind, const void *body,
                   size_t size);

/* faults.c */
struct node_seen;
struct strike node_fault_pick(struct node_conn *conn, const struct node_seen *seen,
                              const struct statement *statement);
const struct fault *node_fault_accept(struct node_cluster *cluster, uint32_t node,
                                      enum node_fault_kind kind);
bool node_fault_refuses(const struct node_cluster *cluster, uint32_t node);
void node_put_error(struct out *out, const struct dialect *dialect, const struct node_fault *plan,
                    uint16_t consistency, cqlring_bytes id);
void node_faults_free(struct node_cluster *cluster);

/* service.c: how long a statement that has come now takes, its wait included; false: the line is full. */
bool node_line_take(struct node_cluster *cluster, uint32_t node, int64_t *took_us);
void node_line_fini(struct node_line *line);
/* May one more statement of this partition be taken now? */
bool node_limit_take(struct node_cluster *cluster, const struct node_table *table, int64_t token);

/* server.c */
struct node_server *node_server_start(struct node_cluster *cluster, char *message,
                                      size_t message_size);
bool node_server_tls(struct node_server *server, const char *cert, const char *key,
                     const char *client_ca, char *message, size_t message_size);
void node_server_stop(struct node_server *server);
void node_server_wake(struct node_server *server);

#endif
