/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/policy.h"

#include <assert.h>
#include <string.h>

/* --- retries ------------------------------------------------------------------------------------------------------

   Single requests: the Java driver's default policy.

     outcome of the attempt                      idempotent          not idempotent
     lost, not sent                              next                next
     lost or timed out after it was sent         next                no
     UNAVAILABLE                                 next, once          next, once       nothing was written
     IS_BOOTSTRAPPING                            next                next             nothing was written
     READ_TIMEOUT, enough answers, no data       same, once          same, once       only the data was late
     READ_TIMEOUT, otherwise                     no                  no
     WRITE_TIMEOUT of BATCH_LOG                  same, once          no
     WRITE_TIMEOUT, otherwise                    no                  no
     OVERLOADED, SERVER_ERROR, TRUNCATE_ERROR,
       CDC_WRITE_FAILURE, CAS_WRITE_UNKNOWN      next                no
     READ_FAILURE, WRITE_FAILURE                 no                  no               it would fail again
     UNPREPARED                                  same, then next     the same         nothing was executed
     over a rate limit (Scylla)                  no                  no               it is the partition's, not the node's
     an answer that cannot be read             no                  no
     all others: the request is wrong, or the code is unknown (RT-07)   no            no

   "Next" ends by itself when every node has been tried.

   Rows of jobs that are marked idempotent: whatever may pass is tried again. "Next" is then the same node where there is
   no other, and only the row's deadline ends it; but an answer that cannot be read, which costs a connection, is asked for
   five times again at most. A row over a rate limit is tried again on the same node, by itself when it is idempotent, and
   in any case when the coordinator did not let it in; the other rows of its partition wait with it (partition_rest.h). */

enum { UNREADABLE_TRIES = 5 };

static enum retry_decision once(const struct attempt_outcome *outcome, enum retry_decision decision)
{
    return outcome->tries == 0 ? decision : RETRY_NO;
}

static bool is_batch_log(const struct error_body *server)
{
    static const char name[] = "BATCH_LOG";
    return server->write_type.size == sizeof name - 1 && memcmp(server->write_type.data, name, sizeof name - 1) == 0;
}

static enum retry_decision decide_server(const struct attempt_outcome *outcome)
{
    const struct error_body *server = outcome->server;
    bool is_endless = outcome->patient && outcome->idempotent;
    if (server->rate_limited) /* of the partition, so another node would count the same; with a back-off it passes */
        return outcome->patient && (outcome->idempotent || server->rate_limit_by_coordinator != 0) ? RETRY_SAME : RETRY_NO;
    switch ((uint32_t)server->code) {
    case ERROR_UNAVAILABLE: return is_endless ? RETRY_NEXT : once(outcome, RETRY_NEXT);
    case ERROR_BOOTSTRAPPING: return RETRY_NEXT;
    case ERROR_UNPREPARED: return outcome->tries == 0 ? RETRY_SAME : RETRY_NEXT;
    case ERROR_READ_TIMEOUT:
        /* RT-03: enough replicas answered, but the one that was asked for the data did not. By now it will be known to be
           slow. With the data there, or too few answers, another try would end the same. */
        if (server->received >= server->required && server->data_present == 0 && outcome->tries == 0)
            return RETRY_SAME;
        return is_endless ? RETRY_NEXT : RETRY_NO;
    case ERROR_WRITE_TIMEOUT:
        if (!outcome->idempotent)
            return RETRY_NO;
        if (is_batch_log(server) && outcome->tries == 0)
            return RETRY_SAME;
        return is_endless ? RETRY_NEXT : RETRY_NO;
    case ERROR_OVERLOADED:
    case ERROR_SERVER:
    case ERROR_TRUNCATE:
    case ERROR_CDC_WRITE_FAILURE:
    case ERROR_CAS_WRITE_UNKNOWN: return outcome->idempotent ? RETRY_NEXT : RETRY_NO;
    default: return RETRY_NO;
    }
}

enum retry_decision cqr_retry_decide(const struct attempt_outcome *outcome)
{
    switch (outcome->status) {
    case CQLRING_SERVER:
        /* Without the ERROR's fields (there was no memory to keep them) nobody knows whether a retry is right. */
        return outcome->retry_enabled && outcome->server != NULL ? decide_server(outcome) : RETRY_NO;
    case CQLRING_LOST:
    case CQLRING_TIMEOUT:
    case CQLRING_TLS:
    case CQLRING_PROTOCOL:
        break;
    default: /* cancelled, closed, invalid, out of memory …: another try is not what is wanted */
        return RETRY_NO;
    }
    if (outcome->phase == CQLRING_NOT_SENT) /* no try at all, so neither idempotence nor the switch counts */
        return RETRY_NEXT;
    if (!outcome->retry_enabled || !outcome->idempotent)
        return RETRY_NO;
    /* An answer that cannot be read was damaged on its way, or it is what we cannot read: then the next one will be the same,
       and each of them costs a connection. */
    if (outcome->phase == CQLRING_ANSWERED)
        return outcome->patient && outcome->unreadable < UNREADABLE_TRIES ? RETRY_NEXT : RETRY_NO;
    return RETRY_NEXT;
}

bool cqr_maybe_applied(cqlring_status status, uint8_t phase, const struct error_body *server)
{
    if (status == CQLRING_OK || phase == CQLRING_NOT_SENT)
        return false;
    if (server == NULL || (status != CQLRING_SERVER && status != CQLRING_AUTH))
        return true;
    switch ((uint32_t)server->code) {
    case ERROR_PROTOCOL:
    case ERROR_CREDENTIALS:
    case ERROR_UNAVAILABLE:
    case ERROR_BOOTSTRAPPING:
    case ERROR_READ_TIMEOUT:
    case ERROR_READ_FAILURE:
    case ERROR_FUNCTION_FAILURE:
    case ERROR_SYNTAX:
    case ERROR_UNAUTHORIZED:
    case ERROR_INVALID:
    case ERROR_CONFIG:
    case ERROR_ALREADY_EXISTS:
    case ERROR_UNPREPARED: return false;
    default: /* write time-outs and failures, server errors, OVERLOADED, and codes that we do not know; but where the
                coordinator says that it did not let the request in, no replica has seen it */
        return server->rate_limit_by_coordinator == 0;
    }
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* first doubled `doublings` times, at most max. */
static int64_t doubled(int64_t first, uint32_t doublings, int64_t max)
{
    if (first < 1)
        first = 1;
    if (first >= max)
        return max;
    return doublings >= 63 || first > (max >> doublings) ? max : first << doublings;
}

/* base ± base × percent / 100. */
static int64_t jittered(int64_t base, uint32_t percent, uint64_t random)
{
    int64_t part = base / 100 * percent + base % 100 * percent / 100;
    return base - part + (int64_t)(random % (2 * (uint64_t)part + 1));
}

int64_t cqr_retry_backoff_us(uint32_t tries, uint64_t random)
{
    return jittered(doubled(10000, tries, 1000000), 25, random);
}

int64_t cqr_reconnect_delay_us(uint32_t attempt, int64_t min_us, int64_t max_us, uint64_t random)
{
    if (attempt == 0)
        return 0;
    if (max_us < 1)
        max_us = 1;
    if (max_us > INT64_MAX / 2) /* room for the jitter */
        max_us = INT64_MAX / 2;
    return jittered(doubled(min_us, attempt - 1, max_us), 15, random);
}

/* xorshift64*: the plain one's low bits are weak, and they are what a remainder by small numbers sees. */
uint64_t cqr_random(uint64_t *state)
{
    assert(*state != 0);
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}
