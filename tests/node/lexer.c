/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/lexer.h"

#include "tests/node/memory.h"

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool is_hex(uint8_t c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
static bool is_word(uint8_t c)
{
    return is_letter(c) || is_digit(c) || c == '_';
}

void node_lexer_init(struct lexer *lexer, cqlring_bytes text)
{
    lexer->start = text.data == NULL ? (const uint8_t *)"" : slice_data(text);
    lexer->at = lexer->start;
    lexer->end = lexer->start + (text.size > 0 ? text.size : 0);
}

static uint8_t peek(const struct lexer *lexer, uint32_t ahead)
{
    return (size_t)(lexer->end - lexer->at) > ahead ? lexer->at[ahead] : 0;
}

/* Blanks and comments. false: a comment that does not end. */
static bool skip_blank(struct lexer *lexer)
{
    for (;;) {
        uint8_t c = peek(lexer, 0), next = peek(lexer, 1);
        if (lexer->at < lexer->end && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
            ++lexer->at;
        } else if ((c == '-' && next == '-') || (c == '/' && next == '/')) {
            while (lexer->at < lexer->end && *lexer->at != '\n')
                ++lexer->at;
        } else if (c == '/' && next == '*') {
            lexer->at += 2;
            while (!(peek(lexer, 0) == '*' && peek(lexer, 1) == '/')) {
                if (lexer->at >= lexer->end)
                    return false;
                ++lexer->at;
            }
            lexer->at += 2;
        } else {
            return true;
        }
    }
}

static struct token make(const struct lexer *lexer, enum token_kind kind, const uint8_t *from,
                         const uint8_t *to, const uint8_t *start)
{
    return (struct token){.kind = kind,
                          .text = slice_of(from, (size_t)(to - from)),
                          .offset = (uint32_t)(start - lexer->start)};
}

/* 'text' or "name", a doubled quote standing for itself. */
static struct token take_quoted(struct lexer *lexer, uint8_t quote, enum token_kind kind)
{
    const uint8_t *start = lexer->at++;
    const uint8_t *from = lexer->at;
    for (;; ++lexer->at) {
        if (lexer->at >= lexer->end)
            return make(lexer, TOKEN_BAD, start, lexer->end, start);
        if (*lexer->at == quote) {
            if (peek(lexer, 1) != quote)
                break;
            ++lexer->at;
        }
    }
    struct token token = make(lexer, kind, from, lexer->at, start);
    token.quoted = kind == TOKEN_NAME;
    ++lexer->at;
    return token;
}

static struct token take_dollars(struct lexer *lexer)
{
    const uint8_t *start = lexer->at;
    lexer->at += 2;
    const uint8_t *from = lexer->at;
    while (!(peek(lexer, 0) == '$' && peek(lexer, 1) == '$')) {
        if (lexer->at >= lexer->end)
            return make(lexer, TOKEN_BAD, start, lexer->end, start);
        ++lexer->at;
    }
    struct token token = make(lexer, TOKEN_STRING, from, lexer->at, start);
    token.quoted = true;
    lexer->at += 2;
    return token;
}

/* 8-4-4-4-12 hexadecimal digits at `at`, not followed by more of a word. */
static bool is_uuid(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 36)
        return false;
    for (int i = 0; i < 36; ++i) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? at[i] != '-' : !is_hex(at[i]))
            return false;
    }
    return end - at == 36 || !is_word(at[36]);
}

/* How far an ISO 8601 duration reaches (P1Y2M3DT4H5M6S, P3W, P0001-02-03T04:05:06), or NULL. */
static const uint8_t *iso_duration(const uint8_t *at, const uint8_t *end)
{
    if (at >= end || *at != 'P')
        return NULL;
    const uint8_t *from = ++at;
    bool digits = false;
    while (at < end && (is_digit(*at) || *at == '-' || *at == ':' ||
                        (is_letter(*at) && strchr("YMWDTHSymwdths", *at) != NULL))) {
        digits = digits || is_digit(*at);
        ++at;
    }
    bool starts = from < end && (is_digit(*from) || *from == 'T' || *from == 't');
    bool unit_last = is_letter(at[-1]) || (at - from > 10 && from[4] == '-');
    return digits && starts && unit_last && (at == end || !is_word(*at)) ? at : NULL;
}

/* How far a sequence of number and unit reaches (1y2mo3w4d5h6m7s8ms9us10ns, also µs), or NULL. */
static const uint8_t *unit_duration(const uint8_t *at, const uint8_t *end)
{
    bool any = false;
    while (at < end && is_digit(*at)) {
        while (at < end && is_digit(*at))
            ++at;
        const uint8_t *unit = at;
        while (at < end && (is_letter(*at) || *at >= 0x80))
            ++at;
        static const char *const units[] = {"y", "mo", "w",  "d",         "h", "m",
                                            "s", "ms", "us", "\xC2\xB5s", "ns"};
        bool known = false;
        for (size_t i = 0; i < sizeof units / sizeof units[0]; ++i)
            known = known || node_slice_is_nocase(slice_of(unit, (size_t)(at - unit)), units[i]);
        if (!known)
            return NULL;
        any = true;
    }
    return any && (at == end || !is_word(*at)) ? at : NULL;
}

static struct token take_number(struct lexer *lexer)
{
    const uint8_t *start = lexer->at;
    if (*lexer->at == '-')
        ++lexer->at;
    const uint8_t *stop = unit_duration(lexer->at, lexer->end);
    if (stop != NULL) {
        lexer->at = stop;
        return make(lexer, TOKEN_DURATION, start, stop, start);
    }
    while (is_digit(peek(lexer, 0)))
        ++lexer->at;
    bool real = false;
    if (peek(lexer, 0) == '.' && is_digit(peek(lexer, 1))) {
        real = true;
        ++lexer->at;
        while (is_digit(peek(lexer, 0)))
            ++lexer->at;
    } else if (peek(lexer, 0) == '.' && !is_word(peek(lexer, 1)) && peek(lexer, 1) != '.') {
        real = true; /* "1." */
        ++lexer->at;
    }
    uint8_t c = peek(lexer, 0);
    if (c == 'e' || c == 'E') {
        uint32_t sign = peek(lexer, 1) == '+' || peek(lexer, 1) == '-';
        if (is_digit(peek(lexer, 1 + sign))) {
            real = true;
            lexer->at += 1 + sign;
            while (is_digit(peek(lexer, 0)))
                ++lexer->at;
        }
    }
    if (is_word(peek(lexer, 0)))
        return make(lexer, TOKEN_BAD, start, lexer->at + 1, start);
    return make(lexer, real ? TOKEN_FLOAT : TOKEN_INTEGER, start, lexer->at, start);
}

struct token node_lexer_next(struct lexer *lexer)
{
    if (!skip_blank(lexer))
        return make(lexer, TOKEN_BAD, lexer->end, lexer->end, lexer->end);
    const uint8_t *start = lexer->at;
    if (start >= lexer->end)
        return make(lexer, TOKEN_END, start, start, start);
    uint8_t c = *start, next = peek(lexer, 1);
    if (is_hex(c) && is_uuid(start, lexer->end)) {
        lexer->at += 36;
        return make(lexer, TOKEN_UUID, start, lexer->at, start);
    }
    if (c == '0' && (next == 'x' || next == 'X')) {
        lexer->at += 2;
        while (is_hex(peek(lexer, 0)))
            ++lexer->at;
        enum token_kind kind = is_word(peek(lexer, 0)) ? TOKEN_BAD : TOKEN_BLOB;
        return make(lexer, kind, start + 2, lexer->at, start);
    }
    if (is_digit(c) || (c == '-' && is_digit(next)))
        return take_number(lexer);
    const uint8_t *stop = iso_duration(start + (c == '-'), lexer->end);
    if (stop != NULL) {
        lexer->at = stop;
        return make(lexer, TOKEN_DURATION, start, stop, start);
    }
    if (is_letter(c) || c == '_') {
        while (is_word(peek(lexer, 0)))
            ++lexer->at;
        return make(lexer, TOKEN_WORD, start, lexer->at, start);
    }
    if (c == '\'')
        return take_quoted(lexer, c, TOKEN_STRING);
    if (c == '"')
        return take_quoted(lexer, c, TOKEN_NAME);
    if (c == '$' && next == '$')
        return take_dollars(lexer);
    if (c == '?') {
        ++lexer->at;
        return make(lexer, TOKEN_BIND, start, lexer->at, start);
    }
    if (next == '=' && strchr("<>!+-", c) != NULL) {
        lexer->at += 2;
        return make(lexer, TOKEN_OPERATOR, start, lexer->at, start);
    }
    ++lexer->at;
    bool known = c != 0 && strchr("()[]{},;:.=<>+-*/%", c) != NULL;
    return make(lexer, known ? TOKEN_SYMBOL : TOKEN_BAD, start, lexer->at, start);
}
