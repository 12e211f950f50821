/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/agreement.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/control_rows.h"
#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/schema.h"
#include "driver/session.h"

enum { POLL_US = 200000, QUERY_TIMEOUT_US = 5000000 };

/* One that waits: goes to the desk as a message, and comes back to its own lane as one. */
struct agreement {
    struct lane_message message;
    struct agreement *next;          /* the desk's list */
    struct agreement *lane_next;     /* the asking lane's list */
    struct cqlring_cluster *cluster; /* a reference */
    struct lane *lane;
    struct op *op;                   /* the lane's; NULL: settled meanwhile */
    const struct cqlring_node *coordinator; /* who made the change: others may still agree on what was before. NULL: asked for on demand */
    cqlring_future *future;          /* asked for on demand: no op; completed by the desk */
    int64_t deadline_us;
    uint32_t since;                  /* the poll that was under way, or the last, when it came */
    bool agreed;
    char keyspace[64], table[64];    /* what changed, for the schema's snapshot; table "": not one, or not one alone */
};

struct agreement_desk {
    struct cqlring_cluster *cluster;
    struct lane *lane;
    struct timer timer;              /* armed while anybody waits */
    struct agreement *waiting;
    uint32_t poll;                   /* counts them */
    const struct cqlring_node *asked; /* the coordinator for whose changes the poll under way, or the last, is */
    bool polling;
    bool stopped;
    bool old_peers;                  /* no system.peers_v2 here */
    bool has_local;
    uint8_t local[16];
};

/* ---- the asking lane ---- */

static void agreement_free(struct agreement *agreement)
{
    struct cqlring_cluster *cluster = agreement->cluster;
    cqr_mem_free(agreement);
    cqr_cluster_release(cluster);
}

static void desk_take(struct lane *lane, struct lane_message *message);

bool cqr_agreement_begin(struct lane *lane, struct op *op)
{
    struct cqlring_cluster *cluster = op->plan->session != NULL ? op->plan->session->cluster : NULL;
    if (cluster == NULL || cluster->agreement_us < 0 || op->cancelled)
        return false;
    op->result->agreed = 0;
    struct agreement *agreement = cqr_mem_zalloc(sizeof *agreement);
    if (agreement == NULL) {
        cqr_log(&lane->runtime->log, CQLRING_LOG_WARN, "out of memory: a change of the schema is not waited for");
        return false;
    }
    agreement->message.run = desk_take;
    agreement->cluster = cqr_cluster_retain(cluster);
    agreement->lane = lane;
    agreement->op = op;
    agreement->coordinator = op->node;
    agreement->deadline_us = cqr_deadline_us(lane->now_us, cluster->agreement_us);
    const struct schema_change *change = &op->result->schema;
    if (change->keyspace.size > 0 && (size_t)change->keyspace.size < sizeof agreement->keyspace)
        memcpy(agreement->keyspace, change->keyspace.data, (size_t)change->keyspace.size);
    if (change->target.size == 5 && memcmp(change->target.data, "TABLE", 5) == 0 && change->name.size > 0 &&
        (size_t)change->name.size < sizeof agreement->table)
        memcpy(agreement->table, change->name.data, (size_t)change->name.size);
    if (!cqr_lane_post(&cluster->runtime->lanes[0], &agreement->message)) {
        agreement_free(agreement);
        return false;
    }
    agreement->lane_next = lane->agreements;
    lane->agreements = agreement;
    op->state = OP_WAIT_AGREEMENT;
    cqr_wheel_arm(&lane->wheel, &op->timer, agreement->deadline_us);
    return true;
}

static void settle(struct lane *lane, struct agreement *agreement, bool agreed)
{
    for (struct agreement **at = &lane->agreements; *at != NULL; at = &(*at)->lane_next)
        if (*at == agreement) {
            *at = agreement->lane_next;
            break;
        }
    struct op *op = agreement->op;
    agreement->op = NULL;
    op->result->agreed = agreed;
    cqr_op_settle(lane, op, CQLRING_OK, NULL);
}

void cqr_agreement_give_up(struct lane *lane, struct op *op)
{
    assert(op->state == OP_WAIT_AGREEMENT);
    struct agreement *agreement = lane->agreements;
    while (agreement->op != op)
        agreement = agreement->lane_next;
    settle(lane, agreement, false); /* the desk still has it, and gives it back later */
}

static void come_back(struct lane *lane, struct lane_message *message)
{
    struct agreement *agreement = (struct agreement *)(void *)message;
    if (agreement->op != NULL)
        settle(lane, agreement, agreement->agreed);
    agreement_free(agreement);
}

/* ---- the desk ---- */

static void answer(struct agreement_desk *desk, struct agreement *agreement, bool agreed)
{
    agreement->agreed = agreed;
    if (agreement->future != NULL) {
        cqlring_future *future = agreement->future;
        if (!agreed) {
            cqlring_status status = desk->stopped ? CQLRING_CLOSED : CQLRING_TIMEOUT;
            future->status = status;
            future->error = &cqr_failure_make(status, desk->stopped ? "schema agreement: the cluster is closed"
                                                                    : "schema agreement: the nodes did not name the same schema_version in time")
                                 ->error;
        }
        agreement_free(agreement);
        cqr_future_complete(future);
        return;
    }
    agreement->message.run = come_back;
    if (agreement->lane == desk->lane)
        come_back(desk->lane, &agreement->message);
    else if (!cqr_lane_post(agreement->lane, &agreement->message))
        agreement_free(agreement); /* the lane has ended, and its ops with it */
}

/* Those that came before poll number `before` of their coordinator began, or (not agreed) whose time is over. */
static void answer_some(struct agreement_desk *desk, bool agreed, uint32_t before)
{
    struct agreement *answered = NULL;
    for (struct agreement **at = &desk->waiting; *at != NULL;) {
        struct agreement *agreement = *at;
        bool through = agreed ? (int32_t)(before - agreement->since) > 0 && (agreement->coordinator == NULL || agreement->coordinator == desk->asked) : desk->lane->now_us >= agreement->deadline_us || desk->stopped;
        if (!through) {
            at = &agreement->next;
            continue;
        }
        *at = agreement->next;
        agreement->next = answered;
        answered = agreement;
    }
    while (answered != NULL) { /* they may bring new ones */
        struct agreement *agreement = answered;
        answered = agreement->next;
        answer(desk, agreement, agreed);
    }
}

static bool is_down(struct agreement_desk *desk, const struct cqlring_node *node)
{
    if (atomic_load_explicit(&((struct cqlring_node *)(uintptr_t)node)->connections, memory_order_relaxed) > 0)
        return false;
    if (!node->is_local)
        return true; /* nobody looks */
    for (const struct pool *pool = desk->lane->pools; pool != NULL; pool = pool->next)
        if (pool->cluster == desk->cluster && node->index < pool->link_count && pool->links[node->index] != NULL &&
            pool->links[node->index]->attempts > 0)
            return true;
    return false;
}

/* Does everybody who counts have the control node's version? */
static bool peers_agree(struct agreement_desk *desk, cqlring_result *peers)
{
    const struct topology *topology = desk->cluster->topology;
    cqlring_bytes cells[2];
    uint32_t count = 0;
    if (cqlring_result_column_count(peers) != 2)
        return false;
    for (uint32_t i = 0; i < cqlring_result_row_count(peers); i++) {
        if (cqlring_result_rows(peers, i, cells, 1, &count, NULL) != CQLRING_OK || count != 1)
            return false;
        if (cells[0].size != 16 || cells[1].size != 16 || memcmp(cells[1].data, desk->local, 16) == 0)
            continue;
        for (uint32_t n = 0; n < topology->node_count; n++)
            if (memcmp(topology->nodes[n]->host_id, cells[0].data, 16) == 0 && !is_down(desk, topology->nodes[n]))
                return false;
    }
    return true;
}

static void peers_done(struct lane *lane, struct op *op, void *context)
{
    struct agreement_desk *desk = context;
    (void)lane;
    desk->polling = false;
    if (desk->stopped)
        return;
    if (op->status == CQLRING_SERVER)
        desk->old_peers = !desk->old_peers; /* the next poll asks the other table */
    if (op->status != CQLRING_OK || op->result == NULL || !peers_agree(desk, op->result))
        return; /* the timer asks again */
    answer_some(desk, true, desk->poll);
    if (desk->waiting == NULL)
        cqr_wheel_disarm(&desk->lane->wheel, &desk->timer);
}

/* Lane 0's connection to that node; the control connection where there is none. */
static struct conn *conn_to(struct agreement_desk *desk, const struct cqlring_node *node)
{
    for (struct pool *pool = node != NULL ? desk->lane->pools : NULL; pool != NULL; pool = pool->next) {
        const struct pool_link *link = pool->cluster == desk->cluster && node->index < pool->link_count ? pool->links[node->index] : NULL;
        if (link != NULL && link->up && cqr_writer_has_room(link->conn))
            return link->conn;
    }
    return cqr_control_conn(desk->cluster);
}

/* One of those who made the changes that are waited for, each in turn. */
static const struct cqlring_node *next_asked(const struct agreement_desk *desk)
{
    uint32_t count = 0;
    for (const struct agreement *agreement = desk->waiting; agreement != NULL; agreement = agreement->next)
        count++;
    const struct agreement *agreement = desk->waiting;
    for (uint32_t i = count > 0 ? desk->poll % count : 0; i > 0; i--)
        agreement = agreement->next;
    return agreement != NULL ? agreement->coordinator : NULL;
}

static void local_done(struct lane *lane, struct op *op, void *context)
{
    struct agreement_desk *desk = context;
    struct conn *conn = desk->stopped || op->status != CQLRING_OK ? NULL : op->conn;
    cqlring_bytes cell;
    uint32_t count = 0;
    desk->polling = false;
    if (conn == NULL || op->status != CQLRING_OK || op->result == NULL || cqlring_result_column_count(op->result) != 1 ||
        cqlring_result_rows(op->result, 0, &cell, 1, &count, NULL) != CQLRING_OK || count != 1 || cell.size != 16)
        return;
    memcpy(desk->local, cell.data, 16);
    desk->polling = cqr_own_request(lane, conn, OPCODE_QUERY,
                                    cqlring_text(desk->old_peers ? "SELECT host_id, schema_version FROM system.peers"
                                                                 : "SELECT host_id, schema_version FROM system.peers_v2"),
                                    (cqlring_bytes){NULL, 0}, QUERY_TIMEOUT_US, peers_done, desk);
}

static void poll(struct agreement_desk *desk)
{
    if (desk->polling)
        return;
    desk->asked = next_asked(desk);
    struct conn *conn = conn_to(desk, desk->asked);
    if (conn == NULL)
        return;
    desk->polling = cqr_own_request(desk->lane, conn, OPCODE_QUERY, cqlring_text("SELECT schema_version FROM system.local WHERE key='local'"),
                                    (cqlring_bytes){NULL, 0}, QUERY_TIMEOUT_US, local_done, desk);
    if (desk->polling)
        desk->poll++;
}

void cqr_agreement_timer(struct lane *lane, struct timer *timer)
{
    struct agreement_desk *desk = (struct agreement_desk *)(void *)((char *)timer - offsetof(struct agreement_desk, timer));
    answer_some(desk, false, 0);
    if (desk->waiting == NULL || desk->stopped)
        return;
    poll(desk);
    cqr_wheel_arm(&lane->wheel, &desk->timer, lane->now_us + POLL_US);
}

static void desk_take(struct lane *lane, struct lane_message *message)
{
    struct agreement *agreement = (struct agreement *)(void *)message;
    struct agreement_desk *desk = agreement->cluster->agreement;
    if (agreement->keyspace[0] != '\0')
        cqr_schema_changed(agreement->cluster, cqlring_text(agreement->keyspace), cqlring_text(agreement->table));
    if (desk->stopped) {
        answer(desk, agreement, false);
        return;
    }
    agreement->since = desk->poll;
    agreement->next = desk->waiting;
    desk->waiting = agreement;
    poll(desk);
    if (desk->timer.link == NULL)
        cqr_wheel_arm(&lane->wheel, &desk->timer, lane->now_us + POLL_US);
}

struct agreement_desk *cqr_agreement_create(struct cqlring_cluster *cluster)
{
    struct agreement_desk *desk = cqr_mem_zalloc(sizeof *desk);
    if (desk == NULL)
        return NULL;
    desk->cluster = cluster;
    desk->lane = &cluster->runtime->lanes[0];
    desk->timer.kind = TIMER_AGREEMENT;
    return desk;
}

void cqr_agreement_stop(struct agreement_desk *desk)
{
    desk->stopped = true;
    cqr_wheel_disarm(&desk->lane->wheel, &desk->timer);
    answer_some(desk, false, 0);
}

void cqr_agreement_free(struct agreement_desk *desk)
{
    cqr_mem_free(desk);
}

/* ---- on demand ---- */

cqlring_status cqlring_schema_agree(cqlring_cluster *cluster, int64_t timeout_us, cqlring_future **future, cqlring_error *error)
{
    if (cluster == NULL || future == NULL || timeout_us < 0)
        return cqr_error(error, CQLRING_INVALID, "cqlring_schema_agree: cluster and future must be given, and a time-out of 0 (the default) or microseconds");
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_schema_agree: the cluster belongs to the parent process; open one in the child");
    if (atomic_load_explicit(&cluster->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_schema_agree: the cluster is closed");
    struct lane *lane = &cluster->runtime->lanes[0];
    struct agreement *agreement = cqr_mem_zalloc(sizeof *agreement);
    cqlring_future *own = agreement == NULL ? NULL : cqr_close_future(cluster->runtime);
    if (own == NULL) {
        cqr_mem_free(agreement);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_schema_agree: out of memory");
    }
    if (timeout_us == 0)
        timeout_us = cluster->agreement_us > 0 ? cluster->agreement_us : AGREEMENT_DEFAULT_US;
    agreement->message.run = desk_take;
    agreement->cluster = cqr_cluster_retain(cluster);
    agreement->lane = lane;
    agreement->future = own;
    agreement->deadline_us = cqr_deadline_us(lane->net->call->now_us(lane->net), timeout_us);
    *future = own;
    if (cqr_lane_post(lane, &agreement->message))
        return CQLRING_OK;
    *future = NULL;
    agreement_free(agreement);
    cqlring_future_release(own);
    cqlring_future_release(own);
    return cqr_error(error, CQLRING_CLOSED, "cqlring_schema_agree: the runtime has ended");
}
