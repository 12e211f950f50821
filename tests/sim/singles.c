/* SPDX-License-Identifier: Apache-2.0 */
#include "singles.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "store.h"

static uint32_t size_below(int64_t base, uint32_t index, uint32_t max)
{
    struct chance chance = chance_make((uint64_t)base, index);
    return chance_below(&chance, max + 1);
}

/* The request of one key; cells and memory are the caller's. */
struct insert {
    uint8_t key[8];
    uint8_t *value;
    cqlring_bytes cells[2];
    cqlring_batch_child children[2];
    cqlring_batch batch;
    cqlring_request request;
};

enum insert_kind { INSERT_PREPARED, INSERT_TEXT, INSERT_BATCH };

static void insert_make(struct insert *insert, struct stage *stage, int64_t key, uint32_t size,
                        enum insert_kind kind, const cqlring_execution *execution)
{
    memset(insert, 0, sizeof *insert);
    insert->value = malloc((size_t)size + 1);
    if (insert->value == NULL)
        abort();
    cqr_store_u64(insert->key, (uint64_t)key);
    store_value(key, insert->value, size);
    insert->cells[0] = (cqlring_bytes){insert->key, 8};
    insert->cells[1] = (cqlring_bytes){insert->value, (int32_t)size};
    insert->request = (cqlring_request){
        .session = stage->session, .execution = execution, .tag = (uint64_t)key};
    if (kind == INSERT_BATCH) {
        insert->children[0] = (cqlring_batch_child){
            .prepared = stage->insert, .values = insert->cells, .value_count = 2};
        insert->children[1] = (cqlring_batch_child){
            .cql = cqlring_text("INSERT INTO sim.t (k, v) VALUES (?, ?)"),
            .values = insert->cells,
            .value_count = 2};
        insert->batch = (cqlring_batch){
            .kind = CQLRING_BATCH_UNLOGGED, .children = insert->children, .count = 2};
        insert->request.batch = &insert->batch;
        return;
    }
    insert->request.values = insert->cells;
    insert->request.value_count = 2;
    if (kind == INSERT_TEXT)
        insert->request.cql = cqlring_text("INSERT INTO sim.t (k, v) VALUES (?, ?)");
    else
        insert->request.prepared = stage->insert;
}

/* Whatever the library did not copy is wrong from here on. */
static void insert_spoil(struct insert *insert, uint32_t size)
{
    memset(insert->value, 0xEE, size);
    free(insert->value);
    memset(insert, 0xEE, sizeof *insert);
}

/* --- single executions ------------------------------------------------------------------------------------------- */

static void called(cqlring_future *future, void *context)
{
    struct single *single = context;
    world.activity++;
    world_check(cqlring_future_ready(future), "on_ready is called before its future is ready");
    world_check(single->calls++ == 0, "on_ready is called twice");
}

static void single_cancel(void *context, uint64_t argument)
{
    struct single *single = context;
    (void)argument;
    if (single->future != NULL)
        cqlring_future_cancel(single->future);
}

static void single_start(void *context, uint64_t index)
{
    struct singles *singles = context;
    struct single *single = &singles->single[index];
    struct entry *entry = &singles->ledger.entries[index];
    struct insert insert;
    cqlring_error error;
    entry->size = size_below(singles->ledger.base, (uint32_t)index, singles->plan->single_size_max);
    enum insert_kind kind = chance_percent(&singles->chance, 70)   ? INSERT_PREPARED
                            : chance_percent(&singles->chance, 50) ? INSERT_TEXT
                                                                   : INSERT_BATCH;
    insert_make(&insert, singles->stage, ledger_key(&singles->ledger, (uint32_t)index), entry->size,
                kind, &singles->plan->single_execution);
    cqlring_status status = cqlring_execute(&insert.request, &single->future, &error);
    insert_spoil(&insert, entry->size);
    singles->left--;
    world_trace("execute", index, (uint64_t)status, (uint64_t)kind);
    if (status != CQLRING_OK) {
        bool limited = singles->plan->stage.session.requests_max != 0;
        world_check((status == CQLRING_FULL && limited) ||
                        (status == CQLRING_CLOSED && singles->closing),
                    "execute is refused: %s", error.message);
        entry->refused = true;
        single->future = NULL;
        return;
    }
    if (chance_percent(&singles->chance, 50)) {
        single->wants_call = true;
        world_check(cqlring_future_on_ready(single->future, called, single) == CQLRING_OK,
                    "on_ready is refused");
        world_check(cqlring_future_on_ready(single->future, called, single) == CQLRING_INVALID,
                    "a second on_ready is not refused");
    }
    if (chance_percent(&singles->chance, 15))
        world_later(chance_between(&singles->chance, 0, 50000), single_cancel, single, 0);
}

void singles_start(struct singles *singles, struct stage *stage, const struct plan *plan)
{
    memset(singles, 0, sizeof *singles);
    singles->plan = plan;
    singles->stage = stage;
    singles->chance = chance_make(plan->seed, 20);
    singles->left = plan->singles;
    ledger_open(&singles->ledger, "execution", 100, plan->singles);
    singles->ledger.repeats = plan->single_execution.idempotent == CQLRING_YES;
    for (uint32_t i = 0; i < plan->singles; i++) {
        singles->single[i] = (struct single){.all = singles, .index = i};
        world_later(chance_between(&singles->chance, 0,
                                   chance_percent(&singles->chance, 70) ? 20000 : plan->heal_us),
                    single_start, singles, i);
    }
}

bool singles_are_through(const struct singles *singles)
{
    if (singles->left > 0)
        return false;
    for (uint32_t i = 0; i < singles->plan->singles; i++)
        if (singles->single[i].future != NULL && !cqlring_future_ready(singles->single[i].future))
            return false;
    return true;
}

/* Before ledgers_judge: the outcomes are told here. */
void singles_judge(struct singles *singles)
{
    for (uint32_t i = 0; i < singles->plan->singles; i++) {
        struct single *single = &singles->single[i];
        world_check(!single->wants_call || single->calls == 1,
                    "execution %u: on_ready was called %u times", i, single->calls);
        if (single->future == NULL)
            continue;
        const cqlring_completion *completion = cqlring_future_completion(single->future);
        cqlring_error error;
        world_check(completion != NULL, "execution %u is ready and has no completion", i);
        cqlring_status status = cqlring_future_wait(single->future, 0, &error);
        world_check(status == completion->status, "execution %u: future and completion disagree",
                    i);
        world_check(completion->tag == (uint64_t)ledger_key(&singles->ledger, i),
                    "execution %u has another one's tag", i);
        world_check((completion->flags & CQLRING_COMPLETION_LAST) != 0,
                    "execution %u: its one completion is not its last", i);
        completion_check("execution", completion, &singles->plan->single_execution, true);
        ledger_tell(&singles->ledger, i, completion->status, completion->flags);
    }
}

void singles_free(struct singles *singles)
{
    for (uint32_t i = 0; i < singles->plan->singles; i++)
        cqlring_future_release(singles->single[i].future);
}

/* --- a queue ----------------------------------------------------------------------------------------------------- */

static void queue_take(struct queue_run *run, const cqlring_completion *completions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_completion *completion = &completions[i];
        world_check(completion->row < run->accepted && !run->row_seen[completion->row],
                    "the queue hands out row %" PRIu64 ", which is unknown or was reaped",
                    completion->row);
        run->row_seen[completion->row] = 1;
        completion_check("queued request", completion, &run->plan->queue_execution, true);
        ledger_tell(&run->ledger, (uint32_t)((int64_t)completion->tag - run->ledger.base),
                    completion->status, completion->flags);
        run->reaped++;
    }
}

static void queue_submit(struct queue_run *run)
{
    struct insert inserts[16];
    cqlring_request requests[16];
    uint32_t count = 1 + chance_below(&run->chance, 16), accepted = 0,
             room = cqlring_queue_room(run->queue);
    if (count > run->plan->queued - run->given)
        count = run->plan->queued - run->given;
    for (uint32_t i = 0; i < count; i++) {
        struct entry *entry = &run->ledger.entries[run->given + i];
        entry->size = size_below(run->ledger.base, run->given + i, run->plan->queued_size_max);
        insert_make(&inserts[i], run->stage, ledger_key(&run->ledger, run->given + i), entry->size,
                    chance_percent(&run->chance, 80) ? INSERT_PREPARED : INSERT_TEXT,
                    &run->plan->queue_execution);
        requests[i] = inserts[i].request;
    }
    cqlring_error error;
    cqlring_status status = cqlring_queue_submit(run->queue, requests, count, &accepted, &error);
    for (uint32_t i = 0; i < count; i++)
        insert_spoil(&inserts[i], run->ledger.entries[run->given + i].size);
    world_trace("submit", count, accepted, (uint64_t)status);
    world_check(accepted <= count && accepted <= room, "the queue had room for %u and took %u",
                room, accepted);
    world_check(status == CQLRING_OK || (status == CQLRING_CLOSED && run->closing),
                "submit is refused: %s", error.message);
    run->given += accepted;
    run->accepted += accepted;
    if (status != CQLRING_OK)
        run->closed = true;
    uint32_t capacity = run->plan->queue_capacity != 0 ? run->plan->queue_capacity : 1024;
    world_check(run->accepted - run->reaped <= capacity, "the queue of %u holds %u", capacity,
                run->accepted - run->reaped);
}

static void queue_step(void *context, uint64_t argument)
{
    struct queue_run *run = context;
    cqlring_completion completions[32];
    cqlring_status status;
    (void)argument;
    if (!run->closed && run->given < run->plan->queued)
        queue_submit(run);
    uint32_t count = cqlring_queue_reap(run->queue, completions, 1 + chance_below(&run->chance, 32),
                                        1, 0, &status);
    queue_take(run, completions, count);
    cqlring_completions_release(completions, count);
    if (chance_percent(&run->chance, 5) && run->given > 0)
        (void)cqlring_queue_cancel(
            run->queue, (uint64_t)ledger_key(&run->ledger, chance_below(&run->chance, run->given)));
    if (!queue_is_submitted(run))
        world_later(chance_between(&run->chance, 1, 20000), queue_step, run, 0);
}

void queue_start(struct queue_run *run, struct stage *stage, const struct plan *plan)
{
    memset(run, 0, sizeof *run);
    run->plan = plan;
    run->stage = stage;
    run->chance = chance_make(plan->seed, 30);
    run->closed = plan->queued == 0;
    ledger_open(&run->ledger, "queued request", 101, plan->queued);
    run->ledger.repeats = plan->queue_execution.idempotent == CQLRING_YES;
    run->row_seen = calloc((size_t)plan->queued + 1, 1);
    if (run->row_seen == NULL)
        abort();
    if (plan->queued == 0)
        return;
    cqlring_queue_options options = {.struct_size = sizeof options,
                                     .session = stage->session,
                                     .capacity = plan->queue_capacity,
                                     .bytes_max = plan->queue_bytes_max};
    cqlring_error error;
    world_check(cqlring_queue_open(&options, &run->queue, &error) == CQLRING_OK, "no queue: %s",
                error.message);
    world_later(chance_between(&run->chance, 0, 20000), queue_step, run, 0);
}

bool queue_is_submitted(const struct queue_run *run)
{
    return run->closed || run->given >= run->plan->queued;
}

void queue_finish(struct queue_run *run)
{
    if (run->queue == NULL)
        return;
    cqlring_completion completions[64];
    cqlring_status status = CQLRING_OK;
    cqlring_queue_close(run->queue);
    while (status != CQLRING_CLOSED) {
        int64_t wait_us = chance_percent(&run->chance, 50)
                              ? -1
                              : chance_between(&run->chance, 0, 100000);
        uint32_t count = cqlring_queue_reap(run->queue, completions, 64,
                                            1 + chance_below(&run->chance, 64), wait_us, &status);
        world_check(wait_us >= 0 || status != CQLRING_TIMEOUT,
                    "a reap that waits for ever timed out");
        queue_take(run, completions, count);
        cqlring_completions_release(completions, count);
        if (wait_us == 0)
            (void)cqlring_runtime_turn(run->stage->runtime, 1000);
    }
    world_check(run->reaped == run->accepted, "the queue took %u requests and handed out %u",
                run->accepted, run->reaped);
    world_check(cqlring_queue_low_water(run->queue) == run->accepted,
                "the queue's low-water mark is %" PRIu64 ", %u are through",
                cqlring_queue_low_water(run->queue), run->accepted);
}

void queue_free(struct queue_run *run)
{
    cqlring_queue_release(run->queue);
    free(run->row_seen);
}
