/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <stdlib.h>
#include <string.h>

/* types.tsv is described in pytool.py. Each row is written twice, as a literal in CQL (its key ends with l) and as a bound
   value (b), and read back with a SELECT: both must be the payload. There is one table with a column a type, and one for
   counters, which bear no others beside them. pytool.py reads the same tables with another driver. */

enum { TYPES_MAX = 256, ROWS_MAX = 2048, DDL_MAX = 32, PAYLOAD_MAX = 1 << 16, LINE_SIZE_MAX = 1 << 18 };

struct type_row {
    char *id, *type, *literal, *hex;
    uint32_t column;
};

struct type_column {
    const char *type;
    bool is_counter, exists;
    cqlring_prepared *insert;
};

static struct type_row rows[ROWS_MAX];
static uint32_t row_count;
static struct type_column columns[TYPES_MAX];
static uint32_t column_count;
static char *ddl[DDL_MAX]; /* statements to run first, {ks} being the keyspace */
static uint32_t ddl_count;
static bool is_file_read;

static uint32_t column_of(const char *type)
{
    for (uint32_t i = 0; i < column_count; ++i) {
        if (strcmp(columns[i].type, type) == 0)
            return i;
    }
    if (column_count == TYPES_MAX)
        return TYPES_MAX;
    columns[column_count] = (struct type_column){.type = type, .is_counter = strcmp(type, "counter") == 0};
    return column_count++;
}

static void take_line(char *line)
{
    struct type_row row = {.id = strdup(line)};
    char *fields[5] = {row.id};
    for (int i = 1; i < 5; ++i) {
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
    char *line = malloc(LINE_SIZE_MAX);
    while (line != NULL && fgets(line, LINE_SIZE_MAX, file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strncmp(line, "# ddl: ", 7) == 0 && ddl_count < DDL_MAX)
            ddl[ddl_count++] = strdup(line + 7);
        else if (line[0] != '\0' && line[0] != '#')
            take_line(line);
    }
    free(line);
    fclose(file);
    return row_count > 0;
}

/* All columns at once; when the server does not take them, one by one, to see which it is. */
static bool make_table(cqlring_session *session)
{
    static char text[1 << 16];
    size_t size = 0;
    for (uint32_t i = 0; i < column_count; ++i) {
        columns[i].exists = true;
        if (!columns[i].is_counter)
            size += (size_t)snprintf(text + size, sizeof text - size, ", c%u %s", i, columns[i].type);
        if (size >= sizeof text)
            return live_note("too many types");
    }
    bool is_made = live_run(session, "DROP TABLE IF EXISTS cqlring_live.types") &&
                   live_run(session, "DROP TABLE IF EXISTS cqlring_live.counters");
    for (uint32_t i = 0; i < ddl_count && is_made; ++i) {
        char *at = strstr(ddl[i], "{ks}");
        is_made = at == NULL || live_run(session, "%.*scqlring_live%s", (int)(at - ddl[i]), ddl[i], at + 4);
    }
    is_made = is_made && live_run(session, "CREATE TABLE cqlring_live.counters (id text PRIMARY KEY, v counter)");
    if (!is_made || live_run(session, "CREATE TABLE cqlring_live.types (id text PRIMARY KEY%s)", text))
        return is_made;
    (void)live_run(session, "CREATE TABLE cqlring_live.types (id text PRIMARY KEY)");
    for (uint32_t i = 0; i < column_count; ++i) {
        if (!columns[i].is_counter)
            columns[i].exists = live_run(session, "ALTER TABLE cqlring_live.types ADD c%u %s", i, columns[i].type);
    }
    return true;
}

/* False when it is no hex. */
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

static void read_back(cqlring_session *session, const struct type_row *row, char suffix, cqlring_bytes wanted)
{
    cqlring_result *result =
        columns[row->column].is_counter
            ? live_query(session, "SELECT v FROM cqlring_live.counters WHERE id = '%s%c'", row->id, suffix)
            : live_query(session, "SELECT c%u FROM cqlring_live.types WHERE id = '%s%c'", row->column, row->id, suffix);
    if (result == NULL)
        return;
    cqlring_bytes cell = live_first(result);
    (void)live_bytes(cell, wanted, suffix == 'l' ? "written as a literal" : suffix == 'b' ? "written as a bound value" : "written by another");
    check_column_type(result, row->type);
    cqlring_column column;
    if (cqlring_result_column(result, 0, &column))
        (void)live_ok(cqlring_value_check(column.type, cell), NULL, "the cell is well formed for its type");
    cqlring_result_release(result);
}

static bool write_literal(cqlring_session *session, const struct type_row *row)
{
    if (columns[row->column].is_counter)
        return live_run(session, "UPDATE cqlring_live.counters SET v = v + %s WHERE id = '%sl'", row->literal, row->id);
    return live_run(session, "INSERT INTO cqlring_live.types (c%u, id) VALUES (%s, '%sl')", row->column, row->literal, row->id);
}

static bool write_bound(cqlring_session *session, const struct type_row *row, cqlring_bytes value)
{
    struct type_column *column = &columns[row->column];
    if (column->insert == NULL)
        column->insert = column->is_counter
                             ? live_prepare(session, "UPDATE cqlring_live.counters SET v = v + ? WHERE id = ?")
                             : live_prepare(session, "INSERT INTO cqlring_live.types (c%u, id) VALUES (?, ?)", row->column);
    if (column->insert == NULL)
        return false;
    char id[100];
    snprintf(id, sizeof id, "%sb", row->id);
    cqlring_bytes values[] = {value, cqlring_text(id)};
    cqlring_request request = {.session = session, .prepared = column->insert, .values = values, .value_count = 2};
    cqlring_error error;
    return live_ok(cqlring_execute_sync(&request, NULL, &error), &error, "write a bound value");
}

static void there_and_back(cqlring_session *session, const struct type_row *row)
{
    static uint8_t payload[PAYLOAD_MAX];
    cqlring_bytes value;
    if (!live_check(payload_of(row->hex, payload, &value), "the payload is hex"))
        return;
    bool has_literal = strcmp(row->literal, "-") != 0;
    if (has_literal && write_literal(session, row))
        read_back(session, row, 'l', value);
    if (write_bound(session, row, value))
        read_back(session, row, 'b', value);
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
    live_begin("types: the tables are made, protocol v%d", way->version);
    cqlring_session *session = live_open(way, NULL);
    bool is_ready = session != NULL && live_keyspace(session) && make_table(session);
    live_end();
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

void live_types_written_by(const struct live_way *way, char suffix)
{
    live_begin("types: rows of another driver, protocol v%d", way->version);
    cqlring_session *session = read_file() ? live_open(way, NULL) : NULL;
    (void)live_check(session != NULL && row_count > 0, "there is a file of types, and a session");
    live_end();
    for (uint32_t i = 0; session != NULL && i < row_count; ++i) {
        static uint8_t payload[PAYLOAD_MAX];
        cqlring_bytes value;
        live_begin("types: %s %s of another driver, protocol v%d", rows[i].id, rows[i].type, way->version);
        if (live_check(payload_of(rows[i].hex, payload, &value), "the payload is hex"))
            read_back(session, &rows[i], suffix, value);
        live_end();
    }
    cqlring_session_release(session);
}
