/* SPDX-License-Identifier: Apache-2.0 */

/* What else ScyllaDB has of its own: lightweight transactions on their primary replica (which Cassandra's get too), the rate limit of
   a partition, and the id of a result's description on v4. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

/* By turns: Cassandra, ScyllaDB by the ring, ScyllaDB by tablets. */
enum kind { CASSANDRA, RING, TABLETS, KINDS };

static void up(struct flow *flow, int kind, uint32_t nodes)
{
    uint32_t shards = kind == CASSANDRA ? 1 : 3;
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->node_options.shards = kind == CASSANDRA ? 0 : shards;
    flow->node_options.tablets = kind == TABLETS;
    flow->node_options.delay_us = 500; /* so that several are in flight, and plain rows are spread */
    ask_record(flow);
    flow_start(flow);
    char message[256];
    static const char *const texts[] = {"CREATE TABLE ks.c (p bigint, c int, v int, PRIMARY KEY (p, c))",
                                        "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                                        "CREATE TABLE one.t (k bigint PRIMARY KEY, v blob)"};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(node_cql(flow->node, texts[i], NULL, message, sizeof message), 0);
    flow_open(flow);
    watch_for(flow, watch_all_up, &nodes);
    for (uint32_t node = 0; node < nodes; node++) {
        cqlring_node_info info;
        while (!watch_node(flow, node, &info) || info.connections < shards)
            watch_pass(flow, 5);
    }
}

static void run_rows(struct flow *flow, const char *text, uint64_t count)
{
    cqlring_prepared *insert = flow_prepare(flow, text);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, count, 16);
    flow_sink_init(&sink, count);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
}

/* Of the recorded requests of this opcode that were executed: how many came to a node other than the first one of their token. */
static uint32_t strays(struct flow *flow, uint8_t opcode, int kind, uint32_t *executed)
{
    uint32_t count = ask_seen_count(opcode), stray = 0;
    struct node_seen *seen = calloc(count + 1, sizeof *seen);
    *executed = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen[*executed] = ask_seen_at(opcode, i);
        *executed += seen[*executed].has_token;
    }
    for (uint32_t i = 0; i < *executed; i++) {
        uint32_t primary = UINT32_MAX;
        if (kind != TABLETS)
            ck_assert_uint_ge(node_replicas(flow->node, "ks", seen[i].token, &primary, 1), 1);
        for (uint32_t j = 0; j < *executed && primary == UINT32_MAX; j++) /* of tablets, where the first one of its tablet went */
            if ((seen[j].token ^ INT64_MIN) >> 61 == (seen[i].token ^ INT64_MIN) >> 61)
                primary = seen[j].node;
        stray += seen[i].node != primary;
    }
    free(seen);
    return stray;
}

START_TEST(lightweight_transactions_go_to_the_primary_replica)
{
    struct flow flow;
    uint32_t executed;
    up(&flow, _i, 5);
    run_rows(&flow, FLOW_INSERT, 600); /* warm */
    ask_record_clear();
    run_rows(&flow, FLOW_INSERT, 600);
    ck_assert_uint_gt(strays(&flow, OPCODE_EXECUTE, _i, &executed), 100); /* plain rows: any replica */
    ask_record_clear();
    node_counters_reset(flow.node);
    run_rows(&flow, FLOW_INSERT " IF NOT EXISTS", 600);
    ck_assert_uint_eq(strays(&flow, OPCODE_EXECUTE, _i, &executed), 0);
    ck_assert_uint_ge(executed, 600);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(lw_06_batches_with_a_condition_are_routed_as_such_in_both_orders)
{
    enum { KEYS = 64 };
    struct flow flow;
    up(&flow, _i, 5);
    cqlring_prepared *plain = flow_prepare(&flow, "INSERT INTO ks.c (p, c, v) VALUES (?, 1, 1)");
    cqlring_prepared *condition = flow_prepare(&flow, "INSERT INTO ks.c (p, c, v) VALUES (?, 2, 2) IF NOT EXISTS");
    if (_i == TABLETS) /* batches teach no places, single rows do */
        for (int round = 0; round < 200; round++)
            flow_ok(ask_prepared(&flow, plain, (cqlring_bytes[]){flow_bigint(round)}, 1, NULL, NULL, NULL));
    for (int order = 0; order < 3; order++) {
        cqlring_future *futures[KEYS];
        ask_record_clear();
        for (int64_t k = 0; k < KEYS; k++) {
            char text[128];
            cqlring_bytes key = flow_bigint(k);
            snprintf(text, sizeof text, "INSERT INTO ks.c (p, c, v) VALUES (%lld, 3, 3) IF NOT EXISTS", (long long)k);
            cqlring_batch_child with_text[] = {{.prepared = plain, .values = &key, .value_count = 1}, {.cql = cqlring_text(text)}};
            cqlring_batch_child children[] = {{.prepared = order == 0 ? plain : condition, .values = &key, .value_count = 1},
                                              {.prepared = order == 0 ? condition : plain, .values = &key, .value_count = 1}};
            cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = order == 2 ? with_text : children, .count = 2};
            cqlring_request request = {.session = flow.session, .batch = &batch, .execution = &idempotent};
            cqlring_error error;
            ck_assert_msg(cqlring_execute(&request, &futures[k], &error) == CQLRING_OK, "%s", error.message);
        }
        for (int k = 0; k < KEYS; k++) {
            cqlring_error error = {0};
            ck_assert_msg(ask_end(futures[k], &error) == CQLRING_OK, "%s", error.message);
        }
        uint32_t executed;
        ck_assert_uint_eq(strays(&flow, OPCODE_BATCH, _i, &executed), 0);
        ck_assert_uint_ge(executed, KEYS);
    }
    cqlring_prepared_release(plain);
    cqlring_prepared_release(condition);
    flow_close(&flow);
}
END_TEST

static bool two_are_up(struct flow *flow, void *unused)
{
    (void)unused;
    return watch_up_count(flow) == 2;
}

/* The next alive one in order. */
START_TEST(without_its_primary_a_transaction_goes_to_the_next_replica)
{
    struct flow flow;
    up(&flow, RING, 3);
    node_down(flow.node, 1, false);
    watch_for(&flow, two_are_up, NULL);
    run_rows(&flow, FLOW_INSERT, 10);
    ask_record_clear();
    run_rows(&flow, FLOW_INSERT " IF NOT EXISTS", 300);
    uint32_t count = ask_seen_count(OPCODE_EXECUTE);
    for (uint32_t i = 0; i < count; i++) {
        struct node_seen seen = ask_seen_at(OPCODE_EXECUTE, i);
        uint32_t replicas[3];
        if (!seen.has_token)
            continue;
        ck_assert_uint_eq(node_replicas(flow.node, "ks", seen.token, replicas, 3), 3);
        ck_assert_uint_eq(seen.node, replicas[0] == 1 ? replicas[1] : replicas[0]);
    }
    flow_close(&flow);
}
END_TEST

/* Memory is used again: a new statement may lie where a released one was, whose rows belonged elsewhere. */
START_TEST(a_statement_in_a_released_ones_place_is_routed_by_its_own_table)
{
    static const char *const texts[] = {FLOW_INSERT, "INSERT INTO one.t (k, v) VALUES (?, ?)", FLOW_INSERT " USING TTL 100",
                                        "INSERT INTO one.t (k, v) VALUES (?, ?) USING TTL 100"};
    struct flow flow;
    up(&flow, _i, 5);
    for (int round = 0; round < 60; round++) {
        if (round == 4)
            node_counters_reset(flow.node); /* tablets are known by now */
        run_rows(&flow, texts[round % 4], 300);
    }
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    ck_assert_uint_eq(counters.replica_hits, 56 * 300);
    flow_close(&flow);
}
END_TEST

/* A row that met the limit waits and is tried again at its replica and shard; nobody else is asked. RF 1: there is no other. */
START_TEST(a_rate_limited_row_is_tried_again_at_its_own_replica)
{
    struct flow flow;
    up(&flow, RING, 3);
    run_rows(&flow, "INSERT INTO one.t (k, v) VALUES (?, ?)", 50);
    flow_fault(&flow, "error:code=0xF000,table=one.t,data_present=1,every=7,times=40");
    node_counters_reset(flow.node);
    uint64_t retries = flow_stats(&flow).retries;
    run_rows(&flow, "INSERT INTO one.t (k, v) VALUES (?, ?)", 400);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.faults, 40);
    ck_assert_uint_eq(flow_stats(&flow).retries - retries, 40);
    ck_assert_uint_eq(counters.replica_misses, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_single_rate_limited_request_is_not_tried_again)
{
    struct flow flow;
    up(&flow, RING, 1); /* which knows the statement: the fault is for the EXECUTE */
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "error:code=0xF000,table=ks.t,data_present=1,times=1");
    cqlring_future *future = ask_start_prepared(&flow, insert, (cqlring_bytes[]){flow_bigint(1), cqlring_text("v")}, 2, &idempotent);
    cqlring_error error;
    ck_assert_int_eq(ask_wait(future, &error), CQLRING_SERVER);
    ck_assert_uint_eq(error.attempts, 1);
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(cqlring_future_completion(future), &detail));
    ck_assert_uint_eq(detail.rate_limited, 1);
    ck_assert_uint_eq(detail.rate_limit_op, 1);
    cqlring_future_release(future);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* v4: results come without their description while it is the one that is known, and with the new one when it has changed. */
START_TEST(a_results_description_is_sent_only_when_it_has_changed)
{
    struct flow flow;
    up(&flow, RING, 1);
    char value[64];
    ck_assert(node_startup_option(flow.node, 0, "SCYLLA_USE_METADATA_ID", value, sizeof value));
    flow_cql(&flow, "INSERT INTO ks.c (p, c, v) VALUES (1, 1, 1)");
    cqlring_prepared *select = flow_prepare(&flow, "SELECT * FROM ks.c WHERE p = ?");
    cqlring_bytes key = flow_bigint(1);
    for (int round = 0; round < 6; round++) {
        if (round == 3)
            flow_cql(&flow, "ALTER TABLE ks.c ADD w int");
        cqlring_result *result = NULL;
        flow_ok(ask_prepared(&flow, select, &key, 1, NULL, &result, NULL));
        ck_assert_uint_eq(cqlring_result_column_count(result), round < 3 ? 3 : 4);
        ck_assert_uint_eq(cqlring_result_row_count(result), 1);
        ck_assert_int_eq(ask_int(result, 0, 2), 1);
        cqlring_result_release(result);
        struct node_seen seen = ask_seen(OPCODE_EXECUTE);
        ck_assert(seen.skip_metadata);
        ck_assert_uint_eq(seen.version, 4);
    }
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scylla");
    TCase *tcase = tcase_create("scylla");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, lightweight_transactions_go_to_the_primary_replica, 0, KINDS);
    tcase_add_loop_test(tcase, lw_06_batches_with_a_condition_are_routed_as_such_in_both_orders, 0, KINDS);
    tcase_add_test(tcase, without_its_primary_a_transaction_goes_to_the_next_replica);
    tcase_add_loop_test(tcase, a_statement_in_a_released_ones_place_is_routed_by_its_own_table, 0, KINDS);
    tcase_add_test(tcase, a_rate_limited_row_is_tried_again_at_its_own_replica);
    tcase_add_test(tcase, a_single_rate_limited_request_is_not_tried_again);
    tcase_add_test(tcase, a_results_description_is_sent_only_when_it_has_changed);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
