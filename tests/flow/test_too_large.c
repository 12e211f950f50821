/* SPDX-License-Identifier: Apache-2.0 */

/* A request that is larger than may be is refused before it is sent, with its size and the limit, whichever way it was given; only it
   fails, and the node has seen nothing of it. The limits: request_size_max, and what a frame takes (over v5 too, whose segments are
   smaller: a frame has several). */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/proto.h"
#include "grid.h"

enum { LIMIT = 2000, ROWS = 200, BLOB = 4000 };

static void up(struct flow *flow, uint32_t limit, int32_t version)
{
    flow_init(flow);
    flow->options.request_size_max = limit;
    flow->options.protocol_version = version;
    grid_up(flow);
}

static uint64_t sent(struct flow *flow)
{
    struct node_counters counters;
    node_counters(flow->node, NODE_ALL, &counters);
    return counters.opcodes[OPCODE_EXECUTE] + counters.opcodes[OPCODE_BATCH] + counters.opcodes[OPCODE_QUERY];
}

/* Its size and the limit are in it, and it says that nothing happened. */
static void refused(const cqlring_error *error, uint64_t size, uint64_t limit)
{
    char sizes[2][24];
    snprintf(sizes[0], sizeof sizes[0], "%" PRIu64 " bytes", size);
    snprintf(sizes[1], sizeof sizes[1], "%" PRIu64, limit);
    ck_assert_msg(error->status == CQLRING_TOO_LARGE, "%s: %s", cqlring_status_name(error->status), error->message);
    ck_assert_msg(strstr(error->message, sizes[0]) != NULL && strstr(error->message, sizes[1]) != NULL, "%s or %s is not in: %s", sizes[0], sizes[1], error->message);
    ck_assert_uint_eq(error->phase, CQLRING_NOT_SENT);
    ck_assert_uint_eq(error->may_have_been_applied, 0);
}

START_TEST(an_execute_a_batch_and_a_queues_request_are_refused)
{
    struct flow flow;
    up(&flow, LIMIT, _i);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    static uint8_t blob[BLOB];
    cqlring_bytes values[2] = {flow_bigint(1), {blob, BLOB}}, half[2] = {flow_bigint(2), {blob, LIMIT / 2}};
    const uint64_t size = 2 + 4 + 8 + 4 + BLOB;
    cqlring_error error;
    uint64_t before = sent(&flow);
    cqlring_request request = {.session = flow.session, .prepared = insert, .values = values, .value_count = 2};
    ck_assert_int_eq(cqlring_execute_sync(&request, NULL, &error), CQLRING_TOO_LARGE);
    refused(&error, size, LIMIT);

    /* two children, each of which would do: each is [kind][short n, id or long string][values] */
    cqlring_batch_child children[2] = {{.prepared = insert, .values = half, .value_count = 2}, {.cql = cqlring_text(FLOW_INSERT), .values = half, .value_count = 2}};
    cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 2};
    cqlring_request both = {.session = flow.session, .batch = &batch};
    ck_assert_int_eq(cqlring_execute_sync(&both, NULL, &error), CQLRING_TOO_LARGE);
    uint64_t told = 0;
    ck_assert_msg(sscanf(strpbrk(error.message, "0123456789"), "%" SCNu64, &told) == 1, "%s", error.message);
    ck_assert_uint_ge(told, 2 * (LIMIT / 2 + 18) + strlen(FLOW_INSERT));
    ck_assert_uint_le(told, 2 * (LIMIT / 2 + 18) + strlen(FLOW_INSERT) + 64);
    refused(&error, told, LIMIT);

    cqlring_queue *queue = NULL;
    flow_ok(cqlring_queue_open(&(cqlring_queue_options){.struct_size = sizeof(cqlring_queue_options), .session = flow.session, .capacity = 8}, &queue, &error));
    cqlring_request three[3] = {request, request, request};
    three[0].values = three[2].values = half;
    uint32_t accepted = 9;
    ck_assert_int_eq(cqlring_queue_submit(queue, three, 3, &accepted, &error), CQLRING_TOO_LARGE);
    ck_assert_uint_eq(accepted, 1);
    refused(&error, size, LIMIT);
    flow_ok(cqlring_queue_submit(queue, &three[2], 1, &accepted, &error)); /* the next one goes */
    cqlring_completion completions[2];
    cqlring_status status;
    ck_assert_uint_eq(cqlring_queue_reap(queue, completions, 2, 2, 10000000, &status), 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(completions[i].status, CQLRING_OK);
    cqlring_completions_release(completions, 2);
    uint8_t *at = NULL;
    ck_assert_int_eq(cqlring_queue_reserve(queue, LIMIT + 1, &at, &error), CQLRING_TOO_LARGE);
    refused(&error, LIMIT + 1, LIMIT);
    ck_assert_uint_eq(sent(&flow), before + 2);
    cqlring_queue_close(queue);
    cqlring_queue_release(queue);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

static bool is_large(uint64_t row)
{
    return row % 10 == 7;
}

static void row_seen(const cqlring_completion *completion, void *context)
{
    uint32_t *large = context;
    ck_assert_msg((completion->status != CQLRING_OK) == is_large(completion->row), "row %" PRIu64 ": %s", completion->row,
                  completion->error != NULL ? completion->error->message : "OK");
    if (completion->status == CQLRING_OK)
        return;
    char row[32];
    cqlring_bytes cells[3];
    snprintf(row, sizeof row, "row %" PRIu64 " ", completion->row);
    ck_assert_ptr_nonnull(strstr(completion->error->message, row));
    refused(completion->error, 3 * 4 + 8 + 4 + BLOB, LIMIT);
    ck_assert_uint_eq(cqlring_completion_cells(completion, cells, 3), 3); /* for another try elsewhere */
    ck_assert_int_eq(cells[2].size, BLOB);
    ++*large;
}

START_TEST(a_row_that_is_too_large_fails_alone)
{
    static const cqlring_batch_by_partition by_partition = {.struct_size = sizeof by_partition};
    for (int together = 0; together < 2; together++) {
        struct flow flow;
        up(&flow, LIMIT, _i);
        cqlring_prepared *insert = flow_prepare(&flow, GRID_INSERT);
        struct grid grid;
        struct flow_sink sink;
        uint32_t large = 0;
        grid_init(&grid);
        flow_sink_init(&sink, ROWS);
        sink.each = row_seen;
        sink.context = &large;
        for (int i = 0; i < ROWS; i++)
            grid_add(&grid, i / 50, i, is_large((uint64_t)i) ? BLOB : 300, 1);
        cqlring_job_options options = {.struct_size = sizeof options, .batch_by_partition = together == 1 ? &by_partition : NULL};
        cqlring_summary summary;
        flow_ok(grid_run(&flow, &insert, 1, &grid, &sink, &options, &summary, NULL));
        ck_assert_uint_eq(large, ROWS / 10);
        ck_assert_uint_eq(summary.rows, ROWS);
        ck_assert_uint_eq(summary.failed, ROWS / 10);
        ck_assert_uint_eq(summary.may_have_been_applied, 0);
        ck_assert_int_eq(node_table_rows(flow.node, "ks.e"), ROWS - ROWS / 10);
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_uint_eq(counters.opcodes[OPCODE_EXECUTE] + counters.batch_statements, ROWS - ROWS / 10);
        ck_assert_uint_eq(counters.opcodes[OPCODE_BATCH] > 0, together == 1);
        for (uint32_t i = 0; i < ask_seen_count(0); i++) /* nor were rows put together that only alone are small enough */
            ck_assert_msg(ask_seen_at(0, i).body_size <= LIMIT + 100, "a request of %u bytes", ask_seen_at(0, i).body_size);
        grid_fini(&grid);
        flow_sink_fini(&sink);
        cqlring_prepared_release(insert);
        flow_close(&flow);
    }
}
END_TEST

/* ---- what a frame takes ---- */

struct huge {
    cqlring_bytes cells[3][2];
    int given;
};

static int32_t huge_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct huge *huge = context;
    (void)now_us, (void)wake_at_us, (void)error;
    int32_t count = 0;
    for (; huge->given < 3 && (uint32_t)count < capacity; count++)
        rows[count] = (cqlring_row){.cells = huge->cells[huge->given++]};
    return count;
}

static void huge_seen(const cqlring_completion *completion, void *context)
{
    ck_assert_int_eq(completion->status, completion->row == 1 ? CQLRING_TOO_LARGE : CQLRING_OK);
    if (completion->row == 1)
        refused(completion->error, *(uint64_t *)context, PROTO_BODY_MAX);
}

/* Values that request_size_max lets pass, and with what stands around them no frame takes. */
START_TEST(what_no_frame_takes_is_refused)
{
    struct flow flow;
    up(&flow, 0, _i);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    const uint64_t size = PROTO_BODY_MAX - 4; /* of the values with their count */
    uint8_t *zeros = calloc(1, (size_t)size);
    ck_assert_ptr_nonnull(zeros);
    cqlring_bytes small = {zeros, 10}, large = {zeros, (int32_t)size - 2 - 4 - 8 - 4};
    uint64_t before = sent(&flow);
    cqlring_error error;
    cqlring_bytes values[2] = {flow_bigint(9), large};
    cqlring_request request = {.session = flow.session, .prepared = insert, .values = values, .value_count = 2};
    ck_assert_int_eq(cqlring_execute_sync(&request, NULL, &error), CQLRING_TOO_LARGE);
    refused(&error, size, PROTO_BODY_MAX);
    ck_assert_uint_eq(sent(&flow), before);

    struct huge huge = {.cells = {{flow_bigint(1), small}, {flow_bigint(2), large}, {flow_bigint(3), small}}};
    struct flow_sink sink;
    uint64_t row_size = size - 2;
    flow_sink_init(&sink, 3);
    sink.each = huge_seen;
    sink.context = &row_size;
    cqlring_source source = {.next = huge_next, .context = &huge};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_future *job = NULL;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &out, 1, NULL, &job, &error));
    flow_ok(ask_end(job, &error));
    ck_assert_uint_eq(sink.last, 3);
    ck_assert_uint_eq(sent(&flow), before + 2);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 2);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    free(zeros);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("too_large");
    TCase *tcase = tcase_create("too_large");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, an_execute_a_batch_and_a_queues_request_are_refused, 4, 6);
    tcase_add_loop_test(tcase, a_row_that_is_too_large_fails_alone, 4, 6);
    tcase_add_loop_test(tcase, what_no_frame_takes_is_refused, 4, 6);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
