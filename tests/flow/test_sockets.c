/* SPDX-License-Identifier: Apache-2.0 */

/* How our sockets are set, and what a server is told of us with the first words on them. */

#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ask.h"
#include "watch.h"

/* ---- what is set ---- */

/* The library's ends of connections to the embedded node, which runs in this process: sockets whose peer has its port. */
static uint32_t our_sockets(struct flow *flow, int out[16])
{
    uint32_t count = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 || peer.sin_family != AF_INET || ntohs(peer.sin_port) != node_port(flow->node, 0))
            continue;
        ck_assert_uint_lt(count, 16);
        out[count++] = fd;
    }
    ck_assert_uint_ge(count, 2); /* the control connection and the session's */
    return count;
}

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    ck_assert_int_eq(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

static void fresh_socket(int *send_size, int *receive_size)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    *send_size = option_of(fd, SOL_SOCKET, SO_SNDBUF);
    *receive_size = option_of(fd, SOL_SOCKET, SO_RCVBUF);
    close(fd);
}

START_TEST(without_options_nothing_waits_and_silent_peers_are_asked)
{
    struct flow flow;
    flow_up(&flow);
    int fds[16];
    uint32_t count = our_sockets(&flow, fds);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(option_of(fds[i], IPPROTO_TCP, TCP_NODELAY), 1);
        ck_assert_int_eq(option_of(fds[i], SOL_SOCKET, SO_KEEPALIVE), 1);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(every_socket_is_set_as_asked)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.tcp_nodelay = CQLRING_YES;
    flow.options.tcp_keepalive = CQLRING_YES;
    flow.options.tcp_keepalive_us = 77000000;
    flow.options.socket_send_size = 30000;
    flow.options.socket_receive_size = 50000;
    flow_start(&flow);
    flow_open(&flow);
    int fds[16], send_size, receive_size;
    fresh_socket(&send_size, &receive_size);
    uint32_t count = our_sockets(&flow, fds);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(option_of(fds[i], IPPROTO_TCP, TCP_KEEPIDLE), 77);
        ck_assert_int_eq(option_of(fds[i], SOL_SOCKET, SO_SNDBUF), 60000); /* Linux tells, and takes, twice as much */
        ck_assert_int_eq(option_of(fds[i], SOL_SOCKET, SO_RCVBUF), 100000);
    }
    ck_assert_int_ne(send_size, 60000);
    flow_close(&flow);

    flow_init(&flow);
    flow.options.tcp_nodelay = CQLRING_NO;
    flow.options.tcp_keepalive = CQLRING_NO;
    flow_start(&flow);
    flow_open(&flow);
    count = our_sockets(&flow, fds);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(option_of(fds[i], IPPROTO_TCP, TCP_NODELAY), 0);
        ck_assert_int_eq(option_of(fds[i], SOL_SOCKET, SO_KEEPALIVE), 0);
    }
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
}
END_TEST

/* ---- what is told ---- */

/* Of each open connection: its CLIENT_ID, and how many have a DRIVER_CONFIG, the last of which is in report. */
static uint32_t told(struct flow *flow, char client_id[64], char *report, size_t size)
{
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow->node, NODE_ALL, conns, 16), reports = 0;
    ck_assert_uint_ge(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        char id[64] = "";
        ck_assert(node_startup_option(flow->node, conns[i].conn, "CLIENT_ID", id, sizeof id));
        if (i == 0)
            snprintf(client_id, 64, "%s", id);
        ck_assert_str_eq(client_id, id);
        if (node_startup_option(flow->node, conns[i].conn, "DRIVER_CONFIG", report, size)) {
            ck_assert(conns[i].registered); /* the control connection alone */
            reports++;
        }
    }
    return reports;
}

/* "connection.requests.orphaned.max"; NULL: it is not there. */
static const json_t *at(const json_t *root, const char *path)
{
    char name[64];
    while (root != NULL && *path != '\0') {
        size_t size = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)size, path);
        root = json_object_get(root, name);
        path += size + (path[size] == '.');
    }
    return root;
}

static void expect_number(const json_t *root, const char *path, int64_t wanted)
{
    ck_assert_msg(json_is_integer(at(root, path)), "%s is no number", path);
    ck_assert_msg(json_integer_value(at(root, path)) == wanted, "%s is %lld", path, (long long)json_integer_value(at(root, path)));
}

static void expect_text(const json_t *root, const char *path, const char *wanted)
{
    ck_assert_msg(json_is_string(at(root, path)), "%s is no text", path);
    ck_assert_str_eq(json_string_value(at(root, path)), wanted);
}

START_TEST(a_server_is_told_the_options_in_force_once_and_no_secret)
{
    static const char *const names[] = {"rack1", "r\"\\\n\x01 ü"};
    char first_id[64] = "";
    for (int odd = 0; odd < 2; odd++) {
        struct flow flow;
        flow_init(&flow);
        flow.node_options.racks = &names[odd];
        flow.node_options.user = flow.options.user = "somebody";
        flow.node_options.password = flow.options.password = "hunter2";
        flow.options.local_datacenter = "datacenter1";
        flow.options.local_rack = names[odd];
        flow.options.orphans_max = 77;
        flow.options.reconnect_max_us = 3000000;
        flow.options.tcp_keepalive = CQLRING_NO;
        flow_start(&flow);
        flow_open(&flow);
        char id[64], text[2048];
        ck_assert_uint_eq(told(&flow, id, text, sizeof text), 1);
        ck_assert_uint_eq(strlen(id), 36);
        ck_assert_int_eq(id[14], '4');
        ck_assert_str_ne(id, first_id); /* each cluster handle has its own */
        memcpy(first_id, id, sizeof id);
        ck_assert_ptr_null(strstr(text, "hunter2"));
        ck_assert_ptr_null(strstr(text, "somebody"));
        ck_assert_ptr_null(strstr(text, "127.0.0."));
        json_error_t error;
        json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        ck_assert_msg(root != NULL, "%s at %d of %s", error.text, error.position, text);
        expect_number(root, "version", 1);
        expect_number(root, "connection.connect.timeout-ms", 5000);
        expect_number(root, "connection.requests.in-flight.max", 1024);
        expect_number(root, "connection.requests.orphaned.max", 77);
        expect_number(root, "connection.reconnection.policy.base-ms", 50);
        expect_number(root, "connection.reconnection.policy.max-ms", 3000);
        ck_assert(json_is_true(at(root, "connection.socket.tcp-no-delay")));
        ck_assert(json_is_false(at(root, "connection.socket.keep-alive")));
        ck_assert_ptr_null(at(root, "connection.tls"));
        expect_number(root, "control-plane.schema.agreement.timeout-ms", 10000);
        expect_text(root, "query.load-balancing.policy.type", "token-aware");
        expect_text(root, "query.load-balancing.node-preference.local-dc", "datacenter1");
        expect_text(root, "query.load-balancing.node-preference.local-rack", names[odd]);
        expect_number(root, "query.defaults.page.size", 5000);
        expect_number(root, "query.defaults.request.timeout-ms", 12000);
        json_decref(root);
        flow_close(&flow);
    }
}
END_TEST

/* A name without an end is no reason to be told to nobody, or to fail the STARTUP. */
START_TEST(what_is_told_has_a_bound)
{
    static char longer[40000];
    memset(longer, '\n', sizeof longer - 1);
    struct flow flow;
    flow_init(&flow);
    flow.options.local_datacenter = longer;
    flow_start(&flow);
    cqlring_error error;
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_UNREACHABLE); /* no node is there, as the session says */
    char text[2048];
    ck_assert(node_startup_option(flow.node, 0, "DRIVER_CONFIG", text, sizeof text));
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_ptr_null(at(root, "query.load-balancing.node-preference"));
    json_decref(root);
    flow_close(&flow);
}
END_TEST

START_TEST(told_not_to_it_tells_nothing_but_its_id)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.report_configuration = CQLRING_NO;
    flow_start(&flow);
    flow_open(&flow);
    char id[64], text[2048];
    ck_assert_uint_eq(told(&flow, id, text, sizeof text), 0);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sockets");
    TCase *tcase = tcase_create("sockets");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, without_options_nothing_waits_and_silent_peers_are_asked);
    tcase_add_test(tcase, every_socket_is_set_as_asked);
    tcase_add_test(tcase, a_server_is_told_the_options_in_force_once_and_no_secret);
    tcase_add_test(tcase, what_is_told_has_a_bound);
    tcase_add_test(tcase, told_not_to_it_tells_nothing_but_its_id);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
