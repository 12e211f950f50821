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

/* The next bare word from *at on; its size, 0 when there is none. *at is then behind it. */
static size_t next_word(const char **at, const char *end, const char **word)
{
    const char *here = *at;
    while (here < end && !is_letter(*here)) {
        bool two = end - here > 1;
        if (*here == '\'' || *here == '"') {
            const char quote[2] = {*here, '\0'};
            here = behind(here + 1, end, quote); /* a doubled quote begins the next string at once */
        } else if (two && memcmp(here, "$$", 2) == 0) {
            here = behind(here + 2, end, "$$");
        } else if (two && (memcmp(here, "--", 2) == 0 || memcmp(here, "//", 2) == 0)) {
            here = behind(here + 2, end, "\n");
        } else if (two && memcmp(here, "/*", 2) == 0) {
            here = behind(here + 2, end, "*/");
        } else {
            here++;
        }
    }
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
        if ((word[i] | 0x20) != wanted[i])
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
