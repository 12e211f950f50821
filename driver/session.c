/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions: opened and closed on every lane, by messages; the last lane to answer finishes the matter. */

#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/job.h"
#include "driver/prepared.h"
#include "driver/room.h"
#include "driver/runtime.h"
#include "driver/session.h"

static const uint64_t SESSION_BYTES_MAX = 16 << 20;
enum { SESSION_REQUESTS_MAX = 8192 };

struct cqlring_session *cqr_session_retain(struct cqlring_session *session)
{
    atomic_fetch_add_explicit(&session->references, 1, memory_order_relaxed);
    return session;
}

static void session_free(struct cqlring_session *session)
{
    struct cqlring_cluster *cluster = session->cluster;
    cqr_mem_free(atomic_load_explicit(&session->spare, memory_order_acquire));
    for (uint32_t i = 0; session->lanes != NULL && i < cluster->runtime->lane_count; i++)
        cqr_mem_free(session->lanes[i].latency);
    cqr_mem_free(session->lanes);
    cqr_mem_free(session);
    cqr_cluster_handle_release(cluster);
}

static void release_closed(void *context)
{
    cqr_session_release(context);
}

void cqr_session_release(struct cqlring_session *session)
{
    if (session == NULL || session->fork_generation != cqr_fork_generation())
        return;
    if (atomic_fetch_sub_explicit(&session->references, 1, memory_order_acq_rel) != 1)
        return;
    if (atomic_load_explicit(&session->state, memory_order_acquire) == HANDLE_OPEN) {
        /* nobody holds it any more: close it undrained; the closing has a reference of its own until it is through */
        atomic_fetch_add_explicit(&session->references, 1, memory_order_relaxed);
        if (cqr_session_close(session, 0, release_closed, session) == CQLRING_OK)
            return;
    }
    session_free(session);
}

void cqlring_session_release(cqlring_session *session)
{
    if (session != NULL && session->fork_generation == cqr_fork_generation() &&
        cqr_handle_given_back(&session->given, session->cluster->runtime, "cqlring_session_release"))
        cqr_session_release(session);
}

/* ---- ops under way ---- */

void cqr_session_op_begin(struct lane *lane, struct cqlring_session *session)
{
    if (session->lanes[lane->index].open_ops++ == 0)
        cqr_session_retain(session);
}

bool cqr_session_takes(struct lane *lane, const struct cqlring_session *session)
{
    const struct session_lane *part = &session->lanes[lane->index];
    return part->pool != NULL && !part->closing;
}

bool cqr_session_finishes(struct lane *lane, const struct cqlring_session *session)
{
    const struct session_lane *part = &session->lanes[lane->index];
    return part->pool != NULL && !part->aborted;
}

/* ---- close ---- */

struct session_close {
    struct lane_message message;
    struct session_close *next;     /* in the lane's list */
    struct timer timer;
    struct lane *lane;
    struct closing *closing;
};

struct closing {
    struct cqlring_session *session; /* a reference */
    int64_t drain_us;
    atomic_uint lanes_left;
    void (*done)(void *context);
    void *context;
    struct session_close lanes[];
};

static void closing_end(struct closing *closing)
{
    struct cqlring_session *session = closing->session;
    struct cqlring_cluster *cluster = session->cluster;
    pthread_mutex_lock(&cluster->lock);
    if (session->link != NULL) {
        *session->link = session->next;
        if (session->next != NULL)
            session->next->link = session->link;
        session->link = NULL;
    }
    atomic_store_explicit(&session->state, HANDLE_CLOSED, memory_order_seq_cst); /* seq_cst: see items_post in queue.c */
    cqr_queues_wake(session);
    pthread_mutex_unlock(&cluster->lock);
    void (*done)(void *) = closing->done;
    void *context = closing->context;
    cqr_mem_free(closing);
    cqr_session_release(session);
    if (done != NULL)
        done(context);
}

static void lane_answered(struct closing *closing)
{
    if (atomic_fetch_sub_explicit(&closing->lanes_left, 1, memory_order_acq_rel) == 1)
        closing_end(closing);
}

/* Nothing of the session is under way on this lane: its pool goes, and every close that waits here has its answer. */
static void lane_closed(struct lane *lane, struct cqlring_session *session)
{
    struct session_lane *part = &session->lanes[lane->index];
    cqr_session_retain(session);
    if (part->pool != NULL) {
        struct pool *pool = part->pool;
        part->pool = NULL;
        struct session_lane **at = &pool->listeners;
        while (*at != NULL && *at != part)
            at = &(*at)->next_listener;
        if (*at != NULL)
            *at = part->next_listener;
        cqr_pool_put(pool);
    }
    for (struct session_close **at = &lane->closes; *at != NULL;) {
        struct session_close *close = *at;
        if (close->closing->session != session) {
            at = &close->next;
            continue;
        }
        *at = close->next;
        cqr_wheel_disarm(&lane->wheel, &close->timer);
        lane_answered(close->closing);
        at = &lane->closes; /* the answer may have changed the list */
    }
    cqr_session_release(session);
}

void cqr_session_op_end(struct lane *lane, struct cqlring_session *session)
{
    struct session_lane *part = &session->lanes[lane->index];
    if (--part->open_ops > 0)
        return;
    if (part->closing)
        lane_closed(lane, session);
    cqr_session_release(session);
}

/* The drain is over: everything that is still under way is settled as CLOSED. */
static void lane_abort(struct lane *lane, struct cqlring_session *session)
{
    cqr_session_op_begin(lane, session); /* so that the end of the last op does not close it under our hands */
    session->lanes[lane->index].aborted = true;
    lane->exec_due_us = 0;
    cqr_executions_waiting_run(lane);
    cqr_job_session_final(lane, session);
    for (uint32_t i = 0; i < lane->ops_fresh; i++) {
        struct op *op = &lane->ops[i];
        /* a row in a batch has the batch's outcome, which may be in the ring already */
        if (op->state != OP_FREE && op->state != OP_SETTLED && op->state != OP_IN_BATCH && op->plan != NULL && op->plan->session == session)
            cqr_op_abort(lane, op, CQLRING_CLOSED, "the session was closed before its answer came");
    }
    cqr_session_op_end(lane, session);
}

void cqr_close_timer(struct lane *lane, struct timer *timer)
{
    struct session_close *close = (struct session_close *)(void *)((char *)timer - offsetof(struct session_close, timer));
    lane_abort(lane, close->closing->session);
}

static void close_run(struct lane *lane, struct lane_message *message)
{
    struct session_close *close = (struct session_close *)(void *)message;
    struct cqlring_session *session = close->closing->session;
    struct session_lane *part = &session->lanes[lane->index];
    part->closing = true;
    close->next = lane->closes;
    lane->closes = close;
    if (lane->index == 0)
        cqr_room_close(lane, session);
    if (part->open_ops == 0) {
        lane_closed(lane, session);
        return;
    }
    cqr_session_retain(session);
    cqr_job_session_stop(lane, session);
    if (close->closing->drain_us == 0)
        lane_abort(lane, session);
    else if (close->closing->drain_us > 0)
        cqr_wheel_arm(&lane->wheel, &close->timer, cqr_deadline_us(lane->now_us, close->closing->drain_us));
    cqr_session_release(session);
}

static struct closing *closing_make(const struct runtime_core *runtime)
{
    struct closing *closing = NULL;
    return cqr_mem_zalloc(sizeof *closing + runtime->lane_count * sizeof closing->lanes[0]);
}

cqlring_status cqr_session_close(struct cqlring_session *session, int64_t drain_us, void (*done)(void *context), void *context)
{
    struct runtime_core *runtime = session->cluster->runtime;
    struct closing *closing = closing_make(runtime);
    if (closing == NULL)
        closing = atomic_exchange_explicit(&session->spare, NULL, memory_order_acq_rel);
    if (closing == NULL)
        return CQLRING_NO_MEMORY;
    unsigned open = HANDLE_OPEN;
    atomic_compare_exchange_strong_explicit(&session->state, &open, HANDLE_CLOSING, memory_order_acq_rel, memory_order_acquire);
    closing->session = cqr_session_retain(session);
    closing->drain_us = drain_us;
    closing->done = done;
    closing->context = context;
    atomic_init(&closing->lanes_left, runtime->lane_count);
    for (uint32_t i = 0, count = runtime->lane_count; i < count; i++) {
        struct session_close *close = &closing->lanes[i];
        close->message.run = close_run;
        close->timer.kind = TIMER_CLOSE;
        close->lane = &runtime->lanes[i];
        close->closing = closing;
        if (!cqr_lane_post(close->lane, &close->message))
            lane_answered(closing);
    }
    return CQLRING_OK;
}

static void dispose_close(cqlring_future *future)
{
    struct runtime_core *runtime = future->runtime;
    cqr_failure_free(future->error);
    cqr_mem_free(future);
    cqr_runtime_release(runtime);
}

cqlring_future *cqr_close_future(struct runtime_core *runtime)
{
    cqlring_future *future = cqr_mem_zalloc(sizeof *future);
    if (future != NULL)
        cqr_future_init(future, FUTURE_CLOSE, cqr_runtime_retain(runtime), dispose_close);
    return future;
}

static void close_done(void *context)
{
    cqr_future_complete(context);
}

cqlring_status cqlring_session_close(cqlring_session *session, int64_t drain_us, cqlring_future **future, cqlring_error *error)
{
    if (session == NULL || drain_us < -1)
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_close: a session, and a drain time of -1, 0 or microseconds");
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_session_close: the session belongs to the parent process");
    cqlring_future *own = cqr_close_future(session->cluster->runtime);
    if (own == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_session_close: out of memory");
    if (future != NULL)
        *future = own;
    else
        cqlring_future_release(own);
    cqlring_status status = cqr_session_close(session, drain_us, close_done, own);
    if (status != CQLRING_OK) {
        cqlring_future_release(own);
        if (future != NULL) {
            cqlring_future_release(own);
            *future = NULL;
        }
        return cqr_error(error, status, "cqlring_session_close: out of memory");
    }
    return CQLRING_OK;
}

/* ---- open ---- */

struct open_lane {
    struct lane_message message;
    struct session_opening opening;
    struct session_open *open;
};

struct session_open {
    cqlring_future future;
    struct cqlring_session *session;
    atomic_uint lanes_left;
    pthread_mutex_t lock;
    const char *call;                   /* the public function's name */
    cqlring_error error;                /* of the first lane that failed */
    struct open_lane lanes[];
};

static void open_dispose(cqlring_future *future)
{
    struct session_open *open = (struct session_open *)(void *)future;
    struct runtime_core *runtime = future->runtime;
    cqr_session_release(future->value);
    cqr_failure_free(future->error);
    pthread_mutex_destroy(&open->lock);
    cqr_mem_free(open);
    cqr_runtime_release(runtime);
}

static void open_end(struct session_open *open)
{
    struct cqlring_session *session = open->session;
    cqlring_future *future = &open->future;
    if (open->error.status == CQLRING_OK) {
        unsigned opening = HANDLE_OPENING;
        atomic_compare_exchange_strong_explicit(&session->state, &opening, HANDLE_OPEN, memory_order_acq_rel, memory_order_acquire);
        future->value = session; /* the reference goes with it */
        cqr_future_complete(future);
        return;
    }
    bool named = session->keyspace[0] != '\0';
    struct failure *failure = cqr_failure_make(open->error.status, "%s%s%s%s: %s", open->call, named ? ", keyspace \"" : "", session->keyspace, named ? "\"" : "",
                                               open->error.message);
    if (!cqr_failure_is_static(failure)) {
        failure->error.server_code = open->error.server_code;
        memcpy(failure->error.node, open->error.node, sizeof failure->error.node);
    }
    future->status = failure->error.status;
    future->error = &failure->error;
    cqr_session_close(session, 0, NULL, NULL);
    cqr_session_release(session);
    cqr_future_complete(future);
}

static void open_answer(struct session_open *open, const cqlring_error *why)
{
    if (why != NULL) {
        pthread_mutex_lock(&open->lock);
        if (open->error.status == CQLRING_OK)
            open->error = *why;
        pthread_mutex_unlock(&open->lock);
    }
    if (atomic_fetch_sub_explicit(&open->lanes_left, 1, memory_order_acq_rel) == 1)
        open_end(open);
}

static void open_refuse(struct session_open *open, cqlring_status status, const char *why)
{
    cqlring_error error;
    cqr_error(&error, status, "%s", why);
    open_answer(open, &error);
}

void cqr_session_pool_ready(struct lane *lane, struct session_opening *opening, const cqlring_error *why)
{
    (void)lane;
    struct open_lane *part = (struct open_lane *)(void *)((char *)opening - offsetof(struct open_lane, opening));
    open_answer(part->open, why);
}

static void open_run(struct lane *lane, struct lane_message *message)
{
    struct open_lane *part = (struct open_lane *)(void *)message;
    struct cqlring_session *session = part->open->session;
    struct session_lane *mine = &session->lanes[lane->index];
    if (lane->stopping || mine->closing || atomic_load_explicit(&session->cluster->state, memory_order_acquire) != HANDLE_OPEN) {
        open_refuse(part->open, CQLRING_CLOSED, "the cluster was closed");
        return;
    }
    mine->pool = cqr_pool_get(lane, session->cluster, session->keyspace);
    if (mine->pool == NULL) {
        open_refuse(part->open, CQLRING_NO_MEMORY, "out of memory");
        return;
    }
    mine->session = session;
    if (session->log != NULL) {
        mine->next_listener = mine->pool->listeners;
        mine->pool->listeners = mine;
    }
    part->opening.session = session;
    cqr_pool_wait(mine->pool, &part->opening);
}

static cqlring_status session_options(struct cqlring_session *session, const cqlring_session_options *options, cqlring_error *error)
{
    session->bytes_max = SESSION_BYTES_MAX;
    session->requests_max = SESSION_REQUESTS_MAX;
    cqr_plan_defaults(&session->defaults_plan);
    if (options == NULL)
        return CQLRING_OK;
    if (options->struct_size < sizeof *options)
        return cqr_error(error, CQLRING_INVALID, "session options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_session_options)",
                         options->struct_size, sizeof *options);
    if (options->keyspace != NULL && strlen(options->keyspace) > 48)
        return cqr_error(error, CQLRING_INVALID, "session options: keyspace of %zu characters (CQL allows 48)", strlen(options->keyspace));
    snprintf(session->keyspace, sizeof session->keyspace, "%s", options->keyspace != NULL ? options->keyspace : "");
    if (options->log_level > CQLRING_LOG_DEBUG)
        return cqr_error(error, CQLRING_INVALID, "session options: log_level %d (1 ERROR to 4 DEBUG, 0: WARN)", (int)options->log_level);
    session->log_level = options->log_level != 0 ? options->log_level : CQLRING_LOG_WARN;
    session->log = options->log;
    session->log_context = options->log_context;
    if (options->bytes_max != 0)
        session->bytes_max = options->bytes_max;
    if (options->requests_max != 0)
        session->requests_max = options->requests_max;
    if (options->execution == NULL)
        return CQLRING_OK;
    const cqlring_execution *execution = options->execution;
    if (execution->payload_count > 0 || execution->keyspace.size > 0 || execution->paging_state.data != NULL || execution->target != NULL)
        return cqr_error(error, CQLRING_INVALID, "session options: payload, keyspace, paging_state and target belong to a request, not to a session's defaults");
    struct op_plan plan;
    cqlring_status status = cqr_plan_make(&plan, session, execution, error);
    if (status == CQLRING_OK) {
        plan.session = NULL;
        session->defaults_plan = plan;
    }
    return status;
}

/* The one of the two public functions that `call` names. */
static cqlring_status session_open(cqlring_cluster *cluster, const cqlring_session_options *options, cqlring_future **future, const char *call, cqlring_error *error)
{
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "%s: the cluster belongs to the parent process; open one in the child", call);
    if (atomic_load_explicit(&cluster->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "%s: the cluster is closed", call);
    uint32_t lane_count = cluster->runtime->lane_count;
    struct cqlring_session *session = cqr_mem_aligned(64, sizeof *session);
    struct session_open *open = cqr_mem_zalloc(sizeof *open + lane_count * sizeof open->lanes[0]);
    struct session_lane *lanes = cqr_mem_array(lane_count, sizeof *lanes);
    struct closing *spare = closing_make(cluster->runtime);
    if (session == NULL || open == NULL || lanes == NULL || spare == NULL) {
        cqr_mem_free(session);
        cqr_mem_free(open);
        cqr_mem_free(lanes);
        cqr_mem_free(spare);
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    }
    session->cluster = cluster; /* for the checks; the reference is taken below */
    session->lanes = lanes;
    atomic_init(&session->spare, spare);
    cqlring_status status = session_options(session, options, error);
    if (status != CQLRING_OK) {
        cqr_mem_free(session);
        cqr_mem_free(open);
        cqr_mem_free(lanes);
        cqr_mem_free(spare);
        return status;
    }
    atomic_init(&session->references, 1);
    session->fork_generation = cqr_fork_generation();
    cqr_cluster_handle(cluster);
    pthread_mutex_lock(&cluster->lock);
    session->number = ++cluster->session_count;
    session->next = cluster->sessions;
    session->link = &cluster->sessions;
    if (session->next != NULL)
        session->next->link = &session->next;
    cluster->sessions = session;
    pthread_mutex_unlock(&cluster->lock);
    cqr_future_init(&open->future, FUTURE_SESSION, cqr_runtime_retain(cluster->runtime), open_dispose);
    pthread_mutex_init(&open->lock, NULL);
    open->session = session;
    open->call = call;
    atomic_init(&open->lanes_left, lane_count);
    *future = &open->future;
    for (uint32_t i = 0; i < lane_count; i++) {
        open->lanes[i].message.run = open_run;
        open->lanes[i].open = open;
        if (!cqr_lane_post(&cluster->runtime->lanes[i], &open->lanes[i].message))
            open_refuse(open, CQLRING_CLOSED, "the runtime has ended");
    }
    return CQLRING_OK;
}

cqlring_status cqlring_session_open(cqlring_cluster *cluster, const cqlring_session_options *options, cqlring_future **future, cqlring_error *error)
{
    if (cluster == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_open: cluster and future must be given");
    return session_open(cluster, options, future, "cqlring_session_open", error);
}

cqlring_status cqlring_session_open_sync(cqlring_cluster *cluster, const cqlring_session_options *options, cqlring_session **session, cqlring_error *error)
{
    cqlring_future *future = NULL;
    if (cluster == NULL || session == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_open_sync: cluster and session must be given");
    if (cqr_on_library_thread())
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_open_sync: a callback must not wait; use cqlring_session_open");
    cqlring_status status = session_open(cluster, options, &future, "cqlring_session_open_sync", error);
    if (status != CQLRING_OK)
        return status;
    status = cqlring_future_wait(future, -1, error);
    if (status == CQLRING_OK)
        *session = cqlring_future_session(future);
    cqlring_future_release(future);
    return status;
}
