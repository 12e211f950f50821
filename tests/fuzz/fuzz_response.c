/* SPDX-License-Identifier: Apache-2.0 */
/* A response's body: dialect, opcode and flags in the first three bytes. Everything in it is walked
   to its end. */
#include <assert.h>

#include "cql/response.h"
#include "cql/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Touch each byte, so that a slice that points outside is seen. */
static unsigned sum;

static void look_at(cqlring_bytes bytes)
{
    for (int32_t i = 0; i < bytes.size; ++i)
        sum += ((const uint8_t *)bytes.data)[i];
}

static void walk_strings(uint16_t count, cqlring_bytes strings)
{
    for (uint32_t i = 0; i < count; ++i) {
        cqlring_bytes text;
        assert(cqr_next_string(&strings, &text) == CQLRING_OK);
        look_at(text);
    }
    assert(strings.size == 0);
}

static void walk_prefix(const struct response_prefix *prefix)
{
    walk_strings(prefix->warning_count, prefix->warnings);
    cqlring_bytes pairs = prefix->payload;
    for (uint32_t i = 0; i < prefix->payload_count; ++i) {
        cqlring_bytes key, value;
        assert(cqr_next_pair(&pairs, &key, &value) == CQLRING_OK);
        look_at(key);
        look_at(value);
    }
}

static void walk_error(const struct error_body *error)
{
    look_at(error->message);
    look_at(error->write_type);
    look_at(error->keyspace);
    look_at(error->table);
    look_at(error->function);
    look_at(error->unprepared_id);
    walk_strings(error->argument_count, error->arguments);
    cqlring_bytes reasons = error->reasons, address;
    uint16_t reason;
    for (int32_t i = 0; reasons.data != NULL && i < error->failure_count; ++i) {
        assert(cqr_next_reason(&reasons, &address, &reason) == CQLRING_OK);
        look_at(address);
    }
}

static void walk_schema(const struct schema_change *change)
{
    look_at(change->change);
    look_at(change->target);
    look_at(change->keyspace);
    look_at(change->name);
    walk_strings(change->argument_count, change->arguments);
}

static void walk_columns(const struct columns *columns)
{
    look_at(columns->paging_state);
    look_at(columns->new_metadata_id);
    for (uint32_t i = 0; columns->array != NULL && i < columns->count; ++i) {
        const struct column *column = &columns->array[i];
        look_at(column->keyspace);
        look_at(column->table);
        look_at(column->name);
        sum += (unsigned)cqlring_type_kind(column->type);
    }
}

static void walk_rows(const struct rows_body *rows)
{
    static cqlring_bytes cells[4096];
    uint32_t column_count = rows->columns.count, count;
    walk_columns(&rows->columns);
    if (column_count > 4096)
        return;
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, rows->rows, column_count, rows->row_count);
    while (cqr_rows_next(&cursor, cells, column_count == 0 ? UINT32_MAX : 1, &count) ==
               CQLRING_OK &&
           count > 0) {
        for (uint32_t i = 0; i < column_count; ++i)
            look_at(cells[i]);
    }
}

/* The description is known by now: it is taken as it is. */
static void read_again(const struct dialect *dialect, cqlring_bytes body, struct arena *arena,
                       const struct rows_body *rows)
{
    struct rows_body again;
    cqlring_status status = cqr_decode_rows_known(dialect, body, &rows->columns, arena, &again);
    assert(status == CQLRING_OK && again.columns.array == rows->columns.array);
    assert(again.row_count == rows->row_count && again.rows.data == rows->rows.data);
}

static void read_result(const struct dialect *dialect, cqlring_bytes body, struct arena *arena)
{
    uint32_t kind;
    if (cqr_decode_result_kind(&body, &kind) != CQLRING_OK)
        return;
    struct rows_body rows;
    struct prepared_body prepared;
    struct schema_change change;
    cqlring_bytes keyspace;
    switch (kind) {
    case RESULT_ROWS:
        if (cqr_decode_rows(dialect, body, arena, &rows) == CQLRING_OK) {
            walk_rows(&rows);
            read_again(dialect, body, arena, &rows);
        }
        break;
    case RESULT_PREPARED:
        if (cqr_decode_prepared(dialect, body, arena, &prepared) != CQLRING_OK)
            break;
        look_at(prepared.id);
        look_at(prepared.result_metadata_id);
        walk_columns(&prepared.bind);
        walk_columns(&prepared.result);
        for (uint32_t i = 0; i < prepared.pk_count; ++i)
            assert(prepared.pk_indexes[i] < prepared.bind.count);
        break;
    case RESULT_SCHEMA:
        if (cqr_decode_schema_change(body, &change) == CQLRING_OK)
            walk_schema(&change);
        break;
    default:
        if (cqr_decode_keyspace(body, &keyspace) == CQLRING_OK)
            look_at(keyspace);
    }
}

static void read_supported(cqlring_bytes body)
{
    uint16_t key_count, value_count;
    cqlring_bytes map, key, values;
    if (cqr_decode_supported(body, &key_count, &map) != CQLRING_OK)
        return;
    for (uint32_t i = 0; i < key_count; ++i) {
        assert(cqr_next_multi(&map, &key, &value_count, &values) == CQLRING_OK);
        look_at(key);
        walk_strings(value_count, values);
    }
}

static void read_message(const struct dialect *dialect, uint8_t opcode, cqlring_bytes body,
                         struct arena *arena)
{
    struct error_body error;
    struct event_body event;
    cqlring_bytes bytes;
    switch (opcode) {
    case OPCODE_ERROR:
        if (cqr_decode_error(dialect, body, &error) == CQLRING_OK)
            walk_error(&error);
        break;
    case OPCODE_EVENT:
        if (cqr_decode_event(dialect, body, &event) != CQLRING_OK)
            break;
        walk_schema(&event.schema);
        walk_strings(event.connection_id_count, event.connection_ids);
        walk_strings(event.host_id_count, event.host_ids);
        break;
    case OPCODE_SUPPORTED: read_supported(body); break;
    case OPCODE_AUTHENTICATE:
        if (cqr_decode_authenticate(body, &bytes) == CQLRING_OK)
            look_at(bytes);
        break;
    case OPCODE_AUTH_CHALLENGE:
        if (cqr_decode_auth_token(body, &bytes) == CQLRING_OK)
            look_at(bytes);
        break;
    default: read_result(dialect, body, arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > INT32_MAX)
        return 0;
    const struct dialect dialect = {.version = (uint8_t)(PROTO_V3 + (data[0] & 3) % 3),
                                    .extensions = data[0] >> 2,
                                    .rate_limit_code = 0xF000,
                                    .lwt_mask = 0x80000000};
    cqlring_bytes body = {data + 3, (int32_t)size - 3};
    struct response_prefix prefix;
    if (cqr_decode_prefix(data[2], &body, &prefix) != CQLRING_OK)
        return 0;
    walk_prefix(&prefix);
    struct arena arena;
    cqr_arena_init(&arena, 1 << 22);
    read_message(&dialect, data[1], body, &arena);
    cqr_arena_fini(&arena);
    assert(cqr_mem_live_count() == 0);
    return 0;
}
