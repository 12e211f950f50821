/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/request.h"
#include "tests/vectors_frames.h"

/* input_json of a request → our bytes, and those bytes → the same fields. */

static cqlring_bytes text_at(const json_t *object, const char *key)
{
    const json_t *text = json_object_get(object, key);
    if (!json_is_string(text))
        return (cqlring_bytes){.data = NULL, .size = 0};
    return (cqlring_bytes){.data = json_string_value(text),
                           .size = (int32_t)json_string_length(text)};
}

static cqlring_bytes hex_at(struct vector_row *row, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? (cqlring_bytes){.data = NULL, .size = 0} : vector_hex_of(row, text);
}

static cqlring_bytes value_of(struct vector_row *row, const json_t *json)
{
    const char *text = json_string_value(json);
    if (strcmp(text, "null") == 0)
        return (cqlring_bytes){.data = NULL, .size = CQLRING_NULL};
    if (strcmp(text, "unset") == 0)
        return (cqlring_bytes){.data = NULL, .size = CQLRING_UNSET};
    return vector_hex_of(row, text);
}

static cqlring_bytes *values_of(struct vector_row *row, const json_t *array)
{
    cqlring_bytes *cells = vector_room(row, (json_array_size(array) + 1) * sizeof *cells);
    for (size_t i = 0; i < json_array_size(array); ++i)
        cells[i] = value_of(row, json_array_get(array, i));
    return cells;
}

static void read_payload(struct vector_row *row, json_t *object, struct query_params *params)
{
    const char *key;
    json_t *value;
    struct string_pair *pairs = vector_room(row, (json_object_size(object) + 1) * sizeof *pairs);
    json_object_foreach(object, key, value)
    {
        pairs[params->payload_count].key = (cqlring_bytes){.data = key,
                                                           .size = (int32_t)strlen(key)};
        pairs[params->payload_count++].value = value_of(row, value);
    }
    params->payload = pairs;
}

static struct query_params read_params(struct vector_row *row, const json_t *input)
{
    struct query_params params = {
        .consistency = (uint16_t)json_integer_value(json_object_get(input, "consistency"))};
    params.serial_consistency = (uint16_t)json_integer_value(
        json_object_get(input, "serial_consistency"));
    params.has_values = json_object_get(input, "values") != NULL;
    params.has_names = json_object_get(input, "names") != NULL;
    params.skip_metadata = json_is_true(json_object_get(input, "skip_metadata"));
    params.tracing = json_is_true(json_object_get(input, "tracing"));
    params.page_size = (int32_t)json_integer_value(json_object_get(input, "page_size"));
    params.paging_state = hex_at(row, input, "paging_state");
    params.keyspace = text_at(input, "keyspace");
    const json_t *timestamp = json_object_get(input, "timestamp");
    params.has_timestamp = timestamp != NULL;
    params.timestamp_us = timestamp == NULL ? 0 : strtoll(json_string_value(timestamp), NULL, 10);
    const json_t *now = json_object_get(input, "now_in_seconds");
    params.has_now = now != NULL;
    params.now_in_seconds = (int32_t)json_integer_value(now);
    read_payload(row, json_object_get(input, "custom_payload"), &params);
    return params;
}

static void put_values_at(struct vector_row *row, struct writer *writer, const json_t *input)
{
    const json_t *values = json_object_get(input, "values");
    const json_t *names = json_object_get(input, "names");
    if (values == NULL)
        return;
    uint32_t count = (uint32_t)json_array_size(values);
    if (names == NULL) {
        cqr_put_values(writer, values_of(row, values), count);
        return;
    }
    cqlring_bytes *texts = vector_room(row, (count + 1) * sizeof *texts);
    for (uint32_t i = 0; i < count; ++i) {
        const json_t *name = json_array_get(names, i);
        texts[i] = (cqlring_bytes){.data = json_string_value(name),
                                   .size = (int32_t)json_string_length(name)};
    }
    cqr_put_named_values(writer, texts, values_of(row, values), count);
}

/* A list of strings, or of [key, value]. */
static uint16_t strings_of(struct vector_row *row, const json_t *array, cqlring_bytes **out)
{
    uint16_t count = 0;
    cqlring_bytes *texts = vector_room(row, (2 * json_array_size(array) + 1) * sizeof *texts);
    for (size_t i = 0; i < json_array_size(array); ++i) {
        const json_t *item = json_array_get(array, i);
        for (size_t j = 0; j < (json_is_array(item) ? json_array_size(item) : 1); ++j) {
            const json_t *text = json_is_array(item) ? json_array_get(item, j) : item;
            texts[count++] = (cqlring_bytes){.data = json_string_value(text),
                                             .size = (int32_t)json_string_length(text)};
        }
    }
    *out = texts;
    return count;
}

static void encode_batch(struct vector_row *row, struct writer *writer,
                         const struct dialect *dialect, int16_t stream, const json_t *input)
{
    struct query_params params = read_params(row, input);
    const json_t *queries = json_object_get(input, "queries");
    uint32_t start = cqr_batch_begin(writer, dialect, stream,
                                     (uint8_t)json_integer_value(json_object_get(input, "type")),
                                     (uint16_t)json_array_size(queries), &params);
    for (size_t i = 0; i < json_array_size(queries); ++i) {
        const json_t *child = json_array_get(queries, i);
        if (json_integer_value(json_object_get(child, "kind")) == 0)
            cqr_batch_text(writer, text_at(child, "query_or_id"));
        else
            cqr_batch_prepared(writer, hex_at(row, child, "query_or_id"));
        put_values_at(row, writer, child);
    }
    cqr_batch_end(writer, dialect, &params, start);
}

static void encode(struct vector_row *row, struct writer *writer, const struct dialect *dialect,
                   int16_t stream, const json_t *input)
{
    const char *kind = vector_text(row, "kind");
    struct query_params params = read_params(row, input);
    cqlring_bytes *texts;
    if (strcmp(kind, "OPTIONS") == 0) {
        cqr_encode_options(writer, dialect, stream);
    } else if (strcmp(kind, "STARTUP") == 0) {
        uint16_t count = strings_of(row, json_object_get(input, "options"), &texts) / 2;
        struct string_pair *pairs = vector_room(row, (count + 1u) * sizeof *pairs);
        for (uint16_t i = 0; i < count; ++i)
            pairs[i] = (struct string_pair){texts[2 * i], texts[2 * i + 1]};
        cqr_encode_startup(writer, dialect, stream, pairs, count);
    } else if (strcmp(kind, "REGISTER") == 0) {
        uint16_t count = strings_of(row, json_object_get(input, "events"), &texts);
        cqr_encode_register(writer, dialect, stream, texts, count);
    } else if (strcmp(kind, "AUTH_RESPONSE") == 0) {
        cqr_encode_auth_response(writer, dialect, stream, hex_at(row, input, "token"));
    } else if (strcmp(kind, "PREPARE") == 0) {
        cqr_encode_prepare(writer, dialect, stream, text_at(input, "query"),
                           text_at(input, "keyspace"), params.tracing, params.payload,
                           params.payload_count);
    } else if (strcmp(kind, "QUERY") == 0) {
        uint32_t start = cqr_query_begin(writer, dialect, stream, text_at(input, "query"), &params);
        put_values_at(row, writer, input);
        cqr_query_end(writer, dialect, &params, start);
    } else if (strcmp(kind, "EXECUTE") == 0) {
        uint32_t start = cqr_execute_begin(writer, dialect, stream, hex_at(row, input, "id"),
                                           hex_at(row, input, "result_metadata_id"), &params);
        put_values_at(row, writer, input);
        uint8_t block = (uint8_t)json_integer_value(json_object_get(input, "tablet_version_block"));
        cqr_execute_end(writer, dialect, &params, start, block);
    } else if (strcmp(kind, "BATCH") == 0) {
        encode_batch(row, writer, dialect, stream, input);
    } else {
        vector_check(row, false, "a known kind of request");
    }
}

static void check_values(struct vector_row *row, const json_t *input, bool has_names,
                         uint16_t count, cqlring_bytes values)
{
    const json_t *wanted = json_object_get(input, "values");
    vector_check_int(row, "decoded value_count", count, (int64_t)json_array_size(wanted));
    for (uint16_t i = 0; i < count; ++i) {
        cqlring_bytes name, value;
        if (has_names) {
            const json_t *wanted_name = json_array_get(json_object_get(input, "names"), i);
            vector_check_status(row, "decoded name", cqr_next_string(&values, &name), CQLRING_OK);
            vector_check_bytes(row, "decoded name", name,
                               (cqlring_bytes){json_string_value(wanted_name),
                                               (int32_t)json_string_length(wanted_name)});
        }
        if (vector_check_status(row, "decoded value", cqr_next_value(&values, &value), CQLRING_OK))
            vector_check_bytes(row, "decoded value", value,
                               value_of(row, json_array_get(wanted, i)));
    }
    vector_check_int(row, "bytes behind the values", values.size, 0);
}

static void check_params(struct vector_row *row, const json_t *input, const struct request *request)
{
    struct query_params wanted = read_params(row, input);
    const struct query_params *got = &request->params;
    vector_check_int(row, "decoded consistency", got->consistency, wanted.consistency);
    vector_check_int(row, "decoded serial_consistency", got->serial_consistency,
                     wanted.serial_consistency);
    vector_check_int(row, "decoded skip_metadata", got->skip_metadata, wanted.skip_metadata);
    vector_check_int(row, "decoded tracing", got->tracing, wanted.tracing);
    vector_check_int(row, "decoded page_size", got->page_size, wanted.page_size);
    vector_check_bytes(row, "decoded paging_state", got->paging_state, wanted.paging_state);
    vector_check_bytes(row, "decoded keyspace", got->keyspace, wanted.keyspace);
    vector_check_int(row, "decoded has_timestamp", got->has_timestamp, wanted.has_timestamp);
    vector_check_int(row, "decoded timestamp", got->timestamp_us, wanted.timestamp_us);
    vector_check_int(row, "decoded has_now", got->has_now, wanted.has_now);
    vector_check_int(row, "decoded now_in_seconds", got->now_in_seconds, wanted.now_in_seconds);
}

static void check_batch(struct vector_row *row, const json_t *input, const struct request *request)
{
    const json_t *queries = json_object_get(input, "queries");
    vector_check_int(row, "decoded type", request->batch_kind,
                     json_integer_value(json_object_get(input, "type")));
    vector_check_int(row, "decoded queries", request->batch_count,
                     (int64_t)json_array_size(queries));
    cqlring_bytes children = request->batch_children;
    for (uint16_t i = 0; i < request->batch_count; ++i) {
        const json_t *wanted = json_array_get(queries, i);
        struct batch_child child;
        if (!vector_check_status(row, "next child", cqr_request_next_child(&children, &child),
                                 CQLRING_OK))
            return;
        vector_check_int(row, "child prepared", child.prepared,
                         json_integer_value(json_object_get(wanted, "kind")));
        vector_check_bytes(row, "child", child.text_or_id,
                           child.prepared ? hex_at(row, wanted, "query_or_id")
                                          : text_at(wanted, "query_or_id"));
        check_values(row, wanted, false, child.value_count, child.values);
    }
    vector_check_int(row, "bytes behind the children", children.size, 0);
}

static void check_payload(struct vector_row *row, const json_t *input,
                          const struct request *request)
{
    const json_t *wanted = json_object_get(input, "custom_payload");
    vector_check_int(row, "decoded payload", request->payload.data != NULL, wanted != NULL);
}

/* The server's side of the same bytes. */
static void decode(struct vector_row *row, const struct dialect *dialect, cqlring_bytes frame,
                   const json_t *input)
{
    struct frame_header header = {.body_size = 0};
    const uint8_t *bytes = frame.data;
    if (!vector_check_int(row, "frame_cut",
                          cqr_frame_cut(bytes, (uint32_t)frame.size, PROTO_BODY_MAX, &header),
                          FRAME_WHOLE))
        return;
    vector_check_int(row, "frame size", header.body_size + PROTO_HEADER_SIZE, frame.size);
    vector_check_int(row, "response", header.response, 0);
    vector_check_int(row, "version", header.version, dialect->version);
    vector_check_int(row, "stream", header.stream, vector_int(row, "stream"));
    cqlring_bytes body = {.data = bytes + PROTO_HEADER_SIZE, .size = (int32_t)header.body_size};
    struct request request;
    cqlring_status status = cqr_decode_request(dialect, header.opcode, header.flags, body,
                                               &request);
    if (!vector_check_status(row, "decode", status, CQLRING_OK))
        return;
    check_payload(row, input, &request);
    cqlring_bytes *texts;
    switch (header.opcode) {
    case OPCODE_STARTUP:
    case OPCODE_REGISTER: {
        bool is_startup = header.opcode == OPCODE_STARTUP;
        uint16_t count = strings_of(row, json_object_get(input, is_startup ? "options" : "events"),
                                    &texts);
        vector_check_int(row, "map_count", request.map_count * (is_startup ? 2 : 1), count);
        for (uint16_t i = 0; i < count; ++i) {
            cqlring_bytes text = {.data = NULL, .size = 0};
            vector_check_status(row, "next_string", cqr_next_string(&request.map, &text),
                                CQLRING_OK);
            vector_check_bytes(row, "text", text, texts[i]);
        }
        break;
    }
    case OPCODE_AUTH_RESPONSE:
        vector_check_bytes(row, "token", request.text, hex_at(row, input, "token"));
        break;
    case OPCODE_PREPARE:
        vector_check_bytes(row, "text", request.text, text_at(input, "query"));
        vector_check_bytes(row, "keyspace", request.keyspace, text_at(input, "keyspace"));
        break;
    case OPCODE_QUERY:
    case OPCODE_EXECUTE:
        if (header.opcode == OPCODE_QUERY)
            vector_check_bytes(row, "text", request.text, text_at(input, "query"));
        else
            vector_check_bytes(row, "id", request.id, hex_at(row, input, "id"));
        vector_check_bytes(row, "result_metadata_id", request.result_metadata_id,
                           hex_at(row, input, "result_metadata_id"));
        vector_check_int(row, "tablet_block", request.tablet_block,
                         json_integer_value(json_object_get(input, "tablet_version_block")));
        check_params(row, input, &request);
        check_values(row, input, request.params.has_names, request.value_count, request.values);
        break;
    case OPCODE_BATCH:
        check_params(row, input, &request);
        check_batch(row, input, &request);
        break;
    default: break;
    }
}

void vector_run_request(struct vector_row *row)
{
    const json_t *input = vector_json(row, "input_json");
    cqlring_bytes wanted = vector_hex(row, "frame_hex");
    struct dialect dialect = {.version = (uint8_t)vector_int(row, "version")};
    const char *extensions = json_string_value(json_object_get(input, "extensions"));
    if (extensions != NULL && strstr(extensions, "SCYLLA_USE_METADATA_ID") != NULL)
        dialect.extensions |= EXT_METADATA_ID;
    if (extensions != NULL && strstr(extensions, "TABLETS_ROUTING_V2") != NULL)
        dialect.extensions |= EXT_TABLETS_V2;
    if (json_is_true(json_object_get(input, "use_beta")))
        dialect.frame_flags |= FLAG_BETA;
    int16_t stream = (int16_t)vector_int(row, "stream");

    struct writer writer;
    cqr_writer_init(&writer, vector_room(row, (size_t)wanted.size), (uint32_t)wanted.size);
    encode(row, &writer, &dialect, stream, input);
    vector_check(row, !writer.failed, "the frame fits the size that it has");
    vector_check_bytes(row, "frame", (cqlring_bytes){writer.data, (int32_t)writer.size}, wanted);

    /* And it fits nothing smaller. */
    for (uint32_t capacity = 0; capacity < (uint32_t)wanted.size; ++capacity) {
        cqr_writer_init(&writer, vector_room(row, capacity), capacity);
        encode(row, &writer, &dialect, stream, input);
        if (!writer.failed)
            vector_check_int(row, "written into too little room", capacity, -1);
    }
    decode(row, &dialect, wanted, input);
}
