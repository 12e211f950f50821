/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TYPES_H
#define CQLRING_TYPES_H

/* Plain data that every part of cqlring's public interface speaks in: outcomes, errors, slices of bytes, consistency
   levels. No handle lives here and nothing here talks to a network. Zero is "the default" in every field that an
   application fills in.

   Functions of this header may be called from any thread, at any time, also before a runtime exists. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CQLRING_API __attribute__((visibility("default")))
#else
#define CQLRING_API
#endif

/* What became of something that was asked for. Code decides by the status; people read the message of cqlring_error.
   One list, so that names and numbers cannot part. */
#define CQLRING_STATUS_LIST(X)                                                                                         \
    X(OK, 0, "ok")                                                                                                     \
    X(INVALID, 1, "invalid argument or call")                                                                          \
    X(NO_MEMORY, 2, "out of memory")                                                                                   \
    X(CLOSED, 3, "closed")                                                                                             \
    X(FULL, 4, "no room")                                                                                              \
    X(TOO_LARGE, 5, "too large")                                                                                       \
    X(TIMEOUT, 6, "timed out")                                                                                         \
    X(UNREACHABLE, 7, "no node reachable")                                                                             \
    X(LOST, 8, "connection lost")                                                                                      \
    X(PROTOCOL, 9, "protocol error")                                                                                   \
    X(TLS, 10, "TLS error")                                                                                            \
    X(AUTH, 11, "authentication failed")                                                                               \
    X(SERVER, 12, "server error")                                                                                      \
    X(CANCELLED, 13, "cancelled")                                                                                      \
    X(TYPE, 14, "wrong type or value")                                                                                 \
    X(FORKED, 15, "used in a forked child")

typedef enum cqlring_status {
#define CQLRING_STATUS_ENUM(name, number, text) CQLRING_##name = number,
    CQLRING_STATUS_LIST(CQLRING_STATUS_ENUM)
#undef CQLRING_STATUS_ENUM
} cqlring_status;

/* The status' name ("TIMEOUT") and a few words about it ("timed out"). Static strings, never NULL. */
CQLRING_API const char *cqlring_status_name(cqlring_status status);
CQLRING_API const char *cqlring_status_text(cqlring_status status);

/* How far a request had got. NOT_SENT: not one whole request of it can have reached the server, so it is safe to send
   again whether idempotent or not. */
typedef enum cqlring_phase { CQLRING_NOT_SENT = 0, CQLRING_SENT = 1, CQLRING_ANSWERED = 2 } cqlring_phase;

/* An error, in the caller's memory; every function that takes one accepts NULL. Filled only when the function fails.
   node is "address:port" of the coordinator, empty when none was chosen; times are 0 when nothing was queued or sent. When there is no
   memory for a request's error, status, phase and may_have_been_applied are what they are, and the message says so; the rest is empty. */
typedef struct cqlring_error {
    cqlring_status status;
    int32_t server_code;           /* code of the server's ERROR (native protocol, section 9), 0 if none */
    uint8_t phase;                 /* cqlring_phase */
    uint8_t may_have_been_applied; /* 1: a write may have happened; send again only if idempotent */
    uint16_t attempts;             /* how many times it was sent or tried */
    uint32_t queued_us;            /* from acceptance to the first send, microseconds */
    uint32_t in_flight_us;         /* from the first send to the outcome, microseconds */
    char node[64];
    char message[400]; /* NUL-terminated UTF-8; longer texts are cut at a character */
    uint8_t reserved[28];
} cqlring_error;

/* Bytes that somebody else owns. For a cell: size is the payload's, CQLRING_NULL or CQLRING_UNSET without data. */
typedef struct cqlring_bytes {
    const void *data;
    int32_t size;
} cqlring_bytes;

#define CQLRING_NULL (-1)  /* the cell is null */
#define CQLRING_UNSET (-2) /* bound values only (v4+): leave the column as it is */

/* A slice of a NUL-terminated string (without the NUL). NULL becomes an empty slice. */
static inline cqlring_bytes cqlring_text(const char *string)
{
    /* A slice counts in 31 bits. A longer string cannot be told of here; it is cut, and whoever takes
       the slice refuses it as too large. */
    size_t size = string != NULL ? strlen(string) : 0;
    cqlring_bytes text = {string != NULL ? string : "", size < INT32_MAX ? (int32_t)size : INT32_MAX};
    return text;
}

/* Consistency levels; the wire's values but for ANY, because 0 stands for the default. */
typedef enum cqlring_consistency {
    CQLRING_CONSISTENCY_DEFAULT = 0,
    CQLRING_ONE = 1,
    CQLRING_TWO = 2,
    CQLRING_THREE = 3,
    CQLRING_QUORUM = 4,
    CQLRING_ALL = 5,
    CQLRING_LOCAL_QUORUM = 6,
    CQLRING_EACH_QUORUM = 7,
    CQLRING_SERIAL = 8,
    CQLRING_LOCAL_SERIAL = 9,
    CQLRING_LOCAL_ONE = 10,
    CQLRING_ANY = 0x100
} cqlring_consistency;

typedef enum cqlring_tristate { CQLRING_DEFAULT = 0, CQLRING_NO = 1, CQLRING_YES = 2 } cqlring_tristate;

#ifdef __cplusplus
} /* extern "C" */
static_assert(sizeof(cqlring_error) == 512, "cqlring_error is 512 bytes");
#else
_Static_assert(sizeof(cqlring_error) == 512, "cqlring_error is 512 bytes");
#endif

#endif
