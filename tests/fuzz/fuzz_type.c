/* SPDX-License-Identifier: Apache-2.0 */
/* Types from text and wire. The first byte says how the rest is read: 0 class, 1 CQL, 2 an
   [option], 3 as an application gives it. What is understood must survive being written and read
   again. */
#include <stdint.h>
#include <stdlib.h>

#include "serialize/type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const cqlring_type *resolve(cqlring_bytes keyspace, cqlring_bytes name, void *context)
{
    (void)keyspace;
    return name.size == 1 ? context : NULL;
}

/* is_class: the type came from a class, so its class can be read again. (An [option] may hold names
   of UDTs that no class can.) */
static void check_again(const cqlring_type *type, struct arena *arena, bool is_class)
{
    size_t size = cqr_type_format_class(type, NULL, 0);
    char *text = malloc(size + 1);
    const cqlring_type *again = NULL;
    if (text == NULL || cqr_type_format_class(type, text, size + 1) != size)
        abort();
    cqlring_status status = cqr_type_from_class(
        arena, (cqlring_bytes){.data = text, .size = (int32_t)size}, &again);
    if (is_class && size <= TYPE_TEXT_SIZE_MAX &&
        (status != CQLRING_OK || !cqr_type_equal(type, again)))
        abort();
    free(text);
    char cut[40];
    size = cqlring_type_format(type, NULL, 0);
    if (cqlring_type_format(type, cut, sizeof cut) != size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 100000)
        return 0;
    struct arena arena;
    cqr_arena_init(&arena, 64 << 20);
    cqlring_bytes text = {.data = data + 1, .size = (int32_t)size - 1};
    const cqlring_type *type = NULL;
    cqlring_status status = CQLRING_TYPE;
    switch (data[0]) {
    case 0: status = cqr_type_from_class(&arena, text, &type); break;
    case 1: {
        const cqlring_type *udt = NULL;
        static const char class_name[] = "UserType(ks,75,61:Int32Type)";
        if (cqr_type_from_class(&arena, cqlring_text(class_name), &udt) != CQLRING_OK)
            abort();
        status = cqr_type_from_cql(&arena, text, resolve, (void *)(uintptr_t)udt, &type);
        break;
    }
    case 2: {
        struct reader reader;
        cqr_reader_init(&reader, text.data, (uint32_t)text.size);
        status = cqr_type_from_option(&reader, &arena, &type);
        break;
    }
    case 3: {
        cqlring_type *parsed = NULL;
        cqlring_error error;
        if (cqlring_type_parse(text, &parsed, &error) == CQLRING_OK)
            check_again(parsed, &arena, true);
        cqlring_type_release(parsed);
        break;
    }
    default: break;
    }
    if (status == CQLRING_OK)
        check_again(type, &arena, data[0] != 2);
    cqr_arena_fini(&arena);
    return 0;
}
