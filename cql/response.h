/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RESPONSE_H
#define CQR_RESPONSE_H

/* Responses taken apart. Pure functions: bytes in, slices and a decision out; every length is checked before use, and
   bytes behind what is described are ignored (forward compatibility). Slices point into the body that was given. What
   needs memory (column descriptions) goes into an arena of the caller's. */

#include <stdint.h>

#include "cql/proto.h"
#include "cql/request.h"
#include "serialize/cqlring_types.h"
#include "serialize/mem.h"
#include "serialize/type.h"

struct column {
    cqlring_bytes keyspace;
    cqlring_bytes table;
    cqlring_bytes name;
    const cqlring_type *type;
};

/* Description of rows or of bind markers. Strings and types live in the arena (copied), so it may outlive the body. */
struct columns {
    uint32_t flags;              /* ROWS_… (and the LWT bit in bind metadata) */
    uint32_t count;              /* columns per row; stays valid with ROWS_NO_METADATA, when array is NULL */
    struct column *array;
    cqlring_bytes paging_state;  /* slice of the body; data NULL when there is no further page */
    cqlring_bytes new_metadata_id; /* slice of the body; data NULL unless ROWS_METADATA_CHANGED */
    cqlring_bytes raw;           /* slice of the body: what array was decoded from; data NULL when there is no array */
};

/* What may stand before any response's message. */
struct response_prefix {
    bool has_trace_id;
    uint8_t trace_id[16];
    uint16_t warning_count;
    cqlring_bytes warnings;      /* raw strings; cqr_next_string */
    uint16_t payload_count;
    cqlring_bytes payload;       /* raw pairs ([string], [bytes]); cqr_next_pair */
};

struct error_body {              /* fields beyond code and message are valid as the code says; 0 or empty when cut short */
    int32_t code;
    cqlring_bytes message;
    uint16_t consistency;
    int32_t received, required, alive, failure_count;
    cqlring_bytes reasons;       /* v5 or EXT_FAILURE_MAP: raw [inetaddr][short] × failure_count; data NULL otherwise */
    cqlring_bytes write_type;
    uint8_t data_present;
    int32_t contentions;         /* -1 when not sent */
    cqlring_bytes keyspace, table, function;
    uint16_t argument_count;
    cqlring_bytes arguments;     /* raw strings */
    cqlring_bytes unprepared_id;
    bool rate_limited;           /* the negotiated code: a partition's rate limit was reached */
    uint8_t rate_limit_op, rate_limit_by_coordinator;
    bool complete;               /* false: the fields behind the message were cut short or unknown */
};

struct schema_change {
    cqlring_bytes change, target, keyspace, name;
    uint16_t argument_count;
    cqlring_bytes arguments;     /* raw strings */
};

struct event_body {
    cqlring_bytes type;          /* TOPOLOGY_CHANGE … */
    cqlring_bytes change;
    uint8_t address[16];
    uint8_t address_size;        /* 4 or 16 */
    int32_t port;
    struct schema_change schema;
    uint16_t connection_id_count, host_id_count;
    cqlring_bytes connection_ids, host_ids; /* CLIENT_ROUTES_CHANGE: raw strings */
};

struct prepared_body {
    cqlring_bytes id;
    cqlring_bytes result_metadata_id; /* data NULL where the dialect has none */
    uint16_t pk_count;
    const uint16_t *pk_indexes;  /* in the arena; NULL when pk_count is 0 */
    struct columns bind;
    struct columns result;
    bool is_lwt;
};

struct rows_body {
    struct columns columns;
    uint32_t row_count;
    cqlring_bytes rows;          /* raw cells of row_count × columns.count; checked lazily by the cursor */
};

/* Removes the prefixes that the header's flags announce from the front of *body. */
cqlring_status cqr_decode_prefix(uint8_t flags, cqlring_bytes *body, struct response_prefix *out);
cqlring_status cqr_next_pair(cqlring_bytes *pairs, cqlring_bytes *key, cqlring_bytes *value);

/* Body without prefixes, each its own opcode. */
cqlring_status cqr_decode_error(const struct dialect *dialect, cqlring_bytes body, struct error_body *out); /* OK with complete=false when cut behind the message */
/* Consumes one failed replica's address (4 or 16 bytes) and reason from error_body.reasons. */
cqlring_status cqr_next_reason(cqlring_bytes *reasons, cqlring_bytes *address, uint16_t *reason);
cqlring_status cqr_decode_supported(cqlring_bytes body, uint16_t *key_count, cqlring_bytes *multimap);
/* Iterates a [string multimap]'s values: consumes one key and its raw list. */
cqlring_status cqr_next_multi(cqlring_bytes *multimap, cqlring_bytes *key, uint16_t *value_count, cqlring_bytes *values);
cqlring_status cqr_decode_authenticate(cqlring_bytes body, cqlring_bytes *authenticator);
cqlring_status cqr_decode_auth_token(cqlring_bytes body, cqlring_bytes *token); /* AUTH_CHALLENGE, AUTH_SUCCESS */
cqlring_status cqr_decode_event(const struct dialect *dialect, cqlring_bytes body, struct event_body *out);

/* RESULT: kind first, then the one that fits it with the bytes behind the kind. */
cqlring_status cqr_decode_result_kind(cqlring_bytes *body, uint32_t *kind);
cqlring_status cqr_decode_rows(const struct dialect *dialect, cqlring_bytes body, struct arena *arena, struct rows_body *out);
/* The same, but where the description's bytes are those of known->raw, known->array is handed out again and nothing
   allocated: out->columns.array == known->array tells. */
cqlring_status cqr_decode_rows_known(const struct dialect *dialect, cqlring_bytes body, const struct columns *known,
                                     struct arena *arena, struct rows_body *out);
cqlring_status cqr_decode_keyspace(cqlring_bytes body, cqlring_bytes *keyspace);
cqlring_status cqr_decode_prepared(const struct dialect *dialect, cqlring_bytes body, struct arena *arena, struct prepared_body *out);
cqlring_status cqr_decode_schema_change(cqlring_bytes body, struct schema_change *out);
/* METADATA_CHANGED together with NO_METADATA is CQLRING_PROTOCOL (PS-04). */

#endif
