/* SPDX-License-Identifier: Apache-2.0 */

/* The schema as a snapshot: read when asked for, kept up to date by events, as CQL that the same server accepts again. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
    flow_start(flow);
}

static cqlring_schema *read_schema(struct flow *flow)
{
    cqlring_future *future = NULL;
    cqlring_error error;
    flow_ok(cqlring_schema_refresh(flow->cluster, &future, &error));
    cqlring_status status = ask_end(future, &error);
    ck_assert_msg(status == CQLRING_OK, "%s; the log:\n%s", error.message, watch_log_text());
    cqlring_schema *schema = cqlring_schema_get(flow->cluster);
    ck_assert_ptr_nonnull(schema);
    return schema;
}

static char *text_of(const cqlring_schema *schema, cqlring_schema_part part, const char *keyspace, const char *name)
{
    size_t size = cqlring_schema_text(schema, part, keyspace, name, NULL, 0);
    ck_assert_msg(size > 0, "%s.%s has no text", keyspace, name);
    char *text = malloc(size + 1);
    ck_assert_uint_eq(cqlring_schema_text(schema, part, keyspace, name, text, size + 1), size);
    ck_assert_uint_eq(strlen(text), size);
    return text;
}

static const char *option_of(const cqlring_schema_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->option_count; i++)
        if (strcmp(table->options[i].name, name) == 0)
            return table->options[i].value;
    return NULL;
}

/* Every statement of a text by itself: they end with ";\n". */
static void run_all(struct flow *flow, const char *text)
{
    while (*text != '\0') {
        const char *end = strstr(text, ";\n");
        ck_assert_ptr_nonnull(end);
        char *one = strndup(text, (size_t)(end - text));
        flow_cql(flow, one);
        free(one);
        text = end + 2;
    }
}

START_TEST(nothing_is_read_before_it_is_asked_for)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TABLE ks.more (k int PRIMARY KEY)");
    watch_pass(&flow, 1500); /* longer than a burst of events is waited for */
    ck_assert_ptr_null(cqlring_schema_get(flow.cluster));
    ck_assert_uint_eq(watch_log_count("schema read"), 0);
    cqlring_schema *schema = read_schema(&flow);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(schema, "ks", "more"));
    cqlring_schema_release(schema);
    cqlring_schema_release(NULL);
    flow_close(&flow);
}
END_TEST

START_TEST(it_can_be_read_from_the_open_on)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.schema_metadata = CQLRING_YES;
    flow_open(&flow);
    watch_for(&flow, watch_logged, "schema read");
    cqlring_schema *schema = cqlring_schema_get(flow.cluster);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(schema, "ks", "t"));
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

START_TEST(it_can_be_turned_off)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.schema_metadata = CQLRING_NO;
    flow_open(&flow);
    cqlring_future *future = NULL;
    cqlring_error error;
    ck_assert_int_eq(cqlring_schema_refresh(flow.cluster, &future, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "schema_metadata"));
    ck_assert_int_eq(cqlring_schema_refresh(NULL, &future, &error), CQLRING_INVALID);
    ck_assert_ptr_null(cqlring_schema_get(flow.cluster));
    ck_assert_ptr_null(cqlring_schema_get(NULL));
    flow_close(&flow);
}
END_TEST

START_TEST(keyspaces_tables_columns_types_and_indexes_are_there)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TYPE ks.inner (a int, \"B\" text)");
    flow_cql(&flow, "CREATE TYPE ks.before (x frozen<inner>, y frozen<list<frozen<inner>>>)"); /* sorts before what it uses */
    flow_cql(&flow, "CREATE TABLE ks.wide (p int, q text, c timeuuid, d int, s text static, v frozen<inner>, m map<text, frozen<before>>, \"Camel\" int, "
                    "PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s wide' AND gc_grace_seconds = 3600");
    flow_cql(&flow, "CREATE INDEX by_camel ON ks.wide (\"Camel\")");
    cqlring_schema *schema = read_schema(&flow);
    const cqlring_schema_keyspace *const *keyspaces = NULL;
    uint32_t count = cqlring_schema_keyspaces(schema, &keyspaces);
    ck_assert_uint_ge(count, 2);
    for (uint32_t i = 1; i < count; i++)
        ck_assert_int_lt(strcmp(keyspaces[i - 1]->name, keyspaces[i]->name), 0);
    const cqlring_schema_keyspace *ks = cqlring_schema_find_keyspace(schema, "ks");
    ck_assert_ptr_nonnull(ks);
    ck_assert(ks->durable_writes);
    ck_assert_int_eq(ks->tablets, -1);
    ck_assert_uint_eq(ks->replication_count, 2);
    ck_assert_uint_eq(ks->table_count, 2);
    ck_assert_uint_eq(ks->type_count, 2);
    const cqlring_schema_table *wide = cqlring_schema_find_table(schema, "ks", "wide");
    ck_assert_ptr_nonnull(wide);
    ck_assert_str_eq(wide->keyspace, "ks");
    ck_assert_uint_eq(wide->partition_key_count, 2);
    ck_assert_uint_eq(wide->clustering_count, 2);
    static const char *const names[] = {"p", "q", "c", "d", "s", "Camel", "m", "v"};
    static const int kinds[] = {0, 0, 1, 1, 2, 3, 3, 3};
    ck_assert_uint_eq(wide->column_count, 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_str_eq(wide->columns[i]->name, names[i]);
        ck_assert_int_eq((int)wide->columns[i]->kind, kinds[i]);
        ck_assert_int_eq(wide->columns[i]->position, i < 4 ? i % 2 : -1);
        ck_assert_int_eq(wide->columns[i]->is_descending, i == 2);
        ck_assert_ptr_nonnull(wide->columns[i]->type);
    }
    ck_assert_int_eq((int)cqlring_type_kind(wide->columns[2]->type), CQLRING_KIND_TIMEUUID);
    const cqlring_type *map = wide->columns[6]->type, *before = cqlring_type_child(map, 1);
    ck_assert_int_eq((int)cqlring_type_kind(before), CQLRING_KIND_UDT);
    ck_assert_int_eq((int)cqlring_type_kind(cqlring_type_child(before, 0)), CQLRING_KIND_UDT);
    ck_assert_int_eq((int)cqlring_type_kind(cqlring_type_child(cqlring_type_child(before, 0), 1)), CQLRING_KIND_TEXT);
    ck_assert_str_eq(option_of(wide, "comment"), "'it''s wide'");
    ck_assert_str_eq(option_of(wide, "gc_grace_seconds"), "3600");
    ck_assert_ptr_null(option_of(wide, "read_repair_chance"));
    ck_assert_ptr_null(option_of(wide, "id"));
    ck_assert_uint_eq(wide->index_count, 1);
    ck_assert_str_eq(wide->indexes[0]->name, "by_camel");
    ck_assert_str_eq(wide->indexes[0]->target, "\"Camel\"");
    const cqlring_schema_type *type = cqlring_schema_find_type(schema, "ks", "inner");
    ck_assert_ptr_nonnull(type);
    ck_assert_uint_eq(type->field_count, 2);
    ck_assert_str_eq(type->field_names[1], "B");
    ck_assert_ptr_null(cqlring_schema_find_type(schema, "ks", "no"));
    ck_assert_ptr_null(cqlring_schema_find_table(schema, "no", "t"));
    ck_assert_ptr_null(cqlring_schema_find_table(schema, "ks", NULL));
    ck_assert_ptr_null(cqlring_schema_find_keyspace(NULL, "ks"));
    ck_assert_uint_eq(cqlring_schema_keyspaces(NULL, &keyspaces), 0);
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

static bool has_table(struct flow *flow, void *name)
{
    cqlring_schema *schema = cqlring_schema_get(flow->cluster);
    bool there = cqlring_schema_find_table(schema, "ks", name) != NULL;
    cqlring_schema_release(schema);
    return there;
}

static bool lacks_table(struct flow *flow, void *name)
{
    return !has_table(flow, name);
}

static bool has_columns(struct flow *flow, void *count)
{
    cqlring_schema *schema = cqlring_schema_get(flow->cluster);
    const cqlring_schema_table *table = cqlring_schema_find_table(schema, "ks", "moving");
    bool there = table != NULL && table->column_count == *(uint32_t *)count;
    cqlring_schema_release(schema);
    return there;
}

START_TEST(what_changes_is_read_again_and_the_rest_is_shared)
{
    struct flow flow;
    start(&flow, 2);
    flow_open(&flow);
    flow_cql(&flow, "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    cqlring_schema *before = read_schema(&flow);
    uint32_t readings = watch_log_count("schema read");
    for (int i = 0; i < 20; i++) { /* one burst */
        char cql[100];
        snprintf(cql, sizeof cql, "CREATE TABLE ks.burst_%02d (k int PRIMARY KEY)", i);
        flow_cql(&flow, cql);
    }
    watch_for(&flow, has_table, "burst_19");
    ck_assert_uint_le(watch_log_count("schema read") - readings, 3);
    cqlring_schema *after = cqlring_schema_get(flow.cluster);
    ck_assert_ptr_ne(before, after);
    ck_assert_ptr_null(cqlring_schema_find_table(before, "ks", "burst_00")); /* what one holds stays as it is */
    ck_assert_ptr_eq(cqlring_schema_find_keyspace(before, "other"), cqlring_schema_find_keyspace(after, "other"));
    ck_assert_ptr_ne(cqlring_schema_find_keyspace(before, "ks"), cqlring_schema_find_keyspace(after, "ks"));
    ck_assert_str_eq(cqlring_schema_find_keyspace(after, "ks")->replication[0].name, "class");
    cqlring_schema_release(before);
    flow_cql(&flow, "DROP TABLE ks.burst_07");
    watch_for(&flow, lacks_table, "burst_07");
    ck_assert_ptr_nonnull(cqlring_schema_find_table(after, "ks", "burst_07"));
    flow_cql(&flow, "DROP KEYSPACE ks");
    watch_for(&flow, lacks_table, "burst_19");
    cqlring_schema *last = cqlring_schema_get(flow.cluster);
    ck_assert_ptr_null(cqlring_schema_find_keyspace(last, "ks"));
    ck_assert_ptr_nonnull(cqlring_schema_find_keyspace(last, "other"));
    cqlring_schema_release(last);
    cqlring_schema_release(after);
    flow_close(&flow);
}
END_TEST

/* One table of many: it alone is read again, however often, and what it was does not stay for ever. */
START_TEST(a_table_that_changes_is_read_by_itself)
{
    enum { CHANGES = 18 }; /* more than pieces are put together before a keyspace is read whole */
    struct flow flow;
    start(&flow, 1);
    ask_record(&flow);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TYPE ks.pair (a int, b int)");
    flow_cql(&flow, "CREATE TABLE ks.moving (k int PRIMARY KEY, v frozen<pair>)");
    cqlring_schema *first = read_schema(&flow);
    for (int i = 0; i < CHANGES; i++) {
        char cql[100], wanted[20];
        snprintf(wanted, sizeof wanted, "c%02d", i);
        snprintf(cql, sizeof cql, "ALTER TABLE ks.moving ADD %s frozen<pair>", wanted);
        char message[200];
        ck_assert_int_eq(node_cql(flow.node, cql, NULL, message, sizeof message), 0);
        watch_for(&flow, has_columns, &(uint32_t){(uint32_t)i + 3});
        cqlring_schema *schema = cqlring_schema_get(flow.cluster);
        const cqlring_schema_table *table = cqlring_schema_find_table(schema, "ks", "moving");
        ck_assert_str_eq(table->columns[i + 1]->name, wanted);
        ck_assert_int_eq((int)cqlring_type_kind(table->columns[i + 1]->type), CQLRING_KIND_UDT);
        if (i == 0)
            ck_assert_ptr_eq(cqlring_schema_find_table(schema, "ks", "t"), cqlring_schema_find_table(first, "ks", "t")); /* not read again */
        ck_assert_uint_eq(cqlring_schema_find_keyspace(schema, "ks")->table_count, 2);
        ck_assert_ptr_nonnull(cqlring_schema_find_type(schema, "ks", "pair"));
        cqlring_schema_release(schema);
        if (i == 0) {
            cqlring_schema_release(first);
            first = NULL;
        }
    }
    ck_assert_uint_ge(watch_log_count("schema read: 1 tables"), CHANGES - 3);
    ck_assert_uint_ge(watch_log_count("schema read: 1 keyspaces"), 1);
    flow_cql(&flow, "DROP TABLE ks.moving");
    watch_for(&flow, lacks_table, "moving");
    cqlring_schema *schema = cqlring_schema_get(flow.cluster);
    ck_assert_uint_eq(cqlring_schema_find_keyspace(schema, "ks")->table_count, 1);
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

START_TEST(another_ones_changes_are_seen_by_their_events)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    cqlring_schema_release(read_schema(&flow));
    char message[200];
    ck_assert_int_eq(node_cql(flow.node, "CREATE TABLE ks.theirs (k int PRIMARY KEY)", NULL, message, sizeof message), 0);
    watch_for(&flow, has_table, "theirs");
    ck_assert_int_eq(node_cql(flow.node, "DROP TABLE ks.theirs", NULL, message, sizeof message), 0);
    watch_for(&flow, lacks_table, "theirs");
    flow_close(&flow);
}
END_TEST

START_TEST(what_changed_without_a_control_connection_is_not_missed)
{
    struct flow flow;
    start(&flow, 2);
    flow_open(&flow);
    cqlring_schema_release(read_schema(&flow));
    uint32_t fault = node_fault_parse(flow.node, "ignore:opcode=OPTIONS", NULL, 0); /* nobody gets in */
    node_cut(flow.node, NODE_ALL, 0);
    watch_for(&flow, watch_logged, "the control connection is lost");
    char message[200];
    ck_assert_int_eq(node_cql(flow.node, "CREATE TABLE ks.meanwhile (k int PRIMARY KEY)", NULL, message, sizeof message), 0);
    node_fault_remove(flow.node, fault);
    node_cut(flow.node, NODE_ALL, 0);
    watch_for(&flow, has_table, "meanwhile");
    flow_close(&flow);
}
END_TEST

START_TEST(a_reading_that_is_cut_goes_on_with_the_next_control_connection)
{
    struct flow flow;
    start(&flow, 2);
    flow_open(&flow);
    flow_fault(&flow, "close:table=system_schema.columns,times=2");
    cqlring_schema *schema = read_schema(&flow);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(schema, "ks", "t"));
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

/* The server refuses the reading, or gives up: nothing else is touched by that, and it is tried again. */
START_TEST(sc_04_a_schema_that_cannot_be_read_is_gone_without)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_fault(&flow, "error:code=0x1200,table=system_schema.columns,times=2");
    cqlring_future *future = NULL;
    cqlring_error error;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    ck_assert_int_eq(ask_end(future, &error), CQLRING_SERVER);
    ck_assert_ptr_null(cqlring_schema_get(flow.cluster));
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    watch_for(&flow, has_table, "t"); /* the third one by itself */
    flow_close(&flow);
}
END_TEST

START_TEST(sc_04_many_tables_are_read_in_pages)
{
    enum { TABLES = 5000, ROWS = 20000 };
    struct flow flow;
    start(&flow, 1);
    for (int i = 0; i < TABLES; i++) {
        char cql[160], message[200];
        snprintf(cql, sizeof cql, "CREATE TABLE ks.many_%04d (k int PRIMARY KEY, a text, b text, c list<int>)", i);
        ck_assert_int_eq(node_cql(flow.node, cql, NULL, message, sizeof message), 0);
    }
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 8);
    flow_sink_init(&sink, ROWS);
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, NULL);
    cqlring_schema *schema = read_schema(&flow);
    flow_ok(ask_end(job, NULL)); /* rows went on */
    ck_assert_uint_eq(sink.ok, ROWS);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    const cqlring_schema_keyspace *ks = cqlring_schema_find_keyspace(schema, "ks");
    ck_assert_uint_eq(ks->table_count, TABLES + 1);
    for (int i = 0; i < TABLES; i++) {
        char name[32];
        snprintf(name, sizeof name, "many_%04d", i);
        const cqlring_schema_table *table = cqlring_schema_find_table(schema, "ks", name);
        ck_assert_ptr_nonnull(table);
        ck_assert_uint_eq(table->column_count, 4);
    }
    struct node_seen seen;
    ck_assert(node_last(flow.node, NODE_ALL, OPCODE_QUERY, &seen));
    ck_assert_int_eq(seen.page_size, 500);
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

/* ScyllaDB's readings ask for time, and it says what is routed by tablets. */
START_TEST(sc_04_scylladb_is_asked_with_a_timeout)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    ask_record(&flow);
    flow.node_options.shards = 2;
    flow.node_options.tablets = true;
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "CREATE KEYSPACE vnodes WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}");
    cqlring_schema *schema = read_schema(&flow);
    ck_assert_int_eq(cqlring_schema_find_keyspace(schema, "ks")->tablets, 1);
    ck_assert_int_eq(cqlring_schema_find_keyspace(schema, "vnodes")->tablets, 0);
    char *text = text_of(schema, CQLRING_SCHEMA_KEYSPACE, "vnodes", NULL);
    ck_assert_ptr_nonnull(strstr(text, "tablets = {'enabled': false}"));
    free(text);
    struct node_seen seen;
    ck_assert(node_last(flow.node, NODE_ALL, OPCODE_QUERY, &seen));
    ck_assert_ptr_nonnull(strstr(seen.text, "USING TIMEOUT"));
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

/* The text of everything in a keyspace makes it again: dropped and made, it reads the same. */
static void round_trip(struct flow *flow, const char *keyspace)
{
    cqlring_schema *schema = read_schema(flow);
    char *before = text_of(schema, CQLRING_SCHEMA_ALL, keyspace, NULL), drop[100];
    cqlring_schema_release(schema);
    snprintf(drop, sizeof drop, "DROP KEYSPACE %s", keyspace);
    flow_cql(flow, drop);
    run_all(flow, before);
    schema = read_schema(flow);
    char *after = text_of(schema, CQLRING_SCHEMA_ALL, keyspace, NULL);
    ck_assert_str_eq(before, after);
    cqlring_schema_release(schema);
    free(before);
    free(after);
}

START_TEST(the_text_of_a_keyspace_makes_it_again)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TYPE ks.inner (a int, \"B\" text)");
    flow_cql(&flow, "CREATE TYPE ks.before (x frozen<inner>, y frozen<list<frozen<inner>>>)");
    flow_cql(&flow, "CREATE TABLE ks.wide (p int, q text, c timeuuid, d int, s text static, v frozen<inner>, m map<text, frozen<before>>, \"Camel\" int, "
                    "\"select\" int, \"a\"\"b\" text, e vector<float, 3>, tu tuple<int, text>, "
                    "PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s wide' AND gc_grace_seconds = 3600");
    flow_cql(&flow, "CREATE TABLE ks.\"Counts\" (k int PRIMARY KEY, n counter)");
    flow_cql(&flow, "CREATE INDEX by_camel ON ks.wide (\"Camel\")");
    cqlring_schema *schema = read_schema(&flow);
    ck_assert(cqlring_schema_find_table(schema, "ks", "Counts")->is_counter);
    char *text = text_of(schema, CQLRING_SCHEMA_TABLE, "ks", "wide");
    ck_assert_ptr_nonnull(strstr(text, "\"select\" int,"));
    ck_assert_ptr_nonnull(strstr(text, "\"a\"\"b\" text,"));
    ck_assert_ptr_nonnull(strstr(text, "s text static,"));
    ck_assert_ptr_nonnull(strstr(text, "PRIMARY KEY ((p, q), c, d)"));
    ck_assert_ptr_nonnull(strstr(text, "CLUSTERING ORDER BY (c DESC, d ASC)"));
    char cut[20];
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_TABLE, "ks", "wide", cut, sizeof cut), strlen(text));
    ck_assert_str_eq(cut, "CREATE TABLE ks.wid");
    free(text);
    text = text_of(schema, CQLRING_SCHEMA_TYPE, "ks", "inner");
    ck_assert_str_eq(text, "CREATE TYPE ks.inner (\n    a int,\n    \"B\" text\n);\n");
    free(text);
    text = text_of(schema, CQLRING_SCHEMA_INDEX, "ks", "by_camel");
    ck_assert_str_eq(text, "CREATE INDEX by_camel ON ks.wide (\"Camel\");\n");
    free(text);
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_TABLE, "ks", "no", NULL, 0), 0);
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_TABLE, "no", "no", NULL, 0), 0);
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_TABLE, "ks", NULL, NULL, 0), 0);
    ck_assert_uint_eq(cqlring_schema_text(NULL, CQLRING_SCHEMA_ALL, "ks", NULL, NULL, 0), 0);
    cqlring_schema_release(schema);
    round_trip(&flow, "ks");
    flow_close(&flow);
}
END_TEST

START_TEST(views_functions_aggregates_and_options_are_made_again_too)
{
    static const char *const statements[] = {
        "CREATE TYPE ks.pair (a int, b int)",
        "CREATE TABLE ks.base (p int, c int, v text, tags set<text>, m map<text, int>, \"Odd Name\" int, PRIMARY KEY (p, c)) WITH "
        "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 160} AND compression = {'enabled': false} AND "
        "default_time_to_live = 86400 AND bloom_filter_fp_chance = 0.05 AND crc_check_chance = 0.5 AND speculative_retry = '95p' AND "
        "caching = {'keys': 'NONE', 'rows_per_partition': '10'} AND comment = ''",
        ("CREATE MATERIALIZED VIEW ks.by_v AS SELECT p, c, v FROM ks.base WHERE v IS NOT NULL AND p IS NOT NULL AND c IS NOT NULL "
         "PRIMARY KEY ((v, p), c) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'seen by v'"),
        "CREATE MATERIALIZED VIEW ks.all_of AS SELECT * FROM ks.base WHERE c IS NOT NULL AND p IS NOT NULL PRIMARY KEY (c, p)",
        "CREATE INDEX ON ks.base (tags)",
        "CREATE INDEX entries_of ON ks.base (entries(m))",
        "CREATE CUSTOM INDEX odd ON ks.base (\"Odd Name\") USING 'StorageAttachedIndex' WITH OPTIONS = {'case_sensitive': 'false'}",
        "CREATE FUNCTION ks.plus (state int, val int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return state + val; // it's $$",
        "CREATE FUNCTION ks.plus (state text, val list<int>) RETURNS NULL ON NULL INPUT RETURNS frozen<pair> LANGUAGE java AS 'return null;'",
        "CREATE FUNCTION ks.\"Half\" (state int) RETURNS NULL ON NULL INPUT RETURNS double LANGUAGE java AS 'return state / 2.0;'",
        "CREATE AGGREGATE ks.total (int) SFUNC plus STYPE int FINALFUNC \"Half\" INITCOND 0",
    };
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        flow_cql(&flow, statements[i]);
    cqlring_schema *schema = read_schema(&flow);
    const cqlring_schema_table *view = cqlring_schema_find_table(schema, "ks", "by_v"), *base = cqlring_schema_find_table(schema, "ks", "base");
    ck_assert_ptr_nonnull(view);
    ck_assert(view->is_view && !view->includes_all_columns);
    ck_assert_str_eq(view->base_table, "base");
    ck_assert_str_eq(view->where_clause, "v IS NOT NULL AND p IS NOT NULL AND c IS NOT NULL");
    ck_assert_uint_eq(view->partition_key_count, 2);
    ck_assert(cqlring_schema_find_table(schema, "ks", "all_of")->includes_all_columns);
    ck_assert_ptr_null(option_of(view, "default_time_to_live"));
    ck_assert_str_eq(option_of(base, "default_time_to_live"), "86400");
    ck_assert_str_eq(option_of(base, "bloom_filter_fp_chance"), "0.05");
    ck_assert_str_eq(option_of(base, "compression"), "{'enabled': 'false'}");
    ck_assert_uint_eq(base->index_count, 3);
    ck_assert_str_eq(base->indexes[0]->name, "base_tags_idx");
    ck_assert_str_eq(base->indexes[0]->target, "values(tags)");
    ck_assert_str_eq(base->indexes[1]->target, "entries(m)");
    ck_assert_str_eq(base->indexes[2]->kind, "CUSTOM");
    const cqlring_schema_keyspace *ks = cqlring_schema_find_keyspace(schema, "ks");
    ck_assert_uint_eq(ks->function_count, 4);
    uint32_t aggregates = 0;
    for (uint32_t i = 0; i < ks->function_count; i++) {
        const cqlring_schema_function *function = ks->functions[i];
        aggregates += function->is_aggregate;
        if (!function->is_aggregate)
            continue;
        ck_assert_str_eq(function->name, "total");
        ck_assert_str_eq(function->state_function, "plus");
        ck_assert_str_eq(function->final_function, "Half");
        ck_assert_str_eq(function->initial, "0");
        ck_assert_str_eq(function->return_type, "double");
    }
    ck_assert_uint_eq(aggregates, 1);
    char *text = text_of(schema, CQLRING_SCHEMA_INDEX, "ks", "odd");
    ck_assert_str_eq(text, "CREATE CUSTOM INDEX odd ON ks.base (\"Odd Name\") USING 'StorageAttachedIndex' WITH OPTIONS = {'case_sensitive': 'false'};\n");
    free(text);
    text = text_of(schema, CQLRING_SCHEMA_FUNCTION, "ks", "total");
    ck_assert_str_eq(text, "CREATE AGGREGATE ks.total (int)\n    SFUNC plus\n    STYPE int\n    FINALFUNC \"Half\"\n    INITCOND 0;\n");
    free(text);
    text = text_of(schema, CQLRING_SCHEMA_FUNCTION, "ks", "Half");
    ck_assert_str_eq(text, "CREATE FUNCTION ks.\"Half\" (state int)\n    RETURNS NULL ON NULL INPUT\n    RETURNS double\n    LANGUAGE java\n    AS $$return state / 2.0;$$;\n");
    free(text);
    cqlring_schema_release(schema);
    round_trip(&flow, "ks");
    flow_close(&flow);
}
END_TEST

/* Each snapshot is a whole one: what it names, it has. */
static void ck_assert_whole(const cqlring_schema *schema)
{
    const cqlring_schema_keyspace *const *keyspaces = NULL;
    uint32_t count = cqlring_schema_keyspaces(schema, &keyspaces);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < keyspaces[i]->table_count; j++) {
            const cqlring_schema_table *table = keyspaces[i]->tables[j];
            ck_assert_ptr_eq(cqlring_schema_find_table(schema, keyspaces[i]->name, table->name), table);
            ck_assert_uint_gt(table->partition_key_count, 0);
            for (uint32_t k = 0; k < table->column_count; k++)
                ck_assert_str_ne(table->columns[k]->type_text, "");
            ck_assert_uint_gt(cqlring_schema_text(schema, CQLRING_SCHEMA_TABLE, keyspaces[i]->name, table->name, NULL, 0), 0);
        }
}

START_TEST(sc_05_views_and_indexes_come_and_go_while_the_schema_is_read)
{
    struct flow flow;
    start(&flow, 1);
    flow.options.schema_metadata = CQLRING_YES;
    flow_open(&flow);
    flow_cql(&flow, "CREATE TABLE ks.base (p int PRIMARY KEY, v int)");
    for (int round = 0; round < 30; round++) {
        cqlring_future *future = NULL;
        flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
        flow_cql(&flow, "CREATE MATERIALIZED VIEW ks.seen AS SELECT * FROM ks.base WHERE v IS NOT NULL AND p IS NOT NULL PRIMARY KEY (v, p)");
        flow_cql(&flow, "CREATE INDEX found ON ks.base (v)");
        cqlring_schema *schema = cqlring_schema_get(flow.cluster);
        if (schema != NULL)
            ck_assert_whole(schema);
        cqlring_schema_release(schema);
        flow_cql(&flow, "DROP MATERIALIZED VIEW ks.seen");
        flow_cql(&flow, "DROP INDEX ks.found");
        flow_ok(ask_end(future, NULL));
        schema = cqlring_schema_get(flow.cluster);
        ck_assert_whole(schema);
        cqlring_schema_release(schema);
    }
    cqlring_schema *schema = read_schema(&flow);
    ck_assert_ptr_null(cqlring_schema_find_table(schema, "ks", "seen"));
    ck_assert_uint_eq(cqlring_schema_find_table(schema, "ks", "base")->index_count, 0);
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

START_TEST(sc_05_the_same_name_in_two_keyspaces_is_two_tables)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_cql(&flow, "CREATE KEYSPACE ks2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    flow_cql(&flow, "CREATE TABLE ks2.t (other text PRIMARY KEY)");
    cqlring_schema *schema = read_schema(&flow);
    ck_assert_str_eq(cqlring_schema_find_table(schema, "ks", "t")->columns[0]->name, "k");
    ck_assert_str_eq(cqlring_schema_find_table(schema, "ks2", "t")->columns[0]->name, "other");
    cqlring_schema_release(schema);
    flow_cql(&flow, "DROP TABLE ks.t");
    watch_for(&flow, lacks_table, "t");
    schema = cqlring_schema_get(flow.cluster);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(schema, "ks2", "t"));
    cqlring_schema_release(schema);
    flow_close(&flow);
}
END_TEST

/* Events about what nobody knows, in any order, with arguments, or of a kind that does not exist. */
static bool was_read_since(struct flow *flow, void *readings)
{
    (void)flow;
    return watch_log_count("schema read") > *(uint32_t *)readings;
}

START_TEST(sc_06_events_out_of_order_change_nothing)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    cqlring_schema_release(read_schema(&flow));
    uint32_t readings = watch_log_count("schema read");
    static const struct {
        const char *body;
        uint32_t size;
    } bodies[] = {
#define EVENT(text) {text, sizeof(text) - 1}
        EVENT("\0\15SCHEMA_CHANGE\0\7DROPPED\0\5TABLE\0\2ks\0\7nothing"),
        EVENT("\0\15SCHEMA_CHANGE\0\7UPDATED\0\5TABLE\0\2ks\0\7nothing"),
        EVENT("\0\15SCHEMA_CHANGE\0\7DROPPED\0\10KEYSPACE\0\4gone"),
        EVENT("\0\15SCHEMA_CHANGE\0\7UPDATED\0\10FUNCTION\0\2ks\0\1f\0\2\0\3int\0\4text"),
        EVENT("\0\15SCHEMA_CHANGE\0\7CREATED\0\11AGGREGATE\0\2ks\0\1a\0\0"),
        EVENT("\0\15SCHEMA_CHANGE\0\7CREATED\0\6GALAXY\0\2ks\0\1x"),
        EVENT("\0\15SCHEMA_CHANGE\0\7DROPPED\0\5TABLE\0\2ks"),
        EVENT("\0\15SCHEMA_CHANGE"),
#undef EVENT
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        node_event_raw(flow.node, NODE_ALL, bodies[i].body, bodies[i].size);
    flow_cql(&flow, "CREATE TABLE ks.after (k int PRIMARY KEY)");
    watch_for(&flow, has_table, "after");
    watch_for(&flow, was_read_since, &readings); /* said after it is there */
    ck_assert(has_table(&flow, "t"));
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_close_ends_the_reading)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    flow_fault(&flow, "ignore:table=system_schema.tables");
    cqlring_future *future = NULL, *second = NULL, *close = NULL;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    watch_for(&flow, watch_faults, &(uint64_t){1});
    flow_ok(cqlring_schema_refresh(flow.cluster, &second, NULL)); /* waits for the one after that */
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &close, NULL));
    flow_ok(ask_end(close, NULL));
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(ask_end(second, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(cqlring_schema_refresh(flow.cluster, &future, NULL), CQLRING_CLOSED);
    flow_close(&flow);
}
END_TEST

START_TEST(a_snapshot_outlives_its_cluster)
{
    struct flow flow;
    start(&flow, 1);
    flow_open(&flow);
    cqlring_schema *schema = read_schema(&flow);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    ck_assert_str_eq(cqlring_schema_find_table(schema, "ks", "t")->columns[1]->name, "v");
    cqlring_schema_release(schema);
    node_cluster_stop(flow.node);
    ask_nothing_left();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema");
    TCase *tcase = tcase_create("schema");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, nothing_is_read_before_it_is_asked_for);
    tcase_add_test(tcase, it_can_be_read_from_the_open_on);
    tcase_add_test(tcase, it_can_be_turned_off);
    tcase_add_test(tcase, keyspaces_tables_columns_types_and_indexes_are_there);
    tcase_add_test(tcase, what_changes_is_read_again_and_the_rest_is_shared);
    tcase_add_test(tcase, a_table_that_changes_is_read_by_itself);
    tcase_add_test(tcase, another_ones_changes_are_seen_by_their_events);
    tcase_add_test(tcase, what_changed_without_a_control_connection_is_not_missed);
    tcase_add_test(tcase, a_reading_that_is_cut_goes_on_with_the_next_control_connection);
    tcase_add_test(tcase, sc_04_a_schema_that_cannot_be_read_is_gone_without);
    tcase_add_test(tcase, sc_04_many_tables_are_read_in_pages);
    tcase_add_test(tcase, sc_04_scylladb_is_asked_with_a_timeout);
    tcase_add_test(tcase, the_text_of_a_keyspace_makes_it_again);
    tcase_add_test(tcase, views_functions_aggregates_and_options_are_made_again_too);
    tcase_add_test(tcase, sc_05_views_and_indexes_come_and_go_while_the_schema_is_read);
    tcase_add_test(tcase, sc_05_the_same_name_in_two_keyspaces_is_two_tables);
    tcase_add_test(tcase, sc_06_events_out_of_order_change_nothing);
    tcase_add_test(tcase, a_close_ends_the_reading);
    tcase_add_test(tcase, a_snapshot_outlives_its_cluster);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
