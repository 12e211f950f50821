/* SPDX-License-Identifier: Apache-2.0 */
/* The system keyspaces, as Cassandra 5.0 shows them: made by CQL, filled by CQL. What other drivers
   read when they connect. */
#include "tests/node/engine_private.h"

#include <stdio.h>
#include <stdlib.h>

#define LOCAL_STRATEGY " WITH replication = {'class': 'LocalStrategy'}"

static const char *const keyspaces[] = {
    "CREATE KEYSPACE system" LOCAL_STRATEGY,
    "CREATE KEYSPACE system_schema" LOCAL_STRATEGY,
    "CREATE KEYSPACE system_virtual_schema" LOCAL_STRATEGY,
    "CREATE KEYSPACE system_views" LOCAL_STRATEGY,
    "CREATE KEYSPACE system_traces WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '2'}",
    "CREATE KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '1'}",
    "CREATE KEYSPACE system_distributed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '3'}",
};

static const char *const schema_tables[] = {
    "CREATE TABLE system_schema.keyspaces (keyspace_name text PRIMARY KEY, durable_writes boolean, replication frozen<map<text, text>>)",
    "CREATE TABLE system_schema.tables (keyspace_name text, table_name text, additional_write_policy text, allow_auto_snapshot boolean, bloom_filter_fp_chance double, "
    "caching frozen<map<text, text>>, cdc boolean, comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, "
    "dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, flags frozen<set<text>>, gc_grace_seconds int, id uuid, "
    "incremental_backups boolean, max_index_interval int, memtable text, memtable_flush_period_in_ms int, min_index_interval int, read_repair text, "
    "read_repair_chance double, speculative_retry text, PRIMARY KEY (keyspace_name, table_name))",
    "CREATE TABLE system_schema.columns (keyspace_name text, table_name text, column_name text, clustering_order text, column_name_bytes blob, kind text, position int, "
    "type text, PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE system_schema.types (keyspace_name text, type_name text, field_names frozen<list<text>>, field_types frozen<list<text>>, "
    "PRIMARY KEY (keyspace_name, type_name))",
    "CREATE TABLE system_schema.indexes (keyspace_name text, table_name text, index_name text, kind text, options frozen<map<text, text>>, "
    "PRIMARY KEY (keyspace_name, table_name, index_name))",
    "CREATE TABLE system_schema.functions (keyspace_name text, function_name text, argument_types frozen<list<text>>, argument_names frozen<list<text>>, body text, "
    "called_on_null_input boolean, language text, return_type text, PRIMARY KEY (keyspace_name, function_name, argument_types))",
    "CREATE TABLE system_schema.aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, final_func text, initcond text, return_type text, "
    "state_func text, state_type text, PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    "CREATE TABLE system_schema.triggers (keyspace_name text, table_name text, trigger_name text, options frozen<map<text, text>>, "
    "PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    "CREATE TABLE system_schema.views (keyspace_name text, view_name text, additional_write_policy text, allow_auto_snapshot boolean, base_table_id uuid, base_table_name text, "
    "bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, "
    "crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, "
    "include_all_columns boolean, incremental_backups boolean, max_index_interval int, memtable text, memtable_flush_period_in_ms int, min_index_interval int, "
    "read_repair text, read_repair_chance double, speculative_retry text, where_clause text, PRIMARY KEY (keyspace_name, view_name))",
    "CREATE TABLE system_schema.dropped_columns (keyspace_name text, table_name text, column_name text, dropped_time timestamp, kind text, type text, "
    "PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE system_schema.column_masks (keyspace_name text, table_name text, column_name text, function_argument_nulls frozen<list<boolean>>, "
    "function_argument_types frozen<list<text>>, function_argument_values frozen<list<text>>, function_keyspace text, function_name text, "
    "PRIMARY KEY (keyspace_name, table_name, column_name))",
};

static const char *const tables[] = {
    "CREATE TABLE system.local (key text PRIMARY KEY, bootstrapped text, broadcast_address inet, broadcast_port int, cluster_name text, cql_version text, data_center text, "
    "gossip_generation int, host_id uuid, listen_address inet, listen_port int, native_protocol_version text, partitioner text, rack text, release_version text, "
    "rpc_address inet, rpc_port int, schema_version uuid, tokens set<text>, truncated_at map<uuid, blob>)",
    "CREATE TABLE system.peers (peer inet PRIMARY KEY, data_center text, host_id uuid, preferred_ip inet, rack text, release_version text, rpc_address inet, "
    "schema_version uuid, tokens set<text>)",
    "CREATE TABLE system_virtual_schema.keyspaces (keyspace_name text PRIMARY KEY)",
    "CREATE TABLE system_virtual_schema.tables (keyspace_name text, table_name text, comment text, PRIMARY KEY (keyspace_name, table_name))",
    "CREATE TABLE system_virtual_schema.columns (keyspace_name text, table_name text, column_name text, clustering_order text, column_name_bytes blob, kind text, position int, "
    "type text, PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE system_traces.sessions (session_id uuid PRIMARY KEY, client inet, command text, coordinator inet, coordinator_port int, duration int, "
    "parameters map<text, text>, request text, started_at timestamp)",
    "CREATE TABLE system_traces.events (session_id uuid, event_id timeuuid, activity text, source inet, source_elapsed int, source_port int, thread text, "
    "PRIMARY KEY (session_id, event_id))",
    "CREATE TABLE system_auth.roles (role text PRIMARY KEY, can_login boolean, is_superuser boolean, member_of set<text>, salted_hash text)",
};

static const char peers_v2[] =
    "CREATE TABLE system.peers_v2 (peer inet, peer_port int, data_center text, host_id uuid, native_address inet, native_port int, preferred_ip inet, preferred_port int, "
    "rack text, release_version text, schema_version uuid, tokens set<text>, PRIMARY KEY (peer, peer_port))";

static const char client_routes[] =
    "CREATE TABLE system.client_routes (connection_id text, host_id uuid, address text, port int, tls_port int, alternator_port int, alternator_https_port int, "
    "PRIMARY KEY (connection_id, host_id))";

static const char *const scylla_tables[] = {
    "CREATE TABLE system_schema.scylla_keyspaces (keyspace_name text PRIMARY KEY, initial_tablets int, storage_options map<text, text>, storage_type text)",
    "CREATE TABLE system_schema.scylla_tables (keyspace_name text, table_name text, cdc map<text, text>, partitioner text, version uuid, PRIMARY KEY (keyspace_name, table_name))",
};

/* Runs a statement of ours; it cannot fail but by a mistake of ours. */
static void run(struct node_engine *engine, uint32_t coordinator, int64_t now_us,
                const struct out *text)
{
    struct node_arena arena = {0};
    struct out body = {0};
    struct query query = {.engine = engine,
                          .coordinator = coordinator,
                          .now_us = now_us,
                          .version = PROTO_V5,
                          .type_version = PROTO_V5,
                          .arena = &arena,
                          .body = &body,
                          .code = -1};
    bool was = engine->bootstrapping;
    engine->bootstrapping = true;
    if (!node_run_text(&query, out_view(text, 0))) {
        (void)fprintf(stderr, "node: %.*s: %s\n", (int)text->size, (const char *)text->data,
                      query.message);
        abort();
    }
    engine->bootstrapping = was;
    node_out_fini(&body);
    node_arena_fini(&arena);
}

void node_system_run(struct node_engine *engine, int64_t now_us, const struct out *text)
{
    run(engine, 0, now_us, text);
}

static void run_text(struct node_engine *engine, int64_t now_us, const char *text)
{
    struct out out = {0};
    out_raw(&out, text, strlen(text));
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

/* 'text' with its quotes doubled. */
void node_put_quoted(struct out *out, cqlring_bytes text)
{
    out_u8(out, '\'');
    for (int32_t i = 0; i < text.size; ++i) {
        if (slice_data(text)[i] == '\'')
            out_u8(out, '\'');
        out_u8(out, slice_data(text)[i]);
    }
    out_u8(out, '\'');
}

static void put_uuid(struct out *out, const uint8_t id[16])
{
    for (int i = 0; i < 16; ++i)
        node_out_printf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
}

/* --- schema ----------------------------------------------------------------------------------- */

/* Which keyspaces are routed by tablets. */
static void write_tablets(struct node_engine *engine, const struct node_keyspace *keyspace,
                          int64_t now_us)
{
    if (engine->options->shards == 0 || !keyspace->tablets)
        return;
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system_schema.scylla_keyspaces (keyspace_name, initial_tablets) VALUES (");
    node_put_quoted(&out, keyspace->name);
    node_out_printf(&out, ", 0)");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

void node_system_write_keyspace(struct node_engine *engine, struct node_keyspace *keyspace,
                                int64_t now_us)
{
    if (keyspace->is_system && !engine->system_shown)
        return;
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system_schema.keyspaces (keyspace_name, durable_writes, replication) VALUES (");
    node_put_quoted(&out, keyspace->name);
    node_out_printf(&out, ", %s, {'class': ", keyspace->durable_writes ? "true" : "false");
    node_put_quoted(&out, keyspace->strategy);
    for (uint16_t i = 0; i < keyspace->option_count; ++i) {
        node_out_printf(&out, ", ");
        node_put_quoted(&out, keyspace->option_names[i]);
        node_out_printf(&out, ": ");
        node_put_quoted(&out, keyspace->option_values[i]);
    }
    node_out_printf(&out, "})");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
    write_tablets(engine, keyspace, now_us);
}

static void erase_rows(struct node_engine *engine, int64_t now_us, const char *table,
                       cqlring_bytes keyspace, const char *column, cqlring_bytes name)
{
    struct out out = {0};
    node_out_printf(&out, "DELETE FROM system_schema.%s WHERE keyspace_name = ", table);
    node_put_quoted(&out, keyspace);
    if (name.size >= 0) {
        node_out_printf(&out, " AND %s = ", column);
        node_put_quoted(&out, name);
    }
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

static void write_column(struct node_engine *engine, const struct node_table *table,
                         const struct node_column *column, int64_t now_us)
{
    static const char *const kinds[] = {"partition_key", "clustering", "static", "regular"};
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system_schema.columns (keyspace_name, table_name, column_name, clustering_order, column_name_bytes, kind, position, type) VALUES (");
    node_put_quoted(&out, table->keyspace->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, table->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, column->name);
    node_out_printf(&out, ", '%s', 0x",
                    column->kind != COLUMN_CLUSTERING ? "none"
                    : column->reversed                ? "desc"
                                                      : "asc");
    for (int32_t i = 0; i < column->name.size; ++i)
        node_out_printf(&out, "%02x", slice_data(column->name)[i]);
    node_out_printf(&out, ", '%s', %d, ", kinds[column->kind],
                    column->kind <= COLUMN_CLUSTERING ? (int)column->position : -1);
    struct out type = {0};
    node_type_print(column->type, true, &type);
    node_put_quoted(&out, out_view(&type, 0));
    node_out_fini(&type);
    node_out_printf(&out, ")");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

static void write_index(struct node_engine *engine, const struct node_table *table,
                        const struct node_index *index, int64_t now_us)
{
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system_schema.indexes (keyspace_name, table_name, index_name, kind, options) VALUES (");
    node_put_quoted(&out, table->keyspace->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, table->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, index->name);
    node_out_printf(&out,
                    ", '%s', {'target': ", index->class_name.size > 0 ? "CUSTOM" : "COMPOSITES");
    node_put_quoted(&out, index->target);
    if (index->class_name.size > 0) {
        node_out_printf(&out, ", 'class_name': ");
        node_put_quoted(&out, index->class_name);
    }
    out_slice(&out, index->options);
    node_out_printf(&out, "})");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

void node_system_write_table(struct node_engine *engine, struct node_table *table, int64_t now_us)
{
    if (table->keyspace->is_system && !engine->system_shown)
        return;
    erase_rows(engine, now_us, "columns", table->keyspace->name, "table_name", table->name);
    erase_rows(engine, now_us, "indexes", table->keyspace->name, "table_name", table->name);
    struct out out = {0};
    node_out_printf(&out, "INSERT INTO system_schema.%s (keyspace_name, %s, id, extensions, %s",
                    table->is_view ? "views" : "tables",
                    table->is_view ? "view_name" : "table_name",
                    table->is_view
                        ? "base_table_id, base_table_name, include_all_columns, where_clause"
                        : "flags");
    node_table_options_names(&out);
    node_out_printf(&out, ") VALUES (");
    node_put_quoted(&out, table->keyspace->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, table->name);
    node_out_printf(&out, ", ");
    put_uuid(&out, table->id);
    node_out_printf(&out, ", {}, ");
    if (table->is_view) {
        put_uuid(&out, table->base_id);
        node_out_printf(&out, ", ");
        node_put_quoted(&out, table->base);
        node_out_printf(&out, ", %s, ", table->includes_all ? "true" : "false");
        node_put_quoted(&out, table->where);
    } else {
        node_out_printf(&out, "{'%s'}", table->is_counter ? "compound', 'counter" : "compound");
    }
    node_table_options_values(table, &out);
    node_out_printf(&out, ")");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
    for (const struct node_column *column = table->columns; column != NULL; column = column->next)
        write_column(engine, table, column, now_us);
    for (const struct node_index *index = table->indexes; index != NULL; index = index->next)
        write_index(engine, table, index, now_us);
}

void node_system_write_type(struct node_engine *engine, struct node_keyspace *keyspace,
                            struct node_udt *udt, int64_t now_us)
{
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system_schema.types (keyspace_name, type_name, field_names, field_types) VALUES (");
    node_put_quoted(&out, keyspace->name);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, udt->name);
    node_out_printf(&out, ", [");
    for (uint16_t i = 0; i < udt->count; ++i) {
        node_out_printf(&out, "%s", i > 0 ? ", " : "");
        node_put_quoted(&out, udt->names[i]);
    }
    node_out_printf(&out, "], [");
    for (uint16_t i = 0; i < udt->count; ++i) {
        struct out type = {0};
        node_type_print(udt->types[i], true, &type);
        node_out_printf(&out, "%s", i > 0 ? ", " : "");
        node_put_quoted(&out, out_view(&type, 0));
        node_out_fini(&type);
    }
    node_out_printf(&out, "])");
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

void node_system_erase(struct node_engine *engine, cqlring_bytes keyspace, cqlring_bytes table,
                       cqlring_bytes udt, int64_t now_us)
{
    if (udt.size >= 0) {
        erase_rows(engine, now_us, "types", keyspace, "type_name", udt);
        return;
    }
    static const char *const of_tables[] = {"tables", "columns", "indexes"};
    for (size_t i = 0; i < sizeof of_tables / sizeof of_tables[0]; ++i)
        erase_rows(engine, now_us, of_tables[i], keyspace, "table_name", table);
    erase_rows(engine, now_us, "views", keyspace, "view_name", table);
    if (table.size < 0) {
        erase_rows(engine, now_us, "types", keyspace, "", SLICE_NULL);
        erase_rows(engine, now_us, "functions", keyspace, "", SLICE_NULL);
        erase_rows(engine, now_us, "aggregates", keyspace, "", SLICE_NULL);
        erase_rows(engine, now_us, "keyspaces", keyspace, "", SLICE_NULL);
        if (engine->options->shards > 0)
            erase_rows(engine, now_us, "scylla_keyspaces", keyspace, "", SLICE_NULL);
    }
}

/* --- members ---------------------------------------------------------------------------------- */

static void put_tokens(struct out *out, const struct node_member *member)
{
    node_out_printf(out, "{");
    for (uint32_t i = 0; i < member->token_count; ++i)
        node_out_printf(out, "%s'%lld'", i > 0 ? ", " : "", (long long)member->tokens[i]);
    node_out_printf(out, "}");
}

/* Where it says clients reach it that know it by this address. */
static const char *client_address(const struct node_engine *engine, const char *address)
{
    return engine->options->rpc_unspecified ? "0.0.0.0" : address;
}

/* The schema that it says it has. */
static void put_schema_version(struct out *out, const struct node_engine *engine,
                               const struct node_member *member)
{
    if (member->lag == NODE_LAG_SILENT)
        node_out_printf(out, "null");
    else
        put_uuid(out,
                 member->lag == NODE_LAG_BEHIND ? member->schema_version : engine->schema_version);
}

static void write_local(struct node_engine *engine, uint32_t node, int64_t now_us)
{
    const struct node_member *member = &engine->members[node];
    struct out out = {0};
    node_out_printf(
        &out,
        "INSERT INTO system.local (key, bootstrapped, broadcast_address, broadcast_port, cluster_name, cql_version, data_center, gossip_generation, host_id, "
        "listen_address, listen_port, native_protocol_version, partitioner, rack, release_version, rpc_address, rpc_port, schema_version, tokens) VALUES "
        "('local', 'COMPLETED', '%s', %u, ",
        member->address, engine->options->ports_differ ? 7000 + node : 7000);
    node_put_quoted(&out, slice_text(engine->options->cluster_name));
    node_out_printf(&out, ", '%s', ", engine->options->shards > 0 ? "3.3.1" : "3.4.7");
    node_put_quoted(&out, slice_text(member->dc));
    node_out_printf(&out, ", 1700000000, ");
    put_uuid(&out, member->host_id);
    node_out_printf(&out, ", '%s', 7000, '%u', 'org.apache.cassandra.dht.Murmur3Partitioner', ",
                    member->address, engine->options->version_max);
    node_put_quoted(&out, slice_text(member->rack));
    node_out_printf(&out, ", ");
    node_put_quoted(&out, slice_text(engine->options->release_version));
    node_out_printf(&out, ", '%s', %u, ", client_address(engine, member->address), member->port);
    put_schema_version(&out, engine, member);
    node_out_printf(&out, ", ");
    put_tokens(&out, member);
    node_out_printf(&out, ")");
    run(engine, node, now_us, &out);
    node_out_fini(&out);
}

/* How `viewer` sees another node. */
static void write_peer(struct node_engine *engine, uint32_t viewer, uint32_t node,
                       const char *address, bool v2, int64_t now_us)
{
    const struct node_member *member = &engine->members[node];
    const char *told = client_address(engine, address);
    struct out out = {0};
    if (v2)
        node_out_printf(
            &out,
            "INSERT INTO system.peers_v2 (peer, peer_port, native_address, native_port, data_center, rack, host_id, release_version, schema_version, tokens) "
            "VALUES ('%s', %u, '%s', %u, ",
            address, engine->options->ports_differ ? 7000 + node : 7000, told,
            member->port);
    else
        node_out_printf(
            &out,
            "INSERT INTO system.peers (peer, rpc_address, data_center, rack, host_id, release_version, schema_version, tokens) VALUES ('%s', '%s', ",
            address, told);
    node_put_quoted(&out, slice_text(member->dc));
    node_out_printf(&out, ", ");
    node_put_quoted(&out, slice_text(member->rack));
    node_out_printf(&out, ", ");
    put_uuid(&out, member->host_id);
    node_out_printf(&out, ", ");
    node_put_quoted(&out, slice_text(engine->options->release_version));
    node_out_printf(&out, ", ");
    put_schema_version(&out, engine, member);
    node_out_printf(&out, ", ");
    put_tokens(&out, member);
    node_out_printf(&out, ")");
    run(engine, viewer, now_us, &out);
    node_out_fini(&out);
}

void node_system_write_members(struct node_engine *engine, int64_t now_us)
{
    if (engine->system_local == NULL)
        return;
    for (uint32_t i = 0; i < engine->member_count; ++i) {
        node_storage_clear(&engine->system_local->local[i]);
        node_storage_clear(&engine->system_peers->local[i]);
        if (engine->system_peers_v2 != NULL)
            node_storage_clear(&engine->system_peers_v2->local[i]);
        if (engine->members[i].address[0] == 0)
            continue; /* addresses are given once the server listens */
        write_local(engine, i, now_us);
        for (uint32_t j = 0; j < engine->member_count; ++j) {
            if (j == i || !engine->members[j].member || engine->members[j].hidden)
                continue;
            const char *addresses[2] = {engine->members[j].address, engine->members[j].stale_address};
            for (int at = 0; at < 2 && addresses[at][0] != 0; ++at) {
                write_peer(engine, i, j, addresses[at], false, now_us);
                if (engine->system_peers_v2 != NULL)
                    write_peer(engine, i, j, addresses[at], true, now_us);
            }
        }
    }
}

void node_system_write_route(struct node_engine *engine, const char *connection_id,
                             const uint8_t host_id[16], const char *address, int32_t port,
                             int32_t tls_port, int64_t now_us)
{
    struct out out = {0};
    if (address == NULL) {
        node_out_printf(&out, "DELETE FROM system.client_routes WHERE connection_id = ");
        node_put_quoted(&out, slice_text(connection_id));
        node_out_printf(&out, " AND host_id = ");
        put_uuid(&out, host_id);
    } else {
        node_out_printf(&out, "INSERT INTO system.client_routes (connection_id, host_id, address, port, tls_port) VALUES (");
        node_put_quoted(&out, slice_text(connection_id));
        node_out_printf(&out, ", ");
        put_uuid(&out, host_id);
        node_out_printf(&out, ", ");
        node_put_quoted(&out, slice_text(address));
        node_out_printf(&out, ", %d, %d)", port, tls_port);
    }
    run(engine, 0, now_us, &out);
    node_out_fini(&out);
}

static struct node_table *per_node(struct node_engine *engine, const char *name)
{
    struct node_table *table = node_table_find(node_keyspace_find(engine, slice_text("system")),
                                               slice_text(name));
    table->local = node_arena_alloc(&table->arena, engine->member_count * sizeof *table->local);
    for (uint32_t i = 0; i < engine->member_count; ++i)
        node_storage_init(&table->local[i], &table->shape);
    return table;
}

void node_system_create(struct node_engine *engine, int64_t now_us)
{
    for (size_t i = 0; i < sizeof keyspaces / sizeof keyspaces[0]; ++i)
        run_text(engine, now_us, keyspaces[i]);
    node_keyspace_find(engine, slice_text("system_virtual_schema"))->is_virtual = true;
    node_keyspace_find(engine, slice_text("system_views"))->is_virtual = true;
    for (size_t i = 0; i < sizeof schema_tables / sizeof schema_tables[0]; ++i)
        run_text(engine, now_us, schema_tables[i]);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; ++i)
        run_text(engine, now_us, tables[i]);
    for (size_t i = 0;
         i < sizeof scylla_tables / sizeof scylla_tables[0] && engine->options->shards > 0; ++i)
        run_text(engine, now_us, scylla_tables[i]);
    if (engine->options->client_routes)
        run_text(engine, now_us, client_routes);
    if (engine->options->shards == 0)
        run_text(engine, now_us, peers_v2);
    engine->system_local = per_node(engine, "local");
    engine->system_peers = per_node(engine, "peers");
    if (engine->options->shards == 0)
        engine->system_peers_v2 = per_node(engine, "peers_v2");
}

void node_system_show(struct node_engine *engine, int64_t now_us)
{
    if (engine->system_shown)
        return;
    engine->system_shown = true;
    for (struct node_keyspace *keyspace = engine->keyspaces; keyspace != NULL;
         keyspace = keyspace->next) {
        if (!keyspace->is_system)
            continue;
        node_system_write_keyspace(engine, keyspace, now_us);
        for (struct node_table *table = keyspace->tables; table != NULL; table = table->next)
            node_system_write_table(engine, table, now_us);
    }
}
