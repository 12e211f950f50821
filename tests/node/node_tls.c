/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/node_tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "tests/node/memory.h"

struct node_tls {
    SSL_CTX *context;
};

struct node_tls_conn {
    SSL *ssl;
};

static void explain(const char *what, const char *file, char *message, size_t size)
{
    char reason[160] = "";
    ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
    (void)snprintf(message, size, "%s %s: %s", what, file, reason);
}

struct node_tls *node_tls_create(const char *cert, const char *key, const char *client_ca,
                                 char *message, size_t message_size)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) {
        explain("TLS", "", message, message_size);
        return NULL;
    }
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    (void)SSL_CTX_set_mode(context,
                           SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_ENABLE_PARTIAL_WRITE);
    const char *bad = NULL;
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        bad = cert;
    else if (SSL_CTX_use_PrivateKey_file(context, key == NULL ? cert : key, SSL_FILETYPE_PEM) != 1)
        bad = key == NULL ? cert : key;
    else if (client_ca != NULL && SSL_CTX_load_verify_locations(context, client_ca, NULL) != 1)
        bad = client_ca;
    if (bad != NULL) {
        explain("cannot use", bad, message, message_size);
        SSL_CTX_free(context);
        return NULL;
    }
    if (client_ca != NULL)
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    struct node_tls *tls = node_zalloc(sizeof *tls);
    tls->context = context;
    return tls;
}

void node_tls_destroy(struct node_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->context);
    node_free(tls);
}

struct node_tls_conn *node_tls_conn_create(struct node_tls *tls, int fd)
{
    struct node_tls_conn *conn = node_zalloc(sizeof *conn);
    conn->ssl = SSL_new(tls->context);
    if (conn->ssl != NULL) {
        (void)SSL_set_fd(conn->ssl, fd);
        SSL_set_accept_state(conn->ssl);
    }
    return conn;
}

void node_tls_conn_destroy(struct node_tls_conn *conn)
{
    if (conn == NULL)
        return;
    SSL_free(conn->ssl);
    node_free(conn);
}

ssize_t node_tls_read(struct node_tls_conn *conn, void *data, size_t size, bool *wants_write)
{
    if (conn->ssl == NULL)
        return -2;
    ERR_clear_error();
    int count = SSL_read(conn->ssl, data, size > INT_MAX ? INT_MAX : (int)size);
    *wants_write = false;
    if (count > 0)
        return count;
    switch (SSL_get_error(conn->ssl, count)) {
    case SSL_ERROR_WANT_READ: return -1;
    case SSL_ERROR_WANT_WRITE: *wants_write = true; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: return -2;
    }
}

ssize_t node_tls_write(struct node_tls_conn *conn, const void *data, size_t size)
{
    if (conn->ssl == NULL)
        return -2;
    ERR_clear_error();
    int count = SSL_write(conn->ssl, data, size > INT_MAX ? INT_MAX : (int)size);
    if (count > 0)
        return count;
    int error = SSL_get_error(conn->ssl, count);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? -1 : -2;
}

void node_tls_goodbye(struct node_tls_conn *conn)
{
    if (conn->ssl != NULL && SSL_is_init_finished(conn->ssl))
        (void)SSL_shutdown(conn->ssl);
    ERR_clear_error();
}

const char *node_tls_server_name(const struct node_tls_conn *conn)
{
    const char *name = conn->ssl == NULL ? NULL
                                         : SSL_get_servername(conn->ssl, TLSEXT_NAMETYPE_host_name);
    return name == NULL ? "" : name;
}
