/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_BATCH_LIMIT_H
#define CQR_BATCH_LIMIT_H

/* How large a batch of rows a cluster's servers take, learned from those that refused one as too large: half of it, never less than
   bytes_max of batch_by_partition may be. It may have been one node's word, or a stray one, and limits are raised on servers; so
   what was learned is doubled now and then, until it is no longer what limits. Each raise costs a refused batch where the server
   meant it, and a line in the server's log: after a minute, and twice as long after each one that was refused, an hour at most. By
   time and not by good batches: those come by the thousand a second.

   A pure function of answers and the time it is given; shared by the submitters of all lanes, any number at a time. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BATCH_LIMIT_FLOOR = 256 };
static const int64_t BATCH_LIMIT_PAUSE_US = 60000000, BATCH_LIMIT_PAUSE_MAX_US = 3600000000;

struct batch_limit {
    atomic_uint bytes;            /* of a batch; 0: nothing was refused yet */
    atomic_uint raised_from;      /* what held before the last raise, while that may still be refused; 0: it was, or there was none */
    _Atomic(int64_t) pause_us, raise_us; /* until the next one; when that is */
};

/* The limit of a batch that may have `wanted` bytes. True: it was raised just now, to *bytes. */
bool cqr_batch_limit_ask(struct batch_limit *limit, uint32_t wanted, int64_t now_us, uint32_t *bytes);
/* One of `size` bytes was too large. True: the limit is lower than it was, *bytes. */
bool cqr_batch_limit_refused(struct batch_limit *limit, uint32_t size, int64_t now_us, uint32_t *bytes);

#endif
