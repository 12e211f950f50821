/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* See live.h for how to run it. Each test is run in every way of being connected: protocol v4 and v5, without and with
   LZ4. Tests of TLS and of credentials are run once. Ends with "N passed, N failed". */

enum { CHUNK = 256 };

/* --- a source that numbers rows (pk, ck, v), and a sink that counts ---------------------------------------------------- */

struct load {
    int64_t given, wanted;
    int32_t pk;
    cqlring_bytes value;
    cqlring_bytes cells[CHUNK][3];
    uint8_t room[CHUNK * 8];
    uint64_t delivered, failed, last_row;
    bool out_of_order;
};

static int32_t next_rows(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct load *load = context;
    cqlring_writer writer;
    cqlring_writer_init(&writer, load->room, sizeof load->room);
    int32_t count = 0;
    for (; count < (int32_t)capacity && count < CHUNK && load->given < load->wanted; ++count, ++load->given) {
        cqlring_put_int(&writer, load->pk, 4);
        (void)cqlring_writer_take(&writer, &load->cells[count][0], NULL);
        cqlring_put_int(&writer, load->given, 4);
        (void)cqlring_writer_take(&writer, &load->cells[count][1], NULL);
        load->cells[count][2] = load->value;
        rows[count] = (cqlring_row){.cells = load->cells[count], .tag = (uint64_t)load->given};
    }
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    return count;
}

static cqlring_verdict count_outcomes(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct load *load = context;
    for (uint32_t i = 0; i < count; ++i) {
        load->out_of_order |= load->delivered > 0 && completions[i].row != load->last_row + 1;
        load->last_row = completions[i].row;
        load->failed += completions[i].status != CQLRING_OK;
        load->delivered++;
    }
    return CQLRING_CONTINUE;
}

static bool write_rows(cqlring_session *session, const char *table, int32_t pk, int64_t rows, cqlring_bytes value, bool ordered)
{
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO %s (pk, ck, v) VALUES (?, ?, ?)", table);
    if (insert == NULL)
        return false;
    static struct load load;
    load = (struct load){.wanted = rows, .pk = pk, .value = value};
    cqlring_execution execution = {.struct_size = sizeof execution, .idempotent = CQLRING_YES};
    cqlring_job_options options = {.struct_size = sizeof options, .ordered = ordered, .execution = &execution};
    cqlring_source source = {.next = next_rows, .context = &load};
    cqlring_sink sink = {.deliver = count_outcomes, .context = &load};
    cqlring_future *job = NULL;
    cqlring_error error;
    bool held = live_ok(cqlring_execute_concurrent(session, &insert, 1, &source, &sink, 1, &options, &job, &error), &error, "start a job");
    if (held) {
        held = live_ok(cqlring_future_wait(job, -1, &error), &error, "the job ends");
        cqlring_summary summary;
        cqlring_job_summary(job, &summary);
        held &= live_equal((int64_t)summary.rows, rows, "rows settled");
        held &= live_equal((int64_t)summary.failed, 0, "rows failed");
        held &= live_equal((int64_t)summary.low_water, rows, "low-water mark");
        held &= live_equal((int64_t)load.delivered, rows, "rows delivered");
        held &= live_equal((int64_t)load.failed, 0, "failures delivered");
        held &= live_check(!ordered || !load.out_of_order, "delivered in order");
    }
    cqlring_future_release(job);
    cqlring_prepared_release(insert);
    return held;
}

/* --- single requests ---------------------------------------------------------------------------------------------- */

static void test_single_requests(cqlring_session *session)
{
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.kv (k int PRIMARY KEY, a text, b text)"))
        return;
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO cqlring_live.kv (k, a, b) VALUES (?, ?, ?)");
    cqlring_prepared *select = live_prepare(session, "SELECT a, b FROM cqlring_live.kv WHERE k = ?");
    if (insert != NULL && select != NULL) {
        (void)live_equal(cqlring_prepared_bind_count(insert), 3, "bind markers");
        (void)live_equal(cqlring_prepared_find(insert, "B", 0), 2, "marker b");
        (void)live_equal(cqlring_prepared_find(insert, "\"B\"", 0), -1, "marker \"B\"");
        cqlring_column column = {.name = ""};
        (void)live_check(cqlring_prepared_result_column(select, 1, &column) && strcmp(column.name, "b") == 0, "result column b");
        uint8_t room[8];
        cqlring_writer writer;
        cqlring_writer_init(&writer, room, sizeof room);
        cqlring_put_int(&writer, 7, 4);
        cqlring_bytes values[3] = {{NULL, 0}, cqlring_text("gr\xC3\xBC\xC3\x9F"), {NULL, CQLRING_UNSET}};
        (void)cqlring_writer_take(&writer, &values[0], NULL);
        cqlring_error error;
        cqlring_request request = {.session = session, .prepared = insert, .values = values, .value_count = 3, .tag = 9};
        (void)live_ok(cqlring_execute_sync(&request, NULL, &error), &error, "INSERT");
        request = (cqlring_request){.session = session, .prepared = select, .values = values, .value_count = 1};
        cqlring_result *result = live_request(&request, "SELECT");
        (void)live_equal(cqlring_result_row_count(result), 1, "rows");
        (void)live_bytes(live_first(result), values[1], "text");
        cqlring_bytes cells[2];
        uint32_t count = 0;
        if (result != NULL && live_ok(cqlring_result_rows(result, 0, cells, 1, &count, &error), &error, "rows"))
            (void)live_equal(cells[1].size, CQLRING_NULL, "what was left unset is null");
        cqlring_result_release(result);

        request = (cqlring_request){.session = session, .prepared = insert, .values = values, .value_count = 2};
        (void)live_status(cqlring_execute_sync(&request, NULL, &error), CQLRING_INVALID, &error, "too few values");
        cqlring_execution traced = {.struct_size = sizeof traced, .tracing = CQLRING_YES, .consistency = CQLRING_ONE};
        request = (cqlring_request){.session = session, .prepared = select, .values = values, .value_count = 1, .execution = &traced};
        result = live_request(&request, "SELECT with tracing");
        uint8_t trace_id[16];
        (void)live_check(cqlring_result_trace_id(result, trace_id), "a trace id comes back");
        cqlring_result_release(result);
    }
    cqlring_prepared_release(insert);
    cqlring_prepared_release(select);
}

static void test_server_errors(cqlring_session *session)
{
    static const struct {
        const char *cql;
        int32_t code;
    } wrong[] = {
        {"SELEKT 1", 0x2000},
        {"SELECT * FROM cqlring_live.no_such_table", 0x2200},
        {"CREATE KEYSPACE cqlring_live WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", 0x2400},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        cqlring_error error = {.server_code = 0};
        cqlring_request request = {.session = session, .cql = cqlring_text(wrong[i].cql)};
        (void)live_status(cqlring_execute_sync(&request, NULL, &error), CQLRING_SERVER, &error, wrong[i].cql);
        (void)live_equal(error.server_code, wrong[i].code, wrong[i].cql);
        (void)live_check(error.node[0] != '\0' && error.message[0] != '\0', "node and message are told");
        (void)live_equal(error.may_have_been_applied, 0, "nothing was applied");
    }
    cqlring_prepared *prepared = NULL;
    cqlring_error error;
    (void)live_status(cqlring_prepare_sync(session, "SELECT nothing FROM nowhere.at_all", &prepared, &error), CQLRING_SERVER, &error, "prepare");
    (void)live_equal(live_count(session, "system.local"), 1, "and everything goes on: rows of system.local");
}

/* A session's keyspace is fixed. The connection on which it was changed is replaced; whoever comes next must not notice. */
static void test_use_is_refused(cqlring_session *session)
{
    for (int i = 0; i < 3; ++i) {
        cqlring_error error;
        cqlring_request use = {.session = session, .cql = cqlring_text("USE system")};
        (void)live_status(cqlring_execute_sync(&use, NULL, &error), CQLRING_INVALID, &error, "USE");
        (void)live_equal(live_count(session, "system.local"), 1, "and everything goes on: rows of system.local");
    }
}

static void test_large_values(cqlring_session *session)
{
    enum { SIZE = 1 << 20 };
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.large (k int PRIMARY KEY, v blob)"))
        return;
    static const uint32_t sizes[] = {0, 1, 4096, 65535, 65536, 131071, 131072, 131073, 262144, SIZE};
    uint8_t *data = malloc(SIZE);
    if (data == NULL)
        return;
    uint64_t random = 88172645463325252;
    for (uint32_t i = 0; i < SIZE; ++i) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        data[i] = i < SIZE / 2 ? (uint8_t)(i / 1000) : (uint8_t)random; /* half of it compresses */
    }
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        uint8_t key[4] = {0, 0, 0, (uint8_t)i};
        cqlring_bytes values[2] = {{key, 4}, {data + SIZE - sizes[i], (int32_t)sizes[i]}};
        cqlring_error error;
        cqlring_request request = {.session = session, .cql = cqlring_text("INSERT INTO cqlring_live.large (k, v) VALUES (?, ?)"), .values = values, .value_count = 2};
        if (!live_ok(cqlring_execute_sync(&request, NULL, &error), &error, "INSERT"))
            continue;
        request = (cqlring_request){.session = session, .cql = cqlring_text("SELECT v FROM cqlring_live.large WHERE k = ?"), .values = values, .value_count = 1};
        cqlring_result *result = live_request(&request, "SELECT");
        (void)live_bytes(live_first(result), values[1], "blob");
        cqlring_result_release(result);
    }
    free(data);
}

/* --- paging ------------------------------------------------------------------------------------------------------- */

enum { WIDE_ROWS = 3000 };

/* Read the whole partition from paging_state on; returns how many rows came, in order from `from` on. */
static int64_t read_pages(cqlring_session *session, cqlring_prepared *select, int32_t page_size, cqlring_bytes state, int64_t from, uint32_t *pages)
{
    cqlring_execution execution = {.struct_size = sizeof execution, .page_size = page_size, .paging_state = state};
    cqlring_request request = {.session = session, .prepared = select, .execution = &execution};
    cqlring_result *page = live_request(&request, "SELECT the first page");
    int64_t rows = 0;
    *pages = 0;
    while (page != NULL) {
        cqlring_bytes cells[2 * 100];
        uint32_t row = 0, count = 0;
        cqlring_error error;
        while (live_ok(cqlring_result_rows(page, row, cells, 100, &count, &error), &error, "rows") && count > 0) {
            for (uint32_t i = 0; i < count; ++i, ++rows) {
                int64_t ck = -1;
                if (cqlring_get_int(cells[2 * i], 4, &ck) != CQLRING_OK || ck != from + rows)
                    (void)live_note("row %" PRId64 " is %" PRId64, from + rows, ck);
            }
            row += count;
        }
        ++*pages;
        cqlring_result *next = NULL;
        if (cqlring_result_paging_state(page).data != NULL) {
            cqlring_future *future = NULL;
            if (live_ok(cqlring_next_page(page, NULL, &future, &error), &error, "ask for the next page") &&
                live_ok(cqlring_future_wait(future, -1, &error), &error, "the next page"))
                next = cqlring_result_retain(cqlring_future_completion(future)->result);
            cqlring_future_release(future);
        } else {
            cqlring_future *future = NULL;
            (void)live_status(cqlring_next_page(page, NULL, &future, NULL), CQLRING_INVALID, NULL, "a page behind the last");
        }
        cqlring_result_release(page);
        page = next;
    }
    return rows;
}

static void test_wide_partition_and_paging(cqlring_session *session)
{
    uint8_t value[200];
    memset(value, 'v', sizeof value);
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.wide (pk int, ck int, v blob, PRIMARY KEY (pk, ck))") ||
        !write_rows(session, "cqlring_live.wide", 1, WIDE_ROWS, (cqlring_bytes){value, sizeof value}, false))
        return;
    cqlring_prepared *select = live_prepare(session, "SELECT ck, v FROM cqlring_live.wide WHERE pk = 1");
    if (select == NULL)
        return;
    static const int32_t sizes[] = {7, 100, WIDE_ROWS - 1, WIDE_ROWS, WIDE_ROWS + 1, 0, -1};
    cqlring_bytes none = {NULL, 0};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        uint32_t pages = 0;
        (void)live_equal(read_pages(session, select, sizes[i], none, 0, &pages), WIDE_ROWS, "rows of all pages");
        if (sizes[i] > 0)
            (void)live_check(pages >= (uint32_t)(WIDE_ROWS / sizes[i]), "there were pages");
        if (sizes[i] == -1)
            (void)live_equal(pages, 1, "pages when unpaged");
    }

    /* A saved state goes on where it stood, and garbage is the server's error (PG-08). */
    cqlring_execution execution = {.struct_size = sizeof execution, .page_size = 1000};
    cqlring_request request = {.session = session, .prepared = select, .execution = &execution};
    cqlring_result *first = live_request(&request, "SELECT a page");
    cqlring_result *kept = cqlring_result_detach(first);
    uint32_t pages = 0;
    if (live_check(kept != NULL, "detach"))
        (void)live_equal(read_pages(session, select, 1000, cqlring_result_paging_state(kept), 1000, &pages), WIDE_ROWS - 1000, "rows from the saved state on");
    cqlring_result_release(first);
    cqlring_result_release(kept);
    execution.paging_state = cqlring_text("\x01garbage");
    cqlring_error error;
    cqlring_status status = cqlring_execute_sync(&request, NULL, &error);
    (void)live_check(status == CQLRING_SERVER || status == CQLRING_OK, "a paging state of garbage is the server's affair");
    (void)live_equal(live_count(session, "system.local"), 1, "and everything goes on");
    cqlring_prepared_release(select);
}

/* --- batches and conditions --------------------------------------------------------------------------------------- */

static cqlring_status run_batch(cqlring_session *session, cqlring_batch_kind kind, const cqlring_batch_child *children, uint32_t count, cqlring_result **result, cqlring_error *error)
{
    cqlring_batch batch = {.kind = kind, .children = children, .count = count};
    return cqlring_execute_sync(&(cqlring_request){.session = session, .batch = &batch}, result, error);
}

static void test_batches(cqlring_session *session)
{
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.batched (k int PRIMARY KEY, v text)") ||
        !live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.counts (k int PRIMARY KEY, n counter)") ||
        !live_run(session, "TRUNCATE cqlring_live.batched") || !live_run(session, "TRUNCATE cqlring_live.counts"))
        return;
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO cqlring_live.batched (k, v) VALUES (?, ?)");
    cqlring_prepared *add = live_prepare(session, "UPDATE cqlring_live.counts SET n = n + ? WHERE k = ?");
    uint8_t two[4] = {0, 0, 0, 2}, three[4] = {0, 0, 0, 3}, long_5[8] = {[7] = 5};
    cqlring_error error;
    cqlring_column delta = {0};
    if (add != NULL)
        (void)live_check(cqlring_prepared_bind_column(add, 0, &delta) && cqlring_type_kind(delta.type) == CQLRING_KIND_COUNTER, "a counter's marker is told as one");
    if (insert != NULL && add != NULL) {
        cqlring_bytes text_values[2] = {{two, 4}, cqlring_text("two")}, prepared_values[2] = {{three, 4}, cqlring_text("three")};
        const cqlring_batch_child children[] = { /* BT-02: without values, with values, prepared */
            {.cql = cqlring_text("INSERT INTO cqlring_live.batched (k, v) VALUES (1, 'one')")},
            {.cql = cqlring_text("INSERT INTO cqlring_live.batched (k, v) VALUES (?, ?)"), .values = text_values, .value_count = 2},
            {.prepared = insert, .values = prepared_values, .value_count = 2},
        };
        (void)live_ok(run_batch(session, CQLRING_BATCH_LOGGED, children, 3, NULL, &error), &error, "logged batch");
        (void)live_equal(live_count(session, "cqlring_live.batched"), 3, "rows of a logged batch");
        (void)live_run(session, "TRUNCATE cqlring_live.batched");
        (void)live_ok(run_batch(session, CQLRING_BATCH_UNLOGGED, children, 3, NULL, &error), &error, "unlogged batch");
        (void)live_equal(live_count(session, "cqlring_live.batched"), 3, "rows of an unlogged batch");

        cqlring_bytes add_values[2] = {{long_5, 8}, {two, 4}};
        const cqlring_batch_child adds[] = {
            {.prepared = add, .values = add_values, .value_count = 2},
            {.cql = cqlring_text("UPDATE cqlring_live.counts SET n = n + 1 WHERE k = 2")},
        };
        (void)live_ok(run_batch(session, CQLRING_BATCH_COUNTER, adds, 2, NULL, &error), &error, "counter batch");
        cqlring_result *result = live_query(session, "SELECT n FROM cqlring_live.counts WHERE k = 2");
        int64_t n = -1;
        (void)live_check(cqlring_get_int(live_first(result), 8, &n) == CQLRING_OK, "a counter comes back");
        (void)live_equal(n, 6, "counter");
        cqlring_result_release(result);
        (void)live_status(run_batch(session, CQLRING_BATCH_COUNTER, children, 3, NULL, &error), CQLRING_SERVER, &error, "inserts in a counter batch");

        (void)live_status(run_batch(session, CQLRING_BATCH_LOGGED, children, 0, NULL, &error), CQLRING_INVALID, &error, "empty batch (BT-06)");
        const cqlring_batch_child short_of_one[] = {children[0], {.prepared = insert, .values = prepared_values, .value_count = 1}};
        (void)live_status(run_batch(session, CQLRING_BATCH_LOGGED, short_of_one, 2, NULL, &error), CQLRING_INVALID, &error, "too few values in child 1 (BT-03)");
    }
    cqlring_prepared_release(insert);
    cqlring_prepared_release(add);
}

static void expect_applied(cqlring_session *session, const char *cql, int wanted)
{
    cqlring_result *result = live_query(session, "%s", cql);
    (void)live_equal(cqlring_result_applied(result), wanted, cql);
    cqlring_result_release(result);
}

static void test_conditions(cqlring_session *session)
{
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.lwt (p int, c int, v int, s int static, PRIMARY KEY (p, c))") ||
        !live_run(session, "TRUNCATE cqlring_live.lwt"))
        return;
    expect_applied(session, "INSERT INTO cqlring_live.lwt (p, c, v) VALUES (1, 1, 1) IF NOT EXISTS", 1);
    expect_applied(session, "INSERT INTO cqlring_live.lwt (p, c, v) VALUES (1, 1, 2) IF NOT EXISTS", 0);
    expect_applied(session, "UPDATE cqlring_live.lwt SET v = 3 WHERE p = 1 AND c = 1 IF v = 1", 1);
    expect_applied(session, "UPDATE cqlring_live.lwt SET v = 3 WHERE p = 1 AND c = 1 IF v = 1", 0);
    expect_applied(session, "INSERT INTO cqlring_live.lwt (p, c, v) VALUES (2, 1, 1)", -1);      /* LW-03 */
    expect_applied(session, "SELECT v FROM cqlring_live.lwt WHERE p = 99", -1);
    const cqlring_batch_child children[] = { /* LW-01 */
        {.cql = cqlring_text("INSERT INTO cqlring_live.lwt (p, c, v) VALUES (1, 2, 1)")},
        {.cql = cqlring_text("UPDATE cqlring_live.lwt SET s = 1 WHERE p = 1 IF s = 0")},
    };
    cqlring_result *result = NULL;
    cqlring_error error;
    if (live_ok(run_batch(session, CQLRING_BATCH_LOGGED, children, 2, &result, &error), &error, "conditional batch")) {
        (void)live_equal(cqlring_result_applied(result), 0, "conditional batch: applied");
        (void)live_check(cqlring_result_row_count(result) > 0, "conditional batch: rows are there");
    }
    cqlring_result_release(result);
}

/* --- jobs and queues ---------------------------------------------------------------------------------------------- */

static void test_jobs(cqlring_session *session)
{
    enum { ROWS = 20000 };
    uint8_t value[32];
    memset(value, 'x', sizeof value);
    cqlring_bytes cell = {value, sizeof value};
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.job (pk int, ck int, v blob, PRIMARY KEY (pk, ck))") ||
        !live_run(session, "TRUNCATE cqlring_live.job"))
        return;
    (void)write_rows(session, "cqlring_live.job", 1, ROWS, cell, false);
    (void)write_rows(session, "cqlring_live.job", 2, ROWS, cell, true);
    (void)write_rows(session, "cqlring_live.job", 3, 0, cell, false);
    (void)live_equal(live_count(session, "cqlring_live.job"), 2 * ROWS, "rows in the table");
}

static void test_queue(cqlring_session *session)
{
    enum { ROWS = 5000, CAPACITY = 128 };
    if (!live_run(session, "CREATE TABLE IF NOT EXISTS cqlring_live.queue (k int PRIMARY KEY)") ||
        !live_run(session, "TRUNCATE cqlring_live.queue"))
        return;
    cqlring_prepared *insert = live_prepare(session, "INSERT INTO cqlring_live.queue (k) VALUES (?)");
    cqlring_queue_options options = {.struct_size = sizeof options, .session = session, .capacity = CAPACITY};
    cqlring_queue *queue = NULL;
    cqlring_error error;
    if (insert == NULL || !live_ok(cqlring_queue_open(&options, &queue, &error), &error, "open a queue")) {
        cqlring_prepared_release(insert);
        return;
    }
    uint64_t tags = 0;
    uint32_t given = 0, reaped = 0;
    bool held = true;
    while (held && reaped < ROWS) {
        uint32_t accepted = 1;
        while (given < ROWS && accepted > 0 && held) {
            uint8_t key[4] = {0, 0, (uint8_t)(given >> 8), (uint8_t)given};
            cqlring_bytes cell = {key, 4};
            cqlring_request request = {.session = session, .prepared = insert, .values = &cell, .value_count = 1, .tag = given + 1};
            held = live_ok(cqlring_queue_submit(queue, &request, 1, &accepted, &error), &error, "submit");
            given += accepted;
        }
        cqlring_completion completions[64];
        cqlring_status status = CQLRING_OK;
        uint32_t count = cqlring_queue_reap(queue, completions, 64, 1, 30000000, &status);
        held &= live_status(status, CQLRING_OK, NULL, "reap");
        for (uint32_t i = 0; i < count; ++i) {
            held &= live_status((cqlring_status)completions[i].status, CQLRING_OK, completions[i].error, "a request of the queue");
            tags += completions[i].tag;
        }
        reaped += count;
        cqlring_completions_release(completions, count);
    }
    (void)live_equal((int64_t)tags, (int64_t)ROWS * (ROWS + 1) / 2, "sum of the tags");
    (void)live_equal((int64_t)cqlring_queue_low_water(queue), ROWS, "low-water mark");
    cqlring_queue_close(queue);
    cqlring_queue_release(queue);
    (void)live_equal(live_count(session, "cqlring_live.queue"), ROWS, "rows in the table");
    cqlring_prepared_release(insert);
}

static void test_nodes(cqlring_session *session)
{
    (void)session;
    cqlring_cluster_options options = live_cluster_options(NULL);
    cqlring_cluster *cluster = NULL;
    cqlring_error error;
    if (!live_ok(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error, "open the cluster"))
        return;
    const cqlring_node *nodes[64];
    uint32_t count = cqlring_cluster_nodes(cluster, nodes, 64);
    (void)live_check(count > 0, "there are nodes");
    for (uint32_t i = 0; i < count && i < 64; ++i) {
        cqlring_node_info info;
        cqlring_node_describe(nodes[i], &info);
        (void)live_check(info.address[0] != '\0' && info.datacenter[0] != '\0' && info.release_version[0] != '\0', "a node is described");
    }
    cqlring_cluster_release(cluster);
}

/* What an operator sees of us: one of our connections has told the options in force, all have told the same id. */
static void test_told(cqlring_session *session)
{
    cqlring_result *result = live_query(session, "SELECT client_options['DRIVER_CONFIG'], client_options['CLIENT_ID'] FROM system_views.clients");
    cqlring_bytes cells[2 * 64];
    cqlring_error error;
    uint32_t count = 0, reports = 0, ids = 0;
    if (result == NULL || !live_ok(cqlring_result_rows(result, 0, cells, 64, &count, &error), &error, "read the clients"))
        count = 0;
    for (uint32_t row = 0; row < count; ++row) {
        cqlring_bytes report = cells[2 * row], id = cells[2 * row + 1];
        reports += report.size > 20 && memcmp(report.data, "{\"version\":1,", 13) == 0 && memchr(report.data, '}', (size_t)report.size) != NULL;
        ids += id.size == 36;
    }
    (void)live_check(reports >= 1, "the server has been told the options in force");
    (void)live_check(ids > reports, "the server has been told an id on every connection");
    cqlring_result_release(result);
}

/* --- TLS and credentials ------------------------------------------------------------------------------------------ */

static void expect_open(const char *name, const cqlring_cluster_options *options, cqlring_status wanted)
{
    live_begin("%s", name);
    cqlring_cluster *cluster = NULL;
    cqlring_error error = {.message = ""};
    cqlring_status status = cqlring_cluster_open_sync(NULL, options, &cluster, &error);
    (void)live_status(status, wanted, &error, "open");
    if (status != CQLRING_OK)
        (void)live_check(error.message[0] != '\0', "the error says why");
    cqlring_cluster_release(cluster);
    live_end();
}

static void test_tls(void)
{
    bool is_good = strcmp(live.tls_certificate, "good") == 0;
    cqlring_cluster_options options = live_cluster_options(NULL);
    cqlring_tls_options tls = *options.tls;
    options.tls = &tls;
    tls.verify = CQLRING_TLS_FULL;
    expect_open("tls: the certificate is verified in full", &options, is_good ? CQLRING_OK : CQLRING_TLS);
    tls.verify = CQLRING_TLS_CHAIN;
    expect_open("tls: only the chain is verified", &options, strcmp(live.tls_certificate, "expired") == 0 ? CQLRING_TLS : CQLRING_OK);
    tls.verify = CQLRING_TLS_NONE;
    expect_open("tls: nothing is verified", &options, CQLRING_OK);
    tls.verify = CQLRING_TLS_FULL;
    for (int32_t version = 12; is_good && version <= 13; ++version) {
        tls.version_min = tls.version_max = version;
        expect_open(version == 12 ? "tls: version 1.2" : "tls: version 1.3", &options, CQLRING_OK);
    }
    tls.version_min = tls.version_max = 0;
    if (strcmp(live.tls_certificate, "wronghost") == 0) {
        tls.server_name = "elsewhere.example"; /* what stands in that certificate */
        expect_open("tls: a certificate for the given server name is taken", &options, CQLRING_OK);
        tls.server_name = "somebody.else.example";
        expect_open("tls: a certificate for another server name is refused", &options, CQLRING_TLS);
        tls.server_name = NULL;
    }
    if (live.tls_wrong_ca != NULL) {
        tls.ca_file = live.tls_wrong_ca;
        expect_open("tls: a certificate of an unknown CA is refused", &options, CQLRING_TLS);
        tls.verify = CQLRING_TLS_NONE;
        expect_open("tls: … but for those who verify nothing", &options, CQLRING_OK);
        tls.verify = CQLRING_TLS_FULL;
        tls.ca_file = live.tls_ca;
    }
    if (live.tls_client_certificate != NULL) {
        tls.certificate_file = tls.key_file = NULL;
        tls.version_max = 12;
        expect_open("tls: without the client certificate nobody is let in, version 1.2", &options, CQLRING_TLS);
        /* In 1.3 the client has done its part before the server looks at it: its alert may be lost in a reset. */
        tls.version_min = tls.version_max = 13;
        live_begin("tls: without the client certificate nobody is let in, version 1.3");
        cqlring_cluster *refused = NULL;
        (void)live_check(cqlring_cluster_open_sync(NULL, &options, &refused, NULL) != CQLRING_OK, "it was let in");
        cqlring_cluster_release(refused);
        live_end();
        tls.version_min = tls.version_max = 0;
    }
    live_begin("tls: plain text is refused in good time");
    options.tls = NULL;
    options.connect_timeout_us = 3000000;
    cqlring_cluster *cluster = NULL;
    cqlring_error error = {.message = ""};
    (void)live_check(cqlring_cluster_open_sync(NULL, &options, &cluster, &error) != CQLRING_OK, "a server of TLS took plain text");
    cqlring_cluster_release(cluster);
    live_end();
}

static void test_credentials(void)
{
    cqlring_cluster_options options = live_cluster_options(NULL);
    if (live.user == NULL) {
        options.user = "somebody";
        options.password = "something";
        expect_open("auth: credentials that nobody asks for do no harm (AU-06)", &options, CQLRING_OK);
        return;
    }
    expect_open("auth: the right password", &options, CQLRING_OK);
    options.password = "wrong";
    expect_open("auth: a wrong password", &options, CQLRING_AUTH);
    options.user = "nobody-\xC3\xA9\xF0\x9F\x98\x80";
    expect_open("auth: an unknown user outside of ASCII (AU-03)", &options, CQLRING_AUTH);
    options.user = options.password = NULL;
    expect_open("auth: no credentials", &options, CQLRING_AUTH);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(cqlring_session *session);
} tests[] = {
    {"single requests", test_single_requests},
    {"server errors", test_server_errors},
    {"large values", test_large_values},
    {"wide partition and paging", test_wide_partition_and_paging},
    {"batches", test_batches},
    {"conditions", test_conditions},
    {"jobs", test_jobs},
    {"queue", test_queue},
    {"nodes", test_nodes},
    {"what is told", test_told},
    {"use is refused", test_use_is_refused},
};

static bool is_wanted(const char *name)
{
    return live.only == NULL || strstr(name, live.only) != NULL;
}

static void run_in(const struct live_way *way, const char *compression)
{
    live_begin("protocol v%d, %s: a session is opened", way->version, compression);
    cqlring_session *session = live_open(way, NULL);
    bool is_ready = session != NULL && live_keyspace(session);
    live_end();
    for (unsigned i = 0; is_ready && i < sizeof tests / sizeof tests[0]; ++i) {
        if (!is_wanted(tests[i].name))
            continue;
        live_begin("protocol v%d, %s: %s", way->version, compression, tests[i].name);
        tests[i].run(session);
        live_end();
    }
    cqlring_session_release(session);
}

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    live_begin("the keyspace of an earlier run is dropped");
    cqlring_session *session = live_open(NULL, NULL);
    if (session != NULL)
        live_drop(session);
    live_end();

    static const struct live_way ways[] = {
        {5, CQLRING_COMPRESSION_NONE},
        {5, CQLRING_COMPRESSION_LZ4},
        {4, CQLRING_COMPRESSION_NONE},
        {4, CQLRING_COMPRESSION_LZ4},
        {4, CQLRING_COMPRESSION_SNAPPY},
    };
    static const char *const names[] = {"no compression", "LZ4", "Snappy"};
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; ++i)
        run_in(&ways[i], names[ways[i].compression]);
    for (unsigned i = 0; is_wanted("types") && i < 4; i += 2)
        live_types(&ways[i]);
    if (is_wanted("tls") && live.tls_ca != NULL)
        test_tls();
    if (is_wanted("auth"))
        test_credentials();

    if (session != NULL && !live.keep) {
        live_begin("the keyspace is dropped");
        live_drop(session);
        live_end();
    }
    cqlring_session_release(session);
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
