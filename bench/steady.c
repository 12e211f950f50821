/* SPDX-License-Identifier: Apache-2.0 */

/* The same small request over and over, and what the process used for it: one line of JSON with the counters of the steady
   part, as plain numbers, for bench/counts and bench/run to divide and compare.

     steady [--work insert|select] [--shape job|queue|future|sync] [--rows N] [--warm N] [--window N]
            [--sink-rows-per-s R] [--idle SECONDS] [--lanes N] [--submitters N]
            [--host H] [--port P] [--threads split|inline|caller] [--protocol 4|5] [--lz4] [--tls-ca FILE]

   Rows take next to nothing to make here (a key, the same blob), so nearly all that is counted is the library's.
   --shape               job: execute_concurrent (default). queue, future: the other two ways in, window requests under way;
                         sync: one at a time.
   --lanes               a job has a source and a sink for each of them, each with the window, and the rows are shared out.
   --submitters          queue, future, sync: so many threads of the application, which share out rows and window.
   --sink-rows-per-s     the job's sink takes no more than that: it answers LATER, and the application's own thread pokes
                         the job when it is ready for more.
   --idle                nothing at all for so long, after the rows; how often the library's threads ran meanwhile. */

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "common/bench.h"

/* ---- calls of malloc and its like, by whomever in this process ------------------------------------------------------ */

static atomic_ullong heap_calls;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { HEAP_COUNTED = 1 };
/* A program's own malloc stands in for the C library's in every library it loads. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    atomic_fetch_add_explicit(&heap_calls, 1, memory_order_relaxed);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add_explicit(&heap_calls, 1, memory_order_relaxed);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add_explicit(&heap_calls, 1, memory_order_relaxed);
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add_explicit(&heap_calls, 1, memory_order_relaxed);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    atomic_fetch_add_explicit(&heap_calls, 1, memory_order_relaxed);
    *out = __libc_memalign(alignment, size);
    return *out != NULL ? 0 : 12; /* ENOMEM */
}
#else
enum { HEAP_COUNTED = 0 };
#endif

/* ---- what is asked for ---------------------------------------------------------------------------------------------- */

enum { LANES_MAX = 16, SUBMITTERS_MAX = 64 };

struct options {
    struct bench_server server;
    int work;  /* work_names */
    int shape; /* shape_names */
    uint64_t rows, warm;
    uint32_t window;
    double sink_rows_per_s;
    int idle_s;
    uint32_t submitters;
};

static const char *const work_names[] = {"insert", "select", NULL};
enum { SHAPE_JOB, SHAPE_QUEUE, SHAPE_FUTURE, SHAPE_SYNC };
static const char *const shape_names[] = {"job", "queue", "future", "sync", NULL};

static const char help[] =
    "usage: steady [--work insert|select] [--shape job|queue|future|sync] [--rows N] [--warm N] [--window 1-32768]\n"
    "  [--sink-rows-per-s R] [--idle SECONDS] [--submitters 1-64]\n" BENCH_SERVER_USAGE;

static void options_parse(struct options *options, int argc, char **argv)
{
    const struct bench_option table[] = {BENCH_SERVER_OPTIONS(&options->server),
                                         BENCH_WORD_OPTION("--work", &options->work, work_names),
                                         BENCH_WORD_OPTION("--shape", &options->shape, shape_names),
                                         BENCH_NUMBER_OPTION("--rows", &options->rows, 0, INT64_MAX),
                                         BENCH_NUMBER_OPTION("--warm", &options->warm, 0, INT64_MAX),
                                         BENCH_NUMBER_OPTION("--window", &options->window, 1, BENCH_WINDOW_MAX),
                                         BENCH_DECIMAL_OPTION("--sink-rows-per-s", &options->sink_rows_per_s, 0, INT32_MAX),
                                         BENCH_NUMBER_OPTION("--idle", &options->idle_s, 0, 86400),
                                         BENCH_NUMBER_OPTION("--submitters", &options->submitters, 1, SUBMITTERS_MAX),
                                         {.name = NULL}};
    bench_options_parse("steady", help, table, argc, argv);
}

/* What one thread was told. */
struct tally {
    uint64_t errors, delivered, cell_bytes;
};

struct bench {
    struct bench_session on;
    struct options options;
    cqlring_prepared *statement;
    struct tally all;
};

static void tally_add(struct tally *all, const struct tally *one)
{
    all->errors += one->errors;
    all->delivered += one->delivered;
    all->cell_bytes += one->cell_bytes;
}

static void note(struct tally *tally, const cqlring_completion *completion)
{
    tally->delivered++;
    if (completion->status != CQLRING_OK) {
        if (tally->errors++ == 0)
            fprintf(stderr, "the first error: %s\n", completion->error->message);
        return;
    }
    if (completion->result != NULL) {
        cqlring_bytes cells[16];
        uint32_t columns = cqlring_result_column_count(completion->result), rows = 0;
        if (columns > 0 && columns <= 16 &&
            cqlring_result_rows(completion->result, 0, cells, 16 / columns, &rows, NULL) == CQLRING_OK)
            for (uint32_t i = 0; i < rows * columns; i++)
                tally->cell_bytes += cells[i].size > 0 ? (uint64_t)cells[i].size : 0;
    }
}

/* ---- a job ---------------------------------------------------------------------------------------------------------- */

enum { ROWS_AT_ONCE = 256 };

struct feed {
    uint64_t next, end;
    uint64_t keys[ROWS_AT_ONCE];
    cqlring_bytes cells[ROWS_AT_ONCE][2];
    uint8_t blob[BENCH_BLOB_SIZE];
    struct tally tally;
    _Atomic(int64_t) credit; /* rows that a slow sink may still take */
};

static struct feed *feed_make(uint64_t from, uint64_t rows)
{
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        abort();
    feed->next = from;
    feed->end = from + rows;
    bench_blob(feed->blob);
    for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
        feed->cells[i][0] = (cqlring_bytes){(const uint8_t *)&feed->keys[i], 8};
        feed->cells[i][1] = (cqlring_bytes){feed->blob, BENCH_BLOB_SIZE};
    }
    return feed;
}

static int32_t feed_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us,
                         cqlring_error *error, void *context)
{
    struct feed *feed = context;
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    uint64_t left = feed->end - feed->next;
    uint32_t count = left < capacity ? (uint32_t)left : capacity;
    for (uint32_t i = 0; i < count; i++) {
        feed->keys[i] = __builtin_bswap64(feed->next + i);
        rows[i] = (cqlring_row){.cells = feed->cells[i], .tag = feed->next + i};
    }
    feed->next += count;
    return (int32_t)count;
}

static cqlring_verdict take(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct feed *feed = context;
    for (uint32_t i = 0; i < count; i++)
        note(&feed->tally, &completions[i]);
    return CQLRING_CONTINUE;
}

static cqlring_verdict take_slowly(const cqlring_completion *completions, uint32_t count,
                                   void *context)
{
    struct feed *feed = context;
    if (atomic_load_explicit(&feed->credit, memory_order_relaxed) <= 0)
        return CQLRING_LATER;
    atomic_fetch_sub_explicit(&feed->credit, count, memory_order_relaxed);
    return take(completions, count, context);
}

/* The application's thread: lets the sink take what its rate allows, each ten milliseconds. */
static void dole_out(struct feed *feed, cqlring_future *future, double rows_per_s)
{
    int64_t start = bench_now_ns();
    double given = 0;
    while (!cqlring_future_ready(future)) {
        double due = (double)(bench_now_ns() - start) / 1e9 * rows_per_s;
        if (due - given >= 1) {
            atomic_fetch_add_explicit(&feed->credit, (int64_t)(due - given), memory_order_relaxed);
            given += (double)(int64_t)(due - given);
            cqlring_job_poke(future);
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void job(struct bench *bench, uint64_t from, uint64_t rows)
{
    const struct options *options = &bench->options;
    uint32_t pairs = options->server.lanes > 1 ? options->server.lanes : 1;
    bool slow = options->sink_rows_per_s > 0;
    struct feed *feeds[LANES_MAX];
    cqlring_source sources[LANES_MAX];
    cqlring_sink sinks[LANES_MAX];
    for (uint32_t i = 0; i < pairs; i++) {
        uint64_t begin = rows * i / pairs, end = rows * (i + 1) / pairs;
        feeds[i] = feed_make(from + begin, end - begin);
        sources[i] = (cqlring_source){.next = feed_next, .context = feeds[i]};
        sinks[i] = (cqlring_sink){.deliver = slow ? take_slowly : take, .context = feeds[i]};
    }
    cqlring_execution execution = {.struct_size = sizeof execution, .idempotent = CQLRING_YES};
    cqlring_job_options how = {
        .struct_size = sizeof how, .window = options->window, .execution = &execution};
    cqlring_future *future;
    cqlring_error error;
    if (cqlring_execute_concurrent(bench->on.session, &bench->statement, 1, sources, sinks, pairs, &how,
                                   &future, &error) != CQLRING_OK)
        bench_die("execute_concurrent", &error);
    if (slow)
        dole_out(feeds[0], future, options->sink_rows_per_s);
    if (cqlring_future_wait(future, -1, &error) != CQLRING_OK)
        bench_die("the job", &error);
    cqlring_future_release(future);
    for (uint32_t i = 0; i < pairs; i++) {
        tally_add(&bench->all, &feeds[i]->tally);
        free(feeds[i]);
    }
}

/* ---- the other ways in ---------------------------------------------------------------------------------------------- */

/* One thread of the application, and its share. */
struct submitter {
    struct bench *bench;
    uint64_t from, rows;
    uint32_t window;
    struct tally tally;
    pthread_t thread;
};

static cqlring_request one(struct bench *bench, const cqlring_bytes cells[2], uint64_t tag)
{
    return (cqlring_request){.session = bench->on.session,
                             .prepared = bench->statement,
                             .values = cells,
                             .value_count = bench->options.work == 1 ? 1 : 2,
                             .tag = tag};
}

static void queue(struct submitter *submitter)
{
    struct bench *bench = submitter->bench;
    uint64_t rows = submitter->rows;
    cqlring_queue_options how = {.struct_size = sizeof how,
                                 .session = bench->on.session,
                                 .capacity = submitter->window};
    cqlring_queue *queue;
    cqlring_error error;
    if (cqlring_queue_open(&how, &queue, &error) != CQLRING_OK)
        bench_die("queue_open", &error);
    struct feed *feed = feed_make(submitter->from, rows);
    cqlring_row made[ROWS_AT_ONCE];
    cqlring_request requests[ROWS_AT_ONCE];
    cqlring_completion completions[ROWS_AT_ONCE];
    uint64_t submitted = 0, reaped = 0;
    while (reaped < rows) {
        uint32_t room = cqlring_queue_room(queue);
        uint32_t count = room == 0 || submitted == rows
                             ? 0
                             : (uint32_t)feed_next(made, room < ROWS_AT_ONCE ? room : ROWS_AT_ONCE,
                                                   0, NULL, NULL, feed);
        for (uint32_t i = 0; i < count; i++)
            requests[i] = one(bench, made[i].cells, made[i].tag);
        uint32_t accepted = 0;
        if (count > 0 &&
            cqlring_queue_submit(queue, requests, count, &accepted, &error) != CQLRING_OK)
            bench_die("queue_submit", &error);
        feed->next -= count - accepted;
        submitted += accepted;
        if (accepted > 0 && cqlring_queue_room(queue) > 0 && submitted < rows)
            continue;
        cqlring_status status;
        uint64_t under_way = submitted - reaped; /* a quarter of the window at a time: as many sleeps as a batch is worth */
        uint32_t want = submitter->window / 4 < under_way ? submitter->window / 4 : (uint32_t)under_way;
        uint32_t got = cqlring_queue_reap(queue, completions, ROWS_AT_ONCE, want < ROWS_AT_ONCE ? want : ROWS_AT_ONCE, -1, &status);
        for (uint32_t i = 0; i < got; i++)
            note(&submitter->tally, &completions[i]);
        cqlring_completions_release(completions, got);
        reaped += got;
    }
    free(feed);
    cqlring_queue_close(queue);
    cqlring_queue_release(queue);
}

static void futures(struct submitter *submitter)
{
    struct bench *bench = submitter->bench;
    uint64_t from = submitter->from, rows = submitter->rows;
    uint32_t window = submitter->window;
    cqlring_future **pending = calloc(window, sizeof *pending);
    if (pending == NULL)
        abort();
    uint8_t blob[BENCH_BLOB_SIZE];
    bench_blob(blob);
    cqlring_error error;
    for (uint64_t i = 0; i < rows + window; i++) {
        cqlring_future **place = &pending[i % window];
        if (*place != NULL) {
            cqlring_future_wait(*place, -1, NULL);
            note(&submitter->tally, cqlring_future_completion(*place));
            cqlring_future_release(*place);
            *place = NULL;
        }
        if (i >= rows)
            continue;
        uint64_t key = __builtin_bswap64(from + i);
        cqlring_bytes cells[2] = {{(const uint8_t *)&key, 8}, {blob, BENCH_BLOB_SIZE}};
        cqlring_request request = one(bench, cells, i);
        if (cqlring_execute(&request, place, &error) != CQLRING_OK)
            bench_die("execute", &error);
    }
    free(pending);
}

static void syncs(struct submitter *submitter)
{
    struct bench *bench = submitter->bench;
    uint64_t from = submitter->from, rows = submitter->rows;
    uint8_t blob[BENCH_BLOB_SIZE];
    bench_blob(blob);
    cqlring_error error;
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t key = __builtin_bswap64(from + i);
        cqlring_bytes cells[2] = {{(const uint8_t *)&key, 8}, {blob, BENCH_BLOB_SIZE}};
        cqlring_request request = one(bench, cells, i);
        cqlring_result *result;
        submitter->tally.delivered++;
        if (cqlring_execute_sync(&request, &result, &error) != CQLRING_OK) {
            if (submitter->tally.errors++ == 0)
                fprintf(stderr, "the first error: %s\n", error.message);
            continue;
        }
        cqlring_result_release(result);
    }
}

static void *submit(void *context)
{
    struct submitter *submitter = context;
    switch (submitter->bench->options.shape) {
    case SHAPE_QUEUE: queue(submitter); break;
    case SHAPE_FUTURE: futures(submitter); break;
    default: syncs(submitter); break;
    }
    return NULL;
}

static void run(struct bench *bench, uint64_t from, uint64_t rows)
{
    const struct options *options = &bench->options;
    if (options->shape == SHAPE_JOB) {
        job(bench, from, rows);
        return;
    }
    struct submitter submitters[SUBMITTERS_MAX];
    uint32_t count = options->submitters;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = rows * i / count, end = rows * (i + 1) / count;
        uint32_t window = options->window / count;
        submitters[i] = (struct submitter){.bench = bench, .from = from + begin, .rows = end - begin, .window = window > 0 ? window : 1};
        if (count > 1 && pthread_create(&submitters[i].thread, NULL, submit, &submitters[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < count; i++) {
        if (count > 1)
            pthread_join(submitters[i].thread, NULL);
        else
            submit(&submitters[i]);
        tally_add(&bench->all, &submitters[i].tally);
    }
}

/* ---- the line ------------------------------------------------------------------------------------------------------- */

/* How often the other threads of this process gave up the processor of their own will, that is, were woken afterwards. */
static long naps(void)
{
    long total = 0, own = (long)gettid();
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        bool other = task->d_name[0] != '.' && atol(task->d_name) != own;
        FILE *file = other ? fopen(path, "re") : NULL;
        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                total += strtol(line + 24, NULL, 10);
        if (file != NULL)
            fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return total;
}

int main(int argc, char **argv)
{
    struct bench bench = {.options = {.server = {.host = "127.0.0.1", .port = 9042},
                                      .rows = 100000,
                                      .window = 512,
                                      .submitters = 1}};
    struct options *options = &bench.options;
    options_parse(options, argc, argv);
    if (options->server.tls_ca != NULL)
        OPENSSL_init_ssl(0, NULL); /* its start is not the session's */
    bench_memory_kb("VmRSS");
    long memory_before = bench_memory_kb("VmRSS");

    bench_open(&bench.on, &options->server);
    bench_schema(bench.on.session);
    bench.statement = bench_prepare(bench.on.session, options->work == 1 ? BENCH_SELECT : BENCH_INSERT);
    long memory_open = bench_memory_kb("VmRSS");

    if (options->warm > 0)
        run(&bench, 0, options->warm);
    cqlring_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    cqlring_runtime_stats(bench.on.runtime, &a);
    unsigned long long heap = atomic_load(&heap_calls);
    bench.all.delivered = 0;
    struct bench_usage usage = bench_usage_now();
    if (options->rows > 0)
        run(&bench, options->warm, options->rows);
    usage = bench_usage_since(&usage);
    heap = atomic_load(&heap_calls) - heap;
    cqlring_runtime_stats(bench.on.runtime, &b);

    long idle_naps = 0;
    if (options->idle_s > 0) {
        /* two seconds after the last request each connection is looked at once, for silence with requests waiting */
        nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 500000000}, NULL);
        idle_naps = naps();
        nanosleep(&(struct timespec){.tv_sec = options->idle_s}, NULL);
        idle_naps = naps() - idle_naps;
    }

    int protocol;
    const char *release;
    bench_answered(bench.on.cluster, &protocol, &release);
    printf("{\"work\": \"%s\", \"shape\": \"%s\", \"threads\": \"%s\", \"protocol\": %d, \"window\": %u, "
           "\"rows\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"cell_bytes\": %" PRIu64 ", "
           "\"seconds\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"context_switches\": %ld, ",
           work_names[options->work], shape_names[options->shape],
           bench_threads_names[options->server.threads],
           protocol, options->window, options->rows,
           bench.all.delivered, bench.all.errors, bench.all.cell_bytes, usage.seconds, usage.user_s, usage.system_s,
           usage.context_switches);
    if (HEAP_COUNTED)
        printf("\"heap_calls\": %llu, ", heap);
    printf("\"memory_before_kb\": %ld, \"memory_open_kb\": %ld, \"memory_kb\": %ld, \"memory_max_kb\": %ld, \"idle_naps\": %ld",
           memory_before, memory_open, bench_memory_kb("VmRSS"), bench_memory_kb("VmHWM"), idle_naps);
#define COUNTER(name) printf(", \"" #name "\": %" PRIu64, b.name - a.name)
    COUNTER(requests_issued);
    COUNTER(requests_settled);
    COUNTER(requests_failed);
    COUNTER(retries);
    COUNTER(sends);
    COUNTER(send_bytes);
    COUNTER(send_blocked);
    COUNTER(recvs);
    COUNTER(recv_bytes);
    COUNTER(replies);
    COUNTER(copied_up_bytes);
    COUNTER(copied_down_bytes);
    COUNTER(wakes_submitter);
    COUNTER(wakes_reactor);
    COUNTER(wakes_waiter);
    COUNTER(submitter_turns);
    COUNTER(reactor_turns);
    COUNTER(submitter_sleeps);
    COUNTER(allocations);
#undef COUNTER
    printf("}\n");
    fflush(stdout);
    cqlring_prepared_release(bench.statement);
    bench_close(&bench.on);
    return bench.all.errors == 0 && bench.all.delivered == options->rows ? 0 : 1;
}
