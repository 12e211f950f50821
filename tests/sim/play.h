/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H

/* A plan, played to its end. Returns the hash of everything that happened; does not return when a promise is broken. */

#include "plan.h"

uint64_t play(const struct plan *plan, bool verbose);

#endif
