/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/response.h"
#include "cql/rows.h"
#include "tests/vectors_frames.h"
#include "tests/vectors_json.h"

/* A response's bytes → decoded_json of the vectors' README. */

static json_t *text_json(cqlring_bytes text)
{
    return json_stringn(text.data == NULL ? "" : (const char *)text.data,
                        text.size > 0 ? (size_t)text.size : 0);
}

static json_t *hex_json(struct vector_row *row, cqlring_bytes bytes)
{
    return bytes.size < 0 ? json_null() : json_string(vector_hex_text(row, bytes));
}

static json_t *strings_json(uint16_t count, cqlring_bytes strings)
{
    json_t *array = json_array();
    for (uint16_t i = 0; i < count; ++i) {
        cqlring_bytes text;
        if (cqr_next_string(&strings, &text) == CQLRING_OK)
            json_array_append_new(array, text_json(text));
    }
    return array;
}

static json_t *address_json(const uint8_t *address, uint8_t size)
{
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(size == 4 ? AF_INET : AF_INET6, address, text, sizeof text);
    return json_string(text);
}

static void set_prefix(struct vector_row *row, json_t *out, const struct response_prefix *prefix)
{
    if (prefix->has_trace_id) {
        char text[37];
        cqlring_uuid_format(prefix->trace_id, text);
        json_object_set_new(out, "trace_id", json_string(text));
    }
    if (prefix->warnings.data != NULL)
        json_object_set_new(out, "warnings", strings_json(prefix->warning_count, prefix->warnings));
    if (prefix->payload.data != NULL) {
        json_t *payload = json_object();
        cqlring_bytes pairs = prefix->payload, key, value;
        for (uint16_t i = 0;
             i < prefix->payload_count && cqr_next_pair(&pairs, &key, &value) == CQLRING_OK; ++i)
            json_object_setn_new(payload, key.data, (size_t)key.size, hex_json(row, value));
        json_object_set_new(out, "custom_payload", payload);
    }
}

/* --- columns and rows ------------------------------------------------------------------------- */

static json_t *columns_json(const struct columns *columns)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < columns->count; ++i) {
        const struct column *column = &columns->array[i];
        json_t *fields = json_array();
        json_array_append_new(fields, text_json(column->keyspace));
        json_array_append_new(fields, text_json(column->table));
        json_array_append_new(fields, text_json(column->name));
        json_array_append_new(fields, vector_type_json(column->type));
        json_array_append_new(array, fields);
    }
    return array;
}

/* Where there is no metadata the vectors' columns are id int, name text. */
static const cqlring_type *type_of(const struct columns *columns, uint32_t index)
{
    if (columns->array != NULL)
        return columns->array[index].type;
    return cqr_type_scalar(index == 0 ? CQLRING_KIND_INT : CQLRING_KIND_TEXT);
}

static cqlring_status set_rows(struct vector_row *row, json_t *out, const struct dialect *dialect,
                               cqlring_bytes body)
{
    struct rows_body rows;
    cqlring_status status = cqr_decode_rows(dialect, body, &row->arena, &rows);
    if (status != CQLRING_OK)
        return status;
    const struct columns *columns = &rows.columns;
    if (columns->paging_state.data != NULL)
        json_object_set_new(out, "paging_state", hex_json(row, columns->paging_state));
    if (columns->new_metadata_id.data != NULL)
        json_object_set_new(out, "new_metadata_id", hex_json(row, columns->new_metadata_id));
    if ((columns->flags & ROWS_NO_METADATA) != 0)
        json_object_set_new(out, "no_metadata", json_true());
    else
        json_object_set_new(out, "columns", columns_json(columns));

    json_t *array = json_array();
    json_object_set_new(out, "rows", array);
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, rows.rows, columns->count, rows.row_count);
    cqlring_bytes *cells = vector_room(row, ((size_t)columns->count + 1) * sizeof *cells);
    for (;;) {
        uint32_t count;
        status = cqr_rows_next(&cursor, cells, 1, &count);
        if (status != CQLRING_OK || count == 0)
            return status;
        json_t *values = json_array();
        for (uint32_t i = 0; i < columns->count; ++i)
            json_array_append_new(values, vector_decode(row, type_of(columns, i), cells[i]));
        json_array_append_new(array, values);
    }
}

static cqlring_status set_prepared(struct vector_row *row, json_t *out,
                                   const struct dialect *dialect, cqlring_bytes body)
{
    struct prepared_body prepared;
    cqlring_status status = cqr_decode_prepared(dialect, body, &row->arena, &prepared);
    if (status != CQLRING_OK)
        return status;
    json_object_set_new(out, "id", hex_json(row, prepared.id));
    if (prepared.result_metadata_id.data != NULL)
        json_object_set_new(out, "result_metadata_id", hex_json(row, prepared.result_metadata_id));
    if (dialect->version >= PROTO_V4) {
        json_t *indexes = json_array();
        for (uint16_t i = 0; i < prepared.pk_count; ++i)
            json_array_append_new(indexes, json_integer(prepared.pk_indexes[i]));
        json_object_set_new(out, "pk_indexes", indexes);
    }
    json_object_set_new(out, "bind", columns_json(&prepared.bind));
    bool is_absent = (prepared.result.flags & ROWS_NO_METADATA) != 0;
    json_object_set_new(out, "result_columns",
                        is_absent ? json_null() : columns_json(&prepared.result));
    json_object_set_new(out, "is_lwt", json_boolean(prepared.is_lwt));
    return CQLRING_OK;
}

/* --- schema changes, events, errors ----------------------------------------------------------- */

static json_t *schema_json(const struct schema_change *change)
{
    json_t *out = json_object();
    char target[16];
    snprintf(target, sizeof target, "%.*s", (int)change->target.size,
             (const char *)change->target.data);
    json_object_set_new(out, "target_type", json_string(target));
    json_object_set_new(out, "change_type", text_json(change->change));
    json_object_set_new(out, "keyspace", text_json(change->keyspace));
    for (char *at = target; *at != '\0'; ++at)
        *at = (char)(*at | 0x20); /* the key is the target in lower case */
    if (change->arguments.data != NULL)
        json_object_set_new(out, target,
                            json_pack("{s:o,s:o}", "name", text_json(change->name),
                                      "argument_types",
                                      strings_json(change->argument_count, change->arguments)));
    else if (change->name.data != NULL)
        json_object_set_new(out, target, text_json(change->name));
    return out;
}

static cqlring_status set_event(json_t *out, const struct dialect *dialect, cqlring_bytes body)
{
    struct event_body event;
    cqlring_status status = cqr_decode_event(dialect, body, &event);
    if (status != CQLRING_OK)
        return status;
    json_object_set_new(out, "event", text_json(event.type));
    json_t *args = json_object();
    if (event.schema.change.data != NULL) {
        json_decref(args);
        args = schema_json(&event.schema);
    } else {
        json_object_set_new(args, "change_type", text_json(event.change));
        if (event.address_size > 0)
            json_object_set_new(args, "address",
                                json_pack("[o,i]", address_json(event.address, event.address_size),
                                          (int)event.port));
        if (event.connection_ids.data != NULL)
            json_object_set_new(args, "connection_ids",
                                strings_json(event.connection_id_count, event.connection_ids));
        if (event.host_ids.data != NULL)
            json_object_set_new(args, "host_ids",
                                strings_json(event.host_id_count, event.host_ids));
    }
    json_object_set_new(out, "args", args);
    return CQLRING_OK;
}

static void set_failures(struct vector_row *row, json_t *info, const struct error_body *error)
{
    json_object_set_new(info, "failures", json_integer(error->failure_count));
    if (error->reasons.data == NULL)
        return;
    json_t *map = json_object();
    cqlring_bytes reasons = error->reasons, address;
    uint16_t reason;
    for (int32_t i = 0; i < error->failure_count; ++i) {
        if (!vector_check_status(row, "next_reason", cqr_next_reason(&reasons, &address, &reason),
                                 CQLRING_OK))
            break;
        json_t *key = address_json(address.data, (uint8_t)address.size);
        json_object_set_new(map, json_string_value(key), json_integer(reason));
        json_decref(key);
    }
    json_object_set_new(info, "error_code_map", map);
}

static void set_responses(json_t *info, const struct error_body *error)
{
    json_object_set_new(info, "consistency", json_integer(error->consistency));
    json_object_set_new(info, "received_responses", json_integer(error->received));
    json_object_set_new(info, "required_responses", json_integer(error->required));
}

static json_t *info_json(struct vector_row *row, const struct dialect *dialect,
                         const struct error_body *error)
{
    json_t *info = json_object();
    if ((dialect->extensions & EXT_RATE_LIMIT) != 0 && error->code == dialect->rate_limit_code) {
        json_object_set_new(info, "op_type", json_integer(error->rate_limit_op));
        json_object_set_new(info, "rejected_by_coordinator",
                            json_boolean(error->rate_limit_by_coordinator));
        return info;
    }
    switch ((uint32_t)error->code) {
    case ERROR_UNAVAILABLE:
        json_object_set_new(info, "consistency", json_integer(error->consistency));
        json_object_set_new(info, "required_replicas", json_integer(error->required));
        json_object_set_new(info, "alive_replicas", json_integer(error->alive));
        break;
    case ERROR_WRITE_TIMEOUT:
        set_responses(info, error);
        json_object_set_new(info, "write_type", text_json(error->write_type));
        if (error->contentions >= 0)
            json_object_set_new(info, "contentions", json_integer(error->contentions));
        break;
    case ERROR_READ_TIMEOUT:
        set_responses(info, error);
        json_object_set_new(info, "data_retrieved", json_boolean(error->data_present));
        break;
    case ERROR_READ_FAILURE:
        set_responses(info, error);
        set_failures(row, info, error);
        json_object_set_new(info, "data_retrieved", json_boolean(error->data_present));
        break;
    case ERROR_WRITE_FAILURE:
        set_responses(info, error);
        set_failures(row, info, error);
        json_object_set_new(info, "write_type", text_json(error->write_type));
        break;
    case ERROR_CAS_WRITE_UNKNOWN: set_responses(info, error); break;
    case ERROR_FUNCTION_FAILURE:
        json_object_set_new(info, "keyspace", text_json(error->keyspace));
        json_object_set_new(info, "function", text_json(error->function));
        json_object_set_new(info, "arg_types",
                            strings_json(error->argument_count, error->arguments));
        break;
    case ERROR_ALREADY_EXISTS:
        json_object_set_new(info, "keyspace", text_json(error->keyspace));
        json_object_set_new(info, "table", text_json(error->table));
        break;
    case ERROR_UNPREPARED:
        json_object_set_new(info, "unknown_id", hex_json(row, error->unprepared_id));
        break;
    default: break;
    }
    return info;
}

static cqlring_status set_error(struct vector_row *row, json_t *out, const struct dialect *dialect,
                                cqlring_bytes body)
{
    struct error_body error;
    cqlring_status status = cqr_decode_error(dialect, body, &error);
    if (status != CQLRING_OK)
        return status;
    json_object_set_new(out, "code", json_integer(error.code));
    json_object_set_new(out, "message", text_json(error.message));
    if (!error.complete)
        return CQLRING_PROTOCOL; /* here: the vectors' errors are whole or wrong */
    json_t *info = info_json(row, dialect, &error);
    if (json_object_size(info) > 0)
        json_object_set(out, "info", info);
    json_decref(info);
    return CQLRING_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */

static cqlring_status set_supported(json_t *out, cqlring_bytes body)
{
    uint16_t key_count;
    cqlring_bytes map;
    cqlring_status status = cqr_decode_supported(body, &key_count, &map);
    json_t *options = json_object();
    for (uint16_t i = 0; i < key_count && status == CQLRING_OK; ++i) {
        cqlring_bytes key, values;
        uint16_t value_count;
        status = cqr_next_multi(&map, &key, &value_count, &values);
        if (status == CQLRING_OK)
            json_object_setn_new(options, key.data, (size_t)key.size,
                                 strings_json(value_count, values));
    }
    json_object_set_new(out, "options", options);
    return status;
}

static cqlring_status set_result(struct vector_row *row, json_t *out, const struct dialect *dialect,
                                 cqlring_bytes body)
{
    uint32_t kind;
    cqlring_status status = cqr_decode_result_kind(&body, &kind);
    if (status != CQLRING_OK)
        return status;
    json_object_set_new(out, "kind", json_integer(kind));
    cqlring_bytes keyspace;
    struct schema_change change;
    switch (kind) {
    case RESULT_ROWS: return set_rows(row, out, dialect, body);
    case RESULT_PREPARED: return set_prepared(row, out, dialect, body);
    case RESULT_KEYSPACE:
        status = cqr_decode_keyspace(body, &keyspace);
        json_object_set_new(out, "keyspace", text_json(keyspace));
        return status;
    case RESULT_SCHEMA:
        status = cqr_decode_schema_change(body, &change);
        if (status == CQLRING_OK)
            json_object_set_new(out, "schema_change", schema_json(&change));
        return status;
    default: return CQLRING_OK;
    }
}

static cqlring_status set_message(struct vector_row *row, json_t *out,
                                  const struct dialect *dialect, uint8_t opcode, cqlring_bytes body)
{
    cqlring_bytes bytes;
    cqlring_status status;
    switch (opcode) {
    case OPCODE_ERROR:
        json_object_set_new(out, "opcode", json_string("ERROR"));
        return set_error(row, out, dialect, body);
    case OPCODE_READY: json_object_set_new(out, "opcode", json_string("READY")); return CQLRING_OK;
    case OPCODE_AUTHENTICATE:
        json_object_set_new(out, "opcode", json_string("AUTHENTICATE"));
        status = cqr_decode_authenticate(body, &bytes);
        json_object_set_new(out, "authenticator", text_json(bytes));
        return status;
    case OPCODE_AUTH_CHALLENGE:
    case OPCODE_AUTH_SUCCESS:
        json_object_set_new(
            out, "opcode",
            json_string(opcode == OPCODE_AUTH_CHALLENGE ? "AUTH_CHALLENGE" : "AUTH_SUCCESS"));
        status = cqr_decode_auth_token(body, &bytes);
        json_object_set_new(out, "token", hex_json(row, bytes));
        return status;
    case OPCODE_SUPPORTED:
        json_object_set_new(out, "opcode", json_string("SUPPORTED"));
        return set_supported(out, body);
    case OPCODE_RESULT:
        json_object_set_new(out, "opcode", json_string("RESULT"));
        return set_result(row, out, dialect, body);
    case OPCODE_EVENT:
        json_object_set_new(out, "opcode", json_string("EVENT"));
        return set_event(out, dialect, body);
    default: return CQLRING_PROTOCOL;
    }
}

static cqlring_status decode_frame(struct vector_row *row, cqlring_bytes frame,
                                   const struct dialect *dialect, json_t *out)
{
    struct frame_header header = {.body_size = 0};
    const uint8_t *bytes = frame.data;
    if (!vector_check_int(row, "frame_cut",
                          cqr_frame_cut(bytes, (uint32_t)frame.size, PROTO_BODY_MAX, &header),
                          FRAME_WHOLE))
        return CQLRING_PROTOCOL;
    vector_check_int(row, "response", header.response, 1);
    json_object_set_new(out, "stream", json_integer(header.stream));
    /* Memory of exactly the body's size, so that a sanitizer sees one byte too far. */
    uint8_t *copy = cqr_mem_alloc(header.body_size);
    if (header.body_size > 0)
        memcpy(copy, bytes + PROTO_HEADER_SIZE, header.body_size);
    cqlring_bytes body = {.data = copy, .size = (int32_t)header.body_size};
    vector_check_int(row, "plain void", cqr_frame_is_plain_void(&header, bytes + PROTO_HEADER_SIZE),
                     header.opcode == OPCODE_RESULT && header.flags == 0 && header.body_size == 4 &&
                         copy[3] == RESULT_VOID);
    struct response_prefix prefix;
    cqlring_status status = cqr_decode_prefix(header.flags, &body, &prefix);
    if (status == CQLRING_OK) {
        set_prefix(row, out, &prefix);
        status = set_message(row, out, dialect, header.opcode, body);
    }
    cqr_mem_free(copy);
    return status;
}

static struct dialect dialect_of(struct vector_row *row, const char *extensions)
{
    struct dialect dialect = {.version = (uint8_t)vector_int(row, "version")};
    const char *number = strchr(extensions, '=');
    if (strstr(extensions, "SCYLLA_USE_METADATA_ID") != NULL)
        dialect.extensions |= EXT_METADATA_ID;
    if (strstr(extensions, "SCYLLA_FAILURE_REASON_MAP") != NULL)
        dialect.extensions |= EXT_FAILURE_MAP;
    if (strstr(extensions, "SCYLLA_LWT_ADD_METADATA_MARK") != NULL && number != NULL) {
        dialect.extensions |= EXT_LWT_MARK;
        dialect.lwt_mask = (uint32_t)strtoul(number + 1, NULL, 10);
    }
    if (strstr(extensions, "SCYLLA_RATE_LIMIT_ERROR") != NULL && number != NULL) {
        dialect.extensions |= EXT_RATE_LIMIT;
        dialect.rate_limit_code = (int32_t)strtol(number + 1, NULL, 10);
    }
    return dialect;
}

/* text and varchar are one type with two names. */
static void settle_names(json_t *json)
{
    size_t index;
    const char *key;
    json_t *value;
    if (json_is_string(json) && strcmp(json_string_value(json), "varchar") == 0)
        json_string_set(json, "text");
    json_array_foreach(json, index, value)
    {
        settle_names(value);
    }
    json_object_foreach(json, key, value)
    {
        settle_names(value);
    }
}

void vector_run_response(struct vector_row *row)
{
    struct dialect dialect = dialect_of(row, vector_text(row, "extensions"));
    json_t *wanted = vector_json(row, "decoded_json");
    json_t *got = json_object();
    cqlring_status status = decode_frame(row, vector_hex(row, "frame_hex"), &dialect, got);
    vector_check_status(row, "decode", status, CQLRING_OK);
    settle_names(got);
    settle_names(wanted);
    vector_check_json(row, "decoded", got, wanted);
    json_decref(got);
}

/* Of a cut ERROR the code and the message may be kept; that it was cut is known all the same
   (complete is false, which counts as refused above). */
void vector_run_response_cut(struct vector_row *row)
{
    struct dialect dialect = dialect_of(row, "-");
    json_t *got = json_object();
    cqlring_status status = decode_frame(row, vector_hex(row, "frame_hex"), &dialect, got);
    vector_check_status(row, "decode", status, CQLRING_PROTOCOL);
    json_decref(got);
}
