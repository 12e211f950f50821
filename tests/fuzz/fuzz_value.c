/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of any type: a big-endian short, a class name of that size, the cell. What passes the check
   must survive being taken apart and put together again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every getter, whether it fits or not. */
static void read_scalars(cqlring_bytes cell)
{
    static const uint32_t sizes[] = {0, 1, 2, 4, 8};
    int64_t number;
    int32_t months;
    int32_t days;
    cqlring_bytes unscaled;
    for (uint32_t i = 0; i < 5; i++)
        cqlring_get_int(cell, sizes[i], &number);
    cqlring_get_decimal(cell, &months, &unscaled);
    cqlring_get_duration(cell, &months, &days, &number);
    double doubles[4];
    for (uint32_t count = 0; count <= 4; count++) {
        cqlring_get_array(cell, 8, doubles, count);
        cqlring_get_array(cell, 4, doubles, count);
    }
    if (cell.size >= 16) {
        char text[37];
        cqlring_uuid_format(cell.data, text);
        cqlring_uuid_time(cell.data, &number);
    }
    uint8_t uuid[16];
    cqlring_uuid_parse(cell, uuid);
}

/* Takes the cell apart and puts it together; a stack of cursors, as deep as a type can be. */
static void copy_nested(const cqlring_type *type, cqlring_bytes cell, cqlring_writer *writer)
{
    cqlring_cursor stack[CQLRING_DEPTH_MAX];
    uint32_t depth = 0;
    for (;;) {
        read_scalars(cell);
        if (cell.size > 0 && cqlring_type_child_count(type) > 0) {
            cqlring_put_begin(writer, type);
            if (cqlring_cursor_init(&stack[depth++], type, cell) != CQLRING_OK)
                abort();
        } else {
            cqlring_put_bytes(writer, cell);
        }
        while (depth > 0) {
            cqlring_status status = cqlring_cursor_next(&stack[depth - 1], &cell, &type);
            if (status == CQLRING_OK)
                break;
            if (status != CQLRING_CLOSED)
                abort();
            cqlring_put_end(writer);
            depth--;
        }
        if (depth == 0)
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 100000)
        return 0;
    uint32_t name_size = cqr_load_u16(data);
    if (name_size > size - 2)
        return 0;
    cqlring_bytes name = {.data = data + 2, .size = (int32_t)name_size};
    cqlring_bytes cell = {.data = data + 2 + name_size, .size = (int32_t)(size - 2 - name_size)};
    struct arena arena;
    cqr_arena_init(&arena, 64 << 20);
    const cqlring_type *type;
    if (cqr_type_from_class(&arena, name, &type) != CQLRING_OK)
        goto done;
    read_scalars(cell);
    cqlring_bytes element;
    cqlring_cursor cursor;
    if (cqlring_cursor_init(&cursor, type, cell) == CQLRING_OK) {
        while (cqlring_cursor_next(&cursor, &element, NULL) == CQLRING_OK)
            read_scalars(element);
    }
    if (cqlring_value_check(type, cell) != CQLRING_OK)
        goto done;
    /* Null fields that were left out are not put back, so the copy is no larger than the original
       but for its vints, which may have been longer than they need. */
    uint32_t capacity = (uint32_t)cell.size + 16;
    uint8_t *room = malloc(capacity);
    if (room == NULL)
        abort();
    cqlring_writer writer;
    cqlring_writer_init(&writer, room, capacity);
    /* Missing fields come back as nulls: a second attempt has the room. */
    uint64_t needed;
    copy_nested(type, cell, &writer);
    cqlring_status status = cqlring_writer_take(&writer, &element, &needed);
    if (status == CQLRING_FULL && needed < 1 << 24) {
        free(room);
        room = malloc(needed);
        if (room == NULL)
            abort();
        cqlring_writer_init(&writer, room, (uint32_t)needed);
        copy_nested(type, cell, &writer);
        status = cqlring_writer_take(&writer, &element, &needed);
        if (status == CQLRING_FULL)
            abort();
    }
    if (status == CQLRING_OK && cqlring_value_check(type, element) != CQLRING_OK)
        abort();
    free(room);
done:
    cqr_arena_fini(&arena);
    return 0;
}
