/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/schema.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cql/response.h"
#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/schema_rows.h"
#include "driver/session.h"

enum {
    PAGE_ROWS = 500,             /* are worked in within half a millisecond */
    QUERY_TIMEOUT_US = 12000000,
    REFRESH_TIMEOUT_US = 60000000,
    DEBOUNCE_US = 1000000,
    AGAIN_MIN_US = 2000000,      /* after a reading that failed, doubling */
    AGAIN_MAX_US = 64000000,
    CHANGED_MAX = 16             /* tables or keyspaces read by themselves; more are all of them */
};

/* Somebody who waits for a reading that begins from now on. */
struct refresh {
    struct lane_message message;
    struct refresh *next;
    struct cqlring_cluster *cluster; /* a reference */
    cqlring_future *future;
    int64_t deadline_us;
};

struct changes {
    struct change {
        char keyspace[64], table[64]; /* table "": the whole keyspace */
    } list[CHANGED_MAX];
    uint32_t count;
    bool all;
};

struct schema_desk {
    struct cqlring_cluster *cluster;
    struct lane *lane;
    struct timer timer;              /* the next reading, or whoever has waited long enough */
    bool wanted;                     /* somebody cares for it */
    bool stopped;
    struct changes changed;          /* since the last reading began */
    int64_t due_us;                  /* when they are read; INT64_MAX: nothing is planned */
    uint32_t failures;               /* readings in a row */
    struct refresh *waiting;         /* for the next reading */

    bool reading;
    struct changes read;             /* what is being read … */
    bool tables_alone;               /* … which is some tables of one keyspace */
    enum schema_query query;
    bool is_scylla;
    struct schema_draft draft;
    cqlring_result *page;            /* whose paging state was sent */
    struct refresh *served;          /* by this reading */
};

static void arm(struct schema_desk *desk)
{
    int64_t at = desk->reading ? INT64_MAX : desk->due_us;
    for (int list = 0; list < 2; list++)
        for (const struct refresh *refresh = list == 0 ? desk->waiting : desk->served; refresh != NULL; refresh = refresh->next)
            if (refresh->deadline_us < at)
                at = refresh->deadline_us;
    if (at == INT64_MAX || desk->stopped)
        cqr_wheel_disarm(&desk->lane->wheel, &desk->timer);
    else
        cqr_wheel_arm(&desk->lane->wheel, &desk->timer, at);
}

static void plan(struct schema_desk *desk, int64_t in_us)
{
    int64_t at = desk->lane->now_us + in_us;
    if (at < desk->due_us)
        desk->due_us = at;
    arm(desk);
}

static bool name_take(char out[64], cqlring_bytes name)
{
    memset(out, 0, 64);
    if (name.size <= 0 || name.size > 63)
        return false;
    memcpy(out, name.data, (size_t)name.size);
    return true;
}

/* Tables of several keyspaces, or beside other things: then it is their keyspaces, each once. */
static void changes_widen(struct changes *changes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < changes->count; i++) {
        uint32_t j = 0;
        while (j < kept && strcmp(changes->list[j].keyspace, changes->list[i].keyspace) != 0)
            j++;
        if (j < kept)
            continue;
        changes->list[kept] = changes->list[i];
        changes->list[kept++].table[0] = '\0';
    }
    changes->count = kept;
}

static bool changes_have(const struct changes *changes, const struct change *change)
{
    for (uint32_t i = 0; i < changes->count; i++)
        if (strcmp(changes->list[i].keyspace, change->keyspace) == 0 &&
            (changes->list[i].table[0] == '\0' || strcmp(changes->list[i].table, change->table) == 0))
            return true;
    return false;
}

static void changes_add(struct changes *changes, cqlring_bytes keyspace, cqlring_bytes table)
{
    struct change change;
    if (changes->all)
        return;
    changes->all = !name_take(change.keyspace, keyspace);
    (void)name_take(change.table, table); /* one with a longer name is the whole keyspace */
    if (changes->count == CHANGED_MAX)
        changes_widen(changes);
    if (changes_have(changes, &change))
        return;
    if (changes->count < CHANGED_MAX)
        changes->list[changes->count++] = change;
    else
        changes->all = true;
}

static void refresh_done(struct refresh *refresh, struct failure *failure)
{
    cqlring_future *future = refresh->future;
    struct cqlring_cluster *cluster = refresh->cluster;
    if (failure != NULL) {
        future->status = failure->error.status;
        future->error = &failure->error;
    }
    cqr_mem_free(refresh);
    cqr_future_complete(future);
    cqr_cluster_release(cluster);
}

/* All of a list: it is taken first, since whoever is told may ask again. */
static void refreshes_done(struct refresh **list, cqlring_status status, const char *why)
{
    struct refresh *refresh = *list;
    *list = NULL;
    for (struct refresh *next; refresh != NULL; refresh = next) {
        next = refresh->next;
        refresh_done(refresh, status == CQLRING_OK ? NULL : cqr_failure_make(status, "schema: %s", why));
    }
}

static void refreshes_expire(struct refresh **list, int64_t now_us)
{
    struct refresh *expired = NULL;
    while (*list != NULL) {
        struct refresh *refresh = *list;
        if (now_us < refresh->deadline_us) {
            list = &refresh->next;
            continue;
        }
        *list = refresh->next;
        refresh->next = expired;
        expired = refresh;
    }
    refreshes_done(&expired, CQLRING_TIMEOUT, "it could not be read in 60 s");
}

/* ---- a reading ---- */

static void ask_page(struct schema_desk *desk);

/* The reading is over without an outcome: what it was about has still to be read. */
static void reading_drop(struct schema_desk *desk)
{
    desk->reading = false;
    cqr_schema_draft_fini(&desk->draft);
    cqlring_result_release(desk->page);
    desk->page = NULL;
    desk->changed.all = desk->changed.all || desk->read.all;
    for (uint32_t i = 0; i < desk->read.count; i++)
        changes_add(&desk->changed, cqlring_text(desk->read.list[i].keyspace), cqlring_text(desk->read.list[i].table));
}

static void reading_failed(struct schema_desk *desk, cqlring_status status, const char *why)
{
    reading_drop(desk);
    cqr_log(&desk->lane->runtime->log, desk->failures == 0 ? CQLRING_LOG_WARN : CQLRING_LOG_INFO, "the schema could not be read: %s", why);
    int64_t delay = (int64_t)AGAIN_MIN_US << (desk->failures < 5 ? desk->failures : 5);
    desk->failures++;
    desk->due_us = desk->lane->now_us + (delay < AGAIN_MAX_US ? delay : AGAIN_MAX_US);
    arm(desk);
    struct refresh *served = desk->served;
    desk->served = NULL;
    refreshes_done(&served, status, why);
}

/* The control connection is lost: it goes on with the next one, from the beginning, and whoever waits goes on waiting. */
static void reading_interrupted(struct schema_desk *desk)
{
    reading_drop(desk);
    desk->changed.all = true;
    desk->due_us = INT64_MAX;
    struct refresh **tail = &desk->waiting;
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = desk->served;
    desk->served = NULL;
    arm(desk);
}

static void schema_publish(struct schema_desk *desk, struct cqlring_schema *schema)
{
    struct cqlring_cluster *cluster = desk->cluster;
    pthread_mutex_lock(&cluster->lock);
    struct cqlring_schema *old = cluster->schema_now;
    cluster->schema_now = schema;
    pthread_mutex_unlock(&cluster->lock);
    cqlring_schema_release(old);
}

static void reading_ends(struct schema_desk *desk)
{
    const char *names[CHANGED_MAX];
    for (uint32_t i = 0; i < desk->read.count; i++)
        names[i] = desk->read.list[i].keyspace;
    struct cqlring_schema *schema =
        cqr_schema_draft_finish(&desk->draft, desk->read.all ? NULL : desk->cluster->schema_now, names, desk->read.count);
    if (schema == NULL) {
        reading_failed(desk, CQLRING_NO_MEMORY, "out of memory");
        return;
    }
    schema_publish(desk, schema);
    cqr_log(&desk->lane->runtime->log, CQLRING_LOG_INFO, "schema read: %u %s of %u keyspaces", desk->read.all ? schema->count : desk->read.count,
            desk->tables_alone ? "tables" : "keyspaces", schema->count);
    desk->reading = false;
    desk->failures = 0;
    desk->due_us = INT64_MAX;
    if (desk->waiting != NULL)
        plan(desk, 0);
    else if (desk->changed.all || desk->changed.count > 0)
        plan(desk, DEBOUNCE_US);
    else
        arm(desk);
    refreshes_done(&desk->served, CQLRING_OK, NULL);
}

static bool is_optional(enum schema_query query)
{
    return query == SCHEMA_QUERY_TABLETS || query >= SCHEMA_QUERY_VIRTUAL_KEYSPACES;
}

static bool is_asked(const struct schema_desk *desk, enum schema_query query)
{
    if (desk->tables_alone)
        return query == SCHEMA_QUERY_TABLES || query == SCHEMA_QUERY_VIEWS || query == SCHEMA_QUERY_COLUMNS || query == SCHEMA_QUERY_INDEXES;
    if (query == SCHEMA_QUERY_TABLETS)
        return desk->is_scylla;
    return query < SCHEMA_QUERY_VIRTUAL_KEYSPACES || (!desk->is_scylla && desk->read.all);
}

static void next_query(struct schema_desk *desk)
{
    do {
        desk->query++;
    } while (desk->query < SCHEMA_QUERIES && !is_asked(desk, desk->query));
    if (desk->query == SCHEMA_QUERIES)
        reading_ends(desk);
    else
        ask_page(desk);
}

static void page_done(struct lane *lane, struct op *op, void *context)
{
    struct schema_desk *desk = context;
    (void)lane;
    if (desk->stopped || !desk->reading)
        return;
    if (op->status == CQLRING_LOST) {
        reading_interrupted(desk);
        return;
    }
    cqlring_status status = op->status;
    const char *why = op->failure != NULL ? op->failure->error.message : "the answer has no rows";
    if (status == CQLRING_SERVER && is_optional(desk->query) && op->failure->error.server_code == ERROR_INVALID) {
        next_query(desk); /* this server has no such table */
        return;
    }
    if (status == CQLRING_OK && op->result == NULL)
        status = CQLRING_PROTOCOL;
    if (status == CQLRING_OK) {
        status = cqr_schema_draft_rows(&desk->draft, desk->query, op->result);
        bool last = cqlring_result_paging_state(op->result).data == NULL;
        if (status == CQLRING_OK && last)
            status = cqr_schema_draft_end(&desk->draft, desk->query);
        why = status == CQLRING_NO_MEMORY ? "out of memory" : "the answer's rows cannot be read";
        if (status == CQLRING_OK) {
            cqlring_result_release(desk->page);
            desk->page = last ? NULL : cqlring_result_retain(op->result);
            if (last)
                next_query(desk);
            else
                ask_page(desk);
            return;
        }
    }
    reading_failed(desk, status, why);
}

/* " WHERE name IN ('a', 'b')": of each change the member at this offset. Room for 64 + 136 a name is there. */
static size_t put_in(char *text, const char *before, const struct changes *changes, size_t member, uint32_t count)
{
    size_t size = (size_t)sprintf(text, " %s IN (", before);
    for (uint32_t i = 0; i < count; i++) {
        size += (size_t)sprintf(text + size, "%s'", i == 0 ? "" : ", ");
        for (const char *at = (const char *)&changes->list[i] + member; *at != '\0'; at++) {
            if (*at == '\'')
                text[size++] = '\'';
            text[size++] = *at;
        }
        text[size++] = '\'';
    }
    text[size++] = ')';
    text[size] = '\0';
    return size;
}

static void ask_page(struct schema_desk *desk)
{
    static const char *const from[SCHEMA_QUERIES] = {
        [SCHEMA_QUERY_KEYSPACES] = "system_schema.keyspaces",
        [SCHEMA_QUERY_TABLETS] = "system_schema.scylla_keyspaces",
        [SCHEMA_QUERY_TYPES] = "system_schema.types",
        [SCHEMA_QUERY_TABLES] = "system_schema.tables",
        [SCHEMA_QUERY_VIEWS] = "system_schema.views",
        [SCHEMA_QUERY_COLUMNS] = "system_schema.columns",
        [SCHEMA_QUERY_INDEXES] = "system_schema.indexes",
        [SCHEMA_QUERY_FUNCTIONS] = "system_schema.functions",
        [SCHEMA_QUERY_AGGREGATES] = "system_schema.aggregates",
        [SCHEMA_QUERY_VIRTUAL_KEYSPACES] = "system_virtual_schema.keyspaces",
        [SCHEMA_QUERY_VIRTUAL_TABLES] = "system_virtual_schema.tables",
        [SCHEMA_QUERY_VIRTUAL_COLUMNS] = "system_virtual_schema.columns",
    };
    char text[256 + CHANGED_MAX * 136];
    size_t size = (size_t)snprintf(text, sizeof text, "SELECT * FROM %s", from[desk->query]);
    if (!desk->read.all) {
        size += put_in(text + size, "WHERE keyspace_name", &desk->read, offsetof(struct change, keyspace), desk->tables_alone ? 1 : desk->read.count);
        if (desk->tables_alone)
            size += put_in(text + size, desk->query == SCHEMA_QUERY_VIEWS ? "AND view_name" : "AND table_name", &desk->read, offsetof(struct change, table),
                           desk->read.count);
    }
    if (desk->is_scylla) /* there such readings have the time-out of any other (SC-04) */
        size += (size_t)snprintf(text + size, sizeof text - size, " USING TIMEOUT 10s");
    struct conn *conn = cqr_control_conn(desk->cluster);
    cqlring_bytes state = cqlring_result_paging_state(desk->page);
    if (conn == NULL || conn->writer.shut || conn->writer.gone)
        reading_interrupted(desk);
    else if (!cqr_own_page(desk->lane, conn, (cqlring_bytes){text, (int32_t)size}, PAGE_ROWS, state, QUERY_TIMEOUT_US, page_done, desk))
        reading_failed(desk, CQLRING_NO_MEMORY, "no room or memory for a request");
}

/* Whether tables of one keyspace are all that changed, and can be read by themselves. */
static cqlring_status tables_begin(struct schema_desk *desk)
{
    struct changes *read = &desk->read;
    const char *tables[CHANGED_MAX];
    bool alone = !read->all;
    for (uint32_t i = 0; i < read->count; i++) {
        alone = alone && read->list[i].table[0] != '\0' && strcmp(read->list[i].keyspace, read->list[0].keyspace) == 0;
        tables[i] = read->list[i].table;
    }
    cqlring_status status = CQLRING_OK;
    desk->tables_alone =
        alone && cqr_schema_draft_tables(&desk->draft, desk->cluster->schema_now, read->list[0].keyspace, tables, read->count, &status);
    if (!desk->tables_alone && !read->all)
        changes_widen(read);
    return status;
}

static void reading_begins(struct schema_desk *desk)
{
    struct conn *conn = cqr_control_conn(desk->cluster);
    desk->due_us = INT64_MAX;
    if (desk->reading || desk->stopped || conn == NULL) {
        arm(desk);
        return; /* when this one is through, or there is one */
    }
    desk->reading = true;
    desk->is_scylla = conn->shard.shard_count > 0;
    desk->read = desk->changed;
    memset(&desk->changed, 0, sizeof desk->changed);
    desk->served = desk->waiting;
    desk->waiting = NULL;
    desk->read.all = desk->read.all || desk->served != NULL || desk->read.count == 0 || desk->cluster->schema_now == NULL;
    cqr_schema_draft_init(&desk->draft);
    cqlring_status status = tables_begin(desk);
    desk->query = desk->tables_alone ? SCHEMA_QUERY_TABLES : SCHEMA_QUERY_KEYSPACES;
    arm(desk);
    if (status == CQLRING_OK)
        ask_page(desk);
    else
        reading_failed(desk, status, "out of memory");
}

/* ---- what makes it read ---- */

void cqr_schema_timer(struct lane *lane, struct timer *timer)
{
    struct schema_desk *desk = (struct schema_desk *)(void *)((char *)timer - offsetof(struct schema_desk, timer));
    refreshes_expire(&desk->waiting, lane->now_us);
    refreshes_expire(&desk->served, lane->now_us);
    if (desk->stopped)
        return;
    if (!desk->reading && desk->due_us <= lane->now_us)
        reading_begins(desk);
    else
        arm(desk);
}

void cqr_schema_changed(struct cqlring_cluster *cluster, cqlring_bytes keyspace, cqlring_bytes table)
{
    struct schema_desk *desk = cluster->schema;
    if (!desk->wanted || desk->stopped)
        return;
    changes_add(&desk->changed, keyspace, table);
    if (desk->due_us == INT64_MAX && !desk->reading)
        plan(desk, DEBOUNCE_US);
}

void cqr_schema_connected(struct cqlring_cluster *cluster)
{
    struct schema_desk *desk = cluster->schema;
    if (!desk->wanted || desk->stopped)
        return;
    desk->changed.all = true;
    if (!desk->reading)
        plan(desk, 0);
}

static void refresh_run(struct lane *lane, struct lane_message *message)
{
    struct refresh *refresh = (struct refresh *)(void *)message;
    struct schema_desk *desk = refresh->cluster->schema;
    (void)lane;
    if (desk->stopped) {
        refresh_done(refresh, cqr_failure_make(CQLRING_CLOSED, "schema: the cluster is closed"));
        return;
    }
    desk->wanted = true;
    desk->changed.all = true;
    refresh->next = desk->waiting;
    desk->waiting = refresh;
    if (desk->reading)
        arm(desk);
    else
        plan(desk, 0);
}

struct schema_desk *cqr_schema_create(struct cqlring_cluster *cluster)
{
    struct schema_desk *desk = cqr_mem_zalloc(sizeof *desk);
    if (desk == NULL)
        return NULL;
    desk->cluster = cluster;
    desk->lane = &cluster->runtime->lanes[0];
    desk->timer.kind = TIMER_SCHEMA;
    desk->due_us = INT64_MAX;
    desk->wanted = cluster->schema_metadata == CQLRING_YES;
    return desk;
}

void cqr_schema_stop(struct schema_desk *desk)
{
    desk->stopped = true;
    cqr_wheel_disarm(&desk->lane->wheel, &desk->timer);
    if (desk->reading)
        reading_drop(desk);
    refreshes_done(&desk->waiting, CQLRING_CLOSED, "the cluster is closed");
    refreshes_done(&desk->served, CQLRING_CLOSED, "the cluster is closed");
}

void cqr_schema_free(struct schema_desk *desk)
{
    if (desk != NULL && desk->reading)
        reading_drop(desk);
    cqr_mem_free(desk);
}

/* ---- public ---- */

cqlring_status cqlring_schema_refresh(cqlring_cluster *cluster, cqlring_future **future, cqlring_error *error)
{
    if (cluster == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_schema_refresh: cluster and future must be given");
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_schema_refresh: the cluster belongs to the parent process; open one in the child");
    if (cluster->schema_metadata == CQLRING_NO)
        return cqr_error(error, CQLRING_INVALID, "cqlring_schema_refresh: the cluster was opened with schema_metadata NO");
    if (atomic_load_explicit(&cluster->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_schema_refresh: the cluster is closed");
    struct lane *lane = &cluster->runtime->lanes[0];
    struct refresh *refresh = cqr_mem_zalloc(sizeof *refresh);
    cqlring_future *own = refresh == NULL ? NULL : cqr_close_future(cluster->runtime);
    if (own == NULL) {
        cqr_mem_free(refresh);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_schema_refresh: out of memory");
    }
    refresh->message.run = refresh_run;
    refresh->cluster = cqr_cluster_retain(cluster);
    refresh->future = own;
    refresh->deadline_us = cqr_deadline_us(lane->net->call->now_us(lane->net), REFRESH_TIMEOUT_US);
    *future = own;
    if (cqr_lane_post(lane, &refresh->message))
        return CQLRING_OK;
    *future = NULL;
    cqr_mem_free(refresh);
    cqr_cluster_release(cluster);
    cqlring_future_release(own);
    cqlring_future_release(own);
    return cqr_error(error, CQLRING_CLOSED, "cqlring_schema_refresh: the runtime has ended");
}

cqlring_schema *cqlring_schema_get(cqlring_cluster *cluster)
{
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return NULL;
    pthread_mutex_lock(&cluster->lock);
    struct cqlring_schema *schema = cluster->schema_now;
    if (schema != NULL)
        atomic_fetch_add_explicit(&schema->references, 1, memory_order_relaxed);
    pthread_mutex_unlock(&cluster->lock);
    return schema;
}
