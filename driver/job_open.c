/* SPDX-License-Identifier: Apache-2.0 */

/* A job handed over by the application: options checked, everything copied, one part a source posted to a lane; and what may be
   asked of it from any thread while it runs. Its turns are in job.c. */

#include <math.h>
#include <string.h>

#include "driver/batch_rows.h"
#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/job.h"
#include "driver/prepared.h"
#include "driver/runtime.h"

enum { ADAPTIVE_ROWS = 2 * ADAPT_CAP, BATCHING_ROWS = 256, WINDOW_MAX = 32768 };
static const uint64_t BYTES_MAX = 16 << 20;

/* ---- hand-over ---- */

static void start_run(struct lane *lane, struct lane_message *message)
{
    struct job_part *part = (struct job_part *)(void *)message;
    part->next_part = lane->parts;
    if (lane->parts != NULL)
        lane->parts->link_part = &part->next_part;
    part->link_part = &lane->parts;
    lane->parts = part;
    part->tokens_at_us = lane->now_us;
    cqr_session_op_begin(lane, part->job->session);
    if (part->batches != NULL && part == part->job->parts)
        cqr_batch_rule_tell(lane, part->job);
    if (lane->stopping || !cqr_session_takes(lane, part->job->session)) {
        cqlring_error error;
        memset(&error, 0, sizeof error);
        cqr_error(&error, CQLRING_CLOSED, "the session is closed");
        cqr_job_stop(part->job, JOB_STOP_CLOSE, CQLRING_CLOSED, &error);
    }
}

static void poke_run(struct lane *lane, struct lane_message *message)
{
    struct job_part *part = (struct job_part *)(void *)((char *)message - offsetof(struct job_part, poke_message));
    (void)lane;
    atomic_store_explicit(&part->poke_posted, 0, memory_order_release);
    part->sink_waits = false;
    if (part->source_state == SOURCE_LATER)
        part->source_wake_us = 0;
    cqlring_future_release(&part->job->future);
}

static void batches_free(struct job *job)
{
    for (uint32_t i = 0; job->batches != NULL && job->parts != NULL && i < job->part_count; i++)
        cqr_batch_rows_free(job->parts[i].batches);
    cqr_mem_free(job->batches);
    job->batches = NULL;
}

static void dispose(cqlring_future *future)
{
    struct job *job = (struct job *)(void *)future;
    for (uint32_t i = 0; i < job->statement_count; i++)
        cqlring_prepared_release(job->statements[i]);
    cqr_failure_free(future->error);
    if (job->reason_failure != NULL && &job->reason_failure->error != future->error)
        cqr_failure_free(&job->reason_failure->error);
    cqr_session_release(job->session);
    struct runtime_core *runtime = future->runtime;
    batches_free(job);
    cqr_mem_free(job->parts);
    cqr_mem_free(job->plans);
    cqr_mem_free(job->statements);
    cqr_mem_free(job->payload);
    cqr_mem_free(job);
    cqr_runtime_release(runtime);
}

static struct job *job_of(const cqlring_future *future)
{
    return future != NULL && future->kind == FUTURE_JOB && future->fork_generation == cqr_fork_generation() ? (struct job *)(uintptr_t)future : NULL;
}

void cqlring_job_poke(cqlring_future *future)
{
    struct job *job = job_of(future);
    for (uint32_t i = 0; job != NULL && i < job->part_count; i++) {
        struct job_part *part = &job->parts[i];
        if (atomic_exchange_explicit(&part->poke_posted, 1, memory_order_acq_rel) != 0)
            continue;
        cqlring_future_retain(future);
        if (!cqr_lane_post(part->lane, &part->poke_message))
            cqlring_future_release(future);
    }
}

static void job_cancel(cqlring_future *future)
{
    struct job *job = (struct job *)(void *)future;
    cqlring_error error;
    memset(&error, 0, sizeof error);
    cqr_error(&error, CQLRING_CANCELLED, "cancelled by the application");
    cqr_job_stop(job, JOB_STOP_CANCEL, CQLRING_CANCELLED, &error);
    cqlring_job_poke(future);
}

void cqlring_job_pause(cqlring_future *future)
{
    struct job *job = job_of(future);
    if (job != NULL)
        atomic_store_explicit(&job->paused, 1, memory_order_release);
}

void cqlring_job_resume(cqlring_future *future)
{
    struct job *job = job_of(future);
    if (job == NULL)
        return;
    atomic_store_explicit(&job->paused, 0, memory_order_release);
    cqlring_job_poke(future);
}

void cqlring_job_rate(cqlring_future *future, double rows_per_s, double bytes_per_s)
{
    struct job *job = job_of(future);
    if (job == NULL)
        return;
    atomic_store_explicit(&job->rows_per_s, rows_per_s > 0 && isfinite(rows_per_s) ? rows_per_s : 0, memory_order_relaxed);
    atomic_store_explicit(&job->bytes_per_s, bytes_per_s > 0 && isfinite(bytes_per_s) ? bytes_per_s : 0, memory_order_relaxed);
    cqlring_job_poke(future);
}

void cqlring_job_summary(const cqlring_future *future, cqlring_summary *summary)
{
    if (summary == NULL)
        return;
    memset(summary, 0, sizeof *summary);
    struct job *job = job_of(future);
    if (job == NULL)
        return;
    summary->rows = atomic_load_explicit(&job->rows, memory_order_relaxed);
    summary->failed = atomic_load_explicit(&job->failed, memory_order_relaxed);
    summary->may_have_been_applied = atomic_load_explicit(&job->maybe_applied, memory_order_relaxed);
    summary->retries = atomic_load_explicit(&job->retries, memory_order_relaxed);
    summary->low_water = atomic_load_explicit(&job->low_water, memory_order_relaxed);
    for (uint32_t i = 0; i < job->part_count; i++)
        summary->bytes_sent += atomic_load_explicit(&job->parts[i].bytes_sent, memory_order_relaxed);
    summary->started_us = atomic_load_explicit(&job->started_us, memory_order_relaxed);
    summary->ended_us = atomic_load_explicit(&job->ended_us, memory_order_relaxed);
}

static cqlring_status options_check(const cqlring_job_options *options, cqlring_error *error)
{
    if (options->struct_size < sizeof *options)
        return cqr_error(error, CQLRING_INVALID, "job options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_job_options)",
                         options->struct_size, sizeof *options);
    if (options->window > WINDOW_MAX)
        return cqr_error(error, CQLRING_INVALID, "job options: window of %u rows (1 to %d, 0 for what the nodes take best)", options->window, WINDOW_MAX);
    const double rates[2] = {options->rows_per_s, options->bytes_per_s};
    for (int i = 0; i < 2; i++)
        if (!(rates[i] >= 0 && isfinite(rates[i])))
            return cqr_error(error, CQLRING_INVALID, "job options: %s %g (0 for no limit, or a positive, finite number)", i == 0 ? "rows_per_s" : "bytes_per_s", rates[i]);
    return CQLRING_OK;
}

cqlring_status cqlring_execute_concurrent(cqlring_session *session, cqlring_prepared *const *statements, uint32_t statement_count,
                                          const cqlring_source *sources, const cqlring_sink *sinks, uint32_t pair_count,
                                          const cqlring_job_options *options, cqlring_future **future, cqlring_error *error)
{
    cqlring_job_options defaults = {.struct_size = sizeof defaults};
    if (options == NULL)
        options = &defaults;
    if (session == NULL || statements == NULL || statement_count == 0 || sources == NULL || pair_count == 0 || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_execute_concurrent: session, at least one statement and one source, and future must be given");
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_execute_concurrent: the session belongs to the parent process; open one in the child");
    if (statement_count > 65535 || pair_count > 1024)
        return cqr_error(error, CQLRING_INVALID, "cqlring_execute_concurrent: %u statements, %u sources (65535 and 1024 at most)", statement_count, pair_count);
    cqlring_status status = options_check(options, error);
    if (status != CQLRING_OK)
        return status;
    for (uint32_t i = 0; i < statement_count; i++)
        if (statements[i] == NULL || statements[i]->cluster != session->cluster)
            return cqr_error(error, CQLRING_INVALID, "cqlring_execute_concurrent: statement %u is %s", i, statements[i] == NULL ? "NULL" : "of another cluster");
    for (uint32_t i = 0; i < pair_count; i++)
        if (sources[i].next == NULL || (sinks != NULL && sinks[i].deliver == NULL))
            return cqr_error(error, CQLRING_INVALID, "cqlring_execute_concurrent: source or sink %u has no function", i);
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_execute_concurrent: the session is closed");

    struct op_plan plan;
    status = cqr_plan_make(&plan, session, options->execution, error);
    if (status != CQLRING_OK)
        return status;
    if (plan.params.paging_state.data != NULL)
        return cqr_error(error, CQLRING_INVALID, "job options: a paging state belongs to a single execution");
    struct batch_rule *rule = NULL;
    if (options->batch_by_partition != NULL &&
        (status = cqr_batch_rule_make(options, options->window != 0 ? options->window : BATCHING_ROWS, &plan, session->cluster, statements, statement_count, &rule, error)) !=
            CQLRING_OK)
        return status;
    struct runtime_core *runtime = session->cluster->runtime;
    struct job *job = cqr_mem_zalloc(sizeof *job);
    bool whole = job != NULL;
    if (whole) {
        uint64_t extra = (uint64_t)plan.params.keyspace.size;
        for (uint32_t i = 0; i < plan.params.payload_count; i++)
            extra += sizeof(struct string_pair) + (uint64_t)plan.params.payload[i].key.size +
                     (uint64_t)(plan.params.payload[i].value.size > 0 ? plan.params.payload[i].value.size : 0);
        job->plans = cqr_mem_array(statement_count, sizeof *job->plans);
        job->statements = cqr_mem_array(statement_count, sizeof *job->statements);
        job->parts = cqr_mem_array(pair_count, sizeof *job->parts);
        job->payload = cqr_mem_alloc((size_t)extra);
        job->part_count = pair_count;
        job->batches = rule;
        whole = job->plans != NULL && job->statements != NULL && job->parts != NULL && job->payload != NULL;
        for (uint32_t i = 0; rule != NULL && whole && i < pair_count; i++)
            whole = (job->parts[i].batches = cqr_batch_rows_make(rule)) != NULL;
    }
    if (!whole) {
        if (job == NULL) {
            cqr_mem_free(rule);
        } else {
            batches_free(job);
            cqr_mem_free(job->plans);
            cqr_mem_free(job->statements);
            cqr_mem_free(job->parts);
            cqr_mem_free(job->payload);
        }
        cqr_mem_free(job);
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_execute_concurrent: out of memory");
    }
    uint8_t *at = (uint8_t *)(job->payload + plan.params.payload_count);
    for (uint32_t i = 0; i < plan.params.payload_count; i++) {
        struct string_pair pair = plan.params.payload[i];
        memcpy(at, pair.key.data, (size_t)pair.key.size);
        job->payload[i].key = (cqlring_bytes){at, pair.key.size};
        at += pair.key.size;
        if (pair.value.size > 0)
            memcpy(at, pair.value.data, (size_t)pair.value.size);
        job->payload[i].value = (cqlring_bytes){at, pair.value.size};
        at += pair.value.size > 0 ? pair.value.size : 0;
    }
    if (plan.params.payload_count > 0)
        plan.params.payload = job->payload;
    if (plan.params.keyspace.size > 0) {
        memcpy(at, plan.params.keyspace.data, (size_t)plan.params.keyspace.size);
        plan.params.keyspace.data = at;
    }
    cqr_future_init(&job->future, FUTURE_JOB, cqr_runtime_retain(runtime), dispose);
    job->future.cancel = job_cancel;
    job->session = cqr_session_retain(session);
    job->statement_count = statement_count;
    plan.patient = plan.retry;
    job->adaptive = options->window == 0 && options->batch_by_partition == NULL; /* what a request of many rows takes says little of one of few */
    job->row_settled = job->adaptive ? cqr_job_row_adaptive : cqr_job_row_settled;
    for (uint32_t i = 0; i < statement_count; i++) {
        job->statements[i] = cqr_prepared_retain(statements[i]);
        job->plans[i] = plan;
        cqr_plan_finish(&job->plans[i], OPCODE_EXECUTE, cqr_prepared_version(statements[i])->is_read);
        if (job->plans[i].percentile > 0 && !job->adaptive)
            job->row_settled = cqr_job_row_timed;
    }
    job->window = job->adaptive ? ADAPTIVE_ROWS : options->window != 0 ? options->window : BATCHING_ROWS;
    job->bytes_max = options->bytes_max != 0 ? options->bytes_max : BYTES_MAX;
    job->errors_max = options->errors_max;
    job->rows_max = options->rows_max;
    job->ordered = options->ordered != 0;
    job->skip_successes = options->skip_successes != 0;
    atomic_store_explicit(&job->rows_per_s, options->rows_per_s, memory_order_relaxed);
    atomic_store_explicit(&job->bytes_per_s, options->bytes_per_s, memory_order_relaxed);
    atomic_flag_clear(&job->reason_taken);
    atomic_store_explicit(&job->parts_left, pair_count, memory_order_relaxed);
    atomic_store_explicit(&job->started_us, cqr_runtime_now_us(runtime), memory_order_relaxed);
    uint32_t first = atomic_fetch_add_explicit(&session->next_lane, pair_count, memory_order_relaxed);
    for (uint32_t i = 0; i < pair_count; i++) {
        struct job_part *part = &job->parts[i];
        part->job = job;
        part->lane = &runtime->lanes[(first + i) % runtime->lane_count];
        part->source = sources[i];
        part->has_sink = sinks != NULL;
        part->low_water_kept = pair_count == 1;
        part->pull_max = rule != NULL ? rule->look_rows : JOB_BATCH;
        if (sinks != NULL)
            part->sink = sinks[i];
        part->message.run = start_run;
        part->poke_message.run = poke_run;
    }
    *future = &job->future;
    for (uint32_t i = 0; i < pair_count; i++)
        if (!cqr_lane_post(job->parts[i].lane, &job->parts[i].message)) {
            cqlring_error closed;
            memset(&closed, 0, sizeof closed);
            cqr_error(&closed, CQLRING_CLOSED, "the runtime has ended");
            cqr_job_stop(job, JOB_STOP_CLOSE, CQLRING_CLOSED, &closed);
            if (atomic_fetch_sub_explicit(&job->parts_left, 1, memory_order_acq_rel) == 1)
                cqr_job_end(job);
        }
    return CQLRING_OK;
}
