/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/response.h"
#include "cql/rows.h"
#include "world.h"

enum { OUT_SIZE = 4096 };

static uint64_t word_of(int64_t key, uint32_t at)
{
    struct chance chance = chance_make((uint64_t)key, at);
    return chance_next(&chance);
}

/* Half of the values shrink under LZ4, half do not. */
void store_value(int64_t key, void *data, uint32_t size)
{
    uint8_t *at = data;
    for (uint32_t i = 0; i < size; i += 8) {
        uint64_t word = word_of(key, (key & 1) != 0 && i > 64 ? i & 1023 & ~7u : i);
        memcpy(at + i, &word, size - i < 8 ? size - i : 8);
    }
}

bool store_value_is(int64_t key, cqlring_bytes value)
{
    if (value.size < 0)
        return false;
    uint8_t *wanted = malloc((size_t)value.size + 1);
    if (wanted == NULL)
        abort();
    store_value(key, wanted, (uint32_t)value.size);
    bool same = value.size == 0 || memcmp(wanted, value.data, (size_t)value.size) == 0;
    free(wanted);
    return same;
}

static void run(struct node_cluster *nodes, const char *cql)
{
    char message[200];
    int32_t code = node_cql(nodes, cql, NULL, message, sizeof message);
    world_check(code == 0, "the node refuses \"%.80s\": 0x%04x %s", cql, (unsigned)code, message);
}

void store_schema(struct node_cluster *nodes, uint32_t replication)
{
    char text[200];
    (void)snprintf(
        text, sizeof text,
        "CREATE KEYSPACE sim WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %u}",
        replication);
    run(nodes, text);
    run(nodes, "CREATE TABLE sim.t (k bigint PRIMARY KEY, v blob)");
    run(nodes, "CREATE TABLE sim.w (p bigint, c int, v blob, PRIMARY KEY (p, c))");
}

uint32_t store_fill_size(int64_t partition, uint32_t row, uint32_t size_max)
{
    return (uint32_t)(word_of(partition * 1000 + row, 7) % (size_max + 1));
}

void store_fill(struct node_cluster *nodes, int64_t partition, uint32_t rows, uint32_t size_max)
{
    char *text = malloc(200 + (size_t)size_max * 2);
    uint8_t *value = malloc((size_t)size_max + 8);
    if (text == NULL || value == NULL)
        abort();
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t size = store_fill_size(partition, i, size_max);
        store_value(partition * 1000 + i, value, size);
        int at = sprintf(text, "INSERT INTO sim.w (p, c, v) VALUES (%" PRId64 ", %u, 0x", partition,
                         i);
        for (uint32_t j = 0; j < size; j++)
            at += sprintf(text + at, "%02x", value[j]);
        (void)strcpy(text + at, ")");
        run(nodes, text);
    }
    free(text);
    free(value);
}

/* --- reading past the driver --------------------------------------------------------------------------------------- */

static const uint8_t *ask(struct node_conn *conn, const struct writer *request,
                          struct frame_header *header, uint8_t **answer)
{
    int64_t now = world.now_us;
    node_conn_input(conn, request->data, request->size, now);
    node_conn_turn(conn, now);
    size_t size = 0, capacity = 0;
    for (cqlring_bytes out = node_conn_output(conn); out.size > 0; out = node_conn_output(conn)) {
        if (size + (size_t)out.size > capacity) {
            capacity = (size + (size_t)out.size) * 2;
            *answer = realloc(*answer, capacity);
            if (*answer == NULL)
                abort();
        }
        memcpy(*answer + size, out.data, (size_t)out.size);
        size += (size_t)out.size;
        node_conn_consumed(conn, (uint32_t)out.size);
    }
    world_check(size > 0 &&
                    cqr_frame_cut(*answer, (uint32_t)size, PROTO_BODY_MAX, header) == FRAME_WHOLE,
                "the node does not answer when asked past the driver");
    return *answer + PROTO_HEADER_SIZE;
}

static void rows_read(const struct frame_header *header, const uint8_t *data,
                      void (*row)(int64_t key, cqlring_bytes value, void *context), void *context)
{
    struct dialect dialect = {.version = PROTO_V4};
    cqlring_bytes body = {data, (int32_t)header->body_size};
    uint32_t kind = 0;
    struct arena arena;
    struct rows_body rows;
    cqr_arena_init(&arena, 1 << 20);
    world_check(header->opcode == OPCODE_RESULT &&
                    cqr_decode_result_kind(&body, &kind) == CQLRING_OK && kind == RESULT_ROWS &&
                    cqr_decode_rows(&dialect, body, &arena, &rows) == CQLRING_OK,
                "the node does not tell its rows when asked past the driver");
    struct rows_cursor cursor;
    cqr_rows_init(&cursor, rows.rows, rows.columns.count, rows.row_count);
    cqlring_bytes cells[2];
    uint32_t count;
    while (cqr_rows_next(&cursor, cells, 1, &count) == CQLRING_OK && count == 1)
        row((int64_t)cqr_load_u64(cells[0].data), cells[1], context);
    cqr_arena_fini(&arena);
}

void store_read(struct node_cluster *nodes,
                void (*row)(int64_t key, cqlring_bytes value, void *context), void *context)
{
    struct dialect dialect = {.version = PROTO_V4};
    node_set_delay(nodes, NODE_ALL, 0, 0);
    struct node_conn *conn = node_conn_open(nodes, 0, 0, world.now_us);
    world_check(conn != NULL, "node 0 cannot be asked past the driver");
    uint8_t room[OUT_SIZE], *answer = NULL;
    struct frame_header header;
    struct writer out;
    cqr_writer_init(&out, room, sizeof room);
    struct string_pair option = {.key = cqlring_text("CQL_VERSION"),
                                 .value = cqlring_text("3.0.0")};
    cqr_encode_startup(&out, &dialect, 0, &option, 1);
    (void)ask(conn, &out, &header, &answer);
    world_check(header.opcode == OPCODE_READY,
                "node 0 does not start up when asked past the driver");
    cqr_writer_init(&out, room, sizeof room);
    struct query_params params = {.consistency = 1};
    uint32_t start = cqr_query_begin(&out, &dialect, 0, cqlring_text("SELECT k, v FROM sim.t"),
                                     &params);
    cqr_query_end(&out, &dialect, &params, start);
    const uint8_t *body = ask(conn, &out, &header, &answer);
    rows_read(&header, body, row, context);
    free(answer);
    node_conn_close(conn);
}
