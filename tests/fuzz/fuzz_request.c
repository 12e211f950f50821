/* SPDX-License-Identifier: Apache-2.0 */
/* A request's body: dialect, opcode and flags in the first three bytes. What is taken apart is
   walked to its end, and written again it is the same request. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cql/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk_values(cqlring_bytes values, uint16_t count, bool names, cqlring_bytes *all_names,
                        cqlring_bytes *cells)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (names)
            assert(cqr_next_string(&values, &all_names[i]) == CQLRING_OK);
        assert(cqr_next_value(&values, &cells[i]) == CQLRING_OK);
        assert(cells[i].size >= CQLRING_UNSET);
    }
    assert(values.size == 0);
}

static void walk_batch(struct writer *writer, const struct request *request, cqlring_bytes *cells)
{
    cqlring_bytes children = request->batch_children;
    for (uint32_t i = 0; i < request->batch_count; ++i) {
        struct batch_child child;
        assert(cqr_request_next_child(&children, &child) == CQLRING_OK);
        walk_values(child.values, child.value_count, false, NULL, cells);
        if (child.prepared)
            cqr_batch_prepared(writer, child.text_or_id);
        else
            cqr_batch_text(writer, child.text_or_id);
        cqr_put_values(writer, cells, child.value_count);
    }
    assert(children.size == 0);
}

/* Everything but the custom payload, which a decoded request keeps raw. */
static void write_again(struct writer *writer, const struct dialect *dialect,
                        const struct request *request)
{
    static cqlring_bytes names[UINT16_MAX], cells[UINT16_MAX];
    const struct query_params *params = &request->params;
    uint32_t start;
    switch (request->opcode) {
    case OPCODE_QUERY: start = cqr_query_begin(writer, dialect, 1, request->text, params); break;
    case OPCODE_EXECUTE:
        start = cqr_execute_begin(writer, dialect, 1, request->id, request->result_metadata_id,
                                  params);
        break;
    case OPCODE_BATCH:
        start = cqr_batch_begin(writer, dialect, 1, request->batch_kind, request->batch_count,
                                params);
        walk_batch(writer, request, cells);
        cqr_batch_end(writer, dialect, params, start);
        return;
    case OPCODE_PREPARE:
        cqr_encode_prepare(writer, dialect, 1, request->text, request->keyspace, params->tracing,
                           NULL, 0);
        return;
    case OPCODE_AUTH_RESPONSE: cqr_encode_auth_response(writer, dialect, 1, request->text); return;
    default: return;
    }
    walk_values(request->values, request->value_count, params->has_names, names, cells);
    if (params->has_names)
        cqr_put_named_values(writer, names, cells, request->value_count);
    else if (params->has_values)
        cqr_put_values(writer, cells, request->value_count);
    if (request->opcode == OPCODE_QUERY)
        cqr_query_end(writer, dialect, params, start);
    else
        cqr_execute_end(writer, dialect, params, start, request->tablet_block);
}

static bool is_same(cqlring_bytes a, cqlring_bytes b)
{
    return a.size == b.size && (a.size <= 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > 1 << 16)
        return 0;
    const struct dialect dialect = {.version = (uint8_t)(PROTO_V3 + data[0] % 3),
                                    .extensions = (uint8_t)((data[0] & 0x40 ? EXT_METADATA_ID : 0) |
                                                            (data[0] & 0x80 ? EXT_TABLETS_V2 : 0))};
    struct request request, again;
    cqlring_bytes body = {data + 3, (int32_t)size - 3};
    if (cqr_decode_request(&dialect, data[1], data[2], body, &request) != CQLRING_OK)
        return 0;
    for (uint32_t i = 0; i < request.map_count * (request.opcode == OPCODE_STARTUP ? 2u : 1u);
         ++i) {
        cqlring_bytes text;
        assert(cqr_next_string(&request.map, &text) == CQLRING_OK);
    }

    static uint8_t room[1 << 18];
    struct writer writer;
    cqr_writer_init(&writer, room, sizeof room);
    write_again(&writer, &dialect, &request);
    if (writer.size == 0)
        return 0;
    struct frame_header header;
    assert(!writer.failed);
    assert(cqr_frame_cut(room, writer.size, PROTO_BODY_MAX, &header) == FRAME_WHOLE);
    assert(header.opcode == request.opcode && header.body_size + PROTO_HEADER_SIZE == writer.size);
    body = (cqlring_bytes){room + PROTO_HEADER_SIZE, (int32_t)header.body_size};
    assert(cqr_decode_request(&dialect, header.opcode, header.flags, body, &again) == CQLRING_OK);
    assert(is_same(again.text, request.text) && is_same(again.id, request.id) &&
           is_same(again.values, request.values));
    assert(is_same(again.batch_children, request.batch_children) &&
           again.batch_count == request.batch_count);
    assert(again.value_count == request.value_count && again.tablet_block == request.tablet_block);
    assert(again.params.consistency == request.params.consistency &&
           again.params.timestamp_us == request.params.timestamp_us);
    return 0;
}
