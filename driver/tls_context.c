/* SPDX-License-Identifier: Apache-2.0 */

/* TLS contexts: trusted CAs, the client's own certificate, versions, and the verification of the peer inside the handshake, with
   words for people where it fails. */

#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "driver/failure.h"
#include "driver/tls_private.h"
#include "serialize/mem.h"

enum { VERIFY_FULL = 0, VERIFY_CHAIN = 1, VERIFY_NONE = 2 };

/* --- what went wrong, for people ----------------------------------------------------------------------------------- */

/* Append to a message that may already be full. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
                                                         const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    cqr_text_format(text + length, size - length, format, arguments);
    va_end(arguments);
}

static void describe_host(const struct address *address, char text[64])
{
    cqr_address_format(address, text);
    char *port = strrchr(text, ':');
    if (port != NULL && address->storage.ss_family != AF_UNIX)
        *port = '\0';
}

/* The names and addresses that a certificate is for, as many as fit: "a.example, *.b.example, 10.0.0.3". */
static void describe_names(const X509 *certificate, char *text, size_t size)
{
    text[0] = '\0';
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        struct address address;
        char ip[64];
        if (name->type == GEN_DNS) {
            append(text, size, "%s%.*s", text[0] ? ", " : "", ASN1_STRING_length(name->d.dNSName),
                   (const char *)ASN1_STRING_get0_data(name->d.dNSName));
        } else if (name->type == GEN_IPADD &&
                   cqr_address_from_bytes(&address, ASN1_STRING_get0_data(name->d.iPAddress),
                                          (uint32_t)ASN1_STRING_length(name->d.iPAddress), 0)) {
            describe_host(&address, ip);
            append(text, size, "%s%s", text[0] ? ", " : "", ip);
        }
    }
    GENERAL_NAMES_free(names);
    if (text[0] == '\0')
        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                                        (int)size);
    if (text[0] == '\0')
        (void)snprintf(text, size, "no name at all");
}

static void describe_subject(const X509_NAME *name, char *text, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    text[0] = '\0';
    if (bio != NULL && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253) >= 0) {
        int length = BIO_read(bio, text, (int)size - 1);
        text[length > 0 ? length : 0] = '\0';
    }
    BIO_free(bio);
}

static void describe_time(const ASN1_TIME *at, char text[32])
{
    struct tm tm;
    text[0] = '\0';
    if (ASN1_TIME_to_tm(at, &tm) == 1)
        (void)snprintf(text, 32, "%04d-%02d-%02d %02d:%02d UTC", (tm.tm_year + 1900) % 10000,
                       tm.tm_mon % 12 + 1, tm.tm_mday % 32, tm.tm_hour % 24, tm.tm_min % 60);
}

static int64_t seconds_of(const ASN1_TIME *at)
{
    struct tm tm;
    return ASN1_TIME_to_tm(at, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

void cqr_tls_certificate_facts(const X509 *certificate, struct tls_facts *facts)
{
    describe_names(certificate, facts->names, sizeof facts->names);
    describe_subject(X509_get_subject_name(certificate), facts->subject, sizeof facts->subject);
    describe_subject(X509_get_issuer_name(certificate), facts->issuer, sizeof facts->issuer);
    facts->from_s = seconds_of(X509_get0_notBefore(certificate));
    facts->until_s = seconds_of(X509_get0_notAfter(certificate));
}

/* Where the certificate does not name who was asked for. */
static void explain_names(struct tls *tls, X509 *certificate)
{
    struct transport *transport = tls->transport;
    char names[100], wanted[64];
    describe_names(certificate, names, sizeof names);
    describe_host(&tls->peer, wanted);
    const char *server_name = tls->context->server_name, *peer_name = tls->peer_name;
    (void)snprintf(transport->message, sizeof transport->message,
                   "the certificate is for %s, not for ", names);
    char *text = transport->message;
    if (server_name != NULL)
        append(text, sizeof transport->message, "%.60s or ", server_name);
    if (peer_name != NULL)
        append(text, sizeof transport->message, "%.60s or ", peer_name);
    append(text, sizeof transport->message,
           "%s: add that to it, set the TLS server name, or verify the chain only", wanted);
}

/* Where the chain of certificates does not hold. */
static void explain_chain(struct tls *tls, X509_STORE_CTX *store)
{
    char *text = tls->transport->message, subject[90] = "?", issuer[80] = "?", when[32];
    const size_t size = sizeof tls->transport->message;
    int error = X509_STORE_CTX_get_error(store);
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    if (certificate == NULL)
        certificate = X509_STORE_CTX_get0_cert(store);
    if (certificate != NULL) {
        describe_subject(X509_get_subject_name(certificate), subject, sizeof subject);
        describe_subject(X509_get_issuer_name(certificate), issuer, sizeof issuer);
    }
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        describe_time(X509_get0_notAfter(certificate), when);
        (void)snprintf(
            text, size,
            "the certificate %s expired on %s: renew it, or look at this machine's clock", subject,
            when);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        describe_time(X509_get0_notBefore(certificate), when);
        (void)snprintf(text, size,
                       "the certificate %s is valid from %s only: look at this machine's clock",
                       subject, when);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        (void)snprintf(
            text, size,
            "the certificate %s is signed by %s, which is not among the trusted CAs: add it to them",
            subject, issuer);
        break;
    default:
        (void)snprintf(text, size, "the certificate %s is not accepted: %s", subject,
                       X509_verify_cert_error_string(error));
    }
}

/* --- verification ---------------------------------------------------------------------------------------------------- */

/* The bytes of an address as they stand in a certificate; 0 for a path. */
static size_t address_bytes(const struct address *address, const uint8_t **bytes)
{
    if (address->storage.ss_family == AF_INET) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in *)&address->storage)->sin_addr;
        return 4;
    }
    if (address->storage.ss_family == AF_INET6) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
        return 16;
    }
    return 0;
}

static bool has_name(X509 *certificate, const char *name)
{
    return name != NULL && (X509_check_host(certificate, name, 0,
                                            X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1 ||
                            X509_check_ip_asc(certificate, name, 0) == 1);
}

/* Any of them will do; OpenSSL's own check wants all it was given, so the name is ours to check. */
static bool is_named(const struct tls *tls, X509 *certificate)
{
    const uint8_t *bytes;
    size_t size = address_bytes(&tls->peer, &bytes);
    return has_name(certificate, tls->context->server_name) ||
           has_name(certificate, tls->peer_name) ||
           (size > 0 && X509_check_ip(certificate, bytes, size, 0) == 1);
}

/* In place of OpenSSL's verification of the peer; inside the handshake, so the peer gets the alert. */
static int verify(X509_STORE_CTX *store, void *argument)
{
    (void)argument;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *tls = SSL_get_app_data(ssl);
    if (tls->context->verify == VERIFY_NONE)
        return 1;
    if (X509_verify_cert(store) <= 0) {
        explain_chain(tls, store);
        return 0;
    }
    X509 *certificate = X509_STORE_CTX_get0_cert(store);
    if (tls->context->verify == VERIFY_CHAIN || is_named(tls, certificate))
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    explain_names(tls, certificate);
    return 0;
}

/* --- the context ------------------------------------------------------------------------------------------------------ */

/* A copy of a host's name, without the dot that a fully qualified one may end with. */
char *cqr_tls_host_copy(const char *name)
{
    size_t size = strlen(name);
    return cqr_mem_text(name, size > 1 && name[size - 1] == '.' ? size - 1 : size);
}

/* --- sessions that may be resumed -------------------------------------------------------------------------------------- */

/* A TLS 1.3 ticket is offered once, as RFC 8446 wants it; servers send two a connection. */
enum { SESSIONS_MAX = 1024, SESSIONS_A_PEER = 4 };

struct saved_session {
    struct saved_session *next;
    struct address peer;
    char *name; /* NULL: none */
    SSL_SESSION *session;
};

static void session_drop(struct tls_context *context, struct saved_session **at)
{
    struct saved_session *saved = *at;
    *at = saved->next;
    context->session_count--;
    SSL_SESSION_free(saved->session);
    cqr_mem_free(saved->name);
    cqr_mem_free(saved);
}

static bool is_for(const struct saved_session *saved, const struct address *peer, const char *name)
{
    return cqr_address_equal(&saved->peer, peer) && (name == NULL ? saved->name == NULL : saved->name != NULL && strcmp(saved->name, name) == 0);
}

/* Its time is not over, nor that of the certificate that was verified when it began. */
static bool is_good(const SSL_SESSION *session)
{
    X509 *certificate = SSL_SESSION_get0_peer((SSL_SESSION *)(uintptr_t)session);
    return SSL_SESSION_is_resumable(session) == 1 && time(NULL) < SSL_SESSION_get_time(session) + SSL_SESSION_get_timeout(session) &&
           (certificate == NULL || X509_cmp_current_time(X509_get0_notAfter(certificate)) > 0);
}

/* OpenSSL has a new session (TLS 1.3: a ticket came behind the handshake). A copy is kept: the original is spoilt when its
   connection is cut, which is just when the session is wanted. 0: it stays OpenSSL's. */
static int session_save(SSL *ssl, SSL_SESSION *session)
{
    struct tls *tls = SSL_get_app_data(ssl);
    struct tls_context *context = tls->context;
    struct saved_session *saved = cqr_mem_zalloc(sizeof *saved);
    if (saved == NULL)
        return 0;
    saved->peer = tls->peer;
    saved->name = tls->peer_name == NULL ? NULL : cqr_mem_text(tls->peer_name, strlen(tls->peer_name));
    saved->session = SSL_SESSION_dup(session);
    if (saved->session == NULL || (tls->peer_name != NULL && saved->name == NULL)) {
        SSL_SESSION_free(saved->session);
        cqr_mem_free(saved->name);
        cqr_mem_free(saved);
        return 0;
    }
    (void)pthread_mutex_lock(&context->lock);
    saved->next = context->sessions;
    context->sessions = saved;
    context->session_count++;
    uint32_t same = 0, seen = 0;
    for (struct saved_session **at = &context->sessions; *at != NULL;) {
        same += is_for(*at, &tls->peer, tls->peer_name);
        if (++seen > SESSIONS_MAX || (same > SESSIONS_A_PEER && is_for(*at, &tls->peer, tls->peer_name)))
            session_drop(context, at);
        else
            at = &(*at)->next;
    }
    (void)pthread_mutex_unlock(&context->lock);
    return 0;
}

SSL_SESSION *cqr_tls_session_take(struct tls_context *context, const struct address *peer, const char *name)
{
    SSL_SESSION *found = NULL;
    if (!context->resume)
        return NULL;
    (void)pthread_mutex_lock(&context->lock);
    for (struct saved_session **at = &context->sessions; *at != NULL && found == NULL;) {
        if (!is_for(*at, peer, name)) {
            at = &(*at)->next;
            continue;
        }
        SSL_SESSION *session = (*at)->session;
        if (is_good(session))
            found = SSL_SESSION_dup(session); /* TLS 1.2: for this connection, the saved one for others */
        if (found == NULL || SSL_SESSION_get_protocol_version(session) >= TLS1_3_VERSION)
            session_drop(context, at);
    }
    (void)pthread_mutex_unlock(&context->lock);
    return found;
}

void cqr_tls_sessions_forget(struct tls_context *context, const struct address *peer, const char *name)
{
    (void)pthread_mutex_lock(&context->lock);
    for (struct saved_session **at = &context->sessions; *at != NULL;) {
        if (is_for(*at, peer, name))
            session_drop(context, at);
        else
            at = &(*at)->next;
    }
    (void)pthread_mutex_unlock(&context->lock);
}

/* --- loading ---------------------------------------------------------------------------------------------------------- */

static const char *openssl_words(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *words = code == 0 ? NULL : ERR_reason_error_string(code);
    return words != NULL ? words : "unknown error";
}

/* PEM from a file or from memory. NULL after an explanation. */
static BIO *open_pem(const char *what, const char *file, const char *text, cqlring_error *error)
{
    ERR_clear_error();
    errno = 0;
    BIO *bio = text != NULL ? BIO_new_mem_buf(text, -1) : BIO_new_file(file, "r");
    if (bio == NULL)
        (void)cqr_error(error, CQLRING_INVALID, "TLS: cannot read the %s %s: %s", what,
                        text != NULL ? "text" : file,
                        errno != 0 ? strerrordesc_np(errno) : openssl_words());
    return bio;
}

/* What OpenSSL asks when a key is encrypted. It would ask the terminal if it were given no function. */
static int give_password(char *out, int size, int for_writing, void *argument)
{
    (void)for_writing;
    const char *password = argument;
    size_t length = password == NULL ? 0 : strlen(password);
    if (length == 0 || length > (size_t)size)
        return -1;
    memcpy(out, password, length);
    return (int)length;
}

/* Each certificate of a PEM goes to take(). The count, 0 after an explanation. */
static int each_certificate(SSL_CTX *context, const char *what, const char *file, const char *text,
                            bool (*take)(SSL_CTX *context, X509 *certificate, int index),
                            cqlring_error *error)
{
    BIO *bio = open_pem(what, file, text, error);
    if (bio == NULL)
        return 0;
    int count = 0;
    bool good = true;
    X509 *certificate;
    while (good && (certificate = PEM_read_bio_X509(bio, NULL, give_password, NULL)) != NULL) {
        good = take(context, certificate, count);
        count += good;
        X509_free(certificate);
    }
    /* The end of a PEM is an error too: no further start line. */
    unsigned long code = ERR_peek_last_error();
    if (good && count > 0 &&
        (ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE))
        good = false;
    BIO_free(bio);
    if (good && count > 0) {
        ERR_clear_error();
        return count;
    }
    (void)cqr_error(error, CQLRING_INVALID, "TLS: the %s %s: %s in certificate %d", what,
                    text != NULL ? "text" : file,
                    ERR_GET_REASON(code) == PEM_R_NO_START_LINE ? "no PEM found" : openssl_words(),
                    count + 1);
    return 0;
}

static bool take_trusted(SSL_CTX *context, X509 *certificate, int index)
{
    (void)index;
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) == 1;
}

static bool take_own(SSL_CTX *context, X509 *certificate, int index)
{
    return index == 0 ? SSL_CTX_use_certificate(context, certificate) == 1
                      : SSL_CTX_add1_chain_cert(context, certificate) == 1;
}

/* Where distributions keep their certificates: Debian, Red Hat, SUSE, Alpine and the BSDs. */
static const char *const system_cas[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                         "/etc/ssl/ca-bundle.pem",
                                         "/etc/ssl/cert.pem",
                                         "/etc/ssl/certs"};

/* The environment's word first, as OpenSSL's own programs have it. NULL when there is nothing. */
static const char *system_ca(void)
{
    static const char *const variables[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
    struct stat found;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; ++i) {
        const char *path = secure_getenv(variables[i]);
        if (path != NULL && path[0] != '\0')
            return path;
    }
    for (size_t i = 0; i < sizeof system_cas / sizeof system_cas[0]; ++i)
        if (stat(system_cas[i], &found) == 0)
            return system_cas[i];
    return NULL;
}

static cqlring_status load_trusted(SSL_CTX *context, const struct tls_options *options,
                                   cqlring_error *error)
{
    const char *file = options->ca_file;
    struct stat found;
    if (options->ca_pem == NULL && file == NULL) {
        if (options->verify == VERIFY_NONE)
            return CQLRING_OK;
        file = system_ca();
        if (file == NULL)
            return cqr_error(
                error, CQLRING_INVALID,
                "TLS: this system has no trusted CAs where they are looked for: set the "
                "CA file, or SSL_CERT_FILE");
    }
    /* A directory, or SSL_CERT_DIR's list of them: read when a certificate is looked for. */
    if (options->ca_pem == NULL &&
        (strchr(file, ':') != NULL || (stat(file, &found) == 0 && S_ISDIR(found.st_mode)))) {
        if (SSL_CTX_load_verify_dir(context, file) != 1)
            return cqr_error(error, CQLRING_INVALID, "TLS: cannot use the CA directory %s: %s",
                             file, openssl_words());
        return CQLRING_OK;
    }
    return each_certificate(context, "CA file", file, options->ca_pem, take_trusted, error) > 0
               ? CQLRING_OK
               : CQLRING_INVALID;
}

static cqlring_status load_own(SSL_CTX *context, const struct tls_options *options,
                               cqlring_error *error)
{
    if (options->certificate_file == NULL && options->certificate_pem == NULL) {
        if (options->key_file != NULL || options->key_pem != NULL)
            return cqr_error(error, CQLRING_INVALID,
                             "TLS: a key without a certificate: set the certificate too");
        return CQLRING_OK;
    }
    if (each_certificate(context, "certificate", options->certificate_file,
                         options->certificate_pem, take_own, error) == 0)
        return CQLRING_INVALID;
    /* A key of its own, or in the same PEM as the certificate. */
    const char *file = options->key_file, *text = options->key_pem;
    if (file == NULL && text == NULL) {
        file = options->certificate_file;
        text = options->certificate_pem;
    }
    BIO *bio = open_pem("key", file, text, error);
    if (bio == NULL)
        return CQLRING_INVALID;
    char *password = (char *)(uintptr_t)
                         options->key_password; /* OpenSSL's signature; give_password only reads */
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, give_password, password);
    BIO_free(bio);
    if (key == NULL)
        return cqr_error(error, CQLRING_INVALID, "TLS: cannot read the key %s: %s%s",
                         text != NULL ? "text" : file, openssl_words(),
                         options->key_password == NULL ? " (no password was given)" : "");
    bool taken = SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    if (!taken)
        return cqr_error(error, CQLRING_INVALID,
                         "TLS: the key does not belong to the certificate: %s", openssl_words());
    return CQLRING_OK;
}

static int version_of(uint8_t version)
{
    return version == 12 ? TLS1_2_VERSION : version == 13 ? TLS1_3_VERSION : 0;
}

static cqlring_status set_versions_and_ciphers(SSL_CTX *context, const struct tls_options *options,
                                               cqlring_error *error)
{
    uint8_t low = options->version_min, high = options->version_max;
    if ((low != 0 && version_of(low) == 0) || (high != 0 && version_of(high) == 0) ||
        (high != 0 && low > high) ||
        SSL_CTX_set_min_proto_version(context, low == 0 ? TLS1_2_VERSION : version_of(low)) != 1 ||
        SSL_CTX_set_max_proto_version(context, version_of(high)) != 1)
        return cqr_error(error, CQLRING_INVALID,
                         "TLS: versions %u to %u: 12, 13 or 0 are meant, the smaller one first",
                         low, high);
    if (options->ciphers != NULL && SSL_CTX_set_cipher_list(context, options->ciphers) != 1)
        return cqr_error(error, CQLRING_INVALID, "TLS: no cipher for TLS 1.2 in \"%s\"",
                         options->ciphers);
    if (options->ciphersuites != NULL &&
        SSL_CTX_set_ciphersuites(context, options->ciphersuites) != 1)
        return cqr_error(error, CQLRING_INVALID, "TLS: no cipher suite for TLS 1.3 in \"%s\"",
                         options->ciphersuites);
    return CQLRING_OK;
}

static void set_behaviour(SSL_CTX *context, uint8_t verification, bool resume)
{
    (void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(context, resume ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL : SSL_SESS_CACHE_OFF);
    if (resume)
        SSL_CTX_sess_set_new_cb(context, session_save);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, TLS_READ_BUFFER_SIZE);
    SSL_CTX_set_verify(context, verification == VERIFY_NONE ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       NULL);
    SSL_CTX_set_cert_verify_callback(context, verify, NULL);
}

cqlring_status cqr_tls_context_create(const struct tls_options *options, struct tls_context **out,
                                      cqlring_error *error)
{
    *out = NULL;
    if (options->verify > VERIFY_NONE)
        return cqr_error(error, CQLRING_INVALID, "TLS: verification %u does not exist",
                         options->verify);
    if (!cqr_tls_start())
        return cqr_error(error, CQLRING_TLS, "TLS: OpenSSL does not start: %s", openssl_words());
    struct tls_context *context = cqr_mem_zalloc(sizeof *context);
    if (context == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "TLS: out of memory");
    atomic_init(&context->references, 1);
    context->verify = options->verify;
    context->resume = options->resume;
    (void)pthread_mutex_init(&context->lock, NULL);
    ERR_clear_error();
    cqlring_status status = CQLRING_NO_MEMORY;
    context->ssl_context = SSL_CTX_new(TLS_client_method());
    if (context->ssl_context != NULL && options->server_name != NULL)
        context->server_name = cqr_tls_host_copy(options->server_name);
    if (context->ssl_context == NULL ||
        (options->server_name != NULL && context->server_name == NULL)) {
        (void)cqr_error(error, status, "TLS: out of memory");
        goto fail;
    }
    set_behaviour(context->ssl_context, options->verify, options->resume);
    status = set_versions_and_ciphers(context->ssl_context, options, error);
    if (status == CQLRING_OK)
        status = load_trusted(context->ssl_context, options, error);
    if (status == CQLRING_OK)
        status = load_own(context->ssl_context, options, error);
    if (status != CQLRING_OK)
        goto fail;
    *out = context;
    return CQLRING_OK;

fail:
    ERR_clear_error();
    cqr_tls_context_release(context);
    return status;
}

struct tls_context *cqr_tls_context_retain(struct tls_context *context)
{
    (void)atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
    return context;
}

void cqr_tls_context_release(struct tls_context *context)
{
    /* Release: what this user did with it comes before the end; acquire: for whoever ends it. */
    if (context == NULL ||
        atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) != 1)
        return;
    while (context->sessions != NULL)
        session_drop(context, &context->sessions);
    (void)pthread_mutex_destroy(&context->lock);
    SSL_CTX_free(context->ssl_context);
    cqr_mem_free(context->server_name);
    cqr_mem_free(context);
}
