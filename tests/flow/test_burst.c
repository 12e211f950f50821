/* SPDX-License-Identifier: Apache-2.0 */

/* Many events at once cost one reading: what the nodes were asked is counted. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

enum { BURST = 100, QUIET_MS = 1500 /* longer than the second that events are gathered for */ };

static struct {
    atomic_uint peers, schema_tables;
} asked;

static void on_request(const struct node_seen *seen, void *context)
{
    (void)context;
    if (strstr(seen->text, "FROM system.peers") != NULL)
        atomic_fetch_add(&asked.peers, 1);
    if (strstr(seen->text, "FROM system_schema.tables") != NULL)
        atomic_fetch_add(&asked.schema_tables, 1);
}

/* Nothing is asked any more. */
static void settle(struct flow *flow)
{
    unsigned peers, tables;
    do {
        peers = atomic_load(&asked.peers);
        tables = atomic_load(&asked.schema_tables);
        watch_pass(flow, QUIET_MS);
    } while (peers != atomic_load(&asked.peers) || tables != atomic_load(&asked.schema_tables));
    atomic_store(&asked.peers, 0);
    atomic_store(&asked.schema_tables, 0);
}

static void start(struct flow *flow, uint32_t nodes, cqlring_tristate schema)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = nodes;
    flow->node_options.on_request = on_request;
    flow->options.schema_metadata = schema;
    flow_start(flow);
}

static uint32_t put(char *body, uint32_t size, const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    body[size] = 0;
    body[size + 1] = (char)length;
    memcpy(body + size + 2, text, length);
    return size + 2 + length;
}

/* table "": of the keyspace. The event alone: a hundred real changes may take longer than they are gathered for. */
static void schema_event(struct flow *flow, const char *change, const char *keyspace, const char *table)
{
    char body[200];
    uint32_t size = put(body, put(body, 0, "SCHEMA_CHANGE"), change);
    size = put(body, put(body, size, table[0] != '\0' ? "TABLE" : "KEYSPACE"), keyspace);
    if (table[0] != '\0')
        size = put(body, size, table);
    node_event_raw(flow->node, NODE_ALL, body, size);
}

/* A hundred events, a moment after one another; once more when that took longer than what is still one burst. */
static void burst(struct flow *flow, void (*event)(struct flow *flow, uint32_t i))
{
    int64_t from;
    do {
        settle(flow);
        from = watch_now_us();
        for (uint32_t i = 0; i < BURST; i++) {
            event(flow, i);
            watch_pass(flow, 1);
        }
    } while (watch_now_us() - from > 900000);
}

static bool have_peers(struct flow *flow, void *count)
{
    (void)flow;
    return atomic_load(&asked.peers) >= *(unsigned *)count;
}

static bool have_tables(struct flow *flow, void *count)
{
    (void)flow;
    return atomic_load(&asked.schema_tables) >= *(unsigned *)count;
}

static void of_topology(struct flow *flow, uint32_t i)
{
    static const char *const changes[] = {"NEW_NODE", "MOVED_NODE", "REMOVED_NODE"};
    node_event_topology(flow->node, NODE_ALL, changes[i % 3], i % 3);
}

START_TEST(a_hundred_topology_events_cost_one_reading)
{
    struct flow flow;
    start(&flow, 3, CQLRING_NO);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    burst(&flow, of_topology);
    watch_for(&flow, have_peers, &(unsigned){1});
    watch_pass(&flow, QUIET_MS);
    ck_assert_uint_eq(atomic_load(&asked.peers), 1);
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, NULL, 0), 3);
    flow_close(&flow);
}
END_TEST

static void of_status(struct flow *flow, uint32_t i)
{
    node_event_status(flow->node, NODE_ALL, i % 2 == 0 ? "UP" : "DOWN", i % 3);
}

/* UP makes the node be tried at once, DOWN is not believed: neither is a reason to read. */
START_TEST(a_hundred_status_events_of_known_nodes_cost_none)
{
    struct flow flow;
    start(&flow, 3, CQLRING_NO);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    burst(&flow, of_status);
    watch_pass(&flow, QUIET_MS);
    ck_assert_uint_eq(atomic_load(&asked.peers), 0);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

static void of_a_stranger(struct flow *flow, uint32_t i)
{
    if (i % 2 == 0)
        node_event_topology(flow->node, 0, "NEW_NODE", 1);
    else
        node_event_status(flow->node, 0, "UP", 1);
}

/* rc_14: of a node that peers do not show: one reading, and five more 2 s apart in which it may turn up, however many events. */
START_TEST(a_hundred_events_of_a_node_that_is_not_there_cost_six_readings)
{
    struct flow flow;
    start(&flow, 2, CQLRING_NO);
    node_hide(flow.node, 1, true);
    flow_open(&flow);
    burst(&flow, of_a_stranger);
    watch_for(&flow, have_peers, &(unsigned){6});
    watch_pass(&flow, QUIET_MS + 1000);
    ck_assert_uint_eq(atomic_load(&asked.peers), 6);
    flow_close(&flow);
}
END_TEST

/* Each further event does not begin the wait anew; nor is there a reading for each. */
START_TEST(events_that_never_stop_do_not_put_the_reading_off)
{
    enum { READINGS = 3 };
    struct flow flow;
    start(&flow, 2, CQLRING_NO);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    settle(&flow);
    int64_t from = watch_now_us();
    uint32_t events = 0;
    while (atomic_load(&asked.peers) < READINGS) {
        node_event_topology(flow.node, NODE_ALL, "MOVED_NODE", 1);
        events++;
        watch_pass(&flow, 20);
        ck_assert_int_lt(watch_now_us() - from, 20000000);
    }
    ck_assert_int_ge(watch_now_us() - from, (READINGS - 1) * 900000); /* a second each, less the wheel's tick */
    ck_assert_uint_gt(events, READINGS);
    flow_close(&flow);
}
END_TEST

static void of_a_table(struct flow *flow, uint32_t i)
{
    (void)i;
    schema_event(flow, "UPDATED", "ks", "t");
}

START_TEST(a_hundred_changes_of_one_table_cost_one_reading_of_the_schema)
{
    struct flow flow;
    start(&flow, 1, CQLRING_YES);
    flow_open(&flow);
    burst(&flow, of_a_table);
    watch_for(&flow, have_tables, &(unsigned){1});
    watch_pass(&flow, QUIET_MS);
    ck_assert_uint_eq(atomic_load(&asked.schema_tables), 1);
    ck_assert_uint_eq(atomic_load(&asked.peers), 0); /* a table is nothing to the topology */
    flow_close(&flow);
}
END_TEST

static void of_everything(struct flow *flow, uint32_t i)
{
    char keyspace[16], table[16];
    snprintf(keyspace, sizeof keyspace, "k%u", i / 10);
    snprintf(table, sizeof table, "t%u", i);
    schema_event(flow, "CREATED", keyspace, i % 2 == 0 ? "" : table);
    node_event_topology(flow->node, NODE_ALL, "MOVED_NODE", 1);
}

START_TEST(a_hundred_tables_and_keyspaces_cost_one_reading_of_both)
{
    struct flow flow;
    start(&flow, 2, CQLRING_YES);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    burst(&flow, of_everything);
    watch_for(&flow, have_tables, &(unsigned){1});
    watch_for(&flow, have_peers, &(unsigned){1});
    watch_pass(&flow, QUIET_MS);
    ck_assert_uint_eq(atomic_load(&asked.schema_tables), 1);
    ck_assert_uint_eq(atomic_load(&asked.peers), 1); /* keyspaces have replication, which is the topology's, too */
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("burst");
    TCase *tcase = tcase_create("burst");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_hundred_topology_events_cost_one_reading);
    tcase_add_test(tcase, a_hundred_status_events_of_known_nodes_cost_none);
    tcase_add_test(tcase, a_hundred_events_of_a_node_that_is_not_there_cost_six_readings);
    tcase_add_test(tcase, events_that_never_stop_do_not_put_the_reading_off);
    tcase_add_test(tcase, a_hundred_changes_of_one_table_cost_one_reading_of_the_schema);
    tcase_add_test(tcase, a_hundred_tables_and_keyspaces_cost_one_reading_of_both);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
