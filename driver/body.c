/* SPDX-License-Identifier: Apache-2.0 */

/* What a single request carries: checked, copied out of the application's memory and encoded, once, on the calling thread. */

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/prepared.h"
#include "driver/session.h"
#include "driver/words.h"
#include "serialize/mem.h"
#include "serialize/value.h"

cqlring_status cqr_cells_check(const struct statement_version *version, const cqlring_bytes *cells, uint32_t count, const char *what, cqlring_error *error)
{
    const struct columns *bind = &version->bind->columns;
    if (count != bind->count)
        return cqr_error(error, CQLRING_INVALID, "%s%s%u values given, the statement has %u bind markers", what, what[0] != '\0' ? ": " : "", count, bind->count);
    if (count > 0 && cells == NULL)
        return cqr_error(error, CQLRING_INVALID, "%s%sthe values are missing", what, what[0] != '\0' ? ": " : "");
    for (uint32_t i = 0; i < count; i++) {
        int32_t size = cells[i].size;
        if (__builtin_expect(size > 0 ? cells[i].data != NULL && cqr_cell_size_ok(bind->array[i].type, size) : size >= CQLRING_UNSET, 1))
            continue;
        if (size < CQLRING_UNSET || (size > 0 && cells[i].data == NULL))
            return cqr_error(error, CQLRING_INVALID, "%s%scolumn \"%.*s\": size %d is neither that of any data nor CQLRING_NULL or CQLRING_UNSET", what,
                             what[0] != '\0' ? ": " : "", bind->array[i].name.size, (const char *)bind->array[i].name.data, size);
        char type[64];
        cqlring_type_format(bind->array[i].type, type, sizeof type);
        return cqr_error(error, CQLRING_TYPE, "%s%scolumn \"%.*s\" (%s): the value has %d bytes, one of this type has %u", what, what[0] != '\0' ? ": " : "",
                         bind->array[i].name.size, (const char *)bind->array[i].name.data, type, size, cqr_type_fixed_size(bind->array[i].type));
    }
    return CQLRING_OK;
}

/* The same for a text, whose markers only the server knows. */
static cqlring_status text_values_check(const cqlring_bytes *values, uint32_t count, const char *what, cqlring_error *error)
{
    const char *colon = what[0] != '\0' ? ": " : "";
    if (count > 65535)
        return cqr_error(error, CQLRING_INVALID, "%s%s%u values for a text (65535 at most)", what, colon, count);
    if (count > 0 && values == NULL)
        return cqr_error(error, CQLRING_INVALID, "%s%sthe values are missing", what, colon);
    for (uint32_t i = 0; i < count; i++)
        if (values[i].size < CQLRING_UNSET || (values[i].size > 0 && values[i].data == NULL))
            return cqr_error(error, CQLRING_INVALID, "%s%svalue %u: size %d is neither that of any data nor CQLRING_NULL or CQLRING_UNSET", what, colon, i,
                             values[i].size);
    return CQLRING_OK;
}

static uint64_t values_size(const cqlring_bytes *values, uint32_t count)
{
    uint64_t size = 2;
    for (uint32_t i = 0; i < count; i++)
        size += 4u + (uint64_t)(values[i].size > 0 ? values[i].size : 0);
    return size;
}

enum { CELLS_FEW = 32 };

struct shape {
    struct statement_version *version; /* EXECUTE: what the cells were checked against */
    const cqlring_bytes *cells;        /* EXECUTE: the request's, or what was found encoded */
    cqlring_bytes *many;               /* own memory */
    uint8_t opcode;
    bool is_read;
    uint64_t values_size;
    uint32_t prepared_count;
    cqlring_bytes few[CELLS_FEW];      /* last: not cleared */
};

static cqlring_status batch_shape(const cqlring_batch *batch, const struct cqlring_cluster *cluster, struct shape *shape, cqlring_error *error)
{
    if (batch->count == 0 || batch->count > 65535 || batch->children == NULL)
        return cqr_error(error, CQLRING_INVALID, "a batch has 1 to 65535 statements, this one %u", batch->count);
    if (batch->kind > CQLRING_BATCH_COUNTER)
        return cqr_error(error, CQLRING_INVALID, "%d is no kind of batch", batch->kind);
    for (uint32_t i = 0; i < batch->count; i++) {
        const cqlring_batch_child *child = &batch->children[i];
        char what[48];
        snprintf(what, sizeof what, "batch statement %u", i);
        if ((child->prepared != NULL) == (child->cql.data != NULL && child->cql.size > 0))
            return cqr_error(error, CQLRING_INVALID, "%s: either prepared or cql must be given", what);
        const struct statement_version *version = child->prepared != NULL ? cqr_prepared_version(child->prepared) : NULL;
        if (child->prepared != NULL && child->prepared->cluster != cluster)
            return cqr_error(error, CQLRING_INVALID, "%s: it was prepared on another cluster", what);
        cqlring_status status = version != NULL ? cqr_cells_check(version, child->values, child->value_count, what, error)
                                                : text_values_check(child->values, child->value_count, what, error);
        if (status != CQLRING_OK)
            return status;
        shape->values_size += 1 + values_size(child->values, child->value_count);
        shape->values_size += version != NULL ? 2u + (uint64_t)version->id_size : 4u + (uint64_t)child->cql.size;
        shape->prepared_count += version != NULL;
    }
    return CQLRING_OK;
}

/* [short n] and n [value]s, nothing missing and nothing behind: what follows them in the frame is read by what their end says. */
static cqlring_status encoded_shape(const uint8_t *encoded, uint32_t size, struct shape *shape, cqlring_error *error)
{
    shape->values_size = size;
    if (size < 2)
        return cqr_error(error, CQLRING_INVALID, "the encoded values begin with their number, 2 bytes; there are %u", size);
    uint32_t count = cqr_load_u16(encoded);
    cqlring_bytes *cells = shape->few, rest = {encoded + 2, (int32_t)size - 2};
    if (count > CELLS_FEW && (cells = shape->many = cqr_mem_array(count, sizeof *cells)) == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "out of memory for %u encoded values", count);
    for (uint32_t i = 0; i < count; i++)
        if (cqr_next_value(&rest, &cells[i]) != CQLRING_OK)
            return cqr_error(error, CQLRING_INVALID, "the encoded values end within value %u of %u", i, count);
    if (rest.size != 0)
        return cqr_error(error, CQLRING_INVALID, "%d bytes follow the last of %u encoded values", rest.size, count);
    shape->cells = cells;
    return shape->version != NULL ? cqr_cells_check(shape->version, cells, count, "", error) : CQLRING_OK;
}

static cqlring_status request_shape(const cqlring_request *request, const uint8_t *encoded, uint32_t encoded_size, struct shape *shape, cqlring_error *error)
{
    bool has_cql = request->cql.data != NULL && request->cql.size > 0;
    if (request->cql.data != NULL && request->cql.size == 0)
        return cqr_error(error, CQLRING_INVALID, "cql is empty");
    if ((request->prepared != NULL) + has_cql + (request->batch != NULL) != 1)
        return cqr_error(error, CQLRING_INVALID, "a request has exactly one of prepared, cql and batch");
    if (request->batch != NULL && encoded != NULL)
        return cqr_error(error, CQLRING_INVALID, "a batch has no encoded values");
    if (request->batch != NULL) {
        shape->opcode = OPCODE_BATCH;
        return batch_shape(request->batch, request->session->cluster, shape, error);
    }
    if (request->prepared != NULL) {
        struct statement_version *version = cqr_prepared_version(request->prepared);
        shape->version = version;
        shape->opcode = OPCODE_EXECUTE;
        shape->is_read = version->is_read;
        shape->prepared_count = 1;
        if (encoded != NULL)
            return encoded_shape(encoded, encoded_size, shape, error);
        shape->cells = request->values;
        cqlring_status status = cqr_cells_check(version, request->values, request->value_count, "", error);
        if (status == CQLRING_OK)
            shape->values_size = values_size(request->values, request->value_count);
        return status;
    }
    shape->opcode = OPCODE_QUERY;
    shape->is_read = cqr_text_is_read(request->cql);
    if (encoded != NULL)
        return encoded_shape(encoded, encoded_size, shape, error);
    cqlring_status status = text_values_check(request->values, request->value_count, "", error);
    if (status == CQLRING_OK && request->value_count > 0)
        shape->values_size = values_size(request->values, request->value_count);
    return status;
}

static uint64_t payload_size(const struct query_params *params)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < params->payload_count; i++) {
        const struct string_pair *pair = &params->payload[i];
        size += sizeof *pair + (uint64_t)pair->key.size + (uint64_t)(pair->value.size > 0 ? pair->value.size : 0);
    }
    return size;
}

/* The payload moves to `room`: the pairs, then what they point at. Returns where that ends. */
static uint8_t *payload_copy(struct query_params *params, void *room)
{
    if (params->payload_count == 0) {
        params->payload = NULL;
        return room;
    }
    struct string_pair *pairs = room;
    uint8_t *at = (uint8_t *)(pairs + params->payload_count);
    for (uint32_t i = 0; i < params->payload_count; i++) {
        pairs[i] = params->payload[i];
        cqlring_bytes *const parts[2] = {&pairs[i].key, &pairs[i].value};
        for (int part = 0; part < 2; part++) {
            uint32_t size = parts[part]->size > 0 ? (uint32_t)parts[part]->size : 0;
            if (size > 0)
                memcpy(at, parts[part]->data, size);
            parts[part]->data = at;
            at += size;
        }
    }
    params->payload = pairs;
    return at;
}

static void token_of(struct request_body *body, const struct statement_version *version, const cqlring_bytes *values)
{
    uint8_t scratch[4096];
    cqlring_bytes key;
    if (!body->has_token && version->key_count > 0 &&
        cqr_routing_key(values, version->key_parts, version->key_count, scratch, sizeof scratch, &key)) {
        body->has_token = true;
        body->token = cqr_murmur3(key.data, (uint32_t)key.size);
    }
}

static void batch_encode(struct request_body *body, const cqlring_batch *batch, struct writer *out)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        const cqlring_batch_child *child = &batch->children[i];
        if (child->prepared != NULL) {
            struct statement_version *version = cqr_prepared_version(child->prepared);
            cqr_batch_prepared(out, (cqlring_bytes){version->id, version->id_size});
            token_of(body, version, child->values); /* the first known key routes it (BT-07) */
            if (body->has_token && body->version == NULL)
                body->version = version; /* for its keyspace's replicas only */
            body->is_lwt = body->is_lwt || version->is_lwt;
            body->versions[body->prepared_count] = version;
            body->prepared[body->prepared_count++] = cqr_prepared_retain(child->prepared);
        } else {
            cqr_batch_text(out, child->cql);
            body->is_lwt = body->is_lwt || cqr_text_is_conditional(child->cql);
        }
        cqr_put_values(out, child->values, child->value_count);
    }
    body->batch_count = (uint16_t)batch->count;
    if (body->has_token)
        body->common = cqr_batch_common(body, batch);
}

/* Of a shape that is good. encoded: the values, in memory that the body will have. */
static cqlring_status shaped_make(const cqlring_request *request, const struct shape *shape, const uint8_t *encoded, struct request_body **out, cqlring_error *error)
{
    struct op_plan plan;
    cqlring_status status = cqr_plan_make(&plan, request->session, request->execution, error);
    if (status != CQLRING_OK)
        return status;
    uint64_t text_size = shape->opcode == OPCODE_QUERY ? (uint64_t)request->cql.size : 0;
    uint64_t extra = payload_size(&plan.params) + (uint64_t)plan.params.keyspace.size;
    if (plan.params.paging_state.data != NULL)
        extra += (uint64_t)plan.params.paging_state.size;
    uint64_t total = text_size + shape->values_size + extra;
    uint32_t limit = request->session->cluster->request_size_max;
    if (total > limit)
        return cqr_error(error, CQLRING_TOO_LARGE, "a request of %llu bytes is larger than request_size_max, %u bytes: split it, or raise the limit here and on the server",
                         (unsigned long long)total, limit);
    struct request_body *body = cqr_mem_alloc(sizeof *body + shape->prepared_count * (sizeof *body->prepared + sizeof *body->versions) +
                                              (size_t)(encoded != NULL ? total - shape->values_size : total));
    if (body == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "out of memory for a request of %llu bytes", (unsigned long long)total);
    memset(body, 0, sizeof *body);
    atomic_init(&body->references, 1);
    body->plan = plan;
    body->tag = request->tag;
    body->size = (uint32_t)total;
    body->prepared = (struct cqlring_prepared **)(void *)(body + 1);
    body->versions = (struct statement_version **)(void *)(body->prepared + shape->prepared_count);
    uint8_t *at = payload_copy(&body->plan.params, body->versions + shape->prepared_count);
    if (plan.params.keyspace.size > 0) {
        memcpy(at, plan.params.keyspace.data, (size_t)plan.params.keyspace.size);
        body->plan.params.keyspace.data = at;
        at += plan.params.keyspace.size;
    }
    if (plan.params.paging_state.data != NULL) {
        if (plan.params.paging_state.size > 0)
            memcpy(at, plan.params.paging_state.data, (size_t)plan.params.paging_state.size);
        body->paging_state = (cqlring_bytes){at, plan.params.paging_state.size};
        body->plan.params.paging_state = (cqlring_bytes){NULL, 0};
        at += plan.params.paging_state.size;
    }
    if (text_size > 0) {
        memcpy(at, request->cql.data, text_size);
        body->text = (cqlring_bytes){at, request->cql.size};
        at += text_size;
    }
    struct writer writer;
    cqr_writer_init(&writer, at, (uint32_t)shape->values_size);
    if (encoded != NULL)
        writer.size = (uint32_t)shape->values_size; /* they stay where they are */
    else if (shape->opcode == OPCODE_BATCH)
        batch_encode(body, request->batch, &writer);
    else if (shape->values_size > 0)
        cqr_put_values(&writer, request->values, request->value_count);
    assert(!writer.failed && writer.size == shape->values_size);
    body->values = encoded != NULL ? encoded : at;
    body->values_size = writer.size;
    if (request->prepared != NULL) {
        body->version = shape->version;
        body->prepared[body->prepared_count++] = cqr_prepared_retain(request->prepared);
        token_of(body, body->version, shape->cells);
    }
    if (shape->opcode == OPCODE_BATCH)
        body->plan.batch_kind = (uint8_t)request->batch->kind;
    /* another node would do it once more, and each wait for the other: not for races, whatever was asked */
    if (body->is_lwt || (shape->opcode == OPCODE_QUERY && !shape->is_read && !cqr_text_is_plain_write(request->cql)))
        body->plan.copies_max = 0;
    cqr_plan_finish(&body->plan, shape->opcode, shape->is_read);
    body->session = cqr_session_retain(request->session);
    *out = body;
    return CQLRING_OK;
}

static cqlring_status body_make(const cqlring_request *request, const uint8_t *encoded, uint32_t size, struct request_body **body, cqlring_error *error)
{
    struct shape shape;
    memset(&shape, 0, offsetof(struct shape, few));
    cqlring_status status = request_shape(request, encoded, size, &shape, error);
    if (status == CQLRING_OK)
        status = shaped_make(request, &shape, encoded, body, error);
    cqr_mem_free(shape.many);
    return status;
}

cqlring_status cqr_body_make(const cqlring_request *request, struct request_body **body, cqlring_error *error)
{
    return body_make(request, NULL, 0, body, error);
}

cqlring_status cqr_body_make_encoded(const cqlring_request *request, void *room, const uint8_t *values, uint32_t size, struct request_body **body,
                                     cqlring_error *error)
{
    cqlring_status status = body_make(request, values, size, body, error);
    if (status == CQLRING_OK)
        (*body)->room = room;
    return status;
}

struct request_body *cqr_body_make_prepare(cqlring_bytes cql, const struct op_plan *plan)
{
    struct request_body *body = cqr_mem_zalloc(sizeof *body + (size_t)payload_size(&plan->params) + (size_t)cql.size);
    if (body == NULL)
        return NULL;
    atomic_init(&body->references, 1);
    body->plan.opcode = OPCODE_PREPARE;
    body->plan.session = plan->session;
    body->plan.timeout_us = plan->timeout_us;
    body->plan.attempt_timeout_us = -1;
    body->plan.is_read = body->plan.idempotent = body->plan.retry = true;
    body->plan.params.consistency = CQLRING_ONE;
    body->plan.params.payload = plan->params.payload;
    body->plan.params.payload_count = plan->params.payload_count;
    uint8_t *at = payload_copy(&body->plan.params, body + 1);
    memcpy(at, cql.data, (size_t)cql.size);
    body->text = (cqlring_bytes){at, cql.size};
    body->session = cqr_session_retain(plan->session);
    return body;
}

struct request_body *cqr_body_page(struct request_body *first, const struct op_plan *plan, cqlring_bytes paging_state)
{
    while (first->first != NULL)
        first = first->first;
    struct request_body *body = cqr_mem_alloc(sizeof *body + (size_t)paging_state.size);
    if (body == NULL)
        return NULL;
    memset(body, 0, sizeof *body); /* field by field: the first one's count is being changed by others */
    atomic_init(&body->references, 1);
    body->plan = *plan;
    body->version = first->version;
    body->text = first->text;
    body->values = first->values;
    body->values_size = first->values_size;
    body->batch_count = first->batch_count;
    body->common = first->common;
    body->has_token = first->has_token;
    body->token = first->token;
    body->tag = first->tag;
    body->size = first->size;
    body->first = cqr_body_retain(first);
    body->session = cqr_session_retain(first->session);
    /* its statements are held by the first */
    if (first->plan.opcode == OPCODE_EXECUTE)
        body->version = cqr_prepared_version(first->version->prepared);
    if (paging_state.size > 0)
        memcpy(body + 1, paging_state.data, (size_t)paging_state.size);
    body->paging_state = (cqlring_bytes){body + 1, paging_state.size};
    return body;
}

struct request_body *cqr_body_retain(struct request_body *body)
{
    atomic_fetch_add_explicit(&body->references, 1, memory_order_relaxed);
    return body;
}

void cqr_body_release(struct request_body *body)
{
    if (body == NULL || atomic_fetch_sub_explicit(&body->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < body->prepared_count; i++)
        cqlring_prepared_release(body->prepared[i]);
    cqr_session_release(body->session);
    cqr_body_release(body->first);
    cqr_mem_free(body->room);
    cqr_mem_free(body);
}
