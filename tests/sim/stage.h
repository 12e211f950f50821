/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_STAGE_H
#define SIM_STAGE_H

/* What every run stands on: nodes with their schema, the network, a runtime in caller mode on both, a cluster, a session and
   two statements; and the way down again, with everything given back. */

#include "driver/cqlring.h"
#include "network.h"
#include "world.h"

struct lane;

struct stage_options {
    struct node_options node; /* seed and address are set here */
    uint32_t replication;
    struct network_shape network;
    cqlring_runtime_options runtime;
    cqlring_cluster_options cluster;
    cqlring_session_options session;
    bool quiet; /* an open may fail: faults are there from the start */
};

struct stage {
    struct node_cluster *nodes;
    uint32_t node_count;
    cqlring_runtime *runtime;
    cqlring_cluster *cluster;
    cqlring_session *session;
    cqlring_prepared *insert, *select;
    int64_t live_before;
    bool foreign;         /* the application has a loop of its own, which sleeps on the runtime's descriptor */
    struct chance chance; /* how the application's thread waits */
};

void stage_options_init(struct stage_options *options, uint32_t nodes);
void stage_nodes(struct stage *stage,
                 const struct stage_options *options); /* nodes, network, runtime */
/* Everything above them; false when it failed and may (quiet): then there is nothing but what stage_nodes made. */
bool stage_open(struct stage *stage, const struct stage_options *options);
/* Run turns until done says so, in whatever way an application can. */
void stage_drive(struct stage *stage, bool (*done)(void *context), void *context);
void stage_wait(struct stage *stage, cqlring_future *future);
void stage_run_for(struct stage *stage, int64_t us);
struct lane *stage_lane(const struct stage *stage);
uint32_t stage_ops(const struct stage *stage); /* in use, without the driver's own */
void stage_close(struct stage *stage);         /* session and cluster, what there is of them */
void stage_down(struct stage *stage);          /* the rest; faults when anything is left */

#endif
