/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: modes=split timeout=240 */

/* cqlring-probe, the installed program, as an operator runs it: what it prints and how it ends. */

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow.h"
#include "relay.h"
#include "secure.h"

enum { GOOD = 0, PARTLY = 1, USAGE = 2, UNREACHABLE = 3, SILENT = 4, AUTH = 5, TLS = 6, PROTOCOL = 7 };

static char program[4096];
static char output[1 << 20]; /* of the last run, standard error included */

/* Beside the tests: BUILD/tests/flow/test_probe and BUILD/examples/cqlring-probe. */
static bool program_find(void)
{
    char self[3072];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    if (size <= 0)
        return false;
    self[size] = '\0';
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(self, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    snprintf(program, sizeof program, "%s/examples/cqlring-probe", self);
    return access(program, X_OK) == 0;
}

/* Runs it (environment and arguments as a shell reads them) and returns its exit status. */
__attribute__((format(printf, 2, 3))) static int probe(const char *environment, const char *format, ...)
{
    char arguments[2048], command[8192];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "%s '%s' %s 2>&1", environment, program, arguments);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status), "%s: %s", arguments, output);
    return WEXITSTATUS(status);
}

#define says(text) ck_assert_msg(strstr(output, text) != NULL, "it does not say \"%s\":\n%s", text, output)
#define says_not(text) ck_assert_msg(strstr(output, text) == NULL, "it says \"%s\":\n%s", text, output)
#define ends(call, status)                                                                    \
    do {                                                                                      \
        int ended = (call);                                                                   \
        ck_assert_msg(ended == (status), "it ended with %d, not %d:\n%s", ended, status, output); \
    } while (0)

/* What is printed is one JSON value; python3 reads it. */
static void ck_assert_json(void)
{
    FILE *pipe = popen("python3 -c 'import json, sys; json.load(sys.stdin)' 2>&1", "w");
    ck_assert_ptr_nonnull(pipe);
    fputs(output, pipe);
    ck_assert_msg(pclose(pipe) == 0, "no JSON:\n%s", output);
}

static uint32_t count_of(const char *text)
{
    uint32_t count = 0;
    for (const char *at = output; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

START_TEST(every_node_of_every_datacenter_is_told_of)
{
    static const char *const dcs[] = {"here", "here", "there"};
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 3;
    flow.node_options.dcs = dcs;
    flow_start(&flow);
    ends(probe("", "%s:%u", node_address(flow.node, 0), node_port(flow.node, 0)), GOOD);
    says("3 of 3 nodes answer");
    says("here/rack1");
    says("there/rack1");
    says("release 5.0.6");
    says("protocol v5, compression none");
    ck_assert_uint_eq(count_of("answers in "), 3);
    ends(probe("", "--dc there --lz4 --protocol 4 --port %u %s", node_port(flow.node, 0), node_address(flow.node, 0)), GOOD);
    says("1 of 1 nodes answer");
    says("protocol v4, compression lz4");
    ends(probe("", "--dc nowhere --port %u %s", node_port(flow.node, 0), node_address(flow.node, 0)), UNREACHABLE);
    says("nowhere");
    flow_close(&flow);
}
END_TEST

START_TEST(shards_and_features_of_a_scylladb_node_are_told)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.shards = 2;
    flow.node_options.tablets = true;
    flow_start(&flow);
    ends(probe("", "%s:%u", node_address(flow.node, 0), node_port(flow.node, 0)), GOOD);
    says("    2 shards, shard-aware port ");
    says("    features ");
    says("LWT_MARK");
    says("TABLETS_V1");
    flow_close(&flow);
}
END_TEST

START_TEST(the_same_is_told_as_json)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.shards = 2;
    flow_start(&flow);
    ends(probe("", "--json --samples 3 %s:%u", node_address(flow.node, 0), node_port(flow.node, 0)), GOOD);
    ck_assert_json();
    says("\"status\":\"OK\"");
    says("\"samples\":3");
    says("\"shards\":2");
    says("\"features\":\"");
    says("\"tls\":null");
    ends(probe("", "--json 127.0.0.1:1"), UNREACHABLE);
    ck_assert_json();
    says("\"status\":\"UNREACHABLE\"");
    says("\"nodes\":[]");
    flow_close(&flow);
}
END_TEST

START_TEST(a_port_where_nobody_listens_is_told)
{
    ends(probe("", "127.0.0.1:1"), UNREACHABLE);
    says("connect to 127.0.0.1:1 failed: Connection refused");
    ends(probe("", "no.such.host.invalid"), UNREACHABLE);
    says("no.such.host.invalid");
}
END_TEST

START_TEST(a_node_that_is_down_is_told_beside_those_that_answer)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.nodes = 2;
    flow_start(&flow);
    node_down(flow.node, 1, false);
    ends(probe("", "%s:%u", node_address(flow.node, 0), node_port(flow.node, 0)), PARTLY);
    says("1 of 2 nodes answer");
    says("NO ANSWER (no node reachable): QUERY: no node can be reached: connect to 127.0.0.2");
    ends(probe("", "--json %s:%u", node_address(flow.node, 0), node_port(flow.node, 0)), PARTLY);
    ck_assert_json();
    flow_close(&flow);
}
END_TEST

START_TEST(credentials_come_from_a_file_or_the_environment_and_are_never_shown)
{
    struct flow flow;
    flow_init(&flow);
    flow.node_options.user = "ann";
    flow.node_options.password = "quite-secret";
    flow_start(&flow);
    char path[] = "/tmp/cqlring-probe-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "quite-secret\n", 13), 13);
    close(fd);
    const char *address = node_address(flow.node, 0);
    uint16_t port = node_port(flow.node, 0);
    ends(probe("", "--verbose --user ann --password-file %s %s:%u", path, address, port), GOOD);
    says("PasswordAuthenticator");
    says_not("quite-secret");
    ends(probe("CQLRING_USER=ann CQLRING_PASSWORD=quite-secret", "--verbose --json %s:%u", address, port), GOOD);
    says_not("quite-secret");
    ends(probe("CQLRING_USER=ann CQLRING_PASSWORD=not-so-secret", "--verbose %s:%u", address, port), AUTH);
    says("incorrect");
    says_not("not-so-secret");
    ends(probe("", "%s:%u", address, port), AUTH);
    says("set user and password");
    ends(probe("", "--user ann --password quite-secret %s:%u", address, port), USAGE);
    says_not("quite-secret");
    ends(probe("", "--user ann %s:%u", address, port), USAGE);
    ends(probe("", "--user ann --password-file /no/such/file %s:%u", address, port), USAGE);
    says("/no/such/file: No such file");
    unlink(path);
    flow_close(&flow);
}
END_TEST

START_TEST(the_state_of_tls_is_told)
{
    struct flow flow;
    cqlring_tls_options tls;
    flow_init(&flow);
    secure_flow(&flow, "node-good", &tls);
    flow_start(&flow);
    const char *address = node_address(flow.node, 0);
    uint16_t port = node_port(flow.node, 0);
    ends(probe("", "--ca %s %s:%u", secure_file("ca.pem"), address, port), GOOD);
    says("TLS 1.3, TLS_");
    says("certificate for localhost, 127.0.0.1, 127.0.0.2, 127.0.0.3, until 20");
    says("subject CN=node, issuer CN=cqlring test ca");
    ends(probe("", "--json --ca %s %s:%u", secure_file("ca.pem"), address, port), GOOD);
    ck_assert_json();
    says("\"version\":\"TLS 1.3\"");
    says("\"issuer\":\"CN=cqlring test ca\"");
    ends(probe("", "--ca %s %s:%u", secure_file("wrongca.pem"), address, port), TLS);
    says("not among the trusted CAs");
    ends(probe("", "--ca %s --verify none %s:%u", secure_file("wrongca.pem"), address, port), GOOD);
    ends(probe("", "--ca /no/such/ca.pem %s:%u", address, port), USAGE);
    says("/no/such/ca.pem");
    ends(probe("", "--timeout 2 %s:%u", address, port), UNREACHABLE); /* it closes without an alert */
    says("want TLS");
    flow_close(&flow);

    flow_init(&flow);
    flow_start(&flow);
    ends(probe("", "--ca %s %s:%u", secure_file("ca.pem"), node_address(flow.node, 0), node_port(flow.node, 0)), TLS);
    says("does not speak TLS");
    flow_close(&flow);
}
END_TEST

START_TEST(a_server_that_is_silent_or_speaks_something_else_is_told)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* the kernel accepts, nobody answers */
    ck_assert(listener >= 0 && bind(listener, (struct sockaddr *)&here, size) == 0 && listen(listener, 16) == 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&here, &size), 0);
    ends(probe("", "--timeout 0.5 127.0.0.1:%u", ntohs(here.sin_port)), SILENT);
    says("were not through after 500 ms");
    close(listener);

    struct relay *relay = relay_start(NULL, "127.0.0.1", 1);
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
    relay_say(relay, ssh, sizeof ssh - 1);
    ends(probe("", "%s", relay_contact(relay)), PROTOCOL);
    says("does not speak CQL");
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    relay_say(relay, http, sizeof http - 1);
    ends(probe("", "--json %s", relay_contact(relay)), PROTOCOL);
    ck_assert_json();
    relay_stop(relay);
}
END_TEST

START_TEST(a_unix_socket_and_an_ipv6_address_are_probed_too)
{
    struct flow flow;
    char path[64], message[200];
    flow_init(&flow);
    flow_start(&flow);
    snprintf(path, sizeof path, "/tmp/cqlring-probe-%ld", (long)getpid());
    struct relay *relay = relay_start(path, node_address(flow.node, 0), node_port(flow.node, 0));
    ends(probe("", "%s", path), GOOD);
    says(path);
    relay_stop(relay);
    flow_close(&flow);

    flow_init(&flow);
    flow.node_options.address = "::1";
    flow.node = node_cluster_start(&flow.node_options, message, sizeof message);
    if (flow.node != NULL) { /* else there is no IPv6 here */
        ends(probe("", "'[::1]:%u'", node_port(flow.node, 0)), GOOD);
        says("[::1]:");
    }
    flow_close(&flow);
}
END_TEST

START_TEST(wrong_usage_is_told)
{
    ends(probe("", " "), USAGE);
    says("HOST is missing");
    ends(probe("", "--timeout 0 h"), USAGE);
    ends(probe("", "--samples 1001 h"), USAGE);
    ends(probe("", "--samples 1x h"), USAGE);
    ends(probe("", "--protocol 3 h"), USAGE);
    ends(probe("", "--port 65536 h"), USAGE);
    ends(probe("", "--verify some h"), USAGE);
    ends(probe("", "--what h"), USAGE);
    ends(probe("", "--what"), USAGE);
    ends(probe("", "a b"), USAGE);
    ends(probe("", "a:b:c:d:e"), USAGE);
    ends(probe("", "--help"), GOOD);
    says("usage: cqlring-probe");
    ends(probe("", "--version"), GOOD);
    says(cqlring_version());
}
END_TEST

int main(void)
{
    if (!program_find()) {
        fprintf(stderr, "SKIP: %s is not built\n", program);
        return 77;
    }
    if (!secure_make())
        return 1;
    Suite *suite = suite_create("probe");
    TCase *tcase = tcase_create("program");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_node_of_every_datacenter_is_told_of);
    tcase_add_test(tcase, shards_and_features_of_a_scylladb_node_are_told);
    tcase_add_test(tcase, the_same_is_told_as_json);
    tcase_add_test(tcase, a_port_where_nobody_listens_is_told);
    tcase_add_test(tcase, a_node_that_is_down_is_told_beside_those_that_answer);
    tcase_add_test(tcase, credentials_come_from_a_file_or_the_environment_and_are_never_shown);
    tcase_add_test(tcase, the_state_of_tls_is_told);
    tcase_add_test(tcase, a_server_that_is_silent_or_speaks_something_else_is_told);
    tcase_add_test(tcase, a_unix_socket_and_an_ipv6_address_are_probed_too);
    tcase_add_test(tcase, wrong_usage_is_told);
    suite_add_tcase(suite, tcase);
    int failed = flow_main(suite);
    secure_remove();
    return failed;
}
