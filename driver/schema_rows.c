/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/schema_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/result.h"
#include "serialize/buf.h"
#include "serialize/type.h"

enum { CELLS_MAX = 64, UNIT_SIZE_MAX = 256 << 20, TYPE_PASSES_MAX = CQLRING_DEPTH_MAX, PARTS_MAX = 65535 };

/* An array of pointers that grows in the unit's arena. */
struct list {
    void **items;
    uint32_t count, capacity;
};

struct table {
    cqlring_schema_table public; /* first */
    struct list columns, indexes;
    bool is_sorted;
};

/* A keyspace: counted, with the memory of everything in it. */
struct unit {
    cqlring_schema_keyspace public; /* first */
    atomic_uint references;
    struct arena arena;
    struct list tables, types, functions;
    struct table *last;             /* where the last column or index belonged */
};

/* ---- memory ---- */

static bool list_add(struct unit *unit, struct list *list, void *item)
{
    if (item == NULL)
        return false;
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity == 0 ? 8 : list->capacity * 2;
        void **items = cqr_arena_array(&unit->arena, capacity, sizeof *items);
        if (items == NULL)
            return false;
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return true;
}

static struct unit *unit_retain(struct unit *unit)
{
    atomic_fetch_add_explicit(&unit->references, 1, memory_order_relaxed);
    return unit;
}

static void unit_release(struct unit *unit)
{
    /* Release: this holder is through. Acquire: so is everybody else, for the one that frees. */
    if (atomic_fetch_sub_explicit(&unit->references, 1, memory_order_acq_rel) != 1)
        return;
    cqr_arena_fini(&unit->arena);
    cqr_mem_free(unit);
}

void cqlring_schema_release(cqlring_schema *schema)
{
    if (schema == NULL || atomic_fetch_sub_explicit(&schema->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < schema->count; i++)
        unit_release((struct unit *)(uintptr_t)schema->keyspaces[i]);
    cqr_mem_free(schema->keyspaces);
    cqr_mem_free(schema);
}

/* ---- a row ---- */

struct row {
    const cqlring_result *result;
    uint32_t count;
    cqlring_bytes cells[CELLS_MAX];
};

static cqlring_bytes cell(const struct row *row, const char *name)
{
    for (uint32_t i = 0; i < row->count; i++) {
        cqlring_column column;
        if (cqlring_result_column(row->result, i, &column) && strcmp(column.name, name) == 0)
            return row->cells[i];
    }
    return (cqlring_bytes){NULL, CQLRING_NULL};
}

/* A copy in the unit's arena, "" for null; NULL when out of memory. */
static const char *text_of(struct unit *unit, cqlring_bytes value)
{
    return value.size <= 0 ? "" : cqr_arena_text(&unit->arena, value.data, (size_t)value.size);
}

static bool is_true(cqlring_bytes value)
{
    return value.size == 1 && *(const uint8_t *)value.data != 0;
}

static bool is_text(cqlring_bytes value, const char *text)
{
    return value.size > 0 && (size_t)value.size == strlen(text) && memcmp(value.data, text, (size_t)value.size) == 0;
}

/* A list, set or (pairs 2) map of a cell: how many texts it has, and each. */
struct elements {
    struct reader reader;
    uint32_t count;
};

static struct elements elements_of(cqlring_bytes value, uint32_t pairs)
{
    struct elements elements = {.count = 0};
    if (value.size < 4)
        return elements;
    cqr_reader_init(&elements.reader, value.data, (uint32_t)value.size);
    int32_t count = cqr_get_i32(&elements.reader);
    /* each has a length of 4 bytes, so that a count that lies is bounded by what is there */
    if (count > 0 && (uint32_t)count <= ((uint32_t)value.size - 4) / 4 / pairs)
        elements.count = (uint32_t)count;
    return elements;
}

static const char *const *texts_of(struct unit *unit, cqlring_bytes value, uint32_t *count)
{
    struct elements elements = elements_of(value, 1);
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
    struct elements elements = elements_of(value, 2);
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
    if (draft->last != NULL && is_text(name, draft->last->public.name))
        return draft->last;
    for (uint32_t i = 0; i < draft->count; i++)
        if (is_text(name, draft->units[i]->public.name))
            return draft->last = draft->units[i];
    return NULL;
}

/* The order of strcmp, for a name that is not NUL-terminated. */
static int compare(cqlring_bytes name, const char *other)
{
    size_t size = (size_t)name.size, other_size = strlen(other);
    int order = memcmp(name.data, other, size < other_size ? size : other_size);
    return order != 0 ? order : (size > other_size) - (size < other_size);
}

/* In a list that is sorted by name, which is each item's second member: all kinds of them begin with keyspace and name. */
struct named {
    const char *keyspace, *name;
};
_Static_assert(offsetof(cqlring_schema_table, name) == offsetof(struct named, name), "tables are found as named things");
_Static_assert(offsetof(cqlring_schema_type, name) == offsetof(struct named, name), "types too");
_Static_assert(offsetof(cqlring_schema_function, name) == offsetof(struct named, name), "functions too");

static void *named_find(void *const *items, uint32_t count, cqlring_bytes name)
{
    uint32_t low = 0, high = count;
    if (name.size < 0)
        return NULL;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(name, ((const struct named *)items[middle])->name);
        if (order == 0)
            return items[middle];
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct named *const *)a)->name, (*(const struct named *const *)b)->name);
}

static void named_sort(struct list *list)
{
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, by_name);
}

static int column_order(const void *a, const void *b)
{
    const cqlring_schema_column *one = *(cqlring_schema_column *const *)a, *other = *(cqlring_schema_column *const *)b;
    if (one->kind != other->kind)
        return (int)one->kind - (int)other->kind;
    if (one->kind <= CQLRING_CLUSTERING && one->position != other->position)
        return one->position < other->position ? -1 : 1;
    return strcmp(one->name, other->name);
}

static void columns_sort(struct table *table)
{
    if (table->is_sorted)
        return;
    if (table->columns.count > 1)
        qsort(table->columns.items, table->columns.count, sizeof *table->columns.items, column_order);
    table->is_sorted = true;
}

static struct table *table_find(struct unit *unit, cqlring_bytes name)
{
    if (unit->last != NULL && is_text(name, unit->last->public.name))
        return unit->last;
    if (unit->last != NULL)
        columns_sort(unit->last); /* its rows came together: this one is whole */
    return unit->last = named_find(unit->tables.items, unit->tables.count, name);
}

/* ---- types ---- */

static const cqlring_type *type_resolve(cqlring_bytes keyspace, cqlring_bytes name, void *context)
{
    struct unit *unit = context;
    if (keyspace.size > 0 && !is_text(keyspace, unit->public.name))
        return NULL;
    const cqlring_schema_type *found = named_find(unit->types.items, unit->types.count, name);
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
    named_sort(&unit->types);
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

/* ---- options of a table, as CQL ---- */

/* Text that grows in steps; `data` moves into the arena when it is whole. */
struct literal {
    char *data;
    size_t size, capacity;
    bool failed;
};

static void put_text(struct literal *out, const char *text, size_t size)
{
    if (out->failed || size == 0)
        return;
    if (out->size + size > out->capacity) {
        size_t capacity = (out->size + size) * 2;
        char *data = cqr_mem_realloc(out->data, capacity);
        if (data == NULL) {
            out->failed = true;
            return;
        }
        out->data = data;
        out->capacity = capacity;
    }
    memcpy(out->data + out->size, text, size);
    out->size += size;
}

static void put_quoted(struct literal *out, cqlring_bytes value)
{
    put_text(out, "'", 1);
    const char *at = value.data;
    /* a text here ends at a NUL, as all of them do in the public structs */
    int32_t size = value.size <= 0 ? 0 : (int32_t)strnlen(at, (size_t)value.size);
    for (int32_t i = 0, from = 0; i <= size; i++)
        if (i == size || at[i] == '\'') {
            put_text(out, at + from, (size_t)(i - from));
            if (i < size)
                put_text(out, "''", 2);
            from = i + 1;
        }
    put_text(out, "'", 1);
}

static void put_blob(struct literal *out, cqlring_bytes value)
{
    static const char digits[] = "0123456789abcdef";
    put_text(out, "0x", 2);
    for (int32_t i = 0; i < value.size; i++) {
        uint8_t byte = ((const uint8_t *)value.data)[i];
        char two[2] = {digits[byte >> 4], digits[byte & 15]};
        put_text(out, two, 2);
    }
}

/* The shortest of 15 to 17 digits that is this number again. */
static void put_double(struct literal *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (strpbrk(text, ".en") == NULL)
        strcat(text, ".0");
    put_text(out, text, strlen(text));
}

/* False: nothing that an option can be. */
static bool put_value(struct literal *out, const cqlring_type *type, cqlring_bytes value)
{
    char number[24];
    switch (cqlring_type_kind(type)) {
    case CQLRING_KIND_TEXT: put_quoted(out, value); return true;
    case CQLRING_KIND_BLOB: put_blob(out, value); return true;
    case CQLRING_KIND_BOOLEAN:
        put_text(out, is_true(value) ? "true" : "false", is_true(value) ? 4 : 5);
        return true;
    case CQLRING_KIND_INT:
        if (value.size != 4)
            return false;
        snprintf(number, sizeof number, "%d", (int)(int32_t)cqr_load_u32(value.data));
        put_text(out, number, strlen(number));
        return true;
    case CQLRING_KIND_DOUBLE: {
        double real;
        uint64_t bits = value.size == 8 ? cqr_load_u64(value.data) : 0;
        memcpy(&real, &bits, sizeof real);
        if (value.size != 8 || real - real != 0) /* not finite */
            return false;
        put_double(out, real);
        return true;
    }
    default: return false;
    }
}

static bool put_option(struct literal *out, const cqlring_type *type, cqlring_bytes value)
{
    if (cqlring_type_kind(type) != CQLRING_KIND_MAP)
        return put_value(out, type, value);
    struct elements elements = elements_of(value, 2);
    put_text(out, "{", 1);
    for (uint32_t i = 0; i < elements.count; i++) {
        cqlring_bytes key = cqr_get_bytes(&elements.reader), item = cqr_get_bytes(&elements.reader);
        if (elements.reader.failed || key.size < 0 || item.size < 0)
            return false;
        if (i > 0)
            put_text(out, ", ", 2);
        if (!put_value(out, cqlring_type_child(type, 0), key))
            return false;
        put_text(out, ": ", 2);
        if (!put_value(out, cqlring_type_child(type, 1), item))
            return false;
    }
    put_text(out, "}", 1);
    return true;
}

/* Columns that are no options. */
static bool is_option(const char *name, bool is_view)
{
    static const char *const others[] = {"keyspace_name", "table_name", "view_name", "id", "flags", "base_table_id", "base_table_name",
                                         "include_all_columns", "where_clause"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return !is_view || strcmp(name, "default_time_to_live") != 0;
}

/* Since Cassandra 4.0 these are shown, and no longer options. */
static bool is_of_old(const char *name)
{
    return strcmp(name, "read_repair_chance") == 0 || strcmp(name, "dclocal_read_repair_chance") == 0;
}

static cqlring_status options_read(struct unit *unit, const struct row *row, cqlring_schema_table *table)
{
    cqlring_schema_pair *pairs = cqr_arena_array(&unit->arena, row->count + 1, sizeof *pairs);
    if (pairs == NULL)
        return CQLRING_NO_MEMORY;
    bool is_new = cell(row, "read_repair").size > 0;
    struct literal literal = {.data = NULL};
    cqlring_status status = CQLRING_OK;
    for (uint32_t i = 0; i < row->count && status == CQLRING_OK; i++) {
        cqlring_column column;
        cqlring_bytes value = row->cells[i];
        if (value.size < 0 || !cqlring_result_column(row->result, i, &column) || !is_option(column.name, table->is_view) ||
            (is_new && is_of_old(column.name)))
            continue;
        if (strcmp(column.name, "extensions") == 0 && elements_of(value, 2).count == 0)
            continue;
        literal.size = 0;
        if (!put_option(&literal, column.type, value))
            continue;
        cqlring_schema_pair *pair = &pairs[table->option_count++];
        pair->name = cqr_arena_text(&unit->arena, column.name, strlen(column.name));
        pair->value = literal.failed ? NULL : cqr_arena_text(&unit->arena, literal.data, literal.size);
        if (pair->name == NULL || pair->value == NULL)
            status = CQLRING_NO_MEMORY;
    }
    cqr_mem_free(literal.data);
    table->options = pairs;
    return status;
}

/* ---- rows ---- */

static cqlring_status keyspace_row(struct schema_draft *draft, const struct row *row, bool is_virtual)
{
    cqlring_bytes name = cell(row, "keyspace_name"), replication = cell(row, "replication");
    if (name.size <= 0 || unit_find(draft, name) != NULL)
        return CQLRING_OK;
    if (draft->count == draft->capacity) {
        uint32_t capacity = draft->capacity == 0 ? 16 : draft->capacity * 2;
        struct unit **units = cqr_mem_realloc(draft->units, capacity * sizeof *units);
        if (units == NULL)
            return CQLRING_NO_MEMORY;
        draft->units = units;
        draft->capacity = capacity;
    }
    struct unit *unit = cqr_mem_zalloc(sizeof *unit);
    if (unit == NULL)
        return CQLRING_NO_MEMORY;
    atomic_init(&unit->references, 1);
    cqr_arena_init(&unit->arena, UNIT_SIZE_MAX);
    cqlring_schema_keyspace *keyspace = &unit->public;
    keyspace->name = text_of(unit, name);
    keyspace->replication = pairs_of(unit, replication, &keyspace->replication_count);
    keyspace->durable_writes = is_virtual || is_true(cell(row, "durable_writes"));
    keyspace->is_virtual = is_virtual;
    keyspace->tablets = -1;
    if (keyspace->name == NULL || keyspace->replication == NULL) {
        unit_release(unit);
        return CQLRING_NO_MEMORY;
    }
    draft->units[draft->count++] = draft->last = unit;
    return CQLRING_OK;
}

static cqlring_status type_row(struct unit *unit, const struct row *row)
{
    cqlring_schema_type *udt = cqr_arena_alloc(&unit->arena, sizeof *udt);
    if (!list_add(unit, &unit->types, udt))
        return CQLRING_NO_MEMORY;
    uint32_t names = 0, types = 0;
    udt->keyspace = unit->public.name;
    udt->name = text_of(unit, cell(row, "type_name"));
    udt->field_names = texts_of(unit, cell(row, "field_names"), &names);
    udt->field_types = texts_of(unit, cell(row, "field_types"), &types);
    udt->field_count = names < types ? names : types;
    if (udt->name == NULL || udt->field_names == NULL || udt->field_types == NULL) {
        unit->types.count--; /* half of one is none */
        return CQLRING_NO_MEMORY;
    }
    return CQLRING_OK;
}

static void flags_read(cqlring_schema_table *table, cqlring_bytes flags)
{
    struct elements elements = elements_of(flags, 1);
    bool is_compound = elements.count == 0, is_dense = false;
    for (uint32_t i = 0; i < elements.count; i++) {
        cqlring_bytes flag = cqr_get_bytes(&elements.reader);
        is_compound = is_compound || is_text(flag, "compound");
        is_dense = is_dense || is_text(flag, "dense") || is_text(flag, "super");
        table->is_counter = table->is_counter || is_text(flag, "counter");
    }
    table->is_compact = is_dense || !is_compound;
}

static cqlring_status table_row(struct unit *unit, const struct row *row, bool is_view)
{
    struct table *entry = cqr_arena_alloc(&unit->arena, sizeof *entry);
    if (entry == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_schema_table *table = &entry->public;
    cqlring_bytes name = cell(row, is_view ? "view_name" : "table_name"), id = cell(row, "id");
    if (name.size <= 0)
        return CQLRING_OK;
    table->keyspace = unit->public.name;
    table->name = text_of(unit, name);
    table->is_view = is_view;
    if (id.size == 16)
        memcpy(table->id, id.data, 16);
    table->base_table = is_view ? text_of(unit, cell(row, "base_table_name")) : "";
    table->where_clause = is_view ? text_of(unit, cell(row, "where_clause")) : "";
    table->includes_all_columns = is_view && is_true(cell(row, "include_all_columns"));
    if (!is_view)
        flags_read(table, cell(row, "flags"));
    if (table->name == NULL || table->base_table == NULL || table->where_clause == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_status status = options_read(unit, row, table);
    if (status == CQLRING_OK && !list_add(unit, &unit->tables, entry))
        status = CQLRING_NO_MEMORY;
    return status;
}

static cqlring_status column_row(struct unit *unit, const struct row *row)
{
    static const char *const kinds[] = {"partition_key", "clustering", "static", "regular"};
    struct table *table = table_find(unit, cell(row, "table_name"));
    cqlring_bytes name = cell(row, "column_name"), kind = cell(row, "kind"), position = cell(row, "position");
    if (table == NULL || name.size < 0 || table->columns.count == PARTS_MAX)
        return CQLRING_OK;
    uint32_t number = 0;
    while (number < 4 && !is_text(kind, kinds[number]))
        number++;
    if (number == 4) /* "compact_value" of tables made by Thrift */
        number = CQLRING_REGULAR;
    cqlring_schema_column *column = cqr_arena_alloc(&unit->arena, sizeof *column);
    if (column == NULL)
        return CQLRING_NO_MEMORY;
    column->name = text_of(unit, name);
    column->type_text = text_of(unit, cell(row, "type"));
    column->kind = (cqlring_column_kind)number;
    column->position = number <= CQLRING_CLUSTERING && position.size == 4 ? (int32_t)cqr_load_u32(position.data) : -1;
    column->is_descending = is_text(cell(row, "clustering_order"), "desc");
    if (column->name == NULL || column->type_text == NULL)
        return CQLRING_NO_MEMORY;
    cqlring_status status = type_read(unit, column->type_text, &column->type);
    if (status == CQLRING_OK && !list_add(unit, &table->columns, column))
        status = CQLRING_NO_MEMORY;
    table->is_sorted = false;
    table->public.is_counter = table->public.is_counter || (column->type != NULL && cqlring_type_kind(column->type) == CQLRING_KIND_COUNTER);
    return status;
}

static cqlring_status index_row(struct unit *unit, const struct row *row)
{
    struct table *table = table_find(unit, cell(row, "table_name"));
    if (table == NULL || table->indexes.count == PARTS_MAX)
        return CQLRING_OK;
    cqlring_schema_index *index = cqr_arena_alloc(&unit->arena, sizeof *index);
    if (index == NULL)
        return CQLRING_NO_MEMORY;
    index->name = text_of(unit, cell(row, "index_name"));
    index->kind = text_of(unit, cell(row, "kind"));
    index->options = pairs_of(unit, cell(row, "options"), &index->option_count);
    index->target = "";
    if (index->name == NULL || index->kind == NULL || index->options == NULL)
        return CQLRING_NO_MEMORY;
    for (uint32_t i = 0; i < index->option_count; i++)
        if (strcmp(index->options[i].name, "target") == 0)
            index->target = index->options[i].value;
    return list_add(unit, &table->indexes, index) ? CQLRING_OK : CQLRING_NO_MEMORY;
}

static cqlring_status function_row(struct unit *unit, const struct row *row, bool is_aggregate)
{
    cqlring_schema_function *function = cqr_arena_alloc(&unit->arena, sizeof *function);
    if (function == NULL)
        return CQLRING_NO_MEMORY;
    uint32_t names = 0;
    function->keyspace = unit->public.name;
    function->name = text_of(unit, cell(row, is_aggregate ? "aggregate_name" : "function_name"));
    function->argument_types = texts_of(unit, cell(row, "argument_types"), &function->argument_count);
    function->argument_names = texts_of(unit, cell(row, "argument_names"), &names);
    function->return_type = text_of(unit, cell(row, "return_type"));
    function->is_aggregate = is_aggregate;
    function->called_on_null = is_true(cell(row, "called_on_null_input"));
    function->language = text_of(unit, cell(row, "language"));
    function->body = text_of(unit, cell(row, "body"));
    function->state_function = text_of(unit, cell(row, "state_func"));
    function->state_type = text_of(unit, cell(row, "state_type"));
    function->final_function = text_of(unit, cell(row, "final_func"));
    function->initial = text_of(unit, cell(row, "initcond"));
    const void *const parts[] = {function->name,     function->argument_types, function->argument_names, function->return_type,
                                 function->language, function->body,           function->state_function, function->state_type,
                                 function->final_function, function->initial};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i] == NULL)
            return CQLRING_NO_MEMORY;
    if (!is_aggregate && names != function->argument_count)
        return CQLRING_OK;
    return list_add(unit, &unit->functions, function) ? CQLRING_OK : CQLRING_NO_MEMORY;
}

void cqr_schema_draft_init(struct schema_draft *draft)
{
    memset(draft, 0, sizeof *draft);
}

static cqlring_status row_read(struct schema_draft *draft, enum schema_query query, const struct row *row)
{
    if (query == SCHEMA_QUERY_KEYSPACES || query == SCHEMA_QUERY_VIRTUAL_KEYSPACES)
        return keyspace_row(draft, row, query == SCHEMA_QUERY_VIRTUAL_KEYSPACES);
    struct unit *unit = unit_find(draft, cell(row, "keyspace_name"));
    if (unit == NULL || unit->public.is_virtual != (query >= SCHEMA_QUERY_VIRTUAL_KEYSPACES))
        return CQLRING_OK; /* made since, or dropped */
    switch (query) {
    case SCHEMA_QUERY_TABLETS: unit->public.tablets = cell(row, "initial_tablets").size == 4; return CQLRING_OK;
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
            named_sort(&unit->tables);
        if (status != CQLRING_OK)
            return status;
    }
    draft->last = NULL;
    return CQLRING_OK;
}

/* ---- the end ---- */

static int index_order(const void *a, const void *b)
{
    return strcmp((*(cqlring_schema_index *const *)a)->name, (*(cqlring_schema_index *const *)b)->name);
}

/* What the lists have becomes what the public struct shows. A table whose key was not read is none (it was dropped meanwhile). */
static void unit_finish(struct unit *unit)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < unit->tables.count; i++) {
        struct table *table = unit->tables.items[i];
        columns_sort(table);
        cqlring_schema_table *public = &table->public;
        public->columns = (const cqlring_schema_column *const *)(const void *)table->columns.items;
        public->column_count = table->columns.count;
        public->partition_key_count = public->clustering_count = 0;
        for (uint32_t j = 0; j < table->columns.count; j++) {
            public->partition_key_count += public->columns[j]->kind == CQLRING_PARTITION_KEY;
            public->clustering_count += public->columns[j]->kind == CQLRING_CLUSTERING;
        }
        if (table->indexes.count > 1)
            qsort(table->indexes.items, table->indexes.count, sizeof *table->indexes.items, index_order);
        public->indexes = (const cqlring_schema_index *const *)(const void *)table->indexes.items;
        public->index_count = table->indexes.count;
        if (public->partition_key_count > 0)
            unit->tables.items[kept++] = table;
    }
    unit->tables.count = kept;
    named_sort(&unit->functions);
    cqlring_schema_keyspace *keyspace = &unit->public;
    keyspace->tables = (const cqlring_schema_table *const *)(const void *)unit->tables.items;
    keyspace->table_count = unit->tables.count;
    keyspace->types = (const cqlring_schema_type *const *)(const void *)unit->types.items;
    keyspace->type_count = unit->types.count;
    keyspace->functions = (const cqlring_schema_function *const *)(const void *)unit->functions.items;
    keyspace->function_count = unit->functions.count;
}

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
    for (uint32_t i = 0; i < draft->count; i++) {
        unit_finish(draft->units[i]);
        schema->keyspaces[schema->count++] = &draft->units[i]->public;
    }
    for (uint32_t i = 0; old != NULL && i < old->count; i++) {
        bool read_again = false;
        for (uint32_t j = 0; j < name_count && !read_again; j++)
            read_again = strcmp(names[j], old->keyspaces[i]->name) == 0;
        if (!read_again)
            schema->keyspaces[schema->count++] = &unit_retain((struct unit *)(uintptr_t)old->keyspaces[i])->public;
    }
    qsort(schema->keyspaces, schema->count, sizeof *schema->keyspaces, keyspace_order);
    draft->count = 0; /* theirs is the schema's now */
    cqr_schema_draft_fini(draft);
    return schema;
}

void cqr_schema_draft_fini(struct schema_draft *draft)
{
    for (uint32_t i = 0; i < draft->count; i++)
        unit_release(draft->units[i]);
    cqr_mem_free(draft->units);
    memset(draft, 0, sizeof *draft);
}

/* ---- looking ---- */

uint32_t cqlring_schema_keyspaces(const cqlring_schema *schema, const cqlring_schema_keyspace *const **keyspaces)
{
    if (keyspaces != NULL)
        *keyspaces = schema != NULL ? schema->keyspaces : NULL;
    return schema != NULL ? schema->count : 0;
}

const cqlring_schema_keyspace *cqlring_schema_find_keyspace(const cqlring_schema *schema, const char *keyspace)
{
    uint32_t low = 0, high = schema != NULL && keyspace != NULL ? schema->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(keyspace, schema->keyspaces[middle]->name);
        if (order == 0)
            return schema->keyspaces[middle];
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const cqlring_schema_table *cqlring_schema_find_table(const cqlring_schema *schema, const char *keyspace, const char *table)
{
    const cqlring_schema_keyspace *in = cqlring_schema_find_keyspace(schema, keyspace);
    return in == NULL || table == NULL ? NULL : named_find((void *const *)(const void *)in->tables, in->table_count, cqlring_text(table));
}

const cqlring_schema_type *cqlring_schema_find_type(const cqlring_schema *schema, const char *keyspace, const char *type)
{
    const cqlring_schema_keyspace *in = cqlring_schema_find_keyspace(schema, keyspace);
    return in == NULL || type == NULL ? NULL : named_find((void *const *)(const void *)in->types, in->type_count, cqlring_text(type));
}
