/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SNAPPY_H
#define CQR_SNAPPY_H

/* Snappy's raw format, for v4 bodies: the uncompressed length as a varint, then literals and copies. Our own, because the library
   that has it would bring C++'s runtime into every program. Pure functions of bytes. */

#include <stdint.h>

#include "serialize/cqlring_types.h"

enum { SNAPPY_TABLE_BITS = 12, SNAPPY_TABLE_SIZE = 1 << SNAPPY_TABLE_BITS };

/* The compressed size, 0 when it does not fit capacity. table is work memory, any content. */
uint32_t cqr_snappy_compress(uint16_t table[SNAPPY_TABLE_SIZE], const uint8_t *source, uint32_t size, uint8_t *target, uint32_t capacity);
/* The length that stands in front, and how many bytes it takes; 0: it cannot be read. */
uint32_t cqr_snappy_length(const uint8_t *source, uint32_t source_size, uint32_t *length);
/* Into exactly size bytes: anything else is CQLRING_PROTOCOL. */
cqlring_status cqr_snappy_decompress(const uint8_t *source, uint32_t source_size, uint8_t *target, uint32_t size);

#endif
