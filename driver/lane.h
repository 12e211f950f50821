/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_LANE_H
#define CQR_LANE_H

/* A lane: one reactor, one submitter, their connections and everything in flight. Lanes share nothing hot. Both sides are
   functions of `now` (reactor_turn, submitter_turn); who calls them is the runtime's choice of threads: two threads, one,
   the application's, or the simulator. */

#include <pthread.h>

#include "driver/conn.h"
#include "driver/inbox.h"
#include "driver/net.h"
#include "driver/park.h"
#include "driver/poller.h"
#include "driver/ring.h"
#include "driver/session_log.h"
#include "driver/stats.h"

struct runtime_core;
struct job_part;
struct partition_rest;
struct pool;

/* Anything another thread has for the submitter: pushed into the lane's inbox, run there once. */
struct lane_message {
    struct inbox_item item;
    void (*run)(struct lane *lane, struct lane_message *message);
};

enum {
    SEND_BLOCK_SIZE = 72 << 10,      /* holds FLUSH_SIZE and one small request more */
    FLUSH_SIZE = 64 << 10,
    RECEIVE_BLOCK_SIZE = 256 << 10,
    EVENTS_PER_WAIT = 64
};

/* Submitter → reactor: connections with command bits, and the stop. SPSC. */
struct command_ring {
    _Alignas(128) atomic_uint tail;
    _Alignas(128) atomic_uint head;
    _Alignas(128) uint32_t mask;
    struct conn **entries;
};

struct lane {
    struct runtime_core *runtime;
    uint32_t index;
    struct net *net;
    struct lane_message stop_message;

    /* reactor's */
    struct poller *poller;
    struct park reactor_park;        /* sleeps in the poller */
    struct block_pool *receive_pool;
    struct block *receive_block;     /* where connections without a torn frame read into */
    uint32_t block_references;       /* staged references to the block being parsed, added before publish */
    struct conn *unfinished;         /* reserved */
    atomic_uint reactor_rounds;      /* full poll-and-read rounds, for decision 10 */
    struct reactor_stats reactor_stats;
    uint32_t reactor_conns;          /* connections that it still has to close */

    /* between them */
    struct ring completions;
    struct command_ring commands;
    atomic_uint stop;                /* 1: the submitter is through; the reactor ends when its connections are closed */

    /* submitter's */
    _Alignas(128) struct inbox inbox;
    _Alignas(128) atomic_uint posters; /* threads inside cqr_lane_post; like the next one written with every post */
    struct park park;
    _Alignas(128) struct wheel wheel;
    int64_t now_us;                  /* this turn's */
    int64_t sleep_until_us;          /* planned; to notice gaps */
    struct op *ops;                  /* the pool */
    uint32_t op_count, ops_used, ops_fresh; /* of the pool: all, out, and how many were ever out */
    uint32_t orphans, orphans_max;   /* of all connections; what the completion ring has room for */
    struct op *op_free;
    struct op *waiting_head, *waiting_tail; /* OP_WAIT_CONN, oldest first */
    bool waiting_retry;              /* something changed: try them again this turn */
    bool waiting_room;               /* places came free: as many of them as there are */
    struct send_block *send_free;
    struct send_block *squeeze;      /* where the values of stragglers are moved to (decision 22) */
    uint32_t send_free_count;
    uint64_t send_bytes;             /* of send blocks in use */
    struct conn *dirty;              /* connections with something to flush */
    struct conn *conns;              /* all that are not yet given back to the reactor */
    uint32_t conn_count, conn_max;
    struct job_part *parts;          /* running jobs, round robin */
    uint32_t rows_least;             /* of a job without a window, under way whatever else is; this turn's */
    int64_t shed_until_us;           /* a node sheds load, so it is the least there is */
    bool jobs_first;                 /* single requests and jobs want the same room: who was first the last time */
    struct pool *pools;
    struct execution *exec_head, *exec_tail; /* single requests that wait for a free op */
    int64_t exec_due_us;             /* when the first of them has to be looked at: deadline, cancel, close */
    struct session_close *closes;    /* sessions that are draining */
    struct agreement *agreements;    /* changes of the schema that wait for all nodes to know of them */
    uint64_t random;
    struct block_pool *result_pool;  /* results' own memory */
    struct block_pool *unpack_pool;  /* v4 bodies that came compressed */
    struct compress_state *compress;
    struct reprepare *reprepares;    /* statements being prepared again */
    struct prepare_ahead *aheads;    /* nodes that came up, and what is to be prepared on them */
    struct partition_rest *rests;    /* partitions over their rate limit; NULL: there never was one */
    uint32_t rest_count;             /* … that are remembered now (partition_rest.h) */
    struct race *race_free;          /* speculative executions: for the next ones */
    uint8_t *scratch;                /* routing keys; SCRATCH_SIZE bytes */
    const struct cqlring_cluster *stamp_cluster; /* client timestamps taken for this turn */
    int64_t stamp_turn, stamp_next, stamp_end;
    uint32_t gap_rounds;             /* decision 10: expire nothing before reactor_rounds has reached this */
    bool gap;
    bool asked_first;                /* the last turn was cqr_lane_ask's */
    bool away;                       /* cqr_lane_away: the flag of `park` is up, or was taken down by a waker */
    bool stopping;
    atomic_bool runs_callback;       /* reserved */
    struct lane_stats stats;
    uint32_t settled_this_turn;
    struct thread_cpu submitter_cpu, reactor_cpu;
    struct log_limit log_limits[LOG_LIMITS]; /* of the runtime's log */

    pthread_t reactor_thread, submitter_thread;
    bool reactor_started, submitter_started;
};

enum { SCRATCH_SIZE = 80 << 10 };

/* timer.kind */
enum { TIMER_OP = 1, TIMER_CONN, TIMER_LINK, TIMER_CLOSE, TIMER_CONTROL, TIMER_AGREEMENT, TIMER_SCHEMA, TIMER_TRACE, TIMER_SHARDS, TIMER_AHEAD, TIMER_ROOM, TIMER_CONTACTS };

/* Room in a connection's window and buffers for one more request? Submitter; cheap, asked before a row is encoded. */
static inline bool cqr_writer_has_room(const struct conn *conn)
{
    const struct conn_writer *writer = &conn->writer;
    if (writer->state != WRITER_UP || writer->shut || writer->gone || writer->in_flight >= writer->in_flight_max || writer->stream_free == 0)
        return false;
    if (writer->span_count > SPANS_MAX - 8)
        return false;
    return !writer->blocked || writer->open == NULL || writer->open->fill - writer->open_from < FLUSH_SIZE;
}

/* lane.c */
cqlring_status cqr_lane_init(struct lane *lane, struct runtime_core *runtime, uint32_t index, cqlring_error *error);
cqlring_status cqr_lane_start(struct lane *lane, cqlring_error *error);   /* threads, as the mode says */
void cqr_lane_fini(struct lane *lane);                                     /* after the threads have ended */
void cqr_lane_turn(struct lane *lane, int64_t deadline_us);               /* inline and caller: both turns; deadline −1 for ever, 0 no wait */
/* Caller mode, before cqr_lane_turn: what has been asked goes out before the sockets are looked at, which saves a lone request
   a look that finds nothing. False: nothing was asked, or the sockets' turn it is; every second time at most, so that they are
   looked at however much is asked. */
bool cqr_lane_ask(struct lane *lane);
/* Caller mode: nobody runs turns until the poller's descriptor is readable. */
void cqr_lane_away(struct lane *lane);
bool cqr_lane_is_through(const struct lane *lane);
void cqr_lane_stop(struct lane *lane);                                     /* any thread */
void cqr_lane_end(struct lane *lane);                                      /* inline and caller: the last goodbyes */
/* Any thread: run the message on the submitter. False when the lane has ended: the message stays the caller's. */
bool cqr_lane_post(struct lane *lane, struct lane_message *message);
/* The same with several, which run in order: from the newest to the oldest they hang together by item.next. All or none. */
bool cqr_lane_post_all(struct lane *lane, struct lane_message *newest, struct lane_message *oldest);
bool cqr_on_library_thread(void);     /* a thread of ours, or one inside a callback in caller mode */
struct lane *cqr_lane_current(void);  /* the lane whose submitter's turn this thread is in; NULL */

/* reactor.c. Waits at most until deadline_us (0 none, −1 for ever), reads what is ready, publishes. Returns whether anything
   was published. */
bool cqr_reactor_turn(struct lane *lane, int64_t deadline_us);
void cqr_reactor_commands(struct lane *lane);
void cqr_command_push(struct lane *lane, struct conn *conn);   /* submitter */
struct completion *cqr_reactor_stage(struct lane *lane, enum completion_kind kind, void *subject);
static inline void cqr_reactor_references_flush(struct lane *lane, struct block *block)
{
    if (lane->block_references > 0)
        cqr_block_retain_many(block, lane->block_references);
    lane->block_references = 0;
}

/* submitter.c */
void cqr_submitter_turn(struct lane *lane, int64_t now_us);
/* When the submitter has to run again: 0 at once, INT64_MAX only when woken. */
int64_t cqr_submitter_next(struct lane *lane);
bool cqr_submitter_has_input(struct lane *lane);

/* op pool: submitter. NULL when every op is in use; some are kept for the driver's own requests. */
struct op *cqr_op_take(struct lane *lane, bool own);
bool cqr_op_is_there(const struct lane *lane);       /* would cqr_op_take(lane, false) give one? */
void cqr_op_give(struct lane *lane, struct op *op);  /* releases result, failure, reply and values that it still holds */

/* request.c: the way of one op. Submitter. */
void cqr_op_start(struct lane *lane, struct op *op);                 /* deadlines and timestamp, once, before the first issue */
void cqr_op_issue(struct lane *lane, struct op *op);                 /* from NEW: routes, frames, or parks it; may settle it at once */
void cqr_op_issue_on(struct lane *lane, struct op *op, struct conn *conn); /* this connection or fail */
/* A job's row, from its cells, on a connection that has room: started, and with WRITE_OK on its way. */
enum write_result cqr_op_issue_row(struct lane *lane, struct op *op, struct conn *conn, const cqlring_bytes *cells, uint32_t cell_count, struct row_head *head);
/* Rows that go together: the same for a batch whose values (its children) are not yet in a block. */
enum write_result cqr_op_issue_batch(struct lane *lane, struct op *op, struct conn *conn);
void cqr_op_void(struct lane *lane, struct op *op);                  /* answered by a plain VOID */
void cqr_op_reply(struct lane *lane, struct op *op, const struct completion *entry);
void cqr_op_large(struct lane *lane, struct op *op, uint32_t size);  /* its reply is larger than frame_size_max */
void cqr_op_timer(struct lane *lane, struct op *op);                 /* its timer fired */
void cqr_op_lost(struct lane *lane, struct op *op, struct conn *conn); /* its connection is down */
void cqr_op_abort(struct lane *lane, struct op *op, cqlring_status status, const char *why); /* settle it, wherever it is, unless its reply is on the way */
void cqr_op_settle(struct lane *lane, struct op *op, cqlring_status status, struct failure *failure);
/* For speculate.c. Takes it out of wherever it is under way, unsettled; false: its reply is in the ring, and will come to it. */
bool cqr_op_withdraw(struct lane *lane, struct op *op);
void cqr_op_try_again(struct lane *lane, struct op *op);             /* its last attempt failed and may be repeated */
void cqr_op_settled_again(struct lane *lane, struct op *op);         /* settled, but only now counted, and its owner told */
void cqr_op_wait(struct lane *lane, struct op *op, int64_t delay_us);  /* … after so long; 0: in the next pass over those that wait */
void cqr_waiting_remove(struct lane *lane, struct op *op);           /* from OP_WAIT_CONN */
void cqr_waiting_run(struct lane *lane);                             /* try what waits for a connection */
const char *cqr_opcode_name(uint8_t opcode);

/* own.c: the driver's own requests on one connection. Submitter. */
typedef void (*own_done)(struct lane *lane, struct op *op, void *context); /* looks at the op; it is given back afterwards */
/* OPTIONS, QUERY or PREPARE; text is copied. False: no op, no room, or no memory; done is not called. */
bool cqr_own_request(struct lane *lane, struct conn *conn, uint8_t opcode, cqlring_bytes text, cqlring_bytes keyspace, int64_t timeout_us,
                     own_done done, void *context);
/* A page of a query that reads much; paging_state (data NULL: the first page) must live until done is called. */
bool cqr_own_page(struct lane *lane, struct conn *conn, cqlring_bytes text, int32_t page_size, cqlring_bytes paging_state, int64_t timeout_us,
                  own_done done, void *context);
bool cqr_op_is_own(const struct op *op);

#endif
