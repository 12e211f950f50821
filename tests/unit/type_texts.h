/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQLRING_TESTS_UNIT_TYPE_TEXTS_H
#define CQLRING_TESTS_UNIT_TYPE_TEXTS_H

/* Types from texts and back, for tests of types: what should parse fails the test when it does not.
   All of them live in one arena, made and freed around each test. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "serialize/mem.h"
#include "serialize/type.h"

#define PACKAGE "org.apache.cassandra.db.marshal."

static struct arena arena;

static inline void set_up(void)
{
    cqr_arena_init(&arena, 64 << 20);
}

static inline void tear_down(void)
{
    cqr_arena_fini(&arena);
}

static inline const cqlring_type *of_class(const char *text)
{
    const cqlring_type *type = NULL;
    cqlring_status status = cqr_type_from_class(&arena, cqlring_text(text), &type);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", text, cqlring_status_name(status));
    return type;
}

static inline const cqlring_type *resolve_address(cqlring_bytes keyspace, cqlring_bytes name,
                                                  void *context)
{
    if (keyspace.size > 0 && !(keyspace.size == 2 && memcmp(keyspace.data, "ks", 2) == 0))
        return NULL;
    if (name.size == 7 && memcmp(name.data, "address", 7) == 0)
        return context;
    if (name.size == 7 && memcmp(name.data, "Mixed\"x", 7) == 0)
        return context;
    return NULL;
}

static inline const cqlring_type *address(void)
{
    return of_class("UserType(ks,61646472657373,737472656574:UTF8Type,7a6970:Int32Type)");
}

static inline const cqlring_type *of_cql(const char *text)
{
    const cqlring_type *type = NULL;
    cqlring_status status = cqr_type_from_cql(&arena, cqlring_text(text), resolve_address,
                                              (void *)(uintptr_t)address(), &type);
    ck_assert_msg(status == CQLRING_OK, "%s: %s", text, cqlring_status_name(status));
    return type;
}

static inline const char *to_cql(const cqlring_type *type)
{
    static char text[2000];
    ck_assert_uint_lt(cqlring_type_format(type, text, sizeof text), sizeof text);
    return text;
}

static inline const char *to_class(const cqlring_type *type)
{
    static char text[4000];
    ck_assert_uint_lt(cqr_type_format_class(type, text, sizeof text), sizeof text);
    return text;
}

static inline const char *name_of(const cqlring_type *type)
{
    static char text[200];
    cqlring_type_description about = {.struct_size = sizeof about};
    cqlring_type_describe(type, &about);
    snprintf(text, sizeof text, "%.*s", about.name.size, (const char *)about.name.data);
    return text;
}

#endif
