/* SPDX-License-Identifier: Apache-2.0 */
/* Values of restrictions, composed keys, and what a row looks like to filters and conditions. */
#include "tests/node/engine_private.h"

#include <stdlib.h>

#include "cql/token.h"

enum { KEYS_MAX = 10000 };

struct node_storage *node_storage_of(struct query *query, struct node_table *table)
{
    return table->local != NULL ? &table->local[query->coordinator] : &table->storage;
}

uint32_t node_query_second(const struct query *query)
{
    return query->params != NULL && query->params->has_now ? (uint32_t)query->params->now_in_seconds
                                                           : (uint32_t)(query->now_us / 1000000);
}

/* --- values ----------------------------------------------------------------------------------- */

struct sorted {
    const struct node_type *type;
    cqlring_bytes value;
};

static int compare_sorted(const void *left, const void *right)
{
    const struct sorted *a = left, *b = right;
    return node_value_compare(a->type, a->value, b->value);
}

static bool check_key_value(struct query *query, const struct relation *relation,
                            cqlring_bytes value)
{
    cqlring_bytes name = relation->columns->name;
    if (value.size == CQLRING_UNSET)
        return node_query_fail(query, ERROR_INVALID, "Invalid unset value for column %.*s",
                               SLICE_ARG(name));
    if (value.size < 0)
        return node_query_fail(query, ERROR_INVALID,
                               "Invalid null value in condition for column %.*s", SLICE_ARG(name));
    return true;
}

bool node_relation_values(struct query *query, const struct relation *relation,
                          const struct node_type *type, struct value_list *out)
{
    cqlring_bytes name = relation->columns->name;
    if (relation->op != OP_IN) {
        out->values = node_arena_alloc(query->arena, sizeof *out->values);
        out->count = 1;
        return node_term_value(query, relation->value, type, name, &out->values[0]) &&
               check_key_value(query, relation, out->values[0]);
    }
    struct sorted *items = NULL;
    uint32_t count = 0;
    if (relation->value_list) {
        for (const struct term *term = relation->values; term != NULL; term = term->next)
            ++count;
        items = node_arena_alloc(query->arena, count * sizeof *items);
        count = 0;
        for (const struct term *term = relation->values; term != NULL; term = term->next) {
            items[count].type = type;
            if (!node_term_value(query, term, type, name, &items[count].value) ||
                !check_key_value(query, relation, items[count].value))
                return false;
            ++count;
        }
    } else {
        struct node_type list = {.kind = TYPE_LIST, .frozen = true, .count = 1, .subs = &type};
        cqlring_bytes value;
        if (!node_term_value(query, relation->value, &list, name, &value) ||
            !check_key_value(query, relation, value))
            return false;
        struct element_cursor cursor;
        node_elements(value, &cursor);
        items = node_arena_alloc(query->arena, cursor.left * sizeof *items);
        while (count < cursor.left && node_elements_next(&cursor, &items[count].value))
            items[count++].type = type;
    }
    qsort(items, count, sizeof *items, compare_sorted);
    out->values = node_arena_alloc(query->arena, (count + 1) * sizeof *out->values);
    out->count = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (out->count == 0 ||
            node_value_compare(type, out->values[out->count - 1], items[i].value) != 0)
            out->values[out->count++] = items[i].value;
    }
    return true;
}

cqlring_bytes node_compose_clustering(struct query *query, const cqlring_bytes *parts,
                                      uint16_t count)
{
    size_t size = 0;
    for (uint16_t i = 0; i < count; ++i)
        size += 2 + (size_t)parts[i].size;
    uint8_t *at = node_arena_bytes(query->arena, size), *from = at;
    for (uint16_t i = 0; i < count; ++i) {
        cqr_store_u16(at, (uint16_t)parts[i].size);
        if (parts[i].size > 0)
            memcpy(at + 2, parts[i].data, (size_t)parts[i].size);
        at += 2 + parts[i].size;
    }
    return slice_of(from, size);
}

cqlring_bytes node_compose_key(struct query *query, const cqlring_bytes *parts, uint16_t count)
{
    if (count == 1)
        return parts[0];
    size_t size = 0;
    for (uint16_t i = 0; i < count; ++i)
        size += 3 + (size_t)parts[i].size;
    uint8_t *at = node_arena_bytes(query->arena, size), *from = at;
    for (uint16_t i = 0; i < count; ++i) {
        cqr_store_u16(at, (uint16_t)parts[i].size);
        if (parts[i].size > 0)
            memcpy(at + 2, parts[i].data, (size_t)parts[i].size);
        at += 2 + parts[i].size;
        *at++ = 0;
    }
    return slice_of(from, size);
}

static cqlring_bytes partition_part(const struct node_table *table,
                                    const struct node_partition *partition, uint16_t index)
{
    if (table->partition_count == 1)
        return slice_of(partition->key, partition->key_size);
    struct reader reader;
    node_reader_init(&reader, partition->key, partition->key_size);
    cqlring_bytes part = SLICE_NULL;
    for (uint16_t i = 0; i <= index; ++i) {
        part = cqr_get_string(&reader);
        (void)cqr_get_u8(&reader);
    }
    return part;
}

static bool check_key_size(struct query *query, const cqlring_bytes *parts, uint16_t count,
                           cqlring_bytes key)
{
    if (count == 1 && parts[0].size == 0)
        return node_query_fail(query, ERROR_INVALID, "Key may not be empty");
    for (uint16_t i = 0; i < count; ++i) {
        if (parts[i].size > 0xFFFF)
            return node_query_fail(query, ERROR_INVALID,
                                   "Key length of %d is longer than maximum of 65535",
                                   parts[i].size);
    }
    return key.size <= 0xFFFF ||
           node_query_fail(query, ERROR_INVALID, "Key length of %d is longer than maximum of 65535",
                           key.size);
}

bool node_partition_keys(struct query *query, const struct statement *statement,
                         const struct key_plan *key, cqlring_bytes **keys, uint32_t *count)
{
    const struct node_table *table = statement->table;
    uint16_t parts = table->partition_count;
    struct value_list *lists = node_arena_alloc(query->arena, parts * sizeof *lists);
    uint64_t total = 1;
    for (uint16_t i = 0; i < parts; ++i) {
        if (!node_relation_values(query, key->partition[i], table->partition_key[i]->type,
                                  &lists[i]))
            return false;
        total *= lists[i].count;
        if (total > KEYS_MAX)
            return node_query_fail(query, ERROR_INVALID, "Too many partition keys in IN");
    }
    *keys = node_arena_alloc(query->arena, (size_t)total * sizeof **keys);
    *count = (uint32_t)total;
    cqlring_bytes *chosen = node_arena_alloc(query->arena, parts * sizeof *chosen);
    for (uint32_t i = 0; i < total; ++i) {
        uint32_t rest = i;
        for (uint16_t j = parts; j-- > 0;) {
            chosen[j] = lists[j].values[rest % lists[j].count];
            rest /= lists[j].count;
        }
        for (uint16_t j = 0; j < parts; ++j) {
            if (chosen[j].size > 0xFFFF)
                return node_query_fail(query, ERROR_INVALID,
                                       "Key length of %d is longer than maximum of 65535",
                                       chosen[j].size);
        }
        (*keys)[i] = node_compose_key(query, chosen, parts);
        if (!check_key_size(query, chosen, parts, (*keys)[i]))
            return false;
    }
    return true;
}

bool node_statement_token(const struct statement *statement, const cqlring_bytes *values,
                          uint16_t value_count, int64_t *token, const struct node_table **table)
{
    if (statement->kind == STATEMENT_BATCH && statement->children != NULL)
        statement = statement->children;
    if (statement->kind > STATEMENT_DELETE || statement->table->is_system)
        return false;
    const struct key_plan *key = statement->kind == STATEMENT_SELECT ? &statement->plan->key
                                                                     : &statement->modify->key;
    cqlring_bytes parts[16];
    uint16_t count = statement->table->partition_count;
    if (!key->partition_single || count > 16)
        return false;
    for (uint16_t i = 0; i < count; ++i) {
        const struct term *term = key->partition[i]->value;
        if (term->constant)
            parts[i] = term->value;
        else if (term->kind == TERM_BIND && term->bind < value_count)
            parts[i] = values[term->bind];
        else
            return false;
    }
    uint8_t scratch[1024];
    static const uint16_t indexes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    cqlring_bytes routing;
    if (!cqr_routing_key(parts, indexes, count, scratch, sizeof scratch, &routing))
        return false;
    *token = cqr_murmur3(routing.data, (uint32_t)routing.size);
    *table = statement->table;
    return true;
}

void node_find_token(struct query *query, const struct statement *statement)
{
    query->has_token = node_statement_token(statement, query->values, query->value_count,
                                            &query->token, &query->token_table);
}

/* --- rows as seen ----------------------------------------------------------------------------- */

cqlring_bytes node_view_value(struct query *query, const struct row_view *view,
                              const struct node_column *column)
{
    switch (column->kind) {
    case COLUMN_PARTITION: return partition_part(view->table, view->partition, column->position);
    case COLUMN_CLUSTERING:
        return view->row == NULL
                   ? SLICE_NULL
                   : node_key_part(slice_of(view->row->key, view->row->key_size), column->position);
    case COLUMN_STATIC:
        return node_row_value(view->partition->fixed, column->position, column->type,
                              view->fixed_deleted_at, view->now, query->arena);
    case COLUMN_REGULAR:
        return node_row_value(view->row, column->position, column->type, view->row_deleted_at,
                              view->now, query->arena);
    }
    return SLICE_NULL;
}

static bool fulfils(enum relation_operator op, int order)
{
    switch (op) {
    case OP_EQ: return order == 0;
    case OP_NE: return order != 0;
    case OP_LT: return order < 0;
    case OP_LE: return order <= 0;
    case OP_GT: return order > 0;
    case OP_GE: return order >= 0;
    default: return false;
    }
}

static bool holds(const struct node_type *type, cqlring_bytes collection, cqlring_bytes wanted,
                  bool keys)
{
    struct element_cursor cursor;
    node_elements(collection, &cursor);
    bool map = type->kind == TYPE_MAP;
    cqlring_bytes key, value;
    while (node_elements_next(&cursor, &key)) {
        value = key;
        if (map && !node_elements_next(&cursor, &value))
            return false;
        bool key_side = !map || keys;
        if (node_value_compare(type->subs[map && !keys ? 1 : 0], key_side ? key : value, wanted) ==
            0)
            return true;
    }
    return false;
}

/* column[element] */
static bool element_of(struct query *query, const struct relation *relation,
                       const struct node_type *type, cqlring_bytes whole, cqlring_bytes *value)
{
    cqlring_bytes wanted, key;
    *value = SLICE_NULL;
    if (!node_term_value(query, relation->element,
                         type->kind == TYPE_LIST ? &node_type_int : type->subs[0],
                         relation->columns->name, &wanted))
        return false;
    if (whole.size < 0 || wanted.size < 0)
        return true;
    struct element_cursor cursor;
    node_elements(whole, &cursor);
    int32_t index = type->kind == TYPE_LIST && wanted.size == 4
                        ? (int32_t)cqr_load_u32(slice_data(wanted))
                        : -1;
    for (int32_t i = 0; node_elements_next(&cursor, &key); ++i) {
        cqlring_bytes mapped = key;
        if (type->kind == TYPE_MAP && !node_elements_next(&cursor, &mapped))
            return true;
        if (type->kind == TYPE_LIST ? i == index
                                    : node_value_compare(type->subs[0], key, wanted) == 0) {
            *value = mapped;
            return true;
        }
    }
    return true;
}

bool node_view_matches(struct query *query, const struct row_view *view,
                       const struct relation *relation, bool *matches)
{
    *matches = false;
    cqlring_bytes value;
    if (relation->multi) {
        struct out out = {0};
        for (const struct name_list *name = relation->columns; name != NULL; name = name->next)
            out_bytes(&out, node_view_value(query, view, name->column));
        value = node_arena_copy(query->arena, out_view(&out, 0));
        node_out_fini(&out);
    } else {
        const struct node_type *type = relation->columns->column->type;
        value = node_view_value(query, view, relation->columns->column);
        if (relation->element != NULL && !element_of(query, relation, type, value, &value))
            return false;
        for (uint16_t i = 0; relation->field.data != NULL && i < type->udt->count; ++i) {
            if (slice_equal(type->udt->names[i], relation->field)) {
                value = node_tuple_field(value, i);
                break;
            }
        }
    }
    if (relation->op == OP_NOT_NULL) {
        *matches = value.size >= 0;
        return true;
    }
    if (relation->op == OP_IN) {
        struct value_list list;
        if (!node_relation_values(query, relation, relation->type, &list))
            return false;
        for (uint32_t i = 0; i < list.count && value.size >= 0; ++i)
            *matches = *matches || node_value_compare(relation->type, value, list.values[i]) == 0;
        return true;
    }
    cqlring_bytes wanted;
    if (!node_term_value(query, relation->value, relation->type, relation->columns->name, &wanted))
        return false;
    if (wanted.size == CQLRING_UNSET)
        return node_query_fail(query, ERROR_INVALID, "Invalid unset value for column %.*s",
                               SLICE_ARG(relation->columns->name));
    if (wanted.size < 0 || value.size < 0) { /* only "is it null" can be asked of null */
        bool both = wanted.size < 0 && value.size < 0;
        *matches = relation->op == OP_EQ ? both : relation->op == OP_NE && !both;
        return true;
    }
    if (relation->op == OP_CONTAINS || relation->op == OP_CONTAINS_KEY)
        *matches = holds(relation->columns->column->type, value, wanted,
                         relation->op == OP_CONTAINS_KEY);
    else
        *matches = fulfils(relation->op, node_value_compare(relation->type, value, wanted));
    return true;
}
