/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WATCH_H
#define WATCH_H

/* What the driver does by itself, awaited: conditions are looked at again whenever something was logged or a moment has
   passed; in caller mode the turns are run meanwhile. And the lines of the library's log, kept. */

#include "flow.h"

/* What good answers may take is multiplied by this, where time-outs are meant for bad ones. */
#if defined(__SANITIZE_THREAD__)
enum { WATCH_SLOW = 6 };
#elif defined(__SANITIZE_ADDRESS__)
enum { WATCH_SLOW = 3 };
#else
enum { WATCH_SLOW = 1 };
#endif

/* Between flow_init and flow_open: keep every line, from DEBUG on. One log at a time; it begins empty. */
void watch_log(struct flow *flow);
void watch_log_clear(void);
uint32_t watch_log_count(const char *text); /* lines that hold it */
/* The end of the log, for messages. */
const char *watch_log_text(void);

/* True as soon as done says so, false after timeout_ms. */
bool watch_until(struct flow *flow, bool (*done)(struct flow *flow, void *context), void *context, uint32_t timeout_ms);
/* The same, and a failed test when it does not come true in 20 s. */
#define watch_for(flow, done, context) \
    ck_assert_msg(watch_until(flow, done, context, 20000), "%s did not come true; the log:\n%s", #done, watch_log_text())
/* So much time, in which the driver may do what it likes. Returns how much it really was, in ms. */
uint32_t watch_pass(struct flow *flow, uint32_t ms);

/* Conditions. */
bool watch_logged(struct flow *flow, void *text);      /* a line holds this text */
bool watch_all_up(struct flow *flow, void *count);     /* *(uint32_t *)count nodes are known and each has a connection */
bool watch_known(struct flow *flow, void *count);      /* so many nodes are known */
bool watch_ready(struct flow *flow, void *future);     /* the future is */
bool watch_faults(struct flow *flow, void *count);     /* *(uint64_t *)count faults have struck */
bool watch_nothing_left(struct flow *flow, void *unused); /* no allocation of the library lives; its runtime and the nodes are gone */
bool watch_no_orphans(struct flow *flow, void *unused); /* every late reply has come */

uint32_t watch_up_count(struct flow *flow);
/* What node i of the embedded ones looks like to the driver; false: it does not know it. */
bool watch_node(struct flow *flow, uint32_t node, cqlring_node_info *info);
int64_t watch_now_us(void);

#endif
