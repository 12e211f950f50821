/* SPDX-License-Identifier: Apache-2.0 */

/* Bulk execution. Each turn of the lane gives every part of every job its turn: deliver what has settled, then pull and issue
   rows until the window is full. So the window is full all the time, never in waves, and a reply makes room for exactly one
   more row.

   A row is in the part's list from its issue until the sink has accepted its outcome; the head of that list is the low-water
   mark. It leaves the list once, in `row_accept` (job_outcome.c). Here: when a job's parts have their turn, and how they end. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/batch_rows.h"
#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/job.h"
#include "driver/partition_rest.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/speculate.h"

/* ---- why it ends ---- */

void cqr_job_stop(struct job *job, unsigned how, cqlring_status status, const cqlring_error *error)
{
    if (!atomic_flag_test_and_set_explicit(&job->reason_taken, memory_order_acq_rel)) {
        job->reason = status;
        job->reason_failure = error != NULL ? cqr_failure_copy(error) : NULL;
    }
    atomic_fetch_or_explicit(&job->stop, how, memory_order_release);
}

/* The job was stopped: rows that wait for another attempt get their outcome now; those in flight are not tried again. */
static void stop_rows(struct lane *lane, struct job_part *part)
{
    unsigned stop = atomic_load_explicit(&part->job->stop, memory_order_acquire);
    if (part->stop_seen || (stop & (JOB_STOP_ERROR | JOB_STOP_CANCEL | JOB_STOP_CLOSE)) == 0)
        return;
    part->stop_seen = true;
    if (part->batches != NULL)
        cqr_batch_rows_stop(lane, part, stop & JOB_STOP_CLOSE ? CQLRING_CLOSED : CQLRING_CANCELLED, "the job was stopped before this batch could be tried again", false);
    for (struct op *op = part->head, *next; op != NULL; op = next) {
        next = op->next;
        if (op->state == OP_IN_FLIGHT || op->state == OP_WAIT_RACE)
            op->cancelled = true;
        else if (op->state != OP_SETTLED && op->state != OP_IN_BATCH)
            cqr_op_abort(lane, op, stop & JOB_STOP_CLOSE ? CQLRING_CLOSED : CQLRING_CANCELLED, "the job was stopped before this row could be tried again");
    }
}

/* ---- end ---- */

void cqr_job_end(struct job *job)
{
    cqlring_future *future = &job->future;
    future->status = job->reason;
    future->error = job->reason_failure != NULL ? &job->reason_failure->error : NULL;
    if (future->status != CQLRING_OK && future->error == NULL)
        future->error = &cqr_failure_make(future->status, "the job was ended: %s", cqlring_status_text(future->status))->error;
    atomic_store_explicit(&job->ended_us, cqr_runtime_now_us(future->runtime), memory_order_relaxed);
    cqr_future_complete(future);
}

static void part_end(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    if (part->next_part != NULL)
        part->next_part->link_part = part->link_part;
    *part->link_part = part->next_part;
    part->ended = true;
    cqr_mem_free(part->on_node);
    part->on_node = NULL;
    part->on_node_count = 0;
    if (part->batches != NULL)
        cqr_batch_rows_end(part);
    struct cqlring_session *session = job->session; /* the part holds it until the last line */
    if (atomic_fetch_sub_explicit(&job->parts_left, 1, memory_order_acq_rel) == 1)
        cqr_job_end(job);
    cqr_session_op_end(lane, session);
}

static void part_turn(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    cqr_job_deliver(lane, part);
    cqr_job_issue(lane, part);
    if (!part->blocked)
        part->stall_since_us = 0;
    stop_rows(lane, part);
    if (part->done_count > 0)
        cqr_job_deliver(lane, part);
    bool stopped = atomic_load_explicit(&job->stop, memory_order_acquire) != 0;
    if (part->open == 0 && (stopped || (part->source_state == SOURCE_ENDED && part->row_at == part->row_count)))
        part_end(lane, part);
}

/* How many rows each of the jobs without a window may have under way whatever else is: others fill the connections' windows too,
   and have none that keeps them. All of those jobs together get half as many as there are single requests, but for a node that
   sheds load. */
static void share(struct lane *lane)
{
    uint32_t rows = 0, parts = 0;
    for (const struct job_part *part = lane->parts; part != NULL; part = part->next_part) {
        rows += part->open + (part->batches != NULL ? part->unsettled / 2 : 0); /* a batch is one more, of two rows or more */
        parts++;
    }
    uint32_t singles = lane->ops_used > rows ? lane->ops_used - rows : 0, least = parts > 0 ? singles / 2 / parts : 0;
    lane->rows_least = least > ADAPT_FLOOR && lane->now_us >= lane->shed_until_us ? least : ADAPT_FLOOR;
}

void cqr_job_turn(struct lane *lane)
{
    share(lane);
    for (struct job_part *part = lane->parts, *next; part != NULL; part = next) {
        next = part->next_part;
        part_turn(lane, part);
    }
    /* fairness: another one begins next time */
    struct job_part *first = lane->parts;
    if (first != NULL && first->next_part != NULL) {
        struct job_part *last = first;
        while (last->next_part != NULL)
            last = last->next_part;
        lane->parts = first->next_part;
        lane->parts->link_part = &lane->parts;
        last->next_part = first;
        first->link_part = &last->next_part;
        first->next_part = NULL;
    }
}

int64_t cqr_job_next(struct lane *lane)
{
    int64_t next = INT64_MAX;
    for (struct job_part *part = lane->parts; part != NULL; part = part->next_part) {
        struct job *job = part->job;
        unsigned stop = atomic_load_explicit(&job->stop, memory_order_relaxed);
        if (stop != 0) {
            if ((!part->stop_seen && (stop & ~(unsigned)JOB_STOP_SINK) != 0) || part->open == 0 || cqr_batch_rows_planned(part) > 0)
                return 0;
            continue;
        }
        if (part->done_count > 0 && !part->sink_waits && (!job->ordered || part->head->state == OP_SETTLED))
            return 0;
        if (atomic_load_explicit(&job->paused, memory_order_relaxed) != 0 || cqr_batch_rows_wait(part) || part->open - cqr_batch_rows_planned(part) >= job->window)
            continue;
        if (part->op_wanted) { /* another part may have given one back after this one's turn */
            if (cqr_op_is_there(lane))
                return 0;
            continue;
        }
        int64_t at = 0;
        if (part->pace_until_us > 0)
            at = part->pace_until_us;
        else if (part->row_at == part->row_count)
            at = part->source_state == SOURCE_LATER ? part->source_wake_us : part->source_state == SOURCE_ENDED ? INT64_MAX : 0;
        else if (part->blocked)
            at = INT64_MAX; /* a reply, a connection or room in a socket will wake it */
        if (part->blocked && part->stall_since_us != 0) {
            int64_t stall_end = cqr_deadline_us(part->stall_since_us, job->plans[0].timeout_us);
            if (stall_end < at)
                at = stall_end;
        }
        if (at < next)
            next = at;
    }
    return next;
}

void cqr_job_session_stop(struct lane *lane, struct cqlring_session *session)
{
    for (struct job_part *part = lane->parts; part != NULL; part = part->next_part)
        if (part->job->session == session) {
            cqlring_error error;
            memset(&error, 0, sizeof error);
            cqr_error(&error, CQLRING_CLOSED, "the session was closed while the job ran");
            cqr_job_stop(part->job, JOB_STOP_SINK, CQLRING_CLOSED, &error); /* what is in flight may still finish */
        }
}

void cqr_job_session_final(struct lane *lane, struct cqlring_session *session)
{
    for (struct job_part *part = lane->parts; part != NULL; part = part->next_part)
        if (part->job->session == session) {
            atomic_fetch_or_explicit(&part->job->stop, JOB_STOP_CLOSE, memory_order_release);
            part->final = true;
            if (part->batches != NULL)
                cqr_batch_rows_stop(lane, part, CQLRING_CLOSED, "the session was closed before its answer came", true);
            for (struct op *op = part->head, *next; op != NULL; op = next) {
                next = op->next;
                if (op->state != OP_SETTLED && op->state != OP_IN_BATCH)
                    cqr_op_abort(lane, op, CQLRING_CLOSED, "the session was closed before its answer came");
            }
        }
}
