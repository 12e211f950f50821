/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: timeout=240 */

/* What becomes of an attempt that failed: the whole table of outcomes, single and in a job, idempotent or not, against the node's
   fault plan; the application's retry policy; and nodes that say they are overloaded. Three nodes have every row. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "cql/token.h"
#include "watch.h"

struct stage {
    struct flow flow;
    cqlring_prepared *insert, *select;
    uint32_t first; /* the node that row 1 goes to */
};

static void stage_begin(struct stage *stage)
{
    memset(stage, 0, sizeof *stage);
    flow_init(&stage->flow);
    watch_log(&stage->flow);
    stage->flow.node_options.nodes = 3;
    stage->flow.options.reconnect_min_us = 10000;
    stage->flow.options.reconnect_max_us = 60000;
    stage->flow.options.suspect_after_us = -1;
}

static void stage_open(struct stage *stage)
{
    struct flow *flow = &stage->flow;
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
    stage->insert = flow_prepare(flow, FLOW_INSERT);
    stage->select = flow_prepare(flow, FLOW_SELECT);
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    uint32_t replicas[3];
    ck_assert_uint_gt(node_replicas(flow->node, "ks", cqr_murmur3(values[0].data, 8), replicas, 3), 0);
    stage->first = replicas[0];
    const cqlring_node *all[4];
    uint32_t count = cqlring_cluster_nodes(flow->cluster, all, 4);
    for (uint32_t i = 0; i < count; i++) { /* so that attempts can be counted */
        cqlring_execution aimed = {.struct_size = sizeof aimed, .target = all[i]};
        flow_ok(ask_prepared(flow, stage->insert, values, 2, &aimed, NULL, NULL));
        flow_ok(ask_prepared(flow, stage->select, values, 1, &aimed, NULL, NULL));
    }
}

static void stage_close(struct stage *stage)
{
    cqlring_prepared_release(stage->insert);
    cqlring_prepared_release(stage->select);
    flow_close(&stage->flow);
}

/* Connections that a fault closed are back, and rested nodes are asked again. */
static void stage_settle(struct stage *stage)
{
    node_fault_remove(stage->flow.node, 0);
    ask_until_connected(&stage->flow);
    watch_pass(&stage->flow, 20);
    for (uint32_t up = 0; up < 3; up = watch_up_count(&stage->flow))
        watch_pass(&stage->flow, 10);
}

/* ---- the table ---- */

enum { NO, SAME, NEXT, NEXT_ONCE };

static const struct outcome {
    struct node_fault fault;
    uint8_t single, idempotent, job; /* what is done: not idempotent, idempotent, an idempotent row of a job */
    bool maybe;                      /* a write that ends with this may have been applied */
    int64_t attempt_timeout_us;
} outcomes[] = {
    {{.kind = NODE_FAULT_ERROR, .code = 0x0000}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1000, .required = 2, .alive = 1}, NEXT_ONCE, NEXT_ONCE, NEXT, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1001}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1002}, NEXT, NEXT, NEXT, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1003}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "SIMPLE", .required = 2, .received = 1}, NO, NO, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "BATCH", .required = 2, .received = 1}, NO, NO, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "UNLOGGED_BATCH", .required = 2, .received = 1}, NO, NO, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "BATCH_LOG", .required = 2, .received = 1}, NO, SAME, SAME, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "COUNTER", .required = 2, .received = 1}, NO, NO, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1100, .write_type = "CAS", .required = 2, .received = 1}, NO, NO, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1200, .required = 2, .received = 2, .data_present = 0}, SAME, SAME, SAME, false, -1}, /* RT-03 */
    {{.kind = NODE_FAULT_ERROR, .code = 0x1200, .required = 2, .received = 2, .data_present = 1}, NO, NO, NEXT, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1200, .required = 2, .received = 1, .data_present = 0}, NO, NO, NEXT, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1300, .required = 2, .received = 1, .failures = 1}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1400}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1500, .required = 2, .received = 1, .failures = 1, .write_type = "SIMPLE"}, NO, NO, NO, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1600}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x1700, .required = 2, .received = 1}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x2000}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x2100}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x2200}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x2300}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x2400}, NO, NO, NO, false, -1},
    {{.kind = NODE_FAULT_ERROR, .code = 0x4321}, NO, NO, NO, true, -1}, /* RT-07 */
    {{.kind = NODE_FAULT_CLOSE}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_CLOSE, .executed = true}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_HALF}, NO, NEXT, NEXT, true, -1},
    {{.kind = NODE_FAULT_DROP}, NO, NEXT, NEXT, true, 400000 * WATCH_SLOW},
    {{.kind = NODE_FAULT_IGNORE}, NO, NEXT, NEXT, true, 400000 * WATCH_SLOW},
};
enum { OUTCOMES = sizeof outcomes / sizeof outcomes[0] };

struct got {
    cqlring_status status;
    uint16_t attempts;
    bool maybe, on_first;
};

static bool on_first(struct stage *stage, const cqlring_node *node)
{
    cqlring_node_info info;
    if (node == NULL)
        return false;
    cqlring_node_describe(node, &info);
    return strcmp(info.address, ask_address(&stage->flow, stage->first)) == 0;
}

static void look(struct stage *stage, const cqlring_completion *completion, struct got *got)
{
    *got = (struct got){completion->status, completion->attempts, (completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0, on_first(stage, completion->node)};
    if (completion->error != NULL)
        ck_assert_uint_eq(completion->error->may_have_been_applied, got->maybe);
}

struct looking {
    struct stage *stage;
    struct got got;
};

static void look_at_row(const cqlring_completion *completion, void *context)
{
    struct looking *looking = context;
    look(looking->stage, completion, &looking->got);
}

static int32_t one_row(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    static cqlring_bytes cells[2];
    static uint8_t key[8];
    bool *given = context;
    (void)capacity, (void)now_us, (void)wake_at_us, (void)error;
    if (*given)
        return CQLRING_SOURCE_END;
    *given = true;
    memcpy(key, flow_bigint(1).data, 8);
    cells[0] = (cqlring_bytes){key, 8};
    cells[1] = (cqlring_bytes){"x", 1};
    rows[0] = (cqlring_row){.cells = cells};
    return 1;
}

static struct got run(struct stage *stage, bool job, const cqlring_execution *how)
{
    struct looking looking = {.stage = stage};
    if (!job) {
        cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
        cqlring_future *future = ask_start_prepared(&stage->flow, stage->insert, values, 2, how);
        ask_wait(future, NULL);
        look(stage, cqlring_future_completion(future), &looking.got);
        cqlring_future_release(future);
        return looking.got;
    }
    bool given = false;
    struct flow_sink sink;
    flow_sink_init(&sink, 1);
    sink.each = look_at_row;
    sink.context = &looking;
    cqlring_source source = {.next = one_row, .context = &given};
    cqlring_sink out = flow_sink_of(&sink);
    cqlring_job_options options = {.struct_size = sizeof options, .execution = how};
    cqlring_future *future = NULL;
    flow_ok(cqlring_execute_concurrent(stage->flow.session, &stage->insert, 1, &source, &out, 1, &options, &future, NULL));
    flow_ok(ask_end(future, NULL));
    ck_assert_uint_eq(sink.last, 1);
    flow_sink_fini(&sink);
    return looking.got;
}

static void fault_add(struct stage *stage, const struct outcome *outcome, bool everywhere, uint64_t times)
{
    struct node_fault fault = outcome->fault;
    fault.opcode = OPCODE_EXECUTE;
    fault.node = everywhere ? 0 : stage->first + 1;
    fault.times = times;
    ck_assert_uint_ne(node_fault_add(stage->flow.node, &fault), 0);
}

START_TEST(rt_06_every_outcome_is_retried_as_the_table_says)
{
    struct stage stage;
    stage_begin(&stage);
    stage_open(&stage);
    for (uint32_t i = (uint32_t)_i; i < OUTCOMES; i += 3)
        for (int way = 0; way < 4; way++) { /* single, single idempotent, row, idempotent row */
            const struct outcome *outcome = &outcomes[i];
            bool idempotent = way % 2 == 1, job = way >= 2;
            int what = way == 3 ? outcome->job : way == 1 ? outcome->idempotent : outcome->single;
            char text[100];
            snprintf(text, sizeof text, "fault %u, code 0x%04x %s, way %d", i, (unsigned)outcome->fault.code,
                     outcome->fault.write_type != NULL ? outcome->fault.write_type : "", way);
            /* once, on the node that is asked first */
            cqlring_execution how = {.struct_size = sizeof how, .idempotent = idempotent ? CQLRING_YES : CQLRING_NO,
                                     .attempt_timeout_us = outcome->attempt_timeout_us};
            fault_add(&stage, outcome, false, 1);
            struct got got = run(&stage, job, &how);
            bool well = what != NO;
            ck_assert_msg((got.status == CQLRING_OK) == well, "%s: %s", text, cqlring_status_name(got.status));
            ck_assert_msg(got.attempts == (well ? 2 : 1), "%s: %u attempts", text, got.attempts);
            ck_assert_msg(got.maybe == (well ? false : outcome->maybe), "%s: may have been applied %d", text, got.maybe);
            if (what != NO)
                ck_assert_msg(got.on_first == (what == SAME), "%s: the same node: %d", text, got.on_first);
            stage_settle(&stage);
            if (outcome->fault.code == 0x1001)
                watch_pass(&stage.flow, 1300); /* the node's rest is over */
            if (job || what == NO)
                continue;
            /* everywhere and always: a single request ends, with the last word */
            fault_add(&stage, outcome, true, 0);
            got = run(&stage, job, &how);
            ck_assert_msg(got.status != CQLRING_OK, "%s: everywhere", text);
            ck_assert_msg(got.attempts == (what == NEXT ? 3 : 2), "%s: everywhere: %u attempts", text, got.attempts);
            ck_assert_msg(got.maybe == outcome->maybe, "%s: everywhere: may have been applied %d", text, got.maybe);
            stage_settle(&stage);
            if (outcome->fault.code == 0x1001)
                watch_pass(&stage.flow, 1300);
        }
    stage_close(&stage);
}
END_TEST

/* Rows of jobs that are idempotent outlive many faults in a row, until their deadline. */
START_TEST(an_idempotent_row_is_tried_until_its_deadline)
{
    struct stage stage;
    stage_begin(&stage);
    stage_open(&stage);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .attempt_timeout_us = -1};
    for (uint32_t i = 0; i < OUTCOMES; i++)
        if (outcomes[i].fault.kind == NODE_FAULT_ERROR && outcomes[i].job != NO) {
            fault_add(&stage, &outcomes[i], true, 5);
            struct got got = run(&stage, true, &how);
            ck_assert_msg(got.status == CQLRING_OK && got.attempts == 6, "code 0x%04x: %s, %u attempts", (unsigned)outcomes[i].fault.code,
                          cqlring_status_name(got.status), got.attempts);
            stage_settle(&stage);
        }
    how.timeout_us = 600000;
    fault_add(&stage, &outcomes[2], true, 0);
    struct got got = run(&stage, true, &how);
    ck_assert_int_eq(got.status, CQLRING_SERVER);
    ck_assert_uint_ge(got.attempts, 2);
    ck_assert(got.maybe);
    stage_close(&stage);
}
END_TEST

START_TEST(rows_over_a_rate_limit_wait_and_single_requests_are_told)
{
    struct stage stage;
    stage_begin(&stage);
    stage.flow.node_options.shards = 2; /* the code is negotiated */
    stage_open(&stage);
    flow_fault(&stage.flow, "error:code=0xF000,opcode=EXECUTE,data_present=1,times=1");
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    struct got got = run(&stage, false, &how);
    ck_assert(got.status == CQLRING_SERVER && got.attempts == 1 && !got.maybe);
    for (int i = 0; i < 2; i++) { /* the coordinator did not let it in: also when it is not idempotent */
        stage_settle(&stage);
        flow_fault(&stage.flow, "error:code=0xF000,opcode=EXECUTE,data_present=1,times=2");
        how.idempotent = i == 0 ? CQLRING_YES : CQLRING_NO;
        got = run(&stage, true, &how);
        ck_assert(got.status == CQLRING_OK && got.attempts == 3);
        ck_assert(got.on_first); /* another node would count the same */
    }
    stage_close(&stage);
}
END_TEST

/* A node that sheds its load answers at once, so it always has the fewest requests under way: it must not draw all of them. */
START_TEST(an_overloaded_node_is_left_alone_for_a_while)
{
    enum { ROWS = 3000 };
    struct stage stage;
    stage_begin(&stage);
    stage_open(&stage);
    node_set_delay(stage.flow.node, NODE_ALL, 4000, 0);
    node_set_delay(stage.flow.node, stage.first, 0, 0);
    char line[100];
    snprintf(line, sizeof line, "error:code=0x1001,opcode=EXECUTE,node=%u", stage.first);
    flow_fault(&stage.flow, line);
    node_counters_reset(stage.flow.node);
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, ROWS, 16);
    flow_sink_init(&sink, ROWS);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    cqlring_job_options options = {.struct_size = sizeof options, .window = 64, .execution = &how};
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.ok, ROWS);
    struct node_counters counters;
    node_counters(stage.flow.node, stage.first, &counters);
    ck_assert_msg(counters.opcodes[OPCODE_EXECUTE] < ROWS / 4, "%lu of %d came to it", (unsigned long)counters.opcodes[OPCODE_EXECUTE], ROWS);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

/* ---- the application's policy ---- */

struct policy {
    cqlring_retry_decision decision;
    cqlring_consistency lower;
    int64_t delay_us;
    uint32_t calls;
    cqlring_consistency levels[8];
    cqlring_retry_query last;
    int32_t last_code;
    const cqlring_node *nodes[8];
    int32_t codes[8];
    uint64_t tags[8];
};

static cqlring_retry_decision decide(const cqlring_retry_query *query, cqlring_consistency *consistency, int64_t *delay_us, void *context)
{
    struct policy *policy = context;
    if (policy->calls < 8) {
        policy->levels[policy->calls] = query->consistency;
        policy->nodes[policy->calls] = query->node;
        policy->codes[policy->calls] = query->detail != NULL ? query->detail->server_code : -1;
        policy->tags[policy->calls] = query->tag;
    }
    policy->calls++;
    policy->last = *query;
    policy->last_code = query->detail != NULL ? query->detail->server_code : -1;
    ck_assert_ptr_nonnull(query->error);
    ck_assert_ptr_nonnull(query->node);
    *consistency = policy->lower;
    *delay_us = policy->delay_us;
    return policy->decision;
}

static void policy_begin(struct stage *stage, struct policy *policy)
{
    stage_begin(stage);
    stage->flow.options.retry_policy = decide;
    stage->flow.options.retry_context = policy;
    ask_record(&stage->flow);
    stage_open(stage);
}

START_TEST(rt_04_a_policy_sees_the_level_that_it_chose)
{
    struct policy policy = {.decision = CQLRING_DECIDE_SAME, .lower = CQLRING_ONE};
    struct stage stage;
    policy_begin(&stage, &policy);
    flow_fault(&stage.flow, "error:code=0x1000,opcode=EXECUTE,required=2,alive=1,times=2");
    cqlring_execution how = {.struct_size = sizeof how, .consistency = CQLRING_QUORUM};
    ask_record_clear();
    struct got got = run(&stage, _i == 1, &how);
    ck_assert(got.status == CQLRING_OK && got.attempts == 3 && got.on_first);
    ck_assert_uint_eq(policy.calls, 2);
    ck_assert_int_eq(policy.levels[0], CQLRING_QUORUM);
    ck_assert_int_eq(policy.levels[1], CQLRING_ONE);
    ck_assert_uint_eq(policy.last.retries, 1);
    ck_assert_int_eq(policy.last_code, 0x1000);
    ck_assert_uint_eq(policy.last.is_row, _i == 1);
    ck_assert_int_eq(policy.last.usual, CQLRING_DECIDE_FAIL); /* once is usual */
    ck_assert_uint_eq(ask_seen_at(OPCODE_EXECUTE, 0).consistency, CQLRING_QUORUM);
    ck_assert_uint_eq(ask_seen_at(OPCODE_EXECUTE, 1).consistency, CQLRING_ONE);
    ck_assert_uint_eq(ask_seen_at(OPCODE_EXECUTE, 2).consistency, CQLRING_ONE);
    stage_close(&stage);
}
END_TEST

START_TEST(rt_04_pages_too)
{
    struct policy policy = {.decision = CQLRING_DECIDE_NEXT, .lower = CQLRING_ONE};
    struct stage stage;
    policy_begin(&stage, &policy);
    for (int64_t k = 0; k < 30; k++) {
        cqlring_bytes values[] = {flow_bigint(k), {"x", 1}};
        flow_ok(ask_prepared(&stage.flow, stage.insert, values, 2, NULL, NULL, NULL));
    }
    cqlring_execution how = {.struct_size = sizeof how, .consistency = CQLRING_QUORUM, .page_size = 10};
    cqlring_result *first = NULL;
    flow_ok(ask_text(&stage.flow, "SELECT k FROM ks.t", NULL, 0, &how, &first, NULL));
    flow_fault(&stage.flow, "error:code=0x1200,opcode=QUERY,required=2,received=1,times=2");
    cqlring_future *next = NULL;
    flow_ok(cqlring_next_page(first, NULL, &next, NULL));
    flow_ok(ask_wait(next, NULL));
    ck_assert_uint_eq(cqlring_result_row_count(cqlring_future_completion(next)->result), 10);
    ck_assert_uint_eq(policy.calls, 2);
    ck_assert_int_eq(policy.levels[0], CQLRING_QUORUM);
    ck_assert_int_eq(policy.levels[1], CQLRING_ONE);
    ck_assert_uint_eq(policy.last.is_read, 1);
    cqlring_future_release(next);
    cqlring_result_release(first);
    stage_close(&stage);
}
END_TEST

START_TEST(rt_05_ignored_is_a_success_without_a_result)
{
    struct policy policy = {.decision = CQLRING_DECIDE_IGNORE};
    struct stage stage;
    policy_begin(&stage, &policy);
    flow_fault(&stage.flow, "error:code=0x1100,opcode=EXECUTE,write_type=SIMPLE,required=2,received=1");
    cqlring_execution how = {.struct_size = sizeof how};
    struct got got = run(&stage, _i == 1, &how);
    ck_assert_int_eq(got.status, CQLRING_OK);
    ck_assert(got.attempts == 1 && !got.maybe);
    ck_assert_uint_eq(policy.calls, 1);
    ck_assert_uint_eq(flow_stats(&stage.flow).requests_failed, 0);
    stage_close(&stage);
}
END_TEST

START_TEST(pg_07_an_ignored_first_page_is_empty)
{
    struct policy policy = {.decision = CQLRING_DECIDE_IGNORE};
    struct stage stage;
    policy_begin(&stage, &policy);
    flow_fault(&stage.flow, "error:code=0x1100,opcode=QUERY,times=1");
    cqlring_result *result = NULL;
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 1};
    flow_ok(ask_text(&stage.flow, "SELECT k FROM ks.t", NULL, 0, &how, &result, NULL));
    ck_assert_ptr_null(result);
    ck_assert_uint_eq(cqlring_result_row_count(result), 0);
    stage_close(&stage);
}
END_TEST

START_TEST(a_policy_may_refuse_wait_and_go_beyond_the_usual)
{
    struct policy policy = {.decision = CQLRING_DECIDE_FAIL};
    struct stage stage;
    policy_begin(&stage, &policy);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=1");
    struct got got = run(&stage, true, &how); /* a row that would be retried is not */
    ck_assert(got.status == CQLRING_SERVER && got.attempts == 1);
    ck_assert_int_eq(policy.last.usual, CQLRING_DECIDE_NEXT);
    stage_settle(&stage);
    policy.decision = CQLRING_DECIDE_NEXT; /* a write that is not idempotent is, with a wait */
    policy.delay_us = 50000;
    how.idempotent = CQLRING_NO;
    flow_fault(&stage.flow, "close:opcode=EXECUTE,times=1");
    int64_t from = watch_now_us();
    got = run(&stage, false, &how);
    ck_assert(got.status == CQLRING_OK && got.attempts == 2 && !got.on_first);
    ck_assert_int_ge(watch_now_us() - from, 50000);
    ck_assert_int_eq(policy.last.status, CQLRING_LOST);
    ck_assert_int_eq(policy.last.usual, CQLRING_DECIDE_FAIL);
    ck_assert_int_eq(policy.last_code, -1);
    stage_settle(&stage);
    policy.delay_us = INT64_MAX; /* beyond the deadline: the outcome stands */
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=1");
    got = run(&stage, false, &how);
    ck_assert(got.status == CQLRING_SERVER && got.attempts == 1);
    /* retry = none: nobody is asked */
    uint32_t calls = policy.calls;
    how.retry = CQLRING_RETRY_NONE;
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=1");
    got = run(&stage, false, &how);
    ck_assert(got.status == CQLRING_SERVER && got.attempts == 1);
    ck_assert_uint_eq(policy.calls, calls);
    stage_close(&stage);
}
END_TEST

START_TEST(a_policy_that_has_no_opinion_changes_nothing)
{
    struct policy policy = {.decision = CQLRING_DECIDE_USUAL};
    struct stage stage;
    policy_begin(&stage, &policy);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=2");
    struct got got = run(&stage, false, &how);
    ck_assert(got.status == CQLRING_OK && got.attempts == 3);
    flow_fault(&stage.flow, "error:code=0x2200,opcode=EXECUTE,times=1");
    got = run(&stage, true, &how);
    ck_assert(got.status == CQLRING_SERVER && got.attempts == 1);
    ck_assert_uint_eq(policy.calls, 3);
    stage_close(&stage);
}
END_TEST

/* A policy that only looks has a request's history: which nodes were tried, in what order, and what each said. */
START_TEST(every_attempt_of_a_request_is_told_with_its_node_and_its_reason)
{
    struct policy policy = {.decision = CQLRING_DECIDE_USUAL};
    struct stage stage;
    policy_begin(&stage, &policy);
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=1");
    flow_fault(&stage.flow, "close:opcode=EXECUTE,times=1");
    ask_record_clear();
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES};
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    cqlring_request request = {.session = stage.flow.session, .prepared = stage.insert, .values = values, .value_count = 2, .execution = &how, .tag = 4711};
    cqlring_future *future;
    flow_ok(cqlring_execute(&request, &future, NULL));
    flow_ok(ask_wait(future, NULL));
    const cqlring_completion *completion = cqlring_future_completion(future);
    ck_assert_uint_eq(completion->attempts, 3);
    ck_assert_uint_eq(policy.calls, 2);
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 3);
    for (uint32_t i = 0; i < 3; i++) {
        cqlring_node_info info;
        cqlring_node_describe(i < 2 ? policy.nodes[i] : completion->node, &info);
        ck_assert_str_eq(info.address, ask_address(&stage.flow, ask_seen_at(OPCODE_EXECUTE, i).node));
    }
    ck_assert(policy.nodes[0] != policy.nodes[1] && policy.nodes[1] != completion->node);
    ck_assert(policy.codes[0] == 0x1001 && policy.codes[1] == -1);
    ck_assert_int_eq(policy.last.status, CQLRING_LOST);
    ck_assert(policy.tags[0] == 4711 && policy.tags[1] == 4711);
    cqlring_future_release(future);
    stage_close(&stage);
}
END_TEST

/* Without a policy too: a failure has the list. */
START_TEST(a_failure_lists_its_attempts)
{
    struct stage stage;
    stage_begin(&stage);
    ask_record(&stage.flow);
    stage_open(&stage);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .attempt_timeout_us = 60000, .timeout_us = 5000000};
    cqlring_bytes values[] = {flow_bigint(1), {"x", 1}};
    flow_fault(&stage.flow, "error:code=0x1001,opcode=EXECUTE,times=2");
    flow_fault(&stage.flow, "drop:opcode=EXECUTE,times=1"); /* the third says nothing, and there is no fourth */
    ask_record_clear();
    cqlring_future *future = ask_start_prepared(&stage.flow, stage.insert, values, 2, &how);
    ck_assert_int_eq(ask_wait(future, NULL), CQLRING_TIMEOUT);
    cqlring_error_detail detail;
    const cqlring_completion *completion = cqlring_future_completion(future);
    ck_assert(!cqlring_completion_detail(completion, &detail)); /* the last one was no ERROR */
    ck_assert_int_eq(detail.server_code, 0);
    ck_assert_uint_eq(detail.attempt_count, 3);
    ck_assert_uint_eq(completion->attempts, 3);
    for (uint32_t i = 0; i < 3; i++) {
        cqlring_node_info info;
        cqlring_node_describe(detail.attempts[i].node, &info);
        ck_assert_str_eq(info.address, ask_address(&stage.flow, ask_seen_at(OPCODE_EXECUTE, i).node));
        ck_assert_int_eq(detail.attempts[i].server_code, i < 2 ? 0x1001 : 0);
        ck_assert_int_eq(detail.attempts[i].status, i < 2 ? CQLRING_SERVER : CQLRING_TIMEOUT);
        ck_assert_uint_eq(detail.attempts[i].phase, i < 2 ? CQLRING_ANSWERED : CQLRING_SENT);
        ck_assert(i == 0 || detail.attempts[i].failed_us >= detail.attempts[i - 1].failed_us);
    }
    cqlring_future_release(future);
    flow_fault(&stage.flow, "error:code=0x2200,opcode=EXECUTE,times=1");
    future = ask_start_prepared(&stage.flow, stage.insert, values, 2, &how);
    ck_assert_int_eq(ask_wait(future, NULL), CQLRING_SERVER);
    ck_assert(cqlring_completion_detail(cqlring_future_completion(future), &detail));
    ck_assert(detail.server_code == 0x2200 && detail.attempt_count == 1 && detail.attempts[0].server_code == 0x2200);
    cqlring_future_release(future);
    stage_close(&stage);
}
END_TEST

static void attempts_of_row(const cqlring_completion *completion, void *context)
{
    cqlring_error_detail detail;
    (void)cqlring_completion_detail(completion, &detail);
    *(uint32_t *)context = detail.attempt_count;
    ck_assert_uint_gt(completion->attempts, CQLRING_ATTEMPTS_MAX);
}

/* A row that is tried for long has its last ones. */
START_TEST(of_many_attempts_the_last_ones_are_listed)
{
    struct stage stage;
    stage_begin(&stage);
    stage_open(&stage);
    cqlring_execution how = {.struct_size = sizeof how, .idempotent = CQLRING_YES, .timeout_us = 8000000};
    cqlring_job_options options = {.struct_size = sizeof options, .execution = &how};
    uint32_t listed = 0;
    struct flow_rows rows;
    struct flow_sink sink;
    flow_rows_init(&rows, 1, 8);
    flow_sink_init(&sink, 1);
    sink.each = attempts_of_row;
    sink.context = &listed;
    flow_fault(&stage.flow, "error:code=0x1100,opcode=EXECUTE");
    flow_ok(flow_run(&stage.flow, stage.insert, &rows, &sink, &options, NULL, NULL));
    ck_assert_uint_eq(sink.failed, 1);
    ck_assert_uint_eq(listed, CQLRING_ATTEMPTS_MAX);
    flow_rows_fini(&rows);
    flow_sink_fini(&sink);
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retry");
    TCase *tcase = tcase_create("retry");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rt_06_every_outcome_is_retried_as_the_table_says, 0, 3);
    tcase_add_test(tcase, an_idempotent_row_is_tried_until_its_deadline);
    tcase_add_test(tcase, rows_over_a_rate_limit_wait_and_single_requests_are_told);
    tcase_add_test(tcase, an_overloaded_node_is_left_alone_for_a_while);
    tcase_add_loop_test(tcase, rt_04_a_policy_sees_the_level_that_it_chose, 0, 2);
    tcase_add_test(tcase, rt_04_pages_too);
    tcase_add_loop_test(tcase, rt_05_ignored_is_a_success_without_a_result, 0, 2);
    tcase_add_test(tcase, pg_07_an_ignored_first_page_is_empty);
    tcase_add_test(tcase, a_policy_may_refuse_wait_and_go_beyond_the_usual);
    tcase_add_test(tcase, every_attempt_of_a_request_is_told_with_its_node_and_its_reason);
    tcase_add_test(tcase, a_failure_lists_its_attempts);
    tcase_add_test(tcase, of_many_attempts_the_last_ones_are_listed);
    tcase_add_test(tcase, a_policy_that_has_no_opinion_changes_nothing);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
