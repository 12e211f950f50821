/* SPDX-License-Identifier: Apache-2.0 */

/* Single requests: made from what the application hands over, posted to a lane, started and finished there. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "serialize/value.h"

enum { TIMEOUT_US = 12000000, ATTEMPT_TIMEOUT_US = 3000000, PAGE_SIZE = 5000 };

/* ---- how ---- */

static cqlring_status option_check(const cqlring_execution *execution, const struct cqlring_cluster *cluster, cqlring_error *error)
{
    if (execution->struct_size < sizeof *execution)
        return cqr_error(error, CQLRING_INVALID, "execution options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_execution)",
                         execution->struct_size, sizeof *execution);
    if (execution->timeout_us < -1 || execution->attempt_timeout_us < -1)
        return cqr_error(error, CQLRING_INVALID, "execution options: a time-out is -1 (none), 0 (the default) or microseconds");
    if ((execution->consistency < 0 || execution->consistency > CQLRING_LOCAL_ONE) && execution->consistency != CQLRING_ANY)
        return cqr_error(error, CQLRING_INVALID, "execution options: %d is no consistency level", execution->consistency);
    if (execution->serial_consistency != CQLRING_CONSISTENCY_DEFAULT && execution->serial_consistency != CQLRING_SERIAL &&
        execution->serial_consistency != CQLRING_LOCAL_SERIAL && execution->serial_consistency != CQLRING_ANY)
        return cqr_error(error, CQLRING_INVALID, "execution options: serial_consistency is SERIAL, LOCAL_SERIAL or ANY (send none)");
    if (execution->page_size < -1)
        return cqr_error(error, CQLRING_INVALID, "execution options: page_size is -1 (unpaged), 0 (the default) or rows");
    if (execution->payload_count > 65535 || (execution->payload_count > 0 && execution->payload == NULL))
        return cqr_error(error, CQLRING_INVALID, "execution options: payload of %u entries (65535 at most)", execution->payload_count);
    for (uint32_t i = 0; i < execution->payload_count; i++) {
        const cqlring_payload_entry *entry = &execution->payload[i];
        if (entry->key.size < 0 || entry->key.size > 65535 || (entry->key.size > 0 && entry->key.data == NULL))
            return cqr_error(error, CQLRING_INVALID, "execution options: payload entry %u has a key of %d bytes (65535 at most)", i, entry->key.size);
        if (entry->value.size < CQLRING_NULL || (entry->value.size > 0 && entry->value.data == NULL))
            return cqr_error(error, CQLRING_INVALID, "execution options: payload entry %u: a value's size is that of its data or CQLRING_NULL, not %d", i,
                             entry->value.size);
    }
    unsigned version = atomic_load_explicit(&((struct cqlring_cluster *)(uintptr_t)cluster)->version, memory_order_relaxed);
    if (execution->now_in_seconds != 0 && version < PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "execution options: now_in_seconds needs protocol v5, this cluster speaks v%u", version);
    if (execution->keyspace.size > 0 && version < PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "execution options: a keyspace for one request needs protocol v5, this cluster speaks v%u", version);
    return CQLRING_OK;
}

static bool tristate(cqlring_tristate given, bool otherwise)
{
    return given == CQLRING_DEFAULT ? otherwise : given == CQLRING_YES;
}

/* What is not the default, but for the slices: keyspace, payload, paging state. */
static void plan_apply(struct op_plan *plan, const cqlring_execution *execution)
{
    struct query_params *params = &plan->params;
    if (execution->timeout_us != 0)
        plan->timeout_us = execution->timeout_us;
    if (execution->attempt_timeout_us != 0)
        plan->attempt_timeout_us = execution->attempt_timeout_us;
    if (execution->consistency != CQLRING_CONSISTENCY_DEFAULT)
        params->consistency = execution->consistency == CQLRING_ANY ? 0 : (uint16_t)execution->consistency;
    if (execution->serial_consistency != CQLRING_CONSISTENCY_DEFAULT)
        params->serial_consistency = execution->serial_consistency == CQLRING_ANY ? 0 : (uint16_t)execution->serial_consistency;
    if (execution->page_size != 0)
        params->page_size = execution->page_size;
    plan->idempotent = tristate(execution->idempotent, plan->idempotent);
    params->tracing = tristate(execution->tracing, params->tracing);
    if (execution->retry == CQLRING_RETRY_NONE)
        plan->retry = false;
    if (execution->timestamp_us != 0)
        plan->timestamp_us = execution->timestamp_us;
    if (execution->now_in_seconds != 0) {
        params->has_now = true;
        params->now_in_seconds = execution->now_in_seconds;
    }
    if (execution->target != NULL)
        plan->target = execution->target;
}

cqlring_status cqr_plan_make(struct op_plan *plan, struct cqlring_session *session, const cqlring_execution *execution, cqlring_error *error)
{
    *plan = session->defaults_plan;
    plan->session = session;
    if (execution == NULL)
        return CQLRING_OK;
    cqlring_status status = option_check(execution, session->cluster, error);
    if (status != CQLRING_OK)
        return status;
    plan_apply(plan, execution);
    struct query_params *params = &plan->params;
    if (execution->keyspace.size > 0)
        params->keyspace = execution->keyspace;
    if (execution->paging_state.data != NULL && execution->paging_state.size >= 0)
        params->paging_state = execution->paging_state;
    if (execution->payload_count > 0) {
        params->payload = (const struct string_pair *)(const void *)execution->payload;
        params->payload_count = (uint16_t)execution->payload_count;
    }
    return CQLRING_OK;
}

cqlring_status cqr_plan_change(struct op_plan *plan, const cqlring_execution *execution, cqlring_error *error)
{
    if (execution == NULL)
        return CQLRING_OK;
    cqlring_status status = option_check(execution, plan->session->cluster, error);
    if (status != CQLRING_OK)
        return status;
    if (execution->keyspace.size > 0 || execution->paging_state.data != NULL || execution->payload_count > 0)
        return cqr_error(error, CQLRING_INVALID, "execution options: keyspace, paging_state and payload of a further page are the first one's");
    plan_apply(plan, execution);
    if (plan->params.page_size < 0)
        plan->params.page_size = 0;
    return CQLRING_OK;
}
_Static_assert(sizeof(struct string_pair) == sizeof(cqlring_payload_entry), "the public entry is the protocol's pair");

void cqr_plan_defaults(struct op_plan *plan)
{
    *plan = (struct op_plan){.timeout_us = TIMEOUT_US, .retry = true};
    plan->params.consistency = CQLRING_LOCAL_ONE;
    plan->params.page_size = PAGE_SIZE;
    plan->params.skip_metadata = true;
}

void cqr_plan_finish(struct op_plan *plan, uint8_t opcode, bool is_read)
{
    plan->opcode = opcode;
    plan->is_read = is_read;
    if (plan->attempt_timeout_us == 0)
        plan->attempt_timeout_us = plan->idempotent && !is_read && plan->retry ? ATTEMPT_TIMEOUT_US : -1;
    if (plan->params.page_size < 0 || opcode == OPCODE_BATCH || (opcode == OPCODE_EXECUTE && !is_read))
        plan->params.page_size = 0;
    plan->params.skip_metadata = opcode == OPCODE_EXECUTE;
}

/* ---- what ---- */

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
        return cqr_error(error, CQLRING_TYPE, "%s%scolumn \"%.*s\": %d bytes do not make a value of its type (%u bytes)", what, what[0] != '\0' ? ": " : "",
                         bind->array[i].name.size, (const char *)bind->array[i].name.data, size, cqr_type_fixed_size(bind->array[i].type));
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

static bool is_select(cqlring_bytes cql)
{
    const char *at = cql.data, *end = at + cql.size;
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return end - at > 6 && (at[0] | 0x20) == 's' && (at[1] | 0x20) == 'e' && (at[2] | 0x20) == 'l' && (at[3] | 0x20) == 'e' && (at[4] | 0x20) == 'c' && (at[5] | 0x20) == 't';
}

struct shape {
    struct statement_version *version; /* EXECUTE: what the cells were checked against */
    uint8_t opcode;
    bool is_read;
    uint64_t values_size;
    uint32_t prepared_count;
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

static cqlring_status request_shape(const cqlring_request *request, const uint8_t *encoded, uint32_t encoded_size, struct shape *shape, cqlring_error *error)
{
    bool has_cql = request->cql.data != NULL && request->cql.size > 0;
    if ((request->prepared != NULL) + has_cql + (request->batch != NULL) != 1)
        return cqr_error(error, CQLRING_INVALID, "a request has exactly one of prepared, cql and batch");
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
        if (encoded != NULL) {
            shape->values_size = encoded_size;
            if (encoded_size < 2 || cqr_load_u16(encoded) != version->bind->columns.count)
                return cqr_error(error, CQLRING_INVALID, "the encoded values begin with the number of bind markers, %u", version->bind->columns.count);
            return CQLRING_OK;
        }
        cqlring_status status = cqr_cells_check(version, request->values, request->value_count, "", error);
        if (status == CQLRING_OK)
            shape->values_size = values_size(request->values, request->value_count);
        return status;
    }
    shape->opcode = OPCODE_QUERY;
    shape->is_read = is_select(request->cql);
    if (encoded != NULL) {
        shape->values_size = encoded_size;
        return CQLRING_OK;
    }
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
            body->versions[body->prepared_count] = version;
            body->prepared[body->prepared_count++] = cqr_prepared_retain(child->prepared);
        } else {
            cqr_batch_text(out, child->cql);
        }
        cqr_put_values(out, child->values, child->value_count);
    }
    body->batch_count = (uint16_t)batch->count;
}

/* The cells of encoded values, for the routing key only. */
static void token_of_encoded(struct request_body *body, const struct statement_version *version, const uint8_t *encoded, uint32_t size)
{
    cqlring_bytes cells[KEY_PARTS_MAX * 2], rest = {encoded + 2, (int32_t)size - 2};
    uint32_t count = version->bind->columns.count;
    if (version->key_count == 0 || count > sizeof cells / sizeof cells[0])
        return;
    for (uint32_t i = 0; i < count; i++)
        if (cqr_next_value(&rest, &cells[i]) != CQLRING_OK)
            return;
    token_of(body, version, cells);
}

static cqlring_status body_make(const cqlring_request *request, const uint8_t *encoded, uint32_t encoded_size, struct request_body **out, cqlring_error *error)
{
    struct shape shape = {0};
    cqlring_status status = request_shape(request, encoded, encoded_size, &shape, error);
    if (status != CQLRING_OK)
        return status;
    struct op_plan plan;
    status = cqr_plan_make(&plan, request->session, request->execution, error);
    if (status != CQLRING_OK)
        return status;
    uint64_t text_size = shape.opcode == OPCODE_QUERY ? (uint64_t)request->cql.size : 0;
    uint64_t extra = payload_size(&plan.params) + (uint64_t)plan.params.keyspace.size;
    if (plan.params.paging_state.data != NULL)
        extra += (uint64_t)plan.params.paging_state.size;
    uint64_t total = text_size + shape.values_size + extra;
    uint32_t limit = request->session->cluster->request_size_max;
    if (total > limit)
        return cqr_error(error, CQLRING_TOO_LARGE, "a request of %llu bytes is larger than request_size_max, %u bytes: split it, or raise the limit here and on the server",
                         (unsigned long long)total, limit);
    struct request_body *body = cqr_mem_alloc(sizeof *body + shape.prepared_count * (sizeof *body->prepared + sizeof *body->versions) + (size_t)total);
    if (body == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "out of memory for a request of %llu bytes", (unsigned long long)total);
    memset(body, 0, sizeof *body);
    atomic_init(&body->references, 1);
    body->plan = plan;
    body->tag = request->tag;
    body->size = (uint32_t)total;
    body->prepared = (struct cqlring_prepared **)(void *)(body + 1);
    body->versions = (struct statement_version **)(void *)(body->prepared + shape.prepared_count);
    uint8_t *at = payload_copy(&body->plan.params, body->versions + shape.prepared_count);
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
    cqr_writer_init(&writer, at, (uint32_t)shape.values_size);
    if (encoded != NULL)
        cqr_put_raw(&writer, encoded, encoded_size);
    else if (shape.opcode == OPCODE_BATCH)
        batch_encode(body, request->batch, &writer);
    else if (shape.values_size > 0)
        cqr_put_values(&writer, request->values, request->value_count);
    assert(!writer.failed && writer.size == shape.values_size);
    body->values = at;
    body->values_size = writer.size;
    if (shape.opcode == OPCODE_EXECUTE) {
        body->version = shape.version;
        body->prepared[body->prepared_count++] = cqr_prepared_retain(request->prepared);
        if (encoded != NULL)
            token_of_encoded(body, body->version, encoded, encoded_size);
        else
            token_of(body, body->version, request->values);
    }
    if (shape.opcode == OPCODE_BATCH)
        body->plan.batch_kind = (uint8_t)request->batch->kind;
    cqr_plan_finish(&body->plan, shape.opcode, shape.is_read);
    body->session = cqr_session_retain(request->session);
    *out = body;
    return CQLRING_OK;
}

cqlring_status cqr_body_make(const cqlring_request *request, struct request_body **body, cqlring_error *error)
{
    return body_make(request, NULL, 0, body, error);
}

cqlring_status cqr_body_make_encoded(const cqlring_request *request, const uint8_t *values, uint32_t size, struct request_body **body, cqlring_error *error)
{
    return body_make(request, values, size, body, error);
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
    cqlring_session_release(body->session);
    cqr_body_release(body->first);
    cqr_mem_free(body);
}

/* ---- the way ---- */

static void dispose(cqlring_future *future)
{
    struct execution *execution = (struct execution *)(void *)((char *)future - offsetof(struct execution, future));
    if (future->kind == FUTURE_EXECUTE) {
        cqlring_result_release(future->completion.result);
    } else if (future->kind == FUTURE_PREPARED) {
        cqlring_prepared_release(future->value);
        cqlring_prepared_release(execution->context);
    }
    cqr_failure_free(future->error);
    struct runtime_core *runtime = future->runtime;
    cqr_body_release(execution->body);
    cqr_mem_free(execution);
    cqr_runtime_release(runtime);
}

static void cancel_run(struct lane *lane, struct lane_message *message)
{
    struct execution *execution = (struct execution *)(void *)((char *)message - offsetof(struct execution, cancel_message));
    if (execution->future.kind == FUTURE_PREPARED)
        cqr_prepare_cancel(execution);
    else if (execution->op != NULL)
        cqr_op_abort(lane, execution->op, CQLRING_CANCELLED, "cancelled by the application");
    else
        execution->cancelled = true; /* if it still waits for an op, this turn refuses it */
    lane->exec_due_us = 0;
    cqlring_future_release(&execution->future);
}

static void cancel(cqlring_future *future)
{
    struct execution *execution = (struct execution *)(void *)((char *)future - offsetof(struct execution, future));
    if (execution->lane == NULL || atomic_exchange_explicit(&execution->cancel_posted, 1, memory_order_acq_rel) != 0)
        return;
    execution->cancel_message.run = cancel_run;
    cqlring_future_retain(future);
    if (!cqr_lane_post(execution->lane, &execution->cancel_message))
        cqlring_future_release(future);
}

struct execution *cqr_execution_make(struct runtime_core *runtime, struct request_body *body, enum future_kind kind)
{
    struct execution *execution = cqr_mem_zalloc(sizeof *execution);
    if (execution == NULL)
        return NULL;
    execution->body = body;
    cqr_future_init(&execution->future, kind, cqr_runtime_retain(runtime), dispose);
    execution->future.cancel = cancel;
    return execution;
}

void cqr_execution_abandon(struct execution *execution)
{
    cqlring_future_release(&execution->future);
    cqlring_future_release(&execution->future);
}

static void uncharge(struct execution *execution)
{
    if (!execution->charged)
        return;
    struct cqlring_session *session = execution->body->session;
    atomic_fetch_sub_explicit(&session->bytes, execution->body->size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&session->requests, 1, memory_order_relaxed);
    execution->charged = false;
}

/* The execution is through: whoever waits is told. op NULL: it never got one; status and failure then come from the caller. */
void cqr_execution_complete(struct lane *lane, struct execution *execution, struct op *op)
{
    cqlring_future *future = &execution->future;
    future->status = op->status;
    cqr_completion_fill(&future->completion, op);
    future->completion.tag = execution->body->tag;
    if (op->result != NULL && op->result->paging_state.data != NULL)
        cqr_result_keep_request(op->result, execution->body);
    op->result = NULL;
    future->error = op->failure != NULL ? &op->failure->error : NULL;
    op->failure = NULL;
    (void)lane;
    cqr_future_complete(future);
}

void cqr_completion_fill(cqlring_completion *completion, const struct op *op)
{
    *completion = (cqlring_completion){.row = op->row,
                                       .tag = op->tag,
                                       .received_us = op->received_us,
                                       .status = (uint16_t)op->status,
                                       .phase = op->phase,
                                       .attempts = op->attempts,
                                       .node = op->node,
                                       .result = op->result,
                                       .error = op->failure != NULL && op->status != CQLRING_OK ? &op->failure->error : NULL};
    int64_t sent = op->first_sent_us != 0 ? op->first_sent_us : op->received_us;
    completion->queued_us = (uint32_t)(sent - op->accepted_us);
    completion->in_flight_us = (uint32_t)(op->received_us - sent);
    if (op->status == CQLRING_OK) {
        if (op->result == NULL)
            completion->flags |= CQLRING_COMPLETION_VOID;
        else if (op->result->prefix.warning_count > 0)
            completion->flags |= CQLRING_COMPLETION_WARNINGS;
    } else if (op->maybe_applied) {
        completion->flags |= CQLRING_COMPLETION_MAYBE_APPLIED;
    }
    if (!op->may_continue)
        completion->flags |= CQLRING_COMPLETION_LAST;
}

static void settled(struct lane *lane, struct op *op)
{
    struct execution *execution = op->owner;
    struct cqlring_session *session = execution->body->session;
    execution->op = NULL;
    uncharge(execution);
    if (op->status == CQLRING_OK && op->failure != NULL) {
        cqr_failure_free(&op->failure->error);
        op->failure = NULL;
    }
    if (session != NULL)
        cqr_session_retain(session); /* the body, and its reference, may go with the future */
    if (execution->finished != NULL) {
        cqlring_future *future = &execution->future;
        execution->finished(lane, execution, op);
        cqr_op_give(lane, op);
        cqlring_future_release(future);
    } else {
        cqr_execution_complete(lane, execution, op);
        cqr_op_give(lane, op);
    }
    if (session != NULL) { /* last: a close that waits for this may now end, and after it no callback runs */
        cqr_session_op_end(lane, session);
        cqlring_session_release(session);
    }
}

static void refuse(struct lane *lane, struct execution *execution, cqlring_status status, const char *why)
{
    struct op op = {.status = status, .state = OP_SETTLED, .accepted_us = execution->accepted_us, .received_us = lane->now_us, .owner = execution,
                    .plan = &execution->body->plan, .settled = settled};
    op.failure = cqr_failure_make(status, "%s: %s", cqr_opcode_name(execution->body->plan.opcode), why);
    uncharge(execution);
    struct cqlring_session *session = execution->body->session;
    if (session != NULL)
        cqr_session_retain(session);
    if (execution->finished != NULL) {
        execution->finished(lane, execution, &op);
        if (op.failure != NULL)
            cqr_failure_free(&op.failure->error);
        cqlring_future_release(&execution->future);
    } else {
        cqr_execution_complete(lane, execution, &op);
    }
    if (session != NULL) {
        cqr_session_op_end(lane, session);
        cqlring_session_release(session);
    }
}

static int64_t deadline_of(const struct execution *execution)
{
    return cqr_deadline_us(execution->accepted_us, execution->body->plan.timeout_us);
}

static void waiting_add(struct lane *lane, struct execution *execution)
{
    execution->next_waiting = NULL;
    if (lane->exec_tail != NULL)
        lane->exec_tail->next_waiting = execution;
    else
        lane->exec_head = execution;
    lane->exec_tail = execution;
    int64_t deadline = deadline_of(execution);
    if (lane->exec_head == execution || deadline < lane->exec_due_us)
        lane->exec_due_us = deadline;
}

/* accepted: it has waited for an op, so a close with a drain lets it finish */
static void start(struct lane *lane, struct execution *execution, bool accepted)
{
    struct request_body *body = execution->body;
    struct cqlring_session *session = body->session;
    if (execution->cancelled) {
        refuse(lane, execution, CQLRING_CANCELLED, "cancelled by the application");
        return;
    }
    if (lane->stopping || (session != NULL && !(accepted ? cqr_session_finishes : cqr_session_takes)(lane, session))) {
        refuse(lane, execution, CQLRING_CLOSED, "the session is closed");
        return;
    }
    struct op *op = cqr_op_take(lane, false);
    if (op == NULL) { /* behind what is under way; it is bounded by the sessions' and queues' limits */
        waiting_add(lane, execution);
        return;
    }
    op->settled = settled;
    op->owner = execution;
    op->plan = &body->plan;
    op->body = body;
    op->version = body->plan.opcode == OPCODE_EXECUTE || body->plan.opcode == OPCODE_BATCH ? body->version : NULL;
    op->text = body->text;
    op->values = body->values;
    op->values_size = body->values_size;
    op->batch_count = body->batch_count;
    op->paging_state = body->paging_state;
    op->has_token = body->has_token;
    op->token = body->token;
    op->tag = body->tag;
    op->row = execution->row;
    op->accepted_us = execution->accepted_us;
    execution->op = op;
    cqr_op_start(lane, op);
    cqr_op_issue(lane, op);
}

void cqr_execution_start(struct lane *lane, struct execution *execution)
{
    start(lane, execution, false);
}

/* Of those that wait, who was cancelled, whose session was closed or whose time is over needs no op any more. */
static void waiting_sweep(struct lane *lane)
{
    struct execution *execution = lane->exec_head;
    lane->exec_head = lane->exec_tail = NULL;
    lane->exec_due_us = INT64_MAX;
    for (struct execution *next; execution != NULL; execution = next) {
        struct cqlring_session *session = execution->body->session;
        next = execution->next_waiting;
        if (execution->cancelled || lane->stopping || (session != NULL && !cqr_session_finishes(lane, session)))
            start(lane, execution, true); /* which refuses it */
        else if (deadline_of(execution) <= lane->now_us)
            refuse(lane, execution, CQLRING_TIMEOUT, "not begun in time: everything that may be under way at once was (inflight_max of the runtime)");
        else
            waiting_add(lane, execution);
    }
}

void cqr_executions_waiting_run(struct lane *lane)
{
    if (lane->exec_head != NULL && (lane->exec_due_us <= lane->now_us || lane->stopping))
        waiting_sweep(lane);
    while (lane->exec_head != NULL && cqr_op_is_there(lane)) {
        struct execution *execution = lane->exec_head;
        lane->exec_head = execution->next_waiting;
        if (lane->exec_head == NULL)
            lane->exec_tail = NULL;
        start(lane, execution, true);
    }
}

static void post_run(struct lane *lane, struct lane_message *message)
{
    struct execution *execution = (struct execution *)(void *)message;
    if (execution->body->session != NULL)
        cqr_session_op_begin(lane, execution->body->session);
    cqr_execution_start(lane, execution);
}

cqlring_status cqr_execution_post(struct execution *execution, struct lane *lane, cqlring_error *error)
{
    execution->lane = lane;
    execution->message.run = post_run;
    execution->accepted_us = lane->net->call->now_us(lane->net);
    if (cqr_lane_post(lane, &execution->message))
        return CQLRING_OK;
    uncharge(execution);
    cqr_execution_abandon(execution);
    return cqr_error(error, CQLRING_CLOSED, "the runtime has ended");
}
