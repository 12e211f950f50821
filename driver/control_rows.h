/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CONTROL_ROWS_H
#define CQR_CONTROL_ROWS_H

/* The rows of the system tables made into a topology. A function of its arguments but for interning nodes in the cluster.
   Lane 0's submitter. */

#include "driver/cqlring.h"
#include "driver/net.h"
#include "driver/topology.h"

struct cqlring_cluster;
struct lane;

/* local: system.local; peers: system.peers_v2 or system.peers (told apart by their columns); keyspaces: name and replication;
   tablets: name and initial_tablets of ScyllaDB's, NULL where there are none.
   dialled, dialled_name: where the control connection goes, which is the local node's address (and the contact name). Half-joined rows are left out (no host_id,
   data_center, rack or tokens), and so is a row about the local node. PROTOCOL with a sentence in why when system.local is empty
   or says nothing useful (RC-17). */
cqlring_status cqr_topology_read(struct cqlring_cluster *cluster, cqlring_result *local, cqlring_result *peers, cqlring_result *keyspaces, cqlring_result *tablets,
                                 const struct address *dialled, const char *dialled_name, struct topology **topology, char *why, size_t why_size);

/* A tablet is on a node that nobody knows: read again, soon. Any lane's submitter. control_read.c */
void cqr_control_look(struct lane *lane, struct cqlring_cluster *cluster);
/* Names of client routes were looked up. moved: some that are in force lead elsewhere now. Lane 0's submitter. control_read.c */
void cqr_control_routes_found(struct lane *lane, struct cqlring_cluster *cluster, bool moved);
/* STATUS_CHANGE UP: every lane tries the node at once. control_read.c */
void cqr_control_hint(struct lane *lane, struct cqlring_cluster *cluster, struct cqlring_node *node);

#endif
