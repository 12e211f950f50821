/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_H
#define NODE_H

/* A small, real CQL server in memory, for tests, the demo and the load tool: several nodes of one
   cluster in one process, protocol v4 and v5, system tables, schema, storage by token, prepared
   statements, paging, batches, conditional updates; and a plan of faults that plays every way in
   which a server can go wrong.

   Three layers, each usable alone:
   - the cluster (catalogue, storage, ring, CQL) is plain code without socket or clock:
     node_cluster_create;
   - a connection is a protocol machine, bytes and time in, bytes out: node_conn_open and the others
     at the end of this page; the simulator drives these;
   - the server puts them on sockets, on one thread of its own: node_cluster_start.

   Threads: a started cluster runs on its own thread. Everything declared here except node_conn_* may
   be called from any thread; one lock per cluster guards it. node_conn_* belong to whoever drives an
   unstarted cluster, from one thread. A cluster never uses the allocator of serialize/mem.h (but for
   LZ4's work memory), so failing or counting allocations there tells about the library alone; when
   the process is out of memory the node aborts.

   Nodes are named by their index, from 0. Times are microseconds of any clock that does not go
   back. */

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

/* STORE: everything is real. VOID: EXECUTE, QUERY and BATCH of INSERT, UPDATE and DELETE answer VOID
   and store nothing; all else is real. */
enum node_mode { NODE_STORE = 0, NODE_VOID = 1 };

/* How an unknown protocol version is refused, always on stream 0.
   CASSANDRA_5, _4: header of the server's highest version, supported ones listed in the text.
   CASSANDRA_3: header of v5, a beta there; the real maximum is 4.
   CASSANDRA_2: "the lowest supported version is 3 and the greatest is 4".
   BETA: "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset".
   CLOSE: closed without a word. */
enum node_refusal {
    NODE_REFUSE_CASSANDRA_5 = 0,
    NODE_REFUSE_CASSANDRA_4 = 1,
    NODE_REFUSE_CASSANDRA_3 = 2,
    NODE_REFUSE_CASSANDRA_2 = 3,
    NODE_REFUSE_SCYLLA = 4,
    NODE_REFUSE_BETA = 5,
    NODE_REFUSE_CLOSE = 6
};

struct node_seen;

/* Zero is the default everywhere. Strings are copied. */
struct node_options {
    uint32_t nodes;              /* 1 */
    const char *address;         /* "127.0.0.1"; node i listens on the address + i */
    uint16_t port;               /* 0: a free one, the same for all nodes */
    bool ports_differ;           /* all nodes on one address, on consecutive ports */
    bool rpc_unspecified;        /* clients are told 0.0.0.0, as by servers whose rpc_address is that and no other is broadcast */
    const char *const *dcs;      /* per node; NULL: all "datacenter1" */
    const char *const *racks;    /* per node; NULL: all "rack1" */
    uint32_t vnodes;             /* tokens per node; 16 */
    uint64_t seed;               /* tokens, host ids, delays, faults of chance */
    const char *cluster_name;    /* "cqlring node" */
    const char *release_version; /* "5.0.6" */

    /* PasswordAuthenticator with this user and password; NULL: nobody is asked. */
    const char *user;
    const char *password;
    const char *authenticator; /* name sent in AUTHENTICATE; PasswordAuthenticator's class */
    uint32_t auth_rounds;      /* AUTH_CHALLENGEs before the answer is judged; 0 */
    uint64_t auth_nodes;       /* bit per node that asks; 0: all */

    const char *tls_cert; /* PEM files; NULL: plain text */
    const char *tls_key;
    const char *tls_client_ca; /* demands a client certificate signed by it */

    uint8_t version_max; /* 5; 4 refuses v5 */
    uint8_t version_min; /* 3; 5 refuses v4 */
    enum node_refusal refusal;
    bool no_lz4;        /* COMPRESSION lists nothing */
    bool snappy_listed; /* COMPRESSION also lists snappy, for v4 */

    enum node_mode mode;
    uint32_t trickle;  /* a write of its own after every k replies; 0: one write per read */
    uint32_t delay_us; /* each reply is held back delay ± jitter, so they overtake one another */
    uint32_t jitter_us;
    uint32_t void_rows;      /* void mode: SELECT of user tables answers so many rows … */
    uint32_t void_cell_size; /* … of such cells (16); fixed-size types keep theirs */

    /* > 0: speaks of itself as ScyllaDB does: SCYLLA_* in SUPPORTED, a shard-aware port, no
       peers_v2. With tablets, new keyspaces are tablet-based and routing payloads are sent. */
    uint32_t shards;
    bool tablets;
    bool client_routes; /* has system.client_routes and knows CLIENT_ROUTES_CHANGE */

    uint32_t connections_max;    /* 4096 per cluster; further ones are closed at once */
    uint32_t frame_size_max;     /* 16 MiB: larger requests are refused with 0x2200 */
    uint32_t statement_size_max; /* 1 MiB of CQL text */
    uint32_t prepared_max;       /* 16384 statements, the oldest make room */
    uint32_t output_max;         /* 64 MiB of unread replies: then a connection is not read */
    uint32_t batch_size_fail;    /* 50 KiB of values: a larger batch is refused with 0x2200, if it has several partitions … */
    bool batch_size_single;      /* … or one, as by servers before CASSANDRA-10876 */
    uint64_t storage_max;        /* 4 GiB of stored bytes; writes beyond are refused with 0x1001 */

    int64_t epoch_us; /* wall clock at time 0; node_cluster_start sets it from the real one */
    /* Each request, under the lock: nothing of this page may be called from it. */
    void (*on_request)(const struct node_seen *seen, void *context);
    void *context;
};

/* --- A cluster -------------------------------------------------------------------------------- */

/* Without sockets. message (may be NULL) tells why NULL was returned. */
struct node_cluster *node_cluster_create(const struct node_options *options, char *message,
                                         size_t message_size);

/* create + listen + thread. Accepting when it returns. */
struct node_cluster *node_cluster_start(const struct node_options *options, char *message,
                                        size_t message_size);

/* Ends the thread if there is one (joined), closes every connection, frees everything. NULL is
   fine. */
void node_cluster_stop(struct node_cluster *cluster);

uint32_t node_count(const struct node_cluster *cluster);
uint16_t node_port(const struct node_cluster *cluster, uint32_t node);
/* "127.0.0.2"; valid with the cluster. */
const char *node_address(const struct node_cluster *cluster, uint32_t node);

/* Started with TLS: what new connections are shown from now on. false: message tells why; the old
   stays. */
bool node_set_tls(struct node_cluster *cluster, const char *cert, const char *key,
                  const char *client_ca, char *message, size_t message_size);

/* --- Asking it without a connection ----------------------------------------------------------- */

/* Runs one statement as coordinator node 0, without values or paging. A failure leaves the server's
   code (0 = fine) and the text in message. rows (may be NULL) gets the number of rows of the
   answer. */
int32_t node_cql(struct node_cluster *cluster, const char *cql, uint32_t *rows, char *message,
                 size_t message_size);
/* Live rows of "keyspace.table"; -1 when there is no such table. */
int64_t node_table_rows(struct node_cluster *cluster, const char *table);
/* The nodes that own this key under the keyspace's replication, primary first. Returns how many
   were stored. */
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
    uint64_t reads;            /* recv calls that moved bytes (simulator: inputs) */
    uint64_t writes;           /* send calls that did (simulator: chunks of output) */
    uint64_t batch_statements; /* children of BATCHes */
    uint64_t replica_hits;     /* requests with a known key that came to a replica of it … */
    uint64_t replica_misses;   /* … and to another node */
    uint64_t shard_hits, shard_misses; /* with shards: the same of the connection's shard */
    uint64_t keyless;                  /* EXECUTE, QUERY, BATCH without a single known key */
    uint64_t rows_written, rows_read;
    uint64_t unprepared;    /* UNPREPARED answers, faults included */
    uint64_t rate_limited;  /* refused by node_set_partition_limit */
    uint64_t faults;        /* faults that struck */
    uint64_t segments_in;   /* v5 */
    uint64_t compressed_in; /* v4 bodies and v5 segments that came compressed */
    uint64_t prepared;      /* statements prepared at present */
};
/* Of a node, or (NODE_ALL) the sum. rows_* and prepared are always the cluster's. */
void node_counters(struct node_cluster *cluster, uint32_t node, struct node_counters *out);
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
    bool is_shard;    /* with shards: and the connection's is the one that it has there */
    uint32_t replica; /* which one, 0 the primary */
    uint32_t shard;   /* of the connection */
    int64_t token;
    char keyspace[49]; /* of the request (v5) */
    char text[256];    /* QUERY, PREPARE, EXECUTE's statement; cut at 255 bytes */
};
/* The last request of this opcode (0xFF: of any but OPTIONS) on this node (or NODE_ALL). false:
   none yet. */
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
    char server_name[64]; /* TLS: the name asked for (SNI), "" if none */
};
/* Open connections of a node (or NODE_ALL), oldest first. Returns how many there are; at most
   capacity are stored. */
uint32_t node_conns(struct node_cluster *cluster, uint32_t node, struct node_conn_info *out,
                    uint32_t capacity);
/* An option of that connection's STARTUP (conn 0: of the last STARTUP of any). false: not sent. */
bool node_startup_option(struct node_cluster *cluster, uint32_t conn, const char *key, char *value,
                         size_t size);

/* Wait until the counters satisfy a condition, without polling: woken after each turn of the
   server's thread that took in or sent bytes. false after timeout_ms. Started clusters only. */
bool node_wait(struct node_cluster *cluster,
               bool (*done)(const struct node_counters *all, void *context), uint32_t timeout_ms,
               void *context);

/* --- Doing things to it ----------------------------------------------------------------------- */

/* node: an index or, where it is said, NODE_ALL. */
void node_set_mode(struct node_cluster *cluster, enum node_mode mode);
void node_set_trickle(struct node_cluster *cluster, uint32_t replies);
/* Or NODE_ALL. */
void node_set_delay(struct node_cluster *cluster, uint32_t node, uint32_t delay_us,
                    uint32_t jitter_us);

/* How a node (or NODE_ALL) works from now on: on `servers` statements at a time, the others wait in line; with `waiting_max`
   in it (0: any number) further ones are refused with OVERLOADED. Each takes service_us, or that on average, its times
   scattered exponentially. NULL: at once, as ever. */
struct node_service {
    uint32_t servers, service_us, waiting_max;
    bool exponential;
};
void node_set_service(struct node_cluster *cluster, uint32_t node,
                      const struct node_service *service);

/* A table's limit by partition, as ScyllaDB has it, told to connections that negotiated the rate limit: of each partition of
   "keyspace.table" at most `statements` are taken in each window of time, from its first on; further ones are refused by the
   coordinator. A batch counts as its first statement. statements 0: no limit, as ever. One table at a time. */
void node_set_partition_limit(struct node_cluster *cluster, const char *table, uint32_t statements,
                              uint32_t window_us);

/* Closes listener and connections. tell: DOWN events from the others. */
void node_down(struct node_cluster *cluster, uint32_t node, bool tell);
/* Listens again, without the prepared statements it knew. */
void node_up(struct node_cluster *cluster, uint32_t node, bool tell);
/* Down, and gone from the others' peers and the ring. */
void node_leave(struct node_cluster *cluster, uint32_t node, bool tell);
/* Back in peers and the ring, and up. */
void node_join(struct node_cluster *cluster, uint32_t node, bool tell);
/* Missing from the others' peers, but serving. */
void node_hide(struct node_cluster *cluster, uint32_t node, bool hidden);
/* Restarted at another address (a literal of the same family), with the port, the host id and the tokens it had. KEEP: the
   connections to the old address live on. TELL: from the others DOWN of the old address, NEW_NODE and UP of the new one. STALE: the
   others' peers have a row of the old address too, from now on. */
enum { NODE_MOVE_KEEP = 1, NODE_MOVE_TELL = 2, NODE_MOVE_STALE = 4 };
void node_move(struct node_cluster *cluster, uint32_t node, const char *address, uint32_t how);
/* Another machine takes its place: its address and tokens, but a host id of its own. */
void node_replace(struct node_cluster *cluster, uint32_t node, bool tell);
/* Which schema_version it has, by its own system.local and the others' peers: the cluster's, from
   now on the one it has, or none at all. */
enum node_lag { NODE_LAG_NONE, NODE_LAG_BEHIND, NODE_LAG_SILENT };
void node_schema_lag(struct node_cluster *cluster, uint32_t node, enum node_lag lag);
/* With shards: how many this node has from now on, for new connections; put it down before and up after, as a restart does. */
void node_set_shards(struct node_cluster *cluster, uint32_t node, uint32_t shards);
/* From now on each table has 2^bits tablets (1 … 16; 3), elsewhere for each `move` (0): as after splits, merges and migrations. */
void node_set_tablets(struct node_cluster *cluster, uint32_t bits, uint32_t move);
/* What its shard-aware port is like (or of NODE_ALL). NAT: source ports are rewritten on the way, so that another shard answers
   than was asked for. CLOSED: advertised, refuses. SILENT: advertised, accepts and never says a word. UNLISTED: not advertised. */
enum node_shard_port {
    NODE_SHARD_PORT_OPEN = 0,
    NODE_SHARD_PORT_NAT = 1,
    NODE_SHARD_PORT_CLOSED = 2,
    NODE_SHARD_PORT_SILENT = 3,
    NODE_SHARD_PORT_UNLISTED = 4
};
void node_set_shard_port(struct node_cluster *cluster, uint32_t node, enum node_shard_port how);
/* Neither reads nor writes nor accepts for so long; -1: until thawed with 0. Or NODE_ALL. */
void node_freeze(struct node_cluster *cluster, uint32_t node, int32_t ms);
/* Reads, executes, never answers. Or NODE_ALL. */
void node_silence(struct node_cluster *cluster, uint32_t node, bool silent);
/* As after a restart. Or NODE_ALL. */
void node_forget_prepared(struct node_cluster *cluster, uint32_t node);
/* Closes a connection; conn 0: all of the node, or of NODE_ALL. */
void node_cut(struct node_cluster *cluster, uint32_t node, uint32_t conn);

/* EVENTs to the registered connections of `node` (or NODE_ALL), true or not. */
void node_event_status(struct node_cluster *cluster, uint32_t node, const char *change,
                       uint32_t about);
void node_event_topology(struct node_cluster *cluster, uint32_t node, const char *change,
                         uint32_t about);
/* With client_routes: the row of this connection id and node (NODE_ALL: a host id that no node has); address NULL deletes it. tell:
   CLIENT_ROUTES_CHANGE about it to all connections registered for that. */
void node_client_route(struct node_cluster *cluster, const char *connection_id, uint32_t node,
                       const char *address, int32_t port, int32_t tls_port, bool tell);
void node_event_raw(struct node_cluster *cluster, uint32_t node, const void *body, uint32_t size);

/* --- Faults ----------------------------------------------------------------------------------- */

/* Each with its name in texts.
   Answers that do not come, or not whole:
     drop             executed, not answered
     ignore           neither executed nor answered
     close            closed instead of the answer; not executed unless `executed`
     answer-close     answered, then closed
     half             half of the answer's bytes, then closed
     garbage          random bytes instead of the answer
     flip-header, flip-header-crc, flip-payload, flip-payload-crc
                      one bit of the segment (v4: of the frame header or the body)
   Other answers:
     error            ERROR `code` with the fields below; not executed unless `executed`
     unprepared       the node forgets the statement (of BATCH: all of them) and says so
     wrong-stream     the answer on a stream that nobody uses
     event-stream     an ERROR on stream -1
     twice            the answer, and again
     opcode           the answer with opcode `code` (0x1F unknown, 0x07 a request's)
     request          the answer without the direction bit
     event            an EVENT of an unknown type before the answer
     beta             "Beta version of the protocol used", on OPTIONS or STARTUP
     trailing         the body is longer than described
     truncated        the body ends `count` bytes early (1); its size says the same
   Rows and metadata:
     changed          METADATA_CHANGED and a new id (v5)
     changed-bare     METADATA_CHANGED together with NO_METADATA
     extra-column     PREPARED or ROWS with one column more at the end: text, or of the type
                      id `code` (0xFF: an unknown one)
     large-page       one row more than the page size asks
     empty-page       no row, and more pages to come
     no-rows          no row, and the end; with `table`: an empty system.local, no peers
     bad-cell         the first cell of the answer's last row is 3 bytes long
     no-columns       0 columns and `count` rows
   Added to the answer, whatever else strikes:
     payload          a custom payload: the request's, else {"node": null}; with `count` so many
                      entries, an empty key, then the same one over and over, nulls among them
     warnings         `count` warnings (1)
     tracing          a tracing id
     late             `delay_us` later
   The node:
     freeze           freezes for `delay_us`
     silence          never answers again
     accept-close     connections are closed as soon as accepted; these count connections
     accept-silent    accepted, nothing is ever answered
     refuse           does not listen until the fault is removed */
enum node_fault_kind {
    NODE_FAULT_DROP,
    NODE_FAULT_IGNORE,
    NODE_FAULT_CLOSE,
    NODE_FAULT_ANSWER_CLOSE,
    NODE_FAULT_HALF,
    NODE_FAULT_GARBAGE,
    NODE_FAULT_FLIP_HEADER,
    NODE_FAULT_FLIP_HEADER_CRC,
    NODE_FAULT_FLIP_PAYLOAD,
    NODE_FAULT_FLIP_PAYLOAD_CRC,
    NODE_FAULT_ERROR,
    NODE_FAULT_UNPREPARED,
    NODE_FAULT_WRONG_STREAM,
    NODE_FAULT_EVENT_STREAM,
    NODE_FAULT_TWICE,
    NODE_FAULT_OPCODE,
    NODE_FAULT_REQUEST,
    NODE_FAULT_EVENT,
    NODE_FAULT_CHANGED,
    NODE_FAULT_CHANGED_BARE,
    NODE_FAULT_EXTRA_COLUMN,
    NODE_FAULT_LARGE_PAGE,
    NODE_FAULT_EMPTY_PAGE,
    NODE_FAULT_NO_ROWS,
    NODE_FAULT_BAD_CELL,
    NODE_FAULT_NO_COLUMNS,
    NODE_FAULT_BETA,
    NODE_FAULT_PAYLOAD,
    NODE_FAULT_WARNINGS,
    NODE_FAULT_TRACING,
    NODE_FAULT_TRAILING,
    NODE_FAULT_TRUNCATED,
    NODE_FAULT_LATE,
    NODE_FAULT_FREEZE,
    NODE_FAULT_SILENCE,
    NODE_FAULT_ACCEPT_CLOSE,
    NODE_FAULT_ACCEPT_SILENT,
    NODE_FAULT_REFUSE
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

/* Returns a number that names the fault. Faults are tried in the order they were added; the first
   that strikes wins, except PAYLOAD, WARNINGS, TRACING, EVENT and LATE, which add themselves. */
uint32_t node_fault_add(struct node_cluster *cluster, const struct node_fault *fault);
/* From text, as on the command line: "kind:key=value,…", keys as the fields are called; node is an
   index here. "error:code=0x1100,every=100,write_type=BATCH_LOG", "drop:every=50,opcode=EXECUTE".
   0: not understood, message tells why. */
uint32_t node_fault_parse(struct node_cluster *cluster, const char *text, char *message,
                          size_t message_size);
uint64_t node_fault_hits(struct node_cluster *cluster, uint32_t fault);
void node_fault_remove(struct node_cluster *cluster, uint32_t fault); /* 0: all */

/* --- Connections without sockets (the simulator) ---------------------------------------------- */

/* The shard that takes a connection to the shard-aware port from this source port, or (0) the next one in turn, as on the
   ordinary port. 0 without shards. */
uint32_t node_choose_shard(struct node_cluster *cluster, uint32_t node, uint16_t source_port);
/* The port it advertises for that (19042 until it listens on another), and what it is like; how may be NULL. */
uint16_t node_shard_port(struct node_cluster *cluster, uint32_t node, enum node_shard_port *how);
/* As if accepted just now. NULL: refused (the node is down, or refuses). shard: with shards, where
   it lands. */
struct node_conn *node_conn_open(struct node_cluster *cluster, uint32_t node, uint32_t shard,
                                 int64_t now_us);
/* Bytes that arrived. All of them are taken. */
void node_conn_input(struct node_conn *conn, const void *data, size_t size, int64_t now_us);
/* Replies whose time has come join the output. */
void node_conn_turn(struct node_conn *conn, int64_t now_us);
/* When node_conn_turn has something to do next; INT64_MAX: nothing is held back. */
int64_t node_conn_next_time(const struct node_conn *conn);
/* The next bytes to send, up to where a write of its own ends; valid until the next call. size 0:
   none. */
cqlring_bytes node_conn_output(struct node_conn *conn);
void node_conn_consumed(struct node_conn *conn, uint32_t size);
/* Close it when the output is empty. Once true it stays so, and further input is not looked at. */
bool node_conn_wants_close(const struct node_conn *conn);
/* The node is frozen or has too much unsent: bring no input now. */
bool node_conn_is_paused(const struct node_conn *conn, int64_t now_us);
void node_conn_close(struct node_conn *conn); /* frees it */

#endif
