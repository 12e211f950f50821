/* SPDX-License-Identifier: Apache-2.0 */

/* shard_busy_percent: when a row leaves its shard's connection for a less busy one, exactly. The node says nothing meanwhile, so that
   what is under way is what was sent; what came where is what it counted afterwards. */

#include <stdlib.h>

#include "ask.h"
#include "cql/token.h"
#include "watch.h"

enum { LIMIT = 100, ROWS_MAX = 128, SHARDS = 2 };

static const struct {
    uint32_t percent, rows, fallbacks;
} cases[] = {
    {0, 51, 0},     /* the default, 50: with 50 under way the next one still is its own shard's … */
    {0, 52, 1},     /* … and with 51 it is not */
    {50, 60, 9},
    {70, 71, 0},
    {70, 72, 1},
    {10, 20, 0},    /* the other connection has to be less busy by a fifth of the limit */
    {10, 21, 1},
    {100, 100, 0},  /* until it is full */
    {100, 101, 1},
};

static bool both_shards(struct flow *flow, void *unused)
{
    (void)unused;
    cqlring_node_info info;
    return watch_node(flow, 0, &info) && info.connections == SHARDS;
}

static bool all_issued(struct flow *flow, void *count)
{
    return flow_stats(flow).requests_issued >= *(uint64_t *)count;
}

START_TEST(above_shard_busy_percent_rows_take_a_less_busy_connection_and_below_it_none_does)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options.shards = SHARDS;
    flow.options.inflight_per_connection = LIMIT;
    flow.options.shard_busy_percent = cases[_i].percent;
    flow.options.suspect_after_us = flow.options.slow_after_us = flow.options.heartbeat_us = -1;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, both_shards, NULL);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes values[2] = {flow_bigint(0), {"x", 1}};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    node_counters_reset(flow.node);
    uint64_t before = flow_stats(&flow).shard_fallbacks, issued = flow_stats(&flow).requests_issued + cases[_i].rows;
    node_freeze(flow.node, NODE_ALL, -1);
    const cqlring_execution patient = {.struct_size = sizeof patient, .timeout_us = 60000000, .attempt_timeout_us = -1};
    cqlring_future *futures[ROWS_MAX];
    uint32_t count = 0;
    for (int64_t k = 1; count < cases[_i].rows; k++) {
        values[0] = flow_bigint(k);
        if (cqr_shard_of(cqr_murmur3(values[0].data, 8), SHARDS, 12) == 1)
            futures[count++] = ask_start_prepared(&flow, insert, values, 2, &patient);
    }
    watch_for(&flow, all_issued, &issued);
    uint64_t fallbacks = flow_stats(&flow).shard_fallbacks - before;
    node_freeze(flow.node, NODE_ALL, 0);
    for (uint32_t i = 0; i < count; i++)
        flow_ok(ask_end(futures[i], NULL));
    ck_assert_uint_eq(fallbacks, cases[_i].fallbacks);
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.shard_misses, cases[_i].fallbacks);
    ck_assert_uint_eq(counters.shard_hits, cases[_i].rows - cases[_i].fallbacks);
    cqlring_node_stats stats[8];
    uint32_t places = cqlring_cluster_stats(flow.cluster, stats, 8);
    for (uint32_t i = 0; i < places; i++) /* at the shard that they were for */
        ck_assert_uint_eq(stats[i].shard_fallbacks, stats[i].shard == 1 ? cases[_i].fallbacks : 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shard_busy");
    TCase *tcase = tcase_create("shard_busy");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, above_shard_busy_percent_rows_take_a_less_busy_connection_and_below_it_none_does, 0, (int)(sizeof cases / sizeof cases[0]));
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
