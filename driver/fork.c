/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/fork.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

/* One bit per descriptor number. The table is as large as the largest limit Linux gives without asking for more (nr_open,
   1 048 576); pages of it that are never touched cost nothing. Descriptors beyond it are closed by exec only. */
enum { FD_MAX = 1 << 20 };
static atomic_uint_fast64_t open_fds[FD_MAX / 64];
static atomic_uint words_used; /* the child's loop ends here */
static atomic_uint generation;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int install_error;

/* In the child, where only the forking thread exists and any lock may be held for ever: atomics and close(). */
static void child_after_fork(void)
{
    unsigned used = atomic_load_explicit(&words_used, memory_order_relaxed);
    for (unsigned i = 0; i < used; ++i) {
        uint64_t word = atomic_exchange_explicit(&open_fds[i], 0, memory_order_relaxed);
        while (word != 0) {
            int bit = __builtin_ctzll(word);
            word &= word - 1;
            (void)close((int)(i * 64) + bit);
        }
    }
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void install(void)
{
    install_error = pthread_atfork(NULL, NULL, child_after_fork);
}

cqlring_status cqr_fork_watch(void)
{
    (void)pthread_once(&once, install);
    return install_error == 0 ? CQLRING_OK : CQLRING_NO_MEMORY;
}

unsigned cqr_fork_generation(void)
{
    /* Relaxed: it only ever changes while this thread is the only one. */
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

void cqr_fd_register(int fd)
{
    (void)cqr_fork_watch();
    assert(fd >= 0);
    if (fd >= FD_MAX)
        return;
    unsigned word = (unsigned)fd / 64;
    unsigned used = atomic_load_explicit(&words_used, memory_order_relaxed);
    while (used <= word &&
           !atomic_compare_exchange_weak_explicit(&words_used, &used, word + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_or_explicit(&open_fds[word], UINT64_C(1) << (fd % 64), memory_order_relaxed);
}

void cqr_fd_forget(int fd)
{
    assert(fd >= 0);
    if (fd < FD_MAX)
        atomic_fetch_and_explicit(&open_fds[fd / 64], ~(UINT64_C(1) << (fd % 64)),
                                  memory_order_relaxed);
}
