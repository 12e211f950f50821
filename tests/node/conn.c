/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life, and its input: bytes to envelopes, one after the other. Output is in
   conn_output.c. */
#include "tests/node/cluster.h"

#include "cql/frame.h"
#include "cql/segment.h"

/* --- opening and closing ---------------------------------------------------------------------- */

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

/* --- input ------------------------------------------------------------------------------------ */

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
static void take_envelope(struct node_conn *conn, const struct frame_header *header,
                          const uint8_t *body)
{
    cqlring_bytes bytes = slice_of(body, header->body_size);
    bool compressed = (header->flags & FLAG_COMPRESSED) != 0 && conn->dialect.version < PROTO_V5;
    if (compressed) {
        uint32_t size;
        ++conn_counters(conn)->compressed_in;
        if (cqr_body_size(conn->packs, body, header->body_size,
                          conn->cluster->options.frame_size_max, &size) != CQLRING_OK) {
            node_reply_error(conn, header->stream, ERROR_PROTOCOL,
                             "Compressed frame without, or with a wrong, compression");
            conn->closing = true;
            return;
        }
        uint8_t *target = scratch_room(conn->cluster, (size_t)size + 1);
        if (cqr_body_decompress(conn->packs, body, header->body_size, target, size) != CQLRING_OK) {
            node_reply_error(conn, header->stream, ERROR_PROTOCOL,
                             "Compressed frame that cannot be read");
            conn->closing = true;
            return;
        }
        bytes = slice_of(target, size);
    }
    node_handle(conn, header->flags, header->stream, header->opcode, bytes, compressed);
}

/* Envelopes at the front of data. Returns how many bytes were used; less than size: the last is
   torn, or the framing changed behind STARTUP. */
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
        bool unknown = version > options->version_max || version < options->version_min ||
                       (at[0] & 0x80) != 0;
        if (unknown && left >= (version < 3 ? 8 : PROTO_HEADER_SIZE)) {
            node_refuse_version(conn, at[0]);
            return size;
        }
        struct frame_header header;
        enum frame_cut cut = cqr_frame_cut(at, left > UINT32_MAX ? UINT32_MAX : (uint32_t)left,
                                           options->frame_size_max, &header);
        if (cut == FRAME_PARTIAL)
            return used;
        if (conn->dialect.version == 0)
            conn->dialect.version = header.version;
        if (cut == FRAME_BAD) {
            node_reply_error(conn, header.stream, ERROR_INVALID,
                             "Request is too big: length exceeds maximum allowed length.");
            conn->skip = (size_t)header.body_size + PROTO_HEADER_SIZE;
            conn->closing = header.body_size > PROTO_BODY_MAX;
            continue;
        }
        if (header.version != conn->dialect.version) {
            node_reply_error(
                conn, header.stream, ERROR_PROTOCOL,
                "Invalid message version. Got another than the connection was opened with");
            conn->closing = true;
            return size;
        }
        used += PROTO_HEADER_SIZE + header.body_size;
        take_envelope(conn, &header, at + PROTO_HEADER_SIZE);
    }
    return conn->closing ? size : used;
}

/* The payload of a v5 segment. */
static void take_payload(struct node_conn *conn, const uint8_t *payload, size_t size,
                         bool self_contained)
{
    if (self_contained && conn->assembly.size == 0) {
        if (take_envelopes(conn, payload, size) < size)
            conn->closing = conn->closed = true; /* a torn envelope in a self-contained segment */
        return;
    }
    if (self_contained || conn->assembly.size + size > conn->cluster->options.frame_size_max +
                                                           (size_t)PROTO_SEGMENT_PAYLOAD_MAX) {
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
            copy = node_alloc(
                header.uncompressed_size); /* not the scratch: requests inside may use that */
            if (cqr_lz4_decompress_raw(payload, header.wire_size, copy, header.uncompressed_size) !=
                CQLRING_OK) {
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
        used += framed ? take_segments(conn, data + used, size - used)
                       : take_envelopes(conn, data + used, size - used);
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
