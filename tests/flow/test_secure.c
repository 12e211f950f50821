/* SPDX-License-Identifier: Apache-2.0 */

/* What operators of secured clusters need: sessions that are resumed, certificates that are changed while it runs, authenticators
   of their own, and an account of all options that gives no secret away. */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "secure.h"
#include "watch.h"

static cqlring_tls_options tls;

static void start(struct flow *flow, const char *certificate)
{
    flow_init(flow);
    watch_log(flow);
    if (certificate != NULL)
        secure_flow(flow, certificate, &tls);
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 50000;
}

static bool has_reconnected(struct flow *flow, void *opened)
{
    return flow_stats(flow).connections_opened > *(uint64_t *)opened && watch_up_count(flow) == flow->node_options.nodes;
}

/* Every connection is closed by the server, and comes back. */
static void cut(struct flow *flow)
{
    uint64_t opened = flow_stats(flow).connections_opened;
    node_cut(flow->node, NODE_ALL, 0);
    opened++; /* both of them: the pool's and control's */
    watch_for(flow, has_reconnected, &opened);
    ask_until_served(flow);
}

/* ---- resumption ---- */

START_TEST(a_connection_that_comes_back_resumes_its_session)
{
    for (int32_t version = 12; version <= 13; version++) {
        struct flow flow;
        start(&flow, "node-good");
        tls.version_min = tls.version_max = version;
        flow_start(&flow);
        flow_open(&flow);
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
        cqlring_stats before = flow_stats(&flow);
        for (int i = 0; i < 3; i++)
            cut(&flow);
        cqlring_stats after = flow_stats(&flow);
        ck_assert_uint_ge(after.tls_handshakes - before.tls_handshakes, 6);
        /* a ticket is used up; what was lost with a connection is not resumed */
        ck_assert_msg(after.tls_resumed - before.tls_resumed >= 3, "v%d: %llu of %llu", version, (unsigned long long)(after.tls_resumed - before.tls_resumed),
                      (unsigned long long)(after.tls_handshakes - before.tls_handshakes));
        cqlring_connection_info connections[4];
        uint32_t count = cqlring_cluster_connections(flow.cluster, connections, 4), resumed = 0;
        for (uint32_t i = 0; i < count && i < 4; i++) {
            resumed += connections[i].tls_resumed;
            ck_assert_ptr_nonnull(strstr(connections[i].certificate_names, "127.0.0.1")); /* also of a resumed one */
            ck_assert_int_gt(connections[i].certificate_until_s, connections[i].certificate_from_s);
        }
        ck_assert_uint_ge(resumed, 1);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(resumption_can_be_switched_off)
{
    struct flow flow;
    start(&flow, "node-good");
    tls.resume = CQLRING_NO;
    flow_start(&flow);
    flow_open(&flow);
    cut(&flow);
    cqlring_stats stats = flow_stats(&flow);
    ck_assert_uint_ge(stats.tls_handshakes, 4);
    ck_assert_uint_eq(stats.tls_resumed, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_server_that_cannot_bear_a_ticket_is_asked_again_at_once_without_one)
{
    /* OpenSSL's servers that ask for client certificates and have no session id context are such */
    for (int32_t version = 12; version <= 13; version++) {
        struct flow flow;
        start(&flow, "node-good");
        tls.certificate_file = secure_file("client.pem");
        tls.key_file = secure_file("client.key");
        tls.version_min = tls.version_max = version;
        flow.node_options.tls_client_ca = secure_file("ca.pem");
        flow.options.reconnect_min_us = flow.options.reconnect_max_us = 60000000; /* so a back-off would be noticed */
        flow_start(&flow);
        flow_open(&flow);
        for (int i = 0; i < 10; i++)
            flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
        cqlring_stats stats = flow_stats(&flow);
        ck_assert_uint_eq(stats.tls_resumed, 0);
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_uint_eq(counters.connections, 3); /* control's, the one with the ticket, and the one without */
        flow_close(&flow);
    }
}
END_TEST

struct elsewhere {
    const cqlring_request *request;
    cqlring_future **future;
    atomic_bool ready;
};

static void is_ready(cqlring_future *future, void *context)
{
    (void)future;
    struct elsewhere *elsewhere = context;
    atomic_store(&elsewhere->ready, true);
}

static void *execute_elsewhere(void *context)
{
    struct elsewhere *elsewhere = context;
    flow_ok(cqlring_execute(elsewhere->request, elsewhere->future, NULL));
    flow_ok(cqlring_future_on_ready(*elsewhere->future, is_ready, elsewhere));
    return NULL;
}

/* TL-02: an event loop of the application's, which only has a descriptor to watch; requests come from its thread and another. */
START_TEST(tl_02_a_foreign_event_loop_drives_tls)
{
    struct flow flow;
    start(&flow, _i == 0 ? NULL : "node-good");
    if (flow.threads != CQLRING_THREADS_CALLER) {
        flow_close(&flow);
        return;
    }
    flow_start(&flow);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    flow.options.contact_points = node_address(flow.node, 0);
    flow.options.port = node_port(flow.node, 0);
    cqlring_future *steps[4] = {NULL};
    struct pollfd loop = {.fd = cqlring_runtime_fd(flow.runtime), .events = POLLIN};
    cqlring_request request = {.cql = cqlring_text("INSERT INTO ks.t (k, v) VALUES (1, 0x01)")};
    for (int step = 0; step < 4; step++) {
        pthread_t thread;
        struct elsewhere elsewhere = {.request = &request, .future = &steps[3]};
        if (step == 0)
            flow_ok(cqlring_cluster_open(flow.runtime, &flow.options, &steps[0], NULL));
        else if (step == 1)
            flow_ok(cqlring_session_open(flow.cluster, NULL, &steps[1], NULL));
        else if (step == 2)
            flow_ok(cqlring_execute(&request, &steps[2], NULL));
        else
            ck_assert_int_eq(pthread_create(&thread, NULL, execute_elsewhere, &elsewhere), 0);
        while (step < 3 ? !cqlring_future_ready(steps[step]) : !elsewhere.ready) {
            ck_assert_int_eq(poll(&loop, 1, 20000), 1); /* it never hangs until some time-out */
            cqlring_runtime_turn(flow.runtime, 0);
        }
        if (step == 3)
            pthread_join(thread, NULL);
        flow_ok(cqlring_future_wait(steps[step], 0, NULL));
        if (step == 0)
            flow.cluster = cqlring_future_cluster(steps[0]);
        if (step == 1)
            request.session = flow.session = cqlring_future_session(steps[1]);
    }
    for (int step = 0; step < 4; step++)
        cqlring_future_release(steps[step]);
    flow_close(&flow);
}
END_TEST

/* Ten connections, one job: no reply is moved once it is out of its record; none here is torn by one. */
START_TEST(ten_nodes_take_a_bulk_job_through_tls)
{
    enum { NODES = 10, COUNT = 20000 };
    struct flow flow;
    start(&flow, "node-good");
    tls.version_min = 13;
    tls.server_name = "localhost"; /* the certificate is not for all ten addresses */
    flow.node_options.nodes = NODES;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &flow.node_options.nodes);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, COUNT, 100);
    flow_sink_init(&sink, COUNT);
    cqlring_stats before = flow_stats(&flow);
    flow_ok(flow_run(&flow, insert, &rows, &sink, NULL, NULL, NULL));
    cqlring_stats after = flow_stats(&flow);
    ck_assert_uint_eq(sink.ok, COUNT);
    ck_assert_uint_eq(after.connections_lost, 0);
    ck_assert_uint_lt(after.sends - before.sends, COUNT); /* batches form for each */
    ck_assert_uint_eq(after.copied_up_bytes - before.copied_up_bytes, 0); /* OpenSSL writes what it decrypts where the replies stay */
    cqlring_connection_info connections[16];
    uint32_t count = cqlring_cluster_connections(flow.cluster, connections, 16);
    ck_assert_uint_eq(count, NODES + 1);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_str_eq(connections[i].tls_version, "TLS 1.3");
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- reload ---- */

static void copy(const char *from, const char *to)
{
    char command[512];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    ck_assert_int_eq(system(command), 0);
}

static bool is_logged(struct flow *flow, void *text)
{
    return watch_logged(flow, text);
}

START_TEST(new_certificates_are_used_by_the_next_connections)
{
    struct flow flow;
    char ca[128], certificate[128], key[128], message[200];
    start(&flow, "node-good");
    snprintf(ca, sizeof ca, "%s", secure_file("live-ca.pem"));
    snprintf(certificate, sizeof certificate, "%s", secure_file("live-client.pem"));
    snprintf(key, sizeof key, "%s", secure_file("live-client.key"));
    copy(secure_file("ca.pem"), ca);
    copy(secure_file("client.pem"), certificate);
    copy(secure_file("client.key"), key);
    tls.ca_file = ca;
    tls.certificate_file = certificate;
    tls.key_file = key;
    flow.node_options.tls_client_ca = secure_file("ca.pem");
    flow_start(&flow);
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");

    /* the server trusts another client CA from now on: the old certificate is no good any more, the new one is */
    ck_assert_msg(node_set_tls(flow.node, secure_file("node-good.pem"), secure_file("node-good.key"), secure_file("wrongca.pem"), message, sizeof message), "%s", message);
    copy(secure_file("client-wrongca.pem"), certificate);
    copy(secure_file("client-wrongca.key"), key);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)"); /* what is open stays as it is */
    flow_ok(cqlring_cluster_reload_tls(flow.cluster, NULL, NULL));
    cut(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (3, 0x01)");
    flow_close(&flow);
}
END_TEST

START_TEST(without_a_reload_the_old_certificate_goes_on_being_refused)
{
    struct flow flow;
    char message[200];
    start(&flow, "node-good");
    tls.certificate_file = secure_file("client.pem");
    tls.key_file = secure_file("client.key");
    flow.node_options.tls_client_ca = secure_file("ca.pem");
    flow_start(&flow);
    flow_open(&flow);
    ck_assert(node_set_tls(flow.node, secure_file("node-good.pem"), secure_file("node-good.key"), secure_file("wrongca.pem"), message, sizeof message));
    node_cut(flow.node, NODE_ALL, 0);
    watch_for(&flow, is_logged, "connect failed");
    cqlring_tls_options now = tls; /* other options altogether */
    char certificate[128], key[128];
    snprintf(certificate, sizeof certificate, "%s", secure_file("client-wrongca.pem"));
    snprintf(key, sizeof key, "%s", secure_file("client-wrongca.key"));
    now.certificate_file = certificate;
    now.key_file = key;
    flow_ok(cqlring_cluster_reload_tls(flow.cluster, &now, NULL));
    ask_until_served(&flow);
    flow_close(&flow);
}
END_TEST

struct reloader {
    struct flow *flow;
    atomic_bool stop;
    atomic_uint done;
};

static void *reload_on_and_on(void *context)
{
    struct reloader *reloader = context;
    while (!atomic_load(&reloader->stop)) {
        flow_ok(cqlring_cluster_reload_tls(reloader->flow->cluster, atomic_fetch_add(&reloader->done, 1) % 2 == 0 ? NULL : &tls, NULL));
    }
    return NULL;
}

START_TEST(certificates_are_read_again_while_connections_come_and_go)
{
    struct flow flow;
    start(&flow, "node-good");
    flow_start(&flow);
    flow_open(&flow);
    struct reloader reloader = {.flow = &flow};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, reload_on_and_on, &reloader), 0);
    for (int i = 0; i < 5; i++)
        cut(&flow);
    atomic_store(&reloader.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    flow_close(&flow);
}
END_TEST

START_TEST(files_that_cannot_be_used_change_nothing)
{
    struct flow flow;
    cqlring_error error;
    start(&flow, "node-good");
    flow_start(&flow);
    flow_open(&flow);
    cqlring_tls_options bad = tls;
    bad.ca_file = "/no/such/ca.pem";
    ck_assert_int_eq(cqlring_cluster_reload_tls(flow.cluster, &bad, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "/no/such/ca.pem"));
    bad = tls;
    bad.struct_size = 8;
    ck_assert_int_eq(cqlring_cluster_reload_tls(flow.cluster, &bad, &error), CQLRING_INVALID);
    bad = tls;
    bad.resume = (cqlring_tristate)9;
    ck_assert_int_eq(cqlring_cluster_reload_tls(flow.cluster, &bad, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "resume"));
    ck_assert_int_eq(cqlring_cluster_reload_tls(NULL, NULL, &error), CQLRING_INVALID);
    cut(&flow);
    flow_close(&flow);

    start(&flow, NULL);
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_int_eq(cqlring_cluster_reload_tls(flow.cluster, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "without TLS"));
    flow_close(&flow);
}
END_TEST

/* ---- authenticators ---- */

static struct exchange {
    uint32_t responds, rounds, finishes;
    int32_t refuse_at;   /* refuse in this round; −1: never */
    bool believe;
    const char *password;
    int32_t size;        /* of every token; 0: PLAIN's */
} seen;

static int32_t respond(const cqlring_auth_exchange *exchange, uint8_t *token, uint32_t capacity, cqlring_error *error, void *context)
{
    struct exchange *all = context;
    ck_assert_ptr_nonnull(strstr(exchange->authenticator, "PasswordAuthenticator"));
    ck_assert_ptr_nonnull(strchr(exchange->address, ':'));
    ck_assert_uint_eq(capacity, 4096);
    all->responds++;
    ck_assert_int_eq(cqlring_execute_sync(NULL, NULL, NULL), CQLRING_INVALID); /* a callback */
    if (exchange->round == 0) {
        ck_assert_int_eq(exchange->challenge.size, -1);
        for (int i = 0; i < CQLRING_AUTH_STATE_SIZE; i++)
            ck_assert_uint_eq(exchange->state[i], 0);
        memset(exchange->state, 0x5A, CQLRING_AUTH_STATE_SIZE);
    } else {
        char text[32];
        int length = snprintf(text, sizeof text, "round %u", exchange->round);
        ck_assert_int_eq(exchange->challenge.size, length);
        ck_assert_mem_eq(exchange->challenge.data, text, (size_t)length);
        ck_assert_uint_eq(exchange->state[CQLRING_AUTH_STATE_SIZE - 1], 0x5A);
        all->rounds++;
    }
    if ((int32_t)exchange->round == all->refuse_at) {
        snprintf(error->message, sizeof error->message, "no ticket for %s", exchange->address);
        return CQLRING_AUTH_REFUSE;
    }
    if (all->size != 0)
        return all->size;
    int size = snprintf((char *)token, capacity, "%cann%c%s", 0, 0, all->password);
    return size;
}

static bool finished(const cqlring_auth_exchange *exchange, void *context)
{
    struct exchange *all = context;
    ck_assert_uint_eq(exchange->state[0], 0x5A);
    all->finishes++;
    return all->believe;
}

static const cqlring_authenticator authenticator = {.struct_size = sizeof authenticator, .respond = respond, .finished = finished, .context = &seen};

static void start_auth(struct flow *flow, uint32_t rounds)
{
    start(flow, NULL);
    flow->node_options.user = "ann";
    flow->node_options.password = "secret-word";
    flow->node_options.auth_rounds = rounds;
    flow->options.authenticator = &authenticator;
    seen = (struct exchange){.refuse_at = -1, .believe = true, .password = "secret-word"};
    flow_start(flow);
}

START_TEST(an_authenticator_answers_each_challenge_of_each_connection)
{
    struct flow flow;
    start_auth(&flow, 3);
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_eq(seen.responds, 2 * 4); /* control's and the pool's connection */
    ck_assert_uint_eq(seen.rounds, 2 * 3);
    ck_assert_uint_eq(seen.finishes, 2);
    cqlring_connection_info connections[4];
    ck_assert_uint_eq(cqlring_cluster_connections(flow.cluster, connections, 4), 2);
    ck_assert_ptr_nonnull(strstr(connections[1].authenticator, "PasswordAuthenticator"));
    ck_assert_ptr_null(strstr(watch_log_text(), "secret-word"));
    flow_close(&flow);
}
END_TEST

static void ck_assert_refused(struct flow *flow, const char *words)
{
    cqlring_error error = {0};
    cqlring_status status = flow_try_open(flow, &error);
    ck_assert_msg(status == CQLRING_AUTH, "%s: %s", cqlring_status_name(status), error.message);
    ck_assert_msg(strstr(error.message, words) != NULL, "\"%s\" does not say \"%s\"", error.message, words);
}

START_TEST(an_authenticator_may_refuse_and_says_why)
{
    for (int32_t round = 0; round < 2; round++) {
        struct flow flow;
        start_auth(&flow, 1);
        seen.refuse_at = round;
        ck_assert_refused(&flow, "the authenticator refuses: no ticket for 127.0.0.1:");
        flow_close(&flow);
        ck_assert_uint_eq(seen.finishes, 0);
    }
    struct flow flow;
    start_auth(&flow, 0);
    seen.size = 5000;
    ck_assert_refused(&flow, "its token of 5000 bytes is larger than 4096");
    flow_close(&flow);
    start_auth(&flow, 0);
    seen.password = "another";
    ck_assert_refused(&flow, "incorrect");
    flow_close(&flow);
}
END_TEST

START_TEST(a_server_that_is_not_believed_is_given_up)
{
    struct flow flow;
    start_auth(&flow, 0);
    seen.believe = false;
    ck_assert_refused(&flow, "does not believe");
    flow_close(&flow);
    ck_assert_uint_ge(seen.finishes, 1);
}
END_TEST

START_TEST(an_authenticator_and_a_password_are_not_given_together)
{
    struct flow flow;
    cqlring_error error;
    cqlring_authenticator wrong = authenticator;
    start_auth(&flow, 0);
    flow.options.user = "ann";
    flow.options.password = "secret-word";
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    flow.options.user = flow.options.password = NULL;
    wrong.respond = NULL;
    flow.options.authenticator = &wrong;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    wrong = authenticator;
    wrong.struct_size = 4;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_INVALID);
    flow_close(&flow);
}
END_TEST

/* It opens with the first node; the others are still asking who we are when it is closed. */
START_TEST(a_session_closed_in_the_middle_of_a_startup_is_not_looked_at_again)
{
    struct flow flow;
    start(&flow, NULL);
    flow.node_options.nodes = 8;
    flow.node_options.user = "ann";
    flow.node_options.password = "secret-word";
    flow.options.authenticator = &authenticator;
    seen = (struct exchange){.refuse_at = -1, .believe = true, .password = "secret-word"};
    flow_start(&flow);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    flow.options.contact_points = node_address(flow.node, 0);
    flow.options.port = node_port(flow.node, 0);
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &flow.options, &flow.cluster, NULL));
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
    for (int i = 0; i < 100; i++) {
        cqlring_session *session = NULL;
        flow_ok(cqlring_session_open_sync(flow.cluster, &options, &session, NULL));
        cqlring_session_release(session);
    }
    watch_pass(&flow, 30);
    flow_close(&flow);
}
END_TEST

/* ---- all options as text ---- */

START_TEST(the_options_are_told_and_no_secret_among_them)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.node_options.user = "ann";
    flow.node_options.password = "secret-word";
    flow.options.user = "ann";
    flow.options.password = "secret-word";
    tls.key_password = "secret-key-word";
    flow.options.application_name = "two\nlines";
    flow.options.heartbeat_us = 12345678;
    flow.options.allow_nodes = "127.0.0.1, [::1]:9042";
    flow.options.slow_after_us = -1;
    flow.session_options.keyspace = "ks";
    flow_start(&flow);
    flow_open(&flow);
    static char text[1 << 16];
    size_t length = cqlring_cluster_options_text(flow.cluster, text, sizeof text);
    ck_assert_uint_eq(strlen(text), length);
    static const char *const lines[] = {"\ncluster.heartbeat_us = 12345678\n",
                                        "\ncluster.password = (set)\n",
                                        "\ncluster.user = ann\n",
                                        "\ncluster.connect_timeout_us = 5000000\n",
                                        "\ncluster.application_name = two?lines\n",
                                        "\ncluster.local_datacenter = datacenter1\n",
                                        "\ncluster.local_datacenter_is = guessed\n",
                                        "\ntls.key_password = (set)\n",
                                        "\ntls.verify = full\n",
                                        "\ntls.resume = yes\n",
                                        "\ncluster.allow_nodes = 127.0.0.1, [::1]:9042\n",
                                        "\ncluster.deny_nodes = (none)\n",
                                        "\ncluster.slow_after_us = -1\n",
                                        "\ncluster.schema_metadata = when asked for\n",
                                        "\ncluster.retry_policy = (none)\n",
                                        "\nsession.speculation_max = 0\n",
                                        "\nruntime.lanes = 1\n",
                                        "\nsession.keyspace = ks\n",
                                        "\nsession.consistency = LOCAL_ONE\n",
                                        "\nsession.timeout_us = 12000000\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no%sin\n%s", lines[i], text);
    ck_assert_ptr_null(strstr(text, "secret"));
    ck_assert_uint_eq(cqlring_cluster_options_text(flow.cluster, NULL, 0), length);
    ck_assert_uint_gt(cqlring_cluster_options_text(NULL, text, sizeof text), 0);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    if (!secure_make())
        return 1;
    Suite *suite = suite_create("secure");
    TCase *tcase = tcase_create("secure");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_connection_that_comes_back_resumes_its_session);
    tcase_add_test(tcase, resumption_can_be_switched_off);
    tcase_add_test(tcase, a_server_that_cannot_bear_a_ticket_is_asked_again_at_once_without_one);
    tcase_add_loop_test(tcase, tl_02_a_foreign_event_loop_drives_tls, 0, 2);
    tcase_add_test(tcase, ten_nodes_take_a_bulk_job_through_tls);
    tcase_add_test(tcase, new_certificates_are_used_by_the_next_connections);
    tcase_add_test(tcase, without_a_reload_the_old_certificate_goes_on_being_refused);
    tcase_add_test(tcase, certificates_are_read_again_while_connections_come_and_go);
    tcase_add_test(tcase, files_that_cannot_be_used_change_nothing);
    tcase_add_test(tcase, an_authenticator_answers_each_challenge_of_each_connection);
    tcase_add_test(tcase, an_authenticator_may_refuse_and_says_why);
    tcase_add_test(tcase, a_server_that_is_not_believed_is_given_up);
    tcase_add_test(tcase, an_authenticator_and_a_password_are_not_given_together);
    tcase_add_test(tcase, a_session_closed_in_the_middle_of_a_startup_is_not_looked_at_again);
    tcase_add_test(tcase, the_options_are_told_and_no_secret_among_them);
    suite_add_tcase(suite, tcase);
    int failed = flow_main(suite);
    secure_remove();
    return failed;
}
