/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#include "driver/net.h"
#include "driver/park.h"
#include "serialize/mem.h"

static int64_t now_us(void)
{
    struct net *net = cqr_net_system();
    return net->call->now_us(net);
}

static struct park park;

START_TEST(wake_of_nobody_costs_nothing)
{
    cqr_park_init(&park, NULL);
    ck_assert(!cqr_park_wake(&park));
    cqr_park_prepare(&park);
    cqr_park_cancel(&park);
    ck_assert(!cqr_park_wake(&park));
}
END_TEST

START_TEST(wake_between_prepare_and_sleep_is_not_lost)
{
    cqr_park_init(&park, NULL);
    for (int i = 0; i < 100; ++i) {
        cqr_park_prepare(&park);
        ck_assert(cqr_park_wake(&park));
        ck_assert(!cqr_park_wake(&park)); /* once is enough */
        cqr_park_sleep(&park, -1);
    }
}
END_TEST

START_TEST(sleep_ends_at_its_deadline_and_awake)
{
    cqr_park_init(&park, NULL);
    static const int64_t spans[] = {-1000000, 0, 1, 900, 12000};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; ++i) {
        int64_t deadline = now_us() + spans[i];
        cqr_park_prepare(&park);
        cqr_park_sleep(&park, deadline);
        ck_assert_int_ge(now_us(), deadline);
        ck_assert(!cqr_park_wake(&park));
    }
    cqr_park_prepare(&park);
    cqr_park_sleep(&park, 0);
}
END_TEST

static void on_alarm(int signal)
{
    (void)signal;
}

/* SG-03. An absolute time-out: interruptions neither end nor prolong the wait. */
START_TEST(signals_neither_end_nor_prolong_a_wait)
{
    struct sigaction action = {.sa_handler = on_alarm};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    atomic_uint word = 7;
    int64_t deadline = now_us() + 50000;
    ck_assert(!cqr_futex_wait(&word, 7, deadline));
    ck_assert_int_ge(now_us(), deadline);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
}
END_TEST

START_TEST(futex_wait_returns_at_once_when_the_word_differs)
{
    atomic_uint word = 7;
    ck_assert(cqr_futex_wait(&word, 8, -1));
    ck_assert(cqr_futex_wait(&word, 8, 1));
    ck_assert(!cqr_futex_wait(&word, 7, 1));
    ck_assert(!cqr_futex_wait(&word, 7, 0));
}
END_TEST

static void *complete(void *context)
{
    atomic_uint *word = context;
    /* Wake-ups without a change are not taken for one. */
    for (int i = 0; i < 100; ++i) {
        cqr_futex_wake(word, INT_MAX);
        (void)sched_yield();
    }
    atomic_store_explicit(word, 1, memory_order_release);
    cqr_futex_wake(word, INT_MAX);
    return NULL;
}

START_TEST(futex_wait_sees_through_empty_wakes)
{
    atomic_uint word = 0;
    pthread_t thread;
    ck_assert_int_eq(cqr_thread_start(&thread, "completer", -1, complete, &word), 0);
    ck_assert(cqr_futex_wait(&word, 0, -1));
    ck_assert_uint_eq(atomic_load(&word), 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* --- threads -------------------------------------------------------------------------------------------------------- */

struct look {
    sigset_t blocked;
    char name[16];
    cpu_set_t cpus;
};

static void *look_around(void *context)
{
    struct look *look = context;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &look->blocked);
    (void)pthread_getname_np(pthread_self(), look->name, sizeof look->name);
    (void)pthread_getaffinity_np(pthread_self(), sizeof look->cpus, &look->cpus);
    return context;
}

START_TEST(thread_blocks_signals_and_has_its_name_and_cpu)
{
    struct look look = {0};
    sigset_t before, after;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    cpu_set_t allowed;
    ck_assert_int_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int cpu = 0;
    while (!CPU_ISSET((unsigned)cpu, &allowed))
        cpu++;
    pthread_t thread;
    void *result;
    ck_assert_int_eq(cqr_thread_start(&thread, "cqlring-reactor-and-more", cpu, look_around, &look),
                     0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &look);
    ck_assert_str_eq(look.name, "cqlring-reactor");
    ck_assert_int_eq(CPU_COUNT(&look.cpus), 1);
    ck_assert(CPU_ISSET((unsigned)cpu, &look.cpus));
    static const int blocked[] = {SIGINT,  SIGTERM, SIGHUP,  SIGALRM,
                                  SIGPROF, SIGCHLD, SIGUSR1, SIGPIPE};
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; ++i)
        ck_assert_int_eq(sigismember(&look.blocked, blocked[i]), 1);
    ck_assert_int_eq(sigismember(&look.blocked, SIGSEGV), 0); /* crash handlers keep working */
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; ++i)
        ck_assert_int_eq(sigismember(&before, i), sigismember(&after, i));
}
END_TEST

START_TEST(thread_that_cannot_start_leaves_nothing_behind)
{
    int64_t live = cqr_mem_live_count();
    struct look look;
    pthread_t thread;
    cqr_mem_fail_at(1, 0);
    ck_assert_int_eq(cqr_thread_start(&thread, "x", -1, look_around, &look), ENOMEM);
    cqr_mem_fail_at(0, 0);
    ck_assert_int_ne(cqr_thread_start(&thread, "x", 1023, look_around, &look), 0);
    ck_assert_int_ne(cqr_thread_start(&thread, "x", 100000, look_around, &look), 0);
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("park");
    TCase *tcase = tcase_create("park");
    tcase_add_test(tcase, wake_of_nobody_costs_nothing);
    tcase_add_test(tcase, wake_between_prepare_and_sleep_is_not_lost);
    tcase_add_test(tcase, sleep_ends_at_its_deadline_and_awake);
    tcase_add_test(tcase, signals_neither_end_nor_prolong_a_wait);
    tcase_add_test(tcase, futex_wait_returns_at_once_when_the_word_differs);
    tcase_add_test(tcase, futex_wait_sees_through_empty_wakes);
    tcase_add_test(tcase, thread_blocks_signals_and_has_its_name_and_cpu);
    tcase_add_test(tcase, thread_that_cannot_start_leaves_nothing_behind);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
