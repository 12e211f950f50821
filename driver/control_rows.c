/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/control_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/client_routes.h"
#include "driver/contacts.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/listener.h"
#include "driver/node.h"
#include "driver/session.h"
#include "serialize/buf.h"

enum { COLUMNS_MAX = 64, TOPOLOGY_ARENA_MAX = 256 << 20 };

/* One row of a system table, by column name. */
struct row_view {
    const cqlring_result *result;
    cqlring_bytes cells[COLUMNS_MAX];
    uint32_t column_count;
};

static bool row_next(struct row_view *view, cqlring_result *result, uint32_t index)
{
    uint32_t count = 0;
    view->result = result;
    view->column_count = cqlring_result_column_count(result);
    if (view->column_count == 0 || view->column_count > COLUMNS_MAX)
        return false;
    return cqlring_result_rows(result, index, view->cells, 1, &count, NULL) == CQLRING_OK && count == 1;
}

static cqlring_bytes cell(const struct row_view *view, const char *name)
{
    for (uint32_t i = 0; i < view->column_count; i++) {
        cqlring_column column;
        if (cqlring_result_column(view->result, i, &column) && strcmp(column.name, name) == 0)
            return view->cells[i];
    }
    return (cqlring_bytes){NULL, CQLRING_NULL};
}

static bool text_cell(const struct row_view *view, const char *name, char *out, size_t size)
{
    cqlring_bytes value = cell(view, name);
    if (value.size <= 0 || (size_t)value.size >= size) {
        out[0] = '\0';
        return false;
    }
    memcpy(out, value.data, (size_t)value.size);
    out[value.size] = '\0';
    return true;
}

static bool is_unspecified(cqlring_bytes inet)
{
    const uint8_t *at = inet.data;
    for (int32_t i = 0; i < inet.size; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static bool address_cell(const struct row_view *view, uint16_t default_port, struct address *out)
{
    static const char *const names[] = {"native_address", "rpc_address", "peer"};
    cqlring_bytes port_cell = cell(view, "native_port");
    uint16_t port = default_port;
    if (port_cell.size == 4) {
        uint32_t value = cqr_load_u32(port_cell.data);
        port = value > 0 && value < 65536 ? (uint16_t)value : default_port;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cqlring_bytes inet = cell(view, names[i]);
        if ((inet.size == 4 || inet.size == 16) && !is_unspecified(inet))
            return cqr_address_from_bytes(out, inet.data, (uint32_t)inet.size, port);
    }
    return false;
}

struct draft {
    struct topology *topology;
    struct cqlring_cluster *cluster;
    const struct node_place **where; /* by the topology's nodes: where each is, once all of this is good */
    char (*names)[128];        /* interned dc and rack names */
    uint32_t name_count, name_capacity;
    struct ring_entry *ring;
    uint32_t ring_count, ring_capacity;
    bool failed;
};

static uint16_t intern_name(struct draft *draft, const char *name)
{
    for (uint32_t i = 0; i < draft->name_count; i++)
        if (strcmp(draft->names[i], name) == 0)
            return (uint16_t)i;
    if (draft->name_count == draft->name_capacity) {
        uint32_t capacity = draft->name_capacity == 0 ? 16 : draft->name_capacity * 2;
        char(*names)[128] = capacity < UINT16_MAX ? cqr_mem_realloc(draft->names, capacity * sizeof *names) : NULL;
        if (names == NULL) {
            draft->failed = true;
            return UINT16_MAX;
        }
        draft->names = names;
        draft->name_capacity = capacity;
    }
    snprintf(draft->names[draft->name_count], sizeof draft->names[0], "%s", name);
    return (uint16_t)draft->name_count++;
}

static bool name_known(const struct draft *draft, cqlring_bytes name, uint16_t *number)
{
    for (uint32_t i = 0; i < draft->name_count; i++)
        if (strlen(draft->names[i]) == (size_t)name.size && memcmp(draft->names[i], name.data, (size_t)name.size) == 0) {
            *number = (uint16_t)i;
            return true;
        }
    return false;
}

static void tokens_add(struct draft *draft, cqlring_bytes tokens, uint32_t node)
{
    if (tokens.size < 4)
        return;
    struct reader reader;
    cqr_reader_init(&reader, tokens.data, (uint32_t)tokens.size);
    int32_t count = cqr_get_i32(&reader);
    for (int32_t i = 0; i < count && !reader.failed; i++) {
        cqlring_bytes element = cqr_get_bytes(&reader);
        char text[48], *end;
        if (element.size <= 0 || (size_t)element.size >= sizeof text)
            continue;
        memcpy(text, element.data, (size_t)element.size);
        text[element.size] = '\0';
        long long token = strtoll(text, &end, 10);
        if (*end != '\0')
            continue; /* not Murmur3's: such rings are not routed by */
        if (draft->ring_count == draft->ring_capacity) {
            uint32_t capacity = draft->ring_capacity == 0 ? 256 : draft->ring_capacity * 2;
            struct ring_entry *ring = cqr_mem_realloc(draft->ring, capacity * sizeof *ring);
            if (ring == NULL) {
                draft->failed = true;
                return;
            }
            draft->ring = ring;
            draft->ring_capacity = capacity;
        }
        draft->ring[draft->ring_count++] = (struct ring_entry){.token = token, .node = node};
    }
}

/* The name that a contact point gave for this address: certificates are made out to it. Of a name with several addresses, all of
   them have it, whichever was dialled first. */
static const char *contact_name(const struct cqlring_cluster *cluster, const struct address *address)
{
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        const struct node_place *place = cqr_node_place(cluster->nodes[i]);
        if (place->contact_name[0] != '\0' && cqr_address_equal(&place->address, address))
            return place->contact_name;
    }
    return cqr_contacts_name(cluster, address);
}

/* Peers may have a node twice for a while, where it was and where it is now. The one that it is reached at counts; when it is
   not reached, the one that is news. */
static void place_again(struct draft *draft, uint32_t at, const struct node_place *other)
{
    struct cqlring_node *node = draft->topology->nodes[at];
    const struct node_place *now = cqr_node_place(node);
    bool is_reached = atomic_load_explicit(&node->connections, memory_order_relaxed) > 0 && atomic_load_explicit(&node->suspects, memory_order_relaxed) == 0;
    if (cqr_address_equal(&(is_reached ? other : draft->where[at])->address, &now->address))
        draft->where[at] = other;
    draft->topology->has_doubles = true;
}

/* A row of system.local or a peers table becomes a node of the draft; NULL when it is not one. */
static struct cqlring_node *node_add(struct draft *draft, const struct row_view *view, const struct address *address, const char *name, bool translate)
{
    struct cqlring_cluster *cluster = draft->cluster;
    struct cqlring_node like;
    struct node_place there = {.older = NULL};
    const struct node_place *place = NULL;
    memset(&like, 0, sizeof like);
    atomic_init(&like.place, &there);
    cqlring_bytes host_id = cell(view, "host_id");
    if (host_id.size != 16 || !text_cell(view, "data_center", like.datacenter, sizeof like.datacenter) ||
        !text_cell(view, "rack", like.rack, sizeof like.rack))
        return NULL;
    memcpy(like.host_id, host_id.data, 16);
    text_cell(view, "release_version", there.release_version, sizeof there.release_version); /* for people only: any text will do (PD-05) */
    there.announced = there.address = *address;
    const struct client_route *route = cqr_client_route_of(cluster, like.host_id);
    if (route != NULL) { /* also the one that is talked to: a contact point may be a way to any of them */
        there.address = route->address;
        name = route->is_name ? route->host : NULL;
    }
    cqr_address_format(&there.address, there.text);
    if (translate || route != NULL) {
        cqr_node_translate(cluster, &like, &there.address);
        cqr_address_format(&there.address, there.text);
        if (route != NULL && !cqr_address_equal(&route->address, &there.address))
            name = NULL;
    }
    snprintf(there.contact_name, sizeof there.contact_name, "%s", name != NULL ? name : contact_name(cluster, &there.address));
    const char *local = cluster->local_datacenter != NULL ? cluster->local_datacenter : cluster->guessed_datacenter;
    like.is_local = strcmp(like.datacenter, local) == 0;
    like.in_rack = like.is_local && cluster->policy.local_rack != NULL && strcmp(like.rack, cluster->policy.local_rack) == 0;
    struct cqlring_node *node = cqr_cluster_intern(cluster, &like, &place);
    if (node == NULL) {
        draft->failed = true;
        return NULL;
    }
    struct topology *topology = draft->topology;
    for (uint32_t i = 0; i < topology->node_count; i++)
        if (topology->nodes[i] == node) {
            place_again(draft, i, place);
            return NULL;
        }
    draft->where[topology->node_count] = place;
    topology->nodes[topology->node_count++] = node;
    return node;
}

static void replication_parse(struct draft *draft, struct replication *replication, cqlring_bytes map)
{
    struct reader reader;
    replication->strategy = STRATEGY_UNKNOWN;
    if (map.size < 4)
        return;
    cqr_reader_init(&reader, map.data, (uint32_t)map.size);
    int32_t count = cqr_get_i32(&reader);
    if (count < 0 || count > 4096)
        return;
    struct dc_factor *dcs = cqr_arena_array(&draft->topology->arena, (size_t)count + 1, sizeof *dcs);
    if (dcs == NULL) {
        draft->failed = true;
        return;
    }
    replication->dcs = dcs;
    for (int32_t i = 0; i < count && !reader.failed; i++) {
        cqlring_bytes key = cqr_get_bytes(&reader), value = cqr_get_bytes(&reader);
        if (reader.failed || key.size <= 0 || value.size <= 0)
            continue;
        if (key.size == 5 && memcmp(key.data, "class", 5) == 0) {
            replication->strategy = cqr_strategy_of(value);
            continue;
        }
        uint16_t all, transient_count;
        if (!cqr_factor_parse(value, &all, &transient_count))
            continue;
        if (key.size == 18 && memcmp(key.data, "replication_factor", 18) == 0) {
            replication->factor = all;
            replication->transient_count = transient_count;
            continue;
        }
        struct dc_factor *dc = &dcs[replication->dc_count++];
        *dc = (struct dc_factor){.dc = UINT16_MAX, .all = all, .transient_count = transient_count};
        name_known(draft, key, &dc->dc);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct keyspace *)a)->name, ((const struct keyspace *)b)->name);
}

static void keyspaces_add(struct draft *draft, cqlring_result *keyspaces)
{
    struct topology *topology = draft->topology;
    uint32_t count = cqlring_result_row_count(keyspaces);
    topology->keyspaces = cqr_arena_array(&topology->arena, (size_t)count + 1, sizeof *topology->keyspaces);
    if (topology->keyspaces == NULL) {
        draft->failed = true;
        return;
    }
    struct row_view view;
    for (uint32_t i = 0; i < count && row_next(&view, keyspaces, i); i++) {
        struct keyspace *keyspace = &topology->keyspaces[topology->keyspace_count];
        if (!text_cell(&view, "keyspace_name", keyspace->name, sizeof keyspace->name))
            continue;
        replication_parse(draft, &keyspace->replication, cell(&view, "replication"));
        topology->keyspace_count++;
    }
    qsort(topology->keyspaces, topology->keyspace_count, sizeof *topology->keyspaces, by_name);
}

/* Which keyspaces are of tablets: those whose initial_tablets is not null. */
static void tablets_add(struct topology *topology, cqlring_result *tablets)
{
    struct row_view view;
    uint32_t count = tablets != NULL ? cqlring_result_row_count(tablets) : 0;
    for (uint32_t i = 0; i < count && row_next(&view, tablets, i); i++) {
        const struct keyspace *keyspace = cqr_topology_keyspace(topology, cell(&view, "keyspace_name"));
        if (keyspace != NULL && cell(&view, "initial_tablets").size >= 0)
            topology->keyspaces[keyspace - topology->keyspaces].tablets = true;
    }
}

/* By node index: dc and rack of every node that the cluster has ever seen (those not in the draft are in no ring entry). */
static void places_add(struct draft *draft)
{
    struct topology *topology = draft->topology;
    uint32_t count = 0;
    for (uint32_t i = 0; i < topology->node_count; i++)
        if (topology->nodes[i]->index >= count)
            count = topology->nodes[i]->index + 1;
    topology->places = cqr_arena_array(&topology->arena, (size_t)count + 1, sizeof *topology->places);
    if (topology->places == NULL) {
        draft->failed = true;
        return;
    }
    topology->place_count = count;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct cqlring_node *node = topology->nodes[i];
        topology->places[node->index] = (struct ring_node){.dc = intern_name(draft, node->datacenter), .rack = intern_name(draft, node->rack)};
    }
}

cqlring_status cqr_topology_read(struct cqlring_cluster *cluster, cqlring_result *local, cqlring_result *peers, cqlring_result *keyspaces, cqlring_result *tablets,
                                 const struct address *dialled, const char *dialled_name, struct topology **out, char *why, size_t why_size)
{
    struct topology *topology = cqr_topology_create();
    struct draft draft = {.topology = topology, .cluster = cluster};
    cqlring_status status = CQLRING_NO_MEMORY;
    snprintf(why, why_size, "out of memory");
    if (topology == NULL)
        return status;
    uint32_t peer_count = cqlring_result_row_count(peers);
    topology->nodes = cqr_arena_array(&topology->arena, (size_t)peer_count + 2, sizeof *topology->nodes);
    draft.where = cqr_mem_array((size_t)peer_count + 2, sizeof *draft.where);
    if (topology->nodes == NULL || draft.where == NULL)
        goto fail;
    struct row_view view;
    if (!row_next(&view, local, 0)) {
        status = CQLRING_PROTOCOL;
        snprintf(why, why_size, "system.local has no row");
        goto fail;
    }
    char text[128];
    if (cluster->local_datacenter == NULL && cluster->guessed_datacenter[0] == '\0' &&
        text_cell(&view, "data_center", cluster->guessed_datacenter, sizeof cluster->guessed_datacenter))
        cqr_log(&cluster->runtime->log, CQLRING_LOG_WARN, "local_datacenter is not set: taking \"%s\", that of the first node contacted; set it, so that another contact point does not mean another datacenter",
                cluster->guessed_datacenter);
    if (text_cell(&view, "partitioner", text, sizeof text))
        topology->partitioner = cqr_partitioner_of(cqlring_text(text));
    uint8_t local_id[16] = {0};
    cqlring_bytes host_id = cell(&view, "host_id");
    if (host_id.size == 16)
        memcpy(local_id, host_id.data, 16);
    struct cqlring_node *node = node_add(&draft, &view, dialled, dialled_name[0] != '\0' ? dialled_name : contact_name(cluster, dialled), false);
    if (node == NULL) {
        if (!draft.failed) {
            status = CQLRING_PROTOCOL;
            snprintf(why, why_size, "system.local lacks host_id, data_center or rack");
        }
        goto fail;
    }
    tokens_add(&draft, cell(&view, "tokens"), node->index);
    for (uint32_t i = 0; i < peer_count && row_next(&view, peers, i); i++) {
        struct address address;
        host_id = cell(&view, "host_id");
        cqlring_bytes tokens = cell(&view, "tokens");
        if (host_id.size != 16 || memcmp(host_id.data, local_id, 16) == 0 || tokens.size < 4 || !address_cell(&view, cluster->port, &address))
            continue;
        node = node_add(&draft, &view, &address, NULL, true);
        if (node != NULL)
            tokens_add(&draft, tokens, node->index);
    }
    places_add(&draft);
    if (draft.failed)
        goto fail;
    keyspaces_add(&draft, keyspaces);
    if (!draft.failed)
        tablets_add(topology, tablets);
    if (draft.ring_count > 0) {
        topology->ring_count = cqr_ring_sort(draft.ring, draft.ring_count);
        topology->ring = cqr_arena_array(&topology->arena, topology->ring_count, sizeof *topology->ring);
        if (topology->ring == NULL)
            goto fail;
        memcpy(topology->ring, draft.ring, topology->ring_count * sizeof *topology->ring);
    }
    if (draft.failed)
        goto fail;
    for (uint32_t i = 0; i < topology->node_count; i++)
        cqr_node_settle(cluster, topology->nodes[i], draft.where[i]);
    cqr_mem_free(draft.names);
    cqr_mem_free(draft.ring);
    cqr_mem_free((void *)(uintptr_t)draft.where);
    *out = topology;
    return CQLRING_OK;

fail:
    cqr_mem_free(draft.names);
    cqr_mem_free(draft.ring);
    cqr_mem_free((void *)(uintptr_t)draft.where);
    cqr_topology_release(topology);
    return status;
}
