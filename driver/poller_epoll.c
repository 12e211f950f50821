/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "driver/fork.h"
#include "driver/net.h"
#include "driver/wake.h"
#include "serialize/mem.h"

/* epoll without a library in between, for caller mode: the set itself is the descriptor that a foreign loop watches. An
   eventfd in it carries wake-ups and a timerfd the next deadline, both edge triggered, so that neither has to be read: a
   wake-up costs one write and nothing on the other side. Sleeping in wait() until soon has its deadline in the call
   (epoll_pwait2: microseconds, one system call); kernels before 5.11 set the timerfd for that too.

   A far deadline is the usual one (a request's time-out) and moves on with every request. It goes into the timerfd, which stays
   as it is while deadlines only move on: a timer made and unmade in each call would cost a lone request 7 % of its time. When
   it goes off too early, nothing happens but the next one being set.

   wake() always writes: a foreign loop may be asleep on the descriptor while nobody is inside wait(). */

enum { FD_MAX = 1 << 20, EVENTS_MAX = 128, FAR_US = 100000 };

/* In epoll_event.data, beside descriptor numbers. */
enum { DATA_WAKE = FD_MAX, DATA_TIMER = FD_MAX + 1 };

struct watch {
    void *context;
    uint32_t wanted; /* POLL_… */
    bool used;
};

struct poller_epoll {
    struct poller base;
    int epoll_fd;
    int wake_fd;
    int timer_fd;
    int64_t timer_us;      /* what the timerfd is set to; -1 never */
    int64_t armed_us;      /* what arm() asked for */
    bool timer_only;       /* no epoll_pwait2 on this kernel */
    struct watch *watches; /* by descriptor */
    int watches_size;
};

static void timer_set(struct poller_epoll *poller, int64_t deadline_us)
{
    if (deadline_us == poller->timer_us)
        return;
    cqr_wake_timer_set(poller->timer_fd, deadline_us);
    poller->timer_us = deadline_us;
}

/* One epoll wait. deadline_us as in wait(). Returns the count, or 0 after an interruption. */
static int wait_once(struct poller_epoll *poller, struct epoll_event *events, int capacity,
                     int64_t deadline_us)
{
    if (deadline_us <= 0 || (poller->timer_us >= 0 && poller->timer_us <= deadline_us)) {
        int count = epoll_wait(poller->epoll_fd, events, capacity, deadline_us == 0 ? 0 : -1);
        return count < 0 ? 0 : count;
    }
    struct net *net = cqr_net_system();
    int64_t left_us = deadline_us - net->call->now_us(net);
    if (!poller->timer_only && (left_us < FAR_US || poller->armed_us >= 0)) {
        left_us = left_us < 0 ? 0 : left_us;
        struct timespec left = {.tv_sec = (time_t)(left_us / 1000000),
                                .tv_nsec = (long)(left_us % 1000000) * 1000};
        int count = epoll_pwait2(poller->epoll_fd, events, capacity, &left, NULL);
        poller->timer_only = count < 0 && errno == ENOSYS;
        if (!poller->timer_only)
            return count < 0 ? 0 : count;
    }
    timer_set(poller, poller->armed_us >= 0 && poller->armed_us < deadline_us ? poller->armed_us : deadline_us);
    int count = epoll_wait(poller->epoll_fd, events, capacity, -1);
    return count < 0 ? 0 : count;
}

static struct poll_event translate(const struct watch *watch, uint32_t events)
{
    uint32_t ready = (events & EPOLLIN ? POLL_READ : 0u) | (events & EPOLLOUT ? POLL_WRITE : 0u);
    if (events & (EPOLLERR | EPOLLHUP))
        ready |= POLL_READ | (watch->wanted & POLL_WRITE);
    return (struct poll_event){.context = watch->context, .events = ready};
}

static int poller_wait(struct poller *base, struct poll_event *events, int capacity,
                       int64_t deadline_us)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    struct epoll_event found[EVENTS_MAX];
    assert(capacity > 0);
    for (;;) {
        int found_count = wait_once(poller, found, capacity < EVENTS_MAX ? capacity : EVENTS_MAX,
                                    deadline_us);
        int count = 0;
        bool over = deadline_us == 0;
        for (int i = 0; i < found_count; ++i) {
            if (found[i].data.u32 < FD_MAX) {
                events[count++] = translate(&poller->watches[found[i].data.u32], found[i].events);
            } else {
                bool is_timer = found[i].data.u32 == DATA_TIMER;
                over = over || !is_timer || poller->armed_us >= 0;
                if (is_timer)
                    poller->timer_us = -1;
            }
        }
        if (count > 0 || over)
            return count;
        struct net *net = cqr_net_system();
        if (deadline_us > 0 && net->call->now_us(net) >= deadline_us)
            return 0;
    }
}

static void poller_wake(struct poller *base)
{
    cqr_wake_signal(((struct poller_epoll *)base)->wake_fd);
}

static int poller_fd(struct poller *base)
{
    return ((struct poller_epoll *)base)->epoll_fd;
}

static void poller_arm(struct poller *base, int64_t deadline_us)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    poller->armed_us = deadline_us;
    timer_set(poller, deadline_us);
}

/* --- descriptors ------------------------------------------------------------------------------------------------- */

static struct watch *watch_of(struct poller_epoll *poller, int fd)
{
    assert(fd >= 0 && fd < poller->watches_size && poller->watches[fd].used);
    return &poller->watches[fd];
}

static bool watches_grow(struct poller_epoll *poller, int fd)
{
    if (fd < poller->watches_size)
        return true;
    int size = poller->watches_size > 0 ? poller->watches_size : 64;
    while (size <= fd)
        size *= 2;
    struct watch *watches = cqr_mem_realloc(poller->watches, (size_t)size * sizeof *watches);
    if (watches == NULL)
        return false;
    for (int i = poller->watches_size; i < size; ++i)
        watches[i] = (struct watch){0};
    poller->watches = watches;
    poller->watches_size = size;
    return true;
}

static bool control(struct poller_epoll *poller, int operation, int fd, uint32_t events)
{
    struct epoll_event event = {.events = (events & POLL_READ ? EPOLLIN : 0u) |
                                          (events & POLL_WRITE ? EPOLLOUT : 0u)};
    event.data.u32 = (uint32_t)fd;
    return epoll_ctl(poller->epoll_fd, operation, fd, &event) == 0;
}

static cqlring_status poller_add(struct poller *base, int fd, uint32_t events, void *context)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    if (fd < 0)
        return CQLRING_INVALID;
    if (fd >= FD_MAX)
        return CQLRING_FULL;
    if (!watches_grow(poller, fd))
        return CQLRING_NO_MEMORY;
    assert(!poller->watches[fd].used);
    if (events != 0 && !control(poller, EPOLL_CTL_ADD, fd, events))
        return errno == ENOMEM   ? CQLRING_NO_MEMORY
               : errno == ENOSPC ? CQLRING_FULL
                                 : CQLRING_INVALID;
    poller->watches[fd] = (struct watch){.context = context, .wanted = events, .used = true};
    return CQLRING_OK;
}

static void poller_modify(struct poller *base, int fd, uint32_t events)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    struct watch *watch = watch_of(poller, fd);
    if (events == watch->wanted)
        return;
    /* Wanting nothing means out of the set: epoll reports a hang-up to whoever stays in it. */
    int operation = events == 0          ? EPOLL_CTL_DEL
                    : watch->wanted == 0 ? EPOLL_CTL_ADD
                                         : EPOLL_CTL_MOD;
    (void)control(poller, operation, fd, events);
    watch->wanted = events;
}

static void poller_remove(struct poller *base, int fd)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    if (watch_of(poller, fd)->wanted != 0)
        (void)control(poller, EPOLL_CTL_DEL, fd, 0);
    poller->watches[fd] = (struct watch){0};
}

/* --- the poller itself ------------------------------------------------------------------------------------------- */

static void poller_destroy(struct poller *base)
{
    struct poller_epoll *poller = (struct poller_epoll *)base;
    cqr_wake_close(poller->timer_fd);
    cqr_wake_close(poller->wake_fd);
    if (poller->epoll_fd >= 0) {
        cqr_fd_forget(poller->epoll_fd);
        (void)close(poller->epoll_fd);
    }
    cqr_mem_free(poller->watches);
    cqr_mem_free(poller);
}

static bool add_own(struct poller_epoll *poller, int fd, uint32_t data)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    event.data.u32 = data;
    return fd >= 0 && epoll_ctl(poller->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

struct poller *cqr_poller_epoll_create(void)
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
    struct poller_epoll *poller = cqr_mem_zalloc(sizeof *poller);
    if (poller == NULL)
        return NULL;
    poller->base.call = &calls;
    poller->timer_us = -1;
    poller->armed_us = -1;
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (poller->epoll_fd >= 0)
        cqr_fd_register(poller->epoll_fd);
    poller->wake_fd = cqr_wake_open();
    poller->timer_fd = cqr_wake_timer_open();
    if (poller->epoll_fd < 0 || !add_own(poller, poller->wake_fd, DATA_WAKE) ||
        !add_own(poller, poller->timer_fd, DATA_TIMER)) {
        poller_destroy(&poller->base);
        return NULL;
    }
    return &poller->base;
}
