/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/fork.h"
#include "driver/net.h"
#include "driver/poller.h"
#include "serialize/mem.h"

/* Every test runs on both pollers: the loop's index chooses. */
static struct poller *make(int which)
{
    struct poller *poller = which == 0 ? cqr_poller_ev_create() : cqr_poller_epoll_create();
    ck_assert_ptr_nonnull(poller);
    return poller;
}

static int64_t now_us(void)
{
    struct net *net = cqr_net_system();
    return net->call->now_us(net);
}

static void pair(int fds[2])
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static void say(int fd)
{
    ck_assert_int_eq(write(fd, "x", 1), 1);
}

static void hear(int fd)
{
    char byte;
    ck_assert_int_eq(read(fd, &byte, 1), 1);
}

START_TEST(ready_descriptors_are_reported_until_they_are_served)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    int fds[2], context;
    pair(fds);
    ck_assert_int_eq(poller->call->add(poller, fds[0], POLL_READ, &context), CQLRING_OK);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
    say(fds[1]);
    for (int i = 0; i < 3; ++i) {
        ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
        ck_assert_ptr_eq(events[0].context, &context);
        ck_assert_uint_eq(events[0].events, POLL_READ);
    }
    hear(fds[0]);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
    poller->call->modify(poller, fds[0], POLL_READ | POLL_WRITE);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
    ck_assert_uint_eq(events[0].events, POLL_WRITE);
    say(fds[1]);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
    ck_assert_uint_eq(events[0].events, POLL_READ | POLL_WRITE);
    poller->call->modify(poller, fds[0], 0);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
    poller->call->modify(poller, fds[0], POLL_READ);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
    poller->call->remove(poller, fds[0]);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
    poller->call->destroy(poller);
    (void)close(fds[0]), (void)close(fds[1]);
}
END_TEST

START_TEST(hang_up_is_readable_and_silent_for_who_wants_nothing)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    int fds[2], context;
    pair(fds);
    ck_assert_int_eq(poller->call->add(poller, fds[0], POLL_READ | POLL_WRITE, &context),
                     CQLRING_OK);
    (void)close(fds[1]);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
    ck_assert_uint_eq(events[0].events, POLL_READ | POLL_WRITE);
    poller->call->modify(poller, fds[0], POLL_READ);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
    ck_assert_uint_eq(events[0].events, POLL_READ);
    poller->call->modify(poller, fds[0], 0);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
    poller->call->remove(poller, fds[0]);
    poller->call->destroy(poller);
    (void)close(fds[0]);
}
END_TEST

START_TEST(deadline_ends_the_wait_and_not_before)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    static const int64_t spans[] = {0, 1, 500, 1000, 5300, 20000};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; ++i) {
        int64_t deadline = now_us() + spans[i];
        ck_assert_int_eq(poller->call->wait(poller, events, 8, deadline), 0);
        ck_assert_int_ge(now_us(), deadline);
    }
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 1), 0); /* long past */
    poller->call->destroy(poller);
}
END_TEST

/* A thousand interruptions a second do not end a wait early. */
static void on_alarm(int signal)
{
    (void)signal;
}

/* As a request's time-out does with the next request. */
START_TEST(far_deadline_moves_on_and_back)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    int fds[2], context;
    pair(fds);
    ck_assert_int_eq(poller->call->add(poller, fds[0], POLL_READ, &context), CQLRING_OK);
    say(fds[1]);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, now_us() + 150000), 1);
    hear(fds[0]);
    const int64_t waits_us[] = {300000, 20000, 150000};
    for (int i = 0; i < 3; ++i) {
        int64_t deadline_us = now_us() + waits_us[i];
        ck_assert_int_eq(poller->call->wait(poller, events, 8, deadline_us), 0);
        ck_assert_int_ge(now_us(), deadline_us);
    }
    poller->call->remove(poller, fds[0]);
    poller->call->destroy(poller);
    (void)close(fds[0]), (void)close(fds[1]);
}
END_TEST

START_TEST(signals_do_not_end_a_wait)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    struct sigaction action = {.sa_handler = on_alarm};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    int64_t deadline = now_us() + 50000;
    ck_assert_int_eq(poller->call->wait(poller, events, 8, deadline), 0);
    ck_assert_int_ge(now_us(), deadline);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    poller->call->destroy(poller);
}
END_TEST

START_TEST(wake_before_the_wait_is_not_lost)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    for (int i = 0; i < 100; ++i) {
        poller->call->wake(poller);
        poller->call->wake(poller);
        ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 0);
    }
    int fds[2], context;
    pair(fds);
    ck_assert_int_eq(poller->call->add(poller, fds[0], POLL_READ, &context), CQLRING_OK);
    say(fds[1]);
    poller->call->wake(poller);
    int seen = poller->call->wait(poller, events, 8, -1); /* with the wake or right after it */
    ck_assert_int_eq(seen + (seen == 0 ? poller->call->wait(poller, events, 8, -1) : 0), 1);
    poller->call->destroy(poller);
    (void)close(fds[0]), (void)close(fds[1]);
}
END_TEST

struct conversation {
    struct poller *poller;
    atomic_int questions, answers;
};

static void *waker_main(void *context)
{
    struct conversation *conversation = context;
    for (int i = 1; i <= 5000; ++i) {
        atomic_store_explicit(&conversation->questions, i, memory_order_release);
        conversation->poller->call->wake(conversation->poller);
        while (i % 7 == 0 &&
               atomic_load_explicit(&conversation->answers, memory_order_acquire) != i)
            (void)sched_yield();
    }
    return NULL;
}

START_TEST(wake_from_another_thread_always_arrives)
{
    struct conversation conversation = {.poller = make(_i)};
    struct poll_event events[8];
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, waker_main, &conversation), 0);
    for (int seen = 0; seen < 5000;) {
        ck_assert_int_eq(conversation.poller->call->wait(conversation.poller, events, 8, -1), 0);
        seen = atomic_load_explicit(&conversation.questions, memory_order_acquire);
        atomic_store_explicit(&conversation.answers, seen, memory_order_release);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    conversation.poller->call->destroy(conversation.poller);
}
END_TEST

/* More is ready than the array has room for, and stays so: everybody's turn comes. */
START_TEST(short_array_starves_nobody)
{
    enum { COUNT = 100, ROOM = 8 };
    struct poller *poller = make(_i);
    struct poll_event events[ROOM];
    int fds[COUNT][2], seen[COUNT] = {0};
    for (int i = 0; i < COUNT; ++i) {
        pair(fds[i]);
        say(fds[i][1]);
        ck_assert_int_eq(poller->call->add(poller, fds[i][0], POLL_READ, &seen[i]), CQLRING_OK);
    }
    for (int round = 0; round < 4 * (COUNT + ROOM) / ROOM; ++round) {
        int count = poller->call->wait(poller, events, ROOM, -1);
        ck_assert(count > 0 && count <= ROOM);
        for (int i = 0; i < count; ++i)
            ++*(int *)events[i].context;
    }
    for (int i = 0; i < COUNT; ++i)
        ck_assert_int_ge(seen[i], 2);
    /* Those not yet handed out are forgotten when they are removed, or no longer wanted. */
    for (int i = 0; i < COUNT; ++i) {
        if (i % 2 == 0)
            poller->call->remove(poller, fds[i][0]);
        else
            poller->call->modify(poller, fds[i][0], 0);
    }
    ck_assert_int_eq(poller->call->wait(poller, events, ROOM, 0), 0);
    poller->call->destroy(poller);
    for (int i = 0; i < COUNT; ++i)
        (void)close(fds[i][0]), (void)close(fds[i][1]);
}
END_TEST

/* Closed right after remove, the number comes back as another socket, while the old socket lives on elsewhere. */
START_TEST(reused_number_reports_the_new_socket_only)
{
    struct poller *poller = make(_i);
    struct poll_event events[8];
    for (int round = 0; round < 50; ++round) {
        int old[2], new[2], before, after;
        pair(old);
        ck_assert_int_eq(poller->call->add(poller, old[0], POLL_READ, &before), CQLRING_OK);
        ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
        int alive = dup(old[0]);
        poller->call->remove(poller, old[0]);
        (void)close(old[0]);
        say(old[1]);
        pair(new);
        ck_assert_int_eq(new[0], old[0]);
        ck_assert_int_eq(poller->call->add(poller, new[0], POLL_READ, &after), CQLRING_OK);
        ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
        say(new[1]);
        ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 1);
        ck_assert_ptr_eq(events[0].context, &after);
        poller->call->remove(poller, new[0]);
        (void)close(new[0]), (void)close(new[1]), (void)close(old[1]), (void)close(alive);
    }
    poller->call->destroy(poller);
}
END_TEST

START_TEST(impossible_descriptors_are_refused)
{
    struct poller *poller = make(_i);
    ck_assert_int_eq(poller->call->add(poller, -1, POLL_READ, NULL), CQLRING_INVALID);
    ck_assert_int_eq(poller->call->add(poller, 1 << 20, POLL_READ, NULL), CQLRING_FULL);
    poller->call->destroy(poller);
}
END_TEST

START_TEST(failing_allocations_leave_nothing_behind)
{
    int64_t live = cqr_mem_live_count();
    int fds[2];
    pair(fds);
    for (uint64_t n = 1;; ++n) {
        cqr_mem_fail_at(n, 0);
        struct poller *poller = _i == 0 ? cqr_poller_ev_create() : cqr_poller_epoll_create();
        cqlring_status status = poller == NULL ? CQLRING_NO_MEMORY
                                               : poller->call->add(poller, fds[0], POLL_READ, NULL);
        uint64_t failures = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        if (poller != NULL)
            poller->call->destroy(poller);
        ck_assert_int_eq(cqr_mem_live_count(), live);
        ck_assert_int_eq(status, failures == 0 ? CQLRING_OK : CQLRING_NO_MEMORY);
        if (failures == 0)
            break;
    }
    int next = dup(
        fds[0]); /* no descriptor either: the lowest free number is the one behind ours */
    ck_assert_int_le(next, fds[1] + 1);
    (void)close(fds[0]), (void)close(fds[1]), (void)close(next);
}
END_TEST

static int count_open(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

START_TEST(forked_child_holds_no_descriptor_of_a_poller)
{
    int before = count_open();
    struct poller *poller = make(_i);
    ck_assert_int_gt(count_open(), before);
    pid_t child = fork();
    if (child == 0)
        _exit(count_open() == before ? 0 : 1);
    int status = 1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    struct poll_event events[8];
    poller->call->wake(poller); /* and the parent's works on */
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 0);
    poller->call->destroy(poller);
    ck_assert_int_eq(count_open(), before);
}
END_TEST

/* --- what only the poller of caller mode has ---------------------------------------------------------------------- */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, timeout_ms) == 1;
}

START_TEST(foreign_loop_sees_sockets_wakes_and_deadlines_on_one_descriptor)
{
    struct poller *poller = make(1);
    struct poll_event events[8];
    int fd = poller->call->fd(poller), fds[2], context;
    ck_assert_int_ge(fd, 0);
    ck_assert(!is_readable(fd, 0));
    for (int i = 0; i < 3; ++i) { /* edges come again and again */
        poller->call->wake(poller);
        ck_assert(is_readable(fd, 0));
        ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
        ck_assert(!is_readable(fd, 0));
        int64_t deadline = now_us() + 3000;
        poller->call->arm(poller, deadline);
        poller->call->arm(poller, deadline);
        ck_assert(is_readable(fd, 10000));
        ck_assert_int_ge(now_us(), deadline);
        ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 0);
        ck_assert(!is_readable(fd, 0));
        poller->call->arm(poller, 1);
        ck_assert(is_readable(fd, 0));
        poller->call->arm(poller, now_us() + 3600000000);
        ck_assert(!is_readable(fd, 0));
        poller->call->arm(poller, 0);
        ck_assert(is_readable(fd, 0));
        poller->call->arm(poller, -1);
        ck_assert(!is_readable(fd, 0));
    }
    pair(fds);
    ck_assert_int_eq(poller->call->add(poller, fds[0], POLL_READ, &context), CQLRING_OK);
    say(fds[1]);
    ck_assert(is_readable(fd, 0));
    ck_assert_int_eq(poller->call->wait(poller, events, 8, 0), 1);
    hear(fds[0]);
    ck_assert(!is_readable(fd, 0));
    poller->call->destroy(poller);
    (void)close(fds[0]), (void)close(fds[1]);
}
END_TEST

START_TEST(armed_deadline_ends_a_wait)
{
    struct poller *poller = make(1);
    struct poll_event events[8];
    int64_t deadline = now_us() + 3000;
    poller->call->arm(poller, deadline);
    ck_assert_int_eq(poller->call->wait(poller, events, 8, -1), 0);
    ck_assert_int_ge(now_us(), deadline);
    poller->call->destroy(poller);
}
END_TEST

START_TEST(libev_has_no_descriptor_to_offer)
{
    struct poller *poller = make(0);
    ck_assert_int_eq(poller->call->fd(poller), -1);
    poller->call->arm(poller, 5);
    poller->call->destroy(poller);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("poller");
    TCase *both = tcase_create("both");
    tcase_add_loop_test(both, ready_descriptors_are_reported_until_they_are_served, 0, 2);
    tcase_add_loop_test(both, hang_up_is_readable_and_silent_for_who_wants_nothing, 0, 2);
    tcase_add_loop_test(both, deadline_ends_the_wait_and_not_before, 0, 2);
    tcase_add_loop_test(both, far_deadline_moves_on_and_back, 0, 2);
    tcase_add_loop_test(both, signals_do_not_end_a_wait, 0, 2);
    tcase_add_loop_test(both, wake_before_the_wait_is_not_lost, 0, 2);
    tcase_add_loop_test(both, wake_from_another_thread_always_arrives, 0, 2);
    tcase_add_loop_test(both, short_array_starves_nobody, 0, 2);
    tcase_add_loop_test(both, reused_number_reports_the_new_socket_only, 0, 2);
    tcase_add_loop_test(both, impossible_descriptors_are_refused, 0, 2);
    tcase_add_loop_test(both, failing_allocations_leave_nothing_behind, 0, 2);
    tcase_add_loop_test(both, forked_child_holds_no_descriptor_of_a_poller, 0, 2);
    suite_add_tcase(suite, both);
    TCase *one = tcase_create("one");
    tcase_add_test(one, foreign_loop_sees_sockets_wakes_and_deadlines_on_one_descriptor);
    tcase_add_test(one, armed_deadline_ends_a_wait);
    tcase_add_test(one, libev_has_no_descriptor_to_offer);
    suite_add_tcase(suite, one);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
