/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=soak timeout=300 args=--seconds,20 */

/* Random work, random faults and restarts, for as long as is asked for:   test_soak [--seconds N] [--seed S]

   Laps, each with a runtime of its own on the same three nodes, and in each of them episodes: jobs, single requests, a queue, pages,
   changes of the schema, sessions and clusters that come and go, while nodes are cut, frozen, put down and up, forget statements
   and answer wrongly. After each episode everything is calm again for a moment and looked at; after each lap nothing may be left:
   no allocation of the library, no descriptor, no connection. From half of the time on the process must be flat, to 4 MiB. The seed decides what is done, threads
   and sockets decide the rest. */

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "driver/policy.h"
#include "serialize/mem.h"
#include "watch.h"

enum { NODES = 3, KEYS = 20000, JOBS = 3, JOB_ROWS = 3000, SINGLES = 120, QUEUED = 200, BLOB = 32, LAP_US = 5000000, LAPS_MAX = 4096, LAPS_JUDGED = 8, GROWTH_KB = 4096 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CAN_WEIGH = 0 }; /* they keep memory of their own */
#else
enum { CAN_WEIGH = 1 };
#endif

static int64_t seconds = 120;
static uint64_t seed;

static struct {
    struct flow flow;
    uint64_t random;
    uint64_t accepted;                       /* requests, rows and what queues took */
    atomic_uint_fast64_t outcomes, failures; /* sinks count too */
    uint64_t jobs, singles, queues, pages, schemas, sessions, clusters, blows;
    int64_t live;
    bool drops;                 /* replies were never sent: their streams stay taken */
    atomic_uchar stored[KEYS];  /* acknowledged once; nothing is ever deleted */
    cqlring_prepared *insert, *select;
} soak;

static uint32_t roll(uint32_t sides)
{
    return (uint32_t)(cqr_random(&soak.random) >> 11) % sides;
}

/* ---- outcomes ---- */

static void outcome_of(cqlring_status status, const cqlring_error *error)
{
    atomic_fetch_add(&soak.outcomes, 1);
    if (status != CQLRING_OK)
        atomic_fetch_add(&soak.failures, 1);
    bool expected = status == CQLRING_OK || status == CQLRING_TIMEOUT || status == CQLRING_LOST || status == CQLRING_UNREACHABLE || status == CQLRING_SERVER ||
                    status == CQLRING_CANCELLED || status == CQLRING_CLOSED || status == CQLRING_PROTOCOL;
    ck_assert_msg(expected, "seed %lu: %s: %s", (unsigned long)seed, cqlring_status_name(status), error != NULL ? error->message : "");
}

/* stored: whether it had been acknowledged before the read was asked for. */
static void value_check(uint64_t key, bool stored, cqlring_result *result)
{
    uint8_t blob[BLOB];
    cqlring_bytes cell = {0};
    uint32_t count = 0;
    ck_assert_msg(result != NULL, "seed %lu: a read was answered without rows", (unsigned long)seed);
    flow_ok(cqlring_result_rows(result, 0, &cell, 1, &count, NULL));
    ck_assert_msg(count == 1 || !stored, "seed %lu: key %lu was acknowledged and is missing", (unsigned long)seed, (unsigned long)key);
    flow_blob(key, blob, BLOB);
    ck_assert_msg(count == 0 || (cell.size == BLOB && memcmp(cell.data, blob, BLOB) == 0), "seed %lu: key %lu has another value", (unsigned long)seed, (unsigned long)key);
}

/* ---- jobs ---- */

struct job {
    struct flow_rows rows;
    struct flow_sink sink;
    cqlring_future *future;
    uint64_t first;
    bool reads;
    uint8_t stored[JOB_ROWS]; /* before it began */
};

static void row_done(const cqlring_completion *completion, void *context)
{
    struct job *job = context;
    uint64_t key = job->first + completion->row;
    outcome_of(completion->status, completion->error);
    if (completion->status != CQLRING_OK)
        return;
    if (job->reads)
        value_check(key, job->stored[completion->row] != 0, completion->result);
    else
        atomic_store(&soak.stored[key], 1);
}

static void job_start(struct job *job)
{
    uint32_t count = 1 + roll(JOB_ROWS);
    memset(job, 0, sizeof *job);
    job->first = roll(KEYS - count);
    job->reads = roll(3) == 0;
    for (uint32_t i = 0; i < count; i++)
        job->stored[i] = atomic_load(&soak.stored[job->first + i]);
    flow_rows_init(&job->rows, job->first + count, BLOB);
    job->rows.next = job->first;
    job->rows.keys_only = job->reads;
    flow_sink_init(&job->sink, count);
    job->sink.each = row_done;
    job->sink.context = job;
    cqlring_speculation speculation = {.struct_size = sizeof speculation, .max = 1 + roll(2), .delay_us = 5000 + roll(50000)};
    cqlring_execution how = {.struct_size = sizeof how,
                             .idempotent = roll(4) != 0 ? CQLRING_YES : CQLRING_NO,
                             .timeout_us = 1000000 + roll(2000000),
                             .attempt_timeout_us = roll(2) == 0 ? 0 : 200000 + roll(500000),
                             .speculation = roll(3) == 0 ? &speculation : NULL};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 1 + roll(600), .execution = &how, .ordered = roll(4) == 0};
    job->future = flow_job(&soak.flow, job->reads ? soak.select : soak.insert, &job->rows, &job->sink, &options);
    soak.jobs++;
}

static void job_end(struct job *job)
{
    cqlring_summary summary;
    cqlring_error error;
    cqlring_status status = cqlring_future_wait(job->future, 60000000, &error);
    ck_assert_msg(cqlring_future_ready(job->future), "seed %lu: a job hangs; the log:\n%s", (unsigned long)seed, watch_log_text());
    ck_assert_msg(status == CQLRING_OK || status == CQLRING_CANCELLED, "seed %lu: the job: %s", (unsigned long)seed, error.message);
    cqlring_job_summary(job->future, &summary);
    uint64_t given = job->rows.next - job->first;
    ck_assert_uint_le(summary.rows, given); /* a cancelled job leaves rows that it had pulled */
    if (status == CQLRING_OK)
        ck_assert_uint_eq(summary.rows, given);
    ck_assert_uint_eq(job->sink.last, summary.rows);
    ck_assert_uint_eq(job->sink.twice, 0);
    ck_assert_uint_eq(job->sink.failed, summary.failed);
    soak.accepted += summary.rows;
    cqlring_future_release(job->future);
    flow_rows_fini(&job->rows);
    flow_sink_fini(&job->sink);
}

/* ---- single requests ---- */

static void called(cqlring_future *future, void *context)
{
    (void)future;
    atomic_fetch_add((atomic_uint_fast64_t *)context, 1);
}

static void singles(void)
{
    static atomic_uint_fast64_t calls;
    cqlring_future *futures[SINGLES];
    uint64_t keys[SINGLES];
    bool reads[SINGLES], stored[SINGLES];
    uint32_t count = 0;
    uint64_t calls_before = atomic_load(&calls), calls_due = 0;
    for (uint32_t i = 0; i < SINGLES; i++) {
        uint64_t key = roll(KEYS);
        uint8_t blob[BLOB];
        flow_blob(key, blob, BLOB);
        cqlring_bytes values[] = {flow_bigint((int64_t)key), {blob, BLOB}};
        cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 50000 + roll(1000000), .idempotent = roll(2) == 0 ? CQLRING_YES : CQLRING_NO};
        bool read = roll(2) == 0;
        stored[count] = atomic_load(&soak.stored[key]) != 0;
        cqlring_request request = {.session = soak.flow.session, .prepared = read ? soak.select : soak.insert, .values = values, .value_count = read ? 1 : 2, .execution = &how};
        cqlring_error error;
        cqlring_status status = cqlring_execute(&request, &futures[count], &error);
        ck_assert_msg(status == CQLRING_OK || status == CQLRING_FULL, "seed %lu: %s", (unsigned long)seed, error.message);
        if (status != CQLRING_OK)
            continue;
        if (roll(4) == 0) {
            flow_ok(cqlring_future_on_ready(futures[count], called, &calls));
            calls_due++;
        }
        if (roll(10) == 0)
            cqlring_future_cancel(futures[count]);
        keys[count] = key;
        reads[count++] = read;
    }
    for (uint32_t i = 0; i < count; i++) {
        cqlring_error error;
        cqlring_status status = ask_wait(futures[i], &error);
        outcome_of(status, &error);
        const cqlring_completion *completion = cqlring_future_completion(futures[i]);
        ck_assert_ptr_nonnull(completion);
        if (status == CQLRING_OK && reads[i])
            value_check(keys[i], stored[i], completion->result);
        else if (status == CQLRING_OK)
            atomic_store(&soak.stored[keys[i]], 1);
        cqlring_future_release(futures[i]);
    }
    soak.accepted += count;
    soak.singles += count;
    for (int i = 0; i < 1000 && atomic_load(&calls) - calls_before < calls_due; i++)
        ask_pass(&soak.flow, 1); /* the future is ready an instant before its call */
    ck_assert_uint_eq(atomic_load(&calls) - calls_before, calls_due);
}

static void pages(void)
{
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 200 + (int32_t)roll(2000), .timeout_us = 2000000};
    cqlring_request request = {.session = soak.flow.session, .cql = cqlring_text("SELECT k FROM ks.t"), .execution = &how};
    cqlring_result *result = NULL;
    for (int page = 0; page < 4; page++) {
        cqlring_result *next = NULL;
        cqlring_error error;
        cqlring_status status = cqlring_execute_sync(&request, &next, &error);
        cqlring_result_release(result);
        result = next;
        soak.accepted++;
        outcome_of(status, &error);
        how.paging_state = cqlring_result_paging_state(result);
        if (how.paging_state.data == NULL)
            break;
    }
    cqlring_result_release(result);
    soak.pages++;
}

static void queue(void)
{
    cqlring_queue_options options = {.struct_size = sizeof options, .session = soak.flow.session, .capacity = 1 + roll(128)};
    cqlring_queue *queue = NULL;
    flow_ok(cqlring_queue_open(&options, &queue, NULL));
    uint32_t accepted = 0, reaped = 0, left = QUEUED;
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 500000 + roll(1000000)};
    cqlring_completion completions[32];
    while (left > 0 || reaped < accepted) {
        uint64_t key = roll(KEYS);
        cqlring_bytes value = flow_bigint((int64_t)key);
        cqlring_request request = {.session = soak.flow.session, .prepared = soak.select, .values = &value, .value_count = 1, .execution = &how, .tag = key * 2 + atomic_load(&soak.stored[key])};
        uint32_t taken = 0;
        if (left > 0) {
            flow_ok(cqlring_queue_submit(queue, &request, 1, &taken, NULL));
            accepted += taken;
            left -= taken;
        }
        if (taken == 1 && left > 0)
            continue;
        cqlring_status status;
        uint32_t count = cqlring_queue_reap(queue, completions, 32, 1, 20000000, &status);
        ck_assert_msg(count > 0, "seed %lu: a queue gives nothing back: %s", (unsigned long)seed, cqlring_status_name(status));
        for (uint32_t i = 0; i < count; i++) {
            outcome_of(completions[i].status, completions[i].error);
            if (completions[i].status == CQLRING_OK)
                value_check(completions[i].tag / 2, completions[i].tag % 2 != 0, completions[i].result);
        }
        cqlring_completions_release(completions, count);
        reaped += count;
    }
    soak.accepted += accepted;
    soak.queues++;
    cqlring_queue_close(queue);
    cqlring_queue_release(queue);
}

/* ---- what changes around them ---- */

static void schema(void)
{
    char cql[120];
    uint32_t table = roll(3);
    switch (roll(4)) {
    case 0: snprintf(cql, sizeof cql, "CREATE TABLE IF NOT EXISTS ks.s%u (k int PRIMARY KEY, v text)", table); break;
    case 1: snprintf(cql, sizeof cql, "DROP TABLE IF EXISTS ks.s%u", table); break;
    case 2: snprintf(cql, sizeof cql, "ALTER TABLE ks.s%u ADD w%u int", table, roll(9)); break;
    default: snprintf(cql, sizeof cql, "SELECT * FROM ks.s%u", table);
    }
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 2000000};
    cqlring_error error;
    cqlring_status status = ask_text(&soak.flow, cql, NULL, 0, &how, NULL, &error);
    soak.accepted++;
    outcome_of(status, &error);
    soak.schemas++;
}

static void sessions(void)
{
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = roll(2) == 0 ? "ks" : NULL};
    cqlring_session *session = NULL;
    cqlring_future *future = NULL, *closed = NULL;
    flow_ok(cqlring_session_open(soak.flow.cluster, &options, &future, NULL));
    if (roll(3) != 0 && cqlring_future_wait(future, 20000000, NULL) == CQLRING_OK) {
        session = cqlring_future_session(future);
        cqlring_future *request = NULL;
        flow_ok(cqlring_execute(&(cqlring_request){.session = session, .cql = cqlring_text("SELECT v FROM ks.t WHERE k = 1")}, &request, NULL));
        soak.accepted++;
        flow_ok(cqlring_session_close(session, roll(2) == 0 ? 0 : 1000000, &closed, NULL));
        cqlring_error error;
        outcome_of(ask_end(request, &error), NULL);
        flow_ok(ask_end(closed, NULL));
    }
    cqlring_future_release(future); /* or it was never waited for */
    cqlring_session_release(session);
    soak.sessions++;
    if (roll(3) != 0)
        return;
    cqlring_cluster_options other = soak.flow.options;
    other.protocol_version = roll(2) == 0 ? 4 : 0;
    other.compression = roll(2) == 0 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE;
    flow_ok(cqlring_cluster_open(soak.flow.runtime, &other, &future, NULL));
    if (roll(2) == 0)
        (void)cqlring_future_wait(future, 20000000, NULL);
    cqlring_future_release(future);
    soak.clusters++;
}

static void blow(void)
{
    static const char *const faults[] = {
        "close:every=200,times=3,opcode=EXECUTE",      "half:every=300,times=2,opcode=EXECUTE",
        "error:code=0x1001,every=20,times=20",         "error:code=0x1000,every=30,times=10,required=2,alive=1",
        "unprepared:every=100,times=5,opcode=EXECUTE", "twice:every=500,times=1,opcode=EXECUTE",
        "wrong-stream:every=500,times=1",              "garbage:every=700,times=1,opcode=EXECUTE",
        "late:every=40,times=20,delay_us=100000",      "flip-payload:every=500,times=1,opcode=EXECUTE",
        "drop:every=300,times=3,opcode=EXECUTE",
    };
    enum { FAULTS = sizeof faults / sizeof faults[0] };
    struct node_cluster *nodes = soak.flow.node;
    uint32_t node = roll(NODES), what = roll(10);
    soak.blows++;
    switch (what) {
    case 0: node_cut(nodes, node, 0); break;
    case 1: node_freeze(nodes, node, 50 + (int32_t)roll(400)); break;
    case 2: node_forget_prepared(nodes, NODE_ALL); break;
    case 3:
        node_down(nodes, node, roll(2) == 0);
        ask_pass(&soak.flow, roll(100));
        node_up(nodes, node, roll(2) == 0);
        break;
    case 4: node_event_topology(nodes, NODE_ALL, "NEW_NODE", node); break;
    default: {
        uint32_t fault = roll(FAULTS);
        soak.drops = soak.drops || fault == FAULTS - 1;
        flow_fault(&soak.flow, faults[fault]);
    }
    }
}

/* ---- episodes and laps ---- */

static bool nothing_under_way(struct flow *flow, void *context)
{
    cqlring_node_stats stats[64];
    uint32_t count = cqlring_cluster_stats(flow->cluster, stats, 64);
    (void)context;
    for (uint32_t i = 0; i < count && i < 64; i++)
        if (stats[i].in_flight != 0 || stats[i].queued_bytes != 0 || (stats[i].orphans != 0 && !soak.drops))
            return false;
    return true;
}

static void episode(void)
{
    static struct job jobs[JOBS];
    uint32_t job_count = 1 + roll(JOBS);
    for (uint32_t i = 0; i < job_count; i++)
        job_start(&jobs[i]);
    uint32_t acts = 3 + roll(8);
    for (uint32_t i = 0; i < acts; i++) {
        if (roll(2) == 0)
            blow();
        switch (roll(6)) {
        case 0: pages(); break;
        case 1: queue(); break;
        case 2: schema(); break;
        case 3: sessions(); break;
        default: singles();
        }
        if (roll(12) == 0)
            cqlring_future_cancel(jobs[roll(job_count)].future);
    }
    for (uint32_t i = 0; i < job_count; i++)
        job_end(&jobs[i]);
    node_fault_remove(soak.flow.node, 0);
    ask_until_served(&soak.flow);
    ck_assert_msg(watch_until(&soak.flow, nothing_under_way, NULL, 20000), "seed %lu: requests are under way, and nobody asked for any; the log:\n%s",
                  (unsigned long)seed, watch_log_text());
    ck_assert_uint_eq(soak.accepted, atomic_load(&soak.outcomes));
}

static bool none_open(const struct node_counters *all, void *context)
{
    (void)context;
    return all->connections_open == 0;
}

static void lap_end(void)
{
    cqlring_stats stats = flow_stats(&soak.flow);
    uint64_t failed = 0;
    for (int i = 0; i < 16; i++)
        failed += stats.failed_by[i];
    ck_assert_uint_eq(stats.requests_failed, failed);
    ck_assert_uint_ge(stats.connections_opened, stats.connections_lost);
    cqlring_prepared_release(soak.insert);
    cqlring_prepared_release(soak.select);
    cqlring_session_release(soak.flow.session);
    cqlring_cluster_release(soak.flow.cluster);
    flow_ok(cqlring_runtime_destroy(soak.flow.runtime));
    soak.flow.session = NULL;
    soak.flow.cluster = NULL;
    soak.flow.runtime = NULL;
    ck_assert_msg(cqr_mem_live_count() == soak.live, "seed %lu: %lld allocations of the library are left", (unsigned long)seed,
                  (long long)(cqr_mem_live_count() - soak.live));
    ck_assert_msg(node_wait(soak.flow.node, none_open, 20000, NULL), "seed %lu: the nodes still see connections", (unsigned long)seed);
    struct node_counters counters;
    node_counters(soak.flow.node, NODE_ALL, &counters);
    uint64_t seen = counters.opcodes[OPCODE_EXECUTE] + counters.opcodes[OPCODE_QUERY] + counters.opcodes[OPCODE_PREPARE] + counters.opcodes[OPCODE_BATCH];
    ck_assert_msg(seen <= stats.requests_issued, "seed %lu: the nodes saw %lu requests, %lu were issued", (unsigned long)seed, (unsigned long)seen,
                  (unsigned long)stats.requests_issued);
    node_counters_reset(soak.flow.node);
}

static uint32_t descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint32_t count = 0;
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* What is in use: free memory that the allocator keeps is not the library's to give back. */
static uint64_t resident_kb(void)
{
    (void)malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long size = 0, resident = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

START_TEST(random_work_through_random_faults_leaves_nothing_and_grows_nothing)
{
    static uint64_t resident[LAPS_MAX];
    uint32_t laps = 0, open = 0;
    int64_t end_us = watch_now_us() + seconds * 1000000, lap_us = LAP_US;
    if (seconds >= 30 && seconds * 1000000 < LAPS_JUDGED * LAP_US) /* enough laps to say whether it is flat */
        lap_us = seconds * 1000000 / LAPS_JUDGED;
    soak.random = seed;
    flow_init(&soak.flow);
    watch_log(&soak.flow);
    soak.flow.node_options.nodes = NODES;
    soak.flow.node_options.seed = seed;
    soak.flow.options.reconnect_min_us = 10000;
    soak.flow.options.reconnect_max_us = 200000;
    soak.flow.options.suspect_after_us = 300000;
    soak.flow.options.schema_agreement_us = 500000;
    flow_start(&soak.flow);
    soak.live = cqr_mem_live_count(); /* the nodes' compressor */
    while (watch_now_us() < end_us && laps < LAPS_MAX) {
        soak.drops = false;
        flow_open(&soak.flow);
        soak.insert = flow_prepare(&soak.flow, FLOW_INSERT);
        soak.select = flow_prepare(&soak.flow, FLOW_SELECT);
        for (int64_t lap_end_us = watch_now_us() + lap_us; watch_now_us() < lap_end_us;)
            episode();
        lap_end();
        watch_log_clear();
        resident[laps++] = resident_kb();
        if (laps == 1)
            open = descriptors();
        ck_assert_msg(descriptors() == open, "seed %lu: %u descriptors are open, %u were after the first lap", (unsigned long)seed, descriptors(), open);
    }
    /* After the first half the nodes' tables are full and the allocator has what it needs: from then on it is flat. */
    uint64_t middle = 0, last = 0;
    for (uint32_t i = laps / 2; i < laps; i++)
        if (i >= laps * 3 / 4)
            last = resident[i] > last ? resident[i] : last;
        else
            middle = resident[i] > middle ? resident[i] : middle;
    printf("seed %lu: %u laps; %lu jobs, %lu singles, %lu queues, %lu readings, %lu changes of the schema, %lu sessions, %lu clusters, %lu blows; %lu outcomes, "
           "%lu failed; %lu kB resident, then %lu\n",
           (unsigned long)seed, laps, (unsigned long)soak.jobs, (unsigned long)soak.singles, (unsigned long)soak.queues, (unsigned long)soak.pages,
           (unsigned long)soak.schemas, (unsigned long)soak.sessions, (unsigned long)soak.clusters, (unsigned long)soak.blows, (unsigned long)atomic_load(&soak.outcomes),
           (unsigned long)atomic_load(&soak.failures), (unsigned long)middle, (unsigned long)last);
    fflush(stdout);
    ck_assert_msg(!CAN_WEIGH || laps < LAPS_JUDGED - 1 || last <= middle + GROWTH_KB, "seed %lu: %lu kB were resident, and then %lu", (unsigned long)seed, (unsigned long)middle,
                  (unsigned long)last);
    node_cluster_stop(soak.flow.node);
}
END_TEST

int main(int argc, char **argv)
{
    seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else
            argc = 0;
    }
    if (argc % 2 == 0 || seconds < 1 || seed == 0)
        return fprintf(stderr, "usage: test_soak [--seconds N] [--seed S]\n"), 2;
    printf("seed %lu\n", (unsigned long)seed);
    fflush(stdout);
    Suite *suite = suite_create("soak");
    TCase *tcase = tcase_create("soak");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, (double)seconds + 300);
    tcase_add_test(tcase, random_work_through_random_faults_leaves_nothing_and_grows_nothing);
    return flow_main(suite);
}
