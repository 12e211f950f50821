/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/trace.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "serialize/buf.h"

enum {
    TRIES_US = 5000000,
    DELAY_MIN_US = 5000, /* doubling */
    DELAY_MAX_US = 320000,
    QUERY_TIMEOUT_US = 2000000,
    TRACE_SIZE_MAX = 16 << 20
};

struct trace_fetch {
    struct lane_message message;     /* first */
    cqlring_future future;
    struct timer timer;
    struct trace_fetch *next;        /* in the cluster's list */
    struct cqlring_cluster *cluster; /* a reference, until it ends */
    struct lane *lane;
    int64_t deadline_us, delay_us;
    bool ended;
    struct arena arena;
    cqlring_trace trace;
};

static struct trace_fetch *fetch_of(const cqlring_future *future)
{
    return (struct trace_fetch *)(void *)((char *)(uintptr_t)future - offsetof(struct trace_fetch, future));
}

static void dispose(cqlring_future *future)
{
    struct trace_fetch *fetch = fetch_of(future);
    struct runtime_core *runtime = future->runtime;
    cqr_failure_free(future->error);
    cqr_arena_fini(&fetch->arena);
    cqr_mem_free(fetch);
    cqr_runtime_release(runtime);
}

static void end(struct trace_fetch *fetch, cqlring_status status, const char *why)
{
    struct cqlring_cluster *cluster = fetch->cluster;
    fetch->ended = true;
    for (struct trace_fetch **at = &cluster->traces; *at != NULL; at = &(*at)->next)
        if (*at == fetch) {
            *at = fetch->next;
            break;
        }
    cqr_wheel_disarm(&fetch->lane->wheel, &fetch->timer);
    if (status != CQLRING_OK) {
        fetch->future.status = status;
        fetch->future.error = &cqr_failure_make(status, "trace: %s", why)->error;
    }
    cqr_future_complete(&fetch->future);
    cqr_cluster_release(cluster);
}

static void later(struct trace_fetch *fetch)
{
    cqr_wheel_arm(&fetch->lane->wheel, &fetch->timer, fetch->lane->now_us + fetch->delay_us);
    fetch->delay_us = fetch->delay_us * 2 < DELAY_MAX_US ? fetch->delay_us * 2 : DELAY_MAX_US;
}

/* The op holds the future, so that the fetch is there when it is done. */
static void ask(struct trace_fetch *fetch, const char *columns, own_done done)
{
    char text[200], id[37];
    const uint8_t *at = fetch->trace.id;
    snprintf(id, sizeof id, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8],
             at[9], at[10], at[11], at[12], at[13], at[14], at[15]);
    int size = snprintf(text, sizeof text, "SELECT %s WHERE session_id = %s", columns, id);
    struct conn *conn = cqr_control_conn(fetch->cluster);
    cqlring_future_retain(&fetch->future);
    if (conn != NULL &&
        cqr_own_request(fetch->lane, conn, OPCODE_QUERY, (cqlring_bytes){text, size}, (cqlring_bytes){NULL, 0}, QUERY_TIMEOUT_US, done, fetch))
        return;
    if (fetch->lane->now_us >= fetch->deadline_us)
        end(fetch, CQLRING_TIMEOUT, "no control connection could take the request in 5 s");
    else
        later(fetch);
    cqlring_future_release(&fetch->future);
}

static const char *text_of(struct trace_fetch *fetch, cqlring_bytes cell)
{
    return cell.size <= 0 ? "" : cqr_arena_text(&fetch->arena, cell.data, (size_t)cell.size);
}

static const char *inet_of(struct trace_fetch *fetch, cqlring_bytes cell)
{
    char text[INET6_ADDRSTRLEN];
    if ((cell.size != 4 && cell.size != 16) || inet_ntop(cell.size == 4 ? AF_INET : AF_INET6, cell.data, text, sizeof text) == NULL)
        return "";
    return cqr_arena_text(&fetch->arena, text, strlen(text));
}

static int32_t int_of(cqlring_bytes cell)
{
    return cell.size == 4 ? (int32_t)cqr_load_u32(cell.data) : -1;
}

/* Did it go well but for what was not there yet? Else the fetch has ended, or will try again. */
static bool answered(struct trace_fetch *fetch, const struct op *op, uint32_t columns)
{
    if (fetch->ended)
        return false;
    if (op->status == CQLRING_OK && op->result != NULL && cqlring_result_column_count(op->result) == columns)
        return true;
    if (op->status == CQLRING_SERVER)
        end(fetch, CQLRING_SERVER, op->failure->error.message);
    else if (fetch->lane->now_us >= fetch->deadline_us)
        end(fetch, CQLRING_TIMEOUT, "system_traces could not be read in 5 s");
    else
        later(fetch);
    return false;
}

static void events_done(struct lane *lane, struct op *op, void *context)
{
    struct trace_fetch *fetch = context;
    (void)lane;
    if (answered(fetch, op, 4)) {
        uint32_t count = cqlring_result_row_count(op->result), row = 0, some = 0;
        cqlring_trace_event *events = cqr_arena_array(&fetch->arena, (size_t)count + 1, sizeof *events);
        bool failed = events == NULL;
        cqlring_bytes cells[4];
        for (; row < count && !failed && cqlring_result_rows(op->result, row, cells, 1, &some, NULL) == CQLRING_OK && some == 1; row++) {
            events[row] = (cqlring_trace_event){.activity = text_of(fetch, cells[0]),
                                                .source = inet_of(fetch, cells[1]),
                                                .elapsed_us = int_of(cells[2]),
                                                .thread = text_of(fetch, cells[3])};
            failed = events[row].activity == NULL || events[row].source == NULL || events[row].thread == NULL;
        }
        fetch->trace.events = events;
        fetch->trace.event_count = row;
        end(fetch, failed ? CQLRING_NO_MEMORY : CQLRING_OK, "out of memory");
    }
    cqlring_future_release(&fetch->future);
}

static bool session_read(struct trace_fetch *fetch, const cqlring_bytes *cells)
{
    cqlring_trace *trace = &fetch->trace;
    trace->client = inet_of(fetch, cells[0]);
    trace->command = text_of(fetch, cells[1]);
    trace->coordinator = inet_of(fetch, cells[2]);
    trace->duration_us = int_of(cells[3]);
    trace->request = text_of(fetch, cells[4]);
    trace->started_ms = cells[5].size == 8 ? (int64_t)cqr_load_u64(cells[5].data) : 0;
    trace->parameter_count = 0;
    struct reader reader;
    cqr_reader_init(&reader, cells[6].size > 0 ? cells[6].data : "", cells[6].size > 0 ? (uint32_t)cells[6].size : 0);
    int32_t count = cells[6].size >= 4 ? cqr_get_i32(&reader) : 0;
    if (count < 0 || count > cells[6].size / 8)
        count = 0;
    cqlring_schema_pair *pairs = cqr_arena_array(&fetch->arena, (size_t)count + 1, sizeof *pairs);
    bool failed = pairs == NULL || trace->client == NULL || trace->command == NULL || trace->coordinator == NULL || trace->request == NULL;
    for (int32_t i = 0; i < count && !failed; i++) {
        pairs[i].name = text_of(fetch, cqr_get_bytes(&reader));
        pairs[i].value = text_of(fetch, cqr_get_bytes(&reader));
        failed = pairs[i].name == NULL || pairs[i].value == NULL;
        trace->parameter_count++;
    }
    trace->parameters = pairs;
    return !failed;
}

static void session_done(struct lane *lane, struct op *op, void *context)
{
    struct trace_fetch *fetch = context;
    if (answered(fetch, op, 7)) {
        cqlring_bytes cells[7];
        uint32_t count = 0;
        bool there = cqlring_result_rows(op->result, 0, cells, 1, &count, NULL) == CQLRING_OK && count == 1;
        bool late = lane->now_us >= fetch->deadline_us;
        if (there && (cells[3].size == 4 || late)) {
            if (session_read(fetch, cells))
                ask(fetch, "activity, source, source_elapsed, thread FROM system_traces.events", events_done);
            else
                end(fetch, CQLRING_NO_MEMORY, "out of memory");
        } else if (late) {
            end(fetch, CQLRING_TIMEOUT, "the server had not written it down in 5 s: was the request traced?");
        } else {
            later(fetch);
        }
    }
    cqlring_future_release(&fetch->future);
}

void cqr_trace_timer(struct lane *lane, struct timer *timer)
{
    struct trace_fetch *fetch = (struct trace_fetch *)(void *)((char *)timer - offsetof(struct trace_fetch, timer));
    (void)lane;
    ask(fetch, "client, command, coordinator, duration, request, started_at, parameters FROM system_traces.sessions", session_done);
}

static void fetch_run(struct lane *lane, struct lane_message *message)
{
    struct trace_fetch *fetch = (struct trace_fetch *)(void *)message;
    fetch->next = fetch->cluster->traces;
    fetch->cluster->traces = fetch;
    if (atomic_load_explicit(&fetch->cluster->state, memory_order_acquire) != HANDLE_OPEN)
        end(fetch, CQLRING_CLOSED, "the cluster is closed");
    else
        cqr_trace_timer(lane, &fetch->timer);
}

void cqr_traces_stop(struct cqlring_cluster *cluster)
{
    while (cluster->traces != NULL)
        end(cluster->traces, CQLRING_CLOSED, "the cluster is closed");
}

cqlring_status cqlring_trace_fetch(cqlring_cluster *cluster, const uint8_t trace_id[16], cqlring_future **future, cqlring_error *error)
{
    if (cluster == NULL || trace_id == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_trace_fetch: cluster, trace_id and future must be given");
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_trace_fetch: the cluster belongs to the parent process; open one in the child");
    if (atomic_load_explicit(&cluster->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_trace_fetch: the cluster is closed");
    struct trace_fetch *fetch = cqr_mem_zalloc(sizeof *fetch);
    if (fetch == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_trace_fetch: out of memory");
    struct lane *lane = &cluster->runtime->lanes[0];
    cqr_arena_init(&fetch->arena, TRACE_SIZE_MAX);
    cqr_future_init(&fetch->future, FUTURE_TRACE, cqr_runtime_retain(cluster->runtime), dispose);
    fetch->message.run = fetch_run;
    fetch->timer.kind = TIMER_TRACE;
    fetch->cluster = cqr_cluster_retain(cluster);
    fetch->lane = lane;
    fetch->delay_us = DELAY_MIN_US;
    fetch->deadline_us = cqr_deadline_us(lane->net->call->now_us(lane->net), TRIES_US);
    memcpy(fetch->trace.id, trace_id, 16);
    *future = &fetch->future;
    if (cqr_lane_post(lane, &fetch->message))
        return CQLRING_OK;
    *future = NULL;
    cqlring_future_release(&fetch->future);
    cqlring_future_release(&fetch->future);
    cqr_cluster_release(cluster);
    return cqr_error(error, CQLRING_CLOSED, "cqlring_trace_fetch: the runtime has ended");
}

const cqlring_trace *cqlring_future_trace(const cqlring_future *future)
{
    if (future == NULL || future->kind != FUTURE_TRACE || !cqlring_future_ready(future) || future->status != CQLRING_OK)
        return NULL;
    return &fetch_of(future)->trace;
}
