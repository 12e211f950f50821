/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_EXECUTION_H
#define CQR_EXECUTION_H

/* A single request on its way: what cqlring_execute, the queue, prepare and the driver's own queries have in common. The
   request's bytes (text, values, paging state) live in a counted, immutable `body`, so that a paged result can ask again;
   the execution around it carries the future and the one op.

   Made on the application's thread, handed to a lane's submitter as a message, finished there. */

#include "driver/future.h"
#include "driver/lane.h"
#include "driver/op.h"

struct cqlring_session;
struct cqlring_prepared;

struct request_body {
    atomic_uint references;
    struct op_plan plan;
    struct cqlring_session *session;        /* a reference; NULL: the driver's own */
    struct cqlring_prepared **prepared;     /* references: one, or a batch's distinct ones */
    struct statement_version **versions;    /* BATCH: what each of them was encoded with */
    uint32_t prepared_count;
    struct statement_version *version;      /* EXECUTE */
    cqlring_bytes text;
    const uint8_t *values;
    uint32_t values_size;
    uint16_t batch_count;
    uint16_t common;                        /* BATCH: index + 1 of the node that most of its partitions have in common; 0: not worked out */
    cqlring_bytes paging_state;
    struct request_body *first;             /* a further page's: whose bytes it uses, a reference */
    void *room;                             /* a queue's reservation, which values are in; NULL: they follow the body */
    bool has_token;
    bool is_one_partition;            /* a batch of rows of one partition: what a reply says of its tablet is said of all */
    bool is_lwt;                      /* a batch with a condition in it, wherever it stands (LW-06) */
    int64_t token;
    uint64_t tag;
    uint32_t size;                          /* of the whole, as charged */
};

/* A page that was asked for before the application did (pages.c). */
enum page_ahead {
    PAGE_ASKED, /* it was not, or the application has asked meanwhile */
    PAGE_HELD,  /* nobody has asked for it, and it is under way */
    PAGE_DONE   /* nobody has asked for it, and it is there */
};

struct execution {
    struct lane_message message;            /* first: submit */
    struct lane_message cancel_message;
    atomic_uint cancel_posted;
    cqlring_future future;
    struct lane *lane;
    struct request_body *body;
    struct op *op;                          /* submitter; NULL before and after */
    atomic_uint ahead;                      /* enum page_ahead */
    bool charged;                           /* counts in the session's limits */
    bool cancelled;                         /* submitter: before it had an op */
    uint64_t row;                           /* a queue's: its number */
    int64_t accepted_us;
    /* Who wants the outcome, on the submitter: takes result and failure out of op as it likes; then the op is given back and
       the execution's completer reference is dropped. NULL: the future is completed with a completion. */
    void (*finished)(struct lane *lane, struct execution *execution, struct op *op);
    void *context;
    struct pool_link *direct;               /* the driver's own: this connection only */
    struct execution *next_waiting;         /* no op is free: waits in the lane's list */
};

/* From a public request; INVALID, TYPE, TOO_LARGE with a sentence that says what and where. */
cqlring_status cqr_body_make(const cqlring_request *request, struct request_body **body, cqlring_error *error);
/* The same with values that the application has encoded ([short n] and n [value]s), in room, which the body has from now on. They are checked as others are. */
cqlring_status cqr_body_make_encoded(const cqlring_request *request, void *room, const uint8_t *values, uint32_t size, struct request_body **body,
                                     cqlring_error *error);
/* A PREPARE of plan's session, with its payload and time-out. NULL: out of memory. */
struct request_body *cqr_body_make_prepare(cqlring_bytes cql, const struct op_plan *plan);
/* The same request from another page on; holds `first` for its bytes. NULL: out of memory. */
struct request_body *cqr_body_page(struct request_body *first, const struct op_plan *plan, cqlring_bytes paging_state);
struct request_body *cqr_body_retain(struct request_body *body);
void cqr_body_release(struct request_body *body);
/* route_of.c: index + 1 of the node that is a replica of most of the batch's partitions; 0 when the first one's replicas are as good
   as each other, or nothing is known. */
uint16_t cqr_batch_common(const struct request_body *body, const cqlring_batch *batch);

/* How a request runs, from the session's defaults and what was given. */
cqlring_status cqr_plan_make(struct op_plan *plan, struct cqlring_session *session, const cqlring_execution *execution, cqlring_error *error);
/* A finished plan for a further page, with what `execution` (NULL: nothing) says differently. */
cqlring_status cqr_plan_change(struct op_plan *plan, const cqlring_execution *execution, cqlring_error *error);
bool cqr_plan_is_same(const struct op_plan *a, const struct op_plan *b); /* in all that cqr_plan_change changes */
/* The rest, once it is known what is asked: time-outs and pages differ between reads and writes. */
void cqr_plan_finish(struct op_plan *plan, uint8_t opcode, bool is_read);
/* Do these cells fit the markers? INVALID or TYPE with the column's name; what: "row 17" or "". */
cqlring_status cqr_cells_check(const struct statement_version *version, const cqlring_bytes *cells, uint32_t count, const char *what, cqlring_error *error);

/* Takes over the caller's reference of body. */
void cqr_plan_defaults(struct op_plan *plan);
void cqr_completion_fill(cqlring_completion *completion, const struct op *op);
void cqr_execution_complete(struct lane *lane, struct execution *execution, struct op *op);
/* pages.c, submitter: execution's result, which has further pages, keeps what cqlring_next_page needs. */
void cqr_result_keep_request(cqlring_result *result, struct request_body *body);
void cqr_result_paged(cqlring_result *result, struct execution *execution); /* and the next page is asked for, if it shall be */
struct execution *cqr_execution_make(struct runtime_core *runtime, struct request_body *body, enum future_kind kind);
/* The same in zeroed memory of cqr_mem_alloc that begins with it, and that its last release frees. */
void cqr_execution_init(struct execution *execution, struct runtime_core *runtime, struct request_body *body, enum future_kind kind);
/* Any thread: charged to the session, made and handed over; FULL: the session's limits. Takes over the reference of body. ahead: nobody has
   asked for it yet. */
cqlring_status cqr_execution_launch(struct cqlring_session *session, struct request_body *body, bool ahead, cqlring_future **future, cqlring_error *error);
/* Hand it over; CLOSED when the lane has ended (the execution is gone then). */
cqlring_status cqr_execution_post(struct execution *execution, struct lane *lane, cqlring_error *error);
void cqr_execution_start(struct lane *lane, struct execution *execution); /* submitter */
void cqr_executions_waiting_run(struct lane *lane);
void cqr_execution_abandon(struct execution *execution);                  /* never posted: frees it */

#endif
