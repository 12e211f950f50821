/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

/* What a seed stands for: the cluster, the network, what goes wrong when, and what the application does. Made before
   anything runs, as plain data, so that it can be told in words. */

#include <stdio.h>

#include "stage.h"

enum { JOBS_MAX = 3, MISHAPS_MAX = 12, FAULTS_MAX = 5, PARTITIONS = 24 };

enum job_kind { JOB_WRITE, JOB_READ };

struct job_plan {
    enum job_kind kind;
    uint32_t rows;               /* that the source has */
    uint32_t size_min, size_max; /* of a value */
    cqlring_job_options options;
    cqlring_execution execution;
    bool has_sink;
    int64_t start_us;
    /* the source */
    uint32_t batch_max; /* rows a call */
    uint32_t source_later_percent;
    uint32_t source_fail_at; /* row at which it fails; UINT32_MAX never */
    uint32_t bad_percent;    /* rows with one cell too many */
    /* the sink */
    uint32_t sink_later_percent;
    uint32_t sink_stop_at; /* accepted rows after which it says STOP; UINT32_MAX never */
    /* from outside; −1 never */
    int64_t pause_us, resume_us, cancel_us, rate_us;
    double rate_then;
};

enum mishap_kind {
    MISHAP_RESET,
    MISHAP_CLOSE,
    MISHAP_HALF_OPEN,
    MISHAP_CRASH,
    MISHAP_FREEZE,
    MISHAP_REFUSE,
    MISHAP_BLACKHOLE,
    MISHAP_SLOW,
    MISHAP_NO_SOCKETS,
    MISHAP_GAP,
    MISHAP_FORGET,
    MISHAP_SILENCE,
    MISHAP_CLOCK,
    MISHAP_EVENT,
    MISHAP_TABLETS, /* split, merged, moved */
    MISHAP_RESHARD, /* the node starts again with another number of shards */
    MISHAP_COUNT
};

struct mishap {
    enum mishap_kind kind;
    int64_t at_us, for_us;
    uint32_t node; /* or NODE_ALL */
    int64_t amount;
};

enum ending { END_ALL, END_SESSION_CLOSE, END_CLUSTER_CLOSE };

struct plan {
    uint64_t seed;
    struct stage_options stage;
    enum node_shard_port shard_port;
    bool early; /* mishaps from before the cluster is opened */
    struct job_plan jobs[JOBS_MAX];
    uint32_t job_count;
    uint32_t singles, single_size_max;
    cqlring_execution single_execution;
    uint32_t queued, queue_capacity, queued_size_max;
    uint64_t queue_bytes_max;
    cqlring_execution queue_execution;
    struct mishap mishaps[MISHAPS_MAX];
    uint32_t mishap_count;
    char faults[FAULTS_MAX][128]; /* of the node, as node_fault_parse reads them */
    uint32_t fault_count;
    int64_t heal_us;    /* after the start of the work: nothing goes wrong any more */
    enum ending ending; /* END_ALL: when everything is through */
    int64_t end_us, drain_us;
    uint32_t partitions[PARTITIONS]; /* rows of each */
    uint32_t partition_size_max;
};

void plan_make(struct plan *plan, uint64_t seed);
void plan_tell(const struct plan *plan, FILE *file);

#endif
