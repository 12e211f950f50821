/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan timeout=120 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "driver/poller.h"
#include "driver/transport.h"
#include "serialize/mem.h"
#include "tests/unit/tls_peer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RUNNING_ON_SANITIZER = 1 };
#else
enum { RUNNING_ON_SANITIZER = 0 };
#endif

/* --- who there is ------------------------------------------------------------------------------------------------ */

static struct identity ca, other_ca, node, stranger;
static char *ca_pem;

static struct identity make(const char *name, const char *alternatives,
                            const struct identity *issuer)
{
    return identity_make(
        &(struct identity_options){.name = name, .alternatives = alternatives, .issuer = issuer});
}

static struct identity make_ca(const char *name, const struct identity *issuer)
{
    return identity_make(&(struct identity_options){.name = name, .issuer = issuer, .is_ca = true});
}

static void set_up(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* the peers write to sockets as OpenSSL does it */
    ca = make_ca("Test CA", NULL);
    other_ca = make_ca("Other CA", NULL);
    node = make("node1", "DNS:node1.example,DNS:*.cluster.example,IP:10.0.0.3,IP:2001:db8::1", &ca);
    stranger = make("stranger", "DNS:node1.example,IP:10.0.0.3", &other_ca);
    ca_pem = pem_of_certificates(&ca.certificate, 1);
}

static void tear_down(void)
{
    identity_free(&ca);
    identity_free(&other_ca);
    identity_free(&node);
    identity_free(&stranger);
    free(ca_pem);
}

/* --- a client ------------------------------------------------------------------------------------------------------ */

static struct tls_context *make_context(const struct tls_options *options)
{
    struct tls_context *context;
    cqlring_error error = {0};
    ck_assert_msg(cqr_tls_context_create(options, &context, &error) == CQLRING_OK, "%s",
                  error.message);
    return context;
}

static void init(struct transport *transport, int fd, struct tls_context *context,
                 const char *peer_name, const char *host)
{
    struct address peer;
    ck_assert(cqr_address_from_literal(&peer, host, 9142));
    ck_assert_int_eq(cqr_transport_init(transport, cqr_net_system(), fd, context, peer_name, &peer),
                     CQLRING_OK);
}

static void await(const struct transport *transport, uint32_t events)
{
    struct pollfd pollfd = {
        .fd = transport->fd,
        .events = (short)((events & POLL_READ ? POLLIN : 0) | (events & POLL_WRITE ? POLLOUT : 0))};
    ck_assert_int_eq(poll(&pollfd, 1, 20000), 1);
}

static enum transport_result shake(struct transport *transport)
{
    enum transport_result result;
    uint32_t wait;
    while ((result = cqr_transport_handshake(transport, &wait)) == TRANSPORT_AGAIN)
        await(transport, wait);
    return result;
}

/* The next bytes, or how it ended. */
static enum transport_result receive(struct transport *transport, void *data, uint32_t capacity,
                                     uint32_t *size)
{
    enum transport_result result;
    while ((result = cqr_transport_recv(transport, data, capacity, size)) == TRANSPORT_AGAIN)
        await(transport, POLL_READ);
    return result;
}

static void send_all(struct transport *transport, const void *data, uint32_t size)
{
    const uint8_t *at = data;
    uint32_t accepted;
    bool pending;
    enum transport_result result;
    while ((result = cqr_transport_send(transport, at, size, &accepted, &pending)) ==
           TRANSPORT_AGAIN) {
        at += accepted;
        size -= accepted;
        await(transport, POLL_WRITE);
    }
    ck_assert_int_eq(result, TRANSPORT_OK);
    ck_assert_uint_eq(accepted, size);
}

/* One handshake of a client with these options against this server; the message when it fails, NULL when it does not. */
static const char *meet(struct peer *peer, const struct tls_options *options, const char *peer_name,
                        const char *host)
{
    static char message[256];
    struct tls_context *context = make_context(options);
    struct transport transport;
    init(&transport, peer_start(peer), context, peer_name, host);
    cqr_tls_context_release(context);
    enum transport_result result = shake(&transport);
    (void)snprintf(message, sizeof message, "%s", transport.message);
    ck_assert(result == TRANSPORT_OK || message[0] != '\0');
    cqr_transport_close(&transport);
    peer_join(peer);
    return result == TRANSPORT_OK ? NULL : message;
}

static void ck_assert_says(const char *message, const char *const *words, int count)
{
    ck_assert_ptr_nonnull(message);
    for (int i = 0; i < count; ++i)
        ck_assert_msg(strstr(message, words[i]) != NULL, "\"%s\" does not say \"%s\"", message,
                      words[i]);
}
#define SAYS(message, ...)                                      \
    ck_assert_says(message, (const char *const[]){__VA_ARGS__}, \
                   (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* --- what servers do ------------------------------------------------------------------------------------------------- */

static void echo(struct peer *peer, SSL *ssl)
{
    static _Thread_local char bytes[16384];
    int size;
    while ((size = SSL_read(ssl, bytes, sizeof bytes)) > 0 && SSL_write(ssl, bytes, size) == size)
        peer->count += (size_t)size;
    if (SSL_get_error(ssl, size) == SSL_ERROR_ZERO_RETURN)
        (void)SSL_shutdown(ssl);
}

/* Asks for new keys in both directions all the time. */
static void echo_with_key_updates(struct peer *peer, SSL *ssl)
{
    static _Thread_local char bytes[16384];
    int size, round = 0;
    while ((size = SSL_read(ssl, bytes, sizeof bytes)) > 0) {
        if (round++ % 5 == 0)
            (void)SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        if (SSL_write(ssl, bytes, size) != size)
            break;
        peer->count += (size_t)size;
    }
}

static void read_to_the_end(struct peer *peer, SSL *ssl)
{
    char bytes[16384];
    int size;
    while ((size = SSL_read(ssl, bytes, sizeof bytes)) > 0)
        peer->count += (size_t)size;
}

/* --- tests ------------------------------------------------------------------------------------------------------------ */

START_TEST(both_versions_shake_hands_and_speak)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct peer peer = {
        .context = peer_context(&node, NULL, 0, NULL), .serve = echo, .version = versions[_i]};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct transport transport;
    init(&transport, peer_start(&peer), context, "node1.example", "10.0.0.9");
    ck_assert_str_eq(cqr_transport_tls_version(&transport), "");
    ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
    ck_assert_msg(strstr(cqr_transport_tls_version(&transport),
                         _i == 0 ? "TLS 1.2 ECDHE-" : "TLS 1.3 TLS_AES_") != NULL,
                  "%s", cqr_transport_tls_version(&transport));
    char bytes[32];
    uint32_t size;
    send_all(&transport, "hello", 5);
    ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size), TRANSPORT_OK);
    ck_assert(size == 5 && memcmp(bytes, "hello", 5) == 0);
    ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size), TRANSPORT_AGAIN);
    send_all(&transport, NULL, 0);
    cqr_transport_close(&transport);
    peer_join(&peer);
    ck_assert_uint_eq(peer.count, 5);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

START_TEST(peers_are_verified_by_address_name_or_server_name)
{
    struct tls_options options = {.ca_pem = ca_pem};
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL)};
    ck_assert_ptr_null(meet(&peer, &options, NULL, "10.0.0.3"));
    ck_assert_ptr_null(meet(&peer, &options, NULL, "2001:db8::1"));
    SAYS(meet(&peer, &options, "10.0.0.3", "10.0.0.9"),
         "not for 10.0.0.9"); /* an address is no name */
    ck_assert_ptr_null(meet(&peer, &options, "node1.example", "10.0.0.9"));
    ck_assert_ptr_null(meet(&peer, &options, "NODE1.example.", "10.0.0.9"));
    ck_assert_ptr_null(meet(&peer, &options, "n7.cluster.example", "10.0.0.9"));
    ck_assert_ptr_null(meet(&peer, &options, "other.example", "10.0.0.3"));
    SAYS(meet(&peer, &options, "a.b.cluster.example", "10.0.0.9"),
         "not for a.b.cluster.example or 10.0.0.9");
    SAYS(meet(&peer, &options, "other.example", "2001:db8::2"),
         "is for node1.example, *.cluster.example, 10.0.0.3",
         "not for other.example or [2001:db8::2]", "set the TLS server name");
    options.server_name = "n1.cluster.example";
    ck_assert_ptr_null(meet(&peer, &options, "other.example", "10.0.0.9"));
    options.server_name = "10.0.0.3";
    ck_assert_ptr_null(meet(&peer, &options, NULL, "10.0.0.9"));
    options.server_name = "wrong.example";
    SAYS(meet(&peer, &options, NULL, "10.0.0.9"), "wrong.example", "10.0.0.9");
    options.verify = 1;
    ck_assert_ptr_null(meet(&peer, &options, "other.example", "10.0.0.9"));
    SSL_CTX_free(peer.context);
}
END_TEST

START_TEST(certificate_without_alternatives_goes_by_its_common_name)
{
    struct identity old = make("old.example", NULL, &ca);
    struct tls_options options = {.ca_pem = ca_pem};
    struct peer peer = {.context = peer_context(&old, NULL, 0, NULL)};
    ck_assert_ptr_null(meet(&peer, &options, "old.example", "10.0.0.9"));
    SAYS(meet(&peer, &options, NULL, "10.0.0.9"), "is for old.example, not for 10.0.0.9");
    SAYS(meet(&peer, &options, NULL, "/run/cql.sock"), "not for /run/cql.sock");
    SSL_CTX_free(peer.context);
    identity_free(&old);
}
END_TEST

START_TEST(untrusted_and_expired_certificates_are_refused_with_the_reason)
{
    struct identity expired = identity_make(
        &(struct identity_options){.name = "expired",
                                   .alternatives = "IP:10.0.0.3",
                                   .issuer = &ca,
                                   .from_days = -20,
                                   .until_days = -2});
    struct identity early = identity_make(&(struct identity_options){.name = "early",
                                                                     .alternatives = "IP:10.0.0.3",
                                                                     .issuer = &ca,
                                                                     .from_days = 2,
                                                                     .until_days = 20});
    struct identity alone = make("alone", "IP:10.0.0.3", NULL);
    struct tls_options options = {.ca_pem = ca_pem};
    struct peer peer = {.context = peer_context(&stranger, NULL, 0, NULL)};
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "CN=stranger is signed by CN=Other CA", "add it");
    SSL_CTX_free(peer.context);
    peer.context = peer_context(&alone, NULL, 0, NULL);
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "CN=alone is signed by CN=alone", "trusted");
    SSL_CTX_free(peer.context);
    peer.context = peer_context(&early, NULL, 0, NULL);
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "CN=early is valid from 20", "clock");
    SSL_CTX_free(peer.context);
    peer.context = peer_context(&expired, NULL, 0, NULL);
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "CN=expired expired on 20", "renew");
    options.verify = 1;
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "expired");
    ck_assert(!peer.shaken);
    options.verify = 2;
    ck_assert_ptr_null(meet(&peer, &options, NULL, "10.0.0.3"));
    SSL_CTX_free(peer.context);
    identity_free(&expired);
    identity_free(&early);
    identity_free(&alone);
}
END_TEST

/* TL-05 */
START_TEST(names_are_indicated_and_addresses_never)
{
    static const struct {
        const char *server_name, *peer_name, *indicated;
    } cases[] = {
        {NULL, "node1.example", "node1.example"},
        {NULL, NULL, ""},
        {NULL, "10.0.0.3", ""},
        {NULL, "2001:db8::1", ""},
        {NULL, "", ""},
        {"set.example", "node1.example", "set.example"},
        {"10.0.0.3", "node1.example", ""},
        {NULL, "dot.example.", "dot.example"},
    };
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL)};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct tls_options options = {.ca_pem = ca_pem, .server_name = cases[i].server_name};
        peer.server_name[0] = '\0';
        ck_assert_ptr_null(meet(&peer, &options, cases[i].peer_name, "10.0.0.3"));
        ck_assert_str_eq(peer.server_name, cases[i].indicated);
    }
    SSL_CTX_free(peer.context);
}
END_TEST

/* TL-06 */
START_TEST(every_certificate_of_a_bundle_counts)
{
    struct identity third = make_ca("Third CA", NULL), middle = make_ca("Middle CA", &third);
    struct identity server = make("deep", "IP:10.0.0.3", &middle);
    X509 *bundle[] = {ca.certificate, other_ca.certificate, third.certificate};
    char *text = pem_of_certificates(bundle, 3), *file = file_of(text);
    struct peer peer = {.context = peer_context(&server, &middle.certificate, 1, NULL)};
    ck_assert_ptr_null(meet(&peer, &(struct tls_options){.ca_pem = text}, NULL, "10.0.0.3"));
    ck_assert_ptr_null(meet(&peer, &(struct tls_options){.ca_file = file}, NULL, "10.0.0.3"));
    ck_assert_int_eq(setenv("SSL_CERT_FILE", file, 1), 0);
    ck_assert_ptr_null(meet(&peer, &(struct tls_options){0}, NULL, "10.0.0.3"));
    ck_assert_int_eq(setenv("SSL_CERT_FILE", "", 1), 0);
    ck_assert_int_eq(setenv("SSL_CERT_DIR", "/tmp", 1), 0);
    SAYS(meet(&peer, &(struct tls_options){0}, NULL, "10.0.0.3"), "not among the trusted CAs");
    ck_assert_int_eq(unsetenv("SSL_CERT_FILE"), 0);
    ck_assert_int_eq(unsetenv("SSL_CERT_DIR"), 0);
    SSL_CTX_free(peer.context);
    peer.context = peer_context(&server, NULL, 0, NULL); /* the server forgot its intermediate */
    SAYS(meet(&peer, &(struct tls_options){.ca_pem = text}, NULL, "10.0.0.3"),
         "signed by CN=Middle CA");
    SSL_CTX_free(peer.context);
    (void)unlink(file);
    free(text);
    free(file);
    identity_free(&third);
    identity_free(&middle);
    identity_free(&server);
}
END_TEST

/* TL-06, the client's half: the server trusts the root alone, so the intermediate has to come with the client. */
START_TEST(client_certificate_goes_with_its_chain)
{
    struct identity middle = make_ca("Middle CA", &ca), client = make("client-7", NULL, &middle);
    X509 *chain[] = {client.certificate, middle.certificate};
    char *certificate = pem_of_certificates(chain, 2), *key = pem_of_key(client.key, NULL);
    char *locked = pem_of_key(client.key, "a-secret"), *certificate_file = file_of(certificate),
         *key_file = file_of(locked);
    char *both = calloc(1, strlen(certificate) + strlen(key) + 1);
    (void)strcat(strcat(both, certificate), key);
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    const struct tls_options ways[] = {
        {.ca_pem = ca_pem, .certificate_pem = certificate, .key_pem = key},
        {.ca_pem = ca_pem,
         .certificate_file = certificate_file,
         .key_file = key_file,
         .key_password = "a-secret"},
        {.ca_pem = ca_pem, .certificate_pem = both},
    };
    for (size_t i = 0; i < 6; ++i) {
        struct peer peer = {.context = peer_context(&node, NULL, 0, ca.certificate),
                            .serve = echo,
                            .version = versions[i % 2]};
        struct tls_context *context = make_context(&ways[i / 2]);
        struct transport transport;
        char byte;
        uint32_t size;
        init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
        ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
        send_all(&transport, "x", 1);
        ck_assert_int_eq(receive(&transport, &byte, 1, &size), TRANSPORT_OK);
        cqr_transport_close(&transport);
        peer_join(&peer);
        ck_assert_str_eq(peer.client_name, "client-7");
        cqr_tls_context_release(context);
        SSL_CTX_free(peer.context);
    }
    /* Without one: TLS 1.2 fails in the handshake, TLS 1.3 at the first read after it. */
    for (int i = 0; i < 2; ++i) {
        struct peer peer = {.context = peer_context(&node, NULL, 0, ca.certificate),
                            .version = versions[i]};
        struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
        struct transport transport;
        char byte;
        uint32_t size;
        init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
        enum transport_result result = shake(&transport);
        if (result == TRANSPORT_OK)
            result = receive(&transport, &byte, 1, &size);
        ck_assert_int_eq(result, TRANSPORT_ERROR);
        SAYS(transport.message, "client certificate");
        cqr_transport_close(&transport);
        peer_join(&peer);
        cqr_tls_context_release(context);
        SSL_CTX_free(peer.context);
    }
    (void)unlink(certificate_file), (void)unlink(key_file);
    free(certificate), free(key), free(locked), free(certificate_file), free(key_file), free(both);
    identity_free(&middle);
    identity_free(&client);
}
END_TEST

static void refuse(const struct tls_options *options, const char *const *words, int count)
{
    struct tls_context *context = (struct tls_context *)&ca;
    cqlring_error error = {0};
    ck_assert_int_eq(cqr_tls_context_create(options, &context, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqr_tls_context_create(options, &context, NULL), CQLRING_INVALID);
    ck_assert_ptr_null(context);
    ck_assert_int_eq(error.status, CQLRING_INVALID);
    ck_assert_says(error.message, words, count);
    ck_assert_ptr_null(strstr(error.message, "a-secret"));
    ck_assert_ptr_null(strstr(error.message, "wrong-secret"));
}
#define REFUSE(options, ...)                            \
    refuse(options, (const char *const[]){__VA_ARGS__}, \
           (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

START_TEST(bad_options_are_refused_with_what_is_wrong)
{
    char *certificate = pem_of_certificates(&node.certificate, 1),
         *key = pem_of_key(node.key, NULL);
    char *foreign_key = pem_of_key(ca.key, NULL), *locked = pem_of_key(node.key, "a-secret");
    char *damaged = strdup(ca_pem);
    memset(damaged + 60, '*', 20);
    struct tls_options options = {.ca_file = "/no/such/file"};
    REFUSE(&options, "CA file", "/no/such/file", "No such file");
    options = (struct tls_options){.ca_pem = "nothing in it"};
    REFUSE(&options, "CA file", "no PEM");
    options = (struct tls_options){.ca_pem = damaged};
    REFUSE(&options, "CA file", "certificate 1");
    options = (struct tls_options){
        .ca_pem = ca_pem, .certificate_pem = certificate, .key_pem = foreign_key};
    REFUSE(&options, "does not belong");
    options = (struct tls_options){
        .ca_pem = ca_pem, .certificate_pem = certificate, .key_pem = locked};
    REFUSE(&options, "key", "no password was given");
    options.key_password = "wrong-secret";
    REFUSE(&options, "key");
    options = (struct tls_options){.ca_pem = ca_pem, .certificate_pem = certificate};
    REFUSE(&options, "cannot read the key");
    options = (struct tls_options){.ca_pem = ca_pem, .key_pem = key};
    REFUSE(&options, "without a certificate");
    options = (struct tls_options){
        .ca_pem = ca_pem, .certificate_file = "/no/such/cert", .key_pem = key};
    REFUSE(&options, "certificate", "/no/such/cert");
    options = (struct tls_options){.ca_pem = ca_pem, .ciphers = "NO-SUCH-CIPHER"};
    REFUSE(&options, "NO-SUCH-CIPHER");
    options = (struct tls_options){.ca_pem = ca_pem, .ciphersuites = "NO-SUCH-SUITE"};
    REFUSE(&options, "NO-SUCH-SUITE");
    options = (struct tls_options){.ca_pem = ca_pem, .version_min = 13, .version_max = 12};
    REFUSE(&options, "13 to 12");
    options = (struct tls_options){.ca_pem = ca_pem, .version_min = 11};
    REFUSE(&options, "11");
    options = (struct tls_options){.ca_pem = ca_pem, .verify = 3};
    REFUSE(&options, "verification 3");
    free(certificate), free(key), free(foreign_key), free(locked), free(damaged);
}
END_TEST

START_TEST(versions_without_overlap_say_so)
{
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL), .version = TLS1_2_VERSION};
    SAYS(meet(&peer, &(struct tls_options){.ca_pem = ca_pem, .version_min = 13}, NULL, "10.0.0.3"),
         "version");
    peer.version = TLS1_3_VERSION;
    SAYS(meet(&peer, &(struct tls_options){.ca_pem = ca_pem, .version_max = 12}, NULL, "10.0.0.3"),
         "version");
    ck_assert_ptr_null(
        meet(&peer, &(struct tls_options){.ca_pem = ca_pem, .version_min = 13, .version_max = 13},
             NULL, "10.0.0.3"));
    SSL_CTX_free(peer.context);
}
END_TEST

/* --- TL-10: servers that do not speak TLS, or stop doing so ------------------------------------------------------------ */

static void answer_in_cql(struct peer *peer)
{
    char bytes[512];
    (void)read(peer->fd, bytes, sizeof bytes);
    static const char error[] = "\x84\0\0\0\0\0\0\0\x20\0\0\0\x0a\0\x1aInvalid or unsupported pro";
    (void)write(peer->fd, error, sizeof error - 1);
    while (read(peer->fd, bytes, sizeof bytes) > 0) {
    }
}

static void close_at_once(struct peer *peer)
{
    char bytes[16];
    (void)read(peer->fd, bytes, sizeof bytes);
}

static void answer_in_http(struct peer *peer)
{
    char bytes[512];
    (void)read(peer->fd, bytes, sizeof bytes);
    (void)write(peer->fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    while (read(peer->fd, bytes, sizeof bytes) > 0) {
    }
}

START_TEST(plain_server_on_the_tls_port_is_recognised)
{
    struct tls_options options = {.ca_pem = ca_pem};
    struct peer peer = {.raw = answer_in_cql};
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "does not speak TLS on this port",
         "switch TLS off");
    peer.raw = answer_in_http;
    SAYS(meet(&peer, &options, NULL, "10.0.0.3"), "does not speak TLS on this port");
    peer.raw = close_at_once;
    const char *message = meet(&peer, &options, NULL, "10.0.0.3");
    ck_assert_msg(message != NULL && (strstr(message, "closed the connection") != NULL ||
                                      strstr(message, "reset") != NULL),
                  "%s", message);
}
END_TEST

static void shut_down_in_order(struct peer *peer, SSL *ssl)
{
    (void)peer;
    (void)SSL_write(ssl, "last words", 10);
    (void)SSL_shutdown(ssl);
}

static void hang_up(struct peer *peer, SSL *ssl)
{
    (void)peer;
    (void)SSL_write(ssl, "last words", 10);
}

START_TEST(close_notify_is_an_end_and_a_hang_up_is_not)
{
    for (int i = 0; i < 2; ++i) {
        struct peer peer = {.context = peer_context(&node, NULL, 0, NULL),
                            .serve = i == 0 ? shut_down_in_order : hang_up};
        struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
        struct transport transport;
        char bytes[32];
        uint32_t size;
        init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
        ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
        ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size), TRANSPORT_OK);
        ck_assert_uint_eq(size, 10);
        ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size),
                         i == 0 ? TRANSPORT_END : TRANSPORT_ERROR);
        ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size),
                         i == 0 ? TRANSPORT_END : TRANSPORT_ERROR);
        if (i == 1) {
            ck_assert_int_eq(transport.error, ECONNRESET);
            SAYS(transport.message, "without ending TLS");
        }
        cqr_transport_close(&transport);
        peer_join(&peer);
        cqr_tls_context_release(context);
        SSL_CTX_free(peer.context);
    }
}
END_TEST

START_TEST(peer_gets_a_close_notify_from_us)
{
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL), .serve = echo};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct transport transport;
    int fd = peer_start(&peer), watch = dup(fd);
    init(&transport, fd, context, NULL, "10.0.0.3");
    ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
    cqr_transport_close(&transport);
    peer_join(&peer); /* our descriptor lives on in watch: what ends echo is the close_notify */
    (void)close(watch);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

/* --- a socket in our hands: it damages, it takes little ------------------------------------------------------------------ */

static struct {
    struct net net;
    bool damage;     /* the next bytes received */
    size_t send_max; /* bytes per send, 0 no limit */
    size_t budget;   /* bytes that sends may still take, SIZE_MAX no limit */
} strange;

static ssize_t strange_send(struct net *net, int fd, const void *data, size_t size)
{
    (void)net;
    if (strange.send_max != 0 && size > strange.send_max)
        size = strange.send_max;
    if (size > strange.budget)
        size = strange.budget;
    if (size == 0)
        return -EAGAIN;
    struct net *real = cqr_net_system();
    ssize_t sent = real->call->send(real, fd, data, size);
    if (sent > 0 && strange.budget != SIZE_MAX)
        strange.budget -= (size_t)sent;
    return sent;
}

static ssize_t strange_recv(struct net *net, int fd, void *data, size_t size)
{
    (void)net;
    struct net *real = cqr_net_system();
    ssize_t got = real->call->recv(real, fd, data, size);
    if (got > 8 && strange.damage) {
        ((uint8_t *)data)[got - 1] ^= 1;
        strange.damage = false;
    }
    return got;
}

static struct net *strange_net(void)
{
    static struct net_vtable calls;
    calls = *cqr_net_system()->call;
    calls.send = strange_send;
    calls.recv = strange_recv;
    strange.net.call = &calls;
    strange.damage = false;
    strange.send_max = 0;
    strange.budget = SIZE_MAX;
    return &strange.net;
}

/* The reader finds the damage; its alert is the writer's to send, who is told by wants_write. */
START_TEST(damaged_record_is_an_error_and_its_alert_leaves_with_the_writer)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct peer peer = {
        .context = peer_context(&node, NULL, 0, NULL), .serve = echo, .version = versions[_i]};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct transport transport;
    char bytes[32];
    uint32_t size;
    bool pending;
    init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
    transport.net = strange_net();
    ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
    send_all(&transport, "hello", 5);
    ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size), TRANSPORT_OK);
    ck_assert(!atomic_load(&transport.wants_write));
    strange.damage = true;
    send_all(&transport, "hello", 5);
    ck_assert_int_eq(receive(&transport, bytes, sizeof bytes, &size), TRANSPORT_ERROR);
    ck_assert_int_eq(transport.error, 0);
    SAYS(transport.message, "damaged");
    ck_assert(atomic_load(&transport.wants_write));
    strange.budget = 3; /* and not in one piece */
    ck_assert_int_eq(cqr_transport_send(&transport, NULL, 0, &size, &pending), TRANSPORT_AGAIN);
    strange.budget = SIZE_MAX;
    ck_assert_int_eq(cqr_transport_send(&transport, NULL, 0, &size, &pending), TRANSPORT_OK);
    ck_assert(!pending);
    ck_assert_int_eq(cqr_transport_send(&transport, "x", 1, &size, &pending), TRANSPORT_ERROR);
    ck_assert_uint_eq(size, 0);
    peer_join(&peer); /* the alert ended echo */
    cqr_transport_close(&transport);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

static void ask_for_renegotiation(struct peer *peer, SSL *ssl)
{
    char byte;
    (void)SSL_read(ssl, &byte, 1);
    (void)SSL_renegotiate(ssl);
    (void)SSL_do_handshake(ssl);
    peer->count = SSL_read(ssl, &byte, 1) <= 0 &&
                  ERR_GET_REASON(ERR_peek_error()) == SSL_R_NO_RENEGOTIATION;
}

START_TEST(renegotiation_is_declined_by_the_writer)
{
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL),
                        .serve = ask_for_renegotiation,
                        .version = TLS1_2_VERSION};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct transport transport;
    char bytes[32];
    uint32_t size;
    init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
    ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
    send_all(&transport, "x", 1);
    while (!atomic_load(&transport.wants_write)) {
        await(&transport, POLL_READ);
        ck_assert_int_eq(cqr_transport_recv(&transport, bytes, sizeof bytes, &size),
                         TRANSPORT_AGAIN);
    }
    send_all(&transport, NULL, 0);
    peer_join(&peer);
    ck_assert_uint_eq(peer.count, 1);
    cqr_transport_close(&transport);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

/* Decision: what was not accepted has not reached the peer, what was accepted has. Whatever number of bytes the socket
   takes in all, the peer reads exactly what send had accepted by then. */
START_TEST(accepted_bytes_are_exactly_those_the_peer_can_read)
{
    enum { SIZE = 40000 };
    static char bytes[SIZE];
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL), .serve = read_to_the_end};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    static const size_t budgets[] = {0,     1,     5,     100,   16384, 16405, 16406, 16407,
                                     20000, 33000, 40000, 40065, 40066, 40067, 50000};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; ++i) {
        struct transport transport;
        uint32_t accepted;
        bool pending;
        peer.count = 0;
        init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
        transport.net = strange_net();
        ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
        strange.budget = budgets[i];
        strange.send_max = 7000;
        enum transport_result result = cqr_transport_send(&transport, bytes, SIZE, &accepted,
                                                          &pending);
        ck_assert_int_eq(result == TRANSPORT_OK, accepted == SIZE);
        ck_assert_int_eq(pending, accepted < SIZE); /* the record that did not fit is sealed */
        ck_assert(accepted % 16384 == 0 || accepted == SIZE);
        uint32_t first = accepted;
        ck_assert_int_eq(cqr_transport_send(&transport, NULL, 0, &accepted, &pending),
                         TRANSPORT_OK);
        ck_assert_int_eq(accepted, 0);
        ck_assert_int_eq(pending, first < SIZE);
        cqr_transport_close(&transport); /* in the middle of a record no close_notify is tried */
        peer_join(&peer);
        ck_assert_uint_eq(peer.count, first);
    }
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

/* --- much data, both ways ------------------------------------------------------------------------------------------------ */

enum { MUCH = 1 << 20 };

static uint8_t pattern(uint32_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

static void shrink(int fd)
{
    int size = 2048;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

/* One thread, in turns, as before conn_up. 0, 1: TLS 1.2 and 1.3; 2: with key updates. */
START_TEST(a_megabyte_goes_both_ways_through_small_buffers)
{
    static uint8_t out[MUCH];
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION, TLS1_3_VERSION};
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL),
                        .serve = _i == 2 ? echo_with_key_updates : echo,
                        .version = versions[_i]};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct transport transport;
    for (uint32_t i = 0; i < MUCH; ++i)
        out[i] = pattern(i);
    init(&transport, peer_start(&peer), context, NULL, "10.0.0.3");
    shrink(transport.fd);
    shrink(peer.fd);
    ck_assert_int_eq(shake(&transport), TRANSPORT_OK);
    uint32_t sent = 0, received = 0, wait = POLL_READ | POLL_WRITE;
    uint64_t again_count = 0, pending_count = 0;
    bool good = true;
    while (received < MUCH) {
        /* The sizes of the calls vary; what comes after a half written record may be more than before. */
        uint32_t size = sent + (received % 7 + 1) * 9000 < MUCH ? (received % 7 + 1) * 9000
                                                                : MUCH - sent;
        static bool was_pending;
        size = was_pending && size < 16384 ? (MUCH - sent < 16384 ? MUCH - sent : 16384) : size;
        uint32_t accepted;
        enum transport_result result = cqr_transport_send(&transport, out + sent, size, &accepted,
                                                          &was_pending);
        ck_assert(result == TRANSPORT_OK || result == TRANSPORT_AGAIN);
        again_count += result == TRANSPORT_AGAIN;
        pending_count += was_pending;
        sent += accepted;
        uint8_t in[5000];
        while ((result = cqr_transport_recv(&transport, in, sizeof in, &size)) == TRANSPORT_OK)
            for (uint32_t i = 0; i < size; ++i)
                good = good && in[i] == pattern(received++);
        ck_assert_msg(result == TRANSPORT_AGAIN, "%s", transport.message);
        wait = POLL_READ | (sent < MUCH ? POLL_WRITE : 0);
        if (received < MUCH)
            await(&transport, wait);
    }
    ck_assert(good);
    ck_assert_uint_gt(again_count, 0);
    ck_assert_uint_gt(pending_count, 0);
    cqr_transport_close(&transport);
    peer_join(&peer);
    ck_assert_uint_eq(peer.count, MUCH);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

/* Two threads, as reactor and submitter after conn_up. */
struct duplex {
    struct transport transport;
    uint64_t pending_count;
    bool failed;
};

static void *write_main(void *context)
{
    struct duplex *duplex = context;
    static uint8_t out[MUCH];
    for (uint32_t i = 0; i < MUCH; ++i)
        out[i] = pattern(i);
    for (uint32_t sent = 0; sent < MUCH;) {
        uint32_t accepted;
        bool pending;
        enum transport_result result = cqr_transport_send(&duplex->transport, out + sent,
                                                          MUCH - sent, &accepted, &pending);
        sent += accepted;
        duplex->pending_count += pending;
        if (result == TRANSPORT_ERROR) {
            duplex->failed = true;
            return NULL;
        }
        if (result == TRANSPORT_AGAIN) {
            struct pollfd pollfd = {.fd = duplex->transport.fd, .events = POLLOUT};
            (void)poll(&pollfd, 1, 20000);
        }
    }
    return NULL;
}

START_TEST(reader_and_writer_share_a_connection_through_key_updates)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION, TLS1_3_VERSION};
    struct peer peer = {.context = peer_context(&node, NULL, 0, NULL),
                        .serve = _i == 2 ? echo_with_key_updates : echo,
                        .version = versions[_i]};
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    struct duplex duplex = {0};
    init(&duplex.transport, peer_start(&peer), context, NULL, "10.0.0.3");
    shrink(duplex.transport.fd);
    shrink(peer.fd);
    ck_assert_int_eq(shake(&duplex.transport), TRANSPORT_OK);
    pthread_t writer;
    ck_assert_int_eq(pthread_create(&writer, NULL, write_main, &duplex), 0);
    uint32_t received = 0;
    bool good = true;
    while (received < MUCH) {
        uint8_t in[16384];
        uint32_t size;
        enum transport_result result = cqr_transport_recv(&duplex.transport, in, sizeof in, &size);
        for (uint32_t i = 0; i < size; ++i)
            good = good && in[i] == pattern(received++);
        if (result == TRANSPORT_AGAIN)
            await(&duplex.transport, POLL_READ);
        else
            ck_assert_msg(result == TRANSPORT_OK, "%s", duplex.transport.message);
    }
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    ck_assert(good && !duplex.failed);
    ck_assert_uint_gt(duplex.pending_count, 0);
    cqr_transport_close(&duplex.transport);
    peer_join(&peer);
    cqr_tls_context_release(context);
    SSL_CTX_free(peer.context);
}
END_TEST

/* --- nothing left behind -------------------------------------------------------------------------------------------------- */

START_TEST(failing_allocations_leave_nothing_behind)
{
    int64_t live = cqr_mem_live_count();
    struct tls_options options = {.ca_pem = ca_pem, .server_name = "node1.example"};
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    struct address peer;
    ck_assert(cqr_address_from_literal(&peer, "10.0.0.3", 9042));
    for (uint64_t n = 1;; ++n) {
        struct tls_context *context = NULL;
        struct transport transport;
        cqr_mem_fail_at(n, 0);
        cqlring_status status = cqr_tls_context_create(&options, &context, NULL);
        if (status == CQLRING_OK)
            status = cqr_transport_init(&transport, cqr_net_system(), fds[0], context, "a.example",
                                        &peer);
        uint64_t failures = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        ck_assert_int_eq(status, failures == 0 ? CQLRING_OK : CQLRING_NO_MEMORY);
        if (status == CQLRING_OK)
            cqr_transport_close(&transport);
        cqr_tls_context_release(context);
        ck_assert_int_eq(cqr_mem_live_count(), live);
        if (failures == 0)
            break;
    }
    (void)close(fds[1]);
}
END_TEST

static void cut_the_handshake(struct peer *peer)
{
    char bytes[300];
    (void)read(peer->fd, bytes, sizeof bytes);
    /* The beginning of a ServerHello, and the line goes dead. */
    (void)write(peer->fd, "\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03", 11);
}

/* TL-08: a third of them cut in mid-handshake by the server, some by us. */
START_TEST(connections_come_and_go_and_memory_stays)
{
    struct tls_context *context = make_context(&(struct tls_options){.ca_pem = ca_pem});
    SSL_CTX *server = peer_context(&node, NULL, 0, NULL);
    int cycles = RUNNING_ON_SANITIZER ? 100 : 1000;
    size_t used_early = 0;
    int64_t live = 0;
    int fd_early = -1;
    for (int i = 0; i < cycles; ++i) {
        struct peer peer = {
            .context = server, .serve = echo, .raw = i % 3 == 1 ? cut_the_handshake : NULL};
        struct transport transport;
        uint32_t wait;
        init(&transport, peer_start(&peer), context, "node1.example", "10.0.0.3");
        if (i % 9 == 4) {
            (void)cqr_transport_handshake(&transport, &wait);
        } else if (shake(&transport) == TRANSPORT_OK) {
            char byte;
            uint32_t size;
            send_all(&transport, "x", 1);
            ck_assert_int_eq(receive(&transport, &byte, 1, &size), TRANSPORT_OK);
        } else {
            ck_assert_int_eq(i % 3, 1);
        }
        cqr_transport_close(&transport);
        peer_join(&peer);
        if (i == cycles / 4 || i == cycles - 1) {
            int fd = dup(0);
            (void)close(fd);
            size_t used = mallinfo2().uordblks;
            if (i == cycles / 4) {
                used_early = used;
                fd_early = fd;
                live = cqr_mem_live_count();
            }
            ck_assert_int_eq(fd, fd_early);
            ck_assert_int_eq(cqr_mem_live_count(), live);
            ck_assert_msg(used < used_early + 64 * 1024,
                          "%zu bytes after a quarter, %zu at the end", used_early, used);
        }
    }
    SSL_CTX_free(server);
    cqr_tls_context_release(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls");
    TCase *handshake = tcase_create("handshake");
    tcase_add_checked_fixture(handshake, set_up, tear_down);
    tcase_add_loop_test(handshake, both_versions_shake_hands_and_speak, 0, 2);
    tcase_add_test(handshake, peers_are_verified_by_address_name_or_server_name);
    tcase_add_test(handshake, certificate_without_alternatives_goes_by_its_common_name);
    tcase_add_test(handshake, untrusted_and_expired_certificates_are_refused_with_the_reason);
    tcase_add_test(handshake, names_are_indicated_and_addresses_never);
    tcase_add_test(handshake, every_certificate_of_a_bundle_counts);
    tcase_add_test(handshake, client_certificate_goes_with_its_chain);
    tcase_add_test(handshake, bad_options_are_refused_with_what_is_wrong);
    tcase_add_test(handshake, versions_without_overlap_say_so);
    tcase_add_test(handshake, plain_server_on_the_tls_port_is_recognised);
    suite_add_tcase(suite, handshake);
    TCase *data = tcase_create("data");
    tcase_add_checked_fixture(data, set_up, tear_down);
    tcase_add_test(data, close_notify_is_an_end_and_a_hang_up_is_not);
    tcase_add_test(data, peer_gets_a_close_notify_from_us);
    tcase_add_loop_test(data, damaged_record_is_an_error_and_its_alert_leaves_with_the_writer, 0,
                        2);
    tcase_add_test(data, renegotiation_is_declined_by_the_writer);
    tcase_add_test(data, accepted_bytes_are_exactly_those_the_peer_can_read);
    tcase_add_loop_test(data, a_megabyte_goes_both_ways_through_small_buffers, 0, 3);
    tcase_add_loop_test(data, reader_and_writer_share_a_connection_through_key_updates, 0, 3);
    suite_add_tcase(suite, data);
    TCase *memory = tcase_create("memory");
    tcase_add_checked_fixture(memory, set_up, tear_down);
    tcase_add_test(memory, failing_allocations_leave_nothing_behind);
    tcase_add_test(memory, connections_come_and_go_and_memory_stays);
    suite_add_tcase(suite, memory);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
