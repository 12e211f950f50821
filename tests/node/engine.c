/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's entrance: statements are run from here. Members and ring. */
#include "tests/node/engine_private.h"

#include <stdarg.h>
#include <stdio.h>

#include "cql/token.h"

bool node_query_fail(struct query *query, int32_t code, const char *format, ...)
{
    if (query->code >= 0)
        return false; /* the first cause counts */
    query->code = code;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(query->message, sizeof query->message, format, arguments);
    va_end(arguments);
    return false;
}

int64_t node_query_timestamp(struct query *query)
{
    if (query->params != NULL && query->params->has_timestamp)
        return query->params->timestamp_us;
    struct node_engine *engine = query->engine;
    engine->last_timestamp = query->now_us > engine->last_timestamp ? query->now_us
                                                                    : engine->last_timestamp + 1;
    return engine->last_timestamp;
}

void node_put_void(struct out *out)
{
    out_u32(out, RESULT_VOID);
}

/* --- running ---------------------------------------------------------------------------------- */

static bool run_use(struct query *query, const struct statement *statement)
{
    if (node_keyspace_find(query->engine, statement->name) == NULL)
        return node_query_fail(query, ERROR_INVALID, "Keyspace '%.*s' does not exist",
                               SLICE_ARG(statement->name));
    query->use_keyspace = true;
    query->keyspace = node_arena_copy(query->arena, statement->name);
    out_u32(query->body, RESULT_KEYSPACE);
    out_string(query->body, statement->name);
    return true;
}

static bool run_truncate(struct query *query, struct statement *statement)
{
    struct node_table *table = node_resolve_table(query, statement->keyspace, statement->name);
    if (table == NULL)
        return false;
    if (table->is_system)
        return node_query_fail(query, ERROR_UNAUTHORIZED, "%.*s is not user-modifiable.",
                               SLICE_ARG(table->keyspace->name));
    if (query->engine->down_count > 0)
        return node_query_fail(query, ERROR_TRUNCATE,
                               "Error during truncate: Cannot achieve consistency level ALL");
    node_truncate(query->engine, table);
    node_put_void(query->body);
    return true;
}

void node_truncate(struct node_engine *engine, struct node_table *table)
{
    engine->bytes -= table->storage.bytes;
    node_storage_clear(&table->storage);
}

static bool run_batch_text(struct query *query, struct statement *statement)
{
    struct batch_part *parts = node_arena_alloc(query->arena,
                                                (statement->child_count + 1u) * sizeof *parts);
    uint32_t count = 0;
    for (struct statement *child = statement->children; child != NULL; child = child->next)
        parts[count++] = (struct batch_part){
            .statement = child, .values = query->values, .value_count = query->value_count};
    return node_run_modify_batch(query, statement->batch_kind, parts, count, statement);
}

bool node_run(struct query *query, struct statement *statement)
{
    if (!node_check_values(query, statement))
        return false;
    if (statement->kind <= STATEMENT_DELETE)
        node_find_token(query, statement);
    switch (statement->kind) {
    case STATEMENT_SELECT: return node_run_select(query, statement);
    case STATEMENT_INSERT:
    case STATEMENT_UPDATE:
    case STATEMENT_DELETE: return node_run_modify(query, statement);
    case STATEMENT_BATCH: return run_batch_text(query, statement);
    case STATEMENT_TRUNCATE: return run_truncate(query, statement);
    case STATEMENT_USE: return run_use(query, statement);
    default: return node_run_schema(query, statement);
    }
}

bool node_run_batch(struct query *query, uint8_t kind, struct batch_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        query->values = parts[i].values;
        query->value_count = parts[i].value_count;
        if (!node_check_values(query, parts[i].statement))
            return false;
    }
    return node_run_modify_batch(query, kind, parts, count, NULL);
}

struct statement *node_understand(struct query *query, cqlring_bytes text, struct node_arena *arena)
{
    if ((uint32_t)text.size > query->engine->options->statement_size_max &&
        !query->engine->bootstrapping) {
        (void)node_query_fail(query, ERROR_INVALID, "The statement is too large");
        return NULL;
    }
    if (node_value_check(&node_type_text, text) != NULL) {
        (void)node_query_fail(query, ERROR_PROTOCOL, "Cannot decode string as UTF8");
        return NULL;
    }
    char message[256];
    struct statement *statement = node_parse(arena, text, message, sizeof message);
    if (statement == NULL)
        (void)node_query_fail(query, ERROR_SYNTAX, "%s", message);
    if (statement == NULL || !node_resolve(query, statement, arena))
        return NULL;
    if (statement->kind == STATEMENT_SELECT)
        statement->plan->hash = (uint64_t)cqr_murmur3(text.data, (uint32_t)text.size);
    return statement;
}

bool node_run_text(struct query *query, cqlring_bytes text)
{
    struct node_arena arena = {0};
    struct statement *statement = node_understand(query, text, &arena);
    bool fine = statement != NULL && node_run(query, statement);
    node_arena_fini(&arena);
    return fine;
}

/* --- the start -------------------------------------------------------------------------------- */

static void random_uuid(uint64_t *random, uint8_t out[16])
{
    cqr_store_u64(out, node_random(random));
    cqr_store_u64(out + 8, node_random(random));
    out[6] = (uint8_t)((out[6] & 0x0F) | 0x40);
    out[8] = (uint8_t)((out[8] & 0x3F) | 0x80);
}

void node_engine_init(struct node_engine *engine, const struct node_options *options,
                      int64_t now_us)
{
    engine->options = options;
    engine->random = node_random_seed(options->seed, 1);
    engine->member_count = options->nodes;
    engine->tablet_bits = 3;
    for (uint32_t i = 0; i < engine->member_count; ++i) {
        struct node_member *member = &engine->members[i];
        uint64_t random = node_random_seed(options->seed, 1000 + i);
        random_uuid(&random, member->host_id);
        member->token_count = options->vnodes;
        member->tokens = node_alloc(options->vnodes * sizeof *member->tokens);
        for (uint32_t j = 0; j < options->vnodes; ++j)
            member->tokens[j] = (int64_t)node_random(&random);
        (void)snprintf(member->dc, sizeof member->dc, "%s",
                       options->dcs != NULL ? options->dcs[i] : "datacenter1");
        (void)snprintf(member->rack, sizeof member->rack, "%s",
                       options->racks != NULL ? options->racks[i] : "rack1");
        member->up = member->member = true;
        member->shards = options->shards;
        member->shard_port = options->shards > 0 ? NODE_SHARD_PORT : 0;
    }
    for (uint32_t i = 0; i < engine->member_count; ++i) {
        struct node_member *member = &engine->members[i];
        uint16_t dc = 0, rack = 0;
        while (dc < engine->dc_count && strcmp(engine->dc_names[dc], member->dc) != 0)
            ++dc;
        if (dc == engine->dc_count)
            engine->dc_names[engine->dc_count++] = member->dc;
        while (strcmp(engine->members[rack].rack, member->rack) != 0 ||
               strcmp(engine->members[rack].dc, member->dc) != 0)
            ++rack;
        member->place = (struct ring_node){.dc = dc,
                                           .rack = rack}; /* a rack is named by its first node */
    }
    random_uuid(&engine->random, engine->schema_version);
    engine->bootstrapping = true;
    node_system_create(engine, now_us);
    engine->bootstrapping = false;
    node_engine_ring_changed(engine, now_us);
}

void node_engine_fini(struct node_engine *engine)
{
    node_prepared_forget(engine, NODE_ALL, NULL);
    for (struct node_keyspace *keyspace = engine->keyspaces, *next; keyspace != NULL;
         keyspace = next) {
        next = keyspace->next;
        node_keyspace_free(engine, keyspace);
    }
    for (uint32_t i = 0; i < engine->member_count; ++i)
        node_free(engine->members[i].tokens);
    node_free(engine->ring);
}

void node_engine_ring_changed(struct node_engine *engine, int64_t now_us)
{
    node_free(engine->ring);
    engine->ring = node_alloc(engine->member_count * engine->options->vnodes *
                              sizeof *engine->ring);
    engine->ring_count = 0;
    engine->down_count = 0;
    for (uint32_t i = 0; i < engine->member_count; ++i) {
        const struct node_member *member = &engine->members[i];
        if (!member->member)
            continue;
        engine->down_count += !member->up;
        for (uint32_t j = 0; j < member->token_count; ++j)
            engine->ring[engine->ring_count++] = (struct ring_entry){.token = member->tokens[j],
                                                                     .node = i};
    }
    engine->ring_count = cqr_ring_sort(engine->ring, engine->ring_count);
    for (struct node_keyspace *keyspace = engine->keyspaces; keyspace != NULL;
         keyspace = keyspace->next)
        node_keyspace_drop_cache(keyspace);
    node_system_write_members(engine, now_us);
}

/* --- replicas --------------------------------------------------------------------------------- */

void node_keyspace_drop_cache(struct node_keyspace *keyspace)
{
    node_free(keyspace->replicas);
    node_free(keyspace->replicas_known);
    node_free(keyspace->replica_counts);
    keyspace->replicas = keyspace->replica_counts = NULL;
    keyspace->replicas_known = NULL;
}

uint32_t node_engine_replicas(struct node_engine *engine, struct node_keyspace *keyspace,
                              int64_t token, const uint32_t **nodes)
{
    if (engine->ring_count == 0)
        return 0;
    if (keyspace->replicas == NULL) {
        keyspace->factor_max = engine->member_count;
        keyspace->replicas = node_zalloc((size_t)engine->ring_count * keyspace->factor_max *
                                         sizeof *keyspace->replicas);
        keyspace->replicas_known = node_zalloc(engine->ring_count *
                                               sizeof *keyspace->replicas_known);
        keyspace->replica_counts = node_zalloc(engine->ring_count *
                                               sizeof *keyspace->replica_counts);
    }
    uint32_t at = cqr_ring_find(engine->ring, engine->ring_count, token);
    uint32_t *own = keyspace->replicas + (size_t)at * keyspace->factor_max;
    if (!keyspace->replicas_known[at]) {
        struct ring_node places[NODE_COUNT_MAX];
        for (uint32_t i = 0; i < engine->member_count; ++i)
            places[i] = engine->members[i].place;
        keyspace->replica_counts[at] = cqr_replicas_at(engine->ring, engine->ring_count, at, places,
                                                       engine->member_count, &keyspace->replication,
                                                       own, keyspace->factor_max);
        keyspace->replicas_known[at] = true;
    }
    *nodes = own;
    return keyspace->replica_counts[at];
}

/* How many replicas a level needs; the local DC is the coordinator's. */
static uint32_t required(const struct query *query, const uint32_t *nodes, uint32_t count,
                         uint32_t *alive)
{
    const struct node_engine *engine = query->engine;
    uint16_t level = query->params == NULL ? 1 : query->params->consistency;
    bool local = level == 6 || level == 9 || level == 10;
    uint16_t dc = engine->members[query->coordinator].place.dc;
    uint32_t total = 0;
    *alive = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const struct node_member *member = &engine->members[nodes[i]];
        if (local && member->place.dc != dc)
            continue;
        ++total;
        *alive += member->up;
    }
    switch (level) {
    case 0: return 0; /* ANY: a hint is enough */
    case 2: return 2;
    case 3: return 3;
    case 5: return total;
    case 4:
    case 6:
    case 7:
    case 8:
    case 9: return total / 2 + 1;
    default: return 1;
    }
}

bool node_check_alive(struct query *query, struct node_keyspace *keyspace, int64_t token)
{
    if (keyspace->replication.strategy == STRATEGY_LOCAL)
        return true;
    const uint32_t *nodes = NULL;
    uint32_t count = node_engine_replicas(query->engine, keyspace, token, &nodes), alive;
    uint32_t wanted = required(query, nodes, count, &alive);
    if (alive >= wanted)
        return true;
    query->required = (int32_t)wanted;
    query->alive = (int32_t)alive;
    uint16_t level = query->params == NULL ? 1 : query->params->consistency;
    static const char *const names[] = {"ANY",    "ONE",          "TWO",          "THREE",
                                        "QUORUM", "ALL",          "LOCAL_QUORUM", "EACH_QUORUM",
                                        "SERIAL", "LOCAL_SERIAL", "LOCAL_ONE"};
    return node_query_fail(query, ERROR_UNAVAILABLE, "Cannot achieve consistency level %s",
                           level < 11 ? names[level] : "?");
}
