/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_STATS_H
#define CQR_STATS_H

/* Counters: one writer each (the thread that the struct belongs to), read relaxed by anybody. An increment is a plain load
   and store, not an atomic read-modify-write. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic(uint64_t) counter;

static inline void cqr_count(counter *total, uint64_t n)
{
    atomic_store_explicit(total, atomic_load_explicit(total, memory_order_relaxed) + n, memory_order_relaxed);
}

struct reactor_stats {
    counter recvs, recv_bytes, replies, copied_up_bytes, wakes_submitter, turns, log_dropped;
    counter tls_handshakes, tls_resumed;
};

struct lane_stats {
    counter issued, settled, failed, retries, reprepares, timeouts, speculative, speculative_won, plans_ignored;
    counter sends, send_bytes, send_blocked, copied_down_bytes, wakes_reactor, wakes_waiter, turns, sleeps;
    counter connections_opened, connections_lost, orphans, late_replies;
    counter failed_by[16];            /* settled requests that failed, by status */
    counter shard_fallbacks, tablets_learned, prepared_ahead;
    counter batches, batched_rows, batches_split, partition_waits;
};

/* CPU time of a thread of ours: its clock while it lives, the figure it ended with afterwards. */
struct thread_cpu {
    atomic_bool runs;
    atomic_int clock;
    counter ended_us;
};
void cqr_thread_cpu_begin(struct thread_cpu *cpu);      /* on that thread */
void cqr_thread_cpu_end(struct thread_cpu *cpu);
uint64_t cqr_thread_cpu_us(const struct thread_cpu *cpu); /* any */

#endif
