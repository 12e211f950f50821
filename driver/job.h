/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_JOB_H
#define CQR_JOB_H

/* One bulk execution (cqlring_execute_concurrent): sources, sinks, window, summary. A job has one part a source; a part
   lives on one lane and is touched only by its submitter between the hand-over and the job's end. */

#include "driver/future.h"
#include "driver/lane.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "serialize/value.h"

enum { JOB_BATCH = 256, JOB_HEADS = 4 };

struct batch_rows;
struct batch_rule;
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
    bool low_water_kept;              /* the only part, and no row was left out */

    uint32_t pull_max;                /* rows asked for at once, JOB_BATCH at most */
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
    counter bytes_sent;               /* of values; read by anybody */
    uint32_t *on_node;                /* rows in flight by node index */
    uint32_t on_node_count;
    uint32_t stall_refused;           /* rows refused since, all having waited since then */
    int64_t stall_since_us;           /* no connection at all since; 0 not so */
    bool paced;                       /* there is a rate limit, as of this turn */
    double row_tokens, byte_tokens;   /* its buckets; negative: in debt */
    int64_t tokens_at_us;
    int64_t pace_until_us;            /* nothing is issued before; 0 none */
    bool ended;
    struct batch_rows *batches;       /* rows of one partition go together (batch_rows.h); NULL: each alone */

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
    char apart[64];                   /* what is read for each row is on other lines than what lanes write */
    /* the summary: added to by the parts once a batch, read by anybody */
    _Atomic(uint64_t) rows, failed, maybe_applied, retries, low_water;
    _Atomic(int64_t) started_us, ended_us;
    struct job_part *parts;
    struct batch_rule *batches;       /* which rows may go together; NULL: none */
};

enum { JOB_STOP_SINK = 1, JOB_STOP_ERROR = 2, JOB_STOP_CANCEL = 4, JOB_STOP_CLOSE = 8 };

/* Any thread: issuing ends (how: JOB_STOP_…); the first reason given is the job's. error may be NULL. */
void cqr_job_stop(struct job *job, unsigned how, cqlring_status status, const cqlring_error *error);
void cqr_job_end(struct job *job);                       /* the last part has ended: the future is completed */

void cqr_job_issue(struct lane *lane, struct job_part *part);   /* job_issue.c: as many rows as there is room for */
void cqr_job_deliver(struct lane *lane, struct job_part *part); /* job_outcome.c: what has settled */
void cqr_job_row_settled(struct lane *lane, struct op *op); /* job->row_settled: the usual one */
void cqr_job_row_timed(struct lane *lane, struct op *op);   /* … with its latency noted for a percentile */
void cqr_job_row_adaptive(struct lane *lane, struct op *op); /* … and for the connection's window */
void cqr_job_row_retried(struct op *op);                 /* an attempt failed, another one follows; any op */
void cqr_job_turn(struct lane *lane);                    /* deliver and issue, all parts round robin */
int64_t cqr_job_next(struct lane *lane);                 /* when it has to run again: 0 now */
void cqr_job_session_stop(struct lane *lane, struct cqlring_session *session); /* issuing ends */
void cqr_job_session_final(struct lane *lane, struct cqlring_session *session); /* last delivery, verdicts ignored */

/* For batch_plan.c and batch_rows.c: rows that are in the part's list before they are issued. */
enum placed { PLACED, PLACED_NOT };
struct op *cqr_job_row_take(struct lane *lane, struct job_part *part, const cqlring_row *row); /* listed; NULL: every op is in use */
enum placed cqr_job_row_place(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row); /* alone */
/* Its partition rests (partition_rest.h): true: op, which is or will be in the list, waits for it. Only where lane->rest_count is not 0. */
bool cqr_job_row_wait(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row);
void cqr_job_row_drop(struct lane *lane, struct job_part *part, struct op *op);                /* it will never be issued: as if it had not been pulled */
void cqr_job_row_fail(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row, uint32_t cell_count, const cqlring_error *error);
void cqr_job_row_counted(struct job_part *part, struct op *op, const struct cqlring_node *node); /* on that node, until it is settled */
struct conn *cqr_job_row_route(struct lane *lane, struct job_part *part, struct op *op, struct pool *pool, const cqlring_bytes *cells, bool *any_up);
/* No connection takes it: has it waited its time? Fills the error then. */
bool cqr_job_row_stalled(struct lane *lane, struct job_part *part, const struct op *op, uint64_t row, bool any_up, cqlring_error *error);
void cqr_job_pull(struct lane *lane, struct job_part *part);
bool cqr_job_pace(struct lane *lane, struct job_part *part);

/* The usual row in one look: as many cells as markers, each of a size that its type has. False: cqr_cells_check knows the words. */
static inline bool cqr_cells_measure(const struct statement_version *version, const cqlring_bytes *cells, uint32_t count, uint64_t *size)
{
    const struct columns *bind = &version->bind->columns;
    if (count != bind->count || (count > 0 && cells == NULL))
        return false;
    uint64_t sum = UINT64_C(4) * count;
    const struct column *column = bind->array;
    for (const cqlring_bytes *cell = cells, *end = cells + count; cell < end; cell++, column++) {
        if (cell->size > 0) {
            if (cell->data == NULL || !cqr_cell_size_ok(column->type, cell->size))
                return false;
            sum += (uint32_t)cell->size;
        } else if (cell->size < CQLRING_UNSET) {
            return false;
        }
    }
    *size = sum;
    return true;
}

#endif
