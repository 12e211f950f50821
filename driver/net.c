/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "driver/fork.h"

/* --- the system's sockets --------------------------------------------------------------------------------------- */

/* Failing to set any of it is no reason to do without the connection. Sizes are set before the connect: the window that the
   peer is offered follows from them. */
static void set_tcp_options(int fd, const struct socket_options *options)
{
    int on = 1;
    if (!options->nagle)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (options->keepalive)
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (options->keepalive && options->keepalive_s > 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &options->keepalive_s, sizeof options->keepalive_s);
    if (options->send_size > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options->send_size, sizeof options->send_size);
    if (options->receive_size > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options->receive_size, sizeof options->receive_size);
}

/* Shard-aware ports choose the shard by the client's port. A port that lingers in TIME_WAIT may be taken again: the pair
   of addresses is still checked, by connect. */
static int bind_port(int fd, int family, uint16_t port)
{
    struct sockaddr_storage local = {.ss_family = (sa_family_t)family};
    socklen_t size = sizeof(struct sockaddr_in);
    if (family == AF_INET) {
        ((struct sockaddr_in *)&local)->sin_port = htons(port);
    } else if (family == AF_INET6) {
        ((struct sockaddr_in6 *)&local)->sin6_port = htons(port);
        size = sizeof(struct sockaddr_in6);
    } else {
        return -EINVAL;
    }
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, (struct sockaddr *)&local, size) == 0 ? 0 : -errno;
}

static void system_close(struct net *net, int fd)
{
    (void)net;
    cqr_fd_forget(fd);
    (void)close(fd); /* EINTR included: on Linux the descriptor is gone in any case */
}

static int system_connect(struct net *net, const struct address *address, uint16_t local_port, const struct socket_options *options)
{
    int family = address->storage.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    cqr_fd_register(fd);
    if (family != AF_UNIX)
        set_tcp_options(fd, options);
    int error = local_port == 0 ? 0 : bind_port(fd, family, local_port);
    /* Interrupted is under way: the kernel goes on by itself and the socket becomes writable as always. */
    if (error == 0 && connect(fd, (const struct sockaddr *)&address->storage, address->size) != 0 &&
        errno != EINPROGRESS && errno != EINTR)
        error = -errno;
    if (error != 0) {
        system_close(net, fd);
        return error;
    }
    return fd;
}

/* Dialling a closed port of this very machine can meet itself: the kernel picks the dialled port as the local one, and
   the simultaneous open succeeds. Such a connection echoes what it is sent. */
static bool met_itself(const struct address *local, const struct address *peer)
{
    return peer->storage.ss_family != AF_UNIX && cqr_address_equal(local, peer);
}

static int system_connect_result(struct net *net, int fd)
{
    (void)net;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return -errno;
    if (error != 0)
        return -error;
    struct address local = {.size = sizeof local.storage}, peer = {.size = sizeof peer.storage};
    if (getpeername(fd, (struct sockaddr *)&peer.storage, &peer.size) != 0)
        return errno == ENOTCONN ? -EINPROGRESS : -errno;
    if (getsockname(fd, (struct sockaddr *)&local.storage, &local.size) == 0 &&
        met_itself(&local, &peer))
        return -ECONNREFUSED;
    return 0;
}

static ssize_t system_send(struct net *net, int fd, const void *data, size_t size)
{
    (void)net;
    ssize_t result;
    do {
        result = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

static ssize_t system_recv(struct net *net, int fd, void *data, size_t size)
{
    (void)net;
    ssize_t result;
    do {
        result = recv(fd, data, size, MSG_DONTWAIT);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

static void system_shutdown(struct net *net, int fd)
{
    (void)net;
    (void)shutdown(fd, SHUT_RDWR);
}

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t system_now_us(struct net *net)
{
    (void)net;
    return clock_us(CLOCK_MONOTONIC);
}

static int64_t system_wall_us(struct net *net)
{
    (void)net;
    return clock_us(CLOCK_REALTIME);
}

struct net *cqr_net_system(void)
{
    static const struct net_vtable calls = {
        .connect = system_connect,
        .connect_result = system_connect_result,
        .send = system_send,
        .recv = system_recv,
        .shutdown = system_shutdown,
        .close = system_close,
        .now_us = system_now_us,
        .wall_us = system_wall_us,
    };
    static struct net net = {.call = &calls};
    return &net;
}

/* --- addresses --------------------------------------------------------------------------------------------------- */

static const struct sockaddr_in *v4(const struct address *address)
{
    return (const struct sockaddr_in *)&address->storage;
}

static const struct sockaddr_in6 *v6(const struct address *address)
{
    return (const struct sockaddr_in6 *)&address->storage;
}

/* Where the path stands and how long it is. An unbound peer has none; an abstract one starts with a NUL. */
static const char *unix_path(const struct address *address, size_t *size)
{
    const struct sockaddr_un *sockaddr = (const struct sockaddr_un *)&address->storage;
    size_t offset = offsetof(struct sockaddr_un, sun_path);
    size_t room = address->size > offset ? address->size - offset : 0;
    *size = room > 0 && sockaddr->sun_path[0] != '\0' ? strnlen(sockaddr->sun_path, room) : room;
    return sockaddr->sun_path;
}

void cqr_address_format(const struct address *address, char text[64])
{
    char host[INET6_ADDRSTRLEN];
    switch (address->storage.ss_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &v4(address)->sin_addr, host, sizeof host);
        (void)snprintf(text, 64, "%s:%u", host, (unsigned)ntohs(v4(address)->sin_port));
        break;
    case AF_INET6: {
        char scope[12] = "";
        if (v6(address)->sin6_scope_id != 0)
            (void)snprintf(scope, sizeof scope, "%%%u", (unsigned)v6(address)->sin6_scope_id);
        (void)inet_ntop(AF_INET6, &v6(address)->sin6_addr, host, sizeof host);
        (void)snprintf(text, 64, "[%.39s%s]:%u", host, scope,
                       (unsigned)ntohs(v6(address)->sin6_port));
        break;
    }
    case AF_UNIX: {
        size_t size;
        const char *path = unix_path(address, &size);
        if (size > 0 && path[0] == '\0')
            (void)snprintf(text, 64, "@%.*s", (int)(size - 1), path + 1);
        else if (size < 64)
            (void)snprintf(text, 64, "%.*s", (int)size, path);
        else
            (void)snprintf(text, 64, "...%s",
                           path + size - 60); /* the end tells more than the beginning */
        break;
    }
    default: (void)snprintf(text, 64, "?");
    }
}

bool cqr_address_equal(const struct address *a, const struct address *b)
{
    if (a->storage.ss_family != b->storage.ss_family)
        return false;
    switch (a->storage.ss_family) {
    case AF_INET:
        return v4(a)->sin_port == v4(b)->sin_port &&
               v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
    case AF_INET6:
        return v6(a)->sin6_port == v6(b)->sin6_port &&
               v6(a)->sin6_scope_id == v6(b)->sin6_scope_id &&
               memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr, sizeof(struct in6_addr)) == 0;
    case AF_UNIX: {
        size_t a_size, b_size;
        const char *a_path = unix_path(a, &a_size), *b_path = unix_path(b, &b_size);
        return a_size == b_size && memcmp(a_path, b_path, a_size) == 0;
    }
    default: return false;
    }
}

bool cqr_address_set_port(struct address *address, uint16_t port)
{
    switch (address->storage.ss_family) {
    case AF_INET: ((struct sockaddr_in *)&address->storage)->sin_port = htons(port); return true;
    case AF_INET6: ((struct sockaddr_in6 *)&address->storage)->sin6_port = htons(port); return true;
    default: return false;
    }
}

bool cqr_address_from_bytes(struct address *address, const void *bytes, uint32_t size,
                            uint16_t port)
{
    /* ::ffff:a.b.c.d is the IPv4 address: Cassandra's own clients take it for that, and one node must not be two. */
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (size == 16 && memcmp(bytes, mapped, sizeof mapped) == 0) {
        bytes = (const uint8_t *)bytes + sizeof mapped;
        size = 4;
    }
    *address = (struct address){0};
    if (size == 4) {
        struct sockaddr_in *sockaddr = (struct sockaddr_in *)&address->storage;
        sockaddr->sin_family = AF_INET;
        sockaddr->sin_port = htons(port);
        memcpy(&sockaddr->sin_addr, bytes, 4);
        address->size = sizeof *sockaddr;
        return true;
    }
    if (size == 16) {
        struct sockaddr_in6 *sockaddr = (struct sockaddr_in6 *)&address->storage;
        sockaddr->sin6_family = AF_INET6;
        sockaddr->sin6_port = htons(port);
        memcpy(&sockaddr->sin6_addr, bytes, 16);
        address->size = sizeof *sockaddr;
        return true;
    }
    return false;
}

static bool from_path(struct address *address, const char *path)
{
    struct sockaddr_un *sockaddr = (struct sockaddr_un *)&address->storage;
    size_t size = strlen(path);
    if (size >= sizeof sockaddr->sun_path)
        return false;
    *address = (struct address){0};
    sockaddr->sun_family = AF_UNIX;
    memcpy(sockaddr->sun_path, path, size + 1);
    address->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + 1);
    return true;
}

/* "%eth0" or "%2" behind a link-local address; 0 when there is no such interface. */
static uint32_t scope_of(const char *text)
{
    uint32_t scope = 0;
    for (const char *at = text; *at >= '0' && *at <= '9' && at - text < 9; ++at) {
        scope = scope * 10 + (uint32_t)(*at - '0');
        if (at[1] == '\0')
            return scope;
    }
    return if_nametoindex(text);
}

bool cqr_address_from_literal(struct address *address, const char *host, uint16_t port)
{
    if (host[0] == '/')
        return from_path(address, host);
    struct in_addr four;
    if (inet_pton(AF_INET, host, &four) == 1)
        return cqr_address_from_bytes(address, &four, 4, port);

    /* IPv6, in brackets or without, with a scope or without. */
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    size_t size = strlen(host);
    if (size >= 2 && host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    if (size >= sizeof text)
        return false;
    memcpy(text, host, size);
    text[size] = '\0';
    uint32_t scope = 0;
    char *percent = strchr(text, '%');
    if (percent != NULL) {
        scope = scope_of(percent + 1);
        if (scope == 0)
            return false;
        *percent = '\0';
    }
    struct in6_addr six;
    if (inet_pton(AF_INET6, text, &six) != 1)
        return false;
    bool known = cqr_address_from_bytes(address, &six, 16, port);
    if (known && address->storage.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->storage)->sin6_scope_id = scope;
    return known;
}
