/* SPDX-License-Identifier: Apache-2.0 */

#include "metrics_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct family {
    char name[96], type[16], unit[16];
    bool helped;
    double bucket, le; /* of the histogram series being read */
};

#define rule(condition, what) ck_assert_msg(condition, what ": %s", line)

static bool is_name(char byte, bool first)
{
    return isalpha((unsigned char)byte) || byte == '_' || byte == ':' || (!first && isdigit((unsigned char)byte));
}

/* {name="value",…}; returns where it ends. */
static const char *labels_read(const char *line, const char *at)
{
    if (*at != '{')
        return at;
    at++;
    while (*at != '}') {
        rule(is_name(*at, true), "a label without a name");
        while (is_name(*at, false))
            at++;
        rule(at[0] == '=' && at[1] == '"', "a label without a value");
        for (at += 2; *at != '"'; at++) {
            rule(*at != '\0' && *at != '\n', "a label that does not end");
            if (*at == '\\') {
                at++;
                rule(*at == '\\' || *at == '"' || *at == 'n', "an unknown escape");
            }
        }
        at++;
        rule(*at == ',' || *at == '}', "labels that are not parted");
        at += *at == ',';
    }
    return at + 1;
}

static bool suffix_fits(const struct family *family, const char *suffix)
{
    if (strcmp(family->type, "counter") == 0)
        return strcmp(suffix, "_total") == 0;
    if (strcmp(family->type, "info") == 0)
        return strcmp(suffix, "_info") == 0;
    if (strcmp(family->type, "histogram") == 0)
        return strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_count") == 0 || strcmp(suffix, "_sum") == 0;
    return strcmp(family->type, "gauge") == 0 && suffix[0] == '\0';
}

static void histogram_read(const char *line, struct family *family, const struct metrics_sample *sample)
{
    const char *suffix = sample->name + strlen(family->name);
    if (strcmp(suffix, "_bucket") == 0) {
        const char *le = strstr(sample->labels, "le=\"");
        rule(le != NULL, "a bucket without le");
        double edge = strncmp(le + 4, "+Inf", 4) == 0 ? 1e300 : strtod(le + 4, NULL);
        rule(family->le < 0 || (edge > family->le && sample->value >= family->bucket), "a bucket below the one before it");
        family->le = edge;
        family->bucket = sample->value;
    } else if (strcmp(suffix, "_count") == 0) {
        rule(family->le > 1e299, "no last bucket +Inf");
        rule(sample->value == family->bucket, "a count that is not the last bucket");
        family->le = -1;
    }
}

static void sample_read(struct metrics_text *out, struct family *family, const char *line)
{
    ck_assert_uint_lt(out->count, METRICS_SAMPLES_MAX);
    struct metrics_sample *sample = &out->samples[out->count];
    const char *end = line;
    while (is_name(*end, end == line))
        end++;
    rule(end > line && (size_t)(end - line) < sizeof sample->name, "a sample without a name");
    snprintf(sample->name, sizeof sample->name, "%.*s", (int)(end - line), line);
    rule(strncmp(sample->name, family->name, strlen(family->name)) == 0 && suffix_fits(family, sample->name + strlen(family->name)),
         "a sample that is not its family's");
    rule(family->helped, "a family without help");
    const char *labels = end;
    end = labels_read(line, labels);
    rule((size_t)(end - labels) < sizeof sample->labels, "very long labels");
    snprintf(sample->labels, sizeof sample->labels, "%.*s", (int)(end - labels), labels);
    rule(*end == ' ', "no space before the value");
    char *rest;
    sample->value = strtod(end + 1, &rest);
    rule(rest > end + 1 && *rest == '\0', "a value that is no number");
    rule(sample->value >= 0, "a negative value");
    for (uint32_t i = 0; i < out->count; i++)
        rule(strcmp(out->samples[i].name, sample->name) != 0 || strcmp(out->samples[i].labels, sample->labels) != 0, "a sample twice");
    histogram_read(line, family, sample);
    out->count++;
}

static void comment_read(struct family *family, char (*seen)[96], uint32_t *seen_count, const char *line)
{
    char name[96], word[256];
    if (sscanf(line, "# TYPE %95s %15s", name, word) == 2) {
        for (uint32_t i = 0; i < *seen_count; i++)
            rule(strcmp(seen[i], name) != 0, "a family twice");
        snprintf(seen[(*seen_count)++], sizeof *seen, "%s", name);
        ck_assert_uint_lt(*seen_count, 128);
        *family = (struct family){.le = -1};
        snprintf(family->name, sizeof family->name, "%s", name);
        snprintf(family->type, sizeof family->type, "%.15s", word);
    } else if (sscanf(line, "# UNIT %95s %15s", name, word) == 2) {
        size_t length = strlen(name), unit = strlen(word);
        rule(strcmp(name, family->name) == 0 && length > unit && strcmp(name + length - unit, word) == 0, "a unit that the name does not end with");
    } else if (sscanf(line, "# HELP %95s %255s", name, word) == 2) {
        rule(strcmp(name, family->name) == 0, "help of another family");
        family->helped = true;
    } else {
        rule(false, "an unknown comment");
    }
}

void metrics_read(cqlring_runtime *runtime, struct metrics_text *out)
{
    size_t size = cqlring_metrics_text(runtime, NULL, 0) + 4096; /* it may grow between the calls */
    *out = (struct metrics_text){.text = malloc(size), .samples = calloc(METRICS_SAMPLES_MAX, sizeof *out->samples)};
    ck_assert(out->text != NULL && out->samples != NULL);
    size_t length = cqlring_metrics_text(runtime, out->text, size);
    ck_assert_uint_lt(length, size);
    ck_assert_uint_eq(strlen(out->text), length);
    static char seen[128][96];
    uint32_t seen_count = 0;
    struct family family = {.le = -1};
    char *copy = strdup(out->text), *at = copy;
    bool ended = false;
    while (*at != '\0') {
        char *line = at, *end = strchr(at, '\n');
        rule(end != NULL, "a last line without an end");
        *end = '\0';
        at = end + 1;
        rule(!ended, "something behind the end");
        if (strcmp(line, "# EOF") == 0)
            ended = true;
        else if (line[0] == '#')
            comment_read(&family, seen, &seen_count, line);
        else
            sample_read(out, &family, line);
    }
    ck_assert_msg(ended, "no end");
    free(copy);
}

void metrics_free(struct metrics_text *metrics)
{
    free(metrics->text);
    free(metrics->samples);
    memset(metrics, 0, sizeof *metrics);
}

double metrics_sum(const struct metrics_text *metrics, const char *name, const char *label)
{
    double sum = 0;
    for (uint32_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->samples[i].name, name) == 0 && strstr(metrics->samples[i].labels, label) != NULL)
            sum += metrics->samples[i].value;
    return sum;
}

uint32_t metrics_count(const struct metrics_text *metrics, const char *name, const char *label)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < metrics->count; i++)
        count += strcmp(metrics->samples[i].name, name) == 0 && strstr(metrics->samples[i].labels, label) != NULL;
    return count;
}
