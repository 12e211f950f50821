/* SPDX-License-Identifier: Apache-2.0 */

/* Single requests: how they are to run, posted to a lane, started and finished there. What they carry is in body.c. */

#include <stddef.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/room.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/speculate.h"
#include "serialize/mem.h"

enum { TIMEOUT_US = 12000000, ATTEMPT_TIMEOUT_US = 3000000, PAGE_SIZE = 5000 };

/* ---- how ---- */

static cqlring_status option_check(const cqlring_execution *execution, const struct cqlring_cluster *cluster, cqlring_error *error)
{
    if (execution->struct_size < sizeof *execution)
        return cqr_error(error, CQLRING_INVALID, "execution options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_execution)",
                         execution->struct_size, sizeof *execution);
    if (execution->timeout_us < -1 || execution->attempt_timeout_us < -1)
        return cqr_error(error, CQLRING_INVALID, "execution options: %s %lld (-1 for none, 0 for the default, or microseconds)",
                         execution->timeout_us < -1 ? "timeout_us" : "attempt_timeout_us",
                         (long long)(execution->timeout_us < -1 ? execution->timeout_us : execution->attempt_timeout_us));
    const struct {
        const char *name;
        cqlring_tristate given;
    } choices[] = {{"idempotent", execution->idempotent}, {"tracing", execution->tracing}, {"prefetch", execution->prefetch}};
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (choices[i].given > CQLRING_YES)
            return cqr_error(error, CQLRING_INVALID, "execution options: %s %d (DEFAULT, NO or YES)", choices[i].name, (int)choices[i].given);
    if (execution->retry > CQLRING_RETRY_NONE)
        return cqr_error(error, CQLRING_INVALID, "execution options: retry %d (DEFAULT or NONE)", (int)execution->retry);
    if ((execution->consistency < 0 || execution->consistency > CQLRING_LOCAL_ONE) && execution->consistency != CQLRING_ANY)
        return cqr_error(error, CQLRING_INVALID, "execution options: consistency %d is none of the levels", execution->consistency);
    if (execution->serial_consistency != CQLRING_CONSISTENCY_DEFAULT && execution->serial_consistency != CQLRING_SERIAL &&
        execution->serial_consistency != CQLRING_LOCAL_SERIAL && execution->serial_consistency != CQLRING_ANY)
        return cqr_error(error, CQLRING_INVALID, "execution options: serial_consistency %d (SERIAL, LOCAL_SERIAL or ANY, which sends none)",
                         execution->serial_consistency);
    if (execution->page_size < -1)
        return cqr_error(error, CQLRING_INVALID, "execution options: page_size %d (-1 for unpaged, 0 for the default, or rows)", execution->page_size);
    if (execution->payload_count > 65535 || (execution->payload_count > 0 && execution->payload == NULL))
        return cqr_error(error, CQLRING_INVALID, "execution options: payload of %u entries (65535 at most)", execution->payload_count);
    for (uint32_t i = 0; i < execution->payload_count; i++) {
        const cqlring_payload_entry *entry = &execution->payload[i];
        if (entry->key.size < 0 || entry->key.size > 65535 || (entry->key.size > 0 && entry->key.data == NULL))
            return cqr_error(error, CQLRING_INVALID, "execution options: payload entry %u has a key of %d bytes (65535 at most)", i, entry->key.size);
        if (entry->value.size < CQLRING_NULL || (entry->value.size > 0 && entry->value.data == NULL))
            return cqr_error(error, CQLRING_INVALID, "execution options: payload entry %u: a value's size is that of its data or CQLRING_NULL, not %d", i,
                             entry->value.size);
    }
    const cqlring_speculation *speculation = execution->speculation;
    if (speculation != NULL) {
        if (speculation->struct_size < sizeof *speculation)
            return cqr_error(error, CQLRING_INVALID, "speculation: struct_size is %zu, expected %zu: set it to sizeof(cqlring_speculation)", speculation->struct_size,
                             sizeof *speculation);
        if (speculation->max > COPIES_MAX)
            return cqr_error(error, CQLRING_INVALID, "speculation: max is %u, at most %d further attempts may run at once", speculation->max, COPIES_MAX);
        if (speculation->delay_us < 0)
            return cqr_error(error, CQLRING_INVALID, "speculation: delay_us is %lld: 0 (at once) or microseconds", (long long)speculation->delay_us);
        if (!(speculation->percentile >= 0 && speculation->percentile < 100))
            return cqr_error(error, CQLRING_INVALID, "speculation: percentile is %g: 0 (a constant delay), or above it and below 100", speculation->percentile);
    }
    const cqlring_bytes *const slices[2] = {&execution->keyspace, &execution->paging_state};
    for (int i = 0; i < 2; i++)
        if (slices[i]->size < CQLRING_NULL || (slices[i]->size > 0 && slices[i]->data == NULL))
            return cqr_error(error, CQLRING_INVALID, "execution options: %s has a size of %d, and %s", i == 0 ? "keyspace" : "paging_state", slices[i]->size,
                             slices[i]->data == NULL ? "no data" : "none is negative");
    if (execution->target != NULL && !cqr_cluster_has(cluster, execution->target))
        return cqr_error(error, CQLRING_INVALID, "execution options: target is a node of another cluster");
    unsigned version = atomic_load_explicit(&((struct cqlring_cluster *)(uintptr_t)cluster)->version, memory_order_relaxed);
    if (execution->now_in_seconds != 0 && version < PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "execution options: now_in_seconds needs protocol v5, this cluster speaks v%u", version);
    if (execution->keyspace.size > 0 && version < PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "execution options: a keyspace for one request needs protocol v5, this cluster speaks v%u", version);
    return CQLRING_OK;
}

static bool tristate(cqlring_tristate given, bool otherwise)
{
    return given == CQLRING_DEFAULT ? otherwise : given == CQLRING_YES;
}

/* What is not the default, but for the slices: keyspace, payload, paging state. */
static void plan_apply(struct op_plan *plan, const cqlring_execution *execution)
{
    struct query_params *params = &plan->params;
    if (execution->timeout_us != 0)
        plan->timeout_us = execution->timeout_us;
    if (execution->attempt_timeout_us != 0)
        plan->attempt_timeout_us = execution->attempt_timeout_us;
    if (execution->consistency != CQLRING_CONSISTENCY_DEFAULT)
        params->consistency = execution->consistency == CQLRING_ANY ? 0 : (uint16_t)execution->consistency;
    if (execution->serial_consistency != CQLRING_CONSISTENCY_DEFAULT)
        params->serial_consistency = execution->serial_consistency == CQLRING_ANY ? 0 : (uint16_t)execution->serial_consistency;
    if (execution->page_size != 0)
        params->page_size = execution->page_size;
    plan->idempotent = tristate(execution->idempotent, plan->idempotent);
    params->tracing = tristate(execution->tracing, params->tracing);
    plan->prefetch = tristate(execution->prefetch, plan->prefetch);
    if (execution->retry == CQLRING_RETRY_NONE)
        plan->retry = false;
    if (execution->timestamp_us != 0)
        plan->timestamp_us = execution->timestamp_us;
    if (execution->now_in_seconds != 0) {
        params->has_now = true;
        params->now_in_seconds = execution->now_in_seconds;
    }
    if (execution->target != NULL)
        plan->target = execution->target;
    if (execution->speculation != NULL) {
        plan->copies_max = (uint8_t)execution->speculation->max;
        plan->copy_after_us = execution->speculation->delay_us;
        plan->percentile = (float)execution->speculation->percentile;
    }
}

cqlring_status cqr_plan_make(struct op_plan *plan, struct cqlring_session *session, const cqlring_execution *execution, cqlring_error *error)
{
    *plan = session->defaults_plan;
    plan->session = session;
    if (execution == NULL)
        return CQLRING_OK;
    cqlring_status status = option_check(execution, session->cluster, error);
    if (status != CQLRING_OK)
        return status;
    plan_apply(plan, execution);
    struct query_params *params = &plan->params;
    if (execution->keyspace.size > 0)
        params->keyspace = execution->keyspace;
    if (execution->paging_state.data != NULL && execution->paging_state.size >= 0)
        params->paging_state = execution->paging_state;
    if (execution->payload_count > 0) {
        params->payload = (const struct string_pair *)(const void *)execution->payload;
        params->payload_count = (uint16_t)execution->payload_count;
    }
    return CQLRING_OK;
}

cqlring_status cqr_plan_change(struct op_plan *plan, const cqlring_execution *execution, cqlring_error *error)
{
    if (execution == NULL)
        return CQLRING_OK;
    cqlring_status status = option_check(execution, plan->session->cluster, error);
    if (status != CQLRING_OK)
        return status;
    if (execution->keyspace.size > 0 || execution->paging_state.data != NULL || execution->payload_count > 0)
        return cqr_error(error, CQLRING_INVALID, "execution options: keyspace, paging_state and payload of a further page are the first one's");
    plan_apply(plan, execution);
    if (plan->params.page_size < 0)
        plan->params.page_size = 0;
    cqr_plan_finish(plan, plan->opcode, plan->is_read);
    return CQLRING_OK;
}
bool cqr_plan_is_same(const struct op_plan *a, const struct op_plan *b)
{
    const struct query_params *one = &a->params, *other = &b->params;
    return one->consistency == other->consistency && one->serial_consistency == other->serial_consistency && one->page_size == other->page_size &&
           one->tracing == other->tracing && one->has_now == other->has_now && one->now_in_seconds == other->now_in_seconds &&
           a->timeout_us == b->timeout_us && a->attempt_timeout_us == b->attempt_timeout_us && a->timestamp_us == b->timestamp_us &&
           a->idempotent == b->idempotent && a->retry == b->retry && a->target == b->target && a->prefetch == b->prefetch &&
           a->copies_max == b->copies_max && a->copy_after_us == b->copy_after_us && !(a->percentile < b->percentile || b->percentile < a->percentile);
}
_Static_assert(sizeof(struct string_pair) == sizeof(cqlring_payload_entry), "the public entry is the protocol's pair");

void cqr_plan_defaults(struct op_plan *plan)
{
    *plan = (struct op_plan){.timeout_us = TIMEOUT_US, .retry = true};
    plan->params.consistency = CQLRING_LOCAL_ONE;
    plan->params.page_size = PAGE_SIZE;
    plan->params.skip_metadata = true;
}

void cqr_plan_finish(struct op_plan *plan, uint8_t opcode, bool is_read)
{
    plan->opcode = opcode;
    plan->is_read = is_read;
    if (plan->attempt_timeout_us == 0)
        plan->attempt_timeout_us = plan->idempotent && !is_read && plan->retry ? ATTEMPT_TIMEOUT_US : -1;
    /* another node would do the same once more */
    if ((!plan->idempotent && !is_read) || plan->target != NULL || (opcode == OPCODE_BATCH && plan->batch_kind == CQLRING_BATCH_COUNTER))
        plan->copies_max = 0;
    if (plan->copies_max == 0)
        plan->percentile = 0;
    plan->watched = plan->attempt_timeout_us >= 0 || plan->copies_max > 0;
    if (plan->params.page_size < 0 || opcode == OPCODE_BATCH || (opcode == OPCODE_EXECUTE && !is_read))
        plan->params.page_size = 0;
    plan->params.skip_metadata = opcode == OPCODE_EXECUTE;
}

/* ---- the way ---- */

static void dispose(cqlring_future *future)
{
    struct execution *execution = (struct execution *)(void *)((char *)future - offsetof(struct execution, future));
    if (future->kind == FUTURE_EXECUTE) {
        cqlring_result_release(future->completion.result);
    } else if (future->kind == FUTURE_PREPARED) {
        cqlring_prepared_release(future->value);
        cqlring_prepared_release(execution->context);
    }
    cqr_failure_free(future->error);
    struct runtime_core *runtime = execution->body->session == NULL ? future->runtime : NULL;
    cqr_body_release(execution->body);
    cqr_mem_free(execution);
    cqr_runtime_release(runtime);
}

static void cancel_run(struct lane *lane, struct lane_message *message)
{
    struct execution *execution = (struct execution *)(void *)((char *)message - offsetof(struct execution, cancel_message));
    if (execution->future.kind == FUTURE_PREPARED)
        cqr_prepare_cancel(execution);
    else if (execution->op != NULL)
        cqr_op_abort(lane, execution->op, CQLRING_CANCELLED, "cancelled by the application");
    else
        execution->cancelled = true; /* if it still waits for an op, this turn refuses it */
    lane->exec_due_us = 0;
    cqlring_future_release(&execution->future);
}

static void cancel(cqlring_future *future)
{
    struct execution *execution = (struct execution *)(void *)((char *)future - offsetof(struct execution, future));
    if (execution->lane == NULL || atomic_exchange_explicit(&execution->cancel_posted, 1, memory_order_acq_rel) != 0)
        return;
    execution->cancel_message.run = cancel_run;
    cqlring_future_retain(future);
    if (!cqr_lane_post(execution->lane, &execution->cancel_message))
        cqlring_future_release(future);
}

void cqr_execution_init(struct execution *execution, struct runtime_core *runtime, struct request_body *body, enum future_kind kind)
{
    execution->body = body;
    if (body->session == NULL) /* else its session holds the runtime */
        cqr_runtime_retain(runtime);
    cqr_future_init(&execution->future, kind, runtime, dispose);
    execution->future.cancel = cancel;
}

struct execution *cqr_execution_make(struct runtime_core *runtime, struct request_body *body, enum future_kind kind)
{
    struct execution *execution = cqr_mem_zalloc(sizeof *execution);
    if (execution != NULL)
        cqr_execution_init(execution, runtime, body, kind);
    return execution;
}

void cqr_execution_abandon(struct execution *execution)
{
    cqlring_future_release(&execution->future);
    cqlring_future_release(&execution->future);
}

static void uncharge(struct execution *execution)
{
    if (!execution->charged)
        return;
    struct cqlring_session *session = execution->body->session;
    atomic_fetch_sub_explicit(&session->bytes, execution->body->size, memory_order_seq_cst); /* see cqr_room_came_free */
    atomic_fetch_sub_explicit(&session->requests, 1, memory_order_seq_cst);
    execution->charged = false;
    cqr_room_came_free(session);
}

/* The execution is through: whoever waits is told. op NULL: it never got one; status and failure then come from the caller. */
void cqr_execution_complete(struct lane *lane, struct execution *execution, struct op *op)
{
    cqlring_future *future = &execution->future;
    future->status = op->status;
    cqr_completion_fill(&future->completion, op);
    future->completion.tag = execution->body->tag;
    if (op->result != NULL && op->result->paging_state.data != NULL)
        cqr_result_paged(op->result, execution);
    op->result = NULL;
    future->error = op->failure != NULL ? &op->failure->error : NULL;
    op->failure = NULL;
    (void)lane;
    cqr_future_complete(future);
}

/* Apart: every row comes past the question whether this is needed. */
__attribute__((noinline, cold)) static void times_bound(cqlring_completion *completion, int64_t accepted_us, int64_t sent_us, int64_t received_us)
{
    completion->queued_us = cqr_elapsed_us(accepted_us, sent_us);
    completion->in_flight_us = cqr_elapsed_us(sent_us, received_us);
}

void cqr_completion_fill(cqlring_completion *completion, const struct op *op)
{
    *completion = (cqlring_completion){.row = op->row,
                                       .tag = op->tag,
                                       .received_us = op->received_us,
                                       .status = (uint16_t)op->status,
                                       .phase = op->phase,
                                       .attempts = op->attempts,
                                       .node = op->node,
                                       .result = op->result,
                                       .error = op->failure != NULL && op->status != CQLRING_OK ? &op->failure->error : NULL};
    if (op->status == CQLRING_OK) {
        if (op->result == NULL)
            completion->flags |= CQLRING_COMPLETION_VOID;
        else if (op->result->prefix.warning_count > 0)
            completion->flags |= CQLRING_COMPLETION_WARNINGS;
    } else if (op->maybe_applied) {
        completion->flags |= CQLRING_COMPLETION_MAYBE_APPLIED;
    }
    if (!op->may_continue)
        completion->flags |= CQLRING_COMPLETION_LAST;
    int64_t sent_us = op->first_sent_us != 0 ? op->first_sent_us : op->received_us;
    uint64_t queued_us = (uint64_t)(sent_us - op->accepted_us), in_flight_us = (uint64_t)(op->received_us - sent_us);
    completion->queued_us = (uint32_t)queued_us;
    completion->in_flight_us = (uint32_t)in_flight_us;
    if (__builtin_expect((queued_us | in_flight_us) >> 32 != 0, 0))
        times_bound(completion, op->accepted_us, sent_us, op->received_us);
}

static void settled(struct lane *lane, struct op *op)
{
    struct execution *execution = op->owner;
    struct cqlring_session *session = execution->body->session;
    execution->op = NULL;
    uncharge(execution);
    if (op->plan->percentile > 0)
        cqr_race_latency(lane, op);
    if (op->status == CQLRING_OK && op->failure != NULL) {
        cqr_failure_free(&op->failure->error);
        op->failure = NULL;
    }
    if (execution->finished != NULL) { /* the body, and its reference of the session, may go with the future */
        cqlring_future *future = &execution->future;
        execution->finished(lane, execution, op);
        cqr_op_give(lane, op);
        cqlring_future_release(future);
    } else {
        cqr_execution_complete(lane, execution, op);
        cqr_op_give(lane, op);
    }
    if (session != NULL) /* last: a close that waits for this may now end, and after it no callback runs */
        cqr_session_op_end(lane, session);
}

static void refuse(struct lane *lane, struct execution *execution, cqlring_status status, const char *why)
{
    struct op op = {.status = status, .state = OP_SETTLED, .accepted_us = execution->accepted_us, .received_us = lane->now_us, .owner = execution,
                    .plan = &execution->body->plan, .settled = settled};
    op.failure = cqr_failure_make(status, "%s: %s", cqr_opcode_name(execution->body->plan.opcode), why);
    uncharge(execution);
    struct cqlring_session *session = execution->body->session;
    if (execution->finished != NULL) {
        execution->finished(lane, execution, &op);
        if (op.failure != NULL)
            cqr_failure_free(&op.failure->error);
        cqlring_future_release(&execution->future);
    } else {
        cqr_execution_complete(lane, execution, &op);
    }
    if (session != NULL)
        cqr_session_op_end(lane, session);
}

static int64_t deadline_of(const struct execution *execution)
{
    return cqr_deadline_us(execution->accepted_us, execution->body->plan.timeout_us);
}

static void waiting_add(struct lane *lane, struct execution *execution)
{
    execution->next_waiting = NULL;
    if (lane->exec_tail != NULL)
        lane->exec_tail->next_waiting = execution;
    else
        lane->exec_head = execution;
    lane->exec_tail = execution;
    int64_t deadline = deadline_of(execution);
    if (lane->exec_head == execution || deadline < lane->exec_due_us)
        lane->exec_due_us = deadline;
}

/* accepted: it has waited for an op, so a close with a drain lets it finish */
static void start(struct lane *lane, struct execution *execution, bool accepted)
{
    struct request_body *body = execution->body;
    struct cqlring_session *session = body->session;
    if (execution->cancelled) {
        refuse(lane, execution, CQLRING_CANCELLED, "cancelled by the application");
        return;
    }
    if (lane->stopping || (session != NULL && !(accepted ? cqr_session_finishes : cqr_session_takes)(lane, session))) {
        refuse(lane, execution, CQLRING_CLOSED, "the session is closed");
        return;
    }
    struct op *op = accepted || lane->exec_head == NULL ? cqr_op_take(lane, false) : NULL; /* not before those that wait */
    if (op == NULL) { /* behind what is under way; it is bounded by the sessions' and queues' limits */
        waiting_add(lane, execution);
        return;
    }
    op->settled = settled;
    op->owner = execution;
    op->plan = &body->plan;
    op->body = body;
    op->version = body->plan.opcode == OPCODE_EXECUTE || body->plan.opcode == OPCODE_BATCH ? body->version : NULL;
    op->text = body->text;
    op->values = body->values;
    op->values_size = body->values_size;
    op->batch_count = body->batch_count;
    op->paging_state = body->paging_state;
    op->has_token = body->has_token;
    op->token = body->token;
    op->tag = body->tag;
    op->row = execution->row;
    op->accepted_us = execution->accepted_us;
    execution->op = op;
    cqr_op_start(lane, op);
    cqr_op_issue(lane, op);
}

void cqr_execution_start(struct lane *lane, struct execution *execution)
{
    start(lane, execution, false);
}

/* Of those that wait, who was cancelled, whose session was closed or whose time is over needs no op any more. */
static void waiting_sweep(struct lane *lane)
{
    struct execution *execution = lane->exec_head;
    lane->exec_head = lane->exec_tail = NULL;
    lane->exec_due_us = INT64_MAX;
    for (struct execution *next; execution != NULL; execution = next) {
        struct cqlring_session *session = execution->body->session;
        next = execution->next_waiting;
        if (execution->cancelled || lane->stopping || (session != NULL && !cqr_session_finishes(lane, session)))
            start(lane, execution, true); /* which refuses it */
        else if (deadline_of(execution) <= lane->now_us)
            refuse(lane, execution, CQLRING_TIMEOUT, "not begun in time: everything that may be under way at once was (inflight_max of the runtime)");
        else
            waiting_add(lane, execution);
    }
}

void cqr_executions_waiting_run(struct lane *lane)
{
    if (lane->exec_head != NULL && (lane->exec_due_us <= lane->now_us || lane->stopping))
        waiting_sweep(lane);
    while (lane->exec_head != NULL && cqr_op_is_there(lane)) {
        struct execution *execution = lane->exec_head;
        lane->exec_head = execution->next_waiting;
        if (lane->exec_head == NULL)
            lane->exec_tail = NULL;
        start(lane, execution, true);
    }
}

static void post_run(struct lane *lane, struct lane_message *message)
{
    struct execution *execution = (struct execution *)(void *)message;
    if (execution->body->session != NULL)
        cqr_session_op_begin(lane, execution->body->session);
    cqr_execution_start(lane, execution);
}

cqlring_status cqr_execution_post(struct execution *execution, struct lane *lane, cqlring_error *error)
{
    execution->lane = lane;
    execution->message.run = post_run;
    execution->accepted_us = lane->net->call->now_us(lane->net);
    if (cqr_lane_post(lane, &execution->message))
        return CQLRING_OK;
    uncharge(execution);
    cqr_execution_abandon(execution);
    return cqr_error(error, CQLRING_CLOSED, "the runtime has ended");
}
