/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of system_schema, written by hand, made into a snapshot and into CQL: what no embedded node shows (tables made by Thrift,
   ScyllaDB's local indexes, options of other versions), and rows that make no sense. */

#include "result_bodies.h"

#include "driver/schema_rows.h"

enum { TEXT = 0x0D, INT = 0x09, BOOLEAN = 0x04, DOUBLE = 0x07, UUID = 0x0C, LIST = 0x20, MAP = 0x21, SET = 0x22 };

/* A page: its columns as "name", type, …, NULL, then cells with put_…; taken by feed. */
struct page_column {
    const char *name;
    uint16_t type;
};

static void begin_page(const struct page_column *columns, uint32_t count, uint32_t rows)
{
    next_body();
    cqr_put_u32(&out, 1); /* one table for all columns */
    cqr_put_u32(&out, count);
    put_string("system_schema");
    put_string("x");
    for (uint32_t i = 0; i < count; i++) {
        put_string(columns[i].name);
        cqr_put_u16(&out, columns[i].type);
        if (columns[i].type >= LIST)
            cqr_put_u16(&out, TEXT);
        if (columns[i].type == MAP)
            cqr_put_u16(&out, TEXT);
    }
    cqr_put_u32(&out, rows);
}

static void put_cell(const void *data, int32_t size)
{
    cqr_put_u32(&out, (uint32_t)size);
    if (size > 0)
        cqr_put_raw(&out, data, (uint32_t)size);
}

static void put_text_cell(const char *text)
{
    put_cell(text, text == NULL ? -1 : (int32_t)strlen(text));
}

static void put_double_cell(double value)
{
    uint64_t bits;
    uint8_t cell[8];
    memcpy(&bits, &value, 8);
    cqr_store_u64(cell, bits);
    put_cell(cell, 8);
}

/* Texts up to a NULL; a map has them in pairs. */
static void put_texts_cell(bool pairs, const char *const *texts)
{
    uint8_t cell[512];
    uint32_t count = 0, at = 4;
    for (; texts[count] != NULL; count++) {
        uint32_t size = (uint32_t)strlen(texts[count]);
        cqr_store_u32(cell + at, size);
        memcpy(cell + at + 4, texts[count], size);
        at += 4 + size;
    }
    cqr_store_u32(cell, pairs ? count / 2 : count);
    put_cell(cell, (int32_t)at);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
static const char *const none[] = {NULL};

static struct schema_draft draft;
static int at;

/* The page goes in; the queries before it end. */
static cqlring_status feed(enum schema_query query)
{
    while (at < (int)query) {
        if (at >= 0)
            ck_assert_int_eq(cqr_schema_draft_end(&draft, (enum schema_query)at), CQLRING_OK);
        at++;
    }
    cqlring_result *result = NULL;
    struct failure *failure = NULL;
    ck_assert_int_eq(cqr_result_make(&v5, NULL, body(), RESULT_ROWS, NULL, NULL, &result, NULL, NULL, &failure), CQLRING_OK);
    cqlring_status status = cqr_schema_draft_rows(&draft, query, result);
    cqlring_result_release(result);
    return status;
}

static struct cqlring_schema *finish(const struct cqlring_schema *old, const char *const *names, uint32_t count)
{
    if (at >= 0)
        ck_assert_int_eq(cqr_schema_draft_end(&draft, (enum schema_query)at), CQLRING_OK);
    struct cqlring_schema *schema = cqr_schema_draft_finish(&draft, old, names, count);
    ck_assert_ptr_nonnull(schema);
    return schema;
}

static void begin(void)
{
    cqr_schema_draft_init(&draft);
    at = -1;
}

static void feed_keyspace_of(const char *name, int32_t size)
{
    begin_page((const struct page_column[]){{"keyspace_name", TEXT}, {"durable_writes", BOOLEAN}, {"replication", MAP}}, 3, 1);
    put_cell(name, size);
    put_cell("\1", 1);
    put_texts_cell(true, TEXTS("class", "SimpleStrategy", "replication_factor", "1"));
    ck_assert_int_eq(feed(SCHEMA_QUERY_KEYSPACES), CQLRING_OK);
}

static void feed_keyspace(const char *name)
{
    feed_keyspace_of(name, (int32_t)strlen(name));
}

static void feed_table(const char *keyspace, const char *name, const char *const *flags)
{
    begin_page((const struct page_column[]){{"keyspace_name", TEXT}, {"table_name", TEXT}, {"flags", SET}, {"id", UUID}}, 4, 1);
    put_text_cell(keyspace);
    put_text_cell(name);
    put_texts_cell(false, flags);
    put_cell("0123456789abcdef", 16);
    ck_assert_int_eq(feed(SCHEMA_QUERY_TABLES), CQLRING_OK);
}

static void feed_column(const char *table, const char *name, const char *kind, int32_t position, const char *type)
{
    begin_page((const struct page_column[]){{"keyspace_name", TEXT}, {"table_name", TEXT}, {"column_name", TEXT}, {"kind", TEXT}, {"position", INT}, {"type", TEXT}}, 6, 1);
    put_text_cell("ks");
    put_text_cell(table);
    put_text_cell(name);
    put_text_cell(kind);
    put_int_cell(position);
    put_text_cell(type);
    ck_assert_int_eq(feed(SCHEMA_QUERY_COLUMNS), CQLRING_OK);
}

static void ck_assert_text(const struct cqlring_schema *schema, cqlring_schema_part part, const char *name, const char *wanted)
{
    char text[2048];
    cqlring_schema_text(schema, part, "ks", name, text, sizeof text);
    ck_assert_str_eq(text, wanted);
}

START_TEST(a_table_of_old_is_compact)
{
    begin();
    feed_keyspace("ks");
    feed_table("ks", "dense", TEXTS("dense"));
    feed_column("dense", "k", "partition_key", 0, "blob");
    feed_column("dense", "value", "compact_value", -1, "empty");
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    const cqlring_schema_table *table = cqlring_schema_find_table(schema, "ks", "dense");
    ck_assert_ptr_nonnull(table);
    ck_assert(table->is_compact);
    ck_assert_mem_eq(table->id, "0123456789abcdef", 16);
    ck_assert_text(schema, CQLRING_SCHEMA_TABLE, "dense", "CREATE TABLE ks.dense (\n    k blob,\n    PRIMARY KEY (k)\n) WITH COMPACT STORAGE;\n");
    cqlring_schema_release(schema);
}
END_TEST

START_TEST(options_are_literals)
{
    static const struct page_column columns[] = {{"keyspace_name", TEXT}, {"table_name", TEXT},        {"comment", TEXT},
                                                 {"bloom", DOUBLE},       {"whole", DOUBLE},           {"tiny", DOUBLE},
                                                 {"caching", MAP},        {"flag", BOOLEAN},           {"read_repair", TEXT},
                                                 {"absent", TEXT},        {"read_repair_chance", DOUBLE}, {"names", LIST}};
    begin();
    feed_keyspace("ks");
    begin_page(columns, 12, 1);
    put_text_cell("ks");
    put_text_cell("t");
    put_text_cell("it's \"so\"");
    put_double_cell(0.01);
    put_double_cell(1);
    put_double_cell(1e-7);
    put_texts_cell(true, TEXTS("a'b", "c", "d", ""));
    put_cell("\1", 1);
    put_text_cell("BLOCKING");
    put_text_cell(NULL);
    put_double_cell(0.1); /* no option any more where there is read_repair */
    put_texts_cell(false, TEXTS("x")); /* no option is a list */
    ck_assert_int_eq(feed(SCHEMA_QUERY_TABLES), CQLRING_OK);
    feed_column("t", "select", "partition_key", 0, "int");
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    ck_assert_text(schema, CQLRING_SCHEMA_TABLE, "t",
                   "CREATE TABLE ks.t (\n    \"select\" int,\n    PRIMARY KEY (\"select\")\n) WITH comment = 'it''s \"so\"'\n    AND bloom = 0.01\n    AND whole = 1.0\n"
                   "    AND tiny = 1e-07\n    AND caching = {'a''b': 'c', 'd': ''}\n    AND flag = true\n    AND read_repair = 'BLOCKING';\n");
    cqlring_schema_release(schema);
}
END_TEST

START_TEST(a_local_index_of_scylladb_has_its_own_target)
{
    begin();
    feed_keyspace("ks");
    feed_table("ks", "t", TEXTS("compound"));
    feed_column("t", "p", "partition_key", 0, "int");
    feed_column("t", "Q", "partition_key", 1, "int");
    feed_column("t", "v", "regular", -1, "int");
    static const struct page_column columns[] = {{"keyspace_name", TEXT}, {"table_name", TEXT}, {"index_name", TEXT}, {"kind", TEXT}, {"options", MAP}};
    begin_page(columns, 5, 2);
    put_text_cell("ks");
    put_text_cell("t");
    put_text_cell("near");
    put_text_cell("COMPOSITES");
    put_texts_cell(true, TEXTS("target", "{\"pk\":[\"p\",\"Q\"],\"ck\":[\"v\"]}"));
    put_text_cell("ks");
    put_text_cell("nowhere"); /* of a table that is gone */
    put_text_cell("lost");
    put_text_cell("COMPOSITES");
    put_texts_cell(true, TEXTS("target", "v"));
    ck_assert_int_eq(feed(SCHEMA_QUERY_INDEXES), CQLRING_OK);
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    ck_assert_text(schema, CQLRING_SCHEMA_INDEX, "near", "CREATE INDEX near ON ks.t ((p, \"Q\"), v);\n");
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_INDEX, "ks", "lost", NULL, 0), 0);
    cqlring_schema_release(schema);
}
END_TEST

static void feed_type(const char *name, const char *const *names, const char *const *types)
{
    begin_page((const struct page_column[]){{"keyspace_name", TEXT}, {"type_name", TEXT}, {"field_names", LIST}, {"field_types", LIST}}, 4, 1);
    put_text_cell("ks");
    put_text_cell(name);
    put_texts_cell(false, names);
    put_texts_cell(false, types);
    ck_assert_int_eq(feed(SCHEMA_QUERY_TYPES), CQLRING_OK);
}

START_TEST(types_come_in_the_order_in_which_they_can_be_made)
{
    begin();
    feed_keyspace("ks");
    feed_type("a", TEXTS("x"), TEXTS("frozen<b>"));
    feed_type("b", TEXTS("x"), TEXTS("frozen<list<frozen<c>>>"));
    feed_type("c", TEXTS("x", "y"), TEXTS("int", "text"));
    feed_type("round", TEXTS("x"), TEXTS("frozen<round>")); /* cannot be */
    feed_type("uneven", TEXTS("x", "y"), TEXTS("int"));
    feed_type("empty", none, none);
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    char text[2048];
    cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, "ks", NULL, text, sizeof text);
    const char *a = strstr(text, "ks.a"), *b = strstr(text, "ks.b"), *c = strstr(text, "ks.c");
    ck_assert(a != NULL && b != NULL && c != NULL);
    ck_assert(c < b && b < a);
    ck_assert_ptr_null(cqlring_schema_find_type(schema, "ks", "round")->type);
    ck_assert_ptr_null(cqlring_schema_find_type(schema, "ks", "empty")->type);
    ck_assert_uint_eq(cqlring_schema_find_type(schema, "ks", "uneven")->field_count, 1);
    ck_assert_uint_eq(cqlring_type_child_count(cqlring_schema_find_type(schema, "ks", "a")->type), 1);
    cqlring_schema_release(schema);
}
END_TEST

START_TEST(functions_are_written_without_frozen_arguments)
{
    static const struct page_column columns[] = {{"keyspace_name", TEXT}, {"function_name", TEXT}, {"argument_types", LIST}, {"argument_names", LIST},
                                                 {"body", TEXT},          {"language", TEXT},      {"return_type", TEXT},    {"called_on_null_input", BOOLEAN}};
    begin();
    feed_keyspace("ks");
    begin_page(columns, 8, 2);
    put_text_cell("ks");
    put_text_cell("f");
    put_texts_cell(false, TEXTS("frozen<list<int>>", "text"));
    put_texts_cell(false, TEXTS("a", "B"));
    put_text_cell("x = '$$';");
    put_text_cell("lua");
    put_text_cell("frozen<map<int, text>>");
    put_cell("\1", 1);
    put_text_cell("ks");
    put_text_cell("uneven");
    put_texts_cell(false, TEXTS("int"));
    put_texts_cell(false, none);
    put_text_cell("");
    put_text_cell("lua");
    put_text_cell("int");
    put_cell("\0", 1);
    ck_assert_int_eq(feed(SCHEMA_QUERY_FUNCTIONS), CQLRING_OK);
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    ck_assert_text(schema, CQLRING_SCHEMA_FUNCTION, "f",
                   "CREATE FUNCTION ks.f (a list<int>, \"B\" text)\n    CALLED ON NULL INPUT\n    RETURNS map<int, text>\n    LANGUAGE lua\n    AS 'x = ''$$'';';\n");
    ck_assert_uint_eq(cqlring_schema_text(schema, CQLRING_SCHEMA_FUNCTION, "ks", "uneven", NULL, 0), 0);
    cqlring_schema_release(schema);
}
END_TEST

/* Tables without a key, rows of keyspaces nobody named, names twice, types that are none. */
START_TEST(rows_that_make_no_sense_are_left_out)
{
    begin();
    feed_keyspace("ks");
    feed_keyspace("ks");
    feed_keyspace("");
    feed_keyspace_of("ks\0x", 4); /* would be ks too */
    feed_table("ks", "keyless", none);
    feed_table("ks", "t", none);
    feed_table("elsewhere", "t", none);
    feed_table("ks", "", none);
    feed_column("t", "k", "partition_key", 0, "int");
    feed_column("t", "odd", "regular", -1, "list<");
    feed_column("keyless", "v", "regular", -1, "int");
    feed_column("gone", "k", "partition_key", 0, "int");
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    ck_assert_uint_eq(cqlring_schema_keyspaces(schema, NULL), 1);
    ck_assert_uint_eq(cqlring_schema_find_keyspace(schema, "ks")->table_count, 1);
    const cqlring_schema_table *table = cqlring_schema_find_table(schema, "ks", "t");
    ck_assert_uint_eq(table->column_count, 2);
    ck_assert_ptr_null(table->columns[1]->type);
    ck_assert_str_eq(table->columns[1]->type_text, "list<");
    cqlring_schema_release(schema);
}
END_TEST

START_TEST(a_torn_page_is_an_error)
{
    begin();
    feed_keyspace("ks");
    begin_page((const struct page_column[]){{"keyspace_name", TEXT}, {"table_name", TEXT}}, 2, 2);
    put_text_cell("ks");
    put_text_cell("t");
    put_text_cell("ks");
    ck_assert_int_eq(feed(SCHEMA_QUERY_TABLES), CQLRING_PROTOCOL);
    cqr_schema_draft_fini(&draft);
}
END_TEST

START_TEST(a_partial_reading_shares_what_it_did_not_read)
{
    begin();
    feed_keyspace("ks");
    feed_keyspace("other");
    feed_keyspace("third");
    struct cqlring_schema *before = finish(NULL, NULL, 0);
    begin();
    feed_keyspace("other");
    const char *names[] = {"other", "third"}; /* the third was dropped */
    struct cqlring_schema *after = finish(before, names, 2);
    ck_assert_uint_eq(cqlring_schema_keyspaces(after, NULL), 2);
    ck_assert_ptr_eq(cqlring_schema_find_keyspace(before, "ks"), cqlring_schema_find_keyspace(after, "ks"));
    ck_assert_ptr_ne(cqlring_schema_find_keyspace(before, "other"), cqlring_schema_find_keyspace(after, "other"));
    ck_assert_ptr_null(cqlring_schema_find_keyspace(after, "third"));
    cqlring_schema_release(before);
    ck_assert_str_eq(cqlring_schema_find_keyspace(after, "ks")->replication[0].value, "SimpleStrategy");
    cqlring_schema_release(after);
}
END_TEST

/* A server that answers a keyspace nobody asked for: what was read last is what there is, once. */
START_TEST(a_keyspace_that_was_not_asked_for_takes_the_place_of_the_old_one)
{
    begin();
    feed_keyspace("ks");
    feed_table("ks", "before", none);
    feed_column("before", "k", "partition_key", 0, "int");
    struct cqlring_schema *before = finish(NULL, NULL, 0);
    begin();
    feed_keyspace("other");
    feed_keyspace("ks");
    feed_table("ks", "t", none);
    feed_column("t", "k", "partition_key", 0, "int");
    const char *names[] = {"other"};
    struct cqlring_schema *after = finish(before, names, 1);
    ck_assert_uint_eq(cqlring_schema_keyspaces(after, NULL), 2);
    ck_assert_ptr_nonnull(cqlring_schema_find_table(after, "ks", "t"));
    ck_assert_ptr_null(cqlring_schema_find_table(after, "ks", "before"));
    ck_assert_ptr_nonnull(cqlring_schema_find_table(before, "ks", "before"));
    cqlring_schema_release(before);
    cqlring_schema_release(after);
}
END_TEST

START_TEST(a_reading_of_a_table_keeps_the_others_and_what_they_live_in)
{
    begin();
    feed_keyspace("ks");
    feed_type("pair", TEXTS("a"), TEXTS("int"));
    feed_table("ks", "dropped", none);
    feed_table("ks", "grown", none);
    feed_table("ks", "other", none);
    feed_column("dropped", "k", "partition_key", 0, "int");
    feed_column("grown", "k", "partition_key", 0, "int");
    feed_column("other", "k", "partition_key", 0, "frozen<pair>");
    struct cqlring_schema *schema = finish(NULL, NULL, 0);
    static const char *const tables[] = {"grown", "dropped", "new"}, *const names[] = {"ks"};
    cqlring_status status = CQLRING_OK;
    int pieces = 0;
    for (;; pieces++) {
        begin();
        at = SCHEMA_QUERY_TABLES;
        if (!cqr_schema_draft_tables(&draft, schema, "ks", tables, 3, &status))
            break;
        feed_table("ks", "grown", none);
        feed_table("ks", "new", none);
        feed_column("grown", "k", "partition_key", 0, "int");
        feed_column("grown", "v", "regular", -1, "frozen<pair>");
        feed_column("new", "k", "partition_key", 0, "text");
        struct cqlring_schema *next = finish(schema, names, 1);
        const cqlring_schema_keyspace *keyspace = cqlring_schema_find_keyspace(next, "ks");
        ck_assert_uint_eq(keyspace->table_count, 3);
        ck_assert_ptr_eq(cqlring_schema_find_table(next, "ks", "other"), cqlring_schema_find_table(schema, "ks", "other"));
        ck_assert_ptr_null(cqlring_schema_find_table(next, "ks", "dropped"));
        ck_assert_ptr_nonnull(cqlring_schema_find_table(next, "ks", "new"));
        ck_assert_int_eq((int)cqlring_type_kind(cqlring_schema_find_table(next, "ks", "grown")->columns[1]->type), CQLRING_KIND_UDT);
        cqlring_schema_release(schema); /* what next has of it stays */
        schema = next;
    }
    ck_assert_int_eq(status, CQLRING_OK);
    ck_assert_int_eq(pieces, 16); /* then the keyspace is read whole, and all of the old memory goes */
    ck_assert(!cqr_schema_draft_tables(&draft, schema, "no", tables, 3, &status));
    ck_assert(!cqr_schema_draft_tables(&draft, NULL, "ks", tables, 3, &status));
    cqlring_schema_release(schema);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema_rows");
    TCase *tcase = tcase_create("schema_rows");
    tcase_add_checked_fixture(tcase, open_pool, close_pool);
    tcase_add_test(tcase, a_table_of_old_is_compact);
    tcase_add_test(tcase, options_are_literals);
    tcase_add_test(tcase, a_local_index_of_scylladb_has_its_own_target);
    tcase_add_test(tcase, types_come_in_the_order_in_which_they_can_be_made);
    tcase_add_test(tcase, functions_are_written_without_frozen_arguments);
    tcase_add_test(tcase, rows_that_make_no_sense_are_left_out);
    tcase_add_test(tcase, a_torn_page_is_an_error);
    tcase_add_test(tcase, a_reading_of_a_table_keeps_the_others_and_what_they_live_in);
    tcase_add_test(tcase, a_partial_reading_shares_what_it_did_not_read);
    tcase_add_test(tcase, a_keyspace_that_was_not_asked_for_takes_the_place_of_the_old_one);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
