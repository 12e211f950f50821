/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "serialize/cqlring_types.h"

const char *cqlring_status_name(cqlring_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, text) \
    case number: return #name;
        CQLRING_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *cqlring_status_text(cqlring_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text) \
    case number: return text;
        CQLRING_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
