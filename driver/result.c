/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/result.h"

#include <assert.h>
#include <string.h>

#include "driver/failure.h"
#include "serialize/buf.h"
#include "serialize/mem.h"

/* Descriptions of one result. Some ten thousand columns with user-defined types fit easily. */
enum { COLUMN_SET_SIZE_MAX = 64 << 20 };

/* --- columns ------------------------------------------------------------------------------------------------------ */

struct column_set *cqr_column_set_create(void)
{
    struct column_set *set = cqr_mem_zalloc(sizeof *set);
    if (set == NULL)
        return NULL;
    atomic_store_explicit(&set->references, 1, memory_order_relaxed);
    cqr_arena_init(&set->arena, COLUMN_SET_SIZE_MAX);
    return set;
}

void cqr_column_set_seal(struct column_set *set)
{
    struct columns *columns = &set->columns;
    set->sealed = true;
    columns->paging_state = columns->new_metadata_id = (cqlring_bytes){.data = NULL, .size = 0};
    if (columns->raw.data == NULL)
        return;
    void *copy = cqr_arena_alloc(&set->arena, (size_t)columns->raw.size);
    if (copy != NULL)
        memcpy(copy, columns->raw.data, (size_t)columns->raw.size);
    columns->raw.data = copy;
}

struct column_set *cqr_column_set_retain(struct column_set *set)
{
    atomic_fetch_add_explicit(&set->references, 1, memory_order_relaxed);
    return set;
}

void cqr_column_set_release(struct column_set *set)
{
    /* Release: this holder is through. Acquire: so is everybody else, for the one that frees. */
    if (set == NULL || atomic_fetch_sub_explicit(&set->references, 1, memory_order_acq_rel) != 1)
        return;
    cqr_arena_fini(&set->arena);
    cqr_mem_free(set);
}

bool cqr_column_set_public(const struct column_set *set, uint32_t index, cqlring_column *column)
{
    if (set == NULL || set->columns.array == NULL || index >= set->columns.count)
        return false;
    const struct column *from = &set->columns.array[index];
    *column = (cqlring_column){
        .keyspace = from->keyspace.data,
        .table = from->table.data,
        .name = from->name.data,
        .type = from->type,
    };
    return true;
}

/* --- making one ---------------------------------------------------------------------------------------------------- */

static cqlring_status no_memory(struct failure **failure)
{
    *failure = cqr_failure_make(CQLRING_NO_MEMORY, "no memory for a result");
    return CQLRING_NO_MEMORY;
}

/* Why a RESULT could not be taken apart. */
static cqlring_status not_decoded(cqlring_status status, uint32_t kind, struct failure **failure)
{
    if (status == CQLRING_NO_MEMORY)
        return no_memory(failure);
    *failure = status == CQLRING_TYPE
                   ? cqr_failure_make(status, "the answer has a column of a type that this driver cannot read")
                   : cqr_failure_make(status, "the answer, a RESULT of kind %u, is malformed", (unsigned)kind);
    return status;
}

/* A new set of the columns that were decoded into arena, which goes over into it. NULL: out of memory. */
static struct column_set *adopt_columns(const struct columns *columns, const struct arena *arena)
{
    struct column_set *set = cqr_column_set_create();
    if (set == NULL)
        return NULL;
    set->arena = *arena;
    set->columns = *columns;
    cqr_column_set_seal(set);
    return set;
}

/* ROWS. The columns are known's wherever that is right: left out by the server, or sent in the same bytes again. */
static cqlring_status take_rows(cqlring_result *result, const struct dialect *dialect, cqlring_bytes body,
                                struct column_set *known, struct rows_body *rows, struct failure **failure)
{
    struct arena arena;
    cqr_arena_init(&arena, COLUMN_SET_SIZE_MAX);
    cqlring_status status = cqr_decode_rows_known(dialect, body, known == NULL || !known->sealed ? NULL : &known->columns, &arena, rows);
    if (status != CQLRING_OK) {
        status = not_decoded(status, RESULT_ROWS, failure);
        goto fail;
    }
    const struct columns *columns = &rows->columns;
    if (columns->array != NULL && (known == NULL || columns->array != known->columns.array)) {
        result->columns = adopt_columns(columns, &arena);
        if (result->columns == NULL) {
            status = no_memory(failure);
            goto fail;
        }
    } else if (columns->count > 0) {
        if (known == NULL || known->columns.array == NULL || known->columns.count != columns->count) {
            *failure = cqr_failure_make(CQLRING_PROTOCOL, "the answer has %u columns without a description, the statement %u",
                                        (unsigned)columns->count, known == NULL ? 0 : (unsigned)known->columns.count);
            status = CQLRING_PROTOCOL;
            goto fail;
        }
        cqr_arena_fini(&arena);
        result->columns = cqr_column_set_retain(known);
    }
    result->column_count = columns->count;
    result->row_count = rows->row_count;
    result->rows = rows->rows;
    result->paging_state = columns->paging_state;
    cqr_rows_init(&result->cursor, result->rows, result->column_count, result->row_count);
    return CQLRING_OK;

    fail:
        cqr_arena_fini(&arena);
        return status;
}

/* A result's own memory: a block of the lane's pool, or an allocation. */
static cqlring_result *result_take(struct block_pool *pool)
{
    if (pool == NULL)
        return cqr_mem_zalloc(sizeof(cqlring_result));
    struct block *home = cqr_block_take(pool, sizeof(cqlring_result));
    if (home == NULL)
        return NULL;
    cqlring_result *result = (cqlring_result *)(void *)home->data;
    memset(result, 0, sizeof *result);
    result->home = home;
    return result;
}

static void result_give(cqlring_result *result)
{
    if (result->home != NULL)
        cqr_block_release(result->home);
    else
        cqr_mem_free(result);
}

cqlring_status cqr_result_make(const struct dialect *dialect, struct block *block, cqlring_bytes body, uint32_t kind,
                               const struct response_prefix *prefix, struct column_set *known, cqlring_result **out,
                               struct column_set **changed, cqlring_bytes *changed_id, struct failure **failure)
{
    return cqr_result_make_in(NULL, dialect, block, body, kind, prefix, known, out, changed, changed_id, failure);
}

cqlring_status cqr_result_make_in(struct block_pool *pool, const struct dialect *dialect, struct block *block,
                                  cqlring_bytes body, uint32_t kind, const struct response_prefix *prefix,
                                  struct column_set *known, cqlring_result **out, struct column_set **changed,
                                  cqlring_bytes *changed_id, struct failure **failure)
{
    assert(kind != RESULT_PREPARED);
    cqlring_result *result = result_take(pool);
    if (result == NULL)
        return no_memory(failure);
    atomic_store_explicit(&result->references, 1, memory_order_relaxed);
    result->kind = kind;
    result->agreed = -1;
    if (prefix != NULL)
        result->prefix = *prefix;

    struct rows_body rows = {.row_count = 0};
    cqlring_status status = CQLRING_OK;
    switch (kind) {
    case RESULT_ROWS: status = take_rows(result, dialect, body, known, &rows, failure); break;
    case RESULT_KEYSPACE: status = cqr_decode_keyspace(body, &result->keyspace); break;
    case RESULT_SCHEMA: status = cqr_decode_schema_change(body, &result->schema); break;
    case 0:
    case RESULT_VOID: break;
    default: status = CQLRING_PROTOCOL; break; /* a kind that we do not know */
    }
    if (status != CQLRING_OK) {
        if (kind != RESULT_ROWS)
            not_decoded(status, kind, failure);
        result_give(result);
        return status;
    }

    if ((rows.columns.flags & ROWS_METADATA_CHANGED) != 0 && changed != NULL) {
        *changed = result->columns == NULL ? NULL : cqr_column_set_retain(result->columns);
        *changed_id = rows.columns.new_metadata_id;
    }
    if (block != NULL) {
        result->block = cqr_block_retain(block);
        result->pinned_size = block->size;
    }
    *out = result;
    return CQLRING_OK;
}

/* --- references --------------------------------------------------------------------------------------------------- */

cqlring_result *cqlring_result_retain(cqlring_result *result)
{
    if (result != NULL)
        atomic_fetch_add_explicit(&result->references, 1, memory_order_relaxed);
    return result;
}

void cqlring_result_release(cqlring_result *result)
{
    /* Release: this holder is through with the bytes. Acquire: so is everybody else, for the one that frees. */
    if (result == NULL || atomic_fetch_sub_explicit(&result->references, 1, memory_order_acq_rel) != 1)
        return;
    if (result->source != NULL)
        result->source_free(result->source);
    cqr_column_set_release(result->columns);
    cqr_block_release(result->block);
    result_give(result);
}

size_t cqlring_result_pinned_size(const cqlring_result *result)
{
    return result == NULL ? 0 : result->pinned_size;
}

/* Copy a slice's bytes to *at and point it there. NULL and empty stay what they are. */
static void move_slice(cqlring_bytes *slice, uint8_t **at)
{
    if (slice->data == NULL)
        return;
    uint32_t size = slice->size > 0 ? (uint32_t)slice->size : 0;
    if (size > 0)
        memcpy(*at, slice->data, size);
    slice->data = *at;
    *at += size;
}

cqlring_result *cqlring_result_detach(const cqlring_result *result)
{
    if (result == NULL)
        return NULL;
    cqlring_result copy = { /* not the count and not the cursor: somebody may be using them */
        .kind = result->kind,
        .prefix = result->prefix,
        .columns = result->columns,
        .column_count = result->column_count,
        .row_count = result->row_count,
        .rows = result->rows,
        .paging_state = result->paging_state,
        .schema = result->schema,
        .keyspace = result->keyspace,
        .agreed = result->agreed,
        .source = result->source,
        .source_free = result->source_free,
        .source_retain = result->source_retain,
    };
    cqlring_bytes *slices[] = {
        &copy.rows,          &copy.paging_state,  &copy.keyspace,        &copy.prefix.warnings, &copy.prefix.payload,
        &copy.schema.change, &copy.schema.target, &copy.schema.keyspace, &copy.schema.name,     &copy.schema.arguments,
    };
    size_t size = sizeof copy;
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; ++i)
        size += slices[i]->data != NULL && slices[i]->size > 0 ? (size_t)slices[i]->size : 0;
    uint8_t *memory = size > UINT32_MAX ? NULL : cqr_mem_alloc(size);
    if (memory == NULL)
        return NULL;

    uint8_t *at = memory + sizeof copy;
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; ++i)
        move_slice(slices[i], &at);
    cqlring_result *out = (cqlring_result *)(void *)memory;
    *out = copy;
    atomic_store_explicit(&out->references, 1, memory_order_relaxed);
    out->pinned_size = (uint32_t)size;
    if (out->columns != NULL)
        (void)cqr_column_set_retain(out->columns);
    out->source = out->source != NULL && out->source_retain != NULL ? out->source_retain(out->source) : NULL;
    cqr_rows_init(&out->cursor, out->rows, out->column_count, out->row_count);
    return out;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

uint32_t cqlring_result_row_count(const cqlring_result *result)
{
    return result == NULL ? 0 : result->row_count;
}

uint32_t cqlring_result_column_count(const cqlring_result *result)
{
    return result == NULL ? 0 : result->column_count;
}

bool cqlring_result_column(const cqlring_result *result, uint32_t index, cqlring_column *column)
{
    return result != NULL && column != NULL && cqr_column_set_public(result->columns, index, column);
}

/* The cursor stands at a row that is cut short: which cell is it (TY-32)? */
static cqlring_status torn_row(const cqlring_result *result, cqlring_error *error)
{
    struct reader reader;
    cqr_reader_init(&reader, result->cursor.at, (uint32_t)(result->cursor.end - result->cursor.at));
    uint32_t index = 0, left = 0;
    int32_t size = -1;
    for (; index < result->column_count && !reader.failed; ++index) {
        size = cqr_get_i32(&reader);
        left = cqr_reader_left(&reader);
        if (size > 0)
            (void)cqr_get_raw(&reader, (uint32_t)size);
    }
    cqlring_column column = {.name = "?"};
    char type[128] = "?";
    if (cqlring_result_column(result, index - 1, &column))
        (void)cqlring_type_format(column.type, type, sizeof type);
    return cqr_error(error, CQLRING_PROTOCOL, "row %u, column %s (%s): the cell is cut short, %u bytes are there of %d",
                     (unsigned)result->next_row, column.name, type, (unsigned)left, size > 0 ? (int)size : 4);
}

static cqlring_status next_rows(cqlring_result *result, cqlring_bytes *cells, uint32_t row_capacity, uint32_t *count, cqlring_error *error)
{
    if (cqr_rows_next(&result->cursor, cells, row_capacity, count) != CQLRING_OK)
        return torn_row(result, error);
    result->next_row += *count;
    return CQLRING_OK;
}

cqlring_status cqlring_result_rows(cqlring_result *result, uint32_t from, cqlring_bytes *cells, uint32_t row_capacity, uint32_t *count, cqlring_error *error)
{
    if (result == NULL || count == NULL || (cells == NULL && row_capacity > 0))
        return cqr_error(error, CQLRING_INVALID, "cqlring_result_rows: result, cells and count must be given");
    uint32_t taken = 0;
    if (row_capacity == 0 || from >= result->row_count) {
        *count = 0;
        return CQLRING_OK;
    }
    if (from < result->next_row) {
        result->next_row = 0;
        cqr_rows_init(&result->cursor, result->rows, result->column_count, result->row_count);
    }
    while (result->next_row < from) { /* cells serve as scratch */
        uint32_t skipped = from - result->next_row;
        cqlring_status status = next_rows(result, cells, skipped < row_capacity ? skipped : row_capacity, &taken, error);
        if (status != CQLRING_OK)
            return status;
    }
    cqlring_status status = next_rows(result, cells, row_capacity, &taken, error);
    if (status == CQLRING_OK)
        *count = taken;
    return status;
}

cqlring_bytes cqlring_result_paging_state(const cqlring_result *result)
{
    return result == NULL ? (cqlring_bytes){.data = NULL, .size = 0} : result->paging_state;
}

/* Conditional statements are the only ones that answer with a column of this name. It is the first one, but nothing says
   that it has to be. */
int cqlring_result_applied(const cqlring_result *result)
{
    if (result == NULL || result->row_count == 0 || result->columns == NULL)
        return -1;
    static const char name[] = "[applied]";
    const struct columns *columns = &result->columns->columns;
    struct reader reader;
    cqr_reader_init(&reader, result->rows.data, (uint32_t)result->rows.size);
    for (uint32_t i = 0; i < columns->count; ++i) {
        cqlring_bytes cell = cqr_get_bytes(&reader);
        const struct column *column = &columns->array[i];
        if (column->name.size != sizeof name - 1 || memcmp(column->name.data, name, sizeof name - 1) != 0)
            continue;
        return cell.size == 1 ? *(const uint8_t *)cell.data != 0 : -1;
    }
    return -1;
}

/* --- beside the rows ---------------------------------------------------------------------------------------------- */

bool cqlring_result_trace_id(const cqlring_result *result, uint8_t trace_id[16])
{
    if (result == NULL || !result->prefix.has_trace_id)
        return false;
    memcpy(trace_id, result->prefix.trace_id, sizeof result->prefix.trace_id);
    return true;
}

uint32_t cqlring_result_warnings(const cqlring_result *result, cqlring_bytes *warnings, uint32_t capacity)
{
    if (result == NULL || result->prefix.warning_count == 0)
        return 0;
    struct reader reader; /* over strings that were walked once, when the prefix was decoded */
    cqr_reader_init(&reader, result->prefix.warnings.data, (uint32_t)result->prefix.warnings.size);
    for (uint32_t i = 0; i < result->prefix.warning_count && i < capacity; ++i)
        warnings[i] = cqr_get_string(&reader);
    return result->prefix.warning_count;
}

uint32_t cqlring_result_payload(const cqlring_result *result, cqlring_payload_entry *entries, uint32_t capacity)
{
    if (result == NULL)
        return 0;
    cqlring_bytes pairs = result->prefix.payload;
    for (uint32_t i = 0; i < result->prefix.payload_count && i < capacity; ++i)
        (void)cqr_next_pair(&pairs, &entries[i].key, &entries[i].value);
    return result->prefix.payload_count;
}

bool cqlring_result_schema_change(const cqlring_result *result, cqlring_bytes *change, cqlring_bytes *target, cqlring_bytes *keyspace, cqlring_bytes *name)
{
    struct schema_change schema;
    if (result != NULL && result->kind == RESULT_SCHEMA) {
        schema = result->schema;
    } else if (result != NULL && result->kind == RESULT_KEYSPACE) {
        schema = (struct schema_change){
            .change = cqlring_text("USED"),
            .target = cqlring_text("KEYSPACE"),
            .keyspace = result->keyspace,
        };
    } else {
        return false;
    }
    cqlring_bytes *const out[] = {change, target, keyspace, name};
    const cqlring_bytes from[] = {schema.change, schema.target, schema.keyspace, schema.name};
    for (unsigned i = 0; i < sizeof out / sizeof out[0]; ++i) {
        if (out[i] != NULL)
            *out[i] = from[i];
    }
    return true;
}

int cqlring_result_schema_agreed(const cqlring_result *result)
{
    return result != NULL && result->kind == RESULT_SCHEMA ? result->agreed : -1;
}

/* --- completions -------------------------------------------------------------------------------------------------- */

/* 0 is ANY on the wire, and what a field reads as that is not there. */
static cqlring_consistency consistency_of(const struct error_body *body)
{
    switch ((uint32_t)body->code) {
    case ERROR_UNAVAILABLE:
    case ERROR_WRITE_TIMEOUT:
    case ERROR_READ_TIMEOUT:
    case ERROR_READ_FAILURE:
    case ERROR_WRITE_FAILURE:
    case ERROR_CAS_WRITE_UNKNOWN:
        if (body->consistency == 0 && body->complete)
            return CQLRING_ANY;
        return (cqlring_consistency)body->consistency;
    default: return CQLRING_CONSISTENCY_DEFAULT;
    }
}

bool cqlring_completion_detail(const cqlring_completion *completion, cqlring_error_detail *detail)
{
    if (completion == NULL || completion->error == NULL || detail == NULL)
        return false;
    return cqr_failure_detail((const struct failure *)(const void *)completion->error, detail);
}

bool cqr_failure_detail(const struct failure *failure, cqlring_error_detail *detail)
{
    if (!failure->has_body) {
        *detail = (cqlring_error_detail){.attempts = failure->attempts, .attempt_count = failure->attempt_count};
        return false;
    }
    const struct error_body *body = &failure->body;
    *detail = (cqlring_error_detail){
        .server_code = body->code,
        .message = body->message,
        .consistency = consistency_of(body),
        .required = body->required,
        .received = body->received,
        .alive = body->alive,
        .failures = body->failure_count,
        .write_type = body->write_type,
        .data_present = body->data_present,
        .reasons = body->reasons,
        .keyspace = body->keyspace,
        .table = body->table,
        .function = body->function,
        .rate_limited = body->rate_limited,
        .rate_limit_op = body->rate_limit_op,
        .rejected_by_coordinator = body->rate_limit_by_coordinator,
        .attempts = failure->attempts,
        .attempt_count = failure->attempt_count,
    };
    return true;
}

uint32_t cqlring_completion_cells(const cqlring_completion *completion, cqlring_bytes *cells, uint32_t capacity)
{
    const struct failure *failure = completion == NULL ? NULL : (const struct failure *)(const void *)completion->error; /* its first member */
    if (failure == NULL || cqr_failure_is_static(failure) || failure->values == NULL || failure->values_size < 2)
        return 0;
    uint32_t count = cqr_load_u16(failure->values);
    cqlring_bytes rest = {failure->values + 2, (int32_t)(failure->values_size - 2)}, cell;
    for (uint32_t i = 0; i < count && i < capacity; i++) {
        if (cqr_next_value(&rest, &cell) != CQLRING_OK)
            return i;
        cells[i] = cell;
    }
    return count;
}

void cqlring_completions_release(cqlring_completion *completions, uint32_t count)
{
    for (uint32_t i = 0; completions != NULL && i < count; ++i) {
        cqlring_result_release(completions[i].result);
        cqr_failure_free(completions[i].error);
        completions[i].result = NULL;
        completions[i].error = NULL;
    }
}
