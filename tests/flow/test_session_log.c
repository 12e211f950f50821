/* SPDX-License-Identifier: Apache-2.0 */

/* What happens to a session is told to the session that it happened to, with what a program needs to act on it; never with values. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

enum { KEPT_MAX = 512 };

/* What one session was told. */
struct told {
    pthread_mutex_t lock;
    _Atomic(uint32_t) count; /* what is kept before it stays as it is */
    struct {
        cqlring_log_level level;
        cqlring_event event;
        char message[300], address[64], keyspace[64], statement[200];
        bool has_statement, address_fits;
        cqlring_status status;
        int32_t server_code;
        uint32_t more;
    } kept[KEPT_MAX];
};

static struct told first = {.lock = PTHREAD_MUTEX_INITIALIZER}, second = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_event(const cqlring_log_event *event, void *context)
{
    struct told *told = context;
    pthread_mutex_lock(&told->lock);
    if (told->count < KEPT_MAX) {
        uint32_t i = told->count;
        told->kept[i].level = event->level;
        told->kept[i].event = event->event;
        told->kept[i].status = event->status;
        told->kept[i].server_code = event->server_code;
        told->kept[i].more = event->more;
        told->kept[i].has_statement = event->statement.data != NULL;
        snprintf(told->kept[i].message, sizeof told->kept[i].message, "%s", event->message);
        snprintf(told->kept[i].address, sizeof told->kept[i].address, "%s", event->address);
        snprintf(told->kept[i].keyspace, sizeof told->kept[i].keyspace, "%s", event->keyspace);
        snprintf(told->kept[i].statement, sizeof told->kept[i].statement, "%.*s", event->statement.size, event->statement.data != NULL ? (const char *)event->statement.data : "");
        told->kept[i].address_fits = (event->node == NULL) == (event->address[0] == '\0');
        told->count = i + 1;
    }
    pthread_mutex_unlock(&told->lock);
}

static uint32_t count_of(struct told *told, cqlring_event event)
{
    uint32_t count = 0;
    pthread_mutex_lock(&told->lock);
    for (uint32_t i = 0; i < told->count; i++)
        count += told->kept[i].event == event;
    pthread_mutex_unlock(&told->lock);
    return count;
}

/* Index of the first of this kind; it must be there. */
static uint32_t find(struct told *told, cqlring_event event)
{
    uint32_t at = 0;
    pthread_mutex_lock(&told->lock);
    while (at < told->count && told->kept[at].event != event)
        at++;
    bool found = at < told->count;
    pthread_mutex_unlock(&told->lock);
    ck_assert_msg(found, "no event of kind %d", (int)event);
    return at;
}

struct wanted {
    struct told *told;
    cqlring_event event;
    uint32_t count;
};

static bool has(struct flow *flow, void *context)
{
    const struct wanted *wanted = context;
    (void)flow;
    return count_of(wanted->told, wanted->event) >= wanted->count;
}

static void until_told(struct flow *flow, struct told *told, cqlring_event event, uint32_t count)
{
    watch_for(flow, has, (&(struct wanted){told, event, count}));
}

static void begin(struct flow *flow, cqlring_log_level level)
{
    flow_init(flow);
    watch_log(flow);
    flow->session_options.log = on_event;
    flow->session_options.log_context = &first;
    flow->session_options.log_level = level;
    flow->options.reconnect_min_us = 5000;
    flow->options.reconnect_max_us = 20000;
    first.count = second.count = 0;
}

START_TEST(connections_are_told_to_the_session_and_not_to_the_runtimes_log)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_DEBUG);
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_uint_eq(count_of(&first, CQLRING_EVENT_CONNECTED), 1);
    uint32_t at = find(&first, CQLRING_EVENT_CONNECTED);
    char address[64];
    snprintf(address, sizeof address, "%s:%u", node_address(flow.node, 0), node_port(flow.node, 0));
    ck_assert_str_eq(first.kept[at].address, address);
    ck_assert_int_eq(first.kept[at].level, CQLRING_LOG_INFO);
    ck_assert_int_eq(first.kept[at].status, CQLRING_OK);
    ck_assert(!first.kept[at].has_statement);
    ck_assert_uint_eq(watch_log_count("connected to"), 0);
    node_down(flow.node, 0, false);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTION_LOST, 1);
    until_told(&flow, &first, CQLRING_EVENT_CONNECT_FAILED, 3);
    node_up(flow.node, 0, false);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTED, 2);
    at = find(&first, CQLRING_EVENT_CONNECTION_LOST);
    ck_assert_str_eq(first.kept[at].address, address);
    ck_assert_int_eq(first.kept[at].level, CQLRING_LOG_WARN);
    ck_assert_int_ne(first.kept[at].status, CQLRING_OK);
    at = find(&first, CQLRING_EVENT_CONNECT_FAILED);
    ck_assert_str_eq(first.kept[at].address, address);
    uint32_t warned = 0;
    for (uint32_t i = 0; i < first.count; i++) {
        ck_assert(first.kept[i].address_fits);
        warned += first.kept[i].event == CQLRING_EVENT_CONNECT_FAILED && first.kept[i].level == CQLRING_LOG_WARN;
    }
    ck_assert_uint_le(warned, 1); /* further ones are INFO; after a connection that lived short, the first one too */
    ck_assert_uint_eq(watch_log_count("lost the connection to"), 0);
    ck_assert_uint_eq(watch_log_count("connect failed"), 0);
    ck_assert_uint_ge(watch_log_count("topology"), 1); /* what is no session's stays there */
    flow_close(&flow);
}
END_TEST

START_TEST(by_default_what_is_worth_a_warning)
{
    struct flow flow;
    begin(&flow, 0);
    flow_start(&flow);
    flow_open(&flow);
    node_down(flow.node, 0, false);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTION_LOST, 1);
    node_up(flow.node, 0, false);
    ask_until_served(&flow);
    for (uint32_t i = 0; i < first.count; i++)
        ck_assert_int_le(first.kept[i].level, CQLRING_LOG_WARN);
    ck_assert_uint_eq(count_of(&first, CQLRING_EVENT_CONNECTED), 0);
    flow_close(&flow);
}
END_TEST

START_TEST(sessions_that_share_connections_are_both_told_and_who_has_no_log_has_the_runtimes)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_INFO);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_session_options options = flow.session_options;
    cqlring_session *other = NULL, *without = NULL, *elsewhere = NULL;
    options.log_context = &second;
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &other, NULL));
    node_cut(flow.node, 0, 0);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTION_LOST, 1);
    until_told(&flow, &second, CQLRING_EVENT_CONNECTION_LOST, 1);
    until_told(&flow, &second, CQLRING_EVENT_CONNECTED, 1);
    ck_assert_uint_eq(watch_log_count("lost the connection to"), 0);
    options.keyspace = "ks"; /* connections of its own */
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &elsewhere, NULL));
    until_told(&flow, &second, CQLRING_EVENT_CONNECTED, 2);
    ck_assert_str_eq(second.kept[second.count - 1].keyspace, "ks");
    flow_ok(cqlring_session_open_sync(flow.cluster, NULL, &without, NULL));
    node_cut(flow.node, 0, 0);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTION_LOST, 2);
    until_told(&flow, &second, CQLRING_EVENT_CONNECTION_LOST, 3);
    watch_for(&flow, watch_logged, "lost the connection to");
    ck_assert_uint_eq(watch_log_count("lost the connection to"), 1); /* of the pool of `without`, not of ks */
    cqlring_session_release(other);
    cqlring_session_release(without);
    cqlring_session_release(elsewhere);
    flow_close(&flow);
}
END_TEST

static const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};

START_TEST(a_request_given_up_is_told_with_its_statement_and_without_its_values)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_WARN);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "error:opcode=EXECUTE,code=0x1001,message=too much");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("wertvoll")};
    cqlring_error error;
    ck_assert_int_eq(ask_prepared(&flow, insert, values, 2, &idempotent, NULL, &error), CQLRING_SERVER);
    uint32_t at = find(&first, CQLRING_EVENT_GAVE_UP);
    ck_assert_int_eq(first.kept[at].level, CQLRING_LOG_WARN);
    ck_assert_str_eq(first.kept[at].statement, FLOW_INSERT);
    ck_assert_str_eq(first.kept[at].keyspace, "ks");
    ck_assert_str_eq(first.kept[at].address, error.node);
    ck_assert_int_eq(first.kept[at].status, CQLRING_SERVER);
    ck_assert_int_eq(first.kept[at].server_code, 0x1001);
    ck_assert_msg(strstr(first.kept[at].message, "given up after 2 attempts") != NULL && strstr(first.kept[at].message, "too much") != NULL, "%s", first.kept[at].message);
    ck_assert_uint_ge(count_of(&first, CQLRING_EVENT_OVERLOADED), 1);
    node_fault_remove(flow.node, 0);
    flow_fault(&flow, "error:opcode=QUERY,code=0x1001");
    ck_assert_uint_gt(watch_pass(&flow, 1100), 0); /* one a second */
    uint32_t before = count_of(&first, CQLRING_EVENT_GAVE_UP);
    ck_assert_int_eq(ask_text(&flow, "INSERT INTO ks.t (k, v) VALUES (1, textAsBlob('wertvoll'))", NULL, 0, &idempotent, NULL, &error), CQLRING_SERVER);
    ck_assert_uint_eq(count_of(&first, CQLRING_EVENT_GAVE_UP), before + 1); /* its text may hold values */
    ck_assert(!first.kept[first.count - 1].has_statement);
    for (uint32_t i = 0; i < first.count; i++)
        ck_assert(strstr(first.kept[i].message, "wertvoll") == NULL && strstr(first.kept[i].statement, "wertvoll") == NULL);
    node_fault_remove(flow.node, 0);
    /* what was not tried again is the request's own matter, and so is a cancel */
    before = first.count;
    ck_assert_int_eq(ask_text(&flow, "SELECT nonsense", NULL, 0, NULL, NULL, NULL), CQLRING_SERVER);
    ck_assert_uint_eq(first.count, before);
    ck_assert_uint_eq(watch_log_count("given up"), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_flood_is_told_once_a_second_and_counted)
{
    enum { FAILED = 200 };
    struct flow flow;
    begin(&flow, CQLRING_LOG_WARN);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    flow_fault(&flow, "error:opcode=QUERY,code=0x1002"); /* OVERLOADED would be waited for */
    cqlring_future *futures[FAILED];
    int64_t begun = watch_now_us();
    for (int i = 0; i < FAILED; i++)
        futures[i] = ask_start(&flow, "SELECT v FROM ks.t WHERE k = 1", NULL);
    for (int i = 0; i < FAILED; i++)
        ck_assert_int_ne(ask_end(futures[i], NULL), CQLRING_OK);
    int64_t seconds = (watch_now_us() - begun) / 1000000;
    ck_assert_uint_le(count_of(&first, CQLRING_EVENT_GAVE_UP), 1 + (uint32_t)seconds);
    node_fault_remove(flow.node, 0);
    watch_pass(&flow, 1100);
    flow_fault(&flow, "error:opcode=QUERY,code=0x1002");
    ck_assert_int_ne(ask_text(&flow, "SELECT v FROM ks.t WHERE k = 1", NULL, 0, NULL, NULL, NULL), CQLRING_OK);
    uint32_t told = 0;
    for (uint32_t i = 0; i < first.count; i++)
        told += first.kept[i].event == CQLRING_EVENT_GAVE_UP ? 1 + first.kept[i].more : 0;
    ck_assert_uint_eq(told, FAILED + 1);
    flow_close(&flow);
}
END_TEST

START_TEST(servers_warnings_are_told)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_WARN);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    flow_fault(&flow, "warnings:count=3,opcode=EXECUTE");
    cqlring_bytes values[2] = {flow_bigint(1), cqlring_text("v")};
    flow_ok(ask_prepared(&flow, insert, values, 2, NULL, NULL, NULL));
    uint32_t at = find(&first, CQLRING_EVENT_WARNING);
    ck_assert_uint_eq(first.kept[at].more, 2);
    ck_assert_str_eq(first.kept[at].statement, FLOW_INSERT);
    ck_assert_msg(strstr(first.kept[at].message, "warns of EXECUTE") != NULL, "%s", first.kept[at].message);
    ck_assert_uint_eq(watch_log_count("warns of"), 0);
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(a_silent_node_is_told_and_that_it_is_back)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_INFO);
    flow.options.suspect_after_us = 200000;
    flow_start(&flow);
    flow_open(&flow);
    node_freeze(flow.node, 0, -1);
    cqlring_execution long_enough = {.struct_size = sizeof long_enough, .timeout_us = 60000000};
    cqlring_future *future = ask_start(&flow, "SELECT v FROM ks.t WHERE k = 1", &long_enough);
    until_told(&flow, &first, CQLRING_EVENT_SUSPECT, 1);
    node_freeze(flow.node, 0, 0);
    flow_ok(ask_end(future, NULL));
    until_told(&flow, &first, CQLRING_EVENT_TRUSTED, 1);
    flow_close(&flow);
}
END_TEST

START_TEST(after_the_close_nothing_is_told)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_DEBUG);
    flow_start(&flow);
    flow_open(&flow);
    cqlring_session_options options = flow.session_options;
    cqlring_session *other = NULL;
    options.log_context = &second;
    flow_ok(cqlring_session_open_sync(flow.cluster, &options, &other, NULL));
    cqlring_future *closed = NULL;
    flow_ok(cqlring_session_close(other, 0, &closed, NULL));
    flow_ok(ask_end(closed, NULL));
    uint32_t before = second.count;
    node_cut(flow.node, 0, 0);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTION_LOST, 1);
    until_told(&flow, &first, CQLRING_EVENT_CONNECTED, 2);
    ck_assert_uint_eq(second.count, before);
    cqlring_session_release(other);
    flow_close(&flow);
}
END_TEST

START_TEST(without_a_log_of_its_own_the_runtimes_has_it_and_levels_are_checked)
{
    struct flow flow;
    begin(&flow, CQLRING_LOG_DEBUG);
    flow.session_options.log = NULL;
    flow.node_options.nodes = 2;
    flow_start(&flow);
    flow_open(&flow);
    ask_until_connected(&flow);
    ck_assert_uint_ge(watch_log_count("connected to"), 1);
    flow_fault(&flow, "error:opcode=QUERY,code=0x1002");
    ck_assert_int_ne(ask_text(&flow, "SELECT v FROM ks.t WHERE k = 1", NULL, 0, NULL, NULL, NULL), CQLRING_OK);
    ck_assert_uint_eq(watch_log_count("given up after"), 1);
    ck_assert_uint_eq(first.count, 0);
    cqlring_session_options options = {.struct_size = sizeof options, .log = on_event, .log_context = &first, .log_level = (cqlring_log_level)5};
    cqlring_session *session = NULL;
    cqlring_error error;
    ck_assert_int_eq(cqlring_session_open_sync(flow.cluster, &options, &session, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "log_level 5") != NULL, "%s", error.message);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("session_log");
    TCase *test = tcase_create("session_log");
    tcase_set_timeout(test, 120);
    tcase_add_test(test, connections_are_told_to_the_session_and_not_to_the_runtimes_log);
    tcase_add_test(test, by_default_what_is_worth_a_warning);
    tcase_add_test(test, sessions_that_share_connections_are_both_told_and_who_has_no_log_has_the_runtimes);
    tcase_add_test(test, a_request_given_up_is_told_with_its_statement_and_without_its_values);
    tcase_add_test(test, a_flood_is_told_once_a_second_and_counted);
    tcase_add_test(test, servers_warnings_are_told);
    tcase_add_test(test, a_silent_node_is_told_and_that_it_is_back);
    tcase_add_test(test, after_the_close_nothing_is_told);
    tcase_add_test(test, without_a_log_of_its_own_the_runtimes_has_it_and_levels_are_checked);
    suite_add_tcase(suite, test);
    return flow_main(suite);
}
