/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SUPPORTED_H
#define CQR_SUPPORTED_H

/* What a server says of itself in SUPPORTED, and what of it is asked for in STARTUP. Part of the
   handshake; pure functions. Keys are compared without regard to case. What makes no sense counts
   as not said. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/handshake.h"
#include "cql/request.h"

enum { SUPPORTED_EXTENSIONS_MAX = 6 };

struct supported {
    bool lists_versions;   /* there is a PROTOCOL_VERSIONS with something in it */
    uint32_t version_mask; /* bit n: it lists vn, and not as beta */
    char versions[100];    /* the list, for people */
    bool lz4, snappy;
    struct shard_info shard; /* shard_count 0 unless all of it makes sense */
    uint8_t extensions;      /* EXT_… advertised with parameters that make sense */
    uint32_t lwt_mask;
    cqlring_bytes lwt_text; /* NAME=VALUE as it came; slice of the body */
    int32_t rate_limit_code;
};

cqlring_status cqr_supported_read(cqlring_bytes body, struct supported *out);

/* Put what is negotiated into the dialect and the keys that say so into options (room for
   SUPPORTED_EXTENSIONS_MAX), which point into the body. Returns how many. */
uint16_t cqr_supported_extensions(const struct supported *supported,
                                  const struct handshake_config *config, struct dialect *dialect,
                                  struct string_pair *options);

#endif
