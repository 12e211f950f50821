/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TABLET_MAP_H
#define CQR_TABLET_MAP_H

/* Scylla's tablets: payload decoding and the cache of one table, as pure functions (routing reference, section 8). */

#include <stdbool.h>
#include <stdint.h>

#include "serialize/cqlring_types.h"
#include "serialize/mem.h"

struct tablet_replica {
    uint8_t host_id[16];
    int32_t shard;
    uint32_t node; /* the caller's: who that is; decoded as UINT32_MAX */
};

struct tablet {
    int64_t first; /* exclusive */
    int64_t last;  /* inclusive */
    uint64_t version; /* v2; 0 for v1 */
    uint32_t replica_count;
    struct tablet_replica *replicas;
};

/* The payload tablets-routing-v1 (v2: with version). Replicas go into the arena. CQLRING_PROTOCOL on first >= last,
   negative shard, no replicas, or torn bytes. */
cqlring_status cqr_tablet_decode(cqlring_bytes payload, bool v2, struct arena *arena, struct tablet *out);

struct tablet_map { /* sorted, not overlapping; owns the replicas it holds */
    struct tablet *tablets;
    uint32_t count, capacity, count_max;
};
void cqr_tablet_map_init(struct tablet_map *map, uint32_t count_max);
cqlring_status cqr_tablet_map_add(struct tablet_map *map, const struct tablet *tablet); /* copies; removes what overlaps */
const struct tablet *cqr_tablet_map_find(const struct tablet_map *map, int64_t token);  /* NULL: unknown */
uint32_t cqr_tablet_map_forget_host(struct tablet_map *map, const uint8_t host_id[16]); /* how many were dropped */
void cqr_tablet_map_fini(struct tablet_map *map);

/* tablet_version_block of the EXECUTE (v2): (index << 4) | nibble. */
uint8_t cqr_tablet_version_block(uint64_t version, uint8_t index);

#endif
