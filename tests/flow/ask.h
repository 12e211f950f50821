/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ASK_H
#define ASK_H

/* Single requests in one line each, and looking at what came of them. */

#include "flow.h"

/* Execute and wait. values, how, result and error may be NULL. */
cqlring_status ask_text(struct flow *flow, const char *cql, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how,
                        cqlring_result **result, cqlring_error *error);
cqlring_status ask_prepared(struct flow *flow, cqlring_prepared *prepared, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how,
                            cqlring_result **result, cqlring_error *error);
/* Execute without waiting; the call must be accepted. */
cqlring_future *ask_start(struct flow *flow, const char *cql, const cqlring_execution *how);
cqlring_future *ask_start_prepared(struct flow *flow, cqlring_prepared *prepared, const cqlring_bytes *values, uint32_t count, const cqlring_execution *how);
/* Wait for at most 20 s; the future must then be ready. Its status; released if asked for. */
cqlring_status ask_wait(cqlring_future *future, cqlring_error *error);
cqlring_status ask_end(cqlring_future *future, cqlring_error *error); /* wait and release */

/* The page after this one, waited for; the caller's to release. NULL when there is none: the status and error tell why. */
cqlring_status ask_next_page(cqlring_result *result, const cqlring_execution *how, cqlring_result **next, cqlring_error *error);

/* One cell of a result; the row must be there. Slices live as long as the result. */
cqlring_bytes ask_cell(cqlring_result *result, uint32_t row, uint32_t column);
int64_t ask_int(cqlring_result *result, uint32_t row, uint32_t column); /* of 1, 2, 4 or 8 bytes */
bool ask_is(cqlring_bytes cell, const char *text);
/* The single integer that a query answers with. */
int64_t ask_number(struct flow *flow, const char *cql);

/* The statements (QUERY, EXECUTE, BATCH, PREPARE) that the nodes saw, the driver's own of system tables left out, as they came;
   the first ASK_SEEN_MAX are kept. Between flow_init and flow_start; one recording at a time. */
enum { ASK_SEEN_MAX = 4096 };
void ask_record(struct flow *flow);
void ask_record_clear(void);
uint32_t ask_seen_count(uint8_t opcode);                    /* 0: of any */
struct node_seen ask_seen_at(uint8_t opcode, uint32_t index); /* must be there */
struct node_seen ask_seen(uint8_t opcode);                  /* the last; must be there */

/* Let so much time pass, in caller mode with turns; for what has no event that a test could await. */
void ask_pass(struct flow *flow, uint32_t ms);
/* Until every node has a connection; a session is open with the first one. */
void ask_until_connected(struct flow *flow);
/* Until a request is answered: connections come back by themselves. */
void ask_until_served(struct flow *flow);
/* When everything was let go by hand: no allocation of the library is left. */
void ask_nothing_left(void);

/* The text of the driver's node i, as errors name it. */
const char *ask_address(struct flow *flow, uint32_t node);

#endif
