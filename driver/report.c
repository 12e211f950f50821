/* SPDX-License-Identifier: Apache-2.0 */

/* See report.h. */

#include "driver/report.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "driver/execution.h"
#include "driver/policy.h"
#include "driver/session.h"
#include "driver/text.h"
#include "driver/tls_settings.h"
#include "serialize/cqlring_values.h"
#include "serialize/mem.h"

enum { REPORT_SIZE_MAX = 8 << 10, NAME_SIZE_MAX = 256 };

void cqr_client_id(char text[37])
{
    uint8_t uuid[16];
    if (getrandom(uuid, sizeof uuid, GRND_NONBLOCK) != (ssize_t)sizeof uuid) { /* just after boot: unlike others' is enough */
        uint64_t state = (uint64_t)cqr_net_system()->call->wall_us(NULL) ^ (uint64_t)(uintptr_t)text;
        for (size_t i = 0; i < sizeof uuid; i++)
            uuid[i] = (uint8_t)cqr_random(&state);
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0F) | 0x40);
    uuid[8] = (uint8_t)((uuid[8] & 0x3F) | 0x80);
    cqlring_uuid_format(uuid, text);
}

static void put_string(struct text *text, const char *name, const char *value)
{
    cqr_text_put(text, "\"%s\":\"", name);
    for (; *value != '\0'; value++) {
        unsigned char byte = (unsigned char)*value;
        if (byte < 0x20)
            cqr_text_put(text, "\\u%04x", byte);
        else
            cqr_text_put(text, byte == '"' || byte == '\\' ? "\\%c" : "%c", byte);
    }
    cqr_text_put(text, "\"");
}

static const char *flag(bool value)
{
    return value ? "true" : "false";
}

/* At least 1: what takes less than a millisecond still takes time. */
static int64_t milliseconds(int64_t us)
{
    return us > 1000 ? us / 1000 : 1;
}

static void put_connection(struct text *text, const struct cqlring_cluster *cluster)
{
    cqr_text_put(text, "\"connection\":{\"connect\":{\"timeout-ms\":%" PRId64 "}", milliseconds(cluster->connect_timeout_us));
    cqr_text_put(text, ",\"requests\":{\"in-flight\":{\"max\":%u},\"orphaned\":{\"max\":%u}}", cluster->inflight_per_connection, cluster->orphans_max);
    cqr_text_put(text, ",\"pool\":{\"shard-aware\":{\"enabled\":%s}}", flag(cluster->shard_connections && cluster->shard_aware_port));
    cqr_text_put(text, ",\"socket\":{\"tcp-no-delay\":%s,\"keep-alive\":%s,\"reuse-address\":%s}", flag(!cluster->socket.nagle), flag(cluster->socket.keepalive),
                 flag(cluster->shard_connections && cluster->shard_aware_port));
    cqr_text_put(text, ",\"reconnection\":{\"policy\":{\"type\":\"exponential\",\"base-ms\":%" PRId64 ",\"max-ms\":%" PRId64 "}}",
                 milliseconds(cluster->reconnect_min_us), milliseconds(cluster->reconnect_max_us));
    if (cluster->has_tls)
        cqr_text_put(text, ",\"tls\":{\"hostname-verification\":%s}", flag(cluster->tls_settings->options.verify == CQLRING_TLS_FULL));
    cqr_text_put(text, "}");
}

static void put_query(struct text *text, const struct cqlring_cluster *cluster)
{
    const struct node_policy *policy = &cluster->policy;
    cqr_text_put(text, "\"query\":{\"load-balancing\":{\"policy\":{");
    if (policy->plan != NULL)
        cqr_text_put(text, "\"type\":\"custom\",\"name\":\"plan\"}");
    else
        cqr_text_put(text, "\"type\":\"token-aware\",\"load-distribution\":\"least-busy\",\"fallback-to-non-preferred-nodes\":%s}", flag(policy->remote_max > 0));
    /* names longer than that are no datacenter's, and are left out: what is told has a bound */
    if (cluster->local_datacenter != NULL && strlen(cluster->local_datacenter) <= NAME_SIZE_MAX &&
        (policy->local_rack == NULL || strlen(policy->local_rack) <= NAME_SIZE_MAX)) {
        cqr_text_put(text, ",\"node-preference\":{\"type\":\"%s\",", policy->local_rack != NULL ? "rack" : "dc");
        put_string(text, "local-dc", cluster->local_datacenter);
        if (policy->local_rack != NULL) {
            cqr_text_put(text, ",");
            put_string(text, "local-rack", policy->local_rack);
        }
        cqr_text_put(text, "}");
    }
    cqr_text_put(text, "},\"retry\":{\"policy\":{\"type\":\"custom\",\"name\":\"%s\"}", policy->retry != NULL ? "application" : "idempotence");
    cqr_text_put(text, ",\"backoff\":{\"type\":\"exponential\",\"base-ms\":10,\"max-ms\":1000}}");
    struct op_plan plan; /* the library's: sessions may have others */
    cqr_plan_defaults(&plan);
    cqr_text_put(text, ",\"defaults\":{\"consistency\":\"LOCAL_ONE\",\"page\":{\"size\":%d},\"request\":{\"timeout-ms\":%" PRId64 "},\"idempotence\":%s,"
                       "\"client-timestamps\":true}}",
                 plan.params.page_size, milliseconds(plan.timeout_us), flag(plan.idempotent));
}

char *cqr_report(const struct cqlring_cluster *cluster)
{
    char room[REPORT_SIZE_MAX];
    struct text text = cqr_text_make(room, sizeof room);
    cqr_text_put(&text, "{\"version\":1,");
    put_connection(&text, cluster);
    cqr_text_put(&text, ",\"control-plane\":{\"schema\":{\"agreement\":{\"timeout-ms\":%" PRId64 "}}},",
                 cluster->agreement_us > 0 ? cluster->agreement_us / 1000 : 0);
    put_query(&text, cluster);
    cqr_text_put(&text, "}");
    assert(text.needed < sizeof room);
    return cqr_mem_text(room, text.needed);
}
