/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/schema_unit.h"

#include <stdlib.h>

#include "driver/schema_rows.h"

enum { UNIT_SIZE_MAX = 256 << 20 };

/* ---- memory ---- */

bool cqr_list_add(struct unit *unit, struct list *list, void *item)
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

struct unit *cqr_unit_create(void)
{
    struct unit *unit = cqr_mem_zalloc(sizeof *unit);
    if (unit == NULL)
        return NULL;
    atomic_init(&unit->references, 1);
    cqr_arena_init(&unit->arena, UNIT_SIZE_MAX);
    return unit;
}

struct unit *cqr_unit_retain(struct unit *unit)
{
    atomic_fetch_add_explicit(&unit->references, 1, memory_order_relaxed);
    return unit;
}

void cqr_unit_release(struct unit *unit)
{
    while (unit != NULL) {
        /* Release: this holder is through. Acquire: so is everybody else, for the one that frees. */
        if (atomic_fetch_sub_explicit(&unit->references, 1, memory_order_acq_rel) != 1)
            return;
        struct unit *parent = unit->parent;
        cqr_arena_fini(&unit->arena);
        cqr_mem_free(unit);
        unit = parent;
    }
}

void cqlring_schema_release(cqlring_schema *schema)
{
    if (schema == NULL || atomic_fetch_sub_explicit(&schema->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < schema->count; i++)
        cqr_unit_release((struct unit *)(uintptr_t)schema->keyspaces[i]);
    cqr_mem_free(schema->keyspaces);
    cqr_mem_free(schema);
}

/* ---- finding ---- */

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

void *cqr_named_find(void *const *items, uint32_t count, cqlring_bytes name)
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

void cqr_named_sort(struct list *list)
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

void cqr_columns_sort(struct table *table)
{
    if (table->is_sorted)
        return;
    if (table->columns.count > 1)
        qsort(table->columns.items, table->columns.count, sizeof *table->columns.items, column_order);
    table->is_sorted = true;
}

/* ---- the end ---- */

static int index_order(const void *a, const void *b)
{
    return strcmp((*(cqlring_schema_index *const *)a)->name, (*(cqlring_schema_index *const *)b)->name);
}

/* What the lists have becomes what the public struct shows. A table whose key was not read is none (it was dropped meanwhile). */
bool cqr_unit_finish(struct unit *unit)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < unit->tables.count; i++) {
        struct table *table = unit->tables.items[i];
        cqr_columns_sort(table);
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
    if (unit->parent == NULL) {
        cqr_named_sort(&unit->functions);
    } else {
        for (uint32_t i = 0; i < unit->kept_count; i++)
            if (!cqr_list_add(unit, &unit->tables, (void *)(uintptr_t)unit->kept[i]))
                return false;
        cqr_named_sort(&unit->tables);
    }
    cqlring_schema_keyspace *keyspace = &unit->public;
    keyspace->tables = (const cqlring_schema_table *const *)(const void *)unit->tables.items;
    keyspace->table_count = unit->tables.count;
    keyspace->types = (const cqlring_schema_type *const *)(const void *)unit->types.items;
    keyspace->type_count = unit->types.count;
    keyspace->functions = (const cqlring_schema_function *const *)(const void *)unit->functions.items;
    keyspace->function_count = unit->functions.count;
    return true;
}

/* ---- looking ---- */

uint32_t cqlring_schema_keyspaces(const cqlring_schema *schema, const cqlring_schema_keyspace *const **keyspaces)
{
    if (keyspaces != NULL)
        *keyspaces = schema != NULL ? schema->keyspaces : NULL;
    return schema != NULL ? schema->count : 0;
}
