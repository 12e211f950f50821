/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_NET_H
#define CQR_NET_H

/* Sockets and the clock behind one small table, so that the simulator can put its own in their place. All calls are
   non-blocking. An error is a negative errno. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

struct net;

struct address {
    struct sockaddr_storage storage;
    socklen_t size;
};

/* How a TCP socket is set before it is connected; a Unix one has none of it. */
struct socket_options {
    bool nagle;                      /* small requests may wait for the answer to earlier ones: TCP_NODELAY is off */
    bool keepalive;
    int keepalive_s;                 /* silence before the first probe; 0: as the system has it */
    int send_size, receive_size;     /* SO_SNDBUF and SO_RCVBUF in bytes; 0: as the system has them, which it adapts */
};

struct net_vtable {
    /* A CLOEXEC, non-blocking stream socket with a connect under way. local_port 0: any. fd or -errno. */
    int (*connect)(struct net *net, const struct address *address, uint16_t local_port, const struct socket_options *options);
    /* Once writable: 0 connected, -EINPROGRESS, or why it failed. */
    int (*connect_result)(struct net *net, int fd);
    ssize_t (*send)(struct net *net, int fd, const void *data, size_t size); /* MSG_NOSIGNAL; -EAGAIN when full */
    ssize_t (*recv)(struct net *net, int fd, void *data, size_t size);       /* 0: end; -EAGAIN */
    void (*shutdown)(struct net *net, int fd);                               /* both directions */
    void (*close)(struct net *net, int fd);
    int64_t (*now_us)(struct net *net);       /* monotonic */
    int64_t (*wall_us)(struct net *net);      /* since 1970 */
};

struct net {
    const struct net_vtable *call;
};

struct net *cqr_net_system(void); /* the real one; static, needs no release */

/* "10.0.0.3:9042", "[::1]:9042", "/path" into text[64]. */
void cqr_address_format(const struct address *address, char text[64]);
bool cqr_address_equal(const struct address *a, const struct address *b);
bool cqr_address_set_port(struct address *address, uint16_t port); /* false: it has none (Unix) */
/* From raw 4 or 16 bytes and a port. */
bool cqr_address_from_bytes(struct address *address, const void *bytes, uint32_t size, uint16_t port);
/* Literal IPs and /unix/paths without asking anybody; false when it is a name. */
bool cqr_address_from_literal(struct address *address, const char *host, uint16_t port);

#endif
