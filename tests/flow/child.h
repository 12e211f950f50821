/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHILD_H
#define CHILD_H

/* Other processes: this very program run again in another role, or a copy of this one. How they end is the test. */

#include <sys/types.h>

#include "flow.h"

/* In main, first thing: when this process is a child that child_exec has started, play its role and return what main shall
   return; −1 otherwise. The role gets the contact point and the thread mode of its parent. */
int child_role(int argc, char **argv, int (*role)(const char *name, const char *contact, cqlring_threads threads));
/* Starts this program again as `name`; it must end by itself within 20 s. Returns its exit code, 128 + n after signal n. */
int child_exec(struct flow *flow, const char *name);
/* The end of a process made by fork, likewise. */
int child_wait(struct flow *flow, pid_t pid);

#endif
