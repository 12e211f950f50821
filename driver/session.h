/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SESSION_H
#define CQR_SESSION_H

/* Clusters, sessions, and the pools of connections beneath them.

   A pool holds a lane's connections for one (cluster, keyspace): a link to every node of the topology. Sessions with the
   same keyspace share it (decision 33). Pools and links belong to the lane's submitter. */

#include "driver/batch_limit.h"
#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/log.h"
#include "driver/policy_nodes.h"
#include "driver/prepared.h"
#include "driver/resolve.h"
#include "driver/tablets.h"
#include "driver/topology.h"

struct client_routes;
struct control;
struct conn_record;
struct tls_settings;
struct latency;

enum handle_state { HANDLE_OPENING, HANDLE_OPEN, HANDLE_CLOSING, HANDLE_CLOSED };

struct cqlring_cluster {
    atomic_uint references;
    atomic_uint handles;                /* of them, those of the application and of sessions: the last one's release closes it */
    atomic_uint given;                  /* of them, the application's */
    uint32_t fork_generation;
    struct runtime_core *runtime;       /* a reference */
    struct cqlring_cluster *next, **link; /* in the runtime's list */
    atomic_uint state;                  /* enum handle_state */
    uint32_t number;                    /* among the runtime's, from 1 */

    /* options, constant */
    struct contact_point *points;
    uint32_t point_count;
    uint16_t port;
    char *user, *password;
    cqlring_authenticator authenticator; /* respond NULL: none */
    bool has_tls;                       /* constant once open */
    struct tls_context *tls;            /* the newest, under the lock: cqr_cluster_tls. NULL: no TLS */
    struct tls_settings *tls_settings;  /* what it was made from, likewise */
    pthread_mutex_t reload_lock;        /* one reload at a time */
    char *local_datacenter;             /* NULL: guessed */
    struct handshake_config config;
    char *application_name, *application_version;
    struct socket_options socket;
    char *report;                       /* JSON, for DRIVER_CONFIG (report.h); NULL: nothing is told */
    char client_id[37];
    int64_t resolve_timeout_us;         /* −1: as long as it takes */
    int64_t connect_timeout_us, heartbeat_us, suspect_after_us, reconnect_min_us, reconnect_max_us;
    int64_t resolve_interval_us;        /* −1 never */
    uint32_t inflight_per_connection, orphans_max, frame_size_max, request_size_max;
    bool version_explicit;
    void (*on_node)(const cqlring_node *node, cqlring_node_event event, void *context);
    void *on_node_context;
    bool (*translate_address)(const cqlring_node_info *node, char *address, size_t size, void *context);
    void *translate_context;
    int64_t agreement_us;               /* −1: no wait */
    cqlring_tristate schema_metadata;
    struct node_policy policy;
    bool shard_connections, shard_aware_port;
    uint16_t local_port_min, local_port_max; /* to choose a shard by */
    struct client_routes *client_routes; /* NULL: none are wanted */
    uint32_t shard_busy_percent;
    bool prepare_on_up, prepare_on_all;
    struct batch_limit batch_limit;     /* of rows of one partition, learned */

    atomic_uint version;                /* protocol version in use, once known: all connections use it */

    pthread_mutex_t lock;               /* control plane: node table, current topology, sessions, prepared statements */
    struct cqlring_node **nodes;        /* interned, by index */
    uint32_t node_count, node_capacity;
    struct topology *topology;          /* the newest; never NULL once open */
    struct cqlring_schema *schema_now;  /* the newest; NULL: none was read */
    struct cqlring_session *sessions;   /* open ones, the newest first */
    uint64_t session_count;             /* opened so far */
    struct prepared_cache prepared;
    struct tablet_cache tablets;        /* what all pools have learned, for those who ask from outside (route_of.c); under the lock */
    struct conn_record *records;        /* open connections, under the lock */
    char guessed_datacenter[128];

    struct contacts *contacts;          /* lane 0's submitter, as the next four */
    struct control *control;
    struct agreement_desk *agreement;
    struct schema_desk *schema;
    struct trace_fetch *traces;         /* being read */
    _Atomic(struct cluster_close *) spare; /* so that it can be closed when memory is out */
    _Atomic(int64_t) timestamp_last_us; /* the generator's (decision 29) */
    struct opening *opening;            /* until the first answer; lane 0 */
};

struct pool_link {
    struct pool *pool;                  /* NULL: control's */
    struct cqlring_node *node;
    const struct node_place *place;     /* where its connections go: the node's, of the newest topology here */
    struct conn *conn;                  /* connecting or up; NULL: waiting for the timer, or given up */
    bool up;
    bool wanted;                        /* the node is in the topology (and local) */
    bool ever_up;
    bool seen;                          /* mark of cqr_pool_topology */
    bool remote;                        /* in another datacenter: for when no local node is left */
    bool retry_version;                 /* down because the version was refused: again, lower */
    uint8_t perhaps_version;            /* down without a word: this one may be wanted; 0: it is not that */
    uint32_t attempts;                  /* failed connects since the last success */
    unsigned arrivals;                  /* of its node, that are known (prepare_ahead.h) */
    struct timer timer;                 /* next connect */
    cqlring_status last_status;
    int32_t last_code;                  /* of the server's ERROR, 0: it was none */
    char last_text[300];                /* why the last connect failed */
    int64_t up_since_us;
    struct shard_set *shards;           /* conn and those to the node's other shards; NULL: it has none */
    /* control's link: it decides for itself */
    void (*changed)(struct lane *lane, struct pool_link *link, bool up);
    void (*event)(struct lane *lane, struct pool_link *link, const struct conn_event *event); /* NULL event: some were lost */
    void *context;
};

struct route_slot {
    uint64_t version;                   /* its number; 0: of none */
    struct replica_table *table;        /* NULL: no replicas known for its keyspace */
    struct tablet_table *tablets;       /* instead of it, in a keyspace of tablets; NULL: it has none */
    void *padding;                      /* found by a shift */
};

struct pool {
    struct pool *next;
    struct lane *lane;
    struct cqlring_cluster *cluster;
    char keyspace[64];
    struct handshake_config config;     /* the cluster's, with this keyspace */
    uint32_t users;                     /* sessions */
    struct topology *topology;          /* a reference */
    struct pool_link **links;           /* by node index; NULL: none */
    uint32_t link_count;
    struct pool_link *only;             /* the one link of a pool that has one, to a node without shards: nothing to choose */
    uint32_t up_count, connecting_count;
    uint32_t burst_count;               /* connections begun since … */
    int64_t burst_until_us;             /* … some milliseconds before this */
    uint32_t shards_connecting;         /* beyond the links' own */
    bool sharded;                       /* some node is, or was: rows need their token also where there is one node */
    uint32_t turn;                      /* round robin */
    bool routes_by_policy;              /* policy_nodes.h */
    struct session_opening *opening;    /* sessions that wait for the first connection */
    struct session_lane *listeners;     /* of the users, those with a log */
    struct replica_table *tables[8];    /* per keyspace, made when asked for */
    uint32_t table_count;
    struct route_slot routes[16];       /* by version's number */
    struct tablet_cache tablets;
    bool closing;
};

struct cqlring_session {
    uint32_t fork_generation;
    struct cqlring_cluster *cluster;    /* a reference */
    struct cqlring_session *next, **link;
    uint64_t number;                    /* of the cluster's, rising: the list has the newest first */
    atomic_uint state;
    char keyspace[64];
    struct op_plan defaults_plan;       /* of single requests, from the options */
    cqlring_execution defaults;         /* pointers cleared */
    uint64_t bytes_max;
    uint32_t requests_max;
    cqlring_log_level log_level;
    void (*log)(const cqlring_log_event *event, void *context); /* NULL: the runtime's */
    void *log_context;
    atomic_uint room_waiters;           /* room.h, as the next four */
    atomic_bool room_posted;
    struct lane_message room_message;
    struct room_wait *room_head, **room_tail; /* lane 0's submitter */
    _Atomic(struct closing *) spare;    /* so that it can be closed when memory is out */
    struct session_lane *lanes;         /* by lane; each touched by its submitter only */
    struct cqlring_queue *queues;       /* those on it, under the cluster's lock: their reapers are woken at the close */

    /* What every single request writes, away from what it only reads. */
    _Alignas(64) atomic_uint references;
    atomic_uint given;                  /* of them, the application's */
    atomic_uint next_lane;
    _Alignas(64) atomic_uint requests;  /* single executions under way */
    _Atomic(uint64_t) bytes;
};

struct session_lane {
    struct pool *pool;                  /* NULL: not open there, or closed */
    uint32_t open_ops;                  /* requests and job parts under way; a drain waits for 0 */
    bool closing;                       /* takes nothing new */
    bool aborted;                       /* the drain is over: what has not begun never will */
    struct latency *latency;            /* of answers, once a percentile is asked for; NULL: not yet */
    struct cqlring_session *session;
    struct session_lane *next_listener; /* of its pool; sessions with a log */
    struct log_limit log_limits[LOG_LIMITS];
    void *padding[5];                   /* found by a shift */
};
_Static_assert(sizeof(struct session_lane) == 128, "a power of two");

struct cqlring_cluster *cqr_cluster_retain(struct cqlring_cluster *cluster);
void cqr_cluster_release(struct cqlring_cluster *cluster);
struct cqlring_cluster *cqr_cluster_handle(struct cqlring_cluster *cluster); /* a reference that keeps it open */
void cqr_cluster_handle_release(struct cqlring_cluster *cluster);            /* one of those */
bool cqr_cluster_has(const struct cqlring_cluster *cluster, const struct cqlring_node *node); /* any thread */
struct cqlring_session *cqr_session_retain(struct cqlring_session *session);
void cqr_session_release(struct cqlring_session *session); /* NULL is fine; the last one closes it undrained */
/* The application gives back one of `given`. False: it has none; the log is told, and nothing must happen. */
bool cqr_handle_given_back(atomic_uint *given, const struct runtime_core *runtime, const char *call);
cqlring_status cqr_cluster_close(struct cqlring_cluster *cluster, int64_t drain_us, cqlring_future *future); /* future: NULL, or completed at the end */
cqlring_future *cqr_close_future(struct runtime_core *runtime);
int64_t cqr_cluster_timestamps(struct lane *lane, struct cqlring_cluster *cluster); /* takes a run of them and returns the first */
static inline int64_t cqr_cluster_timestamp(struct lane *lane, struct cqlring_cluster *cluster)
{
    if (lane->stamp_cluster == cluster && lane->stamp_next < lane->stamp_end && lane->stamp_turn == lane->now_us)
        return lane->stamp_next++;
    return cqr_cluster_timestamps(lane, cluster);
}
/* Checked and kept (socket_options.c). */
cqlring_status cqr_socket_options_take(const cqlring_cluster_options *options, struct socket_options *out, cqlring_error *error);
/* The version was refused: every connection of the cluster steps down. */
void cqr_cluster_version_lower(struct cqlring_cluster *cluster, uint8_t version);
/* cluster.c, lane 0's submitter: the first answer, or none. */
void cqr_cluster_opened(struct cqlring_cluster *cluster, struct failure *failure);

/* queue.c; under the cluster's lock: the session is closed, whoever waits for its queues is told. */
void cqr_queues_wake(struct cqlring_session *session);
/* session.c, submitter. Ops under way keep a draining close waiting. */
void cqr_session_op_begin(struct lane *lane, struct cqlring_session *session);
void cqr_session_op_end(struct lane *lane, struct cqlring_session *session);
bool cqr_session_takes(struct lane *lane, const struct cqlring_session *session); /* may new requests be issued on it? */
bool cqr_session_finishes(struct lane *lane, const struct cqlring_session *session); /* may those that were accepted? */
void cqr_close_timer(struct lane *lane, struct timer *timer);
/* Any thread: close it on every lane, then call done on the last one's submitter (or on this thread when the lanes have ended). */
cqlring_status cqr_session_close(struct cqlring_session *session, int64_t drain_us, void (*done)(void *context), void *context);
void cqr_session_pool_ready(struct lane *lane, struct session_opening *opening, const cqlring_error *why); /* NULL: it is up */
enum { AGREEMENT_DEFAULT_US = 10000000 };

/* control.c, submitter of lane 0 */
struct conn *cqr_control_conn(const struct cqlring_cluster *cluster); /* the control connection; NULL: there is none just now */
bool cqr_control_create(struct cqlring_cluster *cluster);
void cqr_control_start(struct cqlring_cluster *cluster);  /* any thread; resolves, then goes on on the lane */
void cqr_control_stop(struct lane *lane, struct cqlring_cluster *cluster);
void cqr_control_timer(struct lane *lane, struct timer *timer);
void cqr_control_free(struct control *control);

/* A session of this lane that waits for its pool. */
struct session_opening {
    struct session_opening *next;
    struct cqlring_session *session;
};

/* pool.c, submitter */
struct pool *cqr_pool_get(struct lane *lane, struct cqlring_cluster *cluster, const char *keyspace); /* users + 1; NULL: out of memory */
void cqr_pool_put(struct pool *pool);                     /* users − 1; the last one closes its connections */
void cqr_pool_topology(struct pool *pool, struct topology *topology);
void cqr_pool_wait(struct pool *pool, struct session_opening *opening); /* cqr_session_pool_ready when it is up, or cannot be */
void cqr_pool_node_hint(struct pool *pool, struct cqlring_node *node, bool up); /* STATUS_CHANGE: try at once, or probe */
void cqr_link_up(struct lane *lane, struct conn *conn);   /* COMPLETION_UP */
void cqr_link_down(struct lane *lane, struct conn *conn); /* COMPLETION_DOWN, after the slots were settled */
/* A connection that lived shorter, and answered nothing while it was up, counts as a failed connect (RC-24). */
enum { CONN_STABLE_US = 1000000 };
bool cqr_conn_was_useless(const struct lane *lane, const struct conn *conn);
void cqr_conn_trust(struct lane *lane, struct conn *conn);  /* heard from a suspect: no longer one */
/* Why no link is up; target: why the link to this node is not (NULL: any). */
void cqr_pool_reasons(struct lane *lane, const struct cqlring_session *session, const struct cqlring_node *target, char *text, size_t size);
void cqr_link_timer(struct lane *lane, struct pool_link *link);
void cqr_link_connect(struct lane *lane, struct pool_link *link);
/* The connection is not used any more: closed, but for what is under way on it, which is waited for. */
void cqr_conn_drain(struct lane *lane, struct conn *conn, const char *why);
void cqr_link_request(struct pool_link *link, struct conn_request *request); /* for a connection to its node; points into both */
void cqr_conn_watch(struct lane *lane, struct conn *conn); /* its watch timer fired: heartbeat, suspicion, connect time-out */

static inline bool cqr_op_was_tried(const struct op *op, const struct pool_link *link)
{
    return op->tried != 0 && (op->tried >> (link->node->index & 63) & 1) != 0;
}

/* Where there is one node without shards, there is nothing to choose: its connection when it takes a request now, else NULL (ask
   cqr_route). */
static inline struct conn *cqr_pool_only(const struct pool *pool)
{
    const struct pool_link *link = pool->only;
    return link != NULL && link->up && !link->conn->writer.suspect && cqr_writer_has_room(link->conn) ? link->conn : NULL;
}
static inline void cqr_pool_only_set(struct pool *pool) /* links or their shards have changed */
{
    pool->only = pool->link_count == 1 && pool->links[0] != NULL && pool->links[0]->shards == NULL ? pool->links[0] : NULL;
}

/* route.c, submitter: the connection that should take this op now. NULL: none can; *any_up tells whether one exists at all,
   *hope whether one may come soon (connecting). limit, when given, is a job's: its count by node index with a maximum, and whether
   the connections' adaptive windows hold for it. */
struct route_limit {
    uint32_t *on_node;
    uint32_t node_count;
    uint32_t max;
    bool adaptive;
    uint32_t retrying;              /* rows that are tried again: as good as under way */
};
static inline bool cqr_limit_on_node(const struct route_limit *limit, const struct pool_link *link)
{
    return limit == NULL || link->node->index >= limit->node_count || limit->on_node[link->node->index] < limit->max;
}
static inline bool cqr_limit_window(const struct route_limit *limit, struct conn *conn)
{
    return limit == NULL || !limit->adaptive || cqr_adapt_room(&conn->writer.adapt, conn->writer.in_flight + limit->retrying);
}
struct conn *cqr_route(struct lane *lane, struct op *op, const struct route_limit *limit, bool *any_up, bool *hope);
/* Of a sharded node that is up: the connection for this op, by its shard. NULL: none takes it now. */
struct conn *cqr_route_shard(const struct lane *lane, const struct op *op, const struct pool_link *link);
bool cqr_route_is_conditional(const struct op *op); /* or a batch with a condition in it, wherever it stands */
bool cqr_route_is_slow(const struct lane *lane, const struct conn *conn); /* silent with requests waiting, or resting after it was overloaded */
bool cqr_version_token(struct lane *lane, const struct statement_version *version, const cqlring_bytes *cells, int64_t *token);

#endif
