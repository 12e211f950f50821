/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_NODE_H
#define CQR_NODE_H

/* A cluster's table of nodes: whoever has the same host id is the same node, wherever it is. What was learned of it, its counters
   and the handles that name it go on when it gets another address; only its place is another one. Lane 0's submitter. */

#include "driver/topology.h"

struct cqlring_cluster;

/* The cluster's node of that host_id, datacenter and rack; made when it is new (index is given by the cluster). *place: the one like
   like's, of this node, which is in force when it is settled. NULL: out of memory. */
struct cqlring_node *cqr_cluster_intern(struct cqlring_cluster *cluster, const struct cqlring_node *like, const struct node_place **place);
/* It is here from now on. The lanes follow with the next topology. */
void cqr_node_settle(struct cqlring_cluster *cluster, struct cqlring_node *node, const struct node_place *place);
void cqr_nodes_free(struct cqlring_cluster *cluster); /* at its end: nobody looks any more */

#endif
