/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SHARDS_H
#define CQR_SHARDS_H

/* ScyllaDB's shards: one connection to each shard of a node. The link's first connection says how many there are (SUPPORTED);
   the set of the others is filled in the background, a few at a time. Where there is a shard-aware port, the local port of a
   connection chooses its shard; where there is none, or it does not do what it says (NAT), connections are opened on the
   ordinary port until each shard has been hit, and what is too many is closed.

   link->conn is one of them, always up while the link is: when it is lost, another one takes its place. A node that is not
   sharded has no set, and costs nothing. Submitter. */

#include <stdbool.h>
#include <stdint.h>

#include "driver/conn.h"

struct lane;
struct pool_link;

enum {
    SHARD_CONNECTING_MAX = 4,  /* of one node at a time */
    SHARD_CONNECTING_POOL_MAX = 16,
    SHARD_SPARE_MAX = 64       /* connections kept while shards are still looked for by trial */
};

struct shard_set {
    struct pool_link *link;
    uint16_t count;            /* shards of the node, at least 2 */
    uint8_t ignore_msb;
    uint16_t port;             /* the shard-aware port that fits (TLS or plain); 0: none */
    uint16_t up_count;         /* of conns */
    uint16_t turn;             /* for requests without a shard */
    struct conn **conns;       /* by shard; NULL: not up */
    struct conn *connecting[SHARD_CONNECTING_MAX];
    uint32_t connecting_count;
    struct conn *spares[SHARD_SPARE_MAX]; /* up, to shards that have one: kept so that the server does not choose the same ones again */
    uint32_t spare_count;
    uint32_t misses;           /* trials that hit a shard which had a connection, since one did not */
    uint32_t attempts;         /* connects that failed in a row */
    int64_t no_local_port_until_us;
    bool said_full;
    struct timer timer;        /* TIMER_SHARDS: go on filling */
};

/* The i-th local port to try for a shard: those with port % shards == shard in the range, from `start` on; 0 when there is none
   further. */
uint16_t cqr_local_port(const struct local_ports *ports, uint32_t i);

/* A link's first connection has come up: if its node is sharded, begin the set. */
void cqr_shards_begin(struct lane *lane, struct pool_link *link);
/* Another connection of the link has come up, or is down. */
void cqr_shards_up(struct lane *lane, struct pool_link *link, struct conn *conn);
void cqr_shards_down(struct lane *lane, struct pool_link *link, struct conn *conn);
/* link->conn is down. True: another one has taken its place. False: none is left, and the set is gone. */
bool cqr_shards_replace(struct lane *lane, struct pool_link *link, struct conn *conn);
/* Every connection of the set but link->conn is given up (drain: once what is under way on it is answered), and the set freed. */
void cqr_shards_end(struct lane *lane, struct pool_link *link, bool drain, const char *why);
void cqr_shards_timer(struct lane *lane, struct timer *timer);

/* The connection for a request of this shard (−1: any): the shard's own unless it is not up, suspect, full or busy, else the least
   busy one. NULL: none takes it now. */
struct conn *cqr_shards_pick(const struct lane *lane, struct shard_set *set, int32_t shard);

#endif
