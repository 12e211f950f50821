/* SPDX-License-Identifier: Apache-2.0 */
/* Names to columns, bind markers to types, restrictions to plans. */
#include "tests/node/engine_private.h"

#include "tests/node/functions.h"

#include <stdio.h>

struct node_table *node_resolve_table(struct query *query, cqlring_bytes keyspace, cqlring_bytes name)
{
    cqlring_bytes home = keyspace.size > 0 ? keyspace : query->keyspace;
    if (home.size <= 0) {
        (void)node_query_fail(query, ERROR_INVALID, "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename");
        return NULL;
    }
    struct node_keyspace *found = node_keyspace_find(query->engine, home);
    if (found == NULL) {
        (void)node_query_fail(query, ERROR_INVALID, "keyspace %.*s does not exist", SLICE_ARG(home));
        return NULL;
    }
    struct node_table *table = node_table_find(found, name);
    if (table == NULL)
        (void)node_query_fail(query, ERROR_INVALID, "table %.*s does not exist", SLICE_ARG(name));
    return table;
}

static bool resolve_name(struct query *query, const struct node_table *table, struct name_list *name)
{
    name->column = node_column_find(table, name->name);
    return name->column != NULL ||
           node_query_fail(query, ERROR_INVALID, "Undefined column name %.*s in table %.*s.%.*s", SLICE_ARG(name->name), SLICE_ARG(table->keyspace->name), SLICE_ARG(table->name));
}

static cqlring_bytes label_of(struct node_arena *arena, const char *before, cqlring_bytes name, const char *after)
{
    struct out out = {0};
    out_raw(&out, before, strlen(before));
    out_slice(&out, name);
    out_raw(&out, after, strlen(after));
    cqlring_bytes copy = node_arena_copy(arena, out_view(&out, 0));
    node_out_fini(&out);
    return copy;
}

static const struct node_type *list_type(struct node_arena *arena, const struct node_type *element)
{
    struct node_type *type = node_arena_alloc(arena, sizeof *type);
    type->kind = TYPE_LIST;
    type->frozen = true;
    type->count = 1;
    type->subs = node_arena_alloc(arena, sizeof *type->subs);
    type->subs[0] = element;
    return type;
}

static const struct node_type *tuple_type(struct node_arena *arena, const struct name_list *columns)
{
    struct node_type *type = node_arena_alloc(arena, sizeof *type);
    type->kind = TYPE_TUPLE;
    type->frozen = true;
    for (const struct name_list *name = columns; name != NULL; name = name->next)
        ++type->count;
    type->subs = node_arena_alloc(arena, type->count * sizeof *type->subs);
    uint16_t index = 0;
    for (const struct name_list *name = columns; name != NULL; name = name->next)
        type->subs[index++] = name->column->type;
    return type;
}

/* What the right side of the relation has to be. NULL: failed. */
static const struct node_type *relation_type(struct query *query, const struct relation *relation, struct node_arena *arena)
{
    if (relation->token)
        return &node_type_bigint;
    if (relation->multi)
        return tuple_type(arena, relation->columns);
    const struct node_type *type = relation->columns->column->type;
    cqlring_bytes name = relation->columns->name;
    if (relation->field.data != NULL) {
        for (uint16_t i = 0; type->kind == TYPE_UDT && i < type->udt->count; ++i) {
            if (slice_equal(type->udt->names[i], relation->field))
                return type->udt->types[i];
        }
        (void)node_query_fail(query, ERROR_INVALID, "Unknown field '%.*s' of column %.*s", SLICE_ARG(relation->field), SLICE_ARG(name));
        return NULL;
    }
    if (relation->element != NULL || relation->op == OP_CONTAINS || relation->op == OP_CONTAINS_KEY) {
        bool fits = relation->op == OP_CONTAINS_KEY ? type->kind == TYPE_MAP : type->kind == TYPE_MAP || type->kind == TYPE_LIST || type->kind == TYPE_SET;
        if (!fits) {
            (void)node_query_fail(query, ERROR_INVALID, "Cannot use CONTAINS or an element on column %.*s", SLICE_ARG(name));
            return NULL;
        }
        return type->subs[type->kind == TYPE_MAP && relation->op != OP_CONTAINS_KEY ? 1 : 0];
    }
    return type;
}

bool node_resolve_relation(struct query *query, struct statement *root, struct statement *statement, struct relation *relation, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    relation->used = false;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next) {
        if (!resolve_name(query, table, name))
            return false;
    }
    relation->type = relation_type(query, relation, arena);
    if (relation->type == NULL)
        return false;
    struct node_column *column = relation->token || relation->multi ? NULL : relation->columns->column;
    cqlring_bytes label = relation->token ? slice_text("partition key token") : relation->columns->name;
    if (relation->op == OP_CONTAINS || relation->op == OP_CONTAINS_KEY)
        label = label_of(arena, relation->op == OP_CONTAINS ? "value(" : "key(", label, ")");
    if (relation->element != NULL) {
        const struct node_type *type = column->type;
        const struct node_type *key = type->kind == TYPE_LIST ? &node_type_int : type->subs[0];
        if (!node_term_resolve(query, root, relation->element, key, table, label_of(arena, type->kind == TYPE_LIST ? "idx(" : "key(", label, ")"), NULL, arena))
            return false;
        label = label_of(arena, "value(", label, ")");
    }
    if (relation->op == OP_IN && !relation->value_list) {
        if (relation->value->kind != TERM_BIND)
            return node_query_fail(query, ERROR_INVALID, "Invalid right side of IN on %.*s", SLICE_ARG(label));
        return node_term_resolve(query, root, relation->value, list_type(arena, relation->type), table, label_of(arena, "in(", label, ")"), NULL, arena);
    }
    bool whole = relation->op == OP_EQ && relation->element == NULL && relation->field.data == NULL;
    if (!node_term_resolve(query, root, relation->value, relation->type, table, label, whole ? column : NULL, arena))
        return false;
    for (struct term *term = relation->values; term != NULL; term = term->next) {
        if (!node_term_resolve(query, root, term, relation->type, table, label, NULL, arena))
            return false;
    }
    return true;
}

/* --- keys ------------------------------------------------------------------------------------------------------------- */

static bool is_slice(enum relation_operator op)
{
    return op == OP_LT || op == OP_LE || op == OP_GT || op == OP_GE;
}

static bool plan_token(struct query *query, const struct node_table *table, struct key_plan *key, struct relation *relation)
{
    uint16_t index = 0;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next, ++index) {
        if (index >= table->partition_count || name->column != table->partition_key[index])
            return node_query_fail(query, ERROR_INVALID, "The token function arguments must be in the partition key order");
    }
    if (index != table->partition_count)
        return node_query_fail(query, ERROR_INVALID, "The token() function must be applied to all partition key components or none of them");
    if (relation->op == OP_EQ)
        key->token_equal = relation;
    else if (relation->op == OP_GT || relation->op == OP_GE)
        key->token_lower = relation;
    else if (relation->op == OP_LT || relation->op == OP_LE)
        key->token_upper = relation;
    else
        return node_query_fail(query, ERROR_INVALID, "Only EQ and inequalities are supported on the token of the partition key");
    relation->used = true;
    return true;
}

/* (c1, c2) > (…), from the first clustering column on. */
static bool plan_multi(struct query *query, const struct node_table *table, struct key_plan *key, struct relation *relation)
{
    uint16_t index = 0;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next, ++index) {
        if (name->column->kind != COLUMN_CLUSTERING || name->column->position != index)
            return node_query_fail(query, ERROR_INVALID, "Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY KEY order.");
        if (index > 0 && name->column->reversed != table->clustering_key[0]->reversed)
            return node_query_fail(query, ERROR_INVALID, "Multi-column relations over mixed clustering orders are not supported here");
    }
    if (!is_slice(relation->op))
        return true; /* = and IN: checked row by row */
    bool lower = relation->op == OP_GT || relation->op == OP_GE;
    if (lower)
        key->lower = relation;
    else
        key->upper = relation;
    key->multi = true;
    relation->used = true;
    return true;
}

static bool plan_partition(struct query *query, struct key_plan *key, struct relation *relation)
{
    const struct node_column *column = relation->columns->column;
    if (relation->op != OP_EQ && relation->op != OP_IN)
        return true; /* a filter */
    if (key->partition[column->position] != NULL)
        return node_query_fail(query, ERROR_INVALID, "%.*s cannot be restricted by more than one relation if it includes an Equal", SLICE_ARG(column->name));
    key->partition[column->position] = relation;
    return true;
}

static bool plan_clustering(struct query *query, const struct node_table *table, struct statement *statement, struct key_plan *key)
{
    for (uint16_t i = 0; i < table->shape.clustering_count && !key->multi; ++i) {
        struct relation *equal = NULL, *lower = NULL, *upper = NULL;
        for (struct relation *relation = statement->where; relation != NULL; relation = relation->next) {
            if (relation->token || relation->multi || relation->element != NULL || relation->columns->column != table->clustering_key[i])
                continue;
            struct relation **place = relation->op == OP_EQ || relation->op == OP_IN   ? &equal
                                      : relation->op == OP_GT || relation->op == OP_GE ? &lower
                                      : relation->op == OP_LT || relation->op == OP_LE ? &upper
                                                                                       : NULL;
            if (place == NULL)
                continue;
            if (*place != NULL || (equal != NULL && place != &equal))
                return node_query_fail(query, ERROR_INVALID, "%.*s cannot be restricted by more than one relation if it includes an Equal",
                                       SLICE_ARG(relation->columns->name));
            *place = relation;
        }
        if (equal != NULL && (lower != NULL || upper != NULL))
            return node_query_fail(query, ERROR_INVALID, "%.*s cannot be restricted by more than one relation if it includes an Equal", SLICE_ARG(equal->columns->name));
        if (equal == NULL) {
            key->lower = lower;
            key->upper = upper;
            if (lower != NULL)
                lower->used = true;
            if (upper != NULL)
                upper->used = true;
            break;
        }
        key->clustering[key->clustering_count++] = equal;
        equal->used = true;
    }
    return true;
}

bool node_resolve_key(struct query *query, struct statement *root, struct statement *statement, struct key_plan *key, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    key->partition = node_arena_alloc(arena, table->partition_count * sizeof(struct relation *));
    key->clustering = node_arena_alloc(arena, (table->shape.clustering_count + 1u) * sizeof(struct relation *));
    for (struct relation *relation = statement->where; relation != NULL; relation = relation->next) {
        if (!node_resolve_relation(query, root, statement, relation, arena))
            return false;
        if (relation->op == OP_NE || relation->op == OP_LIKE)
            return node_query_fail(query, ERROR_INVALID, "Unsupported restriction on column %.*s", SLICE_ARG(relation->columns->name));
        bool fine = true;
        if (relation->token)
            fine = plan_token(query, table, key, relation);
        else if (relation->multi)
            fine = plan_multi(query, table, key, relation);
        else if (relation->columns->column->kind == COLUMN_PARTITION)
            fine = plan_partition(query, key, relation);
        if (!fine)
            return false;
    }
    key->partition_whole = true;
    key->partition_single = true;
    for (uint16_t i = 0; i < table->partition_count; ++i) {
        key->partition_whole = key->partition_whole && key->partition[i] != NULL;
        key->partition_single = key->partition_single && key->partition[i] != NULL && key->partition[i]->op == OP_EQ;
    }
    for (uint16_t i = 0; key->partition_whole && i < table->partition_count; ++i)
        key->partition[i]->used = true;
    if (!key->partition_whole) {
        key->multi = false;
        key->lower = key->upper = NULL;
        return true;
    }
    return plan_clustering(query, table, statement, key);
}

/* --- SELECT ----------------------------------------------------------------------------------------------------------- */

static bool resolve_selector(struct query *query, struct statement *root, struct statement *statement, struct selector *selector, struct node_arena *arena);

static bool resolve_function(struct query *query, struct statement *root, struct statement *statement, struct selector *selector, struct node_arena *arena)
{
    const struct node_type *first = NULL;
    for (struct selector *argument = selector->arguments; argument != NULL; argument = argument->next) {
        if (argument->kind == SELECT_TERM)
            continue;
        if (!resolve_selector(query, root, statement, argument, arena))
            return false;
        if (argument == selector->arguments)
            first = argument->type;
    }
    const struct node_type *wanted = NULL;
    uint16_t number;
    const struct node_type *result = node_function_lookup(selector->name, selector->argument_count, first, &wanted, &number);
    if (result == NULL)
        return node_query_fail(query, ERROR_INVALID, "Unknown function '%.*s'", SLICE_ARG(selector->name));
    if (selector->arguments != NULL && selector->arguments->kind == SELECT_TERM) {
        selector->arguments->type = wanted;
        if (!node_term_resolve(query, root, selector->arguments->term, wanted, statement->table, selector->name, NULL, arena))
            return false;
    }
    selector->function = number;
    selector->aggregate = number >= FUNCTION_MIN ? number : 0;
    selector->type = result;
    if (first != NULL && number >= FUNCTION_SUM && (first->kind < TYPE_BIGINT || first->count > 0))
        return node_query_fail(query, ERROR_INVALID, "Invalid call to function %.*s", SLICE_ARG(selector->name));
    return true;
}

static bool resolve_selector(struct query *query, struct statement *root, struct statement *statement, struct selector *selector, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    if (selector->kind == SELECT_COLUMN || selector->kind == SELECT_FIELD || selector->kind == SELECT_ELEMENT) {
        struct name_list name = {.name = selector->name};
        if (!resolve_name(query, table, &name))
            return false;
        selector->column = name.column;
        selector->type = name.column->type;
    }
    switch (selector->kind) {
    case SELECT_COLUMN: return true;
    case SELECT_COUNT:
        selector->type = &node_type_bigint;
        selector->aggregate = FUNCTION_NONE;
        for (struct selector *argument = selector->arguments; argument != NULL; argument = argument->next) {
            if (argument->kind != SELECT_TERM && !resolve_selector(query, root, statement, argument, arena))
                return false;
        }
        return true;
    case SELECT_WRITETIME:
    case SELECT_TTL:
        if (selector->argument_count != 1 || selector->arguments->kind != SELECT_COLUMN || !resolve_selector(query, root, statement, selector->arguments, arena))
            return query->code >= 0 ? false : node_query_fail(query, ERROR_INVALID, "writetime and ttl take one column");
        selector->column = selector->arguments->column;
        if (selector->column->kind == COLUMN_PARTITION || selector->column->kind == COLUMN_CLUSTERING)
            return node_query_fail(query, ERROR_INVALID, "Cannot use selection function %s on PRIMARY KEY part %.*s", selector->kind == SELECT_TTL ? "ttl" : "writeTime",
                                   SLICE_ARG(selector->column->name));
        selector->type = selector->kind == SELECT_TTL ? &node_type_int : &node_type_bigint;
        return true;
    case SELECT_TOKEN:
        for (struct selector *argument = selector->arguments; argument != NULL; argument = argument->next) {
            if (argument->kind != SELECT_COLUMN || !resolve_selector(query, root, statement, argument, arena))
                return query->code >= 0 ? false : node_query_fail(query, ERROR_INVALID, "token takes the partition key's columns");
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
        for (uint16_t i = 0; selector->type->kind == TYPE_UDT && i < selector->type->udt->count; ++i) {
            if (slice_equal(selector->type->udt->names[i], selector->field)) {
                selector->function = i;
                selector->type = selector->type->udt->types[i];
                return true;
            }
        }
        return node_query_fail(query, ERROR_INVALID, "%.*s of type has no field %.*s", SLICE_ARG(selector->name), SLICE_ARG(selector->field));
    case SELECT_ELEMENT: {
        const struct node_type *type = selector->type;
        if (type->kind != TYPE_MAP && type->kind != TYPE_SET)
            return node_query_fail(query, ERROR_INVALID, "Invalid element selection: %.*s is not a map or a set", SLICE_ARG(selector->name));
        selector->type = type->subs[type->kind == TYPE_MAP ? 1 : 0];
        return node_term_resolve(query, root, selector->term, type->subs[0], table, label_of(arena, "key(", selector->name, ")"), NULL, arena);
    }
    case SELECT_TERM: return node_query_fail(query, ERROR_INVALID, "Literals are only understood as arguments of functions");
    }
    return false;
}

/* The name a result column gets without an alias, as Cassandra prints selections. */
static void print_selector(const struct selector *selector, struct out *out)
{
    switch (selector->kind) {
    case SELECT_COLUMN: out_slice(out, selector->name); return;
    case SELECT_FIELD: node_out_printf(out, "%.*s.%.*s", SLICE_ARG(selector->name), SLICE_ARG(selector->field)); return;
    case SELECT_ELEMENT: node_out_printf(out, "%.*s[%.*s]", SLICE_ARG(selector->name), SLICE_ARG(selector->term->text)); return;
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
    for (const struct selector *argument = selector->arguments; argument != NULL; argument = argument->next) {
        if (argument != selector->arguments)
            node_out_printf(out, ", ");
        print_selector(argument, out);
    }
    node_out_printf(out, ")");
}

static bool resolve_outputs(struct query *query, struct statement *root, struct statement *statement, struct select_plan *plan, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    if (statement->selectors == NULL) {
        plan->outputs = node_arena_alloc(arena, table->column_count * sizeof *plan->outputs);
        for (struct node_column *column = table->columns; column != NULL; column = column->next) {
            struct selector *selector = node_arena_alloc(arena, sizeof *selector);
            *selector = (struct selector){.kind = SELECT_COLUMN, .name = column->name, .alias = SLICE_NULL, .column = column, .type = column->type};
            plan->outputs[plan->output_count++] = (struct output){.label = column->name, .type = column->type, .selector = selector};
        }
        return true;
    }
    plan->outputs = node_arena_alloc(arena, statement->selector_count * sizeof *plan->outputs);
    for (struct selector *selector = statement->selectors; selector != NULL; selector = selector->next) {
        if (!resolve_selector(query, root, statement, selector, arena))
            return false;
        plan->aggregate = plan->aggregate || selector->kind == SELECT_COUNT || selector->aggregate != 0;
        if (selector->alias.data != NULL) {
            selector->label = selector->alias;
        } else {
            struct out out = {0};
            print_selector(selector, &out);
            selector->label = node_arena_copy(arena, out_view(&out, 0));
            node_out_fini(&out);
        }
        plan->outputs[plan->output_count++] = (struct output){.label = selector->label, .type = selector->type, .selector = selector};
    }
    return true;
}

static bool resolve_order(struct query *query, struct statement *statement, struct select_plan *plan)
{
    if (statement->order_by == NULL)
        return true;
    const struct node_table *table = statement->table;
    if (!plan->key.partition_whole)
        return node_query_fail(query, ERROR_INVALID, "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.");
    uint16_t index = 0;
    for (struct name_list *name = statement->order_by; name != NULL; name = name->next, ++index) {
        if (!resolve_name(query, table, name))
            return false;
        /* Columns fixed by an equality may be skipped. */
        while (index < table->shape.clustering_count && table->clustering_key[index] != name->column && index < plan->key.clustering_count)
            ++index;
        if (index >= table->shape.clustering_count || table->clustering_key[index] != name->column)
            return node_query_fail(query, ERROR_INVALID, "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY");
        bool reversed = name->descending != name->column->reversed;
        if (name != statement->order_by && reversed != plan->reversed)
            return node_query_fail(query, ERROR_INVALID, "Unsupported order by relation");
        plan->reversed = reversed;
    }
    return true;
}

/* Relations that no key restriction took: filters, which the statement must allow. */
static bool resolve_filters(struct query *query, struct statement *statement, struct select_plan *plan)
{
    const struct node_table *table = statement->table;
    bool indexed = false, needs_allowance = false;
    for (struct relation *relation = statement->where; relation != NULL; relation = relation->next) {
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
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query "
                               "despite the performance unpredictability, use ALLOW FILTERING");
    return true;
}

static bool resolve_group(struct query *query, struct statement *statement, struct select_plan *plan, struct node_arena *arena)
{
    if (statement->group_by == NULL)
        return true;
    const struct node_table *table = statement->table;
    plan->group_by = node_arena_alloc(arena, (table->partition_count + table->shape.clustering_count) * sizeof(struct node_column *));
    for (struct name_list *name = statement->group_by; name != NULL; name = name->next) {
        if (!resolve_name(query, table, name))
            return false;
        bool key = name->column->kind == COLUMN_PARTITION || name->column->kind == COLUMN_CLUSTERING;
        if (!key || plan->group_count >= table->partition_count + table->shape.clustering_count)
            return node_query_fail(query, ERROR_INVALID, "Group by is currently only supported on the columns of the PRIMARY KEY, got %.*s", SLICE_ARG(name->name));
        plan->group_by[plan->group_count++] = name->column;
    }
    plan->aggregate = true;
    return true;
}

bool node_resolve_select(struct query *query, struct statement *root, struct statement *statement, struct node_arena *arena)
{
    statement->table = node_resolve_table(query, statement->keyspace, statement->name);
    if (statement->table == NULL)
        return false;
    struct select_plan *plan = node_arena_alloc(arena, sizeof *plan);
    if (!resolve_outputs(query, root, statement, plan, arena) || !node_resolve_key(query, root, statement, &plan->key, arena) || !resolve_order(query, statement, plan) ||
        !resolve_filters(query, statement, plan) || !resolve_group(query, statement, plan, arena))
        return false;
    for (uint32_t i = 0; statement->distinct && i < plan->output_count; ++i) {
        const struct node_column *column = plan->outputs[i].selector->column;
        if (column != NULL && column->kind != COLUMN_PARTITION && column->kind != COLUMN_STATIC)
            return node_query_fail(query, ERROR_INVALID, "SELECT DISTINCT queries must only request partition key columns and/or static columns (not %.*s)",
                                   SLICE_ARG(column->name));
    }
    plan->statics_only = statement->distinct;
    statement->plan = plan;
    return node_term_resolve(query, root, statement->partition_limit, &node_type_int, statement->table, slice_text("[per_partition_limit]"), NULL, arena) &&
           node_term_resolve(query, root, statement->limit, &node_type_int, statement->table, slice_text("[limit]"), NULL, arena);
}

/* --- INSERT, UPDATE, DELETE --------------------------------------------------------------------------------------------- */

/* INSERT's names and values as relations (keys) and assignments (the rest). */
static bool resolve_insert(struct query *query, struct statement *statement, struct node_arena *arena)
{
    statement->where = NULL;
    statement->assignments = NULL;
    struct relation **relations = &statement->where;
    struct assignment **assignments = &statement->assignments;
    struct term *value = statement->insert_values;
    for (struct name_list *name = statement->insert_names; name != NULL; name = name->next, value = value->next) {
        if (value == NULL)
            break;
        if (!resolve_name(query, statement->table, name))
            return false;
        for (const struct name_list *other = statement->insert_names; other != name; other = other->next) {
            if (other->column == name->column)
                return node_query_fail(query, ERROR_INVALID, "The column names contains duplicates");
        }
        if (name->column->kind == COLUMN_PARTITION || name->column->kind == COLUMN_CLUSTERING) {
            struct relation *relation = node_arena_alloc(arena, sizeof *relation);
            relation->op = OP_EQ;
            relation->field = SLICE_NULL;
            relation->columns = node_arena_alloc(arena, sizeof *relation->columns);
            relation->columns->name = name->name;
            relation->value = value;
            *relations = relation;
            relations = &relation->next;
        } else {
            struct assignment *assignment = node_arena_alloc(arena, sizeof *assignment);
            assignment->kind = ASSIGN_SET;
            assignment->name = name->name;
            assignment->value = value;
            *assignments = assignment;
            assignments = &assignment->next;
        }
        if (name->next == NULL && value->next != NULL)
            return node_query_fail(query, ERROR_INVALID, "Unmatched column names/values");
    }
    if (value == NULL) {
        uint32_t names = 0, values = 0;
        for (const struct name_list *name = statement->insert_names; name != NULL; name = name->next)
            ++names;
        for (const struct term *term = statement->insert_values; term != NULL; term = term->next)
            ++values;
        if (names != values)
            return node_query_fail(query, ERROR_INVALID, "Unmatched column names/values");
    }
    return true;
}

static bool resolve_assignment(struct query *query, struct statement *root, struct statement *statement, struct assignment *assignment, struct modify_plan *plan,
                               struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    struct name_list name = {.name = assignment->name};
    if (!resolve_name(query, table, &name))
        return false;
    struct node_column *column = assignment->column = name.column;
    const struct node_type *type = column->type, *value = type;
    cqlring_bytes label = column->name;
    if (column->kind == COLUMN_PARTITION || column->kind == COLUMN_CLUSTERING) {
        const char *format = statement->kind == STATEMENT_DELETE ? "Invalid identifier %.*s for deletion (should not be a PRIMARY KEY part)" : "PRIMARY KEY part %.*s found in SET part";
        char message[200];
        (void)snprintf(message, sizeof message, format, SLICE_ARG(column->name));
        return node_query_fail(query, ERROR_INVALID, "%s", message);
    }
    if (column->kind == COLUMN_REGULAR)
        plan->writes_regular = true;
    if (type->kind == TYPE_COUNTER && assignment->kind != ASSIGN_ADD && assignment->kind != ASSIGN_SUBTRACT && assignment->kind != ASSIGN_DELETE)
        return node_query_fail(query, ERROR_INVALID, "Cannot set the value of counter column %.*s (counters can only be incremented/decremented, not set)", SLICE_ARG(label));
    bool collection = node_type_is_multi(type);
    switch (assignment->kind) {
    case ASSIGN_ADD:
    case ASSIGN_SUBTRACT:
    case ASSIGN_PREPEND:
        if (type->kind == TYPE_COUNTER) {
            value = &node_type_bigint;
            if (assignment->kind == ASSIGN_PREPEND)
                assignment->kind = ASSIGN_ADD; /* c = 1 + c */
            break;
        }
        if (!collection || (assignment->kind == ASSIGN_PREPEND && type->kind != TYPE_LIST))
            return node_query_fail(query, ERROR_INVALID, "Invalid operation (%.*s = %.*s %c ?) for non counter column %.*s", SLICE_ARG(label), SLICE_ARG(label),
                                   assignment->kind == ASSIGN_SUBTRACT ? '-' : '+', SLICE_ARG(label));
        if (assignment->kind == ASSIGN_SUBTRACT && type->kind == TYPE_MAP) {
            struct node_type *keys = node_arena_alloc(arena, sizeof *keys);
            *keys = (struct node_type){.kind = TYPE_SET, .count = 1, .subs = type->subs};
            value = keys;
        }
        break;
    case ASSIGN_ELEMENT:
    case ASSIGN_DELETE_ELEMENT:
        if (!collection || (type->kind == TYPE_SET && assignment->kind == ASSIGN_ELEMENT))
            return node_query_fail(query, ERROR_INVALID, "Invalid operation on an element of column %.*s", SLICE_ARG(label));
        if (!node_term_resolve(query, root, assignment->element, type->kind == TYPE_LIST ? &node_type_int : type->subs[0], table,
                               label_of(arena, type->kind == TYPE_LIST ? "idx(" : "key(", label, ")"), NULL, arena))
            return false;
        value = type->subs[type->kind == TYPE_MAP ? 1 : 0];
        label = label_of(arena, "value(", label, ")");
        break;
    case ASSIGN_FIELD:
    case ASSIGN_DELETE_FIELD:
        value = NULL;
        for (uint16_t i = 0; type->kind == TYPE_UDT && !type->frozen && i < type->udt->count; ++i) {
            if (slice_equal(type->udt->names[i], assignment->field))
                value = type->udt->types[i];
        }
        if (value == NULL)
            return node_query_fail(query, ERROR_INVALID, "Invalid operation on field %.*s of column %.*s", SLICE_ARG(assignment->field), SLICE_ARG(label));
        label = assignment->field;
        break;
    default: break;
    }
    bool whole = assignment->kind == ASSIGN_SET;
    return node_term_resolve(query, root, assignment->value, value, table, label, whole ? column : NULL, arena);
}

static bool check_modify_key(struct query *query, const struct statement *statement, const struct modify_plan *plan)
{
    const struct node_table *table = statement->table;
    const struct key_plan *key = &plan->key;
    if (key->token_lower != NULL || key->token_upper != NULL || key->token_equal != NULL)
        return node_query_fail(query, ERROR_INVALID, "The token function cannot be used in WHERE clauses for %s statements",
                               statement->kind == STATEMENT_DELETE ? "DELETE" : "UPDATE");
    for (uint16_t i = 0; i < table->partition_count; ++i) {
        if (key->partition[i] == NULL)
            return node_query_fail(query, ERROR_INVALID, "Some partition key parts are missing: %.*s", SLICE_ARG(table->partition_key[i]->name));
    }
    for (const struct relation *relation = statement->where; relation != NULL; relation = relation->next) {
        if (!relation->used)
            return node_query_fail(query, ERROR_INVALID, "Non PRIMARY KEY columns found in where clause: %.*s", SLICE_ARG(relation->columns->name));
    }
    bool ranged = key->lower != NULL || key->upper != NULL || key->clustering_count < table->shape.clustering_count;
    if (statement->kind == STATEMENT_DELETE && plan->whole_row)
        return true;
    if (plan->writes_static_only && key->clustering_count == 0 && key->lower == NULL && key->upper == NULL)
        return true;
    if (ranged)
        return node_query_fail(query, ERROR_INVALID, "Some clustering keys are missing: %.*s",
                               SLICE_ARG(table->clustering_key[key->clustering_count < table->shape.clustering_count ? key->clustering_count : 0]->name));
    return true;
}

bool node_resolve_modify(struct query *query, struct statement *root, struct statement *statement, struct node_arena *arena)
{
    struct node_table *table = statement->table = node_resolve_table(query, statement->keyspace, statement->name);
    if (table == NULL)
        return false;
    if (table->is_system && !query->engine->bootstrapping)
        return node_query_fail(query, ERROR_UNAUTHORIZED, "%.*s is not user-modifiable.", SLICE_ARG(table->keyspace->name));
    struct modify_plan *plan = node_arena_alloc(arena, sizeof *plan);
    if (statement->kind == STATEMENT_INSERT) {
        if (table->is_counter)
            return node_query_fail(query, ERROR_INVALID, "INSERT statements are not allowed on counter tables, use UPDATE instead");
        if (!resolve_insert(query, statement, arena))
            return false;
    }
    for (struct assignment *assignment = statement->assignments; assignment != NULL; assignment = assignment->next) {
        if (!resolve_assignment(query, root, statement, assignment, plan, arena))
            return false;
    }
    plan->writes_static_only = statement->assignments != NULL && !plan->writes_regular;
    plan->whole_row = statement->kind == STATEMENT_DELETE && statement->assignments == NULL;
    plan->is_counter = table->is_counter;
    plan->conditional = statement->if_exists || statement->if_not_exists || statement->conditions != NULL;
    if (!node_resolve_key(query, root, statement, &plan->key, arena) || !check_modify_key(query, statement, plan))
        return false;
    if (plan->conditional && plan->is_counter)
        return node_query_fail(query, ERROR_INVALID, "Conditional updates are not supported on counter tables");
    if (plan->is_counter && (statement->timestamp != NULL || statement->ttl != NULL))
        return node_query_fail(query, ERROR_INVALID, "Cannot provide custom %s for counter updates", statement->ttl != NULL ? "TTL" : "timestamp");
    if (plan->conditional && statement->timestamp != NULL)
        return node_query_fail(query, ERROR_INVALID, "Cannot provide custom timestamp for conditional updates");
    for (struct relation *relation = statement->conditions; relation != NULL; relation = relation->next) {
        if (!node_resolve_relation(query, root, statement, relation, arena))
            return false;
        enum column_kind kind = relation->columns->column->kind;
        if (kind == COLUMN_PARTITION || kind == COLUMN_CLUSTERING)
            return node_query_fail(query, ERROR_INVALID, "PRIMARY KEY column '%.*s' cannot have IF conditions", SLICE_ARG(relation->columns->name));
    }
    statement->modify = plan;
    return node_term_resolve(query, root, statement->timestamp, &node_type_bigint, table, slice_text("[timestamp]"), NULL, arena) &&
           node_term_resolve(query, root, statement->ttl, &node_type_int, table, slice_text("[ttl]"), NULL, arena);
}

bool node_resolve(struct query *query, struct statement *statement, struct node_arena *arena)
{
    switch (statement->kind) {
    case STATEMENT_SELECT: return node_resolve_select(query, statement, statement, arena);
    case STATEMENT_INSERT:
    case STATEMENT_UPDATE:
    case STATEMENT_DELETE: return node_resolve_modify(query, statement, statement, arena);
    case STATEMENT_BATCH:
        for (struct statement *child = statement->children; child != NULL; child = child->next) {
            if (!node_resolve_modify(query, statement, child, arena))
                return false;
        }
        return node_term_resolve(query, statement, statement->timestamp, &node_type_bigint, NULL, slice_text("[timestamp]"), NULL, arena);
    default:
        for (uint32_t i = 0; i < statement->bind_count; ++i)
            return node_query_fail(query, ERROR_INVALID, "Bind variables are not allowed in this statement");
        return true;
    }
}
