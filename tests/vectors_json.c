/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/vectors_json.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/type.h"

/* --- types ------------------------------------------------------------------------------------ */

struct udts {
    uint32_t count;
    const cqlring_type *types[32];
};

static const cqlring_type *resolve_udt(cqlring_bytes keyspace, cqlring_bytes name, void *context)
{
    const struct udts *udts = context;
    const char *text = name.data;
    if (keyspace.size > 0 || name.size < 2 || text[0] != 'u')
        return NULL;
    unsigned long index = strtoul(text + 1, NULL, 10);
    return index < udts->count ? udts->types[index] : NULL;
}

/* One "ks.name{f:type,…}" whose types hold no "udt:" any more. */
static cqlring_status add_udt(struct vector_row *row, struct udts *udts, char *text)
{
    struct type_builder builder;
    cqr_builder_init(&builder, &row->arena);
    char *dot = strchr(text, '.');
    char *brace = strchr(text, '{');
    if (dot == NULL || brace == NULL || dot > brace || udts->count == 32)
        return CQLRING_TYPE;
    *dot = *brace = '\0';
    cqlring_status status = cqr_builder_open_udt(&builder, cqlring_text(text),
                                                 cqlring_text(dot + 1), TYPE_WANTED_ANY);
    char *field = brace + 1;
    while (status == CQLRING_OK && *field != '\0') {
        char *colon = strchr(field, ':');
        if (colon == NULL)
            return CQLRING_TYPE;
        /* The type ends at the next comma that is inside no bracket. */
        char *end = colon + 1;
        for (int open = 0; *end != '\0' && (open > 0 || *end != ','); end++)
            open += *end == '<' ? 1 : *end == '>' ? -1 : 0;
        char *next = *end == '\0' ? end : end + 1;
        *colon = *end = '\0';
        const cqlring_type *type = NULL;
        status = cqr_builder_field(&builder, cqlring_text(field));
        if (status == CQLRING_OK)
            status = cqr_type_from_cql(&row->arena, cqlring_text(colon + 1), resolve_udt, udts,
                                       &type);
        if (status == CQLRING_OK)
            status = cqr_builder_add(&builder, type);
        field = next;
    }
    if (status == CQLRING_OK)
        status = cqr_builder_close(&builder);
    udts->types[udts->count] = builder.root;
    return status;
}

cqlring_status vector_type_from_text(struct vector_row *row, const char *text,
                                     const cqlring_type **type)
{
    /* Innermost first (the last "udt:" holds no other), each is defined and replaced by a short
       name. */
    struct udts udts = {0};
    char *plain = vector_room(row, strlen(text) + 1);
    memcpy(plain, text, strlen(text) + 1);
    for (;;) {
        char *start = NULL;
        for (char *found = strstr(plain, "udt:"); found != NULL; found = strstr(found + 1, "udt:"))
            start = found;
        if (start == NULL)
            return cqr_type_from_cql(&row->arena, cqlring_text(plain), resolve_udt, &udts, type);
        char *end = strchr(start, '}');
        if (end == NULL)
            return CQLRING_TYPE;
        *end = '\0';
        cqlring_status status = add_udt(row, &udts, start + 4);
        if (status != CQLRING_OK)
            return status;
        size_t size = strlen(end + 1) + 1;
        char name[16];
        int name_size = snprintf(name, sizeof name, "u%u", udts.count++);
        memmove(start + name_size, end + 1, size);
        memcpy(start, name, (size_t)name_size);
    }
}

json_t *vector_type_json(const struct cqlring_type *type)
{
    json_t *json;
    json_t *children = json_array();
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(type, &about);
    for (uint32_t i = 0; i < cqlring_type_child_count(type); i++)
        json_array_append_new(children, vector_type_json(cqlring_type_child(type, i)));
    json_t *first = json_incref(json_array_get(children, 0));
    switch (cqlring_type_kind(type)) {
    case CQLRING_KIND_LIST: json = json_pack("{s:O}", "list", first); break;
    case CQLRING_KIND_SET: json = json_pack("{s:O}", "set", first); break;
    case CQLRING_KIND_MAP: json = json_pack("{s:O}", "map", children); break;
    case CQLRING_KIND_TUPLE: json = json_pack("{s:O}", "tuple", children); break;
    case CQLRING_KIND_COMPOSITE: json = json_pack("{s:O}", "composite", children); break;
    case CQLRING_KIND_VECTOR:
        json = json_pack("{s:O,s:I}", "vector", first, "dim", (json_int_t)about.dimension);
        break;
    case CQLRING_KIND_UDT: {
        json_t *fields = json_array();
        for (uint32_t i = 0; i < cqlring_type_child_count(type); i++) {
            cqlring_bytes name = cqlring_type_field_name(type, i);
            json_array_append_new(fields, json_pack("[s%O]", name.data, (size_t)name.size,
                                                    json_array_get(children, i)));
        }
        json = json_pack("{s:[s%s%],s:o}", "udt", about.keyspace.data, (size_t)about.keyspace.size,
                         about.name.data, (size_t)about.name.size, "fields", fields);
        break;
    }
    case CQLRING_KIND_CUSTOM:
        json = json_pack("{s:s%}", "custom", about.name.data, (size_t)about.name.size);
        break;
    case CQLRING_KIND_EMPTY:
        json = json_pack("{s:s}", "custom", "org.apache.cassandra.db.marshal.EmptyType");
        break;
    default: {
        char name[32];
        cqlring_type plain = *type;
        plain.flags = 0;
        cqlring_type_format(&plain, name, sizeof name);
        json = json_string(name);
        break;
    }
    }
    json_decref(first);
    json_decref(children);
    /* As written: what is frozen only for being inside something frozen is not marked. */
    if ((type->flags & CQLRING_TYPE_FROZEN) != 0)
        json = json_pack("{s:o}", "frozen", json);
    if ((type->flags & CQLRING_TYPE_REVERSED) != 0)
        json = json_pack("{s:o}", "reversed", json);
    return json;
}

/* --- integers of any length ------------------------------------------------------------------- */

/* Decimal text to big-endian two's complement. */
static cqlring_bytes integer_of_text(struct vector_row *row, const char *text)
{
    bool negative = *text == '-';
    text += negative;
    size_t size = strlen(text) / 2 + 2; /* less than half a byte a digit, and a sign */
    uint8_t *bytes = vector_room(row, size);
    for (; *text != '\0'; text++) {
        uint32_t carry = (uint32_t)(*text - '0');
        for (size_t i = size; i-- > 0;) {
            carry += bytes[i] * 10u;
            bytes[i] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    uint32_t carry = 1;
    for (size_t i = size; negative && i-- > 0;) {
        carry += (uint8_t)~bytes[i];
        bytes[i] = (uint8_t)carry;
        carry >>= 8;
    }
    return (cqlring_bytes){.data = bytes, .size = (int32_t)size};
}

static const char *text_of_integer(struct vector_row *row, cqlring_bytes integer)
{
    size_t size = (size_t)integer.size;
    uint8_t *bytes = vector_room(row, size);
    memcpy(bytes, integer.data, size);
    bool negative = bytes[0] >= 0x80;
    uint32_t carry = 1;
    for (size_t i = size; negative && i-- > 0;) {
        carry += (uint8_t)~bytes[i];
        bytes[i] = (uint8_t)carry;
        carry >>= 8;
    }
    size_t room = size * 5 / 2 + 4;
    char *text = vector_room(row, room);
    char *at = text + room - 1;
    bool more;
    do {
        uint32_t rest = 0;
        more = false;
        for (size_t i = 0; i < size; i++) {
            rest = rest << 8 | bytes[i];
            bytes[i] = (uint8_t)(rest / 10);
            more |= bytes[i] != 0;
            rest %= 10;
        }
        *--at = (char)('0' + rest);
    } while (more);
    if (negative)
        *--at = '-';
    return at;
}

/* --- floating point --------------------------------------------------------------------------- */

/* The shortest text that reads back as the same double, laid out as Python does. */
static json_t *json_of_double(double value)
{
    if (isnan(value))
        return json_string("NaN");
    if (isinf(value))
        return json_string(value < 0 ? "-Infinity" : "Infinity");
    char text[40];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*e", digits, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        return json_string(text);
    int behind = digits - exponent;
    snprintf(text, sizeof text, "%.*f", behind > 1 ? behind : 1, value);
    return json_string(text);
}

/* --- encoding --------------------------------------------------------------------------------- */

static void put_json(struct vector_row *row, cqlring_writer *writer, const cqlring_type *type,
                     const json_t *value)
{
    if (json_is_null(value)) {
        cqlring_put_bytes(writer, (cqlring_bytes){.size = CQLRING_NULL});
        return;
    }
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(type, &about);
    switch (cqlring_type_kind(type)) {
    case CQLRING_KIND_BOOLEAN: cqlring_put_int(writer, json_is_true(value), 1); return;
    case CQLRING_KIND_TINYINT:
    case CQLRING_KIND_SMALLINT:
    case CQLRING_KIND_INT:
        cqlring_put_int(writer, json_integer_value(value), about.cell_size);
        return;
    case CQLRING_KIND_BIGINT:
    case CQLRING_KIND_COUNTER:
    case CQLRING_KIND_TIMESTAMP:
    case CQLRING_KIND_TIME: cqlring_put_int(writer, strtoll(text, NULL, 10), 8); return;
    case CQLRING_KIND_DATE:
        cqlring_put_int(writer, (int32_t)((uint32_t)json_integer_value(value) ^ 0x80000000), 4);
        return;
    case CQLRING_KIND_FLOAT: cqlring_put_float(writer, (float)strtod(text, NULL)); return;
    case CQLRING_KIND_DOUBLE: cqlring_put_double(writer, strtod(text, NULL)); return;
    case CQLRING_KIND_VARINT: cqlring_put_varint(writer, integer_of_text(row, text)); return;
    case CQLRING_KIND_DECIMAL:
        cqlring_put_decimal(
            writer, (int32_t)json_integer_value(json_object_get(value, "scale")),
            integer_of_text(row, json_string_value(json_object_get(value, "unscaled"))));
        return;
    case CQLRING_KIND_DURATION:
        cqlring_put_duration(writer, (int32_t)json_integer_value(json_object_get(value, "months")),
                             (int32_t)json_integer_value(json_object_get(value, "days")),
                             strtoll(json_string_value(json_object_get(value, "nanos")), NULL, 10));
        return;
    case CQLRING_KIND_UUID:
    case CQLRING_KIND_TIMEUUID: {
        uint8_t uuid[16];
        vector_check_status(row, "uuid", cqlring_uuid_parse(cqlring_text(text), uuid), CQLRING_OK);
        cqlring_put_bytes(writer, (cqlring_bytes){.data = uuid, .size = 16});
        return;
    }
    case CQLRING_KIND_INET: {
        uint8_t address[16];
        int size = strchr(text, ':') == NULL ? 4 : 16;
        vector_check_int(row, "inet", inet_pton(size == 4 ? AF_INET : AF_INET6, text, address), 1);
        cqlring_put_bytes(writer, (cqlring_bytes){.data = address, .size = size});
        return;
    }
    case CQLRING_KIND_BLOB:
    case CQLRING_KIND_CUSTOM: cqlring_put_bytes(writer, vector_hex_of(row, text)); return;
    case CQLRING_KIND_TEXT:
    case CQLRING_KIND_ASCII:
        cqlring_put_bytes(
            writer, (cqlring_bytes){.data = text, .size = (int32_t)json_string_length(value)});
        return;
    default: break;
    }
    cqlring_put_begin(writer, type);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *element = json_array_get(value, i);
        if (cqlring_type_kind(type) == CQLRING_KIND_MAP) {
            put_json(row, writer, cqlring_type_child(type, 0), json_array_get(element, 0));
            put_json(row, writer, cqlring_type_child(type, 1), json_array_get(element, 1));
        } else {
            const cqlring_type *child = cqlring_type_child(
                type, cqlring_type_child_count(type) == 1 ? 0 : (uint32_t)i);
            put_json(row, writer, child, element);
        }
    }
    cqlring_put_end(writer);
}

cqlring_status vector_encode(struct vector_row *row, const cqlring_type *type, const json_t *value,
                             uint32_t capacity, cqlring_bytes *cell, uint64_t *needed)
{
    cqlring_writer writer;
    cqlring_writer_init(&writer, vector_room(row, capacity), capacity);
    put_json(row, &writer, type, value);
    return cqlring_writer_take(&writer, cell, needed);
}

/* --- decoding --------------------------------------------------------------------------------- */

static json_t *json_of_int(int64_t value, bool as_text)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return as_text ? json_string(text) : json_integer(value);
}

static json_t *decode_nested(struct vector_row *row, const cqlring_type *type, cqlring_bytes cell)
{
    json_t *array = json_array();
    cqlring_cursor cursor;
    cqlring_status status = cqlring_cursor_init(&cursor, type, cell);
    bool is_map = cqlring_type_kind(type) == CQLRING_KIND_MAP;
    json_t *pair = NULL;
    while (status == CQLRING_OK) {
        cqlring_bytes element;
        const cqlring_type *element_type;
        status = cqlring_cursor_next(&cursor, &element, &element_type);
        if (status != CQLRING_OK)
            break;
        json_t *json = vector_decode(row, element_type, element);
        if (!is_map) {
            json_array_append_new(array, json);
        } else if (pair == NULL) {
            pair = json_pack("[o]", json);
        } else {
            json_array_append_new(pair, json);
            json_array_append_new(array, pair);
            pair = NULL;
        }
    }
    vector_check_status(row, "cursor", status, CQLRING_CLOSED);
    return array;
}

json_t *vector_decode(struct vector_row *row, const cqlring_type *type, cqlring_bytes cell)
{
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(type, &about);
    cqlring_kind kind = cqlring_type_kind(type);
    if (cell.size < 0)
        return json_null();
    if (kind == CQLRING_KIND_TEXT || kind == CQLRING_KIND_ASCII)
        return json_stringn(cell.data, (size_t)cell.size);
    if (kind == CQLRING_KIND_BLOB || kind == CQLRING_KIND_CUSTOM)
        return json_string(vector_hex_text(row, cell));
    if (cell.size == 0 && kind != CQLRING_KIND_TUPLE && kind != CQLRING_KIND_UDT)
        return json_pack("{s:b}", "empty", 1);
    cqlring_status status = CQLRING_OK;
    json_t *json = NULL;
    switch (kind) {
    case CQLRING_KIND_BOOLEAN:
    case CQLRING_KIND_TINYINT:
    case CQLRING_KIND_SMALLINT:
    case CQLRING_KIND_INT:
    case CQLRING_KIND_DATE:
    case CQLRING_KIND_BIGINT:
    case CQLRING_KIND_COUNTER:
    case CQLRING_KIND_TIMESTAMP:
    case CQLRING_KIND_TIME: {
        int64_t value = 0;
        status = cqlring_get_int(cell, about.cell_size, &value);
        if (kind == CQLRING_KIND_DATE)
            value = (int32_t)((uint32_t)value ^ 0x80000000);
        json = kind == CQLRING_KIND_BOOLEAN ? json_boolean(value != 0)
                                            : json_of_int(value, about.cell_size == 8);
        break;
    }
    case CQLRING_KIND_FLOAT: {
        float value = 0;
        status = cqlring_get_float(cell, &value);
        json = json_of_double((double)value);
        break;
    }
    case CQLRING_KIND_DOUBLE: {
        double value = 0;
        status = cqlring_get_double(cell, &value);
        json = json_of_double(value);
        break;
    }
    case CQLRING_KIND_VARINT: json = json_string(text_of_integer(row, cell)); break;
    case CQLRING_KIND_DECIMAL: {
        int32_t scale = 0;
        cqlring_bytes unscaled = {.data = "", .size = 1};
        status = cqlring_get_decimal(cell, &scale, &unscaled);
        json = json_pack("{s:s,s:i}", "unscaled", text_of_integer(row, unscaled), "scale", scale);
        break;
    }
    case CQLRING_KIND_DURATION: {
        int32_t months = 0;
        int32_t days = 0;
        int64_t nanoseconds = 0;
        status = cqlring_get_duration(cell, &months, &days, &nanoseconds);
        json = json_pack("{s:i,s:i,s:o}", "months", months, "days", days, "nanos",
                         json_of_int(nanoseconds, true));
        break;
    }
    case CQLRING_KIND_UUID:
    case CQLRING_KIND_TIMEUUID: {
        char text[37] = "";
        status = cell.size == 16 ? CQLRING_OK : CQLRING_TYPE;
        if (status == CQLRING_OK)
            cqlring_uuid_format(cell.data, text);
        json = json_string(text);
        break;
    }
    case CQLRING_KIND_INET: {
        char text[INET6_ADDRSTRLEN] = "";
        status = cell.size == 4 || cell.size == 16 ? CQLRING_OK : CQLRING_TYPE;
        if (status == CQLRING_OK)
            inet_ntop(cell.size == 4 ? AF_INET : AF_INET6, cell.data, text, sizeof text);
        json = json_string(text);
        break;
    }
    default: return decode_nested(row, type, cell);
    }
    vector_check_status(row, "get", status, CQLRING_OK);
    return json;
}
