/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NODE_ENGINE_PRIVATE_H
#define NODE_ENGINE_PRIVATE_H

/* What the engine's files share among themselves. */

#include "tests/node/engine.h"

/* --- plans: what resolving leaves for running ------------------------------------------------- */

struct output {
    cqlring_bytes label;
    const struct node_type *type;
    struct selector *selector;
};

/* Restrictions of a table's key. */
struct key_plan {
    struct relation **partition;    /* per component; NULL: not restricted */
    bool partition_whole;           /* each is = or IN */
    bool partition_single;          /* each is = */
    struct relation **clustering;   /* = or IN, a prefix */
    uint16_t clustering_count;      /* length of that prefix */
    struct relation *lower, *upper; /* slices of the component behind the prefix */
    struct relation *token_lower, *token_upper, *token_equal;
    bool multi; /* lower/upper compare tuples from the first component on */
};

struct select_plan {
    struct key_plan key;
    struct output *outputs;
    uint32_t output_count;
    bool aggregate;
    bool reversed;
    bool statics_only; /* DISTINCT, or only key and static columns asked with DISTINCT */
    struct relation *filters[32];
    uint32_t filter_count;
    struct node_column **group_by;
    uint16_t group_count;
    uint64_t hash; /* of the statement, in paging states */
};

struct modify_plan {
    struct key_plan key;
    bool writes_static_only;
    bool writes_regular;
    bool is_counter;
    bool conditional;
    bool whole_row; /* DELETE without columns */
};

/* --- terms ------------------------------------------------------------------------------------ */

/* The payload of a term as a value of this type; CQLRING_NULL, CQLRING_UNSET. false: query has
   failed. what names the column in messages. */
bool node_term_value(struct query *query, const struct term *term, const struct node_type *type,
                     cqlring_bytes what, cqlring_bytes *value);
/* As many values as markers, each of its marker's type. */
bool node_check_values(struct query *query, const struct statement *root);
/* At resolve time: gives bind markers inside the term their type and label, folds constants. */
bool node_term_resolve(struct query *query, struct statement *root, struct term *term,
                       const struct node_type *type, const struct node_table *table,
                       cqlring_bytes label, struct node_column *column, struct node_arena *arena);
const struct node_type *node_type_resolve(struct query *query, const struct type_ast *ast,
                                          struct node_keyspace *keyspace, struct node_arena *arena,
                                          bool frozen);
/* Functions on values are in functions.h. */
bool node_function_call(struct query *query, uint16_t number, const struct node_type *const *types,
                        const cqlring_bytes *arguments, uint16_t count, cqlring_bytes *value);

/* --- keys ------------------------------------------------------------------------------------- */

bool node_resolve_key(struct query *query, struct statement *root, struct statement *statement,
                      struct key_plan *key, struct node_arena *arena);
bool node_resolve_relation(struct query *query, struct statement *root, struct statement *statement,
                           struct relation *relation, struct node_arena *arena);
bool node_resolve_select(struct query *query, struct statement *root, struct statement *statement,
                         struct node_arena *arena);
bool node_resolve_modify(struct query *query, struct statement *root, struct statement *statement,
                         struct node_arena *arena);
bool node_resolve_name(struct query *query, const struct node_table *table, struct name_list *name);
cqlring_bytes node_label_of(struct node_arena *arena, const char *before, cqlring_bytes name,
                            const char *after);
struct node_table *node_resolve_table(struct query *query, cqlring_bytes keyspace,
                                      cqlring_bytes name);

/* Values of an = or IN relation, sorted and without duplicates, in query->arena. */
struct value_list {
    cqlring_bytes *values;
    uint32_t count;
};
bool node_relation_values(struct query *query, const struct relation *relation,
                          const struct node_type *type, struct value_list *out);
/* Routing key of components. */
cqlring_bytes node_compose_key(struct query *query, const cqlring_bytes *parts, uint16_t count);
cqlring_bytes node_compose_clustering(struct query *query, const cqlring_bytes *parts,
                                      uint16_t count);
/* All partition keys that the plan names. */
bool node_partition_keys(struct query *query, const struct statement *statement,
                         const struct key_plan *key, cqlring_bytes **keys, uint32_t *count);
struct node_storage *node_storage_of(struct query *query, struct node_table *table);

/* Where a page ended, as a paging state carries it. */
struct paging_point {
    bool inside;   /* false: at the beginning */
    int64_t token; /* the last row's partition … */
    cqlring_bytes key;
    bool has_row; /* … and row; false: its static row alone */
    cqlring_bytes row;
    uint64_t limit; /* rows that LIMIT leaves */
    uint64_t given; /* rows given of this partition, for PER PARTITION LIMIT */
};
cqlring_bytes node_paging_encode(struct node_arena *arena, uint64_t hash, uint8_t version,
                                 const struct paging_point *point);
bool node_paging_decode(struct query *query, uint64_t hash, cqlring_bytes state,
                        struct paging_point *point);

/* --- running ---------------------------------------------------------------------------------- */

/* One row while it is looked at. */
struct row_view {
    const struct node_table *table;
    struct node_storage *storage;
    const struct node_partition *partition;
    const struct node_row *row; /* NULL: only static */
    int64_t row_deleted_at, fixed_deleted_at;
    uint32_t now;
};
cqlring_bytes node_view_value(struct query *query, const struct row_view *view,
                              const struct node_column *column);
bool node_view_matches(struct query *query, const struct row_view *view,
                       const struct relation *relation, bool *matches);

void node_put_rows(struct query *query, const struct statement *statement,
                   cqlring_bytes paging_state, uint32_t count, const struct out *rows);
bool node_run_select(struct query *query, struct statement *statement);
bool node_run_modify(
    struct query *query,
    struct statement *statement); /* one that is not part of a batch; writes the answer */
bool node_run_modify_batch(struct query *query, uint8_t kind, struct batch_part *parts,
                           uint32_t count, const struct statement *root);
bool node_run_schema(struct query *query, struct statement *statement);
bool node_run_table_schema(struct query *query, struct statement *statement,
                           struct node_keyspace *keyspace);
void node_truncate(struct node_engine *engine, struct node_table *table);

/* Metadata of result rows. changed_id NULL: no METADATA_CHANGED. */
void node_put_columns(struct query *query, const struct node_table *table,
                      const struct output *outputs, uint32_t count, uint32_t flags,
                      cqlring_bytes paging_state, const uint8_t *changed_id);
void node_metadata_id(const struct output *outputs, uint32_t count, uint8_t id[16]);
void node_hash128(cqlring_bytes bytes, uint8_t out[16]);
bool node_check_alive(struct query *query, struct node_keyspace *keyspace, int64_t token);
uint32_t node_query_second(const struct query *query);
int64_t node_query_timestamp(struct query *query);

/* --- schema ----------------------------------------------------------------------------------- */

/* The system keyspaces' own description costs most of a start and is seldom read: written on
   demand. */
void node_system_show(struct node_engine *engine, int64_t now_us);
void node_system_create(struct node_engine *engine, int64_t now_us);
void node_system_write_keyspace(struct node_engine *engine, struct node_keyspace *keyspace,
                                int64_t now_us);
void node_system_write_table(struct node_engine *engine, struct node_table *table, int64_t now_us);
void node_system_write_type(struct node_engine *engine, struct node_keyspace *keyspace,
                            struct node_udt *udt, int64_t now_us);
void node_system_erase(struct node_engine *engine, cqlring_bytes keyspace, cqlring_bytes table,
                       cqlring_bytes udt, int64_t now_us);
void node_system_write_members(struct node_engine *engine, int64_t now_us);
void node_schema_changed(struct query *query, const char *change, const char *target,
                         cqlring_bytes keyspace, cqlring_bytes name);
void node_schema_changed_with(struct query *query, const char *change, const char *target,
                              cqlring_bytes keyspace, cqlring_bytes name,
                              cqlring_bytes arguments); /* raw, behind the name; may be empty */
void node_system_run(struct node_engine *engine, int64_t now_us, const struct out *text);
void node_put_quoted(struct out *out, cqlring_bytes text); /* 'text' with its quotes doubled */
bool node_table_options_apply(struct query *query, const struct statement *statement,
                              struct node_table *table);
void node_table_options_names(struct out *out); /* ", comment, …": columns of system_schema */
void node_table_options_values(const struct node_table *table, struct out *out);
struct node_table *node_table_make(struct node_engine *engine, struct node_keyspace *keyspace,
                                   cqlring_bytes name); /* empty, not yet in the keyspace */
struct node_column *node_table_column(struct node_table *table, cqlring_bytes name,
                                      const struct node_type *type, enum column_kind kind,
                                      uint16_t position); /* position: of keys */
bool node_table_clustering_order(struct query *query, const struct statement *statement,
                                 struct node_table *table);
void node_table_add(struct query *query, struct node_table *table, const char *change);
bool node_run_function_schema(struct query *query, const struct statement *statement,
                              struct node_keyspace *keyspace);
void node_functions_free(struct node_keyspace *keyspace);
void node_keyspace_drop_cache(struct node_keyspace *keyspace);
void node_table_free(struct node_engine *engine, struct node_table *table);
void node_keyspace_free(struct node_engine *engine, struct node_keyspace *keyspace);
bool node_replication_parse(struct query *query, struct node_keyspace *keyspace,
                            const struct option_list *options);
void node_replication_resolve(struct node_engine *engine, struct node_keyspace *keyspace);

#endif
