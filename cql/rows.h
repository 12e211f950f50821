/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_ROWS_H
#define CQR_ROWS_H

/* A cursor over the cells of a ROWS body: slices only, nothing is copied. Each length is checked before use; a torn
   body ends the cursor with CQLRING_PROTOCOL. */

#include <stdint.h>

#include "serialize/cqlring_types.h"

struct rows_cursor {
    const uint8_t *at;
    const uint8_t *end;
    uint32_t column_count;
    uint32_t rows_left;
};

static inline void cqr_rows_init(struct rows_cursor *cursor, cqlring_bytes rows, uint32_t column_count, uint32_t row_count)
{
    cursor->at = (const uint8_t *)rows.data;
    cursor->end = cursor->at == NULL ? NULL : cursor->at + rows.size;
    cursor->column_count = column_count;
    cursor->rows_left = row_count;
}

/* Up to capacity rows into cells[row × column_count + column]. *count 0 and CQLRING_OK: the end. */
cqlring_status cqr_rows_next(struct rows_cursor *cursor, cqlring_bytes *cells, uint32_t row_capacity, uint32_t *count);

#endif
