/* SPDX-License-Identifier: Apache-2.0 */
/* LZ4 blocks and bodies. The first byte says what the rest is: 0 a body, 1 a raw block behind a
   big-endian short that claims its size, 2 anything, to be compressed and to come back; 3 a body of
   Snappy, 4 as 2, by Snappy. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 1 << 20 };

static void *room(size_t size)
{
    void *memory = malloc(size > 0 ? size : 1);
    if (memory == NULL)
        abort();
    return memory;
}

static void come_back(enum compression how, const uint8_t *data, uint32_t size)
{
    static struct compress_state *state;
    if (state == NULL)
        state = cqr_compress_state_create();
    uint32_t bound = how == COMPRESSION_LZ4 ? cqr_compress_bound(size) + 4 : size + size / 6 + 32;
    uint8_t *target = room(bound);
    uint8_t *back = room(size);
    for (uint32_t capacity = bound; capacity > 0; capacity /= 2) {
        uint32_t written = cqr_body_compress(how, state, data, size, target, capacity);
        if (written > capacity || (written == 0 && capacity == bound))
            abort();
        if (written > 0 && (cqr_body_decompress(how, target, written, back, size) != CQLRING_OK ||
                            (size > 0 && memcmp(back, data, size) != 0)))
            abort();
    }
    free(target);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > BODY_MAX)
        return 0;
    const uint8_t *rest = data + 1;
    uint32_t rest_size = (uint32_t)size - 1;
    uint32_t claimed;
    switch (data[0]) {
    case 0:
    case 3: {
        enum compression how = data[0] == 0 ? COMPRESSION_LZ4 : COMPRESSION_SNAPPY;
        if (cqr_body_size(how, rest, rest_size, BODY_MAX, &claimed) == CQLRING_OK) {
            uint8_t *target = room(claimed);
            (void)cqr_body_decompress(how, rest, rest_size, target, claimed);
            free(target);
        }
        break;
    }
    case 1:
        if (rest_size >= 2) {
            claimed = cqr_load_u16(rest);
            uint8_t *target = room(claimed);
            (void)cqr_lz4_decompress_raw(rest + 2, rest_size - 2, target, claimed);
            free(target);
        }
        break;
    case 2: come_back(COMPRESSION_LZ4, rest, rest_size); break;
    case 4: come_back(COMPRESSION_SNAPPY, rest, rest_size); break;
    default: break;
    }
    return 0;
}
