/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TLS_PRIVATE_H
#define CQR_TLS_PRIVATE_H

/* What the two files that see OpenSSL share: tls.c, the connections, and tls_context.c, the certificates and what is
   believed of the peer's. Nobody else includes this. */

#include <pthread.h>

#include "driver/tls.h"

struct ssl_st;
struct ssl_ctx_st;

enum { TLS_LATE_SIZE = 512, TLS_READ_BUFFER_SIZE = 4 * (16384 + 512) };

struct tls_context {
    atomic_uint references;
    struct ssl_ctx_st *ssl_context;
    uint8_t verify;
    char *server_name; /* NULL: none */
    bool resume;
    pthread_mutex_t lock;          /* of what follows; taken at a handshake and when a ticket comes */
    struct saved_session *sessions; /* newest first */
    uint32_t session_count;
};

struct tls {
    /* Constant once the handshake is over. */
    struct ssl_st *ssl;
    struct tls_context *context;
    struct transport *transport;
    char *peer_name; /* NULL: none */
    struct address peer;
    struct tls_facts facts;
    bool established;
    /* Under the lock. */
    pthread_mutex_t lock;
    bool writing;     /* the caller owns the write side: BIO writes may go to the socket */
    bool drained;     /* the last read of the socket took all there was */
    bool ended;       /* the socket has reached its end */
    bool read_failed; /* nothing more will be read; what came before a failed write still is */
    bool write_failed;
    int io_error;          /* errno of the socket in the call under way */
    uint32_t half_written; /* application bytes of the record that is partly in the socket */
    uint32_t late_count;
    uint8_t late[TLS_LATE_SIZE];
};

struct x509_st;
void cqr_tls_certificate_facts(const struct x509_st *certificate, struct tls_facts *facts); /* tls_context.c */
/* tls_context.c: the newest session that may be offered to this peer, the caller's then; NULL: none. */
struct ssl_session_st *cqr_tls_session_take(struct tls_context *context, const struct address *peer, const char *name);
void cqr_tls_sessions_forget(struct tls_context *context, const struct address *peer, const char *name);
bool cqr_tls_start(void);                      /* tls.c: OpenSSL is up; once a process */
char *cqr_tls_host_copy(const char *name);     /* a host's name without the dot that a fully qualified one may end with */

#endif
