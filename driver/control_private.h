/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CONTROL_PRIVATE_H
#define CQR_CONTROL_PRIVATE_H

/* What the two files of the control connection share: control.c, its life, and control_read.c, what is read and heard on it.
   One state, one timer: what the timer means follows from the state. Lane 0's submitter. */

#include <assert.h>

#include "driver/lane.h"
#include "driver/lookup.h"
#include "driver/session.h"

enum control_state {
    CONTROL_IDLE,
    CONTROL_AWAIT_ADDRESSES,  /* names are being resolved */
    CONTROL_AWAIT_CONNECTION, /* candidate `at` is being connected */
    CONTROL_AWAIT_LOCAL,
    CONTROL_AWAIT_PEERS,
    CONTROL_AWAIT_ROUTES,     /* client_routes only, as the next */
    CONTROL_AWAIT_NAMES,      /* of routes, from the resolver: the timer is the end of patience */
    CONTROL_AWAIT_TABLETS,    /* ScyllaDB only */
    CONTROL_AWAIT_KEYSPACES,
    CONTROL_UP,               /* nothing under way; the timer, if armed, is the next reading */
    CONTROL_AWAIT_RETRY,      /* all candidates failed: the timer is the next round */
    CONTROL_STOPPED
};

struct control {
    struct cqlring_cluster *cluster;
    struct lane *lane;
    enum control_state state;
    struct timer timer;
    struct pool_link link;
    struct handshake_config config;
    struct lookup lookup;
    struct resolution first;      /* caller mode: names are resolved in open only (decision 17), so this is kept */
    bool has_first;
    struct resolved_address *candidates;
    uint32_t candidate_count, at;
    uint8_t version_try;          /* the candidate closed without a word: a lower version with it, once; 0: the cluster's */
    uint32_t rounds;              /* rounds over all candidates that failed, since the last success */
    char failures[400];
    cqlring_status failure_status;
    int32_t failure_code;         /* the last one's, of the server; 0: none */
    char failure_node[64];
    bool failures_differ;
    bool old_peers;               /* no system.peers_v2 here */
    bool again;                   /* something happened while reading */
    uint32_t again_left;          /* more readings for a node that does not show up yet (RC-14) */
    bool peers_were_empty;        /* once is not believed (RC-23) */
    cqlring_result *local, *peers, *tablets;
};

static inline void cqr_control_state_set(struct control *control, enum control_state state)
{
    assert(control->state != CONTROL_STOPPED);
    control->state = state;
}

/* control_read.c */
void cqr_control_read(struct control *control);          /* the tables from the first one on; the connection is up */
void cqr_control_results_drop(struct control *control);  /* of a reading that went no further */
void cqr_control_routes_settle(struct control *control); /* names that are not found by now are done without */
void cqr_control_event(struct lane *lane, struct pool_link *link, const struct conn_event *event); /* NULL: some were lost */

#endif
