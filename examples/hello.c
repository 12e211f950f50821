/* SPDX-License-Identifier: Apache-2.0 */

/* Ten thousand rows into a table: the library pulls them from `next`, keeps many of them under way and tells in the end
   what became of them.   hello [contact points] */

#include <cqlring.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 10000, BATCH = 256 };

struct numbers {
    int64_t given;                     /* rows handed over so far */
    cqlring_bytes cells[BATCH][2];     /* of the batch under way; they stay until the next call */
    uint8_t room[BATCH * 16];
};

/* Up to capacity (≤ 256) more rows: (number, its square). */
static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct numbers *numbers = context;
    cqlring_writer writer;
    cqlring_writer_init(&writer, numbers->room, sizeof numbers->room);
    int32_t count = 0;
    for (; count < (int32_t)capacity && numbers->given < ROWS; ++count, ++numbers->given) {
        cqlring_put_int(&writer, numbers->given, 8);
        cqlring_writer_take(&writer, &numbers->cells[count][0], NULL);
        cqlring_put_int(&writer, numbers->given * numbers->given, 8);
        cqlring_writer_take(&writer, &numbers->cells[count][1], NULL);
        rows[count] = (cqlring_row){.cells = numbers->cells[count]};
    }
    (void)now_us, (void)wake_at_us, (void)error;
    return count; /* 0: that was all */
}

static void check(cqlring_status status, const cqlring_error *error)
{
    if (status == CQLRING_OK)
        return;
    fprintf(stderr, "%s: %s\n", cqlring_status_text(status), error->message);
    exit(1);
}

int main(int argc, char **argv)
{
    cqlring_error error;
    cqlring_cluster *cluster;
    cqlring_session *session;
    cqlring_cluster_options options = {.struct_size = sizeof options, .contact_points = argc > 1 ? argv[1] : "127.0.0.1"};
    check(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error);
    check(cqlring_session_open_sync(cluster, NULL, &session, &error), &error);

    static const char *schema[] = {
        "CREATE KEYSPACE IF NOT EXISTS hello WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE IF NOT EXISTS hello.squares (n bigint PRIMARY KEY, square bigint)",
    };
    for (int i = 0; i < 2; ++i)
        check(cqlring_execute_sync(&(cqlring_request){.session = session, .cql = cqlring_text(schema[i])}, NULL, &error), &error);

    cqlring_prepared *insert;
    check(cqlring_prepare_sync(session, "INSERT INTO hello.squares (n, square) VALUES (?, ?)", &insert, &error), &error);
    static struct numbers numbers;
    cqlring_future *job;
    check(cqlring_execute_concurrent(session, &insert, 1, &(cqlring_source){.next = next, .context = &numbers}, NULL, 1, NULL, &job, &error), &error);
    check(cqlring_future_wait(job, -1, &error), &error);

    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    printf("%" PRIu64 " rows, %" PRIu64 " failed, %" PRIu64 " retries, %.3f s\n", summary.rows, summary.failed, summary.retries,
           (double)(summary.ended_us - summary.started_us) / 1e6);
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    return summary.failed != 0;
}
