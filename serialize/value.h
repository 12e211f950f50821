/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_VALUE_H
#define CQR_VALUE_H

/* One value ↔ bytes: what the public functions of cqlring_values.h and the layers above share.
   Pure functions. */

#include <stdbool.h>
#include <stdint.h>

#include "serialize/cqlring_types.h"
#include "serialize/type.h"

/* Is this a size that the type's cells can have? Cheap, for every bound value; cqlring_value_check
   looks inside. Null, unset and empty pass: whether an empty one is welcome is the server's to
   say. */
static inline bool cqr_cell_size_ok(const cqlring_type *type, int32_t size)
{
    return size <= 0 || type->cell_size == 0 || (uint32_t)size == type->cell_size;
}

/* Bytes of an unsigned vint: 1 to 9. */
static inline uint32_t cqr_vint_size(uint64_t value)
{
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(value | 1);
    return bits > 56 ? 9 : (bits + 6) / 7;
}

static inline uint64_t cqr_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}
static inline int64_t cqr_unzigzag(uint64_t value)
{
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

/* Without the leading bytes that two's complement can do without; at least one byte stays. size
   ≥ 1. */
cqlring_bytes cqr_varint_shortest(cqlring_bytes integer);

/* Copies count numbers of element_size (4 or 8) bytes, each with its bytes reversed. No alignment
   is asked for. The areas do not overlap. */
void cqr_swap_copy(void *target, const void *source, uint32_t element_size, uint64_t count);

/* Well-formed text? Strictly RFC 3629; 7 bits. */
bool cqr_is_utf8(const void *text, size_t size);
bool cqr_is_ascii(const void *text, size_t size);

#endif
