/* SPDX-License-Identifier: Apache-2.0 */
/* A connection as a machine: bytes in, envelopes cut, replies packed, framed and handed out.

   Out: a reply is made in conn->reply; delivering it applies the fault plan, then it is held back (delay) or joins
   conn->pack; a flush frames the pack (v5: as few segments as possible) onto conn->wire. One flush per input, or one per
   `trickle` replies, then each with a mark so that the server writes it by itself. */
#include "tests/node/cluster.h"

#include "cql/frame.h"
#include "cql/segment.h"

/* --- opening and closing -------------------------------------------------------------------------------------------------- */

struct node_conn *node_conn_open_locked(struct node_cluster *cluster, uint32_t node, uint32_t shard)
{
    if (!cluster->engine.members[node].up || node_fault_refuses(cluster, node))
        return NULL;
    struct node_counters *counters = &cluster->nodes[node].counters;
    ++counters->connections;
    if (cluster->conn_count >= cluster->options.connections_max) {
        ++counters->refused;
        return NULL;
    }
    struct node_conn *conn = node_zalloc(sizeof *conn);
    conn->cluster = cluster;
    conn->node = node;
    conn->shard = shard;
    conn->number = ++cluster->conn_number;
    conn->previous = cluster->conns_last;
    if (conn->previous != NULL)
        conn->previous->next = conn;
    else
        cluster->conns = conn;
    cluster->conns_last = conn;
    ++cluster->conn_count;
    ++counters->connections_open;
    if (node_fault_accept(cluster, node, NODE_FAULT_ACCEPT_CLOSE) != NULL)
        conn->closing = conn->closed = true;
    else if (node_fault_accept(cluster, node, NODE_FAULT_ACCEPT_SILENT) != NULL)
        conn->silent = true;
    return conn;
}

void node_conn_close_locked(struct node_conn *conn)
{
    struct node_cluster *cluster = conn->cluster;
    if (conn->previous != NULL)
        conn->previous->next = conn->next;
    else
        cluster->conns = conn->next;
    if (conn->next != NULL)
        conn->next->previous = conn->previous;
    else
        cluster->conns_last = conn->previous;
    --cluster->conn_count;
    --conn_counters(conn)->connections_open;
    for (uint32_t i = 0; i < conn->held_count; ++i)
        node_free(conn->held[i].envelope);
    node_free(conn->held);
    node_free(conn->marks);
    node_out_fini(&conn->in);
    node_out_fini(&conn->assembly);
    node_out_fini(&conn->reply);
    node_out_fini(&conn->pack);
    node_out_fini(&conn->wire);
    node_arena_fini(&conn->arena);
    node_free(conn);
}

/* --- input ---------------------------------------------------------------------------------------------------------------- */

static uint8_t *scratch_room(struct node_cluster *cluster, size_t size)
{
    if (cluster->scratch_size < size) {
        node_free(cluster->scratch);
        cluster->scratch = node_alloc(size);
        cluster->scratch_size = size;
    }
    return cluster->scratch;
}

/* One whole envelope. */
static void take_envelope(struct node_conn *conn, const struct frame_header *header, const uint8_t *body)
{
    cqlring_bytes bytes = slice_of(body, header->body_size);
    bool compressed = (header->flags & FLAG_COMPRESSED) != 0 && conn->dialect.version < PROTO_V5;
    if (compressed) {
        uint32_t size;
        ++conn_counters(conn)->compressed_in;
        if (!conn->lz4 || cqr_lz4_body_size(body, header->body_size, conn->cluster->options.frame_size_max, &size) != CQLRING_OK) {
            node_reply_error(conn, header->stream, ERROR_PROTOCOL, "Compressed frame without, or with a wrong, compression");
            conn->closing = true;
            return;
        }
        uint8_t *target = scratch_room(conn->cluster, (size_t)size + 1);
        if (cqr_lz4_decompress_body(body, header->body_size, target, size) != CQLRING_OK) {
            node_reply_error(conn, header->stream, ERROR_PROTOCOL, "Compressed frame that cannot be read");
            conn->closing = true;
            return;
        }
        bytes = slice_of(target, size);
    }
    node_handle(conn, header->flags, header->stream, header->opcode, bytes, compressed);
}

/* Envelopes at the front of data. Returns how many bytes were used; less than size: the last is torn, or the framing
   changed behind STARTUP. */
static size_t take_envelopes(struct node_conn *conn, const uint8_t *data, size_t size)
{
    size_t used = 0;
    bool framed = conn->framed_in;
    while (!conn->closing && used < size && framed == conn->framed_in) {
        const uint8_t *at = data + used;
        size_t left = size - used;
        if (conn->skip > 0) {
            size_t n = conn->skip < left ? conn->skip : left;
            conn->skip -= n;
            used += n;
            continue;
        }
        uint8_t version = at[0] & 0x7F;
        const struct node_options *options = &conn->cluster->options;
        bool unknown = version > options->version_max || version < options->version_min || (at[0] & 0x80) != 0;
        if (unknown && left >= (version < 3 ? 8 : PROTO_HEADER_SIZE)) {
            node_refuse_version(conn, at[0]);
            return size;
        }
        struct frame_header header;
        enum frame_cut cut = cqr_frame_cut(at, left > UINT32_MAX ? UINT32_MAX : (uint32_t)left, options->frame_size_max, &header);
        if (cut == FRAME_PARTIAL)
            return used;
        if (conn->dialect.version == 0)
            conn->dialect.version = header.version;
        if (cut == FRAME_BAD) {
            node_reply_error(conn, header.stream, ERROR_INVALID, "Request is too big: length exceeds maximum allowed length.");
            conn->skip = (size_t)header.body_size + PROTO_HEADER_SIZE;
            conn->closing = header.body_size > PROTO_BODY_MAX;
            continue;
        }
        if (header.version != conn->dialect.version) {
            node_reply_error(conn, header.stream, ERROR_PROTOCOL, "Invalid message version. Got another than the connection was opened with");
            conn->closing = true;
            return size;
        }
        used += PROTO_HEADER_SIZE + header.body_size;
        take_envelope(conn, &header, at + PROTO_HEADER_SIZE);
    }
    return conn->closing ? size : used;
}

/* The payload of a v5 segment. */
static void take_payload(struct node_conn *conn, const uint8_t *payload, size_t size, bool self_contained)
{
    if (self_contained && conn->assembly.size == 0) {
        if (take_envelopes(conn, payload, size) < size)
            conn->closing = conn->closed = true; /* a torn envelope in a self-contained segment */
        return;
    }
    if (self_contained || conn->assembly.size + size > conn->cluster->options.frame_size_max + (size_t)PROTO_SEGMENT_PAYLOAD_MAX) {
        conn->closing = conn->closed = true;
        return;
    }
    out_raw(&conn->assembly, payload, size);
    struct out whole = conn->assembly;
    struct frame_header header;
    if (cqr_frame_cut(whole.data, (uint32_t)whole.size, UINT32_MAX, &header) != FRAME_WHOLE)
        return;
    conn->assembly = (struct out){0};
    if (take_envelopes(conn, whole.data, whole.size) < whole.size)
        conn->closing = conn->closed = true;
    node_out_fini(&whole);
}

static size_t take_segments(struct node_conn *conn, const uint8_t *data, size_t size)
{
    size_t used = 0;
    while (!conn->closing && used < size) {
        struct segment_header header;
        uint32_t left = size - used > CQR_SEGMENT_MAX ? CQR_SEGMENT_MAX : (uint32_t)(size - used);
        enum segment_cut cut = cqr_segment_cut(data + used, left, conn->lz4, &header);
        if (cut == SEGMENT_PARTIAL)
            return used;
        if (cut != SEGMENT_WHOLE) { /* nothing behind it can be trusted */
            conn->closing = conn->closed = true;
            return size;
        }
        ++conn_counters(conn)->segments_in;
        const uint8_t *payload = data + used + header.header_size;
        size_t payload_size = header.wire_size;
        used += header.header_size + (size_t)header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
        uint8_t *copy = NULL;
        if (conn->lz4 && header.uncompressed_size > 0) {
            ++conn_counters(conn)->compressed_in;
            copy = node_alloc(header.uncompressed_size); /* not the scratch: requests inside may use that */
            if (cqr_lz4_decompress_raw(payload, header.wire_size, copy, header.uncompressed_size) != CQLRING_OK) {
                node_free(copy);
                conn->closing = conn->closed = true;
                return size;
            }
            payload = copy;
            payload_size = header.uncompressed_size;
        }
        take_payload(conn, payload, payload_size, header.self_contained);
        node_free(copy);
    }
    return conn->closing ? size : used;
}

static size_t take(struct node_conn *conn, const uint8_t *data, size_t size)
{
    size_t used = 0;
    for (;;) {
        bool framed = conn->framed_in;
        used += framed ? take_segments(conn, data + used, size - used) : take_envelopes(conn, data + used, size - used);
        if (conn->framed_in == framed || used == size)
            return used;
    }
}

void node_conn_input_locked(struct node_conn *conn, const uint8_t *data, size_t size)
{
    struct node_counters *counters = conn_counters(conn);
    counters->bytes_in += size;
    conn->bytes_in += size;
    ++counters->reads;
    if (conn->closing || conn->silent)
        return;
    if (conn->in.size > 0) {
        out_raw(&conn->in, data, size);
        /* Handed over whole, so that what is taken while looking at it cannot move it. */
        struct out in = conn->in;
        conn->in = (struct out){0};
        size_t used = take(conn, in.data, in.size);
        if (used > 0)
            memmove(in.data, in.data + used, in.size - used);
        in.size -= used;
        conn->in = in;
    } else {
        size_t used = take(conn, data, size);
        if (used < size)
            out_raw(&conn->in, data + used, size - used);
    }
    if (conn->in.size == 0 && conn->in.capacity > (1 << 20))
        node_out_fini(&conn->in);
    node_conn_flush(conn, conn->cluster->options.trickle > 0);
    node_events_send(conn->cluster);
}

/* --- replies: held back, packed, framed ----------------------------------------------------------------------------------- */

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
        if (child + 1 < conn->held_count && (held[child + 1].due < held[child].due || (held[child + 1].due == held[child].due && held[child + 1].number < held[child].number)))
            ++child;
        if (last.due < held[child].due || (last.due == held[child].due && last.number < held[child].number))
            break;
        conn->held[at] = conn->held[child];
        at = child;
    }
    conn->held[at] = last;
    return first;
}

static void hold(struct node_conn *conn, const void *envelope, size_t size, int64_t delay_us)
{
    struct held item = {.due = conn->cluster->now_us + delay_us, .number = conn->held_number++, .size = (uint32_t)size, .envelope = node_alloc(size)};
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
    if (conn->framed_in && !conn->framed_out) { /* v5: this is STARTUP's answer, the last bare envelope */
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

static void put_segment(struct node_conn *conn, const uint8_t *payload, size_t size, bool self_contained)
{
    struct out *wire = &conn->wire;
    size_t at = wire->size;
    if (!conn->lz4) {
        uint8_t *segment = out_room(wire, size + CQR_SEGMENT_HEADER_SIZE + CQR_SEGMENT_TRAILER_SIZE);
        memcpy(segment + CQR_SEGMENT_HEADER_SIZE, payload, size);
        (void)cqr_segment_seal(segment, (uint32_t)size, self_contained);
    } else {
        uint32_t bound = cqr_compress_bound((uint32_t)size);
        uint8_t *segment = out_room(wire, bound + CQR_SEGMENT_LZ4_HEADER_SIZE + CQR_SEGMENT_TRAILER_SIZE);
        uint32_t packed = cqr_lz4_compress_raw(conn->cluster->compressor, payload, (uint32_t)size, segment + CQR_SEGMENT_LZ4_HEADER_SIZE, bound);
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
                put_segment(conn, data + at + slice, envelope - slice < PROTO_SEGMENT_PAYLOAD_MAX ? envelope - slice : PROTO_SEGMENT_PAYLOAD_MAX, false);
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

/* --- delivering, with faults ------------------------------------------------------------------------------------------------ */

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
        delay = (int64_t)node->delay_us - (int64_t)node->jitter_us + (int64_t)(node_random(&conn->cluster->random) % (uint64_t)span);
    }
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
        if (fault->plan.kind == NODE_FAULT_FLIP_HEADER || fault->plan.kind == NODE_FAULT_FLIP_HEADER_CRC)
            flip_bit(conn, from, PROTO_HEADER_SIZE);
        else
            flip_bit(conn, from + PROTO_HEADER_SIZE, conn->wire.size - from - PROTO_HEADER_SIZE);
        return true;
    case NODE_FAULT_TWICE:
        node_conn_push(conn, conn->reply.data, conn->reply.size);
        return false;
    case NODE_FAULT_WRONG_STREAM:
        cqr_store_u16(conn->reply.data + 2, 0x7FFE);
        return false;
    case NODE_FAULT_OPCODE:
        conn->reply.data[4] = (uint8_t)fault->plan.code;
        return false;
    case NODE_FAULT_REQUEST:
        conn->reply.data[0] &= 0x7F;
        return false;
    default: return false;
    }
}

void node_conn_deliver(struct node_conn *conn, const struct strike *strike)
{
    struct node_state *node = &conn->cluster->nodes[conn->node];
    if (node->silent || conn->silent || conn->closed)
        return;
    if (strike->event != NULL) {
        static const uint8_t body[] = {0, 15, 'P', 'L', 'A', 'N', 'E', 'T', '_', 'A', 'L', 'I', 'G', 'N', 'E', 'D', '!', 0, 3, 'N', 'O', 'W'};
        uint8_t envelope[PROTO_HEADER_SIZE + sizeof body] = {(uint8_t)(0x80 | conn->dialect.version), 0, 0xFF, 0xFF, OPCODE_EVENT, 0, 0, 0, sizeof body};
        memcpy(envelope + PROTO_HEADER_SIZE, body, sizeof body);
        node_conn_push(conn, envelope, sizeof envelope);
    }
    if (strike->fault != NULL && deliver_fault(conn, strike->fault))
        return;
    ++node->counters.replies;
    ++conn->replies;
    deliver_plain(conn, strike);
}

/* --- output ------------------------------------------------------------------------------------------------------------------- */

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
    size_t end = conn->mark_first < conn->mark_count ? conn->marks[conn->mark_first] : conn->wire.size;
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
    return node->frozen_until > conn->cluster->now_us || conn->wire.size - conn->wire_at + conn->held_bytes > conn->cluster->options.output_max;
}
