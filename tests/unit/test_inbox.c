/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>

#include "driver/inbox.h"

START_TEST(items_come_out_oldest_first_and_all_at_once)
{
    static struct inbox inbox;
    struct inbox_item items[5];
    ck_assert(cqr_inbox_is_empty(&inbox));
    ck_assert_ptr_null(cqr_inbox_take(&inbox));
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 5; ++i)
            cqr_inbox_push(&inbox, &items[i]);
        ck_assert(!cqr_inbox_is_empty(&inbox));
        struct inbox_item *item = cqr_inbox_take(&inbox);
        ck_assert(cqr_inbox_is_empty(&inbox));
        for (int i = 0; i < 5; ++i, item = item->next)
            ck_assert_ptr_eq(item, &items[i]);
        ck_assert_ptr_null(item);
        ck_assert_ptr_null(cqr_inbox_take(&inbox));
    }
    cqr_inbox_push(&inbox, &items[3]);
    ck_assert_ptr_eq(cqr_inbox_take(&inbox), &items[3]);
    ck_assert_ptr_null(items[3].next);
}
END_TEST

START_TEST(several_pushed_together_stay_in_order_among_others)
{
    static struct inbox inbox;
    struct inbox_item items[6];
    cqr_inbox_push(&inbox, &items[0]);
    for (int i = 4; i > 1; --i)
        items[i].next = &items[i - 1];
    ck_assert(cqr_inbox_push_all(&inbox, &items[4], &items[1]));
    cqr_inbox_push(&inbox, &items[5]);
    struct inbox_item *item = cqr_inbox_close(&inbox);
    for (int i = 0; i < 6; ++i, item = item->next)
        ck_assert_ptr_eq(item, &items[i]);
    ck_assert_ptr_null(item);
    items[1].next = &items[0];
    ck_assert(!cqr_inbox_push_all(&inbox, &items[1], &items[0]));
    ck_assert(!cqr_inbox_push(&inbox, &items[2]));
    ck_assert_ptr_eq(items[1].next, &items[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inbox");
    TCase *tcase = tcase_create("inbox");
    tcase_add_test(tcase, items_come_out_oldest_first_and_all_at_once);
    tcase_add_test(tcase, several_pushed_together_stay_in_order_among_others);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
