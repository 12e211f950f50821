/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of v5 segments. Bits of the first byte: LZ4 mode; put the checksums right first, so that
   what lies behind them is reached; seal the input instead and read it back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cql/segment.h"
#include "serialize/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LZ4 = 1, PUT_RIGHT = 2, SEAL = 4 };

static void put_right(uint8_t *segment, uint32_t size, bool lz4)
{
    uint32_t header_size = lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    if (size < header_size)
        return;
    uint32_t crc = cqr_crc24(segment, header_size - 3);
    memcpy(segment + header_size - 3, &crc, 3);
    struct segment_header header;
    if (cqr_segment_cut(segment, size, lz4, &header) != SEGMENT_BAD_PAYLOAD)
        return;
    crc = cqr_crc32(segment + header_size, header.wire_size);
    memcpy(segment + header_size + header.wire_size, &crc, 4);
}

static void read_stream(const uint8_t *data, uint32_t size, bool lz4, bool right)
{
    static uint8_t plain[PROTO_SEGMENT_PAYLOAD_MAX];
    uint8_t *copy = malloc(size + 1u);
    assert(copy != NULL);
    memcpy(copy, data, size);
    for (uint32_t at = 0; at < size;) {
        if (right)
            put_right(copy + at, size - at, lz4);
        struct segment_header header;
        enum segment_cut cut = cqr_segment_cut(copy + at, size - at, lz4, &header);
        if (cut != SEGMENT_WHOLE) {
            assert(!right || cut == SEGMENT_PARTIAL);
            break;
        }
        uint32_t whole = header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
        assert(whole <= size - at && header.uncompressed_size <= PROTO_SEGMENT_PAYLOAD_MAX);
        if (lz4 && header.uncompressed_size > 0)
            (void)cqr_lz4_decompress_raw(copy + at + header.header_size, header.wire_size, plain,
                                         header.uncompressed_size);
        at += whole;
    }
    free(copy);
}

static void seal_and_read(const uint8_t *data, uint32_t size, bool lz4)
{
    if (size > PROTO_SEGMENT_PAYLOAD_MAX)
        return;
    uint32_t header_size = lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    uint8_t *segment = malloc(size + header_size + CQR_SEGMENT_TRAILER_SIZE);
    assert(segment != NULL);
    memcpy(segment + header_size, data, size);
    uint32_t whole = lz4 ? cqr_segment_seal_lz4(segment, size, 0, true)
                         : cqr_segment_seal(segment, size, false);
    struct segment_header header;
    assert(cqr_segment_cut(segment, whole, lz4, &header) == SEGMENT_WHOLE);
    assert(header.wire_size == size && header.self_contained == lz4);
    assert(memcmp(segment + header_size, data, size) == 0);
    free(segment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 20)
        return 0;
    bool lz4 = (data[0] & LZ4) != 0;
    if ((data[0] & SEAL) != 0)
        seal_and_read(data + 1, (uint32_t)size - 1, lz4);
    else
        read_stream(data + 1, (uint32_t)size - 1, lz4, (data[0] & PUT_RIGHT) != 0);
    return 0;
}
