/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_VECTORS_H
#define CQLRING_TESTS_VECTORS_H

/* What run_vectors and the files vectors_*.c agree on. The frame reads each .tsv, finds the
   function for its rows (by the file's name, else by its "# columns:" line) and counts. A row
   passes when its function notes no failure; each failure is printed with the row's id, what was
   compared, what came and what was wanted. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "serialize/cqlring_types.h"
#include "serialize/mem.h"

enum { VECTOR_FIELDS_MAX = 16 };

/* One row, and where its function notes what it found. Everything in it, and everything the helpers
   below return, lives until the function returns. */
struct vector_row {
    const char *file; /* base name without .tsv */
    const char *id;
    uint32_t field_count;
    const char *columns[VECTOR_FIELDS_MAX]; /* names, from the "# columns:" line */
    const char *fields[VECTOR_FIELDS_MAX];
    uint32_t failures;
    bool skipped;
    struct arena arena; /* for whatever the row needs */
    json_t *documents[VECTOR_FIELDS_MAX];
    uint32_t document_count;
};

struct vector_file {
    const char *name;    /* base name without .tsv; NULL ends a table */
    const char *columns; /* as in the file, blank-separated; what other files with the same columns
                            are run by */
    void (*run)(struct vector_row *row);
};

extern const struct vector_file vectors_serialize[];
extern const struct vector_file vectors_cql[];

/* The field of that column. A column that is not there is noted as a failure and reads as "". */
const char *vector_text(struct vector_row *row, const char *column);
int64_t vector_int(struct vector_row *row, const char *column);
cqlring_bytes vector_hex(struct vector_row *row, const char *column);
/* The parsed JSON of that column, freed by the frame; NULL (and noted) when it is none. */
json_t *vector_json(struct vector_row *row, const char *column);

/* Bytes of a hex string, in the row's arena. A string that is not hex is noted and reads as
   empty. */
cqlring_bytes vector_hex_of(struct vector_row *row, const char *hex);
/* Hex of bytes; "null" for a negative size. */
const char *vector_hex_text(struct vector_row *row, cqlring_bytes bytes);
/* memory from the row's arena, zeroed; never NULL */
void *vector_room(struct vector_row *row, size_t size);

/* Each returns whether it held. */
bool vector_check(struct vector_row *row, bool held, const char *what);
bool vector_check_int(struct vector_row *row, const char *what, int64_t got, int64_t wanted);
bool vector_check_text(struct vector_row *row, const char *what, const char *got,
                       const char *wanted);
bool vector_check_bytes(struct vector_row *row, const char *what, cqlring_bytes got,
                        cqlring_bytes wanted);
bool vector_check_status(struct vector_row *row, const char *what, cqlring_status got,
                         cqlring_status wanted);
/* Compares as values: the order of an object's keys does not count. */
bool vector_check_json(struct vector_row *row, const char *what, const json_t *got,
                       const json_t *wanted);

/* The row cannot be tried; counted neither as passed nor as failed. */
void vector_skip(struct vector_row *row, const char *reason);

/* type_json of the vectors' README; a new reference. */
struct cqlring_type;
json_t *vector_type_json(const struct cqlring_type *type);

#endif
