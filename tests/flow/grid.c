/* SPDX-License-Identifier: Apache-2.0 */
#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"

enum { VALUE_MAX = 64 << 10 };

void grid_init(struct grid *grid)
{
    memset(grid, 0, sizeof *grid);
    grid->rows = calloc(GRID_MAX, sizeof *grid->rows);
    grid->memory = malloc(256 * (size_t)(VALUE_MAX + 16));
    ck_assert_ptr_nonnull(grid->rows);
    ck_assert_ptr_nonnull(grid->memory);
}

void grid_fini(struct grid *grid)
{
    free(grid->rows);
    free(grid->memory);
}

struct grid_row *grid_add(struct grid *grid, int64_t p, int32_t c, uint32_t size, uint8_t fill)
{
    ck_assert_uint_lt(grid->count, GRID_MAX);
    ck_assert_uint_le(size, VALUE_MAX);
    struct grid_row *row = &grid->rows[grid->count++];
    *row = (struct grid_row){.p = p, .c = c, .size = size, .fill = fill};
    return row;
}

static int32_t next(cqlring_row *out, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct grid *grid = context;
    (void)now_us, (void)wake_at_us, (void)error;
    grid->calls++;
    if (capacity > grid->capacity_max)
        grid->capacity_max = capacity;
    if (grid->per_call != 0 && grid->per_call < capacity)
        capacity = grid->per_call;
    if (grid->later_at > 0 && grid->next == grid->later_at) {
        grid->later_at = 0;
        atomic_store(&grid->later_said, true);
        return CQLRING_SOURCE_LATER;
    }
    uint32_t count = 0;
    uint8_t *at = grid->memory;
    for (; count < capacity && grid->next < grid->count && (grid->later_at == 0 || grid->next < grid->later_at); count++) {
        const struct grid_row *row = &grid->rows[grid->next];
        cqlring_bytes p = {at, 8}, c = {at + 8, row->c == GRID_NULL ? CQLRING_NULL : 4}, v = {at + 12, (int32_t)row->size};
        cqr_store_u64(at, (uint64_t)row->p);
        cqr_store_u32(at + 8, (uint32_t)row->c);
        memset(at + 12, row->fill, row->size);
        at += 12 + row->size;
        cqlring_bytes *cells = grid->cells[count];
        cells[0] = row->value_first ? v : p;
        cells[1] = row->value_first ? p : c;
        cells[2] = row->value_first ? c : v;
        out[count] = (cqlring_row){.cells = cells, .cell_count = row->partition_only ? 1 : row->key_only ? 2 : 3, .statement = row->statement,
                                   .timestamp_us = row->timestamp_us, .tag = 7000000u + grid->next};
        grid->next++;
    }
    return (int32_t)count;
}

cqlring_source grid_source(struct grid *grid)
{
    return (cqlring_source){.next = next, .context = grid};
}

void grid_up(struct flow *flow)
{
    flow->options.schema_metadata = CQLRING_YES;
    ask_record(flow);
    flow_start(flow);
    char message[200];
    ck_assert_int_eq(node_cql(flow->node, "CREATE TABLE ks.e (p bigint, c int, v blob, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
    flow_open(flow);
    cqlring_future *future = NULL;
    flow_ok(cqlring_schema_refresh(flow->cluster, &future, NULL));
    flow_ok(ask_end(future, NULL));
    ask_until_connected(flow);
    ask_record_clear();
    node_counters_reset(flow->node);
}

cqlring_future *grid_start(struct flow *flow, cqlring_prepared *const *statements, uint32_t statement_count, struct grid *grid, struct flow_sink *sink,
                           const cqlring_job_options *options)
{
    cqlring_source source = grid_source(grid);
    cqlring_sink out = sink != NULL ? flow_sink_of(sink) : (cqlring_sink){0};
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_execute_concurrent(flow->session, statements, statement_count, &source, sink != NULL ? &out : NULL, 1, options, &future, &error);
    ck_assert_msg(status == CQLRING_OK, "execute_concurrent: %s: %s", cqlring_status_name(status), error.message);
    return future;
}

cqlring_status grid_run(struct flow *flow, cqlring_prepared *const *statements, uint32_t statement_count, struct grid *grid, struct flow_sink *sink,
                        const cqlring_job_options *options, cqlring_summary *summary, cqlring_error *error)
{
    cqlring_future *future = grid_start(flow, statements, statement_count, grid, sink, options);
    cqlring_status status = cqlring_future_wait(future, 60000000, error);
    ck_assert_msg(cqlring_future_ready(future), "the job hangs");
    if (summary != NULL)
        cqlring_job_summary(future, summary);
    cqlring_future_release(future);
    return status;
}

int grid_value(struct flow *flow, int64_t p, int32_t c)
{
    char cql[120];
    snprintf(cql, sizeof cql, "SELECT v FROM ks.e WHERE p = %lld AND c = %d", (long long)p, c);
    cqlring_result *result = NULL;
    cqlring_error error;
    cqlring_status status = flow_try(flow, cql, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", cql, error.message);
    int value = -1;
    if (cqlring_result_row_count(result) == 1) {
        cqlring_bytes cell = ask_cell(result, 0, 0);
        value = cell.size > 0 ? ((const uint8_t *)cell.data)[0] : 256;
    }
    cqlring_result_release(result);
    return value;
}
