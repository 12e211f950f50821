/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_HANDSHAKE_H
#define CQR_HANDSHAKE_H

/* OPTIONS → STARTUP → AUTH → READY (→ USE → REGISTER) as a state machine of bytes: replies in, requests and a decision
   out. It owns no socket and no clock; the connection's reader (reactor thread) drives it, and the secret comes from
   whoever answers HANDSHAKE_ASK_AUTH. All its requests use stream 0, one at a time, so an ERROR on stream 0 is always
   the answer to the last one (reference: versions are refused on stream 0). */

#include <stdint.h>

#include "cql/proto.h"
#include "serialize/buf.h"
#include "serialize/compress.h"
#include "serialize/cqlring_types.h"

enum handshake_state {
    HANDSHAKE_IDLE,
    HANDSHAKE_AWAIT_SUPPORTED,
    HANDSHAKE_AWAIT_READY,      /* STARTUP sent: READY, AUTHENTICATE or ERROR */
    HANDSHAKE_AWAIT_CREDENTIALS, /* AUTHENTICATE or AUTH_CHALLENGE came; the token is to be given by cqr_handshake_answer */
    HANDSHAKE_AWAIT_AUTH,       /* AUTH_RESPONSE sent */
    HANDSHAKE_AWAIT_KEYSPACE,   /* USE sent */
    HANDSHAKE_AWAIT_REGISTER,
    HANDSHAKE_DONE,
    HANDSHAKE_FAILED
};

enum handshake_decision {
    HANDSHAKE_SEND,      /* send what was written */
    HANDSHAKE_ASK_AUTH,  /* the server wants a token: authenticator and challenge are set */
    HANDSHAKE_DOWNGRADE, /* the version is refused: close, open a new connection with version_next (none left: ERROR) */
    HANDSHAKE_READY,     /* nothing more to send; the connection may carry requests */
    HANDSHAKE_ERROR      /* status and message tell why */
};

struct handshake_config {
    uint8_t version;                 /* to try */
    uint8_t version_min;             /* lowest allowed to step down to (equal to version when asked for explicitly: PD-02) */
    enum compression compression;    /* wanted; dropped when the server lacks it unless compression_required (CP-06) */
    bool compression_required;
    bool throw_on_overload;
    bool register_events;            /* control connection */
    bool register_routes;            /* and CLIENT_ROUTES_CHANGE, of a ScyllaDB that knows it */
    bool scylla_metadata_id;         /* may SCYLLA_USE_METADATA_ID be negotiated */
    bool tablets_v2;                 /* is TABLETS_ROUTING_V2_EXPERIMENTAL, where there is one, asked for instead of v1 */
    const char *driver_name, *driver_version, *application_name, *application_version, *client_id, *driver_config; /* NULL: not sent */
    cqlring_bytes keyspace;          /* size 0: none */
};

struct shard_info { /* SUPPORTED of Scylla; shard_count 0: not sharded (routing reference, section 6) */
    uint16_t shard, shard_count;
    uint8_t ignore_msb;
    uint16_t shard_aware_port, shard_aware_port_tls;
};

struct handshake {
    const struct handshake_config *config; /* outlives the handshake */
    enum handshake_state state;
    struct dialect dialect;          /* as negotiated so far */
    enum compression compression;    /* in force */
    bool without_routes;             /* CLIENT_ROUTES_CHANGE was refused */
    bool framed;                     /* v5: true as soon as the answer to STARTUP has been taken: segments from here, both ways */
    struct shard_info shard;
    char authenticator[128];
    uint8_t challenge[1024];         /* at the end: what AUTH_SUCCESS said */
    int32_t challenge_size;          /* -1: none */
    uint8_t version_next;
    cqlring_status status;           /* HANDSHAKE_ERROR: AUTH, PROTOCOL, SERVER, INVALID */
    int32_t server_code;
    char message[300];               /* without any secret */
};

/* Begin: writes OPTIONS. */
void cqr_handshake_start(struct handshake *handshake, const struct handshake_config *config, struct writer *writer);
/* One reply (body decompressed, prefixes included as flags say). Writes the next request when the decision is SEND. */
enum handshake_decision cqr_handshake_reply(struct handshake *handshake, uint8_t version, uint8_t flags, uint8_t opcode, cqlring_bytes body, struct writer *writer);
/* The token for the last ASK_AUTH (size -1: null). Writes AUTH_RESPONSE. */
enum handshake_decision cqr_handshake_answer(struct handshake *handshake, cqlring_bytes token, struct writer *writer);
/* PLAIN's first token "\0user\0password" into out; CQLRING_INVALID when a NUL is inside either (AU-03), TOO_LARGE. */
cqlring_status cqr_auth_plain(cqlring_bytes user, cqlring_bytes password, uint8_t *out, uint32_t capacity, uint32_t *size);

#endif
