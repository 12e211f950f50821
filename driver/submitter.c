/* SPDX-License-Identifier: Apache-2.0 */

/* The submitter's turn: drain the ring to empty, settle, take new work, expire, issue, flush, and say how long it may sleep.

   Everything it touches hangs off the lane and belongs to whoever runs the turn (decision 16). While it is inside send, replies
   gather in the ring, so batches form without a timer. */

#include "driver/agreement.h"
#include "driver/authenticate.h"
#include "driver/contacts.h"
#include "driver/execution.h"
#include "driver/job.h"
#include "driver/lane.h"
#include "driver/node_stats.h"
#include "driver/prepare_ahead.h"
#include "driver/prepared.h"
#include "driver/record.h"
#include "driver/room.h"
#include "driver/runtime.h"
#include "driver/schema.h"
#include "driver/session.h"
#include "driver/shards.h"
#include "driver/trace.h"

enum { GAP_US = 100000, GAP_POLL_US = 1000 };

static void conn_down(struct lane *lane, struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    cqr_latency_write(conn);
    writer->gone = true; /* those that are settled here may have others issued at once */
    /* all entries of it have been drained before this one: what is still in a slot will never be answered (decision 12) */
    for (uint32_t i = 0; i < conn->slot_count; i++) {
        uintptr_t word = atomic_exchange_explicit(&conn->slots[i], SLOT_EMPTY, memory_order_acq_rel);
        if (word == SLOT_ORPHAN) {
            writer->orphans--;
            lane->orphans--;
        }
        if (word > SLOT_GONE) {
            writer->in_flight--;
            cqr_op_lost(lane, (struct op *)word, conn);
        }
    }
    cqr_prepare_ahead_lost(lane, conn);
    cqr_reprepare_lost(lane, conn);
    cqr_record_close(conn);
    cqr_auth_end(conn);
    cqr_link_down(lane, conn);
    cqr_writer_fini(conn);
    if (conn->next != NULL)
        conn->next->link = conn->link;
    *conn->link = conn->next;
    lane->conn_count--;
    cqr_cluster_release(conn->cluster);
    conn->cluster = NULL;
    cqr_conn_command(conn, COMMAND_GOODBYE); /* the reactor closes and frees it */
}

static void conn_events(struct lane *lane, struct conn *conn)
{
    for (struct inbox_item *item = cqr_inbox_take(&conn->events), *next; item != NULL; item = next) {
        next = item->next;
        struct conn_event *event = (struct conn_event *)item;
        atomic_fetch_add_explicit(&conn->event_taken, 1, memory_order_relaxed);
        if (conn->home != NULL && conn->home->event != NULL)
            conn->home->event(lane, conn->home, event);
        cqr_mem_free(event);
    }
    if (atomic_exchange_explicit(&conn->events_lost, false, memory_order_relaxed) && conn->home != NULL && conn->home->event != NULL)
        conn->home->event(lane, conn->home, NULL);
}

static void entry_take(struct lane *lane, const struct completion *entry)
{
    switch ((enum completion_kind)entry->kind) {
    case COMPLETION_VOID:
        cqr_op_void(lane, entry->subject);
        break;
    case COMPLETION_LARGE:
        cqr_op_large(lane, (struct op *)entry->subject, entry->size);
        break;
    case COMPLETION_DONE:
        cqr_op_reply(lane, entry->subject, entry);
        break;
    case COMPLETION_STREAM_FREE: {
        struct conn *conn = entry->subject;
        conn->writer.orphans--;
        lane->orphans--;
        conn->writer.received_us = lane->now_us;
        if (conn->writer.suspect)
            cqr_conn_trust(lane, conn);
        cqr_writer_stream_free(conn, entry->stream);
        cqr_conn_publish(conn);
        cqr_count(&lane->stats.late_replies, 1);
        cqr_node_count(conn, late_replies);
        if (lane->waiting_head != NULL)
            lane->waiting_room = true;
        break;
    }
    case COMPLETION_WRITABLE:
        cqr_writer_writable(entry->subject);
        if (lane->waiting_head != NULL)
            lane->waiting_room = true;
        break;
    case COMPLETION_UP:
        cqr_link_up(lane, entry->subject);
        break;
    case COMPLETION_DOWN:
        conn_down(lane, entry->subject);
        break;
    case COMPLETION_AUTH:
        cqr_link_auth(lane, entry->subject);
        break;
    case COMPLETION_EVENT:
        conn_events(lane, entry->subject);
        break;
    }
}

/* Did it bring anything? */
static bool drain(struct lane *lane)
{
    const struct completion *entries;
    uint32_t count;
    bool any = false;
    while ((count = cqr_ring_peek(&lane->completions, &entries)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            if (i + 4 < count)
                __builtin_prefetch(entries[i + 4].subject, 1);
            entry_take(lane, &entries[i]);
        }
        cqr_ring_consume(&lane->completions, count);
        any = true;
    }
    return any;
}

/* Was there any? */
static bool messages(struct lane *lane)
{
    struct inbox_item *item = cqr_inbox_take(&lane->inbox);
    bool any = item != NULL;
    for (struct inbox_item *next; item != NULL; item = next) {
        next = item->next;
        struct lane_message *message = (struct lane_message *)item;
        message->run(lane, message);
    }
    return any;
}

/* Let the reactor have a round, though nobody has anything for it. */
static void reactor_look(struct lane *lane)
{
    if (!lane->reactor_started)
        return; /* it is this very thread, and has one a turn */
    cqr_park_wake(&lane->reactor_park);
    lane->poller->call->wake(lane->poller);
}

/* Did anything end by it? */
static bool expire(struct lane *lane)
{
    bool any = false;
    if (lane->gap) {
        /* acquire: pairs with the reactor's count at the end of a round: a full read begun after the gap has been published */
        if ((int32_t)(atomic_load_explicit(&lane->reactor_rounds, memory_order_acquire) - lane->gap_rounds) < 0) {
            reactor_look(lane); /* again: a wake-up is worth one round, and nothing else may come that would make it look */
            return false;
        }
        lane->gap = false;
        any = drain(lane);
    }
    if (cqr_wheel_next(&lane->wheel) > lane->now_us)
        return any;
    struct timer *timer;
    while ((timer = cqr_wheel_pop(&lane->wheel, lane->now_us)) != NULL) {
        any = true;
        switch (timer->kind) {
        case TIMER_OP:
            cqr_op_timer(lane, (struct op *)(void *)timer);
            break;
        case TIMER_CONN:
            cqr_conn_watch(lane, (struct conn *)(void *)((char *)timer - offsetof(struct conn, writer.watch)));
            break;
        case TIMER_LINK:
            cqr_link_timer(lane, (struct pool_link *)(void *)((char *)timer - offsetof(struct pool_link, timer)));
            break;
        case TIMER_CLOSE:
            cqr_close_timer(lane, timer);
            break;
        case TIMER_CONTACTS:
            cqr_contacts_timer(lane, timer);
            break;
        case TIMER_CONTROL:
            cqr_control_timer(lane, timer);
            break;
        case TIMER_AGREEMENT:
            cqr_agreement_timer(lane, timer);
            break;
        case TIMER_SCHEMA:
            cqr_schema_timer(lane, timer);
            break;
        case TIMER_TRACE:
            cqr_trace_timer(lane, timer);
            break;
        case TIMER_SHARDS:
            cqr_shards_timer(lane, timer);
            break;
        case TIMER_AHEAD:
            cqr_prepare_ahead_timer(lane, timer);
            break;
        case TIMER_ROOM:
            cqr_room_timer(lane, timer);
            break;
        default:
            break;
        }
    }
    return any;
}

static void flush(struct lane *lane)
{
    struct conn *conn = lane->dirty;
    lane->dirty = NULL;
    while (conn != NULL) {
        struct conn *next = conn->writer.next_dirty;
        conn->writer.dirty = false;
        cqr_writer_flush(conn);
        cqr_latency_write(conn);
        cqr_conn_publish(conn);
        conn = next;
    }
}

/* Who has waited longest takes what came free. */
static void waiting(struct lane *lane)
{
    if (lane->waiting_retry || lane->waiting_room)
        cqr_waiting_run(lane);
    cqr_executions_waiting_run(lane);
}

void cqr_submitter_turn(struct lane *lane, int64_t now_us)
{
    if (now_us > lane->now_us)
        lane->now_us = now_us;
    cqr_count(&lane->stats.turns, 1);
    if (lane->sleep_until_us != 0 && lane->now_us - lane->sleep_until_us > GAP_US && !lane->gap && cqr_wheel_next(&lane->wheel) <= lane->now_us + GAP_US) {
        /* this process stood still, or the machine did: replies may lie unread in the sockets (decision 10) */
        lane->gap = true;
        lane->gap_rounds = atomic_load_explicit(&lane->reactor_rounds, memory_order_acquire) + (lane->reactor_started ? 2 : 1);
        reactor_look(lane);
    }
    lane->sleep_until_us = lane->now_us; /* until it plans to sleep it is expected back at once */
    bool brought = drain(lane);
    /* single requests and jobs that wait for the same room take turns at what came free, or those asked first take it all */
    bool jobs_first = brought && !lane->jobs_first && lane->parts != NULL && (lane->waiting_head != NULL || lane->exec_head != NULL);
    if (brought)
        lane->jobs_first = jobs_first;
    if (jobs_first)
        cqr_job_turn(lane);
    waiting(lane); /* before those that are asked only now */
    bool more = messages(lane);
    more = expire(lane) || more;
    waiting(lane);
    if (!jobs_first || more) /* again: what those gave back, nobody else would tell a job of */
        cqr_job_turn(lane);
    flush(lane);
    if (atomic_load_explicit(&lane->commands.tail, memory_order_relaxed) != atomic_load_explicit(&lane->commands.head, memory_order_relaxed) &&
        cqr_park_wake(&lane->reactor_park))
        cqr_count(&lane->stats.wakes_reactor, 1);
}

bool cqr_submitter_has_input(struct lane *lane)
{
    return !cqr_ring_is_empty(&lane->completions) || !cqr_inbox_is_empty(&lane->inbox);
}

int64_t cqr_submitter_next(struct lane *lane)
{
    if (lane->waiting_retry || lane->waiting_room)
        return 0;
    if (lane->exec_head != NULL && cqr_op_is_there(lane))
        return 0; /* a job gave it back after those that wait for one had been looked at */
    int64_t next = cqr_job_next(lane);
    int64_t wheel = cqr_wheel_next(&lane->wheel);
    if (lane->exec_head != NULL && lane->exec_due_us < next)
        next = lane->exec_due_us;
    if (lane->gap && wheel < lane->now_us + GAP_POLL_US)
        wheel = lane->now_us + GAP_POLL_US;
    if (wheel < next)
        next = wheel;
    /* only a planned wake-up in the near future says anything about a gap */
    lane->sleep_until_us = next == INT64_MAX ? 0 : next > lane->now_us ? next : lane->now_us;
    return next;
}
