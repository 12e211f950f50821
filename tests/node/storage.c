/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions and rows: finding, making, deleting. Cells are in cells.c. */
#include "tests/node/storage.h"

#include <stdlib.h>

#include "cql/token.h"

enum { RANGES_MAX = 128, BUCKETS_MIN = 64 };

void node_storage_init(struct node_storage *storage, const struct node_shape *shape)
{
    *storage = (struct node_storage){
        .shape = shape, .list_position = INT64_C(1) << 62, .list_front = INT64_C(1) << 62};
}

static void multi_free(struct node_multi *multi)
{
    for (uint32_t i = 0; i < multi->count; ++i) {
        node_free(multi->elements[i].cell);
        node_free(multi->elements[i].key);
    }
    node_free(multi->elements);
    node_free(multi);
}

static void slot_free(const struct node_type *type, struct node_row *row, uint16_t slot)
{
    if (slot >= row->slot_count || row->slots[slot].cell == NULL)
        return;
    if (node_type_is_multi(type))
        multi_free(row->slots[slot].multi);
    else
        node_free(row->slots[slot].cell);
    row->slots[slot].cell = NULL;
}

static void row_free(const struct node_type *const *types, struct node_row *row)
{
    for (uint16_t i = 0; i < row->slot_count; ++i)
        slot_free(types[i], row, i);
    node_free(row->key);
    node_free(row);
}

static void partition_empty(struct node_storage *storage, struct node_partition *partition)
{
    for (struct order_at at = node_order_first(); node_order_get(&partition->rows, at) != NULL;
         at = node_order_next(&partition->rows, at))
        row_free(storage->shape->regular_types, node_order_get(&partition->rows, at));
    node_order_fini(&partition->rows);
    if (partition->fixed != NULL)
        row_free(storage->shape->static_types, partition->fixed);
    partition->fixed = NULL;
    for (uint32_t i = 0; i < partition->range_count; ++i) {
        node_free((void *)partition->ranges[i].start.key.data);
        node_free((void *)partition->ranges[i].end.key.data);
    }
    node_free(partition->ranges);
    partition->ranges = NULL;
    partition->range_count = 0;
}

static void partition_free(struct node_storage *storage, struct node_partition *partition)
{
    partition_empty(storage, partition);
    node_free(partition);
}

void node_storage_clear(struct node_storage *storage)
{
    for (struct order_at at = node_order_first(); node_order_get(&storage->by_token, at) != NULL;
         at = node_order_next(&storage->by_token, at))
        partition_free(storage, node_order_get(&storage->by_token, at));
    for (uint64_t i = 0; i < storage->fresh_count; ++i)
        partition_free(storage, storage->fresh[i]);
    node_order_fini(&storage->by_token);
    node_free(storage->fresh);
    node_free(storage->buckets);
    node_storage_init(storage, storage->shape);
}

/* --- partitions ------------------------------------------------------------------------------- */

static uint32_t hash_of(cqlring_bytes key, int64_t token)
{
    return (uint32_t)(((uint64_t)token ^ (uint64_t)(uint32_t)key.size) * 0x9E3779B97F4A7C15ULL >>
                      32);
}

struct node_partition *node_partition_find(const struct node_storage *storage, cqlring_bytes key,
                                           int64_t token)
{
    if (storage->bucket_count == 0)
        return NULL;
    uint32_t hash = hash_of(key, token);
    struct node_partition *partition = storage->buckets[hash & (storage->bucket_count - 1)];
    while (partition != NULL && (partition->token != token ||
                                 !slice_equal(slice_of(partition->key, partition->key_size), key)))
        partition = partition->next;
    return partition;
}

struct place {
    int64_t token;
    cqlring_bytes key;
};

static int compare_partition(const void *item, const void *wanted, const void *context)
{
    (void)context;
    const struct node_partition *partition = item;
    const struct place *place = wanted;
    if (partition->token != place->token)
        return partition->token < place->token ? -1 : 1;
    if (place->key.data == NULL)
        return 1; /* before every key of the token */
    int32_t size = (int32_t)partition->key_size < place->key.size ? (int32_t)partition->key_size
                                                                  : place->key.size;
    int order = memcmp(partition->key, place->key.data, (size_t)size);
    return order != 0 ? order
                      : ((int32_t)partition->key_size > place->key.size) -
                            ((int32_t)partition->key_size < place->key.size);
}

struct order_at node_partition_seek(const struct node_storage *storage, int64_t token,
                                    cqlring_bytes key)
{
    bool found;
    struct place place = {token, key};
    return node_order_find(&storage->by_token, compare_partition, &place, NULL, &found);
}

static void storage_grow(struct node_storage *storage)
{
    uint32_t count = storage->bucket_count == 0 ? BUCKETS_MIN : storage->bucket_count * 2;
    struct node_partition **buckets = node_zalloc(count * sizeof(struct node_partition *));
    for (uint32_t i = 0; i < storage->bucket_count; ++i) {
        for (struct node_partition *partition = storage->buckets[i], *next; partition != NULL;
             partition = next) {
            next = partition->next;
            partition->next = buckets[partition->hash & (count - 1)];
            buckets[partition->hash & (count - 1)] = partition;
        }
    }
    node_free(storage->buckets);
    storage->buckets = buckets;
    storage->bucket_count = count;
}

struct node_partition *node_partition_make(struct node_storage *storage, cqlring_bytes key,
                                           int64_t token)
{
    struct node_partition *partition = node_partition_find(storage, key, token);
    if (partition != NULL)
        return partition;
    if (storage->partition_count >= storage->bucket_count)
        storage_grow(storage);
    partition = node_zalloc(sizeof *partition + (size_t)key.size);
    partition->token = token;
    partition->deleted_at = NODE_NO_TIME;
    partition->hash = hash_of(key, token);
    partition->key_size = (uint32_t)key.size;
    if (key.size > 0)
        memcpy(partition->key, key.data, (size_t)key.size);
    struct node_partition **bucket = &storage
                                          ->buckets[partition->hash & (storage->bucket_count - 1)];
    partition->next = *bucket;
    *bucket = partition;
    ++storage->partition_count;
    storage->bytes += sizeof *partition + partition->key_size + 96;
    if (storage->fresh_count == storage->fresh_capacity) {
        storage->fresh_capacity = storage->fresh_capacity == 0 ? 16 : storage->fresh_capacity * 2;
        storage->fresh = node_realloc(storage->fresh,
                                      storage->fresh_capacity * sizeof(struct node_partition *));
    }
    storage->fresh[storage->fresh_count++] = partition;
    return partition;
}

static int compare_fresh(const void *left, const void *right)
{
    const struct node_partition *a = *(struct node_partition *const *)left,
                                *b = *(struct node_partition *const *)right;
    struct place place = {b->token, slice_of(b->key, b->key_size)};
    return compare_partition(a, &place, NULL);
}

/* Everything into new chunks, in order. */
static void merge_fresh(struct node_storage *storage)
{
    struct order merged = {0};
    struct order_at at = node_order_first();
    for (uint64_t i = 0;;) {
        struct node_partition *old = node_order_get(&storage->by_token, at), *next = NULL;
        if (i < storage->fresh_count &&
            (old == NULL || compare_fresh(&storage->fresh[i], &old) < 0)) {
            next = storage->fresh[i++];
        } else if (old != NULL) {
            next = old;
            at = node_order_next(&storage->by_token, at);
        }
        if (next == NULL)
            break;
        struct order_at end = {merged.chunk_count, 0};
        node_order_insert(&merged, end, next);
    }
    node_order_fini(&storage->by_token);
    storage->by_token = merged;
}

void node_storage_settle(struct node_storage *storage)
{
    if (storage->fresh_count == 0)
        return;
    if (storage->fresh_count > 64 && storage->fresh_count > storage->by_token.count / 16) {
        qsort(storage->fresh, storage->fresh_count, sizeof(struct node_partition *), compare_fresh);
        merge_fresh(storage);
    } else {
        for (uint64_t i = 0; i < storage->fresh_count; ++i) {
            struct node_partition *partition = storage->fresh[i];
            cqlring_bytes key = slice_of(partition->key, partition->key_size);
            node_order_insert(&storage->by_token,
                              node_partition_seek(storage, partition->token, key), partition);
        }
    }
    storage->fresh_count = 0;
    if (storage->fresh_capacity > 4096) {
        node_free(storage->fresh);
        storage->fresh = NULL;
        storage->fresh_capacity = 0;
    }
}

/* --- rows ------------------------------------------------------------------------------------- */

cqlring_bytes node_key_part(cqlring_bytes key, uint32_t index)
{
    struct reader reader;
    node_reader_init(&reader, key.data, (uint32_t)(key.size < 0 ? 0 : key.size));
    cqlring_bytes part = slice_of("", 0);
    for (uint32_t i = 0; i <= index; ++i)
        part = cqr_get_string(&reader);
    return part;
}

int node_row_compare_bound(const struct node_shape *shape, cqlring_bytes row_key,
                           const struct node_bound *bound)
{
    struct reader row, other;
    node_reader_init(&row, row_key.data, (uint32_t)row_key.size);
    node_reader_init(&other, bound->key.data, (uint32_t)bound->key.size);
    for (uint16_t i = 0; i < bound->parts; ++i) {
        cqlring_bytes a = cqr_get_string(&row), b = cqr_get_string(&other);
        int order = node_value_compare(shape->clustering_types[i], a, b);
        if (order != 0)
            return shape->clustering_reversed[i] ? -order : order;
    }
    return 0;
}

/* As order_compare: a lower bound that includes stands before all rows that begin with it, one that
   excludes behind. */
static int compare_row_bound(const void *item, const void *wanted, const void *context)
{
    const struct node_row *row = item;
    const struct node_bound *bound = wanted;
    int order = node_row_compare_bound(context, slice_of(row->key, row->key_size), bound);
    return order != 0 ? order : bound->inclusive || bound->parts == 0 ? 0 : -1;
}

struct order_at node_row_seek(const struct node_storage *storage,
                              const struct node_partition *partition,
                              const struct node_bound *bound)
{
    bool found;
    return node_order_find(&partition->rows, compare_row_bound, bound, storage->shape, &found);
}

static struct node_bound whole_key(const struct node_storage *storage, cqlring_bytes key)
{
    return (struct node_bound){
        .key = key, .parts = storage->shape->clustering_count, .inclusive = true};
}

struct node_row *node_row_find(const struct node_storage *storage,
                               const struct node_partition *partition, cqlring_bytes key)
{
    bool found;
    struct node_bound bound = whole_key(storage, key);
    struct order_at at = node_order_find(&partition->rows, compare_row_bound, &bound,
                                         storage->shape, &found);
    return found ? node_order_get(&partition->rows, at) : NULL;
}

static struct node_row *row_new(uint16_t slots)
{
    struct node_row *row = node_zalloc(sizeof *row + slots * sizeof row->slots[0]);
    row->live_at = NODE_NO_TIME;
    row->deleted_at = NODE_NO_TIME;
    row->slot_count = slots;
    return row;
}

/* Columns were added since the row was made. The row moves. */
static struct node_row *row_widen(struct node_row *row, uint16_t slots)
{
    row = node_realloc(row, sizeof *row + slots * sizeof row->slots[0]);
    memset(row->slots + row->slot_count, 0,
           (size_t)(slots - row->slot_count) * sizeof row->slots[0]);
    row->slot_count = slots;
    return row;
}

static bool bound_covers(const struct node_shape *shape, const struct node_range *range,
                         cqlring_bytes key)
{
    int start = node_row_compare_bound(shape, key, &range->start),
        end = node_row_compare_bound(shape, key, &range->end);
    return (start > 0 || (start == 0 && (range->start.inclusive || range->start.parts == 0))) &&
           (end < 0 || (end == 0 && (range->end.inclusive || range->end.parts == 0)));
}

struct node_row *node_row_make(struct node_storage *storage, struct node_partition *partition,
                               cqlring_bytes key)
{
    bool found;
    struct node_bound bound = whole_key(storage, key);
    struct order_at at = node_order_find(&partition->rows, compare_row_bound, &bound,
                                         storage->shape, &found);
    uint16_t slots = storage->shape->regular_count;
    if (found) {
        struct node_row *row = node_order_get(&partition->rows, at);
        if (row->slot_count < slots) {
            row = row_widen(row, slots);
            partition->rows.chunks[at.chunk]->items[at.item] = row;
        }
        return row;
    }
    struct node_row *row = row_new(slots);
    if (key.size > 0) {
        row->key = node_alloc((size_t)key.size);
        memcpy(row->key, key.data, (size_t)key.size);
        row->key_size = (uint32_t)key.size;
    }
    for (uint32_t i = 0; i < partition->range_count; ++i) {
        if (partition->ranges[i].deleted_at > row->deleted_at &&
            bound_covers(storage->shape, &partition->ranges[i], key))
            row->deleted_at = partition->ranges[i].deleted_at;
    }
    node_order_insert(&partition->rows, at, row);
    storage->bytes += sizeof *row + slots * sizeof row->slots[0] + row->key_size + 48;
    return row;
}

struct node_row *node_row_make_static(struct node_storage *storage,
                                      struct node_partition *partition)
{
    uint16_t slots = storage->shape->static_count;
    if (partition->fixed == NULL) {
        partition->fixed = row_new(slots);
        storage->bytes += sizeof *partition->fixed + slots * sizeof partition->fixed->slots[0];
    } else if (partition->fixed->slot_count < slots) {
        partition->fixed = row_widen(partition->fixed, slots);
    }
    return partition->fixed;
}

int64_t node_row_deleted_at(const struct node_partition *partition, const struct node_row *row)
{
    return partition->deleted_at > row->deleted_at ? partition->deleted_at : row->deleted_at;
}

bool node_row_is_live(const struct node_storage *storage, const struct node_partition *partition,
                      const struct node_row *row, bool is_static, uint32_t now)
{
    if (row == NULL)
        return false;
    int64_t deleted_at = node_row_deleted_at(partition, row);
    if (row->live_at > deleted_at && (row->live_expires == 0 || row->live_expires > now))
        return true;
    const struct node_type **types = is_static ? storage->shape->static_types
                                               : storage->shape->regular_types;
    for (uint16_t i = 0; i < row->slot_count; ++i) {
        if (row->slots[i].cell == NULL)
            continue;
        uint32_t index = 0;
        bool live = node_type_is_multi(types[i])
                        ? node_multi_next(row->slots[i].multi, deleted_at, now, &index) != NULL
                        : node_cell_is_live(row->slots[i].cell, deleted_at, now);
        if (live)
            return true;
    }
    return false;
}

void node_storage_drop_slot(struct node_storage *storage, bool is_static, uint16_t slot)
{
    const struct node_type *type = is_static ? storage->shape->static_types[slot]
                                             : storage->shape->regular_types[slot];
    node_storage_settle(storage);
    for (struct order_at at = node_order_first(); node_order_get(&storage->by_token, at) != NULL;
         at = node_order_next(&storage->by_token, at)) {
        struct node_partition *partition = node_order_get(&storage->by_token, at);
        if (is_static) {
            if (partition->fixed != NULL)
                slot_free(type, partition->fixed, slot);
            continue;
        }
        for (struct order_at row = node_order_first();
             node_order_get(&partition->rows, row) != NULL;
             row = node_order_next(&partition->rows, row))
            slot_free(type, node_order_get(&partition->rows, row), slot);
    }
}

/* --- deleting --------------------------------------------------------------------------------- */

void node_delete_row(struct node_storage *storage, struct node_row *row, int64_t deleted_at)
{
    if (deleted_at <= row->deleted_at)
        return;
    row->deleted_at = deleted_at;
    if (row->live_at <= deleted_at)
        row->live_at = NODE_NO_TIME;
    for (uint16_t i = 0; i < row->slot_count; ++i) {
        if (row->slots[i].cell == NULL)
            continue;
        if (node_type_is_multi(storage->shape->regular_types[i])) {
            node_write_multi_delete(storage, row, i, deleted_at);
        } else if (row->slots[i].cell->timestamp <= deleted_at) {
            storage->bytes -= sizeof *row->slots[i].cell +
                              (size_t)(row->slots[i].cell->size < 0 ? 0 : row->slots[i].cell->size);
            node_free(row->slots[i].cell);
            row->slots[i].cell = NULL;
        }
    }
}

static cqlring_bytes bound_copy(cqlring_bytes key)
{
    if (key.size <= 0)
        return slice_of(NULL, 0);
    void *copy = node_alloc((size_t)key.size);
    memcpy(copy, key.data, (size_t)key.size);
    return slice_of(copy, (size_t)key.size);
}

void node_delete_range(struct node_storage *storage, struct node_partition *partition,
                       const struct node_range *range)
{
    for (struct order_at at = node_row_seek(storage, partition, &range->start);
         node_order_get(&partition->rows, at) != NULL; at = node_order_next(&partition->rows, at)) {
        struct node_row *row = node_order_get(&partition->rows, at);
        if (!bound_covers(storage->shape, range, slice_of(row->key, row->key_size)))
            break;
        node_delete_row(storage, row, range->deleted_at);
    }
    if (partition->range_count ==
        RANGES_MAX) { /* the oldest makes room: only a write older than it could tell */
        node_free((void *)partition->ranges[0].start.key.data);
        node_free((void *)partition->ranges[0].end.key.data);
        memmove(partition->ranges, partition->ranges + 1,
                (RANGES_MAX - 1) * sizeof *partition->ranges);
        --partition->range_count;
    } else {
        partition->ranges = node_realloc(partition->ranges,
                                         (partition->range_count + 1) * sizeof *partition->ranges);
    }
    struct node_range *kept = &partition->ranges[partition->range_count++];
    *kept = *range;
    kept->start.key = bound_copy(range->start.key);
    kept->end.key = bound_copy(range->end.key);
}

void node_delete_partition(struct node_storage *storage, struct node_partition *partition,
                           int64_t deleted_at)
{
    if (deleted_at <= partition->deleted_at)
        return;
    partition->deleted_at = deleted_at;
    for (struct order_at at = node_order_first(); node_order_get(&partition->rows, at) != NULL;
         at = node_order_next(&partition->rows, at))
        node_delete_row(storage, node_order_get(&partition->rows, at), deleted_at);
}
