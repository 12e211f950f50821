/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SPECULATE_H
#define CQR_SPECULATE_H

/* Speculative execution: a request that has waited long is sent to another node too, and the first good answer counts.

   Each further attempt is an op of its own, a **copy** (its own slot, stream and connection), so reader, writer and the usual
   way of an op know nothing of all this. The request's op and its copies are a **race**. While it lasts, their `settled` is the
   race's: so a plain request pays nothing, and exactly one outcome reaches the owner.

   - An attempt that failed in a way that may pass is sent to a node that nobody of the race has tried; where there is none, it
     drops out and the others decide. The last one takes the usual way of a failed attempt: retry, back-off, or the end.
   - An answer, good or final, ends the race: the other slots are made orphans. Where the reader was faster, the reply is in the
     ring already and names its op once more (decision 10): a copy then waits for it as a ghost that belongs to nobody; the
     request's own op keeps the outcome until its entry has come.

   Submitter. Races come from a list of the lane; an allocation only when more are under way than ever before. */

#include "driver/op.h"

enum { COPIES_MAX = 8 };

struct race {
    struct race *next;                 /* in the lane's list of free ones */
    struct op *op;                     /* the request's own */
    void (*settled)(struct lane *lane, struct op *op); /* whose it is */
    struct op *copies[COPIES_MAX];     /* under way */
    uint32_t copy_count;
    uint32_t sent;                     /* copies so far */
    uint64_t tried;                    /* nodes that any of them was sent to, by index modulo 64 */
    int64_t next_us;                   /* when the next copy is due; INT64_MAX: no further one */
    struct op *winner;                 /* the copy whose outcome it will be, once op's own entry has come */
    bool final;                        /* op's own outcome stands (OP_WAIT_RACE), unless a copy has a better one */
};

/* When the next copy of it is due; INT64_MAX: never. The plan allows copies. */
int64_t cqr_race_due_us(struct lane *lane, const struct op *op);
void cqr_race_tick(struct lane *lane, struct op *op);     /* it is due: op's timer fired before any deadline */
static inline bool cqr_race_is_copy(const struct op *op);
/* Before op is routed: nodes of the race are not for it. */
void cqr_race_route(struct op *op);
void cqr_race_sent(struct lane *lane, struct op *op);     /* op was written to a connection */
/* No connection takes it now. True: the others run on without it (a copy is gone then). False: there are none. */
bool cqr_race_unplaced(struct lane *lane, struct op *op);
/* An attempt failed and may be tried again. True: that is done, or left to the others. False: the usual way. */
bool cqr_race_retry(struct lane *lane, struct op *op);
void cqr_race_latency(struct lane *lane, const struct op *op); /* answered: what the percentile of its session is made of */
void cqr_races_fini(struct lane *lane);

static inline bool cqr_race_is_copy(const struct op *op)
{
    return op->race != NULL && op->race->op != op;
}

#endif
