/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_LEXER_H
#define NODE_LEXER_H

/* CQL text to tokens, one at a time, without memory: a token is a slice of the text. */

#include <stdbool.h>
#include <stdint.h>

#include "serialize/cqlring_types.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,    /* unquoted name or keyword */
    TOKEN_NAME,    /* "quoted name": text without the outer quotes, "" still doubled */
    TOKEN_STRING,  /* 'text': without the outer quotes, '' still doubled; $$text$$: raw */
    TOKEN_INTEGER, /* with sign */
    TOKEN_FLOAT,
    TOKEN_UUID,
    TOKEN_BLOB,     /* text without 0x */
    TOKEN_DURATION, /* 1h30m, P1Y2M, P1W, P0001-02-03T04:05:06; with sign */
    TOKEN_BIND,     /* ? */
    TOKEN_SYMBOL,   /* one of ( ) [ ] { } , ; : . = < > + - * / % */
    TOKEN_OPERATOR, /* <= >= != += -= */
    TOKEN_BAD
};

struct token {
    enum token_kind kind;
    bool quoted; /* NAME; STRING of $$ */
    cqlring_bytes text;
    uint32_t offset; /* where it starts in the statement */
};

struct lexer {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
};

void node_lexer_init(struct lexer *lexer, cqlring_bytes text);
struct token node_lexer_next(struct lexer *lexer);

#endif
