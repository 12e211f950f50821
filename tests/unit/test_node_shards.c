/* SPDX-License-Identifier: Apache-2.0 */
/* The node as ScyllaDB: shards, tablets, and the extensions that are negotiated. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/supported.h"
#include "cql/tablet_map.h"
#include "cql/token.h"
#include "node_talk.h"

static struct node_cluster *cluster;

static void make(bool tablets)
{
    struct node_options options = {.nodes = 3, .shards = 4, .tablets = tablets};
    cluster = node_cluster_create(&options, NULL, 0);
    ck_assert_ptr_nonnull(cluster);
    static const char *const texts[] = {
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 2}",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v duration)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i)
        ck_assert_int_eq(node_cql(cluster, texts[i], NULL, NULL, 0), 0);
}

/* A v4 connection to a shard with the extensions asked for. */
static void open_with(struct talk *talk, uint32_t node, uint32_t shard, uint8_t extensions)
{
    memset(talk, 0, sizeof *talk);
    talk_raw(talk, cluster, node, PROTO_V4);
    node_conn_close(talk->conn);
    talk->conn = node_conn_open(cluster, node, shard, talk->now_us);
    ck_assert_ptr_nonnull(talk->conn);
    struct string_pair options[4] = {{cqlring_text("CQL_VERSION"), cqlring_text("3.0.0")}};
    uint16_t count = 1;
    static const struct {
        uint8_t extension;
        const char *key;
    } keys[] = {{EXT_TABLETS_V1, "TABLETS_ROUTING_V1"},
                {EXT_METADATA_ID, "SCYLLA_USE_METADATA_ID"},
                {EXT_LWT_MARK, "SCYLLA_LWT_ADD_METADATA_MARK"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
        if ((extensions & keys[i].extension) != 0)
            options[count++] = (struct string_pair){cqlring_text(keys[i].key), cqlring_text("")};
    }
    cqr_encode_startup(talk_writer(talk), &talk->dialect, 0, options, count);
    talk_send(talk);
    ck_assert(talk_take(talk));
    ck_assert_int_eq(talk->opcode, OPCODE_READY);
    talk->dialect.extensions = extensions;
    talk->dialect.lwt_mask = 0x80000000u;
}

static bool supported(const struct talk *talk, const char *wanted, char *value, size_t size)
{
    uint16_t keys, values;
    cqlring_bytes multi, key, list, text;
    ck_assert_int_eq(
        cqr_decode_supported((cqlring_bytes){talk->body, (int32_t)talk->body_size}, &keys, &multi),
        CQLRING_OK);
    for (uint16_t i = 0; i < keys; ++i) {
        ck_assert_int_eq(cqr_next_multi(&multi, &key, &values, &list), CQLRING_OK);
        if ((size_t)key.size != strlen(wanted) || memcmp(key.data, wanted, (size_t)key.size) != 0)
            continue;
        value[0] = 0;
        if (values > 0 && cqr_next_string(&list, &text) == CQLRING_OK && (size_t)text.size < size) {
            memcpy(value, text.data, (size_t)text.size);
            value[text.size] = 0;
        }
        return true;
    }
    return false;
}

START_TEST(supported_tells_the_shard)
{
    make(true);
    struct talk talk;
    open_with(&talk, 1, 3, 0);
    cqr_encode_options(talk_writer(&talk), &talk.dialect, 5);
    talk_send(&talk);
    ck_assert(talk_take(&talk));
    ck_assert_int_eq(talk.opcode, OPCODE_SUPPORTED);
    char value[100];
    ck_assert(supported(&talk, "SCYLLA_SHARD", value, sizeof value));
    ck_assert_str_eq(value, "3");
    ck_assert(supported(&talk, "SCYLLA_NR_SHARDS", value, sizeof value));
    ck_assert_str_eq(value, "4");
    ck_assert(supported(&talk, "TABLETS_ROUTING_V1", value, sizeof value));
    ck_assert(!supported(&talk, "PROTOCOL_VERSIONS", value, sizeof value));
    (void)talk_query(&talk, "SELECT * FROM system.peers_v2");
    ck_assert_int_eq(talk.code, ERROR_INVALID);
    (void)talk_query(&talk, "SELECT * FROM system.peers");
    ck_assert_uint_eq(talk.row_count, 2);
    (void)talk_query(&talk, "SELECT initial_tablets FROM system_schema.scylla_keyspaces");
    ck_assert_str_eq(talk.text, "0");
    (void)talk_query(&talk, "SELECT v FROM ks.t");
    ck_assert_str_eq(talk.columns, "v duration"); /* by its own id, on v4 too */
    talk_close(&talk);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(a_request_at_the_wrong_place_is_told_the_tablet)
{
    make(true);
    uint32_t told = 0, silent = 0;
    uint8_t hosts[3][16];
    for (uint32_t node = 0; node < 3; ++node) {
        struct talk talk;
        open_with(&talk, node, 0, 0);
        (void)talk_query(&talk, "SELECT host_id FROM system.local");
        for (int i = 0; i < 16; ++i)
            hosts[node][i] = (uint8_t)strtoul(
                (char[]){talk.text[2 + 2 * i], talk.text[3 + 2 * i], 0}, NULL, 16);
        talk_close(&talk);
    }
    for (int32_t key = 0; key < 40; ++key) {
        uint8_t room[4];
        cqlring_bytes value = talk_int(key, room);
        int64_t token = cqr_murmur3(room, 4);
        struct tablet tablet = {0};
        for (int pass = 0; pass < 2; ++pass) {
            /* First anywhere, then where the payload says. */
            uint32_t node = 0, shard = 0;
            for (uint32_t i = 0; pass == 1 && i < 3; ++i)
                node = memcmp(hosts[i], tablet.replicas[0].host_id, 16) == 0 ? i : node;
            if (pass == 1)
                shard = (uint32_t)tablet.replicas[0].shard;
            struct talk talk;
            open_with(&talk, node, shard, EXT_TABLETS_V1);
            (void)talk_prepare(&talk, "INSERT INTO ks.t (k) VALUES (?)");
            ck_assert_str_eq(talk_execute(&talk, NULL, &value, 1), "void");
            bool payload = (talk.flags & FLAG_PAYLOAD) != 0;
            ck_assert(pass == 0 || !payload);
            if (payload) {
                cqlring_bytes pairs = talk.prefix.payload, name, bytes;
                ck_assert_int_eq(cqr_next_pair(&pairs, &name, &bytes), CQLRING_OK);
                ck_assert_int_eq(name.size, 18);
                static struct arena arena;
                cqr_arena_init(&arena, 1 << 20);
                ck_assert_int_eq(cqr_tablet_decode(bytes, false, &arena, &tablet), CQLRING_OK);
                ck_assert(tablet.first < token && token <= tablet.last);
                ck_assert_uint_eq(tablet.replica_count, 2);
                static struct tablet_replica kept[2];
                memcpy(kept, tablet.replicas, sizeof kept);
                tablet.replicas = kept;
                cqr_arena_fini(&arena);
                ++told;
            } else {
                ++silent;
                pass = 1;
            }
            talk_close(&talk);
        }
    }
    ck_assert_uint_gt(told, 20);
    ck_assert_uint_ge(silent, 40);
    struct node_counters counters;
    node_counters(cluster, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.shard_hits, silent);
    ck_assert_uint_eq(counters.shard_misses, told);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(without_tablets_the_token_names_the_shard)
{
    make(false);
    uint8_t room[4];
    cqlring_bytes value = talk_int(77, room);
    int64_t token = cqr_murmur3(room, 4);
    uint32_t replicas[3];
    ck_assert_uint_eq(node_replicas(cluster, "ks", token, replicas, 3), 2);
    struct talk talk;
    open_with(&talk, replicas[0], cqr_shard_of(token, 4, 12), 0);
    ck_assert_str_eq(talk_query_with(&talk, "INSERT INTO ks.t (k) VALUES (?)", NULL, &value, 1),
                     "void");
    struct node_seen seen;
    ck_assert(node_last(cluster, NODE_ALL, OPCODE_QUERY, &seen));
    ck_assert(seen.is_replica);
    ck_assert_int_eq(seen.token, token);
    struct node_counters counters;
    node_counters(cluster, NODE_ALL, &counters);
    ck_assert_uint_eq(counters.shard_hits, 1);
    talk_close(&talk);
    node_cluster_stop(cluster);
}
END_TEST

START_TEST(extensions_change_the_layouts)
{
    make(false);
    struct talk talk;
    open_with(&talk, 0, 0, EXT_METADATA_ID | EXT_LWT_MARK);
    ck_assert_str_eq(talk_prepare(&talk, "SELECT k FROM ks.t"), "prepared ");
    ck_assert_str_eq(talk_execute(&talk, NULL, NULL, 0), "");
    ck_assert((talk.flags_of_rows & ROWS_METADATA_CHANGED) == 0);
    memset(talk.metadata_id, 1, 16);
    ck_assert_str_eq(talk_execute(&talk, NULL, NULL, 0), "");
    ck_assert((talk.flags_of_rows & ROWS_METADATA_CHANGED) != 0);
    cqr_encode_prepare(talk_writer(&talk), &talk.dialect, 8,
                       cqlring_text("INSERT INTO ks.t (k) VALUES (?) IF NOT EXISTS"),
                       cqlring_text(""), false, NULL, 0);
    talk_send(&talk);
    ck_assert(talk_take(&talk));
    cqlring_bytes body = {talk.body, (int32_t)talk.body_size};
    uint32_t kind;
    struct prepared_body prepared;
    ck_assert_int_eq(cqr_decode_result_kind(&body, &kind), CQLRING_OK);
    ck_assert_int_eq(cqr_decode_prepared(&talk.dialect, body, &talk.arena, &prepared), CQLRING_OK);
    ck_assert(prepared.is_lwt);
    talk_close(&talk);
    node_cluster_stop(cluster);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_shards");
    TCase *test = tcase_create("shards");
    tcase_add_test(test, supported_tells_the_shard);
    tcase_add_test(test, a_request_at_the_wrong_place_is_told_the_tablet);
    tcase_add_test(test, without_tablets_the_token_names_the_shard);
    tcase_add_test(test, extensions_change_the_layouts);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
