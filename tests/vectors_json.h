/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_VECTORS_JSON_H
#define CQLRING_TESTS_VECTORS_JSON_H

/* value_json and type_json of the vectors' README ↔ bytes and types, with nothing but what the
   library exports. */

#include <jansson.h>

#include "serialize/cqlring_values.h"
#include "tests/vectors.h"

/* CQL, with UDTs spelled out: udt:ks.name{field:type,…}. */
cqlring_status vector_type_from_text(struct vector_row *row, const char *text,
                                     const cqlring_type **type);

/* The cell lives in the row's arena. *needed (or NULL) as of cqlring_writer_take. */
cqlring_status vector_encode(struct vector_row *row, const cqlring_type *type, const json_t *value,
                             uint32_t capacity, cqlring_bytes *cell, uint64_t *needed);

/* A new reference; {"empty": true} for an empty cell of a type that has no empty value; a failure
   is noted. */
json_t *vector_decode(struct vector_row *row, const cqlring_type *type, cqlring_bytes cell);

#endif
