/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of system_schema made into a snapshot, and that into CQL. The input is a list of pages: the number of the query, its size
   as a big-endian u16, and a ROWS body. A query's end is told when the next one begins. Queries with the top bit (0x80) are read over a
   snapshot of those before, as keyspaces that changed are; with 0x40 too, as tables of ks that changed are. */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "driver/failure.h"
#include "driver/result.h"
#include "driver/schema_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cqlring_result *rows_of(const uint8_t *data, size_t size)
{
    static const struct dialect dialect = {.version = PROTO_V5};
    cqlring_result *result = NULL;
    struct failure *failure = NULL;
    if (cqr_result_make(&dialect, NULL, (cqlring_bytes){data, (int32_t)size}, RESULT_ROWS, NULL, NULL, &result, NULL, NULL, &failure) != CQLRING_OK)
        cqr_failure_free(&failure->error);
    return result;
}

/* Every slice of it is looked at. */
static void look(const cqlring_schema *schema)
{
    const cqlring_schema_keyspace *const *keyspaces = NULL;
    uint32_t count = cqlring_schema_keyspaces(schema, &keyspaces);
    for (uint32_t i = 0; i < count; i++) {
        const cqlring_schema_keyspace *keyspace = keyspaces[i];
        size_t text_size = cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, keyspace->name, NULL, NULL, 0);
        char *text = malloc(text_size + 1), few[8];
        assert(text != NULL && cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, keyspace->name, NULL, text, text_size + 1) == text_size);
        assert(strlen(text) == text_size);
        assert(cqlring_schema_text(schema, CQLRING_SCHEMA_ALL, keyspace->name, NULL, few, sizeof few) == text_size && strlen(few) < sizeof few);
        free(text);
        for (uint32_t j = 0; j < keyspace->table_count; j++) {
            const cqlring_schema_table *table = keyspace->tables[j];
            assert(table->partition_key_count > 0 && table->partition_key_count + table->clustering_count <= table->column_count);
            assert(cqlring_schema_find_table(schema, keyspace->name, table->name) != NULL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct schema_draft draft;
    cqr_schema_draft_init(&draft);
    struct cqlring_schema *first = NULL;
    int last = -1;
    bool good = true, alone = false;
    while (size >= 3 && good) {
        int query = data[0] & 0x3F;
        bool second = data[0] >= 0x80, tables = data[0] >= 0xC0;
        size_t length = (size_t)data[1] << 8 | data[2];
        data += 3;
        size -= 3;
        if (length > size)
            length = size;
        if (query >= SCHEMA_QUERIES)
            break;
        if (second && first == NULL) {
            if (last >= 0)
                good = cqr_schema_draft_end(&draft, (enum schema_query)last) == CQLRING_OK;
            first = cqr_schema_draft_finish(&draft, NULL, NULL, 0);
            cqr_schema_draft_init(&draft);
            last = -1;
            static const char *const changed[] = {"t", "v", "new"};
            cqlring_status status = CQLRING_OK;
            if (tables && cqr_schema_draft_tables(&draft, first, "ks", changed, 3, &status)) {
                last = SCHEMA_QUERY_TABLES;
                alone = true;
            }
        }
        if (alone && (query < SCHEMA_QUERY_TABLES || query > SCHEMA_QUERY_INDEXES))
            break; /* the others are not asked for then */
        while (last < query && good) { /* those that have no page end too */
            if (last >= 0)
                good = cqr_schema_draft_end(&draft, (enum schema_query)last) == CQLRING_OK;
            last++;
        }
        cqlring_result *rows = query == last ? rows_of(data, length) : NULL;
        if (rows != NULL)
            good = cqr_schema_draft_rows(&draft, (enum schema_query)query, rows) == CQLRING_OK;
        cqlring_result_release(rows);
        data += length;
        size -= length;
    }
    if (good) {
        if (last >= 0)
            (void)cqr_schema_draft_end(&draft, (enum schema_query)last);
        const char *names[] = {"ks", "other"};
        struct cqlring_schema *schema = cqr_schema_draft_finish(&draft, first, names, 2);
        if (first != NULL)
            look(first);
        cqlring_schema_release(first);
        if (schema != NULL)
            look(schema);
        cqlring_schema_release(schema);
    } else {
        cqlring_schema_release(first);
    }
    cqr_schema_draft_fini(&draft);
    return 0;
}
