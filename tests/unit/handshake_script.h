/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_HANDSHAKE_SCRIPT_H
#define CQLRING_TESTS_HANDSHAKE_SCRIPT_H

/* The server's side of a handshake, for its tests: what we sent is taken apart, what the server
   says is put together. One handshake at a time. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/handshake.h"
#include "cql/request.h"
#include "serialize/buf.h"

static inline cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

static struct handshake handshake;
static struct handshake_config config;
static struct writer sent; /* by us, one request at a time */
static uint8_t sent_room[2048];
static struct writer reply; /* the server's body */
static uint8_t reply_room[4096];
static struct request request; /* what was sent, taken apart */

static inline void script_setup(void)
{
    config = (struct handshake_config){
        .version = PROTO_V5,
        .version_min = PROTO_V4,
        .driver_name = "cqlring",
        .driver_version = "1",
    };
    cqr_writer_init(&sent, sent_room, sizeof sent_room);
    cqr_writer_init(&reply, reply_room, sizeof reply_room);
}

/* Exactly one whole request, on stream 0 and of our version, stands in the writer. */
static inline void take_sent(uint8_t opcode)
{
    struct frame_header header;
    ck_assert(!sent.failed);
    ck_assert_int_eq(cqr_frame_cut(sent.data, sent.size, PROTO_BODY_MAX, &header), FRAME_WHOLE);
    ck_assert_uint_eq(PROTO_HEADER_SIZE + header.body_size, sent.size);
    ck_assert_uint_eq(header.opcode, opcode);
    ck_assert_int_eq(header.stream, 0);
    ck_assert_uint_eq(header.version, config.version);
    ck_assert_uint_eq(header.flags & FLAG_COMPRESSED, 0); /* CP-05 */
    cqlring_bytes body = {sent.data + PROTO_HEADER_SIZE, (int32_t)header.body_size};
    ck_assert_int_eq(cqr_decode_request(&handshake.dialect, opcode, header.flags, body, &request),
                     CQLRING_OK);
    sent.size = 0;
}

static inline void start(void)
{
    cqr_handshake_start(&handshake, &config, &sent);
    ck_assert_int_eq(handshake.state, HANDSHAKE_AWAIT_SUPPORTED);
    take_sent(OPCODE_OPTIONS);
}

/* Hand over the reply as it stands, copied to memory of exactly its size. */
static inline enum handshake_decision answer_in(uint8_t version, uint8_t opcode)
{
    ck_assert(!reply.failed);
    uint8_t *body = malloc(reply.size + (reply.size == 0));
    ck_assert_ptr_nonnull(body);
    memcpy(body, reply.data, reply.size);
    enum handshake_decision decision = cqr_handshake_reply(
        &handshake, version, 0, opcode, (cqlring_bytes){body, (int32_t)reply.size}, &sent);
    free(body);
    reply.size = 0;
    return decision;
}

static inline enum handshake_decision answer(uint8_t opcode)
{
    return answer_in(config.version, opcode);
}

static inline enum handshake_decision answer_error(uint8_t version, uint32_t code,
                                                   const char *message)
{
    cqr_put_u32(&reply, code);
    cqr_put_string(&reply, text(message));
    return answer_in(version, OPCODE_ERROR);
}

struct option {
    const char *key;
    const char *values[6];
};

static inline enum handshake_decision answer_supported(const struct option *options, size_t count)
{
    cqr_put_u16(&reply, (uint16_t)count);
    for (size_t i = 0; i < count; ++i) {
        uint16_t value_count = 0;
        while (value_count < 6 && options[i].values[value_count] != NULL)
            ++value_count;
        cqr_put_string(&reply, text(options[i].key));
        cqr_put_u16(&reply, value_count);
        for (uint16_t j = 0; j < value_count; ++j)
            cqr_put_string(&reply, text(options[i].values[j]));
    }
    return answer(OPCODE_SUPPORTED);
}

#define SUPPORTED(...)                                     \
    answer_supported((const struct option[]){__VA_ARGS__}, \
                     sizeof((const struct option[]){__VA_ARGS__}) / sizeof(struct option))

static inline enum handshake_decision answer_plain_supported(void)
{
    return SUPPORTED({"CQL_VERSION", {"3.4.5"}}, {"COMPRESSION", {"snappy", "lz4"}});
}

/* The value of an option of STARTUP; NULL when it was not sent. */
static inline const char *startup_option(const char *key)
{
    static char value[256];
    cqlring_bytes map = request.map, name, found;
    const char *result = NULL;
    for (uint16_t i = 0; i < request.map_count; ++i) {
        ck_assert_int_eq(cqr_next_string(&map, &name), CQLRING_OK);
        ck_assert_int_eq(cqr_next_string(&map, &found), CQLRING_OK);
        if (name.size != (int32_t)strlen(key) || memcmp(name.data, key, strlen(key)) != 0)
            continue;
        ck_assert_ptr_null(result); /* no key twice */
        ck_assert_int_lt(found.size, (int32_t)sizeof value);
        memcpy(value, found.data, (size_t)found.size);
        value[found.size] = '\0';
        result = value;
    }
    return result;
}

static inline void check_option(const char *key, const char *value)
{
    const char *got = startup_option(key);
    if (value == NULL) {
        ck_assert_ptr_null(got);
    } else {
        ck_assert_ptr_nonnull(got);
        ck_assert_str_eq(got, value);
    }
}

static inline void check_failed(cqlring_status status, const char *part)
{
    ck_assert_int_eq(handshake.state, HANDSHAKE_FAILED);
    ck_assert_int_eq(handshake.status, status);
    ck_assert_msg(strstr(handshake.message, part) != NULL, "\"%s\" is not in \"%s\"", part,
                  handshake.message);
}

#endif
