/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_LISTENER_H
#define CQR_LISTENER_H

/* What the application is told about nodes (on_node), and asked (translate_address). Both run on lane 0's submitter: there the
   topology changes; connections that come and go on other lanes are told by a message, which looks at the node again, so a state
   is told once, and the last one told is the last one there was. Nothing is told once the cluster is closing. */

#include "driver/lane.h"

struct cqlring_cluster;
struct cqlring_node;
struct topology;

/* Lane 0: before the new topology is given to the lanes. */
void cqr_listener_topology(struct cqlring_cluster *cluster, const struct topology *before, const struct topology *after);
/* Any lane: its first connection came, or its last one went. */
void cqr_listener_node(struct lane *lane, struct cqlring_cluster *cluster, struct cqlring_node *node);
/* Lane 0: where the application wants this node to be dialled; address is changed when it says so. */
void cqr_node_translate(struct cqlring_cluster *cluster, const struct cqlring_node *node, struct address *address);

#endif
