/* SPDX-License-Identifier: Apache-2.0 */

/* The page after the one that the application has: asked for at once, one and no more, and gone without a trace when nobody wants it. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"
#include "serialize/mem.h"

static void up_with(struct flow *flow, int rows)
{
    ask_record(flow);
    flow_start(flow);
    char message[128];
    ck_assert_int_eq(node_cql(flow->node, "CREATE TABLE ks.wide (p int, c int, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
    for (int c = 0; c < rows; c++) {
        char cql[96];
        snprintf(cql, sizeof cql, "INSERT INTO ks.wide (p, c) VALUES (0, %d)", c);
        ck_assert_int_eq(node_cql(flow->node, cql, NULL, message, sizeof message), 0);
    }
    flow_open(flow);
}

static void up(struct flow *flow, int version, int rows)
{
    flow_init(flow);
    flow->options.protocol_version = version;
    up_with(flow, rows);
}

#define ROWS "SELECT c FROM ks.wide WHERE p = 0"
static const cqlring_execution ahead = {.struct_size = sizeof ahead, .page_size = 3, .prefetch = CQLRING_YES};

static cqlring_result *first_page(struct flow *flow, const cqlring_execution *how)
{
    cqlring_result *result = NULL;
    flow_ok(ask_text(flow, ROWS, NULL, 0, how, &result, NULL));
    return result;
}

/* Takes over the first page; all rows from `from` on come once, in order. */
static uint32_t walk(cqlring_result *page, const cqlring_execution *how, int from, uint32_t *pages)
{
    uint32_t rows = 0;
    for (uint32_t count = 1;; count++) {
        for (uint32_t i = 0; i < cqlring_result_row_count(page); i++)
            ck_assert_int_eq(ask_int(page, i, 0), from + (int)rows++);
        if (pages != NULL)
            *pages = count;
        if (cqlring_result_paging_state(page).data == NULL)
            break;
        cqlring_result *next = NULL;
        cqlring_error error = {0};
        cqlring_status status = ask_next_page(page, how, &next, &error);
        ck_assert_msg(status == CQLRING_OK, "page %u: %s", count + 1, error.message);
        cqlring_result_release(page);
        page = next;
    }
    cqlring_result_release(page);
    return rows;
}

static bool settled(struct flow *flow, void *count)
{
    return flow_stats(flow).requests_settled >= *(uint64_t *)count;
}

/* So many requests of the application, and pages ahead, are answered. */
static void until_settled(struct flow *flow, uint64_t more)
{
    uint64_t all = flow_stats(flow).requests_settled + more;
    watch_for(flow, settled, &all);
}

static bool queries_seen(struct flow *flow, void *count)
{
    (void)flow;
    return ask_seen_count(OPCODE_QUERY) >= *(uint32_t *)count;
}

static bool dropped(struct flow *flow, void *count)
{
    return flow_stats(flow).pages_dropped >= *(uint64_t *)count;
}

START_TEST(the_next_page_is_there_before_it_is_asked_for_and_no_further_one)
{
    struct flow flow;
    up(&flow, _i, 10);
    uint64_t begun = flow_stats(&flow).requests_settled + 2;
    cqlring_result *page = first_page(&flow, &ahead);
    watch_for(&flow, settled, &begun);
    ask_pass(&flow, 50);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 2); /* however long nobody asks */
    ck_assert(ask_seen(OPCODE_QUERY).has_paging_state);
    ck_assert_int_eq(ask_seen(OPCODE_QUERY).page_size, 3);
    ck_assert_uint_eq(flow_stats(&flow).pages_ahead, 1);
    cqlring_future *future = NULL;
    flow_ok(cqlring_next_page(page, NULL, &future, NULL));
    ck_assert(cqlring_future_ready(future)); /* at once */
    cqlring_result *second = cqlring_result_retain(cqlring_future_completion(future)->result);
    cqlring_future_release(future);
    ck_assert_int_eq(ask_int(second, 0, 0), 3);
    uint32_t three = 3;
    watch_for(&flow, queries_seen, &three); /* the taking of the second begins the third */
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(second, NULL, 3, NULL), 7);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 4);
    ck_assert_uint_eq(flow_stats(&flow).pages_ahead, 3);
    ck_assert_uint_eq(flow_stats(&flow).pages_dropped, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_whole_result_comes_in_as_many_requests_as_without)
{
    struct flow flow;
    up(&flow, _i, 100);
    uint32_t pages = 0;
    ck_assert_uint_eq(walk(first_page(&flow, &ahead), NULL, 0, &pages), 100);
    ck_assert_uint_eq(pages, 34);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 34);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_bytes value = flow_int(0);
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, &ahead, &result, NULL));
    cqlring_prepared_release(select);
    node_forget_prepared(flow.node, NODE_ALL);
    ck_assert_uint_eq(walk(result, &ahead, 0, &pages), 100); /* the same said again is nothing else */
    ck_assert_uint_eq(pages, 34);
    ck_assert_uint_eq(flow_stats(&flow).pages_ahead, 33 + 33);
    ck_assert_uint_eq(flow_stats(&flow).pages_dropped, 0);
    ask_record_clear();
    cqlring_execution unpaged = {.struct_size = sizeof unpaged, .page_size = -1, .prefetch = CQLRING_YES};
    ck_assert_uint_eq(walk(first_page(&flow, &unpaged), NULL, 0, &pages), 100);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 1);
    flow_close(&flow);
}
END_TEST

START_TEST(a_page_that_nobody_asks_for_goes_with_the_result)
{
    struct flow flow;
    up(&flow, 5, 10);
    uint64_t begun = flow_stats(&flow).requests_settled + 2, one = 1, two = 2;
    cqlring_result *page = first_page(&flow, &ahead); /* there already */
    watch_for(&flow, settled, &begun);
    cqlring_result_release(page);
    watch_for(&flow, dropped, &one); /* with the last reference, which may be the submitter's */
    flow_fault(&flow, "late:opcode=QUERY,after=1,delay_us=100000");
    page = first_page(&flow, &ahead); /* still under way */
    cqlring_result_release(page);
    watch_for(&flow, dropped, &two);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 0);
    until_settled(&flow, 1);
    ck_assert_uint_eq(flow_stats(&flow).orphans, 0); /* no stream is lost by it */
    ck_assert_uint_eq(flow_stats(&flow).requests_failed, 0);
    page = first_page(&flow, &ahead);
    cqlring_result_release(page);
    flow_close(&flow); /* with one under way: nothing is left */
}
END_TEST

START_TEST(what_went_wrong_is_told_when_the_page_is_asked_for_and_it_can_be_asked_for_again)
{
    struct flow flow;
    up(&flow, _i, 10);
    flow_fault(&flow, "error:opcode=QUERY,code=0x2100,message=not you,after=1,times=1");
    uint64_t begun = flow_stats(&flow).requests_settled + 2;
    cqlring_result *page = first_page(&flow, &ahead), *next = NULL;
    watch_for(&flow, settled, &begun);
    cqlring_error error;
    ck_assert_int_eq(ask_next_page(page, NULL, &next, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x2100);
    ck_assert_msg(strstr(error.message, "not you") != NULL, "%s", error.message);
    flow_ok(ask_next_page(page, NULL, &next, &error));
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 7);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_06_the_time_out_of_a_page_ahead_is_that_of_the_first)
{
    struct flow flow;
    up(&flow, 5, 10);
    cqlring_execution soon = ahead;
    soon.timeout_us = 300000 * WATCH_SLOW;
    flow_fault(&flow, "late:opcode=QUERY,after=1,times=1,delay_us=4000000");
    cqlring_result *page = first_page(&flow, &soon), *next = NULL;
    until_settled(&flow, 1);
    cqlring_error error;
    ck_assert_int_eq(ask_next_page(page, NULL, &next, &error), CQLRING_TIMEOUT);
    flow_ok(ask_next_page(page, NULL, &next, &error));
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 7);
    flow_close(&flow);
}
END_TEST

START_TEST(a_page_asked_for_otherwise_is_read_otherwise)
{
    struct flow flow;
    up(&flow, 5, 20);
    cqlring_result *page = first_page(&flow, &ahead), *next = NULL;
    uint32_t two = 2;
    watch_for(&flow, queries_seen, &two);
    cqlring_execution larger = {.struct_size = sizeof larger, .page_size = 7};
    flow_ok(ask_next_page(page, &larger, &next, NULL));
    ck_assert_uint_eq(cqlring_result_row_count(next), 7);
    uint64_t one = 1;
    watch_for(&flow, dropped, &one);
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 17); /* further ones are fetched ahead by sevens */
    ck_assert_uint_eq(flow_stats(&flow).pages_dropped, 1);
    page = first_page(&flow, &ahead);
    cqlring_execution no_more = {.struct_size = sizeof no_more, .prefetch = CQLRING_NO};
    flow_ok(ask_next_page(page, &no_more, &next, NULL));
    uint64_t count = flow_stats(&flow).pages_ahead;
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 17);
    ck_assert_uint_eq(flow_stats(&flow).pages_ahead, count);
    flow_close(&flow);
}
END_TEST

START_TEST(the_same_page_may_be_asked_for_twice)
{
    struct flow flow;
    up(&flow, 5, 10);
    cqlring_result *page = first_page(&flow, &ahead), *copy = cqlring_result_detach(page);
    cqlring_future *futures[3];
    flow_ok(cqlring_next_page(page, NULL, &futures[0], NULL));
    flow_ok(cqlring_next_page(page, NULL, &futures[1], NULL));
    flow_ok(cqlring_next_page(copy, NULL, &futures[2], NULL));
    ck_assert_ptr_ne(futures[0], futures[1]);
    for (int i = 0; i < 3; i++) {
        flow_ok(ask_wait(futures[i], NULL));
        ck_assert_int_eq(ask_int(cqlring_future_completion(futures[i])->result, 0, 0), 3);
    }
    cqlring_result_release(page);
    cqlring_result_release(copy);
    for (int i = 0; i < 3; i++) {
        cqlring_result *second = cqlring_result_retain(cqlring_future_completion(futures[i])->result);
        cqlring_future_release(futures[i]);
        ck_assert_uint_eq(walk(second, NULL, 3, NULL), 7);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_page_ahead_may_be_cancelled_and_closed_over)
{
    struct flow flow;
    up(&flow, 5, 10);
    flow_fault(&flow, "ignore:opcode=QUERY,after=1");
    cqlring_result *page = first_page(&flow, &ahead), *other = NULL;
    cqlring_future *future = NULL, *closed = NULL;
    uint32_t two = 2;
    watch_for(&flow, queries_seen, &two);
    flow_ok(cqlring_next_page(page, NULL, &future, NULL));
    cqlring_future_cancel(future);
    ck_assert_int_eq(ask_end(future, NULL), CQLRING_CANCELLED);
    node_fault_remove(flow.node, 0);
    flow_fault(&flow, "ignore:opcode=QUERY,after=1");
    other = first_page(&flow, &ahead);
    two = 4;
    watch_for(&flow, queries_seen, &two);
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ck_assert_int_eq(cqlring_next_page(other, NULL, &future, NULL), CQLRING_CLOSED);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    node_cluster_stop(flow.node);
    ck_assert_int_eq(ask_int(page, 1, 0), 1);
    cqlring_result_release(page);
    cqlring_result_release(other);
    ask_nothing_left();
}
END_TEST

/* What the session may have under way is not exceeded by it; the page then comes when it is asked for. */
START_TEST(it_counts_in_the_sessions_limits_and_gives_way)
{
    struct flow flow;
    flow_init(&flow);
    flow.session_options.requests_max = 1;
    flow.session_options.execution = &ahead; /* the session's default */
    up_with(&flow, 10);
    flow_fault(&flow, "late:opcode=QUERY,after=1,times=1,delay_us=300000");
    cqlring_result *page = first_page(&flow, NULL), *next = NULL;
    uint32_t two = 2;
    watch_for(&flow, queries_seen, &two);
    cqlring_future *future = NULL;
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(ROWS)};
    ck_assert_int_eq(cqlring_execute(&request, &future, NULL), CQLRING_FULL); /* the page is the one */
    until_settled(&flow, 1);
    flow_ok(ask_next_page(page, NULL, &next, NULL));
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 7);
    flow_close(&flow);
}
END_TEST

START_TEST(of_a_queues_results_too)
{
    struct flow flow;
    up(&flow, 5, 10);
    cqlring_queue_options options = {.struct_size = sizeof options, .session = flow.session};
    cqlring_queue *queue = NULL;
    flow_ok(cqlring_queue_open(&options, &queue, NULL));
    cqlring_request request = {.session = flow.session, .cql = cqlring_text(ROWS), .execution = &ahead};
    uint32_t accepted = 0;
    flow_ok(cqlring_queue_submit(queue, &request, 1, &accepted, NULL));
    cqlring_completion completion;
    ck_assert_uint_eq(cqlring_queue_reap(queue, &completion, 1, 1, 20000000, NULL), 1);
    uint32_t two = 2;
    watch_for(&flow, queries_seen, &two);
    ck_assert_uint_eq(walk(cqlring_result_retain(completion.result), NULL, 0, NULL), 10);
    cqlring_completions_release(&completion, 1);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 4);
    cqlring_queue_release(queue);
    flow_close(&flow);
}
END_TEST

struct walker {
    uint32_t rows, pages;
    cqlring_status status;
    atomic_int done;
};

static void take_page(cqlring_future *future, void *context)
{
    struct walker *walker = context;
    cqlring_error error;
    walker->status = cqlring_future_wait(future, 0, &error);
    cqlring_result *page = walker->status == CQLRING_OK ? cqlring_future_completion(future)->result : NULL;
    cqlring_future *next = NULL;
    walker->rows += cqlring_result_row_count(page);
    walker->pages += page != NULL;
    if (page == NULL || cqlring_result_paging_state(page).data == NULL || (walker->status = cqlring_next_page(page, NULL, &next, NULL)) != CQLRING_OK) {
        atomic_store(&walker->done, 1);
        return;
    }
    (void)cqlring_future_on_ready(next, take_page, walker);
    cqlring_future_release(next);
}

static bool walked(struct flow *flow, void *context)
{
    (void)flow;
    return atomic_load(&((struct walker *)context)->done) == 1;
}

START_TEST(callbacks_may_turn_the_pages)
{
    struct flow flow;
    up(&flow, 5, 100);
    struct walker walker = {0};
    cqlring_future *future = ask_start(&flow, ROWS, &ahead);
    flow_ok(cqlring_future_on_ready(future, take_page, &walker));
    cqlring_future_release(future);
    watch_for(&flow, walked, &walker);
    flow_ok(walker.status);
    ck_assert_uint_eq(walker.rows, 100);
    ck_assert_uint_eq(walker.pages, 34);
    ck_assert_uint_eq(ask_seen_count(OPCODE_QUERY), 34);
    flow_close(&flow);
}
END_TEST

struct reader {
    struct flow *flow;
    uint32_t rows;
};

static void *read_all(void *context)
{
    struct reader *reader = context;
    reader->rows = 0;
    for (int i = 0; i < 5; i++)
        reader->rows += walk(first_page(reader->flow, &ahead), NULL, 0, NULL);
    return NULL;
}

START_TEST(many_threads_read_ahead_at_once)
{
    struct flow flow;
    flow_init(&flow);
    if (flow.threads != CQLRING_THREADS_CALLER)
        flow.runtime_options.lanes = 3;
    up_with(&flow, 60);
    pthread_t threads[4];
    struct reader readers[4];
    for (int i = 0; i < 4; i++) {
        readers[i].flow = &flow;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(readers[i].rows, 300);
    }
    ck_assert_uint_eq(flow_stats(&flow).pages_dropped, 0);
    flow_close(&flow);
}
END_TEST

/* ---- jobs ---- */

enum { PARTITIONS = 12, WIDE = 10 };

struct partitions {
    int32_t next, end;
    uint8_t memory[256][4];
    cqlring_bytes cells[256];
};

static int32_t next_partition(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct partitions *all = context;
    uint32_t count = 0;
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    for (; count < capacity && all->next < all->end; count++, all->next++) {
        memcpy(all->memory[count], (uint8_t[]){0, 0, 0, (uint8_t)all->next}, 4);
        all->cells[count] = (cqlring_bytes){all->memory[count], 4};
        rows[count] = (cqlring_row){.cells = &all->cells[count]};
    }
    return (int32_t)count;
}

struct pages_sink {
    uint32_t rows[PARTITIONS], pages, lasts, failed;
    bool out_of_order, ordered;
    uint64_t before;
    uint32_t later_at;       /* says LATER once after so many pages */
    uint32_t stop_at;
    atomic_bool later_said;
};

static cqlring_verdict take_pages(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct pages_sink *sink = context;
    if (sink->later_at > 0 && sink->pages + 1 >= sink->later_at && !atomic_exchange(&sink->later_said, true))
        return CQLRING_LATER;
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *one = &completions[i];
        sink->lasts += (one->flags & CQLRING_COMPLETION_LAST) != 0;
        sink->out_of_order = sink->out_of_order || (sink->ordered && one->row < sink->before);
        sink->before = one->row;
        if (one->status != CQLRING_OK) {
            sink->failed++;
            continue;
        }
        sink->pages++;
        for (uint32_t r = 0; r < cqlring_result_row_count(one->result); r++) /* each partition's rows in turn */
            ck_assert_int_eq(ask_int(one->result, r, 0), (int)sink->rows[one->row]++);
    }
    return sink->stop_at > 0 && sink->pages >= sink->stop_at ? CQLRING_STOP : CQLRING_CONTINUE;
}

static void wide_up(struct flow *flow)
{
    flow_init(flow);
    up_with(flow, 0);
    char message[128];
    for (int p = 0; p < PARTITIONS; p++)
        for (int c = 0; c < WIDE; c++) {
            char cql[96];
            snprintf(cql, sizeof cql, "INSERT INTO ks.wide (p, c) VALUES (%d, %d)", p, c);
            ck_assert_int_eq(node_cql(flow->node, cql, NULL, message, sizeof message), 0);
        }
}

static cqlring_future *job_of(struct flow *flow, cqlring_prepared *select, struct partitions *all, struct pages_sink *sink, bool ordered, uint32_t window, uint64_t bytes_max)
{
    cqlring_job_options options = {.struct_size = sizeof options, .window = window, .ordered = ordered, .execution = &ahead, .bytes_max = bytes_max};
    cqlring_future *job = NULL;
    cqlring_error error;
    sink->ordered = ordered;
    cqlring_status status = cqlring_execute_concurrent(flow->session, &select, 1, &(cqlring_source){next_partition, all}, &(cqlring_sink){take_pages, sink}, 1, &options, &job, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    return job;
}

static bool executes_seen(struct flow *flow, void *count)
{
    (void)flow;
    return ask_seen_count(OPCODE_EXECUTE) >= *(uint32_t *)count;
}

START_TEST(a_jobs_row_reads_on_while_the_sink_has_a_page_and_no_further)
{
    struct flow flow;
    wide_up(&flow);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    struct partitions all = {.end = 1};
    struct pages_sink sink = {.later_at = 1};
    cqlring_future *job = job_of(&flow, select, &all, &sink, _i != 0, 4, 0);
    flow_until(job, &sink.later_said);
    uint32_t two = 2;
    watch_for(&flow, executes_seen, &two);
    ask_pass(&flow, 50);
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 2); /* however long the sink waits */
    ck_assert_uint_eq(sink.pages, 0);
    cqlring_job_poke(job);
    flow_ok(ask_wait(job, NULL));
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_eq(summary.rows, 1);
    ck_assert_uint_eq(summary.low_water, 1);
    cqlring_future_release(job);
    ck_assert_uint_eq(sink.rows[0], WIDE);
    ck_assert_uint_eq(sink.pages, 4);
    ck_assert_uint_eq(sink.lasts, 1);
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 4);
    ck_assert_uint_eq(flow_stats(&flow).pages_ahead, 2); /* the second and the fourth; the third was asked for when the sink had taken both before it */
    ck_assert_uint_eq(flow_stats(&flow).pages_dropped, 0);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(ec_07_every_page_of_every_row_comes_once_and_in_order)
{
    struct flow flow;
    wide_up(&flow);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    for (uint32_t window = 1; window <= 64; window *= 4)
        for (int tight = 0; tight < 2; tight++) {
            struct partitions all = {.end = PARTITIONS};
            struct pages_sink sink = {.later_at = 5};
            ask_record_clear();
            uint64_t before = flow_stats(&flow).pages_ahead;
            cqlring_future *job = job_of(&flow, select, &all, &sink, _i != 0, window, tight == 1 ? 1 : 0);
            flow_until(job, &sink.later_said);
            cqlring_job_poke(job);
            flow_ok(ask_wait(job, NULL));
            cqlring_summary summary;
            cqlring_job_summary(job, &summary);
            ck_assert_uint_eq(summary.rows, PARTITIONS);
            ck_assert_uint_eq(summary.failed, 0);
            ck_assert_uint_eq(summary.low_water, PARTITIONS);
            cqlring_future_release(job);
            for (int p = 0; p < PARTITIONS; p++)
                ck_assert_uint_eq(sink.rows[p], WIDE);
            ck_assert_uint_eq(sink.lasts, PARTITIONS);
            ck_assert_uint_eq(sink.pages, 4 * PARTITIONS);
            ck_assert(!sink.out_of_order);
            ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 4 * PARTITIONS);
            uint64_t were_ahead = flow_stats(&flow).pages_ahead - before;
            ck_assert_uint_le(were_ahead, tight == 1 ? 0 : 3 * PARTITIONS); /* none beyond bytes_max */
            ck_assert(tight == 1 || were_ahead >= PARTITIONS);              /* of each row at least the second */
        }
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

/* A page ahead that fails comes in its turn; a stop, a cancel and a close find both of a row's pages. */
START_TEST(a_jobs_pages_ahead_end_with_it)
{
    struct flow flow;
    wide_up(&flow);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    struct partitions all = {.end = PARTITIONS};
    struct pages_sink sink = {.later_at = 1};
    flow_fault(&flow, "error:opcode=EXECUTE,code=0x2100,after=1,times=1"); /* the second page of the first row */
    all.end = 1;
    cqlring_future *job = job_of(&flow, select, &all, &sink, _i != 0, 1, 0);
    flow_until(job, &sink.later_said);
    cqlring_job_poke(job);
    flow_ok(ask_end(job, NULL));
    ck_assert_uint_eq(sink.pages, 1);
    ck_assert_uint_eq(sink.rows[0], 3);
    ck_assert_uint_eq(sink.failed, 1);
    ck_assert_uint_eq(sink.lasts, 1);
    for (int how = 0; how < 3; how++) {
        all = (struct partitions){.end = PARTITIONS};
        sink = (struct pages_sink){.later_at = how == 0 ? 0 : 3, .stop_at = how == 0 ? 3 : 0};
        job = job_of(&flow, select, &all, &sink, _i != 0, 8, 0);
        if (how > 0)
            flow_until(job, &sink.later_said);
        if (how == 1) {
            cqlring_future_cancel(job);
            cqlring_job_poke(job);
        } else if (how == 2) {
            cqlring_future *closed = NULL;
            flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
            flow_ok(ask_end(closed, NULL));
        }
        cqlring_status status = ask_wait(job, NULL);
        ck_assert_int_eq(status, how == 0 ? CQLRING_OK : how == 1 ? CQLRING_CANCELLED : CQLRING_CLOSED);
        cqlring_summary summary;
        cqlring_job_summary(job, &summary);
        ck_assert_uint_eq(sink.lasts, summary.rows); /* each row that was issued has its end */
        cqlring_future_release(job);
    }
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(each_allocation_fails_in_turn)
{
    struct flow flow;
    up(&flow, 5, 10);
    uint64_t failed = 1;
    for (uint64_t n = 1; failed > 0; n++) {
        ck_assert_uint_lt(n, 1000);
        cqr_mem_fail_at(n, 0);
        cqlring_result *page = NULL;
        cqlring_error error = {0};
        cqlring_status status = ask_text(&flow, ROWS, NULL, 0, &ahead, &page, &error);
        uint32_t rows = 0;
        while (status == CQLRING_OK) {
            rows += cqlring_result_row_count(page);
            if (cqlring_result_paging_state(page).data == NULL)
                break;
            cqlring_result *next = NULL;
            status = ask_next_page(page, NULL, &next, &error);
            if (status == CQLRING_OK) {
                cqlring_result_release(page);
                page = next;
            }
        }
        cqlring_result_release(page);
        failed = cqr_mem_failed_count();
        cqr_mem_fail_at(0, 0);
        if (status == CQLRING_OK)
            ck_assert_uint_eq(rows, 10);
        else /* INVALID: a result that has no memory of its request */
            ck_assert_msg(status == CQLRING_NO_MEMORY || (status == CQLRING_INVALID && strstr(error.message, "out of memory") != NULL), "%s", error.message);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(what_is_no_choice_is_refused)
{
    struct flow flow;
    up(&flow, 5, 1);
    cqlring_execution bad = {.struct_size = sizeof bad, .prefetch = (cqlring_tristate)7};
    cqlring_error error;
    ck_assert_int_eq(ask_text(&flow, ROWS, NULL, 0, &bad, NULL, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "prefetch 7") != NULL, "%s", error.message);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefetch");
    TCase *test = tcase_create("prefetch");
    tcase_set_timeout(test, 120);
    tcase_add_loop_test(test, the_next_page_is_there_before_it_is_asked_for_and_no_further_one, 4, 6);
    tcase_add_loop_test(test, a_whole_result_comes_in_as_many_requests_as_without, 4, 6);
    tcase_add_test(test, a_page_that_nobody_asks_for_goes_with_the_result);
    tcase_add_loop_test(test, what_went_wrong_is_told_when_the_page_is_asked_for_and_it_can_be_asked_for_again, 4, 6);
    tcase_add_test(test, pg_06_the_time_out_of_a_page_ahead_is_that_of_the_first);
    tcase_add_test(test, a_page_asked_for_otherwise_is_read_otherwise);
    tcase_add_test(test, the_same_page_may_be_asked_for_twice);
    tcase_add_test(test, a_page_ahead_may_be_cancelled_and_closed_over);
    tcase_add_test(test, it_counts_in_the_sessions_limits_and_gives_way);
    tcase_add_test(test, of_a_queues_results_too);
    tcase_add_test(test, callbacks_may_turn_the_pages);
    tcase_add_test(test, many_threads_read_ahead_at_once);
    tcase_add_loop_test(test, a_jobs_row_reads_on_while_the_sink_has_a_page_and_no_further, 0, 2);
    tcase_add_loop_test(test, ec_07_every_page_of_every_row_comes_once_and_in_order, 0, 2);
    tcase_add_loop_test(test, a_jobs_pages_ahead_end_with_it, 0, 2);
    tcase_add_test(test, each_allocation_fails_in_turn);
    tcase_add_test(test, what_is_no_choice_is_refused);
    suite_add_tcase(suite, test);
    return flow_main(suite);
}
