/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs beside single requests that never stop: both get their part of what may be under way, neither waits for the other to end. */

#include <string.h>

#include "ask.h"
#include "driver/adapt.h"
#include "watch.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

enum { SINGLES_MAX = 400, ENOUGH = 400000 };

/* So many requests under way: each one that is answered starts the next. */
static struct {
    cqlring_request request;
    atomic_uint running, done, failed;
    atomic_uint laps[SINGLES_MAX]; /* answers of each, from when all of them run */
    atomic_bool all, stop;
} loop;

static void answered(cqlring_future *future, void *context);

static void ask_next(atomic_uint *laps)
{
    cqlring_future *future;
    if (cqlring_execute(&loop.request, &future, NULL) != CQLRING_OK) {
        atomic_fetch_add(&loop.failed, 1);
        atomic_fetch_sub(&loop.running, 1);
        return;
    }
    (void)cqlring_future_on_ready(future, answered, laps);
    cqlring_future_release(future);
}

static void answered(cqlring_future *future, void *context)
{
    atomic_uint *laps = context;
    if (atomic_load(&loop.all))
        atomic_fetch_add(laps, 1);
    if (cqlring_future_wait(future, 0, NULL) != CQLRING_OK)
        atomic_fetch_add(&loop.failed, 1);
    if (atomic_load(&loop.stop) || atomic_fetch_add(&loop.done, 1) >= ENOUGH)
        atomic_fetch_sub(&loop.running, 1);
    else
        ask_next(laps);
}

static void loop_start(struct flow *flow, cqlring_prepared *select, uint32_t count)
{
    static const uint8_t key[8] = {0};
    static const cqlring_bytes value = {key, 8};
    memset(&loop, 0, sizeof loop);
    loop.request = (cqlring_request){.session = flow->session, .prepared = select, .values = &value, .value_count = 1};
    atomic_init(&loop.running, count);
    for (uint32_t i = 0; i < count; i++)
        ask_next(&loop.laps[i]);
    atomic_store(&loop.all, true);
}

static void loop_stop(struct flow *flow)
{
    atomic_store(&loop.stop, true);
    while (atomic_load(&loop.running) > 0)
        ask_pass(flow, 1);
    ck_assert_uint_eq(atomic_load(&loop.failed), 0);
}

/* A job of so many rows beside so many singles; how many of these were answered while it ran. */
static uint32_t beside(struct flow *flow, uint64_t count, uint32_t window, uint32_t singles)
{
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT), *select = flow_prepare(flow, FLOW_SELECT);
    struct flow_rows rows;
    flow_rows_init(&rows, count, 16);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent, .window = window};
    loop_start(flow, select, singles);
    while (atomic_load(&loop.done) < singles) /* they have all there is */
        ask_pass(flow, 1);
    uint32_t before = atomic_load(&loop.done);
    cqlring_summary summary;
    flow_ok(flow_run(flow, insert, &rows, NULL, &options, &summary, NULL));
    uint32_t meanwhile = atomic_load(&loop.done) - before;
    ck_assert_uint_eq(summary.rows, count);
    ck_assert_uint_eq(summary.failed, 0);
    loop_stop(flow);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    return meanwhile;
}

START_TEST(a_job_gets_its_part_of_a_connection_that_singles_fill)
{
    enum { ROWS = 2000, WINDOW = 256 };
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = _i % 2 == 0 ? 1 : 3;
    flow.options.inflight_per_connection = 32;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    uint32_t meanwhile = beside(&flow, ROWS, _i < 2 ? WINDOW : 0, SINGLES_MAX);
    ck_assert_msg(meanwhile < 10 * ROWS, "%u singles while %u rows went", meanwhile, ROWS);
    ck_assert_msg(meanwhile > ROWS / 20, "%u singles while %u rows went", meanwhile, ROWS);
    flow_close(&flow);
}
END_TEST

/* As it does where the runtime's own limit is what both want. */
START_TEST(a_job_gets_its_part_of_what_the_runtime_may_have_under_way)
{
    enum { ROWS = 2000 };
    struct flow flow;
    flow_init(&flow);
    flow.runtime_options.inflight_max = 64;
    flow_start(&flow);
    flow_open(&flow);
    uint32_t meanwhile = beside(&flow, ROWS, 64, SINGLES_MAX);
    ck_assert_msg(meanwhile < 10 * ROWS && meanwhile > ROWS / 20, "%u singles while %u rows went", meanwhile, ROWS);
    flow_close(&flow);
}
END_TEST

/* Their requests are not its own: it has half as many, not the least there is. */
START_TEST(a_job_without_a_window_has_half_as_many_as_there_are_singles)
{
    enum { ROWS = 4000 };
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = _i == 0 ? 1 : 3;
    flow.node_options.delay_us = 20000; /* what is under way is what counts */
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    uint32_t meanwhile = beside(&flow, ROWS, 0, SINGLES_MAX);
    /* as many rows for one single as could be under way; with the least they would be 1 of 25 */
    ck_assert_msg(meanwhile < 4 * ROWS, "%u singles while %u rows went", meanwhile, ROWS);
    flow_close(&flow);
}
END_TEST

/* None is overtaken by those that are asked after it: with few places all get as many turns. */
START_TEST(who_waits_comes_before_who_asks_only_now)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = _i == 0 ? 1 : 3;
    if (_i < 2)
        flow.options.inflight_per_connection = 8;
    else
        flow.runtime_options.inflight_max = 64;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *select = flow_prepare(&flow, FLOW_SELECT);
    loop_start(&flow, select, SINGLES_MAX);
    for (uint32_t from = atomic_load(&loop.done); atomic_load(&loop.done) - from < 50 * SINGLES_MAX;)
        ask_pass(&flow, 1);
    loop_stop(&flow);
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < SINGLES_MAX; i++) {
        uint32_t laps = atomic_load(&loop.laps[i]);
        least = laps < least ? laps : least;
        most = laps > most ? laps : most;
    }
    ck_assert_msg(most - least < 10, "one was answered %u times while another was %u times", most, least);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

enum { PLACES = 4, MORE = 3, SHORT_US = 60000 };

/* All of it in one turn of our own: an answer comes, so that the job has its turn first, finds no place, and then the time of all
   that held one, and of those that waited before it, is over. */
START_TEST(a_job_takes_the_places_of_those_whose_time_ended_in_its_turn)
{
    struct flow flow;
    flow_init(&flow);
    flow.threads = flow.runtime_options.threads = CQLRING_THREADS_CALLER;
    flow.options.inflight_per_connection = PLACES;
    flow.options.suspect_after_us = flow.options.heartbeat_us = -1; /* nothing else wakes anybody */
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_session *beside = NULL; /* with a connection of its own */
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &beside, NULL));
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "ignore:table=ks.t");
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = SHORT_US};
    cqlring_future *ignored[PLACES + MORE], *heard = NULL;
    int64_t end_us = watch_now_us() + SHORT_US + SHORT_US / 2;
    for (int i = 0; i < PLACES + MORE; i++)
        ignored[i] = ask_start(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", &how);
    for (int i = 0; i < 6; i++)
        cqlring_runtime_turn(flow.runtime, 1000);
    struct flow_rows rows;
    flow_rows_init(&rows, 1, 16);
    cqlring_job_options job_options = {.struct_size = sizeof job_options, .window = 1};
    cqlring_future *job = flow_job(&flow, insert, &rows, NULL, &job_options);
    cqlring_runtime_turn(flow.runtime, 0);
    node_fault_remove(flow.node, 0);
    cqlring_request request = {.session = beside, .cql = cqlring_text("SELECT v FROM ks.t WHERE k = 5")};
    flow_ok(cqlring_execute(&request, &heard, NULL));
    cqlring_runtime_turn(flow.runtime, 0);
    while (watch_now_us() < end_us)
        continue;
    cqlring_runtime_turn(flow.runtime, 0);
    ck_assert_int_eq(cqlring_future_wait(job, 10000000, NULL), CQLRING_OK);
    cqlring_future_release(job);
    flow_ok(ask_end(heard, NULL));
    for (int i = 0; i < PLACES + MORE; i++)
        (void)ask_end(ignored[i], NULL);
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    cqlring_session_release(beside);
    flow_close(&flow);
}
END_TEST

static bool all_are_done(struct flow *flow, void *rows)
{
    return flow_stats(flow).requests_settled >= *(uint64_t *)rows;
}

static cqlring_verdict later_first(const cqlring_completion *completions, uint32_t count, void *context)
{
    (void)completions;
    (void)count;
    return atomic_load((atomic_bool *)context) ? CQLRING_CONTINUE : CQLRING_LATER;
}

/* The rows are answered, but their sink does not want them yet: until then they have every place of the runtime. */
START_TEST(who_waits_for_a_place_gets_it_when_the_last_rows_are_accepted)
{
    enum { ALL = 64 };
    struct flow flow;
    flow_init(&flow);
    flow.runtime_options.inflight_max = ALL;
    flow.options.suspect_after_us = flow.options.heartbeat_us = -1; /* nothing else wakes anybody */
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    uint64_t answers = flow_stats(&flow).requests_settled + ALL;
    struct flow_rows rows;
    flow_rows_init(&rows, ALL, 16);
    atomic_bool wanted = false;
    cqlring_source source = flow_source(&rows);
    cqlring_sink sink = {.deliver = later_first, .context = &wanted};
    cqlring_job_options options = {.struct_size = sizeof options, .window = ALL};
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &sink, 1, &options, &job, NULL));
    watch_for(&flow, all_are_done, &answers);
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 3000000};
    cqlring_future *waits = ask_start(&flow, "SELECT v FROM ks.t WHERE k = 5", &how);
    watch_pass(&flow, 20);
    ck_assert(!cqlring_future_ready(waits));
    atomic_store(&wanted, true);
    cqlring_job_poke(job);
    flow_ok(ask_end(job, NULL));
    flow_ok(ask_end(waits, NULL));
    flow_rows_fini(&rows);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("beside");
    TCase *tcase = tcase_create("beside");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_job_gets_its_part_of_a_connection_that_singles_fill, 0, 4);
    tcase_add_test(tcase, a_job_gets_its_part_of_what_the_runtime_may_have_under_way);
    tcase_add_loop_test(tcase, a_job_without_a_window_has_half_as_many_as_there_are_singles, 0, 2);
    tcase_add_loop_test(tcase, who_waits_comes_before_who_asks_only_now, 0, 3);
    tcase_add_test(tcase, a_job_takes_the_places_of_those_whose_time_ended_in_its_turn);
    tcase_add_test(tcase, who_waits_for_a_place_gets_it_when_the_last_rows_are_accepted);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
