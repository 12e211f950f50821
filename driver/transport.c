/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/transport.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "driver/tls.h"

cqlring_status cqr_transport_init(struct transport *transport, struct net *net, int fd,
                                  struct tls_context *context, const char *peer_name,
                                  const struct address *peer)
{
    assert(fd >= 0);
    *transport = (struct transport){.net = net, .fd = fd};
    return context == NULL ? CQLRING_OK : cqr_tls_create(transport, context, peer_name, peer);
}

enum transport_result cqr_transport_handshake(struct transport *transport, uint32_t *wait)
{
    *wait = 0;
    return transport->tls == NULL ? TRANSPORT_OK : cqr_tls_handshake(transport, wait);
}

/* A TLS record where a CQL frame should be: an alert (0x15) or a handshake (0x16) of version 3.x. Neither is the
   version byte of any CQL reply. */
static bool is_tls_record(const uint8_t *bytes, uint32_t size)
{
    return size >= 2 && (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 0x03;
}

static enum transport_result plain_recv(struct transport *transport, void *data, uint32_t capacity,
                                        uint32_t *size)
{
    ssize_t result = transport->net->call->recv(transport->net, transport->fd, data, capacity);
    if (result == -EAGAIN)
        return TRANSPORT_AGAIN;
    if (result == 0)
        return TRANSPORT_END;
    if (result < 0) {
        transport->error = (int)-result;
        (void)snprintf(transport->message, sizeof transport->message, "%s",
                       strerrordesc_np(transport->error));
        return TRANSPORT_ERROR;
    }
    if (!transport->received) {
        transport->received = true;
        if (is_tls_record(data, (uint32_t)result)) {
            transport->error = 0;
            (void)snprintf(
                transport->message, sizeof transport->message,
                "the server speaks TLS on this port: switch TLS on, or use its plain port");
            return TRANSPORT_ERROR;
        }
    }
    *size = (uint32_t)result;
    return TRANSPORT_OK;
}

enum transport_result cqr_transport_recv(struct transport *transport, void *data, uint32_t capacity,
                                         uint32_t *size)
{
    assert(capacity > 0);
    *size = 0;
    return transport->tls == NULL ? plain_recv(transport, data, capacity, size)
                                  : cqr_tls_recv(transport, data, capacity, size);
}

/* One send: when the kernel takes less than everything it is full, and asking again would only confirm it. */
static enum transport_result plain_send(struct transport *transport, const void *data,
                                        uint32_t size, uint32_t *accepted)
{
    if (size == 0)
        return TRANSPORT_OK;
    ssize_t result = transport->net->call->send(transport->net, transport->fd, data, size);
    if (result == -EAGAIN)
        return TRANSPORT_AGAIN;
    if (result < 0) {
        transport->send_error = (int)-result;
        return TRANSPORT_ERROR;
    }
    *accepted = (uint32_t)result;
    return *accepted == size ? TRANSPORT_OK : TRANSPORT_AGAIN;
}

enum transport_result cqr_transport_send(struct transport *transport, const void *data,
                                         uint32_t size, uint32_t *accepted, bool *wire_pending)
{
    *accepted = 0;
    *wire_pending = false;
    return transport->tls == NULL ? plain_send(transport, data, size, accepted)
                                  : cqr_tls_send(transport, data, size, accepted, wire_pending);
}

void cqr_transport_shutdown(struct transport *transport)
{
    transport->net->call->shutdown(transport->net, transport->fd);
}

void cqr_transport_close(struct transport *transport)
{
    if (transport->tls != NULL)
        cqr_tls_destroy(transport->tls);
    transport->tls = NULL;
    transport->net->call->close(transport->net, transport->fd);
    transport->fd = -1;
}

const char *cqr_transport_tls_version(const struct transport *transport)
{
    return transport->tls == NULL ? "" : cqr_tls_facts(transport->tls)->text;
}

const struct tls_facts *cqr_transport_tls_facts(const struct transport *transport)
{
    return transport->tls == NULL ? NULL : cqr_tls_facts(transport->tls);
}
