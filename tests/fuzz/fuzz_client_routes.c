/* SPDX-License-Identifier: Apache-2.0 */

/* What a server says in system.client_routes, and which connection ids it names in CLIENT_ROUTES_CHANGE. The input is a byte (odd: the
   cluster has TLS), a ROWS body behind its size as a big-endian u16, and the body of an event. */

#include <assert.h>
#include <string.h>

#include "driver/client_routes.h"
#include "driver/failure.h"
#include "driver/result.h"
#include "driver/runtime.h"
#include "driver/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cqlring_result *rows_of(const uint8_t **data, size_t *size)
{
    static const struct dialect dialect = {.version = PROTO_V4};
    if (*size < 2)
        return NULL;
    uint32_t length = (uint32_t)((*data)[0] << 8 | (*data)[1]);
    *data += 2;
    *size -= 2;
    if (length > *size)
        length = (uint32_t)*size;
    cqlring_result *result = NULL;
    struct failure *failure = NULL;
    if (cqr_result_make(&dialect, NULL, (cqlring_bytes){*data, (int32_t)length}, RESULT_ROWS, NULL, NULL, &result, NULL, NULL, &failure) != CQLRING_OK)
        cqr_failure_free(&failure->error);
    *data += length;
    *size -= length;
    return result;
}

/* Whoever is dialled has a port and an address that is no path. */
static void check(const struct cqlring_cluster *cluster, cqlring_result *rows)
{
    uint32_t count = cqlring_result_row_count(rows);
    for (uint32_t i = 0; i < count && cqlring_result_column_count(rows) == 5; i++) {
        cqlring_bytes cells[5];
        uint32_t got = 0;
        if (cqlring_result_rows(rows, i, cells, 1, &got, NULL) != CQLRING_OK || got != 1)
            break;
        const struct client_route *route = cells[1].size == 16 ? cqr_client_route_of(cluster, cells[1].data) : NULL;
        if (route == NULL)
            continue;
        assert(route->port != 0 && route->host[0] != '\0' && !route->is_name);
        assert(route->address.storage.ss_family == AF_INET || route->address.storage.ss_family == AF_INET6);
        assert(strcmp(cqr_client_routes_name(cluster, &route->address), "") == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    static struct runtime_core runtime = {.threads = CQLRING_THREADS_CALLER}; /* no name is looked up */
    struct cqlring_cluster cluster;
    cqlring_error error;
    memset(&cluster, 0, sizeof cluster);
    cluster.runtime = &runtime;
    cluster.has_tls = data[0] % 2 == 1;
    cqlring_status status = cqr_client_routes_take(&cluster, "a, b", &error);
    assert(status == CQLRING_OK);
    data++;
    size--;
    cqlring_result *rows = rows_of(&data, &size);
    for (int i = 0; rows != NULL && i < 2; i++) { /* and again, on top of it */
        bool waits = cqr_client_routes_read(&cluster, rows);
        assert(!waits);
        (void)waits;
        check(&cluster, rows);
    }
    static const struct dialect dialect = {.version = PROTO_V4};
    struct event_body event;
    if (cqr_decode_event(&dialect, (cqlring_bytes){data, (int32_t)size}, &event) == CQLRING_OK)
        cqr_client_routes_concern(&cluster, &event);
    assert(cqr_client_routes_again_us(&cluster) == 0);
    cqlring_result_release(rows);
    cqr_client_routes_free(&cluster);
    (void)status; /* also where assertions are off */
    return 0;
}
