/* SPDX-License-Identifier: Apache-2.0 */
/* The node on real sockets: listening, going down and up, freezing, not being read, ending. ctest:
   labels=tsan */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cql/frame.h"
#include "cql/request.h"
#include "tests/node/node.h"

static struct node_cluster *start(const struct node_options *options)
{
    char message[200] = "";
    struct node_cluster *cluster = node_cluster_start(options, message, sizeof message);
    ck_assert_msg(cluster != NULL, "%s", message);
    return cluster;
}

static int dial(const struct node_cluster *cluster, uint32_t node)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(node_port(cluster, node))};
    ck_assert_int_eq(inet_pton(AF_INET, node_address(cluster, node), &address.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static const struct dialect v4 = {.version = PROTO_V4};
static uint8_t room[4096];

static void say(int fd, const struct writer *writer)
{
    ck_assert_int_eq(send(fd, writer->data, writer->size, MSG_NOSIGNAL), (ssize_t)writer->size);
}

static void ask_options(int fd)
{
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    cqr_encode_options(&writer, &v4, 1);
    say(fd, &writer);
}

static void ask(int fd, const char *cql)
{
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    struct query_params params = {.consistency = 1};
    uint32_t at = cqr_query_begin(&writer, &v4, 2, cqlring_text(cql), &params);
    cqr_query_end(&writer, &v4, &params, at);
    say(fd, &writer);
}

static void startup(int fd)
{
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    struct string_pair options = {cqlring_text("CQL_VERSION"), cqlring_text("3.0.0")};
    cqr_encode_startup(&writer, &v4, 0, &options, 1);
    say(fd, &writer);
}

/* The opcode of the next envelope; -1: the connection has ended. */
static int hear(int fd)
{
    uint8_t header[PROTO_HEADER_SIZE];
    if (recv(fd, header, sizeof header, MSG_WAITALL) != (ssize_t)sizeof header)
        return -1;
    uint32_t size = cqr_load_u32(header + 5);
    while (size > 0) {
        uint8_t body[4096];
        ssize_t got = recv(fd, body, size < sizeof body ? size : sizeof body, 0);
        if (got <= 0)
            return -1;
        size -= (uint32_t)got;
    }
    return header[4];
}

static bool hears_within(int fd, int ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, ms) == 1;
}

START_TEST(nodes_listen_on_addresses_of_their_own)
{
    struct node_options options = {.nodes = 3};
    struct node_cluster *cluster = start(&options);
    for (uint32_t i = 0; i < 3; ++i) {
        int fd = dial(cluster, i);
        ask_options(fd);
        ck_assert_int_eq(hear(fd), OPCODE_SUPPORTED);
        (void)close(fd);
    }
    ck_assert_str_eq(node_address(cluster, 2), "127.0.0.3");
    ck_assert_uint_eq(node_port(cluster, 0), node_port(cluster, 2));
    node_cluster_stop(cluster);
    options.ports_differ = true;
    cluster = start(&options);
    ck_assert_str_eq(node_address(cluster, 2), "127.0.0.1");
    ck_assert_uint_eq(node_port(cluster, 0) + 2, node_port(cluster, 2));
    int fd = dial(cluster, 2);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(a_node_that_is_down_refuses_until_it_is_up)
{
    struct node_options options = {.nodes = 2};
    struct node_cluster *cluster = start(&options);
    int fd = dial(cluster, 1);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    node_down(cluster, 1, true);
    ck_assert_int_eq(hear(fd), -1);
    (void)close(fd);
    int refused = dial(cluster, 1);
    while (refused >=
           0) { /* its own thread closes the listener a moment later; dialling is the waiting */
        (void)close(refused);
        refused = dial(cluster, 1);
    }
    ck_assert_int_eq(errno, ECONNREFUSED);
    node_up(cluster, 1, true);
    while ((fd = dial(cluster, 1)) < 0) {
    }
    ask_options(fd);
    ck_assert_int_eq(hear(fd), OPCODE_SUPPORTED);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(a_frozen_node_answers_when_it_thaws)
{
    struct node_cluster *cluster = start(NULL);
    int fd = dial(cluster, 0);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    node_freeze(cluster, 0, -1);
    ask_options(fd);
    ck_assert(!hears_within(fd, 50));
    node_freeze(cluster, 0, 0);
    ck_assert_int_eq(hear(fd), OPCODE_SUPPORTED);
    node_freeze(cluster, 0, 30);
    ask_options(fd);
    ck_assert_int_eq(hear(fd), OPCODE_SUPPORTED);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

static bool paused(const struct node_counters *all, void *context)
{
    uint64_t *last = context;
    bool still = all->opcodes[OPCODE_QUERY] == *last && all->opcodes[OPCODE_QUERY] > 0;
    *last = all->opcodes[OPCODE_QUERY];
    return still;
}

/* Who does not read gets no further requests taken, so that replies cannot pile up. */
START_TEST(unread_replies_have_a_limit)
{
    struct node_options options = {.output_max = 100000};
    struct node_cluster *cluster = start(&options);
    ck_assert_int_eq(
        node_cql(
            cluster,
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            NULL, NULL, 0),
        0);
    int fd = dial(cluster, 0);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    struct timeval soon = {.tv_usec = 200000};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    uint32_t sent = 0;
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    struct query_params params = {.consistency = 1};
    uint32_t at = cqr_query_begin(&writer, &v4, 2,
                                  cqlring_text("SELECT * FROM system_schema.columns"), &params);
    cqr_query_end(&writer, &v4, &params, at);
    while (sent < 100000 &&
           send(fd, writer.data, writer.size, MSG_NOSIGNAL) == (ssize_t)writer.size)
        ++sent;
    uint64_t last = UINT64_MAX;
    (void)node_wait(cluster, paused, 500, &last);
    struct node_counters counters;
    node_counters(cluster, NODE_ALL, &counters);
    ck_assert_uint_lt(counters.opcodes[OPCODE_QUERY], sent); /* the rest waits in the socket */
    for (uint32_t i = 0; i < 100; ++i)
        ck_assert_int_eq(hear(fd), OPCODE_RESULT);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(a_cluster_ends_with_open_connections)
{
    for (int i = 0; i < 20; ++i) {
        struct node_options options = {.nodes = 2, .delay_us = 1000000};
        struct node_cluster *cluster = start(&options);
        int fds[4];
        for (int j = 0; j < 4; ++j) {
            fds[j] = dial(cluster, (uint32_t)j & 1);
            ask_options(fds[j]);
        }
        node_cluster_stop(cluster);
        for (int j = 0; j < 4; ++j) {
            ck_assert_int_eq(hear(fds[j]), -1);
            (void)close(fds[j]);
        }
    }
}
END_TEST

START_TEST(last_words_arrive_before_the_end)
{
    struct node_options options = {.user = "u", .password = "p"};
    struct node_cluster *cluster = start(&options);
    for (int i = 0; i < 50; ++i) {
        int fd = dial(cluster, 0);
        startup(fd);
        ck_assert_int_eq(hear(fd), OPCODE_AUTHENTICATE);
        struct writer writer;
        cqr_writer_init(&writer, room, sizeof room);
        cqr_encode_auth_response(&writer, &v4, 0, (cqlring_bytes){"\0u\0x", 4});
        cqr_encode_options(&writer, &v4,
                           3); /* never looked at; it must not turn the answer into a reset */
        say(fd, &writer);
        ck_assert_int_eq(hear(fd), OPCODE_ERROR);
        ck_assert_int_eq(hear(fd), -1);
        (void)close(fd);
    }
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(held_replies_are_sent_when_they_are_due)
{
    struct node_options options = {.delay_us = 20000};
    struct node_cluster *cluster = start(&options);
    int fd = dial(cluster, 0);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    ask(fd, "SELECT key FROM system.local");
    ck_assert(!hears_within(fd, 0));
    ck_assert_int_eq(hear(fd), OPCODE_RESULT);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(with_shards_the_source_port_chooses)
{
    struct node_options options = {.shards = 5};
    struct node_cluster *cluster = start(&options);
    int fd = dial(cluster, 0);
    startup(fd);
    ck_assert_int_eq(hear(fd), OPCODE_READY);
    struct node_conn_info info[2];
    ck_assert_uint_eq(node_conns(cluster, 0, info, 2), 1);
    ck_assert_uint_lt(info[0].shard, 5);
    (void)close(fd);
    node_cluster_stop(cluster);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_server");
    TCase *test = tcase_create("server");
    tcase_add_test(test, nodes_listen_on_addresses_of_their_own);
    tcase_add_test(test, a_node_that_is_down_refuses_until_it_is_up);
    tcase_add_test(test, a_frozen_node_answers_when_it_thaws);
    tcase_add_test(test, unread_replies_have_a_limit);
    tcase_add_test(test, a_cluster_ends_with_open_connections);
    tcase_add_test(test, last_words_arrive_before_the_end);
    tcase_add_test(test, held_replies_are_sent_when_they_are_due);
    tcase_add_test(test, with_shards_the_source_port_chooses);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
