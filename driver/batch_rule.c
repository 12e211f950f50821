/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows of a job may share a batch, found out once, at its start. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "driver/batch_rows.h"
#include "driver/session_log.h"
#include "driver/words.h"

enum { ROWS_MAX = 64, BYTES_MIN = BATCH_LIMIT_FLOOR, BYTES_MAX = 16 << 20, BYTES = 32 << 10 };

static cqlring_status options_check(const cqlring_batch_by_partition *options, cqlring_error *error)
{
    if (options->struct_size < sizeof *options)
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: struct_size is %zu, expected %zu: set it to sizeof(cqlring_batch_by_partition)",
                         options->struct_size, sizeof *options);
    if (options->rows_max == 1 || options->rows_max > JOB_BATCH)
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: rows_max %u (2 to %d, 0 for %d)", options->rows_max, JOB_BATCH, ROWS_MAX);
    if (options->bytes_max != 0 && (options->bytes_max < BYTES_MIN || options->bytes_max > BYTES_MAX))
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: bytes_max %u (%d to %d, 0 for %d)", options->bytes_max, BYTES_MIN, BYTES_MAX, BYTES);
    if (options->look_rows == 1 || options->look_rows > JOB_BATCH)
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: look_rows %u (2 to %d, 0 for half the window, %d at most)", options->look_rows, JOB_BATCH,
                         JOB_BATCH);
    if (options->distinct > 1)
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: distinct %u (0 or 1)", options->distinct);
    return CQLRING_OK;
}

static bool alone(struct batch_statement *statement, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool alone(struct batch_statement *statement, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(statement->alone, sizeof statement->alone, format, arguments);
    va_end(arguments);
    return false;
}

/* The one marker of that name; −1: none, or several. */
static int32_t marker_of(const struct statement_version *version, const char *name)
{
    const struct columns *bind = &version->bind->columns;
    int32_t found = -1;
    for (uint32_t i = 0; i < bind->count; i++) {
        cqlring_bytes at = bind->array[i].name;
        if ((size_t)at.size != strlen(name) || memcmp(at.data, name, (size_t)at.size) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int32_t)i;
    }
    return found;
}

/* Are two values of this type the same only when their bytes are? Not decimal (1.0 and 1.00), varint (01 and 0001), boolean (1 and 2),
   floating point (NaNs), nor what is made of others. */
static bool is_equal_by_bytes(const cqlring_type *type)
{
    switch (cqlring_type_kind(type)) {
    case CQLRING_KIND_ASCII:
    case CQLRING_KIND_BIGINT:
    case CQLRING_KIND_BLOB:
    case CQLRING_KIND_INT:
    case CQLRING_KIND_TIMESTAMP:
    case CQLRING_KIND_UUID:
    case CQLRING_KIND_TEXT:
    case CQLRING_KIND_TIMEUUID:
    case CQLRING_KIND_INET:
    case CQLRING_KIND_DATE:
    case CQLRING_KIND_TIME:
    case CQLRING_KIND_SMALLINT:
    case CQLRING_KIND_TINYINT: return true;
    default: return false;
    }
}

/* A marker `:name` is called as its author likes, which may be as a column that it is not for; `?` is called as its column. Any colon
   counts: where it is in a literal, rows go alone, which is never wrong. */
static bool may_name_markers(const struct cqlring_prepared *prepared)
{
    return memchr(prepared->text, ':', prepared->text_size) != NULL;
}

/* A row of one whole primary key, all of it bound, and nothing that the partition's rows share. */
static bool writes_one_row(struct batch_statement *statement, cqlring_bytes text, const cqlring_schema_table *table)
{
    statement->key_count = 0;
    for (uint32_t i = 0; i < table->column_count; i++) {
        const cqlring_schema_column *column = table->columns[i];
        if (column->kind == CQLRING_STATIC && cqr_text_names(text, column->name))
            return alone(statement, "it names the static column \"%s\"", column->name);
        if (column->kind != CQLRING_CLUSTERING)
            continue;
        int32_t marker = marker_of(statement->version, column->name);
        if (!cqr_text_is_by_key(text))
            return alone(statement, "it may choose several rows");
        if (marker < 0 || statement->key_count == BATCH_KEYS_MAX)
            return alone(statement, "clustering column \"%s\" is not bound by one marker", column->name);
        if (!is_equal_by_bytes(statement->version->bind->columns.array[marker].type))
            return alone(statement, "the type of clustering column \"%s\" has several forms of one value", column->name);
        statement->keys[statement->key_count++] = (uint16_t)marker;
    }
    return statement->key_count > 0 || alone(statement, "its table has no clustering column: a row is a partition");
}

/* What needs no schema. */
static bool may_join(struct batch_statement *statement, cqlring_bytes text)
{
    const struct statement_version *version = statement->version;
    if (version->is_read)
        return alone(statement, "it reads");
    if (version->is_lwt || cqr_text_is_conditional(text))
        return alone(statement, "it has a condition");
    if (!cqr_text_is_plain_write(text) || cqr_text_is_batch(text))
        return alone(statement, "it is no INSERT, UPDATE or DELETE");
    return version->key_count > 0 || alone(statement, "its partition key is not bound by markers");
}

static cqlring_status statement_learn(struct batch_rule *rule, uint32_t index, struct cqlring_prepared *prepared, const cqlring_schema *schema, cqlring_error *error)
{
    struct batch_statement *statement = &rule->statements[index];
    const struct statement_version *version = statement->version = cqr_prepared_version(prepared);
    cqlring_bytes text = {prepared->text, (int32_t)prepared->text_size};
    statement->orders = !version->is_read && !version->is_counter;
    statement->table = (uint16_t)index;
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(rule->statements[i].version->keyspace, version->keyspace) == 0 && strcmp(rule->statements[i].version->table, version->table) == 0) {
            statement->table = (uint16_t)i;
            break;
        }
    if (!may_join(statement, text))
        return CQLRING_OK;
    /* `n = n + 1` has no marker that tells a counter */
    const cqlring_schema_table *table = schema != NULL ? cqlring_schema_find_table(schema, version->keyspace, version->table) : NULL;
    bool is_unclear = table == NULL && (memchr(text.data, '+', prepared->text_size) != NULL || memchr(text.data, '-', prepared->text_size) != NULL);
    if (version->is_counter || (table != NULL && table->is_counter)) {
        alone(statement, "it counts");
    } else if (is_unclear) {
        alone(statement, "it may count: without the schema a + or - in it is not told from a counter's");
    } else if (rule->distinct) {
        statement->joins = true;
    } else if (table == NULL) {
        return cqr_error(error, CQLRING_INVALID,
                         "batch_by_partition: the primary key of %s.%s is not known, and rows of the same one must not share a batch: have the schema read "
                         "(schema_metadata, or cqlring_schema_refresh), or set distinct when no two rows write the same cell",
                         version->keyspace, version->table);
    } else if (may_name_markers(prepared)) {
        alone(statement, "a colon in it may be one of named markers, which need not be called as their columns");
    } else {
        statement->joins = writes_one_row(statement, text, table);
    }
    return CQLRING_OK;
}

void cqr_batch_rule_tell(struct lane *lane, const struct job *job)
{
    const struct batch_rule *rule = job->batches;
    bool any = false;
    for (uint32_t i = 0; i < job->statement_count; i++)
        any = any || rule->statements[i].joins;
    for (uint32_t i = 0; i < job->statement_count; i++)
        if (!rule->statements[i].joins)
            cqr_session_log(lane, job->session, &(struct log_news){.level = any ? CQLRING_LOG_INFO : CQLRING_LOG_WARN, .version = rule->statements[i].version},
                            "%srows of this statement go alone: %s: %.*s", any ? "" : "batch_by_partition does nothing for this job: ", rule->statements[i].alone,
                            job->statements[i]->text_size < 300 ? (int)job->statements[i]->text_size : 300, job->statements[i]->text);
}

cqlring_status cqr_batch_rule_make(const cqlring_job_options *options, uint32_t window, const struct op_plan *plan, struct cqlring_cluster *cluster,
                                   cqlring_prepared *const *statements, uint32_t statement_count, struct batch_rule **out, cqlring_error *error)
{
    const cqlring_batch_by_partition *given = options->batch_by_partition;
    cqlring_status status = options_check(given, error);
    if (status != CQLRING_OK)
        return status;
    if (plan->params.tracing)
        return cqr_error(error, CQLRING_INVALID, "batch_by_partition: with tracing, each row has a trace of its own: leave one of them out");
    struct batch_rule *rule = cqr_mem_zalloc(sizeof *rule + statement_count * sizeof *rule->statements);
    if (rule == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_execute_concurrent: out of memory");
    rule->rows_max = given->rows_max != 0 ? given->rows_max : ROWS_MAX;
    rule->bytes_max = given->bytes_max != 0 ? given->bytes_max : BYTES;
    if (options->bytes_max != 0 && rule->bytes_max > options->bytes_max)
        rule->bytes_max = (uint32_t)options->bytes_max;
    if (rule->bytes_max > cluster->request_size_max) /* a row that is larger goes alone, and is refused */
        rule->bytes_max = cluster->request_size_max;
    rule->look_rows = given->look_rows != 0 ? given->look_rows : (window + 1) / 2;
    if (rule->look_rows > window)
        rule->look_rows = window;
    if (rule->look_rows > JOB_BATCH)
        rule->look_rows = JOB_BATCH;
    rule->distinct = given->distinct != 0;
    rule->plan = *plan;
    rule->plan.patient = plan->retry; /* as rows are */
    rule->plan.batch_kind = CQLRING_BATCH_UNLOGGED;
    cqr_plan_finish(&rule->plan, OPCODE_BATCH, false);
    cqlring_schema *schema = cqlring_schema_get(cluster);
    for (uint32_t i = 0; i < statement_count && status == CQLRING_OK; i++)
        status = statement_learn(rule, i, statements[i], schema, error);
    cqlring_schema_release(schema);
    if (status != CQLRING_OK) {
        cqr_mem_free(rule);
        return status;
    }
    *out = rule;
    return CQLRING_OK;
}
