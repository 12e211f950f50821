/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/node/aggregate.h"

#include <stdio.h>

#include "cql/token.h"
#include "tests/node/functions.h"

/* --- values of selectors ---------------------------------------------------------------------- */

static int64_t integer_of(cqlring_bytes value)
{
    int64_t result = value.size > 0 && (slice_data(value)[0] & 0x80) ? -1 : 0;
    for (int32_t i = 0; i < value.size && i < 8; ++i)
        result = (int64_t)((uint64_t)result << 8 | slice_data(value)[i]);
    return result;
}

static double real_of(const struct node_type *type, cqlring_bytes value)
{
    if (type->kind == TYPE_DOUBLE && value.size == 8) {
        uint64_t raw = cqr_load_u64(slice_data(value));
        double result;
        memcpy(&result, &raw, 8);
        return result;
    }
    if (type->kind == TYPE_FLOAT && value.size == 4) {
        uint32_t raw = cqr_load_u32(slice_data(value));
        float result;
        memcpy(&result, &raw, 4);
        return (double)result;
    }
    return (double)integer_of(value);
}

static void put_integer(const struct node_type *type, int64_t value, struct out *out)
{
    switch (type->kind) {
    case TYPE_TINYINT: out_u8(out, (uint8_t)value); break;
    case TYPE_SMALLINT: out_u16(out, (uint16_t)value); break;
    case TYPE_INT: out_u32(out, (uint32_t)value); break;
    case TYPE_VARINT: {
        char text[24];
        int size = snprintf(text, sizeof text, "%lld", (long long)value);
        (void)node_literal_integer(type, slice_of(text, (size_t)size), out);
        break;
    }
    case TYPE_DECIMAL: {
        char text[24];
        int size = snprintf(text, sizeof text, "%lld", (long long)value);
        (void)node_literal_float(type, slice_of(text, (size_t)size), false, out);
        break;
    }
    default: out_u64(out, (uint64_t)value); break;
    }
}

static void put_real(const struct node_type *type, double value, struct out *out)
{
    if (type->kind == TYPE_FLOAT) {
        float single = (float)value;
        uint32_t raw;
        memcpy(&raw, &single, 4);
        out_u32(out, raw);
    } else {
        uint64_t raw;
        memcpy(&raw, &value, 8);
        out_u64(out, raw);
    }
}

/* CAST: numbers to numbers and to text, text to text; what the tools use. */
static bool cast_value(struct query *query, const struct node_type *from,
                       const struct node_type *to, cqlring_bytes *value)
{
    if (value->size < 0 || from->kind == to->kind)
        return true;
    bool real_from = from->kind == TYPE_DOUBLE || from->kind == TYPE_FLOAT;
    struct out out = {0};
    if (node_type_is_number(from) && (to->kind == TYPE_DOUBLE || to->kind == TYPE_FLOAT)) {
        put_real(to, real_of(from, *value), &out);
    } else if (node_type_is_number(from) && (node_type_is_number(to) || to->kind == TYPE_DECIMAL)) {
        put_integer(to, real_from ? (int64_t)real_of(from, *value) : integer_of(*value), &out);
    } else if (node_type_is_number(from) && (to->kind == TYPE_TEXT || to->kind == TYPE_ASCII)) {
        if (real_from)
            node_out_printf(&out, "%.17g", real_of(from, *value));
        else
            node_out_printf(&out, "%lld", (long long)integer_of(*value));
    } else if (from->kind == TYPE_ASCII && to->kind == TYPE_TEXT) {
        return true;
    } else {
        return node_query_fail(query, ERROR_INVALID, "This cast is not supported here");
    }
    *value = node_arena_copy(query->arena, out_view(&out, 0));
    node_out_fini(&out);
    return true;
}

static bool element_value(struct query *query, const struct row_view *view,
                          const struct selector *selector, cqlring_bytes *value)
{
    const struct node_type *type = selector->column->type;
    cqlring_bytes whole = node_view_value(query, view, selector->column), wanted, key;
    *value = SLICE_NULL;
    if (!node_term_value(query, selector->term, type->subs[0], selector->name, &wanted))
        return false;
    if (whole.size < 0 || wanted.size < 0)
        return true;
    struct element_cursor cursor;
    node_elements(whole, &cursor);
    while (node_elements_next(&cursor, &key)) {
        cqlring_bytes mapped = key;
        if (type->kind == TYPE_MAP && !node_elements_next(&cursor, &mapped))
            break;
        if (node_value_compare(type->subs[0], key, wanted) == 0)
            *value = mapped;
    }
    return true;
}

static bool function_value(struct query *query, const struct row_view *view,
                           const struct selector *selector, cqlring_bytes *value)
{
    const struct node_type *types[FUNCTION_ARGUMENTS_MAX];
    cqlring_bytes arguments[FUNCTION_ARGUMENTS_MAX];
    uint16_t count = 0;
    for (const struct selector *argument = selector->arguments;
         argument != NULL && count < FUNCTION_ARGUMENTS_MAX; argument = argument->next, ++count) {
        types[count] = argument->type;
        bool fine = argument->kind == SELECT_TERM
                        ? node_term_value(query, argument->term, argument->type, selector->name,
                                          &arguments[count])
                        : node_selector_value(query, view, argument, &arguments[count]);
        if (!fine)
            return false;
    }
    return node_function_call(query, selector->function, types, arguments, count, value);
}

bool node_selector_value(struct query *query, const struct row_view *view,
                         const struct selector *selector, cqlring_bytes *value)
{
    switch (selector->kind) {
    case SELECT_COLUMN: *value = node_view_value(query, view, selector->column); return true;
    case SELECT_FIELD:
        *value = node_tuple_field(node_view_value(query, view, selector->column),
                                  selector->function);
        return true;
    case SELECT_ELEMENT: return element_value(query, view, selector, value);
    case SELECT_TOKEN: {
        uint8_t *at = node_arena_bytes(query->arena, 8);
        cqr_store_u64(at, (uint64_t)view->partition->token);
        *value = slice_of(at, 8);
        return true;
    }
    case SELECT_CAST:
        return node_selector_value(query, view, selector->arguments, value) &&
               cast_value(query, selector->arguments->type, selector->type, value);
    case SELECT_FUNCTION: return function_value(query, view, selector, value);
    default: *value = SLICE_NULL; return true;
    }
}

/* --- aggregates ------------------------------------------------------------------------------- */

void node_aggregate_init(struct aggregate *aggregate, const struct select_plan *plan)
{
    *aggregate = (struct aggregate){
        .plan = plan, .cells = node_zalloc(plan->output_count * sizeof *aggregate->cells)};
}

void node_aggregate_fini(struct aggregate *aggregate)
{
    for (uint32_t i = 0; i < aggregate->plan->output_count; ++i)
        node_out_fini(&aggregate->cells[i].value);
    node_free(aggregate->cells);
    node_out_fini(&aggregate->group);
    node_out_fini(&aggregate->finished);
}

void node_aggregate_partition(struct aggregate *aggregate)
{
    (void)aggregate; /* groups are told by their key's values */
}

static void put_cell(const struct aggregate *aggregate, uint32_t index, struct out *out)
{
    const struct output *output = &aggregate->plan->outputs[index];
    const struct aggregate_cell *cell = &aggregate->cells[index];
    const struct selector *selector = output->selector;
    if (selector->kind == SELECT_COUNT) {
        out_u32(out, 8);
        out_u64(out, cell->count);
        return;
    }
    bool computed = selector->aggregate == FUNCTION_SUM || selector->aggregate == FUNCTION_AVG;
    if (!computed && !cell->has_value) {
        out_u32(out, (uint32_t)CQLRING_NULL);
        return;
    }
    size_t at = out->size;
    out_u32(out, 0);
    if (!computed) {
        out_raw(out, cell->value.data, cell->value.size);
    } else {
        bool average = selector->aggregate == FUNCTION_AVG;
        uint64_t divisor = average && cell->count > 0 ? cell->count : 1;
        if (cell->is_real)
            put_real(output->type, cell->real / (double)divisor, out);
        else
            put_integer(output->type, cell->whole / (int64_t)divisor, out);
    }
    cqr_store_u32(out->data + at, (uint32_t)(out->size - at - 4));
}

static void end_group(struct aggregate *aggregate)
{
    for (uint32_t i = 0; i < aggregate->plan->output_count; ++i) {
        put_cell(aggregate, i, &aggregate->finished);
        struct out keep = aggregate->cells[i].value;
        keep.size = 0;
        aggregate->cells[i] = (struct aggregate_cell){.value = keep};
    }
    ++aggregate->finished_count;
    aggregate->rows = 0;
}

static bool change_group(struct aggregate *aggregate, struct query *query,
                         const struct row_view *view)
{
    struct out key = {0};
    for (uint16_t i = 0; i < aggregate->plan->group_count; ++i)
        out_bytes(&key, node_view_value(query, view, aggregate->plan->group_by[i]));
    bool same = aggregate->grouped && key.size == aggregate->group.size &&
                (key.size == 0 || memcmp(key.data, aggregate->group.data, key.size) == 0);
    if (!same && aggregate->grouped)
        end_group(aggregate);
    node_out_fini(&aggregate->group);
    aggregate->group = key;
    aggregate->grouped = true;
    return true;
}

static void keep_value(struct aggregate_cell *cell, cqlring_bytes value)
{
    cell->value.size = 0;
    out_slice(&cell->value, value);
    cell->has_value = true;
}

bool node_aggregate_row(struct aggregate *aggregate, struct query *query,
                        const struct row_view *view)
{
    if (aggregate->plan->group_count > 0)
        (void)change_group(aggregate, query, view);
    ++aggregate->rows;
    for (uint32_t i = 0; i < aggregate->plan->output_count; ++i) {
        const struct selector *selector = aggregate->plan->outputs[i].selector;
        struct aggregate_cell *cell = &aggregate->cells[i];
        const struct selector *argument = selector->kind == SELECT_COUNT || selector->aggregate != 0
                                              ? selector->arguments
                                              : selector;
        cqlring_bytes value = slice_of("", 0);
        if (argument != NULL && argument->kind != SELECT_TERM &&
            !node_selector_value(query, view, argument, &value))
            return false;
        if (selector->kind == SELECT_COUNT) {
            cell->count += value.size >= 0;
        } else if (selector->aggregate == 0) {
            if (aggregate->rows == 1 && value.size >= 0)
                keep_value(cell, value); /* of the group's first row */
        } else if (value.size >= 0) {
            ++cell->count;
            cell->is_real = argument->type->kind == TYPE_DOUBLE ||
                            argument->type->kind == TYPE_FLOAT;
            int order = cell->has_value
                            ? node_value_compare(argument->type, value,
                                                 slice_of(cell->value.data, cell->value.size))
                            : 0;
            if (!cell->has_value || (selector->aggregate == FUNCTION_MIN && order < 0) ||
                (selector->aggregate == FUNCTION_MAX && order > 0))
                keep_value(cell, value);
            if (cell->is_real)
                cell->real += real_of(argument->type, value);
            else
                cell->whole = (int64_t)((uint64_t)cell->whole + (uint64_t)integer_of(value));
        }
    }
    return true;
}

uint32_t node_aggregate_finish(struct aggregate *aggregate, struct query *query, uint64_t limit)
{
    if (aggregate->plan->group_count == 0 || aggregate->grouped)
        end_group(aggregate);
    if (aggregate->finished_count > limit) { /* cells have no fixed size: walk them */
        struct reader reader;
        node_reader_init(&reader, aggregate->finished.data, (uint32_t)aggregate->finished.size);
        for (uint64_t i = 0; i < limit * aggregate->plan->output_count; ++i)
            (void)cqr_get_bytes(&reader);
        aggregate->finished.size = (size_t)(reader.at - aggregate->finished.data);
        aggregate->finished_count = (uint32_t)limit;
    }
    out_raw(query->body, aggregate->finished.data, aggregate->finished.size);
    return aggregate->finished_count;
}
