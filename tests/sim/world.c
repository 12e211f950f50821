/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct world world;

/* --- chance ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x *= UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

struct chance chance_make(uint64_t seed, uint64_t stream)
{
    return (struct chance){mix(seed * 2 + 1) ^ mix(stream + UINT64_C(0x5851F42D4C957F2D))};
}

uint64_t chance_next(struct chance *chance)
{
    chance->state += UINT64_C(0x9E3779B97F4A7C15);
    return mix(chance->state);
}

uint32_t chance_below(struct chance *chance, uint32_t n)
{
    return n == 0 ? 0 : (uint32_t)((chance_next(chance) >> 32) * n >> 32);
}

int64_t chance_between(struct chance *chance, int64_t low, int64_t high)
{
    return high <= low ? low : low + (int64_t)(chance_next(chance) % ((uint64_t)(high - low) + 1));
}

bool chance_percent(struct chance *chance, uint32_t percent)
{
    return chance_below(chance, 100) < percent;
}

uint32_t chance_skewed(struct chance *chance, uint32_t low, uint32_t high)
{
    uint32_t bits = 0;
    while (bits < 31 && high >> bits > 0)
        bits++;
    uint32_t top = chance_below(chance, bits + 1);
    uint32_t value = top == 0 ? 0 : chance_below(chance, top >= 32 ? UINT32_MAX : 1u << top);
    value += low;
    return value > high ? high : value;
}

/* --- the world --------------------------------------------------------------------------------------------------- */

/* The system's, in every part of this program: ids that are to be unlike any other are the same in every run of a seed. */
ssize_t getrandom(void *data, size_t size, unsigned flags)
{
    (void)flags;
    uint8_t *at = data;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)mix(world.seed + i);
    return (ssize_t)size;
}

void world_init(uint64_t seed, bool verbose)
{
    world = (struct world){
        .seed = seed,
        .verbose = verbose,
        .now_us = 1000000,
        .wall_us = INT64_C(1700000000000000),
        .limit_us = INT64_MAX,
        .trace = mix(seed),
    };
}

void world_fini(void)
{
    while (world.errands != NULL) {
        struct errand *errand = world.errands;
        world.errands = errand->next;
        free(errand);
    }
}

void world_trace(const char *what, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t word = 0;
    memcpy(&word, what, strlen(what) < sizeof word ? strlen(what) : sizeof word);
    uint64_t hash = world.trace;
    hash = mix(hash ^ word) + (uint64_t)world.now_us;
    hash = mix(hash ^ a) + b;
    world.trace = mix(hash ^ c);
    world.steps++;
    if (world.verbose)
        printf("%11.6f  %-10s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", (double)world.now_us / 1e6,
               what, a, b, c);
}

void world_trace_bytes(const char *what, uint64_t a, const void *data, uint64_t size)
{
    uint64_t hash = size, word;
    const uint8_t *at = data;
    for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    word = 0;
    if (size > 0)
        memcpy(&word, at, size);
    world_trace(what, a, (uint64_t)(at - (const uint8_t *)data) + size, mix(hash ^ word));
}

/* --- errands ----------------------------------------------------------------------------------------------------- */

void world_later(int64_t in_us, void (*call)(void *context, uint64_t argument), void *context,
                 uint64_t argument)
{
    struct errand *errand = malloc(sizeof *errand);
    if (errand == NULL)
        abort();
    *errand = (struct errand){.at_us = world.now_us + (in_us > 0 ? in_us : 0),
                              .call = call,
                              .context = context,
                              .argument = argument};
    struct errand **at = &world.errands;
    while (*at != NULL && (*at)->at_us <= errand->at_us)
        at = &(*at)->next;
    errand->next = *at;
    *at = errand;
}

int64_t world_errand_next(void)
{
    return world.errands != NULL ? world.errands->at_us : INT64_MAX;
}

void world_errands_run(void)
{
    while (world.errands != NULL && world.errands->at_us <= world.now_us) {
        struct errand *errand = world.errands;
        world.errands = errand->next;
        world.activity++;
        errand->call(errand->context, errand->argument);
        free(errand);
    }
}

/* --- faults ------------------------------------------------------------------------------------------------------ */

void world_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "seed %" PRIu64 ", at %.6f s: ", world.seed, (double)world.now_us / 1e6);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(stdout);
    fflush(stderr);
    _exit(1);
}
