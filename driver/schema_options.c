/* SPDX-License-Identifier: Apache-2.0 */

/* The options of a table, from whatever columns system_schema has for them, as CQL writes them: so that a server's own options,
   those of versions to come among them, are shown and given back. */

#include <stdio.h>
#include <stdlib.h>

#include "driver/schema_unit.h"

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
        put_text(out, cell_is_true(value) ? "true" : "false", cell_is_true(value) ? 4 : 5);
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
    struct elements elements = cell_elements(value, 2);
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

cqlring_status cqr_schema_options(struct unit *unit, const struct row *row, cqlring_schema_table *table)
{
    cqlring_schema_pair *pairs = cqr_arena_array(&unit->arena, row->count + 1, sizeof *pairs);
    if (pairs == NULL)
        return CQLRING_NO_MEMORY;
    bool is_new = row_cell(row, "read_repair").size > 0;
    struct literal literal = {.data = NULL};
    cqlring_status status = CQLRING_OK;
    for (uint32_t i = 0; i < row->count && status == CQLRING_OK; i++) {
        cqlring_column column;
        cqlring_bytes value = row->cells[i];
        if (value.size < 0 || !cqlring_result_column(row->result, i, &column) || !is_option(column.name, table->is_view) ||
            (is_new && is_of_old(column.name)))
            continue;
        if (strcmp(column.name, "extensions") == 0 && cell_elements(value, 2).count == 0)
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
