/* SPDX-License-Identifier: Apache-2.0 */

/* on_node: what the application is told of nodes, in which order, and that it ends with the close. translate_address: where it
   wants them dialled. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "relay.h"
#include "watch.h"

enum { EVENTS_MAX = 256 };

static struct told {
    pthread_mutex_t lock;
    uint32_t count;
    cqlring_node_event events[EVENTS_MAX];
    char addresses[EVENTS_MAX][64];
    cqlring_cluster *close; /* closed from the callback at the first event but ADDED; NULL: not */
    bool inside;            /* two threads at once: never */
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_node(const cqlring_node *node, cqlring_node_event event, void *context)
{
    struct told *all = context;
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    ck_assert_int_eq(cqlring_execute_sync(NULL, NULL, NULL), CQLRING_INVALID);
    pthread_mutex_lock(&all->lock);
    ck_assert(!all->inside);
    all->inside = true;
    if (all->count < EVENTS_MAX) {
        all->events[all->count] = event;
        snprintf(all->addresses[all->count++], 64, "%s", info.address);
    }
    if (all->close != NULL && event != CQLRING_NODE_ADDED) {
        cqlring_cluster_close(all->close, 0, NULL, NULL);
        all->close = NULL;
    }
    all->inside = false;
    pthread_mutex_unlock(&all->lock);
}

static void listen(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    told.count = 0;
    told.close = NULL;
    flow->node_options.nodes = nodes;
    flow->options.on_node = on_node;
    flow->options.on_node_context = &told;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 50000;
    flow_start(flow);
}

static uint32_t told_count(struct flow *flow, uint32_t node, cqlring_node_event event)
{
    uint32_t count = 0;
    pthread_mutex_lock(&told.lock);
    for (uint32_t i = 0; i < told.count; i++)
        count += told.events[i] == event && (node == NODE_ALL || strcmp(told.addresses[i], ask_address(flow, node)) == 0);
    pthread_mutex_unlock(&told.lock);
    return count;
}

struct wanted {
    uint32_t node, count;
    cqlring_node_event event;
};

static bool is_told(struct flow *flow, void *context)
{
    const struct wanted *wanted = context;
    return told_count(flow, wanted->node, wanted->event) >= wanted->count;
}

#define await(flow, node, event, count) watch_for(flow, is_told, &((struct wanted){node, count, event}))

/* Each node's events, taken alone, are: added, up, (down, up)…, and removed only when down. */
static void ck_assert_order(struct flow *flow)
{
    for (uint32_t node = 0; node < flow->node_options.nodes; node++) {
        bool there = false, up = false;
        for (uint32_t i = 0; i < told.count; i++) {
            if (strcmp(told.addresses[i], ask_address(flow, node)) != 0)
                continue;
            switch (told.events[i]) {
            case CQLRING_NODE_ADDED: ck_assert(!there); there = true; break;
            case CQLRING_NODE_UP: ck_assert(there && !up); up = true; break;
            case CQLRING_NODE_DOWN: ck_assert(there && up); up = false; break;
            case CQLRING_NODE_REMOVED: ck_assert(there && !up); there = false; break;
            case CQLRING_NODE_MOVED: ck_abort_msg("nothing moves here"); break;
            }
        }
    }
}

START_TEST(nodes_that_come_and_go_are_told_once_each_and_in_order)
{
    struct flow flow;
    listen(&flow, 3);
    flow_open(&flow);
    await(&flow, NODE_ALL, CQLRING_NODE_UP, 3);
    ck_assert_uint_eq(told_count(&flow, NODE_ALL, CQLRING_NODE_ADDED), 3);
    node_down(flow.node, 1, true);
    await(&flow, 1, CQLRING_NODE_DOWN, 1);
    node_up(flow.node, 1, true);
    await(&flow, 1, CQLRING_NODE_UP, 2);
    node_leave(flow.node, 2, true);
    await(&flow, 2, CQLRING_NODE_REMOVED, 1);
    ck_assert_uint_eq(told_count(&flow, 2, CQLRING_NODE_DOWN), 1);
    node_join(flow.node, 2, true);
    await(&flow, 2, CQLRING_NODE_UP, 2);
    ck_assert_uint_eq(told_count(&flow, 2, CQLRING_NODE_ADDED), 2);
    ck_assert_order(&flow);

    cqlring_future *closed = NULL;
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
    flow_ok(cqlring_future_wait(closed, -1, NULL));
    cqlring_future_release(closed);
    uint32_t count = told.count;
    node_down(flow.node, 0, true);
    watch_pass(&flow, 50);
    ck_assert_uint_eq(told.count, count);
    flow_close(&flow);
    ck_assert_uint_eq(told.count, count);
}
END_TEST

START_TEST(a_false_event_of_the_server_is_told_to_nobody)
{
    struct flow flow;
    listen(&flow, 2);
    flow_open(&flow);
    await(&flow, NODE_ALL, CQLRING_NODE_UP, 2);
    node_event_status(flow.node, NODE_ALL, "DOWN", 1);
    node_event_status(flow.node, NODE_ALL, "UP", 1);
    for (int i = 0; i < 10; i++)
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    ck_assert_uint_eq(told_count(&flow, NODE_ALL, CQLRING_NODE_DOWN), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_close_from_the_callback_is_the_last_thing_it_hears)
{
    struct flow flow;
    listen(&flow, 3);
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    flow.options.contact_points = node_address(flow.node, 0);
    flow.options.port = node_port(flow.node, 0);
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &flow.options, &flow.cluster, NULL));
    told.close = flow.cluster;
    cqlring_future *opened = NULL;
    flow_ok(cqlring_session_open(flow.cluster, NULL, &opened, NULL));
    cqlring_status status = cqlring_future_wait(opened, -1, NULL);
    ck_assert(status == CQLRING_OK || status == CQLRING_CLOSED);
    cqlring_future_release(opened);
    await(&flow, NODE_ALL, CQLRING_NODE_UP, 1);
    cqlring_future *closed = NULL;
    flow_ok(cqlring_cluster_close(flow.cluster, 0, &closed, NULL));
    flow_ok(cqlring_future_wait(closed, -1, NULL));
    cqlring_future_release(closed);
    ck_assert_uint_eq(told_count(&flow, NODE_ALL, CQLRING_NODE_UP), 1);
    ck_assert_uint_eq(told_count(&flow, NODE_ALL, CQLRING_NODE_DOWN), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(several_lanes_tell_of_a_node_once)
{
    struct flow flow;
    listen(&flow, 2);
    if (flow.threads != CQLRING_THREADS_CALLER)
        flow.runtime_options.lanes = 3;
    flow_open(&flow);
    for (int i = 0; i < 5; i++) {
        await(&flow, 1, CQLRING_NODE_UP, (uint32_t)i + 1);
        node_down(flow.node, 1, false);
        await(&flow, 1, CQLRING_NODE_DOWN, (uint32_t)i + 1);
        node_up(flow.node, 1, false);
    }
    pthread_mutex_lock(&told.lock);
    ck_assert_order(&flow);
    pthread_mutex_unlock(&told.lock);
    flow_close(&flow);
}
END_TEST

/* ---- translation ---- */

static struct translation {
    struct flow *flow;
    const char *to;     /* of node 1; NULL: nothing is translated */
    uint32_t asked;
} translation;

static bool translate(const cqlring_node_info *node, char *address, size_t size, void *context)
{
    struct translation *all = context;
    all->asked++;
    ck_assert_str_eq(node->datacenter, "datacenter1");
    ck_assert_str_ne(node->rack, "");
    if (all->to == NULL || strcmp(node->address, ask_address(all->flow, 1)) != 0)
        return false;
    ck_assert_uint_ge(size, 64);
    snprintf(address, size, "%s", all->to);
    return true;
}

static void translating(struct flow *flow, const char *to)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.nodes = 2;
    flow->options.translate_address = translate;
    flow->options.translate_context = &translation;
    flow_start(flow);
    translation = (struct translation){.flow = flow, .to = to};
}

START_TEST(nodes_are_dialled_where_the_application_says)
{
    struct flow flow;
    translating(&flow, NULL);
    flow.options.reconnect_min_us = flow.options.reconnect_max_us = 60000000; /* only an event brings it back */
    struct relay *relay = relay_start(NULL, node_address(flow.node, 1), node_port(flow.node, 1));
    translation.to = relay_contact(relay);
    flow_open(&flow);
    watch_for(&flow, watch_all_up, &flow.node_options.nodes);
    ck_assert_uint_eq(relay_count(relay), 1);
    const cqlring_node *nodes[2];
    cqlring_node_info info;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 2), 2);
    cqlring_node_describe(nodes[1], &info);
    ck_assert_str_eq(info.address, relay_contact(relay));
    cqlring_execution how = {.struct_size = sizeof how, .target = nodes[1]};
    flow_ok(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, NULL));

    /* events name it as the cluster knows it */
    node_down(flow.node, 1, false);
    watch_for(&flow, watch_logged, "lost the connection");
    node_up(flow.node, 1, true);
    watch_for(&flow, watch_all_up, &flow.node_options.nodes);
    ck_assert_uint_ge(relay_count(relay), 2);
    relay_stop(relay);
    flow_close(&flow);
}
END_TEST

START_TEST(a_translation_that_is_no_address_is_told_and_not_used)
{
    static const char *const bad[] = {"", "some.name:9042", "127.0.0.1:9042,127.0.0.2", "127.0.0.1:99999", "[::1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct flow flow;
        translating(&flow, bad[i]);
        flow_open(&flow);
        watch_for(&flow, watch_all_up, &flow.node_options.nodes);
        ck_assert_uint_ge(translation.asked, 1);
        ck_assert_msg(watch_log_count("which is no literal address") >= 1, "\"%s\": %s", bad[i], watch_log_text());
        flow_close(&flow);
    }
}
END_TEST

/* Private links: all nodes are reached at one address, on ports that nobody can guess from theirs. The id of a node tells them
   apart, and the map may change while it runs. */
enum { BEHIND = 3 };
static struct routes {
    pthread_mutex_t lock;
    uint8_t ids[BEHIND][16];
    const char *to[BEHIND];
} routes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool translate_by_id(const cqlring_node_info *node, char *address, size_t size, void *context)
{
    struct routes *all = context;
    bool found = false;
    pthread_mutex_lock(&all->lock);
    for (uint32_t i = 0; i < BEHIND && !found; i++) {
        found = memcmp(all->ids[i], node->host_id, 16) == 0;
        if (found)
            snprintf(address, size, "%s", all->to[i]);
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

static bool moved_has_connections(struct flow *flow, void *relay)
{
    (void)flow;
    return relay_count(relay) > 0;
}

START_TEST(nodes_behind_one_address_are_told_apart_by_their_id)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options.nodes = BEHIND;
    flow_start(&flow);
    flow_open(&flow); /* an operator's view, from inside: who is who */
    const cqlring_node *nodes[BEHIND];
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, BEHIND), BEHIND);
    struct relay *relays[BEHIND + 1];
    for (uint32_t i = 0; i < BEHIND; i++) {
        relays[i] = relay_start(NULL, node_address(flow.node, i), node_port(flow.node, i));
        routes.to[i] = relay_contact(relays[i]);
        for (uint32_t j = 0; j < BEHIND; j++) {
            cqlring_node_info info;
            cqlring_node_describe(nodes[j], &info);
            if (strcmp(info.address, ask_address(&flow, i)) == 0)
                memcpy(routes.ids[i], info.host_id, 16);
        }
    }
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);

    cqlring_cluster_options options = flow.options;
    options.contact_points = routes.to[0];
    options.translate_address = translate_by_id;
    options.translate_context = &routes;
    options.reconnect_min_us = 10000;
    options.reconnect_max_us = 100000;
    flow_ok(cqlring_cluster_open_sync(flow.runtime, &options, &flow.cluster, NULL));
    flow_ok(cqlring_session_open_sync(flow.cluster, NULL, &flow.session, NULL));
    watch_for(&flow, watch_all_up, &(uint32_t){BEHIND});
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, BEHIND), BEHIND);
    for (uint32_t i = 0; i < BEHIND; i++)
        ck_assert_uint_ge(relay_count(relays[i]), 1);
    for (uint32_t i = 0; i < BEHIND; i++) { /* each by its own way */
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        uint32_t who = 0;
        while (who < BEHIND && memcmp(routes.ids[who], info.host_id, 16) != 0)
            who++;
        ck_assert_uint_lt(who, BEHIND);
        ck_assert_str_eq(info.address, routes.to[who]);
        struct node_counters before, after;
        node_counters(flow.node, who, &before);
        cqlring_execution how = {.struct_size = sizeof how, .target = nodes[i]};
        flow_ok(ask_text(&flow, "SELECT key FROM system.local", NULL, 0, &how, NULL, NULL));
        node_counters(flow.node, who, &after);
        ck_assert_uint_gt(after.opcodes[OPCODE_QUERY], before.opcodes[OPCODE_QUERY]);
    }

    /* the way to the last one changes: whatever makes the topology be read has it dialled anew */
    relays[BEHIND] = relay_start(NULL, node_address(flow.node, BEHIND - 1), node_port(flow.node, BEHIND - 1));
    pthread_mutex_lock(&routes.lock);
    routes.to[BEHIND - 1] = relay_contact(relays[BEHIND]);
    pthread_mutex_unlock(&routes.lock);
    relay_cut(relays[BEHIND - 1]);
    node_event_topology(flow.node, NODE_ALL, "NEW_NODE", BEHIND - 1);
    watch_for(&flow, moved_has_connections, relays[BEHIND]);
    watch_for(&flow, watch_all_up, &(uint32_t){BEHIND});
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow.session = NULL;
    flow.cluster = NULL;
    for (uint32_t i = 0; i <= BEHIND; i++)
        relay_stop(relays[i]);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listener");
    TCase *tcase = tcase_create("listener");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, nodes_that_come_and_go_are_told_once_each_and_in_order);
    tcase_add_test(tcase, a_false_event_of_the_server_is_told_to_nobody);
    tcase_add_test(tcase, a_close_from_the_callback_is_the_last_thing_it_hears);
    tcase_add_test(tcase, several_lanes_tell_of_a_node_once);
    tcase_add_test(tcase, nodes_are_dialled_where_the_application_says);
    tcase_add_test(tcase, nodes_behind_one_address_are_told_apart_by_their_id);
    tcase_add_test(tcase, a_translation_that_is_no_address_is_told_and_not_used);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
