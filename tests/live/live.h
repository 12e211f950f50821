/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LIVE_H
#define LIVE_H

/* Tests against a server that somebody else started, through the public interface alone: test_*.c are programs, the other
   files are linked to each. Where the server is and what it is like comes from the environment:

     CQLRING_LIVE_HOST           contact points; without it everything is skipped (exit code 77)
     CQLRING_LIVE_PORT           default 9042
     CQLRING_LIVE_USER, CQLRING_LIVE_PASSWORD   the server asks for credentials, and these are right
     CQLRING_LIVE_TLS_CA         the server speaks TLS, and this CA (PEM file) has signed its certificate
     CQLRING_LIVE_TLS_CERT       "good" (default), "wronghost" or "expired": what its certificate is like
     CQLRING_LIVE_TLS_WRONG_CA   a CA that has signed nothing there
     CQLRING_LIVE_TLS_CLIENT_CERT, CQLRING_LIVE_TLS_CLIENT_KEY   the server demands this client certificate
     CQLRING_LIVE_TYPES          types.tsv; default tests/live/types.tsv
     CQLRING_LIVE_ONLY           only tests whose name contains this; "types", "tls" and "auth" are names too
     CQLRING_LIVE_ROWS           how many rows test_bulk writes; default 1 000 000
     CQLRING_LIVE_CONTROL        a program that takes "kill N", "pause N", "resume N", "restart N" and "move N ADDRESS" for node
                                 N of several: test_bulk then loses nodes while it writes; test_rolling needs it
     CQLRING_LIVE_MOVED          the address that test_rolling moves node 3 to
     CQLRING_LIVE_KEEP           leave everything where it is at the end, for others to read

   Everything is made in the keyspace cqlring_live, which is dropped before and afterwards. One thread. */

#include <cqlring.h>
#include <stdarg.h>
#include <stdio.h>

struct live_options {
    const char *host, *user, *password, *tls_ca, *tls_certificate, *tls_wrong_ca, *tls_client_certificate, *tls_client_key;
    const char *types, *only, *control, *moved;
    int32_t port;
    uint64_t rows;
    bool keep;
};
extern struct live_options live;
bool live_read_environment(void); /* false: there is no server to test against */

/* How the test that runs is connected. */
struct live_way {
    int32_t version;
    cqlring_compression compression;
};

/* --- counting: a test has passed when nothing in it was noted ---------------------------------------------------- */

void live_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void live_end(void);
void live_skip(const char *reason); /* counted as neither */
/* What did not hold; the test goes on. Returns false. */
bool live_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Each returns whether it held. what stands before the rest in the note. */
bool live_check(bool held, const char *what);
bool live_ok(cqlring_status status, const cqlring_error *error, const char *what);
bool live_status(cqlring_status status, cqlring_status wanted, const cqlring_error *error, const char *what);
bool live_equal(int64_t got, int64_t wanted, const char *what);
bool live_bytes(cqlring_bytes got, cqlring_bytes wanted, const char *what);
extern uint32_t live_passed, live_failed;

/* --- handles ------------------------------------------------------------------------------------------------------ */

/* Options as the environment says; they point into static memory. */
cqlring_cluster_options live_cluster_options(const struct live_way *way);
/* A session on a cluster of its own; NULL (and noted) when it cannot be had. keyspace NULL: none. */
cqlring_session *live_open(const struct live_way *way, const char *keyspace);
/* The keyspace cqlring_live, made when it is not there. */
bool live_keyspace(cqlring_session *session);
void live_drop(cqlring_session *session);

/* --- requests: those that return a result give the caller a reference, NULL (and noted) when they failed --------------- */

bool live_run(cqlring_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
cqlring_result *live_query(cqlring_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
cqlring_result *live_request(const cqlring_request *request, const char *what);
cqlring_prepared *live_prepare(cqlring_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The cell in the first column of the first row; size CQLRING_UNSET when there is none. */
cqlring_bytes live_first(cqlring_result *result);
int64_t live_count(cqlring_session *session, const char *table); /* SELECT count(*); −1 (and noted) */

/* types.c: every type of types.tsv there and back */
void live_types(const struct live_way *way);
/* The same rows as somebody else wrote them, with keys that end with suffix. */
void live_types_written_by(const struct live_way *way, char suffix);

#endif
