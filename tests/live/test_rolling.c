/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "bulk.h"
#include "live.h"

/* Four nodes, three of them in the local datacenter dc1 with three replicas, one in dc2 with one. An idempotent job at
   LOCAL_QUORUM goes on while each node of dc1 is restarted, one frozen and thawed, one killed and brought back, and one comes up
   with another address. No row fails, no acknowledged row is missing. Then rows are read while their table is altered.

   CQLRING_LIVE_CONTROL and CQLRING_LIVE_MOVED, the address that node 3 moves to, are needed; see live.h. */

enum { ENOUGH = 300000, MOST = 1500000, ROWS_PER_S = 2500, READS_PER_S = 1500, READ_FAILURE = 0x1300 };

static const char *const alters[] = {
    "ALTER TABLE cqlring_live.bulk ADD a1 text",
    "ALTER TABLE cqlring_live.bulk ADD a2 int",
    "ALTER TABLE cqlring_live.bulk DROP a1",
    "ALTER TABLE cqlring_live.bulk ADD z1 list<int>",
};
enum { ALTERS = sizeof alters / sizeof alters[0] };

/* One after the other, each begun when the last one is through: on the submitter. */
struct altering {
    cqlring_session *session;
    uint32_t begun;
    atomic_uint done, failed; /* release: pairs with the main thread's acquire */
    cqlring_error error;
};

static bool alter_next(struct altering *altering);

static void altered(cqlring_future *future, void *context)
{
    struct altering *altering = context;
    if (cqlring_future_completion(future)->status != CQLRING_OK) {
        altering->error = *cqlring_future_completion(future)->error;
        atomic_fetch_add_explicit(&altering->failed, 1, memory_order_release);
        return;
    }
    atomic_fetch_add_explicit(&altering->done, 1, memory_order_release);
    if (altering->begun < ALTERS && !alter_next(altering))
        atomic_fetch_add_explicit(&altering->failed, 1, memory_order_release);
}

static bool alter_next(struct altering *altering)
{
    cqlring_future *future = NULL;
    cqlring_execution execution = {.struct_size = sizeof execution, .timeout_us = 60000000};
    cqlring_request request = {.session = altering->session, .cql = cqlring_text(alters[altering->begun++]), .execution = &execution};
    if (cqlring_execute(&request, &future, &altering->error) != CQLRING_OK)
        return false;
    bool called = cqlring_future_on_ready(future, altered, altering) == CQLRING_OK;
    cqlring_future_release(future);
    return called;
}

/* A replica that was told of an ALTER a moment later than the coordinator fails the read; the library takes READ_FAILURE for what
   would fail again, an application that alters tables knows better. */
static cqlring_retry_decision patient(const cqlring_retry_query *query, cqlring_consistency *consistency, int64_t *delay_us, void *context)
{
    (void)consistency, (void)context;
    if (query->detail == NULL || query->detail->server_code != READ_FAILURE)
        return query->usual;
    *delay_us = 100000;
    return CQLRING_DECIDE_NEXT;
}

static bool is_there(cqlring_cluster *cluster, const char *address)
{
    const cqlring_node *nodes[8];
    uint32_t count = cqlring_cluster_nodes(cluster, nodes, 8);
    for (uint32_t i = 0; i < count && i < 8; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (strncmp(info.address, address, strlen(address)) == 0 && info.address[strlen(address)] == ':')
            return info.is_up != 0;
    }
    return false;
}

/* The nodes as they were at first: their handles, and who each is. */
struct crowd {
    const cqlring_node *nodes[8];
    uint8_t host_ids[8][16];
    uint32_t count;
};

static struct crowd crowd_of(cqlring_cluster *cluster)
{
    struct crowd crowd = {.count = cqlring_cluster_nodes(cluster, crowd.nodes, 8)};
    for (uint32_t i = 0; i < crowd.count && i < 8; i++) {
        cqlring_node_info info;
        cqlring_node_describe(crowd.nodes[i], &info);
        memcpy(crowd.host_ids[i], info.host_id, 16);
    }
    return crowd;
}

static bool has_handle(const struct crowd *crowd, const cqlring_node *node, const uint8_t host_id[16])
{
    for (uint32_t i = 0; i < crowd->count && i < 8; i++)
        if (crowd->nodes[i] == node)
            return memcmp(crowd->host_ids[i], host_id, 16) == 0;
    return false;
}

static bool is_same_crowd(const struct crowd *before, const struct crowd *after)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < after->count && i < 8; i++)
        same += has_handle(before, after->nodes[i], after->host_ids[i]);
    return before->count == after->count && same == before->count;
}

static void roll(cqlring_cluster *cluster, cqlring_session *session)
{
    struct crowd before = crowd_of(cluster);
    char move[80];
    snprintf(move, sizeof move, "move 3 %s", live.moved);
    const struct bulk_step steps[] = {{3, "restart 1"}, {25, "restart 2"}, {50, "restart 3"}, {75, "pause 2"}, {83, "resume 2"}, {88, "kill 1"}, {92, "restart 1"}, {95, move}};
    /* A server that starts takes what processors there are: the others may not answer for longer than the 12 s that rows have
       otherwise. Nothing but patience is asked of the application. */
    const struct bulk_writing how = {.end = MOST, .enough = ENOUGH, .rows_per_s = ROWS_PER_S, .timeout_us = 90000000, .consistency = CQLRING_LOCAL_QUORUM, .steps = steps,
                                     .step_count = sizeof steps / sizeof steps[0]};
    live_begin("rolling: a job at LOCAL_QUORUM outlasts restarts of all local nodes, a frozen, a killed and a moved one, and no row fails");
    uint64_t end = bulk_write(session, &how);
    (void)live_check(bulk_wait_for_nodes(cluster, 3, 60) && is_there(cluster, live.moved), "the node that moved is used at its new address");
    struct crowd after = crowd_of(cluster);
    (void)live_check(is_same_crowd(&before, &after), "restarted and moved, they are the same nodes by the same handles");
    live_end();

    live_begin("rolling: no acknowledged row is missing");
    bulk_scan(session, CQLRING_LOCAL_QUORUM);
    live_end();

    live_begin("rolling: rows are read, and are what was written, while their table is altered");
    struct altering altering = {.session = session};
    if (live_check(alter_next(&altering), "the first ALTER is accepted"))
        bulk_read_keys(session, end < ENOUGH ? end : ENOUGH, CQLRING_LOCAL_QUORUM, READS_PER_S);
    (void)live_check(atomic_load_explicit(&altering.done, memory_order_acquire) >= 2, "the table was altered twice while rows were read");
    for (int s = 0; s < 120 && atomic_load_explicit(&altering.done, memory_order_acquire) < ALTERS && atomic_load_explicit(&altering.failed, memory_order_acquire) == 0; s++)
        cqlring_result_release(live_query(session, "SELECT release_version FROM system.local"));
    (void)live_equal(atomic_load_explicit(&altering.failed, memory_order_acquire), 0, altering.error.message);
    live_end();
}

int main(void)
{
    if (!live_read_environment() || live.control == NULL || live.moved == NULL) {
        puts("CQLRING_LIVE_HOST, CQLRING_LIVE_CONTROL or CQLRING_LIVE_MOVED is not set: there are no four nodes to test against");
        return 77;
    }
    struct live_way way = {5, CQLRING_COMPRESSION_NONE};
    cqlring_cluster_options options = live_cluster_options(&way);
    cqlring_session_options session_options = {.struct_size = sizeof session_options};
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    cqlring_error error;
    options.local_datacenter = "dc1";
    options.retry_policy = patient;
    bulk_init(MOST);
    live_begin("rolling: three nodes of four are local");
    bool ready = live_ok(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error, "open the cluster") &&
                 live_ok(cqlring_session_open_sync(cluster, &session_options, &session, &error), &error, "open a session") &&
                 bulk_wait_for_nodes(cluster, 3, 60) && live_equal(cqlring_cluster_nodes(cluster, NULL, 0), 4, "nodes") &&
                 live_run(session, "CREATE KEYSPACE cqlring_live WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 1}") &&
                 live_run(session, "CREATE TABLE cqlring_live.bulk (k bigint PRIMARY KEY, v blob)");
    live_end();
    if (ready)
        roll(cluster, session);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    bulk_fini();
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
