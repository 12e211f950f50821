/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/partition_rest.h"

#include "cql/token.h"
#include "driver/lane.h"
#include "driver/policy.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"

enum { FORGET_US = 2000000, RESTS_DOUBLED_MAX = 7, GAP_MIN_US = 1000, GAP_MAX_US = 20000, GAP_LEAST_US = 100, KEY_CELLS_MAX = 256 };

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001B3);
    return (hash ^ 0xFF) * UINT64_C(0x100000001B3);
}

static uint64_t table_of(const struct op *op)
{
    uint64_t hash = (uint64_t)(uintptr_t)op->plan->session->cluster ^ UINT64_C(0xCBF29CE484222325);
    hash = mix_text(mix_text(hash, op->version->keyspace), op->version->table);
    return (hash << 1 | op->plan->is_read) | UINT64_C(1) << 63;
}

static bool is_over(const struct partition_rest *rest, int64_t now_us)
{
    return now_us - rest->until_us > FORGET_US;
}

/* The partition's; what is over is forgotten on the way. */
static struct partition_rest *find(struct lane *lane, uint64_t table, int64_t token)
{
    struct partition_rest *found = NULL;
    uint32_t left = lane->rest_count;
    for (struct partition_rest *rest = lane->rests; left > 0; rest++) {
        if (rest->table == 0)
            continue;
        left--;
        if (is_over(rest, lane->now_us)) {
            rest->table = 0;
            lane->rest_count--;
        } else if (rest->token == token && rest->table == table) {
            found = rest;
        }
    }
    return found;
}

static struct partition_rest *make(struct lane *lane, uint64_t table, int64_t token)
{
    if (lane->rests == NULL)
        lane->rests = cqr_mem_zalloc(PARTITION_RESTS_MAX * sizeof *lane->rests);
    if (lane->rests == NULL)
        return NULL; /* the row itself waits */
    struct partition_rest *rest = lane->rests;
    for (uint32_t i = 0; i < PARTITION_RESTS_MAX && rest->table != 0; i++)
        if (lane->rests[i].table == 0 || lane->rests[i].until_us < rest->until_us)
            rest = &lane->rests[i];
    lane->rest_count += rest->table == 0;
    *rest = (struct partition_rest){.table = table, .token = token};
    return rest;
}

/* Whose time has come goes, but one in a turn: a turn that is late must not send all of them before the first answer. */
static bool may_go(struct partition_rest *rest, int64_t now_us)
{
    if (now_us < rest->until_us || rest->went_us == now_us)
        return false;
    rest->went_us = now_us;
    return true;
}

/* A place in the line, after now. */
static int64_t line_up(struct partition_rest *rest, int64_t now_us)
{
    int64_t due = rest->next_us > rest->until_us ? rest->next_us : rest->until_us;
    due = due > now_us ? due : now_us + rest->gap_us;
    rest->next_us = due + rest->gap_us;
    if (rest->gap_us > GAP_LEAST_US)
        rest->gap_us -= rest->gap_us / 32;
    return due;
}

/* A row on the only node has none yet: nothing had to be chosen by it. */
static bool token_make(struct lane *lane, struct op *op)
{
    if (op->has_token)
        return true;
    cqlring_bytes cells[KEY_CELLS_MAX];
    struct reader reader;
    cqr_reader_init(&reader, op->values, op->values_size);
    uint32_t count = cqr_get_u16(&reader);
    if (op->body != NULL || count > KEY_CELLS_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++)
        cells[i] = cqr_get_bytes(&reader);
    for (uint16_t i = 0; i < op->version->key_count; i++)
        if (op->version->key_parts[i] >= count)
            return false;
    op->has_token = !reader.failed && cqr_version_token(lane, op->version, cells, &op->token);
    return op->has_token;
}

int64_t cqr_partition_refused(struct lane *lane, struct op *op, int64_t delay_us)
{
    uint64_t random = cqr_random(&lane->random);
    int64_t alone_us = delay_us >= 0 ? delay_us : cqr_retry_backoff_us(op->tries, random);
    if (op->version == NULL || op->version->table[0] == '\0' || op->values == NULL || delay_us == 0 || !token_make(lane, op))
        return alone_us;
    uint64_t table = table_of(op);
    struct partition_rest *rest = find(lane, table, op->token);
    if (rest == NULL && (rest = make(lane, table, op->token)) == NULL)
        return alone_us;
    if (lane->now_us >= rest->until_us) { /* else it was under way when another one was refused: one word is enough */
        if (rest->rest_us > 0 && lane->now_us - rest->until_us > rest->rest_us)
            rest->rests -= rest->rests > 0;
        else if (rest->rest_us > 0 && rest->rests < RESTS_DOUBLED_MAX)
            rest->rests++;
        int64_t rest_us = rest->rest_us = delay_us > 0 ? delay_us : cqr_retry_backoff_us(rest->rests, random);
        int64_t gap_us = rest_us / 8;
        rest->gap_us = (uint32_t)(gap_us < GAP_MIN_US ? GAP_MIN_US : gap_us > GAP_MAX_US ? GAP_MAX_US : gap_us);
        rest->until_us = rest->next_us = cqr_deadline_us(lane->now_us, rest_us);
    }
    return line_up(rest, lane->now_us) - lane->now_us;
}

int64_t cqr_partition_due(struct lane *lane, const struct op *op)
{
    struct partition_rest *rest = op->has_token ? find(lane, table_of(op), op->token) : NULL;
    if (rest == NULL)
        return 0;
    if (rest->next_us > lane->now_us || !may_go(rest, lane->now_us))
        return line_up(rest, lane->now_us);
    rest->next_us = lane->now_us + rest->gap_us;
    return 0;
}

static void wait_until(struct lane *lane, struct op *op, int64_t due_us)
{
    op->state = OP_WAIT_RETRY;
    cqr_wheel_arm(&lane->wheel, &op->timer, due_us < op->deadline_us ? due_us : op->deadline_us);
}

bool cqr_partition_waits_on(struct lane *lane, struct op *op)
{
    struct partition_rest *rest = op->has_token && op->version != NULL && op->plan->patient ? find(lane, table_of(op), op->token) : NULL;
    if (rest == NULL || may_go(rest, lane->now_us))
        return false;
    wait_until(lane, op, line_up(rest, lane->now_us));
    return true;
}

void cqr_partition_wait(struct lane *lane, struct op *op, int64_t due_us)
{
    cqr_op_start(lane, op);
    wait_until(lane, op, due_us);
    cqr_count(&lane->stats.partition_waits, 1);
}
