/* SPDX-License-Identifier: Apache-2.0 */

/* Contact points that are names: this program brings its own resolver, which every lookup of the library ends in. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "resolver.h"
#include "secure.h"
#include "watch.h"

static atomic_uint first_host = 1, host_count = 2; /* 127.0.0.first_host, … */

/* A resolver that does not answer: whoever asks waits for it. */
static pthread_mutex_t stuck_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stuck_over = PTHREAD_COND_INITIALIZER;
static bool stuck;
static uint32_t stuck_count;

static void stick(bool on)
{
    pthread_mutex_lock(&stuck_lock);
    stuck = on;
    pthread_cond_broadcast(&stuck_over);
    pthread_mutex_unlock(&stuck_lock);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    (void)name;
    (void)hints;
    resolver_count();
    pthread_mutex_lock(&stuck_lock);
    stuck_count++;
    while (stuck)
        pthread_cond_wait(&stuck_over, &stuck_lock);
    stuck_count--;
    pthread_mutex_unlock(&stuck_lock);
    *found = NULL;
    for (unsigned i = atomic_load(&host_count); i-- > 0;)
        resolver_add(found, 0x7F000000 + atomic_load(&first_host) + i, service);
    return *found != NULL ? 0 : EAI_NONAME;
}

static void start(struct flow *flow, uint32_t nodes)
{
    flow_init(flow);
    watch_log(flow);
    atomic_store(&first_host, 1);
    atomic_store(&host_count, nodes);
    flow->node_options.nodes = nodes;
    flow->options.reconnect_min_us = 10000;
    flow->options.reconnect_max_us = 100000;
}

static void open_by_name(struct flow *flow)
{
    static char points[64];
    snprintf(points, sizeof points, "elsewhere.example:%u", node_port(flow->node, 0));
    flow->options.contact_points = points;
    flow_open(flow);
}

/* A look-up that has begun holds memory until its thread, for which nobody waits, is through. */
static void close_names(struct flow *flow)
{
    cqlring_session_release(flow->session);
    cqlring_cluster_release(flow->cluster);
    flow_ok(cqlring_runtime_destroy(flow->runtime));
    node_cluster_stop(flow->node);
    flow->runtime = NULL;
    watch_for(flow, watch_nothing_left, NULL);
    memset(flow, 0, sizeof *flow);
}

/* One certificate for the name, that all nodes show: each is known by it, not only the one that was dialled first. */
START_TEST(tl_all_addresses_of_a_name_are_verified_by_it)
{
    static cqlring_tls_options tls;
    struct flow flow;
    start(&flow, 3);
    secure_flow(&flow, "node-wronghost", &tls); /* made out to elsewhere.example */
    flow_start(&flow);
    open_by_name(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    for (int64_t k = 0; k < 30; k++) {
        cqlring_bytes values[2] = {flow_bigint(k), {"x", 1}};
        flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    }
    cqlring_prepared_release(insert);
    close_names(&flow);
}
END_TEST

/* rc_21: the first address of a name is dead, the second one answers. */
START_TEST(rc_21_a_dead_address_of_a_name_leaves_the_others)
{
    struct flow flow;
    start(&flow, 2);
    flow_start(&flow);
    node_down(flow.node, 0, false);
    flow.options.connect_timeout_us = 2000000;
    open_by_name(&flow);
    flow_ok(ask_text(&flow, "SELECT key FROM system.local", NULL, 0, NULL, NULL, NULL));
    node_up(flow.node, 0, false);
    watch_for(&flow, watch_all_up, &(uint32_t){2});
    close_names(&flow);
}
END_TEST

static bool has_looked(struct flow *flow, void *before)
{
    (void)flow;
    return atomic_load(&lookups) > *(unsigned *)before;
}

/* rc_02: every node is away: the name is looked up again, which may lead elsewhere by then. (In caller mode names are looked up once.) */
START_TEST(rc_02_names_are_looked_up_again_when_all_nodes_are_away)
{
    struct flow flow;
    start(&flow, 1);
    flow_start(&flow);
    open_by_name(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER) {
        unsigned before = atomic_load(&lookups);
        node_down(flow.node, 0, false);
        watch_for(&flow, has_looked, &before);
        node_up(flow.node, 0, false);
    }
    ask_until_served(&flow);
    close_names(&flow);
}
END_TEST

/* In caller mode, where the open itself asks, a resolver's time-out is its own. */
START_TEST(a_name_without_an_answer_is_given_up_after_its_time_out)
{
    struct flow flow;
    start(&flow, 1);
    if (flow.threads != CQLRING_THREADS_CALLER) {
        stick(true);
        flow_start(&flow);
        flow.options.resolve_timeout_us = 50000;
        flow.options.contact_points = "slow.example, slower.example:1";
        cqlring_error error;
        ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_UNREACHABLE);
        ck_assert_msg(strstr(error.message, "contact point 1, \"slow.example\": no answer in 50 ms") != NULL, "%s", error.message);
        ck_assert_msg(strstr(error.message, "contact point 2, \"slower.example\": no answer in 50 ms") != NULL, "%s", error.message);
        /* the resolver comes back when everything is gone */
        flow_ok(cqlring_runtime_destroy(flow.runtime));
        flow.runtime = NULL;
        node_cluster_stop(flow.node);
        flow.node = NULL;
        stick(false);
        watch_for(&flow, watch_nothing_left, NULL);
    } else {
        flow_start(&flow);
    }
    flow_close(&flow);
}
END_TEST

static bool has_control(struct flow *flow, void *unused)
{
    (void)unused;
    struct node_conn_info conns[16];
    uint32_t count = node_conns(flow->node, 0, conns, 16);
    bool found = false;
    for (uint32_t i = 0; i < count && i < 16; i++)
        found = found || conns[i].registered;
    return found;
}

START_TEST(a_name_without_an_answer_keeps_nobody_from_the_others)
{
    struct flow flow;
    start(&flow, 1);
    flow_start(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER)
        stick(true);
    static char points[64];
    snprintf(points, sizeof points, "slow.example:1, 127.0.0.1:%u", node_port(flow.node, 0));
    flow.options.contact_points = points;
    flow.options.resolve_timeout_us = 50000;
    flow_open(&flow);
    /* nor from the nodes that are known; and rounds that go by while the resolver thinks do not ask it again */
    for (int i = 0; i < 3; i++) {
        node_down(flow.node, 0, false);
        watch_for(&flow, watch_logged, "no node takes the control connection");
        node_up(flow.node, 0, false);
        watch_for(&flow, has_control, NULL);
        watch_for(&flow, watch_all_up, &(uint32_t){1});
        watch_log_clear();
    }
    if (flow.threads != CQLRING_THREADS_CALLER) {
        pthread_mutex_lock(&stuck_lock);
        ck_assert_uint_eq(stuck_count, 1);
        pthread_mutex_unlock(&stuck_lock);
    }
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow.session = NULL;
    flow.cluster = NULL;
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    flow.runtime = NULL;
    node_cluster_stop(flow.node);
    flow.node = NULL;
    stick(false);
    watch_for(&flow, watch_nothing_left, NULL);
    flow_close(&flow);
}
END_TEST

/* Where the name leads to n nodes from 127.0.0.first on. */
static void name_leads_to(unsigned first, unsigned n)
{
    atomic_store(&first_host, first);
    atomic_store(&host_count, n);
}

static void lookups_pass(struct flow *flow, unsigned count)
{
    unsigned before = atomic_load(&lookups) + count - 1;
    watch_for(flow, has_looked, &before);
}

/* rc_02, all of it: the only node comes back elsewhere, and nobody is left to tell: the name leads there. It is the same node. */
START_TEST(rc_02_a_cluster_that_moved_as_a_whole_is_found_by_its_name)
{
    struct flow flow;
    start(&flow, 1);
    flow_start(&flow);
    open_by_name(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER) {
        const cqlring_node *before = NULL, *after = NULL;
        ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, &before, 1), 1);
        name_leads_to(77, 1);
        node_move(flow.node, 0, "127.0.0.77", 0);
        cqlring_node_info info;
        do {
            watch_pass(&flow, 2);
            cqlring_cluster_nodes(flow.cluster, &after, 1);
            cqlring_node_describe(after, &info);
        } while (strncmp(info.address, "127.0.0.77:", 11) != 0 || !info.is_up);
        ck_assert_ptr_eq(before, after);
    }
    ask_until_served(&flow);
    close_names(&flow);
}
END_TEST

/* On the resolver's thread, again and again; said when they lead elsewhere, and only then. */
START_TEST(names_are_looked_up_again_by_the_clock)
{
    struct flow flow;
    start(&flow, 2);
    flow_start(&flow);
    flow.options.resolve_interval_us = 20000;
    unsigned elsewhere = atomic_load(&on_other_threads);
    open_by_name(&flow);
    if (flow.threads == CQLRING_THREADS_CALLER) { /* it would block the caller: at the open only */
        unsigned before = atomic_load(&lookups);
        watch_pass(&flow, 100);
        ck_assert_uint_eq(atomic_load(&lookups), before);
        close_names(&flow);
        return;
    }
    lookups_pass(&flow, 3);
    ck_assert_uint_eq(watch_log_count("lead elsewhere now"), 0);
    name_leads_to(1, 1);
    watch_for(&flow, watch_logged, "lead elsewhere now: 127.0.0.1:");
    lookups_pass(&flow, 3);
    ck_assert_uint_eq(watch_log_count("lead elsewhere now"), 1);
    name_leads_to(1, 2);
    watch_for(&flow, watch_logged, ", 127.0.0.2:");
    lookups_pass(&flow, 3);
    ck_assert_uint_eq(watch_log_count("lead elsewhere now"), 2);
    ck_assert_uint_eq(atomic_load(&on_other_threads), elsewhere);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    close_names(&flow);
}
END_TEST

/* What was learned while all was well counts when the names cannot be looked up in the hour of need. */
START_TEST(where_names_led_is_where_the_control_connection_goes_when_they_cannot_be_looked_up)
{
    struct flow flow;
    start(&flow, 1);
    flow_start(&flow);
    flow.options.resolve_interval_us = 20000;
    open_by_name(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER) {
        name_leads_to(77, 1);
        watch_for(&flow, watch_logged, "lead elsewhere now: 127.0.0.77:");
        name_leads_to(77, 0);
        watch_for(&flow, watch_logged, "contact points cannot be looked up, what is known of them stays: contact point 1, \"elsewhere.example\"");
        node_move(flow.node, 0, "127.0.0.77", 0);
        watch_for(&flow, watch_logged, "has moved to 127.0.0.77:");
    }
    ask_until_served(&flow);
    close_names(&flow);
}
END_TEST

/* The name's new address is given to what is found there: certificates are made out to it. */
START_TEST(tl_a_node_that_moved_is_verified_by_the_name_that_leads_there)
{
    static cqlring_tls_options tls;
    struct flow flow;
    start(&flow, 3);
    secure_flow(&flow, "node-wronghost", &tls); /* made out to elsewhere.example */
    flow_start(&flow);
    flow.options.resolve_interval_us = 20000;
    open_by_name(&flow);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    if (flow.threads != CQLRING_THREADS_CALLER) {
        name_leads_to(1, 4);
        watch_for(&flow, watch_logged, "127.0.0.4:");
        node_move(flow.node, 2, "127.0.0.4", 0); /* nobody tells */
        name_leads_to(1, 5);                     /* but what names lead to changes once more, so it is looked at again */
        watch_for(&flow, watch_logged, "has moved to 127.0.0.4:");
        watch_for(&flow, watch_all_up, &(uint32_t){3});
    }
    close_names(&flow);
}
END_TEST

int main(void)
{
    if (!secure_make())
        return 1;
    Suite *suite = suite_create("names");
    TCase *tcase = tcase_create("names");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tl_all_addresses_of_a_name_are_verified_by_it);
    tcase_add_test(tcase, rc_21_a_dead_address_of_a_name_leaves_the_others);
    tcase_add_test(tcase, a_name_without_an_answer_is_given_up_after_its_time_out);
    tcase_add_test(tcase, a_name_without_an_answer_keeps_nobody_from_the_others);
    tcase_add_test(tcase, rc_02_names_are_looked_up_again_when_all_nodes_are_away);
    tcase_add_test(tcase, rc_02_a_cluster_that_moved_as_a_whole_is_found_by_its_name);
    tcase_add_test(tcase, names_are_looked_up_again_by_the_clock);
    tcase_add_test(tcase, where_names_led_is_where_the_control_connection_goes_when_they_cannot_be_looked_up);
    tcase_add_test(tcase, tl_a_node_that_moved_is_verified_by_the_name_that_leads_there);
    suite_add_tcase(suite, tcase);
    int status = flow_main(suite);
    secure_remove();
    return status;
}
