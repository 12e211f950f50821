/* SPDX-License-Identifier: Apache-2.0 */

/* The reactor's half of a connection, in its states: connect, TLS, startup, up, the end. Here are the events of its socket and the
   submitter's commands; what is received, and what becomes of it, is in conn_frames.c. Reactor. */

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cql/segment.h"
#include "driver/lane.h"
#include "driver/session.h"
#include "driver/shards.h"

enum { STARTUP_ROOM = 16 << 10 };

static void watch(struct conn *conn, uint32_t events)
{
    struct conn_reader *reader = &conn->reader;
    struct poller *poller = conn->lane->poller;
    if (!reader->watching) {
        if (poller->call->add(poller, conn->transport.fd, events, conn) != CQLRING_OK) {
            cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: cannot watch the socket", conn->text);
            return;
        }
        reader->watching = true;
    } else if (reader->watch_events != events) {
        poller->call->modify(poller, conn->transport.fd, events);
    }
    reader->watch_events = events;
}

static void block_drop(struct conn *conn)
{
    struct conn_reader *reader = &conn->reader;
    if (reader->block != NULL) {
        cqr_reactor_references_flush(conn->lane, reader->block);
        cqr_block_release(reader->block);
    }
    cqr_block_release(reader->assembly);
    reader->block = reader->assembly = NULL;
    cqr_mem_free(reader->startup_out);
    reader->startup_out = NULL;
}

static void down(struct conn *conn)
{
    struct conn_reader *reader = &conn->reader;
    if (reader->state >= READER_DOWN)
        return;
    reader->state = READER_DOWN;
    if (reader->watching) {
        conn->lane->poller->call->remove(conn->lane->poller, conn->transport.fd);
        reader->watching = false;
    }
    if (conn->transport.fd >= 0)
        cqr_transport_shutdown(&conn->transport);
    cqr_reactor_stage(conn->lane, COMPLETION_DOWN, conn);
}

void cqr_reader_fail(struct conn *conn, cqlring_status status, const char *format, ...)
{
    if (conn->reader.state >= READER_DOWN)
        return;
    conn->down_status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(conn->down_text, sizeof conn->down_text, format, arguments);
    va_end(arguments);
    down(conn);
}

/* ---- startup ---- */

static void startup_send(struct conn *conn)
{
    struct conn_reader *reader = &conn->reader;
    while (reader->startup_sent < reader->startup_size) {
        uint32_t accepted = 0;
        bool pending = false;
        enum transport_result result = cqr_transport_send(&conn->transport, reader->startup_out + reader->startup_sent,
                                                          reader->startup_size - reader->startup_sent, &accepted, &pending);
        reader->startup_sent += accepted;
        if (result == TRANSPORT_AGAIN) {
            watch(conn, POLL_READ | POLL_WRITE);
            return;
        }
        if (result != TRANSPORT_OK && conn->transport.send_error == 0) {
            cqr_reader_fail(conn, CQLRING_LOST, "%s: send during startup failed: TLS error", conn->text);
            return;
        }
        if (result != TRANSPORT_OK)
            break; /* a broken socket is readable: first what the server said before it went, an alert for one, then how it went */
    }
    watch(conn, POLL_READ);
}

/* A request of the handshake: a bare envelope, or in a segment once those are in force (reference, section 4). */
static void startup_put(struct conn *conn, struct writer *out, bool framed)
{
    struct conn_reader *reader = &conn->reader;
    if (out->failed) {
        cqr_reader_fail(conn, CQLRING_TOO_LARGE, "%s: a startup message is larger than %d bytes", conn->text, STARTUP_ROOM - 64);
        return;
    }
    uint32_t header = 0;
    if (framed)
        header = reader->handshake.compression == COMPRESSION_LZ4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE;
    assert(out->data == reader->startup_out + 8);
    uint32_t size = out->size;
    uint8_t *at = out->data - header;
    if (framed && header == CQR_SEGMENT_HEADER_SIZE)
        size = cqr_segment_seal(at, size, true);
    else if (framed)
        size = cqr_segment_seal_lz4(at, size, 0, true);
    memmove(reader->startup_out, at, size);
    reader->startup_size = size;
    reader->startup_sent = 0;
    startup_send(conn);
}

static struct writer startup_writer(struct conn *conn)
{
    struct writer out;
    cqr_writer_init(&out, conn->reader.startup_out + 8, STARTUP_ROOM - 64);
    return out;
}

static void startup_decide(struct conn *conn, enum handshake_decision decision, struct writer *out, bool framed)
{
    struct handshake *handshake = &conn->reader.handshake;
    switch (decision) {
    case HANDSHAKE_SEND:
        startup_put(conn, out, framed);
        break;
    case HANDSHAKE_ASK_AUTH:
        memcpy(conn->authenticator, handshake->authenticator, sizeof conn->authenticator);
        conn->challenge_size = handshake->challenge_size;
        if (handshake->challenge_size > 0)
            memcpy(conn->challenge, handshake->challenge, (size_t)handshake->challenge_size);
        cqr_reactor_stage(conn->lane, COMPLETION_AUTH, conn);
        break;
    case HANDSHAKE_DOWNGRADE:
        conn->version_next = handshake->version_next;
        cqr_reader_fail(conn, CQLRING_PROTOCOL, "%s: %s", conn->text, handshake->message);
        break;
    case HANDSHAKE_ERROR:
        conn->down_code = handshake->server_code;
        cqr_reader_fail(conn, handshake->status, "%s: %s", conn->text, handshake->message);
        break;
    case HANDSHAKE_READY:
        conn->dialect = handshake->dialect;
        conn->compression = handshake->compression;
        conn->shard = handshake->shard;
        conn->challenge_size = handshake->challenge_size;
        if (handshake->challenge_size > 0)
            memcpy(conn->challenge, handshake->challenge, (size_t)handshake->challenge_size);
        cqr_mem_free(conn->reader.startup_out);
        conn->reader.startup_out = NULL;
        conn->reader.state = READER_UP;
        cqr_reactor_stage(conn->lane, COMPLETION_UP, conn);
        break;
    }
}

void cqr_reader_startup_reply(struct conn *conn, const struct frame_header *header, const uint8_t *body)
{
    struct handshake *handshake = &conn->reader.handshake;
    struct writer out = startup_writer(conn);
    cqlring_bytes message = {body, (int32_t)header->body_size};
    uint8_t *unpacked = NULL;
    uint8_t flags = header->flags;
    if ((flags & FLAG_COMPRESSED) != 0 && !handshake->framed && header->version < PROTO_V5) {
        uint32_t size = 0;
        cqlring_status status = cqr_body_size(handshake->compression, body, header->body_size, 1 << 20, &size);
        if (status == CQLRING_OK) {
            unpacked = cqr_mem_alloc(size);
            status = unpacked == NULL ? CQLRING_NO_MEMORY : cqr_body_decompress(handshake->compression, body, header->body_size, unpacked, size);
        }
        if (status != CQLRING_OK) {
            cqr_mem_free(unpacked);
            cqr_reader_fail(conn, status, "%s: a compressed startup answer cannot be read", conn->text);
            return;
        }
        message = (cqlring_bytes){unpacked, (int32_t)size};
        flags &= (uint8_t)~FLAG_COMPRESSED;
    }
    enum handshake_decision decision = cqr_handshake_reply(handshake, header->version, flags, header->opcode, message, &out);
    startup_decide(conn, decision, &out, handshake->framed);
    cqr_mem_free(unpacked);
}

static void startup_begin(struct conn *conn)
{
    struct conn_reader *reader = &conn->reader;
    reader->state = READER_STARTUP;
    reader->startup_out = cqr_mem_alloc(STARTUP_ROOM);
    if (reader->startup_out == NULL) {
        cqr_reader_fail(conn, CQLRING_NO_MEMORY, "%s: out of memory during startup", conn->text);
        return;
    }
    struct writer out = startup_writer(conn);
    cqr_handshake_start(&reader->handshake, conn->config, &out);
    startup_put(conn, &out, false);
}

static void tls_step(struct conn *conn)
{
    uint32_t wait = POLL_READ;
    switch (cqr_transport_handshake(&conn->transport, &wait)) {
    case TRANSPORT_OK:
        cqr_count(&conn->lane->reactor_stats.tls_handshakes, 1);
        if (cqr_transport_tls_facts(&conn->transport)->resumed)
            cqr_count(&conn->lane->reactor_stats.tls_resumed, 1);
        startup_begin(conn);
        break;
    case TRANSPORT_AGAIN:
        watch(conn, wait);
        break;
    default:
        conn->again = cqr_transport_tls_facts(&conn->transport)->offered;
        cqr_reader_fail(conn, conn->transport.error != 0 ? CQLRING_LOST : CQLRING_TLS, "%s: %s", conn->text, conn->transport.message);
    }
}

/* From a local port that chooses the shard, if one was asked for; others are tried while they are in use (SH-05). */
static int dial(struct conn *conn)
{
    enum { PORTS_TRIED_MAX = 256 };
    struct net *net = conn->lane->net;
    if (conn->ports.shards == 0)
        return net->call->connect(net, &conn->address, 0, &conn->cluster->socket);
    int fd = -EADDRINUSE;
    for (uint32_t i = 0; i < PORTS_TRIED_MAX; i++) {
        uint16_t port = cqr_local_port(&conn->ports, i);
        if (port == 0)
            break;
        fd = net->call->connect(net, &conn->address, port, &conn->cluster->socket);
        if (fd != -EADDRINUSE && fd != -EADDRNOTAVAIL && fd != -EACCES)
            return fd;
    }
    conn->no_local_port = true;
    return fd;
}

static void connect_begin(struct conn *conn)
{
    struct net *net = conn->lane->net;
    int fd = dial(conn);
    if (fd < 0) {
        cqr_reader_fail(conn, CQLRING_UNREACHABLE, "connect to %s failed: %s", conn->text, strerror(-fd));
        return;
    }
    cqlring_status status = cqr_transport_init(&conn->transport, net, fd, conn->tls, conn->tls_name[0] == '\0' ? NULL : conn->tls_name, &conn->address);
    if (status != CQLRING_OK) {
        conn->transport.net = net;
        conn->transport.fd = fd;
        cqr_reader_fail(conn, status, "%s: TLS could not be set up", conn->text);
        return;
    }
    conn->reader.state = READER_CONNECTING;
    watch(conn, POLL_WRITE);
}

static void connect_step(struct conn *conn)
{
    struct net *net = conn->lane->net;
    int result = net->call->connect_result(net, conn->transport.fd);
    if (result == -EINPROGRESS)
        return;
    if (result < 0) {
        cqr_reader_fail(conn, CQLRING_UNREACHABLE, "connect to %s failed: %s", conn->text, strerror(-result));
        return;
    }
    if (conn->tls != NULL) {
        conn->reader.state = READER_TLS;
        tls_step(conn);
    } else {
        startup_begin(conn);
    }
}

/* ---- events, commands ---- */

void cqr_reader_event(struct conn *conn, uint32_t poll_events)
{
    struct conn_reader *reader = &conn->reader;
    switch (reader->state) {
    case READER_CONNECTING:
        connect_step(conn);
        return;
    case READER_TLS:
        tls_step(conn);
        return;
    case READER_STARTUP:
        if ((poll_events & POLL_WRITE) != 0)
            startup_send(conn);
        if (reader->state == READER_STARTUP && (poll_events & POLL_READ) != 0)
            cqr_frames_read(conn);
        return;
    case READER_UP:
        if ((poll_events & POLL_WRITE) != 0) {
            watch(conn, POLL_READ);
            cqr_reactor_stage(conn->lane, COMPLETION_WRITABLE, conn);
        }
        if (reader->state == READER_UP && (poll_events & POLL_READ) != 0)
            cqr_frames_read(conn);
        return;
    default:
        return;
    }
}

void cqr_reader_command(struct conn *conn, unsigned bits)
{
    struct conn_reader *reader = &conn->reader;
    if ((bits & COMMAND_CONNECT) != 0) {
        conn->lane->reactor_conns++;
        connect_begin(conn);
    }
    if ((bits & COMMAND_AUTH) != 0 && reader->state == READER_STARTUP) {
        if (conn->token_size < -1) {
            cqr_reader_fail(conn, CQLRING_AUTH, "%s %s", conn->text, conn->refusal[0] != '\0' ? conn->refusal : "asks for credentials, and there are none");
        } else {
            struct writer out = startup_writer(conn);
            bool framed = reader->handshake.framed;
            startup_decide(conn, cqr_handshake_answer(&reader->handshake, (cqlring_bytes){conn->token, conn->token_size}, &out), &out, framed);
        }
        memset(conn->token, 0, sizeof conn->token);
    }
    if ((bits & COMMAND_SHUT) != 0) {
        if (reader->state == READER_UP)
            cqr_transport_shutdown(&conn->transport);
        else
            cqr_reader_fail(conn, CQLRING_LOST, "connecting to %s was given up", conn->text);
    }
    if ((bits & COMMAND_ARM_WRITE) != 0 && reader->state == READER_UP)
        watch(conn, POLL_READ | POLL_WRITE);
    if ((bits & COMMAND_GOODBYE) != 0) {
        assert(reader->state == READER_DOWN);
        block_drop(conn);
        for (struct inbox_item *item = cqr_inbox_take(&conn->events), *next; item != NULL; item = next) {
            next = item->next;
            cqr_mem_free(item);
        }
        if (conn->transport.fd >= 0)
            cqr_transport_close(&conn->transport);
        conn->lane->reactor_conns--;
        cqr_conn_free(conn);
    }
}
