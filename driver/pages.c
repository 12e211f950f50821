/* SPDX-License-Identifier: Apache-2.0 */

/* The next page of a paged result: a result keeps its request. With prefetch it also keeps the future of the next page, which was asked
   for when the result came; who wants that page takes the future over, and then the page after it is asked for. So there is at most
   one page more than the application holds, under way or there, however long nobody asks; and it goes with the result.

   When the next one begins: whoever comes second, the page's completion on a submitter or the application that takes it. Both change the
   execution's `ahead`, so that exactly one of them sees the other. */

#include <stddef.h>

#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/prepared.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "serialize/mem.h"

struct page_source {
    struct request_body *body;       /* a reference */
    _Atomic(cqlring_future *) ahead; /* the next page's, HELD or DONE; NULL: not asked for, or taken */
};

static struct execution *execution_of(cqlring_future *future)
{
    return (struct execution *)(void *)((char *)future - offsetof(struct execution, future));
}

/* Nobody wants it. When it is still under way it ends by itself: a cancel would cost its stream until the answer comes anyway. */
static void drop(cqlring_future *future)
{
    if (future == NULL)
        return;
    atomic_fetch_add_explicit(&future->runtime->pages_dropped, 1, memory_order_relaxed);
    cqlring_future_release(future);
}

static void source_free(struct page_source *source)
{
    drop(atomic_load_explicit(&source->ahead, memory_order_acquire)); /* pairs with the release in fetch_ahead */
    cqr_body_release(source->body);
    cqr_mem_free(source);
}

/* A copy leads on like the original; the page that was fetched ahead is the original's. */
static struct page_source *source_retain(struct page_source *source)
{
    struct page_source *copy = cqr_mem_zalloc(sizeof *copy);
    if (copy != NULL)
        copy->body = cqr_body_retain(source->body);
    return copy;
}

/* When it cannot be, the application's own asking says why. */
static void fetch_ahead(cqlring_result *result)
{
    if (result == NULL || result->source == NULL)
        return;
    struct request_body *first = result->source->body;
    struct cqlring_session *session = first->session;
    if (!first->plan.prefetch || atomic_load_explicit(&session->state, memory_order_acquire) != HANDLE_OPEN)
        return;
    cqlring_future *future = NULL;
    struct request_body *body = cqr_body_page(first, &first->plan, result->paging_state);
    if (body == NULL || cqr_execution_launch(session, body, true, &future, NULL) != CQLRING_OK)
        return;
    atomic_fetch_add_explicit(&session->cluster->runtime->pages_ahead, 1, memory_order_relaxed);
    /* release: pairs with whoever takes or drops it */
    atomic_store_explicit(&result->source->ahead, future, memory_order_release);
}

void cqr_result_keep_request(cqlring_result *result, struct request_body *body)
{
    if (body->session == NULL || body->plan.opcode == OPCODE_PREPARE || result->source != NULL)
        return;
    struct page_source *source = cqr_mem_zalloc(sizeof *source);
    if (source == NULL)
        return; /* cqlring_next_page then says so */
    source->body = cqr_body_retain(body);
    result->source = source;
    result->source_free = source_free;
    result->source_retain = source_retain;
}

void cqr_result_paged(cqlring_result *result, struct execution *execution)
{
    cqr_result_keep_request(result, execution->body);
    unsigned held = PAGE_HELD;
    /* release: what was written to the result is seen by whoever takes it; acquire: not needed, this one has written it all */
    if (execution->body->plan.prefetch && !atomic_compare_exchange_strong_explicit(&execution->ahead, &held, PAGE_DONE, memory_order_release, memory_order_relaxed))
        fetch_ahead(result);
}

/* It is the application's now. */
static cqlring_future *take(cqlring_future *future)
{
    /* acquire: pairs with the release in cqr_result_paged */
    if (atomic_exchange_explicit(&execution_of(future)->ahead, PAGE_ASKED, memory_order_acquire) == PAGE_DONE)
        fetch_ahead(future->completion.result);
    return future;
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
    /* acquire: pairs with the release in fetch_ahead */
    cqlring_future *ahead = atomic_exchange_explicit(&result->source->ahead, NULL, memory_order_acq_rel);
    if (ahead != NULL && cqr_plan_is_same(&plan, &first->plan)) {
        *future = take(ahead);
        return CQLRING_OK;
    }
    drop(ahead); /* it was asked for otherwise */
    /* the same request with another paging state; its bytes are shared by holding the first one */
    struct request_body *body = cqr_body_page(first, &plan, result->paging_state);
    if (body == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_next_page: out of memory");
    return cqr_execution_launch(session, body, false, future, error);
}
