/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/wheel.h"

#include <assert.h>
#include <stddef.h>

enum { MASK = WHEEL_BUCKETS - 1 };
_Static_assert((WHEEL_BUCKETS & MASK) == 0 && (WHEEL_TICK_US & (WHEEL_TICK_US - 1)) == 0,
               "powers of two");

static int64_t tick_of(int64_t time_us)
{
    return time_us < 0 ? 0 : time_us / WHEEL_TICK_US;
}

/* When a timer of this tick fires: not before the whole tick is over, so never before its deadline. */
static int64_t end_of(int64_t tick)
{
    return tick >= INT64_MAX / WHEEL_TICK_US ? INT64_MAX - 1 : (tick + 1) * WHEEL_TICK_US;
}

static void vacate(struct wheel *wheel, unsigned bucket)
{
    wheel->occupied[bucket / 64] &= ~(UINT64_C(1) << (bucket % 64));
}

void cqr_wheel_init(struct wheel *wheel, int64_t now_us)
{
    *wheel = (struct wheel){.tick = tick_of(now_us), .next_us = INT64_MAX};
}

void cqr_wheel_arm(struct wheel *wheel, struct timer *timer, int64_t deadline_us)
{
    if (timer->link != NULL)
        cqr_wheel_disarm(wheel, timer);
    int64_t tick = tick_of(deadline_us);
    unsigned bucket = (unsigned)(tick & MASK);
    struct timer *after = wheel->buckets[bucket];
    timer->deadline_us = deadline_us;
    timer->next = after;
    timer->link = &wheel->buckets[bucket];
    wheel->buckets[bucket] = timer;
    wheel->count++;
    if (after != NULL) {
        after->link = &timer->next;
        if (wheel->first_tick[bucket] <= tick)
            return; /* all that is said of this bucket is true already */
    }
    wheel->first_tick[bucket] = tick;
    wheel->occupied[bucket / 64] |= UINT64_C(1) << (bucket % 64);
    if (end_of(tick) < wheel->next_us)
        wheel->next_us = end_of(tick);
}

void cqr_wheel_disarm(struct wheel *wheel, struct timer *timer)
{
    if (timer->link == NULL)
        return;
    *timer->link = timer->next;
    if (timer->next != NULL)
        timer->next->link = timer->link;
    /* only what stood alone can leave an empty bucket */
    unsigned bucket = timer->next == NULL ? (unsigned)(tick_of(timer->deadline_us) & MASK) : 0;
    if (timer->next == NULL && wheel->buckets[bucket] == NULL) {
        vacate(wheel, bucket);
        wheel->next_is_early |= end_of(wheel->first_tick[bucket]) == wheel->next_us;
    }
    timer->link = NULL;
    timer->next = NULL;
    assert(wheel->count > 0);
    if (--wheel->count == 0)
        wheel->next_us = INT64_MAX;
}

/* Move what is due before now_tick from the bucket to the list that ends at *tail; returns the list's new end. */
static struct timer **expire_bucket(struct wheel *wheel, unsigned bucket, int64_t now_tick,
                                    struct timer **tail)
{
    int64_t first_tick = INT64_MAX;
    for (struct timer *timer = wheel->buckets[bucket], *next; timer != NULL; timer = next) {
        next = timer->next;
        int64_t tick = tick_of(timer->deadline_us);
        if (tick >= now_tick) {
            first_tick = tick < first_tick ? tick : first_tick;
            continue;
        }
        *timer->link = next;
        if (next != NULL)
            next->link = timer->link;
        timer->link = NULL;
        *tail = timer;
        tail = &timer->next;
        wheel->count--;
    }
    wheel->first_tick[bucket] = first_tick;
    if (wheel->buckets[bucket] == NULL)
        vacate(wheel, bucket);
    return tail;
}

/* One look at each occupied bucket, wherever the clock has jumped to; and a walk through those in which something can
   be due. The look starts where time has arrived last, so ticks come out in order. */
struct timer *cqr_wheel_expire(struct wheel *wheel, int64_t now_us)
{
    if (now_us < wheel->next_us)
        return NULL;
    int64_t now_tick = tick_of(now_us);
    struct timer *due = NULL, **tail = &due;
    int64_t first_tick = INT64_MAX;
    unsigned start = (unsigned)(wheel->tick & MASK);
    for (unsigned step = 0; step <= WHEEL_BUCKETS / 64; ++step) {
        unsigned word = (start / 64 + step) % (WHEEL_BUCKETS / 64);
        uint64_t bits = wheel->occupied[word];
        if (step == 0)
            bits &= UINT64_MAX << (start % 64);
        else if (step == WHEEL_BUCKETS / 64)
            bits &= ~(UINT64_MAX << (start % 64));
        for (; bits != 0; bits &= bits - 1) {
            unsigned bucket = word * 64 + (unsigned)__builtin_ctzll(bits);
            if (wheel->first_tick[bucket] < now_tick)
                tail = expire_bucket(wheel, bucket, now_tick, tail);
            if (wheel->first_tick[bucket] < first_tick)
                first_tick = wheel->first_tick[bucket];
        }
    }
    *tail = NULL;
    if (now_tick > wheel->tick)
        wheel->tick = now_tick;
    wheel->next_us = wheel->count == 0 ? INT64_MAX : end_of(first_tick);
    wheel->next_is_early = false;
    return due;
}

int64_t cqr_wheel_next(struct wheel *wheel)
{
    if (wheel->due != NULL)
        return wheel->due->deadline_us;
    if (!wheel->next_is_early || wheel->count == 0)
        return wheel->next_us;
    int64_t first_tick = INT64_MAX;
    for (unsigned word = 0; word < WHEEL_BUCKETS / 64; ++word) {
        for (uint64_t bits = wheel->occupied[word]; bits != 0; bits &= bits - 1) {
            int64_t tick = wheel->first_tick[word * 64 + (unsigned)__builtin_ctzll(bits)];
            first_tick = tick < first_tick ? tick : first_tick;
        }
    }
    wheel->next_us = end_of(first_tick);
    wheel->next_is_early = false;
    return wheel->next_us;
}

struct timer *cqr_wheel_pop(struct wheel *wheel, int64_t now_us)
{
    if (wheel->due == NULL) {
        struct timer **tail = &wheel->due;
        for (struct timer *timer = cqr_wheel_expire(wheel, now_us), *next; timer != NULL;
             timer = next) {
            next = timer->next;
            *tail = timer; /* linked as if in a bucket, so that disarm takes it out */
            timer->link = tail;
            timer->next = NULL;
            tail = &timer->next;
            wheel->count++;
        }
    }
    struct timer *timer = wheel->due;
    if (timer != NULL)
        cqr_wheel_disarm(wheel, timer);
    return timer;
}
