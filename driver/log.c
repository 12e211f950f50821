/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/log.h"

#include <stdarg.h>

#include "driver/failure.h"

/* Longer than any error's message with its node, so only texts of servers are ever cut. */
enum { LINE_SIZE = 1024 };

void cqr_log(const struct log *log, cqlring_log_level level, const char *format, ...)
{
    if (!cqr_log_on(log, level))
        return;
    char line[LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    cqr_text_format(line, sizeof line, format, arguments);
    va_end(arguments);
    /* One line is one line, whatever a server put into its message. */
    for (char *at = line; *at != '\0'; ++at) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = ' ';
    }
    log->call(level, line, log->context);
}
