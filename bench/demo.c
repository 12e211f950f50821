/* SPDX-License-Identifier: Apache-2.0 */

/* The main job: rows into a cluster through execute_concurrent, read back one by one through execute_concurrent, every row
   compared; then what it cost. Only the public API is used.

     demo [--host H] [--port P] [--node PROGRAM] [--rows N] [--window N] [--threads split|inline|caller] [--protocol 4|5]
          [--lz4] [--no-verify] [--json] [--server NAME]

   --node starts that program (the embedded node) on a free port and ends it afterwards. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/bench.h"

struct options {
    struct bench_server server;
    const char *node, *server_name;
    int mode;
    uint64_t rows;
    uint32_t window;
    bool verify, json;
};

enum { BLOB = 32 };

/* Row i: key i, a blob that depends on i. */
static void blob_of(uint64_t i, uint8_t blob[BLOB])
{
    uint64_t x = i * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (int at = 0; at < BLOB; at += 8) {
        x ^= x >> 29;
        x *= UINT64_C(0xBF58476D1CE4E5B9);
        memcpy(blob + at, &x, 8);
    }
}

/* ---- source ---- */

struct rows {
    uint64_t next, end;
    cqlring_writer writer;
    uint8_t keys[256 * 8];
    uint8_t blobs[256][BLOB];
    cqlring_bytes cells[256][2];
    bool with_blob;
};

static int32_t rows_next(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct rows *rows = context;
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    uint32_t count = 0;
    cqlring_writer_init(&rows->writer, rows->keys, sizeof rows->keys);
    for (; count < capacity && rows->next < rows->end; count++) {
        uint64_t i = rows->next++;
        cqlring_put_int(&rows->writer, (int64_t)i, 8);
        cqlring_writer_take(&rows->writer, &rows->cells[count][0], NULL);
        if (rows->with_blob) {
            blob_of(i, rows->blobs[count]);
            rows->cells[count][1] = (cqlring_bytes){rows->blobs[count], BLOB};
        }
        out[count] = (cqlring_row){.cells = rows->cells[count], .tag = i};
    }
    return (int32_t)count;
}

/* ---- sinks ---- */

struct tally {
    uint64_t delivered, errors;
    uint64_t equal, missing, differing; /* read back: as it was written, not there, otherwise */
    char first_error[400];
};

static void note_error(struct tally *tally, const cqlring_completion *completion)
{
    if (tally->errors++ == 0)
        snprintf(tally->first_error, sizeof tally->first_error, "%s: %s", cqlring_status_name((cqlring_status)completion->status), completion->error->message);
}

static cqlring_verdict written(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct tally *tally = context;
    for (uint32_t i = 0; i < count; i++) {
        tally->delivered++;
        if (completions[i].status != CQLRING_OK)
            note_error(tally, &completions[i]);
    }
    return CQLRING_CONTINUE;
}

static cqlring_verdict read_back(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct tally *tally = context;
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *completion = &completions[i];
        if ((completion->flags & CQLRING_COMPLETION_LAST) != 0)
            tally->delivered++;
        if (completion->status != CQLRING_OK) {
            note_error(tally, completion);
            continue;
        }
        cqlring_bytes cell;
        uint32_t rows = 0;
        uint8_t expected[BLOB];
        blob_of(completion->tag, expected);
        if (completion->result == NULL || cqlring_result_rows(completion->result, 0, &cell, 1, &rows, NULL) != CQLRING_OK || rows == 0)
            tally->missing++;
        else if (rows != 1 || cell.size != BLOB || memcmp(cell.data, expected, BLOB) != 0)
            tally->differing++;
        else
            tally->equal++;
    }
    return CQLRING_CONTINUE;
}

/* ---- measuring ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return ((double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec) * 1e6 + (double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec;
}

struct phase {
    double seconds, cpu_us;
    cqlring_stats before, after;
    cqlring_summary summary;
    struct tally tally;
};

static void job(cqlring_runtime *runtime, cqlring_session *session, cqlring_prepared *statement, const struct options *options, uint64_t from, uint64_t to,
                bool write, struct phase *phase)
{
    struct rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        abort();
    rows->next = from;
    rows->end = to;
    rows->with_blob = write;
    cqlring_source source = {.next = rows_next, .context = rows};
    cqlring_sink sink = {.deliver = write ? written : read_back, .context = &phase->tally};
    cqlring_execution execution = {.struct_size = sizeof execution, .timeout_us = 60000000, .idempotent = CQLRING_YES};
    cqlring_job_options how = {.struct_size = sizeof how, .window = options->window, .execution = &execution, .skip_successes = 0};
    phase->before.struct_size = phase->after.struct_size = sizeof(cqlring_stats);
    cqlring_runtime_stats(runtime, &phase->before);
    double cpu = cpu_us(), start = seconds();
    cqlring_future *future;
    cqlring_error error;
    if (cqlring_execute_concurrent(session, &statement, 1, &source, &sink, 1, &how, &future, &error) != CQLRING_OK)
        bench_die("execute_concurrent", &error);
    cqlring_status status = cqlring_future_wait(future, -1, &error);
    phase->seconds = seconds() - start;
    phase->cpu_us = cpu_us() - cpu;
    cqlring_runtime_stats(runtime, &phase->after);
    cqlring_job_summary(future, &phase->summary);
    cqlring_future_release(future);
    free(rows);
    if (status != CQLRING_OK)
        bench_die("the job", &error);
}

/* ---- the node's process ---- */

static pid_t node_start(const char *program, const char *mode, int *port)
{
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(ends[1], 1);
        close(ends[0]);
        execl(program, program, "--port", "0", "--mode", mode, (char *)NULL);
        fprintf(stderr, "%s: %s\n", program, strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    char line[256];
    while (out != NULL && fgets(line, sizeof line, out) != NULL) {
        char *colon = strrchr(line, ':');
        if (strncmp(line, "listening ", 10) == 0 && colon != NULL) {
            *port = atoi(colon + 1);
            return pid;
        }
    }
    fprintf(stderr, "%s did not say where it listens\n", program);
    exit(1);
}

/* ---- options ---- */

static const char *const modes[] = {"store", "void", NULL};

static void parse(int argc, char **argv, struct options *options)
{
    static const char usage[] = "usage: demo [--node PROGRAM [--mode store|void]] [--rows N] [--window 1-32768] [--json] [--no-verify] [--server NAME]\n" BENCH_SERVER_USAGE
                                "  --node    start this cqlring-node for the occasion, instead of --host and --port (127.0.0.1 and 9042)\n"
                                "  --server  what the figures call the server\n";
    const struct bench_option table[] = {BENCH_SERVER_OPTIONS(&options->server),
                                         BENCH_TEXT_OPTION("--node", &options->node),
                                         BENCH_WORD_OPTION("--mode", &options->mode, modes),
                                         BENCH_NUMBER_OPTION("--rows", &options->rows, 1, INT64_MAX),
                                         BENCH_NUMBER_OPTION("--window", &options->window, 1, BENCH_WINDOW_MAX),
                                         BENCH_TEXT_OPTION("--server", &options->server_name),
                                         BENCH_FLAG_OPTION("--json", &options->json, true),
                                         BENCH_FLAG_OPTION("--no-verify", &options->verify, false),
                                         {.name = NULL}};
    bench_options_parse("demo", usage, table, argc, argv);
}

/* ---- what is told ---- */

/* "Apache Cassandra 5.0.6", without what JSON would have to escape: the version is the server's text. */
static void name_server(const struct options *options, const char *release, char *text, size_t size)
{
    if (options->server_name != NULL)
        snprintf(text, size, "%s %s", options->server_name, release);
    else if (options->node != NULL)
        snprintf(text, size, "embedded node %s", release);
    else
        snprintf(text, size, "%s:%d, release %s", options->server.host, options->server.port, release[0] != '\0' ? release : "unknown");
    for (char *at = text; *at != '\0'; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '?';
}

static double per(uint64_t count, double rows)
{
    return rows > 0 ? (double)count / rows : 0;
}

static void print_phase(const char *name, const struct phase *phase, double rows)
{
    const cqlring_stats *a = &phase->before, *b = &phase->after;
    printf("%-6s %9.0f rows in %6.2f s  %8.0f rows/s  client CPU %5.2f µs/row  requests/send %6.1f  requests/recv %6.1f  wakes/request %.4f  mallocs/request %.4f\n", name,
           rows, phase->seconds, rows / phase->seconds, phase->cpu_us / rows, per(b->requests_issued - a->requests_issued, (double)(b->sends - a->sends)),
           per(b->replies - a->replies, (double)(b->recvs - a->recvs)), per(b->wakes_submitter + b->wakes_reactor - a->wakes_submitter - a->wakes_reactor, rows),
           per(b->allocations - a->allocations, rows));
    if (phase->tally.errors > 0)
        printf("       %" PRIu64 " errors, the first: %s\n", phase->tally.errors, phase->tally.first_error);
}

static void print_verdict(const struct options *options, uint64_t unwritten, const struct tally *read)
{
    uint64_t unread = options->rows - read->equal - read->missing - read->differing;
    if (unwritten > 0)
        printf("%" PRIu64 " of %" PRIu64 " rows were not written", unwritten, options->rows);
    if (!options->verify)
        printf("%s", unwritten > 0 ? "; nothing was read back (--no-verify)" : "nothing was read back (--no-verify)");
    else if (unwritten == 0 && read->equal == options->rows)
        printf("all %" PRIu64 " rows read back and equal", options->rows);
    else
        printf("%s%" PRIu64 " of %" PRIu64 " rows read back and equal, %" PRIu64 " missing, %" PRIu64 " different, %" PRIu64 " could not be read",
               unwritten > 0 ? "; " : "", read->equal, options->rows, read->missing, read->differing, unread);
}

int main(int argc, char **argv)
{
    struct options options = {.server = {.host = "127.0.0.1", .port = 9042}, .rows = 1000000, .window = 512, .verify = true};
    parse(argc, argv, &options);
    pid_t node = 0;
    if (options.node != NULL)
        node = node_start(options.node, modes[options.mode], &options.server.port);

    struct bench_session on;
    bench_open(&on, &options.server);
    int protocol;
    const char *release;
    char server[160];
    bench_answered(on.cluster, &protocol, &release);
    name_server(&options, release, server, sizeof server);
    bench_text(on.session, "CREATE KEYSPACE IF NOT EXISTS cqlring_demo WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    bench_text(on.session, "CREATE TABLE IF NOT EXISTS cqlring_demo.small (k bigint PRIMARY KEY, v blob)");
    bench_text(on.session, "TRUNCATE cqlring_demo.small");
    cqlring_prepared *insert = bench_prepare(on.session, "INSERT INTO cqlring_demo.small (k, v) VALUES (?, ?)");
    cqlring_prepared *select = bench_prepare(on.session, "SELECT v FROM cqlring_demo.small WHERE k = ?");

    /* a twentieth first, unmeasured: pools, caches and the server's warm-up */
    uint64_t warm = options.rows / 20 > 0 && options.rows >= 20 ? options.rows / 20 : 0;
    struct phase warm_up = {0}, write = {0}, read = {0};
    if (warm > 0)
        job(on.runtime, on.session, insert, &options, 0, warm, true, &warm_up);
    job(on.runtime, on.session, insert, &options, warm, options.rows, true, &write);
    double measured = (double)(options.rows - warm);
    if (options.verify)
        job(on.runtime, on.session, select, &options, 0, options.rows, false, &read);
    uint64_t unsettled = options.rows - warm_up.tally.delivered - write.tally.delivered;
    uint64_t unwritten = unsettled + warm_up.tally.errors + write.tally.errors;
    uint64_t errors = warm_up.tally.errors + write.tally.errors + read.tally.errors;
    uint64_t missing = read.tally.missing + read.tally.differing + unsettled + (options.verify ? options.rows - read.tally.delivered : 0);
    double rss = (double)bench_memory_kb("VmHWM") / 1024;

    const char *threads = bench_threads_names[options.server.threads];
    const cqlring_stats *a = &write.before, *b = &write.after;
    if (options.json) {
        printf("{\"rows\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"differing\": %" PRIu64 ", \"seconds\": %.3f, \"rows_per_s\": %.0f, "
               "\"client_cpu_us_per_row\": %.3f, \"requests_per_send\": %.2f, \"requests_per_recv\": %.2f, \"wakes_per_request\": %.5f, \"mallocs_per_request\": %.6f, "
               "\"copied_bytes_per_request\": %.2f, \"max_rss_mb\": %.1f, \"server\": \"%s\", \"protocol\": %d, \"threads\": \"%s\", \"window\": %u, "
               "\"read_seconds\": %.3f, \"read_rows_per_s\": %.0f, \"read_client_cpu_us_per_row\": %.3f, \"copied_up_bytes_per_request\": %.4f}\n",
               options.rows, errors, missing, read.tally.differing, write.seconds, measured / write.seconds, write.cpu_us / measured,
               per(b->requests_issued - a->requests_issued, (double)(b->sends - a->sends)), per(b->replies - a->replies, (double)(b->recvs - a->recvs)),
               per(b->wakes_submitter + b->wakes_reactor - a->wakes_submitter - a->wakes_reactor, measured), per(b->allocations - a->allocations, measured),
               per(b->copied_down_bytes + b->copied_up_bytes - a->copied_down_bytes - a->copied_up_bytes, measured), rss, server, protocol, threads, options.window,
               read.seconds, options.verify ? (double)options.rows / read.seconds : 0, options.verify ? read.cpu_us / (double)options.rows : 0,
               per(b->copied_up_bytes - a->copied_up_bytes, measured));
    } else {
        printf("%s, protocol v%d, %s, window %u\n", server, protocol, threads, options.window);
        print_phase("write", &write, measured);
        if (options.verify)
            print_phase("read", &read, (double)options.rows);
        print_verdict(&options, unwritten, &read.tally);
        printf("; max RSS %.1f MB\n", rss);
    }
    fflush(stdout);

    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    bench_close(&on);
    if (node > 0) {
        kill(node, SIGTERM);
        waitpid(node, NULL, 0);
    }
    return errors == 0 && missing == 0 ? 0 : 1;
}
