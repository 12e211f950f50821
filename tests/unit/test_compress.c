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

int main(void)
{
    TCase *test = tcase_create("compress");
    tcase_set_timeout(test, 60);
    tcase_add_test(test, whatever_is_compressed_comes_back);
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
