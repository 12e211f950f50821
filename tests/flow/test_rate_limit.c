/* SPDX-License-Identifier: Apache-2.0 */

/* ScyllaDB's rate limit of a partition: when one row of a job has met it, the partition's other rows wait too, and rows of other
   partitions go on. What counts is what the node was asked, and what it refused. */

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "cql/token.h"
#include "watch.h"

enum { HOT = 7, OTHERS_FROM = 1000, REST_US = 1500000 };
#define INSERT "INSERT INTO ks.c (p, c, v) VALUES (?, ?, ?)"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES, .timeout_us = 60000000};

static void begin(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->node_options.shards = 2;
    ask_record(flow);
    flow_start(flow);
    char message[256];
    ck_assert_int_eq(node_cql(flow->node, "CREATE TABLE ks.c (p bigint, c bigint, v bigint, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
}

/* Every fourth row is of the hot partition. The first row is alone, and the others come when it has met the limit. */
struct mixed {
    struct flow *flow;
    uint64_t next, end;
    uint32_t hot_every;          /* 0: none is, after the first */
    bool first_alone, may_fail, cancelled;
    uint32_t statements;         /* by turns */
    const struct flow_sink *sink; /* the first row may fail, too */
    uint32_t partitions;         /* > 0: keys are the row's number modulo this */
    uint64_t cells[256][3];
    cqlring_bytes bytes[256][3];
};

static bool is_hot(const struct mixed *mixed, uint64_t row)
{
    return (mixed->first_alone && row == 0) || (mixed->hot_every > 0 && row % mixed->hot_every == 0);
}

static int32_t mixed_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct mixed *mixed = context;
    (void)error;
    if (mixed->first_alone && mixed->next == 1 && flow_stats(mixed->flow).retries == 0 && (mixed->sink == NULL || mixed->sink->delivered == 0)) {
        *wake_at_us = now_us + 1000;
        return CQLRING_SOURCE_LATER;
    }
    uint32_t count = 0;
    for (; count < capacity && count < 256 && mixed->next < mixed->end; count++, mixed->next++) {
        if (mixed->first_alone && mixed->next == 1 && count == 1)
            break;
        uint64_t key = mixed->partitions > 0 ? mixed->next % mixed->partitions : is_hot(mixed, mixed->next) ? HOT : OTHERS_FROM + mixed->next;
        uint64_t numbers[3] = {key, mixed->next, mixed->next};
        for (int i = 0; i < 3; i++) {
            mixed->cells[count][i] = htobe64(numbers[i]);
            mixed->bytes[count][i] = (cqlring_bytes){(const uint8_t *)&mixed->cells[count][i], 8};
        }
        rows[count] = (cqlring_row){.cells = mixed->bytes[count], .tag = mixed->next, .statement = mixed->statements > 0 ? (uint32_t)(mixed->next % mixed->statements) : 0};
    }
    return (int32_t)count;
}

static cqlring_summary run(struct flow *flow, cqlring_prepared **statements, uint32_t statement_count, struct mixed *mixed, struct flow_sink *sink,
                           const cqlring_job_options *options)
{
    cqlring_future *job;
    cqlring_error error;
    cqlring_source source = {.next = mixed_next, .context = mixed};
    cqlring_sink to = flow_sink_of(sink);
    ck_assert_msg(cqlring_execute_concurrent(flow->session, statements, statement_count, &source, &to, 1, options, &job, &error) == CQLRING_OK, "%s",
                  error.message);
    if (mixed->cancelled) {
        while (flow_stats(flow).partition_waits < mixed->end - 1)
            watch_pass(flow, 1);
        cqlring_future_cancel(job);
    }
    cqlring_status status = cqlring_future_wait(job, 60000000, &error);
    ck_assert_int_eq(status, mixed->cancelled ? CQLRING_CANCELLED : CQLRING_OK);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    cqlring_future_release(job);
    if (mixed->may_fail)
        return summary;
    ck_assert_msg(sink->failed == 0, "%lu failed: %s", (unsigned long)sink->failed, sink->first_error);
    ck_assert_uint_eq(summary.rows, mixed->end);
    return summary;
}

static int64_t hot_token(void)
{
    uint64_t key = htobe64(HOT);
    return cqr_murmur3(&key, 8);
}

/* Of the executed statements that the node saw, which came first and last of that kind: 1 of the hot partition; −1: none. */
static void order(bool hot, int64_t *first, int64_t *last, uint32_t *count)
{
    uint32_t all = ask_seen_count(0);
    *first = *last = -1;
    *count = 0;
    for (uint32_t i = 0; i < all; i++) {
        struct node_seen seen = ask_seen_at(0, i);
        if (!seen.has_token || (seen.opcode != OPCODE_EXECUTE && seen.opcode != OPCODE_BATCH) || (seen.token == hot_token()) != hot)
            continue;
        *first = *first < 0 ? (int64_t)i : *first;
        *last = i;
        ++*count;
    }
}

/* The application says how long: long enough that nothing here is a matter of time. */
static cqlring_retry_decision long_rest(const cqlring_retry_query *query, cqlring_consistency *consistency, int64_t *delay_us, void *context)
{
    (void)consistency, (void)context;
    if (query->detail == NULL || !query->detail->rate_limited)
        return CQLRING_DECIDE_USUAL;
    *delay_us = REST_US;
    return CQLRING_DECIDE_SAME;
}

/* _i: 0 one node, 1 three, 2 three with rows of a partition as batches */
START_TEST(a_partitions_other_rows_wait_and_rows_of_others_go_on)
{
    enum { ROWS = 401 };
    struct flow flow;
    begin(&flow, _i == 0 ? 1 : 3);
    flow.options.retry_policy = long_rest;
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, INSERT);
    node_set_partition_limit(flow.node, "ks.c", 0, 0);
    struct mixed warm = {.flow = &flow, .end = 300}, mixed = {.flow = &flow, .end = ROWS, .hot_every = 4, .first_alone = true};
    struct flow_sink sink;
    const cqlring_batch_by_partition by_partition = {.struct_size = sizeof by_partition, .rows_max = 5, .distinct = 1};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1000, .execution = &idempotent,
                                   .batch_by_partition = _i == 2 ? &by_partition : NULL};
    flow_sink_init(&sink, ROWS);
    run(&flow, &insert, 1, &warm, &sink, &options); /* the nodes know the statement */
    flow_sink_fini(&sink);
    flow_sink_init(&sink, ROWS);
    ask_record_clear();
    node_counters_reset(flow.node);
    flow_fault(&flow, "error:code=0xF000,table=ks.c,data_present=1,times=1");
    uint64_t waits = flow_stats(&flow).partition_waits;
    cqlring_summary summary = run(&flow, &insert, 1, &mixed, &sink, &options);
    ck_assert_uint_eq(summary.retries, 1);
    int64_t hot_first, hot_last, others_first, others_last;
    uint32_t hot_count, others_count;
    order(true, &hot_first, &hot_last, &hot_count);
    order(false, &others_first, &others_last, &others_count);
    ck_assert_uint_eq(others_count, 300);
    ck_assert_int_gt(hot_first, others_last); /* the refused one has no token in the record: it was not executed */
    ck_assert_uint_ge(flow_stats(&flow).partition_waits - waits, _i == 2 ? 20 : 100);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.errors, 1);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.c"), 300 + 75 + 101); /* 225 of the others were there */
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* A limit that is really kept: 20 writes of a partition in a tenth of a second. Without the partition's rest each of its rows would be
   refused again and again by itself. */
START_TEST(a_hot_partition_is_refused_seldom_and_comes_through_whole)
{
    enum { ROWS = 4000, HOT_ROWS = 200, WINDOW = 256 };
    struct flow flow;
    begin(&flow, _i == 0 ? 1 : 3);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, INSERT);
    struct mixed warm = {.flow = &flow, .end = 300}, mixed = {.flow = &flow, .end = ROWS, .hot_every = ROWS / HOT_ROWS};
    struct flow_sink sink;
    cqlring_job_options options = {.struct_size = sizeof options, .window = WINDOW, .execution = &idempotent};
    flow_sink_init(&sink, ROWS);
    run(&flow, &insert, 1, &warm, &sink, &options);
    flow_sink_fini(&sink);
    flow_sink_init(&sink, ROWS);
    node_counters_reset(flow.node);
    node_set_partition_limit(flow.node, "ks.c", 20, 100000);
    cqlring_summary summary = run(&flow, &insert, 1, &mixed, &sink, &options);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_gt(counters.rate_limited, 0);
    ck_assert_uint_eq(summary.retries, counters.rate_limited);
    ck_assert_msg(counters.rate_limited <= HOT_ROWS, "%lu refused", (unsigned long)counters.rate_limited);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.c"), 300 + ROWS - 300 + 300 / (ROWS / HOT_ROWS));
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Limits are a table's, and of reads and writes apart. */
START_TEST(the_same_key_in_another_table_and_its_reads_go_on)
{
    enum { ROWS = 91 };
    struct flow flow;
    begin(&flow, 1);
    char message[256];
    ck_assert_int_eq(node_cql(flow.node, "CREATE TABLE ks.d (p bigint, c bigint, v bigint, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
    flow.options.retry_policy = long_rest;
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *statements[] = {flow_prepare(&flow, INSERT), flow_prepare(&flow, "INSERT INTO ks.d (p, c, v) VALUES (?, ?, ?)"),
                                      flow_prepare(&flow, "SELECT v FROM ks.c WHERE p = ? AND c >= ? AND c <= ?")};
    struct mixed mixed = {.flow = &flow, .end = ROWS, .hot_every = 1, .first_alone = true, .statements = 3};
    struct flow_sink sink;
    flow_sink_init(&sink, ROWS);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1000, .execution = &idempotent};
    flow_fault(&flow, "error:code=0xF000,table=ks.c,data_present=1,opcode=EXECUTE,times=1");
    ask_record_clear();
    run(&flow, statements, 3, &mixed, &sink, &options);
    uint32_t count = ask_seen_count(OPCODE_EXECUTE), writes = 0, others = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct node_seen seen = ask_seen_at(OPCODE_EXECUTE, i);
        bool is_write = strncmp(seen.text, "INSERT INTO ks.c", 16) == 0;
        ck_assert(!seen.has_token || is_write || writes == 0); /* none of the others comes after one that waited */
        writes += seen.has_token && is_write;
        others += seen.has_token && !is_write;
    }
    ck_assert_uint_eq(writes, 31);
    ck_assert_uint_eq(others, 60);
    flow_sink_fini(&sink);
    for (int i = 0; i < 3; i++)
        cqlring_prepared_release(statements[i]);
    flow_close(&flow);
}
END_TEST

struct words {
    uint32_t told, not_applied;
};

static void look(const cqlring_completion *completion, void *context)
{
    struct words *words = context;
    if (completion->status == CQLRING_OK || completion->tag == 0)
        return;
    words->told += completion->status == CQLRING_CANCELLED || strstr(completion->error->message, "over its rate limit") != NULL;
    words->not_applied += completion->error->may_have_been_applied == 0 && completion->error->attempts == 0;
    cqlring_bytes cells[3];
    ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 3), 3); /* whose values were only waiting */
    ck_assert_uint_eq(be64toh(*(const uint64_t *)(const void *)memcpy(&(uint64_t){0}, cells[1].data, 8)), completion->tag);
}

/* _i: by its deadline, or because the job is cancelled */
START_TEST(what_waits_ends_in_time_and_was_never_sent)
{
    enum { ROWS = 41 };
    struct flow flow;
    begin(&flow, 3);
    flow.options.retry_policy = long_rest;
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, INSERT);
    const cqlring_execution short_lived = {.struct_size = sizeof short_lived, .idempotent = CQLRING_YES, .timeout_us = _i == 0 ? 700000 : 60000000};
    struct mixed mixed = {.flow = &flow, .end = ROWS, .hot_every = 1, .first_alone = true, .may_fail = true, .cancelled = _i == 1};
    struct words words = {0, 0};
    struct flow_sink sink;
    flow_sink_init(&sink, ROWS);
    sink.each = look;
    sink.context = &words;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1000, .execution = &short_lived};
    flow_fault(&flow, "error:code=0xF000,table=ks.c,data_present=1,opcode=EXECUTE,times=1");
    mixed.sink = &sink; /* the rest is longer than the first row has: it fails at once */
    run(&flow, &insert, 1, &mixed, &sink, &options);
    ck_assert_uint_eq(words.told, ROWS - 1);
    ck_assert_uint_eq(words.not_applied, ROWS - 1);
    ck_assert_uint_eq(flow_stats(&flow).partition_waits, ROWS - 1);
    ck_assert_uint_eq(sink.by_status[_i == 0 ? CQLRING_TIMEOUT : CQLRING_CANCELLED], _i == 0 ? ROWS - 1 : ROWS);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* More of them than a lane remembers. */
START_TEST(many_partitions_over_their_limits_come_through)
{
    enum { ROWS = 3000 };
    struct flow flow;
    begin(&flow, 3);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, INSERT);
    node_set_partition_limit(flow.node, "ks.c", 5, 50000);
    struct mixed mixed = {.flow = &flow, .end = ROWS, .partitions = 200};
    struct flow_sink sink;
    flow_sink_init(&sink, ROWS);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 2000, .execution = &idempotent};
    run(&flow, &insert, 1, &mixed, &sink, &options);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_gt(counters.rate_limited, 0);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.c"), ROWS);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rate_limit");
    TCase *tcase = tcase_create("rate_limit");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_partitions_other_rows_wait_and_rows_of_others_go_on, 0, 3);
    tcase_add_loop_test(tcase, a_hot_partition_is_refused_seldom_and_comes_through_whole, 0, 2);
    tcase_add_test(tcase, the_same_key_in_another_table_and_its_reads_go_on);
    tcase_add_loop_test(tcase, what_waits_ends_in_time_and_was_never_sent, 0, 2);
    tcase_add_test(tcase, many_partitions_over_their_limits_come_through);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
