/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cql/response.h"

/* ERROR of every code. Code and message must be there; whatever is wrong behind them only costs its
   fields (MS-06). */

/* Failed replicas: a count, or (v5, and v4 with the extension) a map from address to reason in the
   count's place. */
static void get_failures(const struct dialect *dialect, struct reader *reader,
                         struct error_body *out)
{
    out->failure_count = cqr_get_i32(reader);
    if (dialect->version < PROTO_V5 && (dialect->extensions & EXT_FAILURE_MAP) == 0)
        return;
    const uint8_t *from = reader->at;
    if (out->failure_count < 0)
        reader->failed = true;
    for (int32_t i = 0; i < out->failure_count && !reader->failed; ++i) {
        uint8_t address_size = cqr_get_u8(reader);
        if (address_size != 4 && address_size != 16)
            reader->failed = true;
        cqr_get_raw(reader, address_size);
        cqr_get_u16(reader);
    }
    if (!reader->failed)
        out->reasons = (cqlring_bytes){.data = from, .size = (int32_t)(reader->at - from)};
}

static void get_responses(struct reader *reader, struct error_body *out)
{
    out->consistency = cqr_get_u16(reader);
    out->received = cqr_get_i32(reader);
    out->required = cqr_get_i32(reader);
}

static void get_contentions(const struct dialect *dialect, struct reader *reader,
                            struct error_body *out)
{
    bool is_cas = out->write_type.size == 3 && memcmp(out->write_type.data, "CAS", 3) == 0;
    /* Only newer nodes send them. */
    if (dialect->version >= PROTO_V5 && is_cas && cqr_reader_left(reader) >= 2)
        out->contentions = cqr_get_u16(reader);
}

static void get_arguments(struct reader *reader, struct error_body *out)
{
    uint16_t count = cqr_get_u16(reader);
    const uint8_t *from = reader->at;
    for (uint32_t i = 0; i < count && !reader->failed; ++i)
        cqr_get_string(reader);
    if (reader->failed)
        return;
    out->argument_count = count;
    out->arguments = (cqlring_bytes){.data = from, .size = (int32_t)(reader->at - from)};
}

/* The fields behind the message; false when the code is not known, so that there may be more than
   we can tell. */
static bool get_fields(const struct dialect *dialect, struct reader *reader, struct error_body *out)
{
    switch ((uint32_t)out->code) {
    case ERROR_UNAVAILABLE:
        out->consistency = cqr_get_u16(reader);
        out->required = cqr_get_i32(reader);
        out->alive = cqr_get_i32(reader);
        return true;
    case ERROR_WRITE_TIMEOUT:
        get_responses(reader, out);
        out->write_type = cqr_get_string(reader);
        get_contentions(dialect, reader, out);
        return true;
    case ERROR_READ_TIMEOUT:
        get_responses(reader, out);
        out->data_present = cqr_get_u8(reader);
        return true;
    case ERROR_READ_FAILURE:
        get_responses(reader, out);
        get_failures(dialect, reader, out);
        out->data_present = cqr_get_u8(reader);
        return true;
    case ERROR_WRITE_FAILURE:
        get_responses(reader, out);
        get_failures(dialect, reader, out);
        out->write_type = cqr_get_string(reader);
        return true;
    case ERROR_CAS_WRITE_UNKNOWN: get_responses(reader, out); return true;
    case ERROR_FUNCTION_FAILURE:
        out->keyspace = cqr_get_string(reader);
        out->function = cqr_get_string(reader);
        get_arguments(reader, out);
        return true;
    case ERROR_ALREADY_EXISTS:
        out->keyspace = cqr_get_string(reader);
        out->table = cqr_get_string(reader);
        return true;
    case ERROR_UNPREPARED: out->unprepared_id = cqr_get_string(reader); return true;
    case ERROR_SERVER:
    case ERROR_PROTOCOL:
    case ERROR_CREDENTIALS:
    case ERROR_OVERLOADED:
    case ERROR_BOOTSTRAPPING:
    case ERROR_TRUNCATE:
    case ERROR_CDC_WRITE_FAILURE:
    case ERROR_SYNTAX:
    case ERROR_UNAUTHORIZED:
    case ERROR_INVALID:
    case ERROR_CONFIG: return true;
    default: return false;
    }
}

cqlring_status cqr_decode_error(const struct dialect *dialect, cqlring_bytes body,
                                struct error_body *out)
{
    *out = (struct error_body){.contentions = -1};
    struct reader reader;
    cqr_reader_init(&reader, body.data, body.size > 0 ? (uint32_t)body.size : 0);
    out->code = cqr_get_i32(&reader);
    out->message = cqr_get_string(&reader);
    if (reader.failed)
        return CQLRING_PROTOCOL;

    bool known;
    if ((dialect->extensions & EXT_RATE_LIMIT) != 0 && out->code == dialect->rate_limit_code) {
        out->rate_limited = true;
        out->rate_limit_op = cqr_get_u8(&reader);
        out->rate_limit_by_coordinator = cqr_get_u8(&reader);
        known = true;
    } else {
        known = get_fields(dialect, &reader,
                           out); /* RT-07: of an unknown code the rest is skipped */
    }
    out->complete = known && !reader.failed;
    return CQLRING_OK;
}

cqlring_status cqr_next_reason(cqlring_bytes *reasons, cqlring_bytes *address, uint16_t *reason)
{
    struct reader reader;
    cqr_reader_init(&reader, reasons->data, reasons->size > 0 ? (uint32_t)reasons->size : 0);
    uint8_t address_size = cqr_get_u8(&reader);
    const uint8_t *at = cqr_get_raw(&reader, address_size);
    *reason = cqr_get_u16(&reader);
    if (reader.failed || (address_size != 4 && address_size != 16))
        return CQLRING_PROTOCOL;
    *address = (cqlring_bytes){.data = at, .size = address_size};
    *reasons = (cqlring_bytes){.data = reader.at, .size = (int32_t)cqr_reader_left(&reader)};
    return CQLRING_OK;
}
