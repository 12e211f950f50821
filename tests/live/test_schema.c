/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <stdlib.h>
#include <string.h>
#include <threads.h>

/* The schema of a keyspace as CQL: dropped and made again from it, it reads the same. And what waits for agreement says that it was
   reached. See live.h for how to run it. */

static const char *const statements[] = {
    "CREATE TYPE %s.\"Inner\" (a int, \"B\" text, l frozen<list<int>>)",
    "CREATE TYPE %s.before_it (x frozen<\"Inner\">, y frozen<list<frozen<\"Inner\">>>)",
    "CREATE TABLE %s.wide (p int, q text, c timeuuid, d int, s text static, v frozen<before_it>, u \"Inner\", m map<text, frozen<before_it>>, st set<inet>, "
    "\"Camel\" int, \"select\" int, \"a\"\"b\" text, e vector<float, 3>, tu tuple<int, text>, fl frozen<list<text>>, du duration, "
    "PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s wide' AND gc_grace_seconds = 3600 AND "
    "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 160} AND compression = {'enabled': false} AND "
    "default_time_to_live = 86400 AND bloom_filter_fp_chance = 0.05 AND caching = {'keys': 'NONE', 'rows_per_partition': '10'}",
    "CREATE TABLE %s.plain (k int PRIMARY KEY, v text, t set<text>, m map<text, int>, f frozen<set<int>>)",
    "CREATE TABLE %s.\"Counts\" (k int PRIMARY KEY, n counter)",
    "CREATE TABLE %s.keys_only (a int, b int, c int, PRIMARY KEY (a, b, c))",
    "CREATE INDEX ON %s.plain (v)",
    "CREATE INDEX by_tag ON %s.plain (t)",
    "CREATE INDEX by_key ON %s.plain (keys(m))",
    "CREATE INDEX by_entry ON %s.plain (entries(m))",
    "CREATE INDEX by_all ON %s.plain (full(f))",
    "CREATE CUSTOM INDEX odd ON %s.wide (\"Camel\") USING 'StorageAttachedIndex'",
    "CREATE CUSTOM INDEX near ON %s.wide (e) USING 'StorageAttachedIndex' WITH OPTIONS = {'similarity_function': 'dot_product'}",
    "CREATE MATERIALIZED VIEW %s.by_v AS SELECT k, v, t FROM %s.plain WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k) "
    "WITH CLUSTERING ORDER BY (k DESC) AND comment = 'seen by v'",
    "CREATE MATERIALIZED VIEW %s.all_of AS SELECT * FROM %s.keys_only WHERE a IS NOT NULL AND b IS NOT NULL AND c IS NOT NULL PRIMARY KEY ((c, b), a)",
    "CREATE FUNCTION %s.plus (state int, val int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return state + (val == null ? 0 : val); $$",
    "CREATE FUNCTION %s.plus (state text, val list<text>) RETURNS NULL ON NULL INPUT RETURNS text LANGUAGE java AS 'return state + \"''\";'",
    "CREATE FUNCTION %s.\"Half\" (state int) RETURNS NULL ON NULL INPUT RETURNS double LANGUAGE java AS 'return state / 2.0;'",
    "CREATE AGGREGATE %s.total (int) SFUNC plus STYPE int FINALFUNC \"Half\" INITCOND 7",
};

static cqlring_schema *read_schema(cqlring_cluster *cluster)
{
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_schema_refresh(cluster, &future, &error);
    if (status == CQLRING_OK)
        status = cqlring_future_wait(future, -1, &error);
    cqlring_future_release(future);
    return live_ok(status, &error, "reading the schema") ? cqlring_schema_get(cluster) : NULL;
}

static char *text_of(cqlring_cluster *cluster)
{
    cqlring_schema *schema = read_schema(cluster);
    size_t size = cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, "cqlring_live", NULL, NULL, 0);
    char *text = malloc(size + 1);
    if (text != NULL)
        cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, "cqlring_live", NULL, text, size + 1);
    cqlring_schema_release(schema);
    return text;
}

/* Each statement ends with ";\n", and these have no other of those. */
static bool run_all(cqlring_session *session, const char *text)
{
    bool held = true;
    for (const char *end; held && (end = strstr(text, ";\n")) != NULL; text = end + 2) {
        cqlring_request request = {.session = session, .cql = {text, (int32_t)(end - text)}};
        cqlring_result *result = NULL;
        cqlring_error error;
        cqlring_status status = cqlring_execute_sync(&request, &result, &error);
        if (status != CQLRING_OK)
            held = live_note("%.*s: %s", (int)(end - text), text, error.message);
        cqlring_result_release(result);
    }
    return held;
}

static void first_difference(const char *before, const char *after)
{
    size_t at = 0;
    while (before[at] == after[at] && before[at] != '\0')
        at++;
    while (at > 0 && before[at - 1] != '\n')
        at--;
    live_note("before: %.200s", before + at);
    live_note("after: %.200s", after + at);
}

static void round_trip(cqlring_cluster *cluster, cqlring_session *session)
{
    live_begin("the text of a keyspace makes it again");
    bool made = true;
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        made = live_run(session, statements[i], "cqlring_live", "cqlring_live") && made;
    char *before = text_of(cluster);
    if (made && before != NULL && live_run(session, "DROP KEYSPACE cqlring_live") && run_all(session, before)) {
        char *after = text_of(cluster);
        if (after == NULL || strcmp(before, after) != 0)
            first_difference(before, after != NULL ? after : "");
        free(after);
    }
    free(before);
    live_end();
}

static void all_is_there(cqlring_cluster *cluster)
{
    live_begin("what was made is in the snapshot");
    cqlring_schema *schema = read_schema(cluster);
    const cqlring_schema_keyspace *keyspace = cqlring_schema_find_keyspace(schema, "cqlring_live");
    const cqlring_schema_table *wide = cqlring_schema_find_table(schema, "cqlring_live", "wide"), *view = cqlring_schema_find_table(schema, "cqlring_live", "by_v");
    if (live_check(keyspace != NULL && wide != NULL && view != NULL, "keyspace, table and view")) {
        live_equal(keyspace->table_count, 6, "tables and views");
        live_equal(keyspace->type_count, 2, "types");
        live_equal(keyspace->function_count, 4, "functions and aggregates");
        live_equal(wide->partition_key_count, 2, "parts of the partition key");
        live_equal(wide->clustering_count, 2, "clustering columns");
        live_equal(wide->index_count, 2, "indexes");
        live_check(view->is_view, "it is a view");
        for (uint32_t i = 0; i < wide->column_count; i++)
            live_check(wide->columns[i]->type != NULL, wide->columns[i]->type_text);
    }
    const cqlring_schema_keyspace *const *keyspaces = NULL;
    uint32_t count = cqlring_schema_keyspaces(schema, &keyspaces), others = 0;
    for (uint32_t i = 0; i < count; i++)
        others += keyspaces[i]->is_virtual || strcmp(keyspaces[i]->name, "system_schema") == 0;
    live_check(others >= 3, "the server's own keyspaces, virtual ones among them");
    cqlring_schema_release(schema);
    live_end();
}

/* Events bring it up to date, some seconds later. */
static void kept_up_to_date(cqlring_cluster *cluster, cqlring_session *session)
{
    live_begin("a change is in a later snapshot by itself");
    bool there = false;
    if (live_run(session, "ALTER TABLE cqlring_live.plain ADD later frozen<before_it>"))
        for (int i = 0; i < 300 && !there; i++) {
            cqlring_schema *schema = cqlring_schema_get(cluster);
            const cqlring_schema_table *table = cqlring_schema_find_table(schema, "cqlring_live", "plain");
            for (uint32_t j = 0; table != NULL && j < table->column_count; j++)
                there = there || (strcmp(table->columns[j]->name, "later") == 0 && table->columns[j]->type != NULL);
            cqlring_schema_release(schema);
            if (!there)
                thrd_sleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
    live_check(there, "the new column");
    live_end();
}

static void agreement(cqlring_cluster *cluster, cqlring_session *session)
{
    live_begin("a change of the schema is agreed on");
    cqlring_result *result = live_query(session, "CREATE TABLE cqlring_live.agreed (k int PRIMARY KEY)");
    live_equal(cqlring_result_schema_agreed(result), 1, "agreed");
    cqlring_result_release(result);
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_schema_agree(cluster, 0, &future, &error);
    if (status == CQLRING_OK)
        status = cqlring_future_wait(future, -1, &error);
    cqlring_future_release(future);
    live_ok(status, &error, "asked for");
    live_end();
}

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    struct live_way way = {5, CQLRING_COMPRESSION_NONE};
    cqlring_cluster_options options = live_cluster_options(&way);
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    cqlring_error error;
    live_begin("opening");
    cqlring_status status = cqlring_cluster_open_sync(NULL, &options, &cluster, &error);
    if (live_ok(status, &error, "cluster"))
        status = cqlring_session_open_sync(cluster, NULL, &session, &error);
    bool opened = live_ok(status, &error, "session") && live_keyspace(session);
    live_end();
    if (opened) {
        round_trip(cluster, session);
        all_is_there(cluster);
        kept_up_to_date(cluster, session);
        agreement(cluster, session);
        live_drop(session);
    }
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
