/* SPDX-License-Identifier: Apache-2.0 */
/* The plain half of the transport; TLS is in test_tls.c. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "driver/transport.h"

static int far_end;

static void open_pair(struct transport *transport)
{
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    far_end = fds[1];
    struct address peer;
    ck_assert(cqr_address_from_literal(&peer, "10.0.0.3", 9042));
    ck_assert_int_eq(
        cqr_transport_init(transport, cqr_net_system(), fds[0], NULL, "node1.example", &peer),
        CQLRING_OK);
}

START_TEST(bytes_pass_both_ways_without_a_handshake)
{
    struct transport transport;
    open_pair(&transport);
    uint32_t wait, size;
    char bytes[16];
    ck_assert_int_eq(cqr_transport_handshake(&transport, &wait), TRANSPORT_OK);
    ck_assert_str_eq(cqr_transport_tls_version(&transport), "");
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_AGAIN);
    ck_assert_uint_eq(size, 0);
    ck_assert_int_eq(write(far_end, "\x84you", 4), 4);
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_OK);
    ck_assert_uint_eq(size, 4);
    bool pending;
    ck_assert_int_eq(cqr_transport_send(&transport, "hello", 5, &size, &pending), TRANSPORT_OK);
    ck_assert_uint_eq(size, 5);
    ck_assert(!pending);
    ck_assert_int_eq(read(far_end, bytes, sizeof bytes), 5);
    ck_assert_int_eq(cqr_transport_send(&transport, NULL, 0, &size, &pending), TRANSPORT_OK);
    ck_assert_int_eq(close(far_end), 0);
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_END);
    ck_assert_int_eq(cqr_transport_send(&transport, "x", 1, &size, &pending), TRANSPORT_ERROR);
    ck_assert_int_eq(transport.send_error, EPIPE);
    cqr_transport_close(&transport);
    ck_assert_int_eq(transport.fd, -1);
}
END_TEST

START_TEST(full_socket_takes_a_part_and_then_nothing)
{
    struct transport transport;
    open_pair(&transport);
    static char bytes[4 * 1024 * 1024];
    uint32_t accepted;
    bool pending;
    ck_assert_int_eq(cqr_transport_send(&transport, bytes, sizeof bytes, &accepted, &pending),
                     TRANSPORT_AGAIN);
    ck_assert(accepted > 0 && accepted < sizeof bytes && !pending);
    ck_assert_int_eq(cqr_transport_send(&transport, bytes, sizeof bytes, &accepted, &pending),
                     TRANSPORT_AGAIN);
    ck_assert_uint_eq(accepted, 0);
    (void)close(far_end);
    cqr_transport_close(&transport);
}
END_TEST

START_TEST(shutdown_ends_reading_and_writing_but_keeps_the_descriptor)
{
    struct transport transport;
    open_pair(&transport);
    uint32_t size;
    bool pending;
    char byte;
    cqr_transport_shutdown(&transport);
    ck_assert_int_eq(cqr_transport_recv(&transport, &byte, 1, &size), TRANSPORT_END);
    ck_assert_int_eq(cqr_transport_send(&transport, "x", 1, &size, &pending), TRANSPORT_ERROR);
    ck_assert_int_eq(read(far_end, &byte, 1), 0);
    cqr_transport_close(&transport);
    (void)close(far_end);
}
END_TEST

START_TEST(tls_server_on_a_plain_port_is_recognised)
{
    struct transport transport;
    open_pair(&transport);
    char bytes[16];
    uint32_t size;
    ck_assert_int_eq(write(far_end, "\x15\x03\x03\x00\x02\x02\x46", 7),
                     7); /* alert: protocol version */
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_ERROR);
    ck_assert_int_eq(transport.error, 0);
    ck_assert_ptr_nonnull(strstr(transport.message, "switch TLS on"));
    cqr_transport_close(&transport);
    (void)close(far_end);
}
END_TEST

/* A socket that fails as sockets do. */
static ssize_t recv_reset(struct net *net, int fd, void *data, size_t size)
{
    (void)net, (void)fd, (void)data, (void)size;
    return -ECONNRESET;
}

START_TEST(reset_is_an_error_with_its_words)
{
    struct transport transport;
    open_pair(&transport);
    struct net_vtable calls = *transport.net->call;
    calls.recv = recv_reset;
    struct net net = {.call = &calls};
    transport.net = &net;
    char bytes[16];
    uint32_t size;
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_ERROR);
    ck_assert_int_eq(transport.error, ECONNRESET);
    ck_assert_str_eq(transport.message, "Connection reset by peer");
    cqr_transport_close(&transport);
    (void)close(far_end);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transport");
    TCase *tcase = tcase_create("plain");
    tcase_add_test(tcase, bytes_pass_both_ways_without_a_handshake);
    tcase_add_test(tcase, full_socket_takes_a_part_and_then_nothing);
    tcase_add_test(tcase, shutdown_ends_reading_and_writing_but_keeps_the_descriptor);
    tcase_add_test(tcase, tls_server_on_a_plain_port_is_recognised);
    tcase_add_test(tcase, reset_is_an_error_with_its_words);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
