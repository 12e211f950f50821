/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/park.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "serialize/mem.h"

_Static_assert(sizeof(atomic_uint) == 4 && ATOMIC_INT_LOCK_FREE == 2,
               "the kernel waits on 32 bits");

enum { AWAKE = 0, SLEEPING = 1 };

/* --- the parking flag --------------------------------------------------------------------------------------------
   Nothing gets lost, because every change of the flag is a read-modify-write. They stand in one order, and each reads
   what the one before it wrote: either the waker's exchange comes after the sleeper's prepare, reads SLEEPING and wakes;
   or prepare comes after it and, acquiring, makes the sleeper's second look see what the waker had published. A plain
   store in between (to cancel, say) would break that chain: a later prepare would read the store instead of the
   waker's exchange and could miss its work. */

void cqr_park_init(struct park *park, struct poller *poller)
{
    *park = (struct park){.poller = poller};
}

void cqr_park_prepare(struct park *park)
{
    unsigned before = atomic_exchange_explicit(&park->state, SLEEPING, memory_order_seq_cst);
    assert(before == AWAKE);
    (void)before;
}

void cqr_park_cancel(struct park *park)
{
    (void)atomic_exchange_explicit(&park->state, AWAKE, memory_order_seq_cst);
}

void cqr_park_sleep(struct park *park, int64_t deadline_us)
{
    assert(park->poller == NULL);
    if (!cqr_futex_wait(&park->state, SLEEPING, deadline_us))
        cqr_park_cancel(park);
}

bool cqr_park_wake(struct park *park)
{
    if (atomic_exchange_explicit(&park->state, AWAKE, memory_order_seq_cst) == AWAKE)
        return false;
    if (park->poller != NULL)
        park->poller->call->wake(park->poller);
    else
        cqr_futex_wake(&park->state, 1);
    return true;
}

/* --- futex ------------------------------------------------------------------------------------------------------- */

bool cqr_futex_wait(atomic_uint *word, unsigned expected, int64_t deadline_us)
{
    struct timespec deadline = {0};
    if (deadline_us >= 0) {
        deadline.tv_sec = (time_t)(deadline_us / 1000000);
        deadline.tv_nsec = (long)(deadline_us % 1000000) * 1000;
    }
    /* Acquire: pairs with the releasing change of the word (cqr_park_wake, a future's completion). */
    while (atomic_load_explicit(word, memory_order_acquire) == expected) {
        /* WAIT_BITSET, because its time-out is absolute: a signal in between does not prolong the wait. EINTR, EAGAIN
           (the word has changed) and wake-ups meant for a former user of the address all go through the load again. */
        long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                              deadline_us < 0 ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
        if (result != 0 && errno == ETIMEDOUT)
            return atomic_load_explicit(word, memory_order_acquire) != expected;
    }
    return true;
}

void cqr_futex_wake(atomic_uint *word, int count)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* --- threads ----------------------------------------------------------------------------------------------------- */

struct start {
    void *(*run)(void *context);
    void *context;
    char name[16]; /* the kernel's size */
};

static void *thread_main(void *argument)
{
    struct start start = *(struct start *)argument;
    cqr_mem_free(argument);
    (void)pthread_setname_np(pthread_self(), start.name);
    return start.run(start.context);
}

/* All signals are the application's business, but for those that a fault of this very thread raises: blocked, they would
   kill the process without its crash handler. */
static void signals_of_library_threads(sigset_t *signals)
{
    (void)sigfillset(signals);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; ++i)
        (void)sigdelset(signals, faults[i]);
}

int cqr_thread_start(pthread_t *thread, const char *name, int cpu, void *(*run)(void *context),
                     void *context)
{
    struct start *start = cqr_mem_zalloc(sizeof *start);
    if (start == NULL)
        return ENOMEM;
    start->run = run;
    start->context = context;
    (void)strncpy(start->name, name, sizeof start->name - 1);

    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        goto fail_start;
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (cpu >= CPU_SETSIZE) {
            error = EINVAL;
            goto fail_attributes;
        }
        CPU_SET((unsigned)cpu, &set);
        error = pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
        if (error != 0)
            goto fail_attributes;
    }
    /* A new thread inherits the mask of its maker: there is no moment at which a signal could run on it. */
    sigset_t blocked, before;
    signals_of_library_threads(&blocked);
    error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error != 0)
        goto fail_attributes;
    error = pthread_create(thread, &attributes, thread_main, start);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);

fail_attributes:
    (void)pthread_attr_destroy(&attributes);
fail_start:
    if (error != 0)
        cqr_mem_free(start);
    return error;
}
