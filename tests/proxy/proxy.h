/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_H
#define PROXY_H

/* Stands before a node, understands what passes (v4 frames, v5 segments, LZ4) and goes wrong on purpose, on a thread of its own.
   Faults strike EXECUTEs, counted over all connections, and the connections and replies that belong to them. Which key (the
   first value, a bigint) was hit how often is written down: a row may need one attempt, and one more for each fault that hit it.

   An attempt is hit when it was not answered as the node answered it: refused by the proxy, held back, or on a connection that
   ended before its reply had been passed on. Connections that the proxy gives up are closed towards the driver first and read
   to their end, so that what the driver had sent meanwhile is known too. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proxy;

enum proxy_kind {
    PROXY_DROP_DELIVERED, /* the node has executed it and answered; the connection ends instead */
    PROXY_CUT_REQUEST,    /* half of it goes to the node, then both ends are closed */
    PROXY_CUT_REPLY,      /* half of the reply, likewise */
    PROXY_RESET,          /* no reply passes any more; when the driver has sent nothing for 20 ms, so that all it sent is known, a reset */
    PROXY_HALF_OPEN,      /* from now on nothing passes on this connection, and nothing closes it */
    PROXY_REFUSE,         /* every connection ends, none is accepted for `ms` */
    PROXY_OVERLOADED,     /* ERROR 0x1001 in place of the node */
    PROXY_UNPREPARED,     /* a storm: this EXECUTE and the next count - 1 are answered so in place of the node */
    PROXY_LIE,            /* the reply's length, or its segment's, is not true (v4: only too small; nobody could tell) */
    PROXY_SPLIT,          /* from now on the driver gets one byte a send, the node seven */
    PROXY_LATE,           /* the reply waits for `ms` */
    PROXY_TWICE,          /* the reply, and again */
    PROXY_REORDER,        /* the reply and the next count - 1 of this connection in reverse, or those that came in 5 ms */
    PROXY_UNKNOWN_STREAM, /* before the reply another one on a stream that nobody uses */
    PROXY_KINDS
};
const char *proxy_kind_name(enum proxy_kind kind);

/* Strikes each `every`-th EXECUTE after the first `after`, or the next that nothing else strikes, `times` times at most (0: no limit). */
struct proxy_fault {
    enum proxy_kind kind;
    uint64_t every, after, times;
    uint32_t count, ms;
};

/* Listens on 127.0.0.1; keys: how many of them are counted, from 0. NULL: message tells why. */
struct proxy *proxy_start(const char *address, uint16_t port, uint64_t keys, char *message, size_t message_size);
void proxy_stop(struct proxy *proxy);
uint16_t proxy_port(const struct proxy *proxy);

void proxy_fault(struct proxy *proxy, const struct proxy_fault *fault); /* up to 16; the first whose turn it is strikes */
/* No faults any more; connections stay as they are. No row is waited for: what was not answered until now is hit. */
void proxy_calm(struct proxy *proxy);
void proxy_forget(struct proxy *proxy);                                 /* hits and counts begin again */

struct proxy_counts {
    uint64_t executes, replies; /* seen; passed on */
    uint64_t struck[PROXY_KINDS];
    uint64_t hits;              /* attempts that a fault hit */
    uint64_t ended;             /* connections that a fault has ended, or that ended after one */
    uint64_t unexplained;       /* those that ended with requests under way and without a fault */
    uint64_t connections;
    uint32_t open;              /* at present */
    int64_t idle_max_us;        /* longest time with nothing under way (rows, PREPAREs, bytes) on any well connection while one was there,
                                   without the time in which this process waited for a processor … */
    bool malformed;             /* somebody sent what is no envelope or segment */
};
void proxy_counts(struct proxy *proxy, struct proxy_counts *counts);
/* … between these two: while rows are there to be sent. */
void proxy_work(struct proxy *proxy, bool begins);
uint32_t proxy_hits(struct proxy *proxy, uint64_t key);
uint32_t proxy_seen(struct proxy *proxy, uint64_t key); /* EXECUTEs of it between these two */

#endif
