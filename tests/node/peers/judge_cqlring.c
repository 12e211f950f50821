/* SPDX-License-Identifier: Apache-2.0 */

/* What `scylla` asks of every driver, asked of cqlring: the same rows with the same statements.   judge_cqlring PORT ROWS NODES SHARDS */

#include <cqlring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NODES_MAX = 64, WAIT_S = 60 };

struct keys {
    int64_t next, end;
    uint32_t cell_count;
    cqlring_bytes cells[256][2];
    uint8_t memory[256][4];
};

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct keys *keys = context;
    uint32_t count = 0;
    for (; count < capacity && count < 256 && keys->next < keys->end; ++count, ++keys->next) {
        for (int i = 0; i < 4; ++i)
            keys->memory[count][i] = (uint8_t)((uint64_t)keys->next >> (24 - 8 * i));
        keys->cells[count][0] = (cqlring_bytes){keys->memory[count], 4};
        keys->cells[count][1] = cqlring_text("x");
        rows[count] = (cqlring_row){.cells = keys->cells[count], .cell_count = keys->cell_count};
    }
    (void)now_us, (void)wake_at_us, (void)error;
    return (int32_t)count;
}

static void check(cqlring_status status, const cqlring_error *error)
{
    if (status == CQLRING_OK)
        return;
    fprintf(stderr, "judge_cqlring: %s: %s\n", cqlring_status_text(status), error->message);
    exit(1);
}

static void run(cqlring_session *session, const char *text, uint32_t cell_count, int64_t rows)
{
    cqlring_error error = {0};
    cqlring_prepared *prepared;
    check(cqlring_prepare_sync(session, text, &prepared, &error), &error);
    static struct keys keys;
    keys = (struct keys){.end = rows, .cell_count = cell_count};
    const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    /* few under way, so that no shard is busy and each row goes where it belongs */
    const cqlring_job_options options = {.struct_size = sizeof options, .window = 32, .execution = &idempotent};
    cqlring_future *job;
    check(cqlring_execute_concurrent(session, &prepared, 1, &(cqlring_source){.next = next, .context = &keys}, NULL, 1, &options, &job, &error), &error);
    check(cqlring_future_wait(job, -1, &error), &error);
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    if (summary.failed != 0 || summary.rows != (uint64_t)rows) {
        fprintf(stderr, "judge_cqlring: %s: of %llu rows %llu failed\n", text, (unsigned long long)summary.rows, (unsigned long long)summary.failed);
        exit(1);
    }
    cqlring_future_release(job);
    cqlring_prepared_release(prepared);
}

/* A connection to each shard of every node. */
static int is_connected(const cqlring_cluster *cluster, uint32_t nodes, uint32_t shards)
{
    const cqlring_node *found[NODES_MAX];
    uint32_t count = cqlring_cluster_nodes(cluster, found, NODES_MAX), complete = 0;
    for (uint32_t i = 0; i < count && i < NODES_MAX; ++i) {
        cqlring_node_info info;
        cqlring_node_describe(found[i], &info);
        complete += info.shards == shards && info.connections == shards;
    }
    return complete == nodes;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int64_t rows = atoll(argv[2]);
    cqlring_error error = {0};
    cqlring_cluster *cluster;
    cqlring_session *session;
    const cqlring_cluster_options options = {.struct_size = sizeof options, .contact_points = "127.0.0.1", .port = atoi(argv[1])};
    check(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error);
    check(cqlring_session_open_sync(cluster, NULL, &session, &error), &error);
    time_t until = time(NULL) + WAIT_S;
    while (!is_connected(cluster, (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]))) {
        if (time(NULL) > until) {
            fputs("judge_cqlring: not connected to each shard\n", stderr);
            return 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    run(session, "INSERT INTO ks.t (k, v) VALUES (?, ?) /* cqlring warm write */", 2, rows);
    run(session, "INSERT INTO ks.t (k, v) VALUES (?, ?) /* cqlring counted write */", 2, rows);
    run(session, "SELECT v FROM ks.t WHERE k = ? /* cqlring counted read */", 1, rows);
    run(session, "INSERT INTO ks.l (k, v) VALUES (?, ?) /* cqlring warm plain */", 2, rows);
    run(session, "INSERT INTO ks.l (k, v) VALUES (?, ?) IF NOT EXISTS /* cqlring counted lwt */", 2, rows);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    return 0;
}
