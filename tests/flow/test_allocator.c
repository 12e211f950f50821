/* SPDX-License-Identifier: Apache-2.0 */

/* All memory of the library from the application's own allocator. The embedded node takes its from the same place. */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "serialize/mem.h"
#include "watch.h"

/* What was handed out, and that only that comes back: its context stands in front of each block. */
struct heap {
    atomic_llong live, ever;
    atomic_llong astray; /* of the test's own thread, given back by another one */
    atomic_bool fails;
    uint32_t until_close;  /* the test's own thread's: at this allocation the queue is closed, and there is nothing; 0: never */
    cqlring_queue *queue;
};

struct head {
    struct heap *heap;
    size_t size, offset;
    bool is_tests;
};

static _Thread_local bool is_test;

static void *heap_allocate(size_t size, size_t alignment, void *context)
{
    struct heap *heap = context;
    if (atomic_load(&heap->fails))
        return NULL;
    if (is_test && heap->until_close > 0 && --heap->until_close == 0) {
        cqlring_queue_close(heap->queue);
        return NULL;
    }
    ck_assert_uint_gt(size, 0);
    ck_assert(alignment >= sizeof(void *) && (alignment & (alignment - 1)) == 0);
    size_t offset = (sizeof(struct head) + alignment - 1) / alignment * alignment;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, offset + size) != 0)
        return NULL;
    char *block = (char *)memory + offset;
    const struct head head = {heap, size, offset, is_test};
    memcpy(block - sizeof head, &head, sizeof head);
    memset(block, 0xA5, size); /* nobody may count on zeros */
    atomic_fetch_add(&heap->live, 1);
    atomic_fetch_add(&heap->ever, 1);
    return block;
}

static void heap_release(void *memory, void *context)
{
    struct head head;
    memcpy(&head, (char *)memory - sizeof head, sizeof head);
    ck_assert_ptr_eq(head.heap, context);
    memset((char *)memory - sizeof head, 0, sizeof head);
    atomic_fetch_sub(&head.heap->live, 1);
    if (head.is_tests && !is_test)
        atomic_fetch_add(&head.heap->astray, 1);
    free((char *)memory - head.offset);
}

static void *heap_reallocate(void *memory, size_t size, void *context)
{
    struct head head;
    memcpy(&head, (char *)memory - sizeof head, sizeof head);
    ck_assert_ptr_eq(head.heap, context);
    void *moved = heap_allocate(size, _Alignof(max_align_t), context);
    if (moved == NULL)
        return NULL;
    memcpy(moved, memory, head.size < size ? head.size : size);
    heap_release(memory, context);
    return moved;
}

static struct heap heap, other;
static const cqlring_allocator own = {sizeof own, heap_allocate, heap_reallocate, heap_release, &heap};
static const cqlring_allocator another = {sizeof another, heap_allocate, heap_reallocate, heap_release, &other};

static cqlring_status create_with(const struct flow *flow, const cqlring_allocator *allocator, cqlring_runtime **runtime, cqlring_error *error)
{
    cqlring_runtime_options options = flow->runtime_options;
    options.allocator = allocator;
    return cqlring_runtime_create(&options, runtime, error);
}

/* The two are not counted at once, and threads of the library and the node may allocate in between. */
static bool all_that_lives_is_its(struct flow *flow, void *context)
{
    struct heap *its = context;
    (void)flow;
    return atomic_load(&its->live) == cqr_mem_live_count();
}

/* On the test's own heap, with a statement and requests of it; the key and the values are everybody's. */
static cqlring_prepared *up(struct flow *flow, cqlring_request *requests, uint32_t count)
{
    static const cqlring_bytes values[2] = {{"\0\0\0\0\0\0\0\1", 8}, {"xyz", 3}};
    flow_init(flow);
    flow_ok(create_with(flow, &own, &flow->runtime, NULL));
    flow_start(flow);
    flow_open(flow);
    cqlring_prepared *insert = flow_prepare(flow, FLOW_INSERT);
    for (uint32_t i = 0; i < count; i++)
        requests[i] = (cqlring_request){.session = flow->session, .prepared = insert, .values = values, .value_count = 2};
    return insert;
}

static cqlring_queue *open_queue(const struct flow *flow, uint32_t capacity)
{
    cqlring_queue_options options = {.struct_size = sizeof options, .session = flow->session, .capacity = capacity};
    cqlring_queue *queue = NULL;
    flow_ok(cqlring_queue_open(&options, &queue, NULL));
    return queue;
}

START_TEST(every_byte_comes_from_the_allocator_and_goes_back_to_it)
{
    struct flow flow;
    flow_init(&flow);
    flow_ok(create_with(&flow, &own, &flow.runtime, NULL));
    flow.options.compression = CQLRING_COMPRESSION_LZ4;
    flow_start(&flow);
    flow_open(&flow);
    cqlring_prepared *insert = flow_prepare(&flow, FLOW_INSERT);
    struct flow_rows rows;
    flow_rows_init(&rows, 5000, 300);
    flow_ok(flow_run(&flow, insert, &rows, NULL, NULL, NULL, NULL));
    flow_rows_fini(&rows);
    cqlring_result *result = NULL;
    flow_ok(ask_text(&flow, "SELECT k, v FROM ks.t", NULL, 0, NULL, &result, NULL));
    ck_assert_uint_eq(cqlring_result_row_count(result), 5000);
    cqlring_result_release(result);
    watch_for(&flow, all_that_lives_is_its, &heap);
    ck_assert_int_gt(atomic_load(&heap.live), 0);

    cqlring_runtime *second = NULL;
    cqlring_error error;
    ck_assert_int_eq(create_with(&flow, &another, &second, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "allocator is given while") != NULL, "%s", error.message);
    flow_ok(create_with(&flow, &own, &second, NULL)); /* the same one again */
    flow_ok(cqlring_runtime_destroy(second));
    flow_ok(create_with(&flow, NULL, &second, NULL)); /* and whoever says nothing has it too */
    watch_for(&flow, all_that_lives_is_its, &heap);
    flow_ok(cqlring_runtime_destroy(second));
    cqlring_prepared_release(insert);
    flow_close(&flow);
    ck_assert_int_eq(atomic_load(&heap.live), 0);

    flow_init(&flow); /* when nothing is left, it may be another one */
    flow_ok(create_with(&flow, &another, &flow.runtime, NULL));
    ck_assert_int_gt(atomic_load(&other.live), 0);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    ck_assert_int_eq(atomic_load(&other.live), 0);
}
END_TEST

START_TEST(an_allocator_that_has_nothing_is_memory_that_is_out)
{
    struct flow flow;
    flow_init(&flow);
    flow_ok(create_with(&flow, &own, &flow.runtime, NULL));
    atomic_store(&heap.fails, true);
    cqlring_runtime *second = NULL;
    cqlring_cluster *cluster = NULL;
    ck_assert_int_eq(create_with(&flow, &own, &second, NULL), CQLRING_NO_MEMORY);
    ck_assert_int_eq(cqlring_cluster_open_sync(flow.runtime, NULL, &cluster, NULL), CQLRING_NO_MEMORY);
    atomic_store(&heap.fails, false);
    flow_ok(cqlring_runtime_destroy(flow.runtime));
    ck_assert_int_eq(atomic_load(&heap.live), 0);
}
END_TEST

/* A request's memory is given back by the thread that made it: malloc has a lock for each thread's share, which both would take
   with every request. A few are the submitter's: whoever is last. */
START_TEST(what_a_request_needs_is_given_back_by_the_application)
{
    enum { ROUNDS = 40, TOGETHER = 64 };
    struct flow flow;
    cqlring_request requests[TOGETHER];
    cqlring_prepared *insert = up(&flow, requests, TOGETHER);
    is_test = true;

    cqlring_queue *queue = open_queue(&flow, TOGETHER);
    long long ever = atomic_load(&heap.ever), astray = atomic_load(&heap.astray);
    for (int round = 0; round < ROUNDS; round++) {
        cqlring_completion completions[TOGETHER];
        uint32_t accepted = 0;
        flow_ok(cqlring_queue_submit(queue, requests, TOGETHER, &accepted, NULL));
        ck_assert_uint_eq(accepted, TOGETHER);
        ck_assert_uint_eq(cqlring_queue_reap(queue, completions, TOGETHER, TOGETHER, 20000000, NULL), TOGETHER);
        cqlring_completions_release(completions, TOGETHER);
    }
    ck_assert_int_ge(atomic_load(&heap.ever) - ever, 2 * ROUNDS * TOGETHER);
    ck_assert_int_le(atomic_load(&heap.astray) - astray, ROUNDS * TOGETHER / 10);
    cqlring_queue_release(queue);

    ever = atomic_load(&heap.ever), astray = atomic_load(&heap.astray);
    for (int round = 0; round < ROUNDS; round++) {
        cqlring_future *futures[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            flow_ok(cqlring_execute(&requests[i], &futures[i], NULL));
        for (int i = TOGETHER; i-- > 0;)
            flow_ok(ask_end(futures[i], NULL));
    }
    ck_assert_int_ge(atomic_load(&heap.ever) - ever, 2 * ROUNDS * TOGETHER);
    ck_assert_int_le(atomic_load(&heap.astray) - astray, ROUNDS * TOGETHER / 10);
    is_test = false;
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

/* Whatever it answers, it answers of the first request that it did not take. */
START_TEST(a_queue_that_closes_while_requests_are_made_says_so_of_the_first)
{
    enum { COUNT = 100, TOGETHER = 32 };
    struct flow flow;
    cqlring_request requests[COUNT];
    cqlring_prepared *insert = up(&flow, requests, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) { /* request i has no memory, two allocations each */
        heap.queue = open_queue(&flow, 0);
        uint32_t accepted = UINT32_MAX;
        cqlring_error error = {0};
        is_test = true;
        heap.until_close = i * 2 + 1;
        cqlring_status status = cqlring_queue_submit(heap.queue, requests, COUNT, &accepted, &error);
        is_test = false;
        ck_assert_int_eq(status, error.status);
        ck_assert_int_eq(status, accepted == i ? CQLRING_NO_MEMORY : CQLRING_CLOSED);
        ck_assert_uint_eq(accepted, i / TOGETHER * TOGETHER);
        cqlring_completion completions[COUNT];
        for (uint32_t reaped = 0; reaped < accepted;) {
            uint32_t count = cqlring_queue_reap(heap.queue, completions, COUNT, 1, 20000000, &status);
            ck_assert_uint_gt(count, 0);
            cqlring_completions_release(completions, count);
            reaped += count;
        }
        cqlring_queue_release(heap.queue);
    }
    cqlring_prepared_release(insert);
    flow_close(&flow);
}
END_TEST

START_TEST(half_an_allocator_is_refused)
{
    struct flow flow;
    flow_init(&flow);
    cqlring_allocator half = own;
    cqlring_runtime *runtime = NULL;
    cqlring_error error;
    half.reallocate = NULL;
    ck_assert_int_eq(create_with(&flow, &half, &runtime, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "all three") != NULL, "%s", error.message);
    half = own;
    half.struct_size = 8;
    ck_assert_int_eq(create_with(&flow, &half, &runtime, &error), CQLRING_INVALID);
    ck_assert_msg(strstr(error.message, "struct_size is 8") != NULL, "%s", error.message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("allocator");
    TCase *tcase = tcase_create("allocator");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_byte_comes_from_the_allocator_and_goes_back_to_it);
    tcase_add_test(tcase, an_allocator_that_has_nothing_is_memory_that_is_out);
    tcase_add_test(tcase, what_a_request_needs_is_given_back_by_the_application);
    tcase_add_test(tcase, a_queue_that_closes_while_requests_are_made_says_so_of_the_first);
    tcase_add_test(tcase, half_an_allocator_is_refused);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
