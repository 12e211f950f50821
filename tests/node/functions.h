/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_FUNCTIONS_H
#define NODE_FUNCTIONS_H

/* The native functions that CQL texts use on values: times, uuids, conversions from and to blob. */

#include "tests/node/engine_private.h"

enum { FUNCTION_ARGUMENTS_MAX = 4 };

enum function_number {
    FUNCTION_NONE,
    FUNCTION_NOW,
    FUNCTION_UUID,
    FUNCTION_CURRENT_TIMESTAMP,
    FUNCTION_CURRENT_DATE,
    FUNCTION_CURRENT_TIME,
    FUNCTION_TO_DATE,
    FUNCTION_TO_TIMESTAMP,
    FUNCTION_TO_UNIX_TIMESTAMP,
    FUNCTION_MIN_TIMEUUID,
    FUNCTION_MAX_TIMEUUID,
    FUNCTION_AS_BLOB,
    FUNCTION_FROM_BLOB,
    FUNCTION_MIN, /* aggregates */
    FUNCTION_MAX,
    FUNCTION_SUM,
    FUNCTION_AVG
};

/* Of a TERM_CALL: argument types (of calls inside: theirs; of literals: the function's), result
   type. NULL: unknown. */
const struct node_type *node_function_signature(const struct term *term,
                                                const struct node_type **types, uint16_t *number);
/* By name (any case, with or without underscores) and number of arguments; wanted[i] NULL where the
   argument's own type decides. */
const struct node_type *node_function_lookup(cqlring_bytes name, uint16_t count,
                                             const struct node_type *first,
                                             const struct node_type **wanted, uint16_t *number);

#endif
