/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

#include "world.h"

static struct chance chance;

static uint32_t below(uint32_t n)
{
    return chance_below(&chance, n);
}
static int64_t between(int64_t low, int64_t high)
{
    return chance_between(&chance, low, high);
}
static bool percent(uint32_t n)
{
    return chance_percent(&chance, n);
}

/* --- the ground -------------------------------------------------------------------------------------------------- */

static void make_network(struct network_shape *shape)
{
    static const uint32_t latencies[] = {20, 200, 500, 5000, 50000};
    static const uint32_t buffers[] = {100, 2000, 10000, 65536, 262144, 1048576};
    *shape = (struct network_shape){.latency_us = latencies[below(percent(70) ? 3 : 5)],
                                    .send_buffer = buffers[1 + below(5)],
                                    .receive_buffer = buffers[1 + below(5)]};
    shape->jitter_us = percent(60)
                           ? shape->latency_us * (1 + below(shape->latency_us > 5000 ? 1 : 4))
                           : 0;
    bool is_near = shape->latency_us <= 200; /* a small window on a long way would take for ever */
    if (is_near && percent(8))
        shape->send_buffer = buffers[0];
    if (is_near && percent(8))
        shape->receive_buffer = buffers[0];
    if (shape->latency_us >= 5000 && shape->send_buffer < 65536)
        shape->send_buffer = 65536;
    if (shape->latency_us >= 5000 && shape->receive_buffer < 65536)
        shape->receive_buffer = 65536;
    shape->split_percent = percent(70) ? 10 * (1 + below(9)) : 0;
    shape->short_percent = percent(60) ? 10 * (1 + below(9)) : 0;
    shape->late_wake_us = percent(50) ? below(3000) : 0;
    shape->rst_eats = percent(50);
    shape->hangups_told = percent(50);
}

/* As ScyllaDB: shards, a port that chooses them or is not what it says, tablets. */
static void make_scylla(struct plan *plan)
{
    struct stage_options *stage = &plan->stage;
    stage->node.shards = 1 + below(8);
    stage->node.version_max = 4; /* no checksums: see make_fault */
    stage->node.tablets = percent(60);
    plan->shard_port = percent(50) ? NODE_SHARD_PORT_OPEN : (enum node_shard_port)below(5);
    stage->cluster.shard_connections = percent(80) ? CQLRING_DEFAULT : CQLRING_NO;
    stage->cluster.shard_aware_port = percent(80) ? CQLRING_DEFAULT : CQLRING_NO;
    stage->cluster.shard_busy_percent = percent(60) ? 0 : 1 + below(100);
    if (percent(30)) {
        stage->cluster.local_port_min = 20000;
        stage->cluster.local_port_max = 20000 + (int32_t)below(20);
    }
}

static void make_ground(struct plan *plan)
{
    struct stage_options *stage = &plan->stage;
    uint32_t nodes = percent(30) ? 1 : percent(40) ? 3 : 1 + below(5);
    stage_options_init(stage, nodes);
    stage->replication = nodes >= 3 && percent(60) ? 3 : 1;
    stage->node.vnodes = 1 + below(12);
    make_network(&stage->network);
    if (nodes > 1 && percent(20) && stage->network.latency_us <= 5000)
        stage->network.slow_node = 1 + below(nodes);
    if (percent(40)) { /* replies overtake one another */
        stage->node.delay_us = 100 + below(5000);
        stage->node.jitter_us = below(stage->node.delay_us);
    }
    if (percent(30))
        stage->node.trickle = 1 + below(5);
    if (percent(25))
        make_scylla(plan);
    static const int32_t versions[] = {0, 0, 4, 5};
    stage->cluster.protocol_version = versions[below(stage->node.shards > 0 ? 3 : 4)];
    if (stage->node.shards == 0 && stage->cluster.protocol_version == 0 && percent(30)) {
        stage->node.version_max = 4;
        stage->node.refusal = (enum node_refusal)below(6);
    }
    stage->cluster.compression = percent(40) ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE;
    stage->cluster.inflight_per_connection = percent(60) ? 0 : 1 + below(percent(50) ? 8 : 1024);
    stage->cluster.orphans_max = percent(70) ? 0 : 1 + below(30);
    stage->cluster.heartbeat_us = percent(60) ? 0 : between(200000, 5000000);
    stage->cluster.suspect_after_us = percent(70) ? 0 : between(100000, 3000000);
    stage->cluster.connect_timeout_us = percent(50) || stage->network.latency_us >= 5000
                                            ? 0
                                            : between(1000000, 5000000);
    stage->cluster.reconnect_min_us = percent(50) ? 0 : between(1000, 200000);
    stage->cluster.reconnect_max_us = percent(50) ? 0 : between(200000, 3000000);
    static const uint32_t inflights[] = {64, 200, 2048, 4096};
    stage->runtime.inflight_max = inflights[below(4)];
    if (percent(50))
        stage->session.keyspace = "sim";
    if (percent(30)) {
        stage->session.requests_max = 1 + below(50);
        stage->session.bytes_max = 1000 + below(100000);
    }
}

/* --- what goes wrong --------------------------------------------------------------------------------------------- */

static void make_mishap(struct plan *plan, struct mishap *mishap)
{
    *mishap = (struct mishap){.kind = (enum mishap_kind)below(MISHAP_COUNT),
                              .at_us = between(0, plan->heal_us)};
    mishap->node = percent(30) ? NODE_ALL : below(plan->stage.node.nodes);
    mishap->for_us = percent(50) ? between(1000, 200000) : between(100000, 8000000);
    switch (mishap->kind) {
    case MISHAP_CLOSE: mishap->amount = percent(30) ? 0 : 1 + below(percent(50) ? 40 : 5000); break;
    case MISHAP_SLOW: mishap->amount = 1 + below(2000); break;
    case MISHAP_GAP:
        mishap->for_us = percent(50) ? between(1000, 300000) : between(100000, 40000000);
        break;
    case MISHAP_CLOCK: mishap->amount = between(-20000000, 5000000); break;
    default: break;
    }
}

/* v4 has no checksums: bytes that are changed on the way may then mean anything, so they are changed on v5 only. */
static void make_fault(struct plan *plan, char text[128])
{
    static const char *const kinds[] = {"error:code=0x0000",
                                        "error:code=0x1000",
                                        "error:code=0x1001",
                                        "error:code=0x1002",
                                        "error:code=0x1100",
                                        "error:code=0x1100,executed=1",
                                        "error:code=0x1500",
                                        "error:code=0x1500,executed=1",
                                        "error:code=0x2200",
                                        "error:code=0x1200",
                                        "error:code=0x1300",
                                        "error:code=0x7777",
                                        "unprepared:opcode=10",
                                        "unprepared:opcode=10",
                                        "late:delay_us=300000",
                                        "late:delay_us=3000000",
                                        "close:executed=1",
                                        "close:executed=0",
                                        "answer-close:",
                                        "half:",
                                        "twice:",
                                        "wrong-stream:",
                                        "opcode:code=0x1F",
                                        "request:",
                                        "event:",
                                        "trailing:",
                                        "warnings:count=3",
                                        "tracing:",
                                        "payload:",
                                        "drop:",
                                        "ignore:",
                                        "event-stream:",
                                        "garbage:",
                                        "truncated:",
                                        "flip-header:",
                                        "flip-payload:",
                                        "flip-header-crc:",
                                        "flip-payload-crc:"};
    enum { KINDS = sizeof kinds / sizeof kinds[0], V5_ONLY = 6 };
    bool v5 = plan->stage.node.version_max != 4 && plan->stage.cluster.protocol_version != 4;
    const char *kind = kinds[below(v5 ? KINDS : KINDS - V5_ONLY)];
    size_t size = strlen(kind);
    (void)snprintf(text, 128, "%s%schance=%.3f", kind, kind[size - 1] == ':' ? "" : ",",
                   percent(70) ? 0.002 * (1 + below(10)) : 0.02 * (1 + below(20)));
    if (percent(30) && strchr(kind, '=') != NULL && plan->stage.node.nodes > 1)
        (void)snprintf(text + strlen(text), 128 - strlen(text), ",node=%u",
                       below(plan->stage.node.nodes));
}

static void make_trouble(struct plan *plan)
{
    plan->heal_us = between(200000, 15000000);
    if (percent(75)) {
        plan->mishap_count = chance_skewed(&chance, 1, MISHAPS_MAX);
        for (uint32_t i = 0; i < plan->mishap_count; i++)
            make_mishap(plan, &plan->mishaps[i]);
    }
    if (percent(50)) {
        plan->fault_count = 1 + below(FAULTS_MAX);
        for (uint32_t i = 0; i < plan->fault_count; i++)
            make_fault(plan, plan->faults[i]);
    }
    plan->early = plan->mishap_count > 0 && percent(15);
    plan->stage.quiet = plan->early;
    if (percent(25)) {
        plan->ending = percent(70) ? END_SESSION_CLOSE : END_CLUSTER_CLOSE;
        plan->end_us = between(0, plan->heal_us);
        plan->drain_us = percent(40) ? 0 : percent(50) ? -1 : between(1000, 5000000);
    }
}

/* --- what the application does ----------------------------------------------------------------------------------- */

/* Some of the fault plan's strokes leave a request without an answer on a connection that lives: only its time-out ends it. */
static bool must_time_out(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->fault_count; i++)
        if (strncmp(plan->faults[i], "drop", 4) == 0 || strncmp(plan->faults[i], "ignore", 6) == 0)
            return true;
    for (uint32_t i = 0; i < plan->mishap_count; i++)
        if (plan->mishaps[i].kind == MISHAP_SILENCE)
            return true;
    return false;
}

static cqlring_execution make_execution(const struct plan *plan)
{
    cqlring_execution execution = {.struct_size = sizeof execution};
    execution.idempotent = percent(60) ? CQLRING_YES : CQLRING_NO;
    execution.retry = percent(20) ? CQLRING_RETRY_NONE : CQLRING_RETRY_DEFAULT;
    execution.timeout_us = percent(40)                           ? 0
                           : percent(20) && !must_time_out(plan) ? -1
                                                                 : between(50000, 10000000);
    execution.attempt_timeout_us = percent(60) ? 0 : percent(30) ? -1 : between(20000, 3000000);
    return execution;
}

static void make_job(struct plan *plan, struct job_plan *job)
{
    static const uint32_t windows[] = {1, 2, 10, 0, 100, 512, 1024};
    *job = (struct job_plan){.kind = percent(25) ? JOB_READ : JOB_WRITE,
                             .execution = make_execution(plan)};
    job->options = (cqlring_job_options){.struct_size = sizeof job->options,
                                         .window = percent(70) ? windows[below(7)]
                                                               : 1 + below(1024)};
    job->options.ordered = percent(35);
    job->has_sink = percent(90);
    if (job->kind == JOB_READ) {
        job->rows = chance_skewed(&chance, 1, 120);
        job->execution.page_size = percent(20) ? 0 : (int32_t)(1 + below(20));
    } else {
        job->size_max = percent(60) ? below(100) : percent(70) ? below(5000) : below(200000);
        job->size_min = percent(50) ? job->size_max : 0;
        uint32_t volume = 300000 / (job->size_max + 100);
        uint32_t rows_max = volume < 12 ? 12 : volume > 1500 ? 1500 : volume;
        job->rows = percent(50) ? below(rows_max + 1) : chance_skewed(&chance, 0, rows_max);
    }
    if (percent(30))
        job->options.bytes_max = 200 + below(percent(50) ? 5000 : 500000);
    if (percent(20))
        job->options.errors_max = 1 + below(5);
    if (percent(10))
        job->options.rows_max = 1 + below(job->rows + 2);
    if (percent(10))
        job->options.skip_successes = 1;
    if (percent(20))
        job->options.rows_per_s = 50 + below(5000);
    if (percent(10))
        job->options.bytes_per_s = 20000 + below(1000000);
    job->start_us = percent(60) ? 0 : between(0, 500000);
    job->batch_max = percent(50) ? 256 : 1 + below(64);
    job->source_later_percent = percent(30) ? 1 + below(60) : 0;
    job->source_fail_at = percent(8) ? below(job->rows + 1) : UINT32_MAX;
    job->bad_percent = percent(8) ? 1 + below(20) : 0;
    job->sink_later_percent = percent(25) ? 1 + below(60) : 0;
    job->sink_stop_at = percent(8) ? below(job->rows + 1) : UINT32_MAX;
    job->pause_us = percent(12) ? between(0, 1000000) : -1;
    job->resume_us = job->pause_us + between(1000, 2000000);
    job->cancel_us = percent(12) ? between(0, 1000000) : -1;
    job->rate_us = percent(8) ? between(0, 1000000) : -1;
    job->rate_then = percent(50) ? 0 : 100 + below(3000);
}

/* Copies at once, soon, late, many, and by what was measured. */
static void make_speculation(cqlring_execution *execution)
{
    static const cqlring_speculation kinds[] = {
        {.struct_size = sizeof kinds[0], .max = 1, .delay_us = 0},
        {.struct_size = sizeof kinds[0], .max = 2, .delay_us = 10000},
        {.struct_size = sizeof kinds[0], .max = 1, .delay_us = 300000},
        {.struct_size = sizeof kinds[0], .max = 8, .delay_us = 1000},
        {.struct_size = sizeof kinds[0], .max = 2, .percentile = 90},
        {.struct_size = sizeof kinds[0], .max = 2, .delay_us = 2000, .percentile = 50},
    };
    execution->speculation = percent(50) ? NULL : &kinds[below(sizeof kinds / sizeof kinds[0])];
}

void plan_make(struct plan *plan, uint64_t seed)
{
    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    chance = chance_make(seed, 1);
    make_ground(plan);
    chance = chance_make(seed, 4);
    make_trouble(plan);
    chance = chance_make(seed, 5);
    plan->job_count = percent(60) ? 1 : percent(20) ? 0 : 2 + below(JOBS_MAX - 1);
    for (uint32_t i = 0; i < plan->job_count; i++)
        make_job(plan, &plan->jobs[i]);
    if (percent(35) || plan->job_count == 0) {
        plan->singles = 1 + below(80);
        plan->single_size_max = percent(70) ? 200 : 50000;
        plan->single_execution = make_execution(plan);
    }
    if (percent(35)) {
        plan->queued = 1 + below(300);
        plan->queue_capacity = percent(50) ? 0 : 1 + below(64);
        plan->queue_bytes_max = percent(60) ? 0 : 300 + below(20000);
        plan->queued_size_max = percent(70) ? 100 : 10000;
        plan->queue_execution = make_execution(plan);
    }
    for (uint32_t i = 0; i < PARTITIONS; i++)
        plan->partitions[i] = chance_skewed(&chance, 0, 40);
    plan->partition_size_max = percent(80) ? 50 : 2000;
    chance = chance_make(seed, 9);
    for (uint32_t i = 0; i < plan->job_count; i++)
        make_speculation(&plan->jobs[i].execution);
    make_speculation(&plan->single_execution);
    make_speculation(&plan->queue_execution);
}

/* --- in words ---------------------------------------------------------------------------------------------------- */

static const char *yes(bool is, const char *text)
{
    return is ? text : "";
}

static void tell_execution(const cqlring_execution *execution, FILE *file)
{
    fprintf(file, "%s%s, time-out %" PRId64 " us, of an attempt %" PRId64 " us",
            execution->idempotent == CQLRING_YES ? "idempotent" : "not idempotent",
            yes(execution->retry == CQLRING_RETRY_NONE, ", no retries"), execution->timeout_us,
            execution->attempt_timeout_us);
    if (execution->speculation != NULL)
        fprintf(file, ", %u copies after %" PRId64 " us or at the %g th percentile", execution->speculation->max,
                execution->speculation->delay_us, execution->speculation->percentile);
}

static void tell_job(const struct job_plan *job, FILE *file)
{
    const cqlring_job_options *options = &job->options;
    if (job->kind == JOB_WRITE)
        fprintf(file, "writes %u rows of %u to %u bytes", job->rows, job->size_min, job->size_max);
    else
        fprintf(file, "reads %u times, pages of %d", job->rows, job->execution.page_size);
    fprintf(file, "; window %u%s%s%s; starts at %" PRId64 " us\n    ", options->window,
            yes(options->ordered, ", ordered"), yes(!job->has_sink, ", no sink"),
            yes(options->skip_successes, ", failures only"), job->start_us);
    tell_execution(&job->execution, file);
    if (options->bytes_max != 0)
        fprintf(file, "; bytes_max %" PRIu64, options->bytes_max);
    if (options->errors_max != 0)
        fprintf(file, "; errors_max %" PRIu64, options->errors_max);
    if (options->rows_max != 0)
        fprintf(file, "; rows_max %" PRIu64, options->rows_max);
    if (options->rows_per_s > 0 || options->bytes_per_s > 0)
        fprintf(file, "; %.0f rows/s, %.0f bytes/s", options->rows_per_s, options->bytes_per_s);
    fprintf(file, "\n    source: %u rows a call, LATER %u%%, bad rows %u%%", job->batch_max,
            job->source_later_percent, job->bad_percent);
    if (job->source_fail_at != UINT32_MAX)
        fprintf(file, ", fails at row %u", job->source_fail_at);
    fprintf(file, "; sink: LATER %u%%", job->sink_later_percent);
    if (job->sink_stop_at != UINT32_MAX)
        fprintf(file, ", STOP after %u", job->sink_stop_at);
    if (job->pause_us >= 0)
        fprintf(file, "; paused at %" PRId64 " until %" PRId64 " us", job->pause_us,
                job->resume_us);
    if (job->cancel_us >= 0)
        fprintf(file, "; cancelled at %" PRId64 " us", job->cancel_us);
    if (job->rate_us >= 0)
        fprintf(file, "; %.0f rows/s from %" PRId64 " us on", job->rate_then, job->rate_us);
    fprintf(file, "\n");
}

void plan_tell(const struct plan *plan, FILE *file)
{
    static const char *const mishaps[MISHAP_COUNT] = {
        "reset",      "close",       "half-open",  "crash", "freeze",           "refuse",
        "black hole", "slow reader", "no sockets", "gap",   "forgets prepared", "silence",
        "wall clock", "events", "tablets move", "other shards"};
    static const char *const endings[] = {"when all is through", "session close", "cluster close"};
    const struct stage_options *stage = &plan->stage;
    const struct network_shape *shape = &stage->network;
    fprintf(
        file,
        "seed %" PRIu64
        ": %u nodes, replication %u, driver v%d, node up to v%u%s; %u in flight a lane, %u a connection\n",
        plan->seed, stage->node.nodes, stage->replication, stage->cluster.protocol_version,
        stage->node.version_max == 0 ? 5u : stage->node.version_max,
        yes(stage->cluster.compression == CQLRING_COMPRESSION_LZ4, ", LZ4"),
        stage->runtime.inflight_max, stage->cluster.inflight_per_connection);
    if (stage->node.shards > 0) {
        static const char *const ports[] = {"open", "behind NAT", "closed", "silent", "unlisted"};
        fprintf(file, "  %u shards%s, the port for them %s%s%s; busy at %u%%\n", stage->node.shards,
                yes(stage->node.tablets, " and tablets"), ports[plan->shard_port],
                yes(stage->cluster.shard_aware_port == CQLRING_NO, " and not wanted"),
                yes(stage->cluster.shard_connections == CQLRING_NO, ", one connection a node"),
                stage->cluster.shard_busy_percent);
    }
    fprintf(
        file,
        "  network: %u us + %u, node %u slow, buffers %u and %u, cuts %u%%, short %u%%; nodes delay %u +- %u us, trickle %u\n",
        shape->latency_us, shape->jitter_us, shape->slow_node, shape->send_buffer,
        shape->receive_buffer, shape->split_percent, shape->short_percent, stage->node.delay_us,
        stage->node.jitter_us, stage->node.trickle);
    for (uint32_t i = 0; i < plan->job_count; i++) {
        fprintf(file, "  job %u ", i);
        tell_job(&plan->jobs[i], file);
    }
    if (plan->singles > 0) {
        fprintf(file, "  %u single executions of up to %u bytes: ", plan->singles,
                plan->single_size_max);
        tell_execution(&plan->single_execution, file);
        fprintf(file, "\n");
    }
    if (plan->queued > 0) {
        fprintf(file, "  a queue of %u takes %u requests of up to %u bytes: ", plan->queue_capacity,
                plan->queued, plan->queued_size_max);
        tell_execution(&plan->queue_execution, file);
        fprintf(file, "\n");
    }
    for (uint32_t i = 0; i < plan->mishap_count; i++) {
        const struct mishap *mishap = &plan->mishaps[i];
        fprintf(file, "  %s at %" PRId64 " us for %" PRId64 " us, node %d, %" PRId64 "\n",
                mishaps[mishap->kind], mishap->at_us, mishap->for_us, (int)mishap->node,
                mishap->amount);
    }
    for (uint32_t i = 0; i < plan->fault_count; i++)
        fprintf(file, "  fault %s\n", plan->faults[i]);
    fprintf(file, "  all well after %" PRId64 " us%s; ends: %s", plan->heal_us,
            yes(plan->early, ", trouble from the start"), endings[plan->ending]);
    if (plan->ending != END_ALL)
        fprintf(file, " at %" PRId64 " us, drain %" PRId64 " us", plan->end_us, plan->drain_us);
    fprintf(file, "\n");
}
