/* SPDX-License-Identifier: Apache-2.0 */

/* Elements begin with a tag, whose two low bits say what it is: 0 a literal of (upper bits + 1) bytes, where 60 … 63 mean that one to
   four bytes of length follow; 1, 2 and 3 a copy of what was written `offset` bytes before, with 11, 16 and 32 bits of it. */

#include "serialize/snappy.h"

#include <stdbool.h>
#include <string.h>

enum { LITERAL = 0, COPY_1 = 1, COPY_2 = 2, COPY_4 = 3, LITERAL_INLINE_MAX = 60, COPY_MAX = 64, MATCH_MIN = 4 };
enum { BLOCK_SIZE = 65536 }; /* matches stay inside of one, so that an offset fits the table and a copy of two bytes */

uint32_t cqr_snappy_length(const uint8_t *source, uint32_t source_size, uint32_t *length)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < 5 && i < source_size; i++) {
        value |= (uint64_t)(source[i] & 0x7F) << (7 * i);
        if (source[i] < 0x80) {
            *length = (uint32_t)value;
            return value <= UINT32_MAX ? i + 1 : 0;
        }
    }
    return 0;
}

/* ---- reading ---- */

static uint32_t little(const uint8_t *at, uint32_t bytes)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

cqlring_status cqr_snappy_decompress(const uint8_t *source, uint32_t source_size, uint8_t *target, uint32_t size)
{
    uint32_t claimed, from = cqr_snappy_length(source, source_size, &claimed), to = 0;
    if (from == 0 || claimed != size)
        return CQLRING_PROTOCOL;
    while (from < source_size) {
        const uint8_t tag = source[from++];
        const uint32_t kind = tag & 3, upper = tag >> 2;
        const uint32_t more = kind == LITERAL ? (upper < LITERAL_INLINE_MAX ? 0 : upper - LITERAL_INLINE_MAX + 1) : kind == COPY_4 ? 4 : kind;
        if (source_size - from < more)
            return CQLRING_PROTOCOL;
        const uint32_t number = little(source + from, more);
        from += more;
        if (kind == LITERAL) {
            const uint64_t length = (more == 0 ? (uint64_t)upper : number) + 1;
            if (length > source_size - from || length > size - to)
                return CQLRING_PROTOCOL;
            memcpy(target + to, source + from, length);
            from += (uint32_t)length;
            to += (uint32_t)length;
            continue;
        }
        const uint32_t length = kind == COPY_1 ? (upper & 7) + MATCH_MIN : upper + 1;
        const uint32_t offset = kind == COPY_1 ? (uint32_t)(tag >> 5) << 8 | number : number;
        if (offset == 0 || offset > to || length > size - to)
            return CQLRING_PROTOCOL;
        for (uint32_t i = 0; i < length; i++, to++) /* byte by byte: it may run into what it writes */
            target[to] = target[to - offset];
    }
    return to == size ? CQLRING_OK : CQLRING_PROTOCOL;
}

/* ---- writing ---- */

struct out {
    uint8_t *at, *end;
    bool full;
};

static void put(struct out *out, const void *bytes, uint32_t size)
{
    out->full = out->full || (size_t)(out->end - out->at) < size;
    if (out->full || size == 0)
        return;
    memcpy(out->at, bytes, size);
    out->at += size;
}

static void put_literal(struct out *out, const uint8_t *bytes, uint32_t size)
{
    if (size == 0)
        return;
    uint32_t number = size - 1;
    uint8_t head[3] = {(uint8_t)(number << 2), (uint8_t)number, (uint8_t)(number >> 8)}; /* a block's literals fit two bytes */
    uint32_t more = number < LITERAL_INLINE_MAX ? 0 : number < 256 ? 1 : 2;
    if (more > 0)
        head[0] = (uint8_t)((LITERAL_INLINE_MAX - 1 + more) << 2);
    put(out, head, 1 + more);
    put(out, bytes, size);
}

static void put_copy(struct out *out, uint32_t offset, uint32_t length)
{
    while (length > 0) {
        uint32_t piece = length > COPY_MAX ? COPY_MAX : length;
        const uint8_t head[3] = {(uint8_t)(COPY_2 | (piece - 1) << 2), (uint8_t)offset, (uint8_t)(offset >> 8)};
        put(out, head, sizeof head);
        length -= piece;
    }
}

static uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void put_block(struct out *out, uint16_t *table, const uint8_t *block, uint32_t size)
{
    uint32_t at = 0, literal = 0;
    memset(table, 0, SNAPPY_TABLE_SIZE * sizeof *table);
    while (size - at > MATCH_MIN && size > MATCH_MIN) {
        uint32_t slot = (word(block + at) * 0x9E3779B1u) >> (32 - SNAPPY_TABLE_BITS), before = table[slot];
        table[slot] = (uint16_t)at;
        if (before >= at || word(block + before) != word(block + at)) {
            at += 1 + ((at - literal) >> 5); /* faster and faster over what does not shrink */
            if (at > size)
                at = size;
            continue;
        }
        uint32_t length = MATCH_MIN;
        while (at + length < size && block[before + length] == block[at + length])
            length++;
        put_literal(out, block + literal, at - literal);
        put_copy(out, at - before, length);
        at += length;
        literal = at;
    }
    put_literal(out, block + literal, size - literal);
}

uint32_t cqr_snappy_compress(uint16_t table[SNAPPY_TABLE_SIZE], const uint8_t *source, uint32_t size, uint8_t *target, uint32_t capacity)
{
    struct out out = {.at = target, .end = target + capacity};
    uint8_t length[5];
    uint32_t bytes = 0, left = size;
    for (; left >= 0x80; left >>= 7)
        length[bytes++] = (uint8_t)(left | 0x80);
    length[bytes++] = (uint8_t)left;
    put(&out, length, bytes);
    for (uint32_t from = 0; from < size && !out.full; from += BLOCK_SIZE)
        put_block(&out, table, source + from, size - from < BLOCK_SIZE ? size - from : BLOCK_SIZE);
    return out.full ? 0 : (uint32_t)(out.at - target);
}
