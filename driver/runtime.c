/* SPDX-License-Identifier: Apache-2.0 */

/* The runtime: lanes in one of three thread modes, the process default, counters, the end. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/runtime.h"
#include "driver/session.h"

enum { LANES_MAX = 16, INFLIGHT_MIN = 64, INFLIGHT_MAX = 65536, INFLIGHT = 8192, CONNECTIONS_MIN = 4, CONNECTIONS_MAX = 4096, CONNECTIONS = 256 };

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *cqlring_version(void)
{
    return TEXT(CQLRING_VERSION_MAJOR) "." TEXT(CQLRING_VERSION_MINOR) "." TEXT(CQLRING_VERSION_PATCH);
}

int64_t cqr_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t cqr_runtime_now_us(const struct runtime_core *core)
{
    return core->net->call->now_us(core->net);
}

int64_t cqr_deadline_us(int64_t now_us, int64_t timeout_us)
{
    return timeout_us < 0 || timeout_us > INT64_MAX - now_us ? INT64_MAX : now_us + timeout_us;
}

struct runtime_core *cqr_runtime_retain(struct runtime_core *core)
{
    atomic_fetch_add_explicit(&core->references, 1, memory_order_relaxed);
    return core;
}

static void memory_free(struct runtime_core *core)
{
    pthread_mutex_destroy(&core->lock);
    cqr_mem_free(core->lanes);
    cqr_mem_free(core);
}

void cqr_runtime_release(struct runtime_core *core)
{
    if (core == NULL || core->fork_generation != cqr_fork_generation())
        return;
    if (atomic_fetch_sub_explicit(&core->references, 1, memory_order_acq_rel) == 1)
        memory_free(core);
}

static cqlring_status options_check(const cqlring_runtime_options *options, cqlring_error *error)
{
    if (options->struct_size < sizeof *options)
        return cqr_error(error, CQLRING_INVALID, "runtime options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_runtime_options)",
                         options->struct_size, sizeof *options);
    if (options->threads > CQLRING_THREADS_CALLER)
        return cqr_error(error, CQLRING_INVALID, "runtime options: threads %d (SPLIT, INLINE or CALLER)", (int)options->threads);
    if (options->lanes > LANES_MAX || (options->threads == CQLRING_THREADS_CALLER && options->lanes > 1))
        return cqr_error(error, CQLRING_INVALID, "runtime options: %u lanes (1 to %d; 1 in caller mode)", options->lanes, LANES_MAX);
    if (options->inflight_max != 0 && (options->inflight_max < INFLIGHT_MIN || options->inflight_max > INFLIGHT_MAX))
        return cqr_error(error, CQLRING_INVALID, "runtime options: inflight_max %u (%d to %d)", options->inflight_max, INFLIGHT_MIN, INFLIGHT_MAX);
    if (options->connections_max != 0 && (options->connections_max < CONNECTIONS_MIN || options->connections_max > CONNECTIONS_MAX))
        return cqr_error(error, CQLRING_INVALID, "runtime options: connections_max %u (%d to %d)", options->connections_max, CONNECTIONS_MIN, CONNECTIONS_MAX);
    if (options->cpu_plus_one < 0 || options->cpu_plus_one > 4096)
        return cqr_error(error, CQLRING_INVALID, "runtime options: cpu_plus_one %d (0, or a CPU's number and one)", options->cpu_plus_one);
    if (options->log_level < 0 || options->log_level > CQLRING_LOG_DEBUG)
        return cqr_error(error, CQLRING_INVALID, "runtime options: log_level %d (1 to 4)", options->log_level);
    return CQLRING_OK;
}

static void lanes_fini(struct runtime_core *core)
{
    for (uint32_t i = 0; i < core->lane_count; i++)
        cqr_lane_fini(&core->lanes[i]);
}

/* ---- caller mode: who leads ---- */

static bool lead(struct runtime_core *core)
{
    unsigned expected = 0;
    return atomic_compare_exchange_strong_explicit(&core->leader, &expected, 1, memory_order_acq_rel, memory_order_relaxed);
}

/* The end: nobody else is to run turns any more. Whoever does may be asleep in the poller, and leaves when it is woken. */
static void lead_for_good(struct runtime_core *core)
{
    struct lane *lane = &core->lanes[0];
    while (!lead(core)) {
        atomic_fetch_add_explicit(&core->sleepers, 1, memory_order_seq_cst);
        unsigned baton = atomic_load_explicit(&core->baton, memory_order_seq_cst);
        if (atomic_load_explicit(&core->leader, memory_order_seq_cst) != 0) {
            lane->poller->call->wake(lane->poller);
            cqr_futex_wait(&core->baton, baton, cqr_now_us() + 10000); /* the baton may have gone to one that leads again */
        }
        atomic_fetch_sub_explicit(&core->sleepers, 1, memory_order_seq_cst);
    }
}

static void threads_stop(struct runtime_core *core)
{
    for (uint32_t i = 0; i < core->lane_count; i++) {
        struct lane *lane = &core->lanes[i];
        if (core->threads == CQLRING_THREADS_CALLER) {
            lead_for_good(core);
            lane->stopping = true;
            while (!cqr_lane_is_through(lane))
                cqr_lane_turn(lane, lane->net->call->now_us(lane->net) + 10000);
            cqr_lane_end(lane);
            continue;
        }
        if (lane->submitter_started) {
            cqr_lane_stop(lane);
            pthread_join(lane->submitter_thread, NULL);
        } else if (lane->reactor_started) {
            atomic_store_explicit(&lane->stop, 1, memory_order_release);
            cqr_park_wake(&lane->reactor_park);
            lane->poller->call->wake(lane->poller);
        }
        if (lane->reactor_started)
            pthread_join(lane->reactor_thread, NULL);
    }
}

static cqlring_status allocator_take(const cqlring_allocator *allocator, cqlring_error *error)
{
    if (allocator == NULL)
        return CQLRING_OK;
    if (allocator->struct_size < sizeof *allocator)
        return cqr_error(error, CQLRING_INVALID, "runtime options: allocator's struct_size is %zu, expected %zu: set it to sizeof(cqlring_allocator)",
                         allocator->struct_size, sizeof *allocator);
    if (allocator->allocate == NULL || allocator->reallocate == NULL || allocator->release == NULL)
        return cqr_error(error, CQLRING_INVALID, "runtime options: an allocator has all three functions");
    const struct mem_source source = {
        .allocate = allocator->allocate, .reallocate = allocator->reallocate, .release = allocator->release, .context = allocator->context};
    if (!cqr_mem_use(&source))
        return cqr_error(error, CQLRING_INVALID, "runtime options: allocator is given while %lld allocations live that came from elsewhere: it goes with the first runtime",
                         (long long)cqr_mem_live_count());
    return CQLRING_OK;
}

cqlring_status cqr_runtime_create_on(const cqlring_runtime_options *options, struct net *net, struct poller *(*poller_create)(void),
                                     cqlring_runtime **runtime, cqlring_error *error)
{
    static const cqlring_runtime_options defaults = {.struct_size = sizeof defaults};
    if (options == NULL)
        options = &defaults;
    if (runtime == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_runtime_create: runtime must be given");
    cqlring_status status = options_check(options, error);
    if (status != CQLRING_OK)
        return status;
    status = allocator_take(options->allocator, error);
    if (status != CQLRING_OK)
        return status;
    if (cqr_fork_watch() != CQLRING_OK)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_runtime_create: no fork handler can be installed");
    struct runtime_core *core = cqr_mem_aligned(64, sizeof *core);
    uint32_t lane_count = options->lanes != 0 ? options->lanes : 1;
    struct lane *lanes = cqr_mem_aligned(128, lane_count * sizeof *lanes);
    if (core == NULL || lanes == NULL) {
        cqr_mem_free(core);
        cqr_mem_free(lanes);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_runtime_create: out of memory");
    }
    core->lanes = lanes;
    core->threads = options->threads;
    core->inflight_max = options->inflight_max != 0 ? options->inflight_max : INFLIGHT;
    core->connections_max = options->connections_max != 0 ? options->connections_max : CONNECTIONS;
    core->cpu = options->cpu_plus_one - 1;
    core->log = (struct log){.call = options->log, .context = options->log_context, .level = options->log_level != 0 ? options->log_level : CQLRING_LOG_WARN};
    core->has_allocator = options->allocator != NULL;
    core->net = net != NULL ? net : cqr_net_system();
    core->poller_create = poller_create;
    core->fork_generation = cqr_fork_generation();
    atomic_init(&core->references, 1);
    pthread_mutex_init(&core->lock, NULL);
    for (; core->lane_count < lane_count && status == CQLRING_OK; core->lane_count++)
        status = cqr_lane_init(&lanes[core->lane_count], core, core->lane_count, error);
    for (uint32_t i = 0; i < core->lane_count && status == CQLRING_OK; i++)
        status = cqr_lane_start(&lanes[i], error);
    if (status != CQLRING_OK) {
        threads_stop(core);
        lanes_fini(core);
        memory_free(core);
        return status;
    }
    *runtime = (cqlring_runtime *)(void *)core;
    return CQLRING_OK;
}

cqlring_status cqlring_runtime_create(const cqlring_runtime_options *options, cqlring_runtime **runtime, cqlring_error *error)
{
    return cqr_runtime_create_on(options, NULL, NULL, runtime, error);
}

/* ---- the process default ---- */

static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;
static struct runtime_core *default_core;

static void core_destroy(struct runtime_core *core);

static void at_exit(void)
{
    pthread_mutex_lock(&default_lock);
    struct runtime_core *core = default_core;
    default_core = NULL;
    pthread_mutex_unlock(&default_lock);
    if (core != NULL && core->fork_generation == cqr_fork_generation() && !cqr_on_library_thread())
        core_destroy(core);
}

cqlring_status cqr_runtime_default(struct runtime_core **core, cqlring_error *error)
{
    static bool installed;
    cqlring_status status = CQLRING_OK;
    pthread_mutex_lock(&default_lock);
    if (default_core != NULL && default_core->fork_generation != cqr_fork_generation())
        default_core = NULL; /* the parent's */
    if (default_core == NULL) {
        cqlring_runtime *runtime = NULL;
        status = cqlring_runtime_create(NULL, &runtime, error);
        if (status == CQLRING_OK) {
            default_core = cqr_runtime_core(runtime);
            default_core->is_default = true;
            if (!installed)
                installed = atexit(at_exit) == 0;
        }
    }
    if (status == CQLRING_OK)
        *core = cqr_runtime_retain(default_core);
    pthread_mutex_unlock(&default_lock);
    return status;
}

/* ---- the end ---- */

static void core_destroy(struct runtime_core *core)
{
    atomic_store_explicit(&core->state, 1, memory_order_release);
    for (;;) {
        pthread_mutex_lock(&core->lock);
        struct cqlring_cluster *cluster = core->clusters;
        while (cluster != NULL && atomic_load_explicit(&cluster->state, memory_order_acquire) == HANDLE_CLOSED)
            cluster = cluster->next;
        if (cluster != NULL) {
            unsigned references = atomic_load_explicit(&cluster->references, memory_order_relaxed);
            while (references > 0 && !atomic_compare_exchange_weak_explicit(&cluster->references, &references, references + 1, memory_order_relaxed, memory_order_relaxed)) {
            }
            if (references == 0) { /* being freed at this moment: out of the list in a moment */
                pthread_mutex_unlock(&core->lock);
                continue;
            }
        }
        pthread_mutex_unlock(&core->lock);
        if (cluster == NULL)
            break;
        cqlring_future *future = NULL;
        if (cqlring_cluster_close(cluster, 0, &future, NULL) == CQLRING_OK) {
            cqlring_future_wait(future, -1, NULL);
            cqlring_future_release(future);
        } else { /* no memory for a future: its end is watched instead */
            cqr_cluster_close(cluster, 0, NULL);
            atomic_uint never = 0;
            while (atomic_load_explicit(&cluster->state, memory_order_acquire) != HANDLE_CLOSED) {
                if (core->threads == CQLRING_THREADS_CALLER)
                    cqr_runtime_turn_until(core, &never, 1, cqr_now_us() + 1000);
                else
                    cqr_futex_wait(&never, 0, cqr_now_us() + 1000);
            }
        }
        cqr_cluster_release(cluster);
    }
    threads_stop(core);
    lanes_fini(core);
    /* release: who leads from now on (acquire in lead) sees that there is nothing left to run */
    atomic_store_explicit(&core->state, 2, memory_order_release);
    atomic_store_explicit(&core->leader, 0, memory_order_release);
    cqr_runtime_release(core);
}

cqlring_status cqlring_runtime_destroy(cqlring_runtime *runtime)
{
    if (runtime == NULL)
        return CQLRING_OK;
    struct runtime_core *core = cqr_runtime_core(runtime);
    if (core->fork_generation != cqr_fork_generation())
        return CQLRING_FORKED;
    if (cqr_on_library_thread() || core->is_default)
        return CQLRING_INVALID;
    core_destroy(core);
    return CQLRING_OK;
}

/* ---- caller mode ---- */

/* A foreign loop may sleep on the descriptor until somebody leads again: as with any sleeper the flag goes up, and then
   everything that can bring work is looked at once more. Whoever posts from now on makes the descriptor readable. */
static void descriptor_arm(struct runtime_core *core)
{
    struct lane *lane = &core->lanes[0];
    if (atomic_load_explicit(&core->state, memory_order_acquire) == 2)
        return;
    int64_t next = cqr_submitter_next(lane);
    lane->poller->call->arm(lane->poller, next == INT64_MAX ? -1 : next);
    lane->sleep_until_us = lane->now_us; /* nobody has promised to be back then */
    cqr_lane_away(lane);
}

/* Whoever leaves wakes the next sleeper (decision 15). */
static void leave(struct runtime_core *core)
{
    /* seq_cst: cqlring_runtime_fd sets it and then tries to lead, this looks at it again when it no longer does */
    bool watched = atomic_load_explicit(&core->watched, memory_order_seq_cst);
    if (watched)
        descriptor_arm(core);
    atomic_store_explicit(&core->leader, 0, memory_order_seq_cst);
    if (!watched && atomic_load_explicit(&core->watched, memory_order_seq_cst) && lead(core)) {
        descriptor_arm(core);
        atomic_store_explicit(&core->leader, 0, memory_order_seq_cst);
    }
    if (atomic_load_explicit(&core->sleepers, memory_order_seq_cst) > 0) {
        atomic_fetch_add_explicit(&core->baton, 1, memory_order_seq_cst);
        cqr_futex_wake(&core->baton, 1);
    }
}

/* What has settled may be what they wait for. */
static void others_wake(struct runtime_core *core)
{
    if (atomic_load_explicit(&core->sleepers, memory_order_seq_cst) > 0) {
        atomic_fetch_add_explicit(&core->baton, 1, memory_order_seq_cst);
        cqr_futex_wake(&core->baton, INT_MAX);
    }
}

bool cqr_runtime_turn_until(struct runtime_core *core, atomic_uint *word, unsigned done_bits, int64_t deadline_us)
{
    struct lane *lane = &core->lanes[0];
    while ((atomic_load_explicit(word, memory_order_acquire) & done_bits) == 0) {
        if (deadline_us != INT64_MAX && lane->net->call->now_us(lane->net) >= deadline_us)
            break;
        if (lead(core)) {
            /* leaves after having asked, too: what that settled may be what somebody else sleeps for */
            if (atomic_load_explicit(&core->state, memory_order_acquire) != 2 && (atomic_load_explicit(word, memory_order_acquire) & done_bits) == 0 &&
                !cqr_lane_ask(lane))
                cqr_lane_turn(lane, deadline_us == INT64_MAX ? -1 : deadline_us);
            if (lane->settled_this_turn > 0)
                others_wake(core);
            lane->settled_this_turn = 0;
            leave(core);
            continue;
        }
        /* registered as a sleeper, then once more: the leader may have left in between */
        atomic_fetch_add_explicit(&core->sleepers, 1, memory_order_seq_cst);
        unsigned baton = atomic_load_explicit(&core->baton, memory_order_seq_cst);
        if (atomic_load_explicit(&core->leader, memory_order_seq_cst) != 0 && (atomic_load_explicit(word, memory_order_acquire) & done_bits) == 0)
            cqr_futex_wait(&core->baton, baton, deadline_us);
        atomic_fetch_sub_explicit(&core->sleepers, 1, memory_order_seq_cst);
    }
    bool done = (atomic_load_explicit(word, memory_order_acquire) & done_bits) != 0;
    /* woken by a leaver but not going to lead: hand the baton on */
    if (atomic_load_explicit(&core->leader, memory_order_seq_cst) == 0 && atomic_load_explicit(&core->sleepers, memory_order_seq_cst) > 0) {
        atomic_fetch_add_explicit(&core->baton, 1, memory_order_seq_cst);
        cqr_futex_wake(&core->baton, 1);
    }
    return done;
}

int64_t cqlring_runtime_turn(cqlring_runtime *runtime, int64_t timeout_us)
{
    struct runtime_core *core = cqr_runtime_core(runtime);
    if (core == NULL || core->threads != CQLRING_THREADS_CALLER || core->fork_generation != cqr_fork_generation() || cqr_on_library_thread() ||
        atomic_load_explicit(&core->state, memory_order_acquire) == 2)
        return -1;
    struct lane *lane = &core->lanes[0];
    if (!lead(core))
        return 0; /* another thread runs them */
    if (atomic_load_explicit(&core->state, memory_order_acquire) == 2) {
        leave(core);
        return -1;
    }
    cqr_runtime_retain(core); /* it may be destroyed while this thread is asleep */
    lane->settled_this_turn = 0;
    int64_t now = lane->net->call->now_us(lane->net);
    int64_t deadline = timeout_us == 0 ? 0 : timeout_us < 0 ? -1 : cqr_deadline_us(now, timeout_us);
    cqr_lane_turn(lane, deadline);
    int64_t settled = lane->settled_this_turn;
    leave(core);
    cqr_runtime_release(core);
    return settled;
}

int cqlring_runtime_fd(cqlring_runtime *runtime)
{
    struct runtime_core *core = cqr_runtime_core(runtime);
    if (core == NULL || core->threads != CQLRING_THREADS_CALLER || core->fork_generation != cqr_fork_generation())
        return -1;
    if (!atomic_exchange_explicit(&core->watched, true, memory_order_seq_cst) && lead(core))
        leave(core); /* it is armed from now on; when somebody leads, that one does so in leaving */
    return core->lanes[0].poller->call->fd(core->lanes[0].poller);
}

/* ---- counters ---- */

void cqr_thread_cpu_begin(struct thread_cpu *cpu)
{
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0)
        return;
    atomic_store_explicit(&cpu->clock, clock, memory_order_relaxed);
    /* release: pairs with the acquire of whoever reads the clock */
    atomic_store_explicit(&cpu->runs, true, memory_order_release);
}

static uint64_t clock_us(clockid_t clock)
{
    struct timespec used;
    return clock_gettime(clock, &used) == 0 ? (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000 : 0;
}

void cqr_thread_cpu_end(struct thread_cpu *cpu)
{
    atomic_store_explicit(&cpu->ended_us, clock_us(CLOCK_THREAD_CPUTIME_ID), memory_order_relaxed);
    /* release: pairs with the acquire below: whoever reads false reads the figure */
    atomic_store_explicit(&cpu->runs, false, memory_order_release);
}

uint64_t cqr_thread_cpu_us(const struct thread_cpu *cpu)
{
    uint64_t used = 0;
    if (atomic_load_explicit((atomic_bool *)(uintptr_t)&cpu->runs, memory_order_acquire))
        used = clock_us((clockid_t)atomic_load_explicit((atomic_int *)(uintptr_t)&cpu->clock, memory_order_relaxed));
    if (used == 0) /* it has ended, perhaps just now */
        used = atomic_load_explicit((counter *)(uintptr_t)&cpu->ended_us, memory_order_relaxed);
    return used;
}

static uint64_t value(const counter *which)
{
    return atomic_load_explicit((counter *)(uintptr_t)which, memory_order_relaxed);
}

struct runtime_core *cqr_runtime_observe(const cqlring_runtime *runtime)
{
    struct runtime_core *core = cqr_runtime_core(runtime);
    if (core == NULL)
        pthread_mutex_lock(&default_lock);
    struct runtime_core *seen = core != NULL ? core : default_core;
    if (seen != NULL && seen->fork_generation != cqr_fork_generation())
        seen = NULL;
    if (seen != NULL)
        cqr_runtime_retain(seen);
    if (core == NULL)
        pthread_mutex_unlock(&default_lock);
    return seen;
}

void cqlring_runtime_stats(const cqlring_runtime *runtime, cqlring_stats *out)
{
    if (out == NULL)
        return;
    cqlring_stats sum = {.struct_size = sizeof sum};
    struct runtime_core *core = cqr_runtime_observe(runtime);
    for (uint32_t i = 0; core != NULL && i < core->lane_count; i++) {
        const struct lane_stats *lane = &core->lanes[i].stats;
        const struct reactor_stats *reactor = &core->lanes[i].reactor_stats;
        sum.requests_issued += value(&lane->issued);
        sum.requests_settled += value(&lane->settled);
        sum.requests_failed += value(&lane->failed);
        sum.retries += value(&lane->retries);
        sum.reprepares += value(&lane->reprepares);
        sum.speculative += value(&lane->speculative);
        sum.speculative_won += value(&lane->speculative_won);
        sum.plans_ignored += value(&lane->plans_ignored);
        sum.timeouts += value(&lane->timeouts);
        sum.sends += value(&lane->sends);
        sum.send_bytes += value(&lane->send_bytes);
        sum.send_blocked += value(&lane->send_blocked);
        sum.recvs += value(&reactor->recvs);
        sum.recv_bytes += value(&reactor->recv_bytes);
        sum.replies += value(&reactor->replies);
        sum.copied_up_bytes += value(&reactor->copied_up_bytes);
        sum.copied_down_bytes += value(&lane->copied_down_bytes);
        sum.wakes_submitter += value(&reactor->wakes_submitter);
        sum.wakes_reactor += value(&lane->wakes_reactor);
        sum.wakes_waiter += value(&lane->wakes_waiter);
        sum.submitter_turns += value(&lane->turns);
        sum.reactor_turns += value(&reactor->turns);
        sum.submitter_sleeps += value(&lane->sleeps);
        sum.connections_opened += value(&lane->connections_opened);
        sum.connections_lost += value(&lane->connections_lost);
        sum.orphans += value(&lane->orphans);
        sum.late_replies += value(&lane->late_replies);
        sum.shard_fallbacks += value(&lane->shard_fallbacks);
        sum.tablets_learned += value(&lane->tablets_learned);
        sum.prepared_ahead += value(&lane->prepared_ahead);
        sum.batches += value(&lane->batches);
        sum.batched_rows += value(&lane->batched_rows);
        sum.batches_split += value(&lane->batches_split);
        sum.partition_waits += value(&lane->partition_waits);
        sum.log_dropped += value(&reactor->log_dropped);
        sum.tls_handshakes += value(&reactor->tls_handshakes);
        sum.tls_resumed += value(&reactor->tls_resumed);
        sum.cpu_submitters_us += cqr_thread_cpu_us(&core->lanes[i].submitter_cpu);
        sum.cpu_reactors_us += cqr_thread_cpu_us(&core->lanes[i].reactor_cpu);
        for (unsigned status = 0; status < 16; status++)
            sum.failed_by[status] += value(&lane->failed_by[status]);
    }
    if (core != NULL) {
        sum.pages_ahead = value(&core->pages_ahead);
        sum.pages_dropped = value(&core->pages_dropped);
    }
    cqr_runtime_release(core);
    sum.allocations = cqr_mem_allocation_count();
    size_t size = out->struct_size;
    if (size > sizeof sum)
        size = sizeof sum;
    sum.struct_size = out->struct_size;
    memcpy(out, &sum, size < sizeof sum.struct_size ? sizeof sum.struct_size : size);
}
