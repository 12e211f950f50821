/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster on sockets: one thread, one epoll. It holds the cluster's lock for a whole turn and
   gives it up while it waits, so that tests can look at and change everything between turns. A read
   is answered by one write (or by one per `trickle` replies); nothing is allocated for a request in
   void mode. */
#include "tests/node/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/node/node_tls.h"

enum {
    READ_SIZE = 256 * 1024,
    EVENTS_MAX = 256,
    DRAIN_US = 1000000,
    RETRY_US = 20000,
    READS_PER_TURN = 4
};

enum owner_kind { OWNER_WAKE, OWNER_LISTENER, OWNER_SOCKET };

struct listener {
    enum owner_kind kind;
    int fd; /* -1: not listening */
    uint32_t node;
    uint32_t armed;
    bool shard_aware;
    uint8_t inet[16]; /* where: the node's address, until that changes */
};

struct connection {
    enum owner_kind kind;
    int fd;
    uint32_t armed; /* epoll's view */
    struct node_conn *conn;
    struct node_tls_conn *tls;
    bool tls_wants_write; /* the handshake, or a read, waits for room to write */
    bool draining;        /* our side is shut; waiting for theirs */
    int64_t drain_until;
    struct connection *next, *previous;
};

struct node_server {
    struct node_cluster *cluster;
    struct node_tls *tls;
    pthread_t thread;
    enum owner_kind wake_kind;
    int wake_fd, epoll_fd;
    bool stopping;
    struct listener listeners[2 * NODE_COUNT_MAX]; /* with shards: the second half is shard-aware */
    struct connection *connections;
    int64_t retry_at; /* a listener could not be opened: again then */
    uint8_t buffer[READ_SIZE];
};

static int64_t steady_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* --- listeners -------------------------------------------------------------------------------- */

static int listen_at(const struct node_member *member, uint16_t port, uint16_t *bound)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {0};
    socklen_t size;
    if (member->inet_size == 4) {
        address.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&address.v4.sin_addr, member->inet, 4);
        size = sizeof address.v4;
    } else {
        address.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&address.v6.sin6_addr, member->inet, 16);
        size = sizeof address.v6;
    }
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &address.any, size) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, &address.any, &size) != 0) {
        int error = errno;
        (void)close(fd);
        errno = error;
        return -1;
    }
    *bound = ntohs(member->inet_size == 4 ? address.v4.sin_port : address.v6.sin6_port);
    return fd;
}

static void arm(struct node_server *server, void *owner, int fd, uint32_t *armed, uint32_t wanted)
{
    if (*armed == wanted)
        return;
    struct epoll_event event = {.events = wanted, .data = {.ptr = owner}};
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, fd, &event);
    *armed = wanted;
}

static void watch(struct node_server *server, void *owner, int fd, uint32_t *armed)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = owner}};
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    *armed = EPOLLIN;
}

/* All nodes on one free port, or on consecutive ones. */
static bool open_listeners(struct node_server *server, char *message, size_t message_size)
{
    struct node_cluster *cluster = server->cluster;
    uint32_t count = cluster->options.nodes;
    for (int attempt = 0; attempt < 50; ++attempt) {
        uint16_t port = cluster->options.port;
        uint32_t i = 0;
        for (; i < count; ++i) {
            struct node_member *member = &cluster->engine.members[i];
            uint16_t wanted = i == 0 ? port
                                     : (uint16_t)(cluster->engine.members[0].port +
                                                  (cluster->options.ports_differ ? i : 0));
            server->listeners[i].fd = listen_at(member, wanted, &member->port);
            if (server->listeners[i].fd < 0)
                break;
            memcpy(server->listeners[i].inet, member->inet, sizeof member->inet);
        }
        if (i == count)
            return true;
        (void)snprintf(message, message_size, "cannot listen on %s:%u: %s",
                       cluster->engine.members[i].address, port, strerror(errno));
        while (i-- > 0) {
            (void)close(server->listeners[i].fd);
            server->listeners[i].fd = -1;
        }
        if (port != 0)
            return false;
    }
    return false;
}

/* One listener as its node is: up or down, refusing, frozen. */
static void settle_listener(struct node_server *server, struct listener *listener, uint16_t port,
                            int64_t now)
{
    struct node_cluster *cluster = server->cluster;
    struct node_member *member = &cluster->engine.members[listener->node];
    bool wanted = member->up && port != 0 && !node_fault_refuses(cluster, listener->node);
    if (listener->shard_aware && member->shard_port_is == NODE_SHARD_PORT_CLOSED)
        wanted = false;
    bool moved = memcmp(listener->inet, member->inet, sizeof member->inet) != 0;
    if (listener->fd >= 0 && (!wanted || moved)) {
        (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, listener->fd, NULL);
        (void)close(listener->fd);
        listener->fd = -1;
    }
    if (wanted && listener->fd < 0) {
        uint16_t bound;
        memcpy(listener->inet, member->inet, sizeof member->inet);
        listener->fd = listen_at(member, port, &bound);
        if (listener->fd >= 0)
            watch(server, listener, listener->fd, &listener->armed);
        else
            server->retry_at = now + RETRY_US;
    }
    if (listener->fd >= 0)
        arm(server, listener, listener->fd, &listener->armed,
            cluster->nodes[listener->node].frozen_until > now ? 0 : EPOLLIN);
}

static void settle_listeners(struct node_server *server, int64_t now)
{
    server->retry_at = INT64_MAX;
    for (uint32_t i = 0; i < server->cluster->options.nodes; ++i) {
        const struct node_member *member = &server->cluster->engine.members[i];
        settle_listener(server, &server->listeners[i], member->port, now);
        settle_listener(server, &server->listeners[NODE_COUNT_MAX + i], member->shard_port, now);
    }
}

/* A second port of each node, where the source port chooses the shard. */
static bool open_shard_listeners(struct node_server *server, char *message, size_t message_size)
{
    struct node_cluster *cluster = server->cluster;
    for (uint32_t i = 0; i < cluster->options.nodes && cluster->options.shards > 0; ++i) {
        struct node_member *member = &cluster->engine.members[i];
        struct listener *listener = &server->listeners[NODE_COUNT_MAX + i];
        listener->shard_aware = true;
        memcpy(listener->inet, member->inet, sizeof member->inet);
        listener->fd = listen_at(member, 0, &member->shard_port);
        if (listener->fd < 0) {
            (void)snprintf(message, message_size, "cannot listen on %s: %s", member->address,
                           strerror(errno));
            return false;
        }
    }
    return true;
}

/* --- connections ------------------------------------------------------------------------------ */

static void connection_close(struct node_server *server, struct connection *connection)
{
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    node_tls_conn_destroy(connection->tls);
    /* A forked process may hold a copy for a moment: the socket would stay in the set, and be reported. */
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    (void)close(connection->fd);
    node_conn_close_locked(connection->conn);
    node_free(connection);
}

static uint32_t choose_shard(struct node_cluster *cluster, const struct listener *listener,
                             const struct sockaddr_storage *peer)
{
    uint16_t port = peer->ss_family == AF_INET
                        ? ((const struct sockaddr_in *)(const void *)peer)->sin_port
                        : ((const struct sockaddr_in6 *)(const void *)peer)->sin6_port;
    return node_choose_shard(cluster, listener->node, listener->shard_aware ? ntohs(port) : 0);
}

static void accept_all(struct node_server *server, struct listener *listener)
{
    struct node_cluster *cluster = server->cluster;
    for (;;) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        int fd = accept4(listener->fd, (struct sockaddr *)&peer, &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        uint32_t shard = choose_shard(cluster, listener, &peer);
        struct node_conn *conn = node_conn_open_locked(cluster, listener->node, shard);
        if (conn == NULL) {
            (void)close(fd);
            continue;
        }
        if (listener->shard_aware &&
            cluster->engine.members[listener->node].shard_port_is == NODE_SHARD_PORT_SILENT)
            conn->silent = true;
        struct connection *connection = node_zalloc(sizeof *connection);
        connection->kind = OWNER_SOCKET;
        connection->fd = fd;
        connection->conn = conn;
        connection->next = server->connections;
        if (connection->next != NULL)
            connection->next->previous = connection;
        server->connections = connection;
        if (server->tls != NULL)
            connection->tls = node_tls_conn_create(server->tls, fd);
        watch(server, connection, fd, &connection->armed);
        if (conn->closed)
            connection_close(server, connection);
    }
}

/* Bytes of the socket. 0: the end, -1: none now, -2: broken. */
static ssize_t receive(struct node_server *server, struct connection *connection)
{
    if (connection->tls != NULL)
        return node_tls_read(connection->tls, server->buffer, READ_SIZE,
                             &connection->tls_wants_write);
    ssize_t size = recv(connection->fd, server->buffer, READ_SIZE, 0);
    return size >= 0 ? size : errno == EAGAIN || errno == EINTR ? -1 : -2;
}

static ssize_t transmit(struct connection *connection, cqlring_bytes bytes)
{
    if (connection->tls != NULL)
        return node_tls_write(connection->tls, bytes.data, (size_t)bytes.size);
    ssize_t size = send(connection->fd, bytes.data, (size_t)bytes.size, MSG_NOSIGNAL);
    return size >= 0 ? size : errno == EAGAIN || errno == EINTR ? -1 : -2;
}

/* true: still there. */
static bool read_some(struct node_server *server, struct connection *connection)
{
    for (int i = 0; i < READS_PER_TURN; ++i) {
        if (!connection->draining && node_conn_is_paused_locked(connection->conn))
            return true;
        ssize_t size = receive(server, connection);
        if (size == -1)
            return true;
        if (size <= 0) {
            connection_close(server, connection);
            return false;
        }
        if (connection->tls != NULL && connection->conn->server_name[0] == 0)
            (void)snprintf(connection->conn->server_name, sizeof connection->conn->server_name,
                           "%s", node_tls_server_name(connection->tls));
        if (!connection->draining)
            node_conn_input_locked(connection->conn, server->buffer, (size_t)size);
        if (connection->conn->closed)
            return true;
        if (connection->tls == NULL && size < READ_SIZE)
            return true; /* TLS may hold more that epoll knows nothing of */
    }
    return true;
}

/* Sends what there is, closes what is to be closed, tells epoll what is awaited. true: still there. */
static bool settle(struct node_server *server, struct connection *connection)
{
    struct node_conn *conn = connection->conn;
    struct node_cluster *cluster = server->cluster;
    if (conn->closed) {
        connection_close(server, connection);
        return false;
    }
    bool frozen = cluster->nodes[conn->node].frozen_until > cluster->now_us;
    bool blocked = false;
    cqlring_bytes bytes = {NULL, 0};
    while (!frozen && !blocked && !connection->draining &&
           (bytes = node_conn_output_locked(conn)).size > 0) {
        ssize_t size = transmit(connection, bytes);
        if (size == -2) {
            connection_close(server, connection);
            return false;
        }
        if (size > 0)
            node_conn_consumed_locked(conn, (uint32_t)size);
        blocked = size == -1;
    }
    if (conn->closing && !connection->draining && !frozen && !blocked) {
        /* Our end is shut first and theirs awaited, or unread requests would turn our last words
           into a reset. */
        if (connection->tls != NULL)
            node_tls_goodbye(connection->tls);
        (void)shutdown(connection->fd, SHUT_WR);
        connection->draining = true;
        connection->drain_until = cluster->now_us + DRAIN_US;
    }
    uint32_t wanted = frozen ? 0 : EPOLLIN;
    if (!connection->draining && node_conn_is_paused_locked(conn))
        wanted = 0;
    if (blocked || (connection->tls_wants_write && !frozen))
        wanted |= EPOLLOUT;
    arm(server, connection, connection->fd, &connection->armed, wanted);
    return true;
}

/* --- the turn --------------------------------------------------------------------------------- */

static void handle_events(struct node_server *server, const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; ++i) {
        enum owner_kind kind = *(const enum owner_kind *)events[i].data.ptr;
        if (kind == OWNER_WAKE) {
            uint64_t ignored;
            (void)!read(server->wake_fd, &ignored, sizeof ignored);
        } else if (kind == OWNER_LISTENER) {
            struct listener *listener = events[i].data.ptr;
            if (listener->fd >= 0)
                accept_all(server, listener);
        } else {
            struct connection *connection = events[i].data.ptr;
            bool there = true;
            if ((events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 ||
                connection->tls_wants_write)
                there = read_some(server, connection);
            if (there)
                (void)settle(server, connection);
        }
    }
}

/* Everything that no event of epoll brings: replies whose time has come, and changes from outside. */
static void look_around(struct node_server *server, int64_t now)
{
    for (struct connection *connection = server->connections, *next; connection != NULL;
         connection = next) {
        next = connection->next;
        node_conn_turn_locked(connection->conn);
        if (connection->draining && connection->drain_until <= now)
            connection_close(server, connection);
        else
            (void)settle(server, connection);
    }
}

/* When the next of such things is due. */
static int64_t next_time(const struct node_server *server)
{
    const struct node_cluster *cluster = server->cluster;
    int64_t due = server->retry_at;
    for (uint32_t i = 0; i < cluster->options.nodes; ++i) {
        int64_t frozen = cluster->nodes[i].frozen_until;
        if (frozen > cluster->now_us && frozen < due)
            due = frozen;
    }
    for (const struct connection *connection = server->connections; connection != NULL;
         connection = connection->next) {
        const struct node_conn *conn = connection->conn;
        if (conn->held_count > 0 && cluster->nodes[conn->node].frozen_until <= cluster->now_us &&
            conn->held[0].due < due)
            due = conn->held[0].due;
        if (connection->draining && connection->drain_until < due)
            due = connection->drain_until;
    }
    return due;
}

static int wait_events(struct node_server *server, struct epoll_event *events, int64_t until)
{
    static _Atomic bool coarse; /* kernels before 5.11, and valgrind, know milliseconds only */
    struct timespec timeout, *limit = NULL;
    int64_t us = 0;
    if (until != INT64_MAX) {
        us = until - steady_us();
        us = us < 0 ? 0 : us > 3600000000 ? 3600000000 : us;
        timeout = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
        limit = &timeout;
    }
    int count = -1;
    if (!coarse) {
        count = epoll_pwait2(server->epoll_fd, events, EVENTS_MAX, limit, NULL);
        coarse = count < 0 && errno == ENOSYS;
    }
    if (coarse)
        count = epoll_wait(server->epoll_fd, events, EVENTS_MAX, limit == NULL ? -1 : (int)((us + 999) / 1000));
    return count < 0 ? 0 : count;
}

static void *server_main(void *context)
{
    struct node_server *server = context;
    struct node_cluster *cluster = server->cluster;
    (void)pthread_setname_np(pthread_self(), "cqlring-node");
    struct epoll_event events[EVENTS_MAX];
    cluster_lock(cluster);
    int64_t due = INT64_MAX;
    while (!server->stopping) {
        cluster_unlock(cluster);
        int count = wait_events(server, events, due);
        cluster_lock(cluster);
        cluster->now_us = steady_us();
        bool poked = cluster->poked;
        cluster->poked = false;
        if (poked || due <= cluster->now_us)
            settle_listeners(server, cluster->now_us);
        handle_events(server, events, count);
        if (poked || cluster->poked || due <= cluster->now_us) {
            cluster->poked = false;
            look_around(server, cluster->now_us);
        }
        due = next_time(server);
        (void)pthread_cond_broadcast(&cluster->moved);
    }
    cluster_unlock(cluster);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

static void server_free(struct node_server *server)
{
    while (server->connections != NULL)
        connection_close(server, server->connections);
    for (uint32_t i = 0; i < 2 * NODE_COUNT_MAX; ++i) {
        if (server->listeners[i].fd >= 0)
            (void)close(server->listeners[i].fd);
    }
    if (server->wake_fd >= 0)
        (void)close(server->wake_fd);
    if (server->epoll_fd >= 0)
        (void)close(server->epoll_fd);
    node_tls_destroy(server->tls);
    node_free(server);
}

struct node_server *node_server_start(struct node_cluster *cluster, char *message,
                                      size_t message_size)
{
    struct node_server *server = node_zalloc(sizeof *server);
    server->cluster = cluster;
    server->wake_kind = OWNER_WAKE;
    server->retry_at = INT64_MAX;
    server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < 2 * NODE_COUNT_MAX; ++i)
        server->listeners[i] = (struct listener){
            .kind = OWNER_LISTENER, .fd = -1, .node = i % NODE_COUNT_MAX};
    const struct node_options *options = &cluster->options;
    if (server->wake_fd < 0 || server->epoll_fd < 0) {
        (void)snprintf(message, message_size, "no descriptors: %s", strerror(errno));
        server_free(server);
        return NULL;
    }
    if (options->tls_cert != NULL) {
        server->tls = node_tls_create(options->tls_cert, options->tls_key, options->tls_client_ca,
                                      message, message_size);
        if (server->tls == NULL) {
            server_free(server);
            return NULL;
        }
    }
    if (!open_listeners(server, message, message_size) ||
        !open_shard_listeners(server, message, message_size)) {
        server_free(server);
        return NULL;
    }
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster)); /* the ports are known now */
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &server->wake_kind}};
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &event);
    for (uint32_t i = 0; i < 2 * NODE_COUNT_MAX; ++i) {
        if (server->listeners[i].fd >= 0)
            watch(server, &server->listeners[i], server->listeners[i].fd,
                  &server->listeners[i].armed);
    }
    /* Signals belong to the program, not to this thread. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&server->thread, NULL, server_main, server);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        (void)snprintf(message, message_size, "no thread: %s", strerror(error));
        server_free(server);
        return NULL;
    }
    return server;
}

void node_server_wake(struct node_server *server)
{
    uint64_t one = 1;
    (void)!write(server->wake_fd, &one, sizeof one);
}

bool node_server_tls(struct node_server *server, const char *cert, const char *key,
                     const char *client_ca, char *message, size_t message_size)
{
    struct node_tls *tls = node_tls_create(cert, key, client_ca, message, message_size);
    if (tls == NULL)
        return false;
    node_tls_destroy(server->tls); /* connections keep their own reference to what they use */
    server->tls = tls;
    return true;
}

void node_server_stop(struct node_server *server)
{
    cluster_lock(server->cluster);
    server->stopping = true;
    node_server_wake(server);
    cluster_unlock(server->cluster);
    (void)pthread_join(server->thread, NULL);
    server_free(server);
}
