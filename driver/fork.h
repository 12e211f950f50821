/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_FORK_H
#define CQR_FORK_H

/* What a forked child of the application must not do: hold our sockets open, or use our threads. Every descriptor of the
   library stands in a fixed table; a pthread_atfork child handler closes what stands there and counts the fork, nothing
   else. The rest of the parent's state is abandoned in the child: handles remember the generation in which they were
   made and answer FORKED when it is another one (decision 36). Any thread. */

#include "serialize/cqlring_types.h"

/* Install the handler; done once per process, later calls are cheap. NO_MEMORY when it cannot be had. */
cqlring_status cqr_fork_watch(void);

/* How often this process image has been forked since the handler was installed, counted in the child. */
unsigned cqr_fork_generation(void);

/* A descriptor has been opened; it is about to be closed. Forget comes before close(): the number may be somebody else's
   right after it. */
void cqr_fd_register(int fd);
void cqr_fd_forget(int fd);

#endif
