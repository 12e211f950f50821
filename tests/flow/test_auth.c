/* SPDX-License-Identifier: Apache-2.0 */

/* Credentials: who gets in, what the others are told, and that no secret is ever said. */

#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "watch.h"

#define SECRET "s3cret-Pa55wörd"

static void start(struct flow *flow, const char *user, const char *password)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.user = "cassandra";
    flow->node_options.password = SECRET;
    flow->options.user = user;
    flow->options.password = password;
}

static void ck_assert_in(struct flow *flow, const char *user)
{
    struct node_conn_info conns[8];
    ck_assert_uint_eq(node_conns(flow->node, NODE_ALL, conns, 8), 2);
    for (int i = 0; i < 2; i++)
        ck_assert_str_eq(conns[i].user, user);
    flow_cql(flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
}

START_TEST(the_right_credentials_are_let_in)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, "cassandra", SECRET);
        flow.options.protocol_version = version;
        flow_start(&flow);
        flow_open(&flow);
        ck_assert_in(&flow, "cassandra");
        flow_close(&flow);
        ck_assert_uint_eq(watch_log_count(SECRET), 0);
    }
}
END_TEST

START_TEST(wrong_credentials_are_told_in_the_servers_words_and_no_secret_is_said)
{
    static const char *const passwords[] = {"wrong-Pa55", "", SECRET "x"};
    for (int32_t version = 4; version <= 5; version++)
        for (int i = 0; i < 3; i++) {
            struct flow flow;
            start(&flow, "cassandra", passwords[i]);
            flow.options.protocol_version = version;
            flow_start(&flow);
            cqlring_error error = {0};
            ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_AUTH);
            ck_assert_int_eq(error.status, CQLRING_AUTH);
            ck_assert_ptr_nonnull(strstr(error.message, "Provided username and/or password are incorrect"));
            ck_assert_ptr_nonnull(strstr(error.message, node_address(flow.node, 0)));
            ck_assert_int_eq(error.server_code, 0x0100);
            ck_assert_int_eq(strncmp(error.node, node_address(flow.node, 0), strlen(node_address(flow.node, 0))), 0);
            if (passwords[i][0] != '\0') {
                ck_assert_ptr_null(strstr(error.message, passwords[i]));
                ck_assert_uint_eq(watch_log_count(passwords[i]), 0);
            }
            struct node_counters counters;
            node_counters(flow.node, NODE_ALL, &counters);
            ck_assert_uint_eq(counters.refused, 1); /* not tried over and over: accounts get locked */
            flow_close(&flow);
        }
}
END_TEST

START_TEST(no_credentials_where_they_are_asked_for_is_told_with_the_authenticator)
{
    struct flow flow;
    start(&flow, NULL, NULL);
    flow_start(&flow);
    cqlring_error error = {0};
    ck_assert_int_eq(flow_try_open(&flow, &error), CQLRING_AUTH);
    ck_assert_ptr_nonnull(strstr(error.message, "PasswordAuthenticator"));
    ck_assert_ptr_nonnull(strstr(error.message, "user and password"));
    flow_close(&flow);
}
END_TEST

START_TEST(a_user_without_a_password_is_refused_at_the_call)
{
    struct flow flow;
    start(&flow, "cassandra", NULL);
    flow.options.port = 1;
    flow_ok(cqlring_runtime_create(&flow.runtime_options, &flow.runtime, NULL));
    cqlring_future *future;
    cqlring_error error;
    ck_assert_int_eq(cqlring_cluster_open(flow.runtime, &flow.options, &future, &error), CQLRING_INVALID);
    char large[5000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    flow.options.password = large;
    ck_assert_int_eq(cqlring_cluster_open(flow.runtime, &flow.options, &future, &error), CQLRING_INVALID);
    ck_assert_ptr_null(strstr(error.message, "xxxx"));
    flow_close(&flow);
}
END_TEST

START_TEST(au_06_credentials_that_nobody_asks_for_do_no_harm)
{
    struct flow flow;
    flow_init(&flow);
    flow.options.user = "cassandra";
    flow.options.password = SECRET;
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_in(&flow, "");
    struct node_counters counters;
    node_counters(flow.node, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.opcodes[OPCODE_AUTH_RESPONSE], 0);
    flow_close(&flow);
}
END_TEST

START_TEST(au_06_an_authenticator_of_another_name_is_answered_all_the_same)
{
    struct flow flow;
    start(&flow, "cassandra", SECRET);
    flow.node_options.authenticator = "com.example.auth.TransitionalAuthenticatorOfOurOwn";
    flow_start(&flow);
    flow_open(&flow);
    ck_assert_in(&flow, "cassandra");
    flow_close(&flow);
}
END_TEST

START_TEST(au_06_every_round_of_challenges_is_answered)
{
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, "cassandra", SECRET);
        flow.options.protocol_version = version;
        flow.node_options.auth_rounds = 4;
        flow_start(&flow);
        flow_open(&flow);
        struct node_counters counters;
        node_counters(flow.node, NODE_ALL, &counters);
        ck_assert_uint_eq(counters.opcodes[OPCODE_AUTH_RESPONSE], 2 * 5);
        ck_assert_in(&flow, "cassandra");
        flow_close(&flow);
    }
}
END_TEST

START_TEST(au_02_long_credentials_arrive_whole)
{
    char user[201], password[301];
    memset(user, 'u', 200);
    memset(password, 'p', 300);
    user[200] = password[300] = '\0';
    for (int32_t version = 4; version <= 5; version++) {
        struct flow flow;
        start(&flow, user, password);
        flow.options.protocol_version = version;
        flow.node_options.user = user;
        flow.node_options.password = password;
        flow_start(&flow);
        flow_open(&flow);
        flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
        flow_close(&flow);
    }
}
END_TEST

/* The NUL inside cannot be said here, where texts end with one; the token's own test has it. */
START_TEST(au_03_accents_and_emoji_go_as_utf_8_and_a_password_may_be_empty)
{
    static const char *const pairs[][2] = {{"Käthe", "pässwörd-🔑"}, {"u", ""}, {"ユーザー", "パスワード"}};
    for (int i = 0; i < 3; i++) {
        struct flow flow;
        start(&flow, pairs[i][0], pairs[i][1]);
        flow.node_options.user = pairs[i][0];
        flow.node_options.password = pairs[i][1];
        flow_start(&flow);
        flow_open(&flow);
        ck_assert_in(&flow, pairs[i][0]);
        flow_close(&flow);
    }
}
END_TEST

/* One of three nodes does not want us: the others serve, and why is said in the log and in errors of requests for it. */
START_TEST(au_04_a_node_that_refuses_does_not_keep_us_from_the_others)
{
    struct flow flow;
    flow_init(&flow);
    watch_log(&flow);
    flow.node_options.nodes = 3;
    flow.options.reconnect_min_us = 20000;
    flow.options.reconnect_max_us = 50000;
    flow_start(&flow);
    flow_fault(&flow, "error:code=0x0100,opcode=STARTUP,node=2");
    flow_open(&flow);
    watch_for(&flow, watch_logged, "authentication failed: Provided username and/or password are incorrect");
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    flow_rows_init(&rows, 2000, 8);
    cqlring_summary summary;
    flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, &summary, NULL));
    ck_assert_uint_eq(summary.failed, 0);
    flow_rows_fini(&rows);
    ck_assert_uint_eq(watch_up_count(&flow), 2);
    const cqlring_node *nodes[3], *bad = NULL;
    ck_assert_uint_eq(cqlring_cluster_nodes(flow.cluster, nodes, 3), 3);
    for (int i = 0; i < 3; i++) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        if (!info.is_up)
            bad = nodes[i];
    }
    cqlring_execution how = {.struct_size = sizeof how, .target = bad, .timeout_us = 2000000};
    cqlring_error error = {0};
    cqlring_status status = ask_text(&flow, "SELECT key FROM system.local", NULL, 0, &how, NULL, &error);
    ck_assert_msg(status == CQLRING_UNREACHABLE, "%s: %s", cqlring_status_name(status), error.message);
    ck_assert_ptr_nonnull(strstr(error.message, "authentication failed"));
    node_fault_remove(flow.node, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){3});
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Passwords change while we run: what is open goes on, what connects anew is told. */
static bool never(const struct node_counters *all, void *context)
{
    (void)all;
    (void)context;
    return false;
}

START_TEST(a_reconnect_that_is_refused_says_why_in_the_requests_that_wait)
{
    struct flow flow;
    start(&flow, "cassandra", SECRET);
    flow.options.reconnect_min_us = 20000;
    flow.options.reconnect_max_us = 50000;
    flow_start(&flow);
    flow_open(&flow);
    flow_fault(&flow, "error:code=0x0100,opcode=AUTH_RESPONSE");
    node_cut(flow.node, NODE_ALL, 0);
    watch_for(&flow, watch_logged, "authentication failed");
    cqlring_error error = {0};
    cqlring_status status = CQLRING_OK;
    for (int i = 0; i < 100 && status != CQLRING_UNREACHABLE; i++)
        status = flow_try(&flow, "SELECT key FROM system.local", NULL, &error);
    ck_assert_int_eq(status, CQLRING_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(error.message, "authentication failed"));
    ck_assert_ptr_null(strstr(error.message, SECRET));
    node_fault_remove(flow.node, 0);
    watch_for(&flow, watch_all_up, &(uint32_t){1});
    /* the control connection comes back on its own time */
    struct node_conn_info conns[8];
    for (int i = 0; i < 500 && (node_conns(flow.node, NODE_ALL, conns, 8) != 2 || !conns[0].ready || !conns[1].ready); i++) {
        flow_cql(&flow, "SELECT key FROM system.local");
        node_wait(flow.node, never, 10, NULL);
    }
    flow_cql(&flow, "INSERT INTO ks.t (k, v) VALUES (1, 0x01)");
    flow_close(&flow);
    ck_assert_uint_eq(watch_log_count(SECRET), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth");
    TCase *tcase = tcase_create("auth");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_right_credentials_are_let_in);
    tcase_add_test(tcase, wrong_credentials_are_told_in_the_servers_words_and_no_secret_is_said);
    tcase_add_test(tcase, no_credentials_where_they_are_asked_for_is_told_with_the_authenticator);
    tcase_add_test(tcase, a_user_without_a_password_is_refused_at_the_call);
    tcase_add_test(tcase, au_06_credentials_that_nobody_asks_for_do_no_harm);
    tcase_add_test(tcase, au_06_an_authenticator_of_another_name_is_answered_all_the_same);
    tcase_add_test(tcase, au_06_every_round_of_challenges_is_answered);
    tcase_add_test(tcase, au_02_long_credentials_arrive_whole);
    tcase_add_test(tcase, au_03_accents_and_emoji_go_as_utf_8_and_a_password_may_be_empty);
    tcase_add_test(tcase, au_04_a_node_that_refuses_does_not_keep_us_from_the_others);
    tcase_add_test(tcase, a_reconnect_that_is_refused_says_why_in_the_requests_that_wait);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
