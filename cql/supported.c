/* SPDX-License-Identifier: Apache-2.0 */
#include "cql/supported.h"

#include <string.h>
#include <strings.h>

#include "cql/response.h"
#include "cql/token.h"

static bool is_text(cqlring_bytes text, const char *expected)
{
    size_t size = strlen(expected);
    return (size_t)text.size == size && strncasecmp((const char *)text.data, expected, size) == 0;
}

/* Decimal ASCII, nothing else, at most max. */
static bool parse_number(cqlring_bytes text, uint64_t max, uint64_t *out)
{
    const char *at = (const char *)text.data;
    uint64_t value = 0;
    if (text.size <= 0 || text.size > 19)
        return false;
    for (int32_t i = 0; i < text.size; ++i) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(at[i] - '0');
    }
    *out = value;
    return value <= max;
}

/* NAME=VALUE: the value, or false when the name is another. */
static bool parameter(cqlring_bytes text, const char *name, cqlring_bytes *value)
{
    int32_t size = (int32_t)strlen(name);
    const char *at = (const char *)text.data;
    if (text.size <= size || strncasecmp(at, name, (size_t)size) != 0 || at[size] != '=')
        return false;
    *value = (cqlring_bytes){.data = at + size + 1, .size = text.size - size - 1};
    return true;
}

/* "5/v5": the version, 0 for a beta ("6/v6-beta") or anything else. A v5-beta server has no
   segments: never v5. */
static uint32_t parse_version(cqlring_bytes text)
{
    const char *at = (const char *)text.data;
    int32_t slash = 0;
    while (slash < text.size && at[slash] != '/')
        ++slash;
    uint64_t version;
    if (!parse_number((cqlring_bytes){.data = at, .size = slash}, 31, &version))
        return 0;
    bool is_beta = false;
    for (int32_t i = slash; i < text.size; ++i)
        is_beta |= at[i] == '-';
    return is_beta ? 0 : (uint32_t)version;
}

static void append_version(struct supported *out, cqlring_bytes text)
{
    size_t size = strlen(out->versions);
    if (text.size <= 0 || size + 2 + (size_t)text.size >= sizeof out->versions)
        return;
    if (size > 0) {
        memcpy(out->versions + size, ", ", 2);
        size += 2;
    }
    memcpy(out->versions + size, text.data, (size_t)text.size);
    out->versions[size + (size_t)text.size] = '\0';
}

/* Sharding is taken as a whole or not at all. */
struct sharding {
    uint64_t shard, count, ignore_msb;
    bool has_shard, has_count, has_ignore_msb, has_algorithm, is_murmur3;
};

static void read_value(cqlring_bytes key, cqlring_bytes value, struct supported *out,
                       struct sharding *sharding)
{
    cqlring_bytes text;
    uint64_t number;
    if (is_text(key, "COMPRESSION")) {
        out->lz4 |= is_text(value, "lz4");
        out->snappy |= is_text(value, "snappy");
    } else if (is_text(key, "PROTOCOL_VERSIONS")) {
        uint32_t version = parse_version(value);
        if (version != 0)
            out->version_mask |= 1u << version;
        out->lists_versions = true;
        append_version(out, value);
    } else if (is_text(key, "SCYLLA_SHARD")) {
        sharding->has_shard = parse_number(value, UINT16_MAX, &sharding->shard);
    } else if (is_text(key, "SCYLLA_NR_SHARDS")) {
        sharding->has_count = parse_number(value, UINT16_MAX, &sharding->count);
    } else if (is_text(key, "SCYLLA_SHARDING_IGNORE_MSB")) {
        sharding->has_ignore_msb = parse_number(value, 63, &sharding->ignore_msb);
    } else if (is_text(key, "SCYLLA_SHARDING_ALGORITHM")) {
        sharding->has_algorithm = is_text(value, "biased-token-round-robin");
    } else if (is_text(key, "SCYLLA_PARTITIONER")) {
        sharding->is_murmur3 = cqr_partitioner_of(value) == PARTITIONER_MURMUR3;
    } else if (is_text(key, "SCYLLA_SHARD_AWARE_PORT")) {
        if (parse_number(value, UINT16_MAX, &number))
            out->shard.shard_aware_port = (uint16_t)number;
    } else if (is_text(key, "SCYLLA_SHARD_AWARE_PORT_SSL")) {
        if (parse_number(value, UINT16_MAX, &number))
            out->shard.shard_aware_port_tls = (uint16_t)number;
    } else if (is_text(key, "SCYLLA_LWT_ADD_METADATA_MARK")) {
        if (parameter(value, "LWT_OPTIMIZATION_META_BIT_MASK", &text) &&
            parse_number(text, UINT32_MAX, &number) && number != 0) {
            out->extensions |= EXT_LWT_MARK;
            out->lwt_mask = (uint32_t)number;
            out->lwt_text = value;
        }
    } else if (is_text(key, "SCYLLA_RATE_LIMIT_ERROR")) {
        if (parameter(value, "ERROR_CODE", &text) && parse_number(text, INT32_MAX, &number)) {
            out->extensions |= EXT_RATE_LIMIT;
            out->rate_limit_code = (int32_t)number;
        }
    }
}

/* Keys that mean something without a value. */
static void read_key(cqlring_bytes key, struct supported *out)
{
    if (is_text(key, "TABLETS_ROUTING_V1"))
        out->extensions |= EXT_TABLETS_V1;
    else if (is_text(key, "TABLETS_ROUTING_V2_EXPERIMENTAL"))
        out->extensions |= EXT_TABLETS_V2;
    else if (is_text(key, "SCYLLA_USE_METADATA_ID"))
        out->extensions |= EXT_METADATA_ID;
    else if (is_text(key, "SCYLLA_FAILURE_REASON_MAP"))
        out->extensions |= EXT_FAILURE_MAP;
}

cqlring_status cqr_supported_read(cqlring_bytes body, struct supported *out)
{
    *out = (struct supported){.version_mask = 0};
    struct sharding sharding = {.has_shard = false};
    uint16_t key_count;
    cqlring_bytes map;
    if (cqr_decode_supported(body, &key_count, &map) != CQLRING_OK)
        return CQLRING_PROTOCOL;
    for (uint32_t i = 0; i < key_count; ++i) {
        cqlring_bytes key, values;
        uint16_t value_count;
        if (cqr_next_multi(&map, &key, &value_count, &values) != CQLRING_OK)
            return CQLRING_PROTOCOL;
        read_key(key, out);
        for (uint32_t j = 0; j < value_count; ++j) {
            cqlring_bytes value;
            if (cqr_next_string(&values, &value) != CQLRING_OK)
                return CQLRING_PROTOCOL;
            read_value(key, value, out, &sharding);
        }
    }
    if (sharding.has_shard && sharding.has_count && sharding.has_ignore_msb &&
        sharding.has_algorithm && sharding.is_murmur3 && sharding.shard < sharding.count) {
        out->shard.shard = (uint16_t)sharding.shard;
        out->shard.shard_count = (uint16_t)sharding.count;
        out->shard.ignore_msb = (uint8_t)sharding.ignore_msb;
    } else {
        out->shard = (struct shard_info){.shard_count = 0};
    }
    return CQLRING_OK;
}

static uint16_t add(struct string_pair *options, uint16_t count, const char *key,
                    cqlring_bytes value)
{
    options[count] = (struct string_pair){.key = {.data = key, .size = (int32_t)strlen(key)},
                                          .value = value};
    return (uint16_t)(count + 1);
}

uint16_t cqr_supported_extensions(const struct supported *supported,
                                  const struct handshake_config *config, struct dialect *dialect,
                                  struct string_pair *options)
{
    const cqlring_bytes empty = {.data = "", .size = 0};
    uint8_t extensions = supported->extensions;
    uint16_t count = 0;

    if (!config->scylla_metadata_id || dialect->version >= PROTO_V5) /* v5 has it without asking */
        extensions &= (uint8_t)~EXT_METADATA_ID;
    if (!config->tablets_v2)
        extensions &= (uint8_t)~EXT_TABLETS_V2;
    if ((extensions & EXT_TABLETS_V2) != 0) /* v2 is asked for instead of v1, never with it */
        extensions &= (uint8_t)~EXT_TABLETS_V1;

    if ((extensions & EXT_LWT_MARK) != 0) {
        dialect->lwt_mask = supported->lwt_mask;
        count = add(options, count, "SCYLLA_LWT_ADD_METADATA_MARK", supported->lwt_text);
    }
    if ((extensions & EXT_RATE_LIMIT) != 0) {
        dialect->rate_limit_code = supported->rate_limit_code;
        count = add(options, count, "SCYLLA_RATE_LIMIT_ERROR", empty);
    }
    if ((extensions & EXT_TABLETS_V1) != 0)
        count = add(options, count, "TABLETS_ROUTING_V1", empty);
    if ((extensions & EXT_TABLETS_V2) != 0)
        count = add(options, count, "TABLETS_ROUTING_V2_EXPERIMENTAL", empty);
    if ((extensions & EXT_METADATA_ID) != 0)
        count = add(options, count, "SCYLLA_USE_METADATA_ID", empty);
    if ((extensions & EXT_FAILURE_MAP) != 0)
        count = add(options, count, "SCYLLA_FAILURE_REASON_MAP", empty);
    dialect->extensions = extensions;
    return count;
}
