/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_SINGLES_H
#define SIM_SINGLES_H

/* Single executions and a queue, beside whatever jobs run. */

#include "ledger.h"
#include "plan.h"

enum { SINGLES_MAX = 80 };

struct single {
    struct singles *all;
    uint32_t index;
    cqlring_future *future;
    uint32_t calls;            /* of on_ready */
    bool wants_call, given_up; /* on_ready is set; the future was released before its end */
};

struct singles {
    const struct plan *plan;
    struct stage *stage;
    struct ledger ledger;
    struct chance chance;
    bool closing;  /* CLOSED is a right answer */
    uint32_t left; /* not yet started */
    struct single single[SINGLES_MAX];
};
void singles_start(struct singles *singles, struct stage *stage, const struct plan *plan);
bool singles_are_through(const struct singles *singles);
void singles_judge(struct singles *singles);
void singles_free(struct singles *singles);

struct queue_run {
    const struct plan *plan;
    struct stage *stage;
    struct ledger ledger;
    struct chance chance;
    cqlring_queue *queue;
    uint32_t given, accepted, reaped;
    bool closed; /* no more submits */
    bool abandoned;
    bool closing; /* the session is */
    uint8_t *row_seen;
};
void queue_start(struct queue_run *run, struct stage *stage, const struct plan *plan);
/* All is submitted: reap the rest, waiting. */
void queue_finish(struct queue_run *run);
bool queue_is_submitted(const struct queue_run *run);
void queue_free(struct queue_run *run);

#endif
