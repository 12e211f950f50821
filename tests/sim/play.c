/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#include <stdio.h>
#include <string.h>

#include "driver/lane.h"
#include "jobs.h"
#include "singles.h"
#include "store.h"

struct play {
    const struct plan *plan;
    struct stage stage;
    struct job_run jobs[JOBS_MAX];
    struct singles singles;
    struct queue_run queue;
    cqlring_future *closed; /* of the session or the cluster, in the middle of it all */
    bool healed;
};

/* --- what goes wrong --------------------------------------------------------------------------------------------- */

static void silence_end(void *context, uint64_t node)
{
    const struct play *play = context;
    if (play->stage.nodes != NULL)
        node_silence(play->stage.nodes, (uint32_t)node, false);
}

static void events(struct play *play, const struct mishap *mishap)
{
    static const char *const status[] = {"DOWN", "UP"}, *const topology[] = {"NEW_NODE",
                                                                             "REMOVED_NODE",
                                                                             "MOVED_NODE"};
    uint32_t about = (uint32_t)(mishap->for_us % play->stage.node_count);
    for (int64_t i = 0; i <= mishap->for_us % 7; i++)
        node_event_status(play->stage.nodes, NODE_ALL, status[(mishap->for_us + i) % 2], about);
    if (mishap->for_us % 3 == 0)
        node_event_topology(play->stage.nodes, NODE_ALL, topology[mishap->for_us / 3 % 3], about);
}

static void on_nodes(struct play *play, const struct mishap *mishap, uint32_t node)
{
    switch (mishap->kind) {
    case MISHAP_CRASH: network_crash(node, mishap->for_us); break;
    case MISHAP_FREEZE: network_freeze(node, mishap->for_us); break;
    case MISHAP_REFUSE: network_refuse(node, mishap->for_us); break;
    case MISHAP_BLACKHOLE: network_blackhole(node, mishap->for_us); break;
    case MISHAP_SLOW: network_slow_reader(node, mishap->for_us, (uint32_t)mishap->amount); break;
    case MISHAP_RESHARD:
        if (play->plan->stage.node.shards > 0)
            node_set_shards(play->stage.nodes, node, 1 + (uint32_t)(mishap->for_us % 8));
        network_crash(node, mishap->for_us);
        break;
    case MISHAP_FORGET: node_forget_prepared(play->stage.nodes, node); break;
    case MISHAP_SILENCE:
        node_silence(play->stage.nodes, node, true);
        world_later(mishap->for_us, silence_end, play, node);
        break;
    default: break;
    }
}

static void mishap_strikes(void *context, uint64_t index)
{
    struct play *play = context;
    const struct mishap *mishap = &play->plan->mishaps[index];
    if (play->healed)
        return;
    world_trace("mishap", (uint64_t)mishap->kind, mishap->node, (uint64_t)mishap->for_us);
    switch (mishap->kind) {
    case MISHAP_RESET: (void)network_reset(mishap->node); return;
    case MISHAP_CLOSE: (void)network_close(mishap->node, (uint32_t)mishap->amount); return;
    case MISHAP_HALF_OPEN: (void)network_half_open(mishap->node); return;
    case MISHAP_NO_SOCKETS: network_no_sockets(mishap->for_us); return;
    case MISHAP_GAP: network_gap(mishap->for_us, mishap->for_us % 2 == 0); return;
    case MISHAP_CLOCK: world.wall_us += mishap->amount; return;
    case MISHAP_EVENT: events(play, mishap); return;
    case MISHAP_TABLETS:
        if (play->plan->stage.node.tablets)
            node_set_tablets(play->stage.nodes, 1 + (uint32_t)(mishap->for_us % 6), (uint32_t)(mishap->for_us / 6 % 4));
        return;
    default: break;
    }
    for (uint32_t i = 0; i < play->stage.node_count; i++)
        if (mishap->node == i || mishap->node == NODE_ALL)
            on_nodes(play, mishap, i);
}

static void heal(void *context, uint64_t argument)
{
    struct play *play = context;
    (void)argument;
    if (play->healed)
        return;
    play->healed = true;
    world_trace("heal", 0, 0, 0);
    network_heal();
    node_fault_remove(play->stage.nodes, 0);
    for (uint32_t i = 0; i < play->stage.node_count; i++)
        node_silence(play->stage.nodes, i, false);
}

static void trouble(struct play *play)
{
    const struct plan *plan = play->plan;
    char message[200];
    node_set_shard_port(play->stage.nodes, NODE_ALL, plan->shard_port);
    for (uint32_t i = 0; i < plan->mishap_count; i++)
        world_later(plan->mishaps[i].at_us, mishap_strikes, play, i);
    for (uint32_t i = 0; i < plan->fault_count; i++)
        world_check(node_fault_parse(play->stage.nodes, plan->faults[i], message, sizeof message) !=
                        0,
                    "%s: %s", plan->faults[i], message);
    world_later(plan->heal_us, heal, play, 0);
}

/* --- the course of it -------------------------------------------------------------------------------------------- */

static void end_early(void *context, uint64_t argument)
{
    struct play *play = context;
    const struct plan *plan = play->plan;
    (void)argument;
    world_trace("end-early", (uint64_t)plan->ending, 0, 0);
    for (uint32_t i = 0; i < plan->job_count; i++)
        play->jobs[i].stopped_outside = true;
    play->singles.closing = play->queue.closing = true;
    cqlring_error error;
    cqlring_status status = plan->ending == END_SESSION_CLOSE
                                ? cqlring_session_close(play->stage.session, plan->drain_us,
                                                        &play->closed, &error)
                                : cqlring_cluster_close(play->stage.cluster, plan->drain_us,
                                                        &play->closed, &error);
    world_check(status == CQLRING_OK, "close is refused: %s", error.message);
    for (uint32_t i = 0; i < plan->job_count; i++)
        play->jobs[i].closed = play->closed;
}

static bool is_through(void *context)
{
    struct play *play = context;
    bool through = singles_are_through(&play->singles) && queue_is_submitted(&play->queue) &&
                   (play->plan->ending == END_ALL || play->closed != NULL);
    for (uint32_t i = 0; i < play->plan->job_count; i++) {
        job_check(&play->jobs[i]);
        through = through && job_is_through(&play->jobs[i]);
    }
    return through;
}

static void work(struct play *play)
{
    const struct plan *plan = play->plan;
    struct stage *stage = &play->stage;
    for (uint32_t i = 0; i < plan->job_count; i++) {
        job_prepare(&play->jobs[i], stage, plan, i);
        world_later(plan->jobs[i].start_us, job_start, &play->jobs[i], 0);
    }
    singles_start(&play->singles, stage, plan);
    queue_start(&play->queue, stage, plan);
    if (plan->ending != END_ALL)
        world_later(plan->end_us, end_early, play, 0);
    world.limit_us = world.now_us + plan->heal_us + INT64_C(600000000);
    stage_drive(stage, is_through, play);
    queue_finish(&play->queue);
    if (play->closed != NULL)
        stage_wait(stage, play->closed);
    world_check(stage_ops(stage) == 0, "%u ops are in use and nothing is under way",
                stage_ops(stage));
    heal(play, 0);
    stage_run_for(stage, 1000000); /* what is still on its way to the nodes arrives */
    singles_judge(&play->singles);
    for (uint32_t i = 0; i < plan->job_count; i++)
        job_settle(&play->jobs[i]);
    ledgers_judge(stage->nodes);
    for (uint32_t i = 0; i < plan->job_count; i++) {
        job_check(&play->jobs[i]);
        job_judge(&play->jobs[i]);
        job_free(&play->jobs[i]);
    }
    singles_free(&play->singles);
    queue_free(&play->queue);
    cqlring_future_release(play->closed);
}

uint64_t play(const struct plan *plan, bool verbose)
{
    static struct play play;
    memset(&play, 0, sizeof play);
    play.plan = plan;
    world_init(plan->seed, verbose);
    ledgers_init();
    stage_nodes(&play.stage, &plan->stage);
    for (uint32_t i = 0; i < PARTITIONS; i++)
        store_fill(play.stage.nodes, i, plan->partitions[i], plan->partition_size_max);
    world.limit_us = world.now_us + plan->heal_us + INT64_C(300000000);
    if (plan->early)
        trouble(&play);
    bool open = stage_open(&play.stage, &plan->stage);
    if (!plan->early)
        trouble(&play);
    if (open)
        work(&play);
    world.limit_us = world.now_us + plan->heal_us + INT64_C(300000000);
    stage_close(&play.stage);
    stage_down(&play.stage);
    ledgers_fini();
    world_trace("end", network_counts.sends, network_counts.recvs, network_counts.waits);
    uint64_t trace = world.trace;
    world_fini();
    return trace;
}
