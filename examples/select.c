/* SPDX-License-Identifier: Apache-2.0 */

/* What hello has written, read page by page.   select [contact points] */

#include <cqlring.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(cqlring_status status, const cqlring_error *error)
{
    if (status == CQLRING_OK)
        return;
    fprintf(stderr, "%s: %s\n", cqlring_status_text(status), error->message);
    exit(1);
}

/* Adds up a page's squares, many rows a call. Cells are slices into what was received: nothing is copied. */
static uint64_t read_page(cqlring_result *page, int64_t *sum)
{
    enum { ROWS = 100, COLUMNS = 2 };
    cqlring_bytes cells[ROWS * COLUMNS];
    cqlring_error error;
    uint32_t row = 0, count;
    do {
        check(cqlring_result_rows(page, row, cells, ROWS, &count, &error), &error);
        for (uint32_t i = 0; i < count; ++i) {
            int64_t square = 0;
            if (cqlring_get_int(cells[i * COLUMNS + 1], 8, &square) == CQLRING_OK)
                *sum += square;
        }
        row += count;
    } while (count > 0);
    return row;
}

int main(int argc, char **argv)
{
    cqlring_error error;
    cqlring_cluster *cluster;
    cqlring_session *session;
    cqlring_cluster_options options = {.struct_size = sizeof options, .contact_points = argc > 1 ? argv[1] : "127.0.0.1"};
    cqlring_session_options session_options = {.struct_size = sizeof session_options, .keyspace = "hello"};
    check(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error);
    check(cqlring_session_open_sync(cluster, &session_options, &session, &error), &error);

    cqlring_prepared *select;
    check(cqlring_prepare_sync(session, "SELECT n, square FROM squares", &select, &error), &error);
    cqlring_column column;
    for (uint32_t i = 0; cqlring_prepared_result_column(select, i, &column); ++i) {
        char type[64];
        cqlring_type_format(column.type, type, sizeof type);
        printf("%s.%s.%s %s\n", column.keyspace, column.table, column.name, type);
    }

    cqlring_execution execution = {.struct_size = sizeof execution, .page_size = 1000};
    cqlring_request request = {.session = session, .prepared = select, .execution = &execution};
    cqlring_result *page;
    check(cqlring_execute_sync(&request, &page, &error), &error);
    uint64_t rows = 0, pages = 0;
    int64_t sum = 0;
    for (;;) {
        bool is_last = cqlring_result_paging_state(page).data == NULL;
        cqlring_future *future = NULL;
        if (!is_last) /* asked for now, so that it travels while this one is read */
            check(cqlring_next_page(page, NULL, &future, &error), &error);
        rows += read_page(page, &sum);
        ++pages;
        cqlring_result_release(page);
        if (is_last)
            break;
        check(cqlring_future_wait(future, -1, &error), &error);
        page = cqlring_result_retain(cqlring_future_completion(future)->result);
        cqlring_future_release(future);
    }
    printf("%" PRIu64 " rows in %" PRIu64 " pages, sum %" PRId64 "\n", rows, pages, sum);
    cqlring_prepared_release(select);
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    return 0;
}
