/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/tablet_map.h"

#include <string.h>

#include "serialize/buf.h"

/* --- payload ---------------------------------------------------------------------------------- */

enum { TABLETS_CAPACITY_FIRST = 16, REPLICA_SIZE_MIN = 4 + (4 + 16) + (4 + 4) };

/* A fixed-size field in its value encoding: the length, then the payload. */
static const uint8_t *get_field(struct reader *reader, uint32_t size)
{
    if (cqr_get_u32(reader) != size)
        reader->failed = true;
    return cqr_get_raw(reader, size);
}

static int64_t get_bigint(struct reader *reader)
{
    const uint8_t *at = get_field(reader, 8);
    return at == NULL ? 0 : (int64_t)cqr_load_u64(at);
}

static bool get_replica(struct reader *list, struct tablet_replica *out)
{
    cqlring_bytes tuple = cqr_get_bytes(list);
    if (list->failed || tuple.size < 0)
        return false;
    struct reader reader;
    cqr_reader_init(&reader, tuple.data, (uint32_t)tuple.size);
    const uint8_t *host_id = get_field(&reader, sizeof out->host_id);
    const uint8_t *shard = get_field(&reader, sizeof out->shard);
    if (reader.failed)
        return false;
    memcpy(out->host_id, host_id, sizeof out->host_id);
    out->shard = (int32_t)cqr_load_u32(shard);
    out->node = UINT32_MAX;
    return out->shard >= 0;
}

/* tuple<bigint, bigint, list<tuple<uuid, int>>> and, in v2, one more bigint. Further fields, in
   either tuple, are of a newer server and ignored. */
cqlring_status cqr_tablet_decode(cqlring_bytes payload, bool v2, struct arena *arena,
                                 struct tablet *out)
{
    *out = (struct tablet){.first = 0};
    if (payload.size <= 0)
        return CQLRING_PROTOCOL;
    struct reader reader;
    cqr_reader_init(&reader, payload.data, (uint32_t)payload.size);
    out->first = get_bigint(&reader);
    out->last = get_bigint(&reader);
    cqlring_bytes list = cqr_get_bytes(&reader);
    if (v2)
        out->version = (uint64_t)get_bigint(&reader);
    if (reader.failed || list.size < 0 || out->first >= out->last)
        return CQLRING_PROTOCOL;

    cqr_reader_init(&reader, list.data, (uint32_t)list.size);
    int32_t count = cqr_get_i32(&reader);
    if (reader.failed || count <= 0 ||
        (uint32_t)count > cqr_reader_left(&reader) / REPLICA_SIZE_MIN)
        return CQLRING_PROTOCOL;
    struct tablet_replica *replicas = cqr_arena_array(arena, (size_t)count, sizeof *replicas);
    if (replicas == NULL)
        return CQLRING_NO_MEMORY;
    for (int32_t i = 0; i < count; ++i) {
        if (!get_replica(&reader, &replicas[i]))
            return CQLRING_PROTOCOL;
    }
    out->replicas = replicas;
    out->replica_count = (uint32_t)count;
    return CQLRING_OK;
}

uint8_t cqr_tablet_version_block(uint64_t version, uint8_t index)
{
    index &= 15u;
    return (uint8_t)((uint32_t)index << 4 | ((uint32_t)(version >> (4u * index)) & 15));
}

/* --- cache of a table ------------------------------------------------------------------------- */

void cqr_tablet_map_init(struct tablet_map *map, uint32_t count_max)
{
    *map = (struct tablet_map){.count_max = count_max};
}

/* Index of the first tablet with last >= token, count when there is none. */
static uint32_t lower_bound(const struct tablet_map *map, int64_t token)
{
    uint32_t low = 0, high = map->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (map->tablets[middle].last < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static cqlring_status make_room(struct tablet_map *map)
{
    if (map->count < map->capacity)
        return CQLRING_OK;
    uint32_t capacity = map->capacity == 0 ? TABLETS_CAPACITY_FIRST : 2 * map->capacity;
    if (capacity > map->count_max || capacity < map->capacity)
        capacity = map->count_max;
    if (capacity <= map->count)
        return CQLRING_FULL;
    struct tablet *tablets = cqr_mem_realloc(map->tablets, capacity * sizeof *tablets);
    if (tablets == NULL)
        return CQLRING_NO_MEMORY;
    map->tablets = tablets;
    map->capacity = capacity;
    return CQLRING_OK;
}

/* Ranges are (first, last]: touching ones do not overlap. */
cqlring_status cqr_tablet_map_add(struct tablet_map *map, const struct tablet *tablet)
{
    uint32_t from = tablet->first == INT64_MAX ? map->count : lower_bound(map, tablet->first + 1);
    uint32_t to = from;
    while (to < map->count && map->tablets[to].first < tablet->last)
        ++to;
    if (to == from) { /* nothing makes way */
        cqlring_status status = make_room(map);
        if (status != CQLRING_OK)
            return status;
    }
    struct tablet_replica *replicas = cqr_mem_array(tablet->replica_count, sizeof *replicas);
    if (replicas == NULL)
        return CQLRING_NO_MEMORY;
    if (tablet->replica_count > 0)
        memcpy(replicas, tablet->replicas, tablet->replica_count * sizeof *replicas);

    for (uint32_t i = from; i < to; ++i)
        cqr_mem_free(map->tablets[i].replicas);
    memmove(&map->tablets[from + 1], &map->tablets[to], (map->count - to) * sizeof *map->tablets);
    map->count = map->count + 1 - (to - from);
    map->tablets[from] = *tablet;
    map->tablets[from].replicas = replicas;
    return CQLRING_OK;
}

const struct tablet *cqr_tablet_map_find(const struct tablet_map *map, int64_t token)
{
    uint32_t index = lower_bound(map, token);
    if (index == map->count || map->tablets[index].first >= token)
        return NULL;
    return &map->tablets[index];
}

static bool has_host(const struct tablet *tablet, const uint8_t host_id[16])
{
    for (uint32_t i = 0; i < tablet->replica_count; ++i) {
        if (memcmp(tablet->replicas[i].host_id, host_id, 16) == 0)
            return true;
    }
    return false;
}

uint32_t cqr_tablet_map_forget_host(struct tablet_map *map, const uint8_t host_id[16])
{
    uint8_t wanted[16]; /* it may be one of those that go */
    memcpy(wanted, host_id, sizeof wanted);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->count; ++i) {
        if (has_host(&map->tablets[i], wanted))
            cqr_mem_free(map->tablets[i].replicas);
        else
            map->tablets[kept++] = map->tablets[i];
    }
    uint32_t dropped = map->count - kept;
    map->count = kept;
    return dropped;
}

void cqr_tablet_map_fini(struct tablet_map *map)
{
    for (uint32_t i = 0; i < map->count; ++i)
        cqr_mem_free(map->tablets[i].replicas);
    cqr_mem_free(map->tablets);
    *map = (struct tablet_map){.count_max = map->count_max};
}
