/* SPDX-License-Identifier: Apache-2.0 */

/* The submitter's half of a connection: send blocks, framing, streams. What becomes of it from there is in conn_send.c. Submitter.

   Requests are framed once, straight into an open send block. What has been framed and not yet sealed is the *open region*
   of that block.

   Values stay in the block until their op is settled: that is what a retry is framed from (decision 22). */

#include <assert.h>
#include <string.h>

#include "driver/conn_send.h"
#include "driver/lane.h"
#include "driver/prepared.h"

enum { SEND_FREE_MAX = 8 };

/* ---- send blocks ---- */

struct send_block *cqr_send_block_take(struct lane *lane, uint32_t size)
{
    struct send_block *block = lane->send_free;
    if (size <= SEND_BLOCK_SIZE && block != NULL) {
        lane->send_free = block->next;
        lane->send_free_count--;
    } else {
        uint32_t room = size <= SEND_BLOCK_SIZE ? SEND_BLOCK_SIZE : size;
        block = cqr_mem_alloc(sizeof *block + room);
        if (block == NULL)
            return NULL;
        block->size = room;
    }
    block->next = NULL;
    block->fill = 0;
    block->ops = NULL;
    block->live_ops = block->live_bytes = block->spans = 0;
    block->open = true;
    block->large = block->size > SEND_BLOCK_SIZE;
    block->squeezed = false;
    lane->send_bytes += block->size;
    return block;
}

void cqr_send_block_check(struct lane *lane, struct send_block *block)
{
    if (block->open || block->live_ops > 0 || block->spans > 0)
        return;
    lane->send_bytes -= block->size;
    if (!block->large && lane->send_free_count < SEND_FREE_MAX) {
        block->next = lane->send_free;
        lane->send_free = block;
        lane->send_free_count++;
    } else {
        cqr_mem_free(block);
    }
}

/* Where values wait that are in nobody's frame: few must not pin many blocks. */
static struct send_block *squeeze_room(struct lane *lane, uint32_t size)
{
    struct send_block *target = lane->squeeze;
    if (target != NULL && target->size - target->fill >= size)
        return target;
    if (target != NULL) {
        target->open = false;
        cqr_send_block_check(lane, target);
    }
    target = lane->squeeze = cqr_send_block_take(lane, size);
    if (target != NULL)
        target->squeezed = true;
    return target;
}

/* Few stragglers must not pin many blocks: move their values together. */
static void block_squeeze(struct lane *lane, struct send_block *block)
{
    block->squeezed = true;
    for (struct op *op = block->ops, *next; op != NULL; op = next) {
        next = op->block_next;
        struct send_block *target = squeeze_room(lane, op->values_size);
        if (target == NULL)
            return; /* they stay where they are */
        uint8_t *at = target->data + target->fill;
        memcpy(at, op->values, op->values_size);
        target->fill += op->values_size;
        uint32_t size = op->values_size;
        cqr_values_detach(op);
        cqr_values_attach(op, target, at, size);
    }
}

uint8_t *cqr_values_room(struct lane *lane, struct op *op, uint32_t size)
{
    assert(op->values_block == NULL);
    struct send_block *target = squeeze_room(lane, size);
    if (target == NULL)
        return NULL;
    uint8_t *at = target->data + target->fill;
    target->fill += size;
    cqr_values_attach(op, target, at, size);
    return at;
}

void cqr_block_loosened(struct lane *lane, struct send_block *block)
{
    if (block->live_ops > 0 && block->live_bytes < block->size / 4 && !block->squeezed)
        block_squeeze(lane, block);
    cqr_send_block_check(lane, block);
}

void cqr_open_block_close(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct send_block *block = writer->open;
    writer->open = NULL;
    if (block != NULL) {
        block->open = false;
        cqr_send_block_check(conn->lane, block);
    }
}

/* ---- framing ---- */

/* An upper bound of everything around the values. */
static uint64_t size_around(const struct op *op)
{
    const struct query_params *params = &op->plan->params;
    uint64_t size = PROTO_HEADER_SIZE + 64 + (uint64_t)(op->text.size > 0 ? op->text.size : 0);
    size += (uint64_t)(op->paging_state.size > 0 ? op->paging_state.size : 0) + (uint64_t)params->keyspace.size;
    if (op->version != NULL)
        size += (uint64_t)op->version->id_size + op->version->metadata_id_size;
    for (uint32_t i = 0; i < params->payload_count; i++)
        size += 8u + (uint64_t)params->payload[i].key.size + (uint64_t)(params->payload[i].value.size > 0 ? params->payload[i].value.size : 0);
    return size;
}

static struct send_block *region_open(struct conn *conn, uint64_t need)
{
    struct conn_writer *writer = &conn->writer;
    uint32_t header = cqr_region_header(conn);
    if (writer->open != NULL && writer->open_ops > 0 && cqr_conn_is_framed(conn) &&
        writer->open->fill - writer->open_from - header + need > PROTO_SEGMENT_PAYLOAD_MAX)
        cqr_region_seal(conn);
    if (writer->shut)
        return NULL;
    struct send_block *block = writer->open;
    if (block != NULL && writer->open_ops == 0 && block->live_ops == 0 && block->spans == 0)
        block->fill = writer->open_from = 0; /* everything in it is settled: start again, the memory is warm */
    if (block != NULL && block->size - block->fill < need + header + REGION_RESERVE) {
        cqr_region_seal(conn);
        cqr_open_block_close(conn);
        if (writer->shut)
            return NULL;
        block = NULL;
    }
    if (block == NULL) {
        block = cqr_send_block_take(conn->lane, (uint32_t)(need + header + REGION_RESERVE));
        if (block == NULL)
            return NULL;
        writer->open = block;
        writer->open_from = 0;
    }
    if (writer->open_ops == 0) {
        writer->open_from = block->fill;
        block->fill += header; /* the segment's header, written by seal */
    }
    return block;
}

static inline bool skips_metadata(const struct conn *conn, const struct op_plan *plan, const struct statement_version *version)
{
    return plan->params.skip_metadata && version->result != NULL && version->metadata_id_size > 0 && cqr_dialect_has_metadata_id(&conn->dialect);
}

static void frame_write(const struct conn *conn, struct op *op, struct writer *out, const cqlring_bytes *cells, uint32_t cell_count,
                        uint32_t *values_at, uint32_t *values_size)
{
    struct query_params params = op->plan->params;
    params.has_timestamp = op->timestamp_us != INT64_MIN;
    params.timestamp_us = op->timestamp_us;
    if (op->consistency_1 != 0)
        params.consistency = (uint16_t)(op->consistency_1 - 1);
    if (op->paging_state.data != NULL)
        params.paging_state = op->paging_state;
    int16_t stream = (int16_t)op->stream;
    uint32_t start = 0;
    switch (op->plan->opcode) {
    case OPCODE_EXECUTE: {
        const struct statement_version *version = op->version;
        params.has_values = true;
        params.skip_metadata = skips_metadata(conn, op->plan, version);
        start = cqr_execute_begin(out, &conn->dialect, stream, (cqlring_bytes){version->id, version->id_size},
                                  (cqlring_bytes){version->metadata_id, version->metadata_id_size}, &params);
        break;
    }
    case OPCODE_QUERY:
        params.has_values = op->values_size > 0 || cells != NULL;
        start = cqr_query_begin(out, &conn->dialect, stream, op->text, &params);
        break;
    case OPCODE_BATCH:
        start = cqr_batch_begin(out, &conn->dialect, stream, op->plan->batch_kind, op->batch_count, &params);
        break;
    case OPCODE_PREPARE:
        cqr_encode_prepare(out, &conn->dialect, stream, op->text, params.keyspace, params.tracing, params.payload, params.payload_count);
        return;
    default:
        cqr_encode_options(out, &conn->dialect, stream);
        return;
    }
    *values_at = out->size;
    if (cells != NULL)
        cqr_put_values(out, cells, cell_count);
    else if (op->values_size > 0)
        cqr_put_raw(out, op->values, op->values_size);
    *values_size = out->size - *values_at;
    if (op->plan->opcode == OPCODE_EXECUTE)
        cqr_execute_end(out, &conn->dialect, &params, start, 0);
    else if (op->plan->opcode == OPCODE_QUERY)
        cqr_query_end(out, &conn->dialect, &params, start);
    else
        cqr_batch_end(out, &conn->dialect, &params, start);
}

void cqr_writer_touch(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->dirty)
        return;
    writer->dirty = true;
    writer->next_dirty = conn->lane->dirty;
    conn->lane->dirty = conn;
}

void cqr_writer_answered(struct conn *conn)
{
    if (--conn->writer.in_flight == 0)
        cqr_writer_touch(conn); /* nothing to send, but the node's count is published there */
}

/* The frame of frame_size bytes, with its values at values_at, is written behind block->fill: it counts as under way. */
static inline __attribute__((always_inline)) void put_done(struct conn *conn, struct op *op, struct send_block *block, uint32_t frame_size, int64_t now_us)
{
    struct lane *lane = conn->lane;
    struct conn_writer *writer = &conn->writer;
    if (++writer->stream_head == writer->stream_count)
        writer->stream_head = 0;
    writer->stream_free--;
    op->frame_block = block;
    op->frame_offset = block->fill;
    op->frame_size = frame_size;
    op->seal = writer->seal_next;
    block->fill += frame_size;
    writer->open_ops++;

    op->conn = conn;
    op->node = conn->node;
    op->attempts++;
    op->phase = CQLRING_SENT;
    op->state = OP_IN_FLIGHT;
    if (op->first_sent_us == 0)
        op->first_sent_us = now_us;
    else
        op->sent_after_us = cqr_elapsed_us(op->first_sent_us, now_us);
    if (writer->in_flight++ == 0) {
        writer->waiting_since_us = now_us;
        writer->reads_seen = atomic_load_explicit(&conn->reads, memory_order_relaxed);
        /* silence counts from here: the watch, which may be set to a far heartbeat, must look in time (decision 30) */
        if (writer->suspect_after_us >= 0 && (writer->watch.link == NULL || writer->watch.deadline_us > now_us + writer->suspect_after_us))
            cqr_wheel_arm(&lane->wheel, &writer->watch, now_us + writer->suspect_after_us);
    }
    /* release: pairs with the acquire of the reactor's exchange, which hands the op on to the ring */
    atomic_store_explicit(&conn->slots[op->stream], (uintptr_t)op, memory_order_release);
    cqr_count(&lane->stats.issued, 1);

    if (block->fill - writer->open_from >= FLUSH_SIZE)
        cqr_writer_flush(conn);
    cqr_writer_touch(conn); /* to send the rest, and to publish its numbers */
}

/* keep: the values are to live in the send block from now on. */
static enum write_result put(struct conn *conn, struct op *op, const cqlring_bytes *cells, uint32_t cell_count, bool keep, int64_t now_us)
{
    struct lane *lane = conn->lane;
    struct conn_writer *writer = &conn->writer;
    if (!cqr_writer_has_room(conn))
        return WRITE_FULL;
    uint64_t need = size_around(op) + op->values_size;
    if (need > PROTO_BODY_MAX)
        return WRITE_TOO_LARGE;
    struct send_block *block = region_open(conn, need);
    if (block == NULL)
        return writer->shut ? WRITE_FULL : WRITE_NO_MEMORY;

    op->stream = writer->streams[writer->stream_head];
    struct writer out;
    cqr_writer_init(&out, block->data + block->fill, block->size - block->fill - REGION_RESERVE);
    uint32_t values_at = 0, values_size = 0;
    frame_write(conn, op, &out, cells, cell_count, &values_at, &values_size);
    if (out.failed) { /* a string over 65 535 bytes: `need` has been enough for the rest */
        if (writer->open_ops == 0)
            block->fill = writer->open_from;
        return WRITE_TOO_LARGE;
    }
    if (values_size > 0 && (keep || op->values_block != NULL)) {
        struct send_block *old = op->values_block;
        if (old != NULL) {
            cqr_values_detach(op);
            if (old != block)
                cqr_send_block_check(lane, old);
        }
        cqr_values_attach(op, block, out.data + values_at, values_size);
    }
    if (values_size > 0)
        cqr_count(&lane->stats.copied_down_bytes, values_size);
    put_done(conn, op, block, out.size, now_us);
    return WRITE_OK;
}

enum write_result cqr_writer_put(struct conn *conn, struct op *op, const cqlring_bytes *cells, uint32_t cell_count, int64_t now_us)
{
    return put(conn, op, cells, cell_count, cells != NULL, now_us);
}

enum write_result cqr_writer_put_kept(struct conn *conn, struct op *op, int64_t now_us)
{
    return put(conn, op, NULL, 0, true, now_us);
}

bool cqr_values_keep(struct lane *lane, struct op *op, const uint8_t *values, uint32_t size)
{
    assert(op->values_block == NULL);
    struct send_block *block = cqr_send_block_take(lane, size);
    if (block == NULL)
        return false;
    memcpy(block->data, values, size);
    block->fill = size;
    cqr_values_attach(op, block, block->data, size);
    block->open = false;
    block->squeezed = true;
    return true;
}

static __attribute__((noinline)) bool head_make(const struct conn *conn, const struct op *op, struct row_head *head)
{
    const struct statement_version *version = op->version;
    const struct dialect *dialect = &conn->dialect;
    struct query_params params = op->plan->params;
    params.skip_metadata = skips_metadata(conn, op->plan, version);
    head->version = NULL;
    if (!cqr_execute_head_make(&head->head, dialect, (cqlring_bytes){version->id, version->id_size},
                               (cqlring_bytes){version->metadata_id, version->metadata_id_size}, &params))
        return false;
    *head = (struct row_head){version, dialect->version, dialect->extensions, dialect->frame_flags, head->head};
    return true;
}

/* What cqr_writer_put does, in a straight line for what nearly all rows are: plain parameters, and room in the open region. */
enum write_result cqr_writer_put_row(struct conn *conn, struct op *op, const cqlring_bytes *cells, uint32_t cell_count, struct row_head *head, int64_t now_us)
{
    struct conn_writer *writer = &conn->writer;
    const struct dialect *dialect = &conn->dialect;
    if ((head->version != op->version || head->protocol != dialect->version || head->extensions != dialect->extensions ||
         head->frame_flags != dialect->frame_flags) &&
        !head_make(conn, op, head))
        return cqr_writer_put(conn, op, cells, cell_count, now_us);
    uint64_t need = CQR_EXECUTE_AROUND + (uint64_t)op->values_size;
    if (need > PROTO_BODY_MAX)
        return WRITE_TOO_LARGE;
    struct send_block *block = writer->open;
    if (block == NULL || writer->open_ops == 0 || block->size - block->fill < need + CQR_SEGMENT_HEADER_SIZE + REGION_RESERVE ||
        block->fill - writer->open_from + need > PROTO_SEGMENT_PAYLOAD_MAX) {
        block = region_open(conn, need);
        if (block == NULL)
            return writer->shut ? WRITE_FULL : WRITE_NO_MEMORY;
    }
    op->stream = writer->streams[writer->stream_head];
    uint8_t *frame = block->data + block->fill;
    uint32_t values_size;
    uint32_t size = cqr_execute_row(frame, &head->head, (int16_t)op->stream, op->timestamp_us, cells, cell_count, &values_size);
    cqr_values_attach(op, block, frame + head->head.size, values_size);
    cqr_count(&conn->lane->stats.copied_down_bytes, values_size);
    put_done(conn, op, block, size, now_us);
    return WRITE_OK;
}

/* ---- streams ---- */

void cqr_writer_stream_free(struct conn *conn, uint16_t stream)
{
    struct conn_writer *writer = &conn->writer;
    assert(writer->stream_free < writer->stream_count);
    uint32_t at = writer->stream_head + writer->stream_free++;
    writer->streams[at < writer->stream_count ? at : at - writer->stream_count] = stream;
}
