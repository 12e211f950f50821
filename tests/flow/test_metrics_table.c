/* SPDX-License-Identifier: Apache-2.0 */

/* The families of the metrics text, and the table of docs/operations.md that tells of them: the same. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"

enum { NAMES_MAX = 256 };

struct names {
    char text[NAMES_MAX][96];
    uint32_t count;
};

static bool has(const struct names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (strcmp(names->text[i], name) == 0)
            return true;
    return false;
}

static void add(struct names *names, const char *name)
{
    ck_assert_msg(!has(names, name), "%s is there twice", name);
    ck_assert_uint_lt(names->count, NAMES_MAX);
    snprintf(names->text[names->count++], sizeof names->text[0], "%s", name);
}

static void written(struct flow *flow, struct names *names)
{
    size_t size = cqlring_metrics_text(flow->runtime, NULL, 0) + 4096;
    char *text = malloc(size), name[96];
    ck_assert_uint_lt(cqlring_metrics_text(flow->runtime, text, size), size);
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        if (sscanf(line, "# TYPE %95s", name) == 1)
            add(names, name);
    free(text);
}

/* `cqlring_a_{b,c}_d`: both of them. */
static void expand(struct names *names, const char *from, const char *end)
{
    char name[96];
    const char *open = memchr(from, '{', (size_t)(end - from)), *close = memchr(from, '}', (size_t)(end - from));
    if (open == NULL || close == NULL) {
        snprintf(name, sizeof name, "%.*s", (int)(end - from), from);
        add(names, name);
        return;
    }
    for (const char *at = open + 1; at < close;) {
        size_t size = strcspn(at, ",}");
        snprintf(name, sizeof name, "%.*s%.*s%.*s", (int)(open - from), from, (int)size, at, (int)(end - close - 1), close + 1);
        add(names, name);
        at += size + 1;
    }
}

/* The names of the first column. */
static void told(struct names *names)
{
    char path[1024], line[2048];
    snprintf(path, sizeof path, "%.*s../../docs/operations.md", (int)(strrchr(__FILE__, '/') + 1 - __FILE__), __FILE__);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    bool is_table = false;
    while (fgets(line, sizeof line, file) != NULL) {
        ck_assert_msg(strchr(line, '\n') != NULL, "a line of %s is too long", path);
        if (strncmp(line, "| family |", 10) == 0)
            is_table = true;
        else if (line[0] != '|')
            is_table = false;
        const char *cell_end = is_table ? strchr(line + 1, '|') : NULL;
        for (const char *at = strchr(line, '`'); cell_end != NULL && at != NULL && at < cell_end; at = strchr(at, '`')) {
            const char *end = strchr(at + 1, '`');
            expand(names, at + 1, end);
            at = end + 1;
        }
    }
    fclose(file);
}

START_TEST(every_family_is_in_the_table_of_operations_and_every_line_of_it_is_one)
{
    struct flow flow;
    flow_up(&flow);
    static struct names in_text, in_table;
    in_text.count = in_table.count = 0;
    written(&flow, &in_text);
    told(&in_table);
    if (flow.threads == CQLRING_THREADS_CALLER)
        add(&in_text, "cqlring_cpu_seconds"); /* not written: the threads are the application's */
    ck_assert_uint_gt(in_text.count, 40);
    for (uint32_t i = 0; i < in_text.count; i++)
        ck_assert_msg(has(&in_table, in_text.text[i]), "%s is not in the table of docs/operations.md", in_text.text[i]);
    for (uint32_t i = 0; i < in_table.count; i++)
        ck_assert_msg(has(&in_text, in_table.text[i]), "%s, in the table of docs/operations.md, is no family", in_table.text[i]);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics_table");
    TCase *tcase = tcase_create("metrics_table");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_family_is_in_the_table_of_operations_and_every_line_of_it_is_one);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
