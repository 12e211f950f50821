/* SPDX-License-Identifier: Apache-2.0 */

/* One request → a future. Its further pages are in pages.c. */

#include <string.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/room.h"
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
    atomic_fetch_sub_explicit(&session->bytes, size, memory_order_seq_cst);
    atomic_fetch_sub_explicit(&session->requests, 1, memory_order_seq_cst);
    execution->charged = false;
    cqr_room_came_free(session); /* who looked meanwhile saw it taken */
    return cqr_error(error, CQLRING_FULL, "the session has %u requests (requests_max %u) of %llu bytes (bytes_max %llu) under way: wait for some of them", requests,
                     session->requests_max, (unsigned long long)bytes, (unsigned long long)session->bytes_max);
}

cqlring_status cqr_execution_launch(struct cqlring_session *session, struct request_body *body, bool ahead, cqlring_future **future, cqlring_error *error)
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
    if (ahead)
        atomic_init(&execution->ahead, PAGE_HELD);
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
    return status != CQLRING_OK ? status : cqr_execution_launch(session, body, false, future, error);
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
