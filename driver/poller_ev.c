/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/poller.h"

#include <assert.h>
#include <ev.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>

#include "driver/fork.h"
#include "driver/net.h"
#include "driver/wake.h"
#include "serialize/mem.h"

/* The reactor's own libev loop on epoll; never the default loop, which belongs to the application, and with nothing that
   looks at the environment, at signals or for forks.

   libev calls back per descriptor; wait() returns events in an array. In between stands a list of watches that are ready
   and not yet handed out. It outlives a wait whose array was too short: libev would report the same descriptors first
   again, and the last ones never.

   A wake-up costs the waker one write, and nothing when the loop is not inside its wait; the sleeper one read. That is
   what ev_async would cost, but its descriptor could not be known, and so not be closed in a forked child.

   Waiting without a deadline starts no timer. libev's own ceiling for one epoll_wait is a minute; wait() goes back to
   sleep then. Deadlines are met to a millisecond or two, never early: epoll counts milliseconds, rounded up. */

enum { FD_MAX = 1 << 20 };

/* What wake() finds: nobody waits (the next wait will look), somebody may sleep (write), or a wake-up is on its way. */
enum { RUNNING = 0, WAITING = 1, WOKEN = 2 };

struct watch {
    struct ev_io io; /* must not move while started */
    void *context;
    struct watch *next, **link; /* in the ready list; link NULL: not in it */
    uint32_t wanted;            /* POLL_… */
    uint32_t ready;             /* POLL_…, not yet handed out */
    bool used;
};

struct poller_ev {
    struct poller base;
    struct ev_loop *loop;
    struct ev_io wake;
    struct ev_timer timer;
    bool timed_out;
    int backend_fd; /* libev's epoll descriptor, for the table of those a forked child closes */
    int wake_fd;
    struct watch **watches; /* by descriptor; entries stay for the next user of the number */
    int watches_size;
    struct watch *ready, **ready_end;
    _Alignas(128) atomic_uint state; /* the wakers' line */
};

static void forget_ready(struct poller_ev *poller, struct watch *watch)
{
    if (watch->link == NULL)
        return;
    *watch->link = watch->next;
    if (watch->next != NULL)
        watch->next->link = watch->link;
    else
        poller->ready_end = watch->link;
    watch->link = NULL;
    watch->ready = 0;
}

static void on_io(struct ev_loop *loop, struct ev_io *io, int revents)
{
    struct poller_ev *poller = ev_userdata(loop);
    struct watch *watch = io->data;
    /* libev turns an error or hang-up into whatever was asked for, and gives a bad descriptor up with EV_ERROR. */
    uint32_t ready = (revents & EV_READ ? POLL_READ : 0u) | (revents & EV_WRITE ? POLL_WRITE : 0u);
    if (revents & EV_ERROR)
        ready |= POLL_READ;
    watch->ready |= ready & (watch->wanted | POLL_READ);
    if (watch->link == NULL) {
        watch->next = NULL;
        watch->link = poller->ready_end;
        *poller->ready_end = watch;
        poller->ready_end = &watch->next;
    }
}

static void on_wake(struct ev_loop *loop, struct ev_io *io, int revents)
{
    (void)loop, (void)revents;
    cqr_wake_clear(io->fd); /* the state tells whether it still matters */
}

static void on_timer(struct ev_loop *loop, struct ev_timer *timer, int revents)
{
    (void)timer, (void)revents;
    ((struct poller_ev *)ev_userdata(loop))->timed_out = true;
}

/* Hand out what is ready, oldest first. */
static int take_ready(struct poller_ev *poller, struct poll_event *events, int capacity)
{
    int count = 0;
    while (count < capacity && poller->ready != NULL) {
        struct watch *watch = poller->ready;
        events[count++] = (struct poll_event){.context = watch->context, .events = watch->ready};
        forget_ready(poller, watch);
    }
    return count;
}

/* Start the timer for a deadline; false when it has passed already. */
static bool timer_start(struct poller_ev *poller, int64_t deadline_us)
{
    struct net *net = cqr_net_system();
    int64_t left_us = deadline_us - net->call->now_us(net);
    if (left_us <= 0)
        return false;
    ev_now_update(poller->loop); /* the timer counts from the loop's idea of now */
    ev_timer_set(&poller->timer, (double)left_us * 1e-6, 0.);
    ev_timer_start(poller->loop, &poller->timer);
    return true;
}

static int poller_wait(struct poller *base, struct poll_event *events, int capacity,
                       int64_t deadline_us)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    assert(capacity > 0);
    /* Acquire here and below: pairs with the exchange in poller_wake, so that what was done before it is seen. */
    bool may_sleep = poller->ready == NULL && deadline_us != 0 &&
                     atomic_exchange_explicit(&poller->state, WAITING, memory_order_acq_rel) !=
                         WOKEN;
    if (may_sleep && deadline_us > 0)
        may_sleep = timer_start(poller, deadline_us);
    if (!may_sleep) {
        if (poller->ready == NULL)
            ev_run(poller->loop, EVRUN_NOWAIT);
    } else {
        /* A pass may end with nothing: a signal, a descriptor removed while it was ready, a wake-up that came when the
           last wait had just ended, libev's minute. */
        poller->timed_out = false;
        do {
            ev_run(poller->loop, EVRUN_ONCE);
        } while (poller->ready == NULL && !poller->timed_out &&
                 atomic_load_explicit(&poller->state, memory_order_relaxed) == WAITING);
        ev_timer_stop(poller->loop, &poller->timer);
    }
    (void)atomic_exchange_explicit(&poller->state, RUNNING, memory_order_acq_rel);
    return take_ready(poller, events, capacity);
}

static void poller_wake(struct poller *base)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    if (atomic_exchange_explicit(&poller->state, WOKEN, memory_order_acq_rel) == WAITING)
        cqr_wake_signal(poller->wake_fd);
}

/* --- descriptors ------------------------------------------------------------------------------------------------- */

static struct watch *watch_of(struct poller_ev *poller, int fd)
{
    assert(fd >= 0 && fd < poller->watches_size);
    struct watch *watch = poller->watches[fd];
    assert(watch != NULL && watch->used);
    return watch;
}

/* The entry for fd, made when there is none; NULL when out of memory or beyond the ceiling. */
static struct watch *watch_make(struct poller_ev *poller, int fd)
{
    if (fd >= poller->watches_size) {
        int size = poller->watches_size > 0 ? poller->watches_size : 64;
        while (size <= fd)
            size *= 2;
        struct watch **watches = cqr_mem_realloc(poller->watches, (size_t)size * sizeof *watches);
        if (watches == NULL)
            return NULL;
        for (int i = poller->watches_size; i < size; ++i)
            watches[i] = NULL;
        poller->watches = watches;
        poller->watches_size = size;
    }
    if (poller->watches[fd] == NULL)
        poller->watches[fd] = cqr_mem_zalloc(sizeof(struct watch));
    return poller->watches[fd];
}

static void watch_start(struct poller_ev *poller, struct watch *watch, int fd, uint32_t events)
{
    watch->wanted = events;
    ev_io_stop(poller->loop, &watch->io);
    if (events == 0)
        return;
    ev_io_set(&watch->io, fd,
              (events & POLL_READ ? EV_READ : 0) | (events & POLL_WRITE ? EV_WRITE : 0));
    ev_io_start(poller->loop, &watch->io);
}

static cqlring_status poller_add(struct poller *base, int fd, uint32_t events, void *context)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    if (fd < 0)
        return CQLRING_INVALID;
    if (fd >= FD_MAX)
        return CQLRING_FULL;
    struct watch *watch = watch_make(poller, fd);
    if (watch == NULL)
        return CQLRING_NO_MEMORY;
    assert(!watch->used);
    *watch = (struct watch){.context = context, .used = true};
    ev_init(&watch->io, on_io);
    watch->io.data = watch;
    watch_start(poller, watch, fd, events);
    return CQLRING_OK;
}

static void poller_modify(struct poller *base, int fd, uint32_t events)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    struct watch *watch = watch_of(poller, fd);
    if (events == watch->wanted)
        return;
    watch_start(poller, watch, fd, events);
    watch->ready &= events;
    if (watch->ready == 0)
        forget_ready(poller, watch);
}

static void poller_remove(struct poller *base, int fd)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    struct watch *watch = watch_of(poller, fd);
    ev_io_stop(poller->loop, &watch->io);
    /* libev leaves this to close(). But a process that is being forked may hold a copy, so the socket would stay in the
       set and be reported; libev would then make itself a new set, whose descriptor we do not know. */
    if (poller->backend_fd >= 0)
        (void)epoll_ctl(poller->backend_fd, EPOLL_CTL_DEL, fd, NULL);
    forget_ready(poller, watch);
    watch->used = false;
}

/* --- the loop itself --------------------------------------------------------------------------------------------- */

static int poller_fd(struct poller *base)
{
    (void)base;
    return -1;
}

static void poller_arm(struct poller *base, int64_t deadline_us)
{
    (void)base, (void)deadline_us;
}

/* libev does not say which descriptor its epoll set has; but it says so to itself when one loop is embedded in another,
   and the watcher that it makes for that is public. The outer loop lives for these few lines. */
static int find_backend_fd(struct ev_loop *loop)
{
    struct ev_loop *outer = ev_loop_new(EVBACKEND_POLL | EVFLAG_NOENV | EVFLAG_NOINOTIFY);
    if (outer == NULL)
        return -1;
    struct ev_embed embed;
    ev_embed_init(&embed, NULL, loop);
    ev_embed_start(outer, &embed);
    int fd = embed.io.fd;
    ev_embed_stop(outer, &embed);
    ev_loop_destroy(outer);
    return fd;
}

static void poller_destroy(struct poller *base)
{
    struct poller_ev *poller = (struct poller_ev *)base;
    if (poller->backend_fd >= 0)
        cqr_fd_forget(poller->backend_fd);
    if (poller->loop != NULL)
        ev_loop_destroy(poller->loop);
    cqr_wake_close(poller->wake_fd);
    for (int i = 0; i < poller->watches_size; ++i)
        cqr_mem_free(poller->watches[i]);
    cqr_mem_free(poller->watches);
    cqr_mem_free(poller);
}

struct poller *cqr_poller_ev_create(void)
{
    static const struct poller_vtable calls = {
        .add = poller_add,
        .modify = poller_modify,
        .remove = poller_remove,
        .wait = poller_wait,
        .wake = poller_wake,
        .fd = poller_fd,
        .arm = poller_arm,
        .destroy = poller_destroy,
    };
    struct poller_ev *poller = cqr_mem_aligned(128, sizeof *poller);
    if (poller == NULL)
        return NULL;
    poller->base.call = &calls;
    poller->ready_end = &poller->ready;
    poller->backend_fd = -1;
    poller->wake_fd = cqr_wake_open();
    if (poller->wake_fd >= 0)
        poller->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV | EVFLAG_NOINOTIFY);
    if (poller->loop == NULL) {
        poller_destroy(&poller->base);
        return NULL;
    }
    poller->backend_fd = find_backend_fd(poller->loop);
    if (poller->backend_fd >= 0)
        cqr_fd_register(poller->backend_fd);
    ev_set_userdata(poller->loop, poller);
    ev_init(&poller->timer, on_timer);
    ev_io_init(&poller->wake, on_wake, poller->wake_fd, EV_READ);
    ev_io_start(poller->loop, &poller->wake);
    return &poller->base;
}
