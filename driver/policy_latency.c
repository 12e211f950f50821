/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/policy_latency.h"

enum { NEWS = 64 };

static uint32_t bucket_of(uint64_t us)
{
    if (us < 8)
        return (uint32_t)us;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(us); /* 3 … */
    uint32_t bucket = (power - 2) * 8 + (uint32_t)(us >> (power - 3) & 7);
    return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

/* The largest value that the bucket takes. */
static int64_t bucket_end(uint32_t bucket)
{
    if (bucket < 8)
        return bucket;
    uint32_t shift = bucket / 8 - 1;
    return (((int64_t)(8 + bucket % 8) + 1) << shift) - 1;
}

void cqr_latency_note(struct latency *latency, int64_t us)
{
    latency->counts[bucket_of(us > 0 ? (uint64_t)us : 0)]++;
    latency->news++;
    if (++latency->total < LATENCY_KEPT)
        return;
    latency->total = 0;
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++)
        latency->total += latency->counts[i] /= 2;
}

int64_t cqr_latency_percentile(struct latency *latency, float percentile)
{
    if (latency->total < LATENCY_ENOUGH)
        return -1;
    /* the same number as given before, so compared as such */
    if (!(latency->asked < percentile) && !(latency->asked > percentile) && latency->news < NEWS)
        return latency->answer;
    uint64_t wanted = (uint64_t)((double)latency->total * (double)percentile / 100.0), below = 0;
    uint32_t bucket = 0;
    while (bucket < LATENCY_BUCKETS - 1 && (below += latency->counts[bucket]) <= wanted)
        bucket++;
    latency->asked = percentile;
    latency->news = 0;
    return latency->answer = bucket_end(bucket);
}
