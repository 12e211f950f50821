/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cql/request.h"

static cqlring_bytes text(const char *string)
{
    return (cqlring_bytes){.data = string, .size = (int32_t)strlen(string)};
}

static const cqlring_bytes nothing = {.data = NULL, .size = 0};
static const struct dialect v3 = {.version = PROTO_V3}, v4 = {.version = PROTO_V4},
                            v5 = {.version = PROTO_V5};

static uint8_t room[1 << 20];

static struct writer open_room(void)
{
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    return writer;
}

/* The request that stands in the writer, taken apart. The body is copied to memory of exactly its
   size, freed by the next call. */
static uint8_t *body_copy;

static cqlring_status decode(const struct writer *writer, const struct dialect *dialect,
                             struct request *out)
{
    struct frame_header header;
    ck_assert(!writer->failed);
    ck_assert_int_eq(cqr_frame_cut(writer->data, writer->size, PROTO_BODY_MAX, &header),
                     FRAME_WHOLE);
    ck_assert_uint_eq(PROTO_HEADER_SIZE + header.body_size, writer->size);
    ck_assert_uint_eq(header.version, dialect->version);
    free(body_copy);
    body_copy = malloc(header.body_size + (header.body_size == 0));
    ck_assert_ptr_nonnull(body_copy);
    memcpy(body_copy, writer->data + PROTO_HEADER_SIZE, header.body_size);
    return cqr_decode_request(dialect, header.opcode, header.flags,
                              (cqlring_bytes){body_copy, (int32_t)header.body_size}, out);
}

static void check_bytes(cqlring_bytes got, cqlring_bytes wanted)
{
    ck_assert_int_eq(got.size, wanted.size);
    if (wanted.size > 0)
        ck_assert_mem_eq(got.data, wanted.data, (size_t)wanted.size);
}

/* Every field that can be sent, on its own and with others, comes back, in every version and in a
   room that fits exactly; the usual way through the encoder and the thorough one (a custom payload
   takes it) give the same bytes but for the payload. */
START_TEST(execute_of_any_parameters_is_taken_apart_again)
{
    static const uint8_t id[16] = {1, 2, 3}, other_id[20] = {9, 8, 7};
    const cqlring_bytes ids[] = {{id, 16}, {other_id, 20}, {"", 0}};
    const cqlring_bytes cells[] = {text("12345678"), {NULL, CQLRING_NULL}, text("")};
    const struct dialect dialects[] = {v3,
                                       v4,
                                       v5,
                                       {.version = PROTO_V4, .extensions = EXT_METADATA_ID},
                                       {.version = PROTO_V4, .extensions = EXT_TABLETS_V2}};
    const struct dialect *dialect = &dialects[_i];
    for (uint32_t bits = 0; bits < 1u << 9; ++bits) {
        struct query_params params = {.consistency = (uint16_t)(bits % 11)};
        params.has_values = (bits & 1) != 0;
        params.skip_metadata = (bits & 2) != 0;
        params.page_size = (bits & 4) != 0 ? 5000 : (bits & 1) != 0 ? -1 : 0;
        params.paging_state = (bits & 8) != 0 ? text("state") : nothing;
        params.serial_consistency = (bits & 16) != 0 ? 8 + bits % 2 : 0;
        params.has_timestamp = (bits & 32) != 0;
        params.timestamp_us = (bits & 32) != 0 ? -5 : 0;
        params.keyspace = (bits & 64) != 0 ? text("ks") : nothing;
        params.has_now = (bits & 128) != 0;
        params.now_in_seconds = (bits & 128) != 0 ? 1700000000 : 0;
        params.tracing = (bits & 256) != 0;
        for (size_t which = 0; which < 9; ++which) {
            struct writer writer = open_room();
            uint32_t start = cqr_execute_begin(&writer, dialect, 77, ids[which % 3], ids[which / 3],
                                               &params);
            if (params.has_values)
                cqr_put_values(&writer, cells, 3);
            cqr_execute_end(&writer, dialect, &params, start, 0xA3);
            struct request request;
            ck_assert_int_eq(decode(&writer, dialect, &request), CQLRING_OK);
            check_bytes(request.id, ids[which % 3]);
            check_bytes(request.result_metadata_id,
                        cqr_dialect_has_metadata_id(dialect) ? ids[which / 3] : nothing);
            ck_assert_uint_eq(request.params.consistency, params.consistency);
            ck_assert_uint_eq(request.params.serial_consistency, params.serial_consistency);
            ck_assert(request.params.has_values == params.has_values);
            ck_assert_uint_eq(request.value_count, params.has_values ? 3 : 0);
            ck_assert(request.params.skip_metadata == params.skip_metadata);
            ck_assert(request.params.tracing == params.tracing);
            ck_assert_int_eq(request.params.page_size, params.page_size > 0 ? params.page_size : 0);
            check_bytes(request.params.paging_state, params.paging_state);
            ck_assert(request.params.has_timestamp == params.has_timestamp);
            ck_assert_int_eq(request.params.timestamp_us, params.timestamp_us);
            bool is_v5 = dialect->version == PROTO_V5;
            check_bytes(request.params.keyspace, is_v5 ? params.keyspace : nothing);
            ck_assert(request.params.has_now == (is_v5 && params.has_now));
            ck_assert_int_eq(request.params.now_in_seconds, is_v5 ? params.now_in_seconds : 0);
            ck_assert_uint_eq(request.tablet_block,
                              (dialect->extensions & EXT_TABLETS_V2) != 0 ? 0xA3 : 0);
        }
    }
    free(body_copy);
    body_copy = NULL;
}
END_TEST

/* NV-05, and every way through cqr_put_values: sizes around each of its branches, null and unset
   between them. */
START_TEST(nv_05_values_of_every_size_keep_their_places)
{
    static uint8_t data[70000];
    static const int32_t sizes[] = {CQLRING_NULL,
                                    CQLRING_UNSET,
                                    0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    5,
                                    7,
                                    8,
                                    9,
                                    12,
                                    15,
                                    16,
                                    17,
                                    24,
                                    31,
                                    32,
                                    33,
                                    64,
                                    100,
                                    1000,
                                    65536,
                                    70000};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (size_t i = 0; i < sizeof data; ++i)
        data[i] = (uint8_t)(i * 31 + 7);
    for (size_t first = 0; first < SIZES; ++first) {
        for (size_t second = 0; second < SIZES; ++second) {
            const cqlring_bytes cells[3] = {
                {data, sizes[first]},
                {data + 3, sizes[second] <= 60000 ? sizes[second] : 60000},
                {data, 8}};
            uint32_t size = 2;
            for (int i = 0; i < 3; ++i)
                size += 4 + (cells[i].size > 0 ? (uint32_t)cells[i].size : 0);
            struct writer writer;
            cqr_writer_init(&writer, room, size);
            cqr_put_values(&writer, cells, 3);
            ck_assert(!writer.failed);
            ck_assert_uint_eq(writer.size, size);
            ck_assert_uint_eq(cqr_load_u16(room), 3);
            cqlring_bytes rest = {room + 2, (int32_t)size - 2}, value;
            for (int i = 0; i < 3; ++i) {
                ck_assert_int_eq(cqr_next_value(&rest, &value), CQLRING_OK);
                check_bytes(value, cells[i]);
            }
            ck_assert_int_eq(rest.size, 0);
            /* Wide room takes the other way; the bytes are the same. */
            static uint8_t wide[sizeof room];
            cqr_writer_init(&writer, wide, sizeof wide);
            cqr_put_values(&writer, cells, 3);
            ck_assert_uint_eq(writer.size, size);
            ck_assert_mem_eq(wide, room, size);
            cqr_writer_init(&writer, room, size - 1);
            cqr_put_values(&writer, cells, 3);
            ck_assert(writer.failed);
            ck_assert_uint_eq(writer.size, 0);
        }
    }
}
END_TEST

/* A row from a head that was made once has the bytes of begin, values and end, with and without a timestamp. */
START_TEST(execute_row_from_a_head_is_the_same_request)
{
    static const uint8_t id[16] = {1, 2, 3}, metadata_id[16] = {9, 8, 7};
    static uint8_t long_value[5000];
    const cqlring_bytes cells[] = {{long_value, 8},    {long_value, 32},   {NULL, CQLRING_NULL},
                                   {long_value, 33},   {NULL, CQLRING_UNSET}, {NULL, 0},
                                   {long_value, 5000}, {long_value, 1}};
    const uint32_t cell_max = sizeof cells / sizeof cells[0];
    const struct dialect beta = {.version = PROTO_V5, .frame_flags = FLAG_BETA},
                         extended = {.version = PROTO_V4, .extensions = EXT_METADATA_ID};
    const struct dialect *dialects[] = {&v3, &v4, &v5, &beta, &extended};
    for (uint32_t d = 0; d < 5; ++d) {
        for (uint32_t variant = 0; variant < 16; ++variant) {
            struct query_params params = {.consistency = 0x0A,
                                          .has_values = true,
                                          .skip_metadata = (variant & 1) != 0,
                                          .page_size = (variant & 2) != 0 ? 5000 : 0};
            int64_t timestamp_us = (variant & 4) != 0 ? INT64_C(1700000000000000) : INT64_MIN;
            cqlring_bytes result_id = {metadata_id, (variant & 8) != 0 ? 16 : 0};
            struct execute_head head;
            memset(&head, 0xA5, sizeof head);
            ck_assert(cqr_execute_head_make(&head, dialects[d], (cqlring_bytes){id, 16}, result_id, &params));
            params.has_timestamp = timestamp_us != INT64_MIN;
            params.timestamp_us = timestamp_us;
            for (uint32_t count = 0; count <= cell_max; ++count) {
                struct writer writer = open_room();
                uint32_t start = cqr_execute_begin(&writer, dialects[d], 0x1234, (cqlring_bytes){id, 16}, result_id, &params);
                uint32_t values_at = writer.size;
                cqr_put_values(&writer, cells, count);
                uint32_t values_size = writer.size - values_at;
                cqr_execute_end(&writer, dialects[d], &params, start, 0);
                ck_assert(!writer.failed);
                uint8_t *row = malloc(CQR_EXECUTE_AROUND + values_size);
                ck_assert_ptr_nonnull(row);
                uint32_t row_values = 0;
                ck_assert_uint_eq(cqr_execute_row(row, &head, 0x1234, timestamp_us, cells, count, &row_values), writer.size);
                ck_assert_uint_eq(row_values, values_size);
                ck_assert_uint_eq(head.size, values_at);
                ck_assert_mem_eq(row, writer.data, writer.size);
                free(row);
            }
        }
    }
    struct query_params rare = {.consistency = 1, .tracing = true};
    struct execute_head head;
    ck_assert(!cqr_execute_head_make(&head, &v5, (cqlring_bytes){id, 16}, nothing, &rare));
    struct query_params usual = {.consistency = 1};
    const struct dialect tablets = {.version = PROTO_V4, .extensions = EXT_TABLETS_V2};
    ck_assert(!cqr_execute_head_make(&head, &tablets, (cqlring_bytes){id, 16}, nothing, &usual));
    ck_assert(!cqr_execute_head_make(&head, &v5, (cqlring_bytes){long_value, 60}, nothing, &usual));
}
END_TEST

START_TEST(values_read_no_byte_beyond_the_cell)
{
    for (int32_t size = 0; size <= 40; ++size) {
        uint8_t *exact = malloc((size_t)size + (size == 0));
        ck_assert_ptr_nonnull(exact);
        memset(exact, size, (size_t)size);
        struct writer writer = open_room();
        cqr_put_values(&writer, &(cqlring_bytes){exact, size}, 1);
        ck_assert(!writer.failed);
        ck_assert_uint_eq(writer.size, 6 + (uint32_t)size);
        if (size > 0)
            ck_assert_mem_eq(room + 6, exact, (size_t)size);
        free(exact);
    }
}
END_TEST

START_TEST(more_than_65535_values_fail_the_writer)
{
    cqlring_bytes *cells = calloc(UINT16_MAX + 1, sizeof *cells);
    ck_assert_ptr_nonnull(cells);
    struct writer writer = open_room();
    cqr_put_values(&writer, cells, UINT16_MAX);
    ck_assert(!writer.failed);
    writer = open_room();
    cqr_put_values(&writer, cells, UINT16_MAX + 1);
    ck_assert(writer.failed);
    writer = open_room();
    cqr_put_named_values(&writer, cells, cells, UINT16_MAX + 1);
    ck_assert(writer.failed);
    free(cells);
}
END_TEST

/* FR-09: a value that fails half-way. The writer says so, and taken back to where the request began
   it goes on. */
START_TEST(fr_09_writer_taken_back_to_the_start_goes_on)
{
    uint8_t small[100];
    static uint8_t large[200];
    const struct query_params params = {.consistency = 1, .has_values = true};
    struct writer writer;
    cqr_writer_init(&writer, small, sizeof small);
    uint32_t start = cqr_execute_begin(&writer, &v4, 1, text("0123456789abcdef"), nothing, &params);
    cqr_put_values(&writer, &(cqlring_bytes){large, sizeof large}, 1);
    cqr_execute_end(&writer, &v4, &params, start, 0);
    ck_assert(writer.failed);
    writer.size = start;
    writer.failed = false;
    start = cqr_execute_begin(&writer, &v4, 1, text("0123456789abcdef"), nothing, &params);
    cqr_put_values(&writer, &(cqlring_bytes){large, 4}, 1);
    cqr_execute_end(&writer, &v4, &params, start, 0);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
}
END_TEST

/* What stands between begin and end is all that a retry needs, also on a connection of another
   version. */
START_TEST(values_moved_between_versions_make_the_same_request)
{
    const struct query_params params = {
        .consistency = 6, .has_values = true, .has_timestamp = true, .timestamp_us = 99};
    const cqlring_bytes cells[] = {text("key"), text("value")};
    struct writer writer = open_room();
    cqr_execute_begin(&writer, &v5, 1, text("0123456789abcdef"), text("metadata id 16 b"), &params);
    uint32_t from = writer.size;
    cqr_put_values(&writer, cells, 2);
    uint8_t values[64];
    uint32_t size = writer.size - from;
    ck_assert_uint_le(size, sizeof values);
    memcpy(values, room + from, size);

    writer = open_room();
    uint32_t start = cqr_execute_begin(&writer, &v4, 2, text("0123456789abcdef"), nothing, &params);
    cqr_put_raw(&writer, values, size);
    cqr_execute_end(&writer, &v4, &params, start, 0);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
    ck_assert_uint_eq(request.value_count, 2);
    cqlring_bytes value;
    ck_assert_int_eq(cqr_next_value(&request.values, &value), CQLRING_OK);
    check_bytes(value, cells[0]);
    ck_assert_int_eq(cqr_next_value(&request.values, &value), CQLRING_OK);
    check_bytes(value, cells[1]);
    ck_assert_int_eq(request.params.timestamp_us, 99);
}
END_TEST

START_TEST(unknown_result_metadata_id_is_sent_empty)
{
    const struct query_params params = {.consistency = 1};
    for (int i = 0; i < 2; ++i) {
        struct writer writer = open_room();
        uint32_t start = cqr_execute_begin(&writer, &v5, 1, text("0123456789abcdef"),
                                           (cqlring_bytes){NULL, i == 0 ? 0 : CQLRING_NULL},
                                           &params);
        cqr_execute_end(&writer, &v5, &params, start, 0);
        struct request request;
        ck_assert_int_eq(decode(&writer, &v5, &request), CQLRING_OK);
        ck_assert_int_eq(request.result_metadata_id.size, 0);
        ck_assert_ptr_nonnull(request.result_metadata_id.data);
    }
}
END_TEST

/* LW-08: the serial level is sent when there is one, and only then. */
START_TEST(lw_08_serial_consistency_is_sent_exactly_as_given)
{
    for (uint16_t serial = 0; serial <= 9; serial = serial == 0 ? 8 : serial + 1) {
        const struct query_params params = {.consistency = 1, .serial_consistency = serial};
        struct writer writer = open_room();
        uint32_t start = cqr_query_begin(&writer, &v4, 1, text("x"), &params);
        cqr_query_end(&writer, &v4, &params, start);
        struct request request;
        ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
        ck_assert_uint_eq(request.params.serial_consistency, serial);
        writer = open_room();
        start = cqr_batch_begin(&writer, &v4, 1, BATCH_LOGGED, 0, &params);
        cqr_batch_end(&writer, &v4, &params, start);
        ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
        ck_assert_uint_eq(request.params.serial_consistency, serial);
    }
}
END_TEST

/* PG-06: unpaged means no page size on the wire. */
START_TEST(pg_06_unpaged_query_has_no_page_size)
{
    for (int32_t page_size = -1; page_size <= 1; ++page_size) {
        const struct query_params params = {.consistency = 1, .page_size = page_size};
        struct writer writer = open_room();
        uint32_t start = cqr_query_begin(&writer, &v5, 1, text("x"), &params);
        cqr_query_end(&writer, &v5, &params, start);
        uint32_t flags = cqr_load_u32(room + PROTO_HEADER_SIZE + 4 + 1 + 2);
        ck_assert_uint_eq(flags, page_size > 0 ? QUERY_PAGE_SIZE : 0);
    }
}
END_TEST

/* BT-02: children with and without values in one batch. */
START_TEST(bt_02_batch_child_without_values_carries_a_zero_count)
{
    static const uint8_t expected_child[] = {0, 0, 0, 0, 1, 'q', 0, 0};
    const struct query_params params = {.consistency = 1, .has_timestamp = true, .timestamp_us = 5};
    const cqlring_bytes cells[] = {text("a"), {NULL, CQLRING_NULL}};
    struct writer writer = open_room();
    uint32_t start = cqr_batch_begin(&writer, &v4, 3, BATCH_UNLOGGED, 3, &params);
    cqr_batch_text(&writer, text("q"));
    cqr_put_values(&writer, NULL, 0);
    cqr_batch_text(&writer, text("with values"));
    cqr_put_values(&writer, cells, 2);
    cqr_batch_prepared(&writer, text("0123456789abcdef"));
    cqr_put_values(&writer, cells, 1);
    cqr_batch_end(&writer, &v4, &params, start);
    ck_assert_mem_eq(room + PROTO_HEADER_SIZE + 3, expected_child, sizeof expected_child);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
    ck_assert_uint_eq(request.batch_kind, BATCH_UNLOGGED);
    ck_assert_uint_eq(request.batch_count, 3);
    static const uint16_t counts[] = {0, 2, 1};
    for (int i = 0; i < 3; ++i) {
        struct batch_child child;
        ck_assert_int_eq(cqr_request_next_child(&request.batch_children, &child), CQLRING_OK);
        ck_assert_uint_eq(child.value_count, counts[i]);
        ck_assert(child.prepared == (i == 2));
    }
    ck_assert_int_eq(request.batch_children.size, 0);
    struct batch_child child;
    ck_assert_int_eq(cqr_request_next_child(&request.batch_children, &child), CQLRING_PROTOCOL);
}
END_TEST

/* A batch has no values, pages or skipped metadata of its own, whatever the parameters say. */
START_TEST(batch_keeps_the_low_flag_bits_clear)
{
    const struct query_params params = {.consistency = 1,
                                        .has_values = true,
                                        .has_names = true,
                                        .skip_metadata = true,
                                        .page_size = 100,
                                        .paging_state = text("p"),
                                        .serial_consistency = 8};
    struct writer writer = open_room();
    uint32_t start = cqr_batch_begin(&writer, &v4, 1, BATCH_LOGGED, 0, &params);
    cqr_batch_end(&writer, &v4, &params, start);
    ck_assert_uint_eq(room[PROTO_HEADER_SIZE + 3 + 2], QUERY_SERIAL);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
}
END_TEST

/* MS-04: null, empty and repeated keys in a request's payload; on v3 there is none. */
START_TEST(ms_04_custom_payload_goes_before_the_message_from_v4_on)
{
    const struct string_pair pairs[] = {
        {text(""), text("x")}, {text("n"), {NULL, CQLRING_NULL}}, {text("n"), text("")}};
    const struct query_params params = {.consistency = 1, .payload = pairs, .payload_count = 3};
    const struct dialect *dialects[] = {&v3, &v4, &v5};
    for (int i = 0; i < 3; ++i) {
        struct writer writer = open_room();
        uint32_t start = cqr_query_begin(&writer, dialects[i], 1, text("text"), &params);
        cqr_query_end(&writer, dialects[i], &params, start);
        ck_assert_uint_eq(room[1], i == 0 ? 0 : FLAG_PAYLOAD);
        struct request request;
        ck_assert_int_eq(decode(&writer, dialects[i], &request), CQLRING_OK);
        check_bytes(request.text, text("text"));
        ck_assert((request.payload.data != NULL) == (i > 0));
        writer = open_room();
        cqr_encode_prepare(&writer, dialects[i], 1, text("text"), text("ks"), true, pairs, 3);
        ck_assert_int_eq(decode(&writer, dialects[i], &request), CQLRING_OK);
        check_bytes(request.text, text("text"));
        check_bytes(request.keyspace, i == 2 ? text("ks") : nothing);
    }
}
END_TEST

/* AU-02: the token's length takes four bytes. */
START_TEST(au_02_auth_token_has_a_length_of_four_bytes)
{
    static uint8_t token[500];
    struct writer writer = open_room();
    cqr_encode_auth_response(&writer, &v4, 0, (cqlring_bytes){token, sizeof token});
    ck_assert_uint_eq(writer.size, PROTO_HEADER_SIZE + 4 + sizeof token);
    ck_assert_uint_eq(cqr_load_u32(room + PROTO_HEADER_SIZE), sizeof token);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
    ck_assert_int_eq(request.text.size, sizeof token);
    writer = open_room();
    cqr_encode_auth_response(&writer, &v4, 0, (cqlring_bytes){NULL, CQLRING_NULL});
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
    ck_assert_int_eq(request.text.size, CQLRING_NULL);
}
END_TEST

START_TEST(beta_flag_is_set_on_every_request)
{
    const struct dialect beta = {.version = PROTO_V5, .frame_flags = FLAG_BETA};
    const struct query_params params = {.consistency = 1};
    struct writer writer = open_room();
    cqr_encode_options(&writer, &beta, 0);
    cqr_encode_startup(&writer, &beta, 0, NULL, 0);
    cqr_encode_register(&writer, &beta, 0, NULL, 0);
    cqr_encode_auth_response(&writer, &beta, 0, nothing);
    cqr_encode_prepare(&writer, &beta, 0, text("x"), nothing, false, NULL, 0);
    cqr_execute_end(&writer, &beta, &params,
                    cqr_execute_begin(&writer, &beta, 0, text("0123456789abcdef"),
                                      text("0123456789abcdef"), &params),
                    0);
    cqr_query_end(&writer, &beta, &params, cqr_query_begin(&writer, &beta, 0, text("x"), &params));
    cqr_batch_end(&writer, &beta, &params, cqr_batch_begin(&writer, &beta, 0, 0, 0, &params));
    uint32_t at = 0, frames = 0;
    struct frame_header header;
    while (cqr_frame_cut(room + at, writer.size - at, PROTO_BODY_MAX, &header) == FRAME_WHOLE) {
        ck_assert_uint_eq(header.flags, FLAG_BETA);
        at += PROTO_HEADER_SIZE + header.body_size;
        ++frames;
    }
    ck_assert_uint_eq(frames, 8);
    ck_assert_uint_eq(at, writer.size);
}
END_TEST

START_TEST(string_too_long_for_its_length_fails_the_writer)
{
    static char large[UINT16_MAX + 1];
    const cqlring_bytes long_text = {large, UINT16_MAX + 1};
    const struct query_params params = {.consistency = 1, .keyspace = long_text};
    const struct query_params plain = {.consistency = 1};
    struct writer writer = open_room();
    cqr_execute_begin(&writer, &v4, 0, long_text, nothing, &plain);
    ck_assert(writer.failed);
    writer = open_room();
    cqr_execute_begin(&writer, &v5, 0, text("id"), long_text, &plain);
    ck_assert(writer.failed);
    writer = open_room();
    cqr_query_end(&writer, &v5, &params, cqr_query_begin(&writer, &v5, 0, text("x"), &params));
    ck_assert(writer.failed);
    writer = open_room();
    cqr_encode_startup(&writer, &v4, 0, &(struct string_pair){text("k"), long_text}, 1);
    ck_assert(writer.failed);
}
END_TEST

/* A whole request of every kind, cut at every byte: refused, without a look behind the cut. */
START_TEST(request_cut_anywhere_is_refused)
{
    const struct dialect *dialect = _i == 0 ? &v4 : &v5;
    const struct query_params params = {.consistency = 1,
                                        .has_values = true,
                                        .page_size = 10,
                                        .paging_state = text("p"),
                                        .serial_consistency = 8,
                                        .has_timestamp = true,
                                        .has_now = true,
                                        .keyspace = text("k")};
    const cqlring_bytes cells[] = {text("abc"), {NULL, CQLRING_NULL}};
    const struct string_pair pair = {text("key"), text("value")};
    for (int kind = 0; kind < 7; ++kind) {
        struct writer writer = open_room();
        uint32_t start = 0;
        switch (kind) {
        case 0: cqr_encode_startup(&writer, dialect, 0, &pair, 1); break;
        case 1: cqr_encode_register(&writer, dialect, 0, cells, 1); break;
        case 2:
            cqr_encode_prepare(&writer, dialect, 0, text("text"), text("ks"), false, &pair, 1);
            break;
        case 3:
            start = cqr_query_begin(&writer, dialect, 0, text("text"), &params);
            cqr_put_values(&writer, cells, 2);
            cqr_query_end(&writer, dialect, &params, start);
            break;
        case 4:
            start = cqr_execute_begin(&writer, dialect, 0, text("id"), text("metadata"), &params);
            cqr_put_values(&writer, cells, 2);
            cqr_execute_end(&writer, dialect, &params, start, 0);
            break;
        case 5:
            start = cqr_batch_begin(&writer, dialect, 0, BATCH_LOGGED, 2, &params);
            cqr_batch_text(&writer, text("text"));
            cqr_put_values(&writer, cells, 2);
            cqr_batch_prepared(&writer, text("id"));
            cqr_put_values(&writer, cells, 1);
            cqr_batch_end(&writer, dialect, &params, start);
            break;
        default: cqr_encode_auth_response(&writer, dialect, 0, text("token")); break;
        }
        struct request request;
        ck_assert_int_eq(decode(&writer, dialect, &request), CQLRING_OK);
        uint8_t opcode = room[4], flags = room[1];
        for (uint32_t size = 0; size < writer.size - PROTO_HEADER_SIZE; ++size) {
            uint8_t *cut = malloc(size + (size == 0));
            ck_assert_ptr_nonnull(cut);
            memcpy(cut, room + PROTO_HEADER_SIZE, size);
            ck_assert_int_eq(cqr_decode_request(dialect, opcode, flags,
                                                (cqlring_bytes){cut, (int32_t)size}, &request),
                             CQLRING_PROTOCOL);
            free(cut);
        }
    }
    free(body_copy);
    body_copy = NULL;
}
END_TEST

START_TEST(request_against_the_texts_is_refused)
{
    static const struct {
        uint8_t version, opcode, size;
        uint8_t body[24];
    } cases[] = {
        {4, OPCODE_RESULT, 4, {0, 0, 0, 1}},                             /* a server's opcode */
        {4, 0x42, 0, {0}},                                               /* no opcode */
        {4, OPCODE_QUERY, 7, {0xFF, 0xFF, 0xFF, 0xFF, 0, 1, 0}},         /* null text */
        {4, OPCODE_QUERY, 8, {0, 0, 0, 1, 'x', 0, 11, 0}},               /* no such consistency */
        {4, OPCODE_QUERY, 11, {0, 0, 0, 1, 'x', 0, 1, 0x80, 0, 1, 'k'}}, /* keyspace on v4 */
        {5, OPCODE_QUERY, 11, {0, 0, 0, 1, 'x', 0, 1, 0x40, 0, 0, 0}},   /* a flag of DSE */
        {3,
         OPCODE_QUERY,
         14,
         {0, 0, 0, 1, 'x', 0, 1, 1, 0, 1, 0xFF, 0xFF, 0xFF, 0xFE}}, /* unset on v3 */
        {4,
         OPCODE_QUERY,
         14,
         {0, 0, 0, 1, 'x', 0, 1, 1, 0, 1, 0xFF, 0xFF, 0xFF, 0xFD}}, /* below unset */
        {4, OPCODE_BATCH, 6, {3, 0, 0, 0, 1, 0}},                   /* no such batch */
        {4, OPCODE_BATCH, 6, {0, 0, 0, 0, 1, 1}},                   /* values of a batch */
        {4, OPCODE_BATCH, 6, {0, 0, 0, 0, 1, 0x40}},                /* names in a batch */
        {4, OPCODE_BATCH, 9, {0, 0, 1, 2, 0, 0, 0, 0, 0}},          /* no such child */
        {5, OPCODE_PREPARE, 9, {0, 0, 0, 1, 'x', 0, 0, 0, 2}},      /* no such flag */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const struct dialect dialect = {.version = cases[i].version};
        struct request request;
        ck_assert_int_eq(cqr_decode_request(&dialect, cases[i].opcode, 0,
                                            (cqlring_bytes){cases[i].body, cases[i].size},
                                            &request),
                         CQLRING_PROTOCOL);
    }
}
END_TEST

START_TEST(bytes_behind_a_request_are_ignored)
{
    const uint8_t body[] = {0, 0, 0, 1, 'x', 0, 1, 0, 0xEE, 0xEE};
    struct request request;
    ck_assert_int_eq(
        cqr_decode_request(&v4, OPCODE_QUERY, 0, (cqlring_bytes){body, sizeof body}, &request),
        CQLRING_OK);
    ck_assert_int_eq(
        cqr_decode_request(&v4, OPCODE_OPTIONS, 0, (cqlring_bytes){body, sizeof body}, &request),
        CQLRING_OK);
}
END_TEST

START_TEST(named_values_keep_their_names)
{
    const struct query_params params = {.consistency = 1, .has_values = true, .has_names = true};
    const cqlring_bytes names[] = {text("a"), text("Abc")},
                        cells[] = {text("1"), {NULL, CQLRING_UNSET}};
    struct writer writer = open_room();
    uint32_t start = cqr_query_begin(&writer, &v4, 0, text("x"), &params);
    cqr_put_named_values(&writer, names, cells, 2);
    cqr_query_end(&writer, &v4, &params, start);
    struct request request;
    ck_assert_int_eq(decode(&writer, &v4, &request), CQLRING_OK);
    ck_assert(request.params.has_names);
    for (int i = 0; i < 2; ++i) {
        cqlring_bytes name, value;
        ck_assert_int_eq(cqr_next_string(&request.values, &name), CQLRING_OK);
        ck_assert_int_eq(cqr_next_value(&request.values, &value), CQLRING_OK);
        check_bytes(name, names[i]);
        check_bytes(value, cells[i]);
    }
    ck_assert_int_eq(request.values.size, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("request");
    TCase *tcase = tcase_create("request");
    tcase_add_loop_test(tcase, execute_of_any_parameters_is_taken_apart_again, 0, 5);
    tcase_add_test(tcase, nv_05_values_of_every_size_keep_their_places);
    tcase_add_test(tcase, execute_row_from_a_head_is_the_same_request);
    tcase_add_test(tcase, values_read_no_byte_beyond_the_cell);
    tcase_add_test(tcase, more_than_65535_values_fail_the_writer);
    tcase_add_test(tcase, fr_09_writer_taken_back_to_the_start_goes_on);
    tcase_add_test(tcase, values_moved_between_versions_make_the_same_request);
    tcase_add_test(tcase, unknown_result_metadata_id_is_sent_empty);
    tcase_add_test(tcase, lw_08_serial_consistency_is_sent_exactly_as_given);
    tcase_add_test(tcase, pg_06_unpaged_query_has_no_page_size);
    tcase_add_test(tcase, bt_02_batch_child_without_values_carries_a_zero_count);
    tcase_add_test(tcase, batch_keeps_the_low_flag_bits_clear);
    tcase_add_test(tcase, ms_04_custom_payload_goes_before_the_message_from_v4_on);
    tcase_add_test(tcase, au_02_auth_token_has_a_length_of_four_bytes);
    tcase_add_test(tcase, beta_flag_is_set_on_every_request);
    tcase_add_test(tcase, string_too_long_for_its_length_fails_the_writer);
    tcase_add_loop_test(tcase, request_cut_anywhere_is_refused, 0, 2);
    tcase_add_test(tcase, request_against_the_texts_is_refused);
    tcase_add_test(tcase, bytes_behind_a_request_are_ignored);
    tcase_add_test(tcase, named_values_keep_their_names);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
