/* SPDX-License-Identifier: Apache-2.0 */

/* The seeded simulator: the real reactor and submitter turns against the embedded nodes over a simulated network, in one
   thread, in virtual time. What a seed does is told by plan.h; a seed that fails is run again by its number.

     test_sim [--seed N] [--seeds FROM COUNT] [--verbose] [--plan N]

   Each seed runs in a process of its own (not with --seed), so that one that crashes does not take the others with it.
   Every tenth is run twice, and the two traces must agree. Without arguments: CQLRING_SIM_SEEDS seeds, 200 if not set.

   ctest: labels=sim timeout=600 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "play.h"

enum { SEEDS = 200, FAILURES_SHOWN = 10 };

static struct plan plan;

/* In a child: its trace comes back through a pipe. 0 when it failed. */
static uint64_t run_apart(uint64_t seed, char *why, size_t why_size)
{
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        close(ends[0]);
        plan_make(&plan, seed);
        uint64_t trace = play(&plan, false) | 1;
        if (write(ends[1], &trace, sizeof trace) != (ssize_t)sizeof trace)
            _exit(2);
        exit(0); /* leak checkers want the whole way out */
    }
    close(ends[1]);
    uint64_t trace = 0;
    ssize_t got;
    do {
        got = read(ends[0], &trace, sizeof trace);
    } while (got < 0 && errno == EINTR);
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (got == (ssize_t)sizeof trace && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return trace;
    if (WIFSIGNALED(status))
        (void)snprintf(why, why_size, "killed by signal %d", WTERMSIG(status));
    else
        (void)snprintf(why, why_size, "ended with %d", WEXITSTATUS(status));
    return 0;
}

static bool run_seed(uint64_t seed, bool twice)
{
    char why[100] = "";
    uint64_t trace = run_apart(seed, why, sizeof why);
    if (trace != 0 && twice) {
        uint64_t again = run_apart(seed, why, sizeof why);
        if (again != trace && again != 0) {
            (void)snprintf(why, sizeof why, "two runs differ: %016" PRIx64 " and %016" PRIx64,
                           trace, again);
            trace = 0;
        }
    }
    if (trace != 0)
        return true;
    plan_make(&plan, seed);
    fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, why);
    plan_tell(&plan, stderr);
    fprintf(stderr, "replay: test_sim --seed %" PRIu64 "\n\n", seed);
    return false;
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "%s is no number\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    const char *wished = getenv("CQLRING_SIM_SEEDS");
    uint64_t from = 1, count = wished != NULL ? number(wished) : SEEDS, seed = 0;
    bool verbose = false, one = false, tell = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            one = true;
            seed = number(argv[++i]);
        } else if (strcmp(argv[i], "--plan") == 0 && i + 1 < argc) {
            tell = true;
            seed = number(argv[++i]);
        } else if (strcmp(argv[i], "--seeds") == 0 && i + 2 < argc) {
            from = number(argv[++i]);
            count = number(argv[++i]);
        } else {
            fprintf(stderr,
                    "usage: test_sim [--seed N] [--seeds FROM COUNT] [--verbose] [--plan N]\n");
            return 2;
        }
    }
    if (one || tell) {
        plan_make(&plan, seed);
        plan_tell(&plan, stdout);
        if (one)
            printf("trace %016" PRIx64 "\n", play(&plan, verbose));
        return 0;
    }
    uint64_t failed = 0;
    for (uint64_t i = 0; i < count && failed < FAILURES_SHOWN; i++)
        failed += !run_seed(from + i, i % 10 == 0);
    printf("%" PRIu64 " seeds from %" PRIu64 " on: %" PRIu64 " failed%s\n", count, from, failed,
           failed == FAILURES_SHOWN ? " (stopped there)" : "");
    return failed != 0;
}
