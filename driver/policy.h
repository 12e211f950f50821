/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_POLICY_H
#define CQR_POLICY_H

/* What to do after an attempt that failed, and how long to wait before the next connect: pure functions of plain data.

   Single executions follow the Java driver's table (decision 31); rows of jobs that are marked idempotent are retried after
   every retryable outcome, with back-off, until their deadline. What cannot have reached a server (NOT_SENT) is always
   sent again, idempotent or not. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/response.h"
#include "driver/cqlring.h"

enum retry_decision {
    RETRY_NO,          /* the outcome stands */
    RETRY_SAME,        /* the same node again */
    RETRY_NEXT         /* another node, if there is one */
};

struct attempt_outcome {
    cqlring_status status;           /* SERVER, LOST, TIMEOUT (of an attempt), … */
    uint8_t phase;                   /* cqlring_phase */
    const struct error_body *server; /* SERVER: the ERROR; else NULL */
    bool idempotent;
    bool patient;                    /* a row of a job */
    bool retry_enabled;
    uint16_t tries;                  /* decisions made for this request before this one */
    uint8_t unreadable;              /* of them because the answer could not be read */
};

enum retry_decision cqr_retry_decide(const struct attempt_outcome *outcome);
/* Back-off before try number `tries` (0 the first) of a patient request or after OVERLOADED: 10 ms doubling to 1 s, ± 25 % by
   `random` (any 64 random bits). 0 for what was never sent. */
int64_t cqr_retry_backoff_us(uint32_t tries, uint64_t random);
/* Reconnect: attempt 0 at once, then min doubling to max, ± 15 %; never negative or above max × 1.15, however many attempts (RC-09). */
int64_t cqr_reconnect_delay_us(uint32_t attempt, int64_t min_us, int64_t max_us, uint64_t random);
/* Whether a write may have been applied after this outcome of one attempt. */
bool cqr_maybe_applied(cqlring_status status, uint8_t phase, const struct error_body *server);

/* xorshift-like generator for jitter; the state is the caller's and must not be 0. */
uint64_t cqr_random(uint64_t *state);

#endif
