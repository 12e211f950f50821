/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_QUEUE_H
#define CQR_QUEUE_H

/* A queue's parts, for queue.c and queue_reap.c.

   Completions come through a ring whose one producer is the submitter of the queue's lane and whose one consumer is the reaping
   thread. Two threads work on it at once, so what each of them writes per request stands in cache lines of its own, requests are
   handed over several at a time, and the memory of a request is given back by the reaper: it came from the application's side,
   and malloc would lock if it were freed on ours. */

#include "driver/execution.h"
#include "driver/session.h"

enum { QUEUE_OPEN, QUEUE_CLOSED, QUEUE_ABANDONED };

/* A request of the queue. Its future is nobody's: of the two references, the completer's is dropped by the submitter, the
   application's by the reaper. */
struct queue_item {
    struct execution execution;     /* first */
    struct queue_item *next, *prev;
    struct cqlring_queue *queue;
};

struct finished {
    cqlring_completion completion;
    struct queue_item *item;        /* its last memory; what it is charged with until it is reaped is the body's size */
};

struct cqlring_queue {
    /* read by all, seldom written */
    uint32_t fork_generation;
    uint32_t capacity;
    uint64_t bytes_max;
    struct cqlring_session *session; /* a reference */
    struct lane *lane;
    struct finished *ring;
    uint32_t mask;
    atomic_uint state;
    atomic_uint fd_armed;
    _Atomic(int) fd;                /* -1 none */

    /* who submits */
    _Alignas(64) atomic_uint used;  /* accepted and not yet reaped */
    _Atomic(uint64_t) bytes;

    /* the reaper */
    _Alignas(64) atomic_uint head;
    atomic_uint signal;             /* 0: it waits for `want` */
    atomic_uint want;

    /* the submitter; who submits adds to the first two, once for several requests */
    _Alignas(64) atomic_uint under_way; /* accepted and not yet finished */
    atomic_uint references;
    atomic_uint tail;
    _Atomic(uint64_t) low_water;
    struct queue_item *first, *last; /* accepted, not finished, in order */
    uint64_t next_row;

    struct cqlring_queue *next, **link; /* in the session's list */
};

static inline uint32_t queue_available(struct cqlring_queue *queue)
{
    return atomic_load_explicit(&queue->tail, memory_order_seq_cst) - atomic_load_explicit(&queue->head, memory_order_seq_cst);
}

static inline bool queue_is_abandoned(struct cqlring_queue *queue)
{
    return atomic_load_explicit(&queue->state, memory_order_acquire) == QUEUE_ABANDONED;
}

/* Closed itself, or with its session. */
static inline bool queue_is_closed(struct cqlring_queue *queue)
{
    return atomic_load_explicit(&queue->state, memory_order_seq_cst) != QUEUE_OPEN ||
           atomic_load_explicit(&queue->session->state, memory_order_seq_cst) == HANDLE_CLOSED;
}

static inline bool queue_is_over(struct cqlring_queue *queue)
{
    return atomic_load_explicit(&queue->state, memory_order_seq_cst) == QUEUE_ABANDONED ||
           (queue_is_closed(queue) && atomic_load_explicit(&queue->under_way, memory_order_seq_cst) == 0);
}

/* Any thread: whoever waits for completions, asleep, or by the descriptor; and both. */
void cqr_queue_reaper_wake(struct cqlring_queue *queue);
void cqr_queue_fd_wake(struct cqlring_queue *queue);
void cqr_queue_wake(struct cqlring_queue *queue);

#endif
