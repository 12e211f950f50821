/* SPDX-License-Identifier: Apache-2.0 */

/* Handles that are let go in every order, that outlive their runtime, or that are at work while it is destroyed. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "endless.h"
#include "serialize/mem.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

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
        cqlring_future *job = endless_start(&endless, insert);
        for (const char *at = order; *at != '\0'; at++) {
            let_go(&flow, *at, insert, job);
            if (*at == 'R' && strchr(order, 'J') > at) { /* still ours, and ended */
                ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
                endless_check(&endless, job);
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

/* ---- the last one closes ---- */

static bool are_closed(struct flow *flow, void *context)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.connections_open == *(uint64_t *)context;
}

/* Connections and what else runs inside refer to the cluster, but do not keep it open. */
START_TEST(the_last_release_of_a_cluster_closes_it)
{
    struct flow flow;
    flow_up(&flow);
    struct node_counters before;
    node_counters(flow.node, NODE_ALL, &before);
    for (int i = 0; i < 5; i++) {
        cqlring_cluster_options options = flow.options;
        cqlring_cluster *cluster;
        cqlring_session *session;
        cqlring_prepared *prepared = NULL;
        flow_ok(cqlring_cluster_open_sync(flow.runtime, &options, &cluster, NULL));
        if (i % 2 == 1) {
            flow_ok(cqlring_session_open_sync(cluster, NULL, &session, NULL));
            flow_ok(cqlring_prepare_sync(session, FLOW_SELECT, &prepared, NULL));
            cqlring_cluster_release(cluster); /* the session's keeps it open */
            cqlring_request request = {.session = session, .cql = cqlring_text("SELECT key FROM system.local")};
            flow_ok(cqlring_execute_sync(&request, NULL, NULL));
            cqlring_session_release(session); /* the statement does not */
        } else {
            cqlring_cluster_release(cluster);
        }
        watch_for(&flow, are_closed, &before.connections_open);
        ck_assert_uint_eq(cqlring_prepared_bind_count(prepared), prepared != NULL);
        cqlring_prepared_release(prepared);
    }
    struct node_counters after;
    node_counters(flow.node, NODE_ALL, &after);
    ck_assert_uint_ge(after.connections, before.connections + 7);
    flow_close(&flow);
}
END_TEST

/* One that nobody took from its future is closed with it. */
/* Once more than it was handed out: said to the log, and nothing happens. Here something still holds each of them. */
START_TEST(a_handle_released_too_often_is_told_and_does_no_harm)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_future *job = NULL;
    struct endless endless;
    endless_init(&endless, &flow);
    job = endless_start(&endless, insert);
    cqlring_session_release(flow.session); /* the job holds it, so it stays open */
    for (int i = 0; i < 3; i++)
        cqlring_session_release(flow.session);
    ck_assert_uint_eq(watch_log_count("cqlring_session_release: released more often than it was handed out"), 3);
    ck_assert_int_eq(cqlring_future_wait(job, 20000, NULL), CQLRING_TIMEOUT); /* it goes on */
    cqlring_cluster_release(flow.cluster);
    for (int i = 0; i < 3; i++)
        cqlring_cluster_release(flow.cluster);
    ck_assert_uint_eq(watch_log_count("cqlring_cluster_release: released more often than it was handed out"), 3);
    ck_assert_int_eq(cqlring_future_wait(job, 20000, NULL), CQLRING_TIMEOUT);
    cqlring_future_cancel(job);
    ck_assert_int_eq(ask_end(job, NULL), CQLRING_CANCELLED);
    flow.session = NULL;
    flow.cluster = NULL;
    endless_fini(&endless);
    cqlring_prepared_release(insert);
    flow_close(&flow); /* and everything ends */
}
END_TEST

START_TEST(a_cluster_that_is_never_taken_from_its_future_is_closed)
{
    struct flow flow;
    flow_up(&flow);
    struct node_counters before;
    node_counters(flow.node, NODE_ALL, &before);
    cqlring_future *future;
    flow_ok(cqlring_cluster_open(flow.runtime, &flow.options, &future, NULL));
    flow_ok(cqlring_future_wait(future, -1, NULL));
    cqlring_future_release(future);
    watch_for(&flow, are_closed, &before.connections_open);
    flow_close(&flow);
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

/* A close takes the sessions some at a time; the one that was opened first is the last of them, and may have ended by then. */
START_TEST(a_session_may_end_by_itself_while_its_cluster_is_closed)
{
    enum { SESSIONS = 1500, ROUNDS = 10 };
    static cqlring_session *more[SESSIONS];
    for (int round = 0; round < ROUNDS; round++) {
        struct flow flow;
        flow_up(&flow);
        for (int i = 0; i < SESSIONS; i++)
            flow_ok(cqlring_session_open_sync(flow.cluster, NULL, &more[i], NULL));
        cqlring_session_release(flow.session);
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        for (int i = 0; i < SESSIONS; i++)
            cqlring_session_release(more[i]);
        cqlring_cluster_release(flow.cluster);
        node_cluster_stop(flow.node);
        ask_nothing_left();
    }
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
    Suite *suite = suite_create("shutdown_handles");
    TCase *tcase = tcase_create("shutdown_handles");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, handles_may_be_let_go_in_every_order_with_a_job_under_way);
    tcase_add_test(tcase, the_last_release_of_a_cluster_closes_it);
    tcase_add_test(tcase, a_handle_released_too_often_is_told_and_does_no_harm);
    tcase_add_test(tcase, a_cluster_that_is_never_taken_from_its_future_is_closed);
    tcase_add_test(tcase, on_ready_runs_once_whether_set_before_or_after_the_close);
    tcase_add_test(tcase, handles_outlive_the_runtime_and_answer_closed);
    tcase_add_test(tcase, a_session_may_end_by_itself_while_its_cluster_is_closed);
    tcase_add_test(tcase, the_runtime_may_be_destroyed_while_other_threads_execute);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
