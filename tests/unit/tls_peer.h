/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TLS_PEER_H
#define TESTS_TLS_PEER_H

/* The other side of a TLS connection, for tests: certificates made on the spot, and a server that runs what it is given
   on a thread of its own, with a blocking socket. */

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>

/* A certificate with its key; issuer NULL: signed by itself. */
struct identity {
    X509 *certificate;
    EVP_PKEY *key;
};

struct identity_options {
    const char *name; /* common name */
    const char
        *alternatives; /* subjectAltName in OpenSSL's words, "DNS:a,IP:10.0.0.1"; NULL none */
    const struct identity *issuer; /* NULL: itself */
    bool is_ca;
    int from_days, until_days; /* from now; 0 and 0: yesterday to ten days from now */
};

struct identity identity_make(const struct identity_options *options);
void identity_free(struct identity *identity);
/* PEM texts, to be freed with free(). certificates: several after each other. password NULL: a plain key. */
char *pem_of_certificates(X509 *const *certificates, int count);
char *pem_of_key(EVP_PKEY *key, const char *password);
/* Into a new file below /tmp; its name, freed with free() after unlink(). */
char *file_of(const char *text);

struct peer {
    SSL_CTX *context;
    void (*serve)(struct peer *peer, SSL *ssl); /* after the handshake; NULL: nothing */
    void (*raw)(struct peer *peer);             /* instead of all TLS */
    int fd;
    pthread_t thread;
    bool shaken;           /* the handshake came to its end */
    char server_name[256]; /* the SNI that came, empty when none did */
    char client_name[256]; /* the common name of the client's certificate */
    size_t count;          /* for serve's use */
    int version;           /* 0 or TLS1_2_VERSION, TLS1_3_VERSION: that one only */
};

/* A server with this identity; chain: further certificates it sends. client_ca: asks for a client certificate and checks
   it; NULL: asks for none. */
SSL_CTX *peer_context(const struct identity *identity, X509 *const *chain, int chain_count,
                      X509 *client_ca);
/* Start the server on one end of a socket pair; returns the other end, non-blocking. The thread closes its end. */
int peer_start(struct peer *peer);
void peer_join(struct peer *peer);

#endif
