/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_STORM_H
#define PROXY_STORM_H

/* A bulk job through a proxy that goes wrong, and the rows read back without: what every fault must leave true, on whatever node.
   The public interface alone. */

#include "driver/cqlring.h"
#include "proxy.h"

struct storm {
    cqlring_session *session;  /* through this proxy */
    struct proxy *proxy;
    const char *table;         /* (k bigint PRIMARY KEY, v blob); keys from 0 are written */
    uint64_t rows;
    bool idempotent;
    int64_t attempt_timeout_us; /* 0: the default */
    struct proxy_fault faults[PROXY_KINDS];
    uint32_t fault_count;

    /* What came of it. */
    struct proxy_counts counts;
    uint64_t ok, failed, maybe, attempts, retries;
    uint64_t unseen; /* attempts that had not left when their connection ended */
    uint32_t attempts_max;
    int64_t took_us;
};

/* True: everything held. Else message says what did not. What must hold:
   - every row has one outcome; idempotent rows all succeed; of the others only rows that a fault hit fail, and each of them is
     marked as one that may have been applied;
   - no row was sent more often than once, and once for each fault that hit it: as the proxy saw it, row by row, so exactly. It says
     as many attempts, and one more at most for each connection that ended before the attempt had left;
   - there was no moment with a connection that was well and nothing under way, but for the longest back-off of a row that was hit so
     often and some 30 ms;
   - every acknowledged row is read back as it was written, and no row is there that was not written so;
   - each fault has struck; no connection ended that no fault had struck; nobody sent what is no protocol. */
bool storm_run(struct storm *storm, char *message, size_t message_size);

/* A fault of this kind such that it strikes so many rows several times. */
struct proxy_fault storm_fault(enum proxy_kind kind, uint64_t rows);
/* All of them together, the rare ones first; returns how many. */
uint32_t storm_faults(struct proxy_fault faults[PROXY_KINDS], uint64_t rows);
/* What came of it, in a line. */
void storm_text(const struct storm *storm, char *text, size_t size);

#endif
