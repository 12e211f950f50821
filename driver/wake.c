/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/wake.h"

#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "driver/fork.h"

static int registered(int fd)
{
    if (fd < 0)
        return -errno;
    cqr_fd_register(fd);
    return fd;
}

int cqr_wake_open(void)
{
    return registered(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

/* Only a full counter can refuse either call, after 2^64 - 2 signals: then it is readable already. */
void cqr_wake_signal(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void cqr_wake_clear(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
}

int cqr_wake_timer_open(void)
{
    return registered(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

void cqr_wake_timer_set(int fd, int64_t deadline_us)
{
    /* To the kernel a zero time means "disarm": a deadline in the past becomes the first nanosecond of the clock. Setting
       takes back an expiry that nobody has read. */
    struct itimerspec when = {0};
    if (deadline_us >= 0) {
        when.it_value.tv_sec = (time_t)(deadline_us / 1000000);
        when.it_value.tv_nsec = deadline_us == 0 ? 1 : (long)(deadline_us % 1000000) * 1000;
    }
    (void)timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void cqr_wake_close(int fd)
{
    if (fd < 0)
        return;
    cqr_fd_forget(fd);
    (void)close(fd);
}
