/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/listener.h"

#include <string.h>

#include "driver/runtime.h"
#include "driver/session.h"

static bool may_tell(const struct cqlring_cluster *cluster)
{
    /* acquire: pairs with the close's release */
    return cluster->on_node != NULL && atomic_load_explicit(&((struct cqlring_cluster *)(uintptr_t)cluster)->state, memory_order_acquire) < HANDLE_CLOSING;
}

static void tell(struct cqlring_cluster *cluster, const struct cqlring_node *node, cqlring_node_event event)
{
    static const char *const names[] = {"", "added", "removed", "up", "down", "moved"};
    cqr_log(&cluster->runtime->log, CQLRING_LOG_DEBUG, "%s is told: %s", cqr_node_place(node)->text, names[event]);
    cluster->on_node(node, event, cluster->on_node_context);
}

/* Is it told what it is? Lane 0. */
static void look(struct cqlring_cluster *cluster, struct cqlring_node *node)
{
    bool up = node->told && atomic_load_explicit(&node->connections, memory_order_acquire) > 0;
    if (!may_tell(cluster) || up == node->told_up)
        return;
    node->told_up = up;
    tell(cluster, node, up ? CQLRING_NODE_UP : CQLRING_NODE_DOWN);
}

static bool has(const struct topology *topology, const struct cqlring_node *node)
{
    for (uint32_t i = 0; i < topology->node_count; i++)
        if (topology->nodes[i] == node)
            return true;
    return false;
}

void cqr_listener_topology(struct cqlring_cluster *cluster, const struct topology *before, const struct topology *after)
{
    if (!may_tell(cluster))
        return;
    for (uint32_t i = 0; i < after->node_count && may_tell(cluster); i++) {
        struct cqlring_node *node = after->nodes[i];
        const struct node_place *place = cqr_node_place(node), *told = node->told_place;
        node->told_place = place;
        if (!node->told) {
            node->told = true;
            tell(cluster, node, CQLRING_NODE_ADDED);
        } else if (!cqr_address_equal(&told->address, &place->address)) {
            tell(cluster, node, CQLRING_NODE_MOVED);
        }
        look(cluster, node); /* also what a message was lost about, when there was no memory for it */
    }
    for (uint32_t i = 0; i < before->node_count && may_tell(cluster); i++) {
        struct cqlring_node *node = before->nodes[i];
        if (!node->told || has(after, node))
            continue;
        node->told = false; /* its connections are about to go */
        look(cluster, node);
        if (may_tell(cluster))
            tell(cluster, node, CQLRING_NODE_REMOVED);
    }
}

struct look_post {
    struct lane_message message;
    struct cqlring_cluster *cluster;
    struct cqlring_node *node;
};

static void look_run(struct lane *lane, struct lane_message *message)
{
    struct look_post *post = (struct look_post *)(void *)message;
    (void)lane;
    look(post->cluster, post->node);
    cqr_cluster_release(post->cluster);
    cqr_mem_free(post);
}

void cqr_listener_node(struct lane *lane, struct cqlring_cluster *cluster, struct cqlring_node *node)
{
    if (!may_tell(cluster))
        return;
    if (lane->index == 0) {
        look(cluster, node);
        return;
    }
    struct look_post *post = cqr_mem_zalloc(sizeof *post);
    if (post == NULL)
        return; /* the next look sees it */
    post->message.run = look_run;
    post->cluster = cqr_cluster_retain(cluster);
    post->node = node;
    if (!cqr_lane_post(&cluster->runtime->lanes[0], &post->message)) {
        cqr_cluster_release(cluster);
        cqr_mem_free(post);
    }
}

/* ---- translation ---- */

void cqr_node_translate(struct cqlring_cluster *cluster, const struct cqlring_node *node, struct address *address)
{
    if (cluster->translate_address == NULL)
        return;
    char text[256] = "";
    cqlring_node_info info;
    cqlring_node_describe(node, &info);
    if (!cluster->translate_address(&info, text, sizeof text, cluster->translate_context))
        return;
    text[sizeof text - 1] = '\0';
    struct contact_point *points = NULL;
    uint32_t count = 0;
    struct address translated;
    cqlring_error error;
    cqlring_status status = cqr_contact_points_parse(text, cluster->port, &points, &count, &error);
    if (status == CQLRING_OK && count == 1 && cqr_address_from_literal(&translated, points[0].host, points[0].port))
        *address = translated;
    else
        cqr_log(&cluster->runtime->log, CQLRING_LOG_WARN, "translate_address made \"%s\" of %s, which is no literal address: it is dialled untranslated", text, cqr_node_place(node)->text);
    cqr_mem_free(points);
}
