/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* --- life -------------------------------------------------------------------------------------------------------- */

void network_init(struct node_cluster *nodes, const struct network_shape *shape)
{
    memset(&sim, 0, sizeof sim);
    sim.armed_us = -1;
    network_counts = (struct network_counts){0};
    sim.nodes = nodes;
    sim.shape = *shape;
    sim.chance = chance_make(world.seed, 2);
    assert(shape->send_buffer >= 16 && shape->receive_buffer >= 16);
}

void network_fini(void)
{
    for (uint32_t i = 0; i < sim.link_top; i++) {
        struct link *link = &sim.links[i];
        if (link->state == LINK_FREE)
            continue;
        world_check(link->closed, "the socket of link %u to node %u was never closed", link->number,
                    link->node);
        links_free(link);
    }
}

uint32_t network_links(uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim.link_top; i++) {
        const struct link *link = &sim.links[i];
        count += link->state == LINK_OPEN && !link->closed && link->error == 0 &&
                 (node == NODE_ALL || link->node == node);
    }
    return count;
}

/* --- what goes wrong --------------------------------------------------------------------------------------------- */

static struct link *pick(uint32_t node)
{
    uint32_t count = 0;
    struct link *picked = NULL;
    for (uint32_t i = 0; i < sim.link_top; i++) {
        struct link *link = &sim.links[i];
        if (link->state != LINK_OPEN || link->closed || link->reset || link->half_open ||
            link->conn == NULL || (node != NODE_ALL && link->node != node))
            continue;
        if (chance_below(&sim.chance, ++count) == 0)
            picked = link;
    }
    return picked;
}

bool network_reset(uint32_t node)
{
    struct link *link = pick(node);
    if (link != NULL)
        links_reset(link);
    return link != NULL;
}

bool network_close(uint32_t node, uint32_t after)
{
    struct link *link = pick(node);
    if (link == NULL)
        return false;
    link->close_after = after;
    if (after == 0)
        links_node_closes(link);
    return true;
}

bool network_half_open(uint32_t node)
{
    struct link *link = pick(node);
    if (link == NULL)
        return false;
    world_trace("half-open", link->number, 0, 0);
    link->half_open = true;
    return true;
}

static void until(int64_t *what, int64_t for_us)
{
    *what = world.now_us + for_us;
}

void network_crash(uint32_t node, int64_t for_us)
{
    world_trace("crash", node, (uint64_t)for_us, 0);
    for (uint32_t i = 0; i < sim.link_top; i++)
        if (sim.links[i].state == LINK_OPEN && sim.links[i].node == node && !sim.links[i].half_open)
            links_reset(&sim.links[i]);
    node_forget_prepared(sim.nodes, node);
    until(&sim.places[node].refuse_us, for_us);
}

void network_freeze(uint32_t node, int64_t for_us)
{
    world_trace("freeze", node, (uint64_t)for_us, 0);
    until(&sim.places[node].frozen_us, for_us);
}

void network_refuse(uint32_t node, int64_t for_us)
{
    until(&sim.places[node].refuse_us, for_us);
}

void network_blackhole(uint32_t node, int64_t for_us)
{
    until(&sim.places[node].blackhole_us, for_us);
}

void network_slow_reader(uint32_t node, int64_t for_us, uint32_t bytes_per_ms)
{
    until(&sim.places[node].slow_us, for_us);
    sim.places[node].slow_rate = bytes_per_ms > 0 ? bytes_per_ms : 1;
}

void network_no_sockets(int64_t for_us)
{
    until(&sim.no_sockets_us, for_us);
}

void network_heal(void)
{
    memset(sim.places, 0, sizeof sim.places);
    sim.no_sockets_us = 0;
    for (uint32_t i = 0; i < sim.link_top; i++)
        if (sim.links[i].state != LINK_FREE && sim.links[i].half_open) {
            sim.links[i].half_open = false;
            sim.links[i].reset_us = world.now_us + 1;
        }
}

void network_gap(int64_t for_us, bool between)
{
    world_check(sim.in_wait, "network_gap outside of an errand");
    if (between)
        sim.gap_us = for_us;
    else
        links_stand_still(for_us);
}
