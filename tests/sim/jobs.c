/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "store.h"

enum { WINDOW = 2048 }; /* the cap of a job without one */

static uint32_t window_of(const struct job_run *run)
{
    return run->how->options.window != 0 ? run->how->options.window : WINDOW;
}

static void poke(void *context, uint64_t argument)
{
    struct job_run *run = context;
    (void)argument;
    if (run->future == NULL)
        return;
    run->source_poked = run->sink_poked = true;
    cqlring_job_poke(run->future);
}

static void callback_check(struct job_run *run, const char *which)
{
    world.activity++;
    world_check(run->future != NULL && !cqlring_future_ready(run->future),
                "%s is called after the end of its job", which);
    world_check(run->closed == NULL || !cqlring_future_ready(run->closed),
                "%s is called after the close was through", which);
    world_check(cqlring_future_wait(run->future, -1, NULL) == CQLRING_INVALID,
                "waiting in a callback is not refused");
}

/* --- source ------------------------------------------------------------------------------------------------------ */

static uint32_t size_of(const struct job_run *run, uint32_t row)
{
    struct chance chance = chance_make((uint64_t)run->ledger.base, row);
    return (uint32_t)chance_between(&chance, run->how->size_min, run->how->size_max);
}

static bool is_bad(const struct job_run *run, uint32_t row)
{
    struct chance chance = chance_make((uint64_t)run->ledger.base + 1, row);
    return chance_percent(&chance, run->how->bad_percent);
}

static int64_t partition_of(uint32_t row)
{
    return row % PARTITIONS;
}

/* Whatever the library kept of the last batch is wrong now. */
static uint8_t *room(struct job_run *run, size_t size)
{
    if (run->memory_size < size) {
        free(run->memory);
        run->memory_size = size * 2;
        run->memory = malloc(run->memory_size);
        if (run->memory == NULL)
            abort();
    }
    memset(run->memory, 0xEE, run->memory_size);
    memset(run->cells, 0xEE, sizeof run->cells);
    memset(run->keys, 0xEE, sizeof run->keys);
    return run->memory;
}

static int32_t later(struct job_run *run, int64_t now_us, int64_t *wake_at_us)
{
    int64_t in_us = chance_percent(&run->chance, 50) ? chance_between(&run->chance, 1, 2000)
                                                     : chance_between(&run->chance, 1, 300000);
    run->waits = true;
    run->source_poked = false;
    run->wake_us = INT64_MAX;
    if (chance_percent(&run->chance, 60)) {
        *wake_at_us = run->wake_us = now_us + in_us;
        if (chance_percent(&run->chance, 20))
            world_later(in_us / 2, poke, run, 0);
    } else {
        world_later(in_us, poke, run, 0);
    }
    return CQLRING_SOURCE_LATER;
}

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us,
                    cqlring_error *error, void *context)
{
    struct job_run *run = context;
    const struct job_plan *how = run->how;
    callback_check(run, "the source");
    world_check(!run->over, "the source is asked after its end");
    world_check(capacity >= 1 && capacity <= 256 && capacity <= window_of(run),
                "the source is asked for %u rows", capacity);
    world_check(now_us <= world.now_us && now_us > world.now_us - 1000000,
                "the source is told a wrong time");
    world_check(!run->waits || run->source_poked || now_us >= run->wake_us,
                "the source said LATER and is asked %" PRId64 " us too early",
                run->wake_us - now_us);
    run->waits = false;
    if (chance_percent(&run->chance, how->source_later_percent))
        return later(run, now_us, wake_at_us);
    if (run->given == how->source_fail_at) {
        run->over = run->failed = true;
        memset(error, 0, sizeof *error);
        error->status = CQLRING_TYPE;
        strcpy(error->message, "the file ends in the middle of a line");
        return CQLRING_SOURCE_FAILED;
    }
    uint32_t end = how->source_fail_at < how->rows ? how->source_fail_at : how->rows;
    uint32_t count = end - run->given;
    count = count < capacity ? count : capacity;
    if (count > how->batch_max)
        count = 1 + chance_below(&run->chance, how->batch_max);
    if (count == 0) {
        run->over = true;
        return CQLRING_SOURCE_END;
    }
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += how->kind == JOB_WRITE ? size_of(run, run->given + i) : 0;
    uint8_t *at = room(run, size + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = run->given + i;
        int64_t key = how->kind == JOB_WRITE ? ledger_key(&run->ledger, row) : partition_of(row);
        cqr_store_u64(run->keys[i], (uint64_t)key);
        run->cells[i][0] = (cqlring_bytes){run->keys[i], 8};
        uint32_t markers = 1;
        if (how->kind == JOB_WRITE) {
            uint32_t bytes = run->ledger.entries[row].size = size_of(run, row);
            store_value(key, at, bytes);
            run->cells[i][1] = (cqlring_bytes){at, (int32_t)bytes};
            at += bytes;
            markers = 2;
        }
        run->cells[i][markers] = run->cells[i][0];
        run->ledger.entries[row].refused = is_bad(run, row);
        rows[i] = (cqlring_row){.cells = run->cells[i],
                                .cell_count = markers + run->ledger.entries[row].refused,
                                .tag = row * 7u};
    }
    run->given += count;
    return (int32_t)count;
}

/* --- the wire: limits that hold at every moment ------------------------------------------------------------------- */

static void on_request(struct ledger *ledger, struct entry *entry, bool first)
{
    struct job_run *run = ledger->owner;
    const struct job_plan *how = run->how;
    cqlring_summary summary;
    if (run->future == NULL)
        return;
    cqlring_job_summary(run->future, &summary);
    world_check(ledger->issued <= summary.rows + window_of(run),
                "%s: %" PRIu64 " rows sent and %" PRIu64 " accepted, the window is %u",
                ledger->what, ledger->issued, summary.rows, window_of(run));
    uint64_t bytes_max = how->options.bytes_max != 0 ? how->options.bytes_max : 16 << 20;
    if (how->options.ordered)
        bytes_max += how->size_max; /* the oldest unsettled row is outside the budget */
    /* what was settled without an answer and waits for its turn is not known here */
    bool is_known = how->sink_later_percent == 0 && !ledger->silent &&
                    (!how->options.ordered ||
                     run->plan->mishap_count + run->plan->fault_count == 0);
    if (first && is_known)
        world_check(ledger->rows_unanswered == 1 || ledger->bytes_unanswered <= bytes_max,
                    "%s: %" PRIu64 " bytes of values under way, bytes_max is %" PRIu64,
                    ledger->what, ledger->bytes_unanswered, bytes_max);
    if (first && how->options.rows_per_s > 0 && how->rate_us < 0) {
        double rate = how->options.rows_per_s, burst = rate / 100 > 1 ? rate / 100 : 1;
        double due = (double)(world.now_us - run->started_us) / 1e6 * rate * 1.01 + burst + 1;
        world_check((double)ledger->issued <= due,
                    "%s: %" PRIu64 " rows sent after %.3f s, faster than %.0f rows/s", ledger->what,
                    ledger->issued, (double)(world.now_us - run->started_us) / 1e6, rate);
    }
    (void)entry;
}

/* --- sink -------------------------------------------------------------------------------------------------------- */

/* Pages that end early are told by whoever reads them: their framing is intact. */
static bool is_damaged(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->fault_count; i++)
        if (strncmp(plan->faults[i], "truncated", 9) == 0)
            return true;
    return false;
}

static void page_check(struct job_run *run, const cqlring_completion *completion, uint32_t row)
{
    struct entry *entry = &run->ledger.entries[row];
    int64_t partition = partition_of(row);
    bool last = (completion->flags & CQLRING_COMPLETION_LAST) != 0;
    world_check(completion->result != NULL, "reading %u answered without rows", row);
    cqlring_bytes cells[64];
    uint32_t from = 0, count = 0;
    cqlring_error error;
    for (;;) {
        cqlring_status status = cqlring_result_rows(completion->result, from, cells, 32, &count,
                                                    &error);
        if (status != CQLRING_OK) {
            world_check(status == CQLRING_PROTOCOL && is_damaged(run->plan), "reading %u: %s", row,
                        error.message);
            entry->damaged = true;
        }
        if (status != CQLRING_OK || count == 0)
            break;
        for (uint32_t i = 0; i < count; i++, entry->size++) {
            world_check(entry->damaged || (cells[2 * i].size == 4 &&
                                           cqr_load_u32(cells[2 * i].data) == entry->size),
                        "reading %u: row %u of the partition is missing or twice", row,
                        entry->size);
            cqlring_bytes value = cells[2 * i + 1];
            world_check(entry->damaged || (value.size == (int32_t)store_fill_size(
                                                             partition, entry->size,
                                                             run->plan->partition_size_max) &&
                                           store_value_is(partition * 1000 + entry->size, value)),
                        "reading %u: row %u has a wrong value", row, entry->size);
        }
        from += count;
    }
    world_check(!last || entry->damaged || entry->size == run->plan->partitions[partition],
                "reading %u: %u rows, there are %u", row, entry->size,
                run->plan->partitions[partition]);
}

static void row_accept(struct job_run *run, const cqlring_completion *completion, bool with_result)
{
    uint32_t row = (uint32_t)completion->row;
    bool is_write = run->how->kind == JOB_WRITE;
    if (completion->status == CQLRING_OK && !is_write && with_result)
        page_check(run, completion, row);
    if (run->how->options.ordered && !run->how->options.skip_successes)
        world_check(row == run->hole,
                    "%s: the outcome of row %u comes before that of row %u, and the job is ordered",
                    run->ledger.what, row, run->hole);
    if ((completion->flags & CQLRING_COMPLETION_LAST) == 0) {
        run->ledger.entries[row].pages++;
        return;
    }
    ledger_tell(&run->ledger, row, completion->status, completion->flags);
    run->accepted++;
    run->failures += completion->status != CQLRING_OK;
    while (run->hole < run->ledger.count && run->ledger.entries[run->hole].told)
        run->hole++;
}

static bool is_same(const cqlring_completion *a, const cqlring_completion *b)
{
    return a->row == b->row && a->status == b->status && a->flags == b->flags;
}

/* LATER was said and is not honoured: the session was closed. */
static void again_accept(struct job_run *run)
{
    world_check(run->stopped_outside,
                "%s: the sink said LATER, and something else is delivered next", run->ledger.what);
    for (uint32_t i = 0; i < run->again_count; i++)
        row_accept(run, &run->again[i], false);
    run->again_count = 0;
}

static cqlring_verdict deliver(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct job_run *run = context;
    const struct job_plan *how = run->how;
    callback_check(run, "the sink");
    world_check(count >= 1 && count <= 256, "%u completions are delivered at once", count);
    if (run->again_count > 0 && !is_same(&completions[0], &run->again[0]))
        again_accept(run);
    world_check(run->again_count == 0 || run->sink_poked || run->stopped_outside,
                "%s: the sink said LATER and is asked again without a poke", run->ledger.what);
    world_check(run->again_count <= count, "%s: the sink said LATER to %u completions and gets %u",
                run->ledger.what, run->again_count, count);
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *completion = &completions[i];
        world_check(completion->row < run->given,
                    "%s: an outcome of row %" PRIu64 ", %u were given", run->ledger.what,
                    completion->row, run->given);
        world_check(i >= run->again_count || is_same(completion, &run->again[i]),
                    "%s: the sink said LATER, and something else comes first", run->ledger.what);
        world_check(completion->tag == completion->row * 7,
                    "%s: row %" PRIu64 " comes with another one's tag", run->ledger.what,
                    completion->row);
        world_check(!how->options.skip_successes || completion->status != CQLRING_OK ||
                        completion->result != NULL,
                    "%s: a success is delivered", run->ledger.what);
        const struct entry *entry = &run->ledger.entries[completion->row];
        world_check(!entry->refused || (completion->status == CQLRING_INVALID && !entry->seen),
                    "%s: row %" PRIu64 " has one cell too many and ended with %u", run->ledger.what,
                    completion->row, completion->status);
        completion_check(run->ledger.what, completion, &how->execution, how->kind == JOB_WRITE);
    }
    run->again_count = 0;
    if (chance_percent(&run->chance, how->sink_later_percent)) {
        run->sink_poked = false;
        run->again_count = count;
        memcpy(run->again, completions, count * sizeof *completions);
        world_later(chance_between(&run->chance, 1, 100000), poke, run, 0);
        return CQLRING_LATER;
    }
    for (uint32_t i = 0; i < count; i++)
        row_accept(run, &completions[i], true);
    if (run->accepted < how->sink_stop_at)
        return CQLRING_CONTINUE;
    run->stop_said = true;
    return CQLRING_STOP;
}

/* --- from outside ------------------------------------------------------------------------------------------------ */

static void job_pause(void *context, uint64_t argument)
{
    struct job_run *run = context;
    if (run->future == NULL)
        return;
    if (argument == 0) {
        cqlring_job_pause(run->future);
    } else {
        run->source_poked = run->sink_poked = true;
        cqlring_job_resume(run->future);
    }
}

static void cancel(void *context, uint64_t argument)
{
    struct job_run *run = context;
    (void)argument;
    if (run->future == NULL)
        return;
    run->source_poked = run->sink_poked = true;
    cqlring_future_cancel(run->future);
}

static void rate(void *context, uint64_t argument)
{
    struct job_run *run = context;
    (void)argument;
    if (run->future == NULL)
        return;
    run->source_poked = run->sink_poked = true;
    cqlring_job_rate(run->future, run->how->rate_then, 0);
}

void job_prepare(struct job_run *run, struct stage *stage, const struct plan *plan, uint32_t index)
{
    static const char *const names[JOBS_MAX] = {"job 0, row", "job 1, row", "job 2, row"};
    memset(run, 0, sizeof *run);
    run->plan = plan;
    run->how = &plan->jobs[index];
    run->stage = stage;
    run->chance = chance_make(plan->seed, 10 + index);
    ledger_open(&run->ledger, names[index], index, run->how->rows);
    run->ledger.owner = run;
    run->ledger.repeats = run->how->execution.idempotent == CQLRING_YES;
    run->ledger.silent = !run->how->has_sink || run->how->options.skip_successes;
    run->ledger.reads = run->how->kind == JOB_READ;
    if (run->how->kind == JOB_WRITE)
        run->ledger.on_request = on_request;
}

void job_start(void *context, uint64_t argument)
{
    struct job_run *run = context;
    const struct job_plan *how = run->how;
    (void)argument;
    cqlring_prepared *statement = how->kind == JOB_WRITE ? run->stage->insert : run->stage->select;
    cqlring_source source = {.next = next, .context = run};
    cqlring_sink sink = {.deliver = deliver, .context = run};
    cqlring_job_options options = how->options;
    options.execution = &how->execution;
    cqlring_error error;
    cqlring_status status = cqlring_execute_concurrent(run->stage->session, &statement, 1, &source,
                                                       how->has_sink ? &sink : NULL, 1, &options,
                                                       &run->future, &error);
    world_check(status == CQLRING_OK || (status == CQLRING_CLOSED && run->stopped_outside),
                "a job cannot be started: %s", error.message);
    run->refused = status != CQLRING_OK;
    run->started_us = world.now_us;
    world_trace("job", (uint64_t)run->ledger.base >> 32, (uint64_t)status, 0);
    if (run->refused)
        return;
    if (how->pause_us >= 0) {
        world_later(how->pause_us, job_pause, run, 0);
        world_later(how->resume_us, job_pause, run, 1);
    }
    if (how->cancel_us >= 0)
        world_later(how->cancel_us, cancel, run, 0);
    if (how->rate_us >= 0)
        world_later(how->rate_us, rate, run, 0);
}

/* --- checks ------------------------------------------------------------------------------------------------------ */

void job_check(struct job_run *run)
{
    if (run->future == NULL)
        return;
    cqlring_summary summary;
    cqlring_job_summary(run->future, &summary);
    world_check(summary.low_water >= run->low_water,
                "%s: the low-water mark falls from %" PRIu64 " to %" PRIu64, run->ledger.what,
                run->low_water, summary.low_water);
    run->low_water = summary.low_water;
    world_check(summary.low_water <= run->given,
                "%s: the low-water mark is %" PRIu64 ", %u rows were given", run->ledger.what,
                summary.low_water, run->given);
    if (!run->how->has_sink || run->how->options.skip_successes || run->again_count > 0)
        return;
    world_check(summary.low_water == run->hole,
                "%s: the low-water mark is %" PRIu64
                ", the first row without an accepted outcome is %u",
                run->ledger.what, summary.low_water, run->hole);
    world_check(summary.rows == run->accepted,
                "%s: the summary says %" PRIu64 " rows, the sink had %" PRIu64, run->ledger.what,
                summary.rows, run->accepted);
}

bool job_is_through(const struct job_run *run)
{
    return run->refused || (run->future != NULL && cqlring_future_ready(run->future));
}

static void silent_judge(struct job_run *run, const cqlring_summary *summary)
{
    uint64_t stored = 0, told_failed = 0;
    for (uint32_t i = 0; i < run->ledger.count; i++) {
        const struct entry *entry = &run->ledger.entries[i];
        stored += entry->stored;
        told_failed += entry->told && entry->outcome != OUTCOME_OK;
        world_check(i < summary->rows || (!entry->seen && !entry->stored),
                    "%s %u was sent, the summary knows of %" PRIu64, run->ledger.what, i,
                    summary->rows);
        if (run->how->has_sink)
            world_check(i >= summary->rows || entry->told || entry->stored,
                        "%s %u was not delivered as a failure and is not in the storage",
                        run->ledger.what, i);
    }
    world_check(!run->how->has_sink || told_failed == summary->failed,
                "%s: %" PRIu64 " failures delivered, the summary says %" PRIu64, run->ledger.what,
                told_failed, summary->failed);
    world_check(stored >= summary->rows - summary->failed &&
                    stored <= summary->rows - summary->failed + summary->may_have_been_applied,
                "%s: %" PRIu64 " rows in the storage; of %" PRIu64 " %" PRIu64 " failed, %" PRIu64
                " of them may have been applied",
                run->ledger.what, stored, summary->rows, summary->failed,
                summary->may_have_been_applied);
}

void job_settle(struct job_run *run)
{
    if (run->again_count > 0)
        again_accept(run);
}

void job_judge(struct job_run *run)
{
    if (run->refused)
        return;
    const struct job_plan *how = run->how;
    cqlring_summary summary;
    cqlring_error error;
    cqlring_job_summary(run->future, &summary);
    cqlring_status status = cqlring_future_wait(run->future, 0, &error);
    world_check(status == CQLRING_OK || (error.status == status && error.message[0] != '\0'),
                "%s: the job ended with %u and does not say why", run->ledger.what, status);
    world_check(summary.ended_us >= summary.started_us && summary.started_us > 0,
                "%s: the summary's times are wrong", run->ledger.what);
    world_check(summary.rows <= run->given && summary.failed <= summary.rows &&
                    summary.may_have_been_applied <= summary.failed,
                "%s: the summary contradicts itself", run->ledger.what);
    world_check(summary.low_water == summary.rows,
                "%s: the job is through, and the low-water mark is %" PRIu64 " of %" PRIu64,
                run->ledger.what, summary.low_water, summary.rows);
    world_check(how->options.rows_max == 0 || summary.rows <= how->options.rows_max,
                "%s: %" PRIu64 " rows, rows_max is %" PRIu64, run->ledger.what, summary.rows,
                how->options.rows_max);
    if (how->has_sink && !how->options.skip_successes) {
        world_check(run->accepted == summary.rows && run->failures == summary.failed,
                    "%s: the summary says %" PRIu64 " rows, %" PRIu64
                    " failed; delivered were %" PRIu64 " and %" PRIu64,
                    run->ledger.what, summary.rows, summary.failed, run->accepted, run->failures);
        world_check(run->hole == summary.rows, "%s: row %u has no outcome", run->ledger.what,
                    run->hole);
    } else if (how->kind == JOB_WRITE) {
        silent_judge(run, &summary);
    }
    bool reached = how->options.errors_max > 0 && summary.failed >= how->options.errors_max;
    if (status == CQLRING_OK)
        world_check((run->over && !run->failed && summary.rows == run->given) || run->stop_said ||
                        (how->options.rows_max > 0 && summary.rows == how->options.rows_max),
                    "%s: the job ended well after %" PRIu64
                    " rows, though its source was not through",
                    run->ledger.what, summary.rows);
    else if (status == CQLRING_CANCELLED && how->cancel_us >= 0)
        (void)0;
    else if (run->failed && status == CQLRING_TYPE)
        world_check(strstr(error.message, "middle of a line") != NULL,
                    "%s: the source's own words are lost: %s", run->ledger.what, error.message);
    else
        world_check(reached || run->stopped_outside, "%s: the job ended with %s: %s",
                    run->ledger.what, cqlring_status_text(status), error.message);
    world_check(!reached || status != CQLRING_OK,
                "%s: %" PRIu64 " rows failed, errors_max is %" PRIu64 ", and the job ended well",
                run->ledger.what, summary.failed, how->options.errors_max);
    world_check(!run->failed || status != CQLRING_OK,
                "%s: the source failed and the job ended well", run->ledger.what);
}

void job_free(struct job_run *run)
{
    cqlring_future_release(run->future);
    run->future = NULL;
    free(run->memory);
    run->memory = NULL;
}
