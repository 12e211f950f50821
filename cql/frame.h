/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_FRAME_H
#define CQR_FRAME_H

/* The envelope header (9 bytes, the same in v3, v4 and v5). Pure functions; the reactor cuts with them in place, the
   submitter and the node write with them. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/proto.h"
#include "serialize/buf.h"

struct frame_header {
    uint8_t version; /* without the direction bit */
    bool response;
    uint8_t flags;
    uint8_t opcode;
    int16_t stream;
    uint32_t body_size;
};

enum frame_cut {
    FRAME_WHOLE,   /* header filled; the body follows it within the bytes given */
    FRAME_PARTIAL, /* more bytes are needed; the header is filled when size >= PROTO_HEADER_SIZE */
    FRAME_BAD      /* negative size or larger than body_max: the connection is lost */
};

/* Look at the first envelope in data[0..size). Inline: the hottest function of the reactor. */
static inline enum frame_cut cqr_frame_cut(const uint8_t *data, uint32_t size, uint32_t body_max, struct frame_header *header)
{
    if (size < PROTO_HEADER_SIZE)
        return FRAME_PARTIAL;
    header->version = data[0] & 0x7F;
    header->response = (data[0] & 0x80) != 0;
    header->flags = data[1];
    header->stream = (int16_t)cqr_load_u16(data + 2);
    header->opcode = data[4];
    header->body_size = cqr_load_u32(data + 5);
    if (header->body_size > body_max)
        return FRAME_BAD;
    return size - PROTO_HEADER_SIZE < header->body_size ? FRAME_PARTIAL : FRAME_WHOLE;
}

/* A plain VOID result: nothing but the kind. What nearly every reply of a bulk write is. */
static inline bool cqr_frame_is_plain_void(const struct frame_header *header, const uint8_t *body)
{
    return header->opcode == OPCODE_RESULT && header->flags == 0 && header->body_size == 4 && body[3] == RESULT_VOID &&
           body[0] == 0 && body[1] == 0 && body[2] == 0;
}

/* Write a header; the body size is patched by cqr_frame_end. Returns where the envelope starts in the writer. */
static inline uint32_t cqr_frame_begin(struct writer *writer, uint8_t version_byte, uint8_t flags, int16_t stream, uint8_t opcode)
{
    uint32_t start = writer->size;
    uint8_t *at = cqr_put_room(writer, PROTO_HEADER_SIZE);
    if (at != NULL) {
        at[0] = version_byte; /* with the direction bit for responses */
        at[1] = flags;
        cqr_store_u16(at + 2, (uint16_t)stream);
        at[4] = opcode;
        cqr_store_u32(at + 5, 0);
    }
    return start;
}
static inline void cqr_frame_end(struct writer *writer, uint32_t start)
{
    if (!writer->failed)
        cqr_store_u32(writer->data + start + 5, writer->size - start - PROTO_HEADER_SIZE);
}

#endif
