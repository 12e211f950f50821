/* SPDX-License-Identifier: Apache-2.0 */

/* Every allocation of the library fails once, in turn, under each public call: the call or its future says NO_MEMORY (or the
   library gets on without), nothing hangs, nothing leaks, and the next try succeeds. Each step is repeated with the first, second,
   third … allocation from its beginning failing, until it runs through without one being failed. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"
#include "secure.h"
#include "serialize/mem.h"

/* ctest: timeout=240 */

enum { TRIES_MAX = 2000, WAIT_US = 20000000 };

/* One step: does its thing; true when it succeeded. Runs with the n-th allocation failing, then without. */
typedef bool step(struct flow *flow, cqlring_error *error);

static const char *running;
static uint64_t running_n;

static uint64_t sweep(struct flow *flow, const char *name, step *what)
{
    for (uint64_t n = 1; n < TRIES_MAX; n++) {
        cqlring_error error;
        memset(&error, 0, sizeof error);
        running = name;
        running_n = n;
        cqr_mem_fail_at(n, 0);
        bool succeeded = what(flow, &error);
        uint64_t failed = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        if (failed == 0) {
            ck_assert_msg(succeeded, "%s without a failing allocation: %s", name, error.message);
            return n;
        }
        /* a failure may be survived, never be something else than it is */
        if (!succeeded)
            ck_assert_msg(error.status != CQLRING_OK, "%s, allocation %lu failed: no status", name, (unsigned long)n);
    }
    ck_abort_msg("%s: no end of allocations", name);
    return 0;
}

static bool done(cqlring_status status, cqlring_future **out, cqlring_error *error)
{
    cqlring_future *future = *out;
    if (status != CQLRING_OK)
        return false;
    status = cqlring_future_wait(future, WAIT_US, error);
    ck_assert_msg(cqlring_future_ready(future), "%s hangs when allocation %lu fails", running, (unsigned long)running_n);
    if (cqlring_future_completion(future) != NULL)
        flow_completion_agrees(cqlring_future_completion(future));
    ck_assert_int_eq(error->status, status);
    cqlring_future_release(future);
    return status == CQLRING_OK;
}

static bool step_runtime(struct flow *flow, cqlring_error *error)
{
    cqlring_runtime *runtime = NULL;
    if (cqlring_runtime_create(&flow->runtime_options, &runtime, error) != CQLRING_OK)
        return false;
    flow_ok(cqlring_runtime_destroy(runtime));
    return true;
}

static bool step_open(struct flow *flow, cqlring_error *error)
{
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "ks"};
    cqlring_cluster_options given = flow->options;
    given.local_datacenter = "datacenter1";
    given.local_rack = "rack1";
    given.allow_nodes = "10.9.9.8,127.0.0.1";
    given.deny_nodes = "10.9.9.9:9042";
    if (cqlring_cluster_open_sync(flow->runtime, &given, &cluster, error) != CQLRING_OK)
        return false;
    cqlring_status status = cqlring_session_open_sync(cluster, &options, &session, error);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    return status == CQLRING_OK;
}

static bool step_prepare(struct flow *flow, cqlring_error *error)
{
    cqlring_prepared *prepared = NULL;
    if (cqlring_prepare_sync(flow->session, FLOW_SELECT, &prepared, error) != CQLRING_OK)
        return false;
    cqlring_prepared_release(prepared);
    return true;
}

static cqlring_prepared *insert, *select_all;

static bool step_execute(struct flow *flow, cqlring_error *error)
{
    cqlring_bytes values[2] = {flow_bigint(1), {"abcd", 4}};
    cqlring_payload_entry payload = {{"key", 3}, {"value", 5}};
    cqlring_execution how = {.struct_size = sizeof how, .payload = &payload, .payload_count = 1};
    cqlring_request request = {.session = flow->session, .prepared = insert, .values = values, .value_count = 2, .execution = &how};
    cqlring_future *future = NULL;
    return done(cqlring_execute(&request, &future, error), &future, error);
}

static bool step_read(struct flow *flow, cqlring_error *error)
{
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 2};
    cqlring_request request = {.session = flow->session, .prepared = select_all, .execution = &how};
    cqlring_result *page = NULL, *copy = NULL;
    if (cqlring_execute_sync(&request, &page, error) != CQLRING_OK)
        return false;
    cqlring_future *future = NULL;
    bool succeeded = true;
    if (cqlring_result_paging_state(page).data != NULL)
        succeeded = done(cqlring_next_page(page, NULL, &future, error), &future, error);
    copy = cqlring_result_detach(page);
    if (copy == NULL)
        error->status = CQLRING_NO_MEMORY;
    cqlring_result_release(page);
    succeeded = succeeded && copy != NULL && cqlring_result_row_count(copy) == 2;
    cqlring_result_release(copy);
    return succeeded;
}

static bool step_error(struct flow *flow, cqlring_error *error)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text("SELECT nonsense FROM nowhere.at_all")};
    cqlring_status status = cqlring_execute_sync(&request, NULL, error);
    ck_assert_int_ne(status, CQLRING_OK);
    return status == CQLRING_SERVER;
}

static bool step_batch(struct flow *flow, cqlring_error *error)
{
    cqlring_bytes values[2] = {flow_bigint(2), {"abcd", 4}};
    cqlring_batch_child children[2] = {{.prepared = insert, .values = values, .value_count = 2}, {.cql = cqlring_text("INSERT INTO ks.t (k) VALUES (7)")}};
    cqlring_batch batch = {.kind = CQLRING_BATCH_UNLOGGED, .children = children, .count = 2};
    cqlring_request request = {.session = flow->session, .batch = &batch};
    return cqlring_execute_sync(&request, NULL, error) == CQLRING_OK;
}

/* It waits for agreement, or says that it did not. */
static bool step_schema_change(struct flow *flow, cqlring_error *error)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text("ALTER TABLE ks.t WITH comment = 'x'")};
    cqlring_result *result = NULL;
    if (cqlring_execute_sync(&request, &result, error) != CQLRING_OK)
        return false;
    ck_assert_int_ge(cqlring_result_schema_agreed(result), 0);
    cqlring_result_release(result);
    return true;
}

static bool step_agree(struct flow *flow, cqlring_error *error)
{
    cqlring_future *future = NULL;
    return done(cqlring_schema_agree(flow->cluster, 0, &future, error), &future, error);
}

static bool step_schema(struct flow *flow, cqlring_error *error)
{
    cqlring_future *future = NULL;
    if (!done(cqlring_schema_refresh(flow->cluster, &future, error), &future, error))
        return false;
    cqlring_schema *schema = cqlring_schema_get(flow->cluster);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(schema, "ks", "t"));
    ck_assert_uint_gt(cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, "ks", NULL, NULL, 0), 0);
    cqlring_schema_release(schema);
    return true;
}

static bool step_trace(struct flow *flow, cqlring_error *error)
{
    cqlring_execution how = {.struct_size = sizeof how, .tracing = CQLRING_YES};
    cqlring_request request = {.session = flow->session, .cql = cqlring_text("SELECT k FROM ks.t"), .execution = &how};
    cqlring_result *result = NULL;
    uint8_t id[16];
    if (cqlring_execute_sync(&request, &result, error) != CQLRING_OK)
        return false;
    ck_assert(cqlring_result_trace_id(result, id));
    cqlring_result_release(result);
    cqlring_future *future = NULL;
    return done(cqlring_trace_fetch(flow->cluster, id, &future, error), &future, error);
}

static bool step_job(struct flow *flow, cqlring_error *error)
{
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 500, 64);
    flow_sink_init(&sink, 500);
    cqlring_source source = flow_source(&rows);
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_future *future = NULL;
    cqlring_job_options options = {.struct_size = sizeof options, .window = 50};
    cqlring_summary summary = {0};
    cqlring_status status = cqlring_execute_concurrent(flow->session, &insert, 1, &source, &out, 1, &options, &future, error);
    if (status == CQLRING_OK) {
        status = cqlring_future_wait(future, WAIT_US, error);
        ck_assert_msg(cqlring_future_ready(future), "%s hangs when allocation %lu fails", running, (unsigned long)running_n);
        cqlring_job_summary(future, &summary);
        cqlring_future_release(future);
        ck_assert_uint_eq(sink.last, summary.rows);
        ck_assert_uint_eq(sink.twice, 0);
    }
    if (status == CQLRING_OK && sink.failed > 0) {
        error->status = CQLRING_NO_MEMORY;
        status = CQLRING_NO_MEMORY;
    }
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    return status == CQLRING_OK;
}

/* With the schema known, a batch that is too large, a row that is invalid, and a sink that keeps what failed. */
static cqlring_prepared *grid_insert;

struct pairs {
    uint32_t next;
    uint64_t p;
    uint32_t places[64];
    cqlring_bytes cells[64][3];
};

static int32_t pairs_next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    static const uint8_t value[100];
    struct pairs *pairs = context;
    (void)now_us, (void)wake_at_us, (void)error;
    uint32_t count = 0;
    for (; count < capacity && count < 64 && pairs->next < 300; count++, pairs->next++) {
        pairs->places[count] = pairs->next;
        pairs->cells[count][0] = (cqlring_bytes){&pairs->p, 8};
        pairs->cells[count][1] = (cqlring_bytes){&pairs->places[count], pairs->next == 77 ? CQLRING_NULL : 4};
        pairs->cells[count][2] = (cqlring_bytes){value, 100};
        rows[count] = (cqlring_row){.cells = pairs->cells[count]};
    }
    return (int32_t)count;
}

static bool step_batch_rows(struct flow *flow, cqlring_error *error)
{
    struct pairs pairs = {.next = 0};
    struct flow_sink sink;
    flow_sink_init(&sink, 300);
    cqlring_source source = {.next = pairs_next, .context = &pairs};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_future *future = NULL;
    const cqlring_batch_by_partition batches = {.struct_size = sizeof batches};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 128, .batch_by_partition = &batches};
    cqlring_summary summary = {0};
    cqlring_status status = cqlring_execute_concurrent(flow->session, &grid_insert, 1, &source, &out, 1, &options, &future, error);
    if (status == CQLRING_OK) {
        status = cqlring_future_wait(future, WAIT_US, error);
        ck_assert_msg(cqlring_future_ready(future), "%s hangs when allocation %lu fails", running, (unsigned long)running_n);
        cqlring_job_summary(future, &summary);
        cqlring_future_release(future);
        ck_assert_uint_eq(sink.last, summary.rows);
        ck_assert_uint_eq(sink.twice, 0);
        ck_assert_uint_ge(sink.failed, 1); /* the invalid one always does */
    }
    if (status == CQLRING_OK && sink.failed > 1) {
        error->status = CQLRING_NO_MEMORY;
        status = CQLRING_NO_MEMORY;
    }
    flow_sink_fini(&sink);
    return status == CQLRING_OK;
}

static bool step_queue(struct flow *flow, cqlring_error *error)
{
    cqlring_queue *queue = NULL;
    cqlring_queue_options options = {.struct_size = sizeof options, .session = flow->session, .capacity = 8};
    if (cqlring_queue_open(&options, &queue, error) != CQLRING_OK)
        return false;
    cqlring_bytes values[2] = {flow_bigint(3), {"abcd", 4}};
    cqlring_request requests[4];
    for (int i = 0; i < 4; i++)
        requests[i] = (cqlring_request){.session = flow->session, .prepared = insert, .values = values, .value_count = 2};
    uint32_t accepted = 0, reaped = 0;
    cqlring_status status = cqlring_queue_submit(queue, requests, 4, &accepted, error), reap = CQLRING_OK;
    cqlring_completion completions[8];
    while (reaped < accepted) {
        uint32_t count = cqlring_queue_reap(queue, completions, 8, 1, WAIT_US, &reap);
        ck_assert_uint_gt(count, 0);
        for (uint32_t i = 0; i < count; i++)
            flow_completion_agrees(&completions[i]);
        for (uint32_t i = 0; i < count && status == CQLRING_OK; i++)
            if (completions[i].status != CQLRING_OK)
                *error = *completions[i].error, status = (cqlring_status)completions[i].status;
        cqlring_completions_release(completions, count);
        reaped += count;
    }
    /* encoded in place, and asked to end */
    uint8_t *at = NULL;
    if (status == CQLRING_OK && (status = cqlring_queue_reserve(queue, 64, &at, error)) == CQLRING_OK) {
        static const uint8_t encoded[] = {0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 'x'};
        memcpy(at, encoded, sizeof encoded);
        if ((status = cqlring_queue_commit(queue, at, &requests[0], sizeof encoded, error)) == CQLRING_OK) {
            cqlring_completion completion;
            ck_assert_uint_eq(cqlring_queue_reap(queue, &completion, 1, 1, WAIT_US, &reap), 1);
            if (completion.status != CQLRING_OK)
                *error = *completion.error, status = (cqlring_status)completion.status;
            cqlring_completions_release(&completion, 1);
        }
        ck_assert_uint_eq(cqlring_queue_room(queue), 8);
    }
    if (status == CQLRING_OK && (status = cqlring_queue_cancel(queue, 12345)) != CQLRING_OK)
        error->status = status, snprintf(error->message, sizeof error->message, "a cancel has no memory");
    cqlring_queue_close(queue);
    cqlring_queue_release(queue);
    return status == CQLRING_OK && accepted == 4;
}

static bool step_close(struct flow *flow, cqlring_error *error)
{
    cqlring_session *session = NULL;
    if (cqlring_session_open_sync(flow->cluster, NULL, &session, error) != CQLRING_OK)
        return false;
    cqlring_future *future = NULL;
    cqlring_status status = cqlring_session_close(session, 1000, &future, error);
    bool succeeded = done(status, &future, error);
    cqlring_session_release(session);
    return succeeded;
}

START_TEST(each_public_call_survives_every_allocation_failing_in_turn)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.reconnect_min_us = 1000;
    flow.options.reconnect_max_us = 5000;
    flow.node_options.batch_size_fail = 4000;
    flow.node_options.batch_size_single = true;
    flow_start(&flow);
    sweep(&flow, "runtime_create", step_runtime);
    flow_open(&flow);
    insert = flow_prepare(&flow, FLOW_INSERT);
    select_all = flow_prepare(&flow, "SELECT k, v FROM ks.t");
    for (int i = 0; i < 6; i++) {
        char cql[100];
        snprintf(cql, sizeof cql, "INSERT INTO ks.t (k, v) VALUES (%d, 0x00)", 100 + i);
        flow_cql(&flow, cql);
    }
    sweep(&flow, "cluster_open and session_open", step_open);
    sweep(&flow, "prepare", step_prepare);
    sweep(&flow, "execute", step_execute);
    sweep(&flow, "execute, next_page, detach", step_read);
    sweep(&flow, "an execute that the server refuses", step_error);
    sweep(&flow, "batch", step_batch);
    sweep(&flow, "execute_concurrent", step_job);
    sweep(&flow, "queue", step_queue);
    sweep(&flow, "a change of the schema", step_schema_change);
    sweep(&flow, "schema_agree", step_agree);
    sweep(&flow, "trace_fetch", step_trace);
    char message[200];
    ck_assert_int_eq(node_cql(flow.node, "CREATE TYPE ks.pair (a int, b text)", NULL, message, sizeof message), 0);
    ck_assert_int_eq(node_cql(flow.node, "CREATE INDEX by_v ON ks.t (v)", NULL, message, sizeof message), 0);
    sweep(&flow, "schema_refresh", step_schema);
    flow_cql(&flow, "CREATE TABLE ks.e (p bigint, c int, v blob, PRIMARY KEY (p, c))");
    sweep(&flow, "schema_refresh again", step_schema);
    grid_insert = flow_prepare(&flow, "INSERT INTO ks.e (p, c, v) VALUES (?, ?, ?)");
    sweep(&flow, "execute_concurrent with batches", step_batch_rows);
    cqlring_prepared_release(grid_insert);
    sweep(&flow, "session_close", step_close);
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select_all);
    flow_close(&flow);
}
END_TEST

/* ---- a secured cluster that is watched ---- */

static void on_node(const cqlring_node *node, cqlring_node_event event, void *context)
{
    (void)node, (void)event, (void)context;
}

static bool translate(const cqlring_node_info *node, char *address, size_t size, void *context)
{
    (void)context;
    snprintf(address, size, "%s", node->address);
    return true;
}

static int32_t respond(const cqlring_auth_exchange *exchange, uint8_t *token, uint32_t capacity, cqlring_error *error, void *context)
{
    (void)exchange, (void)error, (void)context;
    return snprintf((char *)token, capacity, "%cann%cword", 0, 0);
}

static bool step_reload(struct flow *flow, cqlring_error *error)
{
    return cqlring_cluster_reload_tls(flow->cluster, NULL, error) == CQLRING_OK && cqlring_cluster_reload_tls(flow->cluster, flow->options.tls, error) == CQLRING_OK;
}

static bool step_look(struct flow *flow, cqlring_error *error)
{
    (void)error;
    cqlring_node_stats stats[4];
    cqlring_connection_info connections[8];
    static char text[1 << 16];
    return cqlring_cluster_stats(flow->cluster, stats, 4) > 0 && cqlring_cluster_connections(flow->cluster, connections, 8) > 0 &&
           cqlring_metrics_text(flow->runtime, text, sizeof text) > 0 && cqlring_cluster_options_text(flow->cluster, text, sizeof text) > 0;
}

START_TEST(a_secured_and_watched_cluster_survives_every_allocation_failing_in_turn)
{
    struct flow flow;
    cqlring_tls_options tls;
    cqlring_authenticator authenticator = {.struct_size = sizeof authenticator, .respond = respond};
    flow_init(&flow);
    secure_flow(&flow, "node-good", &tls);
    tls.key_password = "not needed";
    tls.server_name = "localhost";
    flow.node_options.nodes = 2;
    flow.node_options.user = "ann";
    flow.node_options.password = "word";
    flow.options.authenticator = &authenticator;
    flow.options.on_node = on_node;
    flow.options.translate_address = translate;
    flow.options.reconnect_min_us = 1000;
    flow.options.reconnect_max_us = 5000;
    flow.node_options.client_routes = true;
    flow.options.client_routes = "link";
    flow_start(&flow);
    node_client_route(flow.node, "link", 0, FLOW_NAME, 1, node_port(flow.node, 0), false);
    node_client_route(flow.node, "link", 1, node_address(flow.node, 1), 1, node_port(flow.node, 1), false);
    flow_open(&flow);
    sweep(&flow, "cluster_open and session_open, secured", step_open);
    sweep(&flow, "reload_tls", step_reload);
    sweep(&flow, "stats, connections, texts", step_look);
    flow_close(&flow);
}
END_TEST

/* ---- no memory at all while rows fail ---- */

/* From the first outcome on. */
static void memory_ends(const cqlring_completion *completion, void *context)
{
    uint64_t *delivered = context;
    (void)completion;
    if ((*delivered)++ == 0)
        cqr_mem_fail_at(1, 1);
}

/* Even where there is no memory to say more, a row's outcome is the one that it had, and its error agrees with it. */
START_TEST(rows_that_fail_while_there_is_no_memory_say_what_became_of_them)
{
    static const struct {
        const char *fault;
        cqlring_status status;
        bool maybe;
    } cases[] = {{"error:code=0x1100,after=300,times=400", CQLRING_SERVER, true},
                 {"error:code=0x2200,after=300,times=400", CQLRING_SERVER, false},
                 {"drop:after=300,times=200", CQLRING_TIMEOUT, true},
                 {"close:after=300,times=1", CQLRING_LOST, true}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        bool together = i % 2 == 1;
        struct flow flow;
        flow_init(&flow);
        flow.options.schema_metadata = CQLRING_YES;
        flow_up(&flow);
        cqlring_prepared *statement = flow_prepare(&flow, FLOW_INSERT);
        struct flow_rows rows;
        struct flow_sink sink;
        uint64_t delivered = 0;
        flow_rows_init(&rows, 1000, 20);
        rows.one_key = together;
        flow_sink_init(&sink, 1000);
        sink.each = memory_ends;
        sink.context = &delivered;
        char fault[100];
        snprintf(fault, sizeof fault, "%s,opcode=%s", cases[i / 2].fault, together ? "BATCH" : "EXECUTE");
        static const cqlring_execution soon = {.struct_size = sizeof soon, .timeout_us = 300000};
        static const cqlring_batch_by_partition distinct = {.struct_size = sizeof distinct, .distinct = 1, .rows_max = 2};
        cqlring_job_options options = {.struct_size = sizeof options, .window = 200, .execution = &soon, .batch_by_partition = together ? &distinct : NULL};
        cqlring_summary summary;
        flow_fault(&flow, fault);
        flow_ok(flow_run(&flow, statement, &rows, &sink, &options, &summary, NULL));
        ck_assert_uint_gt(cqr_mem_failed_count(), 0);
        cqr_mem_fail_at(0, 0);
        ck_assert_uint_eq(sink.last, 1000);
        ck_assert_msg(sink.by_status[cases[i / 2].status] > 0, "%s: %llu failed, none of them as %s", fault, (unsigned long long)sink.failed,
                      cqlring_status_name(cases[i / 2].status));
        ck_assert_uint_eq(sink.maybe > 0, cases[i / 2].maybe);
        ck_assert_uint_eq(summary.failed, sink.failed);
        ck_assert_uint_eq(summary.may_have_been_applied, sink.maybe);
        flow_rows_fini(&rows);
        flow_sink_fini(&sink);
        cqlring_prepared_release(statement);
        flow_close(&flow);
    }
}
END_TEST

int main(void)
{
    if (!secure_make())
        return 1;
    Suite *suite = suite_create("nomem");
    TCase *tcase = tcase_create("nomem");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, each_public_call_survives_every_allocation_failing_in_turn);
    tcase_add_test(tcase, rows_that_fail_while_there_is_no_memory_say_what_became_of_them);
    tcase_add_test(tcase, a_secured_and_watched_cluster_survives_every_allocation_failing_in_turn);
    suite_add_tcase(suite, tcase);
    int failed = flow_main(suite);
    secure_remove();
    return failed;
}
