/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_WAKE_H
#define CQR_WAKE_H

/* Two small descriptors that become readable: one by a call from any thread (eventfd), one by the clock (timerfd). For
   poller_epoll.c, and for queues whose readiness a foreign event loop watches. Non-blocking, CLOEXEC, and in the table
   that a forked child closes. */

#include <stdint.h>

int cqr_wake_open(void);         /* fd or -errno */
void cqr_wake_signal(int fd);    /* any thread: readable until cleared; one system call */
void cqr_wake_clear(int fd);     /* not readable any more, however often it was signalled */

int cqr_wake_timer_open(void);   /* fd or -errno */
/* Readable at deadline_us, absolute on CLOCK_MONOTONIC, at once when that has passed; -1: never. Not readable before. */
void cqr_wake_timer_set(int fd, int64_t deadline_us);

void cqr_wake_close(int fd);     /* either kind; a negative fd is fine */

#endif
