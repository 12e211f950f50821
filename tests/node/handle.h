/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_HANDLE_H
#define NODE_HANDLE_H

/* A request in hand, between its envelope and its reply. */

#include "tests/node/cluster.h"

struct hand {
    struct request request;
    uint8_t opcode, flags;
    int16_t stream;
    bool compressed;
    uint32_t body_size;
    struct strike strike;
};

struct node_seen *node_seen_begin(struct node_conn *conn, const struct hand *hand);
void node_seen_text(struct node_seen *seen, cqlring_bytes text); /* EXECUTE: the statement's */
void node_seen_end(struct node_conn *conn, const struct node_seen *seen);
void node_handle_statement(struct node_conn *conn, struct hand *hand);
void node_reply_planned_error(struct node_conn *conn, const struct hand *hand,
                              const struct node_fault *plan, uint16_t consistency);

#endif
