/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"
#include "cql/segment.h"
#include "serialize/compress.h"

enum { BODY_MAX = 64 << 20 };

/* ---- bytes ---- */

void bytes_put(struct bytes *bytes, const void *data, size_t size)
{
    if (bytes->from == bytes->to)
        bytes->from = bytes->to = 0;
    if (bytes->capacity - bytes->to < size) {
        size_t have = bytes_size(bytes);
        if (have > 0)
            memmove(bytes->data, bytes->data + bytes->from, have);
        bytes->from = 0;
        bytes->to = have;
        if (bytes->capacity < have + size) {
            bytes->capacity = (have + size) * 2 + 4096;
            bytes->data = realloc(bytes->data, bytes->capacity);
            if (bytes->data == NULL)
                abort();
        }
    }
    if (size > 0)
        memcpy(bytes->data + bytes->to, data, size);
    bytes->to += size;
}

void bytes_take(struct bytes *bytes, size_t size)
{
    bytes->from += size;
}

void bytes_fini(struct bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

void wire_fini(struct wire *wire)
{
    bytes_fini(&wire->raw);
    bytes_fini(&wire->opened);
    bytes_fini(&wire->pending);
    bytes_fini(&wire->out);
}

/* ---- received ---- */

static enum wire_cut open_segment(struct wire *wire)
{
    struct segment_header header = {0};
    const uint8_t *at = wire->raw.data + wire->raw.from;
    enum segment_cut cut = bytes_size(&wire->raw) == 0 ? SEGMENT_PARTIAL : cqr_segment_cut(at, (uint32_t)bytes_size(&wire->raw), wire->lz4, &header);
    if (cut == SEGMENT_PARTIAL)
        return WIRE_MORE;
    if (cut != SEGMENT_WHOLE)
        return WIRE_BAD;
    if (wire->lz4 && header.uncompressed_size > 0) {
        static _Thread_local uint8_t plain[PROTO_SEGMENT_PAYLOAD_MAX];
        if (header.uncompressed_size > sizeof plain ||
            cqr_lz4_decompress_raw(at + header.header_size, header.wire_size, plain, header.uncompressed_size) != CQLRING_OK)
            return WIRE_BAD;
        bytes_put(&wire->opened, plain, header.uncompressed_size);
    } else {
        bytes_put(&wire->opened, at + header.header_size, header.wire_size);
    }
    bytes_take(&wire->raw, (size_t)header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE);
    return WIRE_WHOLE;
}

enum wire_cut wire_next(struct wire *wire, const uint8_t **envelope, size_t *size)
{
    for (;;) {
        struct bytes *from = wire->framed ? &wire->opened : &wire->raw;
        struct frame_header header;
        enum frame_cut cut =
            bytes_size(from) == 0 ? FRAME_PARTIAL : cqr_frame_cut(from->data + from->from, (uint32_t)bytes_size(from), BODY_MAX, &header);
        if (cut == FRAME_BAD)
            return WIRE_BAD;
        if (cut == FRAME_WHOLE) {
            *envelope = from->data + from->from;
            *size = PROTO_HEADER_SIZE + (size_t)header.body_size;
            bytes_take(from, *size);
            return WIRE_WHOLE;
        }
        enum wire_cut opened = wire->framed ? open_segment(wire) : WIRE_MORE;
        if (opened != WIRE_WHOLE)
            return opened;
    }
}

/* ---- sent ---- */

static void put_segment(struct wire *wire, const uint8_t *payload, uint32_t size, bool self_contained)
{
    static _Thread_local uint8_t segment[CQR_SEGMENT_MAX];
    uint32_t header = wire->lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    memcpy(segment + header, payload, size);
    uint32_t whole = wire->lz4 ? cqr_segment_seal_lz4(segment, size, 0, self_contained) : cqr_segment_seal(segment, size, self_contained);
    bytes_put(&wire->out, segment, whole);
}

void wire_seal(struct wire *wire)
{
    if (bytes_size(&wire->pending) > 0)
        put_segment(wire, wire->pending.data + wire->pending.from, (uint32_t)bytes_size(&wire->pending), true);
    wire->pending.from = wire->pending.to = 0;
}

void wire_put(struct wire *wire, const void *envelope, size_t size)
{
    if (!wire->framed) {
        bytes_put(&wire->out, envelope, size);
        return;
    }
    if (bytes_size(&wire->pending) + size > PROTO_SEGMENT_PAYLOAD_MAX)
        wire_seal(wire);
    if (size <= PROTO_SEGMENT_PAYLOAD_MAX) {
        bytes_put(&wire->pending, envelope, size);
        return;
    }
    for (const uint8_t *at = envelope; size > 0;) {
        uint32_t part = size < PROTO_SEGMENT_PAYLOAD_MAX ? (uint32_t)size : PROTO_SEGMENT_PAYLOAD_MAX;
        put_segment(wire, at, part, false);
        at += part;
        size -= part;
    }
}

void wire_put_lying_segment(struct wire *wire, const void *payload, size_t size, size_t claimed)
{
    wire_seal(wire);
    size_t start = bytes_size(&wire->out);
    put_segment(wire, payload, (uint32_t)size, true);
    /* The header is little-endian: 17 bits of size (of the wire's, with LZ4), a sum over them behind it. */
    uint8_t *at = wire->out.data + wire->out.from + start;
    uint32_t sized = wire->lz4 ? 5 : 3;
    at[0] = (uint8_t)claimed;
    at[1] = (uint8_t)(claimed >> 8);
    at[2] = (uint8_t)((at[2] & 0xFE) | (claimed >> 16 & 1));
    uint32_t sum = cqr_crc24(at, sized);
    at[sized] = (uint8_t)sum;
    at[sized + 1] = (uint8_t)(sum >> 8);
    at[sized + 2] = (uint8_t)(sum >> 16);
}
