/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_WORDS_H
#define CQR_WORDS_H

/* What can be told of a statement by its words, where no server has said it. Strings, quoted names and comments are passed over.
   Pure functions; any thread. */

#include <stdbool.h>

#include "serialize/cqlring_types.h"

bool cqr_text_is_read(cqlring_bytes cql);        /* its first word is SELECT */
bool cqr_text_is_use(cqlring_bytes cql);         /* … USE */
/* An INSERT, UPDATE, DELETE or batch with a bare IF, which is a reserved word: a lightweight transaction. */
bool cqr_text_is_conditional(cqlring_bytes cql);
/* One of those without: what may be done twice if its author says so. A change of the schema, of roles, a USE may not. */
bool cqr_text_is_plain_write(cqlring_bytes cql);
bool cqr_text_is_batch(cqlring_bytes cql);       /* its first word is BEGIN */
/* Nothing in it but equalities can choose rows: neither < nor > (wherever they stand) nor a bare IN. */
bool cqr_text_is_by_key(cqlring_bytes cql);
/* Does this name, as the schema has it, stand in it: bare in any case, or quoted exactly? Whatever it is there for. */
bool cqr_text_names(cqlring_bytes cql, const char *name);

#endif
