/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "driver/words.h"

static const char *const conditional[] = {
    "INSERT INTO t (k) VALUES (1) IF NOT EXISTS",
    "insert into t (k) values (?) if not exists using ttl 3",
    "/* why */ UPDATE t SET v = 1 WHERE k = 1 IF v = 0",
    "-- a line\nDELETE FROM t WHERE k = 1 IF EXISTS",
    "UPDATE t SET v = 'it''s' WHERE k = 1\nIF v='x'",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1) IF NOT EXISTS; APPLY BATCH",
    "UPDATE t SET v = $$ a $ b $$ WHERE k = 1 IF(v) = 1",
};
static const char *const plain[] = {
    "",
    "IF",
    "INSERT INTO t (k) VALUES ('IF NOT EXISTS')",
    "INSERT INTO t (k, \"if\") VALUES (1, 2)",
    "UPDATE t SET v = $$ IF $$ WHERE k = 1",
    "UPDATE t SET v = 1 -- IF v = 2",
    "UPDATE t SET v = 1 // IF v = 2\nWHERE k = 1",
    "UPDATE t SET v = 1 /* IF v = 2 */ WHERE k = 1",
    "UPDATE t SET iff = 1, x_if = 2, if_ = 3 WHERE k = 1",
    "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
    "SELECT v FROM t WHERE k = 1",
    "UPDATE t SET v = 'never ended IF",
    "UPDATE t SET v = $$ IF",
    "UPDATE t /* IF",
};

START_TEST(only_equalities_choose_rows_by_key)
{
    static const char *const by_key[] = {"INSERT INTO t (p, c, inner_v) VALUES (?, ?, 'in')", "update t set v = ? where p = ? and c = ?",
                                         "DELETE FROM t WHERE p = ? AND \"in\" = ? -- in"};
    static const char *const others[] = {"DELETE FROM t WHERE p = ? AND c IN (?, ?)", "DELETE FROM t WHERE p = ? AND c > ?", "DELETE FROM t WHERE p = ? AND c<=?",
                                         "UPDATE t SET v = ? WHERE p = ? AND c in ?", ""};
    for (size_t i = 0; i < sizeof by_key / sizeof by_key[0]; i++)
        ck_assert_msg(cqr_text_is_by_key(cqlring_text(by_key[i])), "%s", by_key[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!cqr_text_is_by_key(cqlring_text(others[i])), "%s", others[i]);
    ck_assert(cqr_text_is_batch(cqlring_text("/* x */ begin unlogged batch")));
    ck_assert(!cqr_text_is_batch(cqlring_text("INSERT INTO begin (k) VALUES (1)")));
}
END_TEST

START_TEST(a_bare_if_makes_a_write_conditional)
{
    for (size_t i = 0; i < sizeof conditional / sizeof conditional[0]; i++)
        ck_assert_msg(cqr_text_is_conditional(cqlring_text(conditional[i])), "%s", conditional[i]);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        ck_assert_msg(!cqr_text_is_conditional(cqlring_text(plain[i])), "%s", plain[i]);
    ck_assert(cqr_text_is_plain_write(cqlring_text("update t set a = 1 where b = 2")));
    ck_assert(cqr_text_is_plain_write(cqlring_text("BEGIN BATCH INSERT INTO t (a) VALUES (1); APPLY BATCH")));
    static const char *const others[] = {"", "SELECT a FROM t", "CREATE TABLE t (a int PRIMARY KEY)", "DROP TABLE IF EXISTS t", "TRUNCATE t", "USE ks",
                                         "INSERT INTO t (a) VALUES (1) IF NOT EXISTS", "GRANT ALL ON t TO u", "DELETE FROM t WHERE a = 1 IF b = 2"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!cqr_text_is_plain_write(cqlring_text(others[i])), "%s", others[i]);
}
END_TEST

START_TEST(a_select_is_one_behind_blanks_and_comments)
{
    ck_assert(cqr_text_is_read(cqlring_text("SELECT * FROM t")));
    ck_assert(cqr_text_is_use(cqlring_text(" -- x\n Use \"ks\"")));
    ck_assert(!cqr_text_is_use(cqlring_text("USER")));
    ck_assert(!cqr_text_is_use(cqlring_text("INSERT INTO t (use) VALUES (1)")));
    ck_assert(cqr_text_is_read(cqlring_text("\n\t -- c\n/* INSERT */ select * FROM t")));
    ck_assert(!cqr_text_is_read(cqlring_text("SELECTED")));
    ck_assert(!cqr_text_is_read(cqlring_text("/* SELECT")));
    ck_assert(!cqr_text_is_read(cqlring_text("INSERT")));
    ck_assert(!cqr_text_is_read((cqlring_bytes){NULL, 0}));
}
END_TEST

/* Cut anywhere, in memory of exactly that size: nothing beyond it is looked at (the sanitizers see to it). */
START_TEST(a_name_is_found_bare_in_any_case_or_quoted_exactly)
{
    static const struct {
        const char *cql, *name;
        bool is_there;
    } cases[] = {{"INSERT INTO t (k, s) VALUES (?, ?)", "s", true},
                 {"INSERT INTO t (k, S) VALUES (?, ?)", "s", true},
                 {"INSERT INTO t (k, v) VALUES (?, ?)", "s", false},
                 {"UPDATE t SET My_Col1=?", "my_col1", true},
                 {"UPDATE t SET my_col12=?", "my_col1", false},
                 {"UPDATE t SET \"s\"=?", "s", true},
                 {"UPDATE t SET \"S\"=?", "s", false},
                 {"UPDATE t SET S=?", "S", false}, /* bare, it is another one */
                 {"UPDATE t SET \"S\"=?", "S", true},
                 {"UPDATE t SET \"a\"\"b\"=?", "a\"b", true},
                 {"UPDATE t SET \"a\"\"b\"=?", "b", false},
                 {"UPDATE t SET \"a\"\"b\"=?", "a", false},
                 {"UPDATE t SET \"a\"=1, \"b\"=?", "b", true},
                 {"UPDATE t SET v='s \"s\"' -- s\n/* s */ // s", "s", false},
                 {"UPDATE t SET v=$$ s \"s\" $$", "s", false},
                 {"UPDATE t SET v['s']=?,s[0]=?", "s", true},
                 {"UPDATE t SET \"unended", "unended", false},
                 {"", "s", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(cqr_text_names(cqlring_text(cases[i].cql), cases[i].name) == cases[i].is_there, "%s in %s", cases[i].name, cases[i].cql);
}
END_TEST

START_TEST(a_text_cut_anywhere_is_read_within_its_bounds)
{
    const char *all = "UPDATE t /* c */ SET v = 'a''b', w = $$x$$ -- c\n WHERE \"k\" = 1 // d\n IF v = 1";
    for (size_t size = 0; size <= strlen(all); size++) {
        char *copy = malloc(size > 0 ? size : 1);
        memcpy(copy, all, size);
        cqlring_bytes cql = {copy, (int32_t)size};
        ck_assert(cqr_text_is_conditional(cql) == (size >= strlen(all) - 6)); /* from the bare IF on */
        ck_assert(!cqr_text_is_read(cql));
        ck_assert(!cqr_text_names(cql, "nobody"));
        free(copy);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, only_equalities_choose_rows_by_key);
    tcase_add_test(tcase, a_bare_if_makes_a_write_conditional);
    tcase_add_test(tcase, a_select_is_one_behind_blanks_and_comments);
    tcase_add_test(tcase, a_name_is_found_bare_in_any_case_or_quoted_exactly);
    tcase_add_test(tcase, a_text_cut_anywhere_is_read_within_its_bounds);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
