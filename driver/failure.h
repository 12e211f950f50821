/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_FAILURE_H
#define CQR_FAILURE_H

/* Why something did not succeed: the public error plus what a server's ERROR said, kept until the completion or future
   that carries it is released. Failures are rare, so each is an allocation; when even that fails, a static one of the
   same status, phase and may_have_been_applied stands in, which is never freed and must not be written to. Any thread. */

#include <stdarg.h>

#include "cql/response.h"
#include "driver/cqlring.h"
#include "serialize/block.h"

struct failure {
    cqlring_error error;       /* first: a const cqlring_error * of ours is a struct failure * */
    struct block *block;       /* keeps the slices of body alive; NULL when there is none */
    struct error_body body;
    bool has_body;
    /* A job's row that failed, with its values ([short n] and n [value]s) while the sink looks at it; NULL: not known. */
    const uint8_t *values;
    uint32_t values_size;
    uint8_t *own_values;       /* a copy, when the row never came to be encoded for a connection */
    cqlring_attempt attempts[CQLRING_ATTEMPTS_MAX]; /* of its request that failed, oldest first */
    uint32_t attempt_count;
};

/* printf-like text; the rest zero. Never NULL (a static one in need). */
struct failure *cqr_failure_make(cqlring_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cqr_failure_free(const cqlring_error *error); /* NULL and the static ones are fine */
bool cqr_failure_is_static(const struct failure *failure);
struct failure *cqr_failure_spare(cqlring_status status, uint8_t phase, bool maybe_applied); /* the static one */
/* Of any error, the application's too: what a server said beyond it (body) stays with the original. */
struct failure *cqr_failure_copy(const cqlring_error *error);

/* Another one takes its place: what is known of the attempts before goes on. NULL is fine for either. */
void cqr_failure_follow(struct failure *failure, const struct failure *before);
void cqr_failure_attempt(struct failure *failure, const cqlring_attempt *attempt); /* one more; the oldest makes room */
/* One of ours for a further request, with what the server said. */
struct failure *cqr_failure_share(const struct failure *failure);

/* Fill a caller's error (NULL is fine); returns status, so `return cqr_error(error, CQLRING_INVALID, "…")` reads well. */
cqlring_status cqr_error(cqlring_error *error, cqlring_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void cqr_error_text(cqlring_error *error, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
/* vsnprintf that cuts at a character. */
void cqr_text_format(char *text, size_t capacity, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));

/* A time in the unit that fits it, for people: "0 s", "250 µs", "1.5 ms", "12 s", "-1 µs"; at most three decimals, the rest is cut.
   By value, so that `cqr_duration(us).text` can stand among the arguments of a printf. */
struct duration_text {
    char text[40];
};
struct duration_text cqr_duration(int64_t us);

#endif
