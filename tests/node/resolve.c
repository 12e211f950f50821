/* SPDX-License-Identifier: Apache-2.0 */
/* Names to columns, bind markers to types, restrictions to plans. */
#include "tests/node/engine_private.h"

#include "tests/node/functions.h"

#include <stdio.h>

struct node_table *node_resolve_table(struct query *query, cqlring_bytes keyspace,
                                      cqlring_bytes name)
{
    cqlring_bytes home = keyspace.size > 0 ? keyspace : query->keyspace;
    if (home.size <= 0) {
        (void)node_query_fail(
            query, ERROR_INVALID,
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename");
        return NULL;
    }
    struct node_keyspace *found = node_keyspace_find(query->engine, home);
    if (found == NULL) {
        (void)node_query_fail(query, ERROR_INVALID, "keyspace %.*s does not exist",
                              SLICE_ARG(home));
        return NULL;
    }
    struct node_table *table = node_table_find(found, name);
    if (table == NULL)
        (void)node_query_fail(query, ERROR_INVALID, "table %.*s does not exist", SLICE_ARG(name));
    return table;
}

bool node_resolve_name(struct query *query, const struct node_table *table, struct name_list *name)
{
    name->column = node_column_find(table, name->name);
    return name->column != NULL ||
           node_query_fail(query, ERROR_INVALID, "Undefined column name %.*s in table %.*s.%.*s",
                           SLICE_ARG(name->name), SLICE_ARG(table->keyspace->name),
                           SLICE_ARG(table->name));
}

cqlring_bytes node_label_of(struct node_arena *arena, const char *before, cqlring_bytes name,
                            const char *after)
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
static const struct node_type *relation_type(struct query *query, const struct relation *relation,
                                             struct node_arena *arena)
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
        (void)node_query_fail(query, ERROR_INVALID, "Unknown field '%.*s' of column %.*s",
                              SLICE_ARG(relation->field), SLICE_ARG(name));
        return NULL;
    }
    if (relation->element != NULL || relation->op == OP_CONTAINS ||
        relation->op == OP_CONTAINS_KEY) {
        bool fits = relation->op == OP_CONTAINS_KEY
                        ? type->kind == TYPE_MAP
                        : type->kind == TYPE_MAP || type->kind == TYPE_LIST ||
                              type->kind == TYPE_SET;
        if (!fits) {
            (void)node_query_fail(query, ERROR_INVALID,
                                  "Cannot use CONTAINS or an element on column %.*s",
                                  SLICE_ARG(name));
            return NULL;
        }
        return type->subs[type->kind == TYPE_MAP && relation->op != OP_CONTAINS_KEY ? 1 : 0];
    }
    return type;
}

/* token(k) > token(1): the arguments are values of the partition key. */
static bool resolve_token_call(struct query *query, struct statement *root,
                               const struct statement *statement, struct term *call,
                               struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    if (call->count != table->partition_count)
        return node_query_fail(
            query, ERROR_INVALID,
            "Invalid number of arguments in call to function token: %u required but %u provided",
            table->partition_count, call->count);
    uint16_t index = 0;
    for (struct term *child = call->children; child != NULL; child = child->next, ++index) {
        const struct node_column *column = table->partition_key[index];
        if (!node_term_resolve(query, root, child, column->type, table, column->name, NULL, arena))
            return false;
    }
    return true;
}

bool node_resolve_relation(struct query *query, struct statement *root, struct statement *statement,
                           struct relation *relation, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    relation->used = false;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next) {
        if (!node_resolve_name(query, table, name))
            return false;
    }
    relation->type = relation_type(query, relation, arena);
    if (relation->type == NULL)
        return false;
    struct node_column *column = relation->token || relation->multi ? NULL
                                                                    : relation->columns->column;
    cqlring_bytes label = relation->token ? slice_text("partition key token")
                                          : relation->columns->name;
    if (relation->op == OP_CONTAINS || relation->op == OP_CONTAINS_KEY)
        label = node_label_of(arena, relation->op == OP_CONTAINS ? "value(" : "key(", label, ")");
    if (relation->element != NULL) {
        const struct node_type *type = column->type;
        const struct node_type *key = type->kind == TYPE_LIST ? &node_type_int : type->subs[0];
        if (!node_term_resolve(
                query, root, relation->element, key, table,
                node_label_of(arena, type->kind == TYPE_LIST ? "idx(" : "key(", label, ")"), NULL,
                arena))
            return false;
        label = node_label_of(arena, "value(", label, ")");
    }
    if (relation->op == OP_IN && !relation->value_list) {
        if (relation->value->kind != TERM_BIND)
            return node_query_fail(query, ERROR_INVALID, "Invalid right side of IN on %.*s",
                                   SLICE_ARG(label));
        return node_term_resolve(query, root, relation->value, list_type(arena, relation->type),
                                 table, node_label_of(arena, "in(", label, ")"), NULL, arena);
    }
    if (relation->token && relation->value->kind == TERM_CALL &&
        node_slice_is_nocase(relation->value->text, "token"))
        return resolve_token_call(query, root, statement, relation->value, arena);
    bool whole = relation->op == OP_EQ && relation->element == NULL && relation->field.data == NULL;
    if (!node_term_resolve(query, root, relation->value, relation->type, table, label,
                           whole ? column : NULL, arena))
        return false;
    for (struct term *term = relation->values; term != NULL; term = term->next) {
        if (!node_term_resolve(query, root, term, relation->type, table, label, NULL, arena))
            return false;
    }
    return true;
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool is_slice(enum relation_operator op)
{
    return op == OP_LT || op == OP_LE || op == OP_GT || op == OP_GE;
}

static bool plan_token(struct query *query, const struct node_table *table, struct key_plan *key,
                       struct relation *relation)
{
    uint16_t index = 0;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next, ++index) {
        if (index >= table->partition_count || name->column != table->partition_key[index])
            return node_query_fail(
                query, ERROR_INVALID,
                "The token function arguments must be in the partition key order");
    }
    if (index != table->partition_count)
        return node_query_fail(
            query, ERROR_INVALID,
            "The token() function must be applied to all partition key components or none of them");
    if (relation->op == OP_EQ)
        key->token_equal = relation;
    else if (relation->op == OP_GT || relation->op == OP_GE)
        key->token_lower = relation;
    else if (relation->op == OP_LT || relation->op == OP_LE)
        key->token_upper = relation;
    else
        return node_query_fail(
            query, ERROR_INVALID,
            "Only EQ and inequalities are supported on the token of the partition key");
    relation->used = true;
    return true;
}

/* (c1, c2) > (…), from the first clustering column on. */
static bool plan_multi(struct query *query, const struct node_table *table, struct key_plan *key,
                       struct relation *relation)
{
    uint16_t index = 0;
    for (struct name_list *name = relation->columns; name != NULL; name = name->next, ++index) {
        if (name->column->kind != COLUMN_CLUSTERING || name->column->position != index)
            return node_query_fail(
                query, ERROR_INVALID,
                "Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY KEY order.");
        if (index > 0 && name->column->reversed != table->clustering_key[0]->reversed)
            return node_query_fail(
                query, ERROR_INVALID,
                "Multi-column relations over mixed clustering orders are not supported here");
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
        return node_query_fail(
            query, ERROR_INVALID,
            "%.*s cannot be restricted by more than one relation if it includes an Equal",
            SLICE_ARG(column->name));
    key->partition[column->position] = relation;
    return true;
}

static bool plan_clustering(struct query *query, const struct node_table *table,
                            struct statement *statement, struct key_plan *key)
{
    for (uint16_t i = 0; i < table->shape.clustering_count && !key->multi; ++i) {
        struct relation *equal = NULL, *lower = NULL, *upper = NULL;
        for (struct relation *relation = statement->where; relation != NULL;
             relation = relation->next) {
            if (relation->token || relation->multi || relation->element != NULL ||
                relation->columns->column != table->clustering_key[i])
                continue;
            struct relation **place = relation->op == OP_EQ || relation->op == OP_IN   ? &equal
                                      : relation->op == OP_GT || relation->op == OP_GE ? &lower
                                      : relation->op == OP_LT || relation->op == OP_LE ? &upper
                                                                                       : NULL;
            if (place == NULL)
                continue;
            if (*place != NULL || (equal != NULL && place != &equal))
                return node_query_fail(
                    query, ERROR_INVALID,
                    "%.*s cannot be restricted by more than one relation if it includes an Equal",
                    SLICE_ARG(relation->columns->name));
            *place = relation;
        }
        if (equal != NULL && (lower != NULL || upper != NULL))
            return node_query_fail(
                query, ERROR_INVALID,
                "%.*s cannot be restricted by more than one relation if it includes an Equal",
                SLICE_ARG(equal->columns->name));
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

bool node_resolve_key(struct query *query, struct statement *root, struct statement *statement,
                      struct key_plan *key, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    key->partition = node_arena_alloc(arena, table->partition_count * sizeof(struct relation *));
    key->clustering = node_arena_alloc(arena, (table->shape.clustering_count + 1u) *
                                                  sizeof(struct relation *));
    for (struct relation *relation = statement->where; relation != NULL;
         relation = relation->next) {
        if (!node_resolve_relation(query, root, statement, relation, arena))
            return false;
        if (relation->op == OP_NE || relation->op == OP_LIKE)
            return node_query_fail(query, ERROR_INVALID, "Unsupported restriction on column %.*s",
                                   SLICE_ARG(relation->columns->name));
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
        key->partition_single = key->partition_single && key->partition[i] != NULL &&
                                key->partition[i]->op == OP_EQ;
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
        return node_term_resolve(query, statement, statement->timestamp, &node_type_bigint, NULL,
                                 slice_text("[timestamp]"), NULL, arena);
    default:
        for (uint32_t i = 0; i < statement->bind_count; ++i)
            return node_query_fail(query, ERROR_INVALID,
                                   "Bind variables are not allowed in this statement");
        return true;
    }
}
