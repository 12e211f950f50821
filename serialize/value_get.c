/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/value.h"

cqlring_status cqlring_get_int(cqlring_bytes cell, uint32_t size, int64_t *value)
{
    if (cell.size <= 0 || (size != 0 && size != 1 && size != 2 && size != 4 && size != 8))
        return CQLRING_INVALID;
    if (size == 0) {
        cell = cqr_varint_shortest(cell);
        if (cell.size > 8)
            return CQLRING_TOO_LARGE;
    } else if ((uint32_t)cell.size != size) {
        return CQLRING_TYPE;
    }
    const uint8_t *bytes = cell.data;
    uint64_t bits = (uint64_t)(int64_t)(int8_t)bytes[0];
    for (int32_t i = 1; i < cell.size; i++)
        bits = bits << 8 | bytes[i];
    *value = (int64_t)bits;
    return CQLRING_OK;
}

cqlring_status cqlring_get_decimal(cqlring_bytes cell, int32_t *scale, cqlring_bytes *unscaled)
{
    if (cell.size <= 0)
        return CQLRING_INVALID;
    if (cell.size < 5)
        return CQLRING_TYPE;
    *scale = (int32_t)cqr_load_u32(cell.data);
    *unscaled = (cqlring_bytes){.data = (const uint8_t *)cell.data + 4, .size = cell.size - 4};
    return CQLRING_OK;
}

cqlring_status cqlring_get_duration(cqlring_bytes cell, int32_t *months, int32_t *days,
                                    int64_t *nanoseconds)
{
    if (cell.size <= 0)
        return CQLRING_INVALID;
    int64_t parts[3];
    const uint8_t *at = cell.data;
    size_t left = (size_t)cell.size;
    for (int i = 0; i < 3; i++) {
        uint64_t bits;
        uint32_t taken = cqlring_vint_decode(at, left, &bits);
        if (taken == 0)
            return CQLRING_TYPE;
        parts[i] = cqr_unzigzag(bits);
        at += taken;
        left -= taken;
    }
    bool positive = parts[0] > 0 || parts[1] > 0 || parts[2] > 0;
    bool negative = parts[0] < 0 || parts[1] < 0 || parts[2] < 0;
    if (left > 0 || parts[0] != (int32_t)parts[0] || parts[1] != (int32_t)parts[1] ||
        (positive && negative))
        return CQLRING_TYPE;
    *months = (int32_t)parts[0];
    *days = (int32_t)parts[1];
    *nanoseconds = parts[2];
    return CQLRING_OK;
}

cqlring_status cqlring_get_array(cqlring_bytes cell, uint32_t element_size, void *values,
                                 uint32_t count)
{
    if (cell.size <= 0 || (element_size != 4 && element_size != 8))
        return CQLRING_INVALID;
    if ((uint64_t)cell.size != (uint64_t)count * element_size)
        return CQLRING_TYPE;
    cqr_swap_copy(values, cell.data, element_size, count);
    return CQLRING_OK;
}

/* --- the cursor ------------------------------------------------------------------------------- */

static bool is_record(const cqlring_type *type)
{
    return type->kind == CQLRING_KIND_TUPLE || type->kind == CQLRING_KIND_UDT;
}

cqlring_status cqlring_cursor_init(cqlring_cursor *cursor, const cqlring_type *type,
                                   cqlring_bytes cell)
{
    if (cell.size < 0 || (cell.size == 0 && !is_record(type)))
        return CQLRING_INVALID;
    uint32_t size = (uint32_t)cell.size;
    cursor->type = type;
    cursor->at = cell.data;
    cursor->end = size == 0 ? cursor->at : cursor->at + size;
    cursor->index = 0;
    switch (type->kind) {
    case CQLRING_KIND_LIST:
    case CQLRING_KIND_SET:
    case CQLRING_KIND_MAP: {
        if (size < 4)
            return CQLRING_TYPE;
        uint32_t per_entry = type->kind == CQLRING_KIND_MAP ? 2 : 1;
        uint32_t count = cqr_load_u32(cursor->at);
        /* Each element takes four bytes at least: a count that cannot be true is refused before
           anyone reserves room for it. (A negative one is as large as a count can be.) */
        if (count > (size - 4) / 4 / per_entry)
            return CQLRING_TYPE;
        cursor->at += 4;
        cursor->left = count * per_entry;
        return CQLRING_OK;
    }
    case CQLRING_KIND_TUPLE:
    case CQLRING_KIND_UDT:
    case CQLRING_KIND_COMPOSITE: cursor->left = type->child_count; return CQLRING_OK;
    case CQLRING_KIND_VECTOR:
        if (type->cell_size > 0 ? size != type->cell_size : size < type->dimension)
            return CQLRING_TYPE;
        cursor->left = type->dimension;
        return CQLRING_OK;
    default: return CQLRING_TYPE;
    }
}

/* Type of the next element; left > 0. */
static const cqlring_type *element_type_of(const cqlring_cursor *cursor)
{
    const cqlring_type *type = cursor->type;
    if (is_record(type) || type->kind == CQLRING_KIND_COMPOSITE)
        return type->children[cursor->index];
    return type->children[type->kind == CQLRING_KIND_MAP ? cursor->index % 2 : 0];
}

/* The next element's length, taken from the front; negative for null. false: cut short. */
static bool take_length(cqlring_cursor *cursor, const cqlring_type *element, int64_t *size)
{
    size_t left = (size_t)(cursor->end - cursor->at);
    if (cursor->type->kind == CQLRING_KIND_VECTOR) {
        uint64_t bits = element->packed_size;
        if (bits == 0) {
            uint32_t taken = cqlring_vint_decode(cursor->at, left, &bits);
            if (taken == 0 || bits > INT32_MAX)
                return false;
            cursor->at += taken;
        }
        *size = (int64_t)bits;
        return true;
    }
    if (left == 0 && (is_record(cursor->type) || cursor->type->kind == CQLRING_KIND_COMPOSITE)) {
        *size = CQLRING_NULL; /* written before the type had this field */
        return true;
    }
    if (cursor->type->kind == CQLRING_KIND_COMPOSITE) {
        if (left < 2)
            return false;
        *size = cqr_load_u16(cursor->at);
        cursor->at += 2;
        return true;
    }
    if (left < 4)
        return false;
    *size = (int32_t)cqr_load_u32(cursor->at);
    cursor->at += 4;
    return true;
}

static cqlring_status cursor_fail(cqlring_cursor *cursor)
{
    cursor->left = 0;
    cursor->at = cursor->end;
    return CQLRING_TYPE;
}

cqlring_status cqlring_cursor_next(cqlring_cursor *cursor, cqlring_bytes *element,
                                   const cqlring_type **element_type)
{
    if (cursor->left == 0)
        return cursor->at == cursor->end || is_record(cursor->type) ? CQLRING_CLOSED
                                                                    : cursor_fail(cursor);
    const cqlring_type *type = element_type_of(cursor);
    int64_t size;
    if (!take_length(cursor, type, &size) || size > cursor->end - cursor->at)
        return cursor_fail(cursor);
    if (size < 0) {
        *element = (cqlring_bytes){.data = NULL, .size = CQLRING_NULL};
    } else {
        *element = (cqlring_bytes){.data = cursor->at, .size = (int32_t)size};
        cursor->at += size;
        if (cursor->type->kind == CQLRING_KIND_COMPOSITE) {
            if (cursor->at == cursor->end)
                return cursor_fail(cursor);
            cursor->at++; /* "end of component": only queries by range have it other than 0 */
        }
    }
    if (element_type != NULL)
        *element_type = type;
    cursor->index++;
    cursor->left--;
    return CQLRING_OK;
}

/* --- checking --------------------------------------------------------------------------------- */

static cqlring_status check_leaf(const cqlring_type *type, cqlring_bytes cell)
{
    if (cell.size <= 0)
        return CQLRING_OK;
    if (!cqr_cell_size_ok(type, cell.size))
        return CQLRING_TYPE;
    const uint8_t *bytes = cell.data;
    size_t size = (size_t)cell.size;
    bool good = true;
    switch (type->kind) {
    case CQLRING_KIND_ASCII: good = cqr_is_ascii(bytes, size); break;
    case CQLRING_KIND_TEXT: good = cqr_is_utf8(bytes, size); break;
    case CQLRING_KIND_DECIMAL: good = size >= 5; break;
    case CQLRING_KIND_INET: good = size == 4 || size == 16; break;
    case CQLRING_KIND_TIME:
        good = cqr_load_u64(bytes) < UINT64_C(86400000000000); /* negative ones are large */
        break;
    case CQLRING_KIND_TIMEUUID: good = bytes[6] >> 4 == 1; break;
    case CQLRING_KIND_DURATION: {
        int32_t months;
        int32_t days;
        int64_t nanoseconds;
        good = cqlring_get_duration(cell, &months, &days, &nanoseconds) == CQLRING_OK;
        break;
    }
    case CQLRING_KIND_EMPTY: good = false; break;
    default: break;
    }
    return good ? CQLRING_OK : CQLRING_TYPE;
}

/* Whether there is anything to check inside. Numbers side by side are right when their number
   is. */
static bool has_inside(const cqlring_type *type)
{
    if (type->kind != CQLRING_KIND_VECTOR)
        return type->child_count > 0;
    while (type->kind == CQLRING_KIND_VECTOR)
        type = type->children[0];
    return type->packed_size == 0 || type->kind == CQLRING_KIND_TIMEUUID;
}

cqlring_status cqlring_value_check(const cqlring_type *type, cqlring_bytes cell)
{
    cqlring_cursor stack[CQLRING_DEPTH_MAX];
    uint32_t depth = 0;
    if (cell.size == CQLRING_UNSET)
        return CQLRING_TYPE;
    for (;;) {
        cqlring_status status;
        if (cell.size > 0 && has_inside(type)) {
            assert(depth < CQLRING_DEPTH_MAX);
            status = cqlring_cursor_init(&stack[depth++], type, cell);
        } else {
            status = check_leaf(type, cell);
        }
        if (status != CQLRING_OK)
            return status;
        while (depth > 0) {
            status = cqlring_cursor_next(&stack[depth - 1], &cell, &type);
            if (status != CQLRING_CLOSED)
                break;
            depth--;
        }
        if (depth == 0)
            return CQLRING_OK;
        if (status != CQLRING_OK)
            return status;
    }
}
