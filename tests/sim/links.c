/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct network_state sim;
struct network_counts network_counts;

/* --- pipes ------------------------------------------------------------------------------------------------------- */

void links_drop(struct pipe *pipe)
{
    while (pipe->head != NULL) {
        struct run *run = pipe->head;
        pipe->head = run->next;
        free(run);
    }
    pipe->tail = NULL;
    pipe->bytes = 0;
}

int64_t links_flight_us(const struct link *link)
{
    const struct network_shape *shape = &sim.shape;
    int64_t latency = chance_between(&sim.chance, shape->latency_us,
                                     (int64_t)shape->latency_us + shape->jitter_us);
    return shape->slow_node == link->node + 1 ? latency * 10 : latency;
}

static void run_add(struct link *link, struct pipe *pipe, const uint8_t *data, uint32_t size)
{
    struct run *run = malloc(sizeof *run + size);
    if (run == NULL)
        abort();
    int64_t due = world.now_us + links_flight_us(link);
    *run = (struct run){.due_us = due > pipe->last_us ? due : pipe->last_us, .size = size};
    memcpy(run->data, data, size);
    pipe->last_us = run->due_us;
    if (pipe->tail != NULL)
        pipe->tail->next = run;
    else
        pipe->head = run;
    pipe->tail = run;
    pipe->bytes += size;
}

/* Cut anywhere: often near the ends, where headers are. */
void links_put(struct link *link, struct pipe *pipe, const uint8_t *data, uint32_t size)
{
    for (int pieces = 0;
         pieces < 6 && size > 1 && chance_percent(&sim.chance, sim.shape.split_percent); pieces++) {
        uint32_t piece = 1 + (chance_percent(&sim.chance, 50)
                                  ? chance_below(&sim.chance, size < 24 ? size - 1 : 24)
                                  : chance_below(&sim.chance, size - 1));
        if (piece >= size)
            break;
        run_add(link, pipe, data, piece);
        data += piece;
        size -= piece;
    }
    run_add(link, pipe, data, size);
}

/* --- the node's end ---------------------------------------------------------------------------------------------- */

static bool is_frozen(const struct link *link)
{
    return sim.places[link->node].frozen_us > world.now_us;
}

/* The node's end is gone: what it had written still arrives, then the end. */
void links_node_closes(struct link *link)
{
    if (link->conn == NULL)
        return;
    node_conn_close(link->conn);
    link->conn = NULL;
    link->down.ended = true;
    int64_t due = world.now_us + links_flight_us(link);
    link->down.end_us = due > link->down.last_us ? due : link->down.last_us;
    world_trace("node-close", link->number, link->down.bytes, 0);
}

void links_reset(struct link *link)
{
    if (link->conn != NULL)
        node_conn_close(link->conn);
    link->conn = NULL;
    links_drop(&link->up);
    if (sim.shape.rst_eats)
        links_drop(&link->down);
    link->reset = true;
    link->error = ECONNRESET;
    link->reset_us = INT64_MAX;
    network_counts.resets++;
    world_trace("reset", link->number, link->node, 0);
}

/* Replies into the pipe, as far as there is room. */
void links_node_writes(struct link *link)
{
    while (link->conn != NULL && !is_frozen(link) && link->down.bytes < sim.shape.receive_buffer) {
        cqlring_bytes out = node_conn_output(link->conn);
        if (out.size <= 0)
            break;
        uint32_t room = sim.shape.receive_buffer - link->down.bytes;
        uint32_t size = (uint32_t)out.size < room ? (uint32_t)out.size : room;
        if (link->close_after >= 0 && size > link->close_after)
            size = (uint32_t)link->close_after;
        if (size > 0)
            links_put(link, &link->down, out.data, size);
        node_conn_consumed(link->conn, size);
        if (link->close_after >= 0 && (link->close_after -= size) == 0) {
            links_node_closes(link);
            return;
        }
    }
    if (link->conn != NULL && !is_frozen(link) && node_conn_wants_close(link->conn) &&
        node_conn_output(link->conn).size <= 0)
        links_node_closes(link);
}

static void node_reads(struct link *link)
{
    struct pipe *up = &link->up;
    while (up->head != NULL && up->head->due_us <= world.now_us) {
        if (link->conn == NULL) { /* nobody there: answered with a reset */
            links_drop(up);
            if (!link->reset && link->reset_us == INT64_MAX)
                link->reset_us = world.now_us + links_flight_us(link);
            return;
        }
        if (is_frozen(link) || node_conn_is_paused(link->conn, world.now_us))
            return;
        const struct place *place = &sim.places[link->node];
        struct run *run = up->head;
        uint32_t size = run->size - run->at;
        if (place->slow_us > world.now_us) {
            if (link->read_us > world.now_us)
                return;
            if (size > place->slow_rate)
                size = place->slow_rate;
            link->read_us = world.now_us + 1000;
        }
        world_trace_bytes("in", link->number, run->data + run->at, size);
        node_conn_input(link->conn, run->data + run->at, size, world.now_us);
        run->at += size;
        up->bytes -= size;
        if (run->at == run->size) {
            up->head = run->next;
            if (up->head == NULL)
                up->tail = NULL;
            free(run);
        }
        links_node_writes(link);
    }
    if (up->head == NULL && up->ended && up->end_us <= world.now_us && link->conn != NULL &&
        !is_frozen(link))
        links_node_closes(link);
}

void links_free(struct link *link)
{
    if (link->conn != NULL)
        node_conn_close(link->conn);
    links_drop(&link->up);
    links_drop(&link->down);
    wire_destroy(link->wire);
    *link = (struct link){.state = LINK_FREE};
}

static void connect_answered(struct link *link)
{
    link->state = LINK_OPEN;
    const struct place *place = &sim.places[link->node];
    if (place->refuse_us > world.now_us) {
        link->error = ECONNREFUSED;
    } else if (place->blackhole_us > world.now_us) {
        link->half_open = true;
    } else {
        enum node_shard_port how = NODE_SHARD_PORT_OPEN;
        if (link->source_port != 0)
            (void)node_shard_port(sim.nodes, link->node, &how);
        if (how == NODE_SHARD_PORT_CLOSED)
            link->error = ECONNREFUSED;
        else if (how == NODE_SHARD_PORT_SILENT)
            link->half_open = true;
        else if ((link->conn = node_conn_open(sim.nodes, link->node, node_choose_shard(sim.nodes, link->node, link->source_port), world.now_us)) == NULL)
            link->error = ECONNREFUSED;
    }
    world_trace("connected", link->number, link->node, (uint64_t)link->error);
}

static void link_run(struct link *link)
{
    if (link->state == LINK_CONNECTING && link->connect_us <= world.now_us)
        connect_answered(link);
    if (link->reset_us <= world.now_us)
        links_reset(link);
    if (link->state == LINK_OPEN && !link->half_open) {
        node_reads(link);
        if (link->conn != NULL && !is_frozen(link)) {
            if (node_conn_next_time(link->conn) <= world.now_us)
                node_conn_turn(link->conn, world.now_us);
            links_node_writes(link);
        }
    }
    if (link->closed && (link->conn == NULL || link->half_open || link->state == LINK_CONNECTING))
        links_free(link);
}

/* When something happens on this link by itself; what is ready and waits for somebody does not count. */
static int64_t link_next(const struct link *link)
{
    int64_t next = link->reset_us;
    if (link->state == LINK_CONNECTING)
        return link->connect_us < next ? link->connect_us : next;
    if (link->half_open)
        return next;
    int64_t frozen = is_frozen(link) ? sim.places[link->node].frozen_us : 0, at;
    if (link->up.head != NULL || (link->up.ended && link->conn != NULL)) {
        at = link->up.head != NULL ? link->up.head->due_us : link->up.end_us;
        at = at > frozen ? at : frozen;
        if (sim.places[link->node].slow_us > world.now_us && link->read_us > at)
            at = link->read_us;
        if (at > world.now_us && at < next)
            next = at;
    }
    if (link->conn != NULL) {
        at = node_conn_next_time(link->conn);
        at = at > frozen ? at : frozen;
        if (at > world.now_us && at < next)
            next = at;
    }
    if (link->down.head != NULL && link->down.head->due_us > world.now_us &&
        link->down.head->due_us < next)
        next = link->down.head->due_us;
    if (link->down.head == NULL && link->down.ended && link->down.end_us > world.now_us &&
        link->down.end_us < next)
        next = link->down.end_us;
    return next;
}

void links_run(void)
{
    for (uint32_t i = 0; i < sim.link_top; i++)
        if (sim.links[i].state != LINK_FREE)
            link_run(&sim.links[i]);
}

int64_t links_next(void)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < sim.link_top; i++) {
        if (sim.links[i].state == LINK_FREE)
            continue;
        int64_t at = link_next(&sim.links[i]);
        if (at < next)
            next = at;
    }
    return next;
}

/* The world goes on, the process does not. */
void links_stand_still(int64_t for_us)
{
    world_trace("gap", (uint64_t)for_us, 0, 0);
    int64_t end = world.now_us + for_us;
    world.lost_us += for_us;
    for (;;) {
        links_run();
        int64_t at = links_next();
        if (at > end)
            break;
        world.now_us = at > world.now_us ? at : world.now_us;
    }
    world.now_us = end;
}
