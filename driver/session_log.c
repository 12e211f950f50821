/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/session_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "driver/log.h"
#include "driver/prepared.h"
#include "driver/runtime.h"
#include "driver/session.h"

enum { EVERY_US = 1000000 };

static struct log_limit *limit_of(struct log_limit limits[LOG_LIMITS], cqlring_event event)
{
    switch (event) {
    case CQLRING_EVENT_WARNING: return &limits[0];
    case CQLRING_EVENT_GAVE_UP: return &limits[1];
    case CQLRING_EVENT_OVERLOADED: return &limits[2];
    default: return NULL;
    }
}

static bool is_on(const struct lane *lane, const struct session_lane *part, cqlring_log_level level)
{
    return part != NULL ? level <= part->session->log_level : cqr_log_on(&lane->runtime->log, level);
}

/* part NULL: the runtime's log */
static void tell(struct lane *lane, struct session_lane *part, const struct log_news *news, const char *format, va_list arguments)
{
    if (!is_on(lane, part, news->level))
        return;
    struct log_limit *limit = limit_of(part != NULL ? part->log_limits : lane->log_limits, news->event);
    uint32_t more = news->more;
    if (limit != NULL && lane->now_us < limit->again_us) {
        limit->unsaid += 1 + more;
        return;
    }
    if (limit != NULL) {
        more += limit->unsaid;
        *limit = (struct log_limit){.again_us = lane->now_us + EVERY_US};
    }
    char line[LOG_LINE_SIZE];
    cqr_log_line(line, sizeof line, format, arguments);
    if (part == NULL) {
        char others[48] = "";
        if (more > 0)
            snprintf(others, sizeof others, " (and %u more since the last)", more);
        cqr_log(&lane->runtime->log, news->level, "%s%s", line, others);
        return;
    }
    const struct cqlring_session *session = part->session;
    const struct statement_version *version = news->version;
    cqlring_log_event event = {.level = news->level,
                               .event = news->event,
                               .message = line,
                               .node = news->node,
                               .address = news->node != NULL ? cqr_node_place(news->node)->text : "",
                               .keyspace = version != NULL && version->keyspace[0] != '\0' ? version->keyspace : session->keyspace,
                               .statement = {NULL, 0},
                               .status = news->status,
                               .server_code = news->server_code,
                               .more = more};
    if (version != NULL)
        event.statement = (cqlring_bytes){version->prepared->text, (int32_t)version->prepared->text_size};
    session->log(&event, session->log_context);
}

void cqr_pool_log(struct lane *lane, struct pool *pool, const struct log_news *news, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    uint32_t listeners = 0;
    for (struct session_lane *part = pool != NULL ? pool->listeners : NULL; part != NULL; part = part->next_listener) {
        va_copy(again, arguments);
        tell(lane, part, news, format, again);
        va_end(again);
        listeners++;
    }
    if (pool == NULL || listeners < pool->users || listeners == 0)
        tell(lane, NULL, news, format, arguments);
    va_end(arguments);
}

/* NULL: it has no log, or there is none: the request is the driver's own. */
static struct session_lane *part_of_session(const struct lane *lane, struct cqlring_session *session)
{
    return session != NULL && session->log != NULL ? &session->lanes[lane->index] : NULL;
}

static struct session_lane *part_of(const struct lane *lane, const struct op *op)
{
    return part_of_session(lane, op->plan->session);
}

void cqr_session_log(struct lane *lane, struct cqlring_session *session, const struct log_news *news, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(lane, part_of_session(lane, session), news, format, arguments);
    va_end(arguments);
}

bool cqr_request_log_on(const struct lane *lane, const struct op *op, cqlring_log_level level)
{
    return is_on(lane, part_of(lane, op), level);
}

void cqr_request_log(struct lane *lane, const struct op *op, const struct log_news *news, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(lane, part_of(lane, op), news, format, arguments);
    va_end(arguments);
}

void cqr_request_log_failed(struct lane *lane, const struct op *op)
{
    if (op->tries == 0 || op->uncounted || op->status == CQLRING_CANCELLED || op->status == CQLRING_CLOSED || op->plan->session == NULL)
        return;
    const cqlring_error *error = &op->failure->error;
    struct log_news news = {.level = CQLRING_LOG_WARN, .event = CQLRING_EVENT_GAVE_UP, .node = op->node, .version = op->version, .status = op->status, .server_code = error->server_code};
    cqr_request_log(lane, op, &news, "given up after %u attempts: %s", op->attempts, error->message);
}
