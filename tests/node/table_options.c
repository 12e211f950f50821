/* SPDX-License-Identifier: Apache-2.0 */
/* The options of tables and views: kept as literals, shown in system_schema. */
#include "tests/node/engine_private.h"

enum option_kind { OPTION_TEXT, OPTION_INT, OPTION_DOUBLE, OPTION_BOOLEAN, OPTION_MAP, OPTION_NONE };

/* Those with a column of system_schema.tables and .views, in TABLE_OPTION_COLUMNS' order; behind
   them what is accepted and forgotten. */
static const struct {
    const char *name;
    enum option_kind kind;
    const char *otherwise; /* its column, when it was not given */
} options[] = {
    {"additional_write_policy", OPTION_TEXT, "'99p'"},
    {"allow_auto_snapshot", OPTION_BOOLEAN, "true"},
    {"bloom_filter_fp_chance", OPTION_DOUBLE, "0.01"},
    {"caching", OPTION_MAP, "{'keys': 'ALL', 'rows_per_partition': 'NONE'}"},
    {"cdc", OPTION_BOOLEAN, "false"},
    {"comment", OPTION_TEXT, "''"},
    {"compaction", OPTION_MAP,
     "{'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', "
     "'max_threshold': '32', 'min_threshold': '4'}"},
    {"compression", OPTION_MAP,
     "{'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}"},
    {"crc_check_chance", OPTION_DOUBLE, "1.0"},
    {"dclocal_read_repair_chance", OPTION_DOUBLE, "0.0"},
    {"default_time_to_live", OPTION_INT, "0"},
    {"gc_grace_seconds", OPTION_INT, "864000"},
    {"incremental_backups", OPTION_BOOLEAN, "true"},
    {"max_index_interval", OPTION_INT, "2048"},
    {"memtable", OPTION_TEXT, "'default'"},
    {"memtable_flush_period_in_ms", OPTION_INT, "0"},
    {"min_index_interval", OPTION_INT, "128"},
    {"read_repair", OPTION_TEXT, "'BLOCKING'"},
    {"read_repair_chance", OPTION_DOUBLE, "0.0"},
    {"speculative_retry", OPTION_TEXT, "'99p'"},
    {"extensions", OPTION_NONE, NULL},
    {"id", OPTION_NONE, NULL},
    {"paxos_grace_seconds", OPTION_NONE, NULL},
    {"synchronous_updates", OPTION_NONE, NULL},
    {"tombstone_gc", OPTION_NONE, NULL},
};
enum { OPTIONS = sizeof options / sizeof options[0], OPTIONS_SHOWN = OPTIONS - 5 };
_Static_assert((int)OPTIONS_SHOWN == (int)TABLE_OPTIONS, "one slot for each that is shown");

/* What a map of texts is given: whatever stands there becomes a text. */
static void put_map(struct out *out, const struct term *map)
{
    node_out_printf(out, "{");
    uint32_t index = 0;
    for (const struct term *term = map->children; term != NULL; term = term->next, ++index) {
        node_out_printf(out, "%s", index == 0 ? "" : index % 2 == 0 ? ", " : ": ");
        node_put_quoted(out, term->text);
    }
    node_out_printf(out, "}");
}

static bool put_option(struct out *out, const struct term *value, enum option_kind kind)
{
    switch (kind) {
    case OPTION_TEXT: node_put_quoted(out, value->text); return value->kind == TERM_STRING;
    case OPTION_INT: {
        struct out number = {0};
        bool fine = value->kind == TERM_INTEGER &&
                    node_literal_integer(&node_type_int, value->text, &number);
        node_out_fini(&number);
        out_slice(out, value->text);
        return fine;
    }
    case OPTION_DOUBLE: {
        struct out number = {0};
        bool fine = (value->kind == TERM_INTEGER || value->kind == TERM_FLOAT) &&
                    node_literal_float(&node_type_double, value->text, value->negative, &number);
        node_out_fini(&number);
        out_slice(out, value->text);
        return fine;
    }
    case OPTION_BOOLEAN: out_slice(out, value->text); return value->kind == TERM_BOOLEAN;
    default: put_map(out, value); return value->kind == TERM_MAP || value->kind == TERM_BRACES;
    }
}

bool node_table_options_apply(struct query *query, const struct statement *statement,
                              struct node_table *table)
{
    for (const struct option_list *option = statement->options; option != NULL;
         option = option->next) {
        size_t i = 0;
        while (i < OPTIONS && !slice_is(option->name, options[i].name))
            ++i;
        if (i == OPTIONS)
            return node_query_fail(query, ERROR_SYNTAX, "Unknown property '%.*s'",
                                   SLICE_ARG(option->name));
        if (options[i].kind == OPTION_NONE)
            continue;
        if (table->is_view && slice_is(option->name, "default_time_to_live"))
            return node_query_fail(query, ERROR_INVALID,
                                   "Cannot set default_time_to_live for a materialized view.");
        struct out out = {0};
        bool fine = put_option(&out, option->value, options[i].kind);
        if (fine)
            table->options[i] = node_arena_copy(&table->arena, out_view(&out, 0));
        node_out_fini(&out);
        if (!fine)
            return node_query_fail(query, ERROR_CONFIG, "Invalid value for option '%.*s'",
                                   SLICE_ARG(option->name));
        struct out number = {0};
        if (slice_is(option->name, "default_time_to_live") &&
            node_literal_integer(&node_type_int, option->value->text, &number))
            table->default_ttl = (int32_t)cqr_load_u32(number.data);
        else if (slice_is(option->name, "gc_grace_seconds") &&
                 node_literal_integer(&node_type_int, option->value->text, &number))
            table->gc_grace_seconds = (int32_t)cqr_load_u32(number.data);
        node_out_fini(&number);
    }
    return true;
}

void node_table_options_names(struct out *out)
{
    for (size_t i = 0; i < OPTIONS_SHOWN; ++i)
        node_out_printf(out, ", %s", options[i].name);
}

void node_table_options_values(const struct node_table *table, struct out *out)
{
    for (size_t i = 0; i < OPTIONS_SHOWN; ++i) {
        node_out_printf(out, ", ");
        if (table->options[i].size > 0)
            out_slice(out, table->options[i]);
        else
            node_out_printf(out, "%s", options[i].otherwise);
    }
}
