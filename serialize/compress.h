/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_COMPRESS_H
#define CQR_COMPRESS_H

/* Compression of bodies (v4 frames) and segment payloads (v5). The only place that sees lz4. Pure functions of bytes;
   any thread (each thread brings its own state). */

#include <stdint.h>

#include "serialize/cqlring_types.h"

enum compression { COMPRESSION_NONE = 0, COMPRESSION_LZ4 = 1, COMPRESSION_SNAPPY = 2 };

/* Work memory of the compressor, reused from call to call; NULL when out of memory. */
struct compress_state;
struct compress_state *cqr_compress_state_create(void);
void cqr_compress_state_destroy(struct compress_state *state);

uint32_t cqr_compress_bound(uint32_t size); /* most bytes that compressing size bytes can take (raw block) */

/* One raw LZ4 block without a length in front (v5 segments). Returns its size, 0 when it does not fit capacity. */
uint32_t cqr_lz4_compress_raw(struct compress_state *state, const void *source, uint32_t size, void *target, uint32_t capacity);
/* size is the exact uncompressed size that the header claimed: anything else is CQLRING_PROTOCOL. */
cqlring_status cqr_lz4_decompress_raw(const void *source, uint32_t source_size, void *target, uint32_t size);

/* A v3/v4 body: 4-byte big-endian uncompressed length, then a raw LZ4 block. Returns its size, 0 if it does not fit. */
uint32_t cqr_lz4_compress_body(struct compress_state *state, const void *source, uint32_t size, void *target, uint32_t capacity);
/* How large a compressed body will be: reads and checks the claimed length against size_max before anything is allocated. */
cqlring_status cqr_lz4_body_size(const void *source, uint32_t source_size, uint32_t size_max, uint32_t *size);
cqlring_status cqr_lz4_decompress_body(const void *source, uint32_t source_size, void *target, uint32_t size);

/* The same for whichever a connection has; Snappy's body is its raw format. NONE: 0, PROTOCOL. What was too large is in *size. */
uint32_t cqr_body_compress(enum compression how, struct compress_state *state, const void *source, uint32_t size, void *target, uint32_t capacity);
cqlring_status cqr_body_size(enum compression how, const void *source, uint32_t source_size, uint32_t size_max, uint32_t *size);
cqlring_status cqr_body_decompress(enum compression how, const void *source, uint32_t source_size, void *target, uint32_t size);

#endif
