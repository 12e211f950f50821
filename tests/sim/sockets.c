/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* --- driver/net.h ------------------------------------------------------------------------------------------------ */

static struct link *link_of(int fd)
{
    world_check(fd >= FD_FIRST && fd < FD_FIRST + LINKS_MAX,
                "a call on descriptor %d, which is no socket", fd);
    struct link *link = &sim.links[fd - FD_FIRST];
    world_check(link->state != LINK_FREE && !link->closed,
                "a call on descriptor %d after its close", fd);
    world.activity++;
    return link;
}

static int sim_connect(struct net *self, const struct address *address, uint16_t local_port, const struct socket_options *options)
{
    (void)self;
    (void)options;
    network_counts.connects++;
    world.activity++;
    if (sim.no_sockets_us > world.now_us)
        return -EMFILE;
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->storage;
    uint32_t node = (ntohl(four->sin_addr.s_addr) & 0xFF) - 1;
    world_check(address->storage.ss_family == AF_INET && node < NODES_MAX &&
                    node < node_count(sim.nodes),
                "connect to an address that nobody has");
    bool chooses = ntohs(four->sin_port) == node_shard_port(sim.nodes, node, NULL);
    world_check((local_port != 0) == chooses, "port %u from the local port %u", ntohs(four->sin_port),
                local_port);
    if (chooses && chance_percent(&sim.chance, 3))
        return chance_percent(&sim.chance, 50) ? -EADDRINUSE : -EADDRNOTAVAIL; /* another has it */
    uint32_t slot = 0;
    while (slot < LINKS_MAX && sim.links[slot].state != LINK_FREE)
        slot++;
    world_check(slot < LINKS_MAX, "%d sockets open at once", LINKS_MAX);
    if (slot >= sim.link_top)
        sim.link_top = slot + 1;
    struct link *link = &sim.links[slot];
    *link = (struct link){.state = LINK_CONNECTING,
                          .number = ++sim.link_number,
                          .node = node,
                          .source_port = local_port,
                          .reset_us = INT64_MAX,
                          .close_after = -1};
    link->connect_us = world.now_us + links_flight_us(link) * 2;
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
    if (size <= 1 || !chance_percent(&sim.chance, sim.shape.short_percent))
        return size;
    return 1 + (chance_percent(&sim.chance, 50) ? chance_below(&sim.chance, size < 32 ? size : 32)
                                                : chance_below(&sim.chance, size));
}

static ssize_t sim_send(struct net *self, int fd, const void *data, size_t size)
{
    (void)self;
    struct link *link = link_of(fd);
    world.now_us += CALL_US;
    network_counts.sends++;
    world_check(link->state == LINK_OPEN && size > 0 && size <= INT32_MAX,
                "a send of %zu bytes on a socket that is not connected", size);
    if (link->reset || link->error != 0)
        return link->error != 0 ? -link->error : -EPIPE;
    if (link->shut)
        return -EPIPE;
    uint32_t room = link->up.bytes < sim.shape.send_buffer ? sim.shape.send_buffer - link->up.bytes
                                                           : 0;
    uint32_t taken = size < room ? (uint32_t)size : room;
    taken = taken > 0 ? shortened(taken) : 0;
    if (taken < size)
        network_counts.blocked++;
    if (taken == 0)
        return -EAGAIN;
    world_trace_bytes("send", link->number, data, taken);
    wire_up(link->wire, data, taken);
    links_put(link, &link->up, data, taken);
    return (ssize_t)taken;
}

static bool is_readable(const struct link *link)
{
    return (link->down.head != NULL && link->down.head->due_us <= world.now_us) ||
           (link->down.head == NULL && link->down.ended && link->down.end_us <= world.now_us) ||
           link->reset || link->shut || link->error != 0;
}

static ssize_t sim_recv(struct net *self, int fd, void *data, size_t size)
{
    (void)self;
    struct link *link = link_of(fd);
    world.now_us += CALL_US;
    network_counts.recvs++;
    world_check(link->state == LINK_OPEN && size > 0,
                "a recv of %zu bytes on a socket that is not connected", size);
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
            links_node_writes(link);
        return (ssize_t)got;
    }
    if (link->reset || link->error != 0) {
        world_trace("recv-error", link->number, 0, 0);
        return -(link->error != 0 ? link->error : ECONNRESET);
    }
    if (link->shut ||
        (link->down.head == NULL && link->down.ended && link->down.end_us <= world.now_us))
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
    int64_t due = world.now_us + links_flight_us(link);
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
    if (link->down.head != NULL && chance_percent(&sim.chance, 50) && link->reset_us == INT64_MAX)
        link->reset_us = world.now_us + links_flight_us(link);
    if (link->conn == NULL || link->half_open || link->state == LINK_CONNECTING)
        links_free(link);
}

static int64_t sim_now_us(struct net *self)
{
    (void)self;
    if (sim.gap_us > 0 && !sim.in_wait) {
        int64_t for_us = sim.gap_us;
        sim.gap_us = 0;
        links_stand_still(for_us);
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
    uint32_t start = chance_below(&sim.chance, sim.link_top);
    for (uint32_t i = 0; i < sim.link_top && count < capacity; i++) {
        struct link *link = &sim.links[(start + i) % sim.link_top];
        if (link->state == LINK_FREE || link->closed || !link->watched || link->wanted == 0)
            continue;
        uint32_t ready = 0;
        bool broken = link->reset || link->error != 0 || link->shut;
        if (link->state == LINK_OPEN) {
            if (is_readable(link))
                ready |= POLL_READ;
            if (broken || link->up.bytes <= sim.shape.send_buffer - sim.shape.send_buffer / 3)
                ready |= POLL_WRITE;
        }
        ready &= link->wanted | (broken && sim.shape.hangups_told ? POLL_READ : 0u);
        if (ready != 0)
            events[count++] = (struct poll_event){.context = link->context, .events = ready};
    }
    /* any order: one connection's bytes may be read before or after another's */
    for (int i = count - 1; i > 0; i--) {
        int j = (int)chance_below(&sim.chance, (uint32_t)i + 1);
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

static int poller_wait(struct poller *self, struct poll_event *events, int capacity,
                       int64_t deadline_us)
{
    (void)self;
    network_counts.waits++;
    world.now_us += CALL_US;
    sim.in_wait = true;
    bool slept = false;
    int count;
    for (;;) {
        happen();
        count = gather(events, capacity);
        world_check(world.now_us < world.limit_us, "it hangs: this should have ended before %.3f s",
                    (double)world.limit_us / 1e6);
        if (count > 0 || sim.woken || deadline_us == 0 ||
            (deadline_us > 0 && deadline_us <= world.now_us))
            break;
        int64_t next = links_next(), errand = world_errand_next();
        next = errand < next ? errand : next;
        world_check(next != INT64_MAX || deadline_us > 0,
                    "it hangs: the driver sleeps for ever, and nothing is on its way");
        slept = true;
        if (deadline_us > 0 && deadline_us <= next)
            world.now_us = deadline_us + chance_between(&sim.chance, 0, sim.shape.late_wake_us);
        else if (next > world.now_us)
            world.now_us = next;
    }
    if (slept || count > 0 || world.activity != sim.spin_activity)
        sim.spins = 0;
    else
        world_check(++sim.spins < SPIN_MAX, "the driver spins: %d turns without anything to do",
                    SPIN_MAX);
    sim.spin_activity = world.activity;
    sim.woken = false;
    sim.wakes_since_wait = 0;
    sim.in_wait = false;
    return count;
}

static void poller_wake(struct poller *self)
{
    (void)self;
    network_counts.wakes++;
    sim.wakes_since_wait++;
    /* with a foreign loop another one may be due after a turn that asked and did not look */
    world_check(sim.wakes_since_wait <= (sim.foreign ? 2u : 1u), "%u wakes between two waits",
                sim.wakes_since_wait);
    sim.woken = true;
}

bool network_sleep(int64_t until_us)
{
    struct poll_event event;
    for (;;) {
        sim.in_wait = true; /* as far as errands are concerned */
        happen();
        sim.in_wait = false;
        bool is_due = sim.armed_us >= 0 && sim.armed_us <= world.now_us;
        if (gather(&event, 1) > 0 || sim.woken || is_due)
            return true;
        if (world.now_us >= until_us)
            return false;
        int64_t next = links_next(), errand = world_errand_next();
        next = errand < next ? errand : next;
        next = sim.armed_us >= 0 && sim.armed_us < next ? sim.armed_us : next;
        next = until_us < next ? until_us : next;
        if (next > world.now_us)
            world.now_us = next;
    }
}

static int poller_fd(struct poller *self)
{
    (void)self;
    sim.foreign = true;
    return -1; /* what is slept on is network_sleep */
}

static void poller_arm(struct poller *self, int64_t deadline_us)
{
    (void)self;
    sim.armed_us = deadline_us;
}

static void poller_destroy(struct poller *self)
{
    (void)self;
    for (uint32_t i = 0; i < sim.link_top; i++)
        world_check(sim.links[i].state == LINK_FREE || !sim.links[i].watched,
                    "a socket is watched when the poller ends");
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
