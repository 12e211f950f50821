/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/rows.h"

#include "serialize/buf.h"

/* One row's cells from `at`; where the next row begins, or NULL when the row is torn. */
static const uint8_t *take_row(const uint8_t *at, const uint8_t *end, cqlring_bytes *cells,
                               uint32_t column_count)
{
    for (cqlring_bytes *cell = cells, *cells_end = cells + column_count; cell < cells_end; ++cell) {
        if (end - at < 4)
            return NULL;
        int32_t size = (int32_t)cqr_load_u32(at);
        at += 4;
        if (size < 0) { /* any negative size is null */
            *cell = (cqlring_bytes){.data = NULL, .size = CQLRING_NULL};
            continue;
        }
        if (end - at < size)
            return NULL;
        *cell = (cqlring_bytes){.data = at, .size = size};
        at += size;
    }
    return at;
}

/* The whole rows before a torn one are handed out first; then the cursor stands at the torn one and
   says so each time. */
cqlring_status cqr_rows_next(struct rows_cursor *cursor, cqlring_bytes *cells,
                             uint32_t row_capacity, uint32_t *count)
{
    uint32_t rows = cursor->rows_left < row_capacity ? cursor->rows_left : row_capacity;
    *count = 0;
    if (cursor->column_count == 0) { /* PD-04: rows without columns have no bytes */
        cursor->rows_left -= rows;
        *count = rows;
        return CQLRING_OK;
    }
    const uint8_t *at = cursor->at;
    uint32_t done = 0;
    while (done < rows) {
        const uint8_t *next = take_row(at, cursor->end, cells, cursor->column_count);
        if (next == NULL)
            break;
        at = next;
        cells += cursor->column_count;
        ++done;
    }
    if (done == 0 && rows > 0)
        return CQLRING_PROTOCOL;
    cursor->at = at;
    cursor->rows_left -= done;
    *count = done;
    return CQLRING_OK;
}
