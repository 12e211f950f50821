/* SPDX-License-Identifier: Apache-2.0 */

/* What conn_writer.c has framed, on its way to the socket: sealing, sending, what a deadline takes back, the end. Submitter.

   Sealing turns the open region into a *span* (v4: as it is; v5: one segment around it; LZ4: compressed into a block of
   its own), and spans are given to the socket, oldest first, one send each. A blocked socket seals nothing more, so what
   expires meanwhile can be cut out and has provably not been sent. */

#include "driver/conn_send.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/lane.h"
#include "driver/node_stats.h"

enum { TLS_RECORD = 16 << 10 };

/* ---- sealing ---- */

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
    struct send_block *block = cqr_send_block_take(lane, room);
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
    struct send_block *block = cqr_send_block_take(lane, size + cqr_compress_bound(size) - size + 64);
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

/* The open region becomes a span. */
void cqr_region_seal(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    struct send_block *block = writer->open;
    if (block == NULL || writer->open_ops == 0)
        return;
    uint32_t from = writer->open_from, header = cqr_region_header(conn);
    uint32_t payload = block->fill - from - header;
    bool sealed = true;
    if (cqr_conn_is_framed(conn)) {
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
        cqr_open_block_close(conn);
}

/* ---- sending ---- */

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
        cqr_send_block_check(conn->lane, block);
    }
}

void cqr_writer_flush(struct conn *conn)
{
    struct conn_writer *writer = &conn->writer;
    if (writer->state != WRITER_UP || writer->shut || writer->blocked)
        return;
    cqr_region_seal(conn);
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

/* ---- deadlines, the end ---- */

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
        struct send_block *keep = cqr_send_block_take(conn->lane, op->values_size);
        if (keep == NULL)
            return; /* it is sent after all */
        memcpy(keep->data, op->values, op->values_size);
        keep->fill = op->values_size;
        uint32_t values_size = op->values_size;
        cqr_values_detach(op);
        cqr_values_attach(op, keep, keep->data, values_size);
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
                cqr_send_block_check(conn->lane, block);
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
        cqr_send_block_check(lane, block);
    }
    writer->open_ops = 0;
    cqr_open_block_close(conn);
    if (writer->dirty) {
        struct conn **link = &lane->dirty;
        while (*link != conn)
            link = &(*link)->writer.next_dirty;
        *link = writer->next_dirty;
        writer->dirty = false;
    }
    writer->state = WRITER_DOWN;
}
