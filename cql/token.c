/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/token.h"

#include <string.h>

#include "serialize/buf.h"

/* --- Murmur3 ---------------------------------------------------------------------------------- */

#define MURMUR_C1 0x87C37B91114253D5u
#define MURMUR_C2 0x4CF5AD432745937Fu

static inline uint64_t rotate_left(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static inline uint64_t load_le64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t mix1(uint64_t k)
{
    return rotate_left(k * MURMUR_C1, 31) * MURMUR_C2;
}

static inline uint64_t mix2(uint64_t k)
{
    return rotate_left(k * MURMUR_C2, 33) * MURMUR_C1;
}

static inline uint64_t finish(uint64_t k)
{
    k ^= k >> 33;
    k *= 0xFF51AFD7ED558CCDu;
    k ^= k >> 33;
    k *= 0xC4CEB9FE1A85EC53u;
    k ^= k >> 33;
    return k;
}

/* Up to eight bytes of the tail. Cassandra's code shifts Java's signed bytes: a byte of 0x80 and
   above changes all the bits over it too, unlike in the reference implementation. */
static inline uint64_t signed_tail(const uint8_t *at, uint32_t size)
{
    uint64_t k = 0;
    if (size == 8) { /* bigint: what keys are most often */
        k = load_le64(at);
        /* each byte is turned over once for every signed byte below it: a prefix sum modulo 2 */
        uint64_t flips = k >> 7 & 0x0101010101010101u;
        flips ^= flips << 8;
        flips ^= flips << 16;
        flips ^= flips << 32;
        return k ^ (flips << 8) * 0xFF;
    }
    for (uint32_t i = 0; i < size; ++i)
        k ^= (uint64_t)(int64_t)(int8_t)at[i] << (8 * i);
    return k;
}

/* MurmurHash3 x64 128 with seed 0, the first half, as Cassandra computes it. */
int64_t cqr_murmur3_raw(const void *key, uint32_t size)
{
    const uint8_t *at = (const uint8_t *)key;
    uint64_t h1 = 0, h2 = 0;
    uint32_t left = size;
    for (; left >= 16; at += 16, left -= 16) {
        h1 ^= mix1(load_le64(at));
        h1 = (rotate_left(h1, 27) + h2) * 5 + 0x52DCE729;
        h2 ^= mix2(load_le64(at + 8));
        h2 = (rotate_left(h2, 31) + h1) * 5 + 0x38495AB5;
    }
    if (left > 8) {
        h2 ^= mix2(signed_tail(at + 8, left - 8));
        left = 8;
    }
    if (left > 0)
        h1 ^= mix1(signed_tail(at, left));
    h1 ^= size;
    h2 ^= size;
    h1 += h2;
    h2 += h1;
    h1 = finish(h1);
    h2 = finish(h2);
    return (int64_t)(h1 + h2);
}

int64_t cqr_murmur3(const void *key, uint32_t size)
{
    int64_t hash = cqr_murmur3_raw(key, size);
    return hash == INT64_MIN ? INT64_MAX : hash; /* the minimum token never names a key */
}

int64_t cqr_cdc_token(const void *key, uint32_t size)
{
    return size < 8 ? INT64_MIN : (int64_t)cqr_load_u64((const uint8_t *)key);
}

/* --- MD5 (RFC 1321), for RandomPartitioner only: nothing here is a secret --------------------- */

static inline uint32_t rotate_left32(uint32_t value, unsigned bits)
{
    return value << bits | value >> (32 - bits);
}

static void md5_block(uint32_t state[4], const uint8_t block[64])
{
    static const uint32_t sines[64] = {
        0xD76AA478, 0xE8C7B756, 0x242070DB, 0xC1BDCEEE, 0xF57C0FAF, 0x4787C62A, 0xA8304613,
        0xFD469501, 0x698098D8, 0x8B44F7AF, 0xFFFF5BB1, 0x895CD7BE, 0x6B901122, 0xFD987193,
        0xA679438E, 0x49B40821, 0xF61E2562, 0xC040B340, 0x265E5A51, 0xE9B6C7AA, 0xD62F105D,
        0x02441453, 0xD8A1E681, 0xE7D3FBC8, 0x21E1CDE6, 0xC33707D6, 0xF4D50D87, 0x455A14ED,
        0xA9E3E905, 0xFCEFA3F8, 0x676F02D9, 0x8D2A4C8A, 0xFFFA3942, 0x8771F681, 0x6D9D6122,
        0xFDE5380C, 0xA4BEEA44, 0x4BDECFA9, 0xF6BB4B60, 0xBEBFBC70, 0x289B7EC6, 0xEAA127FA,
        0xD4EF3085, 0x04881D05, 0xD9D4D039, 0xE6DB99E5, 0x1FA27CF8, 0xC4AC5665, 0xF4292244,
        0x432AFF97, 0xAB9423A7, 0xFC93A039, 0x655B59C3, 0x8F0CCC92, 0xFFEFF47D, 0x85845DD1,
        0x6FA87E4F, 0xFE2CE6E0, 0xA3014314, 0x4E0811A1, 0xF7537E82, 0xBD3AF235, 0x2AD7D2BB,
        0xEB86D391,
    };
    static const uint8_t shifts[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t words[16];
    memcpy(words, block, sizeof words); /* little-endian, as the host */

    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (uint32_t i = 0; i < 64; ++i) {
        uint32_t mixed, word;
        if (i < 16) {
            mixed = (b & c) | (~b & d);
            word = i;
        } else if (i < 32) {
            mixed = (d & b) | (~d & c);
            word = (5 * i + 1) % 16;
        } else if (i < 48) {
            mixed = b ^ c ^ d;
            word = (3 * i + 5) % 16;
        } else {
            mixed = c ^ (b | ~d);
            word = 7 * i % 16;
        }
        uint32_t next = b +
                        rotate_left32(a + mixed + sines[i] + words[word], shifts[i / 16][i % 4]);
        a = d;
        d = c;
        c = b;
        b = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void md5(const uint8_t *data, uint32_t size, uint8_t digest[16])
{
    uint32_t state[4] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};
    uint32_t left = size;
    for (; left >= 64; data += 64, left -= 64)
        md5_block(state, data);
    uint8_t last[128] = {0};
    if (left > 0)
        memcpy(last, data, left);
    last[left] = 0x80;
    uint32_t last_size = left < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)size * 8;
    memcpy(last + last_size - 8, &bits, sizeof bits);
    for (uint32_t i = 0; i < last_size; i += 64)
        md5_block(state, last + i);
    memcpy(digest, state, 16);
}

void cqr_random_token(const void *key, uint32_t size, uint8_t out[16])
{
    md5((const uint8_t *)key, size, out);
    if ((out[0] & 0x80) == 0)
        return;
    /* Java's BigInteger.abs of a signed number: two's complement; -2^127 becomes 2^127, which is
       the same bytes. */
    unsigned carry = 1;
    for (int i = 15; i >= 0; --i) {
        unsigned byte = (uint8_t)~out[i] + carry;
        out[i] = (uint8_t)byte;
        carry = byte >> 8;
    }
}

/* --- keys, names, shards ---------------------------------------------------------------------- */

bool cqr_routing_key(const cqlring_bytes *cells, const uint16_t *indexes, uint16_t count,
                     uint8_t *scratch, uint32_t scratch_size, cqlring_bytes *key)
{
    if (count == 0)
        return false;
    if (count == 1) {
        const cqlring_bytes *cell = &cells[indexes[0]];
        if (cell->size < 0 || cell->size > UINT16_MAX)
            return false;
        *key = *cell;
        return true;
    }
    struct writer writer;
    cqr_writer_init(&writer, scratch, scratch_size);
    for (uint32_t i = 0; i < count; ++i) {
        cqr_put_string(&writer, cells[indexes[i]]); /* fails on null, unset and over 65535 bytes */
        cqr_put_u8(&writer, 0);
    }
    *key = (cqlring_bytes){.data = scratch, .size = (int32_t)writer.size};
    return !writer.failed;
}

enum partitioner cqr_partitioner_of(cqlring_bytes class_name)
{
    static const struct {
        const char *name;
        enum partitioner partitioner;
    } known[] = {
        {"Murmur3Partitioner", PARTITIONER_MURMUR3},
        {"RandomPartitioner", PARTITIONER_RANDOM},
        {"ByteOrderedPartitioner", PARTITIONER_ORDERED},
        {"CDCPartitioner", PARTITIONER_CDC},
    };
    if (class_name.size <= 0)
        return PARTITIONER_UNKNOWN;
    const char *name = (const char *)class_name.data;
    size_t size = (size_t)class_name.size;
    for (size_t i = size; i > 0; --i) {
        if (name[i - 1] == '.') {
            name += i;
            size -= i;
            break;
        }
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        if (size == strlen(known[i].name) && memcmp(name, known[i].name, size) == 0)
            return known[i].partitioner;
    }
    return PARTITIONER_UNKNOWN;
}

uint32_t cqr_shard_of(int64_t token, uint16_t shard_count, uint8_t ignore_msb)
{
    /* The token moved to 0 … 2^64 - 1, its upper bits dropped, as a fraction of 2^64. */
    uint64_t biased = ((uint64_t)token + (1ull << 63)) << ignore_msb;
    uint64_t high = (biased >> 32) * shard_count;
    uint64_t low = (biased & 0xFFFFFFFF) * shard_count;
    return (uint32_t)((high + (low >> 32)) >> 32);
}
