/* SPDX-License-Identifier: Apache-2.0 */

/* What a node that asks who we are is answered: PLAIN from user and password, or what the application's authenticator says. The
   question comes up from the reactor as an AUTH entry, the answer goes down as COMMAND_AUTH; at most one is under way on a
   connection. Submitter. */

#include <stdio.h>

#include "driver/authenticate.h"
#include "driver/lane.h"
#include "driver/session.h"

struct auth_exchange {
    uint32_t round;
    uint8_t state[CQLRING_AUTH_STATE_SIZE]; /* the application's */
};

static bool may_ask(const struct cqlring_cluster *cluster)
{
    /* acquire: pairs with the close's release */
    return atomic_load_explicit(&((struct cqlring_cluster *)(uintptr_t)cluster)->state, memory_order_acquire) < HANDLE_CLOSING;
}

static cqlring_auth_exchange exchange_of(struct conn *conn)
{
    return (cqlring_auth_exchange){.address = conn->text,
                                   .authenticator = conn->authenticator,
                                   .round = conn->exchange->round,
                                   .challenge = {conn->challenge_size >= 0 ? conn->challenge : NULL, conn->challenge_size},
                                   .state = conn->exchange->state};
}

static void plain(struct conn *conn, const struct cqlring_cluster *cluster)
{
    uint32_t size = 0;
    if (cluster->user == NULL)
        snprintf(conn->refusal, sizeof conn->refusal, "asks for credentials (%s) and none were given: set user and password", conn->authenticator);
    else if (cqr_auth_plain(cqlring_text(cluster->user), cqlring_text(cluster->password), conn->token, sizeof conn->token, &size) == CQLRING_OK)
        conn->token_size = (int32_t)size;
}

static void custom(struct conn *conn, const struct cqlring_cluster *cluster)
{
    if (conn->exchange == NULL)
        conn->exchange = cqr_mem_zalloc(sizeof *conn->exchange);
    if (conn->exchange == NULL) {
        snprintf(conn->refusal, sizeof conn->refusal, "asks for credentials, and there is no memory to answer");
        return;
    }
    cqlring_error error = {.status = CQLRING_AUTH};
    cqlring_auth_exchange exchange = exchange_of(conn);
    int32_t size = cluster->authenticator.respond(&exchange, conn->token, sizeof conn->token, &error, cluster->authenticator.context);
    conn->exchange->round++;
    if (size >= -1 && size <= (int32_t)sizeof conn->token) {
        conn->token_size = size;
        return;
    }
    if (size > 0)
        snprintf(error.message, sizeof error.message, "its token of %d bytes is larger than %zu", size, sizeof conn->token);
    snprintf(conn->refusal, sizeof conn->refusal, "asks for credentials (%.60s), and the authenticator refuses: %.200s", conn->authenticator,
             error.message[0] != '\0' ? error.message : "it gives no reason");
}

void cqr_link_auth(struct lane *lane, struct conn *conn)
{
    const struct cqlring_cluster *cluster = conn->cluster;
    (void)lane;
    conn->token_size = -2;
    conn->refusal[0] = '\0';
    if (conn->home != NULL && may_ask(cluster)) { /* else it is being given up */
        if (cluster->authenticator.respond != NULL)
            custom(conn, cluster);
        else
            plain(conn, cluster);
    }
    cqr_conn_command(conn, COMMAND_AUTH);
}

bool cqr_auth_finished(struct conn *conn)
{
    const struct cqlring_cluster *cluster = conn->cluster;
    if (conn->exchange == NULL || cluster->authenticator.finished == NULL || conn->home == NULL || !may_ask(cluster))
        return true;
    cqlring_auth_exchange exchange = exchange_of(conn);
    return cluster->authenticator.finished(&exchange, cluster->authenticator.context);
}

void cqr_auth_end(struct conn *conn)
{
    volatile uint8_t *at = (volatile uint8_t *)conn->exchange;
    for (size_t i = 0; at != NULL && i < sizeof *conn->exchange; i++)
        at[i] = 0;
    cqr_mem_free(conn->exchange);
    conn->exchange = NULL;
}
