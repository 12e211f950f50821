/* SPDX-License-Identifier: Apache-2.0 */

/* execute_concurrent against the embedded node: every issued row has one outcome, whatever the source, the sink and the node do. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

START_TEST(every_row_is_written_and_read_back)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 20000, 40);
    flow_sink_init(&sink, 20000);
    cqlring_summary summary;
    cqlring_error error;
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, &summary, &error));
    ck_assert_uint_eq(summary.rows, 20000);
    ck_assert_uint_eq(summary.failed, 0);
    ck_assert_uint_eq(summary.low_water, 20000);
    ck_assert_uint_eq(sink.last, 20000);
    ck_assert_uint_eq(sink.twice, 0);
    ck_assert_uint_eq(flow_sink_missing(&sink, 20000), 0);
    ck_assert_uint_le(sink.batch_max, 256);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 20000);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_window_of_one_and_an_empty_source_end)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    const uint64_t counts[] = {0, 1, 50};
    for (int i = 0; i < 3; i++) {
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, counts[i], 8);
        flow_sink_init(&sink, counts[i]);
        cqlring_job_options options = {.struct_size = sizeof options, .window = 1};
        cqlring_summary summary;
        flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
        ck_assert_uint_eq(summary.rows, counts[i]);
        ck_assert_uint_eq(sink.out_of_order, 0);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(ordered_outcomes_come_in_the_sources_order)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 2000;
    flow.node_options.jitter_us = 2000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 3000, 8);
    flow_sink_init(&sink, 3000);
    cqlring_job_options options = {.struct_size = sizeof options, .ordered = 1, .window = 100};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.last, 3000);
    ck_assert_uint_eq(sink.out_of_order, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(unordered_outcomes_overtake_when_replies_do)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 2000;
    flow.node_options.jitter_us = 2000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 3000, 8);
    flow_sink_init(&sink, 3000);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 100};
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.last, 3000);
    ck_assert_uint_gt(sink.out_of_order, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(ec_08_errors_max_1_stops_issuing_and_tells_the_servers_error)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "error:code=0x2200,after=1000,times=1,opcode=EXECUTE");
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 100000, 8);
    flow_sink_init(&sink, 100000);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 64, .errors_max = 1};
    cqlring_summary summary;
    cqlring_error error;
    cqlring_status status = flow_run(&flow, insert, &rows, &sink, &options, &summary, &error);
    ck_assert_int_eq(status, CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_uint_eq(sink.failed, 1);
    ck_assert_int_eq(sink.first_code, 0x2200);
    ck_assert_uint_eq(sink.last, summary.rows);
    ck_assert_uint_le(summary.rows, 1001 + 64);
    ck_assert_uint_eq(flow_sink_missing(&sink, summary.rows), 0);
    ck_assert_uint_eq((uint64_t)node_table_rows(flow.node, "ks.t"), summary.rows - 1);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_source_that_fails_ends_the_job_with_its_own_error)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 5000, 8);
    flow_sink_init(&sink, 5000);
    rows.fail_at = 1234;
    cqlring_summary summary;
    cqlring_error error;
    cqlring_status status = flow_run(&flow, insert, &rows, &sink, NULL, &summary, &error);
    ck_assert_int_eq(status, CQLRING_TYPE);
    ck_assert_str_eq(error.message, "the source broke at row 1234");
    ck_assert_uint_eq(summary.rows, 1234);
    ck_assert_uint_eq(sink.last, 1234);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1234);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_source_that_says_later_is_asked_again_at_its_time_and_after_a_poke)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 1000, 8);
    flow_sink_init(&sink, 1000);
    rows.later_at = 500;
    rows.later_us = 20000;
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    ck_assert_uint_eq(sink.last, 1000);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);

    flow_rows_init(&rows, 1000, 8);
    flow_sink_init(&sink, 1000);
    rows.later_at = 500;
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, NULL);
    cqlring_error error;
    flow_until(job, &rows.later_said);
    ck_assert_int_eq(cqlring_future_wait(job, 20000, &error), CQLRING_TIMEOUT);
    cqlring_job_poke(job);
    flow_ok(cqlring_future_wait(job, 10000000, &error));
    ck_assert_uint_eq(sink.last, 1000);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_sink_that_says_later_gets_the_same_completions_first_after_a_poke)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 5000, 8);
    flow_sink_init(&sink, 5000);
    sink.later_at = 700;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 128};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    cqlring_error error;
    flow_until(job, &sink.later_said);
    ck_assert_int_eq(cqlring_future_wait(job, 20000, &error), CQLRING_TIMEOUT);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_lt(summary.rows, 5000);
    cqlring_job_poke(job);
    flow_ok(cqlring_future_wait(job, 10000000, &error));
    ck_assert_uint_eq(sink.last, 5000);
    ck_assert_uint_eq(sink.twice, 0);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

struct never {
    uint32_t calls;          /* while the job ran */
    uint32_t last_calls, rows; /* the last delivery's */
    atomic_bool said, closing;
};

static cqlring_verdict never(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct never *sink = context;
    for (uint32_t i = 0; i < count; i++)
        flow_completion_agrees(&completions[i]);
    if (atomic_load(&sink->closing)) {
        sink->last_calls++;
        sink->rows += count;
    } else {
        sink->calls++;
    }
    atomic_store(&sink->said, true);
    return CQLRING_LATER;
}

/* A sink that never accepts does not keep a close from ending: what it says the last time is not asked for. */
START_TEST(at_a_close_outcomes_come_a_last_time_and_later_is_ignored)
{
    static const int64_t drains[] = {0, 20000};
    for (int i = 0; i < 2; i++) {
        struct flow flow;
        flow_up(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        flow_rows_init(&rows, 5000, 8);
        struct never sink = {.calls = 0};
        cqlring_source source = flow_source(&rows);
        cqlring_job_options options = {.struct_size = sizeof options, .window = 300};
        cqlring_future *job = NULL, *closed = NULL;
        cqlring_error error;
        flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &(cqlring_sink){never, &sink}, 1, &options, &job, &error));
        flow_until(job, &sink.said);
        atomic_store(&sink.closing, true);
        flow_ok(cqlring_session_close(flow.session, drains[i], &closed, &error));
        flow_ok(cqlring_future_wait(closed, 10000000, &error));
        ck_assert_int_eq(cqlring_future_wait(job, 10000000, &error), CQLRING_CLOSED);
        cqlring_summary summary;
        cqlring_job_summary(job, &summary);
        ck_assert_uint_eq(sink.calls, 1);
        ck_assert_uint_ge(sink.last_calls, 1);
        ck_assert_uint_ge(sink.rows, 1);
        ck_assert_uint_eq(sink.rows, summary.rows); /* each of them once */
        ck_assert_uint_eq(summary.low_water, summary.rows);
        cqlring_future_release(closed);
        cqlring_future_release(job);
        flow_rows_fini(&rows);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_sink_that_says_stop_still_gets_what_is_in_flight)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 50000, 8);
    flow_sink_init(&sink, 50000);
    sink.stop_after = 1000;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 128};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
    ck_assert_uint_ge(summary.rows, 1000);
    ck_assert_uint_le(summary.rows, 1000 + 512);
    ck_assert_uint_eq(sink.last, summary.rows);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), (int64_t)summary.rows);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(cancel_gives_every_issued_row_one_outcome)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 3000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 1000000, 8);
    flow_sink_init(&sink, 1000000);
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, NULL);
    cqlring_error error;
    ck_assert_int_eq(cqlring_future_wait(job, 30000, &error), CQLRING_TIMEOUT);
    cqlring_future_cancel(job);
    ck_assert_int_eq(cqlring_future_wait(job, 10000000, &error), CQLRING_CANCELLED);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(sink.last, summary.rows);
    ck_assert_uint_eq(flow_sink_missing(&sink, summary.rows), 0);
    ck_assert_uint_eq(summary.low_water, summary.rows);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(closing_the_session_with_and_without_drain_settles_every_row)
{
    const int64_t drains[] = {0, 5000000, 1000};
    for (int i = 0; i < 3; i++) {
        struct flow flow;
        flow_init(&flow);
        flow.node_options.delay_us = 20000;
        flow_start(&flow);
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 1000000, 8);
        flow_sink_init(&sink, 1000000);
        cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
        cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options), *closed = NULL;
        cqlring_error error;
        cqlring_summary summary = {0};
        while (summary.rows < 1000) {
            ck_assert_int_eq(cqlring_future_wait(job, 1000, &error), CQLRING_TIMEOUT);
            cqlring_job_summary(job, &summary);
        }
        if (drains[i] == 0)
            node_freeze(flow.node, 0, -1); /* so some are under way */
        flow_ok(cqlring_session_close(flow.session, drains[i], &closed, &error));
        flow_ok(cqlring_future_wait(closed, 10000000, &error));
        ck_assert_int_eq(cqlring_future_wait(job, 0, &error), CQLRING_CLOSED);
        cqlring_job_summary(job, &summary);
        ck_assert_uint_eq(sink.last, summary.rows);
        ck_assert_uint_eq(flow_sink_missing(&sink, summary.rows), 0);
        if (drains[i] == 5000000)
            ck_assert_uint_eq(sink.failed, 0);
        if (drains[i] == 0)
            ck_assert_uint_gt(sink.by_status[CQLRING_CLOSED], 0);
        cqlring_future_release(closed);
        cqlring_future_release(job);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

static void refused_row(const cqlring_completion *completion, void *context)
{
    int *failed = context;
    if (completion->row == 57) { /* a size that is none: there are no cells to give back */
        ck_assert_ptr_nonnull(strstr(completion->error->message, "\"v\""));
        ck_assert_uint_eq(cqlring_completion_cells(completion, NULL, 0), 0);
    } else if (completion->status != CQLRING_OK) {
        *failed = (int)completion->row;
        ck_assert_uint_eq(completion->phase, CQLRING_NOT_SENT);
        ck_assert_ptr_nonnull(strstr(completion->error->message, "\"k\""));
        cqlring_bytes cells[2];
        ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 2), 2);
        ck_assert_int_eq(cells[0].size, 9);
        ck_assert_int_eq(cells[1].size, 4);
    }
}

static int32_t one_bad_row(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake, cqlring_error *error, void *context)
{
    static uint8_t cell[9] = {0};
    static cqlring_bytes good[2] = {{cell, 8}, {cell, 4}}, bad[2] = {{cell, 9}, {cell, 4}}, worse[2] = {{cell, 8}, {cell, -3}};
    uint64_t *next = context;
    (void)now_us;
    (void)wake;
    (void)error;
    uint32_t count = 0;
    for (; count < capacity && *next < 100; count++, ++*next)
        out[count] = (cqlring_row){.cells = *next == 42 ? bad : *next == 57 ? worse : good};
    return (int32_t)count;
}

START_TEST(fr_09_a_row_that_does_not_encode_fails_alone)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    uint64_t next = 0;
    int failed = -1;
    struct flow_sink sink;
    flow_sink_init(&sink, 100);
    sink.each = refused_row;
    sink.context = &failed;
    cqlring_source source = {.next = one_bad_row, .context = &next};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &out, 1, NULL, &job, NULL));
    flow_ok(cqlring_future_wait(job, 10000000, NULL));
    ck_assert_uint_eq(sink.ok, 98);
    ck_assert_uint_ge(sink.by_status[CQLRING_TYPE], 1);
    ck_assert_uint_eq(sink.failed, 2);
    ck_assert_int_eq(failed, 42);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_eq(stats.connections_lost, 0);
    cqlring_future_release(job);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(pause_resume_and_rate)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 1000, 8);
    flow_sink_init(&sink, 1000);
    cqlring_job_options options = {.struct_size = sizeof options, .rows_per_s = 5000};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    cqlring_job_pause(job);
    cqlring_error error;
    cqlring_summary before, after;
    for (int i = 0; i < 50; i++) { /* what was under way ends, and then nothing happens */
        cqlring_job_summary(job, &before);
        ck_assert_int_eq(cqlring_future_wait(job, 60000, &error), CQLRING_TIMEOUT);
        cqlring_job_summary(job, &after);
        if (before.rows == after.rows)
            break;
    }
    ck_assert_uint_eq(before.rows, after.rows);
    cqlring_job_resume(job);
    flow_ok(cqlring_future_wait(job, 10000000, &error));
    ck_assert_uint_eq(sink.last, 1000);
    cqlring_job_summary(job, &after);
    ck_assert_int_ge(after.ended_us - after.started_us, 1000 * 1000000 / 5000 - 20000);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static void dead_letter(const cqlring_completion *completion, void *context)
{
    cqlring_bytes cells[2];
    uint8_t expected[40];
    if (completion->status == CQLRING_OK) {
        ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 2), 0);
        return;
    }
    ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 2), 2);
    flow_blob(completion->tag, expected, 40);
    ck_assert_int_eq(cells[0].size, 8);
    ck_assert_int_eq(cells[1].size, 40);
    ck_assert_mem_eq(cells[1].data, expected, 40);
    ++*(uint64_t *)context;
}

START_TEST(failed_rows_can_be_had_with_their_cells)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "error:code=0x1500,every=7,opcode=EXECUTE");
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 7000, 40);
    flow_sink_init(&sink, 7000);
    uint64_t letters = 0;
    sink.each = dead_letter;
    sink.context = &letters;
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    ck_assert_uint_eq(letters, 1000);
    ck_assert_uint_eq(sink.failed, 1000);
    ck_assert_uint_eq(sink.maybe, 1000);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

struct page_count {
    uint64_t rows;
};

static void count_rows(const cqlring_completion *completion, void *context)
{
    if (completion->result != NULL)
        ((struct page_count *)context)->rows += cqlring_result_row_count(completion->result);
}

static int32_t twenty_partitions(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake, cqlring_error *error, void *context)
{
    static cqlring_bytes cells[32];
    int *next = context;
    (void)now_us;
    (void)wake;
    (void)error;
    uint32_t count = 0;
    for (; count < capacity && *next < 20; count++, ++*next) {
        cells[count] = flow_int(*next);
        out[count] = (cqlring_row){.cells = &cells[count]};
    }
    return (int32_t)count;
}

START_TEST(ec_07_a_job_of_selects_delivers_all_pages_one_of_them_last)
{
    struct flow flow;
    flow_up(&flow);
    flow_cql(&flow, "CREATE TABLE ks.wide (p int, c int, PRIMARY KEY (p, c))");
    for (int p = 0; p < 20; p++)
        for (int c = 0; c < 10; c++) {
            char cql[128];
            snprintf(cql, sizeof cql, "INSERT INTO ks.wide (p, c) VALUES (%d, %d)", p, c);
            ck_assert_int_eq(node_cql(flow.node, cql, NULL, NULL, 0), 0);
        }
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    int next = 0;
    struct page_count pages = {0};
    struct flow_sink sink;
    flow_sink_init(&sink, 20);
    sink.each = count_rows;
    sink.context = &pages;
    cqlring_source source = {.next = twenty_partitions, .context = &next};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 2};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how};
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &select, 1, &source, &out, 1, &options, &job, NULL));
    flow_ok(cqlring_future_wait(job, 10000000, NULL));
    ck_assert_uint_eq(pages.rows, 200);
    ck_assert_uint_eq(sink.last, 20);
    ck_assert_uint_ge(sink.delivered, 100);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(summary.rows, 20);
    cqlring_future_release(job);
    flow_sink_fini(&sink);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job");
    TCase *tcase = tcase_create("job");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_row_is_written_and_read_back);
    tcase_add_test(tcase, a_window_of_one_and_an_empty_source_end);
    tcase_add_test(tcase, ordered_outcomes_come_in_the_sources_order);
    tcase_add_test(tcase, unordered_outcomes_overtake_when_replies_do);
    tcase_add_test(tcase, ec_08_errors_max_1_stops_issuing_and_tells_the_servers_error);
    tcase_add_test(tcase, a_source_that_fails_ends_the_job_with_its_own_error);
    tcase_add_test(tcase, a_source_that_says_later_is_asked_again_at_its_time_and_after_a_poke);
    tcase_add_test(tcase, a_sink_that_says_later_gets_the_same_completions_first_after_a_poke);
    tcase_add_test(tcase, at_a_close_outcomes_come_a_last_time_and_later_is_ignored);
    tcase_add_test(tcase, a_sink_that_says_stop_still_gets_what_is_in_flight);
    tcase_add_test(tcase, cancel_gives_every_issued_row_one_outcome);
    tcase_add_test(tcase, closing_the_session_with_and_without_drain_settles_every_row);
    tcase_add_test(tcase, fr_09_a_row_that_does_not_encode_fails_alone);
    tcase_add_test(tcase, failed_rows_can_be_had_with_their_cells);
    tcase_add_test(tcase, pause_resume_and_rate);
    tcase_add_test(tcase, ec_07_a_job_of_selects_delivers_all_pages_one_of_them_last);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
