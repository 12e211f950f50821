/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_H
#define NODE_H

/* A small, real CQL server in memory, for tests, the demo and the load tool: several nodes of one cluster in one
   process, protocol v4 and v5, system tables, schema, storage by token, prepared statements, paging, batches,
   conditional updates; and a plan of faults that plays every way in which a server can go wrong.

   Three layers, each usable alone:
   - the cluster (catalogue, storage, ring, CQL) is plain code without socket or clock: node_cluster_create;
   - a connection is a protocol machine, bytes and time in, bytes out: node_conn_open, …; the simulator drives these;
   - the server puts them on sockets, on one thread of its own: node_cluster_start.

   Threads: a started cluster runs on its own thread. Everything declared here except node_conn_* may be called from any
   thread; one lock per cluster guards it. node_conn_* belong to whoever drives an unstarted cluster, from one thread.
   A cluster never uses the allocator of serialize/mem.h, so failing or counting allocations there tells about the
   library alone; when the process is out of memory the node aborts.

   Nodes are named by their index, from 0. Times are microseconds of any clock that does not go back. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/proto.h"
#include "serialize/cqlring_types.h"

#define NODE_ALL UINT32_MAX /* in place of a node's index */
enum { NODE_COUNT_MAX = 64 };

struct node_cluster;
struct node_conn;

/* --- Options ---------------------------------------------------------------------------------- */

enum node_mode {
    NODE_STORE = 0, /* everything is real */
    NODE_VOID =
        1 /* EXECUTE, QUERY and BATCH of INSERT, UPDATE, DELETE answer VOID and store nothing; the rest is real */
};

/* How an unknown protocol version is refused. */
enum node_refusal {
    NODE_REFUSE_CASSANDRA_5 =
        0, /* header version: the server's highest; list of versions in the text */
    NODE_REFUSE_CASSANDRA_4 = 1, /* the same, with 6/v6-beta in the list */
    NODE_REFUSE_CASSANDRA_3 =
        2, /* header version: the server's highest, which is 5/v5-beta; real maximum 4 */
    NODE_REFUSE_CASSANDRA_2 = 3, /* "the lowest supported version is 3 and the greatest is 4" */
    NODE_REFUSE_SCYLLA = 4,
    NODE_REFUSE_BETA =
        5, /* "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset" */
    NODE_REFUSE_CLOSE = 6 /* close without a word */
};

struct node_seen;

/* Zero is the default everywhere. Strings are copied. */
struct node_options {
    uint32_t nodes;              /* 1 */
    const char *address;         /* "127.0.0.1"; node i listens on the address + i */
    uint16_t port;               /* 0: a free one, the same for all nodes */
    bool ports_differ;           /* all nodes on one address, on consecutive ports */
    const char *const *dcs;      /* per node; NULL: all "datacenter1" */
    const char *const *racks;    /* per node; NULL: all "rack1" */
    uint32_t vnodes;             /* tokens per node; 16 */
    uint64_t seed;               /* tokens, host ids, delays, faults of chance */
    const char *cluster_name;    /* "cqlring node" */
    const char *release_version; /* "5.0.6" */

    const char *user; /* PasswordAuthenticator with this user and password; NULL: nobody is asked */
    const char *password;
    const char
        *authenticator;   /* name sent in AUTHENTICATE; default PasswordAuthenticator's class */
    uint32_t auth_rounds; /* AUTH_CHALLENGEs before the answer is judged; 0 */

    const char *tls_cert; /* PEM files; NULL: plain text */
    const char *tls_key;
    const char *tls_client_ca; /* demands a client certificate signed by it */

    uint8_t version_max; /* 5; 4 refuses v5 */
    uint8_t version_min; /* 3; 5 refuses v4 */
    enum node_refusal refusal;
    bool no_lz4;        /* COMPRESSION lists nothing */
    bool snappy_listed; /* COMPRESSION also lists snappy (which is then refused) */

    enum node_mode mode;
    uint32_t trickle;  /* a write of its own after every k replies; 0: one write per read */
    uint32_t delay_us; /* each reply is held back delay ± jitter, so they overtake one another */
    uint32_t jitter_us;
    uint32_t void_rows; /* void mode: SELECT of user tables answers so many rows … */
    uint32_t
        void_cell_size; /* … of cells of this size (default 16; fixed-size types keep theirs) */

    uint32_t
        shards;   /* > 0: speaks of itself as ScyllaDB does (SCYLLA_* in SUPPORTED, no peers_v2) */
    bool tablets; /* with shards: new keyspaces are tablet-based; routing payloads are sent */

    uint32_t connections_max;    /* 4096 per cluster; further ones are closed at once */
    uint32_t frame_size_max;     /* 16 MiB: larger requests are refused with 0x2200 */
    uint32_t statement_size_max; /* 1 MiB of CQL text */
    uint32_t prepared_max;       /* 16384 statements, the oldest make room */
    uint32_t
        output_max; /* 64 MiB of unread replies on one connection: reading it stops until they are taken */
    uint64_t storage_max; /* 4 GiB of stored bytes; writes beyond are refused with 0x1001 */

    int64_t epoch_us; /* wall clock at time 0; node_cluster_start sets it from the real one */
    void (*on_request)(const struct node_seen *seen,
                       void *context); /* each request, under the lock: call nothing back */
    void *context;
};

/* --- A cluster -------------------------------------------------------------------------------- */

/* Without sockets. message (may be NULL) tells why NULL was returned. */
struct node_cluster *node_cluster_create(const struct node_options *options, char *message,
                                         size_t message_size);

/* create + listen + thread. Accepting when it returns. */
struct node_cluster *node_cluster_start(const struct node_options *options, char *message,
                                        size_t message_size);

/* Ends the thread if there is one (joined), closes every connection, frees everything. NULL is fine. */
void node_cluster_stop(struct node_cluster *cluster);

uint32_t node_count(const struct node_cluster *cluster);
uint16_t node_port(const struct node_cluster *cluster, uint32_t node);
const char *node_address(const struct node_cluster *cluster,
                         uint32_t node); /* "127.0.0.2"; valid with the cluster */

/* --- Asking it without a connection ----------------------------------------------------------- */

/* Runs one statement as coordinator node 0, without values or paging. A failure leaves the server's code (0 = fine) and
   the text in message. rows (may be NULL) gets the number of rows of the answer. */
int32_t node_cql(struct node_cluster *cluster, const char *cql, uint32_t *rows, char *message,
                 size_t message_size);
/* Live rows of "keyspace.table"; -1 when there is no such table. */
int64_t node_table_rows(struct node_cluster *cluster, const char *table);
/* The nodes that own this key under the keyspace's replication, primary first. Returns how many were stored. */
uint32_t node_replicas(struct node_cluster *cluster, const char *keyspace, int64_t token,
                       uint32_t *nodes, uint32_t capacity);

/* --- What was seen ---------------------------------------------------------------------------- */

struct node_counters {
    uint64_t connections; /* opened so far */
    uint64_t connections_open;
    uint64_t ready;       /* connections that got READY or AUTH_SUCCESS */
    uint64_t refused;     /* versions refused, bad credentials, sockets over the limit */
    uint64_t requests;    /* all opcodes */
    uint64_t opcodes[32]; /* by opcode; [31]: the unknown ones */
    uint64_t replies;     /* sent, events not counted */
    uint64_t errors;      /* ERROR replies among them */
    uint64_t events;      /* sent */
    uint64_t bytes_in, bytes_out;
    uint64_t reads,
        writes; /* recv and send calls that moved bytes (simulator: inputs and chunks) */
    uint64_t batch_statements; /* children of BATCHes */
    uint64_t replica_hits;     /* requests with a known key that came to a replica of it … */
    uint64_t replica_misses;   /* … and to another node */
    uint64_t keyless;          /* EXECUTE, QUERY, BATCH without a single known key */
    uint64_t rows_written, rows_read;
    uint64_t unprepared;    /* UNPREPARED answers, faults included */
    uint64_t faults;        /* faults that struck */
    uint64_t segments_in;   /* v5 */
    uint64_t compressed_in; /* v4 bodies and v5 segments that came compressed */
    uint64_t prepared;      /* statements prepared at present */
};
void node_counters(struct node_cluster *cluster, uint32_t node,
                   struct node_counters *out); /* node or NODE_ALL: the sum */
void node_counters_reset(struct node_cluster *cluster);

/* One request as it came. Fixed size, so it can be kept. */
struct node_seen {
    uint64_t number; /* counts the requests of the cluster, from 1 */
    uint32_t node;
    uint32_t conn; /* number of the connection, from 1, never reused */
    uint8_t version;
    uint8_t opcode;
    uint8_t flags;
    bool compressed;
    int16_t stream;
    uint32_t body_size;
    uint16_t consistency;        /* wire value */
    uint16_t serial_consistency; /* 0: none sent */
    bool has_timestamp, has_now, skip_metadata, has_names, has_paging_state, has_values;
    int64_t timestamp_us;
    int32_t page_size; /* 0: none sent */
    int32_t now_in_seconds;
    uint16_t value_count;
    uint8_t batch_kind;
    uint16_t batch_count;
    uint16_t payload_count; /* entries of the custom payload */
    bool has_token;
    bool is_replica;
    int64_t token;
    char keyspace[49]; /* of the request (v5) */
    char text[256];    /* QUERY, PREPARE, EXECUTE's statement; cut at 255 bytes */
};
/* The last request of this opcode (0xFF: of any but OPTIONS) on this node (or NODE_ALL). false: none yet. */
bool node_last(struct node_cluster *cluster, uint32_t node, uint8_t opcode, struct node_seen *out);

struct node_conn_info {
    uint32_t conn;
    uint32_t node;
    uint8_t version;
    bool ready, lz4, registered;
    uint32_t shard;
    uint64_t requests, replies, bytes_in, bytes_out;
    char keyspace[49];
    char user[64];
};
/* Open connections of a node (or NODE_ALL), oldest first. Returns how many there are; at most capacity are stored. */
uint32_t node_conns(struct node_cluster *cluster, uint32_t node, struct node_conn_info *out,
                    uint32_t capacity);
/* An option of that connection's STARTUP (conn 0: of the last STARTUP of any). false: not sent. */
bool node_startup_option(struct node_cluster *cluster, uint32_t conn, const char *key, char *value,
                         size_t size);

/* Wait until the counters satisfy a condition, without polling: woken after each turn of the server's thread that took
   in or sent bytes. false after timeout_ms. Started clusters only. */
bool node_wait(struct node_cluster *cluster,
               bool (*done)(const struct node_counters *all, void *context), uint32_t timeout_ms,
               void *context);

/* --- Doing things to it ----------------------------------------------------------------------- */

void node_set_mode(struct node_cluster *cluster, enum node_mode mode);
void node_set_trickle(struct node_cluster *cluster, uint32_t replies);
void node_set_delay(struct node_cluster *cluster, uint32_t node, uint32_t delay_us,
                    uint32_t jitter_us); /* node or NODE_ALL */

void node_down(struct node_cluster *cluster, uint32_t node,
               bool tell); /* closes listener and connections; tell: DOWN events from the others */
void node_up(struct node_cluster *cluster, uint32_t node,
             bool tell); /* listens again; prepared statements are forgotten */
void node_leave(struct node_cluster *cluster, uint32_t node,
                bool tell); /* down, and gone from peers and the ring */
void node_join(struct node_cluster *cluster, uint32_t node,
               bool tell); /* back in peers and the ring, and up */
void node_hide(struct node_cluster *cluster, uint32_t node,
               bool hidden); /* missing from the others' peers, but serving */
void node_freeze(
    struct node_cluster *cluster, uint32_t node,
    int32_t ms); /* neither reads nor writes nor accepts for so long (−1: until thawed with 0) */
void node_silence(struct node_cluster *cluster, uint32_t node,
                  bool silent); /* reads, executes, never answers */
void node_forget_prepared(struct node_cluster *cluster,
                          uint32_t node); /* as after a restart; node or NODE_ALL */
void node_cut(struct node_cluster *cluster, uint32_t node,
              uint32_t conn); /* closes a connection (0: all of the node, or of NODE_ALL) */

/* EVENTs to the registered connections of `node` (or NODE_ALL), true or not. */
void node_event_status(struct node_cluster *cluster, uint32_t node, const char *change,
                       uint32_t about);
void node_event_topology(struct node_cluster *cluster, uint32_t node, const char *change,
                         uint32_t about);
void node_event_raw(struct node_cluster *cluster, uint32_t node, const void *body, uint32_t size);

/* --- Faults ----------------------------------------------------------------------------------- */

enum node_fault_kind {
    NODE_FAULT_DROP,         /* "drop": executed, not answered */
    NODE_FAULT_IGNORE,       /* "ignore": neither executed nor answered */
    NODE_FAULT_CLOSE,        /* "close": closed instead of the answer */
    NODE_FAULT_ANSWER_CLOSE, /* "answer-close": answered, then closed */
    NODE_FAULT_HALF,         /* "half": half of the answer's bytes, then closed */
    NODE_FAULT_GARBAGE,      /* "garbage": random bytes instead of the answer */
    NODE_FAULT_FLIP_HEADER, /* "flip-header": one bit of the segment header (v4: of the frame header) */
    NODE_FAULT_FLIP_HEADER_CRC, /* "flip-header-crc": v5 */
    NODE_FAULT_FLIP_PAYLOAD, /* "flip-payload": one bit of the segment payload (v4: of the body) */
    NODE_FAULT_FLIP_PAYLOAD_CRC, /* "flip-payload-crc": v5 */
    NODE_FAULT_ERROR, /* "error": ERROR `code` with the fields below instead of the answer; not executed unless `executed` */
    NODE_FAULT_UNPREPARED,   /* "unprepared": the node forgets the statement(s) and says so */
    NODE_FAULT_WRONG_STREAM, /* "wrong-stream": the answer on a stream that nobody uses */
    NODE_FAULT_EVENT_STREAM, /* "event-stream": the answer as ERROR on stream -1 */
    NODE_FAULT_TWICE,        /* "twice": the answer, and again */
    NODE_FAULT_OPCODE, /* "opcode": the answer with opcode `code` (0x1F unknown, 0x07 a request's) */
    NODE_FAULT_REQUEST,      /* "request": the answer without the direction bit */
    NODE_FAULT_EVENT,        /* "event": an EVENT of an unknown type before the answer */
    NODE_FAULT_CHANGED,      /* "changed": ROWS with METADATA_CHANGED and a new id (v5) */
    NODE_FAULT_CHANGED_BARE, /* "changed-bare": METADATA_CHANGED together with NO_METADATA */
    NODE_FAULT_EXTRA_COLUMN, /* "extra-column": PREPARED or ROWS with one column (text) more at the end */
    NODE_FAULT_LARGE_PAGE, /* "large-page": one row more than the page size asks */
    NODE_FAULT_EMPTY_PAGE, /* "empty-page": ROWS without a row and with more pages to come */
    NODE_FAULT_NO_ROWS, /* "no-rows": ROWS without a row and the end (empty system.local, empty peers: use `table`) */
    NODE_FAULT_BAD_CELL,   /* "bad-cell": the first cell of the answer's last row is 3 bytes long */
    NODE_FAULT_NO_COLUMNS, /* "no-columns": ROWS of 0 columns and `count` rows */
    NODE_FAULT_BETA,       /* "beta": "Beta version of the protocol used", on OPTIONS or STARTUP */
    NODE_FAULT_PAYLOAD, /* "payload": a custom payload on the answer (echo of the request's, else {"node": null}) */
    NODE_FAULT_WARNINGS, /* "warnings": `count` warnings on the answer */
    NODE_FAULT_TRACING,  /* "tracing": a tracing id on the answer */
    NODE_FAULT_TRAILING, /* "trailing": the body is longer than described */
    NODE_FAULT_TRUNCATED, /* "truncated": the body ends `count` bytes early (default 1), sizes agree */
    NODE_FAULT_LATE,      /* "late": the answer `delay_us` later */
    NODE_FAULT_FREEZE,    /* "freeze": the node freezes for `delay_us` */
    NODE_FAULT_SILENCE, /* "silence": the node never answers again */
    NODE_FAULT_ACCEPT_CLOSE, /* "accept-close": closed as soon as accepted (counts connections, not requests) */
    NODE_FAULT_ACCEPT_SILENT, /* "accept-silent": accepted, nothing is ever answered */
    NODE_FAULT_REFUSE         /* "refuse": does not listen, from the start to the fault's removal */
};

/* Strikes on each `every`-th matching request after the first `after`, at most `times` times. */
struct node_fault {
    enum node_fault_kind kind;
    uint32_t node;  /* index + 1; 0: every node */
    uint32_t conn;  /* only this connection; 0: all */
    uint8_t opcode; /* only requests of this opcode; 0: QUERY, EXECUTE, BATCH, PREPARE */
    uint64_t every; /* 1 */
    uint64_t after;
    uint64_t times;    /* 0: no limit */
    double chance;     /* > 0: instead of every, by the cluster's seed */
    const char *table; /* only statements that name this table ("system.peers"); copied */

    int32_t code;         /* ERROR: the code; OPCODE: the opcode */
    const char *message;  /* NULL: as Cassandra words it; copied */
    uint16_t consistency; /* fields of ERRORs; zero takes the request's consistency */
    int32_t received, required, alive, failures;
    const char *write_type; /* "SIMPLE" */
    uint8_t data_present;
    bool executed; /* ERROR, CLOSE: the statement took effect all the same */
    uint32_t count;
    uint32_t delay_us;
};

/* Returns a number that names the fault. Faults are tried in the order they were added; the first that strikes wins,
   except PAYLOAD, WARNINGS, TRACING, EVENT and LATE, which add themselves. */
uint32_t node_fault_add(struct node_cluster *cluster, const struct node_fault *fault);
/* From text, as on the command line: "kind:key=value,…" ("error:code=0x1100,every=100,write_type=BATCH_LOG",
   "drop:every=50,opcode=EXECUTE,node=1"). 0: not understood, message tells why. */
uint32_t node_fault_parse(struct node_cluster *cluster, const char *text, char *message,
                          size_t message_size);
uint64_t node_fault_hits(struct node_cluster *cluster, uint32_t fault);
void node_fault_remove(struct node_cluster *cluster, uint32_t fault); /* 0: all */

/* --- Connections without sockets (the simulator) ---------------------------------------------- */

/* As if accepted just now. NULL: refused (the node is down, or refuses). shard: with shards, where it lands. */
struct node_conn *node_conn_open(struct node_cluster *cluster, uint32_t node, uint32_t shard,
                                 int64_t now_us);
/* Bytes that arrived. All of them are taken. */
void node_conn_input(struct node_conn *conn, const void *data, size_t size, int64_t now_us);
/* Replies whose time has come join the output. */
void node_conn_turn(struct node_conn *conn, int64_t now_us);
/* When node_conn_turn has something to do next; INT64_MAX: nothing is held back. */
int64_t node_conn_next_time(const struct node_conn *conn);
/* The next bytes to send, up to where a write of its own ends; valid until the next call. size 0: none. */
cqlring_bytes node_conn_output(struct node_conn *conn);
void node_conn_consumed(struct node_conn *conn, uint32_t size);
/* Close it when the output is empty. */
bool node_conn_wants_close(const struct node_conn *conn);
/* The node is frozen or has too much unsent: bring no input now. */
bool node_conn_is_paused(const struct node_conn *conn, int64_t now_us);
void node_conn_close(struct node_conn *conn); /* frees it */

#endif
