/* SPDX-License-Identifier: Apache-2.0 */

/* What a connection receives: reading, cutting, publishing. conn_reader.c says when there is something to read,
   and is given the answers of startup. Reactor.

   Bytes are received into a counted block and cut there, in place: envelopes (v4), or segments and the envelopes inside them
   (v5). A finished op is published as {op, block, offset, size}; a plain VOID as {op}. Nothing is copied but the torn rest
   of a block whose room has run out and the slices of an envelope that spans several segments; both are counted.

   All connections of a lane without a torn frame read into the lane's one block; a torn frame keeps its block and the lane
   takes another. */

#include <errno.h>
#include <string.h>

#include "cql/segment.h"
#include "driver/lane.h"
#include "driver/node_stats.h"

enum { STARTUP_FRAME_MAX = 1 << 20, RECEIVE_ROOM_MIN = 16 << 10, EVENTS_CHAINED_MAX = 1024 };

/* ---- frames ---- */

static void event_chain(struct conn *conn, struct block *block, uint32_t offset, const struct frame_header *header)
{
    (void)block;
    struct conn_event *event = NULL;
    /* relaxed: only a bound */
    if (conn->reader.event_count - atomic_load_explicit(&conn->event_taken, memory_order_relaxed) < EVENTS_CHAINED_MAX)
        event = cqr_mem_alloc(sizeof *event + header->body_size);
    if (event == NULL) {
        atomic_store_explicit(&conn->events_lost, true, memory_order_relaxed);
        return;
    }
    event->size = header->body_size;
    event->flags = header->flags;
    memcpy(event->data, block->data + offset, header->body_size);
    conn->reader.event_count++;
    bool was_empty = cqr_inbox_is_empty(&conn->events);
    cqr_inbox_push(&conn->events, &event->item);
    if (was_empty)
        cqr_reactor_stage(conn->lane, COMPLETION_EVENT, conn);
}

/* Is this the header of an answer that may come here? Asked before its body is waited for, or room is made for it: what
   a peer of another protocol sends has any length. */
static bool header_check(struct conn *conn, const struct frame_header *header)
{
    if (conn->reader.state == READER_STARTUP) {
        if (!header->response)
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s does not speak CQL: its answer begins with 0x%02x", conn->text, header->version);
    } else if (!header->response || header->version != conn->dialect.version) {
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a frame that is no v%u response (version byte 0x%02x)", conn->text, conn->dialect.version,
                        header->version | (header->response ? 0x80u : 0u));
    } else if (header->stream >= (int32_t)conn->slot_count) {
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s answered on stream %d, which was never used", conn->text, header->stream);
    }
    return conn->reader.state < READER_DOWN;
}

/* The largest frame that may come now: nothing large is asked for in startup. */
static uint32_t frame_max(const struct conn *conn)
{
    return conn->reader.state == READER_STARTUP && conn->frame_size_max > STARTUP_FRAME_MAX ? STARTUP_FRAME_MAX : conn->frame_size_max;
}

static void refuse_large(struct conn *conn, const struct frame_header *header)
{
    if (!header_check(conn, header))
        return;
    if (conn->reader.state == READER_UP && header->stream >= 0) { /* only this one is to blame: it is told apart from the others */
        _Atomic(uintptr_t) *slot = &conn->slots[header->stream];
        uintptr_t word = atomic_load_explicit(slot, memory_order_relaxed);
        if (word > SLOT_GONE && atomic_compare_exchange_strong_explicit(slot, &word, SLOT_EMPTY, memory_order_acq_rel, memory_order_relaxed))
            cqr_reactor_stage(conn->lane, COMPLETION_LARGE, (void *)word)->size = header->body_size;
    }
    cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a frame of %u bytes, more than frame_size_max (%u): raise it, or read smaller pages", conn->text,
                    header->body_size, frame_max(conn));
}

/* The stream's slot held no op that waits. */
static void slot_odd(struct conn *conn, uint16_t stream, uintptr_t word)
{
    if (word == SLOT_EMPTY) {
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s answered on stream %d, on which nothing was asked", conn->text, stream);
    } else if (word == SLOT_ORPHAN) {
        struct completion *entry = cqr_reactor_stage(conn->lane, COMPLETION_STREAM_FREE, conn);
        entry->stream = stream;
    } /* else SLOT_GONE: dropped */
}

/* A run of plain VOIDs, which is what writes are answered with: compared as two words each, no header taken apart. Ends at the
   first envelope that is anything else or not whole. Returns where. */
static uint32_t voids_take(struct conn *conn, const struct block *block, uint32_t at, uint32_t end)
{
    enum { WHOLE = PROTO_HEADER_SIZE + 4 };
    static const uint8_t rest[8] = {0, 0, 0, 4, 0, 0, 0, RESULT_VOID}; /* body size, kind of result */
    const uint8_t begin[8] = {conn->dialect.version | 0x80, 0, 0, 0, OPCODE_RESULT}, mask[8] = {0xFF, 0xFF, 0, 0, 0xFF};
    uint64_t begin_wanted, begin_mask, rest_wanted;
    memcpy(&begin_wanted, begin, 8);
    memcpy(&begin_mask, mask, 8);
    memcpy(&rest_wanted, rest, 8);
    if (conn->reader.state != READER_UP)
        return at;
    struct ring *ring = &conn->lane->completions;
    uint32_t from = at;
    for (; end - at >= WHOLE; at += WHOLE) {
        uint64_t head, tail;
        memcpy(&head, block->data + at, 8);
        memcpy(&tail, block->data + at + 5, 8);
        uint16_t stream = cqr_load_u16(block->data + at + 2);
        if ((head & begin_mask) != begin_wanted || tail != rest_wanted || stream >= conn->slot_count)
            break;
        /* as in frame_take */
        uintptr_t word = atomic_exchange_explicit(&conn->slots[stream], SLOT_EMPTY, memory_order_acq_rel);
        if (word > SLOT_GONE) {
            *cqr_ring_stage(ring) = (struct completion){.subject = (void *)word, .kind = COMPLETION_VOID};
            continue;
        }
        slot_odd(conn, stream, word);
        if (conn->reader.state >= READER_DOWN)
            break;
    }
    cqr_count(&conn->lane->reactor_stats.replies, (at - from) / WHOLE);
    return at;
}

/* One whole envelope whose body lies in block. */
static void frame_take(struct conn *conn, struct block *block, uint32_t offset, const struct frame_header *header)
{
    struct lane *lane = conn->lane;
    const uint8_t *body = block->data + offset;
    cqr_count(&lane->reactor_stats.replies, 1);
    if (!header_check(conn, header))
        return;
    if (conn->reader.state == READER_STARTUP) {
        if (header->stream > 0) /* all of startup is asked on stream 0 */
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s answered on stream %d during startup", conn->text, header->stream);
        else if (header->stream < 0 && header->opcode == OPCODE_EVENT)
            event_chain(conn, block, offset, header); /* registered already, and quicker than the answer to that */
        else
            cqr_reader_startup_reply(conn, header, body);
        return;
    }
    if (header->stream < 0) {
        if (header->opcode == OPCODE_EVENT)
            event_chain(conn, block, offset, header);
        else
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent opcode 0x%02x on stream %d", conn->text, header->opcode, header->stream);
        return;
    }
    /* acquire: pairs with the submitter's release when it stored the op; release: hands a taken slot back */
    uintptr_t word = atomic_exchange_explicit(&conn->slots[header->stream], SLOT_EMPTY, memory_order_acq_rel);
    if (word <= SLOT_GONE) {
        slot_odd(conn, (uint16_t)header->stream, word);
        return;
    }
    if (cqr_frame_is_plain_void(header, body)) {
        cqr_reactor_stage(lane, COMPLETION_VOID, (void *)word);
        return;
    }
    struct completion *entry = cqr_reactor_stage(lane, COMPLETION_DONE, (void *)word);
    entry->block = block;
    entry->offset = offset;
    entry->size = header->body_size;
    entry->stream = (uint16_t)header->stream;
    entry->opcode = header->opcode;
    entry->flags = header->flags;
    entry->version = header->version;
    lane->block_references++;
}

/* Envelopes in block[at, end), whole ones only: what a self-contained segment holds. */
static void envelopes_take(struct conn *conn, struct block *block, uint32_t at, uint32_t end)
{
    for (;;) {
        at = voids_take(conn, block, at, end);
        if (at == end || conn->reader.state >= READER_DOWN)
            return;
        struct frame_header header;
        switch (cqr_frame_cut(block->data + at, end - at, frame_max(conn), &header)) {
        case FRAME_BAD:
            if (header.body_size <= end - at - PROTO_HEADER_SIZE) {
                refuse_large(conn, &header);
                return;
            }
            /* It is not large, its length is not true. */
            /* fall through */
        case FRAME_PARTIAL:
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a self-contained segment that ends inside an envelope", conn->text);
            return;
        case FRAME_WHOLE:
            break;
        }
        frame_take(conn, block, at + PROTO_HEADER_SIZE, &header);
        at += PROTO_HEADER_SIZE + header.body_size;
    }
}

/* A slice of an envelope that spans segments. */
static void slice_take(struct conn *conn, const uint8_t *data, uint32_t size)
{
    struct conn_reader *reader = &conn->reader;
    struct lane *lane = conn->lane;
    if (reader->assembly == NULL) {
        struct frame_header header;
        if (size < PROTO_HEADER_SIZE) {
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent an envelope whose first slice is smaller than its header", conn->text);
            return;
        }
        if (cqr_frame_cut(data, size, frame_max(conn), &header) == FRAME_BAD) {
            refuse_large(conn, &header);
            return;
        }
        if (!header_check(conn, &header))
            return;
        reader->assembly_size = PROTO_HEADER_SIZE + header.body_size;
        reader->assembly = cqr_block_take(lane->receive_pool, reader->assembly_size);
        if (reader->assembly == NULL) {
            cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: no memory for a reply of %u bytes", conn->text, reader->assembly_size);
            return;
        }
    }
    struct block *assembly = reader->assembly;
    if (size > reader->assembly_size - assembly->fill) {
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent more slices than its envelope has bytes", conn->text);
        return;
    }
    memcpy(assembly->data + assembly->fill, data, size);
    cqr_count(&lane->reactor_stats.copied_up_bytes, size);
    assembly->fill += size;
    if (assembly->fill < reader->assembly_size)
        return;
    struct frame_header header;
    cqr_frame_cut(assembly->data, assembly->fill, conn->frame_size_max, &header);
    frame_take(conn, assembly, PROTO_HEADER_SIZE, &header);
    cqr_reactor_references_flush(lane, assembly);
    cqr_block_release(assembly);
    reader->assembly = NULL;
}

static void segment_take(struct conn *conn, struct block *block, uint32_t at, const struct segment_header *header)
{
    struct lane *lane = conn->lane;
    if (conn->reader.assembly != NULL && header->self_contained) {
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a segment in the middle of an envelope's slices", conn->text);
        return;
    }
    if (conn->reader.handshake.compression != COMPRESSION_LZ4 || header->uncompressed_size == 0) {
        if (header->self_contained) {
            envelopes_take(conn, block, at, at + header->wire_size);
        } else {
            cqr_reactor_references_flush(lane, block);
            slice_take(conn, block->data + at, header->wire_size);
        }
        return;
    }
    cqr_reactor_references_flush(lane, block);
    struct block *unpacked = cqr_block_take(lane->receive_pool, header->uncompressed_size);
    if (unpacked == NULL) {
        cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: no memory for a segment of %u bytes", conn->text, header->uncompressed_size);
        return;
    }
    if (cqr_lz4_decompress_raw(block->data + at, header->wire_size, unpacked->data, header->uncompressed_size) != CQLRING_OK) {
        cqr_block_release(unpacked);
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a segment whose LZ4 payload cannot be unpacked", conn->text);
        return;
    }
    unpacked->fill = header->uncompressed_size;
    if (header->self_contained)
        envelopes_take(conn, unpacked, 0, unpacked->fill);
    else
        slice_take(conn, unpacked->data, unpacked->fill);
    cqr_reactor_references_flush(lane, unpacked);
    cqr_block_release(unpacked);
}

/* Everything whole in block from reader->at on. Returns how many bytes the torn rest needs in all, 0 when there is none. */
static uint32_t consume(struct conn *conn, struct block *block)
{
    struct conn_reader *reader = &conn->reader;
    for (;;) {
        if (!reader->handshake.framed)
            reader->at = voids_take(conn, block, reader->at, block->fill);
        if (reader->at == block->fill || reader->state >= READER_DOWN)
            return 0;
        const uint8_t *data = block->data + reader->at;
        uint32_t size = block->fill - reader->at;
        if (!reader->handshake.framed) {
            struct frame_header header;
            switch (cqr_frame_cut(data, size, frame_max(conn), &header)) {
            case FRAME_BAD:
                refuse_large(conn, &header);
                return 0;
            case FRAME_PARTIAL:
                if (size < PROTO_HEADER_SIZE)
                    return PROTO_HEADER_SIZE;
                return header_check(conn, &header) ? PROTO_HEADER_SIZE + header.body_size : 0;
            case FRAME_WHOLE:
                break;
            }
            uint32_t at = reader->at + PROTO_HEADER_SIZE;
            reader->at = at + header.body_size;
            frame_take(conn, block, at, &header);
            continue;
        }
        struct segment_header header;
        switch (cqr_segment_cut(data, size, reader->handshake.compression == COMPRESSION_LZ4, &header)) {
        case SEGMENT_BAD_HEADER:
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a segment whose header CRC24 does not match", conn->text);
            return 0;
        case SEGMENT_BAD_PAYLOAD:
            cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s sent a segment whose payload CRC32 does not match", conn->text);
            return 0;
        case SEGMENT_PARTIAL:
            return header.header_size == 0 ? CQR_SEGMENT_LZ4_HEADER_SIZE : header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
        case SEGMENT_WHOLE:
            break;
        }
        uint32_t at = reader->at + header.header_size;
        reader->at = at + header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
        segment_take(conn, block, at, &header);
    }
}

/* ---- reading ---- */

/* The block to receive into, with room; the torn rest is moved only when its block has no room for the whole of it. */
static struct block *receive_room(struct conn *conn)
{
    struct lane *lane = conn->lane;
    struct conn_reader *reader = &conn->reader;
    if (reader->block != NULL)
        return reader->block;
    if (lane->receive_block != NULL && lane->receive_block->size - lane->receive_block->fill < RECEIVE_ROOM_MIN) {
        cqr_block_release(lane->receive_block);
        lane->receive_block = NULL;
    }
    if (lane->receive_block == NULL)
        lane->receive_block = cqr_block_take(lane->receive_pool, RECEIVE_BLOCK_SIZE);
    if (lane->receive_block != NULL)
        reader->at = lane->receive_block->fill;
    return lane->receive_block;
}

/* After a read: who keeps the block. */
static bool receive_settle(struct conn *conn, struct block *block, uint32_t need)
{
    struct lane *lane = conn->lane;
    struct conn_reader *reader = &conn->reader;
    cqr_reactor_references_flush(lane, block);
    if (reader->at == block->fill) {
        reader->block = NULL;
        if (lane->receive_block != NULL && lane->receive_block != block) {
            cqr_block_release(block);
            return true;
        }
        if (block->size > RECEIVE_BLOCK_SIZE) { /* made for one large frame: not to be kept */
            lane->receive_block = NULL;
            cqr_block_release(block);
            return true;
        }
        lane->receive_block = block;
        if (cqr_block_is_unshared(block))
            block->fill = 0;
        return true;
    }
    if (lane->receive_block == block)
        lane->receive_block = NULL;
    reader->block = block;
    uint32_t torn = block->fill - reader->at;
    if (block->size - reader->at >= need && block->size - block->fill > 0)
        return true;
    struct block *larger = cqr_block_take(lane->receive_pool, need > RECEIVE_BLOCK_SIZE ? need : RECEIVE_BLOCK_SIZE);
    if (larger == NULL) {
        cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: no memory for a reply of %u bytes", conn->text, need);
        return false;
    }
    memcpy(larger->data, block->data + reader->at, torn);
    cqr_count(&lane->reactor_stats.copied_up_bytes, torn);
    larger->fill = torn;
    cqr_block_release(block);
    reader->block = larger;
    reader->at = 0;
    return true;
}

void cqr_frames_read(struct conn *conn)
{
    struct lane *lane = conn->lane;
    struct conn_reader *reader = &conn->reader;
    for (;;) {
        struct block *block = receive_room(conn);
        if (block == NULL) {
            cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: no memory to receive into", conn->text);
            return;
        }
        uint32_t room = block->size - block->fill, size = 0;
        enum transport_result result = cqr_transport_recv(&conn->transport, block->data + block->fill, room, &size);
        cqr_count(&lane->reactor_stats.recvs, 1);
        if (result == TRANSPORT_OK) {
            cqr_count(&lane->reactor_stats.recv_bytes, size);
            /* acquire: pairs with the submitter's release when the connection came up */
            struct node_stats *stats = atomic_load_explicit(&conn->stats, memory_order_acquire);
            if (stats != NULL) {
                cqr_count(&stats->recvs, 1);
                cqr_count(&stats->recv_bytes, size);
            }
            atomic_store_explicit(&conn->reads, atomic_load_explicit(&conn->reads, memory_order_relaxed) + 1, memory_order_relaxed);
            block->fill += size;
            uint32_t need = consume(conn, block);
            if (reader->state >= READER_DOWN) {
                cqr_reactor_references_flush(lane, block);
                if (lane->receive_block == block && cqr_block_is_unshared(block))
                    block->fill = 0;
                return;
            }
            if (!receive_settle(conn, block, need))
                return;
            if (conn->tls == NULL && size < room)
                return; /* all there was; level-triggered readiness tells of more */
            continue;
        }
        if (result == TRANSPORT_AGAIN)
            break;
        bool is_mute = (result == TRANSPORT_END || conn->transport.error == ECONNRESET) && reader->state == READER_STARTUP &&
                       reader->handshake.state == HANDSHAKE_AWAIT_SUPPORTED;
        if (is_mute && conn->config->version > conn->config->version_min)
            conn->version_perhaps = (uint8_t)(conn->config->version - 1);
        if (is_mute && conn->tls == NULL)
            cqr_reader_fail(conn, CQLRING_LOST, "%s closed the connection without an answer, as nodes do that are being stopped, or that want TLS", conn->text);
        else if (result == TRANSPORT_END)
            cqr_reader_fail(conn, CQLRING_LOST, "%s closed the connection%s", conn->text, reader->state == READER_STARTUP ? " during startup" : "");
        else
            cqr_reader_fail(conn, conn->transport.error != 0 ? CQLRING_LOST : CQLRING_TLS, "%s: %s", conn->text, conn->transport.message);
        return;
    }
    if (reader->state == READER_UP && atomic_exchange_explicit(&conn->transport.wants_write, false, memory_order_acq_rel))
        cqr_reactor_stage(lane, COMPLETION_WRITABLE, conn);
}
