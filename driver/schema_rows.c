/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/schema_rows.h"

#include <stdlib.h>

#include "driver/schema_unit.h"
#include "serialize/type.h"

enum { TYPE_PASSES_MAX = CQLRING_DEPTH_MAX, PARTS_MAX = 65535 };

/* ---- cells, copied into the unit's arena ---- */

/* A copy in the unit's arena, "" for null; NULL when out of memory. */
static const char *text_of(struct unit *unit, cqlring_bytes value)
{
    return value.size <= 0 ? "" : cqr_arena_text(&unit->arena, value.data, (size_t)value.size);
}

static const char *const *texts_of(struct unit *unit, cqlring_bytes value, uint32_t *count)
{
    struct elements elements = cell_elements(value, 1);
    const char **texts = cqr_arena_array(&unit->arena, elements.count + 1, sizeof *texts);
    *count = elements.count;
    for (uint32_t i = 0; texts != NULL && i < elements.count; i++) {
        texts[i] = text_of(unit, cqr_get_bytes(&elements.reader));
        if (texts[i] == NULL)
            return NULL;
    }
    return texts;
}

static const cqlring_schema_pair *pairs_of(struct unit *unit, cqlring_bytes value, uint32_t *count)
{
    struct elements elements = cell_elements(value, 2);
    cqlring_schema_pair *pairs = cqr_arena_array(&unit->arena, elements.count + 1, sizeof *pairs);
    *count = elements.count;
    for (uint32_t i = 0; pairs != NULL && i < elements.count; i++) {
        pairs[i].name = text_of(unit, cqr_get_bytes(&elements.reader));
        pairs[i].value = text_of(unit, cqr_get_bytes(&elements.reader));
        if (pairs[i].name == NULL || pairs[i].value == NULL)
            return NULL;
    }
    return pairs;
}

/* ---- finding ---- */

static struct unit *unit_find(struct schema_draft *draft, cqlring_bytes name)
{
    if (draft->last != NULL && cell_is(name, draft->last->public.name))
        return draft->last;
    for (uint32_t i = 0; i < draft->count; i++)
        if (cell_is(name, draft->units[i]->public.name))
            return draft->last = draft->units[i];
    return NULL;
}

static struct table *table_find(struct unit *unit, cqlring_bytes name)
{
    if (unit->last != NULL && cell_is(name, unit->last->public.name))
        return unit->last;
    if (unit->last != NULL)
        cqr_columns_sort(unit->last); /* its rows came together: this one is whole */
    return unit->last = cqr_named_find(unit->tables.items, unit->tables.count, name);
}

/* ---- types ---- */

static const cqlring_type *type_resolve(cqlring_bytes keyspace, cqlring_bytes name, void *context)
{
    struct unit *unit = context;
    if (keyspace.size > 0 && !cell_is(keyspace, unit->public.name))
        return NULL;
    const cqlring_schema_type *found = cqr_named_find(unit->types.items, unit->types.count, name);
    return found == NULL ? NULL : found->type;
}

/* OK with *type NULL when it is none that we know. */
static cqlring_status type_read(struct unit *unit, const char *text, const cqlring_type **type)
{
    *type = NULL;
    cqlring_status status = cqr_type_from_cql(&unit->arena, cqlring_text(text), type_resolve, unit, type);
    return status == CQLRING_NO_MEMORY ? status : CQLRING_OK;
}

static cqlring_status udt_read(struct unit *unit, cqlring_schema_type *udt)
{
    struct type_builder builder;
    cqr_builder_init(&builder, &unit->arena);
    cqlring_status status = udt->field_count == 0 ? CQLRING_TYPE
                                                  : cqr_builder_open_udt(&builder, cqlring_text(udt->keyspace), cqlring_text(udt->name), udt->field_count);
    for (uint32_t i = 0; status == CQLRING_OK && i < udt->field_count; i++) {
        const cqlring_type *type = NULL;
        status = type_read(unit, udt->field_types[i], &type);
        if (status == CQLRING_OK)
            status = type == NULL ? CQLRING_TYPE : cqr_builder_field(&builder, cqlring_text(udt->field_names[i]));
        if (status == CQLRING_OK)
            status = cqr_builder_add(&builder, type);
    }
    if (status == CQLRING_OK)
        udt->type = builder.root;
    return status == CQLRING_NO_MEMORY ? status : CQLRING_OK;
}

/* Types may use one another, in any order of their names but never in a circle, and never deeper than CQLRING_DEPTH_MAX. */
static cqlring_status udts_read(struct unit *unit)
{
    cqr_named_sort(&unit->types);
    bool progress = true;
    for (int pass = 0; pass < TYPE_PASSES_MAX && progress; pass++) {
        progress = false;
        for (uint32_t i = 0; i < unit->types.count; i++) {
            cqlring_schema_type *udt = unit->types.items[i];
            if (udt->type != NULL)
                continue;
            cqlring_status status = udt_read(unit, udt);
            if (status != CQLRING_OK)
                return status;
            progress = progress || udt->type != NULL;
        }
    }
    return CQLRING_OK;
}

/* ---- rows ---- */

static cqlring_status keyspace_row(struct schema_draft *draft, const struct row *row, bool is_virtual)
{
    cqlring_bytes name = row_cell(row, "keyspace_name"), replication = row_cell(row, "replication");
    if (name.size <= 0 || memchr(name.data, '\0', (size_t)name.size) != NULL || unit_find(draft, name) != NULL)
        return CQLRING_OK; /* no keyspace is named so, and each is there once */
    if (draft->count == draft->capacity) {
        uint32_t capacity = draft->capacity == 0 ? 16 : draft->capacity * 2;
        struct unit **units = cqr_mem_realloc(draft->units, capacity * sizeof *units);
        if (units == NULL)
            return CQLRING_NO_MEMORY;
        draft->units = units;
        draft->capacity = capacity;
    }
    struct unit *unit = cqr_unit_create();
    if (unit == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_schema_keyspace *keyspace = &unit->public;
    keyspace->name = text_of(unit, name);
    keyspace->replication = pairs_of(unit, replication, &keyspace->replication_count);
    keyspace->durable_writes = is_virtual || cell_is_true(row_cell(row, "durable_writes"));
    keyspace->is_virtual = is_virtual;
    keyspace->tablets = -1;
    if (keyspace->name == NULL || keyspace->replication == NULL) {
        cqr_unit_release(unit);
        return CQLRING_NO_MEMORY;
    }
    draft->units[draft->count++] = draft->last = unit;
    return CQLRING_OK;
}

static cqlring_status type_row(struct unit *unit, const struct row *row)
{
    cqlring_schema_type *udt = cqr_arena_alloc(&unit->arena, sizeof *udt);
    if (!cqr_list_add(unit, &unit->types, udt))
        return CQLRING_NO_MEMORY;
    uint32_t names = 0, types = 0;
    udt->keyspace = unit->public.name;
    udt->name = text_of(unit, row_cell(row, "type_name"));
    udt->field_names = texts_of(unit, row_cell(row, "field_names"), &names);
    udt->field_types = texts_of(unit, row_cell(row, "field_types"), &types);
    udt->field_count = names < types ? names : types;
    if (udt->name == NULL || udt->field_names == NULL || udt->field_types == NULL) {
        unit->types.count--; /* half of one is none */
        return CQLRING_NO_MEMORY;
    }
    return CQLRING_OK;
}

static void flags_read(cqlring_schema_table *table, cqlring_bytes flags)
{
    struct elements elements = cell_elements(flags, 1);
    bool is_compound = elements.count == 0, is_dense = false;
    for (uint32_t i = 0; i < elements.count; i++) {
        cqlring_bytes flag = cqr_get_bytes(&elements.reader);
        is_compound = is_compound || cell_is(flag, "compound");
        is_dense = is_dense || cell_is(flag, "dense") || cell_is(flag, "super");
        table->is_counter = table->is_counter || cell_is(flag, "counter");
    }
    table->is_compact = is_dense || !is_compound;
}

static cqlring_status table_row(struct unit *unit, const struct row *row, bool is_view)
{
    struct table *entry = cqr_arena_alloc(&unit->arena, sizeof *entry);
    if (entry == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_schema_table *table = &entry->public;
    cqlring_bytes name = row_cell(row, is_view ? "view_name" : "table_name"), id = row_cell(row, "id");
    if (name.size <= 0)
        return CQLRING_OK;
    table->keyspace = unit->public.name;
    table->name = text_of(unit, name);
    table->is_view = is_view;
    if (id.size == 16)
        memcpy(table->id, id.data, 16);
    table->base_table = is_view ? text_of(unit, row_cell(row, "base_table_name")) : "";
    table->where_clause = is_view ? text_of(unit, row_cell(row, "where_clause")) : "";
    table->includes_all_columns = is_view && cell_is_true(row_cell(row, "include_all_columns"));
    if (!is_view)
        flags_read(table, row_cell(row, "flags"));
    if (table->name == NULL || table->base_table == NULL || table->where_clause == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_status status = cqr_schema_options(unit, row, table);
    if (status == CQLRING_OK && !cqr_list_add(unit, &unit->tables, entry))
        status = CQLRING_NO_MEMORY;
    return status;
}

static cqlring_status column_row(struct unit *unit, const struct row *row)
{
    static const char *const kinds[] = {"partition_key", "clustering", "static", "regular"};
    struct table *table = table_find(unit, row_cell(row, "table_name"));
    cqlring_bytes name = row_cell(row, "column_name"), kind = row_cell(row, "kind"), position = row_cell(row, "position");
    if (table == NULL || name.size < 0 || table->columns.count == PARTS_MAX)
        return CQLRING_OK;
    uint32_t number = 0;
    while (number < 4 && !cell_is(kind, kinds[number]))
        number++;
    if (number == 4) /* "compact_value" of tables made by Thrift */
        number = CQLRING_REGULAR;
    cqlring_schema_column *column = cqr_arena_alloc(&unit->arena, sizeof *column);
    if (column == NULL)
        return CQLRING_NO_MEMORY;
    column->name = text_of(unit, name);
    column->type_text = text_of(unit, row_cell(row, "type"));
    column->kind = (cqlring_column_kind)number;
    column->position = number <= CQLRING_CLUSTERING && position.size == 4 ? (int32_t)cqr_load_u32(position.data) : -1;
    column->is_descending = cell_is(row_cell(row, "clustering_order"), "desc");
    if (column->name == NULL || column->type_text == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_status status = type_read(unit, column->type_text, &column->type);
    if (status == CQLRING_OK && !cqr_list_add(unit, &table->columns, column))
        status = CQLRING_NO_MEMORY;
    table->is_sorted = false;
    table->public.is_counter = table->public.is_counter || (column->type != NULL && cqlring_type_kind(column->type) == CQLRING_KIND_COUNTER);
    return status;
}

static cqlring_status index_row(struct unit *unit, const struct row *row)
{
    struct table *table = table_find(unit, row_cell(row, "table_name"));
    if (table == NULL || table->indexes.count == PARTS_MAX)
        return CQLRING_OK;
    cqlring_schema_index *index = cqr_arena_alloc(&unit->arena, sizeof *index);
    if (index == NULL)
        return CQLRING_NO_MEMORY;
    index->name = text_of(unit, row_cell(row, "index_name"));
    index->kind = text_of(unit, row_cell(row, "kind"));
    index->options = pairs_of(unit, row_cell(row, "options"), &index->option_count);
    index->target = "";
    if (index->name == NULL || index->kind == NULL || index->options == NULL)
        return CQLRING_NO_MEMORY;
    for (uint32_t i = 0; i < index->option_count; i++)
        if (strcmp(index->options[i].name, "target") == 0)
            index->target = index->options[i].value;
    return cqr_list_add(unit, &table->indexes, index) ? CQLRING_OK : CQLRING_NO_MEMORY;
}

static cqlring_status function_row(struct unit *unit, const struct row *row, bool is_aggregate)
{
    cqlring_schema_function *function = cqr_arena_alloc(&unit->arena, sizeof *function);
    if (function == NULL)
        return CQLRING_NO_MEMORY;
    uint32_t names = 0;
    function->keyspace = unit->public.name;
    function->name = text_of(unit, row_cell(row, is_aggregate ? "aggregate_name" : "function_name"));
    function->argument_types = texts_of(unit, row_cell(row, "argument_types"), &function->argument_count);
    function->argument_names = texts_of(unit, row_cell(row, "argument_names"), &names);
    function->return_type = text_of(unit, row_cell(row, "return_type"));
    function->is_aggregate = is_aggregate;
    function->called_on_null = cell_is_true(row_cell(row, "called_on_null_input"));
    function->language = text_of(unit, row_cell(row, "language"));
    function->body = text_of(unit, row_cell(row, "body"));
    function->state_function = text_of(unit, row_cell(row, "state_func"));
    function->state_type = text_of(unit, row_cell(row, "state_type"));
    function->final_function = text_of(unit, row_cell(row, "final_func"));
    function->initial = text_of(unit, row_cell(row, "initcond"));
    const void *const parts[] = {function->name,     function->argument_types, function->argument_names, function->return_type,
                                 function->language, function->body,           function->state_function, function->state_type,
                                 function->final_function, function->initial};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i] == NULL)
            return CQLRING_NO_MEMORY;
    if (!is_aggregate && names != function->argument_count)
        return CQLRING_OK;
    return cqr_list_add(unit, &unit->functions, function) ? CQLRING_OK : CQLRING_NO_MEMORY;
}

void cqr_schema_draft_init(struct schema_draft *draft)
{
    memset(draft, 0, sizeof *draft);
}

static bool is_among(const char *name, const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool cqr_schema_draft_tables(struct schema_draft *draft, const struct cqlring_schema *old, const char *keyspace, const char *const *tables, uint32_t count,
                             cqlring_status *status)
{
    *status = CQLRING_OK;
    struct unit *parent = (struct unit *)(uintptr_t)cqlring_schema_find_keyspace(old, keyspace); /* its first member */
    if (parent == NULL || parent->generation == GENERATIONS_MAX)
        return false;
    struct unit *unit = cqr_unit_create();
    struct unit **units = cqr_mem_array(1, sizeof *units);
    if (unit != NULL)
        unit->kept = cqr_arena_array(&unit->arena, parent->public.table_count + 1, sizeof *unit->kept);
    if (unit == NULL || units == NULL || unit->kept == NULL) {
        cqr_mem_free(units);
        cqr_unit_release(unit);
        *status = CQLRING_NO_MEMORY;
        return false;
    }
    unit->public = parent->public;
    unit->types = parent->types; /* nothing is added to these any more */
    unit->functions = parent->functions;
    unit->parent = cqr_unit_retain(parent);
    unit->generation = parent->generation + 1;
    for (uint32_t i = 0; i < parent->public.table_count; i++)
        if (!is_among(parent->public.tables[i]->name, tables, count))
            unit->kept[unit->kept_count++] = parent->public.tables[i];
    units[0] = unit;
    draft->units = units;
    draft->count = draft->capacity = 1;
    return true;
}

static cqlring_status row_read(struct schema_draft *draft, enum schema_query query, const struct row *row)
{
    if (query == SCHEMA_QUERY_KEYSPACES || query == SCHEMA_QUERY_VIRTUAL_KEYSPACES)
        return keyspace_row(draft, row, query == SCHEMA_QUERY_VIRTUAL_KEYSPACES);
    struct unit *unit = unit_find(draft, row_cell(row, "keyspace_name"));
    if (unit == NULL || unit->public.is_virtual != (query >= SCHEMA_QUERY_VIRTUAL_KEYSPACES))
        return CQLRING_OK; /* made since, or dropped */
    switch (query) {
    case SCHEMA_QUERY_TABLETS: unit->public.tablets = row_cell(row, "initial_tablets").size == 4; return CQLRING_OK;
    case SCHEMA_QUERY_TYPES: return type_row(unit, row);
    case SCHEMA_QUERY_VIEWS: return table_row(unit, row, true);
    case SCHEMA_QUERY_COLUMNS:
    case SCHEMA_QUERY_VIRTUAL_COLUMNS: return column_row(unit, row);
    case SCHEMA_QUERY_INDEXES: return index_row(unit, row);
    case SCHEMA_QUERY_FUNCTIONS:
    case SCHEMA_QUERY_AGGREGATES: return function_row(unit, row, query == SCHEMA_QUERY_AGGREGATES);
    default: return table_row(unit, row, false);
    }
}

static bool has_column(const cqlring_result *rows, const char *name)
{
    cqlring_column column;
    for (uint32_t i = 0; cqlring_result_column(rows, i, &column); i++)
        if (strcmp(column.name, name) == 0)
            return true;
    return false;
}

cqlring_status cqr_schema_draft_rows(struct schema_draft *draft, enum schema_query query, cqlring_result *rows)
{
    struct row row = {.result = rows, .count = cqlring_result_column_count(rows)};
    if (row.count == 0 || row.count > CELLS_MAX)
        return CQLRING_PROTOCOL;
    if (query == SCHEMA_QUERY_TABLETS && has_column(rows, "initial_tablets")) /* keyspaces without a row do without tablets */
        for (uint32_t i = 0; i < draft->count; i++)
            if (draft->units[i]->public.tablets < 0)
                draft->units[i]->public.tablets = 0;
    for (uint32_t i = 0, count = 0; i < cqlring_result_row_count(rows); i++) {
        if (cqlring_result_rows(rows, i, row.cells, 1, &count, NULL) != CQLRING_OK || count != 1)
            return CQLRING_PROTOCOL;
        cqlring_status status = row_read(draft, query, &row);
        if (status != CQLRING_OK)
            return status;
    }
    return CQLRING_OK;
}

cqlring_status cqr_schema_draft_end(struct schema_draft *draft, enum schema_query query)
{
    for (uint32_t i = 0; i < draft->count; i++) {
        struct unit *unit = draft->units[i];
        unit->last = NULL;
        cqlring_status status = CQLRING_OK;
        if (query == SCHEMA_QUERY_TYPES)
            status = udts_read(unit);
        else if (query == SCHEMA_QUERY_VIEWS || query == SCHEMA_QUERY_VIRTUAL_TABLES)
            cqr_named_sort(&unit->tables);
        if (status != CQLRING_OK)
            return status;
    }
    draft->last = NULL;
    return CQLRING_OK;
}

/* ---- the end ---- */

static int keyspace_order(const void *a, const void *b)
{
    return strcmp((*(const cqlring_schema_keyspace *const *)a)->name, (*(const cqlring_schema_keyspace *const *)b)->name);
}

struct cqlring_schema *cqr_schema_draft_finish(struct schema_draft *draft, const struct cqlring_schema *old, const char *const *names, uint32_t name_count)
{
    struct cqlring_schema *schema = cqr_mem_zalloc(sizeof *schema);
    uint32_t capacity = draft->count + (old != NULL ? old->count : 0);
    if (schema != NULL)
        schema->keyspaces = cqr_mem_array(capacity + 1, sizeof *schema->keyspaces);
    if (schema == NULL || schema->keyspaces == NULL) {
        cqr_mem_free(schema);
        return NULL;
    }
    atomic_init(&schema->references, 1);
    bool finished = true;
    draft->last = NULL;
    for (uint32_t i = 0; old != NULL && i < old->count; i++) { /* the server may answer more keyspaces than were asked for */
        const char *name = old->keyspaces[i]->name;
        if (!is_among(name, names, name_count) && unit_find(draft, cqlring_text(name)) == NULL)
            schema->keyspaces[schema->count++] = &cqr_unit_retain((struct unit *)(uintptr_t)old->keyspaces[i])->public;
    }
    for (uint32_t i = 0; i < draft->count; i++) {
        finished = cqr_unit_finish(draft->units[i]) && finished;
        schema->keyspaces[schema->count++] = &draft->units[i]->public;
    }
    qsort(schema->keyspaces, schema->count, sizeof *schema->keyspaces, keyspace_order);
    draft->count = 0; /* theirs is the schema's now */
    cqr_schema_draft_fini(draft);
    if (!finished) {
        cqlring_schema_release(schema);
        return NULL;
    }
    return schema;
}

void cqr_schema_draft_fini(struct schema_draft *draft)
{
    for (uint32_t i = 0; i < draft->count; i++)
        cqr_unit_release(draft->units[i]);
    cqr_mem_free(draft->units);
    memset(draft, 0, sizeof *draft);
}
