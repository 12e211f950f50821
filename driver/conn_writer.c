/* SPDX-License-Identifier: Apache-2.0 */

/* The submitter's half of a connection.

   Requests are framed once, straight into an open send block. What has been framed and not yet sealed is the *open region*
   of that block; sealing turns it into a *span* (v4: as it is; v5: one segment around it; LZ4: compressed into a block of
   its own), and spans are given to the socket, oldest first, one send each. A blocked socket seals nothing more, so what
   expires meanwhile can be cut out and has provably not been sent.

   Values stay in the block until their op is settled: that is what a retry is framed from (decision 22). */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cql/segment.h"
#include "driver/lane.h"
#include "driver/node_stats.h"
#include "driver/prepared.h"
#include "driver/session.h"

enum { TLS_RECORD = 16 << 10, SEND_FREE_MAX = 8, REGION_RESERVE = CQR_SEGMENT_TRAILER_SIZE };

/* ---- send blocks ---- */

static struct send_block *block_take(struct lane *lane, uint32_t size)
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

static void block_check(struct lane *lane, struct send_block *block)
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

static void values_attach(struct op *op, struct send_block *block, const uint8_t *values, uint32_t size)
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

/* Where values wait that are in nobody's frame: few must not pin many blocks. */
static struct send_block *squeeze_room(struct lane *lane, uint32_t size)
{
    struct send_block *target = lane->squeeze;
    if (target != NULL && target->size - target->fill >= size)
        return target;
    if (target != NULL) {
        target->open = false;
        block_check(lane, target);
    }
    target = lane->squeeze = block_take(lane, size);
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
        values_attach(op, target, at, size);
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
    values_attach(op, target, at, size);
    return at;
}

void cqr_block_loosened(struct lane *lane, struct send_block *block)
{
    if (block->live_ops > 0 && block->live_bytes < block->size / 4 && !block->squeezed)
        block_squeeze(lane, block);
    block_check(lane, block);
}

/* ---- sealing ---- */

static bool is_framed(const struct conn *conn)
{
    return conn->dialect.version >= PROTO_V5;
}

static uint32_t region_header(const struct conn *conn)
{
    return is_framed(conn) && conn->compression == COMPRESSION_NONE ? CQR_SEGMENT_HEADER_SIZE : 0;
}

static void span_add(struct conn_writer *writer, struct send_block *block, uint32_t from, uint32_t to)
{
    assert(writer->span_count < SPANS_MAX);
    writer->spans[(writer->span_head + writer->span_count++) % SPANS_MAX] =
        (struct span){.block = block, .from = from, .to = to, .seal = writer->seal_next};
    block->spans++;
}

static struct span *span_last(struct conn_writer *writer)
{
    return &writer->spans[(writer->span_head + writer->span_count - 1) % SPANS_MAX];
}

/* An envelope, or several, as segments in a block of their own: compressed, or one too large for a single segment. */
static bool seal_segments(struct conn *conn, const uint8_t *data, uint32_t size)
{
    struct lane *lane = conn->lane;
    bool lz4 = conn->compression == COMPRESSION_LZ4;
    bool self_contained = size <= PROTO_SEGMENT_PAYLOAD_MAX;
    uint32_t pieces = (size + PROTO_SEGMENT_PAYLOAD_MAX - 1) / PROTO_SEGMENT_PAYLOAD_MAX;
    uint32_t overhead = CQR_SEGMENT_LZ4_HEADER_SIZE + CQR_SEGMENT_TRAILER_SIZE;
    uint32_t room = size + pieces * overhead + (lz4 ? cqr_compress_bound(PROTO_SEGMENT_PAYLOAD_MAX) - PROTO_SEGMENT_PAYLOAD_MAX : 0);
    struct send_block *block = block_take(lane, room);
    if (block == NULL)
        return false;
    while (size > 0) {
        uint32_t piece = size < PROTO_SEGMENT_PAYLOAD_MAX ? size : PROTO_SEGMENT_PAYLOAD_MAX;
        uint8_t *at = block->data + block->fill;
        if (lz4) {
            uint32_t wire = cqr_lz4_compress_raw(lane->compress, data, piece, at + CQR_SEGMENT_LZ4_HEADER_SIZE,
                                                 block->size - block->fill - overhead);
            uint32_t original = piece;
            if (wire == 0 || wire >= piece) { /* does not shrink: as it is (V5-06) */
                memcpy(at + CQR_SEGMENT_LZ4_HEADER_SIZE, data, piece);
                wire = piece;
                original = 0;
            }
            block->fill += cqr_segment_seal_lz4(at, wire, original, self_contained);
        } else {
            memcpy(at + CQR_SEGMENT_HEADER_SIZE, data, piece);
            block->fill += cqr_segment_seal(at, piece, self_contained);
        }
        data += piece;
        size -= piece;
    }
    block->open = false;
    span_add(&conn->writer, block, 0, block->fill);
    return true;
}

/* v4: each envelope's body is compressed on its own, when that makes it smaller. */
static bool seal_compressed_frames(struct conn *conn, const uint8_t *data, uint32_t size)
{
    struct lane *lane = conn->lane;
    struct send_block *block = block_take(lane, size + cqr_compress_bound(size) - size + 64);
    if (block == NULL)
        return false;
    while (size > 0) {
        struct frame_header header = {0};
        enum frame_cut cut = cqr_frame_cut(data, size, UINT32_MAX - 64, &header);
        assert(cut == FRAME_WHOLE);
        (void)cut;
        uint32_t frame = PROTO_HEADER_SIZE + header.body_size;
        uint8_t *at = block->data + block->fill;
        uint32_t body = 0;
        if (header.body_size >= 64 && header.opcode != OPCODE_OPTIONS && header.opcode != OPCODE_STARTUP)
            body = cqr_body_compress(conn->compression, lane->compress, data + PROTO_HEADER_SIZE, header.body_size, at + PROTO_HEADER_SIZE,
                                         block->size - block->fill - PROTO_HEADER_SIZE);
        if (body > 0 && body < header.body_size) {
            memcpy(at, data, PROTO_HEADER_SIZE);
            at[1] |= FLAG_COMPRESSED;
            cqr_store_u32(at + 5, body);
            block->fill += PROTO_HEADER_SIZE + body;
        } else {
            memcpy(at, data, frame);
            block->fill += frame;
        }
        data += frame;
        size -= frame;
    }
    block->open = false;
    span_add(&conn->writer, block, 0, block->fill);
    span_last(&conn->writer)->loose = true;
    return true;
}

static void open_close(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct send_block *block = writer->open;
    writer->open = NULL;
    if (block != NULL) {
        block->open = false;
        block_check(conn->lane, block);
    }
}

/* The open region becomes a span. */
static void seal(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct send_block *block = writer->open;
    if (block == NULL || writer->open_ops == 0)
        return;
    uint32_t from = writer->open_from, header = region_header(conn);
    uint32_t payload = block->fill - from - header;
    bool sealed = true;
    if (is_framed(conn)) {
        if (conn->compression == COMPRESSION_NONE && payload <= PROTO_SEGMENT_PAYLOAD_MAX) {
            block->fill = from + cqr_segment_seal(block->data + from, payload, true);
            span_add(writer, block, from, block->fill);
        } else {
            sealed = seal_segments(conn, block->data + from + header, payload);
        }
    } else if (conn->compression != COMPRESSION_NONE) {
        sealed = seal_compressed_frames(conn, block->data + from, payload);
    } else {
        span_add(writer, block, from, block->fill);
        span_last(writer)->exact = true;
    }
    if (!sealed) {
        cqr_writer_shut(conn, CQLRING_NO_MEMORY, "out of memory while framing requests");
        return;
    }
    struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
    if (stats != NULL)
        cqr_count(&stats->requests, writer->open_ops);
    writer->seal_next++;
    writer->open_from = block->fill;
    writer->open_ops = 0;
    if (block->size - block->fill < 2048 || block->large)
        open_close(conn);
}

static void send_spans(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct lane_stats *stats = &conn->lane->stats;
    struct node_stats *node_stats = atomic_load_explicit(&conn->stats, memory_order_relaxed);
    while (writer->span_count > 0 && !writer->shut) {
        struct span *span = &writer->spans[writer->span_head];
        uint32_t accepted = 0;
        bool pending = false;
        enum transport_result result =
            cqr_transport_send(&conn->transport, span->block->data + span->from, span->to - span->from, &accepted, &pending);
        cqr_count(&stats->sends, 1);
        cqr_count(&stats->send_bytes, accepted);
        if (node_stats != NULL) {
            cqr_count(&node_stats->sends, 1);
            cqr_count(&node_stats->send_bytes, accepted);
        }
        span->from += accepted;
        span->begun = span->begun || accepted > 0 || pending;
        /* a half written TLS record must come again unchanged: nothing can be cut out of it any more */
        span->sealed = !pending ? 0 : span->to - span->from < TLS_RECORD ? span->to - span->from : TLS_RECORD;
        if (result == TRANSPORT_AGAIN) {
            writer->blocked = true;
            cqr_count(&stats->send_blocked, 1);
            cqr_conn_command(conn, COMMAND_ARM_WRITE);
            return;
        }
        if (result != TRANSPORT_OK) {
            char why[160];
            int failed = conn->transport.send_error;
            snprintf(why, sizeof why, "send to %s failed: %s", conn->text, failed != 0 ? strerror(failed) : "TLS error");
            writer->send_failed = !writer->shut;
            cqr_writer_shut(conn, failed == 0 ? CQLRING_TLS : CQLRING_LOST, why);
            return;
        }
        assert(span->from == span->to && !pending);
        writer->seal_accepted = span->seal;
        struct send_block *block = span->block;
        writer->span_head = (writer->span_head + 1) % SPANS_MAX;
        writer->span_count--;
        block->spans--;
        block_check(conn->lane, block);
    }
}

void cqr_writer_flush(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->state != WRITER_UP || writer->shut || writer->blocked)
        return;
    seal(conn);
    send_spans(conn);
}

void cqr_writer_writable(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->state != WRITER_UP || writer->shut)
        return;
    writer->blocked = false;
    if (conn->tls != NULL && writer->span_count == 0) { /* what TLS itself had to say (KeyUpdate, alert) */
        uint32_t accepted;
        bool pending;
        cqr_transport_send(&conn->transport, NULL, 0, &accepted, &pending);
    }
    cqr_writer_flush(conn);
}

void cqr_writer_shut(struct conn *conn, cqlring_status status, const char *why)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->shut)
        return;
    writer->shut = true;
    writer->shut_status = status;
    snprintf(writer->shut_text, sizeof writer->shut_text, "%s", why);
    if (writer->state == WRITER_UP)
        cqr_transport_shutdown(&conn->transport);
    else
        cqr_conn_command(conn, COMMAND_SHUT);
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
    uint32_t header = region_header(conn);
    if (writer->open != NULL && writer->open_ops > 0 && is_framed(conn) &&
        writer->open->fill - writer->open_from - header + need > PROTO_SEGMENT_PAYLOAD_MAX)
        seal(conn);
    if (writer->shut)
        return NULL;
    struct send_block *block = writer->open;
    if (block != NULL && writer->open_ops == 0 && block->live_ops == 0 && block->spans == 0)
        block->fill = writer->open_from = 0; /* everything in it is settled: start again, the memory is warm */
    if (block != NULL && block->size - block->fill < need + header + REGION_RESERVE) {
        seal(conn);
        open_close(conn);
        if (writer->shut)
            return NULL;
        block = NULL;
    }
    if (block == NULL) {
        block = block_take(conn->lane, (uint32_t)(need + header + REGION_RESERVE));
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
        op->sent_after_us = (uint32_t)(now_us - op->first_sent_us);
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
                block_check(lane, old);
        }
        values_attach(op, block, out.data + values_at, values_size);
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
    struct send_block *block = block_take(lane, size);
    if (block == NULL)
        return false;
    memcpy(block->data, values, size);
    block->fill = size;
    values_attach(op, block, block->data, size);
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
    values_attach(op, block, frame + head->head.size, values_size);
    cqr_count(&conn->lane->stats.copied_down_bytes, values_size);
    put_done(conn, op, block, size, now_us);
    return WRITE_OK;
}

/* ---- streams, deadlines ---- */

void cqr_writer_stream_free(struct conn *conn, uint16_t stream)
{
    struct conn_writer *writer = &conn->writer;
    assert(writer->stream_free < writer->stream_count);
    uint32_t at = writer->stream_head + writer->stream_free++;
    writer->streams[at < writer->stream_count ? at : at - writer->stream_count] = stream;
}

/* Where an unsent request lies: the end of the region it can be cut from, NULL when it cannot. */
static uint32_t *region_of(struct conn *conn, const struct op *op)
{
    struct conn_writer *writer = &conn->writer;
    if (op->seal == writer->seal_next)
        return writer->open == op->frame_block ? &writer->open->fill : NULL;
    for (uint32_t i = 0; i < writer->span_count; i++) {
        struct span *span = &writer->spans[(writer->span_head + i) % SPANS_MAX];
        if (span->seal == op->seal && span->exact && op->frame_offset >= span->from + span->sealed)
            return &span->to;
    }
    return NULL;
}

bool cqr_writer_has_begun(const struct conn *conn, const struct op *op)
{
    return region_of((struct conn *)(uintptr_t)conn, op) == NULL;
}

static void cut(struct conn *conn, struct op *op, uint32_t *end)
{
    struct send_block *block = op->frame_block;
    uint32_t at = op->frame_offset, size = op->frame_size, from = at + size;
    struct send_block *values_block = op->values_block;
    if (values_block == block) { /* a retry still needs its values: they leave with the frame, so keep a copy */
        struct send_block *keep = block_take(conn->lane, op->values_size);
        if (keep == NULL)
            return; /* it is sent after all */
        memcpy(keep->data, op->values, op->values_size);
        keep->fill = op->values_size;
        uint32_t values_size = op->values_size;
        cqr_values_detach(op);
        values_attach(op, keep, keep->data, values_size);
        keep->open = false;
        keep->squeezed = true;
    }
    memmove(block->data + at, block->data + from, *end - from);
    for (struct op *other = block->ops; other != NULL; other = other->block_next)
        if (other->conn == conn && other->frame_block == block && other->frame_offset > at && other->frame_offset < *end) {
            other->frame_offset -= size;
            other->values -= size;
        }
    /* requests whose values are elsewhere are found by their slots */
    for (uint32_t i = 0; i < conn->slot_count; i++) {
        uintptr_t word = atomic_load_explicit(&conn->slots[i], memory_order_relaxed);
        struct op *other = word > SLOT_GONE ? (struct op *)word : NULL;
        if (other != NULL && other->values_block != block && other->frame_block == block && other->frame_offset > at && other->frame_offset < *end)
            other->frame_offset -= size;
    }
    *end -= size;
    op->phase = CQLRING_NOT_SENT;
    struct conn_writer *writer = &conn->writer;
    if (op->seal == writer->seal_next && --writer->open_ops == 0)
        block->fill = writer->open_from;
    if (op->seal != writer->seal_next)
        for (uint32_t i = 0; i < writer->span_count; i++) {
            struct span *span = &writer->spans[(writer->span_head + i) % SPANS_MAX];
            if (span->seal == op->seal && span->from == span->to && i + 1 == writer->span_count) {
                writer->span_count--; /* nothing left of the last one */
                block->spans--;
                block_check(conn->lane, block);
                break;
            }
        }
}

bool cqr_writer_orphan(struct conn *conn, struct op *op)
{
    struct conn_writer *writer = &conn->writer;
    uintptr_t expected = (uintptr_t)op;
    if (!atomic_compare_exchange_strong_explicit(&conn->slots[op->stream], &expected, SLOT_ORPHAN, memory_order_acq_rel, memory_order_relaxed))
        return false; /* the reactor has taken the reply and will publish it (decision 10) */
    cqr_writer_answered(conn);
    uint32_t *end = region_of(conn, op);
    if (end != NULL)
        cut(conn, op, end);
    if (op->phase == CQLRING_NOT_SENT) {
        atomic_store_explicit(&conn->slots[op->stream], SLOT_EMPTY, memory_order_release);
        cqr_writer_stream_free(conn, op->stream);
    } else if (conn->lane->orphans >= conn->lane->orphans_max) {
        /* the ring has no room for one more late reply (decision 8): this connection goes, with its orphans */
        atomic_store_explicit(&conn->slots[op->stream], SLOT_GONE, memory_order_release);
        cqr_writer_shut(conn, CQLRING_LOST, "too many requests of this lane were not answered in time: the connection is replaced");
    } else {
        writer->orphans++;
        conn->lane->orphans++;
        cqr_count(&conn->lane->stats.orphans, 1);
        cqr_node_count(conn, orphaned);
        cqr_conn_publish(conn);
    }
    op->frame_block = NULL;
    if (conn->lane->waiting_head != NULL)
        conn->lane->waiting_room = true; /* its place in the window is free */
    return true;
}

bool cqr_conn_writer_knows(const struct conn *conn)
{
    const struct conn_writer *writer = &conn->writer;
    return writer->shut && !(writer->send_failed && conn->down_text[0] != '\0');
}

bool cqr_writer_was_sent(const struct conn *conn, const struct op *op)
{
    const struct conn_writer *writer = &conn->writer;
    if (op->seal <= writer->seal_accepted)
        return true;
    for (uint32_t i = 0; i < writer->span_count; i++) {
        const struct span *span = &writer->spans[(writer->span_head + i) % SPANS_MAX];
        if (span->seal != op->seal)
            continue;
        if (span->exact)
            return op->frame_offset + op->frame_size <= span->from;
        return span->loose && span->begun; /* not to be told apart: the careful answer */
    }
    return false;
}

void cqr_writer_fini(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct lane *lane = conn->lane;
    cqr_wheel_disarm(&lane->wheel, &writer->watch);
    while (writer->span_count > 0) {
        struct send_block *block = writer->spans[writer->span_head].block;
        writer->span_head = (writer->span_head + 1) % SPANS_MAX;
        writer->span_count--;
        block->spans--;
        block_check(lane, block);
    }
    writer->open_ops = 0;
    open_close(conn);
    if (writer->dirty) {
        struct conn **link = &lane->dirty;
        while (*link != conn)
            link = &(*link)->writer.next_dirty;
        *link = writer->next_dirty;
        writer->dirty = false;
    }
    writer->state = WRITER_DOWN;
}
