/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver/poller.h"
#include "driver/tls_private.h"
#include "serialize/mem.h"

/* One SSL, two users: the reactor reads, the submitter writes. The lock is held around one call of at most one record.

   A BIO of our own stands between OpenSSL and the socket, so that only the owner of the write side ever writes to it:
   - While somebody shakes hands or sends, a write goes to the socket. When the socket takes half a record, OpenSSL keeps
     the rest, and the same bytes have to be offered again: `half_written` says how many.
   - While the reactor reads, OpenSSL may want to write too (an alert). Those few bytes are kept in `late`, `wants_write`
     goes up, and the next send starts with them. OpenSSL writes nothing of that kind while a record is half written (it
     defers it to its next write), so late bytes always belong in front of what is sent next. The answer to a KeyUpdate
     is not among them: since 3.0.2 it leaves with the next write by itself.
   - A read takes as much as the record buffer holds, many records at once. After a read that was not filled the socket is
     taken to be empty, once, without asking it: if more has come in the meantime the poller says so.

   Both buffers of a connection are given back when they are empty (SSL_MODE_RELEASE_BUFFERS).

   Sessions are resumed: a ticket saves the server a signature and both sides the certificates, which counts when hundreds of
   connections come back at once. The context keeps them (tls_context.c). A handshake that fails though a session was offered
   may have failed because of it (servers exist that cannot bear one): the peer's sessions are forgotten, and the connection is
   made again at once. */

enum { RECORD_SIZE = 16384 };

/* --- BIO ----------------------------------------------------------------------------------------------------------- */

static int keep_late(struct tls *tls, const char *data, int size)
{
    if ((uint32_t)size > TLS_LATE_SIZE - tls->late_count)
        return -1; /* a peer that provokes alerts and takes none: SSL_read fails, and so does the connection */
    memcpy(tls->late + tls->late_count, data, (size_t)size);
    tls->late_count += (uint32_t)size;
    /* Release: pairs with the reactor's exchange; it is only a hint, the bytes are under the lock. */
    atomic_store_explicit(&tls->transport->wants_write, true, memory_order_release);
    return size;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!tls->writing)
        return keep_late(tls, data, size);
    struct net *net = tls->transport->net;
    ssize_t result = net->call->send(net, tls->transport->fd, data, (size_t)size);
    if (result >= 0)
        return (int)result;
    if (result == -EAGAIN)
        BIO_set_retry_write(bio);
    else
        tls->io_error = (int)-result;
    return -1;
}

static int bio_read(BIO *bio, char *data, int size)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    /* The submitter never reads a socket, though a handshake message cut in two makes OpenSSL try. */
    bool is_submitter = tls->established && tls->writing;
    if (is_submitter || tls->drained) {
        tls->drained = tls->drained && is_submitter;
        BIO_set_retry_read(bio);
        return -1;
    }
    struct net *net = tls->transport->net;
    ssize_t result = net->call->recv(net, tls->transport->fd, data, (size_t)size);
    if (result > 0) {
        tls->drained = result < size;
        return (int)result;
    }
    if (result == -EAGAIN)
        BIO_set_retry_read(bio);
    else if (result == 0)
        tls->ended = true;
    else
        tls->io_error = (int)-result;
    return result == 0 ? 0 : -1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number, (void)pointer;
    struct tls *tls = BIO_get_data(bio);
    switch (command) {
    case BIO_CTRL_FLUSH: return 1;
    case BIO_CTRL_EOF: return tls != NULL && tls->ended;
    default: return 0;
    }
}

/* --- once per process ---------------------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *bio_method;

/* NO_ATEXIT: an application may leave through exit() while our threads still read and write; OpenSSL must not pull its
   tables away under them. */
static void start_openssl(void)
{
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return;
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cqlring");
    if (method == NULL)
        return;
    (void)BIO_meth_set_write(method, bio_write);
    (void)BIO_meth_set_read(method, bio_read);
    (void)BIO_meth_set_ctrl(method, bio_control);
    bio_method = method;
}

bool cqr_tls_start(void)
{
    (void)pthread_once(&once, start_openssl);
    return bio_method != NULL;
}

/* --- what went wrong, for people ----------------------------------------------------------------------------------- */

/* Reasons of OpenSSL's that people meet, and what they mean here. NULL: OpenSSL's own words will do. */
static const char *hint_of(int reason, bool established)
{
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_RECORD_TOO_SMALL:
        return established
                   ? NULL
                   : "the server does not speak TLS on this port: switch TLS off, or use its TLS port";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_NO_CERTIFICATE:
        return "the server wants a client certificate: set certificate and key";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return "the server does not trust our client certificate's CA: add it to the server's trust store";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "the server says that our client certificate has expired: renew it";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return "the server does not accept our client certificate, or wants one and got none: set certificate and key";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return "the server ended the handshake: no cipher in common, or it wants a client certificate";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
        return "no TLS version in common with the server: see the smallest and largest version allowed";
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
        return "no TLS version is left: see the smallest and largest version allowed";
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC: return "a TLS record was damaged on its way";
    default: return NULL;
    }
}

/* The reader's side has failed for good: say why. What OpenSSL found comes before what the socket said, which may only
   be that the peer did not wait for our alert. */
static enum transport_result read_failed(struct tls *tls)
{
    struct transport *transport = tls->transport;
    char *text = transport->message;
    const size_t size = sizeof transport->message;
    unsigned long code = ERR_peek_last_error(); /* OpenSSL's outermost layer */
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    const char *hint = reason != 0 ? hint_of(reason, tls->established) : NULL;
    tls->read_failed = true;
    transport->error = 0;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && text[0] != '\0')
        return TRANSPORT_ERROR; /* verify() has said it */
    if (tls->ended) {
        transport->error = ECONNRESET;
        (void)snprintf(
            text, size,
            tls->established
                ? "the server closed the connection without ending TLS in order"
                : "the server closed the connection in the TLS handshake: is this its TLS port?");
    } else if (hint != NULL) {
        (void)snprintf(text, size, "%s", hint);
    } else if (code != 0) {
        const char *words = ERR_reason_error_string(code);
        (void)snprintf(text, size, "TLS: %s", words != NULL ? words : "unknown error");
    } else {
        transport->error = tls->io_error;
        (void)snprintf(text, size, "%s",
                       tls->io_error != 0 ? strerrordesc_np(tls->io_error) : "TLS: unknown error");
    }
    return TRANSPORT_ERROR;
}

/* --- a connection ---------------------------------------------------------------------------------------------------- */

static enum transport_result write_failed(struct tls *tls)
{
    tls->write_failed = true;
    tls->transport->send_error = tls->io_error;
    return TRANSPORT_ERROR;
}

static enum transport_result send_late(struct tls *tls)
{
    struct net *net = tls->transport->net;
    ssize_t sent = net->call->send(net, tls->transport->fd, tls->late, tls->late_count);
    if (sent == -EAGAIN)
        return TRANSPORT_AGAIN;
    if (sent < 0) {
        tls->io_error = (int)-sent;
        return write_failed(tls);
    }
    tls->late_count -= (uint32_t)sent;
    memmove(tls->late, tls->late + sent, tls->late_count);
    return tls->late_count == 0 ? TRANSPORT_OK : TRANSPORT_AGAIN;
}

/* One record, which is what the lock is held for. A record that was half written comes again with the same size: it is
   sealed, OpenSSL looks at nothing else. */
static enum transport_result send_record(struct tls *tls, const void *data, uint32_t size,
                                         uint32_t *accepted)
{
    assert(tls->half_written <= size);
    uint32_t chunk = tls->half_written > 0 ? tls->half_written
                     : size < RECORD_SIZE  ? size
                                           : RECORD_SIZE;
    size_t written = 0;
    ERR_clear_error();
    tls->io_error = 0;
    tls->writing = true;
    int done = SSL_write_ex(tls->ssl, data, chunk, &written);
    int error = SSL_get_error(tls->ssl, done);
    tls->writing = false;
    switch (error) {
    case SSL_ERROR_NONE:
        tls->half_written = 0;
        *accepted += (uint32_t)written;
        return TRANSPORT_OK;
    case SSL_ERROR_WANT_WRITE: tls->half_written = chunk; return TRANSPORT_AGAIN;
    case SSL_ERROR_WANT_READ: /* a handshake message cut in two stands in the way; the reader will get its other half */
        return TRANSPORT_AGAIN;
    default: return write_failed(tls);
    }
}

enum transport_result cqr_tls_send(struct transport *transport, const void *data, uint32_t size,
                                   uint32_t *accepted, bool *wire_pending)
{
    struct tls *tls = transport->tls;
    enum transport_result result;
    do {
        (void)pthread_mutex_lock(&tls->lock);
        result = tls->write_failed     ? TRANSPORT_ERROR
                 : tls->late_count > 0 ? send_late(tls)
                                       : TRANSPORT_OK;
        if (result == TRANSPORT_OK && *accepted < size)
            result = send_record(tls, (const uint8_t *)data + *accepted, size - *accepted,
                                 accepted);
        *wire_pending = tls->half_written > 0;
        (void)pthread_mutex_unlock(&tls->lock);
    } while (result == TRANSPORT_OK && *accepted < size);
    return result;
}

enum transport_result cqr_tls_recv(struct transport *transport, void *data, uint32_t capacity,
                                   uint32_t *size)
{
    struct tls *tls = transport->tls;
    enum transport_result result = TRANSPORT_ERROR;
    (void)pthread_mutex_lock(&tls->lock);
    if (!tls->read_failed) {
        size_t read = 0;
        ERR_clear_error();
        tls->io_error = 0;
        int done = SSL_read_ex(tls->ssl, data, capacity, &read);
        switch (SSL_get_error(tls->ssl, done)) {
        case SSL_ERROR_NONE:
            *size = (uint32_t)read;
            result = TRANSPORT_OK;
            break;
        case SSL_ERROR_WANT_READ: result = TRANSPORT_AGAIN; break;
        case SSL_ERROR_ZERO_RETURN: result = TRANSPORT_END; break;
        default: result = read_failed(tls);
        }
    }
    (void)pthread_mutex_unlock(&tls->lock);
    return result;
}

static void handshake_is_over(struct tls *tls)
{
    struct tls_facts *facts = &tls->facts;
    const char *version = SSL_get_version(tls->ssl); /* "TLSv1.3" */
    (void)snprintf(facts->version, sizeof facts->version, "TLS %s",
                   strncmp(version, "TLSv", 4) == 0 ? version + 4 : version);
    (void)snprintf(facts->cipher, sizeof facts->cipher, "%s", SSL_get_cipher_name(tls->ssl));
    (void)snprintf(facts->text, sizeof facts->text, "%s %s", facts->version, facts->cipher);
    facts->resumed = SSL_session_reused(tls->ssl) == 1;
    const X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    if (certificate != NULL)
        cqr_tls_certificate_facts(certificate, facts);
    ERR_clear_error();
    tls->drained = false; /* the poller's next word counts */
    tls->established = true;
}

enum transport_result cqr_tls_handshake(struct transport *transport, uint32_t *wait)
{
    struct tls *tls = transport->tls;
    enum transport_result result = TRANSPORT_ERROR;
    (void)pthread_mutex_lock(&tls->lock);
    if (!tls->read_failed) {
        ERR_clear_error();
        tls->io_error = 0;
        tls->writing = true;
        int done = SSL_do_handshake(tls->ssl);
        int error = SSL_get_error(tls->ssl, done);
        tls->writing = false;
        if (error == SSL_ERROR_NONE) {
            handshake_is_over(tls);
            result = TRANSPORT_OK;
        } else if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
            *wait = error == SSL_ERROR_WANT_READ ? POLL_READ : POLL_WRITE;
            result = TRANSPORT_AGAIN;
        } else {
            result = read_failed(tls);
            if (tls->facts.offered)
                cqr_tls_sessions_forget(tls->context, &tls->peer, tls->peer_name);
        }
    }
    (void)pthread_mutex_unlock(&tls->lock);
    return result;
}

const struct tls_facts *cqr_tls_facts(const struct tls *tls)
{
    return &tls->facts;
}

void cqr_tls_destroy(struct tls *tls)
{
    if (tls->ssl != NULL) {
        ERR_clear_error();
        /* Ours is the last word, so nobody holds the lock. A peer that is still there gets its close_notify. */
        tls->writing = true;
        if (tls->established && !tls->read_failed && !tls->write_failed && tls->half_written == 0 &&
            tls->late_count == 0)
            (void)SSL_shutdown(tls->ssl);
        SSL_free(tls->ssl);
        ERR_clear_error();
    }
    (void)pthread_mutex_destroy(&tls->lock);
    cqr_tls_context_release(tls->context);
    cqr_mem_free(tls->peer_name);
    cqr_mem_free(tls);
}

static bool is_literal(const char *name)
{
    struct address address;
    return cqr_address_from_literal(&address, name, 0);
}

/* Everything of the SSL that is not the context's. False when OpenSSL has no memory. */
static bool ssl_prepare(struct tls *tls)
{
    tls->ssl = SSL_new(tls->context->ssl_context);
    BIO *bio = tls->ssl == NULL ? NULL : BIO_new(bio_method);
    if (bio == NULL)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    SSL_set_connect_state(tls->ssl);
    /* A name for servers that choose their certificate by it, never an address (RFC 6066). A name too long to be sent
       is verified all the same. */
    const char *name = tls->context->server_name != NULL ? tls->context->server_name
                                                         : tls->peer_name;
    if (name != NULL && !is_literal(name))
        (void)SSL_set_tlsext_host_name(tls->ssl, name);
    SSL_SESSION *session = cqr_tls_session_take(tls->context, &tls->peer, tls->peer_name);
    if (session != NULL) {
        tls->facts.offered = SSL_set_session(tls->ssl, session) == 1;
        SSL_SESSION_free(session);
    }
    ERR_clear_error();
    return true;
}

cqlring_status cqr_tls_create(struct transport *transport, struct tls_context *context,
                              const char *peer_name, const struct address *peer)
{
    struct tls *tls = cqr_mem_zalloc(sizeof *tls);
    if (tls == NULL)
        return CQLRING_NO_MEMORY;
    (void)pthread_mutex_init(&tls->lock, NULL);
    tls->context = cqr_tls_context_retain(context);
    tls->transport = transport;
    if (peer != NULL)
        tls->peer = *peer;
    bool is_named = peer_name != NULL && peer_name[0] != '\0' && !is_literal(peer_name);
    if (is_named)
        tls->peer_name = cqr_tls_host_copy(peer_name);
    if ((is_named && tls->peer_name == NULL) || !ssl_prepare(tls)) {
        cqr_tls_destroy(tls);
        return CQLRING_NO_MEMORY;
    }
    transport->tls = tls;
    return CQLRING_OK;
}
