/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_JOBS_H
#define SIM_JOBS_H

/* Bulk jobs as a plan wants them: a source and a sink that follow the contract to its edges and check that the library
   follows its own. */

#include "ledger.h"
#include "plan.h"

struct job_run {
    const struct plan *plan;
    const struct job_plan *how;
    struct stage *stage;
    struct ledger ledger; /* of a reading job: only the outcomes are used */
    struct chance chance;
    cqlring_future *future; /* NULL: not started, or refused */
    bool refused;
    bool
        stopped_outside; /* cancelled, or its session was closed: LATER may not be honoured any more */
    const cqlring_future *closed; /* when this is ready no callback may come */
    int64_t started_us;

    /* source */
    uint32_t given;
    bool over; /* END or FAILED was said */
    bool failed;
    bool waits, source_poked;
    int64_t wake_us;
    uint8_t *memory;
    size_t memory_size;
    cqlring_bytes cells[256][3];
    uint8_t keys[256][8];

    /* sink */
    uint64_t accepted, failures; /* rows */
    uint32_t again_count;        /* completions that were answered LATER */
    bool sink_poked;
    cqlring_completion again[256];
    bool stop_said;
    uint64_t low_water;
    uint32_t hole; /* the first row not accepted */
};

void job_prepare(struct job_run *run, struct stage *stage, const struct plan *plan, uint32_t index);
void job_start(void *run, uint64_t argument); /* an errand */
void job_check(struct job_run *run);          /* between turns */
bool job_is_through(const struct job_run *run);
void job_settle(struct job_run *run); /* when it is through, before ledgers_judge */
void job_judge(struct job_run *run);  /* behind it */
void job_free(struct job_run *run);

#endif
