/* SPDX-License-Identifier: Apache-2.0 */

/* The control connection of a cluster, on lane 0's submitter: finds a node that answers, reads system.local, system.peers_v2 (or
   peers) and the keyspaces, and hands a new topology to every lane. Events ask for another reading after a short wait, so that a
   burst of them costs one. When the connection is lost, the nodes known so far are tried, then the contact points again.

   One state, one timer: what the timer means follows from the state. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/agreement.h"
#include "driver/client_routes.h"
#include "driver/contacts.h"
#include "driver/control_rows.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/listener.h"
#include "driver/lookup.h"
#include "driver/policy.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/schema.h"
#include "driver/session.h"
#include "driver/trace.h"

enum control_state {
    CONTROL_IDLE,
    CONTROL_AWAIT_ADDRESSES,  /* names are being resolved */
    CONTROL_AWAIT_CONNECTION, /* candidate `at` is being connected */
    CONTROL_AWAIT_LOCAL,
    CONTROL_AWAIT_PEERS,
    CONTROL_AWAIT_ROUTES,     /* client_routes only, as the next */
    CONTROL_AWAIT_NAMES,      /* of routes, from the resolver: the timer is the end of patience */
    CONTROL_AWAIT_TABLETS,    /* ScyllaDB only */
    CONTROL_AWAIT_KEYSPACES,
    CONTROL_UP,               /* nothing under way; the timer, if armed, is the next reading */
    CONTROL_AWAIT_RETRY,      /* all candidates failed: the timer is the next round */
    CONTROL_STOPPED
};

enum { DEBOUNCE_US = 1000000, AGAIN_US = 2000000, AGAIN_MAX = 5, EMPTY_PEERS_US = 1000000, DOUBLES_US = 30000000, QUERY_TIMEOUT_US = 12000000 };

struct control {
    struct cqlring_cluster *cluster;
    struct lane *lane;
    enum control_state state;
    struct timer timer;
    struct pool_link link;
    struct handshake_config config;
    struct lookup lookup;
    struct resolution first;      /* caller mode: names are resolved in open only (decision 17), so this is kept */
    bool has_first;
    struct resolved_address *candidates;
    uint32_t candidate_count, at;
    uint8_t version_try;          /* the candidate closed without a word: a lower version with it, once; 0: the cluster's */
    uint32_t rounds;              /* rounds over all candidates that failed, since the last success */
    char failures[400];
    cqlring_status failure_status;
    int32_t failure_code;         /* the last one's, of the server; 0: none */
    char failure_node[64];
    bool failures_differ;
    bool old_peers;               /* no system.peers_v2 here */
    bool again;                   /* something happened while reading */
    uint32_t again_left;          /* more readings for a node that does not show up yet (RC-14) */
    bool peers_were_empty;        /* once is not believed (RC-23) */
    cqlring_result *local, *peers, *tablets;
};

static void start_round(struct control *control);
static void connect_candidate(struct control *control);

static void set_state(struct control *control, enum control_state state)
{
    assert(control->state != CONTROL_STOPPED);
    control->state = state;
}

static void results_drop(struct control *control)
{
    cqlring_result_release(control->local);
    cqlring_result_release(control->peers);
    cqlring_result_release(control->tablets);
    control->local = control->peers = control->tablets = NULL;
}

static void note_failure(struct control *control, cqlring_status status, const char *text)
{
    size_t length = strlen(control->failures);
    if (length + 2 < sizeof control->failures)
        snprintf(control->failures + length, sizeof control->failures - length, "%s%s", length > 0 ? "; " : "", text);
    control->failures_differ = control->failures_differ || (control->failure_status != CQLRING_OK && control->failure_status != status);
    control->failure_status = status;
    control->failure_code = 0;
    control->failure_node[0] = '\0';
}

/* No candidate is left in this round. */
static void round_failed(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct lane *lane = control->lane;
    if (cluster->opening != NULL) {
        cqlring_status status = control->failures_differ || control->failure_status == CQLRING_LOST || control->failure_status == CQLRING_OK
                                    ? CQLRING_UNREACHABLE
                                    : control->failure_status;
        set_state(control, CONTROL_IDLE);
        struct failure *failure = cqr_failure_make(status, "no contact point can be used: %s", control->failures);
        if (status == control->failure_status && !cqr_failure_is_static(failure)) { /* they all said so: the last one's words stand for it */
            failure->error.server_code = control->failure_code;
            snprintf(failure->error.node, sizeof failure->error.node, "%s", control->failure_node);
        }
        cqr_cluster_opened(cluster, failure);
        return;
    }
    control->rounds++;
    int64_t delay = cqr_reconnect_delay_us(control->rounds, cluster->reconnect_min_us, cluster->reconnect_max_us, cqr_random(&lane->random));
    cqr_log(&lane->runtime->log, CQLRING_LOG_WARN, "no node takes the control connection, again in %s: %s", cqr_duration(delay).text, control->failures);
    set_state(control, CONTROL_AWAIT_RETRY);
    cqr_wheel_arm(&lane->wheel, &control->timer, lane->now_us + delay);
}

static void next_candidate(struct control *control)
{
    control->at++;
    connect_candidate(control);
}

/* The name that it was found by; "" where a literal was given. */
static const char *candidate_name(const struct cqlring_cluster *cluster, const struct resolved_address *candidate)
{
    struct address literal;
    return candidate->point < cluster->point_count && !cqr_address_from_literal(&literal, cluster->points[candidate->point].host, 1)
               ? cluster->points[candidate->point].host
               : cqr_client_routes_name(cluster, &candidate->address);
}

static void connect_candidate(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct lane *lane = control->lane;
    results_drop(control);
    for (; control->at < control->candidate_count; control->at++) {
        struct resolved_address *candidate = &control->candidates[control->at];
        char text[64];
        cqr_address_format(&candidate->address, text);
        control->config = cluster->config;
        control->config.version = control->version_try != 0 ? control->version_try : (uint8_t)atomic_load_explicit(&cluster->version, memory_order_relaxed);
        control->config.register_events = true;
        control->config.register_routes = cluster->client_routes != NULL;
        control->config.driver_config = cluster->report; /* once is enough: the table of clients names each of our connections by client_id */
        struct conn_request request = {.cluster = cluster,
                                       .address = candidate->address,
                                       .text = text,
                                       .tls_name = candidate_name(cluster, candidate),
                                       .config = &control->config,
                                       .in_flight_max = 64,
                                       .frame_size_max = cluster->frame_size_max,
                                       .connect_timeout_us = cluster->connect_timeout_us};
        set_state(control, CONTROL_AWAIT_CONNECTION);
        if (lane->conn_count < lane->conn_max)
            control->link.conn = cqr_conn_create(lane, &control->link, &request);
        if (control->link.conn != NULL) {
            control->link.conn->writer.suspect_after_us = cluster->suspect_after_us;
            return;
        }
        note_failure(control, CQLRING_NO_MEMORY, "out of memory, or connections_max is reached");
    }
    round_failed(control);
}

/* ---- reading ---- */

static void ask(struct control *control, const char *text, own_done done)
{
    if (control->link.conn == NULL || !cqr_own_request(control->lane, control->link.conn, OPCODE_QUERY, cqlring_text(text), (cqlring_bytes){NULL, 0},
                                                       QUERY_TIMEOUT_US, done, control)) {
        /* no room or no memory for it just now */
        results_drop(control);
        set_state(control, CONTROL_UP);
        cqr_wheel_arm(&control->lane->wheel, &control->timer, control->lane->now_us + DEBOUNCE_US);
    }
}

/* The reading went wrong on this connection: another candidate, or another connection. */
static void reading_failed(struct control *control, struct op *op, const char *what)
{
    if (op->status == CQLRING_LOST || control->state == CONTROL_STOPPED || control->link.conn == NULL)
        return; /* link_changed goes on from there */
    char text[560];
    snprintf(text, sizeof text, "%s: %s: %s", control->link.conn->text, what, op->failure != NULL ? op->failure->error.message : "the answer cannot be used");
    cqr_writer_shut(control->link.conn, op->status != CQLRING_OK ? op->status : CQLRING_PROTOCOL, text);
}

struct topology_post {
    struct lane_message message;
    struct topology *topology;
    struct cqlring_cluster *cluster;
};

static void topology_run(struct lane *lane, struct lane_message *message)
{
    struct topology_post *post = (struct topology_post *)(void *)message;
    for (struct pool *pool = lane->pools, *next; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->cluster == post->cluster && !pool->closing)
            cqr_pool_topology(pool, post->topology);
    }
    cqr_topology_release(post->topology);
    cqr_cluster_release(post->cluster);
    cqr_mem_free(post);
}

static void topology_publish(struct control *control, struct topology *topology)
{
    struct cqlring_cluster *cluster = control->cluster;
    pthread_mutex_lock(&cluster->lock);
    struct topology *old = cluster->topology;
    topology->number = old->number + 1;
    cluster->topology = topology;
    pthread_mutex_unlock(&cluster->lock);
    cqr_listener_topology(cluster, old, topology);
    cqr_topology_release(old);
    for (uint32_t i = 0; i < cluster->runtime->lane_count; i++) {
        struct topology_post *post = cqr_mem_zalloc(sizeof *post);
        if (post == NULL) {
            control->again = true; /* that lane has the old one until the next reading */
            continue;
        }
        post->message.run = topology_run;
        post->topology = cqr_topology_retain(topology);
        post->cluster = cqr_cluster_retain(cluster);
        if (i == 0) {
            topology_run(control->lane, &post->message);
        } else if (!cqr_lane_post(&cluster->runtime->lanes[i], &post->message)) {
            cqr_topology_release(topology);
            cqr_cluster_release(cluster);
            cqr_mem_free(post);
        }
    }
}

static void schedule(struct control *control, int64_t in_us)
{
    int64_t at = control->lane->now_us + in_us;
    if (control->state != CONTROL_UP) {
        control->again = true;
        return;
    }
    if (control->timer.link == NULL || control->timer.deadline_us > at)
        cqr_wheel_arm(&control->lane->wheel, &control->timer, at);
}

static void keyspaces_done(struct lane *lane, struct op *op, void *context)
{
    struct control *control = context;
    if (control->state != CONTROL_AWAIT_KEYSPACES)
        return;
    if (op->status != CQLRING_OK || op->result == NULL) {
        reading_failed(control, op, "reading system_schema.keyspaces");
        return;
    }
    struct cqlring_cluster *cluster = control->cluster;
    uint32_t before = cluster->topology->node_count;
    struct topology *topology = NULL;
    char why[200];
    cqlring_status status = cqr_topology_read(cluster, control->local, control->peers, op->result, control->tablets, &control->link.conn->address, control->link.conn->tls_name, &topology, why, sizeof why);
    if (status != CQLRING_OK) {
        op->status = status;
        op->failure = cqr_failure_make(status, "%s", why);
        reading_failed(control, op, "reading the topology");
        op->status = CQLRING_OK;
        return;
    }
    results_drop(control);
    if (topology->node_count == 1 && before > 1 && !control->peers_were_empty) {
        control->peers_were_empty = true; /* believed only when a second reading says so too */
        cqr_topology_release(topology);
        set_state(control, CONTROL_UP);
        schedule(control, EMPTY_PEERS_US);
        return;
    }
    control->peers_were_empty = false;
    control->rounds = 0;
    set_state(control, CONTROL_UP);
    bool has_doubles = topology->has_doubles;
    cqr_client_routes_compare(cluster, topology);
    topology_publish(control, topology);
    cqr_log(&lane->runtime->log, CQLRING_LOG_INFO, "topology %llu from %s: %u nodes, %u ring entries, %u keyspaces", (unsigned long long)topology->number,
            control->link.conn->text, topology->node_count, topology->ring_count, topology->keyspace_count);
    cqr_cluster_opened(cluster, NULL);
    if (control->state != CONTROL_UP)
        return;
    if (control->again) {
        control->again = false;
        schedule(control, DEBOUNCE_US);
    } else if (control->again_left > 0) {
        control->again_left--;
        schedule(control, AGAIN_US);
    } else if (has_doubles) {
        schedule(control, DOUBLES_US);
    } else if (cqr_client_routes_again_us(cluster) > 0) {
        schedule(control, cqr_client_routes_again_us(cluster));
    }
}

static void ask_keyspaces(struct control *control)
{
    set_state(control, CONTROL_AWAIT_KEYSPACES);
    ask(control, "SELECT keyspace_name, replication FROM system_schema.keyspaces", keyspaces_done);
}

static void tablets_done(struct lane *lane, struct op *op, void *context)
{
    struct control *control = context;
    (void)lane;
    if (control->state != CONTROL_AWAIT_TABLETS)
        return;
    if (op->status == CQLRING_OK) {
        control->tablets = op->result;
        op->result = NULL;
    } else if (op->status != CQLRING_SERVER) { /* SERVER: an older one, that knows no tablets */
        reading_failed(control, op, "reading system_schema.scylla_keyspaces");
        return;
    }
    ask_keyspaces(control);
}

static void ask_tablets(struct control *control)
{
    if (control->link.conn != NULL && (control->link.conn->shard.shard_count > 0 || control->link.conn->dialect.extensions != 0)) {
        set_state(control, CONTROL_AWAIT_TABLETS);
        ask(control, "SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces", tablets_done);
    } else {
        ask_keyspaces(control);
    }
}

static void routes_done(struct lane *lane, struct op *op, void *context)
{
    struct control *control = context;
    struct cqlring_cluster *cluster = control->cluster;
    if (control->state != CONTROL_AWAIT_ROUTES)
        return;
    if (op->status == CQLRING_SERVER && op->failure != NULL) {
        cqr_client_routes_refused(cluster, &op->failure->error);
    } else if (op->status != CQLRING_OK || op->result == NULL) {
        reading_failed(control, op, "reading system.client_routes");
        return;
    } else if (cqr_client_routes_read(cluster, op->result)) {
        set_state(control, CONTROL_AWAIT_NAMES);
        if (cluster->resolve_timeout_us >= 0)
            cqr_wheel_arm(&lane->wheel, &control->timer, lane->now_us + cluster->resolve_timeout_us);
        return;
    }
    ask_tablets(control);
}

/* Names that are not found by now are done without. */
static void routes_settle(struct control *control)
{
    cqr_wheel_disarm(&control->lane->wheel, &control->timer);
    cqr_client_routes_settle(control->cluster);
    ask_tablets(control);
}

void cqr_control_routes_found(struct lane *lane, struct cqlring_cluster *cluster, bool moved)
{
    struct control *control = cluster->control;
    (void)lane;
    if (control->state == CONTROL_AWAIT_NAMES)
        routes_settle(control);
    else if (control->state != CONTROL_STOPPED && moved)
        schedule(control, DEBOUNCE_US);
}

static void peers_done(struct lane *lane, struct op *op, void *context)
{
    struct control *control = context;
    (void)lane;
    if (control->state != CONTROL_AWAIT_PEERS)
        return;
    if (op->status == CQLRING_SERVER && !control->old_peers) {
        control->old_peers = true; /* before Cassandra 4.0, and Scylla: there is no peers_v2 */
        ask(control, "SELECT * FROM system.peers", peers_done);
        return;
    }
    if (op->status != CQLRING_OK || op->result == NULL) {
        reading_failed(control, op, "reading system.peers");
        return;
    }
    control->peers = op->result;
    op->result = NULL;
    const char *routes = cqr_client_routes_query(control->cluster);
    if (routes == NULL) {
        ask_tablets(control);
        return;
    }
    set_state(control, CONTROL_AWAIT_ROUTES);
    ask(control, routes, routes_done);
}

static void local_done(struct lane *lane, struct op *op, void *context)
{
    struct control *control = context;
    (void)lane;
    if (control->state != CONTROL_AWAIT_LOCAL)
        return;
    if (op->status != CQLRING_OK || op->result == NULL) {
        reading_failed(control, op, "reading system.local");
        return;
    }
    control->local = op->result;
    op->result = NULL;
    set_state(control, CONTROL_AWAIT_PEERS);
    ask(control, control->old_peers ? "SELECT * FROM system.peers" : "SELECT * FROM system.peers_v2", peers_done);
}

static void read_all(struct control *control)
{
    cqr_wheel_disarm(&control->lane->wheel, &control->timer);
    results_drop(control);
    control->again = false;
    set_state(control, CONTROL_AWAIT_LOCAL);
    ask(control, "SELECT * FROM system.local WHERE key='local'", local_done);
}

/* ---- connection and events ---- */

static void link_changed(struct lane *lane, struct pool_link *link, bool up)
{
    struct control *control = (struct control *)(void *)((char *)link - offsetof(struct control, link));
    (void)lane;
    if (control->state == CONTROL_STOPPED)
        return;
    if (up) {
        if (control->version_try != 0) /* so that was it */
            cqr_cluster_version_lower(control->cluster, control->version_try);
        control->version_try = 0;
        control->old_peers = false;
        read_all(control);
        cqr_schema_connected(control->cluster);
        return;
    }
    if (control->state == CONTROL_AWAIT_CONNECTION && link->retry_version) {
        connect_candidate(control); /* the same one, in a lower version */
        return;
    }
    /* only while nothing has ever been agreed: later it is a drained or dying node that closes (RC-24) */
    if (control->state == CONTROL_AWAIT_CONNECTION && control->cluster->opening != NULL && control->version_try == 0 && link->perhaps_version != 0) {
        control->version_try = link->perhaps_version;
        connect_candidate(control);
        return;
    }
    control->version_try = 0;
    note_failure(control, link->last_status, link->last_text);
    control->failure_code = link->last_code;
    if (control->at < control->candidate_count)
        cqr_address_format(&control->candidates[control->at].address, control->failure_node);
    results_drop(control);
    cqr_wheel_disarm(&control->lane->wheel, &control->timer);
    bool was_up = control->state == CONTROL_UP || control->cluster->opening == NULL;
    if (was_up && control->state != CONTROL_AWAIT_CONNECTION) {
        cqr_log(&control->lane->runtime->log, CQLRING_LOG_WARN, "the control connection is lost: %s", link->last_text);
        start_round(control);
        return;
    }
    next_candidate(control);
}

struct forget_post {
    struct lane_message message;
    struct cqlring_cluster *cluster;
    char keyspace[64], table[64];
};

static void forget_run(struct lane *lane, struct lane_message *message)
{
    struct forget_post *post = (struct forget_post *)(void *)message;
    for (struct pool *pool = lane->pools; pool != NULL; pool = pool->next)
        if (pool->cluster == post->cluster)
            cqr_tablets_forget(pool, cqlring_text(post->keyspace), cqlring_text(post->table));
    cqr_cluster_release(post->cluster);
    cqr_mem_free(post);
}

/* The schema changed: on every lane. */
static void tablets_forget(struct lane *lane, struct cqlring_cluster *cluster, cqlring_bytes keyspace, cqlring_bytes table)
{
    cqr_tablets_forget_shared(cluster, keyspace, table);
    for (uint32_t i = 0; i < cluster->runtime->lane_count; i++) {
        struct forget_post *post = cqr_mem_zalloc(sizeof *post);
        if (post == NULL)
            return; /* a wrong place is corrected by the next reply */
        post->message.run = forget_run;
        post->cluster = cqr_cluster_retain(cluster);
        snprintf(post->keyspace, sizeof post->keyspace, "%.*s", keyspace.size, (const char *)keyspace.data);
        snprintf(post->table, sizeof post->table, "%.*s", table.size, table.data == NULL ? "" : (const char *)table.data);
        if (i == lane->index) {
            forget_run(lane, &post->message);
        } else if (!cqr_lane_post(&cluster->runtime->lanes[i], &post->message)) {
            cqr_cluster_release(cluster);
            cqr_mem_free(post);
        }
    }
}

static void link_event(struct lane *lane, struct pool_link *link, const struct conn_event *event)
{
    struct control *control = (struct control *)(void *)((char *)link - offsetof(struct control, link));
    struct cqlring_cluster *cluster = control->cluster;
    if (control->state == CONTROL_STOPPED)
        return;
    struct event_body body;
    cqlring_bytes bytes = {event != NULL ? event->data : NULL, event != NULL ? (int32_t)event->size : 0};
    struct response_prefix prefix;
    if (event == NULL) {
        schedule(control, DEBOUNCE_US);
        cqr_schema_changed(cluster, (cqlring_bytes){NULL, 0}, (cqlring_bytes){NULL, 0});
        return;
    }
    if (cqr_decode_prefix(event->flags, &bytes, &prefix) != CQLRING_OK || cqr_decode_event(&link->conn->dialect, bytes, &body) != CQLRING_OK)
        return; /* unknown or torn: nothing to act on (FR-10) */
#define IS(slice, literal) ((slice).size == (int32_t)sizeof(literal) - 1 && memcmp((slice).data, literal, sizeof(literal) - 1) == 0)
    if (IS(body.type, "SCHEMA_CHANGE")) {
        bool is_keyspace = IS(body.schema.target, "KEYSPACE");
        if (is_keyspace || (IS(body.schema.target, "TABLE") && !IS(body.schema.change, "UPDATED")))
            tablets_forget(lane, cluster, body.schema.keyspace, is_keyspace ? (cqlring_bytes){NULL, 0} : body.schema.name);
        if (is_keyspace)
            schedule(control, DEBOUNCE_US);
        cqr_schema_changed(cluster, body.schema.keyspace, IS(body.schema.target, "TABLE") ? body.schema.name : (cqlring_bytes){NULL, 0});
        return;
    }
    if (IS(body.type, "CLIENT_ROUTES_CHANGE") && cqr_client_routes_concern(cluster, &body))
        schedule(control, DEBOUNCE_US);
    if (!IS(body.type, "STATUS_CHANGE") && !IS(body.type, "TOPOLOGY_CHANGE"))
        return;
    struct address address;
    struct cqlring_node *node = NULL;
    if (cqr_address_from_bytes(&address, body.address, body.address_size, (uint16_t)body.port))
        for (uint32_t i = 0; i < cluster->topology->node_count && node == NULL; i++)
            if (cqr_address_equal(&cqr_node_place(cluster->topology->nodes[i])->announced, &address))
                node = cluster->topology->nodes[i];
    if (IS(body.type, "STATUS_CHANGE") && IS(body.change, "UP") && node != NULL) {
        cqr_control_hint(lane, cluster, node);
        return;
    }
    if (IS(body.change, "DOWN"))
        return; /* the connections know better (RC-22) */
    if (node == NULL)
        control->again_left = AGAIN_MAX; /* peers may show it only later (RC-14) */
    schedule(control, DEBOUNCE_US);
#undef IS
}

struct hint_post {
    struct lane_message message;
    struct cqlring_cluster *cluster;
    struct cqlring_node *node;
};

static void hint_run(struct lane *lane, struct lane_message *message)
{
    struct hint_post *post = (struct hint_post *)(void *)message;
    for (struct pool *pool = lane->pools; pool != NULL; pool = pool->next)
        if (pool->cluster == post->cluster)
            cqr_pool_node_hint(pool, post->node, true);
    cqr_cluster_release(post->cluster);
    cqr_mem_free(post);
}

void cqr_control_hint(struct lane *lane, struct cqlring_cluster *cluster, struct cqlring_node *node)
{
    for (uint32_t i = 0; i < cluster->runtime->lane_count; i++) {
        struct hint_post *post = cqr_mem_zalloc(sizeof *post);
        if (post == NULL)
            return; /* the reconnect timer does it too */
        post->message.run = hint_run;
        post->cluster = cqr_cluster_retain(cluster);
        post->node = node;
        if (i == lane->index) {
            hint_run(lane, &post->message);
        } else if (!cqr_lane_post(&cluster->runtime->lanes[i], &post->message)) {
            cqr_cluster_release(cluster);
            cqr_mem_free(post);
        }
    }
}

struct look_post {
    struct lane_message message;
    struct cqlring_cluster *cluster;
};

static void look_run(struct lane *lane, struct lane_message *message)
{
    struct look_post *post = (struct look_post *)(void *)message;
    struct control *control = post->cluster->control;
    (void)lane;
    if (control->state != CONTROL_STOPPED)
        schedule(control, DEBOUNCE_US);
    cqr_cluster_release(post->cluster);
    cqr_mem_free(post);
}

void cqr_control_look(struct lane *lane, struct cqlring_cluster *cluster)
{
    struct look_post *post = cqr_mem_zalloc(sizeof *post);
    if (post == NULL)
        return;
    post->message.run = look_run;
    post->cluster = cqr_cluster_retain(cluster);
    if (cluster->control->lane == lane) {
        look_run(lane, &post->message);
    } else if (!cqr_lane_post(cluster->control->lane, &post->message)) {
        cqr_cluster_release(cluster);
        cqr_mem_free(post);
    }
}

/* ---- rounds ---- */

/* failures: of the points that could not be looked up, "" for none. */
static void round_with(struct control *control, const char *failures)
{
    struct cqlring_cluster *cluster = control->cluster;
    const struct resolution *resolution = cqr_contacts_known(cluster);
    cqr_mem_free(control->candidates);
    control->candidates = NULL;
    control->candidate_count = control->at = 0;
    uint32_t known = cluster->topology->node_count;
    struct resolved_address *candidates = cqr_mem_array(known + resolution->count + 1, sizeof *candidates);
    if (candidates != NULL) {
        uint32_t turn = known > 0 ? (uint32_t)(cqr_random(&control->lane->random) % known) : 0;
        for (uint32_t i = 0; i < known; i++) {
            const struct node_place *place = cqr_node_place(cluster->topology->nodes[(turn + i) % known]);
            if (!place->is_denied)
                candidates[control->candidate_count++] = (struct resolved_address){.address = place->address, .point = UINT32_MAX};
        }
        known = control->candidate_count;
        for (uint32_t i = 0; i < resolution->count; i++) {
            bool listed = false;
            for (uint32_t j = 0; j < known && !listed; j++) {
                listed = cqr_address_equal(&candidates[j].address, &resolution->addresses[i].address);
                if (listed)
                    candidates[j].point = resolution->addresses[i].point; /* its name */
            }
            if (!listed)
                candidates[control->candidate_count++] = resolution->addresses[i];
        }
        control->candidates = candidates;
    }
    control->failures[0] = '\0';
    control->failure_status = CQLRING_OK;
    control->failures_differ = false;
    if (failures[0] != '\0')
        note_failure(control, CQLRING_UNREACHABLE, failures);
    connect_candidate(control);
}

static void resolved(struct lane *lane, struct cqlring_cluster *cluster, const struct resolution *found)
{
    struct control *control = cluster->control;
    if (control->state != CONTROL_STOPPED)
        cqr_contacts_learn(cluster, found);
    if (control->state == CONTROL_AWAIT_ADDRESSES) {
        cqr_wheel_disarm(&lane->wheel, &control->timer);
        round_with(control, found->failures);
    }
}

/* A name whose answer does not come keeps nobody from the others, nor from the nodes that are known. */
static void not_resolved(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct resolution literals;
    char why[64];
    snprintf(why, sizeof why, "no answer in %s", cqr_duration(cluster->resolve_timeout_us).text);
    if (cqr_resolve_literals(cluster->points, cluster->point_count, why, &literals) != CQLRING_OK)
        snprintf(literals.failures, sizeof literals.failures, "contact points cannot be resolved: out of memory");
    cqr_contacts_learn(cluster, &literals); /* what the names led to before stays */
    round_with(control, literals.failures);
    cqr_mem_free(literals.addresses);
}

static void resolve(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    bool bounded = cluster->runtime->threads != CQLRING_THREADS_CALLER && cluster->resolve_timeout_us >= 0;
    if (bounded)
        cqr_wheel_arm(&control->lane->wheel, &control->timer, control->lane->now_us + cluster->resolve_timeout_us);
    if (control->lookup.is_under_way)
        return; /* an earlier round's, that has not come back: its answer is as good */
    if (cluster->runtime->threads == CQLRING_THREADS_CALLER) {
        if (!control->has_first)
            control->has_first = cqr_resolve(cluster->points, cluster->point_count, &control->first) == CQLRING_OK;
        struct resolution resolution = control->first;
        resolution.addresses = cqr_mem_array(control->first.count + 1, sizeof *resolution.addresses);
        if (resolution.addresses == NULL)
            resolution.count = 0;
        else if (control->first.count > 0)
            memcpy(resolution.addresses, control->first.addresses, control->first.count * sizeof *resolution.addresses);
        cqr_lookup_answer(&control->lookup, cluster, &resolution, resolved);
        return;
    }
    if (cqr_lookup_start(&control->lookup, cluster, cluster->points, cluster->point_count, resolved) != CQLRING_OK) {
        struct resolution none = {0};
        snprintf(none.failures, sizeof none.failures, "contact points cannot be resolved: out of memory or threads");
        cqr_lookup_answer(&control->lookup, cluster, &none, resolved);
    }
}

static void start_round(struct control *control)
{
    set_state(control, CONTROL_AWAIT_ADDRESSES);
    resolve(control);
}

void cqr_control_timer(struct lane *lane, struct timer *timer)
{
    struct control *control = (struct control *)(void *)((char *)timer - offsetof(struct control, timer));
    (void)lane;
    if (control->state == CONTROL_AWAIT_RETRY)
        start_round(control);
    else if (control->state == CONTROL_AWAIT_ADDRESSES)
        not_resolved(control);
    else if (control->state == CONTROL_AWAIT_NAMES)
        routes_settle(control);
    else if (control->state == CONTROL_UP && control->link.up)
        read_all(control);
}

struct start_post {
    struct lane_message message;
    struct control *control;
};

static void start_run(struct lane *lane, struct lane_message *message)
{
    struct start_post *post = (struct start_post *)(void *)message;
    struct control *control = post->control;
    struct cqlring_cluster *cluster = control->cluster;
    (void)lane;
    cqr_mem_free(post);
    if (control->state == CONTROL_IDLE)
        start_round(control);
    cqr_cluster_release(cluster);
}

bool cqr_control_create(struct cqlring_cluster *cluster)
{
    struct control *control = cqr_mem_zalloc(sizeof *control);
    if (control == NULL)
        return false;
    control->cluster = cluster;
    control->lane = &cluster->runtime->lanes[0];
    control->timer.kind = TIMER_CONTROL;
    control->link.changed = link_changed;
    control->link.event = link_event;
    control->link.context = cluster;
    cluster->control = control;
    return true;
}

void cqr_control_start(struct cqlring_cluster *cluster)
{
    struct start_post *post = cqr_mem_zalloc(sizeof *post);
    if (post != NULL) {
        post->message.run = start_run;
        post->control = cluster->control;
        cqr_cluster_retain(cluster);
        if (cqr_lane_post(cluster->control->lane, &post->message))
            return;
        cqr_cluster_release(cluster);
        cqr_mem_free(post);
        cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_CLOSED, "the runtime has ended"));
        return;
    }
    cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_NO_MEMORY, "opening the cluster: out of memory"));
}

void cqr_control_stop(struct lane *lane, struct cqlring_cluster *cluster)
{
    struct control *control = cluster->control;
    if (control->state == CONTROL_STOPPED)
        return;
    control->state = CONTROL_STOPPED;
    cqr_agreement_stop(cluster->agreement);
    cqr_schema_stop(cluster->schema);
    cqr_traces_stop(cluster);
    cqr_contacts_stop(lane, cluster);
    cqr_client_routes_stop(cluster);
    cqr_wheel_disarm(&lane->wheel, &control->timer);
    results_drop(control);
    if (control->link.conn != NULL) {
        struct conn *conn = control->link.conn;
        control->link.conn = NULL;
        control->link.up = false;
        conn->home = NULL;
        cqr_writer_shut(conn, CQLRING_CLOSED, "the cluster is closed");
    }
    if (cluster->opening != NULL)
        cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_CLOSED, "the cluster was closed while it was opening"));
}

struct conn *cqr_control_conn(const struct cqlring_cluster *cluster)
{
    const struct control *control = cluster->control;
    return control->state != CONTROL_STOPPED && control->link.up ? control->link.conn : NULL;
}

void cqr_control_free(struct control *control)
{
    if (control == NULL)
        return;
    results_drop(control);
    cqr_mem_free(control->candidates);
    cqr_mem_free(control->first.addresses);
    cqr_mem_free(control);
}
