/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_RESOLVE_H
#define CQR_RESOLVE_H

/* Contact points: parsed, and names asked for on a thread of their own, because getaddrinfo waits (decision 17). The thread
   owns counted memory and ends alone; nobody joins it, nobody waits for it at exit (decision 6). */

#include "driver/net.h"
#include "serialize/cqlring_types.h"

enum { CONTACT_POINTS_MAX = 256, ADDRESSES_MAX = 512 };

struct contact_point {
    char host[256];
    uint16_t port;
};

/* "host, host:port, [v6]:port, /unix/path": CQLRING_INVALID names the part that cannot be read and why. */
cqlring_status cqr_contact_points_parse(const char *text, uint16_t port, struct contact_point **points, uint32_t *count, cqlring_error *error);

struct resolved_address {
    struct address address;
    uint32_t point;                 /* which contact point it came from */
};

struct resolution {
    struct resolved_address *addresses; /* literals and all addresses of all names that resolved; cqr_mem_free */
    uint32_t count;
    char failures[512];             /* names that did not, with the resolver's words; "" if none */
};

/* What stands between, without the blanks around it: of lists in options. */
cqlring_bytes cqr_trim(const char *from, const char *end);
/* One whose address somebody has to be asked for. */
bool cqr_contact_is_name(const struct contact_point *point);
bool cqr_contacts_have_names(const struct contact_point *points, uint32_t count);
/* Now, on this thread (caller mode). */
cqlring_status cqr_resolve(const struct contact_point *points, uint32_t count, struct resolution *out);
/* Those alone that need nobody's answer; the names are among the failures, with `why`. */
cqlring_status cqr_resolve_literals(const struct contact_point *points, uint32_t count, const char *why, struct resolution *out);
/* On a thread: `done` is called there, always, with the resolution and the context. The struct is borrowed until it returns;
   its addresses are the receiver's (cqr_mem_free; NULL when there was no memory for them). points are copied. When all
   points are literals, done is called at once on the calling thread. */
cqlring_status cqr_resolve_start(const struct contact_point *points, uint32_t count, void (*done)(struct resolution *resolution, void *context), void *context);

#endif
