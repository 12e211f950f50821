/* SPDX-License-Identifier: Apache-2.0 */
/* Literals of CQL text to payloads. */
#include "tests/node/types.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { LITERAL_MAX = 4096, TEXT_MAX = 128 };

/* A NUL-terminated copy of a short slice. */
static bool copy_text(cqlring_bytes text, char *out, size_t size)
{
    if (text.size < 0 || (size_t)text.size >= size)
        return false;
    memcpy(out, text.data, (size_t)text.size);
    out[text.size] = 0;
    return memchr(out, 0, (size_t)text.size) == NULL;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Decimal digits (with '-' in front or not) to a two's complement of any size. */
static bool put_varint(cqlring_bytes text, struct out *out)
{
    bool negative = text.size > 0 && slice_data(text)[0] == '-';
    uint8_t *magnitude = node_zalloc((size_t)text.size / 2 + 2);
    size_t size = (size_t)text.size / 2 + 2; /* little-endian while it grows */
    for (int32_t i = negative; i < text.size; ++i) {
        uint32_t carry = (uint32_t)(slice_data(text)[i] - '0');
        for (size_t j = 0; j < size; ++j) {
            carry += magnitude[j] * 10u;
            magnitude[j] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    if (negative) {
        uint32_t carry = 1;
        for (size_t j = 0; j < size; ++j) {
            carry += (uint8_t)~magnitude[j];
            magnitude[j] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    while (size > 1 && ((magnitude[size - 1] == 0 && magnitude[size - 2] < 0x80) ||
                        (magnitude[size - 1] == 0xFF && magnitude[size - 2] >= 0x80)))
        --size;
    for (size_t j = size; j-- > 0;)
        out_u8(out, magnitude[j]);
    node_free(magnitude);
    return true;
}

static bool is_integer(cqlring_bytes text)
{
    int32_t i = text.size > 0 && slice_data(text)[0] == '-';
    if (i == text.size || text.size > LITERAL_MAX)
        return false;
    for (; i < text.size; ++i) {
        if (!isdigit(slice_data(text)[i]))
            return false;
    }
    return true;
}

static bool to_int64(cqlring_bytes text, int64_t *value)
{
    char copy[TEXT_MAX];
    if (!is_integer(text) || !copy_text(text, copy, sizeof copy))
        return false;
    errno = 0;
    *value = strtoll(copy, NULL, 10);
    return errno == 0;
}

static bool put_decimal(cqlring_bytes text, struct out *out)
{
    struct out digits = {0};
    int64_t scale = 0;
    bool dot = false, any = false;
    int32_t i = 0;
    for (; i < text.size; ++i) {
        uint8_t c = slice_data(text)[i];
        if (c == '.' && !dot) {
            dot = true;
        } else if (isdigit(c) || (c == '-' && i == 0)) {
            out_u8(&digits, c);
            any = any || isdigit(c);
            scale += dot && isdigit(c);
        } else {
            break;
        }
    }
    bool fine = any && text.size <= LITERAL_MAX;
    if (fine && i < text.size) {
        int64_t exponent = 0;
        uint8_t letter = slice_data(text)[i++];
        i += i < text.size && slice_data(text)[i] == '+';
        cqlring_bytes rest = slice_of(slice_data(text) + i, (size_t)(text.size - i));
        fine = (letter == 'e' || letter == 'E') && to_int64(rest, &exponent) &&
               exponent >= -INT32_MAX && exponent <= INT32_MAX;
        scale -= exponent;
        fine = fine && scale == (int32_t)scale;
    }
    if (fine) {
        out_u32(out, (uint32_t)(int32_t)scale);
        fine = put_varint(out_view(&digits, 0), out);
    }
    node_out_fini(&digits);
    return fine;
}

static bool put_real(const struct node_type *type, double value, float single, struct out *out)
{
    if (type->kind == TYPE_DOUBLE) {
        uint64_t raw;
        memcpy(&raw, &value, 8);
        out_u64(out, raw);
    } else {
        uint32_t raw;
        memcpy(&raw, &single, 4);
        out_u32(out, raw);
    }
    return true;
}

bool node_literal_float(const struct node_type *type, cqlring_bytes text, bool negative,
                        struct out *out)
{
    if (type->kind == TYPE_DECIMAL)
        return put_decimal(text, out);
    if (type->kind != TYPE_DOUBLE && type->kind != TYPE_FLOAT)
        return false;
    char copy[LITERAL_MAX];
    if (!copy_text(text, copy, sizeof copy))
        return false;
    if (node_slice_is_nocase(text, "NAN"))
        return type->kind == TYPE_DOUBLE ? (out_u64(out, 0x7FF8000000000000ULL), true)
                                         : (out_u32(out, 0x7FC00000U), true);
    double value = strtod(copy, NULL);
    float single = strtof(copy, NULL);
    return put_real(type, negative ? -value : value, negative ? -single : single, out);
}

bool node_literal_integer(const struct node_type *type, cqlring_bytes text, struct out *out)
{
    int64_t value = 0;
    bool fits = to_int64(text, &value);
    switch (type->kind) {
    case TYPE_VARINT: return is_integer(text) && put_varint(text, out);
    case TYPE_DECIMAL: return put_decimal(text, out);
    case TYPE_DOUBLE:
    case TYPE_FLOAT: return node_literal_float(type, text, false, out);
    case TYPE_BIGINT:
    case TYPE_COUNTER:
    case TYPE_TIMESTAMP:
        if (fits)
            out_u64(out, (uint64_t)value);
        return fits;
    case TYPE_TIME:
        if (fits && value >= 0 && value < 86400000000000)
            out_u64(out, (uint64_t)value);
        return fits && value >= 0 && value < 86400000000000;
    case TYPE_DATE:
        if (fits && value >= 0 && value <= UINT32_MAX)
            out_u32(out, (uint32_t)value);
        return fits && value >= 0 && value <= UINT32_MAX;
    case TYPE_INT:
        if (fits && value == (int32_t)value)
            out_u32(out, (uint32_t)value);
        return fits && value == (int32_t)value;
    case TYPE_SMALLINT:
        if (fits && value == (int16_t)value)
            out_u16(out, (uint16_t)value);
        return fits && value == (int16_t)value;
    case TYPE_TINYINT:
        if (fits && value == (int8_t)value)
            out_u8(out, (uint8_t)value);
        return fits && value == (int8_t)value;
    default: return false;
    }
}

/* --- dates and times -------------------------------------------------------------------------- */

/* Days since 1970-01-01 of a date of the proleptic Gregorian calendar (Howard Hinnant's
   days_from_civil). */
static int64_t days_of(int64_t year, uint32_t month, uint32_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    uint32_t of_era = (uint32_t)(year - era * 400);
    uint32_t of_year = (153 * (month + (month > 2 ? (uint32_t)-3 : 9)) + 2) / 5 + day - 1;
    uint32_t days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    return era * 146097 + (int64_t)days - 719468;
}

static bool take_digits(const char **at, uint32_t count_min, uint32_t count_max, uint32_t *value)
{
    uint32_t count = 0;
    *value = 0;
    while (count < count_max && isdigit((unsigned char)**at)) {
        *value = *value * 10 + (uint32_t)(**at - '0');
        ++*at;
        ++count;
    }
    return count >= count_min;
}

static bool take_date(const char **at, int64_t *days)
{
    bool negative = **at == '-';
    if (negative || **at == '+')
        ++*at;
    uint32_t year, month, day;
    if (!take_digits(at, 1, 7, &year) || *(*at)++ != '-' || !take_digits(at, 1, 2, &month) ||
        *(*at)++ != '-' || !take_digits(at, 1, 2, &day))
        return false;
    static const uint8_t lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12 || day < 1 || day > lengths[month - 1])
        return false;
    *days = days_of(negative ? -(int64_t)year : (int64_t)year, month, day);
    return true;
}

/* hh:mm[:ss[.fraction]] in nanoseconds. */
static bool take_time(const char **at, int64_t *ns)
{
    uint32_t hour, minute, second = 0;
    if (!take_digits(at, 1, 2, &hour) || *(*at)++ != ':' || !take_digits(at, 1, 2, &minute))
        return false;
    int64_t fraction = 0;
    if (**at == ':') {
        ++*at;
        if (!take_digits(at, 1, 2, &second))
            return false;
        if (**at == '.') {
            ++*at;
            int64_t unit = 100000000;
            if (!isdigit((unsigned char)**at))
                return false;
            for (; isdigit((unsigned char)**at); ++*at, unit /= 10)
                fraction += (**at - '0') * unit;
        }
    }
    *ns = (((int64_t)hour * 60 + minute) * 60 + second) * 1000000000 + fraction;
    return hour < 24 && minute < 60 && second < 60;
}

static bool put_timestamp(const char *at, struct out *out)
{
    int64_t days, ns = 0, zone = 0;
    if (!take_date(&at, &days))
        return false;
    if (*at == 'T' || *at == ' ') {
        ++at;
        if (!take_time(&at, &ns))
            return false;
    }
    while (*at == ' ')
        ++at;
    if (*at == 'Z' || *at == 'z') {
        ++at;
    } else if (strncmp(at, "UTC", 3) == 0 || strncmp(at, "GMT", 3) == 0) {
        at += 3;
    } else if (*at == '+' || *at == '-') {
        int64_t sign = *at++ == '-' ? -1 : 1;
        uint32_t hours, minutes = 0;
        if (!take_digits(&at, 2, 2, &hours))
            return false;
        if (*at == ':')
            ++at;
        (void)take_digits(&at, 2, 2, &minutes);
        zone = sign * (int64_t)(hours * 60 + minutes) * 60000;
    }
    out_u64(out, (uint64_t)(days * 86400000 + ns / 1000000 - zone));
    return *at == 0;
}

bool node_literal_string(const struct node_type *type, cqlring_bytes text, struct out *out)
{
    if (type->kind == TYPE_TEXT || type->kind == TYPE_ASCII) {
        out_slice(out, text);
        return node_value_check(type, text) == NULL;
    }
    char copy[TEXT_MAX];
    if (!copy_text(text, copy, sizeof copy))
        return false;
    const char *at = copy;
    int64_t number;
    switch (type->kind) {
    case TYPE_INET: {
        uint8_t address[16];
        if (inet_pton(AF_INET, copy, address) == 1) {
            out_raw(out, address, 4);
            return true;
        }
        if (inet_pton(AF_INET6, copy, address) == 1) {
            out_raw(out, address, 16);
            return true;
        }
        return false;
    }
    case TYPE_TIMESTAMP:
        if (to_int64(text, &number)) {
            out_u64(out, (uint64_t)number);
            return true;
        }
        return put_timestamp(copy, out);
    case TYPE_DATE:
        if (to_int64(text, &number) && number >= 0 && number <= UINT32_MAX) {
            out_u32(out, (uint32_t)number);
            return true;
        }
        if (!take_date(&at, &number) || *at != 0)
            return false;
        number += INT64_C(1) << 31;
        if (number >= 0 && number <= UINT32_MAX)
            out_u32(out, (uint32_t)number);
        return number >= 0 && number <= UINT32_MAX;
    case TYPE_TIME:
        if (to_int64(text, &number) && number >= 0 && number < 86400000000000) {
            out_u64(out, (uint64_t)number);
            return true;
        }
        if (!take_time(&at, &number) || *at != 0)
            return false;
        out_u64(out, (uint64_t)number);
        return true;
    case TYPE_UUID:
    case TYPE_TIMEUUID: return node_literal_uuid(type, text, out);
    case TYPE_DURATION: return node_literal_duration(text, out);
    default: return false;
    }
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool node_literal_uuid(const struct node_type *type, cqlring_bytes text, struct out *out)
{
    if ((type->kind != TYPE_UUID && type->kind != TYPE_TIMEUUID) || text.size != 36)
        return false;
    uint8_t uuid[16];
    uint32_t count = 0;
    for (int32_t i = 0; i < 36; ++i) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (slice_data(text)[i] != '-')
                return false;
            continue;
        }
        int digit = hex_digit(slice_data(text)[i]);
        if (digit < 0)
            return false;
        uuid[count / 2] = (uint8_t)(count % 2 == 0 ? digit << 4 : uuid[count / 2] | digit);
        ++count;
    }
    out_raw(out, uuid, 16);
    return node_value_check(type, slice_of(uuid, 16)) == NULL;
}

bool node_literal_blob(cqlring_bytes text, struct out *out)
{
    if (text.size % 2 != 0)
        return false;
    for (int32_t i = 0; i < text.size; i += 2) {
        int high = hex_digit(slice_data(text)[i]), low = hex_digit(slice_data(text)[i + 1]);
        if (high < 0 || low < 0)
            return false;
        out_u8(out, (uint8_t)(high << 4 | low));
    }
    return true;
}

/* --- durations -------------------------------------------------------------------------------- */

static const struct {
    const char *unit;
    uint8_t part; /* 0 months, 1 days, 2 nanoseconds */
    int64_t factor;
} units[] = {
    {"y", 0, 12},
    {"mo", 0, 1},
    {"w", 1, 7},
    {"d", 1, 1},
    {"h", 2, 3600000000000},
    {"m", 2, 60000000000},
    {"s", 2, 1000000000},
    {"ms", 2, 1000000},
    {"us", 2, 1000},
    {"\xC2\xB5s", 2, 1000},
    {"ns", 2, 1},
};

static bool add_part(int64_t parts[3], uint32_t part, int64_t number, int64_t factor)
{
    int64_t product;
    return !__builtin_mul_overflow(number, factor, &product) &&
           !__builtin_add_overflow(parts[part], product, &parts[part]);
}

static bool take_int64(const char **at, int64_t *value)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0;
}

static bool take_units(const char *at, int64_t parts[3])
{
    while (*at != 0) {
        int64_t number;
        if (!take_int64(&at, &number))
            return false;
        char unit[5] = {0};
        for (uint32_t i = 0; i < 4 && *at != 0 && !isdigit((unsigned char)*at); ++i)
            unit[i] = (char)tolower((unsigned char)*at++);
        bool known = false;
        for (size_t i = 0; i < sizeof units / sizeof units[0] && !known; ++i) {
            known = strcmp(unit, units[i].unit) == 0;
            if (known && !add_part(parts, units[i].part, number, units[i].factor))
                return false;
        }
        if (!known)
            return false;
    }
    return true;
}

/* Behind the P: 1Y2M3DT4H5M6S, 3W, or 0001-02-03T04:05:06. */
static bool take_iso(const char *at, int64_t parts[3])
{
    uint32_t a[6];
    int used = 0;
    if (sscanf(at, "%4u-%2u-%2uT%2u:%2u:%2u%n", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &used) ==
            6 &&
        at[used] == 0) {
        parts[0] = (int64_t)a[0] * 12 + a[1];
        parts[1] = a[2];
        parts[2] = (((int64_t)a[3] * 60 + a[4]) * 60 + a[5]) * 1000000000;
        return true;
    }
    bool time = false;
    while (*at != 0) {
        if (*at == 'T' || *at == 't') {
            time = true;
            ++at;
            continue;
        }
        int64_t number;
        if (!take_int64(&at, &number))
            return false;
        char unit = (char)toupper((unsigned char)*at++);
        bool fine;
        switch (unit) {
        case 'Y': fine = !time && add_part(parts, 0, number, 12); break;
        case 'M':
            fine = time ? add_part(parts, 2, number, 60000000000) : add_part(parts, 0, number, 1);
            break;
        case 'W': fine = !time && add_part(parts, 1, number, 7); break;
        case 'D': fine = !time && add_part(parts, 1, number, 1); break;
        case 'H': fine = time && add_part(parts, 2, number, 3600000000000); break;
        case 'S': fine = time && add_part(parts, 2, number, 1000000000); break;
        default: fine = false; break;
        }
        if (!fine)
            return false;
    }
    return true;
}

bool node_literal_duration(cqlring_bytes text, struct out *out)
{
    char copy[TEXT_MAX];
    if (!copy_text(text, copy, sizeof copy))
        return false;
    const char *at = copy;
    bool negative = *at == '-';
    at += negative;
    int64_t parts[3] = {0};
    bool fine = *at == 'P' || *at == 'p' ? take_iso(at + 1, parts)
                                         : *at != 0 && take_units(at, parts);
    if (!fine || parts[0] > INT32_MAX || parts[1] > INT32_MAX)
        return false;
    for (int i = 0; i < 3; ++i) {
        int64_t part = negative ? -parts[i] : parts[i];
        node_put_vint(out, (uint64_t)part << 1 ^ (uint64_t)(part >> 63));
    }
    return true;
}
