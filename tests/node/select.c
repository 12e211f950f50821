/* SPDX-License-Identifier: Apache-2.0 */
/* SELECT: partitions one after the other, rows of each in order, filters, limits, pages.

   A page ends behind its last row; the paging state (paging.c) names that row and what the limits have left. */
#include "tests/node/engine_private.h"

#include "cql/token.h"
#include "tests/node/aggregate.h"

enum { SELECT_BODY_MAX = 255 << 20 };

struct select_run {
    struct query *query;
    struct statement *statement;
    const struct select_plan *plan;
    struct row_view view;
    struct node_bound lower, upper; /* of clustering keys, in the table's order */
    uint64_t limit;                 /* rows still to give */
    uint64_t partition_limit;       /* per partition */
    uint64_t partition_given;       /* in the current one */
    uint64_t page_left;
    uint32_t count;
    bool more;          /* the page is full and another row exists */
    size_t last_row_at; /* where the last row starts in the rows' buffer */
    struct aggregate *aggregate;
    struct paging_point from;    /* where the page begins */
    struct paging_point last;    /* its last row so far; where it began while there is none */
    struct value_list in_values; /* IN of the last restricted clustering column */
    uint16_t in_position;
    struct node_arena *outer; /* the query's, while rows use their own */
};

/* --- one row ---------------------------------------------------------------------------------- */

static void put_writetime(struct select_run *run, const struct selector *selector)
{
    struct out *body = run->query->body;
    const struct node_column *column = selector->column;
    bool fixed = column->kind == COLUMN_STATIC, is_ttl = selector->kind == SELECT_TTL;
    const struct node_row *row = fixed ? run->view.partition->fixed : run->view.row;
    int64_t deleted_at = fixed ? run->view.fixed_deleted_at : run->view.row_deleted_at;
    const struct node_cell *cell = NULL;
    if (row != NULL && column->position < row->slot_count &&
        row->slots[column->position].cell != NULL) {
        if (node_type_is_multi(column->type)) {
            uint32_t index = 0;
            const struct node_element *element = node_multi_next(row->slots[column->position].multi,
                                                                 deleted_at, run->view.now, &index);
            cell = element == NULL ? NULL : element->cell;
        } else {
            cell = row->slots[column->position].cell;
        }
    }
    if (!node_cell_is_live(cell, deleted_at, run->view.now) || (is_ttl && cell->expires == 0)) {
        out_u32(body, (uint32_t)CQLRING_NULL);
    } else if (is_ttl) {
        out_u32(body, 4);
        out_u32(body, cell->expires - run->view.now);
    } else {
        out_u32(body, 8);
        out_u64(body, (uint64_t)cell->timestamp);
    }
}

static bool put_row(struct select_run *run)
{
    struct out *body = run->query->body;
    run->last_row_at = body->size;
    for (uint32_t i = 0; i < run->plan->output_count; ++i) {
        const struct selector *selector = run->plan->outputs[i].selector;
        if (selector->kind == SELECT_WRITETIME || selector->kind == SELECT_TTL) {
            put_writetime(run, selector);
            continue;
        }
        cqlring_bytes value;
        if (!node_selector_value(run->query, &run->view, selector, &value))
            return false;
        out_bytes(body, value);
    }
    if (run->query->fault.extra_column != 0)
        out_bytes(body, slice_text("extra"));
    ++run->count;
    if (body->size > SELECT_BODY_MAX)
        return node_query_fail(run->query, ERROR_INVALID,
                               "The answer is too large: use a page size");
    return true;
}

/* A row that fulfils the key restrictions. false: stop everything (query->code tells whether it
   failed). */
static bool take_row(struct select_run *run)
{
    struct query *query = run->query;
    for (uint32_t i = 0; i < run->plan->filter_count; ++i) {
        bool matches;
        if (!node_view_matches(query, &run->view, run->plan->filters[i], &matches))
            return false;
        if (!matches)
            return true;
    }
    if (run->aggregate != NULL)
        return node_aggregate_row(run->aggregate, query, &run->view);
    if (run->limit == 0)
        return false;
    if (run->page_left == 0 || run->query->fault.empty_page) {
        run->more = true;
        return false;
    }
    if (!put_row(run))
        return false;
    --run->limit;
    --run->page_left;
    ++run->partition_given;
    const struct node_partition *partition = run->view.partition;
    const struct node_row *row = run->view.row;
    run->last = (struct paging_point){
        .inside = true,
        .token = partition->token,
        .key = slice_of(partition->key, partition->key_size),
        .has_row = row != NULL,
        .row = row == NULL ? slice_of("", 0) : slice_of(row->key, row->key_size),
        .limit = run->limit,
        .given = run->partition_given,
    };
    return true;
}

/* --- one partition ---------------------------------------------------------------------------- */

static bool within(const struct select_run *run, const struct node_row *row, bool *beyond)
{
    cqlring_bytes key = slice_of(row->key, row->key_size);
    int low = run->lower.parts == 0
                  ? 1
                  : node_row_compare_bound(&run->statement->table->shape, key, &run->lower);
    int high = run->upper.parts == 0
                   ? -1
                   : node_row_compare_bound(&run->statement->table->shape, key, &run->upper);
    bool above = low > 0 || (low == 0 && run->lower.inclusive),
         below = high < 0 || (high == 0 && run->upper.inclusive);
    *beyond = run->plan->reversed ? !above : !below;
    return above && below;
}

/* IN on the last restricted clustering column: is the row's component one of them? */
static bool in_matches(const struct select_run *run, const struct node_row *row)
{
    if (run->in_values.values == NULL)
        return true;
    const struct node_type *type = run->statement->table->shape.clustering_types[run->in_position];
    cqlring_bytes part = node_key_part(slice_of(row->key, row->key_size), run->in_position);
    uint32_t low = 0, high = run->in_values.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = node_value_compare(type, run->in_values.values[middle], part);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void view_partition(struct select_run *run, const struct node_partition *partition)
{
    run->view.partition = partition;
    run->view.row = NULL;
    run->view.row_deleted_at = NODE_NO_TIME;
    run->view.fixed_deleted_at = partition->fixed == NULL
                                     ? NODE_NO_TIME
                                     : node_row_deleted_at(partition, partition->fixed);
}

static struct order_at first_row(const struct select_run *run,
                                 const struct node_partition *partition, bool resumed)
{
    const struct node_storage *storage = run->view.storage;
    const struct node_shape *shape = &run->statement->table->shape;
    if (!run->plan->reversed) {
        struct node_bound start = run->lower;
        if (resumed)
            start = (struct node_bound){
                .key = run->from.row, .parts = shape->clustering_count, .inclusive = false};
        return node_row_seek(storage, partition, &start);
    }
    /* Backwards: the first row that is behind the upper bound, then one step back. */
    struct node_bound end = run->upper;
    end.inclusive = !run->upper.inclusive && run->upper.parts > 0;
    if (resumed)
        end = (struct node_bound){
            .key = run->from.row, .parts = shape->clustering_count, .inclusive = true};
    if (end.parts == 0)
        return (struct order_at){partition->rows.chunk_count, 0};
    return node_row_seek(storage, partition, &end);
}

static bool run_rows(struct select_run *run, const struct node_partition *partition, bool resumed,
                     bool *any)
{
    struct order_at at = first_row(run, partition, resumed);
    bool reversed = run->plan->reversed;
    if (reversed && !node_order_previous(&partition->rows, &at))
        return true;
    for (;;) {
        const struct node_row *row = node_order_get(&partition->rows, at);
        if (row == NULL)
            return true;
        bool beyond;
        bool inside = within(run, row, &beyond);
        if (beyond)
            return true;
        if (inside && node_row_is_live(run->view.storage, partition, row, false, run->view.now)) {
            *any = true;
            run->view.row = row;
            run->view.row_deleted_at = node_row_deleted_at(partition, row);
            if (run->partition_given >= run->partition_limit)
                return true;
            if (in_matches(run, row)) {
                if (!take_row(run))
                    return false;
                if (run->plan->statics_only)
                    return true;
            }
            node_arena_reset(run->query->arena);
        }
        if (reversed && !node_order_previous(&partition->rows, &at))
            return true;
        if (!reversed)
            at = node_order_next(&partition->rows, at);
    }
}

/* false: the page is full, or failed. */
static bool run_partition(struct select_run *run, const struct node_partition *partition)
{
    bool resumed = run->from.inside && partition->token == run->from.token &&
                   slice_equal(slice_of(partition->key, partition->key_size), run->from.key);
    if (!resumed)
        run->partition_given = 0;
    view_partition(run, partition);
    if (run->aggregate != NULL)
        node_aggregate_partition(run->aggregate);
    bool any = false;
    if (resumed && (run->plan->statics_only || !run->from.has_row ||
                    run->statement->table->shape.clustering_count == 0))
        return true;
    if (!run_rows(run, partition, resumed, &any))
        return false;
    bool restricted = run->lower.parts > 0 || run->upper.parts > 0 || run->in_values.values != NULL;
    /* A partition of which only the static row lives is a row with nulls. */
    if (!any && !resumed && !restricted &&
        node_row_is_live(run->view.storage, partition, partition->fixed, true, run->view.now)) {
        view_partition(run, partition);
        if (run->partition_limit > 0 && !take_row(run))
            return false;
    }
    return true;
}

/* --- bounds ----------------------------------------------------------------------------------- */

/* Bounds over the clustering key from an = prefix and slices of the next component. */
static bool make_bounds(struct select_run *run)
{
    struct query *query = run->query;
    const struct key_plan *key = &run->plan->key;
    const struct node_table *table = run->statement->table;
    run->lower = run->upper = (struct node_bound){.key = {"", 0}, .inclusive = true};
    cqlring_bytes *parts = node_arena_alloc(run->outer,
                                            (table->shape.clustering_count + 1u) * sizeof *parts);
    uint16_t count = 0;
    for (uint16_t i = 0; i < key->clustering_count; ++i) {
        struct value_list list;
        if (!node_relation_values(query, key->clustering[i], table->clustering_key[i]->type, &list))
            return false;
        if (key->clustering[i]->op == OP_EQ && count == i) {
            parts[count++] = list.values[0];
        } else if (i + 1 == key->clustering_count && key->lower == NULL && key->upper == NULL &&
                   key->clustering[i]->op == OP_IN && count == i) {
            run->in_values = list;
            run->in_position = i;
        } else {
            /* IN in the middle: checked row by row, like a filter. */
            struct select_plan *plan = node_arena_alloc(run->outer, sizeof *plan);
            *plan = *run->plan;
            if (plan->filter_count == sizeof plan->filters / sizeof plan->filters[0])
                return node_query_fail(query, ERROR_INVALID, "Too many restrictions");
            plan->filters[plan->filter_count++] = key->clustering[i];
            run->plan = plan;
            key = &plan->key;
        }
    }
    cqlring_bytes prefix = node_compose_clustering(query, parts, count);
    run->lower.key = run->upper.key = prefix;
    run->lower.parts = run->upper.parts = count;
    for (int side = 0; side < 2; ++side) {
        const struct relation *relation = side == 0 ? key->lower : key->upper;
        if (relation == NULL)
            continue;
        cqlring_bytes value;
        if (!node_term_value(query, relation->value, relation->type, relation->columns->name,
                             &value))
            return false;
        if (value.size < 0)
            return node_query_fail(query, ERROR_INVALID, "Invalid %s value for column %.*s",
                                   value.size == CQLRING_UNSET ? "unset" : "null",
                                   SLICE_ARG(relation->columns->name));
        uint16_t used = count;
        if (relation->multi) {
            used = 0;
            for (const struct name_list *name = relation->columns; name != NULL;
                 name = name->next, ++used)
                parts[used] = node_tuple_field(value, used);
            for (uint16_t i = 0; i < used; ++i) {
                if (parts[i].size < 0)
                    return node_query_fail(query, ERROR_INVALID,
                                           "Invalid null value in condition for column %.*s",
                                           SLICE_ARG(relation->columns->name));
            }
        } else if (count == key->clustering_count) {
            parts[used++] = value;
        } else { /* behind an IN in the middle */
            return node_query_fail(
                query, ERROR_INVALID,
                "Slices behind an IN of a clustering column are not supported here");
        }
        bool inclusive = relation->op == OP_GE || relation->op == OP_LE;
        bool lower = (relation->op == OP_GT || relation->op == OP_GE) !=
                     table->clustering_key[relation->columns->column->position]->reversed;
        struct node_bound *bound = lower ? &run->lower : &run->upper;
        *bound = (struct node_bound){.key = node_compose_clustering(query, parts, used),
                                     .parts = used,
                                     .inclusive = inclusive};
    }
    return true;
}

/* The right side of a restriction on token(): a number, or token() of values. */
static bool token_value(struct query *query, const struct statement *statement,
                        const struct relation *relation, int64_t *token)
{
    cqlring_bytes value;
    const struct term *term = relation->value;
    if (term->kind == TERM_CALL && node_slice_is_nocase(term->text, "token")) {
        const struct node_table *table = statement->table;
        cqlring_bytes *parts = node_arena_alloc(query->arena,
                                                table->partition_count * sizeof *parts);
        uint16_t index = 0;
        for (const struct term *child = term->children; child != NULL;
             child = child->next, ++index) {
            const struct node_column *column = table->partition_key[index];
            if (!node_term_value(query, child, column->type, column->name, &parts[index]))
                return false;
            if (parts[index].size < 0 || parts[index].size > 0xFFFF)
                return node_query_fail(query, ERROR_INVALID,
                                       "Invalid null value for the token of the partition key");
        }
        value = node_compose_key(query, parts, table->partition_count);
        *token = cqr_murmur3(value.data, (uint32_t)value.size);
        return true;
    }
    if (!node_term_value(query, term, &node_type_bigint, slice_text("partition key token"), &value))
        return false;
    if (value.size != 8)
        return node_query_fail(query, ERROR_INVALID,
                               "Invalid null value for the token of the partition key");
    *token = (int64_t)cqr_load_u64(slice_data(value));
    return true;
}

/* --- which partitions ------------------------------------------------------------------------- */

static bool run_scan(struct select_run *run)
{
    const struct key_plan *key = &run->plan->key;
    int64_t low = INT64_MIN, high = INT64_MAX;
    bool low_open = false, high_open = false;
    if (key->token_equal != NULL) {
        if (!token_value(run->query, run->statement, key->token_equal, &low))
            return false;
        high = low;
    }
    if (key->token_lower != NULL) {
        if (!token_value(run->query, run->statement, key->token_lower, &low))
            return false;
        low_open = key->token_lower->op == OP_GT && low != INT64_MIN;
    }
    if (key->token_upper != NULL) {
        if (!token_value(run->query, run->statement, key->token_upper, &high))
            return false;
        high_open = key->token_upper->op == OP_LT &&
                    high != INT64_MIN; /* < the minimum token: the end of the ring */
        if (high == INT64_MIN)
            high = INT64_MAX;
    }
    struct node_storage *storage = run->view.storage;
    node_storage_settle(storage);
    struct order_at at = run->from.inside
                             ? node_partition_seek(storage, run->from.token, run->from.key)
                             : node_partition_seek(storage, low, SLICE_NULL);
    for (;; at = node_order_next(&storage->by_token, at)) {
        const struct node_partition *partition = node_order_get(&storage->by_token, at);
        if (partition == NULL || partition->token > high || (high_open && partition->token == high))
            return true;
        if (low_open && partition->token == low)
            continue;
        if (!run_partition(run, partition))
            return run->query->code < 0;
    }
}

static bool run_keys(struct select_run *run)
{
    cqlring_bytes *keys;
    uint32_t count;
    run->query->arena = run->outer;
    struct node_arena rows = {0};
    bool fine = node_partition_keys(run->query, run->statement, &run->plan->key, &keys, &count);
    bool reached = !run->from.inside;
    run->query->arena = &rows;
    for (uint32_t i = 0; fine && i < count; ++i) {
        if (!reached && !slice_equal(keys[i], run->from.key))
            continue;
        reached = true;
        int64_t token = cqr_murmur3(keys[i].data, (uint32_t)keys[i].size);
        if (!run->statement->table->is_system &&
            !node_check_alive(run->query, run->statement->table->keyspace, token)) {
            fine = false;
            break;
        }
        const struct node_partition *partition = node_partition_find(run->view.storage, keys[i],
                                                                     token);
        if (partition != NULL && !run_partition(run, partition)) {
            fine = run->query->code < 0;
            break;
        }
    }
    node_arena_fini(&rows);
    return fine;
}

static bool run_all(struct select_run *run)
{
    if (run->plan->key.partition_whole)
        return run_keys(run);
    struct node_arena rows = {0};
    run->query->arena = &rows;
    bool fine = run_scan(run);
    node_arena_fini(&rows);
    return fine;
}

/* --- the whole -------------------------------------------------------------------------------- */

static uint64_t statement_hash(const struct select_run *run)
{
    const struct node_table *table = run->statement->table;
    return run->plan->hash ^ cqr_load_u64(table->id) ^ cqr_load_u64(table->id + 8);
}

static bool limit_value(struct query *query, const struct term *term, const char *what,
                        uint64_t *limit)
{
    *limit = UINT64_MAX;
    if (term == NULL)
        return true;
    cqlring_bytes value;
    if (!node_term_value(query, term, &node_type_int, slice_text(what), &value))
        return false;
    if (value.size == CQLRING_UNSET)
        return true;
    if (value.size != 4)
        return node_query_fail(query, ERROR_INVALID, "Invalid null value of limit");
    int32_t number = (int32_t)cqr_load_u32(slice_data(value));
    if (number <= 0)
        return node_query_fail(query, ERROR_INVALID, "LIMIT must be strictly positive");
    *limit = (uint64_t)number;
    return true;
}

static bool start(struct select_run *run)
{
    struct query *query = run->query;
    if (!limit_value(query, run->statement->partition_limit, "[per_partition_limit]",
                     &run->partition_limit) ||
        !limit_value(query, run->statement->limit, "[limit]", &run->limit) || !make_bounds(run))
        return false;
    const struct query_params *params = query->params;
    run->page_left = UINT64_MAX;
    if (params != NULL && params->page_size > 0)
        run->page_left = (uint64_t)params->page_size + query->fault.page_extra;
    if (params != NULL && params->paging_state.data != NULL) {
        if (!node_paging_decode(query, statement_hash(run), params->paging_state, &run->from))
            return false;
        run->limit = run->from.limit;
        run->partition_given = run->from.given;
    }
    run->last = run->from;
    run->last.limit = run->limit;
    const struct node_table *table = run->statement->table;
    if (!table->is_system && !run->plan->key.partition_whole && query->engine->down_count > 0 &&
        !node_check_alive(query, table->keyspace, 0))
        return false;
    if (run->statement->order_by != NULL && run->plan->key.partition_whole &&
        !run->plan->key.partition_single && params != NULL && params->page_size > 0)
        return node_query_fail(
            query, ERROR_INVALID,
            "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove the ORDER BY or the IN and sort client "
            "side, or disable paging for this query");
    return true;
}

/* The last row's first cell becomes three bytes long. */
static void spoil_cell(const struct select_run *run, struct out *rows)
{
    struct out whole = {0};
    struct reader reader;
    node_reader_init(&reader, rows->data + run->last_row_at,
                     (uint32_t)(rows->size - run->last_row_at));
    (void)cqr_get_bytes(&reader);
    out_raw(&whole, rows->data, run->last_row_at);
    out_bytes(&whole, slice_text("bad"));
    out_raw(&whole, reader.at, cqr_reader_left(&reader));
    node_out_fini(rows);
    *rows = whole;
}

bool node_run_select(struct query *query, struct statement *statement)
{
    struct select_run run = {
        .query = query, .statement = statement, .plan = statement->plan, .outer = query->arena};
    run.view = (struct row_view){.table = statement->table,
                                 .storage = node_storage_of(query, statement->table),
                                 .now = node_query_second(query)};
    run.from.key = run.from.row = slice_of("", 0);
    if (slice_is(statement->table->keyspace->name, "system_schema"))
        node_system_show(query->engine, query->now_us);
    if (!start(&run))
        return false;
    struct out *body = query->body;
    struct aggregate aggregate = {0};
    struct out rows = {0};
    if (run.plan->aggregate) {
        node_aggregate_init(&aggregate, run.plan);
        run.aggregate = &aggregate;
    }
    /* Rows first, into a buffer of their own: the metadata in front must tell whether there are
       more. */
    query->body = &rows;
    bool fine = query->fault.no_rows || run_all(&run);
    query->arena = run.outer;
    if (fine && run.aggregate != NULL)
        run.count = node_aggregate_finish(&aggregate, query, run.limit);
    query->body = body;
    if (fine) {
        if (query->fault.bad_cell && run.count > 0)
            spoil_cell(&run, &rows);
        cqlring_bytes state = SLICE_NULL;
        if (run.more)
            state = node_paging_encode(run.outer, statement_hash(&run), query->version, &run.last);
        node_put_rows(query, statement, state, run.count, &rows);
        query->rows = run.count;
        query->engine->rows_read += run.count;
    }
    if (run.aggregate != NULL)
        node_aggregate_fini(&aggregate);
    node_out_fini(&rows);
    return fine;
}
