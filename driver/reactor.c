/* SPDX-License-Identifier: Apache-2.0 */

/* The reactor's turn: take commands, wait for readiness, read, publish. It runs no application code, allocates nothing on the
   data path beyond its block pool, and never stops reading (decision 9). */

#include <assert.h>

#include "driver/lane.h"
#include "driver/node_stats.h"

struct completion *cqr_reactor_stage(struct lane *lane, enum completion_kind kind, void *subject)
{
    struct completion *entry = cqr_ring_stage(&lane->completions);
    *entry = (struct completion){.subject = subject, .kind = (uint8_t)kind};
    return entry;
}

void cqr_command_push(struct lane *lane, struct conn *conn)
{
    struct command_ring *ring = &lane->commands;
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    /* acquire: pairs with the release in cqr_reactor_commands. Never full: a connection has at most one entry (decision 8) */
    assert(tail - atomic_load_explicit(&ring->head, memory_order_acquire) <= ring->mask);
    ring->entries[tail & ring->mask] = conn;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release); /* pairs with the acquire in cqr_reactor_commands */
}

void cqr_reactor_commands(struct lane *lane)
{
    struct command_ring *ring = &lane->commands;
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    while (head != atomic_load_explicit(&ring->tail, memory_order_acquire)) {
        struct conn *conn = ring->entries[head & ring->mask];
        atomic_store_explicit(&ring->head, ++head, memory_order_release);
        /* acq_rel: pairs with cqr_conn_command; after it the submitter may push the connection again */
        cqr_reader_command(conn, atomic_exchange_explicit(&conn->commands, 0, memory_order_acq_rel));
    }
}

/* conn: whose event it was; NULL: a command's. */
static bool publish(struct lane *lane, struct conn *conn)
{
    if (!cqr_ring_publish(&lane->completions))
        return false;
    /* with a poller the submitter's turn follows on this very thread: it needs no waking */
    if (lane->park.poller == NULL && cqr_park_wake(&lane->park)) {
        cqr_count(&lane->reactor_stats.wakes_submitter, 1);
        if (conn != NULL && conn->reader.state == READER_UP) /* else the submitter may be letting go of the node */
            cqr_node_count(conn, wakes);
    }
    return true;
}

bool cqr_reactor_turn(struct lane *lane, int64_t deadline_us)
{
    struct poll_event events[EVENTS_PER_WAIT];
    cqr_reactor_commands(lane);
    bool any = publish(lane, NULL);
    int count = lane->poller->call->wait(lane->poller, events, EVENTS_PER_WAIT, any ? 0 : deadline_us);
    cqr_park_cancel(&lane->reactor_park);
    cqr_count(&lane->reactor_stats.turns, 1);
    for (int i = 0; i < count; i++) {
        cqr_reader_event(events[i].context, events[i].events);
        any = publish(lane, events[i].context) || any;
    }
    /* release: what was read in this round is published before the submitter sees the round counted (decision 10) */
    atomic_fetch_add_explicit(&lane->reactor_rounds, 1, memory_order_release);
    return any;
}
