/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_TALK_H
#define NODE_TALK_H

/* A client of few words for tests of the node: drives a connection without sockets, asks one thing
   at a time and turns the answer into text. */

#include "cql/request.h"
#include "cql/response.h"
#include "serialize/compress.h"
#include "tests/node/node.h"

enum { TALK_VALUES_MAX = 16 };

struct talk {
    struct node_cluster *cluster;
    struct node_conn *conn;
    struct dialect dialect;
    bool lz4;
    bool framed;
    int64_t now_us;
    struct compress_state *compressor;
    uint8_t *bytes; /* what came and was not looked at yet */
    size_t size;
    uint8_t *plain; /* bare envelopes not yet taken */
    size_t plain_size;
    /* the last envelope */
    uint8_t version, flags, opcode;
    int16_t stream;
    uint8_t *body; /* without prefixes */
    uint32_t body_size;
    struct response_prefix prefix;
    uint8_t *whole; /* owns body */
    /* of the last answer */
    int32_t code; /* ERROR's, else -1 */
    char text
        [65536]; /* rows "a|b;c|d", the error's message, "void", "keyspace x", "schema CREATED TABLE ks t" */
    char columns[4096]; /* of rows: "name type,…" as far as the metadata told */
    uint32_t flags_of_rows;
    uint32_t row_count;
    uint8_t paging[1024];
    int32_t paging_size; /* -1: no further page */
    uint8_t id[16], metadata_id[16];
    uint16_t pk_count, pk_indexes[8];
    uint32_t bind_count;
    struct arena arena;   /* types of the last PREPARED or of rows */
    struct columns known; /* columns of the last PREPARED, for rows that come without */
};

void talk_open(struct talk *talk, struct node_cluster *cluster, uint32_t node, uint8_t version,
               bool lz4); /* handshake done */
void talk_raw(struct talk *talk, struct node_cluster *cluster, uint32_t node,
              uint8_t version); /* nothing said yet */
void talk_close(struct talk *talk);

/* Sends one request that a cqr_encode_… function wrote. */
struct writer *talk_writer(struct talk *talk);
void talk_send(struct talk *talk);
void talk_bytes(struct talk *talk, const void *data, size_t size); /* as they are */
/* Takes the next envelope out of what the node has said. false: there is none (yet). */
bool talk_take(struct talk *talk);
bool talk_startup(struct talk *talk); /* OPTIONS is not asked; true: READY or AUTHENTICATE */

/* Ask, take, read: the answer's text. NULL: no answer. */
const char *talk_answer(struct talk *talk);
const char *talk_query(struct talk *talk, const char *cql);
const char *talk_query_with(struct talk *talk, const char *cql, const struct query_params *params,
                            const cqlring_bytes *values, uint32_t count);
const char *talk_prepare(struct talk *talk, const char *cql);
const char *talk_execute(struct talk *talk, const struct query_params *params,
                         const cqlring_bytes *values, uint32_t count);

cqlring_bytes talk_int(int32_t value, uint8_t room[4]);
cqlring_bytes talk_bigint(int64_t value, uint8_t room[8]);

#endif
