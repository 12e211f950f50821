/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/words.h"

#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Behind the next `end_text`, or at the end. */
static const char *behind(const char *at, const char *end, const char *end_text)
{
    size_t size = strlen(end_text);
    while ((size_t)(end - at) >= size && memcmp(at, end_text, size) != 0)
        at++;
    return (size_t)(end - at) >= size ? at + size : end;
}

/* Behind the string, quoted name or comment that begins here; behind one character when none does. */
static const char *passed(const char *here, const char *end)
{
    bool two = end - here > 1;
    if (*here == '\'' || *here == '"') {
        const char quote[2] = {*here, '\0'};
        return behind(here + 1, end, quote); /* a doubled quote begins the next string at once */
    }
    if (two && memcmp(here, "$$", 2) == 0)
        return behind(here + 2, end, "$$");
    if (two && (memcmp(here, "--", 2) == 0 || memcmp(here, "//", 2) == 0))
        return behind(here + 2, end, "\n");
    if (two && memcmp(here, "/*", 2) == 0)
        return behind(here + 2, end, "*/");
    return here + 1;
}

/* The next bare word from *at on; its size, 0 when there is none. *at is then behind it. */
static size_t next_word(const char **at, const char *end, const char **word)
{
    const char *here = *at;
    while (here < end && !is_letter(*here))
        here = passed(here, end);
    *word = here;
    while (here < end && is_letter(*here))
        here++;
    *at = here;
    return (size_t)(here - *word);
}

static bool is_word(const char *word, size_t size, const char *wanted)
{
    if (strlen(wanted) != size)
        return false;
    for (size_t i = 0; i < size; i++)
        if ((word[i] >= 'A' && word[i] <= 'Z' ? word[i] | 0x20 : word[i]) != wanted[i])
            return false;
    return true;
}

static bool begins_with(cqlring_bytes cql, const char *wanted)
{
    const char *at = cql.data, *word;
    if (cql.size <= 0)
        return false;
    size_t size = next_word(&at, at + cql.size, &word);
    return is_word(word, size, wanted);
}

bool cqr_text_is_read(cqlring_bytes cql)
{
    return begins_with(cql, "select");
}

bool cqr_text_is_use(cqlring_bytes cql)
{
    return begins_with(cql, "use");
}

/* is_conditional is set for what changes data. */
static bool changes_data(cqlring_bytes cql, bool *is_conditional)
{
    const char *at = cql.data, *end = at + (cql.size > 0 ? cql.size : 0), *word;
    *is_conditional = false;
    if (cql.size <= 0)
        return false;
    size_t size = next_word(&at, end, &word);
    if (!is_word(word, size, "insert") && !is_word(word, size, "update") && !is_word(word, size, "delete") && !is_word(word, size, "begin"))
        return false;
    while (!*is_conditional && (size = next_word(&at, end, &word)) > 0)
        *is_conditional = is_word(word, size, "if");
    return true;
}

bool cqr_text_is_batch(cqlring_bytes cql)
{
    const char *at = cql.data, *word;
    if (cql.size <= 0)
        return false;
    size_t size = next_word(&at, at + cql.size, &word);
    return is_word(word, size, "begin");
}

bool cqr_text_is_by_key(cqlring_bytes cql)
{
    const char *at = cql.data, *word;
    if (cql.size <= 0 || memchr(at, '<', (size_t)cql.size) != NULL || memchr(at, '>', (size_t)cql.size) != NULL)
        return false;
    const char *end = at + cql.size;
    for (size_t size; (size = next_word(&at, end, &word)) > 0;)
        if (is_word(word, size, "in"))
            return false;
    return true;
}

bool cqr_text_is_conditional(cqlring_bytes cql)
{
    bool is_conditional;
    return changes_data(cql, &is_conditional) && is_conditional;
}

bool cqr_text_is_plain_write(cqlring_bytes cql)
{
    bool is_conditional;
    return changes_data(cql, &is_conditional) && !is_conditional;
}

/* Is this the quoted name that begins at *at? *at is then behind it. */
static bool is_quoted(const char **at, const char *end, const char *name)
{
    const char *here = *at + 1;
    bool is_same = true;
    for (; here < end; here++, name += is_same) {
        if (*here == '"' && (end - here == 1 || here[1] != '"'))
            break;
        here += *here == '"'; /* doubled */
        is_same = is_same && *name != '\0' && *here == *name;
    }
    bool has_end = here < end;
    *at = has_end ? here + 1 : end;
    return has_end && is_same && *name == '\0';
}

bool cqr_text_names(cqlring_bytes cql, const char *name)
{
    const char *at = cql.data, *end = at + (cql.size > 0 ? cql.size : 0);
    while (at < end) {
        if (is_letter(*at)) {
            const char *word;
            size_t size = next_word(&at, end, &word);
            if (is_word(word, size, name))
                return true;
        } else if (*at == '"') {
            if (is_quoted(&at, end, name))
                return true;
        } else {
            at = passed(at, end);
        }
    }
    return false;
}
