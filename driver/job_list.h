/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_JOB_LIST_H
#define CQR_JOB_LIST_H

/* The list of a part's rows, from their issue until the sink has accepted their outcomes; for job_issue.c and job_outcome.c, where
   it is on every row's way. Submitter. */

#include "driver/job.h"

#define JOB_NODE_NONE UINT32_MAX /* op->limit_node; an enumerator is an int */

static inline void list_add(struct job_part *part, struct op *op)
{
    op->prev = part->tail;
    op->next = NULL;
    if (part->tail != NULL)
        part->tail->next = op;
    else
        part->head = op;
    part->tail = op;
    part->open++;
    part->unsettled++;
}

static inline void list_remove(struct job_part *part, struct op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        part->head = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        part->tail = op->prev;
    part->open--;
    if (part->low_water_kept)
        atomic_store_explicit(&part->job->low_water, part->head != NULL ? part->head->row : part->next_row, memory_order_relaxed);
}

#endif
