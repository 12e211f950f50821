/* SPDX-License-Identifier: Apache-2.0 */

/* batch_by_partition when something goes wrong: each row gets what became of its batch, only the row that is wrong fails, and nothing is
   lost, told twice or done twice. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "serialize/buf.h"
#include "watch.h"

static const cqlring_batch_by_partition by_partition = {.struct_size = sizeof by_partition};
static const cqlring_job_options together = {.struct_size = sizeof together, .batch_by_partition = &by_partition};
static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

struct bench { /* what nearly every test has */
    struct flow flow;
    cqlring_prepared *insert;
    struct grid grid;
    struct flow_sink sink;
    cqlring_summary summary;
    cqlring_error error;
};

static void begin(struct bench *bench, uint32_t rows, uint32_t a_partition)
{
    memset(bench, 0, sizeof *bench);
    flow_init(&bench->flow);
    grid_init(&bench->grid);
    flow_sink_init(&bench->sink, GRID_MAX);
    for (uint32_t i = 0; i < rows; i++)
        grid_add(&bench->grid, i / a_partition, (int32_t)(i % a_partition), 100, (uint8_t)i);
}

static void ready(struct bench *bench)
{
    grid_up(&bench->flow);
    bench->insert = flow_prepare(&bench->flow, GRID_INSERT);
    node_counters_reset(bench->flow.node);
    ask_record_clear();
}

static cqlring_status run(struct bench *bench, const cqlring_job_options *options)
{
    return grid_run(&bench->flow, &bench->insert, 1, &bench->grid, &bench->sink, options, &bench->summary, &bench->error);
}

static void again(struct bench *bench)
{
    flow_sink_fini(&bench->sink);
    flow_sink_init(&bench->sink, GRID_MAX);
    bench->grid.next = 0;
    node_counters_reset(bench->flow.node);
    ask_record_clear();
}

static void end(struct bench *bench)
{
    grid_fini(&bench->grid);
    flow_sink_fini(&bench->sink);
    cqlring_prepared_release(bench->insert);
    flow_close(&bench->flow);
}

static struct node_counters counted(struct bench *bench)
{
    struct node_counters counters;
    node_counters(bench->flow.node, NODE_ALL, &counters);
    return counters;
}

/* As without batches: the first rows of the source have one outcome each, the others none, however early the job ended. */
static void check_outcomes(struct bench *bench)
{
    ck_assert_uint_eq(bench->sink.last, bench->summary.rows);
    ck_assert_uint_eq(bench->sink.twice, 0);
    ck_assert_uint_eq(bench->summary.low_water, bench->summary.rows);
    ck_assert_uint_eq(flow_sink_missing(&bench->sink, bench->summary.rows), 0);
}

START_TEST(bt_06_a_batch_too_large_is_halved_and_its_size_not_tried_again)
{
    struct bench bench;
    begin(&bench, 1000, 100);
    bench.flow.node_options.batch_size_fail = 2000;
    bench.flow.node_options.batch_size_single = true;
    ready(&bench);
    flow_ok(run(&bench, &together));
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    ck_assert_uint_eq(bench.summary.low_water, 1000);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 1000);
    cqlring_stats stats = flow_stats(&bench.flow);
    ck_assert_uint_gt(stats.batches_split, 0);
    ck_assert_uint_eq(counted(&bench).errors, stats.batches_split);
    ck_assert_int_eq(grid_value(&bench.flow, 3, 50), 350 % 256);
    again(&bench);
    flow_ok(run(&bench, &together)); /* what was learned holds for the whole cluster */
    ck_assert_uint_eq(counted(&bench).errors, 0);
    ck_assert_uint_eq(flow_stats(&bench.flow).batches_split, stats.batches_split);
    ck_assert_uint_gt(counted(&bench).opcodes[OPCODE_BATCH], 0);
    /* half of what is too large is more than half of what may be */
    uint32_t most = 0;
    for (uint32_t i = 0; i < ask_seen_count(OPCODE_BATCH); i++)
        most = ask_seen_at(OPCODE_BATCH, i).body_size > most ? ask_seen_at(OPCODE_BATCH, i).body_size : most;
    ck_assert_uint_gt(most, 900);
    end(&bench);
}
END_TEST

/* A node that says so of everything does not end batches: pairs of small rows still go together, and it is told, once for each step. */
START_TEST(a_learned_limit_is_told_and_has_a_lower_end)
{
    struct bench bench;
    begin(&bench, 2000, 100);
    for (uint32_t i = 0; i < 2000; i++)
        bench.grid.rows[i].size = 8;
    watch_log(&bench.flow);
    ready(&bench);
    char text[16384];
    ck_assert_uint_lt(cqlring_cluster_options_text(bench.flow.cluster, text, sizeof text), sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "cluster.batch_bytes_learned = (none)\n"));
    flow_fault(&bench.flow, "error:code=0x2200,opcode=BATCH,message=Batch too large");
    flow_ok(run(&bench, &together));
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    uint32_t told = watch_log_count("too large");
    ck_assert_msg(told >= 3 && told <= 8, "told %u times:\n%s", told, watch_log_text());
    ck_assert_uint_eq(watch_log_count("256 bytes"), 1);
    node_fault_remove(bench.flow.node, 0);
    again(&bench);
    flow_ok(run(&bench, &together));
    ck_assert_uint_gt(counted(&bench).opcodes[OPCODE_BATCH], 200);
    ck_assert_uint_eq(watch_log_count("too large"), told);
    cqlring_cluster_options_text(bench.flow.cluster, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "cluster.batch_bytes_learned = 256\n"));
    end(&bench);
}
END_TEST

static void cells_of_the_bad_one(const cqlring_completion *completion, void *context)
{
    if (completion->status == CQLRING_OK)
        return;
    cqlring_bytes cells[4];
    uint32_t count = cqlring_completion_cells(completion, cells, 4);
    ck_assert_uint_eq(count, 3);
    ck_assert_uint_eq(cqr_load_u64(cells[0].data), *(uint64_t *)context);
    ck_assert_int_eq(cells[1].size, CQLRING_NULL);
    ck_assert_int_eq(cells[2].size, 100);
    ck_assert_uint_eq(((const uint8_t *)cells[2].data)[99], (uint8_t)completion->row);
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(completion, &detail));
    ck_assert_int_eq(detail.server_code, 0x2200);
}

START_TEST(fr_09_a_row_that_the_server_calls_invalid_fails_alone)
{
    struct bench bench;
    begin(&bench, 64, 64);
    uint64_t partition = 0;
    bench.grid.rows[37].c = GRID_NULL;
    bench.sink.each = cells_of_the_bad_one;
    bench.sink.context = &partition;
    ready(&bench);
    flow_ok(run(&bench, &together));
    check_outcomes(&bench);
    ck_assert_uint_eq(bench.sink.failed, 1);
    ck_assert_int_eq(bench.sink.first_code, 0x2200);
    ck_assert_uint_eq(bench.summary.rows, 64);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 63);
    ck_assert_uint_le(flow_stats(&bench.flow).batches_split, 6);
    /* all with the timestamp of the first try: a later job's rows win */
    int64_t first = ask_seen_at(OPCODE_BATCH, 0).timestamp_us;
    for (uint32_t i = 0; i < ask_seen_count(0); i++)
        ck_assert_int_eq(ask_seen_at(0, i).timestamp_us, first);
    end(&bench);
}
END_TEST

static void failed_together(const cqlring_completion *completion, void *context)
{
    uint32_t *failed = context;
    cqlring_error_detail detail;
    if (completion->status == CQLRING_OK)
        return;
    ++*failed;
    ck_assert_int_eq(completion->status, CQLRING_SERVER);
    ck_assert_uint_eq(completion->tag, 7000000u + completion->row);
    ck_assert_uint_eq(completion->attempts, 1);
    ck_assert_uint_eq(completion->phase, CQLRING_ANSWERED);
    ck_assert(completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED);
    ck_assert(completion->error->may_have_been_applied);
    ck_assert_int_eq(completion->error->server_code, 0x1100);
    ck_assert_str_ne(completion->error->node, "");
    ck_assert(cqlring_completion_detail(completion, &detail));
    ck_assert(ask_is(detail.write_type, "UNLOGGED_BATCH"));
    cqlring_bytes cells[3];
    ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 3), 3);
    ck_assert_uint_eq(cqr_load_u32(cells[1].data), (uint32_t)completion->row % 10);
    ck_assert_uint_eq(((const uint8_t *)cells[2].data)[0], (uint8_t)completion->row);
}

START_TEST(each_row_of_a_batch_that_failed_has_its_error_and_its_own_cells)
{
    struct bench bench;
    begin(&bench, 100, 10);
    uint32_t failed = 0;
    bench.sink.each = failed_together;
    bench.sink.context = &failed;
    ready(&bench);
    flow_fault(&bench.flow, "error:code=0x1100,opcode=BATCH,after=3,times=1,write_type=UNLOGGED_BATCH");
    flow_ok(run(&bench, &together));
    check_outcomes(&bench);
    ck_assert_uint_eq(failed, 10);
    ck_assert_uint_eq(bench.summary.failed, 10);
    ck_assert_uint_eq(bench.summary.may_have_been_applied, 10);
    ck_assert_uint_eq(bench.summary.low_water, 100);
    ck_assert_uint_eq(flow_stats(&bench.flow).failed_by[CQLRING_SERVER], 1); /* one request */
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 90);
    end(&bench);
}
END_TEST

START_TEST(errors_max_counts_rows_of_batches)
{
    struct bench bench;
    begin(&bench, 2000, 10);
    ready(&bench);
    flow_fault(&bench.flow, "error:code=0x1100,opcode=BATCH");
    cqlring_job_options options = together;
    options.errors_max = 15;
    ck_assert_int_eq(run(&bench, &options), CQLRING_SERVER);
    check_outcomes(&bench);
    ck_assert_uint_ge(bench.summary.failed, 15);
    ck_assert_uint_le(bench.summary.rows, 512);
    end(&bench);
}
END_TEST

static void twice(const cqlring_completion *completion, void *context)
{
    *(uint64_t *)context += completion->attempts == 2;
}

START_TEST(a_batch_is_tried_again_as_its_rows_would_be)
{
    struct bench bench;
    begin(&bench, 100, 10);
    uint64_t second = 0;
    bench.sink.each = twice;
    bench.sink.context = &second;
    ready(&bench);
    flow_fault(&bench.flow, "error:code=0x1001,opcode=BATCH,after=2,times=1");
    cqlring_job_options options = together;
    options.execution = &idempotent;
    flow_ok(run(&bench, &options));
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    ck_assert_uint_eq(second, 10);
    ck_assert_uint_eq(bench.summary.retries, 10);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 100);

    /* its connection is lost, which idempotent writes survive and others do not */
    again(&bench);
    flow_fault(&bench.flow, "close:opcode=BATCH,after=2,times=1");
    flow_ok(run(&bench, &options));
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    again(&bench);
    flow_fault(&bench.flow, "close:opcode=BATCH,after=2,times=1");
    flow_ok(run(&bench, &together));
    check_outcomes(&bench);
    ck_assert_uint_gt(bench.sink.failed, 0);
    ck_assert_uint_eq(bench.sink.by_status[CQLRING_LOST], bench.sink.failed);
    ck_assert_uint_eq(bench.sink.maybe, bench.sink.failed);
    end(&bench);
}
END_TEST

START_TEST(ps_09_statements_unknown_to_the_node_are_prepared_again)
{
    struct bench bench;
    begin(&bench, 200, 10);
    for (uint32_t i = 1; i < 200; i += 2) {
        bench.grid.rows[i].statement = 1;
        bench.grid.rows[i].value_first = true;
    }
    ready(&bench);
    cqlring_prepared *statements[2] = {bench.insert, flow_prepare(&bench.flow, GRID_UPDATE)};
    node_forget_prepared(bench.flow.node, NODE_ALL);
    flow_ok(grid_run(&bench.flow, statements, 2, &bench.grid, &bench.sink, &together, &bench.summary, &bench.error));
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    ck_assert_uint_ge(flow_stats(&bench.flow).reprepares, 2);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(grid_value(&bench.flow, 15, i), 150 + i);
    cqlring_prepared_release(statements[1]);
    end(&bench);
}
END_TEST

struct left_out {
    struct bench *bench;
    uint64_t count;
};

/* A row that others overtook: nothing of it was sent, and its cells come back. */
static void never_sent(const cqlring_completion *completion, void *context)
{
    struct left_out *left_out = context;
    if (completion->status != CQLRING_CANCELLED)
        return;
    cqlring_bytes cells[3];
    left_out->count++;
    ck_assert_uint_eq(completion->phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(completion->attempts, 0);
    ck_assert_uint_eq(completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED, 0);
    ck_assert_uint_eq(completion->tag, 7000000u + completion->row);
    ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 3), 3);
    ck_assert_uint_eq(cqr_load_u64(cells[0].data), (uint64_t)left_out->bench->grid.rows[completion->row].p);
    ck_assert_uint_eq(cqr_load_u32(cells[1].data), (uint32_t)left_out->bench->grid.rows[completion->row].c);
}

/* With a plan half issued: rows far behind went with those of their partition, rows before them did not go any more. */
START_TEST(a_job_that_ends_early_leaves_no_holes)
{
    enum { STOP, ERROR, CANCEL };
    static const struct {
        int how;
        bool ordered, sink;
    } cases[] = {{STOP, false, true}, {STOP, true, true}, {ERROR, false, true}, {ERROR, true, true}, {CANCEL, false, true}, {CANCEL, true, true}, {CANCEL, false, false}};
    uint64_t holes = 0;
    enum { CASES = sizeof cases / sizeof cases[0] };
    for (size_t round = 0; round < 20 * CASES && (round < CASES || holes == 0); round++) { /* the end comes when it likes: now and then in the middle of a plan */
        const size_t i = round % CASES;
        struct bench bench;
        begin(&bench, 6000, 10);
        for (uint32_t j = 0; j < 6000; j++) { /* far apart, so that rows go in another order than they came */
            bench.grid.rows[j].p = j % 40;
            bench.grid.rows[j].c = (int32_t)(j / 40);
        }
        bench.flow.node_options.delay_us = 500;
        ready(&bench);
        struct left_out left_out = {.bench = &bench};
        bench.sink.each = never_sent;
        bench.sink.context = &left_out;
        bench.sink.stop_after = cases[i].how == STOP ? 500 : 0;
        cqlring_job_options options = together;
        options.rows_per_s = 30000;
        options.ordered = cases[i].ordered;
        options.errors_max = cases[i].how == CANCEL ? 0 : 1;
        if (cases[i].how == ERROR)
            flow_fault(&bench.flow, "error:code=0x1100,opcode=BATCH,after=100");
        cqlring_future *job = grid_start(&bench.flow, &bench.insert, 1, &bench.grid, cases[i].sink ? &bench.sink : NULL, &options);
        while (cases[i].how == CANCEL && bench.summary.rows < 500) {
            ck_assert_int_eq(cqlring_future_wait(job, 1000, &bench.error), CQLRING_TIMEOUT);
            cqlring_job_summary(job, &bench.summary);
        }
        if (cases[i].how == CANCEL)
            cqlring_future_cancel(job);
        static const cqlring_status ends[] = {[STOP] = CQLRING_OK, [ERROR] = CQLRING_SERVER, [CANCEL] = CQLRING_CANCELLED};
        ck_assert_int_eq(cqlring_future_wait(job, 10000000, &bench.error), ends[cases[i].how]);
        cqlring_job_summary(job, &bench.summary);
        cqlring_future_release(job);
        ck_assert_uint_lt(bench.summary.rows, 6000);
        ck_assert_uint_ge(bench.summary.rows, 100);
        ck_assert_uint_eq(bench.summary.low_water, bench.summary.rows);
        ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), (int64_t)(bench.summary.rows - bench.summary.failed));
        if (cases[i].sink)
            check_outcomes(&bench);
        if (cases[i].ordered)
            ck_assert_uint_eq(bench.sink.out_of_order, 0);
        holes += left_out.count;
        end(&bench);
    }
    ck_assert_uint_gt(holes, 0);
}
END_TEST

START_TEST(cancel_gives_every_issued_row_of_a_batch_one_outcome)
{
    struct bench bench;
    begin(&bench, 60000, 20);
    bench.flow.node_options.delay_us = 3000;
    ready(&bench);
    cqlring_future *job = grid_start(&bench.flow, &bench.insert, 1, &bench.grid, &bench.sink, &together);
    ck_assert_int_eq(cqlring_future_wait(job, 30000, &bench.error), CQLRING_TIMEOUT);
    cqlring_future_cancel(job);
    ck_assert_int_eq(cqlring_future_wait(job, 10000000, &bench.error), CQLRING_CANCELLED);
    cqlring_job_summary(job, &bench.summary);
    check_outcomes(&bench);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), (int64_t)(bench.summary.rows - bench.sink.failed));
    cqlring_future_release(job);
    end(&bench);
}
END_TEST

START_TEST(closing_with_and_without_drain_settles_every_row_of_a_batch)
{
    const int64_t drains[] = {0, 5000000, 1000};
    for (int i = 0; i < 3; i++) {
        struct bench bench;
        begin(&bench, 60000, 10);
        bench.flow.node_options.delay_us = 5000;
        ready(&bench);
        cqlring_job_options options = together;
        options.execution = &idempotent;
        cqlring_future *job = grid_start(&bench.flow, &bench.insert, 1, &bench.grid, &bench.sink, &options), *closed = NULL;
        while (bench.summary.rows < 1000) {
            ck_assert_int_eq(cqlring_future_wait(job, 1000, &bench.error), CQLRING_TIMEOUT);
            cqlring_job_summary(job, &bench.summary);
        }
        if (drains[i] == 0) { /* and what it has answered is taken and made up for, so some are under way for certain */
            node_freeze(bench.flow.node, 0, -1);
            ck_assert_int_eq(cqlring_future_wait(job, 50000, &bench.error), CQLRING_TIMEOUT);
        }
        flow_ok(cqlring_session_close(bench.flow.session, drains[i], &closed, &bench.error));
        flow_ok(cqlring_future_wait(closed, 10000000, &bench.error));
        ck_assert_int_eq(cqlring_future_wait(job, 0, &bench.error), CQLRING_CLOSED);
        cqlring_job_summary(job, &bench.summary);
        check_outcomes(&bench);
        if (drains[i] == 5000000)
            ck_assert_uint_eq(bench.sink.failed, 0);
        if (drains[i] == 0)
            ck_assert_uint_gt(bench.sink.by_status[CQLRING_CLOSED], 0);
        cqlring_future_release(closed);
        cqlring_future_release(job);
        end(&bench);
    }
}
END_TEST

/* Answers come all the while, so that some are in the ring, not yet looked at, when the close settles everything. */
START_TEST(an_undrained_close_among_answers_settles_every_row_once)
{
    struct bench bench;
    begin(&bench, 60000, 8);
    bench.flow.node_options.delay_us = 300;
    ready(&bench);
    static const cqlring_batch_by_partition distinct = {.struct_size = sizeof distinct, .distinct = 1};
    cqlring_job_options options = {.struct_size = sizeof options, .batch_by_partition = &distinct};
    cqlring_session *own = bench.flow.session;
    for (int i = 0; i < 150; i++) {
        again(&bench);
        flow_ok(cqlring_session_open_sync(bench.flow.cluster, NULL, &bench.flow.session, NULL));
        cqlring_future *job = grid_start(&bench.flow, &bench.insert, 1, &bench.grid, &bench.sink, &options), *closed = NULL;
        ck_assert_int_eq(cqlring_future_wait(job, i * 37 % 3000, &bench.error), CQLRING_TIMEOUT);
        flow_ok(cqlring_session_close(bench.flow.session, i % 3 == 2 ? 500 : 0, &closed, &bench.error));
        flow_ok(cqlring_future_wait(closed, 10000000, &bench.error));
        ck_assert_int_eq(cqlring_future_wait(job, 0, &bench.error), CQLRING_CLOSED);
        cqlring_job_summary(job, &bench.summary);
        check_outcomes(&bench);
        cqlring_future_release(closed);
        cqlring_future_release(job);
        cqlring_session_release(bench.flow.session);
    }
    bench.flow.session = own;
    end(&bench);
}
END_TEST

START_TEST(a_batch_without_an_answer_times_out_with_all_its_rows)
{
    struct bench bench;
    begin(&bench, 40, 10);
    ready(&bench);
    flow_fault(&bench.flow, "drop:opcode=BATCH,after=1,times=1");
    const cqlring_execution soon = {.struct_size = sizeof soon, .timeout_us = 300000};
    cqlring_job_options options = together;
    options.execution = &soon;
    flow_ok(run(&bench, &options));
    check_outcomes(&bench);
    ck_assert_uint_eq(bench.sink.by_status[CQLRING_TIMEOUT], 10);
    ck_assert_uint_eq(bench.sink.maybe, 10);
    ck_assert_uint_eq(bench.sink.ok, 30);
    end(&bench);
}
END_TEST

START_TEST(a_slow_batch_is_sent_to_another_node_too)
{
    struct bench bench;
    begin(&bench, 400, 10);
    bench.flow.node_options.nodes = 3;
    ready(&bench);
    flow_fault(&bench.flow, "late:opcode=BATCH,every=7,delay_us=400000");
    const cqlring_speculation further = {.struct_size = sizeof further, .max = 1, .delay_us = 20000};
    const cqlring_execution raced = {.struct_size = sizeof raced, .idempotent = CQLRING_YES, .speculation = &further};
    cqlring_job_options options = together;
    options.execution = &raced;
    flow_ok(run(&bench, &options));
    check_outcomes(&bench);
    ck_assert_msg(bench.sink.failed == 0, "%s", bench.sink.first_error);
    ck_assert_uint_gt(flow_stats(&bench.flow).speculative, 0);
    ck_assert_uint_gt(flow_stats(&bench.flow).speculative_won, 0);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 400);
    end(&bench);
}
END_TEST

START_TEST(rows_wait_for_a_node_as_long_as_they_may_and_fail_each)
{
    struct bench bench;
    begin(&bench, 100, 10);
    bench.flow.options.reconnect_min_us = bench.flow.options.reconnect_max_us = 20000;
    ready(&bench);
    flow_fault(&bench.flow, "refuse:node=0");
    node_cut(bench.flow.node, NODE_ALL, 0);
    const cqlring_execution soon = {.struct_size = sizeof soon, .timeout_us = 200000, .idempotent = CQLRING_YES};
    cqlring_job_options options = together;
    options.execution = &soon;
    flow_ok(run(&bench, &options));
    check_outcomes(&bench);
    ck_assert_uint_eq(bench.summary.rows, 100);
    ck_assert_uint_eq(bench.sink.failed, 100);
    ck_assert_uint_eq(bench.summary.low_water, 100);
    end(&bench);
}
END_TEST

START_TEST(with_few_ops_rows_go_alone_rather_than_not_at_all)
{
    struct bench bench;
    begin(&bench, 3000, 30);
    bench.flow.runtime_options.inflight_max = 64;
    ready(&bench);
    cqlring_job_options options = together;
    options.window = 1000;
    flow_ok(run(&bench, &options));
    check_outcomes(&bench);
    ck_assert_uint_eq(bench.sink.ok, 3000);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 3000);
    end(&bench);
}
END_TEST

/* A limit of bytes under way that is smaller than a batch; a paused job; a rate. */
START_TEST(bytes_max_pause_and_rate_hold_batches_back)
{
    struct bench bench;
    begin(&bench, 1000, 50);
    bench.flow.node_options.delay_us = 500;
    ready(&bench);
    cqlring_job_options options = together;
    options.bytes_max = 1500;
    flow_ok(run(&bench, &options));
    ck_assert_uint_eq(bench.sink.ok, 1000);
    for (uint32_t i = 0; i < ask_seen_count(OPCODE_BATCH); i++)
        ck_assert_uint_le(ask_seen_at(OPCODE_BATCH, i).batch_count, 10);
    again(&bench);
    options = together;
    options.rows_per_s = 20000;
    cqlring_future *job = grid_start(&bench.flow, &bench.insert, 1, &bench.grid, &bench.sink, &options);
    cqlring_job_pause(job);
    ck_assert_int_eq(cqlring_future_wait(job, 30000, &bench.error), CQLRING_TIMEOUT);
    cqlring_job_summary(job, &bench.summary);
    ck_assert_uint_lt(bench.summary.rows, 1000);
    cqlring_job_resume(job);
    flow_ok(ask_end(job, &bench.error));
    ck_assert_uint_eq(bench.sink.ok, 1000);
    end(&bench);
}
END_TEST

/* Refusals, losses, unknown statements and late answers at once: one outcome for each row, and what failed for certain is not there. */
START_TEST(one_outcome_each_whatever_the_node_does)
{
    struct bench bench;
    begin(&bench, 5000, 12);
    for (uint32_t i = 400; i < 5000; i += 401)
        bench.grid.rows[i].c = GRID_NULL;
    bench.flow.node_options.nodes = 3;
    bench.flow.node_options.seed = 77 + (uint64_t)_i;
    bench.flow.node_options.batch_size_fail = 900;
    bench.flow.node_options.batch_size_single = true;
    bench.flow.options.reconnect_min_us = 1000;
    bench.flow.options.reconnect_max_us = 5000;
    ready(&bench);
    flow_fault(&bench.flow, "error:code=0x1001,opcode=BATCH,every=17");
    flow_fault(&bench.flow, "unprepared:every=41");
    flow_fault(&bench.flow, "close:opcode=BATCH,every=101,executed=1");
    flow_fault(&bench.flow, "late:every=13,delay_us=3000");
    cqlring_job_options options = together;
    options.execution = &idempotent;
    options.ordered = _i % 2 == 1;
    flow_ok(run(&bench, &options));
    check_outcomes(&bench);
    ck_assert_uint_eq(bench.summary.rows, 5000);
    ck_assert_uint_eq(bench.summary.low_water, 5000);
    ck_assert_uint_eq(bench.sink.failed, 12); /* the rows without a key */
    if (_i % 2 == 1)
        ck_assert_uint_eq(bench.sink.out_of_order, 0);
    ck_assert_int_eq(node_table_rows(bench.flow.node, "ks.e"), 5000 - 12);
    end(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_rows_failed");
    TCase *tcase = tcase_create("batch_rows_failed");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, bt_06_a_batch_too_large_is_halved_and_its_size_not_tried_again);
    tcase_add_test(tcase, a_learned_limit_is_told_and_has_a_lower_end);
    tcase_add_test(tcase, fr_09_a_row_that_the_server_calls_invalid_fails_alone);
    tcase_add_test(tcase, each_row_of_a_batch_that_failed_has_its_error_and_its_own_cells);
    tcase_add_test(tcase, errors_max_counts_rows_of_batches);
    tcase_add_test(tcase, a_batch_is_tried_again_as_its_rows_would_be);
    tcase_add_test(tcase, ps_09_statements_unknown_to_the_node_are_prepared_again);
    tcase_add_test(tcase, a_job_that_ends_early_leaves_no_holes);
    tcase_add_test(tcase, cancel_gives_every_issued_row_of_a_batch_one_outcome);
    tcase_add_test(tcase, closing_with_and_without_drain_settles_every_row_of_a_batch);
    tcase_add_test(tcase, an_undrained_close_among_answers_settles_every_row_once);
    tcase_add_test(tcase, a_batch_without_an_answer_times_out_with_all_its_rows);
    tcase_add_test(tcase, a_slow_batch_is_sent_to_another_node_too);
    tcase_add_test(tcase, rows_wait_for_a_node_as_long_as_they_may_and_fail_each);
    tcase_add_test(tcase, with_few_ops_rows_go_alone_rather_than_not_at_all);
    tcase_add_test(tcase, bytes_max_pause_and_rate_hold_batches_back);
    tcase_add_loop_test(tcase, one_outcome_each_whatever_the_node_does, 0, 4);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
