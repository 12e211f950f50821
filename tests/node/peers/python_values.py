# SPDX-License-Identifier: Apache-2.0
"""One value of every CQL type, three ways: the type, the value as the stock driver gives it, and CQL text."""
import decimal
import math
import struct
import uuid
from datetime import datetime, timezone

from cassandra.util import Date, Duration, Time

UUID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
TIMEUUID = uuid.UUID("f4a70c40-3f5f-11ee-be56-0242ac120002")


def float32(value):
    return struct.unpack(">f", struct.pack(">f", value))[0]


def instant(text):
    return datetime.fromisoformat(text).replace(tzinfo=None)


# name of the column, CQL type, value, literal
SCALARS = [
    ("c_ascii", "ascii", "plain ~!@#$ text", "'plain ~!@#$ text'"),
    ("c_bigint", "bigint", -9223372036854775808, "-9223372036854775808"),
    ("c_blob", "blob", b"\x00\xff\x80abc", "0x00ff80616263"),
    ("c_boolean", "boolean", True, "true"),
    ("c_date", "date", Date(-719162), "'0001-01-01'"),
    ("c_decimal", "decimal", decimal.Decimal("-12345678901234567890.12300"), "-12345678901234567890.12300"),
    ("c_double", "double", -2.2250738585072014e-308, "-2.2250738585072014e-308"),
    ("c_duration", "duration", Duration(14, 3, 3723000000004), "14mo3d1h2m3s4ns"),
    ("c_float", "float", float32(3.14159), "3.14159"),
    ("c_inet", "inet", "192.168.1.10", "'192.168.1.10'"),
    ("c_inet6", "inet", "2001:db8::1", "'2001:db8::1'"),
    ("c_int", "int", -2147483648, "-2147483648"),
    ("c_smallint", "smallint", -32768, "-32768"),
    ("c_text", "text", "it's zażółć 😀", "'it''s zażółć 😀'"),
    ("c_time", "time", Time(86399999999999), "'23:59:59.999999999'"),
    ("c_timestamp", "timestamp", instant("2024-01-02 03:04:05.678"), "'2024-01-02 03:04:05.678+0000'"),
    ("c_timestamp_ms", "timestamp", instant("1969-12-31 23:59:59.999"), "-1"),
    ("c_timeuuid", "timeuuid", TIMEUUID, str(TIMEUUID)),
    ("c_tinyint", "tinyint", -128, "-128"),
    ("c_uuid", "uuid", UUID, str(UUID)),
    ("c_varchar", "varchar", "", "''"),
    ("c_varint", "varint", 2 ** 200 + 1, str(2 ** 200 + 1)),
]

# The UDTs are read as namedtuples; equality with a plain tuple is what counts.
NESTED = [
    ("n_list", "list<int>", [3, 1, 2, 1], "[3, 1, 2, 1]"),
    ("n_set", "set<text>", {"b", "a", ""}, "{'b', 'a', ''}"),
    ("n_map", "map<text, bigint>", {"x": 1, "y": -2}, "{'x': 1, 'y': -2}"),
    ("n_frozen_list", "frozen<list<double>>", [0.5, -0.0, 1e300], "[0.5, -0.0, 1e300]"),
    ("n_frozen_empty", "frozen<set<int>>", set(), "{}"),
    ("n_deep", "map<int, frozen<list<frozen<set<text>>>>>", {7: [{"a", "b"}, {"c"}], 8: []},
     "{7: [{'a', 'b'}, {'c'}], 8: []}"),
    ("n_tuple", "tuple<int, text, boolean>", (1, None, True), "(1, null, true)"),
    ("n_tuple_deep", "tuple<bigint, frozen<tuple<int, int>>, frozen<list<text>>>", (5, (None, 7), ["a", "b"]),
     "(5, (null, 7), ['a', 'b'])"),
    ("n_udt", "address", ("Main", 12345, {"home", "work"}), "{street: 'Main', zip: 12345, tags: {'home', 'work'}}"),
    ("n_udt_part", "frozen<address>", (None, 1, None), "{zip: 1}"),
    ("n_udt_deep", "frozen<person>", (UUID, ("Side", None, None), [(instant("2024-01-01 00:00:00"), 1.5)]),
     f"{{id: {UUID}, home: {{street: 'Side'}}, history: [('2024-01-01', 1.5)]}}"),
    ("n_list_udt", "list<frozen<address>>", [("A", 1, {"t"}), ("B", None, None)],
     "[{street: 'A', zip: 1, tags: {'t'}}, {street: 'B'}]"),
]

VECTORS = [
    ("v_float", "vector<float, 3>", [1.0, -2.5, float32(0.1)], "[1.0, -2.5, 0.1]"),
    ("v_int", "vector<int, 2>", [1, -1], "[1, -1]"),
    ("v_text", "vector<text, 3>", ["a", "", "bcd"], "['a', '', 'bcd']"),
    ("v_vector", "vector<vector<double, 2>, 2>", [[1.5, 2.5], [3.5, 4.5]], "[[1.5, 2.5], [3.5, 4.5]]"),
]

# Floating-point values that have a name instead of digits.
NAMED_FLOATS = [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)]


def plain(value):
    """The value with the driver's own containers replaced, so that == means the same CQL value."""
    if isinstance(value, (str, bytes, int, decimal.Decimal, uuid.UUID, Date, Time, Duration)) or value is None:
        return value
    if isinstance(value, float):
        return repr(value)  # NaN equals NaN and -0.0 is not 0.0
    if isinstance(value, datetime):
        return value.replace(tzinfo=timezone.utc)
    if hasattr(value, "items"):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return frozenset(plain(item) for item in value)  # set, SortedSet
