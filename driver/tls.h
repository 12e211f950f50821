/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TLS_H
#define CQR_TLS_H

/* The TLS half of transport.h; for transport.c alone. Same threads, same meanings. */

#include "driver/transport.h"

cqlring_status cqr_tls_create(struct transport *transport, struct tls_context *context, const char *peer_name,
                              const struct address *peer);
enum transport_result cqr_tls_handshake(struct transport *transport, uint32_t *wait);
enum transport_result cqr_tls_recv(struct transport *transport, void *data, uint32_t capacity, uint32_t *size);
enum transport_result cqr_tls_send(struct transport *transport, const void *data, uint32_t size, uint32_t *accepted,
                                   bool *wire_pending);
const struct tls_facts *cqr_tls_facts(const struct tls *tls);
void cqr_tls_destroy(struct tls *tls); /* says goodbye to the peer if the socket still takes it */

#endif
