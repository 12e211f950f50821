/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/mem.h"

static int is_zero(const void *memory, size_t size)
{
    const uint8_t *bytes = memory;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0)
            return 0;
    }
    return 1;
}

START_TEST(every_allocation_is_counted_until_freed)
{
    uint64_t count = cqr_mem_allocation_count();
    int64_t live = cqr_mem_live_count();
    void *memory[] = {cqr_mem_alloc(10),        cqr_mem_zalloc(10),
                      cqr_mem_array(3, 7),      cqr_mem_realloc(NULL, 9),
                      cqr_mem_aligned(64, 100), cqr_mem_aligned_raw(64, 100),
                      cqr_mem_alloc(0),         cqr_mem_text("text", 4)};
    const int made = sizeof memory / sizeof memory[0];
    ck_assert_uint_eq(cqr_mem_allocation_count() - count, made);
    ck_assert_int_eq(cqr_mem_live_count() - live, made);
    memory[0] = cqr_mem_realloc(memory[0], 1000);
    ck_assert_uint_eq(cqr_mem_allocation_count() - count, made + 1);
    ck_assert_int_eq(cqr_mem_live_count() - live, made);
    for (int i = 0; i < made; i++) {
        ck_assert_ptr_nonnull(memory[i]);
        cqr_mem_free(memory[i]);
    }
    cqr_mem_free(NULL);
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

START_TEST(zeroed_memory_is_zero)
{
    uint8_t *memory = cqr_mem_zalloc(1000);
    ck_assert(is_zero(memory, 1000));
    cqr_mem_free(memory);
    memory = cqr_mem_array(10, 100);
    ck_assert(is_zero(memory, 1000));
    cqr_mem_free(memory);
}
END_TEST

START_TEST(aligned_memory_is_aligned_and_zero)
{
    for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
        uint8_t *memory = cqr_mem_aligned(alignment, 1001);
        ck_assert_uint_eq((uintptr_t)memory % alignment, 0);
        ck_assert(is_zero(memory, 1001));
        cqr_mem_free(memory);
    }
}
END_TEST

START_TEST(sizes_that_overflow_are_refused)
{
    ck_assert_ptr_null(cqr_mem_array(SIZE_MAX / 2, 3));
    ck_assert_ptr_null(cqr_mem_aligned(64, SIZE_MAX - 10));
    ck_assert_ptr_null(cqr_mem_text("x", SIZE_MAX));
    struct arena arena;
    cqr_arena_init(&arena, SIZE_MAX);
    ck_assert_ptr_null(cqr_arena_array(&arena, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(cqr_arena_alloc(&arena, SIZE_MAX));
    ck_assert_ptr_null(cqr_arena_text(&arena, "x", SIZE_MAX));
    cqr_arena_fini(&arena);
}
END_TEST

START_TEST(realloc_keeps_the_content_and_on_failure_the_memory)
{
    char *memory = cqr_mem_text("content", 7);
    memory = cqr_mem_realloc(memory, 10000);
    ck_assert_str_eq(memory, "content");
    cqr_mem_fail_at(1, 0);
    ck_assert_ptr_null(cqr_mem_realloc(memory, 20000));
    cqr_mem_fail_at(0, 0);
    ck_assert_str_eq(memory, "content");
    cqr_mem_free(memory);
}
END_TEST

START_TEST(text_copies_are_terminated)
{
    char *text = cqr_mem_text("abcdef", 3);
    ck_assert_str_eq(text, "abc");
    cqr_mem_free(text);
    text = cqr_mem_text(NULL, 0);
    ck_assert_str_eq(text, "");
    cqr_mem_free(text);
}
END_TEST

START_TEST(the_nth_allocation_fails_and_only_that_one)
{
    uint64_t count = cqr_mem_allocation_count();
    cqr_mem_fail_at(3, 0);
    for (int i = 1; i <= 6; i++) {
        void *memory = cqr_mem_alloc(8);
        ck_assert_int_eq(memory == NULL, i == 3);
        cqr_mem_free(memory);
    }
    ck_assert_uint_eq(cqr_mem_failed_count(), 1);
    ck_assert_uint_eq(cqr_mem_allocation_count() - count, 5);
    cqr_mem_fail_at(0, 0);
    ck_assert_uint_eq(cqr_mem_failed_count(), 0);
}
END_TEST

START_TEST(a_sticky_failure_lasts_until_switched_off)
{
    cqr_mem_fail_at(2, 1);
    for (int i = 1; i <= 5; i++) {
        void *memory = cqr_mem_zalloc(8);
        ck_assert_int_eq(memory == NULL, i >= 2);
        cqr_mem_free(memory);
    }
    ck_assert_uint_eq(cqr_mem_failed_count(), 4);
    cqr_mem_fail_at(0, 1);
    void *memory = cqr_mem_zalloc(8);
    ck_assert_ptr_nonnull(memory);
    cqr_mem_free(memory);
}
END_TEST

START_TEST(every_way_to_allocate_can_be_made_to_fail)
{
    cqr_mem_fail_at(1, 1);
    ck_assert_ptr_null(cqr_mem_alloc(1));
    ck_assert_ptr_null(cqr_mem_zalloc(1));
    ck_assert_ptr_null(cqr_mem_array(1, 1));
    ck_assert_ptr_null(cqr_mem_realloc(NULL, 1));
    ck_assert_ptr_null(cqr_mem_aligned(64, 1));
    ck_assert_ptr_null(cqr_mem_aligned_raw(64, 1));
    ck_assert_ptr_null(cqr_mem_text("a", 1));
    struct arena arena;
    cqr_arena_init(&arena, 1000);
    ck_assert_ptr_null(cqr_arena_alloc(&arena, 1));
    ck_assert_ptr_null(cqr_arena_text(&arena, "a", 1));
    cqr_arena_fini(&arena);
    ck_assert_uint_eq(cqr_mem_failed_count(), 9);
    cqr_mem_fail_at(0, 0);
}
END_TEST

START_TEST(an_arena_hands_out_aligned_zeroed_and_distinct_memory)
{
    int64_t live = cqr_mem_live_count();
    struct arena arena;
    cqr_arena_init(&arena, 1 << 20);
    uint8_t *before = NULL;
    for (size_t size = 0; size < 700; size++) {
        uint8_t *memory = cqr_arena_alloc(&arena, size);
        ck_assert_ptr_nonnull(memory);
        ck_assert_ptr_ne(memory, before);
        ck_assert_uint_eq((uintptr_t)memory % alignof(max_align_t), 0);
        ck_assert(is_zero(memory, size));
        memset(memory, 0xA5, size);
        before = memory;
    }
    cqr_arena_fini(&arena);
    ck_assert_int_eq(cqr_mem_live_count(), live);
}
END_TEST

START_TEST(an_arena_makes_few_allocations_for_many_small_things)
{
    struct arena arena;
    cqr_arena_init(&arena, 1 << 20);
    uint64_t count = cqr_mem_allocation_count();
    for (int i = 0; i < 1000; i++)
        ck_assert_str_eq(cqr_arena_text(&arena, "a name", 6), "a name");
    ck_assert_uint_le(cqr_mem_allocation_count() - count, 8);
    cqr_arena_fini(&arena);
}
END_TEST

START_TEST(an_arena_stops_at_its_ceiling)
{
    struct arena arena;
    cqr_arena_init(&arena, 4096);
    ck_assert_ptr_null(cqr_arena_alloc(&arena, 4097));
    ck_assert_ptr_nonnull(cqr_arena_alloc(&arena, 4000));
    ck_assert_ptr_null(cqr_arena_alloc(&arena, 200));
    ck_assert_ptr_nonnull(cqr_arena_alloc(&arena, 64));
    ck_assert_uint_le(arena.total, 4096);
    cqr_arena_fini(&arena);
    /* and begins anew afterwards */
    ck_assert_ptr_nonnull(cqr_arena_alloc(&arena, 4000));
    cqr_arena_fini(&arena);
}
END_TEST

START_TEST(an_arena_goes_on_after_a_failed_allocation)
{
    struct arena arena;
    cqr_arena_init(&arena, 1 << 20);
    char *text = cqr_arena_text(&arena, "kept", 4);
    cqr_mem_fail_at(1, 0);
    ck_assert_ptr_null(cqr_arena_alloc(&arena, 10000));
    cqr_mem_fail_at(0, 0);
    ck_assert_ptr_nonnull(cqr_arena_alloc(&arena, 10000));
    ck_assert_str_eq(text, "kept");
    cqr_arena_fini(&arena);
}
END_TEST

int main(void)
{
    TCase *test = tcase_create("mem");
    tcase_add_test(test, every_allocation_is_counted_until_freed);
    tcase_add_test(test, zeroed_memory_is_zero);
    tcase_add_test(test, aligned_memory_is_aligned_and_zero);
    tcase_add_test(test, sizes_that_overflow_are_refused);
    tcase_add_test(test, realloc_keeps_the_content_and_on_failure_the_memory);
    tcase_add_test(test, text_copies_are_terminated);
    tcase_add_test(test, the_nth_allocation_fails_and_only_that_one);
    tcase_add_test(test, a_sticky_failure_lasts_until_switched_off);
    tcase_add_test(test, every_way_to_allocate_can_be_made_to_fail);
    tcase_add_test(test, an_arena_hands_out_aligned_zeroed_and_distinct_memory);
    tcase_add_test(test, an_arena_makes_few_allocations_for_many_small_things);
    tcase_add_test(test, an_arena_stops_at_its_ceiling);
    tcase_add_test(test, an_arena_goes_on_after_a_failed_allocation);
    Suite *suite = suite_create("mem");
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
