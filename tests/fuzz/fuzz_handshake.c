/* SPDX-License-Identifier: Apache-2.0 */
/* A server's side of a connection being set up: two bytes of configuration, then replies, each
   [version][flags][opcode] [short length] and the body. */
#include <assert.h>
#include <string.h>

#include "cql/handshake.h"
#include "cql/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void configure(struct handshake_config *config, uint8_t a, uint8_t b)
{
    *config = (struct handshake_config){
        .version = (uint8_t)(PROTO_V3 + (a & 3) % 3),
        .version_min = (uint8_t)(PROTO_V3 + (a >> 2 & 3) % 3),
        .compression = (enum compression)((a >> 4 & 3) % 3),
        .compression_required = (a & 0x40) != 0,
        .throw_on_overload = (a & 0x80) != 0,
        .register_events = (b & 1) != 0,
        .scylla_metadata_id = (b & 2) != 0,
        .tablets_v2 = (b & 2) != 0,
        .driver_name = "cqlring",
        .application_name = (b & 4) != 0 ? "application" : NULL,
    };
    if ((b & 8) != 0)
        config->keyspace = (cqlring_bytes){"a \"keyspace\"", 12};
}

/* What is to be sent is one whole request of ours. */
static void check_sent(const struct handshake *handshake, struct writer *writer)
{
    struct frame_header header;
    struct request request;
    assert(!writer->failed);
    assert(cqr_frame_cut(writer->data, writer->size, PROTO_BODY_MAX, &header) == FRAME_WHOLE);
    assert(header.body_size + PROTO_HEADER_SIZE == writer->size && header.stream == 0);
    cqlring_bytes body = {writer->data + PROTO_HEADER_SIZE, (int32_t)header.body_size};
    assert(cqr_decode_request(&handshake->dialect, header.opcode, header.flags, body, &request) ==
           CQLRING_OK);
    writer->size = 0;
}

static void check_end(const struct handshake *handshake, enum handshake_decision decision)
{
    if (decision == HANDSHAKE_READY) {
        assert(handshake->state == HANDSHAKE_DONE);
        assert(handshake->framed == (handshake->dialect.version >= PROTO_V5));
        return;
    }
    assert(handshake->state == HANDSHAKE_FAILED);
    if (decision == HANDSHAKE_DOWNGRADE) {
        assert(handshake->version_next < handshake->config->version &&
               handshake->version_next >= handshake->config->version_min);
    } else {
        assert(decision == HANDSHAKE_ERROR && handshake->status != CQLRING_OK);
        assert(memchr(handshake->message, '\0', sizeof handshake->message) != NULL &&
               handshake->message[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct handshake_config config;
    configure(&config, data[0], data[1]);
    const uint8_t *at = data + 2, *end = data + size;
    uint8_t room[2048];
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    struct handshake handshake;
    cqr_handshake_start(&handshake, &config, &writer);
    check_sent(&handshake, &writer);
    while (end - at >= 5) {
        uint8_t version = at[0], flags = at[1], opcode = at[2];
        int32_t body_size = cqr_load_u16(at + 3);
        at += 5;
        if (body_size > end - at)
            body_size = (int32_t)(end - at);
        enum handshake_decision decision = cqr_handshake_reply(
            &handshake, version, flags, opcode, (cqlring_bytes){at, body_size}, &writer);
        at += body_size;
        if (decision == HANDSHAKE_ASK_AUTH)
            decision = cqr_handshake_answer(&handshake, (cqlring_bytes){"token", 5}, &writer);
        if (decision != HANDSHAKE_SEND) {
            check_end(&handshake, decision);
            return 0;
        }
        check_sent(&handshake, &writer);
    }
    return 0;
}
