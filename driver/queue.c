/* SPDX-License-Identifier: Apache-2.0 */

/* The queue: applications submit from any thread and reap on one (queue_reap.c); no library thread enters the application. Here
   are its beginning and end, submitting, and the submitter's part. */

#include "driver/queue.h"

#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/wake.h"

enum { CAPACITY = 1024, CAPACITY_MAX = 32768 };
static const uint64_t QUEUE_BYTES_MAX = 16 << 20;

static void queue_free(struct cqlring_queue *queue)
{
    pthread_mutex_t *lock = &queue->session->cluster->lock;
    pthread_mutex_lock(lock);
    *queue->link = queue->next;
    if (queue->next != NULL)
        queue->next->link = queue->link;
    pthread_mutex_unlock(lock);
    uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    for (; head != atomic_load_explicit(&queue->tail, memory_order_acquire); head++) {
        struct finished *finished = &queue->ring[head & queue->mask];
        cqlring_completions_release(&finished->completion, 1);
        cqlring_future_release(&finished->item->execution.future);
    }
    int fd = atomic_load_explicit(&queue->fd, memory_order_acquire);
    if (fd >= 0)
        cqr_wake_close(fd);
    struct runtime_core *runtime = queue->session->cluster->runtime;
    cqr_runtime_retain(runtime);
    cqr_session_release(queue->session);
    cqr_mem_free(queue->ring);
    cqr_mem_free(queue);
    cqr_runtime_release(runtime);
}

void cqlring_queue_release(cqlring_queue *queue)
{
    if (queue == NULL || queue->fork_generation != cqr_fork_generation())
        return;
    if (atomic_fetch_sub_explicit(&queue->references, 1, memory_order_acq_rel) == 1)
        queue_free(queue);
}

cqlring_status cqlring_queue_open(const cqlring_queue_options *options, cqlring_queue **queue, cqlring_error *error)
{
    if (options == NULL || queue == NULL || options->struct_size < sizeof *options || options->session == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_queue_open: options with struct_size (%zu) and a session, and queue, must be given", sizeof *options);
    if (options->capacity > CAPACITY_MAX)
        return cqr_error(error, CQLRING_INVALID, "queue options: capacity %u (1 to %d)", options->capacity, CAPACITY_MAX);
    struct cqlring_session *session = options->session;
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_queue_open: the session belongs to the parent process; open one in the child");
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_queue_open: the session is closed");
    struct cqlring_queue *made = cqr_mem_aligned(64, sizeof *made);
    uint32_t capacity = options->capacity != 0 ? options->capacity : CAPACITY, size = 1;
    while (size < capacity)
        size *= 2;
    struct finished *ring = cqr_mem_array(size, sizeof *ring);
    if (made == NULL || ring == NULL) {
        cqr_mem_free(made);
        cqr_mem_free(ring);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_queue_open: out of memory for %u completions", capacity);
    }
    made->ring = ring;
    made->mask = size - 1;
    made->capacity = capacity;
    made->bytes_max = options->bytes_max != 0 ? options->bytes_max : QUEUE_BYTES_MAX;
    made->fork_generation = cqr_fork_generation();
    made->session = cqr_session_retain(session);
    struct runtime_core *runtime = session->cluster->runtime;
    made->lane = &runtime->lanes[atomic_fetch_add_explicit(&session->next_lane, 1, memory_order_relaxed) % runtime->lane_count];
    atomic_init(&made->references, 1);
    atomic_init(&made->signal, 1);
    atomic_init(&made->fd, -1);
    pthread_mutex_lock(&session->cluster->lock);
    made->next = session->queues;
    made->link = &session->queues;
    if (made->next != NULL)
        made->next->link = &made->next;
    session->queues = made;
    pthread_mutex_unlock(&session->cluster->lock);
    *queue = made;
    return CQLRING_OK;
}

/* ---- submit ---- */

uint32_t cqlring_queue_room(const cqlring_queue *handle)
{
    struct cqlring_queue *queue = (struct cqlring_queue *)(uintptr_t)handle;
    if (queue == NULL)
        return 0;
    unsigned used = atomic_load_explicit(&queue->used, memory_order_relaxed);
    return used < queue->capacity && atomic_load_explicit(&queue->bytes, memory_order_relaxed) < queue->bytes_max ? queue->capacity - used : 0;
}

static void uncharge(struct cqlring_queue *queue, uint32_t size)
{
    atomic_fetch_sub_explicit(&queue->bytes, size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&queue->used, 1, memory_order_release);
}

/* Acquire: what the reaper has read of the slot that becomes free is behind it (its release is in `take`). */
static bool charge(struct cqlring_queue *queue, uint32_t size)
{
    unsigned used = atomic_fetch_add_explicit(&queue->used, 1, memory_order_acquire);
    uint64_t bytes = atomic_fetch_add_explicit(&queue->bytes, size, memory_order_relaxed);
    if (used < queue->capacity && (used == 0 || bytes + size <= queue->bytes_max))
        return true;
    uncharge(queue, size);
    return false;
}

void cqr_queues_wake(struct cqlring_session *session)
{
    for (struct cqlring_queue *queue = session->queues; queue != NULL; queue = queue->next)
        cqr_queue_wake(queue);
}

static void queue_finished(struct lane *lane, struct execution *execution, struct op *op)
{
    struct queue_item *item = (struct queue_item *)(void *)execution;
    struct cqlring_queue *queue = item->queue;
    (void)lane;
    if (item->prev != NULL)
        item->prev->next = item->next;
    else
        queue->first = item->next;
    if (item->next != NULL)
        item->next->prev = item->prev;
    else
        queue->last = item->prev;
    atomic_store_explicit(&queue->low_water, queue->first != NULL ? queue->first->execution.row : queue->next_row, memory_order_relaxed);
    if (queue_is_abandoned(queue)) {
        uncharge(queue, execution->body->size);
        cqlring_future_release(&execution->future);
    } else {
        uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
        struct finished *finished = &queue->ring[tail & queue->mask];
        cqr_completion_fill(&finished->completion, op);
        finished->completion.row = execution->row;
        finished->completion.tag = execution->body->tag;
        finished->item = item;
        if (op->result != NULL && op->result->paging_state.data != NULL)
            cqr_result_paged(op->result, execution);
        op->result = NULL;
        op->failure = NULL;
        atomic_store_explicit(&queue->tail, tail + 1, memory_order_seq_cst);
        if (queue_available(queue) >= atomic_load_explicit(&queue->want, memory_order_seq_cst))
            cqr_queue_reaper_wake(queue);
        cqr_queue_fd_wake(queue);
    }
    if (atomic_fetch_sub_explicit(&queue->under_way, 1, memory_order_seq_cst) == 1 && queue_is_closed(queue))
        cqr_queue_wake(queue);
    cqlring_queue_release(queue);
}

/* In order of arrival at the submitter: that is the queue's order of acceptance. */
static void item_run(struct lane *lane, struct lane_message *message)
{
    struct queue_item *item = (struct queue_item *)(void *)message;
    struct cqlring_queue *queue = item->queue;
    item->execution.row = queue->next_row++;
    item->prev = queue->last;
    if (queue->last != NULL)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
    cqr_session_op_begin(lane, queue->session);
    if (queue_is_abandoned(queue))
        item->execution.cancelled = true;
    cqr_execution_start(lane, &item->execution);
}

/* Requests on their way to the submitter, in the order in which they were accepted. */
enum { TOGETHER_MAX = 32 };
struct together {
    struct queue_item *newest, *oldest;
    uint32_t count;
    int64_t accepted_us;            /* of all of them */
};

/* Charged already; takes the body. */
static cqlring_status item_make(struct cqlring_queue *queue, struct request_body *body, struct together *together, const char *call, cqlring_error *error)
{
    uint32_t size = body->size;
    struct queue_item *item = cqr_mem_zalloc(sizeof *item);
    if (item == NULL) {
        cqr_body_release(body);
        uncharge(queue, size);
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    }
    struct execution *execution = &item->execution;
    cqr_execution_init(execution, queue->session->cluster->runtime, body, FUTURE_EXECUTE);
    if (together->count++ == 0) {
        together->oldest = item;
        together->accepted_us = queue->lane->net->call->now_us(queue->lane->net);
    } else {
        execution->message.item.next = &together->newest->execution.message.item;
    }
    together->newest = item;
    item->queue = queue;
    execution->message.run = item_run;
    execution->finished = queue_finished;
    execution->lane = queue->lane;
    execution->accepted_us = together->accepted_us;
    return CQLRING_OK;
}

/* All or none. */
static cqlring_status items_post(struct cqlring_queue *queue, const struct together *together, const char *call, cqlring_error *error)
{
    uint32_t count = together->count;
    if (count == 0)
        return CQLRING_OK;
    struct queue_item *newest = together->newest, *oldest = together->oldest;
    atomic_fetch_add_explicit(&queue->references, count, memory_order_relaxed);
    /* seq_cst, as the close's store: either it is seen here, or a reaper that has seen it sees these under way too */
    atomic_fetch_add_explicit(&queue->under_way, count, memory_order_seq_cst);
    if (!queue_is_closed(queue) && cqr_lane_post_all(queue->lane, &newest->execution.message, &oldest->execution.message))
        return CQLRING_OK;
    atomic_fetch_sub_explicit(&queue->under_way, count, memory_order_seq_cst);
    if (queue_is_over(queue))
        cqr_queue_wake(queue);
    oldest->execution.message.item.next = NULL; /* what the inbox held before it was closed may stand there */
    for (struct inbox_item *item = &newest->execution.message.item, *older; item != NULL; item = older) {
        struct execution *execution = (struct execution *)(void *)item;
        older = item->next;
        uncharge(queue, execution->body->size);
        cqr_execution_abandon(execution);
        cqlring_queue_release(queue);
    }
    return cqr_error(error, CQLRING_CLOSED, "%s: the queue or its session is closed", call);
}

static cqlring_status submit_check(struct cqlring_queue *queue, const cqlring_request *request, const char *call, cqlring_error *error)
{
    if (queue->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "%s: the queue belongs to the parent process; open one in the child", call);
    if (atomic_load_explicit(&queue->state, memory_order_acquire) != QUEUE_OPEN ||
        atomic_load_explicit(&queue->session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "%s: the queue or its session is closed", call);
    if (request->session != NULL && request->session != queue->session)
        return cqr_error(error, CQLRING_INVALID, "%s: a request of another session than the queue's", call);
    if (request->prepared != NULL && request->prepared->cluster != queue->session->cluster)
        return cqr_error(error, CQLRING_INVALID, "%s: the statement was prepared on another cluster", call);
    return CQLRING_OK;
}

static cqlring_status one_submit(struct cqlring_queue *queue, const cqlring_request *given, struct together *together, bool *full, cqlring_error *error)
{
    cqlring_status status = submit_check(queue, given, "cqlring_queue_submit", error);
    if (status != CQLRING_OK)
        return status;
    *full = cqlring_queue_room(queue) == 0;
    if (*full)
        return CQLRING_OK;
    cqlring_request request = *given;
    request.session = queue->session;
    struct request_body *body = NULL;
    status = cqr_body_make(&request, &body, error);
    if (status != CQLRING_OK)
        return status;
    *full = !charge(queue, body->size);
    if (*full) {
        cqr_body_release(body);
        return CQLRING_OK;
    }
    return item_make(queue, body, together, "cqlring_queue_submit", error);
}

cqlring_status cqlring_queue_submit(cqlring_queue *queue, const cqlring_request *requests, uint32_t count, uint32_t *accepted, cqlring_error *error)
{
    if (queue == NULL || accepted == NULL || (count > 0 && requests == NULL))
        return cqr_error(error, CQLRING_INVALID, "cqlring_queue_submit: queue, requests and accepted must be given");
    *accepted = 0;
    cqlring_status status = CQLRING_OK;
    bool full = false;
    for (uint32_t i = 0; i < count && !full && status == CQLRING_OK;) {
        struct together together = {.count = 0};
        while (i < count && together.count < TOGETHER_MAX && !full && status == CQLRING_OK)
            status = one_submit(queue, &requests[i++], &together, &full, error);
        uint32_t made = together.count;
        cqlring_status posted = items_post(queue, &together, "cqlring_queue_submit", error);
        if (posted == CQLRING_OK)
            *accepted += made;
        else
            status = posted; /* the first of them is the first that was not taken */
    }
    return status;
}

/* Becomes the memory of the request's values, so that they are encoded in the application and copied once, into a send block. */
struct reservation {
    uint32_t size;
    _Alignas(16) uint8_t data[];
};

cqlring_status cqlring_queue_reserve(cqlring_queue *queue, uint32_t size, uint8_t **at, cqlring_error *error)
{
    static const cqlring_request none = {.session = NULL};
    if (queue == NULL || at == NULL || size < 2)
        return cqr_error(error, CQLRING_INVALID, "cqlring_queue_reserve: queue, at, and room for at least [short n] (2 bytes)");
    cqlring_status status = submit_check(queue, &none, "cqlring_queue_reserve", error);
    if (status != CQLRING_OK)
        return status;
    uint32_t limit = queue->session->cluster->request_size_max;
    if (size > limit)
        return cqr_error(error, CQLRING_TOO_LARGE, "cqlring_queue_reserve: %u bytes, request_size_max is %u", size, limit);
    if (!charge(queue, size))
        return cqr_error(error, CQLRING_FULL, "cqlring_queue_reserve: %u bytes more do not fit the queue (%u requests, %llu bytes): reap", size, queue->capacity,
                         (unsigned long long)queue->bytes_max);
    struct reservation *reservation = cqr_mem_alloc(sizeof *reservation + size);
    if (reservation == NULL) {
        uncharge(queue, size);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_queue_reserve: out of memory for %u bytes", size);
    }
    reservation->size = size;
    *at = reservation->data;
    return CQLRING_OK;
}

cqlring_status cqlring_queue_commit(cqlring_queue *queue, uint8_t *at, const cqlring_request *request, uint32_t size, cqlring_error *error)
{
    if (queue == NULL || at == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_queue_commit: queue and at must be given");
    if (queue->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_queue_commit: the queue belongs to the parent process; open one in the child");
    struct reservation *reservation = (struct reservation *)(void *)(at - offsetof(struct reservation, data));
    uint32_t reserved = reservation->size;
    cqlring_status status = CQLRING_OK;
    struct request_body *body = NULL;
    if (size > 0) {
        if (request == NULL || size > reserved)
            status = cqr_error(error, CQLRING_INVALID, "cqlring_queue_commit: a request, and at most the %u bytes reserved, not %u", reserved, size);
        else
            status = submit_check(queue, request, "cqlring_queue_commit", error);
        if (status == CQLRING_OK) {
            cqlring_request own = *request;
            own.session = queue->session;
            status = cqr_body_make_encoded(&own, reservation, at, size, &body, error);
        }
    }
    if (body == NULL) {
        uncharge(queue, reserved);
        cqr_mem_free(reservation);
        return status;
    }
    /* text, payload and the like come on top of what was reserved; what was not used of it is given back */
    atomic_fetch_add_explicit(&queue->bytes, (uint64_t)body->size - reserved, memory_order_relaxed);
    struct together together = {.count = 0};
    status = item_make(queue, body, &together, "cqlring_queue_commit", error);
    return status == CQLRING_OK ? items_post(queue, &together, "cqlring_queue_commit", error) : status;
}

