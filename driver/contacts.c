/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/contacts.h"

#include <stdio.h>
#include <string.h>

#include "driver/control_rows.h"
#include "driver/lookup.h"
#include "driver/runtime.h"
#include "driver/session.h"

struct contacts {
    struct cqlring_cluster *cluster;
    struct lane *lane;
    struct resolution known;
    struct timer timer;            /* TIMER_CONTACTS: look again; not where all are literals, nor where that would block */
    struct lookup lookup;
    bool stopped;
};

static bool has_point(const struct resolution *resolution, uint32_t point)
{
    for (uint32_t i = 0; i < resolution->count; i++)
        if (resolution->addresses[i].point == point)
            return true;
    return false;
}

static bool has_address(const struct resolution *resolution, const struct address *address)
{
    for (uint32_t i = 0; i < resolution->count; i++)
        if (cqr_address_equal(&resolution->addresses[i].address, address))
            return true;
    return false;
}

static bool has_all(const struct resolution *resolution, const struct resolution *others)
{
    for (uint32_t i = 0; i < others->count; i++)
        if (!has_address(resolution, &others->addresses[i].address))
            return false;
    return true;
}

static void say_changed(const struct cqlring_cluster *cluster, const struct resolution *now)
{
    char text[400] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        char address[64];
        cqr_address_format(&now->addresses[i].address, address);
        bool last = length + strlen(address) + 8 > sizeof text;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i > 0 ? ", " : "", last ? "…" : address);
        if (last)
            break;
    }
    cqr_log(&cluster->runtime->log, CQLRING_LOG_INFO, "the contact points lead elsewhere now: %s", text);
}

static void look_later(struct contacts *contacts)
{
    const struct cqlring_cluster *cluster = contacts->cluster;
    if (cluster->resolve_interval_us > 0 && !contacts->stopped && cluster->runtime->threads != CQLRING_THREADS_CALLER &&
        cqr_contacts_have_names(cluster->points, cluster->point_count))
        cqr_wheel_arm(&contacts->lane->wheel, &contacts->timer, contacts->lane->now_us + cluster->resolve_interval_us);
}

void cqr_contacts_learn(struct cqlring_cluster *cluster, const struct resolution *found)
{
    struct contacts *contacts = cluster->contacts;
    struct resolution *known = &contacts->known, now = {.count = 0};
    look_later(contacts);
    now.addresses = cqr_mem_array((size_t)found->count + known->count + 1, sizeof *now.addresses);
    if (now.addresses == NULL)
        return; /* what is known stays */
    for (uint32_t i = 0; i < found->count; i++)
        now.addresses[now.count++] = found->addresses[i];
    for (uint32_t i = 0; i < known->count; i++)
        if (!has_point(found, known->addresses[i].point))
            now.addresses[now.count++] = known->addresses[i];
    bool changed = known->count > 0 && !(has_all(known, &now) && has_all(&now, known));
    cqr_mem_free(known->addresses);
    *known = now;
    if (changed) {
        say_changed(cluster, known);
        cqr_control_look(contacts->lane, cluster); /* who has another name's address may have moved */
    }
}

const struct resolution *cqr_contacts_known(const struct cqlring_cluster *cluster)
{
    return &cluster->contacts->known;
}

const char *cqr_contacts_name(const struct cqlring_cluster *cluster, const struct address *address)
{
    const struct resolution *known = cluster->contacts != NULL ? &cluster->contacts->known : NULL;
    for (uint32_t i = 0; known != NULL && i < known->count; i++)
        if (cqr_address_equal(&known->addresses[i].address, address) && cqr_contact_is_name(&cluster->points[known->addresses[i].point]))
            return cluster->points[known->addresses[i].point].host;
    return "";
}

/* ---- by the timer ---- */

static void looked(struct lane *lane, struct cqlring_cluster *cluster, const struct resolution *found)
{
    (void)lane;
    if (cluster->contacts->stopped)
        return;
    if (found->failures[0] != '\0')
        cqr_log(&cluster->runtime->log, CQLRING_LOG_INFO, "contact points cannot be looked up, what is known of them stays: %s", found->failures);
    cqr_contacts_learn(cluster, found);
}

void cqr_contacts_timer(struct lane *lane, struct timer *timer)
{
    struct contacts *contacts = (struct contacts *)(void *)((char *)timer - offsetof(struct contacts, timer));
    struct cqlring_cluster *cluster = contacts->cluster;
    (void)lane;
    if (contacts->stopped || contacts->lookup.is_under_way)
        return; /* its answer goes on from there */
    if (cqr_lookup_start(&contacts->lookup, cluster, cluster->points, cluster->point_count, looked) != CQLRING_OK)
        look_later(contacts); /* no memory or thread for it: the next time */
}

/* ---- life ---- */

bool cqr_contacts_create(struct cqlring_cluster *cluster)
{
    struct contacts *contacts = cqr_mem_zalloc(sizeof *contacts);
    if (contacts == NULL)
        return false;
    contacts->cluster = cluster;
    contacts->lane = &cluster->runtime->lanes[0];
    contacts->timer.kind = TIMER_CONTACTS;
    cluster->contacts = contacts;
    return true;
}

void cqr_contacts_stop(struct lane *lane, struct cqlring_cluster *cluster)
{
    cluster->contacts->stopped = true;
    cqr_wheel_disarm(&lane->wheel, &cluster->contacts->timer);
}

void cqr_contacts_free(struct cqlring_cluster *cluster)
{
    if (cluster->contacts == NULL)
        return;
    cqr_mem_free(cluster->contacts->known.addresses);
    cqr_mem_free(cluster->contacts);
}
