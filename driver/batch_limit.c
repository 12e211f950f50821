/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/batch_limit.h"

#define RELAXED memory_order_relaxed /* advice: whoever sees an older one makes a batch that is refused, or a smaller one */

static bool raise_it(struct batch_limit *limit, int64_t now_us, uint32_t *bytes)
{
    int64_t due_us = atomic_load_explicit(&limit->raise_us, RELAXED);
    uint32_t now = *bytes, raised = now < UINT32_MAX / 2 ? now * 2 : UINT32_MAX;
    if (now_us < due_us)
        return false;
    if (atomic_exchange_explicit(&limit->raised_from, now, RELAXED) != 0) /* the one before was let be for its whole pause */
        atomic_store_explicit(&limit->pause_us, BATCH_LIMIT_PAUSE_US, RELAXED);
    int64_t next_us = now_us + atomic_load_explicit(&limit->pause_us, RELAXED);
    if (!atomic_compare_exchange_strong_explicit(&limit->raise_us, &due_us, next_us, RELAXED, RELAXED))
        return false; /* another lane's */
    if (!atomic_compare_exchange_strong_explicit(&limit->bytes, &now, raised, RELAXED, RELAXED))
        return false; /* lower just now */
    *bytes = raised;
    return true;
}

bool cqr_batch_limit_ask(struct batch_limit *limit, uint32_t wanted, int64_t now_us, uint32_t *bytes)
{
    *bytes = atomic_load_explicit(&limit->bytes, RELAXED);
    bool is_raised = *bytes != 0 && *bytes < wanted && raise_it(limit, now_us, bytes);
    if (*bytes == 0 || *bytes > wanted)
        *bytes = wanted;
    return is_raised;
}

/* It was more than the server takes, so half of it is more than half of what it takes. */
bool cqr_batch_limit_refused(struct batch_limit *limit, uint32_t size, int64_t now_us, uint32_t *bytes)
{
    uint32_t half = size / 2 > BATCH_LIMIT_FLOOR ? size / 2 : BATCH_LIMIT_FLOOR, was = atomic_load_explicit(&limit->bytes, RELAXED);
    uint32_t from = atomic_load_explicit(&limit->raised_from, RELAXED);
    int64_t pause_us = atomic_load_explicit(&limit->pause_us, RELAXED);
    if (pause_us == 0)
        pause_us = BATCH_LIMIT_PAUSE_US;
    if (from != 0 && size > from && atomic_compare_exchange_strong_explicit(&limit->raised_from, &from, 0, RELAXED, RELAXED))
        pause_us = pause_us * 2 < BATCH_LIMIT_PAUSE_MAX_US ? pause_us * 2 : BATCH_LIMIT_PAUSE_MAX_US;
    atomic_store_explicit(&limit->pause_us, pause_us, RELAXED);
    atomic_store_explicit(&limit->raise_us, now_us + pause_us, RELAXED);
    while (was == 0 || half < was)
        if (atomic_compare_exchange_weak_explicit(&limit->bytes, &was, half, RELAXED, RELAXED)) {
            *bytes = half;
            return true;
        }
    *bytes = was;
    return false;
}
