/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE, ALTER, DROP TABLE and INDEX. */
#include "tests/node/engine_private.h"

#include <stdlib.h>

enum { NAME_MAX = 48, COLUMNS_MAX = 2000, COLUMN_NAME_MAX = 1024, KEY_PARTS_MAX = 32 };

/* --- columns ---------------------------------------------------------------------------------- */

static uint16_t rank_of(const struct node_column *column)
{
    return (uint16_t)column->kind;
}

/* Into the table's order: by kind, keys by position, the others by name. */
static void link_column(struct node_table *table, struct node_column *column)
{
    struct node_column **at = &table->columns;
    while (*at != NULL) {
        int order = (int)rank_of(*at) - (int)rank_of(column);
        if (order == 0 && column->kind <= COLUMN_CLUSTERING)
            order = (int)(*at)->position - (int)column->position;
        if (order == 0 && column->kind > COLUMN_CLUSTERING) {
            cqlring_bytes a = (*at)->name, b = column->name;
            order = memcmp(a.data, b.data, (size_t)(a.size < b.size ? a.size : b.size));
            order = order != 0 ? order : a.size - b.size;
        }
        if (order > 0)
            break;
        at = &(*at)->next;
    }
    column->next = *at;
    *at = column;
    ++table->column_count;
}

/* A slot for a static or regular column. */
static uint16_t add_slot(struct node_table *table, bool is_static, const struct node_type *type)
{
    uint16_t *count = is_static ? &table->shape.static_count : &table->shape.regular_count;
    const struct node_type ***types = is_static ? &table->shape.static_types
                                                : &table->shape.regular_types;
    const struct node_type **grown = node_arena_alloc(&table->arena, (*count + 1u) * sizeof *grown);
    if (*count > 0)
        memcpy(grown, *types, *count * sizeof *grown);
    grown[*count] = type;
    *types = grown;
    return (*count)++;
}

static struct node_column *add_column(struct node_table *table, cqlring_bytes name,
                                      const struct node_type *type, enum column_kind kind)
{
    struct node_column *column = node_arena_alloc(&table->arena, sizeof *column);
    column->name = node_arena_copy(&table->arena, name);
    column->type = type;
    column->kind = kind;
    if (kind > COLUMN_CLUSTERING)
        column->position = add_slot(table, kind == COLUMN_STATIC, type);
    return column;
}

struct node_column *node_table_column(struct node_table *table, cqlring_bytes name,
                                      const struct node_type *type, enum column_kind kind,
                                      uint16_t position)
{
    struct node_column *column = add_column(table, name, type, kind);
    if (kind <= COLUMN_CLUSTERING)
        column->position = position;
    link_column(table, column);
    return column;
}

static struct column_ast *find_ast(const struct statement *statement, cqlring_bytes name)
{
    struct column_ast *column = statement->columns;
    while (column != NULL && !slice_equal(column->name, name))
        column = column->next;
    return column;
}

static bool add_key(struct query *query, const struct statement *statement,
                    struct node_table *table, struct name_list *names, enum column_kind kind)
{
    uint32_t count = 0;
    for (const struct name_list *name = names; name != NULL; name = name->next)
        ++count;
    if (count > KEY_PARTS_MAX)
        return node_query_fail(query, ERROR_INVALID, "A key has at most %d parts", KEY_PARTS_MAX);
    struct node_column **key = node_arena_alloc(&table->arena,
                                                (count + 1u) * sizeof(struct node_column *));
    uint16_t position = 0;
    for (const struct name_list *name = names; name != NULL; name = name->next) {
        struct column_ast *ast = find_ast(statement, name->name);
        if (ast == NULL)
            return node_query_fail(query, ERROR_INVALID,
                                   "Unknown definition %.*s referenced in PRIMARY KEY",
                                   SLICE_ARG(name->name));
        if (ast->primary)
            return node_query_fail(query, ERROR_INVALID, "Multiple definition of identifier %.*s",
                                   SLICE_ARG(name->name));
        if (ast->is_static)
            return node_query_fail(query, ERROR_INVALID,
                                   "Static column %.*s cannot be part of the PRIMARY KEY",
                                   SLICE_ARG(name->name));
        ast->primary = true;
        const struct node_type *type = node_type_resolve(query, ast->type, table->keyspace,
                                                         &table->arena, false);
        if (type == NULL)
            return false;
        if (type->kind == TYPE_COUNTER)
            return node_query_fail(query, ERROR_INVALID,
                                   "counter type is not supported for PRIMARY KEY column '%.*s'",
                                   SLICE_ARG(name->name));
        if (type->kind == TYPE_DURATION)
            return node_query_fail(query, ERROR_INVALID,
                                   "duration type is not supported for PRIMARY KEY column '%.*s'",
                                   SLICE_ARG(name->name));
        if (node_type_is_multi(type) || (type->kind == TYPE_UDT && !type->frozen))
            return node_query_fail(
                query, ERROR_INVALID, "Invalid non-frozen %s type for PRIMARY KEY column '%.*s'",
                type->kind == TYPE_UDT ? "user-defined" : "collection", SLICE_ARG(name->name));
        struct node_column *column = add_column(table, name->name, type, kind);
        column->position = position;
        key[position++] = column;
        link_column(table, column);
    }
    if (kind == COLUMN_PARTITION) {
        table->partition_key = key;
        table->partition_count = (uint16_t)count;
    } else {
        table->clustering_key = key;
        table->shape.clustering_count = (uint16_t)count;
    }
    return true;
}

bool node_table_clustering_order(struct query *query, const struct statement *statement,
                                 struct node_table *table)
{
    uint16_t index = 0;
    for (const struct name_list *name = statement->clustering_order; name != NULL;
         name = name->next, ++index) {
        if (index >= table->shape.clustering_count ||
            !slice_equal(table->clustering_key[index]->name, name->name))
            return node_query_fail(
                query, ERROR_INVALID,
                "Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive");
        table->clustering_key[index]->reversed = name->descending;
    }
    if (index != 0 && index != table->shape.clustering_count)
        return node_query_fail(query, ERROR_INVALID, "Missing CLUSTERING ORDER for column %.*s",
                               SLICE_ARG(table->clustering_key[index]->name));
    const struct node_type **types = node_arena_alloc(
        &table->arena, (table->shape.clustering_count + 1u) * sizeof *types);
    bool *reversed = node_arena_alloc(&table->arena,
                                      (table->shape.clustering_count + 1u) * sizeof *reversed);
    for (uint16_t i = 0; i < table->shape.clustering_count; ++i) {
        types[i] = table->clustering_key[i]->type;
        reversed[i] = table->clustering_key[i]->reversed;
    }
    table->shape.clustering_types = types;
    table->shape.clustering_reversed = reversed;
    return true;
}

static bool add_others(struct query *query, const struct statement *statement,
                       struct node_table *table)
{
    bool counters = false, others = false;
    for (struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next) {
        if (ast->primary)
            continue;
        if (ast->is_static && table->shape.clustering_count == 0)
            return node_query_fail(
                query, ERROR_INVALID,
                "Static columns are only useful (and thus allowed) if the table has at least one clustering column");
        const struct node_type *type = node_type_resolve(query, ast->type, table->keyspace,
                                                         &table->arena, false);
        if (type == NULL)
            return false;
        counters = counters || type->kind == TYPE_COUNTER;
        others = others || type->kind != TYPE_COUNTER;
        if (node_column_find(table, ast->name) != NULL)
            return node_query_fail(query, ERROR_INVALID, "Multiple definition of identifier %.*s",
                                   SLICE_ARG(ast->name));
        link_column(table, add_column(table, ast->name, type,
                                      ast->is_static ? COLUMN_STATIC : COLUMN_REGULAR));
    }
    if (counters && others)
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot mix counter and non counter columns in the same table");
    table->is_counter = counters;
    return true;
}

/* --- tables ----------------------------------------------------------------------------------- */

/* What the system tables, and counts of 16 bits, can hold. */
static bool check_limits(struct query *query, const struct statement *statement)
{
    uint32_t columns = 0;
    if (statement->name.size > NAME_MAX)
        return node_query_fail(query, ERROR_INVALID,
                               "Table names shouldn't be more than %d characters long (got %d)",
                               NAME_MAX, statement->name.size);
    for (const struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next) {
        if (++columns > COLUMNS_MAX || ast->name.size > COLUMN_NAME_MAX ||
            ast->new_name.size > COLUMN_NAME_MAX)
            return node_query_fail(query, ERROR_INVALID,
                                   "At most %d columns, with names of at most %d bytes",
                                   COLUMNS_MAX, COLUMN_NAME_MAX);
    }
    return true;
}

static bool fill_table(struct query *query, const struct statement *statement,
                       struct node_table *table)
{
    for (struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next) {
        ast->primary = false;
        if (find_ast(statement, ast->name) != ast)
            return node_query_fail(query, ERROR_INVALID, "Multiple definition of identifier %.*s",
                                   SLICE_ARG(ast->name));
    }
    if (!check_limits(query, statement))
        return false;
    if (statement->partition_key == NULL)
        return node_query_fail(query, ERROR_INVALID,
                               "No PRIMARY KEY specifed (exactly one required)");
    return add_key(query, statement, table, statement->partition_key, COLUMN_PARTITION) &&
           add_key(query, statement, table, statement->clustering_key, COLUMN_CLUSTERING) &&
           node_table_clustering_order(query, statement, table) && add_others(query, statement, table) &&
           node_table_options_apply(query, statement, table);
}

struct node_table *node_table_make(struct node_engine *engine, struct node_keyspace *keyspace,
                                   cqlring_bytes name)
{
    struct node_arena arena = {0};
    struct node_table *table = node_arena_alloc(&arena, sizeof *table);
    table->arena = arena;
    table->keyspace = keyspace;
    table->name = node_arena_copy(&table->arena, name);
    table->is_system = keyspace->is_system;
    table->gc_grace_seconds = 864000;
    cqr_store_u64(table->id, node_random(&engine->random));
    cqr_store_u64(table->id + 8, node_random(&engine->random));
    table->id[6] = (uint8_t)((table->id[6] & 0x0F) | 0x10);
    table->id[8] = (uint8_t)((table->id[8] & 0x3F) | 0x80);
    return table;
}

void node_table_add(struct query *query, struct node_table *table, const char *change)
{
    struct node_keyspace *keyspace = table->keyspace;
    node_storage_init(&table->storage, &table->shape);
    table->next = keyspace->tables;
    keyspace->tables = table;
    node_system_write_table(query->engine, table, query->now_us);
    node_schema_changed(query, change, "TABLE", keyspace->name, table->name);
}

static bool create_table(struct query *query, const struct statement *statement,
                         struct node_keyspace *keyspace)
{
    if (node_table_find(keyspace, statement->name) != NULL) {
        if (statement->if_not_exists) {
            node_put_void(query->body);
            return true;
        }
        query->error_keyspace = keyspace->name;
        query->error_table = node_arena_copy(query->arena, statement->name);
        return node_query_fail(query, ERROR_ALREADY_EXISTS,
                               "Cannot add already existing table \"%.*s\" to keyspace \"%.*s\"",
                               SLICE_ARG(statement->name), SLICE_ARG(keyspace->name));
    }
    struct node_table *table = node_table_make(query->engine, keyspace, statement->name);
    if (!fill_table(query, statement, table)) {
        struct node_arena arena = table->arena;
        node_arena_fini(&arena);
        return false;
    }
    node_table_add(query, table, "CREATED");
    return true;
}

void node_table_free(struct node_engine *engine, struct node_table *table)
{
    node_prepared_invalidate(engine, table->keyspace, table);
    engine->bytes -= table->storage.bytes;
    node_storage_clear(&table->storage);
    for (uint32_t i = 0; table->local != NULL && i < engine->member_count; ++i)
        node_storage_clear(&table->local[i]);
    struct node_arena arena = table->arena;
    node_arena_fini(&arena);
}

static bool drop_table(struct query *query, struct node_keyspace *keyspace,
                       struct node_table *table)
{
    cqlring_bytes name = node_arena_copy(query->arena, table->name);
    for (const struct node_table *view = keyspace->tables; view != NULL; view = view->next) {
        if (view->is_view && slice_equal(view->base, name))
            return node_query_fail(
                query, ERROR_INVALID,
                "Cannot drop a table when materialized views still depend on it (%.*s.{%.*s})",
                SLICE_ARG(keyspace->name), SLICE_ARG(view->name));
    }
    struct node_table **at = &keyspace->tables;
    while (*at != table)
        at = &(*at)->next;
    *at = table->next;
    node_table_free(query->engine, table);
    node_system_erase(query->engine, keyspace->name, name, SLICE_NULL, query->now_us);
    node_schema_changed(query, "DROPPED", "TABLE", keyspace->name, name);
    return true;
}

/* --- ALTER TABLE ------------------------------------------------------------------------------ */

static bool alter_add(struct query *query, struct node_table *table, const struct column_ast *ast,
                      bool if_not_exists)
{
    if (node_column_find(table, ast->name) != NULL)
        return if_not_exists ||
               node_query_fail(query, ERROR_INVALID, "Column with name '%.*s' already exists",
                               SLICE_ARG(ast->name));
    const struct node_type *type = node_type_resolve(query, ast->type, table->keyspace,
                                                     &table->arena, false);
    if (type == NULL)
        return false;
    if ((type->kind == TYPE_COUNTER) != table->is_counter)
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot have both counter and non-counter columns in one table");
    if (ast->is_static && table->shape.clustering_count == 0)
        return node_query_fail(
            query, ERROR_INVALID,
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column");
    link_column(
        table, add_column(table, ast->name, type, ast->is_static ? COLUMN_STATIC : COLUMN_REGULAR));
    return true;
}

static bool alter_drop(struct query *query, struct node_table *table, cqlring_bytes name)
{
    struct node_column *column = node_column_find(table, name);
    if (column == NULL)
        return node_query_fail(query, ERROR_INVALID,
                               "Column %.*s was not found in table '%.*s.%.*s'", SLICE_ARG(name),
                               SLICE_ARG(table->keyspace->name), SLICE_ARG(table->name));
    if (column->kind <= COLUMN_CLUSTERING)
        return node_query_fail(query, ERROR_INVALID, "Cannot drop PRIMARY KEY column %.*s",
                               SLICE_ARG(name));
    node_storage_drop_slot(&table->storage, column->kind == COLUMN_STATIC, column->position);
    struct node_column **at = &table->columns;
    while (*at != column)
        at = &(*at)->next;
    *at = column->next;
    --table->column_count;
    return true;
}

static bool alter_rename(struct query *query, struct node_table *table,
                         const struct column_ast *ast)
{
    struct node_column *column = node_column_find(table, ast->name);
    if (column == NULL || column->kind > COLUMN_CLUSTERING)
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot rename column %.*s: only PRIMARY KEY columns can be renamed",
                               SLICE_ARG(ast->name));
    if (node_column_find(table, ast->new_name) != NULL)
        return node_query_fail(query, ERROR_INVALID, "Cannot rename column %.*s to %.*s: it exists",
                               SLICE_ARG(ast->name), SLICE_ARG(ast->new_name));
    column->name = node_arena_copy(&table->arena, ast->new_name);
    return true;
}

/* The old cells go: they are not of the new type. */
static bool alter_type_of(struct query *query, struct node_table *table,
                          const struct column_ast *ast)
{
    struct node_column *column = node_column_find(table, ast->name);
    if (column == NULL || column->kind <= COLUMN_CLUSTERING)
        return node_query_fail(query, ERROR_INVALID, "Altering of types is not allowed for %.*s",
                               SLICE_ARG(ast->name));
    const struct node_type *type = node_type_resolve(query, ast->type, table->keyspace,
                                                     &table->arena, false);
    if (type == NULL)
        return false;
    bool is_static = column->kind == COLUMN_STATIC;
    node_storage_drop_slot(&table->storage, is_static, column->position);
    column->type = type;
    (is_static ? table->shape.static_types : table->shape.regular_types)[column->position] = type;
    return true;
}

static bool alter_table(struct query *query, const struct statement *statement,
                        struct node_table *table)
{
    if (!check_limits(query, statement))
        return false;
    if (statement->alter == ALTER_ADD &&
        table->shape.static_count + table->shape.regular_count > COLUMNS_MAX * 4)
        return node_query_fail(query, ERROR_INVALID, "The table has had too many columns");
    /* Whoever has prepared a statement of this table must prepare it again, as with Cassandra. */
    if (statement->alter != ALTER_OPTIONS)
        node_prepared_invalidate(query->engine, table->keyspace, table);
    bool fine = true;
    for (const struct column_ast *ast = statement->columns; fine && ast != NULL; ast = ast->next) {
        switch (statement->alter) {
        case ALTER_ADD: fine = alter_add(query, table, ast, statement->if_not_exists); break;
        case ALTER_DROP: fine = alter_drop(query, table, ast->name); break;
        case ALTER_RENAME: fine = alter_rename(query, table, ast); break;
        case ALTER_TYPE_OF: fine = alter_type_of(query, table, ast); break;
        case ALTER_OPTIONS: break;
        }
    }
    if (!fine || !node_table_options_apply(query, statement, table))
        return false;
    node_system_write_table(query->engine, table, query->now_us);
    node_schema_changed(query, "UPDATED", "TABLE", table->keyspace->name, table->name);
    return true;
}

/* --- indexes: taken note of; queries that use them filter ------------------------------------- */

static bool is_plain_name(cqlring_bytes name)
{
    for (int32_t i = 0; i < name.size; ++i) {
        uint8_t c = slice_data(name)[i];
        if (!((c >= 'a' && c <= 'z') || (i > 0 && ((c >= '0' && c <= '9') || c == '_'))))
            return false;
    }
    return name.size > 0;
}

/* Its target as CQL: of a collection that is not frozen, its values unless something else is said. */
static void index_describe(struct node_table *table, struct node_index *index,
                           const struct statement *statement, const struct node_column *column)
{
    struct out out = {0};
    cqlring_bytes part = statement->index_part;
    if (part.data == NULL && node_type_is_multi(column->type))
        part = slice_text("values");
    if (part.data != NULL)
        node_out_printf(&out, "%.*s(", SLICE_ARG(part));
    bool plain = is_plain_name(column->name);
    node_out_printf(&out, "%s", plain ? "" : "\"");
    for (int32_t i = 0; i < column->name.size; ++i) {
        if (slice_data(column->name)[i] == '"')
            out_u8(&out, '"');
        out_u8(&out, slice_data(column->name)[i]);
    }
    node_out_printf(&out, "%s%s", plain ? "" : "\"", part.data != NULL ? ")" : "");
    index->target = node_arena_copy(&table->arena, out_view(&out, 0));
    out.size = 0;
    for (const struct option_list *option = statement->options; option != NULL;
         option = option->next) {
        bool is_key = true;
        for (const struct term *term = option->value->children;
             term != NULL && option->value->kind == TERM_MAP; term = term->next, is_key = !is_key) {
            node_out_printf(&out, "%s", is_key ? ", " : ": ");
            node_put_quoted(&out, term->text);
        }
    }
    index->options = node_arena_copy(&table->arena, out_view(&out, 0));
    node_out_fini(&out);
}

static bool create_index(struct query *query, const struct statement *statement,
                         struct node_table *table)
{
    struct node_column *column = node_column_find(table, statement->index_target);
    if (column == NULL)
        return node_query_fail(query, ERROR_INVALID, "Column '%.*s' doesn't exist",
                               SLICE_ARG(statement->index_target));
    struct out name = {0};
    if (statement->name.size > 0)
        out_slice(&name, statement->name);
    else
        node_out_printf(&name, "%.*s_%.*s_idx", SLICE_ARG(table->name), SLICE_ARG(column->name));
    cqlring_bytes wanted = node_arena_copy(&table->arena, out_view(&name, 0));
    node_out_fini(&name);
    if (wanted.size > 4 * COLUMN_NAME_MAX || statement->index_class.size > COLUMN_NAME_MAX)
        return node_query_fail(query, ERROR_INVALID, "The index's name is too long");
    for (const struct node_table *other = table->keyspace->tables; other != NULL;
         other = other->next) {
        for (const struct node_index *index = other->indexes; index != NULL; index = index->next) {
            if (!slice_equal(index->name, wanted))
                continue;
            if (statement->if_not_exists) {
                node_put_void(query->body);
                return true;
            }
            return node_query_fail(query, ERROR_INVALID, "Index '%.*s' already exists",
                                   SLICE_ARG(wanted));
        }
    }
    struct node_index *index = node_arena_alloc(&table->arena, sizeof *index);
    index->name = wanted;
    index->column = column->name;
    index->class_name = node_arena_copy(&table->arena, statement->index_class);
    index_describe(table, index, statement, column);
    index->next = table->indexes;
    table->indexes = index;
    column->indexed = true;
    node_system_write_table(query->engine, table, query->now_us);
    node_schema_changed(query, "UPDATED", "TABLE", table->keyspace->name, table->name);
    return true;
}

static bool drop_index(struct query *query, const struct statement *statement,
                       struct node_keyspace *keyspace)
{
    for (struct node_table *table = keyspace->tables; table != NULL; table = table->next) {
        for (struct node_index **at = &table->indexes; *at != NULL; at = &(*at)->next) {
            if (!slice_equal((*at)->name, statement->name))
                continue;
            struct node_column *column = node_column_find(table, (*at)->column);
            *at = (*at)->next;
            if (column != NULL)
                column->indexed = false;
            for (const struct node_index *index = table->indexes; column != NULL && index != NULL;
                 index = index->next)
                column->indexed = column->indexed || slice_equal(index->column, column->name);
            node_system_write_table(query->engine, table, query->now_us);
            node_schema_changed(query, "UPDATED", "TABLE", keyspace->name, table->name);
            return true;
        }
    }
    if (statement->if_exists) {
        node_put_void(query->body);
        return true;
    }
    return node_query_fail(query, ERROR_INVALID, "Index '%.*s.%.*s' doesn't exist'",
                           SLICE_ARG(keyspace->name), SLICE_ARG(statement->name));
}

bool node_run_table_schema(struct query *query, struct statement *statement,
                           struct node_keyspace *keyspace)
{
    if (statement->kind == STATEMENT_CREATE_TABLE)
        return create_table(query, statement, keyspace);
    if (statement->kind == STATEMENT_DROP_INDEX)
        return drop_index(query, statement, keyspace);
    cqlring_bytes name = statement->kind == STATEMENT_CREATE_INDEX ? statement->index_table
                                                                   : statement->name;
    struct node_table *table = node_table_find(keyspace, name);
    if (table == NULL) {
        if (statement->if_exists) {
            node_put_void(query->body);
            return true;
        }
        return node_query_fail(query, ERROR_INVALID, "Table '%.*s.%.*s' doesn't exist",
                               SLICE_ARG(keyspace->name), SLICE_ARG(name));
    }
    bool for_view = statement->kind == STATEMENT_DROP_VIEW || statement->kind == STATEMENT_ALTER_VIEW;
    if (table->is_view != for_view)
        return node_query_fail(query, ERROR_INVALID, "'%.*s' is %s", SLICE_ARG(name),
                               table->is_view ? "a materialized view" : "not a materialized view");
    switch (statement->kind) {
    case STATEMENT_ALTER_VIEW:
    case STATEMENT_ALTER_TABLE: return alter_table(query, statement, table);
    case STATEMENT_DROP_VIEW:
    case STATEMENT_DROP_TABLE: return drop_table(query, keyspace, table);
    case STATEMENT_CREATE_INDEX: return create_index(query, statement, table);
    default: return node_query_fail(query, ERROR_INVALID, "This statement is not known here");
    }
}
