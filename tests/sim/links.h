/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_LINKS_H
#define SIM_LINKS_H

/* What the files of the network share: the links, and the state of it all. links.c moves bytes and time, sockets.c is what
   the driver calls, network.c what goes wrong. */

#include "network.h"
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
    int64_t last_us; /* nothing arrives before this */
    bool ended;      /* FIN behind the last run, at end_us */
    int64_t end_us;
};

enum link_state { LINK_FREE, LINK_CONNECTING, LINK_OPEN };

struct link {
    enum link_state state;
    uint32_t number, node;
    uint16_t source_port;   /* to the shard-aware port; 0: the ordinary one */
    int64_t connect_us;     /* when the connect is answered; INT64_MAX never */
    int error;              /* pending socket error: ECONNREFUSED, ECONNRESET */
    struct node_conn *conn; /* the node's end; NULL: gone, or never there */
    struct pipe up, down;
    bool reset;        /* for the driver */
    int64_t reset_us;  /* a reset is on its way; INT64_MAX none */
    bool shut, closed; /* by the driver */
    bool half_open;
    int64_t close_after; /* bytes of replies until the node closes; −1 never */
    int64_t read_us;     /* a slow reader does not look before */
    struct wire *wire;
    bool watched;
    uint32_t wanted;
    void *context;
};

struct place {
    int64_t frozen_us, refuse_us, blackhole_us, slow_us;
    uint32_t slow_rate;
};

struct network_state {
    struct node_cluster *nodes;
    struct network_shape shape;
    struct chance chance;
    struct link links[LINKS_MAX];
    uint32_t link_top, link_number;
    struct place places[NODES_MAX];
    int64_t no_sockets_us;
    bool woken, in_wait, foreign;
    int64_t armed_us; /* by the driver, for the foreign loop; -1 not */
    int64_t gap_us; /* to come between the two turns */
    uint32_t wakes_since_wait;
    uint64_t spin_activity;
    uint32_t spins;
};
extern struct network_state sim;

int64_t links_flight_us(const struct link *link); /* one way, from now */
void links_put(struct link *link, struct pipe *pipe, const uint8_t *data,
               uint32_t size); /* runs, cut anywhere */
void links_drop(struct pipe *pipe);
void links_reset(struct link *link);
void links_node_closes(struct link *link);
void links_node_writes(struct link *link);
void links_free(struct link *link);
void links_run(void);                   /* all that is due */
int64_t links_next(void);               /* when something is due next; INT64_MAX never */
void links_stand_still(int64_t for_us); /* the world goes on, the process does not */

#endif
