/* SPDX-License-Identifier: Apache-2.0 */

/* A lane's memory and threads. */

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/speculate.h"
#include "driver/result.h"
#include "driver/runtime.h"

enum { RECEIVE_KEEP = 2, UNPACK_KEEP = 512, RESULT_KEEP = 1024, RING_SPARE = 64, OWN_SPARE = 64 };

static _Thread_local struct lane *current;   /* whose submitter's turn this thread is in */
static _Thread_local bool library_thread;

struct lane *cqr_lane_current(void)
{
    return current;
}

bool cqr_on_library_thread(void)
{
    return library_thread || current != NULL;
}

void cqr_lane_enter(struct lane *lane)
{
    current = lane;
}

bool cqr_lane_post_all(struct lane *lane, struct lane_message *newest, struct lane_message *oldest)
{
    if (current == lane)
        return cqr_inbox_push_all(&lane->inbox, &newest->item, &oldest->item);
    /* relaxed: the push publishes it. The message may run, and the runtime end, before the wake-up has been written */
    atomic_fetch_add_explicit(&lane->posters, 1, memory_order_relaxed);
    bool pushed = cqr_inbox_push_all(&lane->inbox, &newest->item, &oldest->item);
    if (pushed)
        cqr_park_wake(&lane->park);
    atomic_fetch_sub_explicit(&lane->posters, 1, memory_order_release); /* pairs with the acquire in cqr_lane_fini */
    return pushed;
}

bool cqr_lane_post(struct lane *lane, struct lane_message *message)
{
    return cqr_lane_post_all(lane, message, message);
}

cqlring_status cqr_lane_init(struct lane *lane, struct runtime_core *runtime, uint32_t index, cqlring_error *error)
{
    lane->runtime = runtime;
    lane->index = index;
    lane->net = runtime->net;
    lane->now_us = lane->net->call->now_us(lane->net);
    lane->random = (uint64_t)lane->now_us * UINT64_C(0x9E3779B97F4A7C15) + index * 2 + 1;
    lane->op_count = runtime->inflight_max + OWN_SPARE;
    lane->conn_max = runtime->connections_max;
    cqr_wheel_init(&lane->wheel, lane->now_us);
    lane->poller = runtime->poller_create != NULL                      ? runtime->poller_create()
                   : runtime->threads == CQLRING_THREADS_CALLER ? cqr_poller_epoll_create()
                                                                : cqr_poller_ev_create();
    if (lane->poller == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "lane %u: no epoll loop can be had (descriptors or memory)", index);
    cqr_park_init(&lane->reactor_park, lane->poller);
    cqr_park_init(&lane->park, runtime->threads == CQLRING_THREADS_SPLIT ? NULL : lane->poller);
    lane->receive_pool = cqr_pool_create(RECEIVE_BLOCK_SIZE, RECEIVE_KEEP);
    lane->unpack_pool = cqr_pool_create(4 << 10, UNPACK_KEEP);
    lane->result_pool = cqr_pool_create(sizeof(cqlring_result), RESULT_KEEP);
    lane->ops = cqr_mem_array(lane->op_count, sizeof *lane->ops);
    lane->scratch = cqr_mem_alloc(SCRATCH_SIZE);
    lane->compress = cqr_compress_state_create();
    /* decision 8: what is in flight, what was orphaned, four words a connection, and some */
    lane->orphans_max = 4096;
    uint32_t ring = lane->op_count + lane->orphans_max + lane->conn_max * 4 + RING_SPARE;
    uint32_t commands = 64;
    while (commands < lane->conn_max + 2)
        commands *= 2;
    lane->commands.mask = commands - 1;
    lane->commands.entries = cqr_mem_array(commands, sizeof *lane->commands.entries);
    if (lane->receive_pool == NULL || lane->unpack_pool == NULL || lane->result_pool == NULL || lane->ops == NULL || lane->scratch == NULL || lane->compress == NULL ||
        lane->commands.entries == NULL || cqr_ring_init(&lane->completions, ring) != CQLRING_OK)
        return cqr_error(error, CQLRING_NO_MEMORY, "lane %u: out of memory for %u requests under way", index, lane->op_count);
    return CQLRING_OK;
}

void cqr_lane_fini(struct lane *lane)
{
    /* the inbox is closed; whoever pushed before that is about to be through with the poller */
    while (atomic_load_explicit(&lane->posters, memory_order_acquire) != 0)
        sched_yield();
    cqr_block_release(lane->receive_block);
    cqr_pool_close(lane->receive_pool);
    cqr_pool_close(lane->unpack_pool);
    cqr_pool_close(lane->result_pool);
    while (lane->send_free != NULL) {
        struct send_block *next = lane->send_free->next;
        cqr_mem_free(lane->send_free);
        lane->send_free = next;
    }
    cqr_mem_free(lane->squeeze);
    cqr_mem_free(lane->rests);
    cqr_races_fini(lane);
    cqr_mem_free(lane->ops);
    cqr_mem_free(lane->scratch);
    cqr_compress_state_destroy(lane->compress);
    cqr_mem_free(lane->commands.entries);
    cqr_ring_fini(&lane->completions);
    if (lane->poller != NULL)
        lane->poller->call->destroy(lane->poller);
    lane->poller = NULL;
    lane->ops = NULL;
    lane->receive_block = NULL;
    lane->receive_pool = lane->unpack_pool = lane->result_pool = NULL;
    lane->scratch = NULL;
    lane->compress = NULL;
    lane->squeeze = NULL;
    lane->rests = NULL;
    lane->commands.entries = NULL;
}

/* Messages that came after the end: run so that each gives its answer (CLOSED). */
static void inbox_end(struct lane *lane)
{
    for (struct inbox_item *item = cqr_inbox_close(&lane->inbox), *next; item != NULL; item = next) {
        next = item->next;
        struct lane_message *message = (struct lane_message *)item;
        message->run(lane, message);
    }
    cqr_executions_waiting_run(lane);
}

bool cqr_lane_is_through(const struct lane *lane)
{
    return lane->stopping && lane->conn_count == 0 && lane->parts == NULL && lane->exec_head == NULL;
}

static void *submitter_run(void *context)
{
    struct lane *lane = context;
    struct net *net = lane->net;
    library_thread = true;
    current = lane;
    cqr_thread_cpu_begin(&lane->submitter_cpu);
    while (!cqr_lane_is_through(lane)) {
        cqr_submitter_turn(lane, net->call->now_us(net));
        cqr_park_prepare(&lane->park);
        if (cqr_submitter_has_input(lane)) {
            cqr_park_cancel(&lane->park);
            continue;
        }
        int64_t next = cqr_submitter_next(lane);
        if (next <= lane->now_us || cqr_lane_is_through(lane)) {
            cqr_park_cancel(&lane->park);
            continue;
        }
        cqr_count(&lane->stats.sleeps, 1);
        cqr_park_sleep(&lane->park, next == INT64_MAX ? -1 : next);
    }
    inbox_end(lane);
    atomic_store_explicit(&lane->stop, 1, memory_order_release);
    cqr_park_wake(&lane->reactor_park);
    lane->poller->call->wake(lane->poller);
    current = NULL;
    cqr_thread_cpu_end(&lane->submitter_cpu);
    return NULL;
}

static bool commands_empty(struct lane *lane)
{
    return atomic_load_explicit(&lane->commands.tail, memory_order_acquire) == atomic_load_explicit(&lane->commands.head, memory_order_relaxed);
}

static void *reactor_run(void *context)
{
    struct lane *lane = context;
    library_thread = true;
    cqr_thread_cpu_begin(&lane->reactor_cpu);
    for (;;) {
        cqr_park_prepare(&lane->reactor_park);
        bool stop = atomic_load_explicit(&lane->stop, memory_order_acquire) != 0;
        bool work = stop || !commands_empty(lane);
        if (work)
            cqr_park_cancel(&lane->reactor_park);
        if (stop && commands_empty(lane) && lane->reactor_conns == 0) {
            cqr_thread_cpu_end(&lane->reactor_cpu);
            return NULL;
        }
        cqr_reactor_turn(lane, work ? 0 : -1);
    }
}

static void inline_submitter_turn(struct lane *lane, int64_t now_us)
{
    struct lane *outer = current;
    current = lane;
    cqr_submitter_turn(lane, now_us);
    current = outer;
}

void cqr_lane_away(struct lane *lane)
{
    if (!lane->away)
        cqr_park_prepare(&lane->park);
    lane->away = true;
    if (cqr_submitter_has_input(lane) || !commands_empty(lane))
        (void)cqr_park_wake(&lane->park);
}

static void back(struct lane *lane)
{
    if (lane->away)
        cqr_park_cancel(&lane->park);
    lane->away = false;
}

/* With a timer due the sockets come first: an answer that lies in one of them is in time. */
bool cqr_lane_ask(struct lane *lane)
{
    if (lane->asked_first || cqr_inbox_is_empty(&lane->inbox))
        return false;
    int64_t now_us = lane->net->call->now_us(lane->net);
    if (cqr_wheel_next(&lane->wheel) <= now_us)
        return false;
    back(lane);
    lane->asked_first = true;
    inline_submitter_turn(lane, now_us);
    return true;
}

/* Both turns on one thread: the sleeper is the poller. */
void cqr_lane_turn(struct lane *lane, int64_t deadline_us)
{
    int64_t wait = 0;
    back(lane);
    lane->asked_first = false;
    cqr_park_prepare(&lane->park);
    if (!cqr_submitter_has_input(lane) && commands_empty(lane)) {
        int64_t next = cqr_submitter_next(lane);
        wait = deadline_us;
        if (next <= lane->now_us)
            wait = 0;
        else if (next != INT64_MAX && (wait < 0 || next < wait))
            wait = next;
        if (wait != 0)
            cqr_count(&lane->stats.sleeps, 1);
    }
    cqr_reactor_turn(lane, wait);
    cqr_park_cancel(&lane->park);
    inline_submitter_turn(lane, lane->net->call->now_us(lane->net));
}

void cqr_lane_end(struct lane *lane)
{
    struct lane *outer = current;
    current = lane;
    inbox_end(lane);
    current = outer;
    /* the goodbyes of the last connections */
    while (lane->reactor_conns > 0 || !commands_empty(lane))
        cqr_reactor_turn(lane, 0);
}

static void *inline_run(void *context)
{
    struct lane *lane = context;
    library_thread = true;
    cqr_thread_cpu_begin(&lane->submitter_cpu);
    while (!cqr_lane_is_through(lane))
        cqr_lane_turn(lane, -1);
    cqr_lane_end(lane);
    cqr_thread_cpu_end(&lane->submitter_cpu);
    return NULL;
}

cqlring_status cqr_lane_start(struct lane *lane, cqlring_error *error)
{
    char name[16];
    int failed = 0;
    if (lane->runtime->threads == CQLRING_THREADS_SPLIT) {
        snprintf(name, sizeof name, "cqlring-r%u", lane->index);
        lane->reactor_started = true;
        failed = cqr_thread_start(&lane->reactor_thread, name, lane->runtime->cpu, reactor_run, lane);
        if (failed != 0)
            lane->reactor_started = false;
    }
    if (failed == 0 && lane->runtime->threads != CQLRING_THREADS_CALLER) {
        snprintf(name, sizeof name, "cqlring-s%u", lane->index);
        failed = cqr_thread_start(&lane->submitter_thread, name, lane->runtime->cpu, lane->runtime->threads == CQLRING_THREADS_SPLIT ? submitter_run : inline_run, lane);
        lane->submitter_started = failed == 0;
    }
    if (failed != 0)
        return cqr_error(error, CQLRING_NO_MEMORY, "lane %u: a thread cannot be started: %s", lane->index, strerror(failed));
    return CQLRING_OK;
}

static void stop_run(struct lane *lane, struct lane_message *message)
{
    (void)message;
    lane->stopping = true;
}

void cqr_lane_stop(struct lane *lane)
{
    lane->stop_message.run = stop_run;
    cqr_lane_post(lane, &lane->stop_message);
}
