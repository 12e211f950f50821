/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SEGMENT_H
#define CQR_SEGMENT_H

/* v5 segments: the outer framing with CRC24 over the header and CRC32 over the payload; little-endian. The only place
   that sees zlib. Pure functions of bytes.

   Sending without compression copies nothing: leave CQR_SEGMENT_HEADER_SIZE bytes in front of the envelopes, append
   them, then cqr_segment_seal writes the header in front and the trailer behind. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/proto.h"
#include "serialize/cqlring_types.h"

enum {
    CQR_SEGMENT_HEADER_SIZE = 6,
    CQR_SEGMENT_LZ4_HEADER_SIZE = 8,
    CQR_SEGMENT_TRAILER_SIZE = 4,
    CQR_SEGMENT_MAX = CQR_SEGMENT_LZ4_HEADER_SIZE + PROTO_SEGMENT_PAYLOAD_MAX + CQR_SEGMENT_TRAILER_SIZE
};

uint32_t cqr_crc24(const uint8_t *header, uint32_t size);     /* size 3 or 5 */
uint32_t cqr_crc32(const uint8_t *payload, uint32_t size);    /* with the protocol's four initial bytes */

/* Write header (6 bytes at segment) and trailer (4 bytes behind the payload) around payload_size bytes that already
   stand at segment + 6. payload_size <= PROTO_SEGMENT_PAYLOAD_MAX. Returns the whole size (payload_size + 10). */
uint32_t cqr_segment_seal(uint8_t *segment, uint32_t payload_size, bool self_contained);

/* LZ4 mode: 8-byte header. wire holds the compressed bytes (uncompressed_size > 0) or the original ones
   (uncompressed_size 0) at segment + 8. Returns the whole size (wire_size + 12). */
uint32_t cqr_segment_seal_lz4(uint8_t *segment, uint32_t wire_size, uint32_t uncompressed_size, bool self_contained);

struct segment_header {
    uint32_t wire_size;         /* payload bytes on the wire */
    uint32_t uncompressed_size; /* LZ4 mode: 0 = stored as it is; without compression: wire_size */
    uint8_t header_size;        /* 6 or 8 */
    bool self_contained;
};

enum segment_cut { SEGMENT_WHOLE, SEGMENT_PARTIAL, SEGMENT_BAD_HEADER, SEGMENT_BAD_PAYLOAD };

/* Look at the segment at data[0..size): header CRC as soon as the header is there, payload CRC when it is whole.
   PARTIAL: header->header_size is 0 while the header is incomplete, otherwise header is valid and tells how much is
   needed (header_size + wire_size + 4). */
enum segment_cut cqr_segment_cut(const uint8_t *data, uint32_t size, bool lz4, struct segment_header *header);

#endif
