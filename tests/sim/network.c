/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"
#include "world.h"

enum { LINKS_MAX = 512, FD_FIRST = 100, NODES_MAX = 8, SPIN_MAX = 200, CALL_US = 2 };

struct run {
    struct run *next;
    int64_t due_us;
    uint32_t size, at;
    uint8_t data[];
};

struct pipe {
    struct run *head, *tail;
    uint32_t bytes;
    int64_t last_us;       /* nothing arrives before this */
    bool ended;            /* FIN behind the last run, at end_us */
    int64_t end_us;
};

enum link_state { LINK_FREE, LINK_CONNECTING, LINK_OPEN };

struct link {
    enum link_state state;
    uint32_t number, node;
    int64_t connect_us;        /* when the connect is answered; INT64_MAX never */
    int error;                 /* pending socket error: ECONNREFUSED, ECONNRESET */
    struct node_conn *conn;    /* the node's end; NULL: gone, or never there */
    struct pipe up, down;
    bool reset;                /* for the driver */
    int64_t reset_us;          /* a reset is on its way; INT64_MAX none */
    bool shut, closed;         /* by the driver */
    bool half_open;
    int64_t close_after;       /* bytes of replies until the node closes; −1 never */
    int64_t read_us;           /* a slow reader does not look before */
    struct wire *wire;
    bool watched;
    uint32_t wanted;
    void *context;
};

struct place {
    int64_t frozen_us, refuse_us, blackhole_us, slow_us;
    uint32_t slow_rate;
};

static struct {
    struct node_cluster *nodes;
    struct network_shape shape;
    struct chance chance;
    struct link links[LINKS_MAX];
    uint32_t link_top, link_number;
    struct place places[NODES_MAX];
    int64_t no_sockets_us;
    bool woken, in_wait;
    int64_t gap_us;        /* to come between the two turns */
    uint32_t wakes_since_wait;
    uint64_t spin_activity;
    uint32_t spins;
} net;

struct network_counts network_counts;

/* --- pipes ------------------------------------------------------------------------------------------------------- */

static void pipe_drop(struct pipe *pipe)
{
    while (pipe->head != NULL) {
        struct run *run = pipe->head;
        pipe->head = run->next;
        free(run);
    }
    pipe->tail = NULL;
    pipe->bytes = 0;
}

static int64_t flight_us(const struct link *link)
{
    const struct network_shape *shape = &net.shape;
    int64_t latency = chance_between(&net.chance, shape->latency_us, (int64_t)shape->latency_us + shape->jitter_us);
    return shape->slow_node == link->node + 1 ? latency * 10 : latency;
}

static void run_add(struct link *link, struct pipe *pipe, const uint8_t *data, uint32_t size)
{
    struct run *run = malloc(sizeof *run + size);
    if (run == NULL)
        abort();
    int64_t due = world.now_us + flight_us(link);
    *run = (struct run){.due_us = due > pipe->last_us ? due : pipe->last_us, .size = size};
    memcpy(run->data, data, size);
    pipe->last_us = run->due_us;
    if (pipe->tail != NULL)
        pipe->tail->next = run;
    else
        pipe->head = run;
    pipe->tail = run;
    pipe->bytes += size;
}

/* Cut anywhere: often near the ends, where headers are. */
static void pipe_add(struct link *link, struct pipe *pipe, const uint8_t *data, uint32_t size)
{
    for (int pieces = 0; pieces < 6 && size > 1 && chance_percent(&net.chance, net.shape.split_percent); pieces++) {
        uint32_t piece = 1 + (chance_percent(&net.chance, 50) ? chance_below(&net.chance, size < 24 ? size - 1 : 24) : chance_below(&net.chance, size - 1));
        if (piece >= size)
            break;
        run_add(link, pipe, data, piece);
        data += piece;
        size -= piece;
    }
    run_add(link, pipe, data, size);
}

/* --- the node's end ---------------------------------------------------------------------------------------------- */

static bool is_frozen(const struct link *link)
{
    return net.places[link->node].frozen_us > world.now_us;
}

/* The node's end is gone: what it had written still arrives, then the end. */
static void node_closes(struct link *link)
{
    if (link->conn == NULL)
        return;
    node_conn_close(link->conn);
    link->conn = NULL;
    link->down.ended = true;
    int64_t due = world.now_us + flight_us(link);
    link->down.end_us = due > link->down.last_us ? due : link->down.last_us;
    world_trace("node-close", link->number, link->down.bytes, 0);
}

static void link_reset(struct link *link)
{
    if (link->conn != NULL)
        node_conn_close(link->conn);
    link->conn = NULL;
    pipe_drop(&link->up);
    if (net.shape.rst_eats)
        pipe_drop(&link->down);
    link->reset = true;
    link->error = ECONNRESET;
    link->reset_us = INT64_MAX;
    network_counts.resets++;
    world_trace("reset", link->number, link->node, 0);
}

/* Replies into the pipe, as far as there is room. */
static void node_writes(struct link *link)
{
    while (link->conn != NULL && !is_frozen(link) && link->down.bytes < net.shape.receive_buffer) {
        cqlring_bytes out = node_conn_output(link->conn);
        if (out.size <= 0)
            break;
        uint32_t room = net.shape.receive_buffer - link->down.bytes;
        uint32_t size = (uint32_t)out.size < room ? (uint32_t)out.size : room;
        if (link->close_after >= 0 && size > link->close_after)
            size = (uint32_t)link->close_after;
        if (size > 0)
            pipe_add(link, &link->down, out.data, size);
        node_conn_consumed(link->conn, size);
        if (link->close_after >= 0 && (link->close_after -= size) == 0) {
            node_closes(link);
            return;
        }
    }
    if (link->conn != NULL && !is_frozen(link) && node_conn_wants_close(link->conn) && node_conn_output(link->conn).size <= 0)
        node_closes(link);
}

static void node_reads(struct link *link)
{
    struct pipe *up = &link->up;
    while (up->head != NULL && up->head->due_us <= world.now_us) {
        if (link->conn == NULL) { /* nobody there: answered with a reset */
            pipe_drop(up);
            if (!link->reset && link->reset_us == INT64_MAX)
                link->reset_us = world.now_us + flight_us(link);
            return;
        }
        if (is_frozen(link) || node_conn_is_paused(link->conn, world.now_us))
            return;
        const struct place *place = &net.places[link->node];
        struct run *run = up->head;
        uint32_t size = run->size - run->at;
        if (place->slow_us > world.now_us) {
            if (link->read_us > world.now_us)
                return;
            if (size > place->slow_rate)
                size = place->slow_rate;
            link->read_us = world.now_us + 1000;
        }
        world_trace_bytes("in", link->number, run->data + run->at, size);
        node_conn_input(link->conn, run->data + run->at, size, world.now_us);
        run->at += size;
        up->bytes -= size;
        if (run->at == run->size) {
            up->head = run->next;
            if (up->head == NULL)
                up->tail = NULL;
            free(run);
        }
        node_writes(link);
    }
    if (up->head == NULL && up->ended && up->end_us <= world.now_us && link->conn != NULL && !is_frozen(link))
        node_closes(link);
}

static void link_free(struct link *link)
{
    if (link->conn != NULL)
        node_conn_close(link->conn);
    pipe_drop(&link->up);
    pipe_drop(&link->down);
    wire_destroy(link->wire);
    *link = (struct link){.state = LINK_FREE};
}

static void connect_answered(struct link *link)
{
    link->state = LINK_OPEN;
    const struct place *place = &net.places[link->node];
    if (place->refuse_us > world.now_us) {
        link->error = ECONNREFUSED;
    } else if (place->blackhole_us > world.now_us) {
        link->half_open = true;
    } else {
        link->conn = node_conn_open(net.nodes, link->node, 0, world.now_us);
        if (link->conn == NULL)
            link->error = ECONNREFUSED;
    }
    world_trace("connected", link->number, link->node, (uint64_t)link->error);
}

static void link_run(struct link *link)
{
    if (link->state == LINK_CONNECTING && link->connect_us <= world.now_us)
        connect_answered(link);
    if (link->reset_us <= world.now_us)
        link_reset(link);
    if (link->state == LINK_OPEN && !link->half_open) {
        node_reads(link);
        if (link->conn != NULL && !is_frozen(link)) {
            if (node_conn_next_time(link->conn) <= world.now_us)
                node_conn_turn(link->conn, world.now_us);
            node_writes(link);
        }
    }
    if (link->closed && (link->conn == NULL || link->half_open || link->state == LINK_CONNECTING))
        link_free(link);
}

/* When something happens on this link by itself; what is ready and waits for somebody does not count. */
static int64_t link_next(const struct link *link)
{
    int64_t next = link->reset_us;
    if (link->state == LINK_CONNECTING)
        return link->connect_us < next ? link->connect_us : next;
    if (link->half_open)
        return next;
    int64_t frozen = is_frozen(link) ? net.places[link->node].frozen_us : 0, at;
    if (link->up.head != NULL || (link->up.ended && link->conn != NULL)) {
        at = link->up.head != NULL ? link->up.head->due_us : link->up.end_us;
        at = at > frozen ? at : frozen;
        if (net.places[link->node].slow_us > world.now_us && link->read_us > at)
            at = link->read_us;
        if (at > world.now_us && at < next)
            next = at;
    }
    if (link->conn != NULL) {
        at = node_conn_next_time(link->conn);
        at = at > frozen ? at : frozen;
        if (at > world.now_us && at < next)
            next = at;
    }
    if (link->down.head != NULL && link->down.head->due_us > world.now_us && link->down.head->due_us < next)
        next = link->down.head->due_us;
    if (link->down.head == NULL && link->down.ended && link->down.end_us > world.now_us && link->down.end_us < next)
        next = link->down.end_us;
    return next;
}

static void links_run(void)
{
    for (uint32_t i = 0; i < net.link_top; i++)
        if (net.links[i].state != LINK_FREE)
            link_run(&net.links[i]);
}

static int64_t links_next(void)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < net.link_top; i++) {
        if (net.links[i].state == LINK_FREE)
            continue;
        int64_t at = link_next(&net.links[i]);
        if (at < next)
            next = at;
    }
    return next;
}

/* The world goes on, the process does not. */
static void stand_still(int64_t for_us)
{
    world_trace("gap", (uint64_t)for_us, 0, 0);
    int64_t end = world.now_us + for_us;
    world.lost_us += for_us;
    for (;;) {
        links_run();
        int64_t at = links_next();
        if (at > end)
            break;
        world.now_us = at > world.now_us ? at : world.now_us;
    }
    world.now_us = end;
}

/* --- driver/net.h ------------------------------------------------------------------------------------------------ */

static struct link *link_of(int fd)
{
    world_check(fd >= FD_FIRST && fd < FD_FIRST + LINKS_MAX, "a call on descriptor %d, which is no socket", fd);
    struct link *link = &net.links[fd - FD_FIRST];
    world_check(link->state != LINK_FREE && !link->closed, "a call on descriptor %d after its close", fd);
    world.activity++;
    return link;
}

static int sim_connect(struct net *self, const struct address *address, uint16_t local_port)
{
    (void)self, (void)local_port;
    network_counts.connects++;
    world.activity++;
    if (net.no_sockets_us > world.now_us)
        return -EMFILE;
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->storage;
    uint32_t node = (ntohl(four->sin_addr.s_addr) & 0xFF) - 1;
    world_check(address->storage.ss_family == AF_INET && node < NODES_MAX && node < node_count(net.nodes), "connect to an address that nobody has");
    uint32_t slot = 0;
    while (slot < LINKS_MAX && net.links[slot].state != LINK_FREE)
        slot++;
    world_check(slot < LINKS_MAX, "%d sockets open at once", LINKS_MAX);
    if (slot >= net.link_top)
        net.link_top = slot + 1;
    struct link *link = &net.links[slot];
    *link = (struct link){.state = LINK_CONNECTING, .number = ++net.link_number, .node = node, .reset_us = INT64_MAX, .close_after = -1};
    link->connect_us = world.now_us + flight_us(link) * 2;
    link->wire = wire_create(link->number, node);
    world_trace("connect", link->number, node, slot);
    return FD_FIRST + (int)slot;
}

static int sim_connect_result(struct net *self, int fd)
{
    (void)self;
    struct link *link = link_of(fd);
    if (link->state == LINK_CONNECTING)
        return -EINPROGRESS;
    int error = link->error;
    return -error;
}

static uint32_t shortened(uint32_t size)
{
    if (size <= 1 || !chance_percent(&net.chance, net.shape.short_percent))
        return size;
    return 1 + (chance_percent(&net.chance, 50) ? chance_below(&net.chance, size < 32 ? size : 32) : chance_below(&net.chance, size));
}

static ssize_t sim_send(struct net *self, int fd, const void *data, size_t size)
{
    (void)self;
    struct link *link = link_of(fd);
    world.now_us += CALL_US;
    network_counts.sends++;
    world_check(link->state == LINK_OPEN && size > 0 && size <= INT32_MAX, "a send of %zu bytes on a socket that is not connected", size);
    if (link->reset || link->error != 0)
        return link->error != 0 ? -link->error : -EPIPE;
    if (link->shut)
        return -EPIPE;
    uint32_t room = link->up.bytes < net.shape.send_buffer ? net.shape.send_buffer - link->up.bytes : 0;
    uint32_t taken = size < room ? (uint32_t)size : room;
    taken = taken > 0 ? shortened(taken) : 0;
    if (taken < size)
        network_counts.blocked++;
    if (taken == 0)
        return -EAGAIN;
    world_trace_bytes("send", link->number, data, taken);
    wire_up(link->wire, data, taken);
    pipe_add(link, &link->up, data, taken);
    return (ssize_t)taken;
}

static bool is_readable(const struct link *link)
{
    return (link->down.head != NULL && link->down.head->due_us <= world.now_us) ||
           (link->down.head == NULL && link->down.ended && link->down.end_us <= world.now_us) || link->reset || link->shut || link->error != 0;
}

static ssize_t sim_recv(struct net *self, int fd, void *data, size_t size)
{
    (void)self;
    struct link *link = link_of(fd);
    world.now_us += CALL_US;
    network_counts.recvs++;
    world_check(link->state == LINK_OPEN && size > 0, "a recv of %zu bytes on a socket that is not connected", size);
    uint32_t want = shortened(size > INT32_MAX ? INT32_MAX : (uint32_t)size), got = 0;
    while (got < want && link->down.head != NULL && link->down.head->due_us <= world.now_us) {
        struct run *run = link->down.head;
        uint32_t piece = run->size - run->at < want - got ? run->size - run->at : want - got;
        memcpy((uint8_t *)data + got, run->data + run->at, piece);
        got += piece;
        run->at += piece;
        link->down.bytes -= piece;
        if (run->at == run->size) {
            link->down.head = run->next;
            if (link->down.head == NULL)
                link->down.tail = NULL;
            free(run);
        }
    }
    if (got > 0) {
        world_trace_bytes("recv", link->number, data, got);
        wire_down(link->wire, data, got);
        if (!link->half_open)
            node_writes(link);
        return (ssize_t)got;
    }
    if (link->reset || link->error != 0) {
        world_trace("recv-error", link->number, 0, 0);
        return -(link->error != 0 ? link->error : ECONNRESET);
    }
    if (link->shut || (link->down.head == NULL && link->down.ended && link->down.end_us <= world.now_us))
        return 0;
    return -EAGAIN;
}

static void sim_shutdown(struct net *self, int fd)
{
    (void)self;
    struct link *link = link_of(fd);
    world_trace("shutdown", link->number, 0, 0);
    if (link->shut || link->state != LINK_OPEN) {
        link->shut = true;
        return;
    }
    link->shut = true;
    link->up.ended = true;
    int64_t due = world.now_us + flight_us(link);
    link->up.end_us = due > link->up.last_us ? due : link->up.last_us;
}

static void sim_close(struct net *self, int fd)
{
    struct link *link = link_of(fd);
    world_check(!link->watched, "descriptor %d is closed while the poller watches it", fd);
    if (!link->shut)
        sim_shutdown(self, fd);
    link->closed = true;
    world_trace("close", link->number, wire_open(link->wire), 0);
    /* unread replies turn the close into a reset, which may overtake what was still to be read by the node */
    if (link->down.head != NULL && chance_percent(&net.chance, 50) && link->reset_us == INT64_MAX)
        link->reset_us = world.now_us + flight_us(link);
    if (link->conn == NULL || link->half_open || link->state == LINK_CONNECTING)
        link_free(link);
}

static int64_t sim_now_us(struct net *self)
{
    (void)self;
    if (net.gap_us > 0 && !net.in_wait) {
        int64_t for_us = net.gap_us;
        net.gap_us = 0;
        stand_still(for_us);
    }
    return world.now_us;
}

static int64_t sim_wall_us(struct net *self)
{
    (void)self;
    return world.now_us + world.wall_us;
}

struct net *network_net(void)
{
    static const struct net_vtable calls = {
        .connect = sim_connect,
        .connect_result = sim_connect_result,
        .send = sim_send,
        .recv = sim_recv,
        .shutdown = sim_shutdown,
        .close = sim_close,
        .now_us = sim_now_us,
        .wall_us = sim_wall_us,
    };
    static struct net self = {.call = &calls};
    return &self;
}

/* --- driver/poller.h --------------------------------------------------------------------------------------------- */

static cqlring_status poller_add(struct poller *self, int fd, uint32_t events, void *context)
{
    (void)self;
    struct link *link = link_of(fd);
    world_check(!link->watched, "descriptor %d is watched twice", fd);
    link->watched = true;
    link->wanted = events;
    link->context = context;
    return CQLRING_OK;
}

static void poller_modify(struct poller *self, int fd, uint32_t events)
{
    (void)self;
    struct link *link = link_of(fd);
    world_check(link->watched, "descriptor %d is not watched", fd);
    link->wanted = events;
}

static void poller_remove(struct poller *self, int fd)
{
    (void)self;
    struct link *link = link_of(fd);
    world_check(link->watched, "descriptor %d is not watched", fd);
    link->watched = false;
}

static int gather(struct poll_event *events, int capacity)
{
    int count = 0;
    uint32_t start = chance_below(&net.chance, net.link_top);
    for (uint32_t i = 0; i < net.link_top && count < capacity; i++) {
        struct link *link = &net.links[(start + i) % net.link_top];
        if (link->state == LINK_FREE || link->closed || !link->watched || link->wanted == 0)
            continue;
        uint32_t ready = 0;
        bool broken = link->reset || link->error != 0 || link->shut;
        if (link->state == LINK_OPEN) {
            if (is_readable(link))
                ready |= POLL_READ;
            if (broken || link->up.bytes <= net.shape.send_buffer - net.shape.send_buffer / 3)
                ready |= POLL_WRITE;
        }
        ready &= link->wanted | (broken && net.shape.hangups_told ? POLL_READ : 0u);
        if (ready != 0)
            events[count++] = (struct poll_event){.context = link->context, .events = ready};
    }
    /* any order: one connection's bytes may be read before or after another's */
    for (int i = count - 1; i > 0; i--) {
        int j = (int)chance_below(&net.chance, (uint32_t)i + 1);
        struct poll_event other = events[i];
        events[i] = events[j];
        events[j] = other;
    }
    return count;
}

static void happen(void)
{
    links_run();
    world_errands_run();
    links_run();
}

static int poller_wait(struct poller *self, struct poll_event *events, int capacity, int64_t deadline_us)
{
    (void)self;
    network_counts.waits++;
    world.now_us += CALL_US;
    net.in_wait = true;
    bool slept = false;
    int count;
    for (;;) {
        happen();
        count = gather(events, capacity);
        world_check(world.now_us < world.limit_us, "it hangs: this should have ended before %.3f s", (double)world.limit_us / 1e6);
        if (count > 0 || net.woken || deadline_us == 0 || (deadline_us > 0 && deadline_us <= world.now_us))
            break;
        int64_t next = links_next(), errand = world_errand_next();
        next = errand < next ? errand : next;
        world_check(next != INT64_MAX || deadline_us > 0, "it hangs: the driver sleeps for ever, and nothing is on its way");
        slept = true;
        if (deadline_us > 0 && deadline_us <= next)
            world.now_us = deadline_us + chance_between(&net.chance, 0, net.shape.late_wake_us);
        else if (next > world.now_us)
            world.now_us = next;
    }
    if (slept || count > 0 || world.activity != net.spin_activity)
        net.spins = 0;
    else
        world_check(++net.spins < SPIN_MAX, "the driver spins: %d turns without anything to do", SPIN_MAX);
    net.spin_activity = world.activity;
    net.woken = false;
    net.wakes_since_wait = 0;
    net.in_wait = false;
    return count;
}

static void poller_wake(struct poller *self)
{
    (void)self;
    network_counts.wakes++;
    net.wakes_since_wait++;
    world_check(net.wakes_since_wait <= 1, "%u wakes between two waits", net.wakes_since_wait);
    net.woken = true;
}

static int poller_fd(struct poller *self)
{
    (void)self;
    return -1;
}

static void poller_arm(struct poller *self, int64_t deadline_us)
{
    (void)self, (void)deadline_us;
}

static void poller_destroy(struct poller *self)
{
    (void)self;
    for (uint32_t i = 0; i < net.link_top; i++)
        world_check(net.links[i].state == LINK_FREE || !net.links[i].watched, "a socket is watched when the poller ends");
}

struct poller *network_poller_create(void)
{
    static const struct poller_vtable calls = {
        .add = poller_add,
        .modify = poller_modify,
        .remove = poller_remove,
        .wait = poller_wait,
        .wake = poller_wake,
        .fd = poller_fd,
        .arm = poller_arm,
        .destroy = poller_destroy,
    };
    static struct poller self = {.call = &calls};
    return &self;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

void network_init(struct node_cluster *nodes, const struct network_shape *shape)
{
    memset(&net, 0, sizeof net);
    network_counts = (struct network_counts){0};
    net.nodes = nodes;
    net.shape = *shape;
    net.chance = chance_make(world.seed, 2);
    assert(shape->send_buffer >= 16 && shape->receive_buffer >= 16);
}

void network_fini(void)
{
    for (uint32_t i = 0; i < net.link_top; i++) {
        struct link *link = &net.links[i];
        if (link->state == LINK_FREE)
            continue;
        world_check(link->closed, "the socket of link %u to node %u was never closed", link->number, link->node);
        link_free(link);
    }
}

uint32_t network_links(uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < net.link_top; i++) {
        const struct link *link = &net.links[i];
        count += link->state == LINK_OPEN && !link->closed && link->error == 0 && (node == NODE_ALL || link->node == node);
    }
    return count;
}

/* --- what goes wrong --------------------------------------------------------------------------------------------- */

static struct link *pick(uint32_t node)
{
    uint32_t count = 0;
    struct link *picked = NULL;
    for (uint32_t i = 0; i < net.link_top; i++) {
        struct link *link = &net.links[i];
        if (link->state != LINK_OPEN || link->closed || link->reset || link->half_open || link->conn == NULL || (node != NODE_ALL && link->node != node))
            continue;
        if (chance_below(&net.chance, ++count) == 0)
            picked = link;
    }
    return picked;
}

bool network_reset(uint32_t node)
{
    struct link *link = pick(node);
    if (link != NULL)
        link_reset(link);
    return link != NULL;
}

bool network_close(uint32_t node, uint32_t after)
{
    struct link *link = pick(node);
    if (link == NULL)
        return false;
    link->close_after = after;
    if (after == 0)
        node_closes(link);
    return true;
}

bool network_half_open(uint32_t node)
{
    struct link *link = pick(node);
    if (link == NULL)
        return false;
    world_trace("half-open", link->number, 0, 0);
    link->half_open = true;
    return true;
}

static void until(int64_t *what, int64_t for_us)
{
    *what = world.now_us + for_us;
}

void network_crash(uint32_t node, int64_t for_us)
{
    world_trace("crash", node, (uint64_t)for_us, 0);
    for (uint32_t i = 0; i < net.link_top; i++)
        if (net.links[i].state == LINK_OPEN && net.links[i].node == node && !net.links[i].half_open)
            link_reset(&net.links[i]);
    node_forget_prepared(net.nodes, node);
    until(&net.places[node].refuse_us, for_us);
}

void network_freeze(uint32_t node, int64_t for_us)
{
    world_trace("freeze", node, (uint64_t)for_us, 0);
    until(&net.places[node].frozen_us, for_us);
}

void network_refuse(uint32_t node, int64_t for_us)
{
    until(&net.places[node].refuse_us, for_us);
}

void network_blackhole(uint32_t node, int64_t for_us)
{
    until(&net.places[node].blackhole_us, for_us);
}

void network_slow_reader(uint32_t node, int64_t for_us, uint32_t bytes_per_ms)
{
    until(&net.places[node].slow_us, for_us);
    net.places[node].slow_rate = bytes_per_ms > 0 ? bytes_per_ms : 1;
}

void network_no_sockets(int64_t for_us)
{
    until(&net.no_sockets_us, for_us);
}

void network_heal(void)
{
    memset(net.places, 0, sizeof net.places);
    net.no_sockets_us = 0;
    for (uint32_t i = 0; i < net.link_top; i++)
        if (net.links[i].state != LINK_FREE && net.links[i].half_open) {
            net.links[i].half_open = false;
            net.links[i].reset_us = world.now_us + 1;
        }
}

void network_gap(int64_t for_us, bool between)
{
    world_check(net.in_wait, "network_gap outside of an errand");
    if (between)
        net.gap_us = for_us;
    else
        stand_still(for_us);
}
