/* SPDX-License-Identifier: Apache-2.0 */

/* cqlring as one of several drivers on the same work: the command line and the line of JSON that a program of a suite of
   drivers has, so that bench/run --peer, or another suite, can set it beside others.

     peer --host H --port P --work W --rows N --concurrency C [--dim 768] [--proto 4|5] [--threads split|inline|caller]

     insert_small   prepared INSERT INTO bench.small (k bigint, v blob) of 32 bytes, with the client's timestamp
     insert_vec     prepared INSERT INTO bench.vec (k bigint, v vector<float, DIM>) from arrays of float
     select_small   prepared SELECT v FROM bench.small WHERE k = ?, every value touched
     scan           SELECT k, v FROM bench.small in pages of 5000, every row decoded and touched, until N are read

   The window of C requests is full all the time. What is printed is about the steady part: connecting, schema, preparing and
   a twentieth of the rows come before. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/bench.h"

enum { ROWS_AT_ONCE = 256, VECTORS = 64, PAGE = 5000, SCAN_CELLS = 512 };

enum work { INSERT_SMALL, INSERT_VEC, SELECT_SMALL, SCAN };
static const char *const work_names[] = {"insert_small", "insert_vec", "select_small", "scan", NULL};

struct peer {
    struct bench_session on;
    struct bench_server server;
    enum work work;
    uint64_t rows;
    uint32_t window, dimension;
    cqlring_prepared *statement;
    float *vectors[VECTORS];
    uint64_t errors, touched;
};

/* ---- one request a row ---------------------------------------------------------------------------------------------- */

struct feed {
    struct peer *peer;
    uint64_t next, end;
    uint64_t keys[ROWS_AT_ONCE];
    cqlring_bytes cells[ROWS_AT_ONCE][2];
    uint8_t blob[BENCH_BLOB_SIZE];
    uint8_t *encoded; /* vectors of the rows that were handed out last */
};

static int32_t feed_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct feed *feed = context;
    struct peer *peer = feed->peer;
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    uint64_t left = feed->end - feed->next;
    uint32_t count = left < capacity ? (uint32_t)left : capacity;
    uint32_t vector_size = peer->dimension * 4;
    cqlring_writer writer;
    if (peer->work == INSERT_VEC)
        cqlring_writer_init(&writer, feed->encoded, ROWS_AT_ONCE * vector_size);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t row = feed->next++;
        feed->keys[i] = __builtin_bswap64(row);
        feed->cells[i][0] = (cqlring_bytes){(const uint8_t *)&feed->keys[i], 8};
        if (peer->work == INSERT_SMALL)
            feed->cells[i][1] = (cqlring_bytes){feed->blob, BENCH_BLOB_SIZE};
        if (peer->work == INSERT_VEC) {
            cqlring_put_array(&writer, peer->vectors[row % VECTORS], 4, peer->dimension);
            cqlring_writer_take(&writer, &feed->cells[i][1], NULL);
        }
        rows[i] = (cqlring_row){.cells = feed->cells[i], .tag = row};
    }
    return (int32_t)count;
}

static cqlring_verdict take(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct peer *peer = ((struct feed *)context)->peer;
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *completion = &completions[i];
        if (completion->status != CQLRING_OK) {
            if (peer->errors++ == 0)
                fprintf(stderr, "the first error: %s\n", completion->error->message);
            continue;
        }
        if (peer->work != SELECT_SMALL)
            continue;
        cqlring_bytes cell;
        uint32_t rows = 0;
        if (completion->result != NULL && cqlring_result_rows(completion->result, 0, &cell, 1, &rows, NULL) == CQLRING_OK && rows == 1 && cell.size > 0)
            peer->touched += (uint64_t)cell.size + *(const uint8_t *)cell.data;
        else
            peer->errors++;
    }
    return CQLRING_CONTINUE;
}

static uint64_t run_window(struct peer *peer, uint64_t rows)
{
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        abort();
    feed->peer = peer;
    feed->end = rows;
    bench_blob(feed->blob);
    if (peer->work == INSERT_VEC && (feed->encoded = malloc((size_t)ROWS_AT_ONCE * peer->dimension * 4)) == NULL)
        abort();
    cqlring_source source = {.next = feed_next, .context = feed};
    cqlring_sink sink = {.deliver = take, .context = feed};
    cqlring_job_options how = {.struct_size = sizeof how, .window = peer->window};
    cqlring_future *future;
    cqlring_error error;
    if (cqlring_execute_concurrent(peer->on.session, &peer->statement, 1, &source, &sink, 1, &how, &future, &error) != CQLRING_OK)
        bench_die("execute_concurrent", &error);
    if (cqlring_future_wait(future, -1, &error) != CQLRING_OK)
        bench_die("the job", &error);
    cqlring_future_release(future);
    free(feed->encoded);
    free(feed);
    return rows;
}

/* ---- pages ---------------------------------------------------------------------------------------------------------- */

static uint64_t page_touch(struct peer *peer, cqlring_result *result)
{
    static cqlring_bytes cells[SCAN_CELLS];
    cqlring_error error;
    uint32_t at = 0, count;
    for (;; at += count) {
        if (cqlring_result_rows(result, at, cells, SCAN_CELLS / 2, &count, &error) != CQLRING_OK)
            bench_die("rows", &error);
        if (count == 0)
            return at;
        for (uint32_t i = 0; i < count; i++) {
            int64_t key = 0;
            cqlring_get_int(cells[2 * i], 8, &key);
            peer->touched += (uint64_t)key + (uint64_t)cells[2 * i + 1].size + *(const uint8_t *)cells[2 * i + 1].data;
        }
    }
}

static uint64_t run_scan(struct peer *peer, uint64_t rows)
{
    cqlring_error error;
    cqlring_execution how = {.struct_size = sizeof how, .page_size = PAGE};
    cqlring_request request = {.session = peer->on.session, .prepared = peer->statement, .execution = &how};
    cqlring_future *future;
    if (cqlring_execute(&request, &future, &error) != CQLRING_OK)
        bench_die("scan", &error);
    uint64_t read = 0;
    while (future != NULL) {
        if (cqlring_future_wait(future, -1, &error) != CQLRING_OK)
            bench_die("scan", &error);
        cqlring_result *result = cqlring_result_retain(cqlring_future_completion(future)->result);
        cqlring_future_release(future);
        future = NULL;
        read += page_touch(peer, result);
        if (read < rows && cqlring_result_paging_state(result).data != NULL && cqlring_next_page(result, NULL, &future, &error) != CQLRING_OK)
            bench_die("next_page", &error);
        cqlring_result_release(result);
    }
    return read;
}

/* ---- the program ---------------------------------------------------------------------------------------------------- */

static void parse(struct peer *peer, int argc, char **argv)
{
    static const char usage[] = "usage: peer [--work insert_small|insert_vec|select_small|scan] [--rows N] [--concurrency 1-32768] [--dim 1-8192] [--proto 4|5]\n" BENCH_SERVER_USAGE;
    const struct bench_option table[] = {BENCH_SERVER_OPTIONS(&peer->server),
                                         BENCH_NUMBER_OPTION("--rows", &peer->rows, 1, INT64_MAX),
                                         BENCH_NUMBER_OPTION("--concurrency", &peer->window, 1, BENCH_WINDOW_MAX),
                                         BENCH_NUMBER_OPTION("--dim", &peer->dimension, 1, 8192),
                                         BENCH_NUMBER_OPTION("--proto", &peer->server.protocol, 4, 5),
                                         BENCH_WORD_OPTION("--work", &peer->work, work_names),
                                         {.name = NULL}};
    bench_options_parse("peer", usage, table, argc, argv);
}

int main(int argc, char **argv)
{
    struct peer peer = {.server = {.host = "127.0.0.1", .port = 9042}, .rows = 200000, .window = 128, .dimension = 768};
    parse(&peer, argc, argv);
    for (uint32_t v = 0; v < VECTORS; v++) {
        peer.vectors[v] = malloc(peer.dimension * sizeof(float));
        if (peer.vectors[v] == NULL)
            abort();
        for (uint32_t d = 0; d < peer.dimension; d++)
            peer.vectors[v][d] = (float)((v * 31 + d) % 1000) / 1000.0f;
    }
    bench_open(&peer.on, &peer.server);
    bench_schema(peer.on.session);
    char text[128];
    snprintf(text, sizeof text, "CREATE TABLE IF NOT EXISTS bench.vec (k bigint PRIMARY KEY, v vector<float, %u>)", peer.dimension);
    if (peer.work == INSERT_VEC)
        bench_text(peer.on.session, text);
    static const char *const texts[] = {BENCH_INSERT, "INSERT INTO bench.vec (k, v) VALUES (?, ?)", BENCH_SELECT, "SELECT k, v FROM bench.small"};
    peer.statement = bench_prepare(peer.on.session, texts[peer.work]);

    uint64_t (*run)(struct peer *peer, uint64_t rows) = peer.work == SCAN ? run_scan : run_window;
    run(&peer, peer.rows / 20 > 0 ? peer.rows / 20 : 1);
    peer.errors = 0;
    cqlring_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    cqlring_runtime_stats(peer.on.runtime, &a);
    struct bench_usage usage = bench_usage_now();
    uint64_t rows = run(&peer, peer.rows);
    usage = bench_usage_since(&usage);
    cqlring_runtime_stats(peer.on.runtime, &b);

    double count = rows > 0 ? (double)rows : 1;
    printf("{\"peer\":\"cqlring\",\"version\":\"%s\",\"work\":\"%s\",\"rows\":%" PRIu64 ",\"concurrency\":%u,\"wall_s\":%.4f,\"user_s\":%.4f,"
           "\"sys_s\":%.4f,\"rows_per_s\":%.0f,\"cpu_us_per_row\":%.3f,\"errors\":%" PRIu64 ",\"ctx_switches\":%ld,\"max_rss_mb\":%.1f,"
           "\"requests_per_send\":%.1f,\"replies_per_recv\":%.1f,\"wakes_per_request\":%.4f}\n",
           cqlring_version(), work_names[peer.work], rows, peer.work == SCAN ? 1 : peer.window, usage.seconds, usage.user_s, usage.system_s,
           (double)rows / usage.seconds, (usage.user_s + usage.system_s) * 1e6 / count, peer.errors, usage.context_switches,
           (double)bench_memory_kb("VmHWM") / 1024, (double)(b.requests_issued - a.requests_issued) / (double)(b.sends - a.sends),
           (double)(b.replies - a.replies) / (double)(b.recvs - a.recvs),
           (double)(b.wakes_submitter + b.wakes_reactor + b.wakes_waiter - a.wakes_submitter - a.wakes_reactor - a.wakes_waiter) / count);
    fflush(stdout);
    cqlring_prepared_release(peer.statement);
    bench_close(&peer.on);
    for (uint32_t v = 0; v < VECTORS; v++)
        free(peer.vectors[v]);
    return peer.errors == 0 ? 0 : 1;
}
