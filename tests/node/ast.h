/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_AST_H
#define NODE_AST_H

/* A CQL statement as a tree. Made by the parser (node_parse), in an arena of its own; names and
   literals are slices of that arena, already without quotes. The engine then resolves names to
   columns and fills the fields marked so. Lists are linked by `next`. */

#include <stdbool.h>
#include <stdint.h>

#include "serialize/cqlring_types.h"
#include "tests/node/memory.h"
#include "tests/node/types.h"

struct node_column;
struct node_table;

enum { NO_BIND = 0xFFFF };

enum term_kind {
    TERM_NULL,
    TERM_BIND,
    TERM_STRING,
    TERM_INTEGER,
    TERM_FLOAT, /* also NaN, Infinity */
    TERM_BOOLEAN,
    TERM_UUID,
    TERM_BLOB,
    TERM_DURATION,
    TERM_LIST,   /* [a, b] */
    TERM_BRACES, /* {} {a, b}: set, or an empty map */
    TERM_MAP,    /* {a: b}: children are key, value, key, value … */
    TERM_UDT,    /* {name: b}: children carry field */
    TERM_TUPLE,  /* (a, b) */
    TERM_CALL,   /* text(children) */
    TERM_CAST    /* (type) child */
};

struct term {
    struct term *next;
    enum term_kind kind;
    uint16_t bind;       /* TERM_BIND: its index */
    uint16_t count;      /* children */
    bool negative;       /* -Infinity */
    bool constant;       /* resolved: value holds the encoded payload */
    cqlring_bytes text;  /* literal, or function's name */
    cqlring_bytes field; /* child of TERM_UDT */
    struct term *children;
    struct type_ast *type; /* TERM_CAST */
    cqlring_bytes value;
};

/* A type as written; resolved against the keyspace's UDTs by the engine. */
struct type_ast {
    struct type_ast *next;
    cqlring_bytes name;     /* "int", "list", "frozen", a UDT's name, a class name */
    cqlring_bytes keyspace; /* of a UDT */
    bool quoted;            /* never a native type */
    bool class_name;        /* was a string literal */
    uint32_t dimension;     /* vector */
    uint16_t count;
    struct type_ast *children;
};

struct name_list {
    struct name_list *next;
    cqlring_bytes name;
    struct node_column *column; /* resolved */
    bool descending;            /* ORDER BY, CLUSTERING ORDER BY */
};

struct option_list {
    struct option_list *next;
    cqlring_bytes name;
    struct term *value;
};

enum relation_operator {
    OP_EQ,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_NE,
    OP_IN,
    OP_CONTAINS,
    OP_CONTAINS_KEY,
    OP_NOT_NULL,
    OP_LIKE
};

struct relation {
    struct relation *next;
    enum relation_operator op;
    bool token;                   /* token(columns) */
    bool multi;                   /* (columns): tuple comparison */
    struct name_list *columns;    /* one unless token or multi */
    struct term *element;         /* column[element], conditions and filters */
    cqlring_bytes field;          /* column.field in conditions; data NULL: none */
    struct term *value;           /* IN ?: the bound list */
    struct term *values;          /* IN (a, b) */
    bool value_list;              /* values is the right side */
    const struct node_type *type; /* resolved: of the value (of one element for IN) */
    bool used;                    /* planning: turned into a key restriction */
};

enum selector_kind {
    SELECT_COLUMN,
    SELECT_COUNT,
    SELECT_WRITETIME,
    SELECT_TTL,
    SELECT_TOKEN,
    SELECT_FUNCTION,
    SELECT_TERM,
    SELECT_CAST,
    SELECT_FIELD,
    SELECT_ELEMENT
};

struct selector {
    struct selector *next;
    enum selector_kind kind;
    cqlring_bytes name;    /* column, or function */
    cqlring_bytes alias;   /* data NULL: none */
    cqlring_bytes field;   /* SELECT_FIELD */
    struct term *term;     /* SELECT_TERM, SELECT_ELEMENT */
    struct type_ast *cast; /* SELECT_CAST */
    struct selector *arguments;
    uint16_t argument_count;
    struct node_column *column;   /* resolved */
    const struct node_type *type; /* resolved */
    cqlring_bytes label;          /* resolved: name in the metadata */
    uint16_t aggregate;           /* resolved: function number, 0 none */
    uint16_t function;            /* resolved */
};

enum assignment_kind {
    ASSIGN_SET,            /* c = v; INSERT too */
    ASSIGN_ADD,            /* c = c + v, c += v */
    ASSIGN_SUBTRACT,       /* c = c - v, c -= v */
    ASSIGN_PREPEND,        /* c = v + c */
    ASSIGN_ELEMENT,        /* c[k] = v */
    ASSIGN_FIELD,          /* c.f = v */
    ASSIGN_DELETE,         /* DELETE c */
    ASSIGN_DELETE_ELEMENT, /* DELETE c[k] */
    ASSIGN_DELETE_FIELD
};

struct assignment {
    struct assignment *next;
    enum assignment_kind kind;
    cqlring_bytes name;
    cqlring_bytes field;
    struct term *element;
    struct term *value;
    struct node_column *column; /* resolved */
};

struct column_ast {
    struct column_ast *next;
    cqlring_bytes name;
    cqlring_bytes new_name; /* RENAME */
    struct type_ast *type;
    bool is_static;
    bool primary;
};

enum statement_kind {
    STATEMENT_SELECT,
    STATEMENT_INSERT,
    STATEMENT_UPDATE,
    STATEMENT_DELETE,
    STATEMENT_BATCH,
    STATEMENT_TRUNCATE,
    STATEMENT_USE,
    STATEMENT_CREATE_KEYSPACE,
    STATEMENT_ALTER_KEYSPACE,
    STATEMENT_DROP_KEYSPACE,
    STATEMENT_CREATE_TABLE,
    STATEMENT_ALTER_TABLE,
    STATEMENT_DROP_TABLE,
    STATEMENT_CREATE_TYPE,
    STATEMENT_ALTER_TYPE,
    STATEMENT_DROP_TYPE,
    STATEMENT_CREATE_INDEX,
    STATEMENT_DROP_INDEX,
    STATEMENT_CREATE_VIEW,
    STATEMENT_ALTER_VIEW,
    STATEMENT_DROP_VIEW,
    STATEMENT_CREATE_FUNCTION,
    STATEMENT_DROP_FUNCTION,
    STATEMENT_CREATE_AGGREGATE,
    STATEMENT_DROP_AGGREGATE,
    STATEMENT_LIST /* LIST ROLES …: answered empty */
};

enum alter_kind { ALTER_ADD, ALTER_DROP, ALTER_RENAME, ALTER_OPTIONS, ALTER_TYPE_OF };

/* CREATE and DROP of functions and aggregates, beside the arguments, which are `columns`. */
struct function_ast {
    bool or_replace, called_on_null, has_arguments;
    struct type_ast *returns, *state_type;
    cqlring_bytes language, body, state_function, final_function;
    cqlring_bytes initial; /* as it was written */
};

struct bind_marker {
    cqlring_bytes name;            /* named marker; data NULL: ? */
    cqlring_bytes keyspace, table; /* resolved, as is the rest */
    cqlring_bytes label;
    const struct node_type *type;
    struct node_column *column; /* when it gives a whole column */
};

struct statement {
    struct statement *next; /* child of a batch */
    enum statement_kind kind;
    cqlring_bytes keyspace; /* as written; size 0: the session's */
    cqlring_bytes name;     /* table, type, index, keyspace */
    bool if_exists, if_not_exists;

    struct name_list *insert_names; /* INSERT */
    struct term *insert_values;

    struct assignment *assignments; /* UPDATE, DELETE */
    struct relation *where;
    struct relation *conditions;
    struct term *timestamp, *ttl;

    struct selector *selectors; /* SELECT; NULL: * */
    uint16_t selector_count;
    bool distinct, allow_filtering;
    struct name_list *order_by, *group_by;
    struct term *limit, *partition_limit;

    struct statement *children; /* BATCH */
    uint16_t child_count;
    uint8_t batch_kind;

    struct column_ast *columns; /* tables, types */
    struct name_list *partition_key, *clustering_key, *clustering_order;
    struct option_list *options;
    enum alter_kind alter;
    cqlring_bytes index_target; /* CREATE INDEX */
    cqlring_bytes index_keyspace, index_table; /* of a view: its base */
    cqlring_bytes index_part;                  /* "values" of values(column); data NULL: none */
    cqlring_bytes index_class;
    struct function_ast *function;
    cqlring_bytes view_where; /* as it was written */

    struct bind_marker *binds; /* of the whole statement, on the root only */
    uint16_t bind_count;

    struct node_table *table;   /* resolved */
    struct select_plan *plan;   /* resolved, SELECT */
    struct modify_plan *modify; /* resolved, INSERT, UPDATE, DELETE */
};

/* NULL: not understood; message (never NULL) tells where and why, code is 0x2000. limits: nesting
   32, text size the caller's. */
struct statement *node_parse(struct node_arena *arena, cqlring_bytes text, char *message,
                             size_t message_size);

/* A type alone ("map<text, frozen<list<int>>>"). */
struct type_ast *node_parse_type(struct node_arena *arena, cqlring_bytes text);

#endif
