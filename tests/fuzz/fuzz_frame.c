/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of envelopes in parts: the first byte limits the bodies, the second says how many bytes
   arrive at a time. */
#include <assert.h>
#include <stdlib.h>

#include "cql/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > UINT32_MAX)
        return 0;
    uint32_t body_max = data[0] < 128 ? data[0] * 64u : PROTO_BODY_MAX;
    uint32_t step = data[1] + 1u;
    data += 2;
    uint32_t left = (uint32_t)size - 2, at = 0;
    for (uint32_t received = 0; received <= left;) {
        struct frame_header header = {.body_size = 0};
        enum frame_cut cut = cqr_frame_cut(data + at, received - at, body_max, &header);
        if (cut == FRAME_BAD) {
            assert(received - at >= PROTO_HEADER_SIZE && header.body_size > body_max);
            break;
        }
        if (cut == FRAME_PARTIAL) {
            assert(received - at < PROTO_HEADER_SIZE ||
                   received - at - PROTO_HEADER_SIZE < header.body_size);
            if (received == left)
                break;
            received = left - received < step ? left : received + step;
            continue;
        }
        assert(header.body_size <= body_max &&
               received - at - PROTO_HEADER_SIZE >= header.body_size);
        if (cqr_frame_is_plain_void(&header, data + at + PROTO_HEADER_SIZE))
            assert(header.body_size == 4);
        at += PROTO_HEADER_SIZE + header.body_size;
    }
    return 0;
}
