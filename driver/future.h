/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_FUTURE_H
#define CQR_FUTURE_H

/* A future is one atomic word. No mutex, condition variable or descriptor exists: who waits sets a bit in the word and
   sleeps on the word itself; who completes makes one exchange and wakes only if that bit was set. The completer keeps a
   reference until after the wake.

   A future is embedded in the thing that it stands for (a request, a job, a handle being opened), which `dispose` frees at
   the last release. Any thread may hold one. */

#include <stdatomic.h>

#include "driver/cqlring.h"

struct runtime_core;

enum future_kind { FUTURE_EXECUTE, FUTURE_JOB, FUTURE_CLUSTER, FUTURE_SESSION, FUTURE_PREPARED, FUTURE_CLOSE, FUTURE_TRACE, FUTURE_ROOM };

enum {
    FUTURE_DONE = 1,
    FUTURE_WAITERS = 2,        /* somebody sleeps on the word */
    FUTURE_CALL_CLAIMED = 4,   /* on_ready was given, is being written */
    FUTURE_CALL_SET = 8        /* … and may be called */
};

struct cqlring_future {
    atomic_uint word;
    atomic_uint references;
    uint32_t fork_generation;
    uint8_t kind;
    cqlring_status status;             /* valid once done */
    const cqlring_error *error;        /* valid once done; NULL when OK. A `struct failure` (failure.h) owned by this future */
    struct runtime_core *runtime;      /* held by the owner; whose turns a wait runs in caller mode */
    void (*call)(cqlring_future *future, void *context);
    void *context;
    void (*cancel)(cqlring_future *future);  /* NULL: cannot be cancelled */
    void (*dispose)(cqlring_future *future); /* frees the owner, with the future in it, and whatever it holds: error,
                                                completion.result, value, runtime */
    cqlring_completion completion;     /* FUTURE_EXECUTE */
    void *value;                       /* the handle of the control plane's kinds: holds a reference */
};

/* One reference for the caller of the public function, one for the completer. runtime: held as long as the future lives, by its owner. */
void cqr_future_init(cqlring_future *future, enum future_kind kind, struct runtime_core *runtime, void (*dispose)(cqlring_future *));
/* Completes and drops the completer's reference. status, error, completion and value are written before. Runs on_ready. */
void cqr_future_complete(cqlring_future *future);

#endif
