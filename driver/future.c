/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/future.h"

#include <assert.h>
#include <limits.h>

#include "driver/failure.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/park.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"

/* Everything that can happen to a future is a read-modify-write of its word, so all of it stands in one order:

   - A waiter adds WAITERS only to a word without DONE, and sleeps only while the word is what it then was. If DONE comes
     later, the completer reads WAITERS and wakes; if it came earlier, the compare-and-swap fails.
   - on_ready writes call and context between CLAIMED and SET. Of the two that add DONE and SET the second sees the
     other's bit, and that one runs the call: exactly once, whoever was first. */

static bool is_done(const cqlring_future *future)
{
    /* Acquire: pairs with the release in cqr_future_complete, for status, error, completion and value. */
    return (atomic_load_explicit(&future->word, memory_order_acquire) & FUTURE_DONE) != 0;
}

static bool is_foreign(const cqlring_future *future)
{
    return future->fork_generation != cqr_fork_generation();
}

/* The one run of on_ready's call; gives back the reference that on_ready took. */
static void run_call(cqlring_future *future)
{
    future->call(future, future->context);
    cqlring_future_release(future);
}

/* --- the completer's side ----------------------------------------------------------------------------------------- */

void cqr_future_init(cqlring_future *future, enum future_kind kind, struct runtime_core *runtime, void (*dispose)(cqlring_future *))
{
    *future = (cqlring_future){
        .references = 2,
        .fork_generation = cqr_fork_generation(),
        .kind = (uint8_t)kind,
        .runtime = runtime,
        .dispose = dispose,
    };
}

void cqr_future_complete(cqlring_future *future)
{
    assert(future->status != CQLRING_OK || future->error == NULL);
    /* Release: pairs with the acquire in is_done, in the waiters, and in on_ready. Acquire: for call and context. */
    unsigned before = atomic_fetch_or_explicit(&future->word, FUTURE_DONE, memory_order_acq_rel);
    assert((before & FUTURE_DONE) == 0);
    if ((before & FUTURE_WAITERS) != 0) {
        cqr_futex_wake(&future->word, INT_MAX);
        struct lane *lane = cqr_lane_current();
        if (lane != NULL)
            cqr_count(&lane->stats.wakes_waiter, 1);
    }
    if ((before & FUTURE_CALL_SET) != 0)
        run_call(future);
    cqlring_future_release(future); /* only now: a woken waiter may let go of the word that was being woken */
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Sleep until DONE, at most until deadline_us (INT64_MAX: for ever). */
static void sleep_until_done(cqlring_future *future, int64_t deadline_us)
{
    /* Acquire, here and wherever the word is read again: pairs with the release in cqr_future_complete. */
    unsigned word = atomic_load_explicit(&future->word, memory_order_acquire);
    while ((word & FUTURE_DONE) == 0) {
        if ((word & FUTURE_WAITERS) == 0) {
            if (!atomic_compare_exchange_weak_explicit(&future->word, &word, word | FUTURE_WAITERS,
                                                       memory_order_acq_rel, memory_order_acquire))
                continue;
            word |= FUTURE_WAITERS;
        }
        if (!cqr_futex_wait(&future->word, word, deadline_us == INT64_MAX ? -1 : deadline_us))
            return;
        word = atomic_load_explicit(&future->word, memory_order_acquire);
    }
}

static cqlring_status outcome(const cqlring_future *future, cqlring_error *error)
{
    if (error != NULL && future->status != CQLRING_OK) {
        if (future->error != NULL)
            *error = *future->error;
        else
            cqr_error(error, future->status, "%s", cqlring_status_text(future->status));
    }
    return future->status;
}

cqlring_status cqlring_future_wait(cqlring_future *future, int64_t timeout_us, cqlring_error *error)
{
    if (future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_future_wait: future must be given");
    if (timeout_us < -1)
        return cqr_error(error, CQLRING_INVALID, "cqlring_future_wait: timeout_us is %lld: -1 (until it is ready), 0 (now) or microseconds", (long long)timeout_us);
    if (is_foreign(future))
        return cqr_error(error, CQLRING_FORKED, "cqlring_future_wait: the future belongs to the parent process");
    if (is_done(future)) /* nothing to wait for, so in a callback too: how else would on_ready learn the status */
        return outcome(future, error);

    bool is_caller_mode = future->runtime != NULL && future->runtime->threads == CQLRING_THREADS_CALLER;
    if (cqr_on_library_thread()) {
        if (timeout_us != 0)
            return cqr_error(error, CQLRING_INVALID, "cqlring_future_wait: a callback must not wait");
    } else if (timeout_us != 0 || is_caller_mode) {
        int64_t deadline_us = INT64_MAX;
        if (timeout_us >= 0)
            deadline_us = cqr_deadline_us(future->runtime != NULL ? cqr_runtime_now_us(future->runtime) : cqr_now_us(), timeout_us);
        if (is_caller_mode)
            (void)cqr_runtime_turn_until(future->runtime, &future->word, FUTURE_DONE, deadline_us);
        else
            sleep_until_done(future, deadline_us);
        if (is_done(future))
            return outcome(future, error);
    }
    if (timeout_us <= 0)
        return cqr_error(error, CQLRING_TIMEOUT, "the future is not ready yet");
    return cqr_error(error, CQLRING_TIMEOUT, "the future is not ready after %s", cqr_duration(timeout_us).text);
}

bool cqlring_future_ready(const cqlring_future *future)
{
    return future != NULL && is_done(future);
}

/* --- on_ready, cancel --------------------------------------------------------------------------------------------- */

cqlring_status cqlring_future_on_ready(cqlring_future *future, void (*call)(cqlring_future *future, void *context), void *context)
{
    if (future == NULL || call == NULL)
        return CQLRING_INVALID;
    if (is_foreign(future))
        return CQLRING_FORKED;
    /* Relaxed: only one thread gets the unclaimed word, and it publishes with SET. */
    unsigned before = atomic_fetch_or_explicit(&future->word, FUTURE_CALL_CLAIMED, memory_order_relaxed);
    if ((before & FUTURE_CALL_CLAIMED) != 0)
        return CQLRING_INVALID;
    future->call = call;
    future->context = context;
    cqlring_future_retain(future);
    /* Release: call and context, for the completer. Acquire: pairs with the release in cqr_future_complete. */
    before = atomic_fetch_or_explicit(&future->word, FUTURE_CALL_SET, memory_order_acq_rel);
    if ((before & FUTURE_DONE) != 0)
        run_call(future);
    return CQLRING_OK;
}

void cqlring_future_cancel(cqlring_future *future)
{
    if (future == NULL || is_foreign(future) || future->cancel == NULL || is_done(future))
        return;
    future->cancel(future);
}

/* --- references --------------------------------------------------------------------------------------------------- */

void cqlring_future_retain(cqlring_future *future)
{
    if (future != NULL)
        atomic_fetch_add_explicit(&future->references, 1, memory_order_relaxed);
}

void cqlring_future_release(cqlring_future *future)
{
    if (future == NULL)
        return;
    /* Release: this holder is through. Acquire: so is everybody else, for the one that frees. */
    unsigned before = atomic_fetch_sub_explicit(&future->references, 1, memory_order_acq_rel);
    assert(before > 0);
    /* In a forked child what the future hangs on may have been caught in mid-change: its memory is abandoned. */
    if (before != 1 || is_foreign(future))
        return;
    future->dispose(future);
}

/* --- what became of it -------------------------------------------------------------------------------------------- */

const cqlring_completion *cqlring_future_completion(const cqlring_future *future)
{
    if (future == NULL || future->kind != FUTURE_EXECUTE || !is_done(future))
        return NULL;
    return &future->completion;
}

static void *value_of(const cqlring_future *future, enum future_kind kind)
{
    if (future == NULL || future->kind != kind || is_foreign(future) || !is_done(future) || future->status != CQLRING_OK)
        return NULL;
    return future->value;
}

cqlring_cluster *cqlring_future_cluster(const cqlring_future *future)
{
    cqlring_cluster *cluster = value_of(future, FUTURE_CLUSTER);
    if (cluster == NULL)
        return NULL;
    atomic_fetch_add_explicit(&cluster->given, 1, memory_order_relaxed);
    return cqr_cluster_handle(cluster);
}

cqlring_session *cqlring_future_session(const cqlring_future *future)
{
    cqlring_session *session = value_of(future, FUTURE_SESSION);
    if (session == NULL)
        return NULL;
    atomic_fetch_add_explicit(&session->given, 1, memory_order_relaxed);
    return cqr_session_retain(session);
}

cqlring_prepared *cqlring_future_prepared(const cqlring_future *future)
{
    cqlring_prepared *prepared = value_of(future, FUTURE_PREPARED);
    return prepared == NULL ? NULL : cqr_prepared_retain(prepared);
}
