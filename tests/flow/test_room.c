/* SPDX-License-Identifier: Apache-2.0 */

/* Waiting for room in a session that has as much under way as it may: told in turn, in time, and once. */

#include <string.h>

#include "ask.h"
#include "watch.h"

enum { FEW = 4 };

static void few(struct flow *flow)
{
    flow_init(flow);
    flow->session_options.requests_max = FEW;
    flow_start(flow);
    flow_open(flow);
    ask_until_connected(flow);
}

static const char *const query = "SELECT v FROM ks.t WHERE k = 1";

static cqlring_status try_start(struct flow *flow, cqlring_future **future)
{
    cqlring_request request = {.session = flow->session, .cql = cqlring_text(query)};
    return cqlring_execute(&request, future, NULL);
}

static cqlring_future *room(struct flow *flow, uint64_t bytes, int64_t timeout_us)
{
    cqlring_future *future = NULL;
    cqlring_error error;
    ck_assert_msg(cqlring_session_room(flow->session, bytes, timeout_us, &future, &error) == CQLRING_OK, "%s", error.message);
    return future;
}

START_TEST(it_is_told_when_a_request_has_ended)
{
    struct flow flow;
    cqlring_future *under_way[FEW], *one_more = NULL;
    few(&flow);
    cqlring_future *waits = room(&flow, 0, 0); /* there is room */
    ck_assert_int_eq(ask_end(waits, NULL), CQLRING_OK);
    node_freeze(flow.node, 0, -1);
    for (int i = 0; i < FEW; i++)
        flow_ok(try_start(&flow, &under_way[i]));
    ck_assert_int_eq(try_start(&flow, &one_more), CQLRING_FULL);
    waits = room(&flow, 0, -1);
    ask_pass(&flow, 50);
    ck_assert(!cqlring_future_ready(waits));
    node_freeze(flow.node, 0, 0);
    ck_assert_int_eq(ask_end(waits, NULL), CQLRING_OK);
    flow_ok(try_start(&flow, &one_more));
    ck_assert_int_eq(ask_end(one_more, NULL), CQLRING_OK);
    for (int i = 0; i < FEW; i++)
        ck_assert_int_eq(ask_end(under_way[i], NULL), CQLRING_OK);
    flow_close(&flow);
}
END_TEST

START_TEST(bytes_are_waited_for_too)
{
    static uint8_t blob[6000];
    struct flow flow;
    flow_init(&flow);
    flow.session_options.bytes_max = 10000;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    node_freeze(flow.node, 0, -1);
    cqlring_bytes values[2] = {flow_bigint(1), {blob, sizeof blob}};
    cqlring_future *large = ask_start_prepared(&flow, insert, values, 2, NULL);
    ck_assert_int_eq(ask_end(room(&flow, 3000, 0), NULL), CQLRING_OK);
    cqlring_error error;
    ck_assert_int_eq(ask_end(room(&flow, 5000, 0), &error), CQLRING_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(error.message, "bytes_max 10000"));
    cqlring_future *waits = room(&flow, 5000, -1), *more = room(&flow, 50000, -1), *behind = room(&flow, 0, -1);
    ask_pass(&flow, 20);
    ck_assert(!cqlring_future_ready(waits) && !cqlring_future_ready(more) && !cqlring_future_ready(behind));
    node_freeze(flow.node, 0, 0);
    ck_assert_int_eq(ask_end(waits, NULL), CQLRING_OK);
    ck_assert_int_eq(ask_wait(large, NULL), CQLRING_OK);
    cqlring_future_release(large);
    ck_assert_int_eq(ask_end(more, NULL), CQLRING_OK); /* larger than all there is: alone, which it may be though the first asked nothing */
    ck_assert_int_eq(ask_end(behind, NULL), CQLRING_OK);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(who_stands_first_and_gives_up_keeps_nobody_behind_waiting)
{
    static uint8_t blob[6000];
    struct flow flow;
    flow_init(&flow);
    flow.session_options.bytes_max = 10000;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    node_freeze(flow.node, 0, -1);
    cqlring_bytes values[2] = {flow_bigint(1), {blob, sizeof blob}};
    cqlring_future *large = ask_start_prepared(&flow, insert, values, 2, NULL); /* which stays under way */
    cqlring_future *late = room(&flow, 5000, 20000), *behind = room(&flow, 1000, -1);
    ck_assert_int_eq(ask_end(late, NULL), CQLRING_TIMEOUT);
    ck_assert_int_eq(cqlring_future_wait(behind, 5000000, NULL), CQLRING_OK);
    cqlring_future_release(behind);
    cqlring_future *gone = room(&flow, 5000, -1);
    behind = room(&flow, 1000, -1);
    cqlring_future_cancel(gone);
    ck_assert_int_eq(ask_end(gone, NULL), CQLRING_CANCELLED);
    ck_assert_int_eq(cqlring_future_wait(behind, 5000000, NULL), CQLRING_OK);
    cqlring_future_release(behind);
    node_freeze(flow.node, 0, 0);
    ck_assert_int_eq(ask_wait(large, NULL), CQLRING_OK);
    cqlring_future_release(large);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_wait_that_was_let_go_takes_no_room_from_those_behind_it)
{
    struct flow flow;
    cqlring_future *under_way[FEW];
    few(&flow);
    node_freeze(flow.node, 0, -1);
    for (int i = 0; i < FEW; i++)
        flow_ok(try_start(&flow, &under_way[i]));
    cqlring_future_release(room(&flow, 0, -1));
    cqlring_future_release(room(&flow, UINT64_MAX, -1));
    cqlring_future *waits = room(&flow, 0, -1);
    cqlring_future_cancel(under_way[0]); /* one place; the others stay taken */
    ck_assert_int_eq(ask_end(under_way[0], NULL), CQLRING_CANCELLED);
    ck_assert_int_eq(cqlring_future_wait(waits, 5000000, NULL), CQLRING_OK);
    cqlring_future_release(waits);
    node_freeze(flow.node, 0, 0);
    for (int i = 1; i < FEW; i++)
        ck_assert_int_eq(ask_end(under_way[i], NULL), CQLRING_OK);
    flow_close(&flow);
}
END_TEST

START_TEST(it_ends_in_time_when_cancelled_and_when_the_session_is_closed)
{
    struct flow flow;
    cqlring_future *under_way[FEW];
    cqlring_error error;
    few(&flow);
    node_freeze(flow.node, 0, -1);
    for (int i = 0; i < FEW; i++)
        flow_ok(try_start(&flow, &under_way[i]));
    int64_t before = watch_now_us();
    cqlring_future *waits = room(&flow, 0, 100000);
    ck_assert_int_eq(ask_end(waits, &error), CQLRING_TIMEOUT);
    ck_assert_int_ge(watch_now_us() - before, 100000);
    ck_assert_msg(strstr(error.message, "100 ms") != NULL && strstr(error.message, "4 requests (requests_max 4)") != NULL, "%s", error.message);
    waits = room(&flow, 0, 0);
    ck_assert_int_eq(ask_end(waits, NULL), CQLRING_TIMEOUT);

    waits = room(&flow, 0, -1);
    cqlring_future *other = room(&flow, 0, -1);
    cqlring_future_cancel(waits);
    cqlring_future_cancel(waits);
    ck_assert_int_eq(ask_end(waits, NULL), CQLRING_CANCELLED);
    ask_pass(&flow, 5);
    ck_assert(!cqlring_future_ready(other));
    waits = room(&flow, 0, -1);
    cqlring_future_release(waits); /* nobody cares any more */

    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(flow.session, 0, &closed, NULL));
    ck_assert_int_eq(ask_end(other, NULL), CQLRING_CLOSED);
    ck_assert_int_eq(ask_end(closed, NULL), CQLRING_OK);
    ck_assert_int_eq(cqlring_session_room(flow.session, 0, -1, &waits, &error), CQLRING_CLOSED);
    for (int i = 0; i < FEW; i++)
        ck_assert_int_eq(ask_end(under_way[i], NULL), CQLRING_CLOSED);
    node_freeze(flow.node, 0, 0);
    flow_close(&flow);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
    struct flow flow;
    cqlring_future *future;
    cqlring_error error;
    few(&flow);
    ck_assert_int_eq(cqlring_session_room(NULL, 0, -1, &future, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_session_room(flow.session, 0, -1, NULL, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_session_room(flow.session, 0, -2, &future, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "timeout_us -2"));
    flow_close(&flow);
}
END_TEST

/* Hundreds that ask again whenever there is room, through callbacks and on several lanes: all get through, none is forgotten. */
enum { MANY = 300, EACH = 10 };
static struct crowd {
    struct flow *flow;
    atomic_uint left, answered, refused, wrong;
    uint32_t turns[MANY];
} crowd;

static void crowd_told(cqlring_future *future, void *context);

static void crowd_wait(uint32_t *turns)
{
    cqlring_future *future;
    if (cqlring_session_room(crowd.flow->session, 0, -1, &future, NULL) != CQLRING_OK ||
        cqlring_future_on_ready(future, crowd_told, turns) != CQLRING_OK)
        atomic_fetch_add(&crowd.wrong, 1);
    cqlring_future_release(future);
}

static void crowd_answered(cqlring_future *future, void *context)
{
    uint32_t *turns = context;
    if (cqlring_future_wait(future, 0, NULL) != CQLRING_OK)
        atomic_fetch_add(&crowd.wrong, 1);
    atomic_fetch_add(&crowd.answered, 1);
    if (++*turns < EACH)
        crowd_wait(turns);
    else
        atomic_fetch_sub(&crowd.left, 1);
}

static void crowd_told(cqlring_future *future, void *context)
{
    cqlring_future *request;
    cqlring_status status = cqlring_future_wait(future, 0, NULL);
    if (status == CQLRING_OK)
        status = try_start(crowd.flow, &request);
    if (status == CQLRING_FULL) { /* somebody was quicker */
        atomic_fetch_add(&crowd.refused, 1);
        crowd_wait(context);
        return;
    }
    if (status != CQLRING_OK) {
        atomic_fetch_add(&crowd.wrong, 1);
        return;
    }
    (void)cqlring_future_on_ready(request, crowd_answered, context);
    cqlring_future_release(request);
}

static bool crowd_is_through(struct flow *flow, void *unused)
{
    (void)flow;
    (void)unused;
    return atomic_load(&crowd.left) == 0;
}

START_TEST(a_crowd_gets_through)
{
    struct flow flow;
    flow_init(&flow);
    flow.session_options.requests_max = FEW;
    flow.runtime_options.lanes = flow.threads == CQLRING_THREADS_CALLER ? 1 : 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    memset(&crowd, 0, sizeof crowd);
    crowd.flow = &flow;
    atomic_store(&crowd.left, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        crowd_wait(&crowd.turns[i]);
    watch_for(&flow, crowd_is_through, NULL);
    ck_assert_uint_eq(atomic_load(&crowd.answered), MANY * EACH);
    ck_assert_uint_eq(atomic_load(&crowd.wrong), 0);
    ck_assert_uint_lt(atomic_load(&crowd.refused), 4 * MANY * EACH);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("room");
    TCase *tcase = tcase_create("room");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, it_is_told_when_a_request_has_ended);
    tcase_add_test(tcase, bytes_are_waited_for_too);
    tcase_add_test(tcase, who_stands_first_and_gives_up_keeps_nobody_behind_waiting);
    tcase_add_test(tcase, a_wait_that_was_let_go_takes_no_room_from_those_behind_it);
    tcase_add_test(tcase, it_ends_in_time_when_cancelled_and_when_the_session_is_closed);
    tcase_add_test(tcase, what_makes_no_sense_is_refused);
    tcase_add_test(tcase, a_crowd_gets_through);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
