/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/request.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* The three steps of an EXECUTE are the hottest encoder of the driver: each looks for room once and
   then writes with plain stores; what is rare goes another way. An EXECUTE of two cells (8 and 32
   bytes) with a timestamp and an id of 16 bytes takes in all 105 instructions on v4 and 108 on v5
   when they are inlined at link time (gcc 12 -O2 -flto, as in the preset release), and 168 on v4
   (64, 67, 37) when they are not: the difference of two run lengths of `bench/micro/codec execute 4
   COUNT` under callgrind. */

#define LIKELY(condition) __builtin_expect((condition), 1)
#define RARELY_CALLED     __attribute__((noinline, cold))

/* Where this does not hold, the slower way finds out exactly whether there is room. */
static inline bool has_room(const struct writer *writer, uint32_t size)
{
    return !writer->failed && writer->capacity - writer->size >= size;
}

/* memcpy of up to SMALL_SIZE bytes by two overlapping moves, without a call. */
enum { SMALL_SIZE = 32 };

static inline void store_small(uint8_t *at, const void *data, size_t size)
{
    const uint8_t *from = (const uint8_t *)data;
    if (size == 8) { /* bigint, timestamp, double: what cells are most often */
        memcpy(at, from, 8);
    } else if (size >= 16) {
        unsigned char head[16], tail[16];
        memcpy(head, from, 16);
        memcpy(tail, from + size - 16, 16);
        memcpy(at, head, 16);
        memcpy(at + size - 16, tail, 16);
    } else if (size > 8) {
        uint64_t head, tail;
        memcpy(&head, from, 8);
        memcpy(&tail, from + size - 8, 8);
        memcpy(at, &head, 8);
        memcpy(at + size - 8, &tail, 8);
    } else if (size >= 4) {
        uint32_t head, tail;
        memcpy(&head, from, 4);
        memcpy(&tail, from + size - 4, 4);
        memcpy(at, &head, 4);
        memcpy(at + size - 4, &tail, 4);
    } else if (size > 0) { /* 1 to 3 */
        at[0] = from[0];
        at[size >> 1] = from[size >> 1];
        at[size - 1] = from[size - 1];
    }
}

static inline uint8_t header_flags(const struct dialect *dialect, bool tracing, bool payload)
{
    return (uint8_t)(dialect->frame_flags | tracing * FLAG_TRACING | payload * FLAG_PAYLOAD);
}

/* Nothing but values, a page size and a timestamp: what nearly all requests are. */
static inline bool is_plain(const struct query_params *params)
{
    enum { RARE = offsetof(struct query_params, serial_consistency) };
    _Static_assert(offsetof(struct query_params, page_size) - RARE == sizeof(uint64_t),
                   "what is rare fills eight bytes");
    uint64_t rare;
    memcpy(&rare, (const unsigned char *)params + RARE, sizeof rare);
    return rare == 0 && params->paging_state.data == NULL && params->keyspace.size == 0;
}

static inline uint32_t plain_flags(const struct query_params *params)
{
    uint32_t flags = (uint32_t)params->has_values * QUERY_VALUES |
                     (uint32_t)params->skip_metadata * QUERY_SKIP_METADATA |
                     (uint32_t)params->has_timestamp * QUERY_TIMESTAMP;
    return LIKELY(params->page_size <= 0) ? flags : flags | QUERY_PAGE_SIZE;
}

RARELY_CALLED static uint32_t all_flags(const struct dialect *dialect,
                                        const struct query_params *params)
{
    uint32_t flags = plain_flags(params);
    if (params->paging_state.data != NULL)
        flags |= QUERY_PAGING_STATE;
    if (params->serial_consistency != 0)
        flags |= QUERY_SERIAL;
    if (params->has_values && params->has_names)
        flags |= QUERY_NAMES;
    if (dialect->version >= PROTO_V5 && params->keyspace.size > 0)
        flags |= QUERY_KEYSPACE;
    if (dialect->version >= PROTO_V5 && params->has_now)
        flags |= QUERY_NOW;
    return flags;
}

static inline uint32_t flags_size(const struct dialect *dialect)
{
    return dialect->version >= PROTO_V5 ? 4 : 1;
}

static inline void store_flags(uint8_t *at, const struct dialect *dialect, uint32_t flags)
{
    if (dialect->version >= PROTO_V5)
        cqr_store_u32(at, flags);
    else
        *at = (uint8_t)flags;
}

static inline void put_consistency(struct writer *writer, const struct dialect *dialect,
                                   uint16_t consistency, uint32_t flags)
{
    uint8_t *at = cqr_put_room(writer, 2 + flags_size(dialect));
    if (at == NULL)
        return;
    cqr_store_u16(at, consistency);
    store_flags(at + 2, dialect, flags);
}

/* The optional fields behind the values, whichever the flags name. */
RARELY_CALLED static void put_tail(struct writer *writer, const struct query_params *params,
                                   uint32_t flags)
{
    if ((flags & QUERY_PAGE_SIZE) != 0)
        cqr_put_u32(writer, (uint32_t)params->page_size);
    if ((flags & QUERY_PAGING_STATE) != 0)
        cqr_put_bytes(writer, params->paging_state);
    if ((flags & QUERY_SERIAL) != 0)
        cqr_put_u16(writer, params->serial_consistency);
    if ((flags & QUERY_TIMESTAMP) != 0)
        cqr_put_u64(writer, (uint64_t)params->timestamp_us);
    if ((flags & QUERY_KEYSPACE) != 0)
        cqr_put_string(writer, params->keyspace);
    if ((flags & QUERY_NOW) != 0)
        cqr_put_u32(writer, (uint32_t)params->now_in_seconds);
}

/* Header and custom payload: how a request with a payload begins. */
static void put_header_and_payload(struct writer *writer, const struct dialect *dialect,
                                   int16_t stream, uint8_t opcode, bool tracing,
                                   const struct string_pair *payload, uint16_t payload_count)
{
    bool with_payload = payload_count > 0 && dialect->version >= PROTO_V4;
    cqr_frame_begin(writer, dialect->version, header_flags(dialect, tracing, with_payload), stream,
                    opcode);
    if (!with_payload)
        return;
    cqr_put_u16(writer, payload_count);
    for (uint32_t i = 0; i < payload_count; ++i) {
        cqr_put_string(writer, payload[i].key);
        cqr_put_bytes(writer, payload[i].value);
    }
}

/* Whatever the usual case below does not cover. */
RARELY_CALLED static uint32_t execute_begin_any(struct writer *writer,
                                                const struct dialect *dialect, int16_t stream,
                                                cqlring_bytes id, cqlring_bytes result_metadata_id,
                                                const struct query_params *params)
{
    uint32_t start = writer->size;
    put_header_and_payload(writer, dialect, stream, OPCODE_EXECUTE, params->tracing,
                           params->payload, params->payload_count);
    cqr_put_string(writer, id);
    if (result_metadata_id.size < 0) /* unknown: the server answers an empty one with the current */
        result_metadata_id.size = 0;
    if (cqr_dialect_has_metadata_id(dialect))
        cqr_put_string(writer, result_metadata_id);
    put_consistency(writer, dialect, params->consistency, all_flags(dialect, params));
    return start;
}

/* Ids are digests of 16 bytes on every server. Compiled twice, with and without
   result_metadata_id. */
enum { USUAL_ID_SIZE = 16, USUAL_SIZE_MAX = PROTO_HEADER_SIZE + 2 * (2 + USUAL_ID_SIZE) + 2 + 4 };

static inline void execute_begin_usual(struct writer *writer, uint8_t version, uint8_t flags,
                                       int16_t stream, const void *id,
                                       const void *result_metadata_id,
                                       const struct query_params *params, bool is_v5)
{
    uint8_t *at = writer->data + writer->size;
    at[0] = version;
    at[1] = flags;
    cqr_store_u16(at + 2, (uint16_t)stream);
    at[4] = OPCODE_EXECUTE;
    at += PROTO_HEADER_SIZE; /* the body's size is written at the end */
    cqr_store_u16(at, USUAL_ID_SIZE);
    memcpy(at + 2, id, USUAL_ID_SIZE);
    at += 2 + USUAL_ID_SIZE;
    if (is_v5) {
        cqr_store_u16(at, USUAL_ID_SIZE);
        memcpy(at + 2, result_metadata_id, USUAL_ID_SIZE);
        at += 2 + USUAL_ID_SIZE;
    }
    cqr_store_u16(at, params->consistency);
    if (is_v5)
        cqr_store_u32(at + 2, plain_flags(params));
    else
        at[2] = (uint8_t)plain_flags(params);
    writer->size += PROTO_HEADER_SIZE + 2 + USUAL_ID_SIZE +
                    (is_v5 ? 2u + USUAL_ID_SIZE + 2 + 4 : 2u + 1);
}

uint32_t cqr_execute_begin(struct writer *writer, const struct dialect *dialect, int16_t stream,
                           cqlring_bytes id, cqlring_bytes result_metadata_id,
                           const struct query_params *params)
{
    const uint32_t start = writer->size;
    const uint8_t version = dialect->version;
    if (LIKELY(is_plain(params) && id.size == USUAL_ID_SIZE && has_room(writer, USUAL_SIZE_MAX))) {
        if (version >= PROTO_V5 && LIKELY(result_metadata_id.size == USUAL_ID_SIZE)) {
            execute_begin_usual(writer, version, dialect->frame_flags, stream, id.data,
                                result_metadata_id.data, params, true);
            return start;
        }
        if (version < PROTO_V5 && LIKELY((dialect->extensions & EXT_METADATA_ID) == 0)) {
            execute_begin_usual(writer, version, dialect->frame_flags, stream, id.data, NULL,
                                params, false);
            return start;
        }
    }
    return execute_begin_any(writer, dialect, stream, id, result_metadata_id, params);
}

/* Cells of any size, and whether there is room for them. */
__attribute__((noinline)) static void put_values_any(struct writer *writer,
                                                     const cqlring_bytes *cells, uint32_t count)
{
    if (count > UINT16_MAX || !has_room(writer, 2)) {
        writer->failed = true;
        return;
    }
    uint8_t *at = writer->data + writer->size;
    const uint8_t *room_end = writer->data + writer->capacity;
    cqr_store_u16(at, (uint16_t)count);
    at += 2;
    for (uint32_t i = 0; i < count; ++i) {
        assert(cells[i].size >= CQLRING_UNSET);
        uint32_t size = cells[i].size > 0 ? (uint32_t)cells[i].size : 0;
        if (!LIKELY(room_end - at >= (ptrdiff_t)size + 4)) {
            writer->failed = true;
            return;
        }
        cqr_store_u32(at, (uint32_t)cells[i].size);
        at += 4;
        if (size > 0)
            memcpy(at, cells[i].data, size);
        at += size;
    }
    writer->size = (uint32_t)(at - writer->data);
}

/* Few cells of few bytes, for which there is room whatever their sizes: the usual row. */
void cqr_put_values(struct writer *writer, const cqlring_bytes *cells, uint32_t count)
{
    if (!LIKELY(count <= UINT16_MAX && has_room(writer, 2 + count * (4 + SMALL_SIZE)))) {
        put_values_any(writer, cells, count);
        return;
    }
    uint8_t *at = writer->data + writer->size;
    cqr_store_u16(at, (uint16_t)count);
    at += 2;
    for (uint32_t i = 0; i < count; ++i) {
        const size_t size = (uint32_t)cells[i].size;
        if (!LIKELY(size <= SMALL_SIZE)) { /* or null or unset, as an unsigned number */
            put_values_any(writer, cells, count);
            return;
        }
        cqr_store_u32(at, (uint32_t)size);
        store_small(at + 4, cells[i].data, size);
        at += 4 + size;
    }
    writer->size = (uint32_t)(at - writer->data);
}

/* What stands behind the values, and the body's size. */
RARELY_CALLED static void end_any(struct writer *writer, const struct dialect *dialect,
                                  const struct query_params *params, uint32_t start,
                                  bool is_execute, uint8_t tablet_block)
{
    put_tail(writer, params, all_flags(dialect, params));
    if (is_execute && (dialect->extensions & EXT_TABLETS_V2) != 0)
        cqr_put_u8(writer, tablet_block);
    cqr_frame_end(writer, start);
}

void cqr_execute_end(struct writer *writer, const struct dialect *dialect,
                     const struct query_params *params, uint32_t start, uint8_t tablet_block)
{
    enum { USUAL_TAIL_MAX = 4 + 8 + 1 };
    if (!LIKELY(is_plain(params) && has_room(writer, USUAL_TAIL_MAX))) {
        end_any(writer, dialect, params, start, true, tablet_block);
        return;
    }
    uint8_t *const envelope = writer->data + start;
    uint8_t *at = writer->data + writer->size;
    if (params->page_size > 0) {
        cqr_store_u32(at, (uint32_t)params->page_size);
        at += 4;
    }
    if (params->has_timestamp) {
        cqr_store_u64(at, (uint64_t)params->timestamp_us);
        at += 8;
    }
    if ((dialect->extensions & EXT_TABLETS_V2) != 0)
        *at++ = tablet_block;
    const uint32_t size = (uint32_t)(at - envelope);
    writer->size = start + size;
    cqr_store_u32(envelope + 5, size - PROTO_HEADER_SIZE);
}

bool cqr_execute_head_make(struct execute_head *head, const struct dialect *dialect,
                           cqlring_bytes id, cqlring_bytes result_metadata_id,
                           const struct query_params *params)
{
    if (!is_plain(params) || (dialect->extensions & EXT_TABLETS_V2) != 0)
        return false;
    struct query_params plain = *params;
    plain.has_values = true;
    plain.has_timestamp = false; /* each row's own matter */
    struct writer writer;
    cqr_writer_init(&writer, head->bytes, EXECUTE_HEAD_MAX);
    cqr_execute_begin(&writer, dialect, 0, id, result_metadata_id, &plain);
    head->size = writer.size;
    head->page_size = plain.page_size;
    return !writer.failed;
}

uint32_t cqr_execute_row(uint8_t *const envelope, const struct execute_head *head, int16_t stream,
                         int64_t timestamp_us, const cqlring_bytes *cells, uint32_t count,
                         uint32_t *values_size)
{
    memcpy(envelope, head->bytes, EXECUTE_HEAD_MAX); /* all of it: four moves */
    cqr_store_u16(envelope + 2, (uint16_t)stream);
    uint8_t *const values = envelope + head->size;
    uint8_t *at = values;
    cqr_store_u16(at, (uint16_t)count);
    at += 2;
    for (const cqlring_bytes *cell = cells, *end = cells + count; cell < end; ++cell) {
        const size_t size = (uint32_t)cell->size;
        cqr_store_u32(at, (uint32_t)size);
        at += 4;
        if (LIKELY(size <= SMALL_SIZE)) {
            store_small(at, cell->data, size);
            at += size;
        } else if (size <= INT32_MAX) { /* else null or unset, as an unsigned number */
            memcpy(at, cell->data, size);
            at += size;
        }
    }
    *values_size = (uint32_t)(at - values);
    if (head->page_size > 0) {
        cqr_store_u32(at, (uint32_t)head->page_size);
        at += 4;
    }
    if (timestamp_us != INT64_MIN) {
        values[-1] |= QUERY_TIMESTAMP; /* the flags, big-endian, are the last of the head */
        cqr_store_u64(at, (uint64_t)timestamp_us);
        at += 8;
    }
    const uint32_t size = (uint32_t)(at - envelope);
    cqr_store_u32(envelope + 5, size - PROTO_HEADER_SIZE);
    return size;
}

uint32_t cqr_query_begin(struct writer *writer, const struct dialect *dialect, int16_t stream,
                         cqlring_bytes cql, const struct query_params *params)
{
    uint32_t start = writer->size;
    assert(cql.size >= 0);
    put_header_and_payload(writer, dialect, stream, OPCODE_QUERY, params->tracing, params->payload,
                           params->payload_count);
    cqr_put_bytes(writer, cql);
    put_consistency(writer, dialect, params->consistency, all_flags(dialect, params));
    return start;
}

void cqr_put_named_values(struct writer *writer, const cqlring_bytes *names,
                          const cqlring_bytes *cells, uint32_t count)
{
    if (count > UINT16_MAX) {
        writer->failed = true;
        return;
    }
    cqr_put_u16(writer, (uint16_t)count);
    for (uint32_t i = 0; i < count; ++i) {
        cqr_put_string(writer, names[i]);
        cqr_put_bytes(writer, cells[i]);
    }
}

void cqr_query_end(struct writer *writer, const struct dialect *dialect,
                   const struct query_params *params, uint32_t start)
{
    end_any(writer, dialect, params, start, false, 0);
}

uint32_t cqr_batch_begin(struct writer *writer, const struct dialect *dialect, int16_t stream,
                         uint8_t kind, uint16_t count, const struct query_params *params)
{
    uint32_t start = writer->size;
    put_header_and_payload(writer, dialect, stream, OPCODE_BATCH, params->tracing, params->payload,
                           params->payload_count);
    cqr_put_u8(writer, kind);
    cqr_put_u16(writer, count);
    return start;
}

void cqr_batch_text(struct writer *writer, cqlring_bytes cql)
{
    assert(cql.size >= 0);
    cqr_put_u8(writer, 0);
    cqr_put_bytes(writer, cql);
}

void cqr_batch_prepared(struct writer *writer, cqlring_bytes id)
{
    cqr_put_u8(writer, 1);
    cqr_put_string(writer, id);
}

void cqr_batch_end(struct writer *writer, const struct dialect *dialect,
                   const struct query_params *params, uint32_t start)
{
    /* A batch has neither values nor pages of its own: the low four bits must be 0, and names are
       never sent. */
    uint32_t flags = all_flags(dialect, params) &
                     (QUERY_SERIAL | QUERY_TIMESTAMP | QUERY_KEYSPACE | QUERY_NOW);
    put_consistency(writer, dialect, params->consistency, flags);
    put_tail(writer, params, flags);
    cqr_frame_end(writer, start);
}

/* --- requests of one piece -------------------------------------------------------------------- */

void cqr_encode_options(struct writer *writer, const struct dialect *dialect, int16_t stream)
{
    cqr_frame_begin(writer, dialect->version, dialect->frame_flags, stream, OPCODE_OPTIONS);
}

void cqr_encode_startup(struct writer *writer, const struct dialect *dialect, int16_t stream,
                        const struct string_pair *options, uint16_t count)
{
    uint32_t start = cqr_frame_begin(writer, dialect->version, dialect->frame_flags, stream,
                                     OPCODE_STARTUP);
    cqr_put_u16(writer, count);
    for (uint32_t i = 0; i < count; ++i) {
        cqr_put_string(writer, options[i].key);
        cqr_put_string(writer, options[i].value);
    }
    cqr_frame_end(writer, start);
}

void cqr_encode_auth_response(struct writer *writer, const struct dialect *dialect, int16_t stream,
                              cqlring_bytes token)
{
    uint32_t start = cqr_frame_begin(writer, dialect->version, dialect->frame_flags, stream,
                                     OPCODE_AUTH_RESPONSE);
    cqr_put_bytes(writer, token);
    cqr_frame_end(writer, start);
}

void cqr_encode_register(struct writer *writer, const struct dialect *dialect, int16_t stream,
                         const cqlring_bytes *events, uint16_t count)
{
    uint32_t start = cqr_frame_begin(writer, dialect->version, dialect->frame_flags, stream,
                                     OPCODE_REGISTER);
    cqr_put_u16(writer, count);
    for (uint32_t i = 0; i < count; ++i)
        cqr_put_string(writer, events[i]);
    cqr_frame_end(writer, start);
}

void cqr_encode_prepare(struct writer *writer, const struct dialect *dialect, int16_t stream,
                        cqlring_bytes cql, cqlring_bytes keyspace, bool tracing,
                        const struct string_pair *payload, uint16_t payload_count)
{
    uint32_t start = writer->size;
    assert(cql.size >= 0);
    put_header_and_payload(writer, dialect, stream, OPCODE_PREPARE, tracing, payload,
                           payload_count);
    cqr_put_bytes(writer, cql);
    if (dialect->version >= PROTO_V5) {
        cqr_put_u32(writer, keyspace.size > 0 ? 1 : 0);
        if (keyspace.size > 0)
            cqr_put_string(writer, keyspace);
    }
    cqr_frame_end(writer, start);
}
