/* SPDX-License-Identifier: Apache-2.0 */

/* Memory stays within its bounds, whatever is slow; and what was taken for something large is given back. */

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "serialize/mem.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

/* Resident memory says nothing where freed memory is kept for its redzones or shadows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CAN_WEIGH = 0 };
#else
enum { CAN_WEIGH = 1 };
#endif

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

static long resident_kb(void)
{
    long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What the allocator keeps of what was freed is not counted. */
static void ck_assert_weight(long before_kb, long more_kb)
{
    malloc_trim(0);
    long now = resident_kb();
    ck_assert_msg(!CAN_WEIGH || now <= before_kb + more_kb, "%ld KB more, not %ld", now - before_kb, more_kb);
}

static uint64_t executes(struct flow *flow)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.opcodes[OPCODE_EXECUTE];
}

static bool executes_came(struct flow *flow, void *count)
{
    return executes(flow) >= *(uint64_t *)count;
}

struct sent {
    cqlring_future *job;
    uint64_t bytes;
};

/* A row is counted behind its send: the node may have it before. */
static bool bytes_counted(struct flow *flow, void *context)
{
    const struct sent *sent = context;
    cqlring_summary summary;
    (void)flow;
    cqlring_job_summary(sent->job, &summary);
    return summary.bytes_sent >= sent->bytes;
}

static bool never(const struct node_counters *all, void *context)
{
    (void)all;
    (void)context;
    return false;
}

/* ---- the window and the bytes, seen from the node ---- */

/* The node takes and does not answer: what has come is what may be under way. */
static void ck_assert_under_way(struct flow *flow, cqlring_prepared *insert, uint32_t size, const cqlring_job_options *options, uint64_t expected)
{
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 300, size);
    flow_sink_init(&sink, 300);
    node_silence(flow->node, 0, true);
    uint64_t before = executes(flow), wanted = before + expected;
    cqlring_future *job = flow_job(flow, insert, &rows, &sink, options);
    watch_for(flow, executes_came, &wanted);
    watch_for(flow, bytes_counted, (&(struct sent){job, expected * (8 + 4 + 4 + size)}));
    watch_pass(flow, 40);
    ck_assert_uint_eq(executes(flow) - before, expected);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(summary.bytes_sent, expected * (8 + 4 + 4 + size));
    cqlring_future_cancel(job);
    node_silence(flow->node, 0, false);
    node_cut(flow->node, NODE_ALL, 0); /* those will never be answered */
    ck_assert_int_eq(ask_end(job, NULL), CQLRING_CANCELLED);
    ck_assert_uint_eq(sink.last, expected);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    ask_until_served(flow);
}

/* An answer is expected to be as large as the largest of the statement's last ones, 64 KiB before the first: after these, that of
   a VOID. */
static cqlring_prepared *warm_insert(struct flow *flow)
{
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT);
    struct flow_rows rows;
    flow_rows_init(&rows, 200, 16);
    flow_ok(flow_run(flow, insert, &rows, NULL, NULL, NULL, NULL));
    flow_rows_fini(&rows);
    return insert;
}

START_TEST(the_window_is_what_the_node_sees_under_way)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.reconnect_min_us = 5000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = warm_insert(&flow);
    static const uint32_t windows[] = {1, 2, 37, 256};
    for (int i = 0; i < 4; i++) {
        cqlring_job_options options = {.struct_size = sizeof options, .window = windows[i]};
        ck_assert_under_way(&flow, insert, 16, &options, windows[i]);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(inflight_per_connection_is_what_the_node_sees_under_way)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.reconnect_min_us = 5000;
    flow.options.inflight_per_connection = 40;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = warm_insert(&flow);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 250};
    ck_assert_under_way(&flow, insert, 16, &options, 40);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(bytes_max_is_what_the_node_sees_under_way)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.reconnect_min_us = 5000;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = warm_insert(&flow);
    cqlring_job_options options = {.struct_size = sizeof options, .bytes_max = 1 << 20};
    ck_assert_under_way(&flow, insert, 100000, &options, 10);
    options.bytes_max = 64 << 10; /* larger than what is free: alone */
    ck_assert_under_way(&flow, insert, 100000, &options, 1);
    options.ordered = 1;
    ck_assert_under_way(&flow, insert, 100000, &options, 1);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_larger_than_bytes_max_all_go_one_after_the_other)
{
    for (int ordered = 0; ordered < 2; ordered++) {
        struct flow flow;
        flow_up(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 50, 200000);
        flow_sink_init(&sink, 50);
        cqlring_job_options options = {.struct_size = sizeof options, .bytes_max = 1000, .ordered = (uint8_t)ordered};
        flow_ok(flow_run(&flow, insert, &rows, &sink, &options, NULL, NULL));
        ck_assert_uint_eq(sink.ok, 50);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 50);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

/* ---- slow ends ---- */

struct slow {
    struct flow *flow;
    uint64_t rows;
    long quarter_kb, worst_kb;
    int64_t worst_live;
};

static cqlring_verdict slow_sink(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct slow *slow = context;
    (void)completions;
    slow->rows += count;
    node_wait(slow->flow->node, never, 1, NULL); /* a millisecond a batch */
    long now = resident_kb();
    if (slow->rows < 10000)
        slow->quarter_kb = now;
    if (now > slow->worst_kb)
        slow->worst_kb = now;
    if (cqr_mem_live_count() > slow->worst_live)
        slow->worst_live = cqr_mem_live_count();
    return CQLRING_CONTINUE;
}

START_TEST(a_slow_sink_keeps_a_bulk_job_in_bounds)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    node_set_mode(flow.node, NODE_VOID);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    int64_t live = cqr_mem_live_count();
    struct flow_rows rows;
    flow_rows_init(&rows, 60000, 100);
    cqlring_source source = flow_source(&rows);
    struct slow slow = {.flow = &flow};
    cqlring_sink sink = {.deliver = slow_sink, .context = &slow};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1024};
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &sink, 1, &options, &job, NULL));
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(slow.rows, 60000);
    ck_assert_msg(!CAN_WEIGH || slow.worst_kb <= slow.quarter_kb + 2000, "%ld KB more after the first rows", slow.worst_kb - slow.quarter_kb);
    ck_assert_int_le(slow.worst_live, live + 100); /* none a row */
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Results are what weighs: a sink that takes its time holds no more of them than bytes_max. */
START_TEST(a_slow_sink_of_large_results_holds_no_more_than_bytes_max)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *select = flow_prepare(&flow, FLOW_SELECT);
    struct flow_rows rows;
    flow_rows_init(&rows, 400, 100000);
    flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
    rows.next = 0;
    rows.keys_only = true;
    cqlring_source source = flow_source(&rows);
    struct slow slow = {.flow = &flow};
    cqlring_sink sink = {.deliver = slow_sink, .context = &slow};
    cqlring_job_options options = {.struct_size = sizeof options, .bytes_max = 2 << 20, .window = 400};
    long before = resident_kb();
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &select, 1, &source, &sink, 1, &options, &job, NULL));
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(slow.rows, 400);
    /* the blocks they lie in, and the node's own share; all 400 would be 40 MB */
    ck_assert_msg(!CAN_WEIGH || slow.worst_kb <= before + 16000, "%ld KB more", slow.worst_kb - before);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(a_slow_server_keeps_a_bulk_job_in_bounds)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    node_set_mode(flow.node, NODE_VOID);
    node_set_delay(flow.node, NODE_ALL, 3000, 2500);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1024};
    long before = 0;
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            before = resident_kb();
        struct flow_rows rows;
        flow_rows_init(&rows, 30000, 500);
        flow_ok(flow_run(&flow, insert, &rows, NULL, &options, NULL, NULL));
        flow_rows_fini(&rows);
    }
    ck_assert_weight(before, 2000);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* A server that does not even read: what is queued here is bounded, and goes when it reads again. */
START_TEST(a_server_that_does_not_read_is_not_fed_without_end)
{
    for (int32_t version = 4; version <= 5; version++)
        for (int lz4 = 0; lz4 < 2; lz4++) {
            struct flow flow;
            flow_init(&flow);
            flow.options.protocol_version = version;
            flow.options.compression = lz4 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE;
            flow.options.suspect_after_us = flow.options.heartbeat_us = -1;
            flow_start(&flow);
            node_set_mode(flow.node, NODE_VOID);
            flow_open(&flow);
            cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
            struct flow_rows rows;
            struct flow_sink sink;
            flow_rows_init(&rows, 3000, 20000);
            flow_sink_init(&sink, 3000);
            node_freeze(flow.node, 0, -1);
            cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent, .window = 1000, .bytes_max = 8 << 20};
            long before = resident_kb();
            cqlring_future *job = flow_job(&flow, insert, &rows, &sink, &options);
            watch_pass(&flow, 100);
            cqlring_summary summary;
            cqlring_job_summary(job, &summary);
            ck_assert_uint_eq(summary.rows, 0);
            ck_assert_uint_le(summary.bytes_sent, 8 << 20);
            ck_assert_weight(before, (8 << 10) * (lz4 ? 2 : 1) + 6000);
            node_freeze(flow.node, 0, 0);
            flow_ok(ask_end(job, NULL));
            ck_assert_uint_eq(sink.ok, 3000);
            ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
            flow_rows_fini(&rows);
            flow_sink_fini(&sink);
            cqlring_prepared_release(insert);
            flow_close(&flow);
        }
}
END_TEST

/* ---- what is large is given back ---- */

START_TEST(ml_07_memory_falls_back_after_large_requests_and_answers)
{
    enum { SIZE = 12 << 20 };
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        flow.node_options.void_rows = 1; /* made up: what the node stores it may keep */
        flow.node_options.void_cell_size = SIZE;
        flow_start(&flow);
        node_set_mode(flow.node, NODE_VOID);
        flow_open(&flow);
        uint8_t *bytes = calloc(1, SIZE);
        ck_assert_ptr_nonnull(bytes);
        flow_cql(&flow, INSERT_1);
        long before = 0;
        int64_t live = 0;
        for (int round = 0; round < 6; round++) {
            cqlring_bytes values[2] = {flow_bigint(1), {bytes, SIZE}};
            flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, NULL));
            cqlring_result *result = NULL;
            flow_ok(ask_text(&flow, FLOW_SELECT, values, 1, NULL, &result, NULL));
            ck_assert_int_eq(ask_cell(result, 0, 0).size, SIZE);
            cqlring_result_release(result);
            for (int i = 0; i < 100; i++)
                flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)");
            if (round == 1) {
                malloc_trim(0);
                before = resident_kb();
                live = cqr_mem_live_count();
            }
        }
        ck_assert_weight(before, 20000); /* the node has large buffers, too, now here, now there; kept ones would be 48 MB */
        ck_assert_int_le(cqr_mem_live_count(), live + 4);
        flow_cql(&flow, INSERT_1);
        free(bytes);
        flow_close(&flow);
    }
}
END_TEST

/* ---- nothing is left of sessions that come and go ---- */

static uint32_t entries_of(const char *path)
{
    DIR *directory = opendir(path);
    uint32_t count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* In every way: closed and awaited, only let go of, given up while opening, cut off and reconnecting. */
/* A node that is up again may not listen yet. */
static void open_when_it_listens(struct flow *flow)
{
    cqlring_error error;
    while (flow_try_open(flow, &error) != CQLRING_OK) {
        ck_assert_msg(error.status == CQLRING_UNREACHABLE || error.status == CQLRING_LOST, "%s", error.message);
        cqlring_session_release(flow->session);
        cqlring_cluster_release(flow->cluster);
        flow_ok(cqlring_runtime_destroy(flow->runtime));
        flow->session = NULL;
        flow->cluster = NULL;
        flow->runtime = NULL;
    }
}

static bool is_away(struct flow *flow, void *unused)
{
    (void)unused;
    return watch_up_count(flow) == 0;
}

START_TEST(ml_09_connecting_and_closing_leaves_neither_descriptors_nor_threads)
{
    enum { WARM = 20, CYCLES = CAN_WEIGH ? 500 : 200 };
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    struct node_cluster *node = flow.node;
    int64_t nodes_own = cqr_mem_live_count();
    uint32_t fds = 0, threads = 0;
    for (int cycle = 0; cycle < WARM + CYCLES; cycle++) {
        if (cycle == WARM) {
            fds = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
        }
        flow_init(&flow);
        flow.node = node;
        flow.options.reconnect_min_us = 1000;
        if (cycle % 5 == 4) {
            flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
            flow.options.contact_points = node_address(node, 0);
            flow.options.port = node_port(node, 0);
            cqlring_future *future;
            flow_ok(cqlring_cluster_open(flow.runtime, &flow.options, &future, NULL));
            cqlring_future_release(future);
        } else {
            open_when_it_listens(&flow);
            flow_cql(&flow, INSERT_1);
        }
        if (cycle % 5 == 1)
            node_cut(node, NODE_ALL, 0);
        if (cycle % 5 == 3) { /* let go while it is connecting again */
            node_down(node, 0, false);
            watch_for(&flow, is_away, NULL);
        }
        if (cycle % 5 == 2) {
            cqlring_future *closed;
            flow_ok(cqlring_cluster_close(flow.cluster, -1, &closed, NULL));
            flow_ok(ask_end(closed, NULL));
        }
        cqlring_session_release(flow.session);
        cqlring_cluster_release(flow.cluster);
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        if (cycle % 5 == 3)
            node_up(node, 0, false);
        ck_assert_int_eq(cqr_mem_live_count(), nodes_own);
    }
    ck_assert_uint_eq(entries_of("/proc/self/task"), threads);
    ck_assert_uint_le(entries_of("/proc/self/fd"), fds + 8); /* the node may not have closed its side of the last ones */
    node_cluster_stop(node);
}
END_TEST

static void *connect_and_close(void *context)
{
    struct flow *flow = context;
    for (int i = 0; i < 6; i++) {
        cqlring_session_options options = {.struct_size = sizeof options, .keyspace = i % 2 == 0 ? "ks" : NULL};
        cqlring_session *session = NULL;
        flow_ok(cqlring_session_open_sync(flow->cluster, &options, &session, NULL));
        cqlring_request request = {.session = session, .cql = cqlring_text(INSERT_1)};
        flow_ok(cqlring_execute_sync(&request, NULL, NULL));
        if (i % 3 == 0) {
            cqlring_future *closed;
            flow_ok(cqlring_session_close(session, -1, &closed, NULL));
            flow_ok(ask_end(closed, NULL));
        }
        cqlring_session_release(session);
    }
    return NULL;
}

START_TEST(ml_10_many_threads_open_and_close_sessions_of_one_cluster)
{
    enum { THREADS = 16 };
    struct flow flow;
    flow_up(&flow);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, connect_and_close, &flow), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    flow_cql(&flow, INSERT_1);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_window_is_what_the_node_sees_under_way);
    tcase_add_test(tcase, inflight_per_connection_is_what_the_node_sees_under_way);
    tcase_add_test(tcase, bytes_max_is_what_the_node_sees_under_way);
    tcase_add_test(tcase, rows_larger_than_bytes_max_all_go_one_after_the_other);
    tcase_add_test(tcase, a_slow_sink_keeps_a_bulk_job_in_bounds);
    tcase_add_test(tcase, a_slow_sink_of_large_results_holds_no_more_than_bytes_max);
    tcase_add_test(tcase, a_slow_server_keeps_a_bulk_job_in_bounds);
    tcase_add_test(tcase, a_server_that_does_not_read_is_not_fed_without_end);
    tcase_add_test(tcase, ml_07_memory_falls_back_after_large_requests_and_answers);
    tcase_add_test(tcase, ml_09_connecting_and_closing_leaves_neither_descriptors_nor_threads);
    tcase_add_test(tcase, ml_10_many_threads_open_and_close_sessions_of_one_cluster);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
