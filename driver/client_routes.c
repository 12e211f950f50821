/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/client_routes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver/control_rows.h"
#include "driver/failure.h"
#include "driver/lookup.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/text.h"
#include "serialize/buf.h"
#include "serialize/cqlring_values.h"

enum { IDS_MAX = 64, ID_SIZE = 256, ROUTES_MAX = 2048, KEPT_RANK = IDS_MAX, UNKNOWN_US = 30000000 };
enum { COLUMN_CONNECTION_ID, COLUMN_HOST_ID, COLUMN_ADDRESS, COLUMN_PORT, COLUMN_TLS_PORT, COLUMNS };

struct named_address {
    char host[256];
    struct address address;         /* without a port that means anything */
};

struct client_routes {
    struct cqlring_cluster *cluster;
    /* constant */
    char (*ids)[ID_SIZE];
    uint32_t id_count;
    char *text, *query;

    struct client_route *routes;    /* in force */
    uint32_t route_count;
    struct client_route *draft;     /* read, their names being looked up; NULL: none */
    uint32_t draft_count;
    bool was_read;                  /* once at least */
    bool is_absence_told;           /* of the table */
    uint8_t (*without)[16];         /* nodes without a route, that were told */
    uint32_t without_count;

    struct named_address *known;    /* what names led to last */
    uint32_t known_count;
    struct contact_point *asked;    /* on the resolver's thread now */
    uint32_t asked_count;
    struct lookup lookup;
    bool stopped;
};

/* ---- options ---- */

/* What is wrong with it, NULL when nothing is. */
static const char *id_take(const char *from, const char *end, char id[ID_SIZE])
{
    cqlring_bytes given = cqr_trim(from, end);
    size_t size = given.size < ID_SIZE ? (size_t)given.size : ID_SIZE;
    memcpy(id, given.data, size < ID_SIZE ? size : ID_SIZE - 1);
    id[size < ID_SIZE ? size : ID_SIZE - 1] = '\0';
    if (size == 0)
        return "it is empty";
    if (size == ID_SIZE)
        return "it is longer than 255 bytes";
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)id[i] < 0x20 || id[i] == 0x7F)
            return "it has a control character";
    return NULL;
}

static void query_put(struct text *text, const struct client_routes *routes)
{
    cqr_text_put(text, "SELECT connection_id, host_id, address, port, tls_port FROM system.client_routes WHERE connection_id IN (");
    for (uint32_t i = 0; i < routes->id_count; i++) {
        cqr_text_put(text, "%s'", i > 0 ? ", " : "");
        for (const char *at = routes->ids[i]; *at != '\0'; at++)
            cqr_text_put(text, *at == '\'' ? "''" : "%c", *at);
        cqr_text_put(text, "'");
    }
    cqr_text_put(text, ")");
}

static void ids_put(struct text *text, const struct client_routes *routes)
{
    for (uint32_t i = 0; i < routes->id_count; i++)
        cqr_text_put(text, "%s%s", i > 0 ? ", " : "", routes->ids[i]);
}

static char *text_make(const struct client_routes *routes, void (*put)(struct text *text, const struct client_routes *routes))
{
    struct text text = cqr_text_make(NULL, 0);
    put(&text, routes);
    size_t size = text.needed + 1;
    char *made = cqr_mem_alloc(size);
    if (made == NULL)
        return NULL;
    text = cqr_text_make(made, size);
    put(&text, routes);
    return made;
}

cqlring_status cqr_client_routes_take(struct cqlring_cluster *cluster, const char *ids, cqlring_error *error)
{
    size_t count = 1;
    for (const char *at = ids; *at != '\0'; at++)
        count += *at == ',';
    if (ids[strspn(ids, " \t\r\n")] == '\0')
        return cqr_error(error, CQLRING_INVALID, "cluster options: client_routes is empty: give connection ids, or leave it NULL when it is not wanted");
    if (count > IDS_MAX)
        return cqr_error(error, CQLRING_INVALID, "cluster options: client_routes: %zu connection ids, more than %d", count, IDS_MAX);
    struct client_routes *routes = cqr_mem_zalloc(sizeof *routes);
    if (routes == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "no memory for client_routes");
    cluster->client_routes = routes; /* who opens the cluster frees it, whatever comes */
    routes->cluster = cluster;
    routes->ids = cqr_mem_array(count, sizeof *routes->ids);
    if (routes->ids == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "no memory for client_routes");
    const char *at = ids;
    for (size_t i = 0; i < count; i++) {
        const char *end = strchrnul(at, ',');
        const char *wrong = id_take(at, end, routes->ids[i]);
        if (wrong != NULL)
            return cqr_error(error, CQLRING_INVALID, "cluster options: client_routes: connection id %zu, \"%.60s\": %s", i + 1, routes->ids[i], wrong);
        routes->id_count++;
        at = end + 1;
    }
    routes->text = text_make(routes, ids_put);
    routes->query = text_make(routes, query_put);
    if (routes->text == NULL || routes->query == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "no memory for client_routes");
    return CQLRING_OK;
}

void cqr_client_routes_free(struct cqlring_cluster *cluster)
{
    struct client_routes *routes = cluster->client_routes;
    if (routes == NULL)
        return;
    cqr_mem_free(routes->ids);
    cqr_mem_free(routes->text);
    cqr_mem_free(routes->query);
    cqr_mem_free(routes->routes);
    cqr_mem_free(routes->draft);
    cqr_mem_free(routes->without);
    cqr_mem_free(routes->known);
    cqr_mem_free(routes->asked);
    cqr_mem_free(routes);
}

const char *cqr_client_routes_ids(const struct cqlring_cluster *cluster)
{
    return cluster->client_routes != NULL ? cluster->client_routes->text : NULL;
}

const char *cqr_client_routes_query(const struct cqlring_cluster *cluster)
{
    return cluster->client_routes != NULL ? cluster->client_routes->query : NULL;
}

/* ---- rows ---- */

static struct client_route *find(struct client_route *routes, uint32_t count, const uint8_t host_id[16])
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(routes[i].host_id, host_id, 16) == 0)
            return &routes[i];
    return NULL;
}

/* A literal or a name, and nothing that would be something else here: no path, no port, no interface. */
static const char *host_take(cqlring_bytes cell, struct client_route *route)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
    if (cell.size <= 0)
        return "its address is empty";
    if ((size_t)cell.size >= sizeof route->host)
        return "its address is longer than 255 bytes";
    memcpy(route->host, cell.data, (size_t)cell.size);
    route->host[cell.size] = '\0';
    if (strlen(route->host) != (size_t)cell.size || strspn(route->host, allowed) != (size_t)cell.size)
        return "its address is neither an IP address nor a name";
    struct address literal;
    route->is_name = !cqr_address_from_literal(&literal, route->host, 1);
    if (route->is_name && strchr(route->host, ':') != NULL)
        return "its address is neither an IP address nor a name";
    return NULL;
}

/* What is wrong with it, NULL when nothing is. The host id is there if it could be read. */
static const char *route_take(const struct client_routes *routes, const cqlring_bytes cells[COLUMNS], struct client_route *route, bool *has_id)
{
    *route = (struct client_route){.rank = IDS_MAX};
    *has_id = cells[COLUMN_HOST_ID].size == 16;
    if (!*has_id)
        return "its host_id is no uuid";
    memcpy(route->host_id, cells[COLUMN_HOST_ID].data, 16);
    cqlring_bytes id = cells[COLUMN_CONNECTION_ID];
    for (uint32_t i = 0; i < routes->id_count && route->rank == IDS_MAX; i++)
        if (id.size >= 0 && strlen(routes->ids[i]) == (size_t)id.size && memcmp(routes->ids[i], id.data, (size_t)id.size) == 0)
            route->rank = i;
    if (route->rank == IDS_MAX)
        return "its connection_id was not asked for";
    const char *wrong = host_take(cells[COLUMN_ADDRESS], route);
    if (wrong != NULL)
        return wrong;
    bool has_tls = routes->cluster->has_tls;
    cqlring_bytes port = cells[has_tls ? COLUMN_TLS_PORT : COLUMN_PORT];
    if (port.size != 4)
        return has_tls ? "it has no tls_port" : "it has no port";
    uint32_t number = cqr_load_u32(port.data);
    if (number == 0 || number > 65535)
        return has_tls ? "its tls_port is not 1 to 65535" : "its port is not 1 to 65535";
    route->port = (uint16_t)number;
    return NULL;
}

static void draft_add(struct client_routes *routes, const struct client_route *route)
{
    struct client_route *other = find(routes->draft, routes->draft_count, route->host_id);
    if (other == NULL)
        routes->draft[routes->draft_count++] = *route;
    else if (route->rank < other->rank)
        *other = *route;
}

static void row_refuse(struct client_routes *routes, const struct client_route *route, bool has_id, const char *wrong)
{
    char text[37] = "(none)";
    const struct client_route *before = has_id ? find(routes->routes, routes->route_count, route->host_id) : NULL;
    if (has_id)
        cqlring_uuid_format(route->host_id, text);
    cqr_log(&routes->cluster->runtime->log, CQLRING_LOG_WARN, "client_routes: the row of host id %s is not used: %s%s", text, wrong,
            before != NULL ? "; what was known of it stays" : "");
    if (before != NULL) {
        struct client_route kept = *before;
        kept.rank = KEPT_RANK;
        draft_add(routes, &kept);
    }
}

static bool draft_read(struct client_routes *routes, cqlring_result *rows)
{
    uint32_t count = cqlring_result_row_count(rows);
    const struct log *log = &routes->cluster->runtime->log;
    if (count > 0 && cqlring_result_column_count(rows) != COLUMNS) {
        cqr_log(log, CQLRING_LOG_WARN, "client_routes: system.client_routes answers with %u columns, not %d: not used", cqlring_result_column_count(rows), COLUMNS);
        return false;
    }
    if (count > ROUTES_MAX) {
        cqr_log(log, CQLRING_LOG_WARN, "client_routes: %u rows, of which the first %d are used", count, ROUTES_MAX);
        count = ROUTES_MAX;
    }
    cqr_mem_free(routes->draft);
    routes->draft_count = 0;
    routes->draft = cqr_mem_array((size_t)count + 1, sizeof *routes->draft);
    if (routes->draft == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        cqlring_bytes cells[COLUMNS];
        uint32_t got = 0;
        struct client_route route;
        bool has_id;
        if (cqlring_result_rows(rows, i, cells, 1, &got, NULL) != CQLRING_OK || got != 1)
            break;
        const char *wrong = route_take(routes, cells, &route, &has_id);
        if (wrong != NULL)
            row_refuse(routes, &route, has_id, wrong);
        else
            draft_add(routes, &route);
    }
    return true;
}

/* ---- names ---- */

/* Of a name's addresses the one that is dialled already, while it is among them: resolvers like to turn them round. */
static void address_pick(const struct client_routes *routes, struct client_route *route, const struct client_route *before)
{
    struct address address;
    if (!route->is_name) {
        route->has_address = cqr_address_from_literal(&route->address, route->host, route->port);
        return;
    }
    bool found = false;
    for (uint32_t i = 0; i < routes->known_count; i++) {
        if (strcmp(routes->known[i].host, route->host) != 0)
            continue;
        address = routes->known[i].address;
        if (!cqr_address_set_port(&address, route->port))
            continue;
        bool is_same = before != NULL && before->has_address && cqr_address_equal(&before->address, &address);
        if (!found || is_same)
            route->address = address;
        found = true;
        if (is_same)
            break;
    }
    route->has_address = found;
}

static bool is_wanted(const struct client_route *routes, uint32_t count, const char *host)
{
    for (uint32_t i = 0; i < count; i++)
        if (routes[i].is_name && strcmp(routes[i].host, host) == 0)
            return true;
    return false;
}

/* Names that were found count, of the others what they led to before. */
static void learn(struct client_routes *routes, const struct contact_point *asked, const struct resolution *found)
{
    struct named_address *known = found->count > 0 ? cqr_mem_array((size_t)found->count + routes->known_count, sizeof *known) : NULL;
    uint32_t count = 0;
    if (known == NULL)
        return;
    for (uint32_t i = 0; i < found->count; i++) {
        memcpy(known[count].host, asked[found->addresses[i].point].host, sizeof known[count].host);
        known[count++].address = found->addresses[i].address;
    }
    for (uint32_t i = 0, fresh = count; i < routes->known_count; i++) {
        const char *host = routes->known[i].host;
        bool is_fresh = false;
        for (uint32_t j = 0; j < fresh && !is_fresh; j++)
            is_fresh = strcmp(known[j].host, host) == 0;
        if (!is_fresh && (is_wanted(routes->draft, routes->draft_count, host) || is_wanted(routes->routes, routes->route_count, host)))
            known[count++] = routes->known[i];
    }
    cqr_mem_free(routes->known);
    routes->known = known;
    routes->known_count = count;
}

static bool names_gather(struct client_routes *routes)
{
    cqr_mem_free(routes->asked);
    routes->asked_count = 0;
    routes->asked = cqr_mem_array((size_t)routes->draft_count + 1, sizeof *routes->asked);
    for (uint32_t i = 0; routes->asked != NULL && i < routes->draft_count; i++) {
        const struct client_route *route = &routes->draft[i];
        if (!route->is_name || is_wanted(routes->draft, i, route->host))
            continue;
        struct contact_point *point = &routes->asked[routes->asked_count++];
        memcpy(point->host, route->host, sizeof point->host);
        point->port = 1; /* each route has its own */
    }
    return routes->asked_count > 0;
}

static void looked(struct lane *lane, struct cqlring_cluster *cluster, const struct resolution *found)
{
    struct client_routes *routes = cluster->client_routes;
    if (routes->stopped)
        return;
    learn(routes, routes->asked, found);
    bool moved = false; /* it comes late: those in force, then, unless they wait for it */
    for (uint32_t i = 0; routes->draft == NULL && i < routes->route_count; i++) {
        struct client_route now = routes->routes[i];
        address_pick(routes, &now, &routes->routes[i]);
        moved = moved || (now.has_address && (!routes->routes[i].has_address || !cqr_address_equal(&now.address, &routes->routes[i].address)));
    }
    cqr_control_routes_found(lane, cluster, moved);
}

/* True: it is under way. In caller mode it would block whoever runs the turns, so it is done at the open only, as for contact points. */
static bool names_look(struct client_routes *routes)
{
    struct cqlring_cluster *cluster = routes->cluster;
    if (routes->lookup.is_under_way)
        return true; /* an earlier one, that has not come back: its answer is waited for, the rest comes with the next reading */
    if (!names_gather(routes))
        return false;
    if (cluster->runtime->threads == CQLRING_THREADS_CALLER) {
        struct resolution found;
        if (cluster->opening == NULL || cqr_resolve(routes->asked, routes->asked_count, &found) != CQLRING_OK)
            return false;
        learn(routes, routes->asked, &found);
        cqr_mem_free(found.addresses);
        return false;
    }
    /* no memory or thread for it: with the next reading */
    return cqr_lookup_start(&routes->lookup, cluster, routes->asked, routes->asked_count, looked) == CQLRING_OK;
}

/* ---- reading ---- */

static bool has_names(const struct client_route *routes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (routes[i].is_name)
            return true;
    return false;
}

bool cqr_client_routes_read(struct cqlring_cluster *cluster, cqlring_result *rows)
{
    struct client_routes *routes = cluster->client_routes;
    if (!draft_read(routes, rows))
        return false;
    routes->is_absence_told = false;
    if (has_names(routes->draft, routes->draft_count) && names_look(routes))
        return true;
    cqr_client_routes_settle(cluster);
    return false;
}

void cqr_client_routes_refused(struct cqlring_cluster *cluster, const cqlring_error *error)
{
    struct client_routes *routes = cluster->client_routes;
    const char *stays = routes->was_read ? "what was read before stays" : "nodes are dialled as announced";
    if (error->server_code != ERROR_INVALID) {
        cqr_log(&cluster->runtime->log, CQLRING_LOG_WARN, "client_routes: system.client_routes cannot be read, %s: %s", stays, error->message);
        return;
    }
    if (!routes->is_absence_told)
        cqr_log(&cluster->runtime->log, CQLRING_LOG_WARN, "client_routes: the server has no such table, %s: %s", stays, error->message);
    routes->is_absence_told = true;
}

void cqr_client_routes_settle(struct cqlring_cluster *cluster)
{
    struct client_routes *routes = cluster->client_routes;
    if (routes == NULL || routes->draft == NULL)
        return;
    for (uint32_t i = 0; i < routes->draft_count; i++) {
        struct client_route *route = &routes->draft[i];
        const struct client_route *before = find(routes->routes, routes->route_count, route->host_id);
        route->is_idle_told = before != NULL && before->is_idle_told;
        address_pick(routes, route, before);
        if (route->has_address)
            continue;
        bool stays = before != NULL && before->has_address;
        char text[37];
        cqlring_uuid_format(route->host_id, text);
        cqr_log(&cluster->runtime->log, CQLRING_LOG_WARN, "client_routes: \"%s\", the way to host id %s, cannot be looked up%s: it is dialled as %s", route->host, text,
                cluster->runtime->threads == CQLRING_THREADS_CALLER && cluster->opening == NULL ? " (in caller mode at the open only)" : "",
                stays ? "before" : "announced");
        if (stays) {
            route->address = before->address;
            route->has_address = true;
        }
    }
    cqr_mem_free(routes->routes);
    routes->routes = routes->draft;
    routes->route_count = routes->draft_count;
    routes->draft = NULL;
    routes->draft_count = 0;
    routes->was_read = true;
}

void cqr_client_routes_stop(struct cqlring_cluster *cluster)
{
    if (cluster->client_routes != NULL)
        cluster->client_routes->stopped = true;
}

/* ---- asked ---- */

bool cqr_client_routes_concern(const struct cqlring_cluster *cluster, const struct event_body *event)
{
    const struct client_routes *routes = cluster->client_routes;
    if (routes == NULL)
        return false;
    struct reader reader;
    cqr_reader_init(&reader, event->connection_ids.data, event->connection_ids.size > 0 ? (uint32_t)event->connection_ids.size : 0);
    for (uint32_t i = 0; i < event->connection_id_count; i++) {
        cqlring_bytes id = cqr_get_string(&reader);
        for (uint32_t j = 0; j < routes->id_count && !reader.failed; j++)
            if (strlen(routes->ids[j]) == (size_t)id.size && memcmp(routes->ids[j], id.data, (size_t)id.size) == 0)
                return true;
    }
    return event->connection_id_count == 0; /* of all of them, then */
}

const struct client_route *cqr_client_route_of(const struct cqlring_cluster *cluster, const uint8_t host_id[16])
{
    const struct client_routes *routes = cluster->client_routes;
    const struct client_route *route = routes != NULL ? find(routes->routes, routes->route_count, host_id) : NULL;
    return route != NULL && route->has_address ? route : NULL;
}

const char *cqr_client_routes_name(const struct cqlring_cluster *cluster, const struct address *address)
{
    const struct client_routes *routes = cluster->client_routes;
    for (uint32_t i = 0; routes != NULL && i < routes->route_count; i++)
        if (routes->routes[i].is_name && routes->routes[i].has_address && cqr_address_equal(&routes->routes[i].address, address))
            return routes->routes[i].host;
    return "";
}

static bool is_known_without(const struct client_routes *routes, const uint8_t host_id[16])
{
    for (uint32_t i = 0; i < routes->without_count; i++)
        if (memcmp(routes->without[i], host_id, 16) == 0)
            return true;
    return false;
}

void cqr_client_routes_compare(struct cqlring_cluster *cluster, const struct topology *topology)
{
    struct client_routes *routes = cluster->client_routes;
    if (routes == NULL || !routes->was_read)
        return;
    const struct log *log = &cluster->runtime->log;
    uint32_t count = 0;
    uint8_t(*without)[16] = cqr_mem_array((size_t)topology->node_count + 1, sizeof *without);
    if (without == NULL)
        return;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct cqlring_node *node = topology->nodes[i];
        if (find(routes->routes, routes->route_count, node->host_id) != NULL)
            continue; /* one whose name is not found has been told of */
        if (!is_known_without(routes, node->host_id))
            cqr_log(log, CQLRING_LOG_WARN, "client_routes: there is no route to %s: it is dialled there", cqr_node_place(node)->text);
        memcpy(without[count++], node->host_id, 16);
    }
    cqr_mem_free(routes->without);
    routes->without = without;
    routes->without_count = count;
    for (uint32_t i = 0; i < routes->route_count; i++) {
        struct client_route *route = &routes->routes[i];
        bool is_used = false;
        for (uint32_t j = 0; j < topology->node_count && !is_used; j++)
            is_used = memcmp(topology->nodes[j]->host_id, route->host_id, 16) == 0;
        if (!is_used && !route->is_idle_told) {
            char text[37];
            cqlring_uuid_format(route->host_id, text);
            cqr_log(log, CQLRING_LOG_WARN, "client_routes: the row of host id %s is not used: no node has it", text);
        }
        route->is_idle_told = !is_used;
    }
}

int64_t cqr_client_routes_again_us(const struct cqlring_cluster *cluster)
{
    const struct client_routes *routes = cluster->client_routes;
    if (routes == NULL || cluster->runtime->threads == CQLRING_THREADS_CALLER || !has_names(routes->routes, routes->route_count))
        return 0;
    int64_t again_us = cluster->resolve_interval_us > 0 ? cluster->resolve_interval_us : 0;
    for (uint32_t i = 0; i < routes->route_count; i++)
        if (!routes->routes[i].has_address && (again_us == 0 || again_us > UNKNOWN_US))
            return UNKNOWN_US;
    return again_us;
}
