/* SPDX-License-Identifier: Apache-2.0 */
/* SELECT, INSERT, UPDATE, DELETE, BATCH. */
#include "tests/node/parser.h"

#include "cql/proto.h"

/* --- SELECT ----------------------------------------------------------------------------------- */

static struct selector *parse_selector(struct parser *parser);

static void parse_arguments(struct parser *parser, struct selector *selector)
{
    struct selector **tail = &selector->arguments;
    if (node_parser_accept_symbol(parser, ')'))
        return;
    do {
        struct selector *argument = parse_selector(parser);
        if (parser->failed)
            return;
        *tail = argument;
        tail = &argument->next;
        ++selector->argument_count;
    } while (node_parser_accept_symbol(parser, ','));
    node_parser_expect_symbol(parser, ')');
}

static void parse_call(struct parser *parser, struct selector *selector)
{
    selector->kind = SELECT_FUNCTION;
    selector->name = node_parser_name(parser, "a function");
    node_parser_expect_symbol(parser, '(');
    if (slice_is(selector->name, "count")) {
        selector->kind = SELECT_COUNT;
        if (node_parser_accept_symbol(parser, '*')) {
            node_parser_expect_symbol(parser, ')');
            return;
        }
    } else if (slice_is(selector->name, "writetime") || slice_is(selector->name, "maxwritetime")) {
        selector->kind = SELECT_WRITETIME;
    } else if (slice_is(selector->name, "ttl")) {
        selector->kind = SELECT_TTL;
    } else if (slice_is(selector->name, "token")) {
        selector->kind = SELECT_TOKEN;
    } else if (slice_is(selector->name, "cast")) {
        selector->kind = SELECT_CAST;
        selector->arguments = parse_selector(parser);
        selector->argument_count = 1;
        node_parser_expect_word(parser, "AS");
        selector->cast = node_parser_type(parser);
        node_parser_expect_symbol(parser, ')');
        return;
    }
    parse_arguments(parser, selector);
}

static struct selector *parse_selector(struct parser *parser)
{
    struct selector *selector = node_arena_alloc(parser->arena, sizeof *selector);
    selector->alias = SLICE_NULL;
    if (++parser->depth > PARSE_DEPTH_MAX)
        node_parser_fail(parser, "less nesting");
    bool name = parser->token.kind == TOKEN_WORD || parser->token.kind == TOKEN_NAME;
    bool literal = node_parser_is_word(parser, "NULL") || node_parser_is_word(parser, "TRUE") ||
                   node_parser_is_word(parser, "FALSE");
    if (parser->failed) {
        /* nothing */
    } else if (name && !(literal && !node_parser_next_is_symbol(parser, '(')) &&
               node_parser_next_is_symbol(parser, '(')) {
        parse_call(parser, selector);
    } else if (name && !literal) {
        selector->kind = SELECT_COLUMN;
        selector->name = node_parser_name(parser, "a column");
        if (node_parser_accept_symbol(parser, '.')) {
            selector->kind = SELECT_FIELD;
            selector->field = node_parser_name(parser, "a field");
        } else if (node_parser_accept_symbol(parser, '[')) {
            selector->kind = SELECT_ELEMENT;
            selector->term = node_parser_term(parser);
            node_parser_expect_symbol(parser, ']');
        }
    } else {
        selector->kind = SELECT_TERM;
        selector->term = node_parser_term(parser);
    }
    --parser->depth;
    return selector;
}

static void parse_selectors(struct parser *parser, struct statement *statement)
{
    if (node_parser_accept_symbol(parser, '*'))
        return;
    struct selector **tail = &statement->selectors;
    do {
        struct selector *selector = parse_selector(parser);
        if (node_parser_accept_word(parser, "AS"))
            selector->alias = node_parser_name(parser, "an alias");
        if (parser->failed)
            return;
        *tail = selector;
        tail = &selector->next;
        ++statement->selector_count;
    } while (node_parser_accept_symbol(parser, ',') && statement->selector_count < 0xFFFF);
}

static struct name_list *parse_names(struct parser *parser, bool order)
{
    struct name_list *list = NULL, **tail = &list;
    do {
        struct name_list *name = node_arena_alloc(parser->arena, sizeof *name);
        name->name = node_parser_name(parser, "a column");
        if (order && node_parser_accept_word(parser, "DESC"))
            name->descending = true;
        else if (order)
            (void)node_parser_accept_word(parser, "ASC");
        if (parser->failed)
            return list;
        *tail = name;
        tail = &name->next;
    } while (node_parser_accept_symbol(parser, ','));
    return list;
}

static void parse_select_tail(struct parser *parser, struct statement *statement)
{
    for (;;) {
        if (node_parser_accept_word(parser, "GROUP")) {
            node_parser_expect_word(parser, "BY");
            statement->group_by = parse_names(parser, false);
        } else if (node_parser_accept_word(parser, "ORDER")) {
            node_parser_expect_word(parser, "BY");
            statement->order_by = parse_names(parser, true);
        } else if (node_parser_accept_word(parser, "PER")) {
            node_parser_expect_word(parser, "PARTITION");
            node_parser_expect_word(parser, "LIMIT");
            statement->partition_limit = node_parser_term(parser);
        } else if (node_parser_accept_word(parser, "LIMIT")) {
            statement->limit = node_parser_term(parser);
        } else if (node_parser_accept_word(parser, "ALLOW")) {
            node_parser_expect_word(parser, "FILTERING");
            statement->allow_filtering = true;
        } else if (node_parser_accept_word(parser, "BYPASS")) {
            node_parser_expect_word(parser, "CACHE");
        } else if (node_parser_accept_word(parser, "USING")) {
            node_parser_expect_word(parser, "TIMEOUT");
            (void)node_parser_term(parser);
        } else {
            return;
        }
    }
}

void node_parse_select(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_SELECT;
    node_parser_expect_word(parser, "SELECT");
    if (node_parser_is_word(parser, "DISTINCT") && !node_parser_next_is_word(parser, "FROM") &&
        !node_parser_next_is_symbol(parser, ',')) {
        node_parser_advance(parser);
        statement->distinct = true;
    }
    parse_selectors(parser, statement);
    node_parser_expect_word(parser, "FROM");
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    if (node_parser_accept_word(parser, "WHERE"))
        node_parse_where(parser, &statement->where, false);
    parse_select_tail(parser, statement);
}

/* --- WHERE and IF ----------------------------------------------------------------------------- */

static bool parse_operator(struct parser *parser, enum relation_operator *op)
{
    if (node_parser_accept_operator(parser, "<="))
        *op = OP_LE;
    else if (node_parser_accept_operator(parser, ">="))
        *op = OP_GE;
    else if (node_parser_accept_operator(parser, "!="))
        *op = OP_NE;
    else if (node_parser_accept_symbol(parser, '='))
        *op = OP_EQ;
    else if (node_parser_accept_symbol(parser, '<'))
        *op = OP_LT;
    else if (node_parser_accept_symbol(parser, '>'))
        *op = OP_GT;
    else if (node_parser_accept_word(parser, "IN"))
        *op = OP_IN;
    else if (node_parser_accept_word(parser, "LIKE"))
        *op = OP_LIKE;
    else if (node_parser_accept_word(parser, "CONTAINS"))
        *op = node_parser_accept_word(parser, "KEY") ? OP_CONTAINS_KEY : OP_CONTAINS;
    else
        return false;
    return true;
}

static struct relation *parse_relation(struct parser *parser, bool conditions)
{
    struct relation *relation = node_arena_alloc(parser->arena, sizeof *relation);
    relation->field = SLICE_NULL;
    if (node_parser_is_word(parser, "TOKEN") && node_parser_next_is_symbol(parser, '(')) {
        relation->token = true;
        node_parser_advance(parser);
        node_parser_advance(parser);
        relation->columns = parse_names(parser, false);
        node_parser_expect_symbol(parser, ')');
    } else if (node_parser_accept_symbol(parser, '(')) {
        relation->multi = true;
        relation->columns = parse_names(parser, false);
        node_parser_expect_symbol(parser, ')');
    } else {
        relation->columns = node_arena_alloc(parser->arena, sizeof *relation->columns);
        relation->columns->name = node_parser_name(parser, "a column");
        if (node_parser_accept_symbol(parser, '[')) {
            relation->element = node_parser_term(parser);
            node_parser_expect_symbol(parser, ']');
        } else if (conditions && node_parser_accept_symbol(parser, '.')) {
            relation->field = node_parser_name(parser, "a field");
        }
    }
    if (node_parser_accept_word(parser, "IS")) {
        node_parser_expect_word(parser, "NOT");
        node_parser_expect_word(parser, "NULL");
        relation->op = OP_NOT_NULL;
        return relation;
    }
    if (!parse_operator(parser, &relation->op)) {
        node_parser_fail(parser, "an operator");
        return relation;
    }
    if (relation->op == OP_IN && node_parser_accept_symbol(parser, '(')) {
        relation->value_list = true;
        struct term **tail = &relation->values;
        if (node_parser_accept_symbol(parser, ')'))
            return relation;
        do {
            struct term *term = node_parser_term(parser);
            if (parser->failed)
                return relation;
            *tail = term;
            tail = &term->next;
        } while (node_parser_accept_symbol(parser, ','));
        node_parser_expect_symbol(parser, ')');
    } else {
        relation->value = node_parser_term(parser);
    }
    return relation;
}

void node_parse_where(struct parser *parser, struct relation **list, bool conditions)
{
    do {
        struct relation *relation = parse_relation(parser, conditions);
        if (parser->failed)
            return;
        *list = relation;
        list = &relation->next;
    } while (node_parser_accept_word(parser, "AND"));
}

static void parse_if(struct parser *parser, struct statement *statement)
{
    if (!node_parser_accept_word(parser, "IF"))
        return;
    if (node_parser_is_word(parser, "EXISTS") && !node_parser_next_is_symbol(parser, '=')) {
        node_parser_advance(parser);
        statement->if_exists = true;
    } else if (node_parser_is_word(parser, "NOT") && node_parser_next_is_word(parser, "EXISTS")) {
        node_parser_advance(parser);
        node_parser_advance(parser);
        statement->if_not_exists = true;
    } else {
        node_parse_where(parser, &statement->conditions, true);
    }
}

static void parse_using(struct parser *parser, struct statement *statement)
{
    if (!node_parser_accept_word(parser, "USING"))
        return;
    do {
        if (node_parser_accept_word(parser, "TIMESTAMP"))
            statement->timestamp = node_parser_term(parser);
        else if (node_parser_accept_word(parser, "TTL"))
            statement->ttl = node_parser_term(parser);
        else if (node_parser_accept_word(parser, "TIMEOUT"))
            (void)node_parser_term(parser);
        else
            node_parser_fail(parser, "TIMESTAMP or TTL");
    } while (node_parser_accept_word(parser, "AND"));
}

/* --- INSERT, UPDATE, DELETE ------------------------------------------------------------------- */

static void parse_insert(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_INSERT;
    node_parser_expect_word(parser, "INTO");
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    node_parser_expect_symbol(parser, '(');
    statement->insert_names = parse_names(parser, false);
    node_parser_expect_symbol(parser, ')');
    node_parser_expect_word(parser, "VALUES");
    node_parser_expect_symbol(parser, '(');
    struct term **tail = &statement->insert_values;
    do {
        struct term *term = node_parser_term(parser);
        if (parser->failed)
            return;
        *tail = term;
        tail = &term->next;
    } while (node_parser_accept_symbol(parser, ','));
    node_parser_expect_symbol(parser, ')');
    parse_if(parser, statement);
    parse_using(parser, statement);
}

/* What stands behind "name =". */
static void parse_assigned(struct parser *parser, struct assignment *assignment)
{
    bool name = parser->token.kind == TOKEN_WORD || parser->token.kind == TOKEN_NAME;
    bool literal = node_parser_is_word(parser, "NULL") || node_parser_is_word(parser, "TRUE") ||
                   node_parser_is_word(parser, "FALSE") || node_parser_is_word(parser, "NAN") ||
                   node_parser_is_word(parser, "INFINITY");
    if (name && !literal && !node_parser_next_is_symbol(parser, '(') &&
        !node_parser_next_is_symbol(parser, '.')) {
        cqlring_bytes column = node_parser_name(parser, "a column");
        if (!parser->failed && !slice_equal(column, assignment->name))
            node_parser_fail(parser, "the assigned column itself");
        if (parser->token.kind == TOKEN_INTEGER && slice_data(parser->token.text)[0] == '-') {
            assignment->kind = ASSIGN_ADD; /* "c -1": the sign belongs to the number */
        } else if (node_parser_accept_symbol(parser, '+')) {
            assignment->kind = ASSIGN_ADD;
        } else {
            node_parser_expect_symbol(parser, '-');
            assignment->kind = ASSIGN_SUBTRACT;
        }
        assignment->value = node_parser_term(parser);
        return;
    }
    assignment->kind = ASSIGN_SET;
    assignment->value = node_parser_term(parser);
    if (node_parser_accept_symbol(parser, '+')) {
        assignment->kind = ASSIGN_PREPEND;
        cqlring_bytes column = node_parser_name(parser, "a column");
        if (!parser->failed && !slice_equal(column, assignment->name))
            node_parser_fail(parser, "the assigned column itself");
    }
}

static struct assignment *parse_assignment(struct parser *parser)
{
    struct assignment *assignment = node_arena_alloc(parser->arena, sizeof *assignment);
    assignment->name = node_parser_name(parser, "a column");
    if (node_parser_accept_symbol(parser, '[')) {
        assignment->kind = ASSIGN_ELEMENT;
        assignment->element = node_parser_term(parser);
        node_parser_expect_symbol(parser, ']');
        node_parser_expect_symbol(parser, '=');
        assignment->value = node_parser_term(parser);
    } else if (node_parser_accept_symbol(parser, '.')) {
        assignment->kind = ASSIGN_FIELD;
        assignment->field = node_parser_name(parser, "a field");
        node_parser_expect_symbol(parser, '=');
        assignment->value = node_parser_term(parser);
    } else if (node_parser_accept_operator(parser, "+=")) {
        assignment->kind = ASSIGN_ADD;
        assignment->value = node_parser_term(parser);
    } else if (node_parser_accept_operator(parser, "-=")) {
        assignment->kind = ASSIGN_SUBTRACT;
        assignment->value = node_parser_term(parser);
    } else {
        node_parser_expect_symbol(parser, '=');
        parse_assigned(parser, assignment);
    }
    return assignment;
}

static void parse_update(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_UPDATE;
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    parse_using(parser, statement);
    node_parser_expect_word(parser, "SET");
    struct assignment **tail = &statement->assignments;
    do {
        struct assignment *assignment = parse_assignment(parser);
        if (parser->failed)
            return;
        *tail = assignment;
        tail = &assignment->next;
    } while (node_parser_accept_symbol(parser, ','));
    node_parser_expect_word(parser, "WHERE");
    node_parse_where(parser, &statement->where, false);
    parse_if(parser, statement);
}

static void parse_delete(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_DELETE;
    struct assignment **tail = &statement->assignments;
    if (!node_parser_is_word(parser, "FROM")) {
        do {
            struct assignment *assignment = node_arena_alloc(parser->arena, sizeof *assignment);
            assignment->kind = ASSIGN_DELETE;
            assignment->name = node_parser_name(parser, "a column");
            if (node_parser_accept_symbol(parser, '[')) {
                assignment->kind = ASSIGN_DELETE_ELEMENT;
                assignment->element = node_parser_term(parser);
                node_parser_expect_symbol(parser, ']');
            } else if (node_parser_accept_symbol(parser, '.')) {
                assignment->kind = ASSIGN_DELETE_FIELD;
                assignment->field = node_parser_name(parser, "a field");
            }
            if (parser->failed)
                return;
            *tail = assignment;
            tail = &assignment->next;
        } while (node_parser_accept_symbol(parser, ','));
    }
    node_parser_expect_word(parser, "FROM");
    node_parser_table_name(parser, &statement->keyspace, &statement->name);
    parse_using(parser, statement);
    node_parser_expect_word(parser, "WHERE");
    node_parse_where(parser, &statement->where, false);
    parse_if(parser, statement);
}

void node_parse_modification(struct parser *parser, struct statement *statement)
{
    if (node_parser_accept_word(parser, "INSERT")) {
        parse_insert(parser, statement);
    } else if (node_parser_accept_word(parser, "UPDATE")) {
        parse_update(parser, statement);
    } else {
        node_parser_expect_word(parser, "DELETE");
        parse_delete(parser, statement);
    }
}

void node_parse_batch(struct parser *parser, struct statement *statement)
{
    statement->kind = STATEMENT_BATCH;
    statement->batch_kind = BATCH_LOGGED;
    node_parser_expect_word(parser, "BEGIN");
    if (node_parser_accept_word(parser, "UNLOGGED"))
        statement->batch_kind = BATCH_UNLOGGED;
    else if (node_parser_accept_word(parser, "COUNTER"))
        statement->batch_kind = BATCH_COUNTER;
    node_parser_expect_word(parser, "BATCH");
    parse_using(parser, statement);
    struct statement **tail = &statement->children;
    while (!parser->failed && !node_parser_is_word(parser, "APPLY")) {
        struct statement *child = node_arena_alloc(parser->arena, sizeof *child);
        node_parse_modification(parser, child);
        (void)node_parser_accept_symbol(parser, ';');
        if (parser->failed || statement->child_count == 0xFFFF)
            break;
        *tail = child;
        tail = &child->next;
        ++statement->child_count;
    }
    node_parser_expect_word(parser, "APPLY");
    node_parser_expect_word(parser, "BATCH");
}
