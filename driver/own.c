/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's own requests: heartbeats, system queries, re-prepares. One connection each, no retry; the caller is told how it
   ended and decides. Submitter. */

#include <string.h>

#include "driver/lane.h"
#include "driver/session.h"

struct own_request {
    struct op_plan plan;
    own_done done;
    void *context;
    char text[];
};

static void settled(struct lane *lane, struct op *op)
{
    struct own_request *own = op->owner;
    own->done(lane, op, own->context);
    cqr_op_give(lane, op);
    cqr_mem_free(own);
}

bool cqr_op_is_own(const struct op *op)
{
    return op->settled == settled;
}

/* page: its size and state; NULL: not paged */
struct page_ask {
    int32_t size;
    cqlring_bytes state;
};

static bool ask(struct lane *lane, struct conn *conn, uint8_t opcode, cqlring_bytes text, cqlring_bytes keyspace, const struct page_ask *page,
                int64_t timeout_us, own_done done, void *context)
{
    if (!cqr_writer_has_room(conn))
        return false;
    size_t text_size = text.size > 0 ? (size_t)text.size : 0, keyspace_size = keyspace.size > 0 ? (size_t)keyspace.size : 0;
    struct own_request *own = cqr_mem_zalloc(sizeof *own + text_size + keyspace_size + 1);
    struct op *op = own == NULL ? NULL : cqr_op_take(lane, true);
    if (op == NULL) {
        cqr_mem_free(own);
        return false;
    }
    own->done = done;
    own->context = context;
    own->plan.opcode = opcode;
    own->plan.timeout_us = timeout_us;
    own->plan.attempt_timeout_us = -1;
    own->plan.is_read = true;
    own->plan.params.consistency = CQLRING_ONE;
    if (text_size > 0)
        memcpy(own->text, text.data, text_size);
    if (keyspace_size > 0) {
        memcpy(own->text + text_size, keyspace.data, keyspace_size);
        own->plan.params.keyspace = (cqlring_bytes){own->text + text_size, (int32_t)keyspace_size};
    }
    if (page != NULL) {
        own->plan.params.page_size = page->size;
        op->paging_state = page->state;
    }
    op->plan = &own->plan;
    op->owner = own;
    op->settled = settled;
    op->text = (cqlring_bytes){own->text, (int32_t)text_size};
    cqr_op_start(lane, op);
    if (cqr_writer_put(conn, op, NULL, 0, lane->now_us) != WRITE_OK) {
        cqr_op_give(lane, op);
        cqr_mem_free(own);
        return false;
    }
    if (op->deadline_us != INT64_MAX)
        cqr_wheel_arm(&lane->wheel, &op->timer, op->deadline_us);
    return true;
}

bool cqr_own_request(struct lane *lane, struct conn *conn, uint8_t opcode, cqlring_bytes text, cqlring_bytes keyspace, int64_t timeout_us,
                     own_done done, void *context)
{
    return ask(lane, conn, opcode, text, keyspace, NULL, timeout_us, done, context);
}

bool cqr_own_page(struct lane *lane, struct conn *conn, cqlring_bytes text, int32_t page_size, cqlring_bytes paging_state, int64_t timeout_us,
                  own_done done, void *context)
{
    struct page_ask page = {.size = page_size, .state = paging_state};
    return ask(lane, conn, OPCODE_QUERY, text, (cqlring_bytes){NULL, 0}, &page, timeout_us, done, context);
}
