/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/tablet_map.h"
#include "serialize/buf.h"

static struct arena arena;
static struct tablet_map map;

static void setup(void)
{
    cqr_arena_init(&arena, 1 << 20);
    cqr_tablet_map_init(&map, 8);
}

static void teardown(void)
{
    cqr_tablet_map_fini(&map);
    cqr_arena_fini(&arena);
    ck_assert_int_eq(cqr_mem_live_count(), 0);
}

/* The fields of a payload, as the server writes them. */
struct payload {
    int64_t first, last;
    uint32_t replica_count;
    int32_t shard;
    uint32_t extra_in_tuple; /* bytes of one more field in each replica */
    bool v2;
};

static cqlring_bytes encode(uint8_t *room, uint32_t capacity, struct payload payload)
{
    struct writer writer;
    cqr_writer_init(&writer, room, capacity);
    cqr_put_u32(&writer, 8);
    cqr_put_u64(&writer, (uint64_t)payload.first);
    cqr_put_u32(&writer, 8);
    cqr_put_u64(&writer, (uint64_t)payload.last);
    uint32_t tuple_size = 20 + 8 + (payload.extra_in_tuple > 0 ? 4 + payload.extra_in_tuple : 0);
    cqr_put_u32(&writer, 4 + payload.replica_count * (4 + tuple_size));
    cqr_put_u32(&writer, payload.replica_count);
    for (uint32_t i = 0; i < payload.replica_count; ++i) {
        cqr_put_u32(&writer, tuple_size);
        cqr_put_u32(&writer, 16);
        for (uint32_t j = 0; j < 16; ++j)
            cqr_put_u8(&writer, (uint8_t)(16 * i + j));
        cqr_put_u32(&writer, 4);
        cqr_put_u32(&writer, (uint32_t)payload.shard + i);
        if (payload.extra_in_tuple > 0) {
            cqr_put_u32(&writer, payload.extra_in_tuple);
            for (uint32_t j = 0; j < payload.extra_in_tuple; ++j)
                cqr_put_u8(&writer, 0);
        }
    }
    if (payload.v2) {
        cqr_put_u32(&writer, 8);
        cqr_put_u64(&writer, 0xFEDCBA9876543210u);
    }
    ck_assert(!writer.failed);
    return (cqlring_bytes){.data = room, .size = (int32_t)writer.size};
}

START_TEST(payload_is_read_with_fields_of_newer_servers_ignored)
{
    for (int how = 0; how < 4; ++how) {
        uint8_t room[512];
        struct payload payload = {-7, 9, 3, 5, (how & 1) != 0 ? 6 : 0, (how & 2) != 0};
        cqlring_bytes bytes = encode(room, sizeof room, payload);
        struct tablet tablet;
        ck_assert_int_eq(cqr_tablet_decode(bytes, payload.v2, &arena, &tablet), CQLRING_OK);
        ck_assert_int_eq(tablet.first, -7);
        ck_assert_int_eq(tablet.last, 9);
        ck_assert_uint_eq(tablet.version, payload.v2 ? 0xFEDCBA9876543210u : 0);
        ck_assert_uint_eq(tablet.replica_count, 3);
        for (uint32_t i = 0; i < 3; ++i) {
            ck_assert_int_eq(tablet.replicas[i].shard, 5 + (int32_t)i);
            ck_assert_uint_eq(tablet.replicas[i].host_id[0], 16 * i);
            ck_assert_uint_eq(tablet.replicas[i].host_id[15], 16 * i + 15);
        }
    }
}
END_TEST

START_TEST(payload_without_sense_is_refused)
{
    static const struct payload payloads[] = {
        {5, 5, 1, 0, 0, false},  {6, 5, 1, 0, 0, false},         {0, 1, 0, 0, 0, false},
        {0, 1, 1, -1, 0, false}, {0, 1, 2, INT32_MAX, 0, false},
    };
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; ++i) {
        uint8_t room[512];
        struct tablet tablet;
        ck_assert_int_eq(
            cqr_tablet_decode(encode(room, sizeof room, payloads[i]), false, &arena, &tablet),
            CQLRING_PROTOCOL);
    }
    uint8_t room[512];
    struct tablet tablet;
    cqlring_bytes v1 = encode(room, sizeof room, (struct payload){0, 1, 1, 0, 0, false});
    ck_assert_int_eq(cqr_tablet_decode(v1, true, &arena, &tablet),
                     CQLRING_PROTOCOL); /* v2 without a version */
    ck_assert_int_eq(cqr_tablet_decode((cqlring_bytes){NULL, CQLRING_NULL}, false, &arena, &tablet),
                     CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_tablet_decode((cqlring_bytes){"", 0}, false, &arena, &tablet),
                     CQLRING_PROTOCOL);
    cqr_store_u32(room + 28, 0x7FFFFFFF); /* a count that would take 40 GiB */
    ck_assert_int_eq(cqr_tablet_decode(v1, false, &arena, &tablet), CQLRING_PROTOCOL);
}
END_TEST

START_TEST(payload_cut_anywhere_is_refused)
{
    uint8_t room[512];
    cqlring_bytes whole = encode(room, sizeof room, (struct payload){0, 1, 3, 0, 0, true});
    for (int32_t size = 0; size < whole.size; ++size) {
        uint8_t *cut = malloc((size_t)size + (size == 0));
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, room, (size_t)size);
        struct tablet tablet;
        ck_assert_int_eq(cqr_tablet_decode((cqlring_bytes){cut, size}, true, &arena, &tablet),
                         CQLRING_PROTOCOL);
        free(cut);
    }
}
END_TEST

static cqlring_status add(int64_t first, int64_t last, uint8_t host)
{
    struct tablet_replica replica = {.host_id = {host}, .shard = host};
    return cqr_tablet_map_add(
        &map,
        &(struct tablet){.first = first, .last = last, .replica_count = 1, .replicas = &replica});
}

/* TB-06: the first token is outside, the last inside. */
START_TEST(tb_06_range_excludes_its_first_token_and_includes_its_last)
{
    ck_assert_int_eq(add(INT64_MIN, 0, 1), CQLRING_OK);
    ck_assert_int_eq(add(0, INT64_MAX, 2), CQLRING_OK);
    ck_assert_uint_eq(map.count, 2); /* touching ranges do not overlap */
    static const struct {
        int64_t token;
        uint8_t host;
    } cases[] = {{0, 1}, {1, 2}, {INT64_MIN + 1, 1}, {INT64_MAX, 2}, {-1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        ck_assert_uint_eq(cqr_tablet_map_find(&map, cases[i].token)->replicas[0].host_id[0],
                          cases[i].host);
    ck_assert_ptr_null(cqr_tablet_map_find(&map, INT64_MIN));
}
END_TEST

START_TEST(added_tablet_removes_what_it_overlaps_and_nothing_else)
{
    for (int i = 0; i < 6; ++i)
        ck_assert_int_eq(add(10 * i, 10 * i + 10, (uint8_t)i), CQLRING_OK);
    ck_assert_int_eq(add(15, 40, 9), CQLRING_OK); /* (10,20], (20,30], (30,40] go */
    ck_assert_uint_eq(map.count, 4);
    ck_assert_ptr_null(cqr_tablet_map_find(&map, 15));
    ck_assert_int_eq(cqr_tablet_map_find(&map, 10)->replicas[0].shard, 0);
    ck_assert_int_eq(cqr_tablet_map_find(&map, 16)->replicas[0].shard, 9);
    ck_assert_int_eq(cqr_tablet_map_find(&map, 40)->replicas[0].shard, 9);
    ck_assert_int_eq(cqr_tablet_map_find(&map, 41)->replicas[0].shard, 4);
    ck_assert_int_eq(add(INT64_MIN, INT64_MAX, 7), CQLRING_OK);
    ck_assert_uint_eq(map.count, 1);
}
END_TEST

START_TEST(full_map_refuses_a_new_range_but_takes_what_replaces_others)
{
    for (int i = 0; i < 8; ++i)
        ck_assert_int_eq(add(10 * i, 10 * i + 5, (uint8_t)i), CQLRING_OK);
    ck_assert_int_eq(add(1000, 1001, 1), CQLRING_FULL);
    ck_assert_uint_eq(map.count, 8);
    ck_assert_int_eq(add(0, 5, 99), CQLRING_OK);
    ck_assert_uint_eq(map.count, 8);
    ck_assert_int_eq(cqr_tablet_map_find(&map, 3)->replicas[0].shard, 99);
}
END_TEST

START_TEST(host_that_left_takes_its_tablets_along)
{
    for (int i = 0; i < 8; ++i)
        ck_assert_int_eq(add(10 * i, 10 * i + 10, (uint8_t)(i % 3)), CQLRING_OK);
    const uint8_t host[16] = {1}, nobody[16] = {77};
    ck_assert_uint_eq(cqr_tablet_map_forget_host(&map, nobody), 0);
    ck_assert_uint_eq(cqr_tablet_map_forget_host(&map, host), 3);
    ck_assert_uint_eq(map.count, 5);
    for (uint32_t i = 0; i < map.count; ++i)
        ck_assert_int_ne(map.tablets[i].replicas[0].shard, 1);
    for (uint32_t i = 1; i < map.count; ++i)
        ck_assert_int_le(map.tablets[i - 1].last, map.tablets[i].first);
}
END_TEST

START_TEST(every_failing_allocation_leaves_the_map_as_it_was)
{
    ck_assert_int_eq(add(0, 10, 1), CQLRING_OK);
    for (uint64_t n = 1;; ++n) {
        cqr_mem_fail_at(n, 0);
        cqlring_status status = add(5, 20, 2);
        cqr_mem_fail_at(0, 0);
        if (status == CQLRING_OK)
            break;
        ck_assert_int_eq(status, CQLRING_NO_MEMORY);
        ck_assert_uint_eq(map.count, 1);
        ck_assert_int_eq(cqr_tablet_map_find(&map, 7)->replicas[0].shard, 1);
    }
    ck_assert_uint_eq(map.count, 1);
    ck_assert_int_eq(cqr_tablet_map_find(&map, 7)->replicas[0].shard, 2);

    struct tablet_map empty;
    cqr_tablet_map_init(&empty, 4);
    struct tablet_replica replica = {.shard = 1};
    const struct tablet tablet = {.first = 0, .last = 1, .replica_count = 1, .replicas = &replica};
    for (uint64_t n = 1; n <= 2; ++n) {
        cqr_mem_fail_at(n, 0);
        ck_assert_int_eq(cqr_tablet_map_add(&empty, &tablet), CQLRING_NO_MEMORY);
        cqr_mem_fail_at(0, 0);
        cqr_tablet_map_fini(&empty);
    }

    uint8_t room[512];
    cqlring_bytes bytes = encode(room, sizeof room, (struct payload){0, 1, 2, 0, 0, false});
    struct arena small;
    cqr_arena_init(&small, 8);
    struct tablet decoded;
    ck_assert_int_eq(cqr_tablet_decode(bytes, false, &small, &decoded), CQLRING_NO_MEMORY);
    cqr_arena_fini(&small);
}
END_TEST

/* Against a model that keeps the owner of each single token. */
START_TEST(random_adds_and_lookups_agree_with_an_array)
{
    enum { TOKENS = 60 };
    uint64_t seed = (uint64_t)_i * 7919 + 1;
    int owner[TOKENS];
    struct {
        int first, last;
    } ranges[200];
    for (int i = 0; i < TOKENS; ++i)
        owner[i] = -1;
    cqr_tablet_map_init(&map, TOKENS);
    for (int turn = 0; turn < 200; ++turn) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        int first = (int)(seed % (TOKENS - 1));
        int last = first + 1 + (int)(seed / 1000 % (uint64_t)(TOKENS - 1 - first));
        for (int i = first + 1; i <= last; ++i) {
            if (owner[i] < 0)
                continue;
            int gone = owner[i];
            for (int j = ranges[gone].first + 1; j <= ranges[gone].last; ++j)
                owner[j] = -1;
        }
        ranges[turn].first = first;
        ranges[turn].last = last;
        for (int i = first + 1; i <= last; ++i)
            owner[i] = turn;
        struct tablet_replica replica = {.shard = turn};
        ck_assert_int_eq(cqr_tablet_map_add(&map, &(struct tablet){.first = first,
                                                                   .last = last,
                                                                   .replica_count = 1,
                                                                   .replicas = &replica}),
                         CQLRING_OK);
        for (int i = 0; i < TOKENS; ++i) {
            const struct tablet *tablet = cqr_tablet_map_find(&map, i);
            ck_assert_int_eq(tablet == NULL ? -1 : tablet->replicas[0].shard, owner[i]);
        }
    }
}
END_TEST

START_TEST(version_block_holds_the_index_and_its_nibble)
{
    for (uint8_t index = 0; index < 16; ++index)
        ck_assert_uint_eq(cqr_tablet_version_block(0xFEDCBA9876543210u, index),
                          (unsigned)index << 4 | index);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tablet_map");
    TCase *tcase = tcase_create("tablet_map");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, payload_is_read_with_fields_of_newer_servers_ignored);
    tcase_add_test(tcase, payload_without_sense_is_refused);
    tcase_add_test(tcase, payload_cut_anywhere_is_refused);
    tcase_add_test(tcase, tb_06_range_excludes_its_first_token_and_includes_its_last);
    tcase_add_test(tcase, added_tablet_removes_what_it_overlaps_and_nothing_else);
    tcase_add_test(tcase, full_map_refuses_a_new_range_but_takes_what_replaces_others);
    tcase_add_test(tcase, host_that_left_takes_its_tablets_along);
    tcase_add_test(tcase, every_failing_allocation_leaves_the_map_as_it_was);
    tcase_add_loop_test(tcase, random_adds_and_lookups_agree_with_an_array, 0, 20);
    tcase_add_test(tcase, version_block_holds_the_index_and_its_nibble);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
