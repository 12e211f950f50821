/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/fork.h"
#include "driver/net.h"

static const struct socket_options socket_defaults = {.keepalive = true};

/* --- addresses ------------------------------------------------------------------------------------------------ */

static void check_literal(const char *host, uint16_t port, const char *expected)
{
    struct address address;
    char text[64];
    if (expected == NULL) {
        ck_assert_msg(!cqr_address_from_literal(&address, host, port), "%s is no literal", host);
        return;
    }
    ck_assert_msg(cqr_address_from_literal(&address, host, port), "%s is a literal", host);
    cqr_address_format(&address, text);
    ck_assert_str_eq(text, expected);
}

START_TEST(literals_are_recognised_and_names_are_not)
{
    check_literal("10.0.0.3", 9042, "10.0.0.3:9042");
    check_literal("::1", 9042, "[::1]:9042");
    check_literal("[::1]", 65535, "[::1]:65535");
    check_literal("2001:db8::AB:1", 1, "[2001:db8::ab:1]:1");
    check_literal("::ffff:10.0.0.3", 9042, "10.0.0.3:9042"); /* the same node as 10.0.0.3 */
    check_literal("fe80::1%7", 9042, "[fe80::1%7]:9042");
    check_literal("/run/scylla/cql.sock", 9042, "/run/scylla/cql.sock");
    char scoped[64];
    (void)snprintf(scoped, sizeof scoped, "[fe80::1%%%u]:9042", if_nametoindex("lo"));
    check_literal("fe80::1%lo", 9042, scoped);
    static const char *const names[] = {"",
                                        "localhost",
                                        "10.0.0",
                                        "10.0.0.3.",
                                        "10.0.0.256",
                                        "node1.example",
                                        "[::1",
                                        "::1]",
                                        "[10.0.0.3]x",
                                        "::1%",
                                        "[]",
                                        "fe80::1%no-such-if",
                                        "1:2:3:4:5",
                                        "[node.test]",
                                        "::1:9042:zz",
                                        "10.0.0.3:9042"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        check_literal(names[i], 9042, NULL);
    char endless[400];
    memset(endless, '1', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    check_literal(endless, 9042, NULL);
    endless[0] = '/';
    check_literal(endless, 9042, NULL);
}
END_TEST

START_TEST(longest_addresses_fit_into_their_text)
{
    check_literal("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967", 65535,
                  "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967]:65535");
    char path[108];
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    struct address address;
    char text[64];
    ck_assert(cqr_address_from_literal(&address, path, 0));
    cqr_address_format(&address, text);
    ck_assert_uint_eq(strlen(text), 63);
    ck_assert(strncmp(text, "...", 3) == 0 && strcmp(text + 3, path + 107 - 60) == 0);
}
END_TEST

START_TEST(tk_11_addresses_are_equal_when_host_and_port_are)
{
    static const char *const hosts[] = {"10.0.0.2",  "10.0.0.10", "2.0.0.10", "10.0.0.4", "::1", "::2",
                                        "fe80::1%1", "fe80::1%2", "/a",       "/ab"};
    enum { HOSTS = sizeof hosts / sizeof hosts[0] };
    for (size_t i = 0; i < HOSTS; ++i)
        for (size_t k = 0; k < HOSTS; ++k) {
            struct address a, b, other_port;
            ck_assert(cqr_address_from_literal(&a, hosts[i], 9042));
            ck_assert(cqr_address_from_literal(&b, hosts[k], 9042));
            ck_assert(cqr_address_from_literal(&other_port, hosts[k], 9043));
            ck_assert_int_eq(cqr_address_equal(&a, &b), i == k);
            ck_assert(hosts[i][0] == '/' || !cqr_address_equal(&a, &other_port));
        }
}
END_TEST

START_TEST(raw_bytes_of_other_sizes_are_refused)
{
    struct address address;
    uint8_t bytes[16] = {10, 0, 0, 3};
    for (uint32_t size = 0; size <= 16; ++size)
        ck_assert_int_eq(cqr_address_from_bytes(&address, bytes, size, 9042),
                         size == 4 || size == 16);
}
END_TEST

/* --- sockets -------------------------------------------------------------------------------------------------- */

static int listener(struct address *address, const char *host)
{
    ck_assert(cqr_address_from_literal(address, host, 0));
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address->storage, address->size), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    address->size = sizeof address->storage;
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address->storage, &address->size), 0);
    return fd;
}

static void await(int fd, short events)
{
    struct pollfd pollfd = {.fd = fd, .events = events};
    int count;
    do {
        count = poll(&pollfd, 1, 10000);
    } while (count < 0 && errno == EINTR);
    ck_assert_int_eq(count, 1);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    ck_assert_int_eq(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

static void converse(const char *host)
{
    struct net *net = cqr_net_system();
    struct address address;
    int server = listener(&address, host);
    int fd = net->call->connect(net, &address, 0, &socket_defaults);
    ck_assert_int_ge(fd, 0);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    if (host[0] != '/') {
        ck_assert_int_ne(option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
        ck_assert_int_ne(option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    }
    await(fd, POLLOUT);
    ck_assert_int_eq(net->call->connect_result(net, fd), 0);
    int peer = accept(server, NULL, NULL);
    char bytes[8];
    ck_assert_int_eq(net->call->recv(net, fd, bytes, sizeof bytes), -EAGAIN);
    ck_assert_int_eq(net->call->send(net, fd, "hello", 5), 5);
    ck_assert_int_eq(read(peer, bytes, sizeof bytes), 5);
    ck_assert_int_eq(write(peer, "you", 3), 3);
    await(fd, POLLIN);
    ck_assert_int_eq(net->call->recv(net, fd, bytes, sizeof bytes), 3);
    ck_assert_int_eq(close(peer), 0);
    await(fd, POLLIN);
    ck_assert_int_eq(net->call->recv(net, fd, bytes, sizeof bytes), 0);
    net->call->shutdown(net, fd);
    ck_assert_int_eq(net->call->send(net, fd, "hello", 5), -EPIPE); /* and no signal */
    net->call->close(net, fd);
    ck_assert_int_eq(close(server), 0);
}

START_TEST(connection_speaks_over_v4)
{
    converse("127.0.0.1");
}
END_TEST

START_TEST(connection_speaks_over_v6)
{
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    bool has_v6 = probe >= 0 && bind(probe, (struct sockaddr *)&address, sizeof address) == 0;
    if (probe >= 0)
        (void)close(probe);
    if (has_v6) /* containers without IPv6 exist */
        converse("::1");
}
END_TEST

START_TEST(connection_speaks_over_a_unix_path)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/cqlring-net-%d.sock", (int)getpid());
    converse(path);
    (void)unlink(path);
}
END_TEST

START_TEST(refused_connection_says_why)
{
    struct net *net = cqr_net_system();
    struct address address;
    int server = listener(&address, "127.0.0.1");
    ck_assert_int_eq(close(server), 0);
    int fd = net->call->connect(net, &address, 0, &socket_defaults);
    ck_assert_int_ge(fd,
                     0); /* loopback may refuse at once, but for non-blocking sockets tells later */
    await(fd, POLLOUT);
    ck_assert_int_eq(net->call->connect_result(net, fd), -ECONNREFUSED);
    net->call->close(net, fd);
    ck_assert(cqr_address_from_literal(&address, "/tmp/cqlring-no-such-socket", 0));
    ck_assert_int_eq(net->call->connect(net, &address, 0, &socket_defaults), -ENOENT);
}
END_TEST

/* A full backlog keeps a connect under way; on loopback there is nothing else that does. */
START_TEST(connect_under_way_is_in_progress)
{
    struct net *net = cqr_net_system();
    struct address address;
    int server = listener(&address, "127.0.0.1");
    ck_assert_int_eq(listen(server, 0), 0);
    int fds[8], last = -1;
    for (int i = 0; i < 8; ++i) {
        fds[i] = net->call->connect(net, &address, 0, &socket_defaults);
        ck_assert_int_ge(fds[i], 0);
        last = net->call->connect_result(net, fds[i]);
    }
    ck_assert_int_eq(last, -EINPROGRESS);
    for (int i = 0; i < 8; ++i)
        net->call->close(net, fds[i]);
    ck_assert_int_eq(close(server), 0);
}
END_TEST

START_TEST(local_port_is_the_one_asked_for)
{
    struct net *net = cqr_net_system();
    struct address address, local = {.size = sizeof local.storage};
    int server = listener(&address, "127.0.0.1");
    int port = 0, fd = -1;
    for (port = 21000; port < 21200 && fd < 0; ++port)
        fd = net->call->connect(net, &address, (uint16_t)port, &socket_defaults);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&local.storage, &local.size), 0);
    ck_assert_int_eq(ntohs(((struct sockaddr_in *)&local.storage)->sin_port), port - 1);
    /* A second one from the same port to the same server cannot be; it says so and leaves no descriptor behind. */
    int second = net->call->connect(net, &address, (uint16_t)(port - 1), &socket_defaults);
    ck_assert_int_lt(second, 0);
    net->call->close(net, fd);
    ck_assert_int_eq(close(server), 0);
}
END_TEST

/* Dial one closed port from itself: what the kernel does by chance when it picks the local port. */
START_TEST(connection_to_itself_is_a_refused_one)
{
    struct net *net = cqr_net_system();
    struct address address;
    int fd = -1;
    for (uint16_t port = 21300; port < 21400 && fd < 0; ++port) {
        ck_assert(cqr_address_from_literal(&address, "127.0.0.1", port));
        fd = net->call->connect(net, &address, port, &socket_defaults);
    }
    ck_assert_int_ge(fd, 0);
    await(fd, POLLOUT);
    ck_assert_int_eq(net->call->connect_result(net, fd), -ECONNREFUSED);
    net->call->close(net, fd);
}
END_TEST

START_TEST(clocks_tell_microseconds)
{
    struct net *net = cqr_net_system();
    struct timespec monotonic;
    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &monotonic), 0);
    int64_t before = (int64_t)monotonic.tv_sec * 1000000 + monotonic.tv_nsec / 1000;
    ck_assert_int_ge(net->call->now_us(net), before);
    ck_assert_int_lt(net->call->now_us(net) - before, 60000000);
    ck_assert_int_gt(net->call->wall_us(net), INT64_C(1600000000000000));
}
END_TEST

/* --- signals ---------------------------------------------------------------------------------------------------- */

static atomic_int ticks;

static void on_alarm(int signal)
{
    (void)signal;
    atomic_fetch_add(&ticks, 1);
}

/* SG-03: a timer interrupts this thread a thousand times a second, without SA_RESTART; nobody sees EINTR. */
START_TEST(signals_are_no_errors)
{
    struct net *net = cqr_net_system();
    struct sigaction action = {.sa_handler = on_alarm};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    struct address address;
    int server = listener(&address, "127.0.0.1");
    static char bytes[65536];
    for (int round = 0; round < 100000 && (round < 200 || atomic_load(&ticks) < 50); ++round) {
        int fd = net->call->connect(net, &address, 0, &socket_defaults);
        ck_assert_int_ge(fd, 0);
        await(fd, POLLOUT);
        ck_assert_int_eq(net->call->connect_result(net, fd), 0);
        int peer;
        do {
            peer = accept(server, NULL, NULL);
        } while (peer < 0 && errno == EINTR);
        ssize_t sent = net->call->send(net, fd, bytes, sizeof bytes),
                got = net->call->recv(net, fd, bytes, 1);
        ck_assert(sent > 0 || sent == -EAGAIN);
        ck_assert_int_eq(got, -EAGAIN);
        (void)close(peer);
        net->call->close(net, fd);
    }
    ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), 0);
    (void)close(server);
}
END_TEST

/* --- fork --------------------------------------------------------------------------------------------------------- */

START_TEST(forked_child_holds_none_of_our_descriptors)
{
    struct net *net = cqr_net_system();
    struct address address;
    int server = listener(&address, "127.0.0.1");
    ck_assert_int_eq(cqr_fork_watch(), CQLRING_OK);
    unsigned generation = cqr_fork_generation();
    int first = net->call->connect(net, &address, 0, &socket_defaults), second = net->call->connect(net, &address, 0, &socket_defaults);
    int foreign = dup(2);
    ck_assert(first >= 0 && second >= 0 && foreign >= 0);
    net->call->close(net, second);
    int reused = dup(2); /* the number is the application's now */
    ck_assert_int_eq(reused, second);
    pid_t child = fork();
    if (child == 0) {
        bool good = fcntl(first, F_GETFD) < 0 && errno == EBADF && fcntl(foreign, F_GETFD) >= 0 &&
                    fcntl(reused, F_GETFD) >= 0 && cqr_fork_generation() == generation + 1;
        /* The child may use the library on its own, and be forked again. */
        int own = net->call->connect(net, &address, 0, &socket_defaults);
        good = good && own >= 0;
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(fcntl(own, F_GETFD) < 0 && cqr_fork_generation() == generation + 2 ? 0 : 1);
        int status = 1;
        (void)waitpid(grandchild, &status, 0);
        _exit(good && status == 0 && fcntl(own, F_GETFD) >= 0 ? 0 : 1);
    }
    int status = 1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(cqr_fork_generation(), generation);
    await(first, POLLOUT);
    ck_assert_int_eq(net->call->connect_result(net, first),
                     0); /* the child's close did not touch the connection */
    net->call->close(net, first);
    (void)close(foreign), (void)close(reused), (void)close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("net");
    TCase *addresses = tcase_create("addresses");
    tcase_add_test(addresses, literals_are_recognised_and_names_are_not);
    tcase_add_test(addresses, longest_addresses_fit_into_their_text);
    tcase_add_test(addresses, tk_11_addresses_are_equal_when_host_and_port_are);
    tcase_add_test(addresses, raw_bytes_of_other_sizes_are_refused);
    suite_add_tcase(suite, addresses);
    TCase *sockets = tcase_create("sockets");
    tcase_add_test(sockets, connection_speaks_over_v4);
    tcase_add_test(sockets, connection_speaks_over_v6);
    tcase_add_test(sockets, connection_speaks_over_a_unix_path);
    tcase_add_test(sockets, refused_connection_says_why);
    tcase_add_test(sockets, connect_under_way_is_in_progress);
    tcase_add_test(sockets, local_port_is_the_one_asked_for);
    tcase_add_test(sockets, connection_to_itself_is_a_refused_one);
    tcase_add_test(sockets, clocks_tell_microseconds);
    tcase_add_test(sockets, signals_are_no_errors);
    tcase_add_test(sockets, forked_child_holds_none_of_our_descriptors);
    suite_add_tcase(suite, sockets);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
