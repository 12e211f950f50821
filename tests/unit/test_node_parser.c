/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/proto.h"
#include "tests/node/ast.h"
#include "tests/node/lexer.h"

static struct node_arena arena;
static char message[256];

static void set_up(void)
{
    memset(&arena, 0, sizeof arena);
}
static void tear_down(void)
{
    node_arena_fini(&arena);
}

static struct statement *parse(const char *text)
{
    return node_parse(&arena, slice_text(text), message, sizeof message);
}

START_TEST(tokens_are_told_apart)
{
    static const struct {
        const char *text;
        enum token_kind kind;
        const char *taken;
    } cases[] = {
        {"select", TOKEN_WORD, "select"},
        {"\"Mixed \"\" name\"", TOKEN_NAME, "Mixed \"\" name"},
        {"'it''s'", TOKEN_STRING, "it''s"},
        {"$$it's$$", TOKEN_STRING, "it's"},
        {"-12", TOKEN_INTEGER, "-12"},
        {"1.5e-3", TOKEN_FLOAT, "1.5e-3"},
        {"1e5", TOKEN_FLOAT, "1e5"},
        {"5.", TOKEN_FLOAT, "5."},
        {"550e8400-e29b-41d4-a716-446655440000", TOKEN_UUID,
         "550e8400-e29b-41d4-a716-446655440000"},
        {"0xCafe", TOKEN_BLOB, "Cafe"},
        {"0x", TOKEN_BLOB, ""},
        {"1h30m", TOKEN_DURATION, "1h30m"},
        {"-1y2mo3d", TOKEN_DURATION, "-1y2mo3d"},
        {"P1Y2M3DT4H5M6S", TOKEN_DURATION, "P1Y2M3DT4H5M6S"},
        {"PT0S", TOKEN_DURATION, "PT0S"},
        {"?", TOKEN_BIND, "?"},
        {"<=", TOKEN_OPERATOR, "<="},
        {"+=", TOKEN_OPERATOR, "+="},
        {"part", TOKEN_WORD, "part"},
        {"p1", TOKEN_WORD, "p1"},
        {"/* c */ -- d\n x", TOKEN_WORD, "x"},
        {"'open", TOKEN_BAD, NULL},
        {"/* open", TOKEN_BAD, NULL},
        {"12abc", TOKEN_BAD, NULL},
        {"#", TOKEN_BAD, NULL},
        {"", TOKEN_END, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct lexer lexer;
        node_lexer_init(&lexer, slice_text(cases[i].text));
        struct token token = node_lexer_next(&lexer);
        ck_assert_msg(token.kind == cases[i].kind, "%s is of kind %d", cases[i].text, token.kind);
        if (cases[i].taken != NULL)
            ck_assert_msg(slice_is(token.text, cases[i].taken), "%s gave %.*s", cases[i].text,
                          SLICE_ARG(token.text));
        if (token.kind != TOKEN_BAD)
            ck_assert_int_eq(node_lexer_next(&lexer).kind, TOKEN_END);
    }
}
END_TEST

START_TEST(names_are_lower_cased_unless_quoted)
{
    struct statement *statement = parse("SELECT Abc, \"Abc\", \"a\"\"b\" FROM Ks.\"Tab\"");
    ck_assert_ptr_nonnull(statement);
    ck_assert(slice_is(statement->keyspace, "ks"));
    ck_assert(slice_is(statement->name, "Tab"));
    ck_assert(slice_is(statement->selectors->name, "abc"));
    ck_assert(slice_is(statement->selectors->next->name, "Abc"));
    ck_assert(slice_is(statement->selectors->next->next->name, "a\"b"));
}
END_TEST

START_TEST(bind_markers_are_numbered_in_order_of_the_text)
{
    struct statement *statement = parse(
        "UPDATE t USING TTL ? AND TIMESTAMP :ts SET a = ?, b[?] = :\"V\", c = c + ? WHERE k = ? AND c IN (?, ?) IF d = ?");
    ck_assert_msg(statement != NULL, "%s", message);
    ck_assert_uint_eq(statement->bind_count, 10);
    ck_assert_uint_eq(statement->ttl->bind, 0);
    ck_assert(slice_is(statement->binds[1].name, "ts"));
    ck_assert(slice_is(statement->binds[4].name, "V"));
    ck_assert_ptr_null(statement->binds[0].name.data);
    ck_assert_uint_eq(statement->conditions->value->bind, 9);
}
END_TEST

START_TEST(literals_nest)
{
    struct statement *statement = parse(
        "INSERT INTO t (a, b, c, d, e, f) VALUES ({'k': [1, 2]}, {1, 2}, {street: 'x', zip: null}, (1, 'a', {}), [], -Infinity) USING TTL 5");
    ck_assert_msg(statement != NULL, "%s", message);
    struct term *term = statement->insert_values;
    ck_assert_int_eq(term->kind, TERM_MAP);
    ck_assert_int_eq(term->children->next->kind, TERM_LIST);
    term = term->next;
    ck_assert_int_eq(term->kind, TERM_BRACES);
    ck_assert_uint_eq(term->count, 2);
    term = term->next;
    ck_assert_int_eq(term->kind, TERM_UDT);
    ck_assert(slice_is(term->children->next->field, "zip"));
    ck_assert_int_eq(term->children->next->kind, TERM_NULL);
    term = term->next;
    ck_assert_int_eq(term->kind, TERM_TUPLE);
    ck_assert_uint_eq(term->count, 3);
    term = term->next->next;
    ck_assert_int_eq(term->kind, TERM_FLOAT);
    ck_assert(term->negative);
}
END_TEST

START_TEST(statements_of_every_kind_are_understood)
{
    static const char *const texts[] = {
        "SELECT * FROM t",
        "select distinct k from t limit 5;",
        "SELECT count(*), COUNT(1), writetime(a) AS w, ttl(a), token(k, j), cast(a AS text), now(), max(b), m['x'], u.f, toDate(now()) FROM ks.t WHERE k = 1 AND c >= 2 AND c < 3 "
        "ORDER BY c DESC, d PER PARTITION LIMIT 2 LIMIT 10 ALLOW FILTERING",
        "SELECT * FROM t WHERE token(k) > token(1) AND token(k) <= ?",
        "SELECT * FROM t WHERE (c, d) > (1, 2) AND k IN () AND m CONTAINS KEY 'a' AND l CONTAINS 3",
        "SELECT key FROM system.local WHERE key='local'",
        "SELECT * FROM t WHERE k = :k USING TIMEOUT 1s BYPASS CACHE",
        "INSERT INTO t (a) VALUES (?) IF NOT EXISTS USING TIMESTAMP 1 AND TTL ?",
        "UPDATE t SET a = a + 1, b = b - {'x'}, c = [1] + c, d -= 3, e += {'a': 1}, f.g = 2, n = n -1 WHERE k = 1",
        "UPDATE t SET a = null WHERE k = 1 IF EXISTS",
        "UPDATE t SET a = 1 WHERE k = 1 IF a != 2 AND b[3] = 1 AND u.f > 5 AND c IN (1, 2)",
        "DELETE FROM t WHERE k = 1",
        "DELETE a, b['x'], u.f FROM t USING TIMESTAMP 5 WHERE k = 1 AND c > 2 IF EXISTS",
        "BEGIN BATCH INSERT INTO t (a) VALUES (1); UPDATE t SET b = 1 WHERE a = 1 DELETE FROM t WHERE a = 2; APPLY BATCH",
        "BEGIN UNLOGGED BATCH USING TIMESTAMP 3 APPLY BATCH;",
        "BEGIN COUNTER BATCH UPDATE c SET n = n + 1 WHERE k = 1 APPLY BATCH",
        "TRUNCATE t",
        "TRUNCATE TABLE ks.t",
        "USE \"Ks\"",
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': '3'} AND durable_writes = false",
        "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "DROP KEYSPACE IF EXISTS ks",
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE TABLE IF NOT EXISTS ks.t (a int, b text, c timeuuid, s int static, m map<text, frozen<list<frozen<tuple<int, vector<float, 3>>>>>>, u frozen<\"Typ\">, x 'com.example.T', "
        "PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'x' AND compaction = {'class': 'S'} AND COMPACT STORAGE",
        "CREATE COLUMNFAMILY t (k int, c int, PRIMARY KEY (k, c),)",
        "ALTER TABLE t ADD a int, b text",
        "ALTER TABLE t ADD (a int static)",
        "ALTER TABLE t DROP a",
        "ALTER TABLE t RENAME a TO b AND c TO d",
        "ALTER TABLE t WITH comment = 'y' AND gc_grace_seconds = 5",
        "DROP TABLE t",
        "CREATE TYPE ks.u (a int, b frozen<map<text, int>>)",
        "ALTER TYPE u ADD c int",
        "ALTER TYPE u RENAME a TO z",
        "DROP TYPE IF EXISTS u",
        "CREATE INDEX ON t (a)",
        "CREATE CUSTOM INDEX IF NOT EXISTS i ON ks.t (values(a)) USING 'sai' WITH OPTIONS = {'x': 'y'}",
        "DROP INDEX ks.i",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i)
        ck_assert_msg(parse(texts[i]) != NULL, "%s: %s", texts[i], message);
}
END_TEST

START_TEST(what_is_not_cql_is_refused_with_a_place)
{
    static const char *const texts[] = {
        "",
        "SELEC * FROM t",
        "SELECT FROM t",
        "SELECT * FROM",
        "SELECT * FROM t WHERE",
        "SELECT * FROM t WHERE a",
        "SELECT * FROM t WHERE a = ",
        "SELECT * FROM t LIMIT",
        "SELECT * FROM t; SELECT * FROM t",
        "INSERT INTO t (a) VALUES",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t (a) VALUES ([1)",
        "UPDATE t SET a = b + 1 WHERE k = 1",
        "UPDATE t WHERE k = 1",
        "DELETE FROM t",
        "BEGIN BATCH SELECT * FROM t APPLY BATCH",
        "BEGIN BATCH INSERT INTO t (a) VALUES (1)",
        "CREATE TABLE t",
        "CREATE TABLE t (k int PRIMARY KEY, PRIMARY KEY (k))",
        "CREATE TABLE t (k list<int PRIMARY KEY)",
        "CREATE TABLE t (k vector<float, 0> PRIMARY KEY)",
        "DROP",
        "GRANT ALL",
        "SELECT 'open FROM t",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        ck_assert_msg(parse(texts[i]) == NULL, "%s", texts[i]);
        ck_assert_msg(strncmp(message, "line ", 5) == 0, "%s", message);
    }
    ck_assert_ptr_null(parse("SELECT *\n FROM t WHERE ;"));
    ck_assert_msg(strncmp(message, "line 2:14 ", 10) == 0, "%s", message);
}
END_TEST

START_TEST(nesting_has_a_limit)
{
    char text[4096] = "INSERT INTO t (a) VALUES (";
    size_t size = strlen(text);
    memset(text + size, '[', 1000);
    ck_assert_ptr_null(parse(text));
    ck_assert_ptr_nonnull(strstr(message, "less nesting"));
    strcpy(text, "CREATE TABLE t (k ");
    for (int i = 0; i < 200; ++i)
        strcat(text, "frozen<");
    ck_assert_ptr_null(parse(text));
}
END_TEST

START_TEST(a_statement_cut_anywhere_is_refused_or_shorter)
{
    static const char text[] =
        "UPDATE ks.t USING TTL 5 SET m['k'] = 'it''s', l = [1, 2] + l WHERE k = 0xCAFE AND c = 550e8400-e29b-41d4-a716-446655440000 IF u.f = 1h30m";
    for (size_t size = 0; size < sizeof text; ++size) {
        char *exact = malloc(size + 1); /* so that a sanitizer sees one byte too far */
        memcpy(exact, text, size);
        (void)node_parse(&arena, slice_of(exact, size), message, sizeof message);
        free(exact);
    }
}
END_TEST

START_TEST(types_are_parsed_alone)
{
    struct type_ast *type = node_parse_type(
        &arena, slice_text("map<text, frozen<list<vector<float, 4>>>>"));
    ck_assert_ptr_nonnull(type);
    ck_assert_uint_eq(type->count, 2);
    ck_assert_uint_eq(type->children->next->children->children->dimension, 4);
    ck_assert_ptr_null(node_parse_type(&arena, slice_text("map<text, int> x")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_parser");
    TCase *test = tcase_create("parser");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, tokens_are_told_apart);
    tcase_add_test(test, names_are_lower_cased_unless_quoted);
    tcase_add_test(test, bind_markers_are_numbered_in_order_of_the_text);
    tcase_add_test(test, literals_nest);
    tcase_add_test(test, statements_of_every_kind_are_understood);
    tcase_add_test(test, what_is_not_cql_is_refused_with_a_place);
    tcase_add_test(test, nesting_has_a_limit);
    tcase_add_test(test, a_statement_cut_anywhere_is_refused_or_shorter);
    tcase_add_test(test, types_are_parsed_alone);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
