/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads: checked, compared, brought into order. */
#include "tests/node/types.h"

#include <math.h>
#include <stdlib.h>

/* --- elements --------------------------------------------------------------------------------- */

void node_elements(cqlring_bytes value, struct element_cursor *cursor)
{
    node_reader_init(&cursor->reader, value.data, (uint32_t)(value.size < 0 ? 0 : value.size));
    cursor->left = value.size < 4 ? 0 : cqr_get_u32(&cursor->reader);
}

bool node_elements_next(struct element_cursor *cursor, cqlring_bytes *element)
{
    *element = SLICE_NULL;
    if (cqr_reader_left(&cursor->reader) == 0)
        return false;
    *element = cqr_get_bytes(&cursor->reader);
    return !cursor->reader.failed;
}

cqlring_bytes node_tuple_field(cqlring_bytes value, uint32_t index)
{
    struct reader reader;
    node_reader_init(&reader, value.data, (uint32_t)(value.size < 0 ? 0 : value.size));
    cqlring_bytes field = SLICE_NULL;
    for (uint32_t i = 0; i <= index; ++i) {
        if (cqr_reader_left(&reader) == 0)
            return SLICE_NULL;
        field = cqr_get_bytes(&reader);
    }
    return field;
}

bool node_vector_next(const struct node_type *type, struct reader *reader, cqlring_bytes *element)
{
    uint64_t size = node_type_fixed_size(type->subs[0]);
    if (size == 0 && !node_get_vint(reader, &size))
        return false;
    if (size > cqr_reader_left(reader))
        return false;
    *element = slice_of(cqr_get_raw(reader, (uint32_t)size), (size_t)size);
    return !reader->failed;
}

void node_put_vint(struct out *out, uint64_t value)
{
    uint32_t bits = value == 0 ? 1 : 64 - (uint32_t)__builtin_clzll(value);
    uint32_t size = bits > 56 ? 9 : (bits + 6) / 7;
    uint8_t *at = out_room(out, size);
    for (uint32_t i = size; i-- > 0;) {
        at[i] = (uint8_t)value;
        value >>= 8;
    }
    if (size > 1)
        at[0] |= (uint8_t)(size == 9 ? 0xFF : 0xFF << (9 - size));
}

bool node_get_vint(struct reader *reader, uint64_t *value)
{
    uint8_t first = cqr_get_u8(reader);
    uint32_t extra = 0;
    while (extra < 8 && (first & (0x80 >> extra)) != 0)
        ++extra;
    uint64_t result = extra >= 7 ? 0 : (uint64_t)(first & (0xFF >> (extra + 1)));
    const uint8_t *at = cqr_get_raw(reader, extra);
    for (uint32_t i = 0; at != NULL && i < extra; ++i)
        result = result << 8 | at[i];
    *value = result;
    return !reader->failed;
}

/* --- checks ----------------------------------------------------------------------------------- */

static bool is_utf8(cqlring_bytes text)
{
    const uint8_t *at = slice_data(text), *end = at + text.size;
    while (at < end) {
        uint8_t c = *at++;
        if (c < 0x80)
            continue;
        uint32_t more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
        if (c < 0xC2 || c > 0xF4 || (uint32_t)(end - at) < more)
            return false;
        uint8_t second = at[0];
        if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) ||
            (c == 0xF0 && second < 0x90) || (c == 0xF4 && second > 0x8F))
            return false;
        for (uint32_t i = 0; i < more; ++i) {
            if ((*at++ & 0xC0) != 0x80)
                return false;
        }
    }
    return true;
}

static const char *check_duration(cqlring_bytes value)
{
    struct reader reader;
    node_reader_init(&reader, value.data, (uint32_t)value.size);
    int64_t parts[3];
    for (int i = 0; i < 3; ++i) {
        uint64_t raw;
        if (!node_get_vint(&reader, &raw))
            return "Expected at least 3 bytes for a duration";
        parts[i] = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    }
    if (parts[0] != (int32_t)parts[0] || parts[1] != (int32_t)parts[1])
        return "Invalid duration: months and days must fit 32 bits";
    bool negative = parts[0] < 0 || parts[1] < 0 || parts[2] < 0;
    bool positive = parts[0] > 0 || parts[1] > 0 || parts[2] > 0;
    if (negative && positive)
        return "The duration months, days and nanoseconds must be all of the same sign";
    return cqr_reader_left(&reader) == 0 ? NULL : "Invalid duration: bytes left over";
}

static const char *check_collection(const struct node_type *type, cqlring_bytes value)
{
    if (value.size < 4)
        return "Not enough bytes to read a collection";
    struct element_cursor cursor;
    node_elements(value, &cursor);
    if ((int32_t)cursor.left < 0)
        return "Unexpected negative collection size";
    uint64_t items = (uint64_t)cursor.left * (type->kind == TYPE_MAP ? 2 : 1);
    if (items * 4 > cqr_reader_left(&cursor.reader))
        return "Not enough bytes to read a collection";
    for (uint64_t i = 0; i < items; ++i) {
        cqlring_bytes element;
        if (!node_elements_next(&cursor, &element))
            return "Not enough bytes to read a collection";
        if (element.size < 0)
            return "null is not supported inside collections";
        const char *why = node_value_check(type->subs[type->kind == TYPE_MAP ? i & 1 : 0], element);
        if (why != NULL)
            return why;
    }
    return cqr_reader_left(&cursor.reader) == 0
               ? NULL
               : "Unexpected extraneous bytes after a collection value";
}

static const char *check_fields(const struct node_type *type, cqlring_bytes value)
{
    struct reader reader;
    node_reader_init(&reader, value.data, (uint32_t)value.size);
    uint16_t count = type->kind == TYPE_UDT ? type->udt->count : type->count;
    for (uint16_t i = 0; i < count && cqr_reader_left(&reader) > 0; ++i) {
        cqlring_bytes field = cqr_get_bytes(&reader);
        if (reader.failed)
            return "Not enough bytes to read a tuple or UDT component";
        const char *why = field.size < 0
                              ? NULL
                              : node_value_check(type->kind == TYPE_UDT ? type->udt->types[i]
                                                                        : type->subs[i],
                                                 field);
        if (why != NULL)
            return why;
    }
    return cqr_reader_left(&reader) == 0 ? NULL
                                         : "Invalid remaining data after end of tuple or UDT value";
}

static const char *check_vector(const struct node_type *type, cqlring_bytes value)
{
    struct reader reader;
    node_reader_init(&reader, value.data, (uint32_t)value.size);
    for (uint32_t i = 0; i < type->dimension; ++i) {
        cqlring_bytes element;
        if (!node_vector_next(type, &reader, &element))
            return "Not enough bytes to read a vector";
        const char *why = node_value_check(type->subs[0], element);
        if (why != NULL)
            return why;
    }
    return cqr_reader_left(&reader) == 0 ? NULL : "Unexpected extraneous bytes after vector value";
}

const char *node_value_check(const struct node_type *type, cqlring_bytes value)
{
    int32_t size = value.size;
    bool empty = size == 0;
    switch (type->kind) {
    case TYPE_CUSTOM:
    case TYPE_BLOB: return NULL;
    case TYPE_ASCII:
        for (int32_t i = 0; i < size; ++i) {
            if (slice_data(value)[i] >= 0x80)
                return "Invalid byte for ascii";
        }
        return NULL;
    case TYPE_TEXT: return is_utf8(value) ? NULL : "String didn't validate.";
    case TYPE_BIGINT:
    case TYPE_DOUBLE:
    case TYPE_TIMESTAMP: return empty || size == 8 ? NULL : "Expected 8 or 0 byte value";
    case TYPE_COUNTER: return size == 8 ? NULL : "Expected 8 byte counter";
    case TYPE_INT:
    case TYPE_FLOAT: return empty || size == 4 ? NULL : "Expected 4 or 0 byte value";
    case TYPE_BOOLEAN: return empty || size == 1 ? NULL : "Expected 1 or 0 byte value";
    case TYPE_DECIMAL:
        return empty || size >= 5 ? NULL : "Expected 0 or at least 5 bytes for a decimal";
    case TYPE_UUID: return empty || size == 16 ? NULL : "UUID should be 16 or 0 bytes";
    case TYPE_TIMEUUID:
        if (!empty && size != 16)
            return "TimeUUID should be 16 or 0 bytes";
        return empty || (slice_data(value)[6] & 0xF0) == 0x10
                   ? NULL
                   : "Invalid version for TimeUUID type.";
    case TYPE_VARINT: return NULL;
    case TYPE_INET:
        return empty || size == 4 || size == 16 ? NULL
                                                : "Expected 4, 16 or 0 bytes for an inet address";
    case TYPE_DATE: return size == 4 ? NULL : "Expected 4 byte long for date";
    case TYPE_TIME:
        if (size != 8)
            return "Expected 8 byte long for time";
        return cqr_load_u64(slice_data(value)) < 86400000000000ULL
                   ? NULL
                   : "Input long out of bounds for time";
    case TYPE_SMALLINT: return size == 2 ? NULL : "Expected 2 byte value for a smallint";
    case TYPE_TINYINT: return size == 1 ? NULL : "Expected 1 byte for a tinyint";
    case TYPE_DURATION: return check_duration(value);
    case TYPE_LIST:
    case TYPE_SET:
    case TYPE_MAP: return check_collection(type, value);
    case TYPE_UDT:
    case TYPE_TUPLE: return check_fields(type, value);
    case TYPE_VECTOR: return check_vector(type, value);
    }
    return NULL;
}

/* --- order ------------------------------------------------------------------------------------ */

static int compare_bytes(cqlring_bytes a, cqlring_bytes b)
{
    int32_t size = a.size < b.size ? a.size : b.size;
    int order = size > 0 ? memcmp(a.data, b.data, (size_t)size) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int64_t load_signed(cqlring_bytes value)
{
    int64_t result = value.size > 0 && (slice_data(value)[0] & 0x80) ? -1 : 0;
    for (int32_t i = 0; i < value.size; ++i)
        result = (int64_t)((uint64_t)result << 8 | slice_data(value)[i]);
    return result;
}

static int compare_double(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    if (a == b)
        return (signbit(b) != 0) - (signbit(a) != 0);
    return a < b ? -1 : 1;
}

static double load_real(cqlring_bytes value)
{
    if (value.size == 8) {
        uint64_t raw = cqr_load_u64(slice_data(value));
        double result;
        memcpy(&result, &raw, 8);
        return result;
    }
    uint32_t raw = cqr_load_u32(slice_data(value));
    float result;
    memcpy(&result, &raw, 4);
    return (double)result;
}

/* Padding off: the shortest form of the same number. */
static cqlring_bytes varint_trim(cqlring_bytes value)
{
    const uint8_t *at = slice_data(value);
    int32_t size = value.size;
    while (size > 1 && ((at[0] == 0 && at[1] < 0x80) || (at[0] == 0xFF && at[1] >= 0x80))) {
        ++at;
        --size;
    }
    return slice_of(at, (size_t)size);
}

static int compare_varint(cqlring_bytes a, cqlring_bytes b)
{
    a = varint_trim(a);
    b = varint_trim(b);
    bool negative_a = slice_data(a)[0] >= 0x80, negative_b = slice_data(b)[0] >= 0x80;
    if (negative_a != negative_b)
        return negative_a ? -1 : 1;
    if (a.size != b.size)
        return (a.size > b.size) != negative_a ? 1 : -1;
    return memcmp(a.data, b.data, (size_t)a.size);
}

/* A decimal as sign, digits and the exponent of its first digit; digits without trailing zeros. */
struct digits {
    int sign;
    int64_t exponent;
    uint32_t count;
    uint8_t *digit;
};

static void decimal_digits(cqlring_bytes value, struct digits *out)
{
    cqlring_bytes number = varint_trim(slice_of(slice_data(value) + 4, (size_t)value.size - 4));
    bool negative = slice_data(number)[0] >= 0x80;
    size_t size = (size_t)number.size;
    uint8_t *magnitude = node_alloc(size);
    uint32_t carry = negative ? 1 : 0;
    for (size_t i = size; i-- > 0;) {
        uint32_t byte = slice_data(number)[i];
        byte = negative ? (uint32_t)((uint8_t)~byte) + carry : byte;
        magnitude[i] = (uint8_t)byte;
        carry = negative ? byte >> 8 : 0;
    }
    /* Repeated division by 10; quadratic, and values of clustering columns are short. */
    uint8_t *reversed = node_alloc(size * 3 + 1);
    uint32_t count = 0;
    for (size_t from = 0;;) {
        while (from < size && magnitude[from] == 0)
            ++from;
        if (from == size)
            break;
        uint32_t rest = 0;
        for (size_t i = from; i < size; ++i) {
            rest = rest << 8 | magnitude[i];
            magnitude[i] = (uint8_t)(rest / 10);
            rest %= 10;
        }
        reversed[count++] = (uint8_t)rest;
    }
    node_free(magnitude);
    out->sign = count == 0 ? 0 : negative ? -1 : 1;
    out->exponent = (int64_t)count - (int32_t)cqr_load_u32(slice_data(value));
    out->digit = node_alloc(count);
    for (uint32_t i = 0; i < count; ++i)
        out->digit[i] = reversed[count - 1 - i];
    while (count > 0 && out->digit[count - 1] == 0)
        --count;
    out->count = count;
    node_free(reversed);
}

static int compare_decimal(cqlring_bytes a, cqlring_bytes b)
{
    struct digits x, y;
    decimal_digits(a, &x);
    decimal_digits(b, &y);
    int order;
    if (x.sign != y.sign) {
        order = x.sign < y.sign ? -1 : 1;
    } else if (x.sign == 0) {
        order = 0;
    } else if (x.exponent != y.exponent) {
        order = (x.exponent < y.exponent ? -1 : 1) * x.sign;
    } else {
        order = compare_bytes(slice_of(x.digit, x.count), slice_of(y.digit, y.count)) * x.sign;
    }
    node_free(x.digit);
    node_free(y.digit);
    return order;
}

static uint64_t uuid_time(const uint8_t *at)
{
    return (uint64_t)(cqr_load_u16(at + 6) & 0x0FFF) << 48 | (uint64_t)cqr_load_u16(at + 4) << 32 |
           cqr_load_u32(at);
}

static int compare_timeuuid(cqlring_bytes a, cqlring_bytes b)
{
    uint64_t x = uuid_time(slice_data(a)), y = uuid_time(slice_data(b));
    if (x != y)
        return x < y ? -1 : 1;
    for (int i = 8; i < 16; ++i) {
        int8_t p = (int8_t)slice_data(a)[i], q = (int8_t)slice_data(b)[i];
        if (p != q)
            return p < q ? -1 : 1;
    }
    return 0;
}

static int compare_uuid(cqlring_bytes a, cqlring_bytes b)
{
    int x = slice_data(a)[6] >> 4, y = slice_data(b)[6] >> 4;
    if (x != y)
        return x < y ? -1 : 1;
    if (x == 1) {
        uint64_t p = uuid_time(slice_data(a)), q = uuid_time(slice_data(b));
        if (p != q)
            return p < q ? -1 : 1;
    }
    return compare_bytes(a, b);
}

static int compare_parts(const struct node_type *type, cqlring_bytes a, cqlring_bytes b)
{
    if (type->kind == TYPE_TUPLE || type->kind == TYPE_UDT) {
        uint16_t count = type->kind == TYPE_UDT ? type->udt->count : type->count;
        for (uint16_t i = 0; i < count; ++i) {
            cqlring_bytes x = node_tuple_field(a, i), y = node_tuple_field(b, i);
            int order = x.size < 0 || y.size < 0
                            ? (x.size >= 0) - (y.size >= 0)
                            : node_value_compare(type->kind == TYPE_UDT ? type->udt->types[i]
                                                                        : type->subs[i],
                                                 x, y);
            if (order != 0)
                return order;
        }
        return 0;
    }
    if (type->kind == TYPE_VECTOR) {
        struct reader p, q;
        node_reader_init(&p, a.data, (uint32_t)a.size);
        node_reader_init(&q, b.data, (uint32_t)b.size);
        cqlring_bytes x, y;
        for (uint32_t i = 0; i < type->dimension && node_vector_next(type, &p, &x) &&
                             node_vector_next(type, &q, &y);
             ++i) {
            int order = node_value_compare(type->subs[0], x, y);
            if (order != 0)
                return order;
        }
        return 0;
    }
    struct element_cursor p, q;
    node_elements(a, &p);
    node_elements(b, &q);
    cqlring_bytes x, y;
    for (uint64_t i = 0;; ++i) {
        bool more_x = node_elements_next(&p, &x), more_y = node_elements_next(&q, &y);
        if (!more_x || !more_y)
            return more_x - more_y;
        int order = node_value_compare(type->subs[type->kind == TYPE_MAP ? i & 1 : 0], x, y);
        if (order != 0)
            return order;
    }
}

int node_value_compare(const struct node_type *type, cqlring_bytes a, cqlring_bytes b)
{
    if (a.size <= 0 || b.size <= 0)
        return (a.size > 0) - (b.size > 0);
    switch (type->kind) {
    case TYPE_BIGINT:
    case TYPE_COUNTER:
    case TYPE_INT:
    case TYPE_TIMESTAMP:
    case TYPE_TIME:
    case TYPE_SMALLINT:
    case TYPE_TINYINT: {
        int64_t x = load_signed(a), y = load_signed(b);
        return (x > y) - (x < y);
    }
    case TYPE_BOOLEAN: return (slice_data(a)[0] != 0) - (slice_data(b)[0] != 0);
    case TYPE_DOUBLE:
    case TYPE_FLOAT: return compare_double(load_real(a), load_real(b));
    case TYPE_DECIMAL: return compare_decimal(a, b);
    case TYPE_VARINT: return compare_varint(a, b);
    case TYPE_UUID: return compare_uuid(a, b);
    case TYPE_TIMEUUID: return compare_timeuuid(a, b);
    case TYPE_LIST:
    case TYPE_SET:
    case TYPE_MAP:
    case TYPE_UDT:
    case TYPE_TUPLE:
    case TYPE_VECTOR: return compare_parts(type, a, b);
    default: return compare_bytes(a, b);
    }
}

/* --- normal form ------------------------------------------------------------------------------ */

static bool holds_sorted(const struct node_type *type)
{
    if (type->kind == TYPE_SET || type->kind == TYPE_MAP)
        return true;
    if (type->kind == TYPE_UDT) {
        for (uint16_t i = 0; i < type->udt->count; ++i) {
            if (holds_sorted(type->udt->types[i]))
                return true;
        }
    }
    for (uint16_t i = 0; i < type->count; ++i) {
        if (holds_sorted(type->subs[i]))
            return true;
    }
    return false;
}

struct item {
    const struct node_type *type;
    cqlring_bytes key, value;
    uint32_t index;
};

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    int order = node_value_compare(a->type, a->key, b->key);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static cqlring_bytes normalise_collection(const struct node_type *type, cqlring_bytes value,
                                          struct node_arena *arena)
{
    struct element_cursor cursor;
    node_elements(value, &cursor);
    uint32_t count = cursor.left;
    bool map = type->kind == TYPE_MAP;
    struct item *items = node_alloc(count * sizeof *items);
    for (uint32_t i = 0; i < count; ++i) {
        items[i] = (struct item){.type = type->subs[0], .value = SLICE_NULL, .index = i};
        (void)node_elements_next(&cursor, &items[i].key);
        items[i].key = node_value_normalise(type->subs[0], items[i].key, arena);
        if (map) {
            (void)node_elements_next(&cursor, &items[i].value);
            items[i].value = node_value_normalise(type->subs[1], items[i].value, arena);
        }
    }
    uint32_t kept = count;
    if (type->kind != TYPE_LIST && count > 1) {
        qsort(items, count, sizeof *items, compare_items);
        kept = 1;
        for (uint32_t i = 1; i < count; ++i) {
            if (node_value_compare(type->subs[0], items[kept - 1].key, items[i].key) == 0)
                items[kept - 1].value = items[i].value; /* the last one wins */
            else
                items[kept++] = items[i];
        }
    }
    struct out out = {0};
    out_u32(&out, kept);
    for (uint32_t i = 0; i < kept; ++i) {
        out_bytes(&out, items[i].key);
        if (map)
            out_bytes(&out, items[i].value);
    }
    node_free(items);
    cqlring_bytes result = node_arena_copy(arena, out_view(&out, 0));
    node_out_fini(&out);
    return result;
}

cqlring_bytes node_value_normalise(const struct node_type *type, cqlring_bytes value,
                                   struct node_arena *arena)
{
    if (value.size <= 0 || !holds_sorted(type))
        return value;
    if (type->kind == TYPE_LIST || type->kind == TYPE_SET || type->kind == TYPE_MAP)
        return normalise_collection(type, value, arena);
    struct out out = {0};
    if (type->kind == TYPE_VECTOR) {
        struct reader reader;
        node_reader_init(&reader, value.data, (uint32_t)value.size);
        cqlring_bytes element;
        for (uint32_t i = 0; i < type->dimension && node_vector_next(type, &reader, &element);
             ++i) {
            element = node_value_normalise(type->subs[0], element, arena);
            node_put_vint(&out, (uint64_t)element.size);
            out_slice(&out, element);
        }
    } else {
        struct reader reader;
        node_reader_init(&reader, value.data, (uint32_t)value.size);
        for (uint16_t i = 0; cqr_reader_left(&reader) > 0; ++i) {
            cqlring_bytes field = cqr_get_bytes(&reader);
            if (field.size >= 0)
                field = node_value_normalise(
                    type->kind == TYPE_UDT ? type->udt->types[i] : type->subs[i], field, arena);
            out_bytes(&out, field);
        }
    }
    cqlring_bytes result = node_arena_copy(arena, out_view(&out, 0));
    node_out_fini(&out);
    return result;
}
