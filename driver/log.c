/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/log.h"

#include "driver/failure.h"

void cqr_log_line(char *line, size_t size, const char *format, va_list arguments)
{
    cqr_text_format(line, size, format, arguments);
    for (char *at = line; *at != '\0'; ++at) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = ' ';
    }
}

void cqr_log(const struct log *log, cqlring_log_level level, const char *format, ...)
{
    if (!cqr_log_on(log, level))
        return;
    char line[LOG_LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    cqr_log_line(line, sizeof line, format, arguments);
    va_end(arguments);
    log->call(level, line, log->context);
}
