/* SPDX-License-Identifier: Apache-2.0 */

/* The end: in every order, at every moment, from every thread. What was accepted gets its one outcome, every future gets ready,
   nothing is left, and nobody is called afterwards. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "serialize/mem.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

/* Sinks and sources of the tests run on library threads: what the tests look at meanwhile is atomic. */
struct endless {
    struct flow_rows rows;
    struct flow_sink sink;
    atomic_ulong calls;
    void (*act)(struct endless *endless); /* once, in the sink, after 500 rows */
    struct flow *flow;
    bool acted;
    cqlring_status status; /* what act's call answered */
    cqlring_future *future;
};

static void on_row(const cqlring_completion *completion, void *context)
{
    struct endless *endless = context;
    (void)completion;
    atomic_fetch_add(&endless->calls, 1);
    if (endless->act != NULL && !endless->acted && endless->sink.delivered > 500) {
        endless->acted = true;
        endless->act(endless);
    }
}

static void endless_init(struct endless *endless, struct flow *flow)
{
    memset(endless, 0, sizeof *endless);
    flow_rows_init(&endless->rows, FLOW_ROWS_MAX, 16);
    flow_sink_init(&endless->sink, FLOW_ROWS_MAX);
    endless->sink.each = on_row;
    endless->sink.context = endless;
    endless->flow = flow;
}

static void endless_fini(struct endless *endless)
{
    flow_rows_fini(&endless->rows);
    flow_sink_fini(&endless->sink);
}

static bool has_begun(struct flow *flow, void *context)
{
    (void)flow;
    return atomic_load(&((struct endless *)context)->calls) > 300;
}

static cqlring_future *endless_start(struct endless *endless, struct flow *flow, cqlring_prepared *insert)
{
    cqlring_job_options options = {.struct_size = sizeof options, .window = 64};
    cqlring_future *job = flow_job(flow, insert, &endless->rows, &endless->sink, &options);
    watch_for(flow, has_begun, endless);
    return job;
}

/* The job has ended: every row that was issued has its one outcome. */
static void ck_assert_whole(struct endless *endless, cqlring_future *job)
{
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_gt(summary.rows, 300);
    ck_assert_uint_eq(endless->sink.last, summary.rows);
    ck_assert_uint_eq(endless->sink.twice, 0);
    ck_assert_uint_eq(flow_sink_missing(&endless->sink, summary.rows), 0);
    ck_assert_uint_eq(endless->sink.by_status[CQLRING_OK] + endless->sink.by_status[CQLRING_CLOSED], endless->sink.last);
}

/* ---- every order ---- */

static void let_go(struct flow *flow, char what, cqlring_prepared *insert, cqlring_future *job)
{
    switch (what) {
    case 'S':
        cqlring_session_release(flow->session);
        break;
    case 'C':
        cqlring_cluster_release(flow->cluster);
        break;
    case 'R':
        flow_ok(cqlring_runtime_destroy(flow->runtime));
        break;
    case 'J':
        cqlring_future_release(job);
        break;
    default:
        cqlring_prepared_release(insert);
        break;
    }
}

static bool next_permutation(char *text)
{
    int size = (int)strlen(text), i = size - 2, j = size - 1;
    while (i >= 0 && text[i] > text[i + 1])
        i--;
    if (i < 0)
        return false;
    while (text[j] < text[i])
        j--;
    char swapped = text[i];
    text[i] = text[j];
    text[j] = swapped;
    for (int from = i + 1, to = size - 1; from < to; from++, to--) {
        swapped = text[from];
        text[from] = text[to];
        text[to] = swapped;
    }
    return true;
}

START_TEST(handles_may_be_let_go_in_every_order_with_a_job_under_way)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    struct node_cluster *node = flow.node;
    int64_t nodes_own = cqr_mem_live_count();
    char order[] = "CJPRS";
    int orders = 0;
    do {
        flow_init(&flow);
        flow.node = node;
        flow_open(&flow);
        struct endless endless;
        endless_init(&endless, &flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        cqlring_future *job = endless_start(&endless, &flow, insert);
        for (const char *at = order; *at != '\0'; at++) {
            let_go(&flow, *at, insert, job);
            if (*at == 'R' && strchr(order, 'J') > at) { /* still ours, and ended */
                ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
                ck_assert_whole(&endless, job);
            }
        }
        ck_assert_msg(cqr_mem_live_count() == nodes_own, "order %s leaves %lld allocations", order, (long long)(cqr_mem_live_count() - nodes_own));
        endless_fini(&endless);
        orders++;
    } while (next_permutation(order));
    ck_assert_int_eq(orders, 120);
    node_cluster_stop(node);
}
END_TEST

/* ---- every moment ---- */

START_TEST(a_cluster_that_is_opening_may_be_given_up)
{
    static const char *const faults[] = {NULL, "ignore:opcode=OPTIONS", "ignore:opcode=STARTUP", "ignore:opcode=REGISTER", "ignore:table=system.local",
                                         "ignore:table=system.peers_v2"};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        for (int released = 0; released < 2; released++) {
            struct flow flow;
            flow_init(&flow);
            flow_start(&flow);
            if (faults[i] != NULL)
                flow_fault(&flow, faults[i]);
            flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
            flow.options.contact_points = node_address(flow.node, 0);
            flow.options.port = node_port(flow.node, 0);
            cqlring_future *future;
            flow_ok(cqlring_cluster_open(flow.runtime, &flow.options, &future, NULL));
            if (faults[i] != NULL)
                watch_for(&flow, watch_faults, &(uint64_t){1});
            if (released)
                cqlring_future_release(future);
            flow_ok(cqlring_runtime_destroy(flow.runtime));
            flow.runtime = NULL;
            if (!released) {
                cqlring_error error = {0};
                cqlring_status status = cqlring_future_wait(future, 0, &error);
                ck_assert_msg(status == CQLRING_CLOSED || (faults[i] == NULL && status == CQLRING_OK), "%s: %s", cqlring_status_name(status), error.message);
                cqlring_future_release(future);
            }
            flow_close(&flow);
        }
}
END_TEST

START_TEST(names_may_still_be_looked_up_when_everything_is_gone)
{
    struct flow flow;
    flow_init(&flow);
    for (int i = 0; i < 20; i++) {
        flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
        flow.options.contact_points = "localhost, no-such-host.invalid";
        flow.options.port = 1;
        cqlring_future *future;
        flow_ok(cqlring_cluster_open(flow.runtime, &flow.options, &future, NULL));
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        flow.runtime = NULL;
        cqlring_future_release(future);
    }
    for (int i = 0; i < 1000 && cqr_mem_live_count() > 0; i++)
        watch_pass(&flow, 10); /* the resolver's thread ends alone */
    flow_close(&flow);
}
END_TEST

START_TEST(a_session_that_is_opening_may_be_given_up)
{
    for (int silent = 0; silent < 2; silent++) {
        struct flow flow;
        flow_up(&flow);
        if (silent)
            flow_fault(&flow, "ignore:opcode=OPTIONS");
        cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
        cqlring_future *future, *closed;
        flow_ok(cqlring_session_open(flow.cluster, &options, &future, NULL));
        if (silent)
            watch_for(&flow, watch_faults, &(uint64_t){1});
        flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
        flow_ok(ask_end(closed, NULL));
        ck_assert(cqlring_future_ready(future));
        cqlring_status status = ask_wait(future, NULL);
        ck_assert_msg(status == CQLRING_CLOSED || (!silent && status == CQLRING_OK), "%s", cqlring_status_name(status));
        cqlring_session *session = cqlring_future_session(future);
        if (session != NULL) {
            cqlring_request request = {.session = session, .cql = cqlring_text(INSERT_1)};
            ck_assert_int_eq(cqlring_execute_sync(&request, NULL, NULL), CQLRING_CLOSED);
        }
        cqlring_session_release(session);
        cqlring_future_release(future);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_statement_that_is_being_prepared_may_be_given_up)
{
    for (int how = 0; how < 3; how++) {
        struct flow flow;
        flow_up(&flow);
        flow_fault(&flow, "ignore:opcode=PREPARE");
        cqlring_future *prepares[3], *closed = NULL;
        for (int i = 0; i < 3; i++) /* one flight, three who wait for it */
            flow_ok(cqlring_prepare(flow.session, cqlring_text(FLOW_INSERT), NULL, &prepares[i], NULL));
        watch_for(&flow, watch_faults, &(uint64_t){1});
        if (how == 0)
            flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
        else if (how == 1)
            flow_ok(cqlring_cluster_close(flow.cluster, 20000, &closed, NULL));
        else
            flow_ok(cqlring_runtime_destroy(flow.runtime));
        if (closed != NULL)
            flow_ok(ask_end(closed, NULL));
        for (int i = 0; i < 3; i++) {
            cqlring_error error = {0};
            ck_assert(cqlring_future_ready(prepares[i]));
            ck_assert_int_eq(cqlring_future_wait(prepares[i], 0, &error), CQLRING_CLOSED);
            ck_assert_ptr_null(cqlring_future_prepared(prepares[i]));
            cqlring_future_release(prepares[i]);
        }
        if (how == 2) {
            cqlring_session_release(flow.session);
            cqlring_cluster_release(flow.cluster);
            flow.runtime = NULL;
            flow.session = NULL;
            flow.cluster = NULL;
        }
        flow_close(&flow);
    }
}
END_TEST

START_TEST(single_requests_are_drained_or_closed)
{
    static const int64_t drains[] = {0, 30000, -1};
    for (int i = 0; i < 3; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct flow flow;
            flow_init(&flow);
            flow_start(&flow);
            flow_open(&flow);
            flow_fault(&flow, "late:table=ks.t,delay_us=200000");
            cqlring_future *futures[20], *closed;
            for (int j = 0; j < 20; j++)
                futures[j] = ask_start(&flow, INSERT_1, NULL);
            watch_for(&flow, watch_faults, &(uint64_t){20});
            flow_ok(whole ? cqlring_cluster_close(flow.cluster, drains[i], &closed, NULL) : cqlring_session_close(flow.session, drains[i], &closed, NULL));
            cqlring_request request = {.session = flow.session, .cql = cqlring_text(INSERT_1)};
            cqlring_future *late;
            ck_assert_int_eq(cqlring_execute(&request, &late, NULL), CQLRING_CLOSED);
            flow_ok(ask_end(closed, NULL));
            for (int j = 0; j < 20; j++) {
                cqlring_error error = {0};
                ck_assert(cqlring_future_ready(futures[j]));
                ck_assert_int_eq(ask_end(futures[j], &error), drains[i] < 0 ? CQLRING_OK : CQLRING_CLOSED);
                ck_assert_int_eq(error.may_have_been_applied, drains[i] >= 0);
            }
            flow_close(&flow);
        }
}
END_TEST

START_TEST(a_job_is_drained_or_closed)
{
    static const int64_t drains[] = {0, 20000, -1};
    for (int i = 0; i < 3; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct flow flow;
            flow_init(&flow);
            flow_start(&flow);
            flow_open(&flow);
            node_set_delay(flow.node, NODE_ALL, 5000, 4000);
            cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
            struct endless endless;
            endless_init(&endless, &flow);
            cqlring_future *job = endless_start(&endless, &flow, insert), *closed;
            if (i == 1)
                node_freeze(flow.node, 0, -1);
            flow_ok(whole ? cqlring_cluster_close(flow.cluster, drains[i], &closed, NULL) : cqlring_session_close(flow.session, drains[i], &closed, NULL));
            flow_ok(ask_end(closed, NULL));
            ck_assert(cqlring_future_ready(job));
            unsigned long calls = atomic_load(&endless.calls);
            ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
            ck_assert_whole(&endless, job);
            if (drains[i] < 0)
                ck_assert_uint_eq(endless.sink.failed, 0);
            if (i == 1)
                ck_assert_uint_gt(endless.sink.by_status[CQLRING_CLOSED], 0);
            watch_pass(&flow, 20);
            ck_assert_uint_eq(atomic_load(&endless.calls), calls); /* nobody is called any more */
            cqlring_future_release(job);
            endless_fini(&endless);
            cqlring_prepared_release(insert);
            flow_close(&flow);
        }
}
END_TEST

/* A sink that wants to be asked later is asked a last time. */
START_TEST(a_sink_that_said_later_gets_its_rows_at_the_close)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 5000, 16);
    flow_sink_init(&sink, 5000);
    sink.later_at = 700;
    cqlring_future *job = flow_job(&flow, insert, &rows, &sink, NULL), *closed;
    ck_assert_int_eq(cqlring_future_wait(job, 100000, NULL), CQLRING_TIMEOUT);
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ck_assert_int_eq(ask_wait(job, NULL), CQLRING_CLOSED);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(sink.last, summary.rows);
    ck_assert_uint_eq(sink.twice, 0);
    cqlring_future_release(job);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- twice, and from several threads ---- */

static void *close_it(void *context)
{
    struct flow *flow = context;
    cqlring_future *futures[4];
    flow_ok(cqlring_session_close(flow->session, 0, &futures[0], NULL));
    flow_ok(cqlring_cluster_close(flow->cluster, 1000, &futures[1], NULL));
    flow_ok(cqlring_cluster_close(flow->cluster, 0, &futures[2], NULL));
    flow_ok(cqlring_session_close(flow->session, -1, &futures[3], NULL));
    flow_ok(cqlring_session_close(flow->session, 0, NULL, NULL));
    for (int i = 0; i < 4; i++)
        flow_ok(ask_end(futures[i], NULL));
    return NULL;
}

START_TEST(closing_again_and_from_several_threads_at_once_is_one_close)
{
    for (int round = 0; round < 5; round++) {
        struct flow flow;
        flow_up(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct endless endless;
        endless_init(&endless, &flow);
        cqlring_future *job = endless_start(&endless, &flow, insert);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, close_it, &flow), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
        ck_assert_whole(&endless, job);
        close_it(&flow);
        cqlring_future_release(job);
        endless_fini(&endless);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

/* ---- from a callback ---- */

static void close_session(struct endless *endless)
{
    endless->status = cqlring_session_close(endless->flow->session, 0, &endless->future, NULL);
}

static void close_cluster(struct endless *endless)
{
    endless->status = cqlring_cluster_close(endless->flow->cluster, -1, &endless->future, NULL);
}

static void release_session(struct endless *endless)
{
    cqlring_session_release(endless->flow->session);
    endless->flow->session = NULL;
    endless->status = CQLRING_OK;
}

static void release_cluster_and_session(struct endless *endless)
{
    cqlring_cluster_release(endless->flow->cluster);
    endless->flow->cluster = NULL;
    release_session(endless);
}

static void destroy_runtime(struct endless *endless)
{
    endless->status = cqlring_runtime_destroy(endless->flow->runtime);
    cqlring_session_close(endless->flow->session, 0, &endless->future, NULL);
}

static void wait_for_close(struct endless *endless)
{
    cqlring_session_close(endless->flow->session, 0, &endless->future, NULL);
    endless->status = cqlring_future_wait(endless->future, -1, NULL);
}

START_TEST(a_callback_may_close_and_release_but_not_destroy_or_wait)
{
    static const struct {
        void (*act)(struct endless *endless);
        cqlring_status status;
    } cases[] = {{close_session, CQLRING_OK},       {close_cluster, CQLRING_OK},       {release_session, CQLRING_OK}, {release_cluster_and_session, CQLRING_OK},
                 {destroy_runtime, CQLRING_INVALID}, {wait_for_close, CQLRING_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flow flow;
        flow_up(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct endless endless;
        endless_init(&endless, &flow);
        endless.act = cases[i].act;
        cqlring_job_options options = {.struct_size = sizeof options, .window = 64};
        cqlring_future *job = flow_job(&flow, insert, &endless.rows, &endless.sink, &options);
        bool job_holds_session = cases[i].act == release_session || cases[i].act == release_cluster_and_session;
        if (job_holds_session) { /* the job goes on: it has a reference of its own */
            ck_assert_int_eq(cqlring_future_wait(job, 100000, NULL), CQLRING_TIMEOUT);
            cqlring_future_cancel(job);
            ck_assert_int_eq(ask_wait(job, NULL), CQLRING_CANCELLED);
        } else {
            ck_assert_int_eq(ask_wait(job, NULL), CQLRING_CLOSED);
            flow_ok(ask_end(endless.future, NULL));
        }
        ck_assert(endless.acted);
        ck_assert_msg(endless.status == cases[i].status, "case %zu: %s", i, cqlring_status_name(endless.status));
        cqlring_future_release(job);
        endless_fini(&endless);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

/* ---- on_ready ---- */

static void count_call(cqlring_future *future, void *context)
{
    ck_assert(cqlring_future_ready(future));
    atomic_fetch_add((atomic_uint *)context, 1);
}

START_TEST(on_ready_runs_once_whether_set_before_or_after_the_close)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "ignore:table=ks.t");
    atomic_uint calls = 0;
    cqlring_future *before = ask_start(&flow, INSERT_1, NULL), *after = ask_start(&flow, INSERT_1, NULL), *closed;
    flow_ok(cqlring_future_on_ready(before, count_call, &calls));
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
    flow_ok(cqlring_future_on_ready(closed, count_call, &calls));
    flow_ok(ask_end(closed, NULL));
    ck_assert_int_eq(ask_end(before, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(ask_wait(after, NULL), CQLRING_CLOSED);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    ck_assert_uint_eq(atomic_load(&calls), 2);
    flow_ok(cqlring_future_on_ready(after, count_call, &calls)); /* inline: there is no thread any more */
    ck_assert_uint_eq(atomic_load(&calls), 3);
    ck_assert_int_eq(cqlring_future_on_ready(after, count_call, &calls), CQLRING_INVALID);
    cqlring_future_release(after);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    node_cluster_stop(flow.node);
    ck_assert_int_eq(cqr_mem_live_count(), 0);
}
END_TEST

/* ---- everything still held ---- */

START_TEST(handles_outlive_the_runtime_and_answer_closed)
{
    struct flow flow;
    flow_up(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (5, 0xcafe)");
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_result *result = NULL;
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 1};
    flow_cql(&flow, INSERT_1);
    flow_ok(ask_text(&flow, "SELECT k, v FROM ks.t", NULL, 0, &how, &result, NULL));
    cqlring_queue_options queue_options = {.struct_size = sizeof queue_options, .session = flow.session};
    cqlring_queue *queue = NULL;
    flow_ok(cqlring_queue_open(&queue_options, &queue, NULL));
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(INSERT_1), .tag = 7};
    uint32_t accepted = 0;
    flow_ok(cqlring_queue_submit(queue, &request, 1, &accepted, NULL));
    cqlring_future *done = ask_start(&flow, INSERT_1, NULL);
    flow_ok(ask_wait(done, NULL));
    const cqlring_node *node;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, &node, 1), 1);
    flow_ok(cqlring_runtime_destroy(flow.runtime));

    cqlring_future *future = NULL;
    cqlring_error error = {0};
    ck_assert_int_eq(cqlring_execute(&request, &future, &error), CQLRING_CLOSED);
    request.prepared = insert;
    ck_assert_int_eq(cqlring_prepare(flow.session, cqlring_text(FLOW_SELECT), NULL, &future, &error), CQLRING_CLOSED);
    ck_assert_int_eq(cqlring_session_open(flow.cluster, NULL, &future, &error), CQLRING_CLOSED);
    cqlring_queue *second = NULL;
    ck_assert_int_eq(cqlring_queue_open(&queue_options, &second, &error), CQLRING_CLOSED);
    struct flow_rows rows;
    flow_rows_init(&rows, 10, 16);
    cqlring_source source = flow_source(&rows);
    ck_assert_int_eq(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, NULL, &future, &error), CQLRING_CLOSED);
    flow_rows_fini(&rows);
    ck_assert_int_eq(cqlring_next_page(result, NULL, &future, &error), CQLRING_CLOSED);
    ck_assert_ptr_null(future);
    flow_ok(cqlring_session_close(flow.session, -1, &future, &error));
    flow_ok(cqlring_future_wait(future, 0, &error));
    cqlring_future_release(future);
    flow_ok(cqlring_cluster_close(flow.cluster, -1, &future, &error));
    flow_ok(cqlring_future_wait(future, 0, &error));
    cqlring_future_release(future);

    /* what was received stays readable */
    ck_assert_uint_eq(cqlring_result_row_count(result), 1);
    ck_assert_int_gt(ask_cell(result, 0, 0).size, 0);
    ck_assert_uint_eq(cqlring_prepared_bind_count(insert), 2);
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    ck_assert_str_eq(info.address, ask_address(&flow, 0));
    ck_assert_uint_eq(info.connections, 0);
    flow_ok(cqlring_future_wait(done, 0, NULL));
    cqlring_completion completions[4];
    cqlring_status status = CQLRING_OK;
    uint32_t reaped = cqlring_queue_reap(queue, completions, 4, 4, -1, &status);
    ck_assert_uint_eq(reaped, 1);
    ck_assert_uint_eq(completions[0].tag, 7);
    cqlring_completions_release(completions, reaped);
    ck_assert_uint_eq(cqlring_queue_reap(queue, completions, 4, 1, -1, &status), 0);
    ck_assert_int_eq(status, CQLRING_CLOSED);

    cqlring_queue_release(queue);
    cqlring_result_release(result);
    cqlring_future_release(done);
    cqlring_cluster_release(flow.cluster);
    cqlring_session_release(flow.session);
    cqlring_prepared_release(insert);
    node_cluster_stop(flow.node);
    ck_assert_msg(cqr_mem_live_count() == 0, "%lld allocations are left", (long long)cqr_mem_live_count());
}
END_TEST

/* ---- a destroy while others are at it ---- */

struct worker {
    struct flow *flow;
    cqlring_prepared *insert;
    uint64_t accepted, outcomes;
    cqlring_status end;
};

static void *work(void *context)
{
    struct worker *worker = context;
    cqlring_bytes values[2] = {{"\0\0\0\0\0\0\0\1", 8}, {"x", 1}};
    cqlring_request request = {.session = worker->flow->session, .prepared = worker->insert, .values = values, .value_count = 2};
    for (;;) {
        cqlring_future *future = NULL;
        worker->end = cqlring_execute(&request, &future, NULL);
        if (worker->end == CQLRING_FULL)
            continue;
        if (worker->end != CQLRING_OK)
            return NULL;
        worker->accepted++;
        cqlring_status status = cqlring_future_wait(future, 20000000, NULL);
        worker->outcomes += status == CQLRING_OK || status == CQLRING_CLOSED;
        cqlring_future_release(future);
    }
}

static bool has_stored(struct flow *flow, void *count)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.opcodes[OPCODE_EXECUTE] >= *(uint64_t *)count;
}

START_TEST(the_runtime_may_be_destroyed_while_other_threads_execute)
{
    for (int round = 0; round < 5; round++) {
        struct flow flow;
        flow_up(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        pthread_t threads[4];
        struct worker workers[4];
        for (int i = 0; i < 4; i++) {
            workers[i] = (struct worker){.flow = &flow, .insert = insert};
            ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        watch_for(&flow, has_stored, &(uint64_t){300});
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            ck_assert_int_eq(workers[i].end, CQLRING_CLOSED);
            ck_assert_uint_eq(workers[i].accepted, workers[i].outcomes);
        }
        cqlring_prepared_release(insert);
        cqlring_session_release(flow.session);
        cqlring_cluster_release(flow.cluster);
        node_cluster_stop(flow.node);
        ck_assert_msg(cqr_mem_live_count() == 0, "%lld allocations are left", (long long)cqr_mem_live_count());
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shutdown");
    TCase *tcase = tcase_create("shutdown");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, handles_may_be_let_go_in_every_order_with_a_job_under_way);
    tcase_add_test(tcase, a_cluster_that_is_opening_may_be_given_up);
    tcase_add_test(tcase, names_may_still_be_looked_up_when_everything_is_gone);
    tcase_add_test(tcase, a_session_that_is_opening_may_be_given_up);
    tcase_add_test(tcase, a_statement_that_is_being_prepared_may_be_given_up);
    tcase_add_test(tcase, single_requests_are_drained_or_closed);
    tcase_add_test(tcase, a_job_is_drained_or_closed);
    tcase_add_test(tcase, a_sink_that_said_later_gets_its_rows_at_the_close);
    tcase_add_test(tcase, closing_again_and_from_several_threads_at_once_is_one_close);
    tcase_add_test(tcase, a_callback_may_close_and_release_but_not_destroy_or_wait);
    tcase_add_test(tcase, on_ready_runs_once_whether_set_before_or_after_the_close);
    tcase_add_test(tcase, handles_outlive_the_runtime_and_answer_closed);
    tcase_add_test(tcase, the_runtime_may_be_destroyed_while_other_threads_execute);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
