/* SPDX-License-Identifier: Apache-2.0 */
/* INSERT, UPDATE, DELETE: what one statement does to the storage. Each is evaluated twice when it
   is part of a batch: once to find whatever is wrong with it before anything is written, once to
   write. */
#include "tests/node/modify.h"

#include "cql/token.h"

enum { TTL_MAX = 630720000 };

static bool time_to_live(struct query *query, const struct statement *statement, uint32_t *ttl)
{
    *ttl = statement->table->default_ttl > 0 && statement->kind != STATEMENT_DELETE
               ? (uint32_t)statement->table->default_ttl
               : 0;
    if (statement->ttl == NULL)
        return true;
    cqlring_bytes value;
    if (!node_term_value(query, statement->ttl, &node_type_int, slice_text("[ttl]"), &value))
        return false;
    if (value.size != 4)
        return true; /* unset or null: the default */
    int32_t number = (int32_t)cqr_load_u32(slice_data(value));
    if (number < 0)
        return node_query_fail(query, ERROR_INVALID,
                               "A TTL must be greater or equal to 0, but was %d", number);
    if (number > TTL_MAX)
        return node_query_fail(query, ERROR_INVALID,
                               "ttl is too large. requested (%d) maximum (%d)", number, TTL_MAX);
    *ttl = (uint32_t)number;
    return true;
}

static bool timestamp_of(struct query *query, const struct statement *statement, int64_t otherwise,
                         int64_t *timestamp)
{
    *timestamp = otherwise;
    if (statement->timestamp == NULL)
        return true;
    cqlring_bytes value;
    if (!node_term_value(query, statement->timestamp, &node_type_bigint, slice_text("[timestamp]"),
                         &value))
        return false;
    if (value.size == CQLRING_NULL)
        return node_query_fail(query, ERROR_INVALID, "Invalid null value of timestamp");
    if (value.size == 8)
        *timestamp = (int64_t)cqr_load_u64(slice_data(value));
    return true;
}

/* --- assignments ------------------------------------------------------------------------------ */

struct modify_run {
    struct query *query;
    const struct statement *statement;
    struct node_storage *storage;
    struct node_partition *partition;
    struct node_row *row; /* NULL: static columns only */
    struct node_write write;
    bool write_now; /* false: check only */
};

/* All of a whole or added collection. */
static void write_elements(struct modify_run *run, struct node_row *row,
                           const struct node_column *column, cqlring_bytes value, bool front)
{
    const struct node_type *type = column->type;
    struct element_cursor cursor;
    node_elements(value, &cursor);
    cqlring_bytes key, mapped;
    uint32_t count = cursor.left;
    uint8_t position[8];
    if (type->kind == TYPE_LIST && front) { /* "[a, b] + c" puts a first: last to first */
        cqlring_bytes *elements = node_arena_alloc(run->query->arena,
                                                   (count + 1) * sizeof *elements);
        for (uint32_t i = 0; i < count && node_elements_next(&cursor, &elements[i]); ++i) {
        }
        for (uint32_t i = count; i-- > 0;) {
            cqr_store_u64(position, (uint64_t)node_list_position(run->storage, true));
            node_write_element(run->storage, row, column->position, type, slice_of(position, 8),
                               elements[i], &run->write);
        }
        return;
    }
    while (node_elements_next(&cursor, &key)) {
        if (type->kind == TYPE_LIST) {
            cqr_store_u64(position, (uint64_t)node_list_position(run->storage, false));
            node_write_element(run->storage, row, column->position, type, slice_of(position, 8),
                               key, &run->write);
        } else if (type->kind == TYPE_SET) {
            node_write_element(run->storage, row, column->position, type, key, slice_of("", 0),
                               &run->write);
        } else if (node_elements_next(&cursor, &mapped)) {
            node_write_element(run->storage, row, column->position, type, key, mapped, &run->write);
        }
    }
}

/* c = c - {…}: set elements, map keys, list elements of equal value. */
static void remove_elements(struct modify_run *run, struct node_row *row,
                            const struct node_column *column, cqlring_bytes value)
{
    const struct node_type *type = column->type;
    struct element_cursor cursor;
    node_elements(value, &cursor);
    cqlring_bytes wanted;
    while (node_elements_next(&cursor, &wanted)) {
        if (type->kind != TYPE_LIST) {
            node_write_element(run->storage, row, column->position, type, wanted, SLICE_NULL,
                               &run->write);
            continue;
        }
        struct node_multi *multi = column->position < row->slot_count
                                       ? row->slots[column->position].multi
                                       : NULL;
        for (uint32_t i = 0; multi != NULL && i < multi->count; ++i) {
            struct node_element *element = &multi->elements[i];
            if (element->cell->size >= 0 &&
                node_value_compare(type->subs[0],
                                   slice_of(element->cell->data, (size_t)element->cell->size),
                                   wanted) == 0)
                node_write_element(run->storage, row, column->position, type,
                                   slice_of(element->key, element->key_size), SLICE_NULL,
                                   &run->write);
        }
    }
}

/* The key of the list's index-th live element. */
static bool list_key(struct modify_run *run, const struct node_row *row,
                     const struct node_column *column, cqlring_bytes wanted, cqlring_bytes *key)
{
    int32_t index = wanted.size == 4 ? (int32_t)cqr_load_u32(slice_data(wanted)) : -1;
    const struct node_multi *multi = row != NULL && column->position < row->slot_count
                                         ? row->slots[column->position].multi
                                         : NULL;
    uint32_t at = 0;
    int32_t size = 0;
    const struct node_element *element;
    int64_t deleted_at = row == NULL ? NODE_NO_TIME : node_row_deleted_at(run->partition, row);
    while (multi != NULL && (element = node_multi_next(
                                 multi, deleted_at, node_query_second(run->query), &at)) != NULL) {
        if (size++ == index) {
            *key = slice_of(element->key, element->key_size);
            return true;
        }
    }
    if (size == 0)
        return node_query_fail(run->query, ERROR_INVALID,
                               "Attempted to set an element on a list which is null");
    return node_query_fail(run->query, ERROR_INVALID,
                           "List index %d out of bound, list has size %d", index, size);
}

static bool write_one_element(struct modify_run *run, struct node_row *row,
                              const struct assignment *assignment)
{
    const struct node_column *column = assignment->column;
    const struct node_type *type = column->type;
    cqlring_bytes key, value = SLICE_NULL;
    if (!node_term_value(run->query, assignment->element,
                         type->kind == TYPE_LIST ? &node_type_int : type->subs[0], column->name,
                         &key))
        return false;
    if (key.size < 0)
        return node_query_fail(run->query, ERROR_INVALID, "Invalid %s value for an element of %.*s",
                               key.size == CQLRING_UNSET ? "unset" : "null",
                               SLICE_ARG(column->name));
    if (assignment->kind == ASSIGN_ELEMENT &&
        !node_term_value(run->query, assignment->value, type->subs[type->kind == TYPE_MAP ? 1 : 0],
                         column->name, &value))
        return false;
    if (!run->write_now || value.size == CQLRING_UNSET)
        return true;
    if (type->kind == TYPE_LIST && !list_key(run, row, column, key, &key))
        return false;
    node_write_element(run->storage, row, column->position, type, key, value, &run->write);
    return true;
}

/* A field of a non-frozen UDT: the whole value is read and written back. */
static bool write_field(struct modify_run *run, struct node_row *row,
                        const struct assignment *assignment)
{
    const struct node_column *column = assignment->column;
    const struct node_udt *udt = column->type->udt;
    cqlring_bytes value = SLICE_NULL, old = SLICE_NULL;
    const struct node_type *type = NULL;
    for (uint16_t i = 0; i < udt->count; ++i) {
        if (slice_equal(udt->names[i], assignment->field))
            type = udt->types[i];
    }
    if (assignment->kind == ASSIGN_FIELD &&
        !node_term_value(run->query, assignment->value, type, assignment->field, &value))
        return false;
    if (!run->write_now || value.size == CQLRING_UNSET)
        return true;
    old = node_row_value(row, column->position, column->type,
                         node_row_deleted_at(run->partition, row), node_query_second(run->query),
                         run->query->arena);
    struct out out = {0};
    for (uint16_t i = 0; i < udt->count; ++i)
        out_bytes(&out,
                  slice_equal(udt->names[i], assignment->field) ? value : node_tuple_field(old, i));
    node_write_cell(run->storage, row, column->position, column->type, out_view(&out, 0),
                    &run->write);
    node_out_fini(&out);
    return true;
}

static bool write_assignment(struct modify_run *run, const struct assignment *assignment)
{
    const struct node_column *column = assignment->column;
    const struct node_type *type = column->type;
    struct node_row *row = column->kind == COLUMN_STATIC
                               ? (run->write_now
                                      ? node_row_make_static(run->storage, run->partition)
                                      : NULL)
                               : run->row;
    if (assignment->kind == ASSIGN_ELEMENT || assignment->kind == ASSIGN_DELETE_ELEMENT)
        return write_one_element(run, row, assignment);
    if (assignment->kind == ASSIGN_FIELD || assignment->kind == ASSIGN_DELETE_FIELD)
        return write_field(run, row, assignment);
    cqlring_bytes value = SLICE_NULL;
    struct node_type keys = {.kind = TYPE_SET, .count = 1, .subs = type->subs};
    const struct node_type *wanted = type->kind == TYPE_COUNTER ? &node_type_bigint
                                     : assignment->kind == ASSIGN_SUBTRACT && type->kind == TYPE_MAP
                                         ? &keys
                                         : type;
    if (assignment->value != NULL &&
        !node_term_value(run->query, assignment->value, wanted, column->name, &value))
        return false;
    if (value.size == CQLRING_UNSET)
        return true;
    bool changes = assignment->kind == ASSIGN_ADD || assignment->kind == ASSIGN_SUBTRACT ||
                   assignment->kind == ASSIGN_PREPEND;
    if (type->kind == TYPE_COUNTER && changes && value.size != 8)
        return node_query_fail(run->query, ERROR_INVALID,
                               "Invalid null value for counter increment");
    if (!run->write_now)
        return true;
    if (type->kind == TYPE_COUNTER && changes) {
        uint64_t delta = cqr_load_u64(slice_data(value));
        node_write_counter(run->storage, row, column->position,
                           (int64_t)(assignment->kind == ASSIGN_SUBTRACT ? 0 - delta : delta),
                           &run->write);
    } else if (!node_type_is_multi(type)) {
        node_write_cell(run->storage, row, column->position, type, value, &run->write);
    } else if (changes) {
        if (value.size >= 0 && assignment->kind == ASSIGN_SUBTRACT)
            remove_elements(run, row, column, value);
        else if (value.size >= 0)
            write_elements(run, row, column, value, assignment->kind == ASSIGN_PREPEND);
    } else {
        node_write_multi_delete(run->storage, row, column->position,
                                run->write.timestamp - (value.size >= 0));
        if (value.size >= 0)
            write_elements(run, row, column, value, false);
    }
    return true;
}

/* --- one row ---------------------------------------------------------------------------------- */

static bool write_row(struct modify_run *run, cqlring_bytes clustering)
{
    const struct statement *statement = run->statement;
    const struct modify_plan *plan = statement->modify;
    bool statics_only = plan->writes_static_only &&
                        plan->key.clustering_count < statement->table->shape.clustering_count;
    run->row = NULL;
    if (run->write_now && !statics_only) {
        run->row = node_row_make(run->storage, run->partition, clustering);
        if (statement->kind == STATEMENT_INSERT)
            node_write_marker(run->row, &run->write);
    }
    for (const struct assignment *assignment = statement->assignments; assignment != NULL;
         assignment = assignment->next) {
        if (!write_assignment(run, assignment))
            return false;
    }
    ++run->query->engine->rows_written;
    return true;
}

/* DELETE without columns: a row, a range of rows, or the partition. */
static bool delete_rows(struct modify_run *run, const cqlring_bytes *parts, uint16_t count)
{
    const struct node_table *table = run->statement->table;
    const struct key_plan *key = &run->statement->modify->key;
    struct node_range range = {.deleted_at = run->write.timestamp};
    cqlring_bytes prefix = node_compose_clustering(run->query, parts, count);
    range.start = range.end = (struct node_bound){.key = prefix, .parts = count, .inclusive = true};
    for (int side = 0; side < 2; ++side) {
        const struct relation *relation = side == 0 ? key->lower : key->upper;
        if (relation == NULL)
            continue;
        if (relation->multi)
            return node_query_fail(run->query, ERROR_INVALID,
                                   "Multi-column relations are not supported in DELETE here");
        cqlring_bytes bounds[64], value;
        if (count >= 63 || !node_term_value(run->query, relation->value, relation->type,
                                            relation->columns->name, &value))
            return false;
        if (value.size < 0)
            return node_query_fail(run->query, ERROR_INVALID, "Invalid %s value for column %.*s",
                                   value.size == CQLRING_UNSET ? "unset" : "null",
                                   SLICE_ARG(relation->columns->name));
        for (uint16_t i = 0; i < count; ++i)
            bounds[i] = parts[i];
        bounds[count] = value;
        bool lower = (relation->op == OP_GT || relation->op == OP_GE) !=
                     table->clustering_key[count]->reversed;
        struct node_bound *bound = lower ? &range.start : &range.end;
        *bound = (struct node_bound){
            .key = node_compose_clustering(run->query, bounds, (uint16_t)(count + 1)),
            .parts = (uint16_t)(count + 1),
            .inclusive = relation->op == OP_GE || relation->op == OP_LE};
    }
    if (!run->write_now)
        return true;
    ++run->query->engine->rows_written;
    if (count == 0 && key->lower == NULL && key->upper == NULL)
        node_delete_partition(run->storage, run->partition, run->write.timestamp);
    else if (count == table->shape.clustering_count)
        node_delete_row(run->storage, node_row_make(run->storage, run->partition, prefix),
                        run->write.timestamp);
    else
        node_delete_range(run->storage, run->partition, &range);
    return true;
}

/* Each combination of the clustering key's values. */
static bool each_clustering(struct modify_run *run)
{
    const struct node_table *table = run->statement->table;
    const struct key_plan *key = &run->statement->modify->key;
    struct query *query = run->query;
    uint16_t count = key->clustering_count;
    struct value_list *lists = node_arena_alloc(query->arena, (count + 1u) * sizeof *lists);
    cqlring_bytes *parts = node_arena_alloc(query->arena, (count + 1u) * sizeof *parts);
    uint64_t total = 1;
    for (uint16_t i = 0; i < count; ++i) {
        if (!node_relation_values(query, key->clustering[i], table->clustering_key[i]->type,
                                  &lists[i]))
            return false;
        for (uint32_t j = 0; j < lists[i].count; ++j) {
            if (lists[i].values[j].size > 0xFFFF)
                return node_query_fail(query, ERROR_INVALID,
                                       "Key length of %d is longer than maximum of 65535",
                                       lists[i].values[j].size);
        }
        total *= lists[i].count;
        if (total > 10000)
            return node_query_fail(query, ERROR_INVALID, "Too many clustering keys in IN");
    }
    for (uint64_t i = 0; i < total; ++i) {
        uint64_t rest = i;
        for (uint16_t j = count; j-- > 0;) {
            parts[j] = lists[j].values[rest % lists[j].count];
            rest /= lists[j].count;
        }
        bool fine = run->statement->modify->whole_row
                        ? delete_rows(run, parts, count)
                        : write_row(run, node_compose_clustering(query, parts, count));
        if (!fine)
            return false;
    }
    return true;
}

bool node_modify_apply(struct query *query, const struct statement *statement, int64_t timestamp,
                       bool write_now)
{
    struct modify_run run = {.query = query,
                             .statement = statement,
                             .storage = node_storage_of(query, statement->table),
                             .write_now = write_now};
    uint32_t ttl;
    cqlring_bytes *keys;
    uint32_t count;
    if (!timestamp_of(query, statement, timestamp, &run.write.timestamp) ||
        !time_to_live(query, statement, &ttl) ||
        !node_partition_keys(query, statement, &statement->modify->key, &keys, &count))
        return false;
    run.write.ttl = ttl;
    run.write.expires = ttl == 0 ? 0 : node_query_second(query) + ttl;
    struct node_engine *engine = query->engine;
    if (write_now && engine->bytes > engine->options->storage_max &&
        statement->kind != STATEMENT_DELETE && !statement->table->is_system)
        return node_query_fail(query, ERROR_OVERLOADED, "The node's storage is full");
    uint64_t before = run.storage->bytes;
    bool fine = true;
    for (uint32_t i = 0; fine && i < count; ++i) {
        int64_t token = cqr_murmur3(keys[i].data, (uint32_t)keys[i].size);
        if (!statement->table->is_system &&
            !node_check_alive(query, statement->table->keyspace, token))
            return false;
        if (write_now)
            run.partition = node_partition_make(run.storage, keys[i], token);
        fine = each_clustering(&run);
    }
    engine->bytes += run.storage->bytes - before;
    return fine;
}
