/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BULK_H
#define BULK_H

/* Many rows into cqlring_live.bulk (k bigint PRIMARY KEY, v blob) while things are done to the nodes, and back again. Each row's
   outcomes are written down; what was acknowledged must be found. One thread. */

#include <cqlring.h>

void bulk_init(uint64_t rows); /* at most */
void bulk_fini(void);

/* What is done to the nodes, once so many per cent of the rows have had their outcome: an argument of live.control. The job goes
   on meanwhile. */
struct bulk_step {
    uint64_t percent;
    const char *command;
};
bool bulk_control(const char *command);

struct bulk_writing {
    uint64_t begin, end;
    uint64_t enough;         /* > 0: ends here, as soon as all steps are done; they are then by this number's percents */
    uint64_t failed_percent; /* so many rows may fail */
    double rows_per_s;
    int64_t timeout_us;      /* of a row, retries included; 0: the default */
    cqlring_consistency consistency;
    const struct bulk_step *steps;
    uint32_t step_count;
};
/* Returns where it ended. Each row must have one outcome, and all steps must be done before the end. */
uint64_t bulk_write(cqlring_session *session, const struct bulk_writing *how);
/* All of it by token ranges: no acknowledged row is missing, none is there that was not written so. */
void bulk_scan(cqlring_session *session, cqlring_consistency consistency);
/* Every tenth row by its key; all must be there. */
void bulk_read_keys(cqlring_session *session, uint64_t end, cqlring_consistency consistency, double rows_per_s);

/* Until so many nodes have a connection; until all have the same schema. */
bool bulk_wait_for_nodes(cqlring_cluster *cluster, uint32_t wanted, int limit_s);
bool bulk_wait_for_schema(cqlring_cluster *cluster, cqlring_session *session, int limit_s);

#endif
