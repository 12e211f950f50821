/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_ROOM_H
#define CQR_ROOM_H

/* Who waits until a session has room for one more single request (cqlring_session_room). They stand in a list of lane 0's
   submitter, oldest first; a request that ends on whatever lane asks it, by a message, to look at them. While nobody waits that is
   one load. Room is told of, not kept: among those who are told at once there is enough for all. */

#include "driver/session.h"

/* Any thread, after a request has given back what it had. */
void cqr_room_look(struct cqlring_session *session);
static inline void cqr_room_came_free(struct cqlring_session *session)
{
    /* seq_cst, as the giving back before it and what wait_run does: either it sees the room or this sees it waiting */
    if (atomic_load_explicit(&session->room_waiters, memory_order_seq_cst) > 0)
        cqr_room_look(session);
}
/* Lane 0's submitter. */
void cqr_room_timer(struct lane *lane, struct timer *timer);
void cqr_room_close(struct lane *lane, struct cqlring_session *session); /* everybody who waits is told CLOSED */

#endif
