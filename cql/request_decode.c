/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cql/request.h"

/* The server's side: a request taken apart, every length checked, and walked to its end, so that
   who iterates over values, children or pairs afterwards meets no surprise. */

enum { QUERY_FLAGS_V4 = QUERY_KEYSPACE - 1, QUERY_FLAGS_V5 = (QUERY_NOW << 1) - 1 };
enum {
    BATCH_FLAGS_V4 = QUERY_SERIAL | QUERY_TIMESTAMP,
    BATCH_FLAGS_V5 = BATCH_FLAGS_V4 | QUERY_KEYSPACE | QUERY_NOW
};
enum { PREPARE_KEYSPACE = 0x01, CONSISTENCY_LAST = 0x0A };

static cqlring_bytes slice_from(const uint8_t *from, const struct reader *reader)
{
    return (cqlring_bytes){.data = from, .size = reader->failed ? 0 : (int32_t)(reader->at - from)};
}

static cqlring_bytes get_long_string(struct reader *reader)
{
    cqlring_bytes text = cqr_get_bytes(reader);
    if (text.size < 0)
        reader->failed = true;
    return text;
}

/* One [value]. Unset came with v4. */
static cqlring_bytes get_value(struct reader *reader, bool unset_allowed)
{
    int32_t size = cqr_get_i32(reader);
    if (size >= 0) {
        const uint8_t *at = cqr_get_raw(reader, (uint32_t)size);
        return (cqlring_bytes){.data = at, .size = at == NULL ? CQLRING_NULL : size};
    }
    if (size < CQLRING_UNSET || (size == CQLRING_UNSET && !unset_allowed))
        reader->failed = true;
    return (cqlring_bytes){.data = NULL, .size = size};
}

static cqlring_bytes skip_values(struct reader *reader, uint16_t count, bool names,
                                 bool unset_allowed)
{
    const uint8_t *from = reader->at;
    for (uint32_t i = 0; i < count && !reader->failed; ++i) {
        if (names)
            cqr_get_string(reader);
        get_value(reader, unset_allowed);
    }
    return slice_from(from, reader);
}

static cqlring_bytes skip_strings(struct reader *reader, uint32_t count)
{
    const uint8_t *from = reader->at;
    for (uint32_t i = 0; i < count && !reader->failed; ++i)
        cqr_get_string(reader);
    return slice_from(from, reader);
}

static cqlring_bytes get_payload(struct reader *reader)
{
    const uint8_t *from = reader->at;
    uint16_t count = cqr_get_u16(reader);
    for (uint32_t i = 0; i < count && !reader->failed; ++i) {
        cqr_get_string(reader);
        cqr_get_bytes(reader);
    }
    return slice_from(from, reader);
}

static uint32_t get_flags(const struct dialect *dialect, struct reader *reader, uint32_t legal_v4,
                          uint32_t legal_v5)
{
    bool is_v5 = dialect->version >= PROTO_V5;
    uint32_t flags = is_v5 ? cqr_get_u32(reader) : cqr_get_u8(reader);
    if ((flags & ~(is_v5 ? legal_v5 : legal_v4)) != 0)
        reader->failed = true;
    return flags;
}

static uint16_t get_consistency(struct reader *reader)
{
    uint16_t consistency = cqr_get_u16(reader);
    if (consistency > CONSISTENCY_LAST)
        reader->failed = true;
    return consistency;
}

/* The optional fields behind the values. */
static void get_tail(struct reader *reader, uint32_t flags, struct request *out)
{
    struct query_params *params = &out->params;
    if ((flags & QUERY_PAGE_SIZE) != 0)
        params->page_size = cqr_get_i32(reader);
    if ((flags & QUERY_PAGING_STATE) != 0)
        params->paging_state = cqr_get_bytes(reader);
    if ((flags & QUERY_SERIAL) != 0)
        params->serial_consistency = get_consistency(reader);
    params->has_timestamp = (flags & QUERY_TIMESTAMP) != 0;
    if (params->has_timestamp)
        params->timestamp_us = (int64_t)cqr_get_u64(reader);
    if ((flags & QUERY_KEYSPACE) != 0)
        params->keyspace = out->keyspace = cqr_get_string(reader);
    params->has_now = (flags & QUERY_NOW) != 0;
    if (params->has_now)
        params->now_in_seconds = cqr_get_i32(reader);
}

static void get_params(const struct dialect *dialect, struct reader *reader, struct request *out)
{
    struct query_params *params = &out->params;
    params->consistency = get_consistency(reader);
    uint32_t flags = get_flags(dialect, reader, QUERY_FLAGS_V4, QUERY_FLAGS_V5);
    params->has_values = (flags & QUERY_VALUES) != 0;
    params->has_names = params->has_values && (flags & QUERY_NAMES) != 0;
    params->skip_metadata = (flags & QUERY_SKIP_METADATA) != 0;
    if (params->has_values) {
        out->value_count = cqr_get_u16(reader);
        out->values = skip_values(reader, out->value_count, params->has_names,
                                  dialect->version >= PROTO_V4);
    }
    get_tail(reader, flags, out);
}

static void get_batch(const struct dialect *dialect, struct reader *reader, struct request *out)
{
    out->batch_kind = cqr_get_u8(reader);
    if (out->batch_kind > BATCH_COUNTER)
        reader->failed = true;
    out->batch_count = cqr_get_u16(reader);
    const uint8_t *from = reader->at;
    for (uint32_t i = 0; i < out->batch_count && !reader->failed; ++i) {
        uint8_t kind = cqr_get_u8(reader);
        if (kind == 0)
            get_long_string(reader);
        else if (kind == 1)
            cqr_get_string(reader);
        else
            reader->failed = true;
        skip_values(reader, cqr_get_u16(reader), false, dialect->version >= PROTO_V4);
    }
    out->batch_children = slice_from(from, reader);
    out->params.consistency = get_consistency(reader);
    get_tail(reader, get_flags(dialect, reader, BATCH_FLAGS_V4, BATCH_FLAGS_V5), out);
}

cqlring_status cqr_decode_request(const struct dialect *dialect, uint8_t opcode, uint8_t flags,
                                  cqlring_bytes body, struct request *out)
{
    *out = (struct request){.opcode = opcode};
    struct reader reader;
    cqr_reader_init(&reader, body.data, body.size > 0 ? (uint32_t)body.size : 0);
    out->params.tracing = (flags & FLAG_TRACING) != 0;
    if ((flags & FLAG_PAYLOAD) != 0 && dialect->version >= PROTO_V4)
        out->payload = get_payload(&reader);

    switch (opcode) {
    case OPCODE_OPTIONS: break;
    case OPCODE_STARTUP:
        out->map_count = cqr_get_u16(&reader);
        out->map = skip_strings(&reader, 2u * out->map_count);
        break;
    case OPCODE_REGISTER:
        out->map_count = cqr_get_u16(&reader);
        out->map = skip_strings(&reader, out->map_count);
        break;
    case OPCODE_AUTH_RESPONSE: out->text = cqr_get_bytes(&reader); break;
    case OPCODE_PREPARE:
        out->text = get_long_string(&reader);
        if (dialect->version >= PROTO_V5) {
            uint32_t prepare_flags = cqr_get_u32(&reader);
            if ((prepare_flags & ~(uint32_t)PREPARE_KEYSPACE) != 0)
                reader.failed = true;
            if ((prepare_flags & PREPARE_KEYSPACE) != 0)
                out->keyspace = cqr_get_string(&reader);
        }
        break;
    case OPCODE_QUERY:
        out->text = get_long_string(&reader);
        get_params(dialect, &reader, out);
        break;
    case OPCODE_EXECUTE:
        out->id = cqr_get_string(&reader);
        if (cqr_dialect_has_metadata_id(dialect))
            out->result_metadata_id = cqr_get_string(&reader);
        get_params(dialect, &reader, out);
        if ((dialect->extensions & EXT_TABLETS_V2) != 0)
            out->tablet_block = cqr_get_u8(&reader);
        break;
    case OPCODE_BATCH: get_batch(dialect, &reader, out); break;
    default: reader.failed = true;
    }
    return reader.failed ? CQLRING_PROTOCOL : CQLRING_OK;
}

/* Iterators: each takes one thing from the front of a slice. */

static struct reader open_slice(const cqlring_bytes *slice)
{
    struct reader reader;
    cqr_reader_init(&reader, slice->data, slice->size > 0 ? (uint32_t)slice->size : 0);
    return reader;
}

static cqlring_status close_slice(cqlring_bytes *slice, const struct reader *reader)
{
    if (reader->failed)
        return CQLRING_PROTOCOL;
    slice->data = reader->at;
    slice->size = (int32_t)(reader->end - reader->at);
    return CQLRING_OK;
}

cqlring_status cqr_request_next_child(cqlring_bytes *children, struct batch_child *out)
{
    struct reader reader = open_slice(children);
    uint8_t kind = cqr_get_u8(&reader);
    *out = (struct batch_child){.prepared = kind == 1};
    if (kind > 1)
        reader.failed = true;
    out->text_or_id = out->prepared ? cqr_get_string(&reader) : get_long_string(&reader);
    out->value_count = cqr_get_u16(&reader);
    out->values = skip_values(&reader, out->value_count, false, true);
    return close_slice(children, &reader);
}

cqlring_status cqr_next_value(cqlring_bytes *values, cqlring_bytes *value)
{
    struct reader reader = open_slice(values);
    *value = get_value(&reader, true);
    return close_slice(values, &reader);
}

cqlring_status cqr_next_string(cqlring_bytes *map, cqlring_bytes *text)
{
    struct reader reader = open_slice(map);
    *text = cqr_get_string(&reader);
    return close_slice(map, &reader);
}
