/* SPDX-License-Identifier: Apache-2.0 */

/* Clusters: options checked and kept, opened through control, closed session by session. */

#include <stdio.h>
#include <string.h>

#include "driver/agreement.h"
#include "driver/client_routes.h"
#include "driver/contacts.h"
#include "driver/execution.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/node.h"
#include "driver/node_stats.h"
#include "driver/report.h"
#include "driver/runtime.h"
#include "driver/schema.h"
#include "driver/session.h"
#include "driver/tls_settings.h"

enum { PORT = 9042, LOCAL_PORT_MIN = 49152 };
#define TIME_MAX_US INT64_C(86400000000)

struct opening {
    cqlring_future future;
};

struct cqlring_cluster *cqr_cluster_retain(struct cqlring_cluster *cluster)
{
    atomic_fetch_add_explicit(&cluster->references, 1, memory_order_relaxed);
    return cluster;
}

struct cqlring_cluster *cqr_cluster_handle(struct cqlring_cluster *cluster)
{
    atomic_fetch_add_explicit(&cluster->handles, 1, memory_order_relaxed);
    return cqr_cluster_retain(cluster);
}

static void secret_free(char *secret)
{
    if (secret == NULL)
        return;
    volatile char *at = secret;
    while (*at != '\0')
        *at++ = '\0';
    cqr_mem_free(secret);
}

static void cluster_free(struct cqlring_cluster *cluster)
{
    struct runtime_core *runtime = cluster->runtime;
    if (runtime != NULL) {
        pthread_mutex_lock(&runtime->lock);
        if (cluster->link != NULL) {
            *cluster->link = cluster->next;
            if (cluster->next != NULL)
                cluster->next->link = cluster->link;
        }
        pthread_mutex_unlock(&runtime->lock);
    }
    cqr_control_free(cluster->control);
    cqr_contacts_free(cluster);
    cqr_client_routes_free(cluster);
    cqr_agreement_free(cluster->agreement);
    cqr_schema_free(cluster->schema);
    cqlring_schema_release(cluster->schema_now);
    cqr_mem_free(atomic_load_explicit(&cluster->spare, memory_order_acquire));
    cqr_topology_release(cluster->topology);
    cqr_nodes_free(cluster);
    cqr_tablets_fini(&cluster->tablets);
    cqr_mem_free(cluster->points);
    secret_free(cluster->user);
    secret_free(cluster->password);
    cqr_mem_free(cluster->local_datacenter);
    cqr_node_policy_fini(&cluster->policy);
    cqr_mem_free(cluster->application_name);
    cqr_mem_free(cluster->application_version);
    cqr_mem_free(cluster->report);
    cqr_tls_settings_free(cluster);
    pthread_mutex_destroy(&cluster->reload_lock);
    pthread_mutex_destroy(&cluster->lock);
    cqr_mem_free(cluster);
    if (runtime != NULL)
        cqr_runtime_release(runtime);
}

/* ---- close ---- */

struct cluster_close {
    struct lane_message message;
    struct cqlring_cluster *cluster;  /* a reference */
    atomic_uint sessions_left;
    cqlring_future *future;           /* NULL: nobody waits */
};

static void close_end(struct cluster_close *close)
{
    struct cqlring_cluster *cluster = close->cluster;
    cqlring_future *future = close->future;
    atomic_store_explicit(&cluster->state, HANDLE_CLOSED, memory_order_release);
    cqr_mem_free(close);
    cqr_cluster_release(cluster);
    if (future != NULL)
        cqr_future_complete(future);
}

static void control_run(struct lane *lane, struct lane_message *message)
{
    struct cluster_close *close = (struct cluster_close *)(void *)message;
    cqr_control_stop(lane, close->cluster);
    close_end(close);
}

static void session_closed(void *context)
{
    struct cluster_close *close = context;
    if (atomic_fetch_sub_explicit(&close->sessions_left, 1, memory_order_acq_rel) != 1)
        return;
    close->message.run = control_run;
    if (!cqr_lane_post(&close->cluster->runtime->lanes[0], &close->message))
        close_end(close);
}

cqlring_status cqr_cluster_close(struct cqlring_cluster *cluster, int64_t drain_us, cqlring_future *future)
{
    struct cluster_close *close = cqr_mem_zalloc(sizeof *close);
    if (close == NULL)
        close = atomic_exchange_explicit(&cluster->spare, NULL, memory_order_acq_rel);
    if (close == NULL)
        return CQLRING_NO_MEMORY;
    close->cluster = cqr_cluster_retain(cluster);
    close->future = future;
    atomic_init(&close->sessions_left, 1);
    unsigned state = atomic_load_explicit(&cluster->state, memory_order_acquire);
    while (state < HANDLE_CLOSING && !atomic_compare_exchange_weak_explicit(&cluster->state, &state, HANDLE_CLOSING, memory_order_acq_rel, memory_order_acquire)) {
    }
    struct cqlring_session *some[64]; /* the newest first; while no lock is held they may leave the list */
    uint64_t before = UINT64_MAX;
    uint32_t count;
    do {
        count = 0;
        pthread_mutex_lock(&cluster->lock);
        for (struct cqlring_session *session = cluster->sessions; session != NULL && count < 64; session = session->next) {
            if (session->number >= before)
                continue;
            before = session->number;
            /* one that is being released just now closes itself */
            unsigned references = atomic_load_explicit(&session->references, memory_order_relaxed);
            while (references > 0 && !atomic_compare_exchange_weak_explicit(&session->references, &references, references + 1, memory_order_relaxed, memory_order_relaxed)) {
            }
            if (references > 0)
                some[count++] = session;
        }
        pthread_mutex_unlock(&cluster->lock);
        for (uint32_t i = 0; i < count; i++) {
            atomic_fetch_add_explicit(&close->sessions_left, 1, memory_order_relaxed);
            if (cqr_session_close(some[i], drain_us, session_closed, close) != CQLRING_OK)
                atomic_fetch_sub_explicit(&close->sessions_left, 1, memory_order_acq_rel);
            cqr_session_release(some[i]);
        }
    } while (count == 64);
    session_closed(close);
    return CQLRING_OK;
}

cqlring_status cqlring_cluster_close(cqlring_cluster *cluster, int64_t drain_us, cqlring_future **future, cqlring_error *error)
{
    if (cluster == NULL || drain_us < -1)
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_close: a cluster, and a drain time of -1, 0 or microseconds");
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_cluster_close: the cluster belongs to the parent process");
    cqlring_future *own = cqr_close_future(cluster->runtime);
    if (own == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_cluster_close: out of memory");
    if (future != NULL)
        *future = own;
    else
        cqlring_future_release(own);
    if (cqr_cluster_close(cluster, drain_us, own) != CQLRING_OK) {
        cqlring_future_release(own);
        if (future != NULL) {
            cqlring_future_release(own);
            *future = NULL;
        }
        return cqr_error(error, CQLRING_NO_MEMORY, "cqlring_cluster_close: out of memory");
    }
    return CQLRING_OK;
}

void cqr_cluster_release(struct cqlring_cluster *cluster)
{
    if (cluster->fork_generation == cqr_fork_generation() && atomic_fetch_sub_explicit(&cluster->references, 1, memory_order_acq_rel) == 1)
        cluster_free(cluster);
}

bool cqr_handle_given_back(atomic_uint *given, const struct runtime_core *runtime, const char *call)
{
    unsigned count = atomic_load_explicit(given, memory_order_relaxed);
    while (count > 0 && !atomic_compare_exchange_weak_explicit(given, &count, count - 1, memory_order_acq_rel, memory_order_relaxed))
        continue;
    if (count == 0)
        cqr_log(&runtime->log, CQLRING_LOG_ERROR, "%s: released more often than it was handed out: nothing is done. Without somebody who still holds it this would be freed memory",
                call);
    return count > 0;
}

void cqlring_cluster_release(cqlring_cluster *cluster)
{
    if (cluster != NULL && cluster->fork_generation == cqr_fork_generation() && cqr_handle_given_back(&cluster->given, cluster->runtime, "cqlring_cluster_release"))
        cqr_cluster_handle_release(cluster);
}

void cqr_cluster_handle_release(struct cqlring_cluster *cluster)
{
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return;
    /* what runs inside (connections, refreshes) refers to it too, but does not keep it open */
    if (atomic_fetch_sub_explicit(&cluster->handles, 1, memory_order_acq_rel) == 1 && atomic_load_explicit(&cluster->state, memory_order_acquire) < HANDLE_CLOSING)
        cqr_cluster_close(cluster, 0, NULL); /* no memory: its spare is gone, so it is closing */
    cqr_cluster_release(cluster);
}

/* ---- open ---- */

static char *text_copy(const char *text, bool *failed)
{
    if (text == NULL)
        return NULL;
    char *copy = cqr_mem_text(text, strlen(text));
    *failed = *failed || copy == NULL;
    return copy;
}

static int64_t time_or(int64_t given, int64_t otherwise)
{
    return given == 0 ? otherwise : given;
}

/* TO-12: the bound keeps sums of them, and of them and a clock, far from an int64's end. */
static cqlring_status times_check(const cqlring_cluster_options *options, cqlring_error *error)
{
    const struct {
        const char *name;
        int64_t given, least;
    } times[] = {{"connect_timeout_us", options->connect_timeout_us, 0},
                 {"heartbeat_us", options->heartbeat_us, -1},
                 {"suspect_after_us", options->suspect_after_us, -1},
                 {"resolve_timeout_us", options->resolve_timeout_us, -1},
                 {"reconnect_min_us", options->reconnect_min_us, 0},
                 {"reconnect_max_us", options->reconnect_max_us, 0},
                 {"resolve_interval_us", options->resolve_interval_us, -1}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (times[i].given < times[i].least || times[i].given > TIME_MAX_US)
            return cqr_error(error, CQLRING_INVALID, "cluster options: %s %lld (0 for the default%s, or up to %lld microseconds, a day)", times[i].name,
                             (long long)times[i].given, times[i].least < 0 ? ", -1 for never" : "", (long long)TIME_MAX_US);
    return CQLRING_OK;
}

static cqlring_status options_take(struct cqlring_cluster *cluster, const cqlring_cluster_options *options, const char *call, cqlring_error *error)
{
    static const cqlring_cluster_options defaults = {.struct_size = sizeof defaults};
    if (options == NULL)
        options = &defaults;
    if (options->struct_size < sizeof *options)
        return cqr_error(error, CQLRING_INVALID, "cluster options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_cluster_options)",
                         options->struct_size, sizeof *options);
    if (options->port < 0 || options->port > 65535)
        return cqr_error(error, CQLRING_INVALID, "cluster options: port %d (1 to 65535)", options->port);
    if (options->protocol_version != 0 && options->protocol_version != PROTO_V4 && options->protocol_version != PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "cluster options: protocol_version %d (4, 5, or 0 to negotiate)", options->protocol_version);
    if (options->compression > CQLRING_COMPRESSION_SNAPPY)
        return cqr_error(error, CQLRING_INVALID, "cluster options: compression %d (NONE, LZ4 or SNAPPY)", (int)options->compression);
    if (options->compression == CQLRING_COMPRESSION_SNAPPY && options->protocol_version == PROTO_V5)
        return cqr_error(error, CQLRING_INVALID, "cluster options: compression SNAPPY does not exist in protocol_version 5: LZ4, or 4");
    _Static_assert((int)CQLRING_COMPRESSION_LZ4 == COMPRESSION_LZ4 && (int)CQLRING_COMPRESSION_SNAPPY == COMPRESSION_SNAPPY, "the same numbers");
    if (options->inflight_per_connection > 16384)
        return cqr_error(error, CQLRING_INVALID, "cluster options: inflight_per_connection %u (1 to 16384)", options->inflight_per_connection);
    if (options->orphans_max > 16384)
        return cqr_error(error, CQLRING_INVALID, "cluster options: orphans_max %u (1 to 16384)", options->orphans_max);
    cqlring_status status = times_check(options, error);
    if (status != CQLRING_OK)
        return status;
    if (options->frame_size_max > PROTO_BODY_MAX || (options->frame_size_max != 0 && options->frame_size_max < 4096))
        return cqr_error(error, CQLRING_INVALID, "cluster options: frame_size_max %u bytes (4096 to %u)", options->frame_size_max, (unsigned)PROTO_BODY_MAX);
    if (options->request_size_max > PROTO_BODY_MAX)
        return cqr_error(error, CQLRING_INVALID, "cluster options: request_size_max %u bytes (at most %u)", options->request_size_max, (unsigned)PROTO_BODY_MAX);
    if (options->schema_agreement_us < -1 || options->schema_agreement_us > TIME_MAX_US)
        return cqr_error(error, CQLRING_INVALID, "cluster options: schema_agreement_us %lld (-1 for no wait, 0 for the default, or up to %lld microseconds, a day)",
                         (long long)options->schema_agreement_us, (long long)TIME_MAX_US);
    const struct {
        const char *name;
        cqlring_tristate given;
    } choices[] = {{"throw_on_overload", options->throw_on_overload},
                   {"schema_metadata", options->schema_metadata},
                   {"remote_local_consistency", options->remote_local_consistency},
                   {"shard_connections", options->shard_connections},
                   {"shard_aware_port", options->shard_aware_port},
                   {"prepare_on_up", options->prepare_on_up},
                   {"prepare_on_all", options->prepare_on_all},
                   {"tcp_nodelay", options->tcp_nodelay},
                   {"tcp_keepalive", options->tcp_keepalive},
                   {"report_configuration", options->report_configuration}};
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (choices[i].given > CQLRING_YES)
            return cqr_error(error, CQLRING_INVALID, "cluster options: %s %d (DEFAULT, NO or YES)", choices[i].name, (int)choices[i].given);
    if ((options->local_port_min == 0) != (options->local_port_max == 0) ||
        (options->local_port_min != 0 && (options->local_port_min < 1024 || options->local_port_max > 65535 || options->local_port_min > options->local_port_max)))
        return cqr_error(error, CQLRING_INVALID, "cluster options: local ports %d to %d: both are given, 1024 to 65535, the lower one first", options->local_port_min,
                         options->local_port_max);
    if (options->shard_busy_percent > 100)
        return cqr_error(error, CQLRING_INVALID, "cluster options: shard_busy_percent %u (1 to 100)", options->shard_busy_percent);
    status = cqr_socket_options_take(options, &cluster->socket, error);
    if (status != CQLRING_OK)
        return status;
    if ((options->user == NULL) != (options->password == NULL))
        return cqr_error(error, CQLRING_INVALID, "cluster options: user and password are given together");
    if (options->authenticator != NULL && options->authenticator->struct_size < sizeof *options->authenticator)
        return cqr_error(error, CQLRING_INVALID, "cluster options: authenticator's struct_size is %zu, expected %zu: set it to sizeof(cqlring_authenticator)",
                         options->authenticator->struct_size, sizeof *options->authenticator);
    if (options->authenticator != NULL && (options->authenticator->respond == NULL || options->user != NULL))
        return cqr_error(error, CQLRING_INVALID, "cluster options: an authenticator has a respond function, and stands in place of user and password");
    if (options->user != NULL && strlen(options->user) + strlen(options->password) + 2 > 4096)
        return cqr_error(error, CQLRING_INVALID, "cluster options: user and password together are larger than 4094 bytes");

    bool failed = false;
    cluster->port = (uint16_t)(options->port != 0 ? options->port : PORT);
    cluster->user = text_copy(options->user, &failed);
    cluster->password = text_copy(options->password, &failed);
    cluster->local_datacenter = text_copy(options->local_datacenter, &failed);
    cluster->application_name = text_copy(options->application_name, &failed);
    cluster->application_version = text_copy(options->application_version, &failed);
    if (failed)
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    cluster->connect_timeout_us = time_or(options->connect_timeout_us, 5000000);
    cluster->resolve_timeout_us = time_or(options->resolve_timeout_us, 5000000);
    cluster->heartbeat_us = time_or(options->heartbeat_us, 30000000);
    cluster->suspect_after_us = time_or(options->suspect_after_us, 2000000);
    cluster->reconnect_min_us = time_or(options->reconnect_min_us, 50000);
    cluster->reconnect_max_us = time_or(options->reconnect_max_us, 10000000);
    cluster->resolve_interval_us = time_or(options->resolve_interval_us, 300000000);
    if (cluster->reconnect_max_us < cluster->reconnect_min_us)
        return cqr_error(error, CQLRING_INVALID, "cluster options: reconnect_max_us (%s) is below reconnect_min_us (%s)",
                         cqr_duration(cluster->reconnect_max_us).text, cqr_duration(cluster->reconnect_min_us).text);
    if (options->authenticator != NULL)
        cluster->authenticator = *options->authenticator;
    cluster->on_node = options->on_node;
    cluster->on_node_context = options->on_node_context;
    cluster->translate_address = options->translate_address;
    cluster->translate_context = options->translate_context;
    cluster->agreement_us = time_or(options->schema_agreement_us, AGREEMENT_DEFAULT_US);
    cluster->schema_metadata = options->schema_metadata;
    cluster->inflight_per_connection = options->inflight_per_connection != 0 ? options->inflight_per_connection : 1024;
    cluster->orphans_max = options->orphans_max != 0 ? options->orphans_max : 1024;
    cluster->frame_size_max = options->frame_size_max != 0 ? options->frame_size_max : PROTO_BODY_MAX;
    cluster->request_size_max = options->request_size_max != 0 ? options->request_size_max : PROTO_BODY_MAX;
    cluster->shard_connections = options->shard_connections != CQLRING_NO;
    /* a link leads to the port that it was made for, and to no other of the node's */
    cluster->shard_aware_port = options->shard_aware_port == CQLRING_DEFAULT ? options->client_routes == NULL : options->shard_aware_port == CQLRING_YES;
    cluster->local_port_min = (uint16_t)(options->local_port_min != 0 ? options->local_port_min : LOCAL_PORT_MIN);
    cluster->local_port_max = (uint16_t)(options->local_port_max != 0 ? options->local_port_max : 65535);
    cluster->shard_busy_percent = options->shard_busy_percent != 0 ? options->shard_busy_percent : 50;
    cluster->prepare_on_all = options->prepare_on_all == CQLRING_YES;
    cluster->prepare_on_up = options->prepare_on_up != CQLRING_NO;
    uint8_t version = (uint8_t)(options->protocol_version != 0 ? options->protocol_version : PROTO_V5);
    atomic_init(&cluster->version, version);
    cluster->config = (struct handshake_config){.version = version,
                                                .version_min = options->protocol_version != 0 ? version : PROTO_V4,
                                                .compression = (enum compression)options->compression,
                                                .scylla_metadata_id = true,
                                                .throw_on_overload = options->throw_on_overload != CQLRING_NO,
                                                .driver_name = "cqlring",
                                                .driver_version = cqlring_version(),
                                                .application_name = cluster->application_name,
                                                .application_version = cluster->application_version,
                                                .client_id = cluster->client_id};
    cqr_client_id(cluster->client_id);
    status = cqr_node_policy_init(&cluster->policy, options, error);
    if (status != CQLRING_OK)
        return status;
    status = cqr_contact_points_parse(options->contact_points != NULL ? options->contact_points : "127.0.0.1", cluster->port, &cluster->points,
                                                     &cluster->point_count, error);
    if (status == CQLRING_OK && options->client_routes != NULL)
        status = cqr_client_routes_take(cluster, options->client_routes, error);
    if (status == CQLRING_OK && options->tls != NULL)
        status = cqr_tls_settings_take(cluster, options->tls, error);
    if (status == CQLRING_OK && options->report_configuration != CQLRING_NO && (cluster->report = cqr_report(cluster)) == NULL)
        status = cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    return status;
}

static void open_dispose(cqlring_future *future)
{
    struct runtime_core *runtime = future->runtime;
    cqr_cluster_handle_release(future->value);
    cqr_failure_free(future->error);
    cqr_mem_free(future);
    cqr_runtime_release(runtime);
}

void cqr_cluster_version_lower(struct cqlring_cluster *cluster, uint8_t version)
{
    unsigned current = atomic_load_explicit(&cluster->version, memory_order_relaxed);
    while (version < current && !atomic_compare_exchange_weak_explicit(&cluster->version, &current, version, memory_order_relaxed, memory_order_relaxed)) {
    }
}

void cqr_cluster_opened(struct cqlring_cluster *cluster, struct failure *failure)
{
    struct opening *opening = cluster->opening;
    if (opening == NULL)
        return;
    cluster->opening = NULL;
    cqlring_future *future = &opening->future;
    if (failure == NULL) {
        unsigned state = HANDLE_OPENING;
        atomic_compare_exchange_strong_explicit(&cluster->state, &state, HANDLE_OPEN, memory_order_acq_rel, memory_order_acquire);
        future->value = cluster; /* the opening's handle goes with it */
        cqr_future_complete(future);
        return;
    }
    future->status = failure->error.status;
    future->error = &failure->error;
    cqr_cluster_close(cluster, 0, NULL);
    cqr_cluster_handle_release(cluster);
    cqr_future_complete(future);
}

/* The one of the two public functions that `call` names. */
static cqlring_status cluster_open(cqlring_runtime *runtime, const cqlring_cluster_options *options, cqlring_future **future, const char *call, cqlring_error *error)
{
    struct runtime_core *core = NULL; /* the default one is made when the options are found good: who is refused starts no threads */
    if (runtime != NULL) {
        core = cqr_runtime_core(runtime);
        if (core->fork_generation != cqr_fork_generation())
            return cqr_error(error, CQLRING_FORKED, "%s: the runtime belongs to the parent process; make one in the child", call);
        cqr_runtime_retain(core);
    }
    struct cqlring_cluster *cluster = cqr_mem_zalloc(sizeof *cluster);
    struct opening *opening = cqr_mem_zalloc(sizeof *opening);
    struct cluster_close *spare = cqr_mem_zalloc(sizeof *spare);
    if (cluster == NULL || opening == NULL || spare == NULL) {
        cqr_mem_free(cluster);
        cqr_mem_free(spare);
        cqr_mem_free(opening);
        if (core != NULL)
            cqr_runtime_release(core);
        return cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    }
    atomic_init(&cluster->spare, spare);
    atomic_init(&cluster->references, 1);
    atomic_init(&cluster->handles, 1); /* the opening's */
    cluster->fork_generation = cqr_fork_generation();
    pthread_mutex_init(&cluster->lock, NULL);
    pthread_mutex_init(&cluster->reload_lock, NULL);
    cqlring_status status = options_take(cluster, options, call, error);
    if (status == CQLRING_OK && core == NULL)
        status = cqr_runtime_default(&core, error);
    cluster->runtime = core;
    if (status == CQLRING_OK)
        cluster->topology = cqr_topology_create();
    if (status == CQLRING_OK) {
        cluster->agreement = cqr_agreement_create(cluster);
        cluster->schema = cqr_schema_create(cluster);
    }
    if (status == CQLRING_OK && (cluster->topology == NULL || cluster->agreement == NULL || cluster->schema == NULL || !cqr_contacts_create(cluster) ||
                                 !cqr_control_create(cluster)))
        status = cqr_error(error, CQLRING_NO_MEMORY, "%s: out of memory", call);
    if (status == CQLRING_OK) {
        pthread_mutex_lock(&core->lock);
        if (atomic_load_explicit(&core->state, memory_order_acquire) != 0) {
            status = cqr_error(error, CQLRING_CLOSED, "%s: the runtime is being destroyed", call);
        } else {
            cluster->number = ++core->cluster_count;
            cluster->next = core->clusters;
            cluster->link = &core->clusters;
            if (cluster->next != NULL)
                cluster->next->link = &cluster->next;
            core->clusters = cluster;
        }
        pthread_mutex_unlock(&core->lock);
    }
    if (status != CQLRING_OK) {
        cqr_mem_free(opening);
        cluster_free(cluster);
        return status;
    }
    cqr_future_init(&opening->future, FUTURE_CLUSTER, cqr_runtime_retain(core), open_dispose);
    cluster->opening = opening;
    *future = &opening->future;
    cqr_control_start(cluster);
    return CQLRING_OK;
}

cqlring_status cqlring_cluster_open(cqlring_runtime *runtime, const cqlring_cluster_options *options, cqlring_future **future, cqlring_error *error)
{
    if (future == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_open: future must be given");
    return cluster_open(runtime, options, future, "cqlring_cluster_open", error);
}

cqlring_status cqlring_cluster_open_sync(cqlring_runtime *runtime, const cqlring_cluster_options *options, cqlring_cluster **cluster, cqlring_error *error)
{
    cqlring_future *future = NULL;
    if (cluster == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_open_sync: cluster must be given");
    if (cqr_on_library_thread())
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_open_sync: a callback must not wait; use cqlring_cluster_open");
    cqlring_status status = cluster_open(runtime, options, &future, "cqlring_cluster_open_sync", error);
    if (status != CQLRING_OK)
        return status;
    status = cqlring_future_wait(future, -1, error);
    if (status == CQLRING_OK)
        *cluster = cqlring_future_cluster(future);
    cqlring_future_release(future);
    return status;
}

/* ---- timestamps ---- */

int64_t cqr_cluster_timestamps(struct lane *lane, struct cqlring_cluster *cluster)
{
    /* microseconds of the turn's wall clock, made unique and rising: a lane takes a run of them at a time (decision 29) */
    enum { RUN = 256 };
    int64_t wall = lane->net->call->wall_us(lane->net);
    int64_t last = atomic_load_explicit(&cluster->timestamp_last_us, memory_order_relaxed), first;
    do {
        first = wall > last ? wall : last + 1;
    } while (!atomic_compare_exchange_weak_explicit(&cluster->timestamp_last_us, &last, first + RUN - 1, memory_order_relaxed, memory_order_relaxed));
    lane->stamp_cluster = cluster;
    lane->stamp_turn = lane->now_us;
    lane->stamp_next = first + 1;
    lane->stamp_end = first + RUN;
    return first;
}
