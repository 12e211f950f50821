/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cql/proto.h"
#include "store.h"
#include "wire.h"
#include "world.h"

static struct ledger *ledgers;

static struct entry *entry_of(int64_t key, struct ledger **found)
{
    for (struct ledger *ledger = ledgers; ledger != NULL; ledger = ledger->next)
        if (key >= ledger->base && key < ledger->base + ledger->count) {
            *found = ledger;
            return &ledger->entries[key - ledger->base];
        }
    return NULL;
}

/* --- the wire's side --------------------------------------------------------------------------------------------- */

static void request_seen(const struct wire_request *request)
{
    struct ledger *ledger;
    struct entry *entry = request->has_key ? entry_of(request->key, &ledger) : NULL;
    if (entry == NULL)
        return;
    long index = (long)(entry - ledger->entries);
    world_check(!entry->refused, "%s %ld is sent though it was refused", ledger->what, index);
    world_check(!entry->told || entry->outcome == OUTCOME_MAYBE ||
                    (entry->outcome == OUTCOME_OK && ledger->repeats),
                "%s %ld is sent after its outcome (%d) was told", ledger->what, index,
                entry->outcome);
    world_check(request->has_timestamp, "%s %ld is sent without a timestamp", ledger->what, index);
    bool first = !entry->seen;
    if (first) {
        entry->timestamp_us = request->timestamp_us;
        ledger->issued++;
    }
    world_check(entry->timestamp_us == request->timestamp_us,
                "%s %ld has another timestamp when sent again", ledger->what, index);
    entry->seen = true;
    entry->requests++;
    if (!entry->unanswered && !entry->told) { /* the rest of a copy's frame may follow when another attempt has decided */
        entry->unanswered = true;
        ledger->bytes_unanswered += entry->size;
        ledger->rows_unanswered++;
    }
    if (ledger->on_request != NULL)
        ledger->on_request(ledger, entry, first);
}

static void answered(struct ledger *ledger, struct entry *entry)
{
    if (!entry->unanswered)
        return;
    entry->unanswered = false;
    ledger->bytes_unanswered -= entry->size;
    ledger->rows_unanswered--;
}

static void reply_seen(uint32_t node, uint8_t opcode, bool has_key, int64_t key)
{
    (void)node, (void)opcode;
    struct ledger *ledger;
    struct entry *entry = has_key ? entry_of(key, &ledger) : NULL;
    if (entry != NULL)
        answered(ledger, entry);
}

/* --- the application's side -------------------------------------------------------------------------------------- */

void ledgers_init(void)
{
    ledgers = NULL;
    wire_on_request = request_seen;
    wire_on_reply = reply_seen;
}

void ledgers_fini(void)
{
    for (struct ledger *ledger = ledgers; ledger != NULL; ledger = ledger->next)
        free(ledger->entries);
    ledgers = NULL;
    wire_on_request = NULL;
    wire_on_reply = NULL;
}

void ledger_open(struct ledger *ledger, const char *what, uint32_t id, uint32_t count)
{
    *ledger = (struct ledger){
        .next = ledgers, .what = what, .base = (int64_t)(id + 1) << 32, .count = count};
    ledger->entries = calloc((size_t)count + 1, sizeof *ledger->entries);
    if (ledger->entries == NULL)
        abort();
    ledgers = ledger;
}

void ledger_tell(struct ledger *ledger, uint32_t index, uint16_t status, uint8_t flags)
{
    world_check(index < ledger->count, "%s %u was never given, and has an outcome", ledger->what,
                index);
    struct entry *entry = &ledger->entries[index];
    world_check(!entry->told, "%s %u has a second outcome", ledger->what, index);
    entry->told = true;
    entry->outcome = status == CQLRING_OK                              ? OUTCOME_OK
                     : (flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0 ? OUTCOME_MAYBE
                                                                       : OUTCOME_FAILED;
    answered(ledger, entry);
    world_trace("outcome", (uint64_t)ledger->base >> 32, index, status);
}

void completion_check(const char *what, const cqlring_completion *completion,
                      const cqlring_execution *execution, bool is_write)
{
    static const int64_t request_us = 12000000, attempt_us = 3000000, slack_us = 250000;
    uint64_t row = completion->row;
    bool maybe = (completion->flags & CQLRING_COMPLETION_MAYBE_APPLIED) != 0;
    if (completion->status == CQLRING_OK) {
        world_check(completion->error == NULL && !maybe,
                    "%s %" PRIu64 " succeeded and carries an error", what, row);
    } else {
        const cqlring_error *error = completion->error;
        world_check(
            error != NULL && error->status == completion->status && error->message[0] != '\0',
            "%s %" PRIu64 " failed with %u and does not say why", what, row, completion->status);
        world_check((error->may_have_been_applied != 0) == maybe,
                    "%s %" PRIu64
                    ": error and completion disagree on whether it may have been applied",
                    what, row);
        world_check(!maybe || is_write, "%s %" PRIu64 " is a read that may have been applied", what,
                    row);
        world_check(!maybe || completion->attempts > 0,
                    "%s %" PRIu64 " was never sent and may have been applied", what, row);
    }
    int64_t limit_us = execution->timeout_us != 0 ? execution->timeout_us : request_us;
    int64_t took_us = (int64_t)completion->queued_us + completion->in_flight_us;
    world_check(limit_us < 0 || took_us <= limit_us + slack_us + world.lost_us,
                "%s %" PRIu64 ": outcome %u after %" PRId64 " us, its time-out is %" PRId64, what,
                row, completion->status, took_us, limit_us);
    if (completion->status == CQLRING_TIMEOUT) {
        int64_t first_us = execution->attempt_timeout_us != 0 ? execution->attempt_timeout_us
                                                              : attempt_us;
        int64_t least_us = first_us >= 0 && (limit_us < 0 || first_us < limit_us) ? first_us
                                                                                  : limit_us;
        world_check(took_us >= least_us,
                    "%s %" PRIu64 ": timed out after %" PRId64 " us, before its time (%" PRId64 ")",
                    what, row, took_us, least_us);
    }
}

/* --- the storage's side, and the verdict ------------------------------------------------------------------------- */

static void row_stored(int64_t key, cqlring_bytes value, void *context)
{
    (void)context;
    struct ledger *ledger;
    struct entry *entry = entry_of(key, &ledger);
    world_check(entry != NULL, "the storage has a row of key %" PRIx64 ", which nobody wrote", key);
    world_check(value.size == (int32_t)entry->size && store_value_is(key, value),
                "%s %ld: the value in the storage is not what was written", ledger->what,
                (long)(entry - ledger->entries));
    entry->stored = true;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Strictly rising in each ledger (rows are issued in their order), and no two alike anywhere. */
static void judge_timestamps(void)
{
    uint64_t total = 0, count = 0;
    for (struct ledger *ledger = ledgers; ledger != NULL; ledger = ledger->next)
        total += ledger->count;
    int64_t *all = malloc((total + 1) * sizeof *all);
    if (all == NULL)
        abort();
    for (struct ledger *ledger = ledgers; ledger != NULL; ledger = ledger->next)
        for (uint32_t i = 0; i < ledger->count; i++)
            if (ledger->entries[i].seen)
                all[count++] = ledger->entries[i].timestamp_us;
    qsort(all, count, sizeof *all, compare);
    for (uint64_t i = 1; i < count; i++)
        world_check(all[i] != all[i - 1], "two rows have the timestamp %" PRId64, all[i]);
    free(all);
}

void ledgers_judge(struct node_cluster *nodes)
{
    store_read(nodes, row_stored, NULL);
    for (struct ledger *ledger = ledgers; ledger != NULL; ledger = ledger->next) {
        int64_t last_us = INT64_MIN;
        for (uint32_t i = 0; i < ledger->count; i++) {
            const struct entry *entry = &ledger->entries[i];
            if (entry->seen && ledger->on_request != NULL) {
                world_check(entry->timestamp_us > last_us,
                            "%s %u has a timestamp that is not above the one before", ledger->what,
                            i);
                last_us = entry->timestamp_us;
            }
            if (ledger->reads || (ledger->silent && !entry->told))
                continue;
            world_check(entry->outcome != OUTCOME_OK || entry->stored,
                        "%s %u was acknowledged and is not in the storage", ledger->what, i);
            world_check(entry->outcome != OUTCOME_FAILED || !entry->stored,
                        "%s %u failed as not applied and is in the storage", ledger->what, i);
            world_check(entry->told || !entry->stored, "%s %u is in the storage and has no outcome",
                        ledger->what, i);
            world_check(entry->told || !entry->seen, "%s %u was sent and has no outcome",
                        ledger->what, i);
        }
    }
    judge_timestamps();
}
