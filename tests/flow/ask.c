/* SPDX-License-Identifier: Apache-2.0 */

#include "ask.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "serialize/mem.h"

static cqlring_future *start(const cqlring_request *request)
{
    cqlring_future *future = NULL;
    cqlring_error error = {0};
    cqlring_status status = cqlring_execute(request, &future, &error);
    ck_assert_msg(status == CQLRING_OK, "execute: %s: %s", cqlring_status_name(status), error.message);
    return future;
}

cqlring_status ask_text(struct flow *flow, const char *cql, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how,
                        cqlring_result **result, cqlring_error *error)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text(cql), .values = values, .value_count = count, .execution = how};
    return cqlring_execute_sync(&request, result, error);
}

cqlring_status ask_prepared(struct flow *flow, cqlring_prepared *prepared, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how,
                            cqlring_result **result, cqlring_error *error)
{
    cqlring_request request = {.session = flow->session, .prepared = prepared, .values = values, .value_count = count, .execution = how};
    return cqlring_execute_sync(&request, result, error);
}

cqlring_future *ask_start(struct flow *flow, const char *cql, const cqlring_execution *how)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text(cql), .execution = how};
    return start(&request);
}

cqlring_future *ask_start_prepared(struct flow *flow, cqlring_prepared *prepared, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how)
{
    cqlring_request request = {.session = flow->session, .prepared = prepared, .values = values, .value_count = count, .execution = how};
    return start(&request);
}

cqlring_status ask_wait(cqlring_future *future, cqlring_error *error)
{
    cqlring_status status = cqlring_future_wait(future, 20000000, error);
    ck_assert_msg(cqlring_future_ready(future), "the future does not get ready");
    return status;
}

cqlring_status ask_end(cqlring_future *future, cqlring_error *error)
{
    cqlring_status status = ask_wait(future, error);
    cqlring_future_release(future);
    return status;
}

cqlring_status ask_next_page(cqlring_result *result, const cqlring_execution *how, cqlring_result **next, cqlring_error *error)
{
    cqlring_future *future = NULL;
    cqlring_status status = cqlring_next_page(result, how, &future, error);
    if (status != CQLRING_OK)
        return status;
    status = ask_wait(future, error);
    *next = status == CQLRING_OK ? cqlring_result_retain(cqlring_future_completion(future)->result) : NULL;
    cqlring_future_release(future);
    return status;
}

cqlring_bytes ask_cell(cqlring_result *result, uint32_t row, uint32_t column)
{
    enum { COLUMNS_MAX = 64 };
    cqlring_bytes cells[COLUMNS_MAX];
    uint32_t columns = cqlring_result_column_count(result), count = 0;
    ck_assert_uint_le(columns, COLUMNS_MAX);
    ck_assert_uint_lt(column, columns);
    cqlring_error error;
    cqlring_status status = cqlring_result_rows(result, row, cells, 1, &count, &error);
    ck_assert_msg(status == CQLRING_OK, "row %u: %s: %s", row, cqlring_status_name(status), error.message);
    ck_assert_msg(count == 1, "there is no row %u", row);
    return cells[column];
}

int64_t ask_int(cqlring_result *result, uint32_t row, uint32_t column)
{
    cqlring_bytes cell = ask_cell(result, row, column);
    int64_t value = 0;
    ck_assert_int_gt(cell.size, 0);
    flow_ok(cqlring_get_int(cell, (uint32_t)cell.size, &value));
    return value;
}

bool ask_is(cqlring_bytes cell, const char *text)
{
    size_t size = strlen(text);
    return cell.size >= 0 && (size_t)cell.size == size && (size == 0 || memcmp(cell.data, text, size) == 0);
}

int64_t ask_number(struct flow *flow, const char *cql)
{
    cqlring_result *result = NULL;
    cqlring_error error;
    cqlring_status status = flow_try(flow, cql, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s: %s", cql, cqlring_status_name(status), error.message);
    int64_t number = ask_int(result, 0, 0);
    cqlring_result_release(result);
    return number;
}

/* ---- what the nodes saw ---- */

static struct {
    pthread_mutex_t lock;
    uint32_t count;
    struct node_seen seen[ASK_SEEN_MAX];
} record = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_request(const struct node_seen *seen, void *context)
{
    (void)context;
    bool is_statement = seen->opcode == OPCODE_QUERY || seen->opcode == OPCODE_EXECUTE || seen->opcode == OPCODE_BATCH || seen->opcode == OPCODE_PREPARE;
    if (!is_statement || strstr(seen->text, "system.") != NULL || strstr(seen->text, "system_schema.") != NULL)
        return;
    pthread_mutex_lock(&record.lock);
    if (record.count < ASK_SEEN_MAX)
        record.seen[record.count++] = *seen;
    pthread_mutex_unlock(&record.lock);
}

void ask_record(struct flow *flow)
{
    ask_record_clear();
    flow->node_options.on_request = on_request;
}

void ask_record_clear(void)
{
    pthread_mutex_lock(&record.lock);
    record.count = 0;
    pthread_mutex_unlock(&record.lock);
}

uint32_t ask_seen_count(uint8_t opcode)
{
    uint32_t count = 0;
    pthread_mutex_lock(&record.lock);
    for (uint32_t i = 0; i < record.count; i++)
        count += opcode == 0 || record.seen[i].opcode == opcode;
    pthread_mutex_unlock(&record.lock);
    return count;
}

struct node_seen ask_seen_at(uint8_t opcode, uint32_t index)
{
    struct node_seen seen = {0};
    bool found = false;
    pthread_mutex_lock(&record.lock);
    for (uint32_t i = 0; i < record.count && !found; i++)
        if ((opcode == 0 || record.seen[i].opcode == opcode) && index-- == 0) {
            seen = record.seen[i];
            found = true;
        }
    pthread_mutex_unlock(&record.lock);
    ck_assert_msg(found, "the node has not seen so many requests of opcode 0x%02x", opcode);
    return seen;
}

struct node_seen ask_seen(uint8_t opcode)
{
    uint32_t count = ask_seen_count(opcode);
    ck_assert_msg(count > 0, "the node has seen no request of opcode 0x%02x", opcode);
    return ask_seen_at(opcode, count - 1);
}

static bool never(const struct node_counters *all, void *context)
{
    (void)all;
    (void)context;
    return false;
}

void ask_pass(struct flow *flow, uint32_t ms)
{
    if (flow->threads != CQLRING_THREADS_CALLER) {
        (void)node_wait(flow->node, never, ms, NULL);
        return;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + (int64_t)ms * 1000, left_us;
    while (clock_gettime(CLOCK_MONOTONIC, &now), (left_us = end_us - (int64_t)now.tv_sec * 1000000 - now.tv_nsec / 1000) > 0)
        (void)cqlring_runtime_turn(flow->runtime, left_us);
}

void ask_until_connected(struct flow *flow)
{
    for (int i = 0; i < 500; i++) {
        const cqlring_node *nodes[NODE_COUNT_MAX];
        uint32_t known = cqlring_cluster_nodes(flow->cluster, nodes, NODE_COUNT_MAX), up = 0;
        for (uint32_t n = 0; n < known; n++) {
            cqlring_node_info info;
            cqlring_node_describe(nodes[n], &info);
            up += info.is_up;
        }
        if (up == node_count(flow->node))
            return;
        ask_pass(flow, 20);
    }
    ck_abort_msg("not every node was connected");
}

void ask_until_served(struct flow *flow)
{
    cqlring_error error = {0};
    for (int i = 0; i < 500; i++) {
        if (flow_try(flow, "SELECT key FROM system.local", NULL, &error) == CQLRING_OK)
            return;
        ask_pass(flow, 20);
    }
    ck_abort_msg("no node serves any more: %s", error.message);
}

void ask_nothing_left(void)
{
    ck_assert_msg(cqr_mem_live_count() == 0, "%lld allocations of the library are left", (long long)cqr_mem_live_count());
}

const char *ask_address(struct flow *flow, uint32_t node)
{
    static char text[64];
    snprintf(text, sizeof text, "%s:%u", node_address(flow->node, node), node_port(flow->node, node));
    return text;
}
