/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared statements: kept once for the cluster, with a bit per node that knows them. And the
   metadata of columns. */
#include "tests/node/engine_private.h"

#include "cql/token.h"

enum {
    BUCKETS = sizeof((struct node_engine *)0)->prepared_buckets / sizeof(struct node_prepared *)
};

void node_hash128(cqlring_bytes bytes, uint8_t out[16])
{
    cqr_random_token(bytes.data, (uint32_t)bytes.size, out); /* MD5, made positive */
}

/* --- metadata --------------------------------------------------------------------------------- */

static void put_specs(const struct output *outputs, uint32_t count, uint8_t version,
                      struct out *out)
{
    for (uint32_t i = 0; i < count; ++i) {
        out_string(out, outputs[i].label);
        node_type_put_option(outputs[i].type, version, out);
    }
}

/* A fault's column, by the id of its type; 0: none. */
static void put_extra(uint16_t type, struct out *out)
{
    if (type == 0)
        return;
    out_text(out, "extra_column");
    out_u16(out, type);
}

void node_metadata_id(const struct output *outputs, uint32_t count, uint8_t id[16])
{
    struct out out = {0};
    out_u32(&out, count);
    put_specs(outputs, count, 5, &out);
    node_hash128(out_view(&out, 0), id);
    node_out_fini(&out);
}

void node_put_columns(struct query *query, const struct node_table *table,
                      const struct output *outputs, uint32_t count, uint32_t flags,
                      cqlring_bytes paging_state, const uint8_t *changed_id)
{
    struct out *out = query->body;
    if (paging_state.size >= 0)
        flags |= ROWS_MORE_PAGES;
    if (changed_id != NULL)
        flags |= ROWS_METADATA_CHANGED;
    bool bare = (flags & ROWS_NO_METADATA) != 0;
    if (!bare)
        flags |= ROWS_GLOBAL_SPEC;
    out_u32(out, flags);
    out_u32(out, count + (query->fault.extra_column != 0));
    if (paging_state.size >= 0)
        out_bytes(out, paging_state);
    if (changed_id != NULL)
        out_string(out, slice_of(changed_id, 16));
    if (bare)
        return;
    out_string(out, table->keyspace->name);
    out_string(out, table->name);
    put_specs(outputs, count, query->type_version, out);
    put_extra(query->fault.extra_column, out);
}

static void put_bind_metadata(const struct node_prepared *prepared, const struct dialect *dialect,
                              uint8_t type_version, struct out *out)
{
    const struct statement *statement = prepared->statement;
    bool global = statement->bind_count > 0;
    for (uint16_t i = 1; i < statement->bind_count; ++i)
        global = global &&
                 slice_equal(statement->binds[i].keyspace, statement->binds[0].keyspace) &&
                 slice_equal(statement->binds[i].table, statement->binds[0].table);
    uint32_t flags = global ? ROWS_GLOBAL_SPEC : 0;
    if ((dialect->extensions & EXT_LWT_MARK) != 0 && statement->modify != NULL &&
        statement->modify->conditional)
        flags |= dialect->lwt_mask;
    out_u32(out, flags);
    out_u32(out, statement->bind_count);
    if (dialect->version >= PROTO_V4) {
        out_u32(out, prepared->pk_count);
        for (uint16_t i = 0; i < prepared->pk_count; ++i)
            out_u16(out, prepared->pk_indexes[i]);
    }
    if (global) {
        out_string(out, statement->binds[0].keyspace);
        out_string(out, statement->binds[0].table);
    }
    for (uint16_t i = 0; i < statement->bind_count; ++i) {
        const struct bind_marker *marker = &statement->binds[i];
        if (!global) {
            out_string(out, marker->keyspace);
            out_string(out, marker->table);
        }
        out_string(out, marker->label);
        node_type_put_option(marker->type, type_version, out);
    }
}

void node_prepared_encode(const struct node_prepared *prepared, const struct dialect *dialect,
                          uint8_t type_version, uint16_t extra_column, struct out *out)
{
    const struct statement *statement = prepared->statement;
    out_string(out, slice_of(prepared->id, 16));
    if (cqr_dialect_has_metadata_id(dialect)) {
        uint8_t id[16];
        memcpy(id, prepared->metadata_id, 16);
        id[15] ^= (uint8_t)extra_column;
        out_string(out, slice_of(id, 16));
    }
    put_bind_metadata(prepared, dialect, type_version, out);
    if (statement->kind != STATEMENT_SELECT) {
        out_u32(out, ROWS_NO_METADATA);
        out_u32(out, 0);
        return;
    }
    const struct select_plan *plan = statement->plan;
    out_u32(out, ROWS_GLOBAL_SPEC);
    out_u32(out, plan->output_count + (extra_column != 0));
    out_string(out, statement->table->keyspace->name);
    out_string(out, statement->table->name);
    put_specs(plan->outputs, plan->output_count, type_version, out);
    put_extra(extra_column, out);
}

/* --- the list --------------------------------------------------------------------------------- */

static struct node_prepared **bucket_of(struct node_engine *engine, const uint8_t id[16])
{
    return &engine->prepared_buckets[cqr_load_u32(id + 8) % BUCKETS];
}

struct node_prepared *node_prepared_find(struct node_engine *engine, cqlring_bytes id)
{
    if (id.size != 16)
        return NULL;
    struct node_prepared *prepared = *bucket_of(engine, slice_data(id));
    while (prepared != NULL && memcmp(prepared->id, id.data, 16) != 0)
        prepared = prepared->next;
    return prepared;
}

static void prepared_free(struct node_engine *engine, struct node_prepared *prepared)
{
    struct node_prepared **at = bucket_of(engine, prepared->id);
    while (*at != prepared)
        at = &(*at)->next;
    *at = prepared->next;
    if (prepared->older != NULL)
        prepared->older->newer = prepared->newer;
    else
        engine->prepared_oldest = prepared->newer;
    if (prepared->newer != NULL)
        prepared->newer->older = prepared->older;
    else
        engine->prepared_newest = prepared->older;
    --engine->prepared_count;
    node_arena_fini(&prepared->arena);
    node_free(prepared);
}

void node_prepared_forget(struct node_engine *engine, uint32_t node, struct node_prepared *prepared)
{
    uint64_t bits = node == NODE_ALL ? UINT64_MAX : UINT64_C(1) << node;
    for (struct node_prepared *at = prepared != NULL ? prepared : engine->prepared_oldest, *newer;
         at != NULL; at = newer) {
        newer = prepared != NULL ? NULL : at->newer;
        at->nodes &= ~bits;
        if (at->nodes == 0)
            prepared_free(engine, at);
    }
}

static bool uses(const struct statement *statement, const struct node_keyspace *keyspace,
                 const struct node_table *table)
{
    for (const struct statement *child = statement->children; child != NULL; child = child->next) {
        if (uses(child, keyspace, table))
            return true;
    }
    return statement->table != NULL &&
           (table != NULL ? statement->table == table : statement->table->keyspace == keyspace);
}

void node_prepared_invalidate(struct node_engine *engine, const struct node_keyspace *keyspace,
                              const struct node_table *table)
{
    for (struct node_prepared *prepared = engine->prepared_oldest, *newer; prepared != NULL;
         prepared = newer) {
        newer = prepared->newer;
        if (uses(prepared->statement, keyspace, table))
            prepared_free(engine, prepared);
    }
}

/* Where the partition key's components are among the bind markers; none unless each is a plain
   marker. */
static void find_pk_indexes(struct node_prepared *prepared)
{
    const struct statement *statement = prepared->statement;
    if (statement->table == NULL || statement->kind > STATEMENT_DELETE)
        return;
    uint16_t count = statement->table->partition_count;
    uint16_t *indexes = node_arena_alloc(&prepared->arena, count * sizeof *indexes);
    for (uint16_t i = 0; i < count; ++i) {
        bool found = false;
        for (uint16_t j = 0; j < statement->bind_count && !found; ++j) {
            found = statement->binds[j].column == statement->table->partition_key[i];
            indexes[i] = j;
        }
        if (!found)
            return;
    }
    prepared->pk_indexes = indexes;
    prepared->pk_count = count;
}

struct node_prepared *node_prepare(struct query *query, cqlring_bytes text)
{
    struct node_engine *engine = query->engine;
    struct out key = {0};
    out_slice(&key, query->keyspace);
    out_slice(&key, text);
    uint8_t id[16];
    node_hash128(out_view(&key, 0), id);
    node_out_fini(&key);
    struct node_prepared *prepared = node_prepared_find(engine, slice_of(id, 16));
    if (prepared != NULL) {
        prepared->nodes |= UINT64_C(1) << query->coordinator;
        return prepared;
    }
    if ((uint32_t)text.size > engine->options->statement_size_max) {
        (void)node_query_fail(query, ERROR_INVALID, "The statement is too large");
        return NULL;
    }
    if (node_value_check(&node_type_text, text) != NULL) {
        (void)node_query_fail(query, ERROR_PROTOCOL, "Cannot decode string as UTF8");
        return NULL;
    }
    prepared = node_zalloc(sizeof *prepared);
    memcpy(prepared->id, id, 16);
    prepared->text = node_arena_copy(&prepared->arena, text);
    prepared->keyspace = node_arena_copy(&prepared->arena, query->keyspace);
    char message[256];
    prepared->statement = node_parse(&prepared->arena, text, message, sizeof message);
    bool fine = prepared->statement != NULL || node_query_fail(query, ERROR_SYNTAX, "%s", message);
    fine = fine && node_resolve(query, prepared->statement, &prepared->arena);
    if (!fine) {
        node_arena_fini(&prepared->arena);
        node_free(prepared);
        return NULL;
    }
    struct statement *statement = prepared->statement;
    if (statement->kind == STATEMENT_SELECT) {
        statement->plan->hash = cqr_load_u64(id);
        node_metadata_id(statement->plan->outputs, statement->plan->output_count,
                         prepared->metadata_id);
    } else {
        node_metadata_id(NULL, 0, prepared->metadata_id);
    }
    prepared->is_write = statement->kind >= STATEMENT_INSERT &&
                         statement->kind <= STATEMENT_DELETE && !statement->modify->conditional &&
                         !statement->table->is_system;
    find_pk_indexes(prepared);
    while (engine->prepared_count >= engine->options->prepared_max &&
           engine->prepared_oldest != NULL)
        prepared_free(engine, engine->prepared_oldest);
    struct node_prepared **bucket = bucket_of(engine, id);
    prepared->next = *bucket;
    *bucket = prepared;
    prepared->older = engine->prepared_newest;
    if (prepared->older != NULL)
        prepared->older->newer = prepared;
    else
        engine->prepared_oldest = prepared;
    engine->prepared_newest = prepared;
    ++engine->prepared_count;
    prepared->nodes = UINT64_C(1) << query->coordinator;
    return prepared;
}
