/* SPDX-License-Identifier: Apache-2.0 */

/* See prepare_ahead.h. No storm of it (PS-15): so many at once on a connection, whatever the number of statements, and none when the
   connection is full of requests; those wait their turn for a moment. */

#include "driver/prepare_ahead.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "driver/lane.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "serialize/mem.h"

enum { AT_ONCE_MAX = 16, AGAIN_US = 20000 };

struct prepare_ahead {
    struct prepare_ahead *next;
    struct conn *conn;
    struct timer timer;
    uint32_t under_way;
    uint32_t count, at;
    struct cqlring_prepared *statements[]; /* a reference each, from `at` on */
};

static void ahead_free(struct lane *lane, struct prepare_ahead *ahead)
{
    struct prepare_ahead **at = &lane->aheads;
    while (*at != ahead)
        at = &(*at)->next;
    *at = ahead->next;
    cqr_wheel_disarm(&lane->wheel, &ahead->timer);
    for (uint32_t i = ahead->at; i < ahead->count; i++)
        cqlring_prepared_release(ahead->statements[i]);
    cqr_mem_free(ahead);
}

static struct prepare_ahead *ahead_of(struct lane *lane, const struct conn *conn)
{
    struct prepare_ahead *ahead = lane->aheads;
    while (ahead != NULL && ahead->conn != conn)
        ahead = ahead->next;
    return ahead;
}

static struct prepare_ahead *ahead_make(struct lane *lane, struct conn *conn, uint32_t count)
{
    struct prepare_ahead *ahead = cqr_mem_zalloc(sizeof *ahead + count * sizeof ahead->statements[0]);
    if (ahead == NULL)
        return NULL; /* then rows ask */
    ahead->conn = conn;
    ahead->timer.kind = TIMER_AHEAD;
    ahead->next = lane->aheads;
    lane->aheads = ahead;
    return ahead;
}

static void go_on(struct lane *lane, struct prepare_ahead *ahead)
{
    while (ahead->at < ahead->count && ahead->under_way < AT_ONCE_MAX) {
        struct cqlring_prepared *prepared = ahead->statements[ahead->at];
        /* this reference alone: the application has let it go meanwhile */
        bool is_held = atomic_load_explicit(&prepared->references, memory_order_relaxed) > 1;
        enum reprepare_ahead asked = is_held ? cqr_reprepare_ahead(lane, ahead->conn, prepared) : REPREPARE_KNOWN;
        if (asked == REPREPARE_NO_ROOM) {
            if (ahead->under_way == 0) /* else the end of one of those makes it go on */
                cqr_wheel_arm(&lane->wheel, &ahead->timer, lane->now_us + AGAIN_US);
            return;
        }
        ahead->under_way += asked == REPREPARE_ASKED;
        ahead->at++;
        cqlring_prepared_release(prepared);
    }
    if (ahead->at == ahead->count && ahead->under_way == 0)
        ahead_free(lane, ahead);
}

void cqr_prepare_ahead_next(struct lane *lane, struct conn *conn, bool well)
{
    struct prepare_ahead *ahead = ahead_of(lane, conn);
    if (ahead == NULL)
        return;
    assert(ahead->under_way > 0);
    ahead->under_way--;
    while (!well && ahead->at < ahead->count) /* it has other troubles; what rows need is prepared when they need it */
        cqlring_prepared_release(ahead->statements[ahead->at++]);
    go_on(lane, ahead); /* it stays until the last answer: another record must not count these */
}

void cqr_prepare_ahead_lost(struct lane *lane, struct conn *conn)
{
    struct prepare_ahead *ahead = ahead_of(lane, conn);
    if (ahead != NULL)
        ahead_free(lane, ahead);
}

void cqr_prepare_ahead_timer(struct lane *lane, struct timer *timer)
{
    go_on(lane, (struct prepare_ahead *)(void *)((char *)timer - offsetof(struct prepare_ahead, timer)));
}

/* Is it this pool's to prepare? Its text means what it meant in its keyspace only, or anywhere when the PREPARE can name that; then,
   when no pool is in it, the first pool of the cluster takes it. */
static bool is_of(const struct pool *pool, const struct conn *conn, const struct cqlring_prepared *prepared)
{
    if (strcmp(prepared->keyspace, pool->keyspace) == 0)
        return true;
    if (prepared->keyspace[0] == '\0' || conn->dialect.version < PROTO_V5)
        return false;
    const struct pool *first = NULL;
    for (const struct pool *other = pool->lane->pools; other != NULL; other = other->next) {
        if (other->cluster != pool->cluster)
            continue;
        if (strcmp(prepared->keyspace, other->keyspace) == 0)
            return false;
        first = first != NULL ? first : other;
    }
    return pool == first;
}

/* Those that are to be prepared, counted, or a reference of each taken into out. Under the cluster's lock. */
static uint32_t collect(const struct pool *pool, const struct conn *conn, struct cqlring_prepared **out, uint32_t capacity)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PREPARED_BUCKETS; i++)
        for (struct cqlring_prepared *prepared = pool->cluster->prepared.buckets[i]; prepared != NULL; prepared = prepared->next) {
            if (!prepared->ready || !is_of(pool, conn, prepared))
                continue;
            if (count < capacity)
                out[count] = cqr_prepared_retain(prepared);
            count++;
        }
    return count;
}

void cqr_prepare_ahead(struct lane *lane, struct pool_link *link)
{
    struct pool *pool = link->pool;
    struct cqlring_cluster *cluster = pool->cluster;
    /* acquire: pairs with the count in cqr_link_up, by whichever lane was the first to be connected again */
    unsigned arrivals = atomic_load_explicit(&link->node->arrivals, memory_order_acquire);
    if (lane->index != 0 || link->arrivals == arrivals)
        return;
    link->arrivals = arrivals;
    if (!cluster->prepare_on_up || link->conn->writer.shut)
        return;
    struct prepare_ahead *ahead = NULL;
    pthread_mutex_lock(&cluster->lock);
    uint32_t count = collect(pool, link->conn, NULL, 0);
    if (count > 0)
        ahead = ahead_make(lane, link->conn, count);
    if (ahead != NULL)
        ahead->count = collect(pool, link->conn, ahead->statements, count);
    pthread_mutex_unlock(&cluster->lock);
    if (ahead != NULL)
        go_on(lane, ahead);
}

/* ---- a new statement ---- */

/* One more for this connection, behind those that are waiting. */
static void ahead_add(struct lane *lane, struct conn *conn, struct cqlring_prepared *prepared)
{
    struct prepare_ahead *old = ahead_of(lane, conn);
    uint32_t waiting = old != NULL ? old->count - old->at : 0;
    struct prepare_ahead *ahead = ahead_make(lane, conn, waiting + 1);
    if (ahead == NULL)
        return;
    if (old != NULL) {
        memcpy(ahead->statements, old->statements + old->at, waiting * sizeof old->statements[0]);
        ahead->under_way = old->under_way;
        old->at = old->count; /* handed over */
        ahead_free(lane, old);
    }
    ahead->statements[waiting] = cqr_prepared_retain(prepared);
    ahead->count = waiting + 1;
    go_on(lane, ahead);
}

void cqr_prepare_on_all(struct lane *lane, struct cqlring_prepared *prepared, const struct cqlring_node *answered)
{
    struct cqlring_cluster *cluster = prepared->cluster;
    for (struct pool *pool = lane->pools; pool != NULL; pool = pool->next) {
        for (uint32_t i = 0; pool->cluster == cluster && !pool->closing && i < pool->link_count; i++) {
            struct pool_link *link = pool->links[i];
            if (link != NULL && link->up && link->conn != NULL && !link->conn->writer.shut && link->node != answered && is_of(pool, link->conn, prepared))
                ahead_add(lane, link->conn, prepared);
        }
    }
}
