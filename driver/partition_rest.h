/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_PARTITION_REST_H
#define CQR_PARTITION_REST_H

/* Partitions that are over their rate limit (ScyllaDB, per_partition_rate_limit): what a lane remembers of them, so that of many rows
   of one partition not each has to be refused. A refusal makes the partition rest, for the back-off of its row; the rows of jobs that
   come meanwhile wait in their job's list, those of other partitions pass them. When the rest is over they go one after the other,
   at first as far apart as an eighth of the rest (1 … 20 ms), then faster, and one in a turn; what is refused then makes it rest again: twice as long,
   or, when it went well for longer than it had rested, half as long. Forgotten after two seconds without a refusal.

   Reads and writes have limits of their own, as the server counts them. The table is bounded: when it is full, the one that rests
   the shortest makes room, and its rows only meet the limit again. While nothing rests, a row costs nothing. Submitter. */

#include <stdbool.h>
#include <stdint.h>

struct lane;
struct op;

enum { PARTITION_RESTS_MAX = 64 };

struct partition_rest {
    uint64_t table;      /* hash of cluster, keyspace, table and direction; 0: free */
    int64_t token;
    int64_t until_us;    /* nothing is sent before */
    int64_t next_us;     /* when the next row may go: those that wait stand in line */
    int64_t went_us;     /* the turn in which one went last */
    uint32_t gap_us;     /* … and that far apart */
    uint32_t rests;      /* doublings of the next one */
    int64_t rest_us;     /* the last one's length */
};

/* A job's row or batch was refused: its partition rests. delay_us: how long, when the application said so; −1: the usual. Returns
   how long op itself waits. */
int64_t cqr_partition_refused(struct lane *lane, struct op *op, int64_t delay_us);
/* Only where lane->rest_count is not 0. When may this op (its version, plan and token are set) be sent? 0: now; else its place in the
   line is then. */
int64_t cqr_partition_due(struct lane *lane, const struct op *op);
/* Its wait is over: true: its partition has been refused again meanwhile, or another one went in this turn, and it waits on. */
bool cqr_partition_waits_on(struct lane *lane, struct op *op);
/* Without having been sent: op, whose values are in a block of its own by now, waits until then. */
void cqr_partition_wait(struct lane *lane, struct op *op, int64_t due_us);

#endif
