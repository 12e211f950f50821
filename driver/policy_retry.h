/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_POLICY_RETRY_H
#define CQR_POLICY_RETRY_H

/* What an application's retry policy says after an attempt, and how long a node that asked for it is left alone. Submitter. */

#include "driver/failure.h"
#include "driver/op.h"
#include "driver/policy.h"

struct retry_answer {
    enum retry_decision decision;
    bool ignore;            /* the request has succeeded, with nothing */
    bool is_own;            /* of the application: its delay counts instead of the usual one */
    int64_t delay_us;
    uint16_t consistency_1; /* the next attempts' + 1; 0: as before */
};

/* usual: what the library would do. Asks nobody where there is no policy, or nothing was sent. */
struct retry_answer cqr_retry_ask(const struct op *op, const struct attempt_outcome *outcome, const struct failure *failure, enum retry_decision usual);

/* OVERLOADED: the node gets no further request for a while where another can take it. A rate limit is the partition's:
   see partition_rest.h. */
void cqr_node_rest(struct lane *lane, struct conn *conn);

#endif
