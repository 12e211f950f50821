/* SPDX-License-Identifier: Apache-2.0 */

/* Versions of a prepared statement: what a PREPARED answer, or new metadata, said of it; which one counts; what is asked of it. */

#include <string.h>

#include "driver/failure.h"
#include "driver/prepared.h"
#include "driver/words.h"
#include "serialize/type.h"

enum { STATEMENT_ARENA_MAX = 64 << 20, REPLY_UNKNOWN = 64 << 10, REPLY_WINDOW = 64 };

/* ---- versions ---- */

void cqr_versions_free(struct statement_version *version)
{
    while (version != NULL) {
        struct statement_version *older = version->older;
        cqr_column_set_release(version->bind);
        cqr_column_set_release(version->result);
        cqr_mem_free(version);
        version = older;
    }
}

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
        cqr_versions_free(version);
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
        cqr_versions_free(version);
        return CQLRING_INVALID;
    }
    *out = version_swap(prepared, version);
    return CQLRING_OK;

no_memory:
    if (version != NULL)
        cqr_versions_free(version);
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
