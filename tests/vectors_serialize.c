/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/buf.h"
#include "serialize/compress.h"
#include "serialize/type.h"
#include "serialize/value.h"
#include "tests/vectors.h"
#include "tests/vectors_json.h"

/* Types, values, vints and compressed bodies. Values go through JSON by vectors_json.c, which uses
   nothing but the exported primitives, as a binding would. */

static cqlring_bytes copy_exactly(cqlring_bytes bytes)
{
    /* On the heap, to the byte, so that a sanitizer sees the first step beyond it. */
    uint8_t *copy = malloc(bytes.size > 0 ? (size_t)bytes.size : 1);
    if (copy == NULL)
        abort();
    if (bytes.size > 0)
        memcpy(copy, bytes.data, (size_t)bytes.size);
    return (cqlring_bytes){.data = copy, .size = bytes.size};
}

static const cqlring_type *type_of(struct vector_row *row, const char *column)
{
    const cqlring_type *type = NULL;
    const char *text = vector_text(row, column);
    cqlring_status status = strcmp(column, "class_name") == 0
                                ? cqr_type_from_class(&row->arena, cqlring_text(text), &type)
                                : vector_type_from_text(row, text, &type);
    return vector_check_status(row, column, status, CQLRING_OK) ? type : NULL;
}

/* Written as CQL and as a class, and read back, it is the same type. */
static void check_type_texts(struct vector_row *row, const cqlring_type *type, bool has_cql)
{
    size_t size = cqr_type_format_class(type, NULL, 0);
    char *text = vector_room(row, size + 1);
    cqr_type_format_class(type, text, size + 1);
    const cqlring_type *again = NULL;
    cqr_type_from_class(&row->arena, cqlring_text(text), &again);
    vector_check(row, again != NULL && cqr_type_equal(type, again), "class, formatted and parsed");
    if (!has_cql)
        return;
    size = cqlring_type_format(type, NULL, 0);
    text = vector_room(row, size + 1);
    cqlring_type_format(type, text, size + 1);
    again = NULL;
    vector_type_from_text(row, text, &again);
    vector_check(row, again != NULL && cqr_type_equal(type, again), "CQL, formatted and parsed");
}

static void run_types(struct vector_row *row)
{
    const cqlring_type *type = type_of(row, "cql_type");
    const cqlring_type *class_type = type_of(row, "class_name");
    json_t *value = vector_json(row, "value_json");
    cqlring_bytes encoded = vector_hex(row, "encoded_hex");
    if (type == NULL || class_type == NULL || value == NULL)
        return;
    vector_check(row, cqr_type_equal(type, class_type),
                 "cql_type and class_name are the same type");
    check_type_texts(row, type, strstr(vector_text(row, "cql_type"), "udt:") == NULL);

    uint32_t capacity = (uint32_t)encoded.size + 64;
    cqlring_bytes cell;
    if (vector_check_status(row, "encode", vector_encode(row, type, value, capacity, &cell, NULL),
                            CQLRING_OK))
        vector_check_bytes(row, "encoded", cell, encoded);
    uint64_t needed = 0;
    if (encoded.size > 0 &&
        vector_check_status(row, "encode without room",
                            vector_encode(row, type, value, 0, &cell, &needed), CQLRING_FULL))
        vector_check_int(row, "room needed", (int64_t)needed, encoded.size);

    cqlring_bytes exact = copy_exactly(encoded);
    vector_check_status(row, "value_check", cqlring_value_check(type, exact), CQLRING_OK);
    json_t *decoded = vector_decode(row, type, exact);
    vector_check_json(row, "decoded", decoded, value);
    json_decref(decoded);
    free((void *)(uintptr_t)exact.data);
    /* Cut anywhere, nothing beyond the cut is looked at. Whether it is an error depends on the
       type. */
    for (int32_t cut = 0; cut < encoded.size && cut < 300; cut++) {
        exact = copy_exactly((cqlring_bytes){.data = encoded.data, .size = cut});
        cqlring_value_check(type, exact);
        free((void *)(uintptr_t)exact.data);
    }
}

static void run_types_edge(struct vector_row *row)
{
    const cqlring_type *type = type_of(row, "cql_type");
    json_t *expect = vector_json(row, "expect_json");
    if (type == NULL || expect == NULL)
        return;
    cqlring_bytes cell = copy_exactly(vector_hex(row, "encoded_hex"));
    cqlring_status status = cqlring_value_check(type, cell);
    if (json_object_get(expect, "error") != NULL) {
        vector_check_status(row, "value_check", status, CQLRING_TYPE);
    } else {
        vector_check_status(row, "value_check", status, CQLRING_OK);
        json_t *decoded = vector_decode(row, type, cell);
        json_t *value = json_object_get(expect, "value");
        vector_check_json(row, "decoded", decoded, value != NULL ? value : expect);
        json_decref(decoded);
    }
    free((void *)(uintptr_t)cell.data);
}

static void run_class_names(struct vector_row *row)
{
    const cqlring_type *type = type_of(row, "class_name");
    json_t *wanted = vector_json(row, "type_json");
    if (type == NULL || wanted == NULL)
        return;
    json_t *got = vector_type_json(type);
    vector_check_json(row, "type", got, wanted);
    json_decref(got);
    check_type_texts(row, type, false);
    cqlring_type *parsed = NULL;
    cqlring_error error;
    if (vector_check_status(
            row, "cqlring_type_parse",
            cqlring_type_parse(cqlring_text(vector_text(row, "class_name")), &parsed, &error),
            CQLRING_OK))
        vector_check(row, cqr_type_equal(parsed, type), "cqlring_type_parse gives the same type");
    cqlring_type_release(parsed);
}

static void run_vints(struct vector_row *row)
{
    const char *text = vector_text(row, "value");
    cqlring_bytes hex = vector_hex(row, "hex");
    bool is_signed = strcmp(vector_text(row, "kind"), "signed") == 0;
    uint64_t wanted = is_signed ? cqr_zigzag(strtoll(text, NULL, 10)) : strtoull(text, NULL, 10);
    uint8_t room[9];
    uint32_t size = cqlring_vint_encode(wanted, room);
    vector_check_bytes(row, "encoded", (cqlring_bytes){.data = room, .size = (int32_t)size}, hex);
    vector_check_int(row, "size", cqr_vint_size(wanted), hex.size);
    cqlring_bytes exact = copy_exactly(hex);
    uint64_t got = 0;
    vector_check_int(row, "taken", cqlring_vint_decode(exact.data, (size_t)exact.size, &got),
                     hex.size);
    char got_text[32];
    if (is_signed)
        snprintf(got_text, sizeof got_text, "%" PRId64, cqr_unzigzag(got));
    else
        snprintf(got_text, sizeof got_text, "%" PRIu64, got);
    vector_check_text(row, "decoded", got_text, text);
    vector_check_int(row, "cut short",
                     cqlring_vint_decode(exact.data, (size_t)exact.size - 1, &got), 0);
    free((void *)(uintptr_t)exact.data);
}

static void run_body_compression(struct vector_row *row)
{
    enum { SIZE_MAX_HERE = 1 << 20 };
    enum compression how = strcmp(vector_text(row, "algorithm"), "lz4") == 0 ? COMPRESSION_LZ4 : COMPRESSION_SNAPPY;
    cqlring_bytes body = vector_hex(row, "body_hex");
    cqlring_bytes compressed = copy_exactly(vector_hex(row, "compressed_hex"));
    uint32_t size = 0;
    vector_check_status(
        row, "body_size",
        cqr_body_size(how, compressed.data, (uint32_t)compressed.size, SIZE_MAX_HERE, &size),
        CQLRING_OK);
    vector_check_int(row, "size", size, body.size);
    uint8_t *got = vector_room(row, (size_t)body.size);
    vector_check_status(row, "decompress",
                        cqr_body_decompress(how, compressed.data, (uint32_t)compressed.size, got,
                                                (uint32_t)body.size),
                        CQLRING_OK);
    vector_check_bytes(row, "decompressed", (cqlring_bytes){.data = got, .size = body.size}, body);
    vector_check_status(row, "cut short",
                        cqr_body_decompress(how, compressed.data, (uint32_t)compressed.size - 1, got,
                                                (uint32_t)body.size),
                        CQLRING_PROTOCOL);
    free((void *)(uintptr_t)compressed.data);

    /* What we compress is not unique, but must come back. */
    struct compress_state *state = cqr_compress_state_create();
    if (!vector_check(row, state != NULL, "compressor"))
        return;
    uint32_t capacity = cqr_compress_bound((uint32_t)body.size) + 4;
    uint8_t *ours = vector_room(row, capacity);
    uint32_t ours_size = cqr_body_compress(how, state, body.data, (uint32_t)body.size, ours,
                                               capacity);
    memset(got, 0, (size_t)body.size);
    vector_check_status(row, "our own",
                        cqr_body_decompress(how, ours, ours_size, got, (uint32_t)body.size),
                        CQLRING_OK);
    vector_check_bytes(row, "our own", (cqlring_bytes){.data = got, .size = body.size}, body);
    cqr_compress_state_destroy(state);
}

const struct vector_file vectors_serialize[] = {
    {"types", "id cql_type class_name value_json encoded_hex", run_types},
    {"types_edge", "id cql_type encoded_hex expect_json note", run_types_edge},
    {"class_names", "id class_name decoder type_json", run_class_names},
    {"vints", "id kind value hex", run_vints},
    {"body_compression", "id algorithm body_hex compressed_hex", run_body_compression},
    {0},
};
