/* SPDX-License-Identifier: Apache-2.0 */

/* A node is known by its host id: one that has another address is the same node, one with another host id at the same address is
   another one. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

#define NEW_ADDRESS "127.0.0.77"
#define NEWER_ADDRESS "127.0.0.78"
enum { ROWS = 3000, SOME = 30 }; /* whichever node is quickest gets most of them, each of them some */

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

/* What on_node was told, read when the control plane is at rest. */
static struct {
    atomic_uint count[6];
    char moved_to[64];
} told;

static void on_node(const cqlring_node *node, cqlring_node_event event, void *context)
{
    (void)context;
    if (event == CQLRING_NODE_MOVED) {
        cqlring_node_info info;
        cqlring_node_describe(node, &info);
        snprintf(told.moved_to, sizeof told.moved_to, "%s", info.address);
    }
    atomic_fetch_add(&told.count[event], 1); /* seq_cst, as the tests' loads: moved_to is seen */
}

struct before {
    struct flow flow;
    const cqlring_node *nodes[3];   /* by index of the embedded one */
    char old_address[64];           /* of node 2 */
    uint64_t requests;              /* sent to node 2 */
};

static const cqlring_node *handle_at(struct flow *flow, const char *address)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (strcmp(info.address, address) == 0)
            return nodes[i];
    }
    return NULL;
}

static uint64_t requests_to(struct flow *flow, const cqlring_node *node)
{
    cqlring_node_stats stats[64];
    uint64_t sum = 0;
    uint32_t count = cqlring_cluster_stats(flow->cluster, stats, 64);
    for (uint32_t i = 0; i < count && i < 64; i++)
        sum += stats[i].node == node ? stats[i].requests : 0;
    return sum;
}

static uint32_t connections_at(struct flow *flow, const char *address)
{
    cqlring_connection_info infos[64];
    uint32_t found = 0, count = cqlring_cluster_connections(flow->cluster, infos, 64);
    for (uint32_t i = 0; i < count && i < 64; i++)
        found += strcmp(infos[i].address, address) == 0;
    return found;
}

static void run_rows(struct flow *flow, uint64_t count, void (*each)(const cqlring_completion *completion, void *context), void *context)
{
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, count, 16);
    flow_sink_init(&sink, count);
    sink.each = each;
    sink.context = context;
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent};
    flow_ok(flow_run(flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(flow_sink_missing(&sink, count), 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
}

static void start(struct before *before)
{
    struct flow *flow = &before->flow;
    flow_init(flow);
    watch_log(flow);
    memset(&told, 0, sizeof told);
    flow->node_options.nodes = 3;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 60000;
    flow->options.on_node = on_node;
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, watch_all_up, &(uint32_t){3});
    run_rows(flow, ROWS, NULL, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        before->nodes[i] = handle_at(flow, ask_address(flow, i));
        ck_assert_ptr_nonnull(before->nodes[i]);
    }
    snprintf(before->old_address, sizeof before->old_address, "%s", ask_address(flow, 2));
    before->requests = requests_to(flow, before->nodes[2]);
    ck_assert_uint_gt(before->requests, SOME);
}

static bool is_at_home(struct flow *flow, void *old_address)
{
    return watch_all_up(flow, &(uint32_t){3}) && connections_at(flow, ask_address(flow, 2)) > 0 && connections_at(flow, old_address) == 0;
}

/* Node 2 has moved, and is what it was. */
static void ck_assert_same_node(struct before *before)
{
    struct flow *flow = &before->flow;
    watch_for(flow, is_at_home, before->old_address);
    ck_assert_uint_eq(cqlring_cluster_nodes(flow->cluster, NULL, 0), 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_ptr_eq(handle_at(flow, ask_address(flow, i)), before->nodes[i]);
    uint64_t requests = requests_to(flow, before->nodes[2]);
    ck_assert_uint_ge(requests, before->requests);
    node_counters_reset(flow->node);
    run_rows(flow, ROWS, NULL, NULL);
    struct node_counters counters;
    node_counters(flow->node, 2, &counters);
    ck_assert_uint_gt(counters.opcodes[OPCODE_EXECUTE], SOME);
    ck_assert_uint_ge(requests_to(flow, before->nodes[2]), requests + counters.opcodes[OPCODE_EXECUTE]);
    cqlring_execution how = {.struct_size = sizeof how, .target = before->nodes[2]};
    struct node_seen seen;
    flow_ok(ask_text(flow, "INSERT INTO ks.t (k, v) VALUES (77, 0x01)", NULL, 0, &how, NULL, NULL));
    ck_assert(node_last(flow->node, 2, OPCODE_QUERY, &seen));
    ck_assert_ptr_nonnull(strstr(seen.text, "VALUES (77"));
}

static void ck_assert_told_of_the_move(struct before *before, uint32_t moves)
{
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_MOVED]), moves);
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_ADDED]), 3);
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_REMOVED]), 0);
    ck_assert_str_eq(told.moved_to, ask_address(&before->flow, 2));
}

static void move_once(const cqlring_completion *completion, void *context)
{
    struct before *before = context;
    if (completion->row == 2000)
        node_move(before->flow.node, 2, NEW_ADDRESS, NODE_MOVE_TELL);
}

START_TEST(a_node_that_moves_under_load_is_the_same_node_and_no_row_fails)
{
    struct before before;
    start(&before);
    run_rows(&before.flow, 20000, move_once, &before);
    ck_assert_same_node(&before);
    ck_assert_told_of_the_move(&before, 1);
    cqlring_node_info info;
    cqlring_node_describe(before.nodes[2], &info);
    ck_assert_int_eq(strncmp(info.address, NEW_ADDRESS ":", sizeof NEW_ADDRESS), 0);
    flow_close(&before.flow);
}
END_TEST

START_TEST(a_node_that_moves_back_and_forth_stays_the_same_node)
{
    struct before before;
    char home[64];
    start(&before);
    snprintf(home, sizeof home, "%s", node_address(before.flow.node, 2));
    const char *const addresses[] = {NEW_ADDRESS, NEWER_ADDRESS, home, NEW_ADDRESS, home};
    for (uint32_t i = 0; i < 5; i++) {
        node_move(before.flow.node, 2, addresses[i], NODE_MOVE_TELL);
        ck_assert_same_node(&before);
        ck_assert_told_of_the_move(&before, i + 1);
        snprintf(before.old_address, sizeof before.old_address, "%s", ask_address(&before.flow, 2));
    }
    flow_close(&before.flow);
}
END_TEST

/* Nobody tells: the next reading, here that of a new control connection, finds it. */
START_TEST(a_move_that_nobody_told_of_is_found_by_the_next_reading)
{
    struct before before;
    start(&before);
    node_move(before.flow.node, 2, NEW_ADDRESS, 0);
    struct node_conn_info conns[16];
    for (uint32_t i = node_conns(before.flow.node, NODE_ALL, conns, 16); i-- > 0;)
        if (conns[i].registered)
            node_cut(before.flow.node, conns[i].node, conns[i].conn);
    ck_assert_same_node(&before);
    ck_assert_told_of_the_move(&before, 1);
    flow_close(&before.flow);
}
END_TEST

START_TEST(a_moved_node_event_alone_is_enough)
{
    struct before before;
    start(&before);
    node_move(before.flow.node, 2, NEW_ADDRESS, 0);
    node_event_topology(before.flow.node, NODE_ALL, "MOVED_NODE", 2);
    ck_assert_same_node(&before);
    ck_assert_told_of_the_move(&before, 1);
    flow_close(&before.flow);
}
END_TEST

/* The old address still serves: what is under way there is answered there, also what could not be sent a second time. */
START_TEST(requests_under_way_at_the_old_address_are_answered_there)
{
    struct before before;
    start(&before);
    struct flow *flow = &before.flow;
    uint64_t retries = flow_stats(flow).retries;
    uint32_t fault = node_fault_parse(flow->node, "late:node=2,table=ks.t,delay_us=3000000", NULL, 0);
    ck_assert_uint_ne(fault, 0);
    cqlring_execution how = {.struct_size = sizeof how, .target = before.nodes[2]};
    cqlring_future *future = ask_start(flow, "INSERT INTO ks.t (k, v) VALUES (5, 0x05)", &how);
    watch_for(flow, watch_faults, &(uint64_t){1});
    node_fault_remove(flow->node, fault);
    node_move(flow->node, 2, NEW_ADDRESS, NODE_MOVE_KEEP | NODE_MOVE_TELL);
    char address[64];
    snprintf(address, sizeof address, "%s", ask_address(flow, 2));
    while (connections_at(flow, address) == 0)
        watch_pass(flow, 5);
    ck_assert(!cqlring_future_ready(future)); /* it is awaited while the new connection is there */
    ck_assert_uint_gt(connections_at(flow, before.old_address), 0);
    watch_for(flow, watch_ready, future);
    flow_ok(ask_end(future, NULL));
    ck_assert_uint_eq(flow_stats(flow).retries, retries);
    ck_assert_same_node(&before);
    ck_assert_told_of_the_move(&before, 1);
    flow_close(flow);
}
END_TEST

/* The old address goes silent: what waits there is tried elsewhere or fails, and does not wait for ever. */
START_TEST(requests_under_way_at_an_old_address_that_is_silent_are_given_up)
{
    struct before before;
    flow_init(&before.flow);
    before.flow.options.suspect_after_us = 200000;
    before.flow.options.connect_timeout_us = 500000 * WATCH_SLOW;
    struct flow *flow = &before.flow;
    watch_log(flow);
    flow->node_options.nodes = 3;
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, watch_all_up, &(uint32_t){3});
    before.nodes[2] = handle_at(flow, ask_address(flow, 2));
    node_silence(flow->node, 2, true);
    cqlring_execution how = {.struct_size = sizeof how, .target = before.nodes[2], .timeout_us = -1};
    cqlring_future *future = ask_start(flow, "INSERT INTO ks.t (k, v) VALUES (5, 0x05)", &how);
    struct node_seen seen = {.text = ""};
    while (!node_last(flow->node, 2, OPCODE_QUERY, &seen) || strstr(seen.text, "VALUES (5") == NULL)
        watch_pass(flow, 1);
    node_move(flow->node, 2, NEW_ADDRESS, NODE_MOVE_KEEP | NODE_MOVE_TELL);
    watch_for(flow, watch_ready, future);
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_LOST);
    ck_assert_uint_ge(watch_log_count("is silent with 1 requests"), 1);
    node_silence(flow->node, 2, false);
    flow_close(flow);
}
END_TEST

/* Peers name it at both addresses for ever: the one that it is reached at counts, and it does not go to and fro. */
START_TEST(a_stale_row_of_the_old_address_does_not_bring_a_node_back_there)
{
    struct before before;
    start(&before);
    node_move(before.flow.node, 2, NEW_ADDRESS, NODE_MOVE_TELL | NODE_MOVE_STALE);
    ck_assert_same_node(&before);
    uint32_t readings = watch_log_count("topology ");
    for (uint32_t i = 0; i < 3; i++) {
        node_event_topology(before.flow.node, NODE_ALL, "MOVED_NODE", 1);
        while (watch_log_count("topology ") == readings)
            watch_pass(&before.flow, 5);
        readings = watch_log_count("topology ");
    }
    ck_assert_same_node(&before);
    ck_assert_told_of_the_move(&before, 1);
    flow_close(&before.flow);
}
END_TEST

static bool is_another(struct flow *flow, void *nodes)
{
    const cqlring_node *now = handle_at(flow, ask_address(flow, 2));
    return now != NULL && now != ((const cqlring_node *const *)nodes)[2] && watch_all_up(flow, &(uint32_t){3});
}

START_TEST(another_host_id_at_the_same_address_is_another_node)
{
    struct before before;
    start(&before);
    struct flow *flow = &before.flow;
    cqlring_node_info old, new;
    cqlring_node_describe(before.nodes[2], &old);
    node_counters_reset(flow->node);
    node_replace(flow->node, 2, true);
    watch_for(flow, is_another, before.nodes);
    ck_assert_uint_eq(cqlring_cluster_nodes(flow->cluster, NULL, 0), 3);
    const cqlring_node *now = handle_at(flow, before.old_address);
    cqlring_node_describe(now, &new);
    ck_assert_mem_ne(old.host_id, new.host_id, 16);
    cqlring_node_describe(before.nodes[2], &new); /* the handle of the old one stays good */
    ck_assert_mem_eq(old.host_id, new.host_id, 16);
    ck_assert_str_eq(new.address, before.old_address);
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_REMOVED]), 1);
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_ADDED]), 4);
    ck_assert_uint_eq(atomic_load(&told.count[CQLRING_NODE_MOVED]), 0);
    run_rows(flow, ROWS, NULL, NULL);
    ck_assert_uint_gt(requests_to(flow, now), SOME);
    struct node_counters counters;
    node_counters(flow->node, 2, &counters);
    ck_assert_uint_le(requests_to(flow, now), counters.requests); /* its own count, from the beginning */
    cqlring_execution how = {.struct_size = sizeof how, .target = before.nodes[2]};
    ck_assert_int_eq(ask_text(flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, NULL), CQLRING_UNREACHABLE);
    flow_close(flow);
}
END_TEST

/* A list of addresses is about where a node is now. */
START_TEST(a_node_that_moves_to_a_denied_address_is_let_go)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options.nodes = 3;
    flow.options.deny_nodes = NEW_ADDRESS;
    flow_start(&flow);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    node_move(flow.node, 2, NEW_ADDRESS, NODE_MOVE_KEEP | NODE_MOVE_TELL);
    cqlring_node_info info;
    while (!watch_node(&flow, 2, &info) || info.connections > 0)
        watch_pass(&flow, 5);
    ck_assert_uint_eq(watch_up_count(&flow), 2);
    node_move(flow.node, 2, NEWER_ADDRESS, NODE_MOVE_TELL);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    flow_close(&flow);
}
END_TEST

START_TEST(every_shard_of_a_node_that_moves_gets_a_connection_there)
{
    struct before before;
    flow_init(&before.flow);
    struct flow *flow = &before.flow;
    watch_log(flow);
    flow->node_options.nodes = 2;
    flow->node_options.shards = 3;
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, watch_all_up, &(uint32_t){2});
    const cqlring_node *node = handle_at(flow, ask_address(flow, 1));
    cqlring_node_info info;
    do {
        cqlring_node_describe(node, &info);
        watch_pass(flow, 2);
    } while (info.connections < 3);
    node_move(flow->node, 1, NEW_ADDRESS, NODE_MOVE_KEEP | NODE_MOVE_TELL);
    const char *host = NEW_ADDRESS ":";
    for (uint32_t there = 0, elsewhere = 1; there != 3 || elsewhere > 0; watch_pass(flow, 2)) {
        cqlring_connection_info infos[64];
        uint32_t count = cqlring_cluster_connections(flow->cluster, infos, 64);
        there = elsewhere = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (infos[i].node != node || infos[i].is_control)
                continue;
            bool is_there = strncmp(infos[i].address, host, strlen(host)) == 0;
            there += is_there;
            elsewhere += !is_there;
        }
    }
    ck_assert_ptr_eq(handle_at(flow, ask_address(flow, 1)), node);
    flow_close(flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("moved");
    TCase *tcase = tcase_create("moved");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_node_that_moves_under_load_is_the_same_node_and_no_row_fails);
    tcase_add_test(tcase, a_node_that_moves_back_and_forth_stays_the_same_node);
    tcase_add_test(tcase, a_move_that_nobody_told_of_is_found_by_the_next_reading);
    tcase_add_test(tcase, a_moved_node_event_alone_is_enough);
    tcase_add_test(tcase, requests_under_way_at_the_old_address_are_answered_there);
    tcase_add_test(tcase, requests_under_way_at_an_old_address_that_is_silent_are_given_up);
    tcase_add_test(tcase, a_stale_row_of_the_old_address_does_not_bring_a_node_back_there);
    tcase_add_test(tcase, another_host_id_at_the_same_address_is_another_node);
    tcase_add_test(tcase, a_node_that_moves_to_a_denied_address_is_let_go);
    tcase_add_test(tcase, every_shard_of_a_node_that_moves_gets_a_connection_there);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
