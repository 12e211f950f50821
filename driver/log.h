/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_LOG_H
#define CQR_LOG_H

/* Log lines: made only when somebody listens at that level; handed to the runtime's callback on the submitter (or the thread
   that opens and closes handles). The reactor does not log: what it has to say travels with COMPLETION_DOWN. Never a secret. */

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
void cqr_log(const struct log *log, cqlring_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
