/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/failure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "serialize/mem.h"

enum { PHASES = 3 };

/* One of each kind, for when there is no memory to say more: it is still told apart what became of a request. */
#define SPARE(number, how_far, maybe, text) \
    {.error = {.status = (cqlring_status)(number), .phase = (how_far), .may_have_been_applied = (maybe), .message = text " (out of memory: no more is known)"}}
#define SPARES(name, number, text) \
    [number] = {{SPARE(number, CQLRING_NOT_SENT, 0, text), SPARE(number, CQLRING_NOT_SENT, 1, text)}, \
                {SPARE(number, CQLRING_SENT, 0, text), SPARE(number, CQLRING_SENT, 1, text)}, \
                {SPARE(number, CQLRING_ANSWERED, 0, text), SPARE(number, CQLRING_ANSWERED, 1, text)}},
static const struct failure spares[][PHASES][2] = {CQLRING_STATUS_LIST(SPARES)};

struct failure *cqr_failure_spare(cqlring_status status, uint8_t phase, bool maybe_applied)
{
    if ((unsigned)status >= sizeof spares / sizeof spares[0] || status == CQLRING_OK) /* an application's own */
        status = CQLRING_NO_MEMORY;
    return (struct failure *)(uintptr_t)&spares[status][phase < PHASES ? phase : CQLRING_NOT_SENT][maybe_applied]; /* nobody writes to it: cqr_failure_is_static */
}

bool cqr_failure_is_static(const struct failure *failure)
{
    return (uintptr_t)failure >= (uintptr_t)spares && (uintptr_t)failure < (uintptr_t)spares + sizeof spares;
}

/* How many of the first `size` bytes end with a whole character of UTF-8. Bytes that are no UTF-8 at all stay. */
static size_t whole_characters(const char *text, size_t size)
{
    size_t back = 0; /* continuation bytes at the end */
    while (back < 3 && back < size && ((uint8_t)text[size - 1 - back] & 0xC0) == 0x80)
        ++back;
    if (back == size)
        return size;
    uint8_t lead = (uint8_t)text[size - 1 - back];
    size_t wanted = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    return back < wanted ? size - 1 - back : size;
}

struct duration_text cqr_duration(int64_t us)
{
    struct duration_text out;
    uint64_t size = us < 0 ? -(uint64_t)us : (uint64_t)us, unit = size == 0 || size >= 1000000 ? 1000000 : size >= 1000 ? 1000 : 1;
    const char *name = unit == 1000000 ? "s" : unit == 1000 ? "ms" : "\u00b5s";
    uint32_t thousandths = unit == 1 ? 0 : (uint32_t)(size % unit * 1000 / unit);
    char rest[8] = "";
    if (thousandths > 0) {
        snprintf(rest, sizeof rest, ".%03u", thousandths);
        for (size_t end = strlen(rest); rest[end - 1] == '0'; --end)
            rest[end - 1] = '\0';
    }
    snprintf(out.text, sizeof out.text, "%s%" PRIu64 "%s %s", us < 0 ? "-" : "", size / unit, rest, name);
    return out;
}

void cqr_text_format(char *text, size_t capacity, const char *format, va_list arguments)
{
    int size = vsnprintf(text, capacity, format, arguments);
    if (size < 0)
        text[0] = '\0';
    else if ((size_t)size >= capacity)
        text[whole_characters(text, capacity - 1)] = '\0';
}

void cqr_error_text(cqlring_error *error, const char *format, va_list arguments)
{
    if (error != NULL)
        cqr_text_format(error->message, sizeof error->message, format, arguments);
}

cqlring_status cqr_error(cqlring_error *error, cqlring_status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    *error = (cqlring_error){.status = status};
    va_list arguments;
    va_start(arguments, format);
    cqr_error_text(error, format, arguments);
    va_end(arguments);
    return status;
}

struct failure *cqr_failure_make(cqlring_status status, const char *format, ...)
{
    struct failure *failure = cqr_mem_zalloc(sizeof *failure);
    if (failure == NULL)
        return cqr_failure_spare(status, CQLRING_NOT_SENT, false);
    failure->error.status = status;
    va_list arguments;
    va_start(arguments, format);
    cqr_error_text(&failure->error, format, arguments);
    va_end(arguments);
    return failure;
}

void cqr_failure_free(const cqlring_error *error)
{
    struct failure *failure = (struct failure *)(uintptr_t)error; /* its first member */
    if (failure == NULL || cqr_failure_is_static(failure))
        return;
    cqr_block_release(failure->block);
    cqr_mem_free(failure->own_values);
    cqr_mem_free(failure);
}

/* Only the public part: what is copied may be an error that the application filled. */
struct failure *cqr_failure_copy(const cqlring_error *error)
{
    struct failure *failure = cqr_mem_zalloc(sizeof *failure);
    if (failure == NULL)
        return cqr_failure_spare(error->status, error->phase, error->may_have_been_applied != 0);
    failure->error = *error;
    failure->error.node[sizeof failure->error.node - 1] = '\0';
    failure->error.message[sizeof failure->error.message - 1] = '\0';
    return failure;
}

void cqr_failure_follow(struct failure *failure, const struct failure *before)
{
    if (failure == NULL || before == NULL || failure == before || cqr_failure_is_static(failure) || failure->attempt_count > 0)
        return;
    memcpy(failure->attempts, before->attempts, before->attempt_count * sizeof before->attempts[0]);
    failure->attempt_count = before->attempt_count;
}

void cqr_failure_attempt(struct failure *failure, const cqlring_attempt *attempt)
{
    if (cqr_failure_is_static(failure))
        return;
    if (failure->attempt_count == CQLRING_ATTEMPTS_MAX)
        memmove(failure->attempts, failure->attempts + 1, --failure->attempt_count * sizeof failure->attempts[0]);
    failure->attempts[failure->attempt_count++] = *attempt;
}

struct failure *cqr_failure_share(const struct failure *failure)
{
    struct failure *own = cqr_failure_copy(&failure->error);
    cqr_failure_follow(own, failure);
    if (cqr_failure_is_static(own) || !failure->has_body)
        return own;
    own->body = failure->body;
    own->has_body = true;
    own->block = cqr_block_retain(failure->block);
    return own;
}
