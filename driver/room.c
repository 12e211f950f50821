/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/room.h"

#include <stddef.h>

#include "driver/fork.h"
#include "driver/future.h"
#include "driver/runtime.h"
#include "driver/words.h"
#include "serialize/mem.h"

struct room_wait {
    cqlring_future future;
    struct lane_message message, cancel_message;
    struct timer timer;
    struct room_wait *next, **link;     /* in the session's list; link NULL: not, or no longer */
    struct cqlring_session *session;    /* a reference */
    uint64_t bytes;
    int64_t timeout_us, deadline_us;
    atomic_bool cancel_posted;
    bool cancelled, counted;
};

static bool has_room(struct cqlring_session *session, unsigned more_requests, uint64_t bytes)
{
    unsigned requests = atomic_load_explicit(&session->requests, memory_order_seq_cst) + more_requests;
    uint64_t held = atomic_load_explicit(&session->bytes, memory_order_seq_cst);
    return requests < session->requests_max && ((held <= session->bytes_max && bytes <= session->bytes_max - held) || requests == 0);
}

/* Its last touch by the completer. */
static void end(struct room_wait *wait, struct failure *failure)
{
    if (wait->counted)
        atomic_fetch_sub_explicit(&wait->session->room_waiters, 1, memory_order_relaxed);
    if (failure != NULL) {
        wait->future.status = failure->error.status;
        wait->future.error = &failure->error;
    }
    cqr_future_complete(&wait->future);
}

static struct failure *too_late(const struct room_wait *wait)
{
    struct cqlring_session *session = wait->session;
    return cqr_failure_make(CQLRING_TIMEOUT, "no room for a request within %s: the session has %u requests (requests_max %u) of %llu bytes (bytes_max %llu) under way",
                            cqr_duration(wait->timeout_us).text, atomic_load_explicit(&session->requests, memory_order_relaxed), session->requests_max,
                            (unsigned long long)atomic_load_explicit(&session->bytes, memory_order_relaxed), (unsigned long long)session->bytes_max);
}

/* ---- lane 0's submitter ---- */

static void list_remove(struct lane *lane, struct room_wait *wait)
{
    struct cqlring_session *session = wait->session;
    *wait->link = wait->next;
    if (wait->next != NULL)
        wait->next->link = wait->link;
    else
        session->room_tail = wait->link;
    wait->link = NULL;
    cqr_wheel_disarm(&lane->wheel, &wait->timer);
}

static void look(struct lane *lane, struct cqlring_session *session)
{
    unsigned requests = 0;
    uint64_t bytes = 0;
    cqr_session_retain(session);
    while (session->room_head != NULL) {
        struct room_wait *wait = session->room_head;
        if (atomic_load_explicit(&wait->future.references, memory_order_relaxed) == 1) { /* nobody is there to be told, nor ever will be */
            list_remove(lane, wait);
            end(wait, NULL);
            continue;
        }
        uint64_t with_it = wait->bytes <= UINT64_MAX - bytes ? bytes + wait->bytes : UINT64_MAX;
        if (!has_room(session, requests, with_it))
            break;
        requests++;
        bytes = with_it;
        list_remove(lane, wait);
        end(wait, NULL);
    }
    if (session->room_head != NULL && atomic_load_explicit(&session->requests, memory_order_seq_cst) == 0)
        cqr_room_look(session); /* whoever was told may leave it be, and then nothing comes free that others could be told of */
    cqr_session_release(session);
}

static void look_run(struct lane *lane, struct lane_message *message)
{
    struct cqlring_session *session = (struct cqlring_session *)(void *)((char *)message - offsetof(struct cqlring_session, room_message));
    atomic_store_explicit(&session->room_posted, false, memory_order_seq_cst); /* what comes free from now on posts again */
    look(lane, session);
    cqr_session_release(session);
}

void cqr_room_look(struct cqlring_session *session)
{
    if (atomic_exchange_explicit(&session->room_posted, true, memory_order_seq_cst))
        return;
    session->room_message.run = look_run;
    cqr_session_retain(session);
    if (!cqr_lane_post(&session->cluster->runtime->lanes[0], &session->room_message))
        cqr_session_release(session);
}

static void wait_run(struct lane *lane, struct lane_message *message)
{
    struct room_wait *wait = (struct room_wait *)(void *)((char *)message - offsetof(struct room_wait, message));
    struct cqlring_session *session = wait->session;
    if (wait->cancelled) {
        end(wait, cqr_failure_make(CQLRING_CANCELLED, "cancelled by the application"));
        return;
    }
    if (lane->stopping || !cqr_session_takes(lane, session)) {
        end(wait, cqr_failure_make(CQLRING_CLOSED, "the session is closed"));
        return;
    }
    if (session->room_tail == NULL)
        session->room_tail = &session->room_head;
    wait->next = NULL;
    wait->link = session->room_tail;
    *session->room_tail = wait;
    session->room_tail = &wait->next;
    wait->timer.kind = TIMER_ROOM;
    if (wait->deadline_us != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &wait->timer, wait->deadline_us);
    look(lane, session);
}

/* What it was too much for may be enough for those behind it. */
static void give_up(struct lane *lane, struct room_wait *wait, struct failure *failure)
{
    struct cqlring_session *session = cqr_session_retain(wait->session);
    list_remove(lane, wait);
    end(wait, failure);
    look(lane, session);
    cqr_session_release(session);
}

void cqr_room_timer(struct lane *lane, struct timer *timer)
{
    struct room_wait *wait = (struct room_wait *)(void *)((char *)timer - offsetof(struct room_wait, timer));
    give_up(lane, wait, too_late(wait));
}

void cqr_room_close(struct lane *lane, struct cqlring_session *session)
{
    while (session->room_head != NULL) {
        struct room_wait *wait = session->room_head;
        list_remove(lane, wait);
        end(wait, cqr_failure_make(CQLRING_CLOSED, "the session was closed"));
    }
}

static void cancel_run(struct lane *lane, struct lane_message *message)
{
    struct room_wait *wait = (struct room_wait *)(void *)((char *)message - offsetof(struct room_wait, cancel_message));
    wait->cancelled = true;
    if (wait->link != NULL)
        give_up(lane, wait, cqr_failure_make(CQLRING_CANCELLED, "cancelled by the application"));
    cqlring_future_release(&wait->future);
}

/* ---- any thread ---- */

static struct room_wait *wait_of(cqlring_future *future)
{
    return (struct room_wait *)(void *)((char *)future - offsetof(struct room_wait, future));
}

static void cancel(cqlring_future *future)
{
    struct room_wait *wait = wait_of(future);
    if (atomic_exchange_explicit(&wait->cancel_posted, true, memory_order_acq_rel))
        return;
    wait->cancel_message.run = cancel_run;
    cqlring_future_retain(future);
    if (!cqr_lane_post(&wait->session->cluster->runtime->lanes[0], &wait->cancel_message))
        cqlring_future_release(future);
}

static void dispose(cqlring_future *future)
{
    struct room_wait *wait = wait_of(future);
    struct runtime_core *runtime = future->runtime;
    cqr_failure_free(future->error);
    cqr_session_release(wait->session);
    cqr_mem_free(wait);
    cqr_runtime_release(runtime);
}

cqlring_status cqlring_session_room(cqlring_session *session, uint64_t bytes, int64_t timeout_us, cqlring_future **future, cqlring_error *error)
{
    if (session == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_room: session and future must be given");
    if (timeout_us < -1)
        return cqr_error(error, CQLRING_INVALID, "cqlring_session_room: timeout_us %lld (-1 for none, 0 no wait, or microseconds)", (long long)timeout_us);
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_session_room: the session belongs to the parent process; open one in the child");
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_session_room: the session is closed");
    struct room_wait *wait = cqr_mem_zalloc(sizeof *wait);
    if (wait == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_session_room: out of memory");
    struct runtime_core *runtime = session->cluster->runtime;
    struct lane *lane = &runtime->lanes[0];
    wait->session = cqr_session_retain(session);
    wait->bytes = bytes;
    wait->timeout_us = timeout_us;
    wait->deadline_us = timeout_us < 0 ? INT64_MAX : cqr_deadline_us(lane->net->call->now_us(lane->net), timeout_us);
    cqr_future_init(&wait->future, FUTURE_ROOM, cqr_runtime_retain(runtime), dispose);
    *future = &wait->future;
    if (atomic_load_explicit(&session->room_waiters, memory_order_relaxed) == 0 && has_room(session, 0, bytes)) { /* else behind those who wait */
        end(wait, NULL);
        return CQLRING_OK;
    }
    if (timeout_us == 0) {
        end(wait, too_late(wait));
        return CQLRING_OK;
    }
    wait->future.cancel = cancel;
    wait->message.run = wait_run;
    wait->counted = true;
    atomic_fetch_add_explicit(&session->room_waiters, 1, memory_order_seq_cst);
    if (cqr_lane_post(lane, &wait->message))
        return CQLRING_OK;
    *future = NULL;
    atomic_fetch_sub_explicit(&session->room_waiters, 1, memory_order_relaxed);
    cqlring_future_release(&wait->future);
    cqlring_future_release(&wait->future);
    return cqr_error(error, CQLRING_CLOSED, "cqlring_session_room: the runtime has ended");
}
