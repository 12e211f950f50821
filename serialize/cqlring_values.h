/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_VALUES_H
#define CQLRING_VALUES_H

/* CQL types and values. Types are a tree to be looked at; values are bytes to be written and read.
   Nothing here talks to a network, keeps state of its own or takes a lock: any thread, as long as
   two do not share one writer or cursor.

   The payloads are the native protocol's (section 6 of its texts; Cassandra's for vectors and
   custom classes). A cell is a cqlring_bytes: its size says null (CQLRING_NULL), unset
   (CQLRING_UNSET), empty (0) or how many bytes of payload. An empty cell is a value of its own: of
   text, blob and ascii the usual empty one, of all other types a relic that a server may still hand
   out; it is neither null nor 0. */

#include "cqlring_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- types ------------------------------------------------------------------------------------ */

/* What a type is. Below 0x80 the number is the protocol's. */
typedef enum cqlring_kind {
    CQLRING_KIND_CUSTOM = 0x00, /* a class we know nothing about: cells are opaque bytes */
    CQLRING_KIND_ASCII = 0x01,
    CQLRING_KIND_BIGINT = 0x02,
    CQLRING_KIND_BLOB = 0x03,
    CQLRING_KIND_BOOLEAN = 0x04,
    CQLRING_KIND_COUNTER = 0x05,
    CQLRING_KIND_DECIMAL = 0x06,
    CQLRING_KIND_DOUBLE = 0x07,
    CQLRING_KIND_FLOAT = 0x08,
    CQLRING_KIND_INT = 0x09,
    CQLRING_KIND_TIMESTAMP = 0x0B,
    CQLRING_KIND_UUID = 0x0C,
    CQLRING_KIND_TEXT = 0x0D, /* text and varchar are one */
    CQLRING_KIND_VARINT = 0x0E,
    CQLRING_KIND_TIMEUUID = 0x0F,
    CQLRING_KIND_INET = 0x10,
    CQLRING_KIND_DATE = 0x11,
    CQLRING_KIND_TIME = 0x12,
    CQLRING_KIND_SMALLINT = 0x13,
    CQLRING_KIND_TINYINT = 0x14,
    CQLRING_KIND_DURATION = 0x15,
    CQLRING_KIND_LIST = 0x20,
    CQLRING_KIND_MAP = 0x21,
    CQLRING_KIND_SET = 0x22,
    CQLRING_KIND_UDT = 0x30,
    CQLRING_KIND_TUPLE = 0x31,
    CQLRING_KIND_VECTOR = 0x80,
    CQLRING_KIND_COMPOSITE = 0x81, /* key of several parts in tables made by Thrift */
    CQLRING_KIND_EMPTY = 0x82      /* its cells are always empty */
} cqlring_kind;

enum {
    CQLRING_TYPE_FROZEN = 1,  /* written frozen, or inside something that is */
    CQLRING_TYPE_REVERSED = 2 /* clustering in descending order; encoded the same */
};

/* Deepest nesting of a type or value: deeper ones are refused everywhere. */
#define CQLRING_DEPTH_MAX 64

/* A node of a type. Immutable. A type that a statement's or result's columns hand out lives as long
   as they do and is not released; what cqlring_type_parse made is. */
typedef struct cqlring_type cqlring_type;

/* What a type is, beside its kind and children. Texts are raw (UTF-8, unquoted, as the server has
   them), empty where the type has none, and live as long as the type. */
typedef struct cqlring_type_description {
    size_t struct_size;     /* in: sizeof of this struct; fields beyond it are left alone */
    uint32_t flags;         /* CQLRING_TYPE_FROZEN, CQLRING_TYPE_REVERSED */
    uint32_t dimension;     /* of a vector, else 0 */
    uint32_t cell_size;     /* of every payload that is neither null nor empty; 0: varies */
    uint32_t element_size;  /* of each element of a vector that has no lengths, else 0 */
    cqlring_bytes keyspace; /* of a UDT */
    cqlring_bytes name;     /* of a UDT; class and arguments of a custom type */
} cqlring_type_description;

/* Parse the text of a type: CQL as system_schema writes it ("list<frozen<map<text, int>>>",
   "vector<float, 3>", "'com.example.Custom'") or a server's class ("Int32Type",
   "org.apache.cassandra.db.marshal.ListType(…)"). A UDT cannot be given by its name in CQL, its
   fields being unknown here; as a class it can.
   OK: *type is the caller's and goes back to cqlring_type_release. TYPE: not a type, nested deeper
   than CQLRING_DEPTH_MAX, or longer than 65535 bytes. NO_MEMORY. */
CQLRING_API cqlring_status cqlring_type_parse(cqlring_bytes text, cqlring_type **type,
                                              cqlring_error *error);

/* Free what cqlring_type_parse made, children included. NULL is fine. */
CQLRING_API void cqlring_type_release(cqlring_type *type);

CQLRING_API cqlring_kind cqlring_type_kind(const cqlring_type *type);

/* Children: the element of a list, set or vector; key and value of a map; fields of a tuple or UDT;
   parts of a composite. cqlring_type_child is NULL beyond the last; it lives as long as its
   parent. */
CQLRING_API uint32_t cqlring_type_child_count(const cqlring_type *type);
CQLRING_API const cqlring_type *cqlring_type_child(const cqlring_type *type, uint32_t index);

/* Name of a UDT's field; an empty slice for anything else. */
CQLRING_API cqlring_bytes cqlring_type_field_name(const cqlring_type *type, uint32_t index);

CQLRING_API void cqlring_type_describe(const cqlring_type *type,
                                       cqlring_type_description *description);

/* Write the type in CQL, NUL-terminated and cut to capacity bytes (text may be NULL when that is
   0). Returns the size of the whole without the NUL, as snprintf does. Composites have no CQL and
   are written as a quoted class. */
CQLRING_API size_t cqlring_type_format(const cqlring_type *type, char *text, size_t capacity);

/* Is this cell well formed for the type, all the way down? Lengths, counts, ranges (time of day,
   durations), ASCII, UTF-8. Null and empty cells are; an unset one is not. OK, or TYPE. */
CQLRING_API cqlring_status cqlring_value_check(const cqlring_type *type, cqlring_bytes cell);

/* --- writing ---------------------------------------------------------------------------------- */

/* Writes payloads into the caller's memory, one after the other; nested ones between put_begin and
   put_end. What a put does depends on where it stands: outside of a nesting it appends the payload
   alone; in a list, set, map, tuple or UDT the protocol's int length and the payload; in a vector
   what the element type asks for (nothing, or an unsigned vint).

       cqlring_writer_init(&writer, room, sizeof room);
       cqlring_put_int(&writer, 42, 8);                        bigint
       status = cqlring_writer_take(&writer, &cells[0], NULL);
       cqlring_put_begin(&writer, list_of_text);
       cqlring_put_bytes(&writer, cqlring_text("a"));
       cqlring_put_end(&writer);
       status = cqlring_writer_take(&writer, &cells[1], NULL);

   Failure is sticky until the value is taken, so only cqlring_writer_take needs to be asked. The
   struct is the caller's; its fields are the library's, but `size` may be read. */
typedef struct cqlring_writer {
    uint8_t *data;
    uint32_t capacity;
    uint32_t size;   /* of all values taken so far; the next one begins here */
    uint64_t end;    /* of what was put; goes on counting where there is no room */
    uint16_t status; /* cqlring_status of the value that is being written */
    uint16_t depth;
    int32_t whole; /* CQLRING_NULL or CQLRING_UNSET when that was put outside of a nesting */
    struct {
        const cqlring_type *type;
        uint32_t start; /* of the payload, from `size` on */
        uint32_t count; /* of values put */
    } frames[CQLRING_DEPTH_MAX];
} cqlring_writer;

/* Begin in room, capacity bytes of the caller's that must outlive the slices taken. */
static inline void cqlring_writer_init(cqlring_writer *writer, void *room, uint32_t capacity)
{
    /* the frames stay as they are: they are written before they are read */
    writer->data = (uint8_t *)room;
    writer->capacity = capacity;
    writer->size = 0;
    writer->end = 0;
    writer->status = CQLRING_OK;
    writer->depth = 0;
    writer->whole = 0;
}

/* The value written since the last take, as a slice of the writer's room; the next value begins
   behind it. Nothing written at all gives an empty cell. When it failed, *cell is null and nothing
   of it stays in the room:
   FULL: no room. *needed (if needed is not NULL) is how many bytes the value takes in all, so one
   retry is enough.
   TYPE: out of range, or not what the type asks for (each put says what).
   TOO_LARGE: 2^31 bytes or more.
   INVALID: a nesting left open, ended without being begun, or begun behind another value. */
CQLRING_API cqlring_status cqlring_writer_take(cqlring_writer *writer, cqlring_bytes *cell,
                                               uint64_t *needed);

/* A payload as it is: text, blob, uuid, inet, or whatever was encoded before. Null (not in a
   vector; outside of a nesting it makes the whole cell null) is allowed; unset is TYPE inside a
   nesting, for the protocol knows it only for whole bound values. In a nesting the size must be the
   child type's, if that is fixed (or 0, but in a vector). */
CQLRING_API void cqlring_put_bytes(cqlring_writer *writer, cqlring_bytes payload);

/* An integer of size bytes (1, 2, 4, 8): tinyint, smallint, int, bigint, counter, boolean (0 or 1),
   timestamp (milliseconds since 1970), time (nanoseconds since midnight); or with size 0 the
   shortest varint. A date is cqlring_put_int(writer, (int32_t)((uint32_t)days ^ 0x80000000), 4).
   TYPE when the value does not fit size. */
CQLRING_API void cqlring_put_int(cqlring_writer *writer, int64_t value, uint32_t size);

/* A varint of any length, from a big-endian two's complement integer (size ≥ 1; need not be its
   shortest form). */
CQLRING_API void cqlring_put_varint(cqlring_writer *writer, cqlring_bytes integer);

/* The decimal unscaled × 10^-scale; unscaled as in cqlring_put_varint. */
CQLRING_API void cqlring_put_decimal(cqlring_writer *writer, int32_t scale, cqlring_bytes unscaled);

/* TYPE unless all three are ≥ 0 or all are ≤ 0. */
CQLRING_API void cqlring_put_duration(cqlring_writer *writer, int32_t months, int32_t days,
                                      int64_t nanoseconds);

/* count numbers of element_size bytes (4 or 8) from a plain array of float, double, int32_t or
   int64_t, in one pass. Outside of a nesting: the payload of vector<float, count> and its like
   (count 1: of a float). In a nesting: count values one after the other. */
CQLRING_API void cqlring_put_array(cqlring_writer *writer, const void *values,
                                   uint32_t element_size, uint32_t count);

/* Begin and end a list, set, map (key, value, key, …), tuple, UDT or vector. The type must live
   until the end. Elements are counted; put_end is TYPE when a vector has not exactly its dimension,
   a map a key without value, a tuple or UDT more values than fields (fewer are allowed: the rest
   reads as null). A nested type must be the enclosing type's child (TYPE if its kind is another).
   CQLRING_DEPTH_MAX deep: TYPE beyond. */
CQLRING_API void cqlring_put_begin(cqlring_writer *writer, const cqlring_type *type);
CQLRING_API void cqlring_put_end(cqlring_writer *writer);

/* An unsigned vint (1 to 9 bytes) into room; returns its size. Signed ones are zig-zag first:
   ((uint64_t)value << 1) ^ (uint64_t)(value >> 63). */
CQLRING_API uint32_t cqlring_vint_encode(uint64_t value, uint8_t room[9]);

static inline void cqlring_put_float(cqlring_writer *writer, float value)
{
    cqlring_put_array(writer, &value, sizeof value, 1);
}
static inline void cqlring_put_double(cqlring_writer *writer, double value)
{
    cqlring_put_array(writer, &value, sizeof value, 1);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Every get: OK and the value; INVALID when there is none, cell.size saying whether the cell is
   null (< 0) or empty (0); TYPE when the payload is none of this shape. On failure nothing is
   stored. */

/* size 1, 2, 4 or 8: exactly that many bytes. size 0: a varint of any form; TOO_LARGE when it does
   not fit 64 bits (its payload is big-endian two's complement already). A boolean is an int of size
   1 that is not 0; the days of a date are (int32_t)((uint32_t)value ^ 0x80000000) of an int of
   size 4. */
CQLRING_API cqlring_status cqlring_get_int(cqlring_bytes cell, uint32_t size, int64_t *value);

/* *unscaled is a slice of the cell: big-endian two's complement, at least one byte. */
CQLRING_API cqlring_status cqlring_get_decimal(cqlring_bytes cell, int32_t *scale,
                                               cqlring_bytes *unscaled);

CQLRING_API cqlring_status cqlring_get_duration(cqlring_bytes cell, int32_t *months, int32_t *days,
                                                int64_t *nanoseconds);

/* Exactly count numbers of element_size (4 or 8) bytes into a plain array: the payload of a vector
   of float, double, int, bigint or timestamp, or with count 1 of one of these. */
CQLRING_API cqlring_status cqlring_get_array(cqlring_bytes cell, uint32_t element_size,
                                             void *values, uint32_t count);

/* One unsigned vint from the front of size bytes. Returns how many it took, 0 when it is cut
   short. */
CQLRING_API uint32_t cqlring_vint_decode(const void *data, size_t size, uint64_t *value);

static inline cqlring_status cqlring_get_float(cqlring_bytes cell, float *value)
{
    return cqlring_get_array(cell, sizeof *value, value, 1);
}
static inline cqlring_status cqlring_get_double(cqlring_bytes cell, double *value)
{
    return cqlring_get_array(cell, sizeof *value, value, 1);
}

/* Walks over the elements of a list, set, map (key, value, key, …), tuple, UDT or vector. The
   caller's struct; its fields are the library's, but `left` may be read. Valid as long as the cell
   and the type are. */
typedef struct cqlring_cursor {
    const cqlring_type *type;
    const uint8_t *at;
    const uint8_t *end;
    uint32_t index; /* of the next element */
    uint32_t left;  /* elements not yet handed out; a map's keys and values count each */
} cqlring_cursor;

/* Begin a walk. INVALID: a null or empty cell of a list, set, map or vector (an empty tuple or UDT
   is one of nulls). TYPE: the type has no elements, or the count cannot be true. Allocates nothing,
   whatever the count. */
CQLRING_API cqlring_status cqlring_cursor_init(cqlring_cursor *cursor, const cqlring_type *type,
                                               cqlring_bytes cell);

/* The next element, a slice of the cell; its type is cqlring_type_child(type, index of a tuple's or
   UDT's field, 0 or 1 of a map's key or value, else 0), handed out too when element_type is not
   NULL. Elements may be null. Fields that the cell lacks are null; fields that the type lacks are
   skipped. OK; CLOSED: there are no more; TYPE: cut short, or bytes are left behind the last
   element. */
CQLRING_API cqlring_status cqlring_cursor_next(cqlring_cursor *cursor, cqlring_bytes *element,
                                               const cqlring_type **element_type);

/* --- uuids and dates -------------------------------------------------------------------------- */

/* "550e8400-e29b-41d4-a716-446655440000", either case, to 16 bytes and back (37 with the NUL).
   TYPE: something else. */
CQLRING_API cqlring_status cqlring_uuid_parse(cqlring_bytes text, uint8_t uuid[16]);
CQLRING_API void cqlring_uuid_format(const uint8_t uuid[16], char text[37]);

/* The time of a version-1 uuid (timeuuid), in 100 ns since 1970. TYPE: another version. */
CQLRING_API cqlring_status cqlring_uuid_time(const uint8_t uuid[16], int64_t *time_100ns);

/* The least or greatest timeuuid of that time in the server's order, for range queries; not unique,
   so never a key. TYPE when the time is outside of what 60 bits hold from 1582-10-15 on (until
   5236). */
CQLRING_API cqlring_status cqlring_uuid_bound(int64_t time_100ns, bool greatest, uint8_t uuid[16]);

/* The proleptic Gregorian day, days after 1970-01-01; every date has one (-5877641-06-23 …
   5881580-07-11). */
CQLRING_API void cqlring_date_civil(int32_t days, int32_t *year, uint32_t *month, uint32_t *day);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
