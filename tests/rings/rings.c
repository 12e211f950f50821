/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rings/rings.h"

#include <stdlib.h>
#include <time.h>

int64_t rings_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t rings_end_us(void)
{
    return rings_now_us() + (getenv("CQLRING_LONG") != NULL ? 6000000 : 500000);
}

uint64_t rings_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

int rings_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
