/* SPDX-License-Identifier: Apache-2.0 */
/* Tablet payloads, each behind a byte with its length, put into a small cache. */
#include <assert.h>

#include "cql/tablet_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_map(const struct tablet_map *map, const struct tablet *added)
{
    for (uint32_t i = 0; i < map->count; ++i) {
        assert(map->tablets[i].first < map->tablets[i].last);
        assert(i == 0 || map->tablets[i - 1].last <= map->tablets[i].first);
    }
    assert(cqr_tablet_map_find(map, added->last)->last == added->last);
    assert(cqr_tablet_map_find(map, added->first + 1)->last == added->last);
    const struct tablet *before = cqr_tablet_map_find(map, added->first);
    assert(before == NULL || before->last == added->first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool v2 = (data[0] & 1) != 0;
    const uint8_t *at = data + 1, *end = data + size;
    struct tablet_map map;
    cqr_tablet_map_init(&map, 5);
    while (at < end) {
        int32_t payload_size = *at++;
        if (payload_size > end - at)
            payload_size = (int32_t)(end - at);
        struct arena arena;
        cqr_arena_init(&arena, 1 << 16);
        struct tablet tablet;
        if (cqr_tablet_decode((cqlring_bytes){at, payload_size}, v2, &arena, &tablet) ==
            CQLRING_OK) {
            assert(tablet.replica_count > 0 && tablet.first < tablet.last);
            if (cqr_tablet_map_add(&map, &tablet) == CQLRING_OK)
                check_map(&map, &tablet);
            else if ((data[0] & 2) != 0)
                assert(cqr_tablet_map_forget_host(&map, map.tablets[0].replicas[0].host_id) > 0);
        }
        cqr_arena_fini(&arena);
        at += payload_size;
    }
    cqr_tablet_map_fini(&map);
    assert(cqr_mem_live_count() == 0);
    return 0;
}
