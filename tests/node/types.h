/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_TYPES_H
#define NODE_TYPES_H

/* The server's own view of types and values. Written apart from serialize/, so that what the
   library encodes is judged by other code than the one that wrote it. Values are payloads in wire
   form. Nesting is bounded by the parser. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/node/memory.h"

enum type_kind { /* the wire's option ids */
                 TYPE_CUSTOM = 0x00,
                 TYPE_ASCII = 0x01,
                 TYPE_BIGINT = 0x02,
                 TYPE_BLOB = 0x03,
                 TYPE_BOOLEAN = 0x04,
                 TYPE_COUNTER = 0x05,
                 TYPE_DECIMAL = 0x06,
                 TYPE_DOUBLE = 0x07,
                 TYPE_FLOAT = 0x08,
                 TYPE_INT = 0x09,
                 TYPE_TIMESTAMP = 0x0B,
                 TYPE_UUID = 0x0C,
                 TYPE_TEXT = 0x0D,
                 TYPE_VARINT = 0x0E,
                 TYPE_TIMEUUID = 0x0F,
                 TYPE_INET = 0x10,
                 TYPE_DATE = 0x11,
                 TYPE_TIME = 0x12,
                 TYPE_SMALLINT = 0x13,
                 TYPE_TINYINT = 0x14,
                 TYPE_DURATION = 0x15,
                 TYPE_LIST = 0x20,
                 TYPE_MAP = 0x21,
                 TYPE_SET = 0x22,
                 TYPE_UDT = 0x30,
                 TYPE_TUPLE = 0x31,
                 TYPE_VECTOR = 0x100 /* custom on the wire */
};

struct node_type;

/* A user type of the catalogue. Its fields may grow (ALTER TYPE); every node_type of it points
   here. */
struct node_udt {
    struct node_udt *next;
    cqlring_bytes keyspace, name;
    uint16_t count;
    cqlring_bytes *names;
    const struct node_type **types;
    struct node_arena arena; /* owns all of the above, and this */
};

struct node_type {
    enum type_kind kind;
    bool frozen;        /* as declared; flows down when resolved */
    uint16_t count;     /* list, set 1; map 2; tuple n; vector 1 */
    uint32_t dimension; /* vector */
    const struct node_type **subs;
    const struct node_udt *udt;
    cqlring_bytes class_name; /* custom */
};

extern const struct node_type node_type_int, node_type_bigint, node_type_text, node_type_boolean,
    node_type_blob, node_type_uuid, node_type_timeuuid, node_type_timestamp, node_type_double,
    node_type_counter;

const struct node_type *node_type_native(
    cqlring_bytes name); /* "int", "text"; NULL: none of that name */
const struct node_type *node_type_scalar(enum type_kind kind);
bool node_type_is_multi(
    const struct node_type *type); /* non-frozen collection: stored by element */
/* Numbers that sums and casts here can do: all but decimal. */
bool node_type_is_number(const struct node_type *type);
bool node_type_equal(const struct node_type *a, const struct node_type *b);
bool node_type_uses(const struct node_type *type, const struct node_udt *udt);
void node_type_print(const struct node_type *type, bool frozen_marks,
                     struct out *out); /* "map<text, frozen<list<int>>>" */
void node_type_print_class(const struct node_type *type,
                           struct out *out); /* "org.apache…MapType(…)" */
void node_type_put_option(const struct node_type *type, uint8_t version,
                          struct out *out); /* the wire's option */

/* Is the payload what the type demands? NULL: yes; else why not (static text). Empty payloads of
   types that have them pass. */
const char *node_value_check(const struct node_type *type, cqlring_bytes value);
/* In the type's order; both not null. Never reads past them: check first. */
int node_value_compare(const struct node_type *type, cqlring_bytes a, cqlring_bytes b);

/* Elements of a collection's payload. */
struct element_cursor {
    struct reader reader;
    uint32_t left;
};
void node_elements(cqlring_bytes value, struct element_cursor *cursor);
bool node_elements_next(struct element_cursor *cursor,
                        cqlring_bytes *element); /* map: key, value, key … */
/* Field index of a tuple or UDT payload: null when it is not there. */
cqlring_bytes node_tuple_field(cqlring_bytes value, uint32_t index);
/* Element of a vector. */
bool node_vector_next(const struct node_type *type, struct reader *reader, cqlring_bytes *element);
uint32_t node_type_fixed_size(const struct node_type *type); /* by the vector's rule; 0: variable */

/* Unsigned and zig-zag vints. */
void node_put_vint(struct out *out, uint64_t value);
bool node_get_vint(struct reader *reader, uint64_t *value);

/* Literals to payloads, appended to out. false: not one of that type. */
bool node_literal_integer(const struct node_type *type, cqlring_bytes text,
                          struct out *out); /* integer token */
bool node_literal_float(const struct node_type *type, cqlring_bytes text, bool negative,
                        struct out *out);
bool node_literal_string(const struct node_type *type, cqlring_bytes text,
                         struct out *out); /* text, inet, timestamp, date, time … */
bool node_literal_uuid(const struct node_type *type, cqlring_bytes text, struct out *out);
bool node_literal_blob(cqlring_bytes text, struct out *out);
bool node_literal_duration(cqlring_bytes text, struct out *out);

/* Sets and maps inside a value into their order, without duplicates, as the server stores them. The
   value itself when nothing needs to move; else a copy in the arena. The value must have passed
   node_value_check. */
cqlring_bytes node_value_normalise(const struct node_type *type, cqlring_bytes value,
                                   struct node_arena *arena);

#endif
