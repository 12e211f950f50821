/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CONN_SEND_H
#define CQR_CONN_SEND_H

/* What the two files of the submitter's half of a connection share: conn_writer.c, which fills send blocks, and conn_send.c, which
   seals and sends what is in them. Nobody else includes this. Submitter. */

#include "cql/segment.h"
#include "driver/conn.h"

enum { REGION_RESERVE = CQR_SEGMENT_TRAILER_SIZE };

/* conn_writer.c */
struct send_block *cqr_send_block_take(struct lane *lane, uint32_t size); /* being filled; NULL: out of memory */
void cqr_send_block_check(struct lane *lane, struct send_block *block);   /* freed, if nobody fills, sends or keeps it */
void cqr_open_block_close(struct conn *conn);                        /* nothing more goes into the block that is being filled */

/* conn_send.c: the open region becomes a span. */
void cqr_region_seal(struct conn *conn);

static inline bool cqr_conn_is_framed(const struct conn *conn)
{
    return conn->dialect.version >= PROTO_V5;
}

/* Room for the header of the segment that the open region will be. */
static inline uint32_t cqr_region_header(const struct conn *conn)
{
    return cqr_conn_is_framed(conn) && conn->compression == COMPRESSION_NONE ? CQR_SEGMENT_HEADER_SIZE : 0;
}

/* The op's values lie in this block from now on; cqr_values_detach undoes it. */
static inline void cqr_values_attach(struct op *op, struct send_block *block, const uint8_t *values, uint32_t size)
{
    op->values = values;
    op->values_size = size;
    op->values_block = block;
    op->block_next = block->ops;
    if (block->ops != NULL)
        block->ops->block_link = &op->block_next;
    op->block_link = &block->ops;
    block->ops = op;
    block->live_ops++;
    block->live_bytes += size;
}

#endif
