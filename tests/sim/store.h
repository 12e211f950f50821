/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_STORE_H
#define SIM_STORE_H

/* What is in the nodes' storage, asked past the driver and the network, and what should be there: every value is made
   from its key. */

#include "serialize/cqlring_types.h"
#include "tests/node/node.h"

/* The value of a key: size bytes, the same always. */
void store_value(int64_t key, void *data, uint32_t size);
bool store_value_is(int64_t key, cqlring_bytes value);

/* sim.t (k bigint PRIMARY KEY, v blob) and sim.w (p bigint, c int, v blob, PRIMARY KEY (p, c)). */
void store_schema(struct node_cluster *nodes, uint32_t replication);
void store_fill(struct node_cluster *nodes, int64_t partition, uint32_t rows, uint32_t size_max);
uint32_t store_fill_size(int64_t partition, uint32_t row, uint32_t size_max);
/* Every row of sim.t. The fault plan must be over; delays end here. */
void store_read(struct node_cluster *nodes,
                void (*row)(int64_t key, cqlring_bytes value, void *context), void *context);

#endif
