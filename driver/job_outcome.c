/* SPDX-License-Identifier: Apache-2.0 */

/* What becomes of a job's rows: outcomes, their delivery to the sink, pages. See job.c. */

#include <assert.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/job_list.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/speculate.h"

static void add(_Atomic(uint64_t) *which, uint64_t n)
{
    atomic_fetch_add_explicit(which, n, memory_order_relaxed);
}

/* The next page of a row whose last one was accepted. Once the job is stopped there is none: the row's last completion says so. */
static void page_next(struct lane *lane, struct job_part *part, struct op *op)
{
    unsigned stop = atomic_load_explicit(&part->job->stop, memory_order_relaxed);
    cqlring_result_release(op->page);
    op->page = op->result;
    op->result = NULL;
    op->paging_state = op->page->paging_state;
    op->state = OP_NEW;
    op->phase = CQLRING_NOT_SENT;
    op->accepted_us = lane->now_us;
    op->first_sent_us = 0;
    op->sent_after_us = 0;
    op->attempts = op->tries = op->consistency_1 = 0;
    op->reprepares = 0;
    op->unreadable = 0;
    op->tried = 0;
    op->may_continue = false;
    op->cancelled = false;
    part->unsettled++;
    if ((stop & (JOB_STOP_CANCEL | JOB_STOP_CLOSE | JOB_STOP_ERROR)) != 0) {
        cqlring_status status = stop & JOB_STOP_CLOSE ? CQLRING_CLOSED : CQLRING_CANCELLED;
        cqr_op_settle(lane, op, status, cqr_failure_make(status, "the job was stopped before the next page was asked for"));
        return;
    }
    cqr_op_start(lane, op);
    cqr_op_issue(lane, op); /* outside the budget: the row holds its place already (decision 21) */
}

/* The sink has it, or nobody wants it. */
/* A page; and not the row's last one, or the next one is under way. */
static __attribute__((noinline, cold)) void page_accept(struct lane *lane, struct job_part *part, struct op *op)
{
    if (op->split != SPLIT_PAGE) {
        page_next(lane, part, op);
        return;
    }
    op->next->split = SPLIT_NOT;
    list_remove(part, op);
    cqr_op_give(lane, op);
}

static inline __attribute__((always_inline)) void row_accept(struct lane *lane, struct job_part *part, struct op *op)
{
    part->done_count--;
    part->bytes -= op->reply_budget;
    op->reply_budget = 0;
    if (op->split == SPLIT_PAGE || op->may_continue) {
        page_accept(lane, part, op);
        return;
    }
    list_remove(part, op);
    part->accepted++;
    cqr_op_give(lane, op);
}

static void accepted_add(struct job_part *part)
{
    add(&part->job->rows, part->accepted);
    part->accepted = 0;
}

/* It was not as simple as one try: this is counted. */
static __attribute__((noinline, cold)) void row_trouble(struct job *job, struct op *op)
{
    if (op->tries > 0)
        add(&job->retries, op->tries);
    if (op->status == CQLRING_OK)
        return;
    add(&job->failed, 1);
    if (op->maybe_applied)
        add(&job->maybe_applied, 1);
    if (op->status == CQLRING_CANCELLED)
        return; /* what a stop has done is no reason for another one */
    uint64_t failed = atomic_fetch_add_explicit(&job->failed_count, 1, memory_order_relaxed) + 1;
    if (job->errors_max > 0 && failed >= job->errors_max)
        cqr_job_stop(job, JOB_STOP_ERROR, op->status, &op->failure->error);
}

static inline void done_add(struct job_part *part, struct op *op)
{
    op->link = NULL;
    if (part->done_tail != NULL)
        part->done_tail->link = op;
    else
        part->done_head = op;
    part->done_tail = op;
}

/* With prefetch a page is delivered by an op of its own, in front of the row's, which asks for the next page at once: one page ahead,
   and none while the job holds more bytes than it may. NULL: the next page waits until this one is accepted. */
static struct op *page_split(struct lane *lane, struct job_part *part, struct op *op)
{
    struct op *page = op->split != SPLIT_NOT || part->bytes > part->job->bytes_max ? NULL : cqr_op_take(lane, false);
    if (page == NULL)
        return NULL;
    page->state = OP_SETTLED;
    page->status = CQLRING_OK;
    page->settled = op->settled;
    page->owner = part;
    page->plan = op->plan;
    page->result = cqlring_result_retain(op->result); /* the row keeps its paging state */
    page->node = op->node;
    page->row = op->row;
    page->tag = op->tag;
    page->phase = op->phase;
    page->attempts = op->attempts;
    page->accepted_us = op->accepted_us;
    page->first_sent_us = op->first_sent_us;
    page->received_us = op->received_us;
    page->limit_node = JOB_NODE_NONE;
    page->reply_budget = op->reply_budget;
    op->reply_budget = 0;
    page->may_continue = true;
    page->split = SPLIT_PAGE;
    op->split = SPLIT_ROW;
    page->next = op;
    page->prev = op->prev;
    if (op->prev != NULL)
        op->prev->next = page;
    else
        part->head = page;
    op->prev = page;
    part->open++;
    return page;
}

/* Apart, so that the plain row's way has nothing to keep. */
static __attribute__((noinline)) void page_settled(struct lane *lane, struct job_part *part, struct op *op)
{
    struct op *page = op->plan->prefetch ? page_split(lane, part, op) : NULL;
    if (!part->job->ordered)
        done_add(part, page != NULL ? page : op);
    if (page == NULL)
        return;
    page_next(lane, part, op);
    if (op->state != OP_SETTLED) /* else the job was stopped */
        atomic_fetch_add_explicit(&lane->runtime->pages_ahead, 1, memory_order_relaxed);
    if (op->state == OP_IN_FLIGHT)
        cqr_writer_flush(op->conn); /* before the sink has this one: that is the point of it */
}

void cqr_job_row_settled(struct lane *lane, struct op *op)
{
    struct job_part *part = op->owner;
    struct job *job = part->job;
    part->unsettled--;
    part->done_count++;
    if (op->limit_node != JOB_NODE_NONE && op->limit_node < part->on_node_count)
        part->on_node[op->limit_node]--;
    op->limit_node = JOB_NODE_NONE;
    part->bytes -= op->reply_budget;
    op->reply_budget = op->result != NULL ? op->result->pinned_size : 0;
    part->bytes += op->reply_budget;
    if (op->tries > 0 || op->status != CQLRING_OK)
        row_trouble(job, op);
    if (!part->has_sink || (job->skip_successes && op->status == CQLRING_OK && op->result == NULL)) {
        row_accept(lane, part, op);
        accepted_add(part);
        return;
    }
    if (op->may_continue) {
        page_settled(lane, part, op);
        return;
    }
    if (!job->ordered) /* else delivered from the list's head */
        done_add(part, op);
}

void cqr_job_row_timed(struct lane *lane, struct op *op)
{
    if (op->plan->percentile > 0)
        cqr_race_latency(lane, op);
    cqr_job_row_settled(lane, op);
}

/* Only what tells how long the node took: one attempt, answered. */
static inline bool is_plain(const struct op *op)
{
    return op->status == CQLRING_OK && op->attempts == 1 && op->phase == CQLRING_ANSWERED && op->race == NULL &&
           (op->result == NULL || op->result->kind != RESULT_SCHEMA); /* which waited for others, and its connection may be gone */
}

void cqr_job_row_adaptive(struct lane *lane, struct op *op)
{
    if (op->retrying)
        ((struct job_part *)op->owner)->retrying--;
    else if (is_plain(op))
        cqr_adapt_answer(&op->conn->writer.adapt, cqr_elapsed_us(op->first_sent_us, op->received_us), op->conn->writer.inflight_published, lane->now_us);
    op->retrying = false;
    if (op->plan->percentile > 0)
        cqr_race_latency(lane, op);
    cqr_job_row_settled(lane, op);
}

void cqr_job_row_retried(struct op *op)
{
    if (op->settled != cqr_job_row_adaptive || op->retrying)
        return; /* in a race `settled` is the race's */
    op->retrying = true;
    ((struct job_part *)op->owner)->retrying++;
}

/* Up to a batch of outcomes into part->out; ops[] are whose they are. */
static uint32_t gather(struct job_part *part, struct op *ops[JOB_BATCH])
{
    uint32_t count = 0;
    struct op *op = part->job->ordered ? part->head : part->done_head;
    while (op != NULL && count < JOB_BATCH && op->state == OP_SETTLED) {
        cqr_completion_fill(&part->out[count], op);
        if (op->status != CQLRING_OK && op->values != NULL && !cqr_failure_is_static(op->failure)) {
            op->failure->values = op->values;
            op->failure->values_size = op->values_size;
        }
        ops[count++] = op;
        if (part->job->ordered && op->may_continue)
            break; /* its further pages come before the next row */
        op = part->job->ordered ? op->next : op->link;
    }
    return count;
}

void cqr_job_deliver(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    struct op *ops[JOB_BATCH];
    while (part->has_sink && part->done_count > 0 && (!part->sink_waits || part->final)) {
        uint32_t count = gather(part, ops);
        if (count == 0)
            return;
        cqlring_verdict verdict = part->sink.deliver(part->out, count, part->sink.context);
        if (verdict == CQLRING_LATER && !part->final) {
            part->sink_waits = true;
            return;
        }
        if (!job->ordered) {
            part->done_head = ops[count - 1]->link;
            if (part->done_head == NULL)
                part->done_tail = NULL;
        }
        if (verdict == CQLRING_STOP)
            atomic_fetch_or_explicit(&job->stop, JOB_STOP_SINK, memory_order_release);
        for (uint32_t i = 0; i < count; i++)
            row_accept(lane, part, ops[i]);
        accepted_add(part);
    }
}
