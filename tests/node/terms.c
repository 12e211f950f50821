/* SPDX-License-Identifier: Apache-2.0 */
/* Terms: given types when a statement is resolved, turned into payloads when it runs. Walks trees
   whose depth the parser has bounded. */
#include "tests/node/engine_private.h"

#include "tests/node/functions.h"

static const char *literal_name(const struct term *term)
{
    switch (term->kind) {
    case TERM_STRING: return "STRING";
    case TERM_INTEGER: return "INTEGER";
    case TERM_FLOAT: return "FLOAT";
    case TERM_BOOLEAN: return "BOOLEAN";
    case TERM_UUID: return "UUID";
    case TERM_BLOB: return "HEX";
    case TERM_DURATION: return "DURATION";
    case TERM_LIST: return "list literal";
    case TERM_BRACES:
    case TERM_MAP:
    case TERM_UDT: return "literal";
    default: return "tuple literal";
    }
}

static bool fail_literal(struct query *query, const struct term *term, const struct node_type *type,
                         cqlring_bytes what)
{
    struct out name = {0};
    node_type_print(type, true, &name);
    if (term->kind < TERM_LIST)
        (void)node_query_fail(
            query, ERROR_INVALID, "Invalid %s constant (%.*s) for \"%.*s\" of type %.*s",
            literal_name(term), term->text.size > 100 ? 100 : (int)term->text.size,
            (const char *)term->text.data, SLICE_ARG(what), (int)name.size,
            (const char *)name.data);
    else
        (void)node_query_fail(query, ERROR_INVALID, "Invalid %s for %.*s of type %.*s",
                              literal_name(term), SLICE_ARG(what), (int)name.size,
                              (const char *)name.data);
    node_out_fini(&name);
    return false;
}

static bool scalar_payload(struct query *query, const struct term *term,
                           const struct node_type *type, cqlring_bytes what, struct out *out)
{
    bool fine = false;
    switch (term->kind) {
    case TERM_STRING: fine = node_literal_string(type, term->text, out); break;
    case TERM_INTEGER: fine = node_literal_integer(type, term->text, out); break;
    case TERM_FLOAT: fine = node_literal_float(type, term->text, term->negative, out); break;
    case TERM_UUID: fine = node_literal_uuid(type, term->text, out); break;
    case TERM_BLOB:
        fine = (type->kind == TYPE_BLOB || type->kind == TYPE_CUSTOM) &&
               node_literal_blob(term->text, out);
        break;
    case TERM_DURATION:
        fine = type->kind == TYPE_DURATION && node_literal_duration(term->text, out);
        break;
    case TERM_BOOLEAN:
        fine = type->kind == TYPE_BOOLEAN;
        if (fine)
            out_u8(out, node_slice_is_nocase(term->text, "TRUE"));
        break;
    default: break;
    }
    return fine || fail_literal(query, term, type, what);
}

static bool build(struct query *query, const struct term *term, const struct node_type *type,
                  cqlring_bytes what, cqlring_bytes *value);

/* A child inside a collection, vector, tuple or UDT. */
static bool child_value(struct query *query, const struct term *term, const struct node_type *type,
                        cqlring_bytes what, bool nullable, cqlring_bytes *value)
{
    if (!build(query, term, type, what, value))
        return false;
    if (value->size == CQLRING_UNSET)
        return node_query_fail(query, ERROR_INVALID,
                               "unset value is not supported inside collections");
    if (value->size < 0 && !nullable)
        return node_query_fail(query, ERROR_INVALID, "null is not supported inside collections");
    return true;
}

static bool build_udt(struct query *query, const struct term *term, const struct node_type *type,
                      cqlring_bytes what, struct out *out)
{
    for (const struct term *child = term->children; child != NULL; child = child->next) {
        bool known = false;
        for (uint16_t i = 0; i < type->udt->count; ++i)
            known = known || slice_equal(type->udt->names[i], child->field);
        if (!known)
            return node_query_fail(query, ERROR_INVALID,
                                   "Unknown field '%.*s' in value of user defined type %.*s",
                                   SLICE_ARG(child->field), SLICE_ARG(type->udt->name));
    }
    for (uint16_t i = 0; i < type->udt->count; ++i) {
        cqlring_bytes value = SLICE_NULL;
        for (const struct term *child = term->children; child != NULL; child = child->next) {
            if (slice_equal(type->udt->names[i], child->field) &&
                !child_value(query, child, type->udt->types[i], what, true, &value))
                return false;
        }
        out_bytes(out, value);
    }
    return true;
}

static bool build_vector(struct query *query, const struct term *term, const struct node_type *type,
                         cqlring_bytes what, struct out *out)
{
    if (term->count != type->dimension)
        return node_query_fail(
            query, ERROR_INVALID,
            "Invalid vector literal for %.*s: expected %u elements, but found %u", SLICE_ARG(what),
            type->dimension, term->count);
    for (const struct term *child = term->children; child != NULL; child = child->next) {
        cqlring_bytes value;
        if (!child_value(query, child, type->subs[0], what, false, &value))
            return false;
        if (node_type_fixed_size(type->subs[0]) == 0)
            node_put_vint(out, (uint64_t)value.size);
        out_slice(out, value);
    }
    return true;
}

/* Lists, sets, maps, tuples, vectors, UDTs. */
static bool build_compound(struct query *query, const struct term *term,
                           const struct node_type *type, cqlring_bytes what, struct out *out)
{
    bool empty = term->kind == TERM_BRACES && term->count == 0;
    if (term->kind == TERM_LIST && type->kind == TYPE_VECTOR)
        return build_vector(query, term, type, what, out);
    if (type->kind == TYPE_UDT && (term->kind == TERM_UDT || empty))
        return build_udt(query, term, type, what, out);
    bool list = term->kind == TERM_LIST && type->kind == TYPE_LIST;
    bool set = term->kind == TERM_BRACES && type->kind == TYPE_SET;
    bool map = (term->kind == TERM_MAP || empty) && type->kind == TYPE_MAP;
    bool tuple = term->kind == TERM_TUPLE && type->kind == TYPE_TUPLE && term->count <= type->count;
    if (!list && !set && !map && !tuple)
        return fail_literal(query, term, type, what);
    if (!tuple)
        out_u32(out, map ? term->count / 2u : term->count);
    uint16_t index = 0;
    for (const struct term *child = term->children; child != NULL; child = child->next, ++index) {
        cqlring_bytes value;
        const struct node_type *sub = type->subs[tuple ? index : map ? index & 1 : 0];
        if (!child_value(query, child, sub, what, tuple, &value))
            return false;
        out_bytes(out, value);
    }
    return true;
}

static bool build_call(struct query *query, const struct term *term, const struct node_type *type,
                       cqlring_bytes what, cqlring_bytes *value)
{
    const struct node_type *types[FUNCTION_ARGUMENTS_MAX];
    cqlring_bytes arguments[FUNCTION_ARGUMENTS_MAX];
    uint16_t count = 0, number;
    const struct node_type *result = node_function_signature(term, types, &number);
    if (result == NULL)
        return node_query_fail(query, ERROR_INVALID,
                               "Unknown function '%.*s' or wrong number of its arguments",
                               SLICE_ARG(term->text));
    bool same = result->kind == type->kind ||
                (result->kind == TYPE_TIMEUUID && type->kind == TYPE_UUID) ||
                (result->kind == TYPE_ASCII && type->kind == TYPE_TEXT);
    if (!same) {
        struct out name = {0};
        node_type_print(type, true, &name);
        (void)node_query_fail(
            query, ERROR_INVALID,
            "Type error: cannot assign result of function system.%.*s to %.*s (type %.*s)",
            SLICE_ARG(term->text), SLICE_ARG(what), (int)name.size, (const char *)name.data);
        node_out_fini(&name);
        return false;
    }
    for (const struct term *child = term->children; child != NULL; child = child->next, ++count) {
        if (!build(query, child, types[count], term->text, &arguments[count]))
            return false;
    }
    if (!node_function_call(query, number, types, arguments, count, value))
        return false;
    const char *why = value->size < 0 ? NULL : node_value_check(type, *value);
    return why == NULL ||
           node_query_fail(
               query, ERROR_INVALID,
               "In call to function system.%.*s, value 0x is not a valid binary representation: %s",
               SLICE_ARG(term->text), why);
}

static bool build(struct query *query, const struct term *term, const struct node_type *type,
                  cqlring_bytes what, cqlring_bytes *value)
{
    if (term->constant) {
        *value = term->value;
        return true;
    }
    switch (term->kind) {
    case TERM_NULL: *value = SLICE_NULL; return true;
    case TERM_CAST: return build(query, term->children, type, what, value);
    case TERM_CALL: return build_call(query, term, type, what, value);
    case TERM_BIND: /* checked against the marker's type before anything ran: node_check_values */
        *value = term->bind < query->value_count ? query->values[term->bind] : SLICE_NULL;
        return true;
    default: break;
    }
    struct out out = {0};
    bool fine = term->kind < TERM_LIST ? scalar_payload(query, term, type, what, &out)
                                       : build_compound(query, term, type, what, &out);
    if (fine)
        *value = node_arena_copy(
            query->arena, slice_of(out.data == NULL ? (const uint8_t *)"" : out.data, out.size));
    node_out_fini(&out);
    return fine;
}

bool node_term_value(struct query *query, const struct term *term, const struct node_type *type,
                     cqlring_bytes what, cqlring_bytes *value)
{
    if (!build(query, term, type, what, value))
        return false;
    if (!term->constant)
        *value = node_value_normalise(type, *value, query->arena);
    return true;
}

bool node_check_values(struct query *query, const struct statement *root)
{
    if (query->value_count != root->bind_count)
        return node_query_fail(query, ERROR_INVALID,
                               "Invalid amount of bind variables: expected %u but got %u",
                               root->bind_count, query->value_count);
    for (uint16_t i = 0; i < root->bind_count; ++i) {
        if (query->values[i].size < 0 || root->binds[i].type == NULL)
            continue;
        const char *why = node_value_check(root->binds[i].type, query->values[i]);
        if (why != NULL)
            return node_query_fail(query, ERROR_INVALID, "Invalid value for %.*s: %s (%d bytes)",
                                   SLICE_ARG(root->binds[i].label), why, query->values[i].size);
    }
    return true;
}

/* --- resolving -------------------------------------------------------------------------------- */

static bool is_constant(const struct term *term)
{
    if (term->kind == TERM_BIND || term->kind == TERM_CALL)
        return false;
    for (const struct term *child = term->children; child != NULL; child = child->next) {
        if (!is_constant(child))
            return false;
    }
    return true;
}

static cqlring_bytes make_label(struct node_arena *arena, const char *format, cqlring_bytes label)
{
    struct out out = {0};
    for (; *format != 0; ++format) {
        if (*format == '%')
            out_slice(&out, label);
        else
            out_u8(&out, (uint8_t)*format);
    }
    cqlring_bytes copy = node_arena_copy(arena, out_view(&out, 0));
    node_out_fini(&out);
    return copy;
}

static void bind_marker(struct statement *root, const struct term *term,
                        const struct node_type *type, const struct node_table *table,
                        cqlring_bytes label, struct node_column *column)
{
    struct bind_marker *marker = &root->binds[term->bind];
    marker->type = type;
    marker->column = column;
    marker->label = marker->name.data != NULL ? marker->name : label;
    marker->keyspace = table == NULL ? slice_text("") : table->keyspace->name;
    marker->table = table == NULL ? slice_text("") : table->name;
}

static bool resolve_children(struct query *query, struct statement *root, struct term *term,
                             const struct node_type *type, const struct node_table *table,
                             cqlring_bytes label, struct node_arena *arena)
{
    const struct node_type *types[FUNCTION_ARGUMENTS_MAX];
    uint16_t index = 0, number;
    if (term->kind == TERM_CALL && node_function_signature(term, types, &number) == NULL)
        return node_query_fail(query, ERROR_INVALID,
                               "Unknown function '%.*s' or wrong number of its arguments",
                               SLICE_ARG(term->text));
    for (struct term *child = term->children; child != NULL; child = child->next, ++index) {
        const struct node_type *sub = type;
        cqlring_bytes name = label;
        if (term->kind == TERM_CALL) {
            sub = types[index];
            name = make_label(arena, "arg(%)", term->text);
        } else if (type->kind == TYPE_UDT) {
            for (uint16_t i = 0; i < type->udt->count; ++i) {
                if (slice_equal(type->udt->names[i], child->field))
                    sub = type->udt->types[i];
            }
            name = make_label(arena, "%.field", label);
        } else if (type->count > 0 && term->kind != TERM_CAST) {
            bool map = type->kind == TYPE_MAP, tuple = type->kind == TYPE_TUPLE;
            sub = type->subs[tuple ? (index < type->count ? index : 0) : map ? index & 1 : 0];
            name = make_label(arena, map && (index & 1) == 0 ? "key(%)" : "value(%)", label);
        }
        if (!node_term_resolve(query, root, child, sub, table, name, NULL, arena))
            return false;
    }
    return true;
}

bool node_term_resolve(struct query *query, struct statement *root, struct term *term,
                       const struct node_type *type, const struct node_table *table,
                       cqlring_bytes label, struct node_column *column, struct node_arena *arena)
{
    if (term == NULL)
        return true;
    term->constant = false;
    if (term->kind == TERM_BIND) {
        bind_marker(root, term, type, table, label, column);
        return true;
    }
    if (term->kind != TERM_NULL && is_constant(term)) {
        cqlring_bytes value;
        if (!node_term_value(query, term, type, label, &value))
            return false;
        term->value = node_arena_copy(arena, value);
        term->constant = true;
        return true;
    }
    return resolve_children(query, root, term, type, table, label, arena);
}

const struct node_type *node_type_resolve(struct query *query, const struct type_ast *ast,
                                          struct node_keyspace *keyspace, struct node_arena *arena,
                                          bool frozen)
{
    const struct node_type *native = ast->quoted || ast->class_name || ast->count > 0
                                         ? NULL
                                         : node_type_native(ast->name);
    if (native != NULL)
        return native;
    if (slice_is(ast->name, "frozen") && ast->count == 1 && !ast->quoted)
        return node_type_resolve(query, ast->children, keyspace, arena, true);
    struct node_type *type = node_arena_alloc(arena, sizeof *type);
    type->frozen = frozen;
    if (ast->class_name) {
        type->kind = TYPE_CUSTOM;
        type->class_name = node_arena_copy(arena, ast->name);
        return type;
    }
    static const struct {
        const char *name;
        enum type_kind kind;
        uint16_t count;
    } compounds[] = {{"list", TYPE_LIST, 1},
                     {"set", TYPE_SET, 1},
                     {"map", TYPE_MAP, 2},
                     {"tuple", TYPE_TUPLE, 0},
                     {"vector", TYPE_VECTOR, 1}};
    for (size_t i = 0; i < sizeof compounds / sizeof compounds[0] && !ast->quoted && ast->count > 0;
         ++i) {
        if (!slice_is(ast->name, compounds[i].name))
            continue;
        type->kind = compounds[i].kind;
        type->count = ast->count;
        type->dimension = ast->dimension;
        if ((compounds[i].count != 0 && ast->count != compounds[i].count) ||
            (type->kind == TYPE_VECTOR) != (ast->dimension != 0))
            break;
        if (type->kind == TYPE_TUPLE || type->kind == TYPE_VECTOR)
            type->frozen = true;
        type->subs = node_arena_alloc(arena, ast->count * sizeof *type->subs);
        uint16_t index = 0;
        for (const struct type_ast *child = ast->children; child != NULL; child = child->next) {
            const struct node_type *sub = node_type_resolve(query, child, keyspace, arena,
                                                            type->frozen);
            if (sub == NULL)
                return NULL;
            if (sub->kind == TYPE_COUNTER) {
                (void)node_query_fail(query, ERROR_INVALID,
                                      "Counters are not allowed inside collections: %.*s",
                                      SLICE_ARG(ast->name));
                return NULL;
            }
            bool open = node_type_is_multi(sub) || (sub->kind == TYPE_UDT && !sub->frozen);
            if (open) {
                (void)node_query_fail(
                    query, ERROR_INVALID,
                    "Non-frozen collections or user types are not allowed inside collections: %.*s",
                    SLICE_ARG(ast->name));
                return NULL;
            }
            if (sub->kind == TYPE_DURATION && index == 0 &&
                (type->kind == TYPE_SET || type->kind == TYPE_MAP)) {
                (void)node_query_fail(
                    query, ERROR_INVALID, "Durations are not allowed as %s: %.*s<duration>",
                    type->kind == TYPE_MAP ? "map keys" : "set elements", SLICE_ARG(ast->name));
                return NULL;
            }
            type->subs[index++] = sub;
        }
        return type;
    }
    struct node_keyspace *home = keyspace;
    if (ast->keyspace.size > 0)
        home = node_keyspace_find(query->engine, ast->keyspace);
    struct node_udt *udt = home == NULL || ast->count > 0 ? NULL : node_udt_find(home, ast->name);
    if (udt == NULL) {
        (void)node_query_fail(query, ERROR_INVALID, "Unknown type %.*s%s%.*s",
                              SLICE_ARG(keyspace == NULL ? slice_text("") : keyspace->name),
                              keyspace == NULL ? "" : ".", SLICE_ARG(ast->name));
        return NULL;
    }
    type->kind = TYPE_UDT;
    type->udt = udt;
    return type;
}
