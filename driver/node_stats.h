/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_NODE_STATS_H
#define CQR_NODE_STATS_H

/* What was counted of one node, by lane and shard: hung on the node, so it goes on over reconnections and lives as long as the
   node. One writer each (the lane's submitter; its reactor for its own half), relaxed readers.

   The histogram is log-linear: eight buckets an octave of microseconds, so a value is known within an eighth. A reply costs it
   a comparison: replies of one turn that were sent in one turn over one connection have the same latency, and such a run is
   written down once, with its length. */

#include "driver/lane.h"

struct cqlring_node;

enum { NODE_LATENCY_BUCKETS = 240, SERVER_ERRORS = 22 };

struct node_stats {
    struct node_stats *next;          /* in the node's list, constant */
    uint32_t lane;
    int32_t shard;                    /* −1: the node has none */
    /* the submitter's */
    _Alignas(64) counter connections, in_flight, orphans, queued_bytes, window; /* now */
    counter requests, sends, send_bytes, retries;
    counter speculative, speculative_won, shard_fallbacks, orphaned, late_replies;
    counter errors[16];               /* attempts that failed, by status */
    counter server_errors[SERVER_ERRORS]; /* of those with SERVER, by kind */
    counter latency_sum_us, latency_max_us;
    counter latency[NODE_LATENCY_BUCKETS];
    /* the reactor's */
    _Alignas(64) counter recvs, recv_bytes, wakes;
};

/* The connection's node has one more of these; a connection that is nobody's yet has no such place. */
#define cqr_node_count(conn_, field_)                                                                       \
    do {                                                                                                    \
        struct node_stats *node_stats_ = atomic_load_explicit(&(conn_)->stats, memory_order_acquire);       \
        if (node_stats_ != NULL)                                                                            \
            cqr_count(&node_stats_->field_, 1);                                                             \
    } while (0)

/* The node's, made when asked for first. NULL: out of memory. Submitter of that lane. */
struct node_stats *cqr_node_stats_get(struct cqlring_node *node, uint32_t lane, int32_t shard);
void cqr_node_stats_free(struct cqlring_node *node);   /* with the node */

uint32_t cqr_latency_bucket(uint32_t us);
uint64_t cqr_latency_bucket_end(uint32_t bucket);      /* the first value that is no longer in it */

/* Server errors by kind: "overloaded", "read_timeout", …; the last is "other". */
uint32_t cqr_server_error_kind(int32_t code);
const char *cqr_server_error_name(uint32_t kind);

/* Submitter. */
void cqr_conn_publish(struct conn *conn);              /* what is in flight, orphaned and queued on it, and its window */
void cqr_conn_unpublish(struct conn *conn);            /* it is down: nothing is */
void cqr_node_stats_error(struct conn *conn, cqlring_status status, int32_t server_code); /* an attempt on it failed */
void cqr_latency_write(struct conn *conn);             /* end of the turn, or of the connection: its run is written down */
void cqr_latency_run(struct conn *conn, uint32_t us);  /* a run ends, another begins */

/* A request is answered. */
static inline void cqr_node_latency_note(struct lane *lane, struct conn *conn, const struct op *op)
{
    uint32_t us = (uint32_t)(lane->now_us - op->first_sent_us) - op->sent_after_us;
    if (us == conn->writer.run_us)
        conn->writer.run_count++;
    else
        cqr_latency_run(conn, us);
}

#endif
