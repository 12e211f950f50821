/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENDLESS_H
#define ENDLESS_H

/* A job that ends only when it is ended, and what came of it. */

#include <stdatomic.h>

#include "flow.h"

/* Its sink runs on a library thread: what the test looks at meanwhile is atomic. */
struct endless {
    struct flow_rows rows;
    struct flow_sink sink;
    atomic_ulong calls;
    void (*act)(struct endless *endless); /* once, in the sink, after 500 rows */
    struct flow *flow;
    bool acted;
    cqlring_status status; /* what act's call answered */
    cqlring_future *future;
};

void endless_init(struct endless *endless, struct flow *flow);
void endless_fini(struct endless *endless);
/* Started, and some hundred rows are through. */
cqlring_future *endless_start(struct endless *endless, cqlring_prepared *insert);
/* It has ended: every row that was issued has its one outcome, OK or CLOSED. */
void endless_check(struct endless *endless, cqlring_future *job);

#endif
