/* SPDX-License-Identifier: Apache-2.0 */
/* Nanoseconds for a vector of floats and one of doubles, from a plain array to the wire's bytes: our
   pass, the plain loop of bswap, memcpy. Best of many, for the machine is never quiet.

   swap [COUNT]   default 1536 elements, the size of a common embedding */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serialize/buf.h"
#include "serialize/value.h"

enum { REPEAT = 2000, TRIES = 50 };

static void swap_ours(uint8_t *target, const uint8_t *source, uint32_t element_size, uint32_t count)
{
    cqr_swap_copy(target, source, element_size, count);
}

static void swap_plain(uint8_t *target, const uint8_t *source, uint32_t element_size,
                       uint32_t count)
{
    if (element_size == 4) {
        for (uint32_t i = 0; i < count; i++)
            cqr_store_u32(target + 4 * i, *(const uint32_t *)(const void *)(source + 4 * i));
    } else {
        for (uint32_t i = 0; i < count; i++)
            cqr_store_u64(target + 8 * i, *(const uint64_t *)(const void *)(source + 8 * i));
    }
}

static void copy_only(uint8_t *target, const uint8_t *source, uint32_t element_size, uint32_t count)
{
    memcpy(target, source, (size_t)element_size * count);
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(uint8_t *, const uint8_t *, uint32_t, uint32_t);
    } ways[] = {{"one pass", swap_ours}, {"loop of bswap", swap_plain}, {"memcpy", copy_only}};
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1536;
    /* Source and target far apart within a page, else loads wait for stores to other pages; the
       target behind one byte more, for wire memory is not aligned. */
    size_t size = (size_t)count * 8;
    size_t apart = (size + 4095) / 4096 * 4096 + 2048;
    uint8_t *source = malloc(apart + size + 1);
    if (source == NULL)
        return EXIT_FAILURE;
    memset(source, 0x55, apart + size + 1);
    uint8_t *target = source + apart + 1;
    for (uint32_t element_size = 4; element_size <= 8; element_size += 4) {
        for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
            double best = 1e18;
            for (int try = 0; try < TRIES; try++) {
                double start = now_ns();
                for (int i = 0; i < REPEAT; i++) {
                    ways[way].run(target, source, element_size, count);
                    __asm__ volatile("" ::"r"(target) : "memory");
                }
                double one = (now_ns() - start) / REPEAT;
                best = one < best ? one : best;
            }
            printf("%u x %u bytes, %-14s %7.0f ns %6.1f GB/s\n", count, element_size,
                   ways[way].name, best, (double)element_size * count / best);
        }
    }
    free(source);
    return EXIT_SUCCESS;
}
