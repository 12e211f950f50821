/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRID_H
#define GRID_H

/* Jobs over tables of several rows a partition: ks.e (p bigint, c int, v blob, PRIMARY KEY (p, c)), and whatever statements a test
   gives. The rows are an array that the test fills. */

#include "ask.h"

enum { GRID_MAX = 1 << 16 };

struct grid_row {
    int64_t p;
    int32_t c;                   /* GRID_NULL: null */
    uint32_t statement;
    uint32_t size;               /* of v, whose bytes are `fill`; 0: an empty blob */
    uint8_t fill;
    bool key_only;               /* the statement has markers for p and c only */
    bool partition_only;         /* … for p only */
    bool value_first;            /* UPDATE: v, p, c */
    int64_t timestamp_us;
};
enum { GRID_NULL = INT32_MIN };

struct grid {
    struct grid_row *rows;
    uint32_t count, next;
    uint32_t per_call;           /* at most so many a call; 0: as asked */
    uint32_t later_at;           /* > 0: LATER once before this row, until a poke */
    atomic_bool later_said;
    uint32_t calls, capacity_max;
    uint8_t *memory;
    cqlring_bytes cells[256][3];
};
void grid_init(struct grid *grid);
void grid_fini(struct grid *grid);
struct grid_row *grid_add(struct grid *grid, int64_t p, int32_t c, uint32_t size, uint8_t fill); /* statement 0 */
cqlring_source grid_source(struct grid *grid);

#define GRID_INSERT "INSERT INTO ks.e (p, c, v) VALUES (?, ?, ?)"
#define GRID_UPDATE "UPDATE ks.e SET v = ? WHERE p = ? AND c = ?"
#define GRID_DELETE "DELETE FROM ks.e WHERE p = ? AND c = ?"
#define GRID_DELETE_ALL "DELETE FROM ks.e WHERE p = ?"

/* flow_init first; with ks.e, the requests recorded (ask.h), and the schema read. */
void grid_up(struct flow *flow);
cqlring_future *grid_start(struct flow *flow, cqlring_prepared *const *statements, uint32_t statement_count, struct grid *grid, struct flow_sink *sink,
                           const cqlring_job_options *options);
cqlring_status grid_run(struct flow *flow, cqlring_prepared *const *statements, uint32_t statement_count, struct grid *grid, struct flow_sink *sink,
                        const cqlring_job_options *options, cqlring_summary *summary, cqlring_error *error);
/* The first byte of v at (p, c); −1: no such row. */
int grid_value(struct flow *flow, int64_t p, int32_t c);

#endif
