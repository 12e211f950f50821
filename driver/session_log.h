/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SESSION_LOG_H
#define CQR_SESSION_LOG_H

/* What happens to a session, told to its `log`; sessions without one have it in the runtime's log. A pool is shared by sessions of
   one keyspace: each of them is told. Lines are made only when somebody listens; what may come with every answer is said once a
   second, by session and lane. Never a secret, never a bound value. Submitter. */

#include "driver/cqlring.h"

struct lane;
struct op;
struct pool;
struct statement_version;

/* Of the kinds that come in floods. */
enum { LOG_LIMITS = 3 };
struct log_limit {
    int64_t again_us;              /* when the next one is said */
    uint32_t unsaid;
};

struct log_news {
    cqlring_log_level level;
    cqlring_event event;
    const struct cqlring_node *node;         /* NULL: none */
    const struct statement_version *version; /* NULL: no prepared statement */
    cqlring_status status;
    int32_t server_code;
    uint32_t more;                 /* of the same kind at once */
};

/* To every session of the pool. pool NULL: to the runtime's log. */
void cqr_pool_log(struct lane *lane, struct pool *pool, const struct log_news *news, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* To that session. */
void cqr_session_log(struct lane *lane, struct cqlring_session *session, const struct log_news *news, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* To the session whose request it is. */
void cqr_request_log(struct lane *lane, const struct op *op, const struct log_news *news, const char *format, ...) __attribute__((format(printf, 4, 5)));
bool cqr_request_log_on(const struct lane *lane, const struct op *op, cqlring_log_level level);
/* op is settled with a failure: was it tried again in vain? */
void cqr_request_log_failed(struct lane *lane, const struct op *op);

#endif
