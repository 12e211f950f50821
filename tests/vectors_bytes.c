/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/vectors_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"

/* --- SHA-256 (FIPS 180-4), to compare with: the digests in the files are of what others wrote - */

static uint32_t rotate_right(uint32_t value, unsigned bits)
{
    return value >> bits | value << (32 - bits);
}

static void sha256_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    };
    uint32_t w[64];
    for (int i = 0; i < 16; ++i)
        w[i] = cqr_load_u32(block + 4 * i);
    for (int i = 16; i < 64; ++i) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t v[8];
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; ++i) {
        uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choice + constants[i] + w[i];
        uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; ++i)
        state[i] += v[i];
}

static void sha256(const uint8_t *data, size_t size, uint8_t digest[32])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t left = size;
    for (; left >= 64; data += 64, left -= 64)
        sha256_block(state, data);
    uint8_t last[128] = {0};
    memcpy(last, data, left);
    last[left] = 0x80;
    size_t last_size = left < 56 ? 64 : 128;
    cqr_store_u64(last + last_size - 8, (uint64_t)size * 8);
    for (size_t i = 0; i < last_size; i += 64)
        sha256_block(state, last + i);
    for (int i = 0; i < 8; ++i)
        cqr_store_u32(digest + 4 * i, state[i]);
}

/* --- names ------------------------------------------------------------------------------------ */

static cqlring_bytes noise(struct vector_row *row, size_t size, const char *seed)
{
    uint8_t *bytes = vector_room(row, size + 32);
    for (size_t i = 0; 32 * i < size; ++i) {
        char text[64];
        int text_size = snprintf(text, sizeof text, "%s:%zu", seed, i);
        sha256((const uint8_t *)text, (size_t)text_size, bytes + 32 * i);
    }
    return (cqlring_bytes){.data = bytes, .size = (int32_t)size};
}

cqlring_bytes vector_bytes_of(struct vector_row *row, const char *text)
{
    if (strncmp(text, "hex:", 4) == 0)
        return vector_hex_of(row, text + 4);
    if (strncmp(text, "seq:", 4) == 0) {
        size_t size = strtoul(text + 4, NULL, 10);
        uint8_t *bytes = vector_room(row, size);
        for (size_t i = 0; i < size; ++i)
            bytes[i] = (uint8_t)(7 * i + 3);
        return (cqlring_bytes){.data = bytes, .size = (int32_t)size};
    }
    if (strncmp(text, "rep:", 4) == 0 && strlen(text) > 7) {
        size_t size = strtoul(text + 7, NULL, 10);
        uint8_t *bytes = vector_room(row, size);
        memset(bytes, (int)strtoul(text + 4, NULL, 16), size);
        return (cqlring_bytes){.data = bytes, .size = (int32_t)size};
    }
    if (strncmp(text, "noise:", 6) == 0) {
        char *seed;
        size_t size = strtoul(text + 6, &seed, 10);
        return noise(row, size, *seed == ':' ? seed + 1 : seed);
    }
    return vector_hex_of(row, text);
}

bool vector_check_named(struct vector_row *row, const char *what, cqlring_bytes got,
                        const char *text)
{
    if (strncmp(text, "sha256:", 7) != 0)
        return vector_check_bytes(row, what, got, vector_bytes_of(row, text));
    uint8_t digest[32];
    sha256(got.data, (size_t)got.size, digest);
    return vector_check_bytes(row, what, (cqlring_bytes){.data = digest, .size = 32},
                              vector_hex_of(row, text + 7));
}
