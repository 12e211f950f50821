/* SPDX-License-Identifier: Apache-2.0 */
#include "node_talk.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/rows.h"
#include "cql/segment.h"

static uint8_t room[1 << 20];
static struct writer writer;

/* --- bytes -------------------------------------------------------------------------------------- */

void talk_raw(struct talk *talk, struct node_cluster *cluster, uint32_t node, uint8_t version)
{
    memset(talk, 0, sizeof *talk);
    talk->cluster = cluster;
    talk->dialect.version = version;
    talk->now_us = 1000000;
    talk->conn = node_conn_open(cluster, node, 0, talk->now_us);
    talk->compressor = cqr_compress_state_create();
    cqr_arena_init(&talk->arena, 1 << 24);
}

void talk_open(struct talk *talk, struct node_cluster *cluster, uint32_t node, uint8_t version,
               bool lz4)
{
    talk_raw(talk, cluster, node, version);
    ck_assert_ptr_nonnull(talk->conn);
    talk->lz4 = lz4;
    ck_assert(talk_startup(talk));
}

void talk_close(struct talk *talk)
{
    if (talk->conn != NULL)
        node_conn_close(talk->conn);
    cqr_compress_state_destroy(talk->compressor);
    cqr_arena_fini(&talk->arena);
    free(talk->bytes);
    free(talk->plain);
    free(talk->whole);
}

struct writer *talk_writer(struct talk *talk)
{
    cqr_writer_init(&writer, room + CQR_SEGMENT_LZ4_HEADER_SIZE, sizeof room - 64);
    (void)talk;
    return &writer;
}

static void collect(struct talk *talk)
{
    for (cqlring_bytes out; (out = node_conn_output(talk->conn)).size > 0;) {
        talk->bytes = realloc(talk->bytes, talk->size + (size_t)out.size);
        memcpy(talk->bytes + talk->size, out.data, (size_t)out.size);
        talk->size += (size_t)out.size;
        node_conn_consumed(talk->conn, (uint32_t)out.size);
    }
}

void talk_bytes(struct talk *talk, const void *data, size_t size)
{
    node_conn_input(talk->conn, data, size, talk->now_us);
}

static void send_segment(struct talk *talk, uint8_t *payload, uint32_t size, bool self_contained)
{
    if (!talk->lz4) {
        uint8_t *segment = malloc(size + 10);
        memcpy(segment + 6, payload, size);
        uint32_t whole = cqr_segment_seal(segment, size, self_contained);
        talk_bytes(talk, segment, whole);
        free(segment);
        return;
    }
    uint32_t bound = cqr_compress_bound(size);
    uint8_t *segment = malloc(bound + 12);
    uint32_t packed = cqr_lz4_compress_raw(talk->compressor, payload, size, segment + 8, bound),
             plain = size;
    if (packed == 0 || packed >= size) {
        memcpy(segment + 8, payload, size);
        packed = size;
        plain = 0;
    }
    talk_bytes(talk, segment, cqr_segment_seal_lz4(segment, packed, plain, self_contained));
    free(segment);
}

void talk_send(struct talk *talk)
{
    ck_assert(!writer.failed);
    if (!talk->framed) {
        if (talk->lz4 && writer.size > PROTO_HEADER_SIZE && writer.data[4] != OPCODE_STARTUP &&
            writer.data[4] != OPCODE_OPTIONS) {
            static uint8_t packed[2 << 20];
            uint32_t size = cqr_lz4_compress_body(
                talk->compressor, writer.data + PROTO_HEADER_SIZE, writer.size - PROTO_HEADER_SIZE,
                packed + PROTO_HEADER_SIZE, sizeof packed - PROTO_HEADER_SIZE);
            memcpy(packed, writer.data, PROTO_HEADER_SIZE);
            packed[1] |= FLAG_COMPRESSED;
            cqr_store_u32(packed + 5, size);
            talk_bytes(talk, packed, size + PROTO_HEADER_SIZE);
            return;
        }
        talk_bytes(talk, writer.data, writer.size);
        return;
    }
    if (writer.size <= PROTO_SEGMENT_PAYLOAD_MAX) {
        send_segment(talk, writer.data, writer.size, true);
        return;
    }
    for (uint32_t at = 0; at < writer.size; at += PROTO_SEGMENT_PAYLOAD_MAX)
        send_segment(talk, writer.data + at,
                     writer.size - at < PROTO_SEGMENT_PAYLOAD_MAX ? writer.size - at
                                                                  : PROTO_SEGMENT_PAYLOAD_MAX,
                     false);
}

/* Bytes of segments into bare envelopes at the front of talk->bytes; the node's answers are small
   enough for a test to unwrap them all at once. */
static void unwrap(struct talk *talk, uint8_t **plain, size_t *plain_size)
{
    size_t at = 0;
    while (at < talk->size) {
        struct segment_header header;
        uint32_t left = talk->size - at > CQR_SEGMENT_MAX ? CQR_SEGMENT_MAX
                                                          : (uint32_t)(talk->size - at);
        if (cqr_segment_cut(talk->bytes + at, left, talk->lz4, &header) != SEGMENT_WHOLE)
            break;
        uint32_t size = talk->lz4 && header.uncompressed_size > 0 ? header.uncompressed_size
                                                                  : header.wire_size;
        *plain = realloc(*plain, *plain_size + size);
        const uint8_t *payload = talk->bytes + at + header.header_size;
        if (talk->lz4 && header.uncompressed_size > 0)
            ck_assert_int_eq(
                cqr_lz4_decompress_raw(payload, header.wire_size, *plain + *plain_size, size),
                CQLRING_OK);
        else if (size > 0)
            memcpy(*plain + *plain_size, payload, size);
        *plain_size += size;
        at += header.header_size + (size_t)header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
    }
    if (at > 0)
        memmove(talk->bytes, talk->bytes + at, talk->size - at);
    talk->size -= at;
}

bool talk_take(struct talk *talk)
{
    collect(talk);
    if (talk->framed) {
        unwrap(talk, &talk->plain, &talk->plain_size);
    } else {
        talk->plain = realloc(talk->plain, talk->plain_size + talk->size + 1);
        if (talk->size > 0)
            memcpy(talk->plain + talk->plain_size, talk->bytes, talk->size);
        talk->plain_size += talk->size;
        talk->size = 0;
    }
    struct frame_header header;
    if (cqr_frame_cut(talk->plain, (uint32_t)talk->plain_size, PROTO_BODY_MAX, &header) !=
        FRAME_WHOLE)
        return false;
    talk->version = header.version;
    talk->flags = header.flags;
    talk->opcode = header.opcode;
    talk->stream = header.stream;
    free(talk->whole);
    uint32_t size = header.body_size;
    talk->whole = malloc(size + 1);
    memcpy(talk->whole, talk->plain + PROTO_HEADER_SIZE, size);
    if ((header.flags & FLAG_COMPRESSED) != 0) {
        uint32_t whole_size;
        ck_assert_int_eq(cqr_lz4_body_size(talk->whole, size, PROTO_BODY_MAX, &whole_size),
                         CQLRING_OK);
        uint8_t *whole = malloc(whole_size + 1);
        ck_assert_int_eq(cqr_lz4_decompress_body(talk->whole, size, whole, whole_size), CQLRING_OK);
        free(talk->whole);
        talk->whole = whole;
        size = whole_size;
    }
    talk->plain_size -= PROTO_HEADER_SIZE + header.body_size;
    memmove(talk->plain, talk->plain + PROTO_HEADER_SIZE + header.body_size, talk->plain_size);
    cqlring_bytes body = {talk->whole, (int32_t)size};
    ck_assert_int_eq(cqr_decode_prefix(header.flags, &body, &talk->prefix), CQLRING_OK);
    talk->body = (uint8_t *)(uintptr_t)body.data;
    talk->body_size = (uint32_t)body.size;
    return true;
}

/* --- reading -------------------------------------------------------------------------------------- */

static void say(struct talk *talk, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct talk *talk, const char *format, ...)
{
    size_t size = strlen(talk->text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(talk->text + size, sizeof talk->text - size, format, arguments);
    va_end(arguments);
}

#define SLICE(bytes) (int)(bytes).size, (const char *)(bytes).data

static void say_cell(struct talk *talk, const cqlring_type *type, cqlring_bytes cell);

static void say_elements(struct talk *talk, const cqlring_type *type, cqlring_bytes cell)
{
    cqlring_kind kind = cqlring_type_kind(type);
    bool map = kind == CQLRING_KIND_MAP,
         fields = kind == CQLRING_KIND_TUPLE || kind == CQLRING_KIND_UDT;
    struct reader reader;
    cqr_reader_init(&reader, cell.data, (uint32_t)cell.size);
    if (!fields)
        (void)cqr_get_u32(&reader);
    say(talk, "%s", fields ? "(" : kind == CQLRING_KIND_LIST ? "[" : "{");
    for (uint32_t i = 0; cqr_reader_left(&reader) > 0; ++i) {
        say(talk, "%s", i == 0 ? "" : map && i % 2 == 1 ? ":" : ",");
        say_cell(talk,
                 cqlring_type_child(type, fields ? i
                                          : map  ? i % 2
                                                 : 0),
                 cqr_get_bytes(&reader));
    }
    say(talk, "%s", fields ? ")" : kind == CQLRING_KIND_LIST ? "]" : "}");
}

static void say_cell(struct talk *talk, const cqlring_type *type, cqlring_bytes cell)
{
    if (cell.size < 0) {
        say(talk, "null");
        return;
    }
    int64_t number;
    switch (cqlring_type_kind(type)) {
    case CQLRING_KIND_INT:
    case CQLRING_KIND_BIGINT:
    case CQLRING_KIND_COUNTER:
    case CQLRING_KIND_SMALLINT:
    case CQLRING_KIND_TINYINT:
    case CQLRING_KIND_TIMESTAMP:
        if (cell.size > 0 && cqlring_get_int(cell, (uint32_t)cell.size, &number) == CQLRING_OK) {
            say(talk, "%lld", (long long)number);
            return;
        }
        break;
    case CQLRING_KIND_BOOLEAN:
        say(talk, "%s", cell.size == 1 && *(const uint8_t *)cell.data != 0 ? "true" : "false");
        return;
    case CQLRING_KIND_ASCII:
    case CQLRING_KIND_TEXT: say(talk, "%.*s", SLICE(cell)); return;
    case CQLRING_KIND_LIST:
    case CQLRING_KIND_SET:
    case CQLRING_KIND_MAP:
    case CQLRING_KIND_TUPLE:
    case CQLRING_KIND_UDT: say_elements(talk, type, cell); return;
    default: break;
    }
    say(talk, "0x");
    for (int32_t i = 0; i < cell.size; ++i)
        say(talk, "%02x", ((const uint8_t *)cell.data)[i]);
}

static void name_columns(struct talk *talk, const struct columns *columns)
{
    talk->columns[0] = 0;
    for (uint32_t i = 0; columns->array != NULL && i < columns->count; ++i) {
        char type[256];
        (void)cqlring_type_format(columns->array[i].type, type, sizeof type);
        size_t size = strlen(talk->columns);
        (void)snprintf(talk->columns + size, sizeof talk->columns - size, "%s%.*s %s",
                       i == 0 ? "" : ",", SLICE(columns->array[i].name), type);
    }
}

static void read_rows(struct talk *talk, cqlring_bytes body)
{
    static cqlring_bytes cells[64];
    struct rows_body rows;
    ck_assert_int_eq(cqr_decode_rows(&talk->dialect, body, &talk->arena, &rows), CQLRING_OK);
    name_columns(talk, &rows.columns);
    talk->flags_of_rows = rows.columns.flags;
    talk->row_count = rows.row_count;
    if (rows.columns.paging_state.data != NULL) {
        talk->paging_size = rows.columns.paging_state.size;
        ck_assert_int_le(talk->paging_size, (int)sizeof talk->paging);
        memcpy(talk->paging, rows.columns.paging_state.data, (size_t)talk->paging_size);
    }
    const struct columns *columns = rows.columns.array != NULL ? &rows.columns : &talk->known;
    ck_assert_uint_le(rows.columns.count, 64);
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, rows.rows, rows.columns.count, rows.row_count);
    for (uint32_t row = 0, count;
         cqr_rows_next(&cursor, cells, 1, &count) == CQLRING_OK && count > 0; ++row) {
        for (uint32_t i = 0; i < rows.columns.count; ++i) {
            say(talk, "%s", i > 0 ? "|" : row > 0 ? ";" : "");
            ck_assert_ptr_nonnull(columns->array);
            say_cell(talk, columns->array[i].type, cells[i]);
        }
    }
}

static void read_prepared(struct talk *talk, cqlring_bytes body)
{
    struct prepared_body prepared;
    ck_assert_int_eq(cqr_decode_prepared(&talk->dialect, body, &talk->arena, &prepared),
                     CQLRING_OK);
    ck_assert_int_eq(prepared.id.size, 16);
    memcpy(talk->id, prepared.id.data, 16);
    if (prepared.result_metadata_id.data != NULL)
        memcpy(talk->metadata_id, prepared.result_metadata_id.data, 16);
    talk->pk_count = prepared.pk_count;
    for (uint16_t i = 0; i < prepared.pk_count && i < 8; ++i)
        talk->pk_indexes[i] = prepared.pk_indexes[i];
    talk->bind_count = prepared.bind.count;
    talk->known = prepared.result;
    name_columns(talk, &prepared.bind);
    say(talk, "prepared %s", talk->columns);
    name_columns(talk, &prepared.result);
}

static void read_result(struct talk *talk, cqlring_bytes body)
{
    uint32_t kind;
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_OK);
    cqlring_bytes keyspace;
    struct schema_change change;
    switch (kind) {
    case RESULT_VOID: say(talk, "void"); break;
    case RESULT_ROWS: read_rows(talk, body); break;
    case RESULT_KEYSPACE:
        ck_assert_int_eq(cqr_decode_keyspace(body, &keyspace), CQLRING_OK);
        say(talk, "keyspace %.*s", SLICE(keyspace));
        break;
    case RESULT_PREPARED: read_prepared(talk, body); break;
    case RESULT_SCHEMA:
        ck_assert_int_eq(cqr_decode_schema_change(body, &change), CQLRING_OK);
        say(talk, "schema %.*s %.*s %.*s %.*s", SLICE(change.change), SLICE(change.target),
            SLICE(change.keyspace), change.name.size < 0 ? 0 : (int)change.name.size,
            (const char *)change.name.data);
        break;
    default: ck_abort_msg("result of kind %u", kind);
    }
}

const char *talk_answer(struct talk *talk)
{
    talk->text[0] = 0;
    talk->code = -1;
    talk->paging_size = -1;
    if (!talk_take(talk))
        return NULL;
    cqlring_bytes body = {talk->body, (int32_t)talk->body_size};
    struct error_body error;
    struct event_body event;
    switch (talk->opcode) {
    case OPCODE_ERROR:
        ck_assert_int_eq(cqr_decode_error(&talk->dialect, body, &error), CQLRING_OK);
        talk->code = error.code;
        say(talk, "%.*s", SLICE(error.message));
        break;
    case OPCODE_RESULT: read_result(talk, body); break;
    case OPCODE_EVENT:
        ck_assert_int_eq(cqr_decode_event(&talk->dialect, body, &event), CQLRING_OK);
        if (event.schema.target.size > 0)
            say(talk, "event %.*s %.*s %.*s %.*s %.*s", SLICE(event.type),
                SLICE(event.schema.change), SLICE(event.schema.target),
                SLICE(event.schema.keyspace),
                event.schema.name.size < 0 ? 0 : (int)event.schema.name.size,
                (const char *)event.schema.name.data);
        else
            say(talk, "event %.*s %.*s :%d", SLICE(event.type), SLICE(event.change), event.port);
        break;
    default: say(talk, "opcode %u", talk->opcode); break;
    }
    return talk->text;
}

/* --- asking ---------------------------------------------------------------------------------------- */

bool talk_startup(struct talk *talk)
{
    struct string_pair options[] = {{cqlring_text("CQL_VERSION"), cqlring_text("3.0.0")},
                                    {cqlring_text("DRIVER_NAME"), cqlring_text("talk")},
                                    {cqlring_text("COMPRESSION"), cqlring_text("lz4")}};
    cqr_encode_startup(talk_writer(talk), &talk->dialect, 0, options, talk->lz4 ? 3 : 2);
    talk_send(talk);
    bool answered = talk_take(talk) &&
                    (talk->opcode == OPCODE_READY || talk->opcode == OPCODE_AUTHENTICATE);
    talk->framed = talk->dialect.version >= PROTO_V5;
    return answered;
}

const char *talk_query_with(struct talk *talk, const char *cql, const struct query_params *params,
                            const cqlring_bytes *values, uint32_t count)
{
    static const struct query_params one = {.consistency = 1};
    struct query_params own = params == NULL ? one : *params;
    own.has_values = count > 0;
    uint32_t start = cqr_query_begin(talk_writer(talk), &talk->dialect, 7, cqlring_text(cql), &own);
    if (count > 0)
        cqr_put_values(&writer, values, count);
    cqr_query_end(&writer, &talk->dialect, &own, start);
    talk_send(talk);
    return talk_answer(talk);
}

const char *talk_query(struct talk *talk, const char *cql)
{
    return talk_query_with(talk, cql, NULL, NULL, 0);
}

const char *talk_prepare(struct talk *talk, const char *cql)
{
    cqr_encode_prepare(talk_writer(talk), &talk->dialect, 8, cqlring_text(cql), cqlring_text(""),
                       false, NULL, 0);
    talk_send(talk);
    return talk_answer(talk);
}

const char *talk_execute(struct talk *talk, const struct query_params *params,
                         const cqlring_bytes *values, uint32_t count)
{
    static const struct query_params one = {.consistency = 1};
    struct query_params own = params == NULL ? one : *params;
    own.has_values = count > 0;
    cqlring_bytes id = {talk->id, 16}, metadata_id = {talk->metadata_id, 16};
    uint32_t start = cqr_execute_begin(talk_writer(talk), &talk->dialect, 9, id, metadata_id, &own);
    if (count > 0)
        cqr_put_values(&writer, values, count);
    cqr_execute_end(&writer, &talk->dialect, &own, start, 0);
    talk_send(talk);
    return talk_answer(talk);
}

cqlring_bytes talk_int(int32_t value, uint8_t memory[4])
{
    cqr_store_u32(memory, (uint32_t)value);
    return (cqlring_bytes){memory, 4};
}

cqlring_bytes talk_bigint(int64_t value, uint8_t memory[8])
{
    cqr_store_u64(memory, (uint64_t)value);
    return (cqlring_bytes){memory, 8};
}
