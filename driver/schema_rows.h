/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_SCHEMA_ROWS_H
#define CQR_SCHEMA_ROWS_H

/* The rows of system_schema made into a snapshot: pages go in, in the order of enum schema_query, keyspaces come out. A snapshot
   is a list of keyspaces that are counted by themselves, so that a reading of some of them shares the others with the snapshot
   before. Pure functions but for memory; one owner until the snapshot is shared, immutable from then on. */

#include <stdatomic.h>
#include <stdbool.h>

#include "driver/cqlring.h"
#include "serialize/mem.h"

/* What is asked for, in this order: types before columns that use them, tables before what belongs to them. */
enum schema_query {
    SCHEMA_QUERY_KEYSPACES,
    SCHEMA_QUERY_TABLETS,           /* ScyllaDB only */
    SCHEMA_QUERY_TYPES,
    SCHEMA_QUERY_TABLES,
    SCHEMA_QUERY_VIEWS,
    SCHEMA_QUERY_COLUMNS,
    SCHEMA_QUERY_INDEXES,
    SCHEMA_QUERY_FUNCTIONS,
    SCHEMA_QUERY_AGGREGATES,
    SCHEMA_QUERY_VIRTUAL_KEYSPACES, /* Cassandra 4.0 and later */
    SCHEMA_QUERY_VIRTUAL_TABLES,
    SCHEMA_QUERY_VIRTUAL_COLUMNS,
    SCHEMA_QUERIES
};

struct cqlring_schema {
    atomic_uint references;
    const cqlring_schema_keyspace **keyspaces; /* by name; each a counted `struct unit` (schema_unit.h) */
    uint32_t count;
};

struct schema_draft {
    struct unit **units;
    uint32_t count, capacity;
    struct unit *last;              /* where the last row belonged */
    bool is_virtual;
};

void cqr_schema_draft_init(struct schema_draft *draft);
/* A draft of one keyspace of `old` in which all stays as it is but these tables and views, whose rows will come; true. False: it has
   no such keyspace, or is itself made of too many such pieces: read it whole. *status: NO_MEMORY is told apart. */
bool cqr_schema_draft_tables(struct schema_draft *draft, const struct cqlring_schema *old, const char *keyspace, const char *const *tables, uint32_t count,
                             cqlring_status *status);
/* A page of rows. OK; NO_MEMORY; PROTOCOL when they cannot be read. Rows that make no sense, or are about what the rows before did
   not name, are left out: another reading will come. */
cqlring_status cqr_schema_draft_rows(struct schema_draft *draft, enum schema_query query, cqlring_result *rows);
/* After the last page of a query. */
cqlring_status cqr_schema_draft_end(struct schema_draft *draft, enum schema_query query);
/* Everything that was read, and of `old` (may be NULL) the keyspaces that are not among `names`. NULL: out of memory. The draft is
   used up either way. */
struct cqlring_schema *cqr_schema_draft_finish(struct schema_draft *draft, const struct cqlring_schema *old, const char *const *names, uint32_t name_count);
void cqr_schema_draft_fini(struct schema_draft *draft);

#endif
