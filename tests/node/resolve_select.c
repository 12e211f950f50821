/* SPDX-License-Identifier: Apache-2.0 */
/* SELECT: selectors to outputs, restrictions to a plan. */
#include "tests/node/engine_private.h"

#include "tests/node/functions.h"

static bool resolve_selector(struct query *query, struct statement *root,
                             struct statement *statement, struct selector *selector,
                             struct node_arena *arena);

static bool resolve_function(struct query *query, struct statement *root,
                             struct statement *statement, struct selector *selector,
                             struct node_arena *arena)
{
    const struct node_type *first = NULL;
    for (struct selector *argument = selector->arguments; argument != NULL;
         argument = argument->next) {
        if (argument->kind == SELECT_TERM)
            continue;
        if (!resolve_selector(query, root, statement, argument, arena))
            return false;
        if (argument == selector->arguments)
            first = argument->type;
    }
    const struct node_type *wanted = NULL;
    uint16_t number;
    const struct node_type *result = node_function_lookup(selector->name, selector->argument_count,
                                                          first, &wanted, &number);
    if (result == NULL)
        return node_query_fail(query, ERROR_INVALID, "Unknown function '%.*s'",
                               SLICE_ARG(selector->name));
    if (selector->arguments != NULL && selector->arguments->kind == SELECT_TERM) {
        selector->arguments->type = wanted;
        if (!node_term_resolve(query, root, selector->arguments->term, wanted, statement->table,
                               selector->name, NULL, arena))
            return false;
    }
    selector->function = number;
    selector->aggregate = number >= FUNCTION_MIN ? number : 0;
    selector->type = result;
    if (number >= FUNCTION_SUM && (first == NULL || !node_type_is_number(first)))
        return node_query_fail(query, ERROR_INVALID,
                               "Invalid call to function %.*s, none of its type signatures match",
                               SLICE_ARG(selector->name));
    return true;
}

static bool resolve_selector(struct query *query, struct statement *root,
                             struct statement *statement, struct selector *selector,
                             struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    if (selector->kind == SELECT_COLUMN || selector->kind == SELECT_FIELD ||
        selector->kind == SELECT_ELEMENT) {
        struct name_list name = {.name = selector->name};
        if (!node_resolve_name(query, table, &name))
            return false;
        selector->column = name.column;
        selector->type = name.column->type;
    }
    switch (selector->kind) {
    case SELECT_COLUMN: return true;
    case SELECT_COUNT:
        selector->type = &node_type_bigint;
        selector->aggregate = FUNCTION_NONE;
        for (struct selector *argument = selector->arguments; argument != NULL;
             argument = argument->next) {
            if (argument->kind != SELECT_TERM &&
                !resolve_selector(query, root, statement, argument, arena))
                return false;
        }
        return true;
    case SELECT_WRITETIME:
    case SELECT_TTL:
        if (selector->argument_count != 1 || selector->arguments->kind != SELECT_COLUMN ||
            !resolve_selector(query, root, statement, selector->arguments, arena))
            return query->code >= 0
                       ? false
                       : node_query_fail(query, ERROR_INVALID, "writetime and ttl take one column");
        selector->column = selector->arguments->column;
        if (selector->column->kind == COLUMN_PARTITION ||
            selector->column->kind == COLUMN_CLUSTERING)
            return node_query_fail(query, ERROR_INVALID,
                                   "Cannot use selection function %s on PRIMARY KEY part %.*s",
                                   selector->kind == SELECT_TTL ? "ttl" : "writeTime",
                                   SLICE_ARG(selector->column->name));
        selector->type = selector->kind == SELECT_TTL ? &node_type_int : &node_type_bigint;
        return true;
    case SELECT_TOKEN:
        for (struct selector *argument = selector->arguments; argument != NULL;
             argument = argument->next) {
            if (argument->kind != SELECT_COLUMN ||
                !resolve_selector(query, root, statement, argument, arena))
                return query->code >= 0
                           ? false
                           : node_query_fail(query, ERROR_INVALID,
                                             "token takes the partition key's columns");
        }
        selector->type = &node_type_bigint;
        return true;
    case SELECT_FUNCTION: return resolve_function(query, root, statement, selector, arena);
    case SELECT_CAST:
        if (!resolve_selector(query, root, statement, selector->arguments, arena))
            return false;
        selector->type = node_type_resolve(query, selector->cast, table->keyspace, arena, false);
        return selector->type != NULL;
    case SELECT_FIELD:
        for (uint16_t i = 0; selector->type->kind == TYPE_UDT && i < selector->type->udt->count;
             ++i) {
            if (slice_equal(selector->type->udt->names[i], selector->field)) {
                selector->function = i;
                selector->type = selector->type->udt->types[i];
                return true;
            }
        }
        return node_query_fail(query, ERROR_INVALID, "%.*s of type has no field %.*s",
                               SLICE_ARG(selector->name), SLICE_ARG(selector->field));
    case SELECT_ELEMENT: {
        const struct node_type *type = selector->type;
        if (type->kind != TYPE_MAP && type->kind != TYPE_SET)
            return node_query_fail(query, ERROR_INVALID,
                                   "Invalid element selection: %.*s is not a map or a set",
                                   SLICE_ARG(selector->name));
        selector->type = type->subs[type->kind == TYPE_MAP ? 1 : 0];
        return node_term_resolve(query, root, selector->term, type->subs[0], table,
                                 node_label_of(arena, "key(", selector->name, ")"), NULL, arena);
    }
    case SELECT_TERM:
        return node_query_fail(query, ERROR_INVALID,
                               "Literals are only understood as arguments of functions");
    }
    return false;
}

/* The name a result column gets without an alias, as Cassandra prints selections. */
static void print_selector(const struct selector *selector, struct out *out)
{
    switch (selector->kind) {
    case SELECT_COLUMN: out_slice(out, selector->name); return;
    case SELECT_FIELD:
        node_out_printf(out, "%.*s.%.*s", SLICE_ARG(selector->name), SLICE_ARG(selector->field));
        return;
    case SELECT_ELEMENT:
        node_out_printf(out, "%.*s[%.*s]", SLICE_ARG(selector->name),
                        SLICE_ARG(selector->term->text));
        return;
    case SELECT_TERM: out_slice(out, selector->term->text); return;
    case SELECT_COUNT:
        if (selector->arguments == NULL || selector->arguments->kind == SELECT_TERM) {
            node_out_printf(out, "count");
            return;
        }
        node_out_printf(out, "system.count(");
        break;
    case SELECT_WRITETIME:
    case SELECT_TTL: node_out_printf(out, "%.*s(", SLICE_ARG(selector->name)); break;
    case SELECT_CAST:
        node_out_printf(out, "cast(");
        print_selector(selector->arguments, out);
        node_out_printf(out, " as ");
        node_type_print(selector->type, true, out);
        node_out_printf(out, ")");
        return;
    case SELECT_TOKEN:
    case SELECT_FUNCTION: node_out_printf(out, "system.%.*s(", SLICE_ARG(selector->name)); break;
    }
    for (const struct selector *argument = selector->arguments; argument != NULL;
         argument = argument->next) {
        if (argument != selector->arguments)
            node_out_printf(out, ", ");
        print_selector(argument, out);
    }
    node_out_printf(out, ")");
}

static bool resolve_outputs(struct query *query, struct statement *root,
                            struct statement *statement, struct select_plan *plan,
                            struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    if (statement->selectors == NULL) {
        plan->outputs = node_arena_alloc(arena, table->column_count * sizeof *plan->outputs);
        for (struct node_column *column = table->columns; column != NULL; column = column->next) {
            struct selector *selector = node_arena_alloc(arena, sizeof *selector);
            *selector = (struct selector){.kind = SELECT_COLUMN,
                                          .name = column->name,
                                          .alias = SLICE_NULL,
                                          .column = column,
                                          .type = column->type};
            plan->outputs[plan->output_count++] = (struct output){
                .label = column->name, .type = column->type, .selector = selector};
        }
        return true;
    }
    plan->outputs = node_arena_alloc(arena, statement->selector_count * sizeof *plan->outputs);
    for (struct selector *selector = statement->selectors; selector != NULL;
         selector = selector->next) {
        if (!resolve_selector(query, root, statement, selector, arena))
            return false;
        plan->aggregate = plan->aggregate || selector->kind == SELECT_COUNT ||
                          selector->aggregate != 0;
        if (selector->alias.data != NULL) {
            selector->label = selector->alias;
        } else {
            struct out out = {0};
            print_selector(selector, &out);
            selector->label = node_arena_copy(arena, out_view(&out, 0));
            node_out_fini(&out);
        }
        plan->outputs[plan->output_count++] = (struct output){
            .label = selector->label, .type = selector->type, .selector = selector};
    }
    return true;
}

static bool resolve_order(struct query *query, struct statement *statement,
                          struct select_plan *plan)
{
    if (statement->order_by == NULL)
        return true;
    const struct node_table *table = statement->table;
    if (!plan->key.partition_whole)
        return node_query_fail(
            query, ERROR_INVALID,
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.");
    uint16_t index = 0;
    for (struct name_list *name = statement->order_by; name != NULL; name = name->next, ++index) {
        if (!node_resolve_name(query, table, name))
            return false;
        /* Columns fixed by an equality may be skipped. */
        while (index < table->shape.clustering_count &&
               table->clustering_key[index] != name->column && index < plan->key.clustering_count)
            ++index;
        if (index >= table->shape.clustering_count || table->clustering_key[index] != name->column)
            return node_query_fail(
                query, ERROR_INVALID,
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY");
        bool reversed = name->descending != name->column->reversed;
        if (name != statement->order_by && reversed != plan->reversed)
            return node_query_fail(query, ERROR_INVALID, "Unsupported order by relation");
        plan->reversed = reversed;
    }
    return true;
}

/* Relations that no key restriction took: filters, which the statement must allow. */
static bool resolve_filters(struct query *query, struct statement *statement,
                            struct select_plan *plan)
{
    const struct node_table *table = statement->table;
    bool indexed = false, needs_allowance = false;
    for (struct relation *relation = statement->where; relation != NULL;
         relation = relation->next) {
        if (relation->used)
            continue;
        if (plan->filter_count == sizeof plan->filters / sizeof plan->filters[0])
            return node_query_fail(query, ERROR_INVALID, "Too many restrictions");
        plan->filters[plan->filter_count++] = relation;
        if (relation->columns->column->indexed)
            indexed = true;
        else if (!(relation->multi && plan->key.partition_whole))
            needs_allowance = true;
    }
    if (needs_allowance && !indexed && !statement->allow_filtering && !table->keyspace->is_virtual)
        return node_query_fail(
            query, ERROR_INVALID,
            "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query "
            "despite the performance unpredictability, use ALLOW FILTERING");
    return true;
}

static bool resolve_group(struct query *query, struct statement *statement,
                          struct select_plan *plan, struct node_arena *arena)
{
    if (statement->group_by == NULL)
        return true;
    const struct node_table *table = statement->table;
    plan->group_by = node_arena_alloc(arena,
                                      (table->partition_count + table->shape.clustering_count) *
                                          sizeof(struct node_column *));
    for (struct name_list *name = statement->group_by; name != NULL; name = name->next) {
        if (!node_resolve_name(query, table, name))
            return false;
        bool key = name->column->kind == COLUMN_PARTITION ||
                   name->column->kind == COLUMN_CLUSTERING;
        if (!key || plan->group_count >= table->partition_count + table->shape.clustering_count)
            return node_query_fail(
                query, ERROR_INVALID,
                "Group by is currently only supported on the columns of the PRIMARY KEY, got %.*s",
                SLICE_ARG(name->name));
        plan->group_by[plan->group_count++] = name->column;
    }
    plan->aggregate = true;
    return true;
}

bool node_resolve_select(struct query *query, struct statement *root, struct statement *statement,
                         struct node_arena *arena)
{
    statement->table = node_resolve_table(query, statement->keyspace, statement->name);
    if (statement->table == NULL)
        return false;
    struct select_plan *plan = node_arena_alloc(arena, sizeof *plan);
    if (!resolve_outputs(query, root, statement, plan, arena) ||
        !node_resolve_key(query, root, statement, &plan->key, arena) ||
        !resolve_order(query, statement, plan) || !resolve_filters(query, statement, plan) ||
        !resolve_group(query, statement, plan, arena))
        return false;
    for (uint32_t i = 0; statement->distinct && i < plan->output_count; ++i) {
        const struct node_column *column = plan->outputs[i].selector->column;
        if (column != NULL && column->kind != COLUMN_PARTITION && column->kind != COLUMN_STATIC)
            return node_query_fail(
                query, ERROR_INVALID,
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not %.*s)",
                SLICE_ARG(column->name));
    }
    plan->statics_only = statement->distinct;
    statement->plan = plan;
    return node_term_resolve(query, root, statement->partition_limit, &node_type_int,
                             statement->table, slice_text("[per_partition_limit]"), NULL, arena) &&
           node_term_resolve(query, root, statement->limit, &node_type_int, statement->table,
                             slice_text("[limit]"), NULL, arena);
}
