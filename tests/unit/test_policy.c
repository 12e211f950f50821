/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>

#include "driver/policy.h"

static cqlring_bytes text(const char *string)
{
    return cqlring_text(string);
}

/* --- the table of server errors: what is decided on the first and on later tries -------------------------------------- */

enum { NO = RETRY_NO, SAME = RETRY_SAME, NEXT = RETRY_NEXT };

struct row {
    int32_t code;
    const char *write_type;
    int32_t received, required;
    uint8_t data_present;
    /* [0] on the first try, [1] on later ones */
    int single[2], single_idempotent[2], job[2], job_idempotent[2];
};

static const struct row table[] = {
    {ERROR_UNAVAILABLE, "", 0, 2, 0, {NEXT, NO}, {NEXT, NO}, {NEXT, NO}, {NEXT, NEXT}},
    {ERROR_BOOTSTRAPPING, "", 0, 0, 0, {NEXT, NEXT}, {NEXT, NEXT}, {NEXT, NEXT}, {NEXT, NEXT}},
    {ERROR_UNPREPARED, "", 0, 0, 0, {SAME, NEXT}, {SAME, NEXT}, {SAME, NEXT}, {SAME, NEXT}},
    {ERROR_READ_TIMEOUT, "", 2, 2, 0, {SAME, NO}, {SAME, NO}, {SAME, NO}, {SAME, NEXT}},
    {ERROR_READ_TIMEOUT, "", 3, 2, 0, {SAME, NO}, {SAME, NO}, {SAME, NO}, {SAME, NEXT}},
    {ERROR_READ_TIMEOUT, "", 2, 2, 1, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_READ_TIMEOUT, "", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_READ_TIMEOUT, "", 1, 2, 1, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "SIMPLE", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "BATCH", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "UNLOGGED_BATCH", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "COUNTER", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "CAS", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "BATCH_LOG", 1, 2, 0, {NO, NO}, {SAME, NO}, {NO, NO}, {SAME, NEXT}},
    {ERROR_WRITE_TIMEOUT, "BATCH_LOGS", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_WRITE_TIMEOUT, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_OVERLOADED, "", 0, 0, 0, {NO, NO}, {NEXT, NEXT}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_SERVER, "", 0, 0, 0, {NO, NO}, {NEXT, NEXT}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_TRUNCATE, "", 0, 0, 0, {NO, NO}, {NEXT, NEXT}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_CDC_WRITE_FAILURE, "", 0, 0, 0, {NO, NO}, {NEXT, NEXT}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_CAS_WRITE_UNKNOWN, "", 1, 2, 0, {NO, NO}, {NEXT, NEXT}, {NO, NO}, {NEXT, NEXT}},
    {ERROR_READ_FAILURE, "", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_WRITE_FAILURE, "SIMPLE", 1, 2, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_FUNCTION_FAILURE, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_PROTOCOL, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_CREDENTIALS, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_SYNTAX, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_UNAUTHORIZED, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_INVALID, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_CONFIG, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {ERROR_ALREADY_EXISTS, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}},
    {0x4321, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {NO, NO}}, /* RT-07: a code that nobody knows */
    {0xF000, "", 0, 0, 0, {NO, NO}, {NO, NO}, {NO, NO}, {SAME, SAME}}, /* Scylla's rate limit */
};
enum { TABLE_SIZE = sizeof table / sizeof table[0] };

static struct error_body body_of(const struct row *row)
{
    return (struct error_body){
        .code = row->code,
        .write_type = text(row->write_type),
        .received = row->received,
        .required = row->required,
        .data_present = row->data_present,
        .complete = true,
        .rate_limited = row->code == 0xF000,
    };
}

START_TEST(server_errors_are_retried_as_the_table_says_RT_06)
{
    const struct row *row = &table[_i];
    struct error_body body = body_of(row);
    for (unsigned what = 0; what < 4; ++what) {
        bool patient = what >= 2, idempotent = what % 2 == 1;
        const int *wanted = !patient ? idempotent ? row->single_idempotent : row->single
                                     : idempotent ? row->job_idempotent : row->job;
        for (uint16_t tries = 0; tries < 4; ++tries) {
            struct attempt_outcome outcome = {
                .status = CQLRING_SERVER,
                .phase = CQLRING_ANSWERED,
                .server = &body,
                .idempotent = idempotent,
                .patient = patient,
                .retry_enabled = true,
                .tries = tries,
            };
            ck_assert_msg((int)cqr_retry_decide(&outcome) == wanted[tries > 0], "code %#x %s, patient %d, idempotent %d, try %u",
                          (unsigned)row->code, row->write_type, patient, idempotent, tries);
            outcome.retry_enabled = false;
            ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
        }
    }
}
END_TEST

START_TEST(read_timeout_with_enough_answers_is_retried_once_only_without_data_RT_03)
{
    struct error_body body = {.code = ERROR_READ_TIMEOUT, .received = 2, .required = 2};
    struct attempt_outcome outcome = {
        .status = CQLRING_SERVER, .phase = CQLRING_ANSWERED, .server = &body, .retry_enabled = true};
    body.data_present = 0;
    ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_SAME);
    outcome.tries = 1;
    ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
    outcome.tries = 0;
    body.data_present = 1;
    ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
}
END_TEST

START_TEST(over_a_rate_limit_only_rows_are_retried_and_on_their_node)
{
    for (unsigned bits = 0; bits < 8; ++bits) {
        bool patient = (bits & 1) != 0, idempotent = (bits & 2) != 0, by_coordinator = (bits & 4) != 0;
        struct error_body body = {.code = 0xF000, .rate_limited = true, .rate_limit_by_coordinator = by_coordinator};
        struct attempt_outcome outcome = {.status = CQLRING_SERVER, .phase = CQLRING_ANSWERED, .server = &body, .retry_enabled = true,
                                          .patient = patient, .idempotent = idempotent, .tries = (uint16_t)bits};
        ck_assert_int_eq(cqr_retry_decide(&outcome), patient && (idempotent || by_coordinator) ? RETRY_SAME : RETRY_NO);
    }
}
END_TEST

/* --- without an answer -------------------------------------------------------------------------------------------- */

START_TEST(what_was_not_sent_is_sent_again_idempotent_or_not)
{
    static const cqlring_status statuses[] = {CQLRING_LOST, CQLRING_TIMEOUT, CQLRING_TLS, CQLRING_PROTOCOL};
    for (unsigned i = 0; i < 4; ++i) {
        for (unsigned bits = 0; bits < 8; ++bits) {
            struct attempt_outcome outcome = {
                .status = statuses[i],
                .phase = CQLRING_NOT_SENT,
                .idempotent = (bits & 1) != 0,
                .patient = (bits & 2) != 0,
                .retry_enabled = (bits & 4) != 0,
                .tries = 100,
            };
            ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NEXT);
        }
    }
}
END_TEST

START_TEST(what_was_sent_and_lost_is_retried_only_when_idempotent)
{
    static const cqlring_status statuses[] = {CQLRING_LOST, CQLRING_TIMEOUT, CQLRING_TLS, CQLRING_PROTOCOL};
    for (unsigned i = 0; i < 4; ++i) {
        struct attempt_outcome outcome = {.status = statuses[i], .phase = CQLRING_SENT, .retry_enabled = true};
        ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
        outcome.patient = true;
        ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
        outcome.idempotent = true;
        outcome.tries = 7;
        ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NEXT);
        outcome.patient = false;
        ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NEXT);
        outcome.retry_enabled = false;
        ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
    }
}
END_TEST

START_TEST(what_cannot_get_better_is_never_retried)
{
    static const cqlring_status statuses[] = {CQLRING_INVALID,     CQLRING_NO_MEMORY, CQLRING_CLOSED,    CQLRING_FULL,
                                              CQLRING_TOO_LARGE,   CQLRING_AUTH,      CQLRING_CANCELLED, CQLRING_TYPE,
                                              CQLRING_UNREACHABLE, CQLRING_FORKED};
    for (unsigned i = 0; i < sizeof statuses / sizeof statuses[0]; ++i) {
        for (uint8_t phase = CQLRING_NOT_SENT; phase <= CQLRING_ANSWERED; ++phase) {
            struct attempt_outcome outcome = {
                .status = statuses[i], .phase = phase, .idempotent = true, .patient = true, .retry_enabled = true};
            ck_assert_int_eq(cqr_retry_decide(&outcome), RETRY_NO);
        }
    }
    struct attempt_outcome unknown = {
        .status = CQLRING_SERVER, .phase = CQLRING_ANSWERED, .idempotent = true, .patient = true, .retry_enabled = true};
    ck_assert_int_eq(cqr_retry_decide(&unknown), RETRY_NO); /* its ERROR could not be kept */
}
END_TEST

START_TEST(an_answer_that_cannot_be_read_is_tried_five_times_again_by_idempotent_rows_alone)
{
    struct attempt_outcome unreadable = {
        .status = CQLRING_PROTOCOL, .phase = CQLRING_ANSWERED, .idempotent = true, .patient = true, .retry_enabled = true};
    unreadable.tries = 40; /* for other reasons */
    for (; unreadable.unreadable < 5; ++unreadable.unreadable)
        ck_assert_int_eq(cqr_retry_decide(&unreadable), RETRY_NEXT);
    ck_assert_int_eq(cqr_retry_decide(&unreadable), RETRY_NO);
    unreadable.unreadable = 0;
    unreadable.idempotent = false;
    ck_assert_int_eq(cqr_retry_decide(&unreadable), RETRY_NO);
    unreadable.idempotent = true;
    unreadable.patient = false;
    ck_assert_int_eq(cqr_retry_decide(&unreadable), RETRY_NO);
}
END_TEST

/* --- may have been applied ---------------------------------------------------------------------------------------- */

START_TEST(write_may_have_been_applied_unless_it_cannot_have)
{
    static const int32_t surely_not[] = {ERROR_PROTOCOL,     ERROR_CREDENTIALS,  ERROR_UNAVAILABLE,      ERROR_BOOTSTRAPPING,
                                         ERROR_READ_TIMEOUT, ERROR_READ_FAILURE, ERROR_FUNCTION_FAILURE, ERROR_SYNTAX,
                                         ERROR_UNAUTHORIZED, ERROR_INVALID,      ERROR_CONFIG,           ERROR_ALREADY_EXISTS,
                                         ERROR_UNPREPARED};
    static const int32_t maybe[] = {ERROR_SERVER,        ERROR_OVERLOADED,        ERROR_TRUNCATE,
                                    ERROR_WRITE_TIMEOUT, ERROR_WRITE_FAILURE,     ERROR_CDC_WRITE_FAILURE,
                                    ERROR_CAS_WRITE_UNKNOWN, 0x4321};
    struct error_body body = {.code = 0};
    for (unsigned i = 0; i < sizeof surely_not / sizeof surely_not[0]; ++i) {
        body.code = surely_not[i];
        ck_assert_msg(!cqr_maybe_applied(CQLRING_SERVER, CQLRING_ANSWERED, &body), "code %#x", (unsigned)body.code);
    }
    for (unsigned i = 0; i < sizeof maybe / sizeof maybe[0]; ++i) {
        body.code = maybe[i];
        ck_assert_msg(cqr_maybe_applied(CQLRING_SERVER, CQLRING_ANSWERED, &body), "code %#x", (unsigned)body.code);
    }
    body = (struct error_body){.code = 0xF000, .rate_limit_op = 1};
    ck_assert(cqr_maybe_applied(CQLRING_SERVER, CQLRING_ANSWERED, &body));
    body.rate_limit_by_coordinator = 1;
    ck_assert(!cqr_maybe_applied(CQLRING_SERVER, CQLRING_ANSWERED, &body));

    ck_assert(!cqr_maybe_applied(CQLRING_OK, CQLRING_ANSWERED, NULL));
    static const cqlring_status statuses[] = {CQLRING_LOST, CQLRING_TIMEOUT, CQLRING_CANCELLED, CQLRING_CLOSED, CQLRING_TLS,
                                              CQLRING_PROTOCOL};
    for (unsigned i = 0; i < sizeof statuses / sizeof statuses[0]; ++i) {
        ck_assert(!cqr_maybe_applied(statuses[i], CQLRING_NOT_SENT, NULL));
        ck_assert(cqr_maybe_applied(statuses[i], CQLRING_SENT, NULL));
    }
}
END_TEST

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Asserted only when it does not hold: an assertion of its own for each of a million values takes many seconds. */
static void expect_within(int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        ck_abort_msg("%lld is not within %lld and %lld", (long long)value, (long long)low, (long long)high);
}

static const uint64_t randoms[] = {0, 1, 2, 3, 12345, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
enum { RANDOMS = sizeof randoms / sizeof randoms[0] };

START_TEST(retry_backoff_doubles_from_10_ms_to_1_s_within_25_percent)
{
    uint64_t state = 88172645463325252;
    for (uint32_t tries = 0; tries < 5000; ++tries) {
        int64_t base = tries >= 7 ? 1000000 : 10000 << tries;
        for (unsigned i = 0; i < RANDOMS + 20; ++i) {
            int64_t delay = cqr_retry_backoff_us(tries, i < RANDOMS ? randoms[i] : cqr_random(&state));
            expect_within(delay, base - base / 4, base + base / 4);
        }
    }
    ck_assert_int_gt(cqr_retry_backoff_us(UINT32_MAX, 0), 0);
}
END_TEST

START_TEST(reconnect_delay_is_never_negative_or_above_the_cap_RC_09)
{
    uint64_t state = 88172645463325252;
    for (uint32_t attempt = 0; attempt < 5000; ++attempt) {
        for (unsigned i = 0; i < RANDOMS + 20; ++i) {
            int64_t delay = cqr_reconnect_delay_us(attempt, 1000000, 600000000, i < RANDOMS ? randoms[i] : cqr_random(&state));
            if (attempt == 0) {
                expect_within(delay, 0, 0);
                continue;
            }
            int64_t base = attempt > 10 ? 600000000 : (int64_t)1000000 << (attempt - 1);
            expect_within(delay, base - base * 15 / 100, base + base * 15 / 100);
        }
    }
}
END_TEST

START_TEST(reconnect_delay_bears_any_limits)
{
    static const int64_t limits[] = {INT64_MIN, -1, 0, 1, 2, 50000, 10000000, INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
    static const uint32_t attempts[] = {0, 1, 2, 31, 32, 62, 63, 64, 65, 1000, UINT32_MAX};
    for (unsigned low = 0; low < 10; ++low) {
        for (unsigned high = 0; high < 10; ++high) {
            for (unsigned at = 0; at < 11; ++at) {
                for (unsigned i = 0; i < RANDOMS; ++i) {
                    int64_t delay = cqr_reconnect_delay_us(attempts[at], limits[low], limits[high], randoms[i]);
                    int64_t max = limits[high] < 1 ? 1 : limits[high];
                    expect_within(delay, 0, max > INT64_MAX / 2 ? INT64_MAX : max + max / 100 * 15 + 15);
                }
            }
        }
    }
}
END_TEST

START_TEST(jitter_reaches_both_sides)
{
    uint64_t state = 1;
    int below = 0, above = 0;
    for (int i = 0; i < 1000; ++i) {
        int64_t delay = cqr_reconnect_delay_us(3, 50000, 10000000, cqr_random(&state));
        below += delay < 200000;
        above += delay > 200000;
    }
    ck_assert_int_gt(below, 400);
    ck_assert_int_gt(above, 400);
}
END_TEST

START_TEST(random_numbers_do_not_repeat_and_never_get_stuck)
{
    uint64_t state = 1, seen[64];
    for (unsigned i = 0; i < 64; ++i) {
        seen[i] = cqr_random(&state);
        ck_assert_uint_ne(state, 0);
        for (unsigned j = 0; j < i; ++j)
            ck_assert_uint_ne(seen[i], seen[j]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tests = tcase_create("policy");
    tcase_add_loop_test(tests, server_errors_are_retried_as_the_table_says_RT_06, 0, TABLE_SIZE);
    tcase_add_test(tests, read_timeout_with_enough_answers_is_retried_once_only_without_data_RT_03);
    tcase_add_test(tests, over_a_rate_limit_only_rows_are_retried_and_on_their_node);
    tcase_add_test(tests, what_was_not_sent_is_sent_again_idempotent_or_not);
    tcase_add_test(tests, what_was_sent_and_lost_is_retried_only_when_idempotent);
    tcase_add_test(tests, what_cannot_get_better_is_never_retried);
    tcase_add_test(tests, an_answer_that_cannot_be_read_is_tried_five_times_again_by_idempotent_rows_alone);
    tcase_add_test(tests, write_may_have_been_applied_unless_it_cannot_have);
    tcase_add_test(tests, retry_backoff_doubles_from_10_ms_to_1_s_within_25_percent);
    tcase_add_test(tests, reconnect_delay_is_never_negative_or_above_the_cap_RC_09);
    tcase_add_test(tests, reconnect_delay_bears_any_limits);
    tcase_add_test(tests, jitter_reaches_both_sides);
    tcase_add_test(tests, random_numbers_do_not_repeat_and_never_get_stuck);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
