/* SPDX-License-Identifier: Apache-2.0 */

/* What went wrong elsewhere when many rows were under way: whose outcome is whose, rows that cannot be encoded, memory. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "serialize/mem.h"
#include "watch.h"

static void note_outcome(const cqlring_completion *completion, void *context)
{
    cqlring_status *outcome = context;
    outcome[completion->row] = completion->status;
}

/* Half of the rows fail, answers overtake one another, and outcomes come in the source's order: each is its row's. Which rows the
   node refuses is read from what it saw, not from their number. */
START_TEST(ec_02_each_outcome_is_its_rows_though_half_fail_and_answers_overtake)
{
    enum { ROWS = 200 };
    struct flow flow;
    flow_init(&flow);
    flow.node_options.delay_us = 3000;
    flow.node_options.jitter_us = 3000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    for (uint8_t ordered = 0; ordered < 2; ordered++) {
        flow_cql(&flow, "TRUNCATE ks.t");
        char message[256];
        uint32_t fault = node_fault_parse(flow.node, "error:code=0x2200,opcode=EXECUTE,every=2", message, sizeof message);
        ck_assert_uint_ne(fault, 0);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, ROWS, 8);
        flow_sink_init(&sink, ROWS);
        cqlring_status outcome[ROWS] = {CQLRING_OK};
        sink.each = note_outcome;
        sink.context = outcome;
        cqlring_job_options options = {.struct_size = sizeof options, .ordered = ordered, .window = 100};
        flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
        node_fault_remove(flow.node, fault);
        ck_assert_uint_eq(sink.last, ROWS);
        ck_assert_uint_eq(sink.twice, 0);
        ck_assert(!ordered || sink.out_of_order == 0);
        ck_assert_uint_eq(sink.failed, ROWS / 2);
        ck_assert_uint_eq(sink.by_status[CQLRING_SERVER], ROWS / 2);
        for (int64_t k = 0; k < ROWS; k++) { /* a row is there, or its outcome says why not */
            char cql[80];
            snprintf(cql, sizeof cql, "SELECT v FROM ks.t WHERE k = %lld", (long long)k);
            cqlring_result *result = NULL;
            flow_ok(ask_text(&flow, cql, NULL, 0, NULL, &result, NULL));
            ck_assert_uint_eq(cqlring_result_row_count(result), outcome[k] == CQLRING_OK ? 1 : 0);
            cqlring_result_release(result);
        }
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- rows that cannot be encoded ---- */

enum { BAD_ROWS = 2000 };

static int32_t bad_rows(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake, cqlring_error *error, void *context)
{
    static const cqlring_bytes text_for_a_number[2] = {{"a text", 6}, {"x", 1}};
    uint64_t *next = context;
    (void)now_us, (void)wake, (void)error;
    uint32_t count = 0;
    for (; count < capacity && *next < BAD_ROWS; count++, ++*next)
        out[count] = (cqlring_row){.cells = text_for_a_number};
    return (int32_t)count;
}

START_TEST(ec_03_two_thousand_rows_that_do_not_encode_fail_each_and_nothing_is_sent)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    for (uint8_t ordered = 0; ordered < 2; ordered++) {
        uint64_t given = 0;
        struct flow_sink sink;
        flow_sink_init(&sink, BAD_ROWS);
        cqlring_source source = {.next = bad_rows, .context = &given};
        cqlring_sink out = flow_sink_of(&sink);
        cqlring_job_options options = {.struct_size = sizeof options, .ordered = ordered, .window = 64};
        cqlring_future *job;
        cqlring_summary summary;
        flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &out, 1, &options, &job, NULL));
        flow_ok(ask_wait(job, NULL));
        cqlring_job_summary(job, &summary);
        cqlring_future_release(job);
        ck_assert_uint_eq(summary.rows, BAD_ROWS);
        ck_assert_uint_eq(sink.by_status[CQLRING_TYPE], BAD_ROWS);
        ck_assert_uint_eq(sink.twice, 0);
        ck_assert_uint_eq(flow_sink_missing(&sink, BAD_ROWS), 0);
        ck_assert_msg(strstr(sink.first_error, "bigint") != NULL, "%s", sink.first_error);
        flow_sink_fini(&sink);
    }
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- memory ---- */

/* A consumer that is slow at first: it accepts nothing until somebody else says go, again and again. */
struct consumer {
    struct flow_rows *rows;
    cqlring_future *job;
    uint64_t accepted, refusals, ahead_max;
    int64_t live_max;
    bool disordered;
    atomic_bool waiting;
};

enum { MANY = 200000, WINDOW = 128, REFUSALS = 200 };

static cqlring_verdict consume(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct consumer *consumer = context;
    uint64_t ahead = consumer->rows->next - consumer->accepted;
    if (ahead > consumer->ahead_max)
        consumer->ahead_max = ahead;
    if (cqr_mem_live_count() > consumer->live_max)
        consumer->live_max = cqr_mem_live_count();
    if (consumer->refusals < REFUSALS && consumer->accepted >= consumer->refusals * 10) {
        consumer->refusals++;
        atomic_store(&consumer->waiting, true);
        return CQLRING_LATER;
    }
    for (uint32_t i = 0; i < count; i++) {
        consumer->disordered = consumer->disordered || completions[i].row != consumer->accepted;
        consumer->accepted++;
    }
    return CQLRING_CONTINUE;
}

static bool is_waiting(struct flow *flow, void *context)
{
    (void)flow;
    struct consumer *consumer = context;
    return atomic_load(&consumer->waiting) || cqlring_future_ready(consumer->job);
}

START_TEST(ec_06_of_many_rows_and_a_slow_consumer_no_more_is_held_than_the_window)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    node_set_mode(flow.node, NODE_VOID);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    flow_rows_init(&rows, MANY, 8);
    cqlring_source source = flow_source(&rows);
    struct consumer consumer = {.rows = &rows};
    cqlring_sink sink = {.deliver = consume, .context = &consumer};
    cqlring_job_options options = {.struct_size = sizeof options, .window = WINDOW, .ordered = 1};
    int64_t live = cqr_mem_live_count();
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &sink, 1, &options, &consumer.job, NULL));
    for (int i = 0; i < REFUSALS; i++) {
        watch_for(&flow, is_waiting, &consumer);
        atomic_store(&consumer.waiting, false);
        cqlring_job_poke(consumer.job);
    }
    flow_ok(cqlring_future_wait(consumer.job, 50000000, NULL));
    ck_assert_uint_eq(consumer.refusals, REFUSALS);
    ck_assert_uint_eq(consumer.accepted, MANY);
    ck_assert(!consumer.disordered);
    ck_assert_msg(consumer.ahead_max <= WINDOW + 256, "%lu rows ahead of the consumer", (unsigned long)consumer.ahead_max);
    ck_assert_msg(consumer.live_max <= live + 100, "%ld allocations more", (long)(consumer.live_max - live));
    cqlring_future_release(consumer.job);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- a large cluster ---- */

/* 12 nodes of 64 tokens (more would be the embedded node's time, not ours), 50 keyspaces, one of them with a datacenter that nobody is
   in: a node comes while rows go on. That no row fails, and that rows go on, is what is counted; and the new node has its share
   afterwards. */
START_TEST(tk_08_a_node_comes_to_a_large_cluster_while_rows_go_on)
{
    enum { NODES = 12, SPACES = 50, ROWS = 1 << 20 };
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = NODES;
    flow.node_options.vnodes = 64;
    flow.runtime_options.connections_max = 64;
    flow_start(&flow);
    node_leave(flow.node, NODES - 1, false);
    for (int i = 0; i < SPACES; i++) {
        char cql[200], message[200];
        snprintf(cql, sizeof cql, "CREATE KEYSPACE wide%02d WITH replication = {'class': 'NetworkTopologyStrategy', '%s': 3}", i, i == 7 ? "nowhere" : "datacenter1");
        ck_assert_msg(node_cql(flow.node, cql, NULL, message, sizeof message) == 0, "%s", message);
    }
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){NODES - 1});
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 8);
    flow_sink_init(&sink, ROWS);
    cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 256, .rows_per_s = 5000, .execution = &idempotent};
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
    uint64_t settled = flow_stats(&flow).requests_settled;
    node_join(flow.node, NODES - 1, true);
    watch_for(&flow, watch_all_up, &(uint32_t){NODES});
    ck_assert(!cqlring_future_ready(job));
    ck_assert_uint_gt(flow_stats(&flow).requests_settled, settled); /* it went on meanwhile */
    cqlring_future_cancel(job);
    ck_assert_int_eq(ask_wait(job, NULL), CQLRING_CANCELLED);
    ck_assert_uint_gt(sink.ok, 0);
    ck_assert_uint_eq(sink.failed, sink.by_status[CQLRING_CANCELLED]);
    cqlring_future_release(job);

    struct node_counters after; /* and the new one has its share of what comes now */
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    struct node_counters all = flow_counted_rows(&flow, FLOW_INSERT, 5000, 64);
    node_counters(flow.node, NODES - 1, &after);
    ck_assert_uint_eq(all.replica_misses, 0);
    ck_assert_uint_gt(after.replica_hits, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("field");
    TCase *tcase = tcase_create("field");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, ec_02_each_outcome_is_its_rows_though_half_fail_and_answers_overtake);
    tcase_add_test(tcase, ec_03_two_thousand_rows_that_do_not_encode_fail_each_and_nothing_is_sent);
    tcase_add_test(tcase, ec_06_of_many_rows_and_a_slow_consumer_no_more_is_held_than_the_window);
    tcase_add_test(tcase, tk_08_a_node_comes_to_a_large_cluster_while_rows_go_on);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
