/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_POLICY_LATENCY_H
#define CQR_POLICY_LATENCY_H

/* How long the latest answers took, and what a percentile of that is: a histogram of eight buckets a power of two (12 % wide)
   that forgets. When it has LATENCY_KEPT samples every count is halved, so that the last few thousand answers decide.

   Plain data of one thread; no clock. */

#include <stdbool.h>
#include <stdint.h>

enum {
    LATENCY_BUCKETS = 216,   /* up to 2^29 µs, 9 minutes; what is longer counts as that */
    LATENCY_KEPT = 8192,
    LATENCY_ENOUGH = 64      /* fewer samples say nothing */
};

struct latency {
    uint32_t counts[LATENCY_BUCKETS];
    uint32_t total;
    uint32_t news;           /* samples since asked was worked out */
    float asked;             /* percentile of `answer`; 0: none */
    int64_t answer;
};

void cqr_latency_note(struct latency *latency, int64_t us);
/* The upper end of the bucket that holds the percentile (0 < percentile < 100); −1 while there are too few samples. Worked out
   anew after 64 further samples, so asking for every request is cheap. */
int64_t cqr_latency_percentile(struct latency *latency, float percentile);

#endif
