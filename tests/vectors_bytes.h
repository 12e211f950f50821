/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_VECTORS_BYTES_H
#define CQLRING_TESTS_VECTORS_BYTES_H

/* Bytes that the vectors name instead of spelling them: "hex:…", "seq:N", "rep:XX:N", "noise:N:S",
   and "sha256:…" for what is to be compared by digest. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/vectors.h"

/* The bytes that text names (a plain hex string too), in the row's arena. What is none of these is
   noted. */
cqlring_bytes vector_bytes_of(struct vector_row *row, const char *text);
/* Compare with what text names or with its digest. */
bool vector_check_named(struct vector_row *row, const char *what, cqlring_bytes got,
                        const char *text);

#endif
