/* SPDX-License-Identifier: Apache-2.0 */

/* One small request at a time: what the library costs over a plain blocking socket that does the same. One line of JSON with
   CPU and latency per request.

     blocking [--mode socket|library] [--rows N] [--host H] [--port P] [--threads split|inline|caller]

   Both send the same 88 bytes on protocol v4, an EXECUTE of two values with a timestamp, and wait for the 13 of its answer.
   The socket's loop knows nothing: no stream ids, no time-outs, no errors. */

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/bench.h"

enum { WARM = 1000 };

/* ---- a client in a hundred lines ------------------------------------------------------------------------------------ */

enum { STARTUP = 0x01, QUERY = 0x07, PREPARE = 0x09, EXECUTE = 0x0A, ERROR = 0x00 };
enum { HEADER = 9 };

struct message {
    uint8_t data[4096];
    uint32_t size;
};

static void put(struct message *message, const void *data, size_t size)
{
    if (size > sizeof message->data - message->size)
        abort();
    memcpy(message->data + message->size, data, size);
    message->size += (uint32_t)size;
}

static void put_number(struct message *message, uint64_t value, uint32_t size)
{
    value = __builtin_bswap64(value << (64 - 8 * size));
    put(message, &value, size);
}

static void put_text(struct message *message, const char *text, uint32_t length_size)
{
    put_number(message, strlen(text), length_size);
    put(message, text, strlen(text));
}

static void message_begin(struct message *message, uint8_t opcode)
{
    message->size = 0;
    put(message, (const uint8_t[HEADER]){4, 0, 0, 0, opcode}, HEADER);
}

static void message_end(struct message *message)
{
    uint32_t size = htonl(message->size - HEADER);
    memcpy(message->data + HEADER - 4, &size, sizeof size);
}

static void all(int fd, const uint8_t *data, uint32_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            perror("send");
            exit(1);
        }
        data += sent;
        size -= (uint32_t)sent;
    }
}

/* Sends the message and waits for the whole answer. */
static void exchange(int fd, const struct message *message, struct message *answer)
{
    all(fd, message->data, message->size);
    answer->size = 0;
    uint32_t whole = HEADER;
    while (answer->size < whole) {
        ssize_t got = recv(fd, answer->data + answer->size, sizeof answer->data - answer->size, 0);
        if (got <= 0) {
            perror("recv");
            exit(1);
        }
        answer->size += (uint32_t)got;
        if (answer->size >= HEADER) {
            uint32_t body;
            memcpy(&body, answer->data + HEADER - 4, sizeof body);
            whole = HEADER + ntohl(body);
        }
    }
    if (answer->data[4] == ERROR) {
        fprintf(stderr, "the server: %.*s\n", (int)(answer->size - HEADER - 6), (const char *)answer->data + HEADER + 6);
        exit(1);
    }
}

static int dial(const struct bench_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, server->host, &address.sin_addr) != 1 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        perror(server->host);
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
}

struct by_socket {
    int fd;
    struct message request, answer;
    uint32_t key_at, timestamp_at;
};

static void socket_open(struct by_socket *by, const struct bench_server *server)
{
    struct message *request = &by->request, *answer = &by->answer;
    by->fd = dial(server);
    message_begin(request, STARTUP);
    put_number(request, 1, 2);
    put_text(request, "CQL_VERSION", 2);
    put_text(request, "3.0.0", 2);
    message_end(request);
    exchange(by->fd, request, answer);
    static const char *const schema[] = {
        "CREATE KEYSPACE IF NOT EXISTS bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE IF NOT EXISTS bench.small (k bigint PRIMARY KEY, v blob)"};
    for (int i = 0; i < 2; i++) {
        message_begin(request, QUERY);
        put_text(request, schema[i], 4);
        put_number(request, 1, 2); /* ONE */
        put_number(request, 0, 1);
        message_end(request);
        exchange(by->fd, request, answer);
    }
    message_begin(request, PREPARE);
    put_text(request, BENCH_INSERT, 4);
    message_end(request);
    exchange(by->fd, request, answer);
    uint8_t id[64];
    uint32_t id_size = (uint32_t)answer->data[HEADER + 4] << 8 | answer->data[HEADER + 5];
    if (id_size > sizeof id)
        abort();
    memcpy(id, answer->data + HEADER + 6, id_size);

    uint8_t blob[BENCH_BLOB_SIZE];
    bench_blob(blob);
    message_begin(request, EXECUTE);
    put_number(request, id_size, 2);
    put(request, id, id_size);
    put_number(request, 0x0A, 2);        /* LOCAL_ONE */
    put_number(request, 0x01 | 0x20, 1); /* values, timestamp */
    put_number(request, 2, 2);
    put_number(request, 8, 4);
    by->key_at = request->size;
    put_number(request, 0, 8);
    put_number(request, sizeof blob, 4);
    put(request, blob, sizeof blob);
    by->timestamp_at = request->size;
    put_number(request, 0, 8);
    message_end(request);
}

static void by_socket(void *context, uint64_t row)
{
    struct by_socket *by = context;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t key = __builtin_bswap64(row);
    uint64_t timestamp = __builtin_bswap64((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    memcpy(by->request.data + by->key_at, &key, sizeof key);
    memcpy(by->request.data + by->timestamp_at, &timestamp, sizeof timestamp);
    exchange(by->fd, &by->request, &by->answer);
}

/* ---- the library ---------------------------------------------------------------------------------------------------- */

struct by_library {
    struct bench_session on;
    cqlring_prepared *insert;
    uint8_t blob[BENCH_BLOB_SIZE];
};

static void by_library(void *context, uint64_t row)
{
    struct by_library *by = context;
    uint64_t key = __builtin_bswap64(row);
    cqlring_bytes cells[2] = {{(const uint8_t *)&key, sizeof key}, {by->blob, sizeof by->blob}};
    cqlring_request request = {.session = by->on.session, .prepared = by->insert, .values = cells, .value_count = 2};
    cqlring_error error;
    if (cqlring_execute_sync(&request, NULL, &error) != CQLRING_OK)
        bench_die("execute", &error);
}

/* ---- measuring ------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    struct bench_server server = {.host = "127.0.0.1", .port = 9042, .threads = CQLRING_THREADS_CALLER, .protocol = 4};
    static const char help[] = "usage: blocking [--mode library|socket] [--rows N]\n" BENCH_SERVER_USAGE;
    static const char *const modes[] = {"library", "socket", NULL};
    int is_socket = 0;
    uint64_t rows = 20000;
    const struct bench_option table[] = {BENCH_SERVER_OPTIONS(&server), BENCH_WORD_OPTION("--mode", &is_socket, modes),
                                         BENCH_NUMBER_OPTION("--rows", &rows, 1, INT32_MAX), {.name = NULL}};
    bench_options_parse("blocking", help, table, argc, argv);
    static struct by_socket socket_side;
    static struct by_library library_side;
    void (*call)(void *context, uint64_t row) = is_socket ? by_socket : by_library;
    void *context = is_socket ? (void *)&socket_side : (void *)&library_side;
    if (is_socket) {
        socket_open(&socket_side, &server);
    } else {
        bench_open(&library_side.on, &server);
        bench_schema(library_side.on.session);
        library_side.insert = bench_prepare(library_side.on.session, BENCH_INSERT);
        bench_blob(library_side.blob);
    }
    uint32_t *latency_ns = calloc(rows, sizeof *latency_ns);
    if (latency_ns == NULL)
        abort();
    for (uint64_t i = 0; i < WARM; i++)
        call(context, i);
    struct bench_usage usage = bench_usage_now();
    int64_t before = bench_now_ns();
    for (uint64_t i = 0; i < rows; i++) {
        call(context, WARM + i);
        int64_t now = bench_now_ns();
        latency_ns[i] = now - before < UINT32_MAX ? (uint32_t)(now - before) : UINT32_MAX;
        before = now;
    }
    usage = bench_usage_since(&usage);
    qsort(latency_ns, rows, sizeof *latency_ns, by_size);
    printf("{\"mode\": \"%s\", \"rows\": %" PRIu64 ", \"seconds\": %.4f, \"cpu_us\": %.3f, \"user_us\": %.3f, \"system_us\": %.3f, "
           "\"switches\": %.3f, \"latency_us\": %.2f, \"latency_p90_us\": %.2f, \"latency_p99_us\": %.2f}\n",
           is_socket ? "socket" : bench_threads_names[server.threads], rows, usage.seconds,
           (usage.user_s + usage.system_s) * 1e6 / (double)rows, usage.user_s * 1e6 / (double)rows,
           usage.system_s * 1e6 / (double)rows, (double)usage.context_switches / (double)rows,
           latency_ns[rows / 2] / 1e3, latency_ns[rows / 10 * 9] / 1e3, latency_ns[rows / 100 * 99] / 1e3);
    free(latency_ns);
    if (is_socket) {
        close(socket_side.fd);
    } else {
        cqlring_prepared_release(library_side.insert);
        bench_close(&library_side.on);
    }
    return 0;
}
