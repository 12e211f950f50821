/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cql/response.h"

/* Descriptions of columns: ROWS and PREPARED. Counts come from the network: each is held against
   the bytes that are left before anything is allocated for it. */

/* Rows without columns have no bytes that could bound their number (PD-04). No server sends such a
   page, let alone a large one; without a bound a few bytes could keep a caller busy for minutes. */
enum { EMPTY_ROWS_MAX = 1 << 20 };

static cqlring_status copy_text(struct arena *arena, cqlring_bytes text, cqlring_bytes *out)
{
    char *copy = cqr_arena_text(arena, text.data, (size_t)text.size);
    if (copy == NULL)
        return CQLRING_NO_MEMORY;
    *out = (cqlring_bytes){.data = copy, .size = text.size};
    return CQLRING_OK;
}

static bool is_equal(cqlring_bytes a, cqlring_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}

/* A keyspace's or table's name for a column: the same as the column before in all but odd results,
   so one copy serves many. */
static cqlring_status share_text(struct arena *arena, cqlring_bytes text,
                                 const cqlring_bytes *before, cqlring_bytes *out)
{
    if (before != NULL && is_equal(*before, text)) {
        *out = *before;
        return CQLRING_OK;
    }
    return copy_text(arena, text, out);
}

/* Servers that do not leave a description out send the same bytes with every page. Equal bytes
   under equal count and layout read alike, so they need not be read again. */
static bool take_known(struct reader *reader, const struct columns *known, struct columns *columns)
{
    if (known == NULL || known->array == NULL || known->raw.data == NULL ||
        known->count != columns->count || ((known->flags ^ columns->flags) & ROWS_GLOBAL_SPEC) != 0)
        return false;
    uint32_t size = (uint32_t)known->raw.size;
    if (cqr_reader_left(reader) < size || memcmp(reader->at, known->raw.data, size) != 0)
        return false;
    columns->raw = (cqlring_bytes){.data = cqr_get_raw(reader, size), .size = known->raw.size};
    columns->array = known->array;
    return true;
}

static cqlring_status get_columns(struct reader *reader, struct arena *arena,
                                  struct columns *columns)
{
    bool is_global = (columns->flags & ROWS_GLOBAL_SPEC) != 0;
    const uint8_t *from = reader->at;
    cqlring_bytes keyspace = {.data = NULL, .size = 0};
    cqlring_bytes table = keyspace;
    if (is_global) {
        keyspace = cqr_get_string(reader);
        table = cqr_get_string(reader);
    }
    /* The smallest column has an empty name and a type of two bytes. */
    uint32_t column_size_min = is_global ? 4 : 8;
    if (reader->failed || columns->count > cqr_reader_left(reader) / column_size_min)
        return CQLRING_PROTOCOL;
    if (columns->count == 0)
        return CQLRING_OK;
    struct column *array = cqr_arena_array(arena, columns->count, sizeof *array);
    if (array == NULL)
        return CQLRING_NO_MEMORY;
    for (uint32_t i = 0; i < columns->count; ++i) {
        const struct column *before = i == 0 ? NULL : &array[i - 1];
        if (!is_global) {
            keyspace = cqr_get_string(reader);
            table = cqr_get_string(reader);
        }
        cqlring_bytes name = cqr_get_string(reader);
        if (reader->failed)
            return CQLRING_PROTOCOL;
        cqlring_status status = share_text(
            arena, keyspace, before == NULL ? NULL : &before->keyspace, &array[i].keyspace);
        if (status == CQLRING_OK)
            status = share_text(arena, table, before == NULL ? NULL : &before->table,
                                &array[i].table);
        if (status == CQLRING_OK)
            status = copy_text(arena, name, &array[i].name);
        if (status == CQLRING_OK)
            status = cqr_type_from_option(reader, arena, &array[i].type);
        if (status != CQLRING_OK)
            return status;
    }
    columns->array = array;
    columns->raw = (cqlring_bytes){.data = from, .size = (int32_t)(reader->at - from)};
    return CQLRING_OK;
}

static cqlring_status get_rows_metadata(const struct dialect *dialect, struct reader *reader,
                                        const struct columns *known, struct arena *arena,
                                        struct columns *columns)
{
    *columns = (struct columns){.flags = cqr_get_u32(reader)};
    int32_t count = cqr_get_i32(reader);
    if (reader->failed || count < 0)
        return CQLRING_PROTOCOL;
    columns->count = (uint32_t)count;
    bool is_changed = (columns->flags & ROWS_METADATA_CHANGED) != 0;
    bool is_absent = (columns->flags & ROWS_NO_METADATA) != 0;
    /* PS-04: new metadata that is not there. And where the mechanism is not in force, nobody can
       tell what follows. */
    if (is_changed && (is_absent || !cqr_dialect_has_metadata_id(dialect)))
        return CQLRING_PROTOCOL;
    if ((columns->flags & ROWS_MORE_PAGES) != 0) {
        columns->paging_state = cqr_get_bytes(reader);
        if (columns->paging_state.data == NULL)
            columns->paging_state.size = 0;
    }
    if (is_changed)
        columns->new_metadata_id = cqr_get_string(reader);
    if (reader->failed)
        return CQLRING_PROTOCOL;
    if (is_absent) /* even with ROWS_GLOBAL_SPEC, which Scylla leaves set */
        return CQLRING_OK;
    return take_known(reader, known, columns) ? CQLRING_OK : get_columns(reader, arena, columns);
}

cqlring_status cqr_decode_rows(const struct dialect *dialect, cqlring_bytes body,
                               struct arena *arena, struct rows_body *out)
{
    return cqr_decode_rows_known(dialect, body, NULL, arena, out);
}

cqlring_status cqr_decode_rows_known(const struct dialect *dialect, cqlring_bytes body,
                                     const struct columns *known, struct arena *arena,
                                     struct rows_body *out)
{
    *out = (struct rows_body){.row_count = 0};
    struct reader reader;
    cqr_reader_init(&reader, body.data, body.size > 0 ? (uint32_t)body.size : 0);
    cqlring_status status = get_rows_metadata(dialect, &reader, known, arena, &out->columns);
    if (status != CQLRING_OK)
        return status;
    int32_t row_count = cqr_get_i32(&reader);
    uint32_t left = cqr_reader_left(&reader);
    if (reader.failed || row_count < 0)
        return CQLRING_PROTOCOL;
    if (out->columns.count == 0 ? row_count > EMPTY_ROWS_MAX
                                : (uint64_t)row_count * out->columns.count > left / sizeof(int32_t))
        return CQLRING_PROTOCOL;
    out->row_count = (uint32_t)row_count;
    out->rows = (cqlring_bytes){.data = reader.at, .size = (int32_t)left};
    return CQLRING_OK;
}

static cqlring_status get_pk_indexes(struct reader *reader, struct arena *arena,
                                     struct prepared_body *out)
{
    int32_t count = cqr_get_i32(reader);
    if (reader->failed || count < 0 || count > UINT16_MAX ||
        (uint32_t)count > cqr_reader_left(reader) / sizeof(uint16_t))
        return CQLRING_PROTOCOL;
    if (count == 0)
        return CQLRING_OK;
    uint16_t *indexes = cqr_arena_array(arena, (size_t)count, sizeof *indexes);
    if (indexes == NULL)
        return CQLRING_NO_MEMORY;
    for (int32_t i = 0; i < count; ++i) {
        indexes[i] = cqr_get_u16(reader);
        if (indexes[i] >= out->bind.count)
            return CQLRING_PROTOCOL; /* it would be used as an index into the row's cells */
    }
    out->pk_count = (uint16_t)count;
    out->pk_indexes = indexes;
    return CQLRING_OK;
}

cqlring_status cqr_decode_prepared(const struct dialect *dialect, cqlring_bytes body,
                                   struct arena *arena, struct prepared_body *out)
{
    *out = (struct prepared_body){.pk_count = 0};
    struct reader reader;
    cqr_reader_init(&reader, body.data, body.size > 0 ? (uint32_t)body.size : 0);
    out->id = cqr_get_string(&reader);
    if (cqr_dialect_has_metadata_id(dialect))
        out->result_metadata_id = cqr_get_string(&reader);
    out->bind.flags = cqr_get_u32(&reader);
    int32_t bind_count = cqr_get_i32(&reader);
    if (reader.failed || bind_count < 0 || bind_count > UINT16_MAX)
        return CQLRING_PROTOCOL;
    out->bind.count = (uint32_t)bind_count;
    if (dialect->version >= PROTO_V4) {
        cqlring_status status = get_pk_indexes(&reader, arena, out);
        if (status != CQLRING_OK)
            return status;
    }
    cqlring_status status = get_columns(&reader, arena, &out->bind);
    if (status != CQLRING_OK)
        return status;
    out->is_lwt = (dialect->extensions & EXT_LWT_MARK) != 0 && dialect->lwt_mask != 0 &&
                  (out->bind.flags & dialect->lwt_mask) == dialect->lwt_mask;
    return get_rows_metadata(dialect, &reader, NULL, arena, &out->result);
}
