/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RINGS_H
#define TESTS_RINGS_H

/* What the tests of this folder share: they run for a while, not for a number of rounds, so that they take the same time
   under a sanitizer. */

#include <check.h>
#include <stdint.h>

int64_t rings_now_us(void);
int64_t rings_end_us(void);            /* from now: half a second, or six with CQLRING_LONG=1 */
uint64_t rings_random(uint64_t *seed); /* seed not 0 */
int rings_run(Suite *suite);           /* main's result */

#endif
