/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver/lane.h"
#include "driver/runtime.h"
#include "serialize/mem.h"
#include "store.h"
#include "world.h"

enum { PORT = 9042 };

void stage_options_init(struct stage_options *options, uint32_t nodes)
{
    *options = (struct stage_options){.replication = 1};
    options->node.nodes = nodes;
    options->node.port = PORT;
    options->node.vnodes = 8;
    options->network = (struct network_shape){
        .latency_us = 200, .send_buffer = 256 << 10, .receive_buffer = 256 << 10};
    options->runtime = (cqlring_runtime_options){.struct_size = sizeof options->runtime,
                                                 .threads = CQLRING_THREADS_CALLER,
                                                 .inflight_max = 2048,
                                                 .connections_max = 64};
    options->cluster = (cqlring_cluster_options){.struct_size = sizeof options->cluster};
    options->session = (cqlring_session_options){.struct_size = sizeof options->session};
}

static void log_line(cqlring_log_level level, const char *line, void *context)
{
    (void)context;
    if (world.verbose)
        printf("%11.6f  log %d: %s\n", (double)world.now_us / 1e6, (int)level, line);
}

void stage_nodes(struct stage *stage, const struct stage_options *options)
{
    *stage = (struct stage){.node_count = options->node.nodes, .live_before = cqr_mem_live_count()};
    stage->chance = chance_make(world.seed, 3);
    struct node_options node = options->node;
    char message[200] = "";
    node.seed = world.seed;
    node.address = "10.0.0.1";
    node.epoch_us = world.wall_us;
    stage->nodes = node_cluster_create(&node, message, sizeof message);
    world_check(stage->nodes != NULL, "no nodes: %s", message);
    store_schema(stage->nodes, options->replication);
    network_init(stage->nodes, &options->network);
    cqlring_runtime_options runtime = options->runtime;
    runtime.log = log_line;
    runtime.log_level = CQLRING_LOG_DEBUG;
    cqlring_error error;
    cqlring_status status = cqr_runtime_create_on(&runtime, network_net(), network_poller_create,
                                                  &stage->runtime, &error);
    world_check(status == CQLRING_OK, "no runtime: %s", error.message);
    stage->foreign = chance_percent(&stage->chance, 30);
    if (stage->foreign)
        (void)cqlring_runtime_fd(stage->runtime);
}

/* Wait for future: its status, the future released. */
static cqlring_status settle(struct stage *stage, cqlring_future *future, cqlring_error *error)
{
    stage_wait(stage, future);
    cqlring_status status = cqlring_future_wait(future, 0, error);
    world_check(status != CQLRING_OK || cqlring_future_ready(future),
                "a future that is ready was not");
    return status;
}

static bool fine(const struct stage_options *options, cqlring_status status, const char *what,
                 const cqlring_error *error)
{
    if (status == CQLRING_OK)
        return true;
    world_check(options->quiet, "%s: %s: %s", what, cqlring_status_text(status), error->message);
    world_check(error->status == status && error->message[0] != '\0',
                "%s failed with %s and says nothing", what, cqlring_status_text(status));
    world_trace("refused", (uint64_t)status, 0, 0);
    return false;
}

static bool prepare(struct stage *stage, const struct stage_options *options, const char *text,
                    cqlring_prepared **prepared)
{
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_prepare(stage->session, cqlring_text(text), NULL, &future,
                                            &error);
    if (status == CQLRING_OK)
        status = settle(stage, future, &error);
    if (status == CQLRING_OK)
        *prepared = cqlring_future_prepared(future);
    cqlring_future_release(future);
    return fine(options, status, "prepare", &error);
}

bool stage_open(struct stage *stage, const struct stage_options *options)
{
    char points[200] = "";
    for (uint32_t i = 0; i < stage->node_count; i++)
        (void)snprintf(points + strlen(points), sizeof points - strlen(points), "%s10.0.0.%u",
                       i > 0 ? "," : "", i + 1);
    cqlring_cluster_options cluster = options->cluster;
    cluster.contact_points = points;
    cluster.port = PORT;
    cqlring_future *future = NULL;
    cqlring_error error;
    cqlring_status status = cqlring_cluster_open(stage->runtime, &cluster, &future, &error);
    if (status == CQLRING_OK)
        status = settle(stage, future, &error);
    if (status == CQLRING_OK)
        stage->cluster = cqlring_future_cluster(future);
    cqlring_future_release(future);
    if (!fine(options, status, "cluster_open", &error))
        return false;
    future = NULL;
    status = cqlring_session_open(stage->cluster, &options->session, &future, &error);
    if (status == CQLRING_OK)
        status = settle(stage, future, &error);
    if (status == CQLRING_OK)
        stage->session = cqlring_future_session(future);
    cqlring_future_release(future);
    return fine(options, status, "session_open", &error) &&
           prepare(stage, options, "INSERT INTO sim.t (k, v) VALUES (?, ?)", &stage->insert) &&
           prepare(stage, options, "SELECT c, v FROM sim.w WHERE p = ?", &stage->select);
}

/* --- driving ----------------------------------------------------------------------------------------------------- */

static void one_turn(struct stage *stage)
{
    static const int64_t waits[] = {0, 1, 100, 5000, 1000000, -1};
    if (stage->foreign && chance_percent(&stage->chance, 80)) {
        int64_t begin_us = world.now_us;
        if (!network_sleep(begin_us + 10000000))
            world_check(!cqr_submitter_has_input(stage_lane(stage)),
                        "the descriptor is not readable, and the submitter has something to do");
        world_check(cqlring_runtime_turn(stage->runtime, 0) >= 0, "cqlring_runtime_turn refuses");
        return;
    }
    int64_t wait_us = waits[chance_below(&stage->chance, 6)];
    if (wait_us < 0)
        wait_us =
            10000000; /* `for ever` would be right as well, but here a hang shall be told by us */
    int64_t settled = cqlring_runtime_turn(stage->runtime, wait_us);
    world_check(settled >= 0, "cqlring_runtime_turn refuses");
}

void stage_drive(struct stage *stage, bool (*done)(void *context), void *context)
{
    while (!done(context))
        one_turn(stage);
}

static bool is_ready(void *context)
{
    return cqlring_future_ready(context);
}

void stage_wait(struct stage *stage, cqlring_future *future)
{
    if (chance_percent(&stage->chance, 50)) {
        stage_drive(stage, is_ready, future);
        return;
    }
    while (!cqlring_future_ready(future)) {
        int64_t wait_us = chance_between(&stage->chance, 1, 500000), begin_us = world.now_us,
                lost_us = world.lost_us;
        cqlring_status status = cqlring_future_wait(future, wait_us, NULL);
        world_check(status != CQLRING_TIMEOUT || cqlring_future_ready(future) ||
                        world.now_us >= begin_us + wait_us,
                    "a wait of %" PRId64 " us ended early", wait_us);
        world_check(world.now_us - begin_us <= wait_us + 200000 + (world.lost_us - lost_us),
                    "a wait of %" PRId64 " us took %" PRId64, wait_us, world.now_us - begin_us);
    }
}

static bool is_late(void *context)
{
    return world.now_us >= *(const int64_t *)context;
}

void stage_run_for(struct stage *stage, int64_t us)
{
    int64_t end_us = world.now_us + us;
    while (!is_late(&end_us))
        (void)cqlring_runtime_turn(stage->runtime, end_us - world.now_us);
}

struct lane *stage_lane(const struct stage *stage)
{
    return &cqr_runtime_core(stage->runtime)->lanes[0];
}

uint32_t stage_ops(const struct stage *stage)
{
    const struct lane *lane = stage_lane(stage);
    uint32_t count = 0;
    for (uint32_t i = 0; i < lane->op_count; i++)
        count += lane->ops[i].state != OP_FREE && !cqr_op_is_own(&lane->ops[i]);
    return count;
}

/* --- down -------------------------------------------------------------------------------------------------------- */

void stage_close(struct stage *stage)
{
    cqlring_future *future = NULL;
    cqlring_prepared_release(stage->insert);
    cqlring_prepared_release(stage->select);
    stage->insert = stage->select = NULL;
    if (stage->session != NULL && chance_percent(&stage->chance, 70)) {
        int64_t drain_us = chance_percent(&stage->chance, 50) ? 0 : -1;
        world_check(cqlring_session_close(stage->session, drain_us, &future, NULL) == CQLRING_OK,
                    "the session cannot be closed");
        stage_wait(stage, future);
        cqlring_future_release(future);
    }
    cqlring_session_release(stage->session);
    stage->session = NULL;
    if (stage->cluster != NULL && chance_percent(&stage->chance, 70)) {
        future = NULL;
        world_check(cqlring_cluster_close(stage->cluster, 0, &future, NULL) == CQLRING_OK,
                    "the cluster cannot be closed");
        stage_wait(stage, future);
        cqlring_future_release(future);
    }
    cqlring_cluster_release(stage->cluster);
    stage->cluster = NULL;
}

void stage_down(struct stage *stage)
{
    world_check(cqlring_runtime_destroy(stage->runtime) == CQLRING_OK,
                "the runtime cannot be destroyed");
    stage->runtime = NULL;
    network_fini();
    node_cluster_stop(stage->nodes);
    stage->nodes = NULL;
    int64_t left = cqr_mem_live_count() - stage->live_before;
    world_check(left == 0, "%" PRId64 " allocations of the library were not freed", left);
    world_trace("down", 0, 0, 0);
}
