/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/handshake.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cql/request.h"
#include "cql/response.h"
#include "cql/supported.h"

/* The machine itself; what the server says of itself in SUPPORTED is read in supported.c. Each
   answer is taken by the function of the state that awaits it. An ERROR is looked at first,
   whatever is awaited. */

static void set_state(struct handshake *handshake, enum handshake_state state)
{
    assert(handshake->state != HANDSHAKE_DONE && handshake->state != HANDSHAKE_FAILED);
    handshake->state = state;
}

/* The message is for people: control characters (a server's text may hold anything) become blanks,
   and it is cut at a character. */
static void set_message(struct handshake *handshake, const char *text, size_t size)
{
    size_t room = sizeof handshake->message - 1;
    if (size > room) {
        size = room;
        while (size > 0 && ((unsigned char)text[size] & 0xC0) == 0x80)
            --size;
    }
    for (size_t i = 0; i < size; ++i)
        handshake->message[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7F ? ' ' : text[i];
    handshake->message[size] = '\0';
}

__attribute__((format(printf, 3, 4))) static enum handshake_decision fail(
    struct handshake *handshake, cqlring_status status, const char *format, ...)
{
    char text[1024]; /* more than the message holds, so that the cut is made at one place */
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0)
        size = 0;
    if ((size_t)size >= sizeof text)
        size = (int)sizeof text - 1;
    set_message(handshake, text, (size_t)size);
    handshake->status = status;
    set_state(handshake, HANDSHAKE_FAILED);
    return HANDSHAKE_ERROR;
}

/* For "%.*s": what fits a message, of text that may have any size. */
static int shown(cqlring_bytes text)
{
    return text.size < 300 ? text.size : 300;
}

static enum handshake_decision step_down(struct handshake *handshake, uint8_t version_next)
{
    handshake->version_next = version_next;
    set_state(handshake, HANDSHAKE_FAILED);
    return HANDSHAKE_DOWNGRADE;
}

/* What was written is to be sent, if it fitted. */
static enum handshake_decision sent(struct handshake *handshake, const struct writer *writer,
                                    enum handshake_state next)
{
    if (writer->failed)
        return fail(handshake, CQLRING_INVALID,
                    "the connection's first requests do not fit %u bytes: a name is too long",
                    (unsigned)writer->capacity);
    set_state(handshake, next);
    return HANDSHAKE_SEND;
}

void cqr_handshake_start(struct handshake *handshake, const struct handshake_config *config,
                         struct writer *writer)
{
    *handshake = (struct handshake){
        .config = config,
        .state = HANDSHAKE_IDLE,
        .dialect = {.version = config->version},
        .challenge_size = -1,
        .status = CQLRING_OK,
    };
    cqr_encode_options(writer, &handshake->dialect, 0);
    set_state(handshake, HANDSHAKE_AWAIT_SUPPORTED);
}

/* --- requests --------------------------------------------------------------------------------- */

static enum handshake_decision send_startup(struct handshake *handshake,
                                            const struct supported *supported,
                                            struct writer *writer)
{
    const struct handshake_config *config = handshake->config;
    struct string_pair options[24];
    uint16_t count = 0;
    const struct {
        const char *key, *value;
    } plain[] = {
        {"CQL_VERSION", "3.0.0"},
        {"COMPRESSION", handshake->compression == COMPRESSION_LZ4      ? "lz4"
                        : handshake->compression == COMPRESSION_SNAPPY ? "snappy"
                                                                       : NULL},
        {"THROW_ON_OVERLOAD", config->throw_on_overload ? "1" : NULL},
        {"DRIVER_NAME", config->driver_name},
        {"DRIVER_VERSION", config->driver_version},
        {"APPLICATION_NAME", config->application_name},
        {"APPLICATION_VERSION", config->application_version},
        {"CLIENT_ID", config->client_id},
        {"DRIVER_CONFIG", config->driver_config},
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; ++i) {
        if (plain[i].value != NULL)
            options[count++] = (struct string_pair){
                {plain[i].key, (int32_t)strlen(plain[i].key)},
                {plain[i].value, (int32_t)strlen(plain[i].value)}};
    }
    count = (uint16_t)(count + cqr_supported_extensions(supported, config, &handshake->dialect,
                                                        options + count));
    assert(count <= sizeof options / sizeof options[0]);

    cqr_encode_startup(writer, &handshake->dialect, 0, options, count);
    return sent(handshake, writer, HANDSHAKE_AWAIT_READY);
}

/* The name as it is stored, whatever is in it: always quoted, quotes doubled. */
static enum handshake_decision send_use(struct handshake *handshake, struct writer *writer)
{
    const cqlring_bytes keyspace = handshake->config->keyspace;
    const char *name = (const char *)keyspace.data;
    char text[512] = "USE \"";
    size_t size = strlen(text);
    for (int32_t i = 0; i < keyspace.size; ++i) {
        if (size + 3 > sizeof text)
            return fail(handshake, CQLRING_INVALID, "keyspace name of %d bytes is too long",
                        (int)keyspace.size);
        if (name[i] == '"')
            text[size++] = '"';
        text[size++] = name[i];
    }
    text[size++] = '"';
    const struct query_params params = {.consistency = 1};
    uint32_t start = cqr_query_begin(writer, &handshake->dialect, 0,
                                     (cqlring_bytes){text, (int32_t)size}, &params);
    cqr_query_end(writer, &handshake->dialect, &params, start);
    return sent(handshake, writer, HANDSHAKE_AWAIT_KEYSPACE);
}

static bool asks_for_routes(const struct handshake *handshake)
{
    bool is_scylla = handshake->shard.shard_count > 0 || handshake->dialect.extensions != 0;
    return handshake->config->register_routes && is_scylla && !handshake->without_routes;
}

static enum handshake_decision send_register(struct handshake *handshake, struct writer *writer)
{
    static const cqlring_bytes events[] = {
        {"TOPOLOGY_CHANGE", 15}, {"STATUS_CHANGE", 13}, {"SCHEMA_CHANGE", 13}, {"CLIENT_ROUTES_CHANGE", 20}};
    cqr_encode_register(writer, &handshake->dialect, 0, events, asks_for_routes(handshake) ? 4 : 3);
    return sent(handshake, writer, HANDSHAKE_AWAIT_REGISTER);
}

/* Let in: the keyspace, then the events, then done. `done` is the state that has just been left
   behind. */
static enum handshake_decision go_on(struct handshake *handshake, enum handshake_state done,
                                     struct writer *writer)
{
    if (done < HANDSHAKE_AWAIT_KEYSPACE && handshake->config->keyspace.size > 0)
        return send_use(handshake, writer);
    if (done < HANDSHAKE_AWAIT_REGISTER && handshake->config->register_events)
        return send_register(handshake, writer);
    set_state(handshake, HANDSHAKE_DONE);
    return HANDSHAKE_READY;
}

/* --- versions --------------------------------------------------------------------------------- */

static bool contains(cqlring_bytes text, const char *part)
{
    size_t part_size = strlen(part);
    const char *at = (const char *)text.data;
    for (int32_t i = 0; i + (int32_t)part_size <= text.size; ++i) {
        if (memcmp(at + i, part, part_size) == 0)
            return true;
    }
    return false;
}

/* Is the ERROR a refusal of the version that we speak, which a lower one may not meet? Servers have
   no code of its own for that; the texts have been the same for ten years. */
static bool is_version_refusal(const struct handshake *handshake, const struct error_body *error)
{
    return (handshake->state == HANDSHAKE_AWAIT_SUPPORTED ||
            handshake->state == HANDSHAKE_AWAIT_READY) &&
           error->code == ERROR_PROTOCOL &&
           (contains(error->message, "unsupported protocol version") ||
            contains(error->message, "USE_BETA"));
}

/* The server does not take our version; it takes best (0: unknown). What it said of the matter is
   shown to people. */
static enum handshake_decision refuse_version(struct handshake *handshake, uint8_t best,
                                              cqlring_bytes said)
{
    const struct handshake_config *config = handshake->config;
    if (best == 0)
        best = (uint8_t)(config->version - 1);
    uint8_t lowest = config->version_min > PROTO_V3 ? config->version_min : PROTO_V3;
    if (best >= lowest && best < config->version)
        return step_down(handshake, best);
    return fail(handshake, CQLRING_PROTOCOL,
                "the server does not speak protocol v%u and no version below v%u is allowed: %.*s",
                config->version, lowest, shown(said), (const char *)said.data);
}

/* --- answers ---------------------------------------------------------------------------------- */

static enum handshake_decision take_error(struct handshake *handshake, cqlring_bytes body)
{
    static const char *const doing[] = {
        [HANDSHAKE_AWAIT_SUPPORTED] = "OPTIONS",   [HANDSHAKE_AWAIT_READY] = "STARTUP",
        [HANDSHAKE_AWAIT_AUTH] = "authentication", [HANDSHAKE_AWAIT_KEYSPACE] = "USE",
        [HANDSHAKE_AWAIT_REGISTER] = "REGISTER",   [HANDSHAKE_AWAIT_CREDENTIALS] = "authentication",
    };
    struct error_body error;
    if (cqr_decode_error(&handshake->dialect, body, &error) != CQLRING_OK)
        return fail(handshake, CQLRING_PROTOCOL, "%s: the server's ERROR is cut short",
                    doing[handshake->state]);
    handshake->server_code = error.code;
    if (is_version_refusal(handshake, &error))
        return refuse_version(handshake, 0, error.message);
    int size = shown(error.message);
    const char *text = (const char *)error.message.data;
    if (error.code == ERROR_CREDENTIALS)
        return fail(handshake, CQLRING_AUTH, "authentication failed: %.*s", size, text);
    if (handshake->state == HANDSHAKE_AWAIT_KEYSPACE)
        return fail(handshake, CQLRING_SERVER, "USE \"%.*s\": %.*s",
                    shown(handshake->config->keyspace),
                    (const char *)handshake->config->keyspace.data, size, text);
    return fail(handshake, CQLRING_SERVER, "%s: %.*s", doing[handshake->state], size, text);
}

static const char *compression_name(enum compression compression)
{
    return compression == COMPRESSION_LZ4 ? "lz4" : "snappy";
}

/* What is asked for, where server and version have it; else none, or (when it is required) an error
   (CP-06). */
static bool choose_compression(struct handshake *handshake, const struct supported *supported)
{
    enum compression wanted = handshake->config->compression;
    bool offered = wanted == COMPRESSION_LZ4 ? supported->lz4 : supported->snappy;
    if (wanted == COMPRESSION_NONE)
        return true;
    if (offered && (wanted == COMPRESSION_LZ4 || handshake->dialect.version < PROTO_V5)) {
        handshake->compression = wanted;
        return true;
    }
    return !handshake->config->compression_required;
}

static enum handshake_decision take_supported(struct handshake *handshake, cqlring_bytes body,
                                              struct writer *writer)
{
    struct supported supported;
    if (cqr_supported_read(body, &supported) != CQLRING_OK)
        return fail(handshake, CQLRING_PROTOCOL, "OPTIONS: the server's SUPPORTED is cut short");
    uint8_t version = handshake->dialect.version;
    if (supported.lists_versions && (supported.version_mask >> version & 1) == 0) {
        uint8_t best = version;
        while (best > 0 && (supported.version_mask >> best & 1) == 0)
            --best;
        char said[128];
        int size = snprintf(said, sizeof said, "it lists %s", supported.versions);
        return refuse_version(handshake, best == 0 ? version : best, (cqlring_bytes){said, size});
    }
    if (!choose_compression(handshake, &supported)) {
        if (handshake->config->compression == COMPRESSION_SNAPPY && version >= PROTO_V5)
            return fail(handshake, CQLRING_INVALID,
                        "compression snappy does not exist in protocol v%u: use lz4 or v4",
                        version);
        return fail(handshake, CQLRING_INVALID,
                    "compression %s is required and the server does not offer it",
                    compression_name(handshake->config->compression));
    }
    handshake->shard = supported.shard;
    return send_startup(handshake, &supported, writer);
}

/* Anything but an answer that we await. */
static enum handshake_decision unexpected(struct handshake *handshake, uint8_t opcode)
{
    return fail(handshake, CQLRING_PROTOCOL,
                "unexpected answer with opcode 0x%02X while the connection is being set up",
                opcode);
}

static enum handshake_decision take_authenticate(struct handshake *handshake, cqlring_bytes body)
{
    cqlring_bytes name;
    if (cqr_decode_authenticate(body, &name) != CQLRING_OK)
        return fail(handshake, CQLRING_PROTOCOL, "STARTUP: the server's AUTHENTICATE is cut short");
    size_t size = (size_t)name.size < sizeof handshake->authenticator
                      ? (size_t)name.size
                      : sizeof handshake->authenticator - 1;
    memcpy(handshake->authenticator, name.data, size);
    handshake->authenticator[size] = '\0';
    handshake->challenge_size = -1;
    set_state(handshake, HANDSHAKE_AWAIT_CREDENTIALS);
    return HANDSHAKE_ASK_AUTH;
}

/* The answer to STARTUP settles the version; from the next byte on v5 speaks in segments, both
   ways. */
static enum handshake_decision take_startup_answer(struct handshake *handshake, uint8_t version,
                                                   uint8_t opcode, cqlring_bytes body,
                                                   struct writer *writer)
{
    if (opcode != OPCODE_READY && opcode != OPCODE_AUTHENTICATE)
        return unexpected(handshake, opcode);
    if (version != handshake->dialect.version) {
        char said[64];
        int size = snprintf(said, sizeof said, "it answered STARTUP in v%u", version);
        return refuse_version(handshake, version, (cqlring_bytes){said, size});
    }
    handshake->framed = version >= PROTO_V5;
    if (opcode == OPCODE_AUTHENTICATE)
        return take_authenticate(handshake, body);
    return go_on(handshake, HANDSHAKE_AWAIT_READY, writer);
}

static enum handshake_decision take_auth_answer(struct handshake *handshake, uint8_t opcode,
                                                cqlring_bytes body, struct writer *writer)
{
    bool is_success = opcode == OPCODE_AUTH_SUCCESS;
    if (!is_success && opcode != OPCODE_AUTH_CHALLENGE)
        return unexpected(handshake, opcode);
    cqlring_bytes challenge;
    if (cqr_decode_auth_token(body, &challenge) != CQLRING_OK) {
        if (!is_success)
            return fail(handshake, CQLRING_PROTOCOL,
                        "authentication: the server's AUTH_CHALLENGE is cut short");
        challenge = (cqlring_bytes){NULL, -1}; /* nobody may need it */
    }
    if (is_success && challenge.size > (int32_t)sizeof handshake->challenge)
        challenge.size = -1;
    if (challenge.size > (int32_t)sizeof handshake->challenge)
        return fail(handshake, CQLRING_PROTOCOL,
                    "authentication: a challenge of %d bytes is larger than %zu",
                    (int)challenge.size, sizeof handshake->challenge);
    handshake->challenge_size = challenge.size;
    if (challenge.size > 0)
        memcpy(handshake->challenge, challenge.data, (size_t)challenge.size);
    if (is_success)
        return go_on(handshake, HANDSHAKE_AWAIT_AUTH, writer);
    set_state(handshake, HANDSHAKE_AWAIT_CREDENTIALS);
    return HANDSHAKE_ASK_AUTH;
}

static enum handshake_decision take_keyspace(struct handshake *handshake, uint8_t opcode,
                                             cqlring_bytes body, struct writer *writer)
{
    uint32_t kind;
    if (opcode != OPCODE_RESULT || cqr_decode_result_kind(&body, &kind) != CQLRING_OK ||
        kind != RESULT_KEYSPACE)
        return unexpected(handshake, opcode);
    return go_on(handshake, HANDSHAKE_AWAIT_KEYSPACE, writer);
}

enum handshake_decision cqr_handshake_reply(struct handshake *handshake, uint8_t version,
                                            uint8_t flags, uint8_t opcode, cqlring_bytes body,
                                            struct writer *writer)
{
    enum handshake_state state = handshake->state;
    assert(state != HANDSHAKE_IDLE && state != HANDSHAKE_DONE && state != HANDSHAKE_FAILED);

    /* Until the version is settled an ERROR may come in any version, SUPPORTED in any up to
       ours. */
    version &= 0x7F;
    bool settled = state != HANDSHAKE_AWAIT_SUPPORTED && state != HANDSHAKE_AWAIT_READY;
    if (version != handshake->dialect.version && opcode != OPCODE_ERROR &&
        (settled || version > handshake->dialect.version))
        return fail(handshake, CQLRING_PROTOCOL, "the server answers in protocol v%u, asked in v%u",
                    version, handshake->dialect.version);
    struct response_prefix prefix;
    if (cqr_decode_prefix(flags, &body, &prefix) != CQLRING_OK)
        return fail(handshake, CQLRING_PROTOCOL, "the server's first answers are cut short");
    if (opcode == OPCODE_ERROR && state == HANDSHAKE_AWAIT_REGISTER && asks_for_routes(handshake)) {
        handshake->without_routes = true; /* an older one: the events that all know */
        return send_register(handshake, writer);
    }
    if (opcode == OPCODE_ERROR)
        return take_error(handshake, body);

    switch (state) {
    case HANDSHAKE_AWAIT_SUPPORTED:
        return opcode == OPCODE_SUPPORTED ? take_supported(handshake, body, writer)
                                          : unexpected(handshake, opcode);
    case HANDSHAKE_AWAIT_READY:
        return take_startup_answer(handshake, version, opcode, body, writer);
    case HANDSHAKE_AWAIT_AUTH: return take_auth_answer(handshake, opcode, body, writer);
    case HANDSHAKE_AWAIT_KEYSPACE: return take_keyspace(handshake, opcode, body, writer);
    case HANDSHAKE_AWAIT_REGISTER:
        return opcode == OPCODE_READY ? go_on(handshake, state, writer)
                                      : unexpected(handshake, opcode);
    default: return unexpected(handshake, opcode); /* nothing was asked */
    }
}

enum handshake_decision cqr_handshake_answer(struct handshake *handshake, cqlring_bytes token,
                                             struct writer *writer)
{
    assert(handshake->state == HANDSHAKE_AWAIT_CREDENTIALS);
    cqr_encode_auth_response(writer, &handshake->dialect, 0, token);
    return sent(handshake, writer, HANDSHAKE_AWAIT_AUTH);
}

cqlring_status cqr_auth_plain(cqlring_bytes user, cqlring_bytes password, uint8_t *out,
                              uint32_t capacity, uint32_t *size)
{
    if ((user.size > 0 && memchr(user.data, '\0', (size_t)user.size) != NULL) ||
        (password.size > 0 && memchr(password.data, '\0', (size_t)password.size) != NULL))
        return CQLRING_INVALID;
    struct writer writer;
    cqr_writer_init(&writer, out, capacity);
    cqr_put_u8(&writer, 0); /* nobody to act for */
    cqr_put_raw(&writer, user.data, user.size > 0 ? (uint32_t)user.size : 0);
    cqr_put_u8(&writer, 0);
    cqr_put_raw(&writer, password.data, password.size > 0 ? (uint32_t)password.size : 0);
    *size = writer.size;
    return writer.failed ? CQLRING_TOO_LARGE : CQLRING_OK;
}
