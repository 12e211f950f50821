/* SPDX-License-Identifier: Apache-2.0 */

/* Links: one per node, each with its connection, its reconnect timer and why the last connect failed. Submitter. */

#include <stdio.h>
#include <string.h>

#include "driver/authenticate.h"
#include "driver/lane.h"
#include "driver/listener.h"
#include "driver/node_stats.h"
#include "driver/policy.h"
#include "driver/prepare_ahead.h"
#include "driver/record.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/shards.h"


/* ---- links ---- */

static void probe_done(struct lane *lane, struct op *op, void *context)
{
    (void)context;
    struct conn *conn = op->conn;
    if (conn == NULL || op->status == CQLRING_LOST)
        return; /* the connection is down already */
    conn->writer.probing = false;
    /* bytes came meanwhile: its answer stands behind a large one, and the watch goes on looking */
    bool heard = atomic_load_explicit(&conn->reads, memory_order_relaxed) != conn->writer.reads_asked;
    if (op->status == CQLRING_TIMEOUT && !heard) {
        char why[200];
        snprintf(why, sizeof why, "no answer to a heartbeat in %s", cqr_duration(op->plan->timeout_us).text);
        cqr_writer_shut(conn, CQLRING_LOST, why);
    }
    (void)lane;
}

static void probe(struct lane *lane, struct conn *conn, int64_t timeout_us)
{
    if (conn->writer.probing)
        return;
    conn->writer.reads_asked = atomic_load_explicit(&conn->reads, memory_order_relaxed);
    conn->writer.probing = cqr_own_request(lane, conn, OPCODE_OPTIONS, (cqlring_bytes){NULL, 0}, (cqlring_bytes){NULL, 0}, timeout_us, probe_done, NULL);
}

static struct pool *pool_of(const struct conn *conn) /* NULL: the control connection, or one that is given up */
{
    return conn->home != NULL ? conn->home->pool : NULL;
}

bool cqr_conn_was_useless(const struct lane *lane, const struct conn *conn)
{
    const struct conn_writer *writer = &conn->writer;
    return lane->now_us - writer->up_since_us < CONN_STABLE_US && !writer->replaced && writer->received_us <= writer->up_since_us;
}

static void suspect(struct lane *lane, struct conn *conn)
{
    conn->writer.suspect = true;
    if (conn->node != NULL)
        atomic_fetch_add_explicit(&((struct cqlring_node *)(uintptr_t)conn->node)->suspects, 1, memory_order_relaxed);
    cqr_pool_log(lane, pool_of(conn), &(struct log_news){.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_SUSPECT, .node = conn->node},
                 "%s is silent with %u requests waiting: no new rows for it until it answers", conn->text, conn->writer.in_flight);
}

void cqr_conn_trust(struct lane *lane, struct conn *conn)
{
    conn->writer.suspect = false;
    if (conn->node != NULL)
        atomic_fetch_sub_explicit(&((struct cqlring_node *)(uintptr_t)conn->node)->suspects, 1, memory_order_relaxed);
    cqr_pool_log(lane, pool_of(conn), &(struct log_news){.level = CQLRING_LOG_INFO, .event = CQLRING_EVENT_TRUSTED, .node = conn->node},
                 "%s is heard from again", conn->text);
    lane->waiting_retry = true;
}

static struct cqlring_cluster *cluster_of(const struct pool_link *link)
{
    return link->pool != NULL ? link->pool->cluster : link->context;
}

enum { DRAIN_LOOK_US = 20000 };

void cqr_conn_drain(struct lane *lane, struct conn *conn, const char *why)
{
    conn->home = NULL;
    conn->writer.draining = true;
    if (conn->writer.state == WRITER_UP && !conn->writer.shut && conn->writer.in_flight > 0)
        cqr_wheel_arm(&lane->wheel, &conn->writer.watch, lane->now_us + DRAIN_LOOK_US);
    else
        cqr_writer_shut(conn, CQLRING_CLOSED, why);
}

void cqr_conn_watch(struct lane *lane, struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->state == WRITER_CONNECTING) {
        struct cqlring_cluster *cluster = conn->home != NULL ? cluster_of(conn->home) : NULL;
        char why[200];
        snprintf(why, sizeof why, "connect to %s: TCP, TLS and startup were not through after %s", conn->text,
                 cqr_duration(cluster != NULL ? cluster->connect_timeout_us : 0).text);
        cqr_writer_shut(conn, CQLRING_TIMEOUT, why);
        return;
    }
    if (writer->state != WRITER_UP || writer->shut || (conn->home == NULL && !writer->draining))
        return;
    if (writer->draining && writer->in_flight == 0) {
        cqr_writer_shut(conn, CQLRING_CLOSED, "nothing is under way on it any more, and its node is elsewhere");
        return;
    }
    const struct cqlring_cluster *cluster = conn->cluster;
    int64_t now = lane->now_us, next = INT64_MAX;
    unsigned reads = atomic_load_explicit(&conn->reads, memory_order_relaxed);
    bool moved = reads != writer->reads_seen; /* since the last look, which is at most suspect_after_us ago while requests wait */
    writer->reads_seen = reads;
    if (cluster->heartbeat_us >= 0) {
        if (now - writer->received_us >= cluster->heartbeat_us)
            probe(lane, conn, cluster->connect_timeout_us);
        next = now - writer->received_us >= cluster->heartbeat_us ? now + cluster->heartbeat_us : writer->received_us + cluster->heartbeat_us;
    }
    if (cluster->suspect_after_us >= 0 && writer->in_flight > 0) {
        int64_t silent_since = writer->waiting_since_us > writer->received_us ? writer->waiting_since_us : writer->received_us;
        if (now - silent_since >= cluster->suspect_after_us && moved) {
            /* not a whole answer, but bytes of one */
            writer->received_us = silent_since = now;
            if (writer->suspect)
                cqr_conn_trust(lane, conn);
        } else if (now - silent_since >= cluster->suspect_after_us) {
            if (!writer->suspect)
                suspect(lane, conn);
            probe(lane, conn, cluster->connect_timeout_us);
            if (!writer->probing && now - silent_since >= cluster->suspect_after_us + cluster->connect_timeout_us)
                cqr_writer_shut(conn, CQLRING_LOST, "silent, and no room to ask it anything");
            silent_since = now;
        }
        if (silent_since + cluster->suspect_after_us < next)
            next = silent_since + cluster->suspect_after_us;
    }
    if (writer->draining && next > now + DRAIN_LOOK_US)
        next = now + DRAIN_LOOK_US; /* else it is watched as any other: who is silent is asked, and given up when nothing comes */
    if (next != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &writer->watch, next);
}

/* No link came up. What those say that had an answer (wrong password, unknown keyspace, certificate) counts, when it is the same:
   a node that is merely away does not hide it. */
static void opening_failed(const struct pool *pool, cqlring_error *error)
{
    char why[300] = "";
    const struct pool_link *answer = NULL;
    bool same = true;
    for (uint32_t i = 0; i < pool->link_count; i++) {
        const struct pool_link *link = pool->links[i];
        if (link == NULL || !link->wanted)
            continue;
        size_t length = strlen(why);
        if (link->last_text[0] != '\0' && length + 2 < sizeof why)
            snprintf(why + length, sizeof why - length, "%s%s", length > 0 ? "; " : "", link->last_text);
        cqlring_status status = link->last_status;
        if (status == CQLRING_OK || status == CQLRING_LOST || status == CQLRING_TIMEOUT || status == CQLRING_UNREACHABLE)
            continue;
        if (answer == NULL)
            answer = link;
        same = same && status == answer->last_status;
    }
    if (pool->closing) {
        cqr_error(error, CQLRING_CLOSED, "closed while it was opening");
        return;
    }
    if (why[0] == '\0') {
        const struct cqlring_cluster *cluster = pool->cluster;
        char known[200] = "none";
        if (pool->topology != NULL)
            cqr_topology_datacenters(pool->topology, known, sizeof known);
        cqr_error(error, CQLRING_UNREACHABLE, "no node is in the local datacenter \"%.64s\"; local_datacenter may be one of %s",
                  cluster->local_datacenter != NULL ? cluster->local_datacenter : cluster->guessed_datacenter, known);
        return;
    }
    cqr_error(error, answer != NULL && same ? answer->last_status : CQLRING_UNREACHABLE, "%s", why);
    if (answer != NULL && same) {
        error->server_code = answer->last_code;
        snprintf(error->node, sizeof error->node, "%s", answer->place->text);
    }
}

static void opening_check(struct pool *pool)
{
    if (pool->opening == NULL)
        return;
    if (pool->up_count == 0 && pool->connecting_count > 0 && !pool->closing)
        return;
    cqlring_error error, *why = NULL;
    if (pool->up_count == 0) {
        why = &error;
        opening_failed(pool, why);
    }
    while (pool->opening != NULL) {
        struct session_opening *opening = pool->opening;
        pool->opening = opening->next;
        cqr_session_pool_ready(pool->lane, opening, why);
    }
}

void cqr_link_request(struct pool_link *link, struct conn_request *request)
{
    struct pool *pool = link->pool;
    struct cqlring_cluster *cluster = pool->cluster;
    pool->config.version = (uint8_t)atomic_load_explicit(&cluster->version, memory_order_relaxed);
    *request = (struct conn_request){.cluster = cluster,
                                     .node = link->node,
                                     .address = link->place->address,
                                     .text = link->place->text,
                                     .tls_name = link->place->contact_name,
                                     .config = &pool->config,
                                     .in_flight_max = cluster->inflight_per_connection,
                                     .frame_size_max = cluster->frame_size_max,
                                     .connect_timeout_us = cluster->connect_timeout_us};
}

enum { BURST_MAX = 4, BURST_US = 5000 };

/* A few at a time, scattered: a cluster of hundreds, or a rack that comes back, is not asked for all its handshakes at once, nor by
   all clients in step. By time and not by how many are under way, so that those who never answer do not hold up the others. */
static bool is_turn(struct lane *lane, struct pool_link *link)
{
    struct pool *pool = link->pool;
    if (lane->now_us >= pool->burst_until_us) {
        pool->burst_until_us = lane->now_us + BURST_US;
        pool->burst_count = 0;
    }
    if (pool->burst_count < BURST_MAX) {
        pool->burst_count++;
        return true;
    }
    cqr_wheel_arm(&lane->wheel, &link->timer, pool->burst_until_us + (int64_t)(cqr_random(&lane->random) % BURST_US));
    return false;
}

void cqr_link_connect(struct lane *lane, struct pool_link *link)
{
    struct pool *pool = link->pool;
    struct cqlring_cluster *cluster = pool->cluster;
    if (link->conn != NULL || !link->wanted || pool->closing || lane->stopping)
        return;
    cqr_wheel_disarm(&lane->wheel, &link->timer);
    if (!is_turn(lane, link))
        return;
    struct conn_request request;
    cqr_link_request(link, &request);
    if (lane->conn_count < lane->conn_max)
        link->conn = cqr_conn_create(lane, link, &request);
    if (link->conn == NULL) {
        snprintf(link->last_text, sizeof link->last_text, "%s: %s", link->place->text,
                 lane->conn_count < lane->conn_max ? "out of memory" : "the runtime's connections_max is reached");
        link->last_status = CQLRING_NO_MEMORY;
        link->last_code = 0;
        cqr_wheel_arm(&lane->wheel, &link->timer, lane->now_us + cluster->reconnect_max_us);
        return;
    }
    link->conn->writer.suspect_after_us = cluster->suspect_after_us;
    link->conn->writer.slow_after_us = cluster->policy.slow_after_us;
    pool->connecting_count++;
}

void cqr_link_timer(struct lane *lane, struct pool_link *link)
{
    cqr_link_connect(lane, link);
    opening_check(link->pool);
}

void cqr_link_up(struct lane *lane, struct conn *conn)
{
    struct pool_link *link = conn->home;
    conn->writer.state = WRITER_UP;
    conn->writer.received_us = lane->now_us;
    cqr_count(&lane->stats.connections_opened, 1);
    cqr_wheel_disarm(&lane->wheel, &conn->writer.watch);
    if (!cqr_auth_finished(conn)) {
        char why[200];
        snprintf(why, sizeof why, "%s: the authenticator does not believe the server's last word", conn->text);
        cqr_writer_shut(conn, CQLRING_AUTH, why);
    }
    cqr_auth_end(conn);
    if (conn->writer.shut || link == NULL) { /* given up while it was coming up */
        cqr_transport_shutdown(&conn->transport);
        return;
    }
    conn->writer.up_since_us = lane->now_us;
    cqr_adapt_init(&conn->writer.adapt, ADAPT_FLOOR, ADAPT_START, conn->writer.in_flight_max < ADAPT_CAP ? conn->writer.in_flight_max : ADAPT_CAP);
    if (link->pool != NULL) {
        conn->writer.counted = true;
        atomic_store_explicit(&link->node->version, conn->dialect.version, memory_order_relaxed);
        unsigned before = atomic_fetch_add_explicit(&link->node->connections, 1, memory_order_acq_rel);
        struct node_stats *stats = cqr_node_stats_get(link->node, lane->index, conn->shard.shard_count > 0 ? conn->shard.shard : -1);
        /* release: pairs with the reactor's acquire; what it is made of is seen by whoever counts in it */
        atomic_store_explicit(&conn->stats, stats, memory_order_release);
        if (stats != NULL)
            cqr_count(&stats->connections, 1);
        cqr_conn_publish(conn);
        if (before == 0) {
            /* release: pairs with the acquire in cqr_prepare_ahead */
            atomic_fetch_add_explicit(&link->node->arrivals, 1, memory_order_release);
            cqr_listener_node(lane, cluster_of(link), link->node);
        }
        if (conn != link->conn) {
            cqr_record_open(conn);
            cqr_conn_watch(lane, conn);
            cqr_shards_up(lane, link, conn);
            return;
        }
    }
    link->up = true;
    link->ever_up = true;
    link->up_since_us = lane->now_us;
    link->last_text[0] = '\0';
    cqr_record_open(conn);
    cqr_conn_watch(lane, conn);
    if (link->pool == NULL) {
        link->changed(lane, link, true);
        return;
    }
    struct pool *pool = link->pool;
    pool->connecting_count--;
    pool->up_count++;
    cqr_pool_log(lane, pool, &(struct log_news){.level = CQLRING_LOG_INFO, .event = CQLRING_EVENT_CONNECTED, .node = conn->node}, "connected to %s (v%u%s%s%s)", conn->text, conn->dialect.version,
            conn->compression == COMPRESSION_LZ4 ? ", lz4" : conn->compression == COMPRESSION_SNAPPY ? ", snappy" : "", conn->tls != NULL ? ", " : "", conn->tls != NULL ? cqr_transport_tls_version(&conn->transport) : "");
    lane->waiting_retry = true;
    cqr_prepare_ahead(lane, link);
    cqr_shards_begin(lane, link);
    opening_check(pool);
}

void cqr_link_down(struct lane *lane, struct conn *conn)
{
    struct pool_link *link = conn->home;
    bool was_up = conn->writer.state == WRITER_UP;
    if (was_up)
        cqr_count(&lane->stats.connections_lost, 1);
    if (conn->node != NULL && was_up) {
        struct cqlring_node *node = (struct cqlring_node *)(uintptr_t)conn->node;
        cqr_conn_unpublish(conn);
        if (conn->writer.suspect)
            atomic_fetch_sub_explicit(&node->suspects, 1, memory_order_relaxed);
        if (conn->writer.counted) {
            struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
            unsigned before = atomic_fetch_sub_explicit(&node->connections, 1, memory_order_acq_rel);
            if (stats != NULL)
                cqr_count(&stats->connections, UINT64_MAX);
            if (before == 1)
                cqr_listener_node(lane, conn->cluster, node);
        }
    }
    if (link == NULL)
        return;
    if (link->pool != NULL && link->conn != conn) {
        if (conn->version_next != 0 && !was_up)
            cqr_cluster_version_lower(cluster_of(link), conn->version_next);
        cqr_shards_down(lane, link, conn);
        return;
    }
    if (link->shards != NULL && cqr_shards_replace(lane, link, conn))
        return;
    link->conn = NULL;
    bool link_was_up = link->up;
    link->up = false;
    bool writers = cqr_conn_writer_knows(conn);
    link->last_status = writers ? conn->writer.shut_status : conn->down_status;
    link->last_code = writers ? 0 : conn->down_code;
    snprintf(link->last_text, sizeof link->last_text, "%s", writers ? conn->writer.shut_text : conn->down_text);
    struct cqlring_cluster *cluster = cluster_of(link);
    if (conn->version_next != 0 && !was_up)
        cqr_cluster_version_lower(cluster, conn->version_next);
    if (link->pool == NULL) {
        link->retry_version = conn->version_next != 0 || (conn->again && !was_up);
        link->perhaps_version = conn->version_perhaps;
        link->changed(lane, link, false);
        return;
    }
    struct pool *pool = link->pool;
    if (link_was_up) {
        pool->up_count--;
        cqr_pool_log(lane, pool, &(struct log_news){.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_CONNECTION_LOST, .node = conn->node, .status = link->last_status},
                     "lost the connection to %s: %s", conn->text, link->last_text);
    } else {
        pool->connecting_count--;
    }
    if (!was_up && (conn->version_next != 0 || conn->again)) {
        cqr_link_connect(lane, link);
    } else {
        if (link_was_up && (conn->writer.replaced || lane->now_us - link->up_since_us >= CONN_STABLE_US))
            link->attempts = 0; /* replaced: by ourselves, the node is not to blame */
        else if (link_was_up && !cqr_conn_was_useless(lane, conn))
            link->attempts = 1; /* it lived shortly, but answered: the shortest wait, however often it happens */
        else
            link->attempts++;
        if (!link_was_up)
            cqr_pool_log(lane, pool,
                         &(struct log_news){.level = link->attempts == 1 ? CQLRING_LOG_WARN : CQLRING_LOG_INFO,
                                            .event = CQLRING_EVENT_CONNECT_FAILED,
                                            .node = link->node,
                                            .status = link->last_status,
                                            .server_code = link->last_code},
                         "connect failed (%u): %s", link->attempts, link->last_text);
        if (link->wanted && !pool->closing && !lane->stopping) {
            int64_t delay = cqr_reconnect_delay_us(link->attempts, cluster->reconnect_min_us, cluster->reconnect_max_us, cqr_random(&lane->random));
            if (delay == 0)
                cqr_link_connect(lane, link);
            else
                cqr_wheel_arm(&lane->wheel, &link->timer, lane->now_us + delay);
        }
    }
    lane->waiting_retry = true;
    opening_check(pool);
}

/* Its connections are given up; drain: those that are up once what is under way on them is answered. */
static void link_let_go(struct lane *lane, struct pool_link *link, bool drain, const char *why)
{
    cqr_wheel_disarm(&lane->wheel, &link->timer);
    cqr_shards_end(lane, link, drain, why);
    struct conn *conn = link->conn;
    if (conn == NULL)
        return;
    if (link->up) {
        link->up = false;
        link->pool->up_count--;
    } else {
        link->pool->connecting_count--;
    }
    link->conn = NULL;
    conn->home = NULL;
    if (drain)
        cqr_conn_drain(lane, conn, why);
    else
        cqr_writer_shut(conn, CQLRING_CLOSED, why);
}

static void link_drop(struct lane *lane, struct pool_link *link, const char *why)
{
    link->wanted = false;
    link_let_go(lane, link, false, why);
}

/* The node is elsewhere, and the same node: what is under way at the old address is answered there, or tried again like anything
   else that is lost; new requests wait for the new address, or go to other nodes. */
static void link_place(struct lane *lane, struct pool_link *link, const struct node_place *place)
{
    const struct node_place *before = link->place;
    link->place = place;
    if (cqr_address_equal(&before->address, &place->address))
        return;
    link->attempts = 0;
    link_let_go(lane, link, true, "the node has another address now");
}

/* ---- pools ---- */

static void routes_forget(struct pool *pool)
{
    memset(pool->routes, 0, sizeof pool->routes);
    for (uint32_t i = 0; i < pool->table_count; i++) {
        cqr_replica_table_fini(pool->tables[i]);
        cqr_mem_free(pool->tables[i]);
    }
    pool->table_count = 0;
}

static struct pool_link *link_make(struct pool *pool, struct cqlring_node *node)
{
    struct pool_link *link = cqr_mem_zalloc(sizeof *link);
    if (link == NULL)
        return NULL;
    link->pool = pool;
    link->node = node;
    link->place = cqr_node_place(node);
    link->remote = !node->is_local;
    link->arrivals = atomic_load_explicit(&node->arrivals, memory_order_relaxed);
    link->timer.kind = TIMER_LINK;
    pool->links[node->index] = link;
    return link;
}

void cqr_pool_topology(struct pool *pool, struct topology *topology)
{
    struct lane *lane = pool->lane;
    routes_forget(pool);
    cqr_topology_release(pool->topology);
    pool->topology = cqr_topology_retain(topology);
    cqr_tablets_topology(pool);
    if (topology->place_count > pool->link_count) {
        struct pool_link **links = cqr_mem_realloc(pool->links, topology->place_count * sizeof *links);
        if (links == NULL)
            return; /* the nodes that were known stay; the next snapshot tries again */
        for (uint32_t i = pool->link_count; i < topology->place_count; i++)
            links[i] = NULL;
        pool->links = links;
        pool->link_count = topology->place_count;
    }
    for (uint32_t i = 0; i < pool->link_count; i++)
        if (pool->links[i] != NULL)
            pool->links[i]->seen = false;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        struct cqlring_node *node = topology->nodes[i];
        if (!cqr_node_is_used(&pool->cluster->policy, topology, node))
            continue;
        struct pool_link *link = pool->links[node->index];
        if (link == NULL && (link = link_make(pool, node)) == NULL)
            continue;
        link->seen = true;
        link_place(lane, link, cqr_node_place(node));
        if (!link->wanted) {
            link->wanted = true;
            link->attempts = 0;
        }
        if (link->conn == NULL && link->timer.link == NULL)
            cqr_link_connect(lane, link);
    }
    for (uint32_t i = 0; i < pool->link_count; i++)
        if (pool->links[i] != NULL && !pool->links[i]->seen && pool->links[i]->wanted)
            link_drop(lane, pool->links[i], "the node has left the cluster");
    cqr_pool_only_set(pool);
    lane->waiting_retry = true;
    opening_check(pool);
}

void cqr_pool_node_hint(struct pool *pool, struct cqlring_node *node, bool up)
{
    struct pool_link *link = node->index < pool->link_count ? pool->links[node->index] : NULL;
    if (link == NULL || !up || link->conn != NULL || !link->wanted)
        return; /* DOWN: only the connection itself knows (RC-22) */
    link->attempts = 0;
    cqr_link_connect(pool->lane, link);
}

struct pool *cqr_pool_get(struct lane *lane, struct cqlring_cluster *cluster, const char *keyspace)
{
    for (struct pool *pool = lane->pools; pool != NULL; pool = pool->next)
        if (pool->cluster == cluster && !pool->closing && strcmp(pool->keyspace, keyspace) == 0) {
            pool->users++;
            return pool;
        }
    struct pool *pool = cqr_mem_zalloc(sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->lane = lane;
    pool->cluster = cluster;
    pool->users = 1;
    pool->routes_by_policy = cluster->policy.routes;
    snprintf(pool->keyspace, sizeof pool->keyspace, "%s", keyspace);
    pool->config = cluster->config;
    pool->config.keyspace = cqlring_text(pool->keyspace);
    pool->next = lane->pools;
    lane->pools = pool;
    pthread_mutex_lock(&cluster->lock);
    struct topology *topology = cluster->topology != NULL ? cqr_topology_retain(cluster->topology) : NULL;
    pthread_mutex_unlock(&cluster->lock);
    if (topology != NULL) {
        cqr_pool_topology(pool, topology);
        cqr_topology_release(topology);
    }
    return pool;
}

void cqr_pool_put(struct pool *pool)
{
    if (--pool->users > 0)
        return;
    struct lane *lane = pool->lane;
    pool->closing = true;
    for (uint32_t i = 0; i < pool->link_count; i++)
        if (pool->links[i] != NULL)
            link_drop(lane, pool->links[i], "the session is closed");
    opening_check(pool);
    struct pool **at = &lane->pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    routes_forget(pool);
    cqr_tablets_fini(&pool->tablets);
    cqr_topology_release(pool->topology);
    for (uint32_t i = 0; i < pool->link_count; i++)
        cqr_mem_free(pool->links[i]);
    cqr_mem_free(pool->links);
    cqr_mem_free(pool);
}

void cqr_pool_wait(struct pool *pool, struct session_opening *opening)
{
    opening->next = pool->opening;
    pool->opening = opening;
    opening_check(pool);
}

void cqr_pool_reasons(struct lane *lane, const struct cqlring_session *session, const struct cqlring_node *target, char *text, size_t size)
{
    text[0] = '\0';
    if (session == NULL || size == 0)
        return;
    const struct pool *pool = session->lanes[lane->index].pool;
    for (uint32_t i = 0; pool != NULL && i < pool->link_count; i++) {
        const struct pool_link *link = pool->links[i];
        size_t length = strlen(text);
        if (link != NULL && link->wanted && (target == NULL || link->node == target) && link->last_text[0] != '\0' && length + 2 < size)
            snprintf(text + length, size - length, "%s%s", length > 0 ? "; " : "", link->last_text);
    }
}
