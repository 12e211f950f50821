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

#include "cqlring.h"

struct options {
    const char *host, *node, *server, *mode;
    int port;
    uint64_t rows;
    uint32_t window;
    cqlring_threads threads;
    int32_t protocol;
    bool lz4, verify, json;
};

enum { BLOB = 32 };

static void fail(const char *what, const cqlring_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, cqlring_status_name(error->status), error->message);
    exit(1);
}

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
    uint64_t delivered, errors, missing;
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
        if (completion->result == NULL || cqlring_result_rows(completion->result, 0, &cell, 1, &rows, NULL) != CQLRING_OK || rows != 1 ||
            cell.size != BLOB || memcmp(cell.data, expected, BLOB) != 0)
            tally->missing++;
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

static double max_rss_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
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
        fail("execute_concurrent", &error);
    cqlring_status status = cqlring_future_wait(future, -1, &error);
    phase->seconds = seconds() - start;
    phase->cpu_us = cpu_us() - cpu;
    cqlring_runtime_stats(runtime, &phase->after);
    cqlring_job_summary(future, &phase->summary);
    cqlring_future_release(future);
    free(rows);
    if (status != CQLRING_OK)
        fail("the job", &error);
}

static void text(cqlring_session *session, const char *cql)
{
    cqlring_error error;
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 60000000};
    cqlring_request request = {.session = session, .cql = cqlring_text(cql), .execution = &how};
    if (cqlring_execute_sync(&request, NULL, &error) != CQLRING_OK)
        fail(cql, &error);
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

static void parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool takes = true;
        if (strcmp(name, "--host") == 0)
            options->host = value;
        else if (strcmp(name, "--port") == 0)
            options->port = atoi(value);
        else if (strcmp(name, "--node") == 0)
            options->node = value;
        else if (strcmp(name, "--mode") == 0)
            options->mode = value;
        else if (strcmp(name, "--rows") == 0)
            options->rows = strtoull(value, NULL, 10);
        else if (strcmp(name, "--window") == 0)
            options->window = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--server") == 0)
            options->server = value;
        else if (strcmp(name, "--protocol") == 0)
            options->protocol = atoi(value);
        else if (strcmp(name, "--threads") == 0)
            options->threads = strcmp(value, "inline") == 0 ? CQLRING_THREADS_INLINE : strcmp(value, "caller") == 0 ? CQLRING_THREADS_CALLER : CQLRING_THREADS_SPLIT;
        else {
            takes = false;
            if (strcmp(name, "--json") == 0)
                options->json = true;
            else if (strcmp(name, "--lz4") == 0)
                options->lz4 = true;
            else if (strcmp(name, "--no-verify") == 0)
                options->verify = false;
            else {
                fprintf(stderr, "unknown option %s\n", name);
                exit(2);
            }
        }
        i += takes;
    }
}

static double per(uint64_t count, double rows)
{
    return rows > 0 ? (double)count / rows : 0;
}

static void print_phase(const char *name, const struct phase *phase, double rows)
{
    const cqlring_stats *a = &phase->before, *b = &phase->after;
    printf("%-6s %9.0f rows in %6.2f s  %8.0f rows/s  client CPU %5.2f us/row  requests/send %6.1f  requests/recv %6.1f  wakes/request %.4f  mallocs/request %.4f\n", name,
           rows, phase->seconds, rows / phase->seconds, phase->cpu_us / rows, per(b->requests_issued - a->requests_issued, (double)(b->sends - a->sends)),
           per(b->replies - a->replies, (double)(b->recvs - a->recvs)), per(b->wakes_submitter + b->wakes_reactor - a->wakes_submitter - a->wakes_reactor, rows),
           per(b->allocations - a->allocations, rows));
    if (phase->tally.errors > 0)
        printf("       %" PRIu64 " errors, the first: %s\n", phase->tally.errors, phase->tally.first_error);
}

int main(int argc, char **argv)
{
    struct options options = {.host = "127.0.0.1", .port = 9042, .rows = 1000000, .window = 512, .verify = true, .server = "embedded node", .mode = "store"};
    parse(argc, argv, &options);
    if (options.rows == 0 || options.window == 0) {
        fprintf(stderr, "--rows and --window are at least 1\n");
        return 2;
    }
    pid_t node = 0;
    if (options.node != NULL)
        node = node_start(options.node, options.mode, &options.port);

    cqlring_error error;
    cqlring_runtime_options runtime_options = {.struct_size = sizeof runtime_options, .threads = options.threads};
    cqlring_runtime *runtime;
    if (cqlring_runtime_create(&runtime_options, &runtime, &error) != CQLRING_OK)
        fail("runtime", &error);
    cqlring_cluster_options cluster_options = {.struct_size = sizeof cluster_options,
                                               .contact_points = options.host,
                                               .port = options.port,
                                               .protocol_version = options.protocol,
                                               .compression = options.lz4 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE,
                                               .application_name = "cqlring demo"};
    cqlring_cluster *cluster;
    if (cqlring_cluster_open_sync(runtime, &cluster_options, &cluster, &error) != CQLRING_OK)
        fail("cluster", &error);
    cqlring_session *session;
    if (cqlring_session_open_sync(cluster, NULL, &session, &error) != CQLRING_OK)
        fail("session", &error);
    text(session, "CREATE KEYSPACE IF NOT EXISTS cqlring_demo WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    text(session, "CREATE TABLE IF NOT EXISTS cqlring_demo.small (k bigint PRIMARY KEY, v blob)");
    text(session, "TRUNCATE cqlring_demo.small");
    cqlring_prepared *insert, *select;
    if (cqlring_prepare_sync(session, "INSERT INTO cqlring_demo.small (k, v) VALUES (?, ?)", &insert, &error) != CQLRING_OK)
        fail("prepare insert", &error);
    if (cqlring_prepare_sync(session, "SELECT v FROM cqlring_demo.small WHERE k = ?", &select, &error) != CQLRING_OK)
        fail("prepare select", &error);

    /* a twentieth first, unmeasured: pools, caches and the server's warm-up */
    uint64_t warm = options.rows / 20 > 0 && options.rows >= 20 ? options.rows / 20 : 0;
    struct phase warm_up = {0}, write = {0}, read = {0};
    if (warm > 0)
        job(runtime, session, insert, &options, 0, warm, true, &warm_up);
    job(runtime, session, insert, &options, warm, options.rows, true, &write);
    double measured = (double)(options.rows - warm);
    if (options.verify)
        job(runtime, session, select, &options, 0, options.rows, false, &read);
    uint64_t errors = warm_up.tally.errors + write.tally.errors + read.tally.errors;
    uint64_t unsettled = options.rows - warm_up.tally.delivered - write.tally.delivered;
    uint64_t missing = read.tally.missing + unsettled + (options.verify ? options.rows - read.tally.delivered : 0);
    double rss = max_rss_mb();

    static const char *const names[] = {"split", "inline", "caller"};
    const cqlring_stats *a = &write.before, *b = &write.after;
    if (options.json) {
        printf("{\"rows\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"seconds\": %.3f, \"rows_per_s\": %.0f, \"client_cpu_us_per_row\": %.3f, "
               "\"requests_per_send\": %.2f, \"requests_per_recv\": %.2f, \"wakes_per_request\": %.5f, \"mallocs_per_request\": %.6f, "
               "\"copied_bytes_per_request\": %.2f, \"max_rss_mb\": %.1f, \"server\": \"%s\", \"protocol\": %d, \"threads\": \"%s\", \"window\": %u, "
               "\"read_seconds\": %.3f, \"read_rows_per_s\": %.0f, \"read_client_cpu_us_per_row\": %.3f, \"copied_up_bytes_per_request\": %.4f}\n",
               options.rows, errors, missing, write.seconds, measured / write.seconds, write.cpu_us / measured,
               per(b->requests_issued - a->requests_issued, (double)(b->sends - a->sends)), per(b->replies - a->replies, (double)(b->recvs - a->recvs)),
               per(b->wakes_submitter + b->wakes_reactor - a->wakes_submitter - a->wakes_reactor, measured), per(b->allocations - a->allocations, measured),
               per(b->copied_down_bytes + b->copied_up_bytes - a->copied_down_bytes - a->copied_up_bytes, measured), rss, options.server,
               options.protocol != 0 ? options.protocol : 5, names[options.threads], options.window, read.seconds,
               options.verify ? (double)options.rows / read.seconds : 0, options.verify ? read.cpu_us / (double)options.rows : 0,
               per(b->copied_up_bytes - a->copied_up_bytes, measured));
    } else {
        printf("%s, %s, window %u\n", options.server, names[options.threads], options.window);
        print_phase("write", &write, measured);
        if (options.verify)
            print_phase("read", &read, (double)options.rows);
        printf("errors %" PRIu64 ", missing %" PRIu64 ", max RSS %.1f MB\n", errors, missing, rss);
    }

    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    cqlring_runtime_destroy(runtime);
    if (node > 0) {
        kill(node, SIGTERM);
        waitpid(node, NULL, 0);
    }
    return errors == 0 && missing == 0 ? 0 : 1;
}
