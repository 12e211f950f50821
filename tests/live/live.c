/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct live_options live;
uint32_t live_passed, live_failed;

static char test_name[200];
static uint32_t notes;
static bool is_skipped;

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? otherwise : value;
}

bool live_read_environment(void)
{
    live = (struct live_options){
        .host = environment("CQLRING_LIVE_HOST", NULL),
        .port = (int32_t)strtol(environment("CQLRING_LIVE_PORT", "9042"), NULL, 10),
        .user = environment("CQLRING_LIVE_USER", NULL),
        .password = environment("CQLRING_LIVE_PASSWORD", NULL),
        .tls_ca = environment("CQLRING_LIVE_TLS_CA", NULL),
        .tls_certificate = environment("CQLRING_LIVE_TLS_CERT", "good"),
        .tls_wrong_ca = environment("CQLRING_LIVE_TLS_WRONG_CA", NULL),
        .tls_client_certificate = environment("CQLRING_LIVE_TLS_CLIENT_CERT", NULL),
        .tls_client_key = environment("CQLRING_LIVE_TLS_CLIENT_KEY", NULL),
        .types = environment("CQLRING_LIVE_TYPES", "tests/live/types.tsv"),
        .only = environment("CQLRING_LIVE_ONLY", NULL),
        .control = environment("CQLRING_LIVE_CONTROL", NULL),
        .moved = environment("CQLRING_LIVE_MOVED", NULL),
        .rows = strtoull(environment("CQLRING_LIVE_ROWS", "1000000"), NULL, 10),
        .keep = environment("CQLRING_LIVE_KEEP", NULL) != NULL,
    };
    return live.host != NULL;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

void live_begin(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(test_name, sizeof test_name, format, arguments);
    va_end(arguments);
    notes = 0;
    is_skipped = false;
}

void live_end(void)
{
    if (notes > 0) {
        ++live_failed;
    } else if (!is_skipped) {
        ++live_passed;
        printf("ok      %s\n", test_name);
    }
    fflush(stdout);
}

void live_skip(const char *reason)
{
    printf("not run: %s: %s\n", test_name, reason);
    is_skipped = true;
}

bool live_note(const char *format, ...)
{
    ++notes;
    printf("FAILED  %s: ", test_name);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    return false;
}

bool live_check(bool held, const char *what)
{
    return held || live_note("%s", what);
}

bool live_status(cqlring_status status, cqlring_status wanted, const cqlring_error *error, const char *what)
{
    if (status == wanted)
        return true;
    return live_note("%s: %s instead of %s: %s", what, cqlring_status_name(status), cqlring_status_name(wanted),
                     status == CQLRING_OK || error == NULL ? "" : error->message);
}

bool live_ok(cqlring_status status, const cqlring_error *error, const char *what)
{
    return live_status(status, CQLRING_OK, error, what);
}

bool live_equal(int64_t got, int64_t wanted, const char *what)
{
    return got == wanted || live_note("%s: %" PRId64 " instead of %" PRId64, what, got, wanted);
}

static const char *hex(cqlring_bytes bytes, char text[80])
{
    if (bytes.size < 0)
        return bytes.size == CQLRING_NULL ? "null" : "nothing";
    text[0] = '\0';
    for (int32_t i = 0; i < bytes.size && i < 36; ++i)
        snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)bytes.data)[i]);
    if (bytes.size > 36)
        snprintf(text + 72, 4, "...");
    return text;
}

bool live_bytes(cqlring_bytes got, cqlring_bytes wanted, const char *what)
{
    if (got.size == wanted.size && (got.size <= 0 || memcmp(got.data, wanted.data, (size_t)got.size) == 0))
        return true;
    char a[80], b[80];
    return live_note("%s: %s instead of %s", what, hex(got, a), hex(wanted, b));
}

/* --- handles ------------------------------------------------------------------------------------------------------ */

cqlring_cluster_options live_cluster_options(const struct live_way *way)
{
    static cqlring_tls_options tls;
    tls = (cqlring_tls_options){
        .struct_size = sizeof tls,
        .ca_file = live.tls_ca,
        .certificate_file = live.tls_client_certificate,
        .key_file = live.tls_client_key,
        .verify = strcmp(live.tls_certificate, "good") == 0 ? CQLRING_TLS_FULL : CQLRING_TLS_NONE,
    };
    return (cqlring_cluster_options){
        .struct_size = sizeof(cqlring_cluster_options),
        .contact_points = live.host,
        .port = live.port,
        .user = live.user,
        .password = live.password,
        .tls = live.tls_ca == NULL ? NULL : &tls,
        .protocol_version = way == NULL ? 0 : way->version,
        .compression = way == NULL ? CQLRING_COMPRESSION_NONE : way->compression,
        .application_name = "cqlring live tests",
    };
}

cqlring_session *live_open(const struct live_way *way, const char *keyspace)
{
    cqlring_cluster_options options = live_cluster_options(way);
    cqlring_session_options session_options = {.struct_size = sizeof session_options, .keyspace = keyspace};
    cqlring_error error;
    cqlring_cluster *cluster = NULL;
    cqlring_session *session = NULL;
    if (!live_ok(cqlring_cluster_open_sync(NULL, &options, &cluster, &error), &error, "open the cluster"))
        return NULL;
    (void)live_ok(cqlring_session_open_sync(cluster, &session_options, &session, &error), &error, "open a session");
    cqlring_cluster_release(cluster); /* the session keeps it */
    return session;
}

bool live_keyspace(cqlring_session *session)
{
    return live_run(session, "CREATE KEYSPACE IF NOT EXISTS cqlring_live WITH replication = "
                             "{'class': 'SimpleStrategy', 'replication_factor': 1}");
}

void live_drop(cqlring_session *session)
{
    (void)live_run(session, "DROP KEYSPACE IF EXISTS cqlring_live");
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static bool execute(const cqlring_request *request, cqlring_result **result, const char *what)
{
    cqlring_error error;
    char shown[120];
    snprintf(shown, sizeof shown, "%.100s", what);
    return live_ok(cqlring_execute_sync(request, result, &error), &error, shown);
}

/* Schema changes and counts may take longer than a request usually has. */
static const cqlring_execution patient = {.struct_size = sizeof patient, .timeout_us = 60000000};

bool live_run(cqlring_session *session, const char *format, ...)
{
    static char text[1 << 16];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return execute(&(cqlring_request){.session = session, .cql = cqlring_text(text), .execution = &patient}, NULL, text);
}

cqlring_result *live_query(cqlring_session *session, const char *format, ...)
{
    static char text[1 << 16];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return live_request(&(cqlring_request){.session = session, .cql = cqlring_text(text), .execution = &patient}, text);
}

cqlring_result *live_request(const cqlring_request *request, const char *what)
{
    cqlring_result *result = NULL;
    return execute(request, &result, what) ? result : NULL;
}

cqlring_prepared *live_prepare(cqlring_session *session, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cqlring_error error;
    cqlring_prepared *prepared = NULL;
    (void)live_ok(cqlring_prepare_sync(session, text, &prepared, &error), &error, text);
    return prepared;
}

cqlring_bytes live_first(cqlring_result *result)
{
    cqlring_bytes cells[64] = {{NULL, CQLRING_UNSET}};
    uint32_t count = 0;
    cqlring_error error;
    uint32_t columns = cqlring_result_column_count(result);
    if (columns == 0 || columns > sizeof cells / sizeof cells[0])
        return (cqlring_bytes){NULL, CQLRING_UNSET};
    if (!live_ok(cqlring_result_rows(result, 0, cells, 1, &count, &error), &error, "read a row") || count == 0)
        return (cqlring_bytes){NULL, CQLRING_UNSET};
    return cells[0];
}

int64_t live_count(cqlring_session *session, const char *table)
{
    int64_t count = -1;
    cqlring_result *result = live_query(session, "SELECT count(*) FROM %s", table);
    if (result != NULL && cqlring_get_int(live_first(result), 8, &count) != CQLRING_OK)
        (void)live_note("no count of %s", table);
    cqlring_result_release(result);
    return count;
}
