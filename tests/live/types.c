/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <stdlib.h>
#include <string.h>

/* types.tsv: id, cql_type, literal, payload in hex. Each row is written twice, as a literal in CQL and as a bound value,
   and read back with a SELECT: both must be the payload. A table with one column a type is made for all of them. */

enum { TYPES_MAX = 256, ROWS_MAX = 2048, PAYLOAD_MAX = 1 << 16, LINE_MAX_SIZE = 1 << 18 };

struct type_row {
    char *id, *type, *literal, *hex;
    uint32_t column;
};

struct type_column {
    const char *type;
    bool exists;
    cqlring_prepared *insert;
};

static struct type_row rows[ROWS_MAX];
static uint32_t row_count;
static struct type_column columns[TYPES_MAX];
static uint32_t column_count;

static bool is_file_read;

static uint32_t column_of(const char *type)
{
    for (uint32_t i = 0; i < column_count; ++i) {
        if (strcmp(columns[i].type, type) == 0)
            return i;
    }
    if (column_count == TYPES_MAX)
        return TYPES_MAX;
    columns[column_count] = (struct type_column){.type = type};
    return column_count++;
}

static void take_line(char *line)
{
    struct type_row row = {.id = strdup(line)};
    char *fields[4] = {row.id};
    for (int i = 1; i < 4; ++i) {
        char *tab = fields[i - 1] == NULL ? NULL : strchr(fields[i - 1], '\t');
        if (tab != NULL)
            *tab++ = '\0';
        fields[i] = tab;
    }
    if (fields[3] == NULL || row_count == ROWS_MAX) {
        (void)live_note("types: a line with fewer than four fields, or too many lines: %.40s", line);
        free(row.id);
        return;
    }
    row.type = fields[1];
    row.literal = fields[2];
    row.hex = fields[3];
    row.column = column_of(row.type);
    rows[row_count++] = row;
}

static bool read_file(void)
{
    if (is_file_read)
        return row_count > 0;
    is_file_read = true;
    FILE *file = fopen(live.types, "r");
    if (file == NULL)
        return false;
    char *line = malloc(LINE_MAX_SIZE);
    while (line != NULL && fgets(line, LINE_MAX_SIZE, file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\0' && line[0] != '#')
            take_line(line);
    }
    free(line);
    fclose(file);
    return row_count > 0;
}

/* Types that a CREATE TABLE names and that have to exist first: "udt" lines of the file are not types of cells. */
static void make_table(cqlring_session *session)
{
    (void)live_run(session, "DROP TABLE IF EXISTS cqlring_live.types");
    (void)live_run(session, "CREATE TABLE cqlring_live.types (id text PRIMARY KEY)");
    for (uint32_t i = 0; i < column_count; ++i) {
        if (strcmp(columns[i].type, "counter") == 0)
            continue; /* not beside other columns; batches write counters */
        live_begin("types: a column of type %s", columns[i].type);
        columns[i].exists = live_run(session, "ALTER TABLE cqlring_live.types ADD c%u %s", i, columns[i].type);
        live_end();
    }
}

/* Sizes: hex digits / 2; −1 "null". False when it is no hex. */
static bool payload_of(const char *hex, uint8_t *payload, cqlring_bytes *out)
{
    if (strcmp(hex, "null") == 0) {
        *out = (cqlring_bytes){NULL, CQLRING_NULL};
        return true;
    }
    size_t size = strlen(hex) / 2;
    if (strlen(hex) % 2 != 0 || size > PAYLOAD_MAX)
        return false;
    for (size_t i = 0; i < size; ++i) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        payload[i] = (uint8_t)byte;
    }
    *out = (cqlring_bytes){payload, (int32_t)size};
    return true;
}

static void check_column_type(cqlring_result *result, const char *wanted)
{
    cqlring_column column;
    char text[4096];
    if (!live_check(cqlring_result_column(result, 0, &column), "the column is described"))
        return;
    cqlring_type_format(column.type, text, sizeof text);
    /* The server's own words differ in blanks and in what it leaves to be understood as frozen: by parsing, where it can be
       parsed without knowing user-defined types. */
    cqlring_type *type = NULL;
    if (cqlring_type_parse(cqlring_text(wanted), &type, NULL) == CQLRING_OK) {
        char normal[4096];
        cqlring_type_format(type, normal, sizeof normal);
        if (strstr(normal, "frozen") == NULL && strstr(text, "frozen") == NULL && strcmp(normal, text) != 0)
            (void)live_note("the column is a %s, not a %s", text, normal);
        cqlring_type_release(type);
    }
}

static void read_back(cqlring_session *session, const struct type_row *row, const char *suffix, cqlring_bytes wanted)
{
    cqlring_result *result = live_query(session, "SELECT c%u FROM cqlring_live.types WHERE id = '%s%s'", row->column, row->id, suffix);
    if (result == NULL)
        return;
    cqlring_bytes cell = live_first(result);
    (void)live_bytes(cell, wanted, suffix[0] == 'l' ? "written as a literal" : "written as a bound value");
    check_column_type(result, row->type);
    cqlring_column column;
    if (cqlring_result_column(result, 0, &column))
        (void)live_ok(cqlring_value_check(column.type, cell), NULL, "the cell is well formed for its type");
    cqlring_result_release(result);
}

static void there_and_back(cqlring_session *session, const struct type_row *row)
{
    static uint8_t payload[PAYLOAD_MAX];
    cqlring_bytes value;
    struct type_column *column = &columns[row->column];
    if (!live_check(payload_of(row->hex, payload, &value), "the payload is hex"))
        return;
    if (strcmp(row->literal, "-") != 0 && row->literal[0] != '\0' &&
        live_run(session, "INSERT INTO cqlring_live.types (id, c%u) VALUES ('%sl', %s)", row->column, row->id, row->literal))
        read_back(session, row, "l", value);

    if (column->insert == NULL)
        column->insert = live_prepare(session, "INSERT INTO cqlring_live.types (id, c%u) VALUES (?, ?)", row->column);
    if (column->insert == NULL)
        return;
    char id[100];
    snprintf(id, sizeof id, "%sb", row->id);
    cqlring_bytes values[] = {cqlring_text(id), value};
    cqlring_request request = {.session = session, .prepared = column->insert, .values = values, .value_count = 2};
    cqlring_error error;
    if (live_ok(cqlring_execute_sync(&request, NULL, &error), &error, "INSERT of a bound value"))
        read_back(session, row, "b", value);
}

void live_types(const struct live_way *way)
{
    live_begin("types: the file is read");
    bool is_there = read_file();
    if (!is_there)
        live_skip("no types.tsv");
    live_end();
    if (!is_there)
        return;
    live_begin("types: the table is made, protocol v%d", way->version);
    cqlring_session *session = live_open(way, NULL);
    bool is_ready = session != NULL && live_keyspace(session);
    live_end();
    if (is_ready)
        make_table(session);
    for (uint32_t i = 0; is_ready && i < row_count; ++i) {
        struct type_row *row = &rows[i];
        if (row->column == TYPES_MAX || !columns[row->column].exists)
            continue;
        live_begin("types: %s %s, protocol v%d", row->id, row->type, way->version);
        there_and_back(session, row);
        live_end();
    }
    for (uint32_t i = 0; i < column_count; ++i) {
        cqlring_prepared_release(columns[i].insert);
        columns[i].insert = NULL;
    }
    cqlring_session_release(session);
}
