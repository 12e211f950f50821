/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one partition together (batch_by_partition), written and every one of them read back and compared. The server is started with
   a small max_mutation_size (64 KiB) and batch_size_fail_threshold (5 KiB): the first is met and learned, the second is about batches of
   several partitions and must never be. */

enum { ROWS_AT_ONCE = 256, VALUE_MAX = 256 << 10 };

struct load {
    cqlring_session *session;
    cqlring_prepared *insert;
    uint32_t rows, partition;           /* so many rows, so many a partition */
    uint32_t size;                      /* of a value */
    int64_t bad, large;                 /* a row without clustering key; a row of VALUE_MAX; −1: none */
    uint32_t versions;                  /* each key so often, the last one stays */
    uint32_t next;
    uint64_t ok, failed, failed_at;
    int32_t code;
    uint8_t keys[ROWS_AT_ONCE][8], places[ROWS_AT_ONCE][4];
    cqlring_bytes cells[ROWS_AT_ONCE][3];
    uint8_t *values;
};

static void value_of(uint32_t row, uint32_t version, uint8_t *value, uint32_t size)
{
    for (uint32_t i = 0; i < size; ++i)
        value[i] = (uint8_t)(250 - version * 40 + (row * 7 + i) % 37);
}

static uint32_t size_of(const struct load *load, uint32_t row)
{
    return load->large == (int64_t)row ? VALUE_MAX : load->size;
}

static int32_t next(cqlring_row *rows, uint32_t capacity, int64_t now_us, int64_t *wake_at_us, cqlring_error *error, void *context)
{
    struct load *load = context;
    (void)now_us;
    (void)wake_at_us;
    (void)error;
    uint32_t count = 0;
    uint8_t *at = load->values;
    for (; count < capacity && load->next < load->rows * load->versions; ++count, ++load->next) {
        /* the versions of a partition follow one another */
        uint32_t stretch = load->partition * load->versions, version = load->next % stretch / load->partition;
        uint32_t row = load->next / stretch * load->partition + load->next % load->partition;
        cqlring_writer writer;
        cqlring_writer_init(&writer, load->keys[count], 8);
        cqlring_put_int(&writer, row / load->partition, 8);
        cqlring_writer_init(&writer, load->places[count], 4);
        cqlring_put_int(&writer, row % load->partition, 4);
        value_of(row, version, at, size_of(load, row));
        load->cells[count][0] = (cqlring_bytes){load->keys[count], 8};
        load->cells[count][1] = (cqlring_bytes){load->places[count], load->bad == (int64_t)row ? CQLRING_NULL : 4};
        load->cells[count][2] = (cqlring_bytes){at, (int32_t)size_of(load, row)};
        rows[count] = (cqlring_row){.cells = load->cells[count]};
        at += size_of(load, row);
    }
    return (int32_t)count;
}

static cqlring_verdict take(const cqlring_completion *completions, uint32_t count, void *context)
{
    struct load *load = context;
    for (uint32_t i = 0; i < count; ++i) {
        if (completions[i].status == CQLRING_OK) {
            ++load->ok;
            continue;
        }
        load->failed_at = completions[i].row;
        load->code = completions[i].error->server_code;
        if (load->failed++ == 0)
            printf("        row %" PRIu64 ": %s\n", completions[i].row, completions[i].error->message);
    }
    return CQLRING_CONTINUE;
}

static cqlring_runtime *runtime;
static cqlring_cluster *cluster;

static cqlring_stats stats_of(void)
{
    cqlring_stats stats = {.struct_size = sizeof stats};
    cqlring_runtime_stats(runtime, &stats);
    return stats;
}

static bool run(struct load *load, const cqlring_batch_by_partition *batches, uint32_t window)
{
    load->next = 0;
    load->ok = load->failed = 0;
    cqlring_source source = {.next = next, .context = load};
    cqlring_sink sink = {.deliver = take, .context = load};
    const cqlring_execution idempotent = {.struct_size = sizeof idempotent, .idempotent = CQLRING_YES};
    cqlring_job_options how = {.struct_size = sizeof how, .window = window, .batch_by_partition = batches, .execution = &idempotent};
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_execute_concurrent(load->session, &load->insert, 1, &source, &sink, 1, &how, &future, &error);
    if (status == CQLRING_OK)
        status = cqlring_future_wait(future, -1, &error);
    cqlring_future_release(future);
    return live_ok(status, &error, "the job");
}

/* Every row that was acknowledged is there as its last version was; the others are not. */
static void compare(const struct load *load, const char *table)
{
    uint8_t *wanted = malloc(VALUE_MAX);
    uint64_t found = 0;
    for (uint32_t partition = 0; wanted != NULL && partition * load->partition < load->rows; ++partition) {
        cqlring_result *result = live_query(load->session, "SELECT c, v FROM cqlring_live.%s WHERE p = %u", table, partition);
        cqlring_bytes cells[2];
        uint32_t count = 0;
        for (uint32_t at = 0; result != NULL && cqlring_result_rows(result, at, cells, 1, &count, NULL) == CQLRING_OK && count == 1; ++at) {
            int64_t place = -1;
            cqlring_get_int(cells[0], 4, &place);
            uint32_t row = partition * load->partition + (uint32_t)place;
            value_of(row, load->versions - 1, wanted, size_of(load, row));
            if (!live_bytes(cells[1], (cqlring_bytes){wanted, (int32_t)size_of(load, row)}, "a value"))
                break;
            ++found;
        }
        cqlring_result_release(result);
    }
    free(wanted);
    live_equal((int64_t)found, (int64_t)load->rows - (load->bad >= 0) - (load->large >= 0), "rows read back");
}

static bool prepare(struct load *load, const char *table)
{
    if (!live_run(load->session, "CREATE TABLE cqlring_live.%s (p bigint, c int, v blob, PRIMARY KEY (p, c))", table))
        return false;
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_schema_refresh(cluster, &future, &error);
    if (status == CQLRING_OK)
        status = cqlring_future_wait(future, -1, &error);
    cqlring_future_release(future);
    if (!live_ok(status, &error, "reading the schema"))
        return false;
    load->insert = live_prepare(load->session, "INSERT INTO cqlring_live.%s (p, c, v) VALUES (?, ?, ?)", table);
    return load->insert != NULL;
}

static struct load begin(cqlring_session *session, const char *table, uint32_t rows, uint32_t partition, uint32_t size)
{
    struct load load = {.session = session, .rows = rows, .partition = partition, .size = size, .bad = -1, .large = -1, .versions = 1};
    live_begin("%s", table);
    load.values = malloc((size_t)ROWS_AT_ONCE * VALUE_MAX);
    if (live_check(load.values != NULL, "memory"))
        prepare(&load, table);
    return load;
}

static void end(struct load *load)
{
    cqlring_prepared_release(load->insert);
    free(load->values);
    live_end();
}

static void batches(cqlring_session *session)
{
    const cqlring_batch_by_partition usual = {.struct_size = sizeof usual}, large = {.struct_size = sizeof large, .rows_max = 256, .bytes_max = 1 << 20, .look_rows = 256};

    struct load load = begin(session, "rows_of_one_partition", 20000, 100, 100);
    if (load.insert != NULL && run(&load, &usual, 256)) {
        live_equal((int64_t)load.ok, 20000, "rows acknowledged");
        cqlring_stats stats = stats_of();
        live_check(stats.batched_rows > 19000 && stats.batches < 800, "most rows went in batches");
        live_equal((int64_t)stats.batches_split, 0, "batches of one partition that batch_size_fail_threshold was held against");
        compare(&load, "rows_of_one_partition");
    }
    end(&load);

    load = begin(session, "the_later_row_wins", 500, 50, 20);
    load.versions = 5;
    if (load.insert != NULL && run(&load, &usual, 512)) {
        live_equal((int64_t)load.ok, 2500, "rows acknowledged");
        compare(&load, "the_later_row_wins");
    }
    end(&load);

    load = begin(session, "an_invalid_row_fails_alone", 1000, 100, 50);
    load.bad = 345;
    if (load.insert != NULL && run(&load, &usual, 256)) {
        live_equal((int64_t)load.failed, 1, "rows that failed");
        live_equal((int64_t)load.failed_at, 345, "the row that failed");
        live_equal(load.code, 0x2200, "the server's code");
        compare(&load, "an_invalid_row_fails_alone");
    }
    end(&load);

    /* Last: what is learned here holds for the cluster. */
    load = begin(session, "too_large_is_halved_and_learned", 2000, 200, 1000);
    load.large = 777;
    if (load.insert != NULL && run(&load, &large, 512)) {
        cqlring_stats first = stats_of();
        live_equal((int64_t)load.failed, 1, "rows that failed");
        live_equal((int64_t)load.failed_at, 777, "the row that failed");
        live_check(first.batches_split > 0, "batches were split");
        printf("        %" PRIu64 " batches were split\n", first.batches_split);
        compare(&load, "too_large_is_halved_and_learned");
        load.large = -1;
        run(&load, &large, 512);
        live_equal((int64_t)load.ok, 2000, "rows acknowledged the second time");
        live_equal((int64_t)(stats_of().batches_split - first.batches_split), 0, "batches split the second time");
        compare(&load, "too_large_is_halved_and_learned");
    }
    end(&load);
}

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    for (int32_t version = 5; version >= 4; --version) {
        struct live_way way = {version, CQLRING_COMPRESSION_NONE};
        cqlring_cluster_options options = live_cluster_options(&way);
        cqlring_session *session = NULL;
        cqlring_error error;
        live_begin("opening, v%d", (int)version);
        cqlring_status status = cqlring_runtime_create(NULL, &runtime, &error);
        if (live_ok(status, &error, "runtime"))
            status = cqlring_cluster_open_sync(runtime, &options, &cluster, &error);
        if (live_ok(status, &error, "cluster"))
            status = cqlring_session_open_sync(cluster, NULL, &session, &error);
        bool opened = live_ok(status, &error, "session");
        if (opened)
            live_drop(session);
        opened = opened && live_keyspace(session);
        live_end();
        if (opened) {
            batches(session);
            live_drop(session);
        }
        cqlring_session_release(session);
        cqlring_cluster_release(cluster);
        cqlring_runtime_destroy(runtime);
    }
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
