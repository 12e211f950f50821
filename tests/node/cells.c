/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of a row, and the elements of its collections. */
#include "tests/node/storage.h"

static struct node_cell *cell_new(struct node_storage *storage, cqlring_bytes value,
                                  const struct node_write *write)
{
    size_t size = value.size < 0 ? 0 : (size_t)value.size;
    struct node_cell *cell = node_alloc(sizeof *cell + size);
    cell->timestamp = write->timestamp;
    cell->expires = value.size < 0 ? 0 : write->expires;
    cell->ttl = value.size < 0 ? 0 : write->ttl;
    cell->size = value.size < 0 ? CQLRING_NULL : value.size;
    if (size > 0)
        memcpy(cell->data, value.data, size);
    storage->bytes += sizeof *cell + size;
    return cell;
}

static void cell_drop(struct node_storage *storage, struct node_cell *cell)
{
    if (cell == NULL)
        return;
    storage->bytes -= sizeof *cell + (cell->size < 0 ? 0 : (size_t)cell->size);
    node_free(cell);
}

/* Does the new value win over what is there? */
static bool wins(const struct node_cell *cell, cqlring_bytes value, int64_t timestamp)
{
    if (cell == NULL || timestamp > cell->timestamp)
        return true;
    if (timestamp < cell->timestamp || cell->size < 0)
        return false;
    if (value.size < 0)
        return true;
    int32_t size = cell->size < value.size ? cell->size : value.size;
    int order = size > 0 ? memcmp(cell->data, value.data, (size_t)size) : 0;
    return order < 0 || (order == 0 && cell->size < value.size);
}

void node_write_marker(struct node_row *row, const struct node_write *write)
{
    if (write->timestamp < row->live_at)
        return;
    row->live_at = write->timestamp;
    row->live_expires = write->expires;
    row->live_ttl = write->ttl;
}

void node_write_cell(struct node_storage *storage, struct node_row *row, uint16_t slot,
                     const struct node_type *type, cqlring_bytes value,
                     const struct node_write *write)
{
    (void)type;
    struct node_cell **at = &row->slots[slot].cell;
    if (!wins(*at, value, write->timestamp))
        return;
    cell_drop(storage, *at);
    *at = cell_new(storage, value, write);
}

void node_write_counter(struct node_storage *storage, struct node_row *row, uint16_t slot,
                        int64_t delta, const struct node_write *write)
{
    struct node_cell *cell = row->slots[slot].cell;
    uint64_t sum = (uint64_t)delta;
    if (cell != NULL && cell->size == 8 && cell->timestamp > row->deleted_at)
        sum += cqr_load_u64(cell->data);
    uint8_t data[8];
    cqr_store_u64(data, sum);
    struct node_write newest = *write;
    if (cell != NULL && cell->timestamp > newest.timestamp)
        newest.timestamp = cell->timestamp;
    struct node_cell *next = cell_new(storage, slice_of(data, 8), &newest);
    cell_drop(storage, cell);
    row->slots[slot].cell = next;
}

/* --- collections ------------------------------------------------------------------------------ */

static struct node_multi *multi_of(struct node_row *row, uint16_t slot)
{
    struct node_multi **at = &row->slots[slot].multi;
    if (*at == NULL) {
        *at = node_zalloc(sizeof **at);
        (*at)->deleted_at = NODE_NO_TIME;
    }
    return *at;
}

void node_write_multi_delete(struct node_storage *storage, struct node_row *row, uint16_t slot,
                             int64_t deleted_at)
{
    struct node_multi *multi = multi_of(row, slot);
    if (deleted_at <= multi->deleted_at)
        return;
    multi->deleted_at = deleted_at;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < multi->count; ++i) {
        if (multi->elements[i].cell->timestamp > deleted_at) {
            multi->elements[kept++] = multi->elements[i];
        } else {
            cell_drop(storage, multi->elements[i].cell);
            storage->bytes -= multi->elements[i].key_size + sizeof multi->elements[i];
            node_free(multi->elements[i].key);
        }
    }
    multi->count = kept;
}

static int compare_key(const struct node_type *type, const struct node_element *element,
                       cqlring_bytes key)
{
    cqlring_bytes mine = slice_of(element->key, element->key_size);
    return type->kind == TYPE_LIST ? memcmp(mine.data, key.data, 8)
                                   : node_value_compare(type->subs[0], mine, key);
}

void node_write_element(struct node_storage *storage, struct node_row *row, uint16_t slot,
                        const struct node_type *type, cqlring_bytes key, cqlring_bytes value,
                        const struct node_write *write)
{
    struct node_multi *multi = multi_of(row, slot);
    if (write->timestamp <= multi->deleted_at)
        return;
    uint32_t low = 0, high = multi->count;
    /* Whole values come in order: look at the end first. */
    if (high > 0 && compare_key(type, &multi->elements[high - 1], key) < 0)
        low = high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_key(type, &multi->elements[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < multi->count && compare_key(type, &multi->elements[low], key) == 0) {
        struct node_cell **at = &multi->elements[low].cell;
        if (!wins(*at, value, write->timestamp))
            return;
        cell_drop(storage, *at);
        *at = cell_new(storage, value, write);
        return;
    }
    if (multi->count == multi->capacity) {
        multi->capacity = multi->capacity == 0 ? 4 : multi->capacity * 2;
        multi->elements = node_realloc(multi->elements, multi->capacity * sizeof *multi->elements);
    }
    memmove(multi->elements + low + 1, multi->elements + low,
            (multi->count - low) * sizeof *multi->elements);
    struct node_element *element = &multi->elements[low];
    element->key_size = (uint32_t)key.size;
    element->key = node_alloc((size_t)key.size);
    if (key.size > 0)
        memcpy(element->key, key.data, (size_t)key.size);
    element->cell = cell_new(storage, value, write);
    storage->bytes += element->key_size + sizeof *element;
    ++multi->count;
}

int64_t node_list_position(struct node_storage *storage, bool front)
{
    return front ? --storage->list_front : storage->list_position++;
}

const struct node_element *node_multi_next(const struct node_multi *multi, int64_t deleted_at,
                                           uint32_t now, uint32_t *index)
{
    int64_t gone = multi->deleted_at > deleted_at ? multi->deleted_at : deleted_at;
    while (*index < multi->count) {
        const struct node_element *element = &multi->elements[(*index)++];
        if (node_cell_is_live(element->cell, gone, now))
            return element;
    }
    return NULL;
}

static cqlring_bytes multi_value(const struct node_multi *multi, const struct node_type *type,
                                 int64_t deleted_at, uint32_t now, struct node_arena *arena)
{
    size_t size = 4;
    uint32_t count = 0, index = 0;
    const struct node_element *element;
    while ((element = node_multi_next(multi, deleted_at, now, &index)) != NULL) {
        size += type->kind == TYPE_LIST ? 0 : 4 + (size_t)element->key_size;
        size += type->kind == TYPE_SET ? 0 : 4 + (size_t)element->cell->size;
        ++count;
    }
    if (count == 0)
        return SLICE_NULL;
    uint8_t *at = node_arena_bytes(arena, size);
    cqlring_bytes result = slice_of(at, size);
    struct writer writer;
    cqr_writer_init(&writer, at, (uint32_t)size);
    cqr_put_u32(&writer, count);
    index = 0;
    while ((element = node_multi_next(multi, deleted_at, now, &index)) != NULL) {
        if (type->kind != TYPE_LIST)
            cqr_put_bytes(&writer, slice_of(element->key, element->key_size));
        if (type->kind != TYPE_SET)
            cqr_put_bytes(&writer, slice_of(element->cell->data, (size_t)element->cell->size));
    }
    return result;
}

cqlring_bytes node_row_value(const struct node_row *row, uint16_t slot,
                             const struct node_type *type, int64_t deleted_at, uint32_t now,
                             struct node_arena *arena)
{
    if (row == NULL || slot >= row->slot_count || row->slots[slot].cell == NULL)
        return SLICE_NULL;
    if (node_type_is_multi(type))
        return multi_value(row->slots[slot].multi, type, deleted_at, now, arena);
    const struct node_cell *cell = row->slots[slot].cell;
    return node_cell_is_live(cell, deleted_at, now) ? slice_of(cell->data, (size_t)cell->size)
                                                    : SLICE_NULL;
}
