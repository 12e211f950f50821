/* SPDX-License-Identifier: Apache-2.0 */
/* QUERY, PREPARE, EXECUTE, BATCH: from a decoded request to the engine and back. */
#include "tests/node/handle.h"

#include <stdio.h>

#include "cql/frame.h"
#include "tests/node/tablets.h"

struct work {
    struct query query;
    struct node_prepared *prepared; /* EXECUTE */
    struct statement *statement;    /* of EXECUTE or QUERY; NULL: not understood */
    struct node_arena arena;        /* a QUERY's statement */
    struct node_seen *seen;
    cqlring_bytes unknown_id; /* UNPREPARED */
    bool limited_read;        /* over a partition's limit */
};

static bool knows(const struct node_conn *conn, const struct node_prepared *prepared)
{
    return prepared != NULL && (prepared->nodes >> conn->node & 1) != 0;
}

/* --- values ----------------------------------------------------------------------------------- */

static bool read_values(struct node_cluster *cluster, uint32_t from, uint16_t count,
                        cqlring_bytes raw)
{
    if (from + count > VALUES_MAX)
        return false;
    for (uint16_t i = 0; i < count; ++i) {
        if (cqr_next_value(&raw, &cluster->values[from + i]) != CQLRING_OK)
            return false;
    }
    return true;
}

/* Values by name into the order of the markers; one value may fill several markers. */
static bool read_named_values(struct work *work, const struct request *request)
{
    const struct statement *statement = work->statement;
    cqlring_bytes *values = node_arena_alloc(work->query.arena,
                                             (statement->bind_count + 1u) * sizeof *values);
    bool *given = node_arena_alloc(work->query.arena, statement->bind_count + 1u);
    cqlring_bytes raw = request->values, name, value;
    for (uint16_t i = 0; i < request->value_count; ++i) {
        if (cqr_next_string(&raw, &name) != CQLRING_OK ||
            cqr_next_value(&raw, &value) != CQLRING_OK)
            return node_query_fail(&work->query, ERROR_PROTOCOL, "The values are cut short");
        for (uint16_t j = 0; j < statement->bind_count; ++j) {
            if (slice_equal(statement->binds[j].label, name)) {
                values[j] = value;
                given[j] = true;
            }
        }
    }
    for (uint16_t j = 0; j < statement->bind_count; ++j) {
        if (!given[j])
            return node_query_fail(&work->query, ERROR_INVALID,
                                   "Invalid amount of bind variables: no value for %.*s",
                                   SLICE_ARG(statement->binds[j].label));
    }
    work->query.values = values;
    work->query.value_count = statement->bind_count;
    return true;
}

static bool bind(struct node_conn *conn, struct work *work, const struct request *request)
{
    if (request->params.has_names && request->value_count > 0)
        return read_named_values(work, request);
    work->query.values = conn->cluster->values;
    work->query.value_count = request->value_count;
    return read_values(conn->cluster, 0, request->value_count, request->values) ||
           node_query_fail(&work->query, ERROR_PROTOCOL, "The values are cut short");
}

/* --- counting --------------------------------------------------------------------------------- */

/* Was this the right node, and (with shards) the right shard of it? */
static void count_routing(struct node_conn *conn, struct node_seen *seen, bool has_token,
                          int64_t token, const struct node_table *table)
{
    struct node_counters *counters = conn_counters(conn);
    const struct node_engine *engine = &conn->cluster->engine;
    if (!has_token) {
        ++counters->keyless;
        return;
    }
    bool hit = false, shard_hit = false;
    uint32_t which = 0;
    if (table->keyspace->tablets) {
        struct node_tablet tablet;
        node_tablet_of(engine, table, token, &tablet);
        while (which < tablet.count && tablet.nodes[which] != conn->node)
            ++which;
        hit = which < tablet.count;
        shard_hit = node_tablet_serves(&tablet, conn->node, conn->shard);
    } else {
        const uint32_t *nodes = NULL;
        uint32_t count = node_engine_replicas(&conn->cluster->engine, table->keyspace, token,
                                              &nodes);
        while (which < count && nodes[which] != conn->node)
            ++which;
        hit = which < count;
        shard_hit = hit && engine->options->shards > 0 &&
                    node_shard_of(engine, conn->node, token) == conn->shard;
    }
    ++*(hit ? &counters->replica_hits : &counters->replica_misses);
    if (engine->options->shards > 0)
        ++*(shard_hit ? &counters->shard_hits : &counters->shard_misses);
    seen->has_token = true;
    seen->token = token;
    seen->is_replica = hit;
    seen->is_shard = shard_hit;
    seen->replica = which;
}

/* --- running ---------------------------------------------------------------------------------- */

static bool unprepared(struct work *work, struct node_conn *conn, cqlring_bytes id)
{
    work->unknown_id = id;
    ++conn_counters(conn)->unprepared;
    return node_query_fail(
        &work->query, ERROR_UNPREPARED,
        "Prepared query with ID %02x%02x%02x%02x… not found (either the query was not prepared on this host (maybe the host has been restarted?) or you have "
        "prepared too many queries and it has been evicted from the internal cache)",
        id.size > 0 ? slice_data(id)[0] : 0, id.size > 1 ? slice_data(id)[1] : 0,
        id.size > 2 ? slice_data(id)[2] : 0, id.size > 3 ? slice_data(id)[3] : 0);
}

/* ScyllaDB's limit by partition, before anything is done. */
static bool is_over_limit(struct node_conn *conn, struct work *work, const struct statement *first,
                          const cqlring_bytes *values, uint16_t value_count)
{
    struct node_cluster *cluster = conn->cluster;
    int64_t token;
    const struct node_table *table;
    if (cluster->limit.taken == NULL || (conn->dialect.extensions & EXT_RATE_LIMIT) == 0 ||
        !node_statement_token(first, values, value_count, &token, &table) ||
        node_limit_take(cluster, table, token))
        return false;
    ++conn_counters(conn)->rate_limited;
    work->query.has_token = true;
    work->query.token = token;
    work->query.token_table = table;
    work->limited_read = first->kind == STATEMENT_SELECT;
    return !node_query_fail(&work->query, conn->dialect.rate_limit_code,
                            "Per-partition rate limit reached for %.*s.%.*s, rejected by coordinator",
                            SLICE_ARG(table->keyspace->name), SLICE_ARG(table->name));
}

static bool run_statement(struct node_conn *conn, struct work *work, const struct request *request)
{
    if (work->statement == NULL)
        return false; /* the query has failed */
    if (!bind(conn, work, request) ||
        is_over_limit(conn, work, work->statement, work->query.values, work->query.value_count))
        return false;
    const struct node_options *options = &conn->cluster->options;
    bool made_up = options->mode == NODE_VOID && options->void_rows > 0 &&
                   work->statement->kind == STATEMENT_SELECT && !work->statement->table->is_system;
    if (made_up)
        return node_run_made_up(&work->query, work->statement, options->void_rows,
                                options->void_cell_size);
    return node_run(&work->query, work->statement);
}

static bool run_prepare(struct node_conn *conn, struct work *work, const struct request *request)
{
    struct node_prepared *prepared = node_prepare(&work->query, request->text);
    if (prepared == NULL)
        return false;
    out_u32(work->query.body, RESULT_PREPARED);
    node_prepared_encode(prepared, &conn->dialect, work->query.type_version,
                         work->query.fault.extra_column, work->query.body);
    return true;
}

static bool run_batch(struct node_conn *conn, struct work *work, const struct request *request)
{
    struct query *query = &work->query;
    uint32_t count = request->batch_count, from = 0;
    struct batch_part *parts = node_arena_alloc(query->arena, (count + 1) * sizeof *parts);
    cqlring_bytes children = request->batch_children;
    for (uint32_t i = 0; i < count; ++i) {
        struct batch_child child;
        if (cqr_request_next_child(&children, &child) != CQLRING_OK)
            return node_query_fail(query, ERROR_PROTOCOL, "The batch is cut short");
        ++conn_counters(conn)->batch_statements;
        if (child.prepared) {
            struct node_prepared *prepared = node_prepared_find(query->engine, child.text_or_id);
            if (!knows(conn, prepared))
                return unprepared(work, conn, child.text_or_id);
            parts[i].statement = prepared->statement;
        } else {
            parts[i].statement = node_understand(query, child.text_or_id, &work->arena);
            if (parts[i].statement == NULL)
                return false;
        }
        if (!read_values(conn->cluster, from, child.value_count, child.values))
            return node_query_fail(query, ERROR_INVALID,
                                   "The batch has more than 65536 values, or they are cut short");
        parts[i].values = conn->cluster->values + from;
        parts[i].value_count = child.value_count;
        from += child.value_count;
    }
    if (count > 0 && is_over_limit(conn, work, parts[0].statement, parts[0].values, parts[0].value_count))
        return false;
    return node_run_batch(query, request->batch_kind, parts, count);
}

/* --- prefixes and errors ---------------------------------------------------------------------- */

/* A session row and two events, as the tracing tables show them. */
static void write_trace(struct node_conn *conn, const struct work *work, const uint8_t id[16])
{
    struct node_arena arena = {0};
    struct out body = {0}, text = {0};
    char uuid[40];
    size_t at = 0;
    for (int i = 0; i < 16; ++i)
        at += (size_t)snprintf(uuid + at, sizeof uuid - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
    const char *address = conn->cluster->engine.members[conn->node].address;
    static const char *const texts[] = {
        "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, duration, parameters, request, started_at) VALUES (%s, '127.0.0.1', "
        "'QUERY', '%s', 7000, 42, {'consistency_level': 'ONE'}, 'Execute CQL3 query', %lld)",
        "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_elapsed, source_port, thread) VALUES (%s, now(), 'Parsing', '%s', 1, 7000, "
        "'node-%lld')",
        "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_elapsed, source_port, thread) VALUES (%s, now(), 'Executing', '%s', 40, 7000, "
        "'node-%lld')",
    };
    bool was = conn->cluster->engine.bootstrapping;
    conn->cluster->engine.bootstrapping = true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        char statement[512];
        int size = snprintf(statement, sizeof statement, texts[i], uuid, address,
                            (long long)(i == 0 ? work->query.now_us / 1000 : (int64_t)conn->node));
        struct query query = {.engine = &conn->cluster->engine,
                              .now_us = work->query.now_us,
                              .version = PROTO_V5,
                              .type_version = PROTO_V5,
                              .arena = &arena,
                              .body = &body,
                              .code = -1};
        (void)node_run_text(&query, slice_of(statement, (size_t)size));
        node_arena_reset(&arena);
    }
    conn->cluster->engine.bootstrapping = was;
    node_arena_fini(&arena);
    node_out_fini(&body);
    node_out_fini(&text);
}

/* The request's own, else {"node": null}; with `count`: odd ones, an empty key first and then one key over and over. */
static void put_payload(const struct node_fault *plan, cqlring_bytes own, struct out *out)
{
    if (own.data != NULL && plan->count == 0) {
        out_slice(out, own);
        return;
    }
    uint32_t count = plan->count == 0 ? 1 : plan->count > 0xFFFF ? 0xFFFF : plan->count;
    out_u16(out, (uint16_t)count);
    for (uint32_t i = 0; i < count; ++i) {
        out_text(out, plan->count > 0 && i == 0 ? "" : "node");
        out_bytes(out, i % 2 == 0 ? SLICE_NULL : slice_text("value"));
    }
}

static uint8_t put_prefixes(struct node_conn *conn, const struct hand *hand,
                            const struct work *work)
{
    struct out *out = &conn->reply;
    uint8_t flags = 0;
    if ((hand->flags & FLAG_TRACING) != 0 || hand->strike.tracing != NULL) {
        uint8_t id[16];
        cqr_store_u64(id, node_random(&conn->cluster->random));
        cqr_store_u64(id + 8, node_random(&conn->cluster->random));
        id[6] = (uint8_t)((id[6] & 0x0F) | 0x10);
        id[8] = (uint8_t)((id[8] & 0x3F) | 0x80);
        flags |= FLAG_TRACING;
        out_raw(out, id, 16);
        if ((hand->flags & FLAG_TRACING) != 0)
            write_trace(conn, work, id);
    }
    if (hand->strike.warnings != NULL && conn->dialect.version >= PROTO_V4) {
        uint32_t count = hand->strike.warnings->plan.count == 0 ? 1
                                                                : hand->strike.warnings->plan.count;
        flags |= FLAG_WARNING;
        out_u16(out, (uint16_t)count);
        for (uint32_t i = 0; i < count; ++i) {
            char text[64];
            int size = snprintf(text, sizeof text, "warning %u of the node", i + 1);
            out_string(out, slice_of(text, (size_t)size));
        }
    }
    if (hand->strike.payload != NULL && conn->dialect.version >= PROTO_V4) {
        flags |= FLAG_PAYLOAD;
        put_payload(&hand->strike.payload->plan, hand->request.payload, out);
    }
    return flags;
}

static void put_query_error(struct out *out, const struct dialect *dialect,
                            const struct work *work, uint16_t consistency)
{
    const struct query *query = &work->query;
    out_u32(out, (uint32_t)query->code);
    out_text(out, query->message);
    if (query->code == ERROR_ALREADY_EXISTS) {
        out_string(out, query->error_keyspace);
        out_string(out, query->error_table);
    } else if (query->code == ERROR_UNAVAILABLE) {
        out_u16(out, consistency);
        out_u32(out, (uint32_t)query->required);
        out_u32(out, (uint32_t)query->alive);
    } else if (query->code == ERROR_UNPREPARED) {
        out_string(out, work->unknown_id);
    } else if ((dialect->extensions & EXT_RATE_LIMIT) != 0 &&
               query->code == dialect->rate_limit_code) {
        out_u8(out, !work->limited_read);
        out_u8(out, 1);
    }
}

void node_reply_planned_error(struct node_conn *conn, const struct hand *hand,
                              const struct node_fault *plan, uint16_t consistency)
{
    static const struct work none = {0};
    (void)node_reply_begin(conn, OPCODE_ERROR, 0, hand->stream);
    uint8_t flags = put_prefixes(conn, hand, &none); /* may move the data */
    conn->reply.data[1] = flags;
    node_put_error(&conn->reply, &conn->dialect, plan, consistency, hand->request.id);
    node_reply_end(conn);
    ++conn_counters(conn)->errors;
    struct strike rest = hand->strike;
    rest.fault = NULL;
    node_conn_deliver(conn, &rest);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* What a fault changes before the statement runs. false: it does not run. */
static bool apply_fault(struct node_conn *conn, struct work *work, const struct hand *hand)
{
    const struct fault *fault = hand->strike.fault;
    if (fault == NULL)
        return true;
    struct rows_fault *rows = &work->query.fault;
    switch (fault->plan.kind) {
    case NODE_FAULT_IGNORE: return false;
    case NODE_FAULT_CLOSE: return fault->plan.executed;
    case NODE_FAULT_ERROR: return fault->plan.executed;
    case NODE_FAULT_UNPREPARED: {
        cqlring_bytes children = hand->request.batch_children;
        struct batch_child child;
        for (uint32_t i = 0; hand->opcode == OPCODE_BATCH && i < hand->request.batch_count &&
                             cqr_request_next_child(&children, &child) == CQLRING_OK;
             ++i) {
            struct node_prepared *prepared = child.prepared ? node_prepared_find(work->query.engine,
                                                                                 child.text_or_id)
                                                            : NULL;
            if (prepared != NULL)
                node_prepared_forget(work->query.engine, conn->node, prepared);
        }
        if (work->prepared != NULL) {
            node_prepared_forget(work->query.engine, conn->node, work->prepared);
            work->prepared = NULL;
            work->statement = NULL;
            work->query.prepared = NULL;
            (void)unprepared(work, conn, hand->request.id);
        }
        return true;
    }
    case NODE_FAULT_CHANGED: rows->changed = true; return true;
    case NODE_FAULT_CHANGED_BARE: rows->changed_bare = true; return true;
    case NODE_FAULT_EXTRA_COLUMN:
        rows->extra_column = (uint16_t)(fault->plan.code == 0 ? TYPE_TEXT : fault->plan.code);
        return true;
    case NODE_FAULT_LARGE_PAGE: rows->page_extra = 1; return true;
    case NODE_FAULT_EMPTY_PAGE: rows->empty_page = true; return true;
    case NODE_FAULT_NO_ROWS: rows->no_rows = true; return true;
    case NODE_FAULT_BAD_CELL: rows->bad_cell = true; return true;
    case NODE_FAULT_FREEZE:
        conn->cluster->nodes[conn->node].frozen_until = conn->cluster->now_us +
                                                        fault->plan.delay_us;
        conn->cluster->poked = true;
        return true;
    case NODE_FAULT_SILENCE: conn->cluster->nodes[conn->node].silent = true; return true;
    default: return true;
    }
}

/* What a fault does to the finished body. */
static void spoil_body(struct node_conn *conn, const struct fault *fault, size_t from)
{
    struct out *out = &conn->reply;
    switch (fault == NULL ? NODE_FAULT_DROP : fault->plan.kind) {
    case NODE_FAULT_TRAILING: out_raw(out, "more than described", 19); break;
    case NODE_FAULT_TRUNCATED: {
        size_t n = fault->plan.count == 0 ? 1 : fault->plan.count;
        out->size = out->size - from > n ? out->size - n : from;
        break;
    }
    case NODE_FAULT_NO_COLUMNS:
        out->size = from;
        out_u32(out, RESULT_ROWS);
        out_u32(out, ROWS_GLOBAL_SPEC);
        out_u32(out, 0);
        out_text(out, "ks");
        out_text(out, "t");
        out_u32(out, fault->plan.count);
        break;
    case NODE_FAULT_EVENT_STREAM:
        out->size = from;
        out->data[4] = OPCODE_ERROR;
        cqr_store_u16(out->data + 2, 0xFFFF);
        out_u32(out, ERROR_SERVER);
        out_text(out, "an error on stream -1");
        break;
    default: break;
    }
}

/* A tablet's place in the custom payload, in front of the body, when the request came to the wrong
   node or shard. */
static void put_tablet(struct node_conn *conn, const struct work *work, size_t from)
{
    const struct query *query = &work->query;
    const struct node_engine *engine = query->engine;
    if ((conn->dialect.extensions & EXT_TABLETS_V1) == 0 || !query->has_token ||
        !query->token_table->keyspace->tablets || (conn->reply.data[1] & FLAG_PAYLOAD) != 0)
        return;
    struct node_tablet tablet;
    node_tablet_of(engine, query->token_table, query->token, &tablet);
    if (node_tablet_serves(&tablet, conn->node, conn->shard))
        return;
    struct out body = {0};
    out_raw(&body, conn->reply.data + from, conn->reply.size - from);
    conn->reply.size = from;
    out_u16(&conn->reply, 1);
    node_tablet_put(engine, &tablet, &conn->reply);
    out_raw(&conn->reply, body.data, body.size);
    node_out_fini(&body);
    conn->reply.data[1] |= FLAG_PAYLOAD;
}

static void run_and_reply(struct node_conn *conn, struct hand *hand, struct work *work)
{
    const struct request *request = &hand->request;
    const struct fault *fault = hand->strike.fault;
    bool run = apply_fault(conn, work, hand);
    (void)node_reply_begin(conn, OPCODE_RESULT, 0, hand->stream);
    uint8_t flags = put_prefixes(conn, hand, work); /* may move the data */
    conn->reply.data[1] = flags;
    size_t from = conn->reply.size;
    bool fine = true;
    if (run) {
        fine = hand->opcode == OPCODE_PREPARE ? run_prepare(conn, work, request)
               : hand->opcode == OPCODE_BATCH ? run_batch(conn, work, request)
                                              : run_statement(conn, work, request);
    } else {
        node_put_void(&conn->reply);
    }
    bool counts = hand->opcode != OPCODE_PREPARE &&
                  !(work->statement != NULL && work->statement->table != NULL &&
                    work->statement->table->is_system);
    if (counts && run)
        count_routing(conn, work->seen, work->query.has_token, work->query.token,
                      work->query.token_table);
    node_seen_end(conn, work->seen);
    if (fault != NULL && fault->plan.kind == NODE_FAULT_ERROR) {
        node_reply_planned_error(conn, hand, &fault->plan, request->params.consistency);
        return;
    }
    if (!fine) {
        conn->reply.size = from;
        conn->reply.data[4] = OPCODE_ERROR;
        put_query_error(&conn->reply, &conn->dialect, work, request->params.consistency);
        ++conn_counters(conn)->errors;
    } else if (work->query.use_keyspace) {
        size_t size = (size_t)work->query.keyspace.size < sizeof conn->keyspace
                          ? (size_t)work->query.keyspace.size
                          : sizeof conn->keyspace - 1;
        memcpy(conn->keyspace, work->query.keyspace.data, size);
        conn->keyspace[size] = 0;
    } else if (counts && run) {
        put_tablet(conn, work, from);
    }
    spoil_body(conn, fault, from);
    node_reply_end(conn);
    node_conn_deliver(conn, &hand->strike);
    if (fault != NULL && fault->plan.kind == NODE_FAULT_FREEZE)
        node_conn_flush(conn, true);
}

/* Void mode's straight way: an EXECUTE of a write, nothing in its way. */
static bool reply_void(struct node_conn *conn, const struct hand *hand, struct node_seen *seen,
                       const struct node_prepared *prepared)
{
    struct node_cluster *cluster = conn->cluster;
    const struct request *request = &hand->request;
    bool plain = cluster->options.mode == NODE_VOID && prepared->is_write &&
                 cluster->faults == NULL && (hand->flags & FLAG_TRACING) == 0 &&
                 !request->params.has_names &&
                 request->value_count == prepared->statement->bind_count &&
                 cluster->engine.down_count == 0 && cluster->limit.taken == NULL && conn->dialect.extensions == 0;
    if (!plain || !read_values(cluster, 0, request->value_count, request->values))
        return false;
    int64_t token = 0;
    const struct node_table *table = NULL;
    bool has_token = node_statement_token(prepared->statement, cluster->values,
                                          request->value_count, &token, &table);
    count_routing(conn, seen, has_token, token, table);
    node_seen_end(conn, seen);
    (void)node_reply_begin(conn, OPCODE_RESULT, 0, hand->stream);
    node_put_void(&conn->reply);
    cqr_store_u32(conn->reply.data + 5, 4);
    node_conn_deliver(conn, &hand->strike);
    return true;
}

void node_handle_statement(struct node_conn *conn, struct hand *hand)
{
    struct node_cluster *cluster = conn->cluster;
    const struct request *request = &hand->request;
    struct node_seen *seen = node_seen_begin(conn, hand);
    struct node_prepared *prepared = NULL;
    int64_t service_us;
    if (!node_line_take(cluster, conn->node, &service_us)) {
        static const struct node_fault overloaded = {.code = ERROR_OVERLOADED};
        node_seen_end(conn, seen);
        node_reply_planned_error(conn, hand, &overloaded, request->params.consistency);
        return;
    }
    hand->strike.service_us = service_us;
    if (hand->opcode == OPCODE_EXECUTE) {
        prepared = node_prepared_find(&cluster->engine, request->id);
        if (!knows(conn, prepared))
            prepared = NULL;
        if (prepared != NULL) {
            node_seen_text(seen, prepared->text);
            if (reply_void(conn, hand, seen, prepared))
                return;
        }
    }
    struct work work = {
        .query =
            {
                .engine = &cluster->engine,
                .coordinator = conn->node,
                .now_us = cluster_wall(cluster),
                .version = conn->dialect.version,
                .type_version = cluster->options.shards > 0 ? PROTO_V5 : conn->dialect.version,
                .params = &request->params,
                .arena = &conn->arena,
                .body = &conn->reply,
                .void_mode = cluster->options.mode == NODE_VOID,
                .with_metadata_id = cqr_dialect_has_metadata_id(&conn->dialect),
                .metadata_id = request->result_metadata_id,
                .prepared = prepared,
                .code = -1,
            },
        .prepared = prepared,
        .statement = prepared == NULL ? NULL : prepared->statement,
        .seen = seen,
        .unknown_id = SLICE_NULL,
    };
    cqlring_bytes keyspace = request->keyspace.size > 0 ? request->keyspace
                                                        : request->params.keyspace;
    work.query.keyspace = keyspace.size > 0 ? keyspace : slice_text(conn->keyspace);
    if (hand->opcode == OPCODE_EXECUTE && prepared == NULL)
        (void)unprepared(&work, conn, request->id);
    else if (hand->opcode == OPCODE_QUERY)
        work.statement = node_understand(&work.query, request->text, &work.arena);
    if (cluster->faults != NULL)
        hand->strike = node_fault_pick(conn, seen, work.statement);
    hand->strike.service_us = service_us;
    run_and_reply(conn, hand, &work);
    node_arena_fini(&work.arena);
    node_arena_reset(&conn->arena);
}
