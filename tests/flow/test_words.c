/* SPDX-License-Identifier: Apache-2.0 */

/* What errors say to people: what, where, which value and what would do. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

static void ck_assert_words(const cqlring_error *error, cqlring_status status, const char *const *words, size_t count)
{
    ck_assert_msg(error->status == status, "%s, not %s: %s", cqlring_status_name(error->status), cqlring_status_name(status), error->message);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(strstr(error->message, words[i]) != NULL, "\"%s\" does not say \"%s\"", error->message, words[i]);
}
#define WORDS(error, status, ...) \
    ck_assert_words(error, status, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* ---- which function ---- */

START_TEST(a_function_that_needs_more_names_itself)
{
    cqlring_error error;
    cqlring_execute(NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_execute: request");
    cqlring_execute_sync(NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_execute_sync: request");
    cqlring_prepare(NULL, cqlring_text("x"), NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_prepare: session");
    cqlring_prepare_sync(NULL, "x", NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_prepare_sync: session");
    cqlring_session_open(NULL, NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_session_open: cluster");
    cqlring_session_open_sync(NULL, NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_session_open_sync: cluster");
    cqlring_cluster_open(NULL, NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_cluster_open: future");
    cqlring_cluster_open_sync(NULL, NULL, NULL, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_cluster_open_sync: cluster");
    cqlring_future_wait(NULL, 0, &error);
    WORDS(&error, CQLRING_INVALID, "cqlring_future_wait: future");
}
END_TEST

/* NULL in place of every handle, array and out parameter: an error where one can be told, and nothing, none or no where not. */
START_TEST(null_is_answered_by_every_function)
{
    cqlring_error error = {0};
    cqlring_column column;
    cqlring_bytes cells[2];
    cqlring_status status = CQLRING_OK;
    cqlring_completion completion = {0};
    uint32_t count = 7;
    uint8_t id[16] = {0};
    ck_assert_int_eq(cqlring_runtime_create(NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_runtime_destroy(NULL), CQLRING_OK);
    ck_assert_int_eq(cqlring_runtime_turn(NULL, 0), -1);
    ck_assert_int_eq(cqlring_runtime_fd(NULL), -1);
    cqlring_runtime_stats(NULL, NULL);
    ck_assert_int_eq(cqlring_cluster_close(NULL, 0, NULL, &error), CQLRING_INVALID);
    cqlring_cluster_release(NULL);
    ck_assert_uint_eq(cqlring_cluster_nodes(NULL, NULL, 5), 0);
    cqlring_node_info info = {.connections = 7};
    cqlring_node_describe(NULL, &info);
    ck_assert_str_eq(info.address, "");
    ck_assert_uint_eq(info.connections, 0);
    cqlring_node_describe(NULL, NULL);
    ck_assert_int_eq(cqlring_session_close(NULL, 0, NULL, &error), CQLRING_INVALID);
    cqlring_session_release(NULL);
    cqlring_prepared_release(NULL);
    ck_assert_uint_eq(cqlring_prepared_bind_count(NULL), 0);
    ck_assert(!cqlring_prepared_bind_column(NULL, 0, &column));
    ck_assert(!cqlring_prepared_result_column(NULL, 0, &column));
    ck_assert_int_eq(cqlring_prepared_find(NULL, "k", 0), -1);
    ck_assert_int_eq(cqlring_route_of(NULL, NULL, 0, NULL, &error), CQLRING_INVALID);
    ck_assert(!cqlring_completion_detail(NULL, NULL));
    ck_assert(!cqlring_completion_detail(&completion, NULL));
    ck_assert_uint_eq(cqlring_completion_cells(NULL, cells, 2), 0);
    ck_assert_uint_eq(cqlring_completion_cells(&completion, NULL, 0), 0);
    cqlring_completions_release(NULL, 3);
    ck_assert_int_eq(cqlring_execute_concurrent(NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, &error), CQLRING_INVALID);
    cqlring_job_poke(NULL);
    cqlring_job_pause(NULL);
    cqlring_job_resume(NULL);
    cqlring_job_rate(NULL, 1, 1);
    cqlring_summary summary = {.rows = 7};
    cqlring_job_summary(NULL, &summary);
    ck_assert_uint_eq(summary.rows, 0);
    cqlring_job_summary(NULL, NULL);
    ck_assert_int_eq(cqlring_queue_open(NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_uint_eq(cqlring_queue_room(NULL), 0);
    ck_assert_int_eq(cqlring_queue_submit(NULL, NULL, 1, &count, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_queue_reserve(NULL, 10, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_queue_commit(NULL, NULL, NULL, 0, &error), CQLRING_INVALID);
    ck_assert_uint_eq(cqlring_queue_reap(NULL, NULL, 1, 1, -1, &status), 0);
    ck_assert_int_eq(status, CQLRING_INVALID);
    ck_assert_uint_eq(cqlring_queue_reap(NULL, NULL, 1, 1, -1, NULL), 0);
    ck_assert_int_eq(cqlring_queue_fd(NULL), -1);
    ck_assert_uint_eq(cqlring_queue_low_water(NULL), 0);
    ck_assert_int_eq(cqlring_queue_cancel(NULL, 1), CQLRING_INVALID);
    cqlring_queue_abandon(NULL);
    cqlring_queue_close(NULL);
    cqlring_queue_release(NULL);
    ck_assert(!cqlring_future_ready(NULL));
    ck_assert_int_eq(cqlring_future_wait(NULL, -1, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_future_on_ready(NULL, NULL, NULL), CQLRING_INVALID);
    cqlring_future_cancel(NULL);
    cqlring_future_retain(NULL);
    cqlring_future_release(NULL);
    ck_assert_ptr_null(cqlring_future_completion(NULL));
    ck_assert_ptr_null(cqlring_future_cluster(NULL));
    ck_assert_ptr_null(cqlring_future_session(NULL));
    ck_assert_ptr_null(cqlring_future_prepared(NULL));
    ck_assert_ptr_null(cqlring_result_retain(NULL));
    cqlring_result_release(NULL);
    ck_assert_uint_eq(cqlring_result_row_count(NULL), 0);
    ck_assert_uint_eq(cqlring_result_column_count(NULL), 0);
    ck_assert(!cqlring_result_column(NULL, 0, &column));
    ck_assert_int_eq(cqlring_result_rows(NULL, 0, cells, 1, &count, &error), CQLRING_INVALID);
    ck_assert_ptr_null(cqlring_result_paging_state(NULL).data);
    ck_assert_int_eq(cqlring_result_applied(NULL), -1);
    ck_assert(!cqlring_result_trace_id(NULL, id));
    ck_assert_uint_eq(cqlring_result_warnings(NULL, NULL, 0), 0);
    ck_assert_uint_eq(cqlring_result_payload(NULL, NULL, 0), 0);
    ck_assert(!cqlring_result_schema_change(NULL, NULL, NULL, NULL, NULL));
    ck_assert_int_eq(cqlring_result_schema_agreed(NULL), -1);
    ck_assert_uint_eq(cqlring_result_pinned_size(NULL), 0);
    ck_assert_ptr_null(cqlring_result_detach(NULL));
    ck_assert_int_eq(cqlring_next_page(NULL, NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_trace_fetch(NULL, id, NULL, &error), CQLRING_INVALID);
    ck_assert_ptr_null(cqlring_future_trace(NULL));
    ck_assert_ptr_null(cqlring_schema_get(NULL));
    cqlring_schema_release(NULL);
    ck_assert_int_eq(cqlring_schema_refresh(NULL, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_schema_agree(NULL, 0, NULL, &error), CQLRING_INVALID);
    ck_assert_uint_eq(cqlring_schema_keyspaces(NULL, NULL), 0);
    ck_assert_uint_eq(cqlring_schema_text(NULL, 0, NULL, NULL, NULL, 0), 0);
    ck_assert_uint_gt(cqlring_cluster_options_text(NULL, NULL, 0), 0);
    ck_assert_uint_gt(cqlring_metrics_text(NULL, NULL, 0), 0);
}
END_TEST

START_TEST(what_is_out_of_range_is_refused_by_name)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_error error = {0};
    cqlring_future *future = NULL;
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = (cqlring_tristate)3};
    cqlring_request request = {.session = flow.session, .cql = cqlring_text("SELECT key FROM system.local"), .execution = &how};
    cqlring_execute(&request, &future, &error);
    WORDS(&error, CQLRING_INVALID, "idempotent 3", "DEFAULT, NO or YES");
    how = (cqlring_execution){.struct_size = sizeof how, .tracing = (cqlring_tristate)4};
    cqlring_execute(&request, &future, &error);
    WORDS(&error, CQLRING_INVALID, "tracing 4");
    how = (cqlring_execution){.struct_size = sizeof how, .retry = (cqlring_retry)2};
    cqlring_execute(&request, &future, &error);
    WORDS(&error, CQLRING_INVALID, "retry 2", "DEFAULT or NONE");
    ck_assert_ptr_null(future);
    request.execution = NULL;
    flow_ok(cqlring_execute(&request, &future, &error));
    ck_assert_int_eq(cqlring_future_wait(future, -2, &error), CQLRING_INVALID);
    WORDS(&error, CQLRING_INVALID, "timeout_us is -2");
    flow_ok(ask_end(future, &error));
    cqlring_queue *queue;
    cqlring_completion completion;
    cqlring_status status;
    flow_ok(cqlring_queue_open(&(cqlring_queue_options){.struct_size = sizeof(cqlring_queue_options), .session = flow.session}, &queue, &error));
    ck_assert_uint_eq(cqlring_queue_reap(queue, &completion, 1, 1, -2, &status), 0);
    ck_assert_int_eq(status, CQLRING_INVALID);
    cqlring_queue_release(queue);

    cqlring_cluster_options options = {.struct_size = sizeof options, .shard_aware_port = (cqlring_tristate)5};
    cqlring_cluster *cluster = NULL;
    cqlring_cluster_open_sync(flow.runtime, &options, &cluster, &error);
    WORDS(&error, CQLRING_INVALID, "shard_aware_port 5");
    /* a host name that is too long does not hide the reason */
    static char name[600];
    memset(name, 'a', sizeof name - 1);
    options = (cqlring_cluster_options){.struct_size = sizeof options, .contact_points = name};
    cqlring_cluster_open_sync(flow.runtime, &options, &cluster, &error);
    WORDS(&error, CQLRING_INVALID, "contact point 1", "long");
    ck_assert_ptr_null(cluster);
    flow_close(&flow);
}
END_TEST

START_TEST(a_function_of_something_closed_names_itself)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_queue *queue;
    cqlring_error error;
    cqlring_future *future = NULL;
    flow_ok(cqlring_queue_open(&(cqlring_queue_options){.struct_size = sizeof(cqlring_queue_options), .session = flow.session}, &queue, &error));
    flow_ok(cqlring_session_close(flow.session, 0, &future, &error));
    flow_ok(ask_end(future, &error));
    cqlring_request request = {.session = flow.session, .cql = cqlring_text("SELECT key FROM system.local")};
    cqlring_prepared *prepared = NULL;
    cqlring_execute(&request, &future, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_execute: the session is closed");
    cqlring_execute_sync(&request, NULL, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_execute_sync: the session is closed");
    cqlring_prepare(flow.session, request.cql, NULL, &future, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_prepare: the session is closed");
    cqlring_prepare_sync(flow.session, "SELECT key FROM system.local", &prepared, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_prepare_sync: the session is closed");
    uint32_t accepted;
    cqlring_queue_submit(queue, &request, 1, &accepted, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_queue_submit: the queue or its session is closed");
    cqlring_queue_release(queue);

    flow_ok(cqlring_cluster_close(flow.cluster, 0, &future, &error));
    flow_ok(ask_end(future, &error));
    cqlring_session *session = NULL;
    cqlring_session_open(flow.cluster, NULL, &future, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_session_open: the cluster is closed");
    cqlring_session_open_sync(flow.cluster, NULL, &session, &error);
    WORDS(&error, CQLRING_CLOSED, "cqlring_session_open_sync: the cluster is closed");
    flow_close(&flow);
}
END_TEST

/* ---- how long ---- */

START_TEST(a_time_out_is_told_in_the_unit_that_fits_it)
{
    struct flow flow;
    flow_up(&flow);
    flow_fault(&flow, "ignore:opcode=QUERY");
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {{250, " 250 µs"}, {1500, " 1.5 ms"}, {40000, " 40 ms"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cqlring_execution how = {.struct_size = sizeof how, .timeout_us = cases[i].us};
        cqlring_error error;
        ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL, 0, &how, NULL, &error);
        WORDS(&error, CQLRING_TIMEOUT, cases[i].text);
    }
    cqlring_future *future = ask_start(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)", NULL);
    cqlring_error error;
    cqlring_future_wait(future, 0, &error);
    WORDS(&error, CQLRING_TIMEOUT, "not ready yet");
    cqlring_future_wait(future, 700, &error);
    WORDS(&error, CQLRING_TIMEOUT, "not ready after 700 µs");
    cqlring_future_cancel(future);
    ask_end(future, &error);
    flow_close(&flow);
}
END_TEST

/* ---- values ---- */

static void keep_error(const cqlring_completion *completion, void *context)
{
    if (completion->error != NULL)
        *(cqlring_error *)context = *completion->error;
}

static int32_t one_short_row(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    static cqlring_bytes cells[4][2];
    uint32_t *given = context;
    (void)now_us, (void)wake_at_us, (void)error;
    uint32_t count = 0;
    for (; *given < 4 && count < capacity; ++*given, ++count) {
        cells[*given][0] = *given == 3 ? flow_int(1) : flow_bigint(*given);
        cells[*given][1] = cqlring_text("x");
        rows[count] = (cqlring_row){.cells = cells[*given]};
    }
    return (int32_t)count;
}

START_TEST(a_value_of_the_wrong_size_is_told_with_column_type_and_both_sizes)
{
    static const char words[] = "column \"k\" (bigint): the value has 4 bytes, one of this type has 8";
    struct flow flow;
    flow_up(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_bytes cells[2] = {flow_int(1), cqlring_text("x")};
    cqlring_error error;
    ask_prepared(&flow, insert, cells, 2, NULL, NULL, &error);
    WORDS(&error, CQLRING_TYPE, words);

    cqlring_batch_child children[2] = {{.cql = cqlring_text("INSERT INTO ks.t (k, v) VALUES (1, 0x01)")}, {.prepared = insert, .values = cells, .value_count = 2}};
    cqlring_batch batch = {.children = children, .count = 2};
    cqlring_execute_sync(&(cqlring_request){.session = flow.session, .batch = &batch}, NULL, &error);
    WORDS(&error, CQLRING_TYPE, "batch statement 1: ", words);

    uint32_t given = 0;
    struct flow_sink sink;
    flow_sink_init(&sink, 4);
    sink.each = keep_error;
    sink.context = &error;
    cqlring_source source = {.next = one_short_row, .context = &given};
    cqlring_sink to = flow_sink_of(&sink);
    cqlring_future *job;
    flow_ok(cqlring_execute_concurrent(flow.session, &insert, 1, &source, &to, 1, NULL, &job, NULL));
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(sink.failed, 1);
    WORDS(&error, CQLRING_TYPE, "row 3: ", words);
    flow_sink_fini(&sink);
    cqlring_prepared_release(insert);

    flow_cql(&flow, "CREATE TABLE ks.w (k int PRIMARY KEY, id uuid, vec vector<float, 3>)");
    insert = flow_prepare(&flow, "INSERT INTO ks.w (k, id, vec) VALUES (?, ?, ?)");
    cqlring_bytes three[3] = {flow_int(1), cqlring_text("not sixteen"), {NULL, CQLRING_NULL}};
    ask_prepared(&flow, insert, three, 3, NULL, NULL, &error);
    WORDS(&error, CQLRING_TYPE, "column \"id\" (uuid)", "11 bytes", "has 16");
    three[1] = (cqlring_bytes){NULL, CQLRING_NULL};
    three[2] = cqlring_text("12345678");
    ask_prepared(&flow, insert, three, 3, NULL, NULL, &error);
    WORDS(&error, CQLRING_TYPE, "column \"vec\" (vector<float, 3>)", "8 bytes", "has 12");
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* ---- options ---- */

START_TEST(options_out_of_range_are_told_with_name_value_and_what_is_allowed)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_error error;
    cqlring_cluster *cluster = NULL;
#define CLUSTER(option, value_, ...)                                                                                                     \
    do {                                                                                                                                 \
        cqlring_cluster_options options = {.struct_size = sizeof options, .option = value_};                                             \
        cqlring_cluster_open_sync(flow.runtime, &options, &cluster, &error);                                                             \
        WORDS(&error, CQLRING_INVALID, "cluster options: ", #option, " " #value_ " ", __VA_ARGS__);                                      \
    } while (0)
    CLUSTER(port, 70000, "65535");
    CLUSTER(protocol_version, 3, "4, 5");
    CLUSTER(connect_timeout_us, -1, "0 for the default");
    CLUSTER(reconnect_min_us, -5, "0 for the default");
    CLUSTER(reconnect_max_us, -1, "0 for the default");
    CLUSTER(heartbeat_us, -2, "-1 for never");
    CLUSTER(suspect_after_us, -7, "-1 for never");
    CLUSTER(resolve_timeout_us, -2, "-1 for never");
    CLUSTER(tcp_keepalive_us, 999999, "1000000");
    CLUSTER(tcp_keepalive_us, 32768000000, "32767000000");
    CLUSTER(socket_send_size, 4095, "4096");
    CLUSTER(socket_receive_size, 1073741825, "1073741824");
    CLUSTER(prepare_on_all, 6, "DEFAULT, NO or YES");
    CLUSTER(tcp_nodelay, 7, "DEFAULT, NO or YES");
    CLUSTER(tcp_keepalive, 8, "DEFAULT, NO or YES");
    CLUSTER(report_configuration, 9, "DEFAULT, NO or YES");
    CLUSTER(frame_size_max, 4095, "4096");
    CLUSTER(request_size_max, 268435457, "268435456");
    CLUSTER(inflight_per_connection, 16385, "16384");
    CLUSTER(orphans_max, 16385, "16384");
    cqlring_cluster_options late = {.struct_size = sizeof late, .reconnect_min_us = 2000000, .reconnect_max_us = 1500};
    cqlring_cluster_open_sync(flow.runtime, &late, &cluster, &error);
    WORDS(&error, CQLRING_INVALID, "reconnect_max_us (1.5 ms) is below reconnect_min_us (2 s)");
    cqlring_tls_options tls = {.struct_size = sizeof tls, .version_max = 11};
    cqlring_cluster_options secure = {.struct_size = sizeof secure, .tls = &tls};
    cqlring_cluster_open_sync(flow.runtime, &secure, &cluster, &error);
    WORDS(&error, CQLRING_INVALID, "TLS options: version_max 11 (");

#define EXECUTION(option, value_, ...)                                                                                                   \
    do {                                                                                                                                 \
        cqlring_execution how = {.struct_size = sizeof how, .option = value_};                                                           \
        ask_text(&flow, "SELECT key FROM system.local", NULL, 0, &how, NULL, &error);                                                    \
        WORDS(&error, CQLRING_INVALID, "execution options: " #option " " #value_ " ", __VA_ARGS__);                                      \
    } while (0)
    EXECUTION(timeout_us, -2, "-1 for none");
    EXECUTION(attempt_timeout_us, -3, "-1 for none");
    EXECUTION(page_size, -2, "-1 for unpaged");
    EXECUTION(consistency, 77, "levels");
    EXECUTION(serial_consistency, 1, "SERIAL");

    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    cqlring_source source = {.next = one_short_row};
    cqlring_future *job;
    cqlring_job_options how = {.struct_size = sizeof how, .bytes_per_s = -2.5};
    cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &how, &job, &error);
    WORDS(&error, CQLRING_INVALID, "job options: bytes_per_s -2.5 (");
    how = (cqlring_job_options){.struct_size = sizeof how, .window = 40000};
    cqlring_execute_concurrent(flow.session, &insert, 1, &source, NULL, 1, &how, &job, &error);
    WORDS(&error, CQLRING_INVALID, "job options: window of 40000 rows (1 to 32768");
    cqlring_prepared_release(insert);
    cqlring_runtime *runtime;
    cqlring_runtime_create(&(cqlring_runtime_options){.struct_size = sizeof(cqlring_runtime_options), .threads = (cqlring_threads)9}, &runtime, &error);
    WORDS(&error, CQLRING_INVALID, "runtime options: threads 9 (");
    flow_close(&flow);
}
END_TEST

/* ---- where ---- */

START_TEST(an_unknown_keyspace_is_told_with_code_node_and_name)
{
    struct flow flow;
    flow_up(&flow);
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "nowhere"};
    cqlring_session *session = NULL;
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_session_open_sync(flow.cluster, &options, &session, &error);
    WORDS(&error, CQLRING_SERVER, "cqlring_session_open_sync, keyspace \"nowhere\": ", "does not exist", ask_address(&flow, 0));
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_str_eq(error.node, ask_address(&flow, 0));
    flow_ok(cqlring_session_open(flow.cluster, &options, &future, NULL));
    ask_end(future, &error);
    WORDS(&error, CQLRING_SERVER, "cqlring_session_open, keyspace \"nowhere\": ");
    ck_assert_int_eq(error.server_code, 0x2200);
    flow_close(&flow);
}
END_TEST

START_TEST(a_node_that_is_away_does_not_hide_what_another_says_of_the_keyspace)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    node_down(flow.node, 1, false);
    cqlring_session_options options = {.struct_size = sizeof options, .keyspace = "nowhere"};
    cqlring_session *session = NULL;
    cqlring_error error;
    cqlring_session_open_sync(flow.cluster, &options, &session, &error);
    WORDS(&error, CQLRING_SERVER, "nowhere", ask_address(&flow, 0));
    ck_assert_int_eq(error.server_code, 0x2200);
    ck_assert_str_eq(error.node, ask_address(&flow, 0));
    flow_close(&flow);
}
END_TEST

START_TEST(a_local_datacenter_that_is_none_is_told_with_those_that_are)
{
    static const char *const dcs[] = {"east", "west", "east"};
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 3;
    flow.node_options.dcs = dcs;
    flow.options.local_datacenter = "East";
    flow_start(&flow);
    cqlring_error error = {0};
    flow_try_open(&flow, &error);
    WORDS(&error, CQLRING_UNREACHABLE, "\"East\"", "local_datacenter", "\"east\" (2 nodes)", "\"west\" (1 node)");
    flow_close(&flow);
}
END_TEST

START_TEST(a_name_that_nobody_knows_is_told_with_its_place_in_the_list)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.contact_points = "no-such-host.invalid, neither-this.invalid:1234";
    flow.options.port = 9042;
    cqlring_error error = {0};
    flow_try_open(&flow, &error);
    WORDS(&error, CQLRING_UNREACHABLE, "contact point 1, \"no-such-host.invalid\": ", "contact point 2, \"neither-this.invalid\": ");
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("words");
    TCase *tcase = tcase_create("words");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_function_that_needs_more_names_itself);
    tcase_add_test(tcase, null_is_answered_by_every_function);
    tcase_add_test(tcase, what_is_out_of_range_is_refused_by_name);
    tcase_add_test(tcase, a_function_of_something_closed_names_itself);
    tcase_add_test(tcase, a_time_out_is_told_in_the_unit_that_fits_it);
    tcase_add_test(tcase, a_value_of_the_wrong_size_is_told_with_column_type_and_both_sizes);
    tcase_add_test(tcase, options_out_of_range_are_told_with_name_value_and_what_is_allowed);
    tcase_add_test(tcase, an_unknown_keyspace_is_told_with_code_node_and_name);
    tcase_add_test(tcase, a_node_that_is_away_does_not_hide_what_another_says_of_the_keyspace);
    tcase_add_test(tcase, a_local_datacenter_that_is_none_is_told_with_those_that_are);
    tcase_add_test(tcase, a_name_that_nobody_knows_is_told_with_its_place_in_the_list);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
