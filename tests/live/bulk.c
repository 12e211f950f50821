/* SPDX-License-Identifier: Apache-2.0 */
#include "bulk.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "live.h"

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
    atomic_uint_fast64_t enough; /* not before all steps are done, and at least so far; relaxed */
    uint8_t keys[CHUNK * 8], blobs[CHUNK][BLOB_SIZE];
    cqlring_bytes cells[CHUNK][2];
    atomic_uint_fast64_t delivered; /* relaxed: the main thread looks how far it has come */
    uint64_t failed;
    double began_s, first_failure_s, last_failure_s;
    char first_failure[300];
};

static int32_t next_writes(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct writing *writing = context;
    cqlring_writer writer;
    cqlring_writer_init(&writer, writing->keys, sizeof writing->keys);
    uint64_t end = atomic_load_explicit(&writing->enough, memory_order_relaxed);
    int32_t count = 0;
    for (; count < (int32_t)capacity && count < CHUNK && writing->next < end; ++count, ++writing->next) {
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
            continue;
        }
        writing->last_failure_s = seconds() - writing->began_s;
        if (writing->failed++ == 0) {
            writing->first_failure_s = writing->last_failure_s;
            snprintf(writing->first_failure, sizeof writing->first_failure, "%s: %s",
                     cqlring_status_name((cqlring_status)completion->status), completion->error->message);
        }
    }
    atomic_fetch_add_explicit(&writing->delivered, count, memory_order_relaxed);
    return CQLRING_CONTINUE;
}

bool bulk_control(const char *command)
{
    char text[1024];
    snprintf(text, sizeof text, "%s %s", live.control, command);
    double began = seconds();
    bool done = live_equal(system(text), 0, command);
    printf("        %s, %.1f s\n", command, seconds() - began);
    fflush(stdout);
    return done;
}

uint64_t bulk_write(cqlring_session *session, const struct bulk_writing *how)
{
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO cqlring_live.bulk (k, v) VALUES (?, ?)");
    if (insert == NULL)
        return 0;
    static struct writing writing;
    memset(&writing, 0, sizeof writing);
    writing.begin = writing.next = how->begin;
    writing.end = how->end;
    atomic_store_explicit(&writing.enough, how->end, memory_order_relaxed);
    cqlring_execution execution = {.struct_size = sizeof execution, .idempotent = CQLRING_YES, .consistency = how->consistency, .timeout_us = how->timeout_us};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 512, .rows_per_s = how->rows_per_s, .execution = &execution};
    cqlring_source source = {.next = next_writes, .context = &writing};
    cqlring_sink sink = {.deliver = take_writes, .context = &writing};
    cqlring_future *job = NULL;
    cqlring_error error;
    double began = writing.began_s = seconds();
    uint64_t end = how->begin;
    uint32_t step = 0;
    if (live_ok(cqlring_execute_concurrent(session, &insert, 1, &source, &sink, 1, &options, &job, &error), &error, "start the job")) {
        cqlring_status status = CQLRING_TIMEOUT;
        while ((status = cqlring_future_wait(job, step < how->step_count ? 20000 : 600000000, &error)) == CQLRING_TIMEOUT) {
            if (step == how->step_count) {
                (void)live_note("no end after ten minutes");
                break;
            }
            uint64_t done = atomic_load_explicit(&writing.delivered, memory_order_relaxed), all = how->enough > 0 ? how->enough : how->end;
            if (done * 100 >= how->steps[step].percent * (all - how->begin)) {
                printf("        after %.1f s and %" PRIu64 " rows:\n", seconds() - began, done);
                (void)bulk_control(how->steps[step++].command);
            }
            if (step == how->step_count && how->enough > 0) /* the job has outlasted them */
                atomic_store_explicit(&writing.enough, how->enough, memory_order_relaxed);
        }
        (void)live_ok(status, &error, "the job ends");
        (void)live_equal(step, how->step_count, "things that were done to the nodes before the job was at its end");
        cqlring_summary summary;
        cqlring_job_summary(job, &summary);
        end = writing.next;
        (void)live_check(how->enough > 0 ? end >= how->enough : end == how->end, "all rows were asked for");
        (void)live_equal((int64_t)summary.rows, (int64_t)(end - how->begin), "rows settled");
        (void)live_equal((int64_t)summary.low_water, (int64_t)(end - how->begin), "low-water mark");
        (void)live_equal((int64_t)summary.failed, (int64_t)writing.failed, "rows failed, by the summary and by the outcomes");
        printf("        %" PRIu64 " rows in %.1f s, %" PRIu64 " failed, %" PRIu64 " retries%s%s\n", end - how->begin, seconds() - began, writing.failed,
               summary.retries, writing.failed > 0 ? "; the first failure: " : "", writing.first_failure);
        if (writing.failed > 0)
            printf("        the first after %.1f s, the last after %.1f s\n", writing.first_failure_s, writing.last_failure_s);
        (void)live_check(writing.failed * 100 <= how->failed_percent * (end - how->begin), "hardly a row fails, or none");
    }
    uint64_t without = 0, twice = 0;
    for (uint64_t row = how->begin; row < end; ++row) {
        without += (outcomes[row] & OUTCOME_COUNT) == 0;
        twice += (outcomes[row] & OUTCOME_COUNT) > 1;
    }
    (void)live_equal((int64_t)without, 0, "rows without an outcome");
    (void)live_equal((int64_t)twice, 0, "rows with two outcomes");
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
    return end;
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

/* 0 when there is none: then nothing compares equal. */
static uint32_t column_of(const cqlring_result *result, const char *name)
{
    cqlring_column column;
    for (uint32_t i = 0; cqlring_result_column(result, i, &column); ++i)
        if (strcmp(column.name, name) == 0)
            return i;
    return 0;
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
        cqlring_bytes cells[CHUNK * 8];
        uint32_t from = 0, got = 0, key = column_of(completions[i].result, "k"), value = column_of(completions[i].result, "v");
        uint32_t columns = cqlring_result_column_count(completions[i].result), most = columns > 0 ? CHUNK * 8 / columns : 0;
        while (most > 0 && cqlring_result_rows(completions[i].result, from, cells, most, &got, NULL) == CQLRING_OK && got > 0) {
            for (uint32_t row = 0; row < got; ++row)
                compare(reading, cells[row * columns + key], cells[row * columns + value]);
            from += got;
        }
    }
    return CQLRING_CONTINUE;
}

static struct reading *read_rows(cqlring_session *session, bool by_key, uint64_t end, cqlring_consistency consistency, double rows_per_s)
{
    static struct reading reading;
    memset(&reading, 0, sizeof reading);
    reading.by_key = by_key;
    reading.end = end;
    cqlring_prepared *select =
        by_key ? live_prepare(session, "SELECT * FROM cqlring_live.bulk WHERE k = ?")
               : live_prepare(session, "SELECT k, v FROM cqlring_live.bulk WHERE token(k) > ? AND token(k) <= ?");
    if (select == NULL)
        return &reading;
    /* A page of a range may take a machine with two cores and three servers a while. */
    cqlring_execution execution = {.struct_size = sizeof execution,
                                   .idempotent = CQLRING_YES,
                                   .timeout_us = 60000000,
                                   .page_size = 1000,
                                   .consistency = consistency};
    cqlring_job_options options = {.struct_size = sizeof options, .rows_per_s = rows_per_s, .window = by_key ? 256 : 8, .execution = &execution};
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

void bulk_scan(cqlring_session *session, cqlring_consistency consistency)
{
    for (uint64_t row = 0; row < row_count; ++row)
        outcomes[row] &= (uint8_t)~SEEN;
    struct reading *reading = read_rows(session, false, RANGES, consistency, 0);
    (void)live_equal((int64_t)reading->ended, RANGES, "ranges ended");
    uint64_t missing = 0;
    for (uint64_t row = 0; row < row_count; ++row)
        missing += (outcomes[row] & (ACKNOWLEDGED | SEEN)) == ACKNOWLEDGED;
    (void)live_equal((int64_t)missing, 0, "acknowledged rows that are missing");
}

void bulk_read_keys(cqlring_session *session, uint64_t end, cqlring_consistency consistency, double rows_per_s)
{
    (void)live_equal((int64_t)read_rows(session, true, end, consistency, rows_per_s)->found, (int64_t)((end + KEY_STEP - 1) / KEY_STEP), "rows found");
}

/* --- waiting for nodes ------------------------------------------------------------------------------------------------- */

bool bulk_wait_for_nodes(cqlring_cluster *cluster, uint32_t wanted, int limit_s)
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
bool bulk_wait_for_schema(cqlring_cluster *cluster, cqlring_session *session, int limit_s)
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

void bulk_init(uint64_t rows)
{
    row_count = rows;
    outcomes = calloc(rows, 1);
    if (outcomes == NULL)
        abort();
}

void bulk_fini(void)
{
    free(outcomes);
}
