/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/handshake_script.h"

/* --- the usual way ---------------------------------------------------------------------------- */

START_TEST(connection_without_extras_is_ready_after_startup)
{
    start();
    ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_SEND);
    take_sent(OPCODE_STARTUP);
    ck_assert_int_eq(handshake.state, HANDSHAKE_AWAIT_READY);
    check_option("CQL_VERSION", "3.0.0");
    check_option("DRIVER_NAME", "cqlring");
    check_option("DRIVER_VERSION", "1");
    check_option("COMPRESSION", NULL);
    check_option("THROW_ON_OVERLOAD", NULL);
    check_option("APPLICATION_NAME", NULL);
    ck_assert(!handshake.framed);
    ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_READY);
    ck_assert_int_eq(handshake.state, HANDSHAKE_DONE);
    ck_assert(handshake.framed);
    ck_assert_uint_eq(sent.size, 0);
}
END_TEST

START_TEST(control_connection_with_auth_and_keyspace_goes_every_step)
{
    config.version = PROTO_V4;
    config.register_events = true;
    config.throw_on_overload = true;
    config.application_name = "app";
    config.application_version = "2";
    config.client_id = "550e8400-e29b-41d4-a716-446655440000";
    config.keyspace = text("Ks \"q\"");
    start();
    ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_SEND);
    take_sent(OPCODE_STARTUP);
    check_option("THROW_ON_OVERLOAD", "1");
    check_option("APPLICATION_NAME", "app");
    check_option("APPLICATION_VERSION", "2");
    check_option("CLIENT_ID", config.client_id);
    cqr_put_string(&reply, text("org.apache.cassandra.auth.PasswordAuthenticator"));
    ck_assert_int_eq(answer(OPCODE_AUTHENTICATE), HANDSHAKE_ASK_AUTH);
    ck_assert_str_eq(handshake.authenticator, "org.apache.cassandra.auth.PasswordAuthenticator");
    ck_assert_int_eq(handshake.challenge_size, -1);
    ck_assert_int_eq(cqr_handshake_answer(&handshake, text("token"), &sent), HANDSHAKE_SEND);
    take_sent(OPCODE_AUTH_RESPONSE);
    ck_assert_int_eq(request.text.size, 5);
    cqr_put_u32(&reply, 0xFFFFFFFF);
    ck_assert_int_eq(answer(OPCODE_AUTH_SUCCESS), HANDSHAKE_SEND);
    take_sent(OPCODE_QUERY);
    static const char use[] = "USE \"Ks \"\"q\"\"\"";
    ck_assert_int_eq(request.text.size, sizeof use - 1);
    ck_assert_mem_eq(request.text.data, use, sizeof use - 1);
    cqr_put_u32(&reply, RESULT_KEYSPACE);
    cqr_put_string(&reply, config.keyspace);
    ck_assert_int_eq(answer(OPCODE_RESULT), HANDSHAKE_SEND);
    take_sent(OPCODE_REGISTER);
    ck_assert_uint_eq(request.map_count, 3);
    ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_READY);
    ck_assert_int_eq(handshake.state, HANDSHAKE_DONE);
    ck_assert(!handshake.framed);
}
END_TEST

START_TEST(v5_is_framed_from_the_answer_to_startup_on)
{
    start();
    ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_SEND);
    ck_assert(!handshake.framed); /* STARTUP itself is bare */
    take_sent(OPCODE_STARTUP);
    cqr_put_string(&reply, text("A"));
    ck_assert_int_eq(answer(OPCODE_AUTHENTICATE), HANDSHAKE_ASK_AUTH);
    ck_assert(handshake.framed); /* AUTH_RESPONSE is in a segment already */
}
END_TEST

START_TEST(warnings_before_an_answer_are_passed_over)
{
    start();
    ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_SEND);
    static const uint8_t warning[] = {0, 1, 0, 4, 'c', 'a', 'r', 'e'};
    ck_assert_int_eq(cqr_handshake_reply(&handshake, PROTO_V5, FLAG_WARNING, OPCODE_READY,
                                         (cqlring_bytes){warning, sizeof warning}, &sent),
                     HANDSHAKE_READY);
}
END_TEST

/* --- versions --------------------------------------------------------------------------------- */

/* Refusals as the servers word them, in the versions in which they may come. */
START_TEST(refused_version_leads_to_the_next_lower_one)
{
    static const struct {
        uint8_t header_version;
        const char *message;
    } refusals[] = {
        {4, "Invalid or unsupported protocol version: 5"}, /* Scylla */
        {5, "Invalid or unsupported protocol version (5); supported versions are (3/v3, 4/v4)"},
        {4,
         "Invalid or unsupported protocol version (5); supported versions are (3/v3, 4/v4, 5/v5-beta)"},
        {3,
         "Invalid or unsupported protocol version (5); the lowest supported version is 1 and the greatest is 3"},
        {6, "Invalid or unsupported protocol version (5)"},
        {127, "Invalid or unsupported protocol version (5)"},
        {1, "Invalid or unsupported protocol version (5)"},
        {5,
         "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset"}, /* PD-03 */
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; ++i) {
        for (int after_startup = 0; after_startup < 2; ++after_startup) {
            sent.size = 0;
            start();
            if (after_startup)
                ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_SEND);
            ck_assert_int_eq(
                answer_error(refusals[i].header_version, ERROR_PROTOCOL, refusals[i].message),
                HANDSHAKE_DOWNGRADE);
            ck_assert_uint_eq(handshake.version_next, PROTO_V4);
        }
    }
}
END_TEST

/* PD-02: an explicit version is never lowered, and the error says so, with the server's words. */
START_TEST(pd_02_explicit_version_is_not_lowered)
{
    config.version_min = PROTO_V5;
    start();
    ck_assert_int_eq(answer_error(4, ERROR_PROTOCOL, "Invalid or unsupported protocol version: 5"),
                     HANDSHAKE_ERROR);
    check_failed(CQLRING_PROTOCOL, "v5");
    check_failed(CQLRING_PROTOCOL, "no version below v5 is allowed");
    check_failed(CQLRING_PROTOCOL, "Invalid or unsupported protocol version: 5");
    ck_assert_uint_eq(handshake.version_next, 0);
    ck_assert_int_eq(handshake.server_code, ERROR_PROTOCOL);

    sent.size = 0;
    start();
    ck_assert_int_eq(SUPPORTED({"PROTOCOL_VERSIONS", {"3/v3", "4/v4", "5/v5-beta"}}),
                     HANDSHAKE_ERROR);
    check_failed(CQLRING_PROTOCOL, "3/v3, 4/v4, 5/v5-beta");
}
END_TEST

START_TEST(listed_versions_choose_the_best_that_is_not_beta)
{
    static const struct {
        uint8_t version, version_min;
        const char *versions[4];
        enum handshake_decision decision;
        uint8_t next;
    } cases[] = {
        {5, 4, {"3/v3", "4/v4", "5/v5", "6/v6-beta"}, HANDSHAKE_SEND, 0},
        {5, 4, {"3/v3", "4/v4", "5/v5-beta"}, HANDSHAKE_DOWNGRADE, 4},
        {5, 3, {"3/v3", "5/v5-beta"}, HANDSHAKE_DOWNGRADE, 3},
        {5, 4, {"3/v3", "5/v5-beta"}, HANDSHAKE_ERROR, 0},
        {5, 4, {"5/v5-beta"}, HANDSHAKE_ERROR, 0},
        {4, 4, {"5/v5"}, HANDSHAKE_ERROR, 0},
        {4, 4, {"5/v5", "4/v4"}, HANDSHAKE_SEND, 0},
        {5, 4, {NULL}, HANDSHAKE_SEND, 0}, /* no list: only trying tells */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        config.version = cases[i].version;
        config.version_min = cases[i].version_min;
        sent.size = 0;
        start();
        struct option option = {"Protocol_Versions",
                                {cases[i].versions[0], cases[i].versions[1], cases[i].versions[2],
                                 cases[i].versions[3]}};
        ck_assert_int_eq(answer_supported(&option, 1), cases[i].decision);
        ck_assert_uint_eq(handshake.version_next, cases[i].next);
    }
}
END_TEST

START_TEST(answer_in_another_version_is_a_lower_version_or_an_error)
{
    start(); /* SUPPORTED may come in any version up to ours */
    cqr_put_u16(&reply, 0);
    ck_assert_int_eq(answer_in(4, OPCODE_SUPPORTED), HANDSHAKE_SEND);
    ck_assert_int_eq(answer_in(4, OPCODE_READY), HANDSHAKE_DOWNGRADE);
    ck_assert_uint_eq(handshake.version_next, 4);

    sent.size = 0;
    start();
    cqr_put_u16(&reply, 0);
    ck_assert_int_eq(answer_in(6, OPCODE_SUPPORTED), HANDSHAKE_ERROR);
    check_failed(CQLRING_PROTOCOL, "v6");

    sent.size = 0;
    config.keyspace = text("ks");
    start();
    answer_plain_supported();
    ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_SEND);
    cqr_put_u32(&reply, RESULT_KEYSPACE);
    cqr_put_string(&reply, config.keyspace);
    ck_assert_int_eq(answer_in(4, OPCODE_RESULT), HANDSHAKE_ERROR); /* settled */
}
END_TEST

START_TEST(other_errors_do_not_lower_the_version)
{
    static const struct {
        uint32_t code;
        const char *message;
    } cases[] = {
        {ERROR_PROTOCOL, "Rejecting Protocol Version 3/v3 < 5/v5."},
        {ERROR_PROTOCOL, "INVALID OR UNSUPPORTED PROTOCOL VERSION"}, /* the case is the server's */
        {ERROR_SERVER, "unsupported protocol version"},
        {ERROR_OVERLOADED, "later"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        sent.size = 0;
        start();
        ck_assert_int_eq(answer_error(5, cases[i].code, cases[i].message), HANDSHAKE_ERROR);
        check_failed(CQLRING_SERVER, cases[i].message);
        ck_assert_int_eq(handshake.server_code, (int32_t)cases[i].code);
    }
}
END_TEST

/* --- authentication --------------------------------------------------------------------------- */

/* AU-06: credentials that nobody asks for; an authenticator that nobody knows; several rounds, each
   answered. */
START_TEST(au_06_each_challenge_is_answered)
{
    start();
    answer_plain_supported();
    cqr_put_string(&reply, text("com.example.Unheard"));
    ck_assert_int_eq(answer(OPCODE_AUTHENTICATE), HANDSHAKE_ASK_AUTH);
    ck_assert_str_eq(handshake.authenticator, "com.example.Unheard");
    for (int round = 0; round < 5; ++round) {
        sent.size = 0;
        ck_assert_int_eq(cqr_handshake_answer(&handshake, text("t"), &sent), HANDSHAKE_SEND);
        take_sent(OPCODE_AUTH_RESPONSE);
        cqlring_bytes challenge = round == 3 ? (cqlring_bytes){NULL, CQLRING_NULL}
                                             : text("PLAIN-START");
        cqr_put_bytes(&reply, challenge);
        ck_assert_int_eq(answer(OPCODE_AUTH_CHALLENGE), HANDSHAKE_ASK_AUTH);
        ck_assert_int_eq(handshake.challenge_size, challenge.size);
        if (challenge.size > 0)
            ck_assert_mem_eq(handshake.challenge, "PLAIN-START", 11);
    }
    sent.size = 0;
    ck_assert_int_eq(cqr_handshake_answer(&handshake, (cqlring_bytes){NULL, CQLRING_NULL}, &sent),
                     HANDSHAKE_SEND);
    cqr_put_bytes(&reply, text("welcome"));
    ck_assert_int_eq(answer(OPCODE_AUTH_SUCCESS), HANDSHAKE_READY);
}
END_TEST

START_TEST(refused_credentials_are_an_auth_error_with_the_servers_words)
{
    start();
    answer_plain_supported();
    cqr_put_string(&reply, text("A"));
    answer(OPCODE_AUTHENTICATE);
    cqr_handshake_answer(&handshake, text("\0user\0secret-password"), &sent);
    ck_assert_int_eq(
        answer_error(5, ERROR_CREDENTIALS, "Provided username user and/or password are incorrect"),
        HANDSHAKE_ERROR);
    check_failed(CQLRING_AUTH, "Provided username user and/or password are incorrect");
    ck_assert_ptr_null(strstr(handshake.message, "secret"));
    ck_assert_int_eq(handshake.server_code, ERROR_CREDENTIALS);

    sent.size = 0; /* refused without a question */
    start();
    answer_plain_supported();
    ck_assert_int_eq(answer_error(5, ERROR_CREDENTIALS, "no"), HANDSHAKE_ERROR);
    check_failed(CQLRING_AUTH, "no");
}
END_TEST

/* AU-03: whatever is UTF-8 goes through; a NUL inside would move the border between the two. */
START_TEST(au_03_plain_token_takes_any_text_but_nul)
{
    static const uint8_t expected[] = "\0\xC3\xA9mile\0pass \xF0\x9F\x94\x91";
    uint8_t token[64];
    uint32_t size = 0;
    ck_assert_int_eq(cqr_auth_plain(text("\xC3\xA9mile"), text("pass \xF0\x9F\x94\x91"), token,
                                    sizeof token, &size),
                     CQLRING_OK);
    ck_assert_uint_eq(size, sizeof expected - 1);
    ck_assert_mem_eq(token, expected, size);
    ck_assert_int_eq(cqr_auth_plain(text("u"), text(""), token, sizeof token, &size), CQLRING_OK);
    ck_assert_uint_eq(size, 3);
    ck_assert_int_eq(cqr_auth_plain(text(""), (cqlring_bytes){NULL, 0}, token, sizeof token, &size),
                     CQLRING_OK);
    ck_assert_uint_eq(size, 2);
    ck_assert_int_eq(
        cqr_auth_plain((cqlring_bytes){"a\0b", 3}, text("p"), token, sizeof token, &size),
        CQLRING_INVALID);
    ck_assert_int_eq(
        cqr_auth_plain(text("u"), (cqlring_bytes){"\0", 1}, token, sizeof token, &size),
        CQLRING_INVALID);
    for (uint32_t capacity = 0; capacity < 4; ++capacity)
        ck_assert_int_eq(cqr_auth_plain(text("u"), text("p"), token, capacity, &size),
                         CQLRING_TOO_LARGE);
    ck_assert_int_eq(cqr_auth_plain(text("u"), text("p"), token, 4, &size), CQLRING_OK);
}
END_TEST

START_TEST(challenge_larger_than_kept_is_an_error_and_long_class_names_are_cut)
{
    static char large[1200];
    memset(large, 'x', sizeof large - 1);
    start();
    answer_plain_supported();
    cqr_put_string(&reply, text(large));
    ck_assert_int_eq(answer(OPCODE_AUTHENTICATE), HANDSHAKE_ASK_AUTH);
    ck_assert_uint_eq(strlen(handshake.authenticator), sizeof handshake.authenticator - 1);
    cqr_handshake_answer(&handshake, text("t"), &sent);
    cqr_put_bytes(&reply, text(large));
    ck_assert_int_eq(answer(OPCODE_AUTH_CHALLENGE), HANDSHAKE_ERROR);
    check_failed(CQLRING_PROTOCOL, "challenge");
}
END_TEST

/* --- keyspace and events ---------------------------------------------------------------------- */

START_TEST(refused_keyspace_is_named_in_the_error)
{
    config.keyspace = text("no such");
    start();
    answer_plain_supported();
    ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_SEND);
    ck_assert_int_eq(handshake.state, HANDSHAKE_AWAIT_KEYSPACE);
    ck_assert_int_eq(answer_error(5, ERROR_INVALID, "Keyspace 'no such' does not exist"),
                     HANDSHAKE_ERROR);
    check_failed(CQLRING_SERVER, "USE \"no such\": Keyspace");
    ck_assert_int_eq(handshake.server_code, ERROR_INVALID);
}
END_TEST

START_TEST(keyspace_name_too_long_for_any_server_is_refused_here)
{
    static char name[600];
    memset(name, '"', sizeof name - 1);
    config.keyspace = text(name);
    start();
    answer_plain_supported();
    ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_ERROR);
    check_failed(CQLRING_INVALID, "too long");
}
END_TEST

START_TEST(requests_that_do_not_fit_are_an_error_not_half_a_request)
{
    static char name[4096];
    memset(name, 'n', sizeof name - 1);
    config.application_name = name;
    start();
    ck_assert_int_eq(answer_plain_supported(), HANDSHAKE_ERROR);
    check_failed(CQLRING_INVALID, "too long");
}
END_TEST

/* --- what no server should send --------------------------------------------------------------- */

/* FR-10: any opcode in any state: an answer, an error, never a crash or a step that was not asked
   for. */
START_TEST(fr_10_unexpected_answers_are_protocol_errors)
{
    static const enum handshake_state states[] = {
        HANDSHAKE_AWAIT_SUPPORTED, HANDSHAKE_AWAIT_READY,    HANDSHAKE_AWAIT_CREDENTIALS,
        HANDSHAKE_AWAIT_AUTH,      HANDSHAKE_AWAIT_KEYSPACE, HANDSHAKE_AWAIT_REGISTER};
    static const uint8_t expected[][3] = {
        {OPCODE_SUPPORTED, OPCODE_SUPPORTED, OPCODE_SUPPORTED},
        {OPCODE_READY, OPCODE_AUTHENTICATE, OPCODE_READY},
        {0xFF, 0xFF, 0xFF},
        {OPCODE_AUTH_SUCCESS, OPCODE_AUTH_CHALLENGE, OPCODE_AUTH_SUCCESS},
        {OPCODE_RESULT, OPCODE_RESULT, OPCODE_RESULT},
        {OPCODE_READY, OPCODE_READY, OPCODE_READY}};
    config.keyspace = text("ks");
    config.register_events = true;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; ++i) {
        for (unsigned opcode = 1; opcode < 0x20; ++opcode) {
            if (opcode == expected[i][0] || opcode == expected[i][1])
                continue;
            sent.size = 0;
            start();
            if (states[i] >= HANDSHAKE_AWAIT_READY)
                answer_plain_supported();
            if (states[i] == HANDSHAKE_AWAIT_CREDENTIALS || states[i] == HANDSHAKE_AWAIT_AUTH) {
                cqr_put_string(&reply, text("A"));
                answer(OPCODE_AUTHENTICATE);
            } else if (states[i] > HANDSHAKE_AWAIT_AUTH) {
                answer(OPCODE_READY);
            }
            if (states[i] == HANDSHAKE_AWAIT_AUTH)
                cqr_handshake_answer(&handshake, text("t"), &sent);
            if (states[i] == HANDSHAKE_AWAIT_REGISTER) {
                cqr_put_u32(&reply, RESULT_KEYSPACE);
                cqr_put_string(&reply, text("ks"));
                answer(OPCODE_RESULT);
            }
            ck_assert_int_eq(handshake.state, states[i]);
            cqr_put_u64(&reply, 0);
            ck_assert_int_eq(answer((uint8_t)opcode), HANDSHAKE_ERROR);
            check_failed(CQLRING_PROTOCOL, "unexpected answer");
        }
    }
}
END_TEST

START_TEST(answers_cut_short_are_protocol_errors)
{
    static const uint8_t opcodes[] = {OPCODE_SUPPORTED, OPCODE_ERROR};
    for (size_t i = 0; i < sizeof opcodes; ++i) {
        sent.size = 0;
        start();
        cqr_put_u8(&reply, 0);
        ck_assert_int_eq(answer(opcodes[i]), HANDSHAKE_ERROR);
        check_failed(CQLRING_PROTOCOL, "cut short");
    }
    sent.size = 0;
    start();
    answer_plain_supported();
    cqr_put_u8(&reply, 0);
    ck_assert_int_eq(answer(OPCODE_AUTHENTICATE), HANDSHAKE_ERROR);
    check_failed(CQLRING_PROTOCOL, "cut short");
    sent.size = 0;
    config.keyspace = text("ks");
    start();
    answer_plain_supported();
    answer(OPCODE_READY);
    cqr_put_u32(&reply, RESULT_VOID); /* not what USE answers */
    ck_assert_int_eq(answer(OPCODE_RESULT), HANDSHAKE_ERROR);
}
END_TEST

START_TEST(long_and_odd_server_texts_are_cut_at_a_character_and_made_printable)
{
    static char long_text[2000];
    for (size_t i = 0; i + 3 < sizeof long_text; i += 3)
        memcpy(long_text + i, "\xE2\x82\xAC", 3);
    start();
    ck_assert_int_eq(answer_error(5, ERROR_SERVER, long_text), HANDSHAKE_ERROR);
    size_t size = strlen(handshake.message);
    ck_assert_uint_ge(size, sizeof handshake.message - 4);
    ck_assert_int_eq(handshake.message[size - 1], (char)0xAC);
    sent.size = 0;
    start();
    ck_assert_int_eq(answer_error(5, ERROR_SERVER, "two\nlines\x1B[31m"), HANDSHAKE_ERROR);
    check_failed(CQLRING_SERVER, "two lines [31m");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("handshake");
    TCase *tcase = tcase_create("handshake");
    tcase_add_checked_fixture(tcase, script_setup, NULL);
    tcase_add_test(tcase, connection_without_extras_is_ready_after_startup);
    tcase_add_test(tcase, control_connection_with_auth_and_keyspace_goes_every_step);
    tcase_add_test(tcase, v5_is_framed_from_the_answer_to_startup_on);
    tcase_add_test(tcase, warnings_before_an_answer_are_passed_over);
    tcase_add_test(tcase, refused_version_leads_to_the_next_lower_one);
    tcase_add_test(tcase, pd_02_explicit_version_is_not_lowered);
    tcase_add_test(tcase, listed_versions_choose_the_best_that_is_not_beta);
    tcase_add_test(tcase, answer_in_another_version_is_a_lower_version_or_an_error);
    tcase_add_test(tcase, other_errors_do_not_lower_the_version);
    tcase_add_test(tcase, au_06_each_challenge_is_answered);
    tcase_add_test(tcase, refused_credentials_are_an_auth_error_with_the_servers_words);
    tcase_add_test(tcase, au_03_plain_token_takes_any_text_but_nul);
    tcase_add_test(tcase, challenge_larger_than_kept_is_an_error_and_long_class_names_are_cut);
    tcase_add_test(tcase, refused_keyspace_is_named_in_the_error);
    tcase_add_test(tcase, keyspace_name_too_long_for_any_server_is_refused_here);
    tcase_add_test(tcase, requests_that_do_not_fit_are_an_error_not_half_a_request);
    tcase_add_test(tcase, fr_10_unexpected_answers_are_protocol_errors);
    tcase_add_test(tcase, answers_cut_short_are_protocol_errors);
    tcase_add_test(tcase, long_and_odd_server_texts_are_cut_at_a_character_and_made_printable);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
