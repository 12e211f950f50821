/* SPDX-License-Identifier: Apache-2.0 */

/* Bulk execution. Each turn of the lane gives every part of every job its turn: deliver what has settled, then pull and issue
   rows until the window is full. So the window is full all the time, never in waves, and a reply makes room for exactly one
   more row.

   A row is in the part's list from its issue until the sink has accepted its outcome; the head of that list is the low-water
   mark. It leaves the list once, in `row_accept`. */

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

enum { QUANTUM = 1024 };
#define NODE_NONE UINT32_MAX /* an enumerator is an int */
static const double BURST_S = 0.01;
static const double WAIT_MAX_S = 3600; /* then it is asked again */

/* ---- why it ends ---- */

void cqr_job_stop(struct job *job, unsigned how, cqlring_status status, const cqlring_error *error)
{
    if (!atomic_flag_test_and_set_explicit(&job->reason_taken, memory_order_acq_rel)) {
        job->reason = status;
        job->reason_failure = error != NULL ? cqr_failure_copy(error) : NULL;
    }
    atomic_fetch_or_explicit(&job->stop, how, memory_order_release);
}

static void add(_Atomic(uint64_t) *which, uint64_t n)
{
    atomic_fetch_add_explicit(which, n, memory_order_relaxed);
}

/* ---- the list of rows ---- */

static void list_add(struct job_part *part, struct op *op)
{
    op->prev = part->tail;
    op->next = NULL;
    if (part->tail != NULL)
        part->tail->next = op;
    else
        part->head = op;
    part->tail = op;
    part->open++;
    part->unsettled++;
}

static void list_remove(struct job_part *part, struct op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        part->head = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        part->tail = op->prev;
    part->open--;
    if (part->low_water_kept)
        atomic_store_explicit(&part->job->low_water, part->head != NULL ? part->head->row : part->next_row, memory_order_relaxed);
}

/* ---- outcomes ---- */

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
    page->limit_node = NODE_NONE;
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
    if (op->limit_node != NODE_NONE && op->limit_node < part->on_node_count)
        part->on_node[op->limit_node]--;
    op->limit_node = NODE_NONE;
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
        cqr_adapt_answer(&op->conn->writer.adapt, (uint32_t)(op->received_us - op->first_sent_us), op->conn->writer.inflight_published, lane->now_us);
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

static void deliver(struct lane *lane, struct job_part *part)
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

/* ---- pulling and pacing ---- */

void cqr_job_pull(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    uint32_t room = job->window - part->open;
    uint32_t capacity = room < part->pull_max ? room : part->pull_max;
    if (job->rows_max > 0 && job->rows_max - part->next_row < capacity)
        capacity = (uint32_t)(job->rows_max - part->next_row);
    if (capacity == 0) {
        if (job->rows_max > 0 && part->next_row >= job->rows_max)
            part->source_state = SOURCE_ENDED;
        return;
    }
    int64_t wake_at = 0;
    cqlring_error error;
    memset(&error, 0, sizeof error);
    int32_t count = part->source.next(part->rows, capacity, lane->now_us, &wake_at, &error, part->source.context);
    if (count > 0 && (uint32_t)count <= capacity) {
        part->row_at = 0;
        part->row_count = (uint32_t)count;
        part->source_state = SOURCE_READY;
        return;
    }
    if (count == CQLRING_SOURCE_END) {
        part->source_state = SOURCE_ENDED;
    } else if (count == CQLRING_SOURCE_LATER) {
        part->source_state = SOURCE_LATER;
        part->source_wake_us = wake_at > 0 ? wake_at : INT64_MAX;
    } else {
        part->source_state = SOURCE_ENDED;
        if (count != CQLRING_SOURCE_FAILED)
            cqr_error(&error, CQLRING_INVALID, "the source returned %d for room of %u rows", count, capacity);
        else if (error.status == CQLRING_OK)
            cqr_error(&error, CQLRING_CANCELLED, "the source failed without saying why");
        error.message[sizeof error.message - 1] = '\0';
        cqr_job_stop(job, JOB_STOP_ERROR, error.status, &error);
    }
}

/* Rate limits: buckets that fill with time. True: a row may go now; else pace_until_us says when. */
bool cqr_job_pace(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    double rows_rate = atomic_load_explicit(&job->rows_per_s, memory_order_relaxed) / job->part_count;
    double bytes_rate = atomic_load_explicit(&job->bytes_per_s, memory_order_relaxed) / job->part_count;
    part->pace_until_us = 0;
    double elapsed = (double)(lane->now_us - part->tokens_at_us) / 1e6;
    part->tokens_at_us = lane->now_us;
    double wait = 0;
    if (rows_rate > 0) {
        double burst = rows_rate * BURST_S > 1 ? rows_rate * BURST_S : 1;
        part->row_tokens += elapsed * rows_rate;
        if (part->row_tokens > burst)
            part->row_tokens = burst;
        if (part->row_tokens < 1)
            wait = (1 - part->row_tokens) / rows_rate;
    } else {
        part->row_tokens = 0;
    }
    if (bytes_rate > 0) {
        double burst = bytes_rate * BURST_S;
        part->byte_tokens += elapsed * bytes_rate;
        if (part->byte_tokens > burst)
            part->byte_tokens = burst;
        if (part->byte_tokens < 0 && -part->byte_tokens / bytes_rate > wait)
            wait = -part->byte_tokens / bytes_rate;
    } else {
        part->byte_tokens = 0;
    }
    if (wait <= 0)
        return true;
    part->pace_until_us = lane->now_us + 1 + (int64_t)((wait < WAIT_MAX_S ? wait : WAIT_MAX_S) * 1e6);
    return false;
}

/* ---- issuing ---- */

static bool on_node_room(struct job_part *part, uint32_t count)
{
    if (part->on_node_count >= count)
        return true;
    uint32_t *on_node = cqr_mem_realloc(part->on_node, count * sizeof *on_node);
    if (on_node == NULL)
        return part->on_node != NULL;
    memset(on_node + part->on_node_count, 0, (count - part->on_node_count) * sizeof *on_node);
    part->on_node = on_node;
    part->on_node_count = count;
    return true;
}

/* With batches a row is in the list before it is issued. */
static void row_enter(struct job_part *part, struct op *op)
{
    if (part->batches != NULL)
        return;
    op->row = part->next_row++;
    list_add(part, op);
}

static uint64_t row_index(const struct job_part *part, const struct op *op)
{
    return part->batches != NULL ? op->row : part->next_row;
}

void cqr_job_row_fail(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row, uint32_t cell_count, const cqlring_error *error)
{
    op->accepted_us = lane->now_us;
    struct failure *failure = cqr_failure_copy(error);
    uint64_t size = 2;
    bool whole = part->has_sink && !cqr_failure_is_static(failure) && row->cells != NULL && cell_count <= UINT16_MAX;
    for (uint32_t i = 0; i < cell_count && whole; i++) {
        whole = row->cells[i].size >= CQLRING_UNSET && (row->cells[i].size <= 0 || row->cells[i].data != NULL);
        size += 4u + (uint64_t)(row->cells[i].size > 0 ? row->cells[i].size : 0);
    }
    if (whole && size <= part->job->bytes_max && (failure->own_values = cqr_mem_alloc((size_t)size)) != NULL) {
        struct writer writer;
        cqr_writer_init(&writer, failure->own_values, (uint32_t)size);
        cqr_put_values(&writer, row->cells, cell_count);
        failure->values = failure->own_values;
        failure->values_size = writer.size;
    }
    cqr_op_settle(lane, op, error->status, failure);
}

/* A row that is refused here gets its outcome like any other: only it fails (FR-09). */
static void row_refuse(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row, uint32_t cell_count, const cqlring_error *error)
{
    row_enter(part, op);
    cqr_job_row_fail(lane, part, op, row, cell_count, error);
}

/* It can never be sent: which of the three it is, is found out here. */
static __attribute__((noinline, cold)) enum placed row_bad(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row, uint64_t size)
{
    struct job *job = part->job;
    unsigned long long index = row_index(part, op);
    uint32_t count = row->cell_count;
    cqlring_error error;
    char what[32];
    snprintf(what, sizeof what, "row %llu", index);
    if (row->statement >= job->statement_count) {
        op->plan = &job->plans[0];
        cqr_error(&error, CQLRING_INVALID, "row %llu names statement %u, the job has %u", index, row->statement, job->statement_count);
    } else {
        struct statement_version *version = cqr_prepared_version(job->statements[row->statement]);
        count = count != 0 ? count : version->bind->columns.count;
        if (cqr_cells_check(version, row->cells, count, what, &error) == CQLRING_OK)
            cqr_error(&error, CQLRING_TOO_LARGE, "row %llu has %llu bytes of values, request_size_max is %u: split it, or raise the limit here and on the server",
                      index, (unsigned long long)size, job->session->cluster->request_size_max);
    }
    row_refuse(lane, part, op, row, count, &error);
    return PLACED;
}

static enum placed row_not_now(struct lane *lane, const struct job_part *part, struct op *op)
{
    if (part->batches == NULL)
        cqr_op_give(lane, op);
    return PLACED_NOT;
}

/* No connection takes it now. When that has been so for the request's whole time and nothing is connected, the row fails. */
bool cqr_job_row_stalled(struct lane *lane, struct job_part *part, const struct op *op, uint64_t row, bool any_up, cqlring_error *error)
{
    int64_t timeout_us = op->plan->timeout_us;
    if (any_up)
        part->stall_since_us = 0;
    else if (part->stall_since_us == 0)
        part->stall_since_us = lane->now_us;
    if (any_up || timeout_us < 0 || lane->now_us - part->stall_since_us < timeout_us)
        return false;
    char reasons[256];
    cqr_pool_reasons(lane, part->job->session, op->plan->target, reasons, sizeof reasons);
    cqr_error(error, CQLRING_UNREACHABLE, "row %llu: no node could be reached for %s%s%s", (unsigned long long)row,
              cqr_duration(timeout_us).text, reasons[0] != '\0' ? ": " : "", reasons);
    if (++part->stall_refused >= part->job->window) { /* a window of rows has waited its time: the next ones wait theirs */
        part->stall_refused = 0;
        part->stall_since_us = lane->now_us;
    }
    return true;
}

static __attribute__((noinline, cold)) enum placed row_stalled(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row,
                                                              uint32_t count, bool any_up)
{
    cqlring_error error;
    if (!cqr_job_row_stalled(lane, part, op, row_index(part, op), any_up, &error))
        return row_not_now(lane, part, op);
    row_refuse(lane, part, op, row, count, &error);
    return PLACED;
}

static __attribute__((noinline, cold)) enum placed row_unframed(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row,
                                                               uint32_t count, enum write_result result)
{
    cqlring_error error;
    unsigned long long index = row_index(part, op);
    if (result == WRITE_FULL)
        return row_not_now(lane, part, op);
    if (result == WRITE_TOO_LARGE)
        cqr_error(&error, CQLRING_TOO_LARGE, "row %llu has %u bytes of values: with what stands around them that is more than a frame takes, %d bytes: split it", index,
                  op->values_size - 2, PROTO_BODY_MAX);
    else
        cqr_error(&error, CQLRING_NO_MEMORY, "row %llu: out of memory while framing", index);
    row_refuse(lane, part, op, row, count, &error);
    return PLACED;
}

/* Apart, so that the single node's way stays a short one. */
__attribute__((noinline)) struct conn *cqr_job_row_route(struct lane *lane, struct job_part *part, struct op *op, struct pool *pool, const cqlring_bytes *cells, bool *any_up)
{
    bool hope;
    struct route_limit limit = {.adaptive = part->job->adaptive, .retrying = part->retrying}, *limited = limit.adaptive ? &limit : NULL;
    if (pool->link_count > 1 || pool->sharded) { /* else there is nothing to choose */
        op->has_token = op->has_token || cqr_version_token(lane, op->version, cells, &op->token);
        if (pool->up_count > 1 && on_node_room(part, pool->link_count)) {
            uint32_t window = part->job->window;
            limit.on_node = part->on_node;
            limit.node_count = part->on_node_count;
            limit.max = window > 1 ? window / 2 : 1; /* decision 30 */
            limited = &limit;
        }
    }
    if (part->unsettled < lane->rows_least)
        limit.adaptive = false; /* as in window_room */
    struct conn *conn = cqr_route(lane, op, limited, any_up, &hope);
    return conn != NULL && cqr_limit_window(&limit, conn) ? conn : NULL; /* also where the policy chose */
}

/* Where there is one node: its connection, for the window; elsewhere, where the route asks, NULL. */
static struct conn *window_conn(const struct lane *lane, const struct job *job)
{
    const struct pool_link *link = job->adaptive ? job->session->lanes[lane->index].pool->only : NULL;
    return link != NULL && link->up ? link->conn : NULL;
}

/* How many rows its window has room for. */
static uint32_t window_room(const struct job_part *part, const struct conn *conn)
{
    if (conn == NULL)
        return UINT32_MAX;
    uint32_t limit = conn->writer.adapt.limit, taken = conn->writer.in_flight + part->retrying;
    uint32_t room = taken < limit ? limit - taken : 0, least = part->lane->rows_least;
    least = part->unsettled < least ? least - part->unsettled : 0;
    return room > least ? room : least; /* others may fill it, which must not stop this job */
}

static inline __attribute__((always_inline)) struct op *row_take(struct lane *lane, struct job_part *part, const cqlring_row *row)
{
    struct op *op = cqr_op_take(lane, false);
    part->op_wanted = op == NULL;
    if (op == NULL)
        return NULL;
    op->settled = part->job->row_settled;
    op->owner = part;
    op->tag = row->tag;
    op->timestamp_us = row->timestamp_us;
    op->limit_node = NODE_NONE;
    return op;
}

struct op *cqr_job_row_take(struct lane *lane, struct job_part *part, const cqlring_row *row)
{
    struct op *op = row_take(lane, part, row);
    if (op == NULL)
        return NULL;
    op->row = part->next_row++;
    list_add(part, op);
    return op;
}

static inline __attribute__((always_inline)) void row_counted(struct job_part *part, struct op *op, const struct cqlring_node *node)
{
    if (part->on_node_count > 0 && node != NULL && node->index < part->on_node_count) {
        op->limit_node = node->index;
        part->on_node[op->limit_node]++;
    }
}

void cqr_job_row_counted(struct job_part *part, struct op *op, const struct cqlring_node *node)
{
    row_counted(part, op, node);
}

void cqr_job_row_drop(struct lane *lane, struct job_part *part, struct op *op)
{
    list_remove(part, op);
    part->unsettled--;
    cqr_op_give(lane, op);
}

/* The hot path of a job: straight for the row that goes, everything else is elsewhere. is_listed: it, and `planned` rows with it, are
   in the list though not issued. */
static inline __attribute__((always_inline)) enum placed row_place(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row, bool is_listed,
                                                                  uint32_t planned)
{
    static const cqlring_bytes none = {NULL, 0};
    struct job *job = part->job;
    if (row->statement >= job->statement_count)
        return row_bad(lane, part, op, row, 0);
    op->plan = &job->plans[row->statement];
    struct statement_version *version = cqr_prepared_version(job->statements[row->statement]);
    uint32_t count = row->cell_count != 0 ? row->cell_count : version->bind->columns.count;
    uint64_t size = 0;
    if (!cqr_cells_measure(version, row->cells, count, &size) || size > job->session->cluster->request_size_max)
        return row_bad(lane, part, op, row, size);
    uint32_t budget = (uint32_t)size + cqr_version_reply_expected(version);
    if (part->bytes + budget > job->bytes_max && part->open > planned && !(job->ordered && part->unsettled == planned))
        return row_not_now(lane, part, op); /* larger than what is free: alone, when nothing is under way (decision 21) */
    op->version = version;
    op->pages = version->is_read;
    op->values_size = 2 + (uint32_t)size;
    struct pool *pool = job->session->lanes[lane->index].pool;
    struct conn *conn = op->plan->target == NULL ? cqr_pool_only(pool) : NULL;
    if (conn == NULL) {
        bool any_up;
        conn = cqr_job_row_route(lane, part, op, pool, row->cells, &any_up);
        if (conn == NULL)
            return row_stalled(lane, part, op, row, count, any_up);
    }
    part->stall_since_us = 0;
    part->stall_refused = 0;
    enum write_result result = cqr_op_issue_row(lane, op, conn, count > 0 ? row->cells : &none, count, &part->heads[row->statement % JOB_HEADS]);
    if (result != WRITE_OK)
        return row_unframed(lane, part, op, row, count, result);
    op->reply_budget = budget;
    part->bytes += budget;
    row_counted(part, op, op->node);
    if (!is_listed) {
        op->row = part->next_row++;
        list_add(part, op);
    }
    if (part->paced) {
        part->row_tokens -= 1;
        part->byte_tokens -= (double)size;
    }
    cqr_count(&part->bytes_sent, size);
    return PLACED;
}

static enum placed row_issue(struct lane *lane, struct job_part *part)
{
    const cqlring_row *row = &part->rows[part->row_at];
    struct op *op = row_take(lane, part, row);
    return op != NULL ? row_place(lane, part, op, row, false, 0) : PLACED_NOT;
}

enum placed cqr_job_row_place(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row)
{
    return row_place(lane, part, op, row, true, cqr_batch_rows_planned(part));
}

/* Values as they are framed, where they wait. */
static bool row_keep(struct lane *lane, struct op *op, const cqlring_row *row, uint32_t count)
{
    uint8_t *at = cqr_values_room(lane, op, op->values_size);
    if (at == NULL)
        return false;
    struct writer writer;
    cqr_writer_init(&writer, at, op->values_size);
    cqr_put_values(&writer, row->cells, count);
    cqr_count(&lane->stats.copied_down_bytes, op->values_size);
    return true;
}

bool cqr_job_row_wait(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row)
{
    struct job *job = part->job;
    if (row->statement >= job->statement_count)
        return false;
    struct statement_version *version = cqr_prepared_version(job->statements[row->statement]);
    uint32_t count = row->cell_count != 0 ? row->cell_count : version->bind->columns.count;
    uint64_t size = 0;
    op->plan = &job->plans[row->statement];
    op->version = version;
    if (!cqr_cells_measure(version, row->cells, count, &size) || size > job->session->cluster->request_size_max || part->bytes + size > job->bytes_max)
        return false; /* it is looked at as any other */
    op->has_token = op->has_token || cqr_version_token(lane, version, row->cells, &op->token);
    int64_t due_us = cqr_partition_due(lane, op);
    op->values_size = 2 + (uint32_t)size;
    if (due_us == 0 || !row_keep(lane, op, row, count))
        return false;
    op->pages = version->is_read;
    op->reply_budget = (uint32_t)size + cqr_version_reply_expected(version);
    part->bytes += op->reply_budget;
    if (part->paced) {
        part->row_tokens -= 1;
        part->byte_tokens -= (double)size;
    }
    cqr_count(&part->bytes_sent, size);
    cqr_partition_wait(lane, op, due_us);
    return true;
}

/* Some partition rests: when it is this row's, it waits in the list, and those behind it go on. */
static bool row_waits(struct lane *lane, struct job_part *part)
{
    const cqlring_row *row = &part->rows[part->row_at];
    struct op *op = row_take(lane, part, row);
    if (op == NULL)
        return false;
    if (!cqr_job_row_wait(lane, part, op, row)) {
        cqr_op_give(lane, op);
        return false;
    }
    op->row = part->next_row++;
    list_add(part, op);
    return true;
}

enum way { WAY_FREE, WAY_CLOSED, WAY_LINE };

/* Of the next row: it may go, none may, or it has been put into its partition's line. */
static __attribute__((noinline)) enum way way_of(struct lane *lane, struct job_part *part)
{
    if (!cqr_job_pace(lane, part))
        return WAY_CLOSED;
    if (lane->rest_count == 0 || !row_waits(lane, part))
        return WAY_FREE;
    part->row_at++;
    return WAY_LINE;
}

static void issue(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    part->blocked = part->op_wanted = false;
    part->pace_until_us = 0;
    part->paced = atomic_load_explicit(&job->rows_per_s, memory_order_relaxed) > 0 || atomic_load_explicit(&job->bytes_per_s, memory_order_relaxed) > 0;
    if (!part->paced) { /* a limit that is set later counts from then on */
        part->row_tokens = part->byte_tokens = 0;
        part->tokens_at_us = lane->now_us;
    }
    if (part->batches != NULL) {
        cqr_batch_rows_issue(lane, part, QUANTUM);
        return;
    }
    part->paced = part->paced || lane->rest_count > 0; /* one question for both, as each row asks it */
    struct conn *conn = window_conn(lane, job);
    uint32_t room = window_room(part, conn);
    for (uint32_t quantum = 0; quantum < QUANTUM; quantum++) {
        if (atomic_load_explicit(&job->stop, memory_order_acquire) != 0 || atomic_load_explicit(&job->paused, memory_order_relaxed) != 0)
            return;
        if (part->open >= job->window)
            return;
        if (part->row_at == part->row_count) {
            if (part->source_state == SOURCE_LATER && part->source_wake_us > lane->now_us)
                return;
            if (part->source_state != SOURCE_ENDED)
                cqr_job_pull(lane, part);
            if (part->row_at == part->row_count || atomic_load_explicit(&job->stop, memory_order_acquire) != 0)
                return;
        }
        if (part->paced) {
            enum way way = way_of(lane, part);
            if (way == WAY_CLOSED)
                return;
            if (way == WAY_LINE)
                continue;
        }
        if (room == 0 && (room = window_room(part, conn)) == 0) { /* a row is there, and waits for an answer; refused ones took no room */
            conn->writer.adapt.reached = true;
            part->stall_since_us = 0; /* somebody is there */
            part->blocked = true;
            return;
        }
        room--;
        if (row_issue(lane, part) == PLACED_NOT) {
            part->blocked = true;
            return;
        }
        part->row_at++;
    }
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
    struct cqlring_session *session = cqr_session_retain(job->session);
    if (atomic_fetch_sub_explicit(&job->parts_left, 1, memory_order_acq_rel) == 1)
        cqr_job_end(job);
    cqr_session_op_end(lane, session);
    cqr_session_release(session);
}

static void part_turn(struct lane *lane, struct job_part *part)
{
    struct job *job = part->job;
    deliver(lane, part);
    issue(lane, part);
    if (!part->blocked)
        part->stall_since_us = 0;
    stop_rows(lane, part);
    if (part->done_count > 0)
        deliver(lane, part);
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
