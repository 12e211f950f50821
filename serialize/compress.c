/* SPDX-License-Identifier: Apache-2.0 */
#include "serialize/compress.h"

#include <assert.h>
#include <lz4.h>

#include "serialize/buf.h"
#include "serialize/mem.h"
#include "serialize/snappy.h"

enum { BODY_LENGTH_SIZE = 4 };

/* An LZ4 stream used for one block at a time. LZ4_resetStream_fast keeps the hash table and only
   makes old entries unreachable, where LZ4_compress_default clears 16 KiB for every block: much for
   the few hundred bytes of a request. */
struct compress_state {
    LZ4_stream_t stream;
    uint16_t table[SNAPPY_TABLE_SIZE];
};

struct compress_state *cqr_compress_state_create(void)
{
    struct compress_state *state = cqr_mem_alloc(sizeof *state);
    if (state != NULL)
        LZ4_initStream(&state->stream, sizeof state->stream);
    return state;
}

void cqr_compress_state_destroy(struct compress_state *state)
{
    cqr_mem_free(state);
}

uint32_t cqr_compress_bound(uint32_t size)
{
    return size > LZ4_MAX_INPUT_SIZE ? 0 : (uint32_t)LZ4_COMPRESSBOUND(size);
}

uint32_t cqr_lz4_compress_raw(struct compress_state *state, const void *source, uint32_t size,
                              void *target, uint32_t capacity)
{
    if (size > LZ4_MAX_INPUT_SIZE || capacity == 0)
        return 0;
    int room = capacity > INT32_MAX ? INT32_MAX : (int)capacity;
    LZ4_resetStream_fast(&state->stream);
    int written = LZ4_compress_fast_continue(&state->stream, source, target, (int)size, room, 1);
    if (written > 0)
        return (uint32_t)written;
    LZ4_initStream(&state->stream,
                   sizeof state->stream); /* after a failure the stream is in no known state */
    return 0;
}

cqlring_status cqr_lz4_decompress_raw(const void *source, uint32_t source_size, void *target,
                                      uint32_t size)
{
    if (source_size == 0 || source_size > INT32_MAX || size > INT32_MAX)
        return CQLRING_PROTOCOL;
    int written = LZ4_decompress_safe(source, target, (int)source_size, (int)size);
    return written == (int)size ? CQLRING_OK : CQLRING_PROTOCOL;
}

uint32_t cqr_lz4_compress_body(struct compress_state *state, const void *source, uint32_t size,
                               void *target, uint32_t capacity)
{
    if (capacity <= BODY_LENGTH_SIZE)
        return 0;
    uint8_t *at = target;
    uint32_t written = cqr_lz4_compress_raw(state, source, size, at + BODY_LENGTH_SIZE,
                                            capacity - BODY_LENGTH_SIZE);
    if (written == 0)
        return 0;
    cqr_store_u32(at, size);
    return written + BODY_LENGTH_SIZE;
}

cqlring_status cqr_lz4_body_size(const void *source, uint32_t source_size, uint32_t size_max,
                                 uint32_t *size)
{
    if (source_size <= BODY_LENGTH_SIZE)
        return CQLRING_PROTOCOL;
    uint32_t claimed = cqr_load_u32(source);
    if (claimed > INT32_MAX)
        return CQLRING_PROTOCOL;
    if (claimed > size_max) {
        *size = claimed;
        return CQLRING_TOO_LARGE;
    }
    /* A byte of LZ4 makes at most 255: more cannot be true, so it is not worth its memory. */
    if (claimed / 255 > source_size - BODY_LENGTH_SIZE)
        return CQLRING_PROTOCOL;
    *size = claimed;
    return CQLRING_OK;
}

cqlring_status cqr_lz4_decompress_body(const void *source, uint32_t source_size, void *target,
                                       uint32_t size)
{
    if (source_size <= BODY_LENGTH_SIZE || cqr_load_u32(source) != size)
        return CQLRING_PROTOCOL;
    return cqr_lz4_decompress_raw((const uint8_t *)source + BODY_LENGTH_SIZE,
                                  source_size - BODY_LENGTH_SIZE, target, size);
}

/* --- either ------------------------------------------------------------------------------------ */

uint32_t cqr_body_compress(enum compression how, struct compress_state *state, const void *source,
                           uint32_t size, void *target, uint32_t capacity)
{
    if (how == COMPRESSION_SNAPPY)
        return cqr_snappy_compress(state->table, source, size, target, capacity);
    return how == COMPRESSION_LZ4 ? cqr_lz4_compress_body(state, source, size, target, capacity) : 0;
}

static cqlring_status snappy_size(const void *source, uint32_t source_size, uint32_t size_max,
                                  uint32_t *size)
{
    uint32_t claimed, length = cqr_snappy_length(source, source_size, &claimed);
    if (length == 0 || claimed > INT32_MAX)
        return CQLRING_PROTOCOL;
    *size = claimed;
    if (claimed > size_max)
        return CQLRING_TOO_LARGE;
    /* Two bytes make at most 11, three at most 64. */
    return claimed / 32 > source_size - length ? CQLRING_PROTOCOL : CQLRING_OK;
}

cqlring_status cqr_body_size(enum compression how, const void *source, uint32_t source_size,
                             uint32_t size_max, uint32_t *size)
{
    if (how == COMPRESSION_SNAPPY)
        return snappy_size(source, source_size, size_max, size);
    return how == COMPRESSION_LZ4 ? cqr_lz4_body_size(source, source_size, size_max, size)
                                  : CQLRING_PROTOCOL;
}

cqlring_status cqr_body_decompress(enum compression how, const void *source, uint32_t source_size,
                                   void *target, uint32_t size)
{
    if (how == COMPRESSION_SNAPPY)
        return cqr_snappy_decompress(source, source_size, target, size);
    return how == COMPRESSION_LZ4 ? cqr_lz4_decompress_body(source, source_size, target, size)
                                  : CQLRING_PROTOCOL;
}
