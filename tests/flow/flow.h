/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLOW_H
#define FLOW_H

/* What the flow tests share: an embedded node (or several) on loopback in this process, a runtime in the thread mode that the
   environment variable CQLRING_FLOW_THREADS names (split, inline, caller; default split), a cluster and a session on it, a source
   that makes rows and a sink that writes everything down. Tests give time and await events; nobody sleeps. */

#include <check.h>
#include <stdatomic.h>

#include "driver/cqlring.h"
#include "tests/node/node.h"

struct flow {
    struct node_cluster *node;
    cqlring_runtime *runtime;
    cqlring_cluster *cluster;
    cqlring_session *session;
    cqlring_threads threads;
    cqlring_runtime_options runtime_options; /* may be changed before flow_open */
    cqlring_cluster_options options;         /* likewise; contact_points and port are filled by flow_open */
    cqlring_session_options session_options;
    struct node_options node_options;
    char contact[64];
};

/* Defaults: one node, store mode. */
void flow_init(struct flow *flow);
void flow_start(struct flow *flow);  /* node, keyspace "ks" (RF = number of nodes up to 3), table ks.t (k bigint PRIMARY KEY, v blob) */
void flow_open(struct flow *flow);   /* runtime, cluster, session; fails the test when one cannot be had */
/* The same, but hands the outcome over instead of failing the test. */
cqlring_status flow_try_open(struct flow *flow, cqlring_error *error);
void flow_close(struct flow *flow);  /* everything, in order; checks that no allocation of the library is left */
/* init + start + open */
void flow_up(struct flow *flow);

void flow_cql(struct flow *flow, const char *cql);                       /* must succeed, through the driver */
cqlring_status flow_try(struct flow *flow, const char *cql, cqlring_result **result, cqlring_error *error);
cqlring_prepared *flow_prepare(struct flow *flow, const char *cql);
void flow_fault(struct flow *flow, const char *text);                    /* node_fault_parse, must be understood */
cqlring_stats flow_stats(const struct flow *flow);

/* ---- rows ---- */

enum { FLOW_ROWS_MAX = 1 << 20 };

/* Row i: bigint i and a blob of `size` bytes made from i. */
struct flow_rows {
    uint64_t next, end;          /* indexes */
    uint32_t size;               /* of the blob */
    bool one_key;                /* 0 in all of them */
    bool keys_only;              /* a statement with the key alone (SELECT) */
    uint32_t per_call;           /* at most so many a call; 0: as asked */
    int64_t fail_at;             /* ≥ 0: FAILED before this row */
    int64_t later_at;            /* ≥ 0: LATER once before this row, until a poke (or later_us) */
    int64_t later_us;
    atomic_bool later_said;
    uint64_t calls;
    uint8_t *memory;
    cqlring_bytes cells[256][2];
};
void flow_rows_init(struct flow_rows *rows, uint64_t count, uint32_t size);
void flow_rows_fini(struct flow_rows *rows);
cqlring_source flow_source(struct flow_rows *rows);
void flow_blob(uint64_t row, uint8_t *out, uint32_t size);

/* Everything a job delivered. */
struct flow_sink {
    uint64_t delivered;          /* completions */
    uint64_t last;               /* of them with LAST */
    uint64_t ok, failed, maybe;
    uint64_t out_of_order;       /* a row index below the one before it */
    uint64_t twice;              /* a row with two LASTs */
    uint64_t batches;
    uint32_t batch_max;
    uint64_t stop_after;         /* > 0: STOP after so many completions */
    uint64_t later_at;           /* > 0: LATER once at the batch after so many completions */
    atomic_bool later_said;
    uint64_t by_status[16];
    int32_t first_code;
    char first_error[400];
    uint8_t *seen;               /* by row */
    uint64_t row_before;
    void (*each)(const cqlring_completion *completion, void *context);
    void *context;
};
/* Its status, phase and flags say what its error says: of every completion, whatever befell it. The sink below looks at each. */
void flow_completion_agrees(const cqlring_completion *completion);
void flow_sink_init(struct flow_sink *sink, uint64_t rows);
void flow_sink_fini(struct flow_sink *sink);
cqlring_sink flow_sink_of(struct flow_sink *sink);
uint64_t flow_sink_missing(const struct flow_sink *sink, uint64_t rows); /* rows below without an outcome */

/* Starts a job of these rows; waits for its end; returns its status. */
cqlring_future *flow_job(struct flow *flow, cqlring_prepared *statement, struct flow_rows *rows, struct flow_sink *sink, const cqlring_job_options *options);
cqlring_status flow_run(struct flow *flow, cqlring_prepared *statement, struct flow_rows *rows, struct flow_sink *sink, const cqlring_job_options *options,
                        cqlring_summary *summary, cqlring_error *error);

/* So many rows by an insert of (k, v), idempotent, all of which must succeed; what the nodes counted of them. window 0: the default. */
struct node_counters flow_counted_rows(struct flow *flow, const char *insert_text, uint64_t count, uint32_t window);
/* Until the source or the sink of a running job has said LATER; the job must not end meanwhile. */
void flow_until(cqlring_future *job, const atomic_bool *said);

/* A cell holding this bigint, in memory that lasts until the next 64 calls. */
cqlring_bytes flow_bigint(int64_t value);
cqlring_bytes flow_int(int32_t value);

/* A contact point that is looked up, and is 127.0.0.1 whatever this machine's hosts and DNS say. */
#define FLOW_NAME "127.1"
#define FLOW_INSERT "INSERT INTO ks.t (k, v) VALUES (?, ?)"
#define FLOW_SELECT "SELECT v FROM ks.t WHERE k = ?"

/* main() of every flow test. */
int flow_main(Suite *suite);
#define flow_ok(call)                                                                                                                     \
    do {                                                                                                                                  \
        cqlring_status flow_status = (call);                                                                                              \
        ck_assert_msg(flow_status == CQLRING_OK, "%s: %s", #call, cqlring_status_name(flow_status));                                      \
    } while (0)

#endif
