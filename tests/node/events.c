/* SPDX-License-Identifier: Apache-2.0 */
/* EVENTs to registered connections; what is done to nodes from outside. */
#include "tests/node/cluster.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "cql/frame.h"

static void send_one(struct node_conn *conn, const void *body, size_t size)
{
    struct out out = {0};
    out_u8(&out, (uint8_t)(0x80 | conn->dialect.version));
    out_u8(&out, 0);
    out_u16(&out, 0xFFFF);
    out_u8(&out, OPCODE_EVENT);
    out_u32(&out, (uint32_t)size);
    out_raw(&out, body, size);
    node_conn_push(conn, out.data, out.size);
    node_conn_flush(conn, conn->cluster->options.trickle > 0);
    ++conn_counters(conn)->events;
    node_out_fini(&out);
}

void node_event_to(struct node_cluster *cluster, uint32_t node, uint32_t kind, const void *body,
                   size_t size)
{
    for (struct node_conn *conn = cluster->conns; conn != NULL; conn = conn->next) {
        bool wanted = (conn->registered & kind) != 0 && (node == NODE_ALL || conn->node == node);
        if (wanted && !conn->closing && !conn->silent && !cluster->nodes[conn->node].silent)
            send_one(conn, body, size);
    }
    cluster->poked = true;
}

void node_events_send(struct node_cluster *cluster)
{
    struct pending_event *event;
    while ((event = cluster->events) != NULL) {
        cluster->events = event->next;
        if (cluster->events == NULL)
            cluster->events_tail = &cluster->events;
        node_event_to(cluster, NODE_ALL, EVENT_SCHEMA, event->body, event->size);
        node_free(event);
    }
}

/* The engine tells of a change while a request runs; it is sent when the reply is out. */
static void schema_changed(void *context, cqlring_bytes change)
{
    struct node_cluster *cluster = context;
    struct out out = {0};
    out_text(&out, "SCHEMA_CHANGE");
    out_slice(&out, change);
    struct pending_event *event = node_alloc(sizeof *event + out.size);
    event->next = NULL;
    event->size = (uint32_t)out.size;
    memcpy(event->body, out.data, out.size);
    node_out_fini(&out);
    *cluster->events_tail = event;
    cluster->events_tail = &event->next;
}

void node_events_init(struct node_cluster *cluster)
{
    cluster->events_tail = &cluster->events;
    cluster->engine.on_schema = schema_changed;
    cluster->engine.context = cluster;
}

/* --- about nodes ------------------------------------------------------------------------------ */

static void tell(struct node_cluster *cluster, uint32_t node, const char *type, const char *change,
                 uint32_t about)
{
    const struct node_member *member = &cluster->engine.members[about];
    struct out out = {0};
    out_text(&out, type);
    out_text(&out, change);
    out_u8(&out, member->inet_size);
    out_raw(&out, member->inet, member->inet_size);
    out_u32(&out, member->port);
    node_event_to(cluster, node, type[0] == 'S' ? EVENT_STATUS : EVENT_TOPOLOGY, out.data,
                  out.size);
    node_out_fini(&out);
}

static void poke(struct node_cluster *cluster)
{
    cluster->poked = true;
    if (cluster->server != NULL)
        node_server_wake(cluster->server);
}

static void leave_lock(struct node_cluster *cluster)
{
    poke(cluster);
    cluster_unlock(cluster);
}

void node_event_status(struct node_cluster *cluster, uint32_t node, const char *change,
                       uint32_t about)
{
    cluster_lock(cluster);
    tell(cluster, node, "STATUS_CHANGE", change, about);
    leave_lock(cluster);
}

void node_event_topology(struct node_cluster *cluster, uint32_t node, const char *change,
                         uint32_t about)
{
    cluster_lock(cluster);
    tell(cluster, node, "TOPOLOGY_CHANGE", change, about);
    leave_lock(cluster);
}

void node_client_route(struct node_cluster *cluster, const char *connection_id, uint32_t node,
                       const char *address, int32_t port, int32_t tls_port, bool telling)
{
    static const uint8_t nobody[16] = {0xAB, 0xCD, 0xEF};
    char text[37];
    cluster_lock(cluster);
    const uint8_t *host_id = node == NODE_ALL ? nobody : cluster->engine.members[node].host_id;
    node_system_write_route(&cluster->engine, connection_id, host_id, address, port, tls_port,
                            cluster_wall(cluster));
    for (int i = 0, at = 0; i < 16; ++i)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", host_id[i]);
    if (telling) {
        struct out out = {0};
        out_text(&out, "CLIENT_ROUTES_CHANGE");
        out_text(&out, "UPDATE_NODES");
        out_u16(&out, 1);
        out_text(&out, connection_id);
        out_u16(&out, 1);
        out_text(&out, text);
        node_event_to(cluster, NODE_ALL, EVENT_ROUTES, out.data, out.size);
        node_out_fini(&out);
    }
    leave_lock(cluster);
}

void node_event_raw(struct node_cluster *cluster, uint32_t node, const void *body, uint32_t size)
{
    cluster_lock(cluster);
    node_event_to(cluster, node, EVENT_STATUS | EVENT_TOPOLOGY | EVENT_SCHEMA, body, size);
    leave_lock(cluster);
}

static void cut(struct node_cluster *cluster, uint32_t node, uint32_t number)
{
    for (struct node_conn *conn = cluster->conns; conn != NULL; conn = conn->next) {
        if ((node == NODE_ALL || conn->node == node) && (number == 0 || conn->number == number))
            conn->closing = conn->closed = true;
    }
}

void node_cut(struct node_cluster *cluster, uint32_t node, uint32_t conn)
{
    cluster_lock(cluster);
    cut(cluster, node, conn);
    leave_lock(cluster);
}

void node_down(struct node_cluster *cluster, uint32_t node, bool telling)
{
    cluster_lock(cluster);
    cluster->engine.members[node].up = false;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    cut(cluster, node, 0);
    if (telling)
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "DOWN", node);
    leave_lock(cluster);
}

static void come_up(struct node_cluster *cluster, uint32_t node)
{
    cluster->engine.members[node].up = true;
    cluster->nodes[node].silent = false;
    cluster->nodes[node].frozen_until = INT64_MIN;
    node_prepared_forget(&cluster->engine, node, NULL);
}

void node_up(struct node_cluster *cluster, uint32_t node, bool telling)
{
    cluster_lock(cluster);
    come_up(cluster, node);
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    if (telling)
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "UP", node);
    leave_lock(cluster);
}

void node_leave(struct node_cluster *cluster, uint32_t node, bool telling)
{
    cluster_lock(cluster);
    cluster->engine.members[node].up = cluster->engine.members[node].member = false;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    cut(cluster, node, 0);
    if (telling)
        tell(cluster, NODE_ALL, "TOPOLOGY_CHANGE", "REMOVED_NODE", node);
    leave_lock(cluster);
}

void node_join(struct node_cluster *cluster, uint32_t node, bool telling)
{
    cluster_lock(cluster);
    come_up(cluster, node);
    cluster->engine.members[node].member = true;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    if (telling) {
        tell(cluster, NODE_ALL, "TOPOLOGY_CHANGE", "NEW_NODE", node);
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "UP", node);
    }
    leave_lock(cluster);
}

void node_hide(struct node_cluster *cluster, uint32_t node, bool hidden)
{
    cluster_lock(cluster);
    cluster->engine.members[node].hidden = hidden;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    leave_lock(cluster);
}

void node_move(struct node_cluster *cluster, uint32_t node, const char *address, uint32_t how)
{
    cluster_lock(cluster);
    struct node_member *member = &cluster->engine.members[node];
    bool telling = (how & NODE_MOVE_TELL) != 0;
    if (telling)
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "DOWN", node);
    if ((how & NODE_MOVE_KEEP) == 0) {
        cut(cluster, node, 0);
        come_up(cluster, node);
    }
    if ((how & NODE_MOVE_STALE) != 0)
        memcpy(member->stale_address, member->address, sizeof member->stale_address);
    (void)inet_pton(member->inet_size == 4 ? AF_INET : AF_INET6, address, member->inet);
    (void)snprintf(member->address, sizeof member->address, "%s", address);
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    if (telling) {
        tell(cluster, NODE_ALL, "TOPOLOGY_CHANGE", "NEW_NODE", node);
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "UP", node);
    }
    leave_lock(cluster);
}

void node_replace(struct node_cluster *cluster, uint32_t node, bool telling)
{
    cluster_lock(cluster);
    cut(cluster, node, 0);
    come_up(cluster, node);
    cluster->engine.members[node].host_id[15] ^= 0x5A;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    if (telling) {
        tell(cluster, NODE_ALL, "TOPOLOGY_CHANGE", "NEW_NODE", node);
        tell(cluster, NODE_ALL, "STATUS_CHANGE", "UP", node);
    }
    leave_lock(cluster);
}

void node_schema_lag(struct node_cluster *cluster, uint32_t node, enum node_lag lag)
{
    cluster_lock(cluster);
    struct node_member *member = &cluster->engine.members[node];
    memcpy(member->schema_version, cluster->engine.schema_version, sizeof member->schema_version);
    member->lag = (uint8_t)lag;
    node_engine_ring_changed(&cluster->engine, cluster_wall(cluster));
    leave_lock(cluster);
}

void node_set_shards(struct node_cluster *cluster, uint32_t node, uint32_t shards)
{
    cluster_lock(cluster);
    if (cluster->options.shards > 0 && shards > 0)
        cluster->engine.members[node].shards = shards;
    leave_lock(cluster);
}

void node_set_tablets(struct node_cluster *cluster, uint32_t bits, uint32_t move)
{
    cluster_lock(cluster);
    cluster->engine.tablet_bits = bits < 1 ? 1 : bits > 16 ? 16 : bits;
    cluster->engine.tablet_move = move;
    leave_lock(cluster);
}

void node_set_shard_port(struct node_cluster *cluster, uint32_t node, enum node_shard_port how)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->engine.member_count; ++i) {
        if (node == NODE_ALL || node == i)
            cluster->engine.members[i].shard_port_is = (uint8_t)how;
    }
    leave_lock(cluster);
}

void node_freeze(struct node_cluster *cluster, uint32_t node, int32_t ms)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->engine.member_count; ++i) {
        if (node == NODE_ALL || node == i)
            cluster->nodes[i].frozen_until = ms < 0    ? INT64_MAX
                                             : ms == 0 ? INT64_MIN
                                                       : cluster->now_us + (int64_t)ms * 1000;
    }
    leave_lock(cluster);
}

void node_silence(struct node_cluster *cluster, uint32_t node, bool silent)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->engine.member_count; ++i) {
        if (node == NODE_ALL || node == i)
            cluster->nodes[i].silent = silent;
    }
    leave_lock(cluster);
}

void node_forget_prepared(struct node_cluster *cluster, uint32_t node)
{
    cluster_lock(cluster);
    node_prepared_forget(&cluster->engine, node, NULL);
    leave_lock(cluster);
}

void node_set_mode(struct node_cluster *cluster, enum node_mode mode)
{
    cluster_lock(cluster);
    cluster->options.mode = mode;
    leave_lock(cluster);
}

void node_set_trickle(struct node_cluster *cluster, uint32_t replies)
{
    cluster_lock(cluster);
    cluster->options.trickle = replies;
    leave_lock(cluster);
}

void node_set_delay(struct node_cluster *cluster, uint32_t node, uint32_t delay_us,
                    uint32_t jitter_us)
{
    cluster_lock(cluster);
    for (uint32_t i = 0; i < cluster->engine.member_count; ++i) {
        if (node == NODE_ALL || node == i) {
            cluster->nodes[i].delay_us = delay_us;
            cluster->nodes[i].jitter_us = jitter_us;
        }
    }
    leave_lock(cluster);
}
