/* SPDX-License-Identifier: Apache-2.0 */

/* What is done on the control connection, on lane 0's submitter: system.local, system.peers_v2 (or peers) and the keyspaces are
   read, and a new topology is handed to every lane. Events ask for another reading after a short wait, so that a burst of them
   costs one. How the connection comes and goes is in control.c. */

#include <stdio.h>
#include <string.h>

#include "driver/client_routes.h"
#include "driver/control_private.h"
#include "driver/control_rows.h"
#include "driver/listener.h"
#include "driver/runtime.h"
#include "driver/schema.h"

enum { DEBOUNCE_US = 1000000, AGAIN_US = 2000000, AGAIN_MAX = 5, EMPTY_PEERS_US = 1000000, DOUBLES_US = 30000000, QUERY_TIMEOUT_US = 12000000 };

void cqr_control_results_drop(struct control *control)
{
    cqlring_result_release(control->local);
    cqlring_result_release(control->peers);
    cqlring_result_release(control->tablets);
    control->local = control->peers = control->tablets = NULL;
}

/* ---- reading ---- */

static void ask(struct control *control, const char *text, own_done done)
{
    if (control->link.conn == NULL || !cqr_own_request(control->lane, control->link.conn, OPCODE_QUERY, cqlring_text(text), (cqlring_bytes){NULL, 0},
                                                       QUERY_TIMEOUT_US, done, control)) {
        /* no room or no memory for it just now */
        cqr_control_results_drop(control);
        cqr_control_state_set(control, CONTROL_UP);
        cqr_wheel_arm(&control->lane->wheel, &control->timer, control->lane->now_us + DEBOUNCE_US);
    }
}

/* The reading went wrong on this connection: another candidate, or another connection. */
static void reading_failed(struct control *control, struct op *op, const char *what)
{
    if (op->status == CQLRING_LOST || control->state == CONTROL_STOPPED || control->link.conn == NULL)
        return; /* control.c link_changed goes on from there */
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
    cqr_control_results_drop(control);
    if (topology->node_count == 1 && before > 1 && !control->peers_were_empty) {
        control->peers_were_empty = true; /* believed only when a second reading says so too */
        cqr_topology_release(topology);
        cqr_control_state_set(control, CONTROL_UP);
        schedule(control, EMPTY_PEERS_US);
        return;
    }
    control->peers_were_empty = false;
    control->rounds = 0;
    cqr_control_state_set(control, CONTROL_UP);
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
    cqr_control_state_set(control, CONTROL_AWAIT_KEYSPACES);
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
        cqr_control_state_set(control, CONTROL_AWAIT_TABLETS);
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
        cqr_control_state_set(control, CONTROL_AWAIT_NAMES);
        if (cluster->resolve_timeout_us >= 0)
            cqr_wheel_arm(&lane->wheel, &control->timer, lane->now_us + cluster->resolve_timeout_us);
        return;
    }
    ask_tablets(control);
}

/* Names that are not found by now are done without. */
void cqr_control_routes_settle(struct control *control)
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
        cqr_control_routes_settle(control);
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
    cqr_control_state_set(control, CONTROL_AWAIT_ROUTES);
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
    cqr_control_state_set(control, CONTROL_AWAIT_PEERS);
    ask(control, control->old_peers ? "SELECT * FROM system.peers" : "SELECT * FROM system.peers_v2", peers_done);
}

void cqr_control_read(struct control *control)
{
    cqr_wheel_disarm(&control->lane->wheel, &control->timer);
    cqr_control_results_drop(control);
    control->again = false;
    cqr_control_state_set(control, CONTROL_AWAIT_LOCAL);
    ask(control, "SELECT * FROM system.local WHERE key='local'", local_done);
}

/* ---- events ---- */

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

void cqr_control_event(struct lane *lane, struct pool_link *link, const struct conn_event *event)
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
