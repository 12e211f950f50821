/* SPDX-License-Identifier: Apache-2.0 */

/* How sockets are to be set, checked and kept. */

#include "driver/session.h"

enum { BUFFER_SIZE_MIN = 4096, BUFFER_SIZE_MAX = 1 << 30 };
#define KEEPALIVE_MAX_S INT64_C(32767) /* the kernel's own bound */

cqlring_status cqr_socket_options_take(const cqlring_cluster_options *options, struct socket_options *out, cqlring_error *error)
{
    if (options->tcp_keepalive_us != 0 && (options->tcp_keepalive_us < 1000000 || options->tcp_keepalive_us > KEEPALIVE_MAX_S * 1000000))
        return cqr_error(error, CQLRING_INVALID, "cluster options: tcp_keepalive_us %lld (0 for the system's, or 1000000 to %lld microseconds)",
                         (long long)options->tcp_keepalive_us, (long long)(KEEPALIVE_MAX_S * 1000000));
    if (options->tcp_keepalive_us != 0 && options->tcp_keepalive == CQLRING_NO)
        return cqr_error(error, CQLRING_INVALID, "cluster options: tcp_keepalive_us is given, and tcp_keepalive is NO");
    const struct {
        const char *name;
        uint32_t given;
    } sizes[] = {{"socket_send_size", options->socket_send_size}, {"socket_receive_size", options->socket_receive_size}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].given != 0 && (sizes[i].given < BUFFER_SIZE_MIN || sizes[i].given > BUFFER_SIZE_MAX))
            return cqr_error(error, CQLRING_INVALID, "cluster options: %s %u bytes (0 for the system's, or %d to %d)", sizes[i].name, sizes[i].given, BUFFER_SIZE_MIN,
                             BUFFER_SIZE_MAX);
    *out = (struct socket_options){.nagle = options->tcp_nodelay == CQLRING_NO,
                                   .keepalive = options->tcp_keepalive != CQLRING_NO,
                                   .keepalive_s = (int)(options->tcp_keepalive_us / 1000000),
                                   .send_size = (int)options->socket_send_size,
                                   .receive_size = (int)options->socket_receive_size};
    return CQLRING_OK;
}
