/* SPDX-License-Identifier: Apache-2.0 */

/* One request → a future, and the next page of a paged result. */

#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"

static struct lane *lane_for(struct cqlring_session *session)
{
    struct runtime_core *runtime = session->cluster->runtime;
    if (runtime->lane_count == 1)
        return &runtime->lanes[0];
    return &runtime->lanes[atomic_fetch_add_explicit(&session->next_lane, 1, memory_order_relaxed) % runtime->lane_count];
}

/* Room for one more single execution of this session (decision 21). */
static cqlring_status charge(struct cqlring_session *session, struct execution *execution, cqlring_error *error)
{
    uint32_t size = execution->body->size;
    uint64_t bytes = atomic_fetch_add_explicit(&session->bytes, size, memory_order_relaxed);
    unsigned requests = atomic_fetch_add_explicit(&session->requests, 1, memory_order_relaxed);
    execution->charged = true;
    if (requests < session->requests_max && (bytes + size <= session->bytes_max || requests == 0))
        return CQLRING_OK;
    atomic_fetch_sub_explicit(&session->bytes, size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&session->requests, 1, memory_order_relaxed);
    execution->charged = false;
    return cqr_error(error, CQLRING_FULL, "the session has %u requests (requests_max %u) of %llu bytes (bytes_max %llu) under way: wait for some of them", requests,
                     session->requests_max, (unsigned long long)bytes, (unsigned long long)session->bytes_max);
}

static cqlring_status launch(struct cqlring_session *session, struct request_body *body, cqlring_future **future, cqlring_error *error)
{
    struct execution *execution = cqr_execution_make(session->cluster->runtime, body, FUTURE_EXECUTE);
    if (execution == NULL) {
        cqr_body_release(body);
        return cqr_error(error, CQLRING_NO_MEMORY, "out of memory for a request");
    }
    cqlring_status status = charge(session, execution, error);
    if (status != CQLRING_OK) {
        cqr_execution_abandon(execution);
        return status;
    }
    *future = &execution->future;
    status = cqr_execution_post(execution, lane_for(session), error);
    if (status != CQLRING_OK)
        *future = NULL;
    return status;
}

/* The one of the two public functions that `call` names. */
static cqlring_status execute(const cqlring_request *request, cqlring_future **future, const char *call, cqlring_error *error)
{
    struct cqlring_session *session = request->session;
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "%s: the session belongs to the parent process; open one in the child", call);
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "%s: the session is closed", call);
    if (request->prepared != NULL && request->prepared->cluster != session->cluster)
        return cqr_error(error, CQLRING_INVALID, "%s: the statement was prepared on another cluster", call);
    struct request_body *body = NULL;
    cqlring_status status = cqr_body_make(request, &body, error);
    return status != CQLRING_OK ? status : launch(session, body, future, error);
}

cqlring_status cqlring_execute(const cqlring_request *request, cqlring_future **future, cqlring_error *error)
{
    if (request == NULL || request->session == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_execute: request, its session and future must be given");
    return execute(request, future, "cqlring_execute", error);
}

cqlring_status cqlring_execute_sync(const cqlring_request *request, cqlring_result **result, cqlring_error *error)
{
    if (request == NULL || request->session == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_execute_sync: request and its session must be given");
    if (cqr_on_library_thread())
        return cqr_error(error, CQLRING_INVALID, "cqlring_execute_sync: a callback must not wait; use cqlring_execute");
    cqlring_future *future = NULL;
    cqlring_status status = execute(request, &future, "cqlring_execute_sync", error);
    if (status != CQLRING_OK)
        return status;
    status = cqlring_future_wait(future, -1, error);
    if (status == CQLRING_OK && result != NULL) {
        *result = cqlring_future_completion(future)->result;
        if (*result != NULL)
            cqlring_result_retain(*result);
    }
    cqlring_future_release(future);
    return status;
}

/* ---- pages ---- */

struct page_source {
    struct request_body *body; /* a reference */
};

static void source_free(struct page_source *source)
{
    cqr_body_release(source->body);
    cqr_mem_free(source);
}

static struct page_source *source_retain(struct page_source *source)
{
    struct page_source *copy = cqr_mem_alloc(sizeof *copy);
    if (copy != NULL)
        copy->body = cqr_body_retain(source->body);
    return copy;
}

void cqr_result_keep_request(cqlring_result *result, struct request_body *body)
{
    if (body->session == NULL || body->plan.opcode == OPCODE_PREPARE || result->source != NULL)
        return;
    struct page_source *source = cqr_mem_alloc(sizeof *source);
    if (source == NULL)
        return; /* cqlring_next_page then says so */
    source->body = cqr_body_retain(body);
    result->source = source;
    result->source_free = source_free;
    result->source_retain = source_retain;
}

cqlring_status cqlring_next_page(cqlring_result *result, const cqlring_execution *how, cqlring_future **future, cqlring_error *error)
{
    if (result == NULL || future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_next_page: result and future must be given");
    if (result->paging_state.data == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_next_page: this was the last page");
    if (result->source == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_next_page: the result does not know its request (from a job, detached, or out of memory)");
    struct request_body *first = result->source->body;
    struct cqlring_session *session = first->session;
    if (session->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_next_page: the session belongs to the parent process; open one in the child");
    if (atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return cqr_error(error, CQLRING_CLOSED, "cqlring_next_page: the session is closed");
    struct op_plan plan = first->plan;
    cqlring_status status = cqr_plan_change(&plan, how, error);
    if (status != CQLRING_OK)
        return status;
    /* the same request with another paging state; its bytes are shared by holding the first one */
    struct request_body *body = cqr_body_page(first, &plan, result->paging_state);
    if (body == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_next_page: out of memory");
    return launch(session, body, future, error);
}
