/* SPDX-License-Identifier: Apache-2.0 */

/* The queue: many threads submit, one reaps, with or without a descriptor; and every way in which it ends. */

#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "cqlring_values.h"
#include "serialize/mem.h"
#include "watch.h"

enum { LONG_US = 20000000 };

static cqlring_prepared *insert;

static cqlring_queue *open_queue(struct flow *flow, uint32_t capacity, uint64_t bytes_max)
{
    cqlring_queue_options options = {.struct_size = sizeof options, .session = flow->session, .capacity = capacity, .bytes_max = bytes_max};
    cqlring_queue *queue = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_queue_open(&options, &queue, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    return queue;
}

static void up(struct flow *flow)
{
    flow_up(flow);
    insert = flow_prepare(flow, FLOW_INSERT);
}

static void down(struct flow *flow)
{
    cqlring_prepared_release(insert);
    flow_close(flow);
}

/* A row with this key and a value of so many bytes; the memory is the caller's. */
struct one {
    uint64_t key;
    cqlring_bytes values[2];
};
static cqlring_request request_of(struct one *one, uint64_t key, cqlring_bytes value)
{
    one->key = htobe64(key);
    one->values[0] = (cqlring_bytes){&one->key, 8};
    one->values[1] = value;
    return (cqlring_request){.prepared = insert, .values = one->values, .value_count = 2, .tag = key};
}

static uint32_t submit(cqlring_queue *queue, uint64_t first, uint32_t count)
{
    uint32_t accepted = 0;
    cqlring_error error;
    struct one ones[64];
    cqlring_request requests[64];
    ck_assert_uint_le(count, 64);
    for (uint32_t i = 0; i < count; i++)
        requests[i] = request_of(&ones[i], first + i, (cqlring_bytes){"abc", 3});
    cqlring_status status = cqlring_queue_submit(queue, requests, count, &accepted, &error);
    ck_assert_msg(status == CQLRING_OK, "%s", error.message);
    return accepted;
}

/* Exactly so many completions, all of this status. */
static void reap_all(cqlring_queue *queue, uint32_t count, cqlring_status wanted)
{
    cqlring_completion completions[64];
    for (uint32_t reaped = 0; reaped < count;) {
        cqlring_status status = CQLRING_OK;
        uint32_t some = cqlring_queue_reap(queue, completions, count - reaped < 64 ? count - reaped : 64, 1, LONG_US, &status);
        ck_assert_int_eq(status, CQLRING_OK);
        ck_assert_uint_gt(some, 0);
        for (uint32_t i = 0; i < some; i++)
            ck_assert_msg(completions[i].status == wanted, "%s", completions[i].error != NULL ? completions[i].error->message : "OK");
        cqlring_completions_release(completions, some);
        reaped += some;
    }
}

static void ck_assert_closed(cqlring_queue *queue)
{
    cqlring_completion completion;
    cqlring_status status = CQLRING_OK;
    ck_assert_uint_eq(cqlring_queue_reap(queue, &completion, 1, 1, LONG_US, &status), 0);
    ck_assert_int_eq(status, CQLRING_CLOSED);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    return poll(&watched, 1, timeout_ms) == 1;
}

/* ---- many submit, one reaps ---- */

enum { THREADS = 4, EACH = 3000, SMALL = 256 };

struct submitter {
    cqlring_queue *queue;
    uint64_t first;
    pthread_t thread;
};

static void *submit_many(void *context)
{
    struct submitter *submitter = context;
    for (uint64_t done = 0; done < EACH;) {
        uint32_t left = (uint32_t)(EACH - done), taken = submit(submitter->queue, submitter->first + done, left < 8 ? left : 8);
        done += taken;
        if (taken == 0)
            sched_yield();
    }
    return NULL;
}

START_TEST(many_threads_submit_and_one_reaps_by_the_descriptor)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, SMALL, 0);
    int fd = cqlring_queue_fd(queue), turns = cqlring_runtime_fd(flow.runtime);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(cqlring_queue_fd(queue), fd);
    ck_assert(!is_readable(fd, 0));
    struct submitter submitters[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.queue = queue, .first = i * EACH};
        ck_assert_int_eq(pthread_create(&submitters[i].thread, NULL, submit_many, &submitters[i]), 0);
    }
    uint8_t *seen = calloc(THREADS, EACH);
    cqlring_completion completions[32];
    for (uint32_t reaped = 0; reaped < THREADS * EACH;) {
        struct pollfd watched[2] = {{.fd = fd, .events = POLLIN}, {.fd = turns, .events = POLLIN}};
        ck_assert_msg(poll(watched, turns >= 0 ? 2 : 1, 20000) > 0, "asleep at %u, though there is something to reap", reaped);
        if (turns >= 0 && watched[1].revents != 0)
            (void)cqlring_runtime_turn(flow.runtime, 0);
        if (watched[0].revents == 0)
            continue;
        uint32_t count;
        do {
            count = cqlring_queue_reap(queue, completions, 32, 0, 0, NULL);
            for (uint32_t i = 0; i < count; i++) {
                if (completions[i].status != CQLRING_OK || completions[i].tag >= THREADS * EACH || seen[completions[i].tag]++ != 0)
                    ck_abort_msg("tag %lu: %s, seen %u times", (unsigned long)completions[i].tag, cqlring_status_name((cqlring_status)completions[i].status),
                                 seen[completions[i].tag]);
            }
            cqlring_completions_release(completions, count);
            reaped += count;
        } while (count == 32);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(submitters[i].thread, NULL);
    free(seen);
    ck_assert_uint_eq(cqlring_queue_low_water(queue), THREADS * EACH);
    ck_assert_uint_eq(cqlring_queue_room(queue), SMALL);
    ck_assert(!is_readable(fd, 0));
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), THREADS * EACH);
    cqlring_queue_close(queue);
    ck_assert(is_readable(fd, 1000));
    ck_assert_closed(queue);
    ck_assert(is_readable(fd, 0)); /* for ever */
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

START_TEST(a_reap_waits_for_as_many_as_it_wants)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 16, 0);
    cqlring_completion completions[16];
    cqlring_status status;
    ck_assert_uint_eq(cqlring_queue_reap(queue, completions, 16, 1, 0, &status), 0);
    ck_assert_int_eq(status, CQLRING_TIMEOUT);
    node_set_delay(flow.node, NODE_ALL, 2000, 2000);
    ck_assert_uint_eq(submit(queue, 0, 10), 10);
    uint32_t count = cqlring_queue_reap(queue, completions, 16, 10, LONG_US, &status);
    ck_assert_uint_eq(count, 10);
    ck_assert_int_eq(status, CQLRING_OK);
    cqlring_completions_release(completions, count);
    /* more than there will be: those that came, and that it was not enough */
    ck_assert_uint_eq(submit(queue, 10, 3), 3);
    uint32_t got = 0;
    while (got < 3) {
        count = cqlring_queue_reap(queue, completions, 16, 16, 200000, &status);
        ck_assert_int_eq(status, CQLRING_TIMEOUT);
        cqlring_completions_release(completions, count);
        got += count;
    }
    ck_assert_uint_eq(cqlring_queue_room(queue), 16);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

/* ---- full ---- */

START_TEST(it_is_full_by_capacity_and_by_bytes_until_it_is_reaped)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 4, 0);
    uint8_t *at = NULL;
    cqlring_error error;
    ck_assert_uint_eq(submit(queue, 0, 8), 4);
    ck_assert_uint_eq(cqlring_queue_room(queue), 0);
    ck_assert_uint_eq(submit(queue, 4, 1), 0);
    ck_assert_int_eq(cqlring_queue_reserve(queue, 8, &at, &error), CQLRING_FULL);
    ck_assert_ptr_nonnull(strstr(error.message, "4 requests"));
    reap_all(queue, 4, CQLRING_OK);
    ck_assert_uint_eq(cqlring_queue_room(queue), 4);
    cqlring_queue_release(queue);

    queue = open_queue(&flow, 1000, 10000);
    static uint8_t large[4000];
    struct one ones[8];
    cqlring_request requests[8];
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 8; i++)
        requests[i] = request_of(&ones[i], 100 + i, (cqlring_bytes){large, sizeof large});
    flow_ok(cqlring_queue_submit(queue, requests, 8, &accepted, NULL));
    ck_assert_uint_eq(accepted, 2);
    reap_all(queue, 2, CQLRING_OK);
    /* one alone may be larger than all of bytes_max */
    static uint8_t huge[20000];
    requests[0] = request_of(&ones[0], 200, (cqlring_bytes){huge, sizeof huge});
    flow_ok(cqlring_queue_submit(queue, requests, 2, &accepted, NULL));
    ck_assert_uint_eq(accepted, 1);
    reap_all(queue, 1, CQLRING_OK);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

/* ---- in the middle of many ---- */

enum { MANY = 100 };

/* Those before it are taken, each has its completion, and of the others nothing stays charged. */
static void ck_assert_taken(cqlring_queue *queue, uint32_t accepted, uint32_t capacity, uint32_t bytes_max)
{
    cqlring_completion completions[MANY];
    uint8_t seen[MANY] = {0}, *first = NULL, *rest = NULL;
    for (uint32_t reaped = 0, some; reaped < accepted; reaped += some) {
        some = cqlring_queue_reap(queue, completions, MANY, accepted - reaped, LONG_US, NULL);
        ck_assert_uint_gt(some, 0);
        for (uint32_t i = 0; i < some; i++)
            ck_assert(completions[i].tag < accepted && seen[completions[i].tag]++ == 0);
        cqlring_completions_release(completions, some);
    }
    ck_assert_uint_eq(cqlring_queue_room(queue), capacity);
    flow_ok(cqlring_queue_reserve(queue, 2, &first, NULL));
    flow_ok(cqlring_queue_reserve(queue, bytes_max - 2, &rest, NULL));
    flow_ok(cqlring_queue_commit(queue, first, NULL, 0, NULL));
    flow_ok(cqlring_queue_commit(queue, rest, NULL, 0, NULL));
}

/* Requests are handed over several at a time: what befalls one of them is not another's. */
START_TEST(what_goes_wrong_in_the_middle_leaves_those_before_it_taken)
{
    struct flow flow;
    up(&flow);
    struct one ones[MANY];
    cqlring_request requests[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        requests[i] = request_of(&ones[i], i, (cqlring_bytes){"abc", 3});
    static const uint32_t places[] = {0, 1, 31, 32, 33, 63, 64, 99};
    cqlring_queue *queue = open_queue(&flow, MANY, 100000);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        uint32_t at = places[i], accepted = MANY + 1;
        cqlring_error error = {0};
        requests[at].value_count = 1;
        cqlring_status status = cqlring_queue_submit(queue, requests, MANY, &accepted, &error);
        ck_assert(status == CQLRING_INVALID && error.status == status);
        ck_assert_uint_eq(accepted, at);
        requests[at].value_count = 2;
        ck_assert_taken(queue, at, MANY, 100000);
    }
    for (uint32_t n = 1; n <= 2 * MANY + 1; n += 7) { /* the library's threads may be the ones whom it strikes */
        uint32_t accepted = MANY + 1;
        cqlring_error error = {0};
        cqr_mem_fail_at(n, 0);
        cqlring_status status = cqlring_queue_submit(queue, requests, MANY, &accepted, &error);
        cqr_mem_fail_at(0, 0);
        ck_assert(status == CQLRING_OK ? accepted == MANY : status == CQLRING_NO_MEMORY && error.status == status && accepted <= n / 2);
        ck_assert_taken(queue, accepted, MANY, 100000);
    }
    cqlring_queue_release(queue);
    for (size_t i = 2; i < sizeof places / sizeof places[0]; i++) {
        uint32_t accepted = MANY + 1, bytes_max = 21 * (places[i] + 1); /* [short n], and two values of 8 and 3 bytes */
        queue = open_queue(&flow, places[i], 100000);
        flow_ok(cqlring_queue_submit(queue, requests, MANY, &accepted, NULL));
        ck_assert_uint_eq(accepted, places[i]);
        ck_assert_taken(queue, accepted, places[i], 100000);
        cqlring_queue_release(queue);
        queue = open_queue(&flow, MANY, bytes_max);
        flow_ok(cqlring_queue_submit(queue, requests, MANY, &accepted, NULL));
        ck_assert_uint_eq(accepted, places[i] + 1);
        ck_assert_taken(queue, accepted, MANY, bytes_max);
        cqlring_queue_release(queue);
    }
    down(&flow);
}
END_TEST

/* ---- encoded in place ---- */

static uint32_t encode(uint8_t *at, uint16_t count, int64_t key, uint32_t key_size, const void *value, uint32_t value_size)
{
    uint8_t *begin = at;
    uint16_t n = htobe16(count);
    uint32_t size = htobe32(key_size);
    uint64_t number = htobe64((uint64_t)key);
    memcpy(at, &n, 2), at += 2;
    memcpy(at, &size, 4), at += 4;
    memcpy(at, (uint8_t *)&number + 8 - (key_size < 8 ? key_size : 8), key_size < 8 ? key_size : 8), at += key_size;
    size = htobe32(value_size);
    memcpy(at, &size, 4), at += 4;
    memcpy(at, value, value_size);
    return (uint32_t)(at + value_size - begin);
}

START_TEST(values_encoded_in_place_are_sent_and_counted_from_the_reservation_on)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 4, 100000);
    uint8_t *at[5] = {NULL};
    cqlring_error error;
    cqlring_request request = {.prepared = insert};
    for (int i = 0; i < 4; i++)
        flow_ok(cqlring_queue_reserve(queue, 64, &at[i], &error));
    ck_assert_uint_eq(cqlring_queue_room(queue), 0);
    ck_assert_int_eq(cqlring_queue_reserve(queue, 64, &at[4], &error), CQLRING_FULL);
    ck_assert_uint_eq(submit(queue, 99, 1), 0);
    flow_ok(cqlring_queue_commit(queue, at[0], NULL, 0, &error)); /* given back */
    ck_assert_uint_eq(cqlring_queue_room(queue), 1);
    int64_t allocations = (int64_t)cqr_mem_allocation_count();
    for (int i = 1; i < 4; i++) {
        request.tag = (uint64_t)i;
        flow_ok(cqlring_queue_commit(queue, at[i], &request, encode(at[i], 2, 1000 + i, 8, "xyz", 3), &error));
    }
    reap_all(queue, 3, CQLRING_OK);
    ck_assert_int_le((int64_t)cqr_mem_allocation_count() - allocations, 3 * 2 + 3); /* body and item; blocks of the first time */
    /* a text, whose markers nobody knows here */
    flow_ok(cqlring_queue_reserve(queue, 64, &at[0], &error));
    request = (cqlring_request){.cql = cqlring_text("INSERT INTO ks.t (k, v) VALUES (?, ?)")};
    flow_ok(cqlring_queue_commit(queue, at[0], &request, encode(at[0], 2, 1000, 8, "text", 4), &error));
    reap_all(queue, 1, CQLRING_OK);
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, "SELECT k, v FROM ks.t WHERE k = 1002", NULL, 0, NULL, &result, NULL));
    ck_assert(ask_is(ask_cell(result, 0, 1), "xyz"));
    cqlring_result_release(result);
    flow_ok(ask_text(&flow, "SELECT v FROM ks.t WHERE k = 1000", NULL, 0, NULL, &result, NULL));
    ck_assert(ask_is(ask_cell(result, 0, 0), "text"));
    cqlring_result_release(result);
    /* bytes count at once too */
    uint8_t *large = NULL, *other = NULL;
    flow_ok(cqlring_queue_reserve(queue, 60000, &large, &error));
    ck_assert_int_eq(cqlring_queue_reserve(queue, 60000, &other, &error), CQLRING_FULL);
    flow_ok(cqlring_queue_commit(queue, large, NULL, 0, &error));
    flow_ok(cqlring_queue_reserve(queue, 60000, &other, &error));
    flow_ok(cqlring_queue_commit(queue, other, NULL, 0, &error));
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

/* fr_09, ps_12: what is sent has the number and the sizes that it says; and nothing behind it, which would be read as the time
   stamp and whatever else follows. */
START_TEST(values_encoded_in_place_are_checked)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 2, 0);
    static const struct {
        uint16_t count;
        uint32_t key_size, value_size;
        int32_t more;
        const char *says;
    } wrong[] = {{2, 8, 3, 1, "1 bytes follow the last of 2"}, {2, 8, 3, 4, "4 bytes follow"},   {2, 8, 3, 16, "16 bytes follow"},
                 {2, 8, 3, -1, "end within value 1 of 2"},     {2, 8, 3, -7, "end within value"}, {2, 8, 3, -20, "begin with their number"},
                 {3, 8, 3, 0, "end within value 2 of 3"},      {1, 8, 3, 0, "follow the last of 1"}, {2, 4, 3, 0, "column \"k\" (bigint)"},
                 {65535, 8, 3, 0, "end within value 2 of 65535"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cqlring_request request = {.prepared = insert};
        cqlring_error error = {0};
        uint8_t *at = NULL;
        flow_ok(cqlring_queue_reserve(queue, 64, &at, &error));
        memset(at, 0, 64);
        uint32_t size = encode(at, wrong[i].count, 7, wrong[i].key_size, "abc", wrong[i].value_size);
        cqlring_status status = cqlring_queue_commit(queue, at, &request, (uint32_t)((int32_t)size + wrong[i].more), &error);
        ck_assert_msg(status == CQLRING_INVALID || status == CQLRING_TYPE, "%zu: %s", i, cqlring_status_name(status));
        ck_assert_msg(strstr(error.message, wrong[i].says) != NULL, "%zu: \"%s\" does not say \"%s\"", i, error.message, wrong[i].says);
        ck_assert_uint_eq(cqlring_queue_room(queue), 2); /* whatever commit answers, the room is gone */
    }
    cqlring_error error = {0};
    uint8_t *at = NULL;
    cqlring_request request = {.prepared = insert};
    flow_ok(cqlring_queue_reserve(queue, 16, &at, &error));
    ck_assert_int_eq(cqlring_queue_commit(queue, at, &request, 17, &error), CQLRING_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "16 bytes reserved, not 17"));
    flow_ok(cqlring_queue_reserve(queue, 16, &at, &error));
    ck_assert_int_eq(cqlring_queue_commit(queue, at, NULL, 16, &error), CQLRING_INVALID);
    cqlring_batch_child child = {.prepared = insert};
    cqlring_batch batch = {.children = &child, .count = 1};
    request = (cqlring_request){.batch = &batch};
    flow_ok(cqlring_queue_reserve(queue, 16, &at, &error));
    ck_assert_int_eq(cqlring_queue_commit(queue, at, &request, 16, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_queue_reserve(queue, 1, &at, &error), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_queue_reserve(queue, UINT32_MAX, &at, &error), CQLRING_TOO_LARGE);
    ck_assert_uint_eq(cqlring_queue_room(queue), 2);
    ck_assert_int_eq(node_table_rows(flow.node, "ks.t"), 0);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

/* ---- cancel ---- */

START_TEST(what_is_cancelled_still_has_its_completion)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 8, 0);
    flow_fault(&flow, "ignore:table=ks.t,opcode=EXECUTE,times=6");
    ck_assert_uint_eq(submit(queue, 0, 6), 6);
    flow_ok(cqlring_queue_cancel(queue, 3));
    flow_ok(cqlring_queue_cancel(queue, 77)); /* nobody's */
    cqlring_completion completion;
    cqlring_status status;
    ck_assert_uint_eq(cqlring_queue_reap(queue, &completion, 1, 1, LONG_US, &status), 1);
    ck_assert_uint_eq(completion.tag, 3);
    ck_assert_int_eq(completion.status, CQLRING_CANCELLED);
    cqlring_completions_release(&completion, 1);
    ck_assert_uint_eq(cqlring_queue_low_water(queue), 0); /* 0 to 2 are under way */
    for (uint64_t tag = 0; tag < 6; tag++)
        flow_ok(cqlring_queue_cancel(queue, tag));
    reap_all(queue, 5, CQLRING_CANCELLED);
    ck_assert_uint_eq(cqlring_queue_low_water(queue), 6);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

/* ---- the ends ---- */

START_TEST(abandoned_it_answers_closed_and_keeps_nothing)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 8, 0);
    int fd = cqlring_queue_fd(queue);
    ck_assert_uint_eq(submit(queue, 0, 3), 3);
    cqlring_completion completions[8];
    uint32_t count = cqlring_queue_reap(queue, completions, 1, 1, LONG_US, NULL); /* so that others are there, not reaped */
    ck_assert_uint_eq(count, 1);
    cqlring_completions_release(completions, 1);
    flow_fault(&flow, "ignore:table=ks.t,opcode=EXECUTE");
    ck_assert_uint_eq(submit(queue, 3, 5), 5);
    cqlring_queue_abandon(queue);
    cqlring_queue_abandon(queue);
    ck_assert_closed(queue);
    ck_assert_closed(queue);
    ck_assert(is_readable(fd, 1000));
    uint32_t accepted = 7;
    struct one one;
    cqlring_request request = request_of(&one, 50, (cqlring_bytes){"x", 1});
    ck_assert_int_eq(cqlring_queue_submit(queue, &request, 1, &accepted, NULL), CQLRING_CLOSED);
    ck_assert_uint_eq(accepted, 0);
    uint8_t *at = NULL;
    ck_assert_int_eq(cqlring_queue_reserve(queue, 16, &at, NULL), CQLRING_CLOSED);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

START_TEST(closed_it_takes_no_more_and_gives_what_it_has)
{
    struct flow flow;
    up(&flow);
    cqlring_queue *queue = open_queue(&flow, 8, 0);
    node_set_delay(flow.node, NODE_ALL, 30000, 0);
    uint8_t *at = NULL;
    flow_ok(cqlring_queue_reserve(queue, 64, &at, NULL));
    ck_assert_uint_eq(submit(queue, 0, 4), 4);
    cqlring_queue_close(queue);
    cqlring_request request = {.prepared = insert};
    ck_assert_int_eq(cqlring_queue_commit(queue, at, &request, encode(at, 2, 9, 8, "x", 1), NULL), CQLRING_CLOSED);
    cqlring_completion completions[8];
    cqlring_status status;
    uint32_t count = cqlring_queue_reap(queue, completions, 8, 8, LONG_US, &status); /* does not wait for those that never come */
    ck_assert_uint_eq(count, 4);
    ck_assert_int_eq(status, CQLRING_CLOSED);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(completions[i].status, CQLRING_OK);
    cqlring_completions_release(completions, count);
    ck_assert_closed(queue);
    cqlring_queue_release(queue);
    down(&flow);
}
END_TEST

static void *reap_until_closed(void *context)
{
    cqlring_completion completions[8];
    cqlring_status status = CQLRING_OK;
    uint32_t count = 0;
    while (status != CQLRING_CLOSED) {
        uint32_t some = cqlring_queue_reap(context, completions, 8, 1, -1, &status);
        cqlring_completions_release(completions, some);
        count += some;
    }
    return (void *)(uintptr_t)count;
}

START_TEST(who_waits_is_woken_by_every_end)
{
    for (int end = 0; end < 4; end++) {
        struct flow flow;
        up(&flow);
        if (flow.threads == CQLRING_THREADS_CALLER && end == 3) { /* the one who waits runs the turns there */
            down(&flow);
            continue;
        }
        cqlring_queue *queue = open_queue(&flow, 8, 0);
        flow_fault(&flow, "ignore:table=ks.t,opcode=EXECUTE");
        ck_assert_uint_eq(submit(queue, 0, 5), 5);
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, reap_until_closed, queue), 0);
        ask_pass(&flow, 20);
        cqlring_future *future = NULL;
        if (end == 0) {
            cqlring_queue_abandon(queue);
        } else if (end == 1) {
            cqlring_queue_close(queue);
            for (uint64_t tag = 0; tag < 5; tag++)
                flow_ok(cqlring_queue_cancel(queue, tag));
        } else if (end == 2) {
            flow_ok(cqlring_session_close(flow.session, 0, &future, NULL));
            flow_ok(ask_end(future, NULL));
        } else {
            flow_ok(cqlring_runtime_destroy(flow.runtime));
            flow.runtime = NULL;
        }
        void *count;
        pthread_join(thread, &count);
        ck_assert_uint_eq((uintptr_t)count, end == 0 ? 0 : 5); /* each accepted one has its outcome, but where they are given up */
        ck_assert_closed(queue);
        if (end == 3)
            ck_assert_int_eq(cqlring_queue_cancel(queue, 1), CQLRING_CLOSED);
        cqlring_queue_release(queue);
        if (end == 3) {
            cqlring_prepared_release(insert);
            cqlring_session_release(flow.session);
            cqlring_cluster_release(flow.cluster);
            node_cluster_stop(flow.node);
            ask_nothing_left();
        } else {
            down(&flow);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *tcase = tcase_create("queue");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, many_threads_submit_and_one_reaps_by_the_descriptor);
    tcase_add_test(tcase, a_reap_waits_for_as_many_as_it_wants);
    tcase_add_test(tcase, it_is_full_by_capacity_and_by_bytes_until_it_is_reaped);
    tcase_add_test(tcase, what_goes_wrong_in_the_middle_leaves_those_before_it_taken);
    tcase_add_test(tcase, values_encoded_in_place_are_sent_and_counted_from_the_reservation_on);
    tcase_add_test(tcase, values_encoded_in_place_are_checked);
    tcase_add_test(tcase, what_is_cancelled_still_has_its_completion);
    tcase_add_test(tcase, abandoned_it_answers_closed_and_keeps_nothing);
    tcase_add_test(tcase, closed_it_takes_no_more_and_gives_what_it_has);
    tcase_add_test(tcase, who_waits_is_woken_by_every_end);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
