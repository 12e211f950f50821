/* SPDX-License-Identifier: Apache-2.0 */
/* Scalars both ways, and the writer. Nested values are in test_value_nested.c, dates, uuids and
   texts in test_value_time.c. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/value.h"

static uint8_t room[4096];
static cqlring_writer writer;

static void set_up(void)
{
    memset(room, 0xEE, sizeof room);
    cqlring_writer_init(&writer, room, sizeof room);
}

/* Hex of the value just written, or the name of the status. */
static const char *taken(void)
{
    static char text[2 * sizeof room + 1];
    cqlring_bytes cell;
    cqlring_status status = cqlring_writer_take(&writer, &cell, NULL);
    if (status != CQLRING_OK) {
        ck_assert_int_eq(cell.size, CQLRING_NULL);
        return cqlring_status_name(status);
    }
    if (cell.size < 0)
        return cell.size == CQLRING_NULL ? "null" : "unset";
    const uint8_t *bytes = cell.data;
    text[0] = '\0';
    for (int32_t i = 0; i < cell.size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return text;
}

static const char *hex_of_int(int64_t value, uint32_t size)
{
    cqlring_put_int(&writer, value, size);
    return taken();
}

static const char *hex_of_duration(int32_t months, int32_t days, int64_t nanoseconds)
{
    cqlring_put_duration(&writer, months, days, nanoseconds);
    return taken();
}

static cqlring_bytes cell_of(const void *data, int32_t size)
{
    return (cqlring_bytes){.data = data, .size = size};
}

/* --- vints
   -------------------------------------------------------------------------------------- */

START_TEST(vints_take_the_fewest_bytes_and_come_back)
{
    for (uint32_t bits = 0; bits < 64; bits++) {
        for (int64_t off = -1; off <= 1; off++) {
            uint64_t value = (UINT64_C(1) << bits) + (uint64_t)off;
            uint8_t bytes[9];
            uint32_t size = cqlring_vint_encode(value, bytes);
            uint32_t wanted = 1;
            while (wanted < 9 && value >> (7 * wanted) != 0)
                wanted++;
            ck_assert_uint_eq(size, wanted);
            ck_assert_uint_eq(cqr_vint_size(value), wanted);
            uint64_t back = ~value;
            ck_assert_uint_eq(cqlring_vint_decode(bytes, size, &back), size);
            ck_assert_uint_eq(back, value);
            for (uint32_t cut = 0; cut < size; cut++)
                ck_assert_uint_eq(cqlring_vint_decode(bytes, cut, &back), 0);
        }
    }
}
END_TEST

START_TEST(zigzag_is_undone)
{
    const int64_t values[] = {0, -1, 1, -2, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        ck_assert_int_eq(cqr_unzigzag(cqr_zigzag(values[i])), values[i]);
    ck_assert_uint_eq(cqr_zigzag(INT64_MIN), UINT64_MAX);
}
END_TEST

/* --- integers
   ----------------------------------------------------------------------------------- */

START_TEST(ty_11_integers_have_the_size_of_their_type_or_are_refused)
{
    ck_assert_str_eq(hex_of_int(5, 8), "0000000000000005");
    ck_assert_str_eq(hex_of_int(-1, 8), "ffffffffffffffff");
    ck_assert_str_eq(hex_of_int(INT64_MAX, 8), "7fffffffffffffff");
    ck_assert_str_eq(hex_of_int(INT64_C(1) << 31, 4), "TYPE");
    ck_assert_str_eq(hex_of_int(INT32_MAX, 4), "7fffffff");
    ck_assert_str_eq(hex_of_int(INT32_MIN, 4), "80000000");
    ck_assert_str_eq(hex_of_int(INT64_C(-1) - INT32_MAX - 1, 4), "TYPE");
    ck_assert_str_eq(hex_of_int(200, 1), "TYPE");
    ck_assert_str_eq(hex_of_int(-128, 1), "80");
    ck_assert_str_eq(hex_of_int(1, 3), "INVALID");
    ck_assert_str_eq(hex_of_int(1, 16), "INVALID");
}
END_TEST

START_TEST(ty_12_unsigned_host_values_do_not_wrap)
{
    ck_assert_str_eq(hex_of_int(255, 1), "TYPE");
    ck_assert_str_eq(hex_of_int(65535, 2), "TYPE");
    ck_assert_str_eq(hex_of_int(32767, 2), "7fff");
    ck_assert_str_eq(hex_of_int(-32769, 2), "TYPE");
    int64_t value = 0;
    ck_assert_int_eq(cqlring_get_int(cell_of("\xFF", 1), 1, &value), CQLRING_OK);
    ck_assert_int_eq(value, -1);
    ck_assert_int_eq(cqlring_get_int(cell_of("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8), 8, &value),
                     CQLRING_OK);
    ck_assert_int_eq(value, -1);
}
END_TEST

START_TEST(integers_of_each_size_come_back)
{
    static const uint32_t sizes[] = {1, 2, 4, 8, 0};
    for (size_t s = 0; s < 5; s++) {
        uint32_t bits = sizes[s] == 0 ? 64 : 8 * sizes[s];
        for (uint32_t bit = 0; bit < bits; bit++) {
            for (int sign = 0; sign < 2; sign++) {
                /* 2^bit and -2^bit; the largest where 2^bit does not fit */
                int64_t most = (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
                int64_t value = bit + 1 == bits ? most : (int64_t)(UINT64_C(1) << bit);
                if (sign == 1)
                    value = bit + 1 == bits ? -most - 1 : -value;
                cqlring_put_int(&writer, value, sizes[s]);
                cqlring_bytes cell;
                ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
                int64_t back = 0;
                ck_assert_int_eq(cqlring_get_int(cell, sizes[s], &back), CQLRING_OK);
                ck_assert_int_eq(back, value);
            }
        }
    }
}
END_TEST

START_TEST(a_wrong_size_is_a_type_error_and_stores_nothing)
{
    static const uint8_t bytes[9] = {0};
    static const uint32_t sizes[] = {1, 2, 4, 8};
    int64_t value = 77;
    for (size_t s = 0; s < 4; s++) {
        for (int32_t size = 1; size <= 9; size++) {
            if ((uint32_t)size != sizes[s])
                ck_assert_int_eq(cqlring_get_int(cell_of(bytes, size), sizes[s], &value),
                                 CQLRING_TYPE);
        }
    }
    float number = 77;
    ck_assert_int_eq(cqlring_get_float(cell_of(bytes, 8), &number), CQLRING_TYPE);
    ck_assert_int_eq(cqlring_get_float(cell_of(bytes, 3), &number), CQLRING_TYPE);
    ck_assert_int_eq(value, 77);
    ck_assert(number == 77);
}
END_TEST

/* --- varint and decimal
   -------------------------------------------------------------------------- */

START_TEST(varints_are_written_in_their_shortest_form)
{
    ck_assert_str_eq(hex_of_int(0, 0), "00");
    ck_assert_str_eq(hex_of_int(127, 0), "7f");
    ck_assert_str_eq(hex_of_int(128, 0), "0080");
    ck_assert_str_eq(hex_of_int(-128, 0), "80");
    ck_assert_str_eq(hex_of_int(-129, 0), "ff7f");
    ck_assert_str_eq(hex_of_int(INT64_MIN, 0), "8000000000000000");
    cqlring_put_varint(&writer, cell_of("\0\0\0\x7F", 4));
    ck_assert_str_eq(taken(), "7f");
    cqlring_put_varint(&writer, cell_of("\xFF\xFF\xFF", 3));
    ck_assert_str_eq(taken(), "ff");
    cqlring_put_varint(&writer, cell_of("\0\0\0", 3));
    ck_assert_str_eq(taken(), "00");
    cqlring_put_varint(&writer, cell_of("\0\x80\0\0\0\0\0\0\0\0", 10));
    ck_assert_str_eq(taken(), "00800000000000000000");
    cqlring_put_varint(&writer, cell_of("", 0));
    ck_assert_str_eq(taken(), "TYPE");
    cqlring_put_varint(&writer, cell_of(NULL, CQLRING_NULL));
    ck_assert_str_eq(taken(), "TYPE");
}
END_TEST

START_TEST(padded_varints_are_read_and_large_ones_told)
{
    int64_t value = 0;
    ck_assert_int_eq(cqlring_get_int(cell_of("\0\0\x7F", 3), 0, &value), CQLRING_OK);
    ck_assert_int_eq(value, 127);
    ck_assert_int_eq(
        cqlring_get_int(cell_of("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE", 11), 0, &value),
        CQLRING_OK);
    ck_assert_int_eq(value, -2);
    ck_assert_int_eq(cqlring_get_int(cell_of("\0\x80\0\0\0\0\0\0\0", 9), 0, &value),
                     CQLRING_TOO_LARGE);
    ck_assert_int_eq(value, -2);
}
END_TEST

START_TEST(nv_04_empty_varint_and_decimal_are_not_zero)
{
    int64_t value = 77;
    int32_t scale = 77;
    cqlring_bytes unscaled = {.size = 77};
    ck_assert_int_eq(cqlring_get_int(cell_of("", 0), 0, &value), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_get_int(cell_of("", 0), 4, &value), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_get_int(cell_of(NULL, CQLRING_NULL), 4, &value), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_get_decimal(cell_of("", 0), &scale, &unscaled), CQLRING_INVALID);
    for (int32_t size = 1; size <= 4; size++)
        ck_assert_int_eq(cqlring_get_decimal(cell_of("\0\0\0\0", size), &scale, &unscaled),
                         CQLRING_TYPE);
    ck_assert_int_eq(value, 77);
    ck_assert_int_eq(scale, 77);
    ck_assert_int_eq(unscaled.size, 77);
    ck_assert_int_eq(cqlring_value_check(cqr_type_scalar(CQLRING_KIND_VARINT), cell_of("", 0)),
                     CQLRING_OK);
    ck_assert_int_eq(cqlring_value_check(cqr_type_scalar(CQLRING_KIND_DECIMAL), cell_of("", 0)),
                     CQLRING_OK);
    ck_assert_int_eq(cqlring_value_check(cqr_type_scalar(CQLRING_KIND_DECIMAL), cell_of("abc", 3)),
                     CQLRING_TYPE);
}
END_TEST

START_TEST(decimals_keep_scale_and_unscaled_apart)
{
    cqlring_put_decimal(&writer, -3, cell_of("\0\x01", 2));
    ck_assert_str_eq(taken(), "fffffffd01");
    cqlring_put_decimal(&writer, 0, cell_of("", 0));
    ck_assert_str_eq(taken(), "TYPE");
    int32_t scale = 0;
    cqlring_bytes unscaled;
    ck_assert_int_eq(cqlring_get_decimal(cell_of("\x80\0\0\0\xFF\x7F", 6), &scale, &unscaled),
                     CQLRING_OK);
    ck_assert_int_eq(scale, INT32_MIN);
    ck_assert_int_eq(unscaled.size, 2);
    ck_assert_mem_eq(unscaled.data, "\xFF\x7F", 2);
}
END_TEST

START_TEST(ty_30_a_decimal_of_400_digits_comes_back)
{
    uint8_t digits[167]; /* 10^400 has 167 bytes */
    for (size_t i = 0; i < sizeof digits; i++)
        digits[i] = (uint8_t)(i * 37 + 1);
    cqlring_put_decimal(&writer, 200, cell_of(digits, sizeof digits));
    cqlring_bytes cell;
    ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
    int32_t scale = 0;
    cqlring_bytes unscaled;
    ck_assert_int_eq(cqlring_get_decimal(cell, &scale, &unscaled), CQLRING_OK);
    ck_assert_int_eq(scale, 200);
    ck_assert_int_eq(unscaled.size, sizeof digits);
    ck_assert_mem_eq(unscaled.data, digits, sizeof digits);
}
END_TEST

/* --- duration --------------------------------------------------------------------------------- */

START_TEST(ty_06_large_durations_encode_to_known_bytes)
{
    static const struct {
        int32_t months, days;
        int64_t nanoseconds;
        const char *hex;
    } cases[] = {{1, 2, INT64_C(1) << 33, "0204f400000000"},
                 {-1, -2, -3, "010305"},
                 {INT32_MIN, INT32_MIN, INT64_MIN, "f0fffffffff0ffffffffffffffffffffffffff"},
                 {INT32_MAX, INT32_MAX, INT64_MAX, "f0fffffffef0fffffffefffffffffffffffffe"},
                 {0, 0, 0, "000000"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_str_eq(hex_of_duration(cases[i].months, cases[i].days, cases[i].nanoseconds),
                         cases[i].hex);
        cqlring_put_duration(&writer, cases[i].months, cases[i].days, cases[i].nanoseconds);
        cqlring_bytes cell;
        ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
        int32_t months = 0;
        int32_t days = 0;
        int64_t nanoseconds = 0;
        ck_assert_int_eq(cqlring_get_duration(cell, &months, &days, &nanoseconds), CQLRING_OK);
        ck_assert_int_eq(months, cases[i].months);
        ck_assert_int_eq(days, cases[i].days);
        ck_assert_int_eq(nanoseconds, cases[i].nanoseconds);
    }
}
END_TEST

START_TEST(durations_of_mixed_signs_are_refused)
{
    ck_assert_str_eq(hex_of_duration(1, -1, 0), "TYPE");
    ck_assert_str_eq(hex_of_duration(0, 1, -1), "TYPE");
    ck_assert_str_eq(hex_of_duration(-1, 0, 1), "TYPE");
    int32_t months = 77;
    int32_t days = 77;
    int64_t nanoseconds = 77;
    ck_assert_int_eq(cqlring_get_duration(cell_of("\x02\x01\x00", 3), &months, &days, &nanoseconds),
                     CQLRING_TYPE);
    ck_assert_int_eq(months, 77);
}
END_TEST

START_TEST(broken_durations_are_refused)
{
    static const struct {
        const char *bytes;
        int32_t size;
    } cases[] = {{"\x02", 1},
                 {"\x02\x04", 2},
                 {"\x02\x04\x06\x08", 4},
                 {"\x02\x04\xC0\x00", 4},
                 {"\xF1\x00\x00\x00\x00\x00\x00", 7},  /* months 2^31 */
                 {"\x00\xF1\x00\x00\x00\x00\x00", 7}}; /* days 2^31 */
    int32_t months;
    int32_t days;
    int64_t nanoseconds;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_int_eq(cqlring_get_duration(cell_of(cases[i].bytes, cases[i].size), &months,
                                              &days, &nanoseconds),
                         CQLRING_TYPE);
    ck_assert_int_eq(cqlring_get_duration(cell_of("", 0), &months, &days, &nanoseconds),
                     CQLRING_INVALID);
}
END_TEST

/* --- floating point --------------------------------------------------------------------------- */

START_TEST(ty_14_floating_point_is_bit_exact)
{
    static const uint32_t floats[] = {
        0x7FC00000, 0xFFC00001, 0x7F800001 /* signalling */, 0x7F800000,
        0xFF800000, 0x80000000, 0x00000001 /* 1e-45 */,      0x3DCCCCCD,
        0x7F7FFFFF};
    static const uint64_t doubles[] = {UINT64_C(0x7FF8000000000000),
                                       UINT64_C(0xFFF0000000000001),
                                       UINT64_C(0x7FF0000000000000),
                                       UINT64_C(0x8000000000000000),
                                       UINT64_C(1),
                                       UINT64_C(0x3FB999999999999A)};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        float value;
        memcpy(&value, &floats[i], 4);
        cqlring_put_float(&writer, value);
        cqlring_bytes cell;
        ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
        uint32_t wire;
        memcpy(&wire, cell.data, 4);
        ck_assert_uint_eq(__builtin_bswap32(wire), floats[i]);
        ck_assert_int_eq(cqlring_get_float(cell, &value), CQLRING_OK);
        ck_assert_mem_eq(&value, &floats[i], 4);
    }
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        double value;
        memcpy(&value, &doubles[i], 8);
        cqlring_put_double(&writer, value);
        cqlring_bytes cell;
        ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
        ck_assert_int_eq(cqlring_get_double(cell, &value), CQLRING_OK);
        ck_assert_mem_eq(&value, &doubles[i], 8);
    }
    /* and side by side */
    cqlring_put_array(&writer, floats, 4, sizeof floats / 4);
    cqlring_bytes cell;
    ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_OK);
    uint32_t back[sizeof floats / 4];
    ck_assert_int_eq(cqlring_get_array(cell, 4, back, sizeof floats / 4), CQLRING_OK);
    ck_assert_mem_eq(back, floats, sizeof floats);
}
END_TEST

START_TEST(arrays_of_any_length_and_alignment_are_swapped)
{
    enum { MOST = 40 };
    uint8_t source[8 * MOST + 16];
    uint8_t target[8 * MOST + 16];
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 101 + 7);
    for (uint32_t size = 4; size <= 8; size += 4) {
        for (uint32_t count = 0; count <= MOST; count++) {
            for (uint32_t offset = 0; offset < 9; offset += 3) {
                memset(target, 0xEE, sizeof target);
                cqr_swap_copy(target + 1, source + offset, size, count);
                for (uint32_t i = 0; i < count * size; i++)
                    ck_assert_uint_eq(target[1 + i],
                                      source[offset + i / size * size + size - 1 - i % size]);
                ck_assert_uint_eq(target[0], 0xEE);
                ck_assert_uint_eq(target[1 + count * size], 0xEE);
            }
        }
    }
}
END_TEST

START_TEST(an_array_of_another_length_is_a_type_error)
{
    static const uint8_t bytes[16] = {0};
    float values[4];
    ck_assert_int_eq(cqlring_get_array(cell_of(bytes, 12), 4, values, 4), CQLRING_TYPE);
    ck_assert_int_eq(cqlring_get_array(cell_of(bytes, 13), 4, values, 3), CQLRING_TYPE);
    ck_assert_int_eq(cqlring_get_array(cell_of(bytes, 16), 4, values, UINT32_MAX / 4 + 4),
                     CQLRING_TYPE);
    ck_assert_int_eq(cqlring_get_array(cell_of(bytes, 16), 2, values, 8), CQLRING_INVALID);
    ck_assert_int_eq(cqlring_get_array(cell_of(bytes, 0), 4, values, 0), CQLRING_INVALID);
}
END_TEST

/* --- the writer ------------------------------------------------------------------------------- */

START_TEST(values_stand_one_behind_the_other)
{
    cqlring_bytes cells[4];
    cqlring_put_int(&writer, 1, 4);
    ck_assert_int_eq(cqlring_writer_take(&writer, &cells[0], NULL), CQLRING_OK);
    ck_assert_int_eq(cqlring_writer_take(&writer, &cells[1], NULL),
                     CQLRING_OK); /* nothing: empty */
    cqlring_put_bytes(&writer, cqlring_text("abc"));
    ck_assert_int_eq(cqlring_writer_take(&writer, &cells[2], NULL), CQLRING_OK);
    cqlring_put_int(&writer, 1, 1);
    ck_assert_int_eq(cqlring_writer_take(&writer, &cells[3], NULL), CQLRING_OK);
    ck_assert_int_eq(cells[0].size, 4);
    ck_assert_int_eq(cells[1].size, 0);
    ck_assert_ptr_nonnull(cells[1].data);
    ck_assert_int_eq(cells[2].size, 3);
    ck_assert_ptr_eq(cells[2].data, room + 4);
    ck_assert_ptr_eq(cells[3].data, room + 7);
    ck_assert_uint_eq(writer.size, 8);
}
END_TEST

START_TEST(null_and_unset_are_told_by_the_cell)
{
    cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_NULL));
    ck_assert_str_eq(taken(), "null");
    cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_UNSET));
    ck_assert_str_eq(taken(), "unset");
    cqlring_put_bytes(&writer, cell_of(NULL, -77)); /* any other negative size is null */
    ck_assert_str_eq(taken(), "null");
    cqlring_put_bytes(&writer, cell_of(NULL, 0));
    ck_assert_str_eq(taken(), "");
    cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_NULL));
    cqlring_put_int(&writer, 1, 4);
    ck_assert_str_eq(taken(), "INVALID");
    cqlring_put_int(&writer, 1, 4);
    cqlring_put_bytes(&writer, cell_of(NULL, CQLRING_NULL));
    ck_assert_str_eq(taken(), "INVALID");
}
END_TEST

START_TEST(without_room_the_needed_size_is_told_and_nothing_written)
{
    for (uint32_t capacity = 0; capacity < 20; capacity++) {
        memset(room, 0xEE, sizeof room);
        cqlring_writer_init(&writer, capacity == 0 ? NULL : room, capacity);
        uint64_t needed = 0;
        cqlring_bytes cell;
        cqlring_put_bytes(&writer, cqlring_text("0123456789"));
        cqlring_put_int(&writer, 1, 8);
        cqlring_status status = cqlring_writer_take(&writer, &cell, &needed);
        ck_assert_int_eq(status, capacity < 18 ? CQLRING_FULL : CQLRING_OK);
        ck_assert_uint_eq(needed, 18);
        for (uint32_t i = capacity; i < 32; i++)
            ck_assert_uint_eq(room[i], 0xEE);
        /* the next value is none the worse for it */
        cqlring_put_int(&writer, 1, 1);
        status = cqlring_writer_take(&writer, &cell, &needed);
        ck_assert_int_eq(status, capacity == 0 || capacity == 18 ? CQLRING_FULL : CQLRING_OK);
        ck_assert_uint_eq(needed, 1);
    }
}
END_TEST

START_TEST(a_failure_lasts_until_the_value_is_taken)
{
    cqlring_put_int(&writer, 1000, 1);
    cqlring_put_int(&writer, 1, 1);
    cqlring_put_int(&writer, 1, 3);
    ck_assert_str_eq(taken(), "TYPE");
    ck_assert_str_eq(hex_of_int(1, 1), "01");
    cqlring_put_end(&writer);
    ck_assert_str_eq(taken(), "INVALID");
    ck_assert_uint_eq(writer.size, 1);
}
END_TEST

START_TEST(a_value_of_two_gigabytes_is_too_large)
{
    cqlring_put_array(&writer, room, 8, UINT32_MAX);
    ck_assert_str_eq(taken(), "TOO_LARGE");
    cqlring_writer_init(&writer, NULL, 0);
    for (int i = 0; i < 5; i++)
        cqlring_put_bytes(&writer, cell_of("", 1 << 29)); /* no room: nothing of it is read */
    cqlring_bytes cell;
    ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_TOO_LARGE);
    cqlring_put_decimal(&writer, 1, cell_of("\x01", INT32_MAX));
    ck_assert_int_eq(cqlring_writer_take(&writer, &cell, NULL), CQLRING_TOO_LARGE);
}
END_TEST

START_TEST(ty_30_timestamps_past_2_31_seconds_come_back)
{
    const int64_t millis = (INT64_C(1) << 31) * 1000;
    ck_assert_str_eq(hex_of_int(millis, 8), "000001f400000000");
    ck_assert_str_eq(hex_of_int(millis + 1, 8), "000001f400000001");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value");
    TCase *test = tcase_create("value");
    tcase_add_checked_fixture(test, set_up, NULL);
    tcase_add_test(test, vints_take_the_fewest_bytes_and_come_back);
    tcase_add_test(test, zigzag_is_undone);
    tcase_add_test(test, ty_11_integers_have_the_size_of_their_type_or_are_refused);
    tcase_add_test(test, ty_12_unsigned_host_values_do_not_wrap);
    tcase_add_test(test, integers_of_each_size_come_back);
    tcase_add_test(test, a_wrong_size_is_a_type_error_and_stores_nothing);
    tcase_add_test(test, varints_are_written_in_their_shortest_form);
    tcase_add_test(test, padded_varints_are_read_and_large_ones_told);
    tcase_add_test(test, nv_04_empty_varint_and_decimal_are_not_zero);
    tcase_add_test(test, decimals_keep_scale_and_unscaled_apart);
    tcase_add_test(test, ty_30_a_decimal_of_400_digits_comes_back);
    tcase_add_test(test, ty_06_large_durations_encode_to_known_bytes);
    tcase_add_test(test, durations_of_mixed_signs_are_refused);
    tcase_add_test(test, broken_durations_are_refused);
    tcase_add_test(test, ty_14_floating_point_is_bit_exact);
    tcase_add_test(test, arrays_of_any_length_and_alignment_are_swapped);
    tcase_add_test(test, an_array_of_another_length_is_a_type_error);
    tcase_add_test(test, values_stand_one_behind_the_other);
    tcase_add_test(test, null_and_unset_are_told_by_the_cell);
    tcase_add_test(test, without_room_the_needed_size_is_told_and_nothing_written);
    tcase_add_test(test, a_failure_lasts_until_the_value_is_taken);
    tcase_add_test(test, a_value_of_two_gigabytes_is_too_large);
    tcase_add_test(test, ty_30_timestamps_past_2_31_seconds_come_back);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
