/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cql/segment.h"
#include "serialize/buf.h"

/* A small generator of our own, so that a failing seed is the same everywhere. */
static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void fill(uint8_t *data, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; ++i)
        data[i] = (uint8_t)random_next(&seed);
}

/* The text's definition, bit by bit. */
static uint32_t crc24_by_definition(const uint8_t *data, uint32_t size)
{
    uint32_t crc = 0x875060;
    for (uint32_t i = 0; i < size; ++i) {
        crc ^= (uint32_t)data[i] << 16;
        for (int bit = 0; bit < 8; ++bit) {
            crc <<= 1;
            if ((crc & 0x1000000) != 0)
                crc ^= 0x1974F0B;
        }
    }
    return crc;
}

static uint32_t crc32_of_zlib(const uint8_t *data, uint32_t size)
{
    static const uint8_t initial[4] = {0xFA, 0x2D, 0x55, 0xCA};
    return (uint32_t)crc32(crc32(0, initial, 4), data, size);
}

START_TEST(crc24_is_the_definition)
{
    uint64_t seed = 24;
    uint8_t header[5];
    for (int i = 0; i < 100000; ++i) {
        fill(header, sizeof header, random_next(&seed));
        ck_assert_uint_eq(cqr_crc24(header, 3), crc24_by_definition(header, 3));
        ck_assert_uint_eq(cqr_crc24(header, 5), crc24_by_definition(header, 5));
    }
    /* Every entry of every table. */
    for (int place = 0; place < 5; ++place) {
        memset(header, 0, sizeof header);
        for (int value = 0; value < 256; ++value) {
            header[place] = (uint8_t)value;
            ck_assert_uint_eq(cqr_crc24(header, 3), crc24_by_definition(header, 3));
            ck_assert_uint_eq(cqr_crc24(header, 5), crc24_by_definition(header, 5));
        }
    }
}
END_TEST

START_TEST(crc24_of_a_captured_header_is_as_captured)
{
    static const uint8_t header[] = {0x5D, 0x00, 0x02};
    ck_assert_uint_eq(cqr_crc24(header, 3), 0x6E52C5);
}
END_TEST

START_TEST(crc32_is_zlibs_for_every_length_at_random_offsets)
{
    enum { LENGTH_MAX = 4096, OFFSET_MAX = 64 };
    static uint8_t data[LENGTH_MAX + OFFSET_MAX];
    uint64_t seed = 32;
    fill(data, sizeof data, 7);
    for (uint32_t length = 0; length <= LENGTH_MAX; ++length) {
        uint32_t offset = (uint32_t)(random_next(&seed) % OFFSET_MAX);
        ck_assert_uint_eq(cqr_crc32(data + offset, length), crc32_of_zlib(data + offset, length));
        ck_assert_uint_eq(cqr_crc32(data, length), crc32_of_zlib(data, length));
    }
    ck_assert_uint_eq(cqr_crc32(data, 0), 0x44777ED3);
}
END_TEST

START_TEST(crc32_is_zlibs_for_the_largest_payload_and_single_bits)
{
    uint8_t *data = calloc(1, PROTO_SEGMENT_PAYLOAD_MAX);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(cqr_crc32(data, PROTO_SEGMENT_PAYLOAD_MAX),
                      crc32_of_zlib(data, PROTO_SEGMENT_PAYLOAD_MAX));
    fill(data, PROTO_SEGMENT_PAYLOAD_MAX, 3);
    ck_assert_uint_eq(cqr_crc32(data, PROTO_SEGMENT_PAYLOAD_MAX),
                      crc32_of_zlib(data, PROTO_SEGMENT_PAYLOAD_MAX));
    memset(data, 0, 200);
    for (uint32_t bit = 0; bit < 200 * 8; ++bit) {
        data[bit / 8] = (uint8_t)(1u << bit % 8);
        ck_assert_uint_eq(cqr_crc32(data, 200), crc32_of_zlib(data, 200));
        data[bit / 8] = 0;
    }
    free(data);
}
END_TEST

/* The checksum may not look outside of the payload: memory of exactly its size, for the
   sanitizers. */
START_TEST(crc32_reads_the_payload_alone)
{
    for (uint32_t size = 0; size < 300; ++size) {
        uint8_t *data = malloc(size + (size == 0));
        ck_assert_ptr_nonnull(data);
        fill(data, size, size + 1);
        ck_assert_uint_eq(cqr_crc32(data, size), crc32_of_zlib(data, size));
        free(data);
    }
}
END_TEST

/* Seal `size` bytes in memory of exactly the segment's size; the caller frees. */
static uint8_t *sealed(uint32_t size, bool lz4, uint32_t uncompressed_size, bool self_contained,
                       uint32_t *whole)
{
    uint32_t header_size = lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    uint8_t *segment = malloc(header_size + size + CQR_SEGMENT_TRAILER_SIZE);
    ck_assert_ptr_nonnull(segment);
    fill(segment + header_size, size, size + 17);
    *whole = lz4 ? cqr_segment_seal_lz4(segment, size, uncompressed_size, self_contained)
                 : cqr_segment_seal(segment, size, self_contained);
    ck_assert_uint_eq(*whole, header_size + size + CQR_SEGMENT_TRAILER_SIZE);
    return segment;
}

START_TEST(segment_cut_is_the_segment_sealed)
{
    static const uint32_t sizes[] = {0, 1, 15, 16, 17, 255, 256, 65535, 65536, 131070, 131071};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        for (int how = 0; how < 8; ++how) {
            bool lz4 = (how & 1) != 0, self_contained = (how & 2) != 0;
            uint32_t uncompressed_size = lz4 && (how & 4) != 0
                                             ? PROTO_SEGMENT_PAYLOAD_MAX - (uint32_t)i
                                             : 0;
            uint32_t whole;
            uint8_t *segment = sealed(sizes[i], lz4, uncompressed_size, self_contained, &whole);
            struct segment_header header;
            ck_assert_int_eq(cqr_segment_cut(segment, whole, lz4, &header), SEGMENT_WHOLE);
            ck_assert_uint_eq(header.wire_size, sizes[i]);
            ck_assert_uint_eq(header.uncompressed_size, lz4 ? uncompressed_size : sizes[i]);
            ck_assert_uint_eq(header.header_size, lz4 ? 8 : 6);
            ck_assert(header.self_contained == self_contained);
            free(segment);
        }
    }
}
END_TEST

START_TEST(segment_split_at_every_byte_is_partial_until_it_is_whole)
{
    for (int lz4 = 0; lz4 < 2; ++lz4) {
        uint32_t whole;
        uint8_t *segment = sealed(90, lz4 != 0, 0, true, &whole);
        for (uint32_t size = 0; size < whole; ++size) {
            uint8_t *received = malloc(size + 1);
            ck_assert_ptr_nonnull(received);
            memcpy(received, segment, size);
            struct segment_header header;
            ck_assert_int_eq(cqr_segment_cut(received, size, lz4 != 0, &header), SEGMENT_PARTIAL);
            if (size < (lz4 ? 8u : 6u)) {
                ck_assert_uint_eq(header.header_size, 0);
            } else {
                ck_assert_uint_eq(header.header_size, lz4 ? 8 : 6);
                ck_assert_uint_eq(header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE,
                                  whole);
            }
            free(received);
        }
        free(segment);
    }
}
END_TEST

/* V5-03: one flipped bit, anywhere; which of the two checksums finds it is known. */
START_TEST(v5_03_every_flipped_bit_is_found_and_told_which_checksum)
{
    for (int lz4 = 0; lz4 < 2; ++lz4) {
        uint32_t whole;
        uint8_t *segment = sealed(70, lz4 != 0, 100, true, &whole);
        for (uint32_t bit = 0; bit < 8 * whole; ++bit) {
            segment[bit / 8] ^= (uint8_t)(1u << bit % 8);
            struct segment_header header;
            enum segment_cut cut = cqr_segment_cut(segment, whole, lz4 != 0, &header);
            ck_assert_int_eq(cut,
                             bit / 8 < (lz4 ? 8u : 6u) ? SEGMENT_BAD_HEADER : SEGMENT_BAD_PAYLOAD);
            segment[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(segment);
    }
}
END_TEST

START_TEST(bad_header_is_found_before_the_payload_is_there)
{
    uint32_t whole;
    uint8_t *segment = sealed(1000, false, 0, true, &whole);
    segment[0] ^= 1;
    struct segment_header header;
    ck_assert_int_eq(cqr_segment_cut(segment, CQR_SEGMENT_HEADER_SIZE, false, &header),
                     SEGMENT_BAD_HEADER);
    free(segment);
}
END_TEST

START_TEST(padding_bits_are_ignored)
{
    for (int lz4 = 0; lz4 < 2; ++lz4) {
        uint32_t whole;
        uint8_t *segment = sealed(33, lz4 != 0, 44, true, &whole);
        uint32_t bytes = lz4 ? 5 : 3;
        segment[bytes - 1] |= lz4 ? 0xF8 : 0xFC;
        uint32_t crc = cqr_crc24(segment, bytes);
        memcpy(segment + bytes, &crc, 3);
        struct segment_header header;
        ck_assert_int_eq(cqr_segment_cut(segment, whole, lz4 != 0, &header), SEGMENT_WHOLE);
        ck_assert_uint_eq(header.wire_size, 33);
        ck_assert_uint_eq(header.uncompressed_size, lz4 ? 44 : 33);
        ck_assert(header.self_contained);
        free(segment);
    }
}
END_TEST

START_TEST(empty_segment_is_as_the_text_has_it)
{
    static const uint8_t expected[] = {0x00, 0x00, 0x02, 0x6A, 0x36, 0xC4, 0xD3, 0x7E, 0x77, 0x44};
    uint8_t segment[sizeof expected];
    ck_assert_uint_eq(cqr_segment_seal(segment, 0, true), sizeof expected);
    ck_assert_mem_eq(segment, expected, sizeof expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("segment");
    TCase *tcase = tcase_create("segment");
    tcase_add_test(tcase, crc24_is_the_definition);
    tcase_add_test(tcase, crc24_of_a_captured_header_is_as_captured);
    tcase_add_test(tcase, crc32_is_zlibs_for_every_length_at_random_offsets);
    tcase_add_test(tcase, crc32_is_zlibs_for_the_largest_payload_and_single_bits);
    tcase_add_test(tcase, crc32_reads_the_payload_alone);
    tcase_add_test(tcase, segment_cut_is_the_segment_sealed);
    tcase_add_test(tcase, segment_split_at_every_byte_is_partial_until_it_is_whole);
    tcase_add_test(tcase, v5_03_every_flipped_bit_is_found_and_told_which_checksum);
    tcase_add_test(tcase, bad_header_is_found_before_the_payload_is_there);
    tcase_add_test(tcase, padding_bits_are_ignored);
    tcase_add_test(tcase, empty_segment_is_as_the_text_has_it);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
