/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_LOG_H
#define CQR_LOG_H

/* Log lines: made only when somebody listens at that level; handed to the runtime's callback on the submitter (or the thread
   that opens and closes handles). The reactor does not log: what it has to say travels with COMPLETION_DOWN. Never a secret. */

#include <stdarg.h>

#include "driver/cqlring.h"

struct log {
    void (*call)(cqlring_log_level level, const char *line, void *context);
    void *context;
    cqlring_log_level level;
};

static inline bool cqr_log_on(const struct log *log, cqlring_log_level level)
{
    return log->call != NULL && level <= log->level;
}
/* Longer than any error's message with its node, so only texts of servers are ever cut. */
enum { LOG_LINE_SIZE = 1024 };
/* One line is one line, whatever a server put into its message. */
void cqr_log_line(char *line, size_t size, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));
void cqr_log(const struct log *log, cqlring_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
