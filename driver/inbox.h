/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_INBOX_H
#define CQR_INBOX_H

/* Many producers, one consumer, intrusive: a push is one compare-and-swap, the consumer takes everything at once and gets
   it oldest first. Cannot be full: what is pushed is bounded where it is created. Once closed, pushes are refused, so
   nothing can be left behind in it. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct inbox_item {
    struct inbox_item *next;
};

struct inbox {
    _Alignas(128) _Atomic(struct inbox_item *) newest;
};

#define CQR_INBOX_CLOSED ((struct inbox_item *)1)

/* Any thread. Several at once, which hang together by `next` from the newest to the oldest. False when the inbox is closed: they
   stay the caller's. */
static inline bool cqr_inbox_push_all(struct inbox *inbox, struct inbox_item *newest, struct inbox_item *oldest)
{
    struct inbox_item *before = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    do {
        if (before == CQR_INBOX_CLOSED)
            return false;
        oldest->next = before;
        /* release: pairs with the acquire in cqr_inbox_take */
    } while (!atomic_compare_exchange_weak_explicit(&inbox->newest, &before, newest, memory_order_release, memory_order_relaxed));
    return true;
}

static inline bool cqr_inbox_push(struct inbox *inbox, struct inbox_item *item)
{
    return cqr_inbox_push_all(inbox, item, item);
}

static inline struct inbox_item *cqr_inbox_reverse(struct inbox_item *item)
{
    struct inbox_item *oldest = NULL;
    while (item != NULL) {
        struct inbox_item *next = item->next;
        item->next = oldest;
        oldest = item;
        item = next;
    }
    return oldest;
}

/* Everything pushed so far, oldest first, NULL when there is nothing. Consumer only. */
static inline struct inbox_item *cqr_inbox_take(struct inbox *inbox)
{
    if (atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL)
        return NULL;
    return cqr_inbox_reverse(atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire));
}

/* The consumer's last take: what was still inside, oldest first; later pushes are refused. */
static inline struct inbox_item *cqr_inbox_close(struct inbox *inbox)
{
    return cqr_inbox_reverse(atomic_exchange_explicit(&inbox->newest, CQR_INBOX_CLOSED, memory_order_acquire));
}

static inline bool cqr_inbox_is_empty(struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->newest, memory_order_acquire) == NULL;
}

#endif
