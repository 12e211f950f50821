/* SPDX-License-Identifier: Apache-2.0 */
/* Types from the three ways in which a server writes them: the protocol's [option], the class name
   with arguments, and CQL. All three drive the builder of type.h, whose stack is the only one. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "serialize/type.h"
#include "serialize/type_table.h"

struct scanner {
    const char *at;
    const char *end;
};

static void skip_blanks(struct scanner *scanner)
{
    while (scanner->at < scanner->end &&
           (*scanner->at == ' ' || *scanner->at == '\t' || *scanner->at == '\n'))
        scanner->at++;
}

/* The next character after blanks, '\0' at the end. (A NUL in the text is no character of any type,
   so it ends it.) */
static char peek(struct scanner *scanner)
{
    skip_blanks(scanner);
    return scanner->at < scanner->end ? *scanner->at : '\0';
}

static bool take(struct scanner *scanner, char wanted)
{
    if (peek(scanner) != wanted || wanted == '\0')
        return false;
    scanner->at++;
    return true;
}

/* ASCII, whatever the locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_word_character(char c, const char *more)
{
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') ||
           (c != '\0' && strchr(more, c) != NULL);
}

/* The longest run of letters, digits and `more`, after blanks. */
static cqlring_bytes take_word(struct scanner *scanner, const char *more)
{
    skip_blanks(scanner);
    const char *start = scanner->at;
    while (scanner->at < scanner->end && is_word_character(*scanner->at, more))
        scanner->at++;
    return (cqlring_bytes){.data = start, .size = (int32_t)(scanner->at - start)};
}

static cqlring_status take_dimension(struct scanner *scanner, struct type_builder *builder)
{
    cqlring_bytes word = take_word(scanner, "");
    const char *digits = word.data;
    uint64_t value = 0;
    for (int32_t i = 0; i < word.size; i++) {
        if (digits[i] < '0' || digits[i] > '9' || value > INT32_MAX)
            return CQLRING_TYPE;
        value = value * 10 + (uint64_t)(digits[i] - '0');
    }
    return value > INT32_MAX ? CQLRING_TYPE : cqr_builder_dimension(builder, (uint32_t)value);
}

static bool is_vector_with_element(const struct type_builder *builder)
{
    const struct type_frame *top = cqr_builder_top(builder);
    return top != NULL && top->mark == 0 && top->kind == CQLRING_KIND_VECTOR && top->count == 1 &&
           top->dimension == 0;
}

static bool is_udt(const struct type_builder *builder)
{
    const struct type_frame *top = cqr_builder_top(builder);
    return top != NULL && top->mark == 0 && top->kind == CQLRING_KIND_UDT;
}

/* --- class names (reference, "class-name grammar") -------------------------------------------- */

static const char CLASS_CHARACTERS[] = "_.+&-";

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes pairs of hex digits into a name in the arena. Where a hex name stands is decided by
   position alone: one may consist of digits only, and a keyspace may look like hex. */
static cqlring_status unhex(struct arena *arena, cqlring_bytes hex, cqlring_bytes *name)
{
    if (hex.size == 0 || hex.size % 2 != 0)
        return CQLRING_TYPE;
    const char *digits = hex.data;
    int32_t size = hex.size / 2;
    uint8_t *bytes = cqr_arena_alloc(arena, (size_t)size + 1);
    if (bytes == NULL)
        return CQLRING_NO_MEMORY;
    for (int32_t i = 0; i < size; i++) {
        int high = nibble(digits[2 * i]);
        int low = nibble(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return CQLRING_TYPE;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    *name = (cqlring_bytes){.data = bytes, .size = size};
    return CQLRING_OK;
}

static cqlring_bytes without_package(cqlring_bytes word)
{
    int32_t size = (int32_t)sizeof TYPE_PACKAGE - 1;
    if (word.size > size && memcmp(word.data, TYPE_PACKAGE, (size_t)size) == 0)
        return (cqlring_bytes){.data = (const char *)word.data + size, .size = word.size - size};
    return word;
}

static bool is_word(cqlring_bytes word, const char *text)
{
    return (size_t)word.size == strlen(text) && memcmp(word.data, text, (size_t)word.size) == 0;
}

/* Behind "UserType(": keyspace and name. The fields follow as hexname:type. */
static cqlring_status class_open_udt(struct scanner *scanner, struct type_builder *builder)
{
    cqlring_bytes keyspace = take_word(scanner, CLASS_CHARACTERS);
    if (keyspace.size == 0 || !take(scanner, ','))
        return CQLRING_TYPE;
    cqlring_bytes name;
    cqlring_status status = unhex(builder->arena, take_word(scanner, CLASS_CHARACTERS), &name);
    if (status != CQLRING_OK)
        return status;
    status = cqr_builder_open_udt(builder, keyspace, name, TYPE_WANTED_ANY);
    if (status != CQLRING_OK)
        return status;
    if (peek(scanner) == ')')
        return CQLRING_OK;
    return take(scanner, ',') && peek(scanner) != ')' ? CQLRING_OK : CQLRING_TYPE;
}

/* A class that we do not know, up to the bracket that closes its arguments: opaque as a whole. */
static cqlring_status class_add_custom(struct scanner *scanner, struct type_builder *builder,
                                       cqlring_bytes word)
{
    if (peek(scanner) == '(') {
        uint32_t open = 0;
        do {
            if (scanner->at == scanner->end)
                return CQLRING_TYPE;
            char c = *scanner->at++;
            if (c == '(')
                open++;
            if (c == ')')
                open--;
        } while (open > 0);
        word.size = (int32_t)(scanner->at - (const char *)word.data);
    }
    return cqr_builder_add_custom(builder, word);
}

/* One class: a leaf is added, one with arguments is opened up to its first argument. */
static cqlring_status class_step(struct scanner *scanner, struct type_builder *builder)
{
    cqlring_bytes word = take_word(scanner, CLASS_CHARACTERS);
    if (word.size == 0)
        return CQLRING_TYPE;
    if (is_udt(builder) || peek(scanner) == ':') {
        /* hexname:type. In a UDT it names the field; elsewhere it is a column's name, of no use to
           us. */
        cqlring_bytes name;
        cqlring_status status = unhex(builder->arena, word, &name);
        if (status == CQLRING_OK && !take(scanner, ':'))
            status = CQLRING_TYPE;
        if (status == CQLRING_OK && is_udt(builder))
            status = cqr_builder_field(builder, name);
        if (status != CQLRING_OK)
            return status;
        word = take_word(scanner, CLASS_CHARACTERS);
        if (word.size == 0)
            return CQLRING_TYPE;
    }
    cqlring_bytes name = without_package(word);
    uint8_t mark = is_word(name, "FrozenType")     ? CQLRING_TYPE_FROZEN
                   : is_word(name, "ReversedType") ? CQLRING_TYPE_REVERSED
                                                   : 0;
    const struct type_facts *known = cqr_type_facts_by_class(name);
    if (mark == 0 && known == NULL)
        return class_add_custom(scanner, builder, word);
    if (mark == 0 && known->children_max == 0)
        return cqr_builder_add(builder, cqr_type_scalar(known->kind));
    if (!take(scanner, '('))
        return CQLRING_TYPE;
    if (mark != 0)
        return cqr_builder_open_mark(builder, mark);
    if (known->kind == CQLRING_KIND_UDT)
        return class_open_udt(scanner, builder);
    return cqr_builder_open(builder, (cqlring_kind)known->kind, TYPE_WANTED_ANY);
}

/* What may stand behind a type, up to where the next one begins: brackets that close, a dimension,
   a comma. Sets root (in the builder) when the last bracket has closed. */
static cqlring_status after_type(struct scanner *scanner, struct type_builder *builder,
                                 char closing)
{
    while (builder->root == NULL) {
        if (is_vector_with_element(builder)) {
            if (!take(scanner, ','))
                return CQLRING_TYPE;
            cqlring_status status = take_dimension(scanner, builder);
            if (status != CQLRING_OK)
                return status;
            if (peek(scanner) != closing)
                return CQLRING_TYPE;
        }
        if (take(scanner, ','))
            return CQLRING_OK;
        if (!take(scanner, closing))
            return CQLRING_TYPE;
        cqlring_status status = cqr_builder_close(builder);
        if (status != CQLRING_OK)
            return status;
    }
    return peek(scanner) == '\0' && scanner->at == scanner->end ? CQLRING_OK : CQLRING_TYPE;
}

/* A class was opened and nothing has been added to it yet: what follows is a type, unless it is a
   UDT without fields. */
static bool class_wants_argument(const struct type_builder *builder, struct scanner *scanner,
                                 uint32_t depth_before)
{
    return builder->depth > depth_before && !(is_udt(builder) && peek(scanner) == ')');
}

cqlring_status cqr_type_from_class(struct arena *arena, cqlring_bytes text,
                                   const cqlring_type **type)
{
    if (text.size <= 0 || text.size > TYPE_TEXT_SIZE_MAX)
        return CQLRING_TYPE;
    struct scanner scanner = {.at = text.data, .end = (const char *)text.data + text.size};
    struct type_builder builder;
    cqr_builder_init(&builder, arena);
    while (builder.root == NULL) {
        uint32_t depth = builder.depth;
        cqlring_status status = class_step(&scanner, &builder);
        if (status != CQLRING_OK)
            return status;
        if (class_wants_argument(&builder, &scanner, depth))
            continue;
        status = after_type(&scanner, &builder, ')');
        if (status != CQLRING_OK)
            return status;
    }
    *type = builder.root;
    return CQLRING_OK;
}

/* --- CQL -------------------------------------------------------------------------------------- */

/* What stands behind an opening quote, with each doubled quote made one. */
static cqlring_status take_quoted(struct scanner *scanner, struct arena *arena, cqlring_bytes *name)
{
    const char *start = scanner->at;
    const char *end = start;
    while ((end = memchr(end, '"', (size_t)(scanner->end - end))) != NULL) {
        if (end + 1 == scanner->end || end[1] != '"')
            break;
        end += 2;
    }
    if (end == NULL)
        return CQLRING_TYPE;
    scanner->at = end + 1;
    char *copy = cqr_arena_alloc(arena, (size_t)(end - start) + 1);
    if (copy == NULL)
        return CQLRING_NO_MEMORY;
    int32_t size = 0;
    for (const char *at = start; at < end; at += *at == '"' ? 2 : 1)
        copy[size++] = *at;
    *name = (cqlring_bytes){.data = copy, .size = size};
    return size == 0 ? CQLRING_TYPE : CQLRING_OK;
}

/* An identifier: a word, in lower case, or what is quoted, as it is. *quoted tells which. */
static cqlring_status take_identifier(struct scanner *scanner, struct arena *arena,
                                      cqlring_bytes *name, bool *quoted)
{
    *quoted = take(scanner, '"');
    if (*quoted)
        return take_quoted(scanner, arena, name);
    cqlring_bytes word = take_word(scanner, "_");
    char *copy = cqr_arena_text(arena, word.data, (size_t)word.size);
    if (copy == NULL)
        return CQLRING_NO_MEMORY;
    for (int32_t i = 0; i < word.size; i++)
        copy[i] = lower(copy[i]);
    *name = (cqlring_bytes){.data = copy, .size = word.size};
    return word.size == 0 ? CQLRING_TYPE : CQLRING_OK;
}

/* 'com.example.Custom', possibly with arguments. */
static cqlring_status cql_add_class(struct scanner *scanner, struct type_builder *builder)
{
    const char *start = ++scanner->at;
    const char *quote = memchr(start, '\'', (size_t)(scanner->end - start));
    if (quote == NULL)
        return CQLRING_TYPE;
    scanner->at = quote + 1;
    cqlring_bytes text = {.data = start, .size = (int32_t)(quote - start)};
    const cqlring_type *type;
    cqlring_status status = cqr_type_from_class(builder->arena, text, &type);
    return status == CQLRING_OK ? cqr_builder_add(builder, type) : status;
}

/* One type: a leaf is added, one with arguments is opened up to its first argument. */
static cqlring_status cql_step(struct scanner *scanner, struct type_builder *builder,
                               cqr_type_resolve *resolve, void *context)
{
    if (peek(scanner) == '\'')
        return cql_add_class(scanner, builder);
    cqlring_bytes name;
    bool quoted;
    cqlring_status status = take_identifier(scanner, builder->arena, &name, &quoted);
    if (status != CQLRING_OK)
        return status;
    const struct type_facts *known = quoted ? NULL : cqr_type_facts_by_cql(name);
    if (known != NULL && known->children_max == 0)
        return cqr_builder_add(builder, cqr_type_scalar(known->kind));
    if (!quoted && take(scanner, '<')) {
        if (is_word(name, "frozen"))
            return cqr_builder_open_mark(builder, CQLRING_TYPE_FROZEN);
        if (known == NULL)
            return CQLRING_TYPE;
        return cqr_builder_open(builder, (cqlring_kind)known->kind, TYPE_WANTED_ANY);
    }
    cqlring_bytes keyspace = cqlring_text("");
    if (take(scanner, '.')) {
        keyspace = name;
        status = take_identifier(scanner, builder->arena, &name, &quoted);
        if (status != CQLRING_OK)
            return status;
    }
    const cqlring_type *udt = resolve == NULL ? NULL : resolve(keyspace, name, context);
    return udt == NULL ? CQLRING_TYPE : cqr_builder_add(builder, udt);
}

cqlring_status cqr_type_from_cql(struct arena *arena, cqlring_bytes text, cqr_type_resolve *resolve,
                                 void *context, const cqlring_type **type)
{
    if (text.size <= 0 || text.size > TYPE_TEXT_SIZE_MAX)
        return CQLRING_TYPE;
    struct scanner scanner = {.at = text.data, .end = (const char *)text.data + text.size};
    struct type_builder builder;
    cqr_builder_init(&builder, arena);
    while (builder.root == NULL) {
        uint32_t depth = builder.depth;
        cqlring_status status = cql_step(&scanner, &builder, resolve, context);
        if (status != CQLRING_OK)
            return status;
        if (builder.depth > depth)
            continue; /* opened: its first argument is next */
        status = after_type(&scanner, &builder, '>');
        if (status != CQLRING_OK)
            return status;
    }
    *type = builder.root;
    return CQLRING_OK;
}

/* --- the protocol's [option] ------------------------------------------------------------------ */

/* One option's head: a leaf is added, any other opened with the number of children it announces. */
static cqlring_status option_step(struct reader *reader, struct type_builder *builder)
{
    if (is_udt(builder)) {
        cqlring_bytes name = cqr_get_string(reader);
        cqlring_status status = reader->failed ? CQLRING_PROTOCOL
                                               : cqr_builder_field(builder, name);
        if (status != CQLRING_OK)
            return status;
    }
    uint16_t id = cqr_get_u16(reader);
    cqlring_bytes text = cqlring_text("");
    cqlring_bytes keyspace = text;
    uint32_t wanted = 1;
    switch (id) {
    case CQLRING_KIND_CUSTOM: text = cqr_get_string(reader); break;
    case CQLRING_KIND_MAP: wanted = 2; break;
    case CQLRING_KIND_UDT:
        keyspace = cqr_get_string(reader);
        text = cqr_get_string(reader);
        wanted = cqr_get_u16(reader);
        break;
    case CQLRING_KIND_TUPLE: wanted = cqr_get_u16(reader); break;
    default: break;
    }
    if (reader->failed || (id != CQLRING_KIND_CUSTOM && wanted > cqr_reader_left(reader) / 2 + 1))
        return CQLRING_PROTOCOL; /* every child takes two bytes at least */
    switch (id) {
    case CQLRING_KIND_CUSTOM: {
        const cqlring_type *type;
        cqlring_status status = cqr_type_from_class(builder->arena, text, &type);
        return status == CQLRING_OK ? cqr_builder_add(builder, type) : status;
    }
    case CQLRING_KIND_LIST:
    case CQLRING_KIND_SET:
    case CQLRING_KIND_MAP:
    case CQLRING_KIND_TUPLE: return cqr_builder_open(builder, (cqlring_kind)id, wanted);
    case CQLRING_KIND_UDT: return cqr_builder_open_udt(builder, keyspace, text, wanted);
    default: {
        const cqlring_type *scalar = id < CQLRING_KIND_LIST ? cqr_type_scalar(id) : NULL;
        return scalar == NULL ? CQLRING_TYPE : cqr_builder_add(builder, scalar);
    }
    }
}

cqlring_status cqr_type_from_option(struct reader *reader, struct arena *arena,
                                    const cqlring_type **type)
{
    struct type_builder builder;
    cqr_builder_init(&builder, arena);
    while (builder.root == NULL) {
        cqlring_status status = option_step(reader, &builder);
        if (status != CQLRING_OK)
            return status;
    }
    *type = builder.root;
    return CQLRING_OK;
}

/* --- the public parser ------------------------------------------------------------------------ */

/* Ours by its root: the public handle is its first member. */
struct parsed_type {
    cqlring_type root;
    struct arena arena;
};

static cqlring_status fail(cqlring_error *error, cqlring_status status, cqlring_bytes text)
{
    if (error == NULL)
        return status;
    *error = (cqlring_error){.status = status};
    if (status == CQLRING_NO_MEMORY) {
        snprintf(error->message, sizeof error->message, "parsing a type: out of memory");
        return status;
    }
    const char *shown = text.size <= 0 || text.data == NULL ? "" : text.data;
    int size = *shown == '\0' ? 0 : text.size < 300 ? text.size : 300;
    while (size > 0 && size < text.size && ((uint8_t)shown[size] & 0xC0) == 0x80)
        size--; /* not in the middle of a character */
    snprintf(error->message, sizeof error->message,
             "not a type that can be understood here: \"%.*s\"", size, shown);
    return status;
}

/* A class can be told from CQL by its first words: a scalar's class is no CQL type, and any other
   class has a dot or a bracket that CQL has not. */
static bool looks_like_class(cqlring_bytes text)
{
    struct scanner scanner = {.at = text.data, .end = (const char *)text.data + text.size};
    cqlring_bytes word = take_word(&scanner, CLASS_CHARACTERS);
    char next = peek(&scanner);
    if (next == '<' || next == '"' || next == '\'')
        return false;
    return next == '(' || next == ':' || memchr(word.data, '.', (size_t)word.size) != NULL ||
           cqr_type_facts_by_class(word) != NULL;
}

cqlring_status cqlring_type_parse(cqlring_bytes text, cqlring_type **type, cqlring_error *error)
{
    if (text.size <= 0 || text.size > TYPE_TEXT_SIZE_MAX)
        return fail(error, CQLRING_TYPE, text);
    struct parsed_type *parsed = cqr_mem_zalloc(sizeof *parsed);
    if (parsed == NULL)
        return fail(error, CQLRING_NO_MEMORY, text);
    /* 65535 bytes of text cannot make more of a tree than this: two bytes a leaf, some 200 bytes
       for each. */
    cqr_arena_init(&parsed->arena, (size_t)16 << 20);
    const cqlring_type *root;
    cqlring_status status = looks_like_class(text)
                                ? cqr_type_from_class(&parsed->arena, text, &root)
                                : cqr_type_from_cql(&parsed->arena, text, NULL, NULL, &root);
    if (status != CQLRING_OK) {
        cqr_arena_fini(&parsed->arena);
        cqr_mem_free(parsed);
        return fail(error, status, text);
    }
    parsed->root = *root;
    *type = &parsed->root;
    return CQLRING_OK;
}

void cqlring_type_release(cqlring_type *type)
{
    if (type == NULL)
        return;
    struct parsed_type *parsed = (struct parsed_type *)(void *)type;
    cqr_arena_fini(&parsed->arena);
    cqr_mem_free(parsed);
}
