/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/compress.h"
#include "serialize/mem.h"

/* Bytes that do not compress, the same every time. */
static void fill_noise(uint8_t *data, uint32_t size, uint32_t seed)
{
    for (uint32_t i = 0; i < size; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (uint8_t)(seed >> 24);
    }
}

static void fill_words(uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        data[i] = (uint8_t) "INSERT INTO ks.t (a, b, c) VALUES (?, ?, ?)"[i % 43];
}

/* In memory of the very size, so that a sanitizer sees a byte too many. */
static void check_snappy(struct compress_state *state, const uint8_t *source, uint32_t size)
{
    uint32_t capacity = size + size / 6 + 32, claimed = 0;
    uint8_t *compressed = malloc(capacity), *back = malloc(size > 0 ? size : 1);
    uint32_t written = cqr_body_compress(COMPRESSION_SNAPPY, state, source, size, compressed, capacity);
    ck_assert_uint_gt(written, 0);
    compressed = realloc(compressed, written);
    ck_assert_int_eq(cqr_body_size(COMPRESSION_SNAPPY, compressed, written, size, &claimed), CQLRING_OK);
    ck_assert_uint_eq(claimed, size);
    ck_assert_int_eq(cqr_body_decompress(COMPRESSION_SNAPPY, compressed, written, back, size), CQLRING_OK);
    ck_assert(size == 0 || memcmp(back, source, size) == 0);
    ck_assert_int_eq(cqr_body_decompress(COMPRESSION_SNAPPY, compressed, written - 1, back, size), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_body_decompress(COMPRESSION_SNAPPY, compressed, written, back, size + 1), CQLRING_PROTOCOL);
    if (size > 0)
        ck_assert_int_eq(cqr_body_size(COMPRESSION_SNAPPY, compressed, written, size - 1, &claimed), CQLRING_TOO_LARGE);
    for (uint32_t less = 1; less < written && less < 200; less++) { /* less than it takes is not enough */
        uint8_t *room = malloc(less);
        ck_assert_uint_eq(cqr_body_compress(COMPRESSION_SNAPPY, state, source, size, room, less), 0);
        free(room);
    }
    free(compressed);
    free(back);
}

static void check_round_trip(struct compress_state *state, const uint8_t *source, uint32_t size)
{
    uint32_t capacity = cqr_compress_bound(size) + 4;
    uint8_t *compressed = malloc(capacity);
    uint8_t *back = malloc(size + 1);
    uint32_t written = cqr_lz4_compress_raw(state, source, size, compressed, capacity);
    ck_assert_uint_gt(written, 0);
    ck_assert_int_eq(cqr_lz4_decompress_raw(compressed, written, back, size), CQLRING_OK);
    ck_assert(size == 0 || memcmp(back, source, size) == 0);
    written = cqr_lz4_compress_body(state, source, size, compressed, capacity);
    uint32_t claimed = 0;
    ck_assert_int_eq(cqr_lz4_body_size(compressed, written, size, &claimed), CQLRING_OK);
    ck_assert_uint_eq(claimed, size);
    memset(back, 0, size);
    ck_assert_int_eq(cqr_lz4_decompress_body(compressed, written, back, size), CQLRING_OK);
    ck_assert(size == 0 || memcmp(back, source, size) == 0);
    free(compressed);
    free(back);
    check_snappy(state, source, size);
}

/* One state for all of them: no block may depend on one before it. */
START_TEST(whatever_is_compressed_comes_back)
{
    static const uint32_t sizes[] = {0,    1,    2,     12,     13,     64,     100,
                                     1000, 4096, 65536, 131071, 131072, 1000000};
    struct compress_state *state = cqr_compress_state_create();
    uint8_t *data = malloc(1000000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fill_words(data, sizes[i]);
        check_round_trip(state, data, sizes[i]);
        fill_noise(data, sizes[i], (uint32_t)i);
        check_round_trip(state, data, sizes[i]);
        memset(data, 0, sizes[i]);
        check_round_trip(state, data, sizes[i]);
    }
    free(data);
    cqr_compress_state_destroy(state);
}
END_TEST

START_TEST(cp_03_ten_megabytes_of_zeros_come_back)
{
    enum { SIZE = 10 << 20 };
    struct compress_state *state = cqr_compress_state_create();
    uint8_t *data = calloc(1, SIZE);
    check_round_trip(state, data, SIZE);
    free(data);
    cqr_compress_state_destroy(state);
}
END_TEST

START_TEST(a_compressor_goes_on_after_what_did_not_fit)
{
    struct compress_state *state = cqr_compress_state_create();
    uint8_t data[5000];
    uint8_t target[6000];
    fill_noise(data, sizeof data, 1);
    ck_assert_uint_eq(cqr_lz4_compress_raw(state, data, sizeof data, target, 100), 0);
    ck_assert_uint_eq(cqr_lz4_compress_body(state, data, sizeof data, target, 4), 0);
    ck_assert_uint_eq(cqr_lz4_compress_body(state, data, sizeof data, target, 104), 0);
    ck_assert_uint_eq(cqr_lz4_compress_raw(state, data, sizeof data, target, 0), 0);
    check_round_trip(state, data, sizeof data);
    cqr_compress_state_destroy(state);
}
END_TEST

START_TEST(the_bound_is_never_exceeded)
{
    struct compress_state *state = cqr_compress_state_create();
    uint8_t data[2000];
    uint8_t target[2200];
    fill_noise(data, sizeof data, 7);
    for (uint32_t size = 0; size <= sizeof data; size += 7) {
        uint32_t bound = cqr_compress_bound(size);
        uint32_t written = cqr_lz4_compress_raw(state, data, size, target, bound);
        ck_assert_uint_gt(written, 0);
        ck_assert_uint_le(written, bound);
    }
    ck_assert_uint_eq(cqr_compress_bound(UINT32_MAX), 0);
    ck_assert_uint_eq(cqr_lz4_compress_raw(state, data, UINT32_MAX, target, sizeof target), 0);
    cqr_compress_state_destroy(state);
}
END_TEST

START_TEST(another_size_than_claimed_is_a_protocol_error)
{
    struct compress_state *state = cqr_compress_state_create();
    uint8_t data[1000];
    uint8_t target[1100];
    uint8_t back[1100];
    fill_words(data, sizeof data);
    uint32_t size = cqr_lz4_compress_raw(state, data, sizeof data, target, sizeof target);
    ck_assert_int_eq(cqr_lz4_decompress_raw(target, size, back, 999), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_lz4_decompress_raw(target, size, back, 1001), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_lz4_decompress_raw(target, size - 1, back, 1000), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_lz4_decompress_raw(target, 0, back, 1000), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_lz4_decompress_raw(target, size, back, UINT32_MAX), CQLRING_PROTOCOL);
    size = cqr_lz4_compress_body(state, data, sizeof data, target, sizeof target);
    ck_assert_int_eq(cqr_lz4_decompress_body(target, size, back, 999), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_lz4_decompress_body(target, 4, back, 1000), CQLRING_PROTOCOL);
    cqr_compress_state_destroy(state);
}
END_TEST

START_TEST(a_claimed_length_is_checked_before_it_is_believed)
{
    uint8_t body[8] = {0};
    uint32_t size = 0;
    cqr_store_u32(body, 1001);
    ck_assert_int_eq(cqr_lz4_body_size(body, sizeof body, 1000, &size), CQLRING_TOO_LARGE);
    ck_assert_uint_eq(size, 1001); /* what it would be */
    size = 0;
    cqr_store_u32(body, 0x80000000);
    ck_assert_int_eq(cqr_lz4_body_size(body, sizeof body, UINT32_MAX, &size), CQLRING_PROTOCOL);
    /* 4 bytes of LZ4 cannot make this much */
    cqr_store_u32(body, 100000);
    ck_assert_int_eq(cqr_lz4_body_size(body, sizeof body, 1 << 28, &size), CQLRING_PROTOCOL);
    for (uint32_t cut = 0; cut <= 4; cut++)
        ck_assert_int_eq(cqr_lz4_body_size(body, cut, 1 << 28, &size), CQLRING_PROTOCOL);
    ck_assert_uint_eq(size, 0);
}
END_TEST

START_TEST(no_garbage_reads_or_writes_outside)
{
    uint8_t source[300];
    for (uint32_t seed = 0; seed < 2000; seed++) {
        uint32_t size = 1 + seed % 299;
        fill_noise(source, size, seed);
        uint8_t *exact = malloc(size);
        uint8_t *target = malloc(200);
        memcpy(exact, source, size);
        cqr_lz4_decompress_raw(exact, size, target, 200);
        free(exact);
        free(target);
    }
}
END_TEST

START_TEST(a_state_that_cannot_be_made_is_null)
{
    int64_t live = cqr_mem_live_count();
    cqr_mem_fail_at(1, 0);
    ck_assert_ptr_null(cqr_compress_state_create());
    cqr_mem_fail_at(0, 0);
    cqr_compress_state_destroy(NULL);
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

/* What a server could send and no compressor of ours makes: every kind of tag, and each of them wrong. */
START_TEST(snappys_elements_are_read_and_none_is_believed)
{
    static const struct {
        const char *bytes;
        uint32_t size;
        const char *text; /* NULL: refused */
    } cases[] = {
        {"\x00", 1, ""},
        {"\x03\x08" "abc", 5, "abc"},
        {"\x03\xF0\x02" "abc", 6, "abc"},                 /* length in one byte, two, three, four */
        {"\x03\xF4\x02\x00" "abc", 7, "abc"},
        {"\x03\xF8\x02\x00\x00" "abc", 8, "abc"},
        {"\x03\xFC\x02\x00\x00\x00" "abc", 9, "abc"},
        {"\x07\x08" "abc\x01\x03", 7, "abcabca"},        /* copies with 11, 16 and 32 bits of offset */
        {"\x06\x08" "abc\x0A\x03\x00", 8, "abcabc"},
        {"\x06\x08" "abc\x0B\x03\x00\x00\x00", 10, "abcabc"},
        {"\x07\x00" "a\x16\x01\x00", 6, "aaaaaaa"},      /* into what it writes */
        {"\x06\x08" "abc\x0A\x04\x00", 8, NULL},          /* before the beginning */
        {"\x06\x08" "abc\x0A\x00\x00", 8, NULL},          /* from nowhere */
        {"\x05\x08" "abc\x0A\x03\x00", 8, NULL},          /* more than was claimed */
        {"\x07\x08" "abc\x0A\x03\x00", 8, NULL},          /* less */
        {"\x03\x08" "ab", 4, NULL},                        /* cut */
        {"\x03\xFC\xFF\xFF\xFF\xFF" "abc", 9, NULL},      /* 4 GiB */
        {"\x03\xF0", 2, NULL},
        {"\x83\x80\x80\x80\x80\x00", 6, NULL},            /* a length without an end */
        {"\xFF\xFF\xFF\xFF\x7F", 5, NULL},
        {"", 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *exact = malloc(cases[i].size > 0 ? cases[i].size : 1);
        memcpy(exact, cases[i].bytes, cases[i].size);
        uint32_t size = 0;
        cqlring_status status = cqr_body_size(COMPRESSION_SNAPPY, exact, cases[i].size, 1000, &size);
        if (status == CQLRING_OK) {
            uint8_t *back = malloc(size > 0 ? size : 1);
            status = cqr_body_decompress(COMPRESSION_SNAPPY, exact, cases[i].size, back, size);
            if (cases[i].text != NULL)
                ck_assert_msg(status == CQLRING_OK && size == strlen(cases[i].text) && memcmp(back, cases[i].text, size) == 0, "case %zu", i);
            free(back);
        }
        ck_assert_msg((status == CQLRING_OK) == (cases[i].text != NULL), "case %zu", i);
        free(exact);
    }
    uint32_t size;
    ck_assert_int_eq(cqr_body_size(COMPRESSION_NONE, "\x00", 1, 1000, &size), CQLRING_PROTOCOL);
    ck_assert_int_eq(cqr_body_size(COMPRESSION_SNAPPY, "\xE8\x07" "a", 3, 1000, &size), CQLRING_PROTOCOL); /* one byte that makes 1000 */
}
END_TEST

int main(void)
{
    TCase *test = tcase_create("compress");
    tcase_set_timeout(test, 60);
    tcase_add_test(test, whatever_is_compressed_comes_back);
    tcase_add_test(test, snappys_elements_are_read_and_none_is_believed);
    tcase_add_test(test, cp_03_ten_megabytes_of_zeros_come_back);
    tcase_add_test(test, a_compressor_goes_on_after_what_did_not_fit);
    tcase_add_test(test, the_bound_is_never_exceeded);
    tcase_add_test(test, another_size_than_claimed_is_a_protocol_error);
    tcase_add_test(test, a_claimed_length_is_checked_before_it_is_believed);
    tcase_add_test(test, no_garbage_reads_or_writes_outside);
    tcase_add_test(test, a_state_that_cannot_be_made_is_null);
    Suite *suite = suite_create("compress");
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
