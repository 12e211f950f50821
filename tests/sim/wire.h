/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

/* Reads along on a connection: what the driver hands to send and gets from recv, cut into requests and replies without
   any code of driver/. Knows which streams are unanswered, so a stream id that is used again too early is seen at once. */

#include <stdbool.h>
#include <stdint.h>

struct wire;

struct wire_request {
    uint32_t link, node;
    uint8_t opcode;
    int16_t stream;
    bool has_key; /* EXECUTE whose first value is a bigint */
    int64_t key;
    bool has_timestamp;
    int64_t timestamp_us;
    uint32_t values_size;
};

struct wire *wire_create(uint32_t link, uint32_t node);
void wire_destroy(struct wire *wire);
void wire_up(struct wire *wire, const void *data, uint32_t size);   /* accepted by send */
void wire_down(struct wire *wire, const void *data, uint32_t size); /* handed out by recv */
uint32_t wire_open(const struct wire *wire);                        /* unanswered requests */

/* Who wants to know; NULL: nobody. */
extern void (*wire_on_request)(const struct wire_request *request);
extern void (*wire_on_reply)(uint32_t node, uint8_t opcode, bool has_key, int64_t key);

#endif
