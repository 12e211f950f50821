/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/handshake_script.h"

/* --- compression ------------------------------------------------------------------------------ */

/* CP-06: what the server has, what the version has, what is required; none means none. */
START_TEST(cp_06_compression_is_what_is_asked_for_where_it_exists)
{
    static const struct {
        uint8_t version;
        enum compression wanted;
        bool required;
        const char *offered[2];
        const char *chosen; /* NULL: none; "": an error */
    } cases[] = {
        {4, COMPRESSION_NONE, false, {"lz4", "snappy"}, NULL},
        {4, COMPRESSION_LZ4, false, {"lz4", "snappy"}, "lz4"},
        {4, COMPRESSION_LZ4, false, {"LZ4"}, "lz4"},
        {4, COMPRESSION_SNAPPY, false, {"lz4", "snappy"}, "snappy"},
        {4, COMPRESSION_LZ4, false, {"snappy"}, NULL},
        {4, COMPRESSION_LZ4, true, {"snappy"}, ""},
        {5, COMPRESSION_LZ4, true, {"snappy", "lz4"}, "lz4"},
        {5, COMPRESSION_SNAPPY, false, {"snappy", "lz4"}, NULL},
        {5, COMPRESSION_SNAPPY, true, {"snappy", "lz4"}, ""},
        {5, COMPRESSION_LZ4, false, {NULL}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        config.version = cases[i].version;
        config.compression = cases[i].wanted;
        config.compression_required = cases[i].required;
        sent.size = 0;
        start();
        struct option option = {"COMPRESSION", {cases[i].offered[0], cases[i].offered[1]}};
        enum handshake_decision decision = answer_supported(&option, 1);
        if (cases[i].chosen != NULL && cases[i].chosen[0] == '\0') {
            ck_assert_int_eq(decision, HANDSHAKE_ERROR);
            check_failed(CQLRING_INVALID, "compression");
            continue;
        }
        ck_assert_int_eq(decision, HANDSHAKE_SEND);
        take_sent(OPCODE_STARTUP);
        check_option("COMPRESSION", cases[i].chosen);
        ck_assert_int_eq(handshake.compression,
                         cases[i].chosen == NULL ? COMPRESSION_NONE : cases[i].wanted);
    }
}
END_TEST

/* --- Scylla ----------------------------------------------------------------------------------- */

#define SHARDING                                                                                   \
    {"scylla_SHARD", {"3"}}, {"SCYLLA_NR_SHARDS", {"12"}}, {"SCYLLA_SHARDING_IGNORE_MSB", {"12"}}, \
        {"SCYLLA_SHARDING_ALGORITHM", {"biased-token-round-robin"}},                               \
        {"SCYLLA_PARTITIONER", {"org.apache.cassandra.dht.Murmur3Partitioner"}},                   \
        {"SCYLLA_SHARD_AWARE_PORT", {"19042"}},                                                    \
    {                                                                                              \
        "Scylla_Shard_Aware_Port_SSL",                                                             \
        {                                                                                          \
            "19142"                                                                                \
        }                                                                                          \
    }

START_TEST(sharding_and_extensions_of_scylla_are_taken)
{
    config.version = PROTO_V4;
    config.scylla_metadata_id = true;
    config.tablets_v2 = true;
    start();
    ck_assert_int_eq(
        SUPPORTED(SHARDING,
                  {"SCYLLA_LWT_ADD_METADATA_MARK", {"LWT_OPTIMIZATION_META_BIT_MASK=2147483648"}},
                  {"SCYLLA_RATE_LIMIT_ERROR", {"ERROR_CODE=61440"}}, {"TABLETS_ROUTING_V1", {NULL}},
                  {"SCYLLA_USE_METADATA_ID", {NULL}},
                  {"SCYLLA_FAILURE_REASON_MAP", {"REASON_ABORTED=61443"}}),
        HANDSHAKE_SEND);
    take_sent(OPCODE_STARTUP);
    ck_assert_uint_eq(handshake.shard.shard, 3);
    ck_assert_uint_eq(handshake.shard.shard_count, 12);
    ck_assert_uint_eq(handshake.shard.ignore_msb, 12);
    ck_assert_uint_eq(handshake.shard.shard_aware_port, 19042);
    ck_assert_uint_eq(handshake.shard.shard_aware_port_tls, 19142);
    ck_assert_uint_eq(handshake.dialect.extensions, EXT_METADATA_ID | EXT_TABLETS_V1 |
                                                        EXT_LWT_MARK | EXT_RATE_LIMIT |
                                                        EXT_FAILURE_MAP);
    ck_assert_uint_eq(handshake.dialect.lwt_mask, 0x80000000);
    ck_assert_int_eq(handshake.dialect.rate_limit_code, 61440);
    check_option("SCYLLA_LWT_ADD_METADATA_MARK", "LWT_OPTIMIZATION_META_BIT_MASK=2147483648");
    check_option("SCYLLA_RATE_LIMIT_ERROR", "");
    check_option("TABLETS_ROUTING_V1", "");
    check_option("SCYLLA_USE_METADATA_ID", "");
    check_option("SCYLLA_FAILURE_REASON_MAP", "");
    check_option("SCYLLA_SHARD", NULL);
    check_option("SCYLLA_NR_SHARDS", NULL);
}
END_TEST

START_TEST(extensions_are_asked_for_only_where_offered_and_sensible)
{
    config.version = PROTO_V4;
    config.tablets_v2 = true;
    start();
    ck_assert_int_eq(
        SUPPORTED({"SCYLLA_LWT_ADD_METADATA_MARK", {"LWT_OPTIMIZATION_META_BIT_MASK=0"}},
                  {"SCYLLA_RATE_LIMIT_ERROR", {"ERROR_CODE=x"}}, {"TABLETS_ROUTING_V1", {NULL}},
                  {"TABLETS_ROUTING_V2_EXPERIMENTAL", {NULL}}, {"SCYLLA_USE_METADATA_ID", {NULL}}),
        HANDSHAKE_SEND);
    take_sent(OPCODE_STARTUP);
    ck_assert_uint_eq(handshake.dialect.extensions, EXT_TABLETS_V2);
    check_option("SCYLLA_LWT_ADD_METADATA_MARK", NULL);
    check_option("SCYLLA_RATE_LIMIT_ERROR", NULL);
    check_option("TABLETS_ROUTING_V1", NULL); /* v2 instead of v1 */
    check_option("TABLETS_ROUTING_V2_EXPERIMENTAL", "");
    check_option("SCYLLA_USE_METADATA_ID", NULL); /* not wanted */
    check_option("SCYLLA_FAILURE_REASON_MAP", NULL);
}
END_TEST

/* SH-04 and the sanity rules: what makes no sense counts as not sharded. */
START_TEST(sh_04_sharding_without_sense_counts_as_none)
{
    static const struct option good[] = {SHARDING};
    enum { COUNT = sizeof good / sizeof good[0] };
    static const struct {
        size_t index;
        const char *value;
    } bad[] = {{0, "12"},          {0, "9999999999999999999"},
               {0, "-1"},          {0, ""},
               {0, "3 "},          {1, "0"},
               {1, "3"},           {1, "65536"},
               {2, "64"},          {2, "x"},
               {3, "round-robin"}, {4, "org.apache.cassandra.dht.RandomPartitioner"}};
    config.version = PROTO_V4;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        struct option options[COUNT];
        memcpy(options, good, sizeof good);
        options[bad[i].index].values[0] = bad[i].value;
        sent.size = 0;
        start();
        ck_assert_int_eq(answer_supported(options, COUNT), HANDSHAKE_SEND);
        ck_assert_uint_eq(handshake.shard.shard_count, 0);
        ck_assert_uint_eq(handshake.shard.shard_aware_port, 0);
    }
    for (size_t missing = 0; missing < 5; ++missing) {
        struct option options[COUNT];
        memcpy(options, good, sizeof good);
        options[missing] = options[COUNT - 1];
        sent.size = 0;
        start();
        ck_assert_int_eq(answer_supported(options, COUNT - 1), HANDSHAKE_SEND);
        ck_assert_uint_eq(handshake.shard.shard_count, 0);
    }
}
END_TEST

/* Events of routes: of a ScyllaDB only, and an older one, that refuses them, is asked for the others. */
START_TEST(events_of_routes_are_asked_for_where_they_may_be_known)
{
    static const struct option plain[] = {{"CQL_VERSION", {"3.4.5"}}}, scylla[] = {SHARDING};
    const struct {
        bool wanted, is_scylla;
        uint16_t count;
    } cases[] = {{false, true, 3}, {true, false, 3}, {true, true, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        config.version = PROTO_V4;
        config.register_events = true;
        config.register_routes = cases[i].wanted;
        sent.size = 0;
        start();
        ck_assert_int_eq(cases[i].is_scylla ? answer_supported(scylla, sizeof scylla / sizeof scylla[0])
                                            : answer_supported(plain, 1),
                         HANDSHAKE_SEND);
        take_sent(OPCODE_STARTUP);
        ck_assert_int_eq(answer(OPCODE_READY), HANDSHAKE_SEND);
        take_sent(OPCODE_REGISTER);
        ck_assert_uint_eq(request.map_count, cases[i].count);
        for (int refusals = cases[i].count == 4 ? 2 : 1; refusals > 0; --refusals) {
            cqr_put_u32(&reply, ERROR_PROTOCOL);
            cqr_put_string(&reply, text("Invalid value 'CLIENT_ROUTES_CHANGE' for Type"));
            if (refusals == 1)
                break;
            ck_assert_int_eq(answer(OPCODE_ERROR), HANDSHAKE_SEND);
            take_sent(OPCODE_REGISTER);
            ck_assert_uint_eq(request.map_count, 3);
        }
        ck_assert_int_eq(answer(OPCODE_ERROR), HANDSHAKE_ERROR); /* of those that all know, too */
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("handshake_options");
    TCase *tcase = tcase_create("handshake_options");
    tcase_add_checked_fixture(tcase, script_setup, NULL);
    tcase_add_test(tcase, cp_06_compression_is_what_is_asked_for_where_it_exists);
    tcase_add_test(tcase, sharding_and_extensions_of_scylla_are_taken);
    tcase_add_test(tcase, extensions_are_asked_for_only_where_offered_and_sensible);
    tcase_add_test(tcase, sh_04_sharding_without_sense_counts_as_none);
    tcase_add_test(tcase, events_of_routes_are_asked_for_where_they_may_be_known);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
