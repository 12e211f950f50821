/* SPDX-License-Identifier: Apache-2.0 */

/* Pages: the flag of the server alone says whether there are more, and where a page ends the next one begins, whoever asks for it. */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"

/* ks.wide: `partitions` of `rows` each, c counting through. */
static void up(struct flow *flow, int version, int partitions, int rows)
{
    flow_init(flow);
    ask_record(flow);
    flow->options.protocol_version = version;
    flow_start(flow);
    char message[128];
    ck_assert_int_eq(node_cql(flow->node, "CREATE TABLE ks.wide (p int, c int, PRIMARY KEY (p, c))", NULL, message, sizeof message), 0);
    for (int p = 0; p < partitions; p++)
        for (int c = 0; c < rows; c++) {
            char cql[96];
            snprintf(cql, sizeof cql, "INSERT INTO ks.wide (p, c) VALUES (%d, %d)", p, c);
            ck_assert_int_eq(node_cql(flow->node, cql, NULL, message, sizeof message), 0);
        }
    flow_open(flow);
}

#define ONE_PARTITION "SELECT c FROM ks.wide WHERE p = 0"

static cqlring_result *first_page(struct flow *flow, const char *cql, const cqlring_execution *how)
{
    cqlring_result *result = NULL;
    cqlring_error error = {0};
    cqlring_status status = ask_text(flow, cql, NULL, 0, how, &result, &error);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", cql, error.message);
    return result;
}

/* Takes over the first page; adds up its rows and all further ones'; c has to count through from `from`. */
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
        cqlring_result_release(page); /* the next one needs it no more */
        page = next;
    }
    cqlring_future *future = NULL;
    ck_assert_int_eq(cqlring_next_page(page, how, &future, NULL), CQLRING_INVALID);
    cqlring_result_release(page);
    return rows;
}

static const cqlring_execution by_three = {.struct_size = sizeof by_three, .page_size = 3};

START_TEST(pages_follow_one_another_until_the_server_says_so)
{
    struct flow flow;
    up(&flow, _i, 2, 10);
    uint32_t pages = 0;
    ck_assert_uint_eq(walk(first_page(&flow, ONE_PARTITION, &by_three), NULL, 0, &pages), 10);
    ck_assert_uint_eq(pages, 4);
    for (uint32_t i = 0; i < 4; i++) {
        struct node_seen seen = ask_seen_at(OPCODE_QUERY, i);
        ck_assert_int_eq(seen.page_size, 3); /* later pages keep what the first one asked */
        ck_assert_int_eq(seen.has_paging_state, i > 0);
    }
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_bytes value = flow_int(1);
    cqlring_result *result = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, &by_three, &result, NULL));
    cqlring_prepared_release(select); /* a paged result keeps its request, its statement too */
    ck_assert_uint_eq(walk(result, NULL, 0, &pages), 10);
    ck_assert_uint_eq(pages, 4);
    ck_assert_uint_eq(ask_seen_count(OPCODE_EXECUTE), 4);
    ck_assert_uint_eq(walk(first_page(&flow, ONE_PARTITION, NULL), NULL, 0, &pages), 10);
    ck_assert_uint_eq(pages, 1);
    flow_close(&flow);
}
END_TEST

START_TEST(the_next_page_may_be_asked_otherwise)
{
    struct flow flow;
    up(&flow, 5, 1, 20);
    cqlring_execution first = {.struct_size = sizeof first, .page_size = 3, .consistency = CQLRING_QUORUM, .serial_consistency = CQLRING_LOCAL_SERIAL, .tracing = CQLRING_YES};
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &first), *next = NULL;
    flow_ok(ask_next_page(page, NULL, &next, NULL)); /* as before */
    struct node_seen seen = ask_seen(OPCODE_QUERY);
    ck_assert_int_eq(seen.page_size, 3);
    ck_assert_uint_eq(seen.consistency, CQLRING_QUORUM);
    ck_assert_uint_eq(seen.serial_consistency, CQLRING_LOCAL_SERIAL);
    ck_assert_uint_eq(seen.flags & FLAG_TRACING, FLAG_TRACING);
    cqlring_result_release(page);
    cqlring_execution other = {.struct_size = sizeof other, .page_size = 5, .consistency = CQLRING_ONE, .serial_consistency = CQLRING_ANY, .tracing = CQLRING_NO, .now_in_seconds = 77};
    page = next;
    flow_ok(ask_next_page(page, &other, &next, NULL));
    seen = ask_seen(OPCODE_QUERY);
    ck_assert_int_eq(seen.page_size, 5);
    ck_assert_uint_eq(seen.consistency, CQLRING_ONE);
    ck_assert_uint_eq(seen.serial_consistency, 0);
    ck_assert_uint_eq(seen.flags & FLAG_TRACING, 0);
    ck_assert_int_eq(seen.now_in_seconds, 77);
    ck_assert_uint_eq(cqlring_result_row_count(next), 5);
    ck_assert_int_eq(ask_int(next, 0, 0), 6);
    cqlring_result_release(page);
    cqlring_execution all = {.struct_size = sizeof all, .page_size = -1};
    page = next;
    flow_ok(ask_next_page(page, &all, &next, NULL)); /* the rest in one, and what was said before stays said */
    seen = ask_seen(OPCODE_QUERY);
    ck_assert_int_eq(seen.page_size, 0);
    ck_assert_int_eq(seen.now_in_seconds, 77);
    ck_assert_uint_eq(cqlring_result_row_count(next), 20 - 11);
    ck_assert_ptr_null(cqlring_result_paging_state(next).data);
    cqlring_result_release(next);
    /* what cannot be otherwise */
    cqlring_payload_entry entry = {cqlring_text("k"), cqlring_text("v")};
    const cqlring_execution bad[] = {{.struct_size = sizeof *bad, .keyspace = cqlring_text("ks")},
                                     {.struct_size = sizeof *bad, .payload = &entry, .payload_count = 1},
                                     {.struct_size = sizeof *bad, .paging_state = cqlring_result_paging_state(page)},
                                     {.struct_size = sizeof *bad, .page_size = -7},
                                     {.struct_size = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(ask_next_page(page, &bad[i], &next, NULL), CQLRING_INVALID);
    cqlring_result_release(page);
    flow_close(&flow);
}
END_TEST

START_TEST(the_same_page_may_be_asked_for_twice_and_at_once)
{
    struct flow flow;
    up(&flow, 5, 1, 10);
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &by_three);
    cqlring_future *futures[8];
    for (int i = 0; i < 8; i++)
        flow_ok(cqlring_next_page(page, NULL, &futures[i], NULL));
    cqlring_result_release(page);
    for (int i = 0; i < 8; i++) {
        flow_ok(ask_wait(futures[i], NULL));
        cqlring_result *next = cqlring_future_completion(futures[i])->result;
        ck_assert_uint_eq(cqlring_result_row_count(next), 3);
        ck_assert_int_eq(ask_int(next, 0, 0), 3);
        cqlring_future_release(futures[i]);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(a_detached_page_still_leads_on)
{
    struct flow flow;
    up(&flow, 5, 1, 10);
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &by_three), *copy = cqlring_result_detach(page);
    ck_assert_ptr_nonnull(copy);
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(copy, NULL, 0, NULL), 10);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_04_an_empty_last_page_adds_nothing)
{
    struct flow flow;
    up(&flow, _i, 2, 10);
    cqlring_execution how = {.struct_size = sizeof how};
    const int32_t sizes[] = {5000, 5, 3, 1};
    for (int i = 0; i < 4; i++) {
        how.page_size = sizes[i];
        cqlring_result *page = first_page(&flow, "SELECT c FROM ks.wide PER PARTITION LIMIT 5", &how), *next = NULL;
        uint32_t rows = 0;
        for (;;) {
            for (uint32_t r = 0; r < cqlring_result_row_count(page); r++)
                ck_assert_int_eq(ask_int(page, r, 0), rows++ % 5);
            if (cqlring_result_paging_state(page).data == NULL)
                break;
            flow_ok(ask_next_page(page, NULL, &next, NULL));
            cqlring_result_release(page);
            page = next;
        }
        cqlring_result_release(page);
        ck_assert_uint_eq(rows, 10);
    }
    flow_close(&flow);
}
END_TEST

START_TEST(pg_04_empty_pages_with_more_to_come_are_no_end)
{
    struct flow flow;
    up(&flow, _i, 1, 10);
    flow_fault(&flow, "empty-page:every=2,table=ks.wide");
    uint32_t pages = 0;
    ck_assert_uint_eq(walk(first_page(&flow, ONE_PARTITION, &by_three), NULL, 0, &pages), 10);
    ck_assert_uint_gt(pages, 4);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_05_a_page_larger_than_asked_is_taken_as_it_is)
{
    struct flow flow;
    up(&flow, _i, 1, 5);
    flow_fault(&flow, "large-page:times=1,table=ks.wide");
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &by_three), *next = NULL;
    ck_assert_uint_eq(cqlring_result_row_count(page), 4);
    ck_assert_ptr_nonnull(cqlring_result_paging_state(page).data);
    flow_ok(ask_next_page(page, NULL, &next, NULL));
    ck_assert_uint_eq(cqlring_result_row_count(next), 1);
    ck_assert_int_eq(ask_int(next, 0, 0), 4);
    ck_assert_ptr_null(cqlring_result_paging_state(next).data);
    cqlring_result_release(page);
    cqlring_result_release(next);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_06_the_time_out_of_the_first_page_is_that_of_the_later_ones)
{
    struct flow flow;
    up(&flow, 5, 1, 5);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_execution how = {.struct_size = sizeof how, .page_size = 2, .timeout_us = 300000};
    cqlring_bytes value = flow_int(0);
    cqlring_result *page = NULL, *next = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, &how, &page, NULL));
    flow_fault(&flow, "late:delay_us=1000000,times=1,opcode=EXECUTE");
    cqlring_error error;
    ck_assert_int_eq(ask_next_page(page, NULL, &next, &error), CQLRING_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(error.message, "300 ms"));
    cqlring_execution patient = {.struct_size = sizeof patient, .timeout_us = 10000000};
    flow_ok(ask_next_page(page, &patient, &next, &error)); /* the page that timed out can be had again, with more time */
    ck_assert_int_eq(ask_int(next, 0, 0), 2);
    cqlring_result_release(page);
    cqlring_result_release(next);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_06_paging_can_be_switched_off_for_one_statement)
{
    struct flow flow;
    up(&flow, 5, 1, 30);
    cqlring_execution off = {.struct_size = sizeof off, .page_size = -1};
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &off);
    ck_assert_int_eq(ask_seen(OPCODE_QUERY).page_size, 0);
    ck_assert_uint_eq(cqlring_result_row_count(page), 30);
    cqlring_result_release(page);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_bytes value = flow_int(0);
    flow_ok(ask_prepared(&flow, select, &value, 1, &off, &page, NULL));
    ck_assert_int_eq(ask_seen(OPCODE_EXECUTE).page_size, 0);
    ck_assert_uint_eq(cqlring_result_row_count(page), 30);
    cqlring_result_release(page);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_07_a_first_page_that_fails_is_an_error_and_nothing_more)
{
    struct flow flow;
    up(&flow, 5, 1, 5);
    flow_fault(&flow, "error:code=0x1100,times=1,table=ks.wide");
    cqlring_result *page = NULL;
    cqlring_error error;
    ck_assert_int_eq(ask_text(&flow, ONE_PARTITION, NULL, 0, &by_three, &page, &error), CQLRING_SERVER);
    ck_assert_int_eq(error.server_code, 0x1100);
    ck_assert_ptr_null(page);
    ck_assert_uint_eq(error.may_have_been_applied, 0); /* of a read */
    ck_assert_uint_eq(walk(first_page(&flow, ONE_PARTITION, &by_three), NULL, 0, NULL), 5);
    /* and a later one leaves the page before it as it was */
    page = first_page(&flow, ONE_PARTITION, &by_three);
    flow_fault(&flow, "error:code=0x1100,times=1,table=ks.wide");
    cqlring_result *next = NULL;
    ck_assert_int_eq(ask_next_page(page, NULL, &next, &error), CQLRING_SERVER);
    ck_assert_uint_eq(walk(page, NULL, 0, NULL), 5);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_08_a_saved_state_goes_on_in_another_session_of_another_cluster)
{
    struct flow flow;
    up(&flow, _i, 1, 10);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_bytes value = flow_int(0);
    cqlring_result *page = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, &by_three, &page, NULL));
    uint8_t saved[256];
    cqlring_bytes state = cqlring_result_paging_state(page);
    ck_assert_uint_le((size_t)state.size, sizeof saved);
    memcpy(saved, state.data, (size_t)state.size);
    int32_t size = state.size;
    cqlring_result_release(page);
    cqlring_prepared_release(select);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow.session = NULL;
    flow.cluster = NULL;
    flow_open(&flow);
    select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_execution how = by_three;
    how.paging_state = (cqlring_bytes){saved, size};
    flow_ok(ask_prepared(&flow, select, &value, 1, &how, &page, NULL));
    memset(saved, 0xFF, sizeof saved); /* it was copied */
    ck_assert_uint_eq(walk(page, NULL, 3, NULL), 7);
    cqlring_prepared_release(select);
    flow_close(&flow);
}
END_TEST

START_TEST(pg_08_a_state_that_is_garbage_is_the_servers_error_and_never_row_one)
{
    struct flow flow;
    up(&flow, _i, 1, 10);
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &by_three), *other = first_page(&flow, "SELECT p, c FROM ks.wide", &by_three);
    uint8_t garbage[64], truncated[256];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)(i * 37 + 11);
    cqlring_bytes state = cqlring_result_paging_state(page);
    memcpy(truncated, state.data, (size_t)state.size);
    const cqlring_bytes bad[] = {{garbage, sizeof garbage}, {garbage, 1}, {truncated, state.size - 1}, {truncated, state.size / 2}, cqlring_result_paging_state(other), {"", 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cqlring_execution how = by_three;
        how.paging_state = bad[i];
        cqlring_error error = {0};
        cqlring_result *result = NULL;
        cqlring_status status = ask_text(&flow, ONE_PARTITION, NULL, 0, &how, &result, &error);
        ck_assert(ask_seen(OPCODE_QUERY).has_paging_state); /* also the empty one is sent: it is not for us to judge */
        ck_assert_msg(status == CQLRING_SERVER, "state %zu: %s", i, cqlring_status_name(status));
        ck_assert_msg(error.server_code == 0x2200 || error.server_code == 0x000A, "state %zu: 0x%04x", i, (unsigned)error.server_code);
        ck_assert_ptr_null(result);
    }
    cqlring_result_release(other);
    ck_assert_uint_eq(walk(page, NULL, 0, NULL), 10);
    ck_assert_uint_eq(flow_stats(&flow).connections_lost, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(a_statement_forgotten_between_two_pages_is_prepared_again_in_the_middle)
{
    struct flow flow;
    up(&flow, _i, 1, 10);
    cqlring_prepared *select = flow_prepare(&flow, "SELECT c FROM ks.wide WHERE p = ?");
    cqlring_bytes value = flow_int(0);
    cqlring_result *page = NULL, *next = NULL;
    flow_ok(ask_prepared(&flow, select, &value, 1, &by_three, &page, NULL));
    node_forget_prepared(flow.node, NODE_ALL);
    flow_ok(ask_next_page(page, NULL, &next, NULL));
    ck_assert_int_eq(ask_int(next, 0, 0), 3);
    ck_assert_uint_eq(ask_seen_count(OPCODE_PREPARE), 2);
    cqlring_result_release(page);
    ck_assert_uint_eq(walk(next, NULL, 3, NULL), 7);
    cqlring_prepared_release(select);
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
    walker->status = cqlring_future_wait(future, 0, NULL);
    cqlring_result *page = walker->status == CQLRING_OK ? cqlring_future_completion(future)->result : NULL;
    cqlring_future *next = NULL;
    if (page != NULL) {
        walker->rows += cqlring_result_row_count(page);
        walker->pages++;
    }
    if (page == NULL || cqlring_result_paging_state(page).data == NULL || (walker->status = cqlring_next_page(page, NULL, &next, NULL)) != CQLRING_OK) {
        atomic_store(&walker->done, 1);
        return;
    }
    (void)cqlring_future_on_ready(next, take_page, walker);
    cqlring_future_release(next);
}

START_TEST(callbacks_may_turn_the_pages)
{
    struct flow flow;
    up(&flow, 5, 1, 100);
    struct walker walker = {0};
    cqlring_future *future = ask_start(&flow, ONE_PARTITION, &by_three);
    flow_ok(cqlring_future_on_ready(future, take_page, &walker));
    cqlring_future_release(future);
    for (int i = 0; i < 10000 && atomic_load(&walker.done) == 0; i++)
        flow_cql(&flow, "SELECT k FROM ks.t");
    ck_assert_int_eq(atomic_load(&walker.done), 1);
    flow_ok(walker.status);
    ck_assert_uint_eq(walker.rows, 100);
    ck_assert_uint_eq(walker.pages, 34);
    flow_close(&flow);
}
END_TEST

START_TEST(a_page_may_outlive_its_session_and_then_leads_nowhere)
{
    struct flow flow;
    up(&flow, 5, 1, 10);
    cqlring_result *page = first_page(&flow, ONE_PARTITION, &by_three);
    cqlring_future *closed = NULL, *next = NULL;
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    ck_assert_int_eq(ask_int(page, 2, 0), 2);
    ck_assert_int_eq(cqlring_next_page(page, NULL, &next, NULL), CQLRING_CLOSED);
    cqlring_session_release(flow.session);
    cqlring_cluster_release(flow.cluster);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    node_cluster_stop(flow.node);
    ck_assert_int_eq(cqlring_next_page(page, NULL, &next, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(ask_int(page, 1, 0), 1);
    cqlring_result_release(page);
    ask_nothing_left();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("paging");
    TCase *tcase = tcase_create("paging");
    tcase_add_loop_test(tcase, pages_follow_one_another_until_the_server_says_so, 4, 6);
    tcase_add_test(tcase, the_next_page_may_be_asked_otherwise);
    tcase_add_test(tcase, the_same_page_may_be_asked_for_twice_and_at_once);
    tcase_add_test(tcase, a_detached_page_still_leads_on);
    tcase_add_loop_test(tcase, pg_04_an_empty_last_page_adds_nothing, 4, 6);
    tcase_add_loop_test(tcase, pg_04_empty_pages_with_more_to_come_are_no_end, 4, 6);
    tcase_add_loop_test(tcase, pg_05_a_page_larger_than_asked_is_taken_as_it_is, 4, 6);
    tcase_add_test(tcase, pg_06_the_time_out_of_the_first_page_is_that_of_the_later_ones);
    tcase_add_test(tcase, pg_06_paging_can_be_switched_off_for_one_statement);
    tcase_add_test(tcase, pg_07_a_first_page_that_fails_is_an_error_and_nothing_more);
    tcase_add_loop_test(tcase, pg_08_a_saved_state_goes_on_in_another_session_of_another_cluster, 4, 6);
    tcase_add_loop_test(tcase, pg_08_a_state_that_is_garbage_is_the_servers_error_and_never_row_one, 4, 6);
    tcase_add_loop_test(tcase, a_statement_forgotten_between_two_pages_is_prepared_again_in_the_middle, 4, 6);
    tcase_add_test(tcase, callbacks_may_turn_the_pages);
    tcase_add_test(tcase, a_page_may_outlive_its_session_and_then_leads_nowhere);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
