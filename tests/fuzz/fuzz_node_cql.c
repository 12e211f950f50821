/* SPDX-License-Identifier: Apache-2.0 */
/* CQL texts, one a line, against the embedded node: the parser, types, plans and storage. A line that begins with '!'
   is taken as bytes from the network instead, by a connection of protocol v4. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/node/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAX = 1 << 16, STATEMENTS_MAX = 64 };

/* One cluster for all inputs would carry what one leaves behind into the next: crashes must replay alone. */
static struct node_cluster *make(void)
{
    struct node_options options = {.nodes = 2, .storage_max = 1 << 20, .output_max = 1 << 20};
    struct node_cluster *cluster = node_cluster_create(&options, NULL, 0);
    static const char *const texts[] = {
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}",
        "CREATE TYPE ks.u (a int, b frozen<map<text, int>>)",
        ("CREATE TABLE ks.t (k int, c text, d decimal, s int static, v text, "
         "PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"),
        "ALTER TABLE ks.t ADD (l list<int>, m map<text, int>, e set<uuid>, f frozen<ks.u>)",
        "ALTER TABLE ks.t ADD (t tuple<int, text>, w vector<float, 2>)",
        "CREATE TABLE ks.n (k int PRIMARY KEY, n counter)",
        "INSERT INTO ks.t (k, c, d, s, v, l, m, f, t, w) VALUES (1, 'a', 1.5, 2, 'x', [1, 2], {'k': 1}, {a: 1}, (1, 'b'), [1, 2])",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        if (node_cql(cluster, texts[i], NULL, NULL, 0) != 0)
            abort();
    }
    return cluster;
}

static void feed(struct node_conn *conn, const uint8_t *data, size_t size)
{
    node_conn_input(conn, data, size, 1000);
    for (cqlring_bytes out; (out = node_conn_output(conn)).size > 0;)
        node_conn_consumed(conn, (uint32_t)out.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > TEXT_MAX)
        return 0;
    struct node_cluster *cluster = make();
    struct node_conn *conn = node_conn_open(cluster, 0, 0, 0);
    static const uint8_t startup[] = {4,   0,   0,   0,   1,   0,   0,   0,   22,  0,   1,
                                      0,   11,  'C', 'Q', 'L', '_', 'V', 'E', 'R', 'S', 'I',
                                      'O', 'N', 0,   5,   '3', '.', '0', '.', '0'};
    feed(conn, startup, sizeof startup);
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < STATEMENTS_MAX && at < end; ++i) {
        const uint8_t *line = at;
        if (*line == '!') { /* to the end of the input: bytes may hold anything */
            feed(conn, line + 1, (size_t)(end - line - 1));
            break;
        }
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop == NULL ? end : stop + 1;
        size_t length = (size_t)((stop == NULL ? end : stop) - line);
        char *text = malloc(length + 1);
        if (text == NULL)
            abort();
        memcpy(text, line, length);
        text[length] = 0;
        char message[64];
        (void)node_cql(cluster, text, NULL, message, sizeof message);
        free(text);
    }
    node_conn_close(conn);
    node_cluster_stop(cluster);
    return 0;
}
