/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "serialize/type.h"
#include "serialize/type_table.h"

/* Counts everything and stores what fits. */
struct sink {
    char *text;
    size_t capacity;
    size_t size;
};

static void emit(struct sink *sink, const void *text, size_t size)
{
    if (sink->size < sink->capacity) {
        size_t room = sink->capacity - sink->size;
        memcpy(sink->text + sink->size, text, size < room ? size : room);
    }
    sink->size += size;
}

static void emit_text(struct sink *sink, const char *text)
{
    emit(sink, text, strlen(text));
}

static void emit_bytes(struct sink *sink, cqlring_bytes bytes)
{
    if (bytes.size > 0)
        emit(sink, bytes.data, (size_t)bytes.size);
}

static void emit_number(struct sink *sink, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    emit_text(sink, text);
}

static void emit_hex(struct sink *sink, cqlring_bytes bytes)
{
    const uint8_t *data = bytes.data;
    for (int32_t i = 0; i < bytes.size; i++) {
        emit(sink, &"0123456789abcdef"[data[i] >> 4], 1);
        emit(sink, &"0123456789abcdef"[data[i] & 15], 1);
    }
}

/* Quoted unless it would be read back as the same name without: lower case, and no type of CQL's
   own. */
static void emit_identifier(struct sink *sink, cqlring_bytes name)
{
    const char *text = name.data;
    bool plain = name.size > 0 && text[0] >= 'a' && text[0] <= 'z' &&
                 cqr_type_facts_by_cql(name) == NULL &&
                 !(name.size == 6 && memcmp(text, "frozen", 6) == 0);
    for (int32_t i = 0; plain && i < name.size; i++)
        plain = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9') ||
                text[i] == '_';
    if (plain) {
        emit_bytes(sink, name);
        return;
    }
    emit_text(sink, "\"");
    for (int32_t i = 0; i < name.size; i++) {
        emit(sink, text + i, 1);
        if (text[i] == '"')
            emit(sink, text + i, 1);
    }
    emit_text(sink, "\"");
}

/* --- the two languages ------------------------------------------------------------------------ */

/* Up to the first child. Returns whether the children are to follow. */
static bool open_class(struct sink *sink, const cqlring_type *type)
{
    if ((type->flags & CQLRING_TYPE_REVERSED) != 0)
        emit_text(sink, TYPE_PACKAGE "ReversedType(");
    if ((type->flags & CQLRING_TYPE_FROZEN) != 0)
        emit_text(sink, TYPE_PACKAGE "FrozenType(");
    const struct type_facts *known = cqr_type_facts(type->kind);
    if (known == NULL) {
        emit_bytes(sink, type->name);
        return false;
    }
    emit_text(sink, TYPE_PACKAGE);
    emit_text(sink, known->class_name);
    if (known->children_max == 0)
        return false;
    emit_text(sink, "(");
    if (type->kind == CQLRING_KIND_UDT) {
        emit_bytes(sink, type->keyspace);
        emit_text(sink, ",");
        emit_hex(sink, type->name);
    }
    return true;
}

static void before_child_class(struct sink *sink, const cqlring_type *type, uint32_t index)
{
    if (index > 0 || type->kind == CQLRING_KIND_UDT)
        emit_text(sink, ",");
    if (type->kind == CQLRING_KIND_UDT) {
        emit_hex(sink, type->field_names[index]);
        emit_text(sink, ":");
    }
}

static void close_class(struct sink *sink, const cqlring_type *type, bool had_children)
{
    if (type->kind == CQLRING_KIND_VECTOR) {
        emit_text(sink, " , ");
        emit_number(sink, type->dimension);
    }
    if (had_children)
        emit_text(sink, ")");
    if ((type->flags & CQLRING_TYPE_FROZEN) != 0)
        emit_text(sink, ")");
    if ((type->flags & CQLRING_TYPE_REVERSED) != 0)
        emit_text(sink, ")");
}

static bool open_cql(struct sink *sink, const cqlring_type *type)
{
    if ((type->flags & CQLRING_TYPE_FROZEN) != 0)
        emit_text(sink, "frozen<");
    switch (type->kind) {
    case CQLRING_KIND_UDT: emit_identifier(sink, type->name); return false;
    case CQLRING_KIND_CUSTOM:
        emit_text(sink, "'");
        emit_bytes(sink, type->name);
        emit_text(sink, "'");
        return false;
    default:
        emit_text(sink, cqr_kind_name(type->kind));
        if (cqr_type_facts(type->kind)->children_max == 0)
            return false;
        emit_text(sink, "<");
        return true;
    }
}

static void close_cql(struct sink *sink, const cqlring_type *type, bool had_children)
{
    if (type->kind == CQLRING_KIND_VECTOR) {
        emit_text(sink, ", ");
        emit_number(sink, type->dimension);
    }
    if (had_children)
        emit_text(sink, ">");
    if ((type->flags & CQLRING_TYPE_FROZEN) != 0)
        emit_text(sink, ">");
}

/* Walks the tree with a stack of its own. `classes` is the depth from which on classes are written
   instead of CQL: 0 from the root, CQLRING_DEPTH_MAX nowhere (until a composite asks for it). */
static size_t format(const cqlring_type *type, uint32_t classes, char *text, size_t capacity)
{
    struct {
        const cqlring_type *type;
        uint32_t next;
        bool has_children;
    } stack[CQLRING_DEPTH_MAX];
    struct sink sink = {.text = text, .capacity = capacity > 0 ? capacity - 1 : 0};
    const uint32_t wanted_classes = classes;
    uint32_t depth = 0;
    for (;;) {
        assert(depth < CQLRING_DEPTH_MAX);
        if (depth < classes && type->kind == CQLRING_KIND_COMPOSITE) {
            emit_text(&sink, "'");
            classes = depth;
        }
        stack[depth].type = type;
        stack[depth].next = 0;
        stack[depth].has_children = depth >= classes ? open_class(&sink, type)
                                                     : open_cql(&sink, type);
        depth++;
        /* Close what is complete, then go on with the next child of what is not. */
        while (depth > 0) {
            const cqlring_type *open = stack[depth - 1].type;
            bool in_class = depth - 1 >= classes;
            if (stack[depth - 1].has_children && stack[depth - 1].next < open->child_count) {
                uint32_t index = stack[depth - 1].next++;
                if (in_class)
                    before_child_class(&sink, open, index);
                else if (index > 0)
                    emit_text(&sink, ", ");
                type = open->children[index];
                break;
            }
            depth--;
            if (in_class)
                close_class(&sink, open, stack[depth].has_children);
            else
                close_cql(&sink, open, stack[depth].has_children);
            if (depth == classes && classes != wanted_classes) {
                emit_text(&sink, "'");
                classes = wanted_classes;
            }
        }
        if (depth == 0)
            break;
    }
    if (capacity > 0)
        text[sink.size < sink.capacity ? sink.size : sink.capacity] = '\0';
    return sink.size;
}

size_t cqlring_type_format(const cqlring_type *type, char *text, size_t capacity)
{
    return format(type, CQLRING_DEPTH_MAX, text, capacity);
}

size_t cqr_type_format_class(const cqlring_type *type, char *text, size_t capacity)
{
    return format(type, 0, text, capacity);
}
