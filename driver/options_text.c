/* SPDX-License-Identifier: Apache-2.0 */

/* Every option in force, as text: what was given and what the defaults made of the rest. Secrets are told to be there, and no
   more. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver/client_routes.h"
#include "driver/fork.h"
#include "driver/runtime.h"
#include "driver/session.h"
#include "driver/text.h"
#include "driver/tls_settings.h"

static void put_text(struct text *text, const char *name, const char *value)
{
    cqr_text_put(text, "%s = ", name);
    if (value == NULL)
        cqr_text_put(text, "(none)");
    for (; value != NULL && *value != '\0'; value++)
        cqr_text_put(text, "%c", (unsigned char)*value < 0x20 || *value == 0x7F ? '?' : *value);
    cqr_text_put(text, "\n");
}

static void put_secret(struct text *text, const char *name, const char *value)
{
    put_text(text, name, value != NULL ? "(set)" : NULL);
}

static void put_number(struct text *text, const char *name, int64_t value)
{
    cqr_text_put(text, "%s = %" PRId64 "\n", name, value);
}

static void put_call(struct text *text, const char *name, bool given)
{
    put_text(text, name, given ? "(callback)" : NULL);
}

static void put_flag(struct text *text, const char *name, bool value)
{
    put_text(text, name, value ? "yes" : "no");
}

/* −1 stands for never, as it is given. */
static void put_time(struct text *text, const char *name, int64_t value)
{
    put_number(text, name, value == INT64_MAX ? -1 : value);
}

static void put_points(struct text *text, const char *name, const struct contact_point *points, uint32_t count)
{
    cqr_text_put(text, "%s = %s", name, count == 0 ? "(none)" : "");
    for (uint32_t i = 0; i < count; i++) {
        const struct contact_point *point = &points[i];
        bool is_v6 = strchr(point->host, ':') != NULL;
        cqr_text_put(text, "%s%s%s%s", i > 0 ? ", " : "", is_v6 ? "[" : "", point->host, is_v6 ? "]" : "");
        if (point->host[0] != '/' && point->port != 0) /* no port in a list of nodes: any */
            cqr_text_put(text, ":%u", point->port);
    }
    cqr_text_put(text, "\n");
}

static void runtime_put(struct text *text, const struct runtime_core *core)
{
    static const char *const threads[] = {"split", "inline", "caller"}, *const levels[] = {"", "error", "warn", "info", "debug"};
    put_text(text, "runtime.threads", threads[core->threads]);
    put_number(text, "runtime.lanes", core->lane_count);
    put_number(text, "runtime.inflight_max", core->inflight_max);
    put_number(text, "runtime.connections_max", core->connections_max);
    put_number(text, "runtime.cpu_plus_one", core->cpu + 1);
    put_text(text, "runtime.log_level", levels[core->log.level]);
    put_call(text, "runtime.log", core->log.call != NULL);
    put_call(text, "runtime.allocator", core->has_allocator);
}

static void tls_put(struct text *text, const struct cqlring_cluster *cluster)
{
    static const char *const verify[] = {"full", "chain", "none"};
    if (!cluster->has_tls) {
        put_text(text, "cluster.tls", NULL);
        return;
    }
    const struct tls_options *tls = &cluster->tls_settings->options;
    put_text(text, "tls.ca_file", tls->ca_file != NULL ? tls->ca_file : tls->ca_pem != NULL ? NULL : "(the system's)");
    put_text(text, "tls.ca_pem", tls->ca_pem != NULL ? "(set)" : NULL);
    put_text(text, "tls.certificate_file", tls->certificate_file);
    put_text(text, "tls.key_file", tls->key_file);
    put_secret(text, "tls.key_password", tls->key_password);
    put_text(text, "tls.verify", verify[tls->verify]);
    put_text(text, "tls.version_min", tls->version_min == 13 ? "1.3" : "1.2");
    put_text(text, "tls.version_max", tls->version_max == 0 ? "(highest)" : tls->version_max == 13 ? "1.3" : "1.2");
    put_text(text, "tls.ciphers", tls->ciphers != NULL ? tls->ciphers : "(OpenSSL's)");
    put_flag(text, "tls.resume", tls->resume);
    put_text(text, "tls.server_name", tls->server_name);
}

static void cluster_put(struct text *text, struct cqlring_cluster *cluster)
{
    static const char *const schema[] = {"when asked for", "no", "yes"};
    put_points(text, "cluster.contact_points", cluster->points, cluster->point_count);
    put_number(text, "cluster.port", cluster->port);
    put_text(text, "cluster.user", cluster->user);
    put_secret(text, "cluster.password", cluster->password);
    put_call(text, "cluster.authenticator", cluster->authenticator.respond != NULL);
    put_text(text, "cluster.local_datacenter", cluster->local_datacenter != NULL ? cluster->local_datacenter : cluster->guessed_datacenter);
    put_text(text, "cluster.local_datacenter_is", cluster->local_datacenter != NULL ? "given" : "guessed");
    put_text(text, "cluster.protocol_version", cluster->config.version_min == cluster->config.version ? "exactly" : "up to");
    put_number(text, "cluster.protocol_version_highest", cluster->config.version);
    put_number(text, "cluster.protocol_version_in_use", atomic_load_explicit(&cluster->version, memory_order_relaxed));
    put_text(text, "cluster.compression", cluster->config.compression == COMPRESSION_LZ4 ? "lz4" : cluster->config.compression == COMPRESSION_SNAPPY ? "snappy" : "none");
    put_number(text, "cluster.connect_timeout_us", cluster->connect_timeout_us);
    put_number(text, "cluster.heartbeat_us", cluster->heartbeat_us);
    put_number(text, "cluster.suspect_after_us", cluster->suspect_after_us);
    put_number(text, "cluster.reconnect_min_us", cluster->reconnect_min_us);
    put_number(text, "cluster.reconnect_max_us", cluster->reconnect_max_us);
    put_number(text, "cluster.resolve_interval_us", cluster->resolve_interval_us);
    put_number(text, "cluster.inflight_per_connection", cluster->inflight_per_connection);
    put_number(text, "cluster.orphans_max", cluster->orphans_max);
    put_number(text, "cluster.frame_size_max", cluster->frame_size_max);
    put_number(text, "cluster.request_size_max", cluster->request_size_max);
    put_text(text, "cluster.application_name", cluster->application_name);
    put_text(text, "cluster.application_version", cluster->application_version);
    put_flag(text, "cluster.throw_on_overload", cluster->config.throw_on_overload);
    put_call(text, "cluster.on_node", cluster->on_node != NULL);
    put_call(text, "cluster.translate_address", cluster->translate_address != NULL);
    put_text(text, "cluster.client_routes", cqr_client_routes_ids(cluster));
    put_time(text, "cluster.schema_agreement_us", cluster->agreement_us);
    put_text(text, "cluster.schema_metadata", schema[cluster->schema_metadata]);
    const struct node_policy *policy = &cluster->policy;
    put_text(text, "cluster.local_rack", policy->local_rack);
    put_points(text, "cluster.allow_nodes", policy->allowed, policy->allowed_count);
    put_points(text, "cluster.deny_nodes", policy->denied, policy->denied_count);
    put_call(text, "cluster.node_filter", policy->filter != NULL);
    put_number(text, "cluster.remote_nodes_max", policy->remote_max);
    put_flag(text, "cluster.remote_local_consistency", policy->remote_local);
    put_time(text, "cluster.slow_after_us", policy->slow_after_us);
    put_call(text, "cluster.plan", policy->plan != NULL);
    put_call(text, "cluster.retry_policy", policy->retry != NULL);
    put_flag(text, "cluster.shard_connections", cluster->shard_connections);
    put_flag(text, "cluster.shard_aware_port", cluster->shard_aware_port);
    put_number(text, "cluster.local_port_min", cluster->local_port_min);
    put_number(text, "cluster.local_port_max", cluster->local_port_max);
    put_number(text, "cluster.shard_busy_percent", cluster->shard_busy_percent);
    put_flag(text, "cluster.prepare_on_up", cluster->prepare_on_up);
    put_flag(text, "cluster.prepare_on_all", cluster->prepare_on_all);
    put_flag(text, "cluster.tcp_nodelay", !cluster->socket.nagle);
    put_flag(text, "cluster.tcp_keepalive", cluster->socket.keepalive);
    put_number(text, "cluster.tcp_keepalive_us", (int64_t)cluster->socket.keepalive_s * 1000000);
    put_number(text, "cluster.socket_send_size", cluster->socket.send_size);
    put_number(text, "cluster.socket_receive_size", cluster->socket.receive_size);
    put_number(text, "cluster.resolve_timeout_us", cluster->resolve_timeout_us);
    put_flag(text, "cluster.report_configuration", cluster->report != NULL);
    put_text(text, "cluster.client_id", cluster->client_id);
    uint32_t learned = atomic_load_explicit(&cluster->batch_limit.bytes, memory_order_relaxed);
    if (learned != 0)
        put_number(text, "cluster.batch_bytes_learned", learned);
    else
        put_text(text, "cluster.batch_bytes_learned", NULL);
}

static void session_put(struct text *text, const struct cqlring_session *session)
{
    static const char *const consistencies[] = {"ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL", "LOCAL_ONE"};
    const struct op_plan *plan = &session->defaults_plan;
    cqr_text_put(text, "\n");
    put_text(text, "session.keyspace", session->keyspace[0] != '\0' ? session->keyspace : NULL);
    put_number(text, "session.bytes_max", (int64_t)session->bytes_max);
    put_number(text, "session.requests_max", session->requests_max);
    put_call(text, "session.log", session->log != NULL);
    put_number(text, "session.log_level", session->log_level);
    put_number(text, "session.timeout_us", plan->timeout_us);
    put_number(text, "session.attempt_timeout_us", plan->attempt_timeout_us);
    put_text(text, "session.consistency", plan->params.consistency < 11 ? consistencies[plan->params.consistency] : "?");
    put_number(text, "session.page_size", plan->params.page_size);
    put_flag(text, "session.idempotent", plan->idempotent);
    put_text(text, "session.retry", plan->retry ? "default" : "none");
    put_number(text, "session.speculation_max", plan->copies_max);
    put_number(text, "session.speculation_delay_us", plan->copy_after_us);
    cqr_text_put(text, "session.speculation_percentile = %g\n", (double)plan->percentile);
    put_flag(text, "session.tracing", plan->params.tracing);
    put_flag(text, "session.prefetch", plan->prefetch);
    put_text(text, "session.serial_consistency", plan->params.serial_consistency == 0 ? NULL : plan->params.serial_consistency < 11 ? consistencies[plan->params.serial_consistency] : "?");
}

size_t cqlring_cluster_options_text(const cqlring_cluster *handle, char *buffer, size_t size)
{
    struct cqlring_cluster *cluster = (struct cqlring_cluster *)(uintptr_t)handle;
    struct text text = cqr_text_make(buffer, size);
    cqr_text_put(&text, "cqlring %s\n", cqlring_version());
    if (cluster == NULL || cluster->fork_generation != cqr_fork_generation())
        return text.needed;
    runtime_put(&text, cluster->runtime);
    pthread_mutex_lock(&cluster->lock);
    cluster_put(&text, cluster);
    tls_put(&text, cluster);
    for (const struct cqlring_session *session = cluster->sessions; session != NULL; session = session->next)
        session_put(&text, session);
    pthread_mutex_unlock(&cluster->lock);
    return text.needed;
}
