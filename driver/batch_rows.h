/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_BATCH_ROWS_H
#define CQR_BATCH_ROWS_H

/* Rows of one partition that a job pulled together go as one UNLOGGED batch (cqlring_batch_by_partition). Cassandra then has one
   request, one mutation and one answer for all of them.

   What was pulled is *planned* whole: each row gets its op and its place in the part's list, then rows of the same partition are
   chained into groups. Groups go out in the order of their first rows, from the cells of the source, which live until the next pull;
   so nothing is copied to wait, and no row waits for one that is not there. A group of one row goes as any row does.

   A batch has one timestamp. Rows that could write the same cell therefore never share one: a row whose primary key a group has
   already, and a write of another kind to its partition (a deletion of it, a static column), close the group; what comes later has
   a later timestamp, as it would alone.

   A batch is an op of its own, its *carrier*; its rows wait in OP_IN_BATCH for what becomes of it. When the server calls it invalid,
   it is halved until the row is found that is: nothing of an invalid batch was applied (FR-09). Submitter, but for the rule. */

#include "driver/execution.h"
#include "driver/job.h"

enum { BATCH_KEYS_MAX = 32, BATCH_STATEMENTS_MAX = 8 };
#define BATCH_CHILD_AROUND 3u /* [byte kind][short id size]; an enumerator is an int */

/* What is known of each of the job's statements; made at its start, immutable. */
struct batch_statement {
    const struct statement_version *version; /* as of then */
    bool joins;                       /* its rows may share a batch: whole primary keys of a table, bound */
    char alone[120];                  /* why they may not */
    bool orders;                      /* a write that may not, and that may concern the rows of a group */
    uint16_t table;                   /* the first statement of the same table */
    uint16_t key_count;               /* bind markers of the clustering columns */
    uint16_t keys[BATCH_KEYS_MAX];
};
struct batch_rule {
    uint32_t rows_max, bytes_max, look_rows;
    bool distinct;                    /* the application's word: no two rows write the same cell */
    struct op_plan plan;              /* of a batch */
    struct batch_statement statements[];
};

/* batch_rule.c, any thread. options, statements and plan are the job's. */
cqlring_status cqr_batch_rule_make(const cqlring_job_options *options, uint32_t window, const struct op_plan *plan, struct cqlring_cluster *cluster,
                                   cqlring_prepared *const *statements, uint32_t statement_count, struct batch_rule **rule, cqlring_error *error);

/* Which statements' rows go alone, and why, to the session's log. Submitter, once a job. */
void cqr_batch_rule_tell(struct lane *lane, const struct job *job);

/* batch_plan.c: what was pulled, as far as there are ops: listed, and in groups. */
void cqr_batch_plan(struct lane *lane, struct job_part *part);

/* Some rows of a part under way together. */
struct batch_carrier {
    struct batch_carrier *next, **link; /* in flight, or free */
    struct job_part *part;
    struct op *op;                    /* the batch */
    struct op *rows;                  /* its rows in order, through op->link */
    uint32_t count;
    struct request_body body;         /* its statements, for those who prepare them again */
    struct cqlring_prepared *prepared[BATCH_STATEMENTS_MAX];
    struct statement_version *versions[BATCH_STATEMENTS_MAX];
};

struct batch_group {
    int64_t token, timestamp_us;
    uint32_t bytes;                   /* of its children */
    uint16_t first, last, count;      /* rows, chained by next[] */
    uint16_t table;
    bool closed;                      /* a write came that none behind it may overtake */
};

struct batch_slot {
    uint64_t hash;
    uint32_t generation;
    uint16_t group;
};

enum { BATCH_SLOTS = 512 };
_Static_assert(BATCH_SLOTS >= 2 * JOB_BATCH, "there is always an empty one");

struct batch_rows {
    struct batch_carrier *free, *active;
    uint32_t planned;                 /* rows that are in the part's list and not issued */
    uint32_t plan_end;                /* they stand before rows[plan_end] */
    uint32_t group_at, group_count;
    uint32_t bytes_max;               /* of a batch, as of this plan */
    uint64_t plan_row;                /* index in the source of rows[part->row_at] */
    uint32_t issued_end;              /* of what was planned, the last row that was issued stands before rows[issued_end] */
    uint32_t generation;              /* the last one given to either table; what it has of others counts as empty */
    uint32_t partitions_generation, keys_generation;
    struct op *ops[JOB_BATCH];
    uint32_t sizes[JOB_BATCH];        /* of the values with their count */
    uint16_t next[JOB_BATCH];
    struct batch_group groups[JOB_BATCH];
    struct batch_slot partitions[BATCH_SLOTS]; /* token → its newest group */
    struct batch_slot keys[BATCH_SLOTS];       /* primary key → the group that has it */
    uint32_t scratch_size;
    uint8_t scratch[];                /* a batch's children, until they are in a send block */
};

struct batch_rows *cqr_batch_rows_make(const struct batch_rule *rule); /* NULL: out of memory. Any thread */
void cqr_batch_rows_free(struct batch_rows *batches);
/* Pull, plan and issue, at most so many rows. */
void cqr_batch_rows_issue(struct lane *lane, struct job_part *part, uint32_t rows_max);
/* The job was stopped: planned rows are left out, those that others have overtaken with an outcome; batches that wait to be tried again get their outcome, those in flight too when
   it is final. */
void cqr_batch_rows_stop(struct lane *lane, struct job_part *part, cqlring_status status, const char *why, bool final);
void cqr_batch_rows_end(struct job_part *part);

static inline uint32_t cqr_batch_rows_planned(const struct job_part *part)
{
    return part->batches != NULL ? part->batches->planned : 0;
}

/* Nothing is pulled before there is room for look_rows: what is pulled in driblets has no company. While something is under way. */
static inline bool cqr_batch_rows_wait(const struct job_part *part)
{
    return part->batches != NULL && part->row_at == part->row_count && part->open > 0 && part->job->window - part->open < part->pull_max;
}

#endif
