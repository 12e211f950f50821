/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROBE_H
#define PROBE_H

/* cqlring-probe: connects to a cluster as a driver would and says what it found, or the exact reason why not. Only cqlring.h. */

#include <cqlring.h>

enum { SAMPLES_MAX = 1000, NODES_MAX = 4096 };

/* Exit statuses. */
enum {
    EXIT_GOOD = 0,
    EXIT_PARTLY = 1,      /* the cluster answers, some node of it does not */
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3, /* no name, refused, closed, lost */
    EXIT_SILENT = 4,      /* no answer in time */
    EXIT_AUTH = 5,
    EXIT_TLS = 6,
    EXIT_PROTOCOL = 7,    /* not CQL, or no version in common */
    EXIT_OTHER = 8
};

struct options {
    const char *contact_points;
    cqlring_cluster_options cluster;
    cqlring_tls_options tls;
    const char *datacenter; /* NULL: all of them */
    char user[1024], password[4096], key_password[1024]; /* wiped once the library has them */
    int64_t timeout_us;
    uint32_t samples;
    bool json, verbose;
};

/* Everything that is found about one node. */
struct node_report {
    char address[64], datacenter[128], rack[128], release[64];
    uint8_t host_id[16];
    bool connected;
    cqlring_connection_info connection;
    uint32_t latency_count;
    uint32_t latency_min_us, latency_median_us, latency_max_us;
    cqlring_status status;  /* OK, or why not: */
    char reason[400];
};

struct report {
    cqlring_status status;
    char reason[400];
    const char *contact_points;
    char control[64];       /* the node that told of the others */
    struct node_report *nodes;
    uint32_t node_count;
};

/* options.c. EXIT_GOOD: go on; anything else: through, with that status (−1: help or version was asked for and given). */
int options_read(int argc, char **argv, struct options *options);
void options_wipe(struct options *options);

/* output.c */
void report_text(const struct report *report);
void report_json(const struct report *report);

#endif
