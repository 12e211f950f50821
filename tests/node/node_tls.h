/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_TLS_H
#define NODE_TLS_H

/* TLS of the node's server; the only file of the node that sees OpenSSL is node_tls.c. The server's
   thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct node_tls;
struct node_tls_conn;

/* PEM files; client_ca NULL: no certificate is asked of clients. NULL: message tells why. */
struct node_tls *node_tls_create(const char *cert, const char *key, const char *client_ca,
                                 char *message, size_t message_size);
void node_tls_destroy(struct node_tls *tls);

struct node_tls_conn *node_tls_conn_create(struct node_tls *tls, int fd);
void node_tls_conn_destroy(struct node_tls_conn *conn);
/* Bytes; 0: the end, -1: none now (wants_write: the socket must first take some), -2: broken. */
ssize_t node_tls_read(struct node_tls_conn *conn, void *data, size_t size, bool *wants_write);
ssize_t node_tls_write(struct node_tls_conn *conn, const void *data, size_t size);
void node_tls_goodbye(struct node_tls_conn *conn); /* close_notify */
/* The name the client asked for (SNI), "" if none. */
const char *node_tls_server_name(const struct node_tls_conn *conn);

#endif
