/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_ADAPT_H
#define CQR_ADAPT_H

/* How many rows of jobs are worth having under way on one connection, found out by trying: a pure function of the answers and of
   the time it is given.

   By Little's law the throughput of W requests under way is W / their time in flight. So when a somewhat larger W only makes each
   answer take longer by the same factor, it buys nothing (elasticity 0), and when it leaves them as fast, it buys its whole share
   (elasticity 1). Small steps up are kept while the elasticity is above ADAPT_WORTH, small steps down while it is below
   ADAPT_WORTHLESS; in between nothing moves. A step is judged once the answers tell it from chance, or there have been enough of
   them. What a server sheds (OVERLOADED, a rate limit) takes a part off at once and is not tried again for a while.

   W is what really was under way, not the limit: where rows have to go to one node and wait for it, the others' limits are not
   reached, and a step of theirs moves little. Answers count only while the limit is what limits: a source that is slow says
   nothing about the server. Those that were under way together waited for one another, so as many of them as may be under way
   are one observation (of a batch's mean), or chance would look like knowledge. */

#include <stdbool.h>
#include <stdint.h>

enum { ADAPT_FLOOR = 16, ADAPT_START = 32, ADAPT_CAP = 1024 };

enum adapt_phase {
    ADAPT_GROW, /* doubling, from the start */
    ADAPT_BASE, /* measuring at `base` */
    ADAPT_UP,   /* a step above it */
    ADAPT_DOWN  /* a step below it */
};

struct adapt_sample {
    double sum;                   /* of times in flight, µs */
    double means, squares;        /* of batches' mean times, for how much they differ */
    uint64_t levels;              /* of requests under way, by answer */
    uint32_t count, batches;
    uint32_t outliers;            /* in batches far slower than `reference`: a pause of somebody's, not counted */
};

struct adapt {
    uint32_t limit;           /* what may be under way now */
    uint32_t floor, cap, base;
    uint8_t phase;
    bool reached;             /* the limit was what limited, since the last judgement */
    bool down_next;           /* the direction of the next step */
    uint32_t turn_count, turn_level; /* the answers of this turn, and what was under way before it */
    int64_t turn_us;
    uint64_t turn_sum;
    uint32_t batch_count;     /* of the turns before, not yet an observation */
    uint64_t batch_sum, batch_levels;
    uint32_t skip;            /* answers still to come that belong to the limit before */
    double stride;            /* of the next step */
    struct adapt_sample now, at_base;
    double reference;         /* mean time in flight lately, µs */
    int64_t hold_us, hold_until_us;
    int64_t shed_us, shed_until_us;
};

void cqr_adapt_init(struct adapt *adapt, uint32_t floor, uint32_t start, uint32_t cap);
/* May another one be issued? Says no at the limit, and remembers that it was reached. */
static inline bool cqr_adapt_room(struct adapt *adapt, uint32_t in_flight)
{
    bool room = in_flight < adapt->limit;
    adapt->reached = adapt->reached || !room;
    return room;
}
/* A turn begins to bring answers: what the one before brought is looked at. level: how many have been under way. */
void cqr_adapt_turn(struct adapt *adapt, uint32_t level, int64_t now_us);
/* A good answer that took so long. */
static inline void cqr_adapt_answer(struct adapt *adapt, uint32_t in_flight_us, uint32_t level, int64_t now_us)
{
    if (now_us != adapt->turn_us)
        cqr_adapt_turn(adapt, level, now_us);
    adapt->turn_sum += in_flight_us;
    adapt->turn_count++;
}
/* The server refuses to take so much. */
void cqr_adapt_shed(struct adapt *adapt, int64_t now_us);

#endif
