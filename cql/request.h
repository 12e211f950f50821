/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_REQUEST_H
#define CQR_REQUEST_H

/* Requests, written straight into a send block as whole envelopes. Pure functions. A writer that runs out of room is
   `failed`; the caller takes its size back (writer->size = start) and tries elsewhere.

   EXECUTE, QUERY and BATCH are written in three steps so that the values of a row keep their place: *begin* (header and
   everything before the values), the values, *end* (everything behind them, and the body size). What stands between
   begin and end ([short n] and n [value]s) is what an op remembers; a retry is begin + those bytes + end. */

#include <stdint.h>

#include "cql/frame.h"
#include "cql/proto.h"
#include "serialize/buf.h"
#include "serialize/cqlring_types.h"

struct string_pair {
    cqlring_bytes key;
    cqlring_bytes value;
};

/* Query parameters but for the values. Wire numbers; 0xFFFF-free: serial_consistency 0 sends none. */
struct query_params {
    uint16_t consistency;        /* the wire's value (ANY = 0) */
    bool has_values;             /* a [short n] and n values follow begin */
    bool skip_metadata;
    /* What few requests have stands together, in eight bytes of its own: one look tells that none of it is there. */
    uint16_t serial_consistency; /* 8 or 9; 0 = not sent */
    bool has_names;              /* each value is preceded by its [string name] (QUERY only) */
    bool has_now;                /* v5; ignored on v3/v4 (the caller refuses it earlier) */
    bool tracing;
    uint8_t unused;              /* 0 */
    uint16_t payload_count;
    int32_t page_size;           /* <= 0: not sent */
    int32_t now_in_seconds;
    bool has_timestamp;
    int64_t timestamp_us;
    cqlring_bytes paging_state;  /* data NULL: not sent */
    cqlring_bytes keyspace;      /* v5 only; size 0: not sent */
    const struct string_pair *payload; /* custom payload, v4+; NULL when payload_count is 0; null values have size -1 */
};

void cqr_encode_options(struct writer *writer, const struct dialect *dialect, int16_t stream);
void cqr_encode_startup(struct writer *writer, const struct dialect *dialect, int16_t stream, const struct string_pair *options, uint16_t count);
void cqr_encode_auth_response(struct writer *writer, const struct dialect *dialect, int16_t stream, cqlring_bytes token);
void cqr_encode_register(struct writer *writer, const struct dialect *dialect, int16_t stream, const cqlring_bytes *events, uint16_t count);
void cqr_encode_prepare(struct writer *writer, const struct dialect *dialect, int16_t stream, cqlring_bytes cql, cqlring_bytes keyspace,
                        bool tracing, const struct string_pair *payload, uint16_t payload_count);

/* EXECUTE. result_metadata_id is written only where the dialect has it. Returns where the envelope starts. */
uint32_t cqr_execute_begin(struct writer *writer, const struct dialect *dialect, int16_t stream, cqlring_bytes id,
                           cqlring_bytes result_metadata_id, const struct query_params *params);

/* What stands before the values of an EXECUTE with plain params: the same for all rows of a statement on connections of one
   dialect, so it is made once, copied and patched. */
enum { EXECUTE_HEAD_MAX = 64 };
struct execute_head {
    uint32_t size;
    int32_t page_size;
    uint8_t bytes[EXECUTE_HEAD_MAX];
};
/* False: not for these params, this dialect or ids so long; it takes begin, values and end. */
bool cqr_execute_head_make(struct execute_head *head, const struct dialect *dialect, cqlring_bytes id, cqlring_bytes result_metadata_id,
                           const struct query_params *params);
/* The whole envelope; returns its size. Its values begin at head->size. The caller knows that there is room for
   CQR_EXECUTE_AROUND + the values with their count. timestamp_us INT64_MIN: none. */
enum { CQR_EXECUTE_AROUND = EXECUTE_HEAD_MAX + 4 + 8 };
uint32_t cqr_execute_row(uint8_t *at, const struct execute_head *head, int16_t stream, int64_t timestamp_us, const cqlring_bytes *cells,
                         uint32_t count, uint32_t *values_size);
uint32_t cqr_query_begin(struct writer *writer, const struct dialect *dialect, int16_t stream, cqlring_bytes cql, const struct query_params *params);
/* The values: [short count] and count × [value]. Cells with size < 0 are null (-1) or unset (-2). */
void cqr_put_values(struct writer *writer, const cqlring_bytes *cells, uint32_t count);
void cqr_put_named_values(struct writer *writer, const cqlring_bytes *names, const cqlring_bytes *cells, uint32_t count);
/* Closes both EXECUTE (tablet_block: the extra byte of TABLETS_ROUTING_V2, written only when negotiated) and QUERY. */
void cqr_execute_end(struct writer *writer, const struct dialect *dialect, const struct query_params *params, uint32_t start, uint8_t tablet_block);
void cqr_query_end(struct writer *writer, const struct dialect *dialect, const struct query_params *params, uint32_t start);

/* BATCH: begin, then per child cqr_batch_text or cqr_batch_prepared followed by its values ([short n] and values, n = 0
   when there are none: BT-02), then end. */
uint32_t cqr_batch_begin(struct writer *writer, const struct dialect *dialect, int16_t stream, uint8_t kind, uint16_t count, const struct query_params *params);
void cqr_batch_text(struct writer *writer, cqlring_bytes cql);
void cqr_batch_prepared(struct writer *writer, cqlring_bytes id);
void cqr_batch_end(struct writer *writer, const struct dialect *dialect, const struct query_params *params, uint32_t start);

/* Server side (the embedded node): requests taken apart. Slices point into the body. */
struct request {
    uint8_t opcode;
    cqlring_bytes payload;            /* raw [bytes map] of a custom payload; data NULL if none */
    cqlring_bytes text;               /* QUERY, PREPARE: the text; AUTH_RESPONSE: the token (size -1 null) */
    cqlring_bytes id;                 /* EXECUTE */
    cqlring_bytes result_metadata_id; /* EXECUTE, data NULL where the dialect has none */
    cqlring_bytes keyspace;           /* PREPARE v5, or in the parameters */
    struct query_params params;       /* QUERY, EXECUTE, BATCH (without payload) */
    uint16_t value_count;
    cqlring_bytes values;             /* raw bytes of the values ([name]s included when params.has_names), without [short n] */
    uint8_t batch_kind;
    uint16_t batch_count;
    cqlring_bytes batch_children;     /* raw bytes; iterate with cqr_request_next_child */
    cqlring_bytes map;                /* STARTUP: raw bytes of the pairs behind the [short n]; REGISTER: of the strings */
    uint16_t map_count;
    uint8_t tablet_block;             /* EXECUTE with EXT_TABLETS_V2 */
};
struct batch_child {
    bool prepared;
    cqlring_bytes text_or_id;
    uint16_t value_count;
    cqlring_bytes values;
};
/* CQLRING_PROTOCOL when the body is not what the opcode says. flags are the header's. */
cqlring_status cqr_decode_request(const struct dialect *dialect, uint8_t opcode, uint8_t flags, cqlring_bytes body, struct request *out);
cqlring_status cqr_request_next_child(cqlring_bytes *children, struct batch_child *out);
cqlring_status cqr_next_value(cqlring_bytes *values, cqlring_bytes *value);  /* consumes one [value] from the front */
cqlring_status cqr_next_string(cqlring_bytes *map, cqlring_bytes *text);     /* consumes one [string] from the front */

#endif
