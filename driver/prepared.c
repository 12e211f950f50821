/* SPDX-License-Identifier: Apache-2.0 */

/* Prepared statements: the cache, the asking. What an answer says is kept in prepared_version.c, what happens when a node does not
   know one is in reprepare.c. */

#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/prepare_ahead.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"

struct prepare_waiter {
    struct prepare_waiter *next;
    struct execution *execution;
};

/* ---- life ---- */

static uint64_t hash_text(const char *keyspace, const void *text, size_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *at = keyspace; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    hash = (hash ^ 0xFF) * UINT64_C(1099511628211);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)text)[i]) * UINT64_C(1099511628211);
    return hash;
}

static void statement_free(struct cqlring_prepared *prepared)
{
    cqr_versions_free(atomic_load_explicit(&prepared->versions, memory_order_acquire));
    struct cqlring_cluster *cluster = prepared->cluster;
    cqr_mem_free(prepared->keyspace);
    cqr_mem_free(prepared->text);
    cqr_mem_free(prepared);
    cqr_cluster_release(cluster);
}

static void cache_remove(struct cqlring_prepared *prepared)
{
    if (prepared->link == NULL)
        return;
    *prepared->link = prepared->next;
    if (prepared->next != NULL)
        prepared->next->link = prepared->link;
    prepared->link = NULL;
}

struct cqlring_prepared *cqr_prepared_retain(struct cqlring_prepared *prepared)
{
    atomic_fetch_add_explicit(&prepared->references, 1, memory_order_relaxed);
    return prepared;
}

void cqlring_prepared_release(cqlring_prepared *prepared)
{
    if (prepared == NULL)
        return;
    if (prepared->fork_generation != cqr_fork_generation())
        return; /* a child has no use for it, and its locks may be held for ever */
    struct cqlring_cluster *cluster = prepared->cluster;
    /* the cache holds no reference: under its lock, so that nobody finds a statement that is being freed */
    pthread_mutex_lock(&cluster->lock);
    bool last = atomic_fetch_sub_explicit(&prepared->references, 1, memory_order_acq_rel) == 1;
    if (last)
        cache_remove(prepared);
    pthread_mutex_unlock(&cluster->lock);
    if (last)
        statement_free(prepared);
}

/* ---- prepare ---- */

/* Those of one session: each session asks for itself, so that none waits, or is called, beyond its own close. */
static void waiters_end(struct cqlring_prepared *prepared, const struct cqlring_session *session, const struct failure *failure)
{
    struct cqlring_cluster *cluster = prepared->cluster;
    struct prepare_waiter *waiter = NULL;
    pthread_mutex_lock(&cluster->lock);
    for (struct prepare_waiter **at = &prepared->waiters; *at != NULL;) {
        struct prepare_waiter *other = *at;
        if (other->execution->body->session != session) {
            at = &other->next;
            continue;
        }
        *at = other->next;
        other->next = waiter;
        waiter = other;
    }
    if (failure == NULL)
        prepared->ready = true;
    else if (!prepared->ready && prepared->waiters == NULL)
        cache_remove(prepared); /* the next one asks again */
    pthread_mutex_unlock(&cluster->lock);
    while (waiter != NULL) {
        struct prepare_waiter *next = waiter->next;
        cqlring_future *future = &waiter->execution->future;
        if (failure == NULL) {
            future->status = CQLRING_OK;
            future->value = cqr_prepared_retain(prepared);
        } else {
            struct failure *own = cqr_failure_copy(&failure->error);
            future->status = failure->error.status;
            future->error = &own->error;
        }
        cqr_future_complete(future);
        cqr_mem_free(waiter);
        waiter = next;
    }
}

void cqr_prepare_cancel(struct execution *execution)
{
    struct cqlring_prepared *prepared = execution->context;
    struct cqlring_cluster *cluster = prepared->cluster;
    pthread_mutex_lock(&cluster->lock);
    struct prepare_waiter **at = &prepared->waiters, *waiter;
    while (*at != NULL && (*at)->execution != execution)
        at = &(*at)->next;
    waiter = *at;
    if (waiter != NULL)
        *at = waiter->next;
    pthread_mutex_unlock(&cluster->lock);
    if (waiter == NULL)
        return; /* it has ended meanwhile */
    struct failure *failure = cqr_failure_make(CQLRING_CANCELLED, "PREPARE: cancelled by the application");
    execution->future.status = CQLRING_CANCELLED;
    execution->future.error = &failure->error;
    cqr_future_complete(&execution->future);
    cqr_mem_free(waiter);
}

/* The PREPARE was answered, or was not. */
static void prepare_finished(struct lane *lane, struct execution *execution, struct op *op)
{
    struct cqlring_prepared *prepared = execution->context;
    const struct cqlring_session *session = execution->body->session;
    struct statement_version *version;
    struct failure *failure = NULL;
    if (op->status != CQLRING_OK)
        waiters_end(prepared, session, op->failure);
    else if (cqr_prepared_learn(prepared, &op->conn->dialect, op->reply_body, &version, &failure) != CQLRING_OK)
        waiters_end(prepared, session, failure);
    else {
        if (prepared->cluster->prepare_on_all)
            cqr_prepare_on_all(lane, prepared, op->conn->node);
        waiters_end(prepared, session, NULL);
    }
    if (failure != NULL)
        cqr_failure_free(&failure->error);
    cqlring_prepared_release(prepared); /* the asking's own reference */
}

static struct cqlring_prepared *statement_make(struct cqlring_cluster *cluster, const char *keyspace, cqlring_bytes cql, uint64_t hash, bool request_keyspace)
{
    struct cqlring_prepared *prepared = cqr_mem_aligned(64, sizeof *prepared);
    if (prepared == NULL)
        return NULL;
    prepared->keyspace = cqr_mem_text(keyspace, strlen(keyspace));
    prepared->text = cqr_mem_text(cql.data, (size_t)cql.size);
    if (prepared->keyspace == NULL || prepared->text == NULL) {
        cqr_mem_free(prepared->keyspace);
        cqr_mem_free(prepared->text);
        cqr_mem_free(prepared);
        return NULL;
    }
    prepared->text_size = (uint32_t)cql.size;
    prepared->hash = hash;
    prepared->request_keyspace = request_keyspace;
    prepared->fork_generation = cqr_fork_generation();
    atomic_init(&prepared->references, 1);
    prepared->cluster = cqr_cluster_retain(cluster);
    struct cqlring_prepared **bucket = &cluster->prepared.buckets[hash % PREPARED_BUCKETS];
    prepared->next = *bucket;
    prepared->link = bucket;
    if (*bucket != NULL)
        (*bucket)->link = &prepared->next;
    *bucket = prepared;
    return prepared;
}

/* The one of the two public functions that `call` names. */
static cqlring_status prepare(cqlring_session *session, cqlring_bytes cql, const cqlring_execution *how, cqlring_future **future, const char *call,
                              cqlring_error *error)
{
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "%s: the session belongs to the parent process; open one in the child", call);
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "%s: the session is closed", call);
    struct cqlring_cluster *cluster = session->cluster;
    bool request_keyspace = how != NULL && how->struct_size >= sizeof(cqlring_execution) && how->keyspace.size > 0;
    char keyspace[64];
    if (request_keyspace) {
        if (how->keyspace.size >= (int32_t)sizeof keyspace)
            return cqr_error(error, CQLRING_INVALID, "%s: a keyspace name of %d characters (48 at most)", call, how->keyspace.size);
        if (atomic_load_explicit(&cluster->version, memory_order_relaxed) < PROTO_V5)
            return cqr_error(error, CQLRING_INVALID, "%s: a keyspace for one statement needs protocol v5; open a session with that keyspace", call);
        snprintf(keyspace, sizeof keyspace, "%.*s", how->keyspace.size, (const char *)how->keyspace.data);
    } else {
        snprintf(keyspace, sizeof keyspace, "%s", session->keyspace);
    }
    uint64_t hash = hash_text(keyspace, cql.data, (size_t)cql.size);

    /* what may fail comes before the lock */
    struct op_plan plan;
    cqlring_status status = cqr_plan_make(&plan, session, how, error);
    if (status != CQLRING_OK)
        return status;
    struct request_body *body = cqr_body_make_prepare(cql, &plan);
    struct prepare_waiter *waiter = cqr_mem_zalloc(sizeof *waiter);
    struct execution *execution = NULL;
    if (body != NULL) {
        execution = cqr_execution_make(cluster->runtime, body, FUTURE_PREPARED);
        if (execution == NULL)
            cqr_body_release(body);
    }
    if (execution == NULL || waiter == NULL) {
        if (execution != NULL)
            cqr_execution_abandon(execution);
        cqr_mem_free(waiter);
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    }
    waiter->execution = execution;
    struct lane *lane = &cluster->runtime->lanes[atomic_fetch_add_explicit(&session->next_lane, 1, memory_order_relaxed) % cluster->runtime->lane_count];

    pthread_mutex_lock(&cluster->lock);
    struct cqlring_prepared *prepared = cluster->prepared.buckets[hash % PREPARED_BUCKETS];
    while (prepared != NULL && (prepared->hash != hash || prepared->text_size != (uint32_t)cql.size || strcmp(prepared->keyspace, keyspace) != 0 ||
                                prepared->request_keyspace != request_keyspace || memcmp(prepared->text, cql.data, prepared->text_size) != 0))
        prepared = prepared->next;
    bool known = prepared != NULL, ready = false, asked = false;
    if (!known)
        prepared = statement_make(cluster, keyspace, cql, hash, request_keyspace);
    else
        cqr_prepared_retain(prepared);
    if (prepared != NULL) {
        ready = prepared->ready;
        for (const struct prepare_waiter *other = prepared->waiters; other != NULL && !asked; other = other->next)
            asked = other->execution->body->session == session;
        if (!ready) {
            execution->context = cqr_prepared_retain(prepared); /* for its cancel */
            execution->lane = lane;
            waiter->next = prepared->waiters;
            prepared->waiters = waiter;
        }
    }
    pthread_mutex_unlock(&cluster->lock);
    if (prepared == NULL) {
        cqr_execution_abandon(execution);
        cqr_mem_free(waiter);
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    }
    *future = &execution->future;
    if (ready) {
        execution->future.status = CQLRING_OK;
        execution->future.value = prepared; /* the reference goes with it */
        cqr_mem_free(waiter);
        cqr_future_complete(&execution->future);
        return CQLRING_OK;
    }
    if (known && asked) { /* this session's PREPARE is under way: waiters_end completes this future too */
        cqlring_prepared_release(prepared);
        return CQLRING_OK;
    }
    /* the asking is an execution of its own: the caller's future may be released before it ends */
    struct request_body *question = cqr_body_retain(body);
    question->plan.params.keyspace = request_keyspace ? (cqlring_bytes){prepared->keyspace, (int32_t)strlen(prepared->keyspace)} : (cqlring_bytes){NULL, 0};
    struct execution *asking = cqr_execution_make(cluster->runtime, question, FUTURE_EXECUTE);
    if (asking == NULL) {
        cqr_body_release(question);
        struct failure *failure = cqr_failure_make(CQLRING_NO_MEMORY, "%s: out of memory", call);
        waiters_end(prepared, session, failure);
        cqr_failure_free(&failure->error);
        cqlring_prepared_release(prepared);
        return CQLRING_OK; /* the future tells */
    }
    asking->finished = prepare_finished;
    asking->context = prepared;
    if (cqr_execution_post(asking, lane, NULL) != CQLRING_OK) {
        struct failure *failure = cqr_failure_make(CQLRING_CLOSED, "%s: the runtime has ended", call);
        waiters_end(prepared, session, failure);
        cqr_failure_free(&failure->error);
        cqlring_prepared_release(prepared);
    } else {
        cqlring_future_release(&asking->future); /* nobody waits for this one but the completer */
    }
    return CQLRING_OK;
}

cqlring_status cqlring_prepare(cqlring_session *session, cqlring_bytes cql, const cqlring_execution *how, cqlring_future **future, cqlring_error *error)
{
    if (session == NULL || future == NULL || cql.size <= 0 || cql.data == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_prepare: session, cql and future must be given");
    return prepare(session, cql, how, future, "cqlring_prepare", error);
}

cqlring_status cqlring_prepare_sync(cqlring_session *session, const char *cql, cqlring_prepared **prepared, cqlring_error *error)
{
    cqlring_future *future = NULL;
    if (session == NULL || cql == NULL || cql[0] == '\0' || prepared == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_prepare_sync: session, cql and prepared must be given");
    if (cqr_on_library_thread())
        return cqr_error(error, CQLRING_INVALID, "cqlring_prepare_sync: a callback must not wait; use cqlring_prepare");
    cqlring_status status = prepare(session, cqlring_text(cql), NULL, &future, "cqlring_prepare_sync", error);
    if (status != CQLRING_OK)
        return status;
    status = cqlring_future_wait(future, -1, error);
    if (status == CQLRING_OK)
        *prepared = cqlring_future_prepared(future);
    cqlring_future_release(future);
    return status;
}
