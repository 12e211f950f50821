/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE, ALTER, DROP: the catalogue. */
#include "tests/node/engine_private.h"

#include <stdio.h>
#include <stdlib.h>

/* --- finding ---------------------------------------------------------------------------------- */

struct node_keyspace *node_keyspace_find(const struct node_engine *engine, cqlring_bytes name)
{
    struct node_keyspace *keyspace = engine->keyspaces;
    while (keyspace != NULL && !slice_equal(keyspace->name, name))
        keyspace = keyspace->next;
    return keyspace;
}

struct node_table *node_table_find(const struct node_keyspace *keyspace, cqlring_bytes name)
{
    struct node_table *table = keyspace->tables;
    while (table != NULL && !slice_equal(table->name, name))
        table = table->next;
    return table;
}

struct node_column *node_column_find(const struct node_table *table, cqlring_bytes name)
{
    struct node_column *column = table->columns;
    while (column != NULL && !slice_equal(column->name, name))
        column = column->next;
    return column;
}

struct node_udt *node_udt_find(const struct node_keyspace *keyspace, cqlring_bytes name)
{
    struct node_udt *udt = keyspace->types;
    while (udt != NULL && !slice_equal(udt->name, name))
        udt = udt->next;
    return udt;
}

/* The keyspace a schema statement is about, which must be the user's to change. */
static struct node_keyspace *own_keyspace(struct query *query, cqlring_bytes name)
{
    cqlring_bytes home = name.size > 0 ? name : query->keyspace;
    if (home.size <= 0) {
        (void)node_query_fail(
            query, ERROR_INVALID,
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename");
        return NULL;
    }
    struct node_keyspace *keyspace = node_keyspace_find(query->engine, home);
    if (keyspace == NULL) {
        (void)node_query_fail(query, ERROR_INVALID, "Keyspace '%.*s' doesn't exist",
                              SLICE_ARG(home));
        return NULL;
    }
    if (keyspace->is_system && !query->engine->bootstrapping) {
        (void)node_query_fail(query, ERROR_UNAUTHORIZED, "%.*s keyspace is not user-modifiable.",
                              SLICE_ARG(home));
        return NULL;
    }
    return keyspace;
}

/* --- what everybody is told ------------------------------------------------------------------- */

void node_schema_changed(struct query *query, const char *change, const char *target,
                         cqlring_bytes keyspace, cqlring_bytes name)
{
    node_schema_changed_with(query, change, target, keyspace, name, slice_text(""));
}

void node_schema_changed_with(struct query *query, const char *change, const char *target,
                              cqlring_bytes keyspace, cqlring_bytes name, cqlring_bytes arguments)
{
    struct node_engine *engine = query->engine;
    cqr_store_u64(engine->schema_version, node_random(&engine->random));
    engine->schema_version[6] = (uint8_t)((engine->schema_version[6] & 0x0F) | 0x40);
    ++engine->schema_changes;
    size_t at = query->body->size;
    out_u32(query->body, RESULT_SCHEMA);
    out_text(query->body, change);
    out_text(query->body, target);
    out_string(query->body, keyspace);
    if (name.data != NULL)
        out_string(query->body, name);
    out_slice(query->body, arguments);
    if (engine->bootstrapping)
        return;
    node_system_write_members(engine, query->now_us);
    if (engine->on_schema != NULL)
        engine->on_schema(engine->context, out_view(query->body, at + 4));
}

/* IF [NOT] EXISTS had nothing to do. */
static bool nothing_to_do(struct query *query)
{
    node_put_void(query->body);
    return true;
}

/* --- keyspaces -------------------------------------------------------------------------------- */

void node_replication_resolve(struct node_engine *engine, struct node_keyspace *keyspace)
{
    struct replication *replication = &keyspace->replication;
    replication->strategy = cqr_strategy_of(keyspace->strategy);
    replication->factor = 0;
    replication->dc_count = 0;
    replication->dcs = node_arena_alloc(&keyspace->arena,
                                        (keyspace->option_count + 1u) * sizeof *replication->dcs);
    for (uint16_t i = 0; i < keyspace->option_count; ++i) {
        uint16_t all = 0, transient_count = 0;
        (void)cqr_factor_parse(keyspace->option_values[i], &all, &transient_count);
        if (slice_is(keyspace->option_names[i], "replication_factor")) {
            replication->factor = all;
            replication->transient_count = transient_count;
            continue;
        }
        uint16_t dc = 0;
        while (dc < engine->dc_count && !slice_is(keyspace->option_names[i], engine->dc_names[dc]))
            ++dc;
        replication->dcs[replication->dc_count++] = (struct dc_factor){
            .dc = dc == engine->dc_count ? UINT16_MAX : dc,
            .all = all,
            .transient_count = transient_count};
    }
    node_keyspace_drop_cache(keyspace);
}

static void keyspace_option(struct node_keyspace *keyspace, cqlring_bytes name, cqlring_bytes value)
{
    for (uint16_t i = 0; i < keyspace->option_count; ++i) {
        if (slice_equal(keyspace->option_names[i], name)) {
            keyspace->option_values[i] = node_arena_copy(&keyspace->arena, value);
            return;
        }
    }
    keyspace->option_names[keyspace->option_count] = node_arena_copy(&keyspace->arena, name);
    keyspace->option_values[keyspace->option_count++] = node_arena_copy(&keyspace->arena, value);
}

/* replication = {'class': …, …}. DCs that no node is in are taken: maps of routing must live with
   them. */
static bool parse_replication(struct query *query, struct node_keyspace *keyspace,
                              const struct term *map)
{
    if (map->kind != TERM_MAP)
        return node_query_fail(query, ERROR_SYNTAX,
                               "Invalid value for property 'replication'. It should be a map.");
    keyspace->option_count = 0;
    keyspace->option_names = node_arena_alloc(&keyspace->arena, (map->count / 2u + NODE_COUNT_MAX) *
                                                                    sizeof *keyspace->option_names);
    keyspace->option_values = node_arena_alloc(
        &keyspace->arena, (map->count / 2u + NODE_COUNT_MAX) * sizeof *keyspace->option_values);
    keyspace->strategy = slice_text("");
    cqlring_bytes everywhere = SLICE_NULL;
    for (const struct term *key = map->children; key != NULL; key = key->next->next) {
        cqlring_bytes value = key->next->text;
        if (slice_is(key->text, "class")) {
            struct out name = {0};
            if (memchr(value.data, '.', (size_t)value.size) == NULL)
                node_out_printf(&name, "org.apache.cassandra.locator.");
            out_slice(&name, value);
            keyspace->strategy = node_arena_copy(&keyspace->arena, out_view(&name, 0));
            node_out_fini(&name);
        } else if (slice_is(key->text, "replication_factor")) {
            everywhere = value;
        } else {
            keyspace_option(keyspace, key->text, value);
        }
    }
    enum strategy strategy = cqr_strategy_of(keyspace->strategy);
    if (keyspace->strategy.size == 0)
        return node_query_fail(query, ERROR_CONFIG, "Missing replication strategy class");
    if (strategy == STRATEGY_UNKNOWN)
        return node_query_fail(query, ERROR_CONFIG,
                               "Unable to find replication strategy class '%.*s'",
                               SLICE_ARG(keyspace->strategy));
    if (strategy == STRATEGY_SIMPLE && everywhere.size < 0)
        return node_query_fail(query, ERROR_CONFIG,
                               "SimpleStrategy requires a replication_factor strategy option.");
    uint16_t all, transient_count;
    if (everywhere.size >= 0 && !cqr_factor_parse(everywhere, &all, &transient_count))
        return node_query_fail(query, ERROR_CONFIG,
                               "Replication factor must be numeric; found %.*s",
                               SLICE_ARG(everywhere));
    if (strategy == STRATEGY_NETWORK &&
        everywhere.size >= 0) { /* the server expands it to its DCs */
        for (uint16_t i = 0; i < query->engine->dc_count; ++i)
            keyspace_option(keyspace, slice_text(query->engine->dc_names[i]), everywhere);
    } else if (everywhere.size >= 0) {
        keyspace_option(keyspace, slice_text("replication_factor"), everywhere);
    }
    for (uint16_t i = 0; i < keyspace->option_count; ++i) {
        if (!cqr_factor_parse(keyspace->option_values[i], &all, &transient_count))
            return node_query_fail(query, ERROR_CONFIG,
                                   "Replication factor must be numeric; found %.*s",
                                   SLICE_ARG(keyspace->option_values[i]));
    }
    node_replication_resolve(query->engine, keyspace);
    return true;
}

bool node_replication_parse(struct query *query, struct node_keyspace *keyspace,
                            const struct option_list *options)
{
    for (const struct option_list *option = options; option != NULL; option = option->next) {
        if (slice_is(option->name, "replication")) {
            if (!parse_replication(query, keyspace, option->value))
                return false;
        } else if (slice_is(option->name, "durable_writes")) {
            keyspace->durable_writes = node_slice_is_nocase(option->value->text, "TRUE");
        } else if (slice_is(option->name, "tablets")) { /* {'enabled': false} */
            const struct term *value = option->value->children;
            if (value != NULL && value->next != NULL && slice_is(value->text, "enabled"))
                keyspace->tablets = keyspace->tablets &&
                                    node_slice_is_nocase(value->next->text, "TRUE");
        } else {
            return node_query_fail(query, ERROR_SYNTAX, "Unknown property '%.*s'",
                                   SLICE_ARG(option->name));
        }
    }
    return true;
}

static bool create_keyspace(struct query *query, const struct statement *statement)
{
    struct node_engine *engine = query->engine;
    if (node_keyspace_find(engine, statement->name) != NULL) {
        if (statement->if_not_exists)
            return nothing_to_do(query);
        query->error_keyspace = node_arena_copy(query->arena, statement->name);
        query->error_table = slice_text("");
        return node_query_fail(query, ERROR_ALREADY_EXISTS, "Cannot add existing keyspace \"%.*s\"",
                               SLICE_ARG(statement->name));
    }
    if (statement->name.size > 48)
        return node_query_fail(
            query, ERROR_INVALID,
            "Keyspace name must not be empty or more than 48 characters long (got \"%.*s\")",
            SLICE_ARG(statement->name));
    struct node_arena arena = {0};
    struct node_keyspace *keyspace = node_arena_alloc(&arena, sizeof *keyspace);
    keyspace->arena = arena;
    keyspace->name = node_arena_copy(&keyspace->arena, statement->name);
    keyspace->durable_writes = true;
    keyspace->is_system = engine->bootstrapping;
    keyspace->tablets = engine->options->tablets && engine->options->shards > 0 &&
                        !engine->bootstrapping;
    if (!node_replication_parse(query, keyspace, statement->options)) {
        node_keyspace_free(engine, keyspace);
        return false;
    }
    if (keyspace->strategy.size == 0) {
        node_keyspace_free(engine, keyspace);
        return node_query_fail(query, ERROR_CONFIG, "Missing mandatory replication strategy class");
    }
    struct node_keyspace **tail = &engine->keyspaces;
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = keyspace;
    node_system_write_keyspace(engine, keyspace, query->now_us);
    node_schema_changed(query, "CREATED", "KEYSPACE", keyspace->name, SLICE_NULL);
    return true;
}

static bool alter_keyspace(struct query *query, const struct statement *statement)
{
    if (statement->if_exists && node_keyspace_find(query->engine, statement->name) == NULL)
        return nothing_to_do(query);
    struct node_keyspace *keyspace = own_keyspace(query, statement->name);
    if (keyspace == NULL || !node_replication_parse(query, keyspace, statement->options))
        return false;
    node_system_write_keyspace(query->engine, keyspace, query->now_us);
    node_schema_changed(query, "UPDATED", "KEYSPACE", keyspace->name, SLICE_NULL);
    return true;
}

static bool drop_keyspace(struct query *query, const struct statement *statement)
{
    struct node_engine *engine = query->engine;
    if (statement->if_exists && node_keyspace_find(engine, statement->name) == NULL)
        return nothing_to_do(query);
    struct node_keyspace *keyspace = own_keyspace(query, statement->name);
    if (keyspace == NULL)
        return false;
    cqlring_bytes name = node_arena_copy(query->arena, keyspace->name);
    for (struct node_keyspace **at = &engine->keyspaces; *at != NULL; at = &(*at)->next) {
        if (*at == keyspace) {
            *at = keyspace->next;
            break;
        }
    }
    node_keyspace_free(engine, keyspace);
    node_system_erase(engine, name, SLICE_NULL, SLICE_NULL, query->now_us);
    node_schema_changed(query, "DROPPED", "KEYSPACE", name, SLICE_NULL);
    return true;
}

void node_keyspace_free(struct node_engine *engine, struct node_keyspace *keyspace)
{
    for (struct node_table *table = keyspace->tables, *next; table != NULL; table = next) {
        next = table->next;
        node_table_free(engine, table);
    }
    for (struct node_udt *udt = keyspace->types, *next; udt != NULL; udt = next) {
        next = udt->next;
        struct node_arena arena = udt->arena;
        node_arena_fini(&arena);
    }
    node_functions_free(keyspace);
    node_keyspace_drop_cache(keyspace);
    struct node_arena arena = keyspace->arena;
    node_arena_fini(&arena);
}

enum { FIELDS_MAX = 1000, FIELD_NAME_MAX = 1024, TYPE_NAME_MAX = 256 };

/* --- types ------------------------------------------------------------------------------------ */

static bool udt_add_field(struct query *query, struct node_keyspace *keyspace, struct node_udt *udt,
                          const struct column_ast *field)
{
    const struct node_type *type = node_type_resolve(query, field->type, keyspace, &udt->arena,
                                                     false);
    if (type == NULL)
        return false;
    if (type->kind == TYPE_COUNTER)
        return node_query_fail(query, ERROR_INVALID, "A user type cannot contain counters");
    if (node_type_is_multi(type) || (type->kind == TYPE_UDT && !type->frozen))
        return node_query_fail(query, ERROR_INVALID,
                               "A user type cannot contain non-frozen UDTs or collections: %.*s",
                               SLICE_ARG(field->name));
    if (node_type_uses(type, udt))
        return node_query_fail(query, ERROR_INVALID, "Cannot make user type '%.*s' use itself",
                               SLICE_ARG(udt->name));
    if (udt->count == FIELDS_MAX || field->name.size > FIELD_NAME_MAX)
        return node_query_fail(query, ERROR_INVALID,
                               "A type has at most %d fields, with names of at most %d bytes",
                               FIELDS_MAX, FIELD_NAME_MAX);
    for (uint16_t i = 0; i < udt->count; ++i) {
        if (slice_equal(udt->names[i], field->name))
            return node_query_fail(query, ERROR_INVALID, "Duplicate field name %.*s in type %.*s",
                                   SLICE_ARG(field->name), SLICE_ARG(udt->name));
    }
    cqlring_bytes *names = node_arena_alloc(&udt->arena, (udt->count + 1u) * sizeof *names);
    const struct node_type **types = node_arena_alloc(&udt->arena,
                                                      (udt->count + 1u) * sizeof *types);
    if (udt->count > 0) {
        memcpy(names, udt->names, udt->count * sizeof *names);
        memcpy(types, udt->types, udt->count * sizeof *types);
    }
    names[udt->count] = node_arena_copy(&udt->arena, field->name);
    types[udt->count] = type;
    udt->names = names;
    udt->types = types;
    ++udt->count;
    return true;
}

static bool create_type(struct query *query, const struct statement *statement)
{
    struct node_keyspace *keyspace = own_keyspace(query, statement->keyspace);
    if (keyspace == NULL)
        return false;
    if (node_udt_find(keyspace, statement->name) != NULL) {
        if (statement->if_not_exists)
            return nothing_to_do(query);
        return node_query_fail(query, ERROR_INVALID, "A user type with name '%.*s' already exists",
                               SLICE_ARG(statement->name));
    }
    if (statement->name.size > TYPE_NAME_MAX)
        return node_query_fail(query, ERROR_INVALID, "A type's name has at most %d bytes",
                               TYPE_NAME_MAX);
    struct node_arena arena = {0};
    struct node_udt *udt = node_arena_alloc(&arena, sizeof *udt);
    udt->arena = arena;
    udt->keyspace = keyspace->name;
    udt->name = node_arena_copy(&udt->arena, statement->name);
    for (const struct column_ast *field = statement->columns; field != NULL; field = field->next) {
        if (!udt_add_field(query, keyspace, udt, field)) {
            arena = udt->arena;
            node_arena_fini(&arena);
            return false;
        }
    }
    struct node_udt **tail = &keyspace->types;
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = udt;
    node_system_write_type(query->engine, keyspace, udt, query->now_us);
    node_schema_changed(query, "CREATED", "TYPE", keyspace->name, udt->name);
    return true;
}

static bool alter_type(struct query *query, const struct statement *statement)
{
    struct node_keyspace *keyspace = own_keyspace(query, statement->keyspace);
    if (keyspace == NULL)
        return false;
    struct node_udt *udt = node_udt_find(keyspace, statement->name);
    if (udt == NULL)
        return statement->if_exists
                   ? nothing_to_do(query)
                   : node_query_fail(query, ERROR_INVALID, "Type '%.*s' doesn't exist",
                                     SLICE_ARG(statement->name));
    for (const struct column_ast *field = statement->columns; field != NULL; field = field->next) {
        if (statement->alter == ALTER_ADD) {
            if (!udt_add_field(query, keyspace, udt, field))
                return false;
            continue;
        }
        bool found = false;
        if (field->new_name.size > FIELD_NAME_MAX)
            return node_query_fail(query, ERROR_INVALID, "A field's name has at most %d bytes",
                                   FIELD_NAME_MAX);
        for (uint16_t i = 0; i < udt->count && !found; ++i) {
            found = slice_equal(udt->names[i], field->name);
            if (found)
                udt->names[i] = node_arena_copy(&udt->arena, field->new_name);
        }
        if (!found)
            return node_query_fail(query, ERROR_INVALID, "Unkown field %.*s in user type %.*s",
                                   SLICE_ARG(field->name), SLICE_ARG(udt->name));
    }
    node_prepared_invalidate(query->engine, keyspace, NULL);
    node_system_write_type(query->engine, keyspace, udt, query->now_us);
    node_schema_changed(query, "UPDATED", "TYPE", keyspace->name, udt->name);
    return true;
}

static bool drop_type(struct query *query, const struct statement *statement)
{
    struct node_keyspace *keyspace = own_keyspace(query, statement->keyspace);
    if (keyspace == NULL)
        return false;
    struct node_udt *udt = node_udt_find(keyspace, statement->name);
    if (udt == NULL)
        return statement->if_exists
                   ? nothing_to_do(query)
                   : node_query_fail(query, ERROR_INVALID, "Type '%.*s.%.*s' doesn't exist",
                                     SLICE_ARG(keyspace->name), SLICE_ARG(statement->name));
    for (const struct node_table *table = keyspace->tables; table != NULL; table = table->next) {
        for (const struct node_column *column = table->columns; column != NULL;
             column = column->next) {
            if (node_type_uses(column->type, udt))
                return node_query_fail(
                    query, ERROR_INVALID,
                    "Cannot drop user type '%.*s.%.*s' as it is still used by tables [%.*s]",
                    SLICE_ARG(keyspace->name), SLICE_ARG(udt->name), SLICE_ARG(table->name));
        }
    }
    for (const struct node_udt *other = keyspace->types; other != NULL; other = other->next) {
        for (uint16_t i = 0; other != udt && i < other->count; ++i) {
            if (node_type_uses(other->types[i], udt))
                return node_query_fail(
                    query, ERROR_INVALID,
                    "Cannot drop user type '%.*s.%.*s' as it is still used by user types [%.*s]",
                    SLICE_ARG(keyspace->name), SLICE_ARG(udt->name), SLICE_ARG(other->name));
        }
    }
    struct node_udt **at = &keyspace->types;
    while (*at != udt)
        at = &(*at)->next;
    *at = udt->next;
    cqlring_bytes name = node_arena_copy(query->arena, udt->name);
    struct node_arena arena = udt->arena;
    node_arena_fini(&arena);
    node_system_erase(query->engine, keyspace->name, SLICE_NULL, name, query->now_us);
    node_schema_changed(query, "DROPPED", "TYPE", keyspace->name, name);
    return true;
}

bool node_run_schema(struct query *query, struct statement *statement)
{
    switch (statement->kind) {
    case STATEMENT_CREATE_KEYSPACE: return create_keyspace(query, statement);
    case STATEMENT_ALTER_KEYSPACE: return alter_keyspace(query, statement);
    case STATEMENT_DROP_KEYSPACE: return drop_keyspace(query, statement);
    case STATEMENT_CREATE_TYPE: return create_type(query, statement);
    case STATEMENT_ALTER_TYPE: return alter_type(query, statement);
    case STATEMENT_DROP_TYPE: return drop_type(query, statement);
    default: break;
    }
    if ((statement->kind == STATEMENT_CREATE_INDEX || statement->kind == STATEMENT_CREATE_VIEW) &&
        statement->index_keyspace.size > 0)
        statement->keyspace = statement->index_keyspace;
    struct node_keyspace *keyspace = own_keyspace(query, statement->keyspace);
    switch (statement->kind) {
    case STATEMENT_CREATE_VIEW:
    case STATEMENT_CREATE_FUNCTION:
    case STATEMENT_CREATE_AGGREGATE:
    case STATEMENT_DROP_FUNCTION:
    case STATEMENT_DROP_AGGREGATE:
        return keyspace != NULL && node_run_function_schema(query, statement, keyspace);
    default: return keyspace != NULL && node_run_table_schema(query, statement, keyspace);
    }
}
