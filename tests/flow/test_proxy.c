/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=300 */

/* Bulk jobs through a proxy that goes wrong in every way it knows, before the embedded node; storm.h says what must hold. The same
   runs before a real node in tests/live. */

#include <string.h>

#include "tests/proxy/storm.h"
#include "watch.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROWS = 3000 };
#else
enum { ROWS = 8000 };
#endif

struct stage {
    struct flow flow;
    struct proxy *proxy;
};

static void stage_begin(struct stage *stage, int version, cqlring_compression compression)
{
    char message[200];
    memset(stage, 0, sizeof *stage);
    flow_init(&stage->flow);
    watch_log(&stage->flow);
    flow_start(&stage->flow);
    stage->proxy = proxy_start(node_address(stage->flow.node, 0), node_port(stage->flow.node, 0), ROWS, message, sizeof message);
    ck_assert_msg(stage->proxy != NULL, "%s", message);
    stage->flow.options.contact_points = "127.0.0.1";
    stage->flow.options.port = proxy_port(stage->proxy);
    stage->flow.options.protocol_version = version;
    stage->flow.options.compression = compression;
    stage->flow.options.suspect_after_us = 300000 * WATCH_SLOW;
    stage->flow.options.connect_timeout_us = 2000000 * WATCH_SLOW;
    flow_open(&stage->flow);
}

static void stage_end(struct stage *stage)
{
    cqlring_session_release(stage->flow.session);
    cqlring_cluster_release(stage->flow.cluster);
    stage->flow.session = NULL;
    stage->flow.cluster = NULL;
    proxy_stop(stage->proxy);
    flow_close(&stage->flow);
}

static void through(int version, cqlring_compression compression, bool idempotent, const struct proxy_fault *faults, uint32_t count)
{
    struct stage stage;
    char message[600];
    stage_begin(&stage, version, compression);
    struct storm storm = {.session = stage.flow.session, .proxy = stage.proxy, .table = "ks.t", .rows = ROWS, .idempotent = idempotent,
                          .attempt_timeout_us = idempotent ? 1000000 * WATCH_SLOW : 0, .fault_count = count};
    memcpy(storm.faults, faults, count * sizeof *faults);
    bool held = storm_run(&storm, message, sizeof message);
    ck_assert_msg(held, "v%d%s, %s: %s; the log:\n%s", version, idempotent ? ", idempotent" : "", proxy_kind_name(faults[0].kind), message, watch_log_text());
    stage_end(&stage);
}

/* Fewer than before a real node: each connection that is lost costs 50 ms, and one that is half-open seconds. */
static struct proxy_fault fault_of(int kind)
{
    struct proxy_fault fault = storm_fault((enum proxy_kind)kind, ROWS);
    if (fault.every > ROWS / 40 && fault.every < ROWS / 9)
        fault.every = ROWS / 9;
    if (fault.kind == PROXY_HALF_OPEN)
        fault.times = 1;
    return fault;
}

START_TEST(idempotent_rows_all_arrive_whatever_goes_wrong_on_v5)
{
    struct proxy_fault fault = fault_of(_i);
    through(5, CQLRING_COMPRESSION_NONE, true, &fault, 1);
}
END_TEST

START_TEST(idempotent_rows_all_arrive_whatever_goes_wrong_on_v4)
{
    struct proxy_fault fault = fault_of(_i);
    through(4, _i % 2 == 0 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE, true, &fault, 1);
}
END_TEST

START_TEST(without_the_flag_only_what_was_under_way_fails_and_is_marked)
{
    struct proxy_fault fault = fault_of(_i);
    through(5, _i % 2 == 1 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE, false, &fault, 1);
}
END_TEST

START_TEST(idempotent_rows_all_arrive_when_everything_goes_wrong_at_once)
{
    struct proxy_fault faults[PROXY_KINDS];
    through(_i, CQLRING_COMPRESSION_LZ4, true, faults, storm_faults(faults, ROWS));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proxy");
    TCase *tcase = tcase_create("proxy");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, idempotent_rows_all_arrive_whatever_goes_wrong_on_v5, 0, PROXY_KINDS);
    tcase_add_loop_test(tcase, idempotent_rows_all_arrive_whatever_goes_wrong_on_v4, 0, PROXY_KINDS);
    tcase_add_loop_test(tcase, without_the_flag_only_what_was_under_way_fails_and_is_marked, 0, PROXY_KINDS);
    tcase_add_loop_test(tcase, idempotent_rows_all_arrive_when_everything_goes_wrong_at_once, 4, 6);
    return flow_main(suite);
}
