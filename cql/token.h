/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TOKEN_H
#define CQR_TOKEN_H

/* Keys to tokens, tokens to shards. Pure functions (routing reference, sections 1–3, 6). */

#include <stdint.h>

#include "serialize/cqlring_types.h"

enum partitioner { PARTITIONER_UNKNOWN, PARTITIONER_MURMUR3, PARTITIONER_RANDOM, PARTITIONER_ORDERED, PARTITIONER_CDC };

enum partitioner cqr_partitioner_of(cqlring_bytes class_name); /* by the last dotted part */

int64_t cqr_murmur3_raw(const void *key, uint32_t size);   /* before the minimum-token rule */
int64_t cqr_murmur3(const void *key, uint32_t size);       /* -2^63 becomes 2^63-1 */
int64_t cqr_cdc_token(const void *key, uint32_t size);
/* abs of MD5 as a big-endian signed 128-bit number: 0 … 2^127, 16 bytes big-endian. */
void cqr_random_token(const void *key, uint32_t size, uint8_t out[16]);

/* The routing key of `count` partition-key components given by their indexes into the row's cells. One component: the
   payload itself (no copy, *key points at it). Several: composed into scratch. false: no routing key (a component is
   null, unset, over 65535 bytes, or scratch is too small). */
bool cqr_routing_key(const cqlring_bytes *cells, const uint16_t *indexes, uint16_t count, uint8_t *scratch, uint32_t scratch_size, cqlring_bytes *key);

uint32_t cqr_shard_of(int64_t token, uint16_t shard_count, uint8_t ignore_msb);

#endif
