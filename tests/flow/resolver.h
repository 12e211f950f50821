/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RESOLVER_H
#define RESOLVER_H

/* For the one file of a test program that brings its own resolver: its getaddrinfo makes its list with these. Defines freeaddrinfo, so
   whatever the system's resolver has made must not come here. */

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint lookups, on_other_threads; /* of them, not on the resolver's thread */

static inline void resolver_count(void)
{
    char thread[16] = "";
    atomic_fetch_add(&lookups, 1);
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    if (strcmp(thread, "cqlring-dns") != 0)
        atomic_fetch_add(&on_other_threads, 1);
}

/* In front of the list. */
static inline void resolver_add(struct addrinfo **list, uint32_t ipv4, const char *service)
{
    struct addrinfo *info = calloc(1, sizeof *info);
    struct sockaddr_in *address = calloc(1, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(ipv4);
    address->sin_port = service != NULL ? htons((uint16_t)atoi(service)) : 0;
    *info = (struct addrinfo){.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_addrlen = sizeof *address, .ai_addr = (struct sockaddr *)(void *)address,
                              .ai_next = *list};
    *list = info;
}

void freeaddrinfo(struct addrinfo *info)
{
    while (info != NULL) {
        struct addrinfo *next = info->ai_next;
        free(info->ai_addr);
        free(info);
        info = next;
    }
}

#endif
