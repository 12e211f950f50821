/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_H
#define CQLRING_H

/* cqlring: the concurrent request driver core for Apache Cassandra and ScyllaDB.

   Handles nest by what they share: **runtime** (threads, lanes; NULL is one counted process default) → **cluster**
   (control connection, topology, prepared statements, credentials) → **session** (keyspace, defaults). Work goes in by
   one of three ways: cqlring_execute (one request → a future), cqlring_execute_concurrent (the library pulls rows from a
   source and delivers outcomes to a sink) and a queue (the application submits and reaps).

   Conventions, everywhere:
   - Zero is the default. Options structs begin with struct_size = sizeof of the struct; NULL options are all defaults.
   - A function that can fail returns a cqlring_status and, if given a cqlring_error, fills it when it fails.
   - Out parameters are written only on success, unless said otherwise.
   - Handles are counted where they have a release; every release accepts NULL. What a function hands out through an out
     parameter is the caller's to release. A handle holds what it was made from, so the order of releases is free. A cluster or a
     session released more often than it was handed out is told to the log (ERROR), and nothing is done, as long as anything else
     holds it; after that it is freed memory, as anywhere.
   - Functions may be called from any thread unless said otherwise. Callbacks (source, sink, on_ready, log) run on a
     library thread, the submitter; in them, calls that wait return CQLRING_INVALID.
   - Times are microseconds. Strings handed in are copied unless said otherwise.

   Defaults, in one place:
     request time-out 12 s, retries included (timeout_us) · attempt time-out 3 s, only for writes marked idempotent ·
     connect 5 s for TCP + TLS + startup · consistency LOCAL_ONE · page size 5 000 rows · job window: as much as each
     connection is worth, found by trying, 16 to 1 024 rows each and 2 048 a source · in flight per connection 1 024 · orphaned streams 1 024, then the connection is replaced · bytes 16 MiB a job, a queue, and a
     session's single executions · frame 256 MiB · reconnect at once, then 50 ms doubling to 10 s, ± 15 % · names looked up every 300 s · heartbeat 30 s ·
     a node is suspect after 2 s without a byte while requests wait on it · schema agreement 10 s, schema metadata when asked for ·
     protocol v5, stepping down to v4 · compression none · TLS off; when on, certificate chain and host are verified · ScyllaDB: one
     connection to each shard, from local ports 49 152 to 65 535; 50 % busy, its rows may take another one. */

#include <string.h>

#include "cqlring_types.h"
#include "cqlring_values.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CQLRING_VERSION_MAJOR 0
#define CQLRING_VERSION_MINOR 1
#define CQLRING_VERSION_PATCH 0

typedef struct cqlring_runtime cqlring_runtime;
typedef struct cqlring_cluster cqlring_cluster;
typedef struct cqlring_session cqlring_session;
typedef struct cqlring_prepared cqlring_prepared;
typedef struct cqlring_future cqlring_future;
typedef struct cqlring_result cqlring_result;
typedef struct cqlring_queue cqlring_queue;
typedef struct cqlring_node cqlring_node;
typedef struct cqlring_schema cqlring_schema;

CQLRING_API const char *cqlring_version(void); /* "0.1.0"; static */

/* ---- runtime ---------------------------------------------------------------------------------------------------- */

typedef enum cqlring_threads {
    CQLRING_THREADS_SPLIT = 0,  /* a reactor and a submitter thread a lane */
    CQLRING_THREADS_INLINE = 1, /* one library thread a lane runs both */
    CQLRING_THREADS_CALLER = 2  /* no library thread: both run inside wait, reap and cqlring_runtime_turn */
} cqlring_threads;

typedef enum cqlring_log_level { CQLRING_LOG_ERROR = 1, CQLRING_LOG_WARN = 2, CQLRING_LOG_INFO = 3, CQLRING_LOG_DEBUG = 4 } cqlring_log_level;

/* Where the library's memory comes from, in place of malloc: any thread, several at once. */
typedef struct cqlring_allocator {
    size_t struct_size;
    void *(*allocate)(size_t size, size_t alignment, void *context); /* NULL: none; alignment a power of two, at least malloc's */
    void *(*reallocate)(void *memory, size_t size, void *context);   /* NULL: none, and memory stays; never of larger alignment than malloc's */
    void (*release)(void *memory, void *context);
    void *context;
} cqlring_allocator;

typedef struct cqlring_runtime_options {
    size_t struct_size;
    cqlring_threads threads;
    uint32_t lanes;               /* 1 … 16, default 1; 1 in caller mode */
    uint32_t inflight_max;        /* requests under way a lane: 64 … 65 536, default 8 192 */
    uint32_t connections_max;     /* a lane: 4 … 4 096, default 256 */
    int32_t cpu_plus_one;         /* pin library threads to CPU n: give n + 1; 0: wherever */
    cqlring_log_level log_level;  /* default WARN; lines above it are not made */
    void (*log)(cqlring_log_level level, const char *line, void *context); /* NULL: no log. Never sees a secret. Library thread. */
    void *log_context;
    const cqlring_allocator *allocator; /* for the whole process, from the first runtime on; copied. INVALID while anything of the library lives that came
                                     from another one. OpenSSL, libev and the C library keep their own. NULL: what was given before, else malloc */
} cqlring_runtime_options;

CQLRING_API cqlring_status cqlring_runtime_create(const cqlring_runtime_options *options, cqlring_runtime **runtime, cqlring_error *error);
/* Closes every cluster of it (undrained), waits for its threads and frees it. The only call that joins threads. Handles
   that are still held stay valid memory and answer CLOSED. Caller mode: a thread that is asleep in a turn is woken. CQLRING_INVALID
   from a library thread (nothing is done). */
CQLRING_API cqlring_status cqlring_runtime_destroy(cqlring_runtime *runtime);
/* Caller mode: run both turns on this thread, waiting up to timeout_us (0 no wait, −1 until something happened) for
   something to do. Returns how many requests were settled, or −1 in another mode. */
CQLRING_API int64_t cqlring_runtime_turn(cqlring_runtime *runtime, int64_t timeout_us);
/* Caller mode: readable when cqlring_runtime_turn has something to do: bytes, a deadline, or what any thread has asked for
   between two turns; a turn may make it unreadable. −1 in another mode. The runtime's: do not close. */
CQLRING_API int cqlring_runtime_fd(cqlring_runtime *runtime);

/* Counters since the runtime's start, all lanes together. Relaxed: each is exact, together they are a snapshot. */
typedef struct cqlring_stats {
    size_t struct_size; /* in: sizeof(cqlring_stats) */
    uint64_t requests_issued, requests_settled, requests_failed, retries, reprepares, timeouts;
    uint64_t sends, send_bytes, send_blocked;  /* send system calls (or TLS writes), bytes taken, times the socket was full */
    uint64_t recvs, recv_bytes, replies;       /* recv system calls, bytes, frames cut */
    uint64_t copied_up_bytes;                  /* reply bytes that were moved after recv (torn frames at a block's end, split segments) */
    uint64_t copied_down_bytes;                /* bytes of values written into send blocks */
    uint64_t wakes_submitter, wakes_reactor, wakes_waiter; /* wake-ups that cost a system call */
    uint64_t submitter_turns, reactor_turns, submitter_sleeps;
    uint64_t connections_opened, connections_lost, orphans, late_replies;
    uint64_t allocations;                      /* of the process, through the library */
    uint64_t log_dropped;
    uint64_t tls_handshakes, tls_resumed;      /* succeeded; of these, shortened by an earlier connection's ticket */
    uint64_t cpu_submitters_us, cpu_reactors_us; /* of library threads; inline: all in the first; caller mode: 0, they are yours */
    uint64_t failed_by[16];                    /* requests_failed by cqlring_status */
    uint64_t plans_ignored;                    /* orders of the application's plan that could not be */
    uint64_t speculative, speculative_won;     /* further attempts sent while one was under way; requests that one of them decided well */
    uint64_t shard_fallbacks;                  /* requests that took another shard's connection than theirs: it was not up, full or busy */
    uint64_t tablets_learned;                  /* places of ScyllaDB's tablets that replies told of */
    uint64_t prepared_ahead;                   /* statements prepared on nodes that came up, before a request needed them there */
    uint64_t pages_ahead, pages_dropped;       /* pages asked for before the application did (prefetch), or while the sink had the one before;
                                                  of single requests' ones, those that were never asked for */
    uint64_t batches, batched_rows;            /* made of rows of one partition (batch_by_partition), each one request; the rows in them */
    uint64_t batches_split;                    /* refused as invalid or too large, counted as failed requests, and sent again in halves */
    uint64_t partition_waits;                  /* rows and batches that waited because others of their partition had met its rate limit */
} cqlring_stats;
CQLRING_API void cqlring_runtime_stats(const cqlring_runtime *runtime, cqlring_stats *stats);

/* ---- cluster ---------------------------------------------------------------------------------------------------- */

typedef struct cqlring_node_info {
    const char *address;          /* "10.0.0.3:9042" */
    const char *datacenter, *rack, *release_version; /* "" when unknown */
    uint8_t host_id[16];
    uint8_t is_up;                /* at least one connection */
    uint8_t is_suspect;
    uint8_t is_local;             /* in the local datacenter */
    uint8_t protocol_version;     /* negotiated on the latest connection of a session to it: 4 or 5; 0: there was none yet */
    uint32_t in_flight;           /* all lanes */
    uint32_t connections;         /* all lanes */
    uint32_t shards;              /* of a ScyllaDB node; 0: not sharded, or not known yet */
} cqlring_node_info;
typedef enum cqlring_node_event {
    CQLRING_NODE_ADDED = 1,   /* it is in the topology */
    CQLRING_NODE_REMOVED = 2, /* it no longer is; DOWN came before */
    CQLRING_NODE_UP = 3,      /* the first connection of a session to it is open */
    CQLRING_NODE_DOWN = 4,    /* the last one is gone */
    CQLRING_NODE_MOVED = 5    /* it has another address, and describes itself with that. DOWN and UP may follow, as its connections do */
} cqlring_node_event;

typedef enum cqlring_tls_verify { CQLRING_TLS_FULL = 0, CQLRING_TLS_CHAIN = 1, CQLRING_TLS_NONE = 2 } cqlring_tls_verify;

typedef struct cqlring_tls_options {
    size_t struct_size;
    const char *ca_file;          /* PEM, all certificates in it; NULL: the system's (SSL_CERT_FILE, SSL_CERT_DIR, distribution) */
    const char *ca_pem;           /* the same as text */
    const char *certificate_file; /* client certificate chain, PEM; NULL: none */
    const char *key_file;
    const char *key_password;
    cqlring_tls_verify verify;    /* default FULL: chain, and the address or the contact name or server_name in the certificate */
    int32_t version_min;          /* 0: 1.2; 12 or 13 */
    int32_t version_max;          /* 0: the highest; 12 or 13 */
    const char *ciphers;          /* TLS 1.2 list; NULL: OpenSSL's */
    cqlring_tristate resume;      /* tickets of earlier connections are used, as long as their certificate is valid; default yes */
    const char *server_name;      /* verified and sent as SNI for every node; NULL: the contact name, if it is a name */
} cqlring_tls_options;

enum { CQLRING_AUTH_STATE_SIZE = 256, CQLRING_AUTH_REFUSE = -2 };

/* One connection's authentication, as an authenticator sees it; valid until the call returns. */
typedef struct cqlring_auth_exchange {
    const char *address;          /* of the node that asks */
    const char *authenticator;    /* class that it named */
    uint32_t round;               /* 0: it asks for the first time; then one more for each challenge answered */
    cqlring_bytes challenge;      /* up to 1 024 bytes; size −1 in round 0, and when it sent none. In finished: its last word */
    uint8_t *state;               /* CQLRING_AUTH_STATE_SIZE bytes for this connection, zero at first, wiped at the end */
} cqlring_auth_exchange;

/* SASL of your own. On a submitter, of several lanes at once if there are several; must not wait. */
typedef struct cqlring_authenticator {
    size_t struct_size;
    /* Writes a token of at most capacity (4 096) bytes and returns its size; −1: a null token; CQLRING_AUTH_REFUSE: the connection
       is given up as AUTH, with error's message (never put a secret there). The token is wiped once it is sent. */
    int32_t (*respond)(const cqlring_auth_exchange *exchange, uint8_t *token, uint32_t capacity, cqlring_error *error, void *context);
    /* The server lets us in. false: we do not believe it, and the connection is given up. NULL: believed. */
    bool (*finished)(const cqlring_auth_exchange *exchange, void *context);
    void *context;
} cqlring_authenticator;

/* SNAPPY is version 4's alone: on a connection that speaks 5 there is none then. Both are dropped when the server lacks them. */
typedef enum cqlring_compression { CQLRING_COMPRESSION_NONE = 0, CQLRING_COMPRESSION_LZ4 = 1, CQLRING_COMPRESSION_SNAPPY = 2 } cqlring_compression;

/* What an application's plan is told of the request … */
typedef struct cqlring_plan_query {
    int64_t token;                /* when has_token */
    uint8_t has_token, is_read, is_conditional;
    uint32_t attempts;            /* so far */
    uint64_t tag;
    const char *keyspace;         /* of the statement's table, or the session's */
} cqlring_plan_query;
/* … and of each node that is connected. */
typedef struct cqlring_plan_node {
    const cqlring_node *node;
    uint8_t replica;              /* 1 the primary, 2 the next, …; 0: none, or not known */
    uint8_t is_local, is_suspect, was_tried; /* was_tried: by this request */
    uint32_t in_flight;           /* on this lane's connection */
} cqlring_plan_node;

/* What an application's retry policy is told of an attempt that failed, and may answer. */
typedef enum cqlring_retry_decision {
    CQLRING_DECIDE_USUAL = 0,     /* as the library would */
    CQLRING_DECIDE_FAIL = 1,      /* the error is the outcome */
    CQLRING_DECIDE_SAME = 2,      /* once more on the same node, if it can take it */
    CQLRING_DECIDE_NEXT = 3,      /* on another one; a single request ends when all were tried */
    CQLRING_DECIDE_IGNORE = 4     /* a success without a result */
} cqlring_retry_decision;
typedef struct cqlring_error_detail cqlring_error_detail;
typedef struct cqlring_retry_query {
    cqlring_status status;        /* SERVER, LOST, TIMEOUT (of the attempt), … */
    uint8_t phase;                /* cqlring_phase; never NOT_SENT: that is sent elsewhere unasked */
    uint8_t is_idempotent, is_read, is_row; /* is_row: of a job with retries */
    uint16_t retries;             /* so far */
    cqlring_consistency consistency; /* that this attempt was made with */
    const cqlring_node *node;
    uint64_t tag;
    const cqlring_error *error;   /* borrowed, as is detail */
    const cqlring_error_detail *detail; /* NULL: it was not a server's ERROR */
    cqlring_retry_decision usual; /* what the library would do */
} cqlring_retry_query;

typedef struct cqlring_cluster_options {
    size_t struct_size;
    const char *contact_points;   /* "host", "host:port", "[v6]:port", "/unix/path", comma separated; NULL: 127.0.0.1. Names are
                                     looked up again when no node answers, and see resolve_interval_us; in caller mode, where that would block, at the open only */
    int32_t port;                 /* where none is given, and for nodes that do not say theirs: default 9042 */
    const char *user, *password;  /* PLAIN; NULL: none */
    const cqlring_authenticator *authenticator; /* in place of them; copied. NULL: none */
    const cqlring_tls_options *tls; /* NULL: no TLS */
    const char *local_datacenter; /* NULL: that of the first node contacted, and a warning in the log */
    int32_t protocol_version;     /* 0: 5, stepping down; 4 or 5: exactly this one */
    cqlring_compression compression;
    int64_t connect_timeout_us;   /* default 5 s: TCP + TLS + startup of one connection */
    int64_t heartbeat_us;         /* default 30 s; −1 none: OPTIONS on a connection that was silent so long */
    int64_t suspect_after_us;     /* default 2 s; −1 never: silent so long with requests waiting → no new rows, a probe */
    int64_t reconnect_min_us, reconnect_max_us; /* default 50 ms and 10 s */
    uint32_t inflight_per_connection; /* 1 … 16 384, default 1 024 */
    uint32_t orphans_max;         /* default 1 024: timed-out streams still waiting for their reply, then the connection is replaced */
    uint32_t frame_size_max;      /* default 256 MiB: a request with a larger reply fails (TOO_LARGE), and its connection is replaced */
    uint32_t request_size_max;    /* default 256 MiB: larger requests (values, text, payload; of a row its values) are refused with both sizes,
                                     before anything is sent; so is what no frame takes */
    const char *application_name, *application_version; /* sent in STARTUP */
    cqlring_tristate throw_on_overload; /* default: yes when retries are on: the server answers OVERLOADED instead of not reading */
    /* Told when a node comes and goes; NULL: nobody. On the submitter of lane 0, where it must not wait; never after the cluster's
       close has ended. A node is who it is by its host_id: at another address it is the same one (MOVED), another host_id at its
       address is another one (ADDED, and REMOVED). */
    void (*on_node)(const cqlring_node *node, cqlring_node_event event, void *context);
    void *on_node_context;
    /* Where to dial a node that the cluster announces at node->address: true and a literal "10.0.0.3:9042", "[v6]:port" or path
       written to address (size bytes), or false: there. Called on the submitter of lane 0 at each reading of the topology, for
       every node but that of the control connection, which is where it was dialled; must not wait. NULL: nothing is translated. */
    bool (*translate_address)(const cqlring_node_info *node, char *address, size_t size, void *context);
    void *translate_context;
    int64_t schema_agreement_us;  /* default 10 s; −1 none: how long a request that changed the schema waits, behind its answer, for
                                     the nodes that are up to agree on it; looked at every 200 ms (cqlring_result_schema_agreed) */
    cqlring_tristate schema_metadata; /* default: read when cqlring_schema_refresh is first called, kept up to date from then on;
                                         YES: from the open on; NO: never */

    /* Which nodes. Without these: the replicas of the local datacenter, the one with the fewest requests under way first, then any
       node of it. Conditional statements go to the first replica that lives. */
    const char *local_rack;       /* its replicas before those of other racks; needs local_datacenter. NULL: racks do not matter */
    const char *allow_nodes;      /* only these are connected to: addresses, with a port or for any, comma separated. NULL: all */
    const char *deny_nodes;       /* never these; both lists are about nodes of the cluster: contact points are still asked who they are */
    bool (*node_filter)(const cqlring_node_info *node, void *context); /* false: never this one; asked once for each new node, and when its address or release changes. Library thread */
    void *node_filter_context;
    uint32_t remote_nodes_max;    /* of each other datacenter, 0 … 64, default 0: connected to, and used while no local one is left that lives and was not tried */
    cqlring_tristate remote_local_consistency; /* default no: requests at LOCAL_ONE, LOCAL_QUORUM and LOCAL_SERIAL stay here: elsewhere it is another "local" */
    int64_t slow_after_us;        /* default 200 ms; −1 never: a replica with 10 requests waiting and silent so long comes after the others */
    /* The order in which nodes are to be tried, as indexes into nodes; returns how many. The first with room takes the request. 0: the
       usual choice. An order with an index twice, or none, is ignored and counted (plans_ignored). A pure function of what it is
       given, called for every attempt, of rows too. Library thread. */
    uint32_t (*plan)(const cqlring_plan_query *query, const cqlring_plan_node *nodes, uint32_t node_count, uint32_t *order, void *context);
    void *plan_context;
    /* After each attempt that failed, unless retries are off for the request. *consistency and *delay_us may be set for the next
       attempt: another level, and how long to wait (0: at once). It is asked for writes that are not idempotent too, and what it
       says is done. Time-outs of the whole request, cancels and closes are not asked about. A pure function; library thread. */
    cqlring_retry_decision (*retry_policy)(const cqlring_retry_query *query, cqlring_consistency *consistency, int64_t *delay_us, void *context);
    void *retry_context;
    cqlring_tristate shard_connections; /* default yes: one connection to each shard of a ScyllaDB node (a lane, within connections_max); no: one a node */
    cqlring_tristate shard_aware_port;  /* default yes, with client_routes no: where the server has one, shards are chosen by the local port; no: by trial on
                                           the ordinary port */
    int32_t local_port_min, local_port_max; /* for the shard-aware port, given together: 1 024 … 65 535, default 49 152 and 65 535 */
    uint32_t shard_busy_percent;  /* 1 … 100, default 50: with so much of inflight_per_connection under way on its shard's connection a row may take another one's */
    cqlring_tristate prepare_on_up; /* default yes: the statements that the application holds are prepared on a node that comes up, 16 at a time; no: when a
                                       request needs them there. Requests do not wait for it */
    cqlring_tristate prepare_on_all; /* default no: a node learns a statement when a request needs it there, unseen. Yes: when it is prepared, all
                                        nodes that are connected are told too, in the same way; cqlring_prepare does not wait for them */

    /* Sockets. */
    cqlring_tristate tcp_nodelay;   /* default yes: small requests leave at once */
    cqlring_tristate tcp_keepalive; /* default yes: the system asks a silent peer whether it is still there (beside heartbeat_us) */
    int64_t tcp_keepalive_us;       /* 1 s … 32 767 s, in whole seconds: silence before it first asks; default: the system's, two hours */
    uint32_t socket_send_size, socket_receive_size; /* bytes, 4 096 … 1 GiB: SO_SNDBUF, SO_RCVBUF; default: the system's, which adapts them */
    int64_t resolve_timeout_us;     /* default 5 s, −1 as long as it takes: then a name in contact_points counts as not known. Caller mode: the resolver's own time-out */
    cqlring_tristate report_configuration; /* default yes: options in force are told to the server, once, by the control connection (DRIVER_CONFIG in
                                       STARTUP, JSON): Cassandra and ScyllaDB show them to an operator in their tables of clients. Never a secret, an address or a path */
    int64_t resolve_interval_us;  /* default 300 s; −1 never: contact points that are names are looked up so often too. Where they lead is where the control
                                     connection goes when no known node answers, also when names cannot be looked up then. Not in caller mode */
    /* ScyllaDB's private links: connection ids, comma separated, at most 64 of at most 255 bytes; of two routes to a node that of the first
       one counts. A node that system.client_routes has a row for is dialled at that address and port (tls_port with TLS), the one of the
       control connection too; what translate_address is told is that place, and its word is the last. Names are looked up like those of
       contact_points, at each reading and every resolve_interval_us; in caller mode at the open only. Nodes without a row are dialled as
       announced. Read again when the server says so. NULL: nothing is asked for, nothing is read */
    const char *client_routes;
} cqlring_cluster_options;

/* Connects the control connection and reads the topology; the future is ready when one node has answered, or none of the
   contact points did: the message has what each said, the status is the reason if it was the same for all (AUTH, TLS,
   TIMEOUT, PROTOCOL, …), else UNREACHABLE. A local_datacenter that no node is in is told by the opening of a session.
   runtime NULL: the process default, made on first use. */
CQLRING_API cqlring_status cqlring_cluster_open(cqlring_runtime *runtime, const cqlring_cluster_options *options, cqlring_future **future, cqlring_error *error);
CQLRING_API cqlring_status cqlring_cluster_open_sync(cqlring_runtime *runtime, const cqlring_cluster_options *options, cqlring_cluster **cluster, cqlring_error *error);
/* Closes all its sessions and connections: what is under way may finish for drain_us (0: not at all, −1: as long as it
   takes), then is settled as CLOSED. Idempotent; joins nothing. future may be NULL. After it is ready no library thread
   runs a callback of this cluster. */
CQLRING_API cqlring_status cqlring_cluster_close(cqlring_cluster *cluster, int64_t drain_us, cqlring_future **future, cqlring_error *error);
CQLRING_API void cqlring_cluster_release(cqlring_cluster *cluster); /* the last release closes it undrained */

/* The nodes of the current topology, at most capacity; returns how many there are. Valid until the cluster's release. */
CQLRING_API uint32_t cqlring_cluster_nodes(const cqlring_cluster *cluster, const cqlring_node **nodes, uint32_t capacity);
CQLRING_API void cqlring_node_describe(const cqlring_node *node, cqlring_node_info *info); /* where it is now; strings live as long as the node */

/* ---- session ---------------------------------------------------------------------------------------------------- */

typedef struct cqlring_execution cqlring_execution;

typedef enum cqlring_event {
    CQLRING_EVENT_OTHER = 0,
    CQLRING_EVENT_CONNECTED = 1,       /* INFO */
    CQLRING_EVENT_CONNECTION_LOST = 2, /* WARN */
    CQLRING_EVENT_CONNECT_FAILED = 3,  /* WARN, and INFO each time it is tried again */
    CQLRING_EVENT_SUSPECT = 4,         /* WARN: silent with requests waiting, no new rows for it */
    CQLRING_EVENT_TRUSTED = 5,         /* INFO: it is heard from again */
    CQLRING_EVENT_OVERLOADED = 6,      /* WARN: it said so, and rests for a moment */
    CQLRING_EVENT_WARNING = 7,         /* WARN: what a server warns of with an answer */
    CQLRING_EVENT_GAVE_UP = 8          /* WARN: a request or row failed after it was tried again */
} cqlring_event;

/* Something that happened to a session; valid until the call returns. Never a secret, never a bound value. Grows at its end only. */
typedef struct cqlring_log_event {
    cqlring_log_level level;
    cqlring_event event;
    const char *message;          /* one line for people */
    const cqlring_node *node;     /* NULL: none */
    const char *address;          /* its; "" */
    const char *keyspace;         /* of the prepared statement's table, else the session's; "" */
    cqlring_bytes statement;      /* text of the prepared statement; data NULL: there is none. Other texts are not shown: they may hold values */
    cqlring_status status;        /* why; OK where nothing failed */
    int32_t server_code;          /* 0: it was no server's ERROR */
    uint32_t more;                /* events of this kind that were not told since the last one: of WARNING, GAVE_UP and OVERLOADED one a second is */
} cqlring_log_event;

typedef struct cqlring_session_options {
    size_t struct_size;
    const char *keyspace;         /* fixed for the session's life; NULL: none. Case-sensitive, without quotes */
    const cqlring_execution *execution; /* defaults of its requests; NULL: the library's */
    uint64_t bytes_max;           /* of its single executions under way, default 16 MiB */
    uint32_t requests_max;        /* single executions under way, default 8 192 */
    cqlring_log_level log_level;  /* of log, default WARN */
    /* What happens to this session, in place of the runtime's log, which has it only for sessions without one (two of one keyspace
       share connections: both are told). On a submitter, of several lanes at once if there are several; must not wait. Never after the session's close
       has ended. NULL: the runtime's log. */
    void (*log)(const cqlring_log_event *event, void *context);
    void *log_context;
} cqlring_session_options;

/* Ready when a node of the local datacenter is connected with the keyspace; else why none is: SERVER with the server's code
   (0x2200) and the node for an unknown keyspace, UNREACHABLE with the datacenters that there are when local_datacenter is none. */
CQLRING_API cqlring_status cqlring_session_open(cqlring_cluster *cluster, const cqlring_session_options *options, cqlring_future **future, cqlring_error *error);
CQLRING_API cqlring_status cqlring_session_open_sync(cqlring_cluster *cluster, const cqlring_session_options *options, cqlring_session **session, cqlring_error *error);
CQLRING_API cqlring_status cqlring_session_close(cqlring_session *session, int64_t drain_us, cqlring_future **future, cqlring_error *error); /* as cqlring_cluster_close */
CQLRING_API void cqlring_session_release(cqlring_session *session); /* the last release closes it undrained */

/* ---- how and what ----------------------------------------------------------------------------------------------- */

typedef enum cqlring_retry { CQLRING_RETRY_DEFAULT = 0, CQLRING_RETRY_NONE = 1 } cqlring_retry;

typedef struct cqlring_payload_entry {
    cqlring_bytes key, value;
} cqlring_payload_entry;

/* A request that waits long is sent to another node too; the first good answer counts, and the outcome is one as ever. Only for
   reads, and for writes marked idempotent; never for conditional statements, counter batches, changes of the schema, or with a
   target. An attempt that fails as another node might not (lost, overloaded, time-outs) leaves the race, any other error ends
   it. Copies carry the same timestamp. Precision: some 4 ms. */
typedef struct cqlring_speculation {
    size_t struct_size;
    uint32_t max;                 /* further attempts at once, each on a node of its own: 1 … 8; 0: none */
    int64_t delay_us;             /* so long without an answer, then the next one; 0: all as soon as may be */
    double percentile;            /* above 0, below 100: that of the latencies of the session's latest requests that ask for one, all nodes
                                     together, and delay_us at least; nothing is sent twice before 64 answers. 0: delay_us alone */
} cqlring_speculation;

/* How a request runs. Zero means the session's default. */
struct cqlring_execution {
    size_t struct_size;
    int64_t timeout_us;           /* −1 none */
    int64_t attempt_timeout_us;   /* −1 none; default 3 s for writes marked idempotent, none for all others */
    cqlring_consistency consistency, serial_consistency;
    int32_t page_size;            /* −1 unpaged */
    cqlring_tristate idempotent;  /* default no */
    cqlring_tristate tracing;
    cqlring_retry retry;
    int64_t timestamp_us;         /* 0: made by the client, monotonic; INT64_MIN: none sent, the server's clock */
    int32_t now_in_seconds;       /* v5; 0: none. The server's clock for TTLs, for tests */
    cqlring_bytes keyspace;       /* v5, unprepared text: instead of the session's */
    cqlring_bytes paging_state;   /* where to go on reading; data NULL: at the start */
    const cqlring_payload_entry *payload; /* custom payload */
    uint32_t payload_count;
    const cqlring_node *target;   /* send it to this node only */
    const cqlring_speculation *speculation; /* read during the call; default none */
    cqlring_tristate prefetch;    /* default no; yes: the page after this one is asked for when this one has come, so that it is under way or there when
                                     cqlring_next_page asks. One page ahead, in the result's memory: it goes with the result. Jobs: while the sink has this one,
                                     when it is within bytes_max */
};

typedef enum cqlring_batch_kind { CQLRING_BATCH_LOGGED = 0, CQLRING_BATCH_UNLOGGED = 1, CQLRING_BATCH_COUNTER = 2 } cqlring_batch_kind;

typedef struct cqlring_batch_child {
    cqlring_prepared *prepared;   /* or text */
    cqlring_bytes cql;
    const cqlring_bytes *values;
    uint32_t value_count;
} cqlring_batch_child;

typedef struct cqlring_batch {
    cqlring_batch_kind kind;
    const cqlring_batch_child *children; /* 1 … 65 535; an empty batch is INVALID */
    uint32_t count;
} cqlring_batch;

/* One request: a prepared statement with its values, a text (with values or not), or a batch. All memory is the
   caller's and free again when the call returns. */
typedef struct cqlring_request {
    cqlring_session *session;
    cqlring_prepared *prepared;   /* exactly one of prepared, cql and batch */
    cqlring_bytes cql;
    const cqlring_bytes *values;  /* one per bind marker, encoded (cqlring_values.h); not with a batch, whose children have them */
    uint32_t value_count;
    const cqlring_batch *batch;
    const cqlring_execution *execution; /* NULL: the session's */
    uint64_t tag;                 /* comes back in the completion */
} cqlring_request;

/* ---- prepared statements ---------------------------------------------------------------------------------------- */

typedef struct cqlring_column {
    const char *keyspace, *table, *name;
    const cqlring_type *type;     /* lives with the prepared statement or result it came from */
} cqlring_column;

/* The same text in the same keyspace gives the same statement on all sessions of a cluster; a session asks for it once,
   however many threads want it at the same time. Re-prepared on nodes that do not know it, inside the driver. how:
   keyspace (v5), timeout_us and payload are used; NULL: the session's. */
CQLRING_API cqlring_status cqlring_prepare(cqlring_session *session, cqlring_bytes cql, const cqlring_execution *how, cqlring_future **future, cqlring_error *error);
CQLRING_API cqlring_status cqlring_prepare_sync(cqlring_session *session, const char *cql, cqlring_prepared **prepared, cqlring_error *error);
CQLRING_API void cqlring_prepared_release(cqlring_prepared *prepared);
CQLRING_API uint32_t cqlring_prepared_bind_count(const cqlring_prepared *prepared);
/* The i-th bind marker or result column; false when there is none. Strings live as long as the statement. */
CQLRING_API bool cqlring_prepared_bind_column(const cqlring_prepared *prepared, uint32_t index, cqlring_column *column);
CQLRING_API bool cqlring_prepared_result_column(const cqlring_prepared *prepared, uint32_t index, cqlring_column *column);
/* Markers of that name by CQL's rules: "quoted" matches exactly, otherwise lower-cased. Call with from 0, then the last
   answer + 1, until −1: the same name may stand several times. */
CQLRING_API int32_t cqlring_prepared_find(const cqlring_prepared *prepared, const char *name, uint32_t from);

/* Where a row goes. Replicas in the server's order, primary first, all datacenters; none when they are not known (another
   partitioner or replication strategy, the keyspace was not read, or it is spread by tablets and no reply has told of this one yet). */
typedef struct cqlring_replica {
    const cqlring_node *node;     /* valid until the cluster's release */
    int32_t shard;                /* of a ScyllaDB node; −1: it has none, or no connection to it has told of them */
} cqlring_replica;
enum { CQLRING_REPLICAS_MAX = 16 };
typedef struct cqlring_route {
    int64_t token;
    uint32_t replica_count;
    cqlring_replica replicas[CQLRING_REPLICAS_MAX];
    uint64_t request_size;        /* bytes of a request of this row alone, uncompressed, by the session's defaults, frame header and all */
    uint64_t batch_size;          /* what it adds to a batch; with a batch's own bytes, at most CQLRING_BATCH_HEAD_MAX, their sum is its size */
} cqlring_route;
enum { CQLRING_BATCH_HEAD_MAX = 32 }; /* without a keyspace of its own and a payload */
/* By the statement's partition key, with the topology of now. INVALID when the values do not name a partition: there are more or fewer
   than markers, one of the key is null, unset or more than 65 535 bytes (4 096 all together), or the statement does not bind all of
   the key. TYPE when a value has not the size of its marker's type. FORKED in a child of the process that prepared it. route is
   written when OK; when the values do not name a partition its sizes are told, all else is zero. */
CQLRING_API cqlring_status cqlring_route_of(const cqlring_prepared *prepared, const cqlring_bytes *values, uint32_t value_count, cqlring_route *route, cqlring_error *error);

/* ---- outcomes --------------------------------------------------------------------------------------------------- */

enum { /* cqlring_completion.flags */
    CQLRING_COMPLETION_VOID = 1,             /* plain VOID answer: no result */
    CQLRING_COMPLETION_LAST = 2,             /* of its row: no further page follows */
    CQLRING_COMPLETION_MAYBE_APPLIED = 4,    /* it failed, and the write may have happened */
    CQLRING_COMPLETION_WARNINGS = 8          /* the result carries warnings */
};

typedef struct cqlring_completion {
    uint64_t row;                 /* index in the source (0, 1, …), or in the queue's order of acceptance */
    uint64_t tag;
    int64_t received_us;          /* CLOCK_MONOTONIC, read once a batch */
    uint32_t queued_us, in_flight_us;
    uint16_t status;              /* cqlring_status */
    uint8_t phase, flags;         /* cqlring_phase; CQLRING_COMPLETION_… */
    uint16_t attempts, reserved;
    const cqlring_node *node;     /* coordinator; NULL when none was chosen */
    cqlring_result *result;       /* NULL for a plain VOID and for failures */
    const cqlring_error *error;   /* NULL when it succeeded */
} cqlring_completion;

/* One attempt that failed. */
typedef struct cqlring_attempt {
    int64_t failed_us;            /* CLOCK_MONOTONIC, of the turn */
    const cqlring_node *node;     /* to which it was sent, or was to be */
    int32_t server_code;          /* of its ERROR; 0 when it was none */
    uint16_t status;              /* cqlring_status */
    uint8_t phase, reserved;      /* cqlring_phase */
} cqlring_attempt;
enum { CQLRING_ATTEMPTS_MAX = 8 };

/* What a server's ERROR said beyond code and message. Slices live as long as the completion. */
struct cqlring_error_detail {
    int32_t server_code;
    cqlring_bytes message;        /* the full text */
    cqlring_consistency consistency;
    int32_t required, received, alive, failures;
    cqlring_bytes write_type;     /* "SIMPLE", "BATCH", … */
    uint8_t data_present;
    cqlring_bytes reasons;        /* v5: raw reason map, [inetaddr][short] each */
    cqlring_bytes keyspace, table, function;
    uint8_t rate_limited;         /* ScyllaDB: the partition's rate limit was reached, whatever code was negotiated for it */
    uint8_t rate_limit_op;        /* 0 read, 1 write */
    uint8_t rejected_by_coordinator; /* no replica has seen it */
    const cqlring_attempt *attempts; /* those that failed, oldest first; of more than CQLRING_ATTEMPTS_MAX the last ones */
    uint32_t attempt_count;
};
/* false when it was not a server's ERROR: then only the attempts are told, and all else is zero. Nothing is written when it succeeded. */
CQLRING_API bool cqlring_completion_detail(const cqlring_completion *completion, cqlring_error_detail *detail);
/* In a sink: the cells of a row that failed, as the source gave them, to be kept for another try elsewhere. Fills up to capacity
   and returns how many the row had; 0 when it did not fail, is no job's, or there was no memory to keep them. Slices live until deliver returns. */
CQLRING_API uint32_t cqlring_completion_cells(const cqlring_completion *completion, cqlring_bytes *cells, uint32_t capacity);
/* Gives back what reap handed out. */
CQLRING_API void cqlring_completions_release(cqlring_completion *completions, uint32_t count);

/* ---- 1. one request → a future ---------------------------------------------------------------------------------- */

/* Values are encoded on the calling thread. FULL: requests_max or bytes_max of the session are under way; nothing was
   accepted. */
CQLRING_API cqlring_status cqlring_execute(const cqlring_request *request, cqlring_future **future, cqlring_error *error);
/* What to wait for after FULL: ready (OK) as soon as the session has room for one more request of so many bytes (of text and values
   with their lengths; 0: whatever its size). Who asked first is told first, and as many at once as there is room for; it is told,
   not kept: when somebody else was quicker, execute says FULL and one asks again. TIMEOUT when timeout_us (0 no wait, −1 for ever)
   passed first, CLOSED when the session was closed; cqlring_future_cancel ends it. */
CQLRING_API cqlring_status cqlring_session_room(cqlring_session *session, uint64_t bytes, int64_t timeout_us, cqlring_future **future, cqlring_error *error);
/* The same and wait. result may be NULL (nobody wants it); it is set to NULL for a plain VOID, else it is the caller's to
   release. */
CQLRING_API cqlring_status cqlring_execute_sync(const cqlring_request *request, cqlring_result **result, cqlring_error *error);

/* ---- 2. a job: the library pulls rows and delivers outcomes ------------------------------------------------------ */

typedef struct cqlring_row {
    const cqlring_bytes *cells;   /* one per bind marker; valid until the next call of next */
    uint32_t cell_count;          /* 0: as many as the statement has markers */
    uint32_t statement;           /* index into the job's statements */
    int64_t timestamp_us;         /* 0: made by the client */
    uint64_t tag;
} cqlring_row;

enum { CQLRING_SOURCE_END = 0, CQLRING_SOURCE_LATER = -1, CQLRING_SOURCE_FAILED = -2 };

typedef struct cqlring_source {
    /* Fill up to capacity (≤ 256) rows, every field of each (they are not cleared before); return how many, or END, LATER
       (nothing now: called again at *wake_at_us on the monotonic clock, if set, or after cqlring_job_poke) or FAILED with
       the error filled. Submitter thread; must not wait. */
    int32_t (*next)(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context);
    void *context;
} cqlring_source;

typedef enum cqlring_verdict {
    CQLRING_CONTINUE = 0, /* accepted */
    CQLRING_STOP = 1,     /* accepted; no further row is issued, what is in flight is still delivered */
    CQLRING_LATER = 2     /* not accepted: the same completions come again, first, after cqlring_job_poke. When the session or the cluster is
                             closed undrained, or its drain time is over, all outcomes come a last time, and the verdict is ignored */
} cqlring_verdict;

typedef struct cqlring_sink {
    /* Up to 256 completions, borrowed until it returns (a result may be retained). Submitter thread; must not wait. */
    cqlring_verdict (*deliver)(const cqlring_completion *completions, uint32_t count, void *context);
    void *context;
} cqlring_sink;

/* Rows of one partition that were pulled together go as one UNLOGGED batch: one request, one mutation, one answer. It pays when the
   source has rows of the same partition close to one another; rows of other partitions cost a look.

   Together go INSERTs, UPDATEs and DELETEs of one whole row of the same table, with the same partition key and the same timestamp_us.
   Never counters, lightweight transactions, reads, deletions of more than one row, or statements about a static column: these go
   alone. A batch has one timestamp, so rows of the same primary key never share one: the later one goes later and wins, as ever. For
   that the schema must have been read (schema_metadata, cqlring_schema_refresh), else INVALID. Rows whose statement has markers with
   names (:name), or whose clustering columns have types with several forms of one value (decimal, varint, boolean, floating point,
   and what is made of other types) go alone then. Which statements' rows go alone, and why, is told to the log once a job: INFO, or WARN
   when that is so of all of them.

   All else is as it is for rows alone. window, rows_max, errors_max, ordered and the summary count rows. A job that ends early leaves
   no holes: a row that was not sent, while later ones went with those of their partition, gets its outcome: CANCELLED (CLOSED at a
   close), not sent. Each row has its outcome: of
   a batch that failed, the batch's error. One that the server calls invalid (0x2200) is halved until the row that is wrong fails by
   itself. When it was too large, half of its size (256 at least) is the limit for further ones of the cluster; doubled after a minute,
   and twice as long after each time that is refused, an hour at most. Retries, time-outs, speculation and
   attempts are the batch's; warnings come with its first row. Not with tracing (INVALID). */
typedef struct cqlring_batch_by_partition {
    size_t struct_size;
    uint32_t rows_max;            /* of a batch: 2 … 256, default 64 */
    uint32_t bytes_max;           /* of its statements' ids and values: 256 … 16 777 216, default 32 KiB; a larger row goes alone */
    uint32_t look_rows;           /* pulled and looked at together: 2 … 256, default half the window (256 at most). While rows are under
                                     way nothing is pulled before there is room for so many; what a source gives is never waited with */
    uint8_t distinct;             /* 1: your word that no two rows of the job write the same cell, or delete what another one writes:
                                     no schema is needed, and every plain write with a bound partition key may join */
} cqlring_batch_by_partition;

typedef struct cqlring_job_options {
    size_t struct_size;
    uint32_t window;              /* rows issued and not yet accepted by the sink: 1 … 32 768; per source. 0: each connection (node or shard)
                                     takes as many as make it faster, at least 16, at most 1 024 or inflight_per_connection; less once it
                                     says that it is overloaded. Of one source 2 048 in all. With
                                     batch_by_partition 256, fixed */
    uint64_t bytes_max;           /* default 16 MiB: rows under way and their expected replies */
    uint64_t errors_max;          /* failed rows after which issuing ends at once: 0 no limit, 1 the first */
    uint64_t rows_max;            /* stop after so many rows; 0: the source decides */
    double rows_per_s, bytes_per_s; /* 0: no limit */
    uint8_t ordered;              /* 1: outcomes in the source's order. Rows are under way together all the same, and may be applied in any */
    uint8_t skip_successes;       /* 1: only failures and rows with a result are delivered */
    const cqlring_execution *execution; /* NULL: the session's */
    const cqlring_batch_by_partition *batch_by_partition; /* read during the call; NULL: each row is a request of its own */
} cqlring_job_options;

typedef struct cqlring_summary {
    uint64_t rows;                /* settled: every issued row once */
    uint64_t failed;
    uint64_t may_have_been_applied; /* of the failed ones */
    uint64_t retries;
    uint64_t low_water;           /* all rows below this index are settled and accepted by the sink; only with one source. At the end it is `rows` */
    uint64_t bytes_sent;          /* values */
    int64_t started_us, ended_us; /* monotonic; ended_us 0 while it runs */
} cqlring_summary;

/* Rows of each source, by the statement they name, until the sources end; outcomes to the sink of the same index. The
   window is kept full all the time. The future is ready when every issued row has been settled and delivered; its status
   is OK, or why the job ended early (the source's own error, the error that reached errors_max, CANCELLED, CLOSED).
   sinks NULL: nobody wants the outcomes, failures are counted. Failed rows alone leave the job's status OK: look at the
   summary. The three arrays are copied, the statements held; contexts must live until the future is ready. One pair a
   lane is the way to use several lanes. */
CQLRING_API cqlring_status cqlring_execute_concurrent(cqlring_session *session, cqlring_prepared *const *statements, uint32_t statement_count,
                                                      const cqlring_source *sources, const cqlring_sink *sinks, uint32_t pair_count,
                                                      const cqlring_job_options *options, cqlring_future **future, cqlring_error *error);
CQLRING_API void cqlring_job_poke(cqlring_future *job);      /* its sources and sinks are asked again */
CQLRING_API void cqlring_job_pause(cqlring_future *job);     /* no further row is taken until resume; what was taken is tried again, and
                                                                waits for its partition's rate limit, as ever */
CQLRING_API void cqlring_job_resume(cqlring_future *job);
CQLRING_API void cqlring_job_rate(cqlring_future *job, double rows_per_s, double bytes_per_s); /* from now on; what is not positive and finite: no limit */
CQLRING_API void cqlring_job_summary(const cqlring_future *job, cqlring_summary *summary); /* during and after the job */

/* ---- 3. a queue: the application submits and reaps --------------------------------------------------------------- */

typedef struct cqlring_queue_options {
    size_t struct_size;
    cqlring_session *session;
    uint32_t capacity;            /* requests accepted and not yet reaped: 1 … 32 768, default 1 024 */
    uint64_t bytes_max;           /* default 16 MiB */
} cqlring_queue_options;

CQLRING_API cqlring_status cqlring_queue_open(const cqlring_queue_options *options, cqlring_queue **queue, cqlring_error *error);
CQLRING_API uint32_t cqlring_queue_room(const cqlring_queue *queue);
/* Takes requests in order until one does not fit; *accepted tells how many. OK also when accepted < count because the queue is
   full; another status is that of the first request not taken. Their session is NULL or the queue's. Many threads may submit. */
CQLRING_API cqlring_status cqlring_queue_submit(cqlring_queue *queue, const cqlring_request *requests, uint32_t count, uint32_t *accepted, cqlring_error *error);
/* Room for size bytes into which the caller encodes [short n] and n [value]s in place: one copy less. It counts in capacity and
   bytes_max at once. Commit sends what is there, size bytes of it, as request (whose values are not looked at; no batch): number
   and sizes are checked as those of other values are. Size 0 gives the room back. Whatever commit answers, the room is gone,
   unless queue or at was NULL; give it back before the queue's release. Any thread. */
CQLRING_API cqlring_status cqlring_queue_reserve(cqlring_queue *queue, uint32_t size, uint8_t **at, cqlring_error *error);
CQLRING_API cqlring_status cqlring_queue_commit(cqlring_queue *queue, uint8_t *at, const cqlring_request *request, uint32_t size, cqlring_error *error);
/* Completions, oldest first, up to capacity; waits until `want` are there, for timeout_us (0 no wait, −1 for ever), or for
   the close, and *status (may be NULL) says which (OK, TIMEOUT, CLOSED); want 0 is 1, so an empty queue without a wait is
   TIMEOUT. One reaping thread at a time. They are the caller's: cqlring_completions_release. */
CQLRING_API uint32_t cqlring_queue_reap(cqlring_queue *queue, cqlring_completion *completions, uint32_t capacity, uint32_t want, int64_t timeout_us, cqlring_status *status);
/* Made and armed on the first call. When readable: reap until a reap returns fewer than capacity, which re-arms it; now and then
   there is nothing. For ever readable once closed. The queue's: do not close. −1 when none can be had. */
CQLRING_API int cqlring_queue_fd(cqlring_queue *queue);
CQLRING_API uint64_t cqlring_queue_low_water(const cqlring_queue *queue);
/* Requests with this tag are asked to end; each still gets its completion. CLOSED: the runtime is no more. Any thread. */
CQLRING_API cqlring_status cqlring_queue_cancel(cqlring_queue *queue, uint64_t tag);
/* Returns at once: in-flight ones settle silently, completions that were not reaped are dropped, a reap answers CLOSED. */
CQLRING_API void cqlring_queue_abandon(cqlring_queue *queue);
CQLRING_API void cqlring_queue_close(cqlring_queue *queue);    /* no more submits; what was accepted still comes; waiters wake at the end */
CQLRING_API void cqlring_queue_release(cqlring_queue *queue);

/* ---- futures: one word; nothing else exists until someone waits --------------------------------------------------- */

CQLRING_API bool cqlring_future_ready(const cqlring_future *future);
/* OK and what became of it, or TIMEOUT when timeout_us (0 no wait, −1 for ever) passed first. error is filled for both.
   From a callback INVALID, unless it is ready. In caller mode it runs the turns. */
CQLRING_API cqlring_status cqlring_future_wait(cqlring_future *future, int64_t timeout_us, cqlring_error *error);
/* One only: a second is refused with INVALID. On the submitter; inline when already ready. It holds a reference of
   its own until it has returned. */
CQLRING_API cqlring_status cqlring_future_on_ready(cqlring_future *future, void (*call)(cqlring_future *future, void *context), void *context);
/* Ask it to end: not yet sent → CANCELLED; sent → CANCELLED, may have been applied. A job ends when its in-flight rows have. */
CQLRING_API void cqlring_future_cancel(cqlring_future *future);
CQLRING_API void cqlring_future_retain(cqlring_future *future);
CQLRING_API void cqlring_future_release(cqlring_future *future);
/* Borrowed from the future; NULL before it is ready or when it is not of that kind. */
CQLRING_API const cqlring_completion *cqlring_future_completion(const cqlring_future *future);
/* A reference of the caller's own; NULL when it is not ready, failed, or not of that kind. */
CQLRING_API cqlring_cluster *cqlring_future_cluster(const cqlring_future *future);
CQLRING_API cqlring_session *cqlring_future_session(const cqlring_future *future);
CQLRING_API cqlring_prepared *cqlring_future_prepared(const cqlring_future *future);

/* ---- results: slices into the received block, valid until the last release --------------------------------------- */

CQLRING_API cqlring_result *cqlring_result_retain(cqlring_result *result);
CQLRING_API void cqlring_result_release(cqlring_result *result);
CQLRING_API uint32_t cqlring_result_row_count(const cqlring_result *result);    /* of this page; 0 when it is not rows */
CQLRING_API uint32_t cqlring_result_column_count(const cqlring_result *result);
CQLRING_API bool cqlring_result_column(const cqlring_result *result, uint32_t index, cqlring_column *column);
/* Cells of up to row_capacity rows from row `from` on: cells[row × columns + column]; slices valid until the result's
   last release. Reading on from where the last call ended is O(1) a row. *count 0: no more. */
CQLRING_API cqlring_status cqlring_result_rows(cqlring_result *result, uint32_t from, cqlring_bytes *cells, uint32_t row_capacity, uint32_t *count, cqlring_error *error);
CQLRING_API cqlring_bytes cqlring_result_paging_state(const cqlring_result *result); /* data NULL: this was the last page */
/* Conditional statements: 1 applied, 0 not, −1 when the result has no [applied] column or no row. */
CQLRING_API int cqlring_result_applied(const cqlring_result *result);
CQLRING_API bool cqlring_result_trace_id(const cqlring_result *result, uint8_t trace_id[16]);
CQLRING_API uint32_t cqlring_result_warnings(const cqlring_result *result, cqlring_bytes *warnings, uint32_t capacity); /* how many there are */
CQLRING_API uint32_t cqlring_result_payload(const cqlring_result *result, cqlring_payload_entry *entries, uint32_t capacity);
/* SCHEMA_CHANGE and SET_KEYSPACE answers: what changed ("CREATED", "TABLE", keyspace, name); false when it is neither. */
CQLRING_API bool cqlring_result_schema_change(const cqlring_result *result, cqlring_bytes *change, cqlring_bytes *target, cqlring_bytes *keyspace, cqlring_bytes *name);
/* Of a SCHEMA_CHANGE: 1 when all nodes that were up had the new schema before the result was handed out, 0 when the wait
   (schema_agreement_us) ended before; −1 when nothing was waited for. */
CQLRING_API int cqlring_result_schema_agreed(const cqlring_result *result);
CQLRING_API size_t cqlring_result_pinned_size(const cqlring_result *result);   /* bytes of memory it keeps alive */
CQLRING_API cqlring_result *cqlring_result_detach(const cqlring_result *result); /* a copy that pins only itself; NULL when out of memory */
/* The next page of the same statement: a paged result keeps its request. how: what shall be different from here on (all
   but keyspace, payload and paging_state); NULL: nothing. INVALID when it was the last page, and for the result of a job. With prefetch
   the future may be ready, also with what went wrong meanwhile (asked once more, the page is read again); a page that was fetched otherwise than
   how says is dropped. */
CQLRING_API cqlring_status cqlring_next_page(cqlring_result *result, const cqlring_execution *how, cqlring_future **future, cqlring_error *error);

/* ---- traces: what the server wrote down of a request whose execution said `tracing` ------------------------------- */

typedef struct cqlring_schema_pair cqlring_schema_pair;

typedef struct cqlring_trace_event {
    const char *activity, *source, *thread; /* source: an address */
    int32_t elapsed_us;           /* at the source; −1 unknown */
} cqlring_trace_event;

typedef struct cqlring_trace {
    uint8_t id[16];
    const char *request, *command, *coordinator, *client; /* "" where the server does not say */
    int64_t started_ms;           /* since 1970 */
    int32_t duration_us;          /* −1: it had not come to its end */
    const cqlring_schema_pair *parameters;
    uint32_t parameter_count;
    const cqlring_trace_event *events; /* in the server's order */
    uint32_t event_count;
} cqlring_trace;
/* Read the trace of this id (cqlring_result_trace_id) from system_traces. The server writes it when the request is long
   answered: it is looked for again, for at most 5 s, then TIMEOUT. */
CQLRING_API cqlring_status cqlring_trace_fetch(cqlring_cluster *cluster, const uint8_t trace_id[16], cqlring_future **future, cqlring_error *error);
CQLRING_API const cqlring_trace *cqlring_future_trace(const cqlring_future *future); /* lives as long as the future; NULL: not ready, failed or not one */

/* ---- schema: what the cluster's keyspaces look like --------------------------------------------------------------- */

/* Names are as the server has them: case-sensitive, without quotes. Structs grow at their end only. */
struct cqlring_schema_pair {
    const char *name, *value;
};

typedef enum cqlring_column_kind { CQLRING_PARTITION_KEY = 0, CQLRING_CLUSTERING = 1, CQLRING_STATIC = 2, CQLRING_REGULAR = 3 } cqlring_column_kind;

typedef struct cqlring_schema_column {
    const char *name;
    const char *type_text;        /* as the server writes it */
    const cqlring_type *type;     /* NULL: not a type that this library can read */
    cqlring_column_kind kind;
    int32_t position;             /* in its key, from 0; −1 for the others */
    uint8_t is_descending;        /* clustering order */
} cqlring_schema_column;

typedef struct cqlring_schema_index {
    const char *name, *kind;      /* "COMPOSITES", "KEYS", "CUSTOM" */
    const char *target;           /* as in CREATE INDEX: "v", "values(tags)" */
    const cqlring_schema_pair *options; /* all of them: target and class_name too */
    uint32_t option_count;
} cqlring_schema_index;

typedef struct cqlring_schema_table {
    const char *keyspace, *name;
    uint8_t id[16];
    const cqlring_schema_column *const *columns; /* partition key, clustering, static, regular; the last two by name */
    uint32_t column_count, partition_key_count, clustering_count;
    const cqlring_schema_index *const *indexes;
    uint32_t index_count;
    const cqlring_schema_pair *options; /* of WITH, values as CQL writes them: "'text'", "{'class': '…'}", "864000" */
    uint32_t option_count;
    uint8_t is_view, is_counter, is_compact; /* materialized view; table of counters; COMPACT STORAGE */
    uint8_t includes_all_columns;            /* of a view: SELECT * */
    const char *base_table, *where_clause;   /* of a view, else "" */
} cqlring_schema_table;

typedef struct cqlring_schema_type { /* a user-defined type */
    const char *keyspace, *name;
    const cqlring_type *type;     /* of kind UDT, its fields its children; NULL: a field's type cannot be read */
    const char *const *field_names, *const *field_types; /* the types as the server writes them */
    uint32_t field_count;
} cqlring_schema_type;

typedef struct cqlring_schema_function { /* or aggregate; one entry for each list of argument types */
    const char *keyspace, *name;
    const char *const *argument_types, *const *argument_names; /* names: of functions only */
    uint32_t argument_count;
    const char *return_type;
    uint8_t is_aggregate;
    uint8_t called_on_null;       /* CALLED ON NULL INPUT */
    const char *language, *body;  /* of functions, else "" */
    const char *state_function, *state_type, *final_function, *initial; /* of aggregates; "" where there is none */
} cqlring_schema_function;

typedef struct cqlring_schema_keyspace {
    const char *name;
    const cqlring_schema_pair *replication; /* "class" among them */
    uint32_t replication_count;
    uint8_t durable_writes;
    uint8_t is_virtual;           /* Cassandra's virtual tables */
    const cqlring_schema_table *const *tables; /* by name, materialized views among them */
    uint32_t table_count;
    const cqlring_schema_type *const *types; /* by name */
    uint32_t type_count;
    const cqlring_schema_function *const *functions; /* by name */
    uint32_t function_count;
    int8_t tablets;               /* ScyllaDB: 1 by tablets, 0 not; −1 when the server does not say */
} cqlring_schema_keyspace;

/* The newest snapshot: a reference of the caller's own, which stays as it is for ever. NULL: none has been read. What it hands
   out lives as long as it. */
CQLRING_API cqlring_schema *cqlring_schema_get(cqlring_cluster *cluster);
CQLRING_API void cqlring_schema_release(cqlring_schema *schema);
/* Reads all of it; ready when cqlring_schema_get hands out what was read after this call, or with the reason why it could not be
   read, or TIMEOUT after 60 s. After the first one the snapshot is kept up to date: what changed is read again 1 s after an event
   told of it. */
CQLRING_API cqlring_status cqlring_schema_refresh(cqlring_cluster *cluster, cqlring_future **future, cqlring_error *error);
/* Ready when all nodes that are up have the same schema; TIMEOUT when they had not in timeout_us (0: schema_agreement_us). */
CQLRING_API cqlring_status cqlring_schema_agree(cqlring_cluster *cluster, int64_t timeout_us, cqlring_future **future, cqlring_error *error);
/* All keyspaces by name; returns how many. */
CQLRING_API uint32_t cqlring_schema_keyspaces(const cqlring_schema *schema, const cqlring_schema_keyspace *const **keyspaces);
/* By name; NULL: there is none. A table may be a materialized view. All these arrays are sorted by strcmp. */
static inline const cqlring_schema_keyspace *cqlring_schema_find_keyspace(const cqlring_schema *schema, const char *keyspace)
{
    const cqlring_schema_keyspace *const *all = NULL;
    uint32_t low = 0, high = cqlring_schema_keyspaces(schema, &all);
    while (keyspace != NULL && low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(keyspace, all[middle]->name);
        if (order == 0)
            return all[middle];
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
static inline const cqlring_schema_table *cqlring_schema_find_table(const cqlring_schema *schema, const char *keyspace, const char *table)
{
    const cqlring_schema_keyspace *in = cqlring_schema_find_keyspace(schema, keyspace);
    uint32_t low = 0, high = in != NULL && table != NULL ? in->table_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(table, in->tables[middle]->name);
        if (order == 0)
            return in->tables[middle];
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
static inline const cqlring_schema_type *cqlring_schema_find_type(const cqlring_schema *schema, const char *keyspace, const char *type)
{
    const cqlring_schema_keyspace *in = cqlring_schema_find_keyspace(schema, keyspace);
    for (uint32_t i = 0; in != NULL && type != NULL && i < in->type_count; ++i)
        if (strcmp(type, in->types[i]->name) == 0)
            return in->types[i];
    return NULL;
}

typedef enum cqlring_schema_part {
    CQLRING_SCHEMA_KEYSPACE = 0,  /* CREATE KEYSPACE; name is not used */
    CQLRING_SCHEMA_ALL = 1,       /* that, and then everything in it, in an order in which it can be made; name is not used */
    CQLRING_SCHEMA_TABLE = 2,     /* or materialized view; without its indexes */
    CQLRING_SCHEMA_TYPE = 3,
    CQLRING_SCHEMA_INDEX = 4,
    CQLRING_SCHEMA_FUNCTION = 5   /* or aggregate: all of that name */
} cqlring_schema_part;
/* The CQL that makes this part of a schema again, statements ended by ";\n", NUL-terminated and cut to capacity bytes (text may
   be NULL when that is 0). Returns the size of the whole without the NUL; 0: there is no such thing. Not in it: masks of
   columns, triggers, dropped columns, and what ScyllaDB keeps in scylla_tables. */
CQLRING_API size_t cqlring_schema_text(const cqlring_schema *schema, cqlring_schema_part part, const char *keyspace, const char *name, char *text, size_t capacity);

#ifdef __cplusplus
} /* extern "C" */
static_assert(sizeof(cqlring_completion) == 64, "a completion is one cache line");
#else
_Static_assert(sizeof(cqlring_completion) == 64, "a completion is one cache line");
#endif

#include "cqlring_operations.h"

#endif
