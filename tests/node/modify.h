/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_MODIFY_H
#define NODE_MODIFY_H

#include "tests/node/engine_private.h"

/* Write what the statement says, or (write_now false) only find out whether it could be. timestamp:
   unless it brings its own. */
bool node_modify_apply(struct query *query, const struct statement *statement, int64_t timestamp,
                       bool write_now);

#endif
