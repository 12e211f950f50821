/* SPDX-License-Identifier: Apache-2.0 */
/* run_vectors DIR…: runs every .tsv of the test vectors' format found in each DIR. Ends with "N
   passed, N failed" and with 1 when a row failed or nothing ran. */

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/vectors.h"

struct counts {
    uint64_t passed, failed, skipped;
};

/* --- what the functions of the rows call ------------------------------------------------------ */

static const char SHORT_FORM[] = "…";

/* Long values are cut in what is printed: the beginning is enough to recognise them. */
static void note(struct vector_row *row, const char *what, const char *got, const char *wanted)
{
    enum { SHOWN = 400 };
    row->failures++;
    printf("FAIL %s.tsv %s: %s: got %.*s%s, wanted %.*s%s\n", row->file, row->id, what, SHOWN, got,
           strlen(got) > SHOWN ? SHORT_FORM : "", SHOWN, wanted,
           strlen(wanted) > SHOWN ? SHORT_FORM : "");
}

void *vector_room(struct vector_row *row, size_t size)
{
    void *memory = cqr_arena_alloc(&row->arena, size);
    if (memory == NULL) {
        fprintf(stderr, "run_vectors: out of memory\n");
        exit(2);
    }
    return memory;
}

static int column_index(const struct vector_row *row, const char *column)
{
    for (uint32_t i = 0; i < row->field_count; i++) {
        if (strcmp(row->columns[i], column) == 0)
            return (int)i;
    }
    return -1;
}

const char *vector_text(struct vector_row *row, const char *column)
{
    int index = column_index(row, column);
    if (index >= 0)
        return row->fields[index];
    note(row, "column", "none", column);
    return "";
}

int64_t vector_int(struct vector_row *row, const char *column)
{
    const char *text = vector_text(row, column);
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        note(row, column, text, "a 64-bit integer");
    return value;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

cqlring_bytes vector_hex_of(struct vector_row *row, const char *hex)
{
    size_t size = strlen(hex) / 2;
    uint8_t *bytes = vector_room(row, size);
    for (size_t i = 0; i < size; i++) {
        int high = nibble(hex[2 * i]);
        int low = nibble(hex[2 * i + 1]);
        if (high < 0 || low < 0 || hex[2 * size] != '\0') {
            note(row, "hex", hex, "pairs of hex digits");
            return (cqlring_bytes){.data = bytes, .size = 0};
        }
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (hex[2 * size] != '\0')
        note(row, "hex", hex, "pairs of hex digits");
    return (cqlring_bytes){.data = bytes, .size = (int32_t)size};
}

cqlring_bytes vector_hex(struct vector_row *row, const char *column)
{
    return vector_hex_of(row, vector_text(row, column));
}

const char *vector_hex_text(struct vector_row *row, cqlring_bytes bytes)
{
    if (bytes.size < 0)
        return bytes.size == CQLRING_UNSET ? "unset" : "null";
    const uint8_t *data = bytes.data;
    char *text = vector_room(row, (size_t)bytes.size * 2 + 1);
    for (int32_t i = 0; i < bytes.size; i++) {
        text[2 * i] = "0123456789abcdef"[data[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[data[i] & 15];
    }
    return text;
}

json_t *vector_json(struct vector_row *row, const char *column)
{
    const char *text = vector_text(row, column);
    json_error_t error;
    json_t *document = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (document == NULL) {
        note(row, column, text, "JSON");
        return NULL;
    }
    if (row->document_count == VECTOR_FIELDS_MAX) {
        fprintf(stderr, "run_vectors: too many documents in one row\n");
        exit(2);
    }
    row->documents[row->document_count++] = document;
    return document;
}

bool vector_check(struct vector_row *row, bool held, const char *what)
{
    if (!held)
        note(row, what, "false", "true");
    return held;
}

bool vector_check_int(struct vector_row *row, const char *what, int64_t got, int64_t wanted)
{
    if (got == wanted)
        return true;
    char texts[2][32];
    snprintf(texts[0], sizeof texts[0], "%lld", (long long)got);
    snprintf(texts[1], sizeof texts[1], "%lld", (long long)wanted);
    note(row, what, texts[0], texts[1]);
    return false;
}

bool vector_check_text(struct vector_row *row, const char *what, const char *got,
                       const char *wanted)
{
    if (strcmp(got, wanted) == 0)
        return true;
    note(row, what, got, wanted);
    return false;
}

bool vector_check_bytes(struct vector_row *row, const char *what, cqlring_bytes got,
                        cqlring_bytes wanted)
{
    if (got.size == wanted.size &&
        (got.size <= 0 || memcmp(got.data, wanted.data, (size_t)got.size) == 0))
        return true;
    note(row, what, vector_hex_text(row, got), vector_hex_text(row, wanted));
    return false;
}

bool vector_check_status(struct vector_row *row, const char *what, cqlring_status got,
                         cqlring_status wanted)
{
    return vector_check_text(row, what, cqlring_status_name(got), cqlring_status_name(wanted));
}

bool vector_check_json(struct vector_row *row, const char *what, const json_t *got,
                       const json_t *wanted)
{
    if (got != NULL && wanted != NULL && json_equal(got, wanted))
        return true;
    char *texts[2] = {json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS),
                      json_dumps(wanted, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS)};
    note(row, what, texts[0] == NULL ? "nothing" : texts[0],
         texts[1] == NULL ? "nothing" : texts[1]);
    free(texts[0]);
    free(texts[1]);
    return false;
}

void vector_skip(struct vector_row *row, const char *reason)
{
    row->skipped = true;
    printf("SKIP %s.tsv %s: %s\n", row->file, row->id, reason);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Cuts line at tabs, in place. Returns the number of fields, 0 when there are more than the array
   has room for. */
static uint32_t split(char *line, const char **fields)
{
    uint32_t count = 0;
    for (char *at = line; at != NULL;) {
        if (count == VECTOR_FIELDS_MAX)
            return 0;
        fields[count++] = at;
        at = strchr(at, '\t');
        if (at != NULL)
            *at++ = '\0';
    }
    return count;
}

static bool same_columns(const char *blank_separated, const char *const *columns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strlen(columns[i]);
        if (strncmp(blank_separated, columns[i], size) != 0)
            return false;
        blank_separated += size;
        if (i + 1 < count && *blank_separated++ != ' ')
            return false;
    }
    return *blank_separated == '\0';
}

static const struct vector_file *find_file(const char *name, const char *const *columns,
                                           uint32_t count)
{
    const struct vector_file *const tables[] = {vectors_serialize, vectors_cql};
    for (uint32_t i = 0; i < 2; i++) {
        for (const struct vector_file *file = tables[i]; file->name != NULL; file++) {
            if (strcmp(file->name, name) == 0)
                return file;
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        for (const struct vector_file *file = tables[i]; file->name != NULL; file++) {
            if (same_columns(file->columns, columns, count))
                return file;
        }
    }
    return NULL;
}

static void run_row(const struct vector_file *file, struct vector_row *row, struct counts *counts)
{
    cqr_arena_init(&row->arena, SIZE_MAX / 2);
    row->failures = 0;
    row->skipped = false;
    row->document_count = 0;
    file->run(row);
    for (uint32_t i = 0; i < row->document_count; i++)
        json_decref(row->documents[i]);
    cqr_arena_fini(&row->arena);
    if (row->failures > 0)
        counts->failed++;
    else if (row->skipped)
        counts->skipped++;
    else
        counts->passed++;
}

static void fail_file(const char *path, const char *reason, struct counts *counts)
{
    printf("FAIL %s: %s\n", path, reason);
    counts->failed++;
}

static void run_file(const char *path, const char *name, struct counts *counts)
{
    static const char columns_mark[] = "# columns: ";
    FILE *stream = fopen(path, "r");
    if (stream == NULL) {
        fail_file(path, strerror(errno), counts);
        return;
    }
    struct counts before = *counts;
    struct vector_row row = {.file = name};
    const struct vector_file *file = NULL;
    uint32_t column_count = 0;
    char *header = NULL;
    char *line = NULL;
    size_t line_size = 0;
    ssize_t length;
    while ((length = getline(&line, &line_size, stream)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            line[--length] = '\0';
        if (strncmp(line, columns_mark, sizeof columns_mark - 1) == 0 && header == NULL) {
            header = strdup(line + sizeof columns_mark - 1);
            column_count = header == NULL ? 0 : split(header, row.columns);
            file = find_file(name, row.columns, column_count);
        }
        if (length == 0 || line[0] == '#')
            continue;
        if (file == NULL) {
            fail_file(path,
                      header == NULL ? "no \"# columns:\" line before the first row"
                                     : "unknown vector file",
                      counts);
            break;
        }
        row.field_count = split(line, row.fields);
        row.id = row.fields[0];
        if (row.field_count != column_count)
            fail_file(path, "a row has not as many fields as the file has columns", counts);
        else
            run_row(file, &row, counts);
    }
    free(line);
    free(header);
    fclose(stream);
    printf("%-28s %6llu passed, %llu failed", name,
           (unsigned long long)(counts->passed - before.passed),
           (unsigned long long)(counts->failed - before.failed));
    if (counts->skipped != before.skipped)
        printf(", %llu skipped", (unsigned long long)(counts->skipped - before.skipped));
    printf("\n");
}

static int is_tsv(const struct dirent *entry)
{
    size_t size = strlen(entry->d_name);
    return size > 4 && strcmp(entry->d_name + size - 4, ".tsv") == 0;
}

static void run_directory(const char *directory, struct counts *counts)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, is_tsv, alphasort);
    if (count < 0) {
        fail_file(directory, strerror(errno), counts);
        return;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        char name[256];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        snprintf(name, sizeof name, "%.*s", (int)strlen(entries[i]->d_name) - 4,
                 entries[i]->d_name);
        run_file(path, name, counts);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: run_vectors DIR…\n");
        return 2;
    }
    struct counts counts = {0};
    for (int i = 1; i < argc; i++)
        run_directory(argv[i], &counts);
    printf("%llu passed, %llu failed\n", (unsigned long long)counts.passed,
           (unsigned long long)counts.failed);
    return counts.failed > 0 || counts.passed == 0;
}
