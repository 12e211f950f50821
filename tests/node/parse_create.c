/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE and DROP of functions, aggregates and materialized views. */
#include "tests/node/parser.h"

/* What stood in the statement from here up to the token in hand, without blanks at its end. */
static cqlring_bytes text_since(const struct parser *parser, uint32_t from)
{
    const uint8_t *start = parser->lexer.start + from;
    const uint8_t *end = parser->failed || parser->token.kind == TOKEN_END
                             ? parser->lexer.end
                             : parser->lexer.start + parser->token.offset;
    while (end > start && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == '\t' ||
                           end[-1] == '\r' || end[-1] == ';'))
        --end;
    return slice_of(start, end > start ? (size_t)(end - start) : 0);
}

/* (int, text) or, with names, (a int, b text) */
static void parse_arguments(struct parser *parser, struct statement *statement, bool names)
{
    struct column_ast **tail = &statement->columns;
    node_parser_expect_symbol(parser, '(');
    if (!node_parser_is_symbol(parser, ')')) {
        uint32_t count = 0;
        do {
            struct column_ast *argument = node_arena_alloc(parser->arena, sizeof *argument);
            argument->name = names ? node_parser_name(parser, "an argument") : slice_text("");
            argument->type = node_parser_type(parser);
            if (++count > 255)
                node_parser_fail(parser, "fewer arguments");
            if (parser->failed)
                return;
            *tail = argument;
            tail = &argument->next;
        } while (node_parser_accept_symbol(parser, ','));
    }
    node_parser_expect_symbol(parser, ')');
}

/* … RETURNS NULL|CALLED ON NULL INPUT RETURNS type LANGUAGE name AS 'body' */
static void parse_function(struct parser *parser, struct statement *statement)
{
    struct function_ast *function = statement->function;
    parse_arguments(parser, statement, true);
    if (node_parser_accept_word(parser, "CALLED")) {
        function->called_on_null = true;
    } else {
        node_parser_expect_word(parser, "RETURNS");
        node_parser_expect_word(parser, "NULL");
    }
    node_parser_expect_word(parser, "ON");
    node_parser_expect_word(parser, "NULL");
    node_parser_expect_word(parser, "INPUT");
    node_parser_expect_word(parser, "RETURNS");
    function->returns = node_parser_type(parser);
    node_parser_expect_word(parser, "LANGUAGE");
    function->language = node_parser_name(parser, "a language");
    node_parser_expect_word(parser, "AS");
    const struct term *body = node_parser_term(parser);
    if (!parser->failed && body->kind != TERM_STRING)
        node_parser_fail(parser, "the body");
    else if (!parser->failed)
        function->body = body->text;
}

/* … SFUNC name STYPE type [FINALFUNC name] [INITCOND term] */
static void parse_aggregate(struct parser *parser, struct statement *statement)
{
    struct function_ast *function = statement->function;
    parse_arguments(parser, statement, false);
    node_parser_expect_word(parser, "SFUNC");
    function->state_function = node_parser_name(parser, "a function");
    node_parser_expect_word(parser, "STYPE");
    function->state_type = node_parser_type(parser);
    if (node_parser_accept_word(parser, "FINALFUNC"))
        function->final_function = node_parser_name(parser, "a function");
    if (node_parser_accept_word(parser, "INITCOND")) {
        uint32_t from = parser->token.offset;
        (void)node_parser_term(parser);
        function->initial = text_since(parser, from);
    }
}

void node_parse_create_function(struct parser *parser, struct statement *statement, bool or_replace,
                                bool is_aggregate)
{
    statement->kind = is_aggregate ? STATEMENT_CREATE_AGGREGATE : STATEMENT_CREATE_FUNCTION;
    statement->function = node_arena_alloc(parser->arena, sizeof *statement->function);
    statement->function->or_replace = or_replace;
    node_parser_if_not_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    if (is_aggregate)
        parse_aggregate(parser, statement);
    else
        parse_function(parser, statement);
}

void node_parse_drop_function(struct parser *parser, struct statement *statement)
{
    statement->function = node_arena_alloc(parser->arena, sizeof *statement->function);
    if (node_parser_is_symbol(parser, '(')) {
        statement->function->has_arguments = true;
        parse_arguments(parser, statement, false);
    }
}

/* name AS SELECT columns FROM base WHERE condition PRIMARY KEY (…) [WITH …] */
void node_parse_create_view(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_CREATE_VIEW;
    node_parser_if_not_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    node_parser_expect_word(parser, "AS");
    node_parser_expect_word(parser, "SELECT");
    struct column_ast **tail = &statement->columns;
    if (!node_parser_accept_symbol(parser, '*')) {
        do {
            struct column_ast *column = node_arena_alloc(parser->arena, sizeof *column);
            column->name = node_parser_name(parser, "a column");
            if (parser->failed)
                return;
            *tail = column;
            tail = &column->next;
        } while (node_parser_accept_symbol(parser, ','));
    }
    node_parser_expect_word(parser, "FROM");
    node_parser_table_name(parser, &statement->index_keyspace, &statement->index_table);
    node_parser_expect_word(parser, "WHERE");
    uint32_t from = parser->token.offset;
    node_parse_where(parser, &statement->where, false);
    statement->view_where = text_since(parser, from);
    node_parser_expect_word(parser, "PRIMARY");
    node_parser_expect_word(parser, "KEY");
    node_parser_primary_key(parser, statement);
    if (node_parser_accept_word(parser, "WITH"))
        node_parser_table_options(parser, statement);
}
