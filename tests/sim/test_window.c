/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs without a window of their own, in virtual time, against nodes that work on a few statements at a time: what a fixed
   window that was chosen for the node would reach, they reach without being told.

   The whole driver runs, as in production; the nodes' service is a queue (tests/node/service.c). A fixed window is the measure:
   of several, the smallest that comes within 1 % of the highest throughput.

   ctest: labels=sim timeout=900 */

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/adapt.h"
#include "driver/lane.h"
#include "serialize/buf.h"
#include "stage.h"
#include "store.h"
#include "wire.h"
#include "world.h"

enum { KEYS = 1 << 20, TIMES_MAX = 1 << 19, NODES = 4, JOBS = 2 };

static struct {
    int64_t sent_us[KEYS];      /* of the last attempt, by key */
    int64_t from_us, until_us;  /* what is answered meanwhile counts */
    uint32_t times[TIMES_MAX];
    uint32_t answered, answered_by[NODES];
    uint64_t refused;           /* answers that were errors, meanwhile */
    uint32_t under_way, under_way_max;
} seen;

static struct source {
    uint64_t rows, given, done, failed;
    uint64_t key; /* of the next row */
    uint8_t keys[256][8];
    cqlring_bytes cells[256][2];
} sources[JOBS];

static struct stage stage;
static struct stage_options stage_options;
static const cqlring_execution idempotent = {.struct_size = sizeof idempotent,
                                             .idempotent = CQLRING_YES};

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us,
                    cqlring_error *error, void *context)
{
    (void)now_us, (void)wake_at_us, (void)error;
    struct source *source = context;
    world.activity++;
    uint32_t count = 0;
    for (; count < capacity && source->given < source->rows; count++, source->given++) {
        cqr_store_u64(source->keys[count], source->key++ % KEYS);
        source->cells[count][0] = (cqlring_bytes){source->keys[count], 8};
        source->cells[count][1] = (cqlring_bytes){source->keys[count], 8};
        rows[count] = (cqlring_row){.cells = source->cells[count]};
    }
    return count > 0 ? (int32_t)count : CQLRING_SOURCE_END;
}

static cqlring_verdict deliver(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct source *source = context;
    world.activity++;
    source->done += count;
    for (uint32_t i = 0; i < count; i++)
        source->failed += completions[i].status != CQLRING_OK;
    return CQLRING_CONTINUE;
}

static void request_seen(const struct wire_request *request)
{
    if (!request->has_key)
        return;
    seen.sent_us[request->key] = world.now_us;
    if (++seen.under_way > seen.under_way_max)
        seen.under_way_max = seen.under_way;
}

static void reply_seen(uint32_t node, uint8_t opcode, bool has_key, int64_t key)
{
    if (!has_key)
        return;
    seen.under_way--;
    if (world.now_us < seen.from_us || world.now_us >= seen.until_us)
        return;
    if (opcode == 0) /* ERROR */
        seen.refused++;
    else if (seen.answered_by[node]++, seen.answered < TIMES_MAX)
        seen.times[seen.answered++] = (uint32_t)(world.now_us - seen.sent_us[key]);
}

static void up(uint32_t nodes, uint32_t replication, uint32_t latency_us)
{
    world_init(1, false);
    stage_options_init(&stage_options, nodes);
    stage_options.replication = replication;
    stage_options.network.latency_us = latency_us;
    stage_options.runtime.inflight_max = 8192;
    stage_options.node.mode = NODE_VOID;
    memset(&seen, 0, sizeof seen);
    memset(sources, 0, sizeof sources);
    seen.until_us = INT64_MAX;
    wire_on_request = request_seen;
    wire_on_reply = reply_seen;
    stage_nodes(&stage, &stage_options);
    ck_assert(stage_open(&stage, &stage_options));
}

static void down(void)
{
    network_heal();
    stage_close(&stage);
    stage_down(&stage);
    world_fini();
    wire_on_request = NULL;
    wire_on_reply = NULL;
}

/* window 0: none is given. */
static cqlring_future *job_begin(uint32_t number, uint64_t rows, uint32_t window, double rows_per_s)
{
    struct source *of = &sources[number];
    of->rows = rows;
    of->key = number * (KEYS / JOBS);
    cqlring_source source = {.next = next, .context = of};
    cqlring_sink sink = {.deliver = deliver, .context = of};
    cqlring_job_options options = {.struct_size = sizeof options,
                                   .window = window,
                                   .rows_per_s = rows_per_s,
                                   .execution = &idempotent};
    cqlring_future *future = NULL;
    cqlring_error error;
    ck_assert_msg(cqlring_execute_concurrent(stage.session, &stage.insert, 1, &source, &sink, 1,
                                             &options, &future, &error) == CQLRING_OK,
                  "%s", error.message);
    return future;
}

static void job_finish(uint32_t number, cqlring_future *future)
{
    stage_wait(&stage, future);
    cqlring_future_release(future);
    ck_assert_uint_eq(sources[number].done, sources[number].rows);
    ck_assert_uint_eq(sources[number].failed, 0);
}

/* It is not needed any longer. */
static void job_stop(cqlring_future *future)
{
    cqlring_future_cancel(future);
    stage_wait(&stage, future);
    cqlring_future_release(future);
}

static uint32_t window_of(uint32_t node)
{
    cqlring_node_stats stats[NODES];
    uint32_t count = cqlring_cluster_stats(stage.cluster, stats, NODES);
    char address[32];
    (void)snprintf(address, sizeof address, "10.0.0.%u:9042", node + 1);
    for (uint32_t i = 0; i < count && i < NODES; i++) {
        cqlring_node_info info;
        cqlring_node_describe(stats[i].node, &info);
        if (strcmp(info.address, address) == 0)
            return stats[i].window;
    }
    ck_abort_msg("nothing is known of node %u", node);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

struct figures {
    double per_s;
    uint32_t p99_us;
    uint64_t answered, refused;
};

struct model {
    const char *what;
    struct node_service service;
    uint32_t latency_us; /* one way */
};

/* A job with this window (0: none), measured after `warm` µs for `for_us`. */
static struct figures measure(const struct model *model, uint32_t window, int64_t warm_us, int64_t for_us)
{
    up(1, 1, model->latency_us);
    node_set_service(stage.nodes, 0, &model->service);
    seen.from_us = world.now_us + warm_us;
    seen.until_us = seen.from_us + for_us;
    cqlring_future *future = job_begin(0, UINT64_MAX, window, 0);
    stage_run_for(&stage, warm_us + for_us);
    ck_assert_uint_gt(seen.answered, 1000);
    ck_assert_uint_lt(seen.answered, TIMES_MAX);
    qsort(seen.times, seen.answered, sizeof seen.times[0], by_value);
    struct figures figures = {.per_s = (double)seen.answered / ((double)for_us / 1e6),
                              .p99_us = seen.times[(uint64_t)seen.answered * 99 / 100],
                              .answered = seen.answered,
                              .refused = seen.refused};
    job_stop(future);
    down();
    return figures;
}

/* --- as good as the best fixed window ------------------------------------------------------------------------------ */

static const struct model models[] = {
    {"32 servers, 1 ms, scattered", {.servers = 32, .service_us = 1000, .exponential = true}, 100},
    {"100 servers, 5 ms, even", {.servers = 100, .service_us = 5000}, 250},
    {"8 servers, 400 us, scattered, 2 ms away", {.servers = 8, .service_us = 400, .exponential = true}, 1000},
    {"200 servers, 10 ms, scattered", {.servers = 200, .service_us = 10000, .exponential = true}, 200},
};

START_TEST(a_job_without_a_window_is_as_good_as_the_best_fixed_one)
{
    static const uint32_t windows[] = {16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024};
    enum { WINDOWS = sizeof windows / sizeof windows[0] };
    const struct model *model = &models[_i];
    struct figures fixed[WINDOWS];
    double highest = 0;
    uint32_t best = 0;
    for (uint32_t i = 0; i < WINDOWS; i++) {
        fixed[i] = measure(model, windows[i], 300000, 700000);
        highest = fixed[i].per_s > highest ? fixed[i].per_s : highest;
    }
    while (fixed[best].per_s < 0.99 * highest)
        best++;
    struct figures own = measure(model, 0, 3000000, 3000000);
    double gain = own.per_s / fixed[best].per_s, slower = (double)own.p99_us / fixed[best].p99_us;
    if (getenv("CQLRING_SHOW") != NULL)
        printf("%s: window %u: %.0f rows/s, p99 %u us; without one %.3f, p99 %.3f\n", model->what,
               windows[best], fixed[best].per_s, fixed[best].p99_us, gain, slower);
    ck_assert_msg(gain >= 0.95 && slower <= 1.2,
                  "%s: window %u: %.0f rows/s, p99 %u us; without one %.0f (%.3f), p99 %u us (%.3f)",
                  model->what, windows[best], fixed[best].per_s, fixed[best].p99_us, own.per_s, gain,
                  own.p99_us, slower);
}
END_TEST

START_TEST(a_job_without_a_window_backs_off_from_a_node_that_sheds_load)
{
    static const struct model model = {
        "sheds", {.servers = 32, .service_us = 4000, .waiting_max = 8, .exponential = true}, 200};
    struct figures own = measure(&model, 0, 3000000, 5000000), fixed = measure(&model, 256, 300000, 2000000);
    double capacity = model.service.servers * 1e6 / model.service.service_us;
    if (getenv("CQLRING_SHOW") != NULL)
        printf("sheds: %.3f of what the node can, %" PRIu64 " of %" PRIu64 " refused; at 256 %.3f, %" PRIu64 " of %" PRIu64 "\n",
               own.per_s / capacity, own.refused, own.answered, fixed.per_s / capacity, fixed.refused, fixed.answered);
    ck_assert_msg(own.per_s >= 0.8 * capacity && own.refused < own.answered / 50,
                  "%.3f of what the node can, %" PRIu64 " refused, %" PRIu64 " answered", own.per_s / capacity,
                  own.refused, own.answered);
    ck_assert_uint_gt(fixed.refused, fixed.answered / 10); /* so the node does shed */
}
END_TEST

/* --- what moves a window, and what does not ------------------------------------------------------------------------- */

START_TEST(nodes_of_different_speed_get_different_windows)
{
    static const struct node_service fast = {.servers = 64, .service_us = 4000, .exponential = true},
                                     slow = {.servers = 16, .service_us = 4000, .exponential = true};
    uint32_t replication = _i == 0 ? 2 : 1;
    up(2, replication, 100);
    node_set_service(stage.nodes, 0, &fast);
    node_set_service(stage.nodes, 1, &slow);
    seen.from_us = world.now_us + 3000000;
    seen.until_us = seen.from_us + 2000000;
    cqlring_future *future = job_begin(0, UINT64_MAX, 0, 0);
    stage_run_for(&stage, 5000000);
    /* where either node takes any row both are busy; where each has its own part of them, the slow one sets the pace */
    double by_fast = seen.answered_by[0] / 2.0, by_slow = seen.answered_by[1] / 2.0;
    ck_assert_msg(by_slow >= 0.9 * 4000, "%.0f rows/s by the slow node, of 4000", by_slow);
    if (replication == 2)
        ck_assert_msg(by_fast >= 0.9 * 16000, "%.0f rows/s by the fast node, of 16000", by_fast);
    if (replication == 2)
        ck_assert_msg(window_of(0) >= 2 * window_of(1), "windows of %u and %u", window_of(0), window_of(1));
    ck_assert_uint_le(window_of(1), 100);
    job_stop(future);
    down();
}
END_TEST

START_TEST(a_slow_source_does_not_move_the_window)
{
    static const struct node_service service = {.servers = 32, .service_us = 2000, .exponential = true};
    up(1, 1, 100);
    node_set_service(stage.nodes, 0, &service);
    cqlring_future *future = job_begin(0, 20000, 0, 5000); /* 11 under way on average */
    job_finish(0, future);
    ck_assert_uint_eq(window_of(0), ADAPT_START);
    future = job_begin(1, 20000, 0, 0); /* the same without a limit */
    job_finish(1, future);
    ck_assert_uint_gt(window_of(0), ADAPT_START);
    down();
}
END_TEST

START_TEST(an_explicit_window_stays_what_it_is)
{
    static const struct node_service service = {.servers = 200, .service_us = 2000};
    up(1, 1, 100);
    node_set_service(stage.nodes, 0, &service);
    job_finish(0, job_begin(0, 20000, 100, 0));
    ck_assert_uint_eq(seen.under_way_max, 100);
    ck_assert_uint_eq(window_of(0), ADAPT_START);
    down();
}
END_TEST

START_TEST(a_connection_that_comes_back_begins_anew)
{
    static const struct node_service service = {.servers = 300, .service_us = 5000, .exponential = true};
    up(1, 1, 100);
    node_set_service(stage.nodes, 0, &service);
    cqlring_future *future = job_begin(0, UINT64_MAX, 0, 0);
    stage_run_for(&stage, 2000000);
    uint32_t before = window_of(0);
    ck_assert_uint_gt(before, 2 * ADAPT_START);
    ck_assert(network_reset(0));
    uint32_t lowest = before;
    for (int i = 0; i < 200 && lowest > ADAPT_START; i++) {
        stage_run_for(&stage, 1000);
        lowest = window_of(0) > 0 && window_of(0) < lowest ? window_of(0) : lowest;
    }
    ck_assert_uint_eq(lowest, ADAPT_START);
    stage_run_for(&stage, 3000000);
    ck_assert_uint_gt(window_of(0), 2 * ADAPT_START);
    ck_assert_uint_eq(sources[0].failed, 0);
    job_stop(future);
    down();
}
END_TEST

START_TEST(a_job_without_a_window_goes_on_beside_one_that_fills_the_connection)
{
    static const struct node_service service = {.servers = 16, .service_us = 1000};
    up(1, 1, 100);
    node_set_service(stage.nodes, 0, &service);
    cqlring_future *fixed = job_begin(0, UINT64_MAX, 900, 0);
    stage_run_for(&stage, 500000);
    cqlring_future *own = job_begin(1, 2000, 0, 0);
    job_finish(1, own);
    ck_assert_uint_gt(sources[0].done, 2000);
    job_stop(fixed);
    down();
}
END_TEST

START_TEST(what_may_be_under_way_has_a_cap)
{
    up(1, 1, 50000); /* far away, and as fast as can be: more is always better */
    cqlring_future *future = job_begin(0, UINT64_MAX, 0, 0);
    stage_run_for(&stage, 15000000);
    ck_assert_uint_eq(window_of(0), ADAPT_CAP);
    ck_assert_uint_eq(seen.under_way_max, ADAPT_CAP);
    job_stop(future);
    down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window");
    TCase *tcase = tcase_create("virtual time");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, a_job_without_a_window_is_as_good_as_the_best_fixed_one, 0, sizeof models / sizeof models[0]);
    tcase_add_test(tcase, a_job_without_a_window_backs_off_from_a_node_that_sheds_load);
    tcase_add_loop_test(tcase, nodes_of_different_speed_get_different_windows, 0, 2);
    tcase_add_test(tcase, a_slow_source_does_not_move_the_window);
    tcase_add_test(tcase, an_explicit_window_stays_what_it_is);
    tcase_add_test(tcase, a_connection_that_comes_back_begins_anew);
    tcase_add_test(tcase, a_job_without_a_window_goes_on_beside_one_that_fills_the_connection);
    tcase_add_test(tcase, what_may_be_under_way_has_a_cap);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
