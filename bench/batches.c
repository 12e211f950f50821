/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of partitions of a given size, each a request of its own or together with those of its partition.

     batches --host H --port P --rows N --partition K --together yes|no --concurrency C [--size B] [--apart D]

   Inserts into bench.wide (p bigint, c int, v blob, PRIMARY KEY (p, c)); a partition's K rows follow one another, or with --apart D
   the rows of D partitions in turn. One line of JSON, about all but the first twentieth of the rows. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"

enum { ROWS_AT_ONCE = 256, VALUE_MAX = 4096 };

static const char *const yes_no[] = {"no", "yes", NULL};

struct wide {
    struct bench_session on;
    struct bench_server server;
    uint64_t rows, base;
    uint32_t window, partition, apart, size;
    int together;
    cqlring_prepared *insert;
    uint64_t errors;
    uint64_t next, end;
    uint64_t keys[ROWS_AT_ONCE];
    uint32_t places[ROWS_AT_ONCE];
    cqlring_bytes cells[ROWS_AT_ONCE][3];
    uint8_t value[VALUE_MAX];
};

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct wide *wide = context;
    (void)now_us, (void)wake_at_us, (void)error;
    uint64_t left = wide->end - wide->next, group = (uint64_t)wide->partition * wide->apart;
    uint32_t count = left < capacity ? (uint32_t)left : capacity;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t row = wide->next++;
        uint64_t partition = row / group * wide->apart + row % wide->apart;
        wide->keys[i] = __builtin_bswap64(wide->base + partition);
        wide->places[i] = __builtin_bswap32((uint32_t)(row % group / wide->apart));
        wide->cells[i][0] = (cqlring_bytes){(const uint8_t *)&wide->keys[i], 8};
        wide->cells[i][1] = (cqlring_bytes){(const uint8_t *)&wide->places[i], 4};
        wide->cells[i][2] = (cqlring_bytes){wide->value, (int32_t)wide->size};
        rows[i] = (cqlring_row){.cells = wide->cells[i], .tag = row};
    }
    return (int32_t)count;
}

static cqlring_verdict take(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct wide *wide = context;
    for (uint32_t i = 0; i < count; i++)
        if (completions[i].status != CQLRING_OK && wide->errors++ == 0)
            fprintf(stderr, "the first error: %s\n", completions[i].error->message);
    return CQLRING_CONTINUE;
}

static void run(struct wide *wide, uint64_t rows)
{
    const cqlring_batch_by_partition batches = {.struct_size = sizeof batches};
    cqlring_source source = {.next = next, .context = wide};
    cqlring_sink sink = {.deliver = take, .context = wide};
    const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES}; /* a busy server's time-outs are tried again */
    cqlring_job_options how = {.struct_size = sizeof how, .window = wide->window, .execution = &idempotent, .batch_by_partition = wide->together != 0 ? &batches : NULL};
    cqlring_future *future;
    cqlring_error error;
    wide->next = 0;
    wide->end = rows;
    if (cqlring_execute_concurrent(wide->on.session, &wide->insert, 1, &source, &sink, 1, &how, &future, &error) != CQLRING_OK)
        bench_die("execute_concurrent", &error);
    if (cqlring_future_wait(future, -1, &error) != CQLRING_OK)
        bench_die("the job", &error);
    cqlring_future_release(future);
    wide->base += rows;
}

int main(int argc, char **argv)
{
    static struct wide wide = {.server = {.host = "127.0.0.1", .port = 9042}, .rows = 200000, .window = 256, .partition = 10, .apart = 1, .size = 32};
    static const char usage[] = "usage: batches [--rows N] [--partition 1-1000000] [--apart 1-65536] [--together yes|no] [--concurrency 1-32768] [--size 0-4096]\n" BENCH_SERVER_USAGE;
    const struct bench_option table[] = {BENCH_SERVER_OPTIONS(&wide.server),
                                         BENCH_NUMBER_OPTION("--rows", &wide.rows, 1, INT64_MAX),
                                         BENCH_NUMBER_OPTION("--partition", &wide.partition, 1, 1000000),
                                         BENCH_NUMBER_OPTION("--apart", &wide.apart, 1, 65536),
                                         BENCH_NUMBER_OPTION("--concurrency", &wide.window, 1, BENCH_WINDOW_MAX),
                                         BENCH_NUMBER_OPTION("--size", &wide.size, 0, VALUE_MAX),
                                         BENCH_WORD_OPTION("--together", &wide.together, yes_no),
                                         {.name = NULL}};
    bench_options_parse("batches", usage, table, argc, argv);
    bench_open(&wide.on, &wide.server);
    bench_schema(wide.on.session);
    bench_text(wide.on.session, "CREATE TABLE IF NOT EXISTS bench.wide (p bigint, c int, v blob, PRIMARY KEY (p, c))");
    cqlring_future *read = NULL;
    cqlring_error error;
    if (cqlring_schema_refresh(wide.on.cluster, &read, &error) != CQLRING_OK || cqlring_future_wait(read, -1, &error) != CQLRING_OK)
        bench_die("reading the schema", &error);
    cqlring_future_release(read);
    wide.insert = bench_prepare(wide.on.session, "INSERT INTO bench.wide (p, c, v) VALUES (?, ?, ?)");
    run(&wide, wide.rows / 20 > 0 ? wide.rows / 20 : 1);
    cqlring_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    cqlring_runtime_stats(wide.on.runtime, &a);
    struct bench_usage used = bench_usage_now();
    run(&wide, wide.rows);
    used = bench_usage_since(&used);
    cqlring_runtime_stats(wide.on.runtime, &b);
    printf("{\"program\":\"batches\",\"rows\":%" PRIu64 ",\"partition\":%u,\"apart\":%u,\"size\":%u,\"concurrency\":%u,\"together\":%d,\"wall_s\":%.4f,\"user_s\":%.4f,"
           "\"sys_s\":%.4f,\"errors\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"batches\":%" PRIu64 ",\"batched_rows\":%" PRIu64 ",\"allocations\":%" PRIu64
           ",\"sent_bytes\":%" PRIu64 ",\"context_switches\":%ld}\n",
           wide.rows, wide.partition, wide.apart, wide.size, wide.window, wide.together, used.seconds, used.user_s, used.system_s, wide.errors,
           b.requests_issued - a.requests_issued, b.batches - a.batches, b.batched_rows - a.batched_rows, b.allocations - a.allocations, b.send_bytes - a.send_bytes,
           used.context_switches);
    fflush(stdout);
    cqlring_prepared_release(wide.insert);
    bench_close(&wide.on);
    return wide.errors == 0 ? 0 : 1;
}
