/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_PREPARE_AHEAD_H
#define CQR_PREPARE_AHEAD_H

/* A node came (back) up: what the application holds prepared is prepared there before rows need it, so that they need not find out
   one by one that the node does not know it. Rows are not held up: they go to the node at once, and one that comes before its
   statement's turn is answered UNPREPARED and put in the same line, at its head (reprepare.c).

   With prepare_on_all a statement goes the same way when it is new, to every node that the asking lane is connected to.

   Each lane has its own connections, but a node knows a statement for all of them: lane 0 alone does this, once for each time that a
   node was away from every lane. Submitter of lane 0. */

#include "driver/wheel.h"

struct conn;
struct cqlring_node;
struct cqlring_prepared;
struct lane;
struct pool_link;

/* With prepare_on_all: the node of `answered` has just been the first to prepare it; now the others that are connected. The submitter of
   the lane that asked. */
void cqr_prepare_on_all(struct lane *lane, struct cqlring_prepared *prepared, const struct cqlring_node *answered);
/* The link's first connection is up. */
void cqr_prepare_ahead(struct lane *lane, struct pool_link *link);
/* One of conn's is through; well: the node answered it in time. */
void cqr_prepare_ahead_next(struct lane *lane, struct conn *conn, bool well);
void cqr_prepare_ahead_lost(struct lane *lane, struct conn *conn);
void cqr_prepare_ahead_timer(struct lane *lane, struct timer *timer);

#endif
