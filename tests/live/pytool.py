# SPDX-License-Identifier: Apache-2.0
"""The stock Python driver beside cqlring: what one of them writes, the other must read. Run it with the python of tests/live/venv.

    pytool.py write-types --host H --port P --keyspace K [--suffix p] [--literals]   write every row of types.tsv
    pytool.py read-types  --host H --port P --keyspace K [--suffix b]   read rows that somebody wrote, and compare
    pytool.py make-types  [--check]                                     types.tsv again from its first, second and last fields
              [--auth USER:PASSWORD] [--ca FILE] [--version 4|5] [--types FILE]

types.tsv is the one description of the values, for this program and for the C tests. Each row has

    id   cql_type   literal   payload   value

The payload is the cell in hex, without its length, as the stock driver serializes it (empty: a cell of no bytes; null:
no cell). The literal is CQL for the same value; `-` where CQL has none. The value is JSON: what the payload means. Lines
that begin with `# ddl: ` are statements to run first, with {ks} for the keyspace. (The name of a UDT there has a letter in
its hexadecimal form: the stock driver takes one without, such as `address`, for a number when the UDT is within a vector.)

The rows live in {ks}.types (id text PRIMARY KEY, c0 TYPE, c1 TYPE, ...), one column for each cql_type in the order of
first appearance in the file, and each row sets its own column alone. The key is the id and a suffix that says who wrote
it: l as a literal and b as a bound value by cqlring, p by this program. Counters have {ks}.counters (id, v).

read-types compares the bytes of each cell with the payload, and what the stock driver makes of them with the value. Prints
FAIL lines and `N passed, N failed`.
"""
import argparse
import decimal
import json
import math
import os
import ssl
import struct
import sys
import uuid
from datetime import datetime, timedelta

from cassandra import ConsistencyLevel, cqltypes
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent
from cassandra.protocol import ProtocolHandler, ResultMessage
from cassandra.util import Date, Duration, Time

HERE = os.path.dirname(os.path.abspath(__file__))
WIRE_VERSION = 4  # values are the same in every version we speak
COLUMNS = ("id", "cql_type", "literal", "payload", "value")


# Types ----------------------------------------------------------------------------------------

SIMPLE = {
    "ascii": cqltypes.AsciiType, "bigint": cqltypes.LongType, "blob": cqltypes.BytesType, "boolean": cqltypes.BooleanType,
    "counter": cqltypes.CounterColumnType, "date": cqltypes.SimpleDateType, "decimal": cqltypes.DecimalType,
    "double": cqltypes.DoubleType, "duration": cqltypes.DurationType, "float": cqltypes.FloatType,
    "inet": cqltypes.InetAddressType, "int": cqltypes.Int32Type, "smallint": cqltypes.ShortType, "text": cqltypes.UTF8Type,
    "time": cqltypes.TimeType, "timestamp": cqltypes.DateType, "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType, "uuid": cqltypes.UUIDType, "varchar": cqltypes.UTF8Type, "varint": cqltypes.IntegerType,
}


class Type:
    """A parsed CQL type: name, arguments, and for a UDT its field names."""

    def __init__(self, name, arguments=(), fields=None, size=None):
        self.name, self.arguments, self.fields, self.size = name, list(arguments), fields, size

    def driver(self):
        """The stock driver's class for it."""
        inner = [argument.driver() for argument in self.arguments]
        if self.fields is not None:
            return cqltypes.UserType.make_udt_class("ks", self.name, tuple(self.fields), tuple(inner))
        if self.name == "vector":
            return cqltypes.VectorType.apply_parameters([inner[0], self.size], None)
        generic = {"list": cqltypes.ListType, "set": cqltypes.SetType, "map": cqltypes.MapType, "tuple": cqltypes.TupleType}
        if self.name in generic:
            return generic[self.name].apply_parameters(inner)
        return SIMPLE[self.name]


def split(text):
    """Split at the commas that are outside of every bracket."""
    parts, depth, begin = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
    return parts + [text[begin:].strip()]


def parse_type(text, user_types):
    name, bracket, rest = text.strip().partition("<")
    if not bracket:
        if name in user_types:
            fields = user_types[name]
            return Type(name, [kind for _, kind in fields], [field for field, _ in fields])
        return Type(name)
    arguments = split(rest[:-1])
    if name == "frozen":
        return parse_type(arguments[0], user_types)
    if name == "vector":
        return Type(name, [parse_type(arguments[0], user_types)], size=int(arguments[1]))
    return Type(name, [parse_type(argument, user_types) for argument in arguments])


# Values ---------------------------------------------------------------------------------------

NO_CELL, NO_BYTES = object(), object()


def from_json(kind, value):
    """The value that the stock driver wants to be given, from the JSON of the file."""
    if value is None:
        return None
    inner = kind.arguments
    if kind.fields is not None or kind.name == "tuple":
        return tuple(from_json(one, item) for one, item in zip(inner, value))
    if kind.name in ("list", "set", "vector"):
        return [from_json(inner[0], item) for item in value]
    if kind.name == "map":
        return OrderedPairs((from_json(inner[0], key), from_json(inner[1], item)) for key, item in value)
    if kind.name in ("bigint", "counter", "varint", "timestamp"):
        return int(value)
    if kind.name in ("float", "double"):
        return float(value)
    if kind.name == "decimal":
        unscaled = int(value["unscaled"])
        return decimal.Decimal((unscaled < 0, [int(digit) for digit in str(abs(unscaled))], -value["scale"]))
    if kind.name == "blob":
        return bytes.fromhex(value)
    if kind.name in ("uuid", "timeuuid"):
        return uuid.UUID(value)
    if kind.name == "date":
        return Date(value)
    if kind.name == "time":
        return Time(int(value))
    if kind.name == "duration":
        return Duration(value["months"], value["days"], int(value["nanos"]))
    return value


class OrderedPairs(list):
    """A map in the order of the file: the stock driver asks only for items()."""

    def items(self):
        return list(self)


def special(value):
    if value is None:
        return NO_CELL
    if value == {"empty": True}:
        return NO_BYTES
    return None


def serialize(kind, value):
    """The payload; NO_CELL or the bytes."""
    if special(value) is NO_CELL:
        return NO_CELL
    if special(value) is NO_BYTES:
        return b""
    if kind.name == "inet" and value.startswith("::ffff:"):
        return mapped_inet(value)
    return kind.driver().to_binary(from_json(kind, value), WIRE_VERSION)


def mapped_inet(text):
    """An IPv4-mapped address stays sixteen bytes; the stock driver's own parser does the same where the system's does."""
    import ipaddress
    return ipaddress.IPv6Address(text).packed


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def literal_of(kind, value):
    """CQL for the value, or None where CQL has none."""
    if special(value) is NO_CELL:
        return "null"
    if special(value) is NO_BYTES:
        return None
    inner = kind.arguments
    if kind.fields is not None:
        parts = [(name, literal_of(one, item)) for name, one, item in zip(kind.fields, inner, value) if item is not None]
        # Fields that are left out are null, but a value of no field at all is no literal.
        return None if not parts or any(part is None for _, part in parts) else "{" + ", ".join(f"{n}: {p}" for n, p in parts) + "}"
    if kind.name in ("list", "set", "vector", "tuple"):
        types = inner if kind.name == "tuple" else inner * len(value)
        parts = [literal_of(one, item) for one, item in zip(types, value)]
        if any(part is None for part in parts):
            return None
        opening, closing = {"list": "[]", "vector": "[]", "set": "{}", "tuple": "()"}[kind.name]
        return opening + ", ".join(parts) + closing
    if kind.name == "map":
        parts = [(literal_of(inner[0], key), literal_of(inner[1], item)) for key, item in value]
        if any(key is None or item is None for key, item in parts):
            return None
        return "{" + ", ".join(f"{key}: {item}" for key, item in parts) + "}"
    if kind.name in ("text", "varchar", "ascii"):
        return quoted(value)
    if kind.name == "inet":
        return quoted(value)
    if kind.name == "blob":
        return "0x" + value
    if kind.name == "boolean":
        return "true" if value else "false"
    if kind.name == "date":
        return str(value + 2 ** 31)  # days as the server counts them: every date has this form
    if kind.name == "decimal":
        unscaled, scale = int(value["unscaled"]), value["scale"]
        digits = str(abs(unscaled))
        sign = "-" if unscaled < 0 else ""
        if scale == 0:
            return sign + digits
        if 0 < scale <= 60:
            digits = digits.rjust(scale + 1, "0")
            return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
        return f"{sign}{digits}E{-scale}"
    if kind.name == "duration":
        months, days, nanos = value["months"], value["days"], int(value["nanos"])
        if not months and not days and not nanos:
            return "0s"
        if -2 ** 31 in (months, days) or nanos == -2 ** 63:
            return None  # the parser reads the sign apart from the number
        sign = "-" if min(months, days, nanos) < 0 else ""
        parts = [(abs(months), "mo"), (abs(days), "d"), (abs(nanos), "ns")]
        return sign + "".join(f"{number}{unit}" for number, unit in parts if number)
    if kind.name == "time":
        nanos = int(value)
        seconds, rest = divmod(nanos, 10 ** 9)
        return quoted(f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}")
    return str(value)


def plain(kind, value):
    """A value of the stock driver in a form where equal means the same; timestamps as milliseconds where they can be had."""
    if value is None:
        return None
    inner = kind.arguments
    if kind.fields is not None or kind.name == "tuple":
        return tuple(plain(one, item) for one, item in zip(inner, value))
    if kind.name == "set":  # the stock driver sorts by its own order
        return sorted((plain(inner[0], item) for item in value), key=repr)
    if kind.name in ("list", "vector"):
        return [plain(inner[0], item) for item in value]
    if kind.name == "map":
        return [(plain(inner[0], key), plain(inner[1], item)) for key, item in value.items()]
    if kind.name in ("float", "double"):
        return "NaN" if math.isnan(value) else repr(struct.unpack(">f", struct.pack(">f", value))[0] if kind.name == "float" else value)
    if kind.name == "decimal":
        return value.as_tuple()
    if kind.name == "timestamp" and isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1)) / timedelta(milliseconds=1))
    if kind.name == "inet":
        import ipaddress
        return ipaddress.ip_address(value)
    return value


# The file -------------------------------------------------------------------------------------

class Row:
    def __init__(self, fields, user_types):
        self.id, self.cql_type, self.literal, payload, value = fields
        self.kind = parse_type(self.cql_type, user_types)
        self.value = json.loads(value)
        self.payload = None if payload == "null" else bytes.fromhex(payload)
        self.raw_value = value


class File:
    def __init__(self, path):
        self.comments, self.ddl, self.rows, self.user_types = [], [], [], {}
        with open(path, encoding="utf-8") as file:
            for line in file.read().split("\n"):
                if line.startswith("# ddl: "):
                    self.ddl.append(line[len("# ddl: "):])
                    self.take_type(self.ddl[-1])
                if line.startswith("#"):
                    self.comments.append(line)
                elif line:
                    self.rows.append(Row(line.split("\t"), self.user_types))
        self.columns = list(dict.fromkeys(row.cql_type for row in self.rows))

    def take_type(self, statement):
        """CREATE TYPE IF NOT EXISTS {ks}.name (field type, ...)"""
        head, _, body = statement.partition("(")
        name = head.split()[-1].rpartition(".")[2]
        fields = [part.split(None, 1) for part in split(body.rstrip().rstrip(")"))]
        self.user_types[name] = [(field, parse_type(kind, self.user_types)) for field, kind in fields]

    def column(self, row):
        return f"c{self.columns.index(row.cql_type)}"


def make_types(path, check):
    file = File(path)
    lines = list(file.comments)
    for row in file.rows:
        payload = serialize(row.kind, row.value)
        literal = literal_of(row.kind, row.value)
        lines.append("\t".join([row.id, row.cql_type, "-" if literal is None or row.literal == "-" else literal,
                                "null" if payload is NO_CELL else payload.hex(), row.raw_value]))
    text = "\n".join(lines) + "\n"
    with open(path, encoding="utf-8") as current:
        if current.read() == text:
            print(f"{path}: {len(file.rows)} rows, as they are made")
            return 0
    if check:
        print(f"{path} is not what make-types makes of it")
        return 1
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    print(f"{path}: {len(file.rows)} rows written")
    return 0


# With a server --------------------------------------------------------------------------------

class RawResult(ResultMessage):
    """Rows of bytes, as they came."""

    def recv_results_rows(self, f, protocol_version, user_type_map, result_metadata, column_encryption_policy):
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        count = struct.unpack(">i", f.read(4))[0]
        self.parsed_rows = [self.recv_row(f, len(columns)) for _ in range(count)]
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]


class RawHandler(ProtocolHandler):
    message_types_by_opcode = {**ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: RawResult}


def connect(options):
    settings = dict(contact_points=[options.host], port=options.port, protocol_version=options.version,
                    idle_heartbeat_interval=0, connect_timeout=15, control_connection_timeout=15,
                    execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(
                        request_timeout=30, consistency_level=ConsistencyLevel.ONE, row_factory=lambda names, rows: rows)})
    if options.auth:
        settings["auth_provider"] = PlainTextAuthProvider(*options.auth.split(":", 1))
    if options.ca:
        settings["ssl_context"] = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options.ca)
        settings["ssl_context"].check_hostname = False
    cluster = Cluster(**settings)
    return cluster, cluster.connect()


def write_types(options):
    file = File(options.types)
    cluster, session = connect(options)
    ks = options.keyspace
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS {ks} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    for statement in file.ddl:
        session.execute(statement.replace("{ks}", ks))
    columns = ", ".join(f"c{index} {cql_type}" for index, cql_type in enumerate(file.columns) if cql_type != "counter")
    session.execute(f"CREATE TABLE IF NOT EXISTS {ks}.types (id text PRIMARY KEY, {columns})")
    session.execute(f"CREATE TABLE IF NOT EXISTS {ks}.counters (id text PRIMARY KEY, v counter)")
    inserts, requests = {}, []
    for row in file.rows:
        key = row.id + options.suffix
        if row.cql_type == "counter":
            # A counter starts at nothing: what is there of an earlier run is taken off again.
            old = session.execute(f"SELECT v FROM {ks}.counters WHERE id = '{key}'").one()
            delta = int(row.value) - (old[0] if old and old[0] else 0)
            requests.append((f"UPDATE {ks}.counters SET v = v + {delta} WHERE id = '{key}'", None))
            continue
        column = file.column(row)
        if options.literals:
            if row.literal != "-":
                requests.append((f"INSERT INTO {ks}.types (id, {column}) VALUES ('{key}', {row.literal})", None))
            continue
        if column not in inserts:
            inserts[column] = session.prepare(f"INSERT INTO {ks}.types (id, {column}) VALUES (?, ?)")
        bound = inserts[column].bind([key, None])
        # The bytes are put in place of a value: they are the stock driver's own, made by make-types, and
        # there are cells (those of no bytes) that no value of it stands for.
        bound.values[1] = row.payload
        requests.append((bound, None))
    failed = 0
    for request, (success, result) in zip(requests, execute_concurrent(session, requests, concurrency=32, raise_on_first_error=False)):
        if not success:
            failed += 1
            what = request[0] if isinstance(request[0], str) else request[0].values[0].decode()
            print(f"FAIL write {what[:200]}: {result}")
    cluster.shutdown()
    print(f"{len(requests) - failed} passed, {failed} failed")
    return 1 if failed else 0


def read_types(options):
    file = File(options.types)
    cluster, session = connect(options)
    ks = options.keyspace
    session.client_protocol_handler = RawHandler
    passed = failed = skipped = 0
    for row in file.rows:
        if options.suffix == "l" and row.literal == "-":
            skipped += 1
            continue
        table, column = ("counters", "v") if row.cql_type == "counter" else ("types", file.column(row))
        if row.cql_type == "counter" and options.no_counters:
            skipped += 1
            continue
        found = list(session.execute(f"SELECT {column} FROM {ks}.{table} WHERE id = '{row.id}{options.suffix}'"))
        why = difference(row, found)
        if why:
            failed += 1
            print(f"FAIL read {row.id}{options.suffix} {row.cql_type}: {why}")
        else:
            passed += 1
    cluster.shutdown()
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


def difference(row, found):
    """None if the rows found are the row wanted, else what is wrong."""
    if len(found) != 1:
        return f"{len(found)} rows"
    cell = found[0][0]
    if cell != row.payload:
        show = lambda it: "null" if it is None else it.hex()
        return f"the cell is {show(cell)}, not {show(row.payload)}"
    if special(row.value) is not None:
        return None
    try:
        value = row.kind.driver().from_binary(cell, WIRE_VERSION)
    except OverflowError:
        return None  # a time beyond Python's; the bytes were compared
    wanted = plain(row.kind, from_json(row.kind, row.value))
    if plain(row.kind, value) != wanted:
        return f"the stock driver reads {value!r}, not {wanted!r}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["write-types", "read-types", "make-types"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9042)
    parser.add_argument("--keyspace", default="cqlring_live")
    parser.add_argument("--suffix")
    parser.add_argument("--literals", action="store_true", help="write as CQL text instead of bound values")
    parser.add_argument("--no-counters", action="store_true")
    parser.add_argument("--auth")
    parser.add_argument("--ca")
    parser.add_argument("--version", type=int, default=5)
    parser.add_argument("--types", default=os.path.join(HERE, "types.tsv"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.command == "make-types":
        return make_types(options.types, options.check)
    if options.suffix is None:
        options.suffix = "p" if options.command == "write-types" else "b"
    return write_types(options) if options.command == "write-types" else read_types(options)


if __name__ == "__main__":
    sys.exit(main())
