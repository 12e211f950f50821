/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_OP_H
#define CQR_OP_H

/* One request under way: a row of a job, a single execution, a queue's request, or one of the driver's own (PREPARE,
   system queries, heartbeats). Ops come from the lane's pool, fixed at open; whoever popped an op last touches it
   (design §4): the submitter, then through its in-flight slot the reactor, then through the completion ring the submitter
   again. The reactor reads only `conn` and never writes. */

#include "cql/request.h"
#include "driver/cqlring.h"
#include "driver/failure.h"
#include "driver/topology.h"
#include "driver/wheel.h"
#include "serialize/block.h"

struct conn;
struct lane;
struct op;
struct race;
struct cqlring_session;
struct send_block;
struct request_body;
struct statement_version;

/* What is the same for many ops: how they run. Immutable while ops use it; owned by the job, request or driver part. */
struct op_plan {
    struct query_params params;        /* template: timestamp, paging state and values are the op's own */
    uint8_t opcode;                    /* EXECUTE, QUERY, BATCH, PREPARE, OPTIONS */
    uint8_t batch_kind;
    bool idempotent;
    bool retry;                        /* retries at all */
    bool patient;                      /* a job's row: retried until its deadline, waits for connections */
    bool is_read;                      /* attempt time-out only if it was set */
    int64_t timeout_us;                /* −1 none */
    int64_t attempt_timeout_us;        /* −1 none */
    struct cqlring_session *session;   /* NULL: the driver's own */
    const struct cqlring_node *target; /* NULL: routed */
    int64_t timestamp_us;              /* 0 generated, INT64_MIN none */
    bool prefetch;                     /* a single request's next page before it is asked for */
    bool watched;                      /* something may come before the request's own deadline: attempt time-out or a further copy */
    uint8_t copies_max;                /* speculative ones; 0: none */
    float percentile;                  /* of the session's latencies, instead of copy_after_us alone; 0: not */
    int64_t copy_after_us;             /* without an answer */
};

enum op_state {
    OP_FREE,
    OP_NEW,         /* belongs to its owner, not issued */
    OP_IN_FLIGHT,   /* in a slot of conn */
    OP_WAIT_RETRY,  /* timer runs until the next attempt */
    OP_WAIT_CONN,   /* no connection can take it: in the lane's waiting list */
    OP_WAIT_PREPARE,/* its statement is being prepared again on conn */
    OP_WAIT_AGREEMENT, /* answered: the nodes have yet to agree on the schema that it changed (agreement.h) */
    OP_IN_BATCH,    /* a row that goes with others: what becomes of their batch becomes of it (batch_rows.h) */
    OP_WAIT_RACE,   /* its own attempt is over, copies of it are still under way (speculate.h) */
    OP_SETTLED      /* outcome known; belongs to its owner again */
};

enum op_split {
    SPLIT_NOT,
    SPLIT_ROW,      /* the page before the one under way is delivered by the op in front of it, and not accepted yet */
    SPLIT_PAGE      /* that op */
};

struct op {
    struct timer timer;                /* deadline, attempt time-out, or back-off */
    struct op *next, *prev;            /* the owner's list (a job's rows in issue order) */
    struct op *link;                   /* one list at a time: free list, waiting lists, a job's outcomes to deliver */
    void (*settled)(struct lane *lane, struct op *op); /* the owner is told the outcome; it then owns the op */
    void *owner;
    const struct op_plan *plan;
    struct conn *conn;                 /* where it is or was last in flight */

    /* the request, enough to frame it again anywhere */
    struct statement_version *version; /* EXECUTE: what it was encoded with; its statement is held by the owner */
    struct request_body *body;         /* a single request's, borrowed from the owner; NULL for a job's row */
    cqlring_bytes text;                /* QUERY, PREPARE: owner's memory */
    const uint8_t *values;             /* between begin and end: [short n] and values, or a batch's children; NULL: none */
    uint32_t values_size;
    uint16_t batch_count;
    uint16_t consistency_1;            /* of further attempts, as the retry policy said, + 1; 0: the plan's */
    struct send_block *values_block;   /* whose memory values is; NULL: the owner's */
    struct op *block_next, **block_link; /* the block's list of ops */
    cqlring_bytes paging_state;        /* owner's or page's memory */
    cqlring_result *page;              /* keeps paging_state alive between pages */
    int64_t timestamp_us;
    int64_t token;
    bool has_token;
    bool same;                         /* next attempt on the same node, if it can take it */
    bool retrying;                     /* a job's row that its part counts among those tried again */
    uint8_t unreadable;                /* answers that could not be read and were asked for again */

    /* in flight */
    uint16_t stream;
    uint32_t frame_offset, frame_size; /* in the send block, until it is sent */
    struct send_block *frame_block;
    uint64_t seal;                     /* the connection's seal that carries it */

    uint8_t state;                     /* enum op_state */
    uint8_t phase;                     /* cqlring_phase */
    bool maybe_applied;                /* some attempt of a write may have happened */
    bool cancelled;
    uint16_t attempts;                 /* times it was written to a connection */
    uint16_t tries;                    /* decisions of the retry policy so far */
    uint64_t tried;                    /* nodes that have been tried, by index modulo 64 */
    uint64_t row, tag;
    int64_t accepted_us;               /* handed to the library */
    int64_t deadline_us;               /* of the whole request; INT64_MAX none */
    int64_t attempt_deadline_us;
    int64_t first_sent_us, received_us;
    uint32_t reply_budget;             /* bytes reserved for its reply */
    uint16_t reprepares;               /* times its statement was unknown to a node */
    bool uncounted;                    /* an attempt of a race: its end is not that of a request */
    bool other_only;                   /* next attempt only on a node not yet tried */
    bool pages;                        /* a job's row: all its pages are wanted */
    bool may_continue;                 /* settled, and a further page is there */
    uint8_t reply_opcode;              /* with reply_block */
    uint8_t split;                     /* enum op_split: a job's row that reads on while its page is delivered */
    uint32_t sent_after_us;            /* the last attempt, after first_sent_us */
    uint32_t limit_node;               /* a job's row: which node it was counted on */

    /* the outcome */
    cqlring_status status;
    cqlring_result *result;            /* a reference; NULL for VOID and failures */
    struct failure *failure;           /* why; between attempts the last one's */
    struct block *reply_block;         /* the driver's own requests: what was answered, a reference */
    cqlring_bytes reply_body;          /* behind prefix and, for a RESULT, kind */
    struct race *race;                 /* copies of it are, or were, under way; NULL: the usual */
    const struct cqlring_node *node;   /* coordinator of the last attempt */
};

/* Times are those of threads' turns, each read when the turn began: what came after may seem to have been before. */
static inline uint32_t cqr_elapsed_us(int64_t from_us, int64_t to_us)
{
    uint64_t elapsed_us = (uint64_t)(to_us - from_us);
    if (__builtin_expect(elapsed_us >> 32 != 0, 0))
        return to_us < from_us ? 0 : UINT32_MAX;
    return (uint32_t)elapsed_us;
}

#endif
