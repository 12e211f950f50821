/* SPDX-License-Identifier: Apache-2.0 */

/* A job's rows on their way out: pulled from the source, paced, routed and issued. See job.c. */

#include <stdio.h>
#include <string.h>

#include "driver/batch_rows.h"
#include "driver/execution.h"
#include "driver/job_list.h"
#include "driver/partition_rest.h"
#include "driver/prepared.h"
#include "driver/runtime.h"

enum { QUANTUM = 1024 };
static const double BURST_S = 0.01;
static const double WAIT_MAX_S = 3600; /* then it is asked again */

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
    op->limit_node = JOB_NODE_NONE;
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

void cqr_job_issue(struct lane *lane, struct job_part *part)
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
