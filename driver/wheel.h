/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_WHEEL_H
#define CQR_WHEEL_H

/* A hashed timer wheel: deadlines of many ops with no object and no clock read per request. Belongs to one thread (the
   submitter). Coarse: a timer fires at its deadline or up to one tick later, never before. Timers further than one turn
   of the wheel stay in their bucket until their time has come.

   cqr_wheel_next is a load, or a walk over the occupied buckets when the first timer has been disarmed. It is exact
   about whether there is anything at all (idle sessions must not wake): with no timer it says INT64_MAX. A timer far
   away is not met once per turn of the wheel: a bucket remembers how early its first timer can be due. */

#include <stdbool.h>
#include <stdint.h>

struct timer {
    struct timer *next, **link; /* link NULL: not armed */
    int64_t deadline_us;
    uint8_t kind;        /* whose it is: the user's own number, the wheel does not look */
};

enum { WHEEL_BUCKETS = 1024, WHEEL_TICK_US = 4096 /* a power of two; 1024 buckets turn in 4.2 s */ };

struct wheel {
    struct timer *buckets[WHEEL_BUCKETS];
    int64_t first_tick[WHEEL_BUCKETS]; /* of an occupied bucket: no timer in it is due before the end of this tick */
    uint64_t occupied[WHEEL_BUCKETS / 64];
    int64_t tick;                      /* all ticks before this one have been handled */
    int64_t next_us;                   /* nothing is due before; INT64_MAX when empty */
    bool next_is_early;                /* the timer that next_us is about may be gone */
    uint32_t count;
    struct timer *due;                 /* taken out by pop, not yet handed over; still armed */
};

void cqr_wheel_init(struct wheel *wheel, int64_t now_us);
void cqr_wheel_arm(struct wheel *wheel, struct timer *timer, int64_t deadline_us); /* re-arms when armed */
void cqr_wheel_disarm(struct wheel *wheel, struct timer *timer);                   /* fine when not armed */
/* All timers due at now_us, taken out, as a list over next (link NULL), NULL when none. */
struct timer *cqr_wheel_expire(struct wheel *wheel, int64_t now_us);
/* One due timer, taken out; NULL when there is none left. Handlers may arm and disarm any timer between two calls, also one
   that is due but not yet popped. */
struct timer *cqr_wheel_pop(struct wheel *wheel, int64_t now_us);
/* Earliest time at which expire or pop may have something to do (a bucket's end); INT64_MAX when empty. */
int64_t cqr_wheel_next(struct wheel *wheel);

#endif
