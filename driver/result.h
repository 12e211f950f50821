/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RESULT_H
#define CQR_RESULT_H

/* A RESULT as the application sees it: slices into the block that was received. Made by the submitter when the reply is
   settled, immutable afterwards but for the row cursor (one reader at a time), counted, released by anyone. */

#include <stdatomic.h>

#include "cql/response.h"
#include "cql/rows.h"
#include "driver/cqlring.h"
#include "serialize/block.h"

struct failure;
struct runtime_core;
struct statement_version;

/* Column descriptions that several results share: those of a prepared version, or of one result with metadata of its own.
   Immutable, counted. */
struct column_set {
    atomic_uint references;
    struct arena arena;
    struct columns columns;          /* strings are NUL-terminated in the arena */
    bool sealed;                     /* columns.raw is the set's own */
};
struct column_set *cqr_column_set_create(void);   /* columns empty; NULL when out of memory */
/* After columns have been decoded into its arena, before it is shared: takes a copy of columns.raw, so that answers with
   the same bytes can reuse the set, and forgets what else points into the body. When the copy fails, nothing is reused. */
void cqr_column_set_seal(struct column_set *set);
struct column_set *cqr_column_set_retain(struct column_set *set);
void cqr_column_set_release(struct column_set *set);
bool cqr_column_set_public(const struct column_set *set, uint32_t index, cqlring_column *column);

/* What cqlring_next_page needs to ask again: kept by a paged result. */
struct page_source;

struct cqlring_result {
    atomic_uint references;
    struct block *home;              /* the pooled block that holds this struct; NULL: an allocation of its own */
    uint32_t kind;                   /* enum result_kind; 0 for other answers (READY to a REGISTER …) */
    struct block *block;             /* one reference; NULL after detach (bytes then follow the struct) */
    uint32_t pinned_size;
    struct response_prefix prefix;
    struct column_set *columns;      /* ROWS: a reference */
    uint32_t column_count, row_count;
    cqlring_bytes rows;
    cqlring_bytes paging_state;      /* data NULL: last page */
    struct rows_cursor cursor;       /* of cqlring_result_rows: next_row is where it stands */
    uint32_t next_row;
    struct schema_change schema;     /* RESULT_SCHEMA */
    cqlring_bytes keyspace;          /* RESULT_KEYSPACE */
    int8_t agreed;                   /* RESULT_SCHEMA: do all nodes have it? −1: nobody waited */
    struct page_source *source;      /* owned; NULL: next_page is refused */
    void (*source_free)(struct page_source *source);
    struct page_source *(*source_retain)(struct page_source *source); /* for a detached copy; NULL: it gets no source */
};

/* Makes a result of a RESULT's body behind prefix and kind. `known` are the columns to use where the server left them out
   (may be NULL: then NO_METADATA with columns is CQLRING_PROTOCOL). *changed, when not NULL, is set to a new reference of the
   columns and *changed_id to the id when the answer says METADATA_CHANGED. Takes a reference of block on success only.
   On failure *failure tells why (PROTOCOL, TYPE for an unknown type, NO_MEMORY). RESULT_PREPARED is not for here. */
cqlring_status cqr_result_make(const struct dialect *dialect, struct block *block, cqlring_bytes body, uint32_t kind,
                               const struct response_prefix *prefix, struct column_set *known, cqlring_result **result,
                               struct column_set **changed, cqlring_bytes *changed_id, struct failure **failure);
/* The same, with the result's own memory from a pool of the lane's (blocks of at least sizeof(cqlring_result)), so that
   reading costs no allocation either. NULL: an allocation. */
cqlring_status cqr_result_make_in(struct block_pool *pool, const struct dialect *dialect, struct block *block,
                                  cqlring_bytes body, uint32_t kind, const struct response_prefix *prefix,
                                  struct column_set *known, cqlring_result **result, struct column_set **changed,
                                  cqlring_bytes *changed_id, struct failure **failure);


bool cqr_failure_detail(const struct failure *failure, cqlring_error_detail *detail); /* false: it was no server's ERROR */

#endif
