/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tests/proxy/storm.h"

/* Bulk jobs of 20 000 rows through a proxy that goes wrong, before a real node: each kind of fault over v5 and v4, without the
   idempotence flag, and everything at once. What must hold stands in storm.h. */

enum { ROWS = 20000 };

static void through(const char *what, int version, cqlring_compression compression, bool idempotent, const struct proxy_fault *faults, uint32_t count)
{
    char message[600] = "";
    live_begin("proxy: %s, v%d%s%s", what, version, compression != CQLRING_COMPRESSION_NONE ? " with LZ4" : "", idempotent ? "" : ", not idempotent");
    struct proxy *proxy = proxy_start(live.host, (uint16_t)live.port, ROWS, message, sizeof message);
    struct live_way way = {version, compression};
    cqlring_cluster_options options = live_cluster_options(&way);
    cqlring_session_options session_options = {.struct_size = sizeof session_options};
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    cqlring_error error;
    if (!live_check(proxy != NULL, message)) {
        live_end();
        return;
    }
    options.contact_points = "127.0.0.1";
    options.port = proxy_port(proxy);
    if (live_ok(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error, "open the cluster") &&
        live_ok(cqlring_session_open_sync(cluster, &session_options, &session, &error), &error, "open a session") &&
        live_run(session, "TRUNCATE cqlring_live.proxied")) {
        struct storm storm = {.session = session, .proxy = proxy, .table = "cqlring_live.proxied", .rows = ROWS, .idempotent = idempotent, .fault_count = count};
        for (uint32_t i = 0; i < count; i++)
            storm.faults[i] = faults[i];
        bool held = storm_run(&storm, message, sizeof message);
        char text[400];
        storm_text(&storm, text, sizeof text);
        printf("        %s\n", text);
        (void)live_check(held, message);
    }
    cqlring_session_release(session);
    cqlring_cluster_release(cluster);
    proxy_stop(proxy);
    live_end();
}

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    struct live_way way = {5, CQLRING_COMPRESSION_NONE};
    cqlring_session *session = live_open(&way, NULL);
    if (session == NULL || !live_keyspace(session) || !live_run(session, "CREATE TABLE cqlring_live.proxied (k bigint PRIMARY KEY, v blob)"))
        return 1;
    struct proxy_fault faults[PROXY_KINDS];
    for (int kind = 0; kind < PROXY_KINDS; kind++) {
        const char *name = proxy_kind_name((enum proxy_kind)kind);
        faults[0] = storm_fault((enum proxy_kind)kind, ROWS);
        through(name, 5, CQLRING_COMPRESSION_NONE, true, faults, 1);
        through(name, 4, kind % 2 == 0 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE, true, faults, 1);
        through(name, 5, kind % 2 == 1 ? CQLRING_COMPRESSION_LZ4 : CQLRING_COMPRESSION_NONE, false, faults, 1);
    }
    uint32_t count = storm_faults(faults, ROWS);
    through("everything at once", 5, CQLRING_COMPRESSION_LZ4, true, faults, count);
    through("everything at once", 4, CQLRING_COMPRESSION_NONE, true, faults, count);
    live_drop(session);
    cqlring_session_release(session);
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
