/* SPDX-License-Identifier: Apache-2.0 */

/* TLS: who is believed, what is said when it does not work out, and bulk jobs through it. */

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "relay.h"
#include "secure.h"
#include "watch.h"

/* Resident memory says nothing where freed memory is kept for its redzones or shadows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CAN_WEIGH = 0 };
#else
enum { CAN_WEIGH = 1 };
#endif

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
static cqlring_tls_options tls;

static void start(struct flow *flow, const char *certificate)
{
    flow_init(flow);
    watch_log(flow);
    secure_flow(flow, certificate, &tls);
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 50000;
}

static void ck_assert_in(struct flow *flow, const char *version)
{
    flow_open(flow);
    flow_cql(flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_gt(watch_log_count(version), 0);
}

static void ck_assert_refused(struct flow *flow, cqlring_status expected, const char *words)
{
    cqlring_error error = {0};
    cqlring_status status = flow_try_open(flow, &error);
    ck_assert_msg(status == expected, "%s, not %s: %s", cqlring_status_name(status), cqlring_status_name(expected), error.message);
    ck_assert_msg(strstr(error.message, words) != NULL, "\"%s\" does not say \"%s\"", error.message, words);
    ck_assert_ptr_nonnull(strstr(error.message, "127.0.0.1:"));
}

/* ---- who is believed ---- */

START_TEST(tl_02_both_versions_are_spoken_in_every_thread_mode)
{
    for (int32_t version = 12; version <= 13; version++) {
        struct flow flow;
        start(&flow, "node-good");
        tls.version_min = tls.version_max = version;
        flow_start(&flow);
        ck_assert_in(&flow, version == 12 ? "TLS 1.2" : "TLS 1.3");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(a_certificate_for_another_host_is_refused_unless_that_is_asked_for)
{
    struct flow flow;
    start(&flow, "node-wronghost");
    flow_start(&flow);
    ck_assert_refused(&flow, CQLRING_TLS, "elsewhere.example");
    flow_close(&flow);

    start(&flow, "node-wronghost");
    tls.verify = CQLRING_TLS_CHAIN;
    flow_start(&flow);
    ck_assert_in(&flow, "TLS");
    flow_close(&flow);

    start(&flow, "node-wronghost");
    tls.server_name = "elsewhere.example";
    flow_start(&flow);
    ck_assert_in(&flow, "TLS");
    flow_close(&flow);
}
END_TEST

START_TEST(a_certificate_of_an_unknown_ca_is_refused)
{
    for (int chain = 0; chain < 2; chain++) {
        struct flow flow;
        start(&flow, "node-good");
        tls.ca_file = secure_file("wrongca.pem");
        tls.verify = chain ? CQLRING_TLS_CHAIN : CQLRING_TLS_FULL;
        flow_start(&flow);
        ck_assert_refused(&flow, CQLRING_TLS, "not among the trusted CAs");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(an_expired_certificate_is_refused)
{
    struct flow flow;
    start(&flow, "node-expired");
    flow_start(&flow);
    ck_assert_refused(&flow, CQLRING_TLS, "expired on 2020-01-01");
    flow_close(&flow);
}
END_TEST

START_TEST(without_verification_any_certificate_will_do)
{
    static const char *const certificates[] = {"node-wronghost", "node-expired", "node-good"};
    for (int i = 0; i < 3; i++) {
        struct flow flow;
        start(&flow, certificates[i]);
        tls.verify = CQLRING_TLS_NONE;
        tls.ca_file = i == 2 ? secure_file("wrongca.pem") : NULL;
        flow_start(&flow);
        ck_assert_in(&flow, "TLS");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(tl_06_every_certificate_of_a_bundle_is_trusted)
{
    struct flow flow;
    start(&flow, "node-good"); /* signed by the third of it */
    tls.ca_file = secure_file("bundle.pem");
    flow_start(&flow);
    ck_assert_in(&flow, "TLS");
    flow_close(&flow);
}
END_TEST

static void with_client(struct flow *flow, const char *name, int32_t version)
{
    static char files[2][128];
    start(flow, "node-good");
    flow->node_options.tls_client_ca = secure_file("ca.pem");
    tls.version_min = tls.version_max = version;
    if (name != NULL) {
        snprintf(files[0], sizeof files[0], "%s.pem", secure_file(name));
        snprintf(files[1], sizeof files[1], "%s.key", secure_file(name));
        tls.certificate_file = files[0];
        tls.key_file = files[1];
    }
    flow_start(flow);
}

START_TEST(tl_06_a_client_certificate_goes_with_its_intermediate)
{
    for (int32_t version = 12; version <= 13; version++) {
        struct flow flow;
        with_client(&flow, "client-chain", version);
        ck_assert_in(&flow, "TLS");
        flow_close(&flow);
        with_client(&flow, "client", version);
        ck_assert_in(&flow, "TLS");
        flow_close(&flow);
    }
}
END_TEST

/* With TLS 1.3 the client learns of it only behind its own handshake, in startup. */
START_TEST(a_missing_or_unknown_client_certificate_is_told_as_that)
{
    for (int32_t version = 12; version <= 13; version++) {
        struct flow flow;
        with_client(&flow, NULL, version);
        ck_assert_refused(&flow, CQLRING_TLS, "client certificate");
        flow_close(&flow);
        with_client(&flow, "client-wrongca", version);
        ck_assert_refused(&flow, CQLRING_TLS, "client certificate's CA");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(files_that_cannot_be_used_are_refused_at_the_call)
{
    struct flow flow;
    start(&flow, "node-good");
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    cqlring_future *future;
    cqlring_error error;
    const cqlring_tls_options good = tls;
    for (int i = 0; i < 5; i++) {
        tls = good;
        if (i == 0)
            tls.ca_file = "/nonexistent/ca.pem";
        else if (i == 1)
            tls.ca_file = secure_file("ca.key");
        else if (i == 2)
            tls.certificate_file = secure_file("client.pem"), tls.key_file = secure_file("ca.key");
        else if (i == 3)
            tls.version_min = 11;
        else
            tls.verify = (cqlring_tls_verify)3;
        cqlring_status status = cqlring_cluster_open(flow.runtime, &flow.options, &future, &error);
        ck_assert_msg(status == CQLRING_INVALID && strstr(error.message, "TLS") != NULL, "%d: %s", i, cqlring_status_name(status));
    }
    flow_close(&flow);
}
END_TEST

/* ---- names ---- */

/* The server name in a ClientHello; empty when there is none. */
static void server_name_of(const uint8_t *hello, size_t size, char out[256])
{
    out[0] = '\0';
    ck_assert_uint_gt(size, 44);
    ck_assert_uint_eq(hello[0], 0x16);
    size_t at = 5 + 4 + 2 + 32;
    at += 1 + (size_t)hello[at];                                  /* session id */
    at += 2 + (size_t)(hello[at] << 8 | hello[at + 1]);           /* ciphers */
    at += 1 + (size_t)hello[at];                                  /* compression */
    size_t end = at + 2 + (size_t)(hello[at] << 8 | hello[at + 1]);
    ck_assert_uint_le(end, size);
    for (at += 2; at + 4 <= end;) {
        size_t type = (size_t)(hello[at] << 8 | hello[at + 1]), length = (size_t)(hello[at + 2] << 8 | hello[at + 3]);
        if (type == 0) {
            size_t name = (size_t)(hello[at + 7] << 8 | hello[at + 8]);
            memcpy(out, hello + at + 9, name);
            out[name] = '\0';
        }
        at += 4 + length;
    }
}

/* Is localhost 127.0.0.1 here? */
static bool has_localhost(void)
{
    struct addrinfo *list = NULL;
    bool found = false;
    if (getaddrinfo("localhost", NULL, &(struct addrinfo){.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, &list) != 0)
        return false;
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next)
        found = found || ((const struct sockaddr_in *)(const void *)info->ai_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    freeaddrinfo(list);
    return found;
}

START_TEST(tl_05_names_are_sent_and_addresses_are_not)
{
    const struct {
        const char *host, *server_name, *sent;
    } cases[] = {{"127.0.0.1", NULL, ""}, {"localhost", NULL, "localhost"}, {"127.0.0.1", "node.of.cluster.example", "node.of.cluster.example"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].host, "localhost") == 0 && !has_localhost()) {
            printf("not run: tl_05 with a name: localhost is not 127.0.0.1 here (/etc/hosts)\n");
            continue;
        }
        struct flow flow;
        start(&flow, "node-good");
        tls.server_name = cases[i].server_name;
        flow_start(&flow);
        struct relay *relay = relay_start(NULL, node_address(flow.node, 0), node_port(flow.node, 0));
        char points[64];
        snprintf(points, sizeof points, "%s:%u", cases[i].host, relay_port(relay));
        flow.options.contact_points = points;
        ck_assert_in(&flow, "TLS");
        ck_assert_uint_eq(relay_count(relay), 2);
        for (uint32_t number = 0; number < 2; number++) { /* control's, and the pool's */
            uint8_t hello[2048];
            char name[256];
            server_name_of(hello, relay_first(relay, number, hello, sizeof hello), name);
            ck_assert_str_eq(name, cases[i].sent);
        }
        flow_close(&flow);
        relay_stop(relay);
    }
}
END_TEST

/* ---- not TLS, or no longer ---- */

START_TEST(tl_10_a_plain_server_on_the_tls_port_is_told)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.node_options.tls_cert = flow.node_options.tls_key = NULL;
    flow_start(&flow);
    ck_assert_refused(&flow, CQLRING_TLS, "does not speak TLS on this port");
    flow_close(&flow);
}
END_TEST

START_TEST(tl_10_a_tls_server_on_the_plain_port_is_told)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.options.tls = NULL;
    flow_start(&flow);
    ck_assert_refused(&flow, CQLRING_UNREACHABLE, "want TLS"); /* OpenSSL closes without an alert: so it can only be supposed */
    flow_close(&flow);
}
END_TEST

struct spoiling {
    struct relay *relay;
    struct node_cluster *node;
    int how;
    bool done;
};

static void spoil(const cqlring_completion *completion, void *context)
{
    struct spoiling *plan = context;
    if (plan->done || completion->row < 3000)
        return;
    plan->done = true;
    if (plan->how == 0)
        relay_flip(plan->relay, RELAY_DOWN, 40); /* inside a record's payload */
    else if (plan->how == 1)
        relay_cut(plan->relay); /* no close_notify */
    else if (plan->how == 2)
        node_cut(plan->node, NODE_ALL, 0);
    else
        relay_flip(plan->relay, RELAY_UP, 40);
}

/* In the middle of a job the bytes go wrong: every row has one outcome, and idempotent ones succeed all the same. */
static void spoiled_job(int how, bool retried, const char *words)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.node_options.delay_us = flow.node_options.jitter_us = 2000; /* so that rows are in flight whenever it strikes */
    flow_start(&flow);
    struct relay *relay = relay_start(NULL, node_address(flow.node, 0), node_port(flow.node, 0));
    flow.options.contact_points = relay_contact(relay);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 6000, 100);
    flow_sink_init(&sink, 6000);
    struct spoiling plan = {.relay = relay, .node = flow.node, .how = how};
    sink.each = spoil;
    sink.context = &plan;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = retried ? &idempotent : NULL, .window = 200};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
    ck_assert(plan.done);
    ck_assert_uint_eq(sink.last, 6000);
    ck_assert_uint_eq(sink.twice, 0);
    if (retried) {
        ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 6000);
    } else {
        if (how == 0) /* a cut may come when nothing is under way, and the next bytes up may be another connection's */
            ck_assert_uint_gt(sink.failed, 0);
        ck_assert_uint_le(sink.failed, 200);
        ck_assert_uint_eq(sink.by_status[CQLRING_LOST], sink.failed);
        ck_assert_uint_eq(sink.maybe, sink.failed);
        ck_assert_msg(words == NULL || sink.failed == 0 || strstr(sink.first_error, words) != NULL, "\"%s\" does not say \"%s\"", sink.first_error, words);
    }
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
    relay_stop(relay);
}

START_TEST(tl_10_a_damaged_record_fails_what_is_in_flight_once)
{
    spoiled_job(0, false, "damaged");
    spoiled_job(0, true, NULL);
}
END_TEST

START_TEST(tl_10_a_cut_without_close_notify_fails_what_is_in_flight_once)
{
    spoiled_job(1, false, NULL); /* an end or a reset, as it comes */
    spoiled_job(1, true, NULL);
}
END_TEST

START_TEST(a_cut_by_the_server_in_the_middle_of_a_job_fails_what_is_in_flight_once)
{
    spoiled_job(2, false, NULL);
    spoiled_job(2, true, NULL);
}
END_TEST

START_TEST(a_record_of_ours_that_is_damaged_on_its_way_costs_no_idempotent_row)
{
    spoiled_job(3, false, NULL);
    spoiled_job(3, true, NULL);
}
END_TEST

START_TEST(tl_10_close_notify_in_the_middle_of_a_frame_fails_the_request)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, "node-good");
        flow.options.protocol_version = version;
        flow_start(&flow);
        flow_open(&flow);
        flow_fault(&flow, "half:table=ks.t,times=1");
        cqlring_error error = {0};
        ck_assert_int_eq(flow_try(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, &error), CQLRING_LOST);
        ck_assert_ptr_nonnull(strstr(error.message, "closed the connection"));
        ck_assert(error.may_have_been_applied);
        flow_close(&flow);
    }
}
END_TEST

START_TEST(tl_07_a_node_whose_certificate_was_bad_is_used_once_it_is_good)
{
    struct flow flow;
    start(&flow, "node-good");
    flow_start(&flow);
    flow_open(&flow);
    uint16_t port = node_port(flow.node, 0);
    char good[2][128];
    snprintf(good[0], sizeof good[0], "%s", flow.node_options.tls_cert);
    snprintf(good[1], sizeof good[1], "%s", flow.node_options.tls_key);
    node_cluster_stop(flow.node);
    flow.node_options.port = port;
    flow.node_options.tls_cert = secure_file("node-expired.pem");
    flow.node_options.tls_key = secure_file("node-expired.key");
    flow_start(&flow);
    watch_for(&flow, watch_logged, "expired on 2020-01-01");
    node_cluster_stop(flow.node);
    flow.node_options.tls_cert = good[0];
    flow.node_options.tls_key = good[1];
    flow_start(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

/* ---- load ---- */

START_TEST(fifty_thousand_rows_go_through_tls)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.options.protocol_version = _i < 2 ? 4 : 5;
    tls.version_min = tls.version_max = _i % 2 == 0 ? 12 : 13;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 50000, 100);
    flow_sink_init(&sink, 50000);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1024};
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, &sink, &options, &summary, NULL));
    ck_assert_uint_eq(sink.ok, 50000);
    ck_assert_uint_eq(sink.twice, 0);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 50000);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(large_values_go_through_tls_both_ways)
{
    struct flow flow;
    start(&flow, "node-good");
    flow.options.protocol_version = _i + 4;
    flow_start(&flow);
    flow_open(&flow);
    enum { SIZE = 3 << 20 };
    uint8_t *bytes = malloc(SIZE);
    ck_assert_ptr_nonnull(bytes);
    flow_blob(7, bytes, SIZE);
    cqlring_bytes values[2] = {flow_bigint(1), {bytes, SIZE}};
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, FLOW_INSERT, values, 2, NULL, NULL, NULL));
    flow_ok(ask_text(&flow, FLOW_SELECT, values, 1, NULL, &result, NULL));
    cqlring_bytes cell = ask_cell(result, 0, 0);
    ck_assert_int_eq(cell.size, SIZE);
    ck_assert(memcmp(cell.data, bytes, SIZE) == 0);
    cqlring_result_release(result);
    free(bytes);
    flow_close(&flow);
}
END_TEST

/* ---- leaks ---- */

static uint32_t descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint32_t count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static long resident_kb(void)
{
    long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

START_TEST(tl_08_connections_that_come_and_go_leave_nothing)
{
    enum { WARM = 30 };
    const uint32_t cycles = getenv("CQLRING_LONG") != NULL ? 10000 : 300; /* of which a third is cut in the middle of the handshake */
    struct flow flow;
    start(&flow, "node-good");
    flow_start(&flow);
    struct relay *relay = relay_start(NULL, node_address(flow.node, 0), node_port(flow.node, 0));
    relay_cut_after(relay, RELAY_DOWN, 700, 3); /* in the middle of the server's flight */
    flow.options.contact_points = relay_contact(relay);
    flow.options.port = relay_port(relay);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    uint32_t fds = 0, opened = 0;
    long resident = 0;
    (void)resident; /* the sanitizers keep memory of their own */
    for (uint32_t cycle = 0; cycle < WARM + cycles; cycle++) {
        if (cycle == WARM) {
            fds = descriptors();
            resident = resident_kb();
        }
        cqlring_cluster *cluster = NULL;
        cqlring_future *closed = NULL;
        if (cqlring_cluster_open_sync(flow.runtime, &flow.options, &cluster, NULL) != CQLRING_OK)
            continue;
        opened++;
        flow_ok(cqlring_cluster_close(cluster, 0, &closed, NULL));
        flow_ok(ask_end(closed, NULL));
        cqlring_cluster_release(cluster);
    }
    ck_assert_uint_eq(relay_count(relay), WARM + cycles);
    ck_assert_uint_eq(opened, WARM + cycles - (WARM + cycles) / 3);
    ck_assert_uint_le(descriptors(), fds + 8); /* the last ones may be on their way out */
    if (CAN_WEIGH)
        ck_assert_int_le(resident_kb(), resident + 3000);
    flow_close(&flow);
    relay_stop(relay);
}
END_TEST

int main(void)
{
    if (!secure_make())
        return 77;
    Suite *suite = suite_create("tls");
    TCase *tcase = tcase_create("tls");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tl_02_both_versions_are_spoken_in_every_thread_mode);
    tcase_add_test(tcase, a_certificate_for_another_host_is_refused_unless_that_is_asked_for);
    tcase_add_test(tcase, a_certificate_of_an_unknown_ca_is_refused);
    tcase_add_test(tcase, an_expired_certificate_is_refused);
    tcase_add_test(tcase, without_verification_any_certificate_will_do);
    tcase_add_test(tcase, tl_06_every_certificate_of_a_bundle_is_trusted);
    tcase_add_test(tcase, tl_06_a_client_certificate_goes_with_its_intermediate);
    tcase_add_test(tcase, a_missing_or_unknown_client_certificate_is_told_as_that);
    tcase_add_test(tcase, files_that_cannot_be_used_are_refused_at_the_call);
    tcase_add_test(tcase, tl_05_names_are_sent_and_addresses_are_not);
    tcase_add_test(tcase, tl_10_a_plain_server_on_the_tls_port_is_told);
    tcase_add_test(tcase, tl_10_a_tls_server_on_the_plain_port_is_told);
    tcase_add_test(tcase, tl_10_a_damaged_record_fails_what_is_in_flight_once);
    tcase_add_test(tcase, tl_10_a_cut_without_close_notify_fails_what_is_in_flight_once);
    tcase_add_test(tcase, a_cut_by_the_server_in_the_middle_of_a_job_fails_what_is_in_flight_once);
    tcase_add_test(tcase, a_record_of_ours_that_is_damaged_on_its_way_costs_no_idempotent_row);
    tcase_add_test(tcase, tl_10_close_notify_in_the_middle_of_a_frame_fails_the_request);
    tcase_add_test(tcase, tl_07_a_node_whose_certificate_was_bad_is_used_once_it_is_good);
    tcase_add_loop_test(tcase, fifty_thousand_rows_go_through_tls, 0, 4);
    tcase_add_loop_test(tcase, large_values_go_through_tls_both_ways, 0, 2);
    tcase_add_test(tcase, tl_08_connections_that_come_and_go_leave_nothing);
    suite_add_tcase(suite, tcase);
    int result = flow_main(suite);
    secure_remove();
    return result;
}
