/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/resolve.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/failure.h"
#include "driver/park.h"
#include "serialize/mem.h"

/* --- contact points ----------------------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

cqlring_bytes cqr_trim(const char *from, const char *end)
{
    while (from < end && is_blank(*from))
        ++from;
    while (end > from && is_blank(end[-1]))
        --end;
    ptrdiff_t size = end - from;
    return (cqlring_bytes){.data = from, .size = size < INT32_MAX ? (int32_t)size : INT32_MAX};
}

/* "1" … "65535". */
static bool parse_port(const char *text, size_t size, uint16_t *port)
{
    uint32_t value = 0;
    if (size == 0 || size > 5)
        return false;
    for (size_t i = 0; i < size; ++i) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *port = (uint16_t)value;
    return value >= 1 && value <= UINT16_MAX;
}

/* What is wrong with it, NULL when nothing is. */
static const char *parse_point(cqlring_bytes part, uint16_t port, struct contact_point *point)
{
    const char *text = part.data;
    size_t size = (size_t)part.size;
    *point = (struct contact_point){.port = port};
    if (size == 0)
        return "it is empty";

    const char *host = text, *port_text = NULL;
    size_t host_size = size;
    bool is_literal = text[0] == '/' || text[0] == '[';
    if (text[0] == '[') {
        const char *close = memchr(text, ']', size);
        if (close == NULL)
            return "the bracket is not closed";
        host = text + 1;
        host_size = (size_t)(close - host);
        if (close + 1 < text + size) {
            if (close[1] != ':')
                return "only :port may follow the bracket";
            port_text = close + 2;
        }
    } else if (text[0] != '/') {
        const char *colon = memchr(text, ':', size);
        const char *last = memrchr(text, ':', size);
        is_literal = colon != last; /* two colons: an IPv6 address without brackets, so without a port */
        if (colon != NULL && colon == last) {
            host_size = (size_t)(colon - text);
            port_text = colon + 1;
        }
    }
    if (port_text != NULL && !parse_port(port_text, (size_t)(text + size - port_text), &point->port))
        return "the port is not a number from 1 to 65535";
    if (host_size == 0)
        return "the host is missing";
    if (host_size >= sizeof point->host)
        return "it is too long";
    memcpy(point->host, host, host_size);
    if (strlen(point->host) != host_size || strcspn(point->host, " \t\r\n[]") != host_size)
        return "a host's name has no such characters";
    struct address address;
    if (is_literal && !cqr_address_from_literal(&address, point->host, point->port))
        return text[0] == '/' ? "the path is too long for a socket" : "it is not an IPv6 address, or its interface is unknown";
    return NULL;
}

cqlring_status cqr_contact_points_parse(const char *text, uint16_t port, struct contact_point **out, uint32_t *out_count, cqlring_error *error)
{
    if (text == NULL)
        text = "127.0.0.1";
    if (cqr_trim(text, text + strlen(text)).size == 0) /* a variable that was not set, more likely than a wish for this machine */
        return cqr_error(error, CQLRING_INVALID, "contact_points is empty: give hosts, or NULL for 127.0.0.1");
    size_t count = 1;
    for (const char *at = text; *at != '\0'; ++at)
        count += *at == ',';
    if (count > CONTACT_POINTS_MAX)
        return cqr_error(error, CQLRING_INVALID, "%zu contact points, more than %d", count, CONTACT_POINTS_MAX);
    struct contact_point *points = cqr_mem_array(count, sizeof *points);
    if (points == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "no memory for contact points");
    const char *at = text;
    for (size_t i = 0; i < count; ++i) {
        const char *end = strchrnul(at, ',');
        cqlring_bytes part = cqr_trim(at, end);
        const char *wrong = parse_point(part, port, &points[i]);
        if (wrong != NULL) {
            cqr_mem_free(points);
            return cqr_error(error, CQLRING_INVALID, "contact point %zu, \"%.*s\": %s", i + 1,
                             part.size < 100 ? (int)part.size : 100, (const char *)part.data, wrong);
        }
        at = end + 1;
    }
    *out = points;
    *out_count = (uint32_t)count;
    return CQLRING_OK;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static bool is_known(const struct resolution *out, uint32_t from, const struct address *address)
{
    for (uint32_t i = from; i < out->count; ++i) {
        if (cqr_address_equal(&out->addresses[i].address, address))
            return true;
    }
    return false;
}

static void add_address(struct resolution *out, uint32_t point, const struct address *address)
{
    if (out->count < ADDRESSES_MAX)
        out->addresses[out->count++] = (struct resolved_address){.address = *address, .point = point};
}

static bool address_of(const struct addrinfo *info, uint16_t port, struct address *address)
{
    if (info->ai_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)info->ai_addr;
        return cqr_address_from_bytes(address, &four->sin_addr, 4, port);
    }
    if (info->ai_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)info->ai_addr;
    if (!cqr_address_from_bytes(address, &six->sin6_addr, 16, port))
        return false;
    if (address->storage.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&address->storage)->sin6_scope_id = six->sin6_scope_id;
    return true;
}

static void note_failure(struct resolution *out, const char *what, const char *why)
{
    size_t used = strlen(out->failures);
    (void)snprintf(out->failures + used, sizeof out->failures - used, "%s%s: %s", used > 0 ? "; " : "", what, why);
}

static void note_name(struct resolution *out, const struct contact_point *point, uint32_t index, const char *why)
{
    char what[sizeof point->host + 40];
    snprintf(what, sizeof what, "contact point %u, \"%s\"", index + 1, point->host);
    note_failure(out, what, why);
}

/* All addresses of a name: any one of them may be the one that answers (RC-21). */
static void resolve_name(const struct contact_point *point, uint32_t index, struct resolution *out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int result = getaddrinfo(point->host, NULL, &hints, &list);
    if (result != 0) {
        note_name(out, point, index, gai_strerror(result));
        return;
    }
    uint32_t from = out->count;
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next) {
        struct address address;
        if (address_of(info, point->port, &address) && !is_known(out, from, &address))
            add_address(out, index, &address);
    }
    freeaddrinfo(list);
}

/* why NULL: names are looked up. */
static cqlring_status resolve_all(const struct contact_point *points, uint32_t count, const char *why, struct resolution *out)
{
    *out = (struct resolution){.count = 0};
    out->addresses = cqr_mem_array(ADDRESSES_MAX, sizeof *out->addresses);
    if (out->addresses == NULL)
        return CQLRING_NO_MEMORY;
    for (uint32_t i = 0; i < count; ++i) {
        struct address address;
        if (cqr_address_from_literal(&address, points[i].host, points[i].port))
            add_address(out, i, &address);
        else if (why == NULL)
            resolve_name(&points[i], i, out);
        else
            note_name(out, &points[i], i, why);
    }
    return CQLRING_OK;
}

cqlring_status cqr_resolve(const struct contact_point *points, uint32_t count, struct resolution *out)
{
    return resolve_all(points, count, NULL, out);
}

cqlring_status cqr_resolve_literals(const struct contact_point *points, uint32_t count, const char *why, struct resolution *out)
{
    return resolve_all(points, count, why, out);
}

/* --- on a thread -------------------------------------------------------------------------------------------------- */

/* Everything that the thread touches, so that nobody has to wait for it. */
struct task {
    struct contact_point *points;
    uint32_t count;
    struct resolution resolution;
    void (*done)(struct resolution *resolution, void *context);
    void *context;
};

static void task_free(struct task *task)
{
    cqr_mem_free(task->points);
    cqr_mem_free(task);
}

static struct task *task_make(const struct contact_point *points, uint32_t count)
{
    struct task *task = cqr_mem_zalloc(sizeof *task);
    if (task == NULL)
        return NULL;
    task->points = cqr_mem_array(count, sizeof *points);
    if (task->points == NULL) {
        task_free(task);
        return NULL;
    }
    memcpy(task->points, points, count * sizeof *points);
    task->count = count;
    return task;
}

static void task_run(struct task *task)
{
    if (cqr_resolve(task->points, task->count, &task->resolution) != CQLRING_OK)
        note_failure(&task->resolution, "contact points", cqlring_status_text(CQLRING_NO_MEMORY));
    /* Nothing of ours is left when done is called: whoever it tells may count what is left. */
    struct resolution resolution = task->resolution;
    void (*done)(struct resolution *, void *) = task->done;
    void *to = task->context;
    task_free(task);
    done(&resolution, to);
}

static void *resolver_main(void *context)
{
    task_run(context);
    return NULL;
}

bool cqr_contact_is_name(const struct contact_point *point)
{
    struct address literal;
    return !cqr_address_from_literal(&literal, point->host, point->port);
}

bool cqr_contacts_have_names(const struct contact_point *points, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i)
        if (cqr_contact_is_name(&points[i]))
            return true;
    return false;
}

cqlring_status cqr_resolve_start(const struct contact_point *points, uint32_t count, void (*done)(struct resolution *resolution, void *context), void *context)
{
    struct task *task = task_make(points, count);
    if (task == NULL)
        return CQLRING_NO_MEMORY;
    task->done = done;
    task->context = context;
    if (!cqr_contacts_have_names(points, count)) {
        task_run(task);
        return CQLRING_OK;
    }
    pthread_t thread;
    if (cqr_thread_start(&thread, "cqlring-dns", -1, resolver_main, task) != 0) {
        task_free(task);
        return CQLRING_NO_MEMORY;
    }
    (void)pthread_detach(thread);
    return CQLRING_OK;
}
