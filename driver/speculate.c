/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/speculate.h"

#include <assert.h>

#include "driver/lane.h"
#include "driver/node_stats.h"
#include "driver/policy.h"
#include "driver/policy_latency.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/session.h"
#include "serialize/mem.h"

static void race_settled(struct lane *lane, struct op *op);

/* ---- when ---- */

static int64_t delay_us(struct lane *lane, const struct op_plan *plan)
{
    if (plan->percentile <= 0)
        return plan->copy_after_us;
    struct latency *latency = plan->session->lanes[lane->index].latency;
    int64_t delay = latency != NULL ? cqr_latency_percentile(latency, plan->percentile) : -1;
    return delay >= 0 && delay < plan->copy_after_us ? plan->copy_after_us : delay;
}

int64_t cqr_race_due_us(struct lane *lane, const struct op *op)
{
    if (op->race != NULL)
        return op->race->op == op ? op->race->next_us : INT64_MAX;
    if (op->version != NULL && op->version->is_lwt)
        return INT64_MAX; /* two proposers of one Paxos round are what nobody wants */
    int64_t delay = delay_us(lane, op->plan);
    return delay < 0 || delay > INT64_MAX - lane->now_us ? INT64_MAX : lane->now_us + delay;
}

void cqr_race_latency(struct lane *lane, const struct op *op)
{
    struct session_lane *part = &op->plan->session->lanes[lane->index];
    if (op->status != CQLRING_OK || op->first_sent_us == 0)
        return;
    if (part->latency == NULL && (part->latency = cqr_mem_zalloc(sizeof *part->latency)) == NULL)
        return;
    cqr_latency_note(part->latency, op->received_us - op->first_sent_us);
}

/* ---- races ---- */

static struct race *race_make(struct lane *lane, struct op *op)
{
    struct race *race = lane->race_free;
    if (race != NULL)
        lane->race_free = race->next;
    else if ((race = cqr_mem_alloc(sizeof *race)) == NULL)
        return NULL;
    *race = (struct race){.op = op, .settled = op->settled, .tried = op->tried, .next_us = lane->now_us};
    if (op->node != NULL)
        race->tried |= UINT64_C(1) << (op->node->index & 63);
    op->race = race;
    op->uncounted = true;
    op->settled = race_settled;
    return race;
}

static void race_free(struct lane *lane, struct race *race)
{
    race->op->race = NULL;
    race->op->uncounted = false;
    race->op->settled = race->settled;
    race->next = lane->race_free;
    lane->race_free = race;
}

void cqr_races_fini(struct lane *lane)
{
    while (lane->race_free != NULL) {
        struct race *race = lane->race_free;
        lane->race_free = race->next;
        cqr_mem_free(race);
    }
}

static bool is_write(const struct op *op)
{
    return !op->plan->is_read;
}

/* What the request's op has to know of an attempt that was not its own. */
static void merge(struct op *op, const struct op *copy)
{
    uint32_t attempts = (uint32_t)op->attempts + copy->attempts;
    op->attempts = attempts < UINT16_MAX ? (uint16_t)attempts : UINT16_MAX;
    op->maybe_applied = op->maybe_applied || copy->maybe_applied;
}

static void copy_remove(struct race *race, const struct op *copy)
{
    uint32_t i = 0;
    while (race->copies[i] != copy)
        i++;
    race->copies[i] = race->copies[--race->copy_count];
}

/* ---- ghosts: losers whose reply is in the ring ---- */

static void ghost_settled(struct lane *lane, struct op *op)
{
    cqr_op_give(lane, op);
}

/* Its request, statement and plan may be gone before the entry comes. */
static void ghost_make(struct op *copy)
{
    static const struct op_plan plan = {.opcode = OPCODE_QUERY, .is_read = true, .timeout_us = -1, .attempt_timeout_us = -1};
    copy->race = NULL;
    copy->settled = ghost_settled;
    copy->plan = &plan;
    copy->version = NULL;
    copy->body = NULL;
    copy->cancelled = true;
}

/* ---- the end ---- */

static void copy_leave(struct lane *lane, struct race *race, struct op *copy)
{
    struct op *op = race->op;
    merge(op, copy);
    bool was_in_flight = copy->state == OP_IN_FLIGHT;
    bool withdrawn = cqr_op_withdraw(lane, copy);
    if (was_in_flight && is_write(op) && (!withdrawn || copy->phase != CQLRING_NOT_SENT))
        op->maybe_applied = true;
    copy_remove(race, copy);
    if (!withdrawn) {
        ghost_make(copy);
        return;
    }
    copy->state = OP_NEW;
    cqr_op_give(lane, copy);
}

/* The outcome is a copy's; op itself is nowhere. */
static void end_with(struct lane *lane, struct race *race, struct op *winner)
{
    struct op *op = race->op;
    merge(op, winner);
    op->state = OP_NEW;
    op->phase = winner->phase;
    op->conn = winner->conn;
    op->node = winner->node;
    op->result = winner->result;
    winner->result = NULL;
    struct failure *failure = winner->failure;
    winner->failure = NULL;
    cqlring_status status = winner->status;
    if (status == CQLRING_OK) {
        cqr_count(&lane->stats.speculative_won, 1);
        cqr_node_count(op->conn, speculative_won);
    }
    cqr_op_give(lane, winner);
    race_free(lane, race);
    cqr_op_settle(lane, op, status, failure);
}

/* The outcome is op's own, and it is settled with it. */
static void end_own(struct lane *lane, struct race *race)
{
    struct op *op = race->op;
    race_free(lane, race);
    cqr_op_settled_again(lane, op);
}

static void race_end(struct lane *lane, struct race *race, struct op *winner)
{
    struct op *op = race->op;
    for (uint32_t i = race->copy_count; i > 0; i--)
        if (race->copies[i - 1] != winner)
            copy_leave(lane, race, race->copies[i - 1]);
    if (winner == op) {
        end_own(lane, race);
        return;
    }
    copy_remove(race, winner);
    bool was_in_flight = op->state == OP_IN_FLIGHT;
    if (!cqr_op_withdraw(lane, op)) {
        race->winner = winner; /* its own reply is a few entries away */
        op->cancelled = true;
        return;
    }
    if (was_in_flight && is_write(op) && op->phase != CQLRING_NOT_SENT)
        op->maybe_applied = true;
    end_with(lane, race, winner);
}

/* op's own entry has come, after a copy had already decided. */
static void late_own(struct lane *lane, struct race *race)
{
    struct op *op = race->op, *winner = race->winner;
    if (op->status == CQLRING_OK && winner->status != CQLRING_OK) { /* it went well after all */
        merge(op, winner);
        cqr_op_give(lane, winner);
        end_own(lane, race);
        return;
    }
    cqlring_result_release(op->result);
    op->result = NULL;
    if (op->failure != NULL)
        cqr_failure_free(&op->failure->error);
    op->failure = NULL;
    op->may_continue = false;
    end_with(lane, race, winner);
}

/* ---- attempts that fail ---- */

/* Would another node say the same (SP-04)? */
static bool is_decisive(const struct lane *lane, const struct op *op)
{
    if (op == op->race->op && (op->cancelled || lane->now_us >= op->deadline_us))
        return true;
    switch (op->status) {
    case CQLRING_LOST:
    case CQLRING_TIMEOUT:
    case CQLRING_TLS:
    case CQLRING_PROTOCOL:
    case CQLRING_UNREACHABLE:
    case CQLRING_NO_MEMORY: return false;
    case CQLRING_TOO_LARGE: return op->phase != CQLRING_NOT_SENT;
    case CQLRING_SERVER: break;
    default: return true;
    }
    struct attempt_outcome outcome = {.status = op->status,
                                      .phase = op->phase,
                                      .server = op->failure->has_body ? &op->failure->body : NULL,
                                      .idempotent = true,
                                      .patient = op->plan->patient,
                                      .retry_enabled = true};
    return cqr_retry_decide(&outcome) == RETRY_NO;
}

/* Its own attempt is over: the copies go on. */
static void park(struct lane *lane, struct op *op, bool final)
{
    struct race *race = op->race;
    assert(race->op == op && race->copy_count > 0);
    race->final = final;
    op->state = OP_WAIT_RACE;
    op->attempt_deadline_us = INT64_MAX;
    int64_t at = op->deadline_us < race->next_us ? op->deadline_us : race->next_us;
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    if (at != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, at);
}

static void drop_out(struct lane *lane, struct op *copy)
{
    struct race *race = copy->race;
    struct op *op = race->op;
    merge(op, copy);
    cqr_wheel_disarm(&lane->wheel, &copy->timer);
    copy_remove(race, copy);
    bool is_last = op->state == OP_WAIT_RACE && race->copy_count == 0;
    if (is_last && copy->failure != NULL && !cqr_failure_is_static(copy->failure)) { /* the latest news are the best */
        if (op->failure != NULL)
            cqr_failure_free(&op->failure->error);
        op->failure = copy->failure;
        op->phase = copy->phase;
        op->node = copy->node;
        copy->failure = NULL;
    }
    copy->state = OP_NEW;
    cqr_op_give(lane, copy);
    if (!is_last)
        return;
    if (op->failure == NULL) { /* neither was refused: their statements were unknown, and could not be prepared again there */
        op->failure = cqr_failure_make(CQLRING_UNREACHABLE, "%s: no node could take it", cqr_opcode_name(op->plan->opcode));
        op->other_only = false;
    }
    op->state = OP_NEW;
    if (race->final || op->cancelled)
        cqr_op_settle(lane, op, op->failure->error.status, op->failure);
    else
        cqr_op_try_again(lane, op);
}

static void race_settled(struct lane *lane, struct op *op)
{
    struct race *race = op->race;
    if (race->winner != NULL) {
        assert(op == race->op);
        late_own(lane, race);
        return;
    }
    bool is_own = op == race->op;
    if (op->status == CQLRING_OK || is_decisive(lane, op) || (is_own && race->copy_count == 0)) {
        race_end(lane, race, op);
        return;
    }
    if (is_own)
        park(lane, op, true);
    else
        drop_out(lane, op);
}

void cqr_race_route(struct op *op)
{
    struct race *race = op->race;
    if (race->copy_count == 0)
        return;
    op->tried = race->tried;
    op->other_only = true;
    if (op != race->op) { /* its values are the request's, and may have moved */
        op->values = race->op->values;
        op->values_size = race->op->values_size;
    }
}

void cqr_race_sent(struct lane *lane, struct op *op)
{
    struct race *race = op->race;
    if (op->node != NULL)
        race->tried |= UINT64_C(1) << (op->node->index & 63);
    if (op != race->op && op->attempts == 1) {
        race->sent++;
        cqr_count(&lane->stats.speculative, 1);
        cqr_node_count(op->conn, speculative);
    }
}

bool cqr_race_unplaced(struct lane *lane, struct op *op)
{
    struct race *race = op->race;
    if (op != race->op)
        drop_out(lane, op);
    else if (race->copy_count > 0)
        park(lane, op, false);
    else
        return false;
    return true;
}

bool cqr_race_retry(struct lane *lane, struct op *op)
{
    if (op == op->race->op && op->race->copy_count == 0)
        return false;
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    cqr_op_issue(lane, op);
    return true;
}

/* ---- a further copy ---- */

static void copy_send(struct lane *lane, struct race *race)
{
    struct op *op = race->op, *copy = cqr_op_take(lane, false);
    if (copy == NULL)
        return;
    copy->settled = race_settled;
    copy->owner = race;
    copy->race = race;
    copy->uncounted = true;
    copy->plan = op->plan;
    copy->version = op->version;
    copy->body = op->body;
    copy->text = op->text;
    copy->batch_count = op->batch_count;
    copy->consistency_1 = op->consistency_1;
    copy->paging_state = op->paging_state;
    copy->timestamp_us = op->timestamp_us; /* the row's, so it does not matter which of them the server keeps (decision 29) */
    copy->token = op->token;
    copy->has_token = op->has_token;
    copy->row = op->row;
    copy->tag = op->tag;
    copy->accepted_us = op->accepted_us;
    race->copies[race->copy_count++] = copy;
    cqr_op_issue(lane, copy);
}

void cqr_race_tick(struct lane *lane, struct op *op)
{
    struct race *race = op->race != NULL ? op->race : race_make(lane, op);
    bool waits = op->state == OP_WAIT_RACE;
    if (race != NULL) {
        uint32_t sent = race->sent;
        race->next_us = INT64_MAX;
        copy_send(lane, race);
        /* a copy's way ends at once only where no other node takes it: then there will hardly be one later */
        int64_t delay = delay_us(lane, op->plan);
        if (race->sent > sent && race->sent < op->plan->copies_max && delay >= 0 && delay < INT64_MAX - lane->now_us)
            race->next_us = lane->now_us + delay;
    }
    int64_t at = op->deadline_us;
    if (!waits && op->attempt_deadline_us < at)
        at = op->attempt_deadline_us;
    if (race != NULL && race->next_us < at)
        at = race->next_us;
    if (at != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, at);
}
