/* SPDX-License-Identifier: Apache-2.0 */
/* Paging states: where a page ended, with the statement's hash and a checksum, so that a foreign,
   old or damaged one is refused and never read as another place. */
#include "tests/node/engine_private.h"

#include "cql/segment.h"

enum { PAGING_MAGIC = 0x4E51 };

cqlring_bytes node_paging_encode(struct node_arena *arena, uint64_t hash, uint8_t version,
                                 const struct paging_point *point)
{
    struct out out = {0};
    out_u16(&out, PAGING_MAGIC);
    out_u64(&out, hash);
    out_u8(&out, version);
    out_u8(&out, point->inside);
    out_u64(&out, (uint64_t)point->token);
    out_string(&out, point->key);
    out_u8(&out, point->has_row);
    out_bytes(&out, point->row);
    out_u64(&out, point->limit);
    out_u64(&out, point->given);
    out_u32(&out, cqr_crc32(out.data, (uint32_t)out.size));
    cqlring_bytes state = node_arena_copy(arena, out_view(&out, 0));
    node_out_fini(&out);
    return state;
}

bool node_paging_decode(struct query *query, uint64_t hash, cqlring_bytes state,
                        struct paging_point *point)
{
    struct reader reader;
    node_reader_init(&reader, state.data, (uint32_t)(state.size < 0 ? 0 : state.size));
    bool fine = state.size > 20 && cqr_crc32(slice_data(state), (uint32_t)state.size - 4) ==
                                       cqr_load_u32(slice_data(state) + state.size - 4);
    fine = fine && cqr_get_u16(&reader) == PAGING_MAGIC;
    if (fine && cqr_get_u64(&reader) != hash)
        return node_query_fail(query, ERROR_PROTOCOL,
                               "Invalid value for the paging state: it is another statement's");
    fine = fine && cqr_get_u8(&reader) == query->version;
    point->inside = cqr_get_u8(&reader) != 0;
    point->token = (int64_t)cqr_get_u64(&reader);
    point->key = cqr_get_string(&reader);
    point->has_row = cqr_get_u8(&reader) != 0;
    point->row = cqr_get_bytes(&reader);
    point->limit = cqr_get_u64(&reader);
    point->given = cqr_get_u64(&reader);
    if (point->row.size < 0)
        point->row = slice_of("", 0);
    return (fine && !reader.failed) ||
           node_query_fail(query, ERROR_PROTOCOL, "Invalid value for the paging state");
}
