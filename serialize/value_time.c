/* SPDX-License-Identifier: Apache-2.0 */
#include "serialize/cqlring_values.h"

#include <string.h>

#include "serialize/buf.h"

/* 1970-01-01 in the ticks of a version-1 uuid: 100 ns since 1582-10-15. */
#define UUID_EPOCH INT64_C(0x01B21DD213814000)

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_dash(int position)
{
    return position == 8 || position == 13 || position == 18 || position == 23;
}

cqlring_status cqlring_uuid_parse(cqlring_bytes text, uint8_t uuid[16])
{
    if (text.size != 36)
        return CQLRING_TYPE;
    const char *at = text.data;
    uint8_t bytes[16];
    int size = 0;
    for (int i = 0; i < 36; i++) {
        if (is_dash(i)) {
            if (at[i] != '-')
                return CQLRING_TYPE;
            continue;
        }
        int high = nibble(at[i]);
        int low = nibble(at[++i]);
        if (high < 0 || low < 0)
            return CQLRING_TYPE;
        bytes[size++] = (uint8_t)(high << 4 | low);
    }
    memcpy(uuid, bytes, sizeof bytes);
    return CQLRING_OK;
}

void cqlring_uuid_format(const uint8_t uuid[16], char text[37])
{
    int at = 0;
    for (int i = 0; i < 16; i++) {
        if (is_dash(at))
            text[at++] = '-';
        text[at++] = "0123456789abcdef"[uuid[i] >> 4];
        text[at++] = "0123456789abcdef"[uuid[i] & 15];
    }
    text[at] = '\0';
}

cqlring_status cqlring_uuid_time(const uint8_t uuid[16], int64_t *time_100ns)
{
    if (uuid[6] >> 4 != 1)
        return CQLRING_TYPE;
    uint64_t low = cqr_load_u32(uuid);
    uint64_t middle = cqr_load_u16(uuid + 4);
    uint64_t high = cqr_load_u16(uuid + 6) & 0x0FFF;
    *time_100ns = (int64_t)(high << 48 | middle << 32 | low) -
                  UUID_EPOCH; /* 60 bits: no overflow */
    return CQLRING_OK;
}

cqlring_status cqlring_uuid_bound(int64_t time_100ns, bool greatest, uint8_t uuid[16])
{
    int64_t ticks;
    if (__builtin_add_overflow(time_100ns, UUID_EPOCH, &ticks) || ticks < 0 ||
        ticks >= INT64_C(1) << 60)
        return CQLRING_TYPE;
    cqr_store_u32(uuid, (uint32_t)ticks);
    cqr_store_u16(uuid + 4, (uint16_t)(ticks >> 32));
    cqr_store_u16(uuid + 6, (uint16_t)(0x1000 | ticks >> 48));
    /* The server compares the other half as signed bytes, so the least is -128 in each. */
    memset(uuid + 8, greatest ? 0x7F : 0x80, 8);
    return CQLRING_OK;
}

void cqlring_date_civil(int32_t days, int32_t *year, uint32_t *month, uint32_t *day)
{
    /* Years that begin on the 1st of March, in eras of 400 of them: a leap day is then a year's
       last day, and all eras are alike. */
    int64_t shifted = (int64_t)days + 719468; /* days from 0000-03-01 to 1970-01-01 */
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
                           day_of_era / 146096) /
                          365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153; /* 0 is March */
    *day = (uint32_t)(day_of_year - (153 * shifted_month + 2) / 5 + 1);
    *month = (uint32_t)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
    *year = (int32_t)(year_of_era + era * 400 + (*month <= 2));
}
