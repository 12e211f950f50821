/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE and DROP of functions, aggregates and materialized views: taken note of and shown, never
   run; a view has no rows. */
#include "tests/node/engine_private.h"

enum { TEXT_MAX = 32 << 10 };

/* --- functions and aggregates ----------------------------------------------------------------- */

static void print_type(const struct node_type *type, struct out *out)
{
    node_type_print(type, true, out);
}

static bool same_arguments(const struct node_function *function, const struct node_function *other)
{
    if (function->argument_count != other->argument_count)
        return false;
    for (uint16_t i = 0; i < function->argument_count; ++i) {
        if (!slice_equal(function->argument_types[i], other->argument_types[i]))
            return false;
    }
    return true;
}

/* The types as texts, in the function's arena. */
static bool take_arguments(struct query *query, struct node_keyspace *keyspace,
                           const struct statement *statement, struct node_function *function)
{
    for (const struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next)
        ++function->argument_count;
    function->argument_names = node_arena_alloc(
        &function->arena, (function->argument_count + 1u) * sizeof(cqlring_bytes));
    function->argument_types = node_arena_alloc(
        &function->arena, (function->argument_count + 1u) * sizeof(cqlring_bytes));
    uint16_t index = 0;
    for (const struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next, ++index) {
        const struct node_type *type = node_type_resolve(query, ast->type, keyspace,
                                                         &function->arena, true);
        if (type == NULL)
            return false;
        struct out text = {0};
        print_type(type, &text);
        function->argument_names[index] = node_arena_copy(&function->arena, ast->name);
        function->argument_types[index] = node_arena_copy(&function->arena, out_view(&text, 0));
        node_out_fini(&text);
    }
    return true;
}

static bool take_type(struct query *query, struct node_keyspace *keyspace,
                      const struct type_ast *ast, struct node_function *function,
                      cqlring_bytes *out)
{
    const struct node_type *type = node_type_resolve(query, ast, keyspace, &function->arena, true);
    if (type == NULL)
        return false;
    struct out text = {0};
    print_type(type, &text);
    *out = node_arena_copy(&function->arena, out_view(&text, 0));
    node_out_fini(&text);
    return true;
}

static void function_free(struct node_function *function)
{
    struct node_arena arena = function->arena;
    node_arena_fini(&arena);
}

void node_functions_free(struct node_keyspace *keyspace)
{
    for (struct node_function *at = keyspace->functions, *next; at != NULL; at = next) {
        next = at->next;
        function_free(at);
    }
    keyspace->functions = NULL;
}

static void put_texts(struct out *out, const cqlring_bytes *texts, uint16_t count)
{
    node_out_printf(out, "[");
    for (uint16_t i = 0; i < count; ++i) {
        node_out_printf(out, "%s", i > 0 ? ", " : "");
        node_put_quoted(out, texts[i]);
    }
    node_out_printf(out, "]");
}

static void write_function(struct query *query, const struct node_keyspace *keyspace,
                           const struct node_function *function)
{
    struct out out = {0};
    node_out_printf(&out, "INSERT INTO system_schema.%s (keyspace_name, %s, argument_types, ",
                    function->is_aggregate ? "aggregates" : "functions",
                    function->is_aggregate ? "aggregate_name" : "function_name");
    node_out_printf(&out, "%s) VALUES (",
                    function->is_aggregate
                        ? "return_type, state_func, state_type, final_func, initcond"
                        : "argument_names, return_type, language, body, called_on_null_input");
    node_put_quoted(&out, keyspace->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, function->name);
    node_out_printf(&out, ", ");
    put_texts(&out, function->argument_types, function->argument_count);
    node_out_printf(&out, ", ");
    if (!function->is_aggregate) {
        put_texts(&out, function->argument_names, function->argument_count);
        node_out_printf(&out, ", ");
    }
    const cqlring_bytes parts[] = {function->return_type,
                                   function->is_aggregate ? function->state_function
                                                          : function->language,
                                   function->is_aggregate ? function->state_type : function->body,
                                   function->final_function, function->initial};
    for (int i = 0; i < (function->is_aggregate ? 5 : 3); ++i) {
        node_out_printf(&out, "%s", i > 0 ? ", " : "");
        if (parts[i].size > 0)
            node_put_quoted(&out, parts[i]);
        else
            node_out_printf(&out, "null");
    }
    if (!function->is_aggregate)
        node_out_printf(&out, ", %s", function->called_on_null ? "true" : "false");
    node_out_printf(&out, ")");
    node_system_run(query->engine, query->now_us, &out);
    node_out_fini(&out);
}

static void erase_function(struct query *query, const struct node_keyspace *keyspace,
                           const struct node_function *function)
{
    struct out out = {0};
    node_out_printf(&out, "DELETE FROM system_schema.%s WHERE keyspace_name = ",
                    function->is_aggregate ? "aggregates" : "functions");
    node_put_quoted(&out, keyspace->name);
    node_out_printf(&out, " AND %s = ",
                    function->is_aggregate ? "aggregate_name" : "function_name");
    node_put_quoted(&out, function->name);
    node_out_printf(&out, " AND argument_types = ");
    put_texts(&out, function->argument_types, function->argument_count);
    node_system_run(query->engine, query->now_us, &out);
    node_out_fini(&out);
}

static void function_changed(struct query *query, const char *change,
                             const struct node_keyspace *keyspace,
                             const struct node_function *function)
{
    struct out arguments = {0};
    out_u16(&arguments, function->argument_count);
    for (uint16_t i = 0; i < function->argument_count; ++i)
        out_string(&arguments, function->argument_types[i]);
    node_schema_changed_with(query, change, function->is_aggregate ? "AGGREGATE" : "FUNCTION",
                             keyspace->name, function->name, out_view(&arguments, 0));
    node_out_fini(&arguments);
}

static bool create_function(struct query *query, const struct statement *statement,
                            struct node_keyspace *keyspace)
{
    struct node_arena arena = {0};
    struct node_function *function = node_arena_alloc(&arena, sizeof *function);
    function->arena = arena;
    const struct function_ast *ast = statement->function;
    function->is_aggregate = statement->kind == STATEMENT_CREATE_AGGREGATE;
    function->name = node_arena_copy(&function->arena, statement->name);
    function->called_on_null = ast->called_on_null;
    function->language = node_arena_copy(&function->arena, ast->language);
    function->body = node_arena_copy(&function->arena, ast->body);
    function->state_function = node_arena_copy(&function->arena, ast->state_function);
    function->final_function = node_arena_copy(&function->arena, ast->final_function);
    function->initial = node_arena_copy(&function->arena, ast->initial);
    bool fine = take_arguments(query, keyspace, statement, function);
    if (fine && ast->body.size + ast->initial.size > TEXT_MAX)
        fine = node_query_fail(query, ERROR_INVALID, "The function's text is too long");
    if (fine && function->is_aggregate) {
        fine = take_type(query, keyspace, ast->state_type, function, &function->state_type);
        function->return_type = function->state_type;
        for (const struct node_function *other = keyspace->functions;
             fine && other != NULL; other = other->next) {
            if (!other->is_aggregate && function->final_function.size > 0 &&
                slice_equal(other->name, function->final_function))
                function->return_type = node_arena_copy(&function->arena, other->return_type);
        }
    } else if (fine) {
        fine = take_type(query, keyspace, ast->returns, function, &function->return_type);
    }
    struct node_function **at = &keyspace->functions;
    while (fine && *at != NULL &&
           !(slice_equal((*at)->name, function->name) && same_arguments(*at, function)))
        at = &(*at)->next;
    bool exists = fine && *at != NULL;
    if (exists && statement->if_not_exists) {
        function_free(function);
        node_put_void(query->body);
        return true;
    }
    if (exists && !ast->or_replace)
        fine = node_query_fail(query, ERROR_INVALID, "Function '%.*s' already exists",
                               SLICE_ARG(statement->name));
    if (!fine) {
        function_free(function);
        return false;
    }
    if (exists) {
        struct node_function *old = *at;
        erase_function(query, keyspace, old);
        function->next = old->next;
        function_free(old);
    }
    *at = function;
    write_function(query, keyspace, function);
    function_changed(query, exists ? "UPDATED" : "CREATED", keyspace, function);
    return true;
}

static bool drop_function(struct query *query, const struct statement *statement,
                          struct node_keyspace *keyspace)
{
    bool is_aggregate = statement->kind == STATEMENT_DROP_AGGREGATE;
    struct node_function wanted = {.arena = {0}};
    if (statement->function->has_arguments &&
        !take_arguments(query, keyspace, statement, &wanted)) {
        node_arena_fini(&wanted.arena);
        return false;
    }
    struct node_function **at = &keyspace->functions;
    while (*at != NULL && !((*at)->is_aggregate == is_aggregate &&
                            slice_equal((*at)->name, statement->name) &&
                            (!statement->function->has_arguments || same_arguments(*at, &wanted))))
        at = &(*at)->next;
    node_arena_fini(&wanted.arena);
    if (*at == NULL) {
        if (!statement->if_exists)
            return node_query_fail(query, ERROR_INVALID, "Function '%.*s' doesn't exist",
                                   SLICE_ARG(statement->name));
        node_put_void(query->body);
        return true;
    }
    struct node_function *function = *at;
    *at = function->next;
    erase_function(query, keyspace, function);
    function_changed(query, "DROPPED", keyspace, function);
    function_free(function);
    return true;
}

/* --- materialized views ----------------------------------------------------------------------- */

static bool view_key(struct query *query, const struct node_table *base, struct node_table *view,
                     const struct name_list *names, enum column_kind kind)
{
    uint16_t count = 0;
    for (const struct name_list *name = names; name != NULL; name = name->next)
        ++count;
    struct node_column **key = node_arena_alloc(&view->arena, (count + 1u) * sizeof *key);
    uint16_t index = 0;
    for (const struct name_list *name = names; name != NULL; name = name->next, ++index) {
        const struct node_column *column = node_column_find(base, name->name);
        if (column == NULL || node_column_find(view, name->name) != NULL)
            return node_query_fail(query, ERROR_INVALID,
                                   "Unknown column '%.*s' referenced in PRIMARY KEY",
                                   SLICE_ARG(name->name));
        key[index] = node_table_column(view, column->name, column->type, kind, index);
    }
    if (kind == COLUMN_PARTITION) {
        view->partition_key = key;
        view->partition_count = count;
    } else {
        view->clustering_key = key;
        view->shape.clustering_count = count;
    }
    return true;
}

static bool view_columns(struct query *query, const struct statement *statement,
                         const struct node_table *base, struct node_table *view)
{
    if (!view_key(query, base, view, statement->partition_key, COLUMN_PARTITION) ||
        !view_key(query, base, view, statement->clustering_key, COLUMN_CLUSTERING))
        return false;
    for (const struct column_ast *ast = statement->columns; ast != NULL; ast = ast->next) {
        const struct node_column *column = node_column_find(base, ast->name);
        if (column == NULL)
            return node_query_fail(query, ERROR_INVALID, "Undefined column name %.*s",
                                   SLICE_ARG(ast->name));
        if (node_column_find(view, ast->name) == NULL)
            node_table_column(view, column->name, column->type, COLUMN_REGULAR, 0);
    }
    for (const struct node_column *column = base->columns;
         statement->columns == NULL && column != NULL; column = column->next) {
        if (node_column_find(view, column->name) == NULL)
            node_table_column(view, column->name, column->type, COLUMN_REGULAR, 0);
    }
    for (const struct node_column *column = base->columns; column != NULL; column = column->next) {
        if (column->kind <= COLUMN_CLUSTERING) {
            const struct node_column *own = node_column_find(view, column->name);
            if (own == NULL || own->kind > COLUMN_CLUSTERING)
                return node_query_fail(query, ERROR_INVALID,
                                       "Cannot create Materialized View %.*s without primary key "
                                       "columns from base %.*s",
                                       SLICE_ARG(view->name), SLICE_ARG(base->name));
        }
    }
    return node_table_clustering_order(query, statement, view) &&
           node_table_options_apply(query, statement, view);
}

static bool create_view(struct query *query, const struct statement *statement,
                        struct node_keyspace *keyspace)
{
    struct node_table *base = node_table_find(keyspace, statement->index_table);
    if (base == NULL || base->is_view)
        return node_query_fail(query, ERROR_INVALID, "Base table '%.*s' doesn't exist",
                               SLICE_ARG(statement->index_table));
    if (node_table_find(keyspace, statement->name) != NULL) {
        if (statement->if_not_exists) {
            node_put_void(query->body);
            return true;
        }
        return node_query_fail(query, ERROR_INVALID, "A table or view named '%.*s' already exists",
                               SLICE_ARG(statement->name));
    }
    if (statement->view_where.size > TEXT_MAX || statement->name.size > 48)
        return node_query_fail(query, ERROR_INVALID, "The view's name or condition is too long");
    struct node_table *view = node_table_make(query->engine, keyspace, statement->name);
    view->is_view = true;
    view->base = base->name;
    memcpy(view->base_id, base->id, sizeof view->base_id);
    view->includes_all = statement->columns == NULL;
    view->where = node_arena_copy(&view->arena, statement->view_where);
    if (!view_columns(query, statement, base, view)) {
        struct node_arena arena = view->arena;
        node_arena_fini(&arena);
        return false;
    }
    node_table_add(query, view, "CREATED");
    return true;
}

bool node_run_function_schema(struct query *query, const struct statement *statement,
                              struct node_keyspace *keyspace)
{
    switch (statement->kind) {
    case STATEMENT_CREATE_FUNCTION:
    case STATEMENT_CREATE_AGGREGATE: return create_function(query, statement, keyspace);
    case STATEMENT_DROP_FUNCTION:
    case STATEMENT_DROP_AGGREGATE: return drop_function(query, statement, keyspace);
    default: return create_view(query, statement, keyspace);
    }
}
