/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RESULT_BODIES_H
#define RESULT_BODIES_H

/* Bodies are written into a block, as the reactor would have received them, and made into results. Shared by the tests of
   driver/result. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/failure.h"
#include "driver/result.h"
#include "serialize/buf.h"
#include "serialize/mem.h"

static const struct dialect v4 = {.version = PROTO_V4};
static const struct dialect v5 = {.version = PROTO_V5};

static struct block_pool *pool;
static struct block *block;
static struct writer out;
static int64_t live_before;

static inline void begin_body(void)
{
    block = cqr_block_take(pool, 64 << 10);
    ck_assert_ptr_nonnull(block);
    cqr_writer_init(&out, block->data, block->size);
}

/* The block of the last body goes, unless somebody holds it. */
static inline void next_body(void)
{
    cqr_block_release(block);
    begin_body();
}

static inline void open_pool(void)
{
    live_before = cqr_mem_live_count();
    pool = cqr_pool_create(64 << 10, 4);
    begin_body();
}

static inline void close_pool(void)
{
    cqr_block_release(block);
    cqr_pool_close(pool);
    ck_assert_int_eq(cqr_mem_live_count(), live_before);
}

static inline cqlring_bytes body(void)
{
    ck_assert(!out.failed);
    return (cqlring_bytes){.data = out.data, .size = (int32_t)out.size};
}

static inline void put_string(const char *text)
{
    cqr_put_string(&out, cqlring_text(text));
}

struct make {
    const struct dialect *dialect;
    struct column_set *known;
    struct response_prefix prefix;
    cqlring_result *result;
    struct column_set *changed;
    cqlring_bytes changed_id;
    struct failure *failure;
};

static inline cqlring_status make(struct make *make, uint32_t kind)
{
    return cqr_result_make(make->dialect == NULL ? &v4 : make->dialect, block, body(), kind, &make->prefix, make->known,
                           &make->result, &make->changed, &make->changed_id, &make->failure);
}

static inline cqlring_result *must_make(struct make *how, uint32_t kind)
{
    ck_assert_int_eq(make(how, kind), CQLRING_OK);
    ck_assert_ptr_null(how->failure);
    return how->result;
}

static inline void must_refuse(struct make *how, uint32_t kind, cqlring_status status, const char *text)
{
    ck_assert_int_eq(make(how, kind), status);
    ck_assert_ptr_null(how->result);
    ck_assert_ptr_null(how->changed);
    ck_assert_ptr_nonnull(how->failure);
    ck_assert_int_eq(how->failure->error.status, status);
    ck_assert_msg(strstr(how->failure->error.message, text) != NULL, "%s", how->failure->error.message);
    cqr_failure_free(&how->failure->error);
    ck_assert(cqr_block_is_unshared(block));
}

/* ks.t with columns id int, name text, v int; flags besides the global table are the caller's. */
static inline void put_metadata(uint32_t flags, const char *paging_state, const char *id, const char *second)
{
    cqr_put_u32(&out, ROWS_GLOBAL_SPEC | flags);
    cqr_put_u32(&out, 3);
    if ((flags & ROWS_MORE_PAGES) != 0)
        cqr_put_bytes(&out, cqlring_text(paging_state));
    if ((flags & ROWS_METADATA_CHANGED) != 0)
        put_string(id);
    if ((flags & ROWS_NO_METADATA) != 0)
        return;
    put_string("ks");
    put_string("t");
    put_string("id");
    cqr_put_u16(&out, CQLRING_KIND_INT);
    put_string(second);
    cqr_put_u16(&out, CQLRING_KIND_TEXT);
    put_string("v");
    cqr_put_u16(&out, CQLRING_KIND_INT);
}

static inline void put_int_cell(int32_t value)
{
    cqr_put_u32(&out, 4);
    cqr_put_u32(&out, (uint32_t)value);
}

static inline void put_rows(uint32_t count)
{
    cqr_put_u32(&out, count);
    for (uint32_t i = 0; i < count; ++i) {
        char name[16];
        snprintf(name, sizeof name, "row %u", (unsigned)i);
        put_int_cell((int32_t)i);
        cqr_put_bytes(&out, cqlring_text(name));
        if (i % 3 == 0)
            cqr_put_u32(&out, UINT32_MAX); /* null */
        else
            put_int_cell(-(int32_t)i);
    }
}

static inline void expect_row(const cqlring_bytes *cells, uint32_t row)
{
    int64_t value;
    char name[16];
    snprintf(name, sizeof name, "row %u", (unsigned)row);
    ck_assert_int_eq(cqlring_get_int(cells[0], 4, &value), CQLRING_OK);
    ck_assert_int_eq(value, row);
    ck_assert_int_eq(cells[1].size, (int)strlen(name));
    ck_assert_int_eq(memcmp(cells[1].data, name, strlen(name)), 0);
    if (row % 3 == 0) {
        ck_assert_int_eq(cells[2].size, CQLRING_NULL);
    } else {
        ck_assert_int_eq(cqlring_get_int(cells[2], 4, &value), CQLRING_OK);
        ck_assert_int_eq(value, -(int64_t)row);
    }
}

static inline cqlring_result *example_rows(struct make *how, uint32_t count)
{
    put_metadata(0, NULL, NULL, "name");
    put_rows(count);
    return must_make(how, RESULT_ROWS);
}

/* What a prepared statement knows of its result. */
static inline struct column_set *example_columns(void)
{
    struct make how = {0};
    next_body();
    cqlring_result *result = example_rows(&how, 0);
    struct column_set *set = cqr_column_set_retain(result->columns);
    cqlring_result_release(result);
    memset(block->data, 0xEE, block->size); /* the set must not need it */
    next_body();
    return set;
}

static inline bool is_text(cqlring_bytes bytes, const char *text)
{
    return (size_t)bytes.size == strlen(text) && (bytes.size == 0 || memcmp(bytes.data, text, strlen(text)) == 0);
}

#endif
