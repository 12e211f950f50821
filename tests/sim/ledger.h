/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_LEDGER_H
#define SIM_LEDGER_H

/* What was asked for, what was told, and what became of it: an entry for every row of a job, every single execution and
   every request of a queue. Filled by three sides that know nothing of each other: the application (outcomes), the wire
   (requests and replies) and the storage; ledger_judge compares them. */

#include "driver/cqlring.h"
#include "tests/node/node.h"

enum outcome { OUTCOME_NONE, OUTCOME_OK, OUTCOME_FAILED /* and not applied */, OUTCOME_MAYBE };

struct entry {
    uint8_t outcome; /* enum outcome */
    bool told;       /* the application has its last completion */
    bool refused;    /* never accepted, or refused before it could be sent */
    bool seen;       /* on the wire */
    bool unanswered; /* on the wire, and no reply yet */
    bool stored;
    bool damaged;      /* a page of it could not be read to its end */
    uint32_t size;     /* of the value */
    uint32_t requests; /* times it was on the wire */
    uint32_t pages;    /* completions but the last */
    int64_t timestamp_us;
};

struct ledger {
    struct ledger *next;
    const char *what;
    int64_t base; /* keys are base … base + count − 1 */
    uint32_t count;
    bool silent; /* outcomes are not told one by one: no sink, or failures only */
    bool reads;  /* leaves nothing in the storage */
    bool
        repeats; /* idempotent: an attempt that was given up may still be on its way when another has succeeded */
    struct entry *entries;
    uint64_t issued; /* entries seen on the wire */
    uint64_t bytes_unanswered;
    uint64_t rows_unanswered;
    void (*on_request)(struct ledger *ledger, struct entry *entry, bool first);
    void *owner;
};

void ledgers_init(void);
void ledgers_fini(void);
/* id makes the keys; unique. */
void ledger_open(struct ledger *ledger, const char *what, uint32_t id, uint32_t count);
static inline int64_t ledger_key(const struct ledger *ledger, uint32_t index)
{
    return ledger->base + index;
}
/* A completion that ends its request. Checks what can be checked of it alone. */
void ledger_tell(struct ledger *ledger, uint32_t index, uint16_t status, uint8_t flags);
void completion_check(const char *what, const cqlring_completion *completion,
                      const cqlring_execution *execution, bool is_write);
/* At the end, when nothing is on its way any more. */
void ledgers_judge(struct node_cluster *nodes);

#endif
