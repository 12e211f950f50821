/* SPDX-License-Identifier: Apache-2.0 */

#include "secure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char directory[64];

bool secure_make(void)
{
    snprintf(directory, sizeof directory, "/tmp/cqlring-certs-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return false;
    /* …/tests/flow/secure.c → …/tests/live/certs */
    char command[4096];
    const char *here = strstr(__FILE__, "flow/secure.c");
    snprintf(command, sizeof command, "'%.*slive/certs' %s >/dev/null", here != NULL ? (int)(here - __FILE__) : 0, __FILE__, directory);
    if (system(command) == 0)
        return true;
    fprintf(stderr, "%s failed: is openssl installed?\n", command);
    secure_remove();
    return false;
}

void secure_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (directory[0] != '\0' && system(command) != 0)
        fprintf(stderr, "%s was not removed\n", directory);
    directory[0] = '\0';
}

const char *secure_file(const char *name)
{
    static char paths[16][128];
    static unsigned at;
    char *path = paths[at++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

void secure_flow(struct flow *flow, const char *certificate, cqlring_tls_options *tls)
{
    static char paths[3][128];
    snprintf(paths[0], sizeof paths[0], "%s/%s.pem", directory, certificate);
    snprintf(paths[1], sizeof paths[1], "%s/%s.key", directory, certificate);
    snprintf(paths[2], sizeof paths[2], "%s/ca.pem", directory);
    flow->node_options.tls_cert = paths[0];
    flow->node_options.tls_key = paths[1];
    *tls = (cqlring_tls_options){.struct_size = sizeof *tls, .ca_file = paths[2]};
    flow->options.tls = tls;
}
