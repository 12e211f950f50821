/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_STATS_H
#define CQR_STATS_H

/* Counters: one writer each (the thread that the struct belongs to), read relaxed by anybody. An increment is a plain load
   and store, not an atomic read-modify-write. */

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic(uint64_t) counter;

static inline void cqr_count(counter *total, uint64_t n)
{
    atomic_store_explicit(total, atomic_load_explicit(total, memory_order_relaxed) + n, memory_order_relaxed);
}

struct reactor_stats {
    counter recvs, recv_bytes, replies, copied_up_bytes, wakes_submitter, turns, log_dropped;
};

struct lane_stats {
    counter issued, settled, failed, retries, reprepares, timeouts;
    counter sends, send_bytes, send_blocked, copied_down_bytes, wakes_reactor, wakes_waiter, turns, sleeps;
    counter connections_opened, connections_lost, orphans, late_replies;
    counter shard_fallbacks, tablets_learned;
};

#endif
