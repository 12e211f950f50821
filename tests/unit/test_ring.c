/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>

#include "driver/ring.h"

static struct ring ring;

/* As if so many entries had gone through already. */
static void start_at(uint32_t index)
{
    ring.staged = ring.tail_published = ring.head_cached = ring.tail_cached = index;
    atomic_store(&ring.tail, index);
    atomic_store(&ring.head, index);
}

static void stage(uint16_t stream)
{
    *cqr_ring_stage(&ring) = (struct completion){.stream = stream};
}

START_TEST(capacity_is_a_power_of_two_and_not_less_than_asked)
{
    static const uint32_t asked[] = {0, 1, 64, 65, 1000, 4096, 4097};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; ++i) {
        ck_assert_int_eq(cqr_ring_init(&ring, asked[i]), CQLRING_OK);
        ck_assert_uint_ge(ring.mask + 1, asked[i]);
        ck_assert_uint_eq(ring.mask & (ring.mask + 1), 0);
        cqr_ring_fini(&ring);
        ck_assert_ptr_null(ring.entries);
    }
    ck_assert_int_eq(cqr_ring_init(&ring, UINT32_MAX), CQLRING_NO_MEMORY);
}
END_TEST

START_TEST(ring_without_memory_says_so)
{
    cqr_mem_fail_at(1, 0);
    ck_assert_int_eq(cqr_ring_init(&ring, 64), CQLRING_NO_MEMORY);
    cqr_mem_fail_at(0, 0);
    cqr_ring_fini(&ring);
}
END_TEST

START_TEST(staged_entries_are_seen_after_publish_only)
{
    const struct completion *first;
    ck_assert_int_eq(cqr_ring_init(&ring, 64), CQLRING_OK);
    ck_assert(cqr_ring_is_empty(&ring));
    ck_assert(!cqr_ring_publish(&ring));
    stage(1);
    stage(2);
    ck_assert(cqr_ring_is_empty(&ring));
    ck_assert_uint_eq(cqr_ring_peek(&ring, &first), 0);
    ck_assert(cqr_ring_publish(&ring));
    ck_assert(!cqr_ring_publish(&ring));
    ck_assert(!cqr_ring_is_empty(&ring));
    ck_assert_uint_eq(cqr_ring_peek(&ring, &first), 2);
    ck_assert_uint_eq(first[0].stream, 1);
    ck_assert_uint_eq(first[1].stream, 2);
    cqr_ring_consume(&ring, 1);
    ck_assert_uint_eq(cqr_ring_peek(&ring, &first), 1);
    ck_assert_uint_eq(first[0].stream, 2);
    cqr_ring_consume(&ring, 1);
    ck_assert_uint_eq(cqr_ring_peek(&ring, &first), 0);
    ck_assert(cqr_ring_is_empty(&ring));
    cqr_ring_fini(&ring);
}
END_TEST

/* Every fill from each place of the ring, also where the 32-bit index turns over: nothing lost, in order, and a peek
   never reaches across the end of the array. */
START_TEST(entries_come_out_in_order_wherever_the_index_stands)
{
    static const uint32_t starts[] = {0, 63, UINT32_MAX - 130, UINT32_MAX - 1, UINT32_MAX};
    ck_assert_int_eq(cqr_ring_init(&ring, 64), CQLRING_OK);
    bool good = true;
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; ++s) {
        start_at(starts[s]);
        uint16_t in = 0, out = 0;
        for (uint32_t batch = 1; batch <= 64; ++batch) {
            for (uint32_t i = 0; i < batch; ++i)
                stage(in++);
            good = good && cqr_ring_publish(&ring);
            const struct completion *first;
            uint32_t count, total = 0;
            while ((count = cqr_ring_peek(&ring, &first)) > 0) {
                good = good && first + count <= ring.entries + ring.mask + 1;
                for (uint32_t i = 0; i < count; ++i)
                    good = good && first[i].stream == out++;
                cqr_ring_consume(&ring, count);
                total += count;
            }
            good = good && total == batch;
        }
        good = good && in == out;
    }
    ck_assert(good);
    cqr_ring_fini(&ring);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("ring");
    tcase_add_test(tcase, capacity_is_a_power_of_two_and_not_less_than_asked);
    tcase_add_test(tcase, ring_without_memory_says_so);
    tcase_add_test(tcase, staged_entries_are_seen_after_publish_only);
    tcase_add_test(tcase, entries_come_out_in_order_wherever_the_index_stands);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
