/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=180 */

/* Where requests go: racks, lists and filters, other datacenters, slow replicas, the application's own plan, batches; and asking
   for it. What counts is what the nodes saw. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "cql/token.h"
#include "watch.h"

static const char *const dcs[] = {"dc1", "dc1", "dc2", "dc2", "dc2", "dc1"};
static const char *const racks[] = {"r1", "r2", "r3", "r1", "r2", "r3"};

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
}

static uint64_t seen_at(struct flow *flow, uint32_t node, uint8_t opcode)
{
    struct node_counters counters;
    node_counters(flow->node, node, &counters);
    return counters.opcodes[opcode];
}

static uint32_t conns_at(struct flow *flow, uint32_t node)
{
    struct node_conn_info conns[64];
    uint32_t count = node_conns(flow->node, node, conns, 64), plain = 0;
    for (uint32_t i = 0; i < count && i < 64; i++)
        plain += !conns[i].registered; /* the control connection may be anywhere */
    return plain;
}

static bool is_node(struct flow *flow, const cqlring_node *node, uint32_t index)
{
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    return strcmp(info.address, ask_address(flow, index)) == 0;
}

static void insert_rows(struct flow *flow, cqlring_prepared *insert, uint64_t count, const cqlring_execution *how)
{
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, count, 16);
    flow_sink_init(&sink, count);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = how};
    flow_ok(flow_run(flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%s", sink.first_error);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
}

static bool has_conn(struct flow *flow, void *node)
{
    return conns_at(flow, *(uint32_t *)node) > 0;
}

static bool is_away(struct flow *flow, void *node)
{
    cqlring_node_info info;
    return watch_node(flow, *(uint32_t *)node, &info) && !info.is_up;
}

START_TEST(a_guessed_datacenter_is_warned_of_and_a_given_one_is_not)
{
    struct flow flow;
    start(&flow, 1);
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_uint_eq(watch_log_count("local_datacenter is not set: taking \"datacenter1\""), 1);
    flow_close(&flow);
    start(&flow, 1);
    flow.options.local_datacenter = "datacenter1";
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_uint_eq(watch_log_count("local_datacenter"), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(rows_go_to_the_replica_in_our_rack_and_elsewhere_when_it_is_gone)
{
    struct flow flow;
    start(&flow, 3);
    flow.node_options.racks = racks;
    flow.options.local_datacenter = "datacenter1";
    flow.options.local_rack = "r2";
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    for (int i = 0; i < 50; i++) {
        cqlring_bytes values[] = {flow_bigint(i), {"x", 1}};
        flow_ok(ask_prepared(&flow, insert, values, 2, &how, NULL, NULL));
    }
    ck_assert_uint_ge(seen_at(&flow, 1, OPCODE_EXECUTE), 50);
    ck_assert_uint_eq(seen_at(&flow, 0, OPCODE_EXECUTE) + seen_at(&flow, 2, OPCODE_EXECUTE), 0);
    node_down(flow.node, 1, false);
    watch_for(&flow, is_away, &(uint32_t){1});
    insert_rows(&flow, insert, 200, &how);
    ck_assert_uint_gt(seen_at(&flow, 0, OPCODE_EXECUTE), 0);
    ck_assert_uint_gt(seen_at(&flow, 2, OPCODE_EXECUTE), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Contention stays in one place, whatever rack that is in; also where the condition is not in the child that tells the key. */
START_TEST(lw_06_with_a_rack_too_conditional_batches_go_to_the_primary)
{
    struct flow flow;
    start(&flow, 3);
    flow.node_options.racks = racks;
    flow.options.local_datacenter = "datacenter1";
    flow.options.local_rack = "r2";
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    flow_cql(&flow, "CREATE TABLE ks.wide (k bigint, c int, PRIMARY KEY (k, c))");
    cqlring_prepared *plain = flow_prepare(&flow, "INSERT INTO ks.wide (k, c) VALUES (?, 1)");
    cqlring_prepared *conditional = flow_prepare(&flow, "INSERT INTO ks.wide (k, c) VALUES (?, 2) IF NOT EXISTS");
    for (int64_t k = 0; k < 30; k++) {
        cqlring_bytes value = flow_bigint(k);
        cqlring_route route;
        flow_ok(cqlring_route_of(plain, &value, 1, &route, NULL));
        cqlring_batch_child children[2] = {{.prepared = plain, .values = &value, .value_count = 1}, {.prepared = conditional, .values = &value, .value_count = 1}};
        cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 2};
        cqlring_request request = {.session = flow.session, .batch = &batch};
        flow_ok(cqlring_execute_sync(&request, NULL, NULL));
        struct node_seen seen = ask_seen(OPCODE_BATCH);
        ck_assert_msg(is_node(&flow, route.replicas[0].node, seen.node), "key %ld: node %u", (long)k, seen.node);
    }
    cqlring_prepared_release(plain);
    cqlring_prepared_release(conditional);
    flow_close(&flow);
}
END_TEST

/* Near, but it says that it has too much to do: the other racks' turn, but for a look now and then. */
START_TEST(an_overloaded_node_of_our_rack_rests_as_any_other)
{
    struct flow flow;
    start(&flow, 3);
    flow.node_options.racks = racks;
    flow.options.local_datacenter = "datacenter1";
    flow.options.local_rack = "r2";
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    flow_fault(&flow, "error:code=0x1001,opcode=EXECUTE,node=1");
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    insert_rows(&flow, insert, 2000, &how);
    ck_assert_uint_ge(seen_at(&flow, 0, OPCODE_EXECUTE) + seen_at(&flow, 2, OPCODE_EXECUTE), 2000);
    ck_assert_uint_lt(seen_at(&flow, 1, OPCODE_EXECUTE), 1500); /* each row would have been there first */
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static bool not_the_last(const cqlring_node_info *node, void *context)
{
    uint32_t *asked = context;
    ++*asked;
    ck_assert_str_ne(node->datacenter, "");
    return strcmp(node->rack, "r3") != 0;
}

START_TEST(nodes_that_are_not_allowed_get_no_connection)
{
    struct flow flow;
    start(&flow, 3);
    flow.node_options.racks = racks;
    flow_start(&flow);
    char list[200];
    uint32_t asked = 0;
    if (_i == 0) { /* with the port */
        snprintf(list, sizeof list, "%s:%u, %s:%u", node_address(flow.node, 0), node_port(flow.node, 0), node_address(flow.node, 1), node_port(flow.node, 1));
        flow.options.allow_nodes = list;
    } else if (_i == 1) { /* of any port */
        snprintf(list, sizeof list, "10.0.0.1,%s", node_address(flow.node, 2));
        flow.options.deny_nodes = list;
    } else {
        flow.options.node_filter = not_the_last;
        flow.options.node_filter_context = &asked;
    }
    flow_open(&flow);
    watch_for(&flow, has_conn, &(uint32_t){0});
    watch_for(&flow, has_conn, &(uint32_t){1});
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    insert_rows(&flow, insert, 300, NULL);
    ck_assert_uint_eq(seen_at(&flow, 2, OPCODE_EXECUTE), 0);
    ck_assert_uint_eq(conns_at(&flow, 2), 0);
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, NULL, 0), 3); /* known all the same */
    ck_assert_uint_eq(asked, _i == 2 ? 3 : 0);
    /* nor does the control connection move there */
    node_down(flow.node, 0, false);
    node_down(flow.node, 1, false);
    watch_pass(&flow, 300);
    struct node_conn_info conn;
    ck_assert_uint_eq(node_conns(flow.node, 2, &conn, 1), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(options_of_routing_are_refused_out_of_range)
{
    static const struct {
        cqlring_cluster_options options;
        const char *words;
    } bad[] = {
        {{.struct_size = sizeof(cqlring_cluster_options), .allow_nodes = "10.0.0.1,some.name"}, "\"some.name\" is no address"},
        {{.struct_size = sizeof(cqlring_cluster_options), .deny_nodes = "10.0.0.1:0"}, "deny_nodes"},
        {{.struct_size = sizeof(cqlring_cluster_options), .allow_nodes = " "}, "allow_nodes is empty"},
        {{.struct_size = sizeof(cqlring_cluster_options), .remote_nodes_max = 65}, "remote_nodes_max is 65"},
        {{.struct_size = sizeof(cqlring_cluster_options), .slow_after_us = -2}, "slow_after_us"},
        {{.struct_size = sizeof(cqlring_cluster_options), .local_rack = "r1"}, "needs local_datacenter"},
    };
    struct flow flow;
    flow_up(&flow);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cqlring_cluster *cluster = NULL;
        cqlring_error error;
        ck_assert_int_eq(cqlring_cluster_open_sync(flow.runtime, &bad[i].options, &cluster, &error), CQLRING_INVALID);
        ck_assert_msg(strstr(error.message, bad[i].words) != NULL, "%s", error.message);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(other_datacenters_are_for_when_no_local_node_is_left)
{
    struct flow flow;
    start(&flow, 5);
    flow.node_options.dcs = dcs;
    flow.options.local_datacenter = "dc1";
    flow.options.remote_nodes_max = 2;
    if (_i == 1)
        flow.options.remote_local_consistency = CQLRING_YES;
    flow_start(&flow);
    flow_open(&flow);
    for (uint32_t node = 0; node < 2; node++)
        watch_for(&flow, has_conn, &node);
    cqlring_execution wide = {.struct_size = sizeof wide, .consistency = CQLRING_ONE, .idempotent = CQLRING_YES};
    cqlring_execution local = {.struct_size = sizeof local, .consistency = CQLRING_LOCAL_ONE, .idempotent = CQLRING_YES};
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    insert_rows(&flow, insert, 300, &wide);
    uint32_t remote = 0;
    for (uint32_t node = 2; node < 5; node++) {
        ck_assert_uint_eq(seen_at(&flow, node, OPCODE_EXECUTE), 0);
        remote += conns_at(&flow, node);
    }
    for (int i = 0; i < 1000 && remote < 2; i++) { /* they come up in their own time */
        watch_pass(&flow, 10);
        remote = conns_at(&flow, 2) + conns_at(&flow, 3) + conns_at(&flow, 4);
    }
    ck_assert_uint_eq(remote, 2);
    for (uint32_t node = 0; node < 2; node++)
        node_down(flow.node, node, false);
    for (uint32_t node = 0; node < 2; node++)
        watch_for(&flow, is_away, &node);
    insert_rows(&flow, insert, 300, &wide);
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    flow_ok(ask_prepared(&flow, insert, values, 2, &wide, NULL, NULL));
    cqlring_error error;
    cqlring_status status = ask_prepared(&flow, insert, values, 2, &local, NULL, &error);
    if (_i == 1)
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    else
        ck_assert_msg(status == CQLRING_UNREACHABLE && error.may_have_been_applied == 0, "%s: %s", cqlring_status_name(status), error.message);
    /* and back home */
    node_up(flow.node, 0, false);
    for (int i = 0; i < 1000 && !has_conn(&flow, &(uint32_t){0}); i++)
        watch_pass(&flow, 10);
    watch_pass(&flow, 50);
    uint64_t before = seen_at(&flow, 2, OPCODE_EXECUTE) + seen_at(&flow, 3, OPCODE_EXECUTE) + seen_at(&flow, 4, OPCODE_EXECUTE);
    cqlring_node_info info;
    while (!watch_node(&flow, 0, &info) || !info.is_up)
        watch_pass(&flow, 10);
    flow_ok(ask_prepared(&flow, insert, values, 2, &wide, NULL, NULL));
    ck_assert_uint_eq(seen_at(&flow, 2, OPCODE_EXECUTE) + seen_at(&flow, 3, OPCODE_EXECUTE) + seen_at(&flow, 4, OPCODE_EXECUTE), before);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(mt_03_a_slow_replica_gets_few_rows)
{
    struct flow flow;
    start(&flow, 3);
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    node_set_delay(flow.node, NODE_ALL, 2000, 0);
    node_set_delay(flow.node, 1, 100000 * WATCH_SLOW, 0); /* far above what a busy machine adds to the others */
    insert_rows(&flow, insert, 4000, NULL);
    uint64_t slow = seen_at(&flow, 1, OPCODE_EXECUTE), all = seen_at(&flow, NODE_ALL, OPCODE_EXECUTE);
    ck_assert_msg(slow < all / 4, "%lu of %lu", (unsigned long)slow, (unsigned long)all);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Silent, with many waiting, but far from suspect: the others come first, however few it has under way. */
START_TEST(a_replica_that_says_nothing_for_a_while_comes_last)
{
    struct flow flow;
    start(&flow, 3);
    flow.options.suspect_after_us = -1;
    flow.options.slow_after_us = 50000;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    insert_rows(&flow, insert, 300, NULL);
    node_freeze(flow.node, 1, -1);
    enum { WAITING = 12 };
    const cqlring_node *nodes[4], *frozen = NULL;
    cqlring_cluster_nodes(flow.cluster, nodes, 4);
    for (int i = 0; i < 3; i++)
        if (is_node(&flow, nodes[i], 1))
            frozen = nodes[i];
    cqlring_execution aimed = {.struct_size = sizeof aimed, .target = frozen};
    cqlring_future *futures[WAITING];
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    for (int i = 0; i < WAITING; i++)
        futures[i] = ask_start_prepared(&flow, insert, values, 2, &aimed);
    watch_pass(&flow, 150);
    node_set_delay(flow.node, 0, 20000, 0); /* the others have more under way than it has */
    node_set_delay(flow.node, 2, 20000, 0);
    struct flow_rows rows;
    flow_rows_init(&rows, 600, 16);
    cqlring_job_options options = {.struct_size = sizeof options, .window = 200};
    flow_ok(flow_run(&flow, insert, &rows, NULL, &options, NULL, NULL)); /* ends, though nothing of it is answered there */
    flow_rows_fini(&rows);
    node_freeze(flow.node, 1, 0);
    for (int i = 0; i < WAITING; i++)
        flow_ok(ask_end(futures[i], NULL));
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- the application's plan ---- */

struct planner {
    int mode;
    uint64_t calls;
    const cqlring_node *wanted;
    bool bad_input;
};

enum { PLAN_WANTED, PLAN_NONE, PLAN_TWICE, PLAN_RANGE, PLAN_MANY };

static uint32_t plan(const cqlring_plan_query *query, const cqlring_plan_node *nodes, uint32_t node_count, uint32_t *order, void *context)
{
    struct planner *planner = context;
    planner->calls++;
    uint32_t primaries = 0;
    for (uint32_t i = 0; i < node_count; i++)
        primaries += nodes[i].replica == 1;
    if (query->has_token && strcmp(query->keyspace, "ks") == 0 && primaries != 1)
        planner->bad_input = true;
    switch (planner->mode) {
    case PLAN_WANTED: {
        uint32_t count = 0;
        for (uint32_t i = 0; i < node_count; i++)
            if (nodes[i].node == planner->wanted)
                order[count++] = i;
        return count;
    }
    case PLAN_TWICE: order[0] = order[1] = 0; return 2;
    case PLAN_RANGE: order[0] = node_count; return 1;
    case PLAN_MANY: return node_count + 1;
    default: return 0;
    }
}

START_TEST(an_applications_plan_is_followed_and_a_bad_one_is_counted)
{
    struct flow flow;
    struct planner planner = {.mode = PLAN_NONE};
    start(&flow, 3);
    flow.options.plan = plan;
    flow.options.plan_context = &planner;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    const cqlring_node *nodes[4];
    cqlring_cluster_nodes(flow.cluster, nodes, 4);
    for (int i = 0; i < 3; i++)
        if (is_node(&flow, nodes[i], 2))
            planner.wanted = nodes[i];
    planner.mode = PLAN_WANTED;
    node_counters_reset(flow.node);
    insert_rows(&flow, insert, 500, NULL);
    ck_assert_uint_ge(seen_at(&flow, 2, OPCODE_EXECUTE), 500);
    ck_assert_uint_eq(seen_at(&flow, 0, OPCODE_EXECUTE) + seen_at(&flow, 1, OPCODE_EXECUTE), 0);
    ck_assert_uint_ge(planner.calls, 500);
    ck_assert(!planner.bad_input);
    ck_assert_uint_eq(flow_stats(&flow).plans_ignored, 0);
    for (planner.mode = PLAN_TWICE; planner.mode <= PLAN_MANY; planner.mode++) {
        uint64_t before = flow_stats(&flow).plans_ignored;
        insert_rows(&flow, insert, 50, NULL);
        ck_assert_uint_ge(flow_stats(&flow).plans_ignored, before + 50);
    }
    ck_assert_uint_gt(seen_at(&flow, 0, OPCODE_EXECUTE), 0); /* the usual choice then */
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- asking ---- */

static void ck_route(struct flow *flow, const char *keyspace, uint32_t least)
{
    char cql[200];
    snprintf(cql, sizeof cql, "CREATE TABLE %s.t2 (k bigint PRIMARY KEY, v blob)", keyspace);
    char message[200];
    node_cql(flow->node, cql, NULL, message, sizeof message);
    snprintf(cql, sizeof cql, "INSERT INTO %s.t2 (k, v) VALUES (?, ?)", keyspace);
    cqlring_prepared *insert = flow_prepare(flow, cql);
    for (int64_t k = 0; k < 100; k++) {
        cqlring_bytes values[] = {flow_bigint(k), {"x", 1}};
        cqlring_route route;
        cqlring_error error;
        cqlring_status status = cqlring_route_of(insert, values, 2, &route, &error);
        ck_assert_msg(status == CQLRING_OK, "%s", error.message);
        ck_assert_int_eq(route.token, cqr_murmur3(values[0].data, 8));
        uint32_t replicas[16], count = node_replicas(flow->node, keyspace, route.token, replicas, 16);
        if (least == 0) { /* nothing is learned, nothing wrong either: any node will do */
            ck_assert_uint_eq(route.replica_count, 0);
        } else {
            ck_assert_uint_eq(count, least);
            ck_assert_uint_eq(route.replica_count, count);
            for (uint32_t i = 0; i < count; i++) {
                ck_assert(is_node(flow, route.replicas[i].node, replicas[i]));
                ck_assert_int_eq(route.replicas[i].shard, -1);
            }
        }
        if (k < 5)
            flow_ok(ask_prepared(flow, insert, values, 2, NULL, NULL, NULL));
    }
    cqlring_prepared_release(insert);
}

START_TEST(tk_04_the_route_of_a_row_is_that_of_the_server_whatever_the_strategy)
{
    static const struct {
        const char *name, *replication;
        uint32_t replicas;
    } keyspaces[] = {
        {"simple", "{'class': 'SimpleStrategy', 'replication_factor': 2}", 2},
        {"many", "{'class': 'SimpleStrategy', 'replication_factor': 9}", 6},
        {"network", "{'class': 'org.apache.cassandra.locator.NetworkTopologyStrategy', 'dc1': 2, 'dc2': 3}", 5},
        {"one_dc", "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 0, 'nowhere': 3}", 3},
        {"transient", "{'class': 'NetworkTopologyStrategy', 'dc1': '3/1'}", 2},
        {"local", "{'class': 'LocalStrategy'}", 0},
        {"everywhere", "{'class': 'EverywhereStrategy'}", 6},
    };
    struct flow flow;
    start(&flow, 6);
    flow.node_options.dcs = dcs;
    flow.node_options.racks = racks;
    flow.options.local_datacenter = "dc1";
    flow_start(&flow);
    for (unsigned i = 0; i < sizeof keyspaces / sizeof keyspaces[0]; i++) {
        char cql[300], message[200];
        snprintf(cql, sizeof cql, "CREATE KEYSPACE %s WITH replication = %s", keyspaces[i].name, keyspaces[i].replication);
        int32_t code = node_cql(flow.node, cql, NULL, message, sizeof message);
        ck_assert_msg(code == 0, "%s: %s", cql, message);
    }
    flow_open(&flow);
    for (unsigned i = 0; i < sizeof keyspaces / sizeof keyspaces[0]; i++)
        ck_route(&flow, keyspaces[i].name, keyspaces[i].replicas);
    flow_close(&flow);
}
END_TEST

START_TEST(tk_10_a_row_without_a_whole_key_has_no_route)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *all = flow_prepare(&flow, "SELECT k FROM ks.t");
    cqlring_route route;
    cqlring_error error;
    cqlring_bytes values[] = {{NULL, CQLRING_NULL}, {"x", 1}};
    ck_assert_int_eq(cqlring_route_of(insert, values, 2, &route, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "null"));
    ck_assert_int_eq(cqlring_route_of(insert, values, 1, &route, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_route_of(all, NULL, 0, &route, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "partition key"));
    ck_assert_int_eq(cqlring_route_of(NULL, values, 2, &route, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_route_of(insert, values, 2, NULL, &error), CQLRING_INVALID);
    values[0] = (cqlring_bytes){"abc", 3}; /* no bigint: as any call that takes values says it */
    ck_assert_int_eq(cqlring_route_of(insert, values, 2, &route, &error), CQLRING_TYPE);
    ck_assert_ptr_nonnull(strstr(error.message, "cqlring_route_of: column \"k\" (bigint): the value has 3 bytes, one of this type has 8"));
    values[0] = (cqlring_bytes){NULL, CQLRING_UNSET};
    ck_assert_int_eq(cqlring_route_of(insert, values, 2, &route, &error), CQLRING_INVALID);
    values[0] = (cqlring_bytes){NULL, 8};
    ck_assert_int_eq(cqlring_route_of(insert, values, 2, &route, &error), CQLRING_INVALID);
    values[0] = flow_bigint(3);
    flow_ok(cqlring_route_of(insert, values, 2, &route, NULL));
    ck_assert_uint_eq(route.replica_count, 1);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(all);
    flow_close(&flow);
}
END_TEST

START_TEST(the_size_of_a_request_is_known_before_it_is_sent)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        flow_init(&flow);
        flow.options.protocol_version = version;
        ask_record(&flow);
        flow_start(&flow);
        flow_open(&flow);
        cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT), *select = flow_prepare(&flow, FLOW_SELECT), *all = flow_prepare(&flow, "SELECT k FROM ks.t");
        static uint8_t blob[70000];
        cqlring_batch_child children[4];
        cqlring_bytes values[4][2];
        uint64_t sum = 0;
        for (uint32_t i = 0; i < 4; i++) {
            static const int32_t sizes[] = {0, 7, sizeof blob, CQLRING_NULL};
            values[i][0] = flow_bigint(i);
            values[i][1] = (cqlring_bytes){blob, sizes[i]};
            cqlring_route route;
            flow_ok(cqlring_route_of(insert, values[i], 2, &route, NULL));
            flow_ok(ask_prepared(&flow, insert, values[i], 2, NULL, NULL, NULL));
            ck_assert_uint_eq(route.request_size, ask_seen(OPCODE_EXECUTE).body_size + 9);
            children[i] = (cqlring_batch_child){.prepared = insert, .values = values[i], .value_count = 2};
            sum += route.batch_size;
        }
        cqlring_route route;
        flow_ok(cqlring_route_of(select, values[1], 1, &route, NULL));
        flow_ok(ask_prepared(&flow, select, values[1], 1, NULL, NULL, NULL));
        ck_assert_uint_eq(route.request_size, ask_seen(OPCODE_EXECUTE).body_size + 9);
        ck_assert_int_eq(cqlring_route_of(all, NULL, 0, &route, NULL), CQLRING_INVALID); /* goes to no partition, and has a size */
        flow_ok(ask_prepared(&flow, all, NULL, 0, NULL, NULL, NULL));
        ck_assert_uint_eq(route.request_size, ask_seen(OPCODE_EXECUTE).body_size + 9);

        const cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 4};
        cqlring_request request = {.session = flow.session, .batch = &batch};
        (void)cqlring_execute_sync(&request, NULL, NULL); /* it may be too large for the node: its size is what we want */
        uint64_t size = ask_seen(OPCODE_BATCH).body_size + 9;
        ck_assert_uint_gt(size, sum);
        ck_assert_uint_le(size, sum + CQLRING_BATCH_HEAD_MAX);
        cqlring_prepared_release(insert);
        cqlring_prepared_release(select);
        cqlring_prepared_release(all);
        flow_close(&flow);
    }
}
END_TEST

/* ---- batches ---- */

static bool holds(const cqlring_route *route, const cqlring_node *node)
{
    for (uint32_t i = 0; i < route->replica_count; i++)
        if (route->replicas[i].node == node)
            return true;
    return false;
}

START_TEST(bt_07_a_batch_of_several_partitions_goes_to_the_replica_they_share)
{
    struct flow flow;
    start(&flow, 6);
    flow.node_options.racks = racks;
    ask_record(&flow);
    flow_start(&flow);
    char message[200];
    node_cql(flow.node, "CREATE KEYSPACE two WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}", NULL, message, sizeof message);
    node_cql(flow.node, "CREATE TABLE two.t (k bigint PRIMARY KEY, v blob)", NULL, message, sizeof message);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, "INSERT INTO two.t (k, v) VALUES (?, ?)");
    uint32_t tried = 0;
    for (int64_t k = 0; k < 400 && tried < 20; k++) {
        /* k and others, all with one replica in common that is not the first one of k */
        cqlring_route mine, other;
        cqlring_bytes values[3][2] = {{flow_bigint(k), {"x", 1}}};
        flow_ok(cqlring_route_of(insert, values[0], 2, &mine, NULL));
        const cqlring_node *shared = mine.replicas[1].node;
        uint32_t count = 1;
        for (int64_t i = 1000; i < 1400 && count < 3; i++) {
            values[count][0] = flow_bigint(i + k);
            values[count][1] = (cqlring_bytes){"x", 1};
            flow_ok(cqlring_route_of(insert, values[count], 2, &other, NULL));
            if (holds(&other, shared) && !holds(&other, mine.replicas[0].node))
                values[count++][0] = flow_bigint(i + k);
        }
        if (count < 3)
            continue;
        tried++;
        cqlring_batch_child children[3];
        for (int i = 0; i < 3; i++)
            children[i] = (cqlring_batch_child){.prepared = insert, .values = values[i], .value_count = 2};
        uint8_t cells[3][8];
        for (int i = 0; i < 3; i++) {
            memcpy(cells[i], values[i][0].data, 8); /* flow_bigint's memory turns over */
            values[i][0].data = cells[i];
        }
        cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 3};
        cqlring_request request = {.session = flow.session, .batch = &batch};
        flow_ok(cqlring_execute_sync(&request, NULL, NULL));
        struct node_seen seen = ask_seen(OPCODE_BATCH);
        ck_assert_msg(is_node(&flow, shared, seen.node), "key %ld: node %u", (long)k, seen.node);
        ck_assert_uint_eq(seen.batch_count, 3);
    }
    ck_assert_uint_ge(tried, 5);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(lw_06_a_batch_with_a_condition_goes_to_one_node_whatever_its_order)
{
    enum { BATCHES = 40 };
    struct flow flow;
    start(&flow, 3);
    flow.node_options.shards = 2; /* conditional statements are marked as such */
    ask_record(&flow);
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *plain = flow_prepare(&flow, FLOW_INSERT), *conditional = flow_prepare(&flow, "INSERT INTO ks.t (k, v) VALUES (?, ?) IF NOT EXISTS");
    node_set_delay(flow.node, NODE_ALL, 20000, 0); /* all are under way at once, so a plain one would go where there are fewest */
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    cqlring_future *futures[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        cqlring_batch_child children[2] = {{.prepared = i % 2 == 0 ? plain : conditional, .values = values, .value_count = 2},
                                           {.prepared = i % 2 == 0 ? conditional : plain, .values = values, .value_count = 2}};
        cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 2};
        cqlring_request request = {.session = flow.session, .batch = &batch};
        flow_ok(cqlring_execute(&request, &futures[i], NULL));
    }
    for (int i = 0; i < BATCHES; i++)
        flow_ok(ask_end(futures[i], NULL));
    uint32_t replicas[3], seen = ask_seen_count(OPCODE_BATCH);
    node_replicas(flow.node, "ks", cqr_murmur3(values[0].data, 8), replicas, 3);
    ck_assert_uint_ge(seen, BATCHES);
    for (uint32_t i = 0; i < seen; i++)
        ck_assert_uint_eq(ask_seen_at(OPCODE_BATCH, i).node, replicas[0]);
    cqlring_prepared_release(plain);
    cqlring_prepared_release(conditional);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("routing");
    TCase *tcase = tcase_create("routing");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_guessed_datacenter_is_warned_of_and_a_given_one_is_not);
    tcase_add_test(tcase, rows_go_to_the_replica_in_our_rack_and_elsewhere_when_it_is_gone);
    tcase_add_test(tcase, lw_06_with_a_rack_too_conditional_batches_go_to_the_primary);
    tcase_add_test(tcase, an_overloaded_node_of_our_rack_rests_as_any_other);
    tcase_add_loop_test(tcase, nodes_that_are_not_allowed_get_no_connection, 0, 3);
    tcase_add_test(tcase, options_of_routing_are_refused_out_of_range);
    tcase_add_loop_test(tcase, other_datacenters_are_for_when_no_local_node_is_left, 0, 2);
    tcase_add_test(tcase, mt_03_a_slow_replica_gets_few_rows);
    tcase_add_test(tcase, a_replica_that_says_nothing_for_a_while_comes_last);
    tcase_add_test(tcase, an_applications_plan_is_followed_and_a_bad_one_is_counted);
    tcase_add_test(tcase, tk_04_the_route_of_a_row_is_that_of_the_server_whatever_the_strategy);
    tcase_add_test(tcase, tk_10_a_row_without_a_whole_key_has_no_route);
    tcase_add_test(tcase, the_size_of_a_request_is_known_before_it_is_sent);
    tcase_add_test(tcase, bt_07_a_batch_of_several_partitions_goes_to_the_replica_they_share);
    tcase_add_test(tcase, lw_06_a_batch_with_a_condition_goes_to_one_node_whatever_its_order);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
