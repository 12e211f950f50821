/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE, ALTER, DROP. */
#include "tests/node/parser.h"

void node_parser_if_not_exists(struct parser *parser, struct statement *statement)
{
    if (!node_parser_is_word(parser, "IF") || !node_parser_next_is_word(parser, "NOT"))
        return;
    node_parser_advance(parser);
    node_parser_advance(parser);
    node_parser_expect_word(parser, "EXISTS");
    statement->if_not_exists = true;
}

static void accept_if_exists(struct parser *parser, struct statement *statement)
{
    if (!node_parser_is_word(parser, "IF") || !node_parser_next_is_word(parser, "EXISTS"))
        return;
    node_parser_advance(parser);
    node_parser_advance(parser);
    statement->if_exists = true;
}

static struct name_list *name_one(struct parser *parser)
{
    struct name_list *name = node_arena_alloc(parser->arena, sizeof *name);
    name->name = node_parser_name(parser, "a column");
    return name;
}

/* PRIMARY KEY ( (a, b), c, d ) — PRIMARY KEY is taken already. */
void node_parser_primary_key(struct parser *parser, struct statement *statement)
{
    node_parser_expect_symbol(parser, '(');
    struct name_list **tail = &statement->partition_key;
    if (statement->partition_key != NULL)
        node_parser_fail(parser, "one PRIMARY KEY");
    if (node_parser_accept_symbol(parser, '(')) {
        do {
            *tail = name_one(parser);
            tail = &(*tail)->next;
        } while (node_parser_accept_symbol(parser, ','));
        node_parser_expect_symbol(parser, ')');
    } else {
        *tail = name_one(parser);
    }
    tail = &statement->clustering_key;
    while (node_parser_accept_symbol(parser, ',')) {
        *tail = name_one(parser);
        tail = &(*tail)->next;
    }
    node_parser_expect_symbol(parser, ')');
}

static void parse_table_columns(struct parser *parser, struct statement *statement)
{
    struct column_ast **tail = &statement->columns;
    node_parser_expect_symbol(parser, '(');
    do {
        if (node_parser_is_symbol(parser, ')'))
            break;
        if (node_parser_is_word(parser, "PRIMARY") && node_parser_next_is_word(parser, "KEY")) {
            node_parser_advance(parser);
            node_parser_advance(parser);
            node_parser_primary_key(parser, statement);
            continue;
        }
        struct column_ast *column = node_arena_alloc(parser->arena, sizeof *column);
        column->name = node_parser_name(parser, "a column");
        column->type = node_parser_type(parser);
        if (node_parser_accept_word(parser, "STATIC"))
            column->is_static = true;
        if (node_parser_accept_word(parser, "PRIMARY")) {
            node_parser_expect_word(parser, "KEY");
            if (statement->partition_key != NULL)
                node_parser_fail(parser, "one PRIMARY KEY");
            statement->partition_key = node_arena_alloc(parser->arena,
                                                        sizeof *statement->partition_key);
            statement->partition_key->name = column->name;
        }
        if (parser->failed)
            return;
        *tail = column;
        tail = &column->next;
    } while (node_parser_accept_symbol(parser, ','));
    node_parser_expect_symbol(parser, ')');
}

/* WITH a = b AND CLUSTERING ORDER BY (c DESC) AND COMPACT STORAGE AND ID = … */
void node_parser_table_options(struct parser *parser, struct statement *statement)
{
    struct option_list **tail = &statement->options;
    do {
        if (node_parser_accept_word(parser, "CLUSTERING")) {
            node_parser_expect_word(parser, "ORDER");
            node_parser_expect_word(parser, "BY");
            node_parser_expect_symbol(parser, '(');
            struct name_list **order = &statement->clustering_order;
            do {
                *order = name_one(parser);
                if (node_parser_accept_word(parser, "DESC"))
                    (*order)->descending = true;
                else
                    (void)node_parser_accept_word(parser, "ASC");
                order = &(*order)->next;
            } while (node_parser_accept_symbol(parser, ','));
            node_parser_expect_symbol(parser, ')');
        } else if (node_parser_accept_word(parser, "COMPACT")) {
            node_parser_expect_word(parser, "STORAGE");
        } else {
            struct option_list *option = node_arena_alloc(parser->arena, sizeof *option);
            option->name = node_parser_name(parser, "an option");
            node_parser_expect_symbol(parser, '=');
            option->value = node_parser_term(parser);
            if (parser->failed)
                return;
            *tail = option;
            tail = &option->next;
        }
    } while (node_parser_accept_word(parser, "AND"));
}

static void parse_create_table(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_CREATE_TABLE;
    node_parser_if_not_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    parse_table_columns(parser, statement);
    if (node_parser_accept_word(parser, "WITH"))
        node_parser_table_options(parser, statement);
}

static void parse_create_type(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_CREATE_TYPE;
    node_parser_if_not_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    node_parser_expect_symbol(parser, '(');
    struct column_ast **tail = &statement->columns;
    do {
        if (node_parser_is_symbol(parser, ')'))
            break;
        struct column_ast *column = node_arena_alloc(parser->arena, sizeof *column);
        column->name = node_parser_name(parser, "a field");
        column->type = node_parser_type(parser);
        if (parser->failed)
            return;
        *tail = column;
        tail = &column->next;
    } while (node_parser_accept_symbol(parser, ','));
    node_parser_expect_symbol(parser, ')');
}

/* CREATE [CUSTOM] INDEX [IF NOT EXISTS] [name] ON table ( [keys|values|entries|full (] column )
   [USING 'class'] [WITH …] */
static void parse_create_index(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_CREATE_INDEX;
    node_parser_if_not_exists(parser, statement);
    statement->name = slice_text("");
    if (!node_parser_is_word(parser, "ON"))
        node_parser_table_name(parser, &statement->keyspace, &statement->name);
    node_parser_expect_word(parser, "ON");
    node_parser_table_name(parser, &statement->index_keyspace, &statement->index_table);
    node_parser_expect_symbol(parser, '(');
    statement->index_target = node_parser_name(parser, "a column");
    if (node_parser_accept_symbol(parser, '(')) {
        statement->index_part = statement->index_target;
        statement->index_target = node_parser_name(parser, "a column");
        node_parser_expect_symbol(parser, ')');
    }
    node_parser_expect_symbol(parser, ')');
    if (node_parser_accept_word(parser, "USING")) {
        statement->index_class = parser->token.text;
        node_parser_advance(parser);
    }
    if (node_parser_accept_word(parser, "WITH"))
        statement->options = node_parser_options(parser);
}

void node_parse_create(struct parser *parser, struct statement *statement)
{
    node_parser_expect_word(parser, "CREATE");
    if (node_parser_accept_word(parser, "KEYSPACE") || node_parser_accept_word(parser, "SCHEMA")) {
        statement->kind = STATEMENT_CREATE_KEYSPACE;
        node_parser_if_not_exists(parser, statement);
        statement->name = node_parser_name(parser, "a keyspace");
        node_parser_expect_word(parser, "WITH");
        statement->options = node_parser_options(parser);
    } else if (node_parser_accept_word(parser, "TABLE") ||
               node_parser_accept_word(parser, "COLUMNFAMILY")) {
        parse_create_table(parser, statement);
    } else if (node_parser_accept_word(parser, "TYPE")) {
        parse_create_type(parser, statement);
    } else if (node_parser_is_word(parser, "INDEX") || node_parser_is_word(parser, "CUSTOM")) {
        (void)node_parser_accept_word(parser, "CUSTOM");
        node_parser_expect_word(parser, "INDEX");
        parse_create_index(parser, statement);
    } else if (node_parser_accept_word(parser, "MATERIALIZED")) {
        node_parser_expect_word(parser, "VIEW");
        node_parse_create_view(parser, statement);
    } else if (node_parser_is_word(parser, "OR") || node_parser_is_word(parser, "FUNCTION") ||
               node_parser_is_word(parser, "AGGREGATE")) {
        bool or_replace = node_parser_accept_word(parser, "OR");
        if (or_replace)
            node_parser_expect_word(parser, "REPLACE");
        bool is_aggregate = node_parser_accept_word(parser, "AGGREGATE");
        if (!is_aggregate)
            node_parser_expect_word(parser, "FUNCTION");
        node_parse_create_function(parser, statement, or_replace, is_aggregate);
    } else {
        node_parser_fail(parser, "KEYSPACE, TABLE, TYPE, INDEX, VIEW, FUNCTION or AGGREGATE");
    }
}

static void parse_alter_columns(struct parser *parser, struct statement *statement)
{
    bool parens = node_parser_accept_symbol(parser, '(');
    struct column_ast **tail = &statement->columns;
    do {
        struct column_ast *column = node_arena_alloc(parser->arena, sizeof *column);
        column->name = node_parser_name(parser, "a column");
        if (statement->alter == ALTER_ADD) {
            column->type = node_parser_type(parser);
            column->is_static = node_parser_accept_word(parser, "STATIC");
        }
        if (parser->failed)
            return;
        *tail = column;
        tail = &column->next;
    } while (node_parser_accept_symbol(parser, ','));
    if (parens)
        node_parser_expect_symbol(parser, ')');
}

static void parse_rename(struct parser *parser, struct statement *statement)
{
    struct column_ast **tail = &statement->columns;
    do {
        struct column_ast *column = node_arena_alloc(parser->arena, sizeof *column);
        column->name = node_parser_name(parser, "a column");
        node_parser_expect_word(parser, "TO");
        column->new_name = node_parser_name(parser, "a column");
        if (parser->failed)
            return;
        *tail = column;
        tail = &column->next;
    } while (node_parser_accept_word(parser, "AND"));
}

void node_parse_alter(struct parser *parser, struct statement *statement)
{
    node_parser_expect_word(parser, "ALTER");
    if (node_parser_accept_word(parser, "KEYSPACE") || node_parser_accept_word(parser, "SCHEMA")) {
        statement->kind = STATEMENT_ALTER_KEYSPACE;
        accept_if_exists(parser, statement);
        statement->name = node_parser_name(parser, "a keyspace");
        node_parser_expect_word(parser, "WITH");
        statement->options = node_parser_options(parser);
        return;
    }
    if (node_parser_accept_word(parser, "MATERIALIZED")) {
        node_parser_expect_word(parser, "VIEW");
        statement->kind = STATEMENT_ALTER_VIEW;
        statement->alter = ALTER_OPTIONS;
        accept_if_exists(parser, statement);
        node_parser_table_name(parser, &statement->keyspace, &statement->name);
        node_parser_expect_word(parser, "WITH");
        node_parser_table_options(parser, statement);
        return;
    }
    bool is_type = node_parser_accept_word(parser, "TYPE");
    if (!is_type && !node_parser_accept_word(parser, "COLUMNFAMILY"))
        node_parser_expect_word(parser, "TABLE");
    statement->kind = is_type ? STATEMENT_ALTER_TYPE : STATEMENT_ALTER_TABLE;
    accept_if_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    if (node_parser_accept_word(parser, "ADD")) {
        statement->alter = ALTER_ADD;
        node_parser_if_not_exists(parser, statement);
        parse_alter_columns(parser, statement);
    } else if (!is_type && node_parser_accept_word(parser, "DROP")) {
        statement->alter = ALTER_DROP;
        if (node_parser_is_word(parser, "COMPACT") && node_parser_next_is_word(parser, "STORAGE")) {
            node_parser_fail(parser, "a column");
            return;
        }
        parse_alter_columns(parser, statement);
    } else if (node_parser_accept_word(parser, "RENAME")) {
        statement->alter = ALTER_RENAME;
        parse_rename(parser, statement);
    } else if (!is_type && node_parser_accept_word(parser, "ALTER")) {
        /* Cassandra dropped it; kept because a column that changes its type is a case that drivers
           must survive. */
        statement->alter = ALTER_TYPE_OF;
        statement->columns = node_arena_alloc(parser->arena, sizeof *statement->columns);
        statement->columns->name = node_parser_name(parser, "a column");
        node_parser_expect_word(parser, "TYPE");
        statement->columns->type = node_parser_type(parser);
    } else if (!is_type && node_parser_accept_word(parser, "WITH")) {
        statement->alter = ALTER_OPTIONS;
        node_parser_table_options(parser, statement);
    } else {
        node_parser_fail(parser, "ADD, DROP, RENAME or WITH");
    }
}

void node_parse_drop(struct parser *parser, struct statement *statement)
{
    node_parser_expect_word(parser, "DROP");
    if (node_parser_accept_word(parser, "KEYSPACE") || node_parser_accept_word(parser, "SCHEMA")) {
        statement->kind = STATEMENT_DROP_KEYSPACE;
        accept_if_exists(parser, statement);
        statement->name = node_parser_name(parser, "a keyspace");
        return;
    }
    if (node_parser_accept_word(parser, "TABLE") || node_parser_accept_word(parser, "COLUMNFAMILY"))
        statement->kind = STATEMENT_DROP_TABLE;
    else if (node_parser_accept_word(parser, "TYPE"))
        statement->kind = STATEMENT_DROP_TYPE;
    else if (node_parser_accept_word(parser, "INDEX"))
        statement->kind = STATEMENT_DROP_INDEX;
    else if (node_parser_accept_word(parser, "FUNCTION"))
        statement->kind = STATEMENT_DROP_FUNCTION;
    else if (node_parser_accept_word(parser, "AGGREGATE"))
        statement->kind = STATEMENT_DROP_AGGREGATE;
    else if (node_parser_accept_word(parser, "MATERIALIZED")) {
        node_parser_expect_word(parser, "VIEW");
        statement->kind = STATEMENT_DROP_VIEW;
    } else {
        node_parser_fail(parser, "KEYSPACE, TABLE, TYPE, INDEX, VIEW, FUNCTION or AGGREGATE");
    }
    accept_if_exists(parser, statement);
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    if (statement->kind == STATEMENT_DROP_FUNCTION || statement->kind == STATEMENT_DROP_AGGREGATE)
        node_parse_drop_function(parser, statement);
}
