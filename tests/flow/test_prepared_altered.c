/* SPDX-License-Identifier: Apache-2.0 */

/* The schema moves under a job: each row is read with the columns and types that belong to it. */

#include <stdio.h>
#include <string.h>

#include "ask.h"

static void up(struct flow *flow, int version, uint32_t nodes)
{
    flow_init(flow);
    flow->options.protocol_version = version;
    flow->node_options.nodes = nodes;
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
}

struct moving {
    struct flow *flow;
    uint32_t steps;
    uint64_t rows, unsound;
    uint32_t columns_least, columns_most, fields_most;
};

/* Alters the table or the type at every 400th row, and looks at each row with what it says of itself. */
static void alter_and_check(const cqlring_completion *completion, void *context)
{
    static const char *const alters[] = {"ALTER TABLE ks.moving ADD c text",          "ALTER TYPE ks.grows ADD second text", "ALTER TABLE ks.moving DROP a",
                                         "ALTER TABLE ks.moving ADD d frozen<grows>", "ALTER TYPE ks.grows ADD third int",   "ALTER TABLE ks.moving DROP c"};
    struct moving *moving = context;
    cqlring_bytes cells[16];
    uint32_t columns = cqlring_result_column_count(completion->result), count = 0;
    if (completion->status != CQLRING_OK || completion->result == NULL)
        return; /* counted by the sink */
    bool sound = columns > 0 && columns <= 16 && cqlring_result_rows(completion->result, 0, cells, 1, &count, NULL) == CQLRING_OK && count == 1;
    for (uint32_t i = 0; sound && i < columns; i++) {
        cqlring_column column;
        sound = cqlring_result_column(completion->result, i, &column) && cqlring_value_check(column.type, cells[i]) == CQLRING_OK;
        if (sound && strcmp(column.name, "u") == 0 && cqlring_type_child_count(column.type) > moving->fields_most)
            moving->fields_most = cqlring_type_child_count(column.type);
    }
    moving->unsound += !sound;
    moving->columns_least = columns < moving->columns_least ? columns : moving->columns_least;
    moving->columns_most = columns > moving->columns_most ? columns : moving->columns_most;
    if (moving->rows++ % 400 == 399 && moving->steps < sizeof alters / sizeof alters[0]) {
        char message[200];
        moving->unsound += node_cql(moving->flow->node, alters[moving->steps++], NULL, message, sizeof message) != 0;
    }
}

START_TEST(tables_and_types_are_altered_while_a_job_reads_them)
{
    struct flow flow;
    up(&flow, _i, 2);
    flow_cql(&flow, "CREATE TYPE ks.grows (first int)");
    flow_cql(&flow, "CREATE TABLE ks.moving (k bigint PRIMARY KEY, a int, u frozen<grows>)");
    enum { ROWS = 4000 };
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO ks.moving (k, a, u) VALUES (?, 7, {first: 1})");
    cqlring_prepared *select = flow_prepare(&flow, "SELECT * FROM ks.moving WHERE k = ?");
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 0);
    rows.keys_only = true;
    flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
    flow_rows_fini(&rows);
    struct moving moving = {.flow = &flow, .columns_least = 99};
    flow_rows_init(&rows, ROWS, 0);
    rows.keys_only = true;
    flow_sink_init(&sink, ROWS);
    sink.each = alter_and_check;
    sink.context = &moving;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 100};
    flow_ok(flow_run(&flow, select, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(moving.rows, ROWS);
    ck_assert_uint_eq(moving.unsound, 0);
    ck_assert_uint_eq(moving.steps, 6);
    ck_assert_uint_eq(moving.columns_most, 4); /* k, a, c, u; then k, c, d, u; in the end k, d, u */
    ck_assert_uint_eq(moving.columns_least, 3);
    ck_assert_uint_eq(moving.fields_most, 3);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepared_altered");
    TCase *tcase = tcase_create("prepared_altered");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, tables_and_types_are_altered_while_a_job_reads_them, 4, 6);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
