/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "driver/topology.h"

static int64_t live_before;

static void remember_memory(void)
{
    live_before = cqr_mem_live_count();
}

static void expect_no_leak(void)
{
    ck_assert_int_eq(cqr_mem_live_count(), live_before);
}

/* Nodes 0 … 5 in two racks of dc 0, tokens 0, 100, …; keyspaces sorted by name. */
enum { NODES = 6 };
static const char *names[] = {"a", "ab", "abc", "b", "system", "system_schema", "z"};
enum { KEYSPACES = sizeof names / sizeof names[0] };

static struct topology *example(void)
{
    struct topology *topology = cqr_topology_create();
    if (topology == NULL)
        return NULL;
    topology->node_count = topology->place_count = NODES;
    topology->ring_count = NODES;
    topology->keyspace_count = KEYSPACES;
    topology->partitioner = PARTITIONER_MURMUR3;
    topology->places = cqr_arena_array(&topology->arena, NODES, sizeof *topology->places);
    topology->ring = cqr_arena_array(&topology->arena, NODES, sizeof *topology->ring);
    topology->keyspaces = cqr_arena_array(&topology->arena, KEYSPACES, sizeof *topology->keyspaces);
    if (topology->places == NULL || topology->ring == NULL || topology->keyspaces == NULL) {
        cqr_topology_release(topology);
        return NULL;
    }
    for (uint32_t i = 0; i < NODES; ++i) {
        topology->places[i] = (struct ring_node){.dc = 0, .rack = (uint16_t)(i % 2)};
        topology->ring[i] = (struct ring_entry){.token = (int64_t)i * 100, .node = i};
    }
    for (uint32_t i = 0; i < KEYSPACES; ++i) {
        snprintf(topology->keyspaces[i].name, sizeof topology->keyspaces[i].name, "%s", names[i]);
        topology->keyspaces[i].replication = (struct replication){.strategy = STRATEGY_SIMPLE, .factor = (uint16_t)(i + 1)};
    }
    return topology;
}

START_TEST(datacenters_are_told_once_each_with_their_nodes_and_cut_between_two)
{
    static const char *const of[] = {"east", "west", "east", "north", "east"};
    static struct cqlring_node nodes[5];
    struct cqlring_node *pointers[5];
    char text[200];
    struct topology *topology = cqr_topology_create();
    cqr_topology_datacenters(topology, text, sizeof text);
    ck_assert_str_eq(text, "none");
    for (uint32_t i = 0; i < 5; ++i) {
        snprintf(nodes[i].datacenter, sizeof nodes[i].datacenter, "%s", of[i]);
        pointers[i] = &nodes[i];
    }
    topology->nodes = pointers;
    topology->node_count = 5;
    static const char whole[] = "\"east\" (3 nodes), \"west\" (1 node), \"north\" (1 node)";
    cqr_topology_datacenters(topology, text, sizeof text);
    ck_assert_str_eq(text, whole);
    for (size_t size = 5; size < sizeof text; ++size) {
        memset(text, '#', sizeof text);
        cqr_topology_datacenters(topology, text, size);
        ck_assert_uint_lt(strnlen(text, sizeof text), size);
        ck_assert(text[size] == '#');
        if (strcmp(text, whole) == 0)
            continue;
        ck_assert_msg(strcmp(text, "…") == 0 || strcmp(text, "\"east\" (3 nodes), …") == 0 || strcmp(text, "\"east\" (3 nodes), \"west\" (1 node), …") == 0, "%s", text);
        ck_assert_uint_le(size, sizeof whole + 5);
    }
    cqr_topology_release(topology);
}
END_TEST

START_TEST(keyspaces_are_found_by_their_whole_name)
{
    struct topology *topology = example();
    for (uint32_t i = 0; i < KEYSPACES; ++i) {
        const struct keyspace *keyspace = cqr_topology_keyspace(topology, cqlring_text(names[i]));
        ck_assert_ptr_eq(keyspace, &topology->keyspaces[i]);
        char longer[100];
        snprintf(longer, sizeof longer, "%sxyz", names[i]); /* the slice ends before xyz */
        ck_assert_ptr_eq(cqr_topology_keyspace(topology, (cqlring_bytes){longer, (int32_t)strlen(names[i])}), keyspace);
    }
    static const char *unknown[] = {"", "A", "aa", "abcd", "syste", "system_", "system_schem", "zz", " "};
    for (unsigned i = 0; i < sizeof unknown / sizeof unknown[0]; ++i)
        ck_assert_ptr_null(cqr_topology_keyspace(topology, cqlring_text(unknown[i])));
    char longest[200];
    memset(longest, 'a', sizeof longest);
    for (int32_t size = 60; size < 200; ++size)
        ck_assert_ptr_null(cqr_topology_keyspace(topology, (cqlring_bytes){longest, size}));
    ck_assert_ptr_null(cqr_topology_keyspace(topology, (cqlring_bytes){NULL, CQLRING_NULL}));
    cqr_topology_release(topology);
}
END_TEST

START_TEST(empty_topology_knows_nothing_and_harms_nobody)
{
    struct topology *topology = cqr_topology_create();
    ck_assert_ptr_null(cqr_topology_keyspace(topology, cqlring_text("a")));
    struct keyspace keyspace = {.name = "a", .replication = {.strategy = STRATEGY_SIMPLE, .factor = 3}};
    struct replica_table table;
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &keyspace), CQLRING_OK);
    uint32_t count = 9;
    (void)cqr_replicas_of(&table, 42, &count);
    ck_assert_uint_eq(count, 0);
    cqr_replica_table_fini(&table);
    cqr_topology_release(topology);
    cqr_topology_release(NULL);
}
END_TEST

START_TEST(table_keeps_its_topology_alive)
{
    struct topology *topology = example();
    struct replica_table table;
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[2]), CQLRING_OK);
    cqr_topology_release(topology);
    uint32_t count;
    const uint16_t *replicas = cqr_replicas_of(&table, 150, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_uint_eq(replicas[0], 2);
    cqr_replica_table_fini(&table);
}
END_TEST

START_TEST(replicas_are_the_same_each_time_and_wrap_around)
{
    struct topology *topology = example();
    struct replica_table table;
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[1]), CQLRING_OK);
    ck_assert_uint_eq(table.width, 2);
    for (int round = 0; round < 2; ++round) {
        for (int64_t token = -50; token <= 600; token += 25) {
            uint32_t count;
            const uint16_t *replicas = cqr_replicas_of(&table, token, &count);
            uint32_t owner = token <= 0 || token > 500 ? 0 : (uint32_t)((token + 99) / 100);
            ck_assert_uint_eq(count, 2);
            ck_assert_uint_eq(replicas[0], owner);
            ck_assert_uint_eq(replicas[1], (owner + 1) % NODES);
        }
    }
    uint32_t count;
    ck_assert_uint_eq(cqr_replicas_of(&table, INT64_MIN, &count)[0], 0);
    ck_assert_uint_eq(cqr_replicas_of(&table, INT64_MAX, &count)[0], 0);
    cqr_replica_table_fini(&table);
    cqr_topology_release(topology);
}
END_TEST

START_TEST(factor_above_the_number_of_nodes_gives_every_node_once)
{
    struct topology *topology = example();
    topology->keyspaces[0].replication.factor = 200;
    struct replica_table table;
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[0]), CQLRING_OK);
    uint32_t count, seen = 0;
    const uint16_t *replicas = cqr_replicas_of(&table, 250, &count);
    ck_assert_uint_eq(count, NODES);
    for (uint32_t i = 0; i < count; ++i)
        seen |= 1u << replicas[i];
    ck_assert_uint_eq(seen, (1u << NODES) - 1);
    cqr_replica_table_fini(&table);
    cqr_topology_release(topology);
}
END_TEST

START_TEST(network_topology_spreads_over_racks_and_unknown_strategies_name_nobody)
{
    struct topology *topology = example();
    struct dc_factor dcs[2] = {{.dc = 0, .all = 2}, {.dc = UINT16_MAX, .all = 3}};
    struct replica_table table;
    topology->keyspaces[0].replication = (struct replication){.strategy = STRATEGY_NETWORK, .dcs = dcs, .dc_count = 2};
    cqr_replication_count(topology->ring, NODES, topology->places, NODES, &topology->keyspaces[0].replication);
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[0]), CQLRING_OK);
    uint32_t count;
    const uint16_t *replicas = cqr_replicas_of(&table, 100, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(replicas[0], 1);
    ck_assert_uint_eq(replicas[1], 2);
    cqr_replica_table_fini(&table);

    static const enum strategy nobody[] = {STRATEGY_UNKNOWN, STRATEGY_LOCAL};
    for (unsigned i = 0; i < 2; ++i) {
        topology->keyspaces[0].replication = (struct replication){.strategy = nobody[i], .factor = 3};
        ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[0]), CQLRING_OK);
        (void)cqr_replicas_of(&table, 100, &count);
        ck_assert_uint_eq(count, 0);
        cqr_replica_table_fini(&table);
    }
    topology->keyspaces[0].replication = (struct replication){.strategy = STRATEGY_EVERYWHERE};
    ck_assert_int_eq(cqr_replica_table_init(&table, topology, &topology->keyspaces[0]), CQLRING_OK);
    (void)cqr_replicas_of(&table, 100, &count);
    ck_assert_uint_eq(count, NODES);
    cqr_replica_table_fini(&table);
    cqr_topology_release(topology);
}
END_TEST

/* A large cluster, and again after a node has come: what took others minutes. No time is asserted; were the work not linear in
   the ring, this test would not end in its time. */
START_TEST(tk_08_every_replica_of_a_large_cluster_is_known_and_again_with_one_node_more)
{
    enum { VNODES = 256, SPACES = 50 };
    for (uint32_t nodes = 100; nodes <= 101; ++nodes) {
        struct topology *topology = cqr_topology_create();
        uint32_t entries = nodes * VNODES;
        topology->node_count = topology->place_count = nodes;
        topology->places = cqr_arena_array(&topology->arena, nodes, sizeof *topology->places);
        topology->ring = cqr_arena_array(&topology->arena, entries, sizeof *topology->ring);
        topology->keyspaces = cqr_arena_array(&topology->arena, SPACES, sizeof *topology->keyspaces);
        ck_assert(topology->places != NULL && topology->ring != NULL && topology->keyspaces != NULL);
        uint64_t random = 1;
        for (uint32_t i = 0; i < nodes; ++i)
            topology->places[i] = (struct ring_node){.dc = (uint16_t)(i % 2), .rack = (uint16_t)(i % 6)};
        for (uint32_t i = 0; i < entries; ++i) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            topology->ring[i] = (struct ring_entry){.token = (int64_t)random, .node = i % nodes};
        }
        topology->ring_count = cqr_ring_sort(topology->ring, entries);
        topology->keyspace_count = SPACES;
        for (uint32_t i = 0; i < SPACES; ++i) {
            struct keyspace *keyspace = &topology->keyspaces[i];
            snprintf(keyspace->name, sizeof keyspace->name, "ks%02u", i);
            struct dc_factor *dcs = cqr_arena_array(&topology->arena, 2, sizeof *dcs);
            ck_assert_ptr_nonnull(dcs);
            dcs[0] = (struct dc_factor){.dc = 0, .all = 3};
            dcs[1] = (struct dc_factor){.dc = i == 7 ? UINT16_MAX : 1, .all = 3}; /* one names a datacenter that no node is in */
            keyspace->replication = (struct replication){.strategy = STRATEGY_NETWORK, .dcs = dcs, .dc_count = 2};
            cqr_replication_count(topology->ring, topology->ring_count, topology->places, nodes, &keyspace->replication);
            struct replica_table table;
            ck_assert_int_eq(cqr_replica_table_init(&table, topology, keyspace), CQLRING_OK);
            uint32_t wrong = 0;
            for (uint32_t at = 0; at < topology->ring_count; ++at) {
                uint32_t count;
                const uint16_t *replicas = cqr_replicas_of(&table, topology->ring[at].token, &count);
                wrong += count != (i == 7 ? 3 : 6) || replicas[0] >= nodes;
            }
            ck_assert_uint_eq(wrong, 0);
            cqr_replica_table_fini(&table);
        }
        cqr_topology_release(topology);
    }
}
END_TEST

START_TEST(each_allocation_may_fail_and_nothing_leaks)
{
    bool done = false;
    for (uint64_t n = 1; !done; ++n) {
        ck_assert_uint_lt(n, 100);
        int64_t live = cqr_mem_live_count();
        cqr_mem_fail_at(n, 0);
        struct topology *topology = example();
        struct replica_table table;
        cqlring_status status = CQLRING_NO_MEMORY;
        if (topology != NULL)
            status = cqr_replica_table_init(&table, topology, &topology->keyspaces[2]);
        done = cqr_mem_failed_count() == 0;
        cqr_mem_fail_at(0, 0);
        ck_assert_int_eq(status, done ? CQLRING_OK : CQLRING_NO_MEMORY);
        if (status == CQLRING_OK)
            cqr_replica_table_fini(&table);
        cqr_topology_release(topology);
        ck_assert_int_eq(cqr_mem_live_count(), live);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *tests = tcase_create("topology");
    tcase_add_checked_fixture(tests, remember_memory, expect_no_leak);
    tcase_add_test(tests, datacenters_are_told_once_each_with_their_nodes_and_cut_between_two);
    tcase_add_test(tests, keyspaces_are_found_by_their_whole_name);
    tcase_add_test(tests, empty_topology_knows_nothing_and_harms_nobody);
    tcase_add_test(tests, table_keeps_its_topology_alive);
    tcase_add_test(tests, replicas_are_the_same_each_time_and_wrap_around);
    tcase_add_test(tests, factor_above_the_number_of_nodes_gives_every_node_once);
    tcase_add_test(tests, network_topology_spreads_over_racks_and_unknown_strategies_name_nobody);
    tcase_add_test(tests, tk_08_every_replica_of_a_large_cluster_is_known_and_again_with_one_node_more);
    tcase_add_test(tests, each_allocation_may_fail_and_nothing_leaks);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
