/* SPDX-License-Identifier: Apache-2.0 */

/* Forks and signals. A child may open its own things and let go of its parent's, and the parent does not notice. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "ask.h"
#include "child.h"
#include "watch.h"

#define INSERT_1 "INSERT INTO ks.t (k, v) VALUES (1, 0x01)"

/* A forked copy of a process with threads is beyond the thread sanitizer. */
#ifdef __SANITIZE_THREAD__
enum { CAN_FORK = 0 };
#else
enum { CAN_FORK = 1 };
#endif

static void start(struct flow *flow)
{
    flow_init(flow);
    watch_log(flow);
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 50000;
    flow_start(flow);
}

/* ---- in the child: an answer is a number, 0 is good ---- */

static int connect_and_write(const struct flow *parent, const char *host, bool default_runtime)
{
    struct flow flow;
    flow_init(&flow);
    char contact[64];
    snprintf(contact, sizeof contact, "%s:%u", host, node_port(parent->node, 0));
    flow.options.contact_points = contact;
    flow.options.port = 1;
    if (!default_runtime && cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL) != CQLRING_OK)
        return 10;
    cqlring_error error = {0};
    if (cqlring_cluster_open_sync(flow.runtime, &flow.options, &flow.cluster, &error) != CQLRING_OK ||
        cqlring_session_open_sync(flow.cluster, NULL, &flow.session, &error) != CQLRING_OK) {
        fprintf(stderr, "child: %s\n", error.message);
        return 11;
    }
    for (int i = 0; i < 20; i++)
        if (flow_try(&flow, INSERT_1, NULL, &error) != CQLRING_OK)
            return 12;
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    return default_runtime || cqlring_runtime_destroy(flow.runtime) == CQLRING_OK ? 0 : 13;
}

static bool says_forked(cqlring_status status, const cqlring_error *error)
{
    return status == CQLRING_FORKED && error->status == CQLRING_FORKED && error->message[0] != '\0';
}

struct held {
    struct flow *flow;
    cqlring_prepared *insert;
    cqlring_future *ready, *waiting;
    cqlring_queue *queue;
    uint8_t *reserved;
    cqlring_result *result;
};

/* Every call on the parent's handles answers at once, and everything may be let go. */
static int use_what_is_the_parents(const struct held *held)
{
    struct flow *flow = held->flow;
    cqlring_error error = {0};
    cqlring_future *future = NULL;
    cqlring_request request = {.session = flow->session, .cql = cqlring_text(INSERT_1)};
    if (!says_forked(cqlring_execute(&request, &future, &error), &error))
        return 20;
    if (!says_forked(cqlring_execute_sync(&request, NULL, &error), &error))
        return 21;
    if (!says_forked(cqlring_prepare(flow->session, cqlring_text(FLOW_SELECT), NULL, &future, &error), &error))
        return 22;
    cqlring_source source = {0};
    struct flow_rows rows;
    flow_rows_init(&rows, 1, 1);
    source = flow_source(&rows);
    cqlring_prepared *insert = held->insert;
    if (!says_forked(cqlring_execute_concurrent(flow->session, &insert, 1, &source, NULL, 1, NULL, &future, &error), &error))
        return 23;
    flow_rows_fini(&rows);
    if (!says_forked(cqlring_session_open(flow->cluster, NULL, &future, &error), &error))
        return 24;
    if (!says_forked(cqlring_cluster_open(flow->runtime, &flow->options, &future, &error), &error))
        return 25;
    if (!says_forked(cqlring_future_wait(held->waiting, -1, &error), &error))
        return 26;
    if (!says_forked(cqlring_session_close(flow->session, -1, &future, &error), &error) ||
        !says_forked(cqlring_cluster_close(flow->cluster, 0, &future, &error), &error))
        return 27;
    if (cqlring_runtime_destroy(flow->runtime) != CQLRING_FORKED)
        return 28;
    uint32_t accepted = 0;
    if (!says_forked(cqlring_queue_submit(held->queue, &request, 1, &accepted, &error), &error) || accepted != 0)
        return 29;
    cqlring_completion completions[2];
    cqlring_status status = CQLRING_OK;
    if (cqlring_queue_reap(held->queue, completions, 2, 1, -1, &status) != 0 || status != CQLRING_FORKED)
        return 30;
    uint8_t *at = NULL;
    if (!says_forked(cqlring_queue_reserve(held->queue, 16, &at, &error), &error) || at != NULL || cqlring_queue_cancel(held->queue, 1) != CQLRING_FORKED)
        return 37;
    if (!says_forked(cqlring_queue_commit(held->queue, held->reserved, &request, 0, &error), &error))
        return 38;
    if (cqlring_next_page(held->result, NULL, &future, &error) == CQLRING_OK || future != NULL)
        return 31;
    cqlring_future_cancel(held->waiting);
    cqlring_job_poke(held->waiting);
    if (cqlring_future_on_ready(held->waiting, NULL, NULL) == CQLRING_OK || cqlring_runtime_turn(flow->runtime, -1) != -1 || cqlring_queue_fd(held->queue) != -1)
        return 32;
    cqlring_stats stats = {.struct_size = sizeof stats};
    cqlring_runtime_stats(flow->runtime, &stats);
    const cqlring_node *node;
    (void)cqlring_cluster_nodes(flow->cluster, &node, 1);
    cqlring_node_stats node_stats;
    cqlring_connection_info connection;
    static char text[1 << 16];
    if (cqlring_cluster_stats(flow->cluster, &node_stats, 1) != 0 || cqlring_cluster_connections(flow->cluster, &connection, 1) != 0 || stats.requests_settled != 0)
        return 34;
    if (cqlring_metrics_text(flow->runtime, text, sizeof text) == 0 || strstr(text, "node_") != NULL || cqlring_cluster_options_text(flow->cluster, text, sizeof text) == 0)
        return 35;
    if (!says_forked(cqlring_cluster_reload_tls(flow->cluster, NULL, &error), &error))
        return 36;
    cqlring_route route;
    cqlring_bytes key = {"\0\0\0\0\0\0\0\1", 8};
    uint8_t trace_id[16] = {1};
    if (!says_forked(cqlring_session_room(flow->session, 100, -1, &future, &error), &error))
        return 39;
    if (!says_forked(cqlring_route_of(held->insert, &key, 1, &route, &error), &error))
        return 40;
    if (!says_forked(cqlring_trace_fetch(flow->cluster, trace_id, &future, &error), &error))
        return 41;
    if (!says_forked(cqlring_schema_refresh(flow->cluster, &future, &error), &error) || !says_forked(cqlring_schema_agree(flow->cluster, 0, &future, &error), &error))
        return 42;
    if (cqlring_result_row_count(held->result) != 1) /* plain memory stays readable */
        return 33;
    cqlring_queue_close(held->queue);
    cqlring_queue_abandon(held->queue);
    cqlring_queue_release(held->queue);
    cqlring_result_release(held->result);
    cqlring_future_release(held->ready);
    cqlring_future_release(held->waiting);
    cqlring_prepared_release(held->insert);
    cqlring_session_release(flow->session);
    cqlring_cluster_release(flow->cluster);
    return 0;
}

/* Sockets that lead to the node, and descriptors of epoll, eventfd and timerfd. */
static void count_descriptors(uint16_t port, uint32_t *sockets, uint32_t *anonymous)
{
    *sockets = *anonymous = 0;
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[300], target[100] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "anon_inode:", 11) == 0)
            ++*anonymous;
        struct sockaddr_in peer = {0};
        socklen_t size = sizeof peer;
        if (getpeername(atoi(entry->d_name), (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
            ++*sockets;
    }
    closedir(directory);
}

/* ---- FK-01 ---- */

START_TEST(fk_01_a_child_connects_though_its_parent_has_used_the_library)
{
    static const char *const hosts[] = {"127.0.0.1", FLOW_NAME};
    if (!CAN_FORK)
        return;
    for (int i = 0; i < 4; i++) {
        struct flow flow;
        start(&flow);
        flow_open(&flow);
        flow_cql(&flow, INSERT_1);
        cqlring_session_release(flow.session);
        cqlring_cluster_release(flow.cluster);
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        flow.session = NULL;
        flow.cluster = NULL;
        flow.runtime = NULL;
        pid_t pid = fork();
        if (pid == 0)
            _exit(connect_and_write(&flow, hosts[i % 2], i >= 2));
        ck_assert_int_eq(child_wait(&flow, pid), 0);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_child_uses_its_own_while_the_parents_are_open)
{
    if (!CAN_FORK)
        return;
    struct flow flow;
    start(&flow);
    flow_open(&flow);
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(connect_and_write(&flow, "127.0.0.1", i == 1));
        ck_assert_int_eq(child_wait(&flow, pid), 0);
        flow_cql(&flow, INSERT_1);
    }
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(the_parents_handles_answer_forked_in_the_child)
{
    if (!CAN_FORK)
        return;
    struct flow flow;
    start(&flow);
    uint32_t sockets, anonymous, before;
    count_descriptors(node_port(flow.node, 0), &sockets, &before);
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)");
    struct held held = {.flow = &flow, .insert = flow_prepare(&flow, FLOW_INSERT)};
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 1};
    flow_ok(ask_text(&flow, "SELECT k FROM ks.t", NULL, 0, &how, &held.result, NULL));
    cqlring_queue_options queue_options = {.struct_size = sizeof queue_options, .session = flow.session};
    flow_ok(cqlring_queue_open(&queue_options, &held.queue, NULL));
    flow_ok(cqlring_queue_reserve(held.queue, 16, &held.reserved, NULL));
    held.ready = ask_start(&flow, "SELECT key FROM system.local", NULL);
    flow_ok(ask_wait(held.ready, NULL));
    flow_fault(&flow, "late:table=ks.t,delay_us=300000");
    held.waiting = ask_start(&flow, INSERT_1, NULL);
    watch_for(&flow, watch_faults, &(uint64_t){1});
    pid_t pid = fork();
    if (pid == 0) {
        count_descriptors(node_port(flow.node, 0), &sockets, &anonymous);
        if (sockets != 0 || anonymous != before) {
            fprintf(stderr, "child: %u sockets, %u anonymous descriptors, %u before the library\n", sockets, anonymous, before);
            _exit(50);
        }
        _exit(use_what_is_the_parents(&held));
    }
    ck_assert_int_eq(child_wait(&flow, pid), 0);
    /* here nothing has changed */
    flow_ok(ask_end(held.waiting, NULL));
    cqlring_request queued = {.cql = cqlring_text(INSERT_1), .tag = 7};
    uint32_t accepted = 0;
    flow_ok(cqlring_queue_submit(held.queue, &queued, 1, &accepted, NULL));
    flow_ok(cqlring_queue_commit(held.queue, held.reserved, NULL, 0, NULL)); /* given back */
    cqlring_completion completion;
    ck_assert_uint_eq(cqlring_queue_reap(held.queue, &completion, 1, 1, 20000000, NULL), 1);
    flow_ok(completion.status);
    cqlring_completions_release(&completion, 1);
    cqlring_future_release(held.ready);
    cqlring_future *next = NULL;
    flow_ok(cqlring_next_page(held.result, NULL, &next, NULL));
    flow_ok(ask_end(next, NULL));
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    cqlring_queue_release(held.queue);
    cqlring_result_release(held.result);
    cqlring_prepared_release(held.insert);
    flow_close(&flow);
}
END_TEST

/* ---- forks while a job runs ---- */

struct forker {
    struct flow *flow;
    atomic_bool stop;
    atomic_int children;
    int bad;
};

/* Children that end at once, one after the other, some of them after letting go of the parent's session. */
static void *fork_on_and_on(void *context)
{
    struct forker *forker = context;
    while (!atomic_load(&forker->stop)) {
        pid_t pid = fork();
        if (pid == 0) {
            if (forker->children % 2 == 0) {
                cqlring_session_release(forker->flow->session);
                cqlring_cluster_release(forker->flow->cluster);
            }
            _exit(0);
        }
        forker->children++;
        forker->bad += child_wait(forker->flow, pid) != 0;
    }
    return NULL;
}

START_TEST(a_job_goes_on_undisturbed_while_its_process_forks)
{
    if (!CAN_FORK)
        return;
    struct flow flow;
    start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow observed = flow; /* the forker's waits must not run turns */
    observed.threads = CQLRING_THREADS_SPLIT;
    struct forker forker = {.flow = &observed};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_on_and_on, &forker), 0);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 30000, 32);
    flow_sink_init(&sink, 30000);
    while (atomic_load(&forker.children) == 0)
        watch_pass(&observed, 1); /* the job may be quicker than a thread that begins */
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    atomic_store(&forker.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(sink.ok, 30000);
    ck_assert_int_gt(forker.children, 0);
    ck_assert_int_eq(forker.bad, 0);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Another process holds copies of our sockets that nobody has closed for it, as between vfork and exec. Sockets that we close
   stay alive there; they must not be reported to us for ever. */
START_TEST(copies_of_our_sockets_elsewhere_do_no_harm)
{
    if (!CAN_FORK)
        return;
    struct flow flow;
    int low = open("/dev/null", O_RDONLY | O_CLOEXEC);
    start(&flow);
    flow_open(&flow);
    close(low); /* what is opened next gets its number, lower than all of ours */
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); /* fork without its handlers */
    if (pid == 0)
        for (;;)
            syscall(SYS_pause);
    ck_assert_int_gt(pid, 0);
    cqlring_future *closed;
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    cqlring_session_release(flow.session);
    watch_pass(&flow, 50); /* the socket is shut, and closed */
    int files[20];
    for (int i = 0; i < 20; i++)
        files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    flow_ok(cqlring_session_open_sync(flow.cluster, NULL, &flow.session, NULL));
    flow_cql(&flow, INSERT_1);
    uint64_t turns = flow_stats(&flow).reactor_turns;
    uint32_t passed = watch_pass(&flow, 200);
    /* in caller mode every moment of the test's own is a turn */
    ck_assert_uint_le(flow_stats(&flow).reactor_turns - turns, 20 + passed);
    kill(pid, SIGKILL);
    ck_assert_int_eq(child_wait(&flow, pid), 128 + SIGKILL);
    flow_cql(&flow, INSERT_1);
    /* and what is closed in a child is ours, still: none of the application's own descriptors */
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 20; i++)
            if (fcntl(files[i], F_GETFD) < 0)
                _exit(50);
        _exit(0);
    }
    ck_assert_int_eq(child_wait(&flow, pid), 0);
    for (int i = 0; i < 20; i++)
        close(files[i]);
    flow_close(&flow);
}
END_TEST

/* ---- SG-03 ---- */

static atomic_uint ticks;

static void on_tick(int signal)
{
    int before = errno;
    (void)signal;
    atomic_fetch_add(&ticks, 1);
    errno = before;
}

START_TEST(sg_03_a_signal_every_millisecond_disturbs_nothing)
{
    struct sigaction action = {.sa_handler = on_tick}, old; /* without SA_RESTART */
    sigaction(SIGALRM, &action, &old);
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {0};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
    for (int round = 0; round < 3; round++) {
        struct flow flow;
        start(&flow);
        char points[64];
        snprintf(points, sizeof points, FLOW_NAME ":%u", node_port(flow.node, 0)); /* looked up, too */
        flow.options.contact_points = points;
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        struct flow_sink sink;
        flow_rows_init(&rows, 20000, 32);
        flow_sink_init(&sink, 20000);
        flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
        ck_assert_uint_eq(sink.ok, 20000);
        for (int i = 0; i < 200; i++)
            flow_cql(&flow, INSERT_1);
        cqlring_error error;
        cqlring_execution how = {.struct_size = sizeof how};
        flow_fault(&flow, "late:table=ks.t,delay_us=30000");
        cqlring_future *future = ask_start(&flow, INSERT_1, &how);
        ck_assert_int_eq(cqlring_future_wait(future, 5000, &error), CQLRING_TIMEOUT);
        flow_ok(ask_end(future, NULL));
        ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    ck_assert_uint_gt(atomic_load(&ticks), 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fork");
    TCase *tcase = tcase_create("fork");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, fk_01_a_child_connects_though_its_parent_has_used_the_library);
    tcase_add_test(tcase, a_child_uses_its_own_while_the_parents_are_open);
    tcase_add_test(tcase, the_parents_handles_answer_forked_in_the_child);
    tcase_add_test(tcase, a_job_goes_on_undisturbed_while_its_process_forks);
    tcase_add_test(tcase, copies_of_our_sockets_elsewhere_do_no_harm);
    tcase_add_test(tcase, sg_03_a_signal_every_millisecond_disturbs_nothing);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
