/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cqlring-probe [options] HOST[:PORT][,HOST[:PORT]…]\n"
    "\n"
    "Connects to a Cassandra or ScyllaDB cluster as a driver would, and prints its nodes, what was negotiated with each, and how\n"
    "long an answer takes; or the reason why that cannot be had.\n"
    "\n"
    "  --port N                where no port is given; default 9042\n"
    "  --user NAME             or CQLRING_USER\n"
    "  --password-file FILE    its first line; or CQLRING_PASSWORD. Never an argument: those are seen by everybody\n"
    "  --tls                   TLS, with the system's trusted CAs\n"
    "  --ca FILE               TLS, with these (PEM)\n"
    "  --cert FILE, --key FILE client certificate and its key (PEM); the key's password from CQLRING_KEY_PASSWORD\n"
    "  --server-name NAME      verified and sent as SNI instead of the contact name\n"
    "  --verify WHAT           full (chain and host, default), chain, none\n"
    "  --protocol N            4 or 5; default 5, stepping down\n"
    "  --lz4                   ask for compression\n"
    "  --dc NAME               only nodes of this datacenter\n"
    "  --timeout SECONDS       of each connect and each answer; default 5\n"
    "  --samples N             answers timed per node, 1 to 1000; default 5\n"
    "  --json                  one JSON object instead of text\n"
    "  --verbose               the library's log to standard error\n"
    "  --version, --help\n"
    "\n"
    "Exit status: 0 every node answers, 1 some do not, 2 usage, 3 unreachable, 4 silent, 5 credentials refused or wanted, 6 TLS,\n"
    "7 not CQL, or no protocol version in common, 8 anything else.\n";

static int wrong(const char *format, const char *what)
{
    fputs("cqlring-probe: ", stderr);
    fprintf(stderr, format, what);
    fputs("; --help tells more\n", stderr);
    return EXIT_USAGE;
}

static bool number(const char *text, double low, double high, double *out)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= low && value <= high))
        return false;
    *out = value;
    return true;
}

/* The first line of a file. */
static bool line_read(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    setvbuf(file, NULL, _IONBF, 0); /* no copy of a secret stays in a buffer */
    bool read = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (!read) {
        errno = EINVAL;
        return false;
    }
    size_t length = strlen(out);
    if (length + 1 == size && out[length - 1] != '\n') {
        errno = E2BIG;
        return false;
    }
    out[strcspn(out, "\r\n")] = '\0';
    return true;
}

static bool text_take(const char *from, char *out, size_t size)
{
    if (from == NULL)
        return true;
    return (size_t)snprintf(out, size, "%s", from) < size;
}

static int secrets_read(struct options *options, const char *user, const char *password_file)
{
    if (user == NULL)
        user = getenv("CQLRING_USER");
    if (!text_take(user, options->user, sizeof options->user))
        return wrong("%s is longer than 1 023 bytes", "the user's name");
    if (!text_take(getenv("CQLRING_KEY_PASSWORD"), options->key_password, sizeof options->key_password))
        return wrong("%s is longer than 1 023 bytes", "CQLRING_KEY_PASSWORD");
    if (password_file != NULL) {
        if (!line_read(password_file, options->password, sizeof options->password)) {
            fprintf(stderr, "cqlring-probe: the password cannot be read from %s: %s\n", password_file, strerror(errno));
            return EXIT_USAGE;
        }
    } else if (!text_take(getenv("CQLRING_PASSWORD"), options->password, sizeof options->password)) {
        return wrong("%s is longer than 4 095 bytes", "CQLRING_PASSWORD");
    }
    if (user == NULL && password_file != NULL)
        return wrong("a password without a user: give %s or CQLRING_USER", "--user");
    if (user == NULL)
        return EXIT_GOOD;
    if (password_file == NULL && getenv("CQLRING_PASSWORD") == NULL)
        return wrong("a user without a password: give %s or CQLRING_PASSWORD", "--password-file");
    options->cluster.user = options->user;
    options->cluster.password = options->password;
    return EXIT_GOOD;
}

static int verify_read(const char *text, cqlring_tls_verify *out)
{
    static const char *const names[] = {"full", "chain", "none"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (cqlring_tls_verify)i;
            return EXIT_GOOD;
        }
    return wrong("--verify %s: full, chain or none", text);
}

int options_read(int argc, char **argv, struct options *options)
{
    memset(options, 0, sizeof *options);
    options->cluster.struct_size = sizeof options->cluster;
    options->tls.struct_size = sizeof options->tls;
    options->timeout_us = 5000000;
    options->samples = 5;
    const char *user = NULL, *password_file = NULL;
    bool tls = false;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        double given = 0;
        if (strcmp(name, "--help") == 0)
            return fputs(usage, stdout) < 0 ? EXIT_OTHER : -1;
        if (strcmp(name, "--version") == 0)
            return printf("cqlring-probe %s\n", cqlring_version()) < 0 ? EXIT_OTHER : -1;
        if (strcmp(name, "--json") == 0) {
            options->json = true;
        } else if (strcmp(name, "--verbose") == 0) {
            options->verbose = true;
        } else if (strcmp(name, "--tls") == 0) {
            tls = true;
        } else if (strcmp(name, "--lz4") == 0) {
            options->cluster.compression = CQLRING_COMPRESSION_LZ4;
        } else if (strncmp(name, "--password", 10) == 0 && strcmp(name, "--password-file") != 0) {
            return wrong("%s: a password is never an argument, which everybody on this machine can read: give --password-file or CQLRING_PASSWORD", "--password");
        } else if (strncmp(name, "--", 2) == 0) {
            i++;
            if (value == NULL)
                return wrong("%s: unknown, or its value is missing", name);
            if (strcmp(name, "--port") == 0) {
                if (!number(value, 1, 65535, &given))
                    return wrong("--port %s: 1 to 65535", value);
                options->cluster.port = (int32_t)given;
            } else if (strcmp(name, "--user") == 0) {
                user = value;
            } else if (strcmp(name, "--password-file") == 0) {
                password_file = value;
            } else if (strcmp(name, "--ca") == 0) {
                options->tls.ca_file = value;
                tls = true;
            } else if (strcmp(name, "--cert") == 0) {
                options->tls.certificate_file = value;
                tls = true;
            } else if (strcmp(name, "--key") == 0) {
                options->tls.key_file = value;
                tls = true;
            } else if (strcmp(name, "--server-name") == 0) {
                options->tls.server_name = value;
                tls = true;
            } else if (strcmp(name, "--verify") == 0) {
                tls = true;
                if (verify_read(value, &options->tls.verify) != EXIT_GOOD)
                    return EXIT_USAGE;
            } else if (strcmp(name, "--protocol") == 0) {
                if (!number(value, 4, 5, &given) || given != (int32_t)given)
                    return wrong("--protocol %s: 4 or 5", value);
                options->cluster.protocol_version = (int32_t)given;
            } else if (strcmp(name, "--dc") == 0) {
                options->datacenter = value;
            } else if (strcmp(name, "--timeout") == 0) {
                if (!number(value, 0.001, 86400, &given))
                    return wrong("--timeout %s: 0.001 to 86400 seconds", value);
                options->timeout_us = (int64_t)(given * 1e6);
            } else if (strcmp(name, "--samples") == 0) {
                if (!number(value, 1, SAMPLES_MAX, &given))
                    return wrong("--samples %s: 1 to 1000", value);
                options->samples = (uint32_t)given;
            } else {
                return wrong("%s: unknown", name);
            }
        } else if (options->contact_points != NULL) {
            return wrong("%s: one HOST, or several with commas between them", name);
        } else {
            options->contact_points = name;
        }
    }
    if (options->contact_points == NULL)
        return wrong("%s is missing", "HOST");
    int status = secrets_read(options, user, password_file);
    if (status != EXIT_GOOD)
        return status;
    if (options->key_password[0] != '\0')
        options->tls.key_password = options->key_password;
    options->cluster.contact_points = options->contact_points;
    options->cluster.local_datacenter = options->datacenter;
    options->cluster.connect_timeout_us = options->timeout_us;
    options->cluster.application_name = "cqlring-probe";
    if (tls)
        options->cluster.tls = &options->tls;
    return EXIT_GOOD;
}

void options_wipe(struct options *options)
{
    volatile char *const secrets[] = {options->password, options->key_password};
    const size_t sizes[] = {sizeof options->password, sizeof options->key_password};
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < sizes[i]; at++)
            secrets[i][at] = '\0';
}
