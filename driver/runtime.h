/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RUNTIME_H
#define CQR_RUNTIME_H

/* Threads and lanes. The memory of a runtime is counted: clusters, futures and queues hold it, so a handle that outlives
   cqlring_runtime_destroy is still valid memory; the threads end with destroy (or at exit).

   Caller mode: whoever waits runs the turns. One at a time leads (a try-lock); the others sleep and are woken one by one
   when the leader leaves (decision 15). */

#include <pthread.h>

#include "driver/lane.h"
#include "driver/log.h"

struct cqlring_cluster;

struct runtime_core {
    uint32_t fork_generation;
    cqlring_threads threads;
    uint32_t lane_count;
    uint32_t inflight_max, connections_max;
    int32_t cpu;
    struct log log;
    struct net *net;
    struct poller *(*poller_create)(void);  /* NULL: as the mode says */
    bool has_allocator;
    atomic_uint state;                      /* 0 open, 1 destroying, 2 ended */
    bool is_default;
    atomic_uint next_lane;
    _Atomic(uint64_t) pages_ahead, pages_dropped; /* any thread's */

    pthread_mutex_t lock;                   /* control plane only: the list of clusters */
    struct cqlring_cluster *clusters;
    uint32_t cluster_count;                 /* opened so far */

    /* caller mode */
    atomic_uint leader;                     /* 1: somebody runs the turns */
    atomic_uint sleepers;                   /* waiting threads that do not lead */
    atomic_uint baton;                      /* bumped when the leader leaves; sleepers sleep on it */
    atomic_bool watched;                    /* cqlring_runtime_fd was called: kept readable while there is something to do */

    struct lane *lanes;
    _Alignas(64) atomic_uint references;    /* written while everything else is only read */
};

static inline struct runtime_core *cqr_runtime_core(const cqlring_runtime *runtime)
{
    return (struct runtime_core *)(uintptr_t)runtime;
}

struct runtime_core *cqr_runtime_retain(struct runtime_core *core);
void cqr_runtime_release(struct runtime_core *core);      /* frees the memory with the last one */
/* The process default, made on first use; one reference for the caller. */
cqlring_status cqr_runtime_default(struct runtime_core **core, cqlring_error *error);
/* Caller mode: run turns, or wait for the leader, until *word has one of done_bits or the deadline; true: it has. */
bool cqr_runtime_turn_until(struct runtime_core *core, atomic_uint *word, unsigned done_bits, int64_t deadline_us);
/* Tests and the simulator: caller mode on sockets, clock and readiness of theirs. The simulator calls the lane's turns. */
cqlring_status cqr_runtime_create_on(const cqlring_runtime_options *options, struct net *net, struct poller *(*poller_create)(void),
                                     cqlring_runtime **runtime, cqlring_error *error);
/* For a look at its numbers: a reference; runtime NULL: the process default, NULL when there is none, or it is the parent's. */
struct runtime_core *cqr_runtime_observe(const cqlring_runtime *runtime);
int64_t cqr_now_us(void);   /* CLOCK_MONOTONIC */
int64_t cqr_runtime_now_us(const struct runtime_core *core); /* the same, of the runtime's own clock */
int64_t cqr_deadline_us(int64_t now_us, int64_t timeout_us); /* timeout −1: INT64_MAX; never overflows */

#endif
