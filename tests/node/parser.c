/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/parser.h"

#include <stdio.h>

static void parse_statement(struct parser *parser, struct statement *statement)
{
    if (node_parser_is_word(parser, "SELECT")) {
        node_parse_select(parser, statement);
    } else if (node_parser_is_word(parser, "INSERT") || node_parser_is_word(parser, "UPDATE") ||
               node_parser_is_word(parser, "DELETE")) {
        node_parse_modification(parser, statement);
    } else if (node_parser_is_word(parser, "BEGIN")) {
        node_parse_batch(parser, statement);
    } else if (node_parser_accept_word(parser, "USE")) {
        statement->kind = STATEMENT_USE;
        statement->name = node_parser_name(parser, "keyspace");
    } else if (node_parser_accept_word(parser, "TRUNCATE")) {
        statement->kind = STATEMENT_TRUNCATE;
        if (!node_parser_accept_word(parser, "TABLE"))
            (void)node_parser_accept_word(parser, "COLUMNFAMILY");
        node_parser_table_name(parser, &statement->keyspace, &statement->name);
    } else if (node_parser_is_word(parser, "CREATE")) {
        node_parse_create(parser, statement);
    } else if (node_parser_is_word(parser, "ALTER")) {
        node_parse_alter(parser, statement);
    } else if (node_parser_is_word(parser, "DROP")) {
        node_parse_drop(parser, statement);
    } else {
        node_parser_fail(parser, "a statement");
    }
}

struct statement *node_parse(struct node_arena *arena, cqlring_bytes text, char *message,
                             size_t message_size)
{
    struct parser parser = {.arena = arena, .message = message, .message_size = message_size};
    if (message_size > 0)
        message[0] = 0;
    /* Slices of the tree point into a copy, since the text belongs to a request. */
    node_lexer_init(&parser.lexer, node_arena_copy(arena, text));
    parser.token = node_lexer_next(&parser.lexer);
    parser.next = node_lexer_next(&parser.lexer);
    if (parser.token.kind == TOKEN_BAD)
        node_parser_fail(&parser, "a statement");
    struct statement *statement = node_arena_alloc(arena, sizeof *statement);
    parse_statement(&parser, statement);
    (void)node_parser_accept_symbol(&parser, ';');
    if (!parser.failed && parser.token.kind != TOKEN_END)
        node_parser_fail(&parser, "the end of the statement");
    if (parser.failed)
        return NULL;
    statement->binds = parser.binds;
    statement->bind_count = (uint16_t)parser.bind_count;
    return statement;
}

struct type_ast *node_parse_type(struct node_arena *arena, cqlring_bytes text)
{
    struct parser parser = {.arena = arena};
    node_lexer_init(&parser.lexer, node_arena_copy(arena, text));
    parser.token = node_lexer_next(&parser.lexer);
    parser.next = node_lexer_next(&parser.lexer);
    struct type_ast *type = node_parser_type(&parser);
    return parser.failed || parser.token.kind != TOKEN_END ? NULL : type;
}

void node_parser_advance(struct parser *parser)
{
    if (parser->failed)
        return;
    parser->token = parser->next;
    if (parser->next.kind != TOKEN_END)
        parser->next = node_lexer_next(&parser->lexer);
    if (parser->token.kind == TOKEN_BAD)
        node_parser_fail(parser, "a token");
}

void node_parser_fail(struct parser *parser, const char *expected)
{
    if (parser->failed)
        return;
    parser->failed = true;
    if (parser->message_size == 0)
        return;
    uint32_t line = 1, column = 0;
    for (const uint8_t *at = parser->lexer.start; at < parser->lexer.start + parser->token.offset;
         ++at) {
        ++column;
        if (*at == '\n') {
            ++line;
            column = 0;
        }
    }
    if (parser->token.kind == TOKEN_END)
        (void)snprintf(parser->message, parser->message_size,
                       "line %u:%u no viable alternative at input '<EOF>' (expected %s)", line,
                       column, expected);
    else
        (void)snprintf(parser->message, parser->message_size,
                       "line %u:%u no viable alternative at input '%.*s' (expected %s)", line,
                       column, parser->token.text.size > 60 ? 60 : (int)parser->token.text.size,
                       (const char *)parser->token.text.data, expected);
    parser->token = (struct token){.kind = TOKEN_END};
    parser->next = parser->token;
}

bool node_parser_is_word(const struct parser *parser, const char *word)
{
    return parser->token.kind == TOKEN_WORD && node_slice_is_nocase(parser->token.text, word);
}
bool node_parser_next_is_word(const struct parser *parser, const char *word)
{
    return parser->next.kind == TOKEN_WORD && node_slice_is_nocase(parser->next.text, word);
}
bool node_parser_accept_word(struct parser *parser, const char *word)
{
    if (!node_parser_is_word(parser, word))
        return false;
    node_parser_advance(parser);
    return true;
}
void node_parser_expect_word(struct parser *parser, const char *word)
{
    if (!node_parser_accept_word(parser, word))
        node_parser_fail(parser, word);
}
bool node_parser_is_symbol(const struct parser *parser, char symbol)
{
    return parser->token.kind == TOKEN_SYMBOL &&
           slice_data(parser->token.text)[0] == (uint8_t)symbol;
}
bool node_parser_next_is_symbol(const struct parser *parser, char symbol)
{
    return parser->next.kind == TOKEN_SYMBOL && slice_data(parser->next.text)[0] == (uint8_t)symbol;
}
bool node_parser_accept_symbol(struct parser *parser, char symbol)
{
    if (!node_parser_is_symbol(parser, symbol))
        return false;
    node_parser_advance(parser);
    return true;
}
void node_parser_expect_symbol(struct parser *parser, char symbol)
{
    char text[4] = {'\'', symbol, '\'', 0};
    if (!node_parser_accept_symbol(parser, symbol))
        node_parser_fail(parser, text);
}
bool node_parser_accept_operator(struct parser *parser, const char *text)
{
    if (parser->token.kind != TOKEN_OPERATOR || !slice_is(parser->token.text, text))
        return false;
    node_parser_advance(parser);
    return true;
}

/* A doubled quote inside becomes one. */
static cqlring_bytes unquote(struct parser *parser, cqlring_bytes text, uint8_t quote)
{
    if (text.size == 0 || memchr(text.data, quote, (size_t)text.size) == NULL)
        return text;
    uint8_t *at = node_arena_bytes(parser->arena, (size_t)text.size);
    int32_t size = 0;
    for (int32_t i = 0; i < text.size; ++i) {
        at[size++] = slice_data(text)[i];
        if (slice_data(text)[i] == quote)
            ++i;
    }
    return slice_of(at, (size_t)size);
}

static cqlring_bytes lower(struct parser *parser, cqlring_bytes text)
{
    uint8_t *at = node_arena_bytes(parser->arena, (size_t)text.size + 1);
    for (int32_t i = 0; i < text.size; ++i) {
        uint8_t c = slice_data(text)[i];
        at[i] = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    return slice_of(at, (size_t)text.size);
}

cqlring_bytes node_parser_name(struct parser *parser, const char *what)
{
    cqlring_bytes name = slice_text("");
    if (parser->token.kind == TOKEN_WORD)
        name = lower(parser, parser->token.text);
    else if (parser->token.kind == TOKEN_NAME)
        name = unquote(parser, parser->token.text, '"');
    else
        node_parser_fail(parser, what);
    if (!parser->failed && name.size == 0)
        node_parser_fail(parser, what);
    node_parser_advance(parser);
    return name;
}

void node_parser_table_name(struct parser *parser, cqlring_bytes *keyspace, cqlring_bytes *name)
{
    *keyspace = slice_text("");
    *name = node_parser_name(parser, "a name");
    if (node_parser_accept_symbol(parser, '.')) {
        *keyspace = *name;
        *name = node_parser_name(parser, "a name");
    }
}

/* --- terms ------------------------------------------------------------------------------------ */

static struct term *term_new(struct parser *parser, enum term_kind kind)
{
    struct term *term = node_arena_alloc(parser->arena, sizeof *term);
    term->kind = kind;
    term->bind = NO_BIND;
    return term;
}

static struct term *term_bind(struct parser *parser, cqlring_bytes name)
{
    struct term *term = term_new(parser, TERM_BIND);
    if (parser->bind_count >= PARSE_BINDS_MAX) {
        node_parser_fail(parser, "fewer bind markers");
        return term;
    }
    if (parser->bind_count == parser->bind_capacity) {
        uint32_t capacity = parser->bind_capacity == 0 ? 16 : parser->bind_capacity * 2;
        struct bind_marker *binds = node_arena_alloc(parser->arena, capacity * sizeof *binds);
        if (parser->bind_count > 0)
            memcpy(binds, parser->binds, parser->bind_count * sizeof *binds);
        parser->binds = binds;
        parser->bind_capacity = capacity;
    }
    term->bind = (uint16_t)parser->bind_count;
    parser->binds[parser->bind_count++].name = name;
    return term;
}

/* Children up to `close`, which is taken. */
static void term_children(struct parser *parser, struct term *parent, char close)
{
    struct term **tail = &parent->children;
    if (node_parser_accept_symbol(parser, close))
        return;
    do {
        struct term *child = node_parser_term(parser);
        if (parser->failed)
            return;
        *tail = child;
        tail = &child->next;
        ++parent->count;
    } while (node_parser_accept_symbol(parser, ',') && parent->count < 0xFFFF);
    node_parser_expect_symbol(parser, close);
}

/* { … }: set, map or UDT, told apart by what follows the first item. */
static struct term *term_braces(struct parser *parser)
{
    struct term *term = term_new(parser, TERM_BRACES);
    struct term **tail = &term->children;
    if (node_parser_accept_symbol(parser, '}'))
        return term;
    bool first = true;
    do {
        bool name = (parser->token.kind == TOKEN_WORD || parser->token.kind == TOKEN_NAME) &&
                    node_parser_next_is_symbol(parser, ':');
        if (first && name)
            term->kind = TERM_UDT;
        cqlring_bytes field = SLICE_NULL;
        if (term->kind == TERM_UDT) {
            field = node_parser_name(parser, "a field");
            node_parser_expect_symbol(parser, ':');
        }
        struct term *child = node_parser_term(parser);
        if (parser->failed)
            return term;
        child->field = field;
        if (first && term->kind == TERM_BRACES && node_parser_is_symbol(parser, ':'))
            term->kind = TERM_MAP;
        first = false;
        *tail = child;
        tail = &child->next;
        ++term->count;
        if (term->kind == TERM_MAP) {
            node_parser_expect_symbol(parser, ':');
            child = node_parser_term(parser);
            if (parser->failed)
                return term;
            *tail = child;
            tail = &child->next;
            ++term->count;
        }
    } while (node_parser_accept_symbol(parser, ',') && term->count < 0xFFF0);
    node_parser_expect_symbol(parser, '}');
    return term;
}

/* ( … ): a tuple, or a cast "(type) term". A cast is only taken where a word starts the type. */
static struct term *term_parens(struct parser *parser)
{
    bool word = parser->token.kind == TOKEN_WORD && !node_parser_is_word(parser, "NULL") &&
                !node_parser_is_word(parser, "TRUE") && !node_parser_is_word(parser, "FALSE") &&
                !node_parser_is_word(parser, "NAN") && !node_parser_is_word(parser, "INFINITY");
    if (word &&
        (node_parser_next_is_symbol(parser, ')') || node_parser_next_is_symbol(parser, '<'))) {
        struct term *term = term_new(parser, TERM_CAST);
        term->type = node_parser_type(parser);
        node_parser_expect_symbol(parser, ')');
        term->children = node_parser_term(parser);
        term->count = 1;
        return term;
    }
    struct term *term = term_new(parser, TERM_TUPLE);
    term_children(parser, term, ')');
    return term;
}

static struct term *term_word(struct parser *parser, bool negative)
{
    if (node_parser_is_word(parser, "NAN") || node_parser_is_word(parser, "INFINITY")) {
        struct term *term = term_new(parser, TERM_FLOAT);
        term->text = parser->token.text;
        term->negative = negative;
        node_parser_advance(parser);
        return term;
    }
    if (node_parser_next_is_symbol(parser, '(') || node_parser_next_is_symbol(parser, '.')) {
        struct term *term = term_new(parser, TERM_CALL);
        term->text = node_parser_name(parser, "a function");
        if (node_parser_accept_symbol(parser, '.')) /* system.now() */
            term->text = node_parser_name(parser, "a function");
        node_parser_expect_symbol(parser, '(');
        term_children(parser, term, ')');
        return term;
    }
    if (node_parser_accept_word(parser, "NULL"))
        return term_new(parser, TERM_NULL);
    if (node_parser_is_word(parser, "TRUE") || node_parser_is_word(parser, "FALSE")) {
        struct term *term = term_new(parser, TERM_BOOLEAN);
        term->text = parser->token.text;
        node_parser_advance(parser);
        return term;
    }
    node_parser_fail(parser, "a value");
    return NULL;
}

static struct term *term_literal(struct parser *parser, enum term_kind kind)
{
    struct term *term = term_new(parser, kind);
    term->text = kind == TERM_STRING && !parser->token.quoted
                     ? unquote(parser, parser->token.text, '\'')
                     : parser->token.text;
    node_parser_advance(parser);
    return term;
}

struct term *node_parser_term(struct parser *parser)
{
    if (++parser->depth > PARSE_DEPTH_MAX)
        node_parser_fail(parser, "less nesting");
    struct term *term = NULL;
    switch (parser->failed ? TOKEN_END : parser->token.kind) {
    case TOKEN_BIND:
        term = term_bind(parser, SLICE_NULL);
        node_parser_advance(parser);
        break;
    case TOKEN_STRING: term = term_literal(parser, TERM_STRING); break;
    case TOKEN_INTEGER: term = term_literal(parser, TERM_INTEGER); break;
    case TOKEN_FLOAT: term = term_literal(parser, TERM_FLOAT); break;
    case TOKEN_UUID: term = term_literal(parser, TERM_UUID); break;
    case TOKEN_BLOB: term = term_literal(parser, TERM_BLOB); break;
    case TOKEN_DURATION: term = term_literal(parser, TERM_DURATION); break;
    case TOKEN_WORD: term = term_word(parser, false); break;
    case TOKEN_NAME:
        if (node_parser_next_is_symbol(parser, '('))
            term = term_word(parser, false);
        else
            node_parser_fail(parser, "a value");
        break;
    case TOKEN_SYMBOL:
        if (node_parser_accept_symbol(parser, ':')) {
            term = term_bind(parser, node_parser_name(parser, "the marker's name"));
        } else if (node_parser_accept_symbol(parser, '[')) {
            term = term_new(parser, TERM_LIST);
            term_children(parser, term, ']');
        } else if (node_parser_accept_symbol(parser, '{')) {
            term = term_braces(parser);
        } else if (node_parser_accept_symbol(parser, '(')) {
            term = term_parens(parser);
        } else if (node_parser_accept_symbol(parser, '-')) {
            term = term_word(parser, true);
        } else {
            node_parser_fail(parser, "a value");
        }
        break;
    default: node_parser_fail(parser, "a value"); break;
    }
    --parser->depth;
    return term == NULL ? term_new(parser, TERM_NULL) : term;
}

/* --- types and options ------------------------------------------------------------------------ */

struct type_ast *node_parser_type(struct parser *parser)
{
    struct type_ast *type = node_arena_alloc(parser->arena, sizeof *type);
    if (++parser->depth > PARSE_DEPTH_MAX)
        node_parser_fail(parser, "less nesting");
    if (parser->token.kind == TOKEN_STRING) {
        type->class_name = true;
        type->name = unquote(parser, parser->token.text, '\'');
        node_parser_advance(parser);
    } else {
        type->quoted = parser->token.kind == TOKEN_NAME;
        type->name = node_parser_name(parser, "a type");
        if (node_parser_accept_symbol(parser, '.')) {
            type->keyspace = type->name;
            type->name = node_parser_name(parser, "a type");
            type->quoted = true;
        }
    }
    if (!type->class_name && !type->quoted && node_parser_accept_symbol(parser, '<')) {
        struct type_ast **tail = &type->children;
        do {
            if (type->count == 1 && slice_is(type->name, "vector")) {
                uint32_t dimension = 0;
                for (int32_t i = 0; parser->token.kind == TOKEN_INTEGER &&
                                    i < parser->token.text.size && dimension < 100000;
                     ++i)
                    dimension = dimension * 10 +
                                (uint32_t)(slice_data(parser->token.text)[i] - '0');
                if (dimension == 0 || dimension > 65536)
                    node_parser_fail(parser, "the vector's dimension");
                type->dimension = dimension;
                node_parser_advance(parser);
                break;
            }
            struct type_ast *child = node_parser_type(parser);
            if (parser->failed)
                break;
            *tail = child;
            tail = &child->next;
            ++type->count;
        } while (node_parser_accept_symbol(parser, ',') && type->count < 0xFFFF);
        node_parser_expect_symbol(parser, '>');
    }
    --parser->depth;
    return type;
}

struct option_list *node_parser_options(struct parser *parser)
{
    struct option_list *list = NULL, **tail = &list;
    do {
        struct option_list *option = node_arena_alloc(parser->arena, sizeof *option);
        option->name = node_parser_name(parser, "an option");
        node_parser_expect_symbol(parser, '=');
        option->value = node_parser_term(parser);
        if (parser->failed)
            return list;
        *tail = option;
        tail = &option->next;
    } while (node_parser_accept_word(parser, "AND"));
    return list;
}
