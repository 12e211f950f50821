/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_PARSER_H
#define NODE_PARSER_H

/* What the parser's files share: the token in hand, the next one, the first error. Once failed,
   every step does nothing, so callers check once at the end. Terms and types nest, and are parsed
   by functions that call themselves: that is recursion on input, kept because the trees they make
   are walked the same way everywhere; PARSE_DEPTH_MAX bounds it. */

#include "tests/node/ast.h"
#include "tests/node/lexer.h"

enum { PARSE_DEPTH_MAX = 32, PARSE_BINDS_MAX = 65535 };

struct parser {
    struct node_arena *arena;
    struct lexer lexer;
    struct token token; /* in hand */
    struct token next;
    uint32_t depth;
    bool failed;
    char *message;
    size_t message_size;
    struct bind_marker *binds;
    uint32_t bind_count, bind_capacity;
};

void node_parser_advance(struct parser *parser);
void node_parser_fail(struct parser *parser, const char *expected);
bool node_parser_is_word(const struct parser *parser,
                         const char *word); /* token in hand, without case */
bool node_parser_next_is_word(const struct parser *parser, const char *word);
bool node_parser_accept_word(struct parser *parser, const char *word);
void node_parser_expect_word(struct parser *parser, const char *word);
bool node_parser_is_symbol(const struct parser *parser, char symbol);
bool node_parser_next_is_symbol(const struct parser *parser, char symbol);
bool node_parser_accept_symbol(struct parser *parser, char symbol);
void node_parser_expect_symbol(struct parser *parser, char symbol);
bool node_parser_accept_operator(struct parser *parser, const char *text);
cqlring_bytes node_parser_name(struct parser *parser,
                               const char *what); /* lower-cased unless quoted */
void node_parser_table_name(struct parser *parser, cqlring_bytes *keyspace, cqlring_bytes *name);
struct term *node_parser_term(struct parser *parser);
struct type_ast *node_parser_type(struct parser *parser);
struct option_list *node_parser_options(struct parser *parser); /* name = value AND … */

void node_parse_select(struct parser *parser, struct statement *statement);
void node_parse_where(struct parser *parser, struct relation **list, bool conditions);
void node_parse_modification(struct parser *parser,
                             struct statement *statement); /* the keyword is in hand */
void node_parse_batch(struct parser *parser, struct statement *statement);
void node_parse_create(struct parser *parser, struct statement *statement);
void node_parse_alter(struct parser *parser, struct statement *statement);
void node_parse_drop(struct parser *parser, struct statement *statement);
void node_parse_create_function(struct parser *parser, struct statement *statement, bool or_replace,
                                bool is_aggregate);
void node_parse_drop_function(struct parser *parser, struct statement *statement);
void node_parse_create_view(struct parser *parser, struct statement *statement);
void node_parser_if_not_exists(struct parser *parser, struct statement *statement);
void node_parser_primary_key(struct parser *parser,
                             struct statement *statement); /* behind PRIMARY KEY */
void node_parser_table_options(struct parser *parser, struct statement *statement); /* behind WITH */

#endif
