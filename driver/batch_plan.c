/* SPDX-License-Identifier: Apache-2.0 */

/* Which of the rows that were pulled go together: planned into groups, by partition, from the cells of the source. What becomes of the
   groups is in batch_rows.c. Submitter. */

#include "driver/batch_rows.h"

#include <string.h>

#include "driver/prepared.h"
#include "driver/session_log.h"

#define ROW_NONE UINT16_MAX

/* Of a partition: exact enough to find its slot; the bytes are compared. */
static uint32_t slot_of(uint64_t hash)
{
    return (uint32_t)((hash * UINT64_C(0x9E3779B97F4A7C15)) >> 55) % BATCH_SLOTS;
}

/* Of a primary key: two that are the same have the same; two that are not hardly ever, and then they only go apart. */
static uint64_t mix(uint64_t hash, const cqlring_bytes *cell)
{
    const uint8_t *at = cell->data;
    uint32_t size = cell->size > 0 ? (uint32_t)cell->size : 0;
    uint64_t word = (uint64_t)(uint32_t)cell->size;
    hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    word = 0;
    if (size > 0)
        memcpy(&word, at, size);
    hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ hash >> 32;
}

static uint32_t generation_next(struct batch_rows *batches)
{
    if (batches->generation == UINT32_MAX) {
        memset(batches->partitions, 0, sizeof batches->partitions);
        memset(batches->keys, 0, sizeof batches->keys);
        batches->generation = 0;
    }
    return ++batches->generation;
}

static bool is_same_partition(const struct job_part *part, const cqlring_row *a, const cqlring_row *b)
{
    const struct batch_statement *statements = part->job->batches->statements;
    const struct statement_version *of_a = statements[a->statement].version, *of_b = statements[b->statement].version;
    if (statements[a->statement].table != statements[b->statement].table || of_a->key_count != of_b->key_count)
        return false;
    for (uint32_t i = 0; i < of_a->key_count; i++) {
        const cqlring_bytes *left = &a->cells[of_a->key_parts[i]], *right = &b->cells[of_b->key_parts[i]];
        if (left->size != right->size || (left->size > 0 && memcmp(left->data, right->data, (size_t)left->size) != 0))
            return false;
    }
    return true;
}

/* The slot of the row's partition: with its newest group, or an empty one. */
static struct batch_slot *partition_find(struct job_part *part, int64_t token, const cqlring_row *row)
{
    struct batch_rows *batches = part->batches;
    for (uint32_t at = slot_of((uint64_t)token);; at = (at + 1) % BATCH_SLOTS) {
        struct batch_slot *slot = &batches->partitions[at];
        if (slot->generation != batches->partitions_generation)
            return slot;
        if (slot->hash == (uint64_t)token && is_same_partition(part, row, &part->rows[batches->groups[slot->group].first]))
            return slot;
    }
}

/* Has this group the row's primary key already? From now on it has. */
static bool key_is_there(struct job_part *part, const struct batch_statement *statement, const cqlring_row *row, int64_t token, uint32_t group)
{
    struct batch_rows *batches = part->batches;
    uint64_t hash = (uint64_t)token + statement->table;
    for (uint32_t i = 0; i < statement->key_count; i++)
        hash = mix(hash, &row->cells[statement->keys[i]]);
    for (uint32_t at = slot_of(hash);; at = (at + 1) % BATCH_SLOTS) {
        struct batch_slot *slot = &batches->keys[at];
        if (slot->generation == batches->keys_generation && slot->hash != hash)
            continue;
        bool is_there = slot->generation == batches->keys_generation && slot->group == group;
        if (!is_there)
            *slot = (struct batch_slot){.hash = hash, .generation = batches->keys_generation, .group = (uint16_t)group};
        return is_there;
    }
}

static uint32_t group_new(struct batch_rows *batches, uint32_t row, uint32_t bytes, int64_t timestamp_us)
{
    batches->groups[batches->group_count] =
        (struct batch_group){.first = (uint16_t)row, .last = (uint16_t)row, .count = 1, .bytes = bytes, .timestamp_us = timestamp_us};
    return batches->group_count++;
}

/* A write that goes alone, and the rows of its partition: none of those behind it may go with those before it. */
static void close_groups(struct lane *lane, struct job_part *part, const struct batch_statement *statement, const struct statement_version *version,
                         const cqlring_row *row)
{
    struct batch_rows *batches = part->batches;
    uint64_t size;
    int64_t token;
    if (!cqr_cells_measure(version, row->cells, row->cell_count != 0 ? row->cell_count : version->bind->columns.count, &size))
        return; /* it will be refused */
    if (version != statement->version || !cqr_version_token(lane, version, row->cells, &token)) {
        batches->partitions_generation = generation_next(batches);
        return;
    }
    struct batch_slot *slot = partition_find(part, token, row);
    if (slot->generation == batches->partitions_generation)
        batches->groups[slot->group].closed = true;
}

static void plan_row(struct lane *lane, struct job_part *part, uint32_t index)
{
    struct job *job = part->job;
    struct batch_rows *batches = part->batches;
    const cqlring_row *row = &part->rows[index];
    batches->next[index] = ROW_NONE;
    const struct batch_statement *statement = row->statement < job->statement_count ? &job->batches->statements[row->statement] : NULL;
    struct statement_version *version = statement != NULL ? cqr_prepared_version(job->statements[row->statement]) : NULL;
    uint64_t size = 0;
    int64_t token = 0;
    bool joins = statement != NULL && statement->joins && (version == statement->version || cqr_markers_equal(version, statement->version));
    if (joins) {
        uint32_t count = row->cell_count != 0 ? row->cell_count : version->bind->columns.count;
        joins = cqr_cells_measure(version, row->cells, count, &size) && BATCH_CHILD_AROUND + version->id_size + 2 + size < batches->bytes_max &&
                cqr_version_token(lane, version, row->cells, &token);
    }
    if (!joins) {
        if (statement != NULL && statement->orders)
            close_groups(lane, part, statement, version, row);
        group_new(batches, index, 0, row->timestamp_us);
        return;
    }
    uint32_t bytes = BATCH_CHILD_AROUND + version->id_size + 2 + (uint32_t)size;
    batches->sizes[index] = 2 + (uint32_t)size;
    struct op *op = batches->ops[index];
    op->token = token;
    op->has_token = true;
    struct batch_slot *slot = partition_find(part, token, row);
    bool is_new = slot->generation != batches->partitions_generation;
    struct batch_group *group = is_new ? NULL : &batches->groups[slot->group];
    bool fits = group != NULL && !group->closed && group->count < job->batches->rows_max && group->bytes + bytes <= batches->bytes_max &&
                group->timestamp_us == row->timestamp_us;
    if (fits && !job->batches->distinct) {
        const cqlring_row *first = &part->rows[group->first];
        if (group->count == 1) /* keys are looked at once there are two: most groups may never have them */
            key_is_there(part, &job->batches->statements[first->statement], first, token, slot->group);
        fits = !key_is_there(part, statement, row, token, slot->group);
    }
    if (fits) {
        batches->next[group->last] = (uint16_t)index;
        group->last = (uint16_t)index;
        group->count++;
        group->bytes += bytes;
        return;
    }
    *slot = (struct batch_slot){.hash = (uint64_t)token, .generation = batches->partitions_generation,
                                .group = (uint16_t)group_new(batches, index, bytes, row->timestamp_us)};
}

/* What was pulled, as far as there are ops: listed, and in groups. */
void cqr_batch_plan(struct lane *lane, struct job_part *part)
{
    struct batch_rows *batches = part->batches;
    batches->group_at = batches->group_count = 0;
    batches->partitions_generation = generation_next(batches);
    batches->keys_generation = generation_next(batches);
    if (cqr_batch_limit_ask(&part->job->session->cluster->batch_limit, part->job->batches->bytes_max, lane->now_us, &batches->bytes_max))
        cqr_pool_log(lane, part->job->session->lanes[lane->index].pool, &(struct log_news){.level = CQLRING_LOG_INFO},
                     "batches of rows of one partition may have %u bytes again, for as long as none is too large", batches->bytes_max);
    uint32_t index = part->row_at;
    batches->plan_row = part->next_row;
    batches->issued_end = index;
    for (; index < part->row_count; index++) {
        batches->ops[index] = cqr_job_row_take(lane, part, &part->rows[index]);
        if (batches->ops[index] == NULL)
            break;
        batches->planned++;
        plan_row(lane, part, index);
    }
    batches->plan_end = index;
    if (batches->planned > 0)
        part->op_wanted = false; /* what is planned comes first */
}
