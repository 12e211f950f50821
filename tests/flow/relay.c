/* SPDX-License-Identifier: Apache-2.0 */

#include "relay.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, BUFFER_SIZE = 64 << 10, FIRST_SIZE = 2048, CONNECTIONS_MAX = 1024 };

struct flow_way {
    uint64_t passed;
    size_t from, to; /* of buffer */
    bool ended;      /* this side has closed, and what it sent has been passed on */
    uint8_t buffer[BUFFER_SIZE];
};

struct pair {
    int fds[2]; /* RELAY_UP: the driver's, which bytes for the node are read from; RELAY_DOWN: the node's */
    uint32_t number;
    int mouth; /* the far end of the node's side when there is no node; else -1 */
    uint64_t cut_after;
    enum relay_way cut_way;
    struct flow_way ways[2];
};

struct first {
    size_t size;
    uint8_t bytes[FIRST_SIZE];
};

struct relay {
    pthread_mutex_t lock; /* everything below; held but for the wait */
    pthread_t thread;
    int listener, wake;
    bool stopping, cutting;
    char contact[128];
    char path[108];
    uint16_t port;
    struct sockaddr_in target;
    struct pair *pairs[PAIRS_MAX];
    uint32_t pair_count, count;
    uint64_t cut_after;
    enum relay_way cut_way;
    uint32_t cut_every;
    bool hold[2];
    bool flip_armed, flipped;
    enum relay_way flip_way;
    uint64_t flip_skip;
    struct first *firsts;
    size_t say_size;
    uint8_t say[1024];
};

static void pair_close(struct relay *relay, uint32_t index)
{
    struct pair *pair = relay->pairs[index];
    close(pair->fds[0]);
    close(pair->fds[1]);
    if (pair->mouth >= 0)
        close(pair->mouth);
    free(pair);
    relay->pairs[index] = relay->pairs[--relay->pair_count];
}

static int node_dial(struct relay *relay, int *mouth)
{
    *mouth = -1;
    if (relay->say_size > 0) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 || send(ends[1], relay->say, relay->say_size, 0) != (ssize_t)relay->say_size)
            abort();
        *mouth = ends[1];
        return ends[0];
    }
    int node = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (node >= 0 && connect(node, (const struct sockaddr *)&relay->target, sizeof relay->target) != 0) {
        close(node);
        return -1;
    }
    return node;
}

static void pair_open(struct relay *relay)
{
    int driver = accept4(relay->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (driver < 0)
        return;
    int mouth, on = 1, node = relay->pair_count < PAIRS_MAX ? node_dial(relay, &mouth) : -1;
    if (node < 0) {
        close(driver);
        relay->count++;
        return;
    }
    (void)setsockopt(node, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(driver, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)fcntl(node, F_SETFL, O_NONBLOCK);
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL)
        abort();
    pair->fds[RELAY_UP] = driver;
    pair->fds[RELAY_DOWN] = node;
    pair->mouth = mouth;
    pair->number = relay->count++;
    if (relay->cut_after > 0 && pair->number % relay->cut_every == 0) {
        pair->cut_after = relay->cut_after;
        pair->cut_way = relay->cut_way;
    }
    relay->pairs[relay->pair_count++] = pair;
}

static void spoil(struct relay *relay, enum relay_way way, uint8_t *data, size_t size)
{
    if (!relay->flip_armed || relay->flip_way != way)
        return;
    if (relay->flip_skip >= size) {
        relay->flip_skip -= size;
        return;
    }
    data[relay->flip_skip] ^= 0x10;
    relay->flip_armed = false;
    relay->flipped = true;
}

/* False: the pair is to be closed. */
static bool pass(struct relay *relay, struct pair *pair, enum relay_way way)
{
    struct flow_way *flow = &pair->ways[way];
    int from = pair->fds[way], to = pair->fds[1 - way];
    if (!flow->ended && flow->from == flow->to && !relay->hold[way]) {
        ssize_t size = recv(from, flow->buffer, sizeof flow->buffer, 0);
        if (size < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (size == 0) {
            flow->ended = true;
            (void)shutdown(to, SHUT_WR);
        }
        if (size > 0) {
            flow->from = 0;
            flow->to = (size_t)size;
            if (way == RELAY_UP && pair->number < CONNECTIONS_MAX) {
                struct first *first = &relay->firsts[pair->number];
                size_t room = sizeof first->bytes - first->size, take = (size_t)size < room ? (size_t)size : room;
                memcpy(first->bytes + first->size, flow->buffer, take);
                first->size += take;
            }
            spoil(relay, way, flow->buffer, (size_t)size);
        }
    }
    while (flow->from < flow->to && !relay->hold[way]) {
        size_t size = flow->to - flow->from;
        bool cut = pair->cut_after > 0 && pair->cut_way == way && flow->passed + size >= pair->cut_after;
        if (cut)
            size = (size_t)(pair->cut_after - flow->passed);
        ssize_t sent = size == 0 ? 0 : send(to, flow->buffer + flow->from, size, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        flow->from += (size_t)sent;
        flow->passed += (uint64_t)sent;
        if (cut && (size_t)sent == size)
            return false;
    }
    return !(pair->ways[0].ended && pair->ways[1].ended);
}

static nfds_t interests(struct relay *relay, struct pollfd *fds)
{
    nfds_t count = 0;
    fds[count++] = (struct pollfd){.fd = relay->wake, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
    for (uint32_t i = 0; i < relay->pair_count; i++)
        for (int way = 0; way < 2; way++) {
            struct pair *pair = relay->pairs[i];
            const struct flow_way *in = &pair->ways[way], *out = &pair->ways[1 - way];
            short events = 0;
            if (!in->ended && in->from == in->to && !relay->hold[way])
                events |= POLLIN;
            if (out->from < out->to && !relay->hold[1 - way])
                events |= POLLOUT;
            fds[count++] = (struct pollfd){.fd = events == 0 ? -1 : pair->fds[way], .events = events};
        }
    return count;
}

static void *run(void *context)
{
    struct relay *relay = context;
    struct pollfd fds[2 + 2 * PAIRS_MAX];
    pthread_mutex_lock(&relay->lock);
    while (!relay->stopping) {
        nfds_t count = interests(relay, fds);
        pthread_mutex_unlock(&relay->lock);
        (void)poll(fds, count, -1);
        pthread_mutex_lock(&relay->lock);
        uint64_t ignored;
        if ((fds[0].revents & POLLIN) != 0)
            (void)!read(relay->wake, &ignored, sizeof ignored);
        for (uint32_t i = relay->pair_count; i-- > 0;) {
            struct pair *pair = relay->pairs[i];
            if (relay->cutting || !pass(relay, pair, RELAY_UP) || !pass(relay, pair, RELAY_DOWN))
                pair_close(relay, i);
        }
        relay->cutting = false;
        if ((fds[1].revents & POLLIN) != 0)
            pair_open(relay);
    }
    while (relay->pair_count > 0)
        pair_close(relay, 0);
    pthread_mutex_unlock(&relay->lock);
    return NULL;
}

static void change_begin(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
}

static void change_end(struct relay *relay)
{
    uint64_t one = 1;
    (void)!write(relay->wake, &one, sizeof one);
    pthread_mutex_unlock(&relay->lock);
}

struct relay *relay_start(const char *path, const char *address, uint16_t port)
{
    struct relay *relay = calloc(1, sizeof *relay);
    ck_assert_ptr_nonnull(relay);
    relay->firsts = calloc(CONNECTIONS_MAX, sizeof *relay->firsts);
    ck_assert_ptr_nonnull(relay->firsts);
    pthread_mutex_init(&relay->lock, NULL);
    relay->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    relay->listener = socket(path != NULL ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(relay->wake, 0);
    ck_assert_int_ge(relay->listener, 0);
    if (path != NULL) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        ck_assert_uint_lt(strlen(path), sizeof at.sun_path);
        strcpy(at.sun_path, path);
        strcpy(relay->path, path);
        snprintf(relay->contact, sizeof relay->contact, "%s", path);
        ck_assert_int_eq(bind(relay->listener, (struct sockaddr *)&at, sizeof at), 0);
    } else {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        ck_assert_int_eq(bind(relay->listener, (struct sockaddr *)&at, sizeof at), 0);
        ck_assert_int_eq(getsockname(relay->listener, (struct sockaddr *)&at, &size), 0);
        relay->port = ntohs(at.sin_port);
        snprintf(relay->contact, sizeof relay->contact, "127.0.0.1:%u", relay->port);
    }
    ck_assert_int_eq(listen(relay->listener, 128), 0);
    relay->target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    ck_assert_int_eq(inet_pton(AF_INET, address, &relay->target.sin_addr), 1);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ck_assert_int_eq(pthread_create(&relay->thread, NULL, run, relay), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return relay;
}

void relay_stop(struct relay *relay)
{
    change_begin(relay);
    relay->stopping = true;
    change_end(relay);
    pthread_join(relay->thread, NULL);
    close(relay->listener);
    close(relay->wake);
    if (relay->path[0] != '\0')
        (void)unlink(relay->path);
    pthread_mutex_destroy(&relay->lock);
    free(relay->firsts);
    free(relay);
}

uint16_t relay_port(const struct relay *relay)
{
    return relay->port;
}

const char *relay_contact(const struct relay *relay)
{
    return relay->contact;
}

uint32_t relay_count(struct relay *relay)
{
    change_begin(relay);
    uint32_t count = relay->count;
    change_end(relay);
    return count;
}

size_t relay_first(struct relay *relay, uint32_t number, uint8_t *out, size_t capacity)
{
    change_begin(relay);
    size_t size = number < CONNECTIONS_MAX ? relay->firsts[number].size : 0;
    if (size > capacity)
        size = capacity;
    if (size > 0)
        memcpy(out, relay->firsts[number].bytes, size);
    change_end(relay);
    return size;
}

void relay_target(struct relay *relay, const char *address, uint16_t port)
{
    change_begin(relay);
    relay->target.sin_port = htons(port);
    ck_assert_int_eq(inet_pton(AF_INET, address, &relay->target.sin_addr), 1);
    change_end(relay);
}

void relay_say(struct relay *relay, const void *bytes, size_t size)
{
    ck_assert_uint_le(size, sizeof relay->say);
    change_begin(relay);
    memcpy(relay->say, bytes, size);
    relay->say_size = size;
    change_end(relay);
}

void relay_cut(struct relay *relay)
{
    change_begin(relay);
    relay->cutting = true;
    change_end(relay);
}

void relay_cut_after(struct relay *relay, enum relay_way way, uint64_t bytes, uint32_t every)
{
    change_begin(relay);
    relay->cut_after = bytes;
    relay->cut_way = way;
    relay->cut_every = every;
    change_end(relay);
}

void relay_flip(struct relay *relay, enum relay_way way, uint64_t skip)
{
    change_begin(relay);
    relay->flip_armed = true;
    relay->flipped = false;
    relay->flip_way = way;
    relay->flip_skip = skip;
    change_end(relay);
}

bool relay_flipped(struct relay *relay)
{
    change_begin(relay);
    bool flipped = relay->flipped;
    change_end(relay);
    return flipped;
}

void relay_hold(struct relay *relay, enum relay_way way, bool hold)
{
    change_begin(relay);
    relay->hold[way] = hold;
    change_end(relay);
}
