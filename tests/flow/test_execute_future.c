/* SPDX-License-Identifier: Apache-2.0 */

/* Futures of single requests: callbacks in every order, many threads, what a callback may do, and handles that are gone. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

struct called {
    atomic_int count;
    cqlring_status status; /* what a wait inside of the callback said */
    pthread_t thread;
};

static void note(cqlring_future *future, void *context)
{
    struct called *called = context;
    called->status = cqlring_future_wait(future, 0, NULL);
    called->thread = pthread_self();
    atomic_fetch_add(&called->count, 1);
}

/* on_ready runs after waiters were woken: a further round trip on the same lane comes behind it. */
static void settle_callbacks(struct flow *flow)
{
    flow_cql(flow, "SELECT k FROM ks.t");
    flow_cql(flow, "SELECT k FROM ks.t");
}

START_TEST(cb_02_cb_10_a_second_callback_is_refused_in_every_order)
{
    struct flow flow;
    flow_up(&flow);
    for (int order = 0; order < 3; order++) { /* both before it is ready, the second after, both after */
        struct called first = {0}, second = {0};
        bool first_before = order < 2, second_before = order == 0;
        if (first_before)
            flow_fault(&flow, "late:delay_us=30000,times=1,table=ks.t");
        cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
        if (!first_before)
            flow_ok(ask_wait(future, NULL));
        flow_ok(cqlring_future_on_ready(future, note, &first));
        if (second_before)
            ck_assert_int_eq(cqlring_future_on_ready(future, note, &second), CQLRING_INVALID);
        flow_ok(ask_wait(future, NULL));
        if (!second_before)
            ck_assert_int_eq(cqlring_future_on_ready(future, note, &second), CQLRING_INVALID);
        ck_assert_int_eq(cqlring_future_on_ready(future, NULL, NULL), CQLRING_INVALID);
        cqlring_future_release(future);
        settle_callbacks(&flow);
        ck_assert_int_eq(atomic_load(&first.count), 1);
        ck_assert_int_eq(first.status, CQLRING_OK);
        ck_assert_int_eq(atomic_load(&second.count), 0);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(on_ready_of_a_ready_future_runs_on_the_calling_thread)
{
    struct flow flow;
    flow_up(&flow);
    struct called called = {0};
    cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    flow_ok(ask_wait(future, NULL));
    flow_ok(cqlring_future_on_ready(future, note, &called));
    ck_assert_int_eq(atomic_load(&called.count), 1);
    ck_assert(pthread_equal(called.thread, pthread_self()));
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

/* ---- what a callback may do ---- */

struct misuse {
    struct flow *flow;
    cqlring_prepared *statement;
    cqlring_future *other; /* not ready */
    cqlring_status execute_sync, prepare_sync, session_open_sync, cluster_open_sync, wait, poll, destroy, execute;
    cqlring_future *started;
    atomic_int done;
};

static void misuse_everything(cqlring_future *future, void *context)
{
    struct misuse *misuse = context;
    struct flow *flow = misuse->flow;
    cqlring_request request = {.session = flow->session, .cql = cqlring_text("SELECT k FROM ks.t")};
    cqlring_result *result = NULL;
    cqlring_prepared *prepared = NULL;
    cqlring_session *session = NULL;
    cqlring_cluster *cluster = NULL;
    (void)future;
    misuse->execute_sync = cqlring_execute_sync(&request, &result, NULL);
    misuse->prepare_sync = cqlring_prepare_sync(flow->session, "SELECT k FROM ks.t", &prepared, NULL);
    misuse->session_open_sync = cqlring_session_open_sync(flow->cluster, NULL, &session, NULL);
    misuse->cluster_open_sync = cqlring_cluster_open_sync(flow->runtime, &flow->options, &cluster, NULL);
    misuse->wait = cqlring_future_wait(misuse->other, 1000000, NULL);
    misuse->poll = cqlring_future_wait(misuse->other, 0, NULL);
    misuse->destroy = cqlring_runtime_destroy(flow->runtime);
    misuse->execute = cqlring_execute(&request, &misuse->started, NULL);
    atomic_store(&misuse->done, 1);
}

START_TEST(in_a_callback_calls_that_wait_are_refused_and_do_nothing)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "drop:times=1,table=ks.t");
    struct misuse misuse = {.flow = &flow};
    misuse.other = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    while (ask_seen_count(OPCODE_QUERY) == 0)
        ck_assert_int_eq(cqlring_future_wait(misuse.other, 2000, NULL), CQLRING_TIMEOUT);
    flow_fault(&flow, "late:delay_us=50000,times=1,table=ks.t"); /* so that it is not ready yet, which would run the call here */
    cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    flow_ok(cqlring_future_on_ready(future, misuse_everything, &misuse));
    flow_ok(ask_end(future, NULL));
    settle_callbacks(&flow);
    ck_assert_int_eq(atomic_load(&misuse.done), 1);
    ck_assert_int_eq(misuse.execute_sync, CQLRING_INVALID);
    ck_assert_int_eq(misuse.prepare_sync, CQLRING_INVALID);
    ck_assert_int_eq(misuse.session_open_sync, CQLRING_INVALID);
    ck_assert_int_eq(misuse.cluster_open_sync, CQLRING_INVALID);
    ck_assert_int_eq(misuse.wait, CQLRING_INVALID);
    ck_assert_int_eq(misuse.poll, CQLRING_TIMEOUT);
    ck_assert_int_eq(misuse.destroy, CQLRING_INVALID);
    flow_ok(misuse.execute);
    flow_ok(ask_end(misuse.started, NULL));
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 0);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 5);
    cqlring_future_cancel(misuse.other);
    ck_assert_int_eq(ask_end(misuse.other, NULL), CQLRING_CANCELLED);
    flow_close(&flow);
}
END_TEST

struct chain {
    struct flow *flow;
    int left;
    int failed;
    cqlring_future *last;
    atomic_int done;
};

static void next_link(cqlring_future *future, void *context)
{
    struct chain *chain = context;
    chain->failed += cqlring_future_wait(future, 0, NULL) != CQLRING_OK;
    if (chain->left-- == 0) {
        atomic_store(&chain->done, 1);
        return;
    }
    cqlring_request request = {.session = chain->flow->session, .cql = cqlring_text("INSERT INTO ks.t (k) VALUES (1)")};
    cqlring_future *next = NULL;
    if (cqlring_execute(&request, &next, NULL) != CQLRING_OK || cqlring_future_on_ready(next, next_link, chain) != CQLRING_OK)
        chain->failed++;
    cqlring_future_release(next);
}

START_TEST(callbacks_may_start_the_next_request_a_thousand_times)
{
    struct flow flow;
    flow_up(&flow);
    struct chain chain = {.flow = &flow, .left = 1000};
    cqlring_future *first = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
    flow_ok(cqlring_future_on_ready(first, next_link, &chain));
    cqlring_future_release(first);
    /* something to wait on: requests of our own, until the chain is through */
    for (int i = 0; i < 100000 && atomic_load(&chain.done) == 0; i++)
        flow_cql(&flow, "SELECT k FROM ks.t WHERE k = 1");
    ck_assert_int_eq(atomic_load(&chain.done), 1);
    ck_assert_int_eq(chain.failed, 0);
    flow_close(&flow);
}
END_TEST

/* Callbacks in C cannot raise; the worst that one can do is to let go of everything and ask for what is refused. */
struct fan {
    struct flow *flow;
    atomic_int calls, lost, other;
    int index;
};
static struct fan fans[100];
static atomic_int fan_calls;

static void fan_call(cqlring_future *future, void *context)
{
    struct fan *fan = context;
    cqlring_status status = cqlring_future_wait(future, 0, NULL);
    atomic_fetch_add(&fan->calls, 1);
    atomic_fetch_add(status == CQLRING_LOST ? &fan->lost : &fan->other, 1);
    if (atomic_fetch_add(&fan_calls, 1) == 2) {
        cqlring_request request = {.session = fan->flow->session, .cql = cqlring_text("SELECT k FROM ks.t")};
        cqlring_result *result = NULL;
        (void)cqlring_execute_sync(&request, &result, NULL);
        (void)cqlring_future_on_ready(future, fan_call, context);
        cqlring_future_cancel(future);
    }
}

START_TEST(cb_09_a_lost_connection_reaches_all_hundred_whatever_the_third_callback_does)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    memset(fans, 0, sizeof fans);
    atomic_store(&fan_calls, 0);
    flow_fault(&flow, "drop:table=ks.t,opcode=QUERY,times=100");
    static cqlring_future *futures[100];
    for (int i = 0; i < 100; i++) {
        fans[i] = (struct fan){.flow = &flow, .index = i};
        futures[i] = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
        flow_ok(cqlring_future_on_ready(futures[i], fan_call, &fans[i]));
    }
    while (ask_seen_count(OPCODE_QUERY) < 100)
        ck_assert_int_eq(cqlring_future_wait(futures[0], 2000, NULL), CQLRING_TIMEOUT);
    node_cut(flow.node, 0, 0);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(ask_end(futures[i], NULL), CQLRING_LOST);
    ask_until_served(&flow);
    ck_assert_int_eq(atomic_load(&fan_calls), 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(atomic_load(&fans[i].calls), 1);
        ck_assert_int_eq(atomic_load(&fans[i].lost), 1);
    }
    flow_close(&flow);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 8, EACH = 150 };

struct worker {
    pthread_t thread;
    struct flow *flow;
    cqlring_prepared *insert;
    int index, failed, wrong;
    atomic_int called;
};

static void count_call(cqlring_future *future, void *context)
{
    (void)future;
    atomic_fetch_add((atomic_int *)context, 1);
}

static void put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (56 - 8 * i));
}

static void *work(void *context)
{
    struct worker *worker = context;
    cqlring_future *futures[EACH];
    for (int i = 0; i < EACH; i++) {
        uint8_t key[8];
        put_u64(key, (uint64_t)(worker->index * EACH + i));
        cqlring_bytes values[2] = {{key, 8}, {key, 8}};
        cqlring_request request = {.session = worker->flow->session, .prepared = worker->insert, .values = values, .value_count = 2, .tag = (uint64_t)i};
        if (cqlring_execute(&request, &futures[i], NULL) != CQLRING_OK) {
            worker->failed++;
            futures[i] = NULL;
            continue;
        }
        if (i % 3 == 0)
            worker->failed += cqlring_future_on_ready(futures[i], count_call, &worker->called) != CQLRING_OK;
        if (i % 10 == 9)
            worker->failed += cqlring_future_wait(futures[i], 20000000, NULL) != CQLRING_OK;
    }
    for (int i = 0; i < EACH; i++) {
        if (futures[i] == NULL)
            continue;
        worker->failed += cqlring_future_wait(futures[i], 20000000, NULL) != CQLRING_OK;
        worker->wrong += cqlring_future_completion(futures[i])->tag != (uint64_t)i;
        cqlring_future_release(futures[i]);
    }
    return NULL;
}

START_TEST(many_threads_execute_at_once_on_one_session)
{
    struct flow flow;
    flow_init(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER)
        flow.runtime_options.lanes = (uint32_t)_i;
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    static struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.flow = &flow, .insert = insert, .index = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    settle_callbacks(&flow);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(workers[i].failed, 0);
        ck_assert_int_eq(workers[i].wrong, 0);
    }
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), THREADS * EACH);
    cqlring_prepared_release(insert);
    flow_close(&flow);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(atomic_load(&workers[i].called), EACH / 3);
}
END_TEST

struct waiter {
    pthread_t thread;
    cqlring_future *future;
    cqlring_status status;
};

static void *wait_long(void *context)
{
    struct waiter *waiter = context;
    waiter->status = cqlring_future_wait(waiter->future, 20000000, NULL);
    cqlring_future_release(waiter->future);
    return NULL;
}

START_TEST(many_threads_may_wait_for_one_future)
{
    struct flow flow;
    flow_up(&flow);
    for (int round = 0; round < 5; round++) {
        flow_fault(&flow, "late:delay_us=20000,times=1,table=ks.t");
        cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
        struct waiter waiters[THREADS];
        for (int i = 0; i < THREADS; i++) {
            waiters[i] = (struct waiter){.future = future};
            cqlring_future_retain(future);
            ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_long, &waiters[i]), 0);
        }
        cqlring_future_release(future);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(waiters[i].thread, NULL);
            flow_ok(waiters[i].status);
        }
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_wait_that_times_out_leaves_the_request_under_way)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "late:delay_us=60000,times=1,table=ks.t");
    cqlring_future *future = ask_start(&flow, "SELECT k FROM ks.t", NULL);
    cqlring_error error;
    ck_assert_int_eq(cqlring_future_wait(future, 0, &error), CQLRING_TIMEOUT);
    ck_assert_int_eq(error.status, CQLRING_TIMEOUT);
    ck_assert(!cqlring_future_ready(future));
    ck_assert_ptr_null(cqlring_future_completion(future));
    ck_assert_int_eq(cqlring_future_wait(future, 5000, &error), CQLRING_TIMEOUT);
    flow_ok(ask_wait(future, &error));
    ck_assert(cqlring_future_ready(future));
    cqlring_future_release(future);
    flow_close(&flow);
}
END_TEST

START_TEST(a_future_that_nobody_keeps_is_still_carried_out)
{
    struct flow flow;
    flow_up(&flow);
    for (int i = 0; i < 50; i++) {
        char cql[64];
        snprintf(cql, sizeof cql, "INSERT INTO ks.t (k) VALUES (%d)", i);
        cqlring_future_release(ask_start(&flow, cql, NULL));
    }
    flow_cql(&flow, "SELECT k FROM ks.t"); /* the connection keeps their order */
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 50);
    flow_close(&flow);
}
END_TEST

/* ---- handles that are gone ---- */

START_TEST(futures_and_results_outlive_session_cluster_and_runtime)
{
    struct flow flow;
    flow_init(&flow);
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x0102)");
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    cqlring_future *ready = ask_start(&flow, "SELECT v FROM ks.t", NULL);
    flow_ok(ask_wait(ready, NULL));
    flow_fault(&flow, "drop:table=ks.t");
    cqlring_future *open = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (2)", NULL);
    struct called called = {0}, late = {0};
    flow_ok(cqlring_future_on_ready(open, note, &called));
    while (ask_seen_count(OPCODE_QUERY) < 3)
        ck_assert_int_eq(cqlring_future_wait(open, 2000, NULL), CQLRING_TIMEOUT);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    node_cluster_stop(flow.node);
    /* the one under way was settled, its callback has run, and everything can still be read */
    cqlring_error error;
    ck_assert(cqlring_future_ready(open));
    ck_assert_int_eq(cqlring_future_wait(open, -1, &error), CQLRING_CLOSED);
    ck_assert_uint_eq(error.may_have_been_applied, 1);
    ck_assert_int_eq(atomic_load(&called.count), 1);
    const cqlring_completion *completion = cqlring_future_completion(ready);
    ck_assert_uint_eq(completion->status, CQLRING_OK);
    ck_assert_int_eq(ask_cell(completion->result, 0, 0).size, 2);
    flow_ok(cqlring_future_on_ready(ready, note, &late));
    ck_assert_int_eq(atomic_load(&late.count), 1);
    cqlring_future_cancel(ready);
    cqlring_future_cancel(open);
    cqlring_column column;
    ck_assert(cqlring_prepared_bind_column(select, 0, &column));
    ck_assert_str_eq(column.name, "k");
    cqlring_future_release(open);
    cqlring_future_release(ready);
    cqlring_prepared_release(select);
    ask_nothing_left();
}
END_TEST

START_TEST(after_a_close_no_library_thread_runs_a_callback)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "drop:table=ks.t");
    static struct called called[50];
    cqlring_future *futures[50], *closed = NULL;
    for (int i = 0; i < 50; i++) {
        called[i] = (struct called){0};
        futures[i] = ask_start(&flow, "INSERT INTO ks.t (k) VALUES (1)", NULL);
        flow_ok(cqlring_future_on_ready(futures[i], note, &called[i]));
    }
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(atomic_load(&called[i].count), 1); /* all of them, before the close was ready */
        ck_assert_int_eq(called[i].status, CQLRING_CLOSED);
        cqlring_future_release(futures[i]);
    }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("execute_future");
    TCase *tcase = tcase_create("execute_future");
    tcase_add_test(tcase, cb_02_cb_10_a_second_callback_is_refused_in_every_order);
    tcase_add_test(tcase, on_ready_of_a_ready_future_runs_on_the_calling_thread);
    tcase_add_test(tcase, in_a_callback_calls_that_wait_are_refused_and_do_nothing);
    tcase_add_test(tcase, callbacks_may_start_the_next_request_a_thousand_times);
    tcase_add_test(tcase, cb_09_a_lost_connection_reaches_all_hundred_whatever_the_third_callback_does);
    tcase_add_loop_test(tcase, many_threads_execute_at_once_on_one_session, 1, 4); /* lanes */
    tcase_add_test(tcase, many_threads_may_wait_for_one_future);
    tcase_add_test(tcase, a_wait_that_times_out_leaves_the_request_under_way);
    tcase_add_test(tcase, a_future_that_nobody_keeps_is_still_carried_out);
    tcase_add_test(tcase, futures_and_results_outlive_session_cluster_and_runtime);
    tcase_add_test(tcase, after_a_close_no_library_thread_runs_a_callback);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
