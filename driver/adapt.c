/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/adapt.h"

#include <math.h>
#include <string.h>

enum {
    LEAST = 64,               /* answers before anything is judged */
    MOST = 20000,             /* and after which it is judged anyhow */
    OUTLIER = 6,              /* times the reference */
    HOLD_MIN_US = 50000,      /* between two looks that found nothing to do; doubles */
    HOLD_MAX_US = 2000000,
    SHED_MIN_US = 100000,     /* after the server shed load nothing is tried above; doubles */
    SHED_MAX_US = 2000000
};
static const double STEP = 1.12, SHED_TO = 0.85;
static const double ADAPT_WORTH = 0.3, ADAPT_WORTHLESS = 0.12;
static const double SURE = 2; /* standard errors */

static uint32_t clamp(const struct adapt *adapt, double value)
{
    return value < adapt->floor ? adapt->floor : value > adapt->cap ? adapt->cap : (uint32_t)value;
}

static void limit_set(struct adapt *adapt, uint32_t limit, enum adapt_phase phase)
{
    /* those under way were issued with the old limit; after them as many again come until the new one has settled */
    adapt->skip = limit == adapt->limit ? 0 : adapt->limit + limit;
    adapt->limit = limit;
    adapt->phase = (uint8_t)phase;
    adapt->now = (struct adapt_sample){0};
    adapt->reached = false;
}

void cqr_adapt_init(struct adapt *adapt, uint32_t floor, uint32_t start, uint32_t cap)
{
    memset(adapt, 0, sizeof *adapt);
    adapt->floor = floor < cap ? floor : cap;
    adapt->cap = cap;
    adapt->limit = adapt->base = clamp(adapt, start);
    adapt->phase = ADAPT_GROW;
    adapt->hold_us = HOLD_MIN_US;
    adapt->shed_us = SHED_MIN_US;
}

static double mean(const struct adapt_sample *sample)
{
    return sample->sum / sample->count;
}

/* Of the mean, relative to it. */
static double uncertainty(const struct adapt_sample *sample)
{
    double average = mean(sample), variance = sample->squares / sample->count - average * average;
    return variance <= 0 ? 0 : sqrt(variance / sample->count) / average;
}

/* What the step from base to limit bought, as a share of what it could have: 1 all, 0 nothing. And how sure that is. */
static double elasticity(const struct adapt *adapt, double *error)
{
    double ratio = log((double)adapt->limit / adapt->base);
    double a = uncertainty(&adapt->now), b = uncertainty(&adapt->at_base);
    *error = sqrt(a * a + b * b) / fabs(ratio);
    return 1 - log(mean(&adapt->now) / mean(&adapt->at_base)) / ratio;
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
    double next = down ? adapt->base / STEP : adapt->base * STEP + 1;
    limit_set(adapt, clamp(adapt, next), down ? ADAPT_DOWN : ADAPT_UP);
}

static void keep(struct adapt *adapt, int64_t now_us)
{
    adapt->base = adapt->limit;
    adapt->at_base = adapt->now;
    adapt->hold_us = HOLD_MIN_US;
    step(adapt, now_us);
}

/* Both directions are looked at before it is left alone for a while. */
static void turn_down(struct adapt *adapt, bool other_seen, int64_t now_us)
{
    adapt->down_next = !adapt->down_next;
    if (other_seen)
        hold(adapt, now_us);
    else
        limit_set(adapt, adapt->base, ADAPT_BASE);
}

static void judge(struct adapt *adapt, int64_t now_us)
{
    double error, gain;
    bool last = adapt->now.count >= MOST;
    switch ((enum adapt_phase)adapt->phase) {
    case ADAPT_GROW:
        if (adapt->at_base.count > 0) {
            gain = elasticity(adapt, &error);
            if (!last && fabs(gain - ADAPT_WORTH) < SURE * error)
                return;
            if (gain < ADAPT_WORTH) {
                adapt->down_next = true;
                limit_set(adapt, adapt->base, ADAPT_BASE);
                return;
            }
        } else if (!last && adapt->now.count < 4 * LEAST) {
            return;
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
        gain = elasticity(adapt, &error);
        if (!last && fabs(gain - ADAPT_WORTH) < SURE * error)
            return;
        if (gain > ADAPT_WORTH) {
            adapt->down_next = false;
            keep(adapt, now_us);
        } else {
            turn_down(adapt, false, now_us);
        }
        return;
    case ADAPT_DOWN:
        gain = elasticity(adapt, &error);
        if (!last && fabs(gain - ADAPT_WORTHLESS) < SURE * error)
            return;
        if (gain < ADAPT_WORTHLESS) {
            adapt->down_next = true;
            keep(adapt, now_us);
        } else {
            turn_down(adapt, true, now_us);
        }
        return;
    }
}

void cqr_adapt_answer(struct adapt *adapt, int64_t in_flight_us, int64_t now_us)
{
    if (adapt->skip > 0) {
        adapt->skip--;
        return;
    }
    if (now_us < adapt->hold_until_us)
        return;
    double took = in_flight_us > 0 ? (double)in_flight_us : 1;
    struct adapt_sample *now = &adapt->now;
    if (adapt->reference > 0 && took > OUTLIER * adapt->reference) {
        if (++now->outliers > LEAST && now->outliers > now->count / 4) { /* no outliers: everything has become slower */
            adapt->reference = 0;
            limit_set(adapt, adapt->base, ADAPT_BASE);
        }
        return;
    }
    now->sum += took;
    now->squares += took * took;
    now->count++;
    if (now->count % LEAST != 0)
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

void cqr_adapt_shed(struct adapt *adapt, int64_t now_us)
{
    if (now_us < adapt->shed_until_us - adapt->shed_us / 2)
        return; /* of the same overload: one cut for all who were under way */
    adapt->base = clamp(adapt, (adapt->limit < adapt->base ? adapt->limit : adapt->base) * SHED_TO);
    adapt->shed_us = now_us < adapt->shed_until_us + 4 * adapt->shed_us && adapt->shed_us * 2 < SHED_MAX_US ? adapt->shed_us * 2 : adapt->shed_us;
    adapt->shed_until_us = now_us + adapt->shed_us;
    adapt->hold_us = HOLD_MIN_US;
    adapt->down_next = false;
    limit_set(adapt, adapt->base, ADAPT_BASE);
}
