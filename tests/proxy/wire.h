/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_WIRE_H
#define PROXY_WIRE_H

/* One side of a connection through the proxy: bytes in, whole envelopes out, and the other way round. v4 and everything up to
   READY are bare envelopes; behind it v5 is in segments, which are opened, checked and made again with sums of our own. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t from, to, capacity; /* what is in it stands between from and to */
};
void bytes_put(struct bytes *bytes, const void *data, size_t size);
void bytes_take(struct bytes *bytes, size_t size); /* off the front */
void bytes_fini(struct bytes *bytes);
static inline size_t bytes_size(const struct bytes *bytes)
{
    return bytes->to - bytes->from;
}

struct wire {
    struct bytes raw;     /* received */
    struct bytes opened;  /* payloads of the segments received */
    struct bytes pending; /* envelopes not in a segment yet */
    struct bytes out;     /* to be sent */
    bool framed, lz4;     /* v5 behind READY; segments have the header for LZ4 */
};
void wire_fini(struct wire *wire);

enum wire_cut { WIRE_WHOLE, WIRE_MORE, WIRE_BAD };
/* The next envelope, valid until the next call on this wire. */
enum wire_cut wire_next(struct wire *wire, const uint8_t **envelope, size_t *size);
/* An envelope to be sent; in segments it waits for wire_seal, in company. */
void wire_put(struct wire *wire, const void *envelope, size_t size);
void wire_seal(struct wire *wire);
/* A segment whose header speaks of `claimed` bytes, with the sum that belongs to it, around these. */
void wire_put_lying_segment(struct wire *wire, const void *payload, size_t size, size_t claimed);

#endif
