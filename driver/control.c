/* SPDX-License-Identifier: Apache-2.0 */

/* The control connection's life, on lane 0's submitter: finds a node that answers, and has a topology read from it. When the
   connection is lost, the nodes known so far are tried, then the contact points again. What is done on it is in control_read.c. */

#include <stdio.h>
#include <string.h>

#include "driver/agreement.h"
#include "driver/client_routes.h"
#include "driver/contacts.h"
#include "driver/control_private.h"
#include "driver/policy.h"
#include "driver/runtime.h"
#include "driver/schema.h"
#include "driver/trace.h"

static void start_round(struct control *control);
static void connect_candidate(struct control *control);

/* ---- candidates ---- */

static void note_failure(struct control *control, cqlring_status status, const char *text)
{
    size_t length = strlen(control->failures);
    if (length + 2 < sizeof control->failures)
        snprintf(control->failures + length, sizeof control->failures - length, "%s%s", length > 0 ? "; " : "", text);
    control->failures_differ = control->failures_differ || (control->failure_status != CQLRING_OK && control->failure_status != status);
    control->failure_status = status;
    control->failure_code = 0;
    control->failure_node[0] = '\0';
}

/* No candidate is left in this round. */
static void round_failed(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct lane *lane = control->lane;
    if (cluster->opening != NULL) {
        cqlring_status status = control->failures_differ || control->failure_status == CQLRING_LOST || control->failure_status == CQLRING_OK
                                    ? CQLRING_UNREACHABLE
                                    : control->failure_status;
        cqr_control_state_set(control, CONTROL_IDLE);
        struct failure *failure = cqr_failure_make(status, "no contact point can be used: %s", control->failures);
        if (status == control->failure_status && !cqr_failure_is_static(failure)) { /* they all said so: the last one's words stand for it */
            failure->error.server_code = control->failure_code;
            snprintf(failure->error.node, sizeof failure->error.node, "%s", control->failure_node);
        }
        cqr_cluster_opened(cluster, failure);
        return;
    }
    control->rounds++;
    int64_t delay = cqr_reconnect_delay_us(control->rounds, cluster->reconnect_min_us, cluster->reconnect_max_us, cqr_random(&lane->random));
    cqr_log(&lane->runtime->log, CQLRING_LOG_WARN, "no node takes the control connection, again in %s: %s", cqr_duration(delay).text, control->failures);
    cqr_control_state_set(control, CONTROL_AWAIT_RETRY);
    cqr_wheel_arm(&lane->wheel, &control->timer, lane->now_us + delay);
}

static void next_candidate(struct control *control)
{
    control->at++;
    connect_candidate(control);
}

/* The name that it was found by; "" where a literal was given. */
static const char *candidate_name(const struct cqlring_cluster *cluster, const struct resolved_address *candidate)
{
    struct address literal;
    return candidate->point < cluster->point_count && !cqr_address_from_literal(&literal, cluster->points[candidate->point].host, 1)
               ? cluster->points[candidate->point].host
               : cqr_client_routes_name(cluster, &candidate->address);
}

static void connect_candidate(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct lane *lane = control->lane;
    cqr_control_results_drop(control);
    for (; control->at < control->candidate_count; control->at++) {
        struct resolved_address *candidate = &control->candidates[control->at];
        char text[64];
        cqr_address_format(&candidate->address, text);
        control->config = cluster->config;
        control->config.version = control->version_try != 0 ? control->version_try : (uint8_t)atomic_load_explicit(&cluster->version, memory_order_relaxed);
        control->config.register_events = true;
        control->config.register_routes = cluster->client_routes != NULL;
        control->config.driver_config = cluster->report; /* once is enough: the table of clients names each of our connections by client_id */
        struct conn_request request = {.cluster = cluster,
                                       .address = candidate->address,
                                       .text = text,
                                       .tls_name = candidate_name(cluster, candidate),
                                       .config = &control->config,
                                       .in_flight_max = 64,
                                       .frame_size_max = cluster->frame_size_max,
                                       .connect_timeout_us = cluster->connect_timeout_us};
        cqr_control_state_set(control, CONTROL_AWAIT_CONNECTION);
        if (lane->conn_count < lane->conn_max)
            control->link.conn = cqr_conn_create(lane, &control->link, &request);
        if (control->link.conn != NULL) {
            control->link.conn->writer.suspect_after_us = cluster->suspect_after_us;
            return;
        }
        note_failure(control, CQLRING_NO_MEMORY, "out of memory, or connections_max is reached");
    }
    round_failed(control);
}

/* ---- up and down ---- */

static void link_changed(struct lane *lane, struct pool_link *link, bool up)
{
    struct control *control = (struct control *)(void *)((char *)link - offsetof(struct control, link));
    (void)lane;
    if (control->state == CONTROL_STOPPED)
        return;
    if (up) {
        if (control->version_try != 0) /* so that was it */
            cqr_cluster_version_lower(control->cluster, control->version_try);
        control->version_try = 0;
        control->old_peers = false;
        cqr_control_read(control);
        cqr_schema_connected(control->cluster);
        return;
    }
    if (control->state == CONTROL_AWAIT_CONNECTION && link->retry_version) {
        connect_candidate(control); /* the same one, in a lower version */
        return;
    }
    /* only while nothing has ever been agreed: later it is a drained or dying node that closes (RC-24) */
    if (control->state == CONTROL_AWAIT_CONNECTION && control->cluster->opening != NULL && control->version_try == 0 && link->perhaps_version != 0) {
        control->version_try = link->perhaps_version;
        connect_candidate(control);
        return;
    }
    control->version_try = 0;
    note_failure(control, link->last_status, link->last_text);
    control->failure_code = link->last_code;
    if (control->at < control->candidate_count)
        cqr_address_format(&control->candidates[control->at].address, control->failure_node);
    cqr_control_results_drop(control);
    cqr_wheel_disarm(&control->lane->wheel, &control->timer);
    bool was_up = control->state == CONTROL_UP || control->cluster->opening == NULL;
    if (was_up && control->state != CONTROL_AWAIT_CONNECTION) {
        cqr_log(&control->lane->runtime->log, CQLRING_LOG_WARN, "the control connection is lost: %s", link->last_text);
        start_round(control);
        return;
    }
    next_candidate(control);
}

/* ---- rounds ---- */

/* failures: of the points that could not be looked up, "" for none. */
static void round_with(struct control *control, const char *failures)
{
    struct cqlring_cluster *cluster = control->cluster;
    const struct resolution *resolution = cqr_contacts_known(cluster);
    cqr_mem_free(control->candidates);
    control->candidates = NULL;
    control->candidate_count = control->at = 0;
    uint32_t known = cluster->topology->node_count;
    struct resolved_address *candidates = cqr_mem_array(known + resolution->count + 1, sizeof *candidates);
    if (candidates != NULL) {
        uint32_t turn = known > 0 ? (uint32_t)(cqr_random(&control->lane->random) % known) : 0;
        for (uint32_t i = 0; i < known; i++) {
            const struct node_place *place = cqr_node_place(cluster->topology->nodes[(turn + i) % known]);
            if (!place->is_denied)
                candidates[control->candidate_count++] = (struct resolved_address){.address = place->address, .point = UINT32_MAX};
        }
        known = control->candidate_count;
        for (uint32_t i = 0; i < resolution->count; i++) {
            bool listed = false;
            for (uint32_t j = 0; j < known && !listed; j++) {
                listed = cqr_address_equal(&candidates[j].address, &resolution->addresses[i].address);
                if (listed)
                    candidates[j].point = resolution->addresses[i].point; /* its name */
            }
            if (!listed)
                candidates[control->candidate_count++] = resolution->addresses[i];
        }
        control->candidates = candidates;
    }
    control->failures[0] = '\0';
    control->failure_status = CQLRING_OK;
    control->failures_differ = false;
    if (failures[0] != '\0')
        note_failure(control, CQLRING_UNREACHABLE, failures);
    connect_candidate(control);
}

static void resolved(struct lane *lane, struct cqlring_cluster *cluster, const struct resolution *found)
{
    struct control *control = cluster->control;
    if (control->state != CONTROL_STOPPED)
        cqr_contacts_learn(cluster, found);
    if (control->state == CONTROL_AWAIT_ADDRESSES) {
        cqr_wheel_disarm(&lane->wheel, &control->timer);
        round_with(control, found->failures);
    }
}

/* A name whose answer does not come keeps nobody from the others, nor from the nodes that are known. */
static void not_resolved(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    struct resolution literals;
    char why[64];
    snprintf(why, sizeof why, "no answer in %s", cqr_duration(cluster->resolve_timeout_us).text);
    if (cqr_resolve_literals(cluster->points, cluster->point_count, why, &literals) != CQLRING_OK)
        snprintf(literals.failures, sizeof literals.failures, "contact points cannot be resolved: out of memory");
    cqr_contacts_learn(cluster, &literals); /* what the names led to before stays */
    round_with(control, literals.failures);
    cqr_mem_free(literals.addresses);
}

static void resolve(struct control *control)
{
    struct cqlring_cluster *cluster = control->cluster;
    bool bounded = cluster->runtime->threads != CQLRING_THREADS_CALLER && cluster->resolve_timeout_us >= 0;
    if (bounded)
        cqr_wheel_arm(&control->lane->wheel, &control->timer, control->lane->now_us + cluster->resolve_timeout_us);
    if (control->lookup.is_under_way)
        return; /* an earlier round's, that has not come back: its answer is as good */
    if (cluster->runtime->threads == CQLRING_THREADS_CALLER) {
        if (!control->has_first)
            control->has_first = cqr_resolve(cluster->points, cluster->point_count, &control->first) == CQLRING_OK;
        struct resolution resolution = control->first;
        resolution.addresses = cqr_mem_array(control->first.count + 1, sizeof *resolution.addresses);
        if (resolution.addresses == NULL)
            resolution.count = 0;
        else if (control->first.count > 0)
            memcpy(resolution.addresses, control->first.addresses, control->first.count * sizeof *resolution.addresses);
        cqr_lookup_answer(&control->lookup, cluster, &resolution, resolved);
        return;
    }
    if (cqr_lookup_start(&control->lookup, cluster, cluster->points, cluster->point_count, resolved) != CQLRING_OK) {
        struct resolution none = {0};
        snprintf(none.failures, sizeof none.failures, "contact points cannot be resolved: out of memory or threads");
        cqr_lookup_answer(&control->lookup, cluster, &none, resolved);
    }
}

static void start_round(struct control *control)
{
    cqr_control_state_set(control, CONTROL_AWAIT_ADDRESSES);
    resolve(control);
}

void cqr_control_timer(struct lane *lane, struct timer *timer)
{
    struct control *control = (struct control *)(void *)((char *)timer - offsetof(struct control, timer));
    (void)lane;
    if (control->state == CONTROL_AWAIT_RETRY)
        start_round(control);
    else if (control->state == CONTROL_AWAIT_ADDRESSES)
        not_resolved(control);
    else if (control->state == CONTROL_AWAIT_NAMES)
        cqr_control_routes_settle(control);
    else if (control->state == CONTROL_UP && control->link.up)
        cqr_control_read(control);
}

/* ---- start and end ---- */

struct start_post {
    struct lane_message message;
    struct control *control;
};

static void start_run(struct lane *lane, struct lane_message *message)
{
    struct start_post *post = (struct start_post *)(void *)message;
    struct control *control = post->control;
    struct cqlring_cluster *cluster = control->cluster;
    (void)lane;
    cqr_mem_free(post);
    if (control->state == CONTROL_IDLE)
        start_round(control);
    cqr_cluster_release(cluster);
}

bool cqr_control_create(struct cqlring_cluster *cluster)
{
    struct control *control = cqr_mem_zalloc(sizeof *control);
    if (control == NULL)
        return false;
    control->cluster = cluster;
    control->lane = &cluster->runtime->lanes[0];
    control->timer.kind = TIMER_CONTROL;
    control->link.changed = link_changed;
    control->link.event = cqr_control_event;
    control->link.context = cluster;
    cluster->control = control;
    return true;
}

void cqr_control_start(struct cqlring_cluster *cluster)
{
    struct start_post *post = cqr_mem_zalloc(sizeof *post);
    if (post != NULL) {
        post->message.run = start_run;
        post->control = cluster->control;
        cqr_cluster_retain(cluster);
        if (cqr_lane_post(cluster->control->lane, &post->message))
            return;
        cqr_cluster_release(cluster);
        cqr_mem_free(post);
        cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_CLOSED, "the runtime has ended"));
        return;
    }
    cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_NO_MEMORY, "opening the cluster: out of memory"));
}

void cqr_control_stop(struct lane *lane, struct cqlring_cluster *cluster)
{
    struct control *control = cluster->control;
    if (control->state == CONTROL_STOPPED)
        return;
    control->state = CONTROL_STOPPED;
    cqr_agreement_stop(cluster->agreement);
    cqr_schema_stop(cluster->schema);
    cqr_traces_stop(cluster);
    cqr_contacts_stop(lane, cluster);
    cqr_client_routes_stop(cluster);
    cqr_wheel_disarm(&lane->wheel, &control->timer);
    cqr_control_results_drop(control);
    if (control->link.conn != NULL) {
        struct conn *conn = control->link.conn;
        control->link.conn = NULL;
        control->link.up = false;
        conn->home = NULL;
        cqr_writer_shut(conn, CQLRING_CLOSED, "the cluster is closed");
    }
    if (cluster->opening != NULL)
        cqr_cluster_opened(cluster, cqr_failure_make(CQLRING_CLOSED, "the cluster was closed while it was opening"));
}

struct conn *cqr_control_conn(const struct cqlring_cluster *cluster)
{
    const struct control *control = cluster->control;
    return control->state != CONTROL_STOPPED && control->link.up ? control->link.conn : NULL;
}

void cqr_control_free(struct control *control)
{
    if (control == NULL)
        return;
    cqr_control_results_drop(control);
    cqr_mem_free(control->candidates);
    cqr_mem_free(control->first.addresses);
    cqr_mem_free(control);
}
