/* SPDX-License-Identifier: Apache-2.0 */
/* cqlring-node: a cluster of the node library as a program of its own. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/node/node.h"

enum { FAULTS_MAX = 64, NAMES_MAX = NODE_COUNT_MAX };

static const char usage[] =
    "usage: cqlring-node [options]\n"
    "  --port P              0: a free one (default)\n"
    "  --address A           of the first node; the others follow (default 127.0.0.1)\n"
    "  --ports-differ        all nodes on one address, on consecutive ports\n"
    "  --nodes N --vnodes V  nodes of the cluster (1), tokens of each (16)\n"
    "  --dcs a,a,b --racks r1,r2,r1\n"
    "  --auth USER:PASSWORD  --auth-rounds N\n"
    "  --tls-cert FILE --tls-key FILE [--tls-client-ca FILE]\n"
    "  --protocol-max 4|5 --protocol-min 3|5 --refusal cassandra-5|cassandra-4|cassandra-3|cassandra-2|scylla|beta|close\n"
    "  --compression lz4|none\n"
    "  --mode store|void     --void-rows N --void-cell-size B\n"
    "  --trickle K           a write of its own after every K replies\n"
    "  --delay D+-J          hold replies back, microseconds\n"
    "  --shards N --tablets  speak as ScyllaDB does\n"
    "  --seed S --release V --cluster-name NAME\n"
    "  --storage-max BYTES --output-max BYTES --frame-max BYTES --connections-max N\n"
    "  --fault KIND:KEY=VALUE,…  (again for more)\n"
    "  --cql STATEMENT       run before listening is told (again for more)\n"
    "  --parent-death        end with the parent process\n"
    "  --counters            print the counters at the end\n"
    "  --record FILE         a line for each request: opcode, node, connection, shard; then, of one with a known key, its token,\n"
    "                        which replica of it this node is (0 the primary, - none), 1 if it is the right shard; and its text\n";

enum option_code {
    OPTION_PORT = 256,
    OPTION_ADDRESS,
    OPTION_PORTS_DIFFER,
    OPTION_NODES,
    OPTION_VNODES,
    OPTION_DCS,
    OPTION_RACKS,
    OPTION_AUTH,
    OPTION_AUTH_ROUNDS,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_TLS_CLIENT_CA,
    OPTION_PROTOCOL_MAX,
    OPTION_PROTOCOL_MIN,
    OPTION_REFUSAL,
    OPTION_COMPRESSION,
    OPTION_MODE,
    OPTION_VOID_ROWS,
    OPTION_VOID_CELL_SIZE,
    OPTION_TRICKLE,
    OPTION_DELAY,
    OPTION_SHARDS,
    OPTION_TABLETS,
    OPTION_SEED,
    OPTION_RELEASE,
    OPTION_CLUSTER_NAME,
    OPTION_STORAGE_MAX,
    OPTION_OUTPUT_MAX,
    OPTION_FRAME_MAX,
    OPTION_CONNECTIONS_MAX,
    OPTION_FAULT,
    OPTION_CQL,
    OPTION_PARENT_DEATH,
    OPTION_COUNTERS,
    OPTION_RECORD,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"port", required_argument, NULL, OPTION_PORT},
    {"address", required_argument, NULL, OPTION_ADDRESS},
    {"ports-differ", no_argument, NULL, OPTION_PORTS_DIFFER},
    {"nodes", required_argument, NULL, OPTION_NODES},
    {"vnodes", required_argument, NULL, OPTION_VNODES},
    {"dcs", required_argument, NULL, OPTION_DCS},
    {"racks", required_argument, NULL, OPTION_RACKS},
    {"auth", required_argument, NULL, OPTION_AUTH},
    {"auth-rounds", required_argument, NULL, OPTION_AUTH_ROUNDS},
    {"tls-cert", required_argument, NULL, OPTION_TLS_CERT},
    {"tls-key", required_argument, NULL, OPTION_TLS_KEY},
    {"tls-client-ca", required_argument, NULL, OPTION_TLS_CLIENT_CA},
    {"protocol-max", required_argument, NULL, OPTION_PROTOCOL_MAX},
    {"protocol-min", required_argument, NULL, OPTION_PROTOCOL_MIN},
    {"refusal", required_argument, NULL, OPTION_REFUSAL},
    {"compression", required_argument, NULL, OPTION_COMPRESSION},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"void-rows", required_argument, NULL, OPTION_VOID_ROWS},
    {"void-cell-size", required_argument, NULL, OPTION_VOID_CELL_SIZE},
    {"trickle", required_argument, NULL, OPTION_TRICKLE},
    {"delay", required_argument, NULL, OPTION_DELAY},
    {"shards", required_argument, NULL, OPTION_SHARDS},
    {"tablets", no_argument, NULL, OPTION_TABLETS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"release", required_argument, NULL, OPTION_RELEASE},
    {"cluster-name", required_argument, NULL, OPTION_CLUSTER_NAME},
    {"storage-max", required_argument, NULL, OPTION_STORAGE_MAX},
    {"output-max", required_argument, NULL, OPTION_OUTPUT_MAX},
    {"frame-max", required_argument, NULL, OPTION_FRAME_MAX},
    {"connections-max", required_argument, NULL, OPTION_CONNECTIONS_MAX},
    {"fault", required_argument, NULL, OPTION_FAULT},
    {"cql", required_argument, NULL, OPTION_CQL},
    {"parent-death", no_argument, NULL, OPTION_PARENT_DEATH},
    {"counters", no_argument, NULL, OPTION_COUNTERS},
    {"record", required_argument, NULL, OPTION_RECORD},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct node_options options;
    const char *faults[FAULTS_MAX], *statements[FAULTS_MAX];
    uint32_t fault_count, statement_count;
    const char *dcs[NAMES_MAX], *racks[NAMES_MAX];
    bool counters;
};

static bool take_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 0);
    return text[0] != '-' && end != text && *end == 0 && *value <= max;
}

/* D, D+-J or D±J. */
static bool take_delay(const char *text, struct node_options *options)
{
    char *end;
    options->delay_us = (uint32_t)strtoul(text, &end, 10);
    if (end == text)
        return false;
    if (*end == 0)
        return true;
    if (strncmp(end, "+-", 2) != 0 && strncmp(end, "\xC2\xB1", 2) != 0)
        return false;
    uint64_t jitter;
    bool fine = take_number(end + 2, UINT32_MAX, &jitter);
    options->jitter_us = (uint32_t)jitter;
    return fine;
}

/* a,b,c: the last one stands for all further nodes. */
static bool take_names(char *text, const char **names)
{
    char *save = NULL;
    uint32_t count = 0;
    for (char *name = strtok_r(text, ",", &save); name != NULL && count < NAMES_MAX;
         name = strtok_r(NULL, ",", &save))
        names[count++] = name;
    for (uint32_t i = count; count > 0 && i < NAMES_MAX; ++i)
        names[i] = names[count - 1];
    return count > 0;
}

static bool take_word(const char *text, const char *const *words, uint32_t *index)
{
    for (*index = 0; words[*index] != NULL; ++*index) {
        if (strcmp(words[*index], text) == 0)
            return true;
    }
    return false;
}

static bool take_auth(char *text, struct node_options *options)
{
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return false;
    *colon = 0;
    options->user = text;
    options->password = colon + 1;
    return true;
}

/* Written before the answer is sent: who has its answer finds its line. */
static void record(const struct node_seen *seen, void *context)
{
    FILE *file = context;
    char place[64] = "- - -";
    if (seen->has_token) {
        char replica[16] = "-";
        if (seen->is_replica)
            (void)snprintf(replica, sizeof replica, "%u", seen->replica);
        (void)snprintf(place, sizeof place, "%lld %s %d", (long long)seen->token, replica,
                       seen->is_shard);
    }
    (void)fprintf(file, "%u %u %u %u %s %s\n", seen->opcode, seen->node, seen->conn, seen->shard,
                  place, seen->text);
}

static bool take_option(struct arguments *arguments, int code, char *text)
{
    struct node_options *options = &arguments->options;
    static const char *const modes[] = {"store", "void", NULL}, *const compressions[] = {
                                                                    "lz4", "none", NULL};
    static const char *const refusals[] = {"cassandra-5", "cassandra-4", "cassandra-3",
                                           "cassandra-2", "scylla",      "beta",
                                           "close",       NULL};
    uint64_t number = 0;
    uint32_t index = 0;
    bool fine = true;
    switch (code) {
    case OPTION_PORT:
        fine = take_number(text, 65535, &number);
        options->port = (uint16_t)number;
        break;
    case OPTION_ADDRESS: options->address = text; break;
    case OPTION_PORTS_DIFFER: options->ports_differ = true; break;
    case OPTION_NODES:
        fine = take_number(text, NODE_COUNT_MAX, &number);
        options->nodes = (uint32_t)number;
        break;
    case OPTION_VNODES:
        fine = take_number(text, 4096, &number);
        options->vnodes = (uint32_t)number;
        break;
    case OPTION_DCS:
        fine = take_names(text, arguments->dcs);
        options->dcs = arguments->dcs;
        break;
    case OPTION_RACKS:
        fine = take_names(text, arguments->racks);
        options->racks = arguments->racks;
        break;
    case OPTION_AUTH: fine = take_auth(text, options); break;
    case OPTION_AUTH_ROUNDS:
        fine = take_number(text, 100, &number);
        options->auth_rounds = (uint32_t)number;
        break;
    case OPTION_TLS_CERT: options->tls_cert = text; break;
    case OPTION_TLS_KEY: options->tls_key = text; break;
    case OPTION_TLS_CLIENT_CA: options->tls_client_ca = text; break;
    case OPTION_PROTOCOL_MAX:
        fine = take_number(text, 5, &number) && number >= 3;
        options->version_max = (uint8_t)number;
        break;
    case OPTION_PROTOCOL_MIN:
        fine = take_number(text, 5, &number) && number >= 3;
        options->version_min = (uint8_t)number;
        break;
    case OPTION_REFUSAL:
        fine = take_word(text, refusals, &index);
        options->refusal = (enum node_refusal)index;
        break;
    case OPTION_COMPRESSION:
        fine = take_word(text, compressions, &index);
        options->no_lz4 = index == 1;
        break;
    case OPTION_MODE:
        fine = take_word(text, modes, &index);
        options->mode = (enum node_mode)index;
        break;
    case OPTION_VOID_ROWS:
        fine = take_number(text, 1 << 20, &number);
        options->void_rows = (uint32_t)number;
        break;
    case OPTION_VOID_CELL_SIZE:
        fine = take_number(text, 1 << 24, &number);
        options->void_cell_size = (uint32_t)number;
        break;
    case OPTION_TRICKLE:
        fine = take_number(text, UINT32_MAX, &number);
        options->trickle = (uint32_t)number;
        break;
    case OPTION_DELAY: fine = take_delay(text, options); break;
    case OPTION_SHARDS:
        fine = take_number(text, 256, &number);
        options->shards = (uint32_t)number;
        break;
    case OPTION_TABLETS: options->tablets = true; break;
    case OPTION_SEED: fine = take_number(text, UINT64_MAX, &options->seed); break;
    case OPTION_RELEASE: options->release_version = text; break;
    case OPTION_CLUSTER_NAME: options->cluster_name = text; break;
    case OPTION_STORAGE_MAX: fine = take_number(text, UINT64_MAX, &options->storage_max); break;
    case OPTION_OUTPUT_MAX:
        fine = take_number(text, UINT32_MAX, &number);
        options->output_max = (uint32_t)number;
        break;
    case OPTION_FRAME_MAX:
        fine = take_number(text, PROTO_BODY_MAX, &number);
        options->frame_size_max = (uint32_t)number;
        break;
    case OPTION_CONNECTIONS_MAX:
        fine = take_number(text, UINT32_MAX, &number);
        options->connections_max = (uint32_t)number;
        break;
    case OPTION_FAULT:
        fine = arguments->fault_count < FAULTS_MAX &&
               (arguments->faults[arguments->fault_count++] = text) != NULL;
        break;
    case OPTION_CQL:
        fine = arguments->statement_count < FAULTS_MAX &&
               (arguments->statements[arguments->statement_count++] = text) != NULL;
        break;
    case OPTION_PARENT_DEATH: fine = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() != 1; break;
    case OPTION_COUNTERS: arguments->counters = true; break;
    case OPTION_RECORD:
        options->context = fopen(text, "w");
        fine = options->context != NULL && setvbuf(options->context, NULL, _IOLBF, 0) == 0;
        options->on_request = record;
        break;
    default: return false;
    }
    return fine;
}

static void print_counters(struct node_cluster *cluster)
{
    struct node_counters all;
    node_counters(cluster, NODE_ALL, &all);
    printf(
        "connections %llu requests %llu replies %llu errors %llu reads %llu writes %llu bytes_in %llu bytes_out %llu replica_hits %llu replica_misses %llu shard_hits %llu shard_misses %llu faults %llu\n",
        (unsigned long long)all.connections, (unsigned long long)all.requests,
        (unsigned long long)all.replies, (unsigned long long)all.errors,
        (unsigned long long)all.reads, (unsigned long long)all.writes,
        (unsigned long long)all.bytes_in, (unsigned long long)all.bytes_out,
        (unsigned long long)all.replica_hits, (unsigned long long)all.replica_misses,
        (unsigned long long)all.shard_hits, (unsigned long long)all.shard_misses,
        (unsigned long long)all.faults);
}

static bool prepare(struct node_cluster *cluster, const struct arguments *arguments)
{
    char message[300];
    for (uint32_t i = 0; i < arguments->statement_count; ++i) {
        if (node_cql(cluster, arguments->statements[i], NULL, message, sizeof message) != 0) {
            fprintf(stderr, "cqlring-node: %s: %s\n", arguments->statements[i], message);
            return false;
        }
    }
    for (uint32_t i = 0; i < arguments->fault_count; ++i) {
        if (node_fault_parse(cluster, arguments->faults[i], message, sizeof message) == 0) {
            fprintf(stderr, "cqlring-node: %s\n", message);
            return false;
        }
    }
    return true;
}

static int wrong_usage(void)
{
    fprintf(stderr, "cqlring-node --help tells the options and their values\n");
    return 2;
}

int main(int argc, char **argv)
{
    /* Signals are waited for, not handled; blocked before any thread is made. */
    sigset_t ends;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &ends, NULL);
    struct arguments arguments = {0};
    for (int code, index = 0; (code = getopt_long(argc, argv, "", long_options, &index)) != -1;) {
        if (code == OPTION_HELP) {
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (code == '?') /* getopt_long has told what */
            return wrong_usage();
        if (!take_option(&arguments, code, optarg)) {
            fprintf(stderr, "cqlring-node: --%s: \"%s\" is not allowed\n", long_options[index].name,
                    optarg != NULL ? optarg : "");
            return wrong_usage();
        }
    }
    if (optind < argc) {
        fprintf(stderr, "cqlring-node: %s is not an option\n", argv[optind]);
        return wrong_usage();
    }
    char message[300];
    struct node_cluster *cluster = node_cluster_start(&arguments.options, message, sizeof message);
    if (cluster == NULL) {
        fprintf(stderr, "cqlring-node: %s\n", message);
        return EXIT_FAILURE;
    }
    if (!prepare(cluster, &arguments)) {
        node_cluster_stop(cluster);
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < node_count(cluster); ++i)
        printf("listening %s:%u\n", node_address(cluster, i), node_port(cluster, i));
    (void)fflush(stdout);
    int number;
    (void)sigwait(&ends, &number);
    if (arguments.counters)
        print_counters(cluster);
    node_cluster_stop(cluster);
    if (arguments.options.context != NULL)
        (void)fclose(arguments.options.context);
    return EXIT_SUCCESS;
}
