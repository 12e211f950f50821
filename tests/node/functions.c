/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/functions.h"

#include <ctype.h>

/* Lower case without underscores: currentTimestamp and current_timestamp are one. */
static bool plain_name(cqlring_bytes name, char *out, size_t size)
{
    size_t count = 0;
    for (int32_t i = 0; i < name.size; ++i) {
        uint8_t c = slice_data(name)[i];
        if (c == '_')
            continue;
        if (count + 1 >= size)
            return false;
        out[count++] = (char)tolower(c);
    }
    out[count] = 0;
    return true;
}

static const struct {
    const char *name;
    uint16_t count;
    uint16_t number;
    enum type_kind argument; /* TYPE_CUSTOM: the argument's own */
    enum type_kind result;   /* TYPE_CUSTOM: the argument's */
} functions[] = {
    {"now", 0, FUNCTION_NOW, TYPE_CUSTOM, TYPE_TIMEUUID},
    {"currenttimeuuid", 0, FUNCTION_NOW, TYPE_CUSTOM, TYPE_TIMEUUID},
    {"uuid", 0, FUNCTION_UUID, TYPE_CUSTOM, TYPE_UUID},
    {"currenttimestamp", 0, FUNCTION_CURRENT_TIMESTAMP, TYPE_CUSTOM, TYPE_TIMESTAMP},
    {"currentdate", 0, FUNCTION_CURRENT_DATE, TYPE_CUSTOM, TYPE_DATE},
    {"currenttime", 0, FUNCTION_CURRENT_TIME, TYPE_CUSTOM, TYPE_TIME},
    {"todate", 1, FUNCTION_TO_DATE, TYPE_CUSTOM, TYPE_DATE},
    {"totimestamp", 1, FUNCTION_TO_TIMESTAMP, TYPE_CUSTOM, TYPE_TIMESTAMP},
    {"dateof", 1, FUNCTION_TO_TIMESTAMP, TYPE_TIMEUUID, TYPE_TIMESTAMP},
    {"tounixtimestamp", 1, FUNCTION_TO_UNIX_TIMESTAMP, TYPE_CUSTOM, TYPE_BIGINT},
    {"unixtimestampof", 1, FUNCTION_TO_UNIX_TIMESTAMP, TYPE_TIMEUUID, TYPE_BIGINT},
    {"mintimeuuid", 1, FUNCTION_MIN_TIMEUUID, TYPE_TIMESTAMP, TYPE_TIMEUUID},
    {"maxtimeuuid", 1, FUNCTION_MAX_TIMEUUID, TYPE_TIMESTAMP, TYPE_TIMEUUID},
    {"min", 1, FUNCTION_MIN, TYPE_CUSTOM, TYPE_CUSTOM},
    {"max", 1, FUNCTION_MAX, TYPE_CUSTOM, TYPE_CUSTOM},
    {"sum", 1, FUNCTION_SUM, TYPE_CUSTOM, TYPE_CUSTOM},
    {"avg", 1, FUNCTION_AVG, TYPE_CUSTOM, TYPE_CUSTOM},
};

const struct node_type *node_function_lookup(cqlring_bytes name, uint16_t count,
                                             const struct node_type *first,
                                             const struct node_type **wanted, uint16_t *number)
{
    char plain[64];
    *number = FUNCTION_NONE;
    if (!plain_name(name, plain, sizeof plain))
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
        if (strcmp(plain, functions[i].name) != 0 || functions[i].count != count)
            continue;
        *number = functions[i].number;
        if (count > 0 && functions[i].argument != TYPE_CUSTOM)
            *wanted = node_type_scalar(functions[i].argument);
        else if (count > 0)
            *wanted = first;
        if (count > 0 && *wanted == NULL)
            *wanted = &node_type_timeuuid;
        return functions[i].result == TYPE_CUSTOM ? *wanted : node_type_scalar(functions[i].result);
    }
    size_t size = strlen(plain);
    if (count == 1 && size > 6 && strcmp(plain + size - 6, "asblob") == 0) {
        *wanted = node_type_native(slice_of(plain, size - 6));
        *number = FUNCTION_AS_BLOB;
        return *wanted == NULL ? NULL : &node_type_blob;
    }
    if (count == 1 && size > 6 && strncmp(plain, "blobas", 6) == 0) {
        *wanted = &node_type_blob;
        *number = FUNCTION_FROM_BLOB;
        return node_type_native(slice_of(plain + 6, size - 6));
    }
    return NULL;
}

const struct node_type *node_function_signature(const struct term *term,
                                                const struct node_type **types, uint16_t *number)
{
    if (term->count > FUNCTION_ARGUMENTS_MAX)
        return NULL;
    const struct node_type *first = NULL;
    if (term->count > 0 && term->children->kind == TERM_CALL) {
        const struct node_type *inner[FUNCTION_ARGUMENTS_MAX];
        uint16_t ignored;
        first = node_function_signature(term->children, inner, &ignored);
        if (first == NULL)
            return NULL;
    }
    const struct node_type *result = node_function_lookup(term->text, term->count, first, types,
                                                          number);
    return *number >= FUNCTION_MIN ? NULL : result; /* aggregates are not for values */
}

/* --- values ----------------------------------------------------------------------------------- */

enum { UUID_EPOCH_MS_SHIFT = 10000 };
static const uint64_t uuid_epoch = 0x01B21DD213814000ULL;

static cqlring_bytes timeuuid(struct query *query, uint64_t ticks, uint64_t low)
{
    uint8_t *at = node_arena_bytes(query->arena, 16);
    cqr_store_u32(at, (uint32_t)ticks);
    cqr_store_u16(at + 4, (uint16_t)(ticks >> 32));
    cqr_store_u16(at + 6, (uint16_t)(0x1000 | (ticks >> 48 & 0x0FFF)));
    cqr_store_u64(at + 8, low);
    return slice_of(at, 16);
}

static cqlring_bytes number64(struct query *query, int64_t value)
{
    uint8_t *at = node_arena_bytes(query->arena, 8);
    cqr_store_u64(at, (uint64_t)value);
    return slice_of(at, 8);
}

static cqlring_bytes date_of(struct query *query, int64_t ms)
{
    int64_t days = ms >= 0 ? ms / 86400000 : -((-ms + 86399999) / 86400000);
    uint8_t *at = node_arena_bytes(query->arena, 4);
    cqr_store_u32(at, (uint32_t)(days + (INT64_C(1) << 31)));
    return slice_of(at, 4);
}

/* Milliseconds of a timestamp, date or timeuuid. */
static int64_t milliseconds(const struct node_type *type, cqlring_bytes value)
{
    const uint8_t *at = slice_data(value);
    if (type->kind == TYPE_TIMEUUID && value.size == 16) {
        uint64_t ticks = (uint64_t)(cqr_load_u16(at + 6) & 0x0FFF) << 48 |
                         (uint64_t)cqr_load_u16(at + 4) << 32 | cqr_load_u32(at);
        return ((int64_t)(ticks - uuid_epoch)) / UUID_EPOCH_MS_SHIFT;
    }
    if (type->kind == TYPE_DATE && value.size == 4)
        return ((int64_t)cqr_load_u32(at) - (INT64_C(1) << 31)) * 86400000;
    return value.size == 8 ? (int64_t)cqr_load_u64(at) : 0;
}

bool node_function_call(struct query *query, uint16_t number, const struct node_type *const *types,
                        const cqlring_bytes *arguments, uint16_t count, cqlring_bytes *value)
{
    int64_t now_ms = query->now_us / 1000;
    if (count > 0 && arguments[0].size < 0) {
        *value = SLICE_NULL;
        return true;
    }
    switch (number) {
    case FUNCTION_NOW: {
        uint64_t ticks = (uint64_t)query->now_us * 10 + uuid_epoch;
        if (ticks <= query->engine->last_timeuuid)
            ticks = query->engine->last_timeuuid + 1;
        query->engine->last_timeuuid = ticks;
        *value = timeuuid(query, ticks,
                          0x8000000000000000ULL |
                              (node_random_seed(query->engine->options->seed, 77) >> 2));
        return true;
    }
    case FUNCTION_UUID: {
        uint8_t *at = node_arena_bytes(query->arena, 16);
        cqr_store_u64(at, node_random(&query->engine->random));
        cqr_store_u64(at + 8, node_random(&query->engine->random));
        at[6] = (uint8_t)((at[6] & 0x0F) | 0x40);
        at[8] = (uint8_t)((at[8] & 0x3F) | 0x80);
        *value = slice_of(at, 16);
        return true;
    }
    case FUNCTION_CURRENT_TIMESTAMP: *value = number64(query, now_ms); return true;
    case FUNCTION_CURRENT_DATE: *value = date_of(query, now_ms); return true;
    case FUNCTION_CURRENT_TIME:
        *value = number64(query, query->now_us % 86400000000 * 1000);
        return true;
    case FUNCTION_TO_DATE:
        *value = date_of(query, milliseconds(types[0], arguments[0]));
        return true;
    case FUNCTION_TO_TIMESTAMP:
    case FUNCTION_TO_UNIX_TIMESTAMP:
        *value = number64(query, milliseconds(types[0], arguments[0]));
        return true;
    case FUNCTION_MIN_TIMEUUID:
        *value = timeuuid(query,
                          (uint64_t)milliseconds(types[0], arguments[0]) * UUID_EPOCH_MS_SHIFT +
                              uuid_epoch,
                          0x8080808080808080ULL);
        return true;
    case FUNCTION_MAX_TIMEUUID:
        *value = timeuuid(query,
                          (uint64_t)milliseconds(types[0], arguments[0]) * UUID_EPOCH_MS_SHIFT +
                              9999 + uuid_epoch,
                          0x7F7F7F7F7F7F7F7FULL);
        return true;
    case FUNCTION_AS_BLOB:
    case FUNCTION_FROM_BLOB: *value = arguments[0]; return true;
    default: return node_query_fail(query, ERROR_INVALID, "Function not known here");
    }
}
