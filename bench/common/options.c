/* SPDX-License-Identifier: Apache-2.0 */
#include "common/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void wrong_value(const char *program, const struct bench_option *option, const char *value)
{
    fprintf(stderr, "%s: %s: \"%s\" is not allowed: ", program, option->name, value);
    switch (option->kind) {
    case BENCH_NUMBER: fprintf(stderr, "a whole number from %" PRId64 " to %" PRId64 "\n", option->min, option->max); break;
    case BENCH_DECIMAL: fprintf(stderr, "a number from %" PRId64 " to %" PRId64 "\n", option->min, option->max); break;
    case BENCH_WORD:
        for (const char *const *word = option->words; *word != NULL; word++)
            fprintf(stderr, "%s%s", word == option->words ? "" : word[1] == NULL ? " or " : ", ", *word);
        fprintf(stderr, "\n");
        break;
    default: fprintf(stderr, "a text that is not empty\n"); break;
    }
    exit(2);
}

/* Digits only, with a minus before them where min allows it. */
static bool take_number(const struct bench_option *option, const char *text)
{
    const char *digits = text + (text[0] == '-' ? 1 : 0);
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return false;
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno != 0 || number < option->min || number > option->max)
        return false;
    if (option->size == sizeof(int64_t))
        *(int64_t *)option->value = number;
    else
        *(int32_t *)option->value = (int32_t)number;
    return true;
}

static bool take_decimal(const struct bench_option *option, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number) || number < (double)option->min || number > (double)option->max)
        return false;
    *(double *)option->value = number;
    return true;
}

static bool take_word(const struct bench_option *option, const char *text)
{
    for (int index = 0; option->words[index] != NULL; index++)
        if (strcmp(option->words[index], text) == 0) {
            *(int *)option->value = index;
            return true;
        }
    return false;
}

static bool take(const struct bench_option *option, const char *text)
{
    switch (option->kind) {
    case BENCH_NUMBER: return take_number(option, text);
    case BENCH_DECIMAL: return take_decimal(option, text);
    case BENCH_WORD: return take_word(option, text);
    default: *(const char **)option->value = text; return text[0] != '\0';
    }
}

void bench_options_parse(const char *program, const char *usage, const struct bench_option *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *given = argv[i], *equals = strncmp(given, "--", 2) == 0 ? strchr(given, '=') : NULL;
        size_t size = equals != NULL ? (size_t)(equals - given) : strlen(given);
        if (strcmp(given, "--help") == 0 || strcmp(given, "-h") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        const struct bench_option *option = options;
        while (option->name != NULL && (strlen(option->name) != size || strncmp(option->name, given, size) != 0))
            option++;
        if (option->name == NULL) {
            fprintf(stderr, "%s: %.*s is not an option; these are:\n%s", program, (int)size, given, usage);
            exit(2);
        }
        if (option->kind == BENCH_FLAG) {
            if (equals != NULL) {
                fprintf(stderr, "%s: %s takes no value, \"%s\" was given\n", program, option->name, equals + 1);
                exit(2);
            }
            *(bool *)option->value = option->set;
            continue;
        }
        const char *value = equals != NULL ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (value == NULL || (equals == NULL && strncmp(value, "--", 2) == 0)) {
            fprintf(stderr, "%s: %s needs a value\n", program, option->name);
            exit(2);
        }
        if (!take(option, value))
            wrong_value(program, option, value);
    }
}
