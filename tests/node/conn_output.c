/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's output. A reply is made in conn->reply; delivering it applies the fault plan, then
   it is held back (delay) or joins conn->pack; a flush frames the pack (v5: as few segments as
   possible) onto conn->wire. One flush per input, or one per `trickle` replies, then each with a
   mark so that the server writes it by itself. */
#include "tests/node/cluster.h"

#include "cql/frame.h"
#include "cql/segment.h"

static void heap_push(struct node_conn *conn, struct held item)
{
    if (conn->held_count == conn->held_capacity) {
        conn->held_capacity = conn->held_capacity == 0 ? 64 : conn->held_capacity * 2;
        conn->held = node_realloc(conn->held, conn->held_capacity * sizeof *conn->held);
    }
    uint32_t at = conn->held_count++;
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        struct held *above = &conn->held[parent];
        if (above->due < item.due || (above->due == item.due && above->number < item.number))
            break;
        conn->held[at] = *above;
        at = parent;
    }
    conn->held[at] = item;
}

static struct held heap_pop(struct node_conn *conn)
{
    struct held first = conn->held[0], last = conn->held[--conn->held_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= conn->held_count)
            break;
        const struct held *held = conn->held;
        if (child + 1 < conn->held_count && (held[child + 1].due < held[child].due ||
                                             (held[child + 1].due == held[child].due &&
                                              held[child + 1].number < held[child].number)))
            ++child;
        if (last.due < held[child].due ||
            (last.due == held[child].due && last.number < held[child].number))
            break;
        conn->held[at] = conn->held[child];
        at = child;
    }
    conn->held[at] = last;
    return first;
}

static void hold(struct node_conn *conn, const void *envelope, size_t size, int64_t delay_us)
{
    struct held item = {.due = conn->cluster->now_us + delay_us,
                        .number = conn->held_number++,
                        .size = (uint32_t)size,
                        .envelope = node_alloc(size)};
    memcpy(item.envelope, envelope, size);
    conn->held_bytes += size;
    heap_push(conn, item);
}

void node_conn_push(struct node_conn *conn, const void *envelope, size_t size)
{
    if (conn->closed)
        return;
    out_raw(&conn->pack, envelope, size);
    ++conn->pack_count;
    if (conn->framed_in &&
        !conn->framed_out) { /* v5: this is STARTUP's answer, the last bare envelope */
        node_conn_flush(conn, conn->cluster->options.trickle > 0);
        conn->framed_out = true;
        return;
    }
    uint32_t trickle = conn->cluster->options.trickle;
    if (trickle > 0 && conn->pack_count >= trickle)
        node_conn_flush(conn, true);
}

static void flip_bit(struct node_conn *conn, size_t from, size_t size)
{
    if (size == 0)
        return;
    uint64_t bit = node_random(&conn->cluster->random) % (size * 8);
    conn->wire.data[from + bit / 8] ^= (uint8_t)(1u << (bit & 7));
}

/* A fault on the segment that starts at `at`. */
static void flip_segment(struct node_conn *conn, size_t at)
{
    size_t header = conn->lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    size_t payload = conn->wire.size - at - header - CQR_SEGMENT_TRAILER_SIZE;
    switch (conn->flip) {
    case NODE_FAULT_FLIP_HEADER: flip_bit(conn, at, header - 3); break;
    case NODE_FAULT_FLIP_HEADER_CRC: flip_bit(conn, at + header - 3, 3); break;
    case NODE_FAULT_FLIP_PAYLOAD: flip_bit(conn, at + header, payload); break;
    default: flip_bit(conn, at + header + payload, CQR_SEGMENT_TRAILER_SIZE); break;
    }
    conn->flip_pending = false;
}

static void put_segment(struct node_conn *conn, const uint8_t *payload, size_t size,
                        bool self_contained)
{
    struct out *wire = &conn->wire;
    size_t at = wire->size;
    if (!conn->lz4) {
        uint8_t *segment = out_room(wire,
                                    size + CQR_SEGMENT_HEADER_SIZE + CQR_SEGMENT_TRAILER_SIZE);
        memcpy(segment + CQR_SEGMENT_HEADER_SIZE, payload, size);
        (void)cqr_segment_seal(segment, (uint32_t)size, self_contained);
    } else {
        uint32_t bound = cqr_compress_bound((uint32_t)size);
        uint8_t *segment = out_room(wire,
                                    bound + CQR_SEGMENT_LZ4_HEADER_SIZE + CQR_SEGMENT_TRAILER_SIZE);
        uint32_t packed = cqr_lz4_compress_raw(conn->cluster->compressor, payload, (uint32_t)size,
                                               segment + CQR_SEGMENT_LZ4_HEADER_SIZE, bound);
        uint32_t uncompressed = (uint32_t)size;
        if (packed == 0 || packed >= size) {
            memcpy(segment + CQR_SEGMENT_LZ4_HEADER_SIZE, payload, size);
            packed = (uint32_t)size;
            uncompressed = 0;
        }
        wire->size = at + cqr_segment_seal_lz4(segment, packed, uncompressed, self_contained);
    }
    if (conn->flip_pending)
        flip_segment(conn, at);
}

static void frame_pack(struct node_conn *conn)
{
    const uint8_t *data = conn->pack.data;
    size_t size = conn->pack.size, from = 0, at = 0;
    if (!conn->framed_out) {
        out_raw(&conn->wire, data, size);
        return;
    }
    if (size <= PROTO_SEGMENT_PAYLOAD_MAX) {
        put_segment(conn, data, size, true);
        return;
    }
    while (at < size) {
        size_t envelope = PROTO_HEADER_SIZE + (size_t)cqr_load_u32(data + at + 5);
        if (envelope > size - at)
            envelope = size - at; /* a fault has lied about its length */
        if (at + envelope - from > PROTO_SEGMENT_PAYLOAD_MAX && at > from) {
            put_segment(conn, data + from, at - from, true);
            from = at;
        }
        if (envelope > PROTO_SEGMENT_PAYLOAD_MAX) {
            for (size_t slice = 0; slice < envelope; slice += PROTO_SEGMENT_PAYLOAD_MAX)
                put_segment(conn, data + at + slice,
                            envelope - slice < PROTO_SEGMENT_PAYLOAD_MAX
                                ? envelope - slice
                                : PROTO_SEGMENT_PAYLOAD_MAX,
                            false);
            from = at + envelope;
        }
        at += envelope;
    }
    if (at > from)
        put_segment(conn, data + from, at - from, true);
}

void node_conn_flush(struct node_conn *conn, bool own_write)
{
    if (conn->pack.size == 0)
        return;
    frame_pack(conn);
    conn->pack.size = 0;
    conn->pack_count = 0;
    if (conn->pack.capacity > (4 << 20))
        node_out_fini(&conn->pack);
    if (!own_write)
        return;
    if (conn->mark_count == conn->mark_capacity) {
        conn->mark_capacity = conn->mark_capacity == 0 ? 64 : conn->mark_capacity * 2;
        conn->marks = node_realloc(conn->marks, conn->mark_capacity * sizeof *conn->marks);
    }
    conn->marks[conn->mark_count++] = conn->wire.size;
}

/* --- delivering, with faults ------------------------------------------------------------------ */

static void put_garbage(struct node_conn *conn, size_t size)
{
    for (size_t i = 0; i < size; ++i)
        out_u8(&conn->wire, (uint8_t)node_random(&conn->cluster->random));
}

static void deliver_plain(struct node_conn *conn, const struct strike *strike)
{
    const struct node_state *node = &conn->cluster->nodes[conn->node];
    int64_t delay = 0;
    if (node->delay_us > 0 || node->jitter_us > 0) {
        int64_t span = 2 * (int64_t)node->jitter_us + 1;
        delay = (int64_t)node->delay_us - (int64_t)node->jitter_us +
                (int64_t)(node_random(&conn->cluster->random) % (uint64_t)span);
    }
    delay += strike->service_us;
    if (strike->late != NULL)
        delay += strike->late->plan.delay_us;
    if (delay > 0)
        hold(conn, conn->reply.data, conn->reply.size, delay);
    else
        node_conn_push(conn, conn->reply.data, conn->reply.size);
}

/* The reply at once, its bytes at known places in the wire: for faults on bytes. */
static size_t deliver_alone(struct node_conn *conn)
{
    node_conn_flush(conn, true);
    size_t from = conn->wire.size;
    node_conn_push(conn, conn->reply.data, conn->reply.size);
    node_conn_flush(conn, true);
    return from;
}

/* true: the fault took care of the reply. */
static bool deliver_fault(struct node_conn *conn, const struct fault *fault)
{
    size_t from;
    switch (fault->plan.kind) {
    case NODE_FAULT_DROP:
    case NODE_FAULT_IGNORE: return true;
    case NODE_FAULT_CLOSE:
        node_conn_flush(conn, true);
        conn->closing = true;
        return true;
    case NODE_FAULT_ANSWER_CLOSE:
        (void)deliver_alone(conn);
        conn->closing = true;
        return true;
    case NODE_FAULT_HALF:
        from = deliver_alone(conn);
        conn->wire.size = from + (conn->wire.size - from) / 2;
        conn->marks[conn->mark_count - 1] = conn->wire.size;
        conn->closing = true;
        return true;
    case NODE_FAULT_GARBAGE:
        node_conn_flush(conn, true);
        put_garbage(conn, 64);
        return true;
    case NODE_FAULT_FLIP_HEADER:
    case NODE_FAULT_FLIP_HEADER_CRC:
    case NODE_FAULT_FLIP_PAYLOAD:
    case NODE_FAULT_FLIP_PAYLOAD_CRC:
        if (conn->framed_out) {
            node_conn_flush(conn, true);
            conn->flip = fault->plan.kind;
            conn->flip_pending = true;
            (void)deliver_alone(conn);
            return true;
        }
        from = deliver_alone(conn);
        if (fault->plan.kind == NODE_FAULT_FLIP_HEADER ||
            fault->plan.kind == NODE_FAULT_FLIP_HEADER_CRC)
            flip_bit(conn, from, PROTO_HEADER_SIZE);
        else
            flip_bit(conn, from + PROTO_HEADER_SIZE, conn->wire.size - from - PROTO_HEADER_SIZE);
        return true;
    case NODE_FAULT_TWICE: node_conn_push(conn, conn->reply.data, conn->reply.size); return false;
    case NODE_FAULT_WRONG_STREAM: cqr_store_u16(conn->reply.data + 2, 0x7FFE); return false;
    case NODE_FAULT_OPCODE: conn->reply.data[4] = (uint8_t)fault->plan.code; return false;
    case NODE_FAULT_REQUEST: conn->reply.data[0] &= 0x7F; return false;
    default: return false;
    }
}

void node_conn_deliver(struct node_conn *conn, const struct strike *strike)
{
    struct node_state *node = &conn->cluster->nodes[conn->node];
    if (node->silent || conn->silent || conn->closed)
        return;
    if (strike->event != NULL) {
        static const char body[] = "\0\016PLANET_ALIGNED\0\003NOW";
        enum { BODY_SIZE = sizeof body - 1 };
        uint8_t version_byte = (uint8_t)(0x80 | conn->dialect.version);
        uint8_t envelope[PROTO_HEADER_SIZE + BODY_SIZE] = {version_byte, 0, 0xFF, 0xFF,
                                                           OPCODE_EVENT};
        cqr_store_u32(envelope + 5, BODY_SIZE);
        memcpy(envelope + PROTO_HEADER_SIZE, body, BODY_SIZE);
        node_conn_push(conn, envelope, sizeof envelope);
    }
    if (strike->fault != NULL && deliver_fault(conn, strike->fault))
        return;
    ++node->counters.replies;
    ++conn->replies;
    deliver_plain(conn, strike);
}

/* --- output ----------------------------------------------------------------------------------- */

void node_conn_turn_locked(struct node_conn *conn)
{
    bool any = false;
    while (conn->held_count > 0 && conn->held[0].due <= conn->cluster->now_us) {
        struct held item = heap_pop(conn);
        conn->held_bytes -= item.size;
        node_conn_push(conn, item.envelope, item.size);
        node_free(item.envelope);
        any = true;
    }
    if (any)
        node_conn_flush(conn, conn->cluster->options.trickle > 0);
}

cqlring_bytes node_conn_output_locked(struct node_conn *conn)
{
    size_t end = conn->mark_first < conn->mark_count ? conn->marks[conn->mark_first]
                                                     : conn->wire.size;
    size_t size = end - conn->wire_at;
    return slice_of(conn->wire.data + conn->wire_at, size > (1 << 20) ? (1 << 20) : size);
}

void node_conn_consumed_locked(struct node_conn *conn, uint32_t size)
{
    struct node_counters *counters = conn_counters(conn);
    counters->bytes_out += size;
    conn->bytes_out += size;
    ++counters->writes;
    conn->wire_at += size;
    while (conn->mark_first < conn->mark_count && conn->marks[conn->mark_first] <= conn->wire_at)
        ++conn->mark_first;
    if (conn->wire_at == conn->wire.size) {
        conn->wire_at = conn->wire.size = 0;
        conn->mark_first = conn->mark_count = 0;
        if (conn->wire.capacity > (4 << 20))
            node_out_fini(&conn->wire);
    } else if (conn->wire_at > (1 << 20) && conn->wire_at > conn->wire.size / 2) {
        memmove(conn->wire.data, conn->wire.data + conn->wire_at, conn->wire.size - conn->wire_at);
        for (uint32_t i = conn->mark_first; i < conn->mark_count; ++i)
            conn->marks[i - conn->mark_first] = conn->marks[i] - conn->wire_at;
        conn->mark_count -= conn->mark_first;
        conn->mark_first = 0;
        conn->wire.size -= conn->wire_at;
        conn->wire_at = 0;
    }
}

bool node_conn_is_paused_locked(const struct node_conn *conn)
{
    const struct node_state *node = &conn->cluster->nodes[conn->node];
    return node->frozen_until > conn->cluster->now_us ||
           conn->wire.size - conn->wire_at + conn->held_bytes > conn->cluster->options.output_max;
}
