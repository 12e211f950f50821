/* SPDX-License-Identifier: Apache-2.0 */

/* ScyllaDB's client routes: nodes behind private links are dialled where system.client_routes says. The links are relays; every
   connection that a node has must be one of them. This program brings its own resolver, which every lookup of the library ends in. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "relay.h"
#include "resolver.h"
#include "secure.h"
#include "watch.h"

enum { NODES = 3 };

static atomic_bool turned; /* the other address first */

/* "nowhere…" is not known; every other name is 127.0.0.1 and 127.0.0.99, where nobody is. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    (void)hints;
    resolver_count();
    *found = NULL;
    if (strncmp(name, "nowhere", 7) == 0)
        return EAI_NONAME;
    for (unsigned i = 0; i < 2; i++)
        resolver_add(found, (i == 0) == atomic_load(&turned) ? 0x7F000001 : 0x7F000063, service);
    return 0;
}

static atomic_uint readings, moves;

static void on_request(const struct node_seen *seen, void *context)
{
    (void)context;
    if (seen->opcode == OPCODE_QUERY && strstr(seen->text, "system.client_routes") != NULL)
        atomic_fetch_add(&readings, 1);
}

static void on_node(const cqlring_node *node, cqlring_node_event event, void *context)
{
    (void)node;
    (void)context;
    if (event == CQLRING_NODE_MOVED)
        atomic_fetch_add(&moves, 1);
}

/* A flow whose nodes are ScyllaDB's, with links to them; links[NODES] leads to node 0, as the contact point does. */
struct linked {
    struct flow flow;
    uint32_t nodes;
    struct relay *links[NODES + 1];
};

static void begin(struct linked *linked, uint32_t nodes, uint32_t shards)
{
    struct flow *flow = &linked->flow;
    flow_init(flow);
    watch_log(flow);
    atomic_store(&readings, 0);
    atomic_store(&moves, 0);
    atomic_store(&turned, false);
    linked->nodes = nodes;
    flow->node_options.nodes = nodes;
    flow->node_options.shards = shards;
    flow->node_options.client_routes = true;
    flow->node_options.on_request = on_request;
    flow->options.client_routes = "link-1";
    flow->options.protocol_version = 4; /* ScyllaDB's: a connection is not refused first */
    flow->options.on_node = on_node;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 100000;
}

static void start(struct linked *linked)
{
    struct flow *flow = &linked->flow;
    flow_start(flow);
    for (uint32_t i = 0; i <= linked->nodes; i++)
        linked->links[i] = relay_start(NULL, node_address(flow->node, i % linked->nodes), node_port(flow->node, i % linked->nodes));
    flow->options.contact_points = relay_contact(linked->links[linked->nodes]);
}

static void route(struct linked *linked, const char *id, uint32_t node, bool tell)
{
    node_client_route(linked->flow.node, id, node, "127.0.0.1", relay_port(linked->links[node]), 1, tell);
}

/* A look-up that has begun holds memory until its thread, for which nobody waits, is through. */
static void end(struct linked *linked)
{
    struct flow *flow = &linked->flow;
    cqlring_session_release(flow->session);
    cqlring_cluster_release(flow->cluster);
    flow_ok(cqlring_runtime_destroy(flow->runtime));
    for (uint32_t i = 0; i <= linked->nodes; i++)
        relay_stop(linked->links[i]);
    node_cluster_stop(flow->node);
    flow->runtime = NULL;
    watch_for(flow, watch_nothing_left, NULL);
    memset(flow, 0, sizeof *flow);
}

/* A node is said to be there, and a connection leads there. */
static bool is_dialled_at(struct flow *flow, void *address)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    cqlring_connection_info connections[64];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX), found = 0;
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        found += strcmp(info.address, address) == 0;
    }
    if (found != 1)
        return false;
    count = cqlring_cluster_connections(flow->cluster, connections, 64);
    for (uint32_t i = 0; i < count && i < 64; i++)
        if (strcmp(connections[i].address, address) == 0)
            return true;
    return false;
}


static void at(struct linked *linked, const char *address)
{
    watch_for(&linked->flow, is_dialled_at, (void *)(uintptr_t)address);
}

static void all_up(struct linked *linked)
{
    watch_for(&linked->flow, watch_all_up, &linked->nodes);
}

/* The links have passed on every connection that the nodes have had. */
static bool no_other_way(struct flow *flow, void *context)
{
    struct linked *linked = context;
    for (uint32_t i = 0; i < linked->nodes; i++) {
        struct node_counters counters;
        node_counters(flow->node, i, &counters);
        if (counters.connections != relay_count(linked->links[i]) + (i == 0 ? relay_count(linked->links[linked->nodes]) : 0))
            return false;
    }
    return true;
}

/* Each node has that many connections. */
static bool has_all_shards(struct flow *flow, void *shards)
{
    const cqlring_node *nodes[NODE_COUNT_MAX];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (info.connections != *(uint32_t *)shards)
            return false;
    }
    return true;
}

static bool has_read(struct flow *flow, void *count)
{
    (void)flow;
    return atomic_load(&readings) >= *(unsigned *)count;
}

/* The topology is read once more, and all of it is over. */
static void read_again(struct linked *linked)
{
    uint32_t before = watch_log_count("topology ");
    node_event_topology(linked->flow.node, NODE_ALL, "NEW_NODE", 0);
    while (watch_log_count("topology ") == before)
        watch_pass(&linked->flow, 5);
}

START_TEST(nodes_with_routes_are_dialled_there_and_nowhere_else)
{
    for (uint32_t shards = 1; shards <= 2; shards++) {
        struct linked linked;
        begin(&linked, NODES, shards);
        start(&linked);
        for (uint32_t i = 0; i < NODES; i++)
            route(&linked, "link-1", i, false);
        node_client_route(linked.flow.node, "another", 1, "127.0.0.99", 1, 1, false);
        flow_open(&linked.flow);
        all_up(&linked);
        watch_for(&linked.flow, has_all_shards, &shards);
        for (uint32_t i = 0; i < NODES; i++)
            at(&linked, relay_contact(linked.links[i]));
        cqlring_prepared *insert = flow_prepare(&linked.flow, FLOW_INSERT);
        for (int64_t k = 0; k < 60; k++)
            flow_ok(ask_prepared(&linked.flow, insert, (cqlring_bytes[]){flow_bigint(k), {"x", 1}}, 2, NULL, NULL, NULL));
        cqlring_prepared_release(insert);
        watch_for(&linked.flow, no_other_way, &linked);
        ck_assert_uint_eq(relay_count(linked.links[NODES]), 1); /* the control connection's */
        ck_assert_uint_eq(atomic_load(&readings), 1);
        ck_assert_uint_eq(watch_log_count("client_routes:"), 0);
        end(&linked);
    }
}
END_TEST

START_TEST(a_change_that_the_server_tells_of_moves_the_node)
{
    struct linked linked;
    begin(&linked, NODES, 1);
    start(&linked);
    for (uint32_t i = 0; i < NODES; i++)
        route(&linked, "link-1", i, false);
    flow_open(&linked.flow);
    all_up(&linked);
    struct relay *fresh = relay_start(NULL, node_address(linked.flow.node, 2), node_port(linked.flow.node, 2)), *old = linked.links[2];
    uint32_t others[2] = {relay_count(linked.links[0]), relay_count(linked.links[1])};
    linked.links[2] = fresh;
    route(&linked, "link-1", 2, true);
    at(&linked, relay_contact(fresh));
    ck_assert_uint_eq(atomic_load(&moves), 1);
    ck_assert_uint_eq(relay_count(fresh), 1);
    ck_assert_uint_eq(relay_count(linked.links[0]), others[0]);
    ck_assert_uint_eq(relay_count(linked.links[1]), others[1]);
    ck_assert_uint_eq(atomic_load(&readings), 2);

    /* one of another link is none of ours; several of ours cost one reading */
    node_client_route(linked.flow.node, "another", 2, "127.0.0.99", 1, 1, true);
    watch_pass(&linked.flow, 1500);
    ck_assert_uint_eq(atomic_load(&readings), 2);
    for (int i = 0; i < 20; i++)
        route(&linked, "link-1", 2, true);
    watch_for(&linked.flow, has_read, &(unsigned){3});
    watch_pass(&linked.flow, 1500);
    ck_assert_uint_le(atomic_load(&readings), 4);
    ck_assert_uint_eq(atomic_load(&moves), 1);
    relay_stop(old);
    end(&linked);
}
END_TEST

START_TEST(a_node_without_a_route_is_dialled_as_announced_and_told_once)
{
    struct linked linked;
    begin(&linked, 2, 1);
    start(&linked);
    route(&linked, "link-1", 0, false);
    flow_open(&linked.flow);
    all_up(&linked);
    at(&linked, ask_address(&linked.flow, 1));
    char line[200];
    snprintf(line, sizeof line, "client_routes: there is no route to %s: it is dialled there", ask_address(&linked.flow, 1));
    ck_assert_msg(watch_log_count(line) == 1, "%s", watch_log_text());
    read_again(&linked);
    ck_assert_uint_eq(watch_log_count("client_routes:"), 1);

    /* it gets one, and loses it again */
    route(&linked, "link-1", 1, true);
    at(&linked, relay_contact(linked.links[1]));
    node_client_route(linked.flow.node, "link-1", 1, NULL, 0, 0, true);
    at(&linked, ask_address(&linked.flow, 1));
    ck_assert_uint_eq(watch_log_count(line), 2);
    end(&linked);
}
END_TEST

/* Cassandra is not asked for the event at all; an older ScyllaDB refuses it, and is asked for the others. */
START_TEST(a_server_without_the_table_is_told_once_and_used_as_ever)
{
    for (uint32_t shards = 0; shards <= 1; shards++) {
        struct linked linked;
        begin(&linked, 2, shards);
        linked.flow.node_options.client_routes = false;
        start(&linked);
        flow_open(&linked.flow);
        all_up(&linked);
        read_again(&linked);
        read_again(&linked);
        ck_assert_uint_eq(atomic_load(&readings), 3);
        ck_assert_msg(watch_log_count("client_routes: the server has no such table, nodes are dialled as announced") == 1, "%s", watch_log_text());
        ck_assert_uint_eq(watch_log_count("client_routes:"), 1);
        struct node_counters counters;
        node_counters(linked.flow.node, 0, &counters);
        ck_assert_uint_eq(counters.opcodes[OPCODE_REGISTER], 1 + shards);
        end(&linked);
    }
}
END_TEST

/* Both nodes by one name, which is asked for once a reading; of its addresses the one that is dialled stays, wherever it stands. */
START_TEST(a_name_in_a_route_is_looked_up_by_the_resolver)
{
    struct linked linked;
    begin(&linked, 2, 1);
    start(&linked);
    for (uint32_t i = 0; i < 2; i++)
        node_client_route(linked.flow.node, "link-1", i, "links.example", relay_port(linked.links[i]), 1, false);
    atomic_store(&turned, false);
    unsigned before = atomic_load(&lookups), elsewhere = atomic_load(&on_other_threads);
    flow_open(&linked.flow);
    all_up(&linked);
    for (uint32_t i = 0; i < 2; i++)
        at(&linked, relay_contact(linked.links[i]));
    ck_assert_uint_eq(atomic_load(&lookups), before + 1);
    atomic_store(&turned, true);
    read_again(&linked);
    bool is_caller = linked.flow.threads == CQLRING_THREADS_CALLER;
    ck_assert_uint_eq(atomic_load(&lookups), before + (is_caller ? 1 : 2));
    ck_assert_uint_eq(atomic_load(&on_other_threads), elsewhere + (is_caller ? 1 : 0));
    ck_assert_uint_eq(atomic_load(&moves), 0);
    watch_for(&linked.flow, no_other_way, &linked);

    /* a name that nobody knows takes nothing away */
    node_client_route(linked.flow.node, "link-1", 1, "nowhere.example", 1, 1, true);
    watch_for(&linked.flow, watch_logged, "client_routes: \"nowhere.example\", the way to host id ");
    ck_assert_uint_eq(watch_log_count(": it is dialled as before"), 1);
    watch_pass(&linked.flow, 200);
    ck_assert_uint_eq(atomic_load(&moves), 0);
    end(&linked);
}
END_TEST

START_TEST(a_name_that_nobody_knows_leaves_the_node_where_it_is_announced)
{
    struct linked linked;
    begin(&linked, 2, 1);
    start(&linked);
    route(&linked, "link-1", 0, false);
    node_client_route(linked.flow.node, "link-1", 1, "nowhere.example", 1, 1, false);
    flow_open(&linked.flow);
    all_up(&linked);
    at(&linked, ask_address(&linked.flow, 1));
    ck_assert_msg(watch_log_count("cannot be looked up: it is dialled as announced") == 1, "%s", watch_log_text());
    end(&linked);
}
END_TEST

/* Nothing is announced of them: the clock has them looked up again. */
START_TEST(names_in_routes_are_looked_up_by_the_clock)
{
    struct linked linked;
    begin(&linked, 2, 1);
    linked.flow.options.resolve_interval_us = 20000;
    start(&linked);
    for (uint32_t i = 0; i < 2; i++)
        node_client_route(linked.flow.node, "link-1", i, "links.example", relay_port(linked.links[i]), 1, false);
    flow_open(&linked.flow);
    if (linked.flow.threads != CQLRING_THREADS_CALLER) {
        watch_for(&linked.flow, has_read, &(unsigned){4});
        ck_assert_uint_eq(atomic_load(&moves), 0);
    } else {
        watch_pass(&linked.flow, 200);
        ck_assert_uint_eq(atomic_load(&readings), 1);
    }
    end(&linked);
}
END_TEST

/* The ports for plain text lead nowhere. The certificate is made out to the name of the route, by which the control connection too
   knows the node when it comes back. */
START_TEST(tl_with_tls_the_tls_port_counts_and_the_name_is_verified)
{
    static cqlring_tls_options tls;
    struct linked linked;
    begin(&linked, 2, 1);
    secure_flow(&linked.flow, "node-wronghost", &tls); /* made out to elsewhere.example */
    start(&linked);
    static char points[64];
    snprintf(points, sizeof points, "elsewhere.example:%u", relay_port(linked.links[2]));
    linked.flow.options.contact_points = points;
    for (uint32_t i = 0; i < 2; i++)
        node_client_route(linked.flow.node, "link-1", i, "elsewhere.example", 1, relay_port(linked.links[i]), false);
    flow_open(&linked.flow);
    all_up(&linked);
    for (uint32_t i = 0; i < 2; i++)
        at(&linked, relay_contact(linked.links[i]));
    relay_stop(linked.links[2]); /* the contact point is gone: only routes are left */
    linked.links[2] = relay_start(NULL, node_address(linked.flow.node, 0), node_port(linked.flow.node, 0));
    watch_for(&linked.flow, has_read, &(unsigned){2});
    ck_assert_uint_eq(watch_log_count("no node takes the control connection"), 0);
    end(&linked);
}
END_TEST

START_TEST(of_two_routes_that_of_the_first_id_counts)
{
    struct linked linked;
    begin(&linked, 2, 1);
    linked.flow.options.client_routes = " o'brien , link-1";
    start(&linked);
    for (uint32_t i = 0; i < 2; i++)
        route(&linked, "o'brien", i, false);
    node_client_route(linked.flow.node, "link-1", 1, "127.0.0.99", 1, 1, false);
    flow_open(&linked.flow);
    all_up(&linked);
    watch_for(&linked.flow, no_other_way, &linked);
    size_t size = cqlring_cluster_options_text(linked.flow.cluster, NULL, 0);
    char *text = malloc(size + 1);
    cqlring_cluster_options_text(linked.flow.cluster, text, size + 1);
    ck_assert_ptr_nonnull(strstr(text, "cluster.client_routes = o'brien, link-1\n"));
    ck_assert_ptr_nonnull(strstr(text, "cluster.shard_aware_port = no\n"));
    free(text);
    end(&linked);
}
END_TEST

START_TEST(rows_that_cannot_be_used_are_refused_each_with_its_reason)
{
    static const struct {
        const char *id, *address, *why;
        int32_t port;
    } bad[] = {{"a", "127.0.0.1", "its port is not 1 to 65535", 0},      {"b", "127.0.0.1", "its port is not 1 to 65535", 65536},
               {"c", "127.0.0.1", "its port is not 1 to 65535", -1},     {"d", "", "its address is empty", 9042},
               {"e", "/tmp/socket", "its address is neither", 9042},     {"f", "127.0.0.1:9042", "its address is neither", 9042},
               {"g", "two words", "its address is neither", 9042}};
    enum { BAD = sizeof bad / sizeof bad[0] };
    struct linked linked;
    begin(&linked, 2, 1);
    linked.flow.options.client_routes = "a,b,c,d,e,f,g,link-1";
    start(&linked);
    for (uint32_t i = 0; i < 2; i++)
        route(&linked, "link-1", i, false);
    node_client_route(linked.flow.node, "link-1", NODE_ALL, "127.0.0.99", 9042, 9042, false);
    for (uint32_t i = 0; i < BAD; i++)
        node_client_route(linked.flow.node, bad[i].id, 1, bad[i].address, bad[i].port, 9042, false);
    flow_open(&linked.flow);
    all_up(&linked);
    watch_for(&linked.flow, no_other_way, &linked);
    uint32_t refused = watch_log_count("is not used: ");
    ck_assert_msg(refused == BAD + 1, "%u: %s", refused, watch_log_text());
    for (uint32_t i = 0; i < BAD; i++)
        ck_assert_msg(watch_log_count(bad[i].why) >= 1, "%s: %s", bad[i].why, watch_log_text());
    ck_assert_uint_eq(watch_log_count("the row of host id abcdef00-0000-0000-0000-000000000000 is not used: no node has it"), 1);

    /* nor do they take away what is known */
    node_client_route(linked.flow.node, "link-1", 1, "", 9042, 9042, true);
    watch_for(&linked.flow, watch_logged, "its address is empty; what was known of it stays");
    watch_pass(&linked.flow, 200);
    ck_assert_uint_eq(atomic_load(&moves), 0);
    ck_assert_uint_eq(watch_log_count("no node has it"), 1);
    end(&linked);
}
END_TEST

static bool translate(const cqlring_node_info *node, char *address, size_t size, void *context)
{
    struct linked *linked = context;
    if (strcmp(node->address, relay_contact(linked->links[1])) != 0)
        return false; /* as the route has it */
    snprintf(address, size, "%s", ask_address(&linked->flow, 1));
    return true;
}

/* It is told of the route's place, not of the announced one, and has the last word. */
START_TEST(translate_address_is_asked_about_the_place_of_a_route)
{
    struct linked linked;
    begin(&linked, 2, 1);
    linked.flow.options.translate_address = translate;
    linked.flow.options.translate_context = &linked;
    start(&linked);
    for (uint32_t i = 0; i < 2; i++)
        route(&linked, "link-1", i, false);
    flow_open(&linked.flow);
    all_up(&linked);
    at(&linked, relay_contact(linked.links[0]));
    at(&linked, ask_address(&linked.flow, 1));
    ck_assert_uint_eq(relay_count(linked.links[1]), 0);
    end(&linked);
}
END_TEST

START_TEST(ids_that_are_none_are_refused_at_the_open)
{
    static char many[300], longest[300];
    memset(longest, 'x', 256);
    for (int i = 0; i < 65; i++)
        strcat(many, i > 0 ? ",a" : "a");
    const struct {
        const char *ids, *message;
    } bad[] = {{"", "client_routes is empty: give connection ids"},
               {" \t", "client_routes is empty: give connection ids"},
               {"a,,b", "client_routes: connection id 2, \"\": it is empty"},
               {"a,", "client_routes: connection id 2, \"\": it is empty"},
               {"a\x01", "it has a control character"},
               {longest, "it is longer than 255 bytes"},
               {many, "client_routes: 65 connection ids, more than 64"}};
    struct flow flow;
    flow_init(&flow);
    flow_start(&flow);
    flow_open(&flow);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cqlring_cluster_options options = {.struct_size = sizeof options, .client_routes = bad[i].ids};
        cqlring_cluster *cluster = NULL;
        cqlring_error error;
        ck_assert_int_eq(cqlring_cluster_open_sync(flow.runtime, &options, &cluster, &error), CQLRING_INVALID);
        ck_assert_msg(strstr(error.message, bad[i].message) != NULL, "%s", error.message);
    }
    flow_close(&flow);
}
END_TEST

int main(void)
{
    if (!secure_make())
        return 1;
    Suite *suite = suite_create("client_routes");
    TCase *tcase = tcase_create("client_routes");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, nodes_with_routes_are_dialled_there_and_nowhere_else);
    tcase_add_test(tcase, a_change_that_the_server_tells_of_moves_the_node);
    tcase_add_test(tcase, a_node_without_a_route_is_dialled_as_announced_and_told_once);
    tcase_add_test(tcase, a_server_without_the_table_is_told_once_and_used_as_ever);
    tcase_add_test(tcase, a_name_in_a_route_is_looked_up_by_the_resolver);
    tcase_add_test(tcase, a_name_that_nobody_knows_leaves_the_node_where_it_is_announced);
    tcase_add_test(tcase, names_in_routes_are_looked_up_by_the_clock);
    tcase_add_test(tcase, tl_with_tls_the_tls_port_counts_and_the_name_is_verified);
    tcase_add_test(tcase, of_two_routes_that_of_the_first_id_counts);
    tcase_add_test(tcase, rows_that_cannot_be_used_are_refused_each_with_its_reason);
    tcase_add_test(tcase, translate_address_is_asked_about_the_place_of_a_route);
    tcase_add_test(tcase, ids_that_are_none_are_refused_at_the_open);
    suite_add_tcase(suite, tcase);
    int status = flow_main(suite);
    secure_remove();
    return status;
}
