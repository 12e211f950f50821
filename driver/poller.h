/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_POLLER_H
#define CQR_POLLER_H

/* Readiness of descriptors, behind one table: poller_ev.c (libev, the reactor's own epoll loop), poller_epoll.c (caller
   mode: has a pollable fd; a timerfd inside it carries the next deadline) and the simulator's. Level triggered. All but
   wake belong to the thread that runs the reactor's turn. */

#include <stdint.h>

#include "serialize/cqlring_types.h"

enum { POLL_READ = 1, POLL_WRITE = 2 };

struct poll_event {
    void *context;
    uint32_t events; /* POLL_…; errors and hang-ups are reported as POLL_READ (recv then tells) and POLL_WRITE if that was
                        asked for; libev names only what was asked for, and nobody is told who asked for nothing */
};

struct poller;

struct poller_vtable {
    cqlring_status (*add)(struct poller *poller, int fd, uint32_t events, void *context);
    void (*modify)(struct poller *poller, int fd, uint32_t events);
    void (*remove)(struct poller *poller, int fd); /* no event of it is reported
       afterwards, also none already gathered; what wait has returned is the caller's to skip. Before close(). */
    /* Wait until something is ready, wake is called, or deadline_us (absolute, net's monotonic clock; -1 for ever, 0 do
       not wait). Returns the number of events stored. */
    int (*wait)(struct poller *poller, struct poll_event *events, int capacity, int64_t deadline_us);
    void (*wake)(struct poller *poller);           /* any thread; makes the current or next wait return */
    int (*fd)(struct poller *poller);              /* for foreign event loops; -1 when there is none */
    void (*arm)(struct poller *poller, int64_t deadline_us); /* caller mode: makes fd() readable then; -1 disarms */
    void (*destroy)(struct poller *poller);
};

struct poller {
    const struct poller_vtable *call;
};

struct poller *cqr_poller_ev_create(void);    /* NULL when it cannot be had */
struct poller *cqr_poller_epoll_create(void);

#endif
