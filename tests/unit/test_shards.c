/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>

#include "driver/shards.h"

START_TEST(local_ports_choose_their_shard_each_once)
{
    for (uint16_t shards = 1; shards <= 17; shards++)
        for (uint16_t shard = 0; shard < shards; shard++) {
            struct local_ports ports = {.min = 50000, .max = 50100, .shard = shard, .shards = shards, .start = 4000000000u + shard};
            bool seen[101] = {false};
            uint32_t count = 0;
            for (uint16_t port; (port = cqr_local_port(&ports, count)) != 0; count++) {
                ck_assert_uint_ge(port, 50000);
                ck_assert_uint_le(port, 50100);
                ck_assert_uint_eq(port % shards, shard);
                ck_assert(!seen[port - 50000]);
                seen[port - 50000] = true;
            }
            uint32_t expected = 0;
            for (uint32_t port = 50000; port <= 50100; port++)
                expected += port % shards == shard;
            ck_assert_uint_eq(count, expected);
        }
}
END_TEST

START_TEST(sh_04_ranges_too_small_and_shards_that_are_none_give_no_port)
{
    struct local_ports three = {.min = 65533, .max = 65535, .shard = 0, .shards = 8};
    uint32_t reached = 0;
    for (; three.shard < 8; three.shard++)
        reached += cqr_local_port(&three, 0) != 0;
    ck_assert_uint_eq(reached, 3);
    ck_assert_uint_eq(cqr_local_port(&(struct local_ports){.min = 50000, .max = 60000, .shard = 9, .shards = 8}, 0), 0);
    ck_assert_uint_eq(cqr_local_port(&(struct local_ports){.min = 50000, .max = 60000}, 0), 0);
    ck_assert_uint_eq(cqr_local_port(&(struct local_ports){.min = 65535, .max = 65535, .shard = 65534, .shards = 65535}, 0), 0);
    ck_assert_uint_eq(cqr_local_port(&(struct local_ports){.min = 65535, .max = 65535, .shard = 0, .shards = 65535, .start = 7}, 0), 65535);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shards");
    TCase *tcase = tcase_create("shards");
    tcase_add_test(tcase, local_ports_choose_their_shard_each_once);
    tcase_add_test(tcase, sh_04_ranges_too_small_and_shards_that_are_none_give_no_port);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
