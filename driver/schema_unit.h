/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SCHEMA_UNIT_H
#define CQR_SCHEMA_UNIT_H

/* What the files of the schema share: a keyspace while it is read and afterwards (a unit, counted, with the memory of everything in
   it), and a row of system_schema with its cells. One owner while it is read, immutable from then on. */

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "driver/cqlring.h"
#include "serialize/buf.h"
#include "serialize/mem.h"

/* An array of pointers that grows in the unit's arena. */
struct list {
    void **items;
    uint32_t count, capacity;
};

struct table {
    cqlring_schema_table public; /* first */
    struct list columns, indexes;
    bool is_sorted;              /* the columns are */
};

struct unit {
    cqlring_schema_keyspace public; /* first */
    atomic_uint references;
    struct arena arena;
    struct list tables, types, functions;
    struct table *last;             /* where the last column or index belonged */
    struct unit *parent;            /* whose memory some of it is, a reference; NULL: all of it is its own */
    uint32_t generation;            /* how many parents stand behind it */
    const cqlring_schema_table **kept; /* of the parent: tables that were not read again, by name */
    uint32_t kept_count;
};

enum { GENERATIONS_MAX = 16 };      /* then a keyspace is read whole, and the memory of what it was before is free */

/* schema_unit.c */
struct unit *cqr_unit_create(void);                                  /* one reference; NULL: out of memory */
struct unit *cqr_unit_retain(struct unit *unit);
void cqr_unit_release(struct unit *unit);
bool cqr_list_add(struct unit *unit, struct list *list, void *item); /* false: out of memory, or item is NULL */
/* Lists of tables, types and functions, all of which begin with keyspace and name. */
void cqr_named_sort(struct list *list);
void *cqr_named_find(void *const *items, uint32_t count, cqlring_bytes name); /* in a sorted one; NULL: none */
void cqr_columns_sort(struct table *table);
bool cqr_unit_finish(struct unit *unit); /* what the lists have becomes what the public struct shows; false: out of memory */

/* ---- a row ---- */

enum { CELLS_MAX = 64 };

struct row {
    const cqlring_result *result;
    uint32_t count;
    cqlring_bytes cells[CELLS_MAX];
};

static inline cqlring_bytes row_cell(const struct row *row, const char *name)
{
    for (uint32_t i = 0; i < row->count; i++) {
        cqlring_column column;
        if (cqlring_result_column(row->result, i, &column) && strcmp(column.name, name) == 0)
            return row->cells[i];
    }
    return (cqlring_bytes){NULL, CQLRING_NULL};
}

static inline bool cell_is_true(cqlring_bytes value)
{
    return value.size == 1 && *(const uint8_t *)value.data != 0;
}

static inline bool cell_is(cqlring_bytes value, const char *text)
{
    return value.size > 0 && (size_t)value.size == strlen(text) && memcmp(value.data, text, (size_t)value.size) == 0;
}

/* A list, set or (pairs 2) map of a cell: how many there are, and where they are read. */
struct elements {
    struct reader reader;
    uint32_t count;
};

static inline struct elements cell_elements(cqlring_bytes value, uint32_t pairs)
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

/* schema_options.c: the row's cells as options of the table, in the unit's arena. OK or NO_MEMORY. */
cqlring_status cqr_schema_options(struct unit *unit, const struct row *row, cqlring_schema_table *table);

#endif
