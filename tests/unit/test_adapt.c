/* SPDX-License-Identifier: Apache-2.0 */

/* The adaptive limit against a model of a server, in virtual time: `servers` of them take requests first come first served; a
   request takes half of `net_us` each way. A closed loop keeps as much under way as it may. Each case is compared with the best
   of all fixed windows: the smallest that reaches 99 % of the highest throughput. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/adapt.h"

enum service { CONSTANT, EXPONENTIAL, UNEVEN };

struct model {
    enum service service;
    uint32_t servers;
    double service_us, net_us;
    uint32_t sheds_above;    /* requests waiting beyond this are refused at once; 0 never */
    double slow_from, slow_by; /* from then on (µs) everything takes so many times as long; 0 never */
    double pause_every, pause; /* µs: nobody works for `pause`; 0 never */
};

struct event {
    double at;
    double sent;
    uint8_t kind; /* ARRIVES, SERVED, … */
};

enum { ARRIVES, SERVED, ANSWERED, REFUSED, WAITED, QUEUE_MAX = 4096, HEAP_MAX = 8192, TIMES_MAX = 600000, BACKOFF_US = 10000 };

struct run {
    struct model model;
    struct event heap[HEAP_MAX];
    uint32_t heap_count;
    double queue[QUEUE_MAX]; /* when sent */
    uint32_t queue_head, queue_count, busy;
    uint64_t random;
};

struct figures {
    double throughput; /* per second */
    double p99, limit_mean;
    uint64_t refused, answered;
};

static double uniform(struct run *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return ((double)(run->random >> 11) + 0.5) / 9007199254740992.0;
}

static void push(struct run *run, double at, double sent, uint8_t kind)
{
    if (run->heap_count >= HEAP_MAX)
        abort(); /* ck_assert writes something down each time */
    uint32_t i = run->heap_count++;
    for (; i > 0 && run->heap[(i - 1) / 2].at > at; i = (i - 1) / 2)
        run->heap[i] = run->heap[(i - 1) / 2];
    run->heap[i] = (struct event){.at = at, .sent = sent, .kind = kind};
}

static struct event pop(struct run *run)
{
    struct event first = run->heap[0], last = run->heap[--run->heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= run->heap_count)
            break;
        if (child + 1 < run->heap_count && run->heap[child + 1].at < run->heap[child].at)
            child++;
        if (run->heap[child].at >= last.at)
            break;
        run->heap[i] = run->heap[child];
        i = child;
    }
    run->heap[i] = last;
    return first;
}

static double service(struct run *run, double now)
{
    const struct model *model = &run->model;
    double took = model->service_us;
    if (model->service == EXPONENTIAL)
        took *= -log(uniform(run));
    else if (model->service == UNEVEN) /* one in twenty takes ten times as long */
        took *= uniform(run) < 0.05 ? 10 / 1.45 : 1 / 1.45;
    if (model->slow_from > 0 && now >= model->slow_from)
        took *= model->slow_by;
    if (model->pause_every > 0) {
        double into = fmod(now + took, model->pause_every);
        if (into < model->pause)
            took += model->pause - into;
    }
    return took;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* fixed 0: the adaptive one. What happens before `from` is not counted. */
static struct figures simulate(const struct model *model, uint32_t fixed, double from, double until, uint64_t seed)
{
    struct run *run = calloc(1, sizeof *run);
    double *times = malloc(sizeof *times * TIMES_MAX);
    ck_assert(run != NULL && times != NULL);
    run->model = *model;
    run->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    struct adapt adapt;
    cqr_adapt_init(&adapt, fixed > 0 ? fixed : ADAPT_FLOOR, fixed > 0 ? fixed : ADAPT_START, fixed > 0 ? fixed : ADAPT_CAP);
    struct figures figures = {0};
    double now = 0, limits = 0;
    uint32_t in_flight = 0, waiting = 0; /* refused rows come again after a while */
    uint64_t counted = 0;
    while (now < until) {
        while (in_flight + waiting < (fixed > 0 ? fixed : 2 * ADAPT_CAP) && (fixed > 0 || cqr_adapt_room(&adapt, in_flight))) {
            in_flight++;
            push(run, now + model->net_us / 2, now, ARRIVES);
        }
        struct event event = pop(run);
        now = event.at;
        switch (event.kind) {
        case ARRIVES:
            if (run->busy < model->servers) {
                run->busy++;
                push(run, now + service(run, now), event.sent, SERVED);
            } else if (model->sheds_above > 0 && run->queue_count >= model->sheds_above) {
                push(run, now + model->net_us / 2, event.sent, REFUSED);
            } else {
                if (run->queue_count >= QUEUE_MAX)
                    abort();
                run->queue[(run->queue_head + run->queue_count++) % QUEUE_MAX] = event.sent;
            }
            break;
        case SERVED:
            push(run, now + model->net_us / 2, event.sent, ANSWERED);
            if (run->queue_count > 0) {
                double sent = run->queue[run->queue_head];
                run->queue_head = (run->queue_head + 1) % QUEUE_MAX;
                run->queue_count--;
                push(run, now + service(run, now), sent, SERVED);
            } else {
                run->busy--;
            }
            break;
        case ANSWERED:
            cqr_adapt_answer(&adapt, (uint32_t)(now - event.sent), in_flight, (int64_t)now);
            in_flight--;
            if (now >= from && counted < TIMES_MAX) {
                times[counted++] = now - event.sent;
                limits += adapt.limit;
            }
            break;
        case REFUSED:
            in_flight--;
            waiting++;
            cqr_adapt_shed(&adapt, (int64_t)now);
            figures.refused += now >= from;
            push(run, now + BACKOFF_US * (0.75 + 0.5 * uniform(run)), 0, WAITED);
            break;
        default:
            waiting--;
        }
    }
    ck_assert_uint_gt(counted, 1000);
    qsort(times, counted, sizeof *times, by_value);
    figures.answered = counted;
    figures.throughput = (double)counted / ((until - from) / 1e6);
    figures.p99 = times[counted * 99 / 100];
    figures.limit_mean = limits / (double)counted;
    free(times);
    free(run);
    return figures;
}

static struct figures best_fixed(const struct model *model, double from, double until, uint32_t *window)
{
    struct figures figures[64];
    uint32_t windows[64], count = 0;
    double highest = 0;
    for (double w = ADAPT_FLOOR; w <= ADAPT_CAP; w = w * 1.25 + 1) {
        windows[count] = (uint32_t)w;
        figures[count] = simulate(model, windows[count], from, until, 7);
        if (figures[count].throughput > highest)
            highest = figures[count].throughput;
        count++;
    }
    uint32_t best = 0;
    while (figures[best].throughput < 0.99 * highest)
        best++;
    *window = windows[best];
    return figures[best];
}

#define SECOND 1e6

static const struct model models[] = {
    {CONSTANT, 32, 1000, 0, 0, 0, 0, 0, 0},      {CONSTANT, 100, 1000, 500, 0, 0, 0, 0, 0},     {EXPONENTIAL, 32, 1000, 200, 0, 0, 0, 0, 0},
    {EXPONENTIAL, 200, 2000, 1000, 0, 0, 0, 0, 0}, {UNEVEN, 64, 1000, 200, 0, 0, 0, 0, 0},       {EXPONENTIAL, 8, 200, 2000, 0, 0, 0, 0, 0},
    {EXPONENTIAL, 500, 10000, 0, 0, 0, 0, 0, 0},  {CONSTANT, 4, 100, 1000, 0, 0, 0, 0, 0},        {EXPONENTIAL, 32, 1000, 200, 0, 0, 0, 1e6, 5e4},
};

START_TEST(it_is_as_good_as_the_best_fixed_window)
{
    const struct model *model = &models[_i];
    uint32_t window;
    struct figures fixed = best_fixed(model, 0.3 * SECOND, 1.3 * SECOND, &window), own = simulate(model, 0, 3 * SECOND, 8 * SECOND, 3);
    ck_assert_msg(own.throughput >= 0.95 * fixed.throughput && own.p99 <= 1.2 * fixed.p99,
                  "window %u: %.0f/s, p99 %.0f us; adaptive, %.0f on average: %.0f/s (%.3f), p99 %.0f us (%.3f)", window, fixed.throughput, fixed.p99,
                  own.limit_mean, own.throughput, own.throughput / fixed.throughput, own.p99, own.p99 / fixed.p99);
    if (getenv("ADAPT_SHOW") != NULL)
        printf("model %d: window %u: %.0f/s, p99 %.0f us; adaptive, %.0f on average: %.3f, p99 %.3f\n", _i, window, fixed.throughput, fixed.p99, own.limit_mean,
               own.throughput / fixed.throughput, own.p99 / fixed.p99);
}
END_TEST

START_TEST(it_backs_off_from_a_server_that_sheds_load)
{
    static const struct model sheds[] = {{EXPONENTIAL, 32, 1000, 200, 8, 0, 0, 0, 0}, {CONSTANT, 100, 2000, 500, 20, 0, 0, 0, 0}, {EXPONENTIAL, 16, 5000, 0, 1, 0, 0, 0, 0}};
    const struct model *model = &sheds[_i];
    struct figures own = simulate(model, 0, 3 * SECOND, 8 * SECOND, 5), fixed = simulate(model, 4 * model->servers, 0.3 * SECOND, 1.3 * SECOND, 5);
    double capacity = model->servers * 1e6 / model->service_us;
    ck_assert_msg(own.throughput >= 0.8 * capacity && (double)own.refused < 0.02 * (double)own.answered, "model %d: %.3f of what the server can, %llu of %llu refused", _i,
                  own.throughput / capacity, (unsigned long long)own.refused, (unsigned long long)own.answered);
    ck_assert_uint_gt(fixed.refused, fixed.answered / 10); /* which the model would otherwise do */
}
END_TEST

START_TEST(it_follows_a_server_that_becomes_slower_or_faster)
{
    static const double factors[] = {4, 0.25};
    struct model model = {EXPONENTIAL, 32, 1000, 2000, 0, 3e6, factors[_i], 0, 0}, changed = model;
    changed.service_us *= factors[_i];
    changed.slow_from = 0;
    uint32_t window;
    struct figures fixed = best_fixed(&changed, 0.3 * SECOND, 1.3 * SECOND, &window), own = simulate(&model, 0, 6 * SECOND, 9 * SECOND, 3);
    ck_assert_msg(own.throughput >= 0.95 * fixed.throughput && own.p99 <= 1.2 * fixed.p99, "%.3f of the throughput, %.3f of the p99, %.0f under way (%u)",
                  own.throughput / fixed.throughput, own.p99 / fixed.p99, own.limit_mean, window);
}
END_TEST

START_TEST(what_something_else_limits_says_nothing)
{
    struct adapt adapt;
    cqr_adapt_init(&adapt, ADAPT_FLOOR, ADAPT_START, ADAPT_CAP);
    for (int64_t i = 0; i < 100000; i++) {
        bool room = cqr_adapt_room(&adapt, ADAPT_START / 2);
        cqr_adapt_answer(&adapt, (uint32_t)(100 + i / 100), ADAPT_START / 2, i * 50);
        if (!room || adapt.limit != ADAPT_START)
            ck_abort_msg("after %lld answers: %u", (long long)i, adapt.limit);
    }
}
END_TEST

/* A job with a large window of its own is on the same connection: ours is always reached, and what it is changes nothing. */
START_TEST(a_step_that_moves_nothing_is_not_kept)
{
    struct adapt adapt;
    cqr_adapt_init(&adapt, ADAPT_FLOOR, ADAPT_START, ADAPT_CAP);
    struct run random = {.random = 7};
    for (int64_t i = 0; i < 400000; i++) {
        (void)cqr_adapt_room(&adapt, 900);
        cqr_adapt_answer(&adapt, (uint32_t)(9000 + 2000 * uniform(&random)), 900, i * 10);
        if (adapt.limit > 2 * ADAPT_START || adapt.base != ADAPT_START)
            ck_abort_msg("after %lld answers: limit %u, base %u", (long long)i, adapt.limit, adapt.base);
    }
}
END_TEST

START_TEST(one_overload_is_cut_once_however_many_tell_of_it)
{
    struct adapt adapt;
    cqr_adapt_init(&adapt, ADAPT_FLOOR, 200, ADAPT_CAP);
    for (int i = 0; i < 200; i++)
        cqr_adapt_shed(&adapt, 1000 + i);
    ck_assert_uint_eq(adapt.limit, 170);
    cqr_adapt_shed(&adapt, 1000000); /* another one */
    ck_assert_uint_eq(adapt.limit, 144);
}
END_TEST

START_TEST(it_stays_between_floor_and_cap_whatever_comes)
{
    struct run random = {.random = 42};
    for (int round = 0; round < 200; round++) {
        struct adapt adapt;
        uint32_t cap = 1 + (uint32_t)(uniform(&random) * 2000), floor = 1 + (uint32_t)(uniform(&random) * 100), low = floor < cap ? floor : cap;
        cqr_adapt_init(&adapt, floor, (uint32_t)(uniform(&random) * 3000), cap);
        int64_t now = 0;
        for (int i = 0; i < 5000; i++) {
            double dice = uniform(&random);
            now += (int64_t)(uniform(&random) * 1e4);
            if (dice < 0.01)
                cqr_adapt_shed(&adapt, now);
            else if (dice < 0.02)
                cqr_adapt_answer(&adapt, dice < 0.013 ? UINT32_MAX : 0, dice < 0.015 ? UINT32_MAX : 0, dice < 0.011 ? INT64_MAX : now);
            else
                cqr_adapt_answer(&adapt, (uint32_t)(uniform(&random) * 1e3 * (1 + round)), (uint32_t)(uniform(&random) * 3000), now);
            (void)cqr_adapt_room(&adapt, adapt.limit);
            if (adapt.limit < low || adapt.limit > cap)
                ck_abort_msg("limit %u, from %u to %u", adapt.limit, low, cap);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapt");
    TCase *tcase = tcase_create("adapt");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, it_is_as_good_as_the_best_fixed_window, 0, sizeof models / sizeof models[0]);
    tcase_add_loop_test(tcase, it_backs_off_from_a_server_that_sheds_load, 0, 3);
    tcase_add_loop_test(tcase, it_follows_a_server_that_becomes_slower_or_faster, 0, 2);
    tcase_add_test(tcase, what_something_else_limits_says_nothing);
    tcase_add_test(tcase, a_step_that_moves_nothing_is_not_kept);
    tcase_add_test(tcase, one_overload_is_cut_once_however_many_tell_of_it);
    tcase_add_test(tcase, it_stays_between_floor_and_cap_whatever_comes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
