/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/token.h"
#include "serialize/buf.h"

static cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

START_TEST(murmur3_of_known_keys_is_cassandras)
{
    ck_assert_int_eq(cqr_murmur3("", 0), 0);
    ck_assert_int_eq(cqr_murmur3("test", 4), -6017608668500074083);
    ck_assert_int_eq(cqr_murmur3("primary_key", 11), -1632642444691073360);
}
END_TEST

/* The same function spelled another way: bytes one by one, with the sign of each. */
static int64_t murmur3_slowly(const uint8_t *key, uint32_t size)
{
    uint64_t h[2] = {0, 0};
    const uint64_t c[2] = {0x87C37B91114253D5u, 0x4CF5AD432745937Fu};
    const unsigned rotate_k[2] = {31, 33}, rotate_h[2] = {27, 31};
    const uint64_t add[2] = {0x52DCE729, 0x38495AB5};
    uint32_t whole = size / 16 * 16;
    for (uint32_t at = 0; at <= whole; at += 16) {
        uint64_t k[2] = {0, 0};
        for (uint32_t i = 0; i < 16 && at + i < size; ++i) {
            uint64_t byte = key[at + i];
            if (at == whole && byte >= 0x80)
                byte |= 0xFFFFFFFFFFFFFF00u;
            k[i / 8] ^= byte << (8 * (i % 8));
        }
        for (int half = 1; half >= 0; --half) {
            k[half] *= c[half];
            k[half] = k[half] << rotate_k[half] | k[half] >> (64 - rotate_k[half]);
            k[half] *= c[1 - half];
        }
        if (at == whole) {
            h[0] ^= k[0];
            h[1] ^= k[1];
            break;
        }
        for (int half = 0; half < 2; ++half) {
            h[half] ^= k[half];
            h[half] = h[half] << rotate_h[half] | h[half] >> (64 - rotate_h[half]);
            h[half] += h[1 - half];
            h[half] = h[half] * 5 + add[half];
        }
    }
    h[0] ^= size;
    h[1] ^= size;
    h[0] += h[1];
    h[1] += h[0];
    for (int half = 0; half < 2; ++half) {
        h[half] = (h[half] ^ h[half] >> 33) * 0xFF51AFD7ED558CCDu;
        h[half] = (h[half] ^ h[half] >> 33) * 0xC4CEB9FE1A85EC53u;
        h[half] ^= h[half] >> 33;
    }
    return (int64_t)(h[0] + h[1]);
}

START_TEST(murmur3_of_every_length_is_the_slow_ones_and_reads_the_key_alone)
{
    uint64_t seed = 88172645463325252u;
    for (uint32_t size = 0; size < 200; ++size) {
        uint8_t *key = malloc(size + (size == 0));
        ck_assert_ptr_nonnull(key);
        for (uint32_t i = 0; i < size; ++i) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            key[i] = (uint8_t)(seed >> 24);
        }
        ck_assert_int_eq(cqr_murmur3_raw(key, size), murmur3_slowly(key, size));
        free(key);
    }
}
END_TEST

START_TEST(cdc_token_is_the_first_eight_bytes)
{
    static const uint8_t key[] = {0x80, 0, 0, 0, 0, 0, 0, 1, 0xFF};
    ck_assert_int_eq(cqr_cdc_token(key, 9), INT64_MIN + 1);
    ck_assert_int_eq(cqr_cdc_token(key, 8), INT64_MIN + 1);
    ck_assert_int_eq(cqr_cdc_token(key, 7), INT64_MIN);
    ck_assert_int_eq(cqr_cdc_token(key, 0), INT64_MIN);
}
END_TEST

/* RFC 1321, appendix A.5; those with the top bit set are negated. */
START_TEST(random_token_is_md5_without_its_sign)
{
    static const struct {
        const char *key;
        uint8_t md5[16];
    } cases[] = {
        {"",
         {0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42,
          0x7e}},
        {"a",
         {0x0c, 0xc1, 0x75, 0xb9, 0xc0, 0xf1, 0xb6, 0xa8, 0x31, 0xc3, 0x99, 0xe2, 0x69, 0x77, 0x26,
          0x61}},
        {"abc",
         {0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f,
          0x72}},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         {0x57, 0xed, 0xf4, 0xa2, 0x2b, 0xe3, 0xc9, 0x55, 0xac, 0x49, 0xda, 0x2e, 0x21, 0x07, 0xb6,
          0x7a}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint8_t token[16];
        cqr_random_token(cases[i].key, (uint32_t)strlen(cases[i].key), token);
        if (cases[i].md5[0] < 0x80) {
            ck_assert_mem_eq(token, cases[i].md5, 16);
            continue;
        }
        unsigned carry = 0; /* token + md5 = 2^128 */
        for (int j = 15; j >= 0; --j) {
            unsigned sum = (unsigned)token[j] + cases[i].md5[j] + carry;
            ck_assert_uint_eq(sum & 0xFF, 0);
            carry = sum >> 8;
        }
        ck_assert_uint_eq(carry, 1);
    }
}
END_TEST

START_TEST(partitioner_is_known_by_the_last_dotted_part)
{
    static const struct {
        const char *name;
        enum partitioner partitioner;
    } cases[] = {
        {"org.apache.cassandra.dht.Murmur3Partitioner", PARTITIONER_MURMUR3},
        {"Murmur3Partitioner", PARTITIONER_MURMUR3},
        {"org.apache.cassandra.dht.RandomPartitioner", PARTITIONER_RANDOM},
        {"org.apache.cassandra.dht.ByteOrderedPartitioner", PARTITIONER_ORDERED},
        {"com.scylladb.dht.CDCPartitioner", PARTITIONER_CDC},
        {"org.apache.cassandra.dht.Murmur3Partitioner2", PARTITIONER_UNKNOWN},
        {"XMurmur3Partitioner", PARTITIONER_UNKNOWN},
        {"Murmur3Partitioner.", PARTITIONER_UNKNOWN},
        {".", PARTITIONER_UNKNOWN},
        {"", PARTITIONER_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        ck_assert_int_eq(cqr_partitioner_of(text(cases[i].name)), cases[i].partitioner);
    ck_assert_int_eq(cqr_partitioner_of((cqlring_bytes){NULL, CQLRING_NULL}), PARTITIONER_UNKNOWN);
}
END_TEST

START_TEST(routing_key_of_one_component_is_the_cell_itself)
{
    const cqlring_bytes cells[] = {text("no"), text("key"), text("")};
    const uint16_t index = 1, empty = 2;
    cqlring_bytes key;
    ck_assert(cqr_routing_key(cells, &index, 1, NULL, 0, &key));
    ck_assert_ptr_eq(key.data, cells[1].data);
    ck_assert_int_eq(key.size, 3);
    ck_assert(cqr_routing_key(cells, &empty, 1, NULL, 0, &key));
    ck_assert_int_eq(key.size, 0);
}
END_TEST

START_TEST(routing_key_of_several_components_is_composed_in_key_order)
{
    static const uint8_t expected[] = {0, 1, 'b', 0, 0, 0, 0, 0, 2, 'a', 'a', 0};
    const cqlring_bytes cells[] = {text("aa"), text("b"), text("")};
    const uint16_t indexes[] = {1, 2, 0};
    cqlring_bytes key;
    uint8_t scratch[sizeof expected];
    ck_assert(cqr_routing_key(cells, indexes, 3, scratch, sizeof scratch, &key));
    ck_assert_int_eq(key.size, sizeof expected);
    ck_assert_mem_eq(key.data, expected, sizeof expected);
    for (uint32_t size = 0; size < sizeof expected; ++size)
        ck_assert(!cqr_routing_key(cells, indexes, 3, scratch, size, &key));
}
END_TEST

START_TEST(tk_10_null_unset_or_too_long_components_make_no_routing_key)
{
    static uint8_t large[UINT16_MAX + 1], scratch[2 * (UINT16_MAX + 4)];
    const cqlring_bytes cells[] = {text("ok"),
                                   {NULL, CQLRING_NULL},
                                   {NULL, CQLRING_UNSET},
                                   {large, UINT16_MAX + 1},
                                   {large, UINT16_MAX}};
    cqlring_bytes key;
    for (uint16_t bad = 1; bad <= 3; ++bad) {
        const uint16_t pair[] = {0, bad};
        ck_assert(!cqr_routing_key(cells, &bad, 1, scratch, sizeof scratch, &key));
        ck_assert(!cqr_routing_key(cells, pair, 2, scratch, sizeof scratch, &key));
    }
    const uint16_t largest = 4, pair[] = {4, 0};
    ck_assert(cqr_routing_key(cells, &largest, 1, scratch, sizeof scratch, &key));
    ck_assert(cqr_routing_key(cells, pair, 2, scratch, sizeof scratch, &key));
    ck_assert_int_eq(key.size, UINT16_MAX + 3 + 2 + 3);
    ck_assert(!cqr_routing_key(cells, pair, 0, scratch, sizeof scratch, &key));
}
END_TEST

START_TEST(shard_is_within_the_count_and_follows_the_token)
{
    ck_assert_uint_eq(cqr_shard_of(INT64_MIN, 8, 0), 0);
    ck_assert_uint_eq(cqr_shard_of(INT64_MAX, 8, 0), 7);
    ck_assert_uint_eq(cqr_shard_of(0, 2, 0), 1);
    ck_assert_uint_eq(cqr_shard_of(-1, 2, 0), 0);
    for (uint8_t msb = 0; msb < 64; ++msb) {
        ck_assert_uint_lt(cqr_shard_of(INT64_MAX, UINT16_MAX, msb), UINT16_MAX);
        ck_assert_uint_eq(cqr_shard_of(INT64_MAX, 1, msb), 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("token");
    TCase *tcase = tcase_create("token");
    tcase_add_test(tcase, murmur3_of_known_keys_is_cassandras);
    tcase_add_test(tcase, murmur3_of_every_length_is_the_slow_ones_and_reads_the_key_alone);
    tcase_add_test(tcase, cdc_token_is_the_first_eight_bytes);
    tcase_add_test(tcase, random_token_is_md5_without_its_sign);
    tcase_add_test(tcase, partitioner_is_known_by_the_last_dotted_part);
    tcase_add_test(tcase, routing_key_of_one_component_is_the_cell_itself);
    tcase_add_test(tcase, routing_key_of_several_components_is_composed_in_key_order);
    tcase_add_test(tcase, tk_10_null_unset_or_too_long_components_make_no_routing_key);
    tcase_add_test(tcase, shard_is_within_the_count_and_follows_the_token);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
