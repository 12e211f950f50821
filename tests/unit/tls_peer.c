/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/tls_peer.h"

#include <assert.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A broken promise of the test's own set-up. */
static void must(bool good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "tls_peer: %s\n", what);
    ERR_print_errors_fp(stderr);
    abort();
}

static void add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    must(extension != NULL && X509_add_ext(certificate, extension, -1) == 1, value);
    X509_EXTENSION_free(extension);
}

struct identity identity_make(const struct identity_options *options)
{
    static long serial;
    struct identity identity = {.certificate = X509_new(), .key = EVP_EC_gen("P-256")};
    X509 *certificate = identity.certificate;
    must(certificate != NULL && identity.key != NULL, "key");
    X509 *issuer = options->issuer == NULL ? certificate : options->issuer->certificate;
    long day = 24 * 3600;
    bool is_default = options->from_days == 0 && options->until_days == 0;
    (void)X509_set_version(certificate, 2);
    (void)ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    (void)X509_gmtime_adj(X509_getm_notBefore(certificate),
                          is_default ? -day : options->from_days * day);
    (void)X509_gmtime_adj(X509_getm_notAfter(certificate),
                          is_default ? 10 * day : options->until_days * day);
    X509_NAME *name = X509_get_subject_name(certificate);
    (void)X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                     (const unsigned char *)options->name, -1, -1, 0);
    (void)X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    (void)X509_set_pubkey(certificate, identity.key);
    add_extension(certificate, issuer, NID_basic_constraints,
                  options->is_ca ? "critical,CA:TRUE" : "CA:FALSE");
    if (options->is_ca)
        add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (options->alternatives != NULL)
        add_extension(certificate, issuer, NID_subject_alt_name, options->alternatives);
    EVP_PKEY *signer = options->issuer == NULL ? identity.key : options->issuer->key;
    must(X509_sign(certificate, signer, EVP_sha256()) > 0, "sign");
    return identity;
}

void identity_free(struct identity *identity)
{
    X509_free(identity->certificate);
    EVP_PKEY_free(identity->key);
    *identity = (struct identity){0};
}

static char *text_of(BIO *bio)
{
    char *data, *text;
    long size = BIO_get_mem_data(bio, &data);
    text = calloc(1, (size_t)size + 1);
    must(text != NULL, "memory");
    memcpy(text, data, (size_t)size);
    BIO_free(bio);
    return text;
}

char *pem_of_certificates(X509 *const *certificates, int count)
{
    BIO *bio = BIO_new(BIO_s_mem());
    for (int i = 0; i < count; ++i)
        must(PEM_write_bio_X509(bio, certificates[i]) == 1, "PEM");
    return text_of(bio);
}

char *pem_of_key(EVP_PKEY *key, const char *password)
{
    BIO *bio = BIO_new(BIO_s_mem());
    const EVP_CIPHER *cipher = password == NULL ? NULL : EVP_aes_128_cbc();
    int size = password == NULL ? 0 : (int)strlen(password);
    must(PEM_write_bio_PKCS8PrivateKey(bio, key, cipher, password, size, NULL, NULL) == 1,
         "PEM of a key");
    return text_of(bio);
}

char *file_of(const char *text)
{
    char *path = strdup("/tmp/cqlring-tls-XXXXXX");
    int fd = mkstemp(path);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    (void)close(fd);
    return path;
}

static int on_server_name(SSL *ssl, int *alert, void *argument)
{
    (void)alert, (void)argument;
    struct peer *peer = SSL_get_app_data(ssl);
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)snprintf(peer->server_name, sizeof peer->server_name, "%s", name == NULL ? "" : name);
    return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *peer_context(const struct identity *identity, X509 *const *chain, int chain_count,
                      X509 *client_ca)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    must(context != NULL, "context");
    must(SSL_CTX_use_certificate(context, identity->certificate) == 1, "certificate");
    must(SSL_CTX_use_PrivateKey(context, identity->key) == 1, "private key");
    for (int i = 0; i < chain_count; ++i)
        must(SSL_CTX_add1_chain_cert(context, chain[i]) == 1, "chain");
    (void)SSL_CTX_set_tlsext_servername_callback(context, on_server_name);
    if (client_ca != NULL) {
        must(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), client_ca) == 1, "client CA");
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    return context;
}

static void *peer_main(void *argument)
{
    struct peer *peer = argument;
    if (peer->raw != NULL) {
        peer->raw(peer);
        (void)close(peer->fd);
        return NULL;
    }
    SSL *ssl = SSL_new(peer->context);
    must(ssl != NULL && SSL_set_fd(ssl, peer->fd) == 1, "server");
    SSL_set_app_data(ssl, peer);
    if (peer->version != 0) {
        (void)SSL_set_min_proto_version(ssl, peer->version);
        (void)SSL_set_max_proto_version(ssl, peer->version);
    }
    peer->shaken = SSL_accept(ssl) == 1;
    X509 *client = SSL_get0_peer_certificate(ssl);
    if (client != NULL)
        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(client), NID_commonName,
                                        peer->client_name, sizeof peer->client_name);
    if (peer->shaken && peer->serve != NULL)
        peer->serve(peer, ssl);
    SSL_free(ssl);
    (void)close(peer->fd);
    ERR_clear_error();
    return NULL;
}

int peer_start(struct peer *peer)
{
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    must(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0, "non-blocking");
    peer->fd = fds[1];
    must(pthread_create(&peer->thread, NULL, peer_main, peer) == 0, "thread");
    return fds[0];
}

void peer_join(struct peer *peer)
{
    must(pthread_join(peer->thread, NULL) == 0, "join");
}
