/* SPDX-License-Identifier: Apache-2.0 */

/* The way of one op on the submitter: issue, reply or loss or time-out, retry, settle. Every path ends in cqr_op_settle, once;
   an op is never in two places. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/agreement.h"
#include "driver/execution.h"
#include "driver/job.h"
#include "driver/lane.h"
#include "driver/node_stats.h"
#include "driver/partition_rest.h"
#include "driver/policy.h"
#include "driver/policy_retry.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/speculate.h"
#include "driver/words.h"
#include "serialize/buf.h"

enum { REPREPARES_MAX = 2 }; /* beyond one for each statement of it */

static const char *node_text(const struct op *op)
{
    return op->node != NULL ? cqr_node_place(op->node)->text : op->conn != NULL ? op->conn->text : "no node";
}

static bool is_write(const struct op *op)
{
    return !op->plan->is_read && (op->plan->opcode == OPCODE_EXECUTE || op->plan->opcode == OPCODE_QUERY || op->plan->opcode == OPCODE_BATCH);
}

/* ---- settle ---- */

/* What the error says beyond its sentence. */
static __attribute__((noinline, cold)) void error_fill(struct lane *lane, struct op *op)
{
    if (cqr_failure_is_static(op->failure)) {
        op->failure = cqr_failure_spare(op->status, op->phase, op->maybe_applied);
        return;
    }
    cqlring_error *error = &op->failure->error;
    assert(error->status == op->status);
    error->phase = op->phase;
    error->may_have_been_applied = op->maybe_applied;
    error->attempts = op->attempts;
    if (op->first_sent_us != 0) {
        error->queued_us = cqr_elapsed_us(op->accepted_us, op->first_sent_us);
        error->in_flight_us = cqr_elapsed_us(op->first_sent_us, op->received_us);
    } else {
        error->queued_us = cqr_elapsed_us(op->accepted_us, op->received_us);
    }
    if (op->node != NULL || op->conn != NULL)
        snprintf(error->node, sizeof error->node, "%s", node_text(op));
    cqr_request_log_failed(lane, op);
}

static inline void count_settled(struct lane *lane, cqlring_status status)
{
    cqr_count(&lane->stats.settled, 1);
    lane->settled_this_turn++;
    if (status != CQLRING_OK) {
        cqr_count(&lane->stats.failed, 1);
        cqr_count(&lane->stats.failed_by[(unsigned)status & 15], 1);
    }
}

static __attribute__((noinline, cold)) void failure_replaced(struct op *op, struct failure *by)
{
    cqr_failure_follow(by, op->failure);
    cqr_failure_free(&op->failure->error);
}

/* Inline so that the plain VOID's way is a straight one. */
static inline __attribute__((always_inline)) void settle(struct lane *lane, struct op *op, cqlring_status status, struct failure *failure)
{
    assert(op->state != OP_SETTLED && op->state != OP_FREE);
    if (op->timer.link != NULL)
        cqr_wheel_disarm(&lane->wheel, &op->timer);
    op->state = OP_SETTLED;
    op->status = status;
    op->received_us = lane->now_us;
    if (op->failure != NULL && op->failure != failure)
        failure_replaced(op, failure);
    op->failure = failure;
    op->may_continue = op->pages && status == CQLRING_OK && op->result != NULL && op->result->paging_state.data != NULL;
    /* a failed row keeps them until its sink has seen them (cqlring_completion_cells) */
    if (op->values_block != NULL && !op->may_continue && status == CQLRING_OK)
        cqr_values_release(lane, op);
    if (!op->uncounted)
        count_settled(lane, status);
    if (status != CQLRING_OK)
        error_fill(lane, op);
    else
        op->maybe_applied = false;
    op->settled(lane, op);
}

void cqr_op_settle(struct lane *lane, struct op *op, cqlring_status status, struct failure *failure)
{
    settle(lane, op, status, failure);
}

void cqr_op_settled_again(struct lane *lane, struct op *op)
{
    assert(op->state == OP_SETTLED && !op->uncounted);
    count_settled(lane, op->status);
    if (op->status != CQLRING_OK)
        error_fill(lane, op);
    else
        op->maybe_applied = false;
    op->settled(lane, op);
}

/* ---- an attempt failed ---- */

static void shed(struct lane *lane, struct conn *conn)
{
    cqr_adapt_shed(&conn->writer.adapt, lane->now_us);
    if (conn->writer.adapt.shed_until_us > lane->shed_until_us)
        lane->shed_until_us = conn->writer.adapt.shed_until_us;
}

/* Does the node say, or show, that it has more to do than it can? */
static bool is_too_much(const struct op *op, cqlring_status status, const struct error_body *server)
{
    if (server == NULL)
        return status == CQLRING_TIMEOUT && op->phase != CQLRING_NOT_SENT;
    const struct dialect *dialect = &op->conn->dialect;
    return server->code == ERROR_OVERLOADED || ((dialect->extensions & EXT_RATE_LIMIT) != 0 && server->code == dialect->rate_limit_code);
}

static void attempt_note(const struct lane *lane, const struct op *op, cqlring_status status, const struct error_body *server, struct failure *failure)
{
    cqr_failure_follow(failure, op->failure);
    cqr_failure_attempt(failure, &(cqlring_attempt){.failed_us = lane->now_us,
                                                    .node = op->node,
                                                    .server_code = server != NULL ? server->code : 0,
                                                    .status = (uint16_t)status,
                                                    .phase = op->phase});
}

static void attempt_failed(struct lane *lane, struct op *op, cqlring_status status, const struct error_body *server, struct failure *failure)
{
    if (op->state == OP_IN_FLIGHT) /* else no connection is to blame, and the last one may be gone */
        cqr_node_stats_error(op->conn, status, server != NULL ? server->code : 0);
    attempt_note(lane, op, status, server, failure);
    if (is_write(op) && cqr_maybe_applied(status, op->phase, server))
        op->maybe_applied = true;
    struct attempt_outcome outcome = {.status = status,
                                      .phase = op->phase,
                                      .server = server,
                                      .idempotent = op->plan->idempotent || op->plan->is_read,
                                      .patient = op->plan->patient,
                                      .retry_enabled = op->plan->retry,
                                      .tries = op->tries,
                                      .unreadable = op->unreadable};
    bool cancelled = op->cancelled || (op->race != NULL && op->race->op->cancelled);
    enum retry_decision decision = cancelled || cqr_op_is_own(op) || lane->stopping ? RETRY_NO : cqr_retry_decide(&outcome);
    if (server != NULL && server->code == ERROR_OVERLOADED)
        cqr_node_rest(lane, op->conn);
    if (op->state == OP_IN_FLIGHT && is_too_much(op, status, server))
        shed(lane, op->conn);
    struct retry_answer answer = {.decision = decision};
    if (!cancelled && !cqr_op_is_own(op) && !lane->stopping)
        answer = cqr_retry_ask(op, &outcome, failure, decision);
    decision = answer.decision;
    op->consistency_1 = answer.consistency_1;
    if (answer.ignore) {
        cqr_failure_free(&failure->error);
        cqr_op_settle(lane, op, CQLRING_OK, NULL);
        return;
    }
    int64_t delay = 0, rest = -1;
    if (server != NULL && server->rate_limited && op->plan->patient) /* also where this row is not tried again */
        rest = cqr_partition_refused(lane, op, answer.is_own ? answer.delay_us : -1);
    if (decision != RETRY_NO && op->phase != CQLRING_NOT_SENT) {
        bool overloaded = server != NULL && (server->code == ERROR_OVERLOADED || server->code == ERROR_BOOTSTRAPPING);
        if (rest >= 0)
            delay = rest;
        else if (answer.is_own)
            delay = answer.delay_us;
        else if (op->plan->patient || overloaded)
            delay = cqr_retry_backoff_us(op->tries, cqr_random(&lane->random));
        if (delay >= op->deadline_us - lane->now_us)
            decision = RETRY_NO;
    }
    if (decision == RETRY_NO) {
        cqr_op_settle(lane, op, status, failure);
        return;
    }
    cqr_count(&lane->stats.retries, 1);
    struct node_stats *stats = op->state == OP_IN_FLIGHT ? atomic_load_explicit(&op->conn->stats, memory_order_relaxed) : NULL;
    if (stats != NULL)
        cqr_count(&stats->retries, 1);
    op->reprepares = 0; /* the bound is one try's: a row that is tried until its deadline may meet a node that has forgotten again */
    if (op->phase != CQLRING_NOT_SENT) {
        op->tries++;
        cqr_job_row_retried(op);
        if (status == CQLRING_PROTOCOL && op->phase == CQLRING_ANSWERED && op->unreadable < UINT8_MAX)
            op->unreadable++;
        op->same = decision == RETRY_SAME;
        if (op->node != NULL && !op->same)
            op->tried |= UINT64_C(1) << (op->node->index & 63);
    }
    op->other_only = decision == RETRY_NEXT && op->phase != CQLRING_NOT_SENT;
    if (op->failure != NULL && op->failure != failure)
        failure_replaced(op, failure);
    op->failure = failure;
    if (op->race == NULL || !cqr_race_retry(lane, op))
        cqr_op_wait(lane, op, delay);
}

void cqr_op_lost(struct lane *lane, struct op *op, struct conn *conn)
{
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    op->phase = cqr_writer_was_sent(conn, op) ? CQLRING_SENT : CQLRING_NOT_SENT;
    op->frame_block = NULL;
    const char *why = cqr_conn_writer_knows(conn) ? conn->writer.shut_text : conn->down_text;
    cqlring_status status = CQLRING_LOST;
    attempt_failed(lane, op, status, NULL,
                   cqr_failure_make(status, "%s to %s: connection lost %s: %s", cqr_opcode_name(op->plan->opcode), conn->text,
                                    op->phase == CQLRING_SENT ? "before the answer" : "before it was sent", why));
}

static void orphans_check(struct lane *lane, struct conn *conn)
{
    if (conn->home == NULL)
        return;
    /* with more than this the streams left are fewer than what may be in flight, and none at all in the end */
    uint32_t max = conn->writer.stream_count - conn->writer.in_flight_max;
    if (conn->home->pool != NULL && conn->home->pool->cluster->orphans_max < max)
        max = conn->home->pool->cluster->orphans_max;
    if (conn->writer.orphans > max) {
        char why[240];
        snprintf(why, sizeof why, "%s leaves %u requests unanswered after their time-out (at most %u may be): the connection is replaced", conn->text,
                 conn->writer.orphans, max);
        conn->writer.replaced = true;
        cqr_writer_shut(conn, CQLRING_LOST, why);
    }
    (void)lane;
}

void cqr_op_timer(struct lane *lane, struct op *op)
{
    struct conn *conn = op->conn;
    bool final = lane->now_us >= op->deadline_us;
    if (op->state == OP_WAIT_AGREEMENT) {
        cqr_agreement_give_up(lane, op);
        return;
    }
    if (!final && op->plan->copies_max > 0 && (op->state == OP_IN_FLIGHT || op->state == OP_WAIT_RACE) && lane->now_us < op->attempt_deadline_us) {
        cqr_race_tick(lane, op);
        return;
    }
    switch (op->state) {
    case OP_WAIT_RETRY:
        if (!final) {
            if (lane->rest_count == 0 || !cqr_partition_waits_on(lane, op))
                cqr_op_issue(lane, op);
            return;
        }
        break;
    case OP_WAIT_CONN:
        cqr_waiting_remove(lane, op);
        break;
    case OP_WAIT_PREPARE:
        cqr_reprepare_forget(lane, op);
        break;
    case OP_IN_FLIGHT:
        if (!cqr_writer_orphan(conn, op))
            return; /* its reply is in the ring */
        cqr_count(&lane->stats.timeouts, 1);
        break;
    default:
        break;
    }
    if (final && op->failure != NULL && (op->state == OP_WAIT_CONN || op->state == OP_WAIT_RETRY || op->state == OP_NEW)) {
        struct failure *failure = op->failure; /* what the last attempt met says more than the time */
        cqr_op_settle(lane, op, failure->error.status, failure);
        return;
    }
    if (op->state != OP_IN_FLIGHT && op->attempts == 0)
        op->phase = CQLRING_NOT_SENT;
    int64_t limit_us = final ? op->plan->timeout_us : op->plan->attempt_timeout_us;
    bool was_in_flight = op->state == OP_IN_FLIGHT;
    struct failure *failure =
        op->state == OP_WAIT_RACE ? cqr_failure_make(CQLRING_TIMEOUT, "%s: no good answer in %s from any of the nodes that it was sent to",
                                                     cqr_opcode_name(op->plan->opcode), cqr_duration(limit_us).text)
        : was_in_flight ? cqr_failure_make(CQLRING_TIMEOUT, "%s to %s: no answer in %s%s", cqr_opcode_name(op->plan->opcode), node_text(op),
                                         cqr_duration(limit_us).text, op->phase == CQLRING_NOT_SENT ? " (it was not sent: the socket was full)" : "")
                      : cqr_failure_make(CQLRING_TIMEOUT,
                                         op->state == OP_WAIT_PREPARE ? "%s: its statement, unknown to the node, was not prepared again within %s"
                                         : op->state == OP_WAIT_RETRY ? "%s: its partition is over its rate limit, and its turn did not come within %s"
                                                                      : "%s: no connection could take it within %s",
                                         cqr_opcode_name(op->plan->opcode), cqr_duration(limit_us).text);
    if (final) {
        if (is_write(op) && cqr_maybe_applied(CQLRING_TIMEOUT, op->phase, NULL))
            op->maybe_applied = true;
        if (was_in_flight) {
            cqr_node_stats_error(conn, CQLRING_TIMEOUT, 0);
            attempt_note(lane, op, CQLRING_TIMEOUT, NULL, failure);
        }
        if (was_in_flight && is_too_much(op, CQLRING_TIMEOUT, NULL))
            shed(lane, conn);
        cqr_op_settle(lane, op, CQLRING_TIMEOUT, failure);
    } else {
        attempt_failed(lane, op, CQLRING_TIMEOUT, NULL, failure);
    }
    if (was_in_flight)
        orphans_check(lane, conn);
}

bool cqr_op_withdraw(struct lane *lane, struct op *op)
{
    switch (op->state) {
    case OP_WAIT_CONN:
        cqr_waiting_remove(lane, op);
        break;
    case OP_WAIT_PREPARE:
        cqr_reprepare_forget(lane, op);
        break;
    case OP_WAIT_AGREEMENT: /* it was answered, and that stands */
        cqr_agreement_give_up(lane, op);
        return false;
    case OP_IN_FLIGHT:
        if (!cqr_writer_orphan(op->conn, op)) {
            cqr_wheel_disarm(&lane->wheel, &op->timer); /* nothing but its reply ends it now */
            return false;
        }
        orphans_check(lane, op->conn);
        break;
    default:
        break;
    }
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    return true;
}

void cqr_op_abort(struct lane *lane, struct op *op, cqlring_status status, const char *why)
{
    if (op->state == OP_SETTLED || op->state == OP_FREE)
        return;
    op->cancelled = true;
    bool was_in_flight = op->state == OP_IN_FLIGHT;
    if (!cqr_op_withdraw(lane, op))
        return;
    if (was_in_flight && is_write(op) && op->phase != CQLRING_NOT_SENT)
        op->maybe_applied = true;
    cqr_op_settle(lane, op, status, cqr_failure_make(status, "%s: %s", cqr_opcode_name(op->plan->opcode), why));
}

/* ---- replies ---- */

static void reply_protocol(struct lane *lane, struct op *op, struct conn *conn, const char *what)
{
    char why[200];
    snprintf(why, sizeof why, "%s answered %s with %s", conn->text, cqr_opcode_name(op->plan->opcode), what);
    cqr_writer_shut(conn, CQLRING_PROTOCOL, why);
    attempt_failed(lane, op, CQLRING_PROTOCOL, NULL, cqr_failure_make(CQLRING_PROTOCOL, "%s", why));
}

static void reply_error(struct lane *lane, struct op *op, struct conn *conn, struct block *block, cqlring_bytes body)
{
    struct error_body error;
    if (cqr_decode_error(&conn->dialect, body, &error) != CQLRING_OK) {
        reply_protocol(lane, op, conn, "an ERROR that cannot be read");
        return;
    }
    /* a batch learns of its unknown statements one after the other (PS-09) */
    uint32_t statements = op->plan->opcode == OPCODE_BATCH && op->body != NULL ? op->body->prepared_count : 1;
    if (error.code == ERROR_UNPREPARED && op->reprepares < REPREPARES_MAX + statements && op->reprepares < UINT16_MAX && !op->cancelled) {
        struct cqlring_prepared *prepared = NULL;
        if (op->plan->opcode == OPCODE_EXECUTE)
            prepared = op->version->prepared;
        else if (op->body != NULL)
            for (uint32_t i = 0; i < op->body->prepared_count && prepared == NULL; i++) {
                const struct statement_version *version = op->body->versions[i];
                if (version->id_size == error.unprepared_id.size && memcmp(version->id, error.unprepared_id.data, version->id_size) == 0)
                    prepared = op->body->prepared[i];
            }
        if (prepared != NULL) {
            op->reprepares++;
            cqr_reprepare(lane, op, prepared);
            return;
        }
    }
    cqlring_status status = error.code == ERROR_CREDENTIALS ? CQLRING_AUTH : CQLRING_SERVER;
    struct failure *failure =
        cqr_failure_make(status, "%s to %s: server error 0x%04x: %.*s", cqr_opcode_name(op->plan->opcode), node_text(op), (unsigned)error.code,
                         error.message.size, error.message.data == NULL ? "" : (const char *)error.message.data);
    if (!cqr_failure_is_static(failure)) {
        failure->error.server_code = error.code;
        failure->body = error;
        failure->has_body = true;
        failure->block = cqr_block_retain(block);
    }
    attempt_failed(lane, op, status, &error, failure); /* decided by what it said, also when there is no memory to keep it */
}

/* What the server warns of, in the log too. */
static __attribute__((noinline)) void warnings_log(struct lane *lane, const struct op *op, const struct response_prefix *prefix)
{
    if (!cqr_request_log_on(lane, op, CQLRING_LOG_WARN))
        return;
    struct reader reader;
    cqr_reader_init(&reader, prefix->warnings.data, (uint32_t)prefix->warnings.size);
    cqlring_bytes first = cqr_get_string(&reader);
    struct log_news news = {.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_WARNING, .node = op->node, .version = op->version, .more = prefix->warning_count - 1u};
    cqr_request_log(lane, op, &news, "%s warns of %s: %.*s", node_text(op), cqr_opcode_name(op->plan->opcode), first.size < 300 ? first.size : 300,
                    first.data != NULL ? (const char *)first.data : "");
}

static bool is_use(const struct op *op)
{
    const struct cqlring_prepared *prepared = op->version != NULL ? op->version->prepared : NULL;
    return cqr_text_is_use(prepared != NULL ? (cqlring_bytes){prepared->text, (int32_t)prepared->text_size} : op->text);
}

static void reply_result(struct lane *lane, struct op *op, struct conn *conn, struct block *block, cqlring_bytes body, const struct response_prefix *prefix)
{
    uint32_t kind = 0;
    if (cqr_decode_result_kind(&body, &kind) != CQLRING_OK) {
        reply_protocol(lane, op, conn, "a RESULT without a kind");
        return;
    }
    if (op->plan->opcode == OPCODE_PREPARE) {
        if (kind != RESULT_PREPARED) {
            reply_protocol(lane, op, conn, "a RESULT that is not PREPARED");
            return;
        }
        op->reply_block = cqr_block_retain(block);
        op->reply_body = body;
        op->reply_opcode = OPCODE_RESULT;
        cqr_op_settle(lane, op, CQLRING_OK, NULL);
        return;
    }
    if (kind == RESULT_PREPARED) {
        reply_protocol(lane, op, conn, "a PREPARED that nobody asked for");
        return;
    }
    if (kind == RESULT_KEYSPACE && !cqr_op_is_own(op)) {
        if (!is_use(op)) { /* nobody asked for that either, and what became of the request is not known */
            reply_protocol(lane, op, conn, "a SET_KEYSPACE to something else than USE");
            return;
        }
        conn->writer.replaced = true;
        cqr_writer_shut(conn, CQLRING_INVALID, "its keyspace was changed by a USE statement: the connection is replaced");
        cqr_op_settle(lane, op, CQLRING_INVALID,
                      cqr_failure_make(CQLRING_INVALID, "USE is not for a session, whose keyspace is fixed: open another session with that keyspace"));
        return;
    }
    struct column_set *changed = NULL;
    cqlring_bytes changed_id = {NULL, 0};
    struct failure *failure = NULL;
    cqlring_status status = cqr_result_make_in(lane->result_pool, &conn->dialect, block, body, kind, prefix, op->plan->opcode == OPCODE_EXECUTE ? op->version->result : NULL, &op->result,
                                            &changed, &changed_id, &failure);
    if (status != CQLRING_OK) {
        /* this result only: the connection's framing is intact (TY-32) */
        op->maybe_applied = is_write(op);
        cqr_node_stats_error(conn, status, 0);
        cqr_op_settle(lane, op, status, failure);
        return;
    }
    if (changed != NULL) {
        if (op->plan->opcode == OPCODE_EXECUTE)
            cqr_prepared_metadata(op->version, changed, changed_id);
        cqr_column_set_release(changed);
    }
    if (prefix->warning_count > 0)
        warnings_log(lane, op, prefix);
    if (kind == RESULT_SCHEMA && op->race == NULL && cqr_agreement_begin(lane, op)) /* in a race another answer may end it any time */
        return;
    cqr_op_settle(lane, op, CQLRING_OK, NULL);
}

/* It came to a wrong node or shard: the reply says where its tablet is. */
static __attribute__((noinline, cold)) void learn_tablet(struct lane *lane, const struct op *op, const struct conn *conn, const struct response_prefix *prefix)
{
    static const char name[] = "tablets-routing-v1";
    cqlring_bytes pairs = prefix->payload, key, value;
    bool is_one_partition = op->plan->opcode == OPCODE_EXECUTE || (op->body != NULL && op->body->is_one_partition);
    if (!is_one_partition || conn->home == NULL || conn->home->pool == NULL)
        return;
    for (uint16_t i = 0; i < prefix->payload_count && cqr_next_pair(&pairs, &key, &value) == CQLRING_OK; i++)
        if (key.size == sizeof name - 1 && memcmp(key.data, name, sizeof name - 1) == 0)
            cqr_tablets_learn(lane, conn->home->pool, op->version, value);
}

static void reply_decode(struct lane *lane, struct op *op, struct conn *conn, struct block *block, cqlring_bytes body, uint8_t flags, uint8_t opcode)
{
    struct response_prefix prefix;
    if (cqr_decode_prefix(flags, &body, &prefix) != CQLRING_OK) {
        reply_protocol(lane, op, conn, "a frame whose trace id, warnings or payload cannot be read");
        return;
    }
    if (prefix.payload_count > 0 && (conn->dialect.extensions & EXT_TABLETS_V1) != 0)
        learn_tablet(lane, op, conn, &prefix);
    switch (opcode) {
    case OPCODE_RESULT:
        reply_result(lane, op, conn, block, body, &prefix);
        break;
    case OPCODE_ERROR:
        reply_error(lane, op, conn, block, body);
        break;
    case OPCODE_SUPPORTED:
    case OPCODE_READY:
        if (cqr_op_is_own(op)) {
            op->reply_opcode = opcode;
            cqr_op_settle(lane, op, CQLRING_OK, NULL);
            break;
        }
        /* fall through */
    default: {
        char what[32];
        snprintf(what, sizeof what, "opcode 0x%02x", opcode);
        reply_protocol(lane, op, conn, what);
    }
    }
}

static void conn_heard(struct lane *lane, struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    writer->received_us = lane->now_us;
    writer->waiting_since_us = lane->now_us;
    if (writer->suspect)
        cqr_conn_trust(lane, conn);
}

static inline void answered(struct lane *lane, struct op *op, uint32_t size)
{
    struct conn *conn = op->conn;
    cqr_node_latency_note(lane, conn, op);
    cqr_writer_answered(conn);
    cqr_writer_stream_free(conn, op->stream);
    conn_heard(lane, conn);
    cqr_wheel_disarm(&lane->wheel, &op->timer);
    op->phase = CQLRING_ANSWERED;
    op->frame_block = NULL;
    if (lane->waiting_head != NULL)
        lane->waiting_room = true;
    if (op->version != NULL)
        cqr_version_reply_seen(op->version, size);
}

void cqr_op_void(struct lane *lane, struct op *op)
{
    answered(lane, op, 0);
    settle(lane, op, CQLRING_OK, NULL);
}

/* Not tried again: it would be as large the next time. */
static void settle_large(struct lane *lane, struct op *op, uint32_t size)
{
    op->maybe_applied = is_write(op);
    cqr_node_stats_error(op->conn, CQLRING_TOO_LARGE, 0);
    cqr_op_settle(lane, op, CQLRING_TOO_LARGE,
                  cqr_failure_make(CQLRING_TOO_LARGE, "%s to %s: its answer of %u bytes is more than frame_size_max (%u): raise it, or read smaller pages",
                                   cqr_opcode_name(op->plan->opcode), node_text(op), size, op->conn->frame_size_max));
}

void cqr_op_large(struct lane *lane, struct op *op, uint32_t size)
{
    answered(lane, op, 0);
    settle_large(lane, op, size);
}

void cqr_op_reply(struct lane *lane, struct op *op, const struct completion *entry)
{
    struct conn *conn = op->conn;
    answered(lane, op, entry->size);
    struct block *block = entry->block;
    cqlring_bytes body = {block->data + entry->offset, (int32_t)entry->size};
    if ((entry->flags & FLAG_COMPRESSED) != 0 && conn->dialect.version < PROTO_V5) {
        uint32_t size = 0;
        struct block *unpacked = NULL;
        cqlring_status status = cqr_body_size(conn->compression, body.data, entry->size, conn->frame_size_max, &size);
        if (status == CQLRING_OK) {
            unpacked = cqr_block_take(lane->unpack_pool, size);
            status = unpacked == NULL ? CQLRING_NO_MEMORY : cqr_body_decompress(conn->compression, body.data, entry->size, unpacked->data, size);
        }
        cqr_block_release(block);
        if (status == CQLRING_TOO_LARGE) { /* of this request only: the connection's framing is intact */
            settle_large(lane, op, size);
            return;
        }
        if (status == CQLRING_NO_MEMORY) {
            op->maybe_applied = is_write(op);
            cqr_op_settle(lane, op, status, cqr_failure_make(status, "%s to %s: no memory for an answer of %u bytes", cqr_opcode_name(op->plan->opcode), node_text(op), size));
            return;
        }
        if (status != CQLRING_OK) {
            cqr_block_release(unpacked);
            reply_protocol(lane, op, conn, "a compressed body that cannot be unpacked");
            return;
        }
        block = unpacked;
        block->fill = size;
        body = (cqlring_bytes){block->data, (int32_t)size};
    }
    if (cqr_frame_is_plain_void(&(struct frame_header){.opcode = entry->opcode, .flags = entry->flags & (uint8_t)~FLAG_COMPRESSED, .body_size = (uint32_t)body.size},
                                body.data))
        cqr_op_settle(lane, op, CQLRING_OK, NULL);
    else
        reply_decode(lane, op, conn, block, body, entry->flags, entry->opcode);
    cqr_block_release(block);
}
