/* SPDX-License-Identifier: Apache-2.0 */

/* ScyllaDB's tablets, against the simulation: their places are learned from replies, and forgotten when they are no longer true. A
   reply carries a place whenever its request came to a wrong node or shard, so the node's shard_misses count them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "watch.h"
#include "serialize/mem.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

static void on_node(struct flow *flow, const char *cql)
{
    char message[256];
    ck_assert_msg(node_cql(flow->node, cql, NULL, message, sizeof message) == 0, "%s: %s", cql, message);
}

static bool all_shards(struct flow *flow, void *context)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (info.connections != *(uint32_t *)context)
            return false;
    }
    return count > 0;
}

static void begin(struct flow *flow, uint32_t nodes, uint32_t shards)
{
    flow_init(flow);
    ask_record(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->node_options.shards = shards;
    flow->node_options.tablets = true;
    flow->options.reconnect_min_us = 5000;
    flow->options.reconnect_max_us = 60000;
    flow_start(flow);
    on_node(flow, "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    on_node(flow, "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)");
}

static void up(struct flow *flow, uint32_t nodes, uint32_t shards)
{
    begin(flow, nodes, shards);
    flow_open(flow);
    watch_for(flow, all_shards, &shards);
}

#define INSERT_ONE "INSERT INTO one.t (k, v) VALUES (?, ?)"

/* One row at a time, so a tablet is met wrongly at most once; afterwards never. */
START_TEST(tb_03_a_fresh_session_learns_each_tablet_once)
{
    struct flow flow;
    up(&flow, 3, 4);
    struct node_counters counters = flow_counted_rows(&flow, INSERT_ONE, 2000, 1);
    ck_assert_uint_gt(counters.shard_misses, 0);
    ck_assert_uint_le(counters.shard_misses, 8);
    ck_assert_uint_eq(flow_stats(&flow).tablets_learned, counters.shard_misses);
    counters = flow_counted_rows(&flow, INSERT_ONE, 2000, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.replica_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(tb_03_answers_with_a_place_fall_to_none_in_a_bulk_job)
{
    struct flow flow;
    up(&flow, 5, 3);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 10000, 256);
    ck_assert_uint_le(counters.shard_misses, 8 * 256); /* what was in flight before the first answers */
    counters = flow_counted_rows(&flow, FLOW_INSERT, 10000, 256);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_hits, 10000);
    flow_close(&flow);
}
END_TEST

/* The simulation's tablets are where the ring would not have them: nothing may be routed by the ring. */
START_TEST(tb_03_the_ring_is_not_trusted_for_a_tablet_keyspace)
{
    struct flow flow;
    begin(&flow, 4, 1);
    ask_record_clear();
    flow_open(&flow);
    watch_for(&flow, all_shards, &(uint32_t){1});
    uint64_t on_first = 0;
    cqlring_prepared *insert = flow_prepare(&flow, INSERT_ONE);
    node_counters_reset(flow.node);
    /* faults make every answer an ERROR, which carries no place: so the driver stays cold */
    flow_fault(&flow, "error:code=0x2200,table=one.t");
    struct node_counters counters;
    for (int64_t k = 0; k < 40; k++) { /* one key, 40 times: by the ring it would be one node each time */
        cqlring_error error;
        ck_assert_int_eq(ask_prepared(&flow, insert, (cqlring_bytes[]){flow_bigint(5), flow_bigint(k)}, 2, NULL, NULL, &error), CQLRING_SERVER);
    }
    for (uint32_t node = 0; node < 4; node++) {
        node_counters(flow.node, node, &counters);
        on_first += counters.opcodes[OPCODE_EXECUTE] >= 8;
    }
    ck_assert_uint_eq(on_first, 4);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(with_rf_1_there_is_one_node_and_shard_for_a_row)
{
    enum { KEYS = 200 };
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options = (struct node_options){.nodes = 3, .shards = 4, .tablets = true};
    ask_record(&flow);
    flow_start(&flow);
    on_node(&flow, "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    on_node(&flow, "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)");
    flow_open(&flow);
    watch_for(&flow, all_shards, &(uint32_t){4});
    flow_counted_rows(&flow, INSERT_ONE, KEYS, 1);
    ask_record_clear();
    flow_counted_rows(&flow, INSERT_ONE, KEYS, 0);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT v FROM one.t WHERE k = ?");
    for (int64_t k = 0; k < KEYS; k++)
        flow_ok(ask_prepared(&flow, select, (cqlring_bytes[]){flow_bigint(k)}, 1, NULL, NULL, NULL));
    cqlring_prepared_release(select);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.shard_hits, 2 * KEYS);
    flow_close(&flow);
}
END_TEST

START_TEST(migrations_splits_and_merges_replace_what_was_known)
{
    static const uint32_t plans[][2] = {{3, 1}, {6, 1}, {6, 5}, {2, 5}, {1, 0}, {5, 2}};
    struct flow flow;
    up(&flow, 4, 3);
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        flow_counted_rows(&flow, FLOW_INSERT, 1500, 0);
        node_set_tablets(flow.node, plans[i][0], plans[i][1]);
        /* a range that overlapped is dropped as a whole and its rest learned later; that a replica has moved is only told by it,
           when the load happens to make it the choice */
        struct node_counters counters = {0};
        for (int round = 0; round < 10 && (round < 2 || counters.shard_misses + counters.replica_misses > 0); round++)
            counters = flow_counted_rows(&flow, FLOW_INSERT, 1500, 0);
        ck_assert_uint_eq(counters.shard_misses, 0);
        ck_assert_uint_eq(counters.replica_misses, 0);
    }
    flow_close(&flow);
}
END_TEST

static bool learned_more(struct flow *flow, void *than)
{
    struct node_counters counters = flow_counted_rows(flow, INSERT_ONE, 50, 1);
    (void)counters;
    return flow_stats(flow).tablets_learned > *(uint64_t *)than;
}

/* The new table has other places: rows go anywhere again instead of where the old one was. */
START_TEST(a_dropped_table_is_forgotten)
{
    struct flow flow;
    up(&flow, 3, 2);
    flow_counted_rows(&flow, INSERT_ONE, 500, 1);
    uint64_t before = flow_stats(&flow).tablets_learned;
    flow_cql(&flow, "DROP TABLE one.t");
    flow_cql(&flow, "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)");
    watch_for(&flow, learned_more, &before);
    flow_counted_rows(&flow, INSERT_ONE, 500, 1);
    struct node_counters counters = flow_counted_rows(&flow, INSERT_ONE, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

/* Forgotten by the event alone: the places stay the same, and yet they are learned again. */
START_TEST(an_altered_keyspace_is_forgotten)
{
    struct flow flow;
    up(&flow, 3, 2);
    flow_counted_rows(&flow, INSERT_ONE, 500, 1);
    uint64_t before = flow_stats(&flow).tablets_learned;
    flow_cql(&flow, "ALTER KEYSPACE one WITH durable_writes = false");
    watch_for(&flow, learned_more, &before);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_leaves_takes_its_tablets_with_it)
{
    struct flow flow;
    up(&flow, 4, 2);
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 1);
    node_leave(flow.node, 2, true);
    watch_for(&flow, watch_known, &(uint32_t){3});
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    node_join(flow.node, 2, true);
    watch_for(&flow, watch_all_up, &(uint32_t){4});
    watch_for(&flow, all_shards, &(uint32_t){2});
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0); /* one at a time all rows would go to first replicas, and a stale third one not be noticed */
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    counters = flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

/* A tablet's replica that peers do not show: the topology is read again, and the tablet works meanwhile by its other replicas. */
START_TEST(a_replica_that_is_not_known_is_looked_for)
{
    struct flow flow;
    begin(&flow, 4, 2);
    node_hide(flow.node, 3, true);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    node_hide(flow.node, 3, false);
    flow_counted_rows(&flow, FLOW_INSERT, 300, 1); /* no event has told of it */
    watch_for(&flow, watch_all_up, &(uint32_t){4});
    watch_for(&flow, all_shards, &(uint32_t){2});
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 1000, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(where_there_are_no_tablets_nothing_is_learned)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options = (struct node_options){.nodes = 3, .shards = 4}; /* without tablets: all keyspaces are of the ring */
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, all_shards, &(uint32_t){4});
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(flow_stats(&flow).tablets_learned, 0);
    flow_close(&flow);
}
END_TEST

/* While shards are filled and places learned, the first, second, third … allocation fails: rows succeed or say NO_MEMORY, nothing is
   left in the end (flow_close sees to it). */
START_TEST(each_allocation_fails_in_turn_while_shards_are_filled_and_places_learned)
{
    uint64_t failed = 1;
    for (uint64_t n = 1; failed > 0; n++) {
        struct flow flow;
        ck_assert_uint_lt(n, 1000);
        begin(&flow, 2, 3);
        flow.options.reconnect_min_us = 1;
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, INSERT_ONE);
        cqr_mem_fail_at(n, 0);
        for (int64_t k = 0; k < 30; k++) {
            cqlring_error error;
            cqlring_status status = ask_prepared(&flow, insert, (cqlring_bytes[]){flow_bigint(k), flow_bigint(k)}, 2, &idempotent, NULL, &error);
            ck_assert_msg(status == CQLRING_OK || status == CQLRING_NO_MEMORY, "%s: %s", cqlring_status_name(status), error.message);
        }
        watch_until(&flow, all_shards, &(uint32_t){3}, 20);
        failed = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

/* Places are asked for in STARTUP by their first version only. */
START_TEST(the_extension_is_asked_for_by_its_name)
{
    struct flow flow;
    up(&flow, 1, 2);
    char value[64];
    ck_assert(node_startup_option(flow.node, 0, "TABLETS_ROUTING_V1", value, sizeof value));
    ck_assert(!node_startup_option(flow.node, 0, "TABLETS_ROUTING_V2_EXPERIMENTAL", value, sizeof value));
    flow_close(&flow);
}
END_TEST

static bool is_embedded(struct flow *flow, const cqlring_node *node, uint32_t index)
{
    cqlring_node_info theirs, mine;
    cqlring_node_describe(node, &theirs);
    return watch_node(flow, index, &mine) && strcmp(theirs.address, mine.address) == 0;
}

/* Told before anything was learned: nothing, and by no means the ring's replicas; afterwards node and shard of the tablet. */
START_TEST(tb_03_the_route_of_a_row_is_its_tablets_once_it_is_learned)
{
    enum { KEYS = 100 };
    struct flow flow;
    up(&flow, 3, 4);
    cqlring_prepared *insert = flow_prepare(&flow, INSERT_ONE);
    cqlring_route route;
    for (int round = 0; round < 2; round++) { /* the second time everything is elsewhere */
        for (int64_t k = 0; k < KEYS; k++) {
            cqlring_bytes values[] = {flow_bigint(k), flow_bigint(k)};
            flow_ok(cqlring_route_of(insert, values, 2, &route, NULL));
            if (k == 0 && round == 0)
                ck_assert_uint_eq(route.replica_count, 0);
            int tries = 0;
            do { /* learns it, unless it came to the right place by chance */
                flow_ok(ask_prepared(&flow, insert, values, 2, &idempotent, NULL, NULL));
                flow_ok(cqlring_route_of(insert, values, 2, &route, NULL));
            } while (route.replica_count == 0 && ++tries < 50);
            ck_assert_uint_eq(route.replica_count, 1);
            flow_ok(ask_prepared(&flow, insert, values, 2, &idempotent, NULL, NULL));
            struct node_seen seen = ask_seen(OPCODE_EXECUTE);
            ck_assert(is_embedded(&flow, route.replicas[0].node, seen.node));
            ck_assert_int_eq(route.replicas[0].shard, (int32_t)seen.shard);
            ck_assert(seen.is_replica);
        }
        node_set_tablets(flow.node, 4, 3);
    }
    cqlring_bytes values[] = {flow_bigint(1), flow_bigint(1)};
    flow_cql(&flow, "DROP TABLE one.t");
    for (int i = 0; i < 2000 && (cqlring_route_of(insert, values, 2, &route, NULL), route.replica_count > 0); i++)
        watch_pass(&flow, 5);
    ck_assert_uint_eq(route.replica_count, 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tablets");
    TCase *tcase = tcase_create("tablets");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tb_03_a_fresh_session_learns_each_tablet_once);
    tcase_add_test(tcase, tb_03_answers_with_a_place_fall_to_none_in_a_bulk_job);
    tcase_add_test(tcase, tb_03_the_ring_is_not_trusted_for_a_tablet_keyspace);
    tcase_add_test(tcase, tb_03_the_route_of_a_row_is_its_tablets_once_it_is_learned);
    tcase_add_test(tcase, with_rf_1_there_is_one_node_and_shard_for_a_row);
    tcase_add_test(tcase, migrations_splits_and_merges_replace_what_was_known);
    tcase_add_test(tcase, a_dropped_table_is_forgotten);
    tcase_add_test(tcase, an_altered_keyspace_is_forgotten);
    tcase_add_test(tcase, a_node_that_leaves_takes_its_tablets_with_it);
    tcase_add_test(tcase, a_replica_that_is_not_known_is_looked_for);
    tcase_add_test(tcase, where_there_are_no_tablets_nothing_is_learned);
    tcase_add_test(tcase, each_allocation_fails_in_turn_while_shards_are_filled_and_places_learned);
    tcase_add_test(tcase, the_extension_is_asked_for_by_its_name);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
