/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CONTACTS_H
#define CQR_CONTACTS_H

/* Where a cluster's contact points lead. The control connection has them looked up for each of its rounds; those that are names are
   looked up every resolve_interval_us besides, so that what is dialled when nothing else answers is not what a name meant long ago.
   What a name led to stays until it leads somewhere: a resolver that fails takes nothing away.

   Names are asked for on the resolver's thread (resolve.h), never on a lane; all else here is lane 0's submitter. */

#include "driver/lane.h"
#include "driver/resolve.h"

struct cqlring_cluster;

bool cqr_contacts_create(struct cqlring_cluster *cluster);
void cqr_contacts_stop(struct lane *lane, struct cqlring_cluster *cluster);
void cqr_contacts_free(struct cqlring_cluster *cluster);
/* The points were looked up just now. */
void cqr_contacts_learn(struct cqlring_cluster *cluster, const struct resolution *found);
/* The newest addresses of each point; valid until they are learned again. */
const struct resolution *cqr_contacts_known(const struct cqlring_cluster *cluster);
/* The name of a contact point that led to this address, "" if none did. */
const char *cqr_contacts_name(const struct cqlring_cluster *cluster, const struct address *address);
void cqr_contacts_timer(struct lane *lane, struct timer *timer);

#endif
