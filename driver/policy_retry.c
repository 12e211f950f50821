/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/policy_retry.h"

#include <string.h>

#include "driver/conn.h"
#include "driver/lane.h"
#include "driver/result.h"
#include "driver/session.h"

struct retry_answer cqr_retry_ask(const struct op *op, const struct attempt_outcome *outcome, const struct failure *failure, enum retry_decision usual)
{
    struct retry_answer answer = {.decision = usual, .consistency_1 = op->consistency_1};
    const struct cqlring_session *session = op->plan->session;
    if (session == NULL || session->cluster->policy.retry == NULL || !op->plan->retry || op->plan->opcode == OPCODE_PREPARE || outcome->phase == CQLRING_NOT_SENT)
        return answer;
    const struct node_policy *policy = &session->cluster->policy;
    static const cqlring_retry_decision public_names[] = {[RETRY_NO] = CQLRING_DECIDE_FAIL, [RETRY_SAME] = CQLRING_DECIDE_SAME, [RETRY_NEXT] = CQLRING_DECIDE_NEXT};
    cqlring_error_detail detail;
    uint16_t wire = op->consistency_1 != 0 ? (uint16_t)(op->consistency_1 - 1) : op->plan->params.consistency;
    cqlring_retry_query query = {.status = outcome->status,
                                 .phase = outcome->phase,
                                 .is_idempotent = outcome->idempotent,
                                 .is_read = op->plan->is_read,
                                 .is_row = outcome->patient,
                                 .retries = outcome->tries,
                                 .consistency = wire == 0 ? CQLRING_ANY : (cqlring_consistency)wire,
                                 .node = op->node,
                                 .tag = op->tag,
                                 .error = &failure->error,
                                 .detail = cqr_failure_detail(failure, &detail) ? &detail : NULL,
                                 .usual = public_names[usual]};
    cqlring_consistency consistency = CQLRING_CONSISTENCY_DEFAULT;
    int64_t delay_us = 0;
    cqlring_retry_decision said = policy->retry(&query, &consistency, &delay_us, policy->retry_context);
    if ((consistency > CQLRING_CONSISTENCY_DEFAULT && consistency <= CQLRING_LOCAL_ONE) || consistency == CQLRING_ANY)
        answer.consistency_1 = (uint16_t)((consistency == CQLRING_ANY ? 0 : consistency) + 1);
    answer.is_own = said != CQLRING_DECIDE_USUAL;
    answer.delay_us = delay_us > 0 ? delay_us : 0;
    switch (said) {
    case CQLRING_DECIDE_FAIL: answer.decision = RETRY_NO; break;
    case CQLRING_DECIDE_SAME: answer.decision = RETRY_SAME; break;
    case CQLRING_DECIDE_NEXT: answer.decision = RETRY_NEXT; break;
    case CQLRING_DECIDE_IGNORE:
        answer.decision = RETRY_NO;
        answer.ignore = true;
        break;
    case CQLRING_DECIDE_USUAL:
    default: answer.is_own = false; break;
    }
    return answer;
}

void cqr_node_rest(struct lane *lane, struct conn *conn)
{
    enum { FORGET_US = 2000000, RESTS_MAX = 7 };
    struct conn_writer *writer = &conn->writer;
    if (lane->now_us < writer->rest_until_us)
        return; /* of the requests that were under way: one word is enough */
    if (lane->now_us - writer->rest_until_us > FORGET_US)
        writer->rests = 0;
    writer->rest_until_us = lane->now_us + cqr_retry_backoff_us(writer->rests, cqr_random(&lane->random));
    cqr_pool_log(lane, conn->home != NULL ? conn->home->pool : NULL, &(struct log_news){.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_OVERLOADED, .node = conn->node},
                 "%s is overloaded: other replicas are preferred for %s", conn->text, cqr_duration(writer->rest_until_us - lane->now_us).text);
    if (writer->rests < RESTS_MAX)
        writer->rests++;
}
