/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_STORAGE_H
#define NODE_STORAGE_H

/* Rows of one table: partitions by key (hashed) and by token (sorted), rows by clustering key,
   cells with timestamps. What is newer wins; at the same timestamp a deletion wins over a value,
   and the greater value over the smaller. Knows types but no names, no CQL and no clock. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/node/order.h"
#include "tests/node/types.h"

#define NODE_NO_TIME INT64_MIN

/* One value. size CQLRING_NULL: a tombstone. */
struct node_cell {
    int64_t timestamp;
    uint32_t expires; /* second at which it dies; 0: never */
    uint32_t ttl;     /* as given; 0: none */
    int32_t size;
    uint8_t data[];
};

/* One element of a non-frozen collection. key: the element of a set, the key of a map, a position
   of a list. */
struct node_element {
    struct node_cell *cell;
    uint32_t key_size;
    uint8_t *key;
};
struct node_multi {
    int64_t deleted_at; /* elements at or before are gone */
    uint32_t count, capacity;
    struct node_element *elements; /* sorted by key */
};

union node_slot {
    struct node_cell *cell;
    struct node_multi *multi;
};

struct node_row {
    int64_t live_at; /* row marker of INSERT; NODE_NO_TIME: none */
    uint32_t live_expires, live_ttl;
    int64_t deleted_at;
    uint16_t slot_count;
    uint32_t key_size; /* clustering key: per component [u16 size][bytes] */
    uint8_t *key;
    union node_slot slots[];
};

/* A range of clustering keys that was deleted. Applied to rows that are there; kept for older
   writes that come late. */
struct node_bound {
    cqlring_bytes key; /* prefix of a clustering key; size 0: unbounded */
    uint16_t parts;
    bool inclusive;
};
struct node_range {
    struct node_bound start, end;
    int64_t deleted_at;
};

struct node_partition {
    struct node_partition *next; /* of the hash bucket */
    int64_t token;
    int64_t deleted_at;
    struct node_row *fixed; /* static row; NULL: none */
    struct order rows;
    struct node_range *ranges;
    uint32_t range_count;
    uint32_t hash;
    uint32_t key_size;
    uint8_t key[];
};

/* What the storage must know of its table's columns. */
struct node_shape {
    uint16_t clustering_count;
    const struct node_type **clustering_types;
    const bool *clustering_reversed;
    uint16_t static_count, regular_count; /* slots */
    const struct node_type **static_types, **regular_types;
};

struct node_storage {
    const struct node_shape *shape; /* the table's */
    struct node_partition **buckets;
    uint32_t bucket_count;
    uint64_t partition_count;
    uint64_t bytes; /* stored, roughly */
    struct order by_token;
    struct node_partition **fresh; /* made since the last scan, not yet in by_token */
    uint64_t fresh_count, fresh_capacity;
    int64_t list_position; /* positions of list elements: grows for appends … */
    int64_t list_front;    /* … and sinks for prepends */
};

void node_storage_init(struct node_storage *storage, const struct node_shape *shape);
void node_storage_clear(struct node_storage *storage);
void node_storage_drop_slot(struct node_storage *storage, bool is_static,
                            uint16_t slot); /* a column is gone: its cells too */

struct node_partition *node_partition_find(const struct node_storage *storage, cqlring_bytes key,
                                           int64_t token);
struct node_partition *node_partition_make(struct node_storage *storage, cqlring_bytes key,
                                           int64_t token);
/* Partitions are put in order when somebody wants the order: a bulk of inserts is sorted once. */
void node_storage_settle(struct node_storage *storage);
/* The first partition with (token, key) not before; key data NULL: any key. Settled storages only. */
struct order_at node_partition_seek(const struct node_storage *storage, int64_t token,
                                    cqlring_bytes key);

struct node_row *node_row_find(const struct node_storage *storage,
                               const struct node_partition *partition, cqlring_bytes key);
struct node_row *node_row_make(struct node_storage *storage, struct node_partition *partition,
                               cqlring_bytes key);
struct node_row *node_row_make_static(struct node_storage *storage,
                                      struct node_partition *partition);
/* The first row that is not before the bound (as a lower one), by the table's order. */
struct order_at node_row_seek(const struct node_storage *storage,
                              const struct node_partition *partition,
                              const struct node_bound *bound);
/* < 0 the row stands before the bound's place, > 0 behind, 0: it begins with the bound's
   components. */
int node_row_compare_bound(const struct node_shape *shape, cqlring_bytes row_key,
                           const struct node_bound *bound);
/* Component `index` of a clustering key. */
cqlring_bytes node_key_part(cqlring_bytes key, uint32_t index);

struct node_write {
    int64_t timestamp;
    uint32_t expires, ttl;
};
void node_write_marker(struct node_row *row, const struct node_write *write);
/* value null: a tombstone. slot < row->slot_count. */
void node_write_cell(struct node_storage *storage, struct node_row *row, uint16_t slot,
                     const struct node_type *type, cqlring_bytes value,
                     const struct node_write *write);
void node_write_counter(struct node_storage *storage, struct node_row *row, uint16_t slot,
                        int64_t delta, const struct node_write *write);
/* Non-frozen collections: all elements at or before deleted_at go. */
void node_write_multi_delete(struct node_storage *storage, struct node_row *row, uint16_t slot,
                             int64_t deleted_at);
void node_write_element(struct node_storage *storage, struct node_row *row, uint16_t slot,
                        const struct node_type *type, cqlring_bytes key, cqlring_bytes value,
                        const struct node_write *write);
/* Position for a new element of a list, behind or before all others. */
int64_t node_list_position(struct node_storage *storage, bool front);

void node_delete_row(struct node_storage *storage, struct node_row *row, int64_t deleted_at);
void node_delete_range(struct node_storage *storage, struct node_partition *partition,
                       const struct node_range *range);
void node_delete_partition(struct node_storage *storage, struct node_partition *partition,
                           int64_t deleted_at);

/* Reading, at second `now`. `deleted_at` is the partition's and the row's together. */
int64_t node_row_deleted_at(const struct node_partition *partition, const struct node_row *row);
static inline bool node_cell_is_live(const struct node_cell *cell, int64_t deleted_at, uint32_t now)
{
    return cell != NULL && cell->timestamp > deleted_at && cell->size >= 0 &&
           (cell->expires == 0 || cell->expires > now);
}
bool node_row_is_live(const struct node_storage *storage, const struct node_partition *partition,
                      const struct node_row *row, bool is_static, uint32_t now);
/* The payload of a column: a slice of the cell, or (collections) made in the arena. Null when there
   is none. */
cqlring_bytes node_row_value(const struct node_row *row, uint16_t slot,
                             const struct node_type *type, int64_t deleted_at, uint32_t now,
                             struct node_arena *arena);
/* Walks the live elements of a collection. *index starts at 0. */
const struct node_element *node_multi_next(const struct node_multi *multi, int64_t deleted_at,
                                           uint32_t now, uint32_t *index);

#endif
