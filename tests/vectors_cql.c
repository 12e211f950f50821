/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/ring_map.h"
#include "cql/segment.h"
#include "cql/tablet_map.h"
#include "cql/token.h"
#include "serialize/buf.h"
#include "serialize/compress.h"
#include "tests/vectors.h"
#include "tests/vectors_bytes.h"
#include "tests/vectors_frames.h"

/* Checksums, segments, tokens, rings and tablets. Requests and responses are in
   vectors_frames.c. */

static int64_t number_of(const json_t *json)
{
    return json_is_string(json) ? strtoll(json_string_value(json), NULL, 10)
                                : json_integer_value(json);
}

/* --- checksums and segments ------------------------------------------------------------------- */

static void run_crc(struct vector_row *row)
{
    cqlring_bytes input = vector_hex(row, "input_hex");
    cqlring_bytes wanted = vector_hex(row, "value_hex");
    cqlring_bytes wire = vector_hex(row, "wire_hex");
    bool is_24 = strcmp(vector_text(row, "algo"), "crc24") == 0;
    uint32_t size = is_24 ? 3 : 4;
    uint32_t crc = is_24 ? cqr_crc24(input.data, (uint32_t)input.size)
                         : cqr_crc32(input.data, (uint32_t)input.size);
    uint8_t big_endian[4];
    cqr_store_u32(big_endian, crc);
    vector_check_bytes(row, "value", (cqlring_bytes){big_endian + 4 - size, (int32_t)size}, wanted);
    vector_check_bytes(row, "as written", (cqlring_bytes){&crc, (int32_t)size}, wire);
}

/* Take the encoded segments apart: the fields that the row lists, and the payload. Unless they are
   `theirs`, what depends on the compressor is not compared. */
static void decode_segments(struct vector_row *row, bool lz4, bool theirs, cqlring_bytes encoded,
                            cqlring_bytes payload, json_t *listed)
{
    const uint8_t *at = encoded.data;
    uint32_t left = (uint32_t)encoded.size;
    uint8_t *got = vector_room(row, (size_t)payload.size + PROTO_SEGMENT_PAYLOAD_MAX);
    uint32_t got_size = 0;
    for (size_t i = 0; i < json_array_size(listed); ++i) {
        json_t *fields = json_array_get(listed, i);
        struct segment_header header;
        if (!vector_check_int(row, "segment_cut", cqr_segment_cut(at, left, lz4, &header),
                              SEGMENT_WHOLE))
            return;
        vector_check_int(row, "self_contained", header.self_contained,
                         number_of(json_array_get(fields, 3)));
        if (theirs) {
            vector_check_int(row, "wire_size", header.wire_size,
                             number_of(json_array_get(fields, 1)));
            vector_check_int(row, "uncompressed_size", header.uncompressed_size,
                             number_of(json_array_get(fields, 2)));
            vector_check_bytes(row, "header", (cqlring_bytes){at, header.header_size},
                               vector_hex_of(row, json_string_value(json_array_get(fields, 0))));
        }
        const uint8_t *wire = at + header.header_size;
        if (lz4 && header.uncompressed_size > 0) {
            vector_check_status(row, "decompress",
                                cqr_lz4_decompress_raw(wire, header.wire_size, got + got_size,
                                                       header.uncompressed_size),
                                CQLRING_OK);
            got_size += header.uncompressed_size;
        } else {
            memcpy(got + got_size, wire, header.wire_size);
            got_size += header.wire_size;
        }
        uint32_t whole = header.header_size + header.wire_size + CQR_SEGMENT_TRAILER_SIZE;
        at += whole;
        left -= whole;
    }
    vector_check_int(row, "bytes behind the last segment", left, 0);
    vector_check_bytes(row, "payload", (cqlring_bytes){got, (int32_t)got_size}, payload);
}

/* One segment out of a slice of the payload; returns its size. */
static uint32_t encode_segment(struct compress_state *state, const uint8_t *slice, uint32_t size,
                               bool lz4, bool self_contained, uint8_t *out)
{
    if (!lz4) {
        memcpy(out + CQR_SEGMENT_HEADER_SIZE, slice, size);
        return cqr_segment_seal(out, size, self_contained);
    }
    uint8_t *wire = out + CQR_SEGMENT_LZ4_HEADER_SIZE;
    uint32_t wire_size = cqr_lz4_compress_raw(state, slice, size, wire, size);
    if (wire_size != 0 && wire_size < size)
        return cqr_segment_seal_lz4(out, wire_size, size, self_contained);
    memcpy(wire, slice, size);
    return cqr_segment_seal_lz4(out, size, 0, self_contained);
}

static void run_segments(struct vector_row *row)
{
    bool lz4 = strcmp(vector_text(row, "mode"), "lz4") == 0;
    cqlring_bytes payload = vector_bytes_of(row, vector_text(row, "payload"));
    json_t *listed = vector_json(row, "segments_json");
    uint32_t slice_count = (uint32_t)vector_int(row, "n_segments");
    vector_check_int(row, "payload_len", payload.size, vector_int(row, "payload_len"));

    struct compress_state *state = cqr_compress_state_create();
    uint8_t *ours = vector_room(row, slice_count * (size_t)CQR_SEGMENT_MAX);
    uint32_t ours_size = 0, done = 0;
    bool all_stored = true;
    for (uint32_t i = 0; i < slice_count; ++i) {
        uint32_t size = (uint32_t)payload.size - done;
        if (size > PROTO_SEGMENT_PAYLOAD_MAX)
            size = PROTO_SEGMENT_PAYLOAD_MAX;
        uint8_t *at = ours + ours_size;
        const uint8_t *slice = (const uint8_t *)payload.data + done;
        ours_size += encode_segment(state, slice, size, lz4, slice_count == 1, at);
        json_t *fields = json_array_get(listed, i);
        if (lz4 && number_of(json_array_get(fields, 2)) != 0)
            all_stored = false; /* what a compressor makes of it is its own affair */
        else
            vector_check_bytes(
                row, "our header",
                (cqlring_bytes){at, lz4 ? CQR_SEGMENT_LZ4_HEADER_SIZE : CQR_SEGMENT_HEADER_SIZE},
                vector_hex_of(row, json_string_value(json_array_get(fields, 0))));
        done += size;
    }
    cqr_compress_state_destroy(state);
    cqlring_bytes encoded = {.data = ours, .size = (int32_t)ours_size};
    const char *wanted = vector_text(row, "encoded");
    /* Where a compressor had its say, ours is only read back, and theirs is read when it is spelled
       out. */
    if (all_stored) {
        vector_check_named(row, "encoded", encoded, wanted);
        vector_check_int(row, "encoded_len", encoded.size, vector_int(row, "encoded_len"));
    }
    decode_segments(row, lz4, all_stored, encoded, payload, listed);
    if (strncmp(wanted, "hex:", 4) == 0)
        decode_segments(row, lz4, true, vector_bytes_of(row, wanted), payload, listed);
}

static void run_segments_bad(struct vector_row *row)
{
    cqlring_bytes encoded = vector_hex(row, "encoded_hex");
    bool lz4 = strcmp(vector_text(row, "mode"), "lz4") == 0;
    bool in_header = strcmp(vector_text(row, "expect"), "header_crc") == 0;
    struct segment_header header;
    vector_check_int(row, "segment_cut",
                     cqr_segment_cut(encoded.data, (uint32_t)encoded.size, lz4, &header),
                     in_header ? SEGMENT_BAD_HEADER : SEGMENT_BAD_PAYLOAD);
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void run_murmur3(struct vector_row *row)
{
    cqlring_bytes key = vector_hex(row, "key_hex");
    vector_check_int(row, "raw_hash", cqr_murmur3_raw(key.data, (uint32_t)key.size),
                     vector_int(row, "raw_hash"));
    vector_check_int(row, "token", cqr_murmur3(key.data, (uint32_t)key.size),
                     vector_int(row, "token"));
}

/* Sixteen bytes, big-endian, as a decimal number. */
static const char *decimal_of(struct vector_row *row, const uint8_t number[16])
{
    uint8_t left[16];
    memcpy(left, number, sizeof left);
    char *text = vector_room(row, 48);
    char *at = text + 47;
    for (bool more = true; more;) {
        unsigned remainder = 0;
        more = false;
        for (int i = 0; i < 16; ++i) {
            unsigned value = remainder << 8 | left[i];
            left[i] = (uint8_t)(value / 10);
            remainder = value % 10;
            more |= left[i] != 0;
        }
        *--at = (char)('0' + remainder);
    }
    return at;
}

static void run_random_partitioner(struct vector_row *row)
{
    cqlring_bytes key = vector_hex(row, "key_hex");
    uint8_t token[16];
    cqr_random_token(key.data, (uint32_t)key.size, token);
    vector_check_text(row, "token", decimal_of(row, token), vector_text(row, "token"));
}

static void run_routing_keys(struct vector_row *row)
{
    json_t *components = vector_json(row, "components_json");
    uint16_t count = (uint16_t)json_array_size(components);
    cqlring_bytes *cells = vector_room(row, (count + 1u) * sizeof *cells);
    uint16_t *indexes = vector_room(row, (count + 1u) * sizeof *indexes);
    size_t room = 0;
    for (uint16_t i = 0; i < count; ++i) {
        /* The row's cells stand the other way round, so that the indexes matter. */
        indexes[i] = (uint16_t)(count - 1 - i);
        cells[indexes[i]] = vector_bytes_of(row, json_string_value(json_array_get(components, i)));
        room += (size_t)cells[indexes[i]].size + 3;
    }
    cqlring_bytes key = {.data = "", .size = 0};
    uint8_t *scratch = vector_room(row, room);
    if (!vector_check(row, cqr_routing_key(cells, indexes, count, scratch, (uint32_t)room, &key),
                      "there is a routing key"))
        return;
    vector_check_named(row, "routing_key", key, vector_text(row, "routing_key_hex"));
    vector_check_int(row, "token", cqr_murmur3(key.data, (uint32_t)key.size),
                     vector_int(row, "token"));
    cqlring_bytes composed;
    if (count > 1)
        vector_check(
            row, !cqr_routing_key(cells, indexes, count, scratch, (uint32_t)room - 1, &composed),
            "one byte less is too little");
}

static void run_shards(struct vector_row *row)
{
    vector_check_int(row, "shard",
                     cqr_shard_of(vector_int(row, "token"), (uint16_t)vector_int(row, "nr_shards"),
                                  (uint8_t)vector_int(row, "ignore_msb")),
                     vector_int(row, "shard"));
}

/* --- rings ------------------------------------------------------------------------------------ */

struct cluster {
    const char *names[256]; /* interned DC and rack names */
    uint16_t name_count;
    const char *hosts[256];
    struct ring_node nodes[256];
    uint32_t node_count;
};

static uint16_t intern(struct cluster *cluster, const char *name, bool add)
{
    for (uint16_t i = 0; i < cluster->name_count; ++i) {
        if (strcmp(cluster->names[i], name) == 0)
            return i;
    }
    if (!add)
        return UINT16_MAX;
    cluster->names[cluster->name_count] = name;
    return cluster->name_count++;
}

static cqlring_bytes text_of(const json_t *json)
{
    return (cqlring_bytes){.data = json_string_value(json),
                           .size = (int32_t)json_string_length(json)};
}

static void read_replication(struct vector_row *row, struct cluster *cluster, json_t *json,
                             struct replication *out)
{
    *out = (struct replication){.dcs = vector_room(row, 64 * sizeof *out->dcs)};
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        if (strcmp(key, "class") == 0) {
            out->strategy = cqr_strategy_of(text_of(value));
        } else if (strcmp(key, "replication_factor") == 0) {
            vector_check(row, cqr_factor_parse(text_of(value), &out->factor, &out->transient_count),
                         "factor");
        } else {
            struct dc_factor *dc = &out->dcs[out->dc_count++];
            dc->dc = intern(cluster, key, false);
            vector_check(row, cqr_factor_parse(text_of(value), &dc->all, &dc->transient_count),
                         "factor of a DC");
        }
    }
}

static json_t *names_of(const struct cluster *cluster, const uint32_t *nodes, uint32_t count)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < count; ++i)
        json_array_append_new(names, json_string(cluster->hosts[nodes[i]]));
    return names;
}

static void probe_ring(struct vector_row *row, const struct cluster *cluster,
                       const struct ring_entry *entries, uint32_t count,
                       const struct replication *replication, json_t *probes)
{
    size_t index;
    json_t *probe;
    json_array_foreach(probes, index, probe)
    {
        int64_t token = number_of(json_array_get(probe, 0));
        uint32_t replicas[256];
        uint32_t found = cqr_replicas_at(entries, count, cqr_ring_find(entries, count, token),
                                         cluster->nodes, cluster->node_count, replication, replicas,
                                         256);
        json_t *names = names_of(cluster, replicas, found);
        vector_check_json(row, "replicas in the server's order", names, json_array_get(probe, 2));
        json_decref(names);
        uint32_t first[1];
        uint32_t one = cqr_replicas_at(entries, count, cqr_ring_find(entries, count, token),
                                       cluster->nodes, cluster->node_count, replication, first, 1);
        vector_check_int(row, "replicas with room for one", one, found < 1 ? found : 1);
        if (one == 1)
            vector_check_int(row, "the first one", first[0], replicas[0]);
    }
}

static void run_ring(struct vector_row *row)
{
    struct cluster *cluster = vector_room(row, sizeof *cluster);
    size_t index;
    json_t *item;
    json_t *hosts = vector_json(row, "hosts_json");
    json_array_foreach(hosts, index, item)
    {
        cluster->hosts[index] = json_string_value(json_array_get(item, 0));
        cluster->nodes[index] = (struct ring_node){
            .dc = intern(cluster, json_string_value(json_array_get(item, 1)), true),
            .rack = intern(cluster, json_string_value(json_array_get(item, 2)), true),
        };
        cluster->node_count = (uint32_t)index + 1;
    }
    json_t *ring = vector_json(row, "ring_json");
    uint32_t count = (uint32_t)json_array_size(ring);
    struct ring_entry *entries = vector_room(row, (count + 1) * sizeof *entries);
    json_array_foreach(ring, index, item)
    {
        /* Backwards, so that there is something to sort. */
        struct ring_entry *entry = &entries[count - 1 - index];
        entry->token = number_of(json_array_get(item, 0));
        while (strcmp(cluster->hosts[entry->node], json_string_value(json_array_get(item, 1))) != 0)
            ++entry->node;
    }
    vector_check_int(row, "tokens", cqr_ring_sort(entries, count), count);

    struct replication replication;
    read_replication(row, cluster, vector_json(row, "replication_json"), &replication);
    json_t *probes = vector_json(row, "probes_json");
    probe_ring(row, cluster, entries, count, &replication,
               probes); /* each walk counts for itself */
    cqr_replication_count(entries, count, cluster->nodes, cluster->node_count, &replication);
    probe_ring(row, cluster, entries, count, &replication, probes); /* counted once */
}

/* --- tablets ---------------------------------------------------------------------------------- */

static void run_tablet_payloads(struct vector_row *row)
{
    cqlring_bytes payload = vector_hex(row, "payload_hex");
    bool v2 = strcmp(vector_text(row, "payload_key"), "tablets-routing-v2") == 0;
    json_t *wanted = vector_json(row, "decoded_json");
    struct tablet tablet;
    if (!vector_check_status(row, "decode", cqr_tablet_decode(payload, v2, &row->arena, &tablet),
                             CQLRING_OK))
        return;
    vector_check_int(row, "first", tablet.first, number_of(json_object_get(wanted, "first")));
    vector_check_int(row, "last", tablet.last, number_of(json_object_get(wanted, "last")));
    const char *version = json_string_value(json_object_get(wanted, "tablet_version"));
    vector_check(row, (version != NULL) == v2, "a version only in v2");
    vector_check_int(row, "tablet_version", (int64_t)tablet.version,
                     version == NULL ? 0 : (int64_t)strtoull(version, NULL, 10));
    json_t *replicas = json_array();
    for (uint32_t i = 0; i < tablet.replica_count; ++i) {
        const uint8_t *id = tablet.replicas[i].host_id;
        char text[40] = "";
        for (int j = 0; j < 16; ++j)
            snprintf(text + strlen(text), 4, "%s%02x",
                     j == 4 || j == 6 || j == 8 || j == 10 ? "-" : "", id[j]);
        json_array_append_new(replicas, json_pack("[s,i]", text, (int)tablet.replicas[i].shard));
    }
    vector_check_json(row, "replicas", replicas, json_object_get(wanted, "replicas"));
    json_decref(replicas);
    for (int32_t size = 0; size < payload.size; ++size) {
        uint8_t *cut = vector_room(row, (size_t)size + 1);
        memcpy(cut, payload.data, (size_t)size);
        if (cqr_tablet_decode((cqlring_bytes){cut, size}, v2, &row->arena, &tablet) !=
            CQLRING_PROTOCOL)
            vector_check_int(row, "a cut payload was taken, size", size, -1);
    }
}

static void run_tablet_version_blocks(struct vector_row *row)
{
    uint64_t version = strtoull(vector_text(row, "tablet_version_hex"), NULL, 16);
    vector_check_int(row, "block",
                     cqr_tablet_version_block(version, (uint8_t)vector_int(row, "block_index")),
                     strtoll(vector_text(row, "block_byte_hex"), NULL, 16));
}

static json_t *range_of(const struct tablet *tablet)
{
    return tablet == NULL ? json_null()
                          : json_pack("[I,I]", (json_int_t)tablet->first, (json_int_t)tablet->last);
}

static void run_tablet_cache(struct vector_row *row)
{
    struct tablet_map map;
    cqr_tablet_map_init(&map, 1000);
    size_t index;
    json_t *item;
    json_t *adds = vector_json(row, "adds_json");
    json_array_foreach(adds, index, item)
    {
        struct tablet_replica replica = {.host_id = {1}, .shard = (int32_t)index};
        struct tablet tablet = {.first = number_of(json_array_get(item, 0)),
                                .last = number_of(json_array_get(item, 1)),
                                .replica_count = 1,
                                .replicas = &replica};
        vector_check_status(row, "add", cqr_tablet_map_add(&map, &tablet), CQLRING_OK);
    }
    json_t *ranges = json_array();
    for (uint32_t i = 0; i < map.count; ++i)
        json_array_append_new(ranges, range_of(&map.tablets[i]));
    vector_check_json(row, "final ranges", ranges, vector_json(row, "final_ranges_json"));
    json_decref(ranges);
    json_t *lookups = vector_json(row, "lookups_json");
    json_array_foreach(lookups, index, item)
    {
        json_t *range = range_of(cqr_tablet_map_find(&map, number_of(json_array_get(item, 0))));
        vector_check_json(row, "lookup", range, json_array_get(item, 1));
        json_decref(range);
    }
    cqr_tablet_map_fini(&map);
}

const struct vector_file vectors_cql[] = {
    {"crc", "id algo input_hex value_hex wire_hex", run_crc},
    {"segments", "id mode payload payload_len n_segments segments_json encoded encoded_len",
     run_segments},
    {"segments_bad", "id mode encoded_hex expect", run_segments_bad},
    {"murmur3", "id key_len key_hex raw_hash token signed_tail_matters", run_murmur3},
    {"random_partitioner", "id key_hex token", run_random_partitioner},
    {"routing_keys", "id components_json routing_key_hex token", run_routing_keys},
    {"shards", "id token nr_shards ignore_msb shard", run_shards},
    {"ring", "id hosts_json ring_json replication_json probes_json", run_ring},
    {"tablet_payloads", "id payload_key decoded_json payload_hex", run_tablet_payloads},
    {"tablet_version_blocks", "id tablet_version_hex block_index block_byte_hex",
     run_tablet_version_blocks},
    {"tablet_cache", "id agreed adds_json final_ranges_json lookups_json", run_tablet_cache},
    {"requests", "id version kind stream input_json frame_hex", vector_run_request},
    {"responses", "id version extensions decoder frame_hex decoded_json", vector_run_response},
    {"responses_truncated", "id version from body_len frame_hex expect", vector_run_response_cut},
    {NULL, NULL, NULL},
};
