/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TABLETS_H
#define CQR_TABLETS_H

/* Where the tablets of ScyllaDB's tables are, as far as a pool has been told: a reply to a request that came to a wrong node or
   shard carries the place of its tablet, and is learned from. Each pool keeps its own, so no row has to lock: the submitter that
   reads the reply is the one that routes by it. The cluster has a copy of all of them for cqlring_route_of. What is not known (yet) goes to any node of the datacenter, never by
   the token ring (TB-03). Submitter. */

#include "cql/tablet_map.h"
#include "driver/cqlring.h"

struct cqlring_cluster;
struct lane;
struct pool;
struct statement_version;

struct tablet_table {
    struct tablet_table *next;
    char keyspace[64], name[64];
    struct tablet_map map;         /* replicas' node: the index of their link; TABLET_NODE_UNKNOWN until a topology has them */
};

#define TABLET_NODE_UNKNOWN UINT32_MAX

struct tablet_cache {
    struct tablet_table *tables;
    uint32_t table_count;
    int64_t looked_us;             /* when an unknown node made control look last */
};

/* The statement's table; made when it is new. NULL: not known, or no room for more tables. Lives until the next topology. */
struct tablet_table *cqr_tablets_table(struct tablet_cache *cache, const struct statement_version *version);
/* The same, never made. */
struct tablet_table *cqr_tablets_find(const struct tablet_cache *cache, const struct statement_version *version);
/* A payload tablets-routing-v1 came with the reply to this statement. What makes no sense is ignored. */
void cqr_tablets_learn(struct lane *lane, struct pool *pool, const struct statement_version *version, cqlring_bytes payload);
/* The pool has a new topology: nodes that are gone take their tablets with them, and so do keyspaces. */
void cqr_tablets_topology(struct pool *pool);
/* The schema changed. table empty: all of the keyspace. */
void cqr_tablets_forget(struct pool *pool, cqlring_bytes keyspace, cqlring_bytes table);
void cqr_tablets_forget_shared(struct cqlring_cluster *cluster, cqlring_bytes keyspace, cqlring_bytes table); /* in the cluster's copy */
void cqr_tablets_fini(struct tablet_cache *cache);

#endif
