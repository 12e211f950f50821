/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

/* The simulated world: one clock, one seed, one list of things to do, one trace. Everything in a run that is left to chance
   comes from here, so the same seed runs the same way; the trace is a hash of all that happened, and two runs of a seed
   must agree on it.

   One world at a time, one thread (cqr_runtime_create_on's poller_create has no context to carry it in). */

#include <stdbool.h>
#include <stdint.h>

/* A stream of chance. Several are made from one seed, so that a change in one part does not shift the others. */
struct chance {
    uint64_t state;
};
struct chance chance_make(uint64_t seed, uint64_t stream);
uint64_t chance_next(struct chance *chance);
uint32_t chance_below(struct chance *chance, uint32_t n); /* 0 … n − 1; 0 when n is 0 */
int64_t chance_between(struct chance *chance, int64_t low, int64_t high); /* both included */
bool chance_percent(struct chance *chance, uint32_t percent);
/* Small numbers more often than large ones, up to high. */
uint32_t chance_skewed(struct chance *chance, uint32_t low, uint32_t high);

struct errand {
    struct errand *next;
    int64_t at_us;
    void (*call)(void *context, uint64_t argument);
    void *context;
    uint64_t argument;
};

struct world {
    uint64_t seed;
    bool verbose;
    int64_t now_us;   /* the monotonic clock */
    int64_t wall_us;  /* what the wall clock is ahead of it */
    int64_t limit_us; /* a run that is not through by then hangs */
    int64_t lost_us;  /* how long the process stood still in all */
    uint64_t trace;
    uint64_t steps; /* entries of the trace */
    uint64_t
        activity; /* bytes moved, callbacks, errands: what tells a turn that did something from one that spins */
    struct errand *errands; /* by time, then in order of asking */
};
extern struct world world;

void world_init(uint64_t seed, bool verbose);
void world_fini(void);

/* Note that something happened. what is a literal. */
void world_trace(const char *what, uint64_t a, uint64_t b, uint64_t c);
void world_trace_bytes(const char *what, uint64_t a, const void *data, uint64_t size);

/* In us from now, from inside the poller's wait: as if another thread of the application did it. */
void world_later(int64_t in_us, void (*call)(void *context, uint64_t argument), void *context,
                 uint64_t argument);
int64_t world_errand_next(void); /* INT64_MAX: none */
void world_errands_run(void);

/* A broken promise: says what, where and how to see it again, and ends the process. */
_Noreturn void world_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define world_check(condition, ...) ((condition) ? (void)0 : world_fault(__VA_ARGS__))

#endif
