/* SPDX-License-Identifier: Apache-2.0 */

/* Local ports that cannot be had, in every way a kernel says so: this program brings its own bind. */

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ask.h"
#include "watch.h"

enum { FIRST = 53000, COUNT = 64, SHARDS = 4 };

static atomic_uint refused, refusals_left;
static atomic_int refusal; /* 0: each in turn */

int bind(int fd, __CONST_SOCKADDR_ARG given, socklen_t size)
{
    const struct sockaddr *address = given.__sockaddr__;
    static const int turns[] = {EADDRINUSE, EADDRNOTAVAIL, EACCES};
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    unsigned port = address->sa_family == AF_INET ? ntohs(four->sin_port) : 0;
    if (port >= FIRST && port < FIRST + COUNT && atomic_load(&refusals_left) > 0) {
        atomic_fetch_sub(&refusals_left, 1);
        unsigned turn = atomic_fetch_add(&refused, 1);
        errno = atomic_load(&refusal) != 0 ? atomic_load(&refusal) : turns[turn % 3];
        return -1;
    }
    return (int)syscall(SYS_bind, fd, address, size);
}

static bool all_covered(struct flow *flow, void *unused)
{
    (void)unused;
    struct node_conn_info conns[64];
    uint32_t count = node_conns(flow->node, 0, conns, 64), covered = 0;
    bool has[SHARDS] = {false};
    for (uint32_t i = 0; i < count && i < 64; i++) {
        if (!conns[i].ready || conns[i].registered || has[conns[i].shard])
            continue;
        has[conns[i].shard] = true;
        covered++;
    }
    return covered == SHARDS;
}

static const int hows[] = {0, EADDRINUSE, EADDRNOTAVAIL, EACCES};

static void open_with(struct flow *flow, unsigned refusals, int how)
{
    flow_init(flow);
    watch_log(flow);
    flow->node_options.shards = SHARDS;
    flow->options.reconnect_min_us = 5000;
    flow->options.reconnect_max_us = 60000;
    flow->options.local_port_min = FIRST;
    flow->options.local_port_max = FIRST + COUNT - 1;
    atomic_store(&refused, 0);
    atomic_store(&refusal, how);
    atomic_store(&refusals_left, refusals);
    flow_start(flow);
    flow_open(flow);
    watch_for(flow, all_covered, NULL);
}

/* Whatever the kernel says of a port, the next one is tried, on the shard-aware port as before. */
START_TEST(sh_05_the_next_port_is_tried_whatever_the_kernel_says_of_one)
{
    struct flow flow;
    open_with(&flow, 12, hows[_i]);
    ck_assert_uint_eq(atomic_load(&refused), 12);
    ck_assert_uint_eq(watch_log_count("is not used for"), 0);
    ck_assert_uint_eq(watch_log_count("connect failed"), 0);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

/* Not one can be had: shards are found by trial on the ordinary port, and rows go to theirs all the same. */
START_TEST(sh_05_without_any_port_shards_are_found_by_trial)
{
    struct flow flow;
    open_with(&flow, 1u << 30, hows[_i]);
    ck_assert_uint_ge(atomic_load(&refused), COUNT / SHARDS);
    struct node_counters counters = flow_counted_rows(&flow, FLOW_INSERT, 500, 0);
    ck_assert_uint_eq(counters.shard_misses, 0);
    flow_close(&flow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ports");
    TCase *tcase = tcase_create("ports");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, sh_05_the_next_port_is_tried_whatever_the_kernel_says_of_one, 0, 4);
    tcase_add_loop_test(tcase, sh_05_without_any_port_shards_are_found_by_trial, 0, 4);
    suite_add_tcase(suite, tcase);
    return flow_main(suite);
}
