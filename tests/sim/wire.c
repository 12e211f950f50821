/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/request.h"
#include "cql/segment.h"
#include "serialize/compress.h"
#include "world.h"

enum { STREAMS = 32768 };

struct bytes {
    uint8_t *data;
    uint32_t size, capacity;
};

struct direction {
    struct bytes torn;     /* what is not yet whole */
    struct bytes assembly; /* an envelope over several segments */
    bool framed;           /* segments (v5, behind the STARTUP exchange) */
};

/* What an unanswered request was. */
struct asked {
    bool open, has_key;
    int64_t key;
};

struct wire {
    uint32_t link, node;
    uint8_t version;
    uint8_t extensions; /* that change how a request reads */
    bool lz4;
    bool blind; /* damaged by the fault plan: nothing that follows can be trusted */
    uint32_t open;
    struct direction up, down;
    struct asked *streams;
};

void (*wire_on_request)(const struct wire_request *request);
void (*wire_on_reply)(uint32_t node, uint8_t opcode, bool has_key, int64_t key);

static void *check_memory(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static void bytes_add(struct bytes *bytes, const void *data, uint32_t size)
{
    if (size == 0)
        return;
    if (bytes->capacity - bytes->size < size) {
        bytes->capacity = (bytes->size + size) * 2;
        bytes->data = check_memory(realloc(bytes->data, bytes->capacity));
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

struct wire *wire_create(uint32_t link, uint32_t node)
{
    struct wire *wire = check_memory(calloc(1, sizeof *wire));
    wire->link = link;
    wire->node = node;
    wire->streams = check_memory(calloc(STREAMS, sizeof *wire->streams));
    return wire;
}

void wire_destroy(struct wire *wire)
{
    if (wire == NULL)
        return;
    free(wire->up.torn.data);
    free(wire->up.assembly.data);
    free(wire->down.torn.data);
    free(wire->down.assembly.data);
    free(wire->streams);
    free(wire);
}

uint32_t wire_open(const struct wire *wire)
{
    return wire->open;
}

/* --- envelopes --------------------------------------------------------------------------------------------------- */

static struct dialect dialect_of(const struct wire *wire)
{
    return (struct dialect){.version = wire->version, .extensions = wire->extensions};
}

static void startup_seen(struct wire *wire, cqlring_bytes body)
{
    struct dialect dialect = dialect_of(wire);
    struct request request;
    world_check(cqr_decode_request(&dialect, OPCODE_STARTUP, 0, body, &request) == CQLRING_OK,
                "link %u: a STARTUP that cannot be read", wire->link);
    cqlring_bytes key, value;
    for (uint32_t i = 0; i < request.map_count; i++) {
        if (cqr_next_string(&request.map, &key) != CQLRING_OK ||
            cqr_next_string(&request.map, &value) != CQLRING_OK)
            return;
        if (key.size == 11 && memcmp(key.data, "COMPRESSION", 11) == 0)
            wire->lz4 = value.size == 3 && memcmp(value.data, "lz4", 3) == 0;
        if (key.size == 22 && memcmp(key.data, "SCYLLA_USE_METADATA_ID", 22) == 0)
            wire->extensions |= EXT_METADATA_ID;
    }
}

static void request_seen(struct wire *wire, const struct frame_header *header, cqlring_bytes body)
{
    world_check(!header->response, "link %u: the driver sent a response", wire->link);
    world_check(header->stream >= 0, "link %u: a request on stream %d", wire->link, header->stream);
    struct asked *asked = &wire->streams[header->stream];
    world_check(!asked->open, "link %u: stream %d is used again before its answer", wire->link,
                header->stream);
    *asked = (struct asked){.open = true};
    wire->open++;
    wire->version = header->version;
    struct wire_request seen = {
        .link = wire->link, .node = wire->node, .opcode = header->opcode, .stream = header->stream};
    if (header->opcode == OPCODE_STARTUP) {
        startup_seen(wire, body);
        wire->up.framed = header->version >= PROTO_V5;
    } else if (header->opcode == OPCODE_EXECUTE) {
        struct dialect dialect = dialect_of(wire);
        struct request request;
        world_check(cqr_decode_request(&dialect, header->opcode, header->flags, body, &request) ==
                        CQLRING_OK,
                    "link %u: an EXECUTE that cannot be read", wire->link);
        seen.has_timestamp = request.params.has_timestamp;
        seen.timestamp_us = request.params.timestamp_us;
        seen.values_size = (uint32_t)request.values.size;
        cqlring_bytes value;
        if (request.value_count > 0 && cqr_next_value(&request.values, &value) == CQLRING_OK &&
            value.size == 8) {
            seen.has_key = true;
            seen.key = (int64_t)cqr_load_u64(value.data);
        }
    }
    asked->has_key = seen.has_key;
    asked->key = seen.key;
    if (wire_on_request != NULL)
        wire_on_request(&seen);
}

static void reply_seen(struct wire *wire, const struct frame_header *header)
{
    if (wire->version >= PROTO_V5 && !wire->down.framed &&
        (header->opcode == OPCODE_READY || header->opcode == OPCODE_AUTHENTICATE))
        wire->down.framed = true;
    if (header->stream < 0)
        return;
    struct asked *asked = &wire->streams[header->stream];
    if (!asked->open)
        return; /* the fault plan's: twice, or on a stream that nobody uses */
    asked->open = false;
    wire->open--;
    if (wire_on_reply != NULL)
        wire_on_reply(wire->node, header->opcode, asked->has_key, asked->key);
}

static void envelope_seen(struct wire *wire, bool up, const struct frame_header *header,
                          const uint8_t *body)
{
    if (!up) {
        reply_seen(wire, header);
        return;
    }
    cqlring_bytes bytes = {body, (int32_t)header->body_size};
    uint8_t *unpacked = NULL;
    if ((header->flags & FLAG_COMPRESSED) != 0 && header->version < PROTO_V5) {
        uint32_t size = 0;
        world_check(wire->lz4 && cqr_lz4_body_size(body, header->body_size, PROTO_BODY_MAX,
                                                   &size) == CQLRING_OK,
                    "link %u: a compressed request out of place", wire->link);
        unpacked = check_memory(malloc(size + 1));
        world_check(cqr_lz4_decompress_body(body, header->body_size, unpacked, size) == CQLRING_OK,
                    "link %u: a compressed request that cannot be unpacked", wire->link);
        bytes = (cqlring_bytes){unpacked, (int32_t)size};
    }
    request_seen(wire, header, bytes);
    free(unpacked);
}

/* What cannot be read going up is the driver's fault; coming down it is the fault plan's. */
static void damaged(struct wire *wire, bool up, const char *what)
{
    world_check(!up, "link %u: the driver sent %s", wire->link, what);
    wire->blind = true;
}

/* Whole envelopes at the front; returns how many bytes they took. Stops when the framing changes. */
static uint32_t envelopes(struct wire *wire, bool up, const uint8_t *data, uint32_t size)
{
    uint32_t at = 0;
    struct direction *direction = up ? &wire->up : &wire->down;
    bool framed = direction->framed;
    while (!wire->blind && at < size && direction->framed == framed) {
        struct frame_header header;
        enum frame_cut cut = cqr_frame_cut(data + at, size - at, PROTO_BODY_MAX, &header);
        if (cut == FRAME_PARTIAL)
            break;
        if (cut == FRAME_BAD) {
            damaged(wire, up, "an envelope of more than 256 MiB");
            break;
        }
        envelope_seen(wire, up, &header, data + at + PROTO_HEADER_SIZE);
        at += PROTO_HEADER_SIZE + header.body_size;
    }
    return at;
}

static void payload_seen(struct wire *wire, bool up, const uint8_t *data, uint32_t size,
                         bool self_contained)
{
    struct direction *direction = up ? &wire->up : &wire->down;
    if (self_contained) {
        if (direction->assembly.size > 0 ||
            (envelopes(wire, up, data, size) != size && !wire->blind))
            damaged(wire, up, "a self-contained segment that is none");
        return;
    }
    bytes_add(&direction->assembly, data, size);
    uint32_t used = envelopes(wire, up, direction->assembly.data, direction->assembly.size);
    if (used == direction->assembly.size)
        direction->assembly.size = 0;
    else if (used > 0)
        damaged(wire, up, "slices of more than one envelope");
}

static uint32_t segments(struct wire *wire, bool up, const uint8_t *data, uint32_t size)
{
    uint32_t at = 0;
    while (!wire->blind && at < size) {
        struct segment_header header;
        enum segment_cut cut = cqr_segment_cut(data + at, size - at, wire->lz4, &header);
        if (cut == SEGMENT_PARTIAL)
            break;
        if (cut != SEGMENT_WHOLE) {
            damaged(wire, up, "a segment with a wrong checksum");
            break;
        }
        const uint8_t *payload = data + at + header.header_size;
        if (wire->lz4 && header.uncompressed_size > 0) {
            uint8_t *unpacked = check_memory(malloc(header.uncompressed_size));
            if (cqr_lz4_decompress_raw(payload, header.wire_size, unpacked,
                                       header.uncompressed_size) != CQLRING_OK)
                damaged(wire, up, "a segment that cannot be unpacked");
            else
                payload_seen(wire, up, unpacked, header.uncompressed_size, header.self_contained);
            free(unpacked);
        } else {
            payload_seen(wire, up, payload, header.wire_size, header.self_contained);
        }
        at += header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
    }
    return at;
}

static void feed(struct wire *wire, bool up, const void *data, uint32_t size)
{
    struct direction *direction = up ? &wire->up : &wire->down;
    bytes_add(&direction->torn, data, size);
    uint32_t used = 0;
    while (!wire->blind && used < direction->torn.size) {
        bool framed = direction->framed;
        uint32_t took = (framed ? segments : envelopes)(wire, up, direction->torn.data + used,
                                                        direction->torn.size - used);
        used += took;
        if (direction->framed == framed)
            break;
    }
    if (wire->blind)
        used = direction->torn.size;
    memmove(direction->torn.data, direction->torn.data + used, direction->torn.size - used);
    direction->torn.size -= used;
}

void wire_up(struct wire *wire, const void *data, uint32_t size)
{
    if (!wire->blind)
        feed(wire, true, data, size);
}

void wire_down(struct wire *wire, const void *data, uint32_t size)
{
    if (!wire->blind)
        feed(wire, false, data, size);
}
