/* SPDX-License-Identifier: Apache-2.0 */

/* A snapshot as CQL. Types, defaults of aggregates, conditions of views and targets of indexes are the server's own text, which it
   reads again as it wrote it; the rest is put together here. */

#include <string.h>

#include "driver/schema_rows.h"
#include "serialize/type.h"

/* Counts on beyond its end, as snprintf does. */
struct out {
    char *text;
    size_t capacity;
    size_t size;
};

static void put_bytes(struct out *out, const char *text, size_t size)
{
    if (out->size < out->capacity) {
        size_t room = out->capacity - out->size;
        memcpy(out->text + out->size, text, size < room ? size : room);
    }
    out->size += size;
}

static void put(struct out *out, const char *text)
{
    put_bytes(out, text, strlen(text));
}

/* In quotes of this kind, which are doubled inside. */
static void put_quoted(struct out *out, const char *text, char quote)
{
    put_bytes(out, &quote, 1);
    for (; *text != '\0'; text++) {
        if (*text == quote)
            put_bytes(out, &quote, 1);
        put_bytes(out, text, 1);
    }
    put_bytes(out, &quote, 1);
}

/* Words that are no names without quotes, with Cassandra or ScyllaDB, in order. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {
        "add",      "allow",    "alter",  "and",      "apply",   "asc",     "authorize", "batch",    "begin",        "between", "by",      "bypass",
        "cast",     "columnfamily", "create", "default", "delete", "desc",  "describe",  "drop",     "entries",      "execute", "from",    "full",
        "grant",    "group",    "if",     "in",       "index",   "infinity", "insert",   "into",     "is",           "keyspace", "like",   "limit",
        "masked",   "materialized", "mbean", "mbeans", "modify", "nan",     "norecursive", "not",    "null",         "of",      "on",      "or",
        "order",    "primary",  "rename", "replace",  "revoke",  "schema",  "scylla_clustering_bound", "scylla_counter_shard_list", "scylla_timeuuid_list_index",
        "select",   "selectmasked", "set", "static",  "table",   "timeout", "to",        "token",    "truncate",     "unlogged", "unmask", "unset",
        "update",   "use",      "user",   "using",    "view",    "where",   "with",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

static void put_name(struct out *out, const char *name)
{
    bool plain = name[0] >= 'a' && name[0] <= 'z';
    for (const char *at = name; *at != '\0' && plain; at++)
        plain = (*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '_';
    if (plain && !is_reserved(name))
        put(out, name);
    else
        put_quoted(out, name, '"');
}

static void put_full_name(struct out *out, const char *keyspace, const char *name)
{
    put_name(out, keyspace);
    put(out, ".");
    put_name(out, name);
}

static void put_map(struct out *out, const cqlring_schema_pair *pairs, uint32_t count, const char *without_1, const char *without_2)
{
    bool first = true;
    put(out, "{");
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(pairs[i].name, without_1) == 0 || strcmp(pairs[i].name, without_2) == 0)
            continue;
        put(out, first ? "" : ", ");
        first = false;
        put_quoted(out, pairs[i].name, '\'');
        put(out, ": ");
        put_quoted(out, pairs[i].value, '\'');
    }
    put(out, "}");
}

static void put_keyspace(struct out *out, const cqlring_schema_keyspace *keyspace)
{
    put(out, "CREATE KEYSPACE ");
    put_name(out, keyspace->name);
    put(out, " WITH replication = ");
    put_map(out, keyspace->replication, keyspace->replication_count, "", "");
    put(out, keyspace->durable_writes ? " AND durable_writes = true" : " AND durable_writes = false");
    if (keyspace->tablets >= 0)
        put(out, keyspace->tablets > 0 ? " AND tablets = {'enabled': true}" : " AND tablets = {'enabled': false}");
    put(out, ";\n");
}

static void put_type(struct out *out, const cqlring_schema_type *type)
{
    put(out, "CREATE TYPE ");
    put_full_name(out, type->keyspace, type->name);
    put(out, " (");
    for (uint32_t i = 0; i < type->field_count; i++) {
        put(out, i == 0 ? "\n    " : ",\n    ");
        put_name(out, type->field_names[i]);
        put(out, " ");
        put(out, type->field_types[i]);
    }
    put(out, "\n);\n");
}

static void put_primary_key(struct out *out, const cqlring_schema_table *table)
{
    put(out, "PRIMARY KEY (");
    put(out, table->partition_key_count > 1 ? "(" : "");
    for (uint32_t i = 0; i < table->partition_key_count; i++) {
        put(out, i == 0 ? "" : ", ");
        put_name(out, table->columns[i]->name);
    }
    put(out, table->partition_key_count > 1 ? ")" : "");
    for (uint32_t i = 0; i < table->clustering_count; i++) {
        put(out, ", ");
        put_name(out, table->columns[table->partition_key_count + i]->name);
    }
    put(out, ")");
}

static void put_options(struct out *out, const cqlring_schema_table *table)
{
    const char *before = "WITH ";
    if (table->is_compact) {
        put(out, "WITH COMPACT STORAGE");
        before = "\n    AND ";
    }
    if (table->clustering_count > 0) {
        put(out, before);
        put(out, "CLUSTERING ORDER BY (");
        for (uint32_t i = 0; i < table->clustering_count; i++) {
            const cqlring_schema_column *column = table->columns[table->partition_key_count + i];
            put(out, i == 0 ? "" : ", ");
            put_name(out, column->name);
            put(out, column->is_descending ? " DESC" : " ASC");
        }
        put(out, ")");
        before = "\n    AND ";
    }
    for (uint32_t i = 0; i < table->option_count; i++) {
        put(out, before);
        put(out, table->options[i].name);
        put(out, " = ");
        put(out, table->options[i].value);
        before = "\n    AND ";
    }
}

static void put_view(struct out *out, const cqlring_schema_table *view)
{
    put(out, "CREATE MATERIALIZED VIEW ");
    put_full_name(out, view->keyspace, view->name);
    put(out, " AS\n    SELECT ");
    put(out, view->includes_all_columns ? "*" : "");
    for (uint32_t i = 0; i < view->column_count && !view->includes_all_columns; i++) {
        put(out, i == 0 ? "" : ", ");
        put_name(out, view->columns[i]->name);
    }
    put(out, "\n    FROM ");
    put_full_name(out, view->keyspace, view->base_table);
    put(out, "\n    WHERE ");
    put(out, view->where_clause);
    put(out, "\n    ");
    put_primary_key(out, view);
    put(out, "\n    ");
    put_options(out, view);
    put(out, ";\n");
}

static void put_table(struct out *out, const cqlring_schema_table *table)
{
    if (table->is_view) {
        put_view(out, table);
        return;
    }
    put(out, "CREATE TABLE ");
    put_full_name(out, table->keyspace, table->name);
    put(out, " (");
    for (uint32_t i = 0; i < table->column_count; i++) {
        const cqlring_schema_column *column = table->columns[i];
        if (strcmp(column->type_text, "empty") == 0) /* stands for "no column" in tables with COMPACT STORAGE */
            continue;
        put(out, "\n    ");
        put_name(out, column->name);
        put(out, " ");
        put(out, column->type_text);
        put(out, column->kind == CQLRING_STATIC && !table->is_compact ? " static," : ",");
    }
    put(out, "\n    ");
    put_primary_key(out, table);
    put(out, "\n) ");
    put_options(out, table);
    put(out, ";\n");
}

/* ScyllaDB writes the target of a local index as {"pk":["a","b"],"ck":["c"]}: the texts in it, in order. False: not that. */
static bool put_local_target(struct out *out, const char *target)
{
    const char *clustering = strstr(target, "\"ck\"");
    if (target[0] != '{' || clustering == NULL)
        return false;
    bool in_text = false, is_first = true;
    const char *from = target;
    put(out, "(");
    for (const char *at = target; *at != '\0'; at++) {
        if (*at != '"')
            continue;
        in_text = !in_text;
        if (in_text) {
            from = at + 1;
            continue;
        }
        char name[256];
        size_t size = (size_t)(at - from);
        if (size >= sizeof name)
            return false;
        memcpy(name, from, size);
        name[size] = '\0';
        if (from == clustering + 1) {
            put(out, ")");
            is_first = false;
        } else if (strcmp(name, "pk") != 0) {
            put(out, is_first ? "" : ", ");
            put_name(out, name);
            is_first = false;
        }
    }
    return true;
}

static void put_index(struct out *out, const cqlring_schema_table *table, const cqlring_schema_index *index)
{
    bool is_custom = strcmp(index->kind, "CUSTOM") == 0;
    const char *class_name = "";
    uint32_t others = 0;
    for (uint32_t i = 0; i < index->option_count; i++) {
        if (strcmp(index->options[i].name, "class_name") == 0)
            class_name = index->options[i].value;
        else
            others += strcmp(index->options[i].name, "target") != 0;
    }
    put(out, is_custom ? "CREATE CUSTOM INDEX " : "CREATE INDEX ");
    put_name(out, index->name);
    put(out, " ON ");
    put_full_name(out, table->keyspace, table->name);
    put(out, " (");
    size_t before = out->size;
    if (!put_local_target(out, index->target)) {
        out->size = before;
        put(out, index->target);
    }
    put(out, ")");
    if (is_custom) {
        put(out, " USING ");
        put_quoted(out, class_name, '\'');
        if (others > 0) {
            put(out, " WITH OPTIONS = ");
            put_map(out, index->options, index->option_count, "target", "class_name");
        }
    }
    put(out, ";\n");
}

/* Types of arguments are always frozen, and must not be written so. */
static void put_argument_type(struct out *out, const char *type)
{
    size_t size = strlen(type);
    if (size > 8 && memcmp(type, "frozen<", 7) == 0 && type[size - 1] == '>')
        put_bytes(out, type + 7, size - 8);
    else
        put(out, type);
}

static void put_function(struct out *out, const cqlring_schema_function *function)
{
    put(out, function->is_aggregate ? "CREATE AGGREGATE " : "CREATE FUNCTION ");
    put_full_name(out, function->keyspace, function->name);
    put(out, " (");
    for (uint32_t i = 0; i < function->argument_count; i++) {
        put(out, i == 0 ? "" : ", ");
        if (!function->is_aggregate) {
            put_name(out, function->argument_names[i]);
            put(out, " ");
        }
        put_argument_type(out, function->argument_types[i]);
    }
    put(out, ")");
    if (function->is_aggregate) {
        put(out, "\n    SFUNC ");
        put_name(out, function->state_function);
        put(out, "\n    STYPE ");
        put_argument_type(out, function->state_type);
        if (function->final_function[0] != '\0') {
            put(out, "\n    FINALFUNC ");
            put_name(out, function->final_function);
        }
        if (function->initial[0] != '\0') {
            put(out, "\n    INITCOND ");
            put(out, function->initial);
        }
    } else {
        put(out, function->called_on_null ? "\n    CALLED ON NULL INPUT" : "\n    RETURNS NULL ON NULL INPUT");
        put(out, "\n    RETURNS ");
        put_argument_type(out, function->return_type);
        put(out, "\n    LANGUAGE ");
        put(out, function->language);
        put(out, "\n    AS ");
        if (strstr(function->body, "$$") != NULL || (function->body[0] != '\0' && function->body[strlen(function->body) - 1] == '$')) {
            put_quoted(out, function->body, '\'');
        } else {
            put(out, "$$");
            put(out, function->body);
            put(out, "$$");
        }
    }
    put(out, ";\n");
}

/* Types first, those that others use before them: they are less deep. */
static void put_everything(struct out *out, const cqlring_schema_keyspace *keyspace)
{
    put_keyspace(out, keyspace);
    for (uint32_t depth = 0; depth <= CQLRING_DEPTH_MAX; depth++)
        for (uint32_t i = 0; i < keyspace->type_count; i++)
            if (keyspace->types[i]->type != NULL && keyspace->types[i]->type->depth == depth)
                put_type(out, keyspace->types[i]);
    for (uint32_t i = 0; i < keyspace->type_count; i++)
        if (keyspace->types[i]->type == NULL)
            put_type(out, keyspace->types[i]);
    for (int views = 0; views < 2; views++)
        for (uint32_t i = 0; i < keyspace->table_count; i++) {
            const cqlring_schema_table *table = keyspace->tables[i];
            if (table->is_view != views)
                continue;
            put_table(out, table);
            for (uint32_t j = 0; j < table->index_count; j++)
                put_index(out, table, table->indexes[j]);
        }
    for (int aggregates = 0; aggregates < 2; aggregates++)
        for (uint32_t i = 0; i < keyspace->function_count; i++)
            if (keyspace->functions[i]->is_aggregate == aggregates)
                put_function(out, keyspace->functions[i]);
}

size_t cqlring_schema_text(const cqlring_schema *schema, cqlring_schema_part part, const char *keyspace_name, const char *name, char *text, size_t capacity)
{
    struct out out = {.text = text, .capacity = text != NULL ? capacity : 0};
    const cqlring_schema_keyspace *keyspace = cqlring_schema_find_keyspace(schema, keyspace_name);
    const cqlring_schema_table *table = NULL;
    const cqlring_schema_type *type = NULL;
    if (keyspace == NULL || (name == NULL && part > CQLRING_SCHEMA_ALL)) {
        part = CQLRING_SCHEMA_FUNCTION;
        name = NULL;
    }
    switch (part) {
    case CQLRING_SCHEMA_KEYSPACE: put_keyspace(&out, keyspace); break;
    case CQLRING_SCHEMA_ALL: put_everything(&out, keyspace); break;
    case CQLRING_SCHEMA_TABLE:
        table = cqlring_schema_find_table(schema, keyspace_name, name);
        if (table != NULL)
            put_table(&out, table);
        break;
    case CQLRING_SCHEMA_TYPE:
        type = cqlring_schema_find_type(schema, keyspace_name, name);
        if (type != NULL)
            put_type(&out, type);
        break;
    case CQLRING_SCHEMA_INDEX:
        for (uint32_t i = 0; i < keyspace->table_count; i++)
            for (uint32_t j = 0; j < keyspace->tables[i]->index_count; j++)
                if (strcmp(keyspace->tables[i]->indexes[j]->name, name) == 0)
                    put_index(&out, keyspace->tables[i], keyspace->tables[i]->indexes[j]);
        break;
    case CQLRING_SCHEMA_FUNCTION:
        for (uint32_t i = 0; name != NULL && i < keyspace->function_count; i++)
            if (strcmp(keyspace->functions[i]->name, name) == 0)
                put_function(&out, keyspace->functions[i]);
        break;
    }
    if (out.capacity > 0)
        text[out.size < out.capacity ? out.size : out.capacity - 1] = '\0';
    return out.size;
}
