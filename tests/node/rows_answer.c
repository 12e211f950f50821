/* SPDX-License-Identifier: Apache-2.0 */
/* The RESULT body of rows: metadata as the client may want it, then the rows. And rows that are
   made up (void mode). */
#include "tests/node/engine_private.h"

void node_put_rows(struct query *query, const struct statement *statement,
                   cqlring_bytes paging_state, uint32_t count, const struct out *rows)
{
    static const uint8_t unheard_of[16] = "changed metadata";
    const struct node_prepared *prepared = query->prepared;
    bool skip = query->params != NULL && query->params->skip_metadata;
    const uint8_t *changed = NULL;
    if (query->with_metadata_id && prepared != NULL && query->metadata_id.data != NULL &&
        !slice_equal(query->metadata_id, slice_of(prepared->metadata_id, 16)))
        changed = prepared->metadata_id;
    if (query->fault.changed || query->fault.changed_bare)
        changed = unheard_of;
    if (changed != NULL)
        skip = query->fault.changed_bare;
    out_u32(query->body, RESULT_ROWS);
    node_put_columns(query, statement->table, statement->plan->outputs,
                     statement->plan->output_count, skip ? ROWS_NO_METADATA : 0, paging_state,
                     changed);
    out_u32(query->body, count);
    out_raw(query->body, rows->data, rows->size);
}

static void put_made_up(struct out *out, const struct node_type *type, uint32_t cell_size)
{
    uint32_t size = node_type_fixed_size(type);
    switch (type->kind) {
    case TYPE_TEXT:
    case TYPE_ASCII:
    case TYPE_BLOB: size = cell_size; break;
    case TYPE_DATE: size = 4; break;
    case TYPE_TIME:
    case TYPE_COUNTER: size = 8; break;
    case TYPE_SMALLINT: size = 2; break;
    case TYPE_TINYINT: size = 1; break;
    default: break;
    }
    if (size == 0) {
        out_u32(out, (uint32_t)CQLRING_NULL);
        return;
    }
    out_u32(out, size);
    memset(out_room(out, size),
           type->kind == TYPE_TEXT || type->kind == TYPE_ASCII || type->kind == TYPE_BLOB ? 'x' : 0,
           size);
}

bool node_run_made_up(struct query *query, struct statement *statement, uint32_t rows,
                      uint32_t cell_size)
{
    if (!node_check_values(query, statement))
        return false;
    node_find_token(query, statement);
    struct out out = {0};
    for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t j = 0; j < statement->plan->output_count; ++j)
            put_made_up(&out, statement->plan->outputs[j].type, cell_size);
    }
    node_put_rows(query, statement, SLICE_NULL, rows, &out);
    node_out_fini(&out);
    query->rows = rows;
    return true;
}
