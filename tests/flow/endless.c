/* SPDX-License-Identifier: Apache-2.0 */

#include "endless.h"

#include <string.h>

#include "watch.h"

static void on_row(const cqlring_completion *completion, void *context)
{
    struct endless *endless = context;
    (void)completion;
    atomic_fetch_add(&endless->calls, 1);
    if (endless->act != NULL && !endless->acted && endless->sink.delivered > 500) {
        endless->acted = true;
        endless->act(endless);
    }
}

void endless_init(struct endless *endless, struct flow *flow)
{
    memset(endless, 0, sizeof *endless);
    flow_rows_init(&endless->rows, FLOW_ROWS_MAX, 16);
    flow_sink_init(&endless->sink, FLOW_ROWS_MAX);
    endless->sink.each = on_row;
    endless->sink.context = endless;
    endless->flow = flow;
}

void endless_fini(struct endless *endless)
{
    flow_rows_fini(&endless->rows);
    flow_sink_fini(&endless->sink);
}

static bool has_begun(struct flow *flow, void *context)
{
    (void)flow;
    return atomic_load(&((struct endless *)context)->calls) > 300;
}

cqlring_future *endless_start(struct endless *endless, cqlring_prepared *insert)
{
    cqlring_job_options options = {.struct_size = sizeof options, .window = 64};
    cqlring_future *job = flow_job(endless->flow, insert, &endless->rows, &endless->sink, &options);
    watch_for(endless->flow, has_begun, endless);
    return job;
}

void endless_check(struct endless *endless, cqlring_future *job)
{
    cqlring_summary summary;
    cqlring_job_summary(job, &summary);
    ck_assert_uint_gt(summary.rows, 300);
    ck_assert_uint_eq(endless->sink.last, summary.rows);
    ck_assert_uint_eq(endless->sink.twice, 0);
    ck_assert_uint_eq(flow_sink_missing(&endless->sink, summary.rows), 0);
    ck_assert_uint_eq(endless->sink.by_status[CQLRING_OK] + endless->sink.by_status[CQLRING_CLOSED], endless->sink.last);
}
