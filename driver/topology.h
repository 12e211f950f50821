/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TOPOLOGY_H
#define CQR_TOPOLOGY_H

/* The cluster as the control connection last saw it: an immutable, counted snapshot of nodes, token ring and the
   replication of keyspaces. Control builds a new one and hands it to every lane; nobody changes one.

   Nodes are interned by host_id and live as long as their cluster and every handle that names one (a completion's node
   stays valid after the cluster's close). A node's index never changes and is not used again. Where a node is may change: that
   is a place of its own, never written again once others can see it, and kept as long as the node. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cql/ring_map.h"
#include "driver/cqlring.h"
#include "driver/net.h"

struct node_stats;

struct node_place {
    struct node_place *older;          /* of the same node; lane 0's submitter */
    struct address announced;          /* where the cluster says it is; address, unless that was translated */
    struct address address;            /* what is dialled */
    char text[64];                     /* "10.0.0.3:9042" */
    char contact_name[256];            /* the name that resolved to it, "" if none: for TLS */
    char release_version[64];          /* a restart may change it, as it may the address */
    bool is_denied;                    /* by the application: never connected to */
};

struct cqlring_node {
    uint32_t index;
    uint8_t host_id[16];
    _Atomic(const struct node_place *) place; /* where it is now; cqr_node_place */
    struct node_place *places;         /* all there were; lane 0's submitter */
    const struct node_place *told_place; /* to on_node; lane 0's submitter */
    char datacenter[128], rack[128];
    uint16_t dc, rack_number;          /* interned */
    bool is_local;
    bool told, told_up;                /* to on_node: it is there, it is up; lane 0's submitter */
    bool in_rack;                      /* the local one */
    atomic_uint connections;           /* up, all lanes */
    atomic_uint arrivals;              /* times that connections went from none to one */
    atomic_uint version;               /* of the protocol, on the latest connection; 0: there was none */
    atomic_uint in_flight;             /* written by lanes, relaxed, once a turn */
    atomic_uint suspects;              /* lanes that suspect it */
    _Atomic(struct node_stats *) stats; /* node_stats.h: by lane and shard */
    atomic_uint sharding;              /* as its last connection told: cqr_node_shards, and << 16 the bits of a token that say nothing of them */
    _Atomic(int64_t) shard_port_after_us; /* its shard-aware port is not used before; relaxed */
};

static inline const struct node_place *cqr_node_place(const struct cqlring_node *node) /* any thread; lives as long as the node */
{
    /* acquire: pairs with the release in cqr_node_settle */
    return atomic_load_explicit(&((struct cqlring_node *)(uintptr_t)node)->place, memory_order_acquire);
}

static inline uint32_t cqr_node_shards(unsigned sharding) /* 0: not sharded */
{
    return sharding & 0xFFFF;
}

struct keyspace {
    char name[64];                     /* CQL allows 48 characters */
    struct replication replication;
    bool tablets;                      /* ScyllaDB: its tables are spread by tablets, the token ring means nothing for them */
};

struct topology {
    atomic_uint references;
    uint64_t number;                   /* grows with each snapshot */
    struct cqlring_node **nodes;       /* those in the cluster now, any order; pointers into the cluster's table */
    uint32_t node_count;
    bool has_doubles;                  /* a node was there twice, at two addresses: peers are yet to be cleared up */
    struct ring_node *places;          /* by node index, 0 … place_count−1: dc and rack of each */
    uint32_t place_count;
    struct ring_entry *ring;           /* sorted; entry.node is a node index */
    uint32_t ring_count;
    enum partitioner partitioner;
    struct keyspace *keyspaces;        /* sorted by name */
    uint32_t keyspace_count;
    struct arena arena;                /* all arrays above */
};

struct topology *cqr_topology_create(void); /* empty, one reference; NULL when out of memory */
struct topology *cqr_topology_retain(struct topology *topology);
void cqr_topology_release(struct topology *topology);
/* `"dc1" (3 nodes), "dc2" (1 node)`, in the order in which they are met, cut to size with "…"; "none" without a node. */
void cqr_topology_datacenters(const struct topology *topology, char *text, size_t size);
const struct keyspace *cqr_topology_keyspace(const struct topology *topology, cqlring_bytes name); /* NULL: unknown */

/* Replicas of every ring entry of one keyspace, worked out when first asked for; a lane's own (submitter). */
struct replica_table {
    struct topology *topology;         /* a reference */
    const struct keyspace *keyspace;
    uint8_t width;                     /* replicas an entry: at most REPLICAS_MAX */
    uint8_t *known;                    /* by entry: 0 not yet, else count + 1 */
    uint16_t *replicas;                /* by entry × width: node indexes */
};
enum { REPLICAS_MAX = 16 };
cqlring_status cqr_replica_table_init(struct replica_table *table, struct topology *topology, const struct keyspace *keyspace);
void cqr_replica_table_fini(struct replica_table *table);
/* Replicas of a token, primary first; *count 0 when not known (any node will do). */
const uint16_t *cqr_replicas_of(struct replica_table *table, int64_t token, uint32_t *count);

#endif
