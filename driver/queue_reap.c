/* SPDX-License-Identifier: Apache-2.0 */

/* What becomes of a queue's requests: reaping on the application's thread, asleep, by a descriptor or neither; cancelling,
   abandoning and closing from any. */

#include "driver/queue.h"

#include "driver/fork.h"
#include "driver/runtime.h"
#include "driver/wake.h"

void cqr_queue_reaper_wake(struct cqlring_queue *queue)
{
    if (atomic_load_explicit(&queue->signal, memory_order_seq_cst) == 0 && atomic_exchange_explicit(&queue->signal, 1, memory_order_seq_cst) == 0) {
        cqr_futex_wake(&queue->signal, 1);
        cqr_count(&queue->lane->stats.wakes_waiter, 1);
    }
}

void cqr_queue_fd_wake(struct cqlring_queue *queue)
{
    if (atomic_load_explicit(&queue->fd_armed, memory_order_seq_cst) != 0 && atomic_exchange_explicit(&queue->fd_armed, 0, memory_order_seq_cst) != 0)
        cqr_wake_signal(atomic_load_explicit(&queue->fd, memory_order_acquire));
}

void cqr_queue_wake(struct cqlring_queue *queue)
{
    cqr_queue_reaper_wake(queue);
    cqr_queue_fd_wake(queue);
}

/* ---- reap ---- */

static uint32_t take(struct cqlring_queue *queue, cqlring_completion *completions, uint32_t capacity)
{
    uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint32_t count = atomic_load_explicit(&queue->tail, memory_order_acquire) - head;
    if (count > capacity)
        count = capacity;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct finished *finished = &queue->ring[(head + i) & queue->mask];
        completions[i] = finished->completion;
        bytes += finished->item->execution.body->size;
        cqlring_future_release(&finished->item->execution.future);
    }
    atomic_store_explicit(&queue->head, head + count, memory_order_seq_cst);
    atomic_fetch_sub_explicit(&queue->bytes, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&queue->used, count, memory_order_release);
    return count;
}

/* Abandoned: what is there belongs to nobody. On the reaping thread, as take. */
static uint32_t drop(struct cqlring_queue *queue, cqlring_status *status)
{
    cqlring_completion completions[16];
    uint32_t count;
    while ((count = take(queue, completions, 16)) > 0)
        cqlring_completions_release(completions, count);
    *status = CQLRING_CLOSED;
    return 0;
}

uint32_t cqlring_queue_reap(cqlring_queue *queue, cqlring_completion *completions, uint32_t capacity, uint32_t want, int64_t timeout_us, cqlring_status *status)
{
    cqlring_status ignored;
    if (status == NULL)
        status = &ignored;
    *status = CQLRING_INVALID;
    if (queue == NULL || completions == NULL || capacity == 0 || timeout_us < -1 || (timeout_us != 0 && cqr_on_library_thread()))
        return 0;
    *status = CQLRING_FORKED;
    if (queue->fork_generation != cqr_fork_generation())
        return 0;
    want = want > capacity ? capacity : want == 0 ? 1 : want;
    if (want > queue->capacity)
        want = queue->capacity;
    *status = CQLRING_OK;
    struct runtime_core *runtime = queue->session->cluster->runtime;
    int64_t deadline = timeout_us == 0 ? 0 : cqr_deadline_us(cqr_runtime_now_us(runtime), timeout_us);
    atomic_store_explicit(&queue->want, want, memory_order_seq_cst);
    while (queue_available(queue) < want && !queue_is_over(queue)) {
        if (timeout_us == 0 || (deadline != INT64_MAX && cqr_runtime_now_us(runtime) >= deadline)) {
            *status = CQLRING_TIMEOUT;
            break;
        }
        atomic_store_explicit(&queue->signal, 0, memory_order_seq_cst);
        if (queue_available(queue) >= want || queue_is_over(queue)) {
            atomic_store_explicit(&queue->signal, 1, memory_order_seq_cst);
            continue;
        }
        if (runtime->threads == CQLRING_THREADS_CALLER)
            cqr_runtime_turn_until(runtime, &queue->signal, 1, deadline);
        else
            cqr_futex_wait(&queue->signal, 0, deadline);
        atomic_store_explicit(&queue->signal, 1, memory_order_seq_cst);
    }
    if (queue_is_abandoned(queue))
        return drop(queue, status);
    uint32_t count = take(queue, completions, capacity);
    if (queue_is_over(queue) && queue_available(queue) == 0 && count < want)
        *status = CQLRING_CLOSED;
    else if (count >= want)
        *status = CQLRING_OK;
    int fd = atomic_load_explicit(&queue->fd, memory_order_acquire);
    if (fd >= 0 && count < capacity && !queue_is_over(queue)) {
        cqr_wake_clear(fd);
        atomic_store_explicit(&queue->fd_armed, 1, memory_order_seq_cst);
        if (queue_available(queue) > 0 || queue_is_over(queue))
            cqr_queue_fd_wake(queue);
    }
    return count;
}

int cqlring_queue_fd(cqlring_queue *queue)
{
    if (queue == NULL || queue->fork_generation != cqr_fork_generation())
        return -1;
    int fd = atomic_load_explicit(&queue->fd, memory_order_acquire);
    if (fd >= 0)
        return fd;
    int made = cqr_wake_open();
    if (made < 0)
        return -1;
    int none = -1;
    if (!atomic_compare_exchange_strong_explicit(&queue->fd, &none, made, memory_order_acq_rel, memory_order_acquire)) {
        cqr_wake_close(made);
        return none;
    }
    atomic_store_explicit(&queue->fd_armed, 1, memory_order_seq_cst);
    if (queue_available(queue) > 0 || queue_is_over(queue))
        cqr_queue_fd_wake(queue);
    return made;
}

uint64_t cqlring_queue_low_water(const cqlring_queue *queue)
{
    return queue == NULL ? 0 : atomic_load_explicit(&((struct cqlring_queue *)(uintptr_t)queue)->low_water, memory_order_relaxed);
}

/* ---- cancel, abandon, close ---- */

struct cancel_post {
    struct lane_message message;
    struct cqlring_queue *queue;
    uint64_t tag;
    bool all;
    atomic_uint found;
};

static uint32_t items_cancel(struct lane *lane, struct cqlring_queue *queue, uint64_t tag, bool all)
{
    uint32_t found = 0;
    for (struct queue_item *item = queue->first, *next; item != NULL; item = next) {
        next = item->next;
        struct execution *execution = &item->execution;
        if (!all && execution->body->tag != tag)
            continue;
        found++;
        if (execution->op != NULL)
            cqr_op_abort(lane, execution->op, CQLRING_CANCELLED, "cancelled by the application");
        else
            execution->cancelled = true;
    }
    lane->exec_due_us = 0;
    return found;
}

static void cancel_run(struct lane *lane, struct lane_message *message)
{
    struct cancel_post *post = (struct cancel_post *)(void *)message;
    items_cancel(lane, post->queue, post->tag, post->all);
    struct cqlring_queue *queue = post->queue;
    cqr_mem_free(post);
    cqr_queue_reaper_wake(queue);
    cqlring_queue_release(queue);
}

static cqlring_status cancel_post(struct cqlring_queue *queue, uint64_t tag, bool all)
{
    struct cancel_post *post = cqr_mem_zalloc(sizeof *post);
    if (post == NULL)
        return CQLRING_NO_MEMORY;
    post->message.run = cancel_run;
    post->queue = queue;
    post->tag = tag;
    post->all = all;
    atomic_fetch_add_explicit(&queue->references, 1, memory_order_relaxed);
    if (cqr_lane_post(queue->lane, &post->message))
        return CQLRING_OK;
    cqr_mem_free(post);
    cqlring_queue_release(queue);
    return CQLRING_CLOSED;
}

cqlring_status cqlring_queue_cancel(cqlring_queue *queue, uint64_t tag)
{
    if (queue == NULL)
        return CQLRING_INVALID;
    return queue->fork_generation != cqr_fork_generation() ? CQLRING_FORKED : cancel_post(queue, tag, false);
}

static void end(struct cqlring_queue *queue, unsigned state)
{
    if (queue == NULL || queue->fork_generation != cqr_fork_generation())
        return;
    unsigned was = atomic_load_explicit(&queue->state, memory_order_relaxed);
    while (was < state && !atomic_compare_exchange_weak_explicit(&queue->state, &was, state, memory_order_seq_cst, memory_order_relaxed)) {
    }
    if (was < state && state == QUEUE_ABANDONED)
        cancel_post(queue, 0, true);
    if (queue_is_over(queue))
        cqr_queue_wake(queue);
}

void cqlring_queue_abandon(cqlring_queue *queue)
{
    end(queue, QUEUE_ABANDONED);
}

void cqlring_queue_close(cqlring_queue *queue)
{
    end(queue, QUEUE_CLOSED);
}
