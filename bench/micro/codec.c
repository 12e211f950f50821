/* SPDX-License-Identifier: Apache-2.0 */
/* What the hot functions of cql/ cost.

     codec crc                nanoseconds of the checksums, ours and zlib's
     codec execute 4|5 COUNT  COUNT EXECUTEs of two cells (8 and 32 bytes) with a timestamp
     codec rows COUNT         COUNT walks over a page of 1000 rows of two cells
     codec token COUNT        COUNT Murmur3 tokens of a key of 16 bytes

   Instructions of one turn are the difference of two run lengths:

     for n in 100000 200000; do
         valgrind --tool=callgrind --callgrind-out-file=/dev/null ./codec execute 4 $n
     done 2>&1 | grep Collected */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "cql/request.h"
#include "cql/rows.h"
#include "cql/segment.h"
#include "cql/token.h"

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* What they return is added up and printed, so that nothing is optimised away. */
static uint32_t sum;

static uint32_t crc32_of_zlib(const uint8_t *data, uint32_t size)
{
    static const uint8_t initial[4] = {0xFA, 0x2D, 0x55, 0xCA};
    return (uint32_t)crc32(crc32(0, initial, 4), data, size);
}

static void time_crc(const char *name, uint32_t crc(const uint8_t *, uint32_t), const uint8_t *data,
                     uint32_t size)
{
    uint32_t turns = 200000000 / (size + 1000);
    double best = 1e30;
    for (int run = 0; run < 5; ++run) {
        double start = now_ns();
        for (uint32_t i = 0; i < turns; ++i)
            sum += crc(data, size);
        double each = (now_ns() - start) / turns;
        best = each < best ? each : best;
    }
    printf("%-6s %6u bytes: %9.1f ns\n", name, size, best);
}

static void run_crc(void)
{
    static uint8_t data[PROTO_SEGMENT_PAYLOAD_MAX];
    static const uint32_t sizes[] = {10, 40, 96, 100, 1000, 16384, 131071};
    for (size_t i = 0; i < sizeof data; ++i)
        data[i] = (uint8_t)(i * 7 + 3);
    time_crc("crc24", cqr_crc24, data, 3);
    time_crc("crc24", cqr_crc24, data, 5);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        time_crc("crc32", cqr_crc32, data, sizes[i]);
        time_crc("zlib", crc32_of_zlib, data, sizes[i]);
    }
}

static void run_execute(uint8_t version, uint64_t count)
{
    static uint8_t block[65536];
    static const uint8_t id[16] = {1, 2, 3}, key[8] = {4}, text[32] = {5};
    const struct dialect dialect = {.version = version};
    const cqlring_bytes cells[2] = {{key, sizeof key}, {text, sizeof text}};
    struct query_params params = {.consistency = 10, .has_values = true, .has_timestamp = true};
    struct writer writer;
    cqr_writer_init(&writer, block, sizeof block);
    for (uint64_t i = 0; i < count; ++i) {
        if (writer.size > sizeof block - 256)
            writer.size = 0;
        params.timestamp_us = (int64_t)i;
        uint32_t start = cqr_execute_begin(&writer, &dialect, (int16_t)(i & 0x3FF),
                                           (cqlring_bytes){id, sizeof id},
                                           (cqlring_bytes){id, sizeof id}, &params);
        cqr_put_values(&writer, cells, 2);
        cqr_execute_end(&writer, &dialect, &params, start, 0);
        sum += writer.size;
    }
}

static void run_rows(uint64_t count)
{
    enum { ROWS = 1000, COLUMNS = 2 };
    static uint8_t page[ROWS * (4 + 8 + 4 + 32)];
    struct writer writer;
    cqr_writer_init(&writer, page, sizeof page);
    for (int i = 0; i < ROWS; ++i) {
        cqr_put_u32(&writer, 8);
        cqr_put_u64(&writer, (uint64_t)i);
        cqr_put_u32(&writer, 32);
        memset(cqr_put_room(&writer, 32), i, 32);
    }
    for (uint64_t i = 0; i < count; ++i) {
        struct rows_cursor cursor;
        cqlring_bytes cells[64 * COLUMNS];
        uint32_t rows;
        cqr_rows_init(&cursor, (cqlring_bytes){page, (int32_t)writer.size}, COLUMNS, ROWS);
        while (cqr_rows_next(&cursor, cells, 64, &rows) == CQLRING_OK && rows > 0)
            sum += rows + (uint32_t)cells[0].size;
    }
}

static void run_token(uint64_t count)
{
    uint8_t key[16] = {0};
    for (uint64_t i = 0; i < count; ++i) {
        memcpy(key, &i, sizeof i);
        sum += (uint32_t)cqr_murmur3(key, sizeof key);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "crc") == 0) {
        run_crc();
    } else if (argc == 4 && strcmp(argv[1], "execute") == 0) {
        run_execute((uint8_t)atoi(argv[2]), strtoull(argv[3], NULL, 10));
    } else if (argc == 3 && strcmp(argv[1], "rows") == 0) {
        run_rows(strtoull(argv[2], NULL, 10));
    } else if (argc == 3 && strcmp(argv[1], "token") == 0) {
        run_token(strtoull(argv[2], NULL, 10));
    } else {
        fprintf(stderr, "usage: codec crc | execute 4|5 COUNT | rows COUNT | token COUNT\n");
        return 2;
    }
    printf("(%u)\n", sum);
    return 0;
}
