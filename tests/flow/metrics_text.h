/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METRICS_TEXT_H
#define METRICS_TEXT_H

/* A strict reader of OpenMetrics text, as far as cqlring writes it: it fails the test with the line that breaks a rule. */

#include "flow.h"

enum { METRICS_SAMPLES_MAX = 8192 };

struct metrics_sample {
    char name[96];     /* with its suffix */
    char labels[512];  /* as written, braces and all; "" none */
    double value;
};

struct metrics_text {
    char *text;
    uint32_t count;
    struct metrics_sample *samples;
};

/* cqlring_metrics_text, read and checked: families whole and once, types and suffixes that fit, labels quoted and escaped, no
   sample twice, buckets that rise and end with the count, and the end marked. */
void metrics_read(cqlring_runtime *runtime, struct metrics_text *out);
void metrics_free(struct metrics_text *metrics);
/* The sum of all samples of this name whose labels contain this text ("" any). */
double metrics_sum(const struct metrics_text *metrics, const char *name, const char *label);
uint32_t metrics_count(const struct metrics_text *metrics, const char *name, const char *label);

#endif
