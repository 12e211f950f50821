/* SPDX-License-Identifier: Apache-2.0 */
/* INSERT, UPDATE, DELETE: assignments to columns, and what their keys must name. */
#include "tests/node/engine_private.h"

#include <stdio.h>

/* INSERT's names and values as relations (keys) and assignments (the rest). */
static bool resolve_insert(struct query *query, struct statement *statement,
                           struct node_arena *arena)
{
    statement->where = NULL;
    statement->assignments = NULL;
    struct relation **relations = &statement->where;
    struct assignment **assignments = &statement->assignments;
    struct term *value = statement->insert_values;
    for (struct name_list *name = statement->insert_names; name != NULL;
         name = name->next, value = value->next) {
        if (value == NULL)
            break;
        if (!node_resolve_name(query, statement->table, name))
            return false;
        for (const struct name_list *other = statement->insert_names; other != name;
             other = other->next) {
            if (other->column == name->column)
                return node_query_fail(query, ERROR_INVALID,
                                       "The column names contains duplicates");
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
        for (const struct name_list *name = statement->insert_names; name != NULL;
             name = name->next)
            ++names;
        for (const struct term *term = statement->insert_values; term != NULL; term = term->next)
            ++values;
        if (names != values)
            return node_query_fail(query, ERROR_INVALID, "Unmatched column names/values");
    }
    return true;
}

static bool resolve_assignment(struct query *query, struct statement *root,
                               struct statement *statement, struct assignment *assignment,
                               struct modify_plan *plan, struct node_arena *arena)
{
    const struct node_table *table = statement->table;
    struct name_list name = {.name = assignment->name};
    if (!node_resolve_name(query, table, &name))
        return false;
    struct node_column *column = assignment->column = name.column;
    const struct node_type *type = column->type, *value = type;
    cqlring_bytes label = column->name;
    if (column->kind == COLUMN_PARTITION || column->kind == COLUMN_CLUSTERING) {
        const char *format =
            statement->kind == STATEMENT_DELETE
                ? "Invalid identifier %.*s for deletion (should not be a PRIMARY KEY part)"
                : "PRIMARY KEY part %.*s found in SET part";
        char message[200];
        (void)snprintf(message, sizeof message, format, SLICE_ARG(column->name));
        return node_query_fail(query, ERROR_INVALID, "%s", message);
    }
    if (column->kind == COLUMN_REGULAR)
        plan->writes_regular = true;
    if (type->kind == TYPE_COUNTER && assignment->kind != ASSIGN_ADD &&
        assignment->kind != ASSIGN_SUBTRACT && assignment->kind != ASSIGN_DELETE)
        return node_query_fail(
            query, ERROR_INVALID,
            "Cannot set the value of counter column %.*s (counters can only be incremented/decremented, not set)",
            SLICE_ARG(label));
    bool collection = node_type_is_multi(type);
    switch (assignment->kind) {
    case ASSIGN_ADD:
    case ASSIGN_SUBTRACT:
    case ASSIGN_PREPEND:
        if (type->kind == TYPE_COUNTER) {
            if (assignment->kind == ASSIGN_PREPEND)
                assignment->kind = ASSIGN_ADD; /* c = 1 + c */
            break;
        }
        if (!collection || (assignment->kind == ASSIGN_PREPEND && type->kind != TYPE_LIST))
            return node_query_fail(
                query, ERROR_INVALID,
                "Invalid operation (%.*s = %.*s %c ?) for non counter column %.*s",
                SLICE_ARG(label), SLICE_ARG(label), assignment->kind == ASSIGN_SUBTRACT ? '-' : '+',
                SLICE_ARG(label));
        if (assignment->kind == ASSIGN_SUBTRACT && type->kind == TYPE_MAP) {
            struct node_type *keys = node_arena_alloc(arena, sizeof *keys);
            *keys = (struct node_type){.kind = TYPE_SET, .count = 1, .subs = type->subs};
            value = keys;
        }
        break;
    case ASSIGN_ELEMENT:
    case ASSIGN_DELETE_ELEMENT:
        if (!collection || (type->kind == TYPE_SET && assignment->kind == ASSIGN_ELEMENT))
            return node_query_fail(query, ERROR_INVALID,
                                   "Invalid operation on an element of column %.*s",
                                   SLICE_ARG(label));
        if (!node_term_resolve(
                query, root, assignment->element,
                type->kind == TYPE_LIST ? &node_type_int : type->subs[0], table,
                node_label_of(arena, type->kind == TYPE_LIST ? "idx(" : "key(", label, ")"), NULL,
                arena))
            return false;
        value = type->subs[type->kind == TYPE_MAP ? 1 : 0];
        label = node_label_of(arena, "value(", label, ")");
        break;
    case ASSIGN_FIELD:
    case ASSIGN_DELETE_FIELD:
        value = NULL;
        for (uint16_t i = 0; type->kind == TYPE_UDT && !type->frozen && i < type->udt->count; ++i) {
            if (slice_equal(type->udt->names[i], assignment->field))
                value = type->udt->types[i];
        }
        if (value == NULL)
            return node_query_fail(query, ERROR_INVALID,
                                   "Invalid operation on field %.*s of column %.*s",
                                   SLICE_ARG(assignment->field), SLICE_ARG(label));
        label = assignment->field;
        break;
    default: break;
    }
    bool whole = assignment->kind == ASSIGN_SET;
    return node_term_resolve(query, root, assignment->value, value, table, label,
                             whole ? column : NULL, arena);
}

static bool check_modify_key(struct query *query, const struct statement *statement,
                             const struct modify_plan *plan)
{
    const struct node_table *table = statement->table;
    const struct key_plan *key = &plan->key;
    if (key->token_lower != NULL || key->token_upper != NULL || key->token_equal != NULL)
        return node_query_fail(
            query, ERROR_INVALID,
            "The token function cannot be used in WHERE clauses for %s statements",
            statement->kind == STATEMENT_DELETE ? "DELETE" : "UPDATE");
    for (uint16_t i = 0; i < table->partition_count; ++i) {
        if (key->partition[i] == NULL)
            return node_query_fail(query, ERROR_INVALID,
                                   "Some partition key parts are missing: %.*s",
                                   SLICE_ARG(table->partition_key[i]->name));
    }
    for (const struct relation *relation = statement->where; relation != NULL;
         relation = relation->next) {
        if (!relation->used)
            return node_query_fail(query, ERROR_INVALID,
                                   "Non PRIMARY KEY columns found in where clause: %.*s",
                                   SLICE_ARG(relation->columns->name));
    }
    bool ranged = key->lower != NULL || key->upper != NULL ||
                  key->clustering_count < table->shape.clustering_count;
    if (statement->kind == STATEMENT_DELETE && plan->whole_row)
        return true;
    if (plan->writes_static_only && key->clustering_count == 0 && key->lower == NULL &&
        key->upper == NULL)
        return true;
    if (ranged)
        return node_query_fail(
            query, ERROR_INVALID, "Some clustering keys are missing: %.*s",
            SLICE_ARG(table
                          ->clustering_key[key->clustering_count < table->shape.clustering_count
                                               ? key->clustering_count
                                               : 0]
                          ->name));
    return true;
}

bool node_resolve_modify(struct query *query, struct statement *root, struct statement *statement,
                         struct node_arena *arena)
{
    struct node_table *table = statement->table = node_resolve_table(query, statement->keyspace,
                                                                     statement->name);
    if (table == NULL)
        return false;
    if (table->is_view)
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot directly modify a materialized view");
    /* the replicated system keyspaces hold rows as any other */
    if (table->is_system && !query->engine->bootstrapping && !slice_is(table->keyspace->name, "system_traces"))
        return node_query_fail(query, ERROR_UNAUTHORIZED, "%.*s is not user-modifiable.",
                               SLICE_ARG(table->keyspace->name));
    struct modify_plan *plan = node_arena_alloc(arena, sizeof *plan);
    if (statement->kind == STATEMENT_INSERT) {
        if (table->is_counter)
            return node_query_fail(
                query, ERROR_INVALID,
                "INSERT statements are not allowed on counter tables, use UPDATE instead");
        if (!resolve_insert(query, statement, arena))
            return false;
    }
    for (struct assignment *assignment = statement->assignments; assignment != NULL;
         assignment = assignment->next) {
        if (!resolve_assignment(query, root, statement, assignment, plan, arena))
            return false;
    }
    plan->writes_static_only = statement->assignments != NULL && !plan->writes_regular;
    plan->whole_row = statement->kind == STATEMENT_DELETE && statement->assignments == NULL;
    plan->is_counter = table->is_counter;
    plan->conditional = statement->if_exists || statement->if_not_exists ||
                        statement->conditions != NULL;
    if (!node_resolve_key(query, root, statement, &plan->key, arena) ||
        !check_modify_key(query, statement, plan))
        return false;
    if (plan->conditional && plan->is_counter)
        return node_query_fail(query, ERROR_INVALID,
                               "Conditional updates are not supported on counter tables");
    if (plan->is_counter && (statement->timestamp != NULL || statement->ttl != NULL))
        return node_query_fail(query, ERROR_INVALID, "Cannot provide custom %s for counter updates",
                               statement->ttl != NULL ? "TTL" : "timestamp");
    if (plan->conditional && statement->timestamp != NULL)
        return node_query_fail(query, ERROR_INVALID,
                               "Cannot provide custom timestamp for conditional updates");
    for (struct relation *relation = statement->conditions; relation != NULL;
         relation = relation->next) {
        if (!node_resolve_relation(query, root, statement, relation, arena))
            return false;
        enum column_kind kind = relation->columns->column->kind;
        if (kind == COLUMN_PARTITION || kind == COLUMN_CLUSTERING)
            return node_query_fail(query, ERROR_INVALID,
                                   "PRIMARY KEY column '%.*s' cannot have IF conditions",
                                   SLICE_ARG(relation->columns->name));
    }
    statement->modify = plan;
    return node_term_resolve(query, root, statement->timestamp, &node_type_bigint, table,
                             slice_text("[timestamp]"), NULL, arena) &&
           node_term_resolve(query, root, statement->ttl, &node_type_int, table,
                             slice_text("[ttl]"), NULL, arena);
}
