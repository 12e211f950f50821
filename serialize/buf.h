/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_BUF_H
#define CQR_BUF_H

/* A bounded big-endian writer and reader over somebody else's memory. Failure is sticky: after the first thing that did
   not fit (writer) or was not there (reader), nothing more happens and `failed` is set; callers check once at the end.
   A reader never looks at a byte outside its slice. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "serialize/cqlring_types.h"

struct writer {
    uint8_t *data;
    uint32_t size;     /* written so far */
    uint32_t capacity;
    bool failed;
};

struct reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline void cqr_writer_init(struct writer *writer, void *data, uint32_t capacity)
{
    writer->data = (uint8_t *)data;
    writer->size = 0;
    writer->capacity = capacity;
    writer->failed = false;
}

/* Room for n bytes at the end, counted as written; NULL (and failed) when they do not fit. */
static inline uint8_t *cqr_put_room(struct writer *writer, uint32_t n)
{
    if (writer->failed || writer->capacity - writer->size < n) {
        writer->failed = true;
        return NULL;
    }
    uint8_t *at = writer->data + writer->size;
    writer->size += n;
    return at;
}

static inline void cqr_store_u16(uint8_t *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, 2);
}
static inline void cqr_store_u32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}
static inline void cqr_store_u64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}
static inline uint16_t cqr_load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, 2);
    return __builtin_bswap16(value);
}
static inline uint32_t cqr_load_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}
static inline uint64_t cqr_load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "x86-64 and aarch64 in little-endian order (decision 7)");

static inline void cqr_put_u8(struct writer *writer, uint8_t value)
{
    uint8_t *at = cqr_put_room(writer, 1);
    if (at != NULL)
        *at = value;
}
static inline void cqr_put_u16(struct writer *writer, uint16_t value)
{
    uint8_t *at = cqr_put_room(writer, 2);
    if (at != NULL)
        cqr_store_u16(at, value);
}
static inline void cqr_put_u32(struct writer *writer, uint32_t value)
{
    uint8_t *at = cqr_put_room(writer, 4);
    if (at != NULL)
        cqr_store_u32(at, value);
}
static inline void cqr_put_u64(struct writer *writer, uint64_t value)
{
    uint8_t *at = cqr_put_room(writer, 8);
    if (at != NULL)
        cqr_store_u64(at, value);
}
static inline void cqr_put_raw(struct writer *writer, const void *data, uint32_t size)
{
    uint8_t *at = cqr_put_room(writer, size);
    if (at != NULL && size > 0)
        memcpy(at, data, size);
}

static inline void cqr_reader_init(struct reader *reader, const void *data, uint32_t size)
{
    reader->at = (const uint8_t *)data;
    reader->end = reader->at + size;
    reader->failed = false;
}
static inline uint32_t cqr_reader_left(const struct reader *reader)
{
    return reader->failed ? 0 : (uint32_t)(reader->end - reader->at);
}
/* The next n bytes, or NULL (and failed). */
static inline const uint8_t *cqr_get_raw(struct reader *reader, uint32_t n)
{
    if (reader->failed || (size_t)(reader->end - reader->at) < n) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *at = reader->at;
    reader->at += n;
    return at;
}
/* Scalars: 0 once failed. */
static inline uint8_t cqr_get_u8(struct reader *reader)
{
    const uint8_t *at = cqr_get_raw(reader, 1);
    return at == NULL ? 0 : *at;
}
static inline uint16_t cqr_get_u16(struct reader *reader)
{
    const uint8_t *at = cqr_get_raw(reader, 2);
    return (uint16_t)(at == NULL ? 0 : cqr_load_u16(at));
}
static inline uint32_t cqr_get_u32(struct reader *reader)
{
    const uint8_t *at = cqr_get_raw(reader, 4);
    return at == NULL ? 0 : cqr_load_u32(at);
}
static inline int32_t cqr_get_i32(struct reader *reader)
{
    return (int32_t)cqr_get_u32(reader);
}
static inline uint64_t cqr_get_u64(struct reader *reader)
{
    const uint8_t *at = cqr_get_raw(reader, 8);
    return at == NULL ? 0 : cqr_load_u64(at);
}
/* Protocol notations (native protocol, section 3). Slices point into the reader's bytes. */
static inline cqlring_bytes cqr_get_string(struct reader *reader) /* [string], [short bytes] */
{
    uint16_t size = cqr_get_u16(reader);
    const uint8_t *at = cqr_get_raw(reader, size);
    return (cqlring_bytes){.data = at, .size = at == NULL ? 0 : size};
}
static inline cqlring_bytes cqr_get_bytes(struct reader *reader) /* [bytes], [value]: any negative size is null */
{
    int32_t size = cqr_get_i32(reader);
    if (reader->failed || size < 0)
        return (cqlring_bytes){.data = NULL, .size = CQLRING_NULL};
    const uint8_t *at = cqr_get_raw(reader, (uint32_t)size);
    return (cqlring_bytes){.data = at, .size = at == NULL ? CQLRING_NULL : size};
}
static inline void cqr_put_string(struct writer *writer, cqlring_bytes text) /* [string], [short bytes] */
{
    if (text.size < 0 || text.size > 0xFFFF) {
        writer->failed = true;
        return;
    }
    cqr_put_u16(writer, (uint16_t)text.size);
    cqr_put_raw(writer, text.data, (uint32_t)text.size);
}
static inline void cqr_put_bytes(struct writer *writer, cqlring_bytes value) /* [bytes], [value], [long string] */
{
    cqr_put_u32(writer, (uint32_t)value.size);
    if (value.size > 0)
        cqr_put_raw(writer, value.data, (uint32_t)value.size);
}

#endif
