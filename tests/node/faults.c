/* SPDX-License-Identifier: Apache-2.0 */
/* The fault plan: which fault strikes which request, how a plan is written as text, and ERROR
   bodies of every code. */
#include "tests/node/cluster.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kind_names[] = {
    [NODE_FAULT_DROP] = "drop",
    [NODE_FAULT_IGNORE] = "ignore",
    [NODE_FAULT_CLOSE] = "close",
    [NODE_FAULT_ANSWER_CLOSE] = "answer-close",
    [NODE_FAULT_HALF] = "half",
    [NODE_FAULT_GARBAGE] = "garbage",
    [NODE_FAULT_FLIP_HEADER] = "flip-header",
    [NODE_FAULT_FLIP_HEADER_CRC] = "flip-header-crc",
    [NODE_FAULT_FLIP_PAYLOAD] = "flip-payload",
    [NODE_FAULT_FLIP_PAYLOAD_CRC] = "flip-payload-crc",
    [NODE_FAULT_ERROR] = "error",
    [NODE_FAULT_UNPREPARED] = "unprepared",
    [NODE_FAULT_WRONG_STREAM] = "wrong-stream",
    [NODE_FAULT_EVENT_STREAM] = "event-stream",
    [NODE_FAULT_TWICE] = "twice",
    [NODE_FAULT_OPCODE] = "opcode",
    [NODE_FAULT_REQUEST] = "request",
    [NODE_FAULT_EVENT] = "event",
    [NODE_FAULT_CHANGED] = "changed",
    [NODE_FAULT_CHANGED_BARE] = "changed-bare",
    [NODE_FAULT_EXTRA_COLUMN] = "extra-column",
    [NODE_FAULT_LARGE_PAGE] = "large-page",
    [NODE_FAULT_EMPTY_PAGE] = "empty-page",
    [NODE_FAULT_NO_ROWS] = "no-rows",
    [NODE_FAULT_BAD_CELL] = "bad-cell",
    [NODE_FAULT_NO_COLUMNS] = "no-columns",
    [NODE_FAULT_BETA] = "beta",
    [NODE_FAULT_PAYLOAD] = "payload",
    [NODE_FAULT_WARNINGS] = "warnings",
    [NODE_FAULT_TRACING] = "tracing",
    [NODE_FAULT_TRAILING] = "trailing",
    [NODE_FAULT_TRUNCATED] = "truncated",
    [NODE_FAULT_LATE] = "late",
    [NODE_FAULT_FREEZE] = "freeze",
    [NODE_FAULT_SILENCE] = "silence",
    [NODE_FAULT_ACCEPT_CLOSE] = "accept-close",
    [NODE_FAULT_ACCEPT_SILENT] = "accept-silent",
    [NODE_FAULT_REFUSE] = "refuse",
};

static bool is_statement(uint8_t opcode)
{
    return opcode == OPCODE_QUERY || opcode == OPCODE_EXECUTE || opcode == OPCODE_BATCH ||
           opcode == OPCODE_PREPARE;
}

/* --- who is struck ---------------------------------------------------------------------------- */

/* Counts the match; is it one that the plan strikes? */
static bool strikes(struct node_cluster *cluster, struct fault *fault)
{
    const struct node_fault *plan = &fault->plan;
    if (plan->times > 0 && fault->hits >= plan->times)
        return false;
    uint64_t number = ++fault->matched;
    if (number <= plan->after)
        return false;
    uint64_t every = plan->every == 0 ? 1 : plan->every;
    bool struck = plan->chance > 0
                      ? (double)(node_random(&cluster->random) >> 11) * 0x1.0p-53 < plan->chance
                      : (number - plan->after) % every == 0;
    fault->hits += struck;
    return struck;
}

static bool names_table(const struct fault *fault, const struct node_seen *seen,
                        const struct statement *statement)
{
    if (fault->table == NULL)
        return true;
    const struct node_table *table = statement == NULL ? NULL
                                     : statement->kind == STATEMENT_BATCH &&
                                             statement->children != NULL
                                         ? statement->children->table
                                         : statement->table;
    if (table == NULL) /* PREPARE, or not understood: look at the text */
        return seen->text[0] != 0 && strstr(seen->text, fault->table) != NULL;
    const char *dot = strchr(fault->table, '.');
    cqlring_bytes name = slice_text(dot == NULL ? fault->table : dot + 1);
    return slice_equal(table->name, name) &&
           (dot == NULL || slice_equal(table->keyspace->name,
                                       slice_of(fault->table, (size_t)(dot - fault->table))));
}

static bool matches(const struct fault *fault, const struct node_conn *conn,
                    const struct node_seen *seen, const struct statement *statement)
{
    const struct node_fault *plan = &fault->plan;
    if (plan->kind == NODE_FAULT_ACCEPT_CLOSE || plan->kind == NODE_FAULT_ACCEPT_SILENT ||
        plan->kind == NODE_FAULT_REFUSE)
        return false;
    if ((plan->node != 0 && plan->node != conn->node + 1) ||
        (plan->conn != 0 && plan->conn != conn->number))
        return false;
    bool handshake = plan->kind == NODE_FAULT_BETA &&
                     (seen->opcode == OPCODE_OPTIONS || seen->opcode == OPCODE_STARTUP);
    bool opcode = plan->opcode != 0 ? plan->opcode == seen->opcode
                                    : is_statement(seen->opcode) || handshake;
    bool kind = plan->kind != NODE_FAULT_UNPREPARED || seen->opcode == OPCODE_EXECUTE ||
                seen->opcode == OPCODE_BATCH;
    return opcode && kind && names_table(fault, seen, statement);
}

struct strike node_fault_pick(struct node_conn *conn, const struct node_seen *seen,
                              const struct statement *statement)
{
    struct strike strike = {0};
    for (struct fault *fault = conn->cluster->faults; fault != NULL; fault = fault->next) {
        if (!matches(fault, conn, seen, statement))
            continue;
        const struct fault **place;
        switch (fault->plan.kind) {
        case NODE_FAULT_PAYLOAD: place = &strike.payload; break;
        case NODE_FAULT_WARNINGS: place = &strike.warnings; break;
        case NODE_FAULT_TRACING: place = &strike.tracing; break;
        case NODE_FAULT_EVENT: place = &strike.event; break;
        case NODE_FAULT_LATE: place = &strike.late; break;
        default: place = &strike.fault; break;
        }
        if (*place != NULL || !strikes(conn->cluster, fault))
            continue;
        *place = fault;
        ++conn_counters(conn)->faults;
    }
    return strike;
}

const struct fault *node_fault_accept(struct node_cluster *cluster, uint32_t node,
                                      enum node_fault_kind kind)
{
    for (struct fault *fault = cluster->faults; fault != NULL; fault = fault->next) {
        if (fault->plan.kind == kind && (fault->plan.node == 0 || fault->plan.node == node + 1) &&
            strikes(cluster, fault)) {
            ++cluster->nodes[node].counters.faults;
            return fault;
        }
    }
    return NULL;
}

bool node_fault_refuses(const struct node_cluster *cluster, uint32_t node)
{
    for (const struct fault *fault = cluster->faults; fault != NULL; fault = fault->next) {
        if (fault->plan.kind == NODE_FAULT_REFUSE &&
            (fault->plan.node == 0 || fault->plan.node == node + 1))
            return true;
    }
    return false;
}

/* --- the list --------------------------------------------------------------------------------- */

static char *copy(const char *text)
{
    if (text == NULL)
        return NULL;
    char *memory = node_alloc(strlen(text) + 1);
    return strcpy(memory, text);
}

static void fault_free(struct fault *fault)
{
    node_free(fault->table);
    node_free(fault->message);
    node_free(fault->write_type);
    node_free(fault);
}

static void wake(struct node_cluster *cluster)
{
    cluster->poked = true;
    if (cluster->server != NULL)
        node_server_wake(cluster->server);
}

uint32_t node_fault_add(struct node_cluster *cluster, const struct node_fault *plan)
{
    cluster_lock(cluster);
    struct fault *fault = node_zalloc(sizeof *fault);
    fault->plan = *plan;
    fault->plan.table = fault->table = copy(plan->table);
    fault->plan.message = fault->message = copy(plan->message);
    fault->plan.write_type = fault->write_type = copy(plan->write_type);
    fault->number = ++cluster->fault_number;
    struct fault **tail = &cluster->faults;
    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = fault;
    uint32_t number = fault->number;
    wake(cluster);
    cluster_unlock(cluster);
    return number;
}

uint64_t node_fault_hits(struct node_cluster *cluster, uint32_t number)
{
    uint64_t hits = 0;
    cluster_lock(cluster);
    for (const struct fault *fault = cluster->faults; fault != NULL; fault = fault->next)
        hits += fault->number == number ? fault->hits : 0;
    cluster_unlock(cluster);
    return hits;
}

void node_fault_remove(struct node_cluster *cluster, uint32_t number)
{
    cluster_lock(cluster);
    for (struct fault **at = &cluster->faults; *at != NULL;) {
        struct fault *fault = *at;
        if (number != 0 && fault->number != number) {
            at = &fault->next;
            continue;
        }
        *at = fault->next;
        fault_free(fault);
    }
    wake(cluster);
    cluster_unlock(cluster);
}

void node_faults_free(struct node_cluster *cluster)
{
    for (struct fault *fault = cluster->faults, *next; fault != NULL; fault = next) {
        next = fault->next;
        fault_free(fault);
    }
    cluster->faults = NULL;
}

/* --- as text ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t opcode;
} opcode_names[] = {{"STARTUP", OPCODE_STARTUP}, {"OPTIONS", OPCODE_OPTIONS},
                    {"QUERY", OPCODE_QUERY},     {"PREPARE", OPCODE_PREPARE},
                    {"EXECUTE", OPCODE_EXECUTE}, {"REGISTER", OPCODE_REGISTER},
                    {"BATCH", OPCODE_BATCH},     {"AUTH_RESPONSE", OPCODE_AUTH_RESPONSE}};

static bool take_pair(struct node_fault *plan, char *key, char *value)
{
    char *end;
    unsigned long long number = strtoull(value, &end, 0);
    bool is_number = end != value && *end == 0;
    if (strcmp(key, "opcode") == 0) {
        for (size_t i = 0; i < sizeof opcode_names / sizeof opcode_names[0]; ++i) {
            if (strcmp(opcode_names[i].name, value) == 0) {
                plan->opcode = opcode_names[i].opcode;
                return true;
            }
        }
        plan->opcode = (uint8_t)number;
        return is_number;
    }
    if (strcmp(key, "table") == 0) {
        plan->table = value;
        return true;
    }
    if (strcmp(key, "message") == 0) {
        plan->message = value;
        return true;
    }
    if (strcmp(key, "write_type") == 0) {
        plan->write_type = value;
        return true;
    }
    if (strcmp(key, "chance") == 0) {
        plan->chance = strtod(value, &end);
        return *end == 0;
    }
    if (!is_number)
        return false;
    if (strcmp(key, "node") == 0)
        plan->node = (uint32_t)number + 1; /* by index, as everywhere */
    else if (strcmp(key, "conn") == 0)
        plan->conn = (uint32_t)number;
    else if (strcmp(key, "every") == 0)
        plan->every = number;
    else if (strcmp(key, "after") == 0)
        plan->after = number;
    else if (strcmp(key, "times") == 0)
        plan->times = number;
    else if (strcmp(key, "code") == 0)
        plan->code = (int32_t)number;
    else if (strcmp(key, "consistency") == 0)
        plan->consistency = (uint16_t)number;
    else if (strcmp(key, "received") == 0)
        plan->received = (int32_t)number;
    else if (strcmp(key, "required") == 0)
        plan->required = (int32_t)number;
    else if (strcmp(key, "alive") == 0)
        plan->alive = (int32_t)number;
    else if (strcmp(key, "failures") == 0)
        plan->failures = (int32_t)number;
    else if (strcmp(key, "data_present") == 0)
        plan->data_present = (uint8_t)number;
    else if (strcmp(key, "executed") == 0)
        plan->executed = number != 0;
    else if (strcmp(key, "count") == 0)
        plan->count = (uint32_t)number;
    else if (strcmp(key, "delay_us") == 0)
        plan->delay_us = (uint32_t)number;
    else
        return false;
    return true;
}

uint32_t node_fault_parse(struct node_cluster *cluster, const char *text, char *message,
                          size_t message_size)
{
    struct node_fault plan = {0};
    char *own = copy(text), *rest = strchr(own, ':');
    if (rest != NULL)
        *rest++ = 0;
    size_t kind = 0;
    while (kind < sizeof kind_names / sizeof kind_names[0] && strcmp(kind_names[kind], own) != 0)
        ++kind;
    bool fine = kind < sizeof kind_names / sizeof kind_names[0];
    if (!fine)
        (void)snprintf(message, message_size, "unknown kind of fault: %s", own);
    plan.kind = (enum node_fault_kind)kind;
    char *save = NULL;
    for (char *pair = rest == NULL ? NULL : strtok_r(rest, ",", &save); fine && pair != NULL;
         pair = strtok_r(NULL, ",", &save)) {
        char *value = strchr(pair, '=');
        if (value != NULL)
            *value++ = 0;
        fine = value != NULL && take_pair(&plan, pair, value);
        if (!fine)
            (void)snprintf(message, message_size, "fault %s does not understand %s=%s", own, pair,
                           value == NULL ? "" : value);
    }
    uint32_t number = fine ? node_fault_add(cluster, &plan) : 0;
    node_free(own);
    return number;
}

/* --- ERROR bodies ----------------------------------------------------------------------------- */

static const char *default_message(int32_t code)
{
    switch (code) {
    case ERROR_SERVER: return "java.lang.RuntimeException: planned";
    case ERROR_PROTOCOL: return "Planned protocol error";
    case ERROR_CREDENTIALS: return "Provided username and/or password are incorrect";
    case ERROR_UNAVAILABLE: return "Cannot achieve consistency level";
    case ERROR_OVERLOADED: return "Request breached global limit of 100 bytes/second";
    case ERROR_BOOTSTRAPPING: return "Cannot read from a bootstrapping node";
    case ERROR_TRUNCATE: return "Error during truncate";
    case ERROR_WRITE_TIMEOUT: return "Operation timed out - received only some responses.";
    case ERROR_READ_TIMEOUT: return "Operation timed out - received only some responses.";
    case ERROR_READ_FAILURE: return "Operation failed - received some responses and some failures";
    case ERROR_FUNCTION_FAILURE: return "execution of 'ks.f' failed";
    case ERROR_WRITE_FAILURE: return "Operation failed - received some responses and some failures";
    case ERROR_CDC_WRITE_FAILURE: return "Rejecting mutation to keyspace: CDC space is full";
    case ERROR_CAS_WRITE_UNKNOWN:
        return "CAS operation result is unknown - proposal accepted by some";
    case ERROR_SYNTAX: return "line 1:0 no viable alternative at input 'planned'";
    case ERROR_UNAUTHORIZED: return "User has no permission";
    case ERROR_INVALID: return "Planned invalid request";
    case ERROR_CONFIG: return "Planned configuration error";
    case ERROR_ALREADY_EXISTS: return "Cannot add already existing table";
    case ERROR_UNPREPARED: return "Prepared query not found";
    default: return "An error of a kind not known to the protocol";
    }
}

/* A count on v4, addresses with reasons on v5. */
static void put_failures(struct out *out, const struct dialect *dialect, int32_t failures)
{
    out_u32(out, (uint32_t)failures);
    if (dialect->version < PROTO_V5 && (dialect->extensions & EXT_FAILURE_MAP) == 0)
        return;
    for (int32_t i = 0; i < failures; ++i) {
        out_u8(out, 4);
        out_u32(out, 0x7F000001u + (uint32_t)i);
        out_u16(out, (uint16_t)(i % 4));
    }
}

void node_put_error(struct out *out, const struct dialect *dialect, const struct node_fault *plan,
                    uint16_t consistency, cqlring_bytes id)
{
    uint16_t level = plan->consistency != 0 ? plan->consistency : consistency;
    int32_t failures = plan->failures == 0 ? 1 : plan->failures,
            required = plan->required == 0 ? 1 : plan->required;
    const char *write_type = plan->write_type == NULL ? "SIMPLE" : plan->write_type;
    out_u32(out, (uint32_t)plan->code);
    out_text(out, plan->message != NULL ? plan->message : default_message(plan->code));
    switch (plan->code) {
    case ERROR_UNAVAILABLE:
        out_u16(out, level);
        out_u32(out, (uint32_t)required);
        out_u32(out, (uint32_t)plan->alive);
        break;
    case ERROR_WRITE_TIMEOUT:
    case ERROR_READ_TIMEOUT:
    case ERROR_READ_FAILURE:
    case ERROR_WRITE_FAILURE:
    case ERROR_CAS_WRITE_UNKNOWN:
        out_u16(out, level);
        out_u32(out, (uint32_t)plan->received);
        out_u32(out, (uint32_t)required);
        if (plan->code == ERROR_READ_FAILURE || plan->code == ERROR_WRITE_FAILURE)
            put_failures(out, dialect, failures);
        if (plan->code == ERROR_READ_TIMEOUT || plan->code == ERROR_READ_FAILURE)
            out_u8(out, plan->data_present);
        if (plan->code == ERROR_WRITE_TIMEOUT || plan->code == ERROR_WRITE_FAILURE)
            out_text(out, write_type);
        if (plan->code == ERROR_WRITE_TIMEOUT && strcmp(write_type, "CAS") == 0 &&
            dialect->version >= PROTO_V5)
            out_u16(out, (uint16_t)plan->count);
        break;
    case ERROR_FUNCTION_FAILURE:
        out_text(out, "ks");
        out_text(out, "f");
        out_u16(out, 2);
        out_text(out, "int");
        out_text(out, "text");
        break;
    case ERROR_ALREADY_EXISTS:
        out_text(out, "ks");
        out_text(out, plan->table == NULL ? "t" : plan->table);
        break;
    case ERROR_UNPREPARED: out_string(out, id); break;
    default:
        if ((dialect->extensions & EXT_RATE_LIMIT) != 0 && plan->code == dialect->rate_limit_code) {
            out_u8(out, plan->data_present);
            out_u8(out, 1);
        }
        break;
    }
}
