/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_PREPARED_H
#define CQR_PREPARED_H

/* A prepared statement: a handle with an atomic pointer to an immutable version (decision 32). A version names what one
   PREPARED answer said; a changed result (METADATA_CHANGED, re-prepare) makes a new version, or finds an older one that said
   the same, and swaps the pointer. Versions live as long as their statement, so an op may keep the one it was encoded with
   without counting; nodes that contradict one another make the pointer go to and fro, not the list grow.

   The cluster's cache finds statements by (keyspace, text): the same text in flight is asked for once by each session (single
   flight). The cache holds no reference; the last release takes the statement out. */

#include <pthread.h>

#include "driver/result.h"

struct cqlring_cluster;
struct cqlring_prepared;
struct execution;
struct lane;
struct conn;
struct op;

enum { STATEMENT_ID_MAX = 256, KEY_PARTS_MAX = 64 };

struct statement_version {
    struct statement_version *older;  /* all of a statement's are a list */
    struct cqlring_prepared *prepared;
    uint64_t number;                  /* its own for ever, from 1: what is remembered of it is found by this, since memory is used again */
    uint8_t id[STATEMENT_ID_MAX];
    uint16_t id_size;
    uint8_t metadata_id[STATEMENT_ID_MAX];
    uint16_t metadata_id_size;        /* 0: none known, sent as empty */
    struct column_set *bind, *result; /* result: NULL when the PREPARED had no metadata */
    uint16_t key_count;
    uint16_t key_parts[KEY_PARTS_MAX]; /* indexes of bind markers that make the partition key */
    bool is_lwt, is_read;
    bool is_counter;                  /* a marker is a counter's; `n = n + 1` has none that tells */
    char keyspace[64], table[64];     /* "" unknown */
    atomic_uint reply_max;            /* expected reply (decision 21); written by submitters, relaxed */
    atomic_uint reply_window;         /* largest of the present 64, and how many: size | count */
};

struct cqlring_prepared {
    uint32_t fork_generation;
    struct cqlring_cluster *cluster;  /* a reference, while the statement is ready */
    struct cqlring_prepared *next, **link; /* in the cache's bucket; under the cluster's lock */
    uint64_t hash;
    char *keyspace;                   /* of the session or the request it was prepared with; "" none */
    char *text;
    uint32_t text_size;
    bool request_keyspace;            /* keyspace is sent in the PREPARE (v5) */
    bool ready;                       /* under the cluster's lock */
    struct prepare_waiter *waiters;
    _Atomic(struct statement_version *) versions; /* the newest made; only ever grows */
    _Atomic(struct statement_version *) current;
    _Alignas(64) atomic_uint references; /* every request writes it, and reads the rest */
};

enum { PREPARED_BUCKETS = 256 };
struct prepared_cache {
    struct cqlring_prepared *buckets[PREPARED_BUCKETS];
};

struct cqlring_prepared *cqr_prepared_retain(struct cqlring_prepared *prepared);
static inline struct statement_version *cqr_prepared_version(struct cqlring_prepared *prepared)
{
    return atomic_load_explicit(&prepared->current, memory_order_acquire); /* pairs with the release of the swap */
}
void cqr_versions_free(struct statement_version *version); /* and all that are older */
/* Expected bytes of a reply, and a reply's size noted. Submitter. */
uint32_t cqr_version_reply_expected(const struct statement_version *version);
void cqr_version_reply_note(struct statement_version *version, uint32_t size);
static inline void cqr_version_reply_seen(struct statement_version *version, uint32_t size)
{
    if (size > 0 || atomic_load_explicit(&version->reply_max, memory_order_relaxed) > 0) /* else a write's: nothing, as ever */
        cqr_version_reply_note(version, size);
}

/* Have both the same bind markers, so that cells for the one are cells for the other? */
bool cqr_markers_equal(const struct statement_version *a, const struct statement_version *b);

/* A PREPARED answer becomes the statement's version (the same version when nothing changed). Submitter. */
cqlring_status cqr_prepared_learn(struct cqlring_prepared *prepared, const struct dialect *dialect, cqlring_bytes body,
                                  struct statement_version **version, struct failure **failure);
/* METADATA_CHANGED: columns and id swapped as one unit. */
void cqr_prepared_metadata(struct statement_version *version, struct column_set *columns, cqlring_bytes id);

/* A prepare that was cancelled stops waiting; the PREPARE itself goes on, for others. Submitter. */
void cqr_prepare_cancel(struct execution *execution);

/* reprepare.c. UNPREPARED: prepare `version`'s statement on op's connection (once for all that wait), then issue op again. Submitter. */
void cqr_reprepare(struct lane *lane, struct op *op, struct cqlring_prepared *prepared);
void cqr_reprepare_lost(struct lane *lane, struct conn *conn); /* conn is down, and about to be freed */
void cqr_reprepare_forget(struct lane *lane, struct op *op); /* op no longer waits for one */
/* Before a request needs it: prepared on conn unless that is under way. Its end is told to cqr_prepare_ahead_next. */
enum reprepare_ahead { REPREPARE_ASKED, REPREPARE_KNOWN, REPREPARE_NO_ROOM };
enum reprepare_ahead cqr_reprepare_ahead(struct lane *lane, struct conn *conn, struct cqlring_prepared *prepared);

#endif
