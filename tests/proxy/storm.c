/* SPDX-License-Identifier: Apache-2.0 */
#include "storm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 256, BLOB_SIZE = 40, LIMIT_US = 120000000, PREPARE_US = 20000000, ROW_US = 60000000 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { IDLE_US = 60000 }; /* beyond the back-off: a turn of every thread on the way */
#else
enum { IDLE_US = 30000 };
#endif
enum { WRITTEN = 1, ACKNOWLEDGED = 2, FAILED = 4, TWICE = 8, READ = 16, WRONG = 32, UNMARKED = 64 };

struct rows {
    uint64_t next, end;
    bool reads;
    uint8_t *outcomes;   /* by row */
    uint16_t *attempts;
    char first_error[400];
    uint64_t read_failed;
    uint8_t keys[CHUNK][8], blobs[CHUNK][BLOB_SIZE];
    cqlring_bytes cells[CHUNK][2];
};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void blob_of(uint64_t row, uint8_t blob[BLOB_SIZE])
{
    uint64_t x = row + 1;
    for (int at = 0; at < BLOB_SIZE; at += 8) {
        x *= UINT64_C(0x9E3779B97F4A7C15);
        x ^= x >> 31;
        memcpy(blob + at, &x, 8);
    }
}

static int32_t next(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct rows *rows = context;
    int32_t count = 0;
    for (; count < (int32_t)capacity && count < CHUNK && rows->next < rows->end; ++count, ++rows->next) {
        for (int i = 0; i < 8; i++)
            rows->keys[count][i] = (uint8_t)(rows->next >> (56 - 8 * i));
        blob_of(rows->next, rows->blobs[count]);
        rows->cells[count][0] = (cqlring_bytes){rows->keys[count], 8};
        rows->cells[count][1] = (cqlring_bytes){rows->blobs[count], BLOB_SIZE};
        out[count] = (cqlring_row){.cells = rows->cells[count], .tag = rows->next};
    }
    (void)now_us, (void)wake_at_us, (void)error;
    return count;
}

static void take_write(struct rows *rows, const cqlring_completion *completion)
{
    uint8_t *outcome = &rows->outcomes[completion->row];
    *outcome |= (*outcome & WRITTEN) != 0 ? TWICE : WRITTEN;
    *outcome |= completion->status == CQLRING_OK ? ACKNOWLEDGED : FAILED;
    rows->attempts[completion->row] = completion->attempts;
    if (completion->status == CQLRING_OK)
        return;
    if ((completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) == 0)
        *outcome |= UNMARKED;
    if (rows->first_error[0] == '\0')
        snprintf(rows->first_error, sizeof rows->first_error, "row %" PRIu64 " after %u attempts: %.300s", completion->row, completion->attempts,
                 completion->error->message);
}

static void take_read(struct rows *rows, const cqlring_completion *completion)
{
    cqlring_bytes cell = {0};
    uint32_t count = 0;
    uint8_t blob[BLOB_SIZE];
    if (completion->status != CQLRING_OK) {
        if (rows->read_failed++ == 0)
            snprintf(rows->first_error, sizeof rows->first_error, "read of row %" PRIu64 ": %.300s", completion->row, completion->error->message);
        return;
    }
    if (cqlring_result_rows(completion->result, 0, &cell, 1, &count, NULL) != CQLRING_OK || count == 0)
        return;
    blob_of(completion->row, blob);
    rows->outcomes[completion->row] |= READ;
    if (cell.size != BLOB_SIZE || memcmp(cell.data, blob, BLOB_SIZE) != 0)
        rows->outcomes[completion->row] |= WRONG;
}

static cqlring_verdict deliver(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct rows *rows = context;
    for (uint32_t i = 0; i < count; ++i) {
        if (rows->reads)
            take_read(rows, &completions[i]);
        else
            take_write(rows, &completions[i]);
    }
    return CQLRING_CONTINUE;
}

static bool wrong(char *message, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool wrong(char *message, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool job(struct storm *storm, struct rows *rows, const char *cql, const cqlring_execution *how, cqlring_summary *summary, char *message, size_t size)
{
    cqlring_prepared *statement = NULL;
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_source source = {.next = next, .context = rows};
    cqlring_sink sink = {.deliver = deliver, .context = rows};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = how};
    /* The last fault may have left no connection: one comes by itself. */
    cqlring_status prepared = CQLRING_UNREACHABLE;
    for (int64_t until = now_us() + PREPARE_US; prepared != CQLRING_OK && now_us() < until;)
        prepared = cqlring_prepare_sync(storm->session, cql, &statement, &error);
    if (prepared != CQLRING_OK)
        return wrong(message, size, "%s: %s", cql, error.message);
    cqlring_status status = cqlring_execute_concurrent(storm->session, &statement, 1, &source, &sink, 1, &options, &future, &error);
    if (status == CQLRING_OK) {
        status = cqlring_future_wait(future, LIMIT_US, &error);
        cqlring_job_summary(future, summary);
        if (!cqlring_future_ready(future)) { /* its source and sink must outlive it */
            cqlring_future_cancel(future);
            (void)cqlring_future_wait(future, -1, NULL);
        }
    }
    cqlring_future_release(future);
    cqlring_prepared_release(statement);
    return status == CQLRING_OK || wrong(message, size, "%s: %s, after %" PRIu64 " rows", cql, error.message, summary->rows);
}

/* How long a row waits before its next attempt, at most, when so many of its attempts were hit (docs/options.md): 10 ms, doubled each
   time up to 1 s, ± 25 %. */
static int64_t backoff_max_us(uint32_t hits)
{
    int64_t backoff = hits == 0 ? 0 : 10000;
    for (; hits > 1 && backoff < 1000000; hits--)
        backoff *= 2;
    return (backoff < 1000000 ? backoff : 1000000) * 5 / 4;
}

/* A row: what was done for it and what is there. */
static bool judge_row(struct storm *storm, const struct rows *rows, uint64_t row, uint32_t hits, char *message, size_t size)
{
    uint8_t outcome = rows->outcomes[row];
    uint32_t seen = proxy_seen(storm->proxy, row), attempts = rows->attempts[row];
    bool failed = (outcome & FAILED) != 0;
    storm->ok += !failed;
    storm->failed += failed;
    storm->maybe += failed && (outcome & UNMARKED) == 0;
    storm->attempts += attempts;
    storm->unseen += attempts > seen ? attempts - seen : 0;
    if (attempts > storm->attempts_max)
        storm->attempts_max = attempts;
    if ((outcome & (WRITTEN | TWICE)) != WRITTEN)
        return wrong(message, size, "row %" PRIu64 " has %s", row, (outcome & TWICE) != 0 ? "two outcomes" : "no outcome");
    if (failed && storm->idempotent)
        return wrong(message, size, "%s", rows->first_error);
    if (failed && hits == 0)
        return wrong(message, size, "row %" PRIu64 " failed and was not hit; the first: %s", row, rows->first_error);
    if ((outcome & UNMARKED) != 0)
        return wrong(message, size, "row %" PRIu64 " may have been applied and is not marked so; the first: %s", row, rows->first_error);
    if ((outcome & (ACKNOWLEDGED | READ)) == ACKNOWLEDGED)
        return wrong(message, size, "row %" PRIu64 " was acknowledged and is missing", row);
    if ((outcome & WRONG) != 0)
        return wrong(message, size, "row %" PRIu64 " is not what was written", row);
    if (seen > 1 + hits)
        return wrong(message, size, "row %" PRIu64 " was sent %u times and %u faults hit it", row, seen, hits);
    if (attempts < seen)
        return wrong(message, size, "row %" PRIu64 " was sent %u times and had %u attempts, it says", row, seen, attempts);
    if (attempts > seen + storm->counts.ended)
        return wrong(message, size, "row %" PRIu64 " had %u attempts, was sent %u times, and %" PRIu64 " connections ended", row, attempts, seen, storm->counts.ended);
    return true;
}

static bool judge(struct storm *storm, const struct rows *rows, char *message, size_t size)
{
    const struct proxy_counts *counts = &storm->counts;
    uint32_t hits_max = 0;
    for (uint64_t row = 0; row < storm->rows; ++row) {
        uint32_t hits = proxy_hits(storm->proxy, row);
        hits_max = hits > hits_max ? hits : hits_max;
        if (!judge_row(storm, rows, row, hits, message, size))
            return false;
    }
    for (uint32_t i = 0; i < storm->fault_count; i++)
        if (counts->struck[storm->faults[i].kind] == 0)
            return wrong(message, size, "%s did not strike in %" PRIu64 " EXECUTEs", proxy_kind_name(storm->faults[i].kind), counts->executes);
    if (storm->retries > counts->hits)
        return wrong(message, size, "%" PRIu64 " retries, and %" PRIu64 " attempts were hit", storm->retries, counts->hits);
    if (counts->unexplained > 0)
        return wrong(message, size, "%" PRIu64 " connections ended without a fault", counts->unexplained);
    if (counts->malformed)
        return wrong(message, size, "what is no envelope or segment was sent, or a stream was used twice");
    int64_t idle_us = IDLE_US + (storm->idempotent ? backoff_max_us(hits_max) : 0); /* a row that may not be tried again waits for nothing */
    if (counts->idle_max_us > idle_us)
        return wrong(message, size, "for %" PRId64 " ms nothing was issued on a connection that was well; rows wait for %" PRId64 " ms at most", counts->idle_max_us / 1000,
                     idle_us / 1000);
    return true;
}

bool storm_run(struct storm *storm, char *message, size_t message_size)
{
    struct rows *rows = calloc(1, sizeof *rows);
    uint8_t *outcomes = calloc(storm->rows, 1);
    uint16_t *attempts = calloc(storm->rows, sizeof *attempts);
    if (rows == NULL || outcomes == NULL || attempts == NULL)
        abort();
    rows->end = storm->rows;
    rows->outcomes = outcomes;
    rows->attempts = attempts;
    proxy_forget(storm->proxy);
    for (uint32_t i = 0; i < storm->fault_count; i++)
        proxy_fault(storm->proxy, &storm->faults[i]);
    char cql[200];
    cqlring_summary summary = {0};
    cqlring_execution how = {.struct_size = sizeof how,
                             .idempotent = storm->idempotent ? CQLRING_YES : CQLRING_NO,
                             .timeout_us = ROW_US, /* patience for slow machines; nothing here takes so long */
                             .attempt_timeout_us = storm->attempt_timeout_us};
    snprintf(cql, sizeof cql, "INSERT INTO %s (k, v) VALUES (?, ?)", storm->table);
    int64_t began = now_us();
    proxy_work(storm->proxy, true);
    bool held = job(storm, rows, cql, &how, &summary, message, message_size);
    proxy_work(storm->proxy, false);
    storm->took_us = now_us() - began;
    storm->retries = summary.retries;
    proxy_calm(storm->proxy);
    proxy_counts(storm->proxy, &storm->counts);
    rows->reads = true;
    rows->next = 0;
    how = (cqlring_execution){.struct_size = sizeof how, .idempotent = CQLRING_YES};
    snprintf(cql, sizeof cql, "SELECT v FROM %s WHERE k = ?", storm->table);
    held = held && job(storm, rows, cql, &how, &summary, message, message_size);
    if (held && rows->read_failed > 0)
        held = wrong(message, message_size, "%s", rows->first_error);
    held = held && judge(storm, rows, message, message_size);
    free(attempts);
    free(outcomes);
    free(rows);
    return held;
}

struct proxy_fault storm_fault(enum proxy_kind kind, uint64_t rows)
{
    struct proxy_fault fault = {.kind = kind, .every = rows / 20 + 7, .after = rows / 50};
    switch (kind) {
    case PROXY_HALF_OPEN:
    case PROXY_REFUSE:
        fault.every = rows / 3;
        fault.times = 2;
        fault.ms = 400;
        break;
    case PROXY_OVERLOADED:
    case PROXY_LATE:
        fault.every = rows / 200 + 7;
        fault.ms = 50;
        break;
    case PROXY_UNPREPARED: fault.count = (uint32_t)(rows / 60) + 1; break;
    case PROXY_REORDER:
        fault.every = 31;
        fault.count = 16;
        break;
    case PROXY_SPLIT: fault.times = 1; break;
    default: break;
    }
    return fault;
}

uint32_t storm_faults(struct proxy_fault faults[PROXY_KINDS], uint64_t rows)
{
    static const enum proxy_kind frequent[] = {PROXY_UNPREPARED, PROXY_OVERLOADED, PROXY_LATE, PROXY_REORDER};
    enum { FREQUENT = sizeof frequent / sizeof frequent[0] };
    uint32_t count = 0;
    for (int kind = 0; kind < PROXY_KINDS; kind++) {
        bool rare = true;
        for (int i = 0; i < FREQUENT; i++)
            rare = rare && frequent[i] != (enum proxy_kind)kind;
        if (!rare)
            continue;
        faults[count] = storm_fault((enum proxy_kind)kind, rows);
        faults[count].every = rows / 6 + 101;
        faults[count].after = rows / 40 * (uint64_t)kind;
        if (faults[count].times == 0)
            faults[count].times = 3;
        if (kind == PROXY_HALF_OPEN) /* 2 s until it is suspect, 5 s until it is given up: a second one might outlast a row's 12 s */
            faults[count].times = 1;
        count++;
    }
    for (int i = 0; i < FREQUENT; i++)
        faults[count++] = storm_fault(frequent[i], rows);
    faults[count - FREQUENT].every = rows / 3; /* while statements are prepared again and again not much else goes on */
    return count;
}

void storm_text(const struct storm *storm, char *text, size_t size)
{
    const struct proxy_counts *counts = &storm->counts;
    uint64_t struck = 0;
    for (uint32_t i = 0; i < storm->fault_count; i++)
        struck += counts->struck[storm->faults[i].kind];
    snprintf(text, size,
             "%.1f s, %" PRIu64 " faults, %" PRIu64 " attempts hit, %" PRIu64 " connections ended; %" PRIu64 " failed, %" PRIu64 " attempts, %u at most, %" PRIu64
             " of them lost unsent; nothing under way for %" PRId64 " ms at most",
             (double)storm->took_us / 1e6, struck, counts->hits, counts->ended, storm->failed, storm->attempts, storm->attempts_max, storm->unseen,
             counts->idle_max_us / 1000);
}
