/* SPDX-License-Identifier: Apache-2.0 */

/* Prepared statements: the cache, versions, the asking. What happens when a node does not know one is in reprepare.c. */

#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/prepare_ahead.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/words.h"
#include "serialize/type.h"

enum { STATEMENT_ARENA_MAX = 64 << 20, REPLY_UNKNOWN = 64 << 10, REPLY_WINDOW = 64 };

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

static void versions_free(struct statement_version *version)
{
    while (version != NULL) {
        struct statement_version *older = version->older;
        cqr_column_set_release(version->bind);
        cqr_column_set_release(version->result);
        cqr_mem_free(version);
        version = older;
    }
}

static void statement_free(struct cqlring_prepared *prepared)
{
    versions_free(atomic_load_explicit(&prepared->versions, memory_order_acquire));
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

/* ---- versions ---- */

static struct statement_version *version_make(struct cqlring_prepared *prepared)
{
    static _Atomic(uint64_t) last;
    struct statement_version *version = cqr_mem_zalloc(sizeof *version);
    if (version == NULL)
        return NULL;
    version->prepared = prepared;
    version->number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return version;
}

uint32_t cqr_version_reply_expected(const struct statement_version *version)
{
    return atomic_load_explicit(&version->reply_max, memory_order_relaxed);
}

void cqr_version_reply_note(struct statement_version *version, uint32_t size)
{
    /* largest of the window under way, and of the last whole one; several lanes may lose one another's notes, no harm */
    if (size > 0xFFFFFF)
        size = 0xFFFFFF;
    uint32_t window = atomic_load_explicit(&version->reply_window, memory_order_relaxed);
    uint32_t known = atomic_load_explicit(&version->reply_max, memory_order_relaxed);
    uint32_t count = (window & 0xFF) + 1, largest = window >> 8;
    largest = size > largest ? size : largest;
    if (count >= REPLY_WINDOW) {
        atomic_store_explicit(&version->reply_max, largest, memory_order_relaxed);
        count = largest = 0;
    } else if (size > known || (known == REPLY_UNKNOWN && version->older == NULL && count == 1 && window == 0)) {
        atomic_store_explicit(&version->reply_max, size, memory_order_relaxed);
    }
    atomic_store_explicit(&version->reply_window, largest << 8 | count, memory_order_relaxed);
}

static bool bytes_equal(const void *a, size_t a_size, cqlring_bytes b)
{
    return b.size >= 0 && (size_t)b.size == a_size && (a_size == 0 || memcmp(a, b.data, a_size) == 0);
}

static bool columns_equal(const struct column_set *a, const struct column_set *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    if (a->columns.count != b->columns.count || (a->columns.array == NULL) != (b->columns.array == NULL))
        return false;
    for (uint32_t i = 0; a->columns.array != NULL && i < a->columns.count; i++) {
        const struct column *left = &a->columns.array[i], *right = &b->columns.array[i];
        if (!bytes_equal(left->name.data, (size_t)left->name.size, right->name) || !cqr_type_equal(left->type, right->type))
            return false;
    }
    return true;
}

bool cqr_markers_equal(const struct statement_version *a, const struct statement_version *b)
{
    return columns_equal(a->bind, b->bind);
}

static bool versions_equal(const struct statement_version *a, const struct statement_version *b)
{
    return a->id_size == b->id_size && memcmp(a->id, b->id, a->id_size) == 0 && a->metadata_id_size == b->metadata_id_size &&
           memcmp(a->metadata_id, b->metadata_id, a->metadata_id_size) == 0 && columns_equal(a->bind, b->bind) && columns_equal(a->result, b->result);
}

/* version, or the one of the list that says the same (and version is freed), becomes the current one. */
static struct statement_version *version_swap(struct cqlring_prepared *prepared, struct statement_version *version)
{
    /* acquire: pairs with the release below */
    struct statement_version *newest = atomic_load_explicit(&prepared->versions, memory_order_acquire), *known = newest;
    while (known != NULL && !versions_equal(known, version))
        known = known->older;
    if (known != NULL) {
        versions_free(version);
        version = known;
    } else {
        do {
            version->older = newest;
        } while (!atomic_compare_exchange_weak_explicit(&prepared->versions, &newest, version, memory_order_acq_rel, memory_order_acquire));
    }
    /* release: pairs with the acquire of cqr_prepared_version */
    atomic_store_explicit(&prepared->current, version, memory_order_release);
    return version;
}

/* What is longer than any name of a server's counts as unknown. */
static void name_copy(char to[64], cqlring_bytes name)
{
    if (name.size > 0 && name.size < 64)
        memcpy(to, name.data, (size_t)name.size); /* to is zero */
}

static struct column_set *set_from(const struct columns *columns, struct arena *arena)
{
    struct column_set *set = cqr_column_set_create();
    if (set == NULL)
        return NULL;
    set->columns = *columns;
    set->columns.paging_state = set->columns.new_metadata_id = (cqlring_bytes){NULL, 0};
    if (arena != NULL) {
        cqr_arena_fini(&set->arena);
        set->arena = *arena;
        memset(arena, 0, sizeof *arena);
    }
    cqr_column_set_seal(set);
    return set;
}

/* Is it the statement that it was, also where the connection was in another keyspace? Ids differ by the connection's keyspace
   on some servers even when the text names its own; without a column nothing but the id can tell. */
static bool is_same_statement(const struct statement_version *was, const struct statement_version *now)
{
    if (bytes_equal(was->id, was->id_size, (cqlring_bytes){now->id, now->id_size}))
        return true;
    return was->keyspace[0] != '\0' && strcmp(was->keyspace, now->keyspace) == 0;
}

cqlring_status cqr_prepared_learn(struct cqlring_prepared *prepared, const struct dialect *dialect, cqlring_bytes body,
                                  struct statement_version **out, struct failure **failure)
{
    struct arena arena;
    cqr_arena_init(&arena, STATEMENT_ARENA_MAX);
    struct prepared_body answer;
    cqlring_status status = cqr_decode_prepared(dialect, body, &arena, &answer);
    if (status != CQLRING_OK) {
        cqr_arena_fini(&arena);
        *failure = cqr_failure_make(status, "PREPARE: the PREPARED answer cannot be read (%s)", cqlring_status_text(status));
        return status;
    }
    struct statement_version *version = version_make(prepared);
    if (version == NULL)
        goto no_memory;
    if (answer.id.size <= 0 || answer.id.size > STATEMENT_ID_MAX || answer.result_metadata_id.size > STATEMENT_ID_MAX ||
        answer.pk_count > KEY_PARTS_MAX) {
        cqr_mem_free(version);
        cqr_arena_fini(&arena);
        *failure = cqr_failure_make(CQLRING_PROTOCOL, "PREPARE: statement id of %d bytes, metadata id of %d, %u key parts: more than can be kept",
                                    answer.id.size, answer.result_metadata_id.size, answer.pk_count);
        return CQLRING_PROTOCOL;
    }
    version->id_size = (uint16_t)answer.id.size;
    memcpy(version->id, answer.id.data, version->id_size);
    if (answer.result_metadata_id.data != NULL) {
        version->metadata_id_size = (uint16_t)answer.result_metadata_id.size;
        memcpy(version->metadata_id, answer.result_metadata_id.data, version->metadata_id_size);
    }
    version->key_count = answer.pk_count;
    for (uint16_t i = 0; i < answer.pk_count; i++) {
        version->key_parts[i] = answer.pk_indexes[i];
        if (answer.pk_indexes[i] >= answer.bind.count)
            version->key_count = 0; /* no routing by what is not there */
    }
    cqlring_bytes cql = {prepared->text, (int32_t)prepared->text_size};
    /* ScyllaDB marks lightweight transactions; of what Cassandra prepares, only the text tells */
    version->is_lwt = (dialect->extensions & EXT_LWT_MARK) != 0 ? answer.is_lwt : cqr_text_is_conditional(cql);
    version->is_read = cqr_text_is_read(cql);
    for (uint32_t i = 0; i < answer.bind.count && answer.bind.array != NULL; i++)
        version->is_counter = version->is_counter || cqlring_type_kind(answer.bind.array[i].type) == CQLRING_KIND_COUNTER;
    const struct column *first = answer.bind.count > 0 && answer.bind.array != NULL         ? answer.bind.array
                                 : answer.result.count > 0 && answer.result.array != NULL ? answer.result.array
                                                                                          : NULL;
    if (first != NULL)
        name_copy(version->keyspace, first->keyspace);
    if (first != NULL)
        name_copy(version->table, first->table);
    atomic_init(&version->reply_max, REPLY_UNKNOWN);
    bool has_result = (answer.result.flags & ROWS_NO_METADATA) == 0 && answer.result.count > 0;
    if (has_result) {
        /* result columns share the arena with the bind columns: decode them again into one of their own, so that the two sets
           can die apart */
        struct arena own;
        cqr_arena_init(&own, STATEMENT_ARENA_MAX);
        struct prepared_body again;
        if (cqr_decode_prepared(dialect, body, &own, &again) != CQLRING_OK || (version->result = set_from(&again.result, &own)) == NULL) {
            cqr_arena_fini(&own);
            goto no_memory;
        }
    }
    version->bind = set_from(&answer.bind, &arena);
    if (version->bind == NULL)
        goto no_memory;

    const struct statement_version *current = atomic_load_explicit(&prepared->current, memory_order_acquire);
    if (current != NULL && !is_same_statement(current, version)) {
        *failure = cqr_failure_make(CQLRING_INVALID,
                                    "PREPARE: a node has prepared the same text as another statement (of keyspace \"%s\" instead of \"%s\"): name the keyspace in it",
                                    version->keyspace, current->keyspace);
        versions_free(version);
        return CQLRING_INVALID;
    }
    *out = version_swap(prepared, version);
    return CQLRING_OK;

no_memory:
    if (version != NULL)
        versions_free(version);
    cqr_arena_fini(&arena);
    *failure = cqr_failure_make(CQLRING_NO_MEMORY, "PREPARE: out of memory");
    return CQLRING_NO_MEMORY;
}

void cqr_prepared_metadata(struct statement_version *old, struct column_set *columns, cqlring_bytes id)
{
    struct cqlring_prepared *prepared = old->prepared;
    struct statement_version *current = cqr_prepared_version(prepared);
    if (id.size > STATEMENT_ID_MAX || bytes_equal(current->metadata_id, current->metadata_id_size, id))
        return; /* known already: many requests in flight learn of one change */
    struct statement_version *version = version_make(prepared);
    if (version == NULL)
        return; /* the old id stays: the server will tell again */
    if (current->id_size != old->id_size || memcmp(current->id, old->id, old->id_size) != 0)
        current = old; /* else the newest bind markers stay */
    /* field by field: its counters are being written by others */
    version->id_size = current->id_size;
    memcpy(version->id, current->id, sizeof version->id);
    version->key_count = current->key_count;
    memcpy(version->key_parts, current->key_parts, sizeof version->key_parts);
    version->is_lwt = current->is_lwt;
    version->is_read = current->is_read;
    version->is_counter = current->is_counter;
    memcpy(version->keyspace, current->keyspace, sizeof version->keyspace);
    memcpy(version->table, current->table, sizeof version->table);
    atomic_init(&version->reply_max, cqr_version_reply_expected(current));
    version->bind = current->bind != NULL ? cqr_column_set_retain(current->bind) : NULL;
    version->result = cqr_column_set_retain(columns);
    version->metadata_id_size = (uint16_t)(id.size > 0 ? id.size : 0);
    if (version->metadata_id_size > 0)
        memcpy(version->metadata_id, id.data, version->metadata_id_size);
    version_swap(prepared, version);
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

/* ---- questions ---- */

uint32_t cqlring_prepared_bind_count(const cqlring_prepared *prepared)
{
    if (prepared == NULL)
        return 0;
    const struct statement_version *version = cqr_prepared_version((struct cqlring_prepared *)(uintptr_t)prepared);
    return version->bind->columns.count;
}

bool cqlring_prepared_bind_column(const cqlring_prepared *prepared, uint32_t index, cqlring_column *column)
{
    if (prepared == NULL)
        return false;
    const struct statement_version *version = cqr_prepared_version((struct cqlring_prepared *)(uintptr_t)prepared);
    return cqr_column_set_public(version->bind, index, column);
}

bool cqlring_prepared_result_column(const cqlring_prepared *prepared, uint32_t index, cqlring_column *column)
{
    if (prepared == NULL)
        return false;
    const struct statement_version *version = cqr_prepared_version((struct cqlring_prepared *)(uintptr_t)prepared);
    return version->result != NULL && cqr_column_set_public(version->result, index, column);
}

int32_t cqlring_prepared_find(const cqlring_prepared *prepared, const char *name, uint32_t from)
{
    if (prepared == NULL || name == NULL)
        return -1;
    const struct statement_version *version = cqr_prepared_version((struct cqlring_prepared *)(uintptr_t)prepared);
    char wanted[512];
    size_t size = 0;
    bool quoted = name[0] == '"';
    for (const char *at = name + (quoted ? 1 : 0); *at != '\0' && size + 1 < sizeof wanted; at++) {
        if (quoted && *at == '"') {
            if (at[1] != '"')
                break;
            at++;
        }
        wanted[size++] = quoted || *at < 'A' || *at > 'Z' ? *at : (char)(*at | 0x20);
    }
    for (uint32_t i = from; i < version->bind->columns.count; i++)
        if (bytes_equal(wanted, size, version->bind->columns.array[i].name))
            return (int32_t)i;
    return -1;
}
