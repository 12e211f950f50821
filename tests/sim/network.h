/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_NETWORK_H
#define SIM_NETWORK_H

/* The network between the driver and the nodes: driver/net.h and driver/poller.h on simulated sockets, the other end of
   each a protocol machine of tests/node. A socket is a link: two pipes of byte runs, each run with the time at which it
   arrives. Runs of one pipe never overtake one another; runs of different links do.

   Time passes in the poller's wait (to the next thing that happens, or the deadline) and by a few microseconds for every
   call, so that a driver that spins grows old. */

#include <stdbool.h>
#include <stdint.h>

#include "driver/net.h"
#include "driver/poller.h"
#include "tests/node/node.h"

/* How good the network is. All of it holds for the whole run; what goes wrong for a while is done by network_… below. */
struct network_shape {
    uint32_t latency_us, jitter_us; /* one way */
    uint32_t slow_node;             /* index + 1: ten times that far away; 0 none */
    uint32_t send_buffer;           /* bytes that send takes before the node has read them */
    uint32_t receive_buffer;        /* bytes of replies that wait for recv */
    uint32_t split_percent;         /* runs that are cut in pieces */
    uint32_t short_percent;         /* sends and recvs that move less than they could */
    uint32_t late_wake_us;          /* how much later than its deadline a wait may return */
    bool rst_eats;                  /* a reset destroys what had arrived and was not read */
    bool hangups_told; /* readiness for errors is told to who did not ask for it, as epoll does */
};

void network_init(struct node_cluster *nodes, const struct network_shape *shape);
void network_fini(void); /* faults when a socket was left open */
struct net *network_net(void);
struct poller *network_poller_create(void);
/* A foreign loop that sleeps on cqlring_runtime_fd, which must have been called: until the descriptor is readable (true) or
   its own time is over. Between two turns. */
bool network_sleep(int64_t until_us);

/* Things that go wrong. Links are picked by chance among those that are open; false: there was none. */
bool network_reset(uint32_t node); /* node or NODE_ALL: RST; what was under way is lost */
bool network_close(uint32_t node,
                   uint32_t after);    /* the node closes after so many more bytes of replies */
bool network_half_open(uint32_t node); /* nothing gets through any more, and nobody is told */
void network_crash(
    uint32_t node,
    int64_t for_us); /* every link reset, prepared statements forgotten, refuses for so long */
void network_freeze(
    uint32_t node,
    int64_t for_us); /* reads, writes and accepts nothing; connects are taken by its kernel */
void network_refuse(uint32_t node, int64_t for_us); /* new connections only */
void network_blackhole(uint32_t node,
                       int64_t for_us); /* new connections are accepted and never answered */
void network_slow_reader(uint32_t node, int64_t for_us, uint32_t bytes_per_ms);
void network_no_sockets(int64_t for_us); /* connect fails at once, as without descriptors */
void network_heal(void); /* all of the above that lasts ends now; half-open links are reset */
/* The process stands still for so long while the world goes on; between: not now, in its wait, but after it, when the
   sockets have been read and before the time is taken. Only from an errand. */
void network_gap(int64_t for_us, bool between);

/* What the driver did. */
struct network_counts {
    uint64_t connects, sends, recvs, waits, wakes, blocked, resets;
};
extern struct network_counts network_counts;
uint32_t network_links(
    uint32_t node); /* sockets that the driver has and that are connected; node or NODE_ALL */

#endif
