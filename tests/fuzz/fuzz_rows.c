/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of a page: number of columns, of rows and of rows at a time in the first four bytes. */
#include <assert.h>

#include "cql/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { COLUMNS_MAX = 255, CAPACITY_MAX = 16 };
    static cqlring_bytes cells[COLUMNS_MAX * CAPACITY_MAX];
    if (size < 4 || size > INT32_MAX)
        return 0;
    uint32_t column_count = data[0], row_count = (uint32_t)data[1] << 8 | data[2],
             capacity = 1 + data[3] % CAPACITY_MAX;
    const uint8_t *from = data + 4, *end = data + size;
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, (cqlring_bytes){from, (int32_t)(size - 4)}, column_count, row_count);
    uint32_t seen = 0, count;
    cqlring_status status;
    while ((status = cqr_rows_next(&cursor, cells, capacity, &count)) == CQLRING_OK && count > 0) {
        assert(count <= capacity);
        seen += count;
        for (uint32_t i = 0; i < count * column_count; ++i) {
            const uint8_t *at = cells[i].data;
            if (cells[i].size < 0) {
                assert(at == NULL && cells[i].size == CQLRING_NULL);
                continue;
            }
            assert(at >= from + 4 && cells[i].size <= end - at);
            from = at + cells[i].size; /* cells stand in order and do not overlap */
        }
    }
    assert(seen <= row_count && (status != CQLRING_OK || seen == row_count));
    if (status != CQLRING_OK) {
        assert(status == CQLRING_PROTOCOL && count == 0);
        assert(cqr_rows_next(&cursor, cells, capacity, &count) == CQLRING_PROTOCOL);
    }
    return 0;
}
