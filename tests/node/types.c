/* SPDX-License-Identifier: Apache-2.0 */
/* Type descriptors: names, printing, the wire's option. */
#include "tests/node/types.h"

#define SCALAR(kind_)   \
    {                   \
        .kind = (kind_) \
    }
const struct node_type node_type_int = SCALAR(TYPE_INT);
const struct node_type node_type_bigint = SCALAR(TYPE_BIGINT);
const struct node_type node_type_text = SCALAR(TYPE_TEXT);
const struct node_type node_type_boolean = SCALAR(TYPE_BOOLEAN);
const struct node_type node_type_blob = SCALAR(TYPE_BLOB);
const struct node_type node_type_uuid = SCALAR(TYPE_UUID);
const struct node_type node_type_timeuuid = SCALAR(TYPE_TIMEUUID);
const struct node_type node_type_timestamp = SCALAR(TYPE_TIMESTAMP);
const struct node_type node_type_double = SCALAR(TYPE_DOUBLE);
const struct node_type node_type_counter = SCALAR(TYPE_COUNTER);
static const struct node_type type_ascii = SCALAR(TYPE_ASCII);
static const struct node_type type_decimal = SCALAR(TYPE_DECIMAL);
static const struct node_type type_float = SCALAR(TYPE_FLOAT);
static const struct node_type type_varint = SCALAR(TYPE_VARINT);
static const struct node_type type_inet = SCALAR(TYPE_INET);
static const struct node_type type_date = SCALAR(TYPE_DATE);
static const struct node_type type_time = SCALAR(TYPE_TIME);
static const struct node_type type_smallint = SCALAR(TYPE_SMALLINT);
static const struct node_type type_tinyint = SCALAR(TYPE_TINYINT);
static const struct node_type type_duration = SCALAR(TYPE_DURATION);

static const struct {
    const char *name;
    const char *class_name;
    const struct node_type *type;
} natives[] = {
    {"ascii", "AsciiType", &type_ascii},
    {"bigint", "LongType", &node_type_bigint},
    {"blob", "BytesType", &node_type_blob},
    {"boolean", "BooleanType", &node_type_boolean},
    {"counter", "CounterColumnType", &node_type_counter},
    {"date", "SimpleDateType", &type_date},
    {"decimal", "DecimalType", &type_decimal},
    {"double", "DoubleType", &node_type_double},
    {"duration", "DurationType", &type_duration},
    {"float", "FloatType", &type_float},
    {"inet", "InetAddressType", &type_inet},
    {"int", "Int32Type", &node_type_int},
    {"smallint", "ShortType", &type_smallint},
    {"text", "UTF8Type", &node_type_text},
    {"time", "TimeType", &type_time},
    {"timestamp", "TimestampType", &node_type_timestamp},
    {"timeuuid", "TimeUUIDType", &node_type_timeuuid},
    {"tinyint", "ByteType", &type_tinyint},
    {"uuid", "UUIDType", &node_type_uuid},
    {"varint", "IntegerType", &type_varint},
};
enum { NATIVE_COUNT = sizeof natives / sizeof natives[0] };

const struct node_type *node_type_native(cqlring_bytes name)
{
    if (slice_is(name, "varchar"))
        return &node_type_text;
    for (int i = 0; i < NATIVE_COUNT; ++i) {
        if (slice_is(name, natives[i].name))
            return natives[i].type;
    }
    return NULL;
}

const struct node_type *node_type_scalar(enum type_kind kind)
{
    for (int i = 0; i < NATIVE_COUNT; ++i) {
        if (natives[i].type->kind == kind)
            return natives[i].type;
    }
    return NULL;
}

bool node_type_is_multi(const struct node_type *type)
{
    return !type->frozen &&
           (type->kind == TYPE_LIST || type->kind == TYPE_SET || type->kind == TYPE_MAP);
}

bool node_type_equal(const struct node_type *a, const struct node_type *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->count != b->count || a->dimension != b->dimension ||
        a->udt != b->udt || a->frozen != b->frozen ||
        (a->kind == TYPE_CUSTOM && !slice_equal(a->class_name, b->class_name)))
        return false;
    for (uint16_t i = 0; i < a->count; ++i) {
        if (!node_type_equal(a->subs[i], b->subs[i]))
            return false;
    }
    return true;
}

bool node_type_uses(const struct node_type *type, const struct node_udt *udt)
{
    if (type->kind == TYPE_UDT) {
        if (type->udt == udt)
            return true;
        for (uint16_t i = 0; i < type->udt->count; ++i) {
            if (node_type_uses(type->udt->types[i], udt))
                return true;
        }
        return false;
    }
    for (uint16_t i = 0; i < type->count; ++i) {
        if (node_type_uses(type->subs[i], udt))
            return true;
    }
    return false;
}

/* A name as CQL has to write it. */
static void print_name(cqlring_bytes name, struct out *out)
{
    bool plain = name.size > 0 && !(slice_data(name)[0] >= '0' && slice_data(name)[0] <= '9');
    for (int32_t i = 0; i < name.size; ++i) {
        uint8_t c = slice_data(name)[i];
        plain = plain && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
    }
    if (plain) {
        out_slice(out, name);
        return;
    }
    out_u8(out, '"');
    for (int32_t i = 0; i < name.size; ++i) {
        if (slice_data(name)[i] == '"')
            out_u8(out, '"');
        out_u8(out, slice_data(name)[i]);
    }
    out_u8(out, '"');
}

static void put_text(struct out *out, const char *text)
{
    out_raw(out, text, strlen(text));
}

void node_type_print(const struct node_type *type, bool frozen_marks, struct out *out)
{
    bool mark = frozen_marks && type->frozen && type->kind != TYPE_VECTOR;
    /* Only the outermost of nested frozen types is marked by its parent; tuples are always frozen
       inside. */
    if (mark)
        put_text(out, "frozen<");
    switch (type->kind) {
    case TYPE_CUSTOM: node_out_printf(out, "'%.*s'", SLICE_ARG(type->class_name)); break;
    case TYPE_UDT: print_name(type->udt->name, out); break;
    case TYPE_LIST:
    case TYPE_SET:
    case TYPE_MAP:
    case TYPE_TUPLE:
    case TYPE_VECTOR:
        put_text(out, type->kind == TYPE_LIST    ? "list<"
                      : type->kind == TYPE_SET   ? "set<"
                      : type->kind == TYPE_MAP   ? "map<"
                      : type->kind == TYPE_TUPLE ? "tuple<"
                                                 : "vector<");
        for (uint16_t i = 0; i < type->count; ++i) {
            if (i > 0)
                put_text(out, ", ");
            node_type_print(type->subs[i], frozen_marks, out);
        }
        if (type->kind == TYPE_VECTOR)
            node_out_printf(out, ", %u", type->dimension);
        put_text(out, ">");
        break;
    default:
        for (int i = 0; i < NATIVE_COUNT; ++i) {
            if (natives[i].type->kind == type->kind)
                put_text(out, natives[i].name);
        }
        break;
    }
    if (mark)
        put_text(out, ">");
}

static void print_hex(cqlring_bytes text, struct out *out)
{
    for (int32_t i = 0; i < text.size; ++i)
        node_out_printf(out, "%02x", slice_data(text)[i]);
}

void node_type_print_class(const struct node_type *type, struct out *out)
{
    if (type->kind == TYPE_CUSTOM) {
        out_slice(out, type->class_name);
        return;
    }
    bool mark = type->frozen && type->kind != TYPE_TUPLE && type->kind != TYPE_VECTOR &&
                type->kind != TYPE_UDT;
    if (mark)
        put_text(out, "org.apache.cassandra.db.marshal.FrozenType(");
    put_text(out, "org.apache.cassandra.db.marshal.");
    if (type->kind == TYPE_UDT) {
        node_out_printf(out, "UserType(%.*s,", SLICE_ARG(type->udt->keyspace));
        print_hex(type->udt->name, out);
        for (uint16_t i = 0; i < type->udt->count; ++i) {
            put_text(out, ",");
            print_hex(type->udt->names[i], out);
            put_text(out, ":");
            node_type_print_class(type->udt->types[i], out);
        }
        put_text(out, ")");
    } else if (type->count > 0) {
        put_text(out, type->kind == TYPE_LIST    ? "ListType("
                      : type->kind == TYPE_SET   ? "SetType("
                      : type->kind == TYPE_MAP   ? "MapType("
                      : type->kind == TYPE_TUPLE ? "TupleType("
                                                 : "VectorType(");
        for (uint16_t i = 0; i < type->count; ++i) {
            if (i > 0)
                put_text(out, ",");
            node_type_print_class(type->subs[i], out);
        }
        if (type->kind == TYPE_VECTOR)
            node_out_printf(out, " , %u", type->dimension);
        put_text(out, ")");
    } else {
        for (int i = 0; i < NATIVE_COUNT; ++i) {
            if (natives[i].type->kind == type->kind)
                put_text(out, natives[i].class_name);
        }
    }
    if (mark)
        put_text(out, ")");
}

void node_type_put_option(const struct node_type *type, uint8_t version, struct out *out)
{
    bool custom = type->kind == TYPE_CUSTOM || type->kind == TYPE_VECTOR ||
                  (type->kind == TYPE_DURATION && version < 5) ||
                  (version < 4 && type->kind >= TYPE_DATE && type->kind <= TYPE_TINYINT);
    if (custom) {
        out_u16(out, TYPE_CUSTOM);
        struct out name = {0};
        node_type_print_class(type, &name);
        out_string(out, out_view(&name, 0));
        node_out_fini(&name);
        return;
    }
    out_u16(out, (uint16_t)type->kind);
    if (type->kind == TYPE_UDT) {
        out_string(out, type->udt->keyspace);
        out_string(out, type->udt->name);
        out_u16(out, type->udt->count);
        for (uint16_t i = 0; i < type->udt->count; ++i) {
            out_string(out, type->udt->names[i]);
            node_type_put_option(type->udt->types[i], version, out);
        }
        return;
    }
    if (type->kind == TYPE_TUPLE)
        out_u16(out, type->count);
    for (uint16_t i = 0; i < type->count; ++i)
        node_type_put_option(type->subs[i], version, out);
}

uint32_t node_type_fixed_size(const struct node_type *type)
{
    switch (type->kind) {
    case TYPE_BOOLEAN: return 1;
    case TYPE_INT:
    case TYPE_FLOAT: return 4;
    case TYPE_BIGINT:
    case TYPE_DOUBLE:
    case TYPE_TIMESTAMP: return 8;
    case TYPE_UUID:
    case TYPE_TIMEUUID: return 16;
    case TYPE_VECTOR: return type->dimension * node_type_fixed_size(type->subs[0]);
    default: return 0;
    }
}

bool node_type_is_number(const struct node_type *type)
{
    switch (type->kind) {
    case TYPE_BIGINT:
    case TYPE_COUNTER:
    case TYPE_INT:
    case TYPE_SMALLINT:
    case TYPE_TINYINT:
    case TYPE_DOUBLE:
    case TYPE_FLOAT:
    case TYPE_VARINT: return true;
    default: return false;
    }
}
