/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_TEXT_H
#define CQR_TEXT_H

/* Text written like snprintf: what does not fit is cut, and the whole length is known in the end. Its maker's thread. */

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct text {
    char *at;
    size_t size, needed; /* needed: without the NUL */
};

static inline struct text cqr_text_make(char *buffer, size_t size)
{
    struct text text = {.at = buffer, .size = buffer != NULL ? size : 0};
    if (text.size > 0)
        buffer[0] = '\0';
    return text;
}

__attribute__((format(printf, 2, 3))) static inline void cqr_text_put(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->needed < text->size ? text->size - text->needed : 0;
    int length = vsnprintf(room > 0 ? text->at + text->needed : NULL, room, format, arguments);
    va_end(arguments);
    text->needed += length > 0 ? (size_t)length : 0;
}

#endif
