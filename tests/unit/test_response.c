/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/response.h"
#include "serialize/buf.h"

static const struct dialect v4 = {.version = PROTO_V4}, v5 = {.version = PROTO_V5};

static struct arena arena;
static struct writer out;
static uint8_t room[1 << 20];
static uint8_t *body_copy;

static void setup(void)
{
    cqr_arena_init(&arena, 1 << 24);
    cqr_writer_init(&out, room, sizeof room);
}

static void teardown(void)
{
    cqr_arena_fini(&arena);
    free(body_copy);
    body_copy = NULL;
    ck_assert_int_eq(cqr_mem_live_count(), 0);
}

static cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

static void put_text(const char *string)
{
    cqr_put_string(&out, text(string));
}

/* The first size bytes of what was written, in memory of exactly that size; valid until the next
   call. */
static cqlring_bytes written(uint32_t size)
{
    ck_assert(!out.failed);
    free(body_copy);
    body_copy = malloc(size + (size == 0));
    ck_assert_ptr_nonnull(body_copy);
    memcpy(body_copy, room, size);
    return (cqlring_bytes){.data = body_copy, .size = (int32_t)size};
}

static void check_text(cqlring_bytes got, const char *wanted)
{
    ck_assert_int_eq(got.size, (int32_t)strlen(wanted));
    ck_assert_mem_eq(got.data, wanted, strlen(wanted));
}

/* --- errors ----------------------------------------------------------------------------------- */

static void begin_error(uint32_t code, const char *message)
{
    out.size = 0;
    cqr_put_u32(&out, code);
    put_text(message);
}

static void put_inetaddr(uint8_t size)
{
    cqr_put_u8(&out, size);
    for (uint8_t i = 0; i < size; ++i)
        cqr_put_u8(&out, i);
}

/* Decode what was written, then every shorter form of it: code and message stay, complete tells
   (MS-06). */
static struct error_body whole_and_cut(const struct dialect *dialect, uint32_t fields_at)
{
    struct error_body error;
    for (uint32_t size = 0; size < out.size; ++size) {
        cqlring_status status = cqr_decode_error(dialect, written(size), &error);
        if (size < fields_at) {
            ck_assert_int_eq(status, CQLRING_PROTOCOL);
            continue;
        }
        ck_assert_int_eq(status, CQLRING_OK);
        check_text(error.message, "why");
        ck_assert(!error.complete);
    }
    ck_assert_int_eq(cqr_decode_error(dialect, written(out.size), &error), CQLRING_OK);
    ck_assert_uint_eq((uint32_t)error.code, cqr_load_u32(room));
    check_text(error.message, "why");
    ck_assert(error.complete);
    return error;
}

enum { WHY_SIZE = 4 + 2 + 3 };

START_TEST(ms_06_fields_of_each_error_are_read_and_cut_ones_keep_code_and_message)
{
    begin_error(ERROR_UNAVAILABLE, "why");
    cqr_put_u16(&out, 6);
    cqr_put_u32(&out, 3);
    cqr_put_u32(&out, 1);
    struct error_body error = whole_and_cut(&v4, WHY_SIZE);
    ck_assert_uint_eq(error.consistency, 6);
    ck_assert_int_eq(error.required, 3);
    ck_assert_int_eq(error.alive, 1);

    begin_error(ERROR_ALREADY_EXISTS, "why");
    put_text("ks");
    put_text("t");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.keyspace, "ks");
    check_text(error.table, "t");

    begin_error(ERROR_FUNCTION_FAILURE, "why");
    put_text("ks");
    put_text("f");
    cqr_put_u16(&out, 2);
    put_text("int");
    put_text("text");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.function, "f");
    ck_assert_uint_eq(error.argument_count, 2);
    cqlring_bytes argument;
    ck_assert_int_eq(cqr_next_string(&error.arguments, &argument), CQLRING_OK);
    check_text(argument, "int");

    begin_error(ERROR_UNPREPARED, "why");
    put_text("0123456789abcdef");
    error = whole_and_cut(&v4, WHY_SIZE);
    check_text(error.unprepared_id, "0123456789abcdef");

    begin_error(ERROR_READ_TIMEOUT, "why");
    cqr_put_u16(&out, 1);
    cqr_put_u32(&out, 2);
    cqr_put_u32(&out, 2);
    cqr_put_u8(&out, 7);
    error = whole_and_cut(&v4, WHY_SIZE);
    ck_assert_int_eq(error.received, 2);
    ck_assert_int_eq(error.required, 2);
    ck_assert_uint_eq(error.data_present, 7);
    ck_assert_int_eq(error.contentions, -1);

    begin_error(ERROR_CAS_WRITE_UNKNOWN, "why");
    cqr_put_u16(&out, 8);
    cqr_put_u32(&out, 1);
    cqr_put_u32(&out, 2);
    error = whole_and_cut(&v5, WHY_SIZE);
    ck_assert_uint_eq(error.consistency, 8);
    ck_assert_int_eq(error.received, 1);
}
END_TEST

START_TEST(errors_without_fields_are_complete_with_their_message)
{
    static const uint32_t codes[] = {ERROR_SERVER,
                                     ERROR_PROTOCOL,
                                     ERROR_CREDENTIALS,
                                     ERROR_OVERLOADED,
                                     ERROR_BOOTSTRAPPING,
                                     ERROR_TRUNCATE,
                                     ERROR_CDC_WRITE_FAILURE,
                                     ERROR_SYNTAX,
                                     ERROR_UNAUTHORIZED,
                                     ERROR_INVALID,
                                     ERROR_CONFIG};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
        begin_error(codes[i], "why");
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(&v5, written(out.size), &error), CQLRING_OK);
        ck_assert_uint_eq((uint32_t)error.code, codes[i]);
        check_text(error.message, "why");
        ck_assert(error.complete);
    }
}
END_TEST

/* RT-07: a code nobody knows, with bytes behind the message. */
START_TEST(rt_07_unknown_code_keeps_code_and_message)
{
    begin_error(0x4321, "what is this");
    cqr_put_u64(&out, 0x1122334455667788);
    struct error_body error;
    ck_assert_int_eq(cqr_decode_error(&v4, written(out.size), &error), CQLRING_OK);
    ck_assert_int_eq(error.code, 0x4321);
    check_text(error.message, "what is this");
    ck_assert(!error.complete);
}
END_TEST

/* RT-07: the rate limit's code is the negotiated one, and means nothing where none was. */
START_TEST(rt_07_rate_limit_error_has_the_negotiated_code)
{
    const struct dialect dialect = {
        .version = PROTO_V4, .extensions = EXT_RATE_LIMIT, .rate_limit_code = 0x4321};
    begin_error(0x4321, "why");
    cqr_put_u8(&out, 1);
    cqr_put_u8(&out, 1);
    struct error_body error = whole_and_cut(&dialect, WHY_SIZE);
    ck_assert_uint_eq(error.rate_limit_op, 1);
    ck_assert_uint_eq(error.rate_limit_by_coordinator, 1);
    ck_assert_int_eq(cqr_decode_error(&v4, written(out.size), &error), CQLRING_OK);
    ck_assert(!error.complete);
    ck_assert_uint_eq(error.rate_limit_op, 0);
}
END_TEST

/* RT-07: a count on v4, a map from address to reason on v5 and with the extension. */
START_TEST(rt_07_read_and_write_failures_have_a_count_or_a_map_as_the_dialect_says)
{
    static const struct dialect with_map = {.version = PROTO_V4, .extensions = EXT_FAILURE_MAP};
    const struct dialect *dialects[] = {&v4, &v5, &with_map};
    for (int i = 0; i < 3; ++i) {
        for (int is_write = 0; is_write < 2; ++is_write) {
            begin_error(is_write ? ERROR_WRITE_FAILURE : ERROR_READ_FAILURE, "why");
            cqr_put_u16(&out, 4);
            cqr_put_u32(&out, 1);
            cqr_put_u32(&out, 3);
            cqr_put_u32(&out, 2);
            if (i > 0) {
                put_inetaddr(4);
                cqr_put_u16(&out, 1);
                put_inetaddr(16);
                cqr_put_u16(&out, 0xF001);
            }
            if (is_write)
                put_text("SIMPLE");
            else
                cqr_put_u8(&out, 1);
            struct error_body error = whole_and_cut(dialects[i], WHY_SIZE);
            ck_assert_int_eq(error.failure_count, 2);
            ck_assert((error.reasons.data != NULL) == (i > 0));
            if (is_write)
                check_text(error.write_type, "SIMPLE");
            else
                ck_assert_uint_eq(error.data_present, 1);
            if (i == 0)
                continue;
            cqlring_bytes address;
            uint16_t reason;
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_OK);
            ck_assert_int_eq(address.size, 4);
            ck_assert_uint_eq(reason, 1);
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_OK);
            ck_assert_int_eq(address.size, 16);
            ck_assert_uint_eq(reason, 0xF001);
            ck_assert_int_eq(error.reasons.size, 0);
            ck_assert_int_eq(cqr_next_reason(&error.reasons, &address, &reason), CQLRING_PROTOCOL);
        }
    }
}
END_TEST

START_TEST(failure_map_without_sense_costs_the_fields_alone)
{
    static const uint32_t counts[] = {0x7FFFFFFF, 0xFFFFFFFF, 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        begin_error(ERROR_READ_FAILURE, "why");
        cqr_put_u16(&out, 4);
        cqr_put_u32(&out, 1);
        cqr_put_u32(&out, 3);
        cqr_put_u32(&out, counts[i]);
        put_inetaddr(5); /* no address has five bytes */
        cqr_put_u32(&out, 0);
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(&v5, written(out.size), &error), CQLRING_OK);
        check_text(error.message, "why");
        ck_assert(!error.complete);
        ck_assert_ptr_null(error.reasons.data);
    }
}
END_TEST

/* Only from nodes that send them: the body may end behind the write type. */
START_TEST(contentions_are_read_only_where_they_are)
{
    for (int how = 0; how < 8; ++how) {
        bool is_v5 = (how & 1) != 0, is_cas = (how & 2) != 0, is_there = (how & 4) != 0;
        begin_error(ERROR_WRITE_TIMEOUT, "why");
        cqr_put_u16(&out, 8);
        cqr_put_u32(&out, 1);
        cqr_put_u32(&out, 2);
        put_text(is_cas ? "CAS" : "SIMPLE");
        if (is_there)
            cqr_put_u16(&out, 9);
        struct error_body error;
        ck_assert_int_eq(cqr_decode_error(is_v5 ? &v5 : &v4, written(out.size), &error),
                         CQLRING_OK);
        ck_assert(error.complete);
        check_text(error.write_type, is_cas ? "CAS" : "SIMPLE");
        ck_assert_int_eq(error.contentions, is_v5 && is_cas && is_there ? 9 : -1);
    }
}
END_TEST

/* --- prefixes, events, the rest --------------------------------------------------------------- */

/* MS-04: what stands before a message, on any opcode: null values, an empty key, a key twice, 65535
   entries. */
START_TEST(ms_04_prefixes_are_taken_off_before_any_message)
{
    for (uint8_t flags = 0; flags < 16; ++flags) {
        out.size = 0;
        if ((flags & FLAG_TRACING) != 0) {
            cqr_put_u64(&out, 0x0102030405060708);
            cqr_put_u64(&out, 0x090A0B0C0D0E0F10);
        }
        if ((flags & FLAG_WARNING) != 0) {
            cqr_put_u16(&out, 2);
            put_text("careful");
            put_text("");
        }
        if ((flags & FLAG_PAYLOAD) != 0) {
            cqr_put_u16(&out, 3);
            put_text("");
            cqr_put_bytes(&out, (cqlring_bytes){NULL, CQLRING_NULL});
            put_text("twice");
            cqr_put_bytes(&out, text("1"));
            put_text("twice");
            cqr_put_bytes(&out, text(""));
        }
        uint32_t prefix_size = out.size;
        cqr_put_u32(&out, RESULT_VOID);
        for (uint32_t size = 0; size <= out.size; ++size) {
            cqlring_bytes body = written(size);
            struct response_prefix prefix;
            cqlring_status status = cqr_decode_prefix(flags, &body, &prefix);
            ck_assert_int_eq(status, size < prefix_size ? CQLRING_PROTOCOL : CQLRING_OK);
            if (status != CQLRING_OK)
                continue;
            ck_assert_int_eq(body.size, (int32_t)(size - prefix_size));
            ck_assert(prefix.has_trace_id == ((flags & FLAG_TRACING) != 0));
            ck_assert_uint_eq(prefix.trace_id[15], prefix.has_trace_id ? 0x10 : 0);
            ck_assert_uint_eq(prefix.warning_count, (flags & FLAG_WARNING) != 0 ? 2 : 0);
            ck_assert_uint_eq(prefix.payload_count, (flags & FLAG_PAYLOAD) != 0 ? 3 : 0);
            cqlring_bytes key, value;
            static const int32_t value_sizes[] = {CQLRING_NULL, 1, 0};
            for (int i = 0; i < prefix.payload_count; ++i) {
                ck_assert_int_eq(cqr_next_pair(&prefix.payload, &key, &value), CQLRING_OK);
                check_text(key, i == 0 ? "" : "twice");
                ck_assert_int_eq(value.size, value_sizes[i]);
            }
            ck_assert_int_eq(cqr_next_pair(&prefix.payload, &key, &value), CQLRING_PROTOCOL);
        }
    }
    out.size = 0;
    cqr_put_u16(&out, UINT16_MAX);
    for (uint32_t i = 0; i < UINT16_MAX; ++i) {
        cqr_put_u16(&out, 0);
        cqr_put_u32(&out, 0xFFFFFFFF);
    }
    cqlring_bytes body = written(out.size);
    struct response_prefix prefix;
    ck_assert_int_eq(cqr_decode_prefix(FLAG_PAYLOAD, &body, &prefix), CQLRING_OK);
    ck_assert_uint_eq(prefix.payload_count, UINT16_MAX);
    ck_assert_int_eq(body.size, 0);
}
END_TEST

/* FR-10, SC-06: what we do not know is told and ignored, not an error. */
START_TEST(fr_10_event_of_an_unknown_type_is_its_type_alone)
{
    out.size = 0;
    put_text("WEATHER_CHANGE");
    cqr_put_u8(&out, 1);
    struct event_body event;
    ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event), CQLRING_OK);
    check_text(event.type, "WEATHER_CHANGE");
    ck_assert_uint_eq(event.address_size, 0);
    ck_assert_ptr_null(event.change.data);
}
END_TEST

START_TEST(sc_06_schema_change_of_an_unknown_target_is_no_error)
{
    out.size = 0;
    put_text("SCHEMA_CHANGE");
    put_text("DROPPED");
    put_text("TRIGGER");
    put_text("what follows is not ours to read");
    struct event_body event;
    ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event), CQLRING_OK);
    check_text(event.schema.target, "TRIGGER");
    ck_assert_ptr_null(event.schema.keyspace.data);

    out.size = 0;
    put_text("CREATED");
    put_text("FUNCTION");
    put_text("ks");
    put_text("f");
    cqr_put_u16(&out, 1);
    put_text("frozen<list<int>>");
    struct schema_change change;
    ck_assert_int_eq(cqr_decode_schema_change(written(out.size), &change), CQLRING_OK);
    ck_assert_uint_eq(change.argument_count, 1);
}
END_TEST

START_TEST(address_of_an_event_has_4_or_16_bytes)
{
    for (uint8_t size = 0; size < 20; ++size) {
        out.size = 0;
        put_text("STATUS_CHANGE");
        put_text("UP");
        put_inetaddr(size);
        cqr_put_u32(&out, 9042);
        struct event_body event;
        bool is_address = size == 4 || size == 16;
        ck_assert_int_eq(cqr_decode_event(&v4, written(out.size), &event),
                         is_address ? CQLRING_OK : CQLRING_PROTOCOL);
        if (!is_address)
            continue;
        ck_assert_uint_eq(event.address_size, size);
        ck_assert_uint_eq(event.address[size - 1], size - 1u);
        ck_assert_int_eq(event.port, 9042);
        for (uint32_t cut = 0; cut < out.size; ++cut)
            ck_assert_int_eq(cqr_decode_event(&v4, written(cut), &event), CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(supported_is_a_map_of_lists_some_of_them_empty)
{
    cqr_put_u16(&out, 2);
    put_text("COMPRESSION");
    cqr_put_u16(&out, 2);
    put_text("lz4");
    put_text("snappy");
    put_text("EMPTY");
    cqr_put_u16(&out, 0);
    uint16_t keys, values;
    cqlring_bytes map, key, list, value;
    for (uint32_t size = 0; size < out.size; ++size)
        ck_assert_int_eq(cqr_decode_supported(written(size), &keys, &map), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_decode_supported(written(out.size), &keys, &map), CQLRING_OK);
    ck_assert_uint_eq(keys, 2);
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_OK);
    check_text(key, "COMPRESSION");
    ck_assert_uint_eq(values, 2);
    ck_assert_int_eq(cqr_next_string(&list, &value), CQLRING_OK);
    check_text(value, "lz4");
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_OK);
    check_text(key, "EMPTY");
    ck_assert_uint_eq(values, 0);
    ck_assert_int_eq(cqr_next_multi(&map, &key, &values, &list), CQLRING_PROTOCOL);
}
END_TEST

START_TEST(small_messages_are_read_and_cut_ones_refused)
{
    cqlring_bytes got;
    put_text("a.b.PasswordAuthenticator");
    ck_assert_int_eq(cqr_decode_authenticate(written(out.size), &got), CQLRING_OK);
    check_text(got, "a.b.PasswordAuthenticator");
    ck_assert_int_eq(cqr_decode_authenticate(written(out.size - 1), &got), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_decode_keyspace(written(out.size), &got), CQLRING_OK);
    ck_assert_int_eq(cqr_decode_keyspace(written(1), &got), CQLRING_PROTOCOL);

    out.size = 0;
    cqr_put_bytes(&out, text("token"));
    ck_assert_int_eq(cqr_decode_auth_token(written(out.size), &got), CQLRING_OK);
    check_text(got, "token");
    ck_assert_int_eq(cqr_decode_auth_token(written(out.size - 1), &got), CQLRING_PROTOCOL);
    out.size = 0;
    cqr_put_u32(&out, 0xFFFFFFFF);
    ck_assert_int_eq(cqr_decode_auth_token(written(4), &got), CQLRING_OK);
    ck_assert_int_eq(got.size, CQLRING_NULL);

    out.size = 0;
    cqr_put_u32(&out, RESULT_SCHEMA);
    cqr_put_u8(&out, 9);
    uint32_t kind;
    cqlring_bytes body = written(out.size);
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_OK);
    ck_assert_uint_eq(kind, RESULT_SCHEMA);
    ck_assert_int_eq(body.size, 1);
    body = written(3);
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("response");
    TCase *tcase = tcase_create("response");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ms_06_fields_of_each_error_are_read_and_cut_ones_keep_code_and_message);
    tcase_add_test(tcase, errors_without_fields_are_complete_with_their_message);
    tcase_add_test(tcase, rt_07_unknown_code_keeps_code_and_message);
    tcase_add_test(tcase, rt_07_rate_limit_error_has_the_negotiated_code);
    tcase_add_test(tcase, rt_07_read_and_write_failures_have_a_count_or_a_map_as_the_dialect_says);
    tcase_add_test(tcase, failure_map_without_sense_costs_the_fields_alone);
    tcase_add_test(tcase, contentions_are_read_only_where_they_are);
    tcase_add_test(tcase, ms_04_prefixes_are_taken_off_before_any_message);
    tcase_add_test(tcase, fr_10_event_of_an_unknown_type_is_its_type_alone);
    tcase_add_test(tcase, sc_06_schema_change_of_an_unknown_target_is_no_error);
    tcase_add_test(tcase, address_of_an_event_has_4_or_16_bytes);
    tcase_add_test(tcase, supported_is_a_map_of_lists_some_of_them_empty);
    tcase_add_test(tcase, small_messages_are_read_and_cut_ones_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
