/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_H
#define BENCH_H

/* What the benchmark programs share: a session with everything beneath it, the table of small rows, and what the process
   has used so far. A program of bench/ measures and prints one line of JSON; whoever compares starts it. Whatever goes
   wrong ends the program with a sentence on stderr. */

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"
#include "cqlring.h"

struct bench_server {
    const char *host;
    int port;
    cqlring_threads threads;
    int32_t protocol; /* 0: the highest */
    bool lz4;
    const char *tls_ca; /* PEM file; NULL: no TLS */
    uint32_t lanes;     /* 0: one */
};

struct bench_session {
    cqlring_runtime *runtime;
    cqlring_cluster *cluster;
    cqlring_session *session;
};

void bench_open(struct bench_session *bench, const struct bench_server *server);
/* What was negotiated with the node that is connected, as the library tells it: 4 or 5, and "5.0.6" (lives as long as the cluster). */
void bench_answered(const cqlring_cluster *cluster, int *protocol, const char **release_version);
void bench_close(struct bench_session *bench); /* drained, threads joined */

_Noreturn void bench_die(const char *what, const cqlring_error *error);
void bench_text(cqlring_session *session, const char *cql); /* executes it */
cqlring_prepared *bench_prepare(cqlring_session *session, const char *cql);

/* bench.small (k bigint PRIMARY KEY, v blob), the table of all small rows; replicated once. */
void bench_schema(cqlring_session *session);
#define BENCH_INSERT "INSERT INTO bench.small (k, v) VALUES (?, ?)"
#define BENCH_SELECT "SELECT v FROM bench.small WHERE k = ?"
enum { BENCH_BLOB_SIZE = 32 };
void bench_blob(uint8_t blob[BENCH_BLOB_SIZE]);

/* Of a table of options: --host, --port, --threads, --protocol, --lz4, --tls-ca, --lanes. */
#define BENCH_SERVER_OPTIONS(server)                                     \
    BENCH_TEXT_OPTION("--host", &(server)->host),                        \
    BENCH_NUMBER_OPTION("--port", &(server)->port, 1, 65535),            \
    BENCH_WORD_OPTION("--threads", &(server)->threads, bench_threads_names), \
    BENCH_NUMBER_OPTION("--protocol", &(server)->protocol, 4, 5),        \
    BENCH_FLAG_OPTION("--lz4", &(server)->lz4, true),                    \
    BENCH_TEXT_OPTION("--tls-ca", &(server)->tls_ca),                    \
    BENCH_NUMBER_OPTION("--lanes", &(server)->lanes, 1, 16)
#define BENCH_SERVER_USAGE "  [--host HOST] [--port 1-65535] [--threads split|inline|caller] [--protocol 4|5] [--lz4] [--tls-ca FILE]\n  [--lanes 1-16]\n"
extern const char *const bench_threads_names[]; /* by cqlring_threads, NULL at the end */
enum { BENCH_WINDOW_MAX = 32768 };              /* of a job, and of a queue */

struct bench_usage {
    double seconds; /* monotonic */
    double user_s, system_s;
    long context_switches;
};
struct bench_usage bench_usage_now(void);
struct bench_usage bench_usage_since(const struct bench_usage *start);
int64_t bench_now_ns(void); /* monotonic */
/* A field of /proc/self/status that is in kB: "VmRSS", "VmHWM", "RssAnon". */
long bench_memory_kb(const char *field);

#endif
