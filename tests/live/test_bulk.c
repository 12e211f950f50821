/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "bulk.h"
#include "live.h"

/* Many rows into a table, and every one of them back and compared. See live.h for how to run it.

   On one node: a million rows written over v5 with LZ4, read back over v4 by a scan of token ranges, whose pages are the
   outcomes of a job, and a tenth of them again by key.

   On three nodes (with CQLRING_LIVE_CONTROL): the same at QUORUM with three replicas, while one node is frozen and thawed
   and then another one killed. What is promised is not that no row fails, but that each row has exactly one outcome, and
   that no row whose write was acknowledged is missing. */

static uint64_t row_count;

static bool make_table(cqlring_session *session, int replicas)
{
    return live_run(session, "DROP KEYSPACE IF EXISTS cqlring_live") &&
           live_run(session, "CREATE KEYSPACE cqlring_live WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %d}", replicas) &&
           live_run(session, "CREATE TABLE cqlring_live.bulk (k bigint PRIMARY KEY, v blob)");
}

static void on_one_node(void)
{
    struct live_way writer_way = {5, CQLRING_COMPRESSION_LZ4}, reader_way = {4, CQLRING_COMPRESSION_NONE};
    live_begin("bulk: %" PRIu64 " rows are written over v5 with LZ4", row_count);
    cqlring_session *writer = live_open(&writer_way, NULL);
    if (writer != NULL && make_table(writer, 1))
        (void)bulk_write(writer, &(struct bulk_writing){.end = row_count});
    live_end();
    live_begin("bulk: every row is found over v4 by a scan of token ranges, and is what was written");
    cqlring_session *reader = live_open(&reader_way, NULL);
    if (reader != NULL)
        bulk_scan(reader, CQLRING_LOCAL_ONE);
    live_end();
    live_begin("bulk: every tenth row is found by its key");
    if (writer != NULL)
        bulk_read_keys(writer, row_count, CQLRING_LOCAL_ONE, 0);
    live_end();
    if (writer != NULL && !live.keep)
        live_drop(writer);
    cqlring_session_release(reader);
    cqlring_session_release(writer);
}

static void on_three_nodes(void)
{
    struct live_way way = {5, CQLRING_COMPRESSION_NONE};
    cqlring_cluster_options cluster_options = live_cluster_options(&way);
    cqlring_session_options session_options = {.struct_size = sizeof session_options};
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    cqlring_error error;
    uint64_t second = row_count * 9 / 10;

    live_begin("faults: three nodes are there");
    bool is_ready = live_ok(cqlring_cluster_open_sync(NULL, &cluster_options, &cluster, &error), &error, "open the cluster") &&
                    live_ok(cqlring_session_open_sync(cluster, &session_options, &session, &error), &error, "open a session") &&
                    make_table(session, 3) && bulk_wait_for_nodes(cluster, 3, 30) && bulk_wait_for_schema(cluster, session, 30);
    live_end();
    if (is_ready) {
        live_begin("faults: %" PRIu64 " rows with one node frozen and thawed, and another one killed: each has one outcome", second);
        /* With faults there is time and a replica left for nearly everything. Slow enough for the frozen node to be suspected, and for time-outs to pass, before the job is at its end. */
        const struct bulk_step steps[] = {{15, "pause 3"}, {50, "resume 3"}, {65, "kill 2"}};
        const struct bulk_writing how = {.end = second, .failed_percent = 1, .rows_per_s = (double)second / 30, .consistency = CQLRING_QUORUM, .steps = steps,
                                         .step_count = sizeof steps / sizeof steps[0]};
        (void)bulk_write(session, &how);
        live_end();
        live_begin("faults: no acknowledged row is missing, with a node still dead");
        bulk_scan(session, CQLRING_QUORUM);
        live_end();
        live_begin("faults: the dead node comes back and is used again");
        if (bulk_control("restart 2") && bulk_wait_for_nodes(cluster, 3, 60))
            (void)bulk_write(session, &(struct bulk_writing){.begin = second, .end = row_count, .consistency = CQLRING_QUORUM});
        live_end();
        live_begin("faults: no acknowledged row is missing, with all nodes");
        bulk_scan(session, CQLRING_QUORUM);
        live_end();
    }
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
}

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    row_count = live.rows;
    bulk_init(row_count);
    if (live.control == NULL)
        on_one_node();
    else
        on_three_nodes();
    bulk_fini();
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
