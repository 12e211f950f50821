/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/frame.h"

static uint32_t put_frame(struct writer *writer, int16_t stream, uint8_t opcode, uint32_t body_size)
{
    uint32_t start = cqr_frame_begin(writer, 0x84, FLAG_WARNING, stream, opcode);
    for (uint32_t i = 0; i < body_size; ++i)
        cqr_put_u8(writer, (uint8_t)i);
    cqr_frame_end(writer, start);
    return start;
}

START_TEST(header_read_is_the_header_written)
{
    static const int16_t streams[] = {0, 1, 255, 256, 32767, -1, -32768};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; ++i) {
        uint8_t data[64];
        struct writer writer;
        cqr_writer_init(&writer, data, sizeof data);
        put_frame(&writer, streams[i], OPCODE_EVENT, 5);
        ck_assert(!writer.failed);
        ck_assert_uint_eq(writer.size, PROTO_HEADER_SIZE + 5);
        struct frame_header header;
        ck_assert_int_eq(cqr_frame_cut(data, writer.size, PROTO_BODY_MAX, &header), FRAME_WHOLE);
        ck_assert_uint_eq(header.version, 4);
        ck_assert(header.response);
        ck_assert_uint_eq(header.flags, FLAG_WARNING);
        ck_assert_int_eq(header.stream, streams[i]);
        ck_assert_uint_eq(header.opcode, OPCODE_EVENT);
        ck_assert_uint_eq(header.body_size, 5);
    }
}
END_TEST

START_TEST(bytes_of_a_header_are_the_texts)
{
    static const uint8_t expected[] = {0x05, 0x02, 0x7F, 0xFF, 0x0A, 0x00,
                                       0x00, 0x00, 0x02, 0xAB, 0xCD};
    uint8_t data[sizeof expected];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    uint32_t start = cqr_frame_begin(&writer, PROTO_V5, FLAG_TRACING, 32767, OPCODE_EXECUTE);
    cqr_put_u16(&writer, 0xABCD);
    cqr_frame_end(&writer, start);
    ck_assert_uint_eq(writer.size, sizeof expected);
    ck_assert_mem_eq(data, expected, sizeof expected);
}
END_TEST

/* Five frames, the bytes handed over in two parts, cut at every place: all five come out, and never
   one too early. */
START_TEST(frame_split_at_every_byte_is_whole_again)
{
    static const uint32_t sizes[] = {0, 1, 4, 100, 9};
    uint8_t data[256];
    struct writer writer;
    cqr_writer_init(&writer, data, sizeof data);
    for (int16_t i = 0; i < 5; ++i)
        put_frame(&writer, i, OPCODE_RESULT, sizes[i]);
    ck_assert(!writer.failed);
    for (uint32_t split = 0; split <= writer.size; ++split) {
        uint32_t at = 0;
        int16_t found = 0;
        for (int part = 0; part < 2; ++part) {
            uint32_t end = part == 0 ? split : writer.size;
            struct frame_header header = {.body_size = 0};
            enum frame_cut cut;
            /* Memory of exactly what has been received, so that a sanitizer sees one byte too
               far. */
            uint8_t *received = malloc(end - at + 1);
            ck_assert_ptr_nonnull(received);
            uint32_t from = at;
            memcpy(received, data + from, end - from);
            while ((cut = cqr_frame_cut(received + (at - from), end - at, PROTO_BODY_MAX,
                                        &header)) == FRAME_WHOLE) {
                ck_assert_int_eq(header.stream, found);
                ck_assert_uint_eq(header.body_size, sizes[found]);
                at += PROTO_HEADER_SIZE + header.body_size;
                ++found;
            }
            ck_assert_int_eq(cut, FRAME_PARTIAL);
            if (end - at >= PROTO_HEADER_SIZE)
                ck_assert_uint_eq(header.body_size, sizes[found]);
            free(received);
        }
        ck_assert_uint_eq(at, writer.size);
        ck_assert_int_eq(found, 5);
    }
}
END_TEST

START_TEST(body_larger_than_allowed_or_negative_is_bad_as_soon_as_the_header_is_there)
{
    static const struct {
        uint32_t size, max;
        enum frame_cut cut;
    } cases[] = {
        {100, 100, FRAME_PARTIAL},
        {101, 100, FRAME_BAD},
        {PROTO_BODY_MAX, PROTO_BODY_MAX, FRAME_PARTIAL},
        {PROTO_BODY_MAX + 1u, PROTO_BODY_MAX, FRAME_BAD},
        {0x80000000u, PROTO_BODY_MAX, FRAME_BAD},
        {0xFFFFFFFFu, PROTO_BODY_MAX, FRAME_BAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint8_t data[PROTO_HEADER_SIZE] = {0x84, 0, 0, 1, OPCODE_RESULT};
        cqr_store_u32(data + 5, cases[i].size);
        struct frame_header header;
        ck_assert_int_eq(cqr_frame_cut(data, sizeof data, cases[i].max, &header), cases[i].cut);
    }
}
END_TEST

START_TEST(only_a_bare_void_result_is_a_plain_void)
{
    struct frame_header header = {
        .version = 4, .response = true, .opcode = OPCODE_RESULT, .body_size = 4};
    uint8_t body[8] = {0, 0, 0, RESULT_VOID};
    ck_assert(cqr_frame_is_plain_void(&header, body));
    for (uint8_t flag = 1; flag != 0; flag = (uint8_t)(flag << 1)) {
        header.flags = flag;
        ck_assert(!cqr_frame_is_plain_void(&header, body));
    }
    header.flags = 0;
    header.opcode = OPCODE_READY;
    ck_assert(!cqr_frame_is_plain_void(&header, body));
    header.opcode = OPCODE_RESULT;
    header.body_size = 8; /* bytes behind the kind: not plain, though still void */
    ck_assert(!cqr_frame_is_plain_void(&header, body));
    header.body_size = 4;
    for (int i = 0; i < 4; ++i) {
        body[i] ^= 2;
        ck_assert(!cqr_frame_is_plain_void(&header, body));
        body[i] ^= 2;
    }
}
END_TEST

START_TEST(frame_that_does_not_fit_fails_the_writer_and_writes_nothing_outside)
{
    for (uint32_t capacity = 0; capacity < PROTO_HEADER_SIZE + 3; ++capacity) {
        uint8_t *data = malloc(capacity + 1);
        ck_assert_ptr_nonnull(data);
        data[capacity] = 0x5A;
        struct writer writer;
        cqr_writer_init(&writer, data, capacity);
        put_frame(&writer, 1, OPCODE_QUERY, 3);
        ck_assert(writer.failed);
        ck_assert_uint_eq(data[capacity], 0x5A);
        free(data);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frame");
    TCase *tcase = tcase_create("frame");
    tcase_add_test(tcase, header_read_is_the_header_written);
    tcase_add_test(tcase, bytes_of_a_header_are_the_texts);
    tcase_add_test(tcase, frame_split_at_every_byte_is_whole_again);
    tcase_add_test(tcase,
                   body_larger_than_allowed_or_negative_is_bad_as_soon_as_the_header_is_there);
    tcase_add_test(tcase, only_a_bare_void_result_is_a_plain_void);
    tcase_add_test(tcase, frame_that_does_not_fit_fails_the_writer_and_writes_nothing_outside);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
