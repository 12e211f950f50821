/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_PARK_H
#define CQR_PARK_H

/* One sleeper, many wakers, and no system call unless the sleeper really sleeps. Also the only place with a futex and
   with signal masks.

   Sleeper: cqr_park_prepare (the flag goes up, seq_cst), look once more at everything that can bring work, then
   cqr_park_sleep or cqr_park_cancel. Waker: publish the work, then cqr_park_wake, which takes the same flag down with a
   seq_cst exchange and wakes only if it was up. With a poller the sleeper sleeps in the poller's wait instead, and the
   waker calls the poller's wake (inline and caller mode, and the reactor). */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/poller.h"

struct park {
    _Alignas(128) atomic_uint state; /* 0 awake, 1 sleeping */
    struct poller *poller;           /* NULL: sleeps on the word */
};

void cqr_park_init(struct park *park, struct poller *poller);
void cqr_park_prepare(struct park *park);
void cqr_park_cancel(struct park *park);
/* deadline_us absolute on CLOCK_MONOTONIC, -1 for ever. Returns when woken, at the deadline, or spuriously; awake afterwards. Only without a poller. */
void cqr_park_sleep(struct park *park, int64_t deadline_us);
/* Any thread. True when it cost a system call. */
bool cqr_park_wake(struct park *park);

/* Futex on a future's word. Waits while *word == expected until the deadline; false at the deadline. */
bool cqr_futex_wait(atomic_uint *word, unsigned expected, int64_t deadline_us);
void cqr_futex_wake(atomic_uint *word, int count); /* INT_MAX: all */

/* A thread that blocks all signals and carries a name; 0 or errno. cpu -1: wherever. */
int cqr_thread_start(pthread_t *thread, const char *name, int cpu, void *(*run)(void *context), void *context);

#endif
