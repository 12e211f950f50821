/* SPDX-License-Identifier: Apache-2.0 */

/* Groups of rows as batches: issued, and what becomes of them: settled, halved, or row by row. They are planned in batch_plan.c.
   Submitter. */

#include "driver/batch_rows.h"

#include <assert.h>
#include <string.h>

#include "driver/partition_rest.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session_log.h"
#include "driver/speculate.h"
#include "serialize/mem.h"

/* ---- the batch's end ---- */

static void batch_settled(struct lane *lane, struct op *op);

static struct batch_carrier *carrier_take(struct lane *lane, struct job_part *part)
{
    struct batch_rows *batches = part->batches;
    struct batch_carrier *carrier = batches->free;
    struct op *op = cqr_op_take(lane, false);
    if (op == NULL)
        return NULL;
    if (carrier != NULL) {
        batches->free = carrier->next;
    } else {
        carrier = cqr_mem_zalloc(sizeof *carrier);
        if (carrier == NULL) {
            cqr_op_give(lane, op);
            return NULL;
        }
        carrier->part = part;
        carrier->body.is_one_partition = true;
        carrier->body.prepared = carrier->prepared;
        carrier->body.versions = carrier->versions;
    }
    carrier->op = op;
    carrier->rows = NULL;
    carrier->count = 0;
    carrier->body.prepared_count = 0;
    carrier->next = batches->active;
    carrier->link = &batches->active;
    if (carrier->next != NULL)
        carrier->next->link = &carrier->next;
    batches->active = carrier;
    op->settled = batch_settled;
    op->owner = carrier;
    op->plan = &part->job->batches->plan;
    op->body = &carrier->body;
    return carrier;
}

static void carrier_give(struct lane *lane, struct batch_carrier *carrier)
{
    struct batch_rows *batches = carrier->part->batches;
    *carrier->link = carrier->next;
    if (carrier->next != NULL)
        carrier->next->link = carrier->link;
    cqr_op_give(lane, carrier->op);
    carrier->op = NULL;
    carrier->next = batches->free;
    batches->free = carrier;
}

/* Does it name this statement, or has it room for one more? */
static bool carrier_names(struct batch_carrier *carrier, struct statement_version *version)
{
    struct request_body *body = &carrier->body;
    for (uint32_t i = 0; i < body->prepared_count; i++)
        if (carrier->versions[i] == version)
            return true;
    if (body->prepared_count == BATCH_STATEMENTS_MAX)
        return false;
    carrier->versions[body->prepared_count] = version;
    carrier->prepared[body->prepared_count++] = version->prepared;
    return true;
}

/* What its batch met so far is what the row met. */
static void row_follows(struct op *row, const struct op *batch)
{
    row->phase = batch->phase;
    row->maybe_applied = batch->maybe_applied;
    row->attempts = batch->attempts;
    row->tries = batch->tries;
    row->accepted_us = batch->accepted_us;
    row->first_sent_us = batch->first_sent_us;
    row->sent_after_us = batch->sent_after_us;
    row->node = batch->node;
    row->timestamp_us = batch->timestamp_us;
}

/* The row's values in its batch's children; *at is behind them then. */
static const uint8_t *child_values(const struct op *row, const uint8_t **at)
{
    const uint8_t *values = *at + BATCH_CHILD_AROUND + row->version->id_size;
    *at = values + row->values_size;
    return values;
}

/* Of a failure that several rows have: each its own, with its own values for the sink. */
static struct failure *failure_of_row(const struct failure *failure, const struct op *row, const uint8_t *values)
{
    struct failure *own = cqr_failure_share(failure);
    const struct job_part *part = row->owner;
    if (cqr_failure_is_static(own) || !part->has_sink || (own->own_values = cqr_mem_alloc(row->values_size)) == NULL)
        return own;
    memcpy(own->own_values, values, row->values_size);
    own->values = own->own_values;
    own->values_size = row->values_size;
    return own;
}

static void rows_settle(struct lane *lane, struct batch_carrier *carrier)
{
    struct op *op = carrier->op, *row = carrier->rows;
    const uint8_t *at = op->values;
    cqlring_status status = op->status;
    while (row != NULL) {
        struct op *next = row->link;
        row->link = NULL;
        row_follows(row, op);
        row->uncounted = true; /* the batch is the request */
        row->settled = cqr_job_row_settled;
        struct failure *failure = NULL;
        if (status != CQLRING_OK)
            failure = failure_of_row(op->failure, row, child_values(row, &at));
        else if (row == carrier->rows)
            row->result = cqlring_result_retain(op->result); /* the server's warnings, once */
        cqr_op_settle(lane, row, status, failure);
        row = next;
    }
    carrier_give(lane, carrier);
}

/* A row on its own way from here on, as an EXECUTE with its batch's timestamp. */
static void row_leaves(struct lane *lane, struct op *row, const struct op *batch, const uint8_t *values)
{
    row->link = NULL;
    row_follows(row, batch);
    row->state = OP_NEW;
    if (!cqr_values_keep(lane, row, values, row->values_size)) {
        cqr_op_settle(lane, row, CQLRING_NO_MEMORY, cqr_failure_make(CQLRING_NO_MEMORY, "EXECUTE: out of memory for a row of a batch that was refused"));
        return;
    }
    cqr_op_start(lane, row);
    cqr_op_issue(lane, row);
}

static void rows_leave(struct lane *lane, struct op *row, const struct op *batch, const uint8_t *at)
{
    while (row != NULL) {
        struct op *next = row->link;
        row_leaves(lane, row, batch, child_values(row, &at));
        row = next;
    }
}

/* The first `count` rows of *rows, whose children begin at *at, as a batch of their own; NULL when it cannot be made. */
static struct batch_carrier *half_make(struct lane *lane, struct batch_carrier *from, struct op **rows, uint32_t count, const uint8_t **at)
{
    struct batch_carrier *half = carrier_take(lane, from->part);
    if (half == NULL)
        return NULL;
    struct op *last = NULL, *row = *rows;
    const uint8_t *end = *at;
    half->rows = row;
    half->count = count;
    for (uint32_t i = 0; i < count; i++) {
        child_values(row, &end);
        carrier_names(half, row->version);
        last = row;
        row = row->link;
    }
    struct op *op = half->op;
    if (!cqr_values_keep(lane, op, *at, (uint32_t)(end - *at))) {
        half->rows = NULL;
        carrier_give(lane, half);
        return NULL;
    }
    last->link = NULL;
    *rows = row;
    *at = end;
    row_follows(op, from->op);
    op->batch_count = (uint16_t)count;
    op->version = half->rows->version;
    op->token = from->op->token;
    op->has_token = from->op->has_token;
    op->tag = half->rows->tag;
    return half;
}

/* In two, which go again at once; what is left of them when there is no room, row by row. */
static void split(struct lane *lane, struct batch_carrier *carrier)
{
    struct batch_carrier *halves[2] = {NULL, NULL};
    struct op *rows = carrier->rows;
    const uint8_t *at = carrier->op->values;
    uint32_t counts[2] = {carrier->count / 2, carrier->count - carrier->count / 2};
    cqr_count(&lane->stats.batches_split, 1);
    for (int i = 0; i < 2 && counts[i] > 1; i++)
        if ((halves[i] = half_make(lane, carrier, &rows, counts[i], &at)) == NULL)
            break;
    for (int i = 0; i < 2; i++)
        if (halves[i] != NULL) {
            cqr_op_start(lane, halves[i]->op);
            cqr_op_issue(lane, halves[i]->op);
        }
    rows_leave(lane, rows, carrier->op, at);
    carrier_give(lane, carrier);
}

/* "Batch too large" of Cassandra and ScyllaDB; of Cassandra's limits of a message and of a mutation. */
static bool is_too_large(const struct error_body *error)
{
    static const char *const words[] = {"too large", "oversized mutation", "exceeds allowed maximum"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t size = strlen(words[i]);
        for (size_t at = 0; error->message.data != NULL && at + size <= (size_t)error->message.size; at++)
            if (memcmp((const char *)error->message.data + at, words[i], size) == 0)
                return true;
    }
    return false;
}

static void learn(struct lane *lane, struct job *job, const struct op *op)
{
    uint32_t bytes;
    if (cqr_batch_limit_refused(&job->session->cluster->batch_limit, op->values_size, lane->now_us, &bytes))
        cqr_pool_log(lane, job->session->lanes[lane->index].pool, &(struct log_news){.level = CQLRING_LOG_WARN, .node = op->node, .status = CQLRING_SERVER, .server_code = ERROR_INVALID},
                     "a batch of %u rows of one partition, %u bytes, was too large for %s: %u bytes at most from now on, for all nodes", op->batch_count, op->values_size,
                     op->node != NULL ? cqr_node_place(op->node)->text : "the server", bytes);
}

static void batch_settled(struct lane *lane, struct op *op)
{
    struct batch_carrier *carrier = op->owner;
    struct job *job = carrier->part->job;
    if (op->plan->percentile > 0)
        cqr_race_latency(lane, op);
    bool may_go_on = op->status != CQLRING_OK && !op->cancelled && !lane->stopping && lane->now_us < op->deadline_us &&
                     (atomic_load_explicit(&job->stop, memory_order_relaxed) & (JOB_STOP_CANCEL | JOB_STOP_CLOSE | JOB_STOP_ERROR)) == 0;
    const struct failure *failure = op->failure;
    if (may_go_on && op->status == CQLRING_SERVER && failure->has_body && failure->body.code == ERROR_INVALID) {
        if (is_too_large(&failure->body))
            learn(lane, job, op);
        split(lane, carrier);
        return;
    }
    if (may_go_on && op->status == CQLRING_TYPE && op->phase == CQLRING_NOT_SENT) { /* a statement has another id now: each row knows what to do */
        rows_leave(lane, carrier->rows, op, op->values);
        carrier_give(lane, carrier);
        return;
    }
    rows_settle(lane, carrier);
}

/* ---- issuing ---- */

static void group_take(struct batch_rows *batches, struct batch_group *group, uint32_t count)
{
    uint32_t last = group->first;
    for (uint32_t i = 0; i < count; i++) {
        last = group->first;
        group->first = batches->next[group->first];
    }
    if (last >= batches->issued_end)
        batches->issued_end = last + 1; /* a group's rows are in order */
    group->count = (uint16_t)(group->count - count);
    batches->planned -= count;
}

static enum placed first_alone(struct lane *lane, struct job_part *part, struct batch_group *group)
{
    struct batch_rows *batches = part->batches;
    uint32_t index = group->first;
    bool waits = lane->rest_count > 0 && cqr_job_row_wait(lane, part, batches->ops[index], &part->rows[index]);
    if (!waits && cqr_job_row_place(lane, part, batches->ops[index], &part->rows[index]) == PLACED_NOT)
        return PLACED_NOT;
    group_take(batches, group, 1);
    return PLACED;
}

/* Nothing is connected for the whole time of a request. */
static __attribute__((noinline, cold)) enum placed group_stalled(struct lane *lane, struct job_part *part, struct batch_group *group, bool any_up)
{
    struct batch_rows *batches = part->batches;
    struct op *op = batches->ops[group->first];
    const cqlring_row *row = &part->rows[group->first];
    cqlring_error error;
    if (!cqr_job_row_stalled(lane, part, op, op->row, any_up, &error))
        return PLACED_NOT;
    group_take(batches, group, 1);
    cqr_job_row_fail(lane, part, op, row, row->cell_count != 0 ? row->cell_count : op->version->bind->columns.count, &error);
    return PLACED;
}

/* The group's rows as children in scratch; how many there are. */
static uint32_t children_encode(struct job_part *part, const struct batch_group *group, struct batch_carrier *carrier, struct writer *out)
{
    struct batch_rows *batches = part->batches;
    uint32_t count = 0;
    for (uint32_t index = group->first; count < group->count; index = batches->next[index]) {
        const cqlring_row *row = &part->rows[index];
        struct op *op = batches->ops[index];
        struct statement_version *version = op->version = cqr_prepared_version(part->job->statements[row->statement]);
        if (out->size + BATCH_CHILD_AROUND + version->id_size + batches->sizes[index] > batches->scratch_size || !carrier_names(carrier, version))
            break;
        cqr_batch_prepared(out, (cqlring_bytes){version->id, version->id_size});
        cqr_put_values(out, row->cells, version->bind->columns.count);
        op->plan = &part->job->plans[row->statement];
        op->values_size = batches->sizes[index];
        count++;
    }
    return count;
}

/* It is on its way: its rows wait for it. */
static void group_issued(struct job_part *part, struct batch_group *group, struct batch_carrier *carrier, uint32_t count)
{
    struct batch_rows *batches = part->batches;
    struct op **link = &carrier->rows;
    uint64_t size = 0;
    uint32_t index = group->first;
    for (uint32_t i = 0; i < count; i++) {
        struct op *row = batches->ops[index];
        row->state = OP_IN_BATCH;
        row->reply_budget = row->values_size;
        size += row->values_size;
        cqr_job_row_counted(part, row, carrier->op->node);
        *link = row;
        link = &row->link;
        index = batches->next[index];
    }
    *link = NULL;
    carrier->count = count;
    part->bytes += size;
    if (part->paced) {
        part->row_tokens -= count;
        part->byte_tokens -= (double)size;
    }
    cqr_count(&part->bytes_sent, size);
    group_take(batches, group, count);
}

/* Its partition rests: the batch waits. */
static __attribute__((noinline, cold)) bool group_waits(struct lane *lane, struct batch_carrier *carrier)
{
    struct op *op = carrier->op;
    int64_t due_us = cqr_partition_due(lane, op);
    const uint8_t *children = op->values;
    uint8_t *at = due_us != 0 ? cqr_values_room(lane, op, op->values_size) : NULL;
    if (at == NULL)
        return false;
    memcpy(at, children, op->values_size);
    cqr_count(&lane->stats.copied_down_bytes, op->values_size);
    cqr_partition_wait(lane, op, due_us);
    return true;
}

static enum placed group_issue(struct lane *lane, struct job_part *part, struct batch_group *group)
{
    struct batch_rows *batches = part->batches;
    struct job *job = part->job;
    if (group->count == 1)
        return first_alone(lane, part, group);
    bool is_idle = part->open == batches->planned || (job->ordered && part->unsettled == batches->planned);
    if (part->bytes + group->bytes > job->bytes_max && !is_idle)
        return PLACED_NOT;
    struct batch_carrier *carrier = carrier_take(lane, part);
    if (carrier == NULL)
        return first_alone(lane, part, group);
    struct op *op = carrier->op, *first = batches->ops[group->first];
    struct writer out;
    cqr_writer_init(&out, batches->scratch, batches->scratch_size);
    uint32_t count = children_encode(part, group, carrier, &out);
    assert(count > 0 && !out.failed);
    op->tag = first->tag;
    op->timestamp_us = group->timestamp_us;
    op->version = first->version;
    op->token = first->token;
    op->has_token = true;
    op->batch_count = (uint16_t)count;
    op->values = batches->scratch;
    op->values_size = out.size;
    if (lane->rest_count > 0 && group_waits(lane, carrier)) {
        cqr_count(&lane->stats.batches, 1);
        cqr_count(&lane->stats.batched_rows, count);
        group_issued(part, group, carrier, count);
        return PLACED;
    }
    struct pool *pool = job->session->lanes[lane->index].pool;
    struct conn *conn = op->plan->target == NULL ? cqr_pool_only(pool) : NULL;
    bool any_up = true;
    if (conn == NULL)
        conn = cqr_job_row_route(lane, part, op, pool, NULL, &any_up);
    if (conn == NULL) {
        carrier_give(lane, carrier);
        return group_stalled(lane, part, group, any_up);
    }
    part->stall_since_us = 0;
    part->stall_refused = 0;
    enum write_result result = cqr_op_issue_batch(lane, op, conn);
    if (result != WRITE_OK) {
        carrier_give(lane, carrier);
        return result == WRITE_FULL ? PLACED_NOT : first_alone(lane, part, group);
    }
    cqr_count(&lane->stats.batches, 1);
    cqr_count(&lane->stats.batched_rows, count);
    group_issued(part, group, carrier, count);
    return PLACED;
}

/* What is planned was issued, or left out. */
static void plan_ends(struct job_part *part)
{
    struct batch_rows *batches = part->batches;
    part->row_at = batches->plan_end;
    batches->group_at = batches->group_count = 0;
}

/* It will not go, though rows behind it have gone with those of their partition. */
static void row_left_behind(struct lane *lane, struct job_part *part, struct op *op, const cqlring_row *row)
{
    struct job *job = part->job;
    uint32_t statement = row->statement < job->statement_count ? row->statement : 0;
    op->plan = &job->plans[statement];
    cqlring_error error;
    memset(&error, 0, sizeof error);
    cqr_error(&error, job->session->lanes[lane->index].closing ? CQLRING_CLOSED : CQLRING_CANCELLED, "row %llu: the job was stopped before it was sent",
              (unsigned long long)op->row);
    cqr_job_row_fail(lane, part, op, row, row->cell_count != 0 ? row->cell_count : cqr_prepared_version(job->statements[statement])->bind->columns.count, &error);
}

/* What is planned behind the last row that was issued is as if it had not been pulled; a row before that one has its outcome, so that
   there are no holes: as when each row goes alone. */
static void drop_planned(struct lane *lane, struct job_part *part)
{
    struct batch_rows *batches = part->batches;
    if (batches->planned == 0)
        return;
    uint64_t row_end = batches->plan_row + (batches->issued_end - part->row_at);
    while (part->tail != NULL && part->tail->row >= row_end) {
        part->next_row = part->tail->row;
        batches->planned--;
        cqr_job_row_drop(lane, part, part->tail);
    }
    for (struct op *op = part->head, *next; batches->planned > 0; op = next) {
        next = op->next;
        if (op->state != OP_NEW)
            continue;
        batches->planned--;
        row_left_behind(lane, part, op, &part->rows[part->row_at + (op->row - batches->plan_row)]);
    }
    plan_ends(part);
}

void cqr_batch_rows_issue(struct lane *lane, struct job_part *part, uint32_t rows_max)
{
    struct batch_rows *batches = part->batches;
    struct job *job = part->job;
    uint32_t issued = 0;
    while (issued < rows_max) {
        if (atomic_load_explicit(&job->stop, memory_order_acquire) != 0) {
            drop_planned(lane, part);
            return;
        }
        if (atomic_load_explicit(&job->paused, memory_order_relaxed) != 0)
            return;
        if (batches->planned == 0) {
            if (part->row_at == part->row_count) {
                if (cqr_batch_rows_wait(part) || part->open >= job->window || (part->source_state == SOURCE_LATER && part->source_wake_us > lane->now_us))
                    return;
                if (part->source_state != SOURCE_ENDED)
                    cqr_job_pull(lane, part);
                if (part->row_at == part->row_count || atomic_load_explicit(&job->stop, memory_order_acquire) != 0)
                    return;
            }
            cqr_batch_plan(lane, part);
            if (batches->planned == 0) {
                part->blocked = true;
                return;
            }
        }
        if (part->paced && !cqr_job_pace(lane, part))
            return;
        uint32_t before = batches->planned;
        struct batch_group *group = &batches->groups[batches->group_at];
        if (group_issue(lane, part, group) == PLACED_NOT) {
            part->blocked = true;
            return;
        }
        issued += before - batches->planned;
        if (group->count == 0)
            batches->group_at++;
        if (batches->planned == 0)
            plan_ends(part);
    }
}

void cqr_batch_rows_stop(struct lane *lane, struct job_part *part, cqlring_status status, const char *why, bool final)
{
    drop_planned(lane, part);
    for (struct batch_carrier *carrier = part->batches->active, *next; carrier != NULL; carrier = next) {
        next = carrier->next;
        struct op *op = carrier->op;
        if (!final && (op->state == OP_IN_FLIGHT || op->state == OP_WAIT_RACE))
            op->cancelled = true;
        else
            cqr_op_abort(lane, op, status, why);
    }
}

/* ---- memory ---- */

struct batch_rows *cqr_batch_rows_make(const struct batch_rule *rule)
{
    struct batch_rows *batches = cqr_mem_alloc(sizeof *batches + rule->bytes_max);
    if (batches == NULL)
        return NULL;
    memset(batches, 0, sizeof *batches);
    batches->scratch_size = rule->bytes_max;
    return batches;
}

void cqr_batch_rows_end(struct job_part *part)
{
    struct batch_rows *batches = part->batches;
    assert(batches->active == NULL && batches->planned == 0);
    while (batches->free != NULL) {
        struct batch_carrier *carrier = batches->free;
        batches->free = carrier->next;
        cqr_mem_free(carrier);
    }
}

void cqr_batch_rows_free(struct batch_rows *batches)
{
    cqr_mem_free(batches);
}
