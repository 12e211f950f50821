/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_JOB_H
#define CQR_JOB_H

/* One bulk execution (cqlring_execute_concurrent): sources, sinks, window, summary. A job has one part a source; a part
   lives on one lane and is touched only by its submitter between the hand-over and the job's end. */

#include "driver/future.h"
#include "driver/lane.h"
#include "driver/session.h"

enum { JOB_BATCH = 256, JOB_HEADS = 4 };

struct job;

enum source_state { SOURCE_READY, SOURCE_LATER, SOURCE_ENDED };

struct job_part {
    struct lane_message message;      /* start */
    struct lane_message poke_message;
    atomic_uint poke_posted;
    struct job *job;
    struct lane *lane;
    struct job_part *next_part, **link_part;  /* the lane's list */
    cqlring_source source;
    cqlring_sink sink;
    bool has_sink;

    uint32_t row_at, row_count;       /* rows pulled, not yet issued: [row_at, row_count) */
    enum source_state source_state;
    int64_t source_wake_us;           /* SOURCE_LATER: exact; INT64_MAX only after a poke */
    uint64_t next_row;                /* index of the next row to issue */

    struct op *head, *tail;           /* rows issued and not yet accepted by the sink, in issue order */
    uint32_t open;                    /* how many */
    uint32_t unsettled;               /* of them, without an outcome */
    struct op *done_head, *done_tail; /* outcomes to deliver, in order of settling, through op->link; unordered jobs */
    uint32_t done_count;              /* settled and not yet accepted */
    uint32_t accepted;                /* by the sink, not yet in the summary */
    bool sink_waits;                  /* LATER: until a poke */
    bool stop_seen;
    bool final;                       /* closing: verdicts are ignored */
    bool blocked;                     /* the next row could not be placed */
    bool op_wanted;                   /* because every op is in use */
    bool pages_wait;                  /* reserved */
    uint32_t retrying;                /* unsettled rows whose first attempt failed; adaptive jobs */
    uint64_t bytes;                   /* of values and expected replies under way */
    uint32_t *on_node;                /* rows in flight by node index */
    uint32_t on_node_count;
    uint32_t stall_refused;           /* rows refused since, all having waited since then */
    int64_t stall_since_us;           /* no connection at all since; 0 not so */
    bool paced;                       /* there is a rate limit, as of this turn */
    double row_tokens, byte_tokens;   /* its buckets; negative: in debt */
    int64_t tokens_at_us;
    int64_t pace_until_us;            /* nothing is issued before; 0 none */
    bool ended;

    struct row_head heads[JOB_HEADS]; /* by statement modulo; as each was last framed */
    cqlring_row rows[JOB_BATCH];
    cqlring_completion out[JOB_BATCH];
};

struct job {
    cqlring_future future;
    struct cqlring_session *session;  /* a reference */
    struct op_plan *plans;            /* by statement */
    struct cqlring_prepared **statements;
    uint32_t statement_count;
    struct string_pair *payload;      /* copies that the plans point to */
    uint32_t window;
    bool adaptive;                    /* no window was given: each connection's own holds, `window` is the cap (adapt.h) */
    uint64_t bytes_max, errors_max, rows_max;
    bool ordered, skip_successes;
    void (*row_settled)(struct lane *lane, struct op *op);
    uint32_t part_count;
    atomic_uint parts_left;
    atomic_uint stop;                 /* JOB_STOP_…: no further row is issued */
    atomic_uint paused;
    _Atomic(uint64_t) failed_count;   /* all parts, for errors_max */
    atomic_flag reason_taken;         /* the first reason wins */
    cqlring_status reason;
    struct failure *reason_failure;
    _Atomic(double) rows_per_s, bytes_per_s;
    /* the summary: added to by the parts, read by anybody */
    _Atomic(uint64_t) rows, failed, maybe_applied, retries, low_water, bytes_sent;
    _Atomic(int64_t) started_us, ended_us;
    struct job_part *parts;
};

enum { JOB_STOP_SINK = 1, JOB_STOP_ERROR = 2, JOB_STOP_CANCEL = 4, JOB_STOP_CLOSE = 8 };

/* Any thread: issuing ends (how: JOB_STOP_…); the first reason given is the job's. error may be NULL. */
void cqr_job_stop(struct job *job, unsigned how, cqlring_status status, const cqlring_error *error);
void cqr_job_end(struct job *job);                       /* the last part has ended: the future is completed */

void cqr_job_row_settled(struct lane *lane, struct op *op); /* job->row_settled: the usual one */
void cqr_job_row_timed(struct lane *lane, struct op *op);   /* … with its latency noted for a percentile */
void cqr_job_row_adaptive(struct lane *lane, struct op *op); /* … and for the connection's window */
void cqr_job_row_retried(struct op *op);                 /* an attempt failed, another one follows; any op */
void cqr_job_turn(struct lane *lane);                    /* deliver and issue, all parts round robin */
int64_t cqr_job_next(struct lane *lane);                 /* when it has to run again: 0 now */
void cqr_job_session_stop(struct lane *lane, struct cqlring_session *session); /* issuing ends */
void cqr_job_session_final(struct lane *lane, struct cqlring_session *session); /* last delivery, verdicts ignored */

#endif
