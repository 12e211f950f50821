/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/adapt.h"

#include <math.h>
#include <string.h>

enum {
    LEAST = 12,               /* batches before anything is judged */
    MOST = 64,                /* and after which it is judged anyhow, */
    MOST_ANSWERS = 6000,      /* … with so many answers */
    OUTLIER = 6,              /* times the reference */
    HOLD_MIN_US = 50000,      /* between two looks that found nothing to do; doubles */
    HOLD_MAX_US = 2000000,
    SHED_MIN_US = 100000,     /* after the server shed load nothing is tried above; doubles */
    SHED_MAX_US = 2000000,
    CALM_US = 30000000        /* without shedding, until steps become longer again */
};
static const double STEP = 1.12, STRIDE_MAX = 1.4, SHED_TO = 0.85; /* a step that was kept is followed by a longer one */
static const double ADAPT_WORTH = 0.3, ADAPT_WORTHLESS = 0.12;
static const double SURE = 2; /* standard errors */
static const double FOLLOWS = 0.02;  /* what was under way has to change by so much, or the step says nothing */
static const double UNSURE = 0.5;    /* error of an elasticity that says nothing, however long it was looked at */

static uint32_t clamp(const struct adapt *adapt, double value)
{
    return value < adapt->floor ? adapt->floor : value > adapt->cap ? adapt->cap : (uint32_t)value;
}

static void limit_set(struct adapt *adapt, uint32_t limit, enum adapt_phase phase)
{
    /* those under way were issued with the old limit; after them as many again come until the new one has settled */
    adapt->skip = limit == adapt->limit ? 0 : adapt->limit + limit;
    adapt->limit = limit;
    adapt->batch_count = 0;
    adapt->batch_sum = adapt->batch_levels = 0;
    adapt->phase = (uint8_t)phase;
    adapt->now = (struct adapt_sample){0};
    adapt->reached = false;
}

void cqr_adapt_init(struct adapt *adapt, uint32_t floor, uint32_t start, uint32_t cap)
{
    memset(adapt, 0, sizeof *adapt);
    adapt->turn_us = INT64_MIN;
    adapt->floor = floor < cap ? floor : cap;
    adapt->cap = cap;
    adapt->limit = adapt->base = clamp(adapt, start);
    adapt->phase = ADAPT_GROW;
    adapt->stride = STEP;
    adapt->hold_us = HOLD_MIN_US;
    adapt->shed_us = SHED_MIN_US;
    adapt->shed_until_us = INT64_MIN / 2;
}

static double mean(const struct adapt_sample *sample)
{
    return sample->sum / sample->count;
}

/* Of the mean, relative to it. */
static double uncertainty(const struct adapt_sample *sample)
{
    double average = sample->means / sample->batches, variance = sample->squares / sample->batches - average * average;
    return variance <= 0 ? 0 : sqrt(variance / (sample->batches - 1)) / average;
}

static bool is_last(const struct adapt_sample *sample)
{
    return sample->count >= MOST_ANSWERS && sample->batches >= MOST;
}

enum verdict { NOT_YET, ABOVE, BELOW, NOTHING };

/* What the step from base to limit bought, as a share of what it could have (1 all, 0 nothing): more or less than `worth`? */
static enum verdict verdict(const struct adapt *adapt, double worth)
{
    const struct adapt_sample *now = &adapt->now, *base = &adapt->at_base;
    double ratio = log((double)now->levels / now->count) - log((double)base->levels / base->count);
    bool last = is_last(now);
    if (!(fabs(ratio) >= FOLLOWS))
        return last || now->batches >= MOST ? NOTHING : NOT_YET;
    double a = uncertainty(now), b = uncertainty(base), error = sqrt(a * a + b * b) / fabs(ratio);
    double gain = 1 - log(mean(now) / mean(base)) / ratio;
    if (!(fabs(gain - worth) >= SURE * error)) {
        if (!last)
            return NOT_YET;
        if (error > UNSURE)
            return NOTHING;
    }
    return gain > worth ? ABOVE : BELOW;
}

/* Nothing to do for now: look again later, and later still if there is nothing then. */
static void hold(struct adapt *adapt, int64_t now_us)
{
    limit_set(adapt, adapt->base, ADAPT_BASE);
    adapt->hold_until_us = now_us + adapt->hold_us;
    adapt->hold_us = adapt->hold_us * 2 < HOLD_MAX_US ? adapt->hold_us * 2 : HOLD_MAX_US;
}

/* A step from base, to which at_base belongs. */
static void step(struct adapt *adapt, int64_t now_us)
{
    bool no_higher = adapt->base >= adapt->cap || now_us < adapt->shed_until_us, no_lower = adapt->base <= adapt->floor;
    if (no_higher && no_lower) {
        hold(adapt, now_us);
        return;
    }
    bool down = no_higher || (adapt->down_next && !no_lower);
    double next = down ? adapt->base / adapt->stride : adapt->base * adapt->stride + 1;
    limit_set(adapt, clamp(adapt, next), down ? ADAPT_DOWN : ADAPT_UP);
}

static void keep(struct adapt *adapt, int64_t now_us)
{
    adapt->base = adapt->limit;
    adapt->at_base = adapt->now;
    adapt->hold_us = HOLD_MIN_US;
    if (now_us > adapt->shed_until_us + CALM_US)
        adapt->stride = adapt->stride * STEP < STRIDE_MAX ? adapt->stride * STEP : STRIDE_MAX;
    step(adapt, now_us);
}

/* Both directions are looked at before it is left alone for a while. */
static void turn_down(struct adapt *adapt, bool other_seen, int64_t now_us)
{
    adapt->down_next = !adapt->down_next;
    adapt->stride = STEP;
    if (other_seen)
        hold(adapt, now_us);
    else
        limit_set(adapt, adapt->base, ADAPT_BASE);
}

static void judge(struct adapt *adapt, int64_t now_us)
{
    bool last = is_last(&adapt->now);
    enum verdict told = adapt->at_base.count == 0 ? NOTHING : verdict(adapt, adapt->phase == ADAPT_DOWN ? ADAPT_WORTHLESS : ADAPT_WORTH);
    switch ((enum adapt_phase)adapt->phase) {
    case ADAPT_GROW:
        if (adapt->at_base.count > 0) {
            if (told == NOT_YET)
                return;
            if (told != ABOVE) {
                adapt->down_next = true;
                limit_set(adapt, adapt->base, ADAPT_BASE);
                return;
            }
        }
        adapt->base = adapt->limit;
        adapt->at_base = adapt->now;
        limit_set(adapt, clamp(adapt, adapt->base * 2.0), adapt->base < adapt->cap ? ADAPT_GROW : ADAPT_BASE);
        return;
    case ADAPT_BASE:
        if (!last && uncertainty(&adapt->now) > (STEP - 1) / 8)
            return;
        adapt->at_base = adapt->now;
        step(adapt, now_us);
        return;
    case ADAPT_UP:
        if (told == NOT_YET)
            return;
        if (told == ABOVE) {
            adapt->down_next = false;
            keep(adapt, now_us);
        } else {
            turn_down(adapt, false, now_us);
        }
        return;
    case ADAPT_DOWN:
        if (told == NOT_YET)
            return;
        if (told == BELOW) {
            adapt->down_next = true;
            keep(adapt, now_us);
        } else {
            turn_down(adapt, true, now_us);
        }
        return;
    }
}

/* A batch is whole. */
static void observe(struct adapt *adapt, int64_t now_us)
{
    struct adapt_sample *now = &adapt->now;
    uint32_t count = adapt->batch_count;
    double took = (double)adapt->batch_sum / count;
    took = took >= 1 ? took : 1;
    if (adapt->reference > 0 && took > OUTLIER * adapt->reference) {
        if ((now->outliers += count) > now->count / 2 + 2 * adapt->limit) { /* no outliers: everything has become slower */
            adapt->reference = 0;
            limit_set(adapt, adapt->base, ADAPT_BASE);
        }
        return;
    }
    now->sum += took * count;
    now->means += took;
    now->squares += took * took;
    now->levels += adapt->batch_levels;
    now->count += count;
    now->batches++;
    if (now->batches < LEAST)
        return;
    adapt->reference = mean(now);
    if (!adapt->reached) { /* something else was what limited */
        adapt->now = (struct adapt_sample){0};
        if (adapt->phase != ADAPT_GROW && adapt->limit != adapt->base)
            limit_set(adapt, adapt->base, ADAPT_BASE);
        return;
    }
    judge(adapt, now_us);
}

void cqr_adapt_turn(struct adapt *adapt, uint32_t level, int64_t now_us)
{
    uint32_t count = adapt->turn_count;
    if (count > 0 && adapt->skip > 0) {
        adapt->skip -= count < adapt->skip ? count : adapt->skip;
    } else if (count > 0 && now_us >= adapt->hold_until_us) {
        adapt->batch_count += count;
        adapt->batch_sum += adapt->turn_sum;
        adapt->batch_levels += (uint64_t)adapt->turn_level * count;
        if (adapt->batch_count >= adapt->limit) {
            observe(adapt, now_us);
            adapt->batch_count = 0;
            adapt->batch_sum = adapt->batch_levels = 0;
        }
    }
    adapt->turn_count = 0;
    adapt->turn_sum = 0;
    adapt->turn_us = now_us;
    adapt->turn_level = level > 0 ? level : 1;
}

void cqr_adapt_shed(struct adapt *adapt, int64_t now_us)
{
    if (now_us < adapt->shed_until_us - adapt->shed_us / 2)
        return; /* of the same overload: one cut for all who were under way */
    double cut = adapt->limit * SHED_TO;
    adapt->base = clamp(adapt, cut < adapt->base ? cut : adapt->base);
    adapt->shed_us = now_us < adapt->shed_until_us + 4 * adapt->shed_us && adapt->shed_us * 2 < SHED_MAX_US ? adapt->shed_us * 2 : adapt->shed_us;
    adapt->shed_until_us = now_us + adapt->shed_us;
    adapt->hold_us = HOLD_MIN_US;
    adapt->down_next = false;
    adapt->stride = STEP;
    limit_set(adapt, adapt->base, ADAPT_BASE);
}
