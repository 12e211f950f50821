/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TRANSPORT_H
#define CQR_TRANSPORT_H

/* Bytes of one connection, plain or TLS. The reactor connects, shakes hands and reads; the submitter writes once the
   connection is up (decision 12). With TLS both would use one SSL: tls.c holds a short per-connection lock around one
   call of at most one record, nobody else knows (decision 34). OpenSSL is seen by tls.c and tls_context.c only. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/net.h"
#include "serialize/cqlring_types.h"

struct tls_context; /* counted, immutable: certificates, versions, verification; shared by connections of a cluster */
struct tls;         /* one connection's */

struct tls_options {
    const char *ca_file;          /* PEM bundle (all certificates in it are loaded: TL-06); NULL: the system's */
    const char *ca_pem;           /* the same as text instead of a file */
    const char *certificate_file, *key_file, *key_password; /* client certificate chain; NULL: none */
    const char *certificate_pem, *key_pem;
    uint8_t verify;               /* 0 FULL (chain and host), 1 CHAIN, 2 NONE */
    uint8_t version_min;          /* 0 default (1.2), 12, 13 */
    uint8_t version_max;          /* 0 default (highest), 12, 13 */
    const char *ciphers;          /* TLS 1.2 list, NULL default */
    const char *ciphersuites;     /* TLS 1.3 list, NULL default */
    bool resume;                  /* sessions of earlier connections are offered */
    const char *server_name;      /* name to verify and to send as SNI for every node; NULL: from the contact point */
};

cqlring_status cqr_tls_context_create(const struct tls_options *options, struct tls_context **out, cqlring_error *error);
struct tls_context *cqr_tls_context_retain(struct tls_context *context);
void cqr_tls_context_release(struct tls_context *context); /* NULL is fine */

enum transport_result {
    TRANSPORT_OK,
    TRANSPORT_AGAIN,   /* recv: wait for readable; send: wait for writable */
    TRANSPORT_END,     /* recv: the peer closed in order (TLS: close_notify) */
    TRANSPORT_ERROR    /* transport->error / message */
};

struct transport {
    struct net *net;
    int fd;
    struct tls *tls;            /* NULL: plain */
    /* The reader's: about the TRANSPORT_ERROR that handshake or recv returned. */
    int error;                  /* errno, 0 when TLS itself failed */
    char message[256];          /* what failed and what may help, for people, without the address */
    bool received;              /* the first bytes have been looked at */
    /* The writer's. */
    int send_error;             /* errno behind a TRANSPORT_ERROR of send, 0 when TLS itself failed */
    /* TLS: set by the reader when SSL_read left something to write (an alert); the reactor takes it down and publishes a
       WRITABLE entry, so that the submitter calls send with size 0. */
    atomic_bool wants_write;
};

/* Wraps a connecting descriptor. context NULL: plain. peer_name: the contact name that resolved to this address (for SNI
   and verification), NULL or an IP literal: none; peer: the address, accepted in an IP SAN. Reactor. */
cqlring_status cqr_transport_init(struct transport *transport, struct net *net, int fd, struct tls_context *context,
                                  const char *peer_name, const struct address *peer);
/* Reactor, after the TCP connect: OK when bytes may flow; AGAIN with *wait = POLL_READ or POLL_WRITE. Plain: OK at once. */
enum transport_result cqr_transport_handshake(struct transport *transport, uint32_t *wait);
/* Reactor. Up to capacity bytes; *size > 0 with OK. With TLS one recv of the socket brings many records, and each call
   returns the bytes of one: call until AGAIN, or bytes stay behind of which the poller knows nothing. Plain: the same
   rule, or stop when *size < capacity. */
enum transport_result cqr_transport_recv(struct transport *transport, void *data, uint32_t capacity, uint32_t *size);
/* Whoever owns the write side. *accepted bytes of data are in the socket, in whole records (TLS) or bytes (plain); OK when
   all, AGAIN when not all (send the rest, the same bytes, once writable). TLS takes records of at most 16 KiB at a time;
   *wire_pending is true when one is half written: its bytes are not accepted yet (decision 13), but they are sealed and
   must come again, unchanged, at the head of the next call (more may follow them). A size of 0 flushes what TLS itself
   has pending; it leaves a half written record alone. With ERROR, *accepted still counts what went before. */
enum transport_result cqr_transport_send(struct transport *transport, const void *data, uint32_t size, uint32_t *accepted, bool *wire_pending);
void cqr_transport_shutdown(struct transport *transport);  /* either side: shutdown(fd) only */
void cqr_transport_close(struct transport *transport);     /* reactor, once, after the writer's goodbye: frees TLS, closes fd */

/* OpenSSL is started on first use with NO_ATEXIT; "TLS 1.3 TLS_AES_…" for the log; an empty string when plain. */
const char *cqr_transport_tls_version(const struct transport *transport);
/* What the handshake found, constant once it is over, however it ended; NULL when plain. */
struct tls_facts {
    char text[80];                  /* version and cipher, for the log */
    char version[16], cipher[48];
    char names[256], subject[128], issuer[128]; /* the peer's certificate */
    int64_t from_s, until_s;        /* its validity, seconds since 1970 */
    bool resumed;
    bool offered;                   /* a session of an earlier connection was offered */
};
const struct tls_facts *cqr_transport_tls_facts(const struct transport *transport);

#endif
