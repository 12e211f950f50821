/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: every put asks where it stands (begin_value), gets room for its payload behind the
   right kind of length, and fills it. Where the room is used up the writer goes on counting, so
   that the caller learns the size that would do; nothing is stored beyond capacity, and nothing
   already stored is looked at again. */
#include <assert.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/value.h"

/* How the elements of a nesting are kept apart. */
enum separator {
    SEPARATOR_INT,   /* int length: list, set, map, tuple, UDT */
    SEPARATOR_NONE,  /* vector of elements of fixed size */
    SEPARATOR_VINT,  /* any other vector */
    SEPARATOR_SHORT, /* composite: short length in front, a zero byte behind */
};

static enum separator separator_of(const cqlring_type *type)
{
    if (type->kind == CQLRING_KIND_VECTOR)
        return type->children[0]->packed_size > 0 ? SEPARATOR_NONE : SEPARATOR_VINT;
    return type->kind == CQLRING_KIND_COMPOSITE ? SEPARATOR_SHORT : SEPARATOR_INT;
}

static bool is_counted(const cqlring_type *type)
{
    return type->kind == CQLRING_KIND_LIST || type->kind == CQLRING_KIND_SET ||
           type->kind == CQLRING_KIND_MAP;
}

/* Types whose empty cell is an ordinary value. */
static bool has_empty_value(const cqlring_type *type)
{
    return type->kind == CQLRING_KIND_TEXT || type->kind == CQLRING_KIND_ASCII ||
           type->kind == CQLRING_KIND_BLOB || type->kind == CQLRING_KIND_CUSTOM ||
           type->kind == CQLRING_KIND_EMPTY;
}

static bool is_counting(const cqlring_writer *writer)
{
    return writer->status == CQLRING_OK || writer->status == CQLRING_FULL;
}

/* The first failure stays; lack of room is only known for certain at the end, so any other failure
   beats it. */
static void fail(cqlring_writer *writer, cqlring_status status)
{
    if (is_counting(writer))
        writer->status = (uint16_t)status;
}

/* n bytes at the end of the value, NULL when they are not there to be filled. */
static uint8_t *put_room(cqlring_writer *writer, uint64_t n)
{
    if (!is_counting(writer))
        return NULL;
    uint64_t at = writer->end;
    if (n > INT32_MAX || at + n - writer->size > INT32_MAX) {
        fail(writer, CQLRING_TOO_LARGE);
        return NULL;
    }
    writer->end = at + n;
    if (writer->end > writer->capacity) {
        writer->status = CQLRING_FULL;
        return NULL;
    }
    return writer->data + at;
}

/* Type of the next value of the innermost nesting, counted; NULL (and failed) when there can be
   none. */
static const cqlring_type *next_child(cqlring_writer *writer, uint32_t count)
{
    const cqlring_type *type = writer->frames[writer->depth - 1].type;
    uint32_t index = writer->frames[writer->depth - 1].count;
    uint32_t limit = INT32_MAX;
    const cqlring_type *child;
    switch (type->kind) {
    case CQLRING_KIND_TUPLE:
    case CQLRING_KIND_UDT:
    case CQLRING_KIND_COMPOSITE:
        limit = type->child_count;
        child = index < limit ? type->children[index] : NULL;
        break;
    case CQLRING_KIND_MAP: child = type->children[index % 2]; break;
    case CQLRING_KIND_VECTOR:
        limit = type->dimension;
        child = type->children[0];
        break;
    default: child = type->children[0]; break;
    }
    if (count > limit || index > limit - count) {
        fail(writer, CQLRING_TYPE);
        return NULL;
    }
    writer->frames[writer->depth - 1].count = index + count;
    return child;
}

/* Room for a payload of size bytes where the writer stands, its length written in front; NULL when
   there is nothing to fill (failed, no room, or null). size is negative for null and unset. */
static uint8_t *begin_value(cqlring_writer *writer, int32_t size)
{
    if (!is_counting(writer))
        return NULL;
    if (writer->whole != 0) {
        fail(writer, CQLRING_INVALID); /* a null was put, and now something behind it */
        return NULL;
    }
    if (writer->depth == 0)
        return put_room(writer, (uint64_t)size);
    const cqlring_type *child = next_child(writer, 1);
    if (child == NULL)
        return NULL;
    enum separator separator = separator_of(writer->frames[writer->depth - 1].type);
    if (size < 0) {
        uint8_t *at = separator == SEPARATOR_INT && size != CQLRING_UNSET ? put_room(writer, 4)
                                                                          : NULL;
        if (separator != SEPARATOR_INT || size == CQLRING_UNSET)
            fail(writer, CQLRING_TYPE);
        else if (at != NULL)
            cqr_store_u32(at, (uint32_t)CQLRING_NULL);
        return NULL;
    }
    bool fits = cqr_cell_size_ok(child, size);
    if (size == 0 && (separator == SEPARATOR_NONE || separator == SEPARATOR_VINT))
        fits = has_empty_value(child);
    if (separator == SEPARATOR_SHORT && size > UINT16_MAX)
        fits = false;
    if (!fits) {
        fail(writer, CQLRING_TYPE);
        return NULL;
    }
    uint8_t vint[9];
    uint32_t payload = (uint32_t)size;
    switch (separator) {
    case SEPARATOR_INT: {
        uint8_t *at = put_room(writer, (uint64_t)payload + 4);
        if (at == NULL)
            return NULL;
        cqr_store_u32(at, payload);
        return at + 4;
    }
    case SEPARATOR_VINT: {
        uint32_t head = cqlring_vint_encode(payload, vint);
        uint8_t *at = put_room(writer, (uint64_t)payload + head);
        if (at == NULL)
            return NULL;
        memcpy(at, vint, head);
        return at + head;
    }
    case SEPARATOR_SHORT: {
        uint8_t *at = put_room(writer, (uint64_t)payload + 3);
        if (at == NULL)
            return NULL;
        cqr_store_u16(at, (uint16_t)payload);
        at[2 + payload] = 0;
        return at + 2;
    }
    default: return put_room(writer, payload);
    }
}

static void put_payload(cqlring_writer *writer, const void *payload, uint32_t size)
{
    uint8_t *at = begin_value(writer, (int32_t)size);
    if (at != NULL && size > 0)
        memcpy(at, payload, size);
}

/* --- life ------------------------------------------------------------------------------------- */

cqlring_status cqlring_writer_take(cqlring_writer *writer, cqlring_bytes *cell, uint64_t *needed)
{
    if (writer->depth > 0)
        fail(writer, CQLRING_INVALID);
    cqlring_status status = (cqlring_status)writer->status;
    if (needed != NULL)
        *needed = writer->end - writer->size;
    *cell = (cqlring_bytes){.data = NULL, .size = CQLRING_NULL};
    if (status != CQLRING_OK) {
        writer->end = writer->size;
    } else if (writer->whole != 0) {
        cell->size = writer->whole;
    } else {
        cell->data = writer->capacity == 0 ? writer->data : writer->data + writer->size;
        cell->size = (int32_t)(writer->end - writer->size);
        writer->size = (uint32_t)writer->end;
    }
    writer->status = CQLRING_OK;
    writer->depth = 0;
    writer->whole = 0;
    return status;
}

/* --- scalars ---------------------------------------------------------------------------------- */

void cqlring_put_bytes(cqlring_writer *writer, cqlring_bytes payload)
{
    if (payload.size >= 0) {
        put_payload(writer, payload.data, (uint32_t)payload.size);
        return;
    }
    int32_t absent = payload.size == CQLRING_UNSET ? CQLRING_UNSET : CQLRING_NULL;
    if (writer->depth > 0)
        begin_value(writer, absent);
    else if (writer->end > writer->size || writer->whole != 0)
        fail(writer, CQLRING_INVALID);
    else
        writer->whole = absent;
}

void cqlring_put_int(cqlring_writer *writer, int64_t value, uint32_t size)
{
    uint8_t bytes[8];
    cqr_store_u64(bytes, (uint64_t)value);
    if (size == 0) {
        cqlring_put_varint(writer, (cqlring_bytes){.data = bytes, .size = 8});
        return;
    }
    if (size != 1 && size != 2 && size != 4 && size != 8) {
        fail(writer, CQLRING_INVALID);
        return;
    }
    uint32_t shift = 64 - 8 * size;
    if ((int64_t)((uint64_t)value << shift) >> shift != value) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    put_payload(writer, bytes + 8 - size, size);
}

void cqlring_put_varint(cqlring_writer *writer, cqlring_bytes integer)
{
    if (integer.size < 1) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    cqlring_bytes shortest = cqr_varint_shortest(integer);
    put_payload(writer, shortest.data, (uint32_t)shortest.size);
}

void cqlring_put_decimal(cqlring_writer *writer, int32_t scale, cqlring_bytes unscaled)
{
    if (unscaled.size < 1) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    cqlring_bytes shortest = cqr_varint_shortest(unscaled);
    if (shortest.size > INT32_MAX - 4) {
        fail(writer, CQLRING_TOO_LARGE);
        return;
    }
    uint8_t *at = begin_value(writer, shortest.size + 4);
    if (at == NULL)
        return;
    cqr_store_u32(at, (uint32_t)scale);
    memcpy(at + 4, shortest.data, (size_t)shortest.size);
}

void cqlring_put_duration(cqlring_writer *writer, int32_t months, int32_t days, int64_t nanoseconds)
{
    bool positive = months > 0 || days > 0 || nanoseconds > 0;
    bool negative = months < 0 || days < 0 || nanoseconds < 0;
    if (positive && negative) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    uint8_t bytes[27];
    uint32_t size = cqlring_vint_encode(cqr_zigzag(months), bytes);
    size += cqlring_vint_encode(cqr_zigzag(days), bytes + size);
    size += cqlring_vint_encode(cqr_zigzag(nanoseconds), bytes + size);
    put_payload(writer, bytes, size);
}

/* In bulk where the elements stand next to one another, with an int length each or with none. */
static void put_array_nested(cqlring_writer *writer, const uint8_t *values, uint32_t element_size,
                             uint32_t count)
{
    const cqlring_type *type = writer->frames[writer->depth - 1].type;
    enum separator separator = separator_of(type);
    bool plain = separator == SEPARATOR_NONE && type->children[0]->packed_size == element_size;
    bool counted = separator == SEPARATOR_INT && is_counted(type) &&
                   type->kind != CQLRING_KIND_MAP &&
                   cqr_cell_size_ok(type->children[0], (int32_t)element_size);
    if (plain || counted) {
        if (next_child(writer, count) == NULL)
            return;
        uint32_t stride = counted ? element_size + 4 : element_size;
        uint8_t *at = put_room(writer, (uint64_t)count * stride);
        if (at == NULL)
            return;
        if (plain) {
            cqr_swap_copy(at, values, element_size, count);
            return;
        }
        for (uint32_t i = 0; i < count; i++) {
            cqr_store_u32(at, element_size);
            cqr_swap_copy(at + 4, values + (size_t)i * element_size, element_size, 1);
            at += stride;
        }
        return;
    }
    for (uint32_t i = 0; i < count && is_counting(writer); i++) {
        uint8_t *at = begin_value(writer, (int32_t)element_size);
        if (at != NULL)
            cqr_swap_copy(at, values + (size_t)i * element_size, element_size, 1);
    }
}

void cqlring_put_array(cqlring_writer *writer, const void *values, uint32_t element_size,
                       uint32_t count)
{
    if (!is_counting(writer))
        return;
    if (element_size != 4 && element_size != 8) {
        fail(writer, CQLRING_INVALID);
        return;
    }
    if (writer->depth > 0) {
        put_array_nested(writer, values, element_size, count);
        return;
    }
    if ((uint64_t)count * element_size > INT32_MAX) {
        fail(writer, CQLRING_TOO_LARGE);
        return;
    }
    uint8_t *at = begin_value(writer, (int32_t)(count * element_size));
    if (at != NULL)
        cqr_swap_copy(at, values, element_size, count);
}

/* --- nesting ---------------------------------------------------------------------------------- */

static bool is_nested(const cqlring_type *type)
{
    return is_counted(type) || type->kind == CQLRING_KIND_TUPLE || type->kind == CQLRING_KIND_UDT ||
           type->kind == CQLRING_KIND_VECTOR || type->kind == CQLRING_KIND_COMPOSITE;
}

void cqlring_put_begin(cqlring_writer *writer, const cqlring_type *type)
{
    if (!is_counting(writer))
        return;
    if (writer->depth == 0 && (writer->end > writer->size || writer->whole != 0)) {
        fail(writer, CQLRING_INVALID);
        return;
    }
    if (!is_nested(type) || writer->depth == CQLRING_DEPTH_MAX) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    if (writer->depth > 0) {
        const cqlring_type *child = next_child(writer, 1);
        if (child == NULL)
            return;
        if (child->kind != type->kind || child->packed_size != type->packed_size) {
            fail(writer, CQLRING_TYPE);
            return;
        }
        /* Room for the length that put_end will know. A vint's is a guess: most are one byte. */
        static const uint8_t head_sizes[] = {
            [SEPARATOR_INT] = 4, [SEPARATOR_NONE] = 0, [SEPARATOR_VINT] = 1, [SEPARATOR_SHORT] = 2};
        put_room(writer, head_sizes[separator_of(writer->frames[writer->depth - 1].type)]);
    }
    writer->frames[writer->depth].type = type;
    writer->frames[writer->depth].start = (uint32_t)(writer->end - writer->size);
    writer->frames[writer->depth].count = 0;
    writer->depth++;
    if (is_counted(type))
        put_room(writer, 4);
}

/* The length of the payload that has just ended, start bytes into the value, for the nesting around
   it. */
static void finish_length(cqlring_writer *writer, uint32_t start)
{
    uint32_t size = (uint32_t)(writer->end - writer->size - start);
    uint8_t *payload = writer->status == CQLRING_OK ? writer->data + writer->size + start : NULL;
    switch (separator_of(writer->frames[writer->depth - 1].type)) {
    case SEPARATOR_INT:
        if (payload != NULL)
            cqr_store_u32(payload - 4, size);
        break;
    case SEPARATOR_VINT: {
        uint8_t vint[9];
        uint32_t head = cqlring_vint_encode(size, vint);
        put_room(writer, head - 1);
        if (payload != NULL && writer->status == CQLRING_OK) {
            if (head > 1)
                memmove(payload + head - 1, payload, size);
            memcpy(payload - 1, vint, head);
        }
        break;
    }
    case SEPARATOR_SHORT: {
        if (size > UINT16_MAX) {
            fail(writer, CQLRING_TYPE);
            break;
        }
        uint8_t *behind = put_room(writer, 1);
        if (behind != NULL && payload != NULL) {
            cqr_store_u16(payload - 2, (uint16_t)size);
            *behind = 0;
        }
        break;
    }
    case SEPARATOR_NONE: break;
    }
}

void cqlring_put_end(cqlring_writer *writer)
{
    if (!is_counting(writer))
        return;
    if (writer->depth == 0) {
        fail(writer, CQLRING_INVALID);
        return;
    }
    writer->depth--;
    const cqlring_type *type = writer->frames[writer->depth].type;
    uint32_t start = writer->frames[writer->depth].start;
    uint32_t count = writer->frames[writer->depth].count;
    if ((type->kind == CQLRING_KIND_VECTOR && count != type->dimension) ||
        (type->kind == CQLRING_KIND_MAP && count % 2 != 0)) {
        fail(writer, CQLRING_TYPE);
        return;
    }
    if (is_counted(type) && writer->status == CQLRING_OK)
        cqr_store_u32(writer->data + writer->size + start,
                      type->kind == CQLRING_KIND_MAP ? count / 2 : count);
    if (writer->depth > 0)
        finish_length(writer, start);
}
