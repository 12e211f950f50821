/* SPDX-License-Identifier: Apache-2.0 */

/* Ops on their way out: where they come from, to which connection they go, and who waits for one. What becomes of them then is in
   request.c. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/policy.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/shards.h"
#include "driver/speculate.h"

enum { OWN_OPS = 64 };

/* ---- pool ---- */

bool cqr_op_is_there(const struct lane *lane)
{
    return lane->op_count - lane->ops_used > OWN_OPS;
}

/* By cache lines: of 64 bytes gcc makes four stores, of anything much larger a slow `rep stos`. */
static void op_clear(struct op *op)
{
    enum { LINE = 64 };
    _Static_assert(sizeof *op == 6 * LINE, "whole lines");
    uint8_t *at = (uint8_t *)op;
    memset(at, 0, LINE);
    memset(at + LINE, 0, LINE);
    memset(at + 2 * LINE, 0, LINE);
    memset(at + 3 * LINE, 0, LINE);
    memset(at + 4 * LINE, 0, LINE);
    memset(at + 5 * LINE, 0, LINE);
}

struct op *cqr_op_take(struct lane *lane, bool own)
{
    if (lane->op_count - lane->ops_used <= (own ? 0 : OWN_OPS))
        return NULL;
    struct op *op = lane->op_free;
    if (op != NULL)
        lane->op_free = op->link;
    else
        op = &lane->ops[lane->ops_fresh++]; /* first use: memory is touched only as far as it is needed */
    lane->ops_used++;
    op_clear(op);
    op->state = OP_NEW;
    op->timer.kind = TIMER_OP;
    op->deadline_us = INT64_MAX;
    op->attempt_deadline_us = INT64_MAX;
    return op;
}

static __attribute__((noinline)) void op_release(struct lane *lane, struct op *op)
{
    cqr_values_release(lane, op);
    cqlring_result_release(op->result);
    cqlring_result_release(op->page);
    if (op->failure != NULL)
        cqr_failure_free(&op->failure->error);
    cqr_block_release(op->reply_block);
}

void cqr_op_give(struct lane *lane, struct op *op)
{
    assert(op->state == OP_NEW || op->state == OP_SETTLED);
    if (((uintptr_t)op->values_block | (uintptr_t)op->result | (uintptr_t)op->page | (uintptr_t)op->failure | (uintptr_t)op->reply_block) != 0)
        op_release(lane, op);
    op->state = OP_FREE;
    op->link = lane->op_free;
    lane->op_free = op;
    lane->ops_used--;
}

const char *cqr_opcode_name(uint8_t opcode)
{
    switch (opcode) {
    case OPCODE_EXECUTE:
        return "EXECUTE";
    case OPCODE_QUERY:
        return "QUERY";
    case OPCODE_BATCH:
        return "BATCH";
    case OPCODE_PREPARE:
        return "PREPARE";
    case OPCODE_OPTIONS:
        return "OPTIONS";
    default:
        return "request";
    }
}

/* ---- issue ---- */

static inline void start(struct lane *lane, struct op *op)
{
    const struct op_plan *plan = op->plan;
    if (op->accepted_us == 0)
        op->accepted_us = lane->now_us;
    op->deadline_us = cqr_deadline_us(op->accepted_us, plan->timeout_us);
    if (op->timestamp_us == 0) {
        if (plan->timestamp_us != 0)
            op->timestamp_us = plan->timestamp_us;
        else if (plan->session != NULL && plan->opcode != OPCODE_PREPARE)
            op->timestamp_us = cqr_cluster_timestamp(lane, plan->session->cluster);
        else
            op->timestamp_us = INT64_MIN;
    }
}

void cqr_op_start(struct lane *lane, struct op *op)
{
    start(lane, op);
}

static inline void arm(struct lane *lane, struct op *op)
{
    int64_t deadline = op->deadline_us;
    op->attempt_deadline_us = INT64_MAX;
    if (op->plan->watched) {
        int64_t watch = op->attempt_deadline_us = cqr_deadline_us(lane->now_us, op->plan->attempt_timeout_us);
        if (op->plan->copies_max > 0 && (watch = cqr_race_due_us(lane, op)) > op->attempt_deadline_us)
            watch = op->attempt_deadline_us;
        if (watch < deadline)
            deadline = watch;
    }
    if (deadline != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, deadline);
}

static void waiting_keep(struct lane *lane, struct op *op)
{
    op->link = NULL;
    if (lane->waiting_tail != NULL)
        lane->waiting_tail->link = op;
    else
        lane->waiting_head = op;
    lane->waiting_tail = op;
}

static void waiting_add(struct lane *lane, struct op *op)
{
    op->state = OP_WAIT_CONN;
    waiting_keep(lane, op);
    if (op->deadline_us != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, op->deadline_us);
}

void cqr_waiting_remove(struct lane *lane, struct op *op)
{
    struct op *before = NULL;
    for (struct op *at = lane->waiting_head; at != op; at = at->link)
        before = at;
    if (before != NULL)
        before->link = op->link;
    else
        lane->waiting_head = op->link;
    if (lane->waiting_tail == op)
        lane->waiting_tail = before;
    op->link = NULL;
}

static void settle_unreachable(struct lane *lane, struct op *op)
{
    if (op->failure != NULL) { /* an attempt said more than "nobody is there" */
        cqr_op_settle(lane, op, op->failure->error.status, op->failure);
        return;
    }
    char reasons[256];
    cqr_pool_reasons(lane, op->plan->session, op->plan->target, reasons, sizeof reasons);
    cqr_op_settle(lane, op, CQLRING_UNREACHABLE,
                  cqr_failure_make(CQLRING_UNREACHABLE, "%s: no node can be reached%s%s", cqr_opcode_name(op->plan->opcode),
                                   reasons[0] != '\0' ? ": " : "", reasons));
}

static void written(struct lane *lane, struct op *op)
{
    op->other_only = false;
    arm(lane, op);
    if (op->race != NULL)
        cqr_race_sent(lane, op);
}

static bool refuse_by_write(struct lane *lane, struct op *op, enum write_result result)
{
    if (result == WRITE_TOO_LARGE) {
        cqr_op_settle(lane, op, CQLRING_TOO_LARGE,
                      cqr_failure_make(CQLRING_TOO_LARGE, "%s of %u bytes of values cannot be framed: a frame takes %d bytes in all, an identifier or name 65535",
                                       cqr_opcode_name(op->plan->opcode), op->values_size, PROTO_BODY_MAX));
        return true;
    }
    if (result == WRITE_NO_MEMORY) {
        cqr_op_settle(lane, op, CQLRING_NO_MEMORY, cqr_failure_make(CQLRING_NO_MEMORY, "%s: out of memory while framing", cqr_opcode_name(op->plan->opcode)));
        return true;
    }
    return false;
}

/* Where its last attempt was; NULL: it cannot take it, so another one may. */
static struct conn *same_conn(const struct lane *lane, struct op *op)
{
    struct pool *pool = op->plan->session->lanes[lane->index].pool;
    op->same = false;
    if (op->node == NULL || op->node->index >= pool->link_count || (op->race != NULL && op->race->copy_count > 0))
        return NULL;
    const struct pool_link *link = pool->links[op->node->index];
    struct conn *conn = link != NULL && link->up ? link->conn : NULL;
    if (conn != NULL && link->shards != NULL)
        conn = cqr_route_shard(lane, op, link);
    return conn != NULL && !conn->writer.suspect && cqr_writer_has_room(conn) ? conn : NULL;
}

void cqr_op_issue(struct lane *lane, struct op *op)
{
    op->state = OP_NEW;
    if (lane->now_us >= op->deadline_us) {
        cqr_op_timer(lane, op);
        return;
    }
    bool any_up = false, hope = false;
    if (op->race != NULL)
        cqr_race_route(op);
    struct conn *conn = op->same ? same_conn(lane, op) : NULL;
    if (conn == NULL)
        conn = cqr_route(lane, op, NULL, &any_up, &hope);
    if (conn != NULL) {
        enum write_result result = cqr_writer_put(conn, op, NULL, 0, lane->now_us);
        if (result == WRITE_OK) {
            written(lane, op);
            return;
        }
        if (refuse_by_write(lane, op, result))
            return;
    }
    if (op->race != NULL && cqr_race_unplaced(lane, op))
        return;
    if (conn != NULL) {
        /* it waits: the socket has no room after all */
    } else if (op->other_only && any_up) {
        /* every node that there is has been tried: the last outcome stands, but a job's row tries again */
        if (!op->plan->patient) {
            struct failure *failure = op->failure;
            cqr_op_settle(lane, op, failure->error.status, failure);
            return;
        }
        op->other_only = false;
        op->tried = 0;
        if (op->race != NULL)
            op->race->tried = 0;
        cqr_op_issue(lane, op);
        return;
    } else if (!any_up && !hope && !op->plan->patient) {
        settle_unreachable(lane, op);
        return;
    }
    waiting_add(lane, op);
}

void cqr_op_issue_on(struct lane *lane, struct op *op, struct conn *conn)
{
    if (op->race != NULL)
        cqr_race_route(op);
    enum write_result result = conn->writer.state == WRITER_UP ? cqr_writer_put(conn, op, NULL, 0, lane->now_us) : WRITE_FULL;
    if (result == WRITE_OK)
        written(lane, op);
    else if (!refuse_by_write(lane, op, result))
        cqr_op_issue(lane, op);
}

enum write_result cqr_op_issue_row(struct lane *lane, struct op *op, struct conn *conn, const cqlring_bytes *cells, uint32_t cell_count, struct row_head *head)
{
    start(lane, op);
    enum write_result result = cqr_writer_put_row(conn, op, cells, cell_count, head, lane->now_us);
    if (result == WRITE_OK)
        arm(lane, op);
    return result;
}

enum write_result cqr_op_issue_batch(struct lane *lane, struct op *op, struct conn *conn)
{
    start(lane, op);
    enum write_result result = cqr_writer_put_kept(conn, op, lane->now_us);
    if (result == WRITE_OK)
        arm(lane, op);
    return result;
}

static bool link_has_room(const struct pool_link *link)
{
    if (link == NULL || !link->up)
        return false;
    if (link->shards == NULL)
        return cqr_writer_has_room(link->conn);
    for (uint32_t i = 0; i < link->shards->count; i++)
        if (link->shards->conns[i] != NULL && cqr_writer_has_room(link->shards->conns[i]))
            return true;
    return false;
}

/* Of one pool: those of its links before `at` have no room, as far as this pass is concerned. */
struct room {
    const struct pool *pool;
    uint32_t at;
};

static bool has_room(struct room *room, const struct lane *lane, const struct op *op)
{
    const struct pool *pool = op->plan->session != NULL ? op->plan->session->lanes[lane->index].pool : NULL;
    if (pool == NULL)
        return true; /* who knows */
    if (room->pool != pool)
        *room = (struct room){pool, 0};
    while (room->at < pool->link_count && !link_has_room(pool->links[room->at]))
        room->at++;
    return room->at < pool->link_count;
}

void cqr_waiting_run(struct lane *lane)
{
    bool all = lane->waiting_retry;
    struct room room = {NULL, 0};
    lane->waiting_retry = lane->waiting_room = false;
    struct op *op = lane->waiting_head;
    lane->waiting_head = lane->waiting_tail = NULL;
    for (struct op *next; op != NULL; op = next) {
        next = op->link;
        if (!all && !has_room(&room, lane, op)) { /* thousands may wait: who cannot go now costs next to nothing */
            waiting_keep(lane, op);
            continue;
        }
        op->link = NULL;
        cqr_wheel_disarm(&lane->wheel, &op->timer);
        cqr_op_issue(lane, op); /* waits again when it must, in the same order */
    }
}

void cqr_op_wait(struct lane *lane, struct op *op, int64_t delay)
{
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    if (delay > 0) {
        op->state = OP_WAIT_RETRY;
        cqr_wheel_arm(&lane->wheel, &op->timer, lane->now_us + delay);
    } else {
        /* not from inside the drain: the next pass over the waiting list tries it, after all of this turn's news */
        waiting_add(lane, op);
        lane->waiting_retry = true;
    }
}

void cqr_op_try_again(struct lane *lane, struct op *op)
{
    int64_t delay = 0;
    if (op->plan->patient && op->phase != CQLRING_NOT_SENT)
        delay = cqr_retry_backoff_us(op->tries, cqr_random(&lane->random));
    if (lane->now_us + delay >= op->deadline_us)
        cqr_op_settle(lane, op, op->failure->error.status, op->failure);
    else
        cqr_op_wait(lane, op, delay);
}
