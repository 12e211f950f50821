/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TYPE_TABLE_H
#define CQR_TYPE_TABLE_H

/* What is known of each kind: names in CQL and in the server's classes, sizes. For type.c,
   type_parse.c and type_format.c. */

#include <stdint.h>

#include "serialize/cqlring_types.h"

/* Scalars: kind, CQL name, class, bytes of a cell (0: varies), bytes as an element of a vector (0:
   with a length). The last column is the server's AbstractType.valueLengthIfFixed(), which is not
   what one would think. */
#define TYPE_SCALAR_LIST(X)                          \
    X(ASCII, "ascii", "AsciiType", 0, 0)             \
    X(BIGINT, "bigint", "LongType", 8, 8)            \
    X(BLOB, "blob", "BytesType", 0, 0)               \
    X(BOOLEAN, "boolean", "BooleanType", 1, 1)       \
    X(COUNTER, "counter", "CounterColumnType", 8, 0) \
    X(DECIMAL, "decimal", "DecimalType", 0, 0)       \
    X(DOUBLE, "double", "DoubleType", 8, 8)          \
    X(FLOAT, "float", "FloatType", 4, 4)             \
    X(INT, "int", "Int32Type", 4, 4)                 \
    X(TIMESTAMP, "timestamp", "TimestampType", 8, 8) \
    X(UUID, "uuid", "UUIDType", 16, 16)              \
    X(TEXT, "text", "UTF8Type", 0, 0)                \
    X(VARINT, "varint", "IntegerType", 0, 0)         \
    X(TIMEUUID, "timeuuid", "TimeUUIDType", 16, 16)  \
    X(INET, "inet", "InetAddressType", 0, 0)         \
    X(DATE, "date", "SimpleDateType", 4, 0)          \
    X(TIME, "time", "TimeType", 8, 0)                \
    X(SMALLINT, "smallint", "ShortType", 2, 0)       \
    X(TINYINT, "tinyint", "ByteType", 1, 0)          \
    X(DURATION, "duration", "DurationType", 0, 0)    \
    X(EMPTY, "empty", "EmptyType", 0, 0)

/* Types of other types: kind, CQL name, class, least and most children. */
#define TYPE_NESTED_LIST(X)                  \
    X(LIST, "list", "ListType", 1, 1)        \
    X(MAP, "map", "MapType", 2, 2)           \
    X(SET, "set", "SetType", 1, 1)           \
    X(UDT, "", "UserType", 0, 65535)         \
    X(TUPLE, "tuple", "TupleType", 0, 65535) \
    X(VECTOR, "vector", "VectorType", 1, 1)  \
    X(COMPOSITE, "", "CompositeType", 1, 65535)

#define TYPE_PACKAGE "org.apache.cassandra.db.marshal."

struct type_facts {
    const char *cql_name; /* "" when CQL has no word for it */
    const char *class_name;
    uint8_t kind;
    uint8_t cell_size;
    uint8_t packed_size;
    uint16_t children_min;
    uint16_t children_max; /* 0: a scalar */
};

/* NULL when nothing is known of that kind (custom included). */
const struct type_facts *cqr_type_facts(uint32_t kind);
/* By name; NULL when there is none. Names of CQL in any case, classes without package and
   exactly. */
const struct type_facts *cqr_type_facts_by_cql(cqlring_bytes name);
const struct type_facts *cqr_type_facts_by_class(cqlring_bytes name);

#endif
