/* SPDX-License-Identifier: Apache-2.0 */

/* Getting in: versions, what STARTUP says, contact points, and servers that do not answer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "relay.h"
#include "watch.h"

static void start(struct flow *flow)
{
    flow_init(flow);
    watch_log(flow);
}

/* The version that every open connection of the node speaks. */
static uint8_t version_spoken(struct flow *flow)
{
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow->node, NODE_ALL, conns, 16);
    ck_assert_uint_ge(count, 2); /* control and pool */
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(conns[i].version, conns[0].version);
    cqlring_node_info info;
    ck_assert(watch_node(flow, 0, &info));
    ck_assert_uint_eq(info.protocol_version, conns[0].version);
    return conns[0].version;
}

static void ck_assert_refused(struct flow *flow, cqlring_status expected, const char *const *words, size_t count)
{
    cqlring_error error = {0};
    cqlring_status status = flow_try_open(flow, &error);
    ck_assert_msg(status == expected, "%s, not %s: %s", cqlring_status_name(status), cqlring_status_name(expected), error.message);
    ck_assert_int_eq(error.status, expected);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(strstr(error.message, words[i]) != NULL, "\"%s\" does not say \"%s\"", error.message, words[i]);
}
#define REFUSED(flow, status, ...) \
    ck_assert_refused(flow, status, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* ---- versions ---- */

START_TEST(version_5_is_spoken_where_the_server_has_it)
{
    struct flow flow;
    flow_up(&flow);
    ck_assert_uint_eq(version_spoken(&flow), 5);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 1);
    flow_close(&flow);
}
END_TEST

START_TEST(version_4_is_spoken_when_it_is_asked_for)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.protocol_version = 4;
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_uint_eq(version_spoken(&flow), 4);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

/* All connections together: the version is found out once, by the control connection, not once a connection. */
START_TEST(version_4_is_stepped_down_to_however_5_is_refused)
{
    for (int style = NODE_REFUSE_CASSANDRA_5; style <= NODE_REFUSE_CLOSE; style++) {
        struct flow flow;
        start(&flow);
        flow.node_options.version_max = 4;
        flow.node_options.refusal = (enum node_refusal)style;
        flow_start(&flow);
        cqlring_error error = {0};
        cqlring_status status = flow_try_open(&flow, &error);
        ck_assert_msg(status == CQLRING_OK, "refusal style %d: %s", style, error.message);
        ck_assert_uint_eq(version_spoken(&flow), 4);
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_msg(counters.refused <= 1, "refusal style %d: refused %lu times", style, (unsigned long)counters.refused);
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(pd_02_an_explicit_version_is_not_lowered)
{
    for (int style = NODE_REFUSE_CASSANDRA_5; style <= NODE_REFUSE_BETA; style++) {
        struct flow flow;
        start(&flow);
        flow.node_options.version_max = 4;
        flow.node_options.refusal = (enum node_refusal)style;
        flow.options.protocol_version = 5;
        flow_start(&flow);
        REFUSED(&flow, CQLRING_PROTOCOL, "v5", "no version below v5 is allowed", node_address(flow.node, 0));
        flow_close(&flow);
    }
}
END_TEST

START_TEST(version_4_on_a_server_that_has_left_it_behind_is_told)
{
    struct flow flow;
    start(&flow);
    flow.node_options.version_min = 5;
    flow.options.protocol_version = 4;
    flow_start(&flow);
    REFUSED(&flow, CQLRING_SERVER, "Rejecting Protocol Version 4");
    flow_close(&flow);
}
END_TEST

START_TEST(pd_03_a_beta_answer_means_the_next_lower_version)
{
    static const char *const faults[] = {"beta:opcode=OPTIONS,times=1", "beta:opcode=STARTUP,times=1"};
    struct flow flow;
    start(&flow);
    flow_start(&flow);
    flow_fault(&flow, faults[_i]);
    flow_open(&flow);
    ck_assert_uint_eq(version_spoken(&flow), 4);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

START_TEST(pd_05_any_release_version_will_do)
{
    static const char *const versions[] = {"4.0-SNAPSHOT", "4.0-beta4-SNAPSHOT", "5.0", "3.11.4.2284", "2025.1.0~rc2-0.2025", "", "-", "version five"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        struct flow flow;
        start(&flow);
        flow.node_options.release_version = versions[i];
        flow_start(&flow);
        flow_open(&flow);
        cqlring_node_info info;
        ck_assert(watch_node(&flow, 0, &info));
        if (versions[i][0] != '\0')
            ck_assert_str_eq(info.release_version, versions[i]);
        flow_close(&flow);
    }
}
END_TEST

/* ---- STARTUP ---- */

static void ck_assert_startup(struct flow *flow, const char *key, const char *expected)
{
    char value[128] = "";
    bool sent = node_startup_option(flow->node, 0, key, value, sizeof value);
    ck_assert_msg(sent == (expected != NULL), "%s was %s", key, sent ? "sent" : "not sent");
    if (expected != NULL)
        ck_assert_str_eq(value, expected);
}

START_TEST(startup_names_driver_and_application)
{
    struct flow flow;
    start(&flow);
    flow.options.application_name = "grüße";
    flow.options.application_version = "7.8.9-rc1";
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_startup(&flow, "CQL_VERSION", "3.0.0");
    ck_assert_startup(&flow, "DRIVER_NAME", "cqlring");
    ck_assert_startup(&flow, "DRIVER_VERSION", cqlring_version());
    ck_assert_startup(&flow, "APPLICATION_NAME", "grüße");
    ck_assert_startup(&flow, "APPLICATION_VERSION", "7.8.9-rc1");
    ck_assert_startup(&flow, "THROW_ON_OVERLOAD", "1");
    ck_assert_startup(&flow, "COMPRESSION", NULL);
    flow_close(&flow);

    start(&flow);
    flow.options.throw_on_overload = CQLRING_NO;
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_startup(&flow, "THROW_ON_OVERLOAD", NULL);
    ck_assert_startup(&flow, "APPLICATION_NAME", NULL);
    flow_close(&flow);
}
END_TEST

/* ---- contact points ---- */

START_TEST(contact_points_that_are_none_are_refused_at_the_call)
{
    static const char *const bad[] = {"host:",    "host:0",         "host:65536", ":9042",  "a,,b",      "[::1",
                                      "[::1]9042", "[::1]:x",       "a b",        "host:-1", "1:2:3:4:z", "[127.0.0.1",
                                      "[]:9042",  "127.0.0.1,host:99999"};
    struct flow flow;
    start(&flow);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        flow.options.contact_points = bad[i];
        flow.options.port = 1;
        cqlring_error error = {0};
        cqlring_future *future = NULL;
        cqlring_status status = cqlring_cluster_open(flow.runtime, &flow.options, &future, &error);
        ck_assert_msg(status == CQLRING_INVALID, "\"%s\" was taken", bad[i]);
        ck_assert_ptr_null(future);
        ck_assert_ptr_nonnull(strstr(error.message, "contact point"));
    }
    flow_close(&flow);
}
END_TEST

START_TEST(names_that_nobody_knows_are_each_told)
{
    struct flow flow;
    start(&flow);
    flow.options.contact_points = "no-such-host.invalid, neither-this.invalid:1234";
    flow.options.port = 9042;
    REFUSED(&flow, CQLRING_UNREACHABLE, "no-such-host.invalid", "neither-this.invalid");
    flow_close(&flow);
}
END_TEST

START_TEST(a_port_where_nobody_listens_is_told)
{
    struct flow flow;
    start(&flow);
    struct relay *relay = relay_start(NULL, "127.0.0.1", 1);
    char address[64];
    snprintf(address, sizeof address, "%s", relay_contact(relay));
    relay_stop(relay); /* the port is free again */
    flow.options.contact_points = address;
    flow.options.port = 1;
    REFUSED(&flow, CQLRING_UNREACHABLE, address, "refused");
    flow_close(&flow);
}
END_TEST

START_TEST(rc_21_one_bad_contact_point_does_not_fail_the_open)
{
    struct flow flow;
    start(&flow);
    flow_start(&flow);
    char points[200];
    /* a name of nobody, a dead address, a name of which one address at least is alive */
    snprintf(points, sizeof points, "bad.invalid, 127.0.0.77:%u, " FLOW_NAME ":%u", node_port(flow.node, 0), node_port(flow.node, 0));
    flow.options.contact_points = points;
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

START_TEST(an_ipv6_address_and_a_path_are_contact_points_too)
{
    struct flow flow;
    start(&flow);
    flow.node_options.address = "::1";
    char message[200];
    flow.node = node_cluster_start(&flow.node_options, message, sizeof message);
    if (flow.node != NULL) { /* else there is no IPv6 here */
        char points[64];
        snprintf(points, sizeof points, "[::1]:%u", node_port(flow.node, 0));
        flow.options.contact_points = points;
        flow_open(&flow);
        flow_cql(&flow, "SELECT key FROM system.local");
    }
    flow_close(&flow);

    start(&flow);
    flow_start(&flow);
    char path[64];
    snprintf(path, sizeof path, "/tmp/cqlring-relay-%ld", (long)getpid());
    struct relay *relay = relay_start(path, node_address(flow.node, 0), node_port(flow.node, 0));
    flow.options.contact_points = path;
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_eq(relay_count(relay), 2);
    const cqlring_node *node;
    cqlring_node_info info;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, &node, 1), 1);
    cqlring_node_describe(node, &info);
    ck_assert_str_eq(info.address, path);
    relay_stop(relay);
    flow_close(&flow);
}
END_TEST

/* ---- servers that are not as they should be ---- */

START_TEST(rc_17_a_node_without_a_row_in_system_local_is_passed_over)
{
    struct flow flow;
    start(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_fault(&flow, "no-rows:table=system.local,node=0");
    char points[100];
    snprintf(points, sizeof points, "%s,%s", node_address(flow.node, 0), node_address(flow.node, 1));
    flow.options.contact_points = points;
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);

    start(&flow);
    flow_start(&flow);
    flow_fault(&flow, "no-rows:table=system.local");
    REFUSED(&flow, CQLRING_PROTOCOL, "system.local has no row", node_address(flow.node, 0));
    flow_close(&flow);
}
END_TEST

/* The limit is for TCP, TLS and startup together, whichever step it is that does not come. */
START_TEST(to_14_a_server_that_does_not_answer_ends_with_the_connect_timeout)
{
    static const char *const faults[] = {"accept-silent", "ignore:opcode=OPTIONS", "ignore:opcode=STARTUP", "ignore:opcode=AUTH_RESPONSE"};
    struct flow flow;
    start(&flow);
    flow.node_options.user = flow.options.user = "cassandra";
    flow.node_options.password = flow.options.password = "secret";
    flow.options.connect_timeout_us = 150000;
    flow_start(&flow);
    flow_fault(&flow, faults[_i]);
    int64_t from = watch_now_us();
    REFUSED(&flow, CQLRING_TIMEOUT, "not through after 150 ms", node_address(flow.node, 0));
    ck_assert_int_ge(watch_now_us() - from, 150000);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.ready, 0);
    flow_close(&flow);
}
END_TEST

/* Web servers, mail servers, databases of other kinds; and one that promises more than anybody wants to wait for. */
START_TEST(a_server_of_another_protocol_is_told_at_once)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 45, "does not speak CQL"},
        {"220 mail.example ESMTP\r\n", 24, "does not speak CQL"},
        {"\x15\x03\x03\x00\x02\x02\x46", 7, "speaks TLS on this port"},
        {"\x85\x00\x00\x00\x06\x0f\xff\xff\xff", 9, "more than frame_size_max"},
        {"\x85\x00\x00\x00\x06\xff\xff\xff\xff", 9, "more than frame_size_max"},
        {"\x85\x00\x00\x05\x06\x00\x00\x00\x02\x00\x00", 11, "stream 5"},
        {"\x85\x00\x00\x00\x08\x00\x00\x00\x04\x00\x00\x00\x01", 13, "opcode 0x08"},
        {"\x86\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00", 11, "v6"},
        {"\x85\x00\x00\x00\x06\x00\x00\x00\x02\x00\x09", 11, "cut short"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flow flow;
        start(&flow);
        struct relay *relay = relay_start(NULL, "127.0.0.1", 1);
        relay_say(relay, cases[i].bytes, cases[i].size);
        flow.options.contact_points = relay_contact(relay);
        flow.options.port = 1;
        REFUSED(&flow, i == 2 ? CQLRING_TLS : CQLRING_PROTOCOL, cases[i].words, relay_contact(relay));
        flow_close(&flow);
        relay_stop(relay);
    }
}
END_TEST

START_TEST(a_silent_node_does_not_keep_the_session_from_the_others)
{
    struct flow flow;
    start(&flow);
    flow.node_options.nodes = 2;
    flow.options.connect_timeout_us = 250000 * WATCH_SLOW;
    flow.options.reconnect_max_us = 150000;
    flow_start(&flow);
    flow_fault(&flow, "ignore:opcode=OPTIONS,node=1");
    flow_open(&flow);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    watch_for(&flow, watch_logged, "connect failed (2)");
    node_fault_remove(flow.node, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    flow_close(&flow);
}
END_TEST

/* A drained node accepts and closes: every attempt after the first waits, longer each time, so there are few of them. */
START_TEST(rc_24_a_node_that_accepts_and_closes_is_left_in_peace)
{
    struct flow flow;
    start(&flow);
    flow.options.reconnect_min_us = 20000;
    flow.options.reconnect_max_us = 100000;
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "accept-close");
    struct node_counters before, after;
    cqlring_stats stats_before = flow_stats(&flow);
    node_counters(flow.node, NODE_ALL, &before);
    node_cut(flow.node, NODE_ALL, 0);
    uint32_t passed = watch_pass(&flow, 600);
    node_counters(flow.node, NODE_ALL, &after);
    cqlring_stats stats = flow_stats(&flow);
    uint64_t attempts = after.connections - before.connections;
    /* control and pool; at once, 20, 40, 80, then every 100 ms less 15 % */
    ck_assert_msg(attempts >= 4 && attempts <= 2 * (6 + passed / 85), "%lu attempts in %u ms", (unsigned long)attempts, passed);
    ck_assert_msg(stats.submitter_turns - stats_before.submitter_turns <= 40 * attempts + passed, "%lu turns for %lu attempts",
                  (unsigned long)(stats.submitter_turns - stats_before.submitter_turns), (unsigned long)attempts);
    node_fault_remove(flow.node, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

START_TEST(rc_24_a_node_that_closes_after_startup_is_left_in_peace_too)
{
    struct flow flow;
    start(&flow);
    flow.options.reconnect_min_us = 20000;
    flow.options.reconnect_max_us = 100000;
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "answer-close:opcode=STARTUP");
    struct node_counters before, after;
    node_counters(flow.node, NODE_ALL, &before);
    node_cut(flow.node, NODE_ALL, 0);
    uint32_t passed = watch_pass(&flow, 600);
    node_counters(flow.node, NODE_ALL, &after);
    uint64_t attempts = after.connections - before.connections;
    ck_assert_msg(attempts >= 4 && attempts <= 2 * (6 + passed / 85), "%lu attempts in %u ms", (unsigned long)attempts, passed);
    node_fault_remove(flow.node, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

START_TEST(a_keyspace_that_does_not_exist_fails_its_session_alone)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "nowhere"};
    cqlring_session *session = NULL;
    cqlring_error error = {0};
    ck_assert_int_eq(cqlring_session_open_sync(flow.cluster, &options, &session, &error), CQLRING_SERVER);
    ck_assert_ptr_nonnull(strstr(error.message, "nowhere"));
    ck_assert_ptr_nonnull(strstr(error.message, "USE"));
    options.keyspace = "ks";
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &session, &error));
    cqlring_request request = {.session = session, .cql = cqlring_text("INSERT INTO t (k, v) VALUES (1, 0x01)")};
    flow_ok(cqlring_execute_sync(&request, NULL, &error));
    cqlring_session_release(session);
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (2, 0x01)");
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connect");
    TCase *tcase = tcase_create("connect");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, version_5_is_spoken_where_the_server_has_it);
    tcase_add_test(tcase, version_4_is_spoken_when_it_is_asked_for);
    tcase_add_test(tcase, version_4_is_stepped_down_to_however_5_is_refused);
    tcase_add_test(tcase, pd_02_an_explicit_version_is_not_lowered);
    tcase_add_test(tcase, version_4_on_a_server_that_has_left_it_behind_is_told);
    tcase_add_loop_test(tcase, pd_03_a_beta_answer_means_the_next_lower_version, 0, 2);
    tcase_add_test(tcase, pd_05_any_release_version_will_do);
    tcase_add_test(tcase, startup_names_driver_and_application);
    tcase_add_test(tcase, contact_points_that_are_none_are_refused_at_the_call);
    tcase_add_test(tcase, names_that_nobody_knows_are_each_told);
    tcase_add_test(tcase, a_port_where_nobody_listens_is_told);
    tcase_add_test(tcase, rc_21_one_bad_contact_point_does_not_fail_the_open);
    tcase_add_test(tcase, an_ipv6_address_and_a_path_are_contact_points_too);
    tcase_add_test(tcase, rc_17_a_node_without_a_row_in_system_local_is_passed_over);
    tcase_add_loop_test(tcase, to_14_a_server_that_does_not_answer_ends_with_the_connect_timeout, 0, 4);
    tcase_add_test(tcase, a_server_of_another_protocol_is_told_at_once);
    tcase_add_test(tcase, a_silent_node_does_not_keep_the_session_from_the_others);
    tcase_add_test(tcase, rc_24_a_node_that_accepts_and_closes_is_left_in_peace);
    tcase_add_test(tcase, rc_24_a_node_that_closes_after_startup_is_left_in_peace_too);
    tcase_add_test(tcase, a_keyspace_that_does_not_exist_fails_its_session_alone);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
