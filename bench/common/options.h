/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

/* A program's options as a table: --name VALUE or --name=VALUE. --help prints the usage and ends with 0; whatever is wrong is
   told with the option, the value and what is allowed, and ends with 2, before anything is connected. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_option_kind {
    BENCH_FLAG,    /* bool, becomes `set` */
    BENCH_TEXT,    /* const char *, not empty */
    BENCH_NUMBER,  /* unsigned or signed integer of `size` bytes, min … max */
    BENCH_DECIMAL, /* double, min … max */
    BENCH_WORD     /* int or an enum of its size: the index in `words` */
};

struct bench_option {
    const char *name; /* "--rows"; NULL ends the table */
    void *value;
    enum bench_option_kind kind;
    bool set;
    size_t size;
    int64_t min, max;
    const char *const *words; /* NULL at the end */
};

#define BENCH_FLAG_OPTION(name_, value_, set_) {.name = name_, .kind = BENCH_FLAG, .value = value_, .set = set_}
#define BENCH_TEXT_OPTION(name_, value_) {.name = name_, .kind = BENCH_TEXT, .value = value_}
#define BENCH_NUMBER_OPTION(name_, value_, min_, max_) {.name = name_, .kind = BENCH_NUMBER, .value = value_, .size = sizeof *(value_), .min = min_, .max = max_}
#define BENCH_DECIMAL_OPTION(name_, value_, min_, max_) {.name = name_, .kind = BENCH_DECIMAL, .value = value_, .min = min_, .max = max_}
#define BENCH_WORD_OPTION(name_, value_, words_) {.name = name_, .kind = BENCH_WORD, .value = value_, .size = sizeof *(value_), .words = words_}

void bench_options_parse(const char *program, const char *usage, const struct bench_option *options, int argc, char **argv);

#endif
