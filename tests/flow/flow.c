/* SPDX-License-Identifier: Apache-2.0 */

#include "flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/runtime.h"
#include "serialize/buf.h"
#include "serialize/mem.h"

void flow_init(struct flow *flow)
{
    memset(flow, 0, sizeof *flow);
    const char *threads = getenv("CQLRING_FLOW_THREADS");
    flow->threads = threads != NULL && strcmp(threads, "inline") == 0   ? CQLRING_THREADS_INLINE
                    : threads != NULL && strcmp(threads, "caller") == 0 ? CQLRING_THREADS_CALLER
                                                                        : CQLRING_THREADS_SPLIT;
    flow->runtime_options.struct_size = sizeof flow->runtime_options;
    flow->runtime_options.threads = flow->threads;
    flow->options.struct_size = sizeof flow->options;
    flow->session_options.struct_size = sizeof flow->session_options;
    flow->node_options.nodes = 1;
}

static void node_run(struct flow *flow, const char *cql)
{
    char message[256];
    int32_t code = node_cql(flow->node, cql, NULL, message, sizeof message);
    ck_assert_msg(code == 0, "%s: %s", cql, message);
}

void flow_start(struct flow *flow)
{
    char message[256] = "";
    flow->node = node_cluster_start(&flow->node_options, message, sizeof message);
    ck_assert_msg(flow->node != NULL, "node: %s", message);
    char cql[256];
    snprintf(cql, sizeof cql, "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %u}",
             flow->node_options.nodes < 3 ? flow->node_options.nodes : 3u);
    node_run(flow, cql);
    node_run(flow, "CREATE TABLE ks.t (k bigint PRIMARY KEY, v blob)");
}

cqlring_status flow_try_open(struct flow *flow, cqlring_error *error)
{
    cqlring_status status = CQLRING_OK;
    if (flow->runtime == NULL)
        status = cqlring_runtime_create(&flow->runtime_options, &flow->runtime, error);
    if (status != CQLRING_OK)
        return status;
    if (flow->options.contact_points == NULL) {
        snprintf(flow->contact, sizeof flow->contact, "%s", node_address(flow->node, 0));
        flow->options.contact_points = flow->contact;
    }
    if (flow->options.port == 0)
        flow->options.port = node_port(flow->node, 0);
    status = cqlring_cluster_open_sync(flow->runtime, &flow->options, &flow->cluster, error);
    if (status == CQLRING_OK)
        status = cqlring_session_open_sync(flow->cluster, &flow->session_options, &flow->session, error);
    return status;
}

void flow_open(struct flow *flow)
{
    cqlring_error error;
    cqlring_status status = flow_try_open(flow, &error);
    ck_assert_msg(status == CQLRING_OK, "open: %s: %s", cqlring_status_name(status), error.message);
}

void flow_up(struct flow *flow)
{
    flow_init(flow);
    flow_start(flow);
    flow_open(flow);
}

void flow_close(struct flow *flow)
{
    cqlring_session_release(flow->session);
    cqlring_cluster_release(flow->cluster);
    flow_ok(cqlring_runtime_destroy(flow->runtime));
    node_cluster_stop(flow->node);
    ck_assert_msg(cqr_mem_live_count() == 0, "%lld allocations of the library are left", (long long)cqr_mem_live_count());
    memset(flow, 0, sizeof *flow);
}

cqlring_status flow_try(struct flow *flow, const char *cql, cqlring_result **result, cqlring_error *error)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text(cql)};
    return cqlring_execute_sync(&request, result, error);
}

void flow_cql(struct flow *flow, const char *cql)
{
    cqlring_error error;
    cqlring_status status = flow_try(flow, cql, NULL, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s: %s", cql, cqlring_status_name(status), error.message);
}

cqlring_prepared *flow_prepare(struct flow *flow, const char *cql)
{
    cqlring_prepared *prepared = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_prepare_sync(flow->session, cql, &prepared, &error);
    ck_assert_msg(status == CQLRING_OK, "prepare %s: %s: %s", cql, cqlring_status_name(status), error.message);
    return prepared;
}

void flow_fault(struct flow *flow, const char *text)
{
    char message[256];
    ck_assert_msg(node_fault_parse(flow->node, text, message, sizeof message) != 0, "%s: %s", text, message);
}

cqlring_stats flow_stats(const struct flow *flow)
{
    cqlring_stats stats = {.struct_size = sizeof stats};
    cqlring_runtime_stats(flow->runtime, &stats);
    return stats;
}

/* ---- rows ---- */

void flow_blob(uint64_t row, uint8_t *out, uint32_t size)
{
    uint64_t x = row * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (uint32_t i = 0; i < size; i++) {
        if (i % 8 == 0) {
            x ^= x >> 29;
            x *= UINT64_C(0xBF58476D1CE4E5B9);
        }
        out[i] = (uint8_t)(x >> (i % 8 * 8));
    }
}

void flow_rows_init(struct flow_rows *rows, uint64_t count, uint32_t size)
{
    memset(rows, 0, sizeof *rows);
    rows->end = count;
    rows->size = size;
    rows->fail_at = rows->later_at = -1;
    rows->memory = malloc((size_t)256 * (8 + (size_t)size) + 1);
    ck_assert_ptr_nonnull(rows->memory);
}

void flow_rows_fini(struct flow_rows *rows)
{
    free(rows->memory);
    rows->memory = NULL;
}

static int32_t rows_next(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct flow_rows *rows = context;
    rows->calls++;
    if (rows->per_call != 0 && rows->per_call < capacity)
        capacity = rows->per_call;
    if (rows->later_at >= 0 && rows->next >= (uint64_t)rows->later_at) {
        rows->later_at = -1;
        if (rows->later_us > 0)
            *wake_at_us = now_us + rows->later_us;
        atomic_store(&rows->later_said, true);
        return CQLRING_SOURCE_LATER;
    }
    uint32_t count = 0;
    uint8_t *at = rows->memory;
    for (; count < capacity && rows->next < rows->end; count++) {
        if (rows->fail_at >= 0 && rows->next == (uint64_t)rows->fail_at)
            break;
        if (rows->later_at >= 0 && rows->next == (uint64_t)rows->later_at)
            break;
        uint64_t row = rows->next++;
        cqr_store_u64(at, rows->one_key ? 0 : row);
        rows->cells[count][0] = (cqlring_bytes){at, 8};
        at += 8;
        if (!rows->keys_only) {
            flow_blob(row, at, rows->size);
            rows->cells[count][1] = (cqlring_bytes){at, (int32_t)rows->size};
            at += rows->size;
        }
        out[count] = (cqlring_row){.cells = rows->cells[count], .tag = row};
    }
    if (count == 0 && rows->fail_at >= 0 && rows->next == (uint64_t)rows->fail_at) {
        error->status = CQLRING_TYPE;
        snprintf(error->message, sizeof error->message, "the source broke at row %lld", (long long)rows->fail_at);
        return CQLRING_SOURCE_FAILED;
    }
    return (int32_t)count;
}

cqlring_source flow_source(struct flow_rows *rows)
{
    return (cqlring_source){.next = rows_next, .context = rows};
}

void flow_sink_init(struct flow_sink *sink, uint64_t rows)
{
    memset(sink, 0, sizeof *sink);
    sink->seen = calloc(1, rows + 1);
    ck_assert_ptr_nonnull(sink->seen);
}

void flow_sink_fini(struct flow_sink *sink)
{
    free(sink->seen);
    sink->seen = NULL;
}

void flow_completion_agrees(const cqlring_completion *completion)
{
    const cqlring_error *error = completion->error;
    ck_assert_msg((completion->status == CQLRING_OK) == (error == NULL), "row %llu: status %s %s an error", (unsigned long long)completion->row,
                  cqlring_status_name((cqlring_status)completion->status), error == NULL ? "without" : "with");
    if (error == NULL)
        return;
    bool maybe = (completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0;
    ck_assert_msg((int)error->status == completion->status && error->phase == completion->phase && (error->may_have_been_applied != 0) == maybe,
                  "row %llu: %s, phase %u, applied %u, and its error: %s, phase %u, applied %u, \"%s\"", (unsigned long long)completion->row,
                  cqlring_status_name((cqlring_status)completion->status), completion->phase, maybe, cqlring_status_name(error->status), error->phase,
                  error->may_have_been_applied, error->message);
    ck_assert_ptr_null(completion->result);
    ck_assert_uint_eq(completion->flags & (CQLRING_COMPLETION_VOID | CQLRING_COMPLETION_WARNINGS), 0);
}

static cqlring_verdict deliver(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct flow_sink *sink = context;
    if (sink->later_at > 0 && sink->delivered >= sink->later_at && !sink->later_said) {
        sink->later_said = true;
        return CQLRING_LATER;
    }
    sink->batches++;
    if (count > sink->batch_max)
        sink->batch_max = count;
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *completion = &completions[i];
        flow_completion_agrees(completion);
        if (sink->delivered > 0 && completion->row < sink->row_before)
            sink->out_of_order++;
        sink->row_before = completion->row;
        sink->delivered++;
        sink->by_status[completion->status]++;
        if (completion->status == CQLRING_OK) {
            sink->ok++;
        } else {
            if (sink->failed++ == 0) {
                snprintf(sink->first_error, sizeof sink->first_error, "%.399s", completion->error->message);
                sink->first_code = completion->error->server_code;
            }
            if ((completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0)
                sink->maybe++;
        }
        if ((completion->flags & CQLRING_COMPLETION_LAST) != 0) {
            sink->last++;
            if (sink->seen[completion->row]++ != 0)
                sink->twice++;
        }
        if (sink->each != NULL)
            sink->each(completion, sink->context);
    }
    return sink->stop_after > 0 && sink->delivered >= sink->stop_after ? CQLRING_STOP : CQLRING_CONTINUE;
}

cqlring_sink flow_sink_of(struct flow_sink *sink)
{
    return (cqlring_sink){.deliver = deliver, .context = sink};
}

uint64_t flow_sink_missing(const struct flow_sink *sink, uint64_t rows)
{
    uint64_t missing = 0;
    for (uint64_t i = 0; i < rows; i++)
        missing += sink->seen[i] == 0;
    return missing;
}

cqlring_future *flow_job(struct flow *flow, cqlring_prepared *statement, struct flow_rows *rows, struct flow_sink *sink, const cqlring_job_options *options)
{
    cqlring_source source = flow_source(rows);
    cqlring_sink out = sink != NULL ? flow_sink_of(sink) : (cqlring_sink){0};
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_execute_concurrent(flow->session, &statement, 1, &source, sink != NULL ? &out : NULL, 1, options, &future, &error);
    ck_assert_msg(status == CQLRING_OK, "execute_concurrent: %s: %s", cqlring_status_name(status), error.message);
    return future;
}

struct node_counters flow_counted_rows(struct flow *flow, const char *insert_text, uint64_t count, uint32_t window)
{
    cqlring_prepared *insert = flow_prepare(flow, insert_text);
    struct flow_rows rows;
    struct flow_sink sink;
    struct node_counters counters;
    node_counters_reset(flow->node);
    flow_rows_init(&rows, count, 16);
    flow_sink_init(&sink, count);
    cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &idempotent, .window = window};
    flow_ok(flow_run(flow, insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_msg(sink.failed == 0, "%lu failed: %s", (unsigned long)sink.failed, sink.first_error);
    ck_assert_uint_eq(flow_sink_missing(&sink, count), 0);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    node_counters(flow->node, NODE_ALL, &counters);
    return counters;
}

void flow_until(cqlring_future *job, const atomic_bool *said)
{
    cqlring_error error;
    do
        ck_assert_int_eq(cqlring_future_wait(job, 1000, &error), CQLRING_TIMEOUT);
    while (!atomic_load(said));
}

cqlring_status flow_run(struct flow *flow, cqlring_prepared *statement, struct flow_rows *rows, struct flow_sink *sink, const cqlring_job_options *options,
                        cqlring_summary *summary, cqlring_error *error)
{
    cqlring_future *future = flow_job(flow, statement, rows, sink, options);
    cqlring_status status = cqlring_future_wait(future, 60000000, error);
    ck_assert_msg(cqlring_future_ready(future), "the job hangs");
    if (summary != NULL)
        cqlring_job_summary(future, summary);
    cqlring_future_release(future);
    return status;
}

cqlring_bytes flow_bigint(int64_t value)
{
    static uint8_t memory[64][8];
    static unsigned at;
    uint8_t *cell = memory[at++ % 64];
    cqr_store_u64(cell, (uint64_t)value);
    return (cqlring_bytes){cell, 8};
}

cqlring_bytes flow_int(int32_t value)
{
    static uint8_t memory[64][4];
    static unsigned at;
    uint8_t *cell = memory[at++ % 64];
    cqr_store_u32(cell, (uint32_t)value);
    return (cqlring_bytes){cell, 4};
}

int flow_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
