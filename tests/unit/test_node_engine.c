/* SPDX-License-Identifier: Apache-2.0 */
/* What CQL does to the node's storage, asked through a connection without sockets. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node_talk.h"

static struct node_cluster *cluster;
static struct talk talk;

static void set_up(void)
{
    struct node_options options = {.epoch_us = INT64_C(1700000000000000)};
    cluster = node_cluster_create(&options, NULL, 0);
    ck_assert_ptr_nonnull(cluster);
    talk_open(&talk, cluster, 0, PROTO_V5, false);
    ck_assert_str_eq(
        talk_query(
            &talk,
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"),
        "schema CREATED KEYSPACE ks ");
    ck_assert_str_eq(talk_query(&talk, "USE ks"), "keyspace ks");
}
static void tear_down(void)
{
    talk_close(&talk);
    node_cluster_stop(cluster);
}

/* Statements that must be done with nothing to say, or answer `wanted`. */
static void run(const char *cql)
{
    const char *answer = talk_query(&talk, cql);
    ck_assert_msg(talk.code == -1, "%s: %s", cql, answer);
}
static void gives(const char *cql, const char *wanted)
{
    const char *answer = talk_query(&talk, cql);
    ck_assert_msg(strcmp(answer, wanted) == 0, "%s\n gave   %s\n wanted %s", cql, answer, wanted);
}
static void fails(const char *cql, int32_t code, const char *part)
{
    const char *answer = talk_query(&talk, cql);
    ck_assert_msg(talk.code == code && strstr(answer, part) != NULL, "%s: %x %s", cql,
                  (unsigned)talk.code, answer);
}

START_TEST(rows_come_back_in_clustering_order)
{
    run("CREATE TABLE t (p int, a int, b text, v text, PRIMARY KEY (p, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC)");
    run("INSERT INTO t (p, a, b, v) VALUES (1, 2, 'x', 'one')");
    run("INSERT INTO t (p, a, b, v) VALUES (1, 3, 'y', 'two')");
    run("INSERT INTO t (p, a, b, v) VALUES (1, 3, 'x', 'three')");
    run("INSERT INTO t (p, a, b, v) VALUES (1, -1, '', 'four')");
    gives("SELECT a, b, v FROM t WHERE p = 1", "3|x|three;3|y|two;2|x|one;-1||four");
    gives("SELECT a, b FROM t WHERE p = 1 ORDER BY a ASC, b DESC", "-1|;2|x;3|y;3|x");
    gives("SELECT b FROM t WHERE p = 1 AND a = 3", "x;y");
    gives("SELECT b FROM t WHERE p = 1 AND a = 3 ORDER BY a ASC", "y;x");
    gives("SELECT a, b FROM t WHERE p = 1 AND a > -1 AND a <= 3", "3|x;3|y;2|x");
    gives("SELECT a, b FROM t WHERE p = 1 AND a >= 2 AND a < 3", "2|x");
    gives("SELECT v FROM t WHERE p = 1 AND a = 3 AND b > 'x'", "two");
    gives("SELECT v FROM t WHERE p = 1 AND a IN (2, -1, 7)", "one;four");
    gives("SELECT v FROM t WHERE p = 1 AND a IN (3, 2) AND b IN ('x', 'z')", "three;one");
    gives("SELECT v FROM t WHERE p = 1 LIMIT 2", "three;two");
    gives("SELECT v FROM t WHERE p = 2", "");
    fails("SELECT v FROM t WHERE p = 1 ORDER BY a ASC, b ASC", 0x2200,
          "Unsupported order by relation");
    fails("SELECT v FROM t WHERE p = 1 AND b = 'x'", 0x2200, "ALLOW FILTERING");
    gives("SELECT v FROM t WHERE p = 1 AND b = 'x' ALLOW FILTERING", "three;one");
}
END_TEST

START_TEST(the_newer_timestamp_wins_whatever_comes_first)
{
    run("CREATE TABLE t (k int PRIMARY KEY, a int, b int)");
    run("INSERT INTO t (k, a, b) VALUES (1, 10, 10) USING TIMESTAMP 100");
    run("UPDATE t USING TIMESTAMP 90 SET a = 9 WHERE k = 1");
    gives("SELECT a, writetime(a) FROM t", "10|100");
    run("UPDATE t USING TIMESTAMP 110 SET a = 11 WHERE k = 1");
    run("DELETE b FROM t USING TIMESTAMP 105 WHERE k = 1");
    gives("SELECT a, b FROM t", "11|null");
    run("UPDATE t USING TIMESTAMP 105 SET b = 3 WHERE k = 1"); /* same time: the deletion wins */
    gives("SELECT b FROM t", "null");
    run("DELETE FROM t USING TIMESTAMP 108 WHERE k = 1");
    gives("SELECT k, a, b FROM t", "1|11|null");
    run("INSERT INTO t (k, a) VALUES (1, 5) USING TIMESTAMP 108");
    gives("SELECT k, a FROM t", "1|11");
    run("DELETE FROM t USING TIMESTAMP 200 WHERE k = 1");
    gives("SELECT k FROM t", "");
    run("UPDATE t USING TIMESTAMP 200 SET a = 1 WHERE k = 1");
    gives("SELECT k FROM t", "");
    /* A row that only UPDATE made goes with its last cell. */
    run("UPDATE t SET a = 1 WHERE k = 2");
    gives("SELECT k FROM t", "2");
    run("UPDATE t SET a = null WHERE k = 2");
    gives("SELECT k FROM t", "");
}
END_TEST

START_TEST(cells_die_when_their_time_is_over)
{
    run("CREATE TABLE t (k int PRIMARY KEY, a int, b int)");
    run("INSERT INTO t (k, a) VALUES (1, 1) USING TTL 10");
    run("UPDATE t SET b = 2 WHERE k = 1");
    gives("SELECT k, a, b, ttl(a), ttl(b) FROM t", "1|1|2|10|null");
    talk.now_us += 9500000;
    gives("SELECT a, b FROM t", "1|2");
    talk.now_us += 1000000;
    gives("SELECT k, a, b FROM t", "1|null|2");
    run("CREATE TABLE d (k int PRIMARY KEY, a int) WITH default_time_to_live = 5");
    run("INSERT INTO d (k, a) VALUES (1, 1)");
    run("INSERT INTO d (k, a) VALUES (2, 1) USING TTL 0");
    talk.now_us += 6000000;
    gives("SELECT k FROM d", "2");
    fails("INSERT INTO d (k, a) VALUES (3, 1) USING TTL -1", 0x2200, "greater or equal to 0");
    fails("INSERT INTO d (k, a) VALUES (3, 1) USING TTL 700000000", 0x2200, "too large");
}
END_TEST

START_TEST(ranges_of_rows_are_deleted)
{
    run("CREATE TABLE t (p int, a int, b int, v int, s int static, PRIMARY KEY (p, a, b))");
    char cql[200];
    for (int i = 0; i < 12; ++i) {
        (void)snprintf(cql, sizeof cql,
                       "INSERT INTO t (p, a, b, v) VALUES (1, %d, %d, %d) USING TIMESTAMP 100",
                       i / 3, i % 3, i);
        run(cql);
    }
    run("DELETE FROM t USING TIMESTAMP 150 WHERE p = 1 AND a = 1");
    gives("SELECT v FROM t WHERE p = 1", "0;1;2;6;7;8;9;10;11");
    run("DELETE FROM t USING TIMESTAMP 150 WHERE p = 1 AND a >= 2 AND a < 3");
    run("DELETE FROM t USING TIMESTAMP 150 WHERE p = 1 AND a = 3 AND b > 1");
    gives("SELECT v FROM t WHERE p = 1", "0;1;2;9;10");
    run("INSERT INTO t (p, a, b, v) VALUES (1, 2, 2, 99) USING TIMESTAMP 140"); /* too old */
    run("INSERT INTO t (p, a, b, v) VALUES (1, 2, 7, 98) USING TIMESTAMP 160");
    gives("SELECT v FROM t WHERE p = 1", "0;1;2;98;9;10");
    run("UPDATE t SET s = 5 WHERE p = 1");
    run("DELETE FROM t WHERE p = 1 AND a IN (0, 3) AND b IN (0, 1)");
    gives("SELECT v, s FROM t WHERE p = 1", "2|5;98|5");
    run("DELETE FROM t WHERE p = 1");
    gives("SELECT v, s FROM t WHERE p = 1", "");
    fails("DELETE v FROM t WHERE p = 1 AND a = 1", 0x2200, "Some clustering keys are missing: b");
    fails("DELETE FROM t WHERE a = 1", 0x2200, "Some partition key parts are missing: p");
}
END_TEST

START_TEST(statics_belong_to_the_partition)
{
    run("CREATE TABLE t (p int, c int, s text static, v int, PRIMARY KEY (p, c))");
    run("INSERT INTO t (p, s) VALUES (1, 'alone')");
    gives("SELECT p, c, s, v FROM t", "1|null|alone|null");
    run("INSERT INTO t (p, c, v) VALUES (1, 7, 70)");
    run("INSERT INTO t (p, c, v) VALUES (1, 8, 80)");
    gives("SELECT * FROM t", "1|7|alone|70;1|8|alone|80");
    gives("SELECT DISTINCT p, s FROM t", "1|alone");
    run("UPDATE t SET s = 'new' WHERE p = 1");
    gives("SELECT s FROM t WHERE p = 1 AND c = 8", "new");
    run("DELETE s FROM t WHERE p = 1");
    gives("SELECT s, v FROM t", "null|70;null|80");
    fails("SELECT DISTINCT c FROM t", 0x2200, "SELECT DISTINCT");
}
END_TEST

START_TEST(collections_are_merged_by_element)
{
    run("CREATE TABLE t (k int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>, f frozen<set<int>>)");
    run("INSERT INTO t (k, l, s, m, f) VALUES (1, [3, 1, 2], {'b', 'a', 'b'}, {'y': 2, 'x': 1, 'y': 3}, {3, 1, 2, 1})");
    gives("SELECT l, s, m, f FROM t", "[3,1,2]|{a,b}|{x:1,y:3}|{1,2,3}");
    run("UPDATE t SET l = l + [9], s = s + {'c'}, m = m + {'z': 26} WHERE k = 1");
    run("UPDATE t SET l = [7, 8] + l, s -= {'a'}, m = m - {'x'} WHERE k = 1");
    gives("SELECT l, s, m FROM t", "[7,8,3,1,2,9]|{b,c}|{y:3,z:26}");
    run("UPDATE t SET l[1] = 88, m['new'] = 5 WHERE k = 1");
    run("DELETE l[0], m['y'], s['b'] FROM t WHERE k = 1");
    gives("SELECT l, s, m FROM t", "[88,3,1,2,9]|{c}|{new:5,z:26}");
    run("UPDATE t SET l = l - [3, 9] WHERE k = 1");
    gives("SELECT l, m['z'], m['none'] FROM t", "[88,1,2]|26|null");
    fails("UPDATE t SET l[10] = 1 WHERE k = 1", 0x2200,
          "List index 10 out of bound, list has size 3");
    run("UPDATE t SET l = [], s = {}, m = {}, f = {} WHERE k = 1");
    gives("SELECT l, s, m, f FROM t", "null|null|null|{}");
    fails("UPDATE t SET f = f + {1} WHERE k = 1", 0x2200, "Invalid operation");
    fails("INSERT INTO t (k, l) VALUES (2, [null])", 0x2200,
          "null is not supported inside collections");
    fails("INSERT INTO t (k, l) VALUES (2, {1})", 0x2200,
          "Invalid literal for l of type list<int>");
}
END_TEST

START_TEST(user_types_grow_and_tuples_nest)
{
    run("CREATE TYPE addr (street text, zip int)");
    run("CREATE TABLE t (k int PRIMARY KEY, a addr, f frozen<addr>, l list<frozen<addr>>, p tuple<int, tuple<text, int>>)");
    run("INSERT INTO t (k, a, f, l, p) VALUES (1, {street: 'S', zip: 5}, {zip: 6}, [{street: 'L'}], (1, ('x', null)))");
    gives("SELECT a, f, l, p FROM t", "(S,5)|(null,6)|[(L,null)]|(1,(x,null))");
    run("UPDATE t SET a.zip = 7 WHERE k = 1");
    gives("SELECT a, a.zip, f.street FROM t", "(S,7)|7|null");
    run("ALTER TYPE addr ADD country text");
    gives("SELECT a, f FROM t", "(S,7)|(null,6)");
    run("UPDATE t SET a = {street: 'T', zip: 1, country: 'C'} WHERE k = 1");
    gives("SELECT a FROM t", "(T,1,C)");
    fails("UPDATE t SET f.zip = 7 WHERE k = 1", 0x2200, "Invalid operation");
    fails("INSERT INTO t (k, a) VALUES (1, {nope: 1})", 0x2200, "Unknown field 'nope'");
    fails("DROP TYPE addr", 0x2200, "still used");
    fails("CREATE TABLE b (k int PRIMARY KEY, l list<addr>)", 0x2200, "Non-frozen");
}
END_TEST

START_TEST(counters_count)
{
    run("CREATE TABLE n (k text, c int, a counter, b counter, PRIMARY KEY (k, c))");
    run("UPDATE n SET a = a + 5, b = b - 2 WHERE k = 'x' AND c = 1");
    run("UPDATE n SET a += 10 WHERE k = 'x' AND c = 1");
    run("UPDATE n SET a = a -1 WHERE k = 'x' AND c = 1");
    gives("SELECT a, b FROM n", "14|-2");
    fails("INSERT INTO n (k, c, a) VALUES ('x', 1, 1)", 0x2200,
          "INSERT statements are not allowed on counter tables");
    fails("UPDATE n SET a = 1 WHERE k = 'x' AND c = 1", 0x2200,
          "Cannot set the value of counter column");
    run("BEGIN COUNTER BATCH UPDATE n SET a = a + 1 WHERE k = 'x' AND c = 1; UPDATE n SET b = b + 1 WHERE k = 'x' AND c = 2; APPLY BATCH");
    fails("BEGIN BATCH UPDATE n SET a = a + 1 WHERE k = 'x' AND c = 1; APPLY BATCH", 0x2200,
          "counter statement in a logged batch");
    gives("SELECT c, a, b FROM n", "1|15|-2;2|null|1");
    run("DELETE FROM n WHERE k = 'x' AND c = 1");
    gives("SELECT c FROM n", "2");
    fails("CREATE TABLE bad (k int PRIMARY KEY, a counter, b int)", 0x2200,
          "Cannot mix counter and non counter columns");
}
END_TEST

START_TEST(conditions_decide)
{
    run("CREATE TABLE t (k int, c int, s int static, v text, PRIMARY KEY (k, c))");
    gives("INSERT INTO t (k, c, v) VALUES (1, 1, 'a') IF NOT EXISTS", "true");
    gives("INSERT INTO t (k, c, v) VALUES (1, 1, 'b') IF NOT EXISTS", "false|1|1|null|a");
    ck_assert_str_eq(talk.columns, "[applied] boolean,k int,c int,s int,v text");
    gives("UPDATE t SET v = 'c' WHERE k = 1 AND c = 1 IF v = 'x'", "false|a");
    gives("UPDATE t SET v = 'c' WHERE k = 1 AND c = 1 IF v IN ('x', 'a') AND s = null", "true");
    gives("UPDATE t SET v = 'd' WHERE k = 9 AND c = 1 IF v = 'x'", "false");
    gives("UPDATE t SET v = 'd' WHERE k = 9 AND c = 1 IF EXISTS", "false");
    gives("DELETE FROM t WHERE k = 1 AND c = 1 IF EXISTS", "true");
    gives("SELECT * FROM t", "");
    /* LW-01: a batch whose condition does not hold answers with rows and writes nothing. */
    run("INSERT INTO t (k, c, v) VALUES (5, 1, 'row')");
    run("UPDATE t SET s = 1 WHERE k = 5");
    gives(
        "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (5, 2, 'new'); UPDATE t SET s = 2 WHERE k = 5 IF s = 0; APPLY BATCH",
        "false|5|null|1");
    gives(
        "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (5, 2, 'new'); UPDATE t SET s = 2 WHERE k = 5 IF s = 1; APPLY BATCH",
        "true");
    gives("SELECT c, s, v FROM t WHERE k = 5", "1|2|row;2|2|new");
    fails(
        "BEGIN BATCH INSERT INTO t (k, c) VALUES (6, 2) IF NOT EXISTS; INSERT INTO t (k, c) VALUES (7, 2); APPLY BATCH",
        0x2200, "multiple partitions");
    fails("UPDATE t USING TIMESTAMP 5 SET v = 'c' WHERE k = 1 AND c = 1 IF v = 'x'", 0x2200,
          "custom timestamp");
}
END_TEST

START_TEST(a_batch_writes_all_or_nothing)
{
    run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    run("BEGIN BATCH USING TIMESTAMP 77 INSERT INTO t (k, v) VALUES (1, 1); INSERT INTO t (k, v) VALUES (2, 2) ; DELETE FROM t WHERE k = 3; APPLY BATCH");
    gives("SELECT k, v, writetime(v) FROM t WHERE k IN (2, 1)", "1|1|77;2|2|77");
    fails(
        "BEGIN BATCH INSERT INTO t (k, v) VALUES (5, 1); INSERT INTO t (k, v) VALUES (6, 'x'); APPLY BATCH",
        0x2200, "Invalid STRING constant");
    gives("SELECT k FROM t WHERE k = 5", "");
}
END_TEST

START_TEST(whole_tables_are_scanned_by_token)
{
    run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    char cql[200];
    for (int i = 0; i < 200; ++i) {
        (void)snprintf(cql, sizeof cql, "INSERT INTO t (k, v) VALUES (%d, %d)", i, i % 4);
        run(cql);
    }
    gives("SELECT count(*) FROM t", "200");
    gives("SELECT count(*), min(k), max(k), sum(v) FROM t WHERE token(k) > -9223372036854775808",
          "200|0|199|300");
    (void)talk_query(&talk, "SELECT token(k) FROM t");
    ck_assert_uint_eq(talk.row_count, 200);
    long long last = strtoll(talk.text, NULL, 10);
    for (const char *at = strchr(talk.text, ';'); at != NULL; at = strchr(at + 1, ';')) {
        long long token = strtoll(at + 1, NULL, 10);
        ck_assert_int_lt(last, token);
        last = token;
    }
    /* Slices of the ring are the whole. */
    uint32_t sum = 0;
    for (int i = 0; i < 8; ++i) {
        int64_t low = (int64_t)((uint64_t)i << 61) ^ INT64_MIN;
        int64_t high = i == 7 ? INT64_MAX : (int64_t)((uint64_t)(i + 1) << 61) ^ INT64_MIN;
        (void)snprintf(cql, sizeof cql,
                       "SELECT k FROM t WHERE token(k) > %lld AND token(k) <= %lld", (long long)low,
                       (long long)high);
        run(cql);
        sum += talk.row_count;
    }
    ck_assert_uint_eq(sum, 200);
    gives("SELECT k FROM t WHERE token(k) = token(77)", "77");
    gives("SELECT k FROM t WHERE token(k) >= token(5) LIMIT 1", "5");
    fails("SELECT k FROM t WHERE token(k) = token(1, 2)", 0x2200, "token");
    fails("SELECT sum(s) FROM system.local", 0x2200, "Undefined column");
    fails("SELECT sum(key) FROM system.local", 0x2200, "Invalid call to function sum");
    gives("SELECT count(*) FROM t WHERE v = 3 ALLOW FILTERING", "50");
    gives("SELECT k FROM t WHERE k IN (7, 3, 3, 500)", "3;7");
    run("TRUNCATE t");
    gives("SELECT count(*) FROM t", "0");
}
END_TEST

static void page_through(const char *cql, int32_t page_size, uint32_t rows, uint32_t pages)
{
    struct query_params params = {.consistency = 1, .page_size = page_size};
    static char all[65536];
    uint8_t state[1024];
    uint32_t got = 0, count = 0;
    all[0] = 0;
    do {
        (void)talk_query_with(&talk, cql, &params, NULL, 0);
        ck_assert_msg(talk.code == -1, "%s", talk.text);
        ck_assert_uint_le(talk.row_count, (uint32_t)page_size);
        if (talk.row_count > 0) {
            if (got > 0)
                strcat(all, ";");
            strcat(all, talk.text);
        }
        got += talk.row_count;
        ++count;
        if (talk.paging_size >= 0) {
            memcpy(state, talk.paging, (size_t)talk.paging_size);
            params.paging_state = (cqlring_bytes){state, talk.paging_size};
        }
    } while (talk.paging_size >= 0);
    ck_assert_uint_eq(got, rows);
    ck_assert_uint_eq(count, pages);
    ck_assert_msg(strcmp(talk_query(&talk, cql), all) == 0, "%s by pages of %d", cql, page_size);
}

/* PG-04 and the pages of everything that pages. */
START_TEST(pages_together_are_the_answer)
{
    run("CREATE TABLE t (p int, c int, v text, PRIMARY KEY (p, c))");
    run("CREATE TABLE one (k int PRIMARY KEY, v int)");
    char cql[200];
    for (int i = 0; i < 60; ++i) {
        (void)snprintf(cql, sizeof cql, "INSERT INTO t (p, c, v) VALUES (%d, %d, 'v%d')", i % 6, i,
                       i);
        run(cql);
        (void)snprintf(cql, sizeof cql, "INSERT INTO one (k, v) VALUES (%d, %d)", i, i);
        run(cql);
    }
    for (int32_t size = 1; size <= 61; size += 4) {
        uint32_t pages = (60 + (uint32_t)size - 1) / (uint32_t)size;
        page_through("SELECT p, c, v FROM t", size, 60, pages);
        page_through("SELECT k FROM one", size, 60, pages);
    }
    page_through("SELECT c FROM t WHERE p = 3 ORDER BY c DESC", 3, 10, 4);
    page_through("SELECT c FROM t WHERE p IN (1, 2, 5) AND c > 10 AND c < 50", 4, 20, 5);
    page_through("SELECT p, c FROM t PER PARTITION LIMIT 3", 2, 18, 9);
    page_through("SELECT p, c FROM t PER PARTITION LIMIT 10", 5000, 60, 1);
    page_through("SELECT p, c FROM t LIMIT 25", 10, 25, 3);
    page_through("SELECT p, c FROM t LIMIT 20", 10, 20, 2);
    page_through("SELECT DISTINCT p FROM t", 4, 6, 2);
    page_through("SELECT c FROM t WHERE v = 'v33' ALLOW FILTERING", 1, 1, 1);
}
END_TEST

/* PG-08 */
START_TEST(a_paging_state_that_is_not_one_is_refused)
{
    run("CREATE TABLE t (p int, c int, PRIMARY KEY (p, c))");
    for (int i = 0; i < 10; ++i) {
        char cql[100];
        (void)snprintf(cql, sizeof cql, "INSERT INTO t (p, c) VALUES (1, %d)", i);
        run(cql);
    }
    struct query_params params = {.consistency = 1, .page_size = 3};
    (void)talk_query_with(&talk, "SELECT c FROM t", &params, NULL, 0);
    ck_assert_str_eq(talk.text, "0;1;2");
    uint8_t state[1024];
    int32_t size = talk.paging_size;
    memcpy(state, talk.paging, (size_t)size);
    params.paging_state = (cqlring_bytes){state, size};
    ck_assert_str_eq(talk_query_with(&talk, "SELECT c FROM t", &params, NULL, 0), "3;4;5");
    (void)talk_query_with(&talk, "SELECT p FROM t", &params, NULL, 0);
    ck_assert_int_eq(talk.code, 0x000A);
    for (int32_t cut = 0; cut < size; ++cut) {
        params.paging_state.size = cut;
        (void)talk_query_with(&talk, "SELECT c FROM t", &params, NULL, 0);
        ck_assert_int_eq(talk.code, 0x000A);
    }
    params.paging_state.size = size;
    for (int32_t i = 0; i < size; ++i) {
        state[i] ^= 0x10;
        (void)talk_query_with(&talk, "SELECT c FROM t", &params, NULL, 0);
        ck_assert_int_eq(talk.code, 0x000A);
        state[i] ^= 0x10;
    }
}
END_TEST

START_TEST(literals_of_every_type_are_stored)
{
    run("CREATE TABLE t (k int PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, d decimal, db double, f float, i int, ts timestamp, u uuid, t text, vi varint, tu timeuuid, ip inet, "
        "dt date, tm time, si smallint, ti tinyint, du duration, v vector<float, 2>)");
    run("INSERT INTO t (k, a, bi, bl, bo, d, db, f, i, ts, u, t, vi, tu, ip, dt, tm, si, ti, du, v) VALUES (1, 'a', -9223372036854775808, 0x00ff, true, -1.50, 1e3, -Infinity, 5, "
        "'2020-01-01T00:00:00.5+0100', 550e8400-e29b-41d4-a716-446655440000, 'ü', -129, 50554d6e-29bb-11e5-b345-feff819cdc9f, '::1', '1970-01-02', '01:02:03.000000004', -1, 127, "
        "-1mo2d3ns, [1, -2.5])");
    gives(
        "SELECT a, bi, bl, bo, d, db, f, i, ts FROM t",
        "a|-9223372036854775808|0x00ff|true|0x00000002ff6a|0x408f400000000000|0xff800000|5|1577833200500");
    gives("SELECT u, t, vi, tu FROM t",
          "0x550e8400e29b41d4a716446655440000|ü|0xff7f|0x50554d6e29bb11e5b345feff819cdc9f");
    gives(
        "SELECT ip, dt, tm, si, ti, du, v FROM t",
        "0x00000000000000000000000000000001|0x80000001|0x00000362d417ae04|-1|127|0x010305|0x3f800000c0200000");
    fails("INSERT INTO t (k, i) VALUES (1, 2147483648)", 0x2200,
          "Invalid INTEGER constant (2147483648)");
    fails("INSERT INTO t (k, ti) VALUES (1, 200)", 0x2200, "Invalid INTEGER constant");
    fails("INSERT INTO t (k, tu) VALUES (1, 550e8400-e29b-41d4-a716-446655440000)", 0x2200,
          "Invalid UUID constant");
    fails("INSERT INTO t (k, bl) VALUES (1, 0xabc)", 0x2200, "Invalid HEX constant");
    fails("INSERT INTO t (k, dt) VALUES (1, '1970-13-01')", 0x2200, "Invalid STRING constant");
    fails("INSERT INTO t (k, v) VALUES (1, [1, 2, 3])", 0x2200, "Invalid vector literal");
    run("INSERT INTO t (k, i, vi) VALUES (2, blobAsInt(0x00000007), blob_as_varint(0x))");
    gives("SELECT i, vi FROM t WHERE k = 2", "7|0x");
    run("INSERT INTO t (k, tu, ts) VALUES (3, now(), toTimestamp(now()))");
    gives("SELECT toUnixTimestamp(tu), ts FROM t WHERE k = 3", "1700000001000|1700000001000");
    fails("INSERT INTO t (k, i) VALUES (3, now())", 0x2200,
          "Type error: cannot assign result of function");
}
END_TEST

START_TEST(errors_are_cassandras)
{
    run("CREATE TABLE t (p int, q text, c int, v int, PRIMARY KEY ((p, q), c))");
    fails("SELECT * FROM nope", 0x2200, "table nope does not exist");
    fails("SELECT * FROM nope.t", 0x2200, "keyspace nope does not exist");
    fails("SELECT nope FROM t", 0x2200, "Undefined column name nope in table ks.t");
    fails("CREATE TABLE t (p int PRIMARY KEY)", 0x2400,
          "Cannot add already existing table \"t\" to keyspace \"ks\"");
    fails(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        0x2400, "Cannot add existing keyspace \"ks\"");
    gives("CREATE TABLE IF NOT EXISTS t (p int PRIMARY KEY)", "void");
    fails("CREATE TABLE ks.u (p int)", 0x2200, "No PRIMARY KEY");
    fails("CREATE KEYSPACE k2 WITH replication = {'class': 'NoStrategy'}", 0x2300,
          "Unable to find replication strategy class");
    fails("CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy'}", 0x2300,
          "requires a replication_factor");
    fails("INSERT INTO t (p, q, v) VALUES (1, 'a', 1)", 0x2200,
          "Some clustering keys are missing: c");
    fails("INSERT INTO t (q, c) VALUES ('a', 1)", 0x2200,
          "Some partition key parts are missing: p");
    fails("INSERT INTO t (p, q, c) VALUES (null, 'a', 1)", 0x2200,
          "Invalid null value in condition for column p");
    fails("UPDATE t SET c = 5 WHERE p = 1 AND q = 'a'", 0x2200,
          "PRIMARY KEY part c found in SET part");
    fails("SELECT * FROM t WHERE p = 1", 0x2200, "ALLOW FILTERING");
    fails("SELECT * FROM t LIMIT 0", 0x2200, "LIMIT must be strictly positive");
    fails("DROP TABLE nope", 0x2200, "doesn't exist");
    fails("INSERT INTO system.local (key) VALUES ('x')", 0x2100, "not user-modifiable");
    fails("DROP KEYSPACE system", 0x2100, "not user-modifiable");
    fails("USE nope", 0x2200, "does not exist");
    fails("CREATE TABLE b (k int PRIMARY KEY, v 'com.\xFF')", 0x000A, "UTF8");
    static char text[60000] = "CREATE TABLE w (";
    for (int i = 0; i < 2001; ++i)
        (void)snprintf(text + strlen(text), 32, "c%d int, ", i);
    fails(strcat(text, "PRIMARY KEY (c0))"), 0x2200, "At most 2000 columns");
    strcpy(text, "CREATE TABLE w (k int, PRIMARY KEY (k");
    for (int i = 0; i < 40; ++i)
        strcat(text, ", k");
    fails(strcat(text, "))"), 0x2200, "A key has at most 32 parts");
    memset(text, 0, sizeof text);
    strcpy(text, "CREATE TABLE ");
    memset(text + 13, 'x', 49);
    fails(strcat(text, " (k int PRIMARY KEY)"), 0x2200, "48 characters");
    run("CREATE TABLE e (k text PRIMARY KEY)");
    fails("INSERT INTO e (k) VALUES ('')", 0x2200, "Key may not be empty");
}
END_TEST

START_TEST(schema_tables_tell_what_is_there)
{
    run("CREATE TABLE t (p int, q text, c timeuuid, s int static, v frozen<list<int>>, PRIMARY KEY ((p, q), c)) WITH CLUSTERING ORDER BY (c DESC)");
    gives(
        "SELECT column_name, kind, position, clustering_order, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'",
        "c|clustering|0|desc|timeuuid;p|partition_key|0|none|int;q|partition_key|1|none|text;s|static|-1|none|int;v|regular|-1|none|frozen<list<int>>");
    run("ALTER TABLE t ADD w map<text, frozen<tuple<int, text>>>");
    gives(
        "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND column_name = 'w'",
        "map<text, frozen<tuple<int, text>>>");
    run("ALTER TABLE t DROP w");
    gives(
        "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND column_name = 'w'",
        "");
    run("ALTER TABLE t RENAME c TO d");
    gives("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
          "{class:org.apache.cassandra.locator.SimpleStrategy,replication_factor:1}");
    run("CREATE INDEX my_index ON t (s)");
    gives("SELECT index_name, options FROM system_schema.indexes WHERE keyspace_name = 'ks'",
          "my_index|{target:s}");
    char before[100], after[100];
    (void)snprintf(before, sizeof before, "%s",
                   talk_query(&talk, "SELECT schema_version FROM system.local"));
    run("DROP INDEX my_index");
    (void)snprintf(after, sizeof after, "%s",
                   talk_query(&talk, "SELECT schema_version FROM system.local"));
    ck_assert_str_ne(before, after);
    run("DROP KEYSPACE ks");
    gives("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'", "");
    gives("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'ks'", "");
}
END_TEST

START_TEST(wide_partitions_keep_their_order)
{
    run("CREATE TABLE t (p int, c bigint, PRIMARY KEY (p, c))");
    talk_prepare(&talk, "INSERT INTO t (p, c) VALUES (?, ?)");
    uint8_t a[4], b[8];
    for (uint32_t i = 0; i < 5000; ++i) {
        /* All residues in a scattered order. */
        cqlring_bytes values[] = {talk_int(1, a), talk_bigint((int64_t)(i * 2741 % 5000), b)};
        ck_assert_str_eq(talk_execute(&talk, NULL, values, 2), "void");
    }
    gives("SELECT count(*) FROM t", "5000");
    gives("SELECT c FROM t WHERE p = 1 AND c >= 2498 LIMIT 4", "2498;2499;2500;2501");
    gives("SELECT c FROM t WHERE p = 1 AND c < 3 ORDER BY c DESC", "2;1;0");
    gives("SELECT max(c), min(c), sum(c) FROM t", "4999|0|12497500");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_engine");
    TCase *test = tcase_create("engine");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, rows_come_back_in_clustering_order);
    tcase_add_test(test, the_newer_timestamp_wins_whatever_comes_first);
    tcase_add_test(test, cells_die_when_their_time_is_over);
    tcase_add_test(test, ranges_of_rows_are_deleted);
    tcase_add_test(test, statics_belong_to_the_partition);
    tcase_add_test(test, collections_are_merged_by_element);
    tcase_add_test(test, user_types_grow_and_tuples_nest);
    tcase_add_test(test, counters_count);
    tcase_add_test(test, conditions_decide);
    tcase_add_test(test, a_batch_writes_all_or_nothing);
    tcase_add_test(test, whole_tables_are_scanned_by_token);
    tcase_add_test(test, pages_together_are_the_answer);
    tcase_add_test(test, a_paging_state_that_is_not_one_is_refused);
    tcase_add_test(test, literals_of_every_type_are_stored);
    tcase_add_test(test, errors_are_cassandras);
    tcase_add_test(test, schema_tables_tell_what_is_there);
    tcase_add_test(test, wide_partitions_keep_their_order);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
