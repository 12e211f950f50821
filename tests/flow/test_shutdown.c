/* SPDX-License-Identifier: Apache-2.0 */

/* Closing at every moment, from every thread and from callbacks. What was accepted gets its one outcome, every future gets ready, and
   nobody is called afterwards. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "endless.h"
#include "serialize/mem.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

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
        flow.options.contact_points = FLOW_NAME ", no-such-host.invalid";
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
            cqlring_future *job = endless_start(&endless, insert), *closed;
            if (i == 1) { /* and as many rows as may be are under way */
                node_freeze(flow.node, 0, -1);
                watch_pass(&flow, 20);
            }
            flow_ok(whole ? cqlring_cluster_close(flow.cluster, drains[i], &closed, NULL) : cqlring_session_close(flow.session, drains[i], &closed, NULL));
            flow_ok(ask_end(closed, NULL));
            ck_assert(cqlring_future_ready(job));
            unsigned long calls = atomic_load(&endless.calls);
            ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
            endless_check(&endless, job);
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
    flow_until(job, &sink.later_said);
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
        cqlring_future *job = endless_start(&endless, insert);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, close_it, &flow), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        ck_assert_int_eq(cqlring_future_wait(job, 0, NULL), CQLRING_CLOSED);
        endless_check(&endless, job);
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

static bool has_gone_on(struct flow *flow, void *context)
{
    (void)flow;
    return atomic_load(&((struct endless *)context)->calls) > 1000;
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
            watch_for(&flow, has_gone_on, &endless);
            ck_assert(!cqlring_future_ready(job));
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

int main(void)
{
    Suite *suite = suite_create("shutdown");
    TCase *tcase = tcase_create("shutdown");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_cluster_that_is_opening_may_be_given_up);
    tcase_add_test(tcase, names_may_still_be_looked_up_when_everything_is_gone);
    tcase_add_test(tcase, a_session_that_is_opening_may_be_given_up);
    tcase_add_test(tcase, a_statement_that_is_being_prepared_may_be_given_up);
    tcase_add_test(tcase, single_requests_are_drained_or_closed);
    tcase_add_test(tcase, a_job_is_drained_or_closed);
    tcase_add_test(tcase, a_sink_that_said_later_gets_its_rows_at_the_close);
    tcase_add_test(tcase, closing_again_and_from_several_threads_at_once_is_one_close);
    tcase_add_test(tcase, a_callback_may_close_and_release_but_not_destroy_or_wait);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
