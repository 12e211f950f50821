/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CLIENT_ROUTES_H
#define CQR_CLIENT_ROUTES_H

/* Client routes (ScyllaDB): nodes that are reached through private links, each at an address and port that the server's table
   system.client_routes has for its host id and the connection ids that the cluster was opened with. The control connection reads them
   with the topology; names in them are looked up on the resolver's thread. What is known of a node stays until something better is: a
   row that cannot be used, a table that is not there, a resolver that fails take nothing away.

   Lane 0's submitter, but for the first three and the ids, which are constant. A cluster without client_routes has none of it. */

#include <stdbool.h>
#include <stdint.h>

#include "cql/response.h"
#include "driver/cqlring.h"
#include "driver/net.h"

struct cqlring_cluster;
struct topology;

struct client_route {
    uint8_t host_id[16];
    uint32_t rank;            /* of its connection id among those given: the first one wins */
    char host[256];           /* a literal, or a name */
    uint16_t port;
    bool is_name;
    bool has_address;         /* false: a name that was never found */
    bool is_idle_told;        /* that no node has this host id */
    struct address address;   /* what is dialled */
};

/* ids: as given. */
cqlring_status cqr_client_routes_take(struct cqlring_cluster *cluster, const char *ids, cqlring_error *error);
void cqr_client_routes_free(struct cqlring_cluster *cluster);
const char *cqr_client_routes_ids(const struct cqlring_cluster *cluster); /* NULL: none */

/* What reads them; NULL: nothing is to be read. */
const char *cqr_client_routes_query(const struct cqlring_cluster *cluster);
/* Its answer. True: names are being looked up; cqr_control_routes_found is told of the end of it. False: they count. */
bool cqr_client_routes_read(struct cqlring_cluster *cluster, cqlring_result *rows);
/* It was refused by the server. */
void cqr_client_routes_refused(struct cqlring_cluster *cluster, const cqlring_error *error);
/* What was read counts from here on, whatever is known of its names by now. */
void cqr_client_routes_settle(struct cqlring_cluster *cluster);
void cqr_client_routes_stop(struct cqlring_cluster *cluster);

/* Is it about one of our connection ids? */
bool cqr_client_routes_concern(const struct cqlring_cluster *cluster, const struct event_body *event);
/* The way to a node; NULL: as announced. */
const struct client_route *cqr_client_route_of(const struct cqlring_cluster *cluster, const uint8_t host_id[16]);
/* The name that is dialled at this address, "" if none is. */
const char *cqr_client_routes_name(const struct cqlring_cluster *cluster, const struct address *address);
/* Nodes without a route, and routes without a node, are told to the log once. */
void cqr_client_routes_compare(struct cqlring_cluster *cluster, const struct topology *topology);
/* When they are to be read again though nobody says so, because of names; 0: not at all. */
int64_t cqr_client_routes_again_us(const struct cqlring_cluster *cluster);

#endif
