/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: modes=split */

/* What only caller mode has: the descriptor for a foreign loop, and a turn that asks before it looks. (The other flow tests run
   in this mode, too.) */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ask.h"

enum { LONG_MS = 20000 };
#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

static void start(struct flow *flow)
{
    flow_init(flow);
    flow->threads = flow->runtime_options.threads = CQLRING_THREADS_CALLER;
    flow_start(flow);
    flow_open(flow);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    return poll(&watched, 1, timeout_ms) == 1;
}

/* A loop that knows nothing but the descriptor: it sleeps on it, and runs a turn when it is readable. */
static void loop_until_ready(struct flow *flow, int fd, cqlring_future *future)
{
    while (!cqlring_future_ready(future)) {
        ck_assert_msg(is_readable(fd, LONG_MS), "asleep, though something was to be done");
        ck_assert_int_ge(cqlring_runtime_turn(flow->runtime, 0), 0);
    }
}

static void loop_until_idle(struct flow *flow, int fd)
{
    for (int i = 0; is_readable(fd, 0); i++) {
        ck_assert_int_lt(i, 100);
        ck_assert_int_ge(cqlring_runtime_turn(flow->runtime, 0), 0);
    }
}

START_TEST(descriptor_tells_of_requests_and_answers_and_time_outs)
{
    struct flow flow;
    start(&flow);
    int fd = cqlring_runtime_fd(flow.runtime);
    ck_assert_int_ge(fd, 0);
    loop_until_idle(&flow, fd);
    for (int i = 0; i < 3; i++) { /* asked between two turns, and alone */
        cqlring_future *future = ask_start(&flow, INSERT_1, NULL);
        loop_until_ready(&flow, fd, future);
        flow_ok(ask_end(future, NULL));
        loop_until_idle(&flow, fd);
    }
    flow_fault(&flow, "drop:table=ks.t,times=1");
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 50000};
    cqlring_future *future = ask_start(&flow, INSERT_1, &how);
    loop_until_ready(&flow, fd, future);
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_TIMEOUT);
    loop_until_idle(&flow, fd);
    flow_close(&flow);
}
END_TEST

START_TEST(descriptor_taken_after_a_request_tells_of_it)
{
    struct flow flow;
    start(&flow);
    cqlring_future *future = ask_start(&flow, INSERT_1, NULL);
    loop_until_ready(&flow, cqlring_runtime_fd(flow.runtime), future);
    flow_ok(ask_end(future, NULL));
    flow_close(&flow);
}
END_TEST

enum { ASKED = 400 };

struct asker {
    struct flow *flow;
    cqlring_future *futures[ASKED];
    atomic_int asked;
    bool waits; /* and runs turns in doing so */
};

static void *ask(void *context)
{
    struct asker *asker = context;
    for (int i = 0; i < ASKED; i++) {
        asker->futures[i] = ask_start(asker->flow, INSERT_1, NULL);
        if (asker->waits)
            flow_ok(ask_wait(asker->futures[i], NULL));
        atomic_store(&asker->asked, i + 1);
    }
    return NULL;
}

/* The loop sleeps on the descriptor while others ask, and while others run the turns. */
START_TEST(descriptor_tells_of_what_other_threads_ask)
{
    struct flow flow;
    start(&flow);
    int fd = cqlring_runtime_fd(flow.runtime);
    struct asker askers[2] = {{.flow = &flow}, {.flow = &flow, .waits = _i != 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    for (int done = 0; done < ASKED;) {
        while (done < atomic_load(&askers[0].asked) && cqlring_future_ready(askers[0].futures[done]))
            done++;
        if (done == ASKED)
            break;
        /* not asleep for long: what is awaited may be settled by the other thread's turn, which is none of the descriptor's */
        (void)is_readable(fd, 1);
        ck_assert_int_ge(cqlring_runtime_turn(flow.runtime, 0), 0);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    /* nobody else runs turns any more */
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < ASKED; n++) {
            loop_until_ready(&flow, fd, askers[i].futures[n]);
            flow_ok(ask_end(askers[i].futures[n], NULL));
        }
    }
    loop_until_idle(&flow, fd);
    cqlring_future *future = ask_start(&flow, INSERT_1, NULL);
    loop_until_ready(&flow, fd, future);
    flow_ok(ask_end(future, NULL));
    flow_close(&flow);
}
END_TEST

/* A thread that waits for its own request takes the turns, and with them what the loop had been promised. */
START_TEST(descriptor_tells_of_a_time_out_after_another_has_waited)
{
    struct flow flow;
    start(&flow);
    int fd = cqlring_runtime_fd(flow.runtime);
    flow_fault(&flow, "drop:table=ks.t,times=1");
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 300000};
    cqlring_future *dropped = ask_start(&flow, INSERT_1, &how);
    flow_cql(&flow, INSERT_1);
    loop_until_ready(&flow, fd, dropped);
    ck_assert_int_eq(ask_end(dropped, NULL), CQLRING_TIMEOUT);
    flow_close(&flow);
}
END_TEST

/* The answer has long been there when the application comes back, with something else to ask: it is not timed out unread. */
START_TEST(time_out_does_not_come_before_the_sockets_have_been_looked_at)
{
    struct flow flow;
    start(&flow);
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 60000};
    for (int i = 0; i < 5; i++) {
        cqlring_future *early = ask_start(&flow, INSERT_1, &how);
        while (flow_stats(&flow).requests_issued == flow_stats(&flow).requests_settled)
            ck_assert_int_ge(cqlring_runtime_turn(flow.runtime, 0), 0);
        (void)poll(NULL, 0, 80);
        flow_cql(&flow, INSERT_1);
        flow_ok(ask_end(early, NULL));
    }
    flow_close(&flow);
}
END_TEST

struct restless {
    cqlring_future *job;
    uint64_t calls;
    bool over;
};

/* Never has a row, and wants to be asked again at once. */
static int32_t restless_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    (void)rows, (void)capacity, (void)now_us, (void)wake_at_us, (void)error;
    struct restless *restless = context;
    restless->calls++;
    if (restless->over)
        return CQLRING_SOURCE_END;
    cqlring_job_poke(restless->job);
    return CQLRING_SOURCE_LATER;
}

/* Each turn of the submitter leaves something for the next one. */
START_TEST(sockets_are_looked_at_however_much_is_asked)
{
    struct flow flow;
    start(&flow);
    struct restless restless = {0};
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_source source = {.next = restless_next, .context = &restless};
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, NULL, &restless.job, NULL));
    for (int i = 0; i < 20; i++)
        flow_cql(&flow, INSERT_1);
    ck_assert_uint_gt(restless.calls, 20);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_le(stats.submitter_turns, 2 * stats.reactor_turns + 1);
    restless.over = true;
    flow_ok(ask_end(restless.job, NULL));
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static void *turn_for_long(void *context)
{
    struct flow *flow = context;
    (void)cqlring_runtime_turn(flow->runtime, -1);
    return NULL;
}

/* A thread that sleeps in a turn, with nothing left that could wake it, is woken, and gone before the poller is. */
START_TEST(end_of_the_runtime_wakes_a_turn)
{
    struct flow flow;
    start(&flow);
    if (_i != 0)
        (void)cqlring_runtime_fd(flow.runtime);
    cqlring_future *closed = NULL;
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ask_pass(&flow, 20);
    uint64_t sleeps = flow_stats(&flow).submitter_sleeps;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, turn_for_long, &flow), 0);
    while (flow_stats(&flow).submitter_sleeps == sleeps)
        (void)poll(NULL, 0, 1);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    flow.session = NULL;
    flow.cluster = NULL;
    flow.runtime = NULL;
    flow_close(&flow);
}
END_TEST

START_TEST(other_modes_have_no_descriptor)
{
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_int_eq(cqlring_runtime_fd(flow.runtime), -1);
    ck_assert_int_eq(cqlring_runtime_turn(flow.runtime, 0), -1);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("caller");
    TCase *tcase = tcase_create("caller");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, descriptor_tells_of_requests_and_answers_and_time_outs);
    tcase_add_test(tcase, descriptor_taken_after_a_request_tells_of_it);
    tcase_add_loop_test(tcase, descriptor_tells_of_what_other_threads_ask, 0, 2);
    tcase_add_test(tcase, descriptor_tells_of_a_time_out_after_another_has_waited);
    tcase_add_test(tcase, time_out_does_not_come_before_the_sockets_have_been_looked_at);
    tcase_add_test(tcase, sockets_are_looked_at_however_much_is_asked);
    tcase_add_loop_test(tcase, end_of_the_runtime_wakes_a_turn, 0, 2);
    tcase_add_test(tcase, other_modes_have_no_descriptor);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
