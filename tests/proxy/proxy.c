/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cql/frame.h"
#include "serialize/buf.h"
#include "serialize/compress.h"
#include "wire.h"

enum { PAIRS_MAX = 128, FAULTS_MAX = 16, STREAMS = 1 << 15, READ_SIZE = 64 << 10, REORDER_US = 5000, QUIET_US = 20000, IDLE_LOOK_US = 5000, LIES = 5 };
enum { DRIVER, NODE };

/* An EXECUTE under way. */
struct slot {
    uint64_t key_1; /* + 1; 0: none */
    int8_t strike;  /* what becomes of its reply; -1: nothing */
    uint8_t detail;
    bool is_prepare; /* no row's; it is not idle who waits for one */
};

struct held { /* a reply that waits */
    struct held *next;
    int64_t due_us;
    size_t size;
    uint8_t data[];
};

enum pair_state {
    PAIR_OPEN,
    PAIR_DEAF,  /* half-open: the driver's bytes are read and go nowhere */
    PAIR_RESETTING, /* the same, until none has come for a while: then a reset. What was passed before still goes out */
    PAIR_ENDING /* the same, and the driver has been told: until it closes */
};

struct pair {
    struct proxy *proxy;
    enum pair_state state;
    int fds[2]; /* DRIVER, NODE; -1: closed */
    struct wire wires[2];
    uint8_t version;
    bool lz4, startup_sent, ready, registered, struck, told;
    bool poisoned; /* the driver cannot believe what comes now: none of it counts as answered */
    int16_t startup_stream;
    int64_t reset_us;       /* when, if nothing else comes */
    uint32_t under_way, preparing;
    struct slot *slots;
    struct held *late;      /* by due time */
    struct held *reordered; /* newest first */
    uint32_t reorder_left;
};

struct armed {
    struct proxy_fault fault;
    uint64_t struck, next; /* the EXECUTE it strikes, or the first one after it that nothing else strikes */
};

struct proxy {
    pthread_mutex_t lock; /* all below; held but for the wait */
    pthread_t thread;
    int listener, wake;
    uint16_t port;
    bool stopping, split, working;
    struct sockaddr_in target;
    int64_t refuse_until_us;
    int64_t idle_since_us, idle_base_us, idle_stalled_us; /* since when; when it was first looked at (0: not yet), and stalled_us then */
    struct pair *pairs[PAIRS_MAX];
    uint32_t pair_count, fault_count, storm_left;
    struct armed faults[FAULTS_MAX];
    uint64_t seen; /* EXECUTEs since the faults were set */
    struct proxy_counts counts;
    uint64_t keys;
    uint32_t *hits, *executes; /* by key */
};

static const char *const names[PROXY_KINDS] = {
    [PROXY_DROP_DELIVERED] = "dropped after delivery",
    [PROXY_CUT_REQUEST] = "cut inside a request",
    [PROXY_CUT_REPLY] = "cut inside a reply",
    [PROXY_RESET] = "reset",
    [PROXY_HALF_OPEN] = "half-open",
    [PROXY_REFUSE] = "refused for a while",
    [PROXY_OVERLOADED] = "overloaded",
    [PROXY_UNPREPARED] = "unprepared storms",
    [PROXY_LIE] = "lengths that lie",
    [PROXY_SPLIT] = "split at every byte",
    [PROXY_LATE] = "late replies",
    [PROXY_TWICE] = "replies twice",
    [PROXY_REORDER] = "replies out of order",
    [PROXY_UNKNOWN_STREAM] = "unknown streams",
};

const char *proxy_kind_name(enum proxy_kind kind)
{
    return names[kind];
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- rows under way ---- */

static void hit(struct proxy *proxy, const struct slot *slot)
{
    proxy->counts.hits++;
    if (slot->key_1 - 1 < proxy->keys)
        proxy->hits[slot->key_1 - 1]++;
}

/* How long the threads of this process have waited for a processor so far, all together: that is nobody's idleness. */
static int64_t stalled_us(void)
{
    int64_t sum_ns = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300];
        int64_t ran = 0, waited = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
        FILE *file = task->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (file != NULL && fscanf(file, "%" SCNd64 " %" SCNd64, &ran, &waited) == 2)
            sum_ns += waited;
        if (file != NULL)
            fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return sum_ns / 1000;
}

/* The first moments are waited out before anything is read from /proc. */
static void idle_look(struct proxy *proxy, int64_t now)
{
    if (proxy->idle_since_us == 0 || now - proxy->idle_since_us < IDLE_LOOK_US)
        return;
    int64_t stalled = stalled_us();
    if (proxy->idle_base_us == 0) {
        proxy->idle_base_us = now;
        proxy->idle_stalled_us = stalled;
    }
    int64_t idle = IDLE_LOOK_US + now - proxy->idle_base_us - (stalled - proxy->idle_stalled_us);
    if (idle > proxy->counts.idle_max_us)
        proxy->counts.idle_max_us = idle;
}

/* Whether it may be said that nothing is under way although it could be: also not as bytes that are still here. */
static void look_for_idleness(struct proxy *proxy)
{
    bool could = false, busy = false;
    for (uint32_t i = 0; i < proxy->pair_count; i++) {
        const struct pair *pair = proxy->pairs[i];
        if (pair->state != PAIR_OPEN || !pair->ready || pair->registered)
            continue;
        could = true;
        busy = busy || pair->under_way + pair->preparing > 0 || bytes_size(&pair->wires[DRIVER].out) + bytes_size(&pair->wires[DRIVER].raw) > 0;
    }
    int64_t now = now_us();
    idle_look(proxy, now);
    if (!proxy->working || !could || busy)
        proxy->idle_since_us = proxy->idle_base_us = 0;
    else if (proxy->idle_since_us == 0)
        proxy->idle_since_us = now;
}

static void slot_clear(struct pair *pair, struct slot *slot)
{
    pair->preparing -= slot->is_prepare;
    pair->under_way -= slot->key_1 != 0;
    *slot = (struct slot){.strike = -1};
}

/* Whatever is under way on this connection will not be answered as it should. */
static void hit_all(struct pair *pair)
{
    for (uint32_t i = 0; i < STREAMS && pair->under_way > 0; i++)
        if (pair->slots[i].key_1 != 0) {
            hit(pair->proxy, &pair->slots[i]);
            slot_clear(pair, &pair->slots[i]);
        }
}

/* ---- pairs ---- */

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void held_free(struct held *held)
{
    while (held != NULL) {
        struct held *next = held->next;
        free(held);
        held = next;
    }
}

static void pair_close(struct proxy *proxy, uint32_t index)
{
    struct pair *pair = proxy->pairs[index];
    if (pair->struck)
        proxy->counts.ended++;
    else if (pair->under_way > 0)
        proxy->counts.unexplained++;
    hit_all(pair);
    fd_close(&pair->fds[DRIVER]);
    fd_close(&pair->fds[NODE]);
    wire_fini(&pair->wires[DRIVER]);
    wire_fini(&pair->wires[NODE]);
    held_free(pair->late);
    held_free(pair->reordered);
    free(pair->slots);
    free(pair);
    proxy->pairs[index] = proxy->pairs[--proxy->pair_count];
}

/* The driver gets what is on its way to it and then the end; what it still sends is read, and the connection is at its end
   when it closes. */
static void pair_end(struct pair *pair)
{
    pair->struck = true;
    pair->state = PAIR_ENDING;
}

static void pair_open(struct proxy *proxy)
{
    int driver = accept4(proxy->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (driver < 0)
        return;
    int node = proxy->pair_count < PAIRS_MAX ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (node < 0 || connect(node, (const struct sockaddr *)&proxy->target, sizeof proxy->target) != 0) {
        fd_close(&node);
        close(driver);
        return;
    }
    (void)fcntl(node, F_SETFL, O_NONBLOCK);
    (void)setsockopt(node, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(driver, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct pair *pair = calloc(1, sizeof *pair);
    struct slot *slots = calloc(STREAMS, sizeof *slots);
    if (pair == NULL || slots == NULL)
        abort();
    pair->proxy = proxy;
    pair->fds[DRIVER] = driver;
    pair->fds[NODE] = node;
    pair->slots = slots;
    proxy->pairs[proxy->pair_count++] = pair;
    proxy->counts.connections++;
}

/* ---- replies ---- */

static void reply_pass(struct pair *pair, const uint8_t *envelope, size_t size)
{
    struct slot *slot = &pair->slots[cqr_load_u16(envelope + 2) % STREAMS];
    if (cqr_load_u16(envelope + 2) < STREAMS) {
        if (pair->poisoned && slot->key_1 != 0)
            hit(pair->proxy, slot);
        slot_clear(pair, slot);
    }
    wire_put(&pair->wires[DRIVER], envelope, size);
    pair->proxy->counts.replies++;
}

static void held_put(struct held **list, const uint8_t *envelope, size_t size, int64_t due_us)
{
    struct held *held = malloc(sizeof *held + size);
    if (held == NULL)
        abort();
    held->due_us = due_us;
    held->size = size;
    memcpy(held->data, envelope, size);
    while (*list != NULL && (*list)->due_us < due_us)
        list = &(*list)->next;
    held->next = *list;
    *list = held;
}

static void held_pass(struct pair *pair, struct held **list)
{
    struct held *held = *list;
    *list = held->next;
    reply_pass(pair, held->data, held->size);
    free(held);
}

/* Sums are right, lengths are not. */
static void lie(struct pair *pair, uint8_t *envelope, size_t size, uint32_t which)
{
    struct wire *wire = &pair->wires[DRIVER];
    uint32_t body = (uint32_t)size - PROTO_HEADER_SIZE;
    if (!wire->framed)
        which = 1;
    if (which < 3)
        cqr_store_u32(envelope + 5, which == 0 ? body + 1000 : which == 1 ? body - 2 : UINT32_C(0x7FFFFFF0));
    wire_seal(wire);
    if (which < 3)
        wire_put(wire, envelope, size);
    else
        wire_put_lying_segment(wire, envelope, size, which == 3 ? size + 7 : size - 1);
    wire_seal(wire);
}

static void reply_strike(struct pair *pair, struct slot *slot, uint8_t *envelope, size_t size)
{
    struct wire *wire = &pair->wires[DRIVER];
    uint8_t nobody[PROTO_HEADER_SIZE + 4];
    int64_t now = now_us();
    switch (slot->strike) {
    case PROXY_DROP_DELIVERED: pair_end(pair); break;
    case PROXY_CUT_REPLY:
        wire_seal(wire);
        wire_put(wire, envelope, size);
        wire_seal(wire);
        wire->out.to -= size / 2 + 1;
        pair_end(pair);
        break;
    case PROXY_RESET:
        pair->struck = true;
        pair->state = PAIR_RESETTING;
        pair->reset_us = now + QUIET_US;
        break;
    case PROXY_LIE:
        pair->poisoned = true;
        lie(pair, envelope, size, slot->detail);
        break;
    case PROXY_LATE: held_put(&pair->late, envelope, size, now + (int64_t)slot->detail * 10000); break;
    case PROXY_TWICE:
        reply_pass(pair, envelope, size);
        wire_put(wire, envelope, size);
        pair->poisoned = true;
        break;
    case PROXY_UNKNOWN_STREAM:
        memcpy(nobody, (uint8_t[]){envelope[0], 0, 0x7F, 0xFE, OPCODE_RESULT, 0, 0, 0, 4, 0, 0, 0, RESULT_VOID}, sizeof nobody);
        wire_put(wire, nobody, sizeof nobody);
        pair->poisoned = true;
        reply_pass(pair, envelope, size);
        break;
    case PROXY_REORDER:
        if (pair->reordered == NULL)
            pair->reorder_left = slot->detail;
        held_put(&pair->reordered, envelope, size, now + REORDER_US);
        break;
    default: reply_pass(pair, envelope, size);
    }
}

static void reply_take(struct pair *pair, uint8_t *envelope, size_t size)
{
    uint16_t stream = cqr_load_u16(envelope + 2);
    struct slot *slot = &pair->slots[stream % STREAMS];
    if (stream < STREAMS && slot->key_1 != 0 && slot->strike >= 0)
        reply_strike(pair, slot, envelope, size);
    else if (pair->reordered != NULL && stream < STREAMS && slot->key_1 != 0)
        held_put(&pair->reordered, envelope, size, pair->reordered->due_us);
    else
        reply_pass(pair, envelope, size);
    if (pair->state == PAIR_OPEN && pair->reordered != NULL && --pair->reorder_left == 0) /* behind a reply that was cut nothing arrives */
        while (pair->reordered != NULL)
            held_pass(pair, &pair->reordered);
    if (!pair->startup_sent || (int16_t)stream != pair->startup_stream)
        pair->ready = pair->ready || envelope[4] == OPCODE_AUTH_SUCCESS;
    else if (envelope[4] == OPCODE_READY || envelope[4] == OPCODE_AUTHENTICATE) {
        pair->startup_sent = false;
        pair->ready = envelope[4] == OPCODE_READY;
        for (int side = 0; side < 2; side++) {
            pair->wires[side].framed = pair->version >= 5;
            pair->wires[side].lz4 = pair->lz4;
        }
    }
}

/* ---- requests ---- */

static void answer_error(struct pair *pair, const uint8_t *envelope, int32_t code, const char *text, cqlring_bytes id)
{
    uint8_t answer[512];
    size_t length = strlen(text), at = PROTO_HEADER_SIZE;
    memcpy(answer, (uint8_t[]){(uint8_t)(envelope[0] | 0x80), 0, envelope[2], envelope[3], OPCODE_ERROR}, 5);
    cqr_store_u32(answer + at, (uint32_t)code);
    cqr_store_u16(answer + at + 4, (uint16_t)length);
    memcpy(answer + at + 6, text, length);
    at += 6 + length;
    if (id.size > 0 && id.size < 256) {
        cqr_store_u16(answer + at, (uint16_t)id.size);
        memcpy(answer + at + 2, id.data, (size_t)id.size);
        at += 2 + (size_t)id.size;
    }
    cqr_store_u32(answer + 5, (uint32_t)(at - PROTO_HEADER_SIZE));
    wire_put(&pair->wires[DRIVER], answer, at);
}

/* The statement's id and the first value of an EXECUTE. */
static bool execute_read(const struct pair *pair, const uint8_t *envelope, size_t size, cqlring_bytes *id, uint64_t *key)
{
    static _Thread_local uint8_t plain[1 << 20];
    const uint8_t *body = envelope + PROTO_HEADER_SIZE;
    size_t left = size - PROTO_HEADER_SIZE, at = 0;
    uint32_t plain_size = 0;
    if (pair->version < 5 && (envelope[1] & 1) != 0) {
        if (cqr_lz4_body_size(body, (uint32_t)left, sizeof plain, &plain_size) != CQLRING_OK ||
            cqr_lz4_decompress_body(body, (uint32_t)left, plain, plain_size) != CQLRING_OK)
            return false;
        body = plain;
        left = plain_size;
    }
    for (int part = 0; part < (pair->version >= 5 ? 2 : 1); part++) { /* the id; v5: that of the result's metadata too */
        if (at + 2 > left || at + 2 + cqr_load_u16(body + at) > left)
            return false;
        if (part == 0)
            *id = (cqlring_bytes){body + at + 2, cqr_load_u16(body + at)};
        at += 2 + (size_t)cqr_load_u16(body + at);
    }
    at += pair->version >= 5 ? 6u : 3u; /* consistency, flags */
    if (at + 2 + 4 + 8 > left || cqr_load_u16(body + at) == 0 || cqr_load_u32(body + at + 2) != 8)
        return false;
    *key = cqr_load_u64(body + at + 6);
    return true;
}

/* -1: none. */
static int fault_that_strikes(struct proxy *proxy)
{
    for (uint32_t i = 0; i < proxy->fault_count; i++) {
        struct armed *armed = &proxy->faults[i];
        if (proxy->seen >= armed->next && (armed->fault.times == 0 || armed->struck < armed->fault.times)) {
            armed->struck++;
            armed->next = proxy->seen + armed->fault.every;
            return (int)i;
        }
    }
    return -1;
}

static void refuse(struct proxy *proxy, uint32_t ms)
{
    proxy->refuse_until_us = now_us() + (int64_t)ms * 1000;
    fd_close(&proxy->listener);
    for (uint32_t i = 0; i < proxy->pair_count; i++)
        pair_end(proxy->pairs[i]);
}

static void execute_take(struct pair *pair, const uint8_t *envelope, size_t size)
{
    struct proxy *proxy = pair->proxy;
    uint16_t stream = cqr_load_u16(envelope + 2);
    uint64_t key = 0;
    cqlring_bytes id = {0};
    if (stream >= STREAMS || !execute_read(pair, envelope, size, &id, &key)) {
        proxy->counts.malformed = true;
        wire_put(&pair->wires[NODE], envelope, size);
        return;
    }
    struct slot *slot = &pair->slots[stream];
    if (slot->key_1 == 0)
        pair->under_way++;
    else
        proxy->counts.malformed = true; /* the stream was not free */
    *slot = (struct slot){.key_1 = key + 1, .strike = -1};
    proxy->counts.executes++;
    if (proxy->working && key < proxy->keys)
        proxy->executes[key]++;
    if (pair->state != PAIR_OPEN)
        return; /* it goes nowhere: hit when the connection is at its end */
    proxy->seen++;
    bool storm = proxy->storm_left > 0;
    int index = storm ? -1 : fault_that_strikes(proxy);
    const struct proxy_fault *fault = index < 0 ? NULL : &proxy->faults[index].fault;
    if (storm) {
        proxy->storm_left--;
    } else if (fault != NULL) {
        proxy->counts.struck[fault->kind]++;
        if (fault->kind == PROXY_UNPREPARED) {
            storm = true;
            proxy->storm_left = fault->count > 0 ? fault->count - 1 : 0;
        }
        if (fault->kind == PROXY_LIE || fault->kind == PROXY_TWICE || fault->kind == PROXY_UNKNOWN_STREAM)
            pair->struck = true;
    }
    if (storm) {
        answer_error(pair, envelope, ERROR_UNPREPARED, "Prepared query was not found", id);
        hit(proxy, slot);
        slot_clear(pair, slot);
        return;
    }
    if (fault == NULL) {
        wire_put(&pair->wires[NODE], envelope, size);
        return;
    }
    slot->strike = (int8_t)fault->kind;
    slot->detail = (uint8_t)(fault->kind == PROXY_LIE       ? (proxy->counts.struck[PROXY_LIE] - 1) % LIES
                             : fault->kind == PROXY_LATE    ? fault->ms / 10
                             : fault->kind == PROXY_REORDER ? fault->count
                                                            : 0);
    switch (fault->kind) {
    case PROXY_OVERLOADED:
        answer_error(pair, envelope, ERROR_OVERLOADED, "Server is overloaded", (cqlring_bytes){0});
        hit(proxy, slot);
        slot_clear(pair, slot);
        return;
    case PROXY_CUT_REQUEST:
        wire_seal(&pair->wires[NODE]);
        wire_put(&pair->wires[NODE], envelope, size);
        wire_seal(&pair->wires[NODE]);
        pair->wires[NODE].out.to -= size / 2;
        pair_end(pair);
        return;
    case PROXY_HALF_OPEN:
        pair->state = PAIR_DEAF;
        pair->struck = true;
        return;
    case PROXY_REFUSE: refuse(proxy, fault->ms); return;
    case PROXY_SPLIT: proxy->split = true; break;
    case PROXY_LATE: hit(proxy, slot); break;
    default: break;
    }
    wire_put(&pair->wires[NODE], envelope, size);
}

static void request_take(struct pair *pair, const uint8_t *envelope, size_t size)
{
    if (envelope[4] == OPCODE_EXECUTE) {
        execute_take(pair, envelope, size);
        return;
    }
    if (envelope[4] == OPCODE_STARTUP) {
        static const char word[] = "COMPRESSION";
        pair->startup_sent = true;
        pair->startup_stream = (int16_t)cqr_load_u16(envelope + 2);
        pair->version = envelope[0] & 0x7F;
        pair->lz4 = memmem(envelope, size, word, sizeof word - 1) != NULL;
    }
    pair->registered = pair->registered || envelope[4] == OPCODE_REGISTER;
    uint16_t stream = cqr_load_u16(envelope + 2);
    if (envelope[4] == OPCODE_PREPARE && stream < STREAMS) {
        pair->preparing += !pair->slots[stream].is_prepare;
        pair->slots[stream] = (struct slot){.strike = -1, .is_prepare = true};
    }
    if (pair->state == PAIR_OPEN)
        wire_put(&pair->wires[NODE], envelope, size);
}

/* ---- bytes ---- */

/* False: the pair is at its end. */
static bool receive(struct pair *pair, int side)
{
    static _Thread_local uint8_t data[READ_SIZE];
    struct wire *wire = &pair->wires[side];
    ssize_t got = recv(pair->fds[side], data, sizeof data, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0 && side == NODE && pair->state != PAIR_OPEN)
        fd_close(&pair->fds[NODE]);
    if (got <= 0)
        return side == NODE && pair->state != PAIR_OPEN;
    bytes_put(&wire->raw, data, (size_t)got);
    const uint8_t *envelope;
    size_t size;
    enum wire_cut cut = WIRE_MORE;
    while ((side == DRIVER || pair->state == PAIR_OPEN) && pair->fds[DRIVER] >= 0 && (cut = wire_next(wire, &envelope, &size)) == WIRE_WHOLE) {
        if (side == DRIVER)
            request_take(pair, envelope, size);
        else
            reply_take(pair, wire->framed ? wire->opened.data + wire->opened.from - size : wire->raw.data + wire->raw.from - size, size);
    }
    if (cut == WIRE_BAD)
        pair->proxy->counts.malformed = true;
    return cut != WIRE_BAD && pair->fds[DRIVER] >= 0;
}

/* False: the pair is at its end. */
static bool flush(struct pair *pair, int side)
{
    struct wire *wire = &pair->wires[side];
    wire_seal(wire);
    while (pair->fds[side] >= 0 && bytes_size(&wire->out) > 0) {
        size_t size = bytes_size(&wire->out), most = pair->proxy->split ? (side == DRIVER ? 1 : 7) : size;
        ssize_t sent = send(pair->fds[side], wire->out.data + wire->out.from, size < most ? size : most, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        bytes_take(&wire->out, (size_t)sent);
    }
    return true;
}

static bool pair_turn(struct pair *pair, short driver, short node)
{
    if (driver != 0 && !receive(pair, DRIVER))
        return false;
    if (node != 0 && pair->fds[NODE] >= 0 && !receive(pair, NODE))
        return false;
    int64_t now = now_us();
    if (pair->state == PAIR_RESETTING && driver != 0)
        pair->reset_us = now + QUIET_US;
    if (pair->state == PAIR_RESETTING && now >= pair->reset_us && bytes_size(&pair->wires[DRIVER].out) == 0) {
        (void)setsockopt(pair->fds[DRIVER], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        return false;
    }
    while (pair->state == PAIR_OPEN && pair->late != NULL && pair->late->due_us <= now)
        held_pass(pair, &pair->late);
    while (pair->state == PAIR_OPEN && pair->reordered != NULL && pair->reordered->due_us <= now)
        held_pass(pair, &pair->reordered);
    if (!flush(pair, NODE) || !flush(pair, DRIVER)) /* also one that is deaf: what was passed before counts as answered */
        return false;
    if (pair->state != PAIR_OPEN && bytes_size(&pair->wires[NODE].out) == 0)
        fd_close(&pair->fds[NODE]);
    if (pair->state == PAIR_ENDING && !pair->told && bytes_size(&pair->wires[DRIVER].out) == 0) {
        pair->told = true;
        (void)shutdown(pair->fds[DRIVER], SHUT_WR);
    }
    return true;
}

/* ---- the thread ---- */

static int listener_open(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 128) != 0 || getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        fd_close(&fd);
    else
        *port = ntohs(at.sin_port);
    return fd;
}

static int time_out_ms(const struct proxy *proxy)
{
    int64_t first = proxy->refuse_until_us > 0 ? proxy->refuse_until_us : INT64_MAX, now = now_us();
    if (proxy->idle_since_us > 0 && proxy->idle_base_us == 0 && proxy->idle_since_us + IDLE_LOOK_US < first)
        first = proxy->idle_since_us + IDLE_LOOK_US;
    for (uint32_t i = 0; i < proxy->pair_count; i++) {
        const struct pair *pair = proxy->pairs[i];
        if (pair->late != NULL && pair->late->due_us < first)
            first = pair->late->due_us;
        if (pair->reordered != NULL && pair->reordered->due_us < first)
            first = pair->reordered->due_us;
        if (pair->state == PAIR_RESETTING && pair->reset_us < first)
            first = pair->reset_us;
    }
    return first == INT64_MAX ? -1 : first <= now ? 0 : (int)((first - now) / 1000 + 1);
}

static void *run(void *context)
{
    struct proxy *proxy = context;
    struct pollfd fds[2 + 2 * PAIRS_MAX];
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->stopping) {
        nfds_t count = 0;
        fds[count++] = (struct pollfd){.fd = proxy->wake, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (uint32_t i = 0; i < proxy->pair_count; i++)
            for (int side = 0; side < 2; side++) {
                const struct pair *pair = proxy->pairs[i];
                bool full = bytes_size(&pair->wires[side].out) > 0;
                fds[count++] = (struct pollfd){.fd = pair->fds[side], .events = (short)(POLLIN | (full ? POLLOUT : 0))};
            }
        int wait = time_out_ms(proxy);
        pthread_mutex_unlock(&proxy->lock);
        (void)poll(fds, count, wait);
        pthread_mutex_lock(&proxy->lock);
        uint64_t ignored;
        if ((fds[0].revents & POLLIN) != 0)
            (void)!read(proxy->wake, &ignored, sizeof ignored);
        for (uint32_t i = proxy->pair_count; i-- > 0;)
            if (!pair_turn(proxy->pairs[i], fds[2 + 2 * i].revents, fds[3 + 2 * i].revents))
                pair_close(proxy, i);
        look_for_idleness(proxy);
        if (proxy->listener >= 0 && (fds[1].revents & POLLIN) != 0)
            pair_open(proxy);
        if (proxy->refuse_until_us > 0 && proxy->refuse_until_us <= now_us() && (proxy->listener = listener_open(&proxy->port)) >= 0)
            proxy->refuse_until_us = 0;
    }
    while (proxy->pair_count > 0)
        pair_close(proxy, 0);
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

/* ---- its face ---- */

struct proxy *proxy_start(const char *address, uint16_t port, uint64_t keys, char *message, size_t message_size)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    uint32_t *hits = calloc(2 * keys + 1, sizeof *hits);
    if (proxy == NULL || hits == NULL)
        abort();
    proxy->hits = hits;
    proxy->executes = hits + keys;
    proxy->keys = keys;
    proxy->target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    proxy->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    proxy->listener = listener_open(&proxy->port);
    if (inet_pton(AF_INET, address, &proxy->target.sin_addr) != 1 || proxy->wake < 0 || proxy->listener < 0) {
        snprintf(message, message_size, "proxy before %s:%u: %s", address, port, proxy->listener < 0 ? strerror(errno) : "not an IPv4 address");
        goto fail;
    }
    pthread_mutex_init(&proxy->lock, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&proxy->thread, NULL, run, proxy);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        return proxy;
    snprintf(message, message_size, "proxy: no thread: %s", strerror(failed));
    pthread_mutex_destroy(&proxy->lock);
fail:
    fd_close(&proxy->listener);
    fd_close(&proxy->wake);
    free(hits);
    free(proxy);
    return NULL;
}

static void change_end(struct proxy *proxy)
{
    uint64_t one = 1;
    (void)!write(proxy->wake, &one, sizeof one);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_stop(struct proxy *proxy)
{
    if (proxy == NULL)
        return;
    pthread_mutex_lock(&proxy->lock);
    proxy->stopping = true;
    change_end(proxy);
    pthread_join(proxy->thread, NULL);
    fd_close(&proxy->listener);
    fd_close(&proxy->wake);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy->hits);
    free(proxy);
}

uint16_t proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

void proxy_fault(struct proxy *proxy, const struct proxy_fault *fault)
{
    pthread_mutex_lock(&proxy->lock);
    if (proxy->fault_count == FAULTS_MAX || fault->every == 0)
        abort();
    proxy->faults[proxy->fault_count++] = (struct armed){.fault = *fault, .next = fault->after + fault->every};
    change_end(proxy);
}

void proxy_calm(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->fault_count = proxy->storm_left = 0;
    proxy->seen = 0;
    proxy->split = false;
    for (uint32_t i = 0; i < proxy->pair_count; i++)
        hit_all(proxy->pairs[i]);
    change_end(proxy);
}

void proxy_forget(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->counts = (struct proxy_counts){0};
    memset(proxy->hits, 0, 2 * proxy->keys * sizeof *proxy->hits);
    change_end(proxy);
}

void proxy_counts(struct proxy *proxy, struct proxy_counts *counts)
{
    pthread_mutex_lock(&proxy->lock);
    *counts = proxy->counts;
    counts->open = proxy->pair_count;
    change_end(proxy);
}

void proxy_work(struct proxy *proxy, bool begins)
{
    pthread_mutex_lock(&proxy->lock);
    look_for_idleness(proxy);
    proxy->working = begins;
    proxy->idle_since_us = proxy->idle_base_us = 0;
    change_end(proxy);
}

uint32_t proxy_hits(struct proxy *proxy, uint64_t key)
{
    pthread_mutex_lock(&proxy->lock);
    uint32_t hits = key < proxy->keys ? proxy->hits[key] : 0;
    change_end(proxy);
    return hits;
}

uint32_t proxy_seen(struct proxy *proxy, uint64_t key)
{
    pthread_mutex_lock(&proxy->lock);
    uint32_t seen = key < proxy->keys ? proxy->executes[key] : 0;
    change_end(proxy);
    return seen;
}
