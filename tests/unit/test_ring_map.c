/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/ring_map.h"

enum { NODES_MAX = 40, ENTRIES_MAX = 400 };

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

START_TEST(sort_orders_by_token_and_keeps_one_of_each)
{
    uint64_t seed = 1;
    for (int run = 0; run < 300; ++run) {
        struct ring_entry entries[ENTRIES_MAX];
        uint32_t count = (uint32_t)(random_next(&seed) % ENTRIES_MAX);
        bool seen[64] = {false};
        for (uint32_t i = 0; i < count; ++i) {
            entries[i].token = (int64_t)(random_next(&seed) % 64) - 32;
            entries[i].node = (uint32_t)(random_next(&seed) % 5);
            seen[entries[i].token + 32] = true;
        }
        uint32_t distinct = 0;
        for (int i = 0; i < 64; ++i)
            distinct += seen[i];
        ck_assert_uint_eq(cqr_ring_sort(entries, count), distinct);
        for (uint32_t i = 1; i < distinct; ++i)
            ck_assert_int_lt(entries[i - 1].token, entries[i].token);
    }
}
END_TEST

START_TEST(of_a_duplicate_token_the_lowest_node_stays_whatever_the_order)
{
    for (uint32_t turn = 0; turn < 3; ++turn) {
        struct ring_entry entries[3];
        for (uint32_t i = 0; i < 3; ++i)
            entries[i] = (struct ring_entry){.token = 5, .node = 7 + (i + turn) % 3};
        ck_assert_uint_eq(cqr_ring_sort(entries, 3), 1);
        ck_assert_uint_eq(entries[0].node, 7);
    }
}
END_TEST

START_TEST(token_belongs_to_the_first_entry_not_below_it_and_wraps)
{
    const struct ring_entry entries[] = {{INT64_MIN, 0}, {-5, 1}, {0, 2}, {INT64_MAX - 1, 3}};
    ck_assert_uint_eq(cqr_ring_find(entries, 4, INT64_MIN), 0);
    ck_assert_uint_eq(cqr_ring_find(entries, 4, INT64_MIN + 1), 1);
    ck_assert_uint_eq(cqr_ring_find(entries, 4, -5), 1); /* equal: its own, not the next */
    ck_assert_uint_eq(cqr_ring_find(entries, 4, -4), 2);
    ck_assert_uint_eq(cqr_ring_find(entries, 4, 1), 3);
    ck_assert_uint_eq(cqr_ring_find(entries, 4, INT64_MAX), 0); /* behind the last: the first */
    ck_assert_uint_eq(cqr_ring_find(entries, 1, 77), 0);
}
END_TEST

START_TEST(strategy_is_known_by_the_last_dotted_part)
{
    ck_assert_int_eq(cqr_strategy_of(text("org.apache.cassandra.locator.SimpleStrategy")),
                     STRATEGY_SIMPLE);
    ck_assert_int_eq(cqr_strategy_of(text("NetworkTopologyStrategy")), STRATEGY_NETWORK);
    ck_assert_int_eq(cqr_strategy_of(text("org.apache.cassandra.locator.LocalStrategy")),
                     STRATEGY_LOCAL);
    ck_assert_int_eq(cqr_strategy_of(text("org.apache.cassandra.locator.EverywhereStrategy")),
                     STRATEGY_EVERYWHERE);
    ck_assert_int_eq(cqr_strategy_of(text("com.example.OwnStrategy")), STRATEGY_UNKNOWN);
    ck_assert_int_eq(cqr_strategy_of(text("")), STRATEGY_UNKNOWN);
}
END_TEST

START_TEST(tk_04_factors_are_parsed_or_refused)
{
    static const struct {
        const char *text;
        bool is_factor;
        uint16_t all, transient_count;
    } cases[] = {
        {"3", true, 3, 0},         {"0", true, 0, 0},      {"3/1", true, 3, 1},
        {"65535", true, 65535, 0}, {"65536", false, 0, 0}, {"", false, 0, 0},
        {"x", false, 0, 0},        {"3x", false, 0, 0},    {"-1", false, 0, 0},
        {"3/", false, 0, 0},       {"/1", false, 0, 0},    {"1/2", false, 0, 0},
        {"3/1/1", false, 0, 0},    {" 3", false, 0, 0},    {"99999999999", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint16_t all = 0, transient_count = 0;
        ck_assert(cqr_factor_parse(text(cases[i].text), &all, &transient_count) ==
                  cases[i].is_factor);
        if (cases[i].is_factor) {
            ck_assert_uint_eq(all, cases[i].all);
            ck_assert_uint_eq(transient_count, cases[i].transient_count);
        }
    }
}
END_TEST

START_TEST(tk_04_dc_with_factor_0_and_unknown_dc_are_passed_over)
{
    const struct ring_node nodes[] = {{0, 0}, {0, 1}, {1, 0}};
    const struct ring_entry entries[] = {{1, 2}, {2, 0}, {3, 1}};
    struct dc_factor dcs[] = {
        {.dc = 0, .all = 2}, {.dc = 1, .all = 0}, {.dc = UINT16_MAX, .all = 3}};
    struct replication replication = {.strategy = STRATEGY_NETWORK, .dcs = dcs, .dc_count = 3};
    for (int counted = 0; counted < 2; ++counted) {
        uint32_t out[8];
        ck_assert_uint_eq(cqr_replicas_at(entries, 3, 0, nodes, 3, &replication, out, 8), 2);
        ck_assert_uint_eq(out[0], 0);
        ck_assert_uint_eq(out[1], 1);
        cqr_replication_count(entries, 3, nodes, 3, &replication);
    }
}
END_TEST

START_TEST(strategies_without_a_place_on_the_ring_give_no_replicas_and_everywhere_gives_all)
{
    const struct ring_node nodes[] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    const struct ring_entry entries[] = {{1, 2}, {2, 0}, {3, 2}, {4, 1}}; /* node 3 has no tokens */
    struct replication replication = {.strategy = STRATEGY_UNKNOWN, .factor = 3};
    uint32_t out[8];
    ck_assert_uint_eq(cqr_replicas_at(entries, 4, 0, nodes, 4, &replication, out, 8), 0);
    replication.strategy = STRATEGY_LOCAL;
    ck_assert_uint_eq(cqr_replicas_at(entries, 4, 0, nodes, 4, &replication, out, 8), 0);
    replication.strategy = STRATEGY_EVERYWHERE;
    ck_assert_uint_eq(cqr_replicas_at(entries, 4, 2, nodes, 4, &replication, out, 8), 3);
    ck_assert_uint_eq(out[0], 2);
    ck_assert_uint_eq(out[1], 1);
    ck_assert_uint_eq(out[2], 0);
    ck_assert_uint_eq(cqr_replicas_at(NULL, 0, 0, nodes, 4, &replication, out, 8), 0);
}
END_TEST

START_TEST(simple_strategy_leaves_out_the_transient_replicas)
{
    const struct ring_node nodes[] = {{0, 0}, {0, 0}, {0, 0}};
    const struct ring_entry entries[] = {{1, 0}, {2, 1}, {3, 2}};
    const struct replication replication = {
        .strategy = STRATEGY_SIMPLE, .factor = 3, .transient_count = 1};
    uint32_t out[3];
    ck_assert_uint_eq(cqr_replicas_at(entries, 3, 1, nodes, 3, &replication, out, 3), 2);
    ck_assert_uint_eq(out[0], 1);
    ck_assert_uint_eq(out[1], 2);
}
END_TEST

START_TEST(entry_of_a_node_that_is_not_there_is_passed_over)
{
    const struct ring_node nodes[] = {{0, 0}, {0, 0}};
    const struct ring_entry entries[] = {{1, 9}, {2, 1}, {3, UINT32_MAX}, {4, 0}};
    struct dc_factor dc = {.dc = 0, .all = 2};
    const struct replication replication[] = {
        {.strategy = STRATEGY_SIMPLE, .factor = 2},
        {.strategy = STRATEGY_NETWORK, .dcs = &dc, .dc_count = 1}};
    for (int i = 0; i < 2; ++i) {
        uint32_t out[4];
        ck_assert_uint_eq(cqr_replicas_at(entries, 4, 0, nodes, 2, &replication[i], out, 4), 2);
        ck_assert_uint_eq(out[0], 1);
        ck_assert_uint_eq(out[1], 0);
    }
}
END_TEST

/* The reference's set formula, for one DC: the first node of each rack in ring order and as many
   others as the factor exceeds the number of racks, in ring order. */
static uint32_t by_formula(const struct ring_entry *entries, uint32_t count, uint32_t at,
                           const struct ring_node *nodes, const struct dc_factor *dc, uint32_t *out)
{
    uint32_t order[NODES_MAX], known = 0, racks = 0, found = 0;
    bool is_first[NODES_MAX];
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t node = entries[(at + i) % count].node;
        bool is_known = nodes[node].dc != dc->dc;
        for (uint32_t j = 0; j < known; ++j)
            is_known |= order[j] == node;
        if (is_known)
            continue;
        is_first[known] = true;
        for (uint32_t j = 0; j < known; ++j)
            is_first[known] &= nodes[order[j]].rack != nodes[node].rack;
        racks += is_first[known];
        order[known++] = node;
    }
    uint32_t repeats = dc->all > racks ? dc->all - racks : 0;
    for (uint32_t i = 0; i < known && found < dc->all; ++i) {
        if (is_first[i])
            out[found++] = order[i];
        else if (repeats > 0) {
            --repeats;
            out[found++] = order[i];
        }
    }
    return found;
}

static bool has(const uint32_t *nodes, uint32_t count, uint32_t node)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (nodes[i] == node)
            return true;
    }
    return false;
}

START_TEST(network_strategy_gives_the_set_of_the_formula_each_node_once)
{
    uint64_t seed = (uint64_t)_i + 77;
    struct ring_node nodes[NODES_MAX];
    struct ring_entry entries[ENTRIES_MAX];
    uint32_t node_count = 1 + (uint32_t)(random_next(&seed) % 12);
    for (uint32_t i = 0; i < node_count; ++i)
        nodes[i] = (struct ring_node){(uint16_t)(random_next(&seed) % 3),
                                      (uint16_t)(random_next(&seed) % 4)};
    uint32_t count = 1 + (uint32_t)(random_next(&seed) % 60);
    for (uint32_t i = 0; i < count; ++i)
        entries[i] = (struct ring_entry){(int64_t)random_next(&seed),
                                         (uint32_t)(random_next(&seed) % node_count)};
    count = cqr_ring_sort(entries, count);
    struct dc_factor dcs[3];
    for (uint16_t i = 0; i < 3; ++i)
        dcs[i] = (struct dc_factor){.dc = i, .all = (uint16_t)(random_next(&seed) % 6)};
    struct replication replication = {.strategy = STRATEGY_NETWORK, .dcs = dcs, .dc_count = 3};
    for (uint32_t at = 0; at < count; ++at) {
        uint32_t out[NODES_MAX], again[NODES_MAX], wanted[NODES_MAX], wanted_count = 0;
        uint32_t found = cqr_replicas_at(entries, count, at, nodes, node_count, &replication, out,
                                         NODES_MAX);
        for (int i = 0; i < 3; ++i)
            wanted_count += by_formula(entries, count, at, nodes, &dcs[i], wanted + wanted_count);
        ck_assert_uint_eq(found, wanted_count);
        for (uint32_t i = 0; i < found; ++i) {
            ck_assert(has(wanted, wanted_count, out[i]));
            ck_assert(!has(out, i, out[i]));
        }
        /* Less room: the beginning of the same list. Counted before: the same list. */
        for (uint32_t room = 0; room < found; ++room) {
            ck_assert_uint_eq(
                cqr_replicas_at(entries, count, at, nodes, node_count, &replication, again, room),
                room);
            ck_assert_mem_eq(again, out, room * sizeof *out);
        }
        struct dc_factor counted_dcs[3];
        memcpy(counted_dcs, dcs, sizeof dcs);
        struct replication counted = {
            .strategy = STRATEGY_NETWORK, .dcs = counted_dcs, .dc_count = 3};
        cqr_replication_count(entries, count, nodes, node_count, &counted);
        ck_assert_uint_eq(
            cqr_replicas_at(entries, count, at, nodes, node_count, &counted, again, NODES_MAX),
            found);
        ck_assert_mem_eq(again, out, found * sizeof *out);
    }
}
END_TEST

/* TK-07, TK-08: 100 nodes with 256 tokens each, a factor that 2 nodes cannot meet. Once counted, a
   walk ends when all there are have been found: with entries whose nodes alternate that is after
   two, so an entry beyond them is never looked at; here it would be outside of the array. */
START_TEST(tk_07_walk_ends_when_no_more_replicas_exist)
{
    const struct ring_node nodes[] = {{0, 0}, {0, 0}};
    struct ring_entry entries[512];
    for (uint32_t i = 0; i < 512; ++i)
        entries[i] = (struct ring_entry){i, i % 2};
    struct dc_factor dc = {.dc = 0, .all = 3};
    struct replication replications[] = {{.strategy = STRATEGY_SIMPLE, .factor = 3},
                                         {.strategy = STRATEGY_NETWORK, .dcs = &dc, .dc_count = 1}};
    for (int i = 0; i < 2; ++i) {
        cqr_replication_count(entries, 512, nodes, 2, &replications[i]);
        ck_assert_uint_eq(replications[i].node_count, 2);
        /* Claim a ring far larger than the memory that is looked at. */
        struct ring_entry *few = malloc(2 * sizeof *few);
        ck_assert_ptr_nonnull(few);
        memcpy(few, entries, 2 * sizeof *few);
        uint32_t out[3];
        ck_assert_uint_eq(cqr_replicas_at(few, 1u << 30, 0, nodes, 2, &replications[i], out, 3), 2);
        free(few);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_map");
    TCase *tcase = tcase_create("ring_map");
    tcase_add_test(tcase, sort_orders_by_token_and_keeps_one_of_each);
    tcase_add_test(tcase, of_a_duplicate_token_the_lowest_node_stays_whatever_the_order);
    tcase_add_test(tcase, token_belongs_to_the_first_entry_not_below_it_and_wraps);
    tcase_add_test(tcase, strategy_is_known_by_the_last_dotted_part);
    tcase_add_test(tcase, tk_04_factors_are_parsed_or_refused);
    tcase_add_test(tcase, tk_04_dc_with_factor_0_and_unknown_dc_are_passed_over);
    tcase_add_test(
        tcase, strategies_without_a_place_on_the_ring_give_no_replicas_and_everywhere_gives_all);
    tcase_add_test(tcase, simple_strategy_leaves_out_the_transient_replicas);
    tcase_add_test(tcase, entry_of_a_node_that_is_not_there_is_passed_over);
    tcase_add_loop_test(tcase, network_strategy_gives_the_set_of_the_formula_each_node_once, 0,
                        200);
    tcase_add_test(tcase, tk_07_walk_ends_when_no_more_replicas_exist);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
