/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/response.h"

#include <string.h>

/* Everything but ERROR (response_error.c) and what describes columns (response_rows.c). Whatever a
   caller will iterate over later is walked here once, so that a torn body is refused as a whole and
   not half-way through. */

static struct reader open_body(cqlring_bytes body)
{
    struct reader reader;
    cqr_reader_init(&reader, body.data, body.size > 0 ? (uint32_t)body.size : 0);
    return reader;
}

static cqlring_status close_body(const struct reader *reader)
{
    return reader->failed ? CQLRING_PROTOCOL : CQLRING_OK;
}

/* The slice takes over what the reader has left. */
static cqlring_status keep_rest(const struct reader *reader, cqlring_bytes *slice)
{
    if (reader->failed)
        return CQLRING_PROTOCOL;
    *slice = (cqlring_bytes){.data = reader->at, .size = (int32_t)cqr_reader_left(reader)};
    return CQLRING_OK;
}

/* [string list]: the raw strings behind the count. */
static cqlring_bytes get_string_list(struct reader *reader, uint16_t *count)
{
    *count = cqr_get_u16(reader);
    const uint8_t *from = reader->at;
    for (uint32_t i = 0; i < *count && !reader->failed; ++i)
        cqr_get_string(reader);
    if (reader->failed) {
        *count = 0;
        return (cqlring_bytes){.data = NULL, .size = 0};
    }
    return (cqlring_bytes){.data = from, .size = (int32_t)(reader->at - from)};
}

cqlring_status cqr_decode_prefix(uint8_t flags, cqlring_bytes *body, struct response_prefix *out)
{
    *out = (struct response_prefix){.has_trace_id = false};
    if ((flags & (FLAG_TRACING | FLAG_WARNING | FLAG_PAYLOAD)) == 0)
        return CQLRING_OK;
    struct reader reader = open_body(*body);
    if ((flags & FLAG_TRACING) != 0) {
        const uint8_t *trace_id = cqr_get_raw(&reader, sizeof out->trace_id);
        if (trace_id != NULL) {
            memcpy(out->trace_id, trace_id, sizeof out->trace_id);
            out->has_trace_id = true;
        }
    }
    if ((flags & FLAG_WARNING) != 0)
        out->warnings = get_string_list(&reader, &out->warning_count);
    if ((flags & FLAG_PAYLOAD) != 0) {
        out->payload_count = cqr_get_u16(&reader);
        const uint8_t *from = reader.at;
        for (uint32_t i = 0; i < out->payload_count && !reader.failed; ++i) {
            cqr_get_string(&reader);
            cqr_get_bytes(&reader);
        }
        if (!reader.failed)
            out->payload = (cqlring_bytes){.data = from, .size = (int32_t)(reader.at - from)};
    }
    return keep_rest(&reader, body);
}

cqlring_status cqr_next_pair(cqlring_bytes *pairs, cqlring_bytes *key, cqlring_bytes *value)
{
    struct reader reader = open_body(*pairs);
    *key = cqr_get_string(&reader);
    *value = cqr_get_bytes(&reader);
    return keep_rest(&reader, pairs);
}

cqlring_status cqr_decode_supported(cqlring_bytes body, uint16_t *key_count,
                                    cqlring_bytes *multimap)
{
    struct reader reader = open_body(body);
    *key_count = cqr_get_u16(&reader);
    const uint8_t *from = reader.at;
    for (uint32_t i = 0; i < *key_count && !reader.failed; ++i) {
        uint16_t value_count;
        cqr_get_string(&reader);
        get_string_list(&reader, &value_count);
    }
    if (reader.failed)
        return CQLRING_PROTOCOL;
    *multimap = (cqlring_bytes){.data = from, .size = (int32_t)(reader.at - from)};
    return CQLRING_OK;
}

cqlring_status cqr_next_multi(cqlring_bytes *multimap, cqlring_bytes *key, uint16_t *value_count,
                              cqlring_bytes *values)
{
    struct reader reader = open_body(*multimap);
    *key = cqr_get_string(&reader);
    *values = get_string_list(&reader, value_count);
    return keep_rest(&reader, multimap);
}

cqlring_status cqr_decode_authenticate(cqlring_bytes body, cqlring_bytes *authenticator)
{
    struct reader reader = open_body(body);
    *authenticator = cqr_get_string(&reader);
    return close_body(&reader);
}

cqlring_status cqr_decode_auth_token(cqlring_bytes body, cqlring_bytes *token)
{
    struct reader reader = open_body(body);
    *token = cqr_get_bytes(&reader);
    return close_body(&reader);
}

cqlring_status cqr_decode_result_kind(cqlring_bytes *body, uint32_t *kind)
{
    struct reader reader = open_body(*body);
    *kind = cqr_get_u32(&reader);
    return keep_rest(&reader, body);
}

cqlring_status cqr_decode_keyspace(cqlring_bytes body, cqlring_bytes *keyspace)
{
    struct reader reader = open_body(body);
    *keyspace = cqr_get_string(&reader);
    return close_body(&reader);
}

static bool is_text(cqlring_bytes text, const char *expected)
{
    size_t size = strlen(expected);
    return (size_t)text.size == size && memcmp(text.data, expected, size) == 0;
}

/* Of a target that we do not know only the change and the target are told (SC-06: it is to be
   ignored, no error). */
static void get_schema_change(struct reader *reader, struct schema_change *out)
{
    *out = (struct schema_change){.argument_count = 0};
    out->change = cqr_get_string(reader);
    out->target = cqr_get_string(reader);
    if (reader->failed)
        return;
    bool has_arguments = is_text(out->target, "FUNCTION") || is_text(out->target, "AGGREGATE");
    bool has_name = has_arguments || is_text(out->target, "TABLE") || is_text(out->target, "TYPE");
    if (has_name || is_text(out->target, "KEYSPACE"))
        out->keyspace = cqr_get_string(reader);
    if (has_name)
        out->name = cqr_get_string(reader);
    if (has_arguments)
        out->arguments = get_string_list(reader, &out->argument_count);
}

cqlring_status cqr_decode_schema_change(cqlring_bytes body, struct schema_change *out)
{
    struct reader reader = open_body(body);
    get_schema_change(&reader, out);
    return close_body(&reader);
}

/* [inet]: size, address, port. */
static void get_inet(struct reader *reader, struct event_body *out)
{
    uint8_t size = cqr_get_u8(reader);
    if (size != 4 && size != 16)
        reader->failed = true;
    const uint8_t *address = cqr_get_raw(reader, size);
    out->port = cqr_get_i32(reader);
    if (reader->failed)
        return;
    memcpy(out->address, address, size);
    out->address_size = size;
}

/* Events of a type that we do not know are the type alone (FR-10: ignored). */
cqlring_status cqr_decode_event(const struct dialect *dialect, cqlring_bytes body,
                                struct event_body *out)
{
    (void)dialect; /* all versions so far agree */
    *out = (struct event_body){.address_size = 0};
    struct reader reader = open_body(body);
    out->type = cqr_get_string(&reader);
    if (reader.failed)
        return CQLRING_PROTOCOL;
    if (is_text(out->type, "TOPOLOGY_CHANGE") || is_text(out->type, "STATUS_CHANGE")) {
        out->change = cqr_get_string(&reader);
        get_inet(&reader, out);
    } else if (is_text(out->type, "SCHEMA_CHANGE")) {
        get_schema_change(&reader, &out->schema);
        out->change = out->schema.change;
    } else if (is_text(out->type, "CLIENT_ROUTES_CHANGE")) {
        out->change = cqr_get_string(&reader);
        out->connection_ids = get_string_list(&reader, &out->connection_id_count);
        out->host_ids = get_string_list(&reader, &out->host_id_count);
    }
    return close_body(&reader);
}
