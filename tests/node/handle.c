/* SPDX-License-Identifier: Apache-2.0 */
/* One request to one reply: the handshake here, statements in statements.c. */
#include "tests/node/handle.h"

#include <stdio.h>

#include "cql/frame.h"
#include "tests/node/tablets.h"

/* --- replies ---------------------------------------------------------------------------------- */

size_t node_reply_begin(struct node_conn *conn, uint8_t opcode, uint8_t flags, int16_t stream)
{
    conn->reply.size = 0;
    uint8_t *at = out_room(&conn->reply, PROTO_HEADER_SIZE);
    at[0] = (uint8_t)(0x80 | conn->dialect.version);
    at[1] = flags;
    cqr_store_u16(at + 2, (uint16_t)stream);
    at[4] = opcode;
    return PROTO_HEADER_SIZE;
}

void node_reply_end(struct node_conn *conn)
{
    struct out *reply = &conn->reply;
    uint32_t size = (uint32_t)(reply->size - PROTO_HEADER_SIZE);
    if (conn->packs != COMPRESSION_NONE && conn->dialect.version < PROTO_V5 && size >= 64 &&
        reply->data[4] != OPCODE_SUPPORTED) {
        uint32_t bound = cqr_compress_bound(size) + 4;
        uint8_t *packed = node_alloc(bound);
        uint32_t packed_size = cqr_body_compress(
            conn->packs, conn->cluster->compressor, reply->data + PROTO_HEADER_SIZE, size, packed, bound);
        if (packed_size > 0) {
            reply->size = PROTO_HEADER_SIZE;
            out_raw(reply, packed, packed_size);
            reply->data[1] |= FLAG_COMPRESSED;
            size = packed_size;
        }
        node_free(packed);
    }
    cqr_store_u32(reply->data + 5, size);
}

static const struct strike no_strike = {0};

void node_reply_error(struct node_conn *conn, int16_t stream, int32_t code, const char *message)
{
    (void)node_reply_begin(conn, OPCODE_ERROR, 0, stream);
    out_u32(&conn->reply, (uint32_t)code);
    out_text(&conn->reply, message);
    node_reply_end(conn);
    ++conn_counters(conn)->errors;
    node_conn_deliver(conn, &no_strike);
}

void node_refuse_version(struct node_conn *conn, uint8_t version_byte)
{
    const struct node_options *options = &conn->cluster->options;
    uint8_t version = version_byte & 0x7F, answer = options->version_max;
    char message[200];
    const char *format =
        "Invalid or unsupported protocol version (%u); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)";
    bool known = version >= 3 && version <= 5;
    switch (options->refusal) {
    case NODE_REFUSE_CASSANDRA_5:
    case NODE_REFUSE_CASSANDRA_4:
        if (options->version_max < 5)
            format =
                "Invalid or unsupported protocol version (%u); supported versions are (3/v3, 4/v4)";
        if (version < options->version_min && known)
            format = "Rejecting Protocol Version %u < 5/v5.";
        break;
    case NODE_REFUSE_CASSANDRA_3:
        format =
            "Invalid or unsupported protocol version (%u); supported versions are (3/v3, 4/v4, 5/v5-beta)";
        answer = 5;
        break;
    case NODE_REFUSE_CASSANDRA_2:
        format =
            "Invalid or unsupported protocol version (%u); the lowest supported version is 3 and the greatest is 4";
        break;
    case NODE_REFUSE_SCYLLA:
        format = "Invalid or unsupported protocol version: %u";
        answer = 4;
        break;
    case NODE_REFUSE_BETA:
        format = "Beta version of the protocol used (%u/v5-beta), but USE_BETA flag is unset";
        break;
    case NODE_REFUSE_CLOSE: break;
    }
    ++conn_counters(conn)->refused;
    conn->closing = true;
    if (options->refusal == NODE_REFUSE_CLOSE)
        return;
    (void)snprintf(message, sizeof message, format,
                   version); /* the formats above take one number */
    struct out out = {0};
    out_u8(&out, (uint8_t)(0x80 | (version < 3 ? version : answer)));
    out_u8(&out, 0);
    if (version < 3)
        out_u8(&out, 0); /* v1 and v2 have one byte of stream */
    else
        out_u16(&out, 0);
    out_u8(&out, OPCODE_ERROR);
    out_u32(&out, (uint32_t)(4 + 2 + strlen(message)));
    out_u32(&out, ERROR_PROTOCOL);
    out_text(&out, message);
    ++conn_counters(conn)->errors;
    if (!conn->silent && !conn->cluster->nodes[conn->node].silent)
        node_conn_push(conn, out.data, out.size);
    node_out_fini(&out);
    node_conn_flush(conn, false);
}

/* --- what was seen ---------------------------------------------------------------------------- */

static void copy_text(char *target, size_t size, cqlring_bytes text)
{
    size_t n = text.size < 0 ? 0 : (size_t)text.size < size ? (size_t)text.size : size - 1;
    if (n > 0)
        memcpy(target, text.data, n);
    target[n] = 0;
}

static uint16_t payload_count(cqlring_bytes payload)
{
    return payload.data == NULL || payload.size < 2 ? 0 : cqr_load_u16(slice_data(payload));
}

/* The record is written where it stays: one for each opcode. */
struct node_seen *node_seen_begin(struct node_conn *conn, const struct hand *hand)
{
    struct node_state *node = &conn->cluster->nodes[conn->node];
    const struct request *request = &hand->request;
    uint32_t slot = hand->opcode < OPCODE_OTHER ? hand->opcode : OPCODE_OTHER;
    struct node_seen *seen = &node->seen[slot];
    node->seen_any[slot] = true;
    seen->number = ++conn->cluster->seen_number;
    seen->node = conn->node;
    seen->conn = conn->number;
    seen->version = conn->dialect.version;
    seen->opcode = hand->opcode;
    seen->flags = hand->flags;
    seen->compressed = hand->compressed;
    seen->stream = hand->stream;
    seen->body_size = hand->body_size;
    seen->payload_count = payload_count(request->payload);
    seen->has_token = seen->is_replica = seen->is_shard = false;
    seen->shard = conn->shard;
    seen->keyspace[0] = seen->text[0] = 0;
    if (hand->opcode == OPCODE_STARTUP || hand->opcode == OPCODE_OPTIONS ||
        hand->opcode == OPCODE_REGISTER || hand->opcode == OPCODE_AUTH_RESPONSE)
        return seen;
    const struct query_params *params = &request->params;
    seen->consistency = params->consistency;
    seen->serial_consistency = params->serial_consistency;
    seen->has_timestamp = params->has_timestamp;
    seen->has_now = params->has_now;
    seen->skip_metadata = params->skip_metadata;
    seen->has_names = params->has_names;
    seen->has_values = params->has_values;
    seen->has_paging_state = params->paging_state.data != NULL;
    seen->timestamp_us = params->timestamp_us;
    seen->page_size = params->page_size;
    seen->now_in_seconds = params->now_in_seconds;
    seen->value_count = request->value_count;
    seen->batch_kind = request->batch_kind;
    seen->batch_count = request->batch_count;
    copy_text(seen->keyspace, sizeof seen->keyspace,
              request->keyspace.size > 0 ? request->keyspace : params->keyspace);
    copy_text(seen->text, sizeof seen->text, request->text);
    return seen;
}

void node_seen_text(struct node_seen *seen, cqlring_bytes text)
{
    copy_text(seen->text, sizeof seen->text, text);
}

void node_seen_end(struct node_conn *conn, const struct node_seen *seen)
{
    if (conn->cluster->options.on_request != NULL)
        conn->cluster->options.on_request(seen, conn->cluster->options.context);
}

/* --- the handshake ---------------------------------------------------------------------------- */

static void put_multi(struct out *out, const char *key, const char *const *values, uint16_t count)
{
    out_text(out, key);
    out_u16(out, count);
    for (uint16_t i = 0; i < count; ++i)
        out_text(out, values[i]);
}

static void put_multi_number(struct out *out, const char *key, uint64_t number)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    const char *values[] = {text};
    put_multi(out, key, values, 1);
}

/* How many were put. */
static uint16_t put_scylla(const struct node_conn *conn, struct out *out)
{
    static const char *const algorithm[] = {"biased-token-round-robin"};
    static const char *const partitioner[] = {"org.apache.cassandra.dht.Murmur3Partitioner"};
    static const char *const lwt[] = {"LWT_OPTIMIZATION_META_BIT_MASK=2147483648"};
    static const char *const rate[] = {"ERROR_CODE=61440"};
    const struct node_options *options = &conn->cluster->options;
    const struct node_member *member = &conn->cluster->engine.members[conn->node];
    uint16_t shard_port = member->shard_port_is == NODE_SHARD_PORT_UNLISTED ? 0 : member->shard_port;
    put_multi_number(out, "SCYLLA_SHARD", conn->shard);
    put_multi_number(out, "SCYLLA_NR_SHARDS", member->shards);
    put_multi_number(out, "SCYLLA_SHARDING_IGNORE_MSB", NODE_IGNORE_MSB);
    put_multi(out, "SCYLLA_SHARDING_ALGORITHM", algorithm, 1);
    put_multi(out, "SCYLLA_PARTITIONER", partitioner, 1);
    put_multi(out, "SCYLLA_LWT_ADD_METADATA_MARK", lwt, 1);
    put_multi(out, "SCYLLA_RATE_LIMIT_ERROR", rate, 1);
    put_multi(out, "SCYLLA_USE_METADATA_ID", NULL, 0);
    uint16_t count = 8;
    if (options->tablets) {
        put_multi(out, "TABLETS_ROUTING_V1", NULL, 0);
        ++count;
    }
    if (shard_port != 0) {
        put_multi_number(out,
                         options->tls_cert != NULL ? "SCYLLA_SHARD_AWARE_PORT_SSL"
                                                   : "SCYLLA_SHARD_AWARE_PORT",
                         shard_port);
        ++count;
    }
    return count;
}

static void handle_options(struct node_conn *conn, struct hand *hand)
{
    const struct node_options *options = &conn->cluster->options;
    static const char *const versions[] = {"3/v3", "4/v4", "5/v5", "6/v6-beta"};
    static const char *const beta[] = {"3/v3", "4/v4", "5/v5-beta"};
    const char *compressions[2];
    uint16_t count = 0;
    if (!options->no_lz4)
        compressions[count++] = "lz4";
    if (options->snappy_listed)
        compressions[count++] = "snappy";
    (void)node_reply_begin(conn, OPCODE_SUPPORTED, 0, hand->stream);
    struct out *out = &conn->reply;
    bool scylla = options->shards > 0;
    const char *cql[] = {scylla ? "3.3.1" : "3.4.7"};
    uint16_t keys = 2;
    out_u16(out, 0);
    put_multi(out, "CQL_VERSION", cql, 1);
    put_multi(out, "COMPRESSION", compressions, count);
    if (scylla) {
        keys = (uint16_t)(keys + put_scylla(conn, out));
    } else if (options->refusal == NODE_REFUSE_CASSANDRA_3 ||
               options->refusal == NODE_REFUSE_BETA) {
        put_multi(out, "PROTOCOL_VERSIONS", beta, 3);
        ++keys;
    } else if (options->refusal != NODE_REFUSE_CASSANDRA_2 &&
               options->refusal != NODE_REFUSE_SCYLLA) {
        uint16_t first = (uint16_t)(options->version_min - 3);
        put_multi(out, "PROTOCOL_VERSIONS", versions + first,
                  (uint16_t)(options->version_max - 2 - first + (options->version_max == 5)));
        ++keys;
    }
    cqr_store_u16(out->data + PROTO_HEADER_SIZE, keys);
    node_reply_end(conn);
    node_conn_deliver(conn, &hand->strike);
}

static bool option_is(const struct startup_option *option, const char *key)
{
    return node_slice_is_nocase(slice_text(option->key), key);
}

/* Answer a handshake message with an error that ends the connection. */
static void fail_handshake(struct node_conn *conn, const struct hand *hand, int32_t code,
                           const char *message)
{
    node_reply_error(conn, hand->stream, code, message);
    conn->closing = true;
    if (code == ERROR_CREDENTIALS)
        ++conn_counters(conn)->refused;
}

static void read_startup(struct node_conn *conn, struct hand *hand)
{
    cqlring_bytes map = hand->request.map, key, value;
    for (uint16_t i = 0; i < hand->request.map_count; ++i) {
        if (cqr_next_string(&map, &key) != CQLRING_OK ||
            cqr_next_string(&map, &value) != CQLRING_OK || conn->option_count == 16)
            break;
        struct startup_option *option = &conn->options[conn->option_count++];
        copy_text(option->key, sizeof option->key, key);
        copy_text(option->value, sizeof option->value, value);
    }
    memcpy(conn->cluster->last_startup, conn->options, sizeof conn->options);
    conn->cluster->last_startup_count = conn->option_count;
}

static void negotiate_extensions(struct node_conn *conn)
{
    for (uint32_t i = 0; i < conn->option_count && conn->cluster->options.shards > 0; ++i) {
        const struct startup_option *option = &conn->options[i];
        if (option_is(option, "SCYLLA_USE_METADATA_ID"))
            conn->dialect.extensions |= EXT_METADATA_ID;
        if (option_is(option, "SCYLLA_LWT_ADD_METADATA_MARK")) {
            conn->dialect.extensions |= EXT_LWT_MARK;
            conn->dialect.lwt_mask = 0x80000000u;
        }
        if (option_is(option, "SCYLLA_RATE_LIMIT_ERROR")) {
            conn->dialect.extensions |= EXT_RATE_LIMIT;
            conn->dialect.rate_limit_code = 0xF000;
        }
        if (option_is(option, "TABLETS_ROUTING_V1") && conn->cluster->options.tablets)
            conn->dialect.extensions |= EXT_TABLETS_V1;
    }
}

static void become_ready(struct node_conn *conn)
{
    conn->state = CONN_READY;
    ++conn_counters(conn)->ready;
}

static void handle_startup(struct node_conn *conn, struct hand *hand)
{
    if (conn->state != CONN_AWAIT_STARTUP) {
        fail_handshake(conn, hand, ERROR_PROTOCOL,
                       "Unexpected message STARTUP: the connection is started already");
        return;
    }
    read_startup(conn, hand);
    const struct startup_option *version = NULL, *compression = NULL;
    for (uint32_t i = 0; i < conn->option_count; ++i) {
        if (option_is(&conn->options[i], "CQL_VERSION"))
            version = &conn->options[i];
        if (option_is(&conn->options[i], "COMPRESSION"))
            compression = &conn->options[i];
    }
    if (version == NULL) {
        fail_handshake(conn, hand, ERROR_PROTOCOL, "Missing value CQL_VERSION in STARTUP message");
        return;
    }
    if (compression != NULL && node_slice_is_nocase(slice_text(compression->value), "lz4") &&
        !conn->cluster->options.no_lz4) {
        conn->lz4 = true;
        conn->packs = COMPRESSION_LZ4;
    } else if (compression != NULL && node_slice_is_nocase(slice_text(compression->value), "snappy") &&
               conn->cluster->options.snappy_listed && conn->dialect.version < PROTO_V5) {
        conn->packs = COMPRESSION_SNAPPY;
    } else if (compression != NULL && compression->value[0] != 0) {
        char message[200];
        (void)snprintf(message, sizeof message, "Unknown compression algorithm: %s",
                       compression->value);
        fail_handshake(conn, hand, ERROR_PROTOCOL, message);
        return;
    }
    negotiate_extensions(conn);
    conn->framed_in = conn->dialect.version >= PROTO_V5;
    const struct node_options *options = &conn->cluster->options;
    bool asks = options->auth_nodes == 0 || (options->auth_nodes >> conn->node & 1) != 0;
    if (options->user != NULL && asks) {
        conn->state = CONN_AWAIT_AUTH;
        (void)node_reply_begin(conn, OPCODE_AUTHENTICATE, 0, hand->stream);
        out_text(&conn->reply, options->authenticator);
    } else {
        become_ready(conn);
        (void)node_reply_begin(conn, OPCODE_READY, 0, hand->stream);
    }
    node_reply_end(conn);
    node_conn_deliver(conn, &hand->strike);
}

/* authzid NUL user NUL password */
static bool credentials_fit(struct node_conn *conn, cqlring_bytes token)
{
    const struct node_options *options = &conn->cluster->options;
    const uint8_t *at = slice_data(token), *end = at + (token.size < 0 ? 0 : token.size);
    const uint8_t *first = at == end ? NULL : memchr(at, 0, (size_t)(end - at));
    const uint8_t *second = first == NULL ? NULL : memchr(first + 1, 0, (size_t)(end - first - 1));
    if (second == NULL)
        return false;
    cqlring_bytes user = slice_of(first + 1, (size_t)(second - first - 1)),
                  password = slice_of(second + 1, (size_t)(end - second - 1));
    copy_text(conn->user, sizeof conn->user, user);
    return slice_is(user, options->user) && slice_is(password, options->password);
}

static void handle_auth(struct node_conn *conn, struct hand *hand)
{
    if (conn->state != CONN_AWAIT_AUTH) {
        fail_handshake(conn, hand, ERROR_PROTOCOL, "Unexpected message AUTH_RESPONSE");
        return;
    }
    if (conn->auth_round < conn->cluster->options.auth_rounds) {
        char text[32];
        int size = snprintf(text, sizeof text, "round %u", ++conn->auth_round);
        (void)node_reply_begin(conn, OPCODE_AUTH_CHALLENGE, 0, hand->stream);
        out_bytes(&conn->reply, slice_of(text, (size_t)size));
    } else if (!credentials_fit(conn, hand->request.text)) {
        fail_handshake(conn, hand, ERROR_CREDENTIALS,
                       "Provided username and/or password are incorrect");
        return;
    } else {
        become_ready(conn);
        (void)node_reply_begin(conn, OPCODE_AUTH_SUCCESS, 0, hand->stream);
        out_bytes(&conn->reply, SLICE_NULL);
    }
    node_reply_end(conn);
    node_conn_deliver(conn, &hand->strike);
}

static void handle_register(struct node_conn *conn, struct hand *hand)
{
    cqlring_bytes map = hand->request.map, type;
    uint32_t wanted = 0;
    for (uint16_t i = 0; i < hand->request.map_count; ++i) {
        if (cqr_next_string(&map, &type) != CQLRING_OK)
            break;
        uint32_t kind = slice_is(type, "TOPOLOGY_CHANGE") ? EVENT_TOPOLOGY
                        : slice_is(type, "STATUS_CHANGE") ? EVENT_STATUS
                        : slice_is(type, "SCHEMA_CHANGE") ? EVENT_SCHEMA
                        : conn->cluster->options.client_routes && slice_is(type, "CLIENT_ROUTES_CHANGE")
                            ? EVENT_ROUTES
                            : 0;
        if (kind == 0) {
            char message[120];
            (void)snprintf(message, sizeof message, "Invalid value '%.*s' for Type",
                           type.size > 60 ? 60 : (int)type.size, (const char *)type.data);
            node_reply_error(conn, hand->stream, ERROR_PROTOCOL, message);
            return;
        }
        wanted |= kind;
    }
    conn->registered |= wanted;
    (void)node_reply_begin(conn, OPCODE_READY, 0, hand->stream);
    node_reply_end(conn);
    node_conn_deliver(conn, &hand->strike);
}

/* --- the entrance ----------------------------------------------------------------------------- */

static void count_request(struct node_conn *conn, uint8_t opcode)
{
    struct node_counters *counters = conn_counters(conn);
    ++counters->requests;
    ++counters->opcodes[opcode < OPCODE_OTHER ? opcode : OPCODE_OTHER];
    ++conn->requests;
}

/* Faults of requests that are not statements. true: answered, or not to be. */
static bool strike_handshake(struct node_conn *conn, struct hand *hand)
{
    const struct fault *fault = hand->strike.fault;
    if (fault == NULL)
        return false;
    if (fault->plan.kind == NODE_FAULT_IGNORE)
        return true;
    if (fault->plan.kind == NODE_FAULT_ERROR) {
        node_reply_planned_error(conn, hand, &fault->plan, 0);
        return true;
    }
    if (fault->plan.kind == NODE_FAULT_BETA) {
        fail_handshake(conn, hand, ERROR_PROTOCOL,
                       "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset");
        return true;
    }
    return false;
}

void node_handle(struct node_conn *conn, uint8_t flags, int16_t stream, uint8_t opcode,
                 cqlring_bytes body, bool compressed)
{
    struct hand hand = {.opcode = opcode,
                        .flags = flags,
                        .stream = stream,
                        .compressed = compressed,
                        .body_size = (uint32_t)body.size};
    count_request(conn, opcode);
    bool statement = opcode == OPCODE_QUERY || opcode == OPCODE_EXECUTE || opcode == OPCODE_BATCH ||
                     opcode == OPCODE_PREPARE;
    bool known = statement || opcode == OPCODE_STARTUP || opcode == OPCODE_OPTIONS ||
                 opcode == OPCODE_REGISTER || opcode == OPCODE_AUTH_RESPONSE;
    if (!known) {
        char message[64];
        (void)snprintf(message, sizeof message, "Unknown opcode %u", opcode);
        node_reply_error(conn, stream, ERROR_PROTOCOL, message);
        return;
    }
    if (cqr_decode_request(&conn->dialect, opcode, flags, body, &hand.request) != CQLRING_OK) {
        node_reply_error(conn, stream, ERROR_PROTOCOL,
                         "The message does not hold what its opcode says");
        return;
    }
    if (statement && conn->state == CONN_READY) {
        node_handle_statement(conn, &hand);
        return;
    }
    struct node_seen *seen = node_seen_begin(conn, &hand);
    node_seen_end(conn, seen);
    if (conn->cluster->faults != NULL) {
        hand.strike = node_fault_pick(conn, seen, NULL);
        if (strike_handshake(conn, &hand))
            return;
    }
    if (opcode == OPCODE_OPTIONS)
        handle_options(conn, &hand);
    else if (opcode == OPCODE_STARTUP)
        handle_startup(conn, &hand);
    else if (opcode == OPCODE_AUTH_RESPONSE)
        handle_auth(conn, &hand);
    else if (opcode == OPCODE_REGISTER && conn->state == CONN_READY)
        handle_register(conn, &hand);
    else
        fail_handshake(conn, &hand, ERROR_PROTOCOL,
                       conn->state == CONN_AWAIT_AUTH
                           ? "Unexpected message, expecting SASL_RESPONSE"
                           : "Unexpected message, expecting STARTUP or OPTIONS");
}
