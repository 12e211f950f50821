/* SPDX-License-Identifier: Apache-2.0 */

#include "child.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch.h"

extern char **environ;

int child_role(int argc, char **argv, int (*role)(const char *name, const char *contact, cqlring_threads threads))
{
    if (argc != 5 || strcmp(argv[1], "--child") != 0)
        return -1;
    return role(argv[2], argv[3], (cqlring_threads)atoi(argv[4]));
}

struct ending {
    pid_t pid;
    int status;
};

static bool has_ended(struct flow *flow, void *context)
{
    struct ending *ending = context;
    (void)flow;
    return waitpid(ending->pid, &ending->status, WNOHANG) == ending->pid;
}

int child_wait(struct flow *flow, pid_t pid)
{
    struct ending ending = {.pid = pid};
    if (!watch_until(flow, has_ended, &ending, 20000)) {
        kill(pid, SIGKILL);
        waitpid(pid, &ending.status, 0);
        ck_abort_msg("the child does not end");
    }
    return WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : 128 + WTERMSIG(ending.status);
}

int child_exec(struct flow *flow, const char *name)
{
    char contact[128], threads[8], path[] = "/proc/self/exe", role[] = "--child", own[64];
    snprintf(contact, sizeof contact, "%s:%u", node_address(flow->node, 0), node_port(flow->node, 0));
    snprintf(threads, sizeof threads, "%d", (int)flow->threads);
    snprintf(own, sizeof own, "%s", name);
    char *arguments[] = {path, role, own, contact, threads, NULL};
    pid_t pid;
    ck_assert_int_eq(posix_spawn(&pid, path, NULL, NULL, arguments, environ), 0);
    return child_wait(flow, pid);
}
