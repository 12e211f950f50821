/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Many rows into a table, and every one of them back and compared. See live.h for how to run it.

   On one node: a million rows written over v5 with LZ4, read back over v4 by a scan of token ranges, whose pages are the
   outcomes of a job, and a tenth of them again by key.

   On three nodes (with CQLRING_LIVE_CONTROL): the same at QUORUM with three replicas, while one node is frozen and thawed
   and then another one killed. What is promised is not that no row fails, but that each row has exactly one outcome, and
   that no row whose write was acknowledged is missing. */

enum { CHUNK = 256, BLOB_SIZE = 32, RANGES = 64, KEY_STEP = 10 };

static uint64_t row_count;
static uint8_t *outcomes; /* for each row: how many outcomes it had, and whether it was acknowledged */
enum { OUTCOME_COUNT = 3, ACKNOWLEDGED = 4, SEEN = 8 };

static void blob_of(uint64_t row, uint8_t blob[BLOB_SIZE])
{
    uint64_t x = row + 1;
    for (int at = 0; at < BLOB_SIZE; at += 8) {
        x *= UINT64_C(0x9E3779B97F4A7C15);
        x ^= x >> 31;
        memcpy(blob + at, &x, 8);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- writing ---------------------------------------------------------------------------------------------------------- */

struct writing {
    uint64_t begin, next, end;
    uint8_t keys[CHUNK * 8], blobs[CHUNK][BLOB_SIZE];
    cqlring_bytes cells[CHUNK][2];
    atomic_uint_fast64_t delivered; /* relaxed: the main thread looks how far it has come */
    uint64_t failed;
    char first_failure[300];
};

static int32_t next_writes(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct writing *writing = context;
    cqlring_writer writer;
    cqlring_writer_init(&writer, writing->keys, sizeof writing->keys);
    int32_t count = 0;
    for (; count < (int32_t)capacity && count < CHUNK && writing->next < writing->end; ++count, ++writing->next) {
        cqlring_put_int(&writer, (int64_t)writing->next, 8);
        (void)cqlring_writer_take(&writer, &writing->cells[count][0], NULL);
        blob_of(writing->next, writing->blobs[count]);
        writing->cells[count][1] = (cqlring_bytes){writing->blobs[count], BLOB_SIZE};
        rows[count] = (cqlring_row){.cells = writing->cells[count], .tag = writing->next};
    }
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    return count;
}

static cqlring_verdict take_writes(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct writing *writing = context;
    for (uint32_t i = 0; i < count; ++i) {
        const cqlring_completion *completion = &completions[i];
        if (completion->tag >= row_count || completion->tag != writing->begin + completion->row)
            continue; /* its row is then one without an outcome */
        uint8_t *outcome = &outcomes[completion->tag];
        if ((*outcome & OUTCOME_COUNT) < OUTCOME_COUNT)
            ++*outcome;
        if (completion->status == CQLRING_OK) {
            *outcome |= ACKNOWLEDGED;
        } else if (writing->failed++ == 0) {
            snprintf(writing->first_failure, sizeof writing->first_failure, "%s: %s",
                     cqlring_status_name((cqlring_status)completion->status), completion->error->message);
        }
    }
    atomic_fetch_add_explicit(&writing->delivered, count, memory_order_relaxed);
    return CQLRING_CONTINUE;
}

/* What is done to the nodes, once so many per cent of the rows have had their outcome. */
struct step {
    uint64_t percent;
    const char *command;
};

static bool control(const char *command)
{
    char text[1024];
    snprintf(text, sizeof text, "%s %s", live.control, command);
    printf("        %s\n", command);
    fflush(stdout);
    return live_equal(system(text), 0, command);
}

static void write_rows(cqlring_session *session, uint64_t begin, uint64_t end, double rows_per_s, const struct step *steps, uint32_t step_count)
{
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO cqlring_live.bulk (k, v) VALUES (?, ?)");
    if (insert == NULL)
        return;
    static struct writing writing;
    memset(&writing, 0, sizeof writing);
    writing.begin = writing.next = begin;
    writing.end = end;
    cqlring_execution execution = {.struct_size = sizeof execution,
                                   .idempotent = CQLRING_YES,
                                   .consistency = live.control == NULL ? CQLRING_LOCAL_ONE : CQLRING_QUORUM};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 512, .rows_per_s = rows_per_s, .execution = &execution};
    cqlring_source source = {.next = next_writes, .context = &writing};
    cqlring_sink sink = {.deliver = take_writes, .context = &writing};
    cqlring_future *job = NULL;
    cqlring_error error;
    double began = seconds();
    if (live_ok(cqlring_execute_concurrent(session, &insert, 1, &source, &sink, 1, &options, &job, &error), &error, "start the job")) {
        cqlring_status status = CQLRING_TIMEOUT;
        for (uint32_t step = 0; (status = cqlring_future_wait(job, step < step_count ? 20000 : 600000000, &error)) == CQLRING_TIMEOUT;) {
            if (step == step_count) {
                (void)live_note("no end after ten minutes");
                break;
            }
            uint64_t done = atomic_load_explicit(&writing.delivered, memory_order_relaxed);
            if (done * 100 >= steps[step].percent * (end - begin))
                (void)control(steps[step++].command);
        }
        (void)live_ok(status, &error, "the job ends");
        cqlring_summary summary;
        cqlring_job_summary(job, &summary);
        (void)live_equal((int64_t)summary.rows, (int64_t)(end - begin), "rows settled");
        (void)live_equal((int64_t)summary.low_water, (int64_t)(end - begin), "low-water mark");
        (void)live_equal((int64_t)summary.failed, (int64_t)writing.failed, "rows failed, by the summary and by the outcomes");
        printf("        %" PRIu64 " rows in %.1f s, %" PRIu64 " failed, %" PRIu64 " retries%s%s\n", end - begin, seconds() - began,
               writing.failed, summary.retries, writing.failed > 0 ? "; the first failure: " : "", writing.first_failure);
        /* Without faults nothing fails; with them there is time and a replica left for nearly everything. */
        (void)live_check(writing.failed * 100 <= (step_count == 0 ? 0 : end - begin), "hardly a row fails");
    }
    uint64_t without = 0, twice = 0;
    for (uint64_t row = begin; row < end; ++row) {
        without += (outcomes[row] & OUTCOME_COUNT) == 0;
        twice += (outcomes[row] & OUTCOME_COUNT) > 1;
    }
    (void)live_equal((int64_t)without, 0, "rows without an outcome");
    (void)live_equal((int64_t)twice, 0, "rows with two outcomes");
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
}

/* --- reading back ---------------------------------------------------------------------------------------------------- */

struct reading {
    bool by_key;
    uint64_t next, end, found, wrong, ended, failed;
    uint8_t bounds[CHUNK * 16];
    cqlring_bytes cells[CHUNK][2];
    char first_failure[300];
};

/* Range i of RANGES that cover the whole ring. The lowest token belongs to no key, so that no range needs to include its start. */
static int64_t bound_of(uint64_t range)
{
    uint64_t step = UINT64_MAX / RANGES;
    return range == RANGES ? INT64_MAX : (int64_t)(step * range ^ UINT64_C(0x8000000000000000));
}

static int32_t next_reads(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct reading *reading = context;
    cqlring_writer writer;
    cqlring_writer_init(&writer, reading->bounds, sizeof reading->bounds);
    int32_t count = 0;
    for (; count < (int32_t)capacity && count < CHUNK && reading->next < reading->end; ++count) {
        cqlring_put_int(&writer, reading->by_key ? (int64_t)reading->next : bound_of(reading->next), 8);
        (void)cqlring_writer_take(&writer, &reading->cells[count][0], NULL);
        if (!reading->by_key) {
            cqlring_put_int(&writer, bound_of(reading->next + 1), 8);
            (void)cqlring_writer_take(&writer, &reading->cells[count][1], NULL);
        }
        rows[count] = (cqlring_row){.cells = reading->cells[count], .tag = reading->next};
        reading->next += reading->by_key ? KEY_STEP : 1;
    }
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    return count;
}

static void compare(struct reading *reading, cqlring_bytes key, cqlring_bytes value)
{
    int64_t row = -1;
    uint8_t wanted[BLOB_SIZE];
    if (cqlring_get_int(key, 8, &row) != CQLRING_OK || row < 0 || (uint64_t)row >= row_count) {
        ++reading->wrong;
        return;
    }
    blob_of((uint64_t)row, wanted);
    if (value.size != BLOB_SIZE || memcmp(value.data, wanted, BLOB_SIZE) != 0 || (!reading->by_key && (outcomes[row] & SEEN) != 0))
        ++reading->wrong;
    outcomes[row] |= SEEN;
    ++reading->found;
}

static cqlring_verdict take_reads(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct reading *reading = context;
    for (uint32_t i = 0; i < count; ++i) {
        reading->ended += (completions[i].flags & CQLRING_COMPLETION_LAST) != 0;
        if (completions[i].status != CQLRING_OK) {
            if (reading->failed++ == 0)
                snprintf(reading->first_failure, sizeof reading->first_failure, "%s", completions[i].error->message);
            continue;
        }
        cqlring_bytes cells[CHUNK * 2];
        uint32_t from = 0, got = 0;
        while (cqlring_result_rows(completions[i].result, from, cells, CHUNK, &got, NULL) == CQLRING_OK && got > 0) {
            for (uint32_t row = 0; row < got; ++row)
                compare(reading, cells[row * 2], cells[row * 2 + 1]);
            from += got;
        }
    }
    return CQLRING_CONTINUE;
}

/* rows: how many the source gives; what the sink must then have seen is the caller's to say. */
static struct reading *read_rows(cqlring_session *session, bool by_key, uint64_t end)
{
    static struct reading reading;
    memset(&reading, 0, sizeof reading);
    reading.by_key = by_key;
    reading.end = end;
    cqlring_prepared *select =
        by_key ? live_prepare(session, "SELECT k, v FROM cqlring_live.bulk WHERE k = ?")
               : live_prepare(session, "SELECT k, v FROM cqlring_live.bulk WHERE token(k) > ? AND token(k) <= ?");
    if (select == NULL)
        return &reading;
    /* A page of a range may take a machine with two cores and three servers a while. */
    cqlring_execution execution = {.struct_size = sizeof execution,
                                   .idempotent = CQLRING_YES,
                                   .timeout_us = 60000000,
                                   .page_size = 1000,
                                   .consistency = live.control == NULL ? CQLRING_LOCAL_ONE : CQLRING_QUORUM};
    cqlring_job_options options = {.struct_size = sizeof options, .window = by_key ? 256 : 8, .execution = &execution};
    cqlring_source source = {.next = next_reads, .context = &reading};
    cqlring_sink sink = {.deliver = take_reads, .context = &reading};
    cqlring_future *job = NULL;
    cqlring_error error;
    double began = seconds();
    if (live_ok(cqlring_execute_concurrent(session, &select, 1, &source, &sink, 1, &options, &job, &error), &error, "start the job"))
        (void)live_ok(cqlring_future_wait(job, 600000000, &error), &error, "the job ends");
    printf("        %" PRIu64 " rows in %.1f s\n", reading.found, seconds() - began);
    (void)live_equal((int64_t)reading.failed, 0, reading.failed > 0 ? reading.first_failure : "reads failed");
    (void)live_equal((int64_t)reading.wrong, 0, "rows that were not written so, or came twice");
    cqlring_future_release(job);
    cqlring_prepared_release(select);
    return &reading;
}

static void check_scan(cqlring_session *session)
{
    for (uint64_t row = 0; row < row_count; ++row)
        outcomes[row] &= (uint8_t)~SEEN;
    struct reading *reading = read_rows(session, false, RANGES);
    (void)live_equal((int64_t)reading->ended, RANGES, "ranges ended");
    uint64_t missing = 0;
    for (uint64_t row = 0; row < row_count; ++row)
        missing += (outcomes[row] & (ACKNOWLEDGED | SEEN)) == ACKNOWLEDGED;
    (void)live_equal((int64_t)missing, 0, "acknowledged rows that are missing");
}

/* --- the two set-ups --------------------------------------------------------------------------------------------------- */

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
        write_rows(writer, 0, row_count, 0, NULL, 0);
    live_end();
    live_begin("bulk: every row is found over v4 by a scan of token ranges, and is what was written");
    cqlring_session *reader = live_open(&reader_way, NULL);
    if (reader != NULL)
        check_scan(reader);
    live_end();
    live_begin("bulk: every tenth row is found by its key");
    if (writer != NULL)
        (void)live_equal((int64_t)read_rows(writer, true, row_count)->found, (int64_t)((row_count + KEY_STEP - 1) / KEY_STEP), "rows found");
    live_end();
    if (writer != NULL && !live.keep)
        live_drop(writer);
    cqlring_session_release(reader);
    cqlring_session_release(writer);
}

static bool wait_for_nodes(cqlring_cluster *cluster, uint32_t wanted, int limit_s)
{
    uint32_t up = 0;
    for (int tenths = 0; tenths < limit_s * 10; ++tenths) {
        const cqlring_node *nodes[8];
        uint32_t count = cqlring_cluster_nodes(cluster, nodes, 8);
        up = 0;
        for (uint32_t i = 0; i < count && i < 8; ++i) {
            cqlring_node_info info;
            cqlring_node_describe(nodes[i], &info);
            up += info.is_up;
        }
        if (up == wanted)
            return true;
        usleep(100000); /* what is awaited happens in another process, and in its own time */
    }
    return live_note("%u nodes are up instead of %u after %d s", up, wanted, limit_s);
}

/* Schema changes reach the other nodes by and by: until all of them have the same version. */
static bool wait_for_schema(cqlring_cluster *cluster, cqlring_session *session, int limit_s)
{
    for (int tenths = 0; tenths < limit_s * 10; ++tenths) {
        const cqlring_node *nodes[8];
        uint8_t version[16] = {0};
        uint32_t count = cqlring_cluster_nodes(cluster, nodes, 8), agreed = 0;
        for (uint32_t i = 0; i < count && i < 8; ++i) {
            cqlring_execution execution = {.struct_size = sizeof execution, .target = nodes[i]};
            cqlring_request request = {.session = session,
                                       .cql = cqlring_text("SELECT schema_version FROM system.local WHERE key = 'local'"),
                                       .execution = &execution};
            cqlring_result *result = live_request(&request, "a node's schema version");
            cqlring_bytes cell = live_first(result);
            if (cell.size == 16) {
                if (i == 0)
                    memcpy(version, cell.data, 16);
                agreed += memcmp(version, cell.data, 16) == 0;
            }
            cqlring_result_release(result);
            if (result == NULL)
                return false;
        }
        if (agreed == count)
            return true;
        usleep(100000);
    }
    return live_note("the nodes have no common schema after %d s", limit_s);
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
                    make_table(session, 3) && wait_for_nodes(cluster, 3, 30) && wait_for_schema(cluster, session, 30);
    live_end();
    if (is_ready) {
        live_begin("faults: %" PRIu64 " rows with one node frozen and thawed, and another one killed: each has one outcome", second);
        /* Slow enough for the frozen node to be suspected, and for time-outs to pass, before the job is at its end. */
        const struct step steps[] = {{15, "pause 3"}, {50, "resume 3"}, {65, "kill 2"}};
        write_rows(session, 0, second, (double)second / 30, steps, sizeof steps / sizeof steps[0]);
        live_end();
        live_begin("faults: no acknowledged row is missing, with a node still dead");
        check_scan(session);
        live_end();
        live_begin("faults: the dead node comes back and is used again");
        if (control("restart 2") && wait_for_nodes(cluster, 3, 60))
            write_rows(session, second, row_count, 0, NULL, 0);
        live_end();
        live_begin("faults: no acknowledged row is missing, with all nodes");
        check_scan(session);
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
    outcomes = calloc(row_count, 1);
    if (outcomes == NULL)
        return 1;
    if (live.control == NULL)
        on_one_node();
    else
        on_three_nodes();
    free(outcomes);
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
