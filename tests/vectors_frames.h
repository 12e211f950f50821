/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_VECTORS_FRAMES_H
#define CQLRING_TESTS_VECTORS_FRAMES_H

/* Rows of requests.tsv, requests_by_spec.tsv, responses.tsv and responses_truncated.tsv. */

#include "tests/vectors.h"

void vector_run_request(struct vector_row *row);  /* written byte for byte, and taken apart again */
void vector_run_response(struct vector_row *row); /* taken apart into the row's JSON */
void vector_run_response_cut(struct vector_row *row); /* refused */

#endif
