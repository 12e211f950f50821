/* SPDX-License-Identifier: Apache-2.0 */
/* Single modifications and batches: conditions looked at, everything written or nothing, and the
   answer. */
#include "tests/node/modify.h"

#include "cql/token.h"

/* --- conditions ------------------------------------------------------------------------------- */

/* The row a conditional statement is about. */
static bool view_target(struct query *query, const struct statement *statement,
                        struct row_view *view, cqlring_bytes *partition_key)
{
    const struct node_table *table = statement->table;
    const struct key_plan *key = &statement->modify->key;
    cqlring_bytes *keys;
    uint32_t count;
    if (!node_partition_keys(query, statement, key, &keys, &count))
        return false;
    if (count != 1)
        return node_query_fail(query, ERROR_INVALID,
                               "IN on the partition key is not supported with conditional updates");
    *view = (struct row_view){.table = table,
                              .storage = node_storage_of(query, statement->table),
                              .now = node_query_second(query)};
    view->row_deleted_at = view->fixed_deleted_at = NODE_NO_TIME;
    *partition_key = keys[0];
    view->partition = node_partition_find(view->storage, keys[0],
                                          cqr_murmur3(keys[0].data, (uint32_t)keys[0].size));
    if (view->partition == NULL)
        return true;
    if (view->partition->fixed != NULL)
        view->fixed_deleted_at = node_row_deleted_at(view->partition, view->partition->fixed);
    if (key->clustering_count < table->shape.clustering_count)
        return true; /* static columns only */
    cqlring_bytes parts[64];
    for (uint16_t i = 0; i < key->clustering_count && i < 64; ++i) {
        struct value_list list;
        if (!node_relation_values(query, key->clustering[i], table->clustering_key[i]->type, &list))
            return false;
        if (list.count != 1)
            return node_query_fail(
                query, ERROR_INVALID,
                "IN on the clustering key columns is not supported with conditional updates");
        parts[i] = list.values[0];
    }
    const struct node_row *row = node_row_find(
        view->storage, view->partition,
        node_compose_clustering(query, parts, key->clustering_count));
    if (row != NULL && node_row_is_live(view->storage, view->partition, row, false, view->now)) {
        view->row = row;
        view->row_deleted_at = node_row_deleted_at(view->partition, row);
    }
    return true;
}

static bool view_exists(const struct statement *statement, const struct row_view *view)
{
    if (view->partition == NULL)
        return false;
    if (statement->modify->key.clustering_count < statement->table->shape.clustering_count)
        return node_row_is_live(view->storage, view->partition, view->partition->fixed, true,
                                view->now);
    return view->row != NULL;
}

static bool condition_holds(struct query *query, const struct statement *statement,
                            const struct row_view *view, bool *applied)
{
    *applied = true;
    bool exists = view_exists(statement, view);
    if (statement->if_not_exists)
        *applied = !exists;
    if (statement->if_exists)
        *applied = exists;
    /* A partition that is not there has only nulls: stand-ins keep the view whole. */
    static const struct node_partition nowhere = {.deleted_at = NODE_NO_TIME};
    struct row_view looked = *view;
    if (looked.partition == NULL)
        looked.partition = &nowhere;
    for (const struct relation *relation = statement->conditions; relation != NULL && *applied;
         relation = relation->next) {
        bool matches;
        if (!node_view_matches(query, &looked, relation, &matches))
            return false;
        *applied = matches;
    }
    return true;
}

/* --- the answer of conditional statements ----------------------------------------------------- */

static void add_column(struct output *outputs, uint32_t *count, struct selector *selectors,
                       struct node_column *column)
{
    for (uint32_t i = 1; i < *count; ++i) {
        if (outputs[i].selector->column == column)
            return;
    }
    struct selector *selector = &selectors[*count];
    *selector = (struct selector){.kind = SELECT_COLUMN, .column = column, .type = column->type};
    outputs[(*count)++] = (struct output){
        .label = column->name, .type = column->type, .selector = selector};
}

/* ROWS with [applied], and with the columns that tell why not. */
static bool put_applied(struct query *query, struct batch_part *parts, uint32_t count, bool applied,
                        bool in_batch)
{
    const struct statement *first = NULL;
    for (uint32_t i = 0; i < count && first == NULL; ++i) {
        if (parts[i].statement->modify->conditional)
            first = parts[i].statement;
    }
    const struct node_table *table = first->table;
    struct output *outputs = node_arena_alloc(query->arena,
                                              (table->column_count + 1u) * sizeof *outputs);
    struct selector *selectors = node_arena_alloc(query->arena,
                                                  (table->column_count + 1u) * sizeof *selectors);
    uint32_t columns = 1;
    outputs[0] = (struct output){
        .label = slice_text("[applied]"), .type = &node_type_boolean, .selector = &selectors[0]};
    struct row_view *views = node_arena_alloc(query->arena, count * sizeof *views);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count && !applied; ++i) {
        const struct statement *statement = parts[i].statement;
        cqlring_bytes key;
        query->values = parts[i].values;
        query->value_count = parts[i].value_count;
        if (!statement->modify->conditional || statement->table != table ||
            !view_target(query, statement, &views[rows], &key))
            continue;
        if (statement->if_not_exists) {
            for (struct node_column *column = table->columns; column != NULL; column = column->next)
                add_column(outputs, &columns, selectors, column);
        } else if (views[rows].partition != NULL && statement->conditions != NULL) {
            for (struct node_column *column = table->columns;
                 in_batch && column != NULL && column->kind <= COLUMN_CLUSTERING;
                 column = column->next)
                add_column(outputs, &columns, selectors, column);
            for (const struct relation *relation = statement->conditions; relation != NULL;
                 relation = relation->next)
                add_column(outputs, &columns, selectors, relation->columns->column);
        }
        if (views[rows].partition != NULL && rows + 1 < count)
            ++rows;
        else if (views[rows].partition != NULL)
            rows = count;
    }
    if (rows == 0)
        columns = 1;
    uint32_t lines = rows == 0 ? 1 : rows;
    out_u32(query->body, RESULT_ROWS);
    node_put_columns(query, table, outputs, columns, 0, SLICE_NULL, NULL);
    out_u32(query->body, lines);
    for (uint32_t i = 0; i < lines; ++i) {
        out_u32(query->body, 1);
        out_u8(query->body, applied);
        for (uint32_t j = 1; j < columns; ++j)
            out_bytes(query->body, node_view_value(query, &views[i], outputs[j].selector->column));
    }
    query->rows = lines;
    query->applied = applied;
    return true;
}

static bool run_conditional(struct query *query, struct batch_part *parts, uint32_t count,
                            int64_t timestamp, bool in_batch)
{
    bool applied = true;
    cqlring_bytes first_key = SLICE_NULL;
    const struct node_table *table = NULL;
    for (uint32_t i = 0; i < count; ++i) {
        const struct statement *statement = parts[i].statement;
        struct row_view view;
        cqlring_bytes key;
        query->values = parts[i].values;
        query->value_count = parts[i].value_count;
        if (!view_target(query, statement, &view, &key))
            return false;
        if (table != NULL && statement->table != table)
            return node_query_fail(query, ERROR_INVALID,
                                   "Batch with conditions cannot span multiple tables");
        if (table != NULL && !slice_equal(key, first_key))
            return node_query_fail(query, ERROR_INVALID,
                                   "Batch with conditions cannot span multiple partitions");
        table = statement->table;
        first_key = key;
        bool holds = true;
        if (statement->modify->conditional && !condition_holds(query, statement, &view, &holds))
            return false;
        applied = applied && holds;
    }
    for (uint32_t i = 0; i < count && applied && !query->void_mode; ++i) {
        query->values = parts[i].values;
        query->value_count = parts[i].value_count;
        if (!node_modify_apply(query, parts[i].statement, timestamp, true))
            return false;
    }
    return put_applied(query, parts, count, applied, in_batch);
}

/* --- batches ---------------------------------------------------------------------------------- */

static bool check_batch(struct query *query, uint8_t kind, const struct batch_part *parts,
                        uint32_t count, bool *conditional)
{
    uint64_t bytes = 0;
    *conditional = false;
    const struct node_table *table = NULL;
    bool several = false;
    for (uint32_t i = 0; i < count; ++i) {
        const struct statement *statement = parts[i].statement;
        if (statement->kind < STATEMENT_INSERT || statement->kind > STATEMENT_DELETE)
            return node_query_fail(
                query, ERROR_INVALID,
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.");
        if (statement->modify->is_counter && kind == BATCH_LOGGED)
            return node_query_fail(query, ERROR_INVALID,
                                   "Cannot include a counter statement in a logged batch");
        if (!statement->modify->is_counter && kind == BATCH_COUNTER)
            return node_query_fail(query, ERROR_INVALID,
                                   "Cannot include non-counter statement in a counter batch");
        if (statement->modify->is_counter != parts[0].statement->modify->is_counter)
            return node_query_fail(
                query, ERROR_INVALID,
                "Counter and non-counter mutations cannot exist in the same batch");
        *conditional = *conditional || statement->modify->conditional;
        for (uint16_t j = 0; j < parts[i].value_count; ++j)
            bytes += parts[i].values[j].size > 0 ? (uint64_t)parts[i].values[j].size : 0;
        query->values = parts[i].values;
        query->value_count = parts[i].value_count;
        int64_t token = query->token;
        bool had = query->has_token;
        node_find_token(query, statement);
        several = several || (i > 0 && (table != statement->table || !had || !query->has_token ||
                                        token != query->token));
        table = statement->table;
    }
    const struct node_options *options = query->engine->options;
    if ((several || (count > 1 && options->batch_size_single)) && bytes > options->batch_size_fail)
        return node_query_fail(query, ERROR_INVALID, "Batch too large");
    return true;
}

bool node_run_modify_batch(struct query *query, uint8_t kind, struct batch_part *parts,
                           uint32_t count, const struct statement *root)
{
    bool conditional;
    if (!check_batch(query, kind, parts, count, &conditional))
        return false;
    if (count > 0) { /* the whole batch is routed by its first statement */
        query->values = parts[0].values;
        query->value_count = parts[0].value_count;
        node_find_token(query, parts[0].statement);
    }
    int64_t timestamp = node_query_timestamp(query);
    if (root != NULL && root->timestamp != NULL) {
        cqlring_bytes value;
        if (!node_term_value(query, root->timestamp, &node_type_bigint, slice_text("[timestamp]"),
                             &value))
            return false;
        if (value.size == 8)
            timestamp = (int64_t)cqr_load_u64(slice_data(value));
    }
    if (conditional)
        return run_conditional(query, parts, count, timestamp, true);
    for (int pass = 0; pass < (query->void_mode ? 1 : 2); ++pass) {
        for (uint32_t i = 0; i < count; ++i) {
            query->values = parts[i].values;
            query->value_count = parts[i].value_count;
            if (!node_modify_apply(query, parts[i].statement, timestamp, pass == 1))
                return false;
        }
    }
    query->applied = true;
    node_put_void(query->body);
    return true;
}

bool node_run_modify(struct query *query, struct statement *statement)
{
    int64_t timestamp = node_query_timestamp(query);
    if (statement->modify->conditional) {
        struct batch_part part = {
            .statement = statement, .values = query->values, .value_count = query->value_count};
        return run_conditional(query, &part, 1, timestamp, false);
    }
    if (!query->void_mode && !node_modify_apply(query, statement, timestamp, true))
        return false;
    query->applied = true;
    node_put_void(query->body);
    return true;
}
