/* SPDX-License-Identifier: Apache-2.0 */

/* batch_by_partition: which rows go together, and that what is stored, told and counted is as if each had gone alone. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/prepared.h"
#include "grid.h"
#include "watch.h"

static const cqlring_batch_by_partition by_partition = {.struct_size = sizeof by_partition};
static const cqlring_job_options together = {.struct_size = sizeof together, .batch_by_partition = &by_partition};

static struct node_counters counted(struct flow *flow)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters;
}

static void up(struct flow *flow)
{
    flow_init(flow);
    grid_up(flow);
}

/* The same row written twice must be two writes, the later one winning; where the bytes do not tell which row it is, all go alone. */
struct pair {
    cqlring_bytes cells[2][3];
    int given;
};

static int32_t pair_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct pair *pair = context;
    (void)now_us, (void)wake_at_us, (void)error;
    if (pair->given > 0 || capacity < 2)
        return 0;
    for (int i = 0; i < 2; i++)
        rows[i] = (cqlring_row){.cells = pair->cells[i]};
    pair->given = 2;
    return 2;
}

START_TEST(rows_whose_keys_cannot_be_told_apart_by_bytes_go_alone)
{
    static const struct {
        const char *type, *insert;
        cqlring_bytes first, second; /* the same clustering value */
    } cases[] = {{"decimal", "INSERT INTO ks.d (p, c, v) VALUES (?, ?, ?)", {"\0\0\0\1\x0A", 5}, {"\0\0\0\2\x64", 5}},
                 {"varint", "INSERT INTO ks.d (p, c, v) VALUES (?, ?, ?)", {"\1", 1}, {"\0\0\0\1", 4}},
                 {"boolean", "INSERT INTO ks.d (p, c, v) VALUES (?, ?, ?)", {"\1", 1}, {"\2", 1}},
                 {"int", "INSERT INTO ks.d (p, c, v) VALUES (:p, :v, :c)", {"\0\0\0\5", 4}, {"\0\0\0\5", 4}}}; /* v and c are called by one another's name */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flow flow;
        up(&flow);
        char cql[120];
        snprintf(cql, sizeof cql, "CREATE TABLE ks.d (p int, c %s, v int, PRIMARY KEY (p, c))", cases[i].type);
        flow_cql(&flow, cql);
        cqlring_future *read = NULL;
        flow_ok(cqlring_schema_refresh(flow.cluster, &read, NULL));
        flow_ok(ask_end(read, NULL));
        cqlring_prepared *insert = flow_prepare(&flow, cases[i].insert);
        struct pair pair = {.cells = {{{"\0\0\0\1", 4}, cases[i].first, {"\0\0\0\x09", 4}}, {{"\0\0\0\1", 4}, cases[i].second, {"\0\0\0\3", 4}}}};
        cqlring_source source = {.next = pair_next, .context = &pair};
        cqlring_future *job = NULL;
        flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &together, &job, NULL));
        flow_ok(ask_end(job, NULL));
        ck_assert_uint_eq(flow_stats(&flow).batches, 0);
        ck_assert_int_eq(ask_number(&flow, "SELECT v FROM ks.d WHERE p = 1"), 3); /* the later one */
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(rows_of_one_partition_go_as_one_unlogged_batch)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    struct flow_sink sink;
    grid_init(&grid);
    flow_sink_init(&sink, 2000);
    for (int i = 0; i < 2000; i++)
        grid_add(&grid, i / 10, i % 10, 20, (uint8_t)i);
    cqlring_summary summary;
    flow_ok(grid_run(&flow, &insert, 1, &grid, &sink, &together, &summary, NULL));
    struct node_counters counters = counted(&flow);
    ck_assert_uint_eq(counters.batch_statements + counters.opcodes[OPCODE_EXECUTE], 2000);
    /* each pull of 128 rows cuts one partition at most */
    ck_assert_uint_le(counters.opcodes[OPCODE_BATCH] + counters.opcodes[OPCODE_EXECUTE], 200 + 20);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 2000);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.batches, counters.opcodes[OPCODE_BATCH]);
    ck_assert_uint_eq(stats.batched_rows, counters.batch_statements);
    ck_assert_uint_eq(stats.batches_split, 0);
    ck_assert_uint_eq(summary.rows, 2000);
    ck_assert_uint_eq(summary.low_water, 2000);
    ck_assert_uint_eq(summary.failed, 0);
    ck_assert_uint_eq(summary.bytes_sent, 2000 * (8 + 4 + 20 + 3 * 4) + 2 * counters.batch_statements);
    ck_assert_uint_eq(sink.ok, 2000);
    ck_assert_uint_eq(flow_sink_missing(&sink, 2000), 0);
    for (uint32_t i = 0; i < ask_seen_count(OPCODE_BATCH); i++) {
        ck_assert_uint_eq(ask_seen_at(OPCODE_BATCH, i).batch_kind, CQLRING_BATCH_UNLOGGED);
        ck_assert_uint_ge(ask_seen_at(OPCODE_BATCH, i).batch_count, 2);
        ck_assert(ask_seen_at(OPCODE_BATCH, i).has_timestamp);
    }
    ck_assert_int_eq(grid_value(&flow, 150, 7), 1507 % 256);
    grid_fini(&grid);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_of_other_partitions_go_alone)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 1000; i++)
        grid_add(&grid, i, 1, 8, 1);
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &together, NULL, NULL));
    ck_assert_uint_eq(counted(&flow).opcodes[OPCODE_BATCH], 0);
    ck_assert_uint_eq(counted(&flow).opcodes[OPCODE_EXECUTE], 1000);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 1000);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(interleaved_partitions_find_their_company_in_what_was_pulled)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 1280; i++)
        grid_add(&grid, i % 16, i / 16, 8, 1);
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &together, NULL, NULL));
    struct node_counters counters = counted(&flow);
    ck_assert_uint_eq(counters.batch_statements, 1280);
    ck_assert_uint_eq(counters.opcodes[OPCODE_BATCH], 10 * 16); /* ten pulls of 128 */
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 1280);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_max_bytes_max_and_look_rows_bound_a_batch)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    const cqlring_batch_by_partition limits[] = {{.struct_size = sizeof by_partition, .rows_max = 7},
                                                 {.struct_size = sizeof by_partition, .bytes_max = 1000},
                                                 {.struct_size = sizeof by_partition, .look_rows = 5}};
    const uint32_t rows_expected[] = {7, 1000 / (3 + 16 + 2 + 12 + 112), 5};
    for (int i = 0; i < 3; i++) {
        struct grid grid;
        grid_init(&grid);
        for (int j = 0; j < 500; j++)
            grid_add(&grid, 1, j, 100, 1);
        ask_record_clear();
        cqlring_job_options options = together;
        options.batch_by_partition = &limits[i];
        flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &options, NULL, NULL));
        uint32_t most = 0, all = 0;
        for (uint32_t at = 0; at < ask_seen_count(OPCODE_BATCH); at++) {
            uint32_t rows = ask_seen_at(OPCODE_BATCH, at).batch_count;
            most = rows > most ? rows : most;
            all += rows;
        }
        ck_assert_uint_eq(most, rows_expected[i]);
        ck_assert_uint_eq(all + ask_seen_count(OPCODE_EXECUTE), 500);
        if (limits[i].look_rows != 0)
            ck_assert_uint_le(grid.capacity_max, 5);
        grid_fini(&grid);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_row_larger_than_bytes_max_goes_alone)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 100; i++)
        grid_add(&grid, 1, i, i % 10 == 5 ? 2000 : 8, 1);
    const cqlring_batch_by_partition small = {.struct_size = sizeof small, .bytes_max = 1024};
    cqlring_job_options options = together;
    options.batch_by_partition = &small;
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &options, NULL, NULL));
    ck_assert_uint_ge(counted(&flow).opcodes[OPCODE_EXECUTE], 10);
    ck_assert_uint_gt(counted(&flow).opcodes[OPCODE_BATCH], 0);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 100);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(the_later_row_of_the_same_primary_key_wins)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    /* the later value is the smaller one: with the same timestamp the server would keep the larger */
    for (int round = 0; round < 20; round++)
        for (int c = 0; c < 10; c++)
            grid_add(&grid, 5, c, 8, (uint8_t)(200 - round));
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &together, NULL, NULL));
    ck_assert_uint_ge(counted(&flow).opcodes[OPCODE_BATCH], 20);
    ck_assert_uint_eq(counted(&flow).batch_statements + counted(&flow).opcodes[OPCODE_EXECUTE], 200);
    for (int c = 0; c < 10; c++)
        ck_assert_int_eq(grid_value(&flow, 5, c), 181);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_deletion_of_the_partition_takes_what_was_before_it_and_leaves_what_comes_after)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *statements[2] = {flow_prepare(&flow, GRID_INSERT), flow_prepare(&flow, GRID_DELETE_ALL)};
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 10; i++)
        grid_add(&grid, 1, i, 8, 1);
    struct grid_row *all = grid_add(&grid, 1, 0, 0, 0);
    all->statement = 1;
    all->partition_only = true;
    for (int i = 20; i < 30; i++)
        grid_add(&grid, 1, i, 8, 1);
    flow_ok(grid_run(&flow, statements, 2, &grid, NULL, &together, NULL, NULL));
    ck_assert_uint_eq(counted(&flow).opcodes[OPCODE_BATCH], 2);
    ck_assert_uint_eq(counted(&flow).opcodes[OPCODE_EXECUTE], 1);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 10);
    ck_assert_int_eq(grid_value(&flow, 1, 9), -1);
    ck_assert_int_eq(grid_value(&flow, 1, 20), 1);
    int64_t before = ask_seen_at(OPCODE_BATCH, 0).timestamp_us, deleted = ask_seen_at(OPCODE_EXECUTE, 0).timestamp_us, after = ask_seen_at(OPCODE_BATCH, 1).timestamp_us;
    ck_assert_int_lt(before, deleted);
    ck_assert_int_lt(deleted, after);
    grid_fini(&grid);
    cqlring_prepared_release(statements[0]);
    cqlring_prepared_release(statements[1]);
    flow_close(&flow);
}
END_TEST

START_TEST(different_statements_of_one_table_share_a_batch)
{
    struct flow flow;
    up(&flow);
    flow_cql(&flow, "CREATE TABLE ks.other (p bigint, c int, v blob, PRIMARY KEY (p, c))");
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    flow_ok(ask_end(future, NULL));
    cqlring_prepared *statements[4] = {flow_prepare(&flow, GRID_INSERT), flow_prepare(&flow, GRID_UPDATE), flow_prepare(&flow, GRID_DELETE),
                                       flow_prepare(&flow, "INSERT INTO ks.other (p, c, v) VALUES (?, ?, ?)")};
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 40; i++) {
        struct grid_row *row = grid_add(&grid, 9, i, 8, (uint8_t)(i + 1));
        row->statement = (uint32_t)i % 4;
        row->value_first = row->statement == 1;
        row->key_only = row->statement == 2;
    }
    flow_ok(grid_run(&flow, statements, 4, &grid, NULL, &together, NULL, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 2);
    ck_assert_uint_eq(ask_seen_at(OPCODE_BATCH, 0).batch_count, 30);
    ck_assert_uint_eq(ask_seen_at(OPCODE_BATCH, 1).batch_count, 10);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 20);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.other"), 10);
    ck_assert_int_eq(grid_value(&flow, 9, 5), 6);
    grid_fini(&grid);
    for (int i = 0; i < 4; i++)
        cqlring_prepared_release(statements[i]);
    flow_close(&flow);
}
END_TEST

START_TEST(counters_conditions_reads_and_ranges_go_alone)
{
    struct flow flow;
    up(&flow);
    flow_cql(&flow, "CREATE TABLE ks.n (p bigint, c int, n counter, PRIMARY KEY (p, c))");
    flow_cql(&flow, "CREATE TABLE ks.s (p bigint, c int, v blob, st blob static, PRIMARY KEY (p, c))");
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    flow_ok(ask_end(future, NULL));
    const struct {
        const char *cql;
        bool key_only, partition_only;
    } cases[] = {{"UPDATE ks.n SET n = n + 1 WHERE p = ? AND c = ?", true, false},
                 {"UPDATE ks.n SET n = n - 1 WHERE c = 3 AND p = ?", false, true},
                 {"INSERT INTO ks.e (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS", false, false},
                 {"SELECT v FROM ks.e WHERE p = ? AND c = ?", true, false},
                 {"DELETE FROM ks.e WHERE p = ? AND c > ?", true, false},
                 {"DELETE FROM ks.e WHERE p = ? AND c IN (?, 4000)", true, false},
                 {"INSERT INTO ks.s (p, c, st) VALUES (?, ?, ?)", false, false},
                 {"INSERT INTO ks.s (p, c, v, ST) VALUES (?, ?, ?, 0x00)", false, false},
                 {"UPDATE ks.s SET st = 0x01 WHERE p = ?", false, true},
                 {"BEGIN UNLOGGED BATCH DELETE FROM ks.e WHERE p = ? AND c = ?; APPLY BATCH", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_prepared *statement = flow_prepare(&flow, cases[i].cql);
        struct grid grid;
        struct flow_sink sink;
        grid_init(&grid);
        flow_sink_init(&sink, 30);
        for (int j = 0; j < 30; j++) {
            struct grid_row *row = grid_add(&grid, 3, j, 8, 1);
            row->key_only = cases[i].key_only;
            row->partition_only = cases[i].partition_only;
        }
        ask_record_clear();
        flow_ok(grid_run(&flow, &statement, 1, &grid, &sink, &together, NULL, NULL));
        ck_assert_msg(sink.failed == 0, "%s: %s", cases[i].cql, sink.first_error);
        ck_assert_msg(ask_seen_count(OPCODE_BATCH) == 0, "%s came in a batch", cases[i].cql);
        ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 30);
        grid_fini(&grid);
        flow_sink_fini(&sink);
        cqlring_prepared_release(statement);
    }
    ck_assert_int_eq(ask_number(&flow, "SELECT n FROM ks.n WHERE p = 3 AND c = 4"), 1);
    flow_close(&flow);
}
END_TEST

/* A static column may be called as half of every statement's words are. */
START_TEST(a_static_column_keeps_rows_apart_only_where_it_is_named)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    grid_up(&flow);
    flow_cql(&flow, "CREATE TABLE ks.s (p bigint, c int, v blob, i blob static, \"E\" blob static, PRIMARY KEY (p, c))");
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    flow_ok(ask_end(future, NULL));
    static const struct {
        const char *cql, *why; /* NULL: they go together */
    } cases[] = {{"INSERT INTO ks.s (p, c, v) VALUES (?, ?, ?)", NULL},
                 {"INSERT INTO ks.s (p, c, v) VALUES (?, ?, ?) USING TTL 100 /* not i, not \"E\" */", NULL},
                 {"insert into ks.s (p, c, v) values (?, ?, ?) -- 'i'", NULL},
                 {"INSERT INTO ks.s (p, c, v, I) VALUES (?, ?, ?, 0x00)", "static column \"i\""},
                 {"INSERT INTO ks.s (p, c, v, \"i\") VALUES (?, ?, ?, 0x00)", "static column \"i\""},
                 {"INSERT INTO ks.s (p, c, v, \"E\") VALUES (?, ?, ?, 0x00)", "static column \"E\""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_prepared *statement = flow_prepare(&flow, cases[i].cql);
        struct grid grid;
        grid_init(&grid);
        for (int j = 0; j < 30; j++)
            grid_add(&grid, 3, j, 8, 1);
        ask_record_clear();
        watch_log_clear();
        flow_ok(grid_run(&flow, &statement, 1, &grid, NULL, &together, NULL, NULL));
        ck_assert_msg(ask_seen_count(OPCODE_BATCH) == (cases[i].why == NULL), "%s: %u batches", cases[i].cql, ask_seen_count(OPCODE_BATCH));
        ck_assert_msg(watch_log_count("go alone") == (cases[i].why != NULL), "%s: %s", cases[i].cql, watch_log_text());
        if (cases[i].why != NULL)
            ck_assert_msg(watch_log_count(cases[i].why) == 1, "%s: %s", cases[i].cql, watch_log_text());
        grid_fini(&grid);
        cqlring_prepared_release(statement);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(what_goes_alone_is_told_with_its_reason)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    grid_up(&flow);
    flow_cql(&flow, "CREATE TABLE ks.n (p bigint, c int, n counter, PRIMARY KEY (p, c))");
    flow_cql(&flow, "CREATE TABLE ks.f (p bigint, c float, v blob, PRIMARY KEY (p, c))");
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
    flow_ok(ask_end(future, NULL));
    static const struct {
        const char *cql, *why;
    } cases[] = {{"UPDATE ks.n SET n = n + ? WHERE p = ? AND c = ?", "it counts"},
                 {"UPDATE ks.n SET n = n + 1 WHERE p = ? AND c = ?", "it counts"},
                 {"INSERT INTO ks.e (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS", "it has a condition"},
                 {"SELECT v FROM ks.e WHERE p = ? AND c = ?", "it reads"},
                 {"DELETE FROM ks.e WHERE p = ? AND c > ?", "several rows"},
                 {"DELETE FROM ks.e WHERE p = ?", "clustering column \"c\" is not bound"},
                 {"INSERT INTO ks.f (p, c, v) VALUES (?, ?, ?)", "type of clustering column \"c\""},
                 {"INSERT INTO ks.t (k, v) VALUES (?, ?)", "no clustering column"},
                 {"INSERT INTO ks.e (p, c, v) VALUES (1, ?, ?)", "partition key is not bound"},
                 {"INSERT INTO ks.e (p, c, v) VALUES (:x, :y, :z)", "named markers"}};
    cqlring_prepared *usual = flow_prepare(&flow, GRID_INSERT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_prepared *statements[2] = {flow_prepare(&flow, cases[i].cql), usual};
        for (uint32_t count = 1; count <= 2; count++) { /* alone, nothing of the job goes together */
            struct grid grid;
            grid_init(&grid);
            watch_log_clear();
            flow_ok(grid_run(&flow, statements, count, &grid, NULL, &together, NULL, NULL));
            ck_assert_msg(watch_log_count(cases[i].why) == 1 && watch_log_count(cases[i].cql) == 1, "%s: %s", cases[i].cql, watch_log_text());
            ck_assert_msg(watch_log_count("go alone") == 1, "%s", watch_log_text());
            ck_assert_msg(watch_log_count("batch_by_partition does nothing") == (count == 1), "%s", watch_log_text());
            grid_fini(&grid);
        }
        ck_assert_int_eq(cqr_prepared_version(statements[0])->is_counter, i == 0);
        cqlring_prepared_release(statements[0]);
    }
    cqlring_prepared_release(usual);
    flow_close(&flow);
}
END_TEST

/* A time to live, and a timestamp of the row's own in the statement, are the row's in a batch too. */
START_TEST(using_timestamp_and_ttl_are_each_rows_own)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.e (p, c) VALUES (?, ?) USING TIMESTAMP ?");
    cqlring_prepared *living = flow_prepare(&flow, "UPDATE ks.e USING TTL 1000 SET v = ? WHERE p = ? AND c = ?");
    cqlring_prepared *stamped = flow_prepare(&flow, "DELETE FROM ks.e USING TIMESTAMP 5 WHERE p = ? AND c = ?");
    cqlring_prepared *statements[3] = {insert, living, stamped};
    struct grid grid;
    struct flow_sink sink;
    grid_init(&grid);
    flow_sink_init(&sink, 40);
    for (int i = 0; i < 10; i++)
        grid_add(&grid, 1, i, 8, 0); /* its 8 bytes are a timestamp: 0x0101… × i */
    for (int i = 0; i < 10; i++)
        grid.rows[i].fill = (uint8_t)(i + 1);
    for (int i = 10; i < 20; i++) {
        struct grid_row *row = grid_add(&grid, 1, i, 8, 7);
        row->statement = 1;
        row->value_first = true;
    }
    for (int i = 0; i < 20; i++) { /* older than all of them: takes nothing */
        struct grid_row *row = grid_add(&grid, 1, i, 8, 7);
        row->statement = 2;
        row->key_only = true;
    }
    flow_ok(grid_run(&flow, statements, 3, &grid, &sink, &together, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%s", sink.first_error);
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 2); /* the same keys do not share one */
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 20);
    ck_assert_int_eq(grid_value(&flow, 1, 15), 7);
    int64_t ttl = ask_number(&flow, "SELECT ttl(v) FROM ks.e WHERE p = 1 AND c = 15");
    ck_assert(ttl > 900 && ttl <= 1000);
    /* the rows without a v are there by their markers' timestamps: a deletion older than one of them leaves that one */
    flow_cql(&flow, "DELETE FROM ks.e USING TIMESTAMP 361700864190383365 WHERE p = 1 AND c = 4"); /* 0x0505050505050505, as the row's */
    flow_cql(&flow, "DELETE FROM ks.e USING TIMESTAMP 361700864190383365 WHERE p = 1 AND c = 5");
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 19);
    grid_fini(&grid);
    flow_sink_fini(&sink);
    for (int i = 0; i < 3; i++)
        cqlring_prepared_release(statements[i]);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_share_a_batch_only_with_those_of_the_same_timestamp)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 30; i++)
        grid_add(&grid, 3, i, 8, 1)->timestamp_us = i < 10 ? 1000 : i < 20 ? 2000 : 0;
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &together, NULL, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 3);
    ck_assert_int_eq(ask_seen_at(OPCODE_BATCH, 0).timestamp_us, 1000);
    ck_assert_int_eq(ask_seen_at(OPCODE_BATCH, 1).timestamp_us, 2000);
    ck_assert_int_gt(ask_seen_at(OPCODE_BATCH, 2).timestamp_us, INT64_C(1000000000000000));
    ck_assert_int_eq(ask_number(&flow, "SELECT writetime(v) FROM ks.e WHERE p = 3 AND c = 15"), 2000);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(without_the_schema_it_takes_the_applications_word)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "CREATE TABLE ks.e (p bigint, c int, v blob, PRIMARY KEY (p, c))");
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 40; i++)
        grid_add(&grid, 3, i, 8, 1);
    cqlring_source source = grid_source(&grid);
    cqlring_future *job = NULL;
    cqlring_error error;
    ck_assert_int_eq(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &together, &job, &error), CQLRING_INVALID);
    ck_assert_ptr_null(job);
    ck_assert_msg(strstr(error.message, "ks.e") != NULL && strstr(error.message, "cqlring_schema_refresh") != NULL && strstr(error.message, "distinct") != NULL, "%s",
                  error.message);
    const cqlring_batch_by_partition distinct = {.struct_size = sizeof distinct, .distinct = 1};
    cqlring_job_options options = together;
    options.batch_by_partition = &distinct;
    ask_record_clear();
    flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &options, NULL, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 1);
    ck_assert_uint_eq(ask_seen_at(OPCODE_BATCH, 0).batch_count, 40);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(options_out_of_range_are_refused_with_the_range)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    cqlring_source source = grid_source(&grid);
    const struct {
        cqlring_batch_by_partition options;
        const char *word;
    } cases[] = {{{.struct_size = 8}, "struct_size is 8"},
                 {{.struct_size = sizeof by_partition, .rows_max = 1}, "rows_max 1 (2 to 256, 0 for 64)"},
                 {{.struct_size = sizeof by_partition, .rows_max = 257}, "rows_max 257"},
                 {{.struct_size = sizeof by_partition, .bytes_max = 255}, "bytes_max 255 (256 to 16777216, 0 for 32768)"},
                 {{.struct_size = sizeof by_partition, .bytes_max = (16 << 20) + 1}, "bytes_max 16777217"},
                 {{.struct_size = sizeof by_partition, .look_rows = 1}, "look_rows 1 (2 to 256"},
                 {{.struct_size = sizeof by_partition, .look_rows = 257}, "look_rows 257"},
                 {{.struct_size = sizeof by_partition, .distinct = 2}, "distinct 2 (0 or 1)"}};
    cqlring_job_options options = together;
    cqlring_error error;
    cqlring_future *job = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.batch_by_partition = &cases[i].options;
        ck_assert_int_eq(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &options, &job, &error), CQLRING_INVALID);
        ck_assert_msg(strstr(error.message, cases[i].word) != NULL, "%s", error.message);
    }
    const cqlring_execution traced = {.struct_size = sizeof traced, .tracing = CQLRING_YES};
    options.batch_by_partition = &by_partition;
    options.execution = &traced;
    ck_assert_int_eq(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &options, &job, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "tracing") != NULL, "%s", error.message);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(no_row_waits_for_company_that_is_not_there)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    struct flow_sink sink;
    grid_init(&grid);
    flow_sink_init(&sink, 6);
    for (int i = 0; i < 6; i++)
        grid_add(&grid, 3, i, 8, 1);
    grid.later_at = 3;
    cqlring_future *job = grid_start(&flow, &insert, 1, &grid, &sink, &together);
    cqlring_error error;
    flow_until(job, &grid.later_said);
    cqlring_summary summary = {0};
    while (summary.rows < 3) { /* settled, while the source says LATER */
        ck_assert_int_eq(cqlring_future_wait(job, 1000, &error), CQLRING_TIMEOUT);
        cqlring_job_summary(job, &summary);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 1);
    ck_assert_uint_eq(ask_seen(OPCODE_BATCH).batch_count, 3);
    cqlring_job_poke(job);
    flow_ok(ask_end(job, &error));
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 2);
    ck_assert_uint_eq(sink.ok, 6);
    grid_fini(&grid);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(the_window_counts_rows_and_not_batches)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    grid_init(&grid);
    for (int i = 0; i < 1000; i++)
        grid_add(&grid, i / 10, i % 10, 8, 1);
    node_silence(flow.node, NODE_ALL, true);
    const cqlring_batch_by_partition ten = {.struct_size = sizeof ten, .look_rows = 10};
    cqlring_job_options options = together;
    options.window = 50;
    options.batch_by_partition = &ten;
    cqlring_future *job = grid_start(&flow, &insert, 1, &grid, NULL, &options);
    cqlring_error error;
    while (counted(&flow).batch_statements < 50)
        ck_assert_int_eq(cqlring_future_wait(job, 1000, &error), CQLRING_TIMEOUT);
    ask_pass(&flow, 20);
    ck_assert_uint_eq(counted(&flow).batch_statements, 50);
    ck_assert_uint_eq(counted(&flow).opcodes[OPCODE_BATCH], 5);
    cqlring_future_cancel(job);
    flow_ok(cqlring_session_close(flow.session, 0, NULL, &error));
    ck_assert_int_eq(ask_end(job, &error), CQLRING_CANCELLED);
    grid_fini(&grid);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(ordered_outcomes_are_those_of_the_rows)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 2000;
    flow.node_options.jitter_us = 2000;
    grid_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    for (int ordered = 0; ordered < 2; ordered++) {
        struct grid grid;
        struct flow_sink sink;
        grid_init(&grid);
        flow_sink_init(&sink, 3000);
        for (int i = 0; i < 3000; i++)
            grid_add(&grid, i % 7, i, 8, 1);
        cqlring_job_options options = together;
        options.ordered = ordered == 1;
        cqlring_summary summary;
        flow_ok(grid_run(&flow, &insert, 1, &grid, &sink, &options, &summary, NULL));
        ck_assert_uint_eq(sink.last, 3000);
        ck_assert_uint_eq(sink.twice, 0);
        ck_assert_uint_eq(summary.low_water, 3000);
        if (ordered == 1)
            ck_assert_uint_eq(sink.out_of_order, 0);
        else
            ck_assert_uint_gt(sink.out_of_order, 0);
        grid_fini(&grid);
        flow_sink_fini(&sink);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static void warned(const cqlring_completion *completion, void *context)
{
    uint64_t *warnings = context;
    *warnings += (completion->flags & CQLRING_COMPLETION_WARNINGS) != 0;
    ck_assert_uint_eq(completion->tag, 7000000u + completion->row);
    ck_assert_uint_eq(completion->attempts, 1);
    ck_assert_ptr_nonnull(completion->node);
    ck_assert_uint_eq(completion->phase, CQLRING_ANSWERED);
}

START_TEST(warnings_come_once_and_each_row_has_its_tag_and_node)
{
    struct flow flow;
    up(&flow);
    flow_fault(&flow, "warnings:opcode=BATCH,count=2");
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    struct flow_sink sink;
    uint64_t warnings = 0;
    grid_init(&grid);
    flow_sink_init(&sink, 100);
    sink.each = warned;
    sink.context = &warnings;
    for (int i = 0; i < 100; i++)
        grid_add(&grid, i / 50, i, 8, 1);
    flow_ok(grid_run(&flow, &insert, 1, &grid, &sink, &together, NULL, NULL));
    ck_assert_uint_eq(sink.ok, 100);
    ck_assert_uint_eq(warnings, counted(&flow).opcodes[OPCODE_BATCH]);
    ck_assert_uint_gt(warnings, 0);

    /* skip_successes: a row with a result is delivered all the same */
    struct flow_sink few;
    flow_sink_init(&few, 100);
    grid.next = 0;
    cqlring_job_options options = together;
    options.skip_successes = 1;
    node_counters_reset(flow.node);
    flow_ok(grid_run(&flow, &insert, 1, &grid, &few, &options, NULL, NULL));
    ck_assert_uint_eq(few.delivered, counted(&flow).opcodes[OPCODE_BATCH]);
    grid_fini(&grid);
    flow_sink_fini(&sink);
    flow_sink_fini(&few);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_batch_goes_to_a_replica_of_its_partition)
{
    for (int scylla = 0; scylla < 3; scylla++) {
        struct flow flow;
        flow_init(&flow);
        flow.node_options.nodes = 3;
        flow.node_options.shards = scylla > 0 ? 4 : 0;
        flow.node_options.tablets = scylla == 2;
        flow.options.schema_metadata = CQLRING_YES;
        flow_start(&flow);
        char message[200];
        ck_assert_int_eq(node_cql(flow.node, "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", NULL, message, sizeof message), 0);
        ck_assert_int_eq(node_cql(flow.node, "CREATE TABLE one.e (p bigint, c int, v blob, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
        flow_open(&flow);
        cqlring_future *future = NULL;
        flow_ok(cqlring_schema_refresh(flow.cluster, &future, NULL));
        flow_ok(ask_end(future, NULL));
        ask_until_connected(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO one.e (p, c, v) VALUES (?, ?, ?)");
        struct grid grid;
        grid_init(&grid);
        cqlring_job_options options = together;
        for (int round = 0; round < 2; round++) { /* tablets are learned in the first one */
            grid.count = grid.next = 0;
            for (int i = 0; i < 3000; i++)
                grid_add(&grid, i / 10, i % 10, 8, 1);
            node_counters_reset(flow.node);
            flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &options, NULL, NULL));
        }
        ck_assert_uint_ge(counted(&flow).opcodes[OPCODE_BATCH], 300);
        ck_assert_uint_eq(counted(&flow).replica_misses, 0);
        if (scylla > 0 && flow_stats(&flow).shard_fallbacks == 0)
            ck_assert_uint_eq(counted(&flow).shard_misses, 0);
        if (scylla == 2)
            ck_assert_uint_gt(flow_stats(&flow).tablets_learned, 0);
        for (uint32_t node = 0; node < 3; node++) {
            struct node_counters counters;
            node_counters(flow.node, node, &counters);
            ck_assert_uint_gt(counters.opcodes[OPCODE_BATCH], 0);
        }
        grid_fini(&grid);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_bad_row_fails_alone_and_others_of_its_partition_go_together)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grid;
    struct flow_sink sink;
    grid_init(&grid);
    flow_sink_init(&sink, 40);
    for (int i = 0; i < 40; i++) {
        struct grid_row *row = grid_add(&grid, 1, i, 8, 1);
        if (i == 7)
            row->statement = 5; /* the job has one */
        if (i == 11)
            row->partition_only = true; /* one value for three markers */
    }
    cqlring_summary summary;
    flow_ok(grid_run(&flow, &insert, 1, &grid, &sink, &together, &summary, NULL));
    ck_assert_uint_eq(sink.failed, 2);
    ck_assert_uint_eq(sink.by_status[CQLRING_INVALID], 2);
    ck_assert_msg(strstr(sink.first_error, "row 7 names statement 5") != NULL, "%s", sink.first_error);
    ck_assert_uint_eq(summary.low_water, 40);
    ck_assert_uint_eq(ask_seen_count(OPCODE_BATCH), 1);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 38);
    grid_fini(&grid);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Several sources, rows in any order, deletions among them, pulls of any size: what is stored is what the rows say one after the other. */
START_TEST(what_is_stored_is_as_if_each_row_had_gone_alone)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *statements[4] = {flow_prepare(&flow, GRID_INSERT), flow_prepare(&flow, GRID_UPDATE), flow_prepare(&flow, GRID_DELETE),
                                       flow_prepare(&flow, GRID_DELETE_ALL)};
    uint64_t random = 0x1234567 + (uint64_t)_i;
    enum { PARTITIONS = 6, KEYS = 12, ROWS = 4000 };
    static int wanted[PARTITIONS][KEYS];
    memset(wanted, 0xff, sizeof wanted);
    struct grid grid;
    struct flow_sink sink;
    grid_init(&grid);
    flow_sink_init(&sink, ROWS);
    for (int i = 0; i < ROWS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t dice = (uint32_t)(random >> 33);
        int p = (int)(dice % PARTITIONS), c = (int)(dice / PARTITIONS % KEYS), kind = (int)(dice / 100 % 20);
        struct grid_row *row = grid_add(&grid, p, c, 1 + dice % 5, (uint8_t)(dice >> 8));
        row->statement = kind < 10 ? 0 : kind < 16 ? 1 : kind < 19 ? 2 : 3;
        row->value_first = row->statement == 1;
        row->key_only = row->statement == 2;
        row->partition_only = row->statement == 3;
        wanted[p][c] = row->statement < 2 ? row->fill : -1;
        for (int other = 0; row->statement == 3 && other < KEYS; other++)
            wanted[p][other] = -1;
    }
    grid.per_call = _i == 0 ? 0 : (uint32_t)(3 + 30 * _i);
    cqlring_summary summary;
    flow_ok(grid_run(&flow, statements, 4, &grid, &sink, &together, &summary, NULL));
    ck_assert_uint_eq(sink.ok, ROWS);
    ck_assert_uint_eq(summary.low_water, ROWS);
    ck_assert_uint_gt(counted(&flow).batch_statements, ROWS / 3);
    for (int p = 0; p < PARTITIONS; p++)
        for (int c = 0; c < KEYS; c++) {
            int value = grid_value(&flow, p, c);
            /* a row that an UPDATE made has no marker of its own, but its v is there */
            ck_assert_msg(value == wanted[p][c], "(%d, %d): %d, not %d", p, c, value, wanted[p][c]);
        }
    grid_fini(&grid);
    flow_sink_fini(&sink);
    for (int i = 0; i < 4; i++)
        cqlring_prepared_release(statements[i]);
    flow_close(&flow);
}
END_TEST

START_TEST(once_it_runs_nothing_is_allocated_for_a_row_or_a_batch)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    uint64_t allocations[2];
    for (int round = 0; round < 3; round++) { /* the first one fills the pools */
        struct grid grid;
        grid_init(&grid);
        uint32_t count = round == 2 ? 20000 : 5000;
        for (uint32_t i = 0; i < count; i++)
            grid_add(&grid, i / 10, (int32_t)(i % 10), 32, 1);
        uint64_t before = flow_stats(&flow).allocations;
        flow_ok(grid_run(&flow, &insert, 1, &grid, NULL, &together, NULL, NULL));
        if (round > 0)
            allocations[round - 1] = flow_stats(&flow).allocations - before;
        grid_fini(&grid);
    }
    ck_assert_msg(allocations[1] <= allocations[0] + 60, "%lu allocations for 5000 rows, %lu for 20000", (unsigned long)allocations[0], (unsigned long)allocations[1]);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(several_sources_batch_each_its_own)
{
    struct flow flow;
    up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
    struct grid grids[3];
    cqlring_source sources[3];
    for (int i = 0; i < 3; i++) {
        grid_init(&grids[i]);
        for (int j = 0; j < 500; j++)
            grid_add(&grids[i], 100 * i + j / 10, j % 10, 8, 1);
        sources[i] = grid_source(&grids[i]);
    }
    cqlring_future *job = NULL;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, sources, NULL, 3, &together, &job, NULL));
    flow_ok(ask_end(job, NULL));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), 1500);
    ck_assert_uint_le(counted(&flow).opcodes[OPCODE_BATCH] + counted(&flow).opcodes[OPCODE_EXECUTE], 150 + 30);
    for (int i = 0; i < 3; i++)
        grid_fini(&grids[i]);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_rows");
    TCase *tcase = tcase_create("batch_rows");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, rows_of_one_partition_go_as_one_unlogged_batch);
    tcase_add_test(tcase, rows_whose_keys_cannot_be_told_apart_by_bytes_go_alone);
    tcase_add_test(tcase, rows_of_other_partitions_go_alone);
    tcase_add_test(tcase, interleaved_partitions_find_their_company_in_what_was_pulled);
    tcase_add_test(tcase, rows_max_bytes_max_and_look_rows_bound_a_batch);
    tcase_add_test(tcase, a_row_larger_than_bytes_max_goes_alone);
    tcase_add_test(tcase, the_later_row_of_the_same_primary_key_wins);
    tcase_add_test(tcase, a_deletion_of_the_partition_takes_what_was_before_it_and_leaves_what_comes_after);
    tcase_add_test(tcase, different_statements_of_one_table_share_a_batch);
    tcase_add_test(tcase, counters_conditions_reads_and_ranges_go_alone);
    tcase_add_test(tcase, a_static_column_keeps_rows_apart_only_where_it_is_named);
    tcase_add_test(tcase, what_goes_alone_is_told_with_its_reason);
    tcase_add_test(tcase, using_timestamp_and_ttl_are_each_rows_own);
    tcase_add_test(tcase, rows_share_a_batch_only_with_those_of_the_same_timestamp);
    tcase_add_test(tcase, without_the_schema_it_takes_the_applications_word);
    tcase_add_test(tcase, options_out_of_range_are_refused_with_the_range);
    tcase_add_test(tcase, no_row_waits_for_company_that_is_not_there);
    tcase_add_test(tcase, the_window_counts_rows_and_not_batches);
    tcase_add_test(tcase, ordered_outcomes_are_those_of_the_rows);
    tcase_add_test(tcase, warnings_come_once_and_each_row_has_its_tag_and_node);
    tcase_add_test(tcase, a_batch_goes_to_a_replica_of_its_partition);
    tcase_add_test(tcase, a_bad_row_fails_alone_and_others_of_its_partition_go_together);
    tcase_add_loop_test(tcase, what_is_stored_is_as_if_each_row_had_gone_alone, 0, 4);
    tcase_add_test(tcase, once_it_runs_nothing_is_allocated_for_a_row_or_a_batch);
    tcase_add_test(tcase, several_sources_batch_each_its_own);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
