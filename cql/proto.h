/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_PROTO_H
#define CQR_PROTO_H

/* Numbers and names of the CQL native protocol v3, v4 and v5. No state, no function that does anything. */

#include <stdint.h>

enum {
    PROTO_V3 = 3,
    PROTO_V4 = 4,
    PROTO_V5 = 5,
    PROTO_HEADER_SIZE = 9,
    PROTO_BODY_MAX = 256 << 20,     /* the text's limit of a body: 256 MiB */
    PROTO_SEGMENT_PAYLOAD_MAX = 131071,
    PROTO_STREAM_COUNT = 32768,
    PROTO_STREAM_EVENT = -1
};

enum opcode {
    OPCODE_ERROR = 0x00,
    OPCODE_STARTUP = 0x01,
    OPCODE_READY = 0x02,
    OPCODE_AUTHENTICATE = 0x03,
    OPCODE_OPTIONS = 0x05,
    OPCODE_SUPPORTED = 0x06,
    OPCODE_QUERY = 0x07,
    OPCODE_RESULT = 0x08,
    OPCODE_PREPARE = 0x09,
    OPCODE_EXECUTE = 0x0A,
    OPCODE_REGISTER = 0x0B,
    OPCODE_EVENT = 0x0C,
    OPCODE_BATCH = 0x0D,
    OPCODE_AUTH_CHALLENGE = 0x0E,
    OPCODE_AUTH_RESPONSE = 0x0F,
    OPCODE_AUTH_SUCCESS = 0x10
};

enum { FLAG_COMPRESSED = 0x01, FLAG_TRACING = 0x02, FLAG_PAYLOAD = 0x04, FLAG_WARNING = 0x08, FLAG_BETA = 0x10 };

enum result_kind { RESULT_VOID = 1, RESULT_ROWS = 2, RESULT_KEYSPACE = 3, RESULT_PREPARED = 4, RESULT_SCHEMA = 5 };

enum batch_kind { BATCH_LOGGED = 0, BATCH_UNLOGGED = 1, BATCH_COUNTER = 2 };

/* Query parameter flags (section 5 of the texts). */
enum {
    QUERY_VALUES = 0x0001,
    QUERY_SKIP_METADATA = 0x0002,
    QUERY_PAGE_SIZE = 0x0004,
    QUERY_PAGING_STATE = 0x0008,
    QUERY_SERIAL = 0x0010,
    QUERY_TIMESTAMP = 0x0020,
    QUERY_NAMES = 0x0040,
    QUERY_KEYSPACE = 0x0080,
    QUERY_NOW = 0x0100
};

/* Rows metadata flags. */
enum { ROWS_GLOBAL_SPEC = 0x0001, ROWS_MORE_PAGES = 0x0002, ROWS_NO_METADATA = 0x0004, ROWS_METADATA_CHANGED = 0x0008 };

enum server_error {
    ERROR_SERVER = 0x0000,
    ERROR_PROTOCOL = 0x000A,
    ERROR_CREDENTIALS = 0x0100,
    ERROR_UNAVAILABLE = 0x1000,
    ERROR_OVERLOADED = 0x1001,
    ERROR_BOOTSTRAPPING = 0x1002,
    ERROR_TRUNCATE = 0x1003,
    ERROR_WRITE_TIMEOUT = 0x1100,
    ERROR_READ_TIMEOUT = 0x1200,
    ERROR_READ_FAILURE = 0x1300,
    ERROR_FUNCTION_FAILURE = 0x1400,
    ERROR_WRITE_FAILURE = 0x1500,
    ERROR_CDC_WRITE_FAILURE = 0x1600,
    ERROR_CAS_WRITE_UNKNOWN = 0x1700,
    ERROR_SYNTAX = 0x2000,
    ERROR_UNAUTHORIZED = 0x2100,
    ERROR_INVALID = 0x2200,
    ERROR_CONFIG = 0x2300,
    ERROR_ALREADY_EXISTS = 0x2400,
    ERROR_UNPREPARED = 0x2500
};

/* What changes layouts besides the version: extensions negotiated on one connection. */
enum { EXT_METADATA_ID = 0x01, EXT_TABLETS_V1 = 0x02, EXT_TABLETS_V2 = 0x04, EXT_LWT_MARK = 0x08, EXT_RATE_LIMIT = 0x10, EXT_FAILURE_MAP = 0x20 };

/* How bytes are laid out on one connection; handed to every encoder and decoder. */
struct dialect {
    uint8_t version;             /* PROTO_V3 … PROTO_V5 */
    uint8_t extensions;          /* EXT_… */
    uint8_t frame_flags;         /* FLAG_BETA on every request of a beta version, else 0 */
    int32_t rate_limit_code;     /* EXT_RATE_LIMIT: the negotiated error code */
    uint32_t lwt_mask;           /* EXT_LWT_MARK: bit in the bind metadata's flags */
};

static inline int cqr_dialect_has_metadata_id(const struct dialect *dialect)
{
    return dialect->version >= PROTO_V5 || (dialect->extensions & EXT_METADATA_ID) != 0;
}

#endif
