/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TYPE_H
#define CQR_TYPE_H

/* CQL types as trees. A node lives in the arena of whoever described it (a result's columns, a
   schema) and is immutable once it hangs in a tree; scalars are shared constants. No tree is deeper
   than CQLRING_DEPTH_MAX, which the builder sees to, so that everybody who walks one can do so with
   a fixed stack. */

#include <stdbool.h>
#include <stdint.h>

#include "serialize/buf.h"
#include "serialize/cqlring_types.h"
#include "serialize/cqlring_values.h"
#include "serialize/mem.h"

enum {
    TYPE_TEXT_SIZE_MAX = 65535, /* a type's text is a [string] on the wire */
    TYPE_CHILDREN_MAX = 65535,
    TYPE_INSIDE_FROZEN = 4 /* flags: not written frozen itself, but inside something that is */
};

struct cqlring_type {
    uint8_t kind;   /* cqlring_kind */
    uint8_t flags;  /* CQLRING_TYPE_FROZEN: as written; CQLRING_TYPE_REVERSED, TYPE_INSIDE_FROZEN */
    uint16_t depth; /* 1 for a leaf */
    uint32_t child_count;
    uint32_t dimension;   /* of a vector */
    uint32_t cell_size;   /* cqr_type_fixed_size */
    uint32_t packed_size; /* cqr_vector_element_size */
    const cqlring_type *const *children;
    const cqlring_bytes *field_names; /* of a UDT, child_count of them */
    cqlring_bytes keyspace;           /* of a UDT */
    cqlring_bytes name;               /* of a UDT; class of a custom type */
};

/* Bytes of every payload of the type that is neither null nor empty; 0 when that varies. */
static inline uint32_t cqr_type_fixed_size(const cqlring_type *type)
{
    return type->cell_size;
}

/* Bytes of the type as an element of a vector, where such elements stand without lengths; 0 when
   they have lengths. It is the server's own table: a smallint, always two bytes, has a length
   there. */
static inline uint32_t cqr_vector_element_size(const cqlring_type *type)
{
    return type->packed_size;
}

/* A shared constant for a scalar's kind (the protocol's id, 0x0A included, or CQLRING_KIND_EMPTY);
   NULL when there is no such scalar. */
const cqlring_type *cqr_type_scalar(uint32_t kind);

/* The same encoding? Frozen and reversed do not count; names of UDTs and of their fields do. */
bool cqr_type_equal(const cqlring_type *a, const cqlring_type *b);

/* --- from text and wire ----------------------------------------------------------------------- */

/* All of these: OK; TYPE: not a type that we can read, or too deep; NO_MEMORY (or the arena's
   ceiling). Texts are copied into the arena, so the source may go. */

/* A [option] of the native protocol (section 9 of the reference, "type option"). PROTOCOL when it
   is cut short. An unknown id is TYPE: the reader then stands nowhere in particular. */
cqlring_status cqr_type_from_option(struct reader *reader, struct arena *arena,
                                    const cqlring_type **type);

/* A server's class name with its arguments. */
cqlring_status cqr_type_from_class(struct arena *arena, cqlring_bytes text,
                                   const cqlring_type **type);

/* CQL. A name that is no scalar's is a UDT: resolve is asked for it (keyspace is empty unless it
   was written) and returns its type, which must live as long as the arena, or NULL. NULL for
   resolve knows none. */
typedef const cqlring_type *cqr_type_resolve(cqlring_bytes keyspace, cqlring_bytes name,
                                             void *context);
cqlring_status cqr_type_from_cql(struct arena *arena, cqlring_bytes text, cqr_type_resolve *resolve,
                                 void *context, const cqlring_type **type);

/* --- building --------------------------------------------------------------------------------- */

/* Builds a tree from the top, with a fixed stack. Nodes that are open wait for their children; a
   node closes by itself when it has `wanted` of them, or (wanted TYPE_WANTED_ANY) by
   cqr_builder_close. Done when root is set.

       cqr_builder_init(&builder, arena);
       cqr_builder_open(&builder, CQLRING_KIND_MAP, 2);
       cqr_builder_add(&builder, cqr_type_scalar(CQLRING_KIND_TEXT));
       cqr_builder_add(&builder, cqr_type_scalar(CQLRING_KIND_INT));
       type = builder.root;

   Every step: OK; TYPE: wrong number of children, dimension 0, too deep; NO_MEMORY. */
#define TYPE_WANTED_ANY UINT32_MAX

struct type_child {
    const cqlring_type *type;
    cqlring_bytes field_name;
    struct type_child *next;
};

struct type_builder {
    struct arena *arena;
    const cqlring_type *root;
    uint32_t depth;
    uint32_t frozen; /* frozen marks that are open */
    struct type_frame {
        uint8_t kind;
        uint8_t mark; /* not a node: the flag to set on the one child */
        uint32_t wanted;
        uint32_t count;
        uint32_t dimension;
        cqlring_bytes keyspace;
        cqlring_bytes name;
        cqlring_bytes field_name; /* of the child that comes next */
        struct type_child *first;
        struct type_child *last;
    } frames[CQLRING_DEPTH_MAX];
};

void cqr_builder_init(struct type_builder *builder, struct arena *arena);
cqlring_status cqr_builder_open(struct type_builder *builder, cqlring_kind kind, uint32_t wanted);
/* A UDT: names are copied. Each child is announced by cqr_builder_field. */
cqlring_status cqr_builder_open_udt(struct type_builder *builder, cqlring_bytes keyspace,
                                    cqlring_bytes name, uint32_t wanted);
cqlring_status cqr_builder_field(struct type_builder *builder, cqlring_bytes name);
/* The next node gets this flag (CQLRING_TYPE_FROZEN or CQLRING_TYPE_REVERSED). */
cqlring_status cqr_builder_open_mark(struct type_builder *builder, uint8_t flag);
/* Dimension of the vector that is open. */
cqlring_status cqr_builder_dimension(struct type_builder *builder, uint32_t dimension);
cqlring_status cqr_builder_add(struct type_builder *builder, const cqlring_type *type);
cqlring_status cqr_builder_add_custom(struct type_builder *builder, cqlring_bytes class_name);
cqlring_status cqr_builder_close(struct type_builder *builder);

/* Innermost open frame, NULL when none is. */
static inline const struct type_frame *cqr_builder_top(const struct type_builder *builder)
{
    return builder->depth == 0 ? NULL : &builder->frames[builder->depth - 1];
}

/* --- to text ---------------------------------------------------------------------------------- */

/* The server's class for the type, fully qualified, as in custom [option]s (vectors are sent that
   way). As cqlring_type_format. */
size_t cqr_type_format_class(const cqlring_type *type, char *text, size_t capacity);

/* The name of a scalar in CQL, "custom" and the like for others; static. */
const char *cqr_kind_name(uint32_t kind);

#endif
