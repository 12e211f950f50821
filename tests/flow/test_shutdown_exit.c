/* SPDX-License-Identifier: Apache-2.0 */

/* The process ends while the library is at work: main returns, exit is called in the middle of a job, inside a sink, on another
   thread. Nothing hangs, nothing crashes, and the exit code is the application's. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "secure.h"
#include "watch.h"

/* ---- in the child ---- */

enum { FINE = 7, FAILED = 9 };

/* All that is held stays held: what is still referenced is no leak. */
static struct flow child;
static cqlring_prepared *insert;
static cqlring_future *job;
static cqlring_tls_options child_tls;
static atomic_ulong rows_seen;
static bool exits_in_sink;
static uint8_t cell_key[8], cell_value[32];
static cqlring_bytes cells[2] = {{cell_key, 8}, {cell_value, 32}};

static int32_t endless_rows(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake, cqlring_error *error, void *context)
{
    (void)now_us;
    (void)wake;
    (void)error;
    (void)context;
    for (uint32_t i = 0; i < capacity; i++)
        out[i] = (cqlring_row){.cells = cells};
    return (int32_t)capacity;
}

static cqlring_verdict count_rows(const cqlring_completion *completions, uint32_t count, void *context)
{
    (void)completions;
    (void)context;
    if (atomic_fetch_add(&rows_seen, count) + count > 2000 && exits_in_sink)
        exit(FINE);
    return CQLRING_CONTINUE;
}

static bool runs(struct flow *flow, void *context)
{
    (void)flow;
    (void)context;
    return atomic_load(&rows_seen) > 2000;
}

static void *exit_on_a_thread(void *context)
{
    while (!runs(NULL, NULL))
        sched_yield();
    exit(*(int *)context);
}

static bool open_and_start(bool with_job)
{
    cqlring_error error = {0};
    cqlring_status status = cqlring_cluster_open_sync(child.runtime, &child.options, &child.cluster, &error);
    if (status == CQLRING_OK)
        status = cqlring_session_open_sync(child.cluster, NULL, &child.session, &error);
    if (status == CQLRING_OK)
        status = cqlring_prepare_sync(child.session, FLOW_INSERT, &insert, &error);
    static const cqlring_source source = {.next = endless_rows};
    static const cqlring_sink sink = {.deliver = count_rows};
    if (status == CQLRING_OK && with_job)
        status = cqlring_execute_concurrent(child.session, &insert, 1, &source, &sink, 1, NULL, &job, &error);
    if (status != CQLRING_OK)
        fprintf(stderr, "child: %s\n", error.message);
    return status == CQLRING_OK;
}

/* What is between the words of a name is what it does. */
static int role(const char *name, const char *contact, cqlring_threads threads)
{
    flow_init(&child);
    child.threads = CQLRING_THREADS_SPLIT; /* the default runtime's */
    child.options.contact_points = contact;
    if (strstr(name, "tls") != NULL) {
        child_tls = (cqlring_tls_options){.struct_size = sizeof child_tls, .verify = CQLRING_TLS_NONE};
        child.options.tls = &child_tls;
    }
    if (strstr(name, "own") != NULL) {
        child.threads = child.runtime_options.threads = threads;
        if (cqlring_runtime_create(&child.runtime_options, &child.runtime, NULL) != CQLRING_OK)
            return FAILED;
    }
    if (strstr(name, "opening") != NULL) {
        static cqlring_future *opening;
        if (cqlring_cluster_open(child.runtime, &child.options, &opening, NULL) != CQLRING_OK)
            return FAILED;
        watch_pass(&child, strstr(name, "later") != NULL ? 50 : 0);
        exit(FINE);
    }
    if (strstr(name, "twice") != NULL) {
        for (int i = 0; i < 3; i++) {
            if (!open_and_start(false))
                return FAILED;
            cqlring_prepared_release(insert);
            cqlring_session_release(child.session);
            cqlring_cluster_release(child.cluster);
        }
        return FINE;
    }
    exits_in_sink = strstr(name, "sink") != NULL;
    if (!open_and_start(strstr(name, "idle") == NULL))
        return FAILED;
    if (strstr(name, "idle") != NULL)
        return FINE;
    static int code = FINE;
    pthread_t thread;
    if (strstr(name, "thread") != NULL && pthread_create(&thread, NULL, exit_on_a_thread, &code) != 0)
        return FAILED;
    if (exits_in_sink || strstr(name, "thread") != NULL) {
        cqlring_future_wait(job, -1, NULL);
        for (;;) /* it ends while the other thread is inside exit */
            pause();
    }
    if (!watch_until(&child, runs, NULL, 15000))
        return FAILED;
    if (strstr(name, "return") != NULL)
        return FINE;
    exit(FINE);
}

/* ---- in the parent ---- */

static void run_roles(struct flow *flow, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int code = child_exec(flow, names[i]);
        ck_assert_msg(code == FINE, "\"%s\" ended with %d", names[i], code);
    }
}

START_TEST(the_default_runtime_ends_with_the_process)
{
    static const char *const names[] = {"idle", "twice", "exit in a job", "return in a job"};
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    run_roles(&flow, names, 4);
    flow_close(&flow);
}
END_TEST

START_TEST(exit_may_be_called_inside_a_sink_or_on_another_thread)
{
    static const char *const names[] = {"sink", "thread", "sink own", "thread own"};
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    run_roles(&flow, names, 4);
    flow_close(&flow);
}
END_TEST

START_TEST(a_runtime_that_nobody_destroys_does_not_keep_the_process)
{
    static const char *const names[] = {"idle own", "exit in a job own", "return in a job own"};
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    run_roles(&flow, names, 3);
    flow_close(&flow);
}
END_TEST

START_TEST(exit_while_opening_does_not_wait_for_the_server)
{
    static const char *const names[] = {"opening", "opening later", "opening own", "opening own later"};
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    flow_fault(&flow, "ignore:opcode=OPTIONS");
    run_roles(&flow, names, 4);
    flow_close(&flow);
}
END_TEST

/* OpenSSL's tables must still be there for threads that are at work while the process ends. */
START_TEST(exit_with_tls_under_way_is_no_different)
{
    static const char *const names[] = {"tls idle", "tls exit in a job", "tls sink", "tls sink own", "tls exit in a job own", "tls thread"};
    struct flow flow;
    cqlring_tls_options tls;
    flow_init(&flow);
    secure_flow(&flow, "node-good", &tls);
    flow_start(&flow);
    run_roles(&flow, names, 6);
    flow_close(&flow);
}
END_TEST

int main(int argc, char **argv)
{
    int played = child_role(argc, argv, role);
    if (played >= 0)
        return played;
    if (!secure_make())
        return 77;
    Suite *suite = suite_create("shutdown_exit");
    TCase *tcase = tcase_create("shutdown_exit");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_default_runtime_ends_with_the_process);
    tcase_add_test(tcase, exit_may_be_called_inside_a_sink_or_on_another_thread);
    tcase_add_test(tcase, a_runtime_that_nobody_destroys_does_not_keep_the_process);
    tcase_add_test(tcase, exit_while_opening_does_not_wait_for_the_server);
    tcase_add_test(tcase, exit_with_tls_under_way_is_no_different);
    suite_add_tcase(suite, tcase);
    int result = flow_main(suite);
    secure_remove();
    return result;
}
