/* SPDX-License-Identifier: Apache-2.0 */
#include "serialize/type.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "serialize/type_table.h"

static const struct type_facts facts[] = {
#define SCALAR(kind_, cql, class, cell, packed) \
    {.kind = CQLRING_KIND_##kind_,              \
     .cql_name = cql,                           \
     .class_name = class,                       \
     .cell_size = cell,                         \
     .packed_size = packed},
    TYPE_SCALAR_LIST(SCALAR)
#undef SCALAR
#define NESTED(kind_, cql, class, least, most) \
    {.kind = CQLRING_KIND_##kind_,             \
     .cql_name = cql,                          \
     .class_name = class,                      \
     .children_min = least,                    \
     .children_max = most},
        TYPE_NESTED_LIST(NESTED)
#undef NESTED
};

enum { FACT_COUNT = sizeof facts / sizeof facts[0] };

static const cqlring_type scalars[] = {
#define SCALAR(kind_, cql, class, cell, packed) \
    {.kind = CQLRING_KIND_##kind_, .depth = 1, .cell_size = cell, .packed_size = packed},
    TYPE_SCALAR_LIST(SCALAR)
#undef SCALAR
};

enum { SCALAR_COUNT = sizeof scalars / sizeof scalars[0] };

const struct type_facts *cqr_type_facts(uint32_t kind)
{
    for (uint32_t i = 0; i < FACT_COUNT; i++) {
        if (facts[i].kind == kind)
            return &facts[i];
    }
    return NULL;
}

const struct type_facts *cqr_type_facts_by_cql(cqlring_bytes name)
{
    size_t size = (size_t)name.size;
    for (uint32_t i = 0; i < FACT_COUNT; i++) {
        const char *known = facts[i].cql_name;
        if (size > 0 && strlen(known) == size && strncasecmp(known, name.data, size) == 0)
            return &facts[i];
    }
    if (size == 7 && strncasecmp("varchar", name.data, size) == 0)
        return cqr_type_facts(CQLRING_KIND_TEXT);
    return NULL;
}

const struct type_facts *cqr_type_facts_by_class(cqlring_bytes name)
{
    size_t size = (size_t)name.size;
    for (uint32_t i = 0; i < FACT_COUNT; i++) {
        if (strlen(facts[i].class_name) == size &&
            memcmp(facts[i].class_name, name.data, size) == 0)
            return &facts[i];
    }
    if (size == 8 && memcmp("DateType", name.data, size) == 0)
        return cqr_type_facts(
            CQLRING_KIND_TIMESTAMP); /* its name before 2.0; a date is SimpleDateType */
    return NULL;
}

const char *cqr_kind_name(uint32_t kind)
{
    const struct type_facts *known = cqr_type_facts(kind);
    if (known != NULL && known->cql_name[0] != '\0')
        return known->cql_name;
    switch (kind) {
    case CQLRING_KIND_UDT: return "udt";
    case CQLRING_KIND_COMPOSITE: return "composite";
    default: return "custom";
    }
}

const cqlring_type *cqr_type_scalar(uint32_t kind)
{
    if (kind == 0x0A) /* text, in the first two versions of the protocol */
        kind = CQLRING_KIND_TEXT;
    for (uint32_t i = 0; i < SCALAR_COUNT; i++) {
        if (scalars[i].kind == kind)
            return &scalars[i];
    }
    return NULL;
}

/* --- building --------------------------------------------------------------------------------- */

static bool copy_name(struct arena *arena, cqlring_bytes name, cqlring_bytes *copy)
{
    *copy = (cqlring_bytes){.data = cqr_arena_text(arena, name.data, (size_t)name.size),
                            .size = name.size};
    return copy->data != NULL;
}

/* The children of a frame as arrays of the node; sizes that follow from them. */
static cqlring_status finish_node(struct arena *arena, const struct type_frame *frame,
                                  cqlring_type *node)
{
    const cqlring_type **children = cqr_arena_array(arena, frame->count,
                                                    sizeof(const cqlring_type *));
    cqlring_bytes *names = NULL;
    if (frame->kind == CQLRING_KIND_UDT)
        names = cqr_arena_array(arena, frame->count, sizeof(cqlring_bytes));
    if (children == NULL || (frame->kind == CQLRING_KIND_UDT && names == NULL))
        return CQLRING_NO_MEMORY;
    uint16_t depth = 0;
    uint32_t index = 0;
    for (const struct type_child *child = frame->first; child != NULL;
         child = child->next, index++) {
        children[index] = child->type;
        if (names != NULL)
            names[index] = child->field_name;
        if (child->type->depth > depth)
            depth = child->type->depth;
    }
    if (depth >= CQLRING_DEPTH_MAX)
        return CQLRING_TYPE;
    node->depth = (uint16_t)(depth + 1);
    node->child_count = frame->count;
    node->children = children;
    node->field_names = names;
    if (frame->kind == CQLRING_KIND_VECTOR) {
        if (frame->dimension == 0)
            return CQLRING_TYPE;
        uint64_t size = (uint64_t)frame->dimension * children[0]->packed_size;
        if (size > INT32_MAX)
            return CQLRING_TYPE; /* no cell can hold it */
        node->dimension = frame->dimension;
        node->cell_size = (uint32_t)size;
        node->packed_size = (uint32_t)size;
    }
    return CQLRING_OK;
}

static cqlring_status marked_copy(struct arena *arena, const cqlring_type *type, uint8_t flag,
                                  const cqlring_type **marked)
{
    cqlring_type *copy = cqr_arena_alloc(arena, sizeof *copy);
    if (copy == NULL)
        return CQLRING_NO_MEMORY;
    *copy = *type;
    copy->flags |= flag;
    *marked = copy;
    return CQLRING_OK;
}

void cqr_builder_init(struct type_builder *builder, struct arena *arena)
{
    builder->arena = arena;
    builder->root = NULL;
    builder->depth = 0;
    builder->frozen = 0;
}

static cqlring_status push_frame(struct type_builder *builder, struct type_frame frame)
{
    assert(builder->root == NULL);
    if (builder->depth == CQLRING_DEPTH_MAX)
        return CQLRING_TYPE;
    builder->frames[builder->depth++] = frame;
    /* Nothing to wait for: it closes at once, as later ones do with their last child. */
    return frame.wanted == 0 ? cqr_builder_close(builder) : CQLRING_OK;
}

cqlring_status cqr_builder_open(struct type_builder *builder, cqlring_kind kind, uint32_t wanted)
{
    return push_frame(builder, (struct type_frame){.kind = (uint8_t)kind, .wanted = wanted});
}

cqlring_status cqr_builder_open_udt(struct type_builder *builder, cqlring_bytes keyspace,
                                    cqlring_bytes name, uint32_t wanted)
{
    struct type_frame frame = {.kind = CQLRING_KIND_UDT, .wanted = wanted};
    if (!copy_name(builder->arena, keyspace, &frame.keyspace) ||
        !copy_name(builder->arena, name, &frame.name))
        return CQLRING_NO_MEMORY;
    return push_frame(builder, frame);
}

cqlring_status cqr_builder_field(struct type_builder *builder, cqlring_bytes name)
{
    assert(builder->depth > 0 && builder->frames[builder->depth - 1].kind == CQLRING_KIND_UDT);
    return copy_name(builder->arena, name, &builder->frames[builder->depth - 1].field_name)
               ? CQLRING_OK
               : CQLRING_NO_MEMORY;
}

cqlring_status cqr_builder_open_mark(struct type_builder *builder, uint8_t flag)
{
    cqlring_status status = push_frame(
        builder, (struct type_frame){.mark = flag, .wanted = TYPE_WANTED_ANY});
    if (status == CQLRING_OK && flag == CQLRING_TYPE_FROZEN)
        builder->frozen++;
    return status;
}

cqlring_status cqr_builder_dimension(struct type_builder *builder, uint32_t dimension)
{
    assert(builder->depth > 0 && builder->frames[builder->depth - 1].kind == CQLRING_KIND_VECTOR);
    if (dimension == 0 || dimension > INT32_MAX)
        return CQLRING_TYPE;
    builder->frames[builder->depth - 1].dimension = dimension;
    return CQLRING_OK;
}

/* Close the innermost frame into a type of its own. */
static cqlring_status pop_frame(struct type_builder *builder, const cqlring_type **type)
{
    struct type_frame *frame = &builder->frames[--builder->depth];
    if (frame->mark != 0) {
        if (frame->mark == CQLRING_TYPE_FROZEN)
            builder->frozen--;
        if (frame->count != 1)
            return CQLRING_TYPE;
        return marked_copy(builder->arena, frame->first->type, frame->mark, type);
    }
    const struct type_facts *known = cqr_type_facts(frame->kind);
    if (known == NULL || frame->count < known->children_min || frame->count > known->children_max)
        return CQLRING_TYPE;
    cqlring_type *node = cqr_arena_alloc(builder->arena, sizeof *node);
    if (node == NULL)
        return CQLRING_NO_MEMORY;
    node->kind = frame->kind;
    node->flags = builder->frozen > 0 ? TYPE_INSIDE_FROZEN : 0;
    node->keyspace = frame->keyspace;
    node->name = frame->name;
    *type = node;
    return finish_node(builder->arena, frame, node);
}

cqlring_status cqr_builder_add(struct type_builder *builder, const cqlring_type *type)
{
    for (;;) {
        assert(builder->root == NULL);
        if (builder->depth == 0) {
            builder->root = type;
            return CQLRING_OK;
        }
        struct type_frame *frame = &builder->frames[builder->depth - 1];
        if (frame->count == TYPE_CHILDREN_MAX)
            return CQLRING_TYPE;
        struct type_child *child = cqr_arena_alloc(builder->arena, sizeof *child);
        if (child == NULL)
            return CQLRING_NO_MEMORY;
        child->type = type;
        child->field_name = frame->field_name;
        *(frame->last == NULL ? &frame->first : &frame->last->next) = child;
        frame->last = child;
        if (++frame->count != frame->wanted)
            return CQLRING_OK;
        /* The last one it waited for: the frame itself is the next thing to add. */
        cqlring_status status = pop_frame(builder, &type);
        if (status != CQLRING_OK)
            return status;
    }
}

cqlring_status cqr_builder_add_custom(struct type_builder *builder, cqlring_bytes class_name)
{
    cqlring_type *node = cqr_arena_alloc(builder->arena, sizeof *node);
    if (node == NULL || !copy_name(builder->arena, class_name, &node->name))
        return CQLRING_NO_MEMORY;
    node->kind = CQLRING_KIND_CUSTOM;
    node->depth = 1;
    return cqr_builder_add(builder, node);
}

cqlring_status cqr_builder_close(struct type_builder *builder)
{
    assert(builder->depth > 0);
    const cqlring_type *type;
    cqlring_status status = pop_frame(builder, &type);
    return status == CQLRING_OK ? cqr_builder_add(builder, type) : status;
}

/* --- looking ---------------------------------------------------------------------------------- */

static bool same_name(cqlring_bytes a, cqlring_bytes b)
{
    return a.size == b.size && (a.size <= 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}

/* Two nodes, their children aside. */
static bool same_node(const cqlring_type *a, const cqlring_type *b)
{
    if (a->kind != b->kind || a->child_count != b->child_count || a->dimension != b->dimension)
        return false;
    if (!same_name(a->name, b->name) || !same_name(a->keyspace, b->keyspace))
        return false;
    if (a->kind != CQLRING_KIND_UDT)
        return true;
    for (uint32_t i = 0; i < a->child_count; i++) {
        if (!same_name(a->field_names[i], b->field_names[i]))
            return false;
    }
    return true;
}

bool cqr_type_equal(const cqlring_type *a, const cqlring_type *b)
{
    struct {
        const cqlring_type *a, *b;
        uint32_t next;
    } stack[CQLRING_DEPTH_MAX];
    uint32_t depth = 0;
    for (;;) {
        if (a != b) {
            if (!same_node(a, b))
                return false;
            assert(depth < CQLRING_DEPTH_MAX);
            stack[depth].a = a;
            stack[depth].b = b;
            stack[depth++].next = 0;
        }
        while (depth > 0 && stack[depth - 1].next == stack[depth - 1].a->child_count)
            depth--;
        if (depth == 0)
            return true;
        uint32_t index = stack[depth - 1].next++;
        a = stack[depth - 1].a->children[index];
        b = stack[depth - 1].b->children[index];
    }
}

cqlring_kind cqlring_type_kind(const cqlring_type *type)
{
    return (cqlring_kind)type->kind;
}

uint32_t cqlring_type_child_count(const cqlring_type *type)
{
    return type->child_count;
}

const cqlring_type *cqlring_type_child(const cqlring_type *type, uint32_t index)
{
    return index < type->child_count ? type->children[index] : NULL;
}

cqlring_bytes cqlring_type_field_name(const cqlring_type *type, uint32_t index)
{
    if (type->kind != CQLRING_KIND_UDT || index >= type->child_count)
        return cqlring_text("");
    return type->field_names[index];
}

void cqlring_type_describe(const cqlring_type *type, cqlring_type_description *description)
{
    cqlring_type_description full = {
        .struct_size = description->struct_size,
        .dimension = type->dimension,
        .cell_size = type->cell_size,
        .element_size = type->kind == CQLRING_KIND_VECTOR ? type->children[0]->packed_size : 0,
        .keyspace = type->keyspace.data == NULL ? cqlring_text("") : type->keyspace,
        .name = type->name.data == NULL ? cqlring_text("") : type->name,
    };
    if ((type->flags & (CQLRING_TYPE_FROZEN | TYPE_INSIDE_FROZEN)) != 0)
        full.flags |= CQLRING_TYPE_FROZEN;
    full.flags |= type->flags & CQLRING_TYPE_REVERSED;
    size_t size = description->struct_size < sizeof full ? description->struct_size : sizeof full;
    memcpy(description, &full, size);
}
