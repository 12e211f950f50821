/* SPDX-License-Identifier: Apache-2.0 */

/* A connection's birth and death; its life is in conn_reader.c and conn_frames.c, and in conn_writer.c and conn_send.c. */

#include <stdio.h>
#include <string.h>

#include "driver/lane.h"
#include "driver/session.h"
#include "driver/tls_settings.h"

/* Streams are used in turn. With a few only, an answer that comes twice would find its stream at work for another request and be
   taken for that one's; on a stream that rests it is seen to be nobody's. */
enum { STREAMS_MIN = 128 };

struct conn *cqr_conn_create(struct lane *lane, struct pool_link *home, const struct conn_request *request)
{
    struct conn *conn = cqr_mem_aligned(128, sizeof *conn);
    if (conn == NULL)
        return NULL;
    conn->lane = lane;
    conn->home = home;
    conn->node = request->node;
    conn->address = request->address;
    snprintf(conn->text, sizeof conn->text, "%s", request->text);
    snprintf(conn->tls_name, sizeof conn->tls_name, "%s", request->tls_name);
    conn->tls = cqr_cluster_tls(request->cluster);
    conn->said = *request->config;
    conn->config = &conn->said;
    snprintf(conn->keyspace, sizeof conn->keyspace, "%.*s", request->config->keyspace.size, request->config->keyspace.size > 0 ? (const char *)request->config->keyspace.data : "");
    conn->said.keyspace = cqlring_text(conn->keyspace);
    conn->frame_size_max = request->frame_size_max;
    conn->ports = request->ports;
    conn->cluster = cqr_cluster_retain(request->cluster);
    conn->transport.fd = -1;
    conn->challenge_size = -1;
    conn->writer.in_flight_max = request->in_flight_max;
    conn->slot_count = 2 * request->in_flight_max; /* decision 11 */
    if (conn->slot_count < STREAMS_MIN)
        conn->slot_count = STREAMS_MIN;
    if (conn->slot_count > PROTO_STREAM_COUNT)
        conn->slot_count = PROTO_STREAM_COUNT;
    conn->writer.stream_count = conn->writer.stream_free = conn->slot_count;
    conn->writer.seal_next = 1;
    conn->writer.run_us = UINT32_MAX;
    conn->slots = cqr_mem_array(conn->slot_count, sizeof *conn->slots);
    conn->writer.streams = cqr_mem_array(conn->slot_count, sizeof *conn->writer.streams);
    if (conn->slots == NULL || conn->writer.streams == NULL) {
        cqr_cluster_release(conn->cluster);
        cqr_conn_free(conn);
        return NULL;
    }
    for (uint32_t i = 0; i < conn->slot_count; i++)
        conn->writer.streams[i] = (uint16_t)((i + 1) % conn->slot_count); /* 0 last: startup has just used it */
    conn->writer.watch.kind = TIMER_CONN;
    conn->writer.received_us = lane->now_us;
    conn->next = lane->conns;
    if (lane->conns != NULL)
        lane->conns->link = &conn->next;
    conn->link = &lane->conns;
    lane->conns = conn;
    lane->conn_count++;
    cqr_wheel_arm(&lane->wheel, &conn->writer.watch, lane->now_us + request->connect_timeout_us);
    cqr_conn_command(conn, COMMAND_CONNECT);
    return conn;
}

void cqr_conn_free(struct conn *conn)
{
    if (conn->slots != NULL)
        cqr_mem_free((void *)(uintptr_t)conn->slots);
    cqr_mem_free(conn->writer.streams);
    cqr_tls_context_release(conn->tls);
    cqr_mem_free(conn);
}

void cqr_conn_command(struct conn *conn, unsigned bits)
{
    /* acq_rel: what the submitter wrote for the command (a token) is seen by the reactor's exchange */
    if (atomic_fetch_or_explicit(&conn->commands, bits, memory_order_acq_rel) == 0)
        cqr_command_push(conn->lane, conn);
}
