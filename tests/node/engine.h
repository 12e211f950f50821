/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_ENGINE_H
#define NODE_ENGINE_H

/* The cluster as data: catalogue, storage, token ring, and CQL run against them. No socket, no
   clock: time comes with each query. One for all nodes of a cluster, so a row is stored once
   whichever node coordinates. Not thread-safe: its owner (cluster.h) brings the lock. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/proto.h"
#include "cql/request.h"
#include "cql/ring_map.h"
#include "tests/node/ast.h"
#include "tests/node/node.h"
#include "tests/node/storage.h"
#include "tests/node/types.h"

/* --- catalogue -------------------------------------------------------------------------------- */

enum column_kind { COLUMN_PARTITION, COLUMN_CLUSTERING, COLUMN_STATIC, COLUMN_REGULAR };

struct node_column {
    struct node_column
        *next; /* in the table's order: partition key, clustering key, statics, regulars by name */
    cqlring_bytes name;
    const struct node_type *type;
    enum column_kind kind;
    uint16_t position; /* in its key; slot of statics and regulars */
    bool reversed;
    bool indexed;
};

struct node_index {
    struct node_index *next;
    cqlring_bytes name, column, class_name;
    cqlring_bytes target;  /* as CQL: v, values("V") */
    cqlring_bytes options; /* of WITH OPTIONS: ", 'a': 'b'" */
};

/* Or aggregate. Types are texts; nobody calls it. */
struct node_function {
    struct node_function *next;
    struct node_arena arena;
    cqlring_bytes name;
    bool is_aggregate, called_on_null;
    uint16_t argument_count;
    cqlring_bytes *argument_names, *argument_types;
    cqlring_bytes return_type, language, body, state_function, state_type, final_function, initial;
};

enum { TABLE_OPTIONS = 20 };

struct node_table {
    struct node_table *next;
    struct node_keyspace *keyspace;
    cqlring_bytes name;
    uint8_t id[16];
    struct node_arena arena; /* this, names, types, columns */
    struct node_column *columns;
    uint16_t column_count, partition_count;
    struct node_column **partition_key, **clustering_key;
    struct node_shape shape;
    struct node_storage storage;
    struct node_storage *local; /* system.local, peers …: one storage per node instead */
    struct node_index *indexes;
    bool is_counter;
    bool is_system;
    int32_t default_ttl;
    int32_t gc_grace_seconds;
    cqlring_bytes options[TABLE_OPTIONS]; /* literals; size 0: not given. table_options.c */
    bool is_view, includes_all;           /* a materialized view: it has no rows */
    cqlring_bytes base, where;
    uint8_t base_id[16];
};

struct node_keyspace {
    struct node_keyspace *next;
    cqlring_bytes name;
    struct node_arena arena; /* this and its names */
    struct node_table *tables;
    struct node_udt *types;
    struct node_function *functions;
    bool durable_writes, is_system, is_virtual;
    bool tablets;           /* as ScyllaDB: routed by tablets, never by the ring */
    cqlring_bytes strategy; /* full class name */
    uint16_t option_count;
    cqlring_bytes *option_names, *option_values; /* without class */
    struct replication replication;
    /* Replicas by ring entry, made when first asked for; dropped when ring or replication change. */
    uint32_t *replicas; /* [ring_count × factor_max] */
    uint32_t factor_max;
    bool *replicas_known;
    uint32_t *replica_counts;
};

/* --- prepared statements ---------------------------------------------------------------------- */

struct node_prepared {
    struct node_prepared *next; /* of the hash bucket */
    struct node_prepared *older, *newer;
    uint8_t id[16];
    uint8_t metadata_id[16];
    uint64_t nodes; /* bit per node that knows it */
    struct node_arena arena;
    cqlring_bytes text, keyspace;
    struct statement *statement;
    uint16_t pk_count;
    const uint16_t *pk_indexes;
    bool is_write; /* what void mode does not execute */
};

/* --- the nodes -------------------------------------------------------------------------------- */

enum { NODE_SHARD_PORT = 19042 };

struct node_member {
    char address[48];
    uint8_t inet[16];
    uint8_t inet_size;
    uint16_t port;
    uint16_t shard_port; /* with shards: the source port chooses */
    uint8_t shard_port_is; /* enum node_shard_port */
    uint32_t shards;
    char dc[49], rack[49];
    uint8_t host_id[16];
    struct ring_node place;
    bool up;
    bool member; /* in the ring */
    bool hidden; /* missing from the others' peers */
    char stale_address[48]; /* peers show it here, too; "" */
    uint8_t lag; /* enum node_lag: which schema_version it names */
    uint8_t schema_version[16]; /* NODE_LAG_BEHIND: the old one */
    uint32_t token_count;
    int64_t *tokens;
};

struct node_engine {
    const struct node_options *options;
    struct node_member members[NODE_COUNT_MAX];
    uint32_t member_count;
    uint32_t tablet_bits, tablet_move; /* how many tablets a table has, and where they have gone */
    uint32_t down_count;
    struct ring_entry *ring;
    uint32_t ring_count;
    const char *dc_names[NODE_COUNT_MAX]; /* interned: index is ring_node.dc */
    uint16_t dc_count;

    struct node_keyspace *keyspaces;
    uint8_t schema_version[16];
    uint64_t schema_changes;
    uint64_t bytes; /* stored, all tables */
    struct node_table *system_local, *system_peers, *system_peers_v2;
    bool system_shown;  /* the system keyspaces stand in system_schema: from the first look at it */
    bool bootstrapping; /* system tables may be created and written */

    struct node_prepared *prepared_buckets[1024];
    struct node_prepared *prepared_newest, *prepared_oldest;
    uint32_t prepared_count;

    uint64_t random;
    int64_t last_timestamp;
    uint64_t last_timeuuid;
    uint64_t rows_read, rows_written;

    /* Called for each change of the schema with the body of its event (after the event's type). */
    void (*on_schema)(void *context, cqlring_bytes change);
    void *context;
};

void node_engine_init(struct node_engine *engine, const struct node_options *options,
                      int64_t now_us);
void node_engine_fini(struct node_engine *engine);
/* Members, ring and the system tables that show them; after each change of members. */
void node_engine_ring_changed(struct node_engine *engine, int64_t now_us);
uint32_t node_engine_replicas(struct node_engine *engine, struct node_keyspace *keyspace,
                              int64_t token, const uint32_t **nodes);

struct node_keyspace *node_keyspace_find(const struct node_engine *engine, cqlring_bytes name);
struct node_table *node_table_find(const struct node_keyspace *keyspace, cqlring_bytes name);
struct node_column *node_column_find(const struct node_table *table, cqlring_bytes name);
struct node_udt *node_udt_find(const struct node_keyspace *keyspace, cqlring_bytes name);

/* --- running CQL ------------------------------------------------------------------------------ */

/* One statement on its way. The caller fills the first part; a failure leaves code and message. */
struct query {
    struct node_engine *engine;
    uint32_t coordinator;
    int64_t now_us;         /* wall clock */
    uint8_t version;        /* protocol version of the answer */
    uint8_t type_version;   /* whose type options are sent: ScyllaDB sends all as themselves */
    cqlring_bytes keyspace; /* of the session or request; size 0: none */
    const struct query_params *params;
    const cqlring_bytes *values; /* by bind index; CQLRING_NULL, CQLRING_UNSET */
    uint16_t value_count;
    struct node_arena *arena; /* scratch, reset by the caller afterwards */
    struct out *body;         /* the RESULT's body */
    bool void_mode;
    bool with_metadata_id;     /* the dialect has it */
    cqlring_bytes metadata_id; /* EXECUTE: what the client holds; data NULL: not an EXECUTE */
    const struct node_prepared *prepared;

    int32_t code; /* failure: the server's error code; -1: none */
    char message[512];
    cqlring_bytes error_keyspace, error_table; /* ALREADY_EXISTS; in the arena */
    int32_t required, alive;                   /* UNAVAILABLE */
    uint32_t rows;                             /* of the answer */
    bool applied;                              /* conditional: took effect */
    bool use_keyspace;                         /* USE: keyspace holds the new one */
    bool has_token;                            /* the statement's single key is known */
    int64_t token;
    const struct node_table *token_table;
    struct rows_fault {        /* what the fault plan wants of a ROWS answer */
        uint32_t page_extra;   /* rows more than asked */
        uint16_t extra_column; /* id of its type; 0: none */
        bool empty_page, no_rows, bad_cell, changed, changed_bare;
    } fault;
};

bool node_query_fail(struct query *query, int32_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void node_put_void(struct out *out); /* RESULT VOID's body */
/* Names to columns, bind markers to types; plans. The tree and all of its plan live in `arena`. */
bool node_resolve(struct query *query, struct statement *statement, struct node_arena *arena);
/* Runs a resolved statement; writes the whole RESULT body. */
bool node_run(struct query *query, struct statement *statement);
/* Text to answer. */
bool node_run_text(struct query *query, cqlring_bytes text);
/* Text to a resolved statement in the arena. NULL: failed. */
struct statement *node_understand(struct query *query, cqlring_bytes text,
                                  struct node_arena *arena);
/* Void mode: `rows` rows of made-up cells instead of what is stored. */
bool node_run_made_up(struct query *query, struct statement *statement, uint32_t rows,
                      uint32_t cell_size);
/* BATCH of the protocol. children: resolved roots with their own values. */
struct batch_part {
    struct statement *statement;
    const cqlring_bytes *values;
    uint16_t value_count;
};
bool node_run_batch(struct query *query, uint8_t kind, struct batch_part *parts, uint32_t count);
/* The token of a statement's key, if it is a single known one. A text batch has its first child's. */
bool node_statement_token(const struct statement *statement, const cqlring_bytes *values,
                          uint16_t value_count, int64_t *token, const struct node_table **table);
/* The key of a statement with these values, if it is a single known one: fills has_token, token,
   token_table. */
void node_find_token(struct query *query, const struct statement *statement);

/* PREPARE: finds or makes; marks it known to the coordinator. NULL: failed. */
struct node_prepared *node_prepare(struct query *query, cqlring_bytes text);
struct node_prepared *node_prepared_find(struct node_engine *engine, cqlring_bytes id);
void node_prepared_forget(struct node_engine *engine, uint32_t node,
                          struct node_prepared *prepared); /* NULL: all; NODE_ALL: everywhere */
/* Statements that use this table or (table NULL) keyspace are forgotten. */
void node_prepared_invalidate(struct node_engine *engine, const struct node_keyspace *keyspace,
                              const struct node_table *table);
/* The body of RESULT PREPARED, without the kind. */
void node_prepared_encode(const struct node_prepared *prepared, const struct dialect *dialect,
                          uint8_t type_version, uint16_t extra_column, struct out *out);

/* A row of system.client_routes; address NULL: none of these keys. */
void node_system_write_route(struct node_engine *engine, const char *connection_id,
                             const uint8_t host_id[16], const char *address, int32_t port,
                             int32_t tls_port, int64_t now_us);

#endif
