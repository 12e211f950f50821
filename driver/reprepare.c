/* SPDX-License-Identifier: Apache-2.0 */

/* A node answered UNPREPARED: the statement is prepared on it again, once for all requests that wait, and then they go on as if
   nothing had been, unless what they carry was made for another version of it. When a node has forgotten everything it is asked for a
   few at a time, so that rows get through in between (PS-15). Submitter. */

#include <string.h>

#include "driver/execution.h"
#include "driver/lane.h"
#include "driver/prepare_ahead.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "serialize/mem.h"
#include "serialize/type.h"

enum {
    REPREPARE_TIMEOUT_US = 3000000, /* as an attempt: then another node is asked */
    ASKED_MAX = 32                  /* at once, for a connection */
};

struct reprepare {
    struct reprepare *next;
    struct cqlring_prepared *prepared;
    struct conn *conn;  /* whose node did not know it; NULL: it is down meanwhile */
    struct op *waiting; /* through op->link */
    uint32_t node;      /* conn's, & 63: a bit of op->tried */
    bool asked;         /* the PREPARE is under way, perhaps on another connection; else its turn is later */
    bool ahead;         /* before anybody needed it (prepare_ahead.h) */
};

static void ask_more(struct lane *lane, struct conn *conn);

void cqr_reprepare_forget(struct lane *lane, struct op *op)
{
    for (struct reprepare *reprepare = lane->reprepares; reprepare != NULL; reprepare = reprepare->next)
        for (struct op **at = &reprepare->waiting; *at != NULL; at = &(*at)->link)
            if (*at == op) {
                *at = op->link;
                op->link = NULL;
                return;
            }
}

static bool version_outdated(const struct statement_version *was, const struct statement_version *now, bool by_id)
{
    if (was == now)
        return false;
    bool same_id = was->id_size == now->id_size && memcmp(was->id, now->id, now->id_size) == 0;
    return !cqr_markers_equal(was, now) || (by_id && !same_id);
}

/* PS-12: were the op's bytes made for other types (or, a batch's, with another id) than the statement now has? NULL: no. */
static struct failure *values_outdated(const struct op *op, const struct statement_version *version)
{
    const struct statement_version *was = op->version;
    uint32_t index = 0;
    if (op->plan->opcode == OPCODE_BATCH) {
        const struct request_body *body = op->body;
        while (index < body->prepared_count && (body->prepared[index] != version->prepared || !version_outdated(body->versions[index], version, true)))
            index++;
        if (index == body->prepared_count)
            return NULL;
        was = body->versions[index];
    } else if (!version_outdated(was, version, false)) {
        return NULL;
    }
    const struct columns *old = &was->bind->columns, *now = &version->bind->columns;
    uint32_t i = 0;
    while (i < old->count && i < now->count && cqr_type_equal(old->array[i].type, now->array[i].type))
        i++;
    if (i == old->count && i == now->count)
        return cqr_failure_make(CQLRING_TYPE, "%s: a statement has another id on the server since the batch was made: make it again", cqr_opcode_name(op->plan->opcode));
    return cqr_failure_make(CQLRING_TYPE, "%s: the type of bind marker \"%.*s\" has changed on the server since the statement was prepared: bind the values again",
                            cqr_opcode_name(op->plan->opcode), i < old->count ? old->array[i].name.size : 1,
                            i < old->count ? (const char *)old->array[i].name.data : "?");
}

static void reprepare_end(struct lane *lane, struct reprepare *reprepare, struct conn *conn, struct statement_version *version, struct failure *failure)
{
    struct failure *changed = NULL;
    struct reprepare **at = &lane->reprepares;
    while (*at != reprepare)
        at = &(*at)->next;
    *at = reprepare->next;
    struct op *op = reprepare->waiting;
    while (op != NULL) {
        struct op *next = op->link;
        op->link = NULL;
        cqr_wheel_disarm(&lane->wheel, &op->timer);
        if (version == NULL) {
            struct failure *own = cqr_failure_copy(&failure->error);
            cqr_op_settle(lane, op, own->error.status, own);
        } else if ((changed = values_outdated(op, version)) != NULL) {
            cqr_op_settle(lane, op, CQLRING_TYPE, changed);
        } else {
            if (op->plan->opcode == OPCODE_EXECUTE)
                op->version = version;
            op->state = OP_NEW;
            if (conn != NULL && op->conn == conn)
                cqr_op_issue_on(lane, op, conn);
            else
                cqr_op_issue(lane, op);
        }
        op = next;
    }
    cqlring_prepared_release(reprepare->prepared);
    cqr_mem_free(reprepare);
}

/* The keyspace in which its text means what it meant. v5 can say so in the PREPARE; on v4 the same node is asked on a
   connection that is in it. Where there is none, cqr_prepared_learn tells whether the answer is the same statement. */
static struct conn *conn_to_prepare(struct lane *lane, struct conn *conn, const struct cqlring_prepared *prepared, cqlring_bytes *keyspace)
{
    *keyspace = (cqlring_bytes){NULL, 0};
    const struct pool *pool = conn->home != NULL ? conn->home->pool : NULL;
    bool is_same = pool != NULL && strcmp(pool->keyspace, prepared->keyspace) == 0;
    if (prepared->request_keyspace || (!is_same && prepared->keyspace[0] != '\0' && conn->dialect.version >= PROTO_V5)) {
        *keyspace = cqlring_text(prepared->keyspace);
        return conn;
    }
    if (is_same || conn->node == NULL)
        return conn;
    for (pool = lane->pools; pool != NULL; pool = pool->next) {
        const struct pool_link *link = conn->node->index < pool->link_count ? pool->links[conn->node->index] : NULL;
        if (pool->cluster == prepared->cluster && strcmp(pool->keyspace, prepared->keyspace) == 0 && link != NULL && link->up && cqr_writer_has_room(link->conn))
            return link->conn;
    }
    return conn;
}

static void reprepare_done(struct lane *lane, struct op *own, void *context)
{
    struct reprepare *reprepare = context;
    struct conn *conn = reprepare->conn, *again = conn;
    struct statement_version *version = NULL;
    struct failure *failure = NULL;
    bool ahead = reprepare->ahead, well = own->status != CQLRING_LOST && own->status != CQLRING_TIMEOUT;
    if (own->status == CQLRING_OK) {
        if (cqr_prepared_learn(reprepare->prepared, &own->conn->dialect, own->reply_body, &version, &failure) == CQLRING_OK)
            cqr_count(ahead ? &lane->stats.prepared_ahead : &lane->stats.reprepares, 1);
    } else if (!well) {
        version = cqr_prepared_version(reprepare->prepared); /* try on another connection, preferably of another node */
        if (own->status == CQLRING_TIMEOUT)
            for (struct op *op = reprepare->waiting; op != NULL; op = op->link)
                op->tried |= UINT64_C(1) << reprepare->node;
        again = NULL;
    }
    reprepare_end(lane, reprepare, again, version, failure != NULL ? failure : own->failure);
    if (failure != NULL)
        cqr_failure_free(&failure->error);
    if (conn != NULL)
        ask_more(lane, conn);
    if (conn != NULL && ahead)
        cqr_prepare_ahead_next(lane, conn, well);
}

static bool ask(struct lane *lane, struct reprepare *reprepare)
{
    const struct cqlring_prepared *prepared = reprepare->prepared;
    cqlring_bytes keyspace;
    struct conn *asked = conn_to_prepare(lane, reprepare->conn, prepared, &keyspace);
    reprepare->asked = cqr_own_request(lane, asked, OPCODE_PREPARE, (cqlring_bytes){prepared->text, (int32_t)prepared->text_size}, keyspace,
                                       REPREPARE_TIMEOUT_US, reprepare_done, reprepare);
    return reprepare->asked;
}

/* As many of conn's as may be under way, oldest first. Those for which there is no room wait for the end of another, and if there is
   none their rows go elsewhere, or wait as all rows do. */
static void ask_more(struct lane *lane, struct conn *conn)
{
    for (;;) {
        uint32_t asked = 0;
        struct reprepare *oldest = NULL;
        for (struct reprepare *reprepare = lane->reprepares; reprepare != NULL; reprepare = reprepare->next)
            if (reprepare->conn == conn) {
                asked += reprepare->asked;
                if (!reprepare->asked)
                    oldest = reprepare;
            }
        if (oldest == NULL || asked >= ASKED_MAX)
            return;
        if (oldest->waiting == NULL) { /* those who waited have given up */
            reprepare_end(lane, oldest, NULL, NULL, NULL);
        } else if (!ask(lane, oldest)) {
            if (asked > 0)
                return;
            reprepare_end(lane, oldest, NULL, cqr_prepared_version(oldest->prepared), NULL);
        }
    }
}

void cqr_reprepare_lost(struct lane *lane, struct conn *conn)
{
    struct reprepare *reprepare = lane->reprepares;
    while (reprepare != NULL) {
        if (reprepare->conn != conn) {
            reprepare = reprepare->next;
            continue;
        }
        reprepare->conn = NULL;
        if (reprepare->asked) { /* on another connection of the node, which will tell */
            reprepare = reprepare->next;
            continue;
        }
        reprepare_end(lane, reprepare, NULL, cqr_prepared_version(reprepare->prepared), NULL);
        reprepare = lane->reprepares;
    }
}

/* The one under way on the same node: what one connection prepares, a node's shards know all. NULL: there is none. */
static struct reprepare *find(const struct lane *lane, const struct conn *conn, const struct cqlring_prepared *prepared)
{
    struct reprepare *reprepare = lane->reprepares;
    while (reprepare != NULL && (reprepare->prepared != prepared || (reprepare->conn != conn && (reprepare->conn == NULL || conn->home == NULL ||
                                                                                                 reprepare->conn->home != conn->home))))
        reprepare = reprepare->next;
    return reprepare;
}

static struct reprepare *make(struct lane *lane, struct conn *conn, struct cqlring_prepared *prepared)
{
    struct reprepare *reprepare = cqr_mem_zalloc(sizeof *reprepare);
    if (reprepare == NULL)
        return NULL;
    reprepare->prepared = cqr_prepared_retain(prepared);
    reprepare->conn = conn;
    reprepare->node = conn->node != NULL ? conn->node->index & 63 : 63;
    reprepare->next = lane->reprepares;
    lane->reprepares = reprepare;
    return reprepare;
}

enum reprepare_ahead cqr_reprepare_ahead(struct lane *lane, struct conn *conn, struct cqlring_prepared *prepared)
{
    if (find(lane, conn, prepared) != NULL)
        return REPREPARE_KNOWN;
    struct reprepare *reprepare = cqr_writer_has_room(conn) ? make(lane, conn, prepared) : NULL;
    if (reprepare == NULL)
        return REPREPARE_NO_ROOM;
    reprepare->ahead = true;
    if (ask(lane, reprepare))
        return REPREPARE_ASKED;
    reprepare_end(lane, reprepare, NULL, NULL, NULL);
    return REPREPARE_NO_ROOM;
}

void cqr_reprepare(struct lane *lane, struct op *op, struct cqlring_prepared *prepared)
{
    struct conn *conn = op->conn;
    struct reprepare *reprepare = find(lane, conn, prepared);
    op->state = OP_WAIT_PREPARE;
    op->phase = CQLRING_NOT_SENT; /* it was refused as unknown: nothing was done */
    bool is_new = reprepare == NULL;
    if (is_new) {
        reprepare = make(lane, conn, prepared);
        if (reprepare == NULL) {
            cqr_op_settle(lane, op, CQLRING_NO_MEMORY, cqr_failure_make(CQLRING_NO_MEMORY, "EXECUTE: out of memory for a re-prepare"));
            return;
        }
    }
    op->link = reprepare->waiting;
    reprepare->waiting = op;
    if (op->deadline_us != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, op->deadline_us);
    if (is_new)
        ask_more(lane, conn);
}
