/* SPDX-License-Identifier: Apache-2.0 */
/* What stands beside the rows: prefixes, detached copies, references, completions. */

#include "tests/unit/result_bodies.h"

/* --- prefixes ----------------------------------------------------------------------------------------------------- */

static void put_prefix(void)
{
    for (uint8_t i = 0; i < 16; ++i)
        cqr_put_u8(&out, i);
    cqr_put_u16(&out, 2);
    put_string("first warning");
    put_string("");
    cqr_put_u16(&out, 4);
    put_string("key");
    cqr_put_bytes(&out, cqlring_text("value"));
    put_string("");
    cqr_put_u32(&out, UINT32_MAX);
    put_string("key");
    cqr_put_bytes(&out, cqlring_text(""));
    put_string("last");
    cqr_put_bytes(&out, cqlring_text("x"));
}

static void expect_prefix(const cqlring_result *result)
{
    uint8_t trace_id[16];
    ck_assert(cqlring_result_trace_id(result, trace_id));
    for (uint8_t i = 0; i < 16; ++i)
        ck_assert_uint_eq(trace_id[i], i);
    cqlring_bytes warnings[2];
    ck_assert_uint_eq(cqlring_result_warnings(result, NULL, 0), 2);
    ck_assert_uint_eq(cqlring_result_warnings(result, warnings, 1), 2);
    ck_assert_uint_eq(cqlring_result_warnings(result, warnings, 2), 2);
    ck_assert(is_text(warnings[0], "first warning") && is_text(warnings[1], ""));
    cqlring_payload_entry entries[9];
    ck_assert_uint_eq(cqlring_result_payload(result, NULL, 0), 4);
    ck_assert_uint_eq(cqlring_result_payload(result, entries, 9), 4);
    ck_assert(is_text(entries[0].key, "key") && is_text(entries[0].value, "value"));
    ck_assert(is_text(entries[1].key, "") && entries[1].value.size == CQLRING_NULL);
    ck_assert(is_text(entries[2].key, "key") && entries[2].value.size == 0);
    ck_assert(is_text(entries[3].key, "last") && is_text(entries[3].value, "x"));
}

/* A body of rows behind all prefixes. */
static cqlring_result *example_with_prefix(void)
{
    struct make how = {0};
    put_prefix();
    put_metadata(ROWS_MORE_PAGES, "state", NULL, "name");
    put_rows(20);
    cqlring_bytes rest = body();
    ck_assert_int_eq(cqr_decode_prefix(FLAG_TRACING | FLAG_WARNING | FLAG_PAYLOAD, &rest, &how.prefix), CQLRING_OK);
    ck_assert_int_eq(cqr_result_make(&v4, block, rest, RESULT_ROWS, &how.prefix, NULL, &how.result, NULL, NULL, &how.failure),
                     CQLRING_OK);
    return how.result;
}

START_TEST(trace_id_warnings_and_odd_payloads_can_be_read_MS_04)
{
    cqlring_result *result = example_with_prefix();
    expect_prefix(result);
    cqlring_result_release(result);
}
END_TEST

/* --- detach, references ------------------------------------------------------------------------------------------- */

struct page_source {
    int references;
};

static struct page_source *source_retain(struct page_source *source)
{
    source->references++;
    return source;
}

static void source_free(struct page_source *source)
{
    source->references--;
}

START_TEST(detached_copy_has_everything_and_pins_only_itself)
{
    struct page_source source = {.references = 1};
    cqlring_result *result = example_with_prefix();
    result->source = &source;
    result->source_free = source_free;
    result->source_retain = source_retain;
    cqlring_bytes cells[60];
    uint32_t count;
    ck_assert_int_eq(cqlring_result_rows(result, 0, cells, 7, &count, NULL), CQLRING_OK); /* the cursor is somewhere */
    uint64_t allocations = cqr_mem_allocation_count();
    cqlring_result *copy = cqlring_result_detach(result);
    ck_assert_uint_eq(cqr_mem_allocation_count() - allocations, 1);
    ck_assert_ptr_nonnull(copy);
    ck_assert_int_eq(source.references, 2);
    cqlring_result_release(result);
    ck_assert(cqr_block_is_unshared(block));
    memset(block->data, 0xEE, block->size);

    ck_assert_uint_lt(cqlring_result_pinned_size(copy), 2000);
    expect_prefix(copy);
    ck_assert(is_text(cqlring_result_paging_state(copy), "state"));
    cqlring_column column;
    ck_assert(cqlring_result_column(copy, 1, &column));
    ck_assert_str_eq(column.name, "name");
    ck_assert_int_eq(cqlring_result_rows(copy, 0, cells, 20, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 20);
    for (uint32_t i = 0; i < 20; ++i)
        expect_row(&cells[i * 3], i);

    cqlring_result *again = cqlring_result_detach(copy);
    cqlring_result_release(copy);
    ck_assert_int_eq(source.references, 1);
    ck_assert_int_eq(cqlring_result_rows(again, 19, cells, 20, &count, NULL), CQLRING_OK);
    ck_assert_uint_eq(count, 1);
    expect_row(cells, 19);
    cqlring_result_release(again);
    ck_assert_int_eq(source.references, 0);
}
END_TEST

START_TEST(detached_schema_change_and_keyspace_stay_readable)
{
    struct make how = {0};
    cqlring_bytes change, target, keyspace, name;
    put_string("DROPPED");
    put_string("TABLE");
    put_string("ks");
    put_string("t");
    cqlring_result *result = must_make(&how, RESULT_SCHEMA);
    cqlring_result *copy = cqlring_result_detach(result);
    cqlring_result_release(result);
    memset(block->data, 0xEE, block->size);
    ck_assert(cqlring_result_schema_change(copy, &change, &target, &keyspace, &name));
    ck_assert(is_text(change, "DROPPED") && is_text(target, "TABLE") && is_text(keyspace, "ks") && is_text(name, "t"));
    cqlring_result_release(copy);

    cqr_writer_init(&out, block->data, block->size);
    how = (struct make){0};
    put_string("ks");
    result = must_make(&how, RESULT_KEYSPACE);
    copy = cqlring_result_detach(result);
    cqlring_result_release(result);
    memset(block->data, 0xEE, block->size);
    ck_assert(cqlring_result_schema_change(copy, NULL, NULL, &keyspace, NULL));
    ck_assert(is_text(keyspace, "ks"));
    cqlring_result_release(copy);
}
END_TEST

START_TEST(detach_without_memory_is_null_and_leaves_the_original)
{
    cqlring_result *result = example_with_prefix();
    cqr_mem_fail_at(1, 0);
    ck_assert_ptr_null(cqlring_result_detach(result));
    cqr_mem_fail_at(0, 0);
    expect_prefix(result);
    cqlring_result_release(result);
    ck_assert_ptr_null(cqlring_result_detach(NULL));
}
END_TEST

START_TEST(page_source_goes_with_the_last_reference)
{
    struct page_source source = {.references = 1};
    struct make how = {0};
    cqlring_result *result = example_rows(&how, 1);
    result->source = &source;
    result->source_free = source_free;
    cqlring_result *copy = cqlring_result_detach(result); /* no source_retain: without a source */
    cqlring_result_release(copy);
    ck_assert_ptr_eq(cqlring_result_retain(result), result);
    cqlring_result_release(result);
    ck_assert_int_eq(source.references, 1);
    cqlring_result_release(result);
    ck_assert_int_eq(source.references, 0);
    cqlring_result_release(NULL);
    ck_assert_ptr_null(cqlring_result_retain(NULL));
}
END_TEST

START_TEST(each_allocation_may_fail_and_nothing_leaks)
{
    put_metadata(ROWS_METADATA_CHANGED | ROWS_MORE_PAGES, "state", "id", "other");
    put_rows(3);
    bool done = false;
    for (uint64_t n = 1; !done; ++n) {
        ck_assert_uint_lt(n, 100);
        int64_t live = cqr_mem_live_count();
        struct make how = {.dialect = &v5};
        cqr_mem_fail_at(n, 0);
        cqlring_status status = make(&how, RESULT_ROWS);
        done = cqr_mem_failed_count() == 0;
        cqr_mem_fail_at(0, 0);
        if (status != CQLRING_OK) {
            ck_assert_int_eq(status, CQLRING_NO_MEMORY);
            ck_assert_int_eq(how.failure->error.status, CQLRING_NO_MEMORY);
            ck_assert_ptr_null(how.changed);
            cqr_failure_free(&how.failure->error);
            ck_assert(cqr_block_is_unshared(block));
        } else {
            cqr_column_set_release(how.changed);
            cqlring_result_release(how.result);
        }
        ck_assert_int_eq(cqr_mem_live_count(), live);
    }
    cqr_mem_fail_at(1, 1); /* nor does it need memory to say that there is none */
    struct make how = {0};
    ck_assert_int_eq(make(&how, RESULT_VOID), CQLRING_NO_MEMORY);
    ck_assert_ptr_null(cqr_column_set_create());
    cqr_mem_fail_at(0, 0);
    ck_assert(cqr_failure_is_static(how.failure));
}
END_TEST

START_TEST(null_and_wrong_arguments_are_refused)
{
    cqlring_bytes cell;
    uint32_t count;
    uint8_t trace_id[16];
    cqlring_column column;
    cqlring_error error;
    ck_assert_int_eq(cqlring_result_rows(NULL, 0, &cell, 1, &count, &error), CQLRING_INVALID);
    ck_assert_int_eq(error.status, CQLRING_INVALID);
    struct make how = {0};
    cqlring_result *result = example_rows(&how, 1);
    ck_assert_int_eq(cqlring_result_rows(result, 0, NULL, 1, &count, NULL), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_result_rows(result, 0, &cell, 1, NULL, NULL), CQLRING_INVALID);
    ck_assert(!cqlring_result_column(result, 0, NULL));
    cqlring_result_release(result);
    ck_assert_uint_eq(cqlring_result_row_count(NULL), 0);
    ck_assert_uint_eq(cqlring_result_column_count(NULL), 0);
    ck_assert(!cqlring_result_column(NULL, 0, &column));
    ck_assert_ptr_null(cqlring_result_paging_state(NULL).data);
    ck_assert(!cqlring_result_trace_id(NULL, trace_id));
    ck_assert_uint_eq(cqlring_result_warnings(NULL, &cell, 1), 0);
    ck_assert_uint_eq(cqlring_result_payload(NULL, NULL, 0), 0);
    ck_assert(!cqlring_result_schema_change(NULL, NULL, NULL, NULL, NULL));
    ck_assert_uint_eq(cqlring_result_pinned_size(NULL), 0);
}
END_TEST

/* --- completions -------------------------------------------------------------------------------------------------- */

static struct failure *server_failure(const struct dialect *dialect)
{
    struct failure *failure = cqr_failure_make(CQLRING_SERVER, "server said no");
    ck_assert_int_eq(cqr_decode_error(dialect, body(), &failure->body), CQLRING_OK);
    failure->has_body = true;
    failure->block = cqr_block_retain(block);
    return failure;
}

START_TEST(detail_has_what_the_server_said_MS_06)
{
    cqr_put_u32(&out, ERROR_WRITE_FAILURE);
    put_string("Operation failed");
    cqr_put_u16(&out, CQLRING_QUORUM);
    cqr_put_u32(&out, 1);
    cqr_put_u32(&out, 2);
    cqr_put_u32(&out, 1);
    cqr_put_u8(&out, 4);
    cqr_put_u32(&out, 0x0A000003);
    cqr_put_u16(&out, 2);
    put_string("SIMPLE");
    struct failure *failure = server_failure(&v5);
    cqlring_completion completion = {.status = CQLRING_SERVER, .error = &failure->error};
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(&completion, &detail));
    ck_assert_int_eq(detail.server_code, ERROR_WRITE_FAILURE);
    ck_assert(is_text(detail.message, "Operation failed"));
    ck_assert_int_eq(detail.consistency, CQLRING_QUORUM);
    ck_assert_int_eq(detail.received, 1);
    ck_assert_int_eq(detail.required, 2);
    ck_assert_int_eq(detail.failures, 1);
    ck_assert_int_eq(detail.reasons.size, 7);
    ck_assert(is_text(detail.write_type, "SIMPLE"));
    cqlring_completions_release(&completion, 1);
    ck_assert(cqr_block_is_unshared(block));

    cqr_writer_init(&out, block->data, block->size);
    cqr_put_u32(&out, ERROR_ALREADY_EXISTS);
    put_string("exists");
    put_string("ks");
    put_string("t");
    failure = server_failure(&v4);
    completion.error = &failure->error;
    ck_assert(cqlring_completion_detail(&completion, &detail));
    ck_assert(is_text(detail.keyspace, "ks") && is_text(detail.table, "t"));
    ck_assert_int_eq(detail.consistency, CQLRING_CONSISTENCY_DEFAULT);
    cqlring_completions_release(&completion, 1);
}
END_TEST

START_TEST(any_on_the_wire_is_not_taken_for_the_default)
{
    cqr_put_u32(&out, ERROR_UNAVAILABLE);
    put_string("m");
    uint32_t cut = out.size;
    cqr_put_u16(&out, 0); /* ANY */
    cqr_put_u32(&out, 2);
    cqr_put_u32(&out, 1);
    uint32_t whole = out.size;
    for (uint32_t size = cut; size <= whole; ++size) {
        out.size = size;
        struct failure *failure = server_failure(&v4);
        cqlring_completion completion = {.error = &failure->error};
        cqlring_error_detail detail;
        ck_assert(cqlring_completion_detail(&completion, &detail));
        ck_assert(is_text(detail.message, "m"));
        ck_assert_int_eq(detail.consistency, size == whole ? CQLRING_ANY : CQLRING_CONSISTENCY_DEFAULT);
        cqlring_completions_release(&completion, 1);
    }
}
END_TEST

START_TEST(unknown_code_keeps_code_and_message_RT_07)
{
    cqr_put_u32(&out, 0x4321);
    put_string("something new");
    cqr_put_u32(&out, 12345);
    struct failure *failure = server_failure(&v4);
    cqlring_completion completion = {.error = &failure->error};
    cqlring_error_detail detail;
    ck_assert(cqlring_completion_detail(&completion, &detail));
    ck_assert_int_eq(detail.server_code, 0x4321);
    ck_assert(is_text(detail.message, "something new"));
    cqlring_completions_release(&completion, 1);
}
END_TEST

START_TEST(failure_that_is_not_the_servers_has_no_detail)
{
    cqlring_error_detail detail;
    cqlring_completion completion = {.status = CQLRING_OK};
    ck_assert(!cqlring_completion_detail(NULL, &detail));
    ck_assert(!cqlring_completion_detail(&completion, &detail));
    struct failure *failure = cqr_failure_make(CQLRING_TIMEOUT, "no answer");
    completion.error = &failure->error;
    ck_assert(!cqlring_completion_detail(&completion, &detail));
    cqlring_completions_release(&completion, 1);
    ck_assert_ptr_null(completion.error);
}
END_TEST

START_TEST(released_completions_give_back_results_and_errors_once)
{
    struct make how = {0};
    cqlring_result *result = example_rows(&how, 1);
    cqlring_completion completions[3] = {
        {.result = cqlring_result_retain(result)},
        {.error = &cqr_failure_make(CQLRING_LOST, "lost")->error},
        {.flags = CQLRING_COMPLETION_VOID},
    };
    cqlring_completions_release(completions, 3);
    cqlring_completions_release(completions, 3); /* there is nothing left in them */
    cqlring_completions_release(NULL, 0);
    ck_assert_uint_eq(cqlring_result_row_count(result), 1);
    cqlring_result_release(result);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("result_outcomes");
    TCase *tests = tcase_create("result_outcomes");
    tcase_add_checked_fixture(tests, open_pool, close_pool);
    tcase_add_test(tests, trace_id_warnings_and_odd_payloads_can_be_read_MS_04);
    tcase_add_test(tests, detached_copy_has_everything_and_pins_only_itself);
    tcase_add_test(tests, detached_schema_change_and_keyspace_stay_readable);
    tcase_add_test(tests, detach_without_memory_is_null_and_leaves_the_original);
    tcase_add_test(tests, page_source_goes_with_the_last_reference);
    tcase_add_test(tests, each_allocation_may_fail_and_nothing_leaks);
    tcase_add_test(tests, null_and_wrong_arguments_are_refused);
    tcase_add_test(tests, detail_has_what_the_server_said_MS_06);
    tcase_add_test(tests, any_on_the_wire_is_not_taken_for_the_default);
    tcase_add_test(tests, unknown_code_keeps_code_and_message_RT_07);
    tcase_add_test(tests, failure_that_is_not_the_servers_has_no_detail);
    tcase_add_test(tests, released_completions_give_back_results_and_errors_once);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
