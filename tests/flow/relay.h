/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_H
#define RELAY_H

/* A relay between the driver and a node, on a thread of its own: bytes pass unchanged until told otherwise. With it as the
   contact point of a cluster of one node, both the control connection and the pool's go through it (the driver takes the
   address it dialled for that of the node that answered). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay;

enum relay_way { RELAY_UP, RELAY_DOWN }; /* to the node, to the driver */

/* Listens on 127.0.0.1, or at path when one is given; passes on to address:port. Fails the test when it cannot. */
struct relay *relay_start(const char *path, const char *address, uint16_t port);
void relay_stop(struct relay *relay); /* cuts what is open */
uint16_t relay_port(const struct relay *relay);
const char *relay_contact(const struct relay *relay); /* "127.0.0.1:1234", or the path */

uint32_t relay_count(struct relay *relay); /* connections so far */
/* The first bytes that the driver sent on the connection of this number, from 0. */
size_t relay_first(struct relay *relay, uint32_t number, uint8_t *out, size_t capacity);

void relay_target(struct relay *relay, const char *address, uint16_t port); /* for new connections */
/* New connections are not passed on: they get these bytes instead, and whatever the driver sends goes nowhere. */
void relay_say(struct relay *relay, const void *bytes, size_t size);
void relay_cut(struct relay *relay);                                        /* closes every connection now */
/* New connections are closed, both ends, after so many bytes that way; only each k-th of them. bytes 0: no longer. */
void relay_cut_after(struct relay *relay, enum relay_way way, uint64_t bytes, uint32_t every);
/* One bit of the byte that comes after `skip` further bytes that way, whatever the connection. */
void relay_flip(struct relay *relay, enum relay_way way, uint64_t skip);
bool relay_flipped(struct relay *relay);
void relay_hold(struct relay *relay, enum relay_way way, bool hold); /* bytes that way wait */

#endif
