/* SPDX-License-Identifier: Apache-2.0 */

/* What the library promises about time, in virtual time: exact where a real clock could only be waited for.

   ctest: labels=sim timeout=120 */

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "driver/lane.h"
#include "serialize/buf.h"
#include "stage.h"
#include "store.h"
#include "wire.h"
#include "world.h"

enum { NODES = 8, TIMES_MAX = 65536 };

/* --- a plain job -------------------------------------------------------------------------------------------------- */

static struct {
    uint64_t rows, given; /* the source's */
    uint32_t size;
    bool one_key;         /* all rows have the same one */
    uint64_t done, failed, timeouts; /* the sink's */
    int64_t last_us;                 /* when the last outcome came */
    int64_t sent_us[TIMES_MAX];      /* when requests of it went out */
    uint64_t sent;
    uint32_t under_way[NODES]; /* by node: sent and not answered */
    uint32_t under_way_max[NODES];
    uint8_t key[256][8];
    uint8_t value[4096];
    cqlring_bytes cells[256][2];
} job;

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us,
                    cqlring_error *error, void *context)
{
    (void)now_us, (void)wake_at_us, (void)error, (void)context;
    world.activity++;
    uint32_t count = 0;
    for (; count < capacity && job.given < job.rows; count++, job.given++) {
        cqr_store_u64(job.key[count], job.one_key ? 1 : job.given);
        job.cells[count][0] = (cqlring_bytes){job.key[count], 8};
        job.cells[count][1] = (cqlring_bytes){job.value, (int32_t)job.size};
        rows[count] = (cqlring_row){.cells = job.cells[count]};
    }
    return (int32_t)count;
}

static cqlring_verdict deliver(const cqlring_completion *completions, uint32_t count, void *context)
{
    (void)context;
    world.activity++;
    for (uint32_t i = 0; i < count; i++) {
        job.done++;
        job.failed += completions[i].status != CQLRING_OK;
        job.timeouts += completions[i].status == CQLRING_TIMEOUT;
        job.last_us = completions[i].received_us;
    }
    return CQLRING_CONTINUE;
}

static void request_seen(const struct wire_request *request)
{
    if (!request->has_key)
        return;
    if (job.sent < TIMES_MAX)
        job.sent_us[job.sent] = world.now_us;
    job.sent++;
    if (++job.under_way[request->node] > job.under_way_max[request->node])
        job.under_way_max[request->node] = job.under_way[request->node];
}

static void reply_seen(uint32_t node, uint8_t opcode, bool has_key, int64_t key)
{
    (void)opcode, (void)key;
    if (has_key)
        job.under_way[node]--;
}

static struct stage stage;
static struct stage_options stage_options;
static const cqlring_execution idempotent = {.struct_size = sizeof idempotent,
                                             .idempotent = CQLRING_YES};

static void begin(uint32_t nodes)
{
    world_init(1, false);
    stage_options_init(&stage_options, nodes);
    memset(&job, 0, sizeof job);
    wire_on_request = request_seen;
    wire_on_reply = reply_seen;
}

static void up(void)
{
    stage_nodes(&stage, &stage_options);
    ck_assert(stage_open(&stage, &stage_options));
}

static void down(void)
{
    network_heal();
    stage_close(&stage);
    stage_down(&stage);
    world_fini();
    wire_on_request = NULL;
    wire_on_reply = NULL;
}

static cqlring_future *job_begin(uint64_t rows, const cqlring_job_options *options)
{
    static const cqlring_source source = {.next = next};
    static const cqlring_sink sink = {.deliver = deliver};
    cqlring_future *future = NULL;
    cqlring_error error;
    job.rows = rows;
    ck_assert_msg(cqlring_execute_concurrent(stage.session, &stage.insert, 1, &source, &sink, 1,
                                             options, &future, &error) == CQLRING_OK,
                  "%s", error.message);
    return future;
}

static void job_finish(cqlring_future *future)
{
    stage_wait(&stage, future);
    cqlring_future_release(future);
    ck_assert_uint_eq(job.done, job.rows);
}

static cqlring_future *execute(int64_t key, const cqlring_execution *execution)
{
    uint8_t bytes[8];
    cqr_store_u64(bytes, (uint64_t)key);
    cqlring_bytes cells[2] = {{bytes, 8}, {bytes, 8}};
    cqlring_request request = {.session = stage.session,
                               .prepared = stage.insert,
                               .values = cells,
                               .value_count = 2,
                               .execution = execution};
    cqlring_future *future = NULL;
    cqlring_error error;
    ck_assert_msg(cqlring_execute(&request, &future, &error) == CQLRING_OK, "%s", error.message);
    return future;
}

static void within(int64_t value, int64_t low, int64_t high)
{
    ck_assert_msg(value >= low && value <= high,
                  "%" PRId64 " is not between %" PRId64 " and %" PRId64, value, low, high);
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

START_TEST(a_row_rate_is_kept_within_one_percent)
{
    static const double rates[] = {10, 1000, 12345, 50000};
    begin(1);
    stage_options.network.latency_us = 20;
    up();
    double rate = rates[_i];
    uint64_t rows = (uint64_t)(rate * 3) > 60000 ? 60000 : (uint64_t)(rate * 3);
    cqlring_job_options options = {
        .struct_size = sizeof options, .rows_per_s = rate, .window = 1024};
    job_finish(job_begin(rows, &options));
    double seconds = (double)(job.sent_us[rows - 1] - job.sent_us[0]) / 1e6;
    double reached = (double)(rows - 1) / seconds;
    ck_assert_msg(reached >= rate * 0.99 && reached <= rate * 1.01, "%.1f rows/s instead of %.1f",
                  reached, rate);
    down();
}
END_TEST

START_TEST(a_byte_rate_is_kept_within_one_percent)
{
    begin(1);
    up();
    job.size = 980; /* 1000 with the key and the two lengths */
    cqlring_job_options options = {.struct_size = sizeof options, .bytes_per_s = 500000};
    job_finish(job_begin(2000, &options));
    double reached = 1999 * 996.0 / ((double)(job.sent_us[1999] - job.sent_us[0]) / 1e6);
    ck_assert_msg(reached >= 495000 && reached <= 505000, "%.0f bytes/s instead of 500000",
                  reached);
    down();
}
END_TEST

START_TEST(a_rate_is_kept_after_a_pause_without_a_burst)
{
    begin(1);
    up();
    cqlring_job_options options = {.struct_size = sizeof options, .rows_per_s = 1000};
    cqlring_future *future = job_begin(3000, &options);
    stage_run_for(&stage, 500000);
    cqlring_job_pause(future);
    uint64_t before = job.sent;
    stage_run_for(&stage, 5000000);
    ck_assert_uint_eq(job.sent, before);
    cqlring_job_resume(future);
    int64_t resumed_us = world.now_us;
    stage_run_for(&stage, 1000000);
    within((int64_t)(job.sent - before), 990, 1012); /* a hundredth of a second may be saved up */
    (void)resumed_us;
    cqlring_job_rate(future, 0, 0);
    job_finish(future);
    down();
}
END_TEST

/* --- time-outs ---------------------------------------------------------------------------------------------------- */

START_TEST(a_request_times_out_at_its_time_and_not_before)
{
    begin(1);
    up();
    node_silence(stage.nodes, 0, true);
    static const int64_t timeouts[] = {1000, 50000, 400000, 1500000};
    for (int i = 0; i < 4; i++) {
        cqlring_execution how = {.struct_size = sizeof how, .timeout_us = timeouts[i]};
        int64_t begin_us = world.now_us;
        cqlring_future *future = execute(i, &how);
        stage_wait(&stage, future);
        const cqlring_completion *completion = cqlring_future_completion(future);
        ck_assert_int_eq(completion->status, CQLRING_TIMEOUT);
        within(completion->received_us - begin_us, timeouts[i],
               timeouts[i] + 10000); /* two ticks of the wheel */
        ck_assert(completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED);
        cqlring_future_release(future);
    }
    down();
}
END_TEST

START_TEST(an_attempt_times_out_and_another_node_answers)
{
    begin(3);
    stage_options.replication = 3;
    up();
    node_silence(stage.nodes, 0, true);
    cqlring_execution how = idempotent;
    how.attempt_timeout_us = 300000;
    int64_t begin_us = world.now_us, slowest_us = 0;
    cqlring_future *futures[30];
    for (int i = 0; i < 30; i++)
        futures[i] = execute(i, &how);
    for (int i = 0; i < 30; i++) {
        stage_wait(&stage, futures[i]);
        const cqlring_completion *completion = cqlring_future_completion(futures[i]);
        ck_assert_int_eq(completion->status, CQLRING_OK);
        if (completion->received_us - begin_us > slowest_us)
            slowest_us = completion->received_us - begin_us;
        cqlring_future_release(futures[i]);
    }
    within(slowest_us, 300000, 330000);
    down();
}
END_TEST

/* --- connections -------------------------------------------------------------------------------------------------- */

/* The node refuses: how far apart are the attempts? Pool and control connection both try, so each is looked at by itself:
   here only the pool's link has lost its connection. */
START_TEST(reconnects_back_off_from_50_ms_to_10_s)
{
    begin(1);
    up();
    network_crash(0, INT64_C(1000000000));
    uint64_t connects = network_counts.connects;
    stage_run_for(&stage, 100000);
    within((int64_t)(network_counts.connects - connects), 2,
           8); /* two links: at once, after 50 ms, 100 ms */
    stage_run_for(&stage, 30000000);
    connects = network_counts.connects;
    stage_run_for(&stage, 100000000); /* by now each tries every 10 s ± 15 % */
    within((int64_t)(network_counts.connects - connects), 2 * 8, 2 * 12);
    network_heal();
    stage_run_for(&stage, 12000000);
    ck_assert_uint_eq(network_links(NODE_ALL), 2);
    down();
}
END_TEST

/* Short as their lives are, they answered: the node is well. Back-offs that grow would let rows wait for nothing. */
/* A drained node: what it accepts it closes at once. A minute of that is a handful of connects and as little work. */
START_TEST(rc_24_a_node_that_closes_what_it_accepts_is_left_in_peace_for_a_minute)
{
    begin(1);
    up();
    char message[200];
    uint32_t fault = node_fault_parse(stage.nodes, "accept-close", message, sizeof message);
    ck_assert_msg(fault != 0, "%s", message);
    network_crash(0, 1000);
    uint64_t connects = network_counts.connects;
    cqlring_stats before = {.struct_size = sizeof before}, after = before;
    cqlring_runtime_stats(stage.runtime, &before);
    stage_run_for(&stage, 60000000);
    cqlring_runtime_stats(stage.runtime, &after);
    uint64_t attempts = network_counts.connects - connects;
    within((int64_t)attempts, 2 * 9, 2 * 16); /* two links: at once, 50 ms doubling to 10 s */
    ck_assert_uint_le(after.submitter_turns - before.submitter_turns, 20 * attempts + 20);
    ck_assert_uint_le(after.reactor_turns - before.reactor_turns, 20 * attempts + 20);
    node_fault_remove(stage.nodes, fault);
    stage_run_for(&stage, 12000000);
    ck_assert_uint_eq(network_links(NODE_ALL), 2);
    down();
}
END_TEST

START_TEST(connections_that_answered_come_back_after_the_shortest_wait_however_often_they_are_lost)
{
    begin(1);
    up();
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 64, .rows_per_s = 1000, .execution = &idempotent};
    cqlring_future *future = job_begin(6000, &options);
    for (int i = 0; i < 20; i++) {
        stage_run_for(&stage, 200000);
        network_crash(0, 1000);
        stage_run_for(&stage, 1000);
        uint64_t before = job.done;
        stage_run_for(&stage, 70000); /* 50 ms + 15 %, and the way there and back */
        ck_assert_msg(job.done > before, "after loss %d nothing came back", i + 1);
    }
    job_finish(future);
    ck_assert_uint_eq(job.failed, 0);
    down();
}
END_TEST

/* Rows come at a steady rate and the window never fills: so at any moment there is room, and whenever a connection is up
   something must go out, whatever has just gone wrong; rows that wait for their next try do not hold up others. */
/* One for control, and of the eight for rows the first ones, on which the session is open; the others follow. */
START_TEST(pools_are_filled_a_few_connections_at_a_time_and_scattered)
{
    begin(8);
    uint64_t connects = network_counts.connects;
    up();
    ck_assert_uint_ge(network_counts.connects - connects, 2);
    ck_assert_uint_le(network_counts.connects - connects, 1 + 4);
    uint32_t moments = 0; /* the others are scattered, so that clients that start together do not come in step */
    for (int i = 0; i < 800; i++) {
        uint64_t so_far = network_counts.connects;
        stage_run_for(&stage, 50);
        moments += network_counts.connects > so_far;
    }
    ck_assert_uint_eq(network_counts.connects - connects, 1 + 8);
    ck_assert_uint_ge(moments, 2); /* of up to three: the wheel turns by 4 ms */
    down();
}
END_TEST

START_TEST(no_moment_passes_with_room_and_a_connection_and_nothing_issued)
{
    enum { ROUNDS = 60, SLICE_US = 20000, SLICES = 30 };
    begin(3);
    stage_options.replication = 3;
    up();
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 8192, .rows_per_s = 1000, .execution = &idempotent};
    cqlring_future *future = job_begin(ROUNDS * 1000, &options);
    char message[200];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t node = round / 6 % 3;
        bool all_lost = false;
        switch (round % 6) {
        case 0: network_crash(node, 1000 + 5000 * round); break;
        case 1: network_freeze(node, 300000); break;
        case 2: (void)network_half_open(node); break;
        case 3:
            ck_assert_uint_ne(node_fault_parse(stage.nodes, "error:code=0x1001,every=2,times=200,opcode=EXECUTE", message, sizeof message), 0);
            break;
        case 4: node_forget_prepared(stage.nodes, NODE_ALL); break;
        default:
            for (uint32_t i = 0; i < 3; i++)
                network_crash(i, 1000);
            all_lost = true;
        }
        if (all_lost)
            stage_run_for(&stage, 70000); /* 50 ms + 15 %, and startup */
        for (int slice = 0; slice < SLICES && job.done < job.rows; slice++) {
            uint64_t before = job.sent;
            stage_run_for(&stage, SLICE_US);
            ck_assert_msg(job.sent > before || job.given == job.rows, "round %u: nothing was issued in slice %d", round, slice);
        }
        node_fault_remove(stage.nodes, 0);
        network_heal();
        stage_run_for(&stage, 200000);
    }
    job_finish(future);
    ck_assert_uint_eq(job.failed, 0);
    down();
}
END_TEST

START_TEST(a_silent_node_is_suspect_after_2_s_and_trusted_at_its_first_byte)
{
    begin(2);
    stage_options.replication = 2;
    up();
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 64, .rows_per_s = 500, .execution = &idempotent};
    cqlring_future *future = job_begin(12000, &options);
    stage_run_for(&stage, 1000000);
    network_freeze(1, 4000000);
    const cqlring_node *nodes[2];
    cqlring_node_info info;
    ck_assert_uint_eq(cqlring_cluster_nodes(stage.cluster, nodes, 2), 2);
    int which = 0;
    cqlring_node_describe(nodes[0], &info);
    if (strcmp(info.address, "10.0.0.2:9042") != 0)
        which = 1;
    stage_run_for(&stage, 1900000);
    cqlring_node_describe(nodes[which], &info);
    ck_assert_uint_eq(info.is_suspect, 0);
    stage_run_for(&stage, 200000);
    cqlring_node_describe(nodes[which], &info);
    ck_assert_uint_eq(info.is_suspect, 1);
    uint32_t before = job.under_way_max[1];
    stage_run_for(&stage, 1500000);
    ck_assert_uint_eq(job.under_way_max[1], before); /* no new rows for it */
    stage_run_for(&stage, 600000);
    cqlring_node_describe(nodes[which], &info);
    ck_assert_uint_eq(info.is_suspect, 0);
    job_finish(future);
    ck_assert_uint_eq(job.failed, 0);
    down();
}
END_TEST

START_TEST(half_of_the_window_waits_on_a_frozen_node_and_the_rest_goes_on)
{
    begin(3);
    stage_options.replication = 3;
    stage_options.cluster.suspect_after_us = -1; /* so that nothing but the window protects */
    up();
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 100, .execution = &idempotent};
    cqlring_future *future = job_begin(UINT32_MAX, &options);
    stage_run_for(&stage, 100000);
    network_freeze(1, 2000000);
    stage_run_for(&stage, 100000);
    uint64_t before = job.done;
    stage_run_for(&stage, 1000000);
    ck_assert_uint_le(job.under_way_max[1], 50);
    ck_assert_uint_gt(job.done - before,
                      10000); /* 50 rows each round trip of 0.4 ms would be 125 000 */
    cqlring_future_cancel(future);
    stage_wait(&stage, future);
    cqlring_future_release(future);
    down();
}
END_TEST

START_TEST(a_heartbeat_goes_out_after_30_s_of_silence_and_an_idle_session_sleeps_otherwise)
{
    begin(1);
    up();
    stage_run_for(&stage, 5000000);
    uint64_t sends = network_counts.sends, waits = network_counts.waits;
    stage_run_for(&stage, 20000000);
    ck_assert_uint_eq(network_counts.sends, sends);
    ck_assert_uint_le(network_counts.waits - waits, 4);
    stage_run_for(&stage, 10000000);
    ck_assert_uint_eq(network_counts.sends,
                      sends + 2); /* the control connection, and the session's */
    down();
}
END_TEST

START_TEST(a_connection_that_does_not_answer_its_heartbeat_is_replaced)
{
    begin(1);
    stage_options.cluster.heartbeat_us = 1000000;
    stage_options.cluster.connect_timeout_us = 500000;
    up();
    uint64_t connects = network_counts.connects;
    ck_assert(network_half_open(0));
    stage_run_for(&stage, 1000000);
    ck_assert_uint_eq(network_counts.connects, connects);
    stage_run_for(&stage, 1200000);
    ck_assert_uint_gt(network_counts.connects, connects);
    down();
}
END_TEST

/* --- the process stands still -------------------------------------------------------------------------------------- */

static void stand_still(void *context, uint64_t for_us)
{
    network_gap((int64_t)for_us, context != NULL);
}

/* Decision 10: replies that lie in the sockets after SIGSTOP and SIGCONT are answers, however late it is. */
START_TEST(nothing_expires_whose_reply_waits_in_the_socket_after_a_gap)
{
    begin(3);
    stage_options.replication = 3;
    stage_options.node.delay_us = 40000;
    up();
    bool is_long = (_i & 1) != 0;
    cqlring_execution how = {.struct_size = sizeof how,
                             .timeout_us = is_long ? 20000000 : 1000000,
                             .idempotent = is_long ? CQLRING_YES : CQLRING_NO};
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 200, .execution = &how, .rows_per_s = 10000};
    for (int i = 1; i < 6; i++)
        world_later(i * 333000 + (i - 1) * 30000000, stand_still, (_i & 2) != 0 ? &stage : NULL,
                    30000000);
    job_finish(job_begin(20000, &options));
    ck_assert_uint_eq(job.timeouts, 0);
    ck_assert_uint_eq(job.failed, 0);
    ck_assert_int_gt(world.now_us, 150000000);
    down();
}
END_TEST

START_TEST(what_has_no_reply_expires_after_a_gap)
{
    begin(1);
    up();
    node_silence(stage.nodes, 0, true);
    cqlring_execution how = {.struct_size = sizeof how, .timeout_us = 1000000};
    cqlring_future *future = execute(1, &how);
    world_later(300000, stand_still, NULL, 30000000);
    stage_wait(&stage, future);
    within(world.now_us, 31300000, 31600000);
    ck_assert_int_eq(cqlring_future_completion(future)->status, CQLRING_TIMEOUT);
    cqlring_future_release(future);
    down();
}
END_TEST

/* --- what was learned is not believed for ever ---------------------------------------------------------------------- */

static uint64_t batches_of(uint64_t rows, const cqlring_job_options *options)
{
    cqlring_stats before = {.struct_size = sizeof before}, after = before;
    cqlring_runtime_stats(stage.runtime, &before);
    job.given = job.done = job.failed = 0;
    job_finish(job_begin(rows, options));
    ck_assert_uint_eq(job.failed, 0);
    cqlring_runtime_stats(stage.runtime, &after);
    return after.batches - before.batches;
}

START_TEST(after_a_stray_too_large_batches_grow_again_within_minutes)
{
    begin(1);
    up();
    job.one_key = true;
    job.size = 1000;
    static const cqlring_batch_by_partition distinct = {.struct_size = sizeof distinct,
                                                        .distinct = 1};
    cqlring_job_options options = {.struct_size = sizeof options,
                                   .execution = &idempotent,
                                   .batch_by_partition = &distinct};
    uint64_t whole = batches_of(2048, &options);
    char message[200];
    ck_assert_uint_ne(node_fault_parse(stage.nodes,
                                       "error:code=0x2200,opcode=BATCH,message=Batch too "
                                       "large,times=30",
                                       message, sizeof message),
                      0);
    batches_of(2048, &options);
    node_fault_remove(stage.nodes, 0);
    ck_assert_uint_eq(batches_of(2048, &options), 0); /* 256 bytes: no two rows fit */
    stage_run_for(&stage, 59000000);
    ck_assert_uint_eq(batches_of(2048, &options), 0);
    uint64_t last = UINT64_MAX;
    for (int minute = 0; minute < 7; minute++) {
        stage_run_for(&stage, 60500000);
        uint64_t now = batches_of(2048, &options);
        if (now > 0) {
            ck_assert_uint_le(now, last);
            last = now;
        }
    }
    ck_assert_uint_eq(last, whole);
    down();
}
END_TEST

/* --- counted: one send and one wake a turn ------------------------------------------------------------------------- */

START_TEST(a_full_window_goes_out_in_few_sends)
{
    begin(1);
    up();
    cqlring_job_options options = {
        .struct_size = sizeof options, .window = 512, .execution = &idempotent};
    uint64_t sends = network_counts.sends, wakes = network_counts.wakes;
    job_finish(job_begin(50000, &options));
    ck_assert_uint_le(network_counts.sends - sends, 50000 / 64);
    ck_assert_uint_le(network_counts.wakes - wakes,
                      10); /* nobody sleeps while its own thread works */
    down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("time");
    TCase *tcase = tcase_create("virtual time");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_row_rate_is_kept_within_one_percent, 0, 4);
    tcase_add_test(tcase, a_byte_rate_is_kept_within_one_percent);
    tcase_add_test(tcase, a_rate_is_kept_after_a_pause_without_a_burst);
    tcase_add_test(tcase, a_request_times_out_at_its_time_and_not_before);
    tcase_add_test(tcase, an_attempt_times_out_and_another_node_answers);
    tcase_add_test(tcase, reconnects_back_off_from_50_ms_to_10_s);
    tcase_add_test(tcase, rc_24_a_node_that_closes_what_it_accepts_is_left_in_peace_for_a_minute);
    tcase_add_test(tcase,
                   connections_that_answered_come_back_after_the_shortest_wait_however_often_they_are_lost);
    tcase_add_test(tcase, pools_are_filled_a_few_connections_at_a_time_and_scattered);
    tcase_add_test(tcase, no_moment_passes_with_room_and_a_connection_and_nothing_issued);
    tcase_add_test(tcase, a_silent_node_is_suspect_after_2_s_and_trusted_at_its_first_byte);
    tcase_add_test(tcase, half_of_the_window_waits_on_a_frozen_node_and_the_rest_goes_on);
    tcase_add_test(tcase,
                   a_heartbeat_goes_out_after_30_s_of_silence_and_an_idle_session_sleeps_otherwise);
    tcase_add_test(tcase, a_connection_that_does_not_answer_its_heartbeat_is_replaced);
    tcase_add_loop_test(tcase, nothing_expires_whose_reply_waits_in_the_socket_after_a_gap, 0, 4);
    tcase_add_test(tcase, what_has_no_reply_expires_after_a_gap);
    tcase_add_test(tcase, after_a_stray_too_large_batches_grow_again_within_minutes);
    tcase_add_test(tcase, a_full_window_goes_out_in_few_sends);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
